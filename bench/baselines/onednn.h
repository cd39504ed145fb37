// oneDNN's softmax, the fastest of the field on a CPU.
#pragma once

#include <cstddef>

namespace baseline {

// Owns oneDNN's engine, stream and primitive for one shape, so that a call only costs the computation.
class OneDnnSoftmax {
 public:
  OneDnnSoftmax(std::size_t rows, std::size_t cols);
  ~OneDnnSoftmax();
  void forward(const float* x, float* p);

 private:
  struct State;
  State* state_;
};

}  // namespace baseline
