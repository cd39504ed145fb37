// Pages that a command writes or serves: the explorer, with the library as WebAssembly in it, and what is put into pages.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "files/table.h"

// A string of JSON that does not end the script it stands in.
std::string inert_json(std::string_view text);

// The explorer, as scripts/explorer writes it: the file that ENTROPIC_EXPLORER names, or else share/entropic/explorer.html
// beside the folder of the program. Nothing where there is none. Throws BadInput if it is something else.
std::optional<std::string> explorer_page();

// The contents of a script of that page, by its id.
std::string_view script_of(std::string_view page, std::string_view id);

// The page with the table's rows, from the first on, as many as a browser takes well: `kept` is how many.
std::string page_with_rows(std::string page, const files::Table& table, std::size_t& kept);

// Serves a page at http://127.0.0.1:PORT/ to this machine, until a signal ends the program. Port 0 is any that is free; ready
// is told which. Throws BadInput if the port cannot be had.
[[noreturn]] void serve(const std::string& page, std::uint16_t port, const std::function<void(std::uint16_t port)>& ready);
