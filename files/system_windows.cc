// Windows, with the calls of its C library. File names are UTF-8.
#ifdef _WIN32
#include "system.h"

#ifndef NOMINMAX
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>
#include <winsock2.h>
// Must come after winsock2.h.
#include <shellapi.h>
#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <system_error>

namespace files::sys {
namespace {

constexpr std::size_t kMost = 1 << 30;  // bytes in one call, an unsigned int

std::filesystem::path to_path(const std::string& name) {
  return std::filesystem::path(std::u8string(name.begin(), name.end()));
}

// With slashes: names are taken apart at these.
std::string to_name(const std::filesystem::path& path) {
  const std::u8string name = path.generic_u8string();
  return std::string(name.begin(), name.end());
}

Status to_status(const struct _stat64& status) {
  const bool folder = (status.st_mode & _S_IFMT) == _S_IFDIR;
  return {(status.st_mode & _S_IFMT) == _S_IFREG, folder, static_cast<std::uint64_t>(status.st_size), status.st_mode & 0777u};
}

const std::atomic<const char*>* unfinished_file = nullptr;

extern "C" void remove_unfinished_and_die(int signal) {
  if (const char* path = *unfinished_file) remove(path);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

std::optional<Status> status_of(const std::string& path) {
  struct _stat64 status;
  if (::_wstat64(to_path(path).c_str(), &status) != 0) return std::nullopt;
  return to_status(status);
}

std::optional<Status> status_of(int descriptor) {
  struct _stat64 status;
  if (::_fstat64(descriptor, &status) != 0) return std::nullopt;
  return to_status(status);
}

bool may_write(const std::string& path) { return ::_waccess(to_path(path).c_str(), 2) == 0; }

int open_to_read(const std::string& path) {
  return ::_wopen(to_path(path).c_str(), _O_RDONLY | _O_BINARY | _O_NOINHERIT | _O_SEQUENTIAL);
}

int open_to_write(const std::string& path) { return ::_wopen(to_path(path).c_str(), _O_WRONLY | _O_BINARY | _O_NOINHERIT); }

int create_temporary(char* name, int behind) {
  static constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  char* const letters = name + std::strlen(name) - behind - 6;
  std::random_device random;
  for (int tries = 0; tries < 100; ++tries) {
    for (int i = 0; i < 6; ++i) letters[i] = kLetters[random() % 36];
    const int descriptor =
        ::_wopen(to_path(name).c_str(), _O_RDWR | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}

int create_nameless(const std::string& /*folder*/) { return -1; }

bool name_it(int /*descriptor*/, const char* /*name*/) { return false; }

bool name_it_temporarily(int /*descriptor*/, char* /*name*/, int /*behind*/) { return false; }

bool close(int descriptor) { return ::_close(descriptor) == 0; }

bool would_wait(int /*descriptor*/) { return true; }

std::ptrdiff_t read(int descriptor, char* to, std::size_t count) {
  return ::_read(descriptor, to, static_cast<unsigned>(std::min(count, kMost)));
}

std::ptrdiff_t write(int descriptor, const char* from, std::size_t count) {
  return ::_write(descriptor, from, static_cast<unsigned>(std::min(count, kMost)));
}

bool seek(int descriptor, std::uint64_t position) {
  return ::_lseeki64(descriptor, static_cast<std::int64_t>(position), SEEK_SET) >= 0;
}

bool seek_end(int descriptor) { return ::_lseeki64(descriptor, 0, SEEK_END) >= 0; }

void expect_sequential(int) {}  // this was set when the file was opened

bool flush(int descriptor) { return ::_commit(descriptor) == 0 || errno == EBADF; }

unsigned mode_of_new_files() { return _S_IREAD | _S_IWRITE; }

bool set_mode(int, unsigned) { return true; }  // access is inherited from the folder

bool replace(const char* from, const std::string& to) {
  const DWORD how = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
  if (::MoveFileExW(to_path(from).c_str(), to_path(to).c_str(), how)) return true;
  errno = ::GetLastError() == ERROR_FILE_NOT_FOUND ? ENOENT : EACCES;
  return false;
}

void remove(const char* path) { ::_wunlink(to_path(path).c_str()); }

std::optional<std::string> resolved(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::weakly_canonical(to_path(path), error);
  return to_name(error ? to_path(path) : real);
}

void remove_on_signals(const std::atomic<const char*>& unfinished) {
  unfinished_file = &unfinished;
  for (const int signal : {SIGINT, SIGTERM, SIGBREAK}) std::signal(signal, remove_unfinished_and_die);
}

bool is_terminal(int descriptor) { return ::_isatty(descriptor) != 0; }

std::size_t terminal_columns(int descriptor) {
  CONSOLE_SCREEN_BUFFER_INFO info;
  if (!::GetConsoleScreenBufferInfo(::GetStdHandle(descriptor == 1 ? STD_OUTPUT_HANDLE : STD_ERROR_HANDLE), &info)) return 0;
  return static_cast<std::size_t>(info.srWindow.Right - info.srWindow.Left + 1);
}

// The C library has no table of widths. Control characters cannot be shown; East Asian characters and pictographs are wide.
int character_width(char32_t c) {
  if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return -1;
  const bool wide = (c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf && c != 0x303f) ||
                    (c >= 0xac00 && c <= 0xd7a3) || (c >= 0xf900 && c <= 0xfaff) || (c >= 0xfe30 && c <= 0xfe6f) ||
                    (c >= 0xff00 && c <= 0xff60) || (c >= 0xffe0 && c <= 0xffe6) || (c >= 0x1f300 && c <= 0x1faff) ||
                    (c >= 0x20000 && c <= 0x3fffd);
  return wide ? 2 : 1;
}

// The words that main gets are in the system's code page, which lacks most characters.
std::vector<std::string> arguments(int, const char* const*) {
  int count = 0;
  const std::unique_ptr<LPWSTR, decltype(&::LocalFree)> words(::CommandLineToArgvW(::GetCommandLineW(), &count), ::LocalFree);
  std::vector<std::string> arguments;
  for (int i = 1; i < count; ++i) {
    const std::u8string word = std::filesystem::path(words.get()[i]).u8string();
    arguments.emplace_back(word.begin(), word.end());
  }
  return arguments;
}

std::string program() {
  std::wstring path(MAX_PATH, L'\0');
  for (;;) {
    const DWORD size = ::GetModuleFileNameW(nullptr, path.data(), static_cast<DWORD>(path.size()));
    if (size < path.size()) return to_name(path.substr(0, size));
    path.resize(2 * path.size());
  }
}

Connection listen_here(std::uint16_t& port) {
  WSADATA data;
  if (::WSAStartup(MAKEWORD(2, 2), &data) != 0) return kNoConnection;
  const SOCKET listener = ::WSASocketW(AF_INET, SOCK_STREAM, 0, nullptr, 0, WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
  if (listener == INVALID_SOCKET) return kNoConnection;
  const BOOL on = TRUE;
  ::setsockopt(listener, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, reinterpret_cast<const char*>(&on), sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = ::htons(port);
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  int size = sizeof address;
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(listener, SOMAXCONN) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    errno = ::WSAGetLastError() == WSAEADDRINUSE ? EADDRINUSE : EACCES;
    ::closesocket(listener);
    return kNoConnection;
  }
  port = ::ntohs(address.sin_port);
  return static_cast<Connection>(listener);
}

Connection accept(Connection listener) {
  const SOCKET connection = ::accept(static_cast<SOCKET>(listener), nullptr, nullptr);
  if (connection == INVALID_SOCKET) return kNoConnection;
  const DWORD milliseconds = 5000;
  for (const int wait : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    ::setsockopt(connection, SOL_SOCKET, wait, reinterpret_cast<const char*>(&milliseconds), sizeof milliseconds);
  }
  return static_cast<Connection>(connection);
}

std::ptrdiff_t receive(Connection connection, char* to, std::size_t count) {
  return ::recv(static_cast<SOCKET>(connection), to, static_cast<int>(std::min(count, kMost)), 0);
}

bool send(Connection connection, const char* from, std::size_t count) {
  while (count > 0) {
    const int put = ::send(static_cast<SOCKET>(connection), from, static_cast<int>(std::min(count, kMost)), 0);
    if (put <= 0) return false;
    from += put;
    count -= static_cast<std::size_t>(put);
  }
  return true;
}

void hang_up(Connection connection) {
  // Unread bytes from the other side would make it lose the end of our reply.
  ::shutdown(static_cast<SOCKET>(connection), SD_SEND);
  char rest[4096];
  for (int parts = 0; parts < 16 && ::recv(static_cast<SOCKET>(connection), rest, sizeof rest, 0) > 0; ++parts) continue;
  ::closesocket(static_cast<SOCKET>(connection));
}

bool open_in_browser(const std::string& address) {
  const std::filesystem::path wide = to_path(address);
  return reinterpret_cast<std::intptr_t>(::ShellExecuteW(nullptr, L"open", wide.c_str(), nullptr, nullptr, SW_SHOWNORMAL)) > 32;
}

// Also makes the standard streams like those of other systems: bytes, and UTF-8 on the terminal until the program ends. The
// terminal decodes the bytes of each call by themselves: a buffer keeps C's stream from writing them one by one.
void keep_standard_error() {
  for (const int stream : {standard_input, standard_output, standard_error}) ::_setmode(stream, _O_BINARY);
  static const UINT before = ::GetConsoleOutputCP();
  if (before == 0) return;  // no terminal
  std::setvbuf(stdout, nullptr, _IOFBF, 4096);
  ::SetConsoleOutputCP(CP_UTF8);
  std::atexit([] { ::SetConsoleOutputCP(before); });
}

}  // namespace files::sys
#endif
