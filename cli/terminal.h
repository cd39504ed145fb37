// What can be shown where the output goes: its width and whether it knows more than ASCII.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Columns of the terminal on standard output (COLUMNS, if set), at most so many; 80 where there is none.
std::size_t terminal_width(std::size_t most = 160);

// Whether the user's locale is a UTF-8 one, by LC_ALL, LC_CTYPE or LANG, even if this machine has not installed it.
bool locale_is_utf8();

// Whether what is written to the file descriptor may be coloured: a terminal, and NO_COLOR is not set (https://no-color.org).
bool wants_color(int descriptor);

// The same text with its bars of block characters in colour.
std::string with_colored_bars(std::string_view text);

// `text` as one line in exactly `width` columns: cut or filled with blanks, control characters replaced. Wide characters
// count as two columns.
std::string fit(std::string_view text, std::size_t width);

// Columns that `text` takes.
std::size_t display_width(std::string_view text);

// A bar of block characters or, without utf8, of #, that is `part` of `width` columns long; whatever is above 0 shows at least
// a trace. bar_text is filled with blanks.
std::string bar(double part, std::size_t width, bool utf8);
std::string bar_text(double part, std::size_t width, bool utf8);

// Text whose lines are no wider than the terminal: what goes on begins below the first word, or below what stands behind a gap,
// as the meaning of an option does. Examples stay whole, to be copied.
std::string folded(std::string_view text);
