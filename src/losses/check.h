// Checks of the wanted gradients of a loss, for all devices.
#pragma once

#include "entropic/losses.h"
#include "src/check.h"

namespace entropic::inline ENTROPIC_ABI {

// Checks the wanted gradients in parameters of the loss or of its map.
template <class Op>
void check_gradients(const Op& op, std::span<const ParamGradient> gradients, std::size_t rows) {
  constexpr std::string_view kName = Op::kDescription.name;
  for (const ParamGradient& asked : gradients) {
    if constexpr (std::is_same_v<Op, SurrogateLoss>) {
      fail("{}: there is no gradient in {}, because the value means nothing", kName, asked.parameter);
    } else if constexpr (requires { op.map; }) {
      std::visit([&]<class M>(const M&) { check_per_row<M>(asked.parameter, asked.values.size(), rows); }, op.map);
    } else {
      check_per_row<Op>(asked.parameter, asked.values.size(), rows);
    }
    if constexpr (std::is_same_v<Op, MarginSoftmaxLoss>) {
      if (op.kind == MarginSoftmaxLoss::Kind::sphere && asked.parameter == "margin") {
        fail("{}: there is no gradient in margin of kind sphere, which is an integer", kName);
      }
    }
  }
}

}  // namespace entropic::inline ENTROPIC_ABI
