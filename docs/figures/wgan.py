"""Draws docs/figures/wgan.svg from the numbers that docs/evidence/wgan.py keeps: a critic's estimates over its training."""

import numpy as np
from _numbers import kept
from _style import BLACK, BLUE, GREEN, GREY, ORANGE, RED, plt, save

figure, (bounds, raw) = plt.subplots(1, 2, figsize=(8.4, 3.3), sharex=True)
for (name, curve), color in zip(kept("wgan").items(), (RED, ORANGE, BLUE, GREEN), strict=True):
    step = curve["step"]
    for axis, what in ((bounds, "lower bound"), (raw, "mean difference")):
        draws = np.array(curve[what])
        axis.plot(step, draws.mean(0), color=color, label=name)
        axis.fill_between(step, draws.min(0), draws.max(0), color=color, alpha=0.2, linewidth=0)
for axis, title in ((bounds, "lower bound / exact $W_1$"), (raw, "mean difference / exact $W_1$")):
    axis.axhline(1, color=BLACK, linewidth=1, linestyle="--")
    axis.set_xlabel("steps of the critic")
    axis.set_title(title)
    axis.set_xlim(0, step[-1])
    axis.grid(color="0.92", linewidth=0.8)
bounds.set_ylim(0, 1.05)
raw.set_ylim(bottom=0)
bounds.legend(loc="lower right")
bounds.text(step[-1] * 0.02, 1.01, "exact", color=GREY, fontsize=8)
figure.tight_layout()
save(figure, "wgan")
