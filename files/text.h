// What formats of lines share: the text of a file in pieces, numbers in words, and words in messages.
#pragma once

#include <fmt/compile.h>
#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "file.h"

namespace files {

// The text of a file, as much of it in memory as somebody needs at once.
class Text {
 public:
  explicit Text(std::shared_ptr<Input> input);

  // From the current place to the end of a line or of the file; 64 bytes behind it may be read, whatever they are.
  std::string_view ahead() const { return {buffer_.data() + at_, complete_ - at_}; }

  // Moves the current place on.
  void skip(std::size_t bytes) { at_ += bytes; }

  // Makes at least one more line available behind those ahead, or returns false: there is none. Views of the text end.
  bool more();

  const std::string& name() const { return input_->name(); }

 private:
  std::shared_ptr<Input> input_;
  std::string buffer_;
  std::size_t at_ = 0;
  std::size_t complete_ = 0;  // the end of the last complete line
  std::size_t size_ = 0;      // of what was read
  bool first_ = true;
};

enum class Reading { kNumber, kNotNumber, kTooLarge };

// Decimal or exponential; nan, inf and infinity in any case, with a sign.
Reading read_number(std::string_view text, double& number);

// A word as a message shows it: one line, not too long, not cut inside a UTF-8 character.
std::string in_quotes(std::string_view text);

// The length of the UTF-8 character at the start of `text`, 0 if there is none.
std::size_t utf8_length(std::string_view text);

// A string of JSON, quotes included; what is not UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

// The fewest digits that give the same number back in its own type.
template <class T>
void append_number(fmt::memory_buffer& out, T number) {
  if constexpr (sizeof(T) == 2) {
    append_number(out, static_cast<float>(number));
  } else if (std::isnan(number)) {
    out.append(std::string_view("nan"));  // whatever its sign
  } else {
    fmt::format_to(fmt::appender(out), FMT_COMPILE("{}"), number);
  }
}

}  // namespace files
