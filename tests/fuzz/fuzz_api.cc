// Any shape, stride, overlap, parameter and number through every public function: it writes results only inside its outputs, or
// throws std::invalid_argument before it writes. Sanitizers watch the rest: memory ends where the numbers do.
#include <fuzzer/FuzzedDataProvider.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "isentropic/isentropic.h"

namespace isentropic {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

struct Bytes : FuzzedDataProvider {
  using FuzzedDataProvider::FuzzedDataProvider;

  std::size_t up_to(std::size_t most) { return ConsumeIntegralInRange<std::size_t>(0, most); }
  bool flag() { return ConsumeBool(); }
  double number() {
    const double known[] = {kNaN, kInfinity, -kInfinity, 0,      -0.0,  -1,     1,     0.5,
                            2,    1.5,       5e-324,     1e-300, 1e300, -1e300, 1e-40, 3.4e38};
    const std::size_t index = up_to(std::size(known) + 4);
    if (index < std::size(known)) return known[index];
    const auto bits = ConsumeIntegral<std::uint64_t>();
    return index % 2 == 0 ? std::bit_cast<double>(bits) : static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-61;
  }
  std::int64_t integer() {
    const std::int64_t known[] = {
        std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), -1, 0, 1, 2};
    const std::size_t index = up_to(std::size(known) + 2);
    return index < std::size(known) ? known[index] : ConsumeIntegralInRange<std::int64_t>(-3, 70);
  }
};

template <class T>
T to(double value) {
  if constexpr (kIsHalf<T>) {
    return T(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return T(7);
  } else {
    return static_cast<T>(value);
  }
}

template <class Family>
Family random_of(Bytes& bytes);

template <class Op, class Value>
Value random_value(Bytes& bytes, const Param<Op, Value>& param) {
  if constexpr (std::is_enum_v<Value>) {
    return static_cast<Value>(bytes.up_to(param.names.size() + 1));
  } else if constexpr (std::is_same_v<Value, bool>) {
    return bytes.flag();
  } else if constexpr (std::is_integral_v<Value>) {
    const std::int64_t value = bytes.integer();
    return param.name == "max_iterations" ? std::min<std::int64_t>(value, 50) : value;  // it ends, but when
  } else if constexpr (std::is_same_v<Value, double>) {
    return bytes.number();
  } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
    return std::vector<std::int64_t>(bytes.up_to(3), bytes.integer());
  } else if constexpr (std::is_same_v<Value, Map>) {
    return random_of<Map>(bytes);
  } else {
    if (bytes.flag()) return {};
    return bytes.number();
  }
}

// Sets some parameters at random, and leaves the others.
template <class Op>
Op random_op(Bytes& bytes) {
  Op op = typical<Op>();
  for_each_param<Op>([&](const auto& param) {
    if (bytes.flag()) op.*param.member = random_value(bytes, param);
  });
  return op;
}

template <class Family>
Family random_of(Bytes& bytes) {
  Family family;
  const std::size_t index = bytes.up_to(std::variant_size_v<Family> - 1);
  std::size_t i = 0;
  for_each_operation<Family>([&]<class Op>(std::type_identity<Op>) {
    if (i++ == index) family = random_op<Op>(bytes);
  });
  return family;
}

[[noreturn]] void fault(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// The arguments of a call: memory that ends where they do, and a copy of its contents before the call.
class Call {
 public:
  explicit Call(Bytes& bytes) : rows(bytes.up_to(9)), cols(bytes.flag() ? bytes.up_to(9) : bytes.up_to(140)), bytes_(bytes) {}

  std::size_t rows, cols;

  // A matrix to read: mostly of this shape, of any numbers, or of 0 and 1 so that it may be a distribution.
  template <class T>
  MatrixView<T> in(std::size_t r, std::size_t c) {
    if (bytes_.up_to(19) == 0) r = bytes_.up_to(9);
    if (bytes_.up_to(19) == 0) c = bytes_.up_to(9);
    std::size_t stride = c + (bytes_.flag() ? 0 : bytes_.up_to(5));
    const std::size_t count = r == 0 ? 0 : (r - 1) * stride + c;
    T* const data = block<T>(count + (bytes_.flag() ? 0 : 5));
    fill(data, count);
    if (bytes_.up_to(2) == 0 && c > 0) {
      for (std::size_t i = 0; i < r; ++i) {
        for (std::size_t j = 0; j < c; ++j) data[i * stride + j] = to<T>(j == i % c ? 1 : 0);
      }
    }
    if (bytes_.up_to(29) == 0) stride = bytes_.up_to(stride);  // too small for more than one row
    // Not without columns: that is allowed, and row r would then be an offset to null, which sanitizers report.
    if (c > 0 && bytes_.up_to(29) == 0) return {nullptr, r, c, stride};
    return {data, r, c, stride};
  }

  // A matrix to write: its own memory, that of an input, or a part of an input.
  template <class T>
  MatrixView<T> out(std::size_t r, std::size_t c, MatrixView<T> input = {}) {
    if (input.data == nullptr || bytes_.flag()) {
      const MatrixView<T> view = in<T>(r, c);
      blocks_.back().written = true;
      return view;
    }
    for (Block& known : blocks_) {
      if (known.begin != reinterpret_cast<char*>(input.data)) continue;
      known.written = true;
      const std::size_t end = input.rows == 0 ? 0 : (input.rows - 1) * input.row_stride + input.cols;
      if (bytes_.flag() && (end + 1) * sizeof(T) <= known.size) ++input.data;
    }
    return input;
  }

  template <class T>
  std::span<T> some(std::size_t n, bool written) {
    if (bytes_.up_to(29) == 0) n = bytes_.up_to(9);
    T* const data = block<T>(n);
    blocks_.back().written = written;
    if constexpr (std::is_same_v<T, std::int64_t>) {
      for (std::size_t i = 0; i < n; ++i)
        data[i] = bytes_.up_to(9) == 0 ? bytes_.integer() : static_cast<std::int64_t>(i % (cols + 1));
    } else if constexpr (std::is_floating_point_v<T>) {
      fill(data, n);
    }
    return {data, n};
  }

  template <class T>
  HeadsView<T> heads(std::size_t batch, std::size_t heads, std::size_t r, std::size_t c, bool written) {
    if (bytes_.up_to(29) == 0) r = bytes_.up_to(9);
    T* const data = block<T>(batch * heads * r * c);
    blocks_.back().written = written;
    fill(data, batch * heads * r * c);
    return {data, batch, heads, r, c};
  }

  template <class F>
  void run(F&& call) {
    for (Block& block : blocks_) block.before.assign(block.begin, block.begin + block.size);
    bool refused = false;
    try {
      call();
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    for (const Block& block : blocks_) {
      const bool same = block.size == 0 || std::memcmp(block.begin, block.before.data(), block.size) == 0;
      if (!same && refused) fault("refused, and written");
      if (!same && !block.written) fault("an input was written");
    }
  }

 private:
  struct Block {
    char* begin;
    std::size_t size;
    bool written;
    std::shared_ptr<void> memory;
    std::vector<char> before;
  };

  template <class T>
  T* block(std::size_t n) {
    const std::shared_ptr<T[]> memory(new T[n]());
    blocks_.push_back({reinterpret_cast<char*>(memory.get()), n * sizeof(T), false, memory, {}});
    return memory.get();
  }

  // Repeats seven numbers: bytes of the fuzzer's input are scarce.
  template <class T>
  void fill(T* data, std::size_t n) {
    double few[7];
    for (double& value : few) value = bytes_.number();
    const bool finite = bytes_.flag();
    for (std::size_t i = 0; i < n; ++i) {
      const double value = few[(i * i + i / 7) % 7];
      data[i] = to<T>(finite && !(std::abs(value) < 1e30) ? static_cast<double>(i % 3) : value);
    }
  }

  Bytes& bytes_;
  std::vector<Block> blocks_;
};

// A parameter for each row, with its name or another.
struct ForEachRow {
  std::vector<PerRow> values;
  std::vector<ParamGradient> gradients;
};
ForEachRow for_each_row(Bytes& bytes, Call& call) {
  ForEachRow result;
  if (bytes.up_to(3) != 0) return result;
  const std::string_view names[] = {"alpha", "entropy", "perplexity", "min_entropy", "temperature", ""};
  const std::string_view name = names[bytes.up_to(std::size(names) - 1)];
  result.values.push_back({name, call.some<double>(call.rows, false)});
  if (bytes.flag()) result.gradients.push_back({name, call.some<double>(call.rows, true)});
  return result;
}

template <class T>
void fuzz_maps(Bytes& bytes) {
  Call call(bytes);
  const Map map = random_of<Map>(bytes);
  const auto x = call.in<T>(call.rows, call.cols);
  const ForEachRow own = for_each_row(bytes, call);
  const auto p = call.out<T>(call.rows, call.cols, x);
  if (bytes.flag()) return call.run([&] { apply<T>(map, x, p, own.values); });
  const auto g = call.in<T>(call.rows, call.cols);
  const auto dx = call.out<T>(call.rows, call.cols, bytes.flag() ? g : x);
  call.run([&] { apply_vjp<T>(map, x, p, g, dx, own.values, own.gradients); });
}

template <class T>
void fuzz_log_softmax(Bytes& bytes) {
  Call call(bytes);
  const bool one = bytes.flag();
  const std::size_t width = one ? 1 : call.cols;
  const auto x = call.in<T>(call.rows, call.cols), g = call.in<T>(call.rows, width);
  const auto y = call.out<T>(call.rows, width, one ? MatrixView<T>() : x), dx = call.out<T>(call.rows, call.cols, x);
  const auto log = random_op<LogSoftmax>(bytes);
  const auto sum = random_op<LogSumExp>(bytes);
  const auto chosen = random_op<SoftTopK>(bytes);
  const bool forward = bytes.flag(), selects = bytes.flag();
  call.run([&] {
    if (!one && selects && forward) return soft_top_k<T>(chosen, x, y);
    if (!one && selects) return soft_top_k_vjp<T>(chosen, x, y, g, dx);
    if (one && forward) logsumexp<T>(sum, x, y);
    if (one && !forward) logsumexp_vjp<T>(sum, x, y, g, dx);
    if (!one && forward) log_softmax<T>(log, x, y);
    if (!one && !forward) log_softmax_vjp<T>(log, x, y, g, dx);
  });
}

template <class T>
void fuzz_losses(Bytes& bytes) {
  Call call(bytes);
  Loss op = random_of<Loss>(bytes);
  std::visit(
      [&](auto& o) {
        if constexpr (requires { o.map; }) o.map = random_of<Map>(bytes);
      },
      op);
  const auto x = call.in<T>(call.rows, call.cols);
  const ForEachRow own = for_each_row(bytes, call);
  const auto value = call.some<double>(call.rows, true);
  const auto dx = bytes.flag() ? MatrixView<T>() : call.out<T>(call.rows, call.cols, x);
  const std::optional<std::int64_t> ignored = bytes.flag() ? std::optional<std::int64_t>() : bytes.integer();
  if (bytes.flag()) {
    const auto classes = call.some<std::int64_t>(call.rows, false);
    return call.run([&] { loss<T>(op, MatrixView<const T>(x), classes, value, dx, own.values, own.gradients, ignored); });
  }
  const auto target = call.in<T>(call.rows, call.cols);
  call.run([&] { loss<T>(op, MatrixView<const T>(x), target, value, dx, own.values, own.gradients); });
}

template <class T>
void fuzz_measures(Bytes& bytes) {
  Call call(bytes);
  const auto p = call.in<T>(call.rows, call.cols);
  const MatrixView<const T> px = p;
  const bool with = bytes.flag();
  switch (bytes.up_to(3)) {
    case 0: {
      const Measure op = random_of<Measure>(bytes);
      const auto value = call.some<double>(call.rows, true);
      const auto dp = with ? call.out<T>(call.rows, call.cols, p) : MatrixView<T>();
      return call.run([&] { measure<T>(op, px, value, dp); });
    }
    case 1: {
      const Divergence op = random_of<Divergence>(bytes);
      const auto q = call.in<T>(bytes.flag() ? 1 : call.rows, call.cols);
      const auto value = call.some<double>(call.rows, true);
      const auto dp = with ? call.out<T>(call.rows, call.cols, p) : MatrixView<T>();
      const auto dq = with && bytes.flag() ? call.out<T>(call.rows, call.cols, q) : MatrixView<T>();
      return call.run([&] { measure<T>(op, px, q, value, dp, dq); });
    }
    case 2: {
      const TableMeasure op = random_of<TableMeasure>(bytes);
      const auto dp = with ? call.out<T>(call.rows, call.cols, p) : MatrixView<T>();
      return call.run([&] { measure<T>(op, px, dp); });
    }
    default: {
      const EntryMeasure op = random_of<EntryMeasure>(bytes);
      const auto value = call.out<T>(call.rows, call.cols, p);
      const auto dp = with ? call.out<T>(call.rows, call.cols, p) : MatrixView<T>();
      return call.run([&] { measure<T>(op, px, value, dp); });
    }
  }
}

template <class T>
void fuzz_entropy_control(Bytes& bytes) {
  Call call(bytes);
  const auto x = call.in<T>(call.rows, call.cols);
  const ForEachRow own = for_each_row(bytes, call);
  switch (bytes.up_to(4)) {
    case 0: {
      const auto op = random_op<GammaForEntropy>(bytes);
      const auto gamma = call.some<double>(call.rows, true), entropy = call.some<double>(call.rows, true);
      const auto status = call.some<GammaStatus>(call.rows, true);
      return call.run([&] { gamma_for_entropy<T>(op, x, gamma, entropy, status, own.values); });
    }
    case 1: {
      const auto op = random_op<PowerTransform>(bytes);
      const auto q = call.out<T>(call.rows, call.cols, x);
      return call.run([&] { power_transform<T>(op, x, q, own.values); });
    }
    case 2: {
      const auto op = random_op<NormalizeDensity>(bytes);
      const auto weights = call.in<double>(bytes.flag() ? 1 : call.rows, call.cols);
      const auto q = call.out<T>(call.rows, call.cols, x);
      const auto result = call.some<Normalized>(call.rows, true);
      return call.run([&] { normalize_density<T>(op, x, weights, q, result, own.values); });
    }
    case 3: {
      const auto op = random_op<NormalizeJoint>(bytes);
      const auto table = call.out<T>(call.rows, call.cols, x);
      return call.run([&] { normalize_joint<T>(op, x, table); });
    }
    default: {
      const auto op = random_op<MeanFieldEntropy>(bytes);
      const auto estimate = call.some<double>(call.rows, true);
      return call.run([&] { mean_field_entropy<T>(op, x, estimate); });
    }
  }
}

template <class T>
void fuzz_sampling(Bytes& bytes) {
  Call call(bytes);
  const auto x = call.in<T>(call.rows, call.cols);
  const auto streams = call.some<std::uint64_t>(bytes.flag() ? 0 : call.rows, false);
  const Noise noise = {bytes.ConsumeIntegral<std::uint64_t>(), bytes.ConsumeIntegral<std::uint64_t>(),
                       bytes.ConsumeIntegral<std::uint64_t>(), streams};
  const auto p = call.out<T>(call.rows, call.cols, x);
  const auto indices = call.out<std::int64_t>(call.rows, bytes.up_to(3));
  std::vector<Step> steps(bytes.up_to(4));
  for (Step& step : steps) step = random_of<Step>(bytes);
  const std::size_t length = bytes.up_to(9);
  std::vector<std::int64_t> text(bytes.flag() ? 0 : call.rows * length);
  for (std::int64_t& token : text) token = bytes.integer();
  Texts texts;
  if (!text.empty()) texts.tokens = {text.data(), call.rows, length};
  const auto plain = random_op<Sample>(bytes);
  const auto relaxed = random_op<GumbelSoftmax>(bytes);
  switch (bytes.up_to(4)) {
    case 0:
      return call.run([&] { sample<T>(plain, MatrixView<const T>(x), indices, noise); });
    case 1:
      return call.run([&] { Sampler(steps, 1).probs<T>(x, p, texts); });
    case 2:
      return call.run([&] { Sampler(steps, 1).sample<T>(MatrixView<const T>(x), indices, noise, texts); });
    case 3:
      return call.run([&] { gumbel_softmax<T>(relaxed, x, p, noise); });
    default:
      return call.run([&] { gumbel_noise<T>(p, noise); });
  }
}

template <class T>
void fuzz_attention(Bytes& bytes) {
  Call call(bytes);
  const std::size_t batch = bytes.up_to(2), kv = bytes.up_to(2), queries = call.rows, keys = bytes.up_to(70),
                    d = bytes.up_to(9);
  const std::size_t heads = kv * (1 + bytes.up_to(1)), dv = bytes.up_to(9);
  const auto q = call.heads<T>(batch, heads, queries, d, false), k = call.heads<T>(batch, kv, keys, d, false);
  const auto v = call.heads<T>(batch, kv, keys, dv, false), g = call.heads<T>(batch, heads, queries, dv, false);
  const auto out = call.heads<T>(batch, heads, queries, dv, true), dq = call.heads<T>(batch, heads, queries, d, true);
  const auto dk = call.heads<T>(batch, kv, keys, d, true), dvalue = call.heads<T>(batch, kv, keys, dv, true);
  Attention op = random_op<Attention>(bytes);
  op.map = random_of<Map>(bytes);
  op.causal = bytes.flag();
  LinearAttention linear = random_op<LinearAttention>(bytes);
  linear.causal = op.causal;
  AttentionDetails<T> details;
  if (bytes.flag()) details.weights = call.heads<T>(batch, heads, queries, keys, true);
  if (bytes.flag()) details.entropy = call.some<T>(batch * heads * queries, true);
  AttentionMask<T> mask;
  const auto additive = call.some<T>(keys, false);
  if (bytes.flag() && additive.size() >= keys) mask.additive = {additive.data(), 0, 0, 0, 1};
  const bool with_sinks = bytes.flag();
  const auto sinks = call.some<T>(with_sinks ? batch * heads * queries : 0, false);
  const auto dsinks = call.some<T>(with_sinks ? batch * heads * queries : 0, true);
  switch (bytes.up_to(3)) {
    case 0:
      return call.run([&] { attention<T>(op, q, k, v, out, mask, {}, details, sinks); });
    case 1:
      return call.run([&] { attention_vjp<T>(op, q, k, v, g, dq, dk, dvalue, mask, {}, {}, {}, sinks, dsinks); });
    case 2:
      return call.run([&] { linear_attention<T>(linear, q, k, v, out); });
    default:
      return call.run([&] { linear_attention_vjp<T>(linear, q, k, v, g, dq, dk, dvalue); });
  }
}

template <class T>
void fuzz_transport(Bytes& bytes) {
  Call call(bytes);
  const std::size_t k = bytes.up_to(3), n = bytes.up_to(9), m = bytes.up_to(9);
  const auto a = call.in<T>(k, n), b = call.in<T>(k, m), cost = call.in<T>(bytes.flag() ? n : k * n, m);
  const auto f = call.out<T>(k, n), g = call.out<T>(k, m), plan = bytes.flag() ? MatrixView<T>() : call.out<T>(k * n, m);
  const auto span_of = [](MatrixView<T> view) {
    return std::span<const T>(view.data, view.data == nullptr ? 0 : view.cols * (view.rows > 0));
  };
  switch (bytes.up_to(12)) {
    case 10: {
      const auto result = call.some<UnbalancedSinkhornResult>(k, true);
      auto op = random_op<UnbalancedSinkhorn>(bytes);
      op.max_iterations = std::min<std::int64_t>(op.max_iterations, 50);
      return call.run([&] { unbalanced_sinkhorn<T>(op, a, b, cost, plan, f, g, result); });
    }
    case 11: {
      auto op = random_op<SinkhornBarycenter>(bytes);
      op.max_iterations = std::min<std::int64_t>(op.max_iterations, 50);
      const auto q = call.some<T>(m, true);
      return call.run([&] {
        sinkhorn_barycenter<T>(op, MatrixView<const T>(a), span_of(b), cost, q, f, bytes.flag() ? g : MatrixView<T>());
      });
    }
    case 12: {
      const auto op = random_op<SlicedWasserstein>(bytes);
      const std::size_t d = bytes.up_to(3);
      const auto x = call.in<T>(n, d), y = call.in<T>(m, d);
      const auto directions = call.in<double>(bytes.up_to(5), d);
      return call.run([&] {
        sliced_wasserstein<T>(op, MatrixView<const T>(x), MatrixView<const T>(y), span_of(a), span_of(b), directions);
      });
    }
    case 9: {
      const auto result = call.some<PartialTransportResult>(k, true);
      const auto op = random_op<PartialTransport>(bytes);
      return call.run([&] { partial_transport<T>(op, a, b, cost, plan, f, g, result); });
    }
    case 0: {
      const auto result = call.some<TransportResult>(k, true);
      const auto op = random_op<OptimalTransport>(bytes);
      return call.run([&] { optimal_transport<T>(op, a, b, cost, plan, f, g, result); });
    }
    case 1: {
      const auto result = call.some<SinkhornResult>(k, true);
      auto op = random_op<Sinkhorn>(bytes);
      op.max_iterations = std::min<std::int64_t>(op.max_iterations, 50);
      return call.run([&] { sinkhorn<T>(op, a, b, cost, plan, f, g, result); });
    }
    case 2: {
      const auto distance = call.some<double>(k, true);
      const auto op = random_op<Wasserstein1d>(bytes);
      const auto weights = bytes.flag() ? MatrixView<T>() : call.in<T>(k, n);
      return call.run(
          [&] { wasserstein_1d<T>(op, MatrixView<const T>(a), MatrixView<const T>(b), weights, {}, distance, f, g); });
    }
    case 3: {
      const auto distance = call.some<double>(k, true);
      const auto support = call.some<double>(n, false);
      const auto op = random_op<WassersteinHistogram>(bytes);
      const auto q = call.in<T>(k, n);
      return call.run(
          [&] { wasserstein_histogram<T>(op, MatrixView<const T>(a), MatrixView<const T>(q), support, distance, f); });
    }
    case 4: {
      const auto op = random_op<Wasserstein>(bytes);
      const std::size_t d = bytes.up_to(3);
      const auto x = call.in<T>(n, d), y = call.in<T>(m, d);
      return call.run([&] { wasserstein<T>(op, MatrixView<const T>(x), MatrixView<const T>(y), span_of(a), span_of(b)); });
    }
    case 5: {
      auto op = random_op<SinkhornDivergence>(bytes);
      op.max_iterations = std::min<std::int64_t>(op.max_iterations, 50);
      const std::size_t d = bytes.up_to(3);
      const auto x = call.in<T>(n, d), y = call.in<T>(m, d);
      auto unequal = random_op<UnbalancedSinkhornDivergence>(bytes);
      unequal.max_iterations = op.max_iterations;
      if (bytes.up_to(1) == 1) {
        return call.run([&] {
          unbalanced_sinkhorn_divergence<T>(unequal, MatrixView<const T>(x), MatrixView<const T>(y), span_of(a), span_of(b));
        });
      }
      return call.run(
          [&] { sinkhorn_divergence<T>(op, MatrixView<const T>(x), MatrixView<const T>(y), span_of(a), span_of(b)); });
    }
    case 6: {
      const auto u = call.some<T>(n, false), v = call.some<T>(m, true);
      return call.run([&] { c_transform<T>(u, MatrixView<const T>(cost), v); });
    }
    case 7:
      return call.run([&] { dual_value<T>(span_of(f), span_of(g), span_of(a), span_of(b)); });
    default: {
      const auto u = call.some<T>(n, false);
      const auto distance = call.in<T>(n, n);
      return call.run([&] { lipschitz_constant<T>(u, MatrixView<const T>(distance)); });
    }
  }
}

template <class T>
void fuzz_calibration(Bytes& bytes) {
  Call call(bytes);
  const auto x = call.in<T>(call.rows, call.cols);
  const MatrixView<const T> rows = x;
  const auto labels = call.some<std::int64_t>(call.rows, false);
  const auto bins = random_op<ExpectedCalibrationError>(bytes);
  const auto scale = random_op<EntropyInvariantScale>(bytes);
  const auto n = call.some<double>(call.rows, false), to = call.some<double>(call.rows, true);
  const double d = bytes.number();
  switch (bytes.up_to(4)) {
    case 0:
      return call.run([&] { fit_temperature<T>(rows, labels); });
    case 1:
      return call.run([&] { fit_target_entropy<T>(rows, labels); });
    case 2:
      return call.run([&] { match_entropy<T>(rows); });
    case 3:
      return call.run([&] { expected_calibration_error<T>(bins, rows, labels); });
    default:
      return call.run([&] { entropy_invariant_scale(scale, n, d, to); });
  }
}

// Calls f with one of the types.
template <class... T, class F>
void with_one_of(Bytes& bytes, F&& f) {
  std::size_t index = bytes.up_to(sizeof...(T) - 1);
  ((index-- == 0 ? f(std::type_identity<T>{}) : void()), ...);
}

void fuzz(Bytes& bytes) {
  const std::size_t family = bytes.up_to(9);
  if (family < 6) {
    return with_one_of<float, double, float16, bfloat16>(bytes, [&]<class T>(std::type_identity<T>) {
      if (family < 2) return fuzz_maps<T>(bytes);
      if (family == 2) return fuzz_log_softmax<T>(bytes);
      if (family == 3) return fuzz_losses<T>(bytes);
      fuzz_measures<T>(bytes);
    });
  }
  with_one_of<float, double>(bytes, [&]<class T>(std::type_identity<T>) {
    if (family == 6) return fuzz_entropy_control<T>(bytes);
    if (family == 7) return fuzz_sampling<T>(bytes);
    if (family == 8) return fuzz_attention<T>(bytes);
    if (bytes.up_to(4) == 0) return fuzz_calibration<T>(bytes);
    fuzz_transport<T>(bytes);
  });
}

}  // namespace
}  // namespace isentropic

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  isentropic::Bytes bytes(data, size);
  isentropic::fuzz(bytes);
  return 0;
}
