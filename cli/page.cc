#include "page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "files/file.h"
#include "files/system.h"
#include "files/text.h"
#include "rows.h"

std::string inert_json(std::string_view text) {
  std::string inert;
  for (const char c : files::json_string(text)) {
    if (c == '<') {
      inert += "\\u003c";
    } else {
      inert += c;
    }
  }
  return inert;
}

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    const std::string_view instead = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : "";
    if (instead.empty()) {
      safe += c;
    } else {
      safe += instead;
    }
  }
  return safe;
}

std::string page_head(std::string_view title, std::string_view scripts) {
  constexpr std::string_view kStyle =
#include "page_style.inc"
      ;
  return fmt::format(R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'{}{}">
<link rel="icon" href="data:,">
<title>{}</title>
<style>
{})html",
                     scripts.empty() ? "" : "; script-src ", scripts, escaped(title), kStyle);
}

namespace {

constexpr std::string_view kNoRows = R"(<script type="application/json" id="rows">{}</script>)";

std::string contents_of(const std::string& path) {
  files::Input input(path);
  std::string contents;
  for (char part[1 << 16]; const std::size_t size = input.read(part, sizeof part);) contents.append(part, size);
  return contents;
}

}  // namespace

std::optional<std::string> explorer_page() {
  const char* const chosen = std::getenv("ISENTROPIC_EXPLORER");
  std::string path = chosen == nullptr ? "" : chosen;
  if (path.empty()) {
    const std::string program = files::sys::program();
    const auto folder_end = program.find_last_of("/\\");
    if (folder_end == program.npos) return std::nullopt;
    path = program.substr(0, folder_end) + "/../share/isentropic/explorer.html";
    if (!files::sys::status_of(path)) return std::nullopt;
  }
  std::string page = contents_of(path);
  if (page.find(kNoRows) == page.npos || script_of(page, "wasm").empty() || script_of(page, "library").empty()) {
    files::bad_input("{}: scripts/explorer did not write this page", path);
  }
  return page;
}

std::string_view script_of(std::string_view page, std::string_view id) {
  const std::size_t name = page.find(fmt::format(" id=\"{}\">", id));
  if (name == page.npos) return {};
  const std::size_t begin = page.find('>', name) + 1;
  return page.substr(begin, page.find("</script>", begin) - begin);
}

std::string page_with_rows(std::string page, const files::Table& table, std::size_t& kept) {
  constexpr std::size_t kMostRows = 1000, kMostNumbers = 2'000'000;
  kept = std::min({table.rows, kMostRows, std::max<std::size_t>(1, kMostNumbers / std::max<std::size_t>(1, table.cols))});
  std::string rows = R"(<script type="application/json" id="rows">{"names":)";
  auto end = std::back_inserter(rows);
  if (table.header.empty()) rows += "null";
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    fmt::format_to(end, "{}{}", i == 0 ? '[' : ',', inert_json(table.header[i]));
  }
  if (!table.header.empty()) rows += ']';
  rows += ",\"rows\":[";
  std::visit(
      [&](const auto& values) {
        for (std::size_t r = 0; r < kept; ++r) {
          fmt::format_to(end, "{}{{\"label\":{},\"scores\":[", r == 0 ? "" : ",",
                         table.labels.empty() ? "null" : inert_json(table.labels[r]));
          for (std::size_t i = 0; i < table.cols; ++i) {
            // JSON has no infinity.
            const double x = as_double(values[r * table.cols + i]);
            fmt::format_to(end, "{}{}", i == 0 ? "" : ",", std::isfinite(x) ? fmt::format("{}", x) : fmt::format("\"{}\"", x));
          }
          rows += "]}";
        }
      },
      table.values);
  rows += "]}</script>";
  page.replace(page.find(kNoRows), kNoRows.size(), rows);
  return page;
}
