// Bars of the accuracy of each bin, hatched between accuracy and confidence, beside the line where both are equal.
#include "reliability_html.h"

#include <fmt/format.h>

#include <algorithm>

#include "page.h"

namespace {

constexpr std::string_view kStyle = R"html(main { max-width: 1120px; margin: 0 auto; padding: 16px; }
h1 { font-size: 18px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 15.5px; margin: 0 0 8px; display: flex; justify-content: space-between; flex-wrap: wrap; gap: 4px 12px; }
h2 span { font-weight: normal; color: var(--soft); }
p { margin: 0 0 14px; max-width: 70ch; color: var(--soft); }
.cards { display: grid; margin-bottom: 14px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); gap: 14px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px; min-width: 0; }
svg { display: block; width: 100%; max-width: 520px; height: auto; margin: 0 auto; }
text { fill: var(--soft); font-size: 11px; }
.axis { stroke: var(--soft); fill: none; }
.even { stroke: var(--ink); stroke-dasharray: 5 4; fill: none; }
.accuracy { fill: var(--bar); }
.gap { fill: url(#hatched); stroke: var(--gap); }
.mean { stroke: var(--ink); stroke-width: 2; }
.rows { fill: var(--soft); }
details { margin-top: 8px; }
summary { cursor: pointer; color: var(--soft); padding: 6px 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { padding: 4px 8px; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
thead th { color: var(--soft); font-weight: normal; }
tbody tr { border-top: 1px solid var(--line); }
</style>
)html";

// Coordinates of the picture: confidence to the right, accuracy up, and below it the number of rows of each bin.
constexpr double kLeft = 42, kTop = 10, kSide = 300, kRowsTop = 352, kRowsHeight = 48;

double across(double confidence) { return kLeft + kSide * confidence; }
double up(double share) { return kTop + kSide * (1 - share); }

void append_picture(std::string& page, const Reliability& diagram) {
  const auto add = [&page](fmt::string_view format, const auto&... values) {
    fmt::vformat_to(std::back_inserter(page), format, fmt::make_format_args(values...));
  };
  double most = 0;
  for (const isentropic::ReliabilityBin& bin : diagram.bins) most = std::max(most, bin.weight);
  add("<svg viewBox=\"0 0 360 424\" role=\"img\" aria-label=\"Accuracy by confidence: {}\">\n", escaped(diagram.title));
  for (const double tick : {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}) {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", across(tick), kTop + kSide + 16, tick);
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 6, up(tick) + 4, tick);
  }
  for (const isentropic::ReliabilityBin& bin : diagram.bins) {
    const double left = across(bin.lower), width = std::max(1.0, across(bin.upper) - left - 1);
    add("<g><title>{:g} rows of confidence {:.4f}: accuracy {:.4f}</title>", bin.weight, bin.confidence, bin.accuracy);
    add("<rect class=\"accuracy\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>", left, up(bin.accuracy),
        width, kSide * bin.accuracy);
    const double low = std::min(bin.accuracy, bin.confidence), high = std::max(bin.accuracy, bin.confidence);
    add("<rect class=\"gap\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>", left, up(high), width,
        kSide * (high - low));
    add("<path class=\"mean\" d=\"M{:.1f} {:.1f}h{:.1f}\"/>", left, up(bin.confidence), width);
    const double height = most > 0 ? kRowsHeight * bin.weight / most : 0;
    add("<rect class=\"rows\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/></g>\n", left,
        kRowsTop + kRowsHeight - height, width, height);
  }
  add("<path class=\"even\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>", across(0), up(0), across(1), up(1));
  add("<path class=\"axis\" d=\"M{:.1f} {:.1f}v{:.1f}h{:.1f}M{:.1f} {:.1f}h{:.1f}\"/>", kLeft, kTop, kSide, kSide, kLeft,
      kRowsTop + kRowsHeight, kSide);
  add("<text x=\"{:.1f}\" y=\"342\" text-anchor=\"middle\">confidence</text>", across(0.5));
  add("<text x=\"{:.1f}\" y=\"416\" text-anchor=\"middle\">rows in each bin, at most {:g}</text>", across(0.5), most);
  add("<text x=\"12\" y=\"{:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 12 {:.1f})\">accuracy</text>\n</svg>\n",
      up(0.5), up(0.5));
}

void append_table(std::string& page, const Reliability& diagram) {
  page += fmt::format(
      "<details><summary>The numbers</summary><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Bins: {}\">"
      "<table><thead><tr>",
      escaped(diagram.title));
  for (const std::string_view name : {"from", "to", "rows", "confidence", "accuracy"}) {
    page += fmt::format("<th scope=\"col\">{}</th>", name);
  }
  page += "</tr></thead><tbody>\n";
  for (const isentropic::ReliabilityBin& bin : diagram.bins) {
    page += fmt::format("<tr><td>{:.4g}</td><td>{:.4g}</td><td>{:g}</td><td>{:.4f}</td><td>{:.4f}</td></tr>\n", bin.lower,
                        bin.upper, bin.weight, bin.confidence, bin.accuracy);
  }
  page += "</tbody></table></div></details>\n";
}

}  // namespace

std::string reliability_html(const std::string& heading, const std::string& said, const std::vector<Reliability>& diagrams) {
  std::string page = page_head(heading, "");
  page += fmt::format("{}</head>\n<body>\n", kStyle);
  page +=
      "<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs>"
      "<pattern id=\"hatched\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
      "<path d=\"M0 0v6\" style=\"stroke:var(--gap)\" stroke-width=\"3\"/></pattern></defs></svg>\n";
  page += fmt::format("<main>\n<h1>{}</h1>\n<p>{}</p>\n<div class=\"cards\">\n", escaped(heading), escaped(said));
  for (const Reliability& diagram : diagrams) {
    page +=
        fmt::format("<section>\n<h2>{} <span>calibration error {:.4f}</span></h2>\n", escaped(diagram.title), diagram.error);
    append_picture(page, diagram);
    append_table(page, diagram);
    page += "</section>\n";
  }
  page +=
      "</div>\n<p>Filled: the share of a bin's rows whose most probable class is the right one. Hatched: the gap to their mean "
      "confidence, the thick line. On the dashed line both are equal. The calibration error is the mean gap, weighed by "
      "rows.</p>\n"
      "</main>\n</body>\n</html>\n";
  return page;
}
