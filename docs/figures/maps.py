"""Draws docs/figures/maps.svg: one row of real scores under every map."""

import csv

import numpy as np
from _style import HERE, plt, save

import entropic
from entropic import _core

ROW = 299  # a three that might be something else

with (HERE / "../../examples/data/digits_scores.csv").open() as file:
    names, *rows = list(csv.reader(file))
scores = np.array(rows[ROW][1:], dtype=float)
names = names[1:]
maps = [operation for operation in _core.operations() if operation["family"] == "map"]

columns = 4
lines = -(-(1 + len(maps)) // columns)
figure, grid = plt.subplots(lines, columns, figsize=(2.7 * columns, 2.7 * lines), sharey=True, squeeze=False)
axes = grid.flat[: 1 + len(maps)]
for unused in grid.flat[1 + len(maps) :]:
    unused.set_visible(False)
places = np.arange(len(names))
axes[0].barh(places, scores, color="0.6")
axes[0].set_title("scores x")
axes[0].set_yticks(places, names)
axes[0].invert_yaxis()
for axis, operation in zip(axes[1:], maps, strict=True):
    required = {param["name"]: param["typical"] for param in operation["params"] if param["typical"] is not None}
    p = getattr(entropic, operation["name"])(scores, **required)
    axis.barh(places, p, color="tab:blue")
    for place, mass in zip(places, p, strict=True):
        axis.text(mass + 0.02, place, f"{mass:.2g}" if mass > 0 else "0", va="center", fontsize=7)
    axis.set_xlim(0, 1.18)
    entropy = -np.sum(p[p > 0] * np.log(p[p > 0]))
    values = ", ".join(f"{parameter} = {value:g}" for parameter, value in required.items()) or "defaults"
    axis.set_title(f"{operation['name']}\n{values}\nentropy {entropy:.2f}, zeros {np.sum(p == 0)}", fontsize=9)
figure.tight_layout()
save(figure, "maps")
