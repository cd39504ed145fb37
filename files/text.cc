// Lines of a file, numbers and words.
#include "text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "src/from_chars.h"

namespace files {
namespace {

constexpr std::size_t kLongestRow = std::size_t{1} << 32;
constexpr std::size_t kLongestMagic = 8;

}  // namespace

RowText::RowText(std::shared_ptr<Input> input, std::string_view blanks, Row row, const ReadOptions& options,
                 bool skip_blank_lines)
    : input_(std::move(input)),
      blanks_(blanks),
      row_(std::move(row)),
      advise_format_(options.advised.format),
      skip_blank_lines_(skip_blank_lines) {}

bool RowText::next(Piece& piece, std::size_t size) {
  std::string& text = piece.text;
  std::size_t& rows = piece.table.rows;
  piece.mistake.clear();
  std::size_t blank_line = 0;  // the first
  for (; read_lines(text, size); size = std::max(size, 2 * rest_.size())) {
    rows = 0;
    piece.line = line_;
    std::size_t line = line_, end = 0;  // line_ is the line after the end
    for (std::size_t at = 0; at < text.size();) {
      const std::string_view ahead = std::string_view(text).substr(at);
      const std::size_t word = ahead.find_first_not_of(blanks_);
      const bool blank = word == ahead.npos || ahead[word] == '\n';
      std::optional<Extent> row = blank ? Extent{std::min(word, ahead.size() - 1) + 1, 1} : row_(ahead);
      if (!row && !ended_) break;
      if (!row) row = {ahead.size(), 1};  // the last of the file
      if (blank && blank_line == 0 && !skip_blank_lines_) blank_line = line;
      if (!blank && blank_line != 0) {
        piece.mistake = fmt::format("{}:{}: empty line", name(), blank_line);
        break;
      }
      at += row->bytes;
      line += row->lines;
      if (!blank) ++rows;
      if (blank && rows > 0 && !skip_blank_lines_) continue;  // they are read again once these rows are gone
      end = at;
      line_ = line;
    }
    rest_.insert(0, text, end);
    text.resize(end);
    if (rows > 0) return begun_ = true;
    if (!piece.mistake.empty()) throw BadInput(piece.mistake);
  }
  if (!begun_) bad_input("{}: the file is empty", name());
  return false;
}

void RowText::check_magic(std::string_view start) const {
  if (start.starts_with("\xFF\xFE") || start.starts_with("\xFE\xFF")) {
    bad_input("{}: this is UTF-16 text; save it as UTF-8", name());
  }
  const auto refuse_array = [&](std::string_view what, std::string_view format) {
    if (advise_format_)
      bad_input("{}: this is a {}; read {} with --format-in {}", name(), what, format == "npz" ? "an .npz" : "it", format);
    bad_input("{}: this is a {}; it is read if its name ends in .{}", name(), what, format);
  };
  if (start.starts_with("\x93NUMPY")) refuse_array("NumPy file", "npy");
  for (const Packing& packing : kPackings) {
    if (!start.starts_with(packing.magic)) continue;
    bad_input("{}: this is packed by {}; a file's name must end in {}, and a pipe needs {} -dc", name(), packing.name,
              packing.ending, packing.tool);
  }
  if (start.starts_with("PK\x03\x04")) refuse_array("zip file", "npz");
}

// The next lines of about `size` bytes, or one line if that is longer; none at the end.
void RowText::take_separator(std::string& text) {
  constexpr std::string_view kName = "sep=";
  const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
  if (end != kName.size() + 1) return;
  for (std::size_t i = 0; i < kName.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(text[i])) != kName[i]) return;
  }
  names_separator(text[kName.size()]);
  text.erase(0, std::min(text.find('\n', end), text.size() - 1) + 1);
  ++line_;
}

bool RowText::read_lines(std::string& text, std::size_t size) {
  text.swap(rest_);
  rest_.clear();
  std::size_t end = 0;  // of the last line
  while (end == 0 && !ended_) {
    if (text.size() > kLongestRow) bad_input("{}: a row is longer than 4 GB", name());
    const std::size_t before = text.size();
    // A long line is read in pieces that double, so that it is searched and moved only a few times.
    std::size_t wanted = std::max(size, 2 * before) - before;
    // Asking for one byte more than the file has shows its end. The file may grow meanwhile.
    if (const auto there = input_->size(); there && input_->position() < *there) {
      wanted = std::min<std::uint64_t>(wanted, *there - input_->position() + 1);
    }
    const bool first = input_->position() == 0;
    if (first) wanted = std::max(wanted, kLongestMagic);
    text.resize(before + wanted);
    // Rows that another program writes while we read are taken as soon as they arrive.
    std::size_t got = input_->read(text.data() + before, wanted, 1);
    // Checks the first bytes for another format or UTF-8's mark, as many bytes as that has.
    const bool unusual = first && got > 0 &&
                         (text[0] == 'P' || text[0] == '\x1F' || ((text[0] | 0x20) == 's' && text.find('\n') >= got) ||
                          static_cast<unsigned char>(text[0]) >= 0x80);
    if (unusual && got < kLongestMagic) got += input_->read(text.data() + got, kLongestMagic - got);
    text.resize(before + got);
    ended_ = input_->at_end();
    if (first) check_magic(text);
    if (text.find('\0', before) != text.npos) bad_input("{}: this is not text", name());
    if (first && text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    if (first && names_separator) take_separator(text);
    end = text.rfind('\n') + 1;
  }
  if (!ended_) {
    rest_.assign(text, end);
    text.resize(end);
  }
  return !text.empty();
}

std::size_t text_size(std::size_t numbers) {
  constexpr std::size_t kMost = std::size_t{1} << 16, kBytesOfNumber = 4;
  return std::clamp<std::size_t>(numbers, 1, kMost) * kBytesOfNumber;
}

std::optional<RowText::Extent> first_line(std::string_view text) {
  const std::size_t end = text.find('\n');
  if (end == text.npos) return std::nullopt;
  return RowText::Extent{end + 1, 1};
}

Reading read_number(std::string_view text, double& number) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return Reading::not_number;
  }
  if (text.ends_with(')')) return Reading::not_number;  // from_chars knows nan(1)
  const auto [end, error] = isentropic::double_from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return Reading::not_number;
  if (error == std::errc::result_out_of_range) {
    number = std::strtod(std::string(text).c_str(), nullptr);
    if (std::isinf(number)) return Reading::too_large;
  }
  return Reading::number;
}

bool is_missing(double number, const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [number](std::string_view word) {
    double one = 0;
    return read_number(word, one) == Reading::number && (one == number || (std::isnan(one) && std::isnan(number)));
  });
}

bool is_missing(std::string_view text, const std::vector<std::string>& words) {
  if (!words.empty()) {
    double number = 0;
    if (std::ranges::find(words, text) != words.end()) return true;
    if (read_number(text, number) == Reading::number && is_missing(number, words)) return true;
  }
  for (const std::string_view word : {"", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None"}) {
    if (text == word) return true;
  }
  return false;
}

std::optional<std::string> without_groups(std::string_view text, char between) {
  constexpr std::string_view kSpaces[] = {"\xC2\xA0", "\xE2\x80\xAF"};
  std::string plain(text);
  for (const std::string_view space : kSpaces) {
    for (std::size_t at = 0; between == ' ' && (at = plain.find(space)) != plain.npos;) plain.replace(at, space.size(), 1, ' ');
  }
  const auto digits = [&](std::size_t at) {
    std::size_t count = 0;
    while (at + count < plain.size() && std::isdigit(static_cast<unsigned char>(plain[at + count])) != 0) ++count;
    return count;
  };
  std::size_t at = plain.starts_with('-') || plain.starts_with('+') ? 1 : 0;
  const std::size_t first = digits(at);
  at += first;
  if (first < 1 || first > 3 || at == plain.size() || plain[at] != between) return std::nullopt;
  while (at < plain.size() && plain[at] == between) {
    if (digits(at + 1) != 3) return std::nullopt;
    plain.erase(at, 1);
    at += 3;
  }
  return plain.find(between, at) == plain.npos ? std::optional(plain) : std::nullopt;
}

namespace {

constexpr std::string_view kMinus = "\xE2\x88\x92", kDash = "\xE2\x80\x93", kNoBreakSpace = "\xC2\xA0";

}  // namespace

std::string without_typesetting(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const bool space = text.starts_with(kNoBreakSpace), minus = text.starts_with(kMinus) || text.starts_with(kDash);
    const std::size_t length = space ? kNoBreakSpace.size() : minus && plain.empty() ? kMinus.size() : 1;
    if (!space) {
      plain += length > 1 ? '-' : text[0];
    } else if (!plain.empty()) {
      plain += ' ';
    }
    text.remove_prefix(length);
  }
  plain.resize(plain.find_last_not_of(' ') + 1);
  return plain;
}

std::string_view typeset(std::string_view text) {
  if (text.find(kNoBreakSpace) != text.npos) return ", because it has a no-break space (U+00A0)";
  if (text.starts_with(kMinus)) return ", because its sign is U+2212 instead of -";
  return text.starts_with(kDash) ? ", because its sign is U+2013 instead of -" : "";
}

bool resembles_number(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::string typed = without_typesetting(text);
  double number = 0;
  if (typed != text && read_number(typed, number) != Reading::not_number) return true;
  text = typed;
  if (text.starts_with('(') && text.ends_with(')')) text = text.substr(1, text.size() - 2);  // below 0 in accounts
  text.remove_prefix(std::min(text.find_first_not_of("+-"), text.size()));
  if (text.starts_with('$')) text.remove_prefix(1);
  if (text.starts_with("0x") || text.starts_with("0X")) {
    return text.size() > 2 && text.find_first_not_of("0123456789abcdefABCDEF.pP+-", 2) == text.npos;
  }
  if (const std::size_t d = text.find_first_of("dD"); d != text.npos) {  // Fortran's exponent
    std::string with_e(text);
    with_e[d] = 'e';
    return read_number(with_e, number) != Reading::not_number;
  }
  if (text.ends_with('%')) {
    text.remove_suffix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
  }
  // Digits with at most one decimal point, and marks between thousands.
  std::size_t points = 0, digits = 0;
  for (const char c : text) {
    if (c == '.') {
      ++points;
    } else if (is_digit(c) || (digits > 0 && std::string_view("OoIl").find(c) != std::string_view::npos)) {
      ++digits;  // also 1O with the letter O
    } else if (std::string_view(",'_ ").find(c) == std::string_view::npos) {
      return false;
    }
  }
  return digits > 0 && points <= 1;
}

std::string in_quotes(std::string_view text) {
  std::size_t end = std::min<std::size_t>(text.size(), 40);
  while (end > 0 && end < text.size() && (text[end] & 0xC0) == 0x80) --end;
  std::string shown = "'";
  for (const char c : text.substr(0, end)) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    shown += control ? fmt::format("\\x{:02x}", c) : std::string(1, c);
  }
  return shown + (end < text.size() ? "...'" : "'");
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    char32_t code = static_cast<unsigned char>(text[0]);
    if (length > 1) code &= 0x7Fu >> length;
    for (std::size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
    const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    const bool direction = code == 0x61C || (code >= 0x200E && code <= 0x200F) || (code >= 0x202A && code <= 0x202E) ||
                           (code >= 0x2066 && code <= 0x2069);
    const std::size_t used = std::max<std::size_t>(length, 1);
    if (length == 0 || control) {
      shown += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(code));
    } else if (direction) {
      shown += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code));
    } else {
      shown += text.substr(0, used);
    }
    text.remove_prefix(used);
  }
  return shown;
}

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return tail(1) ? 2 : 0;
  if (lead >= 0xE0 && lead < 0xF0) {
    const bool overlong = lead == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = lead == 0xED && byte(1) >= 0xA0;
    return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  const bool in_range = (lead == 0xF0 && byte(1) >= 0x90) || (lead > 0xF0 && lead < 0xF4) || (lead == 0xF4 && byte(1) < 0x90);
  return in_range && tail(1) && tail(2) && tail(3) ? 4 : 0;
}

bool has_leading_zero(std::string_view number) {
  if (number.starts_with('-')) number.remove_prefix(1);
  return number.size() > 1 && number[0] == '0' && number[1] >= '0' && number[1] <= '9';
}

bool is_json_number(std::string_view text) {
  const auto skip_digits = [&] {
    const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(end);
    return end > 0;
  };
  if (has_leading_zero(text)) return false;
  if (text.starts_with('-')) text.remove_prefix(1);
  if (!skip_digits()) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!skip_digits()) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (!skip_digits()) return false;
  }
  return text.empty();
}

std::string json_string(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text[0];
    if (length == 0) {
      json += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      json += {'\\', c};
    } else if (length == 1 && static_cast<unsigned char>(c) < 0x20) {
      json += fmt::format("\\u{:04x}", c);
    } else {
      json += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return json + '"';
}

}  // namespace files
