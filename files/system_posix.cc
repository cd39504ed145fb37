// Linux, macOS and their relatives.
#ifndef _WIN32
#include "system.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>

#ifdef __APPLE__
#include <crt_externs.h>
#include <mach-o/dyld.h>
#define environ (*_NSGetEnviron())
#else
extern char** environ;
#endif

namespace files::sys {
namespace {

constexpr std::size_t kMost = 1 << 30;  // bytes in one call: some systems refuse 2^31

Status to_status(const struct stat& status) {
  return {S_ISREG(status.st_mode), S_ISDIR(status.st_mode), static_cast<std::uint64_t>(status.st_size),
          status.st_mode & 07777u};
}

const std::atomic<const char*>* unfinished_file = nullptr;

extern "C" void remove_unfinished_and_die(int signal) {
  if (const char* path = *unfinished_file) ::unlink(path);
  // The handler is no longer set (SA_RESETHAND), so the signal raised again ends the program when this returns.
  ::raise(signal);
}

}  // namespace

std::optional<Status> status_of(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return to_status(status);
}

std::optional<Status> status_of(int descriptor) {
  struct stat status;
  if (::fstat(descriptor, &status) != 0) return std::nullopt;
  return to_status(status);
}

bool may_write(const std::string& path) { return ::access(path.c_str(), W_OK) == 0; }

int open_to_read(const std::string& path) { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }

int open_to_write(const std::string& path) { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC); }

int create_temporary(char* name, int behind) { return ::mkstemps(name, behind); }

int create_nameless([[maybe_unused]] const std::string& folder) {
#ifdef O_TMPFILE
  // It gets its name by way of /proc.
  if (::access("/proc/self/fd", X_OK) != 0) return -1;
  return ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
#else
  return -1;
#endif
}

bool name_it(int descriptor, const char* name) {
  const std::string file = "/proc/self/fd/" + std::to_string(descriptor);
  return ::linkat(AT_FDCWD, file.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
}

bool name_it_temporarily(int descriptor, char* name, int behind) {
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  char* const letters = name + std::strlen(name) - behind - 6;
  std::random_device random;
  for (int tries = 0; tries < 100; ++tries) {
    for (int i = 0; i < 6; ++i) letters[i] = kLetters[random() % kLetters.size()];
    if (name_it(descriptor, name)) return true;
    if (errno != EEXIST) return false;
  }
  return false;
}

bool close(int descriptor) { return ::close(descriptor) == 0; }

namespace {

// Whether the call failed because the descriptor does not block, as those of some shells and of Node. If so, waits until it is
// ready.
bool waited(int descriptor, short event) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
  pollfd asked = {descriptor, event, 0};
  return ::poll(&asked, 1, -1) >= 0 || errno == EINTR;
}

}  // namespace

bool would_wait(int descriptor) {
  pollfd asked = {descriptor, POLLIN, 0};
  return ::poll(&asked, 1, 0) == 0;
}

std::ptrdiff_t read(int descriptor, char* to, std::size_t count) {
  std::ptrdiff_t got = 0;
  do {
    got = ::read(descriptor, to, std::min(count, kMost));
  } while (got < 0 && waited(descriptor, POLLIN));
  return got;
}

std::ptrdiff_t write(int descriptor, const char* from, std::size_t count) {
  std::ptrdiff_t put = 0;
  do {
    put = ::write(descriptor, from, std::min(count, kMost));
  } while (put < 0 && waited(descriptor, POLLOUT));
  return put;
}

bool seek(int descriptor, std::uint64_t position) { return ::lseek(descriptor, static_cast<off_t>(position), SEEK_SET) >= 0; }

bool seek_end(int descriptor) { return ::lseek(descriptor, 0, SEEK_END) >= 0; }

void expect_sequential([[maybe_unused]] int descriptor) {
#ifdef POSIX_FADV_SEQUENTIAL  // macOS has none
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
}

bool flush(int descriptor) { return ::fsync(descriptor) == 0 || errno == EINVAL; }

unsigned mode_of_new_files() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

bool set_mode(int descriptor, unsigned mode) { return ::fchmod(descriptor, static_cast<mode_t>(mode)) == 0; }

bool replace(const char* from, const std::string& to) { return ::rename(from, to.c_str()) == 0; }

void remove(const char* path) { ::unlink(path); }

std::optional<std::string> resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) {  // a link may lead to a file that does not exist yet
    std::string to = path;
    char target[PATH_MAX];
    for (int links = 0; links < 40; ++links) {
      const ssize_t size = ::readlink(to.c_str(), target, sizeof target);
      if (size < 0) return to;
      const std::string_view next(target, static_cast<std::size_t>(size));
      to = next.starts_with('/') ? std::string(next) : to.substr(0, to.rfind('/') + 1).append(next);
    }
    errno = ELOOP;
    return std::nullopt;
  }
  std::string result = real;
  std::free(real);
  return result;
}

void remove_on_signals(const std::atomic<const char*>& unfinished) {
  unfinished_file = &unfinished;
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action = {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action.sa_handler = remove_unfinished_and_die;
    action.sa_flags = SA_RESETHAND;
    ::sigaction(signal, &action, nullptr);
  }
}

bool is_terminal(int descriptor) { return ::isatty(descriptor) != 0; }

std::size_t terminal_columns(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

int character_width(char32_t character) {
  // The C library's table belongs to a locale of UTF-8. macOS has C.UTF-8 from version 14 on.
  static const bool done = std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr || std::setlocale(LC_CTYPE, "en_US.UTF-8") != nullptr;
  static_cast<void>(done);
  return ::wcwidth(static_cast<wchar_t>(character));
}

std::vector<std::string> arguments(int argc, const char* const* argv) { return {argv + 1, argv + argc}; }

std::string program() {
#ifdef __APPLE__
  char path[PATH_MAX];
  std::uint32_t size = sizeof path;
  return ::_NSGetExecutablePath(path, &size) == 0 ? resolved(path).value_or("") : "";
#else
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path);
  return std::string(path, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
#endif
}

namespace {

int without_heirs(int descriptor) {
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return descriptor;
}

}  // namespace

Connection listen_here(std::uint16_t& port) {
  const int listener = without_heirs(::socket(AF_INET, SOCK_STREAM, 0));
  if (listener < 0) return kNoConnection;
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // ignore leftovers of earlier connections
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(listener, SOMAXCONN) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    const int reason = errno;
    ::close(listener);
    errno = reason;
    return kNoConnection;
  }
  port = ntohs(address.sin_port);
  return listener;
}

Connection accept(Connection listener) {
  const int connection = without_heirs(::accept(static_cast<int>(listener), nullptr, nullptr));
  if (connection < 0) return kNoConnection;
  const timeval seconds = {5, 0};
  ::setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &seconds, sizeof seconds);
  ::setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &seconds, sizeof seconds);
#ifdef SO_NOSIGPIPE  // macOS
  const int on = 1;
  ::setsockopt(connection, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
  return connection;
}

std::ptrdiff_t receive(Connection connection, char* to, std::size_t count) {
  return ::recv(static_cast<int>(connection), to, count, 0);
}

bool send(Connection connection, const char* from, std::size_t count) {
#ifdef MSG_NOSIGNAL
  constexpr int kFlags = MSG_NOSIGNAL;
#else
  constexpr int kFlags = 0;
#endif
  while (count > 0) {
    const ssize_t put = ::send(static_cast<int>(connection), from, count, kFlags);
    if (put <= 0) return false;
    from += put;
    count -= static_cast<std::size_t>(put);
  }
  return true;
}

void hang_up(Connection connection) {
  // Unread bytes from the other side would make it lose the end of our reply.
  ::shutdown(static_cast<int>(connection), SHUT_WR);
  char rest[4096];
  for (int parts = 0; parts < 16 && ::recv(static_cast<int>(connection), rest, sizeof rest, 0) > 0; ++parts) continue;
  ::close(static_cast<int>(connection));
}

bool open_in_browser(const std::string& address) {
#ifdef __APPLE__
  const char* const opener = "open";
#else
  const char* const opener = "xdg-open";
  if (std::getenv("DISPLAY") == nullptr && std::getenv("WAYLAND_DISPLAY") == nullptr) return false;
#endif
  posix_spawn_file_actions_t silent;
  posix_spawnattr_t apart;  // Ctrl-C must not reach the browser
  if (::posix_spawn_file_actions_init(&silent) != 0) return false;
  if (::posix_spawnattr_init(&apart) != 0) return false;
  for (const int stream : {standard_input, standard_output, standard_error}) {
    ::posix_spawn_file_actions_addopen(&silent, stream, "/dev/null", O_RDWR, 0);
  }
  ::posix_spawnattr_setflags(&apart, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&apart, 0);
  const char* const arguments[] = {opener, address.c_str(), nullptr};
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, opener, &silent, &apart, const_cast<char* const*>(arguments), environ);
  ::posix_spawnattr_destroy(&apart);
  ::posix_spawn_file_actions_destroy(&silent);
  return failed == 0;
}

void keep_standard_error() {
  if (::fcntl(STDERR_FILENO, F_GETFD) != -1) return;
  const int nowhere = ::open("/dev/null", O_WRONLY);
  if (nowhere >= 0 && nowhere != STDERR_FILENO) {
    ::dup2(nowhere, STDERR_FILENO);
    ::close(nowhere);
  }
}

}  // namespace files::sys
#endif
