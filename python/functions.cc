// Functions for Python that are not calls by description: their arrays are not rows of one type, or they are not in the
// registry. Arrays have no gaps, and float32 or float64; the package converts others.

#include <isentropic/isentropic.h>
#include <isentropic/strided_rows.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings.h"
#include "matrices.h"
#include "params.h"

namespace isentropic {
namespace {

// Calls run(std::type_identity<T>{}) for float32 and float64, without the GIL.
template <class Run>
void on_type(Type type, const Run& run) {
  const nb::gil_scoped_release release;
  if (type == Type::float64) return run(std::type_identity<double>{});
  if (type == Type::float32) return run(std::type_identity<float>{});
  throw nb::type_error("an array of float32 or float64 is needed");
}

StridedArray strided(const Array& a) {
  const auto axes = static_cast<std::size_t>(a.ndim);
  return {a.data, {a.shape, axes}, {a.strides, axes}, static_cast<std::size_t>(a.item_size())};
}

// Whether a logarithm in a row is -inf though its score is not: the difference of scores may overflow.
template <class T>
bool overflows(const char* x, std::ptrdiff_t x_step, const char* y, std::ptrdiff_t y_step, std::ptrdiff_t n) {
  constexpr T kNothing = -std::numeric_limits<T>::infinity();
  const auto at = [](const char* a, std::ptrdiff_t step, std::ptrdiff_t j) {
    return *reinterpret_cast<const T*>(a + j * step);
  };
  constexpr std::ptrdiff_t kBlock = 128;
  for (std::ptrdiff_t begin = 0; begin < n; begin += kBlock) {
    const std::ptrdiff_t end = std::min(n, begin + kBlock);
    if (y_step == sizeof(T) && end - begin == kBlock) {  // few blocks have such a logarithm
      T block[kBlock];
      std::memcpy(block, y + begin * y_step, sizeof block);
      int some = 0;
      for (const T one : block) some |= one == kNothing;
      if (some == 0) continue;
    }
    for (std::ptrdiff_t j = begin; j < end; ++j) {
      if (at(y, y_step, j) == kNothing && at(x, x_step, j) != kNothing) return true;
    }
  }
  return false;
}

// Whether the first entry with mass of some row, where y is above `nothing`, has a score of +inf, which y does not show where
// several share the mass. For logarithms also whether a row is NaN, where absent entries do not show, or has entries that only
// seem absent.
template <class T>
bool needs_scores(const Array& x, const Array& y, std::size_t axis, bool logarithm) {
  const T nothing = logarithm ? -std::numeric_limits<T>::infinity() : T(0);
  const auto at = [](const Array& a, std::ptrdiff_t offset) { return *reinterpret_cast<const T*>(a.data + offset); };
  const std::ptrdiff_t n = x.shape[axis], x_step = x.strides[axis], y_step = y.strides[axis];
  std::ptrdiff_t index[kMaxDims] = {}, of_x = 0, of_y = 0, rows = n == 0 ? 0 : 1;
  for (int d = 0; d < x.ndim; ++d) rows *= d == static_cast<int>(axis) ? 1 : x.shape[d];
  for (std::ptrdiff_t row = 0; row < rows; ++row) {
    std::ptrdiff_t j = 0;
    if (y_step == sizeof(T) && !logarithm && at(y, of_y) == 0) {  // whole blocks of zeros at once
      using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
      constexpr std::ptrdiff_t kBlock = 128;
      for (Bits block[kBlock]; j + kBlock <= n; j += kBlock) {
        std::memcpy(block, y.data + of_y + j * y_step, sizeof block);
        Bits some = 0;
        for (const Bits one : block) some |= one;
        if (some != 0) break;
      }
    }
    while (j < n && !(at(y, of_y + j * y_step) > nothing)) ++j;
    if (j == n ? logarithm : at(x, of_x + j * x_step) == std::numeric_limits<T>::infinity()) return true;
    if (logarithm && overflows<T>(x.data + of_x, x_step, y.data + of_y, y_step, n)) return true;
    for (int d = x.ndim - 1; d >= 0; --d) {  // the next row
      if (d == static_cast<int>(axis)) continue;
      of_x += x.strides[d], of_y += y.strides[d];
      if (++index[d] < x.shape[d]) break;
      of_x -= x.strides[d] * x.shape[d], of_y -= y.strides[d] * y.shape[d], index[d] = 0;
    }
  }
  return false;
}

// Gumbel noise along an axis of g, which may have any strides. streams: one for each row, by index.
void noise(nb::handle array, nb::handle axis, std::uint64_t seed, const Vector<const std::uint64_t>& streams,
           std::uint64_t position) {
  const Buffer g("gumbel_noise", array, true);
  const RowArgument argument[] = {{.name = "g", .array = strided(*g), .output = true}};
  const StridedRows rows("gumbel_noise", argument, to_axis("gumbel_noise", axis, g->ndim, "g"), RowOrder::by_index);
  on_type(g->type, [&]<class T>(std::type_identity<T>) {
    rows.for_blocks([&](const RowBlock* blocks, std::size_t first) {
      const auto own = span(streams).subspan(first, blocks[0].rows);
      gumbel_noise(blocks[0].matrix<T>(), Noise{.seed = seed, .position = position, .streams = own});
    });
  });
}

// (gamma, entropy, least, most, name of the status).
nb::tuple to_tuple(const Normalized& result) {
  const auto status = kGammaStatusNames[static_cast<std::size_t>(result.status)];
  return nb::make_tuple(result.gamma, result.entropy, result.least, result.most, to_str(status));
}

// Densities of any strides. weights, in float64, may repeat along every other axis: one row for all. The target is one number,
// or one for each row. Returns the results for each row, by index.
nb::list density(nb::handle p, nb::handle weights, nb::handle q, nb::handle axis, nb::tuple values) {
  constexpr std::string_view kName = Described<NormalizeDensity>::kDescription.name;
  const GivenParams<NormalizeDensity> params(values);
  const Buffer in(kName, p, false), nodes(kName, weights, false), out(kName, q, true);
  const RowArgument arguments[] = {{.name = "p", .array = strided(*in)},
                                   {.name = "weights", .array = strided(*nodes), .one_for_all = true},
                                   {.name = "q", .array = strided(*out), .output = true}};
  const StridedRows rows(kName, arguments, to_axis(kName, axis, in->ndim, "p"), RowOrder::by_index);
  std::vector<PerRow> targets;
  for (const ParamValues::Array& one : params.arrays) targets.push_back({one.parameter, numbers(*one.buffer)});
  std::vector<Normalized> found(rows.count());
  on_type(in->type, [&]<class T>(std::type_identity<T>) {
    rows.for_blocks([&](const RowBlock* blocks, std::size_t first) {
      normalize_density(params.op, blocks[0].matrix<const T>(), blocks[1].matrix<const double>(), blocks[2].matrix<T>(),
                        std::span(found).subspan(first, blocks[0].rows), of_rows<PerRow>(targets, first, blocks[0].rows));
    });
  });
  nb::list results;
  for (const Normalized& result : found) results.append(to_tuple(result));
  return results;
}

using Labels = Vector<const std::int64_t>;
using Numbers = Vector<const double>;
using Output = Vector<double>;

// The options, with a tolerance for p's original type, which may differ from the library's own.
ExpectedCalibrationError options_of(nb::tuple values) { return to_params<ExpectedCalibrationError>(values).op; }

template <class T>
void bind_calibration(nb::module_& m) {
  m.def("fit_temperature", [](const Matrix<const T>& x, const Labels& labels, const Numbers& weights) {
    const nb::gil_scoped_release release;
    const FittedTemperature fitted = fit_temperature(view(x), span(labels), span(weights));
    return std::pair(fitted.temperature, fitted.clamped);
  });
  m.def("fit_target_entropy", [](const Matrix<const T>& x, const Labels& labels, const Numbers& weights) {
    const nb::gil_scoped_release release;
    return fit_target_entropy(view(x), span(labels), span(weights));
  });
  m.def("match_entropy", [](const Matrix<const T>& x, const Numbers& weights) {
    const nb::gil_scoped_release release;
    return match_entropy(view(x), span(weights));
  });
  m.def("expected_calibration_error",
        [](const Matrix<const T>& p, const Labels& labels, const Numbers& weights, nb::tuple values) {
          const ExpectedCalibrationError options = options_of(values);
          const nb::gil_scoped_release release;
          return expected_calibration_error(options, view(p), span(labels), span(weights));
        });
  m.def("reliability_bins", [](const Matrix<const T>& p, const Labels& labels, const Numbers& weights, nb::tuple values) {
    nb::list found;
    for (const ReliabilityBin& bin : reliability_bins(options_of(values), view(p), span(labels), span(weights))) {
      found.append(nb::make_tuple(bin.lower, bin.upper, bin.weight, bin.confidence, bin.accuracy));
    }
    return found;
  });
  m.def("brier_score", [](const Matrix<const T>& p, const Labels& labels, const Numbers& weights, double sum_tolerance) {
    const nb::gil_scoped_release release;
    return brier_score(view(p), span(labels), span(weights), sum_tolerance);
  });
}

template <class T>
void bind(nb::module_& m) {
  bind_calibration<T>(m);
  m.def(
      "normalize_joint",
      [](Matrix<const T> pxy, Matrix<T> table, nb::tuple values) {
        const auto params = to_params<NormalizeJoint>(values);
        Normalized result;
        {
          const nb::gil_scoped_release release;
          result = normalize_joint(params.op, view(pxy), view(table));
        }
        return to_tuple(result);
      },
      nb::arg("pxy").noconvert(), nb::arg("table").noconvert(), nb::arg("params"));
  m.def(
      "c_transform",
      [](Vector<const T> f, Matrix<const T> cost, Vector<T> g) {
        const nb::gil_scoped_release release;
        c_transform<T>(span(f), view(cost), span(g));
      },
      nb::arg("f").noconvert(), nb::arg("cost").noconvert(), nb::arg("g").noconvert());
  m.def(
      "dual_value",
      [](Vector<const T> f, Vector<const T> g, Vector<const T> a, Vector<const T> b) {
        return dual_value<T>(span(f), span(g), span(a), span(b));
      },
      nb::arg("f").noconvert(), nb::arg("g").noconvert(), nb::arg("a").noconvert(), nb::arg("b").noconvert());
  m.def(
      "lipschitz_constant",
      [](Vector<const T> f, Matrix<const T> distance) {
        const nb::gil_scoped_release release;
        return lipschitz_constant<T>(span(f), view(distance));
      },
      nb::arg("f").noconvert(), nb::arg("distance").noconvert());
}

nb::tuple to_names(std::span<const std::string_view> names) {
  nb::list all;
  for (const std::string_view name : names) all.append(to_str(name));
  return nb::tuple(all);
}

}  // namespace

void bind_functions(nb::module_& m) {
  bind<float>(m);
  bind<double>(m);
  m.def("gumbel_noise", &noise, nb::arg("g"), nb::arg("axis").none(), nb::arg("seed"), nb::arg("streams").noconvert(),
        nb::arg("position"));
  m.def("normalize_density", &density, nb::arg("p"), nb::arg("weights"), nb::arg("q"), nb::arg("axis").none(),
        nb::arg("params"));
  m.def("entropy_invariant_scale", [](const Numbers& n, double d, const Output& scale, nb::tuple values) {
    entropy_invariant_scale(to_params<EntropyInvariantScale>(values).op, span(n), d, span(scale));
  });
  // The gamma of each row for one entropy, for EntropyScaler.transform.
  m.def("calibrated_gamma", [](const Matrix<const double>& x, double entropy, const Output& gamma) {
    const nb::gil_scoped_release release;
    std::vector<double> reached(x.shape(0));
    std::vector<GammaStatus> status(x.shape(0));
    gamma_for_entropy({.entropy = entropy}, view(x), span(gamma), reached, status);
  });
  m.def(
      "random_directions", [](Matrix<double> directions, std::uint64_t seed) { random_directions(view(directions), seed); },
      nb::arg("directions").noconvert(), nb::arg("seed"));
  m.def(
      "needs_scores",
      [](nb::handle x, nb::handle y, nb::handle axis, bool logarithm) {
        const Buffer scores("needs_scores", x, false), result("needs_scores", y, false);
        const std::size_t at = to_axis("needs_scores", axis, scores->ndim);
        return scores->type == Type::float64 ? needs_scores<double>(*scores, *result, at, logarithm)
                                             : needs_scores<float>(*scores, *result, at, logarithm);
      },
      nb::arg("x"), nb::arg("y"), nb::arg("axis"), nb::arg("logarithm"));
  m.attr("gamma_status_names") = to_names(kGammaStatusNames);
  m.attr("transport_status_names") = to_names(kTransportStatusNames);
}

}  // namespace isentropic
