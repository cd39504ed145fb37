"""Pages in headless Chromium. Needs build/wasm (scripts/wasm), playwright and Chromium."""

import itertools
import os
import pathlib
import shutil
import subprocess

import pytest
from explorer_page import CLI, PAGE, settled

from isentropic._descriptions import MAPS


def pytest_collection_modifyitems(config, items):
    """Leaves out what the library in WebAssembly leaves out, in tests that it shares with the package."""
    left = {name for name, one in MAPS.items() if "web" in one["not_in"]}

    def is_left_out(item):
        if item.path.parent != pathlib.Path(__file__).parent:
            return False
        given = item.callspec.params if hasattr(item, "callspec") else {}
        return given.get("operation", {}).get("name") in left or given.get("result", {}).get("map") in left

    config.hook.pytest_deselected(items=[item for item in items if is_left_out(item)])
    items[:] = itertools.filterfalse(is_left_out, items)


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visited(browser):
    """visited(address, **options): a page, which must have no problem and ask for nothing but itself."""
    contexts = []

    def visit(address, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.problems, page.asked = [], []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda said: page.problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        for page in context.pages:
            assert page.problems == []
            assert [url for url in page.asked[1:] if not url.startswith(("data:", "blob:"))] == []
        context.close()


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    """page.html, and rows.html with rows of a file."""
    folder = tmp_path_factory.mktemp("explorer")
    rows = "name,<img src=x onerror=hit=1>,</script><script>hit=1</script>,third,@WASM@\na,1,2,0.5,-inf\nb,0,0,0,1\n"
    (folder / "rows.csv").write_text(rows)
    for arguments in (["-o", "page.html"], ["rows.csv", "-o", "rows.html"]):
        subprocess.run(
            [CLI, "explore", *arguments], cwd=folder, env={**os.environ, "ISENTROPIC_EXPLORER": str(PAGE)}, check=True
        )
    return folder / "page.html"


@pytest.fixture
def opened(visited, file):
    def opened(name="page.html", state="", **options):
        page = visited(file.with_name(name).as_uri() + state, **options)
        settled(page)
        return page

    return opened
