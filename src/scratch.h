// Working memory for one row, kept by each thread: kernels never allocate.
#pragma once

#include <cstddef>
#include <new>

#include "entropic/version.h"
#include "hwy/aligned_allocator.h"

namespace entropic::inline ENTROPIC_ABI {

// At least n numbers, valid until this thread's next call. Grows and stays; pages that no kernel touches cost nothing.
inline double* scratch(std::size_t n) {
  thread_local hwy::AlignedFreeUniquePtr<double[]> buffer;
  thread_local std::size_t size = 0;
  if (size < n) {
    buffer = hwy::AllocateAligned<double>(n);
    if (!buffer) throw std::bad_alloc();
    size = n;
  }
  return buffer.get();
}

}  // namespace entropic::inline ENTROPIC_ABI
