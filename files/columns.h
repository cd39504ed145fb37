// Columns of numbers that may not be scores: labels, identifiers, indices. No reader silently takes them for scores.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "table.h"

namespace files {

// How a number is written. Programs that write scores as 2.0 write identifiers and classes as 2.
enum class Written : char {
  other,     // missing, nan or inf
  whole,     // 2
  zero,      // 0
  dotted,    // 2.0, 2e3
  fraction,  // 0.5
};

// `number` is what the text says.
Written written_as(std::string_view text, double number);

// Columns, from 0, in order, that may be scores or the rows' names, and why: the end of that sentence, or nothing if their
// names say it.
struct Doubt {
  std::vector<std::size_t> columns;
  std::string reason;
};

// The columns of whose numbers the names say that they are labels, such as Class and y_true, or name rows, such as id, Index,
// PassengerId and "Unnamed: 0", and those that stand beside numbered columns, such as logit_0 and logit_1. `first`: how the
// numbers of the first row are written; words with another meaning, such as gold, say it only of whole numbers. `rows_only`:
// the numbers may be classes, so only names of rows count.
Doubt doubt_by_names(const std::vector<std::string>& names, const std::vector<Written>& first, bool rows_only);

// Whether an array's name is that of labels, identifiers or indices, such as labels and input_ids.
bool names_no_scores(const std::string& name);

// Looks at the first rows for columns of whole numbers beside columns with fractions.
class WholeColumns {
 public:
  static constexpr std::size_t kRows = 8;  // the rows that are looked at

  bool done() const { return rows_ >= kRows; }
  void add(const std::vector<Written>& written, const std::vector<double>& numbers);
  Doubt doubt(bool named) const;

 private:
  struct Column {
    bool whole = false, zero = false, dotted = false, fraction = false;
    bool large = true;   // whole numbers only of three digits and more
    bool counts = true;  // from 0 or 1, row by row

    bool pointed() const { return dotted || fraction; }
    bool bare() const { return whole || zero; }
  };

  std::vector<Column> columns_;
  std::size_t rows_ = 0;
  std::vector<double> last_;
};

// The number of first rows of a table in which whole numbers are written with a point, so that a reader does not take their
// columns for labels or identifiers: 0 unless Table::pointed asks for it.
std::size_t rows_to_point(const Table& table);

// Adds a point to the number from `begin` on, if it has none.
void add_point(fmt::memory_buffer& out, std::size_t begin);

// For messages: "'a', 'b' and 3 more".
std::string in_words(const std::vector<std::string>& names);

// Columns counted from 1, as "2,4-6".
std::string as_ranges(const std::vector<std::size_t>& columns);

}  // namespace files
