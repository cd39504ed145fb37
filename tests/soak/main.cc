// Random rows through every operation with random parameters, and the properties that must hold for each of them.
//
// soak [ROWS [SEED [NAME]]]: ROWS for each operation and element type, of the operations whose name begins with NAME. Prints a
// line for each, and each violation with the shortest row that shows it; fails if there is a violation.

#include <csignal>

#include "tests/soak/soak.h"

int main(int argc, char** argv) {
  std::signal(SIGALRM, entropic::Report::give_up);
  const std::size_t rows = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  entropic::Soak soak(rows, seed, argc > 3 ? argv[3] : "");
  entropic::soak_maps(soak);
  entropic::soak_losses(soak);
  entropic::soak_measures(soak);
  entropic::soak_entropy_control(soak);
  entropic::soak_sampling(soak);
  entropic::soak_attention(soak);
  entropic::soak_transport(soak);
  entropic::soak_calibration(soak);
  return soak.clean() ? 0 : 1;
}
