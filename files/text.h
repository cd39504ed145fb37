// Helpers for formats of lines: the text of a file in whole rows, words as numbers, and words in messages.
#pragma once

#include <fmt/compile.h>
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file.h"
#include "format.h"

namespace files {

// Some programs begin a text with it, to say that it is UTF-8. It has no column.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The text of a file, some whole rows at a time. A row is a line, or several lines if the format allows it. Blank lines are
// allowed only at the end, or anywhere if they are skipped.
class RowText {
 public:
  // The size of the first row of a text, with the line end.
  struct Extent {
    std::size_t bytes, lines;
  };

  // `row` returns the first row of a text, or nothing if that row continues beyond the text.
  using Row = std::function<std::optional<Extent>(std::string_view text)>;
  RowText(std::shared_ptr<Input> input, std::string_view blanks, Row row, const ReadOptions& options,
          bool skip_blank_lines = false);

  // Puts the text of the next rows (about `size` bytes, at least one row) and their number into the piece, or returns false at
  // the end. The piece's memory is used again, its contents are not.
  bool next(Piece& piece, std::size_t size);

  const std::string& name() const { return input_->name(); }

  // Called with the character of a first line such as sep=; which Excel reads and writes. The line is then left out.
  std::function<void(char separator)> names_separator;

  // Whether it is known that no rows are left.
  bool ended() const { return ended_ && rest_.find_first_not_of(" \t\r\n") == rest_.npos; }

 private:
  bool read_lines(std::string& text, std::size_t size);
  void take_separator(std::string& text);
  void check_magic(std::string_view start) const;

  std::shared_ptr<Input> input_;
  std::string_view blanks_;  // characters that count as blanks besides the line end
  Row row_;
  bool advise_format_;
  bool skip_blank_lines_;
  std::string rest_;  // text that was read but not yet returned
  std::size_t line_ = 1;
  bool begun_ = false;
  bool ended_ = false;
};

// The first line of a text.
std::optional<RowText::Extent> first_line(std::string_view text);

// The number of bytes of text to read for this many numbers: enough for a part of the pipeline, and never all of a large file.
std::size_t text_size(std::size_t numbers);

enum class Reading { number, not_number, too_large };

// Decimal or exponential; nan, inf and infinity in any case, with a sign.
Reading read_number(std::string_view text, double& number);

// Whether a cell says that there is no value: it is empty, NA, N/A, #N/A, NULL, None or null, one of `words`, or the number
// that one of them is, however it is written. NaN is NaN.
bool is_missing(std::string_view text, const std::vector<std::string>& words = {});
bool is_missing(double number, const std::vector<std::string>& words);

// The number with a character between each three of its whole digits, without these; nothing if it has no such groups. A space
// is also a no-break space, narrow or not.
std::optional<std::string> without_groups(std::string_view text, char between);

// Whether people may mean a number by a word that read_number refuses: 1,000 or 10% or 0x1p3 or 1d5 or (5) or --5 or 1O, also
// with a typeset sign or space. No such word is taken for a label.
bool resembles_number(std::string_view text);

// The word with - for a minus sign (U+2212) or dash (U+2013) before it, and with blanks for no-break spaces (U+00A0) in it or
// none around it.
std::string without_typesetting(std::string_view text);

// For a message about a word that is not a number: which of these characters it has, or nothing.
std::string_view typeset(std::string_view text);

// The advice for a missing value.
inline constexpr std::string_view kOnMissing = " (--missing nan reads it as NaN, --missing skip leaves out the row)";

// A word for a message: one line, not too long, not cut inside a UTF-8 character.
std::string in_quotes(std::string_view text);

// A text that is safe for a terminal. Characters that would move the cursor, change colours or turn the direction of reading,
// and bytes that are not UTF-8, become escapes.
std::string printable(std::string_view text);

// The length of the UTF-8 character at the start of `text`, 0 if there is none.
std::size_t utf8_length(std::string_view text);

// Whether a word is a number of JSON.
bool is_json_number(std::string_view text);
// Whether a number has a 0 before its first digit, as 01 and -00.5 have, which JSON does not allow.
bool has_leading_zero(std::string_view number);

// The text as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

// Appends the number with the fewest digits that give the same number in its own type, or with `digits` significant ones.
template <class T>
void append_number(fmt::memory_buffer& out, T number, int digits = 0) {
  if constexpr (sizeof(T) == 2) {
    append_number(out, static_cast<float>(number), digits);
  } else if (std::isnan(number)) {
    out.append(std::string_view("nan"));  // its sign does not matter
  } else if (digits > 0) {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("{:.{}g}"), number, digits);
  } else {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("{}"), number);
  }
}

}  // namespace files
