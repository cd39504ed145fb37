let library, maps;
(async () => {
  const given = JSON.parse(at("rows").textContent);
  library = await Library.unpacked(at("wasm").textContent);
  maps = library.registry().filter((one) => one.family === "map").map((one) => one.name);

  // Names and scores of each, and what an address calls it.
  const row = (names, scores) => [Array.from(scores, (_, i) => String(names?.[i] ?? i).replace(/\s+/g, " ")),
    Float64Array.from(scores, (one, i) => score(String(one), "score " + (i + 1)))];
  const examples = [
    ["the next word", () => parsed("the 6.2\na 5.1\nmat 4.4\ndog 3.9\nroof 2.5\nmoon 1.0\nidea 0.2\nquark -1.5")],
    ["three scores", () => parsed("one 2\ntwo 1.2\nthree 0.4")],
    ["two that are nearly equal", () => parsed("left 3.01\nright 3\nnone 0\nboth -1\nneither -2")],
    ["one that cannot be", () => parsed("a 2\nb 1\nc -inf\nd 0")],
    ...[...model.rows].slice(0, 8).map(([word, x]) => ["after “" + word + "”", () => row(model.words.slice(0, -1), x.subarray(0, -1))]),
    ...["1000", "128000"].map((n) => [n + " scores", () => row(null, Array.from({length: n}, (_, i) => (i * 7919 % 4001 / 500 - 4).toFixed(3)))]),
  ];
  (given.rows ?? []).toReversed().forEach((one, i) => examples.unshift([one.label ?? "row " + (given.rows.length - 1 - i),
    () => row(given.names, one.scores)]));
  examples.forEach((one, i) => {
    one.push(examples.findIndex(([name]) => name === one[0]) === i ? one[0] : one[0] + " " + i);
  });
  at("example").replaceChildren(...examples.map(([name], i) => make("option", [name], {value: i})),
    make("option", ["your own"], {value: "own", disabled: ""}));
  at("code_map").replaceChildren(...maps.map((name) => make("option", [name])));

  // A long row is not shown as a whole, which would be drawn anew in every frame, and so not typed in.
  const most_lines = 200;
  const use = ([names, x], example, text) => {
    some_present("the scores", x);
    const long = x.length > most_lines;
    if (long || text === undefined) text = written(names, x, most_lines);
    Object.assign(state, {names, x, found: {}});
    belongs_to(example);
    at("scores").readOnly = long;
    say(at("long"), long ? "The first " + most_lines + " of " + x.length + " scores. What is pasted here takes their place." : "");
    if (at("scores").value !== text) at("scores").value = text;
    for (const card of Object.values(cards)) Object.assign(card, {turn: 0, cost: undefined, last: undefined});
    for (const plot of plots) plot.cost = undefined;
    scores_changed();
    if (x.length > most_pairs) at("second").value = "";
    else if (x.length !== listed(at("second").value).length) at("second").value = backwards();
    sliders();
    soon();
  };
  const belongs_to = (example) => {
    Object.assign(state, {example: examples[example]?.[2], problem: undefined, refused: undefined});
    at("scores").removeAttribute("aria-invalid");
    at("example").value = example ?? "own";
  };
  const use_example = (i) => {
    try {
      use(examples[i][1](), i);
      return true;
    } catch (error) {
      refuse(examples[i][0], error);
      const before = examples.findIndex((one) => one[2] === state.example);
      at("example").value = before < 0 ? "own" : before;
    }
  };
  const typed = (text) => {
    try {
      use(parsed(text), undefined, text);
    } catch (error) {
      state.problem = error.message;
      at("scores").setAttribute("aria-invalid", "true");
      soon();
    }
  };
  const refuse = (what, error) => {
    state.refused = what + " changes nothing: " + error.message;
    soon();
  };
  const sliders = () => {
    const finite = state.x.subarray(0, 1000).filter(Number.isFinite);
    const low = Math.floor(Math.min(0, ...finite)) - 3, high = Math.ceil(Math.max(0, ...finite)) + 3;
    at("sliders").replaceChildren(...[...state.x.subarray(0, shown)].map((value, i) => {
      const name = state.names[i], said = make("span", [number(value)]);
      const slider = make("input", [], {type: "range", min: low, max: high, step: 0.05, "aria-label": "Score of " + name,
        "aria-valuetext": number(value)});
      slider.value = Math.min(high, Math.max(low, value));
      slider.addEventListener("input", () => {
        state.x[i] = Number(slider.value);
        say(said, number(slider.value));
        slider.setAttribute("aria-valuetext", number(slider.value));
        at("scores").value = written(state.names, state.x, most_lines);
        belongs_to(undefined);
        scores_changed();
        soon();
      });
      return make("div", [make("span", [name], {title: name}), slider, said], {class: "row"});
    }));
  };

  make_cards();

  // What was refused is forgotten with the next input, before that is looked at.
  addEventListener("input", () => {
    state.refused = undefined;
  }, {capture: true});
  at("entropy").addEventListener("input", () => {
    state.exact = undefined;
    soon();
  });
  at("scores").addEventListener("input", () => typed(at("scores").value));
  at("scores").addEventListener("focus", () => at("scores").scrollIntoView({block: "nearest"}));  // all, not its first line alone
  at("scores").addEventListener("paste", (event) => {
    const box = at("scores"), pasted = event.clipboardData.getData("text/plain");
    const before = box.readOnly ? "" : box.value.slice(0, box.selectionStart), after = box.readOnly ? "" : box.value.slice(box.selectionEnd);
    try {
      const found = parsed(before + pasted + after);
      if (!box.readOnly && found[1].length <= most_lines) return;  // by the browser, which can undo it
      use(found);
    } catch (error) {
      // Places are those of what was pasted, if it alone is wrong too.
      try {
        parsed(pasted);
      } catch (alone) {
        error = alone;
      }
      refuse("What was pasted", error);
    }
    event.preventDefault();
  });
  at("example").addEventListener("change", () => {
    at("second").value = "";
    state.exact = undefined;
    use_example(Number(at("example").value));
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
  const files = (event) => event.dataTransfer.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (files(event)) event.preventDefault();
  });
  addEventListener("drop", async (event) => {
    if (!files(event)) return;
    event.preventDefault();
    const file = event.dataTransfer.files[0], most = 8;
    try {
      if (file.size > most << 20) throw new Error("it is larger than " + most + " MB");
      use(parsed(await file.text()));
    } catch (error) {
      refuse(file.name, error);
    }
  });
  // What the address says, when the page is opened and when another address of it takes its place.
  const arrive = () => {
    const kept = new URLSearchParams(location.hash.slice(1));
    for (const [key, id] of Object.entries(remembered)) {
      const options = at(id).options;
      if (kept.has(key) && (!options || [...options].some((one) => one.value === kept.get(key)))) at(id).value = kept.get(key);
    }
    state.exact = Number(kept.get("h") ?? NaN) >= 0 ? Number(kept.get("h")) : undefined;
    if (Number(kept.get("alpha")) >= 1) at("alpha").value = state.alpha = Math.min(4, Number(kept.get("alpha")));
    state.steps = Math.min(200, Math.max(0, Math.floor(Number(kept.get("words")) || 0)));
    const example = examples.findIndex((one) => one[2] === kept.get("example")), own = example < 0 && kept.has("x");
    at("second").value = own ? "" : kept.get("q") ?? "";
    if (!use_example(Math.max(0, example))) {
      const reason = state.refused;
      examples.some((_, i) => use_example(i));
      state.refused = reason;
    }
    if (own) {
      at("second").value = kept.get("q") ?? "";
      typed(at("scores").value = kept.get("x"));
      if (state.problem) at("second").value = backwards();
    }
    if (state.exact !== undefined && state.most > 0) at("entropy").value = 1000 * Math.min(state.exact, state.most) / state.most;
  };
  addEventListener("hashchange", arrive);
  arrive();
})().catch((error) => {
  at("problem").textContent = error.message;
});
