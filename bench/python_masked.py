"""Times rows in which every other score is that of a masked class, beside the same rows without a mask: one thread, medians of
interleaved repetitions. What a mask costs should not depend on its value.

python bench/python_masked.py
"""

import numpy as np
from timing import median_times

import isentropic

ROWS, N = 8, 32768
MASKS = {"none": None, "-1e9": -1e9, "lowest float32": np.finfo(np.float32).min, "-inf": -np.inf}
OPERATIONS = {
    "softmax": isentropic.softmax,
    "entmax 1.3": lambda x: isentropic.entmax(x, alpha=1.3),
    "top_p_softmax 0.9": lambda x: isentropic.top_p_softmax(x, p=0.9),
    "entropy_normalize": lambda x: isentropic.entropy_normalize(x, entropy=3),
    "entropy_clip": lambda x: isentropic.entropy_clip(x, min_entropy=1, max_entropy=2),
    "gamma_for_entropy": lambda x: isentropic.gamma_for_entropy(x, entropy=3),
    "perplexity": lambda x: isentropic.perplexity(x, input="scores"),
    "kl_divergence": lambda x: isentropic.kl_divergence(x, x[::-1], input="scores"),
    "js_divergence": lambda x: isentropic.js_divergence(x, x[::-1], input="scores"),
    "renyi_entropy": lambda x: isentropic.renyi_entropy(x, alpha=2.5, input="scores"),
    "distillation_loss": lambda x: isentropic.distillation_loss(x, x[::-1], return_grad=True),
    "jsd_loss": lambda x: isentropic.jsd_loss(x, x[::-1], return_grad=True),
}


def main():
    isentropic.set_num_threads(1)
    print(
        f"{ROWS} rows of {N} scores, {isentropic.simd_target()}\n\n| operation | type | ns a score | "
        + " | ".join(MASKS)
        + " |"
    )
    print("|" + "---|" * (3 + len(MASKS)))
    for dtype in (np.float32, np.float64):
        scores = np.random.default_rng(0).normal(size=(ROWS, N)).astype(dtype)
        rows = {}
        for name, mask in MASKS.items():
            rows[name] = scores.copy()
            if mask is not None:
                rows[name][:, ::2] = mask
        for operation, call in OPERATIONS.items():
            times = median_times({name: lambda call=call, x=x: call(x) for name, x in rows.items()}, 5)
            ratios = " | ".join(f"{times[name] / times['none']:.2f}" for name in MASKS)
            print(f"| {operation} | {np.dtype(dtype)} | {times['none'] / scores.size * 1e9:.2f} | {ratios} |")


if __name__ == "__main__":
    main()
