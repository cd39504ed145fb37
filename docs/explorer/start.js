let library, maps;
(async () => {
  const given = JSON.parse(at("rows").textContent);
  library = await Library.unpacked(at("wasm").textContent);
  maps = library.registry().filter((one) => one.family === "map").map((one) => one.name);

  const lines = (names, scores) => Array.from(scores, (one, i) => String(names?.[i] ?? i).replace(/\s+/g, " ") + " " + one).join("\n");
  const examples = [
    ["the next word", () => "the 6.2\na 5.1\nmat 4.4\ndog 3.9\nroof 2.5\nmoon 1.0\nidea 0.2\nquark -1.5"],
    ["three scores", () => "one 2\ntwo 1.2\nthree 0.4"],
    ["two that are nearly equal", () => "left 3.01\nright 3\nnone 0\nboth -1\nneither -2"],
    ["one that cannot be", () => "a 2\nb 1\nc -inf\nd 0"],
    ...[...model.rows].slice(0, 8).map(([word, x]) => ["after “" + word + "”", () => lines(model.words.slice(0, -1), [...x].slice(0, -1))]),
    ...["1000", "128000"].map((n) => [n + " scores", () => lines(null, Array.from({length: n}, (_, i) => (i * 7919 % 4001 / 500 - 4).toFixed(3)))]),
  ];
  (given.rows ?? []).toReversed().forEach((row, i) =>
    examples.unshift([row.label ?? "row " + (given.rows.length - 1 - i), () => lines(given.names, row.scores)]));
  at("example").replaceChildren(...examples.map(([name], i) => make("option", [name], {value: i})));
  at("code_map").replaceChildren(...maps.map((name) => make("option", [name])));

  // The row is what it was given as, or moved to since: a long one is not shown as text, which would be drawn anew in every frame.
  const most_lines = 200;
  const take = (text) => {
    const lines = text.split("\n"), long = lines.length > most_lines;
    at("scores").readOnly = long;
    say(at("long"), long ? "The first " + most_lines + " of " + lines.length + " lines; another example, or a dropped file, takes their place." : "");
    const shown_text = long ? lines.slice(0, most_lines).join("\n") : text;
    if (at("scores").value !== shown_text) at("scores").value = shown_text;
    state.found = {};
    for (const card of Object.values(cards)) Object.assign(card, {turn: 0, cost: undefined, last: undefined});
    for (const plot of plots) plot.cost = undefined;
    try {
      [state.names, state.x] = parsed(text);
      state.problem = undefined;
      scores_changed();
      if (state.x.length > most_pairs) at("second").value = "";
      else if (state.x.length !== at("second").value.split(",").length) at("second").value = state.x.toReversed().join(", ");
      sliders();
    } catch (error) {
      state.problem = error.message;
    }
    soon();
  };
  const sliders = () => {
    const finite = state.x.subarray(0, 1000).filter(Number.isFinite);
    const low = Math.floor(Math.min(0, ...finite)) - 3, high = Math.ceil(Math.max(0, ...finite)) + 3;
    at("sliders").replaceChildren(...[...state.x.subarray(0, shown)].map((value, i) => {
      const name = state.names[i], said = make("span", [number(value)]);
      const slider = make("input", [], {type: "range", min: low, max: high, step: 0.05, "aria-label": "Score of " + name});
      slider.value = value;
      slider.addEventListener("input", () => {
        state.x[i] = Number(slider.value);
        say(said, number(slider.value));
        const given = at("scores").value.split("\n"), line = given.map((one, k) => one.trim() ? k : -1).filter((k) => k >= 0)[i];
        given[line] = name + " " + slider.value;
        at("scores").value = given.join("\n");
        scores_changed();
        soon();
      });
      return make("div", [make("span", [name], {title: name}), slider, said], {class: "row"});
    }));
  };

  at("scores").value = examples[0][1]();
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const [key, id] of Object.entries(remembered)) {
    const options = at(id).options;
    if (kept.has(key) && (!options || [...options].some((one) => one.value === kept.get(key)))) at(id).value = kept.get(key);
  }
  if (kept.has("h") && Number(kept.get("h")) >= 0) state.exact = Number(kept.get("h"));
  if (Number(kept.get("alpha")) >= 1) state.alpha = Math.min(4, Number(kept.get("alpha")));
  state.steps = Math.min(200, Math.max(0, Math.floor(Number(kept.get("words")) || 0)));
  make_cards();

  at("entropy").addEventListener("input", () => {
    state.exact = undefined;
    soon();
  });
  at("scores").addEventListener("input", () => take(at("scores").value));
  at("example").addEventListener("change", () => {
    at("second").value = "";
    state.exact = undefined;
    take(examples[at("example").value][1]());
  });
  for (const id of ["unit", "language", "code_map"]) at(id).addEventListener("change", soon);
  for (const id of ["second", "seed"]) at(id).addEventListener("input", soon);
  at("step").addEventListener("click", () => {
    state.steps = Math.min(200, (state.steps ?? 0) + 1);
    soon();
  });
  at("again").addEventListener("click", () => {
    state.steps = 0;
    soon();
  });
  at("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(at("code").textContent);
      at("copied").textContent = "copied";
    } catch {
      getSelection().selectAllChildren(at("code"));
      at("copied").textContent = "selected: copy it";
    }
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", async (event) => {
    event.preventDefault();
    const file = event.dataTransfer.files[0];
    if (file) take(await file.slice(0, 4 << 20).text());
  });
  take(at("scores").value);
  if (state.exact !== undefined && state.most > 0) at("entropy").value = 1000 * Math.min(state.exact, state.most) / state.most;
})().catch((error) => {
  at("problem").textContent = error.message;
});
