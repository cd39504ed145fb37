#include "isentropic/strided_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "src/arrays/apart.h"
#include "src/check.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

// Copies rows of an array, whose numbers are col_stride bytes apart, to or from a block of contiguous rows. If rows are columns
// of memory, copying a few rows at a time uses whole cache lines.
template <bool kGather, class Number>
void copy_numbers(std::span<const std::ptrdiff_t> offset, char* data, std::size_t cols, std::ptrdiff_t col_stride,
                  const RowBlock& block) {
  constexpr std::size_t kSideBySide = 16;
  auto* const rows = static_cast<Number*>(block.data);
  const auto copy = [](char* outside, Number* inside, std::size_t n) {
    if constexpr (kGather) {
      std::memcpy(inside, outside, n * sizeof(Number));
    } else {
      std::memcpy(outside, inside, n * sizeof(Number));
    }
  };
  if (cols == 0) return;
  if (cols == 1 || col_stride == static_cast<std::ptrdiff_t>(sizeof(Number))) {
    for (std::size_t r = 0; r < offset.size(); ++r) copy(data + offset[r], rows + r * block.row_stride, cols);
    return;
  }
  for (std::size_t begin = 0; begin < offset.size(); begin += kSideBySide) {
    const std::size_t end = std::min(offset.size(), begin + kSideBySide);
    for (std::size_t c = 0; c < cols; ++c) {
      for (std::size_t r = begin; r < end; ++r) {
        copy(data + offset[r] + static_cast<std::ptrdiff_t>(c) * col_stride, rows + r * block.row_stride + c, 1);
      }
    }
  }
}

template <bool kGather>
void copy_rows(std::size_t item_size, std::span<const std::ptrdiff_t> offset, char* data, std::size_t cols,
               std::ptrdiff_t col_stride, const RowBlock& block) {
  switch (item_size) {
    case 2:
      return copy_numbers<kGather, std::uint16_t>(offset, data, cols, col_stride, block);
    case 4:
      return copy_numbers<kGather, std::uint32_t>(offset, data, cols, col_stride, block);
    default:
      return copy_numbers<kGather, std::uint64_t>(offset, data, cols, col_stride, block);
  }
}

bool is_empty(const StridedArray& a) {
  return std::ranges::any_of(a.shape, [](std::ptrdiff_t size) { return size == 0; });
}

// The addresses of the first byte of an array and of the byte after its last.
std::pair<std::uintptr_t, std::uintptr_t> extent(const StridedArray& a) {
  const auto data = reinterpret_cast<std::uintptr_t>(a.data);
  std::ptrdiff_t before = 0, behind = static_cast<std::ptrdiff_t>(a.item_size);
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    const std::ptrdiff_t reach = (a.shape[d] - 1) * a.strides[d] * a.unit;
    (reach < 0 ? before : behind) += reach;
  }
  return {data + static_cast<std::uintptr_t>(before), data + static_cast<std::uintptr_t>(behind)};
}

// An axis: bytes from one index to the next, and the number of indices.
struct Step {
  std::size_t bytes, size;

  auto operator<=>(const Step&) const = default;
};

// Axes with more than one index, the shortest step first.
class Steps {
 public:
  explicit Steps(const StridedArray& a) {
    for (std::size_t d = 0; d < a.shape.size(); ++d) {
      if (a.shape[d] <= 1) continue;
      all_[count_++] = {static_cast<std::size_t>(std::abs(a.strides[d] * a.unit)), static_cast<std::size_t>(a.shape[d])};
    }
    std::sort(begin(), end());
  }

  Step* begin() { return all_.data(); }
  Step* end() { return all_.data() + count_; }
  bool operator==(Steps& other) { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  std::array<Step, kMaxAxes> all_;  // the first of them are set
  std::size_t count_ = 0;
};

// Whether two arrays may share a number. Arrays with equal strides do not if one lies in the gaps of the other.
bool may_share(const StridedArray& a, const StridedArray& b) {
  if (is_empty(a) || is_empty(b)) return false;
  const auto [begin_a, end_a] = extent(a);
  const auto [begin_b, end_b] = extent(b);
  if (end_a <= begin_b || end_b <= begin_a) return false;
  Steps of_a(a), of_b(b);
  if (!(of_a == of_b) || a.item_size != b.item_size) return true;
  // Numbers without gaps form runs. If the longer steps are multiples of the shortest one, so is the distance from any run to
  // the first run of its array.
  std::size_t run = a.item_size;
  auto beyond = of_a.begin();
  for (; beyond != of_a.end() && beyond->bytes == run; ++beyond) run *= beyond->size;
  if (beyond == of_a.end()) return true;
  const std::size_t step = beyond->bytes;
  if (step < run || std::any_of(beyond, of_a.end(), [&](const auto& axis) { return axis.bytes % step != 0; })) return true;
  const std::size_t offset = begin_a <= begin_b ? (begin_b - begin_a) % step : (step - (begin_a - begin_b) % step) % step;
  return offset < run || offset + run > step;
}

bool same_place(const StridedArray& a, const StridedArray& b) {
  if (a.data != b.data || a.item_size != b.item_size || !std::ranges::equal(a.shape, b.shape)) return false;
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    if (a.shape[d] > 1 && a.strides[d] * a.unit != b.strides[d] * b.unit) return false;
  }
  return true;
}

}  // namespace

bool has_room(const StridedArray& a) {
  // The step of each axis is beyond the reach of all axes with shorter steps.
  std::size_t reached = a.item_size;
  for (const auto& [bytes, size] : Steps(a)) {
    if (bytes < reached) return false;
    reached += bytes * (size - 1);
  }
  return true;
}

std::size_t to_axis(std::string_view operation, std::ptrdiff_t axis, std::size_t axes, std::string_view name) {
  const auto count = static_cast<std::ptrdiff_t>(axes);
  if (count == 0) fail("{}: {} must have at least one axis, got a single number", operation, name);
  if (axis < -count || axis >= count) fail("{}: axis must be in [{}, {}], got {}", operation, -count, count - 1, axis);
  return static_cast<std::size_t>(axis < 0 ? axis + count : axis);
}

StridedRows::StridedRows(std::string_view operation, std::span<const RowArgument> arguments, std::size_t axis, RowOrder order)
    : operation_(operation), arguments_(arguments), axis_(axis), order_(order) {
  const StridedArray& x = arguments[0].array;
  for (std::size_t d = 0; d < x.shape.size(); ++d) {
    if (d == axis) continue;
    rows_ *= static_cast<std::size_t>(x.shape[d]);
    if (x.shape[d] != 1) batch_[batch_axes_++].size = static_cast<std::size_t>(x.shape[d]);
  }
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const auto& [name, a, output, one_per_row, one_for_all, absent] = arguments[k];
    cols_[k] = one_per_row ? 1 : static_cast<std::size_t>(x.shape[axis]);
    col_stride_[k] = static_cast<std::ptrdiff_t>(a.item_size);
    single_[k] = one_for_all && !absent;
    if (absent) {
      for (std::size_t b = 0; b < batch_axes_; ++b) batch_[b].stride[k] = 0;
      continue;
    }
    const bool removed = one_per_row && a.shape.size() + 1 == x.shape.size();
    bool fits = a.shape.size() + (removed ? 1 : 0) == x.shape.size();
    for (std::size_t d = 0, own = 0, b = 0; fits && d < x.shape.size(); ++d) {
      if (d == axis && removed) continue;
      fits = a.shape[own] == (d == axis && one_per_row ? 1 : x.shape[d]);
      if (d != axis && x.shape[d] != 1) {
        batch_[b].stride[k] = a.strides[own] * a.unit;
        single_[k] = single_[k] && batch_[b].stride[k] == 0;
        ++b;
      }
      ++own;
    }
    if (!fits) {
      fail("{}: {} must have the shape of {}{}, where {} is {}, got {}", operation, name, arguments[0].name,
           one_per_row ? fmt::format(" without axis {}", axis) : "", arguments[0].name, shape_text(x.shape),
           shape_text(a.shape));
    }
    if (!removed) col_stride_[k] = a.strides[axis] * a.unit;
  }

  // If the order of the rows is free, the slowest axis of the first array comes first; then axes can be merged in any layout.
  const auto end = batch_.begin() + static_cast<std::ptrdiff_t>(batch_axes_);
  if (order == RowOrder::free) {
    // By insertion: std::stable_sort allocates.
    const auto is_slower = [](const Axis& a, const Axis& b) { return std::abs(a.stride[0]) > std::abs(b.stride[0]); };
    for (auto next = batch_.begin(); next != end; ++next) {
      std::rotate(std::upper_bound(batch_.begin(), next, *next, is_slower), next, next + 1);
    }
  }
  std::size_t joined = 0;
  for (auto next = batch_.begin(); next != end; ++next) {
    bool continues = joined > 0;
    for (std::size_t k = 0; continues && k < arguments.size(); ++k) {
      continues = batch_[joined - 1].stride[k] == next->stride[k] * static_cast<std::ptrdiff_t>(next->size);
    }
    if (continues) {
      batch_[joined - 1] = {batch_[joined - 1].size * next->size, next->stride};
    } else {
      batch_[joined++] = *next;
    }
  }
  batch_axes_ = joined;
  for (std::size_t k = 0; k < arguments.size(); ++k) in_place_[k] = in_place(k);
}

bool StridedRows::in_place(std::size_t k) const {
  if (arguments_[k].absent || rows_ == 0) return true;
  const StridedArray& a = arguments_[k].array;
  const auto size = static_cast<std::ptrdiff_t>(a.item_size);
  if (reinterpret_cast<std::uintptr_t>(a.data) % a.item_size != 0) return false;
  if (cols_[k] > 1 && col_stride_[k] != size) return false;
  if (rows_ == 1 || single_[k]) return true;
  if (batch_axes_ != 1) return false;
  const std::ptrdiff_t stride = batch_[0].stride[k];
  if (arguments_[k].one_per_row) return stride == size;
  return stride % size == 0 && stride >= static_cast<std::ptrdiff_t>(cols_[k]) * size;
}

void check_apart(std::string_view operation, std::span<const Placed> arrays, bool output_may_be_input) {
  for (const Placed& out : arrays) {
    if (!out.output || is_empty(*out.array)) continue;
    if (!has_room(*out.array))
      fail("{}: {} must have a separate place for each of its numbers, got strides that overlap", operation, out.name);
    for (const Placed& other : arrays) {
      if (&other == &out || !may_share(*other.array, *out.array)) continue;
      if (!output_may_be_input || other.output)
        fail("{}: {} must share no memory with {}, got arrays that overlap", operation, out.name, other.name);
      if (same_place(*other.array, *out.array)) continue;
      fail("{}: {} must be {} itself or share no memory with it, got arrays that overlap in part", operation, out.name,
           other.name);
    }
  }
}

void StridedRows::check_apart(bool output_may_be_input) const {
  std::array<Placed, kMaxArguments> placed;
  std::size_t count = 0;
  for (const RowArgument& one : arguments_) {
    if (!one.absent) placed[count++] = {one.name, &one.array, one.output};
  }
  isentropic::check_apart(operation_, std::span(placed).first(count), output_may_be_input);
}

void StridedRows::visit(Visitor visitor, const void* context) const {
  constexpr std::size_t kBlock = 1 << 17;  // numbers: enough for several threads, few enough for the cache
  const bool at_once = std::ranges::all_of(in_place_.begin(), in_place_.begin() + arguments_.size(), std::identity());
  const std::size_t of_block =
      at_once ? rows_ : std::clamp<std::size_t>(kBlock / (cols_[0] + 16), 1, std::max<std::size_t>(rows_, 1));
  if (rows_ <= 1 || (order_ == RowOrder::by_index && of_block == rows_)) return visit_blocks(visitor, context, of_block);
  try {
    visit_blocks(visitor, context, of_block);
  } catch (const std::invalid_argument&) {
    // The error must name the row's index among all rows, and the first bad row.
    const StridedRows all(operation_, arguments_, axis_, RowOrder::by_index);
    all.visit_blocks(visitor, context, rows_);
  }
}

void StridedRows::visit_blocks(Visitor visitor, const void* context, std::size_t rows_of_block) const {
  const std::size_t count = arguments_.size();
  std::array<RowBlock, kMaxArguments> blocks;
  bool at_once = true;
  for (std::size_t k = 0; k < count; ++k) {
    if (arguments_[k].absent) continue;
    const std::size_t rows = single_[k] ? std::min<std::size_t>(rows_, 1) : rows_;
    const bool has_stride = rows > 1 && in_place_[k];
    blocks[k] = {arguments_[k].array.data, rows, cols_[k],
                 has_stride ? static_cast<std::size_t>(batch_[0].stride[k]) / arguments_[k].array.item_size : cols_[k]};
    at_once &= in_place_[k];
  }
  if (at_once) return visitor(context, blocks.data(), 0);

  std::size_t room = 0;
  for (std::size_t k = 0; k < count; ++k) {
    if (in_place_[k]) continue;
    // Not a multiple of a large power of two: neighbouring rows would compete for the same cache sets.
    const std::size_t stride = arguments_[k].one_per_row ? 1 : cols_[k] + 16;
    blocks[k] = {nullptr, single_[k] ? 1 : rows_of_block, cols_[k], stride};
    room += Arena::room<char>(blocks[k].rows * stride * arguments_[k].array.item_size) +
            Arena::room<std::ptrdiff_t>(blocks[k].rows);
  }
  const CallMemory<StridedRows> of_call(room);
  Arena memory = of_call.arena();
  std::array<std::span<std::ptrdiff_t>, kMaxArguments> offsets;
  for (std::size_t k = 0; k < count; ++k) {
    if (in_place_[k]) continue;
    const std::size_t rows = blocks[k].rows;
    blocks[k].data = memory.take<char>(rows * blocks[k].row_stride * arguments_[k].array.item_size);
    offsets[k] = {memory.take<std::ptrdiff_t>(rows), rows};
    if (single_[k]) {
      offsets[k][0] = 0;
      copy_rows<true>(arguments_[k].array.item_size, offsets[k], arguments_[k].array.data, cols_[k], col_stride_[k], blocks[k]);
    }
  }
  std::array<std::size_t, kMaxAxes> index{};
  std::array<std::ptrdiff_t, kMaxArguments> position{};
  for (std::size_t begin = 0; begin < rows_; begin += rows_of_block) {
    const std::size_t rows = std::min(rows_of_block, rows_ - begin);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t k = 0; k < count; ++k) {
        if (!in_place_[k] && !single_[k]) offsets[k][r] = position[k];
      }
      for (std::size_t d = batch_axes_; d-- > 0;) {
        const bool wraps = ++index[d] == batch_[d].size;
        const auto moves = wraps ? 1 - static_cast<std::ptrdiff_t>(batch_[d].size) : 1;
        for (std::size_t k = 0; k < count; ++k) position[k] += moves * batch_[d].stride[k];
        if (!wraps) break;
        index[d] = 0;
      }
    }
    std::array<RowBlock, kMaxArguments> part = blocks;
    const auto bring = [&]<bool kGather>(std::size_t k, std::bool_constant<kGather>) {
      copy_rows<kGather>(arguments_[k].array.item_size, offsets[k].first(rows), arguments_[k].array.data, cols_[k],
                         col_stride_[k], part[k]);
    };
    for (std::size_t k = 0; k < count; ++k) {
      if (arguments_[k].absent || single_[k]) continue;
      part[k].rows = rows;
      if (in_place_[k]) {
        part[k].data = static_cast<char*>(blocks[k].data) + begin * blocks[k].row_stride * arguments_[k].array.item_size;
      } else if (!arguments_[k].output) {
        bring(k, std::true_type());
      }
    }
    visitor(context, part.data(), begin);
    for (std::size_t k = 0; k < count; ++k) {
      if (!in_place_[k] && arguments_[k].output) bring(k, std::false_type());
    }
  }
}

}  // namespace isentropic::inline ISENTROPIC_ABI
