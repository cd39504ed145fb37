// The costs of a transportation problem, row by row: read from a matrix, or computed on demand.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "isentropic/matrix_view.h"

namespace isentropic::inline ISENTROPIC_ABI {

template <class T>
class CostRows {
 public:
  CostRows() = default;
  CostRows(MatrixView<const T> matrix) : matrix_(matrix) {}
  // make(i, row) writes a row, one(i, j) is one of its entries, with the same bits.
  CostRows(std::size_t rows, std::size_t cols, std::function<void(std::size_t, T*)> make,
           std::function<double(std::size_t, std::size_t)> one)
      : matrix_(nullptr, rows, cols), make_(std::move(make)), one_(std::move(one)), made_(cols) {}

  std::size_t rows() const { return matrix_.rows; }
  std::size_t cols() const { return matrix_.cols; }
  // Valid until the next call for another row.
  const T* row(std::size_t i) const {
    if (!make_) return matrix_.row(i);
    if (i != kept_) make_(i, made_.data());
    kept_ = i;
    return made_.data();
  }
  double at(std::size_t i, std::size_t j) const { return make_ ? one_(i, j) : static_cast<double>(matrix_.row(i)[j]); }

 private:
  MatrixView<const T> matrix_;
  std::function<void(std::size_t, T*)> make_;
  std::function<double(std::size_t, std::size_t)> one_;
  mutable std::vector<T> made_;
  mutable std::size_t kept_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace isentropic::inline ISENTROPIC_ABI
