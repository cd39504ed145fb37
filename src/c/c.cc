// The C interface: operations of the registry by name on arrays by name. An exception becomes an error code and a message.

#include "entropic/c.h"

#include <cmath>
#include <cstring>
#include <deque>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "entropic/entropic.h"
#include "src/c/json.h"
#include "src/check.h"

namespace entropic::inline ENTROPIC_ABI {
namespace {

struct ArrayRole {
  std::string_view name;
  bool output = false;
  bool optional = false;
};

// The arrays of an operation beside those for its parameters, or of its gradient.
std::vector<ArrayRole> roles_of(const OperationInfo& info, bool vjp) {
  const std::string_view family = info.family;
  if (vjp) return {{"x"}, {"y"}, {"grad"}, {"dx", true}};
  if (family == "map" || family == "logarithm" || info.name == "gumbel_softmax") return {{"x"}, {"y", true}};
  if (family == "measure" || family == "entry") return {{"p"}, {"value", true}, {"dp", true, true}};
  if (family == "table") return {{"pxy"}, {"value", true}, {"dp", true, true}};
  if (family == "divergence") return {{"p"}, {"q"}, {"value", true}, {"dp", true, true}, {"dq", true, true}};
  if (family == "loss") return {{"x"}, {"target"}, {"value", true}, {"dx", true, true}};
  if (info.name == "gamma_for_entropy") return {{"x"}, {"gamma", true}, {"reached", true}, {"status", true}};
  if (info.name == "power_transform") return {{"p"}, {"q", true}};
  if (info.name == "mean_field_entropy") return {{"x"}, {"value", true}};
  if (info.name == "sample") return {{"x"}, {"indices", true}};
  return {};
}

bool has_vjp(const OperationInfo& info) { return info.family == "map" || info.family == "logarithm"; }

std::size_t size_of(std::int32_t type) {
  switch (type) {
    case ENTROPIC_FLOAT32:
    case ENTROPIC_INT32:
      return 4;
    case ENTROPIC_FLOAT64:
    case ENTROPIC_INT64:
      return 8;
    case ENTROPIC_FLOAT16:
    case ENTROPIC_BFLOAT16:
      return 2;
    default:
      return 0;
  }
}

// One array of a call, its strides in bytes.
struct Given {
  std::string_view name;
  char* data;
  std::ptrdiff_t shape[2];
  std::ptrdiff_t strides[2];
  std::int32_t type;

  StridedArray strided() const { return {data, shape, strides, size_of(type)}; }
  std::size_t rows() const { return static_cast<std::size_t>(shape[0]); }
  std::size_t cols() const { return static_cast<std::size_t>(shape[1]); }
  char* at(std::size_t row, std::size_t col = 0) const {
    return data + static_cast<std::ptrdiff_t>(row) * strides[0] + static_cast<std::ptrdiff_t>(col) * strides[1];
  }
};

template <class T>
T read(const char* from) {
  T number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

// One number for each row, as the library's functions want it.
template <class T>
class Column {
 public:
  Column(std::string_view operation, const Given& given, std::size_t rows) : given_(given), numbers_(rows) {
    constexpr bool kWhole = std::is_integral_v<T>;
    if (given.rows() != rows || given.cols() != 1) {
      fail("{}: {} must have shape ({}, 1), one for each row, got {}", operation, given.name, rows, shape_text(given.shape));
    }
    const bool good = kWhole ? given.type == ENTROPIC_INT32 || given.type == ENTROPIC_INT64
                             : given.type == ENTROPIC_FLOAT32 || given.type == ENTROPIC_FLOAT64;
    if (!good) {
      fail("{}: {} must be {}", operation, given.name, kWhole ? "integers of 32 or 64 bits" : "float32 or float64");
    }
  }

  Column& load() {
    using Narrow = std::conditional_t<std::is_integral_v<T>, std::int32_t, float>;
    for (std::size_t r = 0; r < numbers_.size(); ++r) {
      numbers_[r] = narrow() ? static_cast<T>(read<Narrow>(given_.at(r))) : read<T>(given_.at(r));
    }
    return *this;
  }
  void store() const {
    using Narrow = std::conditional_t<std::is_integral_v<T>, std::int32_t, float>;
    for (std::size_t r = 0; r < numbers_.size(); ++r) {
      const auto small = static_cast<Narrow>(numbers_[r]);
      std::memcpy(given_.at(r), narrow() ? static_cast<const void*>(&small) : &numbers_[r],
                  narrow() ? sizeof small : sizeof(T));
    }
  }
  std::span<T> part(std::size_t first, std::size_t count) { return std::span(numbers_).subspan(first, count); }
  std::span<T> all() { return numbers_; }

 private:
  bool narrow() const { return size_of(given_.type) == 4; }

  const Given& given_;
  std::vector<T> numbers_;
};

// Everything that one call gave, checked for names and types.
class Call {
 public:
  Call(const OperationInfo& info, const char* parameters, const entropic_array* arrays, std::size_t count, bool vjp)
      : info_(info), where_(std::string(info.name) + (vjp ? "_vjp" : "")), values_(info.params.size()) {
    read_arrays(arrays, count);
    for (const ArrayRole& role : roles_of(info, vjp)) {
      const Given* const given = find(role.name);
      if (given == nullptr && !role.optional) fail("{}: the array '{}' is missing", where_, role.name);
      known_.push_back(role.name);
    }
    if (parameters != nullptr) {
      for (const Argument& one : parse_parameters(where_, parameters)) set(one);
    }
    const std::size_t rows = given_.empty() ? 0 : find(roles_of(info, vjp)[0].name)->rows();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const ParamInfo& param = info.params[i];
      if (!param.per_row) continue;
      if (const Given* const values = find(param.name); values != nullptr) {
        if (!std::holds_alternative<std::monostate>(values_[i])) {
          fail("{}: {} must be a parameter or an array, got both", where_, param.name);
        }
        columns_.emplace_back(where_, *values, rows).load();
        per_row_.push_back({param.name, columns_.back().all()});
        known_.push_back(param.name);
        const std::string slope = "d_" + std::string(param.name);
        if (const Given* const to = find(slope); to != nullptr) {
          slopes_.emplace_back(where_, *to, rows);
          gradients_.push_back({param.name, slopes_.back().all()});
          known_.push_back(to->name);
        }
      }
    }
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const ParamInfo& param = info.params[i];
      bool given = !std::holds_alternative<std::monostate>(values_[i]);
      for (const PerRow& one : per_row_) given |= one.parameter == param.name;
      if (param.required && !given) fail("{}: {} is required", where_, param.name);
    }
    if (is_drawn()) {
      if (const Given* const streams = find("stream"); streams != nullptr) {
        streams_.emplace(where_, *streams, rows).load();
        known_.emplace_back("stream");
      }
    }
    for (const Given& one : given_) {
      bool known = false;
      for (const std::string_view name : known_) known |= name == one.name;
      if (!known) fail("{}: there is no array '{}'; it has {}", where_, one.name, fmt::join(known_, ", "));
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const OperationInfo& info() const { return info_; }
  std::string_view where() const { return where_; }
  std::span<const ParamValue> values() const { return values_; }
  const Given& operator[](std::string_view name) const { return *find(name); }
  const Given* find(std::string_view name) const {
    for (const Given& one : given_) {
      if (one.name == name) return &one;
    }
    return nullptr;
  }

  std::vector<PerRow> per_row(std::size_t first, std::size_t count) const { return part(per_row_, first, count); }
  std::vector<ParamGradient> gradients(std::size_t first, std::size_t count) const { return part(gradients_, first, count); }
  void store_gradients() const {
    for (const Column<double>& one : slopes_) one.store();
  }
  // The noise of rows from `first` on.
  Noise noise(std::size_t first, std::size_t count, std::vector<std::uint64_t>& streams) {
    Noise noise = {static_cast<std::uint64_t>(seed_),
                   static_cast<std::uint64_t>(stream_) + first,
                   static_cast<std::uint64_t>(position_),
                   {}};
    if (streams_) {
      const auto given = streams_->part(first, count);
      streams.assign(given.begin(), given.end());
      noise.streams = streams;
    }
    return noise;
  }
  const std::optional<std::int64_t>& ignored() const { return ignored_; }

 private:
  template <class Entry>
  static std::vector<Entry> part(const std::vector<Entry>& all, std::size_t first, std::size_t count) {
    std::vector<Entry> some = all;
    for (Entry& one : some) one.values = one.values.subspan(first, count);
    return some;
  }

  bool is_drawn() const { return info_.family == "sampling"; }

  void read_arrays(const entropic_array* arrays, std::size_t count) {
    if (count > 0 && arrays == nullptr) fail("{}: arrays must not be null where count is {}", where_, count);
    // The first field says how far the next array is away, whatever later headers add to the struct.
    const std::size_t size = count > 0 ? arrays->struct_size : 0;
    if (count > 0 && size < sizeof(entropic_array)) {
      fail("{}: struct_size must be sizeof(entropic_array), at least {}, got {}", where_, sizeof(entropic_array), size);
    }
    const char* at = reinterpret_cast<const char*>(arrays);
    for (std::size_t i = 0; i < count; ++i, at += size) {
      const auto& one = *reinterpret_cast<const entropic_array*>(at);
      if (one.struct_size != size) fail("{}: struct_size must be the same of all arrays", where_);
      if (one.name == nullptr) fail("{}: array {} has no name", where_, i);
      const std::size_t item = size_of(one.type);
      if (item == 0)
        fail("{}: type of {} must be ENTROPIC_FLOAT32 to ENTROPIC_INT64, 1 to 6, got {}", where_, one.name, one.type);
      if (one.data == nullptr && one.rows != 0 && one.cols != 0) fail("{}: data of {} must not be null", where_, one.name);
      if (find(one.name) != nullptr) fail("{}: the array '{}' is given twice", where_, one.name);
      constexpr auto kMost = static_cast<std::size_t>(PTRDIFF_MAX);
      if (one.rows > kMost || one.cols > kMost) fail("{}: {} has too many rows or cols", where_, one.name);
      const auto cols = static_cast<std::ptrdiff_t>(one.cols);
      const std::ptrdiff_t step = one.col_stride == 0 ? 1 : one.col_stride;
      const std::ptrdiff_t row_step = one.row_stride == 0 ? cols * step : one.row_stride;
      const auto bytes = static_cast<std::ptrdiff_t>(item);
      given_.push_back({one.name,
                        static_cast<char*>(one.data),
                        {static_cast<std::ptrdiff_t>(one.rows), cols},
                        {row_step * bytes, step * bytes},
                        one.type});
    }
  }

  void set(const Argument& one) {
    const auto whole = [&](std::int64_t& to) {
      const auto* const number = std::get_if<std::int64_t>(&one.value);
      if (number == nullptr) fail("{}: {} must be an integer, got {}", where_, one.name, to_text(one.value));
      to = *number;
    };
    if (is_drawn()) {
      if (one.name == "seed") return whole(seed_);
      if (one.name == "stream") return whole(stream_);
      if (one.name == "position") return whole(position_);
    }
    if (info_.family == "loss" && one.name == "ignore_index") return whole(ignored_.emplace());
    std::string names;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      names += (names.empty() ? "" : ", ") + std::string(info_.params[i].name);
      if (info_.params[i].name != one.name) continue;
      values_[i] = one.value;
      return;
    }
    fail("{}: there is no parameter '{}'{}{}", where_, one.name, names.empty() ? "" : "; it has ", names);
  }

  const OperationInfo& info_;
  std::string where_;
  std::vector<ParamValue> values_;
  std::vector<Given> given_;
  std::vector<std::string_view> known_;
  std::deque<Column<double>> columns_, slopes_;  // addresses stay
  std::vector<PerRow> per_row_;
  std::vector<ParamGradient> gradients_;
  std::optional<Column<std::int64_t>> streams_;
  std::int64_t seed_ = 0, stream_ = 0, position_ = 0;
  std::optional<std::int64_t> ignored_;
};

template <class Run>
void on_type(const Call& call, const Given& first, const Run& run) {
  switch (first.type) {
    case ENTROPIC_FLOAT32:
      return run(std::type_identity<float>{});
    case ENTROPIC_FLOAT64:
      return run(std::type_identity<double>{});
    case ENTROPIC_FLOAT16:
      return run(std::type_identity<float16>{});
    case ENTROPIC_BFLOAT16:
      return run(std::type_identity<bfloat16>{});
    default:
      fail("{}: {} must be float16, bfloat16, float32 or float64", call.where(), first.name);
  }
}

// run(type, blocks, first row) with the rows of these arrays, which are all of the first's type; blocks without data stand for
// those that were left out.
template <std::size_t N, class Run>
void on_rows(const Call& call, const ArrayRole (&roles)[N], const Run& run, bool one_per_row = false,
             bool one_for_all = false) {
  const Given& first = call[roles[0].name];
  std::vector<RowArgument> arguments;
  for (std::size_t k = 0; k < N; ++k) {
    const Given* const given = call.find(roles[k].name);
    RowArgument argument = {.name = roles[k].name, .array = {}, .output = roles[k].output, .absent = given == nullptr};
    if (given != nullptr) {
      if (given->type != first.type) fail("{}: {} must be of the type of {}", call.where(), given->name, first.name);
      argument.array = given->strided();
      argument.one_per_row = one_per_row && roles[k].name != "x" && roles[k].name != "dx";
      argument.one_for_all = one_for_all && roles[k].name == "q";
    }
    arguments.push_back(argument);
  }
  const StridedRows rows(call.where(), arguments, 1, RowOrder::by_index);
  rows.check_apart();
  on_type(call, first, [&]<class T>(std::type_identity<T> type) {
    rows.for_blocks([&](const RowBlock* blocks, std::size_t begin) { run(type, blocks, begin); });
  });
}

// Checks the parameters of all rows before any is written, where rows may be copied in blocks.
void check_rows(const Map& map, std::size_t rows, std::span<const PerRow> per_row) {
  apply<float>(map, MatrixView<const float>(nullptr, rows, 0), MatrixView<float>(nullptr, rows, 0), per_row);
}
void check_rows(const Logarithm& op, std::size_t rows, std::span<const PerRow> per_row) {
  LogSoftmax log;
  std::visit([&](const auto& one) { log.temperature = one.temperature; }, op);
  log_softmax<float>(log, MatrixView<const float>(nullptr, rows, 0), MatrixView<float>(nullptr, rows, 0), per_row);
}

template <class T>
void forward(const Map& map, MatrixView<const T> x, MatrixView<T> y, std::span<const PerRow> per_row) {
  apply<T>(map, x, y, per_row);
}
template <class T>
void forward(const Logarithm& op, MatrixView<const T> x, MatrixView<T> y, std::span<const PerRow> per_row) {
  if (const auto* const log = std::get_if<LogSoftmax>(&op)) return log_softmax<T>(*log, x, y, per_row);
  logsumexp<T>(std::get<LogSumExp>(op), x, y, per_row);
}
template <class T>
void backward(const Map& map, const RowBlock* b, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  apply_vjp<T>(map, b[0].matrix<const T>(), b[1].matrix<const T>(), b[2].matrix<const T>(), b[3].matrix<T>(), per_row,
               gradients);
}
template <class T>
void backward(const Logarithm& op, const RowBlock* b, std::span<const PerRow> per_row,
              std::span<const ParamGradient> gradients) {
  const auto x = b[0].matrix<const T>(), y = b[1].matrix<const T>(), g = b[2].matrix<const T>();
  if (const auto* const log = std::get_if<LogSoftmax>(&op)) {
    return log_softmax_vjp<T>(*log, x, y, g, b[3].matrix<T>(), per_row, gradients);
  }
  logsumexp_vjp<T>(std::get<LogSumExp>(op), x, y, g, b[3].matrix<T>(), per_row, gradients);
}

template <class Family>
void run_map(Call& call, bool vjp) {
  const Family op = make<Family>(call.info(), call.values());
  const bool reduces = std::is_same_v<Family, Logarithm> && call.info().name == LogSumExp::kDescription.name;
  const std::size_t all = call["x"].rows();
  check_rows(op, all, call.per_row(0, all));
  if (vjp) {
    on_rows(
        call, {{"x"}, {"y"}, {"grad"}, {"dx", true}},
        [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t first) {
          backward<T>(op, blocks, call.per_row(first, blocks[0].rows), call.gradients(first, blocks[0].rows));
        },
        reduces);
    return call.store_gradients();
  }
  on_rows(
      call, {{"x"}, {"y", true}},
      [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t first) {
        forward<T>(op, blocks[0].matrix<const T>(), blocks[1].matrix<T>(), call.per_row(first, blocks[0].rows));
      },
      reduces);
}

void run_measure(Call& call) {
  const Measure op = make<Measure>(call.info(), call.values());
  Column<double> value(call.where(), call["value"], call["p"].rows());
  on_rows(call, {{"p"}, {"dp", true, true}}, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    measure<T>(op, b[0].matrix<const T>(), value.part(first, b[0].rows), b[1].matrix<T>(), call.per_row(first, b[0].rows),
               call.gradients(first, b[0].rows));
  });
  value.store();
  call.store_gradients();
}

void run_divergence(Call& call) {
  const Divergence op = make<Divergence>(call.info(), call.values());
  Column<double> value(call.where(), call["value"], call["p"].rows());
  on_rows(
      call, {{"p"}, {"q"}, {"dp", true, true}, {"dq", true, true}},
      [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
        measure<T>(op, b[0].matrix<const T>(), b[1].matrix<const T>(), value.part(first, b[0].rows), b[2].matrix<T>(),
                   b[3].matrix<T>());
      },
      false, true);
  value.store();
}

void run_entry(Call& call) {
  const EntryMeasure op = make<EntryMeasure>(call.info(), call.values());
  on_rows(call, {{"p"}, {"value", true}, {"dp", true, true}},
          [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t) {
            measure<T>(op, b[0].matrix<const T>(), b[1].matrix<T>(), b[2].matrix<T>());
          });
}

void run_table(Call& call) {
  const TableMeasure op = make<TableMeasure>(call.info(), call.values());
  Column<double> value(call.where(), call["value"], 1);
  const Given& pxy = call["pxy"];
  const Given* const dp = call.find("dp");
  on_type(call, pxy, [&]<class T>(std::type_identity<T>) {
    const auto view = [&]<class U>(const Given* given, std::type_identity<U>) -> MatrixView<U> {
      if (given == nullptr) return {};
      if (given->type != pxy.type) fail("{}: {} must be of the type of pxy", call.where(), given->name);
      constexpr auto kItem = static_cast<std::ptrdiff_t>(sizeof(U));
      if (given->strides[1] != kItem || given->strides[0] < 0) {
        fail("{}: {} must have a col_stride of 1 and a row_stride that is not negative", call.where(), given->name);
      }
      return {reinterpret_cast<U*>(given->data), given->rows(), given->cols(),
              static_cast<std::size_t>(given->strides[0] / kItem)};
    };
    value.all()[0] = measure<T>(op, view(&pxy, std::type_identity<const T>{}), view(dp, std::type_identity<T>{}));
  });
  value.store();
}

void run_loss(Call& call) {
  const Loss op = make<Loss>(call.info(), call.values());
  const std::size_t rows = call["x"].rows();
  Column<double> value(call.where(), call["value"], rows);
  const Given& target = call["target"];
  if (target.type == ENTROPIC_INT32 || target.type == ENTROPIC_INT64) {
    Column<std::int64_t> classes(call.where(), target, rows);
    classes.load();
    on_rows(call, {{"x"}, {"dx", true, true}}, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
      const std::size_t count = b[0].rows;
      loss<T>(op, b[0].matrix<const T>(), std::span<const std::int64_t>(classes.part(first, count)), value.part(first, count),
              b[1].matrix<T>(), call.per_row(first, count), call.gradients(first, count), call.ignored());
    });
  } else {
    on_rows(call, {{"x"}, {"target"}, {"dx", true, true}},
            [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
              const std::size_t count = b[0].rows;
              loss<T>(op, b[0].matrix<const T>(), b[1].matrix<const T>(), value.part(first, count), b[2].matrix<T>(),
                      call.per_row(first, count), call.gradients(first, count));
            });
  }
  value.store();
  call.store_gradients();
}

// The same for functions that have no rows of 16 bits.
template <std::size_t N, class Run>
void on_wide_rows(const Call& call, const ArrayRole (&roles)[N], const Run& run) {
  const Given& first = call[roles[0].name];
  if (first.type == ENTROPIC_FLOAT16 || first.type == ENTROPIC_BFLOAT16) {
    fail("{}: {} must be float32 or float64", call.where(), first.name);
  }
  on_rows(call, roles, [&]<class T>(std::type_identity<T> type, const RowBlock* blocks, std::size_t begin) {
    if constexpr (!kIsHalf<T>) run(type, blocks, begin);
  });
}

void run_control(Call& call) {
  const EntropyControl op = make<EntropyControl>(call.info(), call.values());
  if (const auto* const power = std::get_if<PowerTransform>(&op)) {
    return on_wide_rows(call, {{"p"}, {"q", true}}, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
      power_transform<T>(*power, b[0].matrix<const T>(), b[1].matrix<T>(), call.per_row(first, b[0].rows));
    });
  }
  const std::size_t rows = call["x"].rows();
  if (const auto* const estimate = std::get_if<MeanFieldEntropy>(&op)) {
    Column<double> value(call.where(), call["value"], rows);
    on_wide_rows(call, {{"x"}}, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
      mean_field_entropy<T>(*estimate, b[0].matrix<const T>(), value.part(first, b[0].rows));
    });
    return value.store();
  }
  Column<double> gamma(call.where(), call["gamma"], rows), reached(call.where(), call["reached"], rows);
  Column<std::int64_t> status(call.where(), call["status"], rows);
  on_wide_rows(call, {{"x"}}, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    const std::size_t count = b[0].rows;
    std::vector<GammaStatus> codes(count);
    gamma_for_entropy<T>(std::get<GammaForEntropy>(op), b[0].matrix<const T>(), gamma.part(first, count),
                         reached.part(first, count), codes, call.per_row(first, count));
    for (std::size_t r = 0; r < count; ++r) status.part(first, count)[r] = static_cast<std::int64_t>(codes[r]);
  });
  gamma.store(), reached.store(), status.store();
}

void run_sampling(Call& call) {
  const Sampling op = make<Sampling>(call.info(), call.values());
  std::vector<std::uint64_t> streams;
  if (const auto* const relaxed = std::get_if<GumbelSoftmax>(&op)) {
    return on_rows(call, {{"x"}, {"y", true}}, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
      gumbel_softmax<T>(*relaxed, b[0].matrix<const T>(), b[1].matrix<T>(), call.noise(first, b[0].rows, streams));
    });
  }
  const Given& indices = call["indices"];
  if ((indices.type != ENTROPIC_INT32 && indices.type != ENTROPIC_INT64) || indices.rows() != call["x"].rows()) {
    fail("sample: indices must be integers of 32 or 64 bits, with as many rows as x, got {} and {}", shape_text(indices.shape),
         shape_text(call["x"].shape));
  }
  std::vector<std::int64_t> drawn(indices.rows() * indices.cols());
  on_rows(call, {{"x"}}, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    sample<T>(std::get<Sample>(op), b[0].matrix<const T>(),
              MatrixView(drawn.data() + first * indices.cols(), b[0].rows, indices.cols()),
              call.noise(first, b[0].rows, streams));
  });
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    char* const to = indices.at(i / indices.cols(), i % indices.cols());
    const auto small = static_cast<std::int32_t>(drawn[i]);
    std::memcpy(to, indices.type == ENTROPIC_INT32 ? static_cast<const void*>(&small) : &drawn[i], size_of(indices.type));
  }
}

struct Runner {
  const FamilyInfo& family;
  void (*run)(Call& call, bool vjp);
};

std::span<const Runner> runners() {
  static const Runner kAll[] = {
      {family_info<Map>(), run_map<Map>},
      {family_info<Logarithm>(), run_map<Logarithm>},
      {family_info<EntropyControl>(), [](Call& call, bool) { run_control(call); }},
      {family_info<Measure>(), [](Call& call, bool) { run_measure(call); }},
      {family_info<Divergence>(), [](Call& call, bool) { run_divergence(call); }},
      {family_info<TableMeasure>(), [](Call& call, bool) { run_table(call); }},
      {family_info<EntryMeasure>(), [](Call& call, bool) { run_entry(call); }},
      {family_info<Loss>(), [](Call& call, bool) { run_loss(call); }},
      {family_info<Sampling>(), [](Call& call, bool) { run_sampling(call); }},
  };
  return kAll;
}

std::string& last_error() {
  static thread_local std::string text;
  return text;
}

// No exception leaves, not even of a message for which there is no memory.
int failed(int code, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) {
    last_error().clear();
  }
  return code;
}

template <class Run>
int guarded(const Run& run) noexcept {
  try {
    run();
    return ENTROPIC_OK;
  } catch (const std::invalid_argument& error) {
    return failed(ENTROPIC_INVALID_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return failed(ENTROPIC_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(ENTROPIC_INTERNAL_ERROR, error.what());
  } catch (...) {
    return failed(ENTROPIC_INTERNAL_ERROR, "unknown error");
  }
}

int run(const char* operation, const char* parameters, const entropic_array* arrays, std::size_t count, bool vjp) {
  return guarded([&] {
    if (operation == nullptr) fail("operation must not be null");
    for (const Runner& runner : runners()) {
      const OperationInfo* const info = find_operation(runner.family, operation);
      if (info == nullptr || roles_of(*info, false).empty() || (vjp && !has_vjp(*info))) continue;
      Call call(*info, parameters, arrays, count, vjp);
      return runner.run(call, vjp);
    }
    fail("operation must be a name that entropic_registry() has{}, got '{}'", vjp ? " with a vjp" : "", operation);
  });
}

// JSON, written.
std::string quoted(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    all += c;
  }
  return all + '"';
}
std::string_view boolean(bool value) { return value ? "true" : "false"; }
std::string json(const ParamValue& value) {
  if (std::holds_alternative<std::monostate>(value)) return "null";
  if (const auto* const number = std::get_if<double>(&value))
    return std::isfinite(*number) ? fmt::format("{}", *number) : "null";
  if (std::holds_alternative<std::string>(value) || std::holds_alternative<Map>(value)) return quoted(to_text(value));
  return to_text(value);
}
template <class Range, class Write>
std::string list(const Range& range, const Write& write) {
  std::string all;
  for (const auto& one : range) all += (all.empty() ? "" : ", ") + write(one);
  return "[" + all + "]";
}
std::string_view kind_name(ParamKind kind) {
  static constexpr std::string_view kNames[] = {"number", "optional_number", "integer", "flag", "choice", "map"};
  return kNames[static_cast<std::size_t>(kind)];
}
std::string json(const ParamInfo& param) {
  return fmt::format(
      R"({{"name": {}, "meaning": {}, "kind": "{}", "required": {}, "per_row": {}, "allowed": {}, "default": {}, "choices": {}}})",
      quoted(param.name), quoted(param.meaning), kind_name(param.kind), boolean(param.required), boolean(param.per_row),
      quoted(param.allowed), json(param.initial), list(param.choices, quoted));
}
std::string json(const std::vector<ArrayRole>& roles) {
  return list(roles, [](const ArrayRole& role) {
    return fmt::format(R"({{"name": {}, "output": {}, "optional": {}}})", quoted(role.name), boolean(role.output),
                       boolean(role.optional));
  });
}
std::string json(const OperationInfo& info) {
  return fmt::format(R"({{"family": {}, "name": {}, "summary": {}, "formula": {}, "arrays": {}, "vjp": {}, "parameters": {}}})",
                     quoted(info.family), quoted(info.name), quoted(info.summary), quoted(info.formula),
                     json(roles_of(info, false)), has_vjp(info) ? json(roles_of(info, true)) : "null",
                     list(info.params, [](const ParamInfo& one) { return json(one); }));
}

std::string registry() {
  std::vector<std::string> all;
  for (const Runner& runner : runners()) {
    for (const OperationInfo& info : runner.family.operations) {
      if (!roles_of(info, false).empty()) all.push_back(json(info));
    }
  }
  return fmt::format("[{}]", fmt::join(all, ",\n"));
}

}  // namespace
}  // namespace entropic::inline ENTROPIC_ABI

extern "C" {

int entropic_apply(const char* operation, const char* parameters, const entropic_array* arrays, size_t count) {
  return entropic::run(operation, parameters, arrays, count, false);
}

int entropic_apply_vjp(const char* operation, const char* parameters, const entropic_array* arrays, size_t count) {
  return entropic::run(operation, parameters, arrays, count, true);
}

const char* entropic_last_error(void) { return entropic::last_error().c_str(); }

const char* entropic_registry(void) {
  static const std::string all = entropic::registry();
  return all.c_str();
}

const char* entropic_version(void) { return ENTROPIC_VERSION; }

int entropic_interface_version(void) { return ENTROPIC_C_VERSION; }

}  // extern "C"
