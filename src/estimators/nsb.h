// The entropy's mean and deviation under the prior of Nemenman, Shafee and Bialek.
//
// Given beta, the law has Dirichlet's prior with parameter beta in each of K classes, and its entropy a mean xi(beta) before
// and S(beta) after the counts. The prior of beta makes xi uniform. So the mean is that of S(beta) with weights d xi / d beta
// times the probability of the counts. In u = log beta these weights are analytic in a strip of half width pi around the real
// line, and fall exponentially on both sides: the trapezoid rule with steps of 1/4, or of a part of the peak's width where it
// is narrow, has the accuracy of a double.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "src/estimators/special.h"

namespace isentropic::inline ISENTROPIC_ABI {

// A count, and how many classes have it.
struct Distinct {
  double count, classes;
};

// The counts of a row: N, the classes seen, the distinct counts in rising order.
struct Counted {
  double total = 0, seen = 0;
  std::span<const Distinct> distinct;
};

class Nsb {
 public:
  // `classes` is at least 2 and at least counted.seen, counted.total above 0.
  Nsb(const Counted& counted, double classes) : of_(counted), classes_(classes) {}

  struct Estimate {
    double mean, deviation;
  };

  Estimate operator()() const {
    const Peak peak = find_peak();
    double weights = 0, first = 0, second = 0;
    const auto add = [&](double u, double weight) {
      const Moments at = moments(std::exp(u));
      weights += weight;
      first += weight * at.mean;
      second += weight * (at.variance + at.mean * at.mean);
    };
    add(peak.u, 1);
    for (const double direction : {-1.0, 1.0}) {
      for (int k = 1; k < kMostSteps; ++k) {
        const double u = peak.u + direction * k * peak.step, log = log_weight(u) - peak.log;
        if (!(log > kNegligible)) break;
        add(u, std::exp(log));
      }
    }
    const double mean = first / weights;
    return {mean, std::sqrt(std::max(0.0, second / weights - mean * mean))};
  }

 private:
  static constexpr double kNegligible = -42;
  static constexpr int kMostSteps = 100000;
  static constexpr double kNear = 8;

  struct Peak {
    double u, log, step;
  };
  struct Moments {
    double mean, variance;
  };

  // d xi / d beta = K psi'(K beta + 1) - psi'(beta + 1). For large beta its terms nearly cancel: there by their series, in
  // which 1 / beta is in both.
  double slope_of_mean(double beta) const {
    if (beta > 30) {
      const double a = 1 / beta, b = a / classes_;
      const auto series = [](double y) { return y * (-1.0 / 2 + y * (1.0 / 6 + y * y * (-1.0 / 30 + y * y * (1.0 / 42)))); };
      return b * classes_ * series(b) - a * series(a);
    }
    double of_all, of_one;
    psi(classes_ * beta + 1, &of_all);
    psi(beta + 1, &of_one);
    return classes_ * of_all - of_one;
  }

  double log_weight(double u) const {
    const double beta = std::exp(u);
    double log = -log_rising(classes_ * beta, of_.total), own = 0, before = 0;
    for (const auto& [count, classes] : of_.distinct) {
      if (count - before <= kNear) {  // from one count to the next
        double product = 1;
        for (; before < count; before += 1) product *= beta + before;
        own += std::log(product);
      } else {
        own = log_rising(beta, count);
        before = count;
      }
      log += classes * own;
    }
    return log + std::log(slope_of_mean(beta)) + u;
  }

  // The top of the weights: uphill from where as many classes as were seen are likely, in smaller and smaller steps.
  Peak find_peak() const {
    double u = std::log(of_.seen / classes_), log = log_weight(u), bend = -std::numeric_limits<double>::infinity();
    double step = 4;
    while (bend < -1) {  // the parabola through three weights is narrower than the step
      step = std::max(step / 8, std::min(step / 2, step / std::sqrt(-bend)));
      double left = log_weight(u - step), right = log_weight(u + step);
      while (left > log || right > log) {
        const bool back = left > right;
        u += back ? -step : step;
        (back ? right : left) = log;
        log = back ? left : right;
        (back ? left : right) = log_weight(back ? u - step : u + step);
      }
      bend = (left - log) + (right - log);
    }
    return {u, log, std::min(0.25, 0.5 * step / std::sqrt(std::max(-bend, 1e-9)))};
  }

  // The mean and the variance of the entropy given beta (Wolpert, Wolf, Phys. Rev. E 52, 1995).
  Moments moments(double beta) const {
    const double all = of_.total + classes_ * beta;
    double slope_of_all;
    const double psi_1 = psi(all + 1), psi_2 = psi(all + 2, &slope_of_all);
    double mean = 0, sum = 0, squares = 0, squares_of_terms = 0, own = 0;
    double before = 0, slope, psi_a = psi(beta + 1, &slope);
    const auto add = [&](double count, double classes) {
      const double a = count + beta;
      if (count - before <= kNear) {  // from one count to the next
        for (; before < count; before += 1) {
          const double inverse = 1 / (before + beta + 1);
          psi_a += inverse;
          slope -= inverse * inverse;
        }
      } else {
        psi_a = psi(a + 1, &slope);
        before = count;
      }
      const double term = psi_a - psi_2, next = term + 1 / (a + 1);
      mean += classes * a * (psi_1 - psi_a);
      sum += classes * a * term;
      squares += classes * a * a;
      squares_of_terms += classes * a * a * term * term;
      own += classes * a * (a + 1) * (next * next + slope - 1 / ((a + 1) * (a + 1)) - slope_of_all);
    };
    if (classes_ > of_.seen) add(0, classes_ - of_.seen);
    for (const auto& [count, classes] : of_.distinct) add(count, classes);
    mean /= all;
    const double second = ((sum * sum - squares_of_terms) - slope_of_all * (all * all - squares) + own) / (all * (all + 1));
    return {mean, second - mean * mean};
  }

  const Counted& of_;
  double classes_;
};

}  // namespace isentropic::inline ISENTROPIC_ABI
