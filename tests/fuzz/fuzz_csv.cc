// Any bytes as .csv and .tsv, with and without a label column that the caller names.
#include <cstdint>

#include "same_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const Format& format : {files::kFormats[0], files::kFormats[1]}) {
    for (const char* label : {"", "1", "2"}) check_round_trip(format, bytes, {.label = label});
  }
  return 0;
}
