"""Draws docs/figures/entropy_gamma.svg: the entropy of softmax(gamma x) against gamma, and what makes it nearly straight."""

import numpy as np
from _style import BLACK, BLUE, GREEN, GREY, RED, plt, save

import isentropic

rng = np.random.default_rng(0)
spike = 0.1 * rng.standard_normal(100)
spike[0] = 6
ROWS = {
    "100 normal scores": (rng.standard_normal(100), BLACK),
    "5 ties at the maximum": (np.minimum(np.sort(rng.standard_normal(100)), 1.5), BLUE),
    "one spike": (spike, RED),
    "10 normal scores": (rng.standard_normal(10), GREEN),
}


def entropy(x, gamma):
    log_p = isentropic.log_softmax(gamma[:, None] * x)
    return -(np.exp(log_p) * log_p).sum(axis=-1)


figure, (curves, upper, lower) = plt.subplots(1, 3, figsize=(11, 3.4))
gamma = np.logspace(-2, 2.3, 400)
for name, (x, color) in ROWS.items():
    ties = (x == x.max()).sum()
    label = f"{ties} ties at the maximum" if ties > 1 else name
    h = entropy(x, gamma)
    curves.semilogx(gamma, h, color=color, label=label)
    upper.loglog(gamma, np.log(len(x)) - h, color=color)
    above = h - np.log(ties)
    seen = (above > 1e-9) & (gamma < 40)
    lower.semilogy(gamma[seen], above[seen], color=color)
curves.set_title("$H$")
curves.legend(loc="upper right", bbox_to_anchor=(1.02, 1.02))
curves.set_ylim(0, 7)
upper.loglog(gamma, 0.5 * gamma**2, ":", color=GREY)
upper.text(0.3, 0.02, "slope 2", color=GREY)
upper.set_title(r"$\log n - H$")
upper.set_ylim(1e-5, 10)
lower.set_title("$H - \\log m$, $m$ ties")
lower.set_ylim(1e-9, 10)
lower.set_xlim(0, 40)
for axis in (curves, upper, lower):
    axis.set_xlabel("gamma")
figure.tight_layout()
save(figure, "entropy_gamma")
