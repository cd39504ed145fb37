"""What each variant of entmax's kernels is worth: python bench/variants.py BUILD [NAME...]

Each variant is switched off in the source, src/maps/entmax.cc is compiled again in BUILD (a static build with Python's module),
and calls are timed with and without it, in turn. The gain is the time without over the time with. A variant that gains less
than 1.3 on every shape that people have goes. The source is as before afterwards. Half a minute a variant.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENTMAX, POWER = "src/maps/entmax-inl.h", "src/maps/power_entmax-inl.h"
EDGE, BENT = "src/maps/edge_entmax-inl.h", "src/maps/bent_entmax-inl.h"
TAKES = "(op.alpha >= kLeastAlpha<T> || op.alpha <= kMostHeavyAlpha)"
TAKES_VJP = "return b == 0.5 || b == 1 || (sizeof(T) == 4 && b != 0);"
SHORT, MIDDLE, LONG = (8, 32, 64), (256, 1024, 4096), (16384, 131072)

# name: what it is, alphas, lengths, gradient, and what switches it off: file, original, changed
VARIANTS = {
    "short squares": ((1.5,), SHORT, False,
                      (ENTMAX, "if (op.alpha == 1.5) return ShortBy", "if (op.alpha == 1.51) return ShortBy"),
                      (ENTMAX, "op.alpha != 1 && op.alpha != 1.5 && op.alpha != 2", "op.alpha != 1 && op.alpha != 2")),
    "short powers": ((1.2, 1.3, 1.7), SHORT, False,
                     (ENTMAX, TAKES, TAKES.replace("op.alpha >= kLeastAlpha<T>", "op.alpha > 2"))),
    "short inverse powers": ((0.5, 0.8), SHORT, False, (ENTMAX, TAKES, "(op.alpha >= kLeastAlpha<T>)")),
    "short edge": ((2.5, 4.0), SHORT, False, (ENTMAX, TAKES, f"(op.alpha < 2 && {TAKES[1:]}")),
    "squares": ((1.5,), MIDDLE + LONG, False, (ENTMAX, "} else if (b == 0.5) {", "} else if (b == 0.51) {")),
    "several rows": ((1.3, 1.5, 1.7, 3.0), MIDDLE, False,
                     (ENTMAX, "n >= 256 && n <= kLongestOfSeveral ? kMost : 1", "n > ~size_t{0} - 1 ? kMost : 1")),
    "few survivors": ((1.3, 1.5, 1.7), MIDDLE + LONG, False,
                      (POWER, "if (MostKept(filtered, rows) <= 32) {", "if (MostKept(filtered, rows) <= 0) {"),
                      (POWER, "if (row.kept > 64) return", "if (row.kept > 0) return")),
    "start by whole powers": ((1.3, 1.7, 0.5), MIDDLE + LONG, False,
                              (POWER, "if constexpr (!kIsSquare) start =", "if constexpr (false) start =")),
    "inverse powers": ((0.5, 0.8), MIDDLE + LONG, False,
                       (ENTMAX, "if (op.alpha <= kMostHeavyAlpha) return MapHeavyRow", "if (false) return MapHeavyRow")),
    "near softmax, survivors alone": ((1.1, 1.19), MIDDLE + LONG, False, (BENT, "if (b >= 0.0625) {", "if (false) {")),
    "near softmax, start by a sample": ((1.02, 1.1), MIDDLE + LONG, False,
                                        (BENT, "} else if (n >= 512) {", "} else if (false) {")),
    "near softmax, start by moments": ((0.9, 0.95), MIDDLE + LONG, False,
                                       (BENT, "  if (b < 0) {\n    start", "  if (false) {\n    start")),
    "edge by sorting": ((2.5, 4.0), MIDDLE, False,
                        (EDGE, "if (MostKept(filtered, rows) <= 32) {", "if (MostKept(filtered, rows) <= 0) {"),
                        (EDGE, "if (filtered[r].kept <= 32) {", "if (filtered[r].kept <= 0) {")),
    "edge bracket": ((2.5, 4.0), MIDDLE + LONG, False, (EDGE, "if (kept > 24) {", "if (false) {")),
    "edge bound by roots": ((3.0, 4.0), MIDDLE + LONG, False, (EDGE, "if (b < 2 || n < 256) return least;", "return least;")),
    "gradient, only the support": ((1.3, 1.7, 3.0), MIDDLE + LONG, True,
                                   (ENTMAX, "if (2 * zeros < static_cast<double>(n)) return {p, g, n};", "return {p, g, n};")),
    "gradient, short rows, below 2": ((1.3, 1.7), SHORT, True, (ENTMAX, TAKES_VJP, TAKES_VJP.replace("b != 0)", "b > 1)"))),
    "gradient, short rows, above 2": ((2.5, 3.0), SHORT, True, (ENTMAX, TAKES_VJP, TAKES_VJP.replace("b != 0)", "b < 1)"))),
}  # fmt: skip
SPREADS = {"flat": 0.3, "normal": 1.0, "wide": 4.0}


def timed():
    """In a process of its own, with the module on PYTHONPATH: the least seconds of each call, as JSON."""
    import numpy as np
    from timing import least_times

    import isentropic

    isentropic.set_num_threads(1)
    alphas, lengths, gradient = json.loads(sys.argv[2])
    calls = {}
    for dtype in ("float32", "float64"):
        for n in lengths:
            for name, spread in SPREADS.items():
                rng = np.random.default_rng(n)
                x = (rng.standard_normal((max(1, 32768 // n), n)) * spread).astype(dtype)
                g = rng.standard_normal(x.shape).astype(dtype)
                for alpha in alphas:
                    p = isentropic.entmax(x, alpha=alpha)
                    call = (
                        (lambda x=x, p=p, g=g, alpha=alpha: isentropic.entmax_vjp(x, p, g, alpha=alpha))
                        if gradient
                        else (lambda x=x, p=p, alpha=alpha: isentropic.entmax(x, alpha=alpha, out=p))
                    )
                    calls[f"{dtype} {n} {name} alpha {alpha}"] = call
    print(json.dumps(least_times(calls, 3, seconds=0.004)))


def measured(package, case):
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package), str(ROOT / "bench")])}
    done = subprocess.run(
        [sys.executable, __file__, "--timed", json.dumps(case)], env=where, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def built(build):
    subprocess.run(["ninja", "-C", build, "_core"], check=True, capture_output=True)


def main(build, names):
    with tempfile.TemporaryDirectory() as folder:
        built(build)
        whole = Path(folder) / "whole"
        shutil.copytree(build / "python", whole)
        print("| variant | gain, float32: median (least to most) | float64 | shapes above 1.3 |\n|---|---|---|---|")
        for name in names or VARIANTS:
            *case, changes = *VARIANTS[name][:3], VARIANTS[name][3:]
            before = {ROOT / file: (ROOT / file).read_text() for file, _, _ in changes}
            try:
                for file, original, changed in changes:
                    text = (ROOT / file).read_text()
                    assert text.count(original) == 1, (name, text.count(original))
                    (ROOT / file).write_text(text.replace(original, changed))
                built(build)
                best = [{}, {}]
                for _ in range(2):
                    for times, package in zip(best, (whole, build / "python"), strict=True):
                        for call, one in measured(package, case).items():
                            times[call] = min(one, times.get(call, 1e9))
            finally:
                for file, text in before.items():
                    file.write_text(text)
            gains = {call: best[1][call] / best[0][call] for call in best[0]}
            columns = []
            for dtype in ("float32", "float64"):
                of = sorted(gain for call, gain in gains.items() if call.startswith(dtype))
                columns.append(f"{of[len(of) // 2]:.2f} ({of[0]:.2f} to {of[-1]:.2f})")
            worth = sum(gain >= 1.3 for gain in gains.values())
            print(f"| {name} | {columns[0]} | {columns[1]} | {worth} of {len(gains)} |", flush=True)
    built(build)


if __name__ == "__main__":
    timed() if sys.argv[1] == "--timed" else main(Path(sys.argv[1]).resolve(), sys.argv[2:])
