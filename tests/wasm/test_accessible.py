"""The explorer for those who use no mouse, see no screen, or see it otherwise."""

import itertools

import numpy as np
import pytest
from explorer_page import PAGE, move, settled, state, until

import isentropic

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="scripts/wasm builds it")
SIZES = [{"width": 390, "height": 844}, {"width": 1600, "height": 900}]
CONTROLS = "[...document.querySelectorAll('input, select, textarea, button, [tabindex]')]"


def drawn(page):
    for _ in range(3):
        page.click("#step")
        settled(page)
    move(page, "#language", "cpp")


def refused(page, place, text):
    page.fill(place, text)
    until(page, "at('problem').textContent.includes('is no score')")


VIEWS = {
    "first": lambda page: None,
    "drawn, C++": drawn,
    "1000 scores": lambda page: page.select_option("#example", label="1000 scores"),
    "one score": lambda page: page.fill("#scores", "alone 1"),
    "no row": lambda page: refused(page, "#scores", "a 1\nb warm"),
    "no Q": lambda page: refused(page, "#second", "1, 2, warm"),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size["width"]))
def test_axe(opened, scheme, size):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for name, view in VIEWS.items():
        page = opened(viewport=size, color_scheme=scheme, bypass_csp=True)
        view(page)
        until(page, "!waiting && document.documentElement.dataset.done == turn")
        found = axe.Axe().run(page).response
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]] == [], name
        # What it cannot decide is the contrast of what is drawn: test_contrast.
        assert {one["id"] for one in found["incomplete"]} <= {"color-contrast"}, name
        page.close()


def luminance(color):
    digits = color.strip().removeprefix("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    parts = np.array([int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(opened, scheme):
    """Text has 4.5 to 1 on what it stands on, lines and bars 3 to 1."""
    page = opened(color_scheme=scheme)
    color = lambda name: page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}')")  # noqa: E731
    for name, ground in itertools.product(
        ["ink", "soft", "bar", "edge", "c1", "c2", "c3", "c4", "c5"], ["page", "card", "track"]
    ):
        one, other = sorted((luminance(color(name)), luminance(color(ground))), reverse=True)
        assert (one + 0.05) / (other + 0.05) >= (4.5 if name in ("ink", "soft") else 2.99), (name, ground)


def focus(page):
    """Which control has the focus, and what is wrong with how that is seen."""
    return page.evaluate(
        f"""() => {{
          const one = document.activeElement, place = {CONTROLS}.indexOf(one), style = getComputedStyle(one);
          if (place < 0) return [place, ""];
          const box = one.getBoundingClientRect(), bar = document.querySelector(".controls");
          const under = !bar.contains(one) && box.top < bar.getBoundingClientRect().bottom;
          const seen = one.matches(":focus-visible") && style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2;
          return [place, !seen ? "no outline" : under ? "under the controls" : box.bottom > innerHeight || box.top < 0 ?
            "not in view" : ""];
        }}"""
    )


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size["width"]))
def test_tab_goes_everywhere_and_is_seen(opened, size):
    page = opened(viewport=size)
    count = page.evaluate(f"{CONTROLS}.length")
    assert count > 20
    for key, places in (("Tab", range(count)), ("Shift+Tab", reversed(range(count - 1)))):
        for place in places:
            page.keyboard.press(key)
            assert focus(page) == [place, ""], page.evaluate("document.activeElement.outerHTML")


def test_every_control_by_keys(opened):
    page = opened()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    def changed(place, *keys, of=state):
        """Presses the keys at the control, which is reached by Tab alone, and tells whether that changes what is shown."""
        page.evaluate("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
        for _ in range(100):
            if page.evaluate("(place) => document.activeElement.matches(place)", place):
                break
            page.keyboard.press("Tab")
        else:
            raise AssertionError(f"Tab does not lead to {place}")
        before = of(page)
        for key in keys:
            page.keyboard.press(key)
        settled(page)
        after = of(page)
        return not (
            np.array_equal(before["x"], after["x"]) and before["target"] == after["target"]
            if isinstance(before, dict)
            else before == after
        )

    text = lambda place: lambda page: page.text_content(place)  # noqa: E731
    for keys in (["ArrowRight"], ["ArrowLeft"], ["PageUp"], ["Home"], ["End"], ["PageDown"]):
        assert changed("#entropy", *keys), keys
    names = page.evaluate("[...document.querySelectorAll('#sliders input')].map((one) => one.ariaLabel)")
    assert len(names) == 8
    for name in names:  # bars that are dragged
        assert changed(f'[aria-label="{name}"]', "ArrowRight", "ArrowUp"), name
        assert changed(f'[aria-label="{name}"]', "PageDown"), name
    for name in ("softmax", "sparsemax", "entmax", "perturb_max", "top_k_softmax", "top_p_softmax", "min_p_softmax"):
        move(page, "#entropy", 500)
        assert changed(f'[aria-label="Parameter of {name}"]', "PageDown"), name
    assert changed("#alpha", "ArrowRight", of=text("[data-map=entmax] p"))
    assert changed("#unit", "ArrowDown", of=text("#value"))
    assert changed("#step", "Enter", of=text("#drawn_one")) and changed("#step", " ", of=text("#drawn_one"))
    assert changed("#seed", "ArrowUp", of=text("#drawn_one"))
    assert changed("#again", " ", of=text("#drawn_one"))
    assert changed("#second", "End", "1", of=text("#between"))
    assert changed("#language", "ArrowDown", of=text("#code"))
    assert changed("#code_map", "ArrowDown", of=text("#code"))
    assert changed("#copy", "Enter", of=text("#copied"))
    assert page.evaluate("navigator.clipboard.readText()") == page.text_content("#code")
    assert changed("#scores", "Control+a", "7")
    assert changed("#example", "Home")
    assert changed("#example", "ArrowDown")


def test_the_entropy_is_announced_at_rest(opened):
    """Politely, and not in every frame while a slider moves."""
    page = opened()
    assert page.get_attribute("#told", "role") == "status"  # polite, as a whole
    assert page.evaluate("document.querySelectorAll('[aria-live=assertive]').length") == 0
    page.evaluate(
        """() => {
          window.said = [];
          const list = {childList: true, characterData: true, subtree: true};
          new MutationObserver(() => said.push(at("told").textContent)).observe(at("told"), list);
          new MutationObserver(() => said.push("problem")).observe(at("problem"), list);
        }"""
    )
    entropies = page.evaluate(
        """() => new Promise((done) => {
          const found = [];
          const step = () => {
            found.push(state.target);
            if (found.length > 40) return done([found, said.slice()]);
            at("entropy").value = 500 + 5 * found.length;
            at("entropy").dispatchEvent(new Event("input"));
            requestAnimationFrame(step);
          };
          step();
        })"""
    )
    assert len(set(entropies[0])) > 30
    assert entropies[1] == []
    settled(page)
    assert page.evaluate("said") == [f"11 maps, entropy {state(page)['target']:.3f} nats"]
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    settled(page)
    assert page.evaluate("said.at(-1)") == f"11 maps, entropy {state(page)['target']:.3f} nats"
    assert page.get_attribute("#entropy", "aria-valuetext") == f"{state(page)['target']:.3f} nats"
    # That there is no row is urgent.
    assert page.get_attribute("#problem", "role") == "alert"
    refused(page, "#scores", "a warm")
    assert page.get_attribute("#scores", "aria-invalid") == "true"


def test_what_is_painted_is_read(opened):
    """Each card has its bars as a list, and the plan what it moves."""
    page = opened(state="#h=0.8&x=a+1%0Ab+2.5%0Ac+-inf&q=0,1,2")
    for name, one in state(page)["maps"].items():
        lines = page.locator(f"[data-map={name}] li").all_text_contents()
        order = np.argsort(-state(page)["x"], kind="stable")
        assert [line.split(": ")[0] for line in lines] == [["a", "b", "c"][i] for i in order], name
        np.testing.assert_allclose([float(line.split(": ")[1]) for line in lines], np.array(one["p"])[order], atol=5e-5)
    p, q = isentropic.softmax([1, 2.5, -np.inf]), isentropic.softmax([0.0, 1, 2])
    lines = [line.split() for line in page.locator("#plan li").all_text_contents()]
    for k, name in enumerate("abc"):
        assert sum(float(line[0]) for line in lines if line[2] == name) == pytest.approx(p[k], rel=1e-3)
        assert sum(float(line[0]) for line in lines if line[4] == name) == pytest.approx(q[k], rel=1e-3)
