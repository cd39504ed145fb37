"""A critic's estimate of W1 beside the exact distance: prints the table of wgan.md and keeps the numbers of its figure, which
scripts/figures draws. Needs torch. Two minutes on one thread.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch

import isentropic
import isentropic.torch as et

sys.path.insert(0, str(Path(__file__).parent.parent / "figures"))
from _numbers import keep

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
            rows.append((step, -loss.item(), isentropic.lipschitz_constant(values, distance)))
        if penalty is not None:
            loss = loss + penalty * et.gradient_penalty(critic, real, fake, one_sided=one_sided)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if clip is not None:
            et.clip_weights(critic, clip)
    return np.array(rows)


CRITICS = {
    "weights clipped to 0.01": {"clip": 0.01},
    "weights clipped to 0.1": {"clip": 0.1},
    "gradient penalty, 10": {"penalty": 10.0},
    "one-sided penalty, 10": {"penalty": 10.0, "one_sided": True},
}


def main():
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    data = [samples(seed) for seed in range(SEEDS)]
    exact = np.array([isentropic.wasserstein(real.double(), fake.double()) for real, fake in data])
    print("exact W1:", " ".join(f"{value:.4f}" for value in exact))
    curves = {}
    print(
        "| critic | mean difference / W1 | Lipschitz constant | lower bound / W1 | best bound | s |\n|---|---|---|---|---|---|"
    )
    for name, options in CRITICS.items():
        start = time.perf_counter()
        rows = np.stack([train(*pair, seed, **options) for seed, pair in enumerate(data)])
        seconds = (time.perf_counter() - start) / SEEDS
        step, difference, constant = rows[0, :, 0], rows[:, :, 1] / exact[:, None], rows[:, :, 2]
        bound = difference / constant
        assert (bound <= 1 + 1e-5).all(), "no 1-Lipschitz function is above W1"
        curves[name] = {"step": step, "lower bound": bound, "mean difference": difference}
        last = (difference[:, -1], constant[:, -1], bound[:, -1], bound.max(1))
        print(
            "| " + " | ".join([name, *(f"{x.mean():.3g} +- {x.std():.1g}" for x in last), f"{seconds:.0f}"]) + " |", flush=True
        )
    keep("wgan", curves)


if __name__ == "__main__":
    main()
