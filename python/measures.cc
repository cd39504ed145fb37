// Measures for Python: functions on arrays that entropic/_arrays.py has brought to rows without gaps.

#include <entropic/entropic.h>
#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "bindings.h"
#include "params.h"

namespace entropic {
namespace {

// A matrix of the array's own type: its last axis are the columns. None is a view without data.
template <class T>
MatrixView<T> matrix(const std::optional<Buffer>& buffer) {
  if (!buffer) return {};
  const Array& a = **buffer;
  const auto cols = static_cast<std::size_t>(a.shape[a.ndim - 1]);
  return {reinterpret_cast<T*>(a.data), cols == 0 ? static_cast<std::size_t>(a.shape[0]) : a.count() / cols, cols};
}

// An array that may be None.
void acquire(std::optional<Buffer>& buffer, std::string_view where, nb::handle array, bool writable) {
  if (!array.is_none()) buffer.emplace(where, array, writable);
}

// run(arrays, params): values of a family that are one number for each row are float64, everything else is of p's type.
nb::object runner(const OperationInfo& info, std::type_identity<Measure>) {
  return nb::cpp_function(
      [&info](nb::handle p, nb::handle value, nb::handle dp, nb::tuple values, nb::handle slopes) {
        ParamValues params(info, values);
        params.use_arrays_as_rows();
        const Measure op = make<Measure>(info, params.values);
        const ParamSlopes gradients(info.name, slopes);
        std::optional<Buffer> in, gradient;
        acquire(in, info.name, p, false);
        acquire(gradient, info.name, dp, true);
        const Buffer out(info.name, value, true);
        const nb::gil_scoped_release release;
        on_type((*in)->type, [&]<class T>(std::type_identity<T>) {
          measure(op, matrix<const T>(in), numbers(*out), matrix<T>(gradient), params.per_row, gradients.asked);
        });
      },
      nb::arg("p"), nb::arg("value"), nb::arg("dp").none(), nb::arg("params"), nb::arg("slopes") = nb::none());
}

nb::object runner(const OperationInfo& info, std::type_identity<Divergence>) {
  return nb::cpp_function(
      [&info](nb::handle p, nb::handle q, nb::handle value, nb::handle dp, nb::handle dq, nb::tuple params) {
        const Divergence op = make<Divergence>(info, ParamValues(info, params).values);
        std::optional<Buffer> first, second, p_gradient, q_gradient;
        acquire(first, info.name, p, false);
        acquire(second, info.name, q, false);
        acquire(p_gradient, info.name, dp, true);
        acquire(q_gradient, info.name, dq, true);
        const Buffer out(info.name, value, true);
        const nb::gil_scoped_release release;
        on_type((*first)->type, [&]<class T>(std::type_identity<T>) {
          measure(op, matrix<const T>(first), matrix<const T>(second), numbers(*out), matrix<T>(p_gradient),
                  matrix<T>(q_gradient));
        });
      },
      nb::arg("p"), nb::arg("q"), nb::arg("value"), nb::arg("dp").none(), nb::arg("dq").none(), nb::arg("params"));
}

// p: tables x rows x cols.
nb::object runner(const OperationInfo& info, std::type_identity<TableMeasure>) {
  return nb::cpp_function(
      [&info](nb::handle p, nb::handle value, nb::handle dp, nb::tuple params) {
        const TableMeasure op = make<TableMeasure>(info, ParamValues(info, params).values);
        std::optional<Buffer> in, gradient;
        acquire(in, info.name, p, false);
        acquire(gradient, info.name, dp, true);
        const Buffer out(info.name, value, true);
        const Array& a = **in;
        const auto tables = static_cast<std::size_t>(a.shape[0]), rows = static_cast<std::size_t>(a.shape[1]),
                   cols = static_cast<std::size_t>(a.shape[2]), size = rows * cols;
        const nb::gil_scoped_release release;
        on_type(a.type, [&]<class T>(std::type_identity<T>) {
          for (std::size_t t = 0; t < tables; ++t) {
            const MatrixView<const T> table(reinterpret_cast<const T*>(a.data) + t * size, rows, cols);
            MatrixView<T> to;
            if (gradient) to = {reinterpret_cast<T*>((*gradient)->data) + t * size, rows, cols};
            try {
              numbers(*out)[t] = measure(op, table, to);
            } catch (const std::invalid_argument& error) {
              if (tables == 1) throw;
              throw std::invalid_argument(std::string(error.what()) + ", in table " + std::to_string(t));
            }
          }
        });
      },
      nb::arg("p"), nb::arg("value"), nb::arg("dp").none(), nb::arg("params"));
}

nb::object runner(const OperationInfo& info, std::type_identity<EntryMeasure>) {
  return nb::cpp_function(
      [&info](nb::handle p, nb::handle value, nb::handle dp, nb::tuple params) {
        const EntryMeasure op = make<EntryMeasure>(info, ParamValues(info, params).values);
        std::optional<Buffer> in, out, gradient;
        acquire(in, info.name, p, false);
        acquire(out, info.name, value, true);
        acquire(gradient, info.name, dp, true);
        const nb::gil_scoped_release release;
        on_type((*in)->type,
                [&]<class T>(std::type_identity<T>) { measure(op, matrix<const T>(in), matrix<T>(out), matrix<T>(gradient)); });
      },
      nb::arg("p"), nb::arg("value"), nb::arg("dp").none(), nb::arg("params"));
}

}  // namespace

void bind_measures(nb::module_& m) {
  m.def("measure_operations", [] {
    nb::list all;
    const auto add = [&]<class Family>(std::type_identity<Family> which) {
      for (const OperationInfo& info : family_info<Family>().operations) {
        nb::dict d = describe(info);
        d["run"] = runner(info, which);
        all.append(d);
      }
    };
    add(std::type_identity<Measure>());
    add(std::type_identity<Divergence>());
    add(std::type_identity<TableMeasure>());
    add(std::type_identity<EntryMeasure>());
    return all;
  });
}

}  // namespace entropic
