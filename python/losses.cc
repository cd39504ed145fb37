// Losses for Python, on rows without gaps: arrays that entropic/_arrays.py or torch/_losses.py has brought to that.

#include <entropic/entropic.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings.h"
#include "params.h"

namespace entropic {
namespace {

using Classes = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
MatrixView<T> view(const Array& a) {
  return {reinterpret_cast<T*>(a.data), static_cast<std::size_t>(a.shape[0]), static_cast<std::size_t>(a.shape[1])};
}

// value and, where there is room for it, the gradient. `map` is (name, values of its parameters) for a loss that has one,
// `slopes` (parameter, array of float64) or None.
void run(std::string_view name, nb::handle x, nb::handle target, nb::handle value, nb::handle dx, nb::tuple values,
         nb::handle map, nb::handle ignore_index, nb::handle slopes) {
  std::optional<std::int64_t> ignored;
  if (!ignore_index.is_none()) ignored = to_int(name, "ignore_index", ignore_index);
  const Buffer scores(name, x, false), out(name, value, true);
  std::optional<Buffer> gradient, q, slope;
  std::optional<Classes> classes;
  std::vector<ParamGradient> gradients;
  if (!dx.is_none()) gradient.emplace(name, dx, true);
  if (!slopes.is_none()) {
    slope.emplace(name, slopes[1], true);
    gradients.push_back({nb::cast<std::string_view>(slopes[0]), numbers(**slope)});
  }
  if (Classes given; nb::try_cast(target, given)) {
    classes = given;
  } else {
    q.emplace(name, target, false);
  }
  const auto call = [&](const Loss& op, std::span<const PerRow> per_row) {
    const nb::gil_scoped_release release;
    on_type(scores->type, [&]<class T>(std::type_identity<T>) {
      const MatrixView<const T> in = view<const T>(*scores);
      const MatrixView<T> to = gradient ? view<T>(**gradient) : MatrixView<T>();
      if (classes) {
        const std::span<const std::int64_t> indices(classes->data(), classes->shape(0));
        loss<T>(op, in, indices, numbers(*out), to, per_row, gradients, ignored);
      } else {
        loss<T>(op, in, view<const T>(**q), numbers(*out), to, per_row, gradients);
      }
    });
  };
  for_each_operation<Loss>([&]<class Op>(std::type_identity<Op>) {
    if (Op::kDescription.name != name) return;
    if constexpr (requires(Op op) { op.map; }) {
      with_map(nb::cast<std::string_view>(map[0]), nb::cast<nb::tuple>(map[1]),
               [&](const auto& params) { call(Op{.map = params.op}, params.per_row); });
    } else {
      const RowParams<Op> params(values);
      call(params.op, params.per_row);
    }
  });
}

std::string_view name_of(TargetKind kind) {
  switch (kind) {
    case TargetKind::kClassOrDistribution:
      return "class or distribution";
    case TargetKind::kClass:
      return "class";
    case TargetKind::kLabels:
      return "labels";
    case TargetKind::kScores:
      return "scores";
  }
  return "";
}

// What the two arrays are called.
nb::tuple arguments_of(TargetKind kind) {
  if (kind == TargetKind::kScores) return nb::make_tuple("student", "teacher");
  return nb::make_tuple(kind == TargetKind::kClass ? "cosines" : "x", "target");
}

nb::list describe_losses() {
  nb::list all;
  for_each_operation<Loss>([&]<class Op>(std::type_identity<Op>) {
    nb::dict d = describe_operation<Op>();
    d["target"] = to_str(name_of(Op::kTarget));
    d["arguments"] = arguments_of(Op::kTarget);
    d["has_map"] = requires(Op op) { op.map; };
    all.append(d);
  });
  return all;
}

}  // namespace

void bind_losses(nb::module_& m) {
  m.def("losses", &describe_losses);
  m.def("loss", &run, nb::arg("name"), nb::arg("x"), nb::arg("target"), nb::arg("value"), nb::arg("dx").none(),
        nb::arg("params"), nb::arg("map").none(), nb::arg("ignore_index").none(), nb::arg("slopes").none());
}

}  // namespace entropic
