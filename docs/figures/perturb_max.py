"""Draws docs/figures/perturb_max.svg: perturb_max of two scores (t, 0) under its noises, scaled to one variance."""

import numpy as np
from _style import BLACK, BLUE, GREEN, ORANGE, PINK, RED, plt, save

import isentropic

if not hasattr(isentropic, "perturb_max"):
    raise SystemExit("perturb_max.svg stays as it is: the installed package has no perturb_max")

# Each noise with its variance.
NOISES = {
    "gumbel": (np.pi**2 / 6, BLACK, "-"),
    "normal": (1.0, BLUE, "-"),
    "logistic": (np.pi**2 / 3, GREEN, "--"),
    "laplace": (2.0, ORANGE, "-"),
    "exponential": (1.0, PINK, "--"),
    "uniform": (1 / 12, RED, "-"),
}

t = np.linspace(-6, 6, 1201)
scores = np.stack([t, np.zeros_like(t)], axis=-1)
figure, (curves, tails) = plt.subplots(1, 2, figsize=(9, 3.4))
for noise, (variance, color, style) in NOISES.items():
    p = isentropic.perturb_max(scores, noise=noise, scale=float(np.sqrt(1 / variance)))[:, 0]
    label = "gumbel (softmax)" if noise == "gumbel" else noise
    curves.plot(t, p, color=color, linestyle=style, label=label)
    tails.plot(t, np.where(p > 0, p, np.nan), color=color, linestyle=style)
curves.set_xlim(-4, 4)
curves.set_title("$p_1$ of the scores $(t, 0)$, noises of variance 1")
curves.legend(loc="upper left", handlelength=1.6, labelspacing=0.25)
tails.set_yscale("log")
tails.set_xlim(-6, 0)
tails.set_ylim(1e-7, 1)
tails.set_title("the same, its lower tail")
for axis in (curves, tails):
    axis.set_xlabel("$t$")
    axis.grid(color="0.92", linewidth=0.8)
    axis.set_axisbelow(True)
figure.tight_layout()
save(figure, "perturb_max")
