// A line on the terminal that says how much of a file is done.
#pragma once

#include <chrono>

#include "files/file.h"

class Progress {
 public:
  // Shows nothing unless `wanted` and standard error is a terminal.
  Progress(const files::Input& input, bool wanted);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  // Shows how far it is now, from the end of the first second on and not too often.
  void update();

 private:
  using Clock = std::chrono::steady_clock;
  const files::Input& input_;
  bool wanted_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};
