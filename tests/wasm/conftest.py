"""Pages in headless Chromium. Needs build/wasm (scripts/wasm), playwright and Chromium."""

import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).parents[2]


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
