// Threads by oneTBB, which handles nested calls and fork and coexists with another library's OpenMP. Without it each call
// starts its own.

#include "src/parallel.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "isentropic/threads.h"
#include "src/arithmetic.h"

#ifndef _WIN32  // Windows has no fork
#include <pthread.h>
#endif

// Debian's TBB is not built for the thread sanitizer, which then reports races that do not exist; suppressing these would hide
// real ones. Under the sanitizer the same pieces run on plain threads.
#if defined(ISENTROPIC_WITHOUT_TBB) || defined(__SANITIZE_THREAD__)
#define ISENTROPIC_PLAIN_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ISENTROPIC_PLAIN_THREADS 1
#endif
#endif

#ifndef ISENTROPIC_PLAIN_THREADS
#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#endif

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

// Below this many elements for each thread, waking it costs more than it saves (about 5 us against 0.3 ns an element), or
// starting it.
#ifdef ISENTROPIC_WITHOUT_TBB
constexpr std::size_t kLeastWork = 131072;
#else
constexpr std::size_t kLeastWork = 16384;
#endif

std::atomic<std::size_t> requested_threads{0};

// A forked child has the parent's record of its worker threads but not the threads.
std::atomic<bool> forked{false};
#ifndef _WIN32
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif

std::size_t default_threads() {
#ifdef ISENTROPIC_PLAIN_THREADS
  return std::max(1u, std::thread::hardware_concurrency());
#else
  return static_cast<std::size_t>(tbb::info::default_concurrency());
#endif
}

// 0: none.
thread_local std::size_t limit_of_thread = 0;

// Whether this thread works on a piece of some caller's rows.
thread_local bool has_piece = false;
struct HasPiece {
  HasPiece() { has_piece = true; }
  ~HasPiece() { has_piece = before; }
  HasPiece(const HasPiece&) = delete;
  const bool before = has_piece;
};

void share_out(std::size_t rows, std::size_t cost_per_row, Work work_on, bool groups) {
  if (rows == 0) return;
  const DefaultArithmetic arithmetic;
  // The operands can have any value: the product must not overflow, and the divisor must not be 0.
  const std::size_t rows_per_thread = std::max<std::size_t>(1, kLeastWork / std::max<std::size_t>(1, cost_per_row));
  // oneTBB allows at most four threads for each processor, and prints a warning for more.
  const std::size_t allowed = limit_of_thread == 0 ? get_num_threads() : std::min(get_num_threads(), limit_of_thread);
  const std::size_t most = std::min(allowed, 4 * default_threads());
  const std::size_t threads = std::min(most, rows / rows_per_thread);
  if (threads <= 1 || forked) return work_on(0, rows);
  const bool nested = has_piece;
  const auto work = [&](std::size_t begin, std::size_t end) {
    const HasPiece here;
    const DefaultArithmetic of_this_thread;
    work_on(begin, end);
  };

  // Each thread gets a few pieces, so that the others do not have to wait for an interrupted one.
  const std::size_t pieces = std::min(rows / rows_per_thread, threads * 8);
  const auto begin_of = [&](std::size_t piece) { return rows / pieces * piece + std::min(piece, rows % pieces); };
#ifdef ISENTROPIC_PLAIN_THREADS
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t piece; (piece = next++) < pieces;) work(begin_of(piece), begin_of(piece + 1));
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back(run);
  run();
  for (auto& thread : others) thread.join();
#else
  const auto run_all = [&] {
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, pieces, 1),
        [&](const tbb::blocked_range<std::size_t>& range) {
          for (std::size_t piece = range.begin(); piece < range.end(); ++piece) work(begin_of(piece), begin_of(piece + 1));
        },
        tbb::simple_partitioner());
  };
  const auto run = [&] {
    // A thread that waits for groups of a row still uses its memory, so it must not begin another row.
    groups ? tbb::this_task_arena::isolate(run_all) : run_all();
  };
  // The caller's own arena has as many threads as processors, and they are awake if they worked recently. Any other number
  // needs a new arena, which must find its threads first.
  if (nested || allowed == default_threads()) return run();
  std::unique_ptr<tbb::global_control> more_than_processors;
  if (threads > default_threads()) {
    // The smallest of all limits holds. So simultaneous calls set the same limit; otherwise one would ask for more threads than
    // another allows.
    more_than_processors =
        std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism, 4 * default_threads());
  }
  tbb::task_arena(static_cast<int>(threads)).execute(run);
#endif
}

}  // namespace

void set_num_threads(std::size_t n) { requested_threads = n; }

std::size_t get_num_threads() {
  const std::size_t n = requested_threads;
  return n == 0 ? default_threads() : n;
}

std::size_t limit_threads(std::size_t n) { return std::exchange(limit_of_thread, n); }

ThreadLimit::ThreadLimit(std::size_t n) : before_(limit_of_thread) {
  if (n != 0) limit_of_thread = before_ == 0 ? n : std::min(n, before_);
}
ThreadLimit::~ThreadLimit() { limit_of_thread = before_; }

void parallel_rows(std::size_t rows, std::size_t cost_per_row, Work work) { share_out(rows, cost_per_row, work, false); }

void parallel_groups(std::size_t groups, std::size_t cost_per_group, Work work) {
  share_out(groups, cost_per_group, work, true);
}

}  // namespace isentropic::inline ISENTROPIC_ABI
