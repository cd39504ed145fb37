// Several files as one: the rows of the first, then those of the second, and so on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "format.h"

namespace files {

class Join {
 public:
  // Files with the same columns, names and type of numbers. Each has the format `format` or, without it, that of its name.
  // Throws BadInput if a file is missing.
  Join(std::vector<std::string> paths, std::string format, ReadOptions options);

  // The rows that the options ask for, counted over all files. Each table names its file.
  Reader reader();

  // The number of bytes read, and of all bytes if that is known. Another thread may call these.
  std::uint64_t position() const;
  std::optional<std::uint64_t> size() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace files
