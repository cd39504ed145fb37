// `entropic list`: what there is, printed from the operations' own descriptions.
#pragma once

#include <string>

// For a terminal.
std::string list_text();

// docs/operations.md.
std::string list_markdown();
