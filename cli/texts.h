// The texts so far of `sample --tokens`: token numbers for each row of FILE, from a column of it or from another file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rows.h"

class TextsSoFar {
 public:
  // `source` is a file, which has an ending of one or is "-", or a column of FILE, whose text is then kept.
  void open(Files& files, const std::string& source);
  bool given() const { return column_ || !file_.path.empty(); }

  // The tokens of these rows of FILE, as many for each row as for the longest, ended by -1. Several threads may ask.
  std::vector<std::int64_t> of(const Files& files, const Table& rows);

  // Refuses a file with more rows than FILE, which has `rows`.
  void check_end(const Files& files, std::size_t rows) const;

 private:
  using Text = std::vector<std::int64_t>;

  void read(const Files& files);

  bool column_ = false;
  std::string name_;
  SecondFile file_{"TOKENS"};
  std::once_flag once_;
  std::exception_ptr failure_;
  std::vector<Text> texts_;  // of the file
};
