// XLA's calls: one handler for all operations, through the C interface, and one for functions of NumPy arrays. Operation,
// parameters and names of arrays are attributes.

#include <isentropic/c.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "xla_ffi.h"

namespace nb = nanobind;

namespace isentropic {
namespace {

// What a handler throws.
struct Refused {
  xla::ErrorCode code;
  std::string why;
};

[[noreturn]] void refuse_argument(const std::string& why) { throw Refused{xla::ErrorCode::invalid_argument, why}; }

// The attribute of that name and kind, or nothing.
const void* find_attribute(const xla::Frame& frame, std::string_view name, xla::AttributeKind kind) {
  const xla::Attributes& all = frame.attributes;
  for (std::int64_t i = 0; i < all.count; ++i) {
    if (std::string_view(all.names[i]->data, all.names[i]->length) != name) continue;
    return all.kinds[i] == kind ? all.values[i] : nullptr;
  }
  return nullptr;
}

std::optional<std::string> find_text(const xla::Frame& frame, std::string_view name) {
  const auto* found = static_cast<const xla::Text*>(find_attribute(frame, name, xla::AttributeKind::text));
  if (found == nullptr) return std::nullopt;
  return std::string(found->data, found->length);
}

std::string text(const xla::Frame& frame, const std::string& name) {
  const auto found = find_text(frame, name);
  if (!found.has_value()) refuse_argument("isentropic: the call must have the attribute " + name + ", a string");
  return *found;
}

bool truth(const xla::Frame& frame, const std::string& name) {
  const auto* found = static_cast<const xla::Scalar*>(find_attribute(frame, name, xla::AttributeKind::scalar));
  if (found == nullptr || found->type != xla::Type::boolean) {
    refuse_argument("isentropic: the call must have the attribute " + name + ", a bool");
  }
  return *static_cast<const bool*>(found->value);
}

// Arguments or results.
std::vector<const xla::Buffer*> buffers(const xla::Arrays& arrays) {
  std::vector<const xla::Buffer*> found;
  for (std::int64_t i = 0; i < arrays.count; ++i) {
    if (arrays.kinds[i] != xla::ArrayKind::buffer) refuse_argument("isentropic: the call must be of arrays alone");
    found.push_back(static_cast<const xla::Buffer*>(arrays.values[i]));
  }
  return found;
}

std::span<const std::int64_t> shape_of(const xla::Buffer& buffer) {
  return {buffer.dims, static_cast<std::size_t>(buffer.rank)};
}

// The handler that XLA gets: it calls run on a frame that is to be executed. Nothing is thrown through XLA.
template <void (*run)(const xla::Frame&)>
xla::Error* handle(xla::Frame* frame) noexcept {
  const auto fail = [frame](xla::ErrorCode code, const char* why) {
    xla::ErrorRequest request = {offsetof(xla::ErrorRequest, code) + sizeof(xla::ErrorCode), nullptr, why, code};
    return frame->api->make_error(&request);
  };
  const auto differs = [&fail] {
    return fail(xla::ErrorCode::invalid_argument, "isentropic: this jaxlib's calls are unlike those of XLA's FFI 0.1");
  };
  if (frame->size != sizeof(xla::Frame)) return differs();
  for (xla::Extension* one = frame->extensions; one != nullptr; one = one->next) {
    if (one->kind != xla::ExtensionKind::metadata) continue;
    if (one->size < sizeof(xla::MetadataExtension)) return differs();
    xla::Metadata& answer = *reinterpret_cast<xla::MetadataExtension*>(one)->answer;
    if (answer.size < offsetof(xla::Metadata, traits) + sizeof(answer.traits)) return differs();
    answer.version = {sizeof(xla::Version), nullptr, xla::kMajorVersion, xla::kMinorVersion};
    answer.traits = 0;
    return nullptr;
  }
  try {
    if (frame->stage != xla::Stage::execute) refuse_argument("isentropic: a call has no other stage than to be executed");
    run(*frame);
    return nullptr;
  } catch (const Refused& refused) {
    return fail(refused.code, refused.why.c_str());
  } catch (const std::exception& error) {
    return fail(xla::ErrorCode::internal, error.what());
  }
}

int type_of(xla::Type type) {
  switch (type) {
    case xla::Type::float32:
      return ISENTROPIC_FLOAT32;
    case xla::Type::float64:
      return ISENTROPIC_FLOAT64;
    case xla::Type::float16:
      return ISENTROPIC_FLOAT16;
    case xla::Type::bfloat16:
      return ISENTROPIC_BFLOAT16;
    case xla::Type::int32:
      return ISENTROPIC_INT32;
    case xla::Type::int64:
      return ISENTROPIC_INT64;
    default:
      return 0;
  }
}

void call(const xla::Frame& frame) {
  const std::string operation = text(frame, "operation"), parameters = text(frame, "parameters"), names = text(frame, "arrays");
  const auto run = truth(frame, "vjp") ? isentropic_apply_vjp : isentropic_apply;
  std::deque<std::string> kept;  // a deque, because addresses must not change
  std::vector<isentropic_array> arrays;
  std::string_view rest = names;
  for (const xla::Arrays* some : {&frame.arguments, &frame.results}) {
    for (const xla::Buffer* buffer : buffers(*some)) {
      const std::size_t end = rest.find(',');
      kept.emplace_back(rest.substr(0, end));
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
      const auto shape = shape_of(*buffer);
      if (shape.empty()) refuse_argument(operation + ": " + kept.back() + " must have at least one axis, got a single number");
      std::size_t rows = 1;
      for (const std::int64_t size : shape.first(shape.size() - 1)) rows *= static_cast<std::size_t>(size);
      arrays.push_back({sizeof(isentropic_array), kept.back().c_str(), buffer->data, rows,
                        static_cast<std::size_t>(shape.back()), 0, 0, type_of(buffer->type), 0});
    }
  }
  const int code = run(operation.c_str(), parameters.c_str(), arrays.data(), arrays.size());
  if (code == ISENTROPIC_OK) return;
  if (code == ISENTROPIC_INVALID_ARGUMENT) refuse_argument(isentropic_last_error());
  throw Refused{xla::ErrorCode::internal, isentropic_last_error()};
}

// The handler for GPUs.
void refuse(const xla::Frame& frame) {
  throw Refused{xla::ErrorCode::unimplemented,
                "isentropic.jax: " + find_text(frame, "operation").value_or("this operation") +
                    " has no kernel for GPUs; move the arrays to jax.devices('cpu'), or set ISENTROPIC_STRICT=0 before the "
                    "function is traced, which copies them there and back"};
}

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

nb::object as_numpy(const xla::Buffer& buffer) {
  std::vector<std::size_t> shape;
  for (const std::int64_t size : shape_of(buffer)) shape.push_back(static_cast<std::size_t>(size));
  const auto view = [&](nb::dlpack::dtype type) {
    return nb::cast(nb::ndarray<nb::numpy>(buffer.data, shape.size(), shape.data(), nb::none(), nullptr, type));
  };
  switch (buffer.type) {
    case xla::Type::float32:
      return view(nb::dtype<float>());
    case xla::Type::float64:
      return view(nb::dtype<double>());
    case xla::Type::int32:
      return view(nb::dtype<std::int32_t>());
    case xla::Type::int64:
      return view(nb::dtype<std::int64_t>());
    default:
      throw nb::type_error("an array's type is none of float32, float64, int32, int64");
  }
}

// JAX's own callbacks pass JAX arrays, whose numbers may wait for the thread that is running this function.
void call_python(const xla::Frame& frame) {
  const std::string operation = text(frame, "operation"), parameters = text(frame, "parameters");
  const auto inputs = buffers(frame.arguments), outputs = buffers(frame.results);
  const nb::gil_scoped_acquire gil;
  try {
    nb::list given, wanted;
    for (const xla::Buffer* one : inputs) given.append(as_numpy(*one));
    for (const xla::Buffer* one : outputs) wanted.append(as_numpy(*one));
    const nb::object wrong = nb::module_::import_("isentropic.jax._call").attr("on_host")(operation, parameters, given, wanted);
    if (!wrong.is_none()) refuse_argument(nb::cast<std::string>(wrong));
  } catch (const std::exception& error) {
    throw Refused{xla::ErrorCode::internal, error.what()};  // what() of an exception of Python needs its lock
  }
}

}  // namespace

void bind_jax(nb::module_& m) {
  const auto offer = [&m](const char* name, xla::Error* (*handler)(xla::Frame*) noexcept) {
    m.def(name, [handler] { return nb::capsule(reinterpret_cast<void*>(handler)); });
  };
  offer("xla_call", handle<call>);
  offer("xla_refuse", handle<refuse>);
  offer("xla_call_python", handle<call_python>);
  m.def("apply_on_host", apply_on_host);
}

}  // namespace isentropic
