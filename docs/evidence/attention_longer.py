"""Trains small causal language models on texts of 256 words and reads texts of 256, 1024 and 4096 with them, for scales and
maps of attention: `attention_longer.py train TEXT OUT VARIANT SEED` for each, then `attention_longer.py table OUT`. Needs
torch; one thread, 2 minutes a model. TEXT as in attention_length.py.

Positions are known by a bias that falls with the distance (ALiBi, Press et al. 2022) in half of the heads, and not at all in
the others, so that longer texts bring nothing that training has not seen but their length.
"""

import json
import math
import sys
import time
from pathlib import Path

import torch
from attention_length import UNKNOWN, read
from torch import nn

import isentropic.torch

VOCABULARY, WIDTH, HEADS, LAYERS = 2048, 96, 4, 2
LENGTH, BATCH, STEPS, RATE, WARMUP = 256, 8, 600, 3e-3, 50
READ, READ_TOKENS = (256, 1024, 4096), 32768
VARIANTS = {
    "softmax": {},
    "log_n": {"scale": "log_n"},
    "log_n learned": {"scale": "log_n", "learned": True},
    "sinks": {"sinks": True},
    "entmax": {"map": "entmax"},
    "entmax log_n learned": {"map": "entmax", "scale": "log_n", "learned": True},
}


class Attention(nn.Module):
    def __init__(self, map="softmax", scale="sqrt", learned=False, sinks=False):
        super().__init__()
        self.projection, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.given = {"map": map, "scale": scale, "causal": True} | ({"alpha": 1.5} if map == "entmax" else {})
        start = torch.full((HEADS, 1, 1), math.log(1 / math.log(LENGTH)))
        self.log_kappa = nn.Parameter(start, requires_grad=learned) if scale == "log_n" else None
        self.sinks = nn.Parameter(torch.zeros(HEADS)) if sinks else None

    def forward(self, x, bias):
        q, k, v = self.projection(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        more = {} if self.log_kappa is None else {"kappa": self.log_kappa.exp()}
        more |= {} if self.sinks is None else {"sinks": self.sinks}
        y = isentropic.torch.attention(q, k, v, mask=bias, **self.given, **more)
        return self.output(y.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, variant):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.05)
        self.attentions = nn.ModuleList(Attention(**VARIANTS[variant]) for _ in range(LAYERS))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(LAYERS)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * LAYERS + 1))

    def forward(self, tokens):
        n = tokens.shape[-1]
        distance = (torch.arange(n)[:, None] - torch.arange(n)).clamp(min=0)
        slopes = torch.tensor([2.0**-3, 2.0**-6, 0.0, 0.0])[:HEADS, None, None]
        x, bias = self.embedding(tokens), -slopes * distance
        for i in range(LAYERS):
            x = x + self.attentions[i](self.norms[2 * i](x), bias)
            x = x + self.mlps[i](self.norms[2 * i + 1](x))
        return self.norms[-1](x) @ self.embedding.weight.T


def losses(model, tokens):
    """Of the next word of each word but the last."""
    scores = model(tokens[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")


@torch.no_grad()
def perplexities(model, test):
    """Of the same words, in pieces of each length."""
    return {n: math.exp(torch.cat([losses(model, part[None]) for part in test.reshape(-1, n)]).mean()) for n in READ}


def train(text, out, variant, seed):
    tokens, test = (torch.where(part < VOCABULARY, part, UNKNOWN) for part in read(text))
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = Model(variant)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=RATE, betas=(0.9, 0.98))
    start, found = time.process_time(), []
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * min(1, (step + 1) / WARMUP) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        begin = torch.randint(len(tokens) - LENGTH - 1, (BATCH, 1), generator=generator)
        loss = losses(model, tokens[begin + torch.arange(LENGTH + 1)]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    result = {"loss": sum(found[-100:]) / 100, "seconds": time.process_time() - start}
    result |= perplexities(model, test[:READ_TOKENS])
    result["kappa"] = [a.log_kappa.exp().flatten().tolist() for a in model.attentions if a.log_kappa is not None]
    result["sinks"] = [a.sinks.tolist() for a in model.attentions if a.sinks is not None]
    print(variant, seed, result, flush=True)
    Path(out).mkdir(exist_ok=True)
    (Path(out) / f"{variant.replace(' ', '_')}-{seed}.json").write_text(json.dumps(result))


def table(out):
    """Perplexity, mean and standard deviation over seeds; then the change from softmax with the same seed."""
    print("| attention | " + " | ".join(map(str, READ)) + " |\n|" + "---|" * (len(READ) + 1))
    found = {}
    for variant in VARIANTS:
        runs = [json.loads(path.read_text()) for path in sorted(Path(out).glob(f"{variant.replace(' ', '_')}-*.json"))]
        found[variant] = torch.tensor([[run[str(n)] for n in READ] for run in runs])

    def line(name, cells, sign=""):
        spread = cells.std(0) if len(cells) > 1 else cells[0] * 0
        print(
            f"| {name} | " + " | ".join(f"{m:{sign}.1f} ± {s:.1f}" for m, s in zip(cells.mean(0), spread, strict=True)) + " |"
        )

    for variant, cells in found.items():
        line(variant, cells)
    for variant, cells in found.items():
        if variant != "softmax":
            line(f"{variant}: change", cells - found["softmax"], "+")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "train":
        train(*sys.argv[2:5], int(sys.argv[5]))
    else:
        table(sys.argv[2])
