// From a file of rows to a file of results: what a command does, apart from its own calculation.
#pragma once

#include <entropic/entropic.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "options.h"
#include "table.h"

// ".csv, .tsv, ..." and the same words without dots.
std::string format_endings();
std::vector<std::string> format_names();

// All of the input.
Table read_table(const Files& files);

// Reads the input, writes result(its rows) to the output: nothing, if anything fails. The rows may come in several tables,
// one after the other, and then the results of all have to have the same names and number of columns; the rows of one
// table start at its first_row. For this, what result makes of a row may depend on nothing but the row and its number.
void stream_rows(const Files& files, const std::function<Table(Table)>& result);

template <class T>
entropic::MatrixView<T> view(std::vector<T>& values, std::size_t rows, std::size_t cols) {
  return {values.data(), rows, cols};
}

// The table with its rows x replaced by what calculate(x, x) puts there.
Table in_place(Table table, const auto& calculate) {
  std::visit(
      [&](auto& values) {
        const auto x = view(values, table.rows, table.cols);
        calculate(x, x);
      },
      table.values);
  return table;
}

// The table with a number y in place of each row x, calculate(x, y), as a column called `name`.
Table one_per_row(Table table, std::string_view name, const auto& calculate) {
  std::visit(
      [&]<class T>(std::vector<T>& values) {
        std::vector<T> y(table.rows);
        calculate(entropic::MatrixView<const T>(view(values, table.rows, table.cols)), view(y, table.rows, 1));
        values = std::move(y);
      },
      table.values);
  table.cols = 1;
  table.shape.pop_back();
  if (!table.header.empty()) table.header = {std::string(name)};
  return table;
}
