// The file formats: what each is called, how bytes become tables and tables become bytes.
//
// To add a format: its file with the three functions, and its line in kFormats.
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

// What a cell without a value makes of its row.
enum class Missing { error, nan, skip };

// What a file does not say of itself. Columns are named as in the header, or counted from 1, labels included; a list of them is
// "a,c-f".
struct ReadOptions {
  std::size_t labels = 0;                  // the column that holds labels, by its number; 0: found by itself
  std::string key;                         // the array to read where a file holds several; empty: the only one
  std::string label = {};                  // the column or field that holds labels, by name or number
  std::optional<bool> header = {};         // whether the first line holds names; found by itself
  std::string columns = {}, exclude = {};  // those with scores, those without; found by themselves
  std::string keep = {};                   // those whose text stays beside the rows
  // The rows to read, from the first up to the second, counted from 0 and where rows are left out without these.
  std::size_t first_row = 0, end_row = kAllRows;
  char delimiter = 0;  // between cells; 0: what the format's name says. With a semicolon numbers may have decimal commas
  Missing missing = Missing::error;
};

// Some rows on their way from a file to a table.
struct Piece {
  Table table;
  std::string text;      // of the rows, where the format has one; what becomes of it is still missing in the table
  std::size_t line = 0;  // of the first of them
  std::string mistake;   // what is wrong with the file behind them, or nothing
  std::size_t begin = 0, end = kAllRows;    // which of them are wanted
  std::function<void(Piece& piece)> parse;  // of the file that they are from, where several are joined
};

// The rows of a file, some at a time. Throws BadInput, never anything else but std::bad_alloc, whatever the bytes.
struct Reader {
  // Whether the shape of every table is that of the whole file.
  bool counted = false;

  // Takes the next rows from the file, as many as have about `numbers` numbers but at least one, or returns false at the end.
  // Of what the piece held only memory is used again. The first call gives a piece even of a file without rows.
  std::function<bool(Piece& piece, std::size_t numbers)> take;

  // Completes the table; a mistake behind its rows is thrown after those in them. Pieces may be parsed by several threads at
  // once, and while others are taken.
  std::function<void(Piece& piece)> parse = [](Piece&) {};

  // Both.
  bool next(Piece& piece, std::size_t numbers) const;
};

// Puts encoded tables into a file, one after the other.
struct Writer {
  std::function<void(std::string_view encoded)> append;
  std::function<void(std::size_t rows)> end = [](std::size_t) {};  // all that there were
};

struct Format {
  std::string_view name;  // for --format-in and, after a dot, the end of a file's name
  Reader (*open)(std::shared_ptr<Input> input, const ReadOptions& options);

  // The numbers of a table and the names of its rows, in `memory` or where the table has them. Depends on nothing else: tables
  // may be encoded in any order.
  std::string_view (*encode)(const Table& table, fmt::memory_buffer& memory);

  // Begins a file of tables like `first`; `counted` says that its shape is that of all of them together.
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

Writer create_csv(Output& output, const Table& first, bool counted);
Writer create_tsv(Output& output, const Table& first, bool counted);
Writer create_npy(Output& output, const Table& first, bool counted);
Writer create_npz(Output& output, const Table& first, bool counted);
Writer create_jsonl(Output& output, const Table& first, bool counted);
Writer create_safetensors(Output& output, const Table& first, bool counted);

inline constexpr Format kFormats[] = {
    {"csv", open_csv, encode_csv, create_csv},  // the first is that of standard input and output
    {"tsv", open_tsv, encode_tsv, create_tsv},
    {"npy", open_npy, encode_binary, create_npy},
    {"npz", open_npz, encode_binary, create_npz},
    {"jsonl", open_jsonl, encode_jsonl, create_jsonl},
    {"safetensors", open_safetensors, encode_binary, create_safetensors},
    {"logprobs", open_logprobs, nullptr, nullptr},  // servers' replies: read only, and by no file's name
};

// ".csv, .tsv, ..." as they are written, and without dots the names of all that are read, and that are written.
std::string format_endings();
std::vector<std::string> format_names();
std::vector<std::string> output_format_names();

// The format called `name` or, without one, that which the name of a file ends in, .gz and .zst aside; standard input, standard
// output, pipes and devices are CSV. Throw BadInput.
const Format& input_format(const std::string& path, const std::string& name);
const Format& output_format(const std::string& path, const std::string& name = {});

// The rows of a file in this format that the options ask for.
Reader open(const Format& format, std::shared_ptr<Input> input, const ReadOptions& options);

// Those rows of `all`, called `name` in messages, that the options ask for.
Reader slice(Reader all, const ReadOptions& options, const std::string& name);

// All rows in one table.
Table read_all(const Reader& reader);

// Refuses options for columns with names, which `what`, such as "an .npy file", does not have.
void refuse_columns(const ReadOptions& options, std::string_view name, std::string_view what);

// One table as a whole file.
void write_all(const Format& format, Output& output, const Table& table);

}  // namespace files
