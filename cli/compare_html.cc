// The comparison as a page: one file that needs no network, for phones and large screens, light and dark.
//
// The page holds the rows around the chosen one (all rows unless there are very many), the shown classes of each, and the
// histograms of all rows. Its script only draws; of a long list it draws only the part in sight. The page holds numbers as
// bytes in base64, which take a third of the space of their text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <span>

#include "compare.h"
#include "page.h"
#include "rows.h"

namespace {

constexpr std::string_view kPage = R"html(html { scroll-padding-top: 110px; }
main { max-width: 1320px; margin: 0 auto; padding: 0 16px 48px; }
header { position: sticky; top: 0; z-index: 1; background: var(--page); border-bottom: 1px solid var(--line); }
header > div { max-width: 1320px; margin: 0 auto; padding: 10px 16px; display: flex; flex-wrap: wrap; gap: 8px 20px;
  align-items: center; }
h1 { font-size: 17px; margin: 0; flex: 1 1 220px; min-width: 0; overflow-wrap: anywhere; }
h1 small { display: block; font-weight: normal; font-size: 13px; color: var(--soft); }
h2 { font-size: 16px; margin: 28px 0 4px; }
p { margin: 0 0 12px; color: var(--soft); font-size: 13.5px; }
.step { display: flex; gap: 8px; align-items: center; flex: 1 1 320px; max-width: 560px; }
.sections { display: flex; gap: 4px 16px; flex: 1 0 100%; }
.sections a { color: var(--ink); font-size: 13.5px; }
#menu { display: none; height: 40px; padding: 0 12px; cursor: pointer; }
a { color: var(--bar); }
.step input[type=range] { flex: 1; min-width: 60px; accent-color: var(--bar); height: 40px; margin: 0; }
.step button, .step input[type=number], #menu { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--edge);
  border-radius: 8px; height: 40px; }
.step button { width: 44px; font-size: 19px; line-height: 1; cursor: pointer; }
.step button:disabled { opacity: .35; cursor: default; }
.step input[type=number] { width: 86px; padding: 0 8px; text-align: right; }
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
/* A mark lies on bars and beside them: dark, with a light edge, or the other way round. */
svg line { stroke: var(--ink); stroke-width: 2; vector-effect: non-scaling-stroke; }
svg line.edge { stroke: var(--card); stroke-width: 6; }
#rows { max-height: 372px; overflow: auto; position: relative; }
#rows tr { height: 34px; }
#rows thead th { position: sticky; top: 0; background: var(--card); }
#rows td, #rows th { padding: 0 14px; max-width: 220px; overflow: hidden; text-overflow: ellipsis; }
#rows tbody th { text-align: left; font-weight: normal; }
#rows [aria-current] { font-weight: 600; box-shadow: inset 4px 0 var(--ink); }
#rows .gap, #rows .gap td { height: auto; padding: 0; border: 0; }
.picks { display: flex; flex-wrap: wrap; gap: 8px; margin: 0 0 12px; }
select { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--edge); border-radius: 8px; height: 40px;
  padding: 0 8px; max-width: 100%; }
.apart { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); gap: 14px; align-items: start; }
#matrix svg { height: auto; max-width: 600px; margin: 0 auto; }
#matrix rect { cursor: pointer; }
#matrix text { fill: var(--soft); }
#matrix .none { stroke: var(--edge); stroke-width: 1; fill: none; }
#matrix .here, #matrix .cursor, #matrix .edge { fill: none; stroke: var(--ink); stroke-width: 2; pointer-events: none; }
#matrix .edge { stroke: var(--card); stroke-width: 5; }
#matrix .cursor { stroke-dasharray: 3 2; visibility: hidden; }
#matrix svg:focus-visible .cursor { visibility: visible; }
#cell { min-height: 20px; margin: 8px 0 0; text-align: center; }
#range { display: flex; gap: 8px; align-items: center; justify-content: center; font-size: 12px; color: var(--soft); }
#range i { width: 120px; height: 12px; border: 1px solid var(--edge); background: linear-gradient(90deg, transparent, var(--bar)); }
.axis { display: flex; justify-content: space-between; color: var(--soft); font-size: 12px; border-top: 1px solid var(--line);
  padding-top: 3px; }
#knobs label { display: grid; grid-template-columns: minmax(90px, 18%) 1fr 56px; gap: 12px; align-items: center; font-size: 14px; }
#knobs input { width: 100%; min-width: 0; height: 40px; margin: 0; accent-color: var(--bar); }
#knobs output { text-align: right; font-variant-numeric: tabular-nums; }
#moved { margin: 0 0 14px; }
#moved .picks { margin: 0 0 4px; }
#moved button { font: inherit; color: inherit; background: var(--card); border: 1px solid var(--edge); border-radius: 8px; height: 40px;
  padding: 0 12px; cursor: pointer; }
#moved p { margin: 4px 0 0; }
@media (max-width: 560px) {
  h2 { margin-top: 22px; }
  th, td { padding: 7px 9px; }
  .long { display: none; }
  #menu { display: block; }
  h1 { flex-basis: 180px; }
  .sections { display: none; flex-direction: column; }
  .sections.open { display: flex; }
  .sections a { padding: 8px 0; font-size: 15px; }
}
@media (min-width: 561px) { .short { display: none; } }
@media print { header { position: static; } nav, #menu { display: none; } .card, .wide { break-inside: avoid; } }
</style>
</head>
<body>
<header><div>
<h1><span id="file"></span><small id="where" aria-live="polite"></small></h1>
<button id="menu" aria-expanded="false" aria-controls="sections">Menu</button>
<nav aria-label="Row" class="step">
<button id="back" aria-label="Previous row" title="Previous row (left arrow)">&#8249;</button>
<input id="slider" type="range" aria-label="Row" step="1">
<button id="forth" aria-label="Next row" title="Next row (right arrow)">&#8250;</button>
<input id="number" type="number" aria-label="Number of the row" step="1" inputmode="numeric">
</nav>
<nav aria-label="Sections" class="sections" id="sections"><a href="#probabilities">Probabilities</a> <a
href="#in-numbers">In numbers</a> <a href="#distances">Distance between rows</a> <a href="#list">Rows</a> <a
href="#entropies">Entropy of all rows</a></nav>
</div></header>
<main>
<h2 id="probabilities">Probabilities</h2>
<p id="scale" aria-live="polite"></p>
<div class="picks"><select id="bar" aria-label="Scale of the bars"><option value="common">one scale for all maps</option><option
value="own">each map has its own scale</option><option value="log">logarithmic scale</option></select></div>
<section class="card" id="moved" aria-label="Move a map" hidden><div class="picks"><select id="moving"
aria-label="Map to move"></select><button id="reset">Back to the file's numbers</button></div><div id="knobs"></div><p id="told"
role="status"></p></section>
<div class="cards" id="bars"></div>
<h2 id="in-numbers">In numbers</h2>
<p>Effective support is e to the entropy: this many equal probabilities have the same entropy.</p>
<div class="wide" tabindex="0" role="region" aria-labelledby="in-numbers"><table>
<thead><tr><th scope="col">map</th><th scope="col">entropy<span class="long"> (nats)</span></th><th scope="col"><span
class="long">effective support</span><span class="short">support</span></th><th scope="col">zeros</th><th
scope="col"><span class="long">maximum</span><span class="short">max.</span></th></tr></thead>
<tbody id="numbers"></tbody></table></div>
<h2 id="distances">Distance between rows</h2>
<p id="apart"></p>
<div class="picks"><select id="under" aria-label="Map"></select><select id="by" aria-label="Distance"></select></div>
<div class="apart"><section class="card"><div id="matrix"></div><p id="cell" aria-live="polite"></p><div id="range"
aria-hidden="true"></div></section><section class="card" id="near"></section></div>
<h2 id="list">Rows</h2>
<p id="kept"></p>
<div class="wide" id="rows" tabindex="0" role="region" aria-labelledby="list"><table><thead><tr id="columns"></tr></thead><tbody
id="lines"></tbody></table></div>
<h2 id="entropies">Entropy of all rows</h2>
<p id="all"></p>
<div class="cards" id="histograms"></div>
</main>
<noscript><main><p>The numbers of this page are drawn by a script, which this browser does not run.</p></main></noscript>
<script type="application/json" id="data">@DATA@</script>
<script type="text/plain" id="bytes">@BYTES@</script>
@LIBRARY@<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const last = data.first + data.kept - 1;
const inLink = () => /^#row=(\d+)$/.exec(location.hash)?.[1];
let row = data.row;

// The numbers lie one array after the other.
const bytes = Uint8Array.from(atob(at("bytes").textContent), (c) => c.charCodeAt(0)).buffer;
let taken = 0;
function take(type, length) {
  const array = new type(bytes, taken, length);
  taken += array.byteLength;
  return array;
}
const wide = data.double ? Float64Array : Float32Array, many = data.kept * data.maps.length;
const whole = take(wide, data.whole.rows * data.cols), scores = take(wide, data.kept * data.shown), p = take(wide, many * data.shown), rests = take(wide, many);
const maxima = take(wide, many), entropies = take(Float32Array, many);
const classes = take(Uint32Array, data.kept * data.shown), zeros = take(Uint32Array, many);
const known = (x) => Number.isNaN(x) ? null : x;

// The parameters that were moved, for each map. With the library in the page they hold for every row.
let library = null;
const moved = data.maps.map(() => ({}));
const isWhole = (r) => r >= data.whole.first && r < data.whole.first + data.whole.rows;
function calculated(r, m) {
  const from = (r - data.whole.first) * data.cols, {name, values} = data.maps[m];
  const all = library.map(name, {...values, ...moved[m]}, whole.slice(from, from + data.cols));
  const k = (r - data.first) * data.shown, p = Array.from(classes.subarray(k, k + data.shown), (i) => known(all[i]));
  if (all.some(Number.isNaN)) return {p, rest: null, entropy: null, support: null, zeros: 0, maximum: null};
  const entropy = library.entropy(Float64Array.from(all)), zeros = all.reduce((count, one) => count + (one === 0), 0);
  const rest = zeros + p.filter((one) => one !== 0).length === data.cols ? 0 : all.reduce((sum, one) => sum + one, 0) -
    p.reduce((sum, one) => sum + one, 0);
  return {p, rest: Math.max(0, rest), entropy, support: Math.exp(entropy), zeros, maximum: all.reduce((a, b) => Math.max(a, b))};
}
function rowData(r) {
  const k = r - data.first;
  return {
    label: data.labels[k] ?? "",
    classes: [...classes.subarray(k * data.shown, (k + 1) * data.shown)],
    scores: [...scores.subarray(k * data.shown, (k + 1) * data.shown)],
    maps: data.maps.map((map, m) => {
      if (Object.keys(moved[m]).length > 0 && isWhole(r)) return calculated(r, m);
      const i = k * data.maps.length + m, entropy = known(entropies[i]);
      return {p: Array.from(p.subarray(i * data.shown, (i + 1) * data.shown), known), rest: known(rests[i]), entropy,
        support: entropy === null ? null : Math.exp(entropy), zeros: zeros[i], maximum: known(maxima[i])};
    }),
  };
}

function make(tag, parts, attributes = {}) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...parts);
  return element;
}
const count = (n) => n.toLocaleString("en-US");
// Rows have their numbers in the file, of which --rows may have left out the first.
const total = data.before === 0 ? count(data.total) : "rows " + count(data.before) + " to " + count(data.before + data.total - 1);
function probability(p) {
  if (p === null) return "nan";
  if (p === 0 || p === 1) return String(p);
  return p < 0.00005 ? p.toExponential(0) : p.toFixed(4);
}
const score = (x) => Number.isNaN(x) ? "nan" : Number.isFinite(x) ? String(Number(x.toPrecision(4))) :
  x > 0 ? "inf" : "-inf";
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
// A token's candidates are those of its row; it may have fewer than others.
const shownWord = (word) => word === undefined ? "\u2205" : word === "" ? "(empty)" : word.replace(/\n/g, "\u21b5").replace(/ /g, "\u00b7");
const name = (i) => data.words.length ? shownWord(data.words[row - data.first][i]) : data.classes[i] ?? String(i);

function draw() {
  const shown = rowData(row);
  const token = data.tokens[row - data.first];
  at("where").textContent = "Row " + count(row) + (shown.label ? " (" + shown.label + ")" : "") + " of " + total +
    (token ? ", reply " + count(token[0]) + ", position " + count(token[1]) : "") +
    ", " + count(data.cols) + (data.cols === 1 ? " class" : " classes");
  at("back").disabled = row === data.first;
  at("forth").disabled = row === last;
  at("slider").value = at("number").value = row;

  const positive = shown.maps.flatMap((map) => map.p.filter((p) => p > 0));
  const most = shown.maps.map((map) => Math.max(0, ...map.p.map((p) => p ?? 0)));
  const full = Math.max(0, ...most), least = Math.min(...positive, 1);
  const more = data.cols - shown.classes.length;
  // One map with few classes must not make the bars of all others vanish.
  const uneven = Math.min(...most.filter((p) => p > 0)) < 0.05 * full;
  const scale = chosenScale ?? (uneven ? "own" : "common");
  at("bar").value = scale;
  const floor = 10 ** Math.floor(Math.log10(least) - 1e-9);
  const length = (p, m) => !p ? 0 : scale === "log" ? Math.log(p / floor) / Math.log(full / floor) :
    p / (scale === "own" ? most[m] : full);
  at("scale").textContent = (!(full > 0) ? "" : scale === "own" ? "A full bar is the largest probability of its map. " :
    "A full bar is " + probability(full) + ", under every map" + (scale === "log" ? "; no bar is " + floor.toExponential(0) +
    " or less. " : ". ")) +
    (more > 0 ? "Shown are the " + shown.classes.length + " classes with the largest scores." : "");
  const finite = shown.scores.filter(Number.isFinite);
  const low = Math.min(0, ...finite), high = Math.max(0, ...finite), span = high - low || 1;
  const cards = [card("scores", "", shown.classes.map((i, k) => {
    const x = shown.scores[k], end = Number.isNaN(x) ? 0 : Math.min(high, Math.max(low, x));
    return line(name(i), score(x), (Math.min(0, end) - low) / span, (Math.max(0, end) - low) / span, Number.isNaN(x));
  }), "scores")];
  data.maps.forEach((map, m) => {
    const found = shown.maps[m];
    const lines = shown.classes.map((i, k) =>
      line(name(i), probability(found.p[k]), 0, length(found.p[k], m), !found.p[k]));
    if (more > 0) lines.push(line(count(more) + " more", probability(found.rest), 0, 0, true));
    const by_hand = Object.entries(moved[m]).map(([key, value]) => key + " = " + score(value)).join(", ");
    cards.push(card(map.name, by_hand || map.parameters, lines, "map"));
  });
  at("bars").replaceChildren(...cards);

  at("numbers").replaceChildren(...data.maps.map((map, m) => {
    const found = shown.maps[m];
    return make("tr", [make("th", [map.name], {scope: "row"}), ...[fixed(found.entropy, 4),
      fixed(found.support, found.support < 100 ? 2 : 0), count(found.zeros), probability(found.maximum)
    ].map((text) => make("td", [text]))]);
  }));

  data.maps.forEach((map, m) => {
    const entropy = shown.maps[m].entropy;
    const x = entropy === null || data.top === 0 ? -5 : 240 * Math.min(1, Math.max(0, entropy / data.top));
    for (const mark of document.querySelectorAll(".mark" + m)) {
      mark.setAttribute("x1", x);
      mark.setAttribute("x2", x);
    }
    at("here" + m).textContent = "this row " + fixed(entropy, 2);
  });
  if (frame) nearest();
  lines();
}
let chosenScale = null;

const svg = "http://www.w3.org/2000/svg";
const measures = {
  js_distance: ["Jensen-Shannon distance", "the root of the divergence in nats: 0 for equal rows, at most 0.83"],
  total_variation: ["Total variation", "half the sum of differences: 0 for equal rows, 1 where nothing is shared"],
  wasserstein: ["Wasserstein distance (order 1)",
    "how far the mass has to move, in classes: for classes whose order means something"],
};
const label = (r) => "row " + count(r) + (data.labels[r - data.first] ? " (" + data.labels[r - data.first] + ")" : "");
const distance = (d) => d === null ? "nan" : d === 0 ? "0" : d < 0.00005 ? d.toExponential(0) : String(Number(d.toPrecision(4)));
let frame = null, cursor = null;

// Labels of rows at two sides, as many as fit.
const cellSize = 14;
function element(tag, attributes) {
  const made = document.createElementNS(svg, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
function matrix() {
  const near = data.near, found = near.maps[at("under").value][at("by").value], n = near.count;
  const known = found.filter((d) => d !== null), most = Math.max(...known, 0);
  at("apart").textContent = measures[at("by").value][0] + " of each row from each other: " + measures[at("by").value][1] +
    ". Rows " + count(near.first) + " to " + count(near.first + n - 1) + (n < data.total ? ", those around row " +
    count(data.row) + ", of " + total : "") + ". A fuller colour is a larger distance" +
    (most > 0 ? ", up to " + distance(most) : "") + ". A frame without colour is a row without a distribution. Arrow keys move " +
    "through the matrix, Enter goes to the row.";
  const side = Math.max(n * cellSize, 120), step = side / n;
  // The picture shrinks with the page, its labels do not.
  const zoom = Math.max(1, side / Math.max(100, Math.min(600, at("matrix").clientWidth) - 46)), room = 46 * zoom, top = 20 * zoom;
  const every = Math.ceil(26 * zoom / step);
  const picture = element("svg", {viewBox: "0 0 " + (side + room) + " " + (side + top), role: "application", tabindex: 0,
    "aria-roledescription": "matrix", "aria-label": measures[at("by").value][0] + " between rows under " +
    at("under").selectedOptions[0].text});
  for (let i = 0; i < n; ++i) {
    for (let j = 0; j < n; ++j) {
      const d = found[i * n + j], title = document.createElementNS(svg, "title");
      const cell = element("rect", {x: room + (j + 0.04) * step, y: top + (i + 0.04) * step, width: 0.92 * step, height: 0.92 * step});
      if (d === null) cell.setAttribute("class", "none");
      else cell.setAttribute("fill-opacity", most > 0 ? 0.06 + 0.94 * d / most : 0.06);
      title.textContent = label(near.first + i) + ", " + label(near.first + j) + ": " + distance(d);
      cell.append(title);
      cell.addEventListener("click", () => go(near.first + j));
      picture.append(cell);
    }
  }
  for (let i = 0; i < n; i += every) {
    const left = element("text", {x: room - 4 * zoom, y: top + (i + 0.5) * step + 4 * zoom, "text-anchor": "end", "font-size": 11 * zoom});
    const above = element("text", {x: room + (i + 0.5) * step, y: 14 * zoom, "text-anchor": "middle", "font-size": 11 * zoom});
    left.textContent = String(near.first + i);
    above.textContent = i % (2 * every) ? "" : left.textContent;
    picture.append(left, above);
  }
  frame = ["edge", "here"].map((kind) => element("rect", {class: kind, x: room, width: side, height: step}));
  const focus = element("rect", {class: "cursor", width: step, height: step});
  picture.append(...frame, focus);
  cursor ??= [Math.min(n - 1, Math.max(0, row - near.first)), 0];
  const place = () => {
    focus.setAttribute("x", room + cursor[1] * step);
    focus.setAttribute("y", top + cursor[0] * step);
    at("cell").textContent = label(near.first + cursor[0]) + " and " + label(near.first + cursor[1]) + ": " +
      distance(found[cursor[0] * n + cursor[1]]);
  };
  // Only Tab brings the keyboard here: after a click the arrow keys go on stepping through the rows.
  picture.addEventListener("mousedown", (event) => event.preventDefault());
  picture.addEventListener("focus", () => {
    if (row >= near.first && row < near.first + n) cursor[0] = row - near.first;
    place();
  });
  picture.addEventListener("keydown", (event) => {
    const move = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -n], End: [0, n]}[event.key];
    if (event.key === "Enter") go(near.first + cursor[1]);
    else if (!move) return;
    else cursor = cursor.map((at, k) => Math.min(n - 1, Math.max(0, at + move[k])));
    event.preventDefault();
    event.stopPropagation();
    place();
  });
  at("matrix").replaceChildren(picture);
  at("range").replaceChildren("0", make("i", []), distance(most));
  Object.assign(frame, {step, top});
  nearest();
}

// The list stands for all rows that the page holds; only the rows in sight are elements.
const lineHeight = 34;
function lines() {
  const box = at("rows"), sight = Math.ceil(box.clientHeight / lineHeight) + 20;
  const from = Math.max(0, Math.min(data.kept - sight, Math.floor(box.scrollTop / lineHeight) - 10));
  const to = Math.min(data.kept, from + sight), width = data.maps.length + 1;
  const gap = (height) => {
    const line = make("tr", [make("td", [], {colspan: width})], {class: "gap", "aria-hidden": "true"});
    line.style.height = height * lineHeight + "px";
    return line;
  };
  const found = [];
  for (let k = from; k < to; ++k) {
    const r = data.first + k;
    found.push(make("tr", [make("th", [make("a", [label(r)], {href: "#row=" + r})], {scope: "row"}),
      ...data.maps.map((map, m) => make("td", [fixed(known(entropies[k * data.maps.length + m]), 4)]))],
      {"aria-rowindex": k + 2, ...(r === row ? {"aria-current": "true"} : {})}));
  }
  at("lines").replaceChildren(gap(from), ...found, gap(data.kept - to));
}

function nearest() {
  const near = data.near, here = row - near.first, inside = here >= 0 && here < near.count;
  for (const part of frame) {
    part.setAttribute("y", frame.top + here * frame.step);
    part.setAttribute("visibility", inside ? "visible" : "hidden");
  }
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
    for (const kind of ["edge ", ""]) picture.append(element("line", {class: kind + "mark" + m, y1: 0, y2: 80}));
    return make("section", [make("h3", [map.name, make("span", [map.undefined ? count(map.undefined) + " undefined" : ""])]),
      picture, make("div", [make("span", ["0"]), make("span", [], {id: "here" + m}), make("span", [data.top.toFixed(2)])],
        {class: "axis"})], {class: "card histogram"});
  }));
}

function go(to) {
  const next = Math.min(last, Math.max(data.first, Math.round(Number(to))));
  if (Number.isNaN(next)) return;
  row = next;
  history.replaceState(null, "", "#row=" + row);
  draw();
}
addEventListener("hashchange", () => {
  if (inLink() !== undefined) go(inLink());
});
const short = data.file.slice(data.file.lastIndexOf("/") + 1);
at("file").textContent = short;
at("file").title = data.file;
document.title = short + " - isentropic compare";
for (const control of [at("slider"), at("number")]) {
  control.min = data.first;
  control.max = last;
}
at("slider").addEventListener("input", () => go(at("slider").value));
at("number").addEventListener("change", () => go(at("number").value));
at("back").addEventListener("click", () => go(row - 1));
at("forth").addEventListener("click", () => go(row + 1));
document.addEventListener("keydown", (event) => {
  if (["INPUT", "SELECT"].includes(event.target.tagName) || event.target.id === "rows" || event.ctrlKey || event.metaKey || event.altKey) return;
  const to = {ArrowLeft: row - 1, ArrowRight: row + 1, PageUp: row - 10, PageDown: row + 10, Home: data.first, End: last};
  if (event.key.startsWith("Page") || !(event.key in to)) return;
  event.preventDefault();
  go(to[event.key]);
});
at("under").replaceChildren(...data.maps.map((map, m) => make("option", [map.name], {value: m})));
at("by").replaceChildren(...Object.entries(measures).map(([key, [name]]) => make("option", [name], {value: key})));
for (const pick of ["under", "by"]) at(pick).addEventListener("change", matrix);
at("bar").addEventListener("change", () => {
  chosenScale = at("bar").value;
  draw();
});
at("menu").addEventListener("click", () => {
  at("menu").setAttribute("aria-expanded", at("sections").classList.toggle("open"));
});
at("sections").addEventListener("click", () => {
  at("sections").classList.remove("open");
  at("menu").setAttribute("aria-expanded", "false");
});
at("columns").replaceChildren(make("th", ["row"], {scope: "col"}),
  ...data.maps.map((map) => make("th", [map.name], {scope: "col"})));
at("rows").querySelector("table").setAttribute("aria-rowcount", data.kept + 1);
at("kept").textContent = "The entropy of each row in nats; a row's link shows it above. " + (data.kept === data.total ? "" :
  "This page holds rows " + count(data.first) + " to " + count(last) + " of " + total +
  ", those around row " + count(data.row) + ". With more rows it would be too large; another --row shows others. The entropies below are of all rows.");
at("rows").addEventListener("scroll", lines);
addEventListener("resize", () => {
  lines();
  matrix();
});
// A slider for each numeric parameter: its position s, and the value at that position.
function range(parameter) {
  const same = (s) => s, linear = (min, max, step) => ({min, max, step, value: same, place: same});
  if (["temperature", "scale"].includes(parameter.name)) return {min: -4, max: 4, step: 0.01, value: Math.exp, place: Math.log};
  if (parameter.name.includes("entropy")) return linear(0, Math.floor(1000 * data.top) / 1000, 0.001);
  return {alpha: linear(1, 4, 0.01), p: linear(0.001, 1, 0.001), k: linear(1, data.cols, 1), order: linear(2, 20, 2)}[parameter.name];
}
function knobs() {
  const m = Number(at("moving").value), {name, values} = data.maps[m];
  const parameters = library.registry().find((one) => one.name === name).parameters.filter((one) => range(one));
  at("knobs").replaceChildren(...parameters.map((parameter) => {
    const {min, max, step, value, place} = range(parameter), said = make("output", []);
    const slider = make("input", [], {type: "range", min, max, step, "data-parameter": parameter.name});
    const tell = (number) => {
      said.textContent = score(number);
      slider.setAttribute("aria-valuetext", score(number));
    };
    const first = moved[m][parameter.name] ?? values[parameter.name] ?? parameter.default ?? max;
    slider.value = place(first);
    tell(first);
    slider.addEventListener("input", () => {
      const before = moved[m];
      moved[m] = {...before, [parameter.name]: value(Number(slider.value))};
      tell(moved[m][parameter.name]);
      try {
        if (isWhole(row)) calculated(row, m);
        told();
      } catch (error) {  // two parameters exclude each other
        moved[m] = before;
        return void (at("told").textContent = error.message);
      }
      draw();
      if (isWhole(row)) {
        const entropy = rowData(row).maps[m].entropy;
        at("told").textContent += " Entropy " + fixed(entropy, 4) + ".";
      }
    });
    return make("label", [make("span", [parameter.name]), slider, said]);
  }));
  if (parameters.length === 0) at("knobs").replaceChildren(name + " has no parameter to move.");
  told();
}
function told() {
  at("told").textContent = isWhole(row) ? "The lists and distances below do not change." : data.whole.rows === 0 ?
    "A row has too many scores for this page to hold them all." : "This page holds all scores only for rows " + count(data.whole.first) + " to " +
    count(data.whole.first + data.whole.rows - 1) + ": the maps of this row cannot be changed.";
}
async function live() {
  library = await Library.unpacked(at("wasm").textContent);
  at("moving").replaceChildren(...data.maps.map((map, m) => make("option", [map.name], {value: m})));
  at("moving").addEventListener("change", knobs);
  at("reset").addEventListener("click", () => {
    moved.fill({});
    knobs();
    draw();
  });
  knobs();
  at("moved").hidden = false;
}
if (at("wasm")) live();
if (inLink() !== undefined) row = Math.min(last, Math.max(data.first, Number(inLink())));
at("rows").scrollTop = (row - data.first - 4) * lineHeight;
histograms();
draw();
matrix();
</script>
</body>
</html>
)html";

std::string number(double value) { return std::isfinite(value) ? fmt::format("{:.4g}", value) : "null"; }

std::string text(std::string_view value) { return inert_json(value); }

template <class Range, class F>
std::string array(const Range& range, F element) {
  std::string json = "[";
  for (const auto& item : range) {
    if (json.size() > 1) json += ',';
    json += element(item);
  }
  return json + "]";
}

static_assert(std::endian::native == std::endian::little, "scripts read numbers in this order");

template <class T>
void append(std::string& bytes, const std::vector<T>& numbers) {
  const std::size_t size = bytes.size();
  bytes.resize(size + numbers.size() * sizeof(T));
  if (!numbers.empty()) std::memcpy(bytes.data() + size, numbers.data(), numbers.size() * sizeof(T));
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = i; k < i + 3; ++k) three = three << 8 | (k < bytes.size() ? static_cast<unsigned char>(bytes[k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : kDigits[three >> (18 - 6 * k) & 63];
  }
  return text;
}

}  // namespace

std::string comparison_html(const Comparison& comparison, const files::Table& table, const Overview& all,
                            const std::optional<std::string>& explorer) {
  const std::size_t maps = comparison.columns.size();
  std::string bytes;
  // Moving a map takes all scores of a row. The page holds them for a few rows only, so that it stays small, but for at least
  // one row if that is possible.
  std::size_t whole = 0, whole_first = all.first;
  if (explorer) {
    const std::size_t row_bytes = std::max<std::size_t>(1, table.cols * sizeof_number(table));
    constexpr std::size_t kLight = std::size_t{512} << 10;
    whole = std::min(all.rows, std::max(kLight / row_bytes, std::min<std::size_t>(1, Overview::kMostBytes / row_bytes)));
    whole_first = std::clamp(comparison.row - std::min(comparison.row, whole / 2), all.first, all.first + all.rows - whole);
    std::visit(
        [&](const auto& values) {
          const auto begin = values.begin() + static_cast<std::ptrdiff_t>(whole_first * table.cols);
          append(bytes, std::vector(begin, begin + static_cast<std::ptrdiff_t>(whole * table.cols)));
        },
        table.values);
  }
  std::visit(
      [&](const auto& numbers) {
        for (const auto* part : {&numbers.scores, &numbers.p, &numbers.rest, &numbers.maximum}) append(bytes, *part);
      },
      all.numbers);
  const auto kept = all.entropy.begin() + static_cast<std::ptrdiff_t>(all.first * maps);
  append(bytes, std::vector<float>(kept, kept + static_cast<std::ptrdiff_t>(all.rows * maps)));
  append(bytes, all.classes);
  append(bytes, all.zeros);

  std::string names;
  std::string words, places;
  for (std::size_t r = 0; r < all.rows && !table.tokens.empty(); ++r) {
    std::span<const std::string> candidates(table.tokens[all.first + r].candidates);
    if (candidates.size() > all.shown) candidates = candidates.first(all.shown);
    words += (r == 0 ? "" : ",") + array(candidates, text);
    places +=
        fmt::format("{}[{},{}]", r == 0 ? "" : ",", table.tokens[all.first + r].reply, table.tokens[all.first + r].position);
  }
  if (!table.header.empty() && table.tokens.empty()) {
    std::map<std::size_t, std::string_view> classes;
    for (const std::uint32_t i : all.classes) classes[i] = comparison.classes[i];
    for (const auto& [i, name] : classes) names += fmt::format("{}\"{}\":{}", names.empty() ? "" : ",", i, text(name));
  }
  std::span<const std::string> labels;
  if (!table.labels.empty()) labels = std::span(table.labels).subspan(all.first, all.rows);
  std::string map_data;
  for (std::size_t m = 0; m < maps; ++m) {
    const Histogram& histogram = comparison.histograms[m];
    map_data += fmt::format("{}{{\"name\":{},\"parameters\":{},\"values\":{},\"counts\":[{}],\"undefined\":{}}}",
                            m == 0 ? "" : ",", text(comparison.columns[m].map), text(comparison.columns[m].parameters),
                            comparison.columns[m].values, fmt::join(histogram.counts, ","), histogram.undefined);
  }
  std::string near;
  for (const Distances& distances : comparison.distances) {
    near += fmt::format("{}{{\"js_distance\":{},\"total_variation\":{},\"wasserstein\":{}}}", near.empty() ? "" : ",",
                        array(distances.js_distance, number), array(distances.total_variation, number),
                        array(distances.wasserstein, number));
  }
  const Distances none, &any = comparison.distances.empty() ? none : comparison.distances[0];
  const std::string data = fmt::format(
      "{{\"file\":{},\"before\":{},\"total\":{},\"cols\":{},\"first\":{},\"kept\":{},\"shown\":{},\"double\":{},\"whole\":{{"
      "\"first\":{},"
      "\"rows\":{}}},\"row\":{},\"top\":{:.6g},"
      "\"classes\":{{{}}},\"words\":[{}],\"tokens\":[{}],\"labels\":{},\"maps\":[{}],\"near\":{{\"first\":{},\"count\":{},"
      "\"maps\":[{}]}}}}",
      text(comparison.file), comparison.before, table.rows, table.cols, comparison.before + all.first, all.rows, all.shown,
      all.numbers.index() == 1, comparison.before + whole_first, whole, comparison.before + comparison.row,
      comparison.histograms.empty() ? 0 : comparison.histograms[0].top, names, words, places, array(labels, text), map_data,
      comparison.before + any.first, any.count, near);
  std::string page = page_head("isentropic compare", explorer ? "'unsafe-inline' 'wasm-unsafe-eval'" : "'unsafe-inline'");
  page += kPage;
  const auto put = [&](std::string_view place, const std::string& content) {
    page.replace(page.find(place), place.size(), content);
  };
  put("@LIBRARY@", !explorer ? ""
                             : fmt::format("<script type=\"text/plain\" id=\"wasm\">{}</script>\n<script>{}</script>\n",
                                           script_of(*explorer, "wasm"), script_of(*explorer, "library")));
  put("@BYTES@", base64(bytes));
  put("@DATA@", data);  // last: it may hold any text
  return page;
}
