// A fuzzer's check of a reader and its writer: numbers, names and labels do not change when they are written and read again,
// and a file gives the same at once and row by row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "files/format.h"

using files::BadInput;
using files::Format;
using files::ReadOptions;
using files::Table;

inline bool same_numbers(const Table& a, const Table& b) {
  if (a.values.index() != b.values.index()) return false;
  return std::visit(
      [&]<class T>(const std::vector<T>& left) {
        const auto& right = std::get<std::vector<T>>(b.values);
        if (left.size() != right.size()) return false;
        for (std::size_t i = 0; i < left.size(); ++i) {
          if constexpr (sizeof(T) > 2) {
            if (std::isnan(left[i]) && std::isnan(right[i])) continue;
          }
          if (std::memcmp(&left[i], &right[i], sizeof(T)) != 0) return false;  // the sign of 0 counts
        }
        return true;
      },
      a.values);
}

inline bool same_table(const Table& a, const Table& b) {
  return same_numbers(a, b) && a.rows == b.rows && a.cols == b.cols && a.shape == b.shape && a.header == b.header &&
         a.label_column == b.label_column && a.label_header == b.label_header && a.labels == b.labels;
}

inline Table read_table(const Format& format, std::string_view bytes, const ReadOptions& options, bool row_by_row = false) {
  files::Reader reader = format.open(std::make_shared<files::Input>(bytes, "fuzz"), options);
  if (row_by_row) reader.take = [take = reader.take](files::Piece& piece, std::size_t) { return take(piece, 1); };
  return files::read_all(reader);
}

// Reads `bytes`; if they are accepted, writes and reads them again. Aborts where the two differ.
inline void check_round_trip(const Format& format, std::string_view bytes, ReadOptions options) {
  Table table;
  try {
    table = read_table(format, bytes, options);
  } catch (const BadInput&) {
    return;
  }
  if (!same_table(table, read_table(format, bytes, options, true))) std::abort();
  options.scores = false;  // whole numbers are written without a point
  // The second time the reader is told what it found the first time: a label may look like a number.
  const bool columns = format.name == "csv" || format.name == "tsv";
  if (columns) {
    options.delimiter = format.name == "csv" ? ',' : '\t';
    options.header = !table.header.empty();
    options.label = table.label_column ? std::to_string(*table.label_column + 1) : "";
    // Names take precedence over numbers, so a column's number is not usable if another column has it as a name.
    if (std::find(table.header.begin(), table.header.end(), options.label) != table.header.end()) return;
  }
  // The one array of the .npz that is written may have another name: one that is not printable would be no name of a file.
  if (!columns) options.key = format.name == "npz" ? "" : table.key;
  // A label column without a name, or with the name "", gets one.
  if (format.name == "jsonl" && table.label_column && table.label_header.empty()) table.label_header = "label";
  table.quoted_words = true;
  std::string written;
  files::Output output(&written);
  files::write_all(format, output, table);
  output.finish();
  if (format.name == "jsonl" && table.cols == 0) return;  // of no numbers, the form is not known
  if (!same_table(table, read_table(format, written, options))) std::abort();
  // Without being told, it finds the same or asks. Quoted names alone may be a row of numbers.
  if (!columns || table.rows == 0) return;
  try {
    if (!same_table(table, read_table(format, written, {}))) std::abort();
  } catch (const BadInput&) {
    return;
  }
}
