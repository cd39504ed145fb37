// The comparison as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "compare.h"
#include "files/text.h"

namespace {

std::string json_number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  return std::isinf(value) ? fmt::format("\"{}\"", value) : fmt::format("{}", value);
}

template <class Range, class F>
std::string json_array(const Range& range, F element) {
  std::string json = "[";
  for (const auto& item : range) json += (json.size() > 1 ? ", " : "") + element(item);
  return json + "]";
}

}  // namespace

std::string comparison_json(const Comparison& comparison) {
  const auto text = [](const std::string& value) { return files::json_string(value); };
  std::string json = "{\n";
  json +=
      fmt::format("  \"file\": {},\n  \"row\": {},\n", files::json_string(comparison.file), comparison.before + comparison.row);
  if (!comparison.label.empty()) json += fmt::format("  \"label\": {},\n", files::json_string(comparison.label));
  if (const auto& token = comparison.token) {
    json += fmt::format("  \"reply\": {},\n  \"position\": {},\n  \"logprob\": {},\n  \"rank\": {},\n", token->reply,
                        token->position, std::isnan(token->logprob) ? "null" : json_number(token->logprob),
                        token->rank == 0 ? "null" : fmt::format("{}", token->rank));
  }
  json += fmt::format("  \"classes\": {},\n", json_array(comparison.classes, text));
  json += fmt::format("  \"scores\": {},\n  \"maps\": [", json_array(comparison.x, json_number));
  std::string_view separator = "\n";
  for (std::size_t c = 0; c < comparison.columns.size(); ++c) {
    const Comparison::Column& column = comparison.columns[c];
    json += fmt::format(
        "{}    {{\n      \"name\": {},\n      \"probabilities\": {},\n"
        "      \"entropy\": {},\n      \"effective_support\": {},\n"
        "      \"zeros\": {},\n      \"maximum\": {}",
        separator, files::json_string(column.map), json_array(column.p, json_number), json_number(column.entropy),
        json_number(column.effective_support), column.zeros, json_number(column.maximum));
    if (!comparison.histograms.empty()) {
      const Histogram& histogram = comparison.histograms[c];
      json += fmt::format(",\n      \"entropy_histogram\": {{\"from\": 0, \"to\": {}, \"counts\": [{}], \"undefined\": {}}}",
                          json_number(histogram.top), fmt::join(histogram.counts, ", "), histogram.undefined);
    }
    if (!comparison.distances.empty()) {
      const Distances& distances = comparison.distances[c];
      const auto from_row = [&](const std::vector<double>& matrix) {
        const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>((comparison.row - distances.first) * distances.count);
        return json_array(std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(distances.count)), json_number);
      };
      json += fmt::format(
          ",\n      \"distances\": {{\"first_row\": {},\n        \"js_distance\": {},\n"
          "        \"total_variation\": {},\n        \"wasserstein\": {}}}",
          comparison.before + distances.first, from_row(distances.js_distance), from_row(distances.total_variation),
          from_row(distances.wasserstein));
    }
    json += "\n    }";
    separator = ",\n";
  }
  return json + "\n  ]\n}\n";
}
