#include "texts.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "files/file.h"
#include "files/format.h"
#include "files/text.h"

namespace {

bool is_array_format(const files::Format& format) { return format.names == files::Format::Names::none; }

// The numbers in a text such as "3 17 5", [3, 17, 5] or 3,17,5. Negative ones are not tokens. `place` is for messages.
std::vector<std::int64_t> tokens_in(std::string_view text, std::string_view place) {
  constexpr std::string_view kBetween = " \t\r,;[]\"";
  std::vector<std::int64_t> tokens;
  for (std::size_t at = text.find_first_not_of(kBetween); at < text.size(); at = text.find_first_not_of(kBetween, at)) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    std::int64_t token = 0;
    const auto [read, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || read != word.data() + word.size()) {
      bad_input("{}: {} is not a token number; --tokens takes whole numbers, a line or cell of them for each row", place,
                files::in_quotes(word));
    }
    if (token >= 0) tokens.push_back(token);
    at = end;
  }
  return tokens;
}

}  // namespace

void TextsSoFar::open(Files& files, const std::string& source) {
  name_ = source;
  const bool is_file = files::is_standard(source) || source.find('.') != source.npos || source.find('/') != source.npos;
  if (is_file) {
    file_.path = source;
    file_.check_missing(files, "sample: ");
    return;
  }
  column_ = true;
  const files::Format& format = files::input_format(files.in, files.in_format);
  if (is_array_format(format)) {
    bad_input("sample: --tokens {}: {} has no columns; --tokens names a file, such as tokens.txt or tokens.npy, with the texts",
              source, files::input_name(files.in));
  }
  files.reading.keep = source;
  files.reading.keep_option = "tokens";
}

void TextsSoFar::read(const Files& files) {
  const std::string& path = file_.path;
  if (files::is_standard(path) && files::is_standard(files.in)) bad_input("standard input can be only one of the files");
  const files::Format* const format = files::format_by_ending(path);
  if (format != nullptr && is_array_format(*format)) {
    const Table table = read_other(files, path, Holds::other);
    const std::vector<double> numbers = as_doubles(table);
    for (std::size_t r = 0; r < table.rows; ++r) {
      Text& text = texts_.emplace_back();
      for (std::size_t c = 0; c < table.cols; ++c) {
        const double number = numbers[r * table.cols + c];
        if (number != std::floor(number) || std::abs(number) >= 0x1p53) {
          Origin(table, path).refuse(fmt::format("{} is not a token number", number), {.row = r, .entry = c});
        }
        if (number >= 0) text.push_back(static_cast<std::int64_t>(number));
      }
    }
    return;
  }
  files::Input input(path);
  std::string all;
  for (char part[1 << 16]; const std::size_t size = input.read(part, sizeof part);) all.append(part, size);
  for (std::size_t begin = 0; begin < all.size(); begin = std::min(all.find('\n', begin), all.size() - 1) + 1) {
    const std::string place = fmt::format("{}:{}", input.name(), texts_.size() + 1);
    texts_.push_back(tokens_in(std::string_view(all).substr(begin, all.find('\n', begin) - begin), place));
  }
}

std::vector<std::int64_t> TextsSoFar::of(const Files& files, const Table& rows) {
  std::vector<Text> texts;
  const auto place_of = [&](std::size_t r) {
    const std::string file = rows.file.empty() ? files::input_name(files.in) : rows.file;
    return rows.places ? file + rows.places->text(r, std::nullopt) : fmt::format("{}: row {}", file, rows.first_row + r);
  };
  if (column_) {
    const auto found = std::ranges::find(rows.kept, name_, &Table::Kept::name);
    if (found == rows.kept.end()) {
      bad_input("{}: there is no column {} with the tokens of --tokens", files::input_name(files.in), files::in_quotes(name_));
    }
    for (std::size_t r = 0; r < rows.rows; ++r) texts.push_back(tokens_in(found->cells[r], place_of(r)));
  } else {
    std::call_once(once_, [&] {
      try {
        read(files);
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
    if (failure_) std::rethrow_exception(failure_);
    if (texts_.size() < rows.first_row + rows.rows) {
      bad_input("{}: it has {} texts, fewer than {} has rows", files::input_name(name_), texts_.size(),
                files::input_name(files.in));
    }
    const auto first = texts_.begin() + static_cast<std::ptrdiff_t>(rows.first_row);
    texts.assign(first, first + static_cast<std::ptrdiff_t>(rows.rows));
  }
  std::size_t longest = 1;
  for (std::size_t r = 0; r < rows.rows; ++r) {
    longest = std::max(longest, texts[r].size());
    const auto unknown =
        std::ranges::find_if(texts[r], [&](std::int64_t token) { return static_cast<std::uint64_t>(token) >= rows.cols; });
    if (unknown == texts[r].end()) continue;
    const std::string place = column_ ? place_of(r) : fmt::format("{}: text {}", files::input_name(name_), rows.first_row + r);
    bad_input("{}: there is no token {}: the rows have {} scores, of the tokens from 0 on", place, *unknown, rows.cols);
  }
  std::vector<std::int64_t> tokens(rows.rows * longest, -1);
  for (std::size_t r = 0; r < rows.rows; ++r) {
    std::ranges::copy(texts[r], tokens.begin() + static_cast<std::ptrdiff_t>(r * longest));
  }
  return tokens;
}

void TextsSoFar::check_end(const Files& files, std::size_t rows) const {
  if (column_ || !given() || files.reading.end_row != files::kAllRows) return;
  rows += files.reading.first_row;
  if (texts_.size() == rows) return;
  bad_input("{}: it has {} texts, and {} has {} rows", files::input_name(name_), texts_.size(), files::input_name(files.in),
            rows);
}
