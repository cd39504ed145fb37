// The C interface of entropic_cuda: arrays by name and parameters as JSON, on top of cuda.h.

#include "entropic/cuda_c.h"

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "entropic/cuda.h"
#include "entropic/operation.h"
#include "src/c/json.h"
#include "src/check.h"
#include "src/per_thread.h"

namespace entropic::inline ENTROPIC_ABI {
namespace cuda {
namespace {

// The arguments of one call, by name.
class Arguments {
 public:
  Arguments(std::string_view operation, const char* parameters, const entropic_array* arrays, std::size_t count)
      : operation_(operation), used_(count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (arrays[i].struct_size != sizeof(entropic_array)) {
        fail("{}: struct_size must be {}, got {}", operation_, sizeof(entropic_array), arrays[i].struct_size);
      }
      if (arrays[i].name == nullptr) fail("{}: array {} has no name", operation_, i);
      if (arrays[i].col_stride > 1 || arrays[i].col_stride < 0 || arrays[i].row_stride < 0) {
        fail("{}: col_stride of {} must be 1 and row_stride at least 0 on a device", operation_, arrays[i].name);
      }
    }
    arrays_ = {arrays, count};
    if (parameters != nullptr) given_ = parse_parameters(operation_, parameters, &steps_);
  }

  std::string_view operation() const { return operation_; }

  const entropic_array* find(std::string_view name) {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (name != arrays_[i].name) continue;
      used_[i] = true;
      return &arrays_[i];
    }
    return nullptr;
  }
  const entropic_array& at(std::string_view name) {
    const entropic_array* const found = find(name);
    if (found == nullptr) fail("{}: the array '{}' is missing", operation_, name);
    return *found;
  }

  // Rows of T; none if the array was left out. Their type is that of the call, if it is not given.
  template <class T>
  MatrixView<T> matrix(std::string_view name, bool required = true, std::int32_t type = 0) {
    const entropic_array* const found = required ? &at(name) : find(name);
    if (found == nullptr) return {};
    check_type(*found, type == 0 ? type_ : type);
    const std::size_t stride = found->row_stride == 0 ? found->cols : static_cast<std::size_t>(found->row_stride);
    return {static_cast<T*>(found->data), found->rows, found->cols, stride};
  }
  template <class Number>
  std::span<Number> column(const entropic_array& array, std::int32_t type) {
    check_type(array, type);
    if (array.cols != 1 || array.row_stride > 1) fail("{}: {} must be one number for each row", operation_, array.name);
    return {static_cast<Number*>(array.data), array.rows};
  }
  std::span<double> value() { return column<double>(at("value"), ENTROPIC_FLOAT64); }

  // The operation of this family with these parameters. A parameter with a value for each row takes any number here.
  template <class Family>
  Family make(const OperationInfo& info) {
    const std::vector<ParamValue> typical = typical_values(info);
    for (std::size_t i = 0; i < info.params.size(); ++i)
      add_per_row(info.params[i].name, info.params[i].per_row, typical[i], true);
    return entropic::make<Family>(info.name, given_);
  }
  // Adds the parameters of the loss's map, if it has one.
  void add_of_map(const Map& map) {
    const OperationInfo& info = *find_operation(family_info<Map>(), description_of(map).name);
    for (const ParamInfo& param : info.params) add_per_row(param.name, param.per_row, {}, false);
  }
  std::span<const PerRow> per_row() const { return per_row_; }
  std::span<const ParamGradient> gradients() const { return gradients_; }

  // A parameter that does not belong to an operation of the registry.
  std::optional<std::int64_t> whole(std::string_view name) {
    const std::optional<ParamValue> value = taken(name);
    if (!value) return {};
    if (const auto* const number = std::get_if<std::int64_t>(&*value)) return *number;
    fail("{}: {} must be an integer", operation_, name);
  }
  std::optional<double> number(std::string_view name) {
    const std::optional<ParamValue> value = taken(name);
    if (!value) return {};
    if (const auto* const number = std::get_if<double>(&*value)) return *number;
    if (const auto* const number = std::get_if<std::int64_t>(&*value)) return static_cast<double>(*number);
    fail("{}: {} must be a number", operation_, name);
  }
  template <class Op>
  void add_per_row_of() {
    for_each_param<Op>([&](const auto& param) {
      if constexpr (requires { Op{}.*param.member + 1.0; }) add_per_row(param.name, param.per_row, {}, false);
    });
    check_no_more_parameters();
  }
  void check_no_more_parameters() const {
    if (!given_.empty()) fail("{}: there is no parameter '{}'", operation_, given_[0].name);
  }
  DeviceNoise noise() {
    DeviceNoise noise;
    const auto number = [&](std::string_view name) { return static_cast<std::uint64_t>(whole(name).value_or(0)); };
    noise.seed = number("seed"), noise.stream = number("stream"), noise.position = number("position");
    const auto numbers = [&](std::string_view name) -> std::span<const std::uint64_t> {
      const entropic_array* const found = find(name);
      if (found == nullptr) return {};
      return column<const std::uint64_t>(*found, ENTROPIC_INT64);
    };
    noise.streams = numbers("stream");
    const std::span<const std::uint64_t> seed = numbers("seed"), positions = numbers("position");
    if (!seed.empty()) noise.seed_at = seed.data();
    if (positions.size() == 1) {
      noise.position_at = positions.data();
    } else {
      noise.positions = positions;
    }
    return noise;
  }
  std::span<const Step> steps() const {
    if (!steps_) fail("{}: steps is required", operation_);
    return *steps_;
  }

  void set_type(std::int32_t type) { type_ = type; }
  std::int32_t type() const { return type_; }
  void check_all_used() const {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (!used_[i]) fail("{}: there is no array '{}'", operation_, arrays_[i].name);
    }
  }

 private:
  void check_type(const entropic_array& array, std::int32_t type) const {
    if (array.type != type) fail("{}: type of {} must be {}, got {}", operation_, array.name, type, array.type);
  }
  // Removes a parameter from those given.
  std::optional<ParamValue> taken(std::string_view name) {
    for (std::size_t i = 0; i < given_.size(); ++i) {
      if (given_[i].name != name) continue;
      ParamValue value = std::move(given_[i].value);
      given_.erase(given_.begin() + static_cast<std::ptrdiff_t>(i));
      return value;
    }
    return {};
  }
  void add_per_row(std::string_view name, bool per_row, const ParamValue& typical, bool beside) {
    if (!per_row) return;
    const entropic_array* const found = find(name);
    if (found != nullptr) {
      per_row_.push_back({name, column<const double>(*found, ENTROPIC_FLOAT64)});
      if (beside) given_.push_back({name, typical});
    }
    names_.push_back("d_" + std::string(name));
    const entropic_array* const slope = find(names_.back());
    if (slope != nullptr) gradients_.push_back({name, column<double>(*slope, ENTROPIC_FLOAT64)});
  }

  std::string operation_;
  std::span<const entropic_array> arrays_;
  std::vector<bool> used_;
  std::vector<Argument> given_;
  std::optional<std::vector<Step>> steps_;
  std::vector<PerRow> per_row_;
  std::vector<ParamGradient> gradients_;
  std::vector<std::string> names_;
  std::int32_t type_ = 0;
};

template <class Run>
void on_type(std::string_view operation, std::int32_t type, const Run& run) {
  switch (type) {
    case ENTROPIC_FLOAT32:
      return run(std::type_identity<float>());
    case ENTROPIC_FLOAT64:
      return run(std::type_identity<double>());
    case ENTROPIC_FLOAT16:
      return run(std::type_identity<float16>());
    case ENTROPIC_BFLOAT16:
      return run(std::type_identity<bfloat16>());
    default:
      fail("{}: type must be ENTROPIC_FLOAT32 to ENTROPIC_BFLOAT16, 1 to 4, got {}", operation, type);
  }
}

// Calls call(visitor's argument, info) for the operation `name`; returns false if no family on devices has it.
template <class Family>
const OperationInfo* info_of(std::string_view name) {
  return find_operation(family_info<Family>(), name);
}

bool is_of_calibration(std::string_view name) {
  return name == "calibration_facts" || name == "temperature_slopes" || name == "target_entropy_losses";
}
bool is_fit(std::string_view name) {
  return name == "fit_temperature" || name == "fit_target_entropy" || name == "match_entropy";
}

template <class T>
void run_token_statistics(Arguments& given, bool vjp, std::span<std::byte> memory, Stream stream) {
  using W = StatisticsOf<T>;
  const std::int32_t type = kIsHalf<T> ? ENTROPIC_FLOAT32 : given.type();
  TokenStatistics options;
  options.temperature = given.number("temperature").value_or(1);
  const std::int64_t wanted = given.whole("top").value_or(0);
  given.add_per_row_of<TokenStatistics>();
  const auto x = given.matrix<const T>("x");
  const auto target = given.column<const std::int64_t>(given.at("target"), ENTROPIC_INT64);
  if (vjp) {
    const auto statistics = given.matrix<const W>("statistics", true, type), g = given.matrix<const W>("grad", true, type);
    return token_statistics_vjp<T>(options, x, target, statistics, g, given.matrix<T>("dx"), memory, stream, given.per_row(),
                                   given.gradients());
  }
  const auto top = given.matrix<std::int64_t>("top", false, ENTROPIC_INT64);
  if (static_cast<std::int64_t>(top.cols) != wanted) {
    fail("{}: top must have as many columns as the parameter top says, {}, got {}", given.operation(), wanted, top.cols);
  }
  token_statistics<T>(options, x, target, given.matrix<W>("statistics", true, type), top, memory, stream, given.per_row());
}

template <class T>
void run_of_calibration(Arguments& given, std::span<std::byte> memory, Stream stream) {
  const std::string_view name = given.operation();
  const auto x = given.matrix<const T>("x");
  const auto labels = given.column<const std::int64_t>(given.at("labels"), ENTROPIC_INT64);
  const auto found = given.matrix<double>("found", true, ENTROPIC_FLOAT64);
  const std::optional<double> beta = given.number("beta"), entropy = given.number("entropy");
  given.check_no_more_parameters();
  if (name == "calibration_facts") return calibration_facts<T>(x, labels, found, memory, stream);
  const bool slopes = name == "temperature_slopes";
  const std::optional<double> at = slopes ? beta : entropy;
  if (!at) fail("{}: {} is required", name, slopes ? "beta" : "entropy");
  if (slopes) return temperature_slopes<T>(*at, x, labels, found, memory, stream);
  target_entropy_losses<T>(*at, x, labels, found, memory, stream);
}

// value and clamped are in the host's memory.
template <class T>
void run_fit(Arguments& given, std::span<std::byte> memory, Stream stream) {
  const std::string_view name = given.operation();
  const auto one_of = [&]<class Number>(const entropic_array* array, std::int32_t type, Number& none) -> Number& {
    if (array == nullptr) return none;
    const std::span<Number> numbers = given.column<Number>(*array, type);
    if (numbers.size() != 1) fail("{}: {} must be one number, got {}", name, array->name, numbers.size());
    return numbers[0];
  };
  const entropic_array* const weights = given.find("sample_weight");
  std::span<const double> weight;
  if (weights != nullptr) weight = given.column<const double>(*weights, ENTROPIC_FLOAT64);
  double no_value = 0;
  double& value = one_of(&given.at("value"), ENTROPIC_FLOAT64, no_value);
  if (name == "match_entropy") {
    given.check_no_more_parameters();
    value = match_entropy<T>(given.matrix<const T>("x_reference"), memory, stream, weight);
    return;
  }
  const auto x = given.matrix<const T>("x");
  const auto labels = given.column<const std::int64_t>(given.at("labels"), ENTROPIC_INT64);
  const std::optional<std::int64_t> ignored = given.whole("ignore_index");
  given.check_no_more_parameters();
  if (name == "fit_target_entropy") {
    value = fit_target_entropy<T>(x, labels, memory, stream, weight, ignored);
    return;
  }
  std::int32_t no_end = 0;
  std::int32_t& clamped = one_of(given.find("clamped"), ENTROPIC_INT32, no_end);
  const FittedTemperature fitted = fit_temperature<T>(x, labels, memory, stream, weight, ignored);
  value = fitted.temperature, clamped = fitted.clamped ? 1 : 0;
}

template <class T>
void run_typed(Arguments& given, bool vjp, std::span<std::byte> memory, Stream stream) {
  const std::string_view name = given.operation();
  if (name == TokenStatistics::kDescription.name) return run_token_statistics<T>(given, vjp, memory, stream);
  if (const OperationInfo* const info = info_of<Map>(name)) {
    const Map map = given.make<Map>(*info);
    if (vjp) {
      const auto x = given.matrix<const T>("x"), y = given.matrix<const T>("y"), g = given.matrix<const T>("grad");
      return apply_vjp<T>(map, x, y, g, given.matrix<T>("dx"), memory, stream, given.per_row(), given.gradients());
    }
    return apply<T>(map, given.matrix<const T>("x"), given.matrix<T>("y"), memory, stream, given.per_row());
  }
  if (const OperationInfo* const info = info_of<Logarithm>(name)) {
    const Logarithm log = given.make<Logarithm>(*info);
    const auto x = given.matrix<const T>("x");
    if (const auto* const op = std::get_if<LogSoftmax>(&log)) {
      if (!vjp) return log_softmax<T>(*op, x, given.matrix<T>("y"), memory, stream, given.per_row());
      const auto y = given.matrix<const T>("y"), g = given.matrix<const T>("grad");
      return log_softmax_vjp<T>(*op, x, y, g, given.matrix<T>("dx"), memory, stream, given.per_row(), given.gradients());
    }
    const LogSumExp& op = std::get<LogSumExp>(log);
    if (!vjp) return logsumexp<T>(op, x, given.matrix<T>("y"), memory, stream, given.per_row());
    given.find("y");
    const auto g = given.matrix<const T>("grad");
    return logsumexp_vjp<T>(op, x, g, given.matrix<T>("dx"), memory, stream, given.per_row(), given.gradients());
  }
  if (vjp) fail("operation must have its own gradient, got {}", name);
  if (const OperationInfo* const info = info_of<Loss>(name)) {
    const std::optional<std::int64_t> ignored = given.whole("ignore_index");
    const Loss op = given.make<Loss>(*info);
    std::visit(
        [&](const auto& one) {
          if constexpr (requires { one.map; }) given.add_of_map(one.map);
        },
        op);
    const auto x = given.matrix<const T>("x");
    const auto dx = given.matrix<T>("dx", false);
    const entropic_array& target = given.at("target");
    if (target.type == ENTROPIC_INT64) {
      const auto classes = given.column<const std::int64_t>(target, ENTROPIC_INT64);
      return loss<T>(op, x, classes, given.value(), dx, memory, stream, given.per_row(), given.gradients(), ignored);
    }
    return loss<T>(op, x, given.matrix<const T>("target"), given.value(), dx, memory, stream, given.per_row(),
                   given.gradients());
  }
  if (const OperationInfo* const info = info_of<Measure>(name)) {
    const Measure op = given.make<Measure>(*info);
    return measure<T>(op, given.matrix<const T>("p"), given.value(), given.matrix<T>("dp", false), memory, stream,
                      given.per_row(), given.gradients());
  }
  if (const OperationInfo* const info = info_of<Divergence>(name)) {
    const Divergence op = given.make<Divergence>(*info);
    return measure<T>(op, given.matrix<const T>("p"), given.matrix<const T>("q"), given.value(), given.matrix<T>("dp", false),
                      given.matrix<T>("dq", false), memory, stream);
  }
  if (name == GammaForEntropy::kDescription.name) {
    if constexpr (kIsHalf<T>) {
      fail("{}: type must be float32 or float64", name);
    } else {
      const auto op = std::get<GammaForEntropy>(given.make<EntropyControl>(*info_of<EntropyControl>(name)));
      const auto status = given.column<std::int32_t>(given.at("status"), ENTROPIC_INT32);
      return gamma_for_entropy<T>(op, given.matrix<const T>("x"), given.column<double>(given.at("gamma"), ENTROPIC_FLOAT64),
                                  given.column<double>(given.at("reached"), ENTROPIC_FLOAT64), status, memory, stream,
                                  given.per_row());
    }
  }
  if (is_of_calibration(name)) return run_of_calibration<T>(given, memory, stream);
  if (is_fit(name)) return run_fit<T>(given, memory, stream);
  const DeviceNoise noise = given.noise();
  if (name == "sampler_probs") {
    return probs<T>(given.steps(), given.matrix<const T>("x"), given.matrix<T>("y"), memory, stream);
  }
  if (name == "gumbel_noise") {
    if constexpr (kIsHalf<T>) {
      fail("gumbel_noise: type must be float32 or float64");
    } else {
      return gumbel_noise<T>(given.matrix<T>("y"), noise, memory, stream);
    }
  }
  if (name == "gumbel_softmax") {
    const GumbelSoftmax op = std::get<GumbelSoftmax>(given.make<Sampling>(*info_of<Sampling>(name)));
    return gumbel_softmax<T>(op, given.matrix<const T>("x"), given.matrix<T>("y"), noise, memory, stream);
  }
  const bool chain = name == "sampler_sample";
  if (!chain && name != "sample") fail("operation must be one of those in entropic/cuda_c.h, got '{}'", name);
  const entropic_array& to = given.at("indices");
  if (to.type != ENTROPIC_INT64) fail("{}: type of indices must be int64", name);
  const MatrixView<std::int64_t> indices(static_cast<std::int64_t*>(to.data), to.rows, to.cols,
                                         to.row_stride == 0 ? to.cols : static_cast<std::size_t>(to.row_stride));
  const auto x = given.matrix<const T>("x");
  if (chain) return sample<T>(given.steps(), x, indices, noise, memory, stream);
  sample<T>(std::get<Sample>(given.make<Sampling>(*info_of<Sampling>(name))), x, indices, noise, memory, stream);
}

std::string& last_error() {
  struct LastError {
    std::string text;
  };
  return per_thread<LastError>().text;
}

template <class Run>
int guarded(const Run& run) noexcept {
  int code = ENTROPIC_INTERNAL_ERROR;
  try {
    run();
    return ENTROPIC_OK;
  } catch (const std::invalid_argument& error) {
    code = ENTROPIC_INVALID_ARGUMENT;
    last_error().assign(error.what());
  } catch (const std::bad_alloc&) {
    code = ENTROPIC_OUT_OF_MEMORY;
    last_error().assign("memory");
  } catch (const std::exception& error) {
    last_error().assign(error.what());
  }
  return code;
}

// The operation of this family with typical parameters, which do not change how much memory it needs.
template <class Family>
std::optional<Family> typical(std::string_view name) {
  const OperationInfo* const info = info_of<Family>(name);
  if (info == nullptr) return {};
  return make<Family>(*info, typical_values(*info));
}

template <class T>
std::size_t memory_of(std::string_view name, const char* parameters, std::size_t rows, std::size_t cols) {
  if (const auto map = typical<Map>(name)) return memory_for<T>(*map, rows, cols);
  if (const auto measure = typical<Measure>(name)) return memory_for<T>(*measure, rows, cols);
  if (const auto divergence = typical<Divergence>(name)) return memory_for<T>(*divergence, rows, cols);
  if (const auto logarithm = typical<Logarithm>(name)) {
    return std::visit([&](const auto& op) { return memory_for<T>(op, rows, cols); }, *logarithm);
  }
  if (name == GammaForEntropy::kDescription.name) return memory_for<T>(GammaForEntropy{}, rows, cols);
  if (name == Sample::kDescription.name) return memory_for<T>(Sample{}, rows, cols);
  if (name == GumbelSoftmax::kDescription.name || name == "gumbel_noise") return memory_for<T>(GumbelSoftmax{}, rows, cols);
  if (is_of_calibration(name) || is_fit(name)) return memory_for_calibration<T>(rows, cols);
  std::optional<std::vector<Step>> steps;
  const std::vector<Argument> given = parse_parameters(name, parameters, &steps);
  if (name == "sampler_probs" || name == "sampler_sample") {
    if (!steps) fail("{}: steps is required", name);
    return memory_for<T>(*steps, rows, cols);
  }
  if (name == TokenStatistics::kDescription.name) {
    std::int64_t top = 0;
    for (const Argument& one : given) {
      if (const auto* const number = std::get_if<std::int64_t>(&one.value); number != nullptr && one.name == "top")
        top = *number;
    }
    return memory_for<T>(TokenStatistics{}, rows, cols, static_cast<std::size_t>(top));
  }
  // Losses need memory for the map that they start from, with any parameters.
  std::optional<Loss> loss = typical<Loss>(name);
  if (!loss) fail("operation must be one of those in entropic/cuda_c.h, got '{}'", name);
  for (const Argument& one : given) {
    const Map* const map = std::get_if<Map>(&one.value);
    std::visit(
        [&](auto& op) {
          if constexpr (requires { op.map; }) {
            if (map != nullptr) op.map = *map;
          }
        },
        *loss);
  }
  return memory_for<T>(*loss, rows, cols);
}

int run(const char* operation, const char* parameters, const entropic_array* arrays, std::size_t count, bool vjp, void* memory,
        std::size_t memory_size, void* stream) {
  return guarded([&] {
    if (operation == nullptr) fail("operation must not be null");
    if (count == 0 || arrays == nullptr) fail("{}: arrays must not be empty", operation);
    Arguments given(operation, parameters, arrays, count);
    given.set_type(arrays[0].type);
    on_type(operation, arrays[0].type, [&]<class T>(std::type_identity<T>) {
      run_typed<T>(given, vjp, {static_cast<std::byte*>(memory), memory_size}, {stream});
    });
    given.check_all_used();
  });
}

}  // namespace
}  // namespace cuda
}  // namespace entropic::inline ENTROPIC_ABI

extern "C" {

size_t entropic_cuda_memory(const char* operation, const char* parameters, size_t rows, size_t cols, int32_t type) {
  using namespace entropic;
  size_t bytes = 0;
  const int failed = cuda::guarded([&] {
    if (operation == nullptr) fail("operation must not be null");
    cuda::on_type(operation, type, [&]<class T>(std::type_identity<T>) {
      bytes = cuda::memory_of<T>(operation, parameters == nullptr ? "{}" : parameters, rows, cols);
    });
  });
  return failed != 0 ? 0 : bytes;
}

int entropic_cuda_run(const char* operation, const char* parameters, const entropic_array* arrays, size_t count, void* memory,
                      size_t memory_size, void* stream) {
  return entropic::cuda::run(operation, parameters, arrays, count, false, memory, memory_size, stream);
}
int entropic_cuda_vjp(const char* operation, const char* parameters, const entropic_array* arrays, size_t count, void* memory,
                      size_t memory_size, void* stream) {
  return entropic::cuda::run(operation, parameters, arrays, count, true, memory, memory_size, stream);
}

const char* entropic_cuda_last_error(void) { return entropic::cuda::last_error().c_str(); }

}  // extern "C"
