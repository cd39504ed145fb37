// The names of the commands and their groups.
#pragma once

#include <isentropic/operation.h>

#include <string>
#include <string_view>

// The group of commands of a family: its title.
inline std::string group_of(std::string_view family) {
  for (const isentropic::FamilyInfo& one : isentropic::families()) {
    if (one.name == family) return std::string(one.title);
  }
  return "";
}

inline bool is_command(const isentropic::OperationInfo& info) {
  for (const std::string_view family : {"step", "attention"}) {
    if (info.family == family) return false;
  }
  for (const std::string_view name :
       {"normalize_density", "normalize_joint", "mean_field_entropy", "gumbel_softmax", "entropy_invariant_scale"}) {
    if (info.name == name) return false;
  }
  return true;
}

// The command of an operation: the operation's name, or a shorter one with the full name as an alias.
inline std::string command_name(const isentropic::OperationInfo& info) {
  if (info.name == "gamma_for_entropy") return "gamma";
  if (info.name == "optimal_transport") return "transport";
  if (info.name == "sinkhorn") return "transport --epsilon";
  return std::string(info.name);
}
