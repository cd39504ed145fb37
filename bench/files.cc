// Streams files from the page cache through an operation, beside only reading, only computing and only writing, interleaved in
// one run: `bench_files [DIRECTORY [ENDING...]]`. The result is the ratio of the whole to its slowest part.

#include <fmt/format.h>
#include <isentropic/isentropic.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "files/stream.h"

namespace {

using files::Table;

constexpr std::size_t kNumbersAtOnce = std::size_t{1} << 16;  // as stream.cc
constexpr int kRepetitions = 7;

template <class F>
double seconds(F f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The operation on rows: in place, or one number for each row.
struct Work {
  std::string name;
  bool one_per_row;
  std::function<void(void*, std::size_t rows, std::size_t cols, bool is_float)> run;
};

template <class Operation>
Work map_work(std::string name, Operation op) {
  const auto run = [op](void* values, std::size_t rows, std::size_t cols, bool is_float) {
    if (is_float) {
      const isentropic::MatrixView<float> x(static_cast<float*>(values), rows, cols);
      isentropic::apply(op, x, x);
    } else {
      const isentropic::MatrixView<double> x(static_cast<double*>(values), rows, cols);
      isentropic::apply(op, x, x);
    }
  };
  return {std::move(name), false, run};
}

// Afterwards the entropies are at the start of the rows.
Work entropy_work() {
  const auto of = []<class T>(T* values, std::size_t rows, std::size_t cols) {
    std::vector<double> y(rows);
    isentropic::measure(isentropic::Entropy{.input = isentropic::Input::scores},
                        isentropic::MatrixView<const T>(values, rows, cols), std::span<double>(y));
    for (std::size_t r = 0; r < rows; ++r) values[r] = static_cast<T>(y[r]);
  };
  return {"entropy", true, [of](void* values, std::size_t rows, std::size_t cols, bool is_float) {
            is_float ? of(static_cast<float*>(values), rows, cols) : of(static_cast<double*>(values), rows, cols);
          }};
}

Table worked(const Work& work, Table table) {
  std::visit(
      [&](auto& values) {
        work.run(values.data(), table.rows, table.cols, sizeof(values[0]) == 4);
        if (work.one_per_row) values.resize(table.rows);
      },
      table.values);
  if (work.one_per_row) {
    table.cols = 1;
    table.shape.pop_back();
    table.header.clear();
  }
  return table;
}

Table scores(std::size_t rows, std::size_t cols) {
  Table table;
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> values(rows * cols);
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Drawing normal numbers takes longer than everything that is timed here.
    values[i] = i < 1 << 20 ? normal(generator) : values[i - (1 << 20)];
  }
  table.values = std::move(values);
  table.rows = rows;
  table.cols = cols;
  table.shape = {rows, cols};
  return table;
}

// A reader of a table in memory.
files::Reader in_parts(const Table& all) {
  const auto at = std::make_shared<std::size_t>(0);
  const auto take = [&all, at](files::Piece& piece, std::size_t numbers) {
    if (*at == all.rows) return false;
    Table& part = piece.table;
    part.rows = std::min(all.rows - *at, std::max<std::size_t>(1, numbers / all.cols));
    part.cols = all.cols;
    part.first_row = *at;
    part.shape = all.shape;
    std::visit(
        [&]<class T>(const std::vector<T>& values) {
          if (!std::holds_alternative<std::vector<T>>(part.values)) part.values = std::vector<T>();
          const auto from = values.begin() + static_cast<std::ptrdiff_t>(*at * all.cols);
          std::get<std::vector<T>>(part.values).assign(from, from + static_cast<std::ptrdiff_t>(part.rows * all.cols));
        },
        all.values);
    *at += part.rows;
    return true;
  };
  return {.counted = true, .take = take};
}

files::Reader opened(const std::string& path) {
  return files::input_format(path, "").open(std::make_shared<files::Input>(path), {});
}

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void compare(const std::string& in, const std::string& ending, const Work& work, std::size_t threads) {
  isentropic::set_num_threads(threads);
  const std::string out = in + ".out." + ending;
  const Table all = files::read_all(opened(in));
  const Table result = worked(work, all);
  const files::Format& format = files::output_format(out);
  std::vector<double> reading, computing, writing, streaming;
  for (int i = 0; i <= kRepetitions; ++i) {
    const double read = seconds([&] {
      const files::Reader reader = opened(in);
      files::Piece piece;
      while (reader.next(piece, kNumbersAtOnce)) {
      }
    });
    Table scores = all;
    const double compute = seconds([&] {
      std::visit([&](auto& values) { work.run(values.data(), all.rows, all.cols, sizeof(values[0]) == 4); }, scores.values);
    });
    const double write = seconds([&] { files::stream(in_parts(result), format, out, std::identity(), 1, [] {}); });
    std::filesystem::remove(out);
    const double stream = seconds([&] {
      files::stream(
          opened(in), format, out, [&](Table table) { return worked(work, std::move(table)); }, threads, [] {});
    });
    // A benchmark of a wrong result is worthless.
    const Table found = files::read_all(opened(out));
    if (found.rows != all.rows || found.cols != result.cols) std::abort();
    std::filesystem::remove(out);
    if (i == 0) continue;
    reading.push_back(read);
    computing.push_back(compute);
    writing.push_back(write);
    streaming.push_back(stream);
  }
  const double r = median(reading), c = median(computing), w = median(writing), s = median(streaming);
  fmt::print(
      "{:8} {:6} {:>5} -> {:5} threads {}: read {:6.1f} ms, compute {:6.1f}, write {:6.1f}, streamed {:6.1f}: {:.2f} of "
      "the slowest, {:.2f} of reading or computing\n",
      work.name, all.cols, in.substr(in.rfind('.') + 1), ending, threads, 1e3 * r, 1e3 * c, 1e3 * w, 1e3 * s,
      s / std::max({r, c, w}), s / std::max(r, c));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--benchmark_list_tests") == 0) return 0;
  const std::string directory = argc > 1 ? argv[1] : "/tmp";
  const std::vector<std::string> endings = [&] {
    std::vector<std::string> wanted(argv + std::min(argc, 2), argv + argc);
    return wanted.empty() ? std::vector<std::string>{"npy", "csv", "jsonl"} : wanted;
  }();
  const std::size_t most = static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN));
  const Work works[] = {map_work("softmax", isentropic::Softmax{}), map_work("entmax", isentropic::Entmax{.alpha = 1.5}),
                        entropy_work()};
  for (const std::string& ending : endings) {
    for (const std::size_t cols : {std::size_t{1024}, std::size_t{32768}}) {
      const std::size_t numbers = ending == "npy" ? std::size_t{1} << 24 : std::size_t{1} << 21;
      const std::string path = fmt::format("{}/bench_files_{}.{}", directory, ::getpid(), ending);
      {
        const Table table = scores(numbers / cols, cols);
        files::Output output(path);
        files::write_all(files::output_format(path), output, table);
        output.finish();
      }
      for (const Work& work : works) {
        for (std::size_t threads : {std::size_t{1}, most}) compare(path, work.one_per_row ? "csv" : ending, work, threads);
      }
      std::filesystem::remove(path);
    }
  }
}
