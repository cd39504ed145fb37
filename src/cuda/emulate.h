// A device on the host, for tests: every thread of a cluster of blocks is a fiber, and a barrier lets the others run. The order
// is always the same; threads that wait for each other at different barriers end the program with a report; sanitizers see
// every access.
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

namespace entropic_emulate {

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

// The place where a fiber, or the scheduler, continues. A context of the C library enters a fiber. Later switches do not use
// contexts, because each one would ask the kernel for the signal mask, which takes longer than everything else.
struct Place {
  void* registers[5];
};

struct Fiber {
  ucontext_t context;
  Place place;
  void* fake = nullptr;
  bool entered;
  std::unique_ptr<char[]> stack;
  Wait wait;
  const unsigned long long* number;  // what Wait::number waits for, until it is as much
  unsigned long long until;
  uint64_t slot;  // the value that a shuffle reads
};

struct Device {
#ifdef __SANITIZE_ADDRESS__
  static constexpr std::size_t kStack = std::size_t{1} << 20;  // variables have room around them
#else
  static constexpr std::size_t kStack = std::size_t{1} << 18;
#endif

  Place scheduler;
  void* fake = nullptr;              // the scheduler's
  const void* host_stack = nullptr;  // where it runs
  std::size_t host_bytes = 0;
  std::vector<Fiber> fibers;
  std::vector<std::unique_ptr<char[]>> shared;  // a buffer for each block of the cluster
  std::size_t shared_bytes = 0;
  std::vector<char> narrow;  // for each block, whether its team is only its first warp
  bool all_begun = false;    // all blocks of the cluster have met at a barrier
  std::function<void()> kernel;
  unsigned threads, running, first_block, barriers = 0;
  bool last_first = false;  // the order in which warps run up to a barrier; no result may depend on it
};
inline Device device;

inline unsigned block_rank() { return device.running / device.threads; }
inline unsigned cluster_size() { return static_cast<unsigned>(device.shared.size()); }

[[noreturn]] __attribute__((noinline)) inline void go_to(Place& place) { __builtin_longjmp(place.registers, 1); }

// Returns to the scheduler, until it lets this fiber continue.
__attribute__((noinline)) inline void wait(Wait what) {
  Fiber& me = device.fibers[device.running];
  me.wait = what;
  leave(what == Wait::done ? nullptr : &me.fake, device.host_stack, device.host_bytes);
  if (__builtin_setjmp(me.place.registers) == 0) go_to(device.scheduler);
  arrive(device.fibers[device.running].fake, &device.host_stack, &device.host_bytes);
}

// Waits until other blocks have raised a number.
inline void wait_for(const unsigned long long* number, unsigned long long until) {
  Fiber& me = device.fibers[device.running];
  me.number = number, me.until = until;
  wait(Wait::number);
}

inline void enter() {
  arrive(nullptr, &device.host_stack, &device.host_bytes);
  device.kernel();
  wait(Wait::done);
}

__attribute__((noinline)) inline void resume(Fiber& fiber) {
  leave(&device.fake, fiber.stack.get(), Device::kStack);
  if (__builtin_setjmp(device.scheduler.registers) != 0) return arrive(device.fake, nullptr, nullptr);
  if (fiber.entered) go_to(fiber.place);
  fiber.entered = true;
  setcontext(&fiber.context);
}

// Lets the fibers [first, last) continue if all of them wait for `what` or are done; returns whether any did.
inline bool release(unsigned first, unsigned last, Wait what) {
  bool any = false;
  for (unsigned i = first; i < last; ++i) {
    if (device.fibers[i].wait != what && device.fibers[i].wait != Wait::done) return false;
    any |= device.fibers[i].wait == what;
  }
  for (unsigned i = first; i < last; ++i) {
    if (device.fibers[i].wait == what) device.fibers[i].wait = Wait::none;
  }
  device.barriers += any;
  return any;
}

// Lets the fibers of one block continue whose number is there: another block then still has to read what it was sent. Returns
// whether any did.
inline bool release_numbers() {
  const std::size_t count = device.fibers.size();
  bool any = false;
  for (std::size_t turn = 0; turn < count; ++turn) {
    if (any && turn % device.threads == 0) break;
    Fiber& fiber = device.fibers[device.last_first ? count - 1 - turn : turn];
    if (fiber.wait == Wait::number && *fiber.number >= fiber.until) fiber.wait = Wait::none, any = true;
  }
  return any;
}

[[noreturn]] inline void report_deadlock() {
  constexpr const char* kNames[] = {"nothing", "its warp", "its block", "its cluster", "a number", "nothing, it is done"};
  std::fprintf(stderr, "deadlock in the cluster of block %u: threads wait for each other at different barriers\n",
               device.first_block);
  for (std::size_t i = 0; i < device.fibers.size(); ++i) {
    if (i > 0 && device.fibers[i].wait == device.fibers[i - 1].wait) continue;
    std::fprintf(stderr, "  from thread %zu of block %zu on: waits for %s\n", i % device.threads, i / device.threads,
                 kNames[static_cast<int>(device.fibers[i].wait)]);
  }
  std::abort();
}

// On a device, the memory of a block that has not begun must not be touched.
inline void require_all_begun() {
  if (device.all_begun) return;
  std::fprintf(stderr, "a block uses another's memory before all blocks of the cluster have met at a barrier\n");
  std::abort();
}

// Lets a warp of the cluster go on until it waits for its block: another warp that still reads what this one writes then gives
// a wrong result. Returns whether it went on.
inline bool run_warp(unsigned warp) {
  const unsigned threads = device.threads, of_block = (threads + 31) / 32, block = warp / of_block * threads;
  const unsigned first = block + warp % of_block * 32, last = std::min(first + 32, block + threads);
  bool any = false;
  do {
    for (unsigned turn = first; turn < last; ++turn) {
      const unsigned i = device.last_first ? last - 1 - (turn - first) : turn, in_block = i - block;
      if (device.fibers[i].wait != Wait::none) continue;
      device.running = i;
      threadIdx = {in_block % blockDim.x, in_block / blockDim.x};
      blockIdx = {device.first_block + i / threads};
      resume(device.fibers[i]);
      any = true;
    }
  } while (release(first, last, Wait::warp));
  return any;
}

inline void run_cluster() {
  device.all_begun = false;
  device.narrow.assign(device.shared.size(), false);
  for (Fiber& fiber : device.fibers) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = Device::kStack;
    fiber.context.uc_link = nullptr;
    fiber.wait = Wait::none;
    fiber.entered = false;
    makecontext(&fiber.context, enter, 0);
  }
  const unsigned count = static_cast<unsigned>(device.fibers.size()), threads = device.threads;
  const unsigned warps = count / threads * ((threads + 31) / 32);
  for (bool progress = true; progress;) {
    progress = false;
    for (unsigned turn = 0; turn < warps; ++turn) progress |= run_warp(device.last_first ? warps - 1 - turn : turn);
    for (unsigned block = 0; block < count; block += threads) progress |= release(block, block + threads, Wait::block);
    progress |= release_numbers();
    const bool met = release(0, count, Wait::cluster);
    device.all_begun |= met, progress |= met;
  }
  for (const Fiber& fiber : device.fibers) {
    if (fiber.wait != Wait::done) report_deadlock();
  }
}

// Runs the kernel on blocks of block.x x block.y threads, `cluster` of them at a time, each with `bytes` bytes of shared
// memory.
inline void launch(unsigned blocks, dim3 block, unsigned cluster, std::size_t shared_bytes, std::function<void()> kernel) {
  device.kernel = std::move(kernel);
  device.threads = block.x * block.y;
  device.shared_bytes = shared_bytes;
  gridDim = {blocks}, blockDim = block;
  device.fibers.resize(cluster * device.threads);
  for (Fiber& fiber : device.fibers) {
    if (!fiber.stack) fiber.stack.reset(new char[Device::kStack]);
  }
  for (device.first_block = 0; device.first_block < blocks; device.first_block += cluster) {
    device.shared.clear();
    for (unsigned b = 0; b < cluster; ++b) {
      device.shared.emplace_back(new char[shared_bytes]);
      std::memset(device.shared.back().get(), 0xff, shared_bytes);  // NaN
    }
    run_cluster();
  }
}

}  // namespace entropic_emulate

inline void __syncthreads() { entropic_emulate::wait(entropic_emulate::Wait::block); }
inline void __syncwarp() { entropic_emulate::wait(entropic_emulate::Wait::warp); }

template <class T>
T __shfl_sync(unsigned, T value, unsigned lane) {
  auto& device = entropic_emulate::device;
  const unsigned me = device.running, warp = me - me % device.threads % 32;
  std::memcpy(&device.fibers[me].slot, &value, sizeof value);
  __syncwarp();
  T other;
  std::memcpy(&other, &device.fibers[warp + lane].slot, sizeof other);
  __syncwarp();
  return other;
}
template <class T>
T __shfl_xor_sync(unsigned all, T value, unsigned mask) {
  return __shfl_sync(all, value, (entropic_emulate::device.running % entropic_emulate::device.threads % 32) ^ mask);
}
inline unsigned __ballot_sync(unsigned all, bool set) {
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= unsigned{__shfl_sync(all, set, lane)} << lane;
  return bits;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
