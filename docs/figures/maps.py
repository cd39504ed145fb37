"""Draws docs/figures/maps.svg: one row of real scores under every map."""

import csv

import numpy as np
from _style import BLUE, GREY, HERE, plt, save

import isentropic
from isentropic import _core

ROW = 299  # a three that might be something else
# Where what the registry calls typical shows nothing but softmax.
SHOWN = {"perturb_max": {"noise": "uniform", "scale": 2.0}, "entropy_clip": {"max_entropy": 1.25}}

with (HERE / "../../examples/data/digits_scores.csv").open() as file:
    names, *rows = list(csv.reader(file))
scores = np.array(rows[ROW][1:], dtype=float)
names = names[1:]
maps = [operation for operation in _core.operations() if operation["family"] == "map"]
plain = isentropic.softmax(scores)

columns = 4
lines = -(-(1 + len(maps)) // columns)
figure, grid = plt.subplots(lines, columns, figsize=(2.7 * columns, 2.35 * lines), sharey=True, squeeze=False)
axes = grid.flat[: 1 + len(maps)]
for unused in grid.flat[1 + len(maps) :]:
    unused.set_visible(False)
places = np.arange(len(names))


def heading(axis, name, under):
    axis.text(0, 1.13, name, transform=axis.transAxes, weight="bold", fontsize=10)
    axis.text(0, 1.03, under, transform=axis.transAxes, color="0.35", fontsize=8.5)


for axis in axes:
    axis.spines[["bottom", "left"]].set_visible(False)
    axis.tick_params(length=0)
    axis.set_xticks([])
axes[0].set_yticks(places, names)
axes[0].invert_yaxis()

axes[0].barh(places, scores, color="0.6")
axes[0].axvline(0, color="0.6", linewidth=0.8)
for place, score in zip(places, scores, strict=True):
    axes[0].annotate(f"{score:.1f}", (max(score, 0), place), (3, 0), textcoords="offset points", va="center", fontsize=7.5)
axes[0].set_xlim(right=4.2)
heading(axes[0], "scores", "of a classifier, for an image of a three")

for axis, operation in zip(axes[1:], maps, strict=True):
    typical = {param["name"]: param["typical"] for param in operation["params"] if param["typical"] is not None}
    values = SHOWN.get(operation["name"], typical)
    p = getattr(isentropic, operation["name"])(scores, **values)
    axis.barh(places, p, color=BLUE)
    axis.barh(places, plain, color="none", edgecolor=GREY, linewidth=0.8)
    for place, mass, other in zip(places, p, plain, strict=True):
        text = "0" if mass == 0 else f"{mass:.2f}" if mass >= 0.005 else "< 0.01"
        color = "black" if mass >= 0.005 else GREY
        axis.annotate(
            text, (max(mass, other), place), (3, 0), textcoords="offset points", va="center", fontsize=7.5, color=color
        )
    axis.set_xlim(0, 0.8)
    said = ", ".join(f"{name} {value}" for name, value in values.items())
    open_ = isentropic.perplexity(p)
    heading(axis, operation["name"], ", ".join(filter(None, [said, f"perplexity {open_:.1f}"])).replace("_", " "))
axes[1].annotate("outlined: softmax", (0.98, 0.02), xycoords="axes fraction", ha="right", color=GREY, fontsize=7.5)
figure.tight_layout(h_pad=1.6)
save(figure, "maps")
