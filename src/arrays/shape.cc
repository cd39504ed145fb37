// Apart from strided_rows.cc, because the library for GPUs has it too, and nothing that needs Highway's own library.
#include "isentropic/strided_rows.h"

namespace isentropic::inline ISENTROPIC_ABI {

std::string shape_text(std::span<const std::ptrdiff_t> shape) {
  std::string text = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    text += std::to_string(shape[d]) + (d + 1 < shape.size() ? ", " : shape.size() == 1 ? "," : "");
  }
  return text + ")";
}

}  // namespace isentropic::inline ISENTROPIC_ABI
