"""Draws docs/figures/two_scores.svg: what the first of two scores (t, 0) gets, by every family of maps."""

import numpy as np
from _style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, plt, save

import isentropic

t = np.linspace(-4, 4, 1601)
scores = np.stack([t, np.zeros_like(t)], axis=-1)


def first(function, breaks=False, **parameters):
    """p_1 along the line; a jump is left open."""
    p = function(scores, **parameters)[:, 0]
    if breaks:
        p[1:][np.abs(np.diff(p)) > 0.05] = np.nan
    return p


figure, (smooth, family, cuts) = plt.subplots(1, 3, figsize=(10.5, 3.4), sharey=True)

smooth.plot(t, first(isentropic.softmax), color=BLACK, label="softmax")
smooth.plot(t, first(isentropic.sigsoftmax), color=BLUE, label="sigsoftmax")
smooth.plot(t, first(isentropic.taylor_softmax, order=2), color=RED, label="taylor_softmax, order 2")
smooth.plot(t, first(isentropic.taylor_softmax, order=4), color=ORANGE, label="taylor_softmax, order 4")
smooth.set_title("another function in place of exp")
smooth.set_ylabel(r"$p_1$ of the scores $(t, 0)$")

for alpha, color, name in [
    (0.5, PINK, ""),
    (1, BLACK, " (softmax)"),
    (1.5, GREEN, ""),
    (2, BLUE, " (sparsemax)"),
    (4, ORANGE, ""),
]:
    family.plot(t, first(isentropic.entmax, alpha=float(alpha)), color=color, label=f"{alpha}{name}")
family.set_title("entmax, by alpha")

cuts.plot(t, first(isentropic.softmax), color=GREY, linewidth=1, label="softmax")
cuts.plot(t, first(isentropic.top_k_softmax, breaks=True, k=1), color=SKY, linewidth=4.5, label="top_k_softmax, k = 1")
cuts.plot(t, first(isentropic.min_p_softmax, breaks=True, p=0.1), color=RED, linewidth=3, label="min_p_softmax, p = 0.1")
cuts.plot(t, first(isentropic.top_p_softmax, breaks=True, p=0.8), color=BLACK, linewidth=1.3, label="top_p_softmax, p = 0.8")
cuts.set_title("softmax, cut")

for axis in (smooth, family, cuts):
    axis.set_xlabel("$t$")
    axis.set_xlim(-4, 4)
    axis.set_ylim(-0.03, 1.05)
    axis.set_yticks([0, 0.5, 1])
    axis.grid(color="0.92", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.legend(loc="lower right", bbox_to_anchor=(1, 0.03), handlelength=1.3, labelspacing=0.25, borderaxespad=0)
figure.tight_layout()
save(figure, "two_scores")
