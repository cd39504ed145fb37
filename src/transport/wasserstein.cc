// Wasserstein distances: on the line by merging sorted samples, in more dimensions by the network simplex.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "entropic/transport.h"
#include "src/check.h"
#include "src/parallel.h"
#include "src/transport/masses.h"
#include "src/transport/points.h"

namespace entropic {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

// A number as an integer of the same order: sorting then needs no comparisons.
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

// A key and what goes with it.
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
// to fit the nearest cache; with 11 bits fewer passes take longer.
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

// One thread's working memory.
template <class T>
struct Line {
  std::vector<Key<T>> keys, more_keys;
  std::vector<Item<Key<T>, std::uint32_t>> indexed, more_indexed;
  std::vector<Item<Key<T>, T>> weighted, more_weighted;
  std::vector<double> x, y;               // sorted
  std::vector<std::uint32_t> x_at, y_at;  // where they were
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

// And `carried` in the same order, with_of(i) for sample i.
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

// Calls visit(i, j, mass, step) along the monotone plan: step 1 leaves row i next, 2 column j, 3 both, 0 ends. Every row and
// column is met, also those without mass.
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

inline double power(double r, double order) { return order == 1 ? r : order == 2 ? r * r : std::pow(r, order); }

// The distance of sorted x and y. With masses as whole numbers of which `unit` makes fractions of 1. gradient(i, j, d) gets for
// each pair of the plan the derivative of the distance in x_i.
template <class Gradient>
double line_distance(const std::vector<double>& x, const std::vector<double>& y, const auto& mass_a, const auto& mass_b,
                     double unit, double order, bool wanted, Gradient&& gradient) {
  // Half of what there is: differences do not overflow.
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
    if (largest == 0 || largest == kInfinity || order == kInfinity) {
      if (wanted && order == kInfinity && largest > 0) {
        gradient(at_i, at_j, x[at_i] > y[at_j] ? 1.0 : -1.0);
      }
      return largest / scale;
    }
  }
  CompensatedSum sum;
  const double inverse = 1 / largest;
  const bool divide = !(inverse <= std::numeric_limits<double>::max());
  // The largest is exactly 1, whatever power it is raised to.
  const auto ratio = [&](double d) { return d == largest ? 1.0 : divide || largest < 1e-290 ? d / largest : d * inverse; };
  walk(x.size(), y.size(), mass_a, mass_b, [&](std::size_t i, std::size_t j, Mass mass, int) {
    if (mass == 0) return;
    const double d = apart(x[i], y[j], scale);
    sum.add_product(static_cast<double>(mass) * unit, order == 1 && !wanted ? d : power(ratio(d), order));
  });
  if (order == 1 && !wanted) return sum.value() / scale;
  const double total = sum.value();
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

// The weights of samples, or 1 where there are none.
template <class T>
class Weights {
 public:
  Weights(std::string_view operation, std::string_view name, const MatrixView<const T>& weights, std::string_view samples_name,
          const MatrixView<const T>& samples)
      : weights_(weights), count_(static_cast<double>(samples.cols)) {
    if (weights.rows == 0) return;
    check_shape(operation, name, weights, samples_name, weights.rows == 1 ? 1 : samples.rows, samples.cols);
    for (std::size_t r = 0; r < weights.rows; ++r) sums_.push_back(check_masses(operation, name, weights, r));
  }

  // Those of row r, by sample.
  auto of(std::size_t r) const {
    const T* const row = sums_.empty() ? nullptr : weights_.row(weights_.rows == 1 ? 0 : r);
    return [row](std::size_t i) { return row == nullptr ? T(1) : row[i]; };
  }
  double sum(std::size_t r) const { return sums_.empty() ? count_ : sums_[weights_.rows == 1 ? 0 : r]; }

 private:
  MatrixView<const T> weights_;
  std::vector<double> sums_;
  double count_;
};

void check_count(std::string_view operation, std::string_view name, std::size_t size, std::size_t rows) {
  if (size != rows) fail("{}: {} must have one entry for each of {} rows, got {}", operation, name, rows, size);
}

template <class T>
bool has_nan(const T* x, std::size_t n) {
  bool found = false;
  for (std::size_t i = 0; i < n; ++i) found |= x[i] != x[i];
  return found;
}

}  // namespace

template <class T>
void wasserstein_1d(MatrixView<const T> u, MatrixView<const T> v, std::type_identity_t<MatrixView<const T>> u_weights,
                    std::type_identity_t<MatrixView<const T>> v_weights, std::span<double> distance,
                    const Wasserstein1d& options, std::type_identity_t<MatrixView<T>> du,
                    std::type_identity_t<MatrixView<T>> dv) {
  constexpr std::string_view kName = Wasserstein1d::kDescription.name;
  check_params(options);
  check_layout(kName, "u", u);
  check_layout(kName, "v", v);
  const std::size_t rows = u.rows, n = u.cols, m = v.cols;
  if (v.rows != rows) fail("{}: v must have as many rows as u, {}, got {}", kName, rows, v.rows);
  check_count(kName, "distance", distance.size(), rows);
  if (rows == 0) return;
  if (n == 0 || m == 0) fail("{}: u and v must have at least one sample, got {} and {}", kName, n, m);
  if (n >= 1u << 31 || m >= 1u << 31) fail("{}: u and v must have less than 2^31 samples, got {} and {}", kName, n, m);
  const Weights<T> weights_u(kName, "u_weights", u_weights, "u", u), weights_v(kName, "v_weights", v_weights, "v", v);
  if (du.rows != 0) check_shape(kName, "du", du, "u", rows, n);
  if (dv.rows != 0) check_shape(kName, "dv", dv, "v", rows, m);
  for (const auto& [in_name, in] :
       {std::pair("u", u), std::pair("v", v), std::pair("u_weights", u_weights), std::pair("v_weights", v_weights)}) {
    check_apart(kName, "du", du, in_name, in);
    check_apart(kName, "dv", dv, in_name, in);
  }
  check_apart(kName, "dv", dv, "du", MatrixView<const T>(du));
  const bool wanted = du.rows != 0 || dv.rows != 0, weighted = u_weights.rows != 0 || v_weights.rows != 0;

  parallel_rows(rows, 32 * (n + m), [&](std::size_t begin, std::size_t end) {
    Line<T> line;
    std::vector<double> gradient_u, gradient_v;
    for (std::size_t r = begin; r < end; ++r) {
      const auto fill = [&](T value) {
        if (du.rows != 0) std::fill(du.row(r), du.row(r) + n, value);
        if (dv.rows != 0) std::fill(dv.row(r), dv.row(r) + m, value);
      };
      if (has_nan(u.row(r), n) || has_nan(v.row(r), m)) {
        distance[r] = kNaN;
        fill(std::numeric_limits<T>::quiet_NaN());
        continue;
      }
      if (wanted) {
        const auto index = [](std::size_t i) { return static_cast<std::uint32_t>(i); };
        sort_samples<T>(line.indexed, line.more_indexed, u.row(r), n, line.x, line.x_at, index);
        sort_samples<T>(line.indexed, line.more_indexed, v.row(r), m, line.y, line.y_at, index);
        gradient_u.assign(n, 0);
        gradient_v.assign(m, 0);
      } else if (weighted) {
        sort_samples<T>(line.weighted, line.more_weighted, u.row(r), n, line.x, line.a, weights_u.of(r));
        sort_samples<T>(line.weighted, line.more_weighted, v.row(r), m, line.y, line.b, weights_v.of(r));
      } else {
        sort_samples(line, u.row(r), n, line.x);
        sort_samples(line, v.row(r), m, line.y);
      }
      const auto gradient = [&](std::size_t i, std::size_t j, double slope) {
        gradient_u[line.x_at[i]] += slope;
        gradient_v[line.y_at[j]] -= slope;
      };
      if (weighted) {
        const auto in_order = [](const auto& weight, const std::vector<std::uint32_t>& at, std::vector<T>& to) {
          to.resize(at.size());
          for (std::size_t i = 0; i < at.size(); ++i) to[i] = weight(at[i]);
        };
        if (wanted) {
          in_order(weights_u.of(r), line.x_at, line.a);
          in_order(weights_v.of(r), line.y_at, line.b);
        }
        const double sum_a = weights_u.sum(r), sum_b = weights_v.sum(r);
        line.masses.template set<T>(line.a, sum_a, line.b, sum_b);
        distance[r] = line_distance(
            line.x, line.y, [&](std::size_t i) { return line.masses.a[i]; }, [&](std::size_t j) { return line.masses.b[j]; },
            line.masses.fraction(sum_a), options.order, wanted, gradient);
      } else if (n == m) {
        const auto one = [](std::size_t) { return Mass{1}; };
        distance[r] = line_distance(line.x, line.y, one, one, 1.0 / static_cast<double>(n), options.order, wanted, gradient);
      } else {
        distance[r] = line_distance(
            line.x, line.y, [&](std::size_t) { return static_cast<Mass>(m); },
            [&](std::size_t) { return static_cast<Mass>(n); }, 1.0 / (static_cast<double>(n) * static_cast<double>(m)),
            options.order, wanted, gradient);
      }
      if (!wanted) continue;
      if (distance[r] == kInfinity) {
        fill(std::numeric_limits<T>::quiet_NaN());
        continue;
      }
      if (du.rows != 0)
        std::transform(gradient_u.begin(), gradient_u.end(), du.row(r), [](double x) { return static_cast<T>(x); });
      if (dv.rows != 0)
        std::transform(gradient_v.begin(), gradient_v.end(), dv.row(r), [](double x) { return static_cast<T>(x); });
    }
  });
}

template <class T>
void wasserstein_histogram(MatrixView<const T> p, MatrixView<const T> q, std::span<const double> support,
                           std::span<double> distance, const WassersteinHistogram& options,
                           std::type_identity_t<MatrixView<T>> dp, std::type_identity_t<MatrixView<T>> dq) {
  constexpr std::string_view kName = WassersteinHistogram::kDescription.name;
  check_params(options);
  check_layout(kName, "p", p);
  check_shape(kName, "q", q, "p", p.rows, p.cols);
  const std::size_t rows = p.rows, n = p.cols;
  check_count(kName, "distance", distance.size(), rows);
  if (support.size() != n) fail("{}: support must have one point for each of {} columns, got {}", kName, n, support.size());
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(support[i])) fail("{}: support must be finite, got {} at {}", kName, support[i], i);
  }
  if (dp.rows != 0) check_shape(kName, "dp", dp, "p", rows, n);
  if (dq.rows != 0) check_shape(kName, "dq", dq, "q", rows, n);
  for (const auto& [in_name, in] : {std::pair("p", p), std::pair("q", q)}) {
    check_apart(kName, "dp", dp, in_name, in);
    check_apart(kName, "dq", dq, in_name, in);
  }
  check_apart(kName, "dq", dq, "dp", MatrixView<const T>(dp));
  if (rows == 0) return;
  const double tolerance = options.sum_tolerance.value_or(kSumTolerance<T>);
  std::vector<double> sums_p(rows), sums_q(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto check = [&](std::string_view name, const MatrixView<const T>& masses) {
      const double sum = check_masses(kName, name, masses, r);
      if (std::abs(sum - 1) > tolerance) {
        fail("{}: {} must sum to 1 within {}, got {}{}", kName, name, tolerance, sum, in_problem(r, rows));
      }
      return sum;
    };
    sums_p[r] = check("p", p);
    sums_q[r] = check("q", q);
  }
  std::vector<std::uint32_t> at(n);
  std::iota(at.begin(), at.end(), 0);
  std::stable_sort(at.begin(), at.end(), [&](std::uint32_t i, std::uint32_t j) { return support[i] < support[j]; });
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = support[at[i]];
  const bool wanted = dp.rows != 0 || dq.rows != 0;

  parallel_rows(rows, 64 * n, [&](std::size_t begin, std::size_t end) {
    Line<T> line;
    line.a.resize(n);
    line.b.resize(n);
    line.f.resize(n);
    line.g.resize(n);
    for (std::size_t r = begin; r < end; ++r) {
      for (std::size_t i = 0; i < n; ++i) {
        line.a[i] = p.row(r)[at[i]];
        line.b[i] = q.row(r)[at[i]];
      }
      line.masses.template set<T>(line.a, sums_p[r], line.b, sums_q[r]);
      const auto mass_a = [&](std::size_t i) { return line.masses.a[i]; };
      const auto mass_b = [&](std::size_t j) { return line.masses.b[j]; };
      const double unit = line.masses.fraction(sums_p[r]);
      const double w = line_distance(x, x, mass_a, mass_b, unit, options.order, false, [](std::size_t, std::size_t, double) {});
      distance[r] = w;
      if (!wanted) continue;
      // Potentials of the cost (|x - y| / W)^order along the monotone plan; where it leaves row and column at once, both ways
      // round give potentials, and their mean does too.
      const double order = options.order;
      const bool flat = (w == 0 && order > 1) || order == kInfinity || n == 0;
      const double scale = w == 0 ? 1 : w;
      const auto cost = [&](std::size_t i, std::size_t j) { return power(std::abs(x[i] - x[j]) / scale, order); };
      double *const f = line.f.data(), *const g = line.g.data();
      if (!flat) {
        f[0] = 0;
        g[0] = cost(0, 0);
        walk(n, n, mass_a, mass_b, [&](std::size_t i, std::size_t j, Mass, int step) {
          if (step == 1) f[i + 1] = cost(i + 1, j) - g[j];
          if (step == 2) g[j + 1] = cost(i, j + 1) - f[i];
          if (step == 3) {
            f[i + 1] = f[i] + 0.5 * ((cost(i + 1, j) - cost(i, j)) + (cost(i + 1, j + 1) - cost(i, j + 1)));
            g[j + 1] = cost(i + 1, j + 1) - f[i + 1];
          }
        });
      }
      const auto write = [&](const double* potential, const std::vector<Mass>& mass, T* to) {
        CompensatedSum mean;
        for (std::size_t i = 0; i < n; ++i) {
          if (!flat) mean.add_product(static_cast<double>(mass[i]) * unit, potential[i]);
        }
        for (std::size_t i = 0; i < n; ++i) {
          to[at[i]] = flat ? T(0) : static_cast<T>((potential[i] - mean.value()) * scale / order);
        }
      };
      if (dp.rows != 0) write(f, line.masses.a, dp.row(r));
      if (dq.rows != 0) write(g, line.masses.b, dq.row(r));
    }
  });
}

template <class T>
double wasserstein(MatrixView<const T> x, MatrixView<const T> y, std::span<const std::type_identity_t<T>> a,
                   std::span<const std::type_identity_t<T>> b, const Wasserstein& options,
                   std::type_identity_t<MatrixView<T>> plan) {
  constexpr std::string_view kName = Wasserstein::kDescription.name;
  check_params(options);
  const std::size_t n = x.rows, m = y.rows;
  check_points(kName, x, y);
  const auto check = [&](std::string_view name, std::span<const T> weights, std::size_t count) {
    if (weights.empty()) return static_cast<double>(count);
    if (weights.size() != count)
      fail("{}: {} must have one weight for each of {} points, got {}", kName, name, count, weights.size());
    return check_masses(kName, name, MatrixView<const T>(weights.data(), 1, count), 0);
  };
  const double sum_a = check("a", a, n), sum_b = check("b", b, m);
  if (plan.rows != 0) check_shape(kName, "plan", plan, "points of x by points of y", n, m);
  if (x.cols == 1 && plan.rows == 0) {
    std::vector<T> u(n), v(m);
    for (std::size_t i = 0; i < n; ++i) u[i] = x.row(i)[0];
    for (std::size_t j = 0; j < m; ++j) v[j] = y.row(j)[0];
    double distance;
    wasserstein_1d<T>({u.data(), 1, n}, {v.data(), 1, m}, {a.data(), a.empty() ? 0u : 1u, a.size()},
                      {b.data(), b.empty() ? 0u : 1u, b.size()}, {&distance, 1}, {.order = options.order});
    return distance;
  }

  std::vector<T> ones_a(a.empty() ? n : 0, T(1)), ones_b(b.empty() ? m : 0, T(1));
  if (a.empty()) a = ones_a;
  if (b.empty()) b = ones_b;
  WholeMasses masses;
  masses.set<T>(a, sum_a, b, sum_b);
  std::vector<double> distance(n * m), cost(n * m);
  const double unit = distances(x, y, distance.data());
  double largest = *std::max_element(distance.begin(), distance.end());
  NetworkSimplex<double> simplex;
  double total = 0;
  // Where all that matters is too near for powers of its distance relative to the largest, relative to the largest that a plan
  // used; no plan of that cost pays what is beyond 1e250.
  for (int attempt = 0; attempt < 8 && largest > 0; ++attempt) {
    for (std::size_t k = 0; k < n * m; ++k) cost[k] = std::min(1e250, power(distance[k] / largest, options.order));
    simplex.solve({cost.data(), n, m}, masses.a, masses.b);
    double used = 0;
    CompensatedSum sum;
    simplex.for_each_flow([&](std::size_t i, std::size_t j, Mass flow) {
      used = std::max(used, distance[i * m + j]);
      sum.add_product(masses.number(flow) / sum_a, cost[i * m + j]);
    });
    total = sum.value();
    if (used == 0 || power(used / largest, options.order) > 1e-150) break;
    largest = used;
  }
  for (std::size_t i = 0; i < plan.rows; ++i) std::fill(plan.row(i), plan.row(i) + m, T(0));
  if (plan.rows != 0) {
    if (largest == 0) simplex.solve({distance.data(), n, m}, masses.a, masses.b);
    simplex.for_each_flow([&](std::size_t i, std::size_t j, Mass flow) {
      if (flow < masses.a[i] >> 70 && flow < masses.b[j] >> 70) return;
      plan.row(i)[j] = static_cast<T>(masses.number(flow) / sum_a);
    });
  }
  return largest * (options.order == 1 ? total : std::pow(total, 1 / options.order)) * unit;
}

template void wasserstein_1d(MatrixView<const float>, MatrixView<const float>, MatrixView<const float>, MatrixView<const float>,
                             std::span<double>, const Wasserstein1d&, MatrixView<float>, MatrixView<float>);
template void wasserstein_1d(MatrixView<const double>, MatrixView<const double>, MatrixView<const double>,
                             MatrixView<const double>, std::span<double>, const Wasserstein1d&, MatrixView<double>,
                             MatrixView<double>);
template void wasserstein_histogram(MatrixView<const float>, MatrixView<const float>, std::span<const double>,
                                    std::span<double>, const WassersteinHistogram&, MatrixView<float>, MatrixView<float>);
template void wasserstein_histogram(MatrixView<const double>, MatrixView<const double>, std::span<const double>,
                                    std::span<double>, const WassersteinHistogram&, MatrixView<double>, MatrixView<double>);
template double wasserstein(MatrixView<const float>, MatrixView<const float>, std::span<const float>, std::span<const float>,
                            const Wasserstein&, MatrixView<float>);
template double wasserstein(MatrixView<const double>, MatrixView<const double>, std::span<const double>,
                            std::span<const double>, const Wasserstein&, MatrixView<double>);

}  // namespace entropic
