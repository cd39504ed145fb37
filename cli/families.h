// Which operations are commands of their own, and what those are called.
#pragma once

#include <entropic/operation.h>

#include <string>
#include <string_view>

// The families' titles as groups of commands.
inline std::string group_of(std::string_view family) {
  for (const entropic::FamilyInfo& one : entropic::families()) {
    if (one.name == family) return std::string(one.title);
  }
  return "";
}

inline bool is_command(const entropic::OperationInfo& info) {
  for (const std::string_view family : {"step", "attention"}) {
    if (info.family == family) return false;
  }
  for (const std::string_view name :
       {"normalize_density", "normalize_joint", "mean_field_entropy", "gumbel_softmax", "entropy_invariant_scale"}) {
    if (info.name == name) return false;
  }
  return true;
}

// An operation's own name or a shorter one, which then is its other name.
inline std::string command_name(const entropic::OperationInfo& info) {
  if (info.name == "gamma_for_entropy") return "gamma";
  if (info.name == "optimal_transport") return "transport";
  if (info.name == "sinkhorn") return "transport --epsilon";
  return std::string(info.name);
}
