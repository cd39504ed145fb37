// Lists and forces SIMD targets: a thin interface to Highway's dispatcher.

#include "isentropic/simd.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hwy/highway.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

// SupportedAndGeneratedTargets() is not enough: it leaves out targets that force_simd_target disabled.
std::vector<std::int64_t> compiled_targets() {
  static const std::vector<std::int64_t> targets = [] {
    hwy::SetSupportedTargetsForTest(0);
    return hwy::SupportedAndGeneratedTargets();
  }();
  return targets;
}

}  // namespace

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : compiled_targets()) names.emplace_back(hwy::TargetName(target));
  return names;
}

std::string simd_target() {
  compiled_targets();
  return hwy::TargetName(hwy::SupportedAndGeneratedTargets().front());
}

void force_simd_target(std::string_view name) {
  std::int64_t only = 0;  // every target
  if (!name.empty()) {
    for (const std::int64_t target : compiled_targets()) {
      if (name == hwy::TargetName(target)) only = target;
    }
    if (only == 0) fail("force_simd_target: name must be one of {}, got '{}'", fmt::join(simd_targets(), ", "), name);
  }
  hwy::SetSupportedTargetsForTest(only);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace isentropic::inline ISENTROPIC_ABI
