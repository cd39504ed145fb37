// Helpers for the tests of maps: variants of every map, running them, and the stated error of each entry.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "isentropic/maps.h"
#include "isentropic/operation.h"
#include "tests/oracle/maps.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/guarded.h"
#include "tests/support/share.h"
#include "tests/support/targets.h"

namespace isentropic {

using support::Case;
using support::expect_error;

template <class T>
constexpr double kEpsilon = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

// The family as its tables list it.
inline std::span<const OperationInfo> maps() { return family_info<Map>().operations; }

inline Map typical(const OperationInfo& info) { return make<Map>(info, typical_values(info)); }

inline bool is_input(const ParamInfo& param) { return param.name == "input"; }

// Values of every declared parameter: the default and others across its range. A parameter that a kernel ignores, or that only
// its default tests, would show in the comparison with the oracle. The parameter `input` is left to the tests of Inputs: the
// rows here are scores.
inline std::vector<Map> variants(const OperationInfo& info) {
  const std::vector<ParamValue> initial = typical_values(info);
  std::vector<Map> ops = {typical(info)};
  const auto words = [&](std::size_t i) { return is_input(info.params[i]) ? 0 : info.params[i].choices.size(); };
  for (std::size_t i = 0; i < info.params.size(); ++i) {
    for (std::size_t word = 1; word < words(i); ++word) {
      std::vector<ParamValue> values = initial;
      values[i] = std::string(info.params[i].choices[word]);
      ops.push_back(make<Map>(info, values));
    }
    if (info.params[i].kind == ParamKind::choice) continue;
    std::size_t turn = 0;
    for (const double value : {0.25, 0.7, 1.0, 3.0, 6.0, 150.0}) {
      std::vector<ParamValue> values = initial;
      // Each variant also with the other words of parameters that are words: some words may make a kernel ignore a number.
      for (std::size_t j = 0; j < info.params.size(); ++j) {
        if (words(j) > 0) values[j] = std::string(info.params[j].choices[++turn % words(j)]);
      }
      values[i] = info.params[i].kind == ParamKind::integer ? ParamValue(static_cast<std::int64_t>(value)) : ParamValue(value);
      const Map op = make<Map>(info, values);
      bool accepted = true;
      try {
        apply(op, MatrixView<const float>(), MatrixView<float>());
      } catch (const std::invalid_argument&) {
        accepted = false;
      }
      if (accepted && to_text(values[i]) != to_text(initial[i])) ops.push_back(op);
    }
  }
  return ops;
}

// The member of a map with one of these names, or null.
inline double* divisor(Map& map) {  // of the scores
  return std::visit(
      [](auto& op) -> double* {
        if constexpr (requires { op.temperature; }) {
          return &op.temperature;
        } else if constexpr (requires { op.scale; }) {
          return &op.scale;
        } else {
          return nullptr;
        }
      },
      map);
}
inline double temperature_of(Map map) { return divisor(map) ? *divisor(map) : 1; }
inline double alpha_of(const Map& map) {
  const Entmax* const entmax = std::get_if<Entmax>(&map);
  return entmax ? entmax->alpha : 1;
}
inline Input* input_of(Map& map) {
  return std::visit(
      [](auto& op) -> Input* {
        if constexpr (requires { op.input; }) {
          return &op.input;
        } else {
          return nullptr;
        }
      },
      map);
}
inline Map with_input(Map map, Input input) {
  *input_of(map) = input;
  return map;
}

inline std::string_view name_of(const Map& map) { return description_of(map).name; }

// The error of the map's method, without rounding.
template <class T>
double method_error(const Map& map, std::size_t n) {
  return sizeof(T) == 4 || n > 1000 ? laws_of(map).float_error : laws_of(map).double_error;
}

// Runs body(op, type tag) for every map, variant and element type.
template <class Body>
void for_each_variant(Body&& body) {
  std::size_t turn = 0;
  for (const OperationInfo& info : maps()) {
    SCOPED_TRACE(std::string(info.name));
    for (const Map& op : variants(info)) {
      // Only a part of them: one type for each variant.
      const bool odd = ++turn % 2 == 1;
      if (support::kShare == 1 || odd) body(op, float{});
      if (support::kShare == 1 || !odd) body(op, double{});
    }
  }
}

// Runs body on every target.
template <class Body>
void for_each_map(Body&& body) {
  support::for_each_target([&](const std::string&) { for_each_variant(body); });
}

template <class T>
std::vector<T> run(const Map& op, const std::vector<T>& x) {
  support::Guarded<T> in(x.size()), out(x.size());
  std::copy(x.begin(), x.end(), in.data());
  apply(op, MatrixView<const T>(in.data(), 1, x.size()), MatrixView<T>(out.data(), 1, x.size()));
  EXPECT_TRUE(std::equal(x.begin(), x.end(), in.data(), [](T a, T b) { return a == b || (a != a && b != b); }))
      << "input changed";
  return {out.data(), out.data() + x.size()};
}

template <class T>
std::vector<T> run_vjp(const Map& op, const std::vector<T>& x, const std::vector<T>& p, const std::vector<T>& g) {
  support::Guarded<T> dx(x.size());
  const auto view = [](const std::vector<T>& v) { return MatrixView<const T>(v.data(), 1, v.size()); };
  apply_vjp(op, view(x), view(p), view(g), MatrixView<T>(dx.data(), 1, x.size()));
  return {dx.data(), dx.data() + x.size()};
}

inline oracle::Row wide(const auto& x) { return oracle::Row(x.begin(), x.end()); }

// The stated error of each entry, see Description.
template <class T>
oracle::Row tolerances(const Map& op, const oracle::Row& p) {
  const auto* const entmax = std::get_if<Entmax>(&op);  // the bound in its description is that of alpha below 1
  const bool moderate = entmax != nullptr && entmax->alpha >= 1 && entmax->alpha <= 2;
  const double absolute = moderate ? 4 : laws_of(op).absolute_error;
  const long double log_max = std::log(*std::max_element(p.begin(), p.end()));
  const auto distance = [&](std::size_t i) { return p[i] > 0 ? log_max - std::log(p[i]) : 0; };
  long double mean = 0;
  for (std::size_t i = 0; i < p.size(); ++i) mean += p[i] * distance(i);
  oracle::Row bounds;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const long double relative = (8 + 3 * (distance(i) + mean)) * p[i] + std::numeric_limits<T>::min() / kEpsilon<T>;
    const long double rounding = (absolute > 0 ? absolute : relative) * kEpsilon<T>;
    const long double method = method_error<T>(op, p.size());
    bounds.push_back(method > 0 ? method : rounding);
  }
  if (laws_of(op).entropy_target) {
    // p ~ p^(1 + c): dH = -c Var(log p) to first order, and near the uniform distribution H = log n - Var(log p) / 2.
    const long double h = oracle::entropy(p), error = (sizeof(T) == 4 ? 1e-6L : 1e-12L) * std::max(1.0L, h);
    long double variance = 0;
    for (const long double mass : p) variance += mass > 0 ? mass * (std::log(mass) + h) * (std::log(mass) + h) : 0;
    for (std::size_t i = 0; i < p.size() && variance > 0; ++i) {
      const long double c = std::min(error / variance, std::sqrt(2 * error / variance));
      if (p[i] > 0) bounds[i] += c * std::abs(std::log(p[i]) + h) * p[i];
    }
  }
  return bounds;
}

// The results that agree with the definition (several if rounding may decide), and the allowed error of each entry.
struct Expected {
  std::vector<oracle::Row> rows, bounds;
};

template <class T>
Expected expected(const Map& op, const oracle::Row& x) {
  Expected result = {oracle::conforming(op, x, sizeof(T) == 4 ? 0x1p-20L : 0x1p-40L), {}};
  const oracle::Row spread = oracle::spread(op, x, kEpsilon<T>);
  for (const oracle::Row& want : result.rows) {
    result.bounds.push_back(tolerances<T>(op, want));
    for (std::size_t i = 0; i < x.size(); ++i) result.bounds.back()[i] += spread[i];
  }
  return result;
}

// Whether every entry of `got` is within the stated error of one of them; if not, the entry that differs from the first.
template <class T>
testing::AssertionResult is_one_of(const Expected& results, const std::vector<T>& got) {
  testing::AssertionResult result = testing::AssertionSuccess();
  for (std::size_t r = 0; r < results.rows.size(); ++r) {
    const oracle::Row &want = results.rows[r], &bounds = results.bounds[r];
    std::size_t i = 0;
    while (i < want.size() && std::abs(got[i] - want[i]) <= bounds[i]) ++i;
    if (i == want.size()) return testing::AssertionSuccess();
    if (result) {
      result = testing::AssertionFailure() << "entry " << i << " is " << got[i] << ", should be " << want[i] << ", off by "
                                           << std::abs(got[i] - want[i]) / bounds[i] << " of the stated error";
    }
  }
  return result;
}

// Calls body(op, case) for every variant and every case with a definition. Definitions of long rows take most of the time:
// variants take turns with them, and those that cost much are left to the tests of their map.
template <class Body>
void for_each_definition(Body&& body) {
  std::size_t turn = 0;
  std::minstd_rand random;
  for_each_variant([&]<class T>(const Map& op, T) {
    for (const Case<T>& c : support::finite_cases<T>()) {
      // The integrals of perturb_max take longer than everything else: a third of its rows, others for each noise and scale.
      const std::size_t share = support::kShare * (std::holds_alternative<PerturbMax>(op) ? 3 : 1);
      if (random() % share != 0) continue;
      const bool costly = description_of(op).cost > 1;
      if (costly ? c.x.size() > 100 : c.x.size() > 300 && turn++ % 5 != 0) continue;
      body(op, c);
    }
  });
}

template <class T>
std::vector<T> reproducibility_batch(std::size_t rows, std::size_t n) {
  std::vector<T> x = support::normal_row<T>(rows * n, 2, 0, 16);
  for (std::size_t i = 0; i < x.size(); i += 37) x[i] = -kInfinity<T>;
  return x;
}

}  // namespace isentropic
