// Operations for Python: each of the registry as a dict with its functions, all of them one call by description on arrays of
// any strides.
//
// run(*arrays, axis, params) and vjp(*arrays, axis, params) take the arrays of the description in its order; None leaves one
// out. axis is that of the rows; where the first array is of no rows, there is none. Further arguments follow where the
// description has them: ignore_index of a loss; slopes, for each wanted gradient in a parameter its name and an array of
// float64 with one number for each row; seed, streams and position of what is drawn.

#include <isentropic/call.h>

#include <algorithm>
#include <array>
#include <list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "params.h"

namespace isentropic {
namespace {

constexpr NumberType kNumberTypes[] = {NumberType::float32, NumberType::float64, NumberType::float16, NumberType::bfloat16,
                                       NumberType::int64,   NumberType::int32,   NumberType::boolean};

void set(CallArray& array, const Buffer& a) {
  if (!a.given()) return;
  const auto axes = static_cast<std::size_t>(a->ndim);
  array.data = a->data, array.shape = {a->shape, axes}, array.strides = {a->strides, axes};
  array.item_size = static_cast<std::size_t>(a->item_size());
  array.type = kNumberTypes[static_cast<std::size_t>(a->type)];
}
CallArray call_array(const Buffer& a) {
  CallArray array;
  set(array, a);
  return array;
}

constexpr std::string_view kTargets[] = {"class or distribution", "class", "labels", "scores"};

// The names of a loss's scores and target.
std::pair<std::string_view, std::string_view> arguments_of(TargetKind kind) {
  if (kind == TargetKind::scores) return {"student", "teacher"};
  return {kind == TargetKind::classes ? "cosines" : "x", "target"};
}

// The name of an array in Python, where the result is `out`.
std::string_view name_of(const OperationInfo& info, const ArrayInfo& array, std::size_t index) {
  if (info.target != nullptr && index < 2) {
    const auto [scores, target] = arguments_of(*info.target);
    return index == 0 ? scores : target;
  }
  const bool only = index == 1 && info.arrays.size() == 2 && info.arrays[0].kind == ArrayKind::row;
  return only && array.output ? "out" : array.name;
}

void replace(std::string& text, std::string_view what, std::string_view by) {
  if (const std::size_t at = text.find(what); at != std::string::npos) text.replace(at, what.size(), by);
}

// Runs the call; the advice in its errors is written as in Python.
void run_in_words_of_python(Runner run, const Call& call) {
  const nb::gil_scoped_release release;
  try {
    run(call);
  } catch (const std::invalid_argument& error) {
    std::string text = error.what();
    replace(text, "Sampler::", "Sampler.");
    replace(text, "(input scores takes scores)", "(input=\"scores\" takes scores)");
    replace(text, "(normalize divides by the sum)", "(normalize=True divides by the sum, input=\"scores\" takes scores)");
    throw std::invalid_argument(text);
  }
}

// The positional arguments of a call, one after the other.
class Given {
 public:
  explicit Given(std::span<const nb::handle> all) : all_(all) {}
  nb::handle next() { return all_[at_++]; }

 private:
  std::span<const nb::handle> all_;
  std::size_t at_ = 0;
};

// kMost: at least the number of arrays.
template <std::size_t kMost>
class PythonCall {
 public:
  PythonCall(const OperationInfo& info, bool vjp, std::string_view where, Given& given)
      : call_{.operation = info, .vjp = vjp, .values = {}, .arrays = {}, .where = where}, where_(where) {
    const std::span<const ArrayInfo> infos = vjp ? info.jacobian.arrays : info.arrays;
    for (std::size_t i = 0; i < infos.size(); ++i) {
      buffers_[i].read(where_, given.next(), infos[i].output);
      set(arrays_[i], buffers_[i]);
      arrays_[i].name = name_of(info, infos[i], i);
    }
    call_.arrays = std::span(arrays_).first(infos.size());
  }
  PythonCall(const PythonCall&) = delete;
  PythonCall& operator=(const PythonCall&) = delete;

  void take_axis(nb::handle axis) { call_.axis = to_axis(where_, axis, buffers_[0]->ndim, arrays_[0].name); }
  void take_params(nb::handle values) {
    params_.emplace(call_.operation, values);
    call_.values = params_->values;
    for (const ParamValues::Array& array : params_->arrays) {
      rows_.push_back({.name = array.parameter, .values = call_array(array.buffer), .gradient = {}});
    }
  }
  void take_slopes(nb::handle pairs) {
    if (pairs.is_none()) return;
    for (const nb::handle pair : pairs) {
      slopes_.emplace_back(where_, pair[1], true);
      const auto name = nb::cast<std::string_view>(pair[0]);
      auto row = std::ranges::find(rows_, name, &RowParameter::name);
      if (row == rows_.end()) row = rows_.insert(row, {.name = name, .values = {}, .gradient = {}});
      row->gradient = call_array(slopes_.back());
    }
  }
  void take_ignore_index(nb::handle index) {
    if (!index.is_none()) call_.ignore_index = to_int(where_, "ignore_index", index);
  }
  void take_noise(nb::handle seed, nb::handle streams, nb::handle position) {
    call_.seed = nb::cast<std::uint64_t>(seed);
    call_.position = nb::cast<std::uint64_t>(position);
    streams_.emplace(where_, streams, false);
    call_.streams = call_array(*streams_);
  }
  void run(Runner runner, const Sampler* sampler = nullptr) {
    call_.row_parameters = rows_;
    call_.sampler = sampler;
    run_in_words_of_python(runner, call_);
  }

 private:
  Call call_;
  std::string_view where_;
  std::array<Buffer, kMost> buffers_;
  std::array<CallArray, kMost> arrays_;
  std::optional<ParamValues> params_;
  std::list<Buffer> slopes_;
  std::vector<RowParameter> rows_;
  std::optional<Buffer> streams_;
};

template <std::size_t>
using Argument = nb::handle;

// A function with as many arguments as the call has: to make a tuple of them takes a twentieth of a small call.
template <std::size_t... k>
nb::object function(const OperationInfo& info, bool vjp, bool slopes, std::index_sequence<k...>) {
  constexpr std::size_t kCount = sizeof...(k);
  return nb::cpp_function(
      [&info, vjp, slopes, where = std::string(info.name) + (vjp ? "_vjp" : ""),
       runner = runner_of(info, vjp)](Argument<k>... all) {
        const std::array<nb::handle, kCount> arguments = {all...};
        Given given(arguments);
        PythonCall<kCount> call(info, vjp, where, given);
        if (info.arrays[0].kind == ArrayKind::row) call.take_axis(given.next());
        call.take_params(given.next());
        if (info.target != nullptr) call.take_ignore_index(given.next());
        if (info.drawn) {
          const nb::handle seed = given.next(), streams = given.next();
          call.take_noise(seed, streams, given.next());
        }
        if (slopes) call.take_slopes(given.next());
        call.run(runner);
      },
      (static_cast<void>(k), nb::arg().none())...);
}
nb::object function(const OperationInfo& info, bool vjp, bool slopes) {
  const std::size_t count = (vjp ? info.jacobian.arrays : info.arrays).size() +
                            (info.arrays[0].kind == ArrayKind::row ? 2 : 1) + (info.target != nullptr ? 1 : 0) +
                            (info.drawn ? 3 : 0) + (slopes ? 1 : 0);
  nb::object made;
  [&]<std::size_t... n>(std::index_sequence<n...>) {
    ((n == count ? (void)(made = function(info, vjp, slopes, std::make_index_sequence<n>())) : void()), ...);
  }
  (std::index_sequence<3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>());
  if (!made.is_valid())
    throw std::logic_error(std::string(info.name) + ": a call cannot have " + std::to_string(count) + " arguments");
  return made;
}

// The family's operations with their functions.
nb::list operations(const FamilyInfo& family) {
  nb::list all;
  for (const OperationInfo& info : family.operations) {
    nb::dict d = describe(info);
    if (info.target != nullptr) {
      const auto [scores, target] = arguments_of(*info.target);
      d["target"] = to_str(kTargets[static_cast<std::size_t>(*info.target)]);
      d["arguments"] = nb::make_tuple(to_str(scores), to_str(target));
    }
    const bool loss = info.target != nullptr;
    if (runner_of(info, false) != nullptr) {
      d["run"] = d["forward"] = function(info, false, loss);
      if (!loss) d["param_run"] = function(info, false, true);
    }
    if (runner_of(info, true) != nullptr) {
      d["vjp"] = function(info, true, false);
      d["param_vjp"] = function(info, true, true);
    }
    all.append(d);
  }
  return all;
}

// A step from its name and the values of its parameters.
Step to_step(const std::string& name, nb::handle values) {
  const FamilyInfo& steps = family_info<Step>();
  if (const OperationInfo* const info = find_operation(steps, name))
    return make<Step>(*info, ParamValues(*info, values).values);
  throw nb::value_error(("Sampler: a step " + unknown_name(steps, name)).c_str());
}

Sampler to_sampler(const nb::list& steps, std::uint64_t seed) {
  std::vector<Step> chain;
  for (const nb::handle step : steps) chain.push_back(to_step(nb::cast<std::string>(step[0]), step[1]));
  return Sampler(std::move(chain), seed);
}

// (x, p, tokens, axis), or (x, indices, tokens, bounds, p, axis, streams, position).
void run_chain(const Sampler& sampler, std::string_view name, std::string_view where, std::span<const nb::handle> arguments) {
  const OperationInfo& info = *find_operation(chains(), name);
  Given given(arguments);
  PythonCall<5> call(info, false, where, given);
  call.take_axis(given.next());
  if (info.drawn) {
    const nb::handle streams = given.next();
    call.take_noise(nb::int_(0), streams, given.next());
  }
  call.run(runner_of(info, false), &sampler);
}

}  // namespace

void bind_calls(nb::module_& m) {
  // The families by the functions that list them.
  const auto list = [&m](const char* name, std::vector<const FamilyInfo*> families) {
    m.def(name, [families] {
      nb::list all;
      for (const FamilyInfo* family : families) all.extend(operations(*family));
      return all;
    });
  };
  list("operations", {&family_info<Map>(), &family_info<Logarithm>(), &family_info<Selection>()});
  list("losses", {&family_info<Loss>()});
  list("sparse_losses", {&family_info<SparseLoss>()});
  list("measure_operations",
       {&family_info<Measure>(), &family_info<Divergence>(), &family_info<TableMeasure>(), &family_info<EntryMeasure>()});
  list("count_operations", {&family_info<CountMeasure>(), &family_info<CountTableMeasure>()});
  list("control_operations", {&family_info<EntropyControl>()});
  list("sampling_operations", {&family_info<Sampling>()});
  list("sampling_steps", {&family_info<Step>()});
  list("transport_operations", {&family_info<Transport>()});
  list("table_maps", {&family_info<TableMap>()});
  list("calibration_operations", {&family_info<Calibration>()});
  list("attention_operations", {&family_info<AttentionOperation>()});
  // Those that are written by hand in Python call these functions.
  for (const FamilyInfo* family : {&family_info<EntropyControl>(), &family_info<CountMeasure>(),
                                   &family_info<CountTableMeasure>(), &family_info<SparseLoss>(), &family_info<Sampling>(),
                                   &family_info<Transport>(), &family_info<TableMap>(), &family_info<AttentionOperation>()}) {
    for (const OperationInfo& info : family->operations) {
      for (const bool vjp : {false, true}) {
        if (runner_of(info, vjp) != nullptr) {
          const bool slopes = vjp && info.params[0].kind == ParamKind::map;
          m.attr((std::string(info.name) + (vjp ? "_vjp" : "")).c_str()) = function(info, vjp, slopes);
        }
      }
    }
  }
  nb::class_<Sampler>(m, "Sampler")
      .def(
          "__init__",
          [](Sampler* self, const nb::list& steps, std::uint64_t seed) { new (self) Sampler(to_sampler(steps, seed)); },
          nb::arg("steps"), nb::arg("seed"))
      .def(
          "probs",
          [](const Sampler& self, nb::handle x, nb::handle p, nb::handle tokens, nb::handle axis) {
            run_chain(self, "sampler_probs", "Sampler.probs", std::array{x, p, tokens, axis});
          },
          nb::arg("x"), nb::arg("p"), nb::arg("tokens").none(), nb::arg("axis"))
      .def(
          "log_probs",
          [](const Sampler& self, nb::handle x, nb::handle y, nb::handle tokens, nb::handle axis) {
            run_chain(self, "sampler_log_probs", "Sampler.log_probs", std::array{x, y, tokens, axis});
          },
          nb::arg("x"), nb::arg("y"), nb::arg("tokens").none(), nb::arg("axis"))
      .def(
          "sample",
          [](const Sampler& self, nb::handle x, nb::handle indices, nb::handle tokens, nb::handle bounds, nb::handle p,
             nb::handle axis, nb::handle streams, nb::handle position) {
            run_chain(self, "sampler_sample", "Sampler.sample",
                      std::array{x, indices, tokens, bounds, p, axis, streams, position});
          },
          nb::arg("x"), nb::arg("indices"), nb::arg("tokens").none(), nb::arg("bounds").none(), nb::arg("p").none(),
          nb::arg("axis"), nb::arg("streams"), nb::arg("position"));
  m.def(
      "normalize_axis", [](const std::string& where, nb::handle axis, int dims) { return to_axis(where, axis, dims); },
      nb::arg("where"), nb::arg("axis").none(), nb::arg("dims"));
}

}  // namespace isentropic
