"""Frames of the explorer in headless Chromium while a slider moves: python bench/explorer.py [N...]

Reads build/wasm/explorer.html. For each length of the row, and the sliders of the entropy, of softmax's temperature and of the
first score: milliseconds from one frame to the next, of the script by the page's
own clock, and of the processor by Chromium's trace, the page's thread alone: all of it, and what layout, style and paint are of
that. Medians, and in brackets the 90th of a hundred. It also tells how many maps a frame brings up to date: those that cost too
much take turns.
"""

import json
import pathlib
import shutil
import statistics
import sys

from playwright.sync_api import sync_playwright

PAGE = pathlib.Path(__file__).parents[1] / "build/wasm/explorer.html"
SLIDERS = {  # and how far they move to each side, as a share of all
    "entropy": ("#entropy", 0.4),
    "temperature": ("[data-map=softmax] input", 0.1),
    "a score": ("#sliders input", 0.4),
}
MOVE = """([place, share, count]) => new Promise((done) => {
  const slider = document.querySelector(place), low = Number(slider.min), high = Number(slider.max);
  const frames = [], scripts = [], fresh = [];
  let last, i = 0;
  const step = (now) => {
    if (last !== undefined) {
      frames.push(now - last);
      scripts.push(Number(document.documentElement.dataset.time));
      fresh.push(maps.filter((name) => cards[name].turn === turn).length);
    }
    last = now;
    if (i === count) return done({frames, scripts, fresh});
    slider.value = (low + high) / 2 + share * (high - low) * Math.sin(++i / 15);
    performance.mark("frame");
    slider.dispatchEvent(new Event("input"));
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""


def processor(trace, count):
    """Milliseconds per frame on the page's thread, by kind."""
    events = json.loads(trace)["traceEvents"]
    main = {(one["pid"], one["tid"]) for one in events if one["name"] == "frame" or one["name"] == "TimeStamp"}
    spent = {}
    for one in events:
        if (one["pid"], one["tid"]) in main and one.get("ph") == "X":
            spent[one["name"]] = spent.get(one["name"], 0) + one.get("tdur", 0) / 1000 / count
    drawing = sum(spent.get(name, 0) for name in ("Layout", "UpdateLayoutTree", "PrePaint", "Paint", "Layerize", "Commit"))
    return spent.get("RunTask", spent.get("ThreadControllerImpl::RunTask", 0)), drawing


def main():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for n in sys.argv[1:] or ["8", "1000", "128000"]:
            page = browser.new_page(viewport={"width": 1600, "height": 900})
            page.goto(PAGE.as_uri())
            page.wait_for_selector("[data-done]")
            if n != "8":
                page.select_option("#example", label=f"{n} scores")
            page.wait_for_timeout(3000 if n != "128000" else 9000)
            for name, moved in SLIDERS.items():
                page.evaluate(MOVE, [*moved, 20])
                page.wait_for_timeout(1000)
                count = 100
                browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline", "blink.user_timing"])
                found = page.evaluate(MOVE, [*moved, count])
                total, drawing = processor(browser.stop_tracing(), count)
                second = 1000 * count / sum(found["frames"])
                told = {key: (statistics.median(one), sorted(one)[int(0.9 * len(one))]) for key, one in found.items()}
                print(
                    f"{n}, {name}: frame {told['frames'][0]:.1f} ({told['frames'][1]:.1f}), script {told['scripts'][0]:.1f} "
                    f"({told['scripts'][1]:.1f}), processor {total:.1f}, of these layout, style and paint {drawing:.1f}; "
                    f"{told['fresh'][0]:.0f} of {page.evaluate('maps.length')} maps; {second:.1f} a second",
                    flush=True,
                )
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
