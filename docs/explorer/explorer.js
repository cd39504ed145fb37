"use strict";
const at = (id) => document.getElementById(id);

// What turns a map's entropy: parameters as a function of s, along which it never falls.
const knobs = {
  softmax: (s) => ({temperature: Math.exp(s)}),
  sparsemax: (s) => ({temperature: Math.exp(s)}),
  entmax: (s) => ({temperature: Math.exp(s), alpha: state.alpha}),
  perturb_max: (s) => ({scale: Math.exp(s), noise: "normal"}),
  top_k_softmax: (s, n) => ({k: Math.min(n, Math.max(1, Math.round(Math.exp(s))))}),
  top_p_softmax: (s) => ({p: 1 / (1 + Math.exp(-s))}),
  min_p_softmax: (s) => ({p: 1 / (1 + Math.exp(s))}),
};
const spread = 12, shown = 20;
const state = {target: 0, alpha: 1.5, names: [], x: new Float64Array(1), found: {}};

function make(tag, parts = [], attributes = {}) {
  const element = document.createElementNS(/^(svg|path|circle|text|rect|polyline|title)$/.test(tag) ?
    "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...parts);
  return element;
}
const number = (v) => String(Number(Number(v).toPrecision(4)));
const probability = (p) => p === 0 || p === 1 ? String(p) : p < 0.00005 ? p.toExponential(0) : p.toFixed(4);
const in_unit = (h) => at("unit").value === "bits" ? (h / Math.LN2).toFixed(3) + " bits" : at("unit").value === "perplexity" ?
  Math.exp(h).toFixed(2) : h.toFixed(3) + " nats";

function score(text) {
  if (!/^([-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?inf(inity)?)$/i.test(text)) throw new Error("'" + text.slice(0, 40) + "' is no score");
  return /inf/i.test(text) ? (text[0] === "-" ? -Infinity : Infinity) : Number(text);
}

function parsed(text) {
  const names = [], scores = [];
  for (const line of text.split("\n")) {
    if (!line.trim()) continue;
    const parts = /^(?:(.*?)[\s,:;]+)?(\S+)$/.exec(line.trim());
    scores.push(score(parts[2]));
    names.push(parts[1] || String(names.length));
  }
  if (!scores.length) throw new Error("there are no scores");
  return [names, Float64Array.from(scores)];
}

// The parameters that bring a map to the entropy, or the nearest that it reaches, and where its knob then is.
function reach(name, x, target, most) {
  if (name === "entropy_normalize") return {parameters: {entropy: target}};
  if (name === "entropy_clip") return {parameters: {min_entropy: target, max_entropy: target}};
  const knob = knobs[name];
  if (!knob) return {parameters: {}};
  const of = (s) => library.entropy(library.map(name, knob(s, x.length), x)) - target;
  let low = -spread, high = spread, under = -target, above = most - target;
  const before = state.found[name]?.s;
  // From one frame to the next little changes.
  for (let step = 0, width = 0.25; before !== undefined && step < 3; ++step, width *= 4) {
    const s = before + (under < above === step % 2 ? width : -width);
    if (s <= low || s >= high) break;
    const h = of(s);
    if (h < 0) [low, under] = [s, h];
    else [high, above] = [s, h];
    if (low > -spread && high < spread) break;
  }
  // Where the entropy is a smooth function of s a chord is soon there; where it is one of steps, halves are.
  for (let step = 0; step < 60 && high - low > 1e-9 && above > 1e-9; ++step) {
    let s = step % 3 === 2 ? (low + high) / 2 : low + (high - low) * (under / (under - above));
    if (!(s > low && s < high)) s = (low + high) / 2;
    const h = of(s);
    if (h < 0) [low, under] = [s, h];
    else [high, above] = [s, h];
    if (-under < 1e-9) return {parameters: knob(low, x.length), s: low};
  }
  return {parameters: knob(high, x.length), s: high};
}

const cards = {};
function make_cards() {
  for (const name of maps) {
    const card = cards[name] = {h: make("small"), said: make("p"), rows: make("div"), foot: make("small")};
    const parts = [make("h2", [name, card.h]), card.said];
    if (knobs[name]) {
      card.knob = make("input", [], {type: "range", min: -spread, max: spread, step: 0.01, "aria-label": "Knob of " + name});
      card.knob.addEventListener("input", () => {
        const p = library.map(name, knobs[name](Number(card.knob.value), state.x.length), state.x);
        move_to(library.entropy(p));
      });
      parts.push(card.knob);
    }
    if (name === "entmax") {
      const alpha = at("alpha") ?? make("input", [], {id: "alpha", type: "range", min: 1, max: 4, step: 0.01, value: state.alpha});
      alpha.addEventListener("input", () => {
        state.alpha = Number(alpha.value);
        soon();
      });
      parts.push(make("label", ["alpha ", alpha], {class: "line"}));
    }
    card.section = make("section", [...parts, card.rows, card.foot], {"data-map": name});
    at("cards").append(card.section);
  }
}

function show(name, x, order, most) {
  const found = reach(name, x, state.target, most), p = library.map(name, found.parameters, x), entropy = library.entropy(p);
  state.found[name] = {...found, p, entropy};
  const card = cards[name], top = order.map((i) => p[i]), sorted = [...top].sort((a, b) => b - a);
  let zeros = 0;
  for (const value of p) zeros += value === 0;
  const said = Object.entries(found.parameters).map(([key, value]) => key + " " + (Number(value) === value ? number(value) : value));
  if (name === "entropy_normalize" && state.target > 0) said.push("gamma " + number(library.gamma(x, state.target).gamma));
  card.h.textContent = "H " + entropy.toFixed(3);
  card.said.textContent = said.join(", ") || "no knob";
  if (card.knob && document.activeElement !== card.knob) card.knob.value = found.s;
  if (card.knob) card.knob.setAttribute("aria-valuetext", said[0]);
  while (card.rows.childElementCount > order.length) card.rows.lastChild.remove();
  while (card.rows.childElementCount < order.length) {
    card.rows.append(make("div", [make("span"), make("div", [make("i")], {"aria-hidden": "true"}), make("span")], {class: "row"}));
  }
  order.forEach((i, k) => {
    const [label, bar, value] = card.rows.children[k].children;
    label.textContent = label.title = state.names[i];
    bar.firstChild.style.width = 100 * p[i] / Math.max(sorted[0], 1e-300) + "%";
    value.textContent = probability(p[i]);
  });
  card.foot.textContent = "support " + number(Math.exp(entropy)) + ", zeros " + zeros + ", margin " +
    number(sorted.length > 1 ? sorted[0] - sorted[1] : 1);
  card.section.dataset.entropy = entropy;
  card.section.dataset.p = [...p.slice(0, 50)].join(" ");
}

// Long rows take more than a frame: what is not there when it ends follows in the next ones.
let turn = 0;
function draw() {
  const mine = ++turn, started = performance.now();
  at("problem").textContent = "";
  try {
    [state.names, state.x] = parsed(at("scores").value);
    const x = state.x, finite = x.filter((one) => one > -Infinity).length, most = Math.log(Math.max(1, finite));
    state.most = most;
    state.target = Math.min(state.exact ?? at("entropy").value / 1000 * most, most);
    at("value").textContent = in_unit(state.target);
    at("entropy").setAttribute("aria-valuetext", in_unit(state.target));
    state.order = [...x.keys()].sort((a, b) => x[b] - x[a]).slice(0, shown);
    for (const name of maps) cards[name].section.classList.add("late");
    const later = [...maps];
    const some = () => {
      if (mine !== turn) return;
      const begun = performance.now();
      try {
        while (later.length && performance.now() - begun < 60) {
          const name = later.shift();
          show(name, x, state.order, most);
          cards[name].section.classList.remove("late");
        }
        if (later.length) return requestAnimationFrame(some);
        document.documentElement.dataset.time = performance.now() - started;
        if (x.length <= 5000) draw_plots();
        document.documentElement.dataset.done = mine;
      } catch (error) {
        at("problem").textContent = error.message;
      }
    };
    some();
    at("told").textContent = maps.length + " maps" + (x.length > shown ? ", the " + shown + " largest of " + x.length + " scores" : "");
    remember();
  } catch (error) {
    at("problem").textContent = error.message;
  }
}

function move_to(entropy) {
  state.exact = entropy;
  at("entropy").value = state.most > 0 ? 1000 * entropy / state.most : 0;
  soon();
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

const remembered = {x: "scores", q: "second", unit: "unit", seed: "seed", code: "language", of: "code_map"};
function remember() {
  const all = new URLSearchParams({h: state.target, alpha: state.alpha, words: state.steps ?? 0});
  for (const [key, id] of Object.entries(remembered)) all.set(key, at(id).value);
  if (String(all).length < 4000) history.replaceState(null, "", "#" + all);
}
