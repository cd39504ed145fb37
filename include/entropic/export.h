// A shared library exports the names with ENTROPIC_API, and nothing else.
#pragma once

#include "entropic/version.h"

#define ENTROPIC_API __attribute__((visibility("default")))
