"""Draws docs/figures/two_segments.svg: KL, JS and W1 of two parallel segments at distance theta."""

import numpy as np
from _style import BLACK, BLUE, GREEN, GREY, RED, plt, save

import isentropic

height = np.linspace(0, 1, 32)
thetas = np.concatenate([np.linspace(-1, -1e-3, 21), [0], np.linspace(1e-3, 1, 21)])


def measured(theta):
    """KL, JS and W1 of points on the two segments."""
    x, y = (np.stack([np.full(32, at), height], 1) for at in (0.0, theta))
    points, index = np.unique(np.concatenate([x, y]), axis=0, return_inverse=True)
    p, q = (np.bincount(part, minlength=len(points)) / 32 for part in np.split(index.ravel(), 2))
    return isentropic.kl_divergence(p, q), isentropic.js_divergence(p, q), isentropic.wasserstein(x, y)


kl, js, w1 = np.array([measured(theta) for theta in thetas]).T
apart = thetas != 0
assert np.isinf(kl[apart]).all() and kl[~apart] == 0

figure, (segments, values) = plt.subplots(1, 2, figsize=(8.4, 3.3), width_ratios=(1, 2.4))

segments.plot([0, 0], [0, 1], color=BLACK, linewidth=3, solid_capstyle="butt")
segments.plot([0.6, 0.6], [0, 1], color=GREEN, linewidth=3, solid_capstyle="butt")
segments.annotate("", (0.6, 0.5), (0, 0.5), arrowprops={"arrowstyle": "<->", "color": GREY})
segments.text(0.3, 0.53, r"$\theta$", ha="center")
segments.text(0, 1.04, "x", ha="center")
segments.text(0.6, 1.04, "y", ha="center", color=GREEN)
segments.set_xlim(-0.35, 0.95)
segments.set_ylim(-0.08, 1.3)
segments.set_xticks([0, 0.6], ["0", r"$\theta$"])
segments.set_yticks([0, 1])
segments.set_title("uniform on two segments")

top = 1.2
for side, labels in ((thetas < 0, ("KL", "JS")), (thetas > 0, (None, None))):
    values.plot(thetas[side], np.full(side.sum(), top), color=RED, label=labels[0])
    values.plot(thetas[side], js[side], color=BLUE, label=labels[1])
values.plot(thetas, w1, color=GREEN, label=r"$W_1$")
values.plot([0, 0], [top, np.log(2)], "o", markerfacecolor="white", linestyle="none", color=GREY, markersize=5, clip_on=False)
values.plot([0], [0], "o", color=BLACK, markersize=5, zorder=3, clip_on=False)
values.text(0, 0.34, "all are 0 here", ha="center", color=BLACK, fontsize=8.5)
values.set_xlim(-1, 1)
values.set_ylim(0, 1.3)
values.set_xticks([-1, -0.5, 0, 0.5, 1])
values.set_yticks([0, np.log(2), 1, top], ["0", "log 2", "1", r"$\infty$"])
values.set_xlabel(r"$\theta$")
values.set_title("only one says how far")
values.grid(color="0.92", linewidth=0.8)
values.set_axisbelow(True)
values.legend(loc="lower left", bbox_to_anchor=(0.02, 0.05), handlelength=1.3)
figure.tight_layout()
save(figure, "two_segments")
