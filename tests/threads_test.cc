// Distributing rows over threads: every row once, on the wanted number of threads. Also run under the thread sanitizer.

#include "isentropic/threads.h"

#include <gtest/gtest.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif
#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "isentropic/maps.h"
#include "src/parallel.h"
#include "tests/support/cases.h"

namespace isentropic {
namespace {

TEST(Threads, EachRowOnce) {
  for (const std::size_t threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_EQ(get_num_threads(), threads);
    for (const std::size_t rows : {0, 1, 2, 7, 100, 10007}) {
      std::vector<std::atomic<int>> visits(rows);
      parallel_rows(rows, 100000, [&](std::size_t begin, std::size_t end) {
        ASSERT_LT(begin, end);
        ASSERT_LE(end, rows);
        for (std::size_t r = begin; r < end; ++r) ++visits[r];
      });
      for (const auto& count : visits) ASSERT_EQ(count, 1);
    }
  }
  set_num_threads(0);
  EXPECT_GE(get_num_threads(), 1u);
}

#ifdef __x86_64__
// The threads of JAX flush subnormal numbers, as others do after torch.set_flush_denormal.
TEST(Threads, ResultsDoNotDependOnTheCallersArithmetic) {
  constexpr unsigned kFlush = 0x8040, kRoundUp = 0x4000;
  const unsigned before = _mm_getcsr();
  std::vector<float> x(2000 * 64), want(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = -110 * static_cast<float>(i % 64) / 64;  // some probabilities are subnormal
  const MatrixView<const float> rows(x.data(), 2000, 64);
  apply(Softmax{}, rows, MatrixView<float>(want.data(), 2000, 64));
  ASSERT_TRUE(std::any_of(want.begin(), want.end(), [](float p) { return p > 0 && p < std::numeric_limits<float>::min(); }));
  for (const unsigned mode : {kFlush, kRoundUp, kFlush | kRoundUp}) {
    for (const std::size_t threads : {1, 3}) {
      set_num_threads(threads);
      std::vector<float> found(x.size());
      _mm_setcsr(before | mode);
      apply(Softmax{}, rows, MatrixView<float>(found.data(), 2000, 64));
      const unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      EXPECT_EQ(after & 0xFFC0, (before | mode) & 0xFFC0);
      EXPECT_EQ(std::memcmp(found.data(), want.data(), want.size() * sizeof(float)), 0) << mode << " " << threads;
    }
  }
  set_num_threads(0);
}
#endif

TEST(Threads, ALimitIsOfTheThreadThatAsksForIt) {
  set_num_threads(4);
  const auto threads = [] {
    std::mutex mutex;
    std::set<std::thread::id> seen;
    parallel_rows(10000, 1000000, [&](std::size_t, std::size_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::scoped_lock lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    return seen;
  };
  {
    const ThreadLimit one(1);
    EXPECT_EQ(threads(), std::set{std::this_thread::get_id()});
    const ThreadLimit more(3);  // within the outer one
    EXPECT_EQ(threads().size(), 1u);
    std::size_t elsewhere = 0;
    std::thread([&] { elsewhere = threads().size(); }).join();
    EXPECT_GT(elsewhere, 1u);
  }
  {
    const ThreadLimit two(2), none(0);
    const std::size_t count = threads().size();
    EXPECT_GE(count, 1u);
    EXPECT_LE(count, 2u);
  }
  EXPECT_GT(threads().size(), 1u);
  set_num_threads(0);
}

TEST(Threads, SmallWorkStaysHere) {
  set_num_threads(4);
  parallel_rows(100, 100, [](std::size_t begin, std::size_t end) {
    EXPECT_EQ(begin, 0u);
    EXPECT_EQ(end, 100u);
  });
  set_num_threads(0);
}

TEST(Threads, MoreThanOneWorks) {
  set_num_threads(2);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  // Pieces that take long enough that a second thread takes some; how soon it starts is the scheduler's business.
  for (int attempt = 0; attempt < 50 && ids.size() < 2; ++attempt) {
    parallel_rows(64, 1000000, [&](std::size_t, std::size_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
  }
  EXPECT_EQ(ids.size(), 2u);
  set_num_threads(0);
}

// Several callers at once, as from several Python threads.
TEST(Threads, ConcurrentCalls) {
  const std::size_t rows = 200, n = 700;
  const std::vector<float> x = support::normal_row<float>(rows * n, 1, 0, 1);
  std::vector<float> want(rows * n);
  set_num_threads(1);
  apply(Sparsemax{}, MatrixView<const float>(x.data(), rows, n), MatrixView<float>(want.data(), rows, n));
  set_num_threads(3);
  std::vector<std::vector<float>> results(4, std::vector<float>(rows * n));
  std::vector<std::thread> callers;
  for (auto& p : results) {
    callers.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        apply(Sparsemax{}, MatrixView<const float>(x.data(), rows, n), MatrixView<float>(p.data(), rows, n));
      }
    });
  }
  for (auto& caller : callers) caller.join();
  for (const auto& p : results) EXPECT_EQ(p, want);
  set_num_threads(0);
}

// Threads share long rows in parts: a row has the same bits for any number of threads and in any batch.
template <class T>
void expect_same_long_rows() {
  const std::size_t rows = 3, n = (std::size_t{1} << 19) + 777;
  const std::vector<T> x = support::normal_row<T>(rows * n, 1, 0, 2), g = support::normal_row<T>(rows * n, 2, 0, 1);
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  const auto run = [&](std::size_t threads, std::size_t first, std::size_t count) {
    set_num_threads(threads);
    std::vector<std::vector<T>> results(6, std::vector<T>(count * n));
    auto &p = results[0], &dx = results[1], &y = results[2], &dy = results[3], &sums = results[4], &sparse = results[5];
    const In scores(x.data() + first * n, count, n), slopes(g.data() + first * n, count, n);
    apply(Softmax{}, scores, Out(p.data(), count, n));
    apply_vjp(Softmax{.temperature = 0.7}, scores, In(p.data(), count, n), slopes, Out(dx.data(), count, n));
    log_softmax({.temperature = 1.3}, scores, Out(y.data(), count, n));
    log_softmax_vjp({.temperature = 1.3}, scores, In(y.data(), count, n), slopes, Out(dy.data(), count, n));
    sums.resize(count), logsumexp({}, scores, Out(sums.data(), count, 1));
    apply(Sparsemax{}, scores, Out(sparse.data(), count, n));
    set_num_threads(0);
    return results;
  };
  const auto want = run(1, 0, rows);
  for (const std::size_t threads : {2, 3, 5}) {
    EXPECT_TRUE(run(threads, 0, rows) == want) << threads << " threads";
    for (std::size_t r = 0; r < rows; ++r) {
      const auto alone = run(threads, r, 1);
      for (std::size_t k = 0; k < want.size(); ++k) {
        const std::size_t size = alone[k].size();
        EXPECT_TRUE(std::equal(alone[k].begin(), alone[k].end(), want[k].begin() + static_cast<std::ptrdiff_t>(r * size)))
            << threads << " threads, row " << r << ", result " << k;
      }
    }
  }
}

TEST(Threads, LongRowsHaveTheSameBits) {
  expect_same_long_rows<float>();
  expect_same_long_rows<double>();
}

// A row's own pieces are waited for, and another row does not begin meanwhile on the same thread.
TEST(Threads, WhoWaitsForGroupsBeginsNoOtherRow) {
  for (const std::size_t threads : {2, 3, 8}) {
    set_num_threads(threads);
    static thread_local int rows_open = 0;
    std::atomic<int> groups_done{0}, most_open{0};
    parallel_rows(16, 1000000, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        ++rows_open;
        if (rows_open > 1) most_open = 2;
        parallel_groups(20, 20000, [&](std::size_t first, std::size_t last) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
          groups_done += static_cast<int>(last - first);
        });
        --rows_open;
      }
    });
    EXPECT_EQ(groups_done, 16 * 20);
    EXPECT_EQ(most_open, 0);
  }
  set_num_threads(0);
}

#ifndef _WIN32  // which has no fork
// A forked child has no worker threads, and must not wait for them.
TEST(Threads, WorksAfterFork) {
  const std::size_t rows = 200, n = 700;
  std::vector<float> x = support::normal_row<float>(rows * n, 1, 0, 2), want(rows * n), p(rows * n);
  const auto run = [&](std::vector<float>& out) {
    apply(Softmax{}, MatrixView<const float>(x.data(), rows, n), MatrixView<float>(out.data(), rows, n));
  };
  for (const std::size_t threads : {2, 3, 8}) {  // 3 and 8 have an arena of their own
    set_num_threads(threads);
    run(want);
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      run(p);
      _exit(p == want ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << threads;
    EXPECT_EQ(WEXITSTATUS(status), 0) << threads;
  }
  set_num_threads(0);
}
#endif

}  // namespace
}  // namespace isentropic
