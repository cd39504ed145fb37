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

const is_score = (text) => /^([-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|[-+]?inf(inity)?)$/i.test(text);
function score(text, place) {
  if (!is_score(text)) throw new Error(place + ": '" + text.slice(0, 40) + "' is no score");
  if (/inf/i.test(text)) return text[0] === "-" ? -Infinity : Infinity;
  if (!Number.isFinite(Number(text))) throw new Error(place + ": '" + text.slice(0, 40) + "' is too large for float64");
  return Number(text);
}
function some_present(what, x) {
  if (!x.some((one) => one > -Infinity)) throw new Error(what + " must not all be -inf: there would be no distribution");
}
// After a tab, since a label may end in what parts it from a score, as the word "," does.
const written = (names, x, most = x.length) => Array.from(x.subarray(0, most), (one, i) => names[i] + "\t" + one).join("\n");
const listed = (text) => text.split(/[\s,;]+/).filter(Boolean);

// A label and a score on each line, or one list of scores: in brackets, or a line of numbers alone ("3 1.5" has a label).
function parsed(text) {
  const names = [], scores = [], whole = text.trim(), inside = /^\[([^[\]]*)\]$/.exec(whole)?.[1];
  if (/^\[[^\]]*$/.test(whole) && listed(whole.slice(1)).length > 1 && listed(whole.slice(1)).every(is_score)) {
    throw new Error("the list of scores has no ] at its end");
  }
  const one_line = inside === undefined && !whole.includes("\n"), words = listed(inside ?? (one_line ? whole : ""));
  if (inside !== undefined || (words.every(is_score) && (words.length > 2 || /[,;]/.test(words.length > 1 ? whole : "")))) {
    words.forEach((word, i) => {
      names.push(String(i));
      scores.push(score(word, "score " + (i + 1)));
    });
  } else {
    text.split("\n").forEach((line, i) => {
      if (!line.trim()) return;
      const place = "line " + (i + 1), tabbed = /^([^\t]+)\t(\S+)$/.exec(line.trim());
      const parts = tabbed ?? /^(?:(.*?)[\s,:;]+)?(\S+)$/.exec(line.trim()), before = tabbed ? [] : listed(parts[1] ?? "");
      scores.push(score(parts[2], place));
      if (before.length > 1 && before.every(is_score)) {
        throw new Error(place + ": " + (before.length + 1) + " numbers, where a label and a score should be");
      }
      names.push(parts[1] || String(names.length));
    });
  }
  if (!scores.length) throw new Error("there are no scores");
  return [names, Float64Array.from(scores)];
}

// The parameters that bring a map to the entropy, or the nearest that it reaches, and where its knob then is. While a slider
// moves a thousandth of a nat is near enough. `before` is what was found for the last entropy.
const cuts = ["top_k_softmax", "top_p_softmax", "min_p_softmax"];
function reach(name, row, target, fine, before) {
  if (name === "entropy_normalize") return {parameters: {entropy: target}};
  if (name === "entropy_clip") return {parameters: {min_entropy: target, max_entropy: target}};
  const knob = knobs[name], n = row.x.length;
  if (!knob) return {parameters: {}};
  if (name === "softmax") {
    const s = Math.min(spread, Math.max(-spread, -Math.log(library.gamma(row.x, target).gamma)));
    return {parameters: knob(s), s};
  }
  const of = (s) => row.map(name, knob(s, n)) - target;
  let low = -spread, high = spread, s = before?.s ?? 0;
  if (cuts.includes(name)) {
    // Steps: halves, from a little around the place before.
    const width = fine ? 1e-6 : n > longest ? 0.02 : 2e-3, least = name === "top_k_softmax";
    for (let around = 0.05; before && s > low && s < high; around *= 4) {
      const under = of(s) < 0;
      if (under) low = s;
      else high = s;
      s += under ? around : -around;
    }
    while (high - low > width && !(least && Math.round(Math.exp(high)) - Math.round(Math.exp(low)) <= 1)) {
      s = (low + high) / 2;
      if (of(s) < 0) low = s;
      else high = s;
    }
    return {parameters: knob(high, n), s: high};
  }
  // Smooth: by the slope of the two places before, between what is known to be too low and too high.
  const near = !fine ? 1e-3 : n > 200 ? 1e-5 : 1e-9;
  let slope = before?.slope, last, stride = 0.5;
  if (before?.slope) s += Math.min(1, Math.max(-1, (target - before.entropy) / before.slope));
  for (let step = 0; step < 60; ++step) {
    s = Math.min(spread, Math.max(-spread, s));
    const h = of(s);
    if (last && last.s !== s && Math.abs(h - last.h) > 1e-14) slope = (h - last.h) / (s - last.s);
    last = {s, h};
    if (Math.abs(h) < near || high - low < 1e-12) break;
    if (h < 0) low = s;
    else high = s;
    if (low === spread || high === -spread) break;
    let next = slope > 0 ? s - h / slope : NaN;
    const known = low > -spread && high < spread;
    if (!(next > low && next < high) || (known && step % 4 === 3)) {
      next = known ? (low + high) / 2 : s + (h < 0 ? stride : -stride);
      stride *= 2;
    } else if (!known && Math.abs(next - s) > 2) {
      next = s + Math.sign(next - s) * 2;
    }
    s = next;
  }
  return {parameters: knob(s, n), s, slope};
}

const cards = {};
function make_cards() {
  for (const name of maps) {
    const card = cards[name] = {turn: 0, h: make("small"), said: make("p"), canvas: make("canvas", [], {"aria-hidden": "true"}), list: make("ol", [], {class: "read"}), foot: make("small")};
    const parts = [make("h2", [name, card.h]), card.said];
    if (knobs[name]) {
      card.knob = make("input", [], {type: "range", min: -spread, max: spread, step: 0.01, "aria-label": "Parameter of " + name});
      card.knob.addEventListener("input", () => {
        move_to(state.row.map(name, knobs[name](Number(card.knob.value), state.x.length)));
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
    card.section = make("section", [...parts, card.canvas, card.list, card.foot], {"data-map": name});
    at("cards").append(card.section);
  }
  const again = () => {
    read_colors();
    for (const card of Object.values(cards)) card.width = card.canvas.clientWidth;
    soon();
  };
  again();
  new ResizeObserver(again).observe(at("cards"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
}

// Sets what has changed.
function say(element, text) {
  if (element.firstChild) {
    if (element.firstChild.data !== text) element.firstChild.data = text;
  } else {
    element.append(text);
  }
}

// Bars are painted: as elements, some hundreds of which change in every frame, they take longer than all calculation.
const line = 21, colors = {};
function read_colors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "track", "bar"]) colors[name] = style.getPropertyValue("--" + name);
}
function shortened(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let length = Math.min(text.length, 60);
  while (length > 1 && context.measureText(text.slice(0, length) + "…").width > room) --length;
  return text.slice(0, length) + "…";
}
function draw_bars(card, names, p, most) {
  const canvas = card.canvas, ratio = devicePixelRatio, width = card.width ?? 250, height = line * p.length;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)], context = card.context ??= canvas.getContext("2d");
  if (canvas.width !== w || canvas.height !== h) {
    Object.assign(canvas, {width: w, height: h});
    canvas.style.height = height + "px";
    card.names = undefined;
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "13px system-ui, sans-serif";
  const left = Math.max(36, 0.26 * width), room = width - left - 8 - 66;
  const key = names.join("\n");
  if (card.names !== key) Object.assign(card, {names: key, short: names.map((name) => shortened(context, name, left))});
  context.fillStyle = colors.soft;
  context.textAlign = "left";
  card.short.forEach((name, k) => context.fillText(name, 0, line * k + 15));
  context.fillStyle = colors.track;
  p.forEach((_, k) => context.fillRect(left + 8, line * k + 4, room, 12));
  context.fillStyle = colors.bar;
  p.forEach((one, k) => context.fillRect(left + 8, line * k + 4, room * one / Math.max(most, 1e-300), 12));
  context.fillStyle = colors.ink;
  context.textAlign = "right";
  p.forEach((one, k) => context.fillText(probability(one), width, line * k + 15));
}

// What is painted, for those who do not see it.
function read_out(card, lines) {
  while (card.list.childElementCount > lines.length) card.list.lastChild.remove();
  while (card.list.childElementCount < lines.length) card.list.append(make("li"));
  lines.forEach((text, k) => say(card.list.children[k], text));
}

function show(name, fine) {
  const {row, order, x} = state, before = state.found[name], found = reach(name, row, state.target, fine, before);
  const entropy = row.map(name, found.parameters), p = before?.p?.length === x.length ? before.p : new Float64Array(x.length);
  p.set(row.p());
  state.found[name] = {...found, p, entropy};
  let zeros = 0;
  for (let i = 0; i < p.length; ++i) zeros += p[i] === 0;
  const card = cards[name], sorted = order.map((i) => p[i]).sort((a, b) => b - a);
  const said = Object.entries(found.parameters).map(([key, value]) => key + " " + (Number(value) === value ? number(value) : value));
  if (name === "entropy_normalize" && state.target > 0) said.push("gamma " + number(library.gamma(x, state.target).gamma));
  say(card.h, (at("unit").value === "perplexity" ? "perplexity " : "H ") + in_unit(entropy));
  say(card.said, said.join(", ") || "no parameter");
  if (card.knob && document.activeElement !== card.knob) card.knob.value = found.s;
  if (card.knob) card.knob.setAttribute("aria-valuetext", said[0]);
  draw_bars(card, order.map((i) => state.names[i]), order.map((i) => p[i]), sorted[0]);
  if (fine) read_out(card, order.map((i) => state.names[i] + ": " + probability(p[i])));
  say(card.foot, "support " + number(Math.exp(entropy)) + ", zeros " + zeros + ", margin " +
    number(sorted.length > 1 ? sorted[0] - sorted[1] : 1));
}

// Scores were given or moved.
function scores_changed() {
  const x = state.x, order = [];  // the largest; of equal ones the first
  let present = 0;
  for (let i = 0; i < x.length; ++i) {
    if (x[i] > -Infinity) ++present;
    if (order.length === shown && !(x[i] > x[order[shown - 1]])) continue;
    let k = Math.min(order.length, shown - 1);
    for (; k > 0 && x[i] > x[order[k - 1]]; --k) order[k] = order[k - 1];
    order[k] = i;
  }
  state.row?.free();
  state.row = new Row(library, x);
  state.most = Math.log(Math.max(1, present));
  state.order = order;
}

// Long rows take more than a frame: maps take turns while a slider moves, and what takes long waits until it rests.
let turn = 0, resting;
const rest = 120, longest = 20000;
function draw() {
  const mine = ++turn, started = performance.now(), frame = state.x.length > longest ? 55 : 8;
  clearTimeout(resting);
  say(at("problem"), state.problem ?? state.refused ?? "");
  try {
    state.target = Math.min(state.exact ?? at("entropy").value / 1000 * state.most, state.most);
    say(at("value"), in_unit(state.target));
    at("entropy").setAttribute("aria-valuetext", in_unit(state.target));
    const one = (name, fine) => {
      const begun = performance.now();
      show(name, fine);
      Object.assign(cards[name], {turn: mine, fine});
      const cost = performance.now() - begun;
      if (!fine) cards[name].cost = Math.min(cost, cards[name].last ?? cost);  // one of two may have been held up by others
      else cards[name].cost ??= cost / 2;
      if (!fine) cards[name].last = cost;
      cards[name].section.classList.remove("late");
    };
    for (const name of maps.toSorted((a, b) => cards[a].turn - cards[b].turn)) {
      const cost = cards[name].cost ?? (state.x.length > 1000 ? Infinity : 0);
      if (performance.now() - started + cost < frame) {
        one(name, false);
      } else {
        cards[name].section.classList.add("late");
        if (cards[name].last) cards[name].cost = Math.max(0.97 * cards[name].cost, 0.6 * cards[name].last);
      }
    }
    const plot = plots[mine % (plots.length - 1)];  // the last is text
    if (performance.now() - started + (plot.cost ?? frame) < frame) draw_plot(plot);
    document.documentElement.dataset.time = performance.now() - started;
    // At rest: what waited, then all once more to the last digit, then the plots; in pieces that let the next input in.
    const later = [...maps.toSorted((a, b) => (cards[a].turn === mine) - (cards[b].turn === mine)).map((name) => () => one(name, true)),
      ...plots.map((plot) => function again() {
        if (draw_plot(plot)) later.unshift(again);
      }), () => {
        say(at("told"), maps.length + " maps, entropy " + in_unit(state.target) +
          (state.x.length > shown ? ", the " + shown + " largest of " + state.x.length + " scores" : ""));
        remember();
        document.documentElement.dataset.done = mine;
      }];
    const finish = () => {
      const begun = performance.now();
      try {
        while (mine === turn && later.length > 0) {
          later.shift()();
          if (performance.now() - begun > 8) return void (resting = setTimeout(finish));
        }
      } catch (error) {
        say(at("problem"), error.message);
      }
    };
    resting = setTimeout(finish, rest);
  } catch (error) {
    say(at("problem"), error.message);
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

// The address has an example by its name, other scores as they are, unless they are too many for an address.
const remembered = {unit: "unit", seed: "seed", code: "language", of: "code_map"}, longest_address = 30000;
function remember() {
  const all = new URLSearchParams({h: state.target, alpha: state.alpha, words: state.steps ?? 0});
  for (const [key, id] of Object.entries(remembered)) all.set(key, at(id).value);
  if (state.example !== undefined) all.set("example", state.example);
  else if (state.x.length <= most_pairs) all.set("x", written(state.names, state.x));
  if (state.x.length <= most_pairs && at("second").value !== backwards()) all.set("q", at("second").value);
  if (String(all).length > longest_address) ["x", "q"].forEach((key) => all.delete(key));
  history.replaceState(null, "", "#" + all);
}
// Q, until there is another.
const backwards = () => state.x.toReversed().join(", ");
