"""Times the estimators on bootstrap rows, and scores of features beside scikit-learn's, one thread each: python
bench/python_estimators.py

Needs scikit-learn.
"""

import numpy as np
from sklearn.feature_selection import mutual_info_classif
from timing import least_times

import isentropic
from isentropic._numpy._labels import ESTIMATORS


def main():
    isentropic.set_num_threads(1)
    rng = np.random.default_rng(0)
    counts = rng.multinomial(10000, rng.dirichlet(np.ones(1000)), 20000).astype(float)
    calls = {one: lambda one=one: isentropic.entropy_of_counts(counts, estimator=one) for one in ESTIMATORS}
    print("| entropy_of_counts, 20,000 x 1,000 | s |\n|---|---|")
    for name, seconds in least_times(calls).items():
        print(f"| {name} | {seconds:.2f} |")
    X, y = rng.integers(0, 20, (100_000, 64)), rng.integers(0, 5, 100_000)
    print("\n| 64 features of 10^5 rows | scikit-learn s | ours s | ratio |\n|---|---|---|---|")
    for kind in (np.int64, np.float64):
        columns = X.astype(kind)
        ours, theirs = (
            lambda columns=columns: isentropic.mutual_information_scores(columns, y),
            lambda columns=columns: mutual_info_classif(columns, y, discrete_features=True),
        )
        np.testing.assert_allclose(ours(), theirs(), atol=1e-12)
        times = least_times({"ours": ours, "theirs": theirs})
        cells = [
            np.dtype(kind).name,
            f"{times['theirs']:.2f}",
            f"{times['ours']:.2f}",
            f"{times['ours'] / times['theirs']:.2f}",
        ]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
