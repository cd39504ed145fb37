// Memory that ends at an unmapped page: reading or writing one element too far stops the test.
#pragma once

#ifdef _WIN32
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#undef near  // windows.h defines these as nothing
#undef far
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <cstddef>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define ISENTROPIC_UNPOISON ASAN_UNPOISON_MEMORY_REGION
#endif
#endif

namespace support {

// map_guarded gives `bytes` of memory, whose last page can be neither read nor written.
#ifdef _WIN32
inline std::size_t page_size() {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}

inline char* map_guarded(std::size_t bytes) {
  char* const base = static_cast<char*>(VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE));
  DWORD before;
  if (!base || !VirtualProtect(base + bytes - page_size(), page_size(), PAGE_NOACCESS, &before)) {
    throw std::runtime_error("VirtualAlloc");
  }
  return base;
}
#else
inline std::size_t page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

inline char* map_guarded(std::size_t bytes) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED || mprotect(static_cast<char*>(base) + bytes - page_size(), page_size(), PROT_NONE) != 0) {
    throw std::runtime_error("mmap");
  }
  return static_cast<char*>(base);
}
#endif

// Mappings that are not in use, by their size: the system takes longer to make one than most tests take to use it.
inline thread_local std::map<std::size_t, std::vector<char*>> unused_mappings;

// Its numbers are NaN until they are written, so that an entry that a kernel forgets shows.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t n) {
    const std::size_t page = page_size();
    bytes_ = (n * sizeof(T) + page - 1) / page * page + page;
    std::vector<char*>& unused = unused_mappings[bytes_];
    if (unused.empty()) {
      base_ = map_guarded(bytes_);
    } else {
      base_ = unused.back();
      unused.pop_back();
    }
    data_ = reinterpret_cast<T*>(base_ + bytes_ - page) - n;
#ifdef ISENTROPIC_UNPOISON
    ISENTROPIC_UNPOISON(base_, bytes_ - page);  // what an arena left of its memory
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
