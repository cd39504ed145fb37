// Parameters of maps with a value for each row, and the gradients in them.

#include <gtest/gtest.h>

#include "isentropic/maps.h"
#include "tests/oracle/maps.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/targets.h"

namespace isentropic {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();

// Values of a parameter, one for each row; names that are not listed get entropies.
std::vector<double> values_of(std::string_view parameter) {
  if (parameter == "alpha") return {0.3, 1, 1.2, 1.5, 1.5, 2, 2.7, 1 + 1e-9, 1.5};
  if (parameter == "temperature" || parameter == "scale") return {1, 0.1, 0.5, 1.7, 30, 1, 4};
  if (parameter == "perplexity") return {1.5, 1.8, 1.2};  // below what two scores have
  return {0.1, 0.5, 0.3};
}

template <class T>
struct Batch {
  std::size_t rows, cols, out_cols;
  std::vector<T> x, y, g, dx;

  Batch(std::size_t r, std::size_t n, std::size_t outs, unsigned seed)
      : rows(r),
        cols(n),
        out_cols(outs),
        x(support::normal_row<T>(r * n, 1.5, 0, seed)),
        y(r * outs),
        g(support::normal_row<T>(r * outs, 1, 0, seed + 1)),
        dx(r * n) {
    // An absent score; its g is not read where its probability is 0.
    if (n > 4) {
      for (std::size_t i = 0; i < r; ++i) x[i * n + 2] = -std::numeric_limits<T>::infinity();
    }
  }
  Batch row(std::size_t r) const {
    Batch one = *this;
    one.rows = 1;
    const auto cut = [&](std::vector<T>& v, std::size_t n) { v = {v.begin() + r * n, v.begin() + (r + 1) * n}; };
    cut(one.x, cols), cut(one.dx, cols), cut(one.y, out_cols), cut(one.g, out_cols);
    return one;
  }
};

template <class T>
MatrixView<T> view(std::vector<T>& v, std::size_t rows) {
  return {v.data(), rows, v.size() / rows};
}

template <class T>
void forward(const Map& op, Batch<T>& b, std::span<const PerRow> per_row = {}) {
  apply<T>(op, view(b.x, b.rows), view(b.y, b.rows), per_row);
}
template <class T>
void forward(const LogSoftmax& op, Batch<T>& b, std::span<const PerRow> per_row = {}) {
  log_softmax<T>(op, view(b.x, b.rows), view(b.y, b.rows), per_row);
}
template <class T>
void forward(const LogSumExp& op, Batch<T>& b, std::span<const PerRow> per_row = {}) {
  logsumexp<T>(op, view(b.x, b.rows), view(b.y, b.rows), per_row);
}
template <class T>
void backward(const Map& op, Batch<T>& b, std::span<const PerRow> per_row = {}, std::span<const ParamGradient> slopes = {}) {
  apply_vjp<T>(op, view(b.x, b.rows), view(b.y, b.rows), view(b.g, b.rows), view(b.dx, b.rows), per_row, slopes);
}
template <class T>
void backward(const LogSoftmax& op, Batch<T>& b, std::span<const PerRow> per_row = {},
              std::span<const ParamGradient> slopes = {}) {
  log_softmax_vjp<T>(op, view(b.x, b.rows), view(b.y, b.rows), view(b.g, b.rows), view(b.dx, b.rows), per_row, slopes);
}
template <class T>
void backward(const LogSumExp& op, Batch<T>& b, std::span<const PerRow> per_row = {},
              std::span<const ParamGradient> slopes = {}) {
  logsumexp_vjp<T>(op, view(b.x, b.rows), view(b.y, b.rows), view(b.g, b.rows), view(b.dx, b.rows), per_row, slopes);
}

oracle::Row definition(const Map& op, const oracle::Row& x) { return oracle::map(op, x); }
oracle::Row definition(const LogSoftmax& op, const oracle::Row& x) { return oracle::log_softmax(op, x); }
oracle::Row definition(const LogSumExp& op, const oracle::Row& x) { return {oracle::logsumexp(op, x)}; }

// Each row has the same bits as in a separate batch with its value, and its gradient agrees with differences of the definition.
template <class Op, class T>
void check(const Op& typical_op, std::string_view parameter, double Op::*member, std::optional<double> Op::*optional) {
  const std::vector<double> values = values_of(parameter);
  const auto with = [&](double value) {
    Op op = typical_op;
    if (member != nullptr) op.*member = value;
    if (optional != nullptr) op.*optional = value;
    return op;
  };
  const bool slow = Described<Op>::kDescription.cost > 10;
  for (const std::size_t n : slow ? std::vector<std::size_t>{2, 9} : std::vector<std::size_t>{2, 5, 64, 65, 300}) {
    Batch<T> batch(values.size(), n, std::is_same_v<Op, LogSumExp> ? 1 : n, static_cast<unsigned>(n));
    std::vector<double> slopes(values.size(), 7);
    const PerRow per_row[] = {{parameter, values}};
    const ParamGradient asked[] = {{parameter, slopes}};
    forward(typical_op, batch, per_row);
    const std::vector<T> y = batch.y;
    backward(typical_op, batch, per_row, asked);
    for (std::size_t r = 0; r < values.size(); ++r) {
      SCOPED_TRACE(std::string(Described<Op>::kDescription.name) + " " + std::string(parameter) + " = " +
                   std::to_string(values[r]) + " n=" + std::to_string(n));
      const Batch<T> row = batch.row(r);
      Batch<T> alone = row;
      forward(with(values[r]), alone);
      ASSERT_EQ(alone.y, row.y);
      backward(with(values[r]), alone);
      ASSERT_EQ(alone.dx, row.dx);

      const double h = 1e-6 * std::max(values[r], 0.1);
      const oracle::Row x(row.x.begin(), row.x.end());
      const double above = values[r] + h, below = values[r] - h;
      const oracle::Row up = definition(with(above), x), down = definition(with(below), x);
      long double slope = 0, size = 1;
      bool same = true;
      for (std::size_t i = 0; i < up.size(); ++i) {
        same &= (up[i] != 0) == (down[i] != 0);
        if (std::isinf(up[i])) continue;
        const long double term = row.g[i] * (up[i] - down[i]) / (above - below);
        slope += term;
        size += std::abs(term);
      }
      if (!same) continue;  // between two supports there is no one slope
      ASSERT_NEAR(slopes[r], slope, (sizeof(T) == 4 ? 2e-5 : 1e-8) * static_cast<double>(size));
    }
  }
}

template <class Op>
void check_all(const Op& op) {
  for_each_param<Op>([&]<class Value>(const Param<Op, Value>& param) {
    if constexpr (std::is_same_v<Value, double>) {
      if (param.per_row) check<Op, float>(op, param.name, param.member, nullptr);
      if (param.per_row) check<Op, double>(op, param.name, param.member, nullptr);
    } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
      Op other = op;  // what excludes another
      for_each_param<Op>([&]<class V>(const Param<Op, V>& p) {
        if constexpr (std::is_same_v<V, std::optional<double>>) other.*p.member = {};
      });
      if (param.per_row) check<Op, float>(other, param.name, nullptr, param.member);
      if (param.per_row) check<Op, double>(other, param.name, nullptr, param.member);
    }
  });
}

TEST(ParamGradients, AreTheDefinitions) {
  support::for_each_target([](const std::string&) {
    for_each_operation<Map>([]<class Op>(std::type_identity<Op>) { check_all(typical<Op>()); });
    check_all(LogSoftmax{});
    check_all(LogSumExp{});
  });
}

// Every continuous parameter of a map can be learned; parameters of a truncation cannot.
TEST(ParamGradients, EveryContinuousParameterHasOne) {
  for_each_operation<Map>([]<class Op>(std::type_identity<Op>) {
    for_each_param<Op>([]<class Value>(const Param<Op, Value>& param) {
      const bool cut = param.name == "p";
      const bool continuous = std::is_same_v<Value, double> || std::is_same_v<Value, std::optional<double>>;
      EXPECT_EQ(param.per_row, continuous && !cut) << Described<Op>::kDescription.name << " " << param.name;
    });
  });
}

TEST(ParamGradients, RowsWithoutAFiniteMaximum) {
  for_each_operation<Map>([]<class Op>(std::type_identity<Op>) {
    for_each_param<Op>([]<class Value>(const Param<Op, Value>& param) {
      if (param.name != "temperature" && param.name != "scale") return;
      Batch<double> b(3, 3, 3, 1);
      b.x = {kInf, 1, kInf, 1, kNaN, 2, 1, 2, -kInf};
      b.g = {1, 2, 3, 1, 2, 3, 1, 2, kNaN};
      std::vector<double> slopes(3, 7);
      const ParamGradient asked[] = {{param.name, slopes}};
      forward(typical<Op>(), b);
      backward(typical<Op>(), b, {}, asked);
      EXPECT_EQ(slopes[0], 0) << Described<Op>::kDescription.name;
      EXPECT_TRUE(std::isnan(slopes[1])) << Described<Op>::kDescription.name;
      EXPECT_TRUE(std::isfinite(slopes[2])) << Described<Op>::kDescription.name;
    });
  });
}

// Scores whose differences overflow, and temperatures at both ends: the result is not NaN.
TEST(ParamGradients, ExtremeScoresAndTemperatures) {
  const auto check_type = []<class T>(T) {
    const T most = std::numeric_limits<T>::max(), least = std::numeric_limits<T>::denorm_min();
    for (const double temperature : {1e-300, 1e-40, 1e-3, 1.0, 1e5, 1e40, 1e300}) {
      for (const std::vector<T>& x :
           {std::vector<T>{most, -most, 0, most}, {least, 0, -least, least}, {1, 1, 1, 1}, {5, 4, 3, -most}}) {
        Batch<T> b(1, 4, 4, 1);
        b.x = x;
        std::vector<double> slopes(1, 7);
        const ParamGradient asked[] = {{"temperature", slopes}};
        const std::vector<Map> maps = {Softmax{temperature}, Sparsemax{temperature}, Entmax{1.3, temperature}};
        for (const Map& map : maps) {
          forward(map, b);
          backward(map, b, {}, asked);
          EXPECT_FALSE(std::isnan(slopes[0])) << description_of(map).name << " " << temperature;
        }
        forward(LogSoftmax{temperature}, b);
        backward(LogSoftmax{temperature}, b, {}, asked);
        EXPECT_FALSE(std::isnan(slopes[0])) << "log_softmax " << temperature;
      }
    }
  };
  check_type(float{});
  check_type(double{});
}

// dx may overwrite an input.
TEST(ParamGradients, InPlace) {
  for (int place = 0; place < 3; ++place) {
    Batch<float> b(2, 40, 40, 5), want = b;
    std::vector<double> slopes(2), want_slopes(2);
    const ParamGradient asked[] = {{"temperature", slopes}}, want_asked[] = {{"temperature", want_slopes}};
    forward(Softmax{0.7}, want);
    b.y = want.y;
    backward(Softmax{0.7}, want, {}, want_asked);
    std::vector<float>& out = place == 0 ? b.x : place == 1 ? b.y : b.g;
    apply_vjp<float>(Softmax{0.7}, view(b.x, 2), view(b.y, 2), view(b.g, 2), view(out, 2), {}, asked);
    EXPECT_EQ(out, want.dx);
    EXPECT_EQ(slopes, want_slopes);
  }
}

TEST(ParamGradients, RefusedByName) {
  Batch<float> b(2, 3, 3, 1);
  const std::vector<double> values = {1, -1}, many = {1, 1, 1};
  const PerRow wrong[] = {{"temperature", values}}, long_one[] = {{"temperature", many}}, unknown[] = {{"order", many}};
  support::expect_error("log_softmax: temperature of row 1 must be above 0 and finite, got -1",
                        [&] { forward(LogSoftmax{}, b, wrong); });
  support::expect_error("sparsemax: temperature of row 1 must be above 0 and finite, got -1",
                        [&] { forward(Sparsemax{}, b, wrong); });
  support::expect_error("logsumexp: temperature must have one value for each of 2 rows, got 3", [&] {
    Batch<float> one(2, 3, 1, 1);
    forward(LogSumExp{}, one, long_one);
  });
  EXPECT_THROW(forward(TaylorSoftmax{}, b, unknown), std::invalid_argument);
}

// Rows without entries have gradients of 0, which are not written either if something else is wrong.
TEST(ParamGradients, RefusedRowsWithoutEntriesAreNotWritten) {
  float number = 0;
  const MatrixView<const float> none(&number, 2, 0), g(&number, 2, 0);
  const MatrixView<float> dx(&number, 2, 0), wrong(&number, 3, 0);
  std::vector<double> slopes(2, 7.0);
  const std::vector<ParamGradient> gradients = {{"temperature", slopes}};
  EXPECT_THROW(apply_vjp<float>(Softmax{}, none, none, g, wrong, {}, gradients), std::invalid_argument);
  EXPECT_THROW(log_softmax_vjp<float>({}, none, none, g, wrong, {}, gradients), std::invalid_argument);
  EXPECT_THROW(logsumexp_vjp<float>({}, none, none, g, dx, {}, gradients), std::invalid_argument);
  EXPECT_EQ(slopes, (std::vector<double>{7, 7}));
  apply_vjp<float>(Softmax{}, none, none, g, dx, {}, gradients);
  EXPECT_EQ(slopes, (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace isentropic
