// Calls on one thread take no memory from the system once the same call was made before: every operation of rows, of every
// type, on matrices and on arrays whose rows are copied, with and without gradients and values for each row.

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "isentropic/c.h"
#include "isentropic/call.h"
#include "isentropic/isentropic.h"
#include "tests/support/random.h"

namespace {

thread_local bool counts = false;
thread_local std::size_t allocations = 0;

}  // namespace

// In place of glibc's functions, also for operator new and for other libraries.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t number, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  allocations += counts ? 1 : 0;
  return __libc_malloc(bytes);
}
void* calloc(std::size_t number, std::size_t bytes) {
  allocations += counts ? 1 : 0;
  return __libc_calloc(number, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  allocations += counts ? 1 : 0;
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  allocations += counts ? 1 : 0;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace isentropic {
namespace {

template <class Call>
std::size_t allocations_of(const Call& call) {
  allocations = 0;
  counts = true;
  call();
  counts = false;
  return allocations;
}

// The first call may take memory, the second one none.
template <class Call>
void expect_none(const std::string& what, const Call& call) {
  call();
  EXPECT_EQ(allocations_of(call), 0u) << what;
}

TEST(Allocations, AreCounted) {
  void* volatile memory = nullptr;
  EXPECT_EQ(allocations_of([&] { memory = std::malloc(8); }), 1u);
  std::free(memory);
  EXPECT_EQ(allocations_of([&] { memory = ::operator new(8); }), 1u);  // a compiler may leave out `new char[8]`
  ::operator delete(memory);
  EXPECT_EQ(allocations_of([&] { memory = std::aligned_alloc(64, 64); }), 1u);
  std::free(memory);
  EXPECT_GT(allocations_of([] { std::vector<std::string>(2, std::string(100, 'a')); }), 2u);
}

constexpr std::size_t kRows = 3, kLengths[] = {5, 100, 5000};

struct Variant {
  std::string name;
  std::vector<ParamValue> values;
};

// An operation with its typical values, and with every other value of each choice, flag and map.
std::vector<Variant> variants_of(const OperationInfo& info) {
  const std::vector<ParamValue> typical = typical_values(info);
  std::vector<Variant> all = {{std::string(info.name), typical}};
  for (std::size_t i = 0; i < info.params.size(); ++i) {
    const ParamInfo& param = info.params[i];
    std::vector<ParamValue> others;
    for (const std::string_view choice : param.choices) others.emplace_back(std::string(choice));
    if (param.kind == ParamKind::flag) others.emplace_back(!std::get<bool>(typical[i]));
    if (param.kind == ParamKind::map) {
      for (const OperationInfo& map : family_info<Map>().operations) others.emplace_back(make<Map>(map, typical_values(map)));
    }
    for (const ParamValue& other : others) {
      Variant variant = all.front();
      variant.name += " " + std::string(param.name) + "=" + to_text(other);
      variant.values[i] = other;
      all.push_back(variant);
    }
  }
  return all;
}

// A parameter that each row has a value of, and the values of the others, of which optional ones are not given.
struct PerRowVariant {
  std::string_view parameter;
  std::vector<ParamValue> values;
  std::vector<double> of_rows;
};

std::vector<PerRowVariant> per_row_variants_of(const OperationInfo& info, const std::vector<ParamValue>& values) {
  std::vector<PerRowVariant> all;
  for (std::size_t i = 0; i < info.params.size(); ++i) {
    if (!info.params[i].per_row) continue;
    PerRowVariant variant = {info.params[i].name, values, {}};
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (info.params[k].kind == ParamKind::optional_number) variant.values[k] = {};
    }
    const auto* const number = std::get_if<double>(&values[i]);
    variant.of_rows.assign(kRows, number != nullptr && std::isfinite(*number) ? *number
                                  : info.params[i].name == "beta"             ? 0.5
                                                                              : 1.0);
    all.push_back(variant);
  }
  return all;
}

// An array of a call, and its views: rows one after the other, or columns.
template <class T>
struct Numbers {
  std::size_t rows, cols;
  std::vector<T> numbers, by_columns;

  Numbers(std::size_t r, std::size_t n) : rows(r), cols(n), numbers(r * n), by_columns(r * n) {}
  MatrixView<T> matrix() { return {numbers.data(), rows, cols}; }
  MatrixView<const T> input() { return {numbers.data(), rows, cols}; }
  template <class U = T>
  ArrayView<U> array(bool columns) {
    const auto r = static_cast<std::ptrdiff_t>(rows), n = static_cast<std::ptrdiff_t>(cols);
    if (!columns) return {numbers.data(), {r, n}};
    for (std::size_t i = 0; i < numbers.size(); ++i) by_columns[i % cols * rows + i / cols] = numbers[i];
    return {by_columns.data(), {r, n}, {1, r}};
  }
};

template <class T>
Numbers<T> scores(std::size_t rows, std::size_t n, unsigned seed) {
  support::Random random{std::mt19937_64(seed)};
  Numbers<T> x(rows, n);
  for (T& score : x.numbers) score = support::to<T>(random.normal());
  return x;
}

// Rows as an operation with this input takes them: scores, distributions or their logarithms.
template <class T>
Numbers<T> rows_for(Input input, std::size_t rows, std::size_t n, unsigned seed, std::size_t rows_of_sum = 1) {
  Numbers<T> x = scores<T>(rows, n, seed);
  if (input == Input::scores) return x;
  const std::size_t size = rows_of_sum * n;
  for (std::size_t begin = 0; begin < x.numbers.size(); begin += size) {
    double sum = 0;
    for (std::size_t i = begin; i < begin + size; ++i) sum += std::exp(support::number(x.numbers[i]));
    for (std::size_t i = begin; i < begin + size; ++i) {
      const double log = support::number(x.numbers[i]) - std::log(sum);
      x.numbers[i] = support::to<T>(input == Input::probs ? std::exp(log) : log);
    }
  }
  return x;
}

template <class Family>
Input input_of(const Family& operation) {
  return std::visit([](const auto& op) { return op.input; }, operation);
}

std::string of_length(const Variant& variant, std::size_t n) { return variant.name + ", rows of " + std::to_string(n); }

template <class T>
class AllocationsOf : public testing::Test {
 protected:
  void SetUp() override { set_num_threads(1); }
  void TearDown() override { set_num_threads(0); }
};
using Types = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(AllocationsOf, Types);

template <class T>
void check_map(const Map& map, const std::string& what, std::size_t n, std::span<const PerRow> per_row,
               std::span<const ParamGradient> gradients) {
  Numbers<T> x = scores<T>(kRows, n, 1), p(kRows, n), g = scores<T>(kRows, n, 2), dx(kRows, n);
  expect_none(what, [&] { apply<T>(map, x.input(), p.matrix(), per_row); });
  expect_none(what + ", gradient",
              [&] { apply_vjp<T>(map, x.input(), p.input(), g.input(), dx.matrix(), per_row, gradients); });
  for (const bool columns : {false, true}) {
    const auto x_view = x.template array<const T>(columns), p_in = p.template array<const T>(columns);
    const auto g_view = g.template array<const T>(columns);
    const auto p_view = p.array(columns), dx_view = dx.array(columns);
    expect_none(what + ", array", [&] { apply<T>(map, x_view, p_view, -1, per_row); });
    expect_none(what + ", gradient, array", [&] { apply_vjp<T>(map, x_view, p_in, g_view, dx_view, -1, per_row, gradients); });
  }
}

TYPED_TEST(AllocationsOf, Maps) {
  std::vector<double> slopes(kRows);
  for (const OperationInfo& info : family_info<Map>().operations) {
    for (const Variant& variant : variants_of(info)) {
      for (const std::size_t n : kLengths) {
        const std::string what = of_length(variant, n);
        check_map<TypeParam>(make<Map>(info, variant.values), what, n, {}, {});
        for (const PerRowVariant& one : per_row_variants_of(info, variant.values)) {
          const PerRow values = {one.parameter, one.of_rows};
          const ParamGradient gradient = {one.parameter, slopes};
          check_map<TypeParam>(make<Map>(info, one.values), what + ", " + std::string(one.parameter) + " for each row", n,
                               std::span(&values, 1), std::span(&gradient, 1));
        }
      }
    }
  }
}

TYPED_TEST(AllocationsOf, Logarithms) {
  static_assert(std::variant_size_v<Logarithm> == 2 && std::variant_size_v<Selection> == 1);
  using T = TypeParam;
  std::vector<double> slopes(kRows);
  const std::vector<double> temperatures(kRows, 0.7);
  const PerRow values = {"temperature", temperatures};
  const ParamGradient gradient = {"temperature", slopes};
  for (const std::size_t n : kLengths) {
    Numbers<T> x = scores<T>(kRows, n, 1), y(kRows, n), g = scores<T>(kRows, n, 2), dx(kRows, n), sums(kRows, 1);
    const Numbers<T> g_sums = scores<T>(kRows, 1, 3);
    const MatrixView<const T> of_sums(g_sums.numbers.data(), kRows, 1);
    for (const std::size_t given : {0, 1}) {
      const auto per_row = std::span(&values, given);
      const auto gradients = std::span(&gradient, given);
      const std::string what = "rows of " + std::to_string(n) + (given == 1 ? ", temperature for each row" : "");
      expect_none("log_softmax, " + what, [&] { log_softmax<T>({}, x.input(), y.matrix(), per_row); });
      expect_none("log_softmax_vjp, " + what,
                  [&] { log_softmax_vjp<T>({}, x.input(), y.input(), g.input(), dx.matrix(), per_row, gradients); });
      const SoftTopK chosen = {.k = 1.5};
      expect_none("soft_top_k, " + what, [&] { soft_top_k<T>(chosen, x.input(), y.matrix(), per_row); });
      expect_none("soft_top_k_vjp, " + what,
                  [&] { soft_top_k_vjp<T>(chosen, x.input(), y.input(), g.input(), dx.matrix(), per_row, gradients); });
      expect_none("logsumexp, " + what, [&] { logsumexp<T>({}, x.input(), sums.matrix(), per_row); });
      expect_none("logsumexp_vjp, " + what,
                  [&] { logsumexp_vjp<T>({}, x.input(), sums.input(), of_sums, dx.matrix(), per_row, gradients); });
    }
  }
}

template <class T>
void check_loss(const Loss& op, const std::string& what, std::size_t n, std::span<const PerRow> per_row,
                std::span<const ParamGradient> gradients) {
  const TargetKind kind = std::visit([](const auto& one) { return one.kTarget; }, op);
  Numbers<T> x = scores<T>(kRows, n, 1), dx(kRows, n);
  if (std::holds_alternative<MarginSoftmaxLoss>(op)) {
    for (T& cosine : x.numbers) cosine = support::to<T>(std::tanh(support::number(cosine)));
  }
  Numbers<double> value(kRows, 1);
  const std::span<double> to(value.numbers);
  const auto value_view = ArrayView<double>(value.numbers.data(), {kRows});
  const ArrayView<T> no_gradient;
  for (const bool gradient : {false, true}) {
    const MatrixView<T> to_dx = gradient ? dx.matrix() : MatrixView<T>();
    const auto asked = gradient ? gradients : std::span<const ParamGradient>();
    const std::string purpose = what + (gradient ? ", gradient" : "");
    if (kind == TargetKind::classes || kind == TargetKind::classes_or_distributions) {
      std::vector<std::int64_t> classes = {0, 1, 2};
      expect_none(purpose + ", classes", [&] { loss<T>(op, x.input(), classes, to, to_dx, per_row, asked); });
      const ArrayView<const std::int64_t> classes_view(classes.data(), {kRows});
      for (const bool columns : {false, true}) {
        const auto x_view = x.template array<const T>(columns);
        const auto dx_view = gradient ? dx.array(columns) : no_gradient;
        expect_none(purpose + ", classes, array",
                    [&] { loss<T>(op, x_view, classes_view, value_view, -1, dx_view, per_row, asked); });
      }
    }
    if (kind == TargetKind::classes) continue;
    Numbers<T> target = rows_for<T>(kind == TargetKind::scores ? Input::scores : Input::probs, kRows, n, 2);
    if (kind == TargetKind::labels) {
      for (T& label : target.numbers) label = support::to<T>(support::number(label) * static_cast<double>(n) > 1 ? 1 : 0);
    }
    expect_none(purpose, [&] { loss<T>(op, x.input(), target.input(), to, to_dx, per_row, asked); });
    for (const bool columns : {false, true}) {
      const auto x_view = x.template array<const T>(columns), target_view = target.template array<const T>(columns);
      const auto dx_view = gradient ? dx.array(columns) : no_gradient;
      expect_none(purpose + ", array", [&] { loss<T>(op, x_view, target_view, value_view, -1, dx_view, per_row, asked); });
    }
  }
}

// Whether a loss of these values has a gradient in the parameter.
bool has_slope(const Loss& op, std::string_view parameter) {
  const auto* const margin = std::get_if<MarginSoftmaxLoss>(&op);
  const bool whole = margin != nullptr && margin->kind == MarginSoftmaxLoss::Kind::sphere && parameter == "margin";
  return !whole && !std::holds_alternative<SurrogateLoss>(op);
}

TYPED_TEST(AllocationsOf, Losses) {
  std::vector<double> slopes(kRows);
  for (const OperationInfo& info : family_info<Loss>().operations) {
    for (const Variant& variant : variants_of(info)) {
      for (const std::size_t n : kLengths) {
        const std::string what = of_length(variant, n);
        const auto check = [&](const Loss& op, const PerRowVariant& one) {
          const PerRow values = {one.parameter, one.of_rows};
          const ParamGradient gradient = {one.parameter, slopes};
          check_loss<TypeParam>(op, what + ", " + std::string(one.parameter) + " for each row", n, std::span(&values, 1),
                                std::span(&gradient, has_slope(op, one.parameter) ? 1 : 0));
        };
        const Loss op = make<Loss>(info, variant.values);
        check_loss<TypeParam>(op, what, n, {}, {});
        for (const PerRowVariant& one : per_row_variants_of(info, variant.values)) {
          std::vector<ParamValue> given = one.values;
          for (std::size_t i = 0; i < given.size(); ++i) {
            if (info.params[i].name == one.parameter) given[i] = one.of_rows.front();
          }
          const auto fits = [](const auto& loss) {
            if constexpr (requires { loss.check(); }) return loss.check().empty();
            return true;
          };
          if (!std::visit(fits, make<Loss>(info, given))) continue;  // beta with another divergence than jsd
          check(make<Loss>(info, one.values), one);
        }
        // The parameters of the loss's map.
        for (std::size_t i = 0; i < info.params.size(); ++i) {
          const auto* const map = std::get_if<Map>(&variant.values[i]);
          if (map == nullptr) continue;
          const OperationInfo& of_map = family_info<Map>().operations[map->index()];
          for (const PerRowVariant& one : per_row_variants_of(of_map, values_of(*map))) {
            std::vector<ParamValue> with_map = variant.values;
            with_map[i] = make<Map>(of_map, one.values);
            check(make<Loss>(info, with_map), one);
          }
        }
      }
    }
  }
}

TYPED_TEST(AllocationsOf, Measures) {
  using T = TypeParam;
  std::vector<double> slopes(kRows), value(kRows);
  const auto value_view = ArrayView<double>(value.data(), {kRows});
  const ArrayView<T> no_gradient;
  for (const OperationInfo& info : family_info<Measure>().operations) {
    for (const Variant& variant : variants_of(info)) {
      for (const std::size_t n : kLengths) {
        const auto check = [&](const Measure& op, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
          const std::string what = of_length(variant, n) + (per_row.empty() ? "" : ", values for each row");
          Numbers<T> p = rows_for<T>(input_of(op), kRows, n, 1), dp(kRows, n);
          expect_none(what, [&] { measure<T>(op, p.input(), value, {}, per_row); });
          expect_none(what + ", gradient", [&] { measure<T>(op, p.input(), value, dp.matrix(), per_row, gradients); });
          for (const bool columns : {false, true}) {
            const auto p_view = p.template array<const T>(columns);
            const auto dp_view = dp.array(columns);
            expect_none(what + ", array", [&] { measure<T>(op, p_view, value_view, -1, no_gradient, per_row); });
            expect_none(what + ", gradient, array",
                        [&] { measure<T>(op, p_view, value_view, -1, dp_view, per_row, gradients); });
          }
        };
        check(make<Measure>(info, variant.values), {}, {});
        for (const PerRowVariant& one : per_row_variants_of(info, variant.values)) {
          const PerRow values = {one.parameter, one.of_rows};
          const ParamGradient gradient = {one.parameter, slopes};
          check(make<Measure>(info, one.values), std::span(&values, 1), std::span(&gradient, 1));
        }
      }
    }
  }
}

TYPED_TEST(AllocationsOf, Divergences) {
  using T = TypeParam;
  std::vector<double> value(kRows), slopes(kRows);
  const auto value_view = ArrayView<double>(value.data(), {kRows});
  const ArrayView<T> no_gradient;
  for (const OperationInfo& info : family_info<Divergence>().operations) {
    for (const Variant& variant : variants_of(info)) {
      for (const std::size_t n : kLengths) {
        const auto check = [&](const Divergence& op, std::span<const PerRow> per_row,
                               std::span<const ParamGradient> gradients) {
          const std::string what = of_length(variant, n) + (per_row.empty() ? "" : ", values for each row");
          Numbers<T> p = rows_for<T>(input_of(op), kRows, n, 1), dp(kRows, n), dq(kRows, n);
          for (const std::size_t rows : {kRows, std::size_t{1}}) {
            Numbers<T> q = rows_for<T>(input_of(op), rows, n, 2);
            expect_none(what, [&] { measure<T>(op, p.input(), q.input(), value, {}, {}, per_row); });
            expect_none(what + ", gradient",
                        [&] { measure<T>(op, p.input(), q.input(), value, dp.matrix(), dq.matrix(), per_row, gradients); });
          }
          Numbers<T> q = rows_for<T>(input_of(op), kRows, n, 2);
          for (const bool columns : {false, true}) {
            const auto p_view = p.template array<const T>(columns), q_view = q.template array<const T>(columns);
            const auto dp_view = dp.array(columns), dq_view = dq.array(columns);
            expect_none(what + ", array",
                        [&] { measure<T>(op, p_view, q_view, value_view, -1, no_gradient, no_gradient, per_row); });
            expect_none(what + ", gradient, array",
                        [&] { measure<T>(op, p_view, q_view, value_view, -1, dp_view, dq_view, per_row, gradients); });
          }
        };
        check(make<Divergence>(info, variant.values), {}, {});
        for (const PerRowVariant& one : per_row_variants_of(info, variant.values)) {
          const PerRow values = {one.parameter, one.of_rows};
          const ParamGradient gradient = {one.parameter, slopes};
          check(make<Divergence>(info, one.values), std::span(&values, 1), std::span(&gradient, 1));
        }
      }
    }
  }
}

TYPED_TEST(AllocationsOf, MeasuresOfTables) {
  using T = TypeParam;
  for (const OperationInfo& info : family_info<TableMeasure>().operations) {
    for (const Variant& variant : variants_of(info)) {
      const auto op = make<TableMeasure>(info, variant.values);
      for (const std::size_t n : kLengths) {
        Numbers<T> pxy = rows_for<T>(input_of(op), kRows, n, 1, kRows), dp(kRows, n);
        expect_none(of_length(variant, n), [&] { measure<T>(op, pxy.input()); });
        expect_none(of_length(variant, n) + ", gradient", [&] { measure<T>(op, pxy.input(), dp.matrix()); });
      }
    }
  }
}

TYPED_TEST(AllocationsOf, MeasuresOfEntries) {
  using T = TypeParam;
  for (const OperationInfo& info : family_info<EntryMeasure>().operations) {
    for (const Variant& variant : variants_of(info)) {
      const auto op = make<EntryMeasure>(info, variant.values);
      const auto* const of_row = std::get_if<SelfInformation>(&op);
      const bool has_gradient = of_row == nullptr || (of_row->input != Input::scores && !of_row->normalize);
      for (const std::size_t n : kLengths) {
        const std::string what = of_length(variant, n);
        Numbers<T> p = rows_for<T>(input_of(op), kRows, n, 1), value(kRows, n), dp(kRows, n);
        expect_none(what, [&] { measure<T>(op, p.input(), value.matrix()); });
        if (has_gradient) expect_none(what + ", gradient", [&] { measure<T>(op, p.input(), value.matrix(), dp.matrix()); });
        const ArrayView<T> no_gradient;
        for (const bool columns : {false, true}) {
          const auto p_view = p.template array<const T>(columns);
          const auto to = value.array(columns), dp_view = has_gradient ? dp.array(columns) : no_gradient;
          expect_none(what + ", array", [&] { measure<T>(op, p_view, to, -1, dp_view); });
        }
      }
    }
  }
}

TYPED_TEST(AllocationsOf, Sampling) {
  static_assert(std::variant_size_v<isentropic::Sampling> == 2);
  using T = TypeParam;
  const std::vector<std::uint64_t> streams = {5, 1, 7};
  std::vector<std::int64_t> indices(kRows * 2);
  const MatrixView<std::int64_t> draws(indices.data(), kRows, 2);
  const std::vector<std::int64_t> text(kRows * 40, 1);
  const MatrixView<const std::int64_t> tokens(text.data(), kRows, 40);
  for (const Noise& noise : {Noise{.seed = 1}, Noise{.seed = 1, .streams = streams}}) {
    for (const std::size_t n : kLengths) {
      Numbers<T> x = scores<T>(kRows, n, 1), p(kRows, n);
      const std::string rows = ", rows of " + std::to_string(n);
      expect_none("sample" + rows, [&] { sample<T>(Sample{.temperature = 0.7}, x.input(), draws, noise); });
      expect_none("sample without putting back" + rows, [&] { sample<T>(Sample{1, false}, x.input(), draws, noise); });
      for (const bool hard : {false, true}) {
        expect_none("gumbel_softmax" + rows,
                    [&] { gumbel_softmax<T>({.temperature = 0.7, .hard = hard}, x.input(), p.matrix(), noise); });
      }
      if constexpr (!kIsHalf<T>) expect_none("gumbel_noise" + rows, [&] { gumbel_noise<T>(p.matrix(), noise); });
      std::vector<Step> all;
      for (const OperationInfo& info : family_info<Step>().operations) {
        const Step step = make<Step>(info, typical_values(info));
        all.push_back(step);
        for (const std::vector<Step>& steps : {std::vector<Step>{step}, all}) {
          const Sampler sampler(steps, 1);
          const std::string what = std::string(info.name) + " of " + std::to_string(steps.size()) + " steps" + rows;
          const auto any = [&](const auto& is) { return std::ranges::any_of(steps, is); };
          const bool drawn = any([](const Step& one) { return description_of(one).drawn; });
          Texts texts;
          if (any([](const Step& one) { return reads_text(description_of(one)); })) texts.tokens = tokens;
          if (!drawn) {
            expect_none(what, [&] { sampler.probs<T>(x.input(), p.matrix(), texts); });
            expect_none(what + ", logarithms", [&] { sampler.log_probs<T>(x.input(), p.matrix(), texts); });
          }
          expect_none(what + ", draws", [&] { sampler.sample<T>(x.input(), draws, noise, texts); });
        }
      }
    }
  }
}

// Of every row a number or a row.
TYPED_TEST(AllocationsOf, EntropyControl) {
  using T = TypeParam;
  if constexpr (kIsHalf<T>) {
    return;  // there is none
  } else {
    std::vector<double> first(kRows), second(kRows);
    std::vector<GammaStatus> status(kRows);
    std::vector<Normalized> normalized(kRows);
    for (const OperationInfo& info : family_info<EntropyControl>().operations) {
      for (const Variant& variant : variants_of(info)) {
        for (const std::size_t n : kLengths) {
          const auto check = [&](const EntropyControl& control, std::span<const PerRow> per_row) {
            const std::string what = of_length(variant, n) + (per_row.empty() ? "" : ", values for each row");
            Numbers<T> x = scores<T>(kRows, n, 1), p = rows_for<T>(Input::probs, kRows, n, 1), q(kRows, n);
            const Numbers<double> weights = rows_for<double>(Input::probs, kRows, n, 2);
            const MatrixView<const double> w(weights.numbers.data(), kRows, n);
            std::visit(
                [&]<class Op>(const Op& op) {
                  if constexpr (std::is_same_v<Op, GammaForEntropy>) {
                    Numbers<T>& rows = op.input == Input::probs ? p : x;
                    expect_none(what, [&] { gamma_for_entropy<T>(op, rows.input(), first, second, status, per_row); });
                  } else if constexpr (std::is_same_v<Op, PowerTransform>) {
                    expect_none(what, [&] { power_transform<T>(op, p.input(), q.matrix(), per_row); });
                  } else if constexpr (std::is_same_v<Op, NormalizeDensity>) {
                    expect_none(what, [&] { normalize_density<T>(op, p.input(), w, q.matrix(), normalized, per_row); });
                  } else if constexpr (std::is_same_v<Op, NormalizeJoint>) {
                    expect_none(what, [&] { normalize_joint<T>(op, p.input(), q.matrix()); });
                  } else {
                    expect_none(what, [&] { mean_field_entropy<T>(op, x.input(), first); });
                  }
                },
                control);
          };
          check(make<EntropyControl>(info, variant.values), {});
          for (const PerRowVariant& one : per_row_variants_of(info, variant.values)) {
            const PerRow values = {one.parameter, one.of_rows};
            check(make<EntropyControl>(info, one.values), std::span(&values, 1));
          }
        }
      }
    }
  }
}

// Threads may share rows of this length; one thread has all parts.
TEST(Allocations, OfLongRows) {
  set_num_threads(1);
  constexpr std::size_t kLong = 300000;
  Numbers<float> x = scores<float>(1, kLong, 1), p(1, kLong), g = scores<float>(1, kLong, 2), dx(1, kLong), y(1, 1);
  for (const Map& map : {Map(Softmax{}), Map(Sparsemax{})}) {
    const std::string name(description_of(map).name);
    expect_none(name, [&] { apply<float>(map, x.input(), p.matrix()); });
    expect_none(name + "_vjp", [&] { apply_vjp<float>(map, x.input(), p.input(), g.input(), dx.matrix()); });
  }
  expect_none("log_softmax", [&] { log_softmax<float>({}, x.input(), p.matrix()); });
  expect_none("log_softmax_vjp", [&] { log_softmax_vjp<float>({}, x.input(), p.input(), g.input(), dx.matrix()); });
  expect_none("logsumexp", [&] { logsumexp<float>({}, x.input(), y.matrix()); });
  set_num_threads(0);
}

// The parameters of examples as JSON.
std::string typical_parameters(const OperationInfo& info) {
  std::string all;
  const std::vector<ParamValue> values = typical_values(info);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::holds_alternative<std::monostate>(values[i])) continue;
    const bool quoted = std::holds_alternative<std::string>(values[i]) || std::holds_alternative<Map>(values[i]);
    const std::string text = to_text(values[i]);
    all += (all.empty() ? "" : ", ") + ('"' + std::string(info.params[i].name)) + "\": " + (quoted ? '"' + text + '"' : text);
  }
  return '{' + all + '}';
}

// Of the C interface: what is prepared once takes no memory when it is run.
TEST(Allocations, OfPreparedCalls) {
  constexpr std::size_t kCols = 7;
  const auto check = [&](const OperationInfo& info, bool vjp, const std::string& parameters) {
    std::vector<isentropic_array> arrays;
    std::vector<std::vector<double>> memory;
    for (const ArrayInfo& array : vjp ? info.jacobian.arrays : info.arrays) {
      if (array.name == "bounds") continue;  // of mirostat, which is not in this chain
      const bool classes = array.kind == ArrayKind::target &&
                           (*info.target == TargetKind::classes_or_distributions || *info.target == TargetKind::classes);
      const bool rows = array.kind == ArrayKind::row || (array.kind == ArrayKind::target && !classes);
      const bool integers = array.kind == ArrayKind::integer || array.kind == ArrayKind::indices || classes;
      if (!rows && !integers && array.kind != ArrayKind::entry && array.kind != ArrayKind::number) return;
      const bool labels = array.kind == ArrayKind::target && *info.target == TargetKind::labels;
      const bool counts = info.family == family_info<CountMeasure>().name;
      memory.emplace_back(kRows * kCols, labels || counts ? 1 : integers ? 0 : 1.0 / kCols);
      const std::size_t cols = rows ? kCols : array.kind == ArrayKind::indices ? 2 : 1;
      const std::int32_t type = array.kind == ArrayKind::integer ? ISENTROPIC_INT32
                                : integers                       ? ISENTROPIC_INT64
                                                                 : ISENTROPIC_FLOAT64;
      arrays.push_back({sizeof(isentropic_array), array.name.data(), memory.back().data(), kRows, cols, 0, 0, type, 0});
    }
    isentropic_call* const call = isentropic_prepare(std::string(info.name).c_str(), parameters.c_str(), vjp);
    ASSERT_NE(call, nullptr) << isentropic_last_error();
    expect_none(std::string(info.name) + (vjp ? "_vjp" : ""), [&] {
      EXPECT_EQ(isentropic_run(call, arrays.data(), arrays.size()), ISENTROPIC_OK) << isentropic_last_error();
    });
    isentropic_release(call);
  };
  for (const FamilyInfo& family : families()) {
    if (family.name == "transport") continue;  // plans take memory
    for (const OperationInfo& info : family.operations) {
      for (const bool vjp : {false, true}) {
        if (runner_of(info, vjp) != nullptr) check(info, vjp, typical_parameters(info));
      }
    }
  }
  for (const OperationInfo& info : chains().operations) check(info, false, R"({"steps": [{"name": "penalties"}]})");
}

}  // namespace
}  // namespace isentropic
