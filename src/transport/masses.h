// Masses of transportation problems: checked, and as whole numbers.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isentropic/matrix_view.h"
#include "src/check.h"
#include "src/transport/compensated_sum.h"
#include "src/transport/network_simplex.h"

namespace isentropic::inline ISENTROPIC_ABI {

// The sum of masses. Each must be at least 0 and finite, and not all 0; refuse(what is wrong, the entry or nothing) throws.
template <class T, class Refuse>
double sum_of_masses(const T* masses, std::size_t n, const Refuse& refuse) {
  CompensatedSum sum;
  for (std::size_t i = 0; i < n; ++i) {
    const double mass = masses[i];
    if (!(mass >= 0 && mass <= std::numeric_limits<T>::max())) {
      refuse(formatted("must be at least 0 and finite, got {}", mass), std::optional(i));
    }
    sum.add(mass);
  }
  if (!(sum.value() > 0 && sum.value() <= std::numeric_limits<double>::max())) {
    refuse(formatted("must have a finite sum above 0, got {}", sum.value()), std::optional<std::size_t>());
  }
  return sum.value();
}

// The sum of one row of several, and of the weights of all points.
template <class T>
double check_masses(std::string_view operation, std::string_view name, const MatrixView<const T>& masses, std::size_t row) {
  return sum_of_masses(masses.row(row), masses.cols, [&](const std::string& wrong, std::optional<std::size_t> entry) {
    throw RowError(operation, name, formatted("{} {}", name, wrong), row, {}, entry);
  });
}
template <class T>
double check_weights(std::string_view operation, std::string_view name, std::span<const T> weights, std::size_t points) {
  if (weights.size() != points) {
    fail_at(operation, name, {}, "{} must have one weight for each of {} points, got {}", name, points, weights.size());
  }
  return sum_of_masses(weights.data(), points, [&](const std::string& wrong, std::optional<std::size_t> entry) {
    fail_at(operation, name, {.entry = entry}, "{} {}", name, wrong);
  });
}

// Times 2^power: exact products, unless they underflow a double. A loop that asks std::ldexp for each number takes twice as
// long.
struct ByPowerOf2 {
  explicit ByPowerOf2(int power) : half(std::ldexp(1.0, power / 2)), other(std::ldexp(1.0, power - power / 2)) {}
  double operator()(double x) const { return x * half * other; }
  double half, other;
};

// a in units of 2^-shift / parts, and b scaled to the sum of a.
struct WholeMasses {
  std::vector<Mass> a, b;
  int shift = 0;
  Mass parts = 1;
  ByPowerOf2 by_unit{0};  // 2^-shift

  double number(Mass mass) const {
    if (parts == 1) return by_unit(static_cast<double>(mass));
    const Mass whole = mass / parts;  // the one division of 128 bits, a call of some 30 ns
    const double rest = static_cast<double>(mass - whole * parts) / static_cast<double>(parts);
    return by_unit(static_cast<double>(whole) + rest);
  }

  // Whether a flow is only a rounding rest of both masses, and so not an entry of the plan.
  bool is_rounding(std::size_t i, std::size_t j, Mass flow) const { return flow < a[i] >> 70 && flow < b[j] >> 70; }

  // A unit as a fraction of the sum of a.
  double fraction(double sum_a) const { return 0x1p-100 / std::ldexp(sum_a, shift - 100) / static_cast<double>(parts); }

  template <class T>
  void set(std::span<const T> from_a, double sum_a, std::span<const T> from_b, double sum_b) {
    // There are 2^100 units or a few more in all, so a double with 53 bits of at least 2^-47 of the sum is a whole number.
    // Nearly equal sums share one unit, so that equal masses remain equal; otherwise each sum has its own.
    int top_a = std::ilogb(sum_a), top_b = std::ilogb(sum_b);
    if (std::abs(top_a - top_b) <= 1) top_a = top_b = std::max(top_a, top_b);
    set_shift(100 - top_a);
    const ByPowerOf2 scale_a(-top_a), scale_b(-top_b);
    a.resize(from_a.size());
    b.resize(from_b.size());
    parts = 1;
    Mass total_a = 0, total_b = 0;
    for (std::size_t i = 0; i < a.size(); ++i) total_a += a[i] = whole(scale_a(from_a[i]));
    for (std::size_t j = 0; j < b.size(); ++j) total_b += b[j] = whole(scale_b(from_b[j]));
    if (total_a == total_b || share_unit(total_a, total_b)) return;
    Mass rest = total_a - total_b;
    // Scaled in proportion; the largest mass gets the rounding rest.
    const bool more = rest > 0;
    const double factor = std::abs(static_cast<double>(rest)) / static_cast<double>(total_b);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const Mass change = whole(scale_b(from_b[j]) * factor);
      b[j] += more ? change : -change;
      rest -= more ? change : -change;
    }
    *std::max_element(b.begin(), b.end()) += rest;
  }

  // a and b in one unit, neither scaled. If `mass`, or as much as possible, is moved, each gets one more entry for the
  // remaining mass of the other. Returns the moved mass.
  template <class T>
  double set_part(std::span<const T> from_a, std::span<const T> from_b, double larger_sum, double mass) {
    const int top = std::ilogb(larger_sum);
    set_shift(100 - top);
    parts = 1;
    const ByPowerOf2 scale(-top);
    Mass total_a = 0, total_b = 0;
    a.clear(), b.clear();
    for (const T x : from_a) total_a += a.emplace_back(whole(scale(x)));
    for (const T x : from_b) total_b += b.emplace_back(whole(scale(x)));
    const Mass moved = std::min({whole(scale(mass)), total_a, total_b});
    a.push_back(total_b - moved);
    b.push_back(total_a - moved);
    return number(moved);
  }

 private:
  void set_shift(int power) {
    shift = power;
    by_unit = ByPowerOf2(-power);
  }

  // a times the sum of b, and b times the sum of a, have equal sums, and sums of some masses of a and b that are equal
  // fractions remain equal. So this keeps the plan exact, as long as such numbers are small enough: those of equal weights
  // always are. Returns whether they are.
  bool share_unit(Mass total_a, Mass total_b) {
    const bool even = std::ranges::count(b, b.front()) == std::ssize(b);
    const int zeros_a = zeros_of(a), zeros_b = even ? 0 : zeros_of(b);
    total_a >>= zeros_a;
    total_b = even ? static_cast<Mass>(b.size()) : total_b >> zeros_b;
    if (total_a > (Mass{1} << 120) / total_b) return false;
    for (Mass& mass : a) mass = (mass >> zeros_a) * total_b;
    for (Mass& mass : b) mass = even ? total_a : (mass >> zeros_b) * total_a;
    set_shift(shift - zeros_a);
    parts = total_b;
    return true;
  }

  // The number of zeros at the end of all masses in binary.
  static int zeros_of(const std::vector<Mass>& masses) {
    std::uint64_t low = 0, high = 0;
    for (const Mass mass : masses) low |= static_cast<std::uint64_t>(mass), high |= static_cast<std::uint64_t>(mass >> 64);
    return low != 0 ? std::countr_zero(low) : 64 + std::countr_zero(high);
  }

  // The whole part of x 2^100, for x at least 0 and below 4.
  static Mass whole(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    const int by = static_cast<int>(bits >> 52 & 0x7FF) - 1075 + 100;  // without the sign of -0
    if (by < -60) return 0;
    const auto digits = static_cast<Mass>((bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52);
    return by >= 0 ? digits << by : digits >> -by;
  }
};

}  // namespace isentropic::inline ISENTROPIC_ABI
