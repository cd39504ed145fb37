"""The explorer in headless Chromium, from file:// and served: its controls, numbers and code."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import urllib.parse

import numpy as np
import pytest
from explorer_page import CLI, PAGE, ROOT, checked, move, settled, state, until

import isentropic

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="scripts/wasm builds it")
KNOBS = ["softmax", "sparsemax", "entmax", "perturb_max", "top_p_softmax", "min_p_softmax", "entropy_normalize", "entropy_clip"]


def test_one_entropy(opened):
    page = opened()
    for share in (500, 50, 950, 0, 1000, 301):
        move(page, "#entropy", share)
        found = checked(page)
        assert found["target"] == pytest.approx(share / 1000 * np.log(8))
        for name in KNOBS:
            if 50 <= share <= 950 and name not in ("top_p_softmax", "min_p_softmax"):
                assert found["maps"][name]["entropy"] == pytest.approx(found["target"], abs=1e-6), (name, share)
    gamma = isentropic.gamma_for_entropy(found["x"], entropy=found["target"]).gamma
    assert float(page.get_attribute("#curve", "data-gamma")) == pytest.approx(float(gamma), rel=1e-9)


def test_units(opened):
    page = opened()
    texts = {}
    for unit in ("nats", "bits", "perplexity"):
        move(page, "#unit", unit)
        texts[unit] = float(page.text_content("#value").split()[0])
        card = page.text_content("[data-map=softmax] small")
        assert card == {"perplexity": "perplexity "}.get(unit, "H ") + page.text_content("#value")
    assert texts["bits"] == pytest.approx(texts["nats"] / np.log(2), abs=2e-3)
    assert texts["perplexity"] == pytest.approx(np.exp(texts["nats"]), rel=5e-3)


@pytest.mark.parametrize(
    "name", ["softmax", "sparsemax", "entmax", "perturb_max", "top_k_softmax", "top_p_softmax", "min_p_softmax"]
)
def test_a_knob_brings_the_others_along(opened, name):
    page = opened()
    move(page, f"[data-map={name}] input[type=range]", 1)
    found = checked(page)
    assert found["maps"][name]["entropy"] == pytest.approx(found["target"], abs=1e-6)
    assert found["maps"]["entropy_normalize"]["entropy"] == pytest.approx(found["maps"][name]["entropy"], abs=1e-6)


def test_scores_and_alpha(opened):
    page = opened()
    move(page, "#sliders .row:nth-child(3) input", 6.5)
    move(page, "#alpha", 2)
    found = checked(page)
    assert found["x"][2] == 6.5
    np.testing.assert_allclose(found["maps"]["entmax"]["p"], found["maps"]["sparsemax"]["p"], atol=1e-6)
    for example in range(5):
        move(page, "#example", example)
        checked(page)
    page.fill("#scores", "a 1\nb warm")
    until(page, "at('problem').textContent.includes(\"'warm' is no score\")")
    page.fill("#scores", "a 1\nb 2")
    settled(page)
    assert len(checked(page)["x"]) == 2


def test_dragged_by_mouse(opened):
    """The numbers follow while the button is down."""
    page = opened()
    for place, value in (
        ("#entropy", lambda page: page.evaluate("state.target")),
        ("#sliders .row:nth-child(2) input", lambda page: page.evaluate("state.x[1]")),
        ("[data-map=sparsemax] input", lambda page: page.evaluate("state.found.sparsemax.parameters.temperature")),
        ("#alpha", lambda page: page.evaluate("state.found.entmax.parameters.alpha")),
    ):
        slider = page.locator(place)
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        x, y = box["x"] + 0.3 * box["width"], box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        found = []
        for step in range(1, 4):
            page.mouse.move(x + step * box["width"] / 8, y)
            settled(page)
            found.append(value(page))
            checked(page)
        page.mouse.up()
        assert found == sorted(set(found)), place


def test_draws(opened):
    page = opened()
    page.fill("#seed", "7")
    for _ in range(5):
        page.click("#step")
        settled(page)
    lines = (ROOT / "examples/data/language_scores.csv").read_text().splitlines()
    words, rows = lines[0].split(",")[1:], {line.split(",")[0]: line.split(",")[1:] for line in lines[1:]}
    for place, steps in (("#drawn", [("entropy", float(page.get_attribute("#drawn", "data-entropy")))]), ("#drawn_one", [])):
        expected = []
        for position in range(5):
            given = rows.get(expected[-1] if expected else "", list(rows.values())[position])
            x = np.array([float(f"{float(one):.3f}") for one in given[:-1]] + [-np.inf])  # the last is all other words
            sampler = isentropic.Sampler([*steps, ("temperature", 1.0)], seed=7)
            expected.append(words[int(np.ravel(sampler.sample(x, position=position))[0])])
        assert page.text_content(place).split() == expected


def test_two_rows(opened):
    page = opened(state="#x=a+1%0Ab+2%0Ac+0.5&q=0,-1,2")
    p, q = isentropic.softmax([[1, 2, 0.5], [0.0, -1, 2]])
    found = page.eval_on_selector_all("#between dd", "all => all.map((one) => Number(one.dataset.value))")
    expected = [isentropic.kl_divergence(p, q), isentropic.kl_divergence(q, p), isentropic.js_divergence(p, q)]
    np.testing.assert_allclose(found, [*expected, isentropic.wasserstein_histogram(p, q)], rtol=1e-12)
    plan = np.reshape([float(one) for one in page.get_attribute("#plan", "data-plan").split()], (3, 3))
    np.testing.assert_allclose([plan.sum(1), plan.sum(0)], [p, q], atol=1e-12)


def test_the_state_is_in_the_address(opened):
    first = opened()
    move(first, "#entropy", 230)
    move(first, "#alpha", 1.25)
    move(first, "#unit", "bits")
    first.click("#step")
    settled(first)
    second = opened(state="#" + first.url.split("#")[1])
    assert second.text_content("#drawn") == first.text_content("#drawn") != "–"
    one, other = state(first), state(second)
    assert other["target"] == pytest.approx(one["target"], rel=1e-12)
    for name in KNOBS:
        np.testing.assert_allclose(other["maps"][name]["p"], one["maps"][name]["p"], atol=1e-7)
    assert second.input_value("#unit") == "bits"


def test_code_is_right(opened):
    """Python, PyTorch and shell of every map."""
    page = opened(state="#h=0.9&x=a+1%0Ab+2.5%0Ac+-inf%0Ad+-0.5")
    for name in state(page)["maps"]:
        move(page, "#code_map", name)
        for language in ("python", "torch", "shell"):
            move(page, "#language", language)
            text, one = page.text_content("#code"), state(page)["maps"][name]
            if language == "shell":
                command = re.sub(r"\| isentropic", "| " + CLI, text)
                p = [float(cell) for cell in subprocess.check_output(["sh", "-c", command], text=True).split(",")]
            else:
                if language == "torch":
                    pytest.importorskip("torch")
                names = {}
                exec(text, names)
                p = np.asarray(names["p"])
            np.testing.assert_allclose(p, one["p"], rtol=1e-9, atol=1e-12, err_msg=text)


@pytest.mark.skipif("ISENTROPIC_BUILD" not in os.environ, reason="ISENTROPIC_BUILD is no build of the library")
def test_cpp_is_right(opened, tmp_path):
    """C++ of every map, all in one program: to compile each alone takes minutes."""
    page = opened(state="#h=0.9&x=a+1%0Ab+2.5%0Ac+-inf%0Ad+-0.5")
    names = list(state(page)["maps"])
    move(page, "#language", "cpp")
    functions = []
    for name in names:
        move(page, "#code_map", name)
        includes, main, body = page.text_content("#code").partition("int main() {")
        assert main
        functions.append(f"void of_{name}() {{{body}")
    calls = "".join(f"of_{name}();" for name in names)
    (tmp_path / "all.cc").write_text(includes + "\n".join(functions) + f"\nint main() {{{calls}}}\n")
    shared = pathlib.Path(os.environ["ISENTROPIC_BUILD"]).resolve() / "tests"
    subprocess.run(
        ["g++", "-std=c++20", f"-I{ROOT / 'include'}", "all.cc", f"-L{shared}", "-lisentropic_shared", f"-Wl,-rpath,{shared}"],
        cwd=tmp_path,
        check=True,
    )
    lines = subprocess.check_output([tmp_path / "a.out"], text=True).split()
    for k, name in enumerate(names):
        p = [float(line) for line in lines[4 * k : 4 * k + 4]]
        np.testing.assert_allclose(p, state(page)["maps"][name]["p"], rtol=1e-9, atol=1e-12, err_msg=functions[k])


HOSTILE = ["<img src=x onerror=hit=1>", "</script><script>hit=1</script>", "\"'`${hit=1}", "&lt;b&gt;.", "__proto__"]


def test_hostile_labels_are_inert(opened):
    page = opened("rows.html")
    assert page.evaluate("typeof hit") == "undefined"
    assert "</script><script>hit=1</script>" in page.text_content("#sliders")
    assert page.evaluate("document.images.length") == 0
    assert len(checked(page)["x"]) == 4
    # What a label ends in, or that it is of numbers, does not matter in the text of a row.
    names = [",", ":", "end;", "1 2", "a: b", "-inf"]
    assert page.evaluate("(names) => parsed(written(names, Float64Array.from(names, () => 1)))[0]", names) == names
    # From an address, as somebody may send it.
    page = opened(state="#" + urllib.parse.urlencode({"x": "".join(f"{one} {i}\n" for i, one in enumerate(HOSTILE))}))
    assert page.evaluate("state.names") == HOSTILE
    assert page.locator("#sliders .row > :first-child").all_text_contents() == HOSTILE
    for language in ("python", "torch", "cpp", "shell"):
        move(page, "#language", language)
        assert "hit" not in page.text_content("#code")
    move(page, "#entropy", 700)
    assert page.evaluate("typeof hit") == "undefined"
    assert page.evaluate("document.images.length + document.scripts.length") == page.evaluate(
        "document.querySelectorAll('script').length"
    )
    assert len(checked(page)["x"]) == 5


def test_policy_and_offline(opened):
    """No network is needed, and none may be used, whatever a script would like."""
    checked(opened(offline=True))
    page, server = opened(), socket.create_server(("127.0.0.1", 0))
    refused = page.evaluate(
        """async (address) => {
          const refused = [];
          const attempt = async (name, work) => {
            try {
              await Promise.race([work(), new Promise((done) => setTimeout(done, 2000))]);
            } catch {
              refused.push(name);
            }
          };
          const loaded = (element) => new Promise((done, failed) => {
            Object.assign(element, {onload: done, onerror: failed});
            document.body.append(element);
          });
          await attempt("fetch", () => fetch(address));
          await attempt("image", () => loaded(Object.assign(new Image(), {src: address + "x.png"})));
          await attempt("script", () => loaded(Object.assign(document.createElement("script"), {src: address + "x.js"})));
          await attempt("eval", () => eval("1"));
          await attempt("function", () => new Function("return 1")());
          const inline = Object.assign(document.createElement("script"), {textContent: "hit = 1"});
          document.body.append(inline);
          if (typeof hit === "undefined") refused.push("inline");
          return refused;
        }""",
        f"http://127.0.0.1:{server.getsockname()[1]}/",
    )
    assert refused == ["fetch", "image", "script", "eval", "function", "inline"]
    server.setblocking(False)
    with server, pytest.raises(BlockingIOError):
        server.accept()
    assert all("Content Security Policy" in one for one in page.problems), page.problems
    page.problems.clear()
    page.asked[1:] = []


def test_keyboard(opened):
    page = opened()
    page.focus("#entropy")
    before = state(page)["target"]
    page.keyboard.press("ArrowRight")
    settled(page)
    assert state(page)["target"] > before
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, select, textarea, button")].filter((one) =>
             !one.labels?.length && !one.getAttribute("aria-label") && !one.textContent).length"""
    )
    assert unnamed == 0


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1600, 900)])
def test_nothing_is_wider_than_the_page(opened, width, height):
    page = opened(viewport={"width": width, "height": height})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_served(visited, tmp_path):
    """`isentropic explore`: the page as from a file, under the server's policy too."""
    (tmp_path / "x.csv").write_text("id,red,green,blue\nfirst,1,2,4\nsecond,0.5,-inf,3\n")
    program = subprocess.Popen(
        [CLI, "explore", "x.csv", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "ISENTROPIC_EXPLORER": str(PAGE)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    try:
        page = visited(program.stdout.readline().strip())
        settled(page)
        assert page.eval_on_selector_all("#example option", "all => all.slice(0, 2).map((one) => one.textContent)") == [
            "first",
            "second",
        ]
        assert checked(page)["x"].tolist() == [1, 2, 4]
        move(page, "#example", 1)
        assert checked(page)["x"].tolist() == [0.5, -np.inf, 3]
        move(page, "#entropy", 300)
        checked(page)
    finally:
        program.send_signal(signal.SIGINT)
        assert program.wait(20) == -signal.SIGINT


LONG = 300


@pytest.fixture
def pasted(opened):
    """pasted(page, text): by the keys, where the focus is."""

    def pasted(page, text):
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.evaluate("(text) => navigator.clipboard.writeText(text)", text)
        page.focus("#scores")
        page.keyboard.press("Control+a")
        page.keyboard.press("Control+v")

    return pasted


@pytest.mark.parametrize("before", [8, LONG])
@pytest.mark.parametrize("after", [3, LONG + 1, 20_000])
def test_pasted(opened, pasted, before, after):
    """Over short rows and long ones, which are not typed in."""
    page = opened()
    if before == LONG:
        pasted(page, "\n".join(f"old{i} {i % 7}" for i in range(LONG)))
        settled(page)
        assert len(state(page)["x"]) == LONG
    x = np.random.default_rng(after).standard_normal(after).round(6)
    pasted(page, "\r\n".join(f"new {i}\t{one}" for i, one in enumerate(x)) + "\r\n")
    settled(page)
    found = checked(page)
    np.testing.assert_array_equal(found["x"], x)
    assert page.evaluate("state.names") == [f"new {i}" for i in range(after)]
    assert len(page.input_value("#scores").strip().split("\n")) == min(after, 200)
    assert page.locator("#scores").is_editable() == (after <= 200)
    assert page.locator("#long").text_content().startswith("The first 200 of" if after > 200 else "")
    assert page.input_value("#example") == "own"


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("[1.5, -2, 3e-1]", [1.5, -2, 0.3]),
        ("[ 1.5 -2.\n  .3 -inf]", [1.5, -2, 0.3, -np.inf]),
        ("1.5, 2", [1.5, 2]),
        ("1\t2\t3", [1, 2, 3]),
        ("7 2", [2]),
        ("1\n2\n3", [1, 2, 3]),
        ("a: 1\n\nb b, 2\n", [1, 2]),
    ],
)
def test_forms_of_a_row(opened, pasted, text, x):
    page = opened()
    pasted(page, text)
    settled(page)
    assert checked(page)["x"].tolist() == x
    # A bar may be moved then.
    move(page, "#sliders .row:nth-child(1) input", 2.5)
    assert checked(page)["x"].tolist() == [2.5, *x[1:]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 1\nb warm\nc 3", "line 2: 'warm' is no score"),
        ("a 1\n\nb 2,5", "line 3: '2,5' is no score"),
        ("[1, 2, x]", "score 3: 'x' is no score"),
        ("1 2 3\n4 5 6", "line 1: 3 numbers, where a label and a score should be"),
        ("\n \n", "there are no scores"),
        ("\n".join(f"l{i} {i if i != 277 else '0x3'}" for i in range(LONG)), "line 278: '0x3' is no score"),
        ("<img src=x onerror=hit=1>", "line 1: 'onerror=hit=1>' is no score"),
    ],
)
@pytest.mark.parametrize("before", [8, LONG])
def test_refused_paste(opened, pasted, before, text, words):
    page = opened(state="" if before == 8 else "#example=1000+scores")
    old, shown = state(page), page.input_value("#scores")
    pasted(page, text)
    until(page, f"at('problem').textContent === {'What was pasted changes nothing: ' + words!r}")
    page.wait_for_timeout(200)
    new = state(page)
    assert page.input_value("#scores") == shown
    np.testing.assert_array_equal(new["x"], old["x"])
    assert new["target"] == old["target"]
    for name, one in old["maps"].items():
        np.testing.assert_allclose(new["maps"][name]["p"], one["p"], rtol=1e-6, atol=1e-9, err_msg=name)
    move(page, "#entropy", 400)  # the message goes with the next input
    checked(page)


def test_pasted_into_the_middle(opened):
    page = opened()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    paste = lambda text: page.evaluate("(text) => navigator.clipboard.writeText(text)", text)  # noqa: E731
    page.focus("#scores")
    page.keyboard.press("Control+Home")
    paste("new 7\n")
    page.keyboard.press("Control+v")
    settled(page)
    assert state(page)["x"].tolist() == [7, 6.2, 5.1, 4.4, 3.9, 2.5, 1, 0.2, -1.5]
    page.keyboard.press("Control+z")
    settled(page)
    assert state(page)["x"].tolist() == [6.2, 5.1, 4.4, 3.9, 2.5, 1, 0.2, -1.5]
    page.keyboard.press("Control+Home")
    paste("".join(f"l{i} 0\n" for i in range(LONG)))
    page.keyboard.press("Control+v")
    settled(page)
    assert state(page)["x"].tolist() == [0] * LONG + [6.2, 5.1, 4.4, 3.9, 2.5, 1, 0.2, -1.5]


def dropped(page, name, text):
    page.evaluate(
        """([name, text]) => {
          const data = new DataTransfer();
          data.items.add(new File([text], name));
          document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }""",
        [name, text],
    )


def test_dropped(opened):
    page = opened()
    dropped(page, "x.txt", "".join(f"d{i} {i / 8}\n" for i in range(LONG)))
    until(page, f"state.x.length === {LONG}")
    settled(page)
    np.testing.assert_array_equal(checked(page)["x"], np.arange(LONG) / 8)
    dropped(page, "y.csv", "label,score\na,1\n")
    until(page, """at("problem").textContent === "y.csv changes nothing: line 1: 'score' is no score" """)
    dropped(page, "z.txt", "1\n" * (4 << 20) + "11")
    until(page, 'at("problem").textContent === "z.txt changes nothing: it is larger than 8 MB"')
    assert len(state(page)["x"]) == LONG


def test_typed_nonsense_leaves_the_row(opened):
    page = opened(state="#x=a+1%0Ab+2")
    page.fill("#scores", "a 1\nb 2\nc w")
    until(page, "at('problem').textContent === \"line 3: 'w' is no score\"")
    until(page, "!waiting && document.documentElement.dataset.done == turn")
    assert checked(page)["x"].tolist() == [1, 2]
    page.fill("#second", "1, x")
    until(page, "at('problem').textContent === \"line 3: 'w' is no score\" || at('problem').textContent.includes('Q, score 2')")
    page.fill("#scores", "a 1\nb 2\nc 3")
    until(page, "state.x.length === 3")
    settled(page)
    checked(page)
    page.fill("#second", "1, x, 2")
    until(page, "at('problem').textContent === \"Q, score 2: 'x' is no score\"")
    assert page.locator("#between dd").count() == 0 and page.locator("#plan svg").count() == 0


def test_what_has_no_answer_is_refused(opened, visited, file):
    """Typed, and in an address: the message names the field, which is the scores' if another is wrong too."""
    page = opened(state="#words=3")
    words = page.text_content("#drawn")
    for field, text, message in (
        ("#scores", "a -inf\nb -inf", "the scores must not all be -inf: there would be no distribution"),
        ("#scores", "[1, 2,", "the list of scores has no ] at its end"),
        ("#scores", "a 1e309", "line 1: '1e309' is too large for float64"),
        ("#second", "-inf " * 8, "the scores of Q must not all be -inf: there would be no distribution"),
        ("#second", "1", "Q must have 8 scores, as many as P, got 1"),
        *(("#seed", seed, "seed must be a whole number from 0 to 999999") for seed in ("-1", "1.5", "1000000", "")),
    ):
        before = page.input_value(field)
        page.fill(field, text)
        until(page, f"at('problem').textContent === {message!r}")
        assert field != "#seed" or page.text_content("#drawn") == "–"
        page.fill(field, before)
        settled(page)
    assert page.text_content("#drawn") == words
    page.fill("#second", "1")
    page.fill("#scores", "[1, 2")
    until(page, "!waiting && document.documentElement.dataset.done == turn")
    assert page.text_content("#problem") == "the list of scores has no ] at its end"
    page = visited(file.as_uri() + "#x=a+1%0Ab+-")
    until(page, "turn > 0 && !waiting && document.documentElement.dataset.done == turn")
    assert page.text_content("#problem") == "line 2: '-' is no score" and len(page.input_value("#second").split()) == 8


def test_the_curve_of_huge_scores(opened):
    """The temperature that would bring them to the largest entropy is above float64: the curve begins where it is not."""
    page = opened(state="#x=a+1e308%0Ab+-1e308%0Ac+1e300%0Ad+0")
    heights = [float(pair.split(",")[1]) for pair in page.get_attribute("#curve polyline", "points").split()]
    assert heights == sorted(heights) and heights[0] < 60


@pytest.mark.parametrize("example", ["two that are nearly equal", "1000 scores", "128000 scores"])
def test_the_address_of_an_example(opened, example):
    page = opened()
    page.select_option("#example", label=example)
    move(page, "#entropy", 123)
    assert len(page.url) < 1000
    again = opened(state="#" + page.url.split("#")[1])
    one, other = state(page), state(again)
    np.testing.assert_array_equal(other["x"], one["x"])
    assert other["target"] == one["target"]
    assert again.eval_on_selector("#example", "(one) => one.selectedOptions[0].textContent") == example
    # Moved, it is another row, in the address as long as it may be.
    move(again, "#sliders .row:nth-child(2) input", 1.5)
    assert again.input_value("#example") == "own"
    if len(one["x"]) <= 2000:
        np.testing.assert_array_equal(state(opened(state="#" + again.url.split("#")[1]))["x"], state(again)["x"])


def test_another_address_in_the_same_place(opened):
    page = opened()
    page.evaluate("location.hash = '#x=a+1%0Ab+4&h=0.25&alpha=2&q=1,0'")
    until(page, "state.x.length === 2")
    settled(page)
    assert checked(page)["target"] == 0.25
    assert page.input_value("#alpha") == "2" and page.input_value("#second") == "1,0"
    assert state(page)["x"].tolist() == [1, 4]


@pytest.mark.parametrize("kept", ["x=a+warm", "x=", "example=none", "h=nan&alpha=x&words=-1&q=%00", "unit=%3Cb%3E&of=softmaxx"])
def test_addresses_that_say_nothing(opened, visited, file, kept):
    page = visited(file.as_uri() + "#" + kept)
    until(page, "turn > 0 && !waiting && document.documentElement.dataset.done == turn")
    assert len(checked(page)["x"]) == 8
