// Lines of a file, numbers and words.
#include "text.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace files {
namespace {

constexpr std::size_t kPiece = 1 << 20;
constexpr std::size_t kReadableBehind = 64;
constexpr std::size_t kLongestLine = std::size_t{1} << 32;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

Text::Text(std::shared_ptr<Input> input) : input_(std::move(input)) {}

bool Text::more() {
  // The memory stays: what is behind size_ was written once and need not be cleared again.
  if (at_ > 0 && size_ > at_) std::memmove(buffer_.data(), buffer_.data() + at_, size_ - at_);
  complete_ -= at_;
  size_ -= at_;
  at_ = 0;
  const std::size_t before = complete_;
  bool ended = false;
  while (complete_ == before && !ended) {
    if (size_ > kLongestLine) bad_input("{}: a line is longer than 4 GB", name());
    // A long line is read in pieces that double, so that it is searched and moved only a few times.
    std::size_t wanted = std::max(kPiece, size_);
    // One more than there is says that the input has ended. A file may grow meanwhile.
    if (const auto size = input_->size(); size && input_->position() < *size) {
      wanted = std::min<std::uint64_t>(wanted, *size - input_->position() + 1);
    }
    if (buffer_.size() < size_ + wanted + kReadableBehind) buffer_.resize(size_ + wanted + kReadableBehind);
    const std::size_t got = input_->read(buffer_.data() + size_, wanted);
    ended = got < wanted;
    const std::string_view piece(buffer_.data() + size_, got);
    if (std::exchange(first_, false)) {
      if (piece.empty()) bad_input("{}: the file is empty", name());
      if (piece.starts_with("\xFF\xFE") || piece.starts_with("\xFE\xFF")) {
        bad_input("{}: this is UTF-16 text; save it as UTF-8", name());
      }
      if (piece.starts_with("\x93NUMPY")) bad_input("{}: this is a NumPy file; read it with --format-in npy", name());
      if (piece.starts_with("PK\x03\x04")) bad_input("{}: this is a zip file; read an .npz with --format-in npz", name());
      if (piece.starts_with(kByteOrderMark)) at_ = complete_ = kByteOrderMark.size();
    }
    if (piece.find('\0') != piece.npos) bad_input("{}: this is not text", name());
    size_ += got;
    const std::size_t end = piece.rfind('\n');
    if (ended) {
      complete_ = size_;
    } else if (end != piece.npos) {
      complete_ = size_ - got + end + 1;
    }
  }
  return complete_ > std::max(before, at_);
}

Reading read_number(std::string_view text, double& number) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return Reading::kNotNumber;
  }
  if (text.ends_with(')')) return Reading::kNotNumber;  // from_chars knows nan(1)
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return Reading::kNotNumber;
  if (error == std::errc::result_out_of_range) {
    number = std::strtod(std::string(text).c_str(), nullptr);
    if (std::isinf(number)) return Reading::kTooLarge;
  }
  return Reading::kNumber;
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
