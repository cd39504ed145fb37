// A plot of lines: each a list of [x, y] in the box given, from low to high.
function plot(place, box, lines, marks = [], labels = {}) {
  const [x0, x1, y0, y1] = box, w = 420, h = 240, left = 44, low = h - 30;
  const px = (x) => left + (x - x0) / (x1 - x0 || 1) * (w - left - 8), py = (y) => low - (y - y0) / (y1 - y0 || 1) * (low - 26);
  const parts = [make("title", [labels.title]), make("path", [], {class: "axis", d: `M${left} 26V${low}H${w - 8}`}),
    make("text", [labels.x], {x: w - 8, y: h - 8, "text-anchor": "end"}), make("text", [labels.y], {x: 8, y: 14}),
    make("text", [labels.x0 ?? number(x0)], {x: left, y: h - 8}), make("text", [number(y1)], {x: left - 4, y: 32, "text-anchor": "end"}),
    make("text", [number(y0)], {x: left - 4, y: low, "text-anchor": "end"})];
  lines.forEach(({points, name}, i) => {
    parts.push(make("polyline", [], {class: "l" + i, points: points.map(([x, y]) => px(x) + "," + py(y)).join(" ")}));
    if (name) parts.push(make("text", [name], {x: w - 12, y: py(points.at(-1)[1]) + (labels.below?.[i] ? 16 : -6), "text-anchor": "end"}));
  });
  marks.forEach(([x, y, name]) => parts.push(make("circle", [], {class: "f1", r: 5, cx: px(x), cy: py(y)}),
    make("text", [name], {x: px(x) + 9, y: py(y) - 5})));
  at(place).replaceChildren(make("svg", parts, {viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": labels.title}));
}

// Entropies of softmax of rows, in one call.
function entropies(rows, cols) {
  return library.apply("entropy", {input: "scores"}, {p: rows, value: new Float64Array(rows.length / cols)}, rows.length / cols).value;
}

// The curve is drawn between points that stay where they are, so that each is calculated once for a row: of a long one fewer.
// True where some are still to be calculated: a call takes no longer than a part of a frame.
let curve = {};
function draw_curve() {
  if (state.x.includes(Infinity)) return void at("curve").replaceChildren(make("p", ["A score of infinity has the whole probability at every gamma."]));
  const started = performance.now(), found = library.gamma(state.x, Math.max(1e-9, state.target));
  if (curve.row !== state.row) curve = {row: state.row, h: new Map()};
  const there = found.gamma > 0 && found.gamma < 1e100, middle = there ? Math.log(found.gamma) : 0;
  const count = state.x.length > longest ? 20 : 80, step = 7 / count, first = Math.ceil((middle - 3.5) / step), points = [];
  let missing = false;
  for (let i = first; i <= first + count - 1; ++i) {
    if (Math.exp(-i * step) === Infinity) continue;
    if (!curve.h.has(i)) {
      missing ||= performance.now() - started > 4;
      if (missing) continue;
      curve.h.set(i, state.row.map("softmax", {temperature: Math.exp(-i * step)}));
    }
    points.push([i * step, curve.h.get(i)]);
  }
  const ends = [first * step, (first + count - 1) * step];
  if (points.length > 1) {
    plot("curve", [...ends, 0, state.most || 1], [{points}], there ? [[middle, found.entropy, "gamma " + number(found.gamma)]] : [],
      {title: `entropy ${found.entropy.toFixed(3)} at gamma ${number(found.gamma)}`, x: "gamma, to " + number(Math.exp(ends[1])),
        y: "entropy, nats", x0: number(Math.exp(ends[0]))});
    at("curve").dataset.gamma = found.gamma;
  }
  return missing;
}

const ways = ["softmax", "sparsemax", "entmax", "perturb_max", "top_p_softmax", "min_p_softmax"];
let triangle = {};
function draw_simplex() {
  if (state.order.length < 3) return at("simplex").replaceChildren(make("p", ["This needs three scores."]));
  const x = Float64Array.from(state.order.slice(0, 3), (i) => state.x[i]), names = state.order.slice(0, 3).map((i) => state.names[i]);
  const px = (p) => 210 + 150 * (p[2] - p[1]), py = (p) => 270 - 240 * p[0];
  if (triangle.of !== state.row || triangle.alpha !== state.alpha) {
    triangle.row?.free();
    triangle = {of: state.row, alpha: state.alpha, row: new Row(library, x), found: {}};
    triangle.lines = ways.map((name) => {
      const line = [];
      for (let s = -4; s <= 6; s += 0.125) {
        triangle.row.map(name, knobs[name](s, 3));
        const p = triangle.row.p();
        line.push(px(p).toFixed(1) + "," + py(p).toFixed(1));
      }
      return line.join(" ");
    });
  }
  const target = Math.log(3) * (state.most ? state.target / state.most : 0);
  const parts = [make("title", ["The three largest scores: " + names.join(", ")]),
    make("path", [], {class: "axis", d: "M210 30L60 270H360Z"})];
  [[210, 20, "middle"], [60, 288, "middle"], [360, 288, "middle"]].forEach(([tx, ty, anchor], i) => {
    parts.push(make("text", [names[i].length > 16 ? names[i].slice(0, 15) + "…" : names[i]], {x: tx, y: ty, "text-anchor": anchor}));
  });
  ways.forEach((name, i) => {
    const found = reach(name, triangle.row, target, true, triangle.found[name]), entropy = triangle.row.map(name, found.parameters);
    const p = triangle.row.p();
    triangle.found[name] = {...found, entropy};
    parts.push(make("polyline", [], {class: "l" + i, points: triangle.lines[i]}));
    parts.push(make("circle", [], {class: "f" + i, r: 5, cx: px(p), cy: py(p)}));
    parts.push(make("rect", [], {class: "f" + i, x: 0, y: 8 + 18 * i, width: 10, height: 10}), make("text", [name], {x: 15, y: 17 + 18 * i}));
  });
  at("simplex").replaceChildren(make("svg", parts, {viewBox: "0 0 420 300", role: "img",
    "aria-label": "Paths of maps on the simplex of " + names.join(", ")}));
}

// Words drawn from the model: each is the context of the next; where it has no row, the rows take turns.
const model = (() => {
  const lines = at("model").textContent.trim().split("\n").map((line) => line.split(","));
  const words = lines[0].slice(1), rest = words.indexOf("other");  // all other words together
  const rows = new Map(lines.slice(1).map((line) => [line[0], Float64Array.from(line.slice(1), (one, i) => i === rest ? -Infinity : Number(one))]));
  return {words, rows, all: [...rows.values()]};
})();
function drawn(steps_of, seed, count) {
  const words = [];
  for (let position = 0; position < count; ++position) {
    const x = model.rows.get(words.at(-1)) ?? model.all[position % model.all.length], indices = new Int32Array(1);
    library.apply("sampler_sample", {steps: steps_of(x), seed, position}, {x, indices});
    words.push(model.words[indices[0]]);
  }
  return words.join(" ");
}
function draw_words() {
  for (const place of ["drawn", "drawn_one"]) at(place).textContent = "–";
  if (!at("seed").validity.valid) throw new Error("seed must be a whole number from 0 to " + at("seed").max);
  const seed = Number(at("seed").value), count = state.steps ?? 0;
  const share = state.most ? state.target / state.most : 0, target = share * Math.log(model.words.length - 1);
  at("drawn_at").textContent = "at " + in_unit(target);
  at("drawn").dataset.entropy = target;
  if (count === 0) return;
  at("drawn").textContent = drawn(() => [{name: "entropy", entropy: target}], seed, count);
  at("drawn_one").textContent = drawn(() => [{name: "temperature", temperature: 1}], seed, count);
}

const most_pairs = 2000;
function draw_pair() {
  const n = state.x.length;
  for (const place of ["between", "plan"]) at(place).replaceChildren();
  if (n > most_pairs) {
    return void at("plan").replaceChildren(make("p", ["For rows of at most " + most_pairs + " scores."]));
  }
  const given = listed(at("second").value).map((one, i) => score(one, "Q, score " + (i + 1)));
  if (given.length !== n) throw new Error("Q must have " + n + " scores, as many as P, got " + given.length);
  some_present("the scores of Q", given);
  const p = library.map("softmax", {}, state.x), q = library.map("softmax", {}, Float64Array.from(given));
  const between = (name, p, q) => library.apply(name, {}, {p, q, value: new Float64Array(1)}).value[0];
  const values = {"KL(P, Q)": between("kl_divergence", p, q), "KL(Q, P)": between("kl_divergence", q, p),
    JS: between("js_divergence", p, q), "W1, by place": between("wasserstein_histogram", p, q)};
  at("between").replaceChildren(...Object.entries(values).flatMap(([name, value]) => [make("dt", [name]), make("dd", [number(value)], {
    "data-value": value, "data-name": name})]));
  if (n > 40) return at("plan").replaceChildren(make("p", ["The plan is drawn for at most 40 scores."]));
  const cost = new Float64Array(n * n).map((_, i) => Math.abs(Math.floor(i / n) - i % n)), plan = new Float64Array(n * n);
  library.apply("optimal_transport", {}, {a: p, b: q, cost: {data: cost, rows: n}, plan: {data: plan, rows: n}, value: new Float64Array(1)});
  const side = 240 / n, most = Math.max(...plan), parts = [make("title", ["Mass that moves from P (rows) to Q (columns)"])];
  plan.forEach((mass, i) => {
    if (mass > 0) {
      const [r, c] = [Math.floor(i / n), i % n];
      parts.push(make("rect", [make("title", [`${state.names[r]} to ${state.names[c]}: ${number(mass)}`])], {class: "cell", x: 60 + c * side,
        y: 20 + r * side, width: side - 1, height: side - 1, "fill-opacity": 0.15 + 0.85 * mass / most}));
    }
  });
  parts.push(make("path", [], {class: "axis", d: "M60 20V260H300V20Z"}), make("text", ["P"], {x: 40, y: 140}), make("text", ["Q"],
    {x: 176, y: 278}));
  const moves = [...plan.keys()].filter((i) => plan[i] > 0).sort((i, k) => plan[k] - plan[i]).slice(0, shown).map((i) =>
    make("li", [`${number(plan[i])} from ${state.names[Math.floor(i / n)]} to ${state.names[i % n]}`]));
  at("plan").replaceChildren(make("svg", parts, {viewBox: "0 0 420 290", role: "img", "aria-label": "Transport plan between P and Q"}),
    make("ol", moves, {class: "read"}));
  at("plan").dataset.plan = [...plan].join(" ");
}

// Normal scores from a counter, so that every visit has the same ones.
let lengths;
function draw_lengths() {
  if (!lengths) {
    const random = (i) => {
      let t = (i + 1) * 2654435761 % 4294967296 ^ 0x5bd1e995;
      t = Math.imul(t ^ t >>> 15, t | 1);
      t ^= t + Math.imul(t ^ t >>> 7, t | 61);
      return ((t ^ t >>> 14) >>> 0) / 4294967296;
    };
    const all = Float64Array.from({length: 16384}, (_, i) =>
      Math.sqrt(-2 * Math.log(1 - random(2 * i))) * Math.cos(2 * Math.PI * random(2 * i + 1)));
    const sizes = Array.from({length: 11}, (_, i) => 16 << i);
    const share = (f) => sizes.map((n) => [Math.log2(n), entropies(all.slice(0, n).map((one) => one * f(n)), n)[0] / Math.log(n)]);
    lengths = {all, sizes, plain: share(() => 1), scaled: share((n) => Math.log(n) / Math.log(64))};
  }
  const wanted = state.most ? state.target / state.most : 0;
  const held = lengths.sizes.map((n) => [Math.log2(n), library.gamma(lengths.all.slice(0, n), wanted * Math.log(n)).entropy / Math.log(n)]);
  plot("lengths", [4, 14, 0, 1], [{points: lengths.plain, name: "softmax(x)"}, {points: lengths.scaled, name: "softmax(x log n / log 64)"},
    {points: held, name: "entropy_normalize"}], [], {title: "The entropy as a share of log n, for 16 to 16384 keys",
    x: "keys, to 16384", y: "H / log n", x0: "16", below: {0: false, 1: true}});
}

// The same in other languages, from what the page shows; a test runs these.
function code(language, name) {
  const parameters = Object.entries(state.found[name]?.parameters ?? {}), x = [...state.x];
  const scores = (minus, plus, separator = ", ") => x.map((v) => v === -Infinity ? minus : v === Infinity ? plus : String(v)).join(separator);
  const text = (v) => typeof v === "string" ? '"' + v + '"' : String(v);
  const named = parameters.map(([key, v]) => `, ${key}=${text(v)}`).join("");
  if (language === "python") {
    return `import numpy as np\n\nimport isentropic\n\nx = np.array([${scores("-np.inf", "np.inf")}])\n` +
      `p = isentropic.${name}(x${named})\nprint(p, isentropic.entropy(p, normalize=True))`;
  }
  if (language === "torch") {
    return `import torch\n\nimport isentropic.torch\n\nx = torch.tensor([${scores('-float("inf")', 'float("inf")')}], dtype=torch.float64)\n` +
      `p = isentropic.torch.${name}(x${named})\nprint(p, isentropic.torch.entropy(p, normalize=True))`;
  }
  if (language === "cpp") {
    const given = parameters.map(([key, v]) => `{"${key}", ${typeof v === "string" || key === "k" ? text(v) : `double{${v}}`}}`).join(", ");
    return "#include <isentropic/isentropic.h>\n\n#include <cmath>\n#include <cstdio>\n\nint main() {\n" +
      `  const double x[] = {${scores("-INFINITY", "INFINITY")}};\n  double p[${x.length}];\n` +
      `  isentropic::apply<double>(isentropic::make_map("${name}", {${given}}), isentropic::MatrixView<const double>(x, 1, ${x.length}),\n` +
      `                          isentropic::MatrixView<double>(p, 1, ${x.length}));\n` +
      '  for (const double one : p) std::printf("%.17g\\n", one);\n}';
  }
  const options = parameters.map(([key, v]) => ` --${key.replaceAll("_", "-")}=${v}`).join("");
  return `printf '%s\\n' '${scores("-inf", "inf", ",")}' | isentropic ${name}${options} --no-header`;
}
function draw_code() {
  say(at("code"), state.x.length > 1000 ? "Written for rows of at most 1000 scores." : code(at("language").value, at("code_map").value));
}

const plots = [draw_curve, draw_simplex, draw_words, draw_pair, draw_lengths, draw_code];
function draw_plot(plot) {
  const begun = performance.now();
  let missing = false;
  try {
    missing = plot();
  } catch (error) {
    say(at("problem"), state.problem ?? state.refused ?? error.message);
  }
  plot.cost = performance.now() - begun;
  return missing === true;
}
