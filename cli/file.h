// Whole files in, whole files or nothing out.
#pragma once

#include <string>
#include <string_view>

#include "format.h"

// How messages call the file at `path`; "-" or nothing is standard input.
std::string input_name(const std::string& path);

// The bytes of the file at `path`. Throws BadInput.
std::string read_bytes(const std::string& path);

// Lets `write` write the file at `path`, beside it first and renamed at the end, so that the file is either the old one or
// complete. "-" or nothing is standard output, which is written to directly, as are devices and pipes. Throws BadInput.
void write_output(const std::string& path, const std::function<void(const Sink&)>& write);
