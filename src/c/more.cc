// The C interface's chains of steps, attention and transport.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "src/c/call.h"

namespace isentropic::inline ISENTROPIC_ABI::by_name {

// Stores integers in an array of 32 or 64 bits.
void store_integers(const Given& to, std::span<const std::int64_t> from) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto small = static_cast<std::int32_t>(from[i]);
    std::memcpy(to.at(i / to.cols(), i % to.cols()), to.type == ISENTROPIC_INT32 ? static_cast<const void*>(&small) : &from[i],
                size_of(to.type));
  }
}

const Given& checked_indices(const Call& call) {
  const Given& indices = call["indices"];
  if (indices.type != ISENTROPIC_INT32 && indices.type != ISENTROPIC_INT64) {
    fail("{}: indices must be int32 or int64", call.where());
  }
  if (indices.rows() != call["x"].rows()) {
    fail("{}: indices must have a row for each of {} rows of x, got {}", call.where(), call["x"].rows(), indices.rows());
  }
  return indices;
}

void run_sampler(Call& call) {
  const Sampler sampler(call.steps(), call.seed());
  if (!call.info().drawn) {
    return on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t) {
      sampler.probs<T>(b[0].matrix<const T>(), b[1].matrix<T>());
    });
  }
  const Given& indices = checked_indices(call);
  std::vector<std::int64_t> drawn(indices.rows() * indices.cols());
  std::vector<std::uint64_t> streams;
  on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    sampler.sample<T>(b[0].matrix<const T>(), MatrixView(drawn.data() + first * indices.cols(), b[0].rows, indices.cols()),
                      call.noise(first, b[0].rows, streams));
  });
  store_integers(indices, drawn);
}

namespace {

// Calls run(type) for float32 and float64.
template <class Run>
void on_wide_type(const Call& call, const Given& first, const Run& run) {
  refuse_halves(call, first);
  on_type(call, first, [&]<class T>(std::type_identity<T> type) {
    if constexpr (!kIsHalf<T>) run(type);
  });
}

// The rows of an array as batch x heads x rows of a head.
template <class T>
HeadsView<T> heads_of(const Call& call, std::string_view name, const Given& first, std::size_t heads) {
  const MatrixView<T> all = matrix_of<T>(call, name, first);
  if (call.find(name) == nullptr) return {};
  const std::size_t rows = all.rows / heads / call.batch();
  if (rows * heads * call.batch() != all.rows) {
    fail("{}: {} must have a multiple of batch x heads = {} x {} rows, got {}", call.where(), name, call.batch(), heads,
         all.rows);
  }
  HeadsView<T> view(all.data, call.batch(), heads, rows, all.cols);
  view.row_stride = static_cast<std::ptrdiff_t>(all.row_stride);
  view.head_stride = view.row_stride * static_cast<std::ptrdiff_t>(rows);
  view.batch_stride = view.head_stride * static_cast<std::ptrdiff_t>(heads);
  return view;
}

template <class T>
AttentionMask<T> mask_of(const Call& call, const Given& first, HeadsView<const T> q, std::size_t keys) {
  const Given* const given = call.find("mask");
  if (given == nullptr) return {};
  if (given->type != first.type) fail("{}: mask must be of the type of q", call.where());
  const std::size_t all = q.batch * q.heads * q.rows;
  if (given->cols() != keys || (given->rows() != q.rows && given->rows() != all)) {
    fail("{}: mask must have shape ({}, {}), the same for all heads, or ({}, {}), got {}", call.where(), q.rows, keys, all,
         keys, shape_text(given->shape));
  }
  constexpr auto kItem = static_cast<std::ptrdiff_t>(sizeof(T));
  MaskView<T> view = {reinterpret_cast<const T*>(given->data), 0, 0, given->strides[0] / kItem, given->strides[1] / kItem};
  if (given->rows() == all) {
    view.head_stride = view.row_stride * static_cast<std::ptrdiff_t>(q.rows);
    view.batch_stride = view.head_stride * static_cast<std::ptrdiff_t>(q.heads);
  }
  return {.visible = {}, .additive = view};
}

// The numbers of an array with one column or one row, as T.
template <class T>
std::vector<T> numbers_of(const Call& call, std::string_view name) {
  const Given* const given = call.find(name);
  if (given == nullptr) return {};
  if (given->cols() != 1 && given->rows() != 1) {
    fail("{}: {} must have one row or one column, got shape {}", call.where(), name, shape_text(given->shape));
  }
  if (given->type != ISENTROPIC_FLOAT32 && given->type != ISENTROPIC_FLOAT64) {
    fail("{}: {} must be float32 or float64", call.where(), name);
  }
  std::vector<T> numbers;
  for (std::size_t r = 0; r < given->rows(); ++r) {
    for (std::size_t c = 0; c < given->cols(); ++c) {
      const char* const at = given->at(r, c);
      numbers.push_back(given->type == ISENTROPIC_FLOAT32 ? static_cast<T>(read<float>(at)) : static_cast<T>(read<double>(at)));
    }
  }
  return numbers;
}

template <class T>
void attend(Call& call, bool vjp) {
  const Given& first = call["q"];
  const AttentionOperation op = make<AttentionOperation>(call.info(), call.values());
  const auto* const linear = std::get_if<LinearAttention>(&op);
  const std::size_t heads = call.heads(), kv_heads = call.kv_heads();
  const auto q = heads_of<const T>(call, "q", first, heads);
  const auto k = heads_of<const T>(call, "k", first, kv_heads), v = heads_of<const T>(call, "v", first, kv_heads);
  const AttentionMask<T> mask = mask_of<T>(call, first, q, k.rows);
  if (vjp) {
    const auto g = heads_of<const T>(call, "grad", first, heads);
    const auto dq = heads_of<T>(call, "dq", first, heads);
    const auto dk = heads_of<T>(call, "dk", first, kv_heads), dv = heads_of<T>(call, "dv", first, kv_heads);
    if (linear != nullptr) return linear_attention_vjp<T>(*linear, q, k, v, g, dq, dk, dv);
    const std::vector<T> g_entropy = numbers_of<T>(call, "entropy_grad");
    return attention_vjp<T>(std::get<Attention>(op), q, k, v, g, dq, dk, dv, mask, {}, {}, g_entropy);
  }
  const auto out = heads_of<T>(call, "out", first, heads);
  if (linear != nullptr) return linear_attention<T>(*linear, q, k, v, out);
  AttentionDetails<T> details = {.weights = heads_of<T>(call, "weights", first, heads)};
  const Given* const wanted = call.find("entropy");
  if (wanted == nullptr) return attention<T>(std::get<Attention>(op), q, k, v, out, mask, {}, details);
  Column<double> entropy(call.where(), *wanted, first.rows());
  std::vector<T> found(first.rows());
  details.entropy = found;
  attention<T>(std::get<Attention>(op), q, k, v, out, mask, {}, details);
  std::copy(found.begin(), found.end(), entropy.all().begin());
  entropy.store();
}

// Stores of(i) for each problem i, if the array is wanted. toward: as for Column::store.
template <class Number, class Of>
void column_of(const Call& call, std::string_view name, std::size_t count, const Of& of, int toward = 0) {
  const Given* const given = call.find(name);
  if (given == nullptr) return;
  Column<Number> column(call.where(), *given, count);
  for (std::size_t i = 0; i < count; ++i) column.all()[i] = static_cast<Number>(of(i));
  column.store(toward);
}

template <class Result>
double cost_in(const Result& result) {
  if constexpr (requires { result.cost; }) {
    return result.cost;
  } else {
    return result.value;
  }
}

// A cost as it is stored: the array may be float32.
inline double stored(const Call& call, double cost) {
  return call["value"].type == ISENTROPIC_FLOAT32 ? static_cast<float>(cost) : cost;
}

// The gaps, which count what rounding to float32 changes in the costs.
template <class Result>
void gaps_of(const Call& call, std::span<const Result> results) {
  const auto gap = [&](std::size_t i) {
    const double cost = cost_in(results[i]), off = std::isfinite(cost) ? std::abs(cost - stored(call, cost)) : 0;
    return off == 0 ? results[i].gap : std::nextafter(results[i].gap + off, std::numeric_limits<double>::infinity());
  };
  column_of<double>(call, "gap", results.size(), gap, 1);
}

template <class T, class Result, class Options>
void plans(const Call& call, const Options& options, const auto& run, const auto& store) {
  const Given& first = call["a"];
  const auto a = matrix_of<const T>(call, "a", first), b = matrix_of<const T>(call, "b", first);
  const auto cost = matrix_of<const T>(call, "cost", first);
  auto f = matrix_of<T>(call, "f", first), g = matrix_of<T>(call, "g", first);
  std::vector<T> kept_f, kept_g;
  const auto or_own = [](MatrixView<T>& view, std::vector<T>& kept, MatrixView<const T> like) {
    if (view.data != nullptr || like.rows == 0) return;
    kept.resize(like.rows * like.cols);
    view = {kept.data(), like.rows, like.cols};
  };
  or_own(f, kept_f, a), or_own(g, kept_g, b);
  std::vector<Result> results(a.rows);
  run(options, a, b, cost, matrix_of<T>(call, "plan", first), f, g, std::span(results));
  for (const Result& one : results) {
    if (std::isfinite(cost_in(one)) && !std::isfinite(stored(call, cost_in(one)))) {
      fail("{}: the cost of the plan, {}, is beyond float32; pass value in float64", call.where(), cost_in(one));
    }
  }
  column_of<double>(call, "value", a.rows, [&](std::size_t i) { return cost_in(results[i]); });
  store(std::span<const Result>(results));
}

template <class T>
void transport(Call& call) {
  const Transport op = make<Transport>(call.info(), call.values());
  if (const auto* const exact = std::get_if<OptimalTransport>(&op)) {
    return plans<T, TransportResult>(
        call, *exact, [](const auto&... arguments) { optimal_transport<T>(arguments...); },
        [&](std::span<const TransportResult> results) {
          gaps_of(call, results);
          column_of<std::int64_t>(call, "status", results.size(), [&](std::size_t i) { return results[i].status; });
        });
  }
  const auto matrix = [&](std::string_view name, const Given& first) { return matrix_of<const T>(call, name, first); };
  const auto slope = [&](std::string_view name, const Given& first) { return matrix_of<T>(call, name, first); };
  if (const auto* const line = std::get_if<Wasserstein1d>(&op)) {
    const Given& u = call["u"];
    Column<double> value(call.where(), call["value"], u.rows());
    wasserstein_1d<T>(*line, matrix("u", u), matrix("v", u), matrix("u_weights", u), matrix("v_weights", u), value.all(),
                      slope("du", u), slope("dv", u));
    return value.store();
  }
  if (const auto* const line = std::get_if<WassersteinHistogram>(&op)) {
    const Given& p = call["p"];
    Column<double> value(call.where(), call["value"], p.rows());
    std::vector<double> support = numbers_of<double>(call, "support");
    if (call.find("support") == nullptr) {
      for (std::size_t i = 0; i < p.cols(); ++i) support.push_back(static_cast<double>(i));
    }
    wasserstein_histogram<T>(*line, matrix("p", p), matrix("q", p), support, value.all(), slope("dp", p), slope("dq", p));
    return value.store();
  }
  if constexpr (!kSmall) {
    if (const auto* const part = std::get_if<PartialTransport>(&op)) {
      return plans<T, PartialTransportResult>(
          call, *part, [](const auto&... arguments) { partial_transport<T>(arguments...); },
          [&](std::span<const PartialTransportResult> results) {
            column_of<double>(call, "multiplier", results.size(), [&](std::size_t i) { return results[i].multiplier; });
            gaps_of(call, results);
            column_of<std::int64_t>(call, "status", results.size(), [&](std::size_t i) { return results[i].status; });
          });
    }
    if (const auto* const smooth = std::get_if<Sinkhorn>(&op)) {
      return plans<T, SinkhornResult>(
          call, *smooth, [](const auto&... arguments) { sinkhorn<T>(arguments...); },
          [&](std::span<const SinkhornResult> all) {
            column_of<double>(call, "marginal_error", all.size(), [&](std::size_t i) { return all[i].marginal_error; });
            column_of<double>(
                call, "lower_bound", all.size(), [&](std::size_t i) { return all[i].lower_bound; }, -1);
            column_of<double>(
                call, "upper_bound", all.size(), [&](std::size_t i) { return all[i].upper_bound; }, 1);
            column_of<std::int64_t>(call, "iterations", all.size(), [&](std::size_t i) { return all[i].iterations; });
            column_of<std::int64_t>(call, "converged", all.size(), [&](std::size_t i) { return all[i].converged; });
          });
    }
    if (const auto* const unequal = std::get_if<UnbalancedSinkhorn>(&op)) {
      return plans<T, UnbalancedSinkhornResult>(
          call, *unequal, [](const auto&... arguments) { unbalanced_sinkhorn<T>(arguments...); },
          [&](std::span<const UnbalancedSinkhornResult> all) {
            gaps_of(call, all);
            column_of<std::int64_t>(call, "iterations", all.size(), [&](std::size_t i) { return all[i].iterations; });
            column_of<std::int64_t>(call, "converged", all.size(), [&](std::size_t i) { return all[i].converged; });
          });
    }
    if (const auto* const many = std::get_if<SinkhornBarycenter>(&op)) {
      const Given& p = call["p"];
      const auto cost = matrix("cost", p);
      const MatrixView<T> q = matrix_of<T>(call, "q", p);
      if (q.rows != 1) fail("{}: q must have one row, got {}", call.where(), q.rows);
      const std::vector<T> weights = numbers_of<T>(call, "weights");
      const SinkhornBarycenterResult result =
          sinkhorn_barycenter<T>(*many, matrix("p", p), weights, cost, std::span(q.row(0), q.cols));
      column_of<double>(call, "marginal_error", 1, [&](std::size_t) { return result.marginal_error; });
      column_of<std::int64_t>(call, "iterations", 1, [&](std::size_t) { return result.iterations; });
      column_of<std::int64_t>(call, "converged", 1, [&](std::size_t) { return result.converged; });
      return;
    }
    const Given& x = call["x"];
    Column<double> value(call.where(), call["value"], 1);
    const std::vector<T> a = numbers_of<T>(call, "a"), b = numbers_of<T>(call, "b");
    if (const auto* const sliced = std::get_if<SlicedWasserstein>(&op)) {
      const auto along = matrix("directions", x);
      std::vector<double> directions;
      for (std::size_t r = 0; r < along.rows; ++r) directions.insert(directions.end(), along.row(r), along.row(r) + along.cols);
      const SlicedWassersteinResult result = sliced_wasserstein<T>(
          *sliced, matrix("x", x), matrix("y", x), a, b, MatrixView<const double>(directions.data(), along.rows, along.cols));
      value.all()[0] = result.distance;
      column_of<double>(call, "error", 1, [&](std::size_t) { return result.error; });
    } else if (const auto* const points = std::get_if<Wasserstein>(&op)) {
      value.all()[0] = wasserstein<T>(*points, matrix("x", x), matrix("y", x), a, b, slope("plan", x));
    } else {
      value.all()[0] = sinkhorn_divergence<T>(std::get<SinkhornDivergence>(op), matrix("x", x), matrix("y", x), a, b);
    }
    value.store();
  }
}

}  // namespace

void run_attention(Call& call, bool vjp) {
  on_wide_type(call, call["q"], [&]<class T>(std::type_identity<T>) { attend<T>(call, vjp); });
}

void run_transport(Call& call) {
  const Given& first = call.first();
  refuse_halves(call, first);
  on_type<!kSmall>(call, first, [&]<class T>(std::type_identity<T>) {
    if constexpr (!kIsHalf<T>) transport<T>(call);
  });
}

}  // namespace isentropic::inline ISENTROPIC_ABI::by_name
