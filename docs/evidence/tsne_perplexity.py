"""Conditional probabilities of t-SNE on scikit-learn's digits: ours beside scikit-learn's binary search.

python docs/evidence/tsne_perplexity.py   (needs scikit-learn; about ten seconds)
"""

import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.manifold import _utils

import isentropic

PERPLEXITY = 30.0


def entropies(p):
    return -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=1)


def gammas(p, distances):
    """log p is -gamma distance but for a constant: the slope between each row's nearest and its 30th neighbour."""
    near = np.argsort(distances, axis=1)[:, [1, 30]]
    log_p, d = (np.take_along_axis(a, near, axis=1) for a in (np.log(np.where(p > 0, p, 1)), distances))
    return (log_p[:, 0] - log_p[:, 1]) / (d[:, 1] - d[:, 0])


def timed(call):
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - start)
    return result, best


def main():
    isentropic.set_num_threads(1)
    x = load_digits().data
    distances = ((x[:, None, :] - x[None, :, :]) ** 2).sum(-1)  # integers: exact also in float32
    scores = -distances
    np.fill_diagonal(scores, -np.inf)  # a point is not its own neighbour
    d32, s32 = distances.astype(np.float32), scores.astype(np.float32)

    theirs, their_time = timed(lambda: _utils._binary_search_perplexity(d32, PERPLEXITY, 0))
    target = np.log(PERPLEXITY)
    print(f"{len(x)} points, perplexity {PERPLEXITY:g}, entropy {target:.6f}, one thread\n")
    print("| | largest error of the entropy | largest difference of p from scikit-learn's | of gamma, relative | ms |")
    print("|---|---|---|---|---|")
    print(f"| scikit-learn | {abs(entropies(theirs) - target).max():.1e} | | | {their_time * 1e3:.0f} |")
    exact = isentropic.entropy_normalize(scores, perplexity=PERPLEXITY)
    for s in (s32, scores):
        ours, our_time = timed(lambda s=s: isentropic.entropy_normalize(s, perplexity=PERPLEXITY))
        p = ours.astype(np.float64)
        error = abs(entropies(p) - target).max()
        gap = abs(p - theirs).max()
        gamma_gap = abs(gammas(p, distances) / gammas(theirs, distances) - 1).max()
        print(f"| isentropic, {s.dtype} | {error:.1e} | {gap:.1e} | {gamma_gap:.1e} | {our_time * 1e3:.1f} |")
        # Their search ends within 1e-5 of the entropy; a row's gamma is then off by at most 1e-5 / variance of log p.
        log_p = np.log(np.where(exact > 0, exact, 1))
        variance = (exact * log_p**2).sum(1) - (exact * log_p).sum(1) ** 2
        assert error <= (1e-6 if s.dtype == np.float32 else 1e-12) * target
        assert (abs(gammas(p, distances) / gammas(theirs, distances) - 1) <= 1.1e-5 / variance + 1e-5).all()
    # Far from the origin of the distances, where exp(-gamma d) underflows: a common offset changes nothing for us.
    moved, far = s32 - np.float32(2**20), d32 + np.float32(2**20)
    p = isentropic.entropy_normalize(moved, perplexity=PERPLEXITY).astype(np.float64)
    q = _utils._binary_search_perplexity(far, PERPLEXITY, 0)
    off = abs(entropies(q) - target)
    error, missed = abs(entropies(p) - target).max(), (~(off < 0.01)).sum()
    print(f"\nAll distances 2^20 larger: isentropic is off by {error:.1e},", end=" ")
    print(f"scikit-learn by more than 0.01 in {missed} of {len(x)} rows (at most {np.nanmax(off):.2g}).")


if __name__ == "__main__":
    main()
