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

// The command of an operation, or its name where it has none.
inline std::string command_name(const isentropic::OperationInfo& info) {
  return std::string(info.command.empty() ? info.name : info.command);
}
