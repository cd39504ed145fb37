// Any bytes as what a server replies: only read, as no file is written so.
#include <cstdint>

#include "same_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    read_table(files::kFormats[6], {reinterpret_cast<const char*>(data), size}, {});
  } catch (const BadInput&) {
  }
  return 0;
}
