"""Draws docs/figures/transport.svg: colours and samples moved by a plan, and the barycenter of images."""

import numpy as np
from _style import BLUE, GREY, ORANGE, plt, save
from sklearn.datasets import load_sample_image

import isentropic

rng = np.random.default_rng(0)
figure = plt.figure(figsize=(10.5, 5.6))

# The colours of a photograph, moved to those of another.
flower, palace = (load_sample_image(name)[::5, ::5] / 255.0 for name in ("flower.jpg", "china.jpg"))
colours, others = (one.reshape(-1, 3)[rng.choice(one.shape[0] * one.shape[1], 800, replace=False)] for one in (flower, palace))
even = np.full(800, 1 / 800)
found = isentropic.sinkhorn(even, even, ((colours[:, None] - others) ** 2).sum(-1), epsilon=0.005)
moved = found.map(others, ((flower.reshape(-1, 1, 3) - others) ** 2).sum(-1)).reshape(flower.shape)
for k, (image, title) in enumerate(
    ((flower, "a photograph"), (palace, "another"), (moved, "the first in the second's colours"))
):
    axis = figure.add_subplot(2, 3, k + 1)
    axis.imshow(np.clip(image, 0, 1), interpolation="nearest")
    axis.set_title(title)
    axis.axis("off")

# Samples with labels, moved to where the unlabelled ones are.
angle = rng.uniform(0, np.pi, 120)
label = rng.integers(0, 2, 120)
x = np.stack([np.cos(angle) * (1 - 2 * label) + label, np.sin(angle) * (1 - 2 * label) + label / 2], 1)
x += 0.06 * rng.standard_normal(x.shape)
turn = np.array([[np.cos(0.6), -np.sin(0.6)], [np.sin(0.6), np.cos(0.6)]])
y = (x @ turn)[rng.permutation(120)] + 0.06 * rng.standard_normal(x.shape) + [1.6, 0.4]
even = np.full(120, 1 / 120)
adapted = isentropic.optimal_transport(even, even, ((x[:, None] - y) ** 2).sum(-1)).map(y)
axis = figure.add_subplot(2, 3, 4)
for start, end in zip(x, adapted, strict=True):
    axis.plot([start[0], end[0]], [start[1], end[1]], color="0.85", linewidth=0.5, zorder=0)
axis.scatter(*y.T, s=10, color=GREY, label="new samples")
for k, colour in enumerate((BLUE, ORANGE)):
    axis.scatter(*x[label == k].T, s=10, color=colour, label=f"class {k}")
axis.set_title("labelled samples and new ones")
axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncol=3, handletextpad=0.1, columnspacing=1)
axis = figure.add_subplot(2, 3, 5)
for k, colour in enumerate((BLUE, ORANGE)):
    axis.scatter(*adapted[label == k].T, s=10, color=colour)
axis.set_title("labels, moved by the plan")
for axis in figure.axes[3:]:
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_aspect("equal")

# Images on a grid.
n = 96
rows, columns = np.mgrid[0 : 1 : n * 1j, 0 : 1 : n * 1j]
ring = (abs(np.hypot(rows - 0.5, columns - 0.5) - 0.3) < 0.05) * 1.0
cross = ((abs(rows - 0.5) < 0.06) | (abs(columns - 0.5) < 0.06)) * 1.0
line = np.linspace(0, 1, n)
cost = (line[:, None] - line) ** 2
mean = isentropic.sinkhorn_barycenter(np.stack([ring, cross]), (cost, cost), epsilon=0.002, tolerance=1e-6).barycenter
axis = figure.add_subplot(2, 3, 6)
axis.imshow(np.hstack([ring / ring.max(), mean / mean.max(), cross / cross.max()]), cmap="Greys")
axis.set_title("two images, and their barycenter between them")
axis.axis("off")
figure.tight_layout()
save(figure, "transport")
