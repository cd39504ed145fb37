// The comparison as a page: one file without a network, for a phone and a desk, light and dark.
//
// The page holds the rows around the chosen one, of each row the classes that are shown and of all rows the histograms; its
// script only draws.
#include <algorithm>
#include <cmath>
#include <map>

#include "compare.h"
#include "files/text.h"

namespace {

constexpr std::size_t kMostRows = 400;

constexpr std::string_view kPage = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<title>entropic compare</title>
<style>
:root {
  --page: #f6f5f1; --card: #ffffff; --ink: #1f2328; --soft: #636a72; --line: #e3e1da; --track: #efeee9;
  --bar: #2b6cb0; --score: #8a94a0; --mark: #c2410c; --focus: #2b6cb0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1c2026; --ink: #e8e9ea; --soft: #9aa3ad; --line: #2d333b; --track: #262b32;
    --bar: #63a8e8; --score: #7d8793; --mark: #fb923c; --focus: #63a8e8;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 1320px; margin: 0 auto; padding: 0 16px 48px; }
header { position: sticky; top: 0; z-index: 1; background: var(--page); border-bottom: 1px solid var(--line); }
header > div { max-width: 1320px; margin: 0 auto; padding: 10px 16px; display: flex; flex-wrap: wrap; gap: 8px 20px;
  align-items: center; }
h1 { font-size: 17px; margin: 0; flex: 1 1 220px; min-width: 0; overflow-wrap: anywhere; }
h1 small { display: block; font-weight: normal; font-size: 13px; color: var(--soft); }
h2 { font-size: 16px; margin: 28px 0 4px; }
p { margin: 0 0 12px; color: var(--soft); font-size: 13.5px; }
nav { display: flex; gap: 8px; align-items: center; flex: 1 1 320px; max-width: 560px; }
nav input[type=range] { flex: 1; min-width: 60px; accent-color: var(--bar); height: 40px; margin: 0; }
nav button, nav input[type=number] { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; height: 40px; }
nav button { width: 44px; font-size: 19px; line-height: 1; cursor: pointer; }
nav button:disabled { opacity: .35; cursor: default; }
nav input[type=number] { width: 86px; padding: 0 8px; text-align: right; }
:focus-visible { outline: 2px solid var(--focus); outline-offset: 2px; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); gap: 14px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 12px 14px; min-width: 0; }
.card h3 { margin: 0 0 8px; font-size: 14.5px; display: flex; justify-content: space-between; gap: 8px; flex-wrap: wrap; }
.card h3 span { font-weight: normal; color: var(--soft); font-size: 12.5px; }
.row { display: grid; grid-template-columns: minmax(36px, 26%) 1fr 58px; gap: 8px; align-items: center; height: 21px;
  font-size: 13px; }
.row > :first-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; color: var(--soft); }
.row > :last-child { text-align: right; font-variant-numeric: tabular-nums; }
.row.none > :last-child { color: var(--soft); }
.track { background: var(--track); border-radius: 4px; height: 12px; overflow: hidden; position: relative; }
.track i { display: block; background: var(--bar); border-radius: 4px; height: 100%; position: absolute; top: 0; }
.scores .track i { background: var(--score); }
.wide { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 7px 14px; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { font-weight: 600; }
thead th { color: var(--soft); font-weight: normal; font-size: 13px; }
tbody tr { border-top: 1px solid var(--line); }
th:first-child { text-align: left; }
svg { display: block; width: 100%; height: 84px; }
svg rect { fill: var(--bar); }
svg line { stroke: var(--mark); stroke-width: 2; vector-effect: non-scaling-stroke; }
.picks { display: flex; flex-wrap: wrap; gap: 8px; margin: 0 0 12px; }
select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 8px; height: 40px;
  padding: 0 8px; max-width: 100%; }
.apart { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); gap: 14px; align-items: start; }
#matrix svg { height: auto; max-width: 560px; margin: 0 auto; }
#matrix rect { cursor: pointer; }
#matrix .none { fill: var(--track); }
#matrix .here { fill: none; stroke: var(--mark); stroke-width: 2; vector-effect: non-scaling-stroke; pointer-events: none; }
.axis { display: flex; justify-content: space-between; color: var(--soft); font-size: 12px; border-top: 1px solid var(--line);
  padding-top: 3px; }
@media (max-width: 560px) {
  h2 { margin-top: 22px; }
  th, td { padding: 7px 9px; }
  .long { display: none; }
}
@media (min-width: 561px) { .short { display: none; } }
@media print { header { position: static; } nav { display: none; } .card, .wide { break-inside: avoid; } }
</style>
</head>
<body>
<header><div>
<h1><span id="file"></span><small id="where" aria-live="polite"></small></h1>
<nav aria-label="Row">
<button id="back" aria-label="Previous row" title="Previous row (left arrow)">&#8249;</button>
<input id="slider" type="range" aria-label="Row" step="1">
<button id="forth" aria-label="Next row" title="Next row (right arrow)">&#8250;</button>
<input id="number" type="number" aria-label="Number of the row" step="1" inputmode="numeric">
</nav>
</div></header>
<main>
<h2>Probabilities</h2>
<p id="scale"></p>
<div class="cards" id="bars"></div>
<h2>In numbers</h2>
<p>Effective support is e to the entropy: so many equal probabilities have the same entropy.</p>
<div class="wide"><table>
<thead><tr><th scope="col">map</th><th scope="col">entropy<span class="long"> (nats)</span></th><th scope="col"><span
class="long">effective support</span><span class="short">support</span></th><th scope="col">zeros</th><th
scope="col"><span class="long">maximum</span><span class="short">max.</span></th></tr></thead>
<tbody id="numbers"></tbody></table></div>
<h2>Distance between rows</h2>
<p id="apart"></p>
<div class="picks"><select id="under" aria-label="Map"></select><select id="by" aria-label="Distance"></select></div>
<div class="apart"><section class="card" id="matrix"></section><section class="card" id="near"></section></div>
<h2>Entropy of all rows</h2>
<p id="all"></p>
<div class="cards" id="histograms"></div>
</main>
<noscript><main><p>The numbers of this page are drawn by a script, which this browser does not run.</p></main></noscript>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const last = data.first + data.rows.length - 1;
let row = data.row;

function make(tag, parts, attributes = {}) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...parts);
  return element;
}
const count = (n) => n.toLocaleString("en-US");
function probability(p) {
  if (p === null) return "nan";
  if (p === 0 || p === 1) return String(p);
  return p < 0.00005 ? p.toExponential(0) : p.toFixed(4);
}
const score = (x) => x === null ? "nan" : typeof x === "string" ? x : String(Number(x.toPrecision(4)));
const fixed = (x, digits) => x === null ? "nan" : x.toFixed(digits);

function line(name, text, begin, end, none) {
  const bar = make("i", []);
  bar.style.left = 100 * begin + "%";
  bar.style.width = end > begin ? "max(2px, " + 100 * (end - begin) + "%)" : "0";
  return make("div", [make("span", [name], {title: name}), make("div", [bar], {class: "track", "aria-hidden": "true"}),
    make("span", [text])], {class: none ? "row none" : "row"});
}
function card(title, note, lines, kind) {
  return make("section", [make("h3", [title, ...(note ? [make("span", [note])] : [])]), ...lines], {class: "card " + kind});
}
const name = (i) => data.classes[i] ?? String(i);

function draw() {
  const shown = data.rows[row - data.first];
  at("where").textContent = "Row " + count(row) + (shown.label ? " (" + shown.label + ")" : "") + " of " + count(data.total) +
    ", " + count(data.cols) + (data.cols === 1 ? " class" : " classes");
  at("back").disabled = row === data.first;
  at("forth").disabled = row === last;
  at("slider").value = at("number").value = row;

  const full = Math.max(...shown.maps.flatMap((map) => map.p.map((p) => p ?? 0)));
  const more = data.cols - shown.classes.length;
  at("scale").textContent = (full > 0 ? "A full bar is " + probability(full) + ", under every map. " : "") +
    (more > 0 ? "Shown are the " + shown.classes.length + " classes with the largest scores." : "");
  const finite = shown.scores.filter((x) => typeof x === "number");
  const low = Math.min(0, ...finite), high = Math.max(0, ...finite), span = high - low || 1;
  const cards = [card("scores", "", shown.classes.map((i, k) => {
    const x = shown.scores[k], end = x === "inf" ? high : x === "-inf" ? low : x ?? 0;
    return line(name(i), score(x), (Math.min(0, end) - low) / span, (Math.max(0, end) - low) / span, x === null);
  }), "scores")];
  data.maps.forEach((map, m) => {
    const found = shown.maps[m];
    const lines = shown.classes.map((i, k) =>
      line(name(i), probability(found.p[k]), 0, full > 0 ? (found.p[k] ?? 0) / full : 0, !found.p[k]));
    if (more > 0) lines.push(line(count(more) + " more", probability(found.rest), 0, 0, true));
    cards.push(card(map.name, map.parameters, lines, "map"));
  });
  at("bars").replaceChildren(...cards);

  at("numbers").replaceChildren(...data.maps.map((map, m) => {
    const found = shown.maps[m];
    return make("tr", [make("th", [map.name], {scope: "row"}), ...[fixed(found.entropy, 4),
      fixed(found.support, found.support < 100 ? 2 : 0), count(found.zeros), probability(found.maximum)
    ].map((text) => make("td", [text]))]);
  }));

  data.maps.forEach((map, m) => {
    const entropy = shown.maps[m].entropy, mark = document.querySelector("#mark" + m);
    const x = entropy === null || data.top === 0 ? -5 : 240 * Math.min(1, Math.max(0, entropy / data.top));
    mark.setAttribute("x1", x);
    mark.setAttribute("x2", x);
    at("here" + m).textContent = "this row " + fixed(entropy, 2);
  });
  if (mark) nearest();
}

const svg = "http://www.w3.org/2000/svg";
const measures = {
  js_distance: ["Jensen-Shannon distance", "the root of the divergence in nats: 0 for equal rows, at most 0.83"],
  total_variation: ["Total variation", "half the sum of differences: 0 for equal rows, 1 where nothing is shared"],
  wasserstein: ["Wasserstein distance (order 1)",
    "how far the mass has to move, in classes: for classes whose order means something"],
};
const label = (r) => "row " + count(r) + (data.rows[r - data.first]?.label ? " (" + data.rows[r - data.first].label + ")" : "");
const distance = (d) => d === null ? "nan" : d === 0 ? "0" : d < 0.00005 ? d.toExponential(0) : String(Number(d.toPrecision(4)));
let mark = null;

function matrix() {
  const near = data.near, found = near.maps[at("under").value][at("by").value], n = near.count;
  const known = found.filter((d) => d !== null), most = Math.max(...known, 0);
  at("apart").textContent = measures[at("by").value][0] + " of each row from each other: " + measures[at("by").value][1] +
    ". Rows " + count(near.first) + " to " + count(near.first + n - 1) + "; the fuller the colour, the further" +
    (most > 0 ? ", up to " + distance(most) : "") + ".";
  const picture = document.createElementNS(svg, "svg");
  picture.setAttribute("viewBox", "0 0 " + n + " " + n);
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", measures[at("by").value][0] + " between rows under " + at("under").selectedOptions[0].text);
  for (let i = 0; i < n; ++i) {
    for (let j = 0; j < n; ++j) {
      const d = found[i * n + j], cell = document.createElementNS(svg, "rect"), title = document.createElementNS(svg, "title");
      for (const [key, value] of Object.entries({x: j + 0.04, y: i + 0.04, width: 0.92, height: 0.92})) cell.setAttribute(key, value);
      if (d === null) cell.setAttribute("class", "none");
      else cell.setAttribute("fill-opacity", most > 0 ? 0.06 + 0.94 * d / most : 0.06);
      title.textContent = label(near.first + i) + ", " + label(near.first + j) + ": " + distance(d);
      cell.append(title);
      cell.addEventListener("click", () => go(near.first + j));
      picture.append(cell);
    }
  }
  mark = document.createElementNS(svg, "rect");
  mark.setAttribute("class", "here");
  mark.setAttribute("x", 0);
  mark.setAttribute("width", n);
  mark.setAttribute("height", 1);
  picture.append(mark);
  at("matrix").replaceChildren(picture);
  nearest();
}

function nearest() {
  const near = data.near, here = row - near.first, inside = here >= 0 && here < near.count;
  mark.setAttribute("y", inside ? here : -9);
  if (!inside) {
    at("near").replaceChildren(make("h3", ["From " + label(row)]), make("p", ["This row is not among those of the matrix."]));
    return;
  }
  const found = near.maps[at("under").value][at("by").value].slice(here * near.count, (here + 1) * near.count);
  const others = found.map((d, k) => [d, near.first + k]).filter(([d, r]) => d !== null && r !== row).sort((a, b) => a[0] - b[0]);
  const most = Math.max(...others.map(([d]) => d), 0);
  const shown = others.length > 12 ? [...others.slice(0, 8), ...others.slice(-4)] : others;
  const lines = shown.map(([d, r]) => line(label(r), distance(d), 0, most > 0 ? d / most : 0, d === 0));
  if (others.length > 12) lines.splice(8, 0, line(count(others.length - 12) + " between", "", 0, 0, true));
  at("near").replaceChildren(make("h3", ["From " + label(row), make("span", ["nearest first"])]),
    ...(lines.length ? lines : [make("p", ["There is no other row to compare with."])]));
}

function histograms() {
  at("all").textContent = count(data.total) + (data.total === 1 ? " row" : " rows") + ", from 0 to log(" + count(data.cols) +
    ") = " + data.top.toFixed(2) + " nats, the largest entropy there can be. The line is the row above.";
  at("histograms").replaceChildren(...data.maps.map((map, m) => {
    const picture = document.createElementNS(svg, "svg");
    const most = Math.max(1, ...map.counts), width = 240 / map.counts.length;
    picture.setAttribute("viewBox", "0 0 240 80");
    picture.setAttribute("preserveAspectRatio", "none");
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", "Entropy under " + map.name + ": rows per interval " + map.counts.join(", "));
    map.counts.forEach((n, k) => {
      const bar = document.createElementNS(svg, "rect"), height = n === 0 ? 0 : Math.max(1.5, 76 * n / most);
      for (const [key, value] of Object.entries({x: k * width + 0.5, y: 80 - height, width: width - 1, height}))
        bar.setAttribute(key, value);
      const title = document.createElementNS(svg, "title");
      const edge = (i) => (data.top * i / map.counts.length).toFixed(2);
      title.textContent = edge(k) + " to " + edge(k + 1) + " nats: " + count(n);
      bar.append(title);
      picture.append(bar);
    });
    const mark = document.createElementNS(svg, "line");
    mark.setAttribute("id", "mark" + m);
    mark.setAttribute("y1", 0);
    mark.setAttribute("y2", 80);
    picture.append(mark);
    return make("section", [make("h3", [map.name, make("span", [map.undefined ? count(map.undefined) + " undefined" : ""])]),
      picture, make("div", [make("span", ["0"]), make("span", [], {id: "here" + m}), make("span", [data.top.toFixed(2)])],
        {class: "axis"})], {class: "card histogram"});
  }));
}

function go(to) {
  const next = Math.min(last, Math.max(data.first, Math.round(Number(to))));
  if (Number.isNaN(next)) return;
  row = next;
  draw();
}
const short = data.file.slice(data.file.lastIndexOf("/") + 1);
at("file").textContent = short;
at("file").title = data.file;
document.title = short + " - entropic compare";
for (const control of [at("slider"), at("number")]) {
  control.min = data.first;
  control.max = last;
}
at("slider").addEventListener("input", () => go(at("slider").value));
at("number").addEventListener("change", () => go(at("number").value));
at("back").addEventListener("click", () => go(row - 1));
at("forth").addEventListener("click", () => go(row + 1));
document.addEventListener("keydown", (event) => {
  if (["INPUT", "SELECT"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  const to = {ArrowLeft: row - 1, ArrowRight: row + 1, PageUp: row - 10, PageDown: row + 10, Home: data.first, End: last};
  if (event.key.startsWith("Page") || !(event.key in to)) return;
  event.preventDefault();
  go(to[event.key]);
});
at("under").replaceChildren(...data.maps.map((map, m) => make("option", [map.name], {value: m})));
at("by").replaceChildren(...Object.entries(measures).map(([key, [name]]) => make("option", [name], {value: key})));
for (const pick of ["under", "by"]) at(pick).addEventListener("change", matrix);
histograms();
draw();
matrix();
</script>
</body>
</html>
)html";

std::string number(double value) {
  if (std::isnan(value)) return "null";
  return std::isinf(value) ? fmt::format("\"{}\"", value) : fmt::format("{:.6g}", value);
}

// A string of JSON that does not end the script it stands in.
std::string text(std::string_view value) {
  std::string escaped;
  for (const char c : files::json_string(value)) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

template <class Range, class F>
std::string array(const Range& range, F element) {
  std::string json = "[";
  for (const auto& item : range) {
    if (json.size() > 1) json += ',';
    json += element(item);
  }
  return json + "]";
}

}  // namespace

std::string comparison_html(const Comparison& comparison, const files::Table& table, const std::vector<entropic::Map>& maps) {
  const std::size_t rows = std::min(table.rows, kMostRows);
  const std::size_t before = std::min(comparison.row, rows / 2);
  const std::size_t first = std::min(comparison.row - before, table.rows - rows);
  std::map<std::size_t, std::string_view> classes;
  std::string row_data;
  for (std::size_t row = first; row < first + rows; ++row) {
    const std::vector<double> x = scores_of(table, row);
    const std::vector<std::size_t> shown = shown_classes(x);
    for (const std::size_t i : shown) classes[i] = comparison.classes[i];
    const auto columns = columns_of(table, row, maps);
    row_data += fmt::format(
        "{}{{\"label\":{},\"classes\":[{}],\"scores\":{},\"maps\":{}}}", row == first ? "" : ",",
        text(table.labels.empty() ? "" : table.labels[row]), fmt::join(shown, ","),
        array(shown, [&](std::size_t i) { return number(x[i]); }), array(columns, [&](const Comparison::Column& column) {
          return fmt::format("{{\"p\":{},\"rest\":{},\"entropy\":{},\"support\":{},\"zeros\":{},\"maximum\":{}}}",
                             array(shown, [&](std::size_t i) { return number(column.p[i]); }), number(rest_of(column, shown)),
                             number(column.entropy), number(column.effective_support), column.zeros, number(column.maximum));
        }));
  }
  std::string map_data;
  for (std::size_t c = 0; c < comparison.columns.size(); ++c) {
    const Histogram& histogram = comparison.histograms[c];
    map_data += fmt::format("{}{{\"name\":{},\"parameters\":{},\"counts\":[{}],\"undefined\":{}}}", c == 0 ? "" : ",",
                            text(comparison.columns[c].map), text(comparison.columns[c].parameters),
                            fmt::join(histogram.counts, ","), histogram.undefined);
  }
  std::string names;
  for (const auto& [i, name] : classes) names += fmt::format("{}\"{}\":{}", names.empty() ? "" : ",", i, text(name));
  std::string near;
  for (const Distances& distances : comparison.distances) {
    near += fmt::format("{}{{\"js_distance\":{},\"total_variation\":{},\"wasserstein\":{}}}", near.empty() ? "" : ",",
                        array(distances.js_distance, number), array(distances.total_variation, number),
                        array(distances.wasserstein, number));
  }
  const Distances none, &any = comparison.distances.empty() ? none : comparison.distances[0];
  near = fmt::format("{{\"first\":{},\"count\":{},\"maps\":[{}]}}", any.first, any.count, near);
  const std::string data = fmt::format(
      "{{\"file\":{},\"total\":{},\"cols\":{},\"first\":{},\"row\":{},\"top\":{},\"classes\":{{{}}},\"maps\":[{}],\"rows\":[{}]"
      ","
      "\"near\":{}}}",
      text(comparison.file), table.rows, table.cols, first, comparison.row,
      number(comparison.histograms.empty() ? 0 : comparison.histograms[0].top), names, map_data, row_data, near);
  constexpr std::string_view kPlace = "@DATA@";
  const std::size_t place = kPage.find(kPlace);
  return fmt::format("{}{}{}", kPage.substr(0, place), data, kPage.substr(place + kPlace.size()));
}
