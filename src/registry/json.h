// An operation's description as JSON.
#pragma once

#include <string>

#include "isentropic/operation.h"

namespace isentropic::inline ISENTROPIC_ABI {

std::string operation_json(const OperationInfo& info);

}  // namespace isentropic::inline ISENTROPIC_ABI
