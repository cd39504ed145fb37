// Masses on a line: samples sorted, and the monotone plan between two of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "src/transport/masses.h"
#include "src/transport/points.h"

namespace isentropic::inline ISENTROPIC_ABI {

// A number as an integer in the same order: sorting then needs no comparisons.
inline std::uint32_t to_key(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0f);  // -0 is 0
  return bits ^ (bits >> 31 != 0 ? ~0u : 0x80000000u);
}
inline std::uint64_t to_key(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x + 0.0);
  return bits ^ (bits >> 63 != 0 ? ~std::uint64_t{0} : std::uint64_t{1} << 63);
}
inline float from_key(std::uint32_t key) { return std::bit_cast<float>(key ^ (key >> 31 != 0 ? 0x80000000u : ~0u)); }
inline double from_key(std::uint64_t key) {
  return std::bit_cast<double>(key ^ (key >> 63 != 0 ? std::uint64_t{1} << 63 : ~std::uint64_t{0}));
}

// A key and its data.
template <class Key, class With>
struct Item {
  Key key;
  With with;
};
template <class Key>
Key key_of(Key key) {
  return key;
}
template <class Key, class With>
Key key_of(const Item<Key, With>& item) {
  return item.key;
}

// Sorts by key and keeps the order of equal ones: by the last 8 bits first (Hollerith 1889, Knuth 5.2.5). 256 places to write
// to fit the nearest cache; with 11 bits there are fewer passes, but they take longer.
template <class Item>
void sort_items(std::vector<Item>& items, std::vector<Item>& other) {
  using Key = decltype(key_of(items.front()));
  constexpr std::size_t kBits = 8, kBuckets = 1u << kBits, kPasses = (8 * sizeof(Key) + kBits - 1) / kBits;
  if (items.size() < 1024) {
    std::stable_sort(items.begin(), items.end(), [](const Item& x, const Item& y) { return key_of(x) < key_of(y); });
    return;
  }
  std::vector<std::uint32_t> counts(kPasses * kBuckets);
  for (const Item& item : items) {
    for (std::size_t pass = 0; pass < kPasses; ++pass) {
      ++counts[pass * kBuckets + (key_of(item) >> (pass * kBits) & (kBuckets - 1))];
    }
  }
  other.resize(items.size());
  for (std::size_t pass = 0; pass < kPasses; ++pass) {
    std::uint32_t* const count = counts.data() + pass * kBuckets;
    const std::size_t shift = pass * kBits;
    if (count[key_of(items.front()) >> shift & (kBuckets - 1)] == items.size()) continue;
    std::exclusive_scan(count, count + kBuckets, count, std::uint32_t{0});
    for (const Item& item : items) other[count[key_of(item) >> shift & (kBuckets - 1)]++] = item;
    items.swap(other);
  }
}

template <class T>
using Key = decltype(to_key(T()));

// One thread's workspace.
template <class T>
struct Line {
  std::vector<Key<T>> keys, more_keys;
  std::vector<Item<Key<T>, std::uint32_t>> indexed, more_indexed;
  std::vector<Item<Key<T>, T>> weighted, more_weighted;
  std::vector<double> x, y;               // sorted
  std::vector<std::uint32_t> x_at, y_at;  // their indices before sorting
  std::vector<T> a, b;                    // weights in the order of x and y
  WholeMasses masses;
  std::vector<double> f, g;
};

// The samples in order.
template <class T>
void sort_samples(Line<T>& line, const T* samples, std::size_t n, std::vector<double>& sorted) {
  sorted.resize(n);
  line.keys.resize(n);
  for (std::size_t i = 0; i < n; ++i) line.keys[i] = to_key(samples[i]);
  sort_items(line.keys, line.more_keys);
  for (std::size_t i = 0; i < n; ++i) sorted[i] = from_key(line.keys[i]);
}

// The samples in order, and `carried` in the same order, with_of(i) for sample i.
template <class T, class With>
void sort_samples(std::vector<Item<Key<T>, With>>& items, std::vector<Item<Key<T>, With>>& more, const T* samples,
                  std::size_t n, std::vector<double>& sorted, std::vector<With>& carried, const auto& with_of) {
  sorted.resize(n);
  carried.resize(n);
  items.resize(n);
  for (std::size_t i = 0; i < n; ++i) items[i] = {to_key(samples[i]), with_of(i)};
  sort_items(items, more);
  for (std::size_t i = 0; i < n; ++i) {
    sorted[i] = from_key(items[i].key);
    carried[i] = items[i].with;
  }
}

// Calls visit(i, j, mass, step) along the monotone plan: step 1 then leaves row i, 2 column j, 3 both, and 0 ends. It visits
// every row and column, also those without mass.
template <class Visit>
void walk(std::size_t n, std::size_t m, const auto& mass_a, const auto& mass_b, Visit&& visit) {
  std::size_t i = 0, j = 0;
  Mass rest_a = mass_a(0), rest_b = mass_b(0);
  for (;;) {
    const Mass mass = std::min(rest_a, rest_b);
    rest_a -= mass;
    rest_b -= mass;
    int step = (rest_a == 0 && i + 1 < n ? 1 : 0) + (rest_b == 0 && j + 1 < m ? 2 : 0);
    visit(i, j, mass, step);
    if (step == 0) return;
    if (step & 1) rest_a = mass_a(++i);
    if (step & 2) rest_b = mass_b(++j);
  }
}

inline double apart(double x, double y, double scale) { return x == y ? 0 : std::abs(x * scale - y * scale); }

// The distance of sorted x and y. Masses are whole numbers; times `unit` they are fractions of 1. For each pair of the plan,
// gradient(i, j, d) gets the derivative of the distance in x_i.
template <class Gradient>
double line_distance(const std::vector<double>& x, const std::vector<double>& y, const auto& mass_a, const auto& mass_b,
                     double unit, double order, bool wanted, Gradient&& gradient) {
  // With halves, differences do not overflow.
  const double scale =
      std::max({std::abs(x.front()), std::abs(x.back()), std::abs(y.front()), std::abs(y.back())}) > 0x1p1022 ? 0.25 : 1;
  double largest = 0;
  std::size_t at_i = 0, at_j = 0;
  if (order == 1 && !wanted) {
    largest = 1;
  } else {
    walk(x.size(), y.size(), mass_a, mass_b, [&](std::size_t i, std::size_t j, Mass mass, int) {
      if (mass == 0) return;
      const double d = apart(x[i], y[j], scale);
      if (d > largest) largest = d, at_i = i, at_j = j;
    });
    if (largest == 0 || std::isinf(largest) || std::isinf(order)) {
      if (wanted && std::isinf(order) && largest > 0) {
        gradient(at_i, at_j, x[at_i] > y[at_j] ? 1.0 : -1.0);
      }
      return largest / scale;
    }
  }
  CompensatedSum sum;
  const double inverse = 1 / largest;
  const bool divide = !(inverse <= std::numeric_limits<double>::max());
  // The largest is exactly 1, so any power of it is 1.
  const auto ratio = [&](double d) { return d == largest ? 1.0 : divide || largest < 1e-290 ? d / largest : d * inverse; };
  walk(x.size(), y.size(), mass_a, mass_b, [&](std::size_t i, std::size_t j, Mass mass, int) {
    if (mass == 0) return;
    const double d = apart(x[i], y[j], scale);
    sum.add_product(static_cast<double>(mass) * unit, order == 1 && !wanted ? d : power(ratio(d), order));
  });
  // A mean is at most the largest, even if rounding would make it overflow.
  if (order == 1 && !wanted) {
    const double reach = std::max(x.back() * scale, y.back() * scale) - std::min(x.front() * scale, y.front() * scale);
    return std::min(sum.value(), reach) / scale;
  }
  const double total = std::min(sum.value(), 1.0);
  if (wanted) {
    const double factor = std::pow(total, 1 / order - 1) * unit;
    walk(x.size(), y.size(), mass_a, mass_b, [&](std::size_t i, std::size_t j, Mass mass, int) {
      const double d = apart(x[i], y[j], scale);
      if (mass == 0 || d == 0) return;
      const double slope = order == 1 ? 1 : order == 2 ? ratio(d) : std::pow(ratio(d), order - 1);
      gradient(i, j, (x[i] > y[j] ? factor : -factor) * static_cast<double>(mass) * slope);
    });
  }
  return largest * std::pow(total, 1 / order) / scale;
}

}  // namespace isentropic::inline ISENTROPIC_ABI
