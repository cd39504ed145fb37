// Which format a file has, and whole files.
#include "format.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>

namespace files {
namespace {

// The format that the name of a file ends in, or nullptr.
const Format* format_by_ending(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  if (dot == path.npos) return nullptr;
  std::string ending(path.substr(dot + 1));
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats), [&](const Format& f) { return f.name == ending; });
  return found == std::end(kFormats) ? nullptr : found;
}

}  // namespace

std::string format_endings() { return fmt::format(".{}", fmt::join(format_names(), ", .")); }

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format& format : kFormats) names.emplace_back(format.name);
  return names;
}

const Format& input_format(const std::string& path, const std::string& name) {
  const Format* format = format_by_ending(name.empty() ? path : "." + name);
  if (format == nullptr && name.empty() && is_stream(path)) return kFormats[0];
  if (format == nullptr && path.ends_with(".json") && name.empty()) {
    bad_input("{}: JSON is read in lines, .jsonl; jq -c '.[]' {} makes them of an array of rows", path, path);
  }
  if (format == nullptr) {
    bad_input("{}: the name ends in none of {}; say which it is with --format-in", path, format_endings());
  }
  return *format;
}

const Format& output_format(const std::string& path) {
  if (is_stream(path)) return kFormats[0];
  const Format* format = format_by_ending(path);
  if (format == nullptr) bad_input("{}: the name must end in one of {}", path, format_endings());
  return *format;
}

bool Reader::next(Piece& piece, std::size_t numbers) const {
  if (!take(piece, numbers)) return false;
  parse(piece);
  return true;
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
    all.rows += more.rows;
    if (!reader.counted) all.shape[0] = all.rows;
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
