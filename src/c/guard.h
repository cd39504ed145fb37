// What the C interfaces of both libraries share: an exception becomes an error code, and its message is kept for the thread.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "isentropic/c.h"
#include "src/arithmetic.h"
#include "src/per_thread.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The message of this thread's last failed call.
inline std::string& last_error() {
  struct LastError {
    std::string text;
  };
  return per_thread<LastError>().text;
}

// Keeps the message and returns the code. No exception leaves it, not even when there is no memory for the message.
inline int failed(int code, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) {
    last_error().clear();
  }
  return code;
}

// Calls run() and returns a code for how it ended. JAX calls from threads that flush subnormal parameters to 0.
template <class Run>
int guarded(const Run& run) noexcept {
  const DefaultArithmetic arithmetic;
  try {
    run();
    return ISENTROPIC_OK;
  } catch (const std::invalid_argument& error) {
    return failed(ISENTROPIC_INVALID_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return failed(ISENTROPIC_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(ISENTROPIC_INTERNAL_ERROR, error.what());
  } catch (...) {
    return failed(ISENTROPIC_INTERNAL_ERROR, "unknown error");
  }
}

}  // namespace isentropic::inline ISENTROPIC_ABI
