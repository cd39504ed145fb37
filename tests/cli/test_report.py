"""`isentropic compare --format html`: one file that works without a network, as a browser shows it.

Needs playwright and Debian's chromium.
"""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
MAPS = ["softmax", "sparsemax", "entropy_normalize"]
SIZES = {"phone": (360, 740), "desk": (1280, 900)}


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def report(cli):
    """A report of 60 rows with names, three of them without a distribution."""
    x = np.random.default_rng(14).normal(size=(60, 6)) * 3
    x[7] = -np.inf
    x[8, 2] = np.nan
    x[9, 1] = np.inf
    names = ["cat", "dog", "<b>eel</b>", "größe", "a very long name of a class that does not fit", "x"]
    lines = [",".join(map(repr, row)) for row in x.tolist()]
    cli.write("x.csv", "name," + ",".join(names) + "\n" + "".join(f"row</script>{i},{line}\n" for i, line in enumerate(lines)))
    arguments = ["compare", "x.csv", "--row", 3, "--maps", ",".join(MAPS), "--entropy", 1]
    cli.output(*arguments, "--format", "html", "-o", "report.html")
    return cli, json.loads(cli.output(*arguments, "--format", "json"))


@pytest.fixture
def page(browser, report):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.problems = []
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda request: page.problems.append(request.url) if request.url.startswith("http") else None)
    page.goto(f"file://{report[0].directory}/report.html")
    yield page
    assert page.problems == []
    page.close()


def table(page):
    rows = page.locator("#numbers tr")
    return [rows.nth(i).locator("th, td").all_inner_texts() for i in range(rows.count())]


def test_numbers_are_those_of_json(page, report):
    expected = report[1]
    assert "Row 3 (row</script>3) of 60, 6 classes" in page.locator("#where").inner_text()
    for cells, column in zip(table(page), expected["maps"], strict=True):
        assert cells[0] == column["name"]
        assert [float(cell) for cell in cells[1:]] == pytest.approx(
            [column["entropy"], column["effective_support"], column["zeros"], column["maximum"]], abs=6e-3
        )
    cards = page.locator("#bars .card.map")
    assert cards.count() == len(MAPS)
    for i, column in enumerate(expected["maps"]):
        shown = cards.nth(i).locator(".row > :last-child").all_inner_texts()
        assert [float(text) for text in shown] == pytest.approx(column["probabilities"], abs=6e-5)
        widths = cards.nth(i).locator(".track i").evaluate_all("bars => bars.map(bar => bar.getBoundingClientRect().width)")
        full = max(max(other["probabilities"]) for other in expected["maps"])
        track = cards.nth(i).locator(".track").first.evaluate("track => track.getBoundingClientRect().width")
        assert widths == pytest.approx([max(2 * (p > 0), p / full * track) for p in column["probabilities"]], abs=1)


def test_histogram_of_json(report):
    for column in report[1]["maps"]:
        histogram = column["entropy_histogram"]
        assert sum(histogram["counts"]) + histogram["undefined"] == 60
        assert histogram["undefined"] == 2
        assert histogram["to"] == pytest.approx(np.log(6))


def test_histogram_counts(page, report):
    pictures = page.locator("#histograms svg")
    for i, column in enumerate(report[1]["maps"]):
        counts = ", ".join(map(str, column["entropy_histogram"]["counts"]))
        assert pictures.nth(i).get_attribute("aria-label").endswith(counts)
    assert page.locator("#histograms .card").first.locator("h3").inner_text().endswith("2 undefined")


def expected_distances(p, q):
    middle = (p + q) / 2
    js = sum(np.sum(one * np.log(one / middle, out=np.zeros_like(one), where=one > 0)) for one in (p, q)) / 2
    return {
        "js_distance": np.sqrt(max(js, 0)),
        "total_variation": np.abs(p - q).sum() / 2,
        "wasserstein": np.abs(np.cumsum(p - q)).sum(),
    }


def test_distances_of_json(report):
    cli, row3 = report
    row20 = json.loads(
        cli.output("compare", "x.csv", "--row", 20, "--maps", ",".join(MAPS), "--entropy", 1, "--format", "json")
    )
    for one, other in zip(row3["maps"], row20["maps"], strict=True):
        assert one["distances"]["first_row"] == other["distances"]["first_row"] == 0
        want = expected_distances(*(np.array(column["probabilities"], float) for column in (one, other)))
        for name, value in want.items():
            assert len(one["distances"][name]) == 40
            assert one["distances"][name][20] == pytest.approx(value, rel=1e-9)
            assert other["distances"][name][3] == pytest.approx(value, rel=1e-9)
            assert one["distances"][name][3] == 0
            assert one["distances"][name][7] == "nan"
    last = json.loads(cli.output("compare", "x.csv", "--row", 59, "--maps", "softmax", "--format", "json"))["maps"][0]
    assert last["distances"]["first_row"] == 20 and last["distances"]["wasserstein"][39] == 0


def test_distances_are_those_of_json(page, report):
    for m, column in enumerate(report[1]["maps"]):
        page.select_option("#under", str(m))
        for name in "js_distance", "total_variation", "wasserstein":
            page.select_option("#by", name)
            numbers = {r: d for r, d in enumerate(column["distances"][name]) if d != "nan" and r != 3}
            order = sorted(numbers, key=numbers.get)
            lines = page.locator("#near .row")
            assert lines.count() == 13 and f"{len(numbers) - 12} between" in lines.nth(8).inner_text()
            for at, r in [*enumerate(order[:8]), *enumerate(order[-4:], 9)]:
                _, number = lines.nth(at).locator("> :first-child, > :last-child").all_inner_texts()
                assert float(number) == pytest.approx(numbers[r], rel=1e-3, abs=6e-5)
            titles = page.locator("#matrix title")
            assert titles.count() == 1600
            assert float(titles.nth(3 * 40 + 20).text_content().rsplit(": ", 1)[1]) == pytest.approx(numbers[20], rel=1e-3)
    page.locator("#matrix rect").nth(20).click()
    assert "Row 20 " in page.locator("#where").inner_text()
    assert page.locator("#near h3").inner_text().startswith("From row 20")
    row20 = float(page.locator("#matrix rect").nth(20 * 40).get_attribute("y"))
    assert float(page.locator("#matrix .here").get_attribute("y")) == pytest.approx(row20, abs=1)
    page.keyboard.press("End")
    assert "not among those of the matrix" in page.locator("#near").inner_text()


def test_steps_through_rows(page):
    where = page.locator("#where")
    page.keyboard.press("ArrowRight")
    assert "Row 4 " in where.inner_text()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert "Row 2 " in where.inner_text()
    page.click("#forth")
    assert "Row 3 " in where.inner_text()
    page.keyboard.press("End")
    assert "Row 59 " in where.inner_text() and page.locator("#forth").is_disabled()
    page.keyboard.press("ArrowRight")
    assert "Row 59 " in where.inner_text()
    page.keyboard.press("Home")
    assert "Row 0 " in where.inner_text() and page.locator("#back").is_disabled()
    page.fill("#number", "7")
    page.locator("#number").press("Enter")
    assert "Row 7 " in where.inner_text()
    assert table(page)[0][1:] == ["nan", "nan", "0", "nan"]
    page.locator("#slider").fill("9")
    assert "Row 9 " in where.inner_text()
    assert table(page)[0][1:] == ["0.0000", "1.00", "5", "1"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_fits_and_can_be_read(browser, report, size, scheme):
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(f"file://{report[0].directory}/report.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    light = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)")
    assert (light > 600) == (scheme == "light")
    pairs = page.evaluate(
        """() => [
          "h1", "p", ".sections a", ".row > :first-child", ".row > :last-child", "td", "thead th", ".axis", "select", "#apart",
        ].map((selector) => {
          const element = document.querySelector(selector);
          let behind = element;
          while (getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
          return [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor];
        })"""
    )

    def luminance(color):
        channels = [int(part) / 255 for part in color[4:-1].split(",")]
        return sum(
            weight * (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4)
            for weight, c in zip((0.2126, 0.7152, 0.0722), channels, strict=True)
        )

    bars = page.evaluate(
        """() => {
          const style = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
          const card = style(".card", "backgroundColor");
          return [
            [style(".map .track i", "backgroundColor"), style(".map .track", "backgroundColor")],
            [style(".scores .track i", "backgroundColor"), style(".scores .track", "backgroundColor")],
            [style("#histograms rect", "fill"), card], [style("#histograms line:not(.edge)", "stroke"), card],
            [style("#histograms line:not(.edge)", "stroke"), style("#histograms line.edge", "stroke")],
            [style("#matrix .here", "stroke"), style("#matrix .edge", "stroke")],
            [style("#bar", "borderTopColor"), style("#bar", "backgroundColor")], [style("#matrix .none", "stroke"), card],
          ];
        }"""
    )
    for pair in bars:  # and 3 for bars, marks and controls
        low, high = sorted(map(luminance, pair))
        assert (high + 0.05) / (low + 0.05) >= 3
    for pair in pairs:  # WCAG 2: at least 4.5 for text
        low, high = sorted(map(luminance, pair))
        assert (high + 0.05) / (low + 0.05) >= 4.5
    assert page.locator("nav button").first.bounding_box()["height"] >= 40  # a thumb's
    assert page.locator("#under").bounding_box()["height"] >= 40
    page.close()


def test_many_rows_and_classes(browser, cli):
    cli.save("x.npy", np.random.default_rng(15).normal(size=(3000, 500)))
    cli.output("compare", "x.npy", "--row", 2990, "--maps", "softmax,sparsemax", "--static", "-o", "report.html")
    assert pathlib.Path(cli.directory / "report.html").stat().st_size < 3_000_000
    page = browser.new_page()
    page.goto(f"file://{cli.directory}/report.html")
    assert "Row 2,990 of 3,000, 500 classes" in page.locator("#where").inner_text()
    assert page.locator("#bars .card.map").first.locator(".row").count() == 21
    assert "480 more" in page.locator("#bars .card.map").first.inner_text()
    page.keyboard.press("Home")
    assert "Row 0 " in page.locator("#where").inner_text()
    # Of the list of rows only those in sight are elements.
    assert page.locator("#lines tr").count() < 60 and page.locator("#rows table").get_attribute("aria-rowcount") == "3001"
    page.locator("#rows").evaluate("box => { box.scrollTop = box.scrollHeight; }")
    page.locator("#lines a", has_text="row 2,999").click()
    page.locator("#where", has_text="Row 2,999 ").wait_for()  # the browser tells of a new hash after the click
    page.close()


def test_rows_that_are_left_out_are_said(browser, cli):
    cli.save("x.npy", np.random.default_rng(16).normal(size=(120_000, 6)))
    cli.output("compare", "x.npy", "--row", 70_000, "--maps", "softmax,sparsemax", "-o", "report.html")
    assert pathlib.Path(cli.directory / "report.html").stat().st_size < 25_000_000
    page = browser.new_page()
    page.goto(f"file://{cli.directory}/report.html")
    said = page.locator("#kept").inner_text()
    assert re.search(r"holds rows [\d,]+ to [\d,]+ of 120,000, those around row 70,000", said)
    first = int(re.search(r"rows ([\d,]+) to", said)[1].replace(",", ""))
    page.keyboard.press("Home")
    assert f"Row {first:,} of 120,000" in page.locator("#where").inner_text()
    assert "Rows 69,980 to 70,019, those around row 70,000, of 120,000" in page.locator("#apart").inner_text()
    page.close()


def test_numbers_of_every_row(browser, cli):
    """Both types, rows that differ in length of support, and probabilities that float32 would round to 0."""
    x = np.random.default_rng(17).normal(size=(9, 30)) * [[1], [2], [400], [1], [50], [3], [0.1], [1], [7]]
    for name in "float32", "float64":
        cli.save("x.npy", x.astype(name))
        cli.output("compare", "x.npy", "--maps", "softmax,sparsemax", "-o", "report.html")
        page = browser.new_page()
        for row in range(9):
            page.goto(f"file://{cli.directory}/report.html#row={row}")
            page.reload()
            expected = json.loads(
                cli.output("compare", "x.npy", "--row", row, "--maps", "softmax,sparsemax", "--format", "json")
            )["maps"]
            order = np.argsort(-x[row].astype(name), kind="stable")[:20]
            for card, column in zip(page.locator("#bars .card.map").all(), expected, strict=True):
                p = np.array(column["probabilities"])
                shown = card.locator(".row > :last-child").all_inner_texts()
                assert [float(text) for text in shown[:20]] == pytest.approx(p[order], rel=0.5, abs=0)
                assert float(shown[20]) == pytest.approx(1 - p[order].sum(), abs=6e-5)
        page.close()


def test_scales(browser, cli):
    """A map with one class must not make the bars of softmax vanish."""
    x = np.random.default_rng(18).normal(size=(1, 50_000))
    x[0, 7] = 8
    cli.save("x.npy", x)
    cli.output("compare", "x.npy", "--maps", "softmax,sparsemax", "-o", "report.html")
    page = browser.new_page()
    page.goto(f"file://{cli.directory}/report.html")
    card = page.locator("#bars .card.map").first

    def widths():
        tracks = card.locator(".track").evaluate_all("all => all.map(one => [one.clientWidth, one.firstChild.clientWidth])")
        return [bar / track for track, bar in tracks[:20]]

    assert page.locator("#bar").input_value() == "own" and "its map" in page.locator("#scale").inner_text()
    assert widths()[0] == pytest.approx(1, abs=0.02)
    page.select_option("#bar", "common")
    assert max(widths()) < 0.1 and "A full bar is 1" in page.locator("#scale").inner_text()
    page.select_option("#bar", "log")
    assert min(widths()) > 0.05 and "no bar is" in page.locator("#scale").inner_text()
    page.close()


def test_links_and_keys(page, report):
    assert page.evaluate("location.hash") == ""
    page.keyboard.press("ArrowRight")
    assert page.evaluate("location.hash") == "#row=4"
    page.evaluate("location.hash = '#row=17'")
    page.wait_for_function("document.querySelector('#where').textContent.startsWith('Row 17 ')")
    page.evaluate("location.hash = '#row=<b>'")
    page.locator("#matrix svg").focus()
    page.keyboard.press("Home")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    told = page.locator("#cell").inner_text()
    assert told.startswith("row 17 (row</script>17) and row 5 (row</script>5): ")
    distance = page.locator("#matrix title").nth(17 * 40 + 5).text_content().rsplit(": ", 1)[1]
    assert told.endswith(": " + distance)
    page.keyboard.press("Enter")
    assert "Row 5 " in page.locator("#where").inner_text()
    assert "5" in page.locator("#matrix text").all_text_contents() or page.locator("#matrix text").count() > 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe(browser, report, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for width in 390, 1280:
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
        page.goto(f"file://{report[0].directory}/report.html")
        if width == 390:
            assert not page.locator("#sections").is_visible()
            page.click("#menu")
            assert page.locator("#sections a").last.is_visible()
        assert [(found["id"], found["nodes"]) for found in axe.Axe().run(page).response["violations"]] == []
        page.close()


def test_axe_of_calibration(browser, cli):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    x = np.random.default_rng(1).standard_normal((300, 4)) * 3
    cli.write("x.csv", "".join(f"{r % 4}," + ",".join(map(repr, row)) + "\n" for r, row in enumerate(x.tolist())))
    cli.output("fit_temperature", "x.csv", "--labels", "1", "--report", "r.html")
    for width, scheme in (390, "dark"), (1280, "light"):
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
        page.goto(f"file://{cli.directory}/r.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.locator("summary").first.click()
        assert page.locator("table").first.is_visible()
        assert [(found["id"], found["nodes"]) for found in axe.Axe().run(page).response["violations"]] == []
        page.close()


def test_the_text_of_replies(browser, cli):
    """Each token's candidates by mouse and by keyboard; the text is there without a script."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    top = [("Hi", -0.2), ("Yo", -2.0), ("</script><b>", -4.0)]

    def token(text, own):
        return {"token": text, "logprob": own, "top_logprobs": [{"token": t, "logprob": lp} for t, lp in top]}

    texts = [("Hi", -0.2), ("</script><b>", -4.0), ("\n@DATA@ &amp;", -9.5), (" \u00e9", -9.5)] * 10
    choices = [{"index": i, "logprobs": {"content": [token(*one) for one in texts[i:]]}} for i in range(2)]
    cli.write("r.json", json.dumps({"choices": choices}))
    done = cli("describe", "r.json", "--format-in", "logprobs", "-o", "r.html")
    assert (done.returncode, done.stderr) == (0, b"")
    for width, scheme in (390, "dark"), (1280, "light"):
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True)
        problems = []
        page.on("pageerror", lambda error, problems=problems: problems.append(str(error)))
        page.goto(f"file://{cli.directory}/r.html")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        tokens = page.locator(".text").first.locator("b")
        assert tokens.count() == 40
        assert tokens.nth(1).inner_text() == "</script><b>"
        assert tokens.nth(0).get_attribute("title").splitlines() == [
            "logprob -0.2, rank 1",
            "0.8187 Hi",
            "0.1353 Yo",
            "0.0183 </script><b>",
        ]
        surprise = [float(tokens.nth(i).evaluate("one => one.style.getPropertyValue('--s')")) for i in range(3)]
        assert surprise == pytest.approx([0.2 / 6, 4 / 6, 1], abs=1e-3)
        page.locator(".text").nth(1).focus()
        assert "reply 1, position 0" in page.locator("#panel").inner_text()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert "reply 1, position 2: logprob -9.500, rank not known" in page.locator("#panel").inner_text()
        assert page.locator("#panel .drawn").inner_text().startswith("\u00b7\u00e9")
        page.keyboard.press("End")
        assert page.locator(".text").nth(1).get_attribute("aria-activedescendant") == page.locator("b").last.get_attribute("id")
        tokens.nth(0).hover()
        assert page.locator("#panel .drawn").inner_text().split() == ["Hi", "0.8187", "-0.200"]
        assert [(found["id"], found["nodes"]) for found in axe.Axe().run(page).response["violations"]] == [] and problems == []
        page.close()


def test_single_rows_and_scores(browser, cli):
    for scores in "1\n", "1,2\n", "-inf,-inf\n":
        cli.write("x.csv", scores)
        cli.output("compare", "x.csv", "--format", "html", "-o", "report.html")
        page = browser.new_page()
        problems = []
        page.on("pageerror", lambda error, problems=problems: problems.append(str(error)))
        page.goto(f"file://{cli.directory}/report.html")
        assert page.locator("#numbers tr").count() > 10 and problems == []
        page.close()
