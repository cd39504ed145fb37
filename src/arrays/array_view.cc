#include "isentropic/array_view.h"

#include "isentropic/strided_rows.h"
#include "src/arrays/apart.h"
#include "src/check.h"
#include "src/scratch.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

template <class T>
RowArgument argument(std::string_view operation, std::string_view name, const ArrayView<T>& a, bool output) {
  if (a.shape.size() != a.strides.size()) {
    fail("{}: {} must have as many strides as axes, {}, got {}", operation, name, a.shape.size(), a.strides.size());
  }
  if (a.shape.size() > kMaxAxes) fail("{}: {} must have at most {} axes, got {}", operation, name, kMaxAxes, a.shape.size());
  bool empty = false;
  for (const std::ptrdiff_t size : a.shape) {
    if (size < 0) fail("{}: {} must have sizes of at least 0, got {}", operation, name, size);
    empty |= size == 0;
  }
  if (a.data == nullptr && !empty) {
    fail("{}: {} must point to numbers of shape {}, got a null pointer", operation, name, shape_text(a.shape));
  }
  const StridedArray array = {reinterpret_cast<char*>(const_cast<std::remove_const_t<T>*>(a.data)), a.shape, a.strides,
                              sizeof(T), sizeof(T)};
  return {.name = name, .array = array, .output = output};
}

RowOrder order_of(std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  return per_row.empty() && gradients.empty() ? RowOrder::free : RowOrder::by_index;
}

// An array with one number for each row.
template <class T>
RowArgument one_per_row(std::string_view operation, std::string_view name, const ArrayView<T>& a, bool output) {
  RowArgument one = argument(operation, name, a, output);
  one.one_per_row = true;
  return one;
}

// A gradient, absent if it has no data.
template <class T>
RowArgument gradient(std::string_view operation, std::string_view name, const ArrayView<T>& a) {
  if (a.data == nullptr) return {.name = name, .array = {}, .output = true, .absent = true};
  return argument(operation, name, a, true);
}

void check_gradients(std::string_view operation, const StridedRows& rows, std::span<const ParamGradient> gradients) {
  for (const ParamGradient& asked : gradients) check_size(operation, asked.parameter, asked.values.size(), rows.count());
}

// The numbers of `count` rows from `first` on, in `memory`.
template <class Numbers>
std::span<const Numbers> of_rows(std::span<const Numbers> all, std::size_t first, std::size_t count, Arena& memory) {
  Numbers* const parts = memory.take<Numbers>(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) parts[i] = {all[i].parameter, all[i].values.subspan(first, count)};
  return {parts, all.size()};
}

// Keeps the memory of a call: the parameters of the rows of a block.
class ArrayCall;

// Calls run(blocks, their values of parameters, their gradients) until all rows are done.
template <class Run>
void for_blocks(const StridedRows& rows, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients,
                const Run& run) {
  const CallMemory<ArrayCall> memory(Arena::room<PerRow>(per_row.size()) + Arena::room<ParamGradient>(gradients.size()));
  rows.for_blocks([&](const RowBlock* blocks, std::size_t first) {
    Arena of_block = memory.arena();
    const auto values = of_rows(per_row, first, blocks[0].rows, of_block);
    run(blocks, values, of_rows(gradients, first, blocks[0].rows, of_block));
  });
}

// The same for arrays whose outputs are not inputs.
template <class Run>
void on_rows(std::string_view operation, std::span<const RowArgument> arguments, std::ptrdiff_t axis,
             std::span<const PerRow> per_row, std::span<const ParamGradient> gradients, const Run& run) {
  const std::size_t axes = arguments[0].array.shape.size();
  const StridedRows rows(operation, arguments, to_axis(operation, axis, axes, arguments[0].name), order_of(per_row, gradients));
  rows.check_apart(false);
  check_gradients(operation, rows, gradients);
  for_blocks(rows, per_row, gradients, run);
}

// Checks that an output shares no memory with parameters that have a value for each row.
void check_values_apart(std::string_view operation, const RowArgument& out, std::span<const PerRow> per_row) {
  for (const PerRow& one : per_row) {
    const std::ptrdiff_t size = std::ssize(one.values), step = sizeof(double);
    char* const data = reinterpret_cast<char*>(const_cast<double*>(one.values.data()));
    const StridedArray values = {data, {&size, 1}, {&step, 1}, sizeof(double)};
    const Placed both[] = {{out.name, &out.array, true}, {one.parameter, &values, false}};
    check_apart(operation, both, false);
  }
}

// Checks the parameters of all rows before any is written.
template <class T>
void check_params_of(const Map& map, const StridedRows& rows, std::span<const PerRow> per_row) {
  apply<T>(map, MatrixView<const T>(nullptr, rows.count(), 0), MatrixView<T>(nullptr, rows.count(), 0), per_row);
}

}  // namespace

template <class T>
void apply(const Map& map, const ArrayView<const std::type_identity_t<T>>& x, const ArrayView<T>& p, std::ptrdiff_t axis,
           std::span<const PerRow> per_row) {
  const std::string_view name = description_of(map).name;
  const RowArgument arguments[] = {argument(name, "x", x, false), argument(name, "p", p, true)};
  const StridedRows rows(name, arguments, to_axis(name, axis, x.shape.size()), order_of(per_row, {}));
  rows.check_apart();
  check_values_apart(name, arguments[1], per_row);
  check_params_of<T>(map, rows, per_row);
  for_blocks(rows, per_row, {}, [&](const RowBlock* blocks, auto values, auto /*gradients*/) {
    apply<T>(map, blocks[0].matrix<const T>(), blocks[1].matrix<T>(), values);
  });
}

template <class T>
void apply_vjp(const Map& map, const ArrayView<const std::type_identity_t<T>>& x,
               const ArrayView<const std::type_identity_t<T>>& p, const ArrayView<const std::type_identity_t<T>>& g,
               const ArrayView<T>& dx, std::ptrdiff_t axis, std::span<const PerRow> per_row,
               std::span<const ParamGradient> gradients) {
  fmt::memory_buffer text;
  fmt::format_to(std::back_inserter(text), "{}_vjp", description_of(map).name);
  const std::string_view name(text.data(), text.size());
  const RowArgument arguments[] = {argument(name, "x", x, false), argument(name, "p", p, false), argument(name, "g", g, false),
                                   argument(name, "dx", dx, true)};
  const StridedRows rows(name, arguments, to_axis(name, axis, x.shape.size()), order_of(per_row, gradients));
  rows.check_apart();
  check_values_apart(name, arguments[3], per_row);
  check_gradients(name, rows, gradients);
  check_params_of<T>(map, rows, per_row);
  for_blocks(rows, per_row, gradients, [&](const RowBlock* blocks, auto values, auto asked) {
    apply_vjp<T>(map, blocks[0].matrix<const T>(), blocks[1].matrix<const T>(), blocks[2].matrix<const T>(),
                 blocks[3].matrix<T>(), values, asked);
  });
}

template <class T>
void measure(const Measure& op, const ArrayView<const T>& p, const ArrayView<double>& value, std::ptrdiff_t axis,
             const ArrayView<std::type_identity_t<T>>& dp, std::span<const PerRow> per_row,
             std::span<const ParamGradient> gradients) {
  const std::string_view name = description_of(op).name;
  const RowArgument arguments[] = {argument(name, "p", p, false), one_per_row(name, "value", value, true),
                                   gradient(name, "dp", dp)};
  on_rows(name, arguments, axis, per_row, gradients, [&](const RowBlock* blocks, auto values, auto asked) {
    measure<T>(op, blocks[0].matrix<const T>(), blocks[1].numbers<double>(), blocks[2].matrix<T>(), values, asked);
  });
}

template <class T>
void measure(const Divergence& op, const ArrayView<const T>& p, const ArrayView<const std::type_identity_t<T>>& q,
             const ArrayView<double>& value, std::ptrdiff_t axis, const ArrayView<std::type_identity_t<T>>& dp,
             const ArrayView<std::type_identity_t<T>>& dq, std::span<const PerRow> per_row,
             std::span<const ParamGradient> gradients) {
  const std::string_view name = description_of(op).name;
  RowArgument second = argument(name, "q", q, false);
  second.one_for_all = true;
  const RowArgument arguments[] = {argument(name, "p", p, false), second, one_per_row(name, "value", value, true),
                                   gradient(name, "dp", dp), gradient(name, "dq", dq)};
  on_rows(name, arguments, axis, per_row, gradients, [&](const RowBlock* blocks, auto values, auto asked) {
    measure<T>(op, blocks[0].matrix<const T>(), blocks[1].matrix<const T>(), blocks[2].numbers<double>(), blocks[3].matrix<T>(),
               blocks[4].matrix<T>(), values, asked);
  });
}

template <class T>
void measure(const EntryMeasure& op, const ArrayView<const T>& p, const ArrayView<std::type_identity_t<T>>& value,
             std::ptrdiff_t axis, const ArrayView<std::type_identity_t<T>>& dp) {
  const std::string_view name = description_of(op).name;
  const RowArgument arguments[] = {argument(name, "p", p, false), argument(name, "value", value, true),
                                   gradient(name, "dp", dp)};
  on_rows(name, arguments, axis, {}, {}, [&](const RowBlock* blocks, auto /*values*/, auto /*gradients*/) {
    measure<T>(op, blocks[0].matrix<const T>(), blocks[1].matrix<T>(), blocks[2].matrix<T>());
  });
}

template <class T>
void loss(const Loss& op, const ArrayView<const T>& x, const ArrayView<const std::int64_t>& classes,
          const ArrayView<double>& value, std::ptrdiff_t axis, const ArrayView<std::type_identity_t<T>>& dx,
          std::span<const PerRow> per_row, std::span<const ParamGradient> gradients, std::optional<std::int64_t> ignored) {
  const std::string_view name = description_of(op).name;
  const RowArgument arguments[] = {argument(name, "x", x, false), one_per_row(name, "target", classes, false),
                                   one_per_row(name, "value", value, true), gradient(name, "dx", dx)};
  on_rows(name, arguments, axis, per_row, gradients, [&](const RowBlock* blocks, auto values, auto asked) {
    loss<T>(op, blocks[0].matrix<const T>(), blocks[1].numbers<const std::int64_t>(), blocks[2].numbers<double>(),
            blocks[3].matrix<T>(), values, asked, ignored);
  });
}

template <class T>
void loss(const Loss& op, const ArrayView<const T>& x, const ArrayView<const std::type_identity_t<T>>& target,
          const ArrayView<double>& value, std::ptrdiff_t axis, const ArrayView<std::type_identity_t<T>>& dx,
          std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  const std::string_view name = description_of(op).name;
  const RowArgument arguments[] = {argument(name, "x", x, false), argument(name, "target", target, false),
                                   one_per_row(name, "value", value, true), gradient(name, "dx", dx)};
  on_rows(name, arguments, axis, per_row, gradients, [&](const RowBlock* blocks, auto values, auto asked) {
    loss<T>(op, blocks[0].matrix<const T>(), blocks[1].matrix<const T>(), blocks[2].numbers<double>(), blocks[3].matrix<T>(),
            values, asked);
  });
}

#define ISENTROPIC_INSTANTIATE(T)                                                                                              \
  template void apply<T>(const Map&, const ArrayView<const T>&, const ArrayView<T>&, std::ptrdiff_t, std::span<const PerRow>); \
  template void apply_vjp<T>(const Map&, const ArrayView<const T>&, const ArrayView<const T>&, const ArrayView<const T>&,      \
                             const ArrayView<T>&, std::ptrdiff_t, std::span<const PerRow>, std::span<const ParamGradient>);    \
  template void measure<T>(const Measure&, const ArrayView<const T>&, const ArrayView<double>&, std::ptrdiff_t,                \
                           const ArrayView<T>&, std::span<const PerRow>, std::span<const ParamGradient>);                      \
  template void measure<T>(const Divergence&, const ArrayView<const T>&, const ArrayView<const T>&, const ArrayView<double>&,  \
                           std::ptrdiff_t, const ArrayView<T>&, const ArrayView<T>&, std::span<const PerRow>,                  \
                           std::span<const ParamGradient>);                                                                    \
  template void measure<T>(const EntryMeasure&, const ArrayView<const T>&, const ArrayView<T>&, std::ptrdiff_t,                \
                           const ArrayView<T>&);                                                                               \
  template void loss<T>(const Loss&, const ArrayView<const T>&, const ArrayView<const std::int64_t>&,                          \
                        const ArrayView<double>&, std::ptrdiff_t, const ArrayView<T>&, std::span<const PerRow>,                \
                        std::span<const ParamGradient>, std::optional<std::int64_t>);                                          \
  template void loss<T>(const Loss&, const ArrayView<const T>&, const ArrayView<const T>&, const ArrayView<double>&,           \
                        std::ptrdiff_t, const ArrayView<T>&, std::span<const PerRow>, std::span<const ParamGradient>);
ISENTROPIC_INSTANTIATE(float)
ISENTROPIC_INSTANTIATE(double)
ISENTROPIC_INSTANTIATE(float16)
ISENTROPIC_INSTANTIATE(bfloat16)
#undef ISENTROPIC_INSTANTIATE

}  // namespace isentropic::inline ISENTROPIC_ABI
