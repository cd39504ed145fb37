// A reader of readers. The first part of each file is parsed when it is taken, and compared with the first part of the first
// file; the other parts of a file are like its first.
#include "join.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "system.h"
#include "text.h"

namespace files {
namespace {

std::string columns_of(const Table& table) {
  std::string text;
  for (const std::string& name : table.header) text += (text.empty() ? "the columns " : ", ") + in_quotes(name);
  return text.empty() ? "no header" : text;
}

// Refuses a file whose rows cannot follow those of the first.
void check_alike(const Table& first, const std::string& first_name, const Table& table, const std::string& name) {
  if (table.shape.size() > 2) bad_input("{}: an array of {} axes cannot be joined with other files", name, table.shape.size());
  if (table.cols != first.cols) bad_input("{}: it has {} columns, and {} has {}", name, table.cols, first_name, first.cols);
  if (table.header != first.header) {
    bad_input("{}: it has {}, and {} has {}", name, columns_of(table), first_name, columns_of(first));
  }
  if (table.label_column != first.label_column || table.label_header != first.label_header) {
    bad_input("{}: its labels are in another column than those of {}", name, first_name);
  }
  const auto same_name = [](const Table::Kept& a, const Table::Kept& b) { return a.name == b.name; };
  if (!std::equal(table.kept.begin(), table.kept.end(), first.kept.begin(), first.kept.end(), same_name)) {
    bad_input("{}: its kept columns are not those of {}", name, first_name);
  }
  if (table.values.index() != first.values.index())
    bad_input("{}: its numbers are of another type than those of {}", name, first_name);
}

}  // namespace

struct Join::State {
  std::vector<std::string> paths;
  std::string format;
  ReadOptions options;
  std::vector<Reader> readers;  // one for each path, once it is opened
  std::vector<bool> taken;      // whether the first part of each was taken
  std::size_t at = 0, rows = 0, rows_before = 0;
  std::size_t replies = 0;  // of language models
  Table first;
  std::optional<std::uint64_t> size;
  mutable std::mutex mutex;  // for the members below
  std::shared_ptr<Input> input;
  std::uint64_t done = 0;

  void open_next() {
    ReadOptions all = options;
    all.first_row = 0;
    all.end_row = kAllRows;
    const auto opened = std::make_shared<Input>(paths[at]);
    {
      const std::lock_guard lock(mutex);
      input = opened;
    }
    readers.push_back(files::open(input_format(paths[at], format), opened, all));
    rows_before = rows;
  }

  void close() {
    const std::lock_guard lock(mutex);
    done += input->position();
    input.reset();
    readers[at].take = nullptr;  // frees the file; parts of it may still be parsed
    ++at;
  }

  bool take(Piece& piece, std::size_t numbers) {
    for (; at < paths.size(); close()) {
      const bool begins = readers.size() == at;
      if (begins) open_next();
      if (!readers[at].take(piece, numbers)) continue;
      Table& table = piece.table;
      piece.parse = readers[at].parse;
      if (begins) {
        piece.begin = 0, piece.end = kAllRows;  // it shows which columns there are
        piece.parse(piece);
        piece.parse = nullptr;
        const std::string name = input_name(paths[at]);
        if (at == 0) {
          if (table.shape.size() > 2) check_alike(table, name, table, name);
          first = table;
          std::visit([](auto& values) { values.clear(); }, first.values);
        } else if (table.rows == 0 && table.header.empty()) {
          continue;  // an empty file
        } else {
          check_alike(first, input_name(paths[0]), table, name);
        }
      }
      // A file of replies comes whole.
      for (Table::Token& token : table.tokens) token.reply += replies;
      if (!table.tokens.empty()) replies = table.tokens.back().reply + 1;
      table.file = input_name(paths[at]);
      table.rows_before = rows_before;
      table.first_row += rows_before;
      rows = table.first_row + table.rows;
      table.shape = {table.rows, table.cols};
      table.nested.clear();
      return true;
    }
    return false;
  }
};

Join::Join(std::vector<std::string> paths, std::string format, ReadOptions options) : state_(std::make_shared<State>()) {
  std::uint64_t size = 0;
  bool known = true;
  for (const std::string& path : paths) {
    input_format(path, format);
    if (std::count_if(paths.begin(), paths.end(), is_standard) > 1) {
      bad_input("standard input can be only one of the files");
    }
    if (is_standard(path)) {
      known = false;
      continue;
    }
    const std::optional<sys::Status> status = sys::status_of(path);
    if (!status) throw SystemFailure(path, errno);
    known = known && status->regular && packing_of(path) == nullptr;
    size += status->size;
  }
  state_->paths = std::move(paths);
  state_->format = std::move(format);
  state_->options = std::move(options);
  state_->readers.reserve(state_->paths.size());
  if (known) state_->size = size;
}

Reader Join::reader() {
  Reader all;
  all.take = [state = state_](Piece& piece, std::size_t numbers) { return state->take(piece, numbers); };
  all.parse = [](Piece& piece) {
    if (!piece.parse) return;
    // The counts of rows over all files were set when the piece was taken.
    const std::size_t first_row = piece.table.first_row;
    const std::string file = piece.table.file;
    const std::size_t rows_before = piece.table.rows_before;
    piece.parse(piece);
    piece.table.first_row = first_row;
    piece.table.file = file;
    piece.table.rows_before = rows_before;
    piece.table.shape = {piece.table.rows, piece.table.cols};
    piece.table.nested.clear();
  };
  return slice(std::move(all), state_->options, "the files together");
}

std::uint64_t Join::position() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done + (state_->input ? state_->input->position() : 0);
}

std::optional<std::uint64_t> Join::size() const { return state_->size; }

}  // namespace files
