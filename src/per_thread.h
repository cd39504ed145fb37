// One value for each thread.
#pragma once

#ifdef __MINGW32__
#include <pthread.h>
#endif

#include "isentropic/version.h"

namespace isentropic::inline ISENTROPIC_ABI {

// This thread's T, made on first use and destroyed when the thread ends. There is one for each class: use a class of your own.
template <class T>
T& per_thread() {
#ifdef __MINGW32__
  // mingw may free the memory of thread_local variables before it runs their destructors. POSIX keeps a pointer.
  struct Key {
    Key() {
      pthread_key_create(&key, [](void* value) { delete static_cast<T*>(value); });
    }
    pthread_key_t key;
  };
  static const Key of_t;
  void* value = pthread_getspecific(of_t.key);
  if (value == nullptr) {
    value = new T();
    pthread_setspecific(of_t.key, value);
  }
  return *static_cast<T*>(value);
#else
  thread_local T value;
  return value;
#endif
}

}  // namespace isentropic::inline ISENTROPIC_ABI
