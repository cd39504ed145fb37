// Reads and replaces files through the system's own calls, because the user needs their errors.
#include "file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "system.h"

namespace files {
namespace {

[[noreturn]] void system_failure(std::string_view name) { throw SystemFailure(std::string(name), errno); }

// The file that a link leads to, so that the rename replaces the file and not the link.
std::string resolved(const std::string& path) {
  std::optional<std::string> real = sys::resolved(path);
  if (!real) system_failure(path);
  return *real;
}

// The name of the unfinished output, or nothing: a signal handler can read it at any time.
std::atomic<const char*> unfinished{nullptr};

// The end of a temporary name, and the number of its characters after the letters.
constexpr std::string_view kTemporary = ".isentropic-XXXXXX.tmp";
constexpr int kBehindLetters = 4;

}  // namespace

SystemFailure::SystemFailure(std::string name, int error)
    : BadInput(fmt::format("{}: {}", name, error == EISDIR ? "this is a folder, not a file" : std::strerror(error))),
      file(std::move(name)),
      number(error) {}

bool is_standard(const std::string& path) { return path.empty() || path == "-"; }

const Packing* packing_of(std::string_view path) {
  for (const Packing& packing : kPackings) {
    if (path.size() < packing.ending.size()) continue;
    const std::string_view end = path.substr(path.size() - packing.ending.size());
    const auto same = [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); };
    if (std::equal(packing.ending.begin(), packing.ending.end(), end.begin(), same)) return &packing;
  }
  return nullptr;
}

std::string input_name(const std::string& path) { return is_standard(path) ? "standard input" : path; }

bool is_stream(const std::string& path) {
  if (is_standard(path)) return true;
  const std::optional<sys::Status> status = sys::status_of(path);
  return status && !status->regular && !status->folder;
}

bool same_file(const std::string& path, const std::string& other) {
  // The real folder, because the file may not be there, and its name.
  const auto place = [](const std::string& name) {
    const std::string real = resolved(name);
    const std::size_t slash = real.find_last_of("/\\");
    return std::pair(resolved(slash == real.npos ? "." : real.substr(0, slash + 1)), real.substr(slash + 1));
  };
  return place(path) == place(other);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  close();
  number_ = other.number_;
  owned_ = std::exchange(other.owned_, false);
  return *this;
}

bool Descriptor::close() { return !std::exchange(owned_, false) || sys::close(number_); }

Input::Input(const std::string& path) : name_(input_name(path)) {
  file_ = is_standard(path) ? Descriptor(sys::standard_input, false) : Descriptor(sys::open_to_read(path), true);
  if (file_.number() < 0) system_failure(name_);
  const std::optional<sys::Status> status = sys::status_of(file_.number());
  if (!status) system_failure(name_);
  if (status->folder) throw SystemFailure(name_, EISDIR);
  // Files of /proc report size 0; standard input may be at any position in its file.
  if (!is_standard(path) && status->regular && status->size > 0) size_ = status->size;
  if (const Packing* packing = is_standard(path) ? nullptr : packing_of(path)) {
    unpacker_ = packing->unpacker([this](char* to, std::size_t count) { return read_file(to, count, count); }, name_);
    size_.reset();
  }
  sys::expect_sequential(file_.number());
}

Input::Input(std::string_view bytes, std::string name)
    : name_(std::move(name)), memory_(bytes), in_memory_(true), size_(bytes.size()) {}

std::size_t Input::read(char* to, std::size_t count) { return read(to, count, count); }

std::size_t Input::read(char* to, std::size_t count, std::size_t enough) {
  if (in_memory_) {
    const std::size_t got = std::min<std::size_t>(count, memory_.size() - std::min<std::size_t>(memory_.size(), position_));
    if (got > 0) std::memcpy(to, memory_.data() + position_, got);
    position_ += got;
    at_end_ = got < count;
    return got;
  }
  const std::size_t got = unpacker_ ? unpacker_->read(to, count) : read_file(to, count, size_ ? count : enough);
  position_ += got;
  if (unpacker_) at_end_ = got < count;
  return got;
}

std::size_t Input::read_file(char* to, std::size_t count, std::size_t enough) {
  std::size_t size = 0;
  while (size < count && (size < enough || !sys::would_wait(file_.number()))) {
    const std::ptrdiff_t got = sys::read(file_.number(), to + size, count - size);
    at_end_ = got == 0;
    if (at_end_) break;
    if (got > 0) {
      size += static_cast<std::size_t>(got);
    } else if (errno != EINTR) {
      system_failure(name_);
    }
  }
  return size;
}

void Input::seek(std::uint64_t position) {
  if (!in_memory_ && !sys::seek(file_.number(), position)) system_failure(name_);
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
    file_ = Descriptor(sys::standard_output, false);
    return;
  }
  if (const Packing* packing = packing_of(path)) {
    packer_ = packing->packer([this](std::string_view packed) { write_file(packed); });
  }
  const std::optional<sys::Status> status = sys::status_of(path);
  if (status && status->folder) throw SystemFailure(path, EISDIR);
  if (is_stream(path)) {
    file_ = Descriptor(sys::open_to_write(path), true);
    if (file_.number() < 0) system_failure(path);
    return;
  }
  if (status && !sys::may_write(path)) system_failure(path);

  path_ = resolved(path);
  const std::size_t slash = path_.rfind('/');
  const std::size_t name_at = slash == path_.npos ? 0 : slash + 1;
  const std::string beside = path_.substr(0, name_at) + path_.substr(name_at, 100) + std::string(kTemporary);
  temporary_.assign(beside.c_str(), beside.c_str() + beside.size() + 1);
  int number = sys::create_nameless(name_at == 0 ? "." : path_.substr(0, name_at));
  named_ = number < 0;
  if (named_) {
    // The name is chosen in place before the file exists, so that the signal handler knows it in time.
    unfinished = temporary_.data();
    number = sys::create_temporary(temporary_.data(), kBehindLetters);
  }
  if (number < 0) {
    unfinished = nullptr;
    temporary_.clear();
    system_failure(path);
  }
  file_ = Descriptor(number, true);
  // So far only the owner can read it. In the end it gets the mode of the old file, or that of a new one.
  mode_ = status ? status->mode : sys::mode_of_new_files();
}

Output::Output(std::string* memory) : memory_(memory), hold_(true) {}

Output::~Output() {
  if (temporary_.empty() || !named_) return;
  sys::remove(temporary_.data());
  unfinished = nullptr;
}

void Output::write_now(std::string_view bytes) {
  if (packer_) {
    packer_->write(bytes);
  } else {
    write_file(bytes);
  }
}

void Output::write_file(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::ptrdiff_t written = sys::write(file_.number(), bytes.data(), bytes.size());
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
  if (path_.empty() || packer_) hold_ = true;
}

void Output::change(std::uint64_t position, std::string_view bytes) {
  if (hold_) {
    held_.replace(position, bytes.size(), bytes);
    return;
  }
  if (!sys::seek(file_.number(), position)) system_failure(name_);
  write_now(bytes);
  if (!sys::seek_end(file_.number())) system_failure(name_);
}

void Output::finish() {
  if (memory_ != nullptr) {
    *memory_ = std::move(held_);
    return;
  }
  write_now(held_);
  held_.clear();
  if (packer_) packer_->finish();
  if (!temporary_.empty() && !sys::set_mode(file_.number(), mode_)) system_failure(name_);
  // Without this, a crash of the machine may leave an empty file under the new name.
  if (!temporary_.empty() && !sys::flush(file_.number())) system_failure(name_);
  if (!temporary_.empty() && !named_) {
    if (sys::name_it(file_.number(), path_.c_str())) {
      temporary_.clear();
    } else if (errno != EEXIST) {
      system_failure(name_);
    } else {
      // Only a file with a name can replace another.
      named_ = true;
      unfinished = temporary_.data();
      if (!sys::name_it_temporarily(file_.number(), temporary_.data(), kBehindLetters)) system_failure(name_);
    }
  }
  if (!file_.close()) system_failure(name_);
  if (temporary_.empty()) return;
  if (!sys::replace(temporary_.data(), path_)) system_failure(name_);
  unfinished = nullptr;
  temporary_.clear();
}

void write_output(const std::string& path, std::string_view text) {
  Output output(path);
  output.write(text);
  output.finish();
}

void clean_up_on_signals() { sys::remove_on_signals(unfinished); }

}  // namespace files
