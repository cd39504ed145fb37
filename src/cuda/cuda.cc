// Operations on rows in device memory: checks, and the arguments of kernels.

#include "isentropic/cuda.h"

#include <algorithm>
#include <cmath>

#include "src/check.h"
#include "src/cuda/check.h"
#include "src/cuda/kernels.h"
#include "src/half.h"
#include "src/losses/check.h"
#include "src/losses/mapped.h"
#include "src/maps/check.h"
#include "src/measures/check.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace cuda {
namespace {

template <class T>
Rows rows_of(const MatrixView<T>& a) {
  using Number = std::remove_const_t<T>;
  const Stored stored = std::is_same_v<Number, float16>    ? Stored::float16
                        : std::is_same_v<Number, bfloat16> ? Stored::bfloat16
                                                           : Stored::as_worked_on;
  return {const_cast<Number*>(a.data), a.row_stride, stored};
}

// The addresses of parameters' values, by parameter. Only the device can check the values.
template <class Op, class Number, class Given>
ForParams<Op, Number> places_of(std::span<const Given> given, std::size_t rows) {
  ForParams<Op, Number> places;
  for (const Given& numbers : given) {
    check_per_row<Op>(numbers.parameter, numbers.values.size(), rows);
    std::size_t i = 0;
    for_each_param<Op>([&](const auto& param) {
      if (param.name == numbers.parameter) places.of[i] = numbers.values.data();
      ++i;
    });
  }
  return places;
}

// Bytes for a row of each of `rows` in the type of the computation.
template <class W>
std::size_t room_of_rows(std::size_t rows, std::size_t cols) {
  return (rows * cols * sizeof(W) + 127) / 128 * 128;
}

// op with a typical value for each parameter that has a value for each row, so that the others can be checked.
template <class Op>
void check_common(Op op, std::span<const PerRow> per_row) {
  for_each_param<Op>([&](const auto& param) {
    if constexpr (requires { op.*param.member = 1.0; }) {
      for (const PerRow& given : per_row) {
        if (given.parameter != param.name) continue;
        op.*param.member = Op{}.*param.member;
        if (param.typical) op.*param.member = *param.typical;
      }
    }
  });
  check_params(op);
}

// Why there is no kernel for an operation, or an empty text.
template <class Op>
constexpr std::string_view why_no_kernel() {
  for (const Absence& one : Described<Op>::kDescription.not_in) {
    if (one.door == Door::device) return one.why;
  }
  return {};
}
template <class Op>
[[noreturn]] void refuse_kernel() {
  fail("{}: there is no kernel for it on a device: {}", Described<Op>::kDescription.name, why_no_kernel<Op>());
}

// Calls run(the operation) if its description says that devices have it. The linker then names a kernel that is missing.
template <class Result = void, class Family, class Run>
Result with_kernels(const Family& operation, const Run& run) {
  return std::visit(
      [&]<class Op>(const Op& op) -> Result {
        if constexpr (why_no_kernel<Op>().empty()) {
          return run(op);
        } else {
          refuse_kernel<Op>();
        }
      },
      operation);
}

template <class T, class Op, class In>
Call<Op> call_of(const Op& op, const In& x, std::span<std::byte> memory, std::span<const PerRow> per_row) {
  check_common(op, per_row);
  check_memory(Described<Op>::kDescription.name, memory, Kernels<Op, Working<T>>::memory(x.rows, x.cols));
  Call<Op> call = {op, x.rows, x.cols, {}, {}};
  call.per_row = places_of<Op, const double>(per_row, x.rows);
  call.in[0] = rows_of(x);
  call.memory = reinterpret_cast<std::uint8_t*>(memory.data());
  return call;
}

}  // namespace

template <class T>
std::size_t memory_for(const Map& map, std::size_t rows, std::size_t cols) {
  return with_kernels<std::size_t>(map, [&]<class Op>(const Op&) { return Kernels<Op, Working<T>>::memory(rows, cols); });
}

template <class T>
std::size_t memory_for(const LogSoftmax& /*options*/, std::size_t rows, std::size_t cols) {
  return Kernels<LogSoftmax, Working<T>>::memory(rows, cols);
}

template <class T>
std::size_t memory_for(const LogSumExp& /*options*/, std::size_t rows, std::size_t cols) {
  return Kernels<LogSumExp, Working<T>>::memory(rows, cols);
}

template <class T>
std::size_t memory_for(const Measure& measure, std::size_t rows, std::size_t cols) {
  return with_kernels<std::size_t>(measure,
                                   [&]<class Op>(const Op&) { return MeasureKernels<Op, Working<T>>::memory(rows, cols); });
}

template <class T>
std::size_t memory_for(const Divergence& divergence, std::size_t rows, std::size_t cols) {
  return with_kernels<std::size_t>(divergence,
                                   [&]<class Op>(const Op&) { return MeasureKernels<Op, Working<T>>::memory(rows, cols); });
}

template <class T>
std::size_t memory_for(const GammaForEntropy& /*options*/, std::size_t rows, std::size_t cols) {
  return Kernels<GammaForEntropy, Working<T>>::memory(rows, cols);
}

template <class T>
std::size_t memory_for_calibration(std::size_t rows, std::size_t cols) {
  constexpr std::size_t kFound = 4 * sizeof(double), kAligned = 128;  // the numbers of a row, which only fits need
  const std::size_t asked = CalibrationKernels<T>::memory(rows, cols), entropy = memory_for<T>(Measure(Entropy{}), rows, cols);
  return std::max(asked, entropy) / kAligned * kAligned + rows * kFound + 2 * kAligned;
}

template <class T>
void apply(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> p, std::span<std::byte> memory,
           Stream stream, std::span<const PerRow> per_row) {
  check_map(description_of(map).name, x, "p", p);
  with_kernels(map, [&]<class Op>(const Op& op) {
    Call<Op> call = call_of<T>(op, x, memory, per_row);
    call.out = rows_of(p);
    Kernels<Op, Working<T>>::map(call, stream);
  });
}

template <class T>
void apply_vjp(const Map& map, MatrixView<const std::type_identity_t<T>> x, MatrixView<const std::type_identity_t<T>> p,
               MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx, std::span<std::byte> memory, Stream stream,
               std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  check_vjp(description_of(map).name, x, "p", p, g, dx);
  with_kernels(map, [&]<class Op>(const Op& op) {
    Call<Op> call = call_of<T>(op, x, memory, per_row);
    call.slopes = places_of<Op, double>(gradients, x.rows);
    call.in[1] = rows_of(p), call.in[2] = rows_of(g), call.out = rows_of(dx);
    Kernels<Op, Working<T>>::vjp(call, stream);
  });
}

template <class T>
void log_softmax(const LogSoftmax& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
                 std::span<std::byte> memory, Stream stream, std::span<const PerRow> per_row) {
  check_map("log_softmax", x, "y", y);
  Call<LogSoftmax> call = call_of<T>(options, x, memory, per_row);
  call.out = rows_of(y);
  Kernels<LogSoftmax, Working<T>>::map(call, stream);
}

template <class T>
void log_softmax_vjp(const LogSoftmax& options, MatrixView<const std::type_identity_t<T>> x,
                     MatrixView<const std::type_identity_t<T>> y, MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx,
                     std::span<std::byte> memory, Stream stream, std::span<const PerRow> per_row,
                     std::span<const ParamGradient> gradients) {
  check_vjp("log_softmax", x, "y", y, g, dx);
  Call<LogSoftmax> call = call_of<T>(options, x, memory, per_row);
  call.slopes = places_of<LogSoftmax, double>(gradients, x.rows);
  call.in[1] = rows_of(y), call.in[2] = rows_of(g), call.out = rows_of(dx);
  Kernels<LogSoftmax, Working<T>>::vjp(call, stream);
}

template <class T>
void logsumexp(const LogSumExp& options, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
               std::span<std::byte> memory, Stream stream, std::span<const PerRow> per_row) {
  check_layout("logsumexp", "x", x);
  check_shape("logsumexp", "y", y, "a column with x's rows", x.rows, std::size_t{1});
  check_apart("logsumexp", "y", y, "x", x);
  check_has_columns("logsumexp", "x", x);
  Call<LogSumExp> call = call_of<T>(options, x, memory, per_row);
  call.out = rows_of(y);
  Kernels<LogSumExp, Working<T>>::map(call, stream);
}

template <class T>
void logsumexp_vjp(const LogSumExp& options, MatrixView<const std::type_identity_t<T>> x,
                   MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx, std::span<std::byte> memory, Stream stream,
                   std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  check_map("logsumexp", x, "dx", dx);
  check_shape("logsumexp", "g", g, "a column with x's rows", x.rows, std::size_t{1});
  check_apart("logsumexp", "dx", dx, "g", g);
  Call<LogSumExp> call = call_of<T>(options, x, memory, per_row);
  call.slopes = places_of<LogSumExp, double>(gradients, x.rows);
  call.in[2] = rows_of(g), call.out = rows_of(dx);
  Kernels<LogSumExp, Working<T>>::vjp(call, stream);
}

template <class T>
void gamma_for_entropy(const GammaForEntropy& options, MatrixView<const T> x, std::span<double> gamma,
                       std::span<double> entropy, std::span<int> status, std::span<std::byte> memory, Stream stream,
                       std::span<const PerRow> per_row) {
  constexpr std::string_view kName = Described<GammaForEntropy>::kDescription.name;
  check_layout(kName, "x", x);
  check_size(kName, "gamma", gamma.size(), x.rows);
  check_size(kName, "entropy", entropy.size(), x.rows);
  check_size(kName, "status", status.size(), x.rows);
  if (options.input == Input::probs) fail("{}: input must be scores or log_probs on a device, got probs", kName);
  check_has_columns(kName, "x", x);
  Call<GammaForEntropy> call = call_of<T>(options, x, memory, per_row);
  call.gamma = gamma.data(), call.entropy = entropy.data(), call.status = status.data();
  Kernels<GammaForEntropy, T>::map(call, stream);
}

namespace {

// The use of p in a loss that starts from a map.
template <class Op>
constexpr FromMap from_map() {
  if constexpr (std::is_same_v<Op, SurrogateLoss>) {
    return FromMap::surrogate;
  } else if constexpr (std::is_same_v<Op, SmoothAccuracyLoss>) {
    return FromMap::smooth_accuracy;
  } else if constexpr (std::is_same_v<Op, TopKSoftmaxLoss> || std::is_same_v<Op, TopPSoftmaxLoss>) {
    return FromMap::cut;
  } else if constexpr (std::is_same_v<Op, SparsemaxLoss> || std::is_same_v<Op, EntmaxLoss>) {
    return FromMap::entmax;
  } else {
    static_assert(sizeof(Op) == 0, "a loss that the kernels do not know");
  }
}

// The call of a loss on the device.
template <class T>
struct LossArguments {
  MatrixView<const T> x, target;
  std::span<const std::int64_t> classes;
  std::span<double> value;
  MatrixView<T> dx;
  std::span<std::byte> memory;
  Stream stream;
  std::span<const PerRow> per_row;
  std::span<const ParamGradient> gradients;
  std::optional<std::int64_t> ignored;
};

template <class Op, class T>
LossCall<Op> loss_call(const Op& op, const LossArguments<T>& given) {
  LossCall<Op> call = {{op, given.x.rows, given.x.cols, {}, {}}};
  call.in[0] = rows_of(given.x), call.in[1] = rows_of(given.target), call.out = rows_of(given.dx);
  call.classes = given.classes.empty() ? nullptr : given.classes.data();
  call.ignores = given.ignored.has_value(), call.ignored = given.ignored.value_or(0);
  call.value = given.value.data();
  call.tolerance = kSumTolerance<T>;
  return call;
}

// Its memory holds p of all rows, unless p fits in the place of the gradient; for smooth accuracy the vectors for the map's
// gradient; and then the kernels' memory.
template <class Op, class T>
void run_from_map(const Op& loss, const LossArguments<T>& given) {
  using W = Working<T>;
  const std::size_t rows = given.x.rows, cols = given.x.cols, room = room_of_rows<W>(rows, cols);
  auto* memory = reinterpret_cast<std::uint8_t*>(given.memory.data());
  const Rows block = {memory, cols}, other = {memory + room, cols};
  memory += 2 * room;
  EntmaxLoss entmax;
  if constexpr (std::is_same_v<Op, EntmaxLoss>) entmax = loss;
  if constexpr (std::is_same_v<Op, SparsemaxLoss>) entmax.alpha = 2;
  LossCall<EntmaxLoss> call = loss_call(entmax, given);
  const bool gradient = given.dx.data != nullptr || !given.gradients.empty();
  const bool smooth = from_map<Op>() == FromMap::smooth_accuracy;
  const bool in_dx = given.dx.data != nullptr && !kIsHalf<T> && given.dx.data != given.x.data && !smooth;
  call.in[2] = in_dx ? call.out : block;
  call.memory = memory;
  if constexpr (std::is_same_v<Op, EntmaxLoss>) {
    call.per_row = places_of<EntmaxLoss, const double>(given.per_row, rows);
    call.slopes = places_of<EntmaxLoss, double>(given.gradients, rows);
  }
  const auto run = [&]<class M>(const M& map) {
    Call<M> of_map = {map, rows, cols, {}, {}};
    of_map.per_row = places_of<M, const double>(given.per_row, rows);
    of_map.in[0] = call.in[0], of_map.out = call.in[2], of_map.memory = memory;
    Kernels<M, W>::map(of_map, given.stream);
    if (smooth) call.out = gradient ? other : Rows{};
    MappedLossKernels<W>::run(call, from_map<Op>(), given.stream);
    if (!smooth || !gradient) return;
    of_map.slopes = places_of<M, double>(given.gradients, rows);
    of_map.in[1] = block, of_map.in[2] = other, of_map.out = given.dx.data != nullptr ? rows_of(given.dx) : block;
    Kernels<M, W>::vjp(of_map, given.stream);
    call.out = of_map.out;
    static_assert(ForParams<M, double>::kCount <= std::size(decltype(call.of_map){}));
    for (std::size_t k = 0; k < ForParams<M, double>::kCount; ++k) call.of_map[k] = of_map.slopes.of[k];
    MappedLossKernels<W>::run(call, FromMap::settle, given.stream);
  };
  with_kernels(Map(map_of(loss)), run);
}

template <class T>
void run_loss(const Loss& loss, const LossArguments<T>& given) {
  const std::string_view name = description_of(loss).name;
  const std::size_t rows = given.x.rows, cols = given.x.cols;
  check_layout(name, "x", given.x);
  check_size(name, "value", given.value.size(), rows);
  check_has_columns(name, "x", given.x);
  if (given.dx.data != nullptr || given.dx.rows != 0 || given.dx.cols != 0) {
    check_shape(name, "dx", given.dx, "x", rows, cols);
    check_overlap(name, "dx", given.dx, "x", given.x);
  }
  check_memory(name, given.memory, memory_for<T>(loss, rows, cols));
  with_kernels(loss, [&]<class Op>(const Op& op) {
    check_gradients(op, given.gradients, rows);
    if constexpr (requires { op.map; }) {
      std::visit([&](const auto& map) { check_common(map, given.per_row); }, op.map);
    } else {
      check_common(op, given.per_row);
    }
    if (rows == 0) return;
    if constexpr (requires { map_of(op); }) {
      run_from_map(op, given);
    } else {
      LossCall<Op> call = loss_call(op, given);
      call.per_row = places_of<Op, const double>(given.per_row, rows);
      call.slopes = places_of<Op, double>(given.gradients, rows);
      call.memory = reinterpret_cast<std::uint8_t*>(given.memory.data());
      LossKernels<Op, Working<T>>::run(call, given.stream);
    }
  });
}

}  // namespace

template <class T>
std::size_t memory_for(const Loss& loss, std::size_t rows, std::size_t cols) {
  using W = Working<T>;
  std::size_t bytes = 0;
  with_kernels(loss, [&]<class Op>(const Op& op) {
    if constexpr (requires { map_of(op); }) {
      bytes = 2 * room_of_rows<W>(rows, cols) +
              std::max(MappedLossKernels<W>::memory(rows, cols), memory_for<T>(map_of(op), rows, cols));
    } else {
      bytes = LossKernels<Op, W>::memory(rows, cols);
    }
  });
  return bytes;
}

template <class T>
void loss(const Loss& loss, MatrixView<const T> x, std::span<const std::int64_t> classes, std::span<double> value,
          MatrixView<std::type_identity_t<T>> dx, std::span<std::byte> memory, Stream stream, std::span<const PerRow> per_row,
          std::span<const ParamGradient> gradients, std::optional<std::int64_t> ignored) {
  check_takes_classes(loss);
  if (classes.size() != x.rows) {
    fail("{}: target must have one class for each of {} rows, got {}", description_of(loss).name, x.rows, classes.size());
  }
  run_loss<T>(loss, {x, {}, classes, value, dx, memory, stream, per_row, gradients, ignored});
}

template <class T>
void loss(const Loss& loss, MatrixView<const T> x, MatrixView<const std::type_identity_t<T>> target, std::span<double> value,
          MatrixView<std::type_identity_t<T>> dx, std::span<std::byte> memory, Stream stream, std::span<const PerRow> per_row,
          std::span<const ParamGradient> gradients) {
  check_takes_matrix(loss, x, target, dx);
  run_loss<T>(loss, {x, target, {}, value, dx, memory, stream, per_row, gradients, {}});
}

namespace {

template <class T, class Op>
MeasureCall<Op> measure_call(const Op& op, const MatrixView<const T>& p, std::span<double> value, const MatrixView<T>& dp,
                             std::span<std::byte> memory) {
  MeasureCall<Op> call = {{op, p.rows, p.cols, {}, {}}};
  call.in[0] = rows_of(p), call.out = rows_of(dp);
  call.memory = reinterpret_cast<std::uint8_t*>(memory.data());
  call.value = value.data();
  call.tolerance = kSumTolerance<T>;
  return call;
}

}  // namespace

template <class T>
void measure(const Measure& op, MatrixView<const T> p, std::span<double> value, MatrixView<std::type_identity_t<T>> dp,
             std::span<std::byte> memory, Stream stream, std::span<const PerRow> per_row,
             std::span<const ParamGradient> gradients) {
  with_kernels(op, [&]<class Op>(const Op& one) {
    check_common(one, per_row);
    constexpr std::string_view kName = Described<Op>::kDescription.name;
    check_measure(kName, p, value, dp);
    check_has_columns(kName, "p", p);
    check_memory(kName, memory, MeasureKernels<Op, Working<T>>::memory(p.rows, p.cols));
    MeasureCall<Op> call = measure_call<T>(one, p, value, dp, memory);
    call.per_row = places_of<Op, const double>(per_row, p.rows);
    call.slopes = places_of<Op, double>(gradients, p.rows);
    MeasureKernels<Op, Working<T>>::run(call, stream);
  });
}

template <class T>
void measure(const Divergence& op, MatrixView<const T> p, MatrixView<const std::type_identity_t<T>> q, std::span<double> value,
             MatrixView<std::type_identity_t<T>> dp, MatrixView<std::type_identity_t<T>> dq, std::span<std::byte> memory,
             Stream stream) {
  with_kernels(op, [&]<class Op>(const Op& one) {
    constexpr std::string_view kName = Described<Op>::kDescription.name;
    check_params(one);
    if constexpr (requires { one.smoothing; }) {
      if (one.smoothing != 0)
        fail("{}: smoothing must be 0 on a device, whose kernels have none, got {}", kName, one.smoothing);
    }
    check_divergence(kName, p, q, value, dp, dq);
    check_has_columns(kName, "p", p);
    check_memory(kName, memory, MeasureKernels<Op, Working<T>>::memory(p.rows, p.cols));
    MeasureCall<Op> call = measure_call<T>(one, p, value, dp, memory);
    call.in[1] = rows_of(q), call.second = rows_of(dq), call.one_for_all = q.rows == 1;
    call.bound = bound_of(one), call.below_bound = stored_up_to<Working<T>>(call.bound);
    MeasureKernels<Op, Working<T>>::run(call, stream);
  });
}

namespace {

// A step for the kernels.
ChainStep chain_step(const Step& step) {
  return std::visit(
      []<class Op>(const Op& op) -> ChainStep {
        using Kind = ChainStep::Kind;
        if constexpr (std::is_same_v<Op, step::Temperature>) {
          return {Kind::temperature, op.temperature, 0, 0};
        } else if constexpr (std::is_same_v<Op, step::TopK>) {
          return {Kind::top_k, 0, 0, op.k};
        } else if constexpr (std::is_same_v<Op, step::TopP>) {
          return {Kind::top_p, op.p, 0, 0};
        } else if constexpr (std::is_same_v<Op, step::MinP>) {
          return {Kind::min_p, op.p, 0, 0};
        } else if constexpr (std::is_same_v<Op, step::TypicalP>) {
          return {Kind::typical_p, op.p, 0, 0};
        } else if constexpr (std::is_same_v<Op, step::Entropy>) {
          return {Kind::entropy, op.entropy, 0, 0};
        } else if constexpr (std::is_same_v<Op, step::EntropyClip>) {
          return {Kind::entropy_clip, op.min_entropy, op.max_entropy, 0};
        } else if constexpr (std::is_same_v<Op, step::Epsilon>) {
          return {Kind::epsilon, op.epsilon, 0, 0};
        } else if constexpr (std::is_same_v<Op, step::Eta>) {
          return {Kind::eta, op.epsilon, 0, 0};
        } else if constexpr (std::is_same_v<Op, step::TopNSigma>) {
          return {Kind::top_n_sigma, op.n, 0, 0};
        } else if constexpr (std::is_same_v<Op, step::TopH>) {
          return {Kind::top_h, op.share, 0, 0};
        } else if constexpr (std::is_same_v<Op, step::PLess>) {
          return {Kind::p_less, 0, 0, 0};
        } else if constexpr (!why_no_kernel<Op>().empty()) {
          refuse_kernel<Op>();
        } else {
          static_assert(sizeof(Op) == 0, "a step that the kernels do not know");
        }
      },
      step);
}

// A call without addresses: its rows and steps.
template <class T>
SampleCall shape_of_sampling(std::span<const Step> steps, std::size_t rows, std::size_t cols) {
  SampleCall call = {{Sample{}, rows, cols, {}, {}}};
  call.in[0] = rows_of(MatrixView<const T>());
  for (const Step& step : steps.first(std::min<std::size_t>(steps.size(), SampleCall::kMostSteps))) {
    call.step[call.steps++] = chain_step(step);
  }
  return call;
}

template <class T>
SampleCall sample_call(std::string_view name, std::span<const Step> steps, const MatrixView<const T>& x,
                       const DeviceNoise& noise, std::span<std::byte> memory, std::size_t wanted) {
  check_layout(name, "x", x);
  if (x.cols > 0xffffffff) fail("{}: x must have fewer than 2^32 columns, got {}", name, x.cols);
  check_has_columns(name, "x", x);
  if (!noise.streams.empty()) check_size(name, "streams", noise.streams.size(), x.rows);
  if (!noise.positions.empty()) check_size(name, "positions", noise.positions.size(), x.rows);
  if (steps.size() > SampleCall::kMostSteps) {
    fail("{}: steps must be at most {} on a device, got {}", name, SampleCall::kMostSteps, steps.size());
  }
  for (const Step& step : steps) std::visit([](const auto& op) { check_params(op); }, step);
  check_memory(name, memory, wanted);
  SampleCall call = shape_of_sampling<T>(steps, x.rows, x.cols);
  call.in[0] = rows_of(x);
  call.memory = reinterpret_cast<std::uint8_t*>(memory.data());
  call.seed = noise.seed, call.stream = noise.stream, call.position = noise.position;
  call.streams = noise.streams.empty() ? nullptr : noise.streams.data();
  call.positions = noise.positions.empty() ? nullptr : noise.positions.data();
  call.seed_at = noise.seed_at, call.position_at = noise.position_at;
  return call;
}

template <class T>
void draw(std::string_view name, std::span<const Step> steps, const MatrixView<const T>& x, MatrixView<std::int64_t> indices,
          const DeviceNoise& noise, std::span<std::byte> memory, std::size_t wanted, Stream stream) {
  check_layout(name, "indices", indices);
  if (indices.rows != x.rows) fail("{}: indices must have a row for each of {} rows, got {}", name, x.rows, indices.rows);
  SampleCall call = sample_call<T>(name, steps, x, noise, memory, wanted);
  call.indices = indices.data, call.indices_stride = indices.row_stride, call.draws = indices.cols;
  if (indices.cols > 0) SamplingKernels<Working<T>>::sample(call, stream);
}

}  // namespace

template <class T>
std::size_t memory_for(const Sample& options, std::size_t rows, std::size_t cols) {
  const Step step = step::Temperature{options.temperature};
  return SamplingKernels<Working<T>>::memory(shape_of_sampling<T>(std::span(&step, 1), rows, cols));
}

template <class T>
std::size_t memory_for(std::span<const Step> steps, std::size_t rows, std::size_t cols) {
  SampleCall call = shape_of_sampling<T>(steps, rows, cols);
  call.out.data = &call;  // a distribution is wanted
  return SamplingKernels<Working<T>>::memory(call);
}

// Noisy scores of the whole batch, and what a draw or the map needs.
template <class T>
std::size_t memory_for(const GumbelSoftmax& /*options*/, std::size_t rows, std::size_t cols) {
  using W = Working<T>;
  return room_of_rows<W>(rows, cols) + std::max(memory_for<T>(Sample{}, rows, cols), Kernels<Softmax, W>::memory(rows, cols));
}

template <class T>
void sample(const Sample& options, MatrixView<const T> x, MatrixView<std::int64_t> indices, DeviceNoise noise,
            std::span<std::byte> memory, Stream stream) {
  check_params(options);
  if (!options.replace)
    fail("{}: replace must be true on a device: there is no kernel without", Described<Sample>::kDescription.name);
  const Step step = step::Temperature{options.temperature};
  draw<T>(Described<Sample>::kDescription.name, std::span(&step, 1), x, indices, noise, memory,
          memory_for<T>(options, x.rows, x.cols), stream);
}

template <class T>
void sample(std::span<const Step> steps, MatrixView<const T> x, MatrixView<std::int64_t> indices, DeviceNoise noise,
            std::span<std::byte> memory, Stream stream) {
  draw<T>("Sampler::sample", steps, x, indices, noise, memory, memory_for<T>(steps, x.rows, x.cols), stream);
}

template <class T>
void probs(std::span<const Step> steps, MatrixView<const T> x, MatrixView<std::type_identity_t<T>> p,
           std::span<std::byte> memory, Stream stream) {
  constexpr std::string_view kName = "Sampler::probs";
  check_map(kName, x, "p", p);
  SampleCall call = sample_call<T>(kName, steps, x, {}, memory, memory_for<T>(steps, x.rows, x.cols));
  call.out = rows_of(p);
  SamplingKernels<Working<T>>::sample(call, stream);
}

// Noisy scores, in the type of the computation, are kept in memory for softmax.
template <class T>
void gumbel_softmax(const GumbelSoftmax& options, MatrixView<const T> x, MatrixView<std::type_identity_t<T>> p,
                    DeviceNoise noise, std::span<std::byte> memory, Stream stream) {
  using W = Working<T>;
  constexpr std::string_view kName = Described<GumbelSoftmax>::kDescription.name;
  check_params(options);
  check_map(kName, x, "p", p);
  const Step step = step::Temperature{};
  SampleCall call = sample_call<T>(kName, std::span(&step, 1), x, noise, memory, memory_for<T>(options, x.rows, x.cols));
  if (options.hard) {
    call.out = rows_of(p), call.hard = true, call.draws = 1;
    return SamplingKernels<W>::sample(call, stream);
  }
  call.out = {call.memory, x.cols};
  call.memory += room_of_rows<W>(x.rows, x.cols);
  SamplingKernels<W>::add_noise(call, stream);
  Call<Softmax> map = {Softmax{.temperature = options.temperature}, x.rows, x.cols, {}, {}};
  map.in[0] = call.out, map.out = rows_of(p), map.memory = call.memory;
  Kernels<Softmax, W>::map(map, stream);
}

template <class T>
void gumbel_noise(MatrixView<T> g, DeviceNoise noise, std::span<std::byte> memory, Stream stream) {
  SampleCall call = sample_call<T>("gumbel_noise", {}, g, noise, memory, memory_for<T>(GumbelSoftmax{}, g.rows, g.cols));
  call.in[0] = {}, call.out = rows_of(g);
  SamplingKernels<T>::add_noise(call, stream);
}

namespace {

template <class T>
TokenCall token_call(const TokenStatistics& options, const MatrixView<const T>& x, std::span<const std::int64_t> target,
                     std::span<std::byte> memory, std::span<const PerRow> per_row, std::size_t top) {
  constexpr std::string_view kName = Described<TokenStatistics>::kDescription.name;
  check_common(options, per_row);
  check_layout(kName, "x", x);
  check_size(kName, "target", target.size(), x.rows);
  check_has_columns(kName, "x", x);
  if (x.cols > 0xffffffff) fail("{}: x must have fewer than 2^32 columns, got {}", kName, x.cols);
  if (top > x.cols) fail("{}: top must have at most one column for each of {} tokens, got {}", kName, x.cols, top);
  check_memory(kName, memory, memory_for<T>(options, x.rows, x.cols, top));
  TokenCall call = {{options, x.rows, x.cols, {}, {}}};
  call.per_row = places_of<TokenStatistics, const double>(per_row, x.rows);
  call.in[0] = rows_of(x);
  call.memory = reinterpret_cast<std::uint8_t*>(memory.data());
  call.target = target.data();
  return call;
}

}  // namespace

template <class T>
std::size_t memory_for(const TokenStatistics& /*options*/, std::size_t rows, std::size_t cols, std::size_t top) {
  return TokenKernels<T>::memory(rows, cols, top);
}

template <class T>
void token_statistics(const TokenStatistics& options, MatrixView<const T> x, std::span<const std::int64_t> target,
                      MatrixView<StatisticsOf<T>> statistics, MatrixView<std::int64_t> top, std::span<std::byte> memory,
                      Stream stream, std::span<const PerRow> per_row) {
  constexpr std::string_view kName = Described<TokenStatistics>::kDescription.name;
  check_shape(kName, "statistics", statistics, "four numbers for each row of x", x.rows, std::size_t{4});
  if (top.data == nullptr) top = {};
  if (top.data != nullptr) check_shape(kName, "top", top, "some columns and x's rows", x.rows, top.cols);
  TokenCall call = token_call<T>(options, x, target, memory, per_row, top.cols);
  call.out = rows_of(statistics);
  call.top = top.data, call.top_stride = top.row_stride, call.tops = top.cols;
  TokenKernels<T>::map(call, stream);
}

template <class T>
void token_statistics_vjp(const TokenStatistics& options, MatrixView<const T> x, std::span<const std::int64_t> target,
                          MatrixView<const StatisticsOf<T>> statistics, MatrixView<const StatisticsOf<T>> g,
                          MatrixView<std::type_identity_t<T>> dx, std::span<std::byte> memory, Stream stream,
                          std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  constexpr std::string_view kName = Described<TokenStatistics>::kDescription.name;
  check_shape(kName, "statistics", statistics, "four numbers for each row of x", x.rows, std::size_t{4});
  check_shape(kName, "g", g, "four numbers for each row of x", x.rows, std::size_t{4});
  check_shape(kName, "dx", dx, "x", x.rows, x.cols);
  check_overlap(kName, "dx", dx, "x", x);
  TokenCall call = token_call<T>(options, x, target, memory, per_row, 0);
  call.slopes = places_of<TokenStatistics, double>(gradients, x.rows);
  call.in[1] = rows_of(statistics), call.in[2] = rows_of(g), call.out = rows_of(dx);
  TokenKernels<T>::vjp(call, stream);
}

namespace {

template <class T>
void ask_rows(std::string_view name, CalibrationCall::Asked asked, double at, MatrixView<const T> x,
              std::span<const std::int64_t> labels, MatrixView<double> found, std::span<std::byte> memory, Stream stream) {
  check_layout(name, "x", x);
  check_size(name, "labels", labels.size(), x.rows);
  check_shape(name, "found", found, "four numbers for each row of x", x.rows, std::size_t{4});
  if (found.rows > 1 && found.row_stride != 4) fail("{}: found must have no gaps between rows", name);
  check_has_columns(name, "x", x);
  check_memory(name, memory, CalibrationKernels<T>::memory(x.rows, x.cols));
  CalibrationCall call = {{GammaForEntropy{.entropy = 1}, x.rows, x.cols, {}, {}}};
  call.in[0] = rows_of(x);
  call.memory = reinterpret_cast<std::uint8_t*>(memory.data());
  call.asked = asked, call.at = at, call.labels = labels.data(), call.found = found.data;
  CalibrationKernels<T>::run(call, stream);
}

}  // namespace

template <class T>
void calibration_facts(MatrixView<const T> x, std::span<const std::int64_t> labels, MatrixView<double> found,
                       std::span<std::byte> memory, Stream stream) {
  ask_rows("calibration_facts", CalibrationCall::facts, 1, x, labels, found, memory, stream);
}

template <class T>
void temperature_slopes(double beta, MatrixView<const T> x, std::span<const std::int64_t> labels, MatrixView<double> found,
                        std::span<std::byte> memory, Stream stream) {
  if (!(beta > 0 && std::isfinite(beta))) fail("temperature_slopes: beta must be above 0 and finite, got {}", beta);
  ask_rows("temperature_slopes", CalibrationCall::slopes, beta, x, labels, found, memory, stream);
}

template <class T>
void target_entropy_losses(double entropy, MatrixView<const T> x, std::span<const std::int64_t> labels,
                           MatrixView<double> found, std::span<std::byte> memory, Stream stream) {
  check_params(GammaForEntropy{.entropy = entropy});
  ask_rows("target_entropy_losses", CalibrationCall::loss, entropy, x, labels, found, memory, stream);
}

// Instantiates every function for every type.
#define ISENTROPIC_CUDA(T)                                                                                                     \
  template void apply(const Map&, MatrixView<const T>, MatrixView<T>, std::span<std::byte>, Stream, std::span<const PerRow>);  \
  template void apply_vjp(const Map&, MatrixView<const T>, MatrixView<const T>, MatrixView<const T>, MatrixView<T>,            \
                          std::span<std::byte>, Stream, std::span<const PerRow>, std::span<const ParamGradient>);              \
  template void log_softmax(const LogSoftmax&, MatrixView<const T>, MatrixView<T>, std::span<std::byte>, Stream,               \
                            std::span<const PerRow>);                                                                          \
  template void log_softmax_vjp(const LogSoftmax&, MatrixView<const T>, MatrixView<const T>, MatrixView<const T>,              \
                                MatrixView<T>, std::span<std::byte>, Stream, std::span<const PerRow>,                          \
                                std::span<const ParamGradient>);                                                               \
  template void logsumexp(const LogSumExp&, MatrixView<const T>, MatrixView<T>, std::span<std::byte>, Stream,                  \
                          std::span<const PerRow>);                                                                            \
  template void logsumexp_vjp(const LogSumExp&, MatrixView<const T>, MatrixView<const T>, MatrixView<T>, std::span<std::byte>, \
                              Stream, std::span<const PerRow>, std::span<const ParamGradient>);                                \
  template std::size_t memory_for<T>(const Map&, std::size_t, std::size_t);                                                    \
  template std::size_t memory_for<T>(const LogSoftmax&, std::size_t, std::size_t);                                             \
  template std::size_t memory_for<T>(const LogSumExp&, std::size_t, std::size_t);                                              \
  template std::size_t memory_for<T>(const Measure&, std::size_t, std::size_t);                                                \
  template std::size_t memory_for<T>(const Divergence&, std::size_t, std::size_t);                                             \
  template std::size_t memory_for<T>(const GammaForEntropy&, std::size_t, std::size_t);                                        \
  template std::size_t memory_for_calibration<T>(std::size_t, std::size_t);                                                    \
  template std::size_t memory_for<T>(const Loss&, std::size_t, std::size_t);                                                   \
  template void loss(const Loss&, MatrixView<const T>, std::span<const std::int64_t>, std::span<double>, MatrixView<T>,        \
                     std::span<std::byte>, Stream, std::span<const PerRow>, std::span<const ParamGradient>,                    \
                     std::optional<std::int64_t>);                                                                             \
  template void loss(const Loss&, MatrixView<const T>, MatrixView<const T>, std::span<double>, MatrixView<T>,                  \
                     std::span<std::byte>, Stream, std::span<const PerRow>, std::span<const ParamGradient>);                   \
  template void measure(const Measure&, MatrixView<const T>, std::span<double>, MatrixView<T>, std::span<std::byte>, Stream,   \
                        std::span<const PerRow>, std::span<const ParamGradient>);                                              \
  template void measure(const Divergence&, MatrixView<const T>, MatrixView<const T>, std::span<double>, MatrixView<T>,         \
                        MatrixView<T>, std::span<std::byte>, Stream);                                                          \
  template std::size_t memory_for<T>(const Sample&, std::size_t, std::size_t);                                                 \
  template std::size_t memory_for<T>(std::span<const Step>, std::size_t, std::size_t);                                         \
  template std::size_t memory_for<T>(const GumbelSoftmax&, std::size_t, std::size_t);                                          \
  template void sample(const Sample&, MatrixView<const T>, MatrixView<std::int64_t>, DeviceNoise, std::span<std::byte>,        \
                       Stream);                                                                                                \
  template void sample(std::span<const Step>, MatrixView<const T>, MatrixView<std::int64_t>, DeviceNoise,                      \
                       std::span<std::byte>, Stream);                                                                          \
  template void probs(std::span<const Step>, MatrixView<const T>, MatrixView<T>, std::span<std::byte>, Stream);                \
  template void gumbel_softmax(const GumbelSoftmax&, MatrixView<const T>, MatrixView<T>, DeviceNoise, std::span<std::byte>,    \
                               Stream);                                                                                        \
  template std::size_t memory_for<T>(const TokenStatistics&, std::size_t, std::size_t, std::size_t);                           \
  template void token_statistics(const TokenStatistics&, MatrixView<const T>, std::span<const std::int64_t>,                   \
                                 MatrixView<StatisticsOf<T>>, MatrixView<std::int64_t>, std::span<std::byte>, Stream,          \
                                 std::span<const PerRow>);                                                                     \
  template void token_statistics_vjp(const TokenStatistics&, MatrixView<const T>, std::span<const std::int64_t>,               \
                                     MatrixView<const StatisticsOf<T>>, MatrixView<const StatisticsOf<T>>, MatrixView<T>,      \
                                     std::span<std::byte>, Stream, std::span<const PerRow>, std::span<const ParamGradient>);   \
  template void calibration_facts(MatrixView<const T>, std::span<const std::int64_t>, MatrixView<double>,                      \
                                  std::span<std::byte>, Stream);                                                               \
  template void temperature_slopes(double, MatrixView<const T>, std::span<const std::int64_t>, MatrixView<double>,             \
                                   std::span<std::byte>, Stream);                                                              \
  template void target_entropy_losses(double, MatrixView<const T>, std::span<const std::int64_t>, MatrixView<double>,          \
                                      std::span<std::byte>, Stream)
ISENTROPIC_CUDA(float);
ISENTROPIC_CUDA(double);
ISENTROPIC_CUDA(float16);
ISENTROPIC_CUDA(bfloat16);
#undef ISENTROPIC_CUDA
template void gamma_for_entropy(const GammaForEntropy&, MatrixView<const float>, std::span<double>, std::span<double>,
                                std::span<int>, std::span<std::byte>, Stream, std::span<const PerRow>);
template void gamma_for_entropy(const GammaForEntropy&, MatrixView<const double>, std::span<double>, std::span<double>,
                                std::span<int>, std::span<std::byte>, Stream, std::span<const PerRow>);
template void gumbel_noise(MatrixView<float>, DeviceNoise, std::span<std::byte>, Stream);
template void gumbel_noise(MatrixView<double>, DeviceNoise, std::span<std::byte>, Stream);

}  // namespace cuda
}  // namespace isentropic::inline ISENTROPIC_ABI
