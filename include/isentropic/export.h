// A shared library exports the names with ENTROPIC_API, and nothing else.
#pragma once

#include "entropic/version.h"

// Windows: CMake's WINDOWS_EXPORT_ALL_SYMBOLS, and static libraries, need nothing here.
#ifdef _WIN32
#define ENTROPIC_API
#else
#define ENTROPIC_API __attribute__((visibility("default")))
#endif
