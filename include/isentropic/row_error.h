// Errors that say which argument is wrong, and where: for callers that know the file, the line and the column of a number.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "isentropic/export.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The place in an argument, and the words of messages before its numbers.
struct ErrorPlace {
  std::optional<std::size_t> row = {}, entry = {};
  std::string_view row_words = " in row ", entry_words = " at entry ";
  bool row_first = false;

  std::string text() const {
    const auto part = [](std::string_view words, const std::optional<std::size_t>& number) {
      return number ? std::string(words) + std::to_string(*number) : std::string();
    };
    const std::string of_row = part(row_words, row), of_entry = part(entry_words, entry);
    return row_first ? of_row + of_entry : of_entry + of_row;
  }
};

// what() is "OPERATION: REASON", the place in words, and ADVICE.
class ISENTROPIC_API ArgumentError : public std::invalid_argument {
 public:
  ArgumentError(std::string_view operation, std::string_view argument, std::string_view reason, const ErrorPlace& place = {},
                std::string_view advice = {})
      : std::invalid_argument(message(operation, reason, place, advice)),
        operation_(operation),
        argument_(argument),
        reason_(reason),
        advice_(advice),
        place_(place) {}

  const std::string& argument() const { return argument_; }
  const ErrorPlace& place() const { return place_; }
  // "OPERATION: REASON".
  std::string what_alone() const { return message(operation_, reason_, {}, {}); }
  const std::string& advice() const { return advice_; }

 private:
  static std::string message(std::string_view operation, std::string_view reason, const ErrorPlace& place,
                             std::string_view advice) {
    std::string text(operation);
    text.append(": ").append(reason).append(place.text()).append(advice);
    return text;
  }

  std::string operation_, argument_, reason_, advice_;
  ErrorPlace place_;  // its words are literals
};

// The error for an argument with an invalid row. A reader of parts of a file can count rows from the file's beginning.
class ISENTROPIC_API RowError : public ArgumentError {
 public:
  RowError(std::string_view operation, std::string_view argument, std::string_view reason, std::size_t row,
           std::string_view advice = {}, std::optional<std::size_t> entry = {}, std::string_view entry_words = " at entry ")
      : ArgumentError(operation, argument, reason, in_row(row, entry, entry_words), advice) {}

  std::size_t row() const { return *place().row; }

 private:
  static ErrorPlace in_row(std::size_t row, std::optional<std::size_t> entry, std::string_view entry_words) {
    ErrorPlace place;
    place.row = row, place.entry = entry, place.entry_words = entry_words;
    return place;
  }
};

}  // namespace isentropic::inline ISENTROPIC_ABI
