"""Draws docs/figures/entropy_invariant.svg and prints the table of docs/evidence/entropy_invariant.md: the entropy of attention
against the number of keys, at two scales, exactly and by its mean-field estimate."""

import numpy as np
from _style import BLUE, ORANGE, plt, save

import isentropic

D, QUERIES, LENGTHS = 64, 64, 2 ** np.arange(4, 18)
SCALES = {"1/sqrt(d)": lambda n: D**-0.5, "entropy-invariant": lambda n: isentropic.entropy_invariant_scale(int(n), D)}
COLORS = dict(zip(SCALES, (ORANGE, BLUE), strict=True))


def scores(matching):
    """q.k of random vectors, QUERIES x n for the most keys; in the second kind one key of each query is the query itself."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((QUERIES, D))
    s = q @ rng.standard_normal((D, LENGTHS[-1]))
    if matching:
        s[:, 0] = (q * q).sum(axis=1)
    return s


def attention(s, scale):
    """For each row: entropy, its mean-field estimate, the most by which that may fall short, and the largest probability."""
    p = isentropic.softmax(s, temperature=1 / scale)
    exact = -(p * np.log(np.maximum(p, 1e-300))).sum(axis=1)
    log_n, top, span = np.log(s.shape[1]), scale * (s.max(axis=1) - s.mean(axis=1)), scale * np.ptp(s, axis=1)
    return exact, log_n - top, span**2 / 8 + np.minimum(top, log_n), p.max(axis=1)


figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
for matching, axis in enumerate(axes):
    s = scores(matching)
    for name, scale_of in SCALES.items():
        exact, estimate = np.empty((2, len(LENGTHS)))
        for i, n in enumerate(LENGTHS):
            h, estimated, most, largest = attention(s[:, :n], scale_of(n))
            assert (h - estimated > -1e-12).all() and (h - estimated < most).all()
            exact[i], estimate[i] = h.mean(), estimated.mean()
            if n not in (16, 128, 512, 8192, 131072):
                continue
            keys = "one matches" if matching else "random"
            print(f"| {keys} | {name} | {n} | {h.mean():.2f} | {estimated.mean():.2f} | {largest.mean():.3f} |")
        axis.plot(LENGTHS, exact, color=COLORS[name], label=name)
        axis.plot(LENGTHS, estimate, color=COLORS[name], linestyle="--", linewidth=1.1)
    axis.plot(LENGTHS, np.log(LENGTHS), color="0.6", linewidth=0.9, linestyle=":", label=r"$\log n$")
    axis.set_xscale("log", base=2)
    axis.set_xlabel("$n$, keys")
    axis.set_title("keys are random vectors" if not matching else "one of the keys is the query itself")
axes[0].set_ylabel("entropy, nats (dashed: mean field)")
axes[0].set_ylim(-5, 12.5)
axes[0].legend(loc="upper left")
figure.tight_layout()
save(figure, "entropy_invariant")
