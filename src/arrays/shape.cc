// A file of its own, because the library for GPUs compiles it too, and must not need Highway's library.
#include "isentropic/matrix_view.h"
#include "isentropic/strided_rows.h"
#include "src/check.h"

namespace isentropic::inline ISENTROPIC_ABI {

std::string shape_text(std::span<const std::ptrdiff_t> shape) {
  std::string text = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    text += std::to_string(shape[d]) + (d + 1 < shape.size() ? ", " : shape.size() == 1 ? "," : "");
  }
  return text + ")";
}

void check_holds(std::size_t size, std::size_t rows, std::size_t cols, std::size_t row_stride) {
  if (rows == 0 || cols == 0) return;
  if (cols <= size && (row_stride == 0 || rows - 1 <= (size - cols) / row_stride)) return;
  fail("MatrixView: numbers must hold {} x {} numbers with row_stride {}, got {}", rows, cols, row_stride, size);
}

}  // namespace isentropic::inline ISENTROPIC_ABI
