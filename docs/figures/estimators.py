"""Draws docs/figures/estimators.svg: the mean error of entropies from counts, and its spread, for three distributions."""

import numpy as np
from _style import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, plt, save

import isentropic

COLORS = {"plugin": GREY, "miller_madow": SKY, "jackknife": ORANGE, "grassberger": BLACK, "chao_shen": GREEN,
          "james_stein": PINK, "nsb": RED}  # fmt: skip
CLASSES, SAMPLES = 100, 2000
DRAWS = [20, 50, 100, 200, 500, 1000]
LAWS = {
    "uniform": np.ones(CLASSES),
    "Zipf": 1 / np.arange(1, CLASSES + 1),
    "geometric, ratio 0.9": 0.9 ** np.arange(CLASSES),
}

random = np.random.default_rng(0)
figure, axes = plt.subplots(1, 3, figsize=(9, 3.6), sharey=True)
for axis, (title, law) in zip(axes, LAWS.items(), strict=True):
    law = law / law.sum()
    truth = isentropic.entropy(law)
    counts = [random.multinomial(draws, law, SAMPLES) for draws in DRAWS]
    axis.axhline(0, color=BLUE, linewidth=0.8)
    for place, (name, color) in enumerate(COLORS.items()):
        found = [isentropic.entropy_of_counts(rows, estimator=name) - truth for rows in counts]
        apart = 1.035 ** (place - 3)  # beside each other
        axis.errorbar(np.array(DRAWS) * apart, [one.mean() for one in found], [one.std() for one in found], color=color,
                      label=name, linewidth=1.2, elinewidth=0.8, marker="o", markersize=2.5)  # fmt: skip
    axis.set_xscale("log")
    axis.set_xticks(DRAWS, map(str, DRAWS))
    axis.minorticks_off()
    axis.set_xlabel(f"draws of {CLASSES} classes")
    axis.set_title(f"{title}, H = {truth:.2f}")
axes[0].set_ylabel("estimate less entropy, nats")
axes[1].legend(loc="lower right", ncols=2, fontsize=7.5)
figure.tight_layout()
save(figure, "estimators")
