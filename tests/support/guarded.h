// Memory that ends at an unmapped page: reading or writing one element too far stops the test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define ENTROPIC_UNPOISON ASAN_UNPOISON_MEMORY_REGION
#endif
#endif

namespace support {

// Mappings that are not in use, by their size: the system takes longer to make one than most tests take to use it.
inline thread_local std::map<std::size_t, std::vector<char*>> unused_mappings;

// Its numbers are NaN until they are written, so that an entry that a kernel forgets shows.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t n) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = (n * sizeof(T) + page - 1) / page * page + page;
    std::vector<char*>& unused = unused_mappings[bytes_];
    if (unused.empty()) {
      base_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      if (base_ == MAP_FAILED || mprotect(base_ + bytes_ - page, page, PROT_NONE) != 0) throw std::runtime_error("mmap");
    } else {
      base_ = unused.back();
      unused.pop_back();
    }
    data_ = reinterpret_cast<T*>(base_ + bytes_ - page) - n;
#ifdef ENTROPIC_UNPOISON
    ENTROPIC_UNPOISON(base_, bytes_ - page);  // what an arena left of its memory
#endif
    std::memset(base_, 0xFF, bytes_ - page);
  }
  ~Guarded() { unused_mappings[bytes_].push_back(base_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() const { return data_; }

 private:
  char* base_;
  std::size_t bytes_;
  T* data_;
};

}  // namespace support
