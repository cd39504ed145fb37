// A pipeline of three filters by oneTBB: one thread reads; all threads parse, calculate and encode; one thread writes.
#include "stream.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace files {
namespace {

// A part is small enough to stay in the caches from one filter to the next. A thread has one part and the next.
constexpr std::size_t kNumbers = std::size_t{1} << 16;

struct Part {
  Piece piece;
  fmt::memory_buffer memory;
  std::string_view encoded;  // in `memory` or in the table
  std::exception_ptr failure;
};

}  // namespace

void stream(const Reader& reader, const Format& format, const std::string& path, const std::function<Table(Table)>& result,
            std::size_t threads, const std::function<void()>& written, const std::function<void(std::size_t rows)>& at_end) {
  // More threads than processors would only hold more parts.
  threads = std::clamp<std::size_t>(threads, 1, 4 * std::max(1u, std::thread::hardware_concurrency()));
  // This is the largest number of parts in progress. They end in their order: when a part begins, the last one that used its
  // memory has been written.
  std::vector<Part> parts(threads + 2);
  std::size_t begun = 0;
  bool ended = false;
  std::optional<Output> output;
  std::optional<Writer> writer;
  std::size_t rows = 0;

  const auto read = [&](tbb::flow_control& control) -> Part* {
    Part* part = &parts[begun++ % parts.size()];
    try {
      if (ended || !reader.take(part->piece, kNumbers)) {
        control.stop();
        return nullptr;
      }
    } catch (...) {
      part->failure = std::current_exception();
      ended = true;
    }
    return part;
  };
  // A failure waits for its turn in the order of the rows, so that threads do not decide which failure is reported.
  const auto calculate = [&](Part* part) {
    try {
      if (part->failure) return part;
      reader.parse(part->piece);
      Table& table = part->piece.table;
      table = result(std::move(table));
      part->encoded = format.encode(table, part->memory);
    } catch (...) {
      part->failure = std::current_exception();
    }
    return part;
  };
  const auto write = [&](Part* part) {
    if (part->failure) std::rethrow_exception(part->failure);
    Table& table = part->piece.table;
    if (!output) {
      output.emplace(path);
      writer = format.create(*output, table, reader.counted);
    }
    writer->append(part->encoded);
    rows += table.rows;
    // The next part gets only the memory of this one.
    Table next;
    next.values = std::move(table.values);
    table = std::move(next);
    written();
  };
  using tbb::filter_mode;
  tbb::global_control control(tbb::global_control::max_allowed_parallelism, threads);
  tbb::task_arena(static_cast<int>(threads)).execute([&] {
    tbb::parallel_pipeline(parts.size(), tbb::make_filter<void, Part*>(filter_mode::serial_in_order, read) &
                                             tbb::make_filter<Part*, Part*>(filter_mode::parallel, calculate) &
                                             tbb::make_filter<Part*, void>(filter_mode::serial_in_order, write));
  });
  if (at_end) at_end(rows);
  writer->end(rows);
  output->finish();
}

}  // namespace files
