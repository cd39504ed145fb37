// A line on the terminal that says how much of a file is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

class Progress {
 public:
  // position() bytes of `size`, if that is known, are read. Shows nothing unless `wanted` and standard error is a terminal.
  Progress(std::function<std::uint64_t()> position, std::optional<std::uint64_t> size, bool wanted);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // Shows the progress, but not in the first second and not too often.
  void update();

 private:
  using Clock = std::chrono::steady_clock;
  std::function<std::uint64_t()> position_;
  std::optional<std::uint64_t> size_;
  bool wanted_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};
