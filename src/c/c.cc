// The C interface: operations of the registry by name on arrays by name. An exception becomes an error code and a message.

#include "isentropic/c.h"

#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "isentropic/isentropic.h"
#include "src/c/call.h"
#include "src/c/guard.h"
#include "src/registry/json.h"

namespace isentropic::inline ISENTROPIC_ABI::by_name {

std::span<const ArrayInfo> arrays_of(const OperationInfo& info, bool vjp) {
  if (!has(info, Door::c) || (kSmall && !has(info, Door::web))) return {};
  return vjp ? info.jacobian.arrays : info.arrays;
}

namespace {

// Checks the parameters of all rows before any row is written, because rows may be copied in blocks.
void check_rows(const Map& map, std::size_t rows, std::span<const PerRow> per_row) {
  apply<float>(map, MatrixView<const float>(nullptr, rows, 0), MatrixView<float>(nullptr, rows, 0), per_row);
}
void check_rows(const Logarithm& op, std::size_t rows, std::span<const PerRow> per_row) {
  LogSoftmax log;
  std::visit([&](const auto& one) { log.temperature = one.temperature; }, op);
  log_softmax<float>(log, MatrixView<const float>(nullptr, rows, 0), MatrixView<float>(nullptr, rows, 0), per_row);
}

template <class T>
void forward(const Map& map, MatrixView<const T> x, MatrixView<T> y, std::span<const PerRow> per_row) {
  apply<T>(map, x, y, per_row);
}
template <class T>
void forward(const Logarithm& op, MatrixView<const T> x, MatrixView<T> y, std::span<const PerRow> per_row) {
  if (const auto* const log = std::get_if<LogSoftmax>(&op)) return log_softmax<T>(*log, x, y, per_row);
  logsumexp<T>(std::get<LogSumExp>(op), x, y, per_row);
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
  if (const auto* const log = std::get_if<LogSoftmax>(&op)) {
    return log_softmax_vjp<T>(*log, x, y, g, b[3].matrix<T>(), per_row, gradients);
  }
  logsumexp_vjp<T>(std::get<LogSumExp>(op), x, y, g, b[3].matrix<T>(), per_row, gradients);
}

template <class Family>
void run_map(Call& call, bool vjp) {
  const Family op = make<Family>(call.info(), call.values());
  const std::size_t all = call["x"].rows();
  check_rows(op, all, call.per_row(0, all));
  if (vjp) {
    on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t first) {
      backward<T>(op, blocks, call.per_row(first, blocks[0].rows), call.gradients(first, blocks[0].rows));
    });
    return call.store_gradients();
  }
  on_rows(call, [&]<class T>(std::type_identity<T>, const RowBlock* blocks, std::size_t first) {
    forward<T>(op, blocks[0].matrix<const T>(), blocks[1].matrix<T>(), call.per_row(first, blocks[0].rows));
  });
}

void run_measure(Call& call) {
  const Measure op = make<Measure>(call.info(), call.values());
  Column<double> value(call.where(), call["value"], call["p"].rows());
  on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    measure<T>(op, b[0].matrix<const T>(), value.part(first, b[0].rows), b[1].matrix<T>(), call.per_row(first, b[0].rows),
               call.gradients(first, b[0].rows));
  });
  value.store();
  call.store_gradients();
}

void run_divergence(Call& call) {
  const Divergence op = make<Divergence>(call.info(), call.values());
  Column<double> value(call.where(), call["value"], call["p"].rows());
  on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    measure<T>(op, b[0].matrix<const T>(), b[1].matrix<const T>(), value.part(first, b[0].rows), b[2].matrix<T>(),
               b[3].matrix<T>());
  });
  value.store();
}

void run_entry(Call& call) {
  const EntryMeasure op = make<EntryMeasure>(call.info(), call.values());
  on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t) {
    measure<T>(op, b[0].matrix<const T>(), b[1].matrix<T>(), b[2].matrix<T>());
  });
}

void run_table(Call& call) {
  const TableMeasure op = make<TableMeasure>(call.info(), call.values());
  Column<double> value(call.where(), call["value"], 1);
  const Given& pxy = call["pxy"];
  on_type<!kSmall>(call, pxy, [&]<class T>(std::type_identity<T>) {
    value.all()[0] = measure<T>(op, matrix_of<const T>(call, "pxy", pxy), matrix_of<T>(call, "dp", pxy));
  });
  value.store();
}

void run_loss(Call& call) {
  const Loss op = make<Loss>(call.info(), call.values());
  const std::size_t rows = call["x"].rows();
  Column<double> value(call.where(), call["value"], rows);
  const Given& target = call["target"];
  if (target.type == ISENTROPIC_INT32 || target.type == ISENTROPIC_INT64) {
    Column<std::int64_t> classes(call.where(), target, rows);
    classes.load();
    on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
      const std::size_t count = b[0].rows;
      loss<T>(op, b[0].matrix<const T>(), std::span<const std::int64_t>(classes.part(first, count)), value.part(first, count),
              b[1].matrix<T>(), call.per_row(first, count), call.gradients(first, count), call.ignored());
    });
  } else {
    on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
      const std::size_t count = b[0].rows;
      loss<T>(op, b[0].matrix<const T>(), b[1].matrix<const T>(), value.part(first, count), b[2].matrix<T>(),
              call.per_row(first, count), call.gradients(first, count));
    });
  }
  value.store();
  call.store_gradients();
}

void run_control(Call& call) {
  const EntropyControl op = make<EntropyControl>(call.info(), call.values());
  if constexpr (!kSmall) {
    if (const auto* const power = std::get_if<PowerTransform>(&op)) {
      return on_wide_rows(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
        power_transform<T>(*power, b[0].matrix<const T>(), b[1].matrix<T>(), call.per_row(first, b[0].rows));
      });
    }
  }
  const std::size_t rows = call["x"].rows();
  if (const auto* const estimate = std::get_if<MeanFieldEntropy>(&op)) {
    Column<double> value(call.where(), call["value"], rows);
    on_wide_rows(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
      mean_field_entropy<T>(*estimate, b[0].matrix<const T>(), value.part(first, b[0].rows));
    });
    return value.store();
  }
  Column<double> gamma(call.where(), call["gamma"], rows), reached(call.where(), call["reached"], rows);
  Column<std::int64_t> status(call.where(), call["status"], rows);
  on_wide_rows(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    const std::size_t count = b[0].rows;
    std::vector<GammaStatus> codes(count);
    gamma_for_entropy<T>(std::get<GammaForEntropy>(op), b[0].matrix<const T>(), gamma.part(first, count),
                         reached.part(first, count), codes, call.per_row(first, count));
    for (std::size_t r = 0; r < count; ++r) status.part(first, count)[r] = static_cast<std::int64_t>(codes[r]);
  });
  gamma.store(), reached.store(), status.store();
}

void run_sampling(Call& call) {
  const Sampling op = make<Sampling>(call.info(), call.values());
  std::vector<std::uint64_t> streams;
  if (const auto* const relaxed = std::get_if<GumbelSoftmax>(&op)) {
    return on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
      gumbel_softmax<T>(*relaxed, b[0].matrix<const T>(), b[1].matrix<T>(), call.noise(first, b[0].rows, streams));
    });
  }
  const Given& indices = checked_indices(call);
  std::vector<std::int64_t> drawn(indices.rows() * indices.cols());
  on_rows<!kSmall>(call, [&]<class T>(std::type_identity<T>, const RowBlock* b, std::size_t first) {
    sample<T>(std::get<Sample>(op), b[0].matrix<const T>(),
              MatrixView(drawn.data() + first * indices.cols(), b[0].rows, indices.cols()),
              call.noise(first, b[0].rows, streams));
  });
  store_integers(indices, drawn);
}

// A chain of steps is not an operation of the registry, because it takes a list of steps.
const FamilyInfo& sampler_family() {
  static const OperationInfo kAll[] = {
      {.family = "sampler",
       .name = "sampler_probs",
       .summary = "The distribution after a chain of steps.",
       .formula = "the first step acts on softmax(x), each other step on the result of the one before",
       .gradient = "none: it is for drawing",
       .source = "see the steps",
       .arrays = kStepArrays,
       .jacobian = {},
       .drawn = false,
       .command = {},
       .not_in = {},
       .laws = nullptr,
       .target = nullptr,
       .params = {},
       .index = 0},
      {.family = "sampler",
       .name = "sampler_sample",
       .summary = "Indices drawn from the distribution after a chain of steps.",
       .formula = "as sample, from sampler_probs",
       .gradient = "none: it is for drawing",
       .source = "see the steps",
       .arrays = kSampleArrays,
       .jacobian = {},
       .drawn = true,
       .command = {},
       .not_in = {},
       .laws = nullptr,
       .target = nullptr,
       .params = {},
       .index = 1},
  };
  static const FamilyInfo kFamily = {"sampler", "Chains of steps", "draws through steps", kAll};
  return kFamily;
}

struct Runner {
  const FamilyInfo& family;
  void (*run)(Call& call, bool vjp);
};

std::span<const Runner> runners() {
  static const Runner kAll[] = {
      {family_info<Map>(), run_map<Map>},
      {family_info<Logarithm>(), run_map<Logarithm>},
      {family_info<EntropyControl>(), [](Call& call, bool) { run_control(call); }},
      {family_info<Measure>(), [](Call& call, bool) { run_measure(call); }},
      {family_info<Divergence>(), [](Call& call, bool) { run_divergence(call); }},
      {family_info<TableMeasure>(), kSmall ? nullptr : +[](Call& call, bool) { run_table(call); }},
      {family_info<EntryMeasure>(), kSmall ? nullptr : +[](Call& call, bool) { run_entry(call); }},
      {family_info<Loss>(), [](Call& call, bool) { run_loss(call); }},
      {family_info<Sampling>(), [](Call& call, bool) { run_sampling(call); }},
      {sampler_family(), [](Call& call, bool) { run_sampler(call); }},
      {family_info<AttentionOperation>(), kSmall ? nullptr : run_attention},
      {family_info<Transport>(), [](Call& call, bool) { run_transport(call); }},
  };
  return kAll;
}

int run(const char* operation, const char* parameters, const isentropic_array* arrays, std::size_t count, bool vjp) {
  return guarded([&] {
    if (operation == nullptr) fail("operation must not be null");
    for (const Runner& runner : runners()) {
      const OperationInfo* const info = find_operation(runner.family, operation);
      if (info == nullptr || arrays_of(*info, vjp).empty()) continue;
      Call call(*info, parameters, arrays, count, vjp);
      return runner.run(call, vjp);
    }
    fail("operation must be a name in isentropic_registry(){}, got '{}'", vjp ? " with a vjp" : "", operation);
  });
}

std::string registry() {
  std::vector<std::string> all;
  for (const Runner& runner : runners()) {
    for (const OperationInfo& info : runner.family.operations) {
      if (!arrays_of(info, false).empty()) all.push_back(operation_json(info));
    }
  }
  return fmt::format("[{}]", fmt::join(all, ",\n"));
}

}  // namespace
}  // namespace isentropic::inline ISENTROPIC_ABI::by_name

extern "C" {

int isentropic_apply(const char* operation, const char* parameters, const isentropic_array* arrays, size_t count) {
  return isentropic::by_name::run(operation, parameters, arrays, count, false);
}

int isentropic_apply_vjp(const char* operation, const char* parameters, const isentropic_array* arrays, size_t count) {
  return isentropic::by_name::run(operation, parameters, arrays, count, true);
}

const char* isentropic_last_error(void) { return isentropic::last_error().c_str(); }

const char* isentropic_registry(void) {
  static const std::string all = isentropic::by_name::registry();
  return all.c_str();
}

const char* isentropic_version(void) { return ISENTROPIC_VERSION; }

int isentropic_interface_version(void) { return ISENTROPIC_C_VERSION; }

}  // extern "C"
