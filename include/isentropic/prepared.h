// Calls without exceptions, for programs that are compiled without them (-fno-exceptions): the C interface's prepared calls
// (isentropic/c.h) in C++. An operation is looked up and its parameters are parsed once; a run allocates nothing, and returns
// a code and a message instead of an exception.
//
// It is no std::expected, which C++20 lacks, and no callback, which would run while the library is at work. Not part of
// isentropic.h, whose functions throw.
#pragma once

#include "isentropic/version.h"

#if __cplusplus >= 202002L  // otherwise version.h reports the error

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>

#include "isentropic/c.h"
#include "isentropic/half.h"
#include "isentropic/matrix_view.h"

namespace isentropic::inline ISENTROPIC_ABI {

// How a call ended: ISENTROPIC_OK or one of the other codes of c.h, and what is wrong, valid until this thread's next failure
// and as long as the Prepared.
struct Outcome {
  int code = ISENTROPIC_OK;
  const char* message = "";

  bool ok() const { return code == ISENTROPIC_OK; }
  explicit operator bool() const { return ok(); }
};

// An array of a call, by its name there; what is read may be const.
template <class T>
isentropic_array named(const char* name, const MatrixView<T>& a) {
  using Number = std::remove_const_t<T>;
  constexpr std::int32_t kType = std::is_same_v<Number, float>          ? ISENTROPIC_FLOAT32
                                 : std::is_same_v<Number, double>       ? ISENTROPIC_FLOAT64
                                 : std::is_same_v<Number, float16>      ? ISENTROPIC_FLOAT16
                                 : std::is_same_v<Number, bfloat16>     ? ISENTROPIC_BFLOAT16
                                 : std::is_same_v<Number, std::int32_t> ? ISENTROPIC_INT32
                                                                        : ISENTROPIC_INT64;
  static_assert(kType != ISENTROPIC_INT64 || std::is_same_v<Number, std::int64_t>,
                "numbers of a type that the library does not have");
  return {sizeof(isentropic_array),
          name,
          const_cast<Number*>(a.data),
          a.rows,
          a.cols,
          static_cast<std::ptrdiff_t>(a.row_stride),
          1,
          kType,
          0};
}

// A call of an operation, or of its gradient, with parameters as JSON: Prepared("entmax", R"({"alpha": 1.3})"). Any number of
// threads may run it at once.
class Prepared {
 public:
  enum class Runs { operation, gradient };

  explicit Prepared(const char* operation, const char* parameters = nullptr, Runs runs = Runs::operation)
      : call_(isentropic_prepare(operation, parameters, runs == Runs::gradient)),
        message_(call_ == nullptr ? isentropic_last_error() : "") {}

  // Whether there is such a call; otherwise each run says what is wrong, in any thread.
  explicit operator bool() const { return call_ != nullptr; }

  Outcome run(std::initializer_list<isentropic_array> arrays) const { return run(arrays.begin(), arrays.size()); }
  Outcome run(const isentropic_array* arrays, std::size_t count) const {
    if (call_ == nullptr) return {ISENTROPIC_INVALID_ARGUMENT, message_.c_str()};
    const int code = isentropic_run(call_.get(), arrays, count);
    return {code, code == ISENTROPIC_OK ? "" : isentropic_last_error()};
  }

 private:
  struct Release {
    void operator()(isentropic_call* call) const { isentropic_release(call); }
  };
  std::unique_ptr<isentropic_call, Release> call_;
  std::string message_;  // why there is no call
};

}  // namespace isentropic::inline ISENTROPIC_ABI

#endif
