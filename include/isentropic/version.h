// The version of these headers: ENTROPIC_VERSION_MAJOR, ENTROPIC_VERSION_MINOR and ENTROPIC_VERSION_PATCH for #if, and
// ENTROPIC_VERSION as text.
#pragma once

#if __cplusplus < 202002L
#error "entropic needs C++20: compile with -std=c++20 or later"
#endif

// This is the only place of the version: CMake and pyproject.toml read it here.
#define ENTROPIC_VERSION_MAJOR 0
#define ENTROPIC_VERSION_MINOR 2
#define ENTROPIC_VERSION_PATCH 0

#define ENTROPIC_VERSION ENTROPIC_VERSION_TEXT(ENTROPIC_VERSION_MAJOR, ENTROPIC_VERSION_MINOR, ENTROPIC_VERSION_PATCH)
#define ENTROPIC_VERSION_TEXT(major, minor, patch) ENTROPIC_VERSION_TEXT_OF(major, minor, patch)
#define ENTROPIC_VERSION_TEXT_OF(major, minor, patch) #major "." #minor "." #patch

// v0_2 is the inline namespace of every name. With it, two versions with incompatible binaries can be in one program, and a
// program built with the headers of one does not link with the other. As long as the major version is 0, every minor version
// counts as incompatible; find_package and the shared library's name say this too.
#define ENTROPIC_ABI ENTROPIC_ABI_NAME(ENTROPIC_VERSION_MAJOR, ENTROPIC_VERSION_MINOR)
#define ENTROPIC_ABI_NAME(major, minor) ENTROPIC_ABI_NAME_OF(major, minor)
#define ENTROPIC_ABI_NAME_OF(major, minor) v##major##_##minor
