// Reading and replacing files through the system's own calls, because their errors are what the user has to be told.
#include "file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace files {
namespace {

[[noreturn]] void system_failure(std::string_view name) { throw SystemFailure(std::string(name), errno); }

// Where a link leads, so that the rename replaces the file and not the link.
std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) {  // a link may lead to a file that is yet to be made
    std::string to = path;
    char target[PATH_MAX];
    for (int links = 0; links < 40; ++links) {
      const ssize_t size = ::readlink(to.c_str(), target, sizeof target);
      if (size < 0) return to;
      const std::string_view next(target, static_cast<std::size_t>(size));
      to = next.starts_with('/') ? std::string(next) : to.substr(0, to.rfind('/') + 1).append(next);
    }
    throw SystemFailure(path, ELOOP);
  }
  std::string result = real;
  std::free(real);
  return result;
}

// The name of the unfinished output, or nothing: a signal handler can read it at any time.
std::atomic<const char*> unfinished{nullptr};

extern "C" void remove_unfinished_and_die(int signal) {
  if (const char* path = unfinished) ::unlink(path);
  // The handler is gone (SA_RESETHAND), so the signal raised again ends the program when this returns.
  ::raise(signal);
}

}  // namespace

SystemFailure::SystemFailure(std::string name, int error)
    : BadInput(fmt::format("{}: {}", name, std::strerror(error))), file(std::move(name)), number(error) {}

bool is_standard(const std::string& path) { return path.empty() || path == "-"; }

std::string input_name(const std::string& path) { return is_standard(path) ? "standard input" : path; }

bool is_stream(const std::string& path) {
  struct stat status;
  return is_standard(path) || (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  close();
  number_ = other.number_;
  owned_ = std::exchange(other.owned_, false);
  return *this;
}

bool Descriptor::close() { return !std::exchange(owned_, false) || ::close(number_) == 0; }

Input::Input(const std::string& path) : name_(input_name(path)) {
  file_ = is_standard(path) ? Descriptor(STDIN_FILENO, false) : Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC), true);
  struct stat status;
  if (file_.number() < 0 || ::fstat(file_.number(), &status) != 0) system_failure(name_);
  if (S_ISDIR(status.st_mode)) throw SystemFailure(name_, EISDIR);
  // Files of /proc say 0; standard input may stand anywhere in its file.
  if (!is_standard(path) && S_ISREG(status.st_mode) && status.st_size > 0) size_ = status.st_size;
  ::posix_fadvise(file_.number(), 0, 0, POSIX_FADV_SEQUENTIAL);
}

Input::Input(std::string_view bytes, std::string name)
    : name_(std::move(name)), memory_(bytes), in_memory_(true), size_(bytes.size()) {}

std::size_t Input::read(char* to, std::size_t count) {
  if (in_memory_) {
    const std::size_t got = std::min<std::size_t>(count, memory_.size() - std::min<std::size_t>(memory_.size(), position_));
    if (got > 0) std::memcpy(to, memory_.data() + position_, got);
    position_ += got;
    return got;
  }
  std::size_t size = 0;
  while (size < count) {
    const ssize_t got = ::read(file_.number(), to + size, std::min<std::size_t>(count - size, 1 << 30));
    if (got == 0) break;
    if (got > 0) {
      size += static_cast<std::size_t>(got);
      position_ += static_cast<std::uint64_t>(got);
    } else if (errno != EINTR) {
      system_failure(name_);
    }
  }
  return size;
}

void Input::seek(std::uint64_t position) {
  if (!in_memory_ && ::lseek(file_.number(), static_cast<off_t>(position), SEEK_SET) < 0) system_failure(name_);
  position_ = position;
}

void Input::bring_to_memory() {
  if (size_) return;
  std::size_t size = 0;
  do {
    held_.resize(size + std::max<std::size_t>(size, 1 << 16));
    size += read(held_.data() + size, held_.size() - size);
  } while (size == held_.size());
  memory_ = {held_.data(), size};
  in_memory_ = true;
  size_ = size;
  position_ = 0;
}

Output::Output(const std::string& path) : name_(is_standard(path) ? "standard output" : path) {
  if (is_standard(path)) {
    file_ = Descriptor(STDOUT_FILENO, false);
    return;
  }
  struct stat status;
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) throw SystemFailure(path, EISDIR);
  if (is_stream(path)) {
    file_ = Descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC), true);
    if (file_.number() < 0) system_failure(path);
    return;
  }
  if (exists && ::access(path.c_str(), W_OK) != 0) system_failure(path);

  path_ = resolved(path);
  const std::size_t slash = path_.rfind('/');
  const std::size_t name_at = slash == path_.npos ? 0 : slash + 1;
  const std::string beside = path_.substr(0, name_at) + "." + path_.substr(name_at, 100) + ".XXXXXX";
  temporary_.assign(beside.c_str(), beside.c_str() + beside.size() + 1);
  // mkstemp chooses the name in place before it creates the file, so that the handler knows it in time.
  unfinished = temporary_.data();
  file_ = Descriptor(::mkstemp(temporary_.data()), true);
  if (file_.number() < 0) {
    unfinished = nullptr;
    temporary_.clear();
    system_failure(path);
  }
  // mkstemp lets only the owner read; the file gets what it had, or what a new one would get.
  if (exists) {
    mode_ = status.st_mode & 07777;
  } else {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    mode_ = 0666 & ~mask;
  }
}

Output::Output(std::string* memory) : memory_(memory), hold_(true) {}

Output::~Output() {
  if (temporary_.empty()) return;
  ::unlink(temporary_.data());
  unfinished = nullptr;
}

void Output::write_now(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.number(), bytes.data(), std::min<std::size_t>(bytes.size(), 1 << 30));
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      system_failure(name_);
    }
  }
}

void Output::write(std::string_view bytes) {
  position_ += bytes.size();
  if (hold_) {
    held_ += bytes;
  } else {
    write_now(bytes);
  }
}

void Output::allow_changes() {
  if (path_.empty()) hold_ = true;
}

void Output::change(std::uint64_t position, std::string_view bytes) {
  if (hold_) {
    held_.replace(position, bytes.size(), bytes);
    return;
  }
  if (::lseek(file_.number(), static_cast<off_t>(position), SEEK_SET) < 0) system_failure(name_);
  write_now(bytes);
  if (::lseek(file_.number(), 0, SEEK_END) < 0) system_failure(name_);
}

void Output::finish() {
  if (memory_ != nullptr) {
    *memory_ = std::move(held_);
    return;
  }
  write_now(held_);
  held_.clear();
  if (!temporary_.empty() && ::fchmod(file_.number(), mode_) != 0) system_failure(name_);
  // Without this a crash of the machine may leave the new name with none of its bytes.
  if (!temporary_.empty() && ::fsync(file_.number()) != 0 && errno != EINVAL) system_failure(name_);
  if (!file_.close()) system_failure(name_);
  if (temporary_.empty()) return;
  if (::rename(temporary_.data(), path_.c_str()) != 0) system_failure(name_);
  unfinished = nullptr;
  temporary_.clear();
}

void write_output(const std::string& path, std::string_view text) {
  Output output(path);
  output.write(text);
  output.finish();
}

void clean_up_on_signals() {
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action = {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action.sa_handler = remove_unfinished_and_die;
    action.sa_flags = SA_RESETHAND;
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace files
