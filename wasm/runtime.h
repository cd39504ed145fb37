#pragma once

#include <string>

// Why the last call trapped.
std::string& last_error();
