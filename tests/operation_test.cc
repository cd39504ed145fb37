// Operations at run time: the tables agree with the structs, and operations made by name equal those that are written out.

#include <gtest/gtest.h>
#include <isentropic/isentropic.h>
#include <isentropic/prepared.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace isentropic {
namespace {

template <class... Family, class F>
void for_each_family(FamilyList<Family...> /*all*/, F&& f) {
  (f(std::type_identity<Family>{}), ...);
}

// The message of the exception of make().
template <class Family>
std::string refusal(std::string_view name, std::vector<Argument> arguments) {
  try {
    make<Family>(name, arguments);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(Operations, TablesSayWhatTheStructsSay) {
  std::size_t count = 0, i = 0;
  for_each_family(Families{}, [&]<class Family>(std::type_identity<Family>) {
    const FamilyInfo& family = families()[i++];
    EXPECT_EQ(&family_info<Family>().operations[0], &family.operations[0]) << family.name;
    ASSERT_EQ(family.operations.size(), std::variant_size_v<Family>);
    for_each_operation<Family>([&]<class Op>(std::type_identity<Op>) {
      const OperationInfo* const info = find_operation(family, Described<Op>::kDescription.name);
      ASSERT_NE(info, nullptr) << Described<Op>::kDescription.name;
      EXPECT_EQ(info->family, family.name);
      EXPECT_EQ(info->formula, Described<Op>::kDescription.formula);
      EXPECT_EQ(info->laws != nullptr, (std::is_same_v<Family, Map>));
      EXPECT_EQ(info->target != nullptr, (std::is_same_v<Family, Loss>));
      EXPECT_EQ(info->arrays.data(), Described<Op>::kDescription.arrays.data());
      EXPECT_EQ(info->command.empty(), !has(*info, Door::command_line));
      for (const std::span<const ArrayInfo> arrays : {info->arrays, info->jacobian.arrays}) {
        if (arrays.empty()) continue;  // there is no call for the gradient
        EXPECT_TRUE(!arrays.front().output && !arrays.front().optional && arrays.back().output) << info->name;
        std::set<std::string_view> names;
        bool output = false;
        for (const ArrayInfo& array : arrays) {
          EXPECT_TRUE(names.insert(array.name).second) << info->name << ": " << array.name;
          EXPECT_TRUE(array.output || !output) << info->name << ": inputs come first";
          output = array.output;
        }
      }
      std::size_t p = 0;
      for_each_param<Op>([&]<class Value>(const Param<Op, Value>& param) {
        const ParamInfo& of_table = info->params[p++];
        EXPECT_EQ(of_table.name, param.name);
        EXPECT_EQ(of_table.per_row, param.per_row);
        EXPECT_EQ(of_table.required, param.required);
        EXPECT_EQ(of_table.allowed, allowed_values(param));
        EXPECT_EQ(of_table.choices.size(), param.names.size());
        EXPECT_EQ(of_table.kind == ParamKind::map, (std::is_same_v<Value, Map>));
      });
      EXPECT_EQ(info->params.size(), p);
      ++count;
    });
  });
  EXPECT_EQ(i, families().size());
  EXPECT_GT(count, 50u);
  EXPECT_EQ(find_operation(family_info<Map>(), "softmin"), nullptr);
}

// Every parameter of every operation, one at a time, at a value that is not its default, arrives at its member.
TEST(Operations, EveryArgumentArrives) {
  for_each_family(Families{}, [&]<class Family>(std::type_identity<Family>) {
    for_each_operation<Family>([&]<class Op>(std::type_identity<Op>) {
      const OperationInfo& info = *find_operation(family_info<Family>(), Described<Op>::kDescription.name);
      for (std::size_t p = 0; p < info.params.size(); ++p) {
        std::vector<ParamValue> values(info.params.size());
        const ParamInfo& param = info.params[p];
        switch (param.kind) {
          case ParamKind::number:
          case ParamKind::optional_number:
            values[p] = 0.37;
            break;
          case ParamKind::integer:
            values[p] = std::int64_t{6};
            break;
          case ParamKind::flag:
            values[p] = true;
            break;
          case ParamKind::choice:
            values[p] = std::string(param.choices.back());
            break;
          case ParamKind::map:
            values[p] = make_map("entmax", {{"alpha", 1.25}});
            break;
          case ParamKind::integers:
            values[p] = std::vector<std::int64_t>{6, 7};
            break;
        }
        const Op op = std::get<Op>(make<Family>(info, values));
        std::size_t i = 0;
        for_each_param<Op>([&]<class Value>(const Param<Op, Value>& one) {
          const Value got = op.*one.member;
          const bool asked = i++ == p;
          if constexpr (std::is_same_v<Value, Map>) {
            if (asked) {
              EXPECT_EQ(std::get<Entmax>(got).alpha, 1.25) << info.name;
            }
          } else if constexpr (std::is_enum_v<Value>) {
            if (asked) {
              EXPECT_EQ(static_cast<std::size_t>(got) + 1, one.names.size()) << info.name << " " << one.name;
            }
          } else if (asked) {
            if constexpr (std::is_same_v<Value, std::int64_t>) {
              EXPECT_EQ(got, 6) << info.name << " " << one.name;
            }
            if constexpr (std::is_same_v<Value, double>) {
              EXPECT_EQ(got, 0.37) << info.name << " " << one.name;
            }
            if constexpr (std::is_same_v<Value, std::optional<double>>) {
              EXPECT_EQ(*got, 0.37) << info.name << " " << one.name;
            }
            if constexpr (std::is_same_v<Value, bool>) {
              EXPECT_TRUE(got) << info.name << " " << one.name;
            }
          } else {
            EXPECT_TRUE(got == Op{}.*one.member || got != got) << info.name << " " << one.name;
          }
        });
      }
    });
  });
}

TEST(Operations, MadeByName) {
  const Entmax entmax = std::get<Entmax>(make_map("entmax", {{"alpha", 1.3}}));
  EXPECT_EQ(entmax.alpha, 1.3);
  EXPECT_EQ(entmax.temperature, 1);
  EXPECT_EQ(std::get<TopKSoftmax>(make_map("top_k_softmax", {{"k", 50}, {"temperature", 2}})).k, 50);
  EXPECT_EQ(std::get<PerturbMax>(make_map("perturb_max", {{"noise", "normal"}})).noise, PerturbMax::Noise(1));
  EXPECT_EQ(std::get<EntropyNormalize>(make_map("entropy_normalize", {{"entropy", 1.5}})).entropy, 1.5);
  const auto loss = make<Loss>("surrogate_loss", std::vector<Argument>{{"map", "sparsemax"}});
  EXPECT_TRUE(std::holds_alternative<Sparsemax>(std::get<SurrogateLoss>(loss).map));
}

TEST(Operations, RefusalsNameTheArgument) {
  EXPECT_EQ(refusal<Map>("softmin", {}).substr(0, 36), "map must be one of softmax, sparsema");
  EXPECT_EQ(refusal<Map>("entmax", {{"beta", 1.0}}), "entmax: there is no parameter 'beta'; it has alpha, temperature");
  EXPECT_EQ(refusal<Map>("sigsoftmax", {{"beta", 1.0}}), "sigsoftmax: there is no parameter 'beta'");
  EXPECT_EQ(refusal<Map>("entmax", {{"alpha", "two"}}), "entmax: alpha must be a number, got 'two'");
  EXPECT_EQ(refusal<Map>("entmax", {{"alpha", 0.0}}), "entmax: alpha must be above 0 and finite, got 0");
  EXPECT_EQ(refusal<Map>("entmax", {{"alpha", 1.2}, {"alpha", 1.3}}), "entmax: parameters has 'alpha' twice");
  EXPECT_EQ(refusal<Map>("top_k_softmax", {}), "top_k_softmax: k is required");
  EXPECT_EQ(refusal<Map>("top_k_softmax", {{"k", 2.0}}), "top_k_softmax: k must be an integer, got 2");
  EXPECT_EQ(refusal<Map>("perturb_max", {{"noise", "cauchy"}}),
            "perturb_max: noise must be one of gumbel, normal, logistic, laplace, exponential, uniform, got 'cauchy'");
  EXPECT_EQ(refusal<Map>("entropy_normalize", {}), "entropy_normalize: exactly one of entropy and perplexity must be given");
  EXPECT_EQ(refusal<Loss>("surrogate_loss", {{"map", 3.0}}), "surrogate_loss: map must be a map or the name of one, got 3");
  EXPECT_EQ(refusal<Loss>("surrogate_loss", {{"map", "argmax"}}).substr(0, 15), "map must be one");
  EXPECT_EQ(refusal<Measure>("entropy", {{"normalize", std::int64_t{1}}}), "entropy: normalize must be true or false, got 1");
}

// A call that could not be prepared says why in any thread, also after other failures.
TEST(Prepared, KeepsItsMessage) {
  const Prepared bad("softmax", R"({"temp": 1})"), worse("nosuch");
  const std::string want = "softmax: there is no parameter 'temp'; it has temperature";
  EXPECT_EQ(bad.run({}).message, want);
  std::thread([&] { EXPECT_EQ(bad.run({}).message, want); }).join();
}

}  // namespace
}  // namespace isentropic
