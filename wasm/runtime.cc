// What the library needs and WebAssembly lacks: threads and exceptions. Replaces src/parallel.cc.
#include <cstdlib>
#include <exception>
#include <string>
#include <typeinfo>

#include "isentropic/threads.h"
#include "src/c/guard.h"
#include "src/parallel.h"

namespace isentropic::inline ISENTROPIC_ABI {

void set_num_threads(std::size_t) {}
std::size_t get_num_threads() { return 1; }
std::size_t limit_threads(std::size_t) { return 0; }
void parallel_rows(std::size_t rows, std::size_t, Work work) {
  if (rows > 0) work(0, rows);
}

}  // namespace isentropic::inline ISENTROPIC_ABI

// The compiler calls these for `throw`. What the library throws has std::exception as its first base, so the object's address
// is that one's. There is nothing to unwind to: the message stays, the call ends in a trap, and the caller makes another
// instance of the module.
extern "C" {
void* __cxa_allocate_exception(std::size_t size) { return std::malloc(size); }
[[noreturn]] void __cxa_throw(void* thrown, std::type_info*, void (*)(void*)) {
  isentropic::last_error() = static_cast<std::exception*>(thrown)->what();
  __builtin_trap();
}
int __cxa_thread_atexit(void (*)(void*), void*, void*) { return 0; }
}
