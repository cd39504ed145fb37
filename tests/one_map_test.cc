// Properties of single maps: thresholds, truncation, and limits of their parameters.

#include "tests/support/maps.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

namespace isentropic {
namespace {

// Random rows full of ties, and long ones that mislead a search that samples them.
TEST(TopPSoftmax, KeepsTheFewestThatReachP) {
  const auto check = [&]<class T>(T) {
    const auto expect = [](const std::vector<T>& x, double temperature, const std::string& name) {
      for (const double p : {1e-9, 0.1, 0.5, 0.9, 0.95, 0.999999, 1.0}) {
        const TopPSoftmax op = {.p = p, .temperature = temperature};
        const Expected want = expected<T>(op, wide(x));
        support::for_each_target([&](const std::string& target) {
          ASSERT_TRUE(is_one_of(want, run(op, x))) << name << " n=" << x.size() << " p=" << p << " " << target;
        });
        std::set<std::vector<T>> results;
        for (const std::string& target : support::fma_targets()) {
          force_simd_target(target);
          results.insert(run(op, x));
        }
        force_simd_target("");
        ASSERT_LE(results.size(), 1u) << name << " n=" << x.size() << " p=" << p;
      }
    };
    std::mt19937 generator(24);
    for (int round = 0; round < 400; ++round) {
      const std::size_t n = 1 + generator() % (round % 8 == 0 ? 700 : 40);
      const double step = round % 3 == 0 ? 1 : round % 3 == 1 ? 0.25 : 1e-5;
      std::vector<T> x(n);
      for (T& score : x) score = static_cast<T>(std::round(std::normal_distribution<double>(0, 2)(generator) / step) * step);
      expect(x, round % 5 == 0 ? 1e30 : 1, "ties of " + std::to_string(step));
    }
    for (const std::size_t n : {16384, 20001, 33000}) {
      const std::vector<T> normal = support::normal_row<T>(n, 1, 0, 25);
      std::vector<T> sorted = normal, rounded = normal, hidden = normal, shown = normal, two(n, -4), wide_range = normal;
      std::sort(sorted.begin(), sorted.end());
      for (std::size_t i = 0; i < n; ++i) {
        rounded[i] = std::round(rounded[i] * 4) / 4;
        // The sample sees none of the large ones, or only these.
        hidden[i] += i % 1024 >= 16 ? 8 : 0;
        shown[i] += i % 1024 < 16 ? 8 : 0;
        two[i] = i % 7 == 3 ? 0 : -4;
        wide_range[i] *= 60;
      }
      expect(normal, 1, "normal");
      expect(normal, 1e30, "hot");
      expect(sorted, 1, "sorted");
      expect(std::vector<T>(sorted.rbegin(), sorted.rend()), 3, "falling");
      expect(rounded, 1, "rounded");
      expect(hidden, 1, "hidden");
      expect(shown, 1, "shown");
      expect(two, 1, "two values");
      expect(wide_range, 1, "wide range");
      std::vector<T> spike = support::normal_row<T>(n, 0.1, -3, 26);
      spike[n / 2 + 20] = 8;
      expect(spike, 1, "spike");
    }
  };
  check(float{});
  check(double{});
}

// Rows of every length, so that every method of truncation is used: it keeps what sorting keeps, and p has softmax's bits.
TEST(TopKSoftmax, KeepsTheFirstOfTheLargest) {
  const auto check = [&]<class T>(T) {
    for (const std::size_t n : {5, 64, 65, 255, 256, 257, 400, 1024, 1500, 5000, 9001, 16383, 20001, 40001}) {
      std::vector<std::vector<T>> rows;
      rows.push_back(support::normal_row<T>(n, 1, 0, static_cast<unsigned>(n)));
      for (int copy = 1; copy < 7; ++copy) rows.push_back(rows[0]);
      std::sort(rows[1].begin(), rows[1].end());
      for (std::size_t i = 0; i < n; ++i) {
        rows[2][i] = std::round(2 * rows[2][i]);
        if (i % 128 > 40 || i % 3 == 0) rows[3][i] = -kInfinity<T>;
        if (i % 128 > 40) rows[4][i] -= 100;
        // One that is far above the others, and nearly all that differ in their last digits.
        if (i == n / 2) rows[5][i] += 300, rows[6][i] += T(3e4);
      }
      for (const auto& x : rows) {
        std::vector<std::size_t> order(n);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
        for (const std::size_t k : {1, 4, 41, 50, 64, 65}) {
          std::vector<T> kept(n, -kInfinity<T>);
          for (std::size_t i = 0; i < std::min(k, n); ++i) kept[order[i]] = x[order[i]];
          for (const std::string& target : support::fma_targets()) {
            force_simd_target(target);
            const auto p = run(TopKSoftmax{.k = static_cast<std::int64_t>(k)}, x), want = run(Softmax{}, kept);
            const std::string name = "n " + std::to_string(n) + " k " + std::to_string(k) + " " + target;
            if (n > 64) {
              ASSERT_EQ(p, want) << name;
            } else {  // side by side, and where scores tie alone: two orders of a sum
              for (std::size_t i = 0; i < n; ++i) {
                ASSERT_NEAR(p[i], want[i], 4 * std::numeric_limits<T>::epsilon() * want[i]) << name << " " << i;
              }
            }
          }
        }
      }
    }
  };
  check(float{});
  check(double{});
  force_simd_target("");
}

// Of m infinite scores the first ceil(p m) stay: of 10, with a p that is a little more than 1/10 in binary, 2.
TEST(TopPSoftmax, CutsInfiniteScores) {
  std::vector<double> x(10, kInfinity<double>), want(10, 0.0);
  want[0] = want[1] = 0.5;
  EXPECT_EQ(run(TopPSoftmax{.p = 0.1}, x), want);
  want[1] = 0, want[0] = 1;
  EXPECT_EQ(run(TopPSoftmax{.p = std::nextafter(0.1, 0)}, x), want);
  EXPECT_EQ(run(TopPSoftmax{.p = 5e-324}, x), want);
  EXPECT_EQ(run(TopPSoftmax{.p = 0.5}, std::vector<double>(4, kInfinity<double>)), (std::vector<double>{0.5, 0.5, 0, 0}));
  EXPECT_EQ(run(TopPSoftmax{.p = 1}, x), std::vector<double>(10, 0.1));
}

// The values of alpha with special names, and no jump when alpha passes them.
TEST(Entmax, IsSoftmaxAtOneAndSparsemaxAtTwo) {
  support::for_each_target([](const std::string&) {
    const auto check = [&]<class T>(T) {
      for (const Case<T>& c : support::finite_cases<T>()) {
        for (const double temperature : {1.0, 0.3}) {
          const std::vector<T> softmax = run(Softmax{temperature}, c.x), sparsemax = run(Sparsemax{temperature}, c.x);
          ASSERT_EQ(run(Entmax{1, temperature}, c.x), softmax) << c.name;
          ASSERT_EQ(run(Entmax{2, temperature}, c.x), sparsemax) << c.name;
          for (const double off : {-1e-7, -1e-12, 1e-12, 1e-7}) {
            const std::vector<T> near_softmax = run(Entmax{1 + off, temperature}, c.x);
            const std::vector<T> near_sparsemax = run(Entmax{2 + off, temperature}, c.x);
            for (std::size_t i = 0; i < c.x.size(); ++i) {
              ASSERT_NEAR(near_softmax[i], softmax[i], 1e-6) << c.name << " alpha - 1 = " << off;
              ASSERT_NEAR(near_sparsemax[i], sparsemax[i], 1e-5) << c.name << " alpha - 2 = " << off;
            }
          }
        }
      }
    };
    check(float{});
    check(double{});
  });
}

// Rows on which published code for alpha = 1.5 finds no threshold, as it compares strictly where scores lie on it: [2, 0], [4,
// 2, 0] and rows of half-integers. And these rows far from 0, where that code loses digits because it does not move the maximum
// to 0.
TEST(Entmax, ScoresOnTheThreshold) {
  support::for_each_target([](const std::string&) {
    EXPECT_EQ(run(Entmax{}, std::vector<double>{2, 0}), (std::vector<double>{1, 0}));
    EXPECT_EQ(run(Entmax{}, std::vector<double>{4, 2, 0}), (std::vector<double>{1, 0, 0}));
    std::mt19937 generator(31);
    for (int round = 0; round < 2000; ++round) {
      std::vector<float> x(2 + generator() % 10);
      for (float& score : x) score = static_cast<float>(generator() % 17) / 2 - 4;
      const oracle::Row want = oracle::map(Entmax{}, wide(x));
      for (const float offset : {0.0f, 1e4f, 1e6f}) {
        std::vector<float> moved = x;
        for (float& score : moved) score += offset;
        const std::vector<float> got = run(Entmax{}, moved);
        for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(got[i], want[i], 4 * kEpsilon<float>) << "offset " << offset;
      }
    }
  });
}

// Neighbours, many of them equal: their mean rounds to one of them, or past it.
TEST(Entmax, NeighboursEndTheSearch) {
  support::for_each_target([](const std::string&) {
    std::mt19937 generator(32);
    for (int round = 0; round < 300; ++round) {
      std::vector<double> x(20 + generator() % 200);
      double score = -1 - std::ldexp(static_cast<double>(generator() % 1000), -10);
      for (double& entry : x) {
        entry = score;
        if (generator() % 3 != 0) score = std::nextafter(score, -2.0);
      }
      long double sum = 0;
      for (const double mass : run(Entmax{.alpha = 2 + static_cast<double>(generator() % 100)}, x)) sum += mass;
      ASSERT_NEAR(sum, 1, 1e-13) << round;
    }
  });
}

// (c + u)^(1/b) of a large b jumps from 0 to nearly 1, and the b-th power of a mass is subnormal or 0.
TEST(Entmax, LargeAlpha) {
  support::for_each_target([&](const std::string& target) {
    std::mt19937 generator(31);
    std::normal_distribution<float> normal;
    for (const double alpha : {20.0, 44.5, 94.5, 95.5, 150.0, 500.0, 1e6, 1e18, 1e24}) {
      for (int round = 0; round < 60; ++round) {
        const std::size_t n = 2 + generator() % 70;
        const float apart = std::pow(10.0f, -static_cast<float>(round % 12));
        std::vector<float> x(n);
        for (float& score : x)
          score = round % 3 == 0 ? 0 : round % 3 == 1 ? apart * normal(generator) : std::round(normal(generator));
        const double temperature = round % 4 == 0 ? 0.01 : round % 4 == 1 ? 40 : 1;
        const std::vector<float> p = run(Entmax{alpha, temperature}, x);
        const std::vector<double> want = run(Entmax{alpha, temperature}, std::vector<double>(x.begin(), x.end()));
        for (std::size_t i = 0; i < n; ++i) {
          ASSERT_NEAR(p[i], want[i], 1e-6) << target << " alpha " << alpha << " n " << n << " round " << round;
        }
      }
    }
  });
}

// One or two scores lead many equal ones, which together have most of the mass. The threshold's rounding then moves much mass,
// and no entry may pay for the others: the error of each is at most 4 eps.
TEST(Entmax, FewLeadManyTies) {
  support::for_each_target([](const std::string&) {
    const auto check = []<class T>(T) {
      const double eps = std::ldexp(1.0, sizeof(T) == 4 ? -24 : -53);
      for (const double alpha : {1.1, 1.25, 1.3, 4.0 / 3, 1.6, 1.75, 1.9, 1.99, 1.9999}) {
        for (const std::size_t n : {3, 8, 15, 16, 17, 32, 33, 48, 63, 64, 65, 90, 200}) {
          for (const double lead : {0.3, 0.5, 0.9}) {
            std::vector<T> x(n, T(0));
            x[n / 2] = static_cast<T>(lead);
            x[n - 1] = static_cast<T>(0.4 * lead);
            const std::vector<T> p = run(Entmax{.alpha = alpha}, x);
            const oracle::Row want = oracle::map(Entmax{.alpha = alpha}, wide(x));
            for (std::size_t i = 0; i < n; ++i) {
              ASSERT_LE(std::abs(static_cast<long double>(p[i]) - want[i]), 4 * eps)
                  << "alpha " << alpha << ", n " << n << ", lead " << lead << ", entry " << i;
            }
          }
        }
      }
    };
    check(float{});
    check(double{});
  });
}

// One has most of the mass, and each of many a little: what the many sum to is not lost beside it, nor do all move together by
// the rounding of c.
TEST(Entmax, OneBesideManySmall) {
  for (const double alpha : {0.7, 0.85, 1.001, 1.05, 1.15, 4.0 / 3, 1.5, 1.75}) {
    for (const std::size_t n : {30, 600, 20000}) {
      for (const double lead : {2.95, 6.0, 12.0}) {
        for (const double temperature : {1.0, 3.0}) {
          for (const double scale : {0.0, 0.01}) {
            std::vector<double> x = support::normal_row<double>(n, scale, 0, static_cast<unsigned>(n));
            x[n / 3] = *std::ranges::max_element(x) + lead;
            const Entmax op{.alpha = alpha, .temperature = temperature};
            const oracle::Row want = oracle::map(op, wide(x));
            support::for_each_target([&](const std::string& name) {
              const std::vector<double> p = run(op, x);
              for (std::size_t i = 0; i < n; ++i) {
                ASSERT_LE(std::abs(p[i] - want[i]), 4 * 0x1p-53L) << name << ": alpha " << alpha << ", n " << n << ", lead "
                                                                  << lead << ", temperature " << temperature << ", entry " << i;
              }
            });
          }
        }
      }
    }
  }
}

// One score is so far from the others that the first c, of mean and variance, is near the end of the type: 1.3e308 in the first
// row, beyond it in many others.
TEST(Entmax, AFarScoreBelowAlphaOne) {
  support::for_each_target([](const std::string& name) {
    const std::vector<float> found = {0, -4.200192928314209f, 0, -976.6300048828125f, 0, 0};
    const Entmax near_end{.alpha = 0.8602572226765276, .temperature = 3};
    const std::vector<float> masses = run(near_end, found);
    const oracle::Row exact = oracle::map(near_end, wide(found));
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_LE(std::abs(masses[i] - exact[i]), 4 * kEpsilon<float>) << name;
    const auto check = [&]<class T>(T) {
      for (double far = -10; far > -3000; far *= 1.003) {
        const std::vector<T> x = {0, T(-4.2), 0, static_cast<T>(far), 0, 0};
        for (const double alpha : {0.5, 0.82, 0.86, 0.9, 0.99}) {
          const Entmax op{.alpha = alpha, .temperature = 3};
          const std::vector<T> p = run(op, x);
          const oracle::Row want = oracle::map(op, wide(x));
          for (std::size_t i = 0; i < x.size(); ++i) {
            ASSERT_LE(std::abs(p[i] - want[i]), 4 * kEpsilon<T>) << name << ", far " << far << ", alpha " << alpha;
          }
        }
      }
    };
    check(float{});
    check(double{});
  });
}

// Beyond alpha = 2 an error of the mass at the edge comes back from each score there.
TEST(Entmax, OneLeadsManyTiesBeyondTwo) {
  for (const double alpha : {2.0001, 2.2, 2.5, 3.0, 5.0}) {
    for (const std::size_t n : {17, 60, 64, 300, 1100}) {
      for (const std::size_t ties : {1, 2, 5, 14, 15, 16, 20, 31, 32, 40}) {
        if (n / 3 + ties >= n) continue;
        for (const double share : {0.3, 0.7, 0.9, 0.98, 0.999}) {
          std::vector<float> x(n, -9);
          std::fill_n(x.begin() + n / 3, ties + 1, 0.0f);
          x[n / 3] = static_cast<float>(share / (alpha - 1));  // all mass from 1/(alpha - 1) on
          const Entmax op{.alpha = alpha};
          const oracle::Row want = oracle::map(op, wide(x)), allowed = oracle::spread(op, wide(x), 0x1p-24L);
          support::for_each_target([&](const std::string& name) {
            const std::vector<float> p = run(op, x);
            for (std::size_t i = 0; i < n; ++i) {
              ASSERT_LE(std::abs(static_cast<long double>(p[i]) - want[i]), allowed[i])
                  << name << ": alpha " << alpha << ", n " << n << ", ties " << ties << ", share " << share << ", entry " << i;
            }
          });
        }
      }
    }
  }
}

// p^(alpha - 1) is a line in x, of slope (alpha - 1)/T, for any c; its sum is 1 for one. Long rows start from a sample, which
// may say nothing about the convergence of the search.
TEST(Entmax, LongRowsNearSoftmax) {
  support::for_each_target([](const std::string& name) {
    const auto check = [&]<class T>(T) {
      std::mt19937 generator(33);
      std::normal_distribution<double> normal;
      for (const double alpha : {0.5, 0.7, 0.99, 1.01, 1.05, 1.1, 1.2, 1.24}) {
        for (const std::size_t n : {2048, 5000}) {
          for (const double scale : {0.3, 1.0, 3.0, 10.0, 30.0}) {
            for (int round = 0; round < 12; ++round) {
              std::vector<T> x(n);
              for (T& score : x) score = static_cast<T>(scale * normal(generator));
              const std::vector<T> p = run(Entmax{.alpha = alpha}, x);
              const auto top = static_cast<std::size_t>(std::max_element(x.begin(), x.end()) - x.begin());
              const double b = alpha - 1, first = std::pow(static_cast<double>(p[top]), b);
              double off = 0;
              for (std::size_t i = 0; i < n; ++i) {
                if (!(p[i] > p[top] / 1000)) continue;
                const double rise = b * (static_cast<double>(x[i]) - x[top]);
                off =
                    std::max(off, std::abs(std::pow(static_cast<double>(p[i]), b) / first - (1 + rise / first)) / std::abs(b));
              }
              ASSERT_LE(off, 2048 * kEpsilon<T>) << name << " alpha " << alpha << " n " << n << " scale " << scale;
            }
          }
        }
      }
    };
    check(float{});
    check(double{});
  });
}

// p^(2 - alpha) is infinite, its factor is 0: g is equal wherever there is mass.
TEST(Entmax, InfiniteSlopesOfNothingAreNothing) {
  support::for_each_target([](const std::string&) {
    const auto check = [&]<class T>(T) {
      const Entmax op = {.alpha = 4e17, .temperature = 54};
      const std::vector<T> x = {0, T(-24.25), T(-0.03125), 0, T(-418.5)}, p = run(op, x);
      for (const T g : {T(0), T(-3)}) {
        EXPECT_EQ(run_vjp(op, x, p, std::vector<T>{g, 1, 2, g, 3}), std::vector<T>(5, 0));
      }
      const std::vector<T> q = {T(0.25), T(0.375), T(0.375)}, g = {1, 2, -2};
      for (const T slope : run_vjp(op, q, q, g)) EXPECT_FALSE(std::isnan(slope));
    };
    check(float{});
    check(double{});
  });
}

// Below x = -1 a lower score gets more mass, so the description has order = false.
TEST(TaylorSoftmax, IsNotMonotone) {
  const std::vector<double> p = run(TaylorSoftmax{}, std::vector<double>{-1, -3});
  EXPECT_LT(p[0], p[1]);
}

}  // namespace
}  // namespace isentropic
