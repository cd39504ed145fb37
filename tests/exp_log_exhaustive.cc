// Checks exp and log for every float32 input and many float64 ones: the errors that exp_log-inl.h states.
//
//   exp_log_exhaustive [TARGET [STRIDE]]
//
// TARGET is one of isentropic.simd_targets(), the best by default. With STRIDE only every STRIDE-th block of inputs is checked.
// Exit status 1: an error is above its bound, a special value is wrong or ExpScaled is not monotone.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/exp_log_exhaustive.cc"
#include "hwy/foreach_target.h"  // before the kernels
#include "src/rows/exp_log-inl.h"
#include "src/rows/loop-inl.h"

#ifndef ISENTROPIC_TESTS_EXP_LOG_EXHAUSTIVE_CC_
#define ISENTROPIC_TESTS_EXP_LOG_EXHAUSTIVE_CC_

// y = f(x) for n entries, n a multiple of 16.
template <class T>
struct Functions {
  void (*exp)(const T* x, std::size_t n, T* y);
  void (*exp_scaled)(const T* x, std::size_t n, T* y);
  void (*log)(const T* x, std::size_t n, T* y);
};

#endif  // ISENTROPIC_TESTS_EXP_LOG_EXHAUSTIVE_CC_

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {
namespace HWY_NAMESPACE {

template <class T>
void ExpArray(const T* x, size_t n, T* y) {
  const RowTag<T> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(Exp(d, hn::LoadU(d, x + i)), d, y + i);
}

template <class T>
void ExpScaledArray(const T* x, size_t n, T* y) {
  const RowTag<T> d;
  const ExpScaled<RowTag<T>> exp(d, 1);
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(exp(d, hn::LoadU(d, x + i)), d, y + i);
}

template <class T>
void LogArray(const T* x, size_t n, T* y) {
  const RowTag<T> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) hn::StoreU(Log(d, hn::LoadU(d, x + i)), d, y + i);
}

Functions<float> FunctionsF32() { return {ExpArray<float>, ExpScaledArray<float>, LogArray<float>}; }
Functions<double> FunctionsF64() { return {ExpArray<double>, ExpScaledArray<double>, LogArray<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "isentropic/simd.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

HWY_EXPORT(FunctionsF32);
HWY_EXPORT(FunctionsF64);

constexpr std::size_t kBlock = 4096;
constexpr unsigned kThreads = 2;

// The type of the reference: double leaves 2^-29 of a float32's last place, long double 2^-11 of a double's.
template <class T>
using Wide = std::conditional_t<sizeof(T) == 4, double, long double>;

// One unit in the last place of T at `exact`.
template <class T>
Wide<T> ulp(Wide<T> exact) {
  constexpr int kDigits = std::numeric_limits<T>::digits;
  constexpr int kLowest = std::numeric_limits<T>::min_exponent;
  int exponent;
  if constexpr (sizeof(T) == 4) {
    exponent = static_cast<int>(std::bit_cast<std::uint64_t>(exact) >> 52 & 0x7ff) - 1022;
    return std::bit_cast<double>(static_cast<std::uint64_t>(std::max(exponent, kLowest) - kDigits + 1023) << 52);
  } else {
    std::frexp(exact, &exponent);
    return std::ldexp(1.0L, std::max(exponent, kLowest) - kDigits);
  }
}

// The largest errors that one thread, and then all, have found.
template <class T>
struct Worst {
  Wide<T> ulps = 0, relative = 0;      // the relative error in units of eps, where the result is a normal number
  std::uint64_t wrong = 0, falls = 0;  // special values; x with f(x) > f(the next number above)
  T at = 0, wrong_at = 0, falls_at = 0;

  void see(T x, T got, Wide<T> want) {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    if (std::isnan(want) || std::isnan(got) || want == 0 || std::isinf(want)) {
      if (!(got == static_cast<T>(want) || (std::isnan(want) && std::isnan(got)))) ++wrong, wrong_at = x;
      return;
    }
    if (got == kInfinity && want > std::numeric_limits<T>::max()) return;
    const Wide<T> unit = ulp<T>(want);
    // Otherwise infinity counts as the number after the largest.
    const Wide<T> value = got == kInfinity ? std::ldexp(Wide<T>(1), std::numeric_limits<T>::max_exponent) : Wide<T>(got);
    const Wide<T> error = std::abs(value - want);
    if (error > ulps * unit) ulps = error / unit, at = x;
    if (std::abs(want) >= std::numeric_limits<T>::min()) {
      relative = std::max(relative, error / std::abs(want) * 2 / std::numeric_limits<T>::epsilon());
    }
  }

  void merge(const Worst& other) {
    if (other.ulps > ulps) ulps = other.ulps, at = other.at;
    relative = std::max(relative, other.relative);
    if (other.wrong) wrong += other.wrong, wrong_at = other.wrong_at;
    if (other.falls) falls += other.falls, falls_at = other.falls_at;
  }
};

enum class Function { exp, exp_scaled, log };

// Largest errors in ulp, as exp_log-inl.h states them: float32 and float64, on targets with FMA and on the others.
// ExpScaled's grows with |x|, which is at most 87 and 708 here.
struct Row {
  Function function;
  const char* name;
  double with_fma[2], without_fma[2];
};
constexpr Row kRows[] = {{Function::exp, "Exp", {1.05, 1.05}, {1.05, 1.05}},
                         {Function::exp_scaled, "ExpScaled", {24, 100}, {90, 710}},
                         {Function::log, "Log", {0.9, 0.9}, {0.91, 0.91}}};

template <class T>
Wide<T> reference(Function function, T x) {
  return function == Function::log ? std::log(Wide<T>(x)) : std::exp(Wide<T>(x));
}

template <class T>
void evaluate(const Functions<T>& functions, Function function, const T* x, T* y) {
  const auto f = function == Function::exp ? functions.exp : function == Function::log ? functions.log : functions.exp_scaled;
  f(x, kBlock, y);
}

// ExpScaled returns 0 below about 2^-126: such results only count by their absolute error.
template <class T>
void see(Worst<T>& worst, Function function, T x, T y) {
  const Wide<T> want = reference(function, x);
  constexpr T kSmallest = std::numeric_limits<T>::min();
  if (function == Function::exp_scaled && want < kSmallest) {
    if (!(y >= 0 && y <= kSmallest)) ++worst.wrong, worst.wrong_at = x;
  } else {
    worst.see(x, y, want);
  }
}

// Runs body(thread, worst) on each thread, and returns the worst of all.
template <class T, class Body>
Worst<T> on_threads(const Body& body) {
  Worst<T> worst[kThreads];
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { body(t, worst[t]); });
  for (std::thread& thread : threads) thread.join();
  for (unsigned t = 1; t < kThreads; ++t) worst[0].merge(worst[t]);
  return worst[0];
}

// Consecutive bit patterns, block by block; ExpScaled only sees x <= 0 (and NaN).
Worst<float> sweep(Function function, std::uint64_t stride) {
  const Functions<float> functions = HWY_DYNAMIC_DISPATCH(FunctionsF32)();
  const std::uint64_t begin = function == Function::exp_scaled ? 0x80000000u : 0;
  return on_threads<float>([&](unsigned thread, Worst<float>& worst) {
    std::vector<float> x(kBlock), y(kBlock);
    for (std::uint64_t block = begin + thread * stride * kBlock; block < 1ull << 32; block += kThreads * stride * kBlock) {
      for (std::size_t i = 0; i < kBlock; ++i) x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(block + i));
      evaluate(functions, function, x.data(), y.data());
      for (std::size_t i = 0; i < kBlock; ++i) see(worst, function, x[i], y[i]);
      if (function != Function::exp_scaled) continue;
      // Negative numbers: the bit pattern after x is the next number below x. Blocks overlap by one.
      for (std::size_t i = 0; i + 1 < kBlock; ++i) {
        if (y[i + 1] > y[i]) ++worst.falls, worst.falls_at = x[i + 1];
      }
      const std::uint64_t last = block + kBlock;
      if (last >= 1ull << 32) continue;
      const float y_last = y[kBlock - 1];
      std::fill(x.begin(), x.end(), std::bit_cast<float>(static_cast<std::uint32_t>(last)));
      evaluate(functions, function, x.data(), y.data());
      if (y[0] > y_last) ++worst.falls, worst.falls_at = x[0];
    }
  });
}

// Half of the inputs by their bits, so every magnitude; half uniform over the range with results that matter.
Worst<double> sample(Function function, std::uint64_t count) {
  const Functions<double> functions = HWY_DYNAMIC_DISPATCH(FunctionsF64)();
  return on_threads<double>([&](unsigned thread, Worst<double>& worst) {
    std::mt19937_64 random(thread + 1);
    std::uniform_real_distribution<double> wide(-745.2, 709.8), narrow(-708.5, 0), around_one(0.4, 2.5);
    std::vector<double> x(kBlock), y(kBlock), below(kBlock), y_below(kBlock);
    for (std::uint64_t done = 0; done < count / kThreads; done += kBlock) {
      for (std::size_t i = 0; i < kBlock; ++i) {
        const std::uint64_t bits = random();
        if (i % 2 == 0 && function == Function::log) {
          x[i] = around_one(random);
        } else if (i % 2 == 0) {
          x[i] = function == Function::exp ? wide(random) : narrow(random);
        } else if (function == Function::log) {
          x[i] = std::bit_cast<double>(bits & 0x7fffffffffffffff);
        } else {
          // Exponents from 2^-60 to 2^11, and a few of any size.
          const std::uint64_t exponent = i % 64 == 1 ? bits >> 52 & 0x7ff : 1023 - 60 + (bits >> 52) % 71;
          x[i] = std::bit_cast<double>((bits & 0x800fffffffffffff) | exponent << 52);
        }
        if (function == Function::exp_scaled && x[i] > 0) x[i] = -x[i];
      }
      evaluate(functions, function, x.data(), y.data());
      for (std::size_t i = 0; i < kBlock; ++i) see(worst, function, x[i], y[i]);
      if (function != Function::exp_scaled) continue;
      for (std::size_t i = 0; i < kBlock; ++i) below[i] = std::nextafter(x[i], -std::numeric_limits<double>::infinity());
      evaluate(functions, function, below.data(), y_below.data());
      for (std::size_t i = 0; i < kBlock; ++i) {
        if (y_below[i] > y[i]) ++worst.falls, worst.falls_at = below[i];
      }
    }
  });
}

template <class T>
bool report(const Row& row, bool fma, const Worst<T>& worst) {
  const double bound = (fma ? row.with_fma : row.without_fma)[sizeof(T) == 8];
  const char* type = sizeof(T) == 4 ? "float32" : "float64";
  std::printf("%-9s %-7s  largest error %.4f ulp at %a (relative: %.3f eps)", row.name, type, static_cast<double>(worst.ulps),
              static_cast<double>(worst.at), static_cast<double>(worst.relative));
  const auto count = [](const char* what, std::uint64_t times, T at) {
    if (times != 0)
      std::printf("; %s %llu times, as at %a", what, static_cast<unsigned long long>(times), static_cast<double>(at));
  };
  count("wrong special value", worst.wrong, worst.wrong_at);
  count("falls to the next number above", worst.falls, worst.falls_at);
  std::printf("\n");
  std::fflush(stdout);
  return worst.ulps <= bound && worst.wrong == 0 && worst.falls == 0;
}

int run(int argc, char** argv) {
  if (argc > 1) force_simd_target(argv[1]);
  const std::uint64_t stride = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  if (stride == 0) {
    std::fprintf(stderr, "exp_log_exhaustive: STRIDE must be at least 1\n");
    return 2;
  }
  const std::string target = simd_target();
  const bool fma = target != "SSE4" && target != "SCALAR" && target != "EMU128";
  std::printf("target %s\n", target.c_str());
  bool good = true;
  for (const Row& row : kRows) {
    good &= report(row, fma, sweep(row.function, stride));
    good &= report(row, fma, sample(row.function, (1ull << 28) / stride));
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace isentropic::inline ISENTROPIC_ABI

int main(int argc, char** argv) {
  try {
    return isentropic::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

#endif  // HWY_ONCE
