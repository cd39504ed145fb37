// Checks of a loss's target and of its wanted gradients, for all devices.
#pragma once

#include "isentropic/losses.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {

// Checks that the loss takes a class for each row.
inline void check_takes_classes(const Loss& loss) {
  const TargetKind kind = std::visit([](const auto& op) { return op.kTarget; }, loss);
  if (kind != TargetKind::classes && kind != TargetKind::classes_or_distributions) {
    fail("{}: target must be a matrix of x's shape, got a class for each row", description_of(loss).name);
  }
}

// Checks that the loss takes a matrix as its target, and the matrix; returns what the loss expects there.
template <class T>
TargetKind check_takes_matrix(const Loss& loss, const MatrixView<const T>& x, const MatrixView<const T>& target,
                              const MatrixView<T>& dx) {
  const std::string_view name = description_of(loss).name;
  const TargetKind kind = std::visit([](const auto& op) { return op.kTarget; }, loss);
  check_shape(name, "target", target, "x", x.rows, x.cols);
  check_apart(name, "dx", dx, "target", target);
  if (kind == TargetKind::classes) fail("{}: target must be a class for each row, got a matrix", name);
  return kind;
}

// Checks the wanted gradients in parameters of the loss or of its map.
template <class Op>
void check_gradients(const Op& op, std::span<const ParamGradient> gradients, std::size_t rows) {
  constexpr std::string_view kName = Described<Op>::kDescription.name;
  for (const ParamGradient& asked : gradients) {
    if constexpr (std::is_same_v<Op, SurrogateLoss>) {
      fail("{}: there is no gradient in {}, because the value only stands for a gradient", kName, asked.parameter);
    } else if constexpr (requires { op.map; }) {
      std::visit([&]<class M>(const M&) { check_per_row<M>(asked.parameter, asked.values.size(), rows); }, op.map);
    } else {
      check_per_row<Op>(asked.parameter, asked.values.size(), rows);
    }
    if constexpr (requires { Described<Op>::kTails; }) {
      if (op.tail == Op::Tail::bin && asked.parameter == "temperature") {
        fail("{}: there is no gradient in temperature with tail bin, where it is 1", kName);
      }
    }
    if constexpr (std::is_same_v<Op, MarginSoftmaxLoss>) {
      if (op.kind == MarginSoftmaxLoss::Kind::sphere && asked.parameter == "margin") {
        fail("{}: there is no gradient in margin of kind sphere, which is an integer", kName);
      }
    }
  }
}

}  // namespace isentropic::inline ISENTROPIC_ABI
