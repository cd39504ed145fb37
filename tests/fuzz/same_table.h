// What a fuzzer holds a reader and its writer to: numbers, names and labels that were read are written and read again alike.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "cli/format.h"

inline bool same_numbers(const Table& a, const Table& b) {
  if (a.values.index() != b.values.index()) return false;
  return std::visit(
      [&]<class T>(const std::vector<T>& left) {
        const auto& right = std::get<std::vector<T>>(b.values);
        if (left.size() != right.size()) return false;
        for (std::size_t i = 0; i < left.size(); ++i) {
          if (std::isnan(left[i]) && std::isnan(right[i])) continue;
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

inline std::string written(void (*write)(const Table&, const Sink&), const Table& table) {
  std::string bytes;
  write(table, [&](std::string_view part) { bytes += part; });
  return bytes;
}

// Reads `bytes`; if they are accepted, writes and reads them again. Aborts where the two differ.
inline void check_round_trip(const Format& format, std::string_view bytes, ReadOptions options) {
  Table table;
  try {
    table = format.read(bytes, "fuzz", options);
  } catch (const BadInput&) {
    return;
  }
  // What was found by itself the first time is said the second time: a label may look like a number.
  if (table.label_column) options.labels = *table.label_column + 1;
  const Table again = format.read(written(format.write, table), "fuzz", options);
  if (!same_table(table, again)) std::abort();
}
