"""Draws docs/figures/taylor.svg: exp's Taylor polynomials of even degree, and where they take the order of scores away."""

import math

import numpy as np
from _style import BLACK, BLUE, GREEN, RED, plt, save

import isentropic

COLORS = {2: RED, 4: GREEN, 6: BLUE}


def taylor(x, degree):
    return sum(x**m / math.factorial(m) for m in range(degree + 1))


figure, (terms, masses) = plt.subplots(1, 2, figsize=(9, 3.4))

x = np.linspace(-5, 2, 701)
terms.plot(x, np.exp(x), color=BLACK, label="exp")
for degree, color in COLORS.items():
    terms.plot(x, taylor(x, degree), color=color, label=f"$f_{degree}$")
    falling = x[taylor(x, degree - 1) < 0]
    terms.plot(falling[-1], taylor(falling[-1], degree), "o", color=color, markersize=5)
terms.set_xlim(-5, 2)
terms.set_ylim(0, 8)
terms.set_xlabel("$x$")
terms.set_title("the terms, with their minima")
terms.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.56, 1))

t = np.linspace(-12, 4, 1601)
scores = np.stack([t, np.zeros_like(t)], axis=-1)
masses.plot(t, isentropic.softmax(scores)[:, 0], color=BLACK, label="softmax")
for degree, color in COLORS.items():
    masses.plot(t, isentropic.taylor_softmax(scores, order=degree)[:, 0], color=color, label=f"order {degree}")
masses.set_xlim(-12, 4)
masses.set_ylim(0, 1.02)
masses.set_xlabel("$t$")
masses.set_title("$p_1$ of the scores $(t, 0)$")

for axis in (terms, masses):
    axis.axvspan(axis.get_xlim()[0], -1, color=RED, alpha=0.09, linewidth=0)
    axis.axvline(-1, color=RED, linewidth=0.8, linestyle=":")
masses.text(-11.7, 0.3, "order 2: a lower score\ngets more mass", color=RED, fontsize=8.5)
figure.tight_layout()
save(figure, "taylor")
