// The file formats: what each is called, how bytes become a Table and a Table becomes bytes.
//
// To add a format: its file with a reader and a writer, and its line in kFormats.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string_view>

#include "table.h"

// A file, its contents or an argument is not what it should be: printed after "entropic: ", exit status 2.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> message, Args&&... args) {
  throw BadInput(fmt::format(message, std::forward<Args>(args)...));
}

struct ReadOptions {
  std::size_t labels = 0;  // the column that holds labels, counted from 1; 0: found by itself
};

// Takes the next bytes of an output; throws where they cannot be written.
using Sink = std::function<void(std::string_view)>;

// `name` is the file's, for messages. Throw BadInput, never anything else but std::bad_alloc, whatever the bytes are.
Table read_csv(std::string_view bytes, std::string_view name, const ReadOptions& options);
Table read_tsv(std::string_view bytes, std::string_view name, const ReadOptions& options);
Table read_npy(std::string_view bytes, std::string_view name, const ReadOptions& options);

void write_csv(const Table& table, const Sink& sink);
void write_tsv(const Table& table, const Sink& sink);
void write_npy(const Table& table, const Sink& sink);

struct Format {
  std::string_view name;  // for --format-in and, after a dot, the end of a file's name
  Table (*read)(std::string_view bytes, std::string_view name, const ReadOptions& options);
  void (*write)(const Table& table, const Sink& sink);
};

inline constexpr Format kFormats[] = {
    {"csv", read_csv, write_csv},  // the first is that of standard input and output
    {"tsv", read_tsv, write_tsv},
    {"npy", read_npy, write_npy},
};
