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
  // Files of one kind: the same columns, names and type of numbers, each of the format that its name says or `format`. Throws
  // BadInput where one is not there.
  Join(std::vector<std::string> paths, std::string format, ReadOptions options);

  // The rows that the options ask for, counted over all files. A table says which file it is from.
  Reader reader();

  // Bytes read, and all there are where that is known. May be asked by another thread.
  std::uint64_t position() const;
  std::optional<std::uint64_t> size() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace files
