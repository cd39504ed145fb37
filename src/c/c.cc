// The C interface: calls by description (isentropic/call.h) with names, JSON and arrays of rows x cols. An exception becomes an
// error code and a message.

#include "isentropic/c.h"

#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "src/c/guard.h"
#include "src/c/prepared.h"
#include "src/parallel.h"
#include "src/registry/json.h"

namespace isentropic::inline ISENTROPIC_ABI::by_name {
namespace {

const Library& library() {
  static const FamilyInfo* const further[] = {&chains()};
  static const Library kLibrary = {further, [](const OperationInfo& info, bool vjp) { return runner_of(info, vjp) != nullptr; },
                                   "isentropic_registry()"};
  return kLibrary;
}

isentropic_call prepared(const char* operation, const char* parameters, bool vjp) {
  isentropic_call call(library(), operation, parameters, vjp);
  call.runner = runner_of(call.info, vjp);
  if (call.steps) call.sampler = std::make_shared<Sampler>(*call.steps, static_cast<std::uint64_t>(call.number(seed)));
  return call;
}

void run_prepared(const isentropic_call& prepared, const isentropic_array* arrays, std::size_t count) {
  const Arrays given(prepared, arrays, count);
  prepared.runner(call_of(prepared, given));
}

std::string registry() {
  std::vector<std::string> all;
  const auto add = [&](const FamilyInfo& family) {
    for (const OperationInfo& info : family.operations) {
      if (runner_of(info, false) != nullptr) all.push_back(operation_json(info));
    }
  };
  for (const FamilyInfo& family : families()) add(family);
  add(chains());
  return fmt::format("[{}]", fmt::join(all, ",\n"));
}

}  // namespace
}  // namespace isentropic::inline ISENTROPIC_ABI::by_name

extern "C" {

int isentropic_apply(const char* operation, const char* parameters, const isentropic_array* arrays, size_t count) {
  using namespace isentropic;
  return guarded([&] { by_name::run_prepared(by_name::prepared(operation, parameters, false), arrays, count); });
}

int isentropic_apply_vjp(const char* operation, const char* parameters, const isentropic_array* arrays, size_t count) {
  using namespace isentropic;
  return guarded([&] { by_name::run_prepared(by_name::prepared(operation, parameters, true), arrays, count); });
}

isentropic_call* isentropic_prepare(const char* operation, const char* parameters, int vjp) {
  isentropic_call* call = nullptr;
  isentropic::guarded([&] { call = new isentropic_call(isentropic::by_name::prepared(operation, parameters, vjp != 0)); });
  return call;
}

int isentropic_run(const isentropic_call* call, const isentropic_array* arrays, size_t count) {
  using namespace isentropic;
  return guarded([&] {
    if (call == nullptr) fail("isentropic_run: call must not be null");
    by_name::run_prepared(*call, arrays, count);
  });
}

void isentropic_release(isentropic_call* call) { delete call; }

size_t isentropic_limit_threads(size_t n) { return isentropic::limit_threads(n); }

const char* isentropic_last_error(void) { return isentropic::last_error().c_str(); }

const char* isentropic_registry(void) {
  static const std::string all = isentropic::by_name::registry();
  return all.c_str();
}

const char* isentropic_version(void) { return ISENTROPIC_VERSION; }

int isentropic_interface_version(void) { return ISENTROPIC_C_VERSION; }

}  // extern "C"
