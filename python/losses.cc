// Losses for Python: every registered one as a dict with its function, on rows along any axis of any strides.

#include <isentropic/isentropic.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bindings.h"
#include "params.h"
#include "rows.h"

namespace isentropic {
namespace {

// The names of the two arrays.
std::pair<std::string_view, std::string_view> arguments_of(TargetKind kind) {
  if (kind == TargetKind::scores) return {"student", "teacher"};
  return {kind == TargetKind::classes ? "cosines" : "x", "target"};
}

// Calculates value, in float64 or float32, and the gradient if there is room for it. target: an int64 for each row, or an array
// of the type of x. slopes: pairs (parameter, array of one float64 for each row), or None.
void run(const OperationInfo& info, nb::handle x, nb::handle target, nb::handle value, nb::handle dx, nb::handle axis,
         nb::handle values, nb::handle ignore_index, nb::handle slopes) {
  std::optional<std::int64_t> ignored;
  if (!ignore_index.is_none()) ignored = to_int(info.name, "ignore_index", ignore_index);
  ParamValues params(info, values);
  const Loss op = make<Loss>(info, params.values);
  const ParamSlopes gradients(info.name, slopes);
  const bool classes = Buffer(info.name, target, false)->type == Type::int64;
  const auto [x_name, target_name] = arguments_of(*info.target);
  const GivenArray arrays[] = {{x_name, x},
                               {.name = target_name, .array = target, .one_per_row = classes, .own_type = classes},
                               {.name = "value", .array = value, .output = true, .one_per_row = true, .own_type = true},
                               {.name = "dx", .array = dx, .output = true}};
  const GivenRows given(info.name, arrays, axis, params, !gradients.asked.empty());
  const nb::gil_scoped_release release;
  on_type(given.type(), [&]<class T>(std::type_identity<T>) {
    given.rows().for_blocks([&](const RowBlock* blocks, std::size_t first) {
      const RowBlock &in = blocks[0], &to = blocks[1], &out = blocks[2], &gradient = blocks[3];
      const auto per_row = of_rows<PerRow>(params.per_row, first, in.rows);
      const auto asked = of_rows<ParamGradient>(gradients.asked, first, in.rows);
      as_double(out, given.type(2), [&](std::span<double> numbers) {
        if (classes) {
          loss<T>(op, in.matrix<const T>(), to.numbers<const std::int64_t>(), numbers, gradient.matrix<T>(), per_row, asked,
                  ignored);
        } else {
          loss<T>(op, in.matrix<const T>(), to.matrix<const T>(), numbers, gradient.matrix<T>(), per_row, asked);
        }
      });
    });
  });
}

std::string_view name_of(TargetKind kind) {
  switch (kind) {
    case TargetKind::classes_or_distributions:
      return "class or distribution";
    case TargetKind::classes:
      return "class";
    case TargetKind::labels:
      return "labels";
    case TargetKind::scores:
      return "scores";
  }
  return "";
}

nb::list describe_losses() {
  nb::list all;
  for (const OperationInfo& info : family_info<Loss>().operations) {
    nb::dict d = describe(info);
    const auto [x, target] = arguments_of(*info.target);
    d["target"] = to_str(name_of(*info.target));
    d["arguments"] = nb::make_tuple(to_str(x), to_str(target));
    d["run"] = nb::cpp_function(
        [&info](nb::handle scores, nb::handle against, nb::handle value, nb::handle dx, nb::handle axis, nb::tuple values,
                nb::handle ignore_index,
                nb::handle slopes) { run(info, scores, against, value, dx, axis, values, ignore_index, slopes); },
        nb::arg("x"), nb::arg("target"), nb::arg("value"), nb::arg("dx").none(), nb::arg("axis").none(), nb::arg("params"),
        nb::arg("ignore_index").none(), nb::arg("slopes").none());
    all.append(d);
  }
  return all;
}

}  // namespace

void bind_losses(nb::module_& m) { m.def("losses", &describe_losses); }

}  // namespace isentropic
