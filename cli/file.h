// Whole files in, whole files or nothing out.
#pragma once

#include <string>
#include <string_view>

#include "format.h"

// Whether `path` is "-" or nothing: standard input, or standard output.
bool is_standard(const std::string& path);

// How messages call the file that is read from `path`.
std::string input_name(const std::string& path);

// Whether `path` is standard input or output, a device or a pipe: its name does not say what it holds.
bool is_stream(const std::string& path);

// All that can be read from `path`. Throws BadInput.
std::string read_bytes(const std::string& path);

// Lets `write` write the file at `path`, beside it first and renamed at the end, so that the file is either the old one or
// complete, and nothing stays beside it even if SIGINT, SIGTERM or SIGHUP ends the program. Standard output, devices and pipes
// are written to directly. Throws BadInput.
void write_output(const std::string& path, const std::function<void(const Sink&)>& write);
