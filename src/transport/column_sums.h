// Sums of a plan's columns, of rows that are computed one by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "isentropic/version.h"
#include "src/parallel.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Rows are added in blocks whose number depends only on n: threads share the blocks, and the bits do not change.
class ColumnSums {
 public:
  ColumnSums(std::size_t n, std::size_t m)
      : n_(n),
        m_(m),
        block_rows_(std::max<std::size_t>(64, (n + 15) / 16)),
        blocks_((n + block_rows_ - 1) / block_rows_),
        partial_(blocks_ * m),
        rows_(blocks_ * m),
        sums_(m) {}

  // add_row(i, room for a row, sums) adds row i of the plan to the sums of its block.
  template <class AddRow>
  void compute(const AddRow& add_row) {
    parallel_rows(blocks_, 16 * block_rows_ * m_, [&](std::size_t begin, std::size_t end) {
      for (std::size_t block = begin; block < end; ++block) {
        double* const sums = partial_.data() + block * m_;
        std::fill(sums, sums + m_, 0);
        const std::size_t last = std::min(n_, (block + 1) * block_rows_);
        for (std::size_t i = block * block_rows_; i < last; ++i) add_row(i, rows_.data() + block * m_, sums);
      }
    });
    for (std::size_t j = 0; j < m_; ++j) {
      double sum = 0;
      for (std::size_t block = 0; block < blocks_; ++block) sum += partial_[block * m_ + j];
      sums_[j] = sum;
    }
  }

  double operator[](std::size_t j) const { return sums_[j]; }

 private:
  std::size_t n_, m_, block_rows_, blocks_;
  std::vector<double> partial_, rows_, sums_;
};

}  // namespace isentropic::inline ISENTROPIC_ABI
