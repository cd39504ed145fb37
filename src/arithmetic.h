// The arithmetic of the thread that an operation runs on.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

// While it lives, the thread rounds to nearest and keeps subnormal numbers. JAX's threads flush these to 0, as do others after
// torch.set_flush_denormal(True). The library's own threads do not, and the bits of a result must not depend on which thread
// computes the row.
class DefaultArithmetic {
 public:
#if defined(__x86_64__) || defined(_M_X64)
  // The standard functions also set the x87 registers, which takes longer than a short row.
  DefaultArithmetic() {
    if ((before_ & kControl) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultArithmetic() {
    if ((before_ & kControl) != kDefault) _mm_setcsr(before_);
  }

 private:
  static constexpr unsigned kControl = 0xFFC0, kDefault = 0x1F80;
  const unsigned before_ = _mm_getcsr();
#else
  DefaultArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
#endif

 public:
  DefaultArithmetic(const DefaultArithmetic&) = delete;
};

}  // namespace isentropic::inline ISENTROPIC_ABI
