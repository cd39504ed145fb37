// The device's calls by description (isentropic/call.h), and their C interface: arrays in device memory, checked once.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>

#include "isentropic/call.h"
#include "isentropic/cuda.h"
#include "isentropic/cuda_c.h"
#include "src/c/guard.h"
#include "src/c/prepared.h"
#include "src/call/few.h"
#include "src/check.h"
#include "src/cuda/own_operations.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {
namespace {

// The arrays of a call in device memory, in the order of the description.
class DeviceArguments {
 public:
  DeviceArguments(const Call& call, std::span<std::byte> memory, Stream stream)
      : call_(call),
        memory_(memory),
        stream_(stream),
        infos_(call.vjp ? call.operation.jacobian.arrays : call.operation.arrays) {
    for (const RowParameter& param : call.row_parameters) {
      if (param.values.given()) per_row_.add({param.name, numbers<const double>(param.name, param.values)});
      if (param.gradient.given()) gradients_.add({param.name, numbers<double>(param.name, param.gradient)});
    }
  }

  const Call& call() const { return call_; }
  std::string_view where() const { return call_.operation.name; }
  template <class Family>
  Family make() const {
    return isentropic::make<Family>(call_.operation, call_.values);
  }
  std::optional<double> parameter(std::size_t i) const {
    const ParamValue& value = call_.values[i];
    if (const auto* const number = std::get_if<double>(&value)) return *number;
    if (const auto* const whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
    if (std::holds_alternative<std::monostate>(value)) return {};
    fail("{}: {} must be a number, got {}", where(), call_.operation.params[i].name, to_text(value));
  }
  bool given(std::size_t i) const { return call_.arrays[i].given(); }
  std::span<std::byte> memory() const { return memory_; }
  Stream stream() const { return stream_; }
  std::span<const PerRow> per_row() const { return per_row_; }
  std::span<const ParamGradient> gradients() const { return gradients_; }

  // Rows in place; none if the array was left out. Their type is T.
  template <class T>
  MatrixView<T> matrix(std::size_t i) const {
    const CallArray& a = call_.arrays[i];
    if (!a.given()) return {};
    check_type<T>(infos_[i].name, a);
    constexpr auto kItem = static_cast<std::ptrdiff_t>(sizeof(T));
    if ((a.strides[1] != kItem && a.shape[1] > 1) || a.strides[0] < 0) {
      fail("{}: col_stride of {} must be 1 and row_stride at least 0 on a device, got {} and {}", where(), infos_[i].name,
           a.strides[1] / kItem, a.strides[0] / kItem);
    }
    const bool repeated = infos_[i].one_for_all && a.strides[0] == 0;
    return {reinterpret_cast<T*>(a.data), repeated ? 1 : static_cast<std::size_t>(a.shape[0]),
            static_cast<std::size_t>(a.shape[1]), static_cast<std::size_t>(repeated ? a.shape[1] : a.strides[0] / kItem)};
  }
  template <class Number>
  std::span<Number> numbers(std::string_view name, const CallArray& a) const {
    if (!a.given()) return {};
    check_type<Number>(name, a);
    if (a.shape[1] != 1 || (a.shape[0] > 1 && a.strides[0] != static_cast<std::ptrdiff_t>(sizeof(Number)))) {
      fail("{}: {} must be one number for each row without gaps, got {} columns with {} bytes between rows", where(), name,
           a.shape[1], a.strides[0]);
    }
    return {reinterpret_cast<Number*>(a.data), static_cast<std::size_t>(a.shape[0])};
  }
  template <class Number>
  std::span<Number> numbers(std::size_t i) const {
    return numbers<Number>(infos_[i].name, call_.arrays[i]);
  }
  // A number in the host's memory, or null.
  template <class Number>
  Number* number(std::size_t i) const {
    const std::span<Number> found = numbers<Number>(i);
    if (given(i) && found.size() != 1) fail("{}: {} must be one number, got {}", where(), infos_[i].name, found.size());
    return found.data();
  }

  DeviceNoise noise() const {
    DeviceNoise noise;
    noise.seed = call_.seed, noise.stream = call_.stream, noise.position = call_.position;
    noise.streams = numbers<const std::uint64_t>("stream", call_.streams);
    const auto seed = numbers<const std::uint64_t>("seed", call_.seeds);
    const auto positions = numbers<const std::uint64_t>("position", call_.positions);
    if (!seed.empty()) noise.seed_at = seed.data();
    if (positions.size() == 1) {
      noise.position_at = positions.data();
    } else {
      noise.positions = positions;
    }
    return noise;
  }

 private:
  template <class Number>
  void check_type(std::string_view name, const CallArray& a) const {
    constexpr NumberType kWanted = kTypeOf<std::remove_const_t<Number>>;
    if (a.type != kWanted) fail("{}: {} must be {}, got {}", where(), name, name_of(kWanted), name_of(a.type));
  }

  const Call& call_;
  std::span<std::byte> memory_;
  Stream stream_;
  std::span<const ArrayInfo> infos_;
  call::Few<PerRow> per_row_;
  call::Few<ParamGradient> gradients_;
};

// The families: run<T>(operation, arguments). The type of a call is that of its first array.

template <class T>
void run(const Map& map, const DeviceArguments& a) {
  const auto x = a.matrix<const T>(0);
  if (!a.call().vjp) return apply<T>(map, x, a.matrix<T>(1), a.memory(), a.stream(), a.per_row());
  apply_vjp<T>(map, x, a.matrix<const T>(1), a.matrix<const T>(2), a.matrix<T>(3), a.memory(), a.stream(), a.per_row(),
               a.gradients());
}

template <class T>
void run(const Logarithm& op, const DeviceArguments& a) {
  const auto* const log = std::get_if<LogSoftmax>(&op);
  const auto* const sum = std::get_if<LogSumExp>(&op);
  const auto x = a.matrix<const T>(0);
  if (!a.call().vjp) {
    const auto y = a.matrix<T>(1);
    if (log != nullptr) return log_softmax<T>(*log, x, y, a.memory(), a.stream(), a.per_row());
    return logsumexp<T>(*sum, x, y, a.memory(), a.stream(), a.per_row());
  }
  const auto y = a.matrix<const T>(1), g = a.matrix<const T>(2);
  const auto dx = a.matrix<T>(3);
  if (log != nullptr) return log_softmax_vjp<T>(*log, x, y, g, dx, a.memory(), a.stream(), a.per_row(), a.gradients());
  logsumexp_vjp<T>(*sum, x, g, dx, a.memory(), a.stream(), a.per_row(), a.gradients());
}

template <class T>
void run(const Loss& op, const DeviceArguments& a) {
  const auto x = a.matrix<const T>(0);
  const auto value = a.numbers<double>(2);
  const auto dx = a.matrix<T>(3);
  if (is_integer(a.call().arrays[1].type)) {
    return loss<T>(op, x, a.numbers<const std::int64_t>(1), value, dx, a.memory(), a.stream(), a.per_row(), a.gradients(),
                   a.call().ignore_index);
  }
  loss<T>(op, x, a.matrix<const T>(1), value, dx, a.memory(), a.stream(), a.per_row(), a.gradients());
}

template <class T>
void run(const Measure& op, const DeviceArguments& a) {
  measure<T>(op, a.matrix<const T>(0), a.numbers<double>(1), a.matrix<T>(2), a.memory(), a.stream(), a.per_row(),
             a.gradients());
}

template <class T>
void run(const Divergence& op, const DeviceArguments& a) {
  measure<T>(op, a.matrix<const T>(0), a.matrix<const T>(1), a.numbers<double>(2), a.matrix<T>(3), a.matrix<T>(4), a.memory(),
             a.stream());
}

template <class T>
void run(const EntropyControl& op, const DeviceArguments& a) {
  if constexpr (kIsHalf<T>) {
    fail("{}: type must be float32 or float64, got {}", a.where(), name_of(kTypeOf<T>));
  } else {
    gamma_for_entropy<T>(std::get<GammaForEntropy>(op), a.matrix<const T>(0), a.numbers<double>(1), a.numbers<double>(2),
                         a.numbers<std::int32_t>(3), a.memory(), a.stream(), a.per_row());
  }
}

template <class T>
void run(const Sampling& op, const DeviceArguments& a) {
  const auto x = a.matrix<const T>(0);
  std::visit(
      [&]<class Op>(const Op& one) {
        if constexpr (std::is_same_v<Op, GumbelSoftmax>) {
          gumbel_softmax<T>(one, x, a.matrix<T>(1), a.noise(), a.memory(), a.stream());
        } else if constexpr (std::is_same_v<Op, Sample>) {
          sample<T>(one, x, a.matrix<std::int64_t>(1), a.noise(), a.memory(), a.stream());
        } else {
          static_assert(sizeof(Op) == 0, "a draw that the kernels do not know");
        }
      },
      op);
}

template <class T>
void run_chain(const DeviceArguments& a) {
  for (std::size_t i = 2; i < a.call().arrays.size(); ++i) {
    if (a.call().arrays[i].given())
      fail("{}: there is no array '{}' on a device", a.call().operation.name, a.call().operation.arrays[i].name);
  }
  const auto x = a.matrix<const T>(0);
  if (!a.call().operation.drawn) return probs<T>(a.call().steps, x, a.matrix<T>(1), a.memory(), a.stream());
  sample<T>(a.call().steps, x, a.matrix<std::int64_t>(1), a.noise(), a.memory(), a.stream());
}

// Operations that only a device has, because elsewhere they are a part of others.

template <class T>
void run_token_statistics(const DeviceArguments& a) {
  using W = StatisticsOf<T>;
  TokenStatistics options;
  options.temperature = a.parameter(0).value_or(1);
  const auto x = a.matrix<const T>(0);
  const auto target = a.numbers<const std::int64_t>(1);
  if (a.call().vjp) {
    return token_statistics_vjp<T>(options, x, target, a.matrix<const W>(2), a.matrix<const W>(3), a.matrix<T>(4), a.memory(),
                                   a.stream(), a.per_row(), a.gradients());
  }
  const auto top = a.matrix<std::int64_t>(3);
  if (const double wanted = a.parameter(1).value_or(0); static_cast<double>(top.cols) != wanted) {
    fail("{}: top must have as many columns as the parameter top says, {}, got {}", a.where(), wanted, top.cols);
  }
  token_statistics<T>(options, x, target, a.matrix<W>(2), top, a.memory(), a.stream(), a.per_row());
}

template <class T>
void run_noise(const DeviceArguments& a) {
  if constexpr (kIsHalf<T>) {
    fail("{}: type must be float32 or float64, got {}", a.where(), name_of(kTypeOf<T>));
  } else {
    gumbel_noise<T>(a.matrix<T>(0), a.noise(), a.memory(), a.stream());
  }
}

// calibration_facts, temperature_slopes and target_entropy_losses.
template <class T, auto kAsk>
void run_asked(const DeviceArguments& a) {
  const auto x = a.matrix<const T>(0);
  const auto labels = a.numbers<const std::int64_t>(1);
  const auto found = a.matrix<double>(2);
  if constexpr (requires { kAsk(x, labels, found, a.memory(), a.stream()); }) {
    kAsk(x, labels, found, a.memory(), a.stream());
  } else {
    kAsk(*a.parameter(0), x, labels, found, a.memory(), a.stream());
  }
}

template <class T>
void run_match(const DeviceArguments& a) {
  *a.number<double>(2) = match_entropy<T>(a.matrix<const T>(0), a.memory(), a.stream(), a.numbers<const double>(1));
}
template <class T, auto kFit>
void run_fit(const DeviceArguments& a) {
  double& value = *a.number<double>(3);
  constexpr bool kClamps = std::is_same_v<decltype(kFit(MatrixView<const T>(), {}, {}, {}, {}, {})), FittedTemperature>;
  std::int32_t* clamped = nullptr;
  if constexpr (kClamps) clamped = a.number<std::int32_t>(4);
  const auto fitted = kFit(a.matrix<const T>(0), a.numbers<const std::int64_t>(1), a.memory(), a.stream(),
                           a.numbers<const double>(2), a.call().ignore_index);
  if constexpr (kClamps) {
    value = fitted.temperature;
    if (clamped != nullptr) *clamped = fitted.clamped ? 1 : 0;
  } else {
    value = fitted;
  }
}

template <class T>
using Run = void (*)(const DeviceArguments& a);
// In the order of Own.
template <class T>
constexpr Run<T> kOwn[] = {run_token_statistics<T>,
                           run_noise<T>,
                           run_asked<T, calibration_facts<T>>,
                           run_asked<T, temperature_slopes<T>>,
                           run_asked<T, target_entropy_losses<T>>,
                           run_fit<T, fit_temperature<T>>,
                           run_fit<T, fit_target_entropy<T>>,
                           run_match<T>};

// Calls run(std::type_identity<Family>()) for the family of an operation of the registry that has kernels, and says whether
// there is one.
template <class Run>
bool on_family(const OperationInfo& operation, const Run& run) {
  const auto look = [&]<class Family>(std::type_identity<Family> family) {
    const std::span<const OperationInfo> all = family_info<Family>().operations;
    if (&operation < all.data() || &operation >= all.data() + all.size()) return false;
    run(family);
    return true;
  };
  return [&]<class... Family>(FamilyList<Family...>) {
    return (look(std::type_identity<Family>()) || ...);
  }(FamilyList<Map, Logarithm, Loss, Measure, Divergence, EntropyControl, Sampling>());
}

bool can_run(const OperationInfo& operation, bool vjp) {
  if (!has(operation, Door::device) || (vjp && operation.jacobian.arrays.empty())) return false;
  return operation.family == chains().name || operation.family == own_operations().name || on_family(operation, [](auto) {});
}

template <class Work>
void on_type(std::string_view operation, NumberType type, const Work& work) {
  switch (type) {
    case NumberType::float32:
      return work(std::type_identity<float>());
    case NumberType::float64:
      return work(std::type_identity<double>());
    case NumberType::float16:
      return work(std::type_identity<float16>());
    case NumberType::bfloat16:
      return work(std::type_identity<bfloat16>());
    default:
      fail("{}: type must be ISENTROPIC_FLOAT32 to ISENTROPIC_BFLOAT16, 1 to 4, got {}", operation, static_cast<int>(type));
  }
}

void run(const Call& call, std::span<std::byte> memory, Stream stream) {
  const OperationInfo& operation = call.operation;
  const DeviceArguments arguments(call, memory, stream);
  on_type(operation.name, call.arrays[0].type, [&]<class T>(std::type_identity<T>) {
    if (operation.family == own_operations().name) return kOwn<T>[operation.index](arguments);
    if (operation.family == chains().name) return run_chain<T>(arguments);
    on_family(operation, [&]<class Family>(std::type_identity<Family>) { run<T>(arguments.make<Family>(), arguments); });
  });
}

// Memory for a call with rows x cols of T. Parameters of rows do not change it, so it is that of typical ones; the map of a
// loss does.
template <class T, class Family>
std::size_t memory_of(const Family& op, std::size_t rows, std::size_t cols) {
  if constexpr (requires { memory_for<T>(op, rows, cols); }) {
    return memory_for<T>(op, rows, cols);
  } else {
    return std::visit(
        [&](const auto& one) -> std::size_t {
          if constexpr (requires { memory_for<T>(one, rows, cols); }) {
            return memory_for<T>(one, rows, cols);
          } else {
            return 0;
          }
        },
        op);
  }
}

template <class T>
std::size_t memory_of(const isentropic_call& prepared, std::size_t rows, std::size_t cols) {
  const OperationInfo& operation = prepared.info;
  if (operation.family == chains().name) return memory_for<T>(std::span<const Step>(*prepared.steps), rows, cols);
  if (operation.family == own_operations().name) {
    switch (static_cast<Own>(operation.index)) {
      case Own::token_statistics: {
        const ParamValue& value = prepared.values[1];
        const auto* const top = std::get_if<std::int64_t>(&value);
        if (top == nullptr && !std::holds_alternative<std::monostate>(value))
          fail("{}: top must be an integer, got {}", operation.name, to_text(value));
        return memory_for<T>(TokenStatistics{}, rows, cols, top == nullptr ? 0 : static_cast<std::size_t>(*top));
      }
      case Own::gumbel_noise:
        return memory_for<T>(GumbelSoftmax{}, rows, cols);
      default:
        return memory_for_calibration<T>(rows, cols);
    }
  }
  std::vector<ParamValue> values = typical_values(operation);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::holds_alternative<Map>(prepared.values[i])) values[i] = prepared.values[i];
  }
  std::size_t bytes = 0;
  on_family(operation, [&]<class Family>(std::type_identity<Family>) {
    bytes = memory_of<T>(make<Family>(operation, values), rows, cols);
  });
  return bytes;
}

const by_name::Library& library() {
  static const FamilyInfo* const further[] = {&chains(), &own_operations()};
  static const by_name::Library kLibrary = {further, can_run, "isentropic/cuda_c.h"};
  return kLibrary;
}

int run(const char* operation, const char* parameters, const isentropic_array* arrays, std::size_t count, bool vjp,
        void* memory, std::size_t memory_size, void* stream) {
  return guarded([&] {
    const isentropic_call prepared(library(), operation, parameters, vjp);
    const by_name::Arrays given(prepared, arrays, count);
    run(by_name::call_of(prepared, given), {static_cast<std::byte*>(memory), memory_size}, {stream});
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
    const isentropic_call prepared(cuda::library(), operation, parameters, false);
    cuda::on_type(operation, static_cast<NumberType>(type),
                  [&]<class T>(std::type_identity<T>) { bytes = cuda::memory_of<T>(prepared, rows, cols); });
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
