// Measures for Python: functions on rows along any axis of any strides, and on tables without gaps.

#include <isentropic/isentropic.h>
#include <nanobind/nanobind.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "bindings.h"
#include "params.h"
#include "rows.h"

namespace isentropic {
namespace {

void replace(std::string& text, std::string_view what, std::string_view by) {
  if (const std::size_t at = text.find(what); at != std::string::npos) text.replace(at, what.size(), by);
}

// Runs call(); the advice in its errors is written as in Python.
template <class Call>
void in_words_of_python(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    std::string text = error.what();
    replace(text, "(input scores takes scores)", "(input=\"scores\" takes scores)");
    replace(text, "(normalize divides by the sum)", "(normalize=True divides by the sum, input=\"scores\" takes scores)");
    throw std::invalid_argument(text);
  }
}

// run(arrays, axis, params): values with one number for each row are float64 or float32, everything else has p's type.
nb::object runner(const OperationInfo& info, std::type_identity<Measure>) {
  return nb::cpp_function(
      [&info](nb::handle p, nb::handle value, nb::handle dp, nb::handle axis, nb::tuple values, nb::handle slopes) {
        ParamValues params(info, values);
        const Measure op = make<Measure>(info, params.values);
        const ParamSlopes gradients(info.name, slopes);
        const GivenArray arrays[] = {{"p", p},
                                     {.name = "value", .array = value, .output = true, .one_per_row = true, .own_type = true},
                                     {.name = "dp", .array = dp, .output = true}};
        const GivenRows given(info.name, arrays, axis, params, !gradients.asked.empty());
        const nb::gil_scoped_release release;
        in_words_of_python([&] {
          on_type(given.type(), [&]<class T>(std::type_identity<T>) {
            given.rows().for_blocks([&](const RowBlock* blocks, std::size_t first) {
              as_double(blocks[1], given.type(1), [&](std::span<double> numbers) {
                measure<T>(op, blocks[0].matrix<const T>(), numbers, blocks[2].matrix<T>(),
                           of_rows<PerRow>(params.per_row, first, blocks[0].rows),
                           of_rows<ParamGradient>(gradients.asked, first, blocks[0].rows));
              });
            });
          });
        });
      },
      nb::arg("p"), nb::arg("value"), nb::arg("dp").none(), nb::arg("axis").none(), nb::arg("params"),
      nb::arg("slopes") = nb::none());
}

// q may repeat along every other axis: one row for all.
nb::object runner(const OperationInfo& info, std::type_identity<Divergence>) {
  return nb::cpp_function(
      [&info](nb::handle p, nb::handle q, nb::handle value, nb::handle dp, nb::handle dq, nb::handle axis, nb::tuple values) {
        ParamValues params(info, values);
        const Divergence op = make<Divergence>(info, params.values);
        const GivenArray arrays[] = {{"p", p},
                                     {.name = "q", .array = q, .one_for_all = true},
                                     {.name = "value", .array = value, .output = true, .one_per_row = true, .own_type = true},
                                     {.name = "dp", .array = dp, .output = true},
                                     {.name = "dq", .array = dq, .output = true}};
        const GivenRows given(info.name, arrays, axis, params);
        const nb::gil_scoped_release release;
        in_words_of_python([&] {
          on_type(given.type(), [&]<class T>(std::type_identity<T>) {
            given.rows().for_blocks([&](const RowBlock* blocks, std::size_t /*first*/) {
              as_double(blocks[2], given.type(2), [&](std::span<double> numbers) {
                measure<T>(op, blocks[0].matrix<const T>(), blocks[1].matrix<const T>(), numbers, blocks[3].matrix<T>(),
                           blocks[4].matrix<T>());
              });
            });
          });
        });
      },
      nb::arg("p"), nb::arg("q"), nb::arg("value"), nb::arg("dp").none(), nb::arg("dq").none(), nb::arg("axis").none(),
      nb::arg("params"));
}

// p: tables x rows x cols.
nb::object runner(const OperationInfo& info, std::type_identity<TableMeasure>) {
  return nb::cpp_function(
      [&info](nb::handle p, nb::handle value, nb::handle dp, nb::tuple params) {
        const TableMeasure op = make<TableMeasure>(info, ParamValues(info, params).values);
        const Buffer in(info.name, p, false), out(info.name, value, true), gradient(info.name, dp, true);
        const auto tables = static_cast<std::size_t>(in->shape[0]), rows = static_cast<std::size_t>(in->shape[1]),
                   cols = static_cast<std::size_t>(in->shape[2]), size = rows * cols;
        const nb::gil_scoped_release release;
        in_words_of_python([&] {
          on_type(in->type, [&]<class T>(std::type_identity<T>) {
            for (std::size_t t = 0; t < tables; ++t) {
              const MatrixView<const T> table(reinterpret_cast<const T*>(in->data) + t * size, rows, cols);
              MatrixView<T> to;
              if (gradient->data != nullptr) to = {reinterpret_cast<T*>(gradient->data) + t * size, rows, cols};
              try {
                numbers(*out)[t] = measure(op, table, to);
              } catch (const std::invalid_argument& error) {
                if (tables == 1) throw;
                throw std::invalid_argument(std::string(error.what()) + ", in table " + std::to_string(t));
              }
            }
          });
        });
      },
      nb::arg("p"), nb::arg("value"), nb::arg("dp").none(), nb::arg("params"));
}

nb::object runner(const OperationInfo& info, std::type_identity<EntryMeasure>) {
  return nb::cpp_function(
      [&info](nb::handle p, nb::handle value, nb::handle dp, nb::handle axis, nb::tuple values) {
        ParamValues params(info, values);
        const EntryMeasure op = make<EntryMeasure>(info, params.values);
        const GivenArray arrays[] = {
            {"p", p}, {.name = "value", .array = value, .output = true}, {.name = "dp", .array = dp, .output = true}};
        const GivenRows given(info.name, arrays, axis, params);
        const nb::gil_scoped_release release;
        in_words_of_python([&] {
          on_type(given.type(), [&]<class T>(std::type_identity<T>) {
            given.rows().for_blocks([&](const RowBlock* blocks, std::size_t /*first*/) {
              measure<T>(op, blocks[0].matrix<const T>(), blocks[1].matrix<T>(), blocks[2].matrix<T>());
            });
          });
        });
      },
      nb::arg("p"), nb::arg("value"), nb::arg("dp").none(), nb::arg("axis").none(), nb::arg("params"));
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

}  // namespace isentropic
