// Calls of plain tensors, compiled against one version of torch, whose name the module has: what _maps.py, _losses.py,
// _measures.py and _attention.py do in Python for tensors that no transform, mode or tangent sees, without the microseconds
// that Python takes for it. Each function returns None where it does not apply, or where the kernel finds a wrong type: then
// the package goes its way in Python, which says what is wrong.
//
// A kernel is a function of _core. It takes arrays as places (place.h), and then `tail`.

#include <ATen/EmptyTensor.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>
#include <Python.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "place.h"

namespace {

using at::Tensor;
using isentropic::kPlace;
using isentropic::Place;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// A Python object that is owned.
class Object {
 public:
  Object() = default;
  explicit Object(PyObject* owned) : object_(owned) {}
  Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { Py_XDECREF(object_); }
  static Object borrowed(PyObject* object) {
    Py_INCREF(object);
    return Object(object);
  }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

[[noreturn]] void raise_python() {
  python_error error;
  error.persist();
  throw std::move(error);
}

Object checked(PyObject* owned) {
  if (owned == nullptr) raise_python();
  return Object(owned);
}

// The numbers of types in python/params.h; -1 for others.
int code_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return 0;
    case at::kDouble:
      return 1;
    case at::kHalf:
      return 2;
    case at::kBFloat16:
      return 3;
    case at::kLong:
      return 4;
    case at::kBool:
      return 6;
    default:
      return -1;
  }
}
bool is_float(const Tensor& x) { return x.is_floating_point() && code_of(x.scalar_type()) >= 0; }
bool is_half(const Tensor& x) { return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16; }
at::ScalarType result_type(const Tensor& x) { return is_half(x) ? at::kFloat : x.scalar_type(); }

bool is_plain(const Tensor& x) {
  return x.is_cpu() && x.layout() == at::kStrided && !x.is_neg() && !x.is_conj() &&
         !x.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                                   c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::ZeroTensor}));
}

// The tensor of a plain torch.Tensor or nn.Parameter, or null.
const Tensor* plain(PyObject* object) {
  if (!THPVariable_CheckExact(object)) return nullptr;
  const Tensor& x = THPVariable_Unpack(object);
  return is_plain(x) ? &x : nullptr;
}

// Whether nobody looks on: no transform, tracer, mode or dual numbers.
bool is_quiet() {
  return (c10::impl::tls_local_dispatch_key_set().included_ - c10::default_included_set).empty() &&
         !at::impl::torch_function_mode_enabled() && torch::autograd::ForwardADLevel::try_get_by_idx(0) == nullptr;
}

// Above this many numbers what is kept for the gradient counts for more than the time of a call, and Python sees to it.
constexpr std::int64_t kLarge = std::int64_t{1} << 20;

// Where x lies; x owns its shape and strides.
Place place_of(const Tensor& x) {
  return {const_cast<void*>(x.const_data_ptr()), static_cast<int>(x.dim()), x.sizes().data(), x.strides().data(),
          code_of(x.scalar_type())};
}
Object capsule(Place& place) { return checked(PyCapsule_New(&place, kPlace, nullptr)); }

// kernel(places of the arrays, *tail, last).
void run(PyObject* kernel, std::span<const Tensor> arrays, PyObject* tail, PyObject* last = nullptr) {
  const auto further = static_cast<std::size_t>(PyTuple_GET_SIZE(tail));
  std::array<Place, 16> places;
  std::array<Object, 16> capsules;
  std::array<PyObject*, 32> arguments;
  TORCH_CHECK(arrays.size() <= places.size() && arrays.size() + further < arguments.size(), "isentropic: too many arguments");
  std::size_t count = 0;
  for (const Tensor& x : arrays) {
    if (x.defined()) {
      places[count] = place_of(x);
      capsules[count] = capsule(places[count]);
    }
    arguments[count] = x.defined() ? capsules[count].get() : Py_None;
    ++count;
  }
  for (std::size_t k = 0; k < further; ++k) arguments[count++] = PyTuple_GET_ITEM(tail, static_cast<Py_ssize_t>(k));
  if (last != nullptr) arguments[count++] = last;
  checked(PyObject_Vectorcall(kernel, arguments.data(), count, nullptr));
}

// A parameter that is a tensor, with its values for the rows of a kernel where it has several.
struct Parameter {
  Py_ssize_t at;  // among all parameters
  Tensor given, rows;
  Place place;
};

// What a gradient is made with. A rule is (kernel, kernel of its gradient or what else it needs, again), where again(*saved,
// grad, tail) gives the gradients in Python: where they are to be differentiated, and of tensors that stand for others. That of
// a map goes on with (kernel of its gradient with those in parameters, their names or None where there is none).
struct Rule : torch::CustomClassHolder {
  Object rule, tail;
  std::int64_t count = 0;  // the rows of a mean
  std::list<Parameter> parameters;

  Rule(PyObject* a_rule, PyObject* a_tail) : rule(Object::borrowed(a_rule)), tail(Object::borrowed(a_tail)) {}
  Rule(const Rule&) = delete;
  Rule& operator=(const Rule&) = delete;
  ~Rule() override {
    if (!Py_IsInitialized()) {
      rule.release(), tail.release();
      return;
    }
    const PyGILState_STATE state = PyGILState_Ensure();
    rule = Object(), tail = Object();
    PyGILState_Release(state);
  }
  PyObject* kernel() const { return PyTuple_GET_ITEM(rule.get(), 0); }
  PyObject* vjp() const { return PyTuple_GET_ITEM(rule.get(), 1); }
  PyObject* again() const { return PyTuple_GET_ITEM(rule.get(), 2); }
  PyObject* param_vjp() const { return PyTuple_GET_ITEM(rule.get(), 3); }
  PyObject* name(Py_ssize_t at) const { return PyTuple_GET_ITEM(PyTuple_GET_ITEM(rule.get(), 4), at); }
};
using RulePtr = c10::intrusive_ptr<Rule>;

RulePtr rule_of(AutogradContext* ctx) { return c10::static_intrusive_pointer_cast<Rule>(ctx->saved_data["rule"].toCapsule()); }
void keep(AutogradContext* ctx, const variable_list& saved, const RulePtr& rule) {
  ctx->save_for_backward(saved);
  ctx->saved_data["rule"] = c10::IValue::make_capsule(rule);
}

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Whether the gradient may be made here.
bool is_last(const Tensor& grad) { return !c10::GradMode::is_enabled() && is_plain(grad) && is_quiet(); }

variable_list again(const Rule& rule, std::span<const Tensor> saved, const Tensor& grad, PyObject* tail, std::size_t results) {
  const auto count = static_cast<Py_ssize_t>(saved.size());
  const Object arguments = checked(PyTuple_New(count + 2));
  for (Py_ssize_t k = 0; k < count; ++k) {
    const Tensor& one = saved[static_cast<std::size_t>(k)];
    PyTuple_SET_ITEM(arguments.get(), k,
                     one.defined() ? checked(THPVariable_Wrap(one)).release() : Object::borrowed(Py_None).release());
  }
  PyTuple_SET_ITEM(arguments.get(), count, checked(THPVariable_Wrap(grad)).release());
  PyTuple_SET_ITEM(arguments.get(), count + 1, Object::borrowed(tail).release());
  const Object found = checked(PyObject_CallObject(rule.again(), arguments.get()));
  TORCH_CHECK(PyTuple_Check(found.get()) && PyTuple_GET_SIZE(found.get()) == static_cast<Py_ssize_t>(results),
              "isentropic: one gradient for each tensor is wanted");
  variable_list gradients(results);
  for (std::size_t k = 0; k < results; ++k) {
    PyObject* const one = PyTuple_GET_ITEM(found.get(), static_cast<Py_ssize_t>(k));
    if (one != Py_None) gradients[k] = THPVariable_Unpack(one);
  }
  return gradients;
}

// Without torch's dispatcher, which would find nothing more to do.
Tensor empty(at::IntArrayRef shape, at::ScalarType type) { return Tensor(at::detail::empty_cpu(shape, type)); }
Tensor empty_as(const Tensor& x) { return empty(x.sizes(), x.scalar_type()); }

// y of x's shape, and J^T g of x, y and g. tail: (dim, parameters).
Tensor mapped(const Tensor& x, PyObject* kernel, PyObject* tail) {
  Tensor y = empty_as(x);
  run(kernel, std::array{x, y}, tail);
  return y;
}

// (dim, parameters), with `value(parameter)` in place of those that are tensors.
template <class Value>
Object tail_with(PyObject* tail, std::list<Parameter>& parameters, const Value& value) {
  PyObject* const values = PyTuple_GET_ITEM(tail, 1);
  const Py_ssize_t count = PyTuple_GET_SIZE(values);
  const Object changed = checked(PyTuple_New(count));
  auto next = parameters.begin();
  for (Py_ssize_t k = 0; k < count; ++k) {
    const bool is_next = next != parameters.end() && next->at == k;
    PyTuple_SET_ITEM(changed.get(), k, (is_next ? value(*next++) : Object::borrowed(PyTuple_GET_ITEM(values, k))).release());
  }
  return checked(PyTuple_Pack(2, PyTuple_GET_ITEM(tail, 0), changed.get()));
}

struct Map : Function<Map> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, at::TensorList parameters, const RulePtr& rule) {
    Tensor y = mapped(x, rule->kernel(), rule->tail.get());
    variable_list saved{x, y};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    keep(ctx, saved, rule);
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const RulePtr rule = rule_of(ctx);
    const std::size_t count = 1 + rule->parameters.size();
    variable_list results(count + 1);
    if (!grads[0].defined()) return results;
    const variable_list saved = ctx->get_saved_variables();
    const Gil gil;
    if (!is_last(grads[0])) {
      auto given = saved.begin() + 2;
      const Object tail =
          tail_with(rule->tail.get(), rule->parameters, [&](Parameter&) { return checked(THPVariable_Wrap(*given++)); });
      const variable_list found = again(*rule, std::span(saved).first(2), grads[0], tail.get(), count);
      std::copy(found.begin(), found.end(), results.begin());
      return results;
    }
    const Tensor dx = results[0] = empty_as(saved[1]);
    const std::array arrays{saved[0], saved[1], grads[0], dx};
    slopes(*ctx, *rule, arrays, std::span(results).subspan(1, count - 1));
    return results;
  }

 private:
  // dx, and the gradients in those parameters where one is wanted, each summed over the rows that share a number.
  static void slopes(AutogradContext& ctx, const Rule& rule, std::span<const Tensor> arrays, std::span<Tensor> results) {
    const auto wanted = [&](std::size_t k) { return ctx.needs_input_grad(1 + k); };
    Py_ssize_t count = 0;
    for (std::size_t k = 0; k < results.size(); ++k) count += wanted(k);
    if (count == 0) return run(rule.vjp(), arrays, rule.tail.get());
    at::DimVector shape(arrays[0].sizes());
    const long long dim = PyLong_AsLongLong(PyTuple_GET_ITEM(rule.tail.get(), 0));
    shape[static_cast<std::size_t>(dim < 0 ? dim + arrays[0].dim() : dim)] = 1;
    const Object asked = checked(PyTuple_New(count));
    std::list<Place> places;
    std::size_t k = 0;
    for (const Parameter& parameter : rule.parameters) {
      Tensor& of_rows = results[k];
      if (!wanted(k++)) continue;
      of_rows = empty(shape, at::kDouble);
      const auto at = static_cast<Py_ssize_t>(places.size());
      places.push_back(place_of(of_rows));
      const Object place = capsule(places.back());
      PyTuple_SET_ITEM(asked.get(), at, checked(PyTuple_Pack(2, rule.name(parameter.at), place.get())).release());
    }
    run(rule.param_vjp(), arrays, rule.tail.get(), asked.get());
    const at::AutoDispatchBelowADInplaceOrView here;
    k = 0;
    for (const Parameter& parameter : rule.parameters) {
      Tensor& slope = results[k++];
      if (slope.defined()) slope = as_given(slope, parameter.given);
    }
  }

  // A double for each row, as the gradient of the given tensor. torch's operators would take longer than a row of 16 numbers.
  static Tensor as_given(const Tensor& of_rows, const Tensor& given) {
    if (of_rows.numel() == given.numel() && given.scalar_type() == at::kFloat) {
      Tensor slope = empty_as(given);
      std::copy_n(of_rows.const_data_ptr<double>(), of_rows.numel(), slope.mutable_data_ptr<float>());
      return slope;
    }
    const Tensor sum = of_rows.numel() == given.numel() ? of_rows.view(given.sizes()) : of_rows.sum_to_size(given.sizes());
    return sum.to(given.scalar_type());
  }
};

// One number for each row along `dim` of the first tensor, and in the same pass, where wanted, for each tensor of
// floating-point numbers its gradient if it requires one.
std::pair<Tensor, variable_list> reduced(std::span<const Tensor> tensors, const Rule& rule, std::int64_t dim, bool wanted) {
  const Tensor& x = tensors[0];
  at::DimVector shape(x.sizes());
  shape.erase(shape.begin() + dim);
  Tensor value = empty(shape, result_type(x));
  std::vector<Tensor> arrays(tensors.begin(), tensors.end());
  arrays.push_back(value);
  variable_list slopes;
  for (const Tensor& one : tensors) {
    if (!one.is_floating_point()) continue;
    slopes.push_back(wanted && one.requires_grad() ? empty_as(one) : Tensor());
    arrays.push_back(slopes.back());
  }
  run(rule.kernel(), arrays, rule.tail.get());
  return {value, slopes};
}

Tensor mean(const Tensor& value, std::int64_t count) {
  const at::AutoDispatchBelowADInplaceOrView here;
  if (count == 1 && value.numel() == 1) return value.view(at::IntArrayRef());
  return count == value.numel() ? at::mean(value) : at::sum(value).div(static_cast<double>(count));
}

struct Reduction : Function<Reduction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const std::optional<Tensor>& target, const RulePtr& rule,
                        std::int64_t dim, bool of_mean) {
    std::vector<Tensor> tensors{x};
    if (target) tensors.push_back(*target);
    auto [value, slopes] = reduced(tensors, *rule, dim, true);
    tensors.insert(tensors.end(), slopes.begin(), slopes.end());
    keep(ctx, tensors, rule);
    ctx->saved_data["dim"] = dim;
    ctx->saved_data["two"] = target.has_value();
    ctx->saved_data["mean"] = of_mean;
    return of_mean ? mean(value, rule->count) : value;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list results(5);
    if (!grads[0].defined()) return results;
    const RulePtr rule = rule_of(ctx);
    const variable_list saved = ctx->get_saved_variables();
    const bool two = ctx->saved_data["two"].toBool(), of_mean = ctx->saved_data["mean"].toBool();
    const std::int64_t dim = ctx->saved_data["dim"].toInt();
    const std::size_t tensors = two ? 2 : 1;
    // Where all rows are ignored, the mean is 0 / 0, but their gradients are 0.
    const auto rows = static_cast<double>(std::max(rule->count, std::int64_t{1}));
    Tensor grad = of_mean ? grads[0].div(rows) : grads[0];
    if (!is_last(grad)) {
      const Gil gil;
      if (of_mean) {
        at::DimVector shape(saved[0].sizes());
        shape.erase(shape.begin() + dim);
        grad = grad.expand(shape);
      }
      const variable_list found = again(*rule, std::span(saved).first(tensors), grad, rule->tail.get(), tensors);
      std::copy(found.begin(), found.end(), results.begin());
      return results;
    }
    if (!of_mean) grad = grad.unsqueeze(dim);
    for (std::size_t k = 0, next = tensors; k < tensors; ++k) {
      if (!saved[k].is_floating_point()) continue;
      const Tensor& slope = saved[next++];
      if (!slope.defined()) continue;
      // If the graph is not kept, the saved slope may be overwritten.
      const bool last = !torch::autograd::get_current_graph_task_keep_graph() && slope.scalar_type() == grad.scalar_type();
      const at::AutoDispatchBelowADInplaceOrView here;
      results[k] = last ? slope.detach().mul_(grad) : at::mul(slope, grad).to(slope.scalar_type());
    }
    return results;
  }
};

// out, and the gradients in q, k and v.
Tensor attended(std::span<const Tensor> wide, at::ScalarType type, const Rule& rule) {
  at::DimVector shape(wide[0].sizes());
  shape.back() = wide[2].size(-1);
  Tensor out = empty(shape, wide[0].scalar_type());
  run(rule.kernel(), std::array{wide[0], wide[1], wide[2], out, wide[3], wide[4], Tensor(), Tensor()}, rule.tail.get());
  return out.to(type);
}

// q, k, v without gaps in their rows, and the masks of bools and of numbers, in float32 or float64.
std::array<Tensor, 5> widened(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  const auto rows = [](const Tensor& x) {
    Tensor wide = x.to(result_type(x));
    return wide.size(-1) <= 1 || wide.stride(-1) == 1 ? wide : wide.contiguous();
  };
  std::array<Tensor, 5> all{rows(q), rows(k), rows(v)};
  if (mask.defined()) all[mask.scalar_type() == at::kBool ? 3 : 4] = mask.is_floating_point() ? mask.to(result_type(q)) : mask;
  return all;
}

struct Attention : Function<Attention> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::optional<Tensor>& mask, const RulePtr& rule) {
    const Tensor seen = mask.value_or(Tensor());
    keep(ctx, {q, k, v, seen}, rule);
    return attended(widened(q, k, v, seen), q.scalar_type(), *rule);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list results(5);
    if (!grads[0].defined()) return results;
    const RulePtr rule = rule_of(ctx);
    const variable_list saved = ctx->get_saved_variables();
    const Gil gil;
    if (!is_last(grads[0])) {
      const variable_list found = again(*rule, saved, grads[0], rule->tail.get(), 3);
      std::copy(found.begin(), found.end(), results.begin());
      return results;
    }
    const auto wide = widened(saved[0], saved[1], saved[2], saved[3]);
    const Tensor grad = grads[0].to(wide[0].scalar_type()).contiguous();
    std::array<Tensor, 3> gradients;
    for (std::size_t k = 0; k < 3; ++k) gradients[k] = empty_as(wide[k]);
    run(rule->vjp(), std::array{wide[0], wide[1], wide[2], grad, gradients[0], gradients[1], gradients[2], wide[3], wide[4]},
        rule->tail.get());
    for (std::size_t k = 0; k < 3; ++k) results[k] = gradients[k].to(saved[k].scalar_type());
    return results;
  }
};

// What a call in Python becomes.

bool wants_gradient(std::initializer_list<const Tensor*> tensors) {
  if (!c10::GradMode::is_enabled()) return false;
  return std::ranges::any_of(tensors, [](const Tensor* x) { return x != nullptr && x->requires_grad(); });
}

bool is_simple(PyObject* value) {
  return PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBool_Check(value) ||
         value == Py_None;
}

// Whether parameters are numbers, names and flags, and no tensors, of which Python would make numbers without their gradients.
bool are_simple(PyObject* values) {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(values); ++k) {
    if (!is_simple(PyTuple_GET_ITEM(values, k))) return false;
  }
  return true;
}

// The parameters of a map of x along `dim` that are tensors, in rule.parameters, and in rule.tail what the kernel takes for
// them: numbers where there is one, that of a tensor which nobody differentiates for good. False where there are others.
bool read_parameters(Rule& rule, PyObject* tail, const Tensor& x, std::int64_t dim) {
  PyObject* const values = PyTuple_GET_ITEM(tail, 1);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(values); ++k) {
    PyObject* const value = PyTuple_GET_ITEM(values, k);
    if (is_simple(value)) continue;
    const Tensor* const given = plain(value);
    if (given == nullptr || !is_float(*given) || given->dim() > x.dim()) return false;
    const bool learned = given->requires_grad() && c10::GradMode::is_enabled();
    const bool is_number = given->numel() == 1;
    if ((learned || !is_number) && rule.name(k) == Py_None) return false;
    for (std::int64_t d = 1; d <= given->dim(); ++d) {
      const std::int64_t wanted = x.dim() - d == dim ? 1 : x.size(-d);
      if (given->size(-d) != 1 && given->size(-d) != wanted) return false;
    }
    Parameter& parameter = rule.parameters.emplace_back(Parameter{k, *given, Tensor(), Place()});
    const at::AutoDispatchBelowADInplaceOrView here;
    if (!is_number) {
      parameter.rows = given->to(at::kDouble).contiguous();
      parameter.place = place_of(parameter.rows);
    }
  }
  const auto value = [](Parameter& one) {
    return one.rows.defined() ? capsule(one.place) : checked(PyFloat_FromDouble(one.given.item().toDouble()));
  };
  if (!rule.parameters.empty()) rule.tail = tail_with(tail, rule.parameters, value);
  return true;
}

// body(): a tensor or none. None also where the kernel finds a wrong type or axis.
template <class Body>
PyObject* answer(const Body& body) {
  try {
    const std::optional<Tensor> found = body();
    if (found) return THPVariable_Wrap(*found);
    Py_RETURN_NONE;
  } catch (python_error& error) {
    error.restore();
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_IndexError)) return nullptr;
    PyErr_Clear();
    Py_RETURN_NONE;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

// The axis that a Python int numbers, from either end; -1 where there is none.
std::int64_t axis_of(PyObject* dim, std::int64_t dims) {
  if (!PyLong_CheckExact(dim)) return -1;
  const long long at = PyLong_AsLongLong(dim);
  if (at == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    return -1;
  }
  return at < -dims || at >= dims ? -1 : at < 0 ? at + dims : at;
}

// map(rule, x, tail), tail (dim, parameters).
PyObject* py_map(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  const Tensor* const x = plain(arguments[1]);
  if (x == nullptr || !is_float(*x) || !is_quiet()) Py_RETURN_NONE;
  const std::int64_t dim = axis_of(PyTuple_GET_ITEM(arguments[2], 0), x->dim());
  if (dim < 0) Py_RETURN_NONE;
  return answer([&]() -> std::optional<Tensor> {
    if (are_simple(PyTuple_GET_ITEM(arguments[2], 1)) && !wants_gradient({x})) {
      return mapped(*x, PyTuple_GET_ITEM(arguments[0], 0), arguments[2]);
    }
    const auto rule = c10::make_intrusive<Rule>(arguments[0], arguments[2]);
    if (!read_parameters(*rule, arguments[2], *x, dim)) return {};
    variable_list parameters;
    bool tracked = wants_gradient({x});
    for (const Parameter& parameter : rule->parameters) {
      parameters.push_back(parameter.given);
      tracked = tracked || wants_gradient({&parameter.given});
    }
    if (!tracked) return mapped(*x, rule->kernel(), rule->tail.get());
    if (x->numel() >= kLarge) return {};
    return Map::apply(*x, at::TensorList(parameters), rule);
  });
}

// reduction(rule, tensors, tail, mean, ignore_index), tail (dim, parameters, ...), where the rule has the number of tensors
// that have a gradient in place of its kernel: one tensor, two of one shape and type, or one and classes. mean: whether the
// mean is wanted, over rows whose class is not ignore_index (or None).
PyObject* py_reduction(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  PyObject* const given = arguments[1];
  PyObject* const tail = arguments[2];
  const bool of_mean = arguments[3] == Py_True;
  const Tensor* const x = plain(PyTuple_GET_ITEM(given, 0));
  const Tensor* const target = PyTuple_GET_SIZE(given) > 1 ? plain(PyTuple_GET_ITEM(given, 1)) : nullptr;
  if (x == nullptr || !is_float(*x) || !is_quiet() || !are_simple(PyTuple_GET_ITEM(tail, 1))) Py_RETURN_NONE;
  const std::int64_t dim = axis_of(PyTuple_GET_ITEM(tail, 0), x->dim());
  if (dim < 0) Py_RETURN_NONE;
  if (PyTuple_GET_SIZE(given) > 1) {
    if (target == nullptr) Py_RETURN_NONE;
    at::DimVector shape(x->sizes());
    if (target->scalar_type() == at::kLong) {
      shape.erase(shape.begin() + dim);
    } else if (target->scalar_type() != x->scalar_type() || PyLong_AsLong(PyTuple_GET_ITEM(arguments[0], 1)) < 2) {
      Py_RETURN_NONE;
    }
    if (target->sizes() != at::IntArrayRef(shape)) Py_RETURN_NONE;
  }
  const bool tracked = wants_gradient({x, target});
  if (tracked && x->numel() >= kLarge) Py_RETURN_NONE;
  std::int64_t count = 0;
  if (of_mean) {
    if (target == nullptr || target->scalar_type() != at::kLong || !target->is_contiguous()) Py_RETURN_NONE;
    count = target->numel();
    if (arguments[4] != Py_None) {
      if (!PyLong_CheckExact(arguments[4])) Py_RETURN_NONE;
      const long long ignored = PyLong_AsLongLong(arguments[4]);
      if (ignored == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        Py_RETURN_NONE;
      }
      const auto* const classes = target->const_data_ptr<std::int64_t>();
      count -= std::count(classes, classes + count, static_cast<std::int64_t>(ignored));
    }
  }
  return answer([&] {
    const auto rule = c10::make_intrusive<Rule>(arguments[0], tail);
    rule->count = count;
    const auto second = target == nullptr ? std::nullopt : std::optional(*target);
    if (tracked) return Reduction::apply(*x, second, rule, dim, of_mean);
    const std::array both{*x, second.value_or(Tensor())};
    const Tensor value = reduced(std::span(both).first(second ? 2 : 1), *rule, dim, false).first;
    return of_mean ? mean(value, count) : value;
  });
}

// attention(rule, q, k, v, mask or None, tail), tail (name of the map, its parameters, (scale, number, train_length, kappa,
// causal)).
PyObject* py_attention(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  const Tensor* const q = plain(arguments[1]);
  const Tensor* const k = plain(arguments[2]);
  const Tensor* const v = plain(arguments[3]);
  const Tensor* mask = nullptr;
  PyObject* const tail = arguments[5];
  if (q == nullptr || k == nullptr || v == nullptr || !is_float(*q) || k->scalar_type() != q->scalar_type() ||
      v->scalar_type() != q->scalar_type() || !is_quiet() || at::autocast::is_autocast_enabled(at::kCPU) ||
      !are_simple(PyTuple_GET_ITEM(tail, 1)) || !are_simple(PyTuple_GET_ITEM(tail, 2))) {
    Py_RETURN_NONE;
  }
  const std::int64_t dims = q->dim();
  if (dims < 2 || dims > 4 || k->dim() != dims || v->dim() != dims || k->size(-1) != q->size(-1) ||
      k->size(-2) != v->size(-2)) {
    Py_RETURN_NONE;
  }
  for (std::int64_t d = 0; d < dims - 2; ++d) {
    const std::int64_t ours = q->size(d), theirs = k->size(d);
    const bool shares = d == dims - 3 && theirs > 0 && ours % theirs == 0;
    if (v->size(d) != theirs || (ours != theirs && !shares)) Py_RETURN_NONE;
  }
  at::DimVector shape(q->sizes());
  shape.back() = k->size(-2);
  if (arguments[4] != Py_None) {
    mask = plain(arguments[4]);
    if (mask == nullptr || mask->requires_grad() || mask->dim() > dims ||
        (mask->scalar_type() != at::kBool && mask->scalar_type() != q->scalar_type())) {
      Py_RETURN_NONE;
    }
    for (std::int64_t d = 1; d <= mask->dim(); ++d) {
      if (mask->size(-d) != 1 && mask->size(-d) != shape[static_cast<std::size_t>(dims - d)]) Py_RETURN_NONE;
    }
  }
  return answer([&] {
    const auto rule = c10::make_intrusive<Rule>(arguments[0], tail);
    const auto seen = mask == nullptr ? std::nullopt : std::optional(mask->expand(at::IntArrayRef(shape)));
    if (wants_gradient({q, k, v})) return Attention::apply(*q, *k, *v, seen, rule);
    return attended(widened(*q, *k, *v, seen.value_or(Tensor())), q->scalar_type(), *rule);
  });
}

template <PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t), Py_ssize_t count>
PyObject* counted(PyObject* self, PyObject* const* arguments, Py_ssize_t given) {
  if (given == count) return function(self, arguments, given);
  PyErr_Format(PyExc_TypeError, "%zd arguments are wanted, got %zd", count, given);
  return nullptr;
}

template <PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t), Py_ssize_t count>
PyMethodDef method(const char* name) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&counted<function, count>)), METH_FASTCALL, nullptr};
}

PyMethodDef methods[] = {
    method<py_map, 3>("map"), method<py_reduction, 5>("reduction"), method<py_attention, 6>("attention"), {}};

#define ISENTROPIC_TEXT2(name) #name
#define ISENTROPIC_TEXT(name) ISENTROPIC_TEXT2(name)
#define ISENTROPIC_JOINED2(a, b) a##b
#define ISENTROPIC_JOINED(a, b) ISENTROPIC_JOINED2(a, b)

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, ISENTROPIC_TEXT(ISENTROPIC_TORCH_NAME), nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC ISENTROPIC_JOINED(PyInit_, ISENTROPIC_TORCH_NAME)() { return PyModule_Create(&module); }
