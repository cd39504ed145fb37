// Chooses the format of a file, and reads and writes whole files.
#include "format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <iterator>
#include <limits>

#include "system.h"

namespace files {
const Format* format_by_ending(std::string_view path) {
  if (const Packing* packing = packing_of(path)) path.remove_suffix(packing->ending.size());
  const std::size_t dot = path.rfind('.');
  if (dot == path.npos) return nullptr;
  std::string ending(path.substr(dot + 1));
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.name == ending; });
  return found == std::end(kFormats) ? nullptr : found;
}

namespace {

// Refuses formats that other programs read, and names these programs.
void refuse_known(const std::string& path) {
  for (const std::string_view ending : {".parquet", ".arrow", ".feather", ".orc"}) {
    if (!path.ends_with(ending)) continue;
    bad_input(
        "{}: {} is read in Python: isentropic's functions take what pyarrow and pandas read from it, and isentropic.write "
        "writes that as a .csv or .npy",
        path, ending);
  }
  if (path.ends_with(".bz2") || path.ends_with(".xz")) {
    const std::string_view tool = path.ends_with(".bz2") ? "bzip2" : "xz";
    bad_input("{}: only .gz and .zst are unpacked; use a pipe for others: {} -dc {} | isentropic ...", path, tool, path);
  }
}

}  // namespace

std::string format_endings() { return fmt::format(".{}", fmt::join(output_format_names(), ", .")); }

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

std::vector<std::string> output_format_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) {
    if (format.create != nullptr) names.emplace_back(format.name);
  }
  return names;
}

const Format& input_format(const std::string& path, const std::string& name, bool advised) {
  const Format* format = format_by_ending(name.empty() ? path : "." + name);
  if (format == nullptr && name.empty() && is_stream(path)) return kFormats[0];
  if (format == nullptr && path.ends_with(".json") && name.empty()) {
    bad_input("{}: JSON is read as lines, .jsonl (jq -c '.[]' {} makes them from an array of rows){}", path, path,
              advised ? ", or as the reply of a language model's server, with --format-in logprobs" : "");
  }
  if (format == nullptr) {
    const std::optional<sys::Status> status = sys::status_of(path);
    if (status && status->folder) throw SystemFailure(path, EISDIR);
    refuse_known(path);
    bad_input("{}: the name ends in none of {}{}", path, format_endings(), advised ? "; --format-in names the format" : "");
  }
  return *format;
}

const Format& output_format(const std::string& path, const std::string& name) {
  if (is_stream(path) && name.empty()) return kFormats[0];
  const Format* format = format_by_ending(name.empty() ? path : "." + name);
  if (format == nullptr || format->create == nullptr) {
    bad_input("{}: the name must end in one of {}, also with .gz or .zst; --format-out names the format", path,
              format_endings());
  }
  return *format;
}

std::string Places::text(std::size_t row, std::optional<std::size_t> column) const {
  Place place = rows.at(row);
  if (columns) return fmt::format(":{}:{}", place.line, place.cell);
  if (!column) return fmt::format(":{}", place.line);
  if (const auto found = others.find(place.line); found != others.end()) {
    place = found->second.at(*column);
  } else {
    place.cell += cells.empty() ? *column + 1 : cells.at(*column);
  }
  return fmt::format(":{}:{}", place.line, place.cell);
}

void fit(ReadOptions& options, const std::vector<std::string>& names, std::size_t width) {
  if (names.size() > 1 && !options.first_label.empty() && names[0] == options.first_label) options.label = names[0];
  if (!options.shared) return;
  const auto known = [&](std::string_view text) {
    const bool number = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    return std::ranges::find(names, text) != names.end() || (number && width > 0 && width == options.width);
  };
  // Whether the file has all columns of a list, or of one item of it, such as a-c.
  const auto has = [&](std::string_view item) {
    bool found = known(item);
    for (std::size_t dash = item.find('-', 1); !found && dash != item.npos; dash = item.find('-', dash + 1)) {
      found = known(item.substr(0, dash)) && known(item.substr(dash + 1));
    }
    return found;
  };
  const auto items_of = [&](std::string_view list) {
    std::vector<std::string> items;
    while (!list.empty()) {
      const std::string_view item = list.substr(0, list.find(','));
      if (has(item)) items.emplace_back(item);
      list.remove_prefix(std::min(item.size() + 1, list.size()));
    }
    return items;
  };
  if (!known(options.label)) options.label.clear();
  options.exclude = fmt::format("{}", fmt::join(items_of(options.exclude), ","));
  if (fmt::format("{}", fmt::join(items_of(options.columns), ",")) != options.columns) options.columns.clear();
}

bool Reader::next(Piece& piece, std::size_t numbers) const {
  if (!take(piece, numbers)) return false;
  parse(piece);
  return true;
}

namespace {

void leave_out(const std::vector<std::size_t>& rows, Table& table) {
  std::size_t next = 0, kept = 0;
  for (std::size_t r = 0; r < table.rows; ++r) {
    if (next < rows.size() && rows[next] == r) {
      ++next;
      continue;
    }
    if (kept != r) {
      std::visit(
          [&](auto& values) {
            const auto from = values.begin() + static_cast<std::ptrdiff_t>(r * table.cols);
            std::copy(from, from + static_cast<std::ptrdiff_t>(table.cols),
                      values.begin() + static_cast<std::ptrdiff_t>(kept * table.cols));
          },
          table.values);
      if (table.label_column) table.labels[kept] = std::move(table.labels[r]);
      if (table.places) table.places->rows[kept] = table.places->rows[r];
      if (!table.tokens.empty()) table.tokens[kept] = std::move(table.tokens[r]);
      for (Table::Kept& column : table.kept) {
        column.cells[kept] = std::move(column.cells[r]);
        column.words[kept] = column.words[r];
      }
    }
    ++kept;
  }
  table.rows = kept;
  table.shape = {kept, table.cols};
  std::visit([&](auto& values) { values.resize(kept * table.cols); }, table.values);
  if (table.label_column) table.labels.resize(kept);
  if (table.places) table.places->rows.resize(kept);
  if (!table.tokens.empty()) table.tokens.resize(kept);
  for (Table::Kept& column : table.kept) {
    column.cells.resize(kept);
    column.words.resize(kept);
  }
}

// The rows without missing numbers. Their number is only known once they are parsed, and the next rows are counted from it.
Reader without_missing(Reader all) {
  Reader some;
  some.take = [all = std::move(all), rows = std::size_t{0}](Piece& piece, std::size_t numbers) mutable {
    piece.begin = 0, piece.end = kAllRows;  // of the file without them: all rows are needed to count those
    if (!all.next(piece, numbers)) return false;
    if (!piece.table.missing.empty()) leave_out(std::exchange(piece.table.missing, {}), piece.table);
    piece.table.first_row = rows;
    rows += piece.table.rows;
    piece.table.shape = {piece.table.rows, piece.table.cols};
    piece.table.nested.clear();
    return true;
  };
  return some;
}

// Keeps the wanted rows of a parsed piece.
void cut(Piece& piece) {
  Table& table = piece.table;
  if (piece.begin == 0 && piece.end >= table.rows) return;
  std::vector<std::size_t> others;
  for (std::size_t r = 0; r < table.rows; ++r) {
    if (r < piece.begin || r >= piece.end) others.push_back(r);
  }
  leave_out(others, table);
}

}  // namespace

Reader slice(Reader all, const ReadOptions& options, const std::string& name) {
  if (options.first_row == 0 && options.end_row == kAllRows) return all;
  Reader some;
  some.take = [take = all.take, name, options, next = std::size_t{0}](Piece& piece, std::size_t numbers) mutable {
    if (next >= options.end_row) return false;
    do {
      if (!take(piece, numbers)) {
        if (next <= options.first_row) {
          bad_input("{}: --rows begins at {}, but there are only {} rows", name, options.first_row, next);
        }
        return false;
      }
      piece.begin = std::min(piece.table.rows, options.first_row - std::min(next, options.first_row));
      piece.end = std::min(piece.table.rows, options.end_row - next);
      next += piece.table.rows;
    } while (piece.begin == piece.table.rows);
    if (next >= options.end_row) piece.mistake.clear();  // the mistake is after the wanted rows
    return true;
  };
  some.parse = [parse = all.parse](Piece& piece) {
    parse(piece);
    piece.table.first_row += piece.begin;
    cut(piece);
    piece.table.shape = {piece.table.rows, piece.table.cols};
    piece.table.nested.clear();
  };
  return some;
}

Reader open(const Format& format, std::shared_ptr<Input> input, const ReadOptions& options) {
  const std::string name = input->name();
  Reader reader = format.open(std::move(input), options);
  // Arrays of numbers have no missing values.
  if (options.missing == Missing::skip && !reader.counted) reader = without_missing(std::move(reader));
  return slice(std::move(reader), options, name);
}

Table read_all(const Reader& reader) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  Piece piece;
  reader.next(piece, kAll);
  Table all = std::move(piece.table);
  while (reader.next(piece, kAll)) {
    Table& more = piece.table;
    std::visit(
        [&]<class T>(std::vector<T>& values) {
          const auto& added = std::get<std::vector<T>>(more.values);
          values.insert(values.end(), added.begin(), added.end());
        },
        all.values);
    std::move(more.labels.begin(), more.labels.end(), std::back_inserter(all.labels));
    std::move(more.tokens.begin(), more.tokens.end(), std::back_inserter(all.tokens));
    for (std::size_t c = 0; c < all.kept.size(); ++c) {
      std::move(more.kept[c].cells.begin(), more.kept[c].cells.end(), std::back_inserter(all.kept[c].cells));
      all.kept[c].words.insert(all.kept[c].words.end(), more.kept[c].words.begin(), more.kept[c].words.end());
    }
    if (all.places) {
      all.places->rows.insert(all.places->rows.end(), more.places->rows.begin(), more.places->rows.end());
      all.places->others.merge(more.places->others);
    }
    all.rows += more.rows;
    if (!reader.counted) all.shape[0] = all.rows / rows_of_line(all.nested);
  }
  return all;
}

void write_all(const Format& format, Output& output, const Table& table) {
  const Writer writer = format.create(output, table, true);
  fmt::memory_buffer memory;
  writer.append(format.encode(table, memory));
  writer.end(table.rows);
}

}  // namespace files
