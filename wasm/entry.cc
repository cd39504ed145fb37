// What a page may call: the operations of the registry by name, on rows x cols numbers without gaps, one after the other.
//
// Parameters are text, "alpha=1.3&noise=normal"; what is not given keeps its default. `size` is 4 for float and 8 for double.
// What is refused ends in a trap, the reason in er_error().
#include <entropic/entropic.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "wasm/runtime.h"

#define EXPORT(name) __attribute__((export_name(#name)))

namespace {

using entropic::MatrixView;

template <class Family>
Family made(const char* name, std::string_view text) {
  const entropic::OperationInfo* const info = entropic::find_operation(entropic::family_info<Family>(), name);
  std::vector<entropic::Argument> arguments;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find('&'));
    text.remove_prefix(one.size() + (one.size() < text.size()));
    const std::size_t equals = std::min(one.find('='), one.size());
    const std::string_view key = one.substr(0, equals);
    const std::string value(one.substr(std::min(equals + 1, one.size())));
    entropic::ParamValue given = value;
    if (info != nullptr) {
      for (const entropic::ParamInfo& param : info->params) {
        if (param.name != key) continue;
        char* end = nullptr;
        if (param.kind == entropic::ParamKind::flag) {
          given = value == "true";
        } else if (param.kind == entropic::ParamKind::integer) {
          const long long number = std::strtoll(value.c_str(), &end, 10);
          if (*end == 0) given = static_cast<std::int64_t>(number);
        } else if (param.kind != entropic::ParamKind::choice && param.kind != entropic::ParamKind::map) {
          const double number = std::strtod(value.c_str(), &end);
          if (*end == 0) given = number;
        }
      }
    }
    arguments.push_back({key, given});
  }
  return entropic::make<Family>(name, arguments);
}

template <class F>
void on_type(std::size_t size, const F& f) {
  if (size == 4) return f(float{});
  f(double{});
}

template <class T>
MatrixView<T> view(void* data, std::size_t rows, std::size_t cols) {
  return {static_cast<T*>(data), rows, cols};
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

EXPORT(er_alloc) void* er_alloc(std::size_t bytes) { return std::malloc(bytes); }
EXPORT(er_free) void er_free(void* memory) { std::free(memory); }
EXPORT(er_error) const char* er_error() { return last_error().c_str(); }

// [{"family", "name", "summary", "formula", "params": [{"name", "meaning", "allowed", "default", "required"}]}]
EXPORT(er_registry) const char* er_registry() {
  static const std::string all = [] {
    std::string out = "[";
    for (const entropic::FamilyInfo& family : entropic::families()) {
      for (const entropic::OperationInfo& info : family.operations) {
        out += (out.size() > 1 ? ",\n" : "") + std::string("{\"family\":") + quoted(family.name) +
               ",\"name\":" + quoted(info.name) + ",\"summary\":" + quoted(info.summary) +
               ",\"formula\":" + quoted(info.formula) + ",\"params\":[";
        for (const entropic::ParamInfo& param : info.params) {
          out += (out.back() == '[' ? "{\"name\":" : ",{\"name\":") + quoted(param.name) +
                 ",\"meaning\":" + quoted(param.meaning) + ",\"allowed\":" + quoted(param.allowed) +
                 ",\"default\":" + quoted(entropic::to_text(param.initial)) +
                 ",\"required\":" + (param.required ? "true" : "false") + "}";
        }
        out += "]}";
      }
    }
    return out + "]";
  }();
  return all.c_str();
}

EXPORT(er_map)
void er_map(const char* name, const char* params, std::size_t size, void* x, void* p, std::size_t rows, std::size_t cols) {
  const auto map = made<entropic::Map>(name, params);
  on_type(size, [&]<class T>(T) { entropic::apply<T>(map, view<const T>(x, rows, cols), view<T>(p, rows, cols)); });
}

EXPORT(er_map_vjp)
void er_map_vjp(const char* name, const char* params, std::size_t size, void* x, void* p, void* g, void* dx, std::size_t rows,
                std::size_t cols) {
  const auto map = made<entropic::Map>(name, params);
  on_type(size, [&]<class T>(T) {
    entropic::apply_vjp<T>(map, view<const T>(x, rows, cols), view<const T>(p, rows, cols), view<const T>(g, rows, cols),
                           view<T>(dx, rows, cols));
  });
}

// Of one distribution in each row, or of two where q is not null: it has as many rows, or one.
EXPORT(er_measure)
void er_measure(const char* name, const char* params, std::size_t size, void* p, void* q, std::size_t q_rows, double* value,
                std::size_t rows, std::size_t cols) {
  on_type(size, [&]<class T>(T) {
    const auto of = view<const T>(p, rows, cols);
    if (q == nullptr) {
      entropic::measure<T>(made<entropic::Measure>(name, params), of, std::span(value, rows));
    } else {
      entropic::measure<T>(made<entropic::Divergence>(name, params), of, view<const T>(q, q_rows, cols),
                           std::span(value, rows));
    }
  });
}

EXPORT(er_gamma)
void er_gamma(const char* params, std::size_t size, void* x, double* gamma, double* entropy, std::uint8_t* status,
              std::size_t rows, std::size_t cols) {
  const auto control = made<entropic::EntropyControl>("gamma_for_entropy", params);
  std::vector<entropic::GammaStatus> found(rows);
  on_type(size, [&]<class T>(T) {
    entropic::gamma_for_entropy<T>(std::get<entropic::GammaForEntropy>(control), view<const T>(x, rows, cols),
                                   std::span(gamma, rows), std::span(entropy, rows), found);
  });
  for (std::size_t r = 0; r < rows; ++r) status[r] = static_cast<std::uint8_t>(found[r]);
}

EXPORT(er_loss)
void er_loss(const char* name, const char* params, std::size_t size, void* x, const std::int64_t* classes, double* value,
             void* dx, std::size_t rows, std::size_t cols) {
  const auto op = made<entropic::Loss>(name, params);
  on_type(size, [&]<class T>(T) {
    entropic::loss<T>(op, view<const T>(x, rows, cols), std::span(classes, rows), std::span(value, rows),
                      dx == nullptr ? MatrixView<T>() : view<T>(dx, rows, cols));
  });
}

// Draws of a chain, "temperature:temperature=0.7;top_k:k=40"; `indices` has `draws` for each row. Where p is not null it takes
// the distribution that they are drawn from.
EXPORT(er_sample)
void er_sample(const char* chain, double seed, double position, std::size_t size, void* x, std::int64_t* indices, void* p,
               std::size_t rows, std::size_t cols, std::size_t draws) {
  std::vector<entropic::Step> steps;
  for (std::string_view text = chain; !text.empty();) {
    const std::string_view one = text.substr(0, text.find(';'));
    text.remove_prefix(one.size() + (one.size() < text.size()));
    const std::size_t colon = std::min(one.find(':'), one.size());
    const std::string name(one.substr(0, colon));
    steps.push_back(made<entropic::Step>(name.c_str(), one.substr(std::min(colon + 1, one.size()))));
  }
  const entropic::Sampler sampler(std::move(steps), static_cast<std::uint64_t>(seed));
  on_type(size, [&]<class T>(T) {
    const auto scores = view<const T>(x, rows, cols);
    sampler.sample<T>(scores, MatrixView(indices, rows, draws), {.position = static_cast<std::uint64_t>(position)});
    if (p != nullptr) sampler.probs<T>(scores, view<T>(p, rows, cols));
  });
}

EXPORT(er_wasserstein)
void er_wasserstein(std::size_t size, void* p, void* q, double* distance, std::size_t rows, std::size_t cols) {
  std::vector<double> support(cols);
  for (std::size_t i = 0; i < cols; ++i) support[i] = static_cast<double>(i);
  on_type(size, [&]<class T>(T) {
    entropic::wasserstein_histogram<T>({}, view<const T>(p, rows, cols), view<const T>(q, rows, cols), support,
                                       std::span(distance, rows));
  });
}
