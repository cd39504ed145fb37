// The file formats: their names, how bytes become tables, and how tables become bytes.
//
// To add a format, add a file with the three functions and a line in kFormats.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file.h"
#include "table.h"

namespace files {

inline constexpr std::size_t kAllRows = static_cast<std::size_t>(-1);

// How a row with an empty cell is treated.
enum class Missing { error, nan, skip };

// What a file does not say about itself. Columns are named as in the header, or counted from 1 with the labels; a list of them
// is "a,c-f".
struct ReadOptions {
  std::string key;                  // the array to read if a file holds several; empty: the only one
  std::string label = {};           // the column or field that holds labels, by name or number; empty: the reader finds it
  std::optional<bool> header = {};  // whether the first line holds names; nothing: the reader finds it
  std::string columns = {}, exclude = {};  // columns with scores, columns without; empty: the reader finds them
  std::string keep = {};                   // columns whose text is kept beside the rows
  std::string_view keep_option = "keep";   // the option that names them
  // The rows to read, from the first up to the second (not included), counted from 0. Skipped rows are not counted.
  std::size_t first_row = 0, end_row = kAllRows;
  char delimiter = 0;  // between cells; 0: the format decides. With a semicolon numbers may have decimal commas
  Missing missing = Missing::error;
  std::vector<std::string> na = {};  // words, or numbers, that mean a missing value beside the usual ones
  char thousands = 0;                // between groups of three digits, or 0

  // For a file beside the one that the options were given for.
  bool scores = true;            // it holds scores or distributions, not points, masses or costs, whose numbers are often whole
  bool shared = false;           // labels and columns that it does not have are ignored
  std::size_t width = 0;         // the other file's Table::width: numbers of columns count if the file has as many
  std::string first_label = {};  // the first of several columns holds labels if it has this name

  // What messages may advise: options that the command has and that act on this file.
  struct Advised {
    bool header = true, delimiter = true, columns = true, missing = true, key = true, format = true;
  };
  Advised advised = {};
};

// Takes from the options what a file with these columns or fields does not have, and gives it the label that it has.
void fit(ReadOptions& options, const std::vector<std::string>& names, std::size_t width);

// Some rows on their way from a file to a table.
struct Piece {
  Table table;
  std::string text;                         // text of the rows, if the format has any; the table lacks it until it is parsed
  std::size_t line = 0;                     // line of the first row
  std::string mistake;                      // what is wrong in the file after these rows, or nothing
  std::size_t begin = 0, end = kAllRows;    // the wanted rows of the piece
  std::function<void(Piece& piece)> parse;  // parser of the file that they are from, if several are joined
};

// The rows of a file, some at a time. For any bytes it throws only BadInput and std::bad_alloc.
struct Reader {
  // Whether the shape of every table is that of the whole file.
  bool counted = false;

  // Takes the next rows from the file (about `numbers` numbers, at least one row), or returns false at the end. The piece's
  // memory is used again, its contents are not. The first call gives a piece even for a file without rows.
  std::function<bool(Piece& piece, std::size_t numbers)> take;

  // Completes the table; of rows that are not wanted, only their number counts. A mistake in its rows is thrown before a
  // mistake after them. Several threads may parse pieces at once, and while others are taken.
  std::function<void(Piece& piece)> parse = [](Piece&) {};

  // Takes and parses.
  bool next(Piece& piece, std::size_t numbers) const;
};

// Puts encoded tables into a file, one after the other.
struct Writer {
  std::function<void(std::string_view encoded)> append;
  std::function<void(std::size_t rows)> end = [](std::size_t) {};  // `rows`: the number of all rows
};

struct Format {
  // What the names of columns are in a file: there are none, a line that may be missing, or a key of each number.
  enum class Names { none, header, keys };

  std::string_view name;  // name for --format-in and, after a dot, the ending of a file's name
  Names names;
  Reader (*open)(std::shared_ptr<Input> input, const ReadOptions& options);

  // The bytes of a table's numbers and row names, in `memory` or in the table itself. They depend on nothing else, so tables
  // may be encoded in any order.
  std::string_view (*encode)(const Table& table, fmt::memory_buffer& memory);

  // Begins a file of tables like `first`. `counted` says that the shape of `first` is that of all tables together.
  Writer (*create)(Output& output, const Table& first, bool counted);
};

Reader open_csv(std::shared_ptr<Input> input, const ReadOptions& options);
Reader open_tsv(std::shared_ptr<Input> input, const ReadOptions& options);
Reader open_npy(std::shared_ptr<Input> input, const ReadOptions& options);
Reader open_npz(std::shared_ptr<Input> input, const ReadOptions& options);
Reader open_jsonl(std::shared_ptr<Input> input, const ReadOptions& options);
Reader open_safetensors(std::shared_ptr<Input> input, const ReadOptions& options);
Reader open_logprobs(std::shared_ptr<Input> input, const ReadOptions& options);

std::string_view encode_csv(const Table& table, fmt::memory_buffer& memory);
std::string_view encode_tsv(const Table& table, fmt::memory_buffer& memory);
std::string_view encode_jsonl(const Table& table, fmt::memory_buffer& memory);
std::string_view encode_binary(const Table& table, fmt::memory_buffer& memory);

// The keys of a table's numbers and notes in the objects of a .jsonl. A kept field that has one of them is not written.
std::vector<std::string> result_keys(const Table& table);

Writer create_csv(Output& output, const Table& first, bool counted);
Writer create_tsv(Output& output, const Table& first, bool counted);
Writer create_npy(Output& output, const Table& first, bool counted);
Writer create_npz(Output& output, const Table& first, bool counted);
Writer create_jsonl(Output& output, const Table& first, bool counted);
Writer create_safetensors(Output& output, const Table& first, bool counted);

inline constexpr Format kFormats[] = {
    {"csv", Format::Names::header, open_csv, encode_csv, create_csv},  // the first is the format of standard input and output
    {"tsv", Format::Names::header, open_tsv, encode_tsv, create_tsv},
    {"npy", Format::Names::none, open_npy, encode_binary, create_npy},
    {"npz", Format::Names::none, open_npz, encode_binary, create_npz},
    {"jsonl", Format::Names::keys, open_jsonl, encode_jsonl, create_jsonl},
    {"safetensors", Format::Names::none, open_safetensors, encode_binary, create_safetensors},
    {"logprobs", Format::Names::none, open_logprobs, nullptr,
     nullptr},  // servers' replies: only read, and no ending means them
};

// The endings as ".csv, .tsv, ...", and the names, without dots, of the formats that are read and of those that are written.
std::string format_endings();
std::vector<std::string> format_names();
std::vector<std::string> output_format_names();

// The format that the ending of a file's name says, ignoring .gz and .zst, or nullptr.
const Format* format_by_ending(std::string_view path);

// The format called `name` or, without a name, the one of the file's ending. Standard input, standard output, pipes and devices
// are CSV. Throw BadInput. `advised`: the message may advise --format-in.
const Format& input_format(const std::string& path, const std::string& name, bool advised = true);
const Format& output_format(const std::string& path, const std::string& name = {});

// The rows of a file in this format that the options ask for.
Reader open(const Format& format, std::shared_ptr<Input> input, const ReadOptions& options);

// The rows of `all` that the options ask for; messages call the file `name`.
Reader slice(Reader all, const ReadOptions& options, const std::string& name);

// All rows in one table.
Table read_all(const Reader& reader);

// Refuses options for columns with names. `what`, such as "an .npy file", has no such columns.
void refuse_columns(const ReadOptions& options, std::string_view name, std::string_view what);

// Writes one table as a whole file.
void write_all(const Format& format, Output& output, const Table& table);

}  // namespace files
