"""Entropy of attention against the number of keys, for random and trained queries and keys: prints the table of attention.md
and keeps the numbers of its figure, which scripts/figures draws. Needs torch; one thread.

`attention_entropy.py TEXT CHECKPOINT`, both as attention_length.py has them.
"""

import sys
from pathlib import Path

import attention_length
import numpy as np
import torch

import isentropic

sys.path.append(str(Path(__file__).parents[1] / "figures"))
from _numbers import keep

LENGTHS = 64, 256, 1024, 4096, 16384
QUERIES = 64  # the last ones
TARGET = 2.5
# Every scale is 1/sqrt(d) at 64 keys.
KINDS = {
    "1/sqrt(d)": {},
    "entropy-invariant": {"scale": "entropy_invariant", "train_length": 64},
    f"entropy_normalize, {TARGET} nats": {"map": ("entropy_normalize", {"entropy": TARGET})},
}


def random_heads(n):
    generator = np.random.default_rng(0)
    q, k = (generator.standard_normal((8, size, 64)).astype(np.float32) for size in (QUERIES, n))
    return q, k


def matching_heads(n):
    """One key of each query is the query itself."""
    q, k = random_heads(n)
    k[:, :QUERIES] = q
    return q, k


@torch.no_grad()
def trained_heads(model, tokens):
    """Queries and keys of every layer, (layers, heads, n, d), of a text as long as asked for."""
    x = model.embedding(tokens)
    kept = []
    for i, attention in enumerate(model.attentions):
        q, k, v = attention.projection(model.norms[2 * i](x)).unflatten(-1, (3, attention_length.HEADS, -1)).permute(1, 2, 0, 3)
        q, k = attention_length.rotate(q), attention_length.rotate(k)
        kept.append((q.numpy(), k.numpy()))
        out = torch.from_numpy(isentropic.attention(q.numpy(), k.numpy(), v.contiguous().numpy()))
        x = x + attention.output(out.transpose(0, 1).flatten(1))
        x = x + model.mlps[i](model.norms[2 * i + 1](x))
    return [np.stack(part) for part in zip(*kept, strict=True)]


def entropies(q, k, **options):
    """Of the last queries, one mean for each head."""
    values = np.zeros((*k.shape[:-1], 1), np.float32)
    entropy = isentropic.attention(q[..., -QUERIES:, :], k, values, return_entropy=True, **options)[1]
    return entropy.mean(-1)


def main(text, checkpoint):
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    tokens = attention_length.read(text)[1]
    model = attention_length.Model("softmax")
    model.load_state_dict(torch.load(checkpoint))
    sources = {"random": random_heads, "one key matches": matching_heads, "trained": lambda n: trained_heads(model, tokens[:n])}
    print("| queries and keys | attention | " + " | ".join(map(str, LENGTHS)) + " |")
    print("|---|---|" + "---|" * len(LENGTHS))
    panels = {}
    for source, make in sources.items():
        heads = [make(n) for n in LENGTHS]
        panels[source] = {}
        for kind, options in KINDS.items():
            of_heads = np.array([entropies(q, k, **options).reshape(-1) for q, k in heads])
            print(f"| {source} | {kind} | " + " | ".join(f"{h:.2f}" for h in of_heads.mean(1)) + " |")
            panels[source][kind] = {"mean": of_heads.mean(1), "least": of_heads.min(1), "largest": of_heads.max(1)}
    keep("attention_entropy", {"keys": LENGTHS, "panels": panels})


main(*sys.argv[1:])
