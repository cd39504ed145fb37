"""A critic's estimate of W1 beside the exact distance: docs/evidence/wgan.py draws docs/figures/wgan.svg and prints the table.

Needs torch and matplotlib. Two minutes on one thread.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch

import entropic
import entropic.torch as et

sys.path.insert(0, str(Path(__file__).parent.parent / "figures"))
from _style import BLACK, BLUE, GREEN, GREY, ORANGE, RED, plt, save

POINTS, STEPS, EVERY, SEEDS = 512, 3000, 50, 3


def samples(seed):
    """Eight Gaussians on a circle of radius 2, and one in its middle."""
    rng = np.random.default_rng(seed)
    angle = rng.integers(8, size=POINTS) * np.pi / 4
    real = 2 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.1 * rng.normal(size=(POINTS, 2))
    return torch.tensor(real, dtype=torch.float32), torch.tensor(0.5 * rng.normal(size=(POINTS, 2)), dtype=torch.float32)


def critic_network():
    layers = [torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)]
    return torch.nn.Sequential(*layers)


def train(real, fake, seed, *, clip=None, penalty=None, one_sided=False):
    """Rows of step, mean difference, Lipschitz constant on the samples."""
    torch.manual_seed(seed)
    critic = critic_network()
    if clip is not None:
        optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)  # the optimiser of Arjovsky, Chintala, Bottou 2017
    else:
        optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    points = torch.cat([real, fake])
    distance = torch.cdist(points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist").numpy()
    rows = []
    for step in range(STEPS + 1):
        loss = et.wgan_critic_loss(critic(real), critic(fake))
        if step % EVERY == 0:
            with torch.no_grad():
                values = critic(points).double().squeeze(1).numpy()
            rows.append((step, -loss.item(), entropic.lipschitz_constant(values, distance)))
        if penalty is not None:
            loss = loss + penalty * et.gradient_penalty(critic, real, fake, one_sided=one_sided)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if clip is not None:
            et.clip_weights(critic, clip)
    return np.array(rows)


CRITICS = {
    "weights clipped to 0.01": ({"clip": 0.01}, RED),
    "weights clipped to 0.1": ({"clip": 0.1}, ORANGE),
    "gradient penalty, 10": ({"penalty": 10.0}, BLUE),
    "one-sided penalty, 10": ({"penalty": 10.0, "one_sided": True}, GREEN),
}


def main():
    torch.set_num_threads(1)
    entropic.set_num_threads(1)
    data = [samples(seed) for seed in range(SEEDS)]
    exact = np.array([entropic.wasserstein(real.double(), fake.double()) for real, fake in data])
    print("exact W1:", " ".join(f"{value:.4f}" for value in exact))
    figure, (bounds, raw) = plt.subplots(1, 2, figsize=(8.4, 3.3), sharex=True)
    print(
        "| critic | mean difference / W1 | Lipschitz constant | lower bound / W1 | best bound | s |\n|---|---|---|---|---|---|"
    )
    for name, (options, color) in CRITICS.items():
        start = time.perf_counter()
        rows = np.stack([train(*pair, seed, **options) for seed, pair in enumerate(data)])
        seconds = (time.perf_counter() - start) / SEEDS
        step, difference, constant = rows[0, :, 0], rows[:, :, 1] / exact[:, None], rows[:, :, 2]
        bound = difference / constant
        assert (bound <= 1 + 1e-5).all(), "no 1-Lipschitz function is above W1"
        for axis, lines in ((bounds, bound), (raw, difference)):
            axis.plot(step, lines.mean(0), color=color, label=name)
            axis.fill_between(step, lines.min(0), lines.max(0), color=color, alpha=0.2, linewidth=0)
        last = (difference[:, -1], constant[:, -1], bound[:, -1], bound.max(1))
        print(
            "| " + " | ".join([name, *(f"{x.mean():.3g} +- {x.std():.1g}" for x in last), f"{seconds:.0f}"]) + " |", flush=True
        )
    for axis, title in ((bounds, "lower bound / exact $W_1$"), (raw, "mean difference / exact $W_1$")):
        axis.axhline(1, color=BLACK, linewidth=1, linestyle="--")
        axis.set_xlabel("steps of the critic")
        axis.set_title(title)
        axis.set_xlim(0, STEPS)
        axis.grid(color="0.92", linewidth=0.8)
    bounds.set_ylim(0, 1.05)
    raw.set_ylim(bottom=0)
    bounds.legend(loc="lower right")
    bounds.text(STEPS * 0.02, 1.01, "exact", color=GREY, fontsize=8)
    figure.tight_layout()
    save(figure, "wgan")


if __name__ == "__main__":
    main()
