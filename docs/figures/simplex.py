"""Draws docs/figures/simplex.svg: three scores at temperatures from 0.05 to 20, on the triangle of distributions."""

import numpy as np
from _style import plt, save
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm

import isentropic

CORNERS = np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])
# Bands of temperature: a colour each, and a line of some points.
BANDS, POINTS = 12, 7
ends = np.geomspace(0.05, 20.0, BANDS + 1)
temperatures = np.geomspace(ends[:-1], ends[1:], POINTS, axis=-1)
# Scores of sum 0 and length 1 in directions that no tie lies in.
angles = np.deg2rad(7.5 + 15 * np.arange(24))
directions = np.sqrt(2 / 3) * np.cos(angles[:, None] - 2 * np.pi / 3 * np.arange(3))

MAPS = {
    "softmax": isentropic.softmax,
    "entmax, alpha = 1.5": isentropic.entmax,
    "sparsemax": isentropic.sparsemax,
    "taylor_softmax of x/T, order 2": isentropic.taylor_softmax,
}

figure, axes = plt.subplots(1, 4, figsize=(11.5, 3.3), layout="constrained")
for axis, (name, function) in zip(axes, MAPS.items(), strict=True):
    axis.fill(*CORNERS.T, facecolor="0.97", edgecolor="0.6", linewidth=1)
    for scores in directions:
        points = function(scores / temperatures[..., None]) @ CORNERS
        lines = LineCollection(points.round(4), cmap="plasma_r", norm=BoundaryNorm(ends, 256), capstyle="round")
        lines.set_array(temperatures[:, POINTS // 2])
        axis.add_collection(lines)
    for corner, place, shift in zip(range(3), CORNERS, [(-8, -10), (8, -10), (0, 5)], strict=True):
        axis.annotate(f"$e_{corner + 1}$", place, shift, textcoords="offset points", ha="center")
    axis.set_title(name, pad=10)
    axis.set_aspect("equal")
    axis.set_xlim(-0.09, 1.09)
    axis.set_ylim(-0.1, 0.95)
    axis.axis("off")
bar = figure.colorbar(lines, ax=axes, shrink=0.75, aspect=14, pad=0.01, label="temperature", spacing="uniform")
bar.set_ticks(ends[:: BANDS // 4], labels=[f"{end:.2g}" for end in ends[:: BANDS // 4]])
bar.minorticks_off()
save(figure, "simplex")
