"""Runs bench_maps and prints its results as ratios against the targets: python bench/report.py build/bench/bench/bench_maps

All times of a ratio come from one run, repetitions interleaved at random, medians.
"""

import json
import re
import subprocess
import sys

# operation, scores, shape, against, must, aim; "against" is multiplied by the factor.
TARGETS = [
    ("softmax", "normal", "1024x64", "onednn", 1, 0.60, None),
    ("softmax", "normal", "64x1024", "onednn", 1, 0.60, None),
    ("softmax", "normal", "2x32768", "onednn", 1, 0.60, None),
    ("softmax", "normal", "1x131072", "onednn", 1, 0.60, None),
    ("softmax", "normal", "256x131072", "memcpy", 1, 1.4, 1.15),
    ("softmax_vjp", "normal", "256x131072", "memcpy", 1.5, 1.2, 1.1),  # three streams to memcpy's two
    ("sparsemax", "normal", "1024x64", "softmax", 1, 2.5, 1.2),
    ("sparsemax", "normal", "64x1024", "softmax", 1, 1.0, 0.6),
    ("sparsemax", "normal", "2x32768", "softmax", 1, 1.0, 0.6),
    ("sparsemax", "normal", "1x131072", "softmax", 1, 1.0, 0.6),
    ("sparsemax_vjp", "normal", "256x131072", "memcpy", 1.5, None, None),
    ("entmax", "normal", "1024x64", "softmax", 1, 2.5, 1.2),
    ("entmax", "normal", "64x1024", "softmax", 1, 1.0, 0.6),
    ("entmax", "normal", "2x32768", "softmax", 1, 1.0, 0.6),
    ("entmax", "normal", "1x131072", "softmax", 1, 1.0, 0.6),
    ("entmax_1.7", "normal", "64x1024", "softmax", 1, 1.5, 1.0),
    ("entmax_1.7", "normal", "1x131072", "softmax", 1, 1.5, 1.0),
    ("entmax_1.2", "language", "1x131072", "softmax", 1, 1.5, 1.0),
    ("entmax_1.05", "flat", "64x1024", "softmax", 1, 12, 5),
    ("entmax_1.05", "flat", "1x131072", "softmax", 1, 12, 5),
    ("entmax_0.8", "normal", "1x131072", "softmax", 1, 12, 5),
    ("top_50_softmax", "normal", "1x131072", "softmax", 1, 0.8, 0.3),
    ("top_50_softmax", "language", "1x131072", "softmax", 1, 0.8, 0.3),
    ("top_p_softmax", "normal", "1x131072", "softmax", 1, 2.0, 1.2),
    ("top_p_softmax", "language", "1x131072", "softmax", 1, 2.0, 1.2),
    ("top_p_softmax", "normal", "64x1024", "softmax", 1, None, None),
    ("top_p_softmax", "normal", "1024x64", "softmax", 1, None, None),
    *(
        (f"entropy_normalize_{target}", scores, shape, "softmax", 1, must, aim)
        for shape, must, aim in (("1024x64", 8, 4), ("64x1024", 5, 3), ("1x131072", 4, 2))
        for scores in ("normal", "language")
        for target in ("0.3", "half", "near", "above")
    ),
    ("softmax_2_threads", "normal", "256x1024", "softmax_1_threads", 1, 0.56, 0.51),  # 1.8 and 1.95 times as fast
]


def medians(program, names=None, target=None):
    """The median time of each benchmark of a program, or of those with these names, by a SIMD target or by the best."""
    command = [
        program,
        *([target] if target else []),
        "--benchmark_repetitions=7",
        "--benchmark_min_time=0.1",
        "--benchmark_enable_random_interleaving=true",
    ]
    if names:
        command.append("--benchmark_filter=^(" + "|".join(map(re.escape, sorted(names))) + ")$")
    out = subprocess.run([*command, "--benchmark_format=json"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {b["run_name"]: b["real_time"] for b in json.loads(out)["benchmarks"] if b.get("aggregate_name") == "median"}


def main(program):
    times = medians(program)

    print("| operation | scores, rows x n | against | ratio | must | aim |\n|---|---|---|---|---|---|")
    for operation, scores, shape, against, factor, must, aim in TARGETS:
        ratio = times[f"{operation}/{scores}/{shape}"] / (factor * times[f"{against}/{scores}/{shape}"])
        said = f"{factor} x {against}" if factor != 1 else against
        cells = [operation, f"{scores}, {shape}", said, f"{ratio:.2f}", must or "", aim or ""]
        print("| " + " | ".join(map(str, cells)) + " |")

    shapes = list(dict.fromkeys(name.split("/", 1)[1] for name in times))
    print("\nns per element:\n\n| operation | " + " | ".join(shapes) + " |\n|" + "---|" * (len(shapes) + 1))
    for operation in dict.fromkeys(name.split("/")[0] for name in times):
        cells = []
        for shape in shapes:
            time = times.get(f"{operation}/{shape}")
            rows, cols = shape.split("/")[1].split("x")
            cells.append(f"{time / (int(rows) * int(cols)):.3f}" if time else "")
        print(f"| {operation} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1])
