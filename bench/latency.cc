// The time of one token in a decoding loop: 128,256 logits from a plain pointer, one draw, each kind of chain in a process of
// its own, whose first call is shown too. If other work runs, elapsed time includes its turns; processor time
// does not.
//
// bench_latency [CALLS]

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "isentropic/isentropic.h"

namespace {

using isentropic::MatrixView;
namespace step = isentropic::step;

constexpr std::size_t kCols = 128256, kRows = 16;  // the rows together are larger than a core's cache, as a model's are

struct Chain {
  const char* name;
  std::vector<isentropic::Step> steps;
};

const std::vector<Chain>& chains() {
  static const std::vector<Chain> all = {
      {"no step", {}},
      {"temperature 0.8", {step::Temperature{0.8}}},
      {"top_k 50", {step::TopK{50}}},
      {"top_p 0.95", {step::TopP{0.95}}},
      {"min_p 0.05", {step::MinP{0.05}}},
      {"typical_p 0.9", {step::TypicalP{0.9}}},
      {"penalties, text of 1000", {step::Penalties{.repetition = 1.1}}},
      {"penalties, temperature, top_k, top_p, min_p",
       {step::Penalties{.repetition = 1.1}, step::Temperature{0.8}, step::TopK{50}, step::TopP{0.95}, step::MinP{0.05}}},
  };
  return all;
}

// Logits like those of a language model, whose softmax is about rank^-1.2, in another order in each row.
template <class T>
std::vector<T> logits() {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 0.5f);
  std::vector<float> row(kCols);
  std::vector<T> all;
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t i = 0; i < kCols; ++i) row[i] = normal(generator) - 1.2f * std::log(static_cast<float>(i + 1));
    std::shuffle(row.begin(), row.end(), generator);
    for (const float one : row) all.push_back(static_cast<T>(one));
  }
  return all;
}

double load() {
  double minute = 0;
  std::ifstream("/proc/loadavg") >> minute;
  return minute;
}

double microseconds_of(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

// How long the calls took, by one clock.
struct Times {
  clockid_t clock;
  std::vector<double> all = {};
  double start = 0;

  double first() const { return all[0]; }
  // What a part of the calls took at most.
  double at(double part) {
    const auto place = static_cast<std::ptrdiff_t>(part * static_cast<double>(all.size() - 1));
    std::nth_element(all.begin(), all.begin() + place, all.end());
    return all[static_cast<std::size_t>(place)];
  }
};

template <class T>
void measure(const char* type, const Chain& chain, std::size_t calls) {
  const std::vector<T> x = logits<T>();
  std::vector<std::int64_t> text(1000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int64_t>(i * i % 701);
  const isentropic::Sampler sampler(chain.steps, 1);
  const bool reads = !chain.steps.empty() && isentropic::reads_text(isentropic::description_of(chain.steps[0]));
  Times elapsed = {CLOCK_MONOTONIC}, processor = {CLOCK_THREAD_CPUTIME_ID};
  for (std::size_t c = 0; c < calls; ++c) {
    std::int64_t drawn = -1;
    for (Times* const times : {&elapsed, &processor}) times->start = microseconds_of(times->clock);
    sampler.sample(MatrixView<const T>(x.data() + c % kRows * kCols, 1, kCols), MatrixView<std::int64_t>(&drawn, 1, 1),
                   {.position = c}, reads ? isentropic::Texts{.tokens = {text.data(), 1, text.size()}} : isentropic::Texts{});
    for (Times* const times : {&processor, &elapsed}) times->all.push_back(microseconds_of(times->clock) - times->start);
    if (drawn < 0 || drawn >= static_cast<std::int64_t>(kCols)) {
      std::fprintf(stderr, "latency: no token was drawn\n");
      std::exit(1);
    }
  }
  const double first = processor.first(), first_elapsed = elapsed.first();
  std::printf("| %s | %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", type, chain.name, first, processor.at(0.5),
              processor.at(0.99), first_elapsed, elapsed.at(0.5), elapsed.at(0.99));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string given = argc > 1 ? argv[1] : "2000";
  // As in the other programs: with this option each chain draws a token, and nothing is timed for long.
  const std::size_t calls = given == "--benchmark_list_tests" ? 1 : std::strtoull(given.c_str(), nullptr, 10);
  if (calls == 0) {
    std::fprintf(stderr, "usage: bench_latency [CALLS], where CALLS is at least 1\n");
    return 2;
  }
  isentropic::set_num_threads(1);
  std::printf("load %.1f at the start\n\n", load());
  std::printf(
      "| logits | steps, then a draw | processor time, us: first call | p50 | p99 | elapsed: first call | p50 | p99 |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const char* const type : {"float32", "float16", "bfloat16"}) {
    for (const Chain& chain : chains()) {
      std::fflush(stdout);
      const pid_t child = fork();
      if (child == 0) {
        const std::string name = type;
        if (name == "float32") measure<float>(type, chain, calls);
        if (name == "float16") measure<isentropic::float16>(type, chain, calls);
        if (name == "bfloat16") measure<isentropic::bfloat16>(type, chain, calls);
        std::fflush(stdout);
        _exit(0);
      }
      int status = 1;
      if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0) return 1;
    }
  }
  std::printf("\nload %.1f at the end\n", load());
}
