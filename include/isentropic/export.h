// A shared library exports the names with ISENTROPIC_API, and nothing else.
#pragma once

#include "isentropic/version.h"

// Windows: CMake's WINDOWS_EXPORT_ALL_SYMBOLS, and static libraries, need nothing here.
#ifdef _WIN32
#define ISENTROPIC_API
#else
#define ISENTROPIC_API __attribute__((visibility("default")))
#endif
