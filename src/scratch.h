// Working memory, kept by each thread: kernels never allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>

#include "entropic/version.h"
#include "hwy/aligned_allocator.h"
#include "hwy/base.h"

#if HWY_IS_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace entropic::inline ENTROPIC_ABI {

// Memory from which arrays are taken one behind the other. Who wants some says beforehand how much, by room() or room_of(), and
// taking more ends the program. Nothing is given back: a function that is given an arena by value takes from its own copy, and
// what it took is free again when it returns.
class Arena {
 public:
  // Bytes that take<T>(n) uses up: vectors begin at whole ones.
  template <class T>
  static constexpr std::size_t room(std::size_t n) {
    return (n * sizeof(T) + HWY_ALIGNMENT - 1) / HWY_ALIGNMENT * HWY_ALIGNMENT;
  }

  Arena() = default;
  // `begin` is aligned for vectors.
  Arena(void* begin, std::size_t bytes) : begin_(static_cast<std::uint8_t*>(begin)), left_(bytes) {}

  // n numbers, and not one more: the sanitizer sees what is touched beyond them.
  template <class T>
  T* take(std::size_t n) {
    const std::size_t bytes = room<T>(n);
    HWY_ASSERT(bytes <= left_);
    left_ -= bytes;
    if (begin_ == nullptr) return nullptr;
    std::uint8_t* const taken = begin_;
    begin_ += bytes;
#if HWY_IS_ASAN
    ASAN_POISON_MEMORY_REGION(taken, bytes + left_);
    ASAN_UNPOISON_MEMORY_REGION(taken, n * sizeof(T));
#endif
    return reinterpret_cast<T*>(taken);
  }

  std::size_t left() const { return left_; }

 private:
  std::uint8_t* begin_ = nullptr;
  std::size_t left_ = 0;
};

// Bytes that the constructor of Layout takes, given an arena and these arguments. It is called with one without memory.
template <class Layout, class... Arguments>
std::size_t room_of(const Arguments&... arguments) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  Arena counts(nullptr, kMost);
  Layout(counts, arguments...);
  return kMost - counts.left();
}

// So many bytes, valid until this thread's next call. Grows and stays; pages that no kernel touches cost nothing.
inline Arena scratch(std::size_t bytes) {
  thread_local hwy::AlignedFreeUniquePtr<std::uint8_t[]> buffer;
  thread_local std::size_t size = 0;
  if (size < bytes) {
    buffer = hwy::AllocateAligned<std::uint8_t>(bytes);
    size = buffer ? bytes : 0;
    if (!buffer) throw std::bad_alloc();
  }
  return {buffer.get(), bytes};
}

}  // namespace entropic::inline ENTROPIC_ABI
