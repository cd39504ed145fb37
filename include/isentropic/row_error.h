// The error for an argument with an invalid row.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

#include "isentropic/export.h"

namespace isentropic::inline ISENTROPIC_ABI {

// what() is "OPERATION: REASON in row ROW" and ADVICE. A reader of parts of a file can count rows from the file's beginning and
// name the file.
class ISENTROPIC_API RowError : public std::invalid_argument {
 public:
  RowError(std::string_view operation, std::string_view argument, std::string_view reason, std::size_t row,
           std::string_view advice = {})
      : std::invalid_argument(message(operation, reason, row, advice)),
        operation_(operation),
        argument_(argument),
        reason_(reason),
        advice_(advice),
        row_(row) {}

  const std::string& argument() const { return argument_; }
  std::size_t row() const { return row_; }
  // what() for another row and other advice.
  std::string message(std::size_t row, std::string_view advice) const { return message(operation_, reason_, row, advice); }
  const std::string& advice() const { return advice_; }

 private:
  static std::string message(std::string_view operation, std::string_view reason, std::size_t row, std::string_view advice) {
    std::string text(operation);
    text.append(": ").append(reason).append(" in row ").append(std::to_string(row)).append(advice);
    return text;
  }

  std::string operation_, argument_, reason_, advice_;
  std::size_t row_;
};

}  // namespace isentropic::inline ISENTROPIC_ABI
