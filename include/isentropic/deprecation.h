// Before a public name is removed, it is marked with ENTROPIC_DEPRECATED and still works for at least one minor version.
#pragma once

#include "entropic/version.h"

// ENTROPIC_DEPRECATED("0.3", "use apply()") void old_name();  the compiler warns with this text wherever the name is used. With
// ENTROPIC_NO_DEPRECATED defined it does not compile there: what will break is seen at once.
#if defined(ENTROPIC_NO_DEPRECATED) && defined(__GNUC__)
#define ENTROPIC_DEPRECATED(since, instead) __attribute__((unavailable("deprecated since entropic " since ": " instead)))
#else
#define ENTROPIC_DEPRECATED(since, instead) [[deprecated("deprecated since entropic " since ": " instead)]]
#endif
