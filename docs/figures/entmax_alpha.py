"""Draws docs/figures/entmax_alpha.svg: entmax of one row as alpha goes through softmax (1) and sparsemax (2)."""

import numpy as np
from _style import BLACK, BLUE, GREEN, ORANGE, PINK, RED, plt, save

import isentropic

ROW = [1.6, 1.2, 0.8, 0.2, -0.5, -1.5]
COLORS = [BLACK, BLUE, GREEN, ORANGE, RED, PINK]

alphas = np.linspace(0.5, 4, 1401)
p = np.array([isentropic.entmax(ROW, alpha=float(alpha)) for alpha in alphas])

figure, axis = plt.subplots(figsize=(7.5, 3.6))
for name, alpha in {"softmax": 1, "sparsemax": 2}.items():
    axis.axvline(alpha, color="0.75", linewidth=1)
    axis.text(alpha + 0.03, 0.94, name, fontsize=8.5, color="0.35")
places = p[0].mean() + 0.056 * np.arange(2.5, -3, -1)
for score, mass, color, place in zip(ROW, p.T, COLORS, places, strict=True):
    axis.plot(alphas, np.where(mass > 0, mass, np.nan), color=color)
    leaves = np.flatnonzero(mass == 0)
    if leaves.size:
        axis.plot(alphas[leaves[0]], 0, "o", color=color, markersize=5, clip_on=False, zorder=3)
    axis.annotate(f"$x = {score}$", (0.5, place), (-5, 0), textcoords="offset points", ha="right", va="center", color=color)
axis.set_xlim(0.5, 4)
axis.set_ylim(0, 1)
axis.spines["left"].set_visible(False)
axis.yaxis.tick_right()
axis.spines["right"].set_visible(True)
axis.set_xlabel("alpha")
axis.set_title("$p$ of six scores; a dot is where a score leaves the support")
figure.tight_layout()
save(figure, "entmax_alpha")
