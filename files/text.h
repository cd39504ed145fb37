// What formats of lines share: the text of a file in whole rows, numbers in words, and words in messages.
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

#include "file.h"
#include "format.h"

namespace files {

// The text of a file, some whole rows at a time. A row is a line, or several where the format lets it go on; lines of blanks
// are allowed at the end only, or anywhere where they are skipped.
class RowText {
 public:
  // How much of a text is its first row, the line end included.
  struct Extent {
    std::size_t bytes, lines;
  };

  // `row` is asked for the first row of a text, or nothing if that goes on behind the text.
  using Row = std::function<std::optional<Extent>(std::string_view text)>;
  RowText(std::shared_ptr<Input> input, std::string_view blanks, Row row, bool skip_blank_lines = false);

  // Puts the next rows, those of about `size` bytes but at least one, into the piece as text, and how many they are; or returns
  // false at the end. Of what the piece held only memory is used again.
  bool next(Piece& piece, std::size_t size);

  const std::string& name() const { return input_->name(); }

 private:
  bool read_lines(std::string& text, std::size_t size);
  void check_magic(std::string_view start) const;

  std::shared_ptr<Input> input_;
  std::string_view blanks_;  // besides the line end
  Row row_;
  bool skip_blank_lines_;
  std::string rest_;  // was read and not yet given out
  std::size_t line_ = 1;
  bool begun_ = false;
  bool ended_ = false;
};

// The first line of a text.
std::optional<RowText::Extent> first_line(std::string_view text);

// How many bytes of text to make so many numbers of: enough for the pipeline's parts, and never all of a large file.
std::size_t text_size(std::size_t numbers);

enum class Reading { number, not_number, too_large };

// Decimal or exponential; nan, inf and infinity in any case, with a sign.
Reading read_number(std::string_view text, double& number);

// Whether a cell says that there is no value: it is empty, NA, N/A, #N/A, NULL, None or null.
bool is_missing(std::string_view text);

// Whether a word is a number to somebody, though not to read_number: 1,000 or 10% or 0x1p3. No such word is taken for a label.
bool resembles_number(std::string_view text);

// Whether numbers under this name are rather what rows are called: id, index.
bool names_rows(std::string_view header);

// The advice where a value is missing.
inline constexpr std::string_view kOnMissing = " (--missing nan reads it as NaN, --missing skip leaves the row out)";

// A word as a message shows it: one line, not too long, not cut inside a UTF-8 character.
std::string in_quotes(std::string_view text);

// A text as a terminal may be given it: characters that would move the cursor, change colours or turn the direction of reading,
// and bytes that are not UTF-8, as escapes.
std::string printable(std::string_view text);

// The length of the UTF-8 character at the start of `text`, 0 if there is none.
std::size_t utf8_length(std::string_view text);

// Whether a word is a number of JSON.
bool is_json_number(std::string_view text);

// A string of JSON, quotes included; what is not UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

// The fewest digits that give the same number back in its own type, or so many significant ones.
template <class T>
void append_number(fmt::memory_buffer& out, T number, int digits = 0) {
  if constexpr (sizeof(T) == 2) {
    append_number(out, static_cast<float>(number), digits);
  } else if (std::isnan(number)) {
    out.append(std::string_view("nan"));  // whatever its sign
  } else if (digits > 0) {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("{:.{}g}"), number, digits);
  } else {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("{}"), number);
  }
}

}  // namespace files
