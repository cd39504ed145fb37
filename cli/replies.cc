#include "replies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "files/text.h"
#include "rows.h"

namespace {

std::string number_text(double number, int digits) {
  fmt::memory_buffer text;
  files::append_number(text, number, digits);
  return fmt::to_string(text);
}

}  // namespace

void keep_tokens(files::Table& table, int digits) {
  const auto keep = [&](const char* name, const auto& cell_of) {
    files::Table::Kept column = {name, {}, {}};
    for (const files::Table::Token& token : table.tokens) {
      column.words.push_back(!files::is_json_number(column.cells.emplace_back(cell_of(token))));
      if (column.cells.back().empty()) column.words.back() = false;  // nothing: not even an empty word
    }
    table.kept.push_back(std::move(column));
  };
  using Token = files::Table::Token;
  keep("reply", [](const Token& token) { return fmt::format("{}", token.reply); });
  keep("position", [](const Token& token) { return fmt::format("{}", token.position); });
  keep("logprob", [&](const Token& token) { return std::isnan(token.logprob) ? "" : number_text(token.logprob, digits); });
  keep("rank", [](const Token& token) { return token.rank == 0 ? "" : fmt::format("{}", token.rank); });
}

files::Table by_reply(files::Table table) {
  files::Table result;
  result.label_column = 0;
  result.label_header = "reply";
  result.number_labels = true;
  result.file = table.file;
  result.first_row = table.first_row;
  result.rows_before = table.rows_before;
  result.header = {"tokens", "mean_logprob", "min_logprob"};
  for (const std::string& measure : table.header) result.header.push_back("mean_" + measure);
  result.cols = result.header.size();
  const std::vector<double> measures = as_doubles(table);
  std::vector<double> values;
  for (std::size_t begin = 0, end; begin < table.rows; begin = end) {
    const std::size_t reply = table.tokens[begin].reply;
    std::vector<double> sums(table.cols);
    double sum = 0, least = std::numeric_limits<double>::infinity();
    for (end = begin; end < table.rows && table.tokens[end].reply == reply; ++end) {
      const double logprob = table.tokens[end].logprob;
      sum += logprob;
      if (std::isnan(logprob) || logprob < least) least = logprob;  // nothing is less than NaN
      for (std::size_t c = 0; c < table.cols; ++c) sums[c] += measures[end * table.cols + c];
    }
    const auto tokens = static_cast<double>(end - begin);
    values.insert(values.end(), {tokens, sum / tokens, least});
    for (const double one : sums) values.push_back(one / tokens);
    result.labels.push_back(fmt::format("{}", reply));
    ++result.rows;
  }
  result.values = std::move(values);
  result.shape = {result.rows, result.cols};
  return result;
}
