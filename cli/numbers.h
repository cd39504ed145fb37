// The numbers of the files of transport, and what is wrong with them.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/file.h"
#include "rows.h"

// A file's numbers as float64 in the shape of the file, and the tolerance for their sums.
struct Numbers {
  std::string path;
  Table table;
  double tolerance;
  Origin origin;

  std::vector<double>& values() { return std::get<std::vector<double>>(table.values); }
  isentropic::MatrixView<const double> rows() { return {values().data(), table.rows, table.cols}; }
};

inline Numbers doubles(const Files& files, const std::string& path, Holds holds = Holds::other, std::size_t width = 0) {
  Files numbers = files;
  numbers.reading.scores = false;
  Table table = read_other(numbers, path, holds, width);
  const double tolerance = sum_tolerance(table);
  table.values = as_doubles(table);
  const Origin origin(table, path);
  return {path, std::move(table), tolerance, origin};
}

// Calls solve(), which takes the library's arguments of these names from these files, and refuses the file of the one that the
// library refuses.
using Given = std::vector<std::pair<std::string_view, const Numbers*>>;
inline void naming_files(const Given& given, const auto& solve) {
  try {
    solve();
  } catch (const isentropic::ArgumentError& error) {
    std::vector<std::string> paths;
    for (const auto& [name, numbers] : given) {
      if (error.argument() == name) numbers->origin.refuse(error);
      paths.push_back(files::input_name(numbers->path));
    }
    if (given.size() < 2 || error.argument() != fmt::format("{} and {}", given[0].first, given[1].first)) throw;
    bad_input("{}; they are in {} and {}", error.what(), paths[0], paths[1]);
  }
}

// Numbers in one row or one column.
inline Numbers one_line(std::string_view command, std::string_view what, const Files& files, const std::string& path,
                        Holds holds = Holds::other) {
  Numbers numbers = doubles(files, path, holds);
  if (numbers.table.rows != 1 && numbers.table.cols != 1) {
    bad_input("{}: {} must be one row or one column of {}, got {} x {}", command, files::input_name(path), what,
              numbers.table.rows, numbers.table.cols);
  }
  return numbers;
}

// The weights, or other numbers, of a file; none without a file.
inline Numbers weights_of(std::string_view command, const Files& files, const std::string& path,
                          std::string_view what = "weights") {
  if (!path.empty()) return one_line(command, what, files, path);
  Table none;
  none.values = std::vector<double>();
  return {path, none, 0, Origin(none, path)};
}
