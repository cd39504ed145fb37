// What the terminal can show: its width, and whether it shows more than ASCII.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Columns of the terminal on standard output (COLUMNS, if set), at most `most`; 80 without a terminal.
std::size_t terminal_width(std::size_t most = 160);

// Whether LC_ALL, LC_CTYPE or LANG names a UTF-8 locale, even one that this machine has not installed. Windows seldom has any
// of these, and its terminal shows UTF-8.
bool locale_is_utf8();

// Whether output to the file descriptor may be coloured: it is a terminal, and NO_COLOR is not set (https://no-color.org).
bool wants_color(int descriptor);

// The text with its bars of block characters in colour.
std::string with_colored_bars(std::string_view text);

// `text` as one line in exactly `width` columns: cut or filled with blanks, control characters replaced. Wide characters
// count as two columns.
std::string fit(std::string_view text, std::size_t width);

// Columns that `text` takes.
std::size_t display_width(std::string_view text);

// A bar of block characters or, without utf8, of #; its length is `part` of `width` columns. Anything above 0 shows at least a
// trace. bar_text fills the rest with blanks.
std::string bar(double part, std::size_t width, bool utf8);
std::string bar_text(double part, std::size_t width, bool utf8);

// The text in lines no wider than the terminal. A continued line begins below the first word, or below the words after a gap,
// such as the meaning of an option. Examples stay whole so that they can be copied.
std::string folded(std::string_view text);
