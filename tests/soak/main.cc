// Random rows through every operation with random parameters, and the properties that must hold for each of them.
//
// soak [ROWS [SEED [NAME]]]: ROWS for each operation and element type, of the operations whose name begins with NAME. Prints a
// line for each, and each violation with the shortest row that shows it; fails if there is a violation.

#include <csignal>

#include "tests/soak/soak.h"

int main(int argc, char** argv) {
  std::signal(SIGALRM, isentropic::Report::give_up);
  const std::size_t rows = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  isentropic::Soak soak(rows, seed, argc > 3 ? argv[3] : "");
  isentropic::soak_maps(soak);
  isentropic::soak_losses(soak);
  isentropic::soak_measures(soak);
  isentropic::soak_entropy_control(soak);
  isentropic::soak_sampling(soak);
  isentropic::soak_attention(soak);
  isentropic::soak_transport(soak);
  isentropic::soak_calibration(soak);
  return soak.clean() ? 0 : 1;
}
