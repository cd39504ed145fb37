// A device on the host, for tests: every thread of a cluster of blocks is a fiber, and a barrier lets the others run. The order
// is always the same; threads that wait for each other at different barriers end the program with a report; sanitizers see
// every access.
//
// For the thread sanitizer each fiber is a thread. It knows of two accesses which one comes first if something says so on a
// device too: a barrier, or arrivals that are waited for. The order in which fibers run says nothing, nor does a shuffle.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
// Before a jump the address sanitizer would forget a whole stack, which takes 40 times as long as everything else.
#define ISENTROPIC_JUMPS __attribute__((noinline, no_sanitize("address")))
#else
#define ISENTROPIC_JUMPS __attribute__((noinline))
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define ISENTROPIC_UNSEEN __attribute__((no_sanitize("thread")))  // it has what only the emulation shares between threads
#else
#define ISENTROPIC_UNSEEN
#endif

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace isentropic_emulate {

enum class Wait { none, warp, block, cluster, number, done };

// What the address sanitizer has to be told: which stack comes next, and that it is there. `fake` keeps what it knows of the
// stack that is left; null for one that is never entered again.
inline void leave(void** fake, const void* next, std::size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(fake, next, bytes);
#else
  (void)fake, (void)next, (void)bytes;
#endif
}
inline void arrive(void* fake, const void** before, std::size_t* bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake, before, bytes);
#else
  (void)fake, (void)before, (void)bytes;
#endif
}

// What the thread sanitizer has to be told: which thread goes on; and in which order threads are. What comes before `tell`
// comes before what follows `know` of the same address.
#ifdef __SANITIZE_THREAD__
inline void* new_thread() { return __tsan_create_fiber(0); }
inline void* this_thread() { return __tsan_get_current_fiber(); }
inline void go_on_as(void* thread) { __tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync); }
inline void tell(const void* order) { __tsan_release(const_cast<void*>(order)); }
inline void know(const void* order) { __tsan_acquire(const_cast<void*>(order)); }
#else
inline void* new_thread() { return nullptr; }
inline void* this_thread() { return nullptr; }
inline void go_on_as(void* /*thread*/) {}
inline void tell(const void* /*order*/) {}
inline void know(const void* /*order*/) {}
#endif

// The place where a fiber, or the scheduler, continues. A context of the C library enters a fiber. Later switches do not use
// contexts, because each one would ask the kernel for the signal mask, which takes longer than everything else.
struct Place {
  void* registers[5];
};

struct Fiber {
  ucontext_t context;
  Place place;
  void* fake = nullptr;
  void* thread = nullptr;
  bool entered;
  std::unique_ptr<char[]> stack;
  Wait wait;
  unsigned met[3];                   // the barriers of its warp, its block and its cluster that said in which order threads are
  const unsigned long long* number;  // what Wait::number waits for, until it is as much
  unsigned long long until;
  uint64_t slot;  // the value that a shuffle reads
};

// What the blocks of a cluster have.
struct Cluster {
  Cluster(unsigned blocks, std::size_t shared_bytes, unsigned fibers) : narrow(blocks, false), orders(new char[fibers * 6]) {
    for (unsigned b = 0; b < blocks; ++b) {
      shared.emplace_back(new char[shared_bytes]);
      std::memset(shared.back().get(), 0xff, shared_bytes);  // NaN
    }
  }

  std::vector<std::unique_ptr<char[]>> shared;  // a buffer for each block
  std::vector<char> narrow;                     // for each block, whether its team is only its first warp
  bool all_begun = false;                       // all blocks have met at a barrier
  // Two orders for each fiber and each kind of barrier whose first fiber it may be. They take turns: a thread that has met the
  // others may be at the next barrier before all of them have gone on.
  std::unique_ptr<char[]> orders;
};

struct Device {
#ifdef __SANITIZE_ADDRESS__
  static constexpr std::size_t kStack = std::size_t{1} << 20;  // variables have room around them
#else
  static constexpr std::size_t kStack = std::size_t{1} << 18;
#endif

  Place scheduler;
  void *fake = nullptr, *thread = nullptr;  // the scheduler's
  const void* host_stack = nullptr;         // where it runs
  std::size_t host_bytes = 0;
  std::vector<Fiber> fibers;  // those of the largest cluster so far
  Fiber* first = nullptr;
  unsigned count = 0;  // of those in use
  std::size_t shared_bytes = 0;
  std::vector<std::unique_ptr<Cluster>> clusters;  // the last one runs; the others are kept for the thread sanitizer
  Cluster* cluster = nullptr;
  std::function<void()> kernel;
  unsigned threads, running, first_block, barriers = 0;
  bool last_first = false;  // the order in which warps run up to a barrier; no result may depend on it
  char begin, end;          // the orders of the host and a kernel
};
inline Device device;
// Whether numbers that one block sends to another say that what the sender has done comes before. On a device they do not;
// but then nothing is known of the numbers' own memory, which is used again and again. So both are to be tried.
inline bool sent_in_order = false;

ISENTROPIC_UNSEEN inline Fiber& fiber(unsigned i) { return device.first[i]; }
ISENTROPIC_UNSEEN inline Cluster& cluster() { return *device.cluster; }
ISENTROPIC_UNSEEN inline unsigned block_rank() { return device.running / device.threads; }
inline unsigned cluster_size() { return static_cast<unsigned>(cluster().shared.size()); }

[[noreturn]] ISENTROPIC_JUMPS ISENTROPIC_UNSEEN inline void go_to(Place& place) { __builtin_longjmp(place.registers, 1); }

// Returns to the scheduler, until it lets this fiber continue.
ISENTROPIC_JUMPS ISENTROPIC_UNSEEN inline void wait(Wait what) {
  Fiber& me = fiber(device.running);
  me.wait = what;
  leave(what == Wait::done ? nullptr : &me.fake, device.host_stack, device.host_bytes);
  go_on_as(device.thread);
  if (__builtin_setjmp(me.place.registers) == 0) go_to(device.scheduler);
  arrive(fiber(device.running).fake, &device.host_stack, &device.host_bytes);
}

// Waits for a warp, a block or a cluster: what each thread has done comes before what follows in all others.
ISENTROPIC_UNSEEN inline void meet(Wait what) {
  const unsigned me = device.running, kind = static_cast<unsigned>(what) - static_cast<unsigned>(Wait::warp);
  const unsigned in_block = me % device.threads, firsts[] = {me - in_block % 32, me - in_block, 0};
  const char* const order = &cluster().orders[firsts[kind] * 6 + kind * 2 + fiber(me).met[kind]++ % 2];
  tell(order);
  wait(what);
  know(order);
}

// Waits until others have raised a number.
ISENTROPIC_UNSEEN inline void wait_for(const unsigned long long* number, unsigned long long until) {
  Fiber& me = fiber(device.running);
  me.number = number, me.until = until;
  wait(Wait::number);
  know(number);
}

template <class T>
ISENTROPIC_UNSEEN void put_unseen(T* place, T value) {
  *place = value;
}
// A number that comes to another block's memory by itself, and with it raises `count` there.
template <class T>
void send(T* place, T value, unsigned long long* count, unsigned long long by) {
  sent_in_order ? void(*place = value) : put_unseen(place, value);
  if (sent_in_order) tell(count);
  __atomic_fetch_add(count, by, __ATOMIC_RELAXED);
}

ISENTROPIC_UNSEEN inline void enter() {
  arrive(nullptr, &device.host_stack, &device.host_bytes);
  know(&device.begin);
  device.kernel();
  tell(&device.end);
  wait(Wait::done);
}

ISENTROPIC_JUMPS ISENTROPIC_UNSEEN inline void resume(Fiber& fiber) {
  leave(&device.fake, fiber.stack.get(), Device::kStack);
  go_on_as(fiber.thread);
  if (__builtin_setjmp(device.scheduler.registers) != 0) return arrive(device.fake, nullptr, nullptr);
  if (fiber.entered) go_to(fiber.place);
  fiber.entered = true;
  setcontext(&fiber.context);
}

// Lets the fibers [first, last) continue if all of them wait for `what` or are done; returns whether any did.
ISENTROPIC_UNSEEN inline bool release(unsigned first, unsigned last, Wait what) {
  bool any = false;
  for (unsigned i = first; i < last; ++i) {
    if (fiber(i).wait != what && fiber(i).wait != Wait::done) return false;
    any |= fiber(i).wait == what;
  }
  for (unsigned i = first; i < last; ++i) {
    if (fiber(i).wait == what) fiber(i).wait = Wait::none;
  }
  device.barriers += any;
  return any;
}

// Lets the fibers of one block continue whose number is there: another block then still has to read what it was sent. Returns
// whether any did.
ISENTROPIC_UNSEEN inline bool release_numbers() {
  bool any = false;
  for (unsigned turn = 0; turn < device.count; ++turn) {
    if (any && turn % device.threads == 0) break;
    Fiber& waits = fiber(device.last_first ? device.count - 1 - turn : turn);
    if (waits.wait == Wait::number && *waits.number >= waits.until) waits.wait = Wait::none, any = true;
  }
  return any;
}

[[noreturn]] inline void report_deadlock() {
  constexpr const char* kNames[] = {"nothing", "its warp", "its block", "its cluster", "a number", "nothing, it is done"};
  std::fprintf(stderr, "deadlock in the cluster of block %u: threads wait for each other at different barriers\n",
               device.first_block);
  for (unsigned i = 0; i < device.count; ++i) {
    if (i > 0 && fiber(i).wait == fiber(i - 1).wait) continue;
    std::fprintf(stderr, "  from thread %u of block %u on: waits for %s\n", i % device.threads, i / device.threads,
                 kNames[static_cast<int>(fiber(i).wait)]);
  }
  std::abort();
}

// On a device, the memory of a block that has not begun must not be touched.
ISENTROPIC_UNSEEN inline void require_all_begun() {
  if (cluster().all_begun) return;
  std::fprintf(stderr, "a block uses another's memory before all blocks of the cluster have met at a barrier\n");
  std::abort();
}

// Lets a warp of the cluster go on until it waits for its block: another warp that still reads what this one writes then gives
// a wrong result. Returns whether it went on.
ISENTROPIC_UNSEEN inline bool run_warp(unsigned warp) {
  const unsigned threads = device.threads, of_block = (threads + 31) / 32, block = warp / of_block * threads;
  const unsigned first = block + warp % of_block * 32, last = std::min(first + 32, block + threads);
  bool any = false;
  do {
    for (unsigned turn = first; turn < last; ++turn) {
      const unsigned i = device.last_first ? last - 1 - (turn - first) : turn, in_block = i - block;
      if (fiber(i).wait != Wait::none) continue;
      device.running = i;
      threadIdx = {in_block % blockDim.x, in_block / blockDim.x};
      blockIdx = {device.first_block + i / threads};
      resume(fiber(i));
      any = true;
    }
  } while (release(first, last, Wait::warp));
  return any;
}

__attribute__((noinline)) ISENTROPIC_UNSEEN inline void prepare(Fiber& fiber) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = Device::kStack;
  fiber.context.uc_link = nullptr;
  fiber.wait = Wait::none;
  fiber.entered = false;
  for (unsigned& met : fiber.met) met = 0;
  makecontext(&fiber.context, enter, 0);
}

ISENTROPIC_UNSEEN inline void run_cluster() {
  const unsigned count = device.count, threads = device.threads;
  for (unsigned i = 0; i < count; ++i) prepare(fiber(i));
  const unsigned warps = count / threads * ((threads + 31) / 32);
  for (bool progress = true; progress;) {
    progress = false;
    for (unsigned turn = 0; turn < warps; ++turn) progress |= run_warp(device.last_first ? warps - 1 - turn : turn);
    for (unsigned block = 0; block < count; block += threads) progress |= release(block, block + threads, Wait::block);
    progress |= release_numbers();
    const bool met = release(0, count, Wait::cluster);
    cluster().all_begun |= met, progress |= met;
  }
  for (unsigned i = 0; i < count; ++i) {
    if (fiber(i).wait != Wait::done) report_deadlock();
  }
}

// Runs the kernel on blocks of block.x x block.y threads, `cluster` of them at a time, each with `bytes` bytes of shared
// memory.
ISENTROPIC_UNSEEN inline void launch(unsigned blocks, dim3 block, unsigned cluster, std::size_t shared_bytes,
                                     std::function<void()> kernel) {
  device.kernel = std::move(kernel);
  device.threads = block.x * block.y;
  device.shared_bytes = shared_bytes;
  device.thread = this_thread();
  device.count = cluster * device.threads;
  gridDim = {blocks}, blockDim = block;
  if (device.fibers.size() < device.count) device.fibers.resize(device.count);
  device.first = device.fibers.data();
  for (unsigned i = 0; i < device.count; ++i) {
    if (!fiber(i).stack) fiber(i).stack.reset(new char[Device::kStack]), fiber(i).thread = new_thread();
  }
  for (device.first_block = 0; device.first_block < blocks; device.first_block += cluster) {
#ifndef __SANITIZE_THREAD__
    device.clusters.clear();
#endif
    device.clusters.emplace_back(new Cluster(cluster, shared_bytes, device.count));
    device.cluster = device.clusters.back().get();
    tell(&device.begin);
    run_cluster();
  }
  know(&device.end);
  device.clusters.clear();
}

}  // namespace isentropic_emulate

inline void __syncthreads() { isentropic_emulate::meet(isentropic_emulate::Wait::block); }
inline void __syncwarp() { isentropic_emulate::meet(isentropic_emulate::Wait::warp); }

template <class T>
ISENTROPIC_UNSEEN T __shfl_sync(unsigned, T value, unsigned lane) {
  using isentropic_emulate::fiber;
  using isentropic_emulate::Wait;
  const unsigned me = isentropic_emulate::device.running, warp = me - me % isentropic_emulate::device.threads % 32;
  __builtin_memcpy(&fiber(me).slot, &value, sizeof value);
  isentropic_emulate::wait(Wait::warp);
  T other;
  __builtin_memcpy(&other, &fiber(warp + lane).slot, sizeof other);
  isentropic_emulate::wait(Wait::warp);
  return other;
}
template <class T>
ISENTROPIC_UNSEEN T __shfl_xor_sync(unsigned all, T value, unsigned mask) {
  return __shfl_sync(all, value, (isentropic_emulate::device.running % isentropic_emulate::device.threads % 32) ^ mask);
}
ISENTROPIC_UNSEEN inline unsigned __ballot_sync(unsigned, bool set) {
  using isentropic_emulate::fiber;
  using isentropic_emulate::Wait;
  const unsigned me = isentropic_emulate::device.running, warp = me - me % isentropic_emulate::device.threads % 32;
  fiber(me).slot = set;
  isentropic_emulate::wait(Wait::warp);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= unsigned{fiber(warp + lane).slot != 0} << lane;
  isentropic_emulate::wait(Wait::warp);
  return bits;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
