// Distributes the rows of a batch over threads.
#pragma once

#include <cstddef>

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The address of a function work(begin, end), which the caller keeps. std::function would allocate memory for each call.
class Work {
 public:
  template <class Function>
  Work(const Function& function)  // NOLINT(google-explicit-constructor)
      : function_(&function),
        call_([](const void* work, std::size_t begin, std::size_t end) { (*static_cast<const Function*>(work))(begin, end); }) {
  }

  void operator()(std::size_t begin, std::size_t end) const { call_(function_, begin, end); }

 private:
  const void* function_;
  void (*call_)(const void*, std::size_t begin, std::size_t end);
};

// The limit of this thread's calls, 0 for none; returns the one before. See ThreadLimit.
std::size_t limit_threads(std::size_t n);

// Calls work(begin, end) for consecutive pieces of [0, rows), only on the calling thread if rows * cost_per_row is too little
// for another one. cost_per_row counts touched elements. Results must not depend on where pieces begin, so that they do not
// depend on the number of threads.
void parallel_rows(std::size_t rows, std::size_t cost_per_row, Work work);

// Calls work for the groups of one row, also within a piece of parallel_rows, where it uses the threads without a piece. The
// caller's scratch memory does not change: while it waits, the caller works on groups of this row but not on another piece.
void parallel_groups(std::size_t groups, std::size_t cost_per_group, Work work);

}  // namespace isentropic::inline ISENTROPIC_ABI
