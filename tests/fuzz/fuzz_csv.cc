// Any bytes as .csv and .tsv, with and without a label column that the caller names.
#include <cstdint>

#include "same_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const Format& format : {Format{"csv", read_csv, write_csv}, Format{"tsv", read_tsv, write_tsv}}) {
    for (const std::size_t labels : {0, 1, 2}) check_round_trip(format, bytes, {.labels = labels});
  }
  return 0;
}
