// Memory that ends at an unmapped page: reading or writing one element too far stops the test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>

namespace support {

template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t n) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = (n * sizeof(T) + page - 1) / page * page + page;
    base_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + bytes_ - page, page, PROT_NONE) != 0) throw std::runtime_error("mmap");
    data_ = reinterpret_cast<T*>(base_ + bytes_ - page) - n;
  }
  ~Guarded() { munmap(base_, bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() const { return data_; }

 private:
  char* base_;
  std::size_t bytes_;
  T* data_;
};

}  // namespace support
