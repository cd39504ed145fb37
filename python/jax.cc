// XLA's calls: one handler for all operations, through the C interface, and one for functions of NumPy arrays. Operation,
// parameters and names of arrays are attributes. It is compiled against the headers of the oldest supported jaxlib, which later
// ones accept.

#include <isentropic/c.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "xla/ffi/api/ffi.h"

namespace nb = nanobind;
namespace ffi = xla::ffi;

namespace isentropic {
namespace {

int type_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32:
      return ISENTROPIC_FLOAT32;
    case ffi::DataType::F64:
      return ISENTROPIC_FLOAT64;
    case ffi::DataType::F16:
      return ISENTROPIC_FLOAT16;
    case ffi::DataType::BF16:
      return ISENTROPIC_BFLOAT16;
    case ffi::DataType::S32:
      return ISENTROPIC_INT32;
    case ffi::DataType::S64:
      return ISENTROPIC_INT64;
    default:
      return 0;
  }
}

ffi::Error call(ffi::RemainingArgs args, ffi::RemainingRets results, ffi::Dictionary attrs) {
  const auto operation = attrs.get<std::string_view>("operation");
  const auto parameters = attrs.get<std::string_view>("parameters");
  const auto names = attrs.get<std::string_view>("arrays");
  const auto vjp = attrs.get<bool>("vjp");
  if (!operation.has_value() || !parameters.has_value() || !names.has_value() || !vjp.has_value()) {
    return ffi::Error::InvalidArgument("isentropic: an attribute of the call is missing");
  }
  std::deque<std::string> kept;  // a deque, because addresses must not change
  std::vector<isentropic_array> arrays;
  std::string_view rest = *names;
  const auto add = [&](const ffi::AnyBuffer& buffer) {
    const std::size_t end = rest.find(',');
    kept.emplace_back(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    const auto dims = buffer.dimensions();
    const auto cols = static_cast<std::size_t>(dims.back());
    std::size_t rows = 1;
    for (std::size_t i = 0; i + 1 < dims.size(); ++i) rows *= static_cast<std::size_t>(dims[i]);
    arrays.push_back({sizeof(isentropic_array), kept.back().c_str(), buffer.untyped_data(), rows, cols, 0, 0,
                      type_of(buffer.element_type()), 0});
  };
  for (std::size_t i = 0; i < args.size(); ++i) add(*args.get<ffi::AnyBuffer>(i));
  for (std::size_t i = 0; i < results.size(); ++i) add(**results.get<ffi::AnyBuffer>(i));
  const auto run = *vjp ? isentropic_apply_vjp : isentropic_apply;
  const int code = run(std::string(*operation).c_str(), std::string(*parameters).c_str(), arrays.data(), arrays.size());
  if (code == ISENTROPIC_OK) return ffi::Error::Success();
  if (code == ISENTROPIC_INVALID_ARGUMENT) return ffi::Error::InvalidArgument(isentropic_last_error());
  return ffi::Error::Internal(isentropic_last_error());
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(kCall, call, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs<ffi::Dictionary>());

// The handler for GPUs.
ffi::Error refuse(ffi::RemainingArgs, ffi::RemainingRets, ffi::Dictionary attrs) {
  const auto operation = attrs.get<std::string_view>("operation");
  return ffi::Error(ffi::ErrorCode::kUnimplemented,
                    "isentropic.jax: " + std::string(operation.has_value() ? *operation : "this operation") +
                        " has no kernel for GPUs; move the arrays to jax.devices('cpu'), or set ISENTROPIC_STRICT=0 before the "
                        "function is traced, which copies them there and back");
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(kRefuse, refuse, ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs<ffi::Dictionary>());

// The call on arrays in the processor's memory: (name, address, rows, cols, type) for each.
void apply_on_host(const std::string& operation, const std::string& parameters, const nb::list& given, bool vjp) {
  std::deque<std::string> kept;
  std::vector<isentropic_array> arrays;
  for (const nb::handle one : given) {
    const auto [name, data, rows, cols, type] =
        nb::cast<std::tuple<std::string, std::uintptr_t, std::size_t, std::size_t, int>>(one);
    kept.push_back(name);
    arrays.push_back({sizeof(isentropic_array), kept.back().c_str(), reinterpret_cast<void*>(data), rows, cols, 0, 0, type, 0});
  }
  const auto run = vjp ? isentropic_apply_vjp : isentropic_apply;
  if (run(operation.c_str(), parameters.c_str(), arrays.data(), arrays.size()) != ISENTROPIC_OK) {
    throw nb::value_error(isentropic_last_error());
  }
}

nb::object as_numpy(const ffi::AnyBuffer& buffer) {
  std::vector<std::size_t> shape;
  for (const std::int64_t size : buffer.dimensions()) shape.push_back(static_cast<std::size_t>(size));
  const auto view = [&](nb::dlpack::dtype type) {
    return nb::cast(nb::ndarray<nb::numpy>(buffer.untyped_data(), shape.size(), shape.data(), nb::none(), nullptr, type));
  };
  switch (buffer.element_type()) {
    case ffi::DataType::F32:
      return view(nb::dtype<float>());
    case ffi::DataType::F64:
      return view(nb::dtype<double>());
    case ffi::DataType::S32:
      return view(nb::dtype<std::int32_t>());
    case ffi::DataType::S64:
      return view(nb::dtype<std::int64_t>());
    default:
      throw nb::type_error("an array's type is none of float32, float64, int32, int64");
  }
}

// JAX's own callbacks pass JAX arrays, whose numbers may wait for the thread that is running this function.
ffi::Error call_python(ffi::RemainingArgs args, ffi::RemainingRets results, ffi::Dictionary attrs) {
  const auto operation = attrs.get<std::string_view>("operation");
  const auto parameters = attrs.get<std::string_view>("parameters");
  if (!operation.has_value() || !parameters.has_value()) {
    return ffi::Error::InvalidArgument("isentropic: an attribute of the call is missing");
  }
  const nb::gil_scoped_acquire gil;
  try {
    nb::list inputs, outputs;
    for (std::size_t i = 0; i < args.size(); ++i) inputs.append(as_numpy(*args.get<ffi::AnyBuffer>(i)));
    for (std::size_t i = 0; i < results.size(); ++i) outputs.append(as_numpy(**results.get<ffi::AnyBuffer>(i)));
    const nb::object wrong = nb::module_::import_("isentropic.jax._call")
                                 .attr("on_host")(std::string(*operation), std::string(*parameters), inputs, outputs);
    return wrong.is_none() ? ffi::Error::Success() : ffi::Error::InvalidArgument(nb::cast<std::string>(wrong));
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(kCallPython, call_python,
                              ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs<ffi::Dictionary>());

}  // namespace

void bind_jax(nb::module_& m) {
  m.def("xla_call", [] { return nb::capsule(reinterpret_cast<void*>(kCall)); });
  m.def("xla_refuse", [] { return nb::capsule(reinterpret_cast<void*>(kRefuse)); });
  m.def("apply_on_host", apply_on_host);
  m.def("xla_call_python", [] { return nb::capsule(reinterpret_cast<void*>(kCallPython)); });
}

}  // namespace isentropic
