// Reads and writes the bytes of files. A file is written whole or not at all.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formatted.h"
#include "packed.h"

namespace files {

// A file, its contents or an argument is wrong.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An error of the system about a file.
struct SystemFailure : BadInput {
  SystemFailure(std::string name, int error);
  std::string file;
  int number;
};

template <class... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> message, Args&&... args) {
  throw BadInput(formatted(message, std::forward<Args>(args)...));
}

// Whether `path` is "-" or nothing: standard input, or standard output.
bool is_standard(const std::string& path);

// The name in messages of the file that is read from `path`.
std::string input_name(const std::string& path);

// Whether `path` is standard input or output, a device or a pipe, whose name does not say what it holds.
bool is_stream(const std::string& path);

// Whether two names lead to the same file, which may not exist yet.
bool same_file(const std::string& path, const std::string& other);

class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(int number, bool owned) : number_(number), owned_(owned) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.number_), owned_(std::exchange(other.owned_, false)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { close(); }

  int number() const { return number_; }

  // Closes the file. A full disk may only be reported here.
  bool close();

 private:
  int number_ = -1;
  bool owned_ = false;
};

// The bytes of a file from its first to its last, or of memory. Throws BadInput.
class Input {
 public:
  // The file at `path`, unpacked if its name ends in .gz or .zst; "-" or nothing is standard input.
  explicit Input(const std::string& path);

  // Does not copy `bytes`.
  Input(std::string_view bytes, std::string name);

  // Its name in messages.
  const std::string& name() const { return name_; }

  // The next bytes, as many as asked for unless the input ends. If `enough` of them are read and more would have to be waited
  // for, it returns these.
  std::size_t read(char* to, std::size_t count);
  std::size_t read(char* to, std::size_t count, std::size_t enough);

  // Whether the last read found the end.
  bool at_end() const { return at_end_; }

  // The number of bytes, if it is known beforehand.
  std::optional<std::uint64_t> size() const { return size_; }

  // The number of bytes read so far. Another thread may call it.
  std::uint64_t position() const { return position_; }

  // Moves to another position. A pipe is read into memory for this.
  void seek(std::uint64_t position);
  void bring_to_memory();  // unless it has a size

 private:
  std::string name_;
  Descriptor file_;
  std::vector<char> held_;
  std::string_view memory_;
  bool in_memory_ = false;
  bool at_end_ = false;
  std::optional<std::uint64_t> size_;
  std::atomic<std::uint64_t> position_{0};
  std::unique_ptr<Unpacker> unpacker_;

  std::size_t read_file(char* to, std::size_t count, std::size_t enough);
};

// A file that is written without a name, or under a temporary name where the system has no nameless files. It gets its name at
// the end, so the name leads either to the old file or to a complete one. Standard output, devices and pipes are written
// directly. A name that ends in .gz or .zst is packed. Throws BadInput.
class Output {
 public:
  explicit Output(const std::string& path);

  // Memory instead of a file.
  explicit Output(std::string* memory);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output();

  void write(std::string_view bytes);

  // Allows bytes to be changed after they were written. Bytes for a pipe then wait in memory.
  void allow_changes();
  void change(std::uint64_t position, std::string_view bytes);
  std::uint64_t position() const { return position_; }

  // Puts the finished file in its place.
  void finish();

 private:
  void write_now(std::string_view bytes);
  void write_file(std::string_view bytes);

  std::string name_;
  std::string path_;             // its place, or nothing if it is written directly
  std::vector<char> temporary_;  // its temporary name, ending with 0, until it has its own
  bool named_ = false;           // whether it has the temporary name already
  Descriptor file_;
  unsigned mode_ = 0;
  std::string* memory_ = nullptr;
  bool hold_ = false;
  std::string held_;
  std::uint64_t position_ = 0;
  std::unique_ptr<Packer> packer_;
};

// Writes a whole file at once.
void write_output(const std::string& path, std::string_view text);

// Makes SIGINT, SIGTERM, SIGHUP and SIGQUIT, unless they are ignored, remove the unfinished output before they end the program,
// and turns a limit on file sizes into a write error. For programs that own these signals and have one output.
void clean_up_on_signals();

}  // namespace files
