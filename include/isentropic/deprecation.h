// Before a public name is removed, it is marked with ISENTROPIC_DEPRECATED and still works for at least one minor version.
#pragma once

#include "isentropic/version.h"

// ISENTROPIC_DEPRECATED("0.3", "use apply()") void old_name();  the compiler warns with this text wherever the name is used.
// With ISENTROPIC_NO_DEPRECATED defined it does not compile there: what will break is seen at once.
#if defined(ISENTROPIC_NO_DEPRECATED) && defined(__GNUC__)
#define ISENTROPIC_DEPRECATED(since, instead) __attribute__((unavailable("deprecated since isentropic " since ": " instead)))
#else
#define ISENTROPIC_DEPRECATED(since, instead) [[deprecated("deprecated since isentropic " since ": " instead)]]
#endif
