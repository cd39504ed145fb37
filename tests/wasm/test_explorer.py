"""The explorer in headless Chromium, from file:// and served: its controls, numbers and code."""

import os
import pathlib
import re
import signal
import subprocess

import numpy as np
import pytest

import entropic

ROOT = pathlib.Path(__file__).parents[2]
CLI = os.path.abspath(os.environ["ENTROPIC_CLI"]) if "ENTROPIC_CLI" in os.environ else "entropic"
PAGE = ROOT / "build/wasm/explorer.html"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="scripts/wasm builds it")
KNOBS = ["softmax", "sparsemax", "entmax", "perturb_max", "top_p_softmax", "min_p_softmax", "entropy_normalize", "entropy_clip"]


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    """page.html, and rows.html with rows of a file."""
    folder = tmp_path_factory.mktemp("explorer")
    rows = "name,<img src=x onerror=hit=1>,</script><script>hit=1</script>,third,@WASM@\na,1,2,0.5,-inf\nb,0,0,0,1\n"
    (folder / "rows.csv").write_text(rows)
    for arguments in (["-o", "page.html"], ["rows.csv", "-o", "rows.html"]):
        subprocess.run([CLI, "explore", *arguments], cwd=folder, env={**os.environ, "ENTROPIC_EXPLORER": str(PAGE)}, check=True)
    return folder / "page.html"


@pytest.fixture
def opened(visited, file):
    def opened(name="page.html", state="", **options):
        page = visited(file.with_name(name).as_uri() + state, **options)
        settled(page)
        return page

    return opened


def until(page, condition):
    """wait_for_function is refused by the page's policy."""
    for _ in range(400):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"{condition}: {page.text_content('#problem')}")


def settled(page):
    until(page, "turn > 0 && !waiting && document.documentElement.dataset.done == turn")
    assert page.text_content("#problem") == ""


def move(page, selector, value):
    page.eval_on_selector(
        selector,
        "(one, value) => { one.value = value; one.dispatchEvent(new Event(one.tagName === 'SELECT' ? 'change' : 'input')); }",
        str(value),
    )
    settled(page)


def state(page):
    found = page.evaluate(
        """() => ({x: [...state.x].map(String), target: state.target, maps: Object.fromEntries(Object.entries(state.found)
           .map(([name, one]) => [name, {parameters: one.parameters, p: [...one.p], entropy: one.entropy}]))})"""
    )
    found["x"] = np.array([float(one) for one in found["x"]])
    return found


def checked(page):
    """Every map's numbers are the package's; gives what the page holds."""
    found = state(page)
    for name, one in found["maps"].items():
        p = getattr(entropic, name)(found["x"], **one["parameters"])
        np.testing.assert_allclose(one["p"], p, rtol=1e-9, atol=1e-12, err_msg=name)
        assert one["entropy"] == pytest.approx(entropic.entropy(p, normalize=True), abs=1e-9)
    return found


def test_one_entropy(opened):
    page = opened()
    for share in (500, 50, 950, 0, 1000, 301):
        move(page, "#entropy", share)
        found = checked(page)
        assert found["target"] == pytest.approx(share / 1000 * np.log(8))
        for name in KNOBS:
            if 50 <= share <= 950 and name not in ("top_p_softmax", "min_p_softmax"):
                assert found["maps"][name]["entropy"] == pytest.approx(found["target"], abs=1e-6), (name, share)
    gamma = entropic.gamma_for_entropy(found["x"], entropy=found["target"]).gamma
    assert float(page.get_attribute("#curve", "data-gamma")) == pytest.approx(float(gamma), rel=1e-9)


def test_units(opened):
    page = opened()
    texts = {}
    for unit in ("nats", "bits", "perplexity"):
        move(page, "#unit", unit)
        texts[unit] = float(page.text_content("#value").split()[0])
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
            sampler = entropic.Sampler([*steps, ("temperature", 1.0)], seed=7)
            expected.append(words[int(np.ravel(sampler.sample(x, position=position))[0])])
        assert page.text_content(place).split() == expected


def test_two_rows(opened):
    page = opened(state="#x=a+1%0Ab+2%0Ac+0.5&q=0,-1,2")
    p, q = entropic.softmax([[1, 2, 0.5], [0.0, -1, 2]])
    found = page.eval_on_selector_all("#between dd", "all => all.map((one) => Number(one.dataset.value))")
    expected = [entropic.kl_divergence(p, q), entropic.kl_divergence(q, p), entropic.js_divergence(p, q)]
    np.testing.assert_allclose(found, [*expected, entropic.wasserstein_histogram(p, q)], rtol=1e-12)
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
                command = re.sub(r"\| entropic", "| " + CLI, text)
                p = [float(cell) for cell in subprocess.check_output(["sh", "-c", command], text=True).split(",")]
            else:
                if language == "torch":
                    pytest.importorskip("torch")
                names = {}
                exec(text, names)
                p = np.asarray(names["p"])
            np.testing.assert_allclose(p, one["p"], rtol=1e-9, atol=1e-12, err_msg=text)


@pytest.mark.skipif("ENTROPIC_BUILD" not in os.environ, reason="ENTROPIC_BUILD is no build of the library")
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
    shared = pathlib.Path(os.environ["ENTROPIC_BUILD"]).resolve() / "tests"
    subprocess.run(
        ["g++", "-std=c++20", f"-I{ROOT / 'include'}", "all.cc", f"-L{shared}", "-lentropic_shared", f"-Wl,-rpath,{shared}"],
        cwd=tmp_path,
        check=True,
    )
    lines = subprocess.check_output([tmp_path / "a.out"], text=True).split()
    for k, name in enumerate(names):
        p = [float(line) for line in lines[4 * k : 4 * k + 4]]
        np.testing.assert_allclose(p, state(page)["maps"][name]["p"], rtol=1e-9, atol=1e-12, err_msg=functions[k])


def test_hostile_labels_are_inert(opened):
    page = opened("rows.html")
    assert page.evaluate("typeof hit") == "undefined"
    assert "</script><script>hit=1</script>" in page.text_content("#sliders")
    assert page.evaluate("document.images.length") == 0
    assert len(checked(page)["x"]) == 4


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
    """`entropic explore`: the page as from a file, under the server's policy too."""
    (tmp_path / "x.csv").write_text("id,red,green,blue\nfirst,1,2,4\nsecond,0.5,-inf,3\n")
    program = subprocess.Popen(
        [CLI, "explore", "x.csv", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "ENTROPIC_EXPLORER": str(PAGE)},
        stdout=subprocess.PIPE,
        text=True,
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
