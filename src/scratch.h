// The workspace of each thread: kernels never allocate.
#pragma once

#ifdef ISENTROPIC_DEVICE
#include "src/device/arena.h"
#else

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>

#include "hwy/aligned_allocator.h"
#include "hwy/base.h"
#include "isentropic/version.h"
#include "src/per_thread.h"

#if HWY_IS_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace isentropic::inline ISENTROPIC_ABI {

// Memory from which arrays are taken one after the other. Its size is set in advance with room() or room_of(), and taking more
// ends the program. Nothing is freed: a function gets an arena by value and takes from its own copy, so its arrays are free
// again when it returns.
class Arena {
 public:
  // Bytes that take<T>(n) uses: arrays begin at multiples of a vector.
  template <class T>
  static constexpr std::size_t room(std::size_t n) {
    return (n * sizeof(T) + HWY_ALIGNMENT - 1) / HWY_ALIGNMENT * HWY_ALIGNMENT;
  }

  Arena() = default;
  // `begin` is aligned for vectors.
  Arena(void* begin, std::size_t bytes) : begin_(static_cast<std::uint8_t*>(begin)), left_(bytes) {}

  // Takes exactly n numbers: the sanitizer finds every access beyond them.
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

// Bytes that the constructor of Layout takes from an arena, with these arguments. It is called with an arena without memory.
template <class Layout, class... Arguments>
std::size_t room_of(const Arguments&... arguments) {
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
  Arena counts(nullptr, kMost);
  Layout(counts, arguments...);
  return kMost - counts.left();
}

// Memory that grows.
struct ScratchMemory {
  hwy::AlignedFreeUniquePtr<std::uint8_t[]> buffer;
  std::size_t size = 0;

  Arena first(std::size_t bytes) {
    if (size < bytes) {
      buffer = hwy::AllocateAligned<std::uint8_t>(bytes);
      size = buffer ? bytes : 0;
      if (!buffer) throw std::bad_alloc();
    }
    return {buffer.get(), bytes};
  }
};

// `bytes` bytes, valid until this thread's next call. The memory grows and is kept; pages that no kernel touches cost nothing.
inline Arena scratch(std::size_t bytes) { return per_thread<ScratchMemory>().first(bytes); }

// Memory of one call while it distributes its rows, which use the thread's scratch memory. The thread keeps it for the next
// call of the same Owner, a class of your own. A call within this one, of the caller's function or of other work that the
// thread takes while it waits, finds none and allocates.
template <class Owner>
class CallMemory {
 public:
  explicit CallMemory(std::size_t bytes)
      : memory_(std::exchange(per_thread<Kept>().memory, {})), arena_(memory_.first(bytes)) {}
  ~CallMemory() {
    if (memory_.size <= kMostKept) per_thread<Kept>().memory = std::move(memory_);
  }
  CallMemory(const CallMemory&) = delete;

  Arena arena() const { return arena_; }

 private:
  // A call that needs more takes so long that an allocation is negligible, and a thread should not keep that much memory.
  static constexpr std::size_t kMostKept = std::size_t{16} << 20;
  struct Kept {
    ScratchMemory memory;
  };

  ScratchMemory memory_;
  Arena arena_;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // ISENTROPIC_DEVICE
