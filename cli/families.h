// The operations by family, and their parameters in words: everything the command line says about an
// operation is derived here from its own description.
#pragma once

#include <entropic/entropic.h>
#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

using Logarithms = std::variant<entropic::LogSoftmax, entropic::LogSumExp>;
using EntropyControl = std::variant<entropic::GammaForEntropy, entropic::PowerTransform>;
using Sampling = std::variant<entropic::Sample>;
using Transport = std::variant<entropic::OptimalTransport, entropic::Sinkhorn, entropic::Wasserstein1d,
                               entropic::WassersteinHistogram, entropic::Wasserstein, entropic::SinkhornDivergence>;
using LibraryOnly = std::variant<entropic::NormalizeDensity, entropic::NormalizeJoint, entropic::MeanFieldEntropy,
                                 entropic::ExpectedCalibrationError, entropic::GumbelSoftmax, entropic::Attention,
                                 entropic::LinearAttention, entropic::EntropyInvariantScale>;

struct FamilyTitle {
  std::string_view name;
  std::string_view meaning;
};

inline constexpr FamilyTitle kMaps = {"Maps", "rows of scores in, rows of probabilities out"};
inline constexpr FamilyTitle kLogarithms = {"Logarithms", "softmax where its logarithm is wanted"};
inline constexpr FamilyTitle kEntropyControl = {"Entropy control",
                                                "the scale of scores that gives a chosen entropy, and powers of distributions"};
inline constexpr FamilyTitle kMeasures = {"Measures", "how uncertain a distribution is"};
inline constexpr FamilyTitle kMeasuresOfTwo = {"Measures of two", "how far distributions p and q are apart"};
inline constexpr FamilyTitle kMeasuresOfTables = {"Measures of tables",
                                                  "what the variables x, in rows, and y say of each other"};
inline constexpr FamilyTitle kMeasuresOfEntries = {"Measures of entries", "of each probability by itself"};
inline constexpr FamilyTitle kTransport = {"Transport", "how far masses are apart, and what goes where"};
inline constexpr FamilyTitle kLosses = {"Losses (in C++ and Python)", "one number for each row of scores against a target"};
inline constexpr FamilyTitle kSampling = {"Sampling", "indices drawn from rows of scores"};
inline constexpr FamilyTitle kSteps = {"Steps of a sampler", "each acts on what the steps before it left"};
inline constexpr FamilyTitle kLibraryOnly = {"In C++ and Python only",
                                             "densities, tables, an estimate, calibration, a relaxed draw and attention"};

// Whether the operations of a family are commands of their own.
template <class Family>
inline constexpr bool kHasCommands =
    !std::is_same_v<Family, LibraryOnly> && !std::is_same_v<Family, entropic::Step> && !std::is_same_v<Family, entropic::Loss>;

// Calls f(title, std::type_identity<Family>{}) for each family, in the order they are listed.
template <class F>
void for_each_family(F&& f) {
  f(kMaps, std::type_identity<entropic::Map>{});
  f(kLogarithms, std::type_identity<Logarithms>{});
  f(kEntropyControl, std::type_identity<EntropyControl>{});
  f(kMeasures, std::type_identity<entropic::Measure>{});
  f(kMeasuresOfTwo, std::type_identity<entropic::Divergence>{});
  f(kMeasuresOfTables, std::type_identity<entropic::TableMeasure>{});
  f(kMeasuresOfEntries, std::type_identity<entropic::EntryMeasure>{});
  f(kTransport, std::type_identity<Transport>{});
  f(kLosses, std::type_identity<entropic::Loss>{});
  f(kSampling, std::type_identity<Sampling>{});
  f(kSteps, std::type_identity<entropic::Step>{});
  f(kLibraryOnly, std::type_identity<LibraryOnly>{});
}

// What an operation is called here: its own name or a shorter one, which then is its other name.
template <class Op>
std::string command_name() {
  if (std::is_same_v<Op, entropic::GammaForEntropy>) return "gamma";
  if (std::is_same_v<Op, entropic::OptimalTransport>) return "transport";
  if (std::is_same_v<Op, entropic::Sinkhorn>) return "transport --epsilon";
  return std::string(Op::kDescription.name);
}

template <class Op, class Value>
std::string default_text(const entropic::Param<Op, Value>& param) {
  if (param.required) return "none, required";
  const Value value = Op{}.*param.member;
  if constexpr (std::is_enum_v<Value>) {
    return std::string(param.names[static_cast<std::size_t>(value)]);
  } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
    return value ? fmt::format("{}", *value) : std::string("none");
  } else {
    return fmt::format("{}", value);
  }
}
