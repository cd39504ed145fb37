"""Trains small masked language models at length 64 and tests them at 64 to 1024, with every scale and map of attention:
`attention_length.py train TEXT OUT MAP SEED [WIDTH LAYERS]` for each, then `attention_length.py table OUT`. Needs torch; one
thread. Models of different sizes go to different folders OUT.

TEXT is the King James Bible as the Debian packages bible-kjv and bible-kjv-text print it: bible -f "Gen1:1-Rev22:21" > TEXT.
"""

import collections
import json
import math
import re
import sys
import time
from pathlib import Path

import torch
from torch import nn

VOCABULARY, MASK, UNKNOWN = 4096, 0, 1
WIDTH, HEADS, LAYERS = 128, 4, 3  # heads of 32 numbers, also in wider models
LENGTH, BATCH, STEPS, RATE, WARMUP = 64, 32, 1600, 2e-3, 100
MASKED = 0.15
TEST_LENGTHS = 64, 128, 256, 512, 1024
TEST_TOKENS = 49152

# Row of the table: (map that was trained, scale at test). Trained at one length, the entropy-invariant scale with
# train_length=64 is 1/sqrt(d) all through training: one model stands behind both.
ROWS = {
    "softmax, 1/sqrt(d)": ("softmax", "sqrt"),
    "softmax, log n": ("softmax", "log n"),
    "entmax 1.5, 1/sqrt(d)": ("entmax", "sqrt"),
    "entmax 1.5, log n": ("entmax", "log n"),
    "entropy_normalize, H learned": ("entropy_normalize", "sqrt"),
    "entropy_normalize, H log n / log 64": ("entropy_normalize", "log n"),
}


def read(path):
    """(tokens to train on, to test on): words and signs in lower case, the rare ones as one."""
    text = re.sub(r"^\S+ ", "", Path(path).read_text(), flags=re.M).lower()
    words = re.findall(r"[a-z]+|[^a-z\s]", text)
    # Every 20th stretch of 1024 to test on, from all books.
    stretches = [words[i : i + 1024] for i in range(0, len(words) - 1023, 1024)]
    train = [word for i, stretch in enumerate(stretches) if i % 20 for word in stretch]
    test = [word for i, stretch in enumerate(stretches) if i % 20 == 0 for word in stretch][:TEST_TOKENS]
    common = [word for word, _ in collections.Counter(train).most_common(VOCABULARY - 2)]
    index = {word: i + 2 for i, word in enumerate(common)}
    return tuple(torch.tensor([index.get(word, UNKNOWN) for word in part]) for part in (train, test))


def rotate(x):
    """Rotary positions (Su et al. 2021) of (..., n, d)."""
    n, d = x.shape[-2:]
    angle = torch.arange(n)[:, None] * 10000 ** (-torch.arange(0, d, 2) / d)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, name, width):
        super().__init__()
        self.heads = width // (WIDTH // HEADS)
        self.projection, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.name = name
        self.log_n = False
        self.keep = None  # q and k of the last batch, where asked for
        if name == "entropy_normalize":  # of each head, between 0 and log 64
            self.shape = nn.Parameter(torch.zeros(self.heads, 1, 1))

    def forward(self, x):
        n, d = x.shape[-2], WIDTH // HEADS
        q, k, v = self.projection(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = rotate(q), rotate(k)
        if self.keep is not None:
            self.keep = q, k
        grown = math.log(n) / math.log(LENGTH) if self.log_n else 1.0
        if self.name == "entropy_normalize":
            import isentropic.torch

            target = grown * math.log(LENGTH) * torch.sigmoid(self.shape)
            weights = isentropic.torch.entropy_normalize(q @ k.mT / math.sqrt(d), entropy=target)
        else:
            scores = q @ k.mT * (grown / math.sqrt(d))
            if self.name == "entmax":
                import isentropic.torch

                weights = isentropic.torch.entmax(scores, alpha=1.5)
            else:
                weights = torch.softmax(scores, -1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, name, width=WIDTH, layers=LAYERS):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        nn.init.normal_(self.embedding.weight, std=0.05)
        self.attentions = nn.ModuleList(Attention(name, width) for _ in range(layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers + 1))
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, tokens, where):
        x = self.embedding(tokens)
        for i in range(len(self.attentions)):
            x = x + self.attentions[i](self.norms[2 * i](x))
            x = x + self.mlps[i](self.norms[2 * i + 1](x))
        return self.norms[-1](x[where]) @ self.embedding.weight.T + self.bias


def masked(tokens, generator):
    """Tokens with some masked, and which: never the rare ones."""
    where = (torch.rand(tokens.shape, generator=generator) < MASKED) & (tokens != UNKNOWN)
    return torch.where(where, MASK, tokens), where


@torch.no_grad()
def accuracies(model, test):
    """Share of masked tokens guessed at each length, the same tokens masked at all."""
    hidden, where = masked(test, torch.Generator().manual_seed(1))
    result = {}
    for n in TEST_LENGTHS:
        right = 0
        for part, places, tokens in zip(*(t.reshape(-1, n).split(4096 // n) for t in (hidden, where, test)), strict=True):
            right += (model(part, places).argmax(-1) == tokens[places]).sum().item()
        result[n] = 100 * right / where.sum().item()
    return result


def train(text, out, name, seed, *size):
    tokens, test = read(text)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = Model(name, *size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    start, losses = time.process_time(), []
    for step in range(STEPS):
        warm = min(1, (step + 1) / WARMUP)
        optimizer.param_groups[0]["lr"] = RATE * warm * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        begin = torch.randint(len(tokens) - LENGTH, (BATCH, 1), generator=generator)
        batch = tokens[begin + torch.arange(LENGTH)]
        hidden, where = masked(batch, generator)
        loss = nn.functional.cross_entropy(model(hidden, where), batch[where])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 100 == 99:
            print(name, seed, step + 1, f"{sum(losses[-100:]) / 100:.3f}", f"{time.process_time() - start:.0f} s", flush=True)
    result = {"loss": sum(losses[-100:]) / 100, "seconds": time.process_time() - start}
    for scale in ("sqrt", "log n"):
        for attention in model.attentions:
            attention.log_n = scale == "log n"
        result[scale] = accuracies(model, test)
        print(name, seed, scale, result[scale], flush=True)
    if name == "entropy_normalize":
        result["entropy"] = [(math.log(LENGTH) * torch.sigmoid(a.shape)).flatten().tolist() for a in model.attentions]
    Path(out).mkdir(exist_ok=True)
    torch.save(model.state_dict(), Path(out) / f"{name}-{seed}.pt")
    (Path(out) / f"{name}-{seed}.json").write_text(json.dumps(result))


def table(out):
    """Mean and standard deviation over seeds; then what log n changes for one and the same model."""
    print("| attention | " + " | ".join(map(str, TEST_LENGTHS)) + " |\n|" + "---|" * (len(TEST_LENGTHS) + 1))

    def runs(name, scale):
        found = [json.loads(path.read_text())[scale] for path in sorted(Path(out).glob(f"{name}-*.json"))]
        return torch.tensor([[run[str(n)] for n in TEST_LENGTHS] for run in found])

    def line(row, cells, sign=""):
        spread = cells.std(0) if len(cells) > 1 else cells[0] * 0
        print(f"| {row} | " + " | ".join(f"{m:{sign}.2f} ± {s:.2f}" for m, s in zip(cells.mean(0), spread, strict=True)) + " |")

    for row, (name, scale) in ROWS.items():
        if len(cells := runs(name, scale)):
            line(row, cells)
    for name in dict.fromkeys(name for name, _ in ROWS.values()):
        if len(cells := runs(name, "log n") - runs(name, "sqrt")):
            line(f"{name}: by log n", cells, "+")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "train":
        train(*sys.argv[2:5], *map(int, sys.argv[5:]))
    else:
        table(sys.argv[2])
