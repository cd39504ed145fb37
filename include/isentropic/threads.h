// The number of threads that work on a batch. Threads share the rows, and the parts of very long rows; results do not depend on
// their number.
#pragma once

#include <cstddef>

#include "isentropic/export.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Limits every later call to n threads; 0 restores the default, one per processor that this process may use.
ISENTROPIC_API void set_num_threads(std::size_t n);
ISENTROPIC_API std::size_t get_num_threads();

// While it lives, calls of this thread use at most n threads, and fewer where set_num_threads or an outer limit says so; 0 is
// no limit. So a server can give each request one thread, whatever others do.
class ISENTROPIC_API ThreadLimit {
 public:
  explicit ThreadLimit(std::size_t n);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  std::size_t before_;
};

}  // namespace isentropic::inline ISENTROPIC_ABI
