// Operations that only a device has, because elsewhere they are a part of others.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <string_view>

#include "isentropic/cuda.h"
#include "isentropic/operation.h"

namespace isentropic::inline ISENTROPIC_ABI::cuda {

enum class Own : std::size_t {
  token_statistics,
  gumbel_noise,
  calibration_facts,
  temperature_slopes,
  target_entropy_losses,
  fit_temperature,
  fit_target_entropy,
  match_entropy,
};

inline constexpr ArrayInfo kTokenArrays[] = {{.name = "x"},
                                             {.name = "target", .kind = ArrayKind::integer},
                                             {.name = "statistics", .kind = ArrayKind::points, .output = true},
                                             {.name = "top", .kind = ArrayKind::indices, .output = true, .optional = true}};
inline constexpr ArrayInfo kTokenGradient[] = {{.name = "x"},
                                               {.name = "target", .kind = ArrayKind::integer},
                                               {.name = "statistics", .kind = ArrayKind::points},
                                               {.name = "grad", .kind = ArrayKind::points},
                                               {.name = "dx", .output = true}};
inline constexpr ArrayInfo kNoiseArrays[] = {{.name = "y", .output = true}};
inline constexpr ArrayInfo kAskedArrays[] = {{.name = "x"},
                                             {.name = "labels", .kind = ArrayKind::integer},
                                             {.name = "found", .kind = ArrayKind::points, .output = true}};
inline constexpr ArrayInfo kFitArrays[] = {{.name = "x"},
                                           {.name = "labels", .kind = ArrayKind::integer},
                                           {.name = "sample_weight", .kind = ArrayKind::number, .optional = true},
                                           {.name = "value", .kind = ArrayKind::scalar, .output = true},
                                           {.name = "clamped", .kind = ArrayKind::count, .output = true, .optional = true}};
inline constexpr ArrayInfo kMatchArrays[] = {{.name = "x_reference"},
                                             {.name = "sample_weight", .kind = ArrayKind::number, .optional = true},
                                             {.name = "value", .kind = ArrayKind::scalar, .output = true}};

inline ParamInfo parameter(std::string_view name, std::string_view meaning, ParamKind kind, bool required,
                           bool per_row = false) {
  return {.name = name,
          .meaning = meaning,
          .kind = kind,
          .required = required,
          .per_row = per_row,
          .above = std::numeric_limits<double>::lowest(),
          .at_least = std::numeric_limits<double>::lowest(),
          .up_to = std::numeric_limits<double>::max(),
          .multiple_of = 0,
          .choices = {},
          .initial = {},
          .typical = {},
          .allowed = {}};
}

inline const FamilyInfo& own_operations() {
  static const ParamInfo kToken[] = {parameter("temperature", "T", ParamKind::number, false, true),
                                     parameter("top", "columns of top", ParamKind::integer, false)};
  static const ParamInfo kBeta[] = {parameter("beta", "1/T", ParamKind::number, true)};
  static const ParamInfo kEntropy[] = {parameter("entropy", "of each row", ParamKind::number, true)};
  static constexpr TargetKind kLabels = TargetKind::classes;
  const auto operation = [](Own own, std::string_view name, std::span<const ArrayInfo> arrays,
                            std::span<const ParamInfo> params = {}) {
    return OperationInfo{.family = "device",
                         .name = name,
                         .summary = {},
                         .formula = {},
                         .gradient = {},
                         .source = {},
                         .arrays = arrays,
                         .jacobian = {},
                         .drawn = own == Own::gumbel_noise,
                         .command = {},
                         .not_in = {},
                         .laws = nullptr,
                         .target = own == Own::fit_temperature || own == Own::fit_target_entropy ? &kLabels : nullptr,
                         .params = params,
                         .index = static_cast<std::size_t>(own)};
  };
  static const std::span<const ArrayInfo> kFit = kFitArrays;
  static OperationInfo all[] = {
      operation(Own::token_statistics, Described<TokenStatistics>::kDescription.name, kTokenArrays, kToken),
      operation(Own::gumbel_noise, "gumbel_noise", kNoiseArrays),
      operation(Own::calibration_facts, "calibration_facts", kAskedArrays),
      operation(Own::temperature_slopes, "temperature_slopes", kAskedArrays, kBeta),
      operation(Own::target_entropy_losses, "target_entropy_losses", kAskedArrays, kEntropy),
      operation(Own::fit_temperature, "fit_temperature", kFit),
      operation(Own::fit_target_entropy, "fit_target_entropy", kFit.first(4)),
      operation(Own::match_entropy, "match_entropy", kMatchArrays),
  };
  all[0].jacobian.arrays = kTokenGradient;
  static const FamilyInfo kFamily = {"device", "Of a device", "parts of other operations", all};
  return kFamily;
}

}  // namespace isentropic::inline ISENTROPIC_ABI::cuda
