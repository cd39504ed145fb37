"use strict";
const at = (id) => document.getElementById(id);
const library = new Library(new WebAssembly.Module(Uint8Array.from(atob(at("wasm").textContent), (c) => c.charCodeAt(0))));
const maps = library.registry().filter((one) => one.family === "map").map((one) => one.name);
const given = JSON.parse(at("rows").textContent);

// A map's parameter as a function of s > 0, along which its entropy rises.
const knobs = {
  softmax: (s) => ({temperature: s}),
  sparsemax: (s) => ({temperature: s}),
  entmax: (s) => ({temperature: s}),
  perturb_max: (s) => ({scale: s, noise: "normal"}),
  top_k_softmax: (s, n) => ({k: Math.min(n, Math.max(1, Math.round(s)))}),
  top_p_softmax: (s) => ({p: s / (1 + s)}),
  min_p_softmax: (s) => ({p: 1 / (1 + s)}),
};

function make(tag, parts, attributes = {}) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...parts);
  return element;
}
const number = (v) => String(Number(Number(v).toPrecision(4)));
const probability = (p) => p === 0 || p === 1 ? String(p) : p < 0.00005 ? p.toExponential(0) : p.toFixed(4);

function parsed(text) {
  const names = [], scores = [];
  for (const line of text.split("\n").filter((line) => line.trim())) {
    const parts = /^(?:(.*?)[\s,:;]+)?([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|-?inf)\s*$/i.exec(line.trim());
    if (!parts) throw new Error("no score in the line '" + line.slice(0, 40) + "'");
    names.push(parts[1] || String(names.length));
    scores.push(/inf/i.test(parts[2]) ? (parts[2][0] === "-" ? -Infinity : Infinity) : Number(parts[2]));
  }
  if (!scores.length) throw new Error("there are no scores");
  return [names, Float64Array.from(scores)];
}

// The parameters that bring a map to the entropy, or the nearest that it reaches.
function reach(name, x, target) {
  if (name === "entropy_normalize") return {entropy: target};
  if (name === "entropy_clip") return {min_entropy: target, max_entropy: target};
  const knob = knobs[name];
  if (!knob) return {};
  let low = -12, high = 12;
  for (let step = 0; step < 44; ++step) {
    const middle = (low + high) / 2;
    if (library.entropy(library.map(name, knob(Math.exp(middle), x.length), x)) < target) low = middle;
    else high = middle;
  }
  return knob(Math.exp(high), x.length);
}

function draw() {
  let names, x;
  at("problem").textContent = "";
  try {
    [names, x] = parsed(at("scores").value);
    const most = Math.log(x.filter((one) => one > -Infinity).length), target = at("entropy").value / 1000 * most;
    const unit = at("unit").value;
    at("value").textContent = unit === "bits" ? (target / Math.LN2).toFixed(3) : unit === "perplexity" ?
      Math.exp(target).toFixed(2) : target.toFixed(3);
    const started = performance.now(), order = [...x.keys()].sort((a, b) => x[b] - x[a]).slice(0, 20);
    const cards = maps.map((name) => {
      const parameters = reach(name, x, target), p = library.map(name, parameters, x), entropy = library.entropy(p);
      const full = Math.max(...order.map((i) => p[i]), 1e-300), sorted = order.map((i) => p[i]).sort((a, b) => b - a);
      let zeros = 0;
      for (const value of p) zeros += value === 0;
      const said = Object.entries(parameters).map(([key, value]) => key + " " + (Number(value) === value ? number(value) : value));
      if (name === "entropy_normalize" && target > 0) said.push("gamma " + number(library.gamma(x, target).gamma));
      return make("section", [make("h2", [name, make("small", ["H " + entropy.toFixed(3)])]),
        make("p", [said.join(", ") || "no knob"]),
        ...order.map((i) => {
          const bar = make("i", []);
          bar.style.width = 100 * p[i] / full + "%";
          return make("div", [make("span", [names[i]], {title: names[i]}), make("div", [bar], {"aria-hidden": "true"}),
            make("span", [probability(p[i])])], {class: "row"});
        }),
        make("small", ["support " + number(Math.exp(entropy)) + ", zeros " + zeros + ", margin " +
          number(sorted.length > 1 ? sorted[0] - sorted[1] : 1)])], {"data-map": name, "data-entropy": entropy});
    });
    at("cards").replaceChildren(at("input"), ...cards);
    at("told").textContent = maps.length + " maps" + (x.length > 20 ? ", the 20 largest of " + x.length + " scores" : "");
    document.documentElement.dataset.time = performance.now() - started;
    const state = new URLSearchParams({h: at("entropy").value, unit, x: at("scores").value});
    if (String(state).length < 4000) history.replaceState(null, "", "#" + state);
  } catch (error) {
    at("problem").textContent = error.message;
  }
}

function rowText(row) {
  return row.scores.map((score, i) => (given.names?.[i] ?? i) + " " + score).join("\n");
}
let waiting = false;
function soon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    draw();
  });
}
const state = new URLSearchParams(location.hash.slice(1));
at("scores").value = state.get("x") ?? (given.rows?.length ? rowText(given.rows[0]) :
  "the 6.2\na 5.1\nmat 4.4\ndog 3.9\nroof 2.5\nmoon 1.0\nidea 0.2\nquark -1.5");
if (state.has("h")) at("entropy").value = state.get("h");
if (["nats", "bits", "perplexity"].includes(state.get("unit"))) at("unit").value = state.get("unit");
for (const control of ["entropy", "scores"]) at(control).addEventListener("input", soon);
at("unit").addEventListener("change", draw);
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", async (event) => {
  event.preventDefault();
  const file = event.dataTransfer.files[0];
  if (file) at("scores").value = (await file.slice(0, 1 << 20).text());
  draw();
});
draw();
