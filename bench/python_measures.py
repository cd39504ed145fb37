"""Times the measures beside SciPy, one thread each: python bench/python_measures.py

Needs SciPy. SciPy divides every row by its sum; ours checks the sum instead, and the last column has it divide as well.
"""

import numpy as np
import scipy.spatial.distance
import scipy.stats
from timing import least_times

import isentropic


def main():
    isentropic.set_num_threads(1)
    rng = np.random.default_rng(0)
    print("| measure | type | rows x n | SciPy ns | ours ns | ratio | normalized |\n|---|---|---|---|---|---|---|")
    for dtype in (np.float64, np.float32):
        for rows, n in ((1000, 1000), (100000, 10)):
            p, q = (rng.random((rows, n)) for _ in range(2))
            p, q = ((x / x.sum(axis=1, keepdims=True)).astype(dtype) for x in (p, q))
            calls = {
                "entropy": (isentropic.entropy, scipy.stats.entropy, (p,)),
                "kl_divergence": (isentropic.kl_divergence, scipy.stats.entropy, (p, q)),
                "js_distance": (isentropic.js_distance, scipy.spatial.distance.jensenshannon, (p, q)),
            }
            for name, (ours, theirs, arrays) in calls.items():
                np.testing.assert_allclose(ours(*arrays), theirs(*arrays, axis=1), rtol=1e-5)
                times = least_times(
                    {
                        "ours": lambda ours=ours, arrays=arrays: ours(*arrays),
                        "theirs": lambda theirs=theirs, arrays=arrays: theirs(*arrays, axis=1),
                        "normalized": lambda ours=ours, arrays=arrays: ours(*arrays, normalize=True),
                    }
                )
                each = {key: time / (rows * n) * 1e9 for key, time in times.items()}
                cells = [name, np.dtype(dtype).name, f"{rows} x {n}", f"{each['theirs']:.2f}", f"{each['ours']:.2f}"]
                cells += [f"{each['theirs'] / each['ours']:.1f}", f"{each['theirs'] / each['normalized']:.1f}"]
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
