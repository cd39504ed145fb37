// Any bytes as .npz.
#include <cstdint>

#include "same_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  check_round_trip(files::kFormats[3], {reinterpret_cast<const char*>(data), size}, {});
  return 0;
}
