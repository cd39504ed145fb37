// Any bytes as a server's reply; they are only read, because this format is never written.
#include <cstdint>

#include "same_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    read_table(files::kFormats[6], {reinterpret_cast<const char*>(data), size}, {});
  } catch (const BadInput&) {
  }
  return 0;
}
