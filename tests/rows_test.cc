// Tests of the parts that every kernel is built from: exp and log, the normal distribution, the walk along a row, sums,
// maxima, thresholds.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/rows_test.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/rows/exp_log-inl.h"
#include "src/rows/filter-inl.h"
#include "src/rows/normal-inl.h"
#include "src/rows/threshold-inl.h"
#include "src/rows/unit_power-inl.h"

#ifndef ISENTROPIC_TESTS_ROWS_TEST_CC_
#define ISENTROPIC_TESTS_ROWS_TEST_CC_

namespace isentropic::inline ISENTROPIC_ABI {

// The parts of src/rows as functions of arrays, for one SIMD target and one element type.
template <class T>
struct RowParts {
  std::size_t lanes;
  void (*exp)(const T* x, std::size_t n, T* y);
  void (*exp_scaled)(double temperature, const T* x, std::size_t n, T* y);
  void (*log)(const T* x, std::size_t n, T* y);
  void (*log1p)(const T* x, std::size_t n, T* y);
  void (*load)(const T* x, std::size_t count, T fill, T* lanes);
  void (*store)(const T* lanes, std::size_t count, T* p);
  void (*count_visits)(std::size_t n, int* visits);
  void (*fill)(T value, std::size_t n, T* p);
  void (*sums)(const T* x, std::size_t n, double (&sums)[2]);  // of x and of 1
  T (*max)(const T* x, std::size_t n);
  std::size_t (*filter)(const T* x, std::size_t n, T bound, Arena memory, const T** z, const hwy::MakeSigned<T>** places);
  std::size_t (*filter_room)(std::size_t n);
};

struct HighLow {
  double high, low;
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // ISENTROPIC_TESTS_ROWS_TEST_CC_

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

// y = function(d, x) along an array.
template <class T, class Function>
void TransformArray(const T* x, size_t n, T* y, const Function& function) {
  const RowTag<T> d;
  ForEachVector(
      d, n, [&](size_t i, size_t count) HWY_ATTR { StoreUpTo(function(d, LoadUpTo(d, x + i, count, T(0))), d, count, y + i); });
}

template <class T>
RowParts<T> RowPartsOf() {
  using D = RowTag<T>;
  RowParts<T> parts;
  parts.lanes = hn::Lanes(D());
  parts.exp = [](const T* x, size_t n, T* y)
                  HWY_ATTR { TransformArray(x, n, y, [](D d, hn::Vec<D> v) HWY_ATTR { return Exp(d, v); }); };
  parts.exp_scaled = [](double temperature, const T* x, size_t n, T* y) HWY_ATTR {
    const ExpScaled<D> exp(D(), temperature);
    TransformArray(x, n, y, [&](D d, hn::Vec<D> v) HWY_ATTR { return exp(d, v); });
  };
  parts.log = [](const T* x, size_t n, T* y)
                  HWY_ATTR { TransformArray(x, n, y, [](D d, hn::Vec<D> v) HWY_ATTR { return Log(d, v); }); };
  parts.log1p = [](const T* x, size_t n, T* y)
                    HWY_ATTR { TransformArray(x, n, y, [](D d, hn::Vec<D> v) HWY_ATTR { return Log1p(d, v); }); };
  parts.load = [](const T* x, size_t count, T fill, T* lanes)
                   HWY_ATTR { hn::StoreU(LoadUpTo(D(), x, count, fill), D(), lanes); };
  parts.store = [](const T* lanes, size_t count, T* p) HWY_ATTR { StoreUpTo(hn::LoadU(D(), lanes), D(), count, p); };
  parts.count_visits = [](size_t n, int* visits) HWY_ATTR {
    ForEachVector(D(), n, [&](size_t i, size_t count) HWY_ATTR {
      for (size_t j = 0; j < count; ++j) ++visits[i + j];
    });
  };
  parts.fill = [](T value, size_t n, T* p) HWY_ATTR { FillRow(D(), value, n, p); };
  parts.sums = [](const T* x, size_t n, double(&sums)[2]) HWY_ATTR {
    Sums(D(), n, sums, [&](size_t i, size_t count, hn::Vec<D>* terms) HWY_ATTR {
      // Lanes beyond count must have no effect.
      terms[0] = LoadUpTo(D(), x + i, count, std::numeric_limits<T>::quiet_NaN());
      terms[1] = hn::Set(D(), T(1));
    });
  };
  parts.max = [](const T* x, size_t n) HWY_ATTR { return RowMax(D(), x, n); };
  parts.filter = [](const T* x, size_t n, T bound, Arena memory, const T** z, const hwy::MakeSigned<T>** places) HWY_ATTR {
    const auto same = [](hn::Vec<D> v) HWY_ATTR { return v; };
    const Survivors<T> survivors(memory, n);
    *z = survivors.z;
    if (places == nullptr) return FilterAbove<false>(D(), same, x, n, bound, survivors);
    *places = survivors.places;
    return FilterAbove<true>(D(), same, x, n, bound, survivors);
  };
  parts.filter_room = [](size_t n) { return room_of<Survivors<T>>(n); };
  return parts;
}

RowParts<float> RowPartsF32() { return RowPartsOf<float>(); }
RowParts<double> RowPartsF64() { return RowPartsOf<double>(); }

void NormalCdfOf(const double* x, size_t n, double* y) {
  TransformArray(x, n, y, [](RowTag<double> d, hn::Vec<RowTag<double>> t) HWY_ATTR { return NormalCdf(d, t); });
}
void InverseMillsOf(const double* x, size_t n, double* y) {
  TransformArray(x, n, y, [](RowTag<double> d, hn::Vec<RowTag<double>> t) HWY_ATTR { return InverseMills(d, t); });
}

void UnitPowerOf(double exponent, bool rising, const float* x, size_t n, float* y) {
  const UnitPower power(exponent, rising ? UnitPower::Order::rising : UnitPower::Order::any);
  TransformArray(x, n, y, [&](RowTag<float> d, hn::Vec<RowTag<float>> q) HWY_ATTR {
    return power(hn::Max(q, hn::Set(d, UnitPower::kLeast)));
  });
}

HighLow ThresholdOf(const double* z, size_t n) {
  const Threshold tau = SimplexThreshold(z, n);
  return {tau.high, tau.low};
}

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <map>

#include "tests/support/cases.h"
#include "tests/support/guarded.h"
#include "tests/support/targets.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

HWY_EXPORT(RowPartsF32);
HWY_EXPORT(RowPartsF64);
HWY_EXPORT(ThresholdOf);
HWY_EXPORT(NormalCdfOf);
HWY_EXPORT(InverseMillsOf);
HWY_EXPORT(UnitPowerOf);

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

// The parts on the active target.
template <class T>
RowParts<T> parts() {
  if constexpr (sizeof(T) == 4) {
    return HWY_DYNAMIC_DISPATCH(RowPartsF32)();
  } else {
    return HWY_DYNAMIC_DISPATCH(RowPartsF64)();
  }
}

bool has_fma(const std::string& target) {
  const std::vector<std::string> names = support::fma_targets();
  return std::find(names.begin(), names.end(), target) != names.end();
}

// body(target, type tag) for both element types on every target.
template <class Body>
void for_each_target_and_type(const Body& body) {
  support::for_each_target([&](const std::string& target) {
    body(target, float{});
    body(target, double{});
  });
}

// body(type tag) for both element types.
template <class Body>
void for_each_type(const Body& body) {
  body(float{});
  body(double{});
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  const auto bits = [](T x, T y) { return std::bit_cast<Bits<T>>(x) == std::bit_cast<Bits<T>>(y); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), bits);
}

template <class T, class Function, class... Arguments>
std::vector<T> transformed(const Function& function, const std::vector<T>& x, Arguments... arguments) {
  std::vector<T> y(x.size());
  function(arguments..., x.data(), x.size(), y.data());
  return y;
}

const std::vector<double> kTemperatures = {1, 0.3, 7, 1e-20, 1e20};

// The largest error in units of the last place that exp_log-inl.h states; `slope` is the additional error of ExpScaled for each
// unit of |x/T|: one rounding of 1/T and, on targets without FMA, one of the product.
struct Bounds {
  long double exp, exp_scaled, slope, log;
};
Bounds bounds(bool fma) { return {.exp = 1.05L, .exp_scaled = 2.0L, .slope = fma ? 1.0L : 2.0L, .log = fma ? 0.9L : 0.91L}; }

// |got - want| in units of the last place of T at `want`. Infinity counts as the number that comes after the largest.
template <class T>
long double error_in_ulp(T got, long double want) {
  constexpr T kLargest = std::numeric_limits<T>::max();
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want) ? 0 : HUGE_VALL;
  if (std::isinf(want) || want == 0) return got == static_cast<T>(want) ? 0 : HUGE_VALL;
  if (got == kInfinity<T> && want > kLargest) return 0;
  const long double value = std::isinf(got) ? std::copysign(std::ldexp(1.0L, std::numeric_limits<T>::max_exponent), got) : got;
  int exponent;
  std::frexp(want, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  return std::ldexp(std::abs(value - want), std::numeric_limits<T>::digits - exponent);
}

// Evenly spaced bit patterns, every sign and exponent among them; for float64 also an even spread over what exp can take.
template <class T>
std::vector<T> sample() {
  constexpr std::size_t kCount = sizeof(T) == 4 ? std::size_t{1} << 20 : std::size_t{1} << 17;
  constexpr Bits<T> kStep = static_cast<Bits<T>>(~Bits<T>{0} / kCount) | 1;
  std::vector<T> x;
  for (std::size_t i = 0; i < kCount; ++i) x.push_back(std::bit_cast<T>(static_cast<Bits<T>>(i * kStep)));
  if (sizeof(T) == 8) {
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> wide(-746, 710), around_one(0.5, 2);
    for (std::size_t i = 0; i < kCount; ++i) x.push_back(static_cast<T>(i % 4 == 0 ? around_one(random) : wide(random)));
  }
  return x;
}

template <class T>
std::vector<T> nans() {
  constexpr Bits<T> kSign = Bits<T>{1} << (sizeof(T) * 8 - 1);
  const Bits<T> infinity = std::bit_cast<Bits<T>>(kInfinity<T>), quiet = std::bit_cast<Bits<T>>(kNaN<T>);
  std::vector<T> values;
  for (const Bits<T> payload : {infinity + 1, infinity + 0x1234, quiet, quiet + 1, quiet + 0x2a2a2, kSign - 1}) {
    values.push_back(std::bit_cast<T>(payload));
    values.push_back(std::bit_cast<T>(payload | kSign));
  }
  return values;
}

TEST(ExpLog, KeepNaN) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    const std::vector<T> x = nans<T>();
    for (const T y : transformed(parts<T>().exp, x)) ASSERT_TRUE(std::isnan(y));
    for (const T y : transformed(parts<T>().log, x)) ASSERT_TRUE(std::isnan(y));
    for (const double temperature : kTemperatures) {
      for (const T y : transformed(parts<T>().exp_scaled, x, temperature))
        ASSERT_TRUE(std::isnan(y)) << "temperature " << temperature;
    }
  });
}

// Exact results, zeros with their sign.
template <class T>
void expect_values(const char* name, const std::vector<std::pair<T, T>>& table,
                   const std::function<std::vector<T>(const std::vector<T>&)>& f) {
  std::vector<T> x, want;
  for (const auto& [argument, value] : table) x.push_back(argument), want.push_back(value);
  const std::vector<T> got = f(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) << name << "(" << x[i] << ") is " << got[i];
    EXPECT_TRUE(std::isnan(want[i]) || std::signbit(got[i]) == std::signbit(want[i]))
        << name << "(" << x[i] << ") is " << got[i];
  }
}

const std::vector<double> kUnitExponents = {0,    7e-7, 1.4e-6, 3e-6, 1e-3,    0.1, 0.25, 3.0 / 7, 0.7,
                                            0.99, 1,    1.3,    2,    7.0 / 3, 2.9, 3.4,  4};

std::vector<float> unit_powers(double exponent, const std::vector<float>& q, bool rising = true) {
  std::vector<float> y(q.size());
  HWY_DYNAMIC_DISPATCH(UnitPowerOf)(exponent, rising, q.data(), q.size(), y.data());
  return y;
}

// q and 100,000 random numbers from 2^lowest to 1.
std::vector<float> with_random_powers(std::vector<float> q, float lowest, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> octaves(lowest, 0);
  for (int i = 0; i < 100000; ++i) q.push_back(std::exp2(octaves(random)));
  return q;
}

TEST(UnitPower, IsNearThePower) {
  support::for_each_target([](const std::string& target) {
    const std::vector<float> q = with_random_powers({1, 0x1.fffffep-1f, 0.5f, 0x1.fffffep-2f, 0x1p-48f}, -48.4f, 1);
    for (const double exponent : kUnitExponents) {
      const std::vector<float> y = unit_powers(exponent, q);
      for (std::size_t i = 0; i < q.size(); ++i) {
        const long double want = std::pow(static_cast<long double>(q[i]), static_cast<long double>(exponent));
        // Below 2^-68 it may be 0.
        const long double lost = want < 0x1p-60L ? 0x1p-68L : 0;
        ASSERT_LE(std::abs(static_cast<long double>(y[i]) - want), (3.5L + exponent / 4) * 0x1p-23L * want + lost)
            << target << ", " << q[i] << "^" << exponent;
      }
      ASSERT_EQ(y[0], 1) << exponent;
      ASSERT_EQ(unit_powers(exponent, {0, -1, 0x1p-50f}), std::vector<float>(3, 0)) << exponent;
    }
  });
}

// In any order, also with exponents near 0, where every octave counts.
TEST(UnitPower, IsNearerInAnyOrder) {
  support::for_each_target([](const std::string& target) {
    const std::vector<float> q = with_random_powers({1, 0x1.fffffep-1f, 0.75f, 0x1.7ffffep-1f, 0x1p-48f}, -48, 2);
    for (const double exponent : {1e-9, 1e-6, 1e-3, 0.05, 0.3, 0.7, 0.95, 1.0, 1.2, 1.7, 1.99}) {
      const std::vector<float> y = unit_powers(exponent, q, false);
      for (std::size_t i = 0; i < q.size(); ++i) {
        const long double want = std::pow(static_cast<long double>(q[i]), static_cast<long double>(exponent));
        ASSERT_LE(std::abs(static_cast<long double>(y[i]) - want), 2.5 * 0x1p-23L * want)
            << target << ", " << q[i] << "^" << exponent;
      }
    }
  });
}

// From one q to the next: at the ends of octaves, and in two whole octaves.
TEST(UnitPower, NeverFalls) {
  support::for_each_target([](const std::string& target) {
    std::vector<std::vector<float>> runs;
    for (int octave = 0; octave < 50; ++octave) {
      std::vector<float>& run = runs.emplace_back();
      const std::uint32_t end = std::bit_cast<std::uint32_t>(std::ldexp(0.75f, -octave));
      for (std::uint32_t bits = end - 500; bits < end + 500; ++bits) run.push_back(std::bit_cast<float>(bits));
    }
    std::vector<float>& whole = runs.emplace_back();
    for (std::uint32_t bits = std::bit_cast<std::uint32_t>(0.25f); bits <= std::bit_cast<std::uint32_t>(1.0f); ++bits) {
      whole.push_back(std::bit_cast<float>(bits));
    }
    for (const double exponent : kUnitExponents) {
      for (const std::vector<float>& q : runs) {
        const std::vector<float> y = unit_powers(exponent, q);
        for (std::size_t i = 1; i < q.size(); ++i) {
          ASSERT_LE(y[i - 1], y[i]) << target << ", " << q[i] << "^" << exponent;
        }
      }
    }
  });
}

// There the roundings of the tables count, which every exponent has others of.
TEST(UnitPower, NeverFallsWhereTheOctaveChanges) {
  support::for_each_target([](const std::string& target) {
    std::vector<float> q;  // rising
    for (int octave = 49; octave >= 0; --octave) {
      const std::uint32_t end = std::bit_cast<std::uint32_t>(std::ldexp(0.75f, -octave));
      for (std::uint32_t bits = end - 8; bits < end + 8; ++bits) q.push_back(std::bit_cast<float>(bits));
    }
    std::mt19937_64 random(3);
    std::uniform_real_distribution<double> octaves(-21, 2);
    for (int i = 0; i < 5000; ++i) {
      const double exponent = std::exp2(octaves(random));
      const std::vector<float> y = unit_powers(exponent, q);
      for (std::size_t k = 1; k < q.size(); ++k) ASSERT_LE(y[k - 1], y[k]) << target << ", " << q[k] << "^" << exponent;
    }
  });
}

TEST(ExpLog, SpecialValues) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    constexpr T kLargest = std::numeric_limits<T>::max(), kTiny = std::numeric_limits<T>::denorm_min();
    // The smallest argument with an infinite result, and the largest with the result 0.
    const T over = sizeof(T) == 4 ? static_cast<T>(0x1.62e43p6) : static_cast<T>(0x1.62e42fefa39fp9);
    const T under = sizeof(T) == 4 ? static_cast<T>(-0x1.9fe36ap6) : static_cast<T>(-0x1.74910d52d3053p9);
    const RowParts<T> on = parts<T>();
    expect_values<T>("Exp",
                     {{0, 1},
                      {-T(0), 1},
                      {kTiny, 1},
                      {-kTiny, 1},
                      {kInfinity<T>, kInfinity<T>},
                      {-kInfinity<T>, 0},
                      {over, kInfinity<T>},
                      {kLargest, kInfinity<T>},
                      {200 * over, kInfinity<T>},
                      {under, 0},
                      {2 * under, 0},
                      {-kLargest, 0}},
                     [&](const std::vector<T>& x) { return transformed(on.exp, x); });
    expect_values<T>("Log",
                     {{0, -kInfinity<T>},
                      {-T(0), -kInfinity<T>},
                      {1, 0},
                      {kInfinity<T>, kInfinity<T>},
                      {-kInfinity<T>, kNaN<T>},
                      {-kTiny, kNaN<T>},
                      {-1, kNaN<T>},
                      {-kLargest, kNaN<T>}},
                     [&](const std::vector<T>& x) { return transformed(on.log, x); });
    for (const double temperature : kTemperatures) {
      SCOPED_TRACE(temperature);
      const T far = static_cast<T>(2 * std::abs(static_cast<double>(under)) * temperature);
      expect_values<T>("ExpScaled", {{0, 1}, {-T(0), 1}, {-kInfinity<T>, 0}, {-kLargest, 0}, {-far, 0}},
                       [&](const std::vector<T>& x) { return transformed(on.exp_scaled, x, temperature); });
    }
  });
}

// Around every argument where something changes: overflow, the first subnormal result, the first 0.
TEST(ExpLog, KeepTheirErrorAtTheEnds) {
  for_each_target_and_type([]<class T>(const std::string& target, T) {
    constexpr T kSmallest = std::numeric_limits<T>::min(), kTiny = std::numeric_limits<T>::denorm_min();
    std::vector<T> ends, positive;
    for (const T x : {std::numeric_limits<T>::max(), kSmallest, kTiny}) {
      const Bits<T> at = std::bit_cast<Bits<T>>(static_cast<T>(std::log(static_cast<long double>(x))));
      for (Bits<T> bits = at - 1000; bits < at + 1000; ++bits) ends.push_back(std::bit_cast<T>(bits));
    }
    for (const T x : {kSmallest, T(1), static_cast<T>(std::sqrt(0.5L)), static_cast<T>(std::sqrt(2.0L))}) {
      const Bits<T> at = std::bit_cast<Bits<T>>(x);
      for (Bits<T> bits = at - 1000; bits < at + 1000; ++bits) positive.push_back(std::bit_cast<T>(bits));
    }
    for (Bits<T> bits = 1; bits < 1000; ++bits) positive.push_back(std::bit_cast<T>(bits));
    const Bounds bound = bounds(has_fma(target));
    const std::vector<T> exp = transformed(parts<T>().exp, ends), log = transformed(parts<T>().log, positive);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const long double want = std::exp(static_cast<long double>(ends[i]));
      ASSERT_LE(error_in_ulp(exp[i], want), bound.exp) << "Exp(" << ends[i] << ") is " << exp[i];
    }
    for (std::size_t i = 0; i < positive.size(); ++i) {
      const long double want = std::log(static_cast<long double>(positive[i]));
      ASSERT_LE(error_in_ulp(log[i], want), bound.log) << "Log(" << positive[i] << ") is " << log[i];
    }
  });
}

TEST(ExpLog, ErrorIsAsStated) {
  for_each_type([]<class T>(T) {
    const std::vector<T> x = sample<T>();
    std::vector<long double> exp, log;
    for (const T v : x) {
      exp.push_back(std::exp(static_cast<long double>(v)));
      log.push_back(std::log(static_cast<long double>(v)));
    }
    support::for_each_target([&](const std::string& target) {
      const Bounds bound = bounds(has_fma(target));
      const std::vector<T> got_exp = transformed(parts<T>().exp, x), got_log = transformed(parts<T>().log, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_LE(error_in_ulp(got_exp[i], exp[i]), bound.exp) << "Exp(" << x[i] << ") is " << got_exp[i];
        ASSERT_LE(error_in_ulp(got_log[i], log[i]), bound.log) << "Log(" << x[i] << ") is " << got_log[i];
      }
    });
  });
}

TEST(ExpScaled, ErrorIsAsStated) {
  for_each_type([]<class T>(T) {
    constexpr T kSmallest = std::numeric_limits<T>::min();
    for (const double temperature : kTemperatures) {
      SCOPED_TRACE(temperature);
      const double farthest = 1.1 * std::log(static_cast<double>(kSmallest)) * temperature;
      std::mt19937_64 random(2);
      std::uniform_real_distribution<double> uniform(farthest, 0), exponent(-40, 0);
      std::vector<T> x;
      std::vector<long double> want;
      for (int i = 0; i < 1 << 16; ++i) {
        x.push_back(static_cast<T>(i % 2 == 0 ? uniform(random) : farthest * std::exp2(exponent(random))));
        // x/T to more digits than long double has: the quotient and its remainder.
        const long double z = x.back() / static_cast<long double>(temperature);
        const long double rest =
            std::fma(-z, static_cast<long double>(temperature), static_cast<long double>(x.back())) / temperature;
        want.push_back(std::exp(z) * (1 + rest));
      }
      support::for_each_target([&](const std::string& target) {
        const Bounds bound = bounds(has_fma(target));
        const std::vector<T> got = transformed(parts<T>().exp_scaled, x, temperature);
        for (std::size_t i = 0; i < x.size(); ++i) {
          if (want[i] < kSmallest) {
            ASSERT_TRUE(got[i] >= 0 && got[i] <= kSmallest) << "ExpScaled(" << x[i] << ") is " << got[i];
          } else {
            ASSERT_LE(error_in_ulp(got[i], want[i]), bound.exp_scaled - bound.slope * std::log(want[i]))
                << "ExpScaled(" << x[i] << ") is " << got[i];
          }
        }
      });
    }
  });
}

// The number of times that ExpScaled falls from one number to the next above it, in runs around `places`; it prints the first
// such pair.
template <class T>
std::size_t falls(double temperature, const std::vector<double>& places, Bits<T> run) {
  std::size_t count = 0;
  for (const double place : places) {
    const Bits<T> at = std::bit_cast<Bits<T>>(static_cast<T>(place));
    std::vector<T> x;  // falling: the bits of negative numbers grow downwards
    for (Bits<T> bits = at - run; bits < at + run; ++bits) x.push_back(std::bit_cast<T>(bits));
    const std::vector<T> y = transformed(parts<T>().exp_scaled, x, temperature);
    for (std::size_t i = 0; i + 1 < x.size(); ++i) {
      if (y[i + 1] > y[i] && count++ == 0) {
        ADD_FAILURE() << std::hexfloat << "ExpScaled(" << x[i + 1] << ") = " << y[i + 1] << " > ExpScaled(" << x[i]
                      << ") = " << y[i] << ", temperature " << temperature << ", float" << std::dec << 8 * sizeof(T);
      }
    }
  }
  return count;
}

// "x_i > x_j implies p_i >= p_j" is based on this. Around every power of two, every place where the exponent of the result
// changes, and elsewhere.
TEST(ExpScaled, NeverFalls) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    for (const double temperature : {1.0, 0.3, 7.0}) {
      std::vector<double> places;
      for (int k = 0; k < 126; ++k) places.push_back(-(k + 0.5) * std::log(2.0) * temperature);
      for (int e = -40; e < 7; ++e) places.push_back(-std::ldexp(temperature, e));
      std::mt19937_64 random(3);
      std::uniform_real_distribution<double> exponent(-12, 6);
      for (int i = 0; i < 200; ++i) places.push_back(-std::exp2(exponent(random)) * temperature);
      EXPECT_EQ(falls<T>(temperature, places, 512), 0u) << "temperature " << temperature;
    }
  });
}

// Where the exponent of the result changes the reduced argument jumps from one end of its interval to the other, and the
// rounding of 1/T and T log 2 counts twice. So many temperatures are tested.
TEST(ExpScaled, NeverFallsWhereTheExponentChanges) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    std::mt19937_64 random(4);
    std::uniform_real_distribution<double> exponent(-3, 3);
    std::size_t count = 0;
    for (int i = 0; i < 1000; ++i) {
      // A temperature given as float32 or in steps, as users do, or any.
      double temperature = std::exp2(exponent(random));
      if (i % 3 == 0) temperature = static_cast<float>(temperature);
      if (i % 3 == 1) temperature = std::ceil(temperature * 100) / 100;
      std::vector<double> places;
      for (int k = 0; k < 8; ++k) places.push_back(-(k + 0.5) * std::log(2.0) * temperature);
      count += falls<T>(temperature, places, 16) != 0;
      if (count > 3) break;
    }
    EXPECT_EQ(count, 0u) << "temperatures";
  });
}

// Around every power of two, every place where the exponent of 1 + v changes, and elsewhere.
TEST(Log1p, NeverFalls) {
  for_each_target_and_type([]<class T>(const std::string& target, T) {
    std::vector<double> places;
    for (int e = -60; e < 60; ++e) {
      for (const double v : {std::ldexp(1.0, e), -std::ldexp(1.0, e), std::sqrt(2.0) * std::ldexp(1.0, e) - 1})
        places.push_back(v);
    }
    std::mt19937_64 random(5);
    std::uniform_real_distribution<double> exponent(-30, 10);
    for (int i = 0; i < 400; ++i) places.push_back((i % 2 == 0 ? 1 : -1) * std::exp2(exponent(random)));
    for (const double place : places) {
      std::vector<T> v = {static_cast<T>(place)}, y(1000);
      for (int i = 0; i < 500; ++i) v[0] = std::nextafter(v[0], -std::numeric_limits<T>::infinity());
      while (v.size() < y.size()) v.push_back(std::nextafter(v.back(), std::numeric_limits<T>::infinity()));
      if (!(v[0] > -1)) continue;
      parts<T>().log1p(v.data(), v.size(), y.data());
      for (std::size_t i = 1; i < y.size(); ++i) ASSERT_LE(y[i - 1], y[i]) << target << ", " << v[i];
    }
  });
}

TEST(ExpLog, SameBitsOnTargetsWithFma) {
  for_each_type([]<class T>(T) {
    const std::vector<T> x = sample<T>();
    std::vector<T> non_positive;
    for (const T v : x) {
      if (v <= 0) non_positive.push_back(v);
    }
    std::vector<std::vector<T>> first;
    support::for_each_target([&](const std::string& target) {
      if (!has_fma(target)) return;
      std::vector<std::vector<T>> results = {transformed(parts<T>().exp, x), transformed(parts<T>().log, x)};
      for (const double temperature : kTemperatures)
        results.push_back(transformed(parts<T>().exp_scaled, non_positive, temperature));
      // The bits of a NaN may differ.
      for (std::vector<T>& result : results) {
        for (T& y : result) y = std::isnan(y) ? kNaN<T> : y;
      }
      if (first.empty()) first = results;
      for (std::size_t i = 0; i < results.size(); ++i) ASSERT_TRUE(same_bits(results[i], first[i])) << "function " << i;
    });
  });
}

// Phi and phi/Phi in long double; far below 0 by the continued fraction 1/(s + 1/(s + 2/(s + 3/...))) of Mills' ratio.
long double normal_density(long double t) { return std::exp(-t * t / 2) * 0.398942280401432677939946059934L; }
long double mills_ratio(long double s) {
  long double tail = s;
  for (int k = 200; k > 0; --k) tail = s + static_cast<long double>(k) / tail;
  return 1 / tail;
}
long double normal_cdf(long double t) {
  return t < -8 ? normal_density(t) * mills_ratio(-t) : std::erfc(-t * std::sqrt(0.5L)) / 2;
}
long double inverse_mills(long double t) { return t < -8 ? 1 / mills_ratio(-t) : normal_density(t) / normal_cdf(t); }

std::vector<double> normal_points() {
  std::vector<double> t;
  for (double at = -38.5; at < 40; at += 1.0 / 512) t.push_back(at + 1e-4 * std::sin(1e3 * at));
  for (double at = 1e-300; at < 1e-2; at *= 1e3) t.push_back(at), t.push_back(-at);
  return t;
}

TEST(Normal, AgreesWithLongDouble) {
  support::for_each_target([](const std::string& target) {
    const std::vector<double> t = normal_points();
    const std::vector<double> cdf = transformed(HWY_DYNAMIC_DISPATCH(NormalCdfOf), t);
    const std::vector<double> ratio = transformed(HWY_DYNAMIC_DISPATCH(InverseMillsOf), t);
    double worst_cdf = 0, worst_ratio = 0;
    for (std::size_t i = 0; i < t.size(); ++i) {
      const long double want_cdf = normal_cdf(t[i]), want_ratio = inverse_mills(t[i]);
      // Without FMA the rounding of t^2 / 2 is an absolute error of an exponent.
      const double square = has_fma(target) ? 0 : t[i] * t[i] * 0x1p-53;
      const double cdf_error = static_cast<double>(std::abs(cdf[i] - want_cdf) / want_cdf);
      const double ratio_error = static_cast<double>(std::abs(ratio[i] - want_ratio) / want_ratio);
      if (t[i] > -37) {
        ASSERT_LE(cdf_error, 2e-15 + square) << t[i];
        worst_cdf = std::max(worst_cdf, cdf_error);
      }
      if (t[i] < 37) {
        ASSERT_LE(ratio_error, 2e-15 + square) << t[i];
        worst_ratio = std::max(worst_ratio, ratio_error);
      }
    }
    RecordProperty("NormalCdf " + target, std::to_string(worst_cdf * 1e16));
    RecordProperty("InverseMills " + target, std::to_string(worst_ratio * 1e16));
  });
}

TEST(Normal, EndsOfTheLine) {
  support::for_each_target([](const std::string&) {
    const std::vector<double> t = {-kInfinity<double>, -1e308, -1e10, -1e3, 0, 50, 1e308, kInfinity<double>};
    const std::vector<double> cdf = transformed(HWY_DYNAMIC_DISPATCH(NormalCdfOf), t);
    const std::vector<double> ratio = transformed(HWY_DYNAMIC_DISPATCH(InverseMillsOf), t);
    const std::vector<double> want = {0, 0, 0, 0, 0.5, 1, 1, 1};
    for (std::size_t i = 0; i < t.size(); ++i) EXPECT_NEAR(cdf[i], want[i], 0x1p-52 * want[i]);
    for (std::size_t i = 1; i < 4; ++i) EXPECT_NEAR(ratio[i] / -t[i], 1, 2e-6);
    for (std::size_t i = 5; i < 8; ++i) EXPECT_EQ(ratio[i], 0);
  });
}

// On multiples of 2^-40 no step goes the wrong way; perturb_max needs this to keep the order of scores.
TEST(Normal, InverseMillsFallsFromStepToStep) {
  support::for_each_target([](const std::string&) {
    for (double start = -9; start < 38; start += 0.37) {
      std::vector<double> t;
      for (double k = 0; k < 500; ++k) t.push_back(std::ldexp(std::round(std::ldexp(start, 40)) + k, -40));
      const std::vector<double> ratio = transformed(HWY_DYNAMIC_DISPATCH(InverseMillsOf), t);
      for (std::size_t i = 1; i < t.size(); ++i) ASSERT_TRUE(ratio[i] < ratio[i - 1] || (t[i] > 37.5 && ratio[i] == 0)) << t[i];
    }
  });
}

// Rows end at an unmapped page: one element too far stops the test.
TEST(Loop, LoadsWhatIsThereAndFillsTheRest) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    const RowParts<T> on = parts<T>();
    for (std::size_t count = 0; count <= 16; ++count) {
      const support::Guarded<T> x(count);
      for (std::size_t i = 0; i < count; ++i) x.data()[i] = static_cast<T>(i + 1);
      for (const T fill : {T(0), T(-7), -kInfinity<T>}) {
        T lanes[16];
        on.load(x.data(), count, fill, lanes);
        for (std::size_t i = 0; i < on.lanes; ++i)
          ASSERT_EQ(lanes[i], i < count ? T(i + 1) : fill) << "count " << count << " lane " << i;
      }
    }
  });
}

TEST(Loop, StoresWhatItIsToldAndNothingElse) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    const RowParts<T> on = parts<T>();
    T lanes[16];
    for (std::size_t i = 0; i < 16; ++i) lanes[i] = static_cast<T>(i + 1);
    for (std::size_t count = 0; count <= 16; ++count) {
      const support::Guarded<T> p(count);
      on.store(lanes, count, p.data());
      std::vector<T> padded(48, T(-5));
      on.store(lanes, count, padded.data() + 16);
      const std::size_t stored = std::min(count, on.lanes);
      for (std::size_t i = 0; i < stored; ++i) ASSERT_EQ(p.data()[i], T(i + 1)) << "count " << count;
      for (std::size_t i = 0; i < padded.size(); ++i) {
        ASSERT_EQ(padded[i], i >= 16 && i < 16 + stored ? T(i - 15) : T(-5)) << "count " << count << " entry " << i;
      }
    }
  });
}

TEST(Loop, VisitsEachElementOnce) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    for (std::size_t n = 0; n <= 200; ++n) {
      const support::Guarded<int> visits(n);
      std::fill_n(visits.data(), n, 0);
      parts<T>().count_visits(n, visits.data());
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(visits.data()[i], 1) << "n " << n << " element " << i;
      const support::Guarded<T> row(n);
      parts<T>().fill(T(3), n, row.data());
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(row.data()[i], T(3)) << "n " << n << " element " << i;
    }
  });
}

double fold(double (&totals)[16]) {
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) totals[lane] += totals[lane + half];
  }
  return totals[0];
}

// The order of sums as reduce-inl.h defines it, one element after the other.
template <class T>
double sum_in_order(const T* x, std::size_t n) {
  constexpr std::size_t kGroup = 16384;
  double totals[16] = {};
  if (n > kGroup) {
    for (std::size_t g = 0; g * kGroup < n; ++g) {
      totals[g % 16] += sum_in_order(x + g * kGroup, std::min(kGroup, n - g * kGroup));
    }
    return fold(totals);
  }
  for (std::size_t base = 0; base < n; base += 256) {
    T accumulators[4][16] = {};
    for (std::size_t i = base; i < std::min(n, base + 256); ++i) accumulators[i / 16 % 4][i % 16] += x[i];
    for (std::size_t lane = 0; lane < 16; ++lane) {
      const T even = accumulators[0][lane] + accumulators[2][lane], odd = accumulators[1][lane] + accumulators[3][lane];
      totals[lane] += static_cast<double>(even + odd);
    }
  }
  return fold(totals);
}

// No multiplication, so the same bits even where there is no FMA.
TEST(Sums, AreInTheStatedOrderOnEveryTarget) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    std::vector<std::size_t> lengths(601);
    std::iota(lengths.begin(), lengths.end(), std::size_t{0});
    for (const std::size_t n : {16383, 16384, 16385, 16700, 32768, 49153, 18 * 16384 + 77}) lengths.push_back(n);
    for (const std::size_t n : lengths) {
      const std::vector<T> values = support::normal_row<T>(n, 100, 3, static_cast<unsigned>(n));
      const support::Guarded<T> x(n);
      std::copy(values.begin(), values.end(), x.data());
      double sums[2];
      parts<T>().sums(x.data(), n, sums);
      ASSERT_EQ(sums[0], sum_in_order(values.data(), n)) << "n " << n;
      ASSERT_EQ(sums[1], static_cast<double>(n));
    }
  });
}

TEST(Sums, AreExactForIntegers) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    for (const std::size_t n : {1u, 15u, 17u, 100u, 255u, 256u, 257u, 600u, 4099u, 100000u}) {
      std::vector<T> x(n);
      double want = 0;
      for (std::size_t i = 0; i < n; ++i) want += x[i] = static_cast<T>(static_cast<double>(i * 7919 % 200003) - 100001);
      double sums[2];
      parts<T>().sums(x.data(), n, sums);
      ASSERT_EQ(sums[0], want) << "n " << n;
      ASSERT_EQ(sums[1], static_cast<double>(n));
    }
  });
}

TEST(Sums, SeeEveryNaN) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    for (const std::size_t n : {1u, 5u, 16u, 63u, 65u, 300u}) {
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<T> x(n, T(1));
        x[i] = kNaN<T>;
        double sums[2];
        parts<T>().sums(x.data(), n, sums);
        ASSERT_TRUE(std::isnan(sums[0])) << "n " << n << " element " << i;
        ASSERT_EQ(sums[1], static_cast<double>(n));
      }
    }
  });
}

TEST(RowMax, FindsTheLargestWhereverItIs) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    const auto max = parts<T>().max;
    ASSERT_EQ(max(nullptr, 0), -kInfinity<T>);
    for (std::size_t n = 1; n <= 150; ++n) {
      const support::Guarded<T> x(n);
      for (const T others : {T(-3), -kInfinity<T>, -std::numeric_limits<T>::max()}) {
        for (const T largest : {T(-2), T(0), std::numeric_limits<T>::max(), kInfinity<T>}) {
          for (std::size_t i = 0; i < n; ++i) {
            std::fill_n(x.data(), n, others);
            x.data()[i] = largest;
            ASSERT_EQ(max(x.data(), n), largest) << "n " << n << " element " << i;
          }
        }
        std::fill_n(x.data(), n, others);
        ASSERT_EQ(max(x.data(), n), others) << "n " << n;
      }
    }
  });
}

// A NaN anywhere: the maximum of some of the others, or NaN.
TEST(RowMax, OfARowWithNaNIsOneOfTheRowOrMinusInfinity) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    for (std::size_t n = 1; n <= 100; ++n) {
      std::vector<T> x = support::normal_row<T>(n, 1, 0, static_cast<unsigned>(n));
      const T largest = *std::max_element(x.begin(), x.end());
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<T> with_nan = x;
        with_nan[i] = kNaN<T>;
        const T max = parts<T>().max(with_nan.data(), n);
        ASSERT_TRUE(!(max > largest)) << "n " << n << " element " << i << " is " << max;
      }
    }
  });
}

TEST(FilterAbove, KeepsOrderAndNaN) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    for (std::size_t n = 1; n <= 200; ++n) {
      for (const double share : {0.0, 0.1, 0.5, 1.0}) {
        std::vector<T> row = support::normal_row<T>(n, 1, 0, static_cast<unsigned>(n));
        std::mt19937 random(static_cast<unsigned>(n));
        std::bernoulli_distribution above(share), nan(0.05), absent(0.05);
        std::vector<std::size_t> want;
        for (std::size_t i = 0; i < n; ++i) {
          T& z = row[i];
          z = above(random) ? std::abs(z) : -1 - std::abs(z);
          if (nan(random)) z = kNaN<T>;
          if (absent(random)) z = -kInfinity<T>;
          if (!(z <= T(-1))) want.push_back(i);
        }
        const support::Guarded<T> x(n);
        std::copy(row.begin(), row.end(), x.data());
        // The room that the maps give; a guard page follows.
        const std::size_t room = parts<T>().filter_room(n);
        const support::Guarded<std::uint8_t> memory(room);
        const T* survivors;
        const hwy::MakeSigned<T>* places;
        for (const bool with_places : {false, true}) {
          const std::size_t kept =
              parts<T>().filter(x.data(), n, T(-1), Arena(memory.data(), room), &survivors, with_places ? &places : nullptr);
          ASSERT_EQ(kept, want.size()) << "n " << n << " share " << share;
          for (std::size_t i = 0; i < kept; ++i) {
            const T z = row[want[i]];
            ASSERT_TRUE(survivors[i] == z || (std::isnan(survivors[i]) && std::isnan(z))) << "n " << n << " entry " << i;
            if (with_places) {
              ASSERT_EQ(static_cast<std::size_t>(places[i]), want[i]) << "n " << n << " entry " << i;
            }
          }
          for (std::size_t i = kept; i < kept + 64; ++i) ASSERT_EQ(survivors[i], -kInfinity<T>) << "n " << n << " filler " << i;
        }
      }
    }
  });
}

TEST(FilterAbove, LeavesTheBoundItselfOut) {
  for_each_target_and_type([]<class T>(const std::string&, T) {
    const std::vector<T> x = {T(-1), std::nextafter(T(-1), T(0)), std::nextafter(T(-1), T(-2)), T(-1), T(0)};
    const T* survivors;
    const Arena memory = scratch(parts<T>().filter_room(x.size()));
    ASSERT_EQ(parts<T>().filter(x.data(), x.size(), T(-1), memory, &survivors, nullptr), 2u);
    ASSERT_EQ(survivors[0], x[1]);
    ASSERT_EQ(survivors[1], T(0));
  });
}

TEST(Arena, GivesAlignedPiecesThatDoNotOverlap) {
  Arena arena = scratch(Arena::room<float>(3) + Arena::room<std::uint8_t>(65) + Arena::room<double>(8));
  float* const a = arena.take<float>(3);
  std::uint8_t* const b = arena.take<std::uint8_t>(65);
  double* const c = arena.take<double>(8);
  for (const void* at : {static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c)}) {
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(at) % HWY_ALIGNMENT, 0u);
  }
  ASSERT_LE(reinterpret_cast<const std::uint8_t*>(a + 3), b);
  ASSERT_LE(b + 65, reinterpret_cast<const std::uint8_t*>(c));
  ASSERT_EQ(arena.left(), 0u);
}

TEST(Arena, GivesAgainWhatACopyOfItTook) {
  Arena arena = scratch(Arena::room<double>(100));
  double* in_copy;
  {
    Arena copy = arena;
    in_copy = copy.take<double>(100);
  }
  ASSERT_EQ(arena.take<double>(100), in_copy);
}

TEST(Arena, CountsWhatALayoutTakes) {
  struct Layout {
    Layout(Arena& arena, std::size_t n) { arena.take<double>(n), arena.take<std::uint8_t>(1); }
  };
  ASSERT_EQ(room_of<Layout>(std::size_t{9}), Arena::room<double>(9) + Arena::room<std::uint8_t>(1));
  ASSERT_EQ(room_of<Layout>(std::size_t{0}), Arena::room<std::uint8_t>(1));
}

// In every build, a kernel with too little Memory is stopped when it takes more; the sanitizer stops one that touches more than
// it took.
TEST(ArenaDeathTest, EndsTheProgramWhereMoreIsTaken) {
  support::for_each_target([](const std::string&) {
    const std::vector<float> x(100);
    const std::size_t room = parts<float>().filter_room(x.size());
    const float* survivors;
    parts<float>().filter(x.data(), x.size(), -1, scratch(room), &survivors, nullptr);
    ASSERT_DEATH(parts<float>().filter(x.data(), x.size(), -1, scratch(room - 1), &survivors, nullptr), "left_");
  });
#if HWY_IS_ASAN
  Arena arena = scratch(1000);
  volatile float* const row = arena.take<float>(9);
  row[8] = 1;
  ASSERT_DEATH(row[9] = 1, "use-after-poison");
#endif
}

// tau by sorting: the largest k with z_(k) > (z_(1) + ... + z_(k) - 1) / k.
long double sorted_threshold(std::vector<double> z) {
  std::sort(z.begin(), z.end(), std::greater<>());
  long double tau = 0, sum = 0;
  for (std::size_t k = 0; k < z.size(); ++k) {
    sum += z[k];
    const long double candidate = (sum - 1) / static_cast<long double>(k + 1);
    if (z[k] > candidate) tau = candidate;
  }
  return tau;
}

// Scores z <= 0 with maximum 0.
std::map<std::string, std::vector<double>> threshold_cases() {
  std::map<std::string, std::vector<double>> cases;
  cases["one score"] = {0};
  cases["two equal"] = {0, 0};
  cases["on the edge of the support"] = {0, -1};
  cases["just inside"] = {0, -1 + 0x1p-53};
  cases["three on the edge"] = {0, -0.5, -0.75};
  cases["below the bound too"] = {0, -0.25, -2, -1e300};
  for (const std::size_t n : {3u, 7u, 16u, 17u, 64u, 100u, 257u, 1000u, 5000u}) {
    for (const double scale : {1e-9, 1e-3, 0.1, 1.0, 10.0}) {
      std::vector<double> z = support::normal_row<double>(n, scale, 0, static_cast<unsigned>(n));
      const double max = *std::max_element(z.begin(), z.end());
      for (double& score : z) score -= max;
      cases["normal " + std::to_string(n) + " scale " + std::to_string(scale)] = z;
    }
    cases["equal " + std::to_string(n)] = std::vector<double>(n, 0.0);
    std::vector<double> steps(n);
    for (std::size_t i = 0; i < n; ++i) steps[i] = -static_cast<double>(i) / 16;
    cases["steps " + std::to_string(n)] = steps;
  }
  for (const double scale : {0.0, 1e-12, 1e-6, 1e-5, 1e-4}) {
    std::vector<double> flat(100000);
    for (std::size_t i = 1; i < flat.size(); ++i) flat[i] = -scale * static_cast<double>(i * 7919 % 100003) / 100003;
    cases["flat 100000, spread " + std::to_string(scale)] = flat;
  }
  return cases;
}

// The threshold of scores that end at a guard page, filled up to a multiple of 16.
HighLow threshold_of(std::vector<double> z) {
  z.resize((z.size() + 15) / 16 * 16, -1.0);
  const support::Guarded<double> guarded(z.size());
  std::copy(z.begin(), z.end(), guarded.data());
  return HWY_DYNAMIC_DISPATCH(ThresholdOf)(guarded.data(), z.size());
}

TEST(SimplexThreshold, AgreesWithSorting) {
  for (const auto& entry : threshold_cases()) {
    const std::string& name = entry.first;
    const std::vector<double>& z = entry.second;
    const long double want = sorted_threshold(z);
    std::vector<double> first;
    support::for_each_target([&](const std::string& target) {
      const HighLow tau = threshold_of(z);
      const long double both = static_cast<long double>(tau.high) + tau.low;
      ASSERT_LE(std::abs(both - want), 0x1p-53) << name;
      ASSERT_LE(std::abs(tau.low), 1e-12) << name;
      long double sum = 0;
      for (const double score : z) sum += std::max(score - both, 0.0L);
      ASSERT_LE(std::abs(sum - 1), 1e-13L) << name;
      if (!has_fma(target)) return;
      if (first.empty()) first = {tau.high, tau.low};
      ASSERT_EQ(first, (std::vector<double>{tau.high, tau.low})) << name;
    });
  }
}

TEST(SimplexThreshold, IsNaNWhereAScoreIs) {
  support::for_each_target([](const std::string&) {
    for (const std::size_t n : {1u, 2u, 17u, 300u}) {
      for (std::size_t i = 0; i < n; ++i) {
        std::vector<double> z(n, 0.0);
        z[i] = kNaN<double>;
        ASSERT_TRUE(std::isnan(threshold_of(z).low)) << "n " << n << " element " << i;
      }
    }
  });
}

}  // namespace
}  // namespace isentropic::inline ISENTROPIC_ABI

#endif  // HWY_ONCE
