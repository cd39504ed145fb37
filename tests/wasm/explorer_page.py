"""The explorer's page as the tests use it."""

import os
import pathlib

import numpy as np
import pytest

import isentropic

ROOT = pathlib.Path(__file__).parents[2]
CLI = os.path.abspath(os.environ["ISENTROPIC_CLI"]) if "ISENTROPIC_CLI" in os.environ else "isentropic"
PAGE = ROOT / "build/wasm/explorer.html"


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
        p = getattr(isentropic, name)(found["x"], **one["parameters"])
        np.testing.assert_allclose(one["p"], p, rtol=1e-9, atol=1e-12, err_msg=name)
        assert one["entropy"] == pytest.approx(isentropic.entropy(p, normalize=True), abs=1e-9)
    return found
