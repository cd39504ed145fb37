"""The report of `isentropic compare` with the library in it: maps that are moved."""

import os
import pathlib
import subprocess

import numpy as np
import pytest

import isentropic

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "build/wasm/explorer.html"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="scripts/wasm builds it")
# Where to, by the slider's own place.
PLACES = {
    "temperature": [-1, 0.5],
    "scale": [-0.5, 1],
    "alpha": [1.25, 3],
    "p": [0.3, 1],
    "k": [1, 5],
    "order": [2, 6],
    "entropy": [0.4],
    "min_entropy": [0.7],
    "max_entropy": [1.2],
}


def report(folder, x, *arguments):
    np.save(folder / "x.npy", x)
    subprocess.run(
        [os.environ.get("ISENTROPIC_CLI", "isentropic"), "compare", "x.npy", "-o", "report.html", *arguments],
        cwd=folder,
        env={**os.environ, "ISENTROPIC_EXPLORER": str(PAGE)},
        check=True,
    )
    return (folder / "report.html").as_uri()


def moved(page, name, parameter, place):
    page.select_option("#moving", label=name)
    page.eval_on_selector(
        f"[data-parameter={parameter}]",
        "(one, place) => { one.value = place; one.dispatchEvent(new Event('input')); }",
        str(place),
    )
    return float(page.eval_on_selector(f"[data-parameter={parameter}]", "(one) => one.value"))


def numbers(page, name):
    """All numbers of a map's card, of the row that is shown, in the order of classes."""
    found = page.evaluate("(name) => rowData(row).maps[data.maps.findIndex((map) => map.name === name)]", name)
    order = np.argsort(page.evaluate("rowData(row).classes"))
    return np.array(found["p"], float)[order], found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_slider(visited, tmp_path, dtype):
    x = (np.random.default_rng(3).standard_normal((4, 9)) * 2).astype(dtype)
    x[3, 2] = -np.inf
    page = visited(report(tmp_path, x, "--row", "1"))
    page.wait_for_selector("#moved:not([hidden])")
    near = {"rtol": 1e-9 if dtype == "float64" else 2e-6, "atol": 1e-12 if dtype == "float64" else 1e-7}
    values = {map["name"]: map["values"] for map in page.evaluate("data.maps")}
    for name, given in values.items():
        page.select_option("#moving", label=name)
        parameters = page.eval_on_selector_all("[data-parameter]", "all => all.map((one) => one.dataset.parameter)")
        assert set(parameters) == set(given) - {"noise", "input"}
        for parameter in parameters:
            still = numbers(page, name)
            log = parameter in ("temperature", "scale")
            # At the file's own value the numbers are the file's.
            moved(page, name, parameter, np.log(given[parameter]) if log else given[parameter])
            again = numbers(page, name)
            np.testing.assert_allclose(again[0], still[0], **near, err_msg=f"{name}, {parameter}")
            for key in ("entropy", "maximum", "zeros", "rest"):
                assert again[1][key] == pytest.approx(still[1][key], rel=1e-5, abs=1e-6), (name, key)
            for place in PLACES[parameter]:
                at = moved(page, name, parameter, place)
                for row in (1, 3):
                    page.evaluate("(row) => go(row)", row)
                    p, found = numbers(page, name)
                    value = np.exp(at) if log else int(at) if parameter in ("k", "order") else at
                    expected = getattr(isentropic, name)(x[row], **{**given, parameter: value})
                    np.testing.assert_allclose(p, expected, **near, err_msg=f"{name}, {parameter}, {at}")
                    assert found["entropy"] == pytest.approx(isentropic.entropy(expected, normalize=True), rel=1e-5, abs=1e-6)
                    assert found["zeros"] == np.count_nonzero(expected == 0)
                page.evaluate("go(1)")
            page.click("#reset")
            assert numbers(page, name)[1] == still[1]


def test_what_does_not_go_together(visited, tmp_path):
    page = visited(report(tmp_path, np.arange(6.0).reshape(1, 6)))
    page.wait_for_selector("#moved:not([hidden])")
    before = numbers(page, "entropy_clip")[1]
    moved(page, "entropy_clip", "max_entropy", 0.2)
    assert "min_entropy" in page.text_content("#told")
    assert numbers(page, "entropy_clip")[1] == before
    moved(page, "entropy_clip", "min_entropy", 0.1)
    moved(page, "entropy_clip", "max_entropy", 0.2)
    assert numbers(page, "entropy_clip")[1]["entropy"] == pytest.approx(0.2, abs=1e-6)


def test_rows_that_the_page_has_not_all_scores_of(visited, tmp_path):
    page = visited(report(tmp_path, np.random.default_rng(1).standard_normal((4, 100_000)), "--maps", "softmax", "--row", "2"))
    page.wait_for_selector("#moved:not([hidden])")
    assert page.evaluate("data.whole") == {"first": 2, "rows": 1}
    page.evaluate("go(0)")
    before = numbers(page, "softmax")[1]
    moved(page, "softmax", "temperature", 1)
    assert "cannot be changed" in page.text_content("#told")
    assert numbers(page, "softmax")[1] == before
    page.evaluate("go(2)")
    assert numbers(page, "softmax")[1]["entropy"] > before["entropy"]


@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_is_wider_than_the_page(visited, tmp_path, width):
    page = visited(report(tmp_path, np.eye(7)), viewport={"width": width, "height": 800})
    page.wait_for_selector("#moved:not([hidden])")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.focus("[data-parameter=temperature]")
    before = numbers(page, "softmax")[1]["entropy"]
    page.keyboard.press("ArrowRight")
    assert numbers(page, "softmax")[1]["entropy"] > before
    assert "Entropy" in page.text_content("#told")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1600])
def test_axe(visited, tmp_path, scheme, width):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    options = {"viewport": {"width": width, "height": 850}, "color_scheme": scheme, "bypass_csp": True}
    page = visited(report(tmp_path, np.eye(7)), **options)
    page.wait_for_selector("#moved:not([hidden])")
    for name, parameter, place in (("softmax", "temperature", -1), ("entmax", "alpha", 3), ("top_k_softmax", "k", 2)):
        moved(page, name, parameter, place)
        assert [
            (one["id"], [node["html"] for node in one["nodes"]]) for one in axe.Axe().run(page).response["violations"]
        ] == []


def test_the_report_stays_light(tmp_path):
    size = {}
    for kind in ([], ["--static"]):
        report(tmp_path, np.random.default_rng(15).normal(size=(3000, 500)), "--maps", "softmax,sparsemax", *kind)
        size[len(kind)] = (tmp_path / "report.html").stat().st_size
    assert size[0] - size[1] < 1_600_000
