"""Draws docs/figures/calibration.svg: the loss of labels is convex in 1/T, and not in the target entropy."""

import numpy as np
from _style import BLUE, ORANGE, RED, plt, save

import isentropic


def mean_loss(log_p, labels):
    return -np.take_along_axis(log_p, np.asarray(labels)[:, None], axis=1).mean()


def drawn(rows, n, scale, temperature):
    rng = np.random.default_rng(0)
    x = scale * rng.standard_normal((rows, n))
    p = isentropic.softmax(x, temperature=temperature)
    return x, (p.cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)


figure, (by_beta, by_entropy) = plt.subplots(1, 2, figsize=(9, 3.4))

x, labels = drawn(2000, 10, 3.0, 1.5)
beta = np.linspace(0.02, 2, 200)
by_beta.plot(beta, [mean_loss(isentropic.log_softmax(x, temperature=1 / b), labels) for b in beta], color=BLUE)
best = isentropic.fit_temperature(x, labels)
by_beta.plot(1 / best, mean_loss(isentropic.log_softmax(x, temperature=best), labels), "o", color=RED, markersize=5)
by_beta.set_xlabel(r"$\beta = 1/T$")
by_beta.set_title("loss of 2000 labels, nats")

# Two scores far above the third: at log 2 the row hesitates before it lets the third have anything.
pairs, first = np.array([[10023.6, 9978.65, 28.5], [9976.43, 10061.1, 46.1]]), [0, 0]
entropy = np.unique(np.concatenate([np.linspace(0.01, np.log(10) - 1e-3, 300), np.linspace(0.66, 0.72, 600)]))
for scores, y, color, label in ((x, labels, BLUE, "the same 2000"), (pairs, first, ORANGE, "two rows of three scores")):
    targets = entropy[entropy < np.log(scores.shape[1])]
    with np.errstate(divide="ignore"):
        losses = [mean_loss(np.log(isentropic.entropy_normalize(scores, entropy=h)), y) for h in targets]
        best = isentropic.fit_target_entropy(scores, y)
        least = mean_loss(np.log(isentropic.entropy_normalize(scores, entropy=best)), y)
    by_entropy.plot(targets, losses, color=color, label=label)
    by_entropy.plot(best, least, "o", color=RED, markersize=5)
by_entropy.axvline(np.log(2), color="0.6", linewidth=0.8, linestyle=":")
by_entropy.text(np.log(2) + 0.02, 0.25, r"$\log 2$", fontsize=8.5, color="0.4")
by_entropy.set_ylim(0, 2.6)
by_entropy.set_xlabel("target entropy $H$, nats")
by_entropy.set_title("loss against the entropy of every row")
by_entropy.legend(loc="upper center", bbox_to_anchor=(0.6, 1))

closer = by_entropy.inset_axes([0.6, 0.14, 0.38, 0.3])
closer.plot(targets, losses, color=ORANGE)
closer.plot(best, least, "o", color=RED, markersize=4)
closer.set_xlim(0.68, 0.71)
closer.set_ylim(0.694, 0.707)
closer.tick_params(labelsize=7)
closer.set_title("the lower one, near $\\log 2$", fontsize=7.5)
figure.tight_layout()
save(figure, "calibration")
