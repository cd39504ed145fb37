"""Draws docs/figures/attention_entropy.svg from the numbers that docs/evidence/attention_entropy.py keeps."""

import numpy as np
from _numbers import kept
from _style import BLUE, GREY, ORANGE, plt, save

numbers = kept("attention_entropy")
keys = numbers["keys"]
figure, axes = plt.subplots(1, len(numbers["panels"]), figsize=(9, 3.3), sharey=True, layout="constrained")
for (source, kinds), axis in zip(numbers["panels"].items(), axes, strict=True):
    for (kind, curve), color in zip(kinds.items(), (GREY, BLUE, ORANGE), strict=True):
        axis.plot(keys, curve["mean"], color=color, marker="o", markersize=3, label=kind)
        axis.fill_between(keys, curve["least"], curve["largest"], color=color, alpha=0.15, linewidth=0)
    axis.plot(keys, np.log(keys), color="black", linewidth=0.7, linestyle=":", label="log n")
    axis.set_xscale("log", base=2)
    axis.set_xlabel("keys")
    axis.set_title(source)
axes[0].set_ylabel("entropy, nats")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
save(figure, "attention_entropy")
