// Hugging Face's .safetensors: a header in JSON with the place of each array, then the arrays. Source:
// https://github.com/huggingface/safetensors, README, "Format".

#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "array.h"
#include "text.h"

namespace files {
namespace {

constexpr std::uint64_t kLongestHeader = 100'000'000;  // the limit of the format's own library

struct Entry {
  std::string key;
  std::string type;
  std::vector<std::size_t> shape;
  std::uint64_t begin = 0, end = 0;
};

// The entries of the header. Throws BadInput if it is broken.
std::vector<Entry> entries_of(std::string& header, std::string_view name) {
  const auto broken = [&](std::string_view how) { bad_input("{}: the header {}", name, how); };
  simdjson::dom::parser parser;
  simdjson::dom::object all;
  if (parser.parse(header).get(all) != simdjson::SUCCESS) broken("is not a JSON object");
  std::vector<Entry> entries;
  std::unordered_set<std::string_view> keys;  // a model has tens of thousands
  for (const auto& [key, value] : all) {
    if (key == "__metadata__") continue;
    Entry entry;
    entry.key = key;
    std::string_view type;
    simdjson::dom::array shape, offsets;
    if (value["dtype"].get(type) != simdjson::SUCCESS || value["shape"].get(shape) != simdjson::SUCCESS ||
        value["data_offsets"].get(offsets) != simdjson::SUCCESS) {
      broken(fmt::format("lacks dtype, shape or data_offsets for {}", in_quotes(key)));
    }
    entry.type = type;
    for (const auto length : shape) {
      std::uint64_t number = 0;
      if (length.get(number) != simdjson::SUCCESS)
        broken(fmt::format("has a shape that is not of numbers for {}", in_quotes(key)));
      entry.shape.push_back(number);
    }
    std::uint64_t* places[] = {&entry.begin, &entry.end};
    std::size_t count = 0;
    for (const auto offset : offsets) {
      if (count == 2 || offset.get(*places[count++]) != simdjson::SUCCESS) count = 3;
      if (count == 3) break;
    }
    if (count != 2 || entry.begin > entry.end)
      broken(fmt::format("has data_offsets that are not a range for {}", in_quotes(key)));
    if (!keys.insert(key).second) broken(fmt::format("has {} twice", in_quotes(key)));
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Where the last array ends. The arrays must follow one another without gaps, as the format says.
std::uint64_t end_of(std::vector<Entry> entries, std::string_view name) {
  std::ranges::sort(entries, {}, [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != end) {
      bad_input("{}: {} begins at byte {}, but the array before it ends at {}", name, in_quotes(entry.key), entry.begin, end);
    }
    end = entry.end;
  }
  return end;
}

Stored type_of(const Entry& entry, std::string_view name) {
  static constexpr std::pair<std::string_view, Stored> kTypes[] = {
      {"F64", Stored::float64},  {"F32", Stored::float32}, {"F16", Stored::float16}, {"BF16", Stored::bfloat16},
      {"BOOL", Stored::boolean}, {"I8", Stored::int8},     {"I16", Stored::int16},   {"I32", Stored::int32},
      {"I64", Stored::int64},    {"U8", Stored::uint8},    {"U16", Stored::uint16},  {"U32", Stored::uint32},
      {"U64", Stored::uint64}};
  for (const auto& [known, stored] : kTypes) {
    if (entry.type == known) return stored;
  }
  bad_input("{}: the array's type is {}; floats of 16, 32 and 64 bits, integers and booleans can be read", name,
            in_quotes(entry.type));
}

}  // namespace

Reader open_safetensors(std::shared_ptr<Input> input, const ReadOptions& options) {
  const std::string& name = input->name();
  refuse_columns(options, name, "a .safetensors file");
  std::uint64_t length = 0;
  const std::size_t got = input->read(reinterpret_cast<char*>(&length), sizeof(length));
  if (got == 0) bad_input("{}: the file is empty", name);
  const bool too_long = length > kLongestHeader || (input->size() && length > *input->size() - got);
  if (got < sizeof(length) || too_long)
    bad_input("{}: this is not a .safetensors file, or it is cut short within its header", name);
  std::string header(length, ' ');
  if (input->read(header.data(), length) < length) bad_input("{}: the file is cut short within its header", name);

  const std::vector<Entry> entries = entries_of(header, name);
  std::vector<std::string_view> keys;
  for (const Entry& entry : entries) keys.push_back(entry.key);
  const Entry& entry = entries[chosen_key(keys, options, name)];
  Array array{.type = type_of(entry, name), .shape = entry.shape, .key = entry.key};

  const std::uint64_t start = sizeof(length) + length;
  const std::uint64_t end = end_of(entries, name);
  if (input->size() && entry.end > *input->size() - start) {
    bad_input("{}: the file is cut short: {} ends at byte {}, the file at {}", name, in_quotes(entry.key), entry.end,
              *input->size() - start);
  }
  if (input->size()) {
    input->seek(start + entry.begin);
  } else {
    std::vector<char> skipped(1 << 16);
    for (std::uint64_t left = entry.begin; left > 0;) {
      const std::size_t skip = input->read(skipped.data(), std::min<std::uint64_t>(left, skipped.size()));
      if (skip == 0) bad_input("{}: the file is cut short before {}", name, in_quotes(entry.key));
      left -= skip;
    }
  }
  const auto left = std::make_shared<std::uint64_t>(entry.end - entry.begin);
  const auto read = [input, left](char* to, std::size_t count) {
    const std::size_t taken = input->read(to, std::min<std::uint64_t>(count, *left));
    *left -= taken;
    return taken;
  };
  // The size of a pipe is only known at its end.
  Reader reader = array_reader(std::move(array), name, read,
                               input->size() ? std::optional<std::uint64_t>(entry.end - entry.begin) : std::nullopt);
  if (input->size() && end < *input->size() - start) {
    bad_input("{}: the file is longer than its header says: its arrays end at byte {}, the file at {}", name, end,
              *input->size() - start);
  }
  return reader;
}

Writer create_safetensors(Output& output, const Table& first, bool counted) {
  static constexpr std::string_view kTypes[] = {"F32", "F64", "F16", "BF16"};  // in the order of Table::values
  static constexpr std::size_t kSizes[] = {4, 8, 2, 2};
  const auto header = [key = json_string(first.key.empty() ? "array" : first.key),
                       type = first.whole ? "I64" : kTypes[first.values.index()], item = kSizes[first.values.index()],
                       shape = first.shape](std::optional<std::size_t> rows) {
    std::vector<std::size_t> lengths = shape;
    if (rows) lengths[0] = *rows;
    std::size_t count = 1;
    for (const std::size_t n : lengths) count *= n;
    std::string json = fmt::format("{{{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[0,{}]}}}}", key, type,
                                   fmt::join(lengths, ","), count * item);
    // The header has room for two numbers that may not be known yet; blanks may follow the JSON.
    const std::size_t length = (key.size() + 20 * (lengths.size() + 1) + 64 + 7) / 8 * 8;
    json.append(length - json.size(), ' ');
    const std::uint64_t size = length;
    return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + json;
  };
  if (!counted) output.allow_changes();
  output.write(header(std::nullopt));
  const auto append = [&output](std::string_view encoded) { output.write(encoded); };
  if (counted) return {.append = append};
  return {.append = append, .end = [&output, header](std::size_t rows) { output.change(0, header(rows)); }};
}

}  // namespace files
