// Entropy control for Python: functions on rows along any axis of any strides, and on tables without gaps.

#include <isentropic/isentropic.h>

#include <type_traits>
#include <vector>

#include "bindings.h"
#include "matrices.h"
#include "params.h"
#include "rows.h"

namespace isentropic {
namespace {

template <class Op>
Op to_operation(const ParamValues& params) {
  return std::get<Op>(make<EntropyControl>(Params<Op>::info(), params.values));
}

// Calls run(blocks, first row, values per row of these rows) with type T, without the GIL, for float32 and float64.
template <std::size_t N, class Run>
void on_blocks(const GivenRows<N>& given, const ParamValues& params, const Run& run) {
  const nb::gil_scoped_release release;
  on_type(given.type(), [&]<class T>(std::type_identity<T> type) {
    if constexpr (kIsHalf<T>) {
      throw nb::type_error("an array of float32 or float64 is wanted, got halves");
    } else {
      given.rows().for_blocks([&](const RowBlock* blocks, std::size_t first) {
        run(type, blocks, first, of_rows<PerRow>(params.per_row, first, blocks[0].rows));
      });
    }
  });
}

// status: the number of a GammaStatus for each row, in int32.
void gamma(nb::handle x, nb::handle gammas, nb::handle entropies, nb::handle status, nb::handle axis, nb::tuple values) {
  static_assert(std::is_same_v<std::underlying_type_t<GammaStatus>, int>);
  constexpr std::string_view kName = GammaForEntropy::kDescription.name;
  ParamValues params(Params<GammaForEntropy>::info(), values);
  const auto op = to_operation<GammaForEntropy>(params);
  const GivenArray arrays[] = {{"x", x},
                               {.name = "gamma", .array = gammas, .output = true, .one_per_row = true, .own_type = true},
                               {.name = "entropy", .array = entropies, .output = true, .one_per_row = true, .own_type = true},
                               {.name = "status", .array = status, .output = true, .one_per_row = true, .own_type = true}};
  const GivenRows given(kName, arrays, axis, params);
  on_blocks(given, params, [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t, const auto& per_row) {
    gamma_for_entropy(op, blocks[0].matrix<const T>(), blocks[1].numbers<double>(), blocks[2].numbers<double>(),
                      blocks[3].numbers<GammaStatus>(), per_row);
  });
}

void power(nb::handle p, nb::handle q, nb::handle axis, nb::tuple values) {
  ParamValues params(Params<PowerTransform>::info(), values);
  const auto op = to_operation<PowerTransform>(params);
  const GivenArray arrays[] = {{"p", p}, {.name = "q", .array = q, .output = true}};
  const GivenRows given(PowerTransform::kDescription.name, arrays, axis, params);
  on_blocks(given, params, [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t, const auto& per_row) {
    power_transform(op, blocks[0].matrix<const T>(), blocks[1].matrix<T>(), per_row);
  });
}

// estimate is float64 or float32.
void mean_field(nb::handle x, nb::handle estimate, nb::handle axis, nb::tuple values) {
  ParamValues params(Params<MeanFieldEntropy>::info(), values);
  const auto op = to_operation<MeanFieldEntropy>(params);
  const GivenArray arrays[] = {{"x", x},
                               {.name = "estimate", .array = estimate, .output = true, .one_per_row = true, .own_type = true}};
  const GivenRows given(MeanFieldEntropy::kDescription.name, arrays, axis, params);
  on_blocks(given, params, [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t, const auto& /*per_row*/) {
    as_double(blocks[1], given.type(1),
              [&](std::span<double> numbers) { mean_field_entropy(op, blocks[0].matrix<const T>(), numbers); });
  });
}

// (gamma, entropy, least, most, name of the status).
nb::tuple to_tuple(const Normalized& result) {
  const auto status = kGammaStatusNames[static_cast<std::size_t>(result.status)];
  return nb::make_tuple(result.gamma, result.entropy, result.least, result.most, to_str(status));
}

// weights, in float64, may repeat along every other axis: one row for all. Returns the results for each row, by index.
nb::list density(nb::handle p, nb::handle weights, nb::handle q, nb::handle axis, nb::tuple values) {
  ParamValues params(Params<NormalizeDensity>::info(), values);
  const auto op = to_operation<NormalizeDensity>(params);
  const GivenArray arrays[] = {{"p", p},
                               {.name = "weights", .array = weights, .one_for_all = true, .own_type = true},
                               {.name = "q", .array = q, .output = true}};
  const GivenRows given(NormalizeDensity::kDescription.name, arrays, axis, params, true);
  std::vector<Normalized> found(given.rows().count());
  on_blocks(given, params, [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t first, const auto& per_row) {
    normalize_density(op, blocks[0].matrix<const T>(), blocks[1].matrix<const double>(), blocks[2].matrix<T>(),
                      std::span(found).subspan(first, blocks[0].rows), per_row);
  });
  nb::list results;
  for (const Normalized& result : found) results.append(to_tuple(result));
  return results;
}

template <class T>
nb::tuple joint(Matrix<const T> pxy, Matrix<T> table, nb::tuple values) {
  const RowParams<NormalizeJoint> params(values);
  Normalized result;
  {
    const nb::gil_scoped_release release;
    result = normalize_joint(params.op, view(pxy), view(table));
  }
  return to_tuple(result);
}

}  // namespace

void bind_entropy_control(nb::module_& m) {
  m.def("gamma_for_entropy", &gamma, nb::arg("x"), nb::arg("gamma"), nb::arg("entropy"), nb::arg("status"),
        nb::arg("axis").none(), nb::arg("params"));
  m.def("power_transform", &power, nb::arg("p"), nb::arg("q"), nb::arg("axis").none(), nb::arg("params"));
  m.def("mean_field_entropy", &mean_field, nb::arg("x"), nb::arg("estimate"), nb::arg("axis").none(), nb::arg("params"));
  m.def("normalize_density", &density, nb::arg("p"), nb::arg("weights"), nb::arg("q"), nb::arg("axis").none(),
        nb::arg("params"));
  const auto bind_joint = [&]<class T>(std::type_identity<T>) {
    m.def("normalize_joint", &joint<T>, nb::arg("pxy").noconvert(), nb::arg("table").noconvert(), nb::arg("params"));
  };
  bind_joint(std::type_identity<float>());
  bind_joint(std::type_identity<double>());
  nb::list names;
  for (const std::string_view name : kGammaStatusNames) names.append(to_str(name));
  m.attr("gamma_status_names") = nb::tuple(names);
  m.def("control_operations", [] { return describe(family_info<EntropyControl>()); });
}

}  // namespace isentropic
