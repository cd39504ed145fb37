// Everything that readers, writers and the command line ask of the operating system, because it differs between systems. Only
// system_posix.cc and system_windows.cc include the system's headers. A function that fails leaves the reason in errno.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace files::sys {

enum Stream { standard_input = 0, standard_output = 1, standard_error = 2 };

struct Status {
  bool regular, folder;
  std::uint64_t size;
  unsigned mode;  // access mode, as in chmod
};
std::optional<Status> status_of(const std::string& path);
std::optional<Status> status_of(int descriptor);
bool may_write(const std::string& path);

// A descriptor, or -1.
int open_to_read(const std::string& path);
int open_to_write(const std::string& path);

// Makes a new file that only its owner can read. The letters XXXXXX before the last `behind` characters of the name are chosen
// in place before the file exists.
int create_temporary(char* name, int behind);

// Makes a new file without a name in a folder, if the system and the folder's file system have such files; otherwise -1. It
// vanishes with the process, however that ends.
int create_nameless(const std::string& folder);

// Gives such a file a name that no file has, or fails with EEXIST; or one whose letters XXXXXX are chosen.
bool name_it(int descriptor, const char* name);
bool name_it_temporarily(int descriptor, char* name, int behind);

bool close(int descriptor);
std::ptrdiff_t read(int descriptor, char* to, std::size_t count);
std::ptrdiff_t write(int descriptor, const char* from, std::size_t count);
bool seek(int descriptor, std::uint64_t position);

// Whether reading would have to wait for another program to write; true if that is unknown.
bool would_wait(int descriptor);
bool seek_end(int descriptor);

// Tells the system that the file will be read from its beginning to its end.
void expect_sequential(int descriptor);

// Writes bytes to the disk, if the file is on one.
bool flush(int descriptor);

// The access mode of a new file, and a call that sets one.
unsigned mode_of_new_files();
bool set_mode(int descriptor, unsigned mode);

// Replaces a file by another in one step.
bool replace(const char* from, const std::string& to);
void remove(const char* path);

// The path that a link leads to, even if there is no file yet; nothing if links form a circle.
std::optional<std::string> resolved(const std::string& path);

// Makes signals that end the program, unless they are ignored, remove the file that `unfinished` names, and turns a limit on
// file sizes into a write error.
void remove_on_signals(const std::atomic<const char*>& unfinished);

// The terminal.

#ifdef _WIN32
inline constexpr bool kTerminalIsUtf8 = true;  // without a variable that names a locale
#else
inline constexpr bool kTerminalIsUtf8 = false;
#endif
bool is_terminal(int descriptor);
std::size_t terminal_columns(int descriptor);  // for standard output or standard error; 0 without a terminal

int character_width(char32_t character);  // columns that it takes, or -1 if it cannot be shown

// The words of the command line after the program's name, in UTF-8.
std::vector<std::string> arguments(int argc, const char* const* argv);

// The path of this program's file, or nothing.
std::string program();

// Connections from programs on this machine to 127.0.0.1.

using Connection = std::intptr_t;
inline constexpr Connection kNoConnection = -1;

// Listens at a port; port 0 becomes a free one.
Connection listen_here(std::uint16_t& port);
Connection accept(Connection listener);

// Both wait for some seconds at most.
std::ptrdiff_t receive(Connection connection, char* to, std::size_t count);
bool send(Connection connection, const char* from, std::size_t count);

void hang_up(Connection connection);

// Opens the address in a browser, and returns whether there is one.
bool open_in_browser(const std::string& address);

// Opens standard error if it is closed. Otherwise the next opened file would get its number, and messages would go there.
void keep_standard_error();

}  // namespace files::sys
