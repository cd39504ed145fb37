// Properties of every map, for every element type, SIMD target and generated row.

#include "tests/support/maps.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "isentropic/threads.h"

namespace isentropic {
namespace {

TEST(Maps, AgreeWithTheDefinition) {
  for_each_definition([]<class T>(const Map& op, const Case<T>& c) {
    const Expected want = expected<T>(op, wide(c.x));
    support::for_each_target([&](const std::string&) { ASSERT_TRUE(is_one_of(want, run(op, c.x))) << c.name; });
  });
}

TEST(Maps, AreDistributions) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const Case<T>& c : support::finite_cases<T>()) {
      long double sum = 0;  // the sum's own rounding is not the map's
      for (const T mass : run(op, c.x)) {
        ASSERT_GE(mass, T(0)) << c.name;
        ASSERT_FALSE(std::signbit(mass)) << c.name;
        sum += mass;
      }
      const double bound = sizeof(T) == 4 ? 1e-6 : 1e-14 * std::max(1.0, std::log2(c.x.size()));
      ASSERT_LE(std::abs(sum - 1), bound) << c.name;
    }
  });
}

TEST(Maps, KeepWhatTheirLawsSay) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const Case<T>& c : support::finite_cases<T>()) {
      const std::vector<T> p = run(op, c.x);
      if (laws_of(op).order) {
        for (std::size_t i = 0; i + 1 < p.size(); ++i) {
          const T lower = c.x[i] < c.x[i + 1] ? p[i] : p[i + 1], higher = c.x[i] < c.x[i + 1] ? p[i + 1] : p[i];
          ASSERT_LE(lower, higher) << c.name << " entry " << i;
        }
      }
      for (std::size_t i = 0; i + 1 < p.size() && !laws_of(op).ties_by_index; ++i) {
        ASSERT_TRUE(c.x[i] != c.x[i + 1] || p[i] == p[i + 1]) << c.name << " entry " << i;
      }
      if (laws_of(op).shift) {
        // A shift that is exact in T: multiples of 1/16 below 2^12, moved by 2^10.
        std::vector<T> coarse = c.x, moved;
        for (T& score : coarse)
          score = std::isfinite(score) ? std::round(std::clamp(score, T(-2048), T(2048)) * 16) / 16 : score;
        for (const T score : coarse) moved.push_back(score + 1024);
        ASSERT_EQ(run(op, coarse), run(op, moved)) << c.name;
      }
    }
  });
}

// Runs of neighbouring numbers at any depth below the maximum: what is rounded must not swap two of them. Of entmax also alphas
// beside 1, where its rows are searched in other ways.
TEST(Maps, NeverFallFromOneScoreToTheNext) {
  const auto check = []<class T>(const Map& op, T) {
    if (!laws_of(op).order) return;
    std::mt19937 generator(33);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> exponent(-8, 3);
    for (const std::size_t n : {30, 300, 700, 2500}) {
      std::vector<T> x(n);
      for (std::size_t i = 0; i < n; ++i) {
        const bool starts = i % 25 == 0;
        x[i] = static_cast<T>(i == 0                  ? 0
                              : i % 25 == 24          ? normal(generator) - 4
                              : i % 25 == 1 || starts ? -std::exp2(exponent(generator))
                                                      : std::nextafter(x[i - 1], T(1)));
      }
      const std::vector<T> p = run(op, x);
      std::vector<std::size_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::sort(order, {}, [&](std::size_t i) { return x[i]; });
      for (std::size_t k = 1; k < n; ++k) {
        const std::size_t low = order[k - 1], high = order[k];
        ASSERT_TRUE(p[low] <= p[high] || x[low] == x[high])
            << name_of(op) << std::hexfloat << " float" << 8 * sizeof(T) << " n " << n << ": " << x[low] << " has " << p[low]
            << ", " << x[high] << " only " << p[high];
      }
    }
  };
  for_each_map(check);
  support::for_each_target([&](const std::string&) {
    for (const double alpha : {0.75, 0.81, 0.9, 0.99, 0.99999, 1.0000001, 1.001, 1.01, 1.04, 1.1, 1.15, 1.19, 1.24}) {
      for (const double temperature : {0.1, 1.0, 3.0}) {
        SCOPED_TRACE("alpha " + std::to_string(alpha) + ", temperature " + std::to_string(temperature));
        check(Entmax{.alpha = alpha, .temperature = temperature}, float{});
        check(Entmax{.alpha = alpha, .temperature = temperature}, double{});
      }
    }
  });
}

TEST(Maps, PermuteWithTheirInput) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const std::size_t n : support::kLengths) {
      std::vector<T> x = support::normal_row<T>(n, 1, 0, 3), reversed(x.rbegin(), x.rend());
      const std::vector<T> p = run(op, x), q = run(op, reversed);
      for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(p[i], q[n - 1 - i], 4 * kEpsilon<T>) << n;
    }
  });
}

// A power of two, so that x / T is exact.
TEST(Maps, TemperatureDividesTheScores) {
  for_each_map([]<class T>(Map op, T) {
    if (divisor(op)) {
      for (const double value : {0.25, 8.0}) {
        Map hot = op, plain = op;
        *divisor(hot) = value;
        *divisor(plain) = 1;
        const std::vector<T> x = support::normal_row<T>(300, 3, 0, 4);
        std::vector<T> divided;
        for (const T score : x) divided.push_back(static_cast<T>(score / value));
        ASSERT_EQ(run(hot, x), run(plain, divided));
      }
    }
  });
}

TEST(Maps, ExtremeTemperatures) {
  for_each_map([]<class T>(Map op, T) {
    // Only where the limit for equal scores is the same for all maps.
    if (alpha_of(op) > 2) return;
    if (divisor(op)) {
      const T big = std::numeric_limits<T>::max();
      for (const double value : {5e-324, 1e-300, 1e-200, 1e-39, 1e-30, 1e30, 1e39, 1e200, 1e300, 1.7e308}) {
        *divisor(op) = value;
        // The last row's difference overflows T, its quotient by the temperature need not.
        for (const std::vector<T>& x :
             {std::vector<T>{1, 3, 3, T(2.999)}, std::vector<T>{1, -2, 3}, std::vector<T>{-big, big}}) {
          const oracle::Row want = oracle::map(op, wide(x));
          const std::vector<T> got = run(op, x);
          const double bound = 40 * kEpsilon<T> + method_error<T>(op, x.size());
          for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << value;
        }
      }
    }
  });
}

TEST(Maps, NaNStaysInItsRow) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const std::size_t n : support::kLengths) {
      for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
        // Three rows, the middle one with a NaN of each sign and another payload.
        std::vector<T> x = support::normal_row<T>(3 * n, 1, 0, 5), p(3 * n);
        x[n + at] = at % 2 == 0 ? kNaN<T> : -std::numeric_limits<T>::signaling_NaN();
        apply(op, MatrixView<const T>(x.data(), 3, n), MatrixView<T>(p.data(), 3, n));
        for (std::size_t i = 0; i < 3 * n; ++i) {
          if (i / n == 1) {
            ASSERT_TRUE(std::isnan(p[i])) << n << " entry " << i;
          } else {
            ASSERT_TRUE(std::isfinite(p[i])) << n << " entry " << i;
          }
        }
        const std::vector<T> row(x.begin() + n, x.begin() + 2 * n), y(p.begin() + n, p.begin() + 2 * n), g(n, 1);
        for (const T entry : run_vjp(op, row, y, g)) ASSERT_TRUE(std::isnan(entry)) << n;
      }
    }
  });
}

// +inf scores act as if they were the only scores, and equal.
TEST(Maps, Infinities) {
  for_each_map([]<class T>(const Map& op, T) {
    constexpr T inf = kInfinity<T>;
    const std::vector<T> two = {1, inf, -inf, inf, 2};
    const oracle::Row want = oracle::map(op, {-HUGE_VALL, 0, -HUGE_VALL, 0, -HUGE_VALL});
    EXPECT_EQ(run(op, two), std::vector<T>(want.begin(), want.end()));
    EXPECT_EQ(run_vjp(op, two, run(op, two), {1, 2, 3, 4, 5}), std::vector<T>(5, 0));
    EXPECT_EQ(run(op, std::vector<T>{inf}), std::vector<T>{1});
    for (const T mass : run(op, std::vector<T>{inf, kNaN<T>, 0})) EXPECT_TRUE(std::isnan(mass));
    for (const std::size_t n : {1, 2, 20, 70, 300}) {
      for (const T mass : run(op, std::vector<T>(n, -inf))) EXPECT_TRUE(std::isnan(mass));
    }
  });
}

// NaN wins over +inf, also where +inf comes first.
TEST(Maps, GradientsOfRowsWithInfinityAndNaN) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const std::size_t n : {2, 3, 72, 300}) {
      std::vector<T> x(n, T(1));
      x[0] = kInfinity<T>, x[n - 1] = kNaN<T>;
      for (const T entry : run_vjp(op, x, run(op, x), std::vector<T>(n, 1))) ASSERT_TRUE(std::isnan(entry)) << n;
    }
  });
}

// 1/T is no normal number, the gradient is one: in units of 1/T it does not depend on T where the scores are equal.
TEST(Maps, GradientsAtExtremeTemperatures) {
  for_each_map([]<class T>(Map op, T) {
    if (divisor(op)) {
      const std::vector<T> x = {2, 2, 2};
      for (const double value : {1e-44, 1e-40, 1e40, 1e44, 1e46}) {
        *divisor(op) = value;
        const std::vector<T> p = run(op, x);
        const T unit = static_cast<T>(value > 1 ? 1e20 : 1e-20);
        const std::vector<T> dx = run_vjp(op, x, p, {unit, 2 * unit, 5 * unit});
        const oracle::Row want = oracle::vjp(op, {2, 2, 2}, {unit, 2 * unit, 5 * unit});
        for (std::size_t i = 0; i < 3; ++i) {
          const T nearest = static_cast<T>(want[i]);
          ASSERT_TRUE(dx[i] == nearest || std::abs(dx[i] - nearest) <= 1e-5 * std::abs(want[i])) << value;
        }
      }
    }
  });
}

// A -inf score acts as if its entry were absent. The rest agrees up to rounding, because the sums differ.
TEST(Maps, MinusInfinityIsAbsent) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const std::size_t n : support::kLengths) {
      const std::vector<T> x = support::normal_row<T>(n, 1, 0, 6), g = support::normal_row<T>(n, 1, 0, 7);
      std::vector<T> masked(2 * n, -kInfinity<T>), masked_g(2 * n, kNaN<T>);
      for (std::size_t i = 0; i < n; ++i) masked[2 * i] = x[i], masked_g[2 * i] = g[i];
      const std::vector<T> p = run(op, x), q = run(op, masked);
      const std::vector<T> dx = run_vjp(op, x, p, g), dq = run_vjp(op, masked, q, masked_g);
      const double gamma = static_cast<double>(oracle::gamma(op, wide(x)));
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(q[2 * i], p[i], 4 * kEpsilon<T>) << n;
        ASSERT_EQ(q[2 * i + 1], T(0)) << n;
        ASSERT_NEAR(dq[2 * i], dx[i], 16 * kEpsilon<T> * gamma) << n;
        ASSERT_EQ(dq[2 * i + 1], T(0)) << n;
      }
    }
  });
}

TEST(Maps, OneScoreHasAllTheMass) {
  for_each_map([]<class T>(const Map& op, T) {
    std::vector<T> scores = support::normal_row<T>(200, 3, 0, 17);
    scores.insert(scores.end(), {T(0), T(-1e30), T(1e30), T(3.7), T(0.5)});
    for (const T score : scores) {
      ASSERT_EQ(run(op, std::vector<T>{score}), std::vector<T>{1}) << score;
      if (score < T(1e20)) {
        ASSERT_EQ(run(op, std::vector<T>{-kInfinity<T>, score})[1], T(1)) << score;
      }
    }
  });
}

TEST(Maps, GradientsAgreeWithTheDefinition) {
  for_each_definition([]<class T>(const Map& op, const Case<T>& c) {
    const std::vector<T> g = support::normal_row<T>(c.x.size(), 1, 0, 11);
    const oracle::Row x = wide(c.x), p = oracle::map(op, x);
    const std::vector<T> y(p.begin(), p.end());
    const oracle::Row want = oracle::vjp(op, x, wide(y), wide(g));
    const long double gamma = oracle::gamma(op, x);
    if (gamma > std::numeric_limits<T>::max() / 16) return;  // and so would be the gradient
    long double largest = 1;
    for (const long double entry : want) largest = std::max(largest, std::abs(entry) / gamma);
    largest *= std::max(alpha_of(op), 1.0);  // the error of p^(2 - alpha)
    support::for_each_target([&](const std::string&) {
      // Given the oracle's p, so that only the gradient's own error shows: each is at most |g| <= 5 away from the mean.
      const std::vector<T> got = run_vjp(op, c.x, y, g);
      const double bound = 40 * std::max(kEpsilon<T>, method_error<T>(op, c.x.size()));
      for (std::size_t i = 0; i < want.size(); ++i) {
        if (std::isinf(static_cast<T>(want[i])) && got[i] == static_cast<T>(want[i])) continue;
        ASSERT_LE(std::abs(got[i] - want[i]), bound * largest * gamma) << c.name << " entry " << i;
      }
    });
  });
}

// Masses on both sides of the limits of a short row's power, and the gradient of each relative to itself. For alpha > 2 the
// lowest mass decides which kernel a row gets.
TEST(Maps, GradientsOfSmallMasses) {
  const std::vector<float> masses = {0.7f,       0.299f,   1e-3f,    1e-6f,  1e-12f, 0x1.8p-48f, 0x1p-48f,
                                     0x1.fp-49f, 0x1p-52f, 0x1p-57f, 1e-20f, 1e-25f, 1e-37f};
  for (const std::size_t last : {std::size_t{3}, std::size_t{4}, std::size_t{9}, masses.size()}) {
    std::vector<float> p(masses.begin(), masses.begin() + static_cast<std::ptrdiff_t>(last));
    p.push_back(0);
    const std::vector<float> x(p.size(), 0);
    std::vector<float> g = {1, -2, 5, -4, 3, 2, -5, 7, -3, 4, 6, 9, 8, -7};
    g.resize(p.size());
    for (const double alpha : {0.3, 0.8, 1.05, 1.2, 1.5, 1.7, 1.95, 1.999, 2.3, 3.0, 4.5}) {
      const Map op = Entmax{.alpha = alpha};
      const oracle::Row want = oracle::vjp(op, wide(x), wide(p), wide(g));
      support::for_each_target([&](const std::string& target) {
        const std::vector<float> dx = run_vjp(op, x, p, g);
        for (std::size_t i = 0; i < p.size(); ++i) {
          if (std::abs(want[i]) < 0x1p-120L || std::abs(want[i]) > 0x1p120L) continue;  // near the ends of float32's range
          // The logarithm of a power is rounded, up to 300 here.
          ASSERT_LE(std::abs(dx[i] - want[i]), 0x1p-15L * std::abs(want[i]))
              << target << ", alpha " << alpha << ", " << last << " masses, entry " << i;
        }
      });
    }
  }
}

// The gradient of the definition, against central differences of the definition.
TEST(Maps, OracleGradientsAreDerivatives) {
  for (const OperationInfo& info : maps()) {
    for (const Map& op : variants(info)) {
      const oracle::Row x = wide(support::normal_row<double>(7, 0.4 * temperature_of(op), 0, 12));
      const oracle::Row g = wide(support::normal_row<double>(7, 1, 0, 13));
      const oracle::Row dx = oracle::vjp(op, x, g);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const long double h = 1e-7L * temperature_of(op);
        oracle::Row up = x, down = x;
        up[i] += h, down[i] -= h;
        const oracle::Row p = oracle::map(op, up), q = oracle::map(op, down);
        long double slope = 0;
        for (std::size_t j = 0; j < x.size(); ++j) slope += g[j] * (p[j] - q[j]) / (2 * h);
        ASSERT_NEAR(slope * temperature_of(op), dx[i] * temperature_of(op), 1e-9) << name_of(op);
      }
    }
  }
}

// Padding does not change, views may interleave, the output may be the input.
TEST(Maps, Layouts) {
  for_each_map([]<class T>(const Map& op, T) {
    for (const std::size_t n : {1, 5, 16, 64, 67, 300}) {
      const std::size_t rows = 19, stride = 2 * n + 3;
      std::vector<T> memory = support::normal_row<T>(rows * stride, 1, 0, 14);
      const std::vector<T> before = memory;
      const MatrixView<T> x(memory.data(), rows, n, stride), p(memory.data() + n + 1, rows, n, stride);
      apply(op, x, p);
      for (std::size_t r = 0; r < rows; ++r) {
        const std::vector<T> want = run(op, std::vector<T>(before.begin() + r * stride, before.begin() + r * stride + n));
        for (std::size_t i = 0; i < stride; ++i) {
          const bool written = i >= n + 1 && i < 2 * n + 1;
          ASSERT_EQ(memory[r * stride + i], written ? want[i - n - 1] : before[r * stride + i])
              << "row " << r << " column " << i;
        }
      }
      std::vector<T> in_place = before;
      apply(op, MatrixView<const T>(in_place.data(), rows, n, stride), MatrixView<T>(in_place.data(), rows, n, stride));
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(in_place[r * stride + i], memory[r * stride + n + 1 + i]);
      }
      // The gradient over g, over p and over x.
      const std::vector<T> px(memory.begin() + n + 1, memory.begin() + 2 * n + 1), row(before.begin(), before.begin() + n);
      const std::vector<T> g = support::normal_row<T>(n, 1, 0, 15), want = run_vjp(op, row, px, g);
      for (int which = 0; which < 3; ++which) {
        std::vector<T> xs = row, ps = px, gs = g;
        std::vector<T>& out = which == 0 ? xs : which == 1 ? ps : gs;
        const auto view = [&](std::vector<T>& v) { return MatrixView<T>(v.data(), 1, n); };
        apply_vjp(op, view(xs), view(ps), view(gs), view(out));
        ASSERT_EQ(out, want) << "dx over argument " << which;
      }
    }
  });
}

// The bits are equal for any number of threads, any batch, any place in it, and every target with FMA.
TEST(Maps, BitsDependOnTheRowAlone) {
  const std::vector<std::string> targets = support::fma_targets();
  for (const OperationInfo& info : maps()) {
    for (const Map& op : support::kShare == 1 ? variants(info) : std::vector<Map>{typical(info)}) {
      const auto check = [&]<class T>(T) {
        for (const std::size_t n : {2, 3, 10, 16, 33, 64, 65, 100, 256, 700, 5000}) {
          // Slow maps are distributed over threads in shorter rows.
          if (n * description_of(op).cost > 100000) continue;
          const std::size_t rows = 23;
          const std::vector<T> x = reproducibility_batch<T>(rows, n);
          const std::vector<T> g = support::normal_row<T>(rows * n, 1, 0, 17);
          std::vector<T> want(rows * n), want_dx(rows * n);
          force_simd_target("");
          for (std::size_t r = 0; r < rows; ++r) {
            const MatrixView<const T> row(x.data() + r * n, 1, n), gr(g.data() + r * n, 1, n);
            const MatrixView<T> p(want.data() + r * n, 1, n);
            apply(op, row, p);
            apply_vjp(op, row, p, gr, MatrixView<T>(want_dx.data() + r * n, 1, n));
          }
          // Enough rows for several threads: copies of the batch, each at another place.
          const std::size_t copies = 1 + 100000 / description_of(op).cost / (rows * n);
          std::vector<T> many, many_g, p(copies * rows * n), dx(copies * rows * n);
          for (std::size_t c = 0; c < copies; ++c) {
            many.insert(many.end(), x.begin(), x.end());
            many_g.insert(many_g.end(), g.begin(), g.end());
          }
          for (const std::string& target : targets) {
            force_simd_target(target);
            // The number of threads and the target do not meet: one thread is enough with one target.
            for (const std::size_t threads : {1, 5}) {
              if (threads == 1 && target != targets[0]) continue;
              set_num_threads(threads);
              std::fill(p.begin(), p.end(), T(-1));
              std::fill(dx.begin(), dx.end(), T(-1));
              apply(op, MatrixView<const T>(many.data(), copies * rows, n), MatrixView<T>(p.data(), copies * rows, n));
              apply_vjp(op, MatrixView<const T>(many.data(), copies * rows, n), MatrixView<const T>(p.data(), copies * rows, n),
                        MatrixView<const T>(many_g.data(), copies * rows, n), MatrixView<T>(dx.data(), copies * rows, n));
              for (std::size_t c = 0; c < copies; ++c) {
                ASSERT_EQ(std::memcmp(&p[c * rows * n], want.data(), rows * n * sizeof(T)), 0)
                    << name_of(op) << " n=" << n << " " << target << " threads=" << threads;
                ASSERT_EQ(std::memcmp(&dx[c * rows * n], want_dx.data(), rows * n * sizeof(T)), 0)
                    << name_of(op) << "_vjp n=" << n << " " << target << " threads=" << threads;
              }
            }
          }
        }
      };
      check(float{});
      check(double{});
    }
  }
  set_num_threads(0);
  force_simd_target("");
}

TEST(Maps, LongRows) {
  for (const OperationInfo& info : maps()) {
    const Map op = typical(info);
    for (const double scale : {0.0, 1e-2, 1.0, 8.0}) {
      const std::vector<float> x = support::normal_row<float>(131072, scale, 0, 18);
      const std::vector<float> got = run(op, x);
      EXPECT_TRUE(is_one_of(expected<float>(op, wide(x)), got));
      EXPECT_NEAR(std::accumulate(got.begin(), got.end(), 0.0), 1, 1e-6) << name_of(op) << " scale " << scale;
    }
  }
}

// Batches that bypass the caches when written, at every alignment of a row, against the same rows alone.
TEST(Maps, LargeBatches) {
  for (const OperationInfo& info : maps()) {
    const Map op = typical(info);
    const std::size_t rows = 2100, n = 4099;  // 34 MB
    const std::vector<float> x = support::normal_row<float>(rows * n, 1, 0, 22),
                             g = support::normal_row<float>(rows * n, 1, 0, 23);
    std::vector<float> p(rows * n), dx(rows * n), row(n);
    apply(op, MatrixView<const float>(x.data(), rows, n), MatrixView<float>(p.data(), rows, n));
    apply_vjp(op, MatrixView<const float>(x.data(), rows, n), MatrixView<const float>(p.data(), rows, n),
              MatrixView<const float>(g.data(), rows, n), MatrixView<float>(dx.data(), rows, n));
    for (std::size_t r = 0; r < rows; r += 7) {
      const auto at = [&](const std::vector<float>& batch) { return MatrixView<const float>(batch.data() + r * n, 1, n); };
      apply(op, at(x), MatrixView<float>(row.data(), 1, n));
      ASSERT_TRUE(std::equal(row.begin(), row.end(), p.begin() + r * n)) << name_of(op) << " row " << r;
      apply_vjp(op, at(x), at(p), at(g), MatrixView<float>(row.data(), 1, n));
      ASSERT_TRUE(std::equal(row.begin(), row.end(), dx.begin() + r * n)) << name_of(op) << "_vjp row " << r;
    }
  }
}

// Large batches with rows of every kind, and with columns between them that do not belong to the batch.
TEST(Maps, LargeBatchesOfSpecialRows) {
  for (const std::size_t n : {65, 250, 256, 258, 263, 513, 4099}) {
    const std::size_t rows = (std::size_t{32} << 20) / (sizeof(float) * n) + 1, stride = n + n % 3;
    std::vector<float> x = support::normal_row<float>(rows * stride, 1, 0, 28);
    std::mt19937 generator(29);
    for (std::size_t r = 0; r < rows; ++r) {
      float* const row = x.data() + r * stride;
      const auto any = [&] { return generator() % n; };
      switch (generator() % 8) {
        case 0:
          row[any()] = kNaN<float>;
          break;
        case 1:
          row[any()] = row[any()] = kInfinity<float>;
          break;
        case 2:
          std::fill(row, row + n, -kInfinity<float>);
          if (generator() % 2 == 0) row[any()] = 3;
          break;
        case 3:
          for (std::size_t i = 0; i < n; ++i) row[i] += 1e6f;
          break;
        default:
          break;
      }
    }
    support::for_each_target([&](const std::string& target) {
      std::vector<float> p(rows * stride, -1), row(n);
      apply(Softmax{}, MatrixView<const float>(x.data(), rows, n, stride), MatrixView<float>(p.data(), rows, n, stride));
      for (std::size_t r = 0; r < rows; ++r) {
        apply(Softmax{}, MatrixView<const float>(x.data() + r * stride, 1, n), MatrixView<float>(row.data(), 1, n));
        ASSERT_EQ(std::memcmp(row.data(), p.data() + r * stride, n * sizeof(float)), 0) << target << " n " << n << " row " << r;
        for (std::size_t i = n; i < stride; ++i) ASSERT_EQ(p[r * stride + i], -1);
      }
    });
  }
}

// Rows that may be searched side by side have the bits of each alone, whatever is beside it: few scores with mass or many,
// ties, a NaN, infinities.
TEST(Maps, EntmaxOfRowsSideBySide) {
  std::mt19937 generator(30);
  std::normal_distribution<float> normal;
  for (const std::size_t n : {63, 65, 250, 1024, 4099}) {
    const std::size_t rows = 120;
    std::vector<float> x(rows * n);
    for (std::size_t r = 0; r < rows; ++r) {
      float* const row = x.data() + r * n;
      const std::size_t many[] = {1, 2, 15, 16, 17, 31, 32, 33, 60};
      for (std::size_t i = 0; i < n; ++i) row[i] = normal(generator) - 9;
      for (std::size_t k = many[generator() % 9]; k-- > 0;) {
        row[generator() % n] = generator() % 3 == 0 ? 0.25f : 0.01f * normal(generator);
      }
      if (generator() % 8 == 0) row[generator() % n] = kNaN<float>;
      if (generator() % 8 == 0) row[generator() % n] = kInfinity<float>;
      if (generator() % 8 == 0) row[generator() % n] = -kInfinity<float>;
    }
    for (const double alpha : {0.7, 1.3, 1.5, 2.0001, 2.5, 3.0, 5.0, 30.0}) {
      support::for_each_target([&](const std::string& target) {
        std::vector<float> p(rows * n), row(n);
        const Entmax op{.alpha = alpha};
        apply(op, MatrixView<const float>(x.data(), rows, n), MatrixView<float>(p.data(), rows, n));
        for (std::size_t r = 0; r < rows; ++r) {
          apply(op, MatrixView<const float>(x.data() + r * n, 1, n), MatrixView<float>(row.data(), 1, n));
          for (std::size_t i = 0; i < n; ++i) {
            const bool same = row[i] == p[r * n + i] || (std::isnan(row[i]) && std::isnan(p[r * n + i]));
            ASSERT_TRUE(same) << target << ", alpha " << alpha << ", n " << n << ", row " << r << ", entry " << i;
          }
        }
      });
    }
  }
}

// Of float32 scores within 3 eps. A row with which the power at an exponent just above 1 was off by more than 4.
TEST(Maps, EntmaxOfAlphaJustBelowTwo) {
  const std::vector<float> x = {1, 0.625f, 1.75f, -1.5f, 1.125f, -1.375f, 1.125f, 1, -1.875f, 0.75f};
  for (const double alpha : {1.9, 1.99, 1.999, 1.9999}) {
    const Entmax op{.alpha = alpha};
    const std::vector<long double> want = oracle::map(op, wide(x));
    support::for_each_target([&](const std::string& target) {
      const std::vector<float> p = run(op, x);
      for (std::size_t i = 0; i < p.size(); ++i) {
        ASSERT_LE(std::abs(p[i] - want[i]), 3 * 0x1p-24L) << target << ", alpha " << alpha << ", entry " << i;
      }
    });
  }
}

TEST(PerRow, RefusesBadValues) {
  std::vector<double> x(6, 1), p(6, 7), alphas = {1, -1, 2}, few = {1, 2};
  const auto message = [&](const Map& map, PerRow given) {
    try {
      apply(map, MatrixView<const double>(x.data(), 3, 2), MatrixView<double>(p.data(), 3, 2), std::span(&given, 1));
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message(Entmax{}, {"alpha", alphas}), "entmax: alpha of row 1 must be above 0 and finite, got -1");
  EXPECT_EQ(message(Entmax{}, {"alpha", few}), "entmax: alpha must have one value for each of 3 rows, got 2");
  EXPECT_EQ(message(Softmax{}, {"alpha", alphas}), "softmax: there is no parameter 'alpha' with a value for each row");
  EXPECT_EQ(p, std::vector<double>(6, 7));
}

TEST(Maps, EmptyBatches) {
  for_each_map([]<class T>(const Map& op, T) {
    apply(op, MatrixView<const T>(nullptr, 0, 5), MatrixView<T>(nullptr, 0, 5));
    apply(op, MatrixView<const T>(nullptr, 5, 0), MatrixView<T>(nullptr, 5, 0));
    apply_vjp(op, MatrixView<const T>(nullptr, 5, 0), MatrixView<const T>(nullptr, 5, 0), MatrixView<const T>(nullptr, 5, 0),
              MatrixView<T>(nullptr, 5, 0));
  });
}

TEST(Maps, RefusesBadArguments) {
  std::vector<double> memory(64, 3.0);
  const auto view = [&](std::size_t at, std::size_t rows, std::size_t cols, std::size_t stride) {
    return MatrixView<double>(memory.data() + at, rows, cols, stride);
  };
  const auto x = view(0, 2, 4, 4), p = view(16, 2, 4, 4);
  expect_error("softmax: temperature must be above 0 and finite, got 0", [&] { apply(Softmax{.temperature = 0}, x, p); });
  expect_error("softmax: temperature must be above 0 and finite, got -1", [&] { apply(Softmax{.temperature = -1}, x, p); });
  expect_error("sparsemax: temperature must be above 0 and finite, got nan",
               [&] { apply(Sparsemax{.temperature = std::nan("")}, x, p); });
  expect_error("sparsemax: temperature must be above 0 and finite, got inf",
               [&] { apply(Sparsemax{.temperature = kInfinity<double>}, x, p); });
  expect_error("softmax: p must have the shape of x, 2 x 4, got 2 x 3", [&] { apply(Softmax{}, x, view(16, 2, 3, 4)); });
  expect_error("softmax: row_stride of x must be at least its cols, 4, got 3", [&] { apply(Softmax{}, view(0, 2, 4, 3), p); });
  expect_error("softmax: p must be x itself or share no memory with it, got views that overlap in part",
               [&] { apply(Softmax{}, x, view(1, 2, 4, 4)); });
  expect_error("softmax: p must be x itself or share no memory with it, got views that overlap in part",
               [&] { apply(Softmax{}, x, view(0, 2, 4, 5)); });
  // Columns 3 and 4 of one row, 0 and 1 of the next: views of one stride, of which one wraps around into the other.
  expect_error("softmax: p must be x itself or share no memory with it, got views that overlap in part",
               [&] { apply(Softmax{}, view(0, 3, 2, 5), view(4, 3, 2, 5)); });
  apply(Softmax{}, MatrixView<const double>(memory.data(), 3, 2, 5), view(2, 3, 2, 5));  // side by side
  memory.assign(64, 3.0);
  expect_error("top_k_softmax: k must be above 0, got 0", [&] { apply(TopKSoftmax{}, x, p); });
  expect_error("top_p_softmax: p must be above 0 and at most 1, got 0", [&] { apply(TopPSoftmax{}, x, p); });
  expect_error("min_p_softmax: p must be above 0 and at most 1, got 1.5", [&] { apply(MinPSoftmax{.p = 1.5}, x, p); });
  expect_error("taylor_softmax: order must be above 0 and at most 64 and a multiple of 2, got 3",
               [&] { apply(TaylorSoftmax{.order = 3}, x, p); });
  expect_error("softmax: x must point to 2 x 4 numbers, got a null pointer",
               [&] { apply(Softmax{}, MatrixView<const double>(nullptr, 2, 4), p); });
  expect_error("sparsemax: g must have the shape of x, 2 x 4, got 1 x 4",
               [&] { apply_vjp(Sparsemax{}, x, p, view(32, 1, 4, 4), p); });
  expect_error("log_softmax: y must have the shape of x, 2 x 4, got 1 x 4",
               [&] { log_softmax(LogSoftmax{}, x, view(16, 1, 4, 4)); });
  expect_error("logsumexp: y must have the shape of a column with x's rows, 2 x 1, got 2 x 4",
               [&] { logsumexp(LogSumExp{}, x, p); });
  EXPECT_EQ(memory, std::vector<double>(64, 3.0));
}

}  // namespace
}  // namespace isentropic
