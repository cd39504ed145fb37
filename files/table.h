// A file of scores, or some of its rows, in memory: the numbers and their names.
#pragma once

#include <isentropic/half.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace files {

// A line of a file, counted from 1, and a cell in it.
struct Place {
  std::size_t line = 0, cell = 0;
};

// Where the rows of a table stand in a file of text, for messages.
struct Places {
  std::vector<Place> rows;         // the line in which each row begins, and the number of cells before its numbers
  std::vector<std::size_t> cells;  // which of the following cells are the numbers and then the label; empty: 1, 2, 3 ...
  std::map<std::size_t, std::vector<Place>> others;  // all numbers of a row that begins in this line, if it is not like these
  bool columns = false;                              // the cell of a row is the column of text where the row begins

  // ":3" for a row, or ":3:2" for one of its numbers.
  std::string text(std::size_t row, std::optional<std::size_t> column) const;
};

struct Table {
  // rows x cols without gaps, in the precision of the file.
  std::variant<std::vector<float>, std::vector<double>, std::vector<isentropic::float16>, std::vector<isentropic::bfloat16>>
      values;
  bool whole = false;  // the float64 numbers are whole: arrays are written as int64
  int digits = 0;      // most significant digits in text; 0: the fewest that give the same number
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t first_row = 0;  // number of the first row in the file

  // If several files are read as one: the file of these rows, and the number of rows in the files before it.
  std::string file;
  std::size_t rows_before = 0;

  // The shape of the array in the file: the product of all lengths but the last is the number of rows. Results of one number
  // per row lack the last axis. A file that does not say how many rows it has, such as a .csv, has two axes, and the first is
  // the number of rows known so far.
  std::vector<std::size_t> shape;

  // For a .jsonl whose lines hold arrays of arrays: the lengths of all axes between line and row. Empty if each line is a row.
  std::vector<std::size_t> nested;

  std::size_t width = 0;            // cells in a line of a .csv or .tsv
  std::string key;                  // name of the array in the file, or nothing
  std::string result;               // name of a calculated array in objects, or nothing
  std::vector<std::string> header;  // a name for each column of numbers, or empty: the file has no header

  // The label of each row, if the file has a column of labels: the place of that column, its name if there is a header.
  std::optional<std::size_t> label_column;
  std::string label_header;
  std::vector<std::string> labels;
  bool number_labels = false;  // labels that are numbers are written as numbers where formats distinguish them from words
  bool quoted_words = false;   // names and labels that look like numbers are written to a .csv in quotes, to be read as words

  bool pointed = false;  // whole numbers in the first rows are written as 2.0 if their columns would look like labels

  // Other columns that are kept beside the rows: the texts, and which of them formats that distinguish words from numbers write
  // as words.
  struct Kept {
    std::string name;
    std::vector<std::string> cells;
    std::vector<bool> words;
  };
  std::vector<Kept> kept;

  // For replies of language models: what is known of each row's drawn token beside its candidates.
  struct Token {
    std::size_t reply = 0, position = 0;       // counted from 0
    double logprob = 0;                        // NaN if the server does not say it
    std::size_t rank = 0;                      // from 1; 0 if it is not known
    std::vector<std::string> candidates = {};  // the texts of the columns, which may be fewer in this row
  };
  std::vector<Token> tokens;

  std::shared_ptr<Places> places;  // for a file of text; a result has those of its rows

  std::vector<std::size_t> missing;  // rows of this table that lack a number, in order

  // A word for each row of a result, after its numbers, such as a status.
  std::string note_header;
  std::vector<std::string> notes;
};

// The number of rows in one line.
inline std::size_t rows_of_line(const std::vector<std::size_t>& nested) {
  return std::accumulate(nested.begin(), nested.end(), std::size_t{1}, std::multiplies<>());
}

// Takes the memory of a table's numbers for new numbers of type T, if the old ones have that type.
template <class T>
std::vector<T> reused(Table& table) {
  auto* const values = std::get_if<std::vector<T>>(&table.values);
  return values ? std::move(*values) : std::vector<T>();
}

}  // namespace files
