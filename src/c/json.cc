#include "src/c/json.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "src/check.h"
#include "src/from_chars.h"

namespace isentropic::inline ISENTROPIC_ABI {
namespace {

class Parser {
 public:
  Parser(std::string_view operation, std::string_view text, std::optional<std::vector<Step>>* steps,
         std::vector<std::string>* of_maps)
      : operation_(operation), text_(text), steps_(steps), of_maps_(of_maps) {}

  std::vector<Argument> parse() {
    std::vector<Argument> all = object();
    space();
    if (at_ != text_.size()) refuse("the end");
    return all;
  }

 private:
  // The members that say what an object is, and that of a chain.
  static constexpr std::string_view kName = "name", kSteps = "steps";
  static constexpr std::string_view kWrapped[] = {"seed", "stream", "position"};
  static constexpr int kDeepest = 64;  // each object takes some of the stack

  [[noreturn]] void refuse(std::string_view expected) const {
    fail("{}: parameters must be a JSON object, got '{}': expected {} at character {}", operation_, text_, expected, at_ + 1);
  }
  void space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(std::string_view token) {
    space();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) refuse(token);
  }

  // The library's names need no escapes.
  std::string_view string() {
    expect("\"");
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') ++at_;
    if (at_ == text_.size() || text_[at_] == '\\') refuse("the end of a string without escapes");
    return text_.substr(begin, at_++ - begin);
  }

  // wraps: integers up to 2^64 - 1 count modulo 2^64.
  ParamValue number(bool wraps = false) {
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    std::int64_t integer = 0;
    std::uint64_t large = 0;
    double wide = 0;
    const auto whole = std::from_chars(begin, end, integer);
    const auto unsigned_whole = std::from_chars(begin, end, large);
    const auto real = double_from_chars(begin, end, wide);
    const auto is_digit = [&](const char* at) { return at < real.ptr && *at >= '0' && *at <= '9'; };
    if (real.ptr == begin) refuse("a value");
    const char* const first = *begin == '-' ? begin + 1 : begin;
    if (*first == '0' && is_digit(first + 1)) refuse("a number without leading zeros");
    at_ += static_cast<std::size_t>(real.ptr - begin);
    if (whole.ec == std::errc() && whole.ptr == real.ptr) return integer;
    if (wraps && unsigned_whole.ec == std::errc() && unsigned_whole.ptr == real.ptr) return static_cast<std::int64_t>(large);
    if (real.ec != std::errc()) refuse("a number that a double holds");
    return wide;
  }

  ParamValue value(bool wraps = false) {
    space();
    if (at_ == text_.size()) refuse("a value");
    if (text_[at_] == '"') return std::string(string());
    if (text_[at_] == '{') return map();
    if (text_[at_] == '[') return integers();
    if (take("true")) return true;
    if (take("false")) return false;
    if (take("null")) return std::monostate();
    if (take("Infinity")) return std::numeric_limits<double>::infinity();
    if (take("-Infinity")) return -std::numeric_limits<double>::infinity();
    if (take("NaN")) return std::nan("");
    return number(wraps);
  }

  std::vector<std::int64_t> integers() {
    std::vector<std::int64_t> all;
    expect("[");
    if (take("]")) return all;
    do {
      space();
      const ParamValue one = number();
      if (!std::holds_alternative<std::int64_t>(one)) refuse("an integer");
      all.push_back(std::get<std::int64_t>(one));
    } while (take(","));
    expect("]");
    return all;
  }

  // {"name": "entmax", "alpha": 1.3}
  ParamValue map() {
    const auto [name, members] = named("map");
    refuse_nulls(find_operation(family_info<Map>(), name), members);
    for (const Argument& one : members) {
      if (of_maps_ != nullptr) of_maps_->emplace_back(one.name);
    }
    return make_map(name, members);
  }

  // [{"name": "temperature", "temperature": 0.8}, {"name": "top_k", "k": 50}]
  std::vector<Step> chain() {
    std::vector<Step> all;
    expect("[");
    if (take("]")) return all;
    do {
      space();
      const auto [name, members] = named("step");
      refuse_nulls(find_operation(family_info<Step>(), name), members);
      all.push_back(make<Step>(name, members));
    } while (take(","));
    expect("]");
    return all;
  }

  std::pair<std::string, std::vector<Argument>> named(std::string_view what) {
    std::vector<Argument> members = object();
    std::string name;
    std::erase_if(members, [&](const Argument& one) {
      if (one.name != kName) return false;
      if (const auto* const text = std::get_if<std::string>(&one.value)) name = *text;
      return true;
    });
    if (name.empty()) fail("{}: a {} must have the member \"name\", got '{}'", operation_, what, text_);
    return {name, std::move(members)};
  }

  std::vector<Argument> object() {
    std::vector<Argument> members;
    expect("{");
    if (take("}")) return members;
    if (++depth_ > kDeepest) fail("{}: parameters must not be nested more than {} deep", operation_, kDeepest);
    do {
      space();
      const std::string_view name = string();
      for (const Argument& other : members) {
        if (other.name == name) fail("{}: parameters has '{}' twice", operation_, name);
      }
      expect(":");
      if (steps_ != nullptr && depth_ == 1 && name == kSteps) {
        if (steps_->has_value()) fail("{}: parameters has 'steps' twice", operation_);
        *steps_ = chain();
      } else {
        members.push_back({name, value(std::ranges::find(kWrapped, name) != std::end(kWrapped))});
      }
    } while (take(","));
    expect("}");
    --depth_;
    return members;
  }

  std::string_view operation_, text_;
  std::optional<std::vector<Step>>* steps_;
  std::vector<std::string>* of_maps_;
  int depth_ = 0;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<Argument> parse_parameters(std::string_view operation, std::string_view text,
                                       std::optional<std::vector<Step>>* steps, std::vector<std::string>* of_maps) {
  return Parser(operation, text, steps, of_maps).parse();
}

void refuse_nulls(const OperationInfo* info, const std::vector<Argument>& given) {
  if (info == nullptr) return;
  for (const Argument& one : given) {
    if (!std::holds_alternative<std::monostate>(one.value)) continue;
    for (const ParamInfo& param : info->params) {
      if (param.name != one.name || std::holds_alternative<std::monostate>(param.initial)) continue;
      fail("{}: {} must be {}, got null; left out it has its default", info->name, param.name, param.allowed);
    }
  }
}

}  // namespace isentropic::inline ISENTROPIC_ABI
