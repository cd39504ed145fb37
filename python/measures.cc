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
template <class Op>
nb::object runner(std::type_identity<Measure>) {
  return nb::cpp_function(
      [](nb::handle p, nb::handle value, nb::handle dp, nb::tuple params) {
        const Op op = to_params<Op>(params).op;
        std::optional<Buffer> in, gradient;
        acquire(in, Op::kDescription.name, p, false);
        acquire(gradient, Op::kDescription.name, dp, true);
        const Buffer out(Op::kDescription.name, value, true);
        const nb::gil_scoped_release release;
        on_type((*in)->type,
                [&]<class T>(std::type_identity<T>) { measure(op, matrix<const T>(in), numbers(*out), matrix<T>(gradient)); });
      },
      nb::arg("p"), nb::arg("value"), nb::arg("dp").none(), nb::arg("params"));
}

template <class Op>
nb::object runner(std::type_identity<Divergence>) {
  return nb::cpp_function(
      [](nb::handle p, nb::handle q, nb::handle value, nb::handle dp, nb::handle dq, nb::tuple params) {
        const Op op = to_params<Op>(params).op;
        std::optional<Buffer> first, second, p_gradient, q_gradient;
        acquire(first, Op::kDescription.name, p, false);
        acquire(second, Op::kDescription.name, q, false);
        acquire(p_gradient, Op::kDescription.name, dp, true);
        acquire(q_gradient, Op::kDescription.name, dq, true);
        const Buffer out(Op::kDescription.name, value, true);
        const nb::gil_scoped_release release;
        on_type((*first)->type, [&]<class T>(std::type_identity<T>) {
          measure(op, matrix<const T>(first), matrix<const T>(second), numbers(*out), matrix<T>(p_gradient),
                  matrix<T>(q_gradient));
        });
      },
      nb::arg("p"), nb::arg("q"), nb::arg("value"), nb::arg("dp").none(), nb::arg("dq").none(), nb::arg("params"));
}

// p: tables x rows x cols.
template <class Op>
nb::object runner(std::type_identity<TableMeasure>) {
  return nb::cpp_function(
      [](nb::handle p, nb::handle value, nb::handle dp, nb::tuple params) {
        const Op op = to_params<Op>(params).op;
        std::optional<Buffer> in, gradient;
        acquire(in, Op::kDescription.name, p, false);
        acquire(gradient, Op::kDescription.name, dp, true);
        const Buffer out(Op::kDescription.name, value, true);
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

template <class Op>
nb::object runner(std::type_identity<EntryMeasure>) {
  return nb::cpp_function(
      [](nb::handle p, nb::handle value, nb::handle dp, nb::tuple params) {
        const Op op = to_params<Op>(params).op;
        std::optional<Buffer> in, out, gradient;
        acquire(in, Op::kDescription.name, p, false);
        acquire(out, Op::kDescription.name, value, true);
        acquire(gradient, Op::kDescription.name, dp, true);
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
    const auto add = [&]<class Family>(const char* family, std::type_identity<Family> which) {
      for_each_operation<Family>([&]<class Op>(std::type_identity<Op>) {
        nb::dict d = describe_operation<Op>();
        d["family"] = family;
        d["run"] = runner<Op>(which);
        all.append(d);
      });
    };
    add("measure", std::type_identity<Measure>());
    add("divergence", std::type_identity<Divergence>());
    add("table", std::type_identity<TableMeasure>());
    add("entry", std::type_identity<EntryMeasure>());
    return all;
  });
}

}  // namespace entropic
