// Calls on rows: maps, logarithms, entropy control, measures, losses and draws.

#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "src/call/arguments.h"

namespace isentropic::inline ISENTROPIC_ABI::call {
namespace {

// Whether a function takes an array as rows, and whether as one number for each row.
bool has_rows(const ArrayInfo& info, const CallArray& array) {
  if (info.kind == ArrayKind::target) return !is_integer(array.type);
  return info.kind == ArrayKind::row;
}
bool has_numbers(const ArrayInfo& info) {
  return info.kind == ArrayKind::entry || info.kind == ArrayKind::number || info.kind == ArrayKind::integer ||
         info.kind == ArrayKind::target;
}

// Calls run(type, blocks, first row) with blocks of all arrays of the description but `indices`, in its order. An array that
// was left out has blocks without data. Rows have the type of the first array. check(number of rows) comes before anything is
// written.
template <bool kFloat32 = true, bool kHalves = !kSmall, class Run, class Check>
void on_rows(Arguments& call, const Run& run, const Check& check) {
  const Call& given = call.call();
  std::array<RowArgument, StridedRows::kMaxArguments> arguments;
  std::size_t count = 0;
  for (std::size_t i = 0; i < call.infos().size(); ++i) {
    const ArrayInfo& info = call.infos()[i];
    const CallArray& array = call.array(i);
    const bool rows = has_rows(info, array);
    if (!rows && !has_numbers(info)) continue;
    if (array.given()) {
      if (rows || info.kind == ArrayKind::entry) {
        call.check_type_of_first(call.name(i), array);
      } else if (info.kind == ArrayKind::number) {
        call.check_numbers(call.name(i), array);
      } else {
        call.check_integers(call.name(i), array);
      }
    }
    arguments[count++] = {.name = call.name(i),
                          .array = array,
                          .output = info.output,
                          .one_per_row = !rows,
                          .one_for_all = info.one_for_all,
                          .absent = !array.given()};
  }
  const bool listed = std::ranges::any_of(call.infos(), [](const ArrayInfo& info) { return info.kind == ArrayKind::indices; });
  const bool by_index = !given.row_parameters.empty() || given.operation.drawn || listed;
  const StridedRows rows(call.where(), std::span(arguments).first(count), given.axis,
                         by_index ? RowOrder::by_index : RowOrder::free);
  call.read_rows(rows.count(), false);
  check(rows.count());
  on_type<kFloat32, kHalves>(call, call.name(0), call.first(), [&]<class T>(std::type_identity<T> type) {
    rows.for_blocks([&](const RowBlock* blocks, std::size_t first) { run(type, blocks, first); });
  });
  call.store_gradients();
}
template <bool kFloat32 = true, bool kHalves = !kSmall, class Run>
void on_rows(Arguments& call, const Run& run) {
  on_rows<kFloat32, kHalves>(call, run, [](std::size_t) {});
}

// Calls run(numbers) with float64 numbers, one for each row of a block, and narrows them if the array is float32.
template <class Run>
void as_double(const RowBlock& block, const CallArray& array, const Run& run) {
  if (array.type == NumberType::float64) return run(block.numbers<double>());
  std::vector<double> wide(block.rows);
  run(std::span<double>(wide));
  std::ranges::transform(wide, block.numbers<float>().begin(), [](double one) { return static_cast<float>(one); });
}

// Checks the parameters of all rows before any row is written, because rows may be copied in blocks.
template <class Family>
void check_rows(const Family& op, std::size_t rows, std::span<const PerRow> per_row) {
  std::visit([&](const auto& one) { check_params(one, per_row, rows); }, op);
}

template <class T>
void forward(const Map& map, const RowBlock* b, std::span<const PerRow> per_row) {
  apply<T>(map, b[0].matrix<const T>(), b[1].matrix<T>(), per_row);
}
template <class T>
void forward(const Logarithm& op, const RowBlock* b, std::span<const PerRow> per_row) {
  const auto x = b[0].matrix<const T>();
  const auto y = b[1].matrix<T>();
  if (const auto* const log = std::get_if<LogSoftmax>(&op)) return log_softmax<T>(*log, x, y, per_row);
  logsumexp<T>(std::get<LogSumExp>(op), x, y, per_row);
}
template <class T>
void forward(const Selection& op, const RowBlock* b, std::span<const PerRow> per_row) {
  soft_top_k<T>(std::get<SoftTopK>(op), b[0].matrix<const T>(), b[1].matrix<T>(), per_row);
}
template <class T>
void backward(const Map& map, const RowBlock* b, std::span<const PerRow> per_row, std::span<const ParamGradient> gradients) {
  apply_vjp<T>(map, b[0].matrix<const T>(), b[1].matrix<const T>(), b[2].matrix<const T>(), b[3].matrix<T>(), per_row,
               gradients);
}
template <class T>
void backward(const Logarithm& op, const RowBlock* b, std::span<const PerRow> per_row,
              std::span<const ParamGradient> gradients) {
  const auto x = b[0].matrix<const T>(), y = b[1].matrix<const T>(), g = b[2].matrix<const T>();
  const auto dx = b[3].matrix<T>();
  if (const auto* const log = std::get_if<LogSoftmax>(&op)) {
    return log_softmax_vjp<T>(*log, x, y, g, dx, per_row, gradients);
  }
  logsumexp_vjp<T>(std::get<LogSumExp>(op), x, y, g, dx, per_row, gradients);
}
template <class T>
void backward(const Selection& op, const RowBlock* b, std::span<const PerRow> per_row,
              std::span<const ParamGradient> gradients) {
  soft_top_k_vjp<T>(std::get<SoftTopK>(op), b[0].matrix<const T>(), b[1].matrix<const T>(), b[2].matrix<const T>(),
                    b[3].matrix<T>(), per_row, gradients);
}

template <class Family>
void run_map(Arguments& call) {
  const auto op = call.make<Family>();
  const auto check = [&](std::size_t rows) {
    if (!call.call().row_parameters.empty()) check_rows(op, rows, call.per_row(0, rows));
  };
  if (call.call().vjp) {
    return on_rows<!kSmall, !kSmall>(
        call,
        [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
          backward<T>(op, b, call.per_row(first, b[0].rows), call.gradients(first, b[0].rows));
        },
        check);
  }
  on_rows(
      call,
      [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
        forward<T>(op, b, call.per_row(first, b[0].rows));
      },
      check);
}

void run_measure(Arguments& call) {
  const auto op = call.make<Measure>();
  on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    as_double(b[1], call.array(1), [&](std::span<double> value) {
      measure<T>(op, b[0].matrix<const T>(), value, b[2].matrix<T>(), call.per_row(first, b[0].rows),
                 call.gradients(first, b[0].rows));
    });
  });
}

void run_divergence(Arguments& call) {
  const auto op = call.make<Divergence>();
  on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    as_double(b[2], call.array(2), [&](std::span<double> value) {
      measure<T>(op, b[0].matrix<const T>(), b[1].matrix<const T>(), value, b[3].matrix<T>(), b[4].matrix<T>(),
                 call.per_row(first, b[0].rows), call.gradients(first, b[0].rows));
    });
  });
}

void run_entry(Arguments& call) {
  const auto op = call.make<EntryMeasure>();
  on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t) {
    measure<T>(op, b[0].matrix<const T>(), b[1].matrix<T>(), b[2].matrix<T>());
  });
}

void run_loss(Arguments& call) {
  const auto op = call.make<Loss>();
  const CallArray& target = call.array(1);
  const std::optional<std::int64_t>& ignored = call.call().ignore_index;
  on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    const std::size_t count = b[0].rows;
    const auto x = b[0].matrix<const T>();
    const auto dx = b[3].matrix<T>();
    as_double(b[2], call.array(2), [&](std::span<double> value) {
      const auto per_row = call.per_row(first, count);
      const auto gradients = call.gradients(first, count);
      if (!is_integer(target.type)) return loss<T>(op, x, b[1].matrix<const T>(), value, dx, per_row, gradients);
      if (target.type == NumberType::int64) {
        return loss<T>(op, x, b[1].numbers<const std::int64_t>(), value, dx, per_row, gradients, ignored);
      }
      const auto narrow = b[1].numbers<const std::int32_t>();
      const std::vector<std::int64_t> classes(narrow.begin(), narrow.end());
      loss<T>(op, x, std::span<const std::int64_t>(classes), value, dx, per_row, gradients, ignored);
    });
  });
}

// Each row has a row of indices and a row of logarithms, along the last axis of their arrays.
void run_sparse_loss(Arguments& call) {
  const auto op = call.make<SparseLoss>();
  const CallArray &indices = call["indices"], &log_probs = call["log_probs"];
  call.check_integers(call.name(1), indices);
  const std::size_t count = count_of(indices),
                    listed = indices.shape.empty() ? 0 : static_cast<std::size_t>(indices.shape.back());
  if (!std::ranges::equal(indices.shape, log_probs.shape)) {
    fail("{}: {} must have the shape of {}, {}, got {}", call.where(), call.name(2), call.name(1), shape_text(indices.shape),
         shape_text(log_probs.shape));
  }
  const std::span<std::int64_t> classes = call.room<std::int64_t>(indices, count);
  if (!Arguments::in_place<std::int64_t>(indices)) load(indices, classes);
  on_type(call, call.name(2), log_probs, [&]<class L>(std::type_identity<L>) {
    std::vector<L> copied;
    const L* logs = reinterpret_cast<const L*>(log_probs.data);
    if (!without_gaps(log_probs)) {
      for_each_number(log_probs, [&](const char* at) { std::memcpy(&copied.emplace_back(), at, sizeof(L)); });
      logs = copied.data();
    }
    on_rows<!kSmall>(
        call,
        [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
          const std::size_t rows = b[0].rows;
          as_double(b[1], call.array(3), [&](std::span<double> value) {
            loss<T, L>(op, b[0].matrix<const T>(), {classes.data() + first * listed, rows, listed},
                       {logs + first * listed, rows, listed}, value, b[2].matrix<T>(), call.per_row(first, rows),
                       call.gradients(first, rows));
          });
        },
        [&](std::size_t rows) {
          if (listed == 0 && rows > 0)
            fail("{}: {} must have at least one class for each row, got none", call.where(), call.name(1));
          if (rows * listed == count) return;
          fail("{}: {} must have a row for each of {} rows of {}, got shape {}", call.where(), call.name(1), rows, call.name(0),
               shape_text(indices.shape));
        });
  });
}

void run_gamma(const GammaForEntropy& op, Arguments& call) {
  on_rows<true, false>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    const std::size_t count = b[0].rows;
    as_double(b[1], call.array(1), [&](std::span<double> gamma) {
      as_double(b[2], call.array(2), [&](std::span<double> reached) {
        const auto find = [&](std::span<GammaStatus> status) {
          gamma_for_entropy<T>(op, b[0].matrix<const T>(), gamma, reached, status, call.per_row(first, count));
        };
        static_assert(std::is_same_v<std::underlying_type_t<GammaStatus>, std::int32_t>);
        if (call.array(3).type == NumberType::int32) return find(b[3].numbers<GammaStatus>());
        std::vector<GammaStatus> codes(count);
        find(codes);
        std::ranges::transform(codes, b[3].numbers<std::int64_t>().begin(),
                               [](GammaStatus code) { return static_cast<std::int64_t>(code); });
      });
    });
  });
}

void run_control(Arguments& call) {
  const auto op = call.make<EntropyControl>();
  if (const auto* const gamma = std::get_if<GammaForEntropy>(&op)) return run_gamma(*gamma, call);
  if (const auto* const estimate = std::get_if<MeanFieldEntropy>(&op)) {
    return on_rows<true, false>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t) {
      as_double(b[1], call.array(1),
                [&](std::span<double> value) { mean_field_entropy<T>(*estimate, b[0].matrix<const T>(), value); });
    });
  }
  if constexpr (!kSmall) {
    const auto& power = std::get<PowerTransform>(op);
    on_rows<true, false>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
      power_transform<T>(power, b[0].matrix<const T>(), b[1].matrix<T>(), call.per_row(first, b[0].rows));
    });
  }
}

// Calls draw(type, blocks, first row, indices, noise): the indices of each row are a row of their array.
template <class Draw, class Check>
void on_draws(Arguments& call, const Draw& draw, const Check& check) {
  const CallArray& indices = call["indices"];
  call.check_integers("indices", indices);
  const std::size_t draws = indices.shape.empty() ? 0 : static_cast<std::size_t>(indices.shape.back());
  const std::span<std::int64_t> drawn = call.room<std::int64_t>(indices, count_of(indices));
  on_rows<!kSmall, !kSmall>(
      call,
      [&]<class T>(std::type_identity<T> type, const RowBlock* b, std::size_t first) {
        draw(type, b, first, MatrixView(drawn.data() + first * draws, b[0].rows, draws), call.noise(first, b[0].rows));
      },
      [&](std::size_t rows) {
        check(rows);
        if (drawn.size() == rows * draws) return;
        fail("{}: indices must have a row for each of {} rows of {}, got shape {}", call.where(), rows, call.name(0),
             shape_text(indices.shape));
      });
  if (!Arguments::in_place<std::int64_t>(indices)) store<std::int64_t>(indices, drawn);
}

void run_sampling(Arguments& call) {
  const auto op = call.make<Sampling>();
  if (const auto* const relaxed = std::get_if<GumbelSoftmax>(&op)) {
    return on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
      gumbel_softmax<T>(*relaxed, b[0].matrix<const T>(), b[1].matrix<T>(), call.noise(first, b[0].rows));
    });
  }
  on_draws(
      call,
      [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t, MatrixView<std::int64_t> indices,
                   const Noise& noise) { sample<T>(std::get<Sample>(op), b[0].matrix<const T>(), indices, noise); },
      [](std::size_t) {});
}

// The texts of the rows of a call, one after the other: a row of tokens each.
class TextsOfCall {
 public:
  explicit TextsOfCall(Arguments& call) {
    const CallArray* const given = call.find("tokens");
    if (given == nullptr) return;
    call.check_integers("tokens", *given);
    if (given->shape.empty()) fail("{}: tokens must have a row of tokens for each row of {}", call.where(), call.name(0));
    const std::size_t cols = static_cast<std::size_t>(given->shape.back()), count = count_of(*given);
    const std::span<std::int64_t> numbers = call.room<std::int64_t>(*given, count);
    if (!Arguments::in_place<std::int64_t>(*given)) load<std::int64_t>(*given, numbers);
    rows_ = 1;
    for (const std::ptrdiff_t size : given->shape.first(given->shape.size() - 1)) rows_ *= static_cast<std::size_t>(size);
    tokens_ = {numbers.data(), rows_, cols};
    if (tokens_.data == nullptr) tokens_.data = &kNone;  // texts without tokens
  }
  void check(const Arguments& call, std::size_t rows) const {
    if (tokens_.data != nullptr && rows_ != rows) {
      fail("{}: tokens must have a row for each of {} rows of {}, got {}", call.where(), rows, call.name(0), rows_);
    }
  }
  // The texts of rows from `first` on.
  Texts of(std::size_t first, std::size_t count) const {
    if (tokens_.data == nullptr) return {};
    return {.tokens = {tokens_.data + first * tokens_.cols, count, tokens_.cols}};
  }

 private:
  static constexpr std::int64_t kNone = -1;
  MatrixView<const std::int64_t> tokens_ = {};
  std::size_t rows_ = 0;
};

void run_chain(Arguments& call) {
  const Sampler& sampler = *call.call().sampler;
  const TextsOfCall texts(call);
  const auto check = [&](std::size_t rows) { texts.check(call, rows); };
  const bool logarithm = &call.call().operation == &chains().operations[2];
  if (!call.call().operation.drawn) {
    return on_rows<!kSmall>(
        call,
        [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
          const auto x = b[0].matrix<const T>();
          const auto y = b[1].matrix<T>();
          const Texts own = texts.of(first, b[0].rows);
          logarithm ? sampler.log_probs<T>(x, y, own) : sampler.probs<T>(x, y, own);
        },
        check);
  }
  on_draws(
      call,
      [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first, MatrixView<std::int64_t> indices, Noise noise) {
        Texts own = texts.of(first, b[0].rows);
        const auto p = b[2].matrix<T>();
        if (!call.array(3).given()) return sampler.sample<T>(b[0].matrix<const T>(), indices, noise, own, p);
        if (const NumberType type = call.array(3).type; type != NumberType::float64) {
          fail("{}: bounds must be float64, got {}", call.where(), name_of(type));
        }
        own.bounds = b[1].numbers<double>();
        sampler.sample<T>(b[0].matrix<const T>(), indices, noise, own, p);
      },
      check);
}

void run_counts(Arguments& call) {
  const auto op = std::get<EntropyOfCounts>(call.make<CountMeasure>());
  on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t) {
    as_double(b[1], call.array(1), [&](std::span<double> value) {
      if (!call.array(2).given()) return entropy_of_counts<T>(op, b[0].matrix<const T>(), value);
      as_double(b[2], call.array(2),
                [&](std::span<double> deviation) { entropy_of_counts<T>(op, b[0].matrix<const T>(), value, deviation); });
    });
  });
}

template <auto kRun>
void run_checked(const Call& call) {
  Arguments arguments(call);
  kRun(arguments);
}

template <class Family>
constexpr Runner kRunner = nullptr;
template <>
constexpr Runner kRunner<Map> = run_checked<run_map<Map>>;
template <>
constexpr Runner kRunner<Logarithm> = run_checked<run_map<Logarithm>>;
template <>
constexpr Runner kRunner<EntropyControl> = run_checked<run_control>;
template <>
constexpr Runner kRunner<Measure> = run_checked<run_measure>;
template <>
constexpr Runner kRunner<Divergence> = run_checked<run_divergence>;
template <>
constexpr Runner kRunner<Loss> = run_checked<run_loss>;
#ifndef __wasm__
template <>
constexpr Runner kRunner<Selection> = run_checked<run_map<Selection>>;
template <>
constexpr Runner kRunner<SparseLoss> = run_checked<run_sparse_loss>;
#endif
template <>
constexpr Runner kRunner<Sampling> = run_checked<run_sampling>;
template <>
constexpr Runner kRunner<Transport> = run_checked<run_transport>;
#ifndef __wasm__
template <>
constexpr Runner kRunner<TableMeasure> = run_checked<run_table_measure>;
template <>
constexpr Runner kRunner<CountMeasure> = run_checked<run_counts>;
template <>
constexpr Runner kRunner<CountTableMeasure> = run_checked<run_count_table>;
template <>
constexpr Runner kRunner<TableMap> = run_checked<run_table_map>;
template <>
constexpr Runner kRunner<EntryMeasure> = run_checked<run_entry>;
template <>
constexpr Runner kRunner<AttentionOperation> = run_checked<run_attention>;
#endif

template <class... Family>
Runner of_family(const OperationInfo& operation, FamilyList<Family...> /*all*/) {
  Runner found = nullptr;
  const auto look = [&]<class One>(std::type_identity<One>) {
    if (operation.family == family_info<One>().name) found = kRunner<One>;
  };
  (look(std::type_identity<Family>()), ...);
  return found;
}

}  // namespace
}  // namespace isentropic::inline ISENTROPIC_ABI::call

namespace isentropic::inline ISENTROPIC_ABI {

Runner runner_of(const OperationInfo& operation, bool vjp) {
  const bool here = has(operation, Door::c) && (!call::kSmall || has(operation, Door::web));
  if (!here || call::arrays_of(operation, vjp).empty()) return nullptr;
  if (operation.family == chains().name) return call::run_checked<call::run_chain>;
  return call::of_family(operation, Families{});
}

}  // namespace isentropic::inline ISENTROPIC_ABI
