// On a device: the workspace, from which arrays are taken as on the host. Every thread of a team takes the same arrays. They
// are in the block's shared memory as far as it has room, because reading them there takes a tenth of the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "isentropic/version.h"
#include "src/device/lane.h"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

class Arena {
 public:
  static constexpr size_t kAlignment = 128;

  template <class T>
  static constexpr size_t room(size_t n) {
    return (n * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }

  Arena() = default;
  HWY_INLINE Arena(void* begin, size_t bytes, void* near = nullptr, size_t near_bytes = 0)
      : begin_(static_cast<uint8_t*>(begin)), near_(static_cast<uint8_t*>(near)), left_(bytes), near_left_(near_bytes) {}

  // Takes n numbers from shared memory; null if it has no room for them.
  template <class T>
  HWY_INLINE T* take_near(size_t n) {
    const size_t bytes = room<T>(n);
    if (bytes > near_left_) return nullptr;
    near_left_ -= bytes;
    uint8_t* const taken = near_;
    near_ += bytes;
    return reinterpret_cast<T*>(taken);
  }

  template <class T>
  HWY_INLINE T* take(size_t n) {
    if (T* const near = take_near<T>(n)) return near;
    const size_t bytes = room<T>(n);
    HWY_ASSERT(bytes <= left_);
    left_ -= bytes;
    uint8_t* const taken = begin_;
    if (begin_ != nullptr) begin_ += bytes;
    return reinterpret_cast<T*>(taken);
  }

  HWY_INLINE size_t left() const { return left_; }

 private:
  uint8_t *begin_ = nullptr, *near_ = nullptr;
  size_t left_ = 0, near_left_ = 0;
};

template <class Layout, class... Arguments>
HWY_INLINE size_t room_of(const Arguments&... arguments) {
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  Arena counts(nullptr, kMost);
  Layout(counts, arguments...);
  return kMost - counts.left();
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();
