// Maps for Python: every registered one as a dict with a forward and a vjp function, on rows along any axis of any strides. All
// arrays have one type, one that the library has; isentropic/_calls.py and torch/ convert others.

#include <isentropic/isentropic.h>

#include <array>
#include <span>
#include <string>
#include <vector>

#include "bindings.h"
#include "params.h"
#include "rows.h"

namespace isentropic {
namespace {

// The families that are called like maps. Logarithms are not distributions, and logsumexp gives one number for each row.
template <class T>
void forward(const Map& map, const std::array<MatrixView<T>, 2>& a, std::span<const PerRow> per_row) {
  apply<T>(map, a[0], a[1], per_row);
}
template <class T>
void forward(const Logarithm& op, const std::array<MatrixView<T>, 2>& a, std::span<const PerRow> per_row) {
  const auto& [x, y] = a;
  if (const auto* const log = std::get_if<LogSoftmax>(&op)) return log_softmax<T>(*log, x, y, per_row);
  logsumexp<T>(std::get<LogSumExp>(op), x, y, per_row);
}

template <class T>
void vjp(const Map& map, const std::array<MatrixView<T>, 4>& a, std::span<const PerRow> per_row,
         std::span<const ParamGradient> gradients) {
  apply_vjp<T>(map, a[0], a[1], a[2], a[3], per_row, gradients);
}
template <class T>
void vjp(const Logarithm& op, const std::array<MatrixView<T>, 4>& a, std::span<const PerRow> per_row,
         std::span<const ParamGradient> gradients) {
  const auto& [x, y, g, dx] = a;
  if (const auto* const log = std::get_if<LogSoftmax>(&op)) return log_softmax_vjp<T>(*log, x, y, g, dx, per_row, gradients);
  logsumexp_vjp<T>(std::get<LogSumExp>(op), x, y, g, dx, per_row, gradients);
}

// Refuses an invalid value of any row, by a call that only checks.
void check_rows(const Map& map, std::size_t rows, std::span<const PerRow> per_row) {
  apply<float>(map, MatrixView<const float>(nullptr, rows, 0), MatrixView<float>(nullptr, rows, 0), per_row);
}
void check_rows(const Logarithm& op, std::size_t rows, std::span<const PerRow> per_row) {
  std::vector<float> sums(rows);
  const bool log = std::holds_alternative<LogSoftmax>(op);
  forward<float>(op,
                 {MatrixView<float>(nullptr, rows, 0),
                  log ? MatrixView<float>(nullptr, rows, 0) : MatrixView<float>(sums.data(), rows, 1)},
                 per_row);
}

// Calls run(views, first row) with views of the type of x, without the GIL.
template <class Family, std::size_t N, class Run>
void on_rows(const GivenRows<N>& given, const ParamValues& params, const Family& op, const Run& run) {
  const StridedRows& rows = given.rows();
  const nb::gil_scoped_release release;
  // Checks all rows before any is written.
  if (!params.per_row.empty()) check_rows(op, rows.count(), params.per_row);
  on_type(given.type(), [&]<class T>(std::type_identity<T>) {
    rows.for_blocks([&](const RowBlock* blocks, std::size_t first) {
      std::array<MatrixView<T>, N> views;
      for (std::size_t k = 0; k < N; ++k) views[k] = blocks[k].matrix<T>();
      run(views, first);
    });
  });
}

template <class Family>
void run_forward(const OperationInfo& info, nb::handle x, nb::handle y, nb::handle axis, nb::handle values) {
  ParamValues params(info, values);
  const Family op = make<Family>(info, params.values);
  const GivenArray arrays[] = {{"x", x}, {.name = "out", .array = y, .output = true, .one_per_row = reduces(info)}};
  on_rows(GivenRows(info.name, arrays, axis, params), params, op,
          [&]<class T>(const std::array<MatrixView<T>, 2>& views, std::size_t begin) {
            forward(op, views, of_rows<PerRow>(params.per_row, begin, views[0].rows));
          });
}

template <class Family>
void run_vjp(const OperationInfo& info, const std::array<nb::handle, 4>& given, nb::handle axis, nb::handle values,
             const std::vector<ParamGradient>& gradients) {
  ParamValues params(info, values);
  const Family op = make<Family>(info, params.values);
  const std::string where = std::string(info.name) + "_vjp";
  const GivenArray arrays[] = {{"x", given[0]},
                               {.name = "y", .array = given[1], .one_per_row = reduces(info)},
                               {.name = "grad", .array = given[2], .one_per_row = reduces(info)},
                               {.name = "dx", .array = given[3], .output = true}};
  on_rows(GivenRows(where, arrays, axis, params, !gradients.empty()), params, op,
          [&]<class T>(const std::array<MatrixView<T>, 4>& views, std::size_t begin) {
            const std::size_t count = views[0].rows;
            vjp(op, views, of_rows<PerRow>(params.per_row, begin, count), of_rows<ParamGradient>(gradients, begin, count));
          });
}

template <class Family>
void describe_family(nb::list& all) {
  for (const OperationInfo& info : family_info<Family>().operations) {
    nb::dict d = describe(info);
    d["forward"] = nb::cpp_function([&info](nb::handle x, nb::handle y, nb::handle axis,
                                            nb::tuple values) { run_forward<Family>(info, x, y, axis, values); },
                                    nb::arg("x"), nb::arg("y"), nb::arg("axis").none(), nb::arg("params"));
    d["vjp"] = nb::cpp_function(
        [&info](nb::handle x, nb::handle y, nb::handle g, nb::handle dx, nb::handle axis, nb::tuple values) {
          run_vjp<Family>(info, {x, y, g, dx}, axis, values, {});
        },
        nb::arg("x"), nb::arg("y"), nb::arg("grad"), nb::arg("dx"), nb::arg("axis").none(), nb::arg("params"));
    // gradients: for each parameter whose gradient is wanted, its name and an array of float64, one number for each row.
    d["param_vjp"] = nb::cpp_function(
        [&info](nb::handle x, nb::handle y, nb::handle g, nb::handle dx, nb::handle axis, nb::tuple values, nb::tuple asked) {
          const ParamSlopes gradients(info.name, asked);
          run_vjp<Family>(info, {x, y, g, dx}, axis, values, gradients.asked);
        },
        nb::arg("x"), nb::arg("y"), nb::arg("grad"), nb::arg("dx"), nb::arg("axis").none(), nb::arg("params"),
        nb::arg("gradients"));
    all.append(d);
  }
}

}  // namespace

void bind_maps(nb::module_& m) {
  m.def("operations", [] {
    nb::list all;
    describe_family<Map>(all);
    describe_family<Logarithm>(all);
    return all;
  });
  m.def(
      "normalize_axis", [](const std::string& where, nb::handle axis, int dims) { return to_axis(where, axis, dims); },
      nb::arg("where"), nb::arg("axis").none(), nb::arg("dims"));
}

}  // namespace isentropic
