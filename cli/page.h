// Pages that a command writes or serves: the explorer, which has the library as WebAssembly in it, and helpers for all pages.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "files/table.h"

// The text as a JSON string that does not end the script around it.
std::string inert_json(std::string_view text);

// The text with what HTML would read as tags, names of characters and quotes.
std::string escaped(std::string_view text);

// The head of a page up to its own style, with the colours that all pages share; the page adds </style> and </head>. `scripts`
// are the sources of scripts that it may run, as in 'unsafe-inline'; without any it runs none.
std::string page_head(std::string_view title, std::string_view scripts);

// The explorer, as scripts/explorer writes it: the file that ISENTROPIC_EXPLORER names, otherwise
// share/isentropic/explorer.html beside the folder of the program. Nothing if that file is missing. Throws BadInput if it is
// another page.
std::optional<std::string> explorer_page();

// The contents of a script of that page, by its id.
std::string_view script_of(std::string_view page, std::string_view id);

// The page with the first rows of the table, as many as a browser handles well; `kept` becomes their number.
std::string page_with_rows(std::string page, const files::Table& table, std::size_t& kept);

// Serves a page at http://127.0.0.1:PORT/ to this machine, until a signal ends the program. Port 0 means any free port;
// ready(port) gets it. Throws BadInput if the port cannot be used.
[[noreturn]] void serve(const std::string& page, std::uint16_t port, const std::function<void(std::uint16_t port)>& ready);
