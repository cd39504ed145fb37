// Maps for Python: every registered one as a dict with a forward and a vjp function, on rows along any axis of any strides.
// Arrays arrive all of one type, one that the library has; entropic/_arrays.py and torch/ bring others to that.

#include <entropic/entropic.h>

#include <array>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "bindings.h"
#include "params.h"
#include "rows.h"

namespace entropic {
namespace {

// The families that are called like maps. Logarithms give no distribution, and logsumexp one number for each row.
template <class T>
void forward(const Map& map, const std::array<MatrixView<T>, 2>& a, std::span<const PerRow> per_row) {
  apply<T>(map, a[0], a[1], per_row);
}
template <class T>
void forward(const Logarithm& op, const std::array<MatrixView<T>, 2>& a, std::span<const PerRow> /*per_row*/) {
  const auto& [x, y] = a;
  if (const auto* const log = std::get_if<LogSoftmax>(&op)) return log_softmax<T>(*log, x, y);
  logsumexp<T>(std::get<LogSumExp>(op), x, y);
}

template <class T>
void vjp(const Map& map, const std::array<MatrixView<T>, 4>& a, std::span<const PerRow> per_row,
         std::span<const ParamGradient> gradients) {
  apply_vjp<T>(map, a[0], a[1], a[2], a[3], per_row, gradients);
}
template <class T>
void vjp(const Logarithm& op, const std::array<MatrixView<T>, 4>& a, std::span<const PerRow> /*per_row*/,
         std::span<const ParamGradient> /*gradients*/) {
  const auto& [x, y, g, dx] = a;
  if (const auto* const log = std::get_if<LogSoftmax>(&op)) return log_softmax_vjp<T>(*log, x, y, g, dx);
  logsumexp_vjp<T>(std::get<LogSumExp>(op), x, y, g, dx);
}

bool reduces(const OperationInfo& info) { return info.name == LogSumExp::kDescription.name; }

// run(views, first row), views of the type of x, without the GIL. Fills in params.per_row.
template <std::size_t N, class Run>
void on_rows(std::string_view where, ParamValues& params, const Map* map, bool has_gradients,
             const std::array<nb::handle, N>& arrays, const std::array<std::string_view, N>& names,
             const std::array<bool, N>& reduced, nb::handle given_axis, const Run& run) {
  const auto acquire = [&]<std::size_t... k>(std::index_sequence<k...>) {
    return std::array<Buffer, N>{Buffer(where, arrays[k], k + 1 == N)...};
  };
  const std::array<Buffer, N> buffers = acquire(std::make_index_sequence<N>{});
  const Array& x = *buffers[0];
  const std::size_t axis = to_axis(where, given_axis, x.ndim);
  for (auto& array : params.arrays) {
    array.values = spread(where, array.parameter, *array.buffer, x, axis);
    params.per_row.push_back({array.parameter, array.values});
  }
  std::array<RowArgument, N> arguments;
  for (std::size_t k = 0; k < N; ++k) {
    arguments[k] = row_argument(where, names[k], *buffers[k], x.type, k + 1 == N);
    arguments[k].one_per_row = reduced[k];
  }
  const RowOrder order = params.arrays.empty() && !has_gradients ? RowOrder::free : RowOrder::by_index;
  const StridedRows rows(where, arguments, axis, order);
  const nb::gil_scoped_release release;
  // Checks all rows before any is written.
  if (!params.per_row.empty() && map != nullptr) {
    apply<float>(*map, MatrixView<const float>(nullptr, rows.count(), 0), MatrixView<float>(nullptr, rows.count(), 0),
                 params.per_row);
  }
  on_type(x.type, [&]<class T>(std::type_identity<T>) {
    rows.for_blocks([&](const RowBlock* blocks, std::size_t first) {
      std::array<MatrixView<T>, N> views;
      for (std::size_t k = 0; k < N; ++k) views[k] = blocks[k].matrix<T>();
      run(views, first);
    });
  });
}

const Map* as_map(const Map& map) { return &map; }
const Map* as_map(const Logarithm& /*op*/) { return nullptr; }

template <class Family>
void run_forward(const OperationInfo& info, nb::handle x, nb::handle y, nb::handle axis, nb::handle values) {
  ParamValues params(info, values);
  const Family op = make<Family>(info, params.values);
  on_rows<2>(info.name, params, as_map(op), false, {x, y}, {"x", "out"}, {false, reduces(info)}, axis,
             [&]<class T>(const std::array<MatrixView<T>, 2>& views, std::size_t begin) {
               forward(op, views, of_rows<PerRow>(params.per_row, begin, views[0].rows));
             });
}

template <class Family>
void run_vjp(const OperationInfo& info, const std::array<nb::handle, 4>& arrays, nb::handle axis, nb::handle values,
             const std::vector<ParamGradient>& gradients) {
  ParamValues params(info, values);
  const Family op = make<Family>(info, params.values);
  on_rows<4>(std::string(info.name) + "_vjp", params, as_map(op), !gradients.empty(), arrays, {"x", "y", "grad", "dx"},
             {false, reduces(info), reduces(info), false}, axis,
             [&]<class T>(const std::array<MatrixView<T>, 4>& views, std::size_t begin) {
               const std::size_t count = views[0].rows;
               vjp(op, views, of_rows<PerRow>(params.per_row, begin, count), of_rows<ParamGradient>(gradients, begin, count));
             });
}

template <class Family>
void describe_family(nb::list& all) {
  for (const OperationInfo& info : family_info<Family>().operations) {
    nb::dict d = describe(info);
    d["reduces"] = reduces(info);
    d["forward"] = nb::cpp_function([&info](nb::handle x, nb::handle y, nb::handle axis,
                                            nb::tuple values) { run_forward<Family>(info, x, y, axis, values); },
                                    nb::arg("x"), nb::arg("y"), nb::arg("axis").none(), nb::arg("params"));
    d["vjp"] = nb::cpp_function(
        [&info](nb::handle x, nb::handle y, nb::handle g, nb::handle dx, nb::handle axis, nb::tuple values) {
          run_vjp<Family>(info, {x, y, g, dx}, axis, values, {});
        },
        nb::arg("x"), nb::arg("y"), nb::arg("grad"), nb::arg("dx"), nb::arg("axis").none(), nb::arg("params"));
    // gradients: for each parameter whose gradient is asked for, its name and an array of float64, one number for each row.
    d["param_vjp"] = nb::cpp_function(
        [&info](nb::handle x, nb::handle y, nb::handle g, nb::handle dx, nb::handle axis, nb::tuple values, nb::tuple asked) {
          std::list<Buffer> arrays;
          std::vector<ParamGradient> gradients;
          for (const nb::handle pair : asked) {
            const Buffer& array = arrays.emplace_back(info.name, pair[1], true);
            gradients.push_back({nb::cast<std::string_view>(pair[0]), numbers(*array)});
          }
          run_vjp<Family>(info, {x, y, g, dx}, axis, values, gradients);
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

}  // namespace entropic
