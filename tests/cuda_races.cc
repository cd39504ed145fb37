// The tests of the emulated kernels under the thread sanitizer, which reports two accesses that nothing orders. With
// ISENTROPIC_SENT_UNORDERED=1 the numbers that blocks send each other order nothing; see emulate.h.

#include <cstdlib>

#include <gtest/gtest.h>

#include "isentropic/threads.h"
#include "src/device/emulate.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  isentropic_emulate::sent_in_order = std::getenv("ISENTROPIC_SENT_UNORDERED") == nullptr;
  isentropic::set_num_threads(1);  // the sanitizer does not see how the library's own threads wait for each other
  return RUN_ALL_TESTS();
}
