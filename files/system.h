// What differs between systems: everything that is asked of the operating system, by the readers and writers and by the command
// line. system_posix.cc and system_windows.cc are the only files that include its headers. What fails leaves its reason in
// errno.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace files::sys {

enum Stream { standard_input = 0, standard_output = 1, standard_error = 2 };

struct Status {
  bool regular, folder;
  std::uint64_t size;
  unsigned mode;  // of access, as chmod takes it
};
std::optional<Status> status_of(const std::string& path);
std::optional<Status> status_of(int descriptor);
bool may_write(const std::string& path);

// A descriptor, or -1.
int open_to_read(const std::string& path);
int open_to_write(const std::string& path);

// A new file that only its owner reads. The last letters of the name, XXXXXX, are chosen in place before there is a file.
int create_temporary(char* name);

bool close(int descriptor);
std::ptrdiff_t read(int descriptor, char* to, std::size_t count);
std::ptrdiff_t write(int descriptor, const char* from, std::size_t count);
bool seek(int descriptor, std::uint64_t position);

// Whether reading would wait for somebody to write. Where that cannot be asked: yes.
bool would_wait(int descriptor);
bool seek_end(int descriptor);

// The file will be read from its beginning to its end.
void expect_sequential(int descriptor);

// Brings bytes to the disk; not every file has one.
bool flush(int descriptor);

// What chmod would give a new file, and that given to one.
unsigned mode_of_new_files();
bool set_mode(int descriptor, unsigned mode);

// Puts a file in the place of another at once.
bool replace(const char* from, const std::string& to);
void remove(const char* path);

// Where a link leads, though there may be no file yet; nothing if it leads in a circle.
std::optional<std::string> resolved(const std::string& path);

// Signals that end the program, unless they are ignored, remove the file that `unfinished` names, and a limit on the size of
// files is an error of writing.
void remove_on_signals(const std::atomic<const char*>& unfinished);

// The terminal.

bool is_terminal(int descriptor);
std::size_t terminal_columns(int descriptor);  // of standard output's or standard error's, or 0

// Columns that a character takes, or -1 for what cannot be shown. UTF-8 must have been chosen.
int character_width(wchar_t character);
void use_utf8();

// The path of this program's file, or nothing.
std::string program();

// Programs of this machine that connect to 127.0.0.1.

using Connection = std::intptr_t;
inline constexpr Connection kNoConnection = -1;

// Takes connections at a port; 0 becomes one that is free.
Connection listen_here(std::uint16_t& port);
Connection accept(Connection listener);

// Wait for some seconds at most.
std::ptrdiff_t receive(Connection connection, char* to, std::size_t count);
bool send(Connection connection, const char* from, std::size_t count);

void hang_up(Connection connection);

// Whether somebody is there to show it.
bool open_in_browser(const std::string& address);

// Where standard error is closed, the next file to be opened would take its number, and messages would go there.
void keep_standard_error();

}  // namespace files::sys
