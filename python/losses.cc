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
// `slopes` are pairs (parameter, array of float64), or None.
void run(std::string_view name, nb::handle x, nb::handle target, nb::handle value, nb::handle dx, nb::tuple values,
         nb::handle map, nb::handle ignore_index, nb::handle slopes) {
  std::optional<std::int64_t> ignored;
  if (!ignore_index.is_none()) ignored = to_int(name, "ignore_index", ignore_index);
  const Buffer scores(name, x, false), out(name, value, true);
  std::optional<Buffer> gradient, q;
  std::optional<Classes> classes;
  const ParamSlopes gradients(name, slopes);
  if (!dx.is_none()) gradient.emplace(name, dx, true);
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
        loss<T>(op, in, indices, numbers(*out), to, per_row, gradients.asked, ignored);
      } else {
        loss<T>(op, in, view<const T>(**q), numbers(*out), to, per_row, gradients.asked);
      }
    });
  };
  for_each_operation<Loss>([&]<class Op>(std::type_identity<Op>) {
    if (Op::kDescription.name != name) return;
    if constexpr (requires(Op op) { op.map; }) {
      const NamedMap named(nb::cast<std::string_view>(map[0]), map[1]);
      call(Op{.map = named.op}, named.per_row);
    } else {
      const RowParams<Op> params(values);
      call(params.op, params.per_row);
    }
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

// What the two arrays are called.
nb::tuple arguments_of(TargetKind kind) {
  if (kind == TargetKind::scores) return nb::make_tuple("student", "teacher");
  return nb::make_tuple(kind == TargetKind::classes ? "cosines" : "x", "target");
}

nb::list describe_losses() {
  nb::list all;
  for (const OperationInfo& info : family_info<Loss>().operations) {
    nb::dict d = describe(info);
    d["target"] = to_str(name_of(*info.target));
    d["arguments"] = arguments_of(*info.target);
    nb::list params;
    bool has_map = false;
    for (const nb::handle param : nb::cast<nb::list>(d["params"])) {
      const bool is_map = nb::cast<std::string>(param["kind"]) == "map";
      has_map |= is_map;
      if (!is_map) params.append(param);
    }
    d["params"] = params;
    d["has_map"] = has_map;
    all.append(d);
  }
  return all;
}

}  // namespace

void bind_losses(nb::module_& m) {
  m.def("losses", &describe_losses);
  m.def("loss", &run, nb::arg("name"), nb::arg("x"), nb::arg("target"), nb::arg("value"), nb::arg("dx").none(),
        nb::arg("params"), nb::arg("map").none(), nb::arg("ignore_index").none(), nb::arg("slopes").none());
}

}  // namespace entropic
