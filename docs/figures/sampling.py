"""Draws docs/figures/sampling.svg from the numbers that docs/evidence/sampling.py keeps: entropies under each way to sample."""

import numpy as np
from _numbers import kept
from _style import BLUE, RED, plt, save

numbers = kept("sampling")
edges = np.array(numbers["edges"])
figure, axes = plt.subplots(3, 3, figsize=(9, 5.4), sharex=True, constrained_layout=True)
for axis, (name, panel) in zip(axes.flat, numbers["panels"].items(), strict=True):
    axis.bar(edges[:-1], panel["contexts"], np.diff(edges), align="edge", color=BLUE)
    axis.axvline(panel["mean"], color=RED, linewidth=1)
    axis.set_title(name)
    axis.set_yticks([])
figure.supxlabel("entropy of a step in nats, at the contexts of the test text; red: the mean, 3 for all but the first")
save(figure, "sampling")
