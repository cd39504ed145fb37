// Calls of plain tensors, compiled against one version of torch, whose name the module has: what _maps.py, _losses.py,
// _measures.py and _attention.py do in Python for tensors that no transform, mode or tangent sees, without the microseconds
// that Python takes for it. Each function returns None where it does not apply, or where the kernel finds a wrong type: then
// the package goes its way in Python, which says what is wrong.
//
// A kernel is a function of _core. It takes arrays as places (address, shape, strides, number of their type), and then `tail`.

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
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace {

using at::Tensor;
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

Object tuple_of(at::IntArrayRef numbers) {
  Object tuple = checked(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  for (std::size_t d = 0; d < numbers.size(); ++d) {
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(d), checked(PyLong_FromLongLong(numbers[d])).release());
  }
  return tuple;
}

Object place(const Tensor& x) {
  if (!x.defined()) return Object::borrowed(Py_None);
  Object tuple = checked(PyTuple_New(4));
  PyTuple_SET_ITEM(tuple.get(), 0, checked(PyLong_FromVoidPtr(const_cast<void*>(x.const_data_ptr()))).release());
  PyTuple_SET_ITEM(tuple.get(), 1, tuple_of(x.sizes()).release());
  PyTuple_SET_ITEM(tuple.get(), 2, tuple_of(x.strides()).release());
  PyTuple_SET_ITEM(tuple.get(), 3, checked(PyLong_FromLong(code_of(x.scalar_type()))).release());
  return tuple;
}

// kernel(places of the arrays, *tail).
void run(PyObject* kernel, std::span<const Tensor> arrays, PyObject* tail) {
  const auto further = static_cast<std::size_t>(PyTuple_GET_SIZE(tail));
  std::array<Object, 16> places;
  std::array<PyObject*, 32> arguments;
  TORCH_CHECK(arrays.size() <= places.size() && arrays.size() + further <= arguments.size(), "entropic: too many arguments");
  for (std::size_t k = 0; k < arrays.size(); ++k) {
    places[k] = place(arrays[k]);
    arguments[k] = places[k].get();
  }
  for (std::size_t k = 0; k < further; ++k) {
    arguments[arrays.size() + k] = PyTuple_GET_ITEM(tail, static_cast<Py_ssize_t>(k));
  }
  checked(PyObject_Vectorcall(kernel, arguments.data(), arrays.size() + further, nullptr));
}

// What a gradient is made with. A rule is (kernel, kernel of its gradient or what else it needs, again), where again(*saved,
// grad, tail) gives the gradients in Python: where they are to be differentiated, of halves, and of tensors that stand for
// others.
struct Rule : torch::CustomClassHolder {
  Object rule, tail;
  std::int64_t count = 0;  // the rows of a mean

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

variable_list again(const Rule& rule, const variable_list& saved, const Tensor& grad, std::size_t results) {
  const auto count = static_cast<Py_ssize_t>(saved.size());
  const Object arguments = checked(PyTuple_New(count + 2));
  for (Py_ssize_t k = 0; k < count; ++k) {
    const Tensor& one = saved[static_cast<std::size_t>(k)];
    PyTuple_SET_ITEM(arguments.get(), k,
                     one.defined() ? checked(THPVariable_Wrap(one)).release() : Object::borrowed(Py_None).release());
  }
  PyTuple_SET_ITEM(arguments.get(), count, checked(THPVariable_Wrap(grad)).release());
  PyTuple_SET_ITEM(arguments.get(), count + 1, Object::borrowed(rule.tail.get()).release());
  const Object found = checked(PyObject_CallObject(rule.again(), arguments.get()));
  TORCH_CHECK(PyTuple_Check(found.get()) && PyTuple_GET_SIZE(found.get()) == static_cast<Py_ssize_t>(results),
              "entropic: one gradient for each tensor is wanted");
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

struct Map : Function<Map> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const RulePtr& rule) {
    Tensor y = mapped(x, rule->kernel(), rule->tail.get());
    keep(ctx, {x, y}, rule);
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined()) return variable_list(2);
    const RulePtr rule = rule_of(ctx);
    const variable_list saved = ctx->get_saved_variables();
    const Gil gil;
    if (is_half(saved[0]) || !is_last(grads[0])) return {again(*rule, saved, grads[0], 1)[0], Tensor()};
    Tensor dx = empty_as(saved[1]);
    run(rule->vjp(), std::array{saved[0], saved[1], grads[0], dx}, rule->tail.get());
    return {dx, Tensor()};
  }
};

// One number for each row along `dim` of the first tensor, with the gradients in all tensors of floating-point numbers in the
// same pass; or the mean of these numbers, of `count` rows.
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
    if (wanted) slopes.push_back(empty_as(one));
    arrays.push_back(wanted ? slopes.back() : Tensor());
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
    Tensor grad = of_mean ? grads[0].div(static_cast<double>(rule->count)) : grads[0];
    if (!is_last(grad)) {
      const Gil gil;
      if (of_mean) {
        at::DimVector shape(saved[0].sizes());
        shape.erase(shape.begin() + dim);
        grad = grad.expand(shape);
      }
      const variable_list found =
          again(*rule, {saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(tensors)}, grad, tensors);
      std::copy(found.begin(), found.end(), results.begin());
      return results;
    }
    if (!of_mean) grad = grad.unsqueeze(dim);
    for (std::size_t k = 0, next = tensors; k < tensors; ++k) {
      if (!saved[k].is_floating_point()) continue;
      const Tensor& slope = saved[next++];
      // Where nobody asks again what is kept may be overwritten.
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
      const variable_list found = again(*rule, saved, grads[0], 3);
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

// tail (dim, parameters), where tensors of one number that nobody differentiates are numbers; null where there are others.
Object with_numbers(PyObject* tail, const Tensor& x) {
  PyObject* const values = PyTuple_GET_ITEM(tail, 1);
  if (are_simple(values)) return Object::borrowed(tail);
  const Py_ssize_t count = PyTuple_GET_SIZE(values);
  Object numbers = checked(PyTuple_New(count));
  for (Py_ssize_t k = 0; k < count; ++k) {
    PyObject* const value = PyTuple_GET_ITEM(values, k);
    if (is_simple(value)) {
      PyTuple_SET_ITEM(numbers.get(), k, Object::borrowed(value).release());
      continue;
    }
    const Tensor* const one = plain(value);
    if (one == nullptr || !is_float(*one) || one->numel() != 1 || one->dim() > x.dim() ||
        (one->requires_grad() && c10::GradMode::is_enabled())) {
      return {};
    }
    PyTuple_SET_ITEM(numbers.get(), k, checked(PyFloat_FromDouble(one->item().toDouble())).release());
  }
  return checked(PyTuple_Pack(2, PyTuple_GET_ITEM(tail, 0), numbers.get()));
}

// body(): a tensor. None where the kernel finds a wrong type or axis.
template <class Body>
PyObject* answer(const Body& body) {
  try {
    return THPVariable_Wrap(body());
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
  if (axis_of(PyTuple_GET_ITEM(arguments[2], 0), x->dim()) < 0) Py_RETURN_NONE;
  const Object tail = with_numbers(arguments[2], *x);
  const bool tracked = wants_gradient({x});
  if (!tail || (tracked && x->numel() >= kLarge)) Py_RETURN_NONE;
  return answer([&] {
    if (!tracked) return mapped(*x, PyTuple_GET_ITEM(arguments[0], 0), tail.get());
    return Map::apply(*x, c10::make_intrusive<Rule>(arguments[0], tail.get()));
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

#define ENTROPIC_TEXT2(name) #name
#define ENTROPIC_TEXT(name) ENTROPIC_TEXT2(name)
#define ENTROPIC_JOINED2(a, b) a##b
#define ENTROPIC_JOINED(a, b) ENTROPIC_JOINED2(a, b)

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, ENTROPIC_TEXT(ENTROPIC_TORCH_NAME), nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC ENTROPIC_JOINED(PyInit_, ENTROPIC_TORCH_NAME)() { return PyModule_Create(&module); }
