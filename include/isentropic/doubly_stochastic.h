// Tables of scores -> tables whose rows and columns have fixed sums.
//
//   std::vector<double> x = {1, 0, 0, 2};
//   const isentropic::MatrixView table(x, 2, 2);
//   isentropic::doubly_stochastic({}, table, table);  // x = 0.82, 0.18, 0.18, 0.82
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>

#include "isentropic/describe.h"
#include "isentropic/export.h"
#include "isentropic/matrix_view.h"

namespace isentropic::inline ISENTROPIC_ABI {

//   y = diag(r) exp(x / temperature) diag(c) with sum_j y_ij = 1 and sum_i y_ij = n / m
struct DoublyStochastic {
  double temperature = 1;       // divides the scores
  std::int64_t iterations = 0;  // how often rows, then columns, are divided by their sums; 0: until the tolerance is met
  std::optional<double> tolerance = {};  // largest error of the logarithm of a row's sum; 1e-6 if it is not given

  static constexpr double kTolerance = 1e-6;  // where none is given

  constexpr std::string_view check() const {
    return iterations > 0 && tolerance ? "tolerance must not be given beside iterations" : "";
  }
};

using TableMap = std::variant<DoublyStochastic>;

// y of each table: y = diag(r) exp(x / T) diag(c), r and c such that rows sum to 1 and columns to n / m.
//
// With iterations k it is what k times dividing rows by their sums, then columns by theirs times m / n, gives. Without them it
// is their limit: columns have their sums, and a row's is off by at most `tolerance` in its logarithm (or by rounding, about
// (n + m) 2^-52, if that is more). A score of -inf is an entry of 0. In the limit an entry that no table with these zeros and
// sums can use is 0 as well; a table without such a solution is NaN, as is one with NaN, +inf, or a row or column of -inf.
//
// Shapes: x and y have `tables` times n rows of m numbers, one table after the other; y may be x. Error of y:
// (16 + 2 R + |log y|) 2^-52 y, R the largest difference of finite scores in a row over T, beside that of the tolerance and of
// rounding to T. Where R is above 2^40, it is that of a T that is R / 2^40 times as large. Throws: std::invalid_argument for
// parameters and shapes.
template <class T>
ISENTROPIC_API void doubly_stochastic(const DoublyStochastic& op, MatrixView<const std::type_identity_t<T>> x, MatrixView<T> y,
                                      std::size_t tables = 1);

// dx = J^T g: of the k iterations or, without them, of the limit, by the implicit function theorem, where J is symmetric and
// y alone decides.
//
// Shapes: as above; y is the result, dx may be any of the others.
template <class T>
ISENTROPIC_API void doubly_stochastic_vjp(const DoublyStochastic& op, MatrixView<const std::type_identity_t<T>> x,
                                          MatrixView<const std::type_identity_t<T>> y,
                                          MatrixView<const std::type_identity_t<T>> g, MatrixView<T> dx,
                                          std::size_t tables = 1);

// Descriptions of the operations above (describe.h): texts, ranges, arrays. The checks of arguments and every door are made
// from them. A call needs nothing below.

inline constexpr Absence kTableMapNotIn[] = {{Door::device, "on a device it is composed of torch's operations"},
                                             {Door::ranks, "tables are not split"},
                                             {Door::web, "left out, because each page loads the library"}};
inline constexpr ArrayInfo kTableMapArrays[] = {{.name = "x", .kind = ArrayKind::table},
                                                {.name = "y", .kind = ArrayKind::table, .output = true}};
inline constexpr ArrayInfo kTableMapGradientArrays[] = {{.name = "x", .kind = ArrayKind::table},
                                                        {.name = "y", .kind = ArrayKind::table},
                                                        {.name = "grad", .kind = ArrayKind::table},
                                                        {.name = "dx", .kind = ArrayKind::table, .output = true}};

template <>
struct Described<DoublyStochastic> {
  static constexpr Description kDescription = {
      .name = "doubly_stochastic",
      .summary = "A table whose rows sum to 1 and whose columns have equal sums, n / m for n rows and m columns.",
      .formula = "y = diag(r) exp(x / temperature) diag(c) with sum_j y_ij = 1 and sum_i y_ij = n / m",
      .gradient = "y (g - u_i - v_j) / temperature, where u and v make the sums of its rows and columns 0",
      .source = "Sinkhorn 1964; Sinkhorn, Knopp 1967",
      .cost = 40,
      .arrays = kTableMapArrays,
      .jacobian = {.arrays = kTableMapGradientArrays},
      .not_in = kTableMapNotIn,
  };
  static constexpr auto kParams =
      Params{Param<DoublyStochastic>{
                 .name = "temperature", .meaning = "divides the scores", .member = &DoublyStochastic::temperature, .above = 0},
             Param<DoublyStochastic, std::int64_t>{
                 .name = "iterations",
                 .meaning = "how often rows, then columns, are divided by their sums; 0: until the tolerance is met",
                 .member = &DoublyStochastic::iterations,
                 .at_least = 0,
                 .up_to = 1000000},
             Param<DoublyStochastic, std::optional<double>>{
                 .name = "tolerance",
                 .meaning = "largest error of the logarithm of a row's sum; 1e-6 if it is not given",
                 .member = &DoublyStochastic::tolerance,
                 .above = 0}};
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif
