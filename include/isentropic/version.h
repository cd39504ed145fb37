// The version of these headers: ISENTROPIC_VERSION_MAJOR, ISENTROPIC_VERSION_MINOR and ISENTROPIC_VERSION_PATCH for #if, and
// ISENTROPIC_VERSION as text, with a suffix between releases, as in "0.3.0.dev0".
#pragma once

#if __cplusplus < 202002L
#error "isentropic needs C++20: compile with -std=c++20 or later"
#endif

// This is the only place of the version: CMake and pyproject.toml read it here.
#define ISENTROPIC_VERSION_MAJOR 0
#define ISENTROPIC_VERSION_MINOR 3
#define ISENTROPIC_VERSION_PATCH 0
#define ISENTROPIC_VERSION_SUFFIX ""

#define ISENTROPIC_VERSION                                                                              \
  ISENTROPIC_VERSION_TEXT(ISENTROPIC_VERSION_MAJOR, ISENTROPIC_VERSION_MINOR, ISENTROPIC_VERSION_PATCH) \
  ISENTROPIC_VERSION_SUFFIX
#define ISENTROPIC_VERSION_TEXT(major, minor, patch) ISENTROPIC_VERSION_TEXT_OF(major, minor, patch)
#define ISENTROPIC_VERSION_TEXT_OF(major, minor, patch) #major "." #minor "." #patch

// v0_3 is the inline namespace of every name. With it, two versions with incompatible binaries can be in one program, and a
// program built with the headers of one does not link with the other. As long as the major version is 0, every minor version
// counts as incompatible; find_package and the shared library's name say this too.
#define ISENTROPIC_ABI ISENTROPIC_ABI_NAME(ISENTROPIC_VERSION_MAJOR, ISENTROPIC_VERSION_MINOR)
#define ISENTROPIC_ABI_NAME(major, minor) ISENTROPIC_ABI_NAME_OF(major, minor)
#define ISENTROPIC_ABI_NAME_OF(major, minor) v##major##_##minor
