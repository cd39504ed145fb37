// Reading and replacing files through the system's own calls, because their errors are what the user has to be told.
#include "file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace {

[[noreturn]] void system_failure(std::string_view name) { bad_input("{}: {}", name, std::strerror(errno)); }

class Descriptor {
 public:
  Descriptor(int number, bool owned) : number_(number), owned_(owned) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  int number() const { return number_; }

  // A full disk may be reported as late as here.
  bool close() { return !std::exchange(owned_, false) || ::close(number_) == 0; }

 private:
  int number_;
  bool owned_;
};

Sink sink_to(const Descriptor& file, std::string_view name) {
  return [&file, name](std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file.number(), bytes.data(), bytes.size());
      if (written >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno != EINTR) {
        system_failure(name);
      }
    }
  };
}

// Where a link leads, so that the rename replaces the file and not the link.
std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string result = real;
  std::free(real);
  return result;
}

// The name of the unfinished output, or nothing. Static, so that a signal handler can read it at any time.
char unfinished[PATH_MAX];

extern "C" void remove_unfinished_and_die(int signal) {
  ::unlink(unfinished);
  // The handler is gone (SA_RESETHAND), so the signal raised again ends the program when this returns.
  ::raise(signal);
}

// A signal that is ignored, as SIGHUP is under nohup, stays so.
void remove_unfinished_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action.sa_handler = remove_unfinished_and_die;
    action.sa_flags = SA_RESETHAND;
    ::sigaction(signal, &action, nullptr);
  }
}

// Creates a file beside its final place and removes it, signals or not, unless it was moved there. One at a time.
class Temporary {
 public:
  explicit Temporary(const std::string& final_path) : final_path_(final_path) {
    const std::size_t slash = final_path.rfind('/');
    const std::size_t name_at = slash == final_path.npos ? 0 : slash + 1;
    const std::string path = final_path.substr(0, name_at) + "." + final_path.substr(name_at, 100) + ".XXXXXX";
    if (path.size() >= sizeof(unfinished)) {
      errno = ENAMETOOLONG;
      return;
    }
    // mkstemp chooses the name in place before it creates the file, so that the handler knows it in time.
    unfinished[path.copy(unfinished, path.size())] = '\0';
    remove_unfinished_on_signals();
    number_ = ::mkstemp(unfinished);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (number_ >= 0) ::unlink(unfinished);
    unfinished[0] = '\0';
  }

  int number() const { return number_; }

  bool move_to_final_path() {
    if (::rename(unfinished, final_path_.c_str()) != 0) return false;
    unfinished[0] = '\0';
    return true;
  }

 private:
  std::string final_path_;
  int number_ = -1;
};

}  // namespace

bool is_standard(const std::string& path) { return path.empty() || path == "-"; }

std::string input_name(const std::string& path) { return is_standard(path) ? "standard input" : path; }

bool is_stream(const std::string& path) {
  struct stat status;
  return is_standard(path) || (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode));
}

std::string read_bytes(const std::string& path) {
  const std::string name = input_name(path);
  const bool standard = is_standard(path);
  Descriptor file(standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC), !standard);
  if (file.number() < 0) system_failure(name);
  struct stat status;
  if (::fstat(file.number(), &status) != 0) system_failure(name);
  if (S_ISDIR(status.st_mode)) bad_input("{}: {}", name, std::strerror(EISDIR));

  // The size is a first guess only: a pipe has none, and a file may grow.
  std::string bytes(S_ISREG(status.st_mode) ? static_cast<std::size_t>(status.st_size) + 1 : 1 << 16, '\0');
  std::size_t size = 0;
  while (true) {
    if (size == bytes.size()) bytes.resize(2 * size);
    const ssize_t got = ::read(file.number(), bytes.data() + size, bytes.size() - size);
    if (got == 0) break;
    if (got > 0) {
      size += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      system_failure(name);
    }
  }
  bytes.resize(size);
  return bytes;
}

void write_output(const std::string& path, const std::function<void(const Sink&)>& write) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on the size of files is an error of write like any other
  if (is_standard(path)) {
    const Descriptor file(STDOUT_FILENO, false);
    return write(sink_to(file, "standard output"));
  }
  struct stat status;
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) bad_input("{}: {}", path, std::strerror(EISDIR));
  if (is_stream(path)) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC), true);
    if (file.number() < 0) system_failure(path);
    write(sink_to(file, path));
    if (!file.close()) system_failure(path);
    return;
  }
  if (exists && ::access(path.c_str(), W_OK) != 0) system_failure(path);

  Temporary temporary(resolved(path));
  if (temporary.number() < 0) system_failure(path);
  Descriptor file(temporary.number(), true);
  write(sink_to(file, path));
  // mkstemp lets only the owner read; the file gets what it had, or what a new one would get.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(file.number(), exists ? status.st_mode & 07777 : 0666 & ~mask) != 0) system_failure(path);
  if (!file.close() || !temporary.move_to_final_path()) system_failure(path);
}
