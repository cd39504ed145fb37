// The C interface of isentropic_cuda: arrays by name and parameters as JSON, on top of cuda.h.

#include "isentropic/cuda_c.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isentropic/cuda.h"
#include "isentropic/operation.h"
#include "src/c/guard.h"
#include "src/c/json.h"
#include "src/check.h"
#include "src/cuda/arguments.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {
namespace {

template <class Run>
void on_type(std::string_view operation, std::int32_t type, const Run& run) {
  switch (type) {
    case ISENTROPIC_FLOAT32:
      return run(std::type_identity<float>());
    case ISENTROPIC_FLOAT64:
      return run(std::type_identity<double>());
    case ISENTROPIC_FLOAT16:
      return run(std::type_identity<float16>());
    case ISENTROPIC_BFLOAT16:
      return run(std::type_identity<bfloat16>());
    default:
      fail("{}: type must be ISENTROPIC_FLOAT32 to ISENTROPIC_BFLOAT16, 1 to 4, got {}", operation, type);
  }
}

// The operation of Family with this name, or null.
template <class Family>
const OperationInfo* info_of(std::string_view name) {
  return find_operation(family_info<Family>(), name);
}

// The operations that this door has under names of its own; those of the registry have theirs.
constexpr std::string_view kChains[] = {"sampler_probs", "sampler_sample"};
bool is_chain(std::string_view name) { return std::ranges::find(kChains, name) != std::end(kChains); }

template <class T>
void run_token_statistics(Arguments& given, bool vjp, std::span<std::byte> memory, Stream stream) {
  using W = StatisticsOf<T>;
  const std::int32_t type = kIsHalf<T> ? ISENTROPIC_FLOAT32 : given.type();
  TokenStatistics options;
  options.temperature = given.number("temperature").value_or(1);
  const std::int64_t wanted = given.whole("top").value_or(0);
  given.add_per_row_of<TokenStatistics>();
  given.check_no_more_parameters();
  const auto x = given.matrix<const T>("x");
  const auto target = given.column<const std::int64_t>(given.at("target"), ISENTROPIC_INT64);
  if (vjp) {
    const auto statistics = given.matrix<const W>("statistics", true, type), g = given.matrix<const W>("grad", true, type);
    const auto dx = given.matrix<T>("dx");
    given.check_all_used();
    return token_statistics_vjp<T>(options, x, target, statistics, g, dx, memory, stream, given.per_row(), given.gradients());
  }
  const auto top = given.matrix<std::int64_t>("top", false, ISENTROPIC_INT64);
  if (static_cast<std::int64_t>(top.cols) != wanted) {
    fail("{}: top must have as many columns as the parameter top says, {}, got {}", given.operation(), wanted, top.cols);
  }
  const auto statistics = given.matrix<W>("statistics", true, type);
  given.check_all_used();
  token_statistics<T>(options, x, target, statistics, top, memory, stream, given.per_row());
}

// What a search of calibration asks of each row, at a temperature or an entropy.
template <class T>
struct CalibrationCall {
  MatrixView<const T> x;
  std::span<const std::int64_t> labels;
  MatrixView<double> found;
  double at = 0;

  // `parameter` is the name of `at`; none if there is no such number.
  CalibrationCall(Arguments& given, std::string_view parameter) : x(given.matrix<const T>("x")) {
    labels = given.column<const std::int64_t>(given.at("labels"), ISENTROPIC_INT64);
    found = given.matrix<double>("found", true, ISENTROPIC_FLOAT64);
    const std::optional<double> number = parameter.empty() ? 0 : given.number(parameter);
    given.check_no_more_parameters();
    given.check_all_used();
    if (!number) fail("{}: {} is required", given.operation(), parameter);
    at = *number;
  }
};
template <class T>
void run_calibration_facts(Arguments& given, std::span<std::byte> memory, Stream stream) {
  const CalibrationCall<T> call(given, "");
  calibration_facts<T>(call.x, call.labels, call.found, memory, stream);
}
template <class T>
void run_temperature_slopes(Arguments& given, std::span<std::byte> memory, Stream stream) {
  const CalibrationCall<T> call(given, "beta");
  temperature_slopes<T>(call.at, call.x, call.labels, call.found, memory, stream);
}
template <class T>
void run_target_entropy_losses(Arguments& given, std::span<std::byte> memory, Stream stream) {
  const CalibrationCall<T> call(given, "entropy");
  target_entropy_losses<T>(call.at, call.x, call.labels, call.found, memory, stream);
}

// Fits. value and clamped are in the host's memory.
template <class Number>
Number& one_number(Arguments& given, const isentropic_array& array, std::int32_t type) {
  const std::span<Number> numbers = given.column<Number>(array, type);
  if (numbers.size() != 1) fail("{}: {} must be one number, got {}", given.operation(), array.name, numbers.size());
  return numbers[0];
}
inline std::span<const double> weights_of(Arguments& given) {
  const isentropic_array* const weights = given.find("sample_weight");
  return weights == nullptr ? std::span<const double>() : given.column<const double>(*weights, ISENTROPIC_FLOAT64);
}
template <class T>
void run_match_entropy(Arguments& given, std::span<std::byte> memory, Stream stream) {
  const std::span<const double> weights = weights_of(given);
  auto& value = one_number<double>(given, given.at("value"), ISENTROPIC_FLOAT64);
  const auto x = given.matrix<const T>("x_reference");
  given.check_no_more_parameters();
  given.check_all_used();
  value = match_entropy<T>(x, memory, stream, weights);
}
// The fits to labels.
template <class T, class Fit>
void run_fit(Arguments& given, std::int32_t* clamped, const Fit& fit) {
  const std::span<const double> weights = weights_of(given);
  auto& value = one_number<double>(given, given.at("value"), ISENTROPIC_FLOAT64);
  const auto x = given.matrix<const T>("x");
  const auto labels = given.column<const std::int64_t>(given.at("labels"), ISENTROPIC_INT64);
  const std::optional<std::int64_t> ignored = given.whole("ignore_index");
  given.check_no_more_parameters();
  given.check_all_used();
  value = fit(x, labels, weights, ignored, clamped);
}
template <class T>
void run_fit_target_entropy(Arguments& given, std::span<std::byte> memory, Stream stream) {
  run_fit<T>(given, nullptr, [&](auto x, auto labels, auto weights, auto ignored, std::int32_t*) {
    return fit_target_entropy<T>(x, labels, memory, stream, weights, ignored);
  });
}
template <class T>
void run_fit_temperature(Arguments& given, std::span<std::byte> memory, Stream stream) {
  const isentropic_array* const array = given.find("clamped");
  std::int32_t* const held = array == nullptr ? nullptr : &one_number<std::int32_t>(given, *array, ISENTROPIC_INT32);
  run_fit<T>(given, held, [&](auto x, auto labels, auto weights, auto ignored, std::int32_t* clamped) {
    const FittedTemperature fitted = fit_temperature<T>(x, labels, memory, stream, weights, ignored);
    if (clamped != nullptr) *clamped = fitted.clamped ? 1 : 0;
    return fitted.temperature;
  });
}

template <class T>
void run_map(const Map& map, Arguments& given, bool vjp, std::span<std::byte> memory, Stream stream) {
  const auto x = given.matrix<const T>("x");
  if (vjp) {
    const auto y = given.matrix<const T>("y"), g = given.matrix<const T>("grad");
    const auto dx = given.matrix<T>("dx");
    given.check_all_used();
    return apply_vjp<T>(map, x, y, g, dx, memory, stream, given.per_row(), given.gradients());
  }
  const auto y = given.matrix<T>("y");
  given.check_all_used();
  apply<T>(map, x, y, memory, stream, given.per_row());
}

template <class T>
void run_logarithm(const Logarithm& log, Arguments& given, bool vjp, std::span<std::byte> memory, Stream stream) {
  const auto* const log_softmax_op = std::get_if<LogSoftmax>(&log);
  const auto x = given.matrix<const T>("x");
  if (!vjp) {
    const auto y = given.matrix<T>("y");
    given.check_all_used();
    if (log_softmax_op != nullptr) return log_softmax<T>(*log_softmax_op, x, y, memory, stream, given.per_row());
    return logsumexp<T>(std::get<LogSumExp>(log), x, y, memory, stream, given.per_row());
  }
  const auto y = given.matrix<const T>("y", log_softmax_op != nullptr), g = given.matrix<const T>("grad");
  const auto dx = given.matrix<T>("dx");
  given.check_all_used();
  if (log_softmax_op != nullptr) {
    return log_softmax_vjp<T>(*log_softmax_op, x, y, g, dx, memory, stream, given.per_row(), given.gradients());
  }
  logsumexp_vjp<T>(std::get<LogSumExp>(log), x, g, dx, memory, stream, given.per_row(), given.gradients());
}

template <class T>
void run_loss(const OperationInfo& info, Arguments& given, std::span<std::byte> memory, Stream stream) {
  const std::optional<std::int64_t> ignored = given.whole("ignore_index");
  const Loss op = given.make<Loss>(info);
  std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.map; }) given.add_of_map(one.map);
      },
      op);
  const auto x = given.matrix<const T>("x");
  const auto dx = given.matrix<T>("dx", false);
  const std::span<double> value = given.value();
  const isentropic_array& target = given.at("target");
  if (target.type == ISENTROPIC_INT64) {
    const auto classes = given.column<const std::int64_t>(target, ISENTROPIC_INT64);
    given.check_all_used();
    return loss<T>(op, x, classes, value, dx, memory, stream, given.per_row(), given.gradients(), ignored);
  }
  const auto targets = given.matrix<const T>("target");
  given.check_all_used();
  loss<T>(op, x, targets, value, dx, memory, stream, given.per_row(), given.gradients());
}

template <class T>
void run_measure(const Measure& op, Arguments& given, std::span<std::byte> memory, Stream stream) {
  const auto p = given.matrix<const T>("p");
  const std::span<double> value = given.value();
  const auto dp = given.matrix<T>("dp", false);
  given.check_all_used();
  measure<T>(op, p, value, dp, memory, stream, given.per_row(), given.gradients());
}

template <class T>
void run_divergence(const Divergence& op, Arguments& given, std::span<std::byte> memory, Stream stream) {
  const auto p = given.matrix<const T>("p"), q = given.matrix<const T>("q");
  const std::span<double> value = given.value();
  const auto dp = given.matrix<T>("dp", false), dq = given.matrix<T>("dq", false);
  given.check_all_used();
  measure<T>(op, p, q, value, dp, dq, memory, stream);
}

template <class T>
void run_gamma(const GammaForEntropy& op, Arguments& given, std::span<std::byte> memory, Stream stream) {
  const auto x = given.matrix<const T>("x");
  const auto gamma = given.column<double>(given.at("gamma"), ISENTROPIC_FLOAT64);
  const auto reached = given.column<double>(given.at("reached"), ISENTROPIC_FLOAT64);
  const auto status = given.column<std::int32_t>(given.at("status"), ISENTROPIC_INT32);
  given.check_all_used();
  gamma_for_entropy<T>(op, x, gamma, reached, status, memory, stream, given.per_row());
}

template <class T>
void run_probs(Arguments& given, std::span<std::byte> memory, Stream stream) {
  given.check_no_more_parameters();
  const auto x = given.matrix<const T>("x");
  const auto y = given.matrix<T>("y");
  given.check_all_used();
  probs<T>(given.steps(), x, y, memory, stream);
}
template <class T>
void run_chain(Arguments& given, std::span<std::byte> memory, Stream stream) {
  const DeviceNoise noise = given.noise();
  const auto x = given.matrix<const T>("x");
  const auto indices = given.matrix<std::int64_t>("indices", true, ISENTROPIC_INT64);
  given.check_no_more_parameters();
  given.check_all_used();
  sample<T>(given.steps(), x, indices, noise, memory, stream);
}
template <class T>
void run_noise(Arguments& given, std::span<std::byte> memory, Stream stream) {
  if constexpr (kIsHalf<T>) {
    fail("{}: type must be float32 or float64", given.operation());
  } else {
    const DeviceNoise noise = given.noise();
    given.check_no_more_parameters();
    const auto y = given.matrix<T>("y");
    given.check_all_used();
    gumbel_noise<T>(y, noise, memory, stream);
  }
}
template <class T>
void run_sampling(const OperationInfo& info, Arguments& given, std::span<std::byte> memory, Stream stream) {
  const DeviceNoise noise = given.noise();
  const auto x = given.matrix<const T>("x");
  std::visit(
      [&]<class Op>(const Op& op) {
        if constexpr (std::is_same_v<Op, GumbelSoftmax>) {
          const auto y = given.matrix<T>("y");
          given.check_all_used();
          gumbel_softmax<T>(op, x, y, noise, memory, stream);
        } else if constexpr (std::is_same_v<Op, Sample>) {
          const auto indices = given.matrix<std::int64_t>("indices", true, ISENTROPIC_INT64);
          given.check_all_used();
          sample<T>(op, x, indices, noise, memory, stream);
        } else {
          static_assert(sizeof(Op) == 0, "a draw that the kernels do not know");
        }
      },
      given.make<Sampling>(info));
}

// The operations with names of this door alone, with what runs them.
template <class T>
struct Own {
  std::string_view name;
  void (*run)(Arguments& given, std::span<std::byte> memory, Stream stream);
};
constexpr std::string_view kNoise = "gumbel_noise";
template <class T>
constexpr Own<T> kCalibration[] = {
    {"calibration_facts", run_calibration_facts<T>},         {"temperature_slopes", run_temperature_slopes<T>},
    {"target_entropy_losses", run_target_entropy_losses<T>}, {"fit_temperature", run_fit_temperature<T>},
    {"fit_target_entropy", run_fit_target_entropy<T>},       {"match_entropy", run_match_entropy<T>}};
template <class T>
constexpr Own<T> kDrawn[] = {{kChains[0], run_probs<T>}, {kChains[1], run_chain<T>}, {kNoise, run_noise<T>}};

template <class T>
const Own<T>* own(std::span<const Own<T>> all, std::string_view name) {
  const auto found = std::ranges::find(all, name, &Own<T>::name);
  return found == all.end() ? nullptr : &*found;
}

template <class T>
void run_typed(Arguments& given, bool vjp, std::span<std::byte> memory, Stream stream) {
  const std::string_view name = given.operation();
  if (name == TokenStatistics::kDescription.name) return run_token_statistics<T>(given, vjp, memory, stream);
  if (const auto* const info = info_of<Map>(name)) return run_map<T>(given.make<Map>(*info), given, vjp, memory, stream);
  if (const auto* const info = info_of<Logarithm>(name)) {
    return run_logarithm<T>(given.make<Logarithm>(*info), given, vjp, memory, stream);
  }
  if (vjp) fail("there is no gradient of {}; maps, log_softmax, logsumexp and token_statistics have one", name);
  if (const auto* const info = info_of<Loss>(name)) return run_loss<T>(*info, given, memory, stream);
  if (const auto* const info = info_of<Measure>(name)) return run_measure<T>(given.make<Measure>(*info), given, memory, stream);
  if (const auto* const info = info_of<Divergence>(name)) {
    return run_divergence<T>(given.make<Divergence>(*info), given, memory, stream);
  }
  if (name == GammaForEntropy::kDescription.name) {
    if constexpr (kIsHalf<T>) {
      fail("{}: type must be float32 or float64", name);
    } else {
      const auto op = std::get<GammaForEntropy>(given.make<EntropyControl>(*info_of<EntropyControl>(name)));
      return run_gamma<T>(op, given, memory, stream);
    }
  }
  if (const auto* const info = info_of<Sampling>(name)) return run_sampling<T>(*info, given, memory, stream);
  if (const auto* const one = own<T>(kCalibration<T>, name)) return one->run(given, memory, stream);
  if (const auto* const one = own<T>(kDrawn<T>, name)) return one->run(given, memory, stream);
  fail("operation must be one of those in isentropic/cuda_c.h, got '{}'", name);
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
  if (name == GumbelSoftmax::kDescription.name || name == kNoise) return memory_for<T>(GumbelSoftmax{}, rows, cols);
  if (own<T>(kCalibration<T>, name) != nullptr) return memory_for_calibration<T>(rows, cols);
  std::optional<std::vector<Step>> steps;
  const std::vector<Argument> given = parse_parameters(name, parameters, is_chain(name) ? &steps : nullptr);
  if (is_chain(name)) {
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
  if (!loss) fail("operation must be one of those in isentropic/cuda_c.h, got '{}'", name);
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

int run(const char* operation, const char* parameters, const isentropic_array* arrays, std::size_t count, bool vjp,
        void* memory, std::size_t memory_size, void* stream) {
  return guarded([&] {
    if (operation == nullptr) fail("operation must not be null");
    if (count == 0 || arrays == nullptr) fail("{}: arrays must not be empty", operation);
    Arguments given(operation, parameters, arrays, count, is_chain(operation));
    on_type(operation, arrays[0].type, [&]<class T>(std::type_identity<T>) {
      run_typed<T>(given, vjp, {static_cast<std::byte*>(memory), memory_size}, {stream});
    });
  });
}

}  // namespace
}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI

extern "C" {

size_t isentropic_cuda_memory(const char* operation, const char* parameters, size_t rows, size_t cols, int32_t type) {
  using namespace isentropic;
  size_t bytes = 0;
  const int error = guarded([&] {
    if (operation == nullptr) fail("operation must not be null");
    cuda::on_type(operation, type, [&]<class T>(std::type_identity<T>) {
      bytes = cuda::memory_of<T>(operation, parameters == nullptr ? "{}" : parameters, rows, cols);
    });
  });
  return error != ISENTROPIC_OK ? 0 : bytes;
}

int isentropic_cuda_run(const char* operation, const char* parameters, const isentropic_array* arrays, size_t count,
                        void* memory, size_t memory_size, void* stream) {
  return isentropic::cuda::run(operation, parameters, arrays, count, false, memory, memory_size, stream);
}
int isentropic_cuda_vjp(const char* operation, const char* parameters, const isentropic_array* arrays, size_t count,
                        void* memory, size_t memory_size, void* stream) {
  return isentropic::cuda::run(operation, parameters, arrays, count, true, memory, memory_size, stream);
}

const char* isentropic_cuda_last_error(void) { return isentropic::last_error().c_str(); }

}  // extern "C"
