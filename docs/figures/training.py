"""Draws docs/figures/training.svg from the numbers that docs/evidence/training.py keeps: the loss of every epoch."""

import numpy as np
from _numbers import kept
from _style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, plt, save

numbers = kept("training")
figure, axis = plt.subplots(figsize=(7.5, 3.8))
for (name, losses), color in zip(numbers["losses"].items(), [GREY, BLACK, BLUE, GREEN, ORANGE, RED, PINK], strict=True):
    theirs = color == GREY
    epochs = len(losses["mean"])
    at = np.arange(1, epochs + 1)
    style = {"linestyle": "--" if theirs else "-", "zorder": 3 if theirs else 2}
    axis.plot(at, losses["mean"], color=color, label=name, **style)
    axis.fill_between(at, losses["least"], losses["largest"], color=color, alpha=0.1, linewidth=0)
axis.set_yscale("log")
axis.set_xlim(1, epochs)
axis.set_xticks([1, *range(5, epochs + 1, 5)])
axis.set_xlabel("epoch")
axis.set_ylabel("training loss, nats")
axis.set_title(f"Geometric mean of {numbers['seeds']} seeds; bands from the least to the largest")
axis.legend(ncols=2)
figure.tight_layout()
save(figure, "training")
