"""Trains a small transformer on digits with each way to normalise attention: prints the tables of training.md and keeps the
numbers of its figure, which scripts/figures draws. Needs torch and scikit-learn; a process of one thread for each processor."""

import math
import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import isentropic
import isentropic.torch

sys.path.append(str(Path(__file__).parents[1] / "figures"))
from _numbers import keep

TOKENS, WIDTH, HEADS, LAYERS, CLASSES = 64, 32, 4, 2, 10
EPOCHS, BATCH, RATE, SHAPE_RATE = 25, 64, 3e-3, 3e-2
SEEDS = 5


class LearnedEntmax(nn.Module):
    """alpha of each head between softmax (1) and sparsemax (2), as Correia, Niculae, Martins 2019."""

    def __init__(self):
        super().__init__()
        self.shape = nn.Parameter(torch.zeros(HEADS, 1, 1))

    def learned(self):
        return 1 + torch.sigmoid(self.shape)

    def forward(self, scores):
        return isentropic.torch.entmax(scores, alpha=self.learned())


class LearnedEntropyClip(nn.Module):
    """A bound on the entropy of each head between 0 and that of all tokens alike, log 8 at the start."""

    def __init__(self):
        super().__init__()
        self.shape = nn.Parameter(torch.zeros(HEADS, 1, 1))

    def learned(self):
        return math.log(TOKENS) * torch.sigmoid(self.shape)

    def forward(self, scores):
        return isentropic.torch.entropy_clip(scores, max_entropy=self.learned())


NORMALISATIONS = {
    "torch.softmax": lambda: nn.Softmax(dim=-1),
    "softmax": isentropic.torch.Softmax,
    "sparsemax": isentropic.torch.Sparsemax,
    "entmax 1.5": lambda: isentropic.torch.Entmax(alpha=1.5),
    "entmax, alpha learned": LearnedEntmax,
    "entropy_clip, at most log 8": lambda: isentropic.torch.EntropyClip(max_entropy=math.log(8)),
    "entropy_clip, bound learned": LearnedEntropyClip,
}


class Attention(nn.Module):
    def __init__(self, normalisation):
        super().__init__()
        self.projection, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.normalisation = NORMALISATIONS[normalisation]()
        self.weights = None  # of the last batch

    def forward(self, x):
        q, k, v = self.projection(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        self.weights = self.normalisation(q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS))
        return self.output((self.weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, normalisation):
        super().__init__()
        self.attention = Attention(normalisation)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Transformer(nn.Module):
    """A token for each pixel, their mean into the classes."""

    def __init__(self, normalisation):
        super().__init__()
        self.pixel = nn.Linear(1, WIDTH)
        self.place = nn.Parameter(torch.randn(TOKENS, WIDTH) / math.sqrt(WIDTH))
        self.layers = nn.Sequential(*(Layer(normalisation) for _ in range(LAYERS)))
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES))

    def forward(self, x):
        return self.head(self.layers(self.pixel(x.unsqueeze(-1)) + self.place).mean(1))


def run(task):
    """What one training gives: the losses of each epoch's batches on average, and what is measured on the test set after."""
    normalisation, seed = task
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    torch.manual_seed(seed)
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.from_numpy(images).float() / 16, torch.from_numpy(labels)
    train, test = train_test_split(np.arange(len(labels)), test_size=0.25, stratify=labels, random_state=0)

    model = Transformer(normalisation)
    shapes = [p for name, p in model.named_parameters() if name.endswith("normalisation.shape")]
    others = [p for name, p in model.named_parameters() if not name.endswith("normalisation.shape")]
    optimizer = torch.optim.Adam([{"params": others}, {"params": shapes, "lr": SHAPE_RATE}], lr=RATE)
    start, losses = time.perf_counter(), []
    for _ in range(EPOCHS):
        total = 0.0
        for batch in torch.randperm(len(train)).split(BATCH):
            rows = train[batch.numpy()]
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        losses.append(total / len(train))
        assert math.isfinite(losses[-1]), (task, losses)
    seconds = time.perf_counter() - start

    with torch.no_grad():
        accuracy = (model(images[test]).argmax(-1) == labels[test]).double().mean().item()
    attentions = [layer.attention for layer in model.layers]
    return {
        "losses": losses,
        "accuracy": accuracy,
        "support": [(a.weights > 0).sum(-1).double().mean((0, 2)).tolist() for a in attentions],
        "effective": [torch.special.entr(a.weights).sum(-1).exp().mean((0, 2)).tolist() for a in attentions],
        "learned": [a.normalisation.learned().flatten().tolist() for a in attentions if hasattr(a.normalisation, "learned")],
        "ms": 1000 * seconds / (EPOCHS * math.ceil(len(train) / BATCH)),
    }


def spread(values, digits):
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def print_tables(results):
    print("| attention by | test accuracy, % | loss, first epoch | loss, last epoch | support | exp entropy | ms a step |")
    print("|---|---|---|---|---|---|---|")
    for name, runs in results.items():
        cells = [spread([100 * r["accuracy"] for r in runs], 2)]
        cells += [spread([r["losses"][epoch] for r in runs], 3) for epoch in (0, -1)]
        cells += [spread([np.mean(r[what]) for r in runs], 1) for what in ("support", "effective")]
        cells.append(f"{np.median([r['ms'] for r in runs]):.0f}")
        print(f"| {name} | {' | '.join(cells)} |")
    for name, runs in results.items():
        if runs[0]["learned"]:
            print(f"\n{name}: of each head, in order; the size of its support; exp of its entropy.\n")
            heads = [f"layer {layer}" for layer in range(1, LAYERS + 1)]
            heads += [f"{what} {layer}" for layer in range(1, LAYERS + 1) for what in ("support", "exp entropy")]
            print(f"| seed | {' | '.join(heads)} |\n" + "|---" * (1 + len(heads)) + "|")
            for seed, r in enumerate(runs):
                cells = [" ".join(f"{value:.2f}" for value in sorted(r["learned"][layer])) for layer in range(LAYERS)]
                for layer in range(LAYERS):
                    order = np.argsort(r["learned"][layer])
                    for what in ("support", "effective"):
                        cells.append(" ".join(f"{r[what][layer][head]:.0f}" for head in order))
                print(f"| {seed} | {' | '.join(cells)} |")


def main():
    tasks = [(name, seed) for seed in range(SEEDS) for name in NORMALISATIONS]
    with multiprocessing.get_context("spawn").Pool() as pool:
        found = dict(zip(tasks, pool.map(run, tasks, chunksize=1), strict=True))
    results = {name: [found[name, seed] for seed in range(SEEDS)] for name in NORMALISATIONS}
    print_tables(results)
    losses = {name: np.array([r["losses"] for r in runs]) for name, runs in results.items()}
    curves = {name: {"mean": np.exp(np.log(x).mean(0)), "least": x.min(0), "largest": x.max(0)} for name, x in losses.items()}
    keep("training", {"seeds": SEEDS, "losses": curves})
    for name, runs in results.items():
        for r in runs:
            assert r["losses"][-1] < r["losses"][0] / 4, (name, r["losses"])


if __name__ == "__main__":
    main()
