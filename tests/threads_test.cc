// Sharing rows over threads: every row once, on as many threads as asked for. Also run under the thread sanitizer.

#include "entropic/threads.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "entropic/maps.h"
#include "src/parallel.h"
#include "tests/support/cases.h"

namespace entropic {
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

// A forked child has no worker threads, and must not wait for them.
TEST(Threads, WorksAfterFork) {
  const std::size_t rows = 200, n = 700;
  std::vector<float> x = support::normal_row<float>(rows * n, 1, 0, 2), want(rows * n), p(rows * n);
  const auto run = [&](std::vector<float>& out) {
    apply(Softmax{}, MatrixView<const float>(x.data(), rows, n), MatrixView<float>(out.data(), rows, n));
  };
  set_num_threads(2);
  run(want);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    run(p);
    _exit(p == want ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  set_num_threads(0);
}

}  // namespace
}  // namespace entropic
