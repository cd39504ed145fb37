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
const cuts = ["top_k_softmax", "top_p_softmax", "min_p_softmax"];
function reach(name, x, target, most, before) {
  if (name === "entropy_normalize") return {parameters: {entropy: target}};
  if (name === "entropy_clip") return {parameters: {min_entropy: target, max_entropy: target}};
  const knob = knobs[name];
  if (!knob) return {parameters: {}};
  if (name === "softmax") {
    const s = Math.min(spread, Math.max(-spread, -Math.log(library.gamma(x, target).gamma)));
    return {parameters: knob(s), s};
  }
  const of = (s) => library.entropy(library.map(name, knob(s, x.length), x)) - target;
  const is_cut = cuts.includes(name), near = x.length > 200 ? 1e-5 : 1e-9, width = is_cut ? 1e-6 : 1e-9;
  let low = -spread, high = spread, under = -target, above = most - target;
  // From one frame to the next little changes.
  for (let step = 0; before !== undefined && step < 2; ++step) {
    const s = before + (under < -near && low > -spread ? 0.05 : -0.05);
    if (s <= low || s >= high) break;
    const h = of(s);
    if (h < 0) [low, under] = [s, h];
    else [high, above] = [s, h];
  }
  // Where the entropy is a smooth function of s a chord is soon there; where it is one of steps, halves are.
  for (let step = 0; step < 60 && high - low > width && above > near; ++step) {
    if (name === "top_k_softmax" && Math.round(Math.exp(high)) - Math.round(Math.exp(low)) <= 1) break;
    let s = is_cut || step % 3 === 2 ? (low + high) / 2 : low + (high - low) * (under / (under - above));
    if (!(s > low && s < high)) s = (low + high) / 2;
    const h = of(s);
    if (h < 0) [low, under] = [s, h];
    else [high, above] = [s, h];
    if (-under < near) return {parameters: knob(low, x.length), s: low};
  }
  return {parameters: knob(high, x.length), s: high};
}

const cards = {};
function make_cards() {
  for (const name of maps) {
    const card = cards[name] = {turn: 0, cost: 0, h: make("small"), said: make("p"), rows: make("div"), foot: make("small")};
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
  const found = reach(name, x, state.target, most, state.found[name]?.s), p = library.map(name, found.parameters, x), entropy = library.entropy(p);
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

// Long rows take more than a frame: maps take turns while a slider moves, and what takes long waits until it rests.
let turn = 0, resting;
const frame = 12, rest = 120;
function draw() {
  const mine = ++turn, started = performance.now();
  clearTimeout(resting);
  at("problem").textContent = "";
  try {
    if (state.text !== at("scores").value) {
      state.text = at("scores").value;
      [state.names, state.x] = parsed(state.text);
      const x = state.x, finite = x.filter((one) => one > -Infinity).length;
      state.most = Math.log(Math.max(1, finite));
      state.order = [...x.keys()].sort((a, b) => x[b] - x[a]).slice(0, shown);
      at("told").textContent = maps.length + " maps" + (x.length > shown ? ", the " + shown + " largest of " + x.length + " scores" : "");
    }
    state.target = Math.min(state.exact ?? at("entropy").value / 1000 * state.most, state.most);
    at("value").textContent = in_unit(state.target);
    at("entropy").setAttribute("aria-valuetext", in_unit(state.target));
    const one = (name) => {
      const begun = performance.now();
      show(name, state.x, state.order, state.most);
      Object.assign(cards[name], {turn: mine, cost: performance.now() - begun});
      cards[name].section.classList.remove("late");
    };
    for (const name of maps.toSorted((a, b) => cards[a].turn - cards[b].turn)) {
      if (performance.now() - started + cards[name].cost < frame || cards[name].turn === 0) one(name);
      else cards[name].section.classList.add("late");
    }
    const plot = plots[mine % plots.length];
    if (performance.now() - started + (plot.cost ?? frame) < frame) draw_plot(plot);
    document.documentElement.dataset.time = performance.now() - started;
    const later = maps.filter((name) => cards[name].turn !== mine).sort((a, b) => cards[a].cost - cards[b].cost);
    const finish = () => {
      if (mine !== turn) return;
      try {
        if (later.length) {
          one(later.shift());
          resting = setTimeout(finish);
          return;
        }
        if (state.x.length <= 5000) plots.forEach(draw_plot);
        remember();
        document.documentElement.dataset.done = mine;
      } catch (error) {
        at("problem").textContent = error.message;
      }
    };
    resting = setTimeout(finish, rest);
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
  if (at("scores").value.length > 3000) return;
  const all = new URLSearchParams({h: state.target, alpha: state.alpha, words: state.steps ?? 0});
  for (const [key, id] of Object.entries(remembered)) all.set(key, at(id).value);
  if (String(all).length < 4000) history.replaceState(null, "", "#" + all);
}
