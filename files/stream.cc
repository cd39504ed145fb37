// A pipeline of three filters by oneTBB: one thread reads, all calculate and encode, one writes.
#include "stream.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>

namespace files {
namespace {

// A part is about as large as keeps the caches warm from one filter to the next; a thread has this part and the next.
constexpr std::size_t kNumbers = std::size_t{1} << 19;

struct Part {
  Table table;
  Table names;  // of the result, without its numbers: only of the first part
  std::string encoded;
  std::size_t rows = 0;
  std::exception_ptr failure;
};

}  // namespace

void stream(const Reader& reader, const Format& format, const std::string& path, const std::function<Table(Table)>& result,
            std::size_t threads, const std::function<void()>& written) {
  using PartPtr = std::shared_ptr<Part>;
  bool ended = false;
  std::optional<Output> output;
  std::optional<Writer> writer;
  std::size_t rows = 0;

  const auto read = [&](tbb::flow_control& control) -> PartPtr {
    auto part = std::make_shared<Part>();
    try {
      if (ended || !reader.next(part->table, kNumbers)) {
        control.stop();
        return nullptr;
      }
    } catch (...) {
      part->failure = std::current_exception();
      ended = true;
    }
    return part;
  };
  // A failure travels on to its turn: which one is reported does not depend on the threads.
  const auto calculate = [&](PartPtr part) {
    try {
      if (part->failure) return part;
      const bool first = part->table.first_row == 0;
      Table table = result(std::move(part->table));
      part->encoded = format.encode(table);
      part->rows = table.rows;
      if (first) {
        std::visit([](auto& values) { values.clear(); }, table.values);
        part->names = std::move(table);
      }
    } catch (...) {
      part->failure = std::current_exception();
    }
    part->table = {};
    return part;
  };
  const auto write = [&](PartPtr part) {
    if (part->failure) std::rethrow_exception(part->failure);
    if (!output) {
      output.emplace(path);
      writer = format.create(*output, part->names, reader.counted);
    }
    writer->append(part->encoded);
    rows += part->rows;
    written();
  };
  using tbb::filter_mode;
  tbb::global_control control(tbb::global_control::max_allowed_parallelism, threads);
  tbb::task_arena(static_cast<int>(threads)).execute([&] {
    tbb::parallel_pipeline(threads + 2, tbb::make_filter<void, PartPtr>(filter_mode::serial_in_order, read) &
                                            tbb::make_filter<PartPtr, PartPtr>(filter_mode::parallel, calculate) &
                                            tbb::make_filter<PartPtr, void>(filter_mode::serial_in_order, write));
  });
  writer->end(rows);
  output->finish();
}

}  // namespace files
