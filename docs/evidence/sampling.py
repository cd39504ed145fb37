"""A small language model of the King James Bible, and what eight ways of sampling make of it at equal mean entropy:
`sampling.py TEXT [--seed S]` prints the tables of sampling.md and keeps the numbers of its figure, which scripts/figures
draws; `--slice` writes examples/data/language_scores.csv instead. It needs scikit-learn.

TEXT is what the Debian packages bible-kjv and bible-kjv-text print: bible -f "Gen1:1-Rev22:21" > TEXT. The model: trigrams of
words with interpolated Kneser-Ney smoothing (Kneser, Ney 1995; Chen, Goodman 1999, absolute discounts).
"""

import argparse
import collections
import re
import sys
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

import isentropic

sys.path.append(str(Path(__file__).parents[1] / "figures"))
from _numbers import keep

ROOT = Path(__file__).parents[2]
VOCABULARY = 8192
UNKNOWN = 0
CONTEXTS = 3000  # of the test text, to compare distributions on
TEXTS, LENGTH = 200, 200  # that are written by each
WRITINGS = 5  # seeds whose texts are compared with human text
WINDOW, CLUSTERS, CLUSTERINGS = 25, 100, 5  # words of a piece of text, the kinds of pieces, how often they are formed
FREQUENT = 256  # words that a piece is described by one by one; the others by how rare they are
TARGETS = 2.0, 3.0  # mean entropies, in nats
METHODS = {  # name: (step of x, from, to) where the mean entropy rises from one end to the other
    "temperature": (lambda v: [("temperature", float(np.exp(v)))], -4, 3),
    "top_k": (lambda v: [("top_k", round(float(np.exp(v))))], 0, np.log(VOCABULARY)),
    "top_p": (lambda v: [("top_p", float(1 / (1 + np.exp(-v))))], -8, 12),
    "min_p": (lambda v: [("min_p", float(1 / (1 + np.exp(v))))], -8, 14),
    "typical_p": (lambda v: [("typical_p", float(1 / (1 + np.exp(-v))))], -8, 12),
    "entropy_clip": (lambda v: [("entropy_clip", (None, float(v)))], 0, np.log(VOCABULARY)),
    "entropy": (lambda v: [("entropy", float(v))], 0, np.log(VOCABULARY)),
    "min_p 0.01, entropy": (lambda v: [("min_p", 0.01), ("entropy", float(v))], 0, np.log(VOCABULARY)),
}


def read(path):
    """(tokens to train on, to test on, words): in lower case, rare ones as one."""
    text = re.sub(r"^\S+ ", "", Path(path).read_text(), flags=re.M).lower()
    words = re.findall(r"[a-z]+|[^a-z\s]", text)
    stretches = [words[i : i + 1024] for i in range(0, len(words) - 1023, 1024)]
    train = [word for i, stretch in enumerate(stretches) if i % 20 for word in stretch]
    test = [word for i, stretch in enumerate(stretches) if i % 20 == 0 for word in stretch]
    names = ["?"] + [word for word, _ in collections.Counter(train).most_common(VOCABULARY - 1)]
    index = {word: i for i, word in enumerate(names)}
    return *(np.array([index.get(word, UNKNOWN) for word in part]) for part in (train, test)), names


class Level:
    """Counts of words after contexts, each context a number: discounted, and what the discount leaves to the level below."""

    def __init__(self, context, word, discount):
        codes, count = np.unique(context * VOCABULARY + word, return_counts=True)
        self.context, self.word = codes // VOCABULARY, codes % VOCABULARY
        self.keys, self.start = np.unique(self.context, return_index=True)
        self.end = np.append(self.start[1:], len(codes))
        self.total = np.add.reduceat(count, self.start)
        self.mass = (count - discount) / np.repeat(self.total, self.end - self.start)
        self.left = discount * (self.end - self.start) / self.total

    def mix(self, contexts, below):
        """The distributions of these contexts, from those of the level below."""
        p = below.copy()
        at = np.searchsorted(self.keys, contexts)
        for row, (i, key) in enumerate(zip(at, contexts, strict=True)):
            if i < len(self.keys) and self.keys[i] == key:
                part = slice(self.start[i], self.end[i])
                p[row] *= self.left[i]
                p[row, self.word[part]] += self.mass[part]
        return p


class Model:
    def __init__(self, tokens):
        a, b, c = tokens[:-2], tokens[1:-1], tokens[2:]
        self.three = Level(a * VOCABULARY + b, c, 0.8)
        # Lower levels count the contexts that a word follows, not how often it does.
        triples = np.unique((a * VOCABULARY + b) * VOCABULARY + c)
        self.two = Level(triples // VOCABULARY % VOCABULARY, triples % VOCABULARY, 0.75)
        pairs = np.unique(tokens[:-1] * VOCABULARY + tokens[1:])
        one = np.bincount(pairs % VOCABULARY, minlength=VOCABULARY) + 1e-3
        self.one = one / one.sum()

    def __call__(self, a, b):
        """log p of each word after a, b, in float32; the unknown word has no mass."""
        p = np.tile(self.one, (len(a), 1))
        p = self.three.mix(a * VOCABULARY + b, self.two.mix(b, p))
        p[:, UNKNOWN] = 0
        with np.errstate(divide="ignore"):
            return np.log(p / p.sum(axis=1, keepdims=True)).astype(np.float32)


def entropies(p):
    return -(p * np.log(np.where(p > 0, p, 1))).sum(axis=1, dtype=np.float64) + 0.0


def calibrated(make, low, high, scores, target):
    """The steps whose mean entropy over these contexts is the target, or nearly: k is an integer."""
    for _ in range(26):
        middle = (low + high) / 2
        mean = entropies(isentropic.Sampler(make(middle)).probs(scores)).mean()
        low, high = (middle, high) if mean < target else (low, middle)
    return make(high)


def write(model, steps, seed, starts, with_entropy=False):
    """Texts from beginnings of two words: tokens, and for each its log p by the model and the entropy it was drawn with."""
    sampler = isentropic.Sampler(steps, seed=seed)
    texts, likelihood, entropy = [starts[:, 0], starts[:, 1]], [], []
    rows = np.arange(len(starts))
    for position in range(LENGTH):
        scores = model(texts[-2], texts[-1])
        drawn = sampler.sample(scores, position=position)
        texts.append(drawn)
        likelihood.append(scores[rows, drawn])
        if with_entropy:
            entropy.append(entropies(sampler.probs(scores)))
    return np.array(texts).T[:, 2:], np.array(likelihood).T, np.array(entropy).T


def distinct(texts, n):
    grams = np.lib.stride_tricks.sliding_window_view(texts, n, axis=1).reshape(-1, n)
    return len(np.unique(grams, axis=0)) / len(grams)


def repetition(texts, n=4):
    """The part of n-grams that stand in the same text before."""
    again = total = 0
    for text in texts:
        seen = set()
        for gram in map(tuple, np.lib.stride_tricks.sliding_window_view(text, n)):
            again += gram in seen
            total += 1
            seen.add(gram)
    return again / total


def described(texts):
    """A row for each window: roots of how often it has each frequent word, words of each octave of ranks, and words again."""
    windows = texts[:, : texts.shape[1] // WINDOW * WINDOW].reshape(-1, WINDOW)
    octaves = round(np.log2(VOCABULARY / FREQUENT))
    # A word is its rank. Unknown words are the rarest, so they count with the last octave.
    rank = np.where(windows == UNKNOWN, VOCABULARY - 1, windows)
    kind = np.where(rank < FREQUENT, rank, FREQUENT + np.log2(np.maximum(rank, FREQUENT) / FREQUENT).astype(int))
    counts = np.stack([(kind == k).sum(axis=1) for k in range(1, FREQUENT + octaves)], axis=1)
    again = WINDOW - (np.diff(np.sort(windows, axis=1), axis=1) > 0).sum(axis=1) - 1
    return np.sqrt(np.column_stack([counts, again]))


def mauve(texts, human, seed):
    """The area under the divergence curve of Pillutla et al. 2021, of windows in clusters: 1 if both have the same kinds.

    The mean over clusterings, because k-means depends on where it begins.
    """
    parts = described(texts), described(human)
    both = np.concatenate(parts)
    both -= both.mean(axis=0)
    _, size, axes = np.linalg.svd(both, full_matrices=False)
    kept = 1 + np.searchsorted(np.cumsum(size**2), 0.9 * (size**2).sum())  # nine tenths of the variance
    areas = []
    for clustering in range(CLUSTERINGS):
        means = KMeans(CLUSTERS, n_init=1, random_state=seed * CLUSTERINGS + clustering)
        cluster = means.fit_predict(both @ axes[:kept].T)
        counts = (np.bincount(part, minlength=CLUSTERS) for part in np.split(cluster, [len(parts[0])]))
        p, q = (count / count.sum() for count in counts)
        weight = np.linspace(1e-6, 1 - 1e-6, 25)[:, np.newaxis]
        mixed = weight * p + (1 - weight) * q
        x, y = (np.exp(-5 * isentropic.kl_divergence(part, mixed, normalize=True)) for part in (p, q))
        x, y = np.concatenate([[0], x, [1]]), np.concatenate([[1], y, [0]])
        areas.append((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())
    return np.mean(areas)


def mean_and_sd(values):
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


def shown(steps):
    words = []
    for name, value in steps:
        words.append(f"{name} at most {value[1]:.4g}" if isinstance(value, tuple) else f"{name} {value:.4g}")
    return ", ".join(words)


def yardstick(model, train, test, seed):
    """What mauve says of other human text, and of the model's own distribution."""
    stretches, human = train.reshape(-1, 1024), test.reshape(-1, 1024)
    enough = TEXTS * LENGTH // 1024 + 1  # as much text as each method writes
    pieces = [stretches[i::19][:enough] for i in range(2, 2 + 3 * WRITINGS, 3)]  # from the whole book, none twice
    starts = np.random.default_rng(seed).choice(len(test) - 1, TEXTS, replace=False)
    starts = np.stack([test[starts], test[starts + 1]], axis=1)
    own = [write(model, [], seed + i, starts)[0] for i in range(WRITINGS)]
    for name, texts in ("human text", pieces), ("the model itself", own):
        print(f"{name}: {mean_and_sd([mauve(part, human, seed + i) for i, part in enumerate(texts)])}", flush=True)


def compare(model, test, target, seed):
    """A row of the tables for each method, and the entropies on the test text."""
    random = np.random.default_rng(seed)
    at = random.choice(np.flatnonzero(test[2:] != UNKNOWN), CONTEXTS, replace=False)
    scores, truth = model(test[at], test[at + 1]), test[at + 2]
    starts = np.stack([test[at[:TEXTS]], test[at[:TEXTS] + 1]], axis=1)
    found, rows = {}, []
    for name, (make, low, high) in METHODS.items():
        steps = calibrated(make, low, high, scores, target)
        p = isentropic.Sampler(steps).probs(scores)
        h = entropies(p)
        found[name] = h
        kept = p[np.arange(CONTEXTS), truth]
        texts, likelihood, entropy = write(model, steps, seed, starts, with_entropy=True)
        more = [write(model, steps, seed + i, starts)[0] for i in range(1, WRITINGS)]
        near = [mauve(part, test.reshape(-1, 1024), seed + i) for i, part in enumerate([texts, *more])]
        floor = np.maximum(kept, 1e-6)
        rows.append(
            [
                shown(steps),
                f"{h.mean():.2f}",
                f"{h.std():.2f}",
                f"{np.quantile(h, 0.05):.2f} .. {np.quantile(h, 0.95):.2f}",
                f"{100 * (kept > 0).mean():.1f}",
                f"{-np.log(floor).mean():.2f}",
                f"{entropy.mean():.2f}",
                f"{-likelihood.mean():.2f}",
                f"{100 * (likelihood < np.log(1e-5)).mean():.2f}",
                f"{100 * repetition(texts):.1f}",
                f"{distinct(texts, 1):.3f}, {distinct(texts, 2):.3f}, {distinct(texts, 3):.3f}",
                mean_and_sd(near),
            ]
        )
        print(f"<!-- {name}: {' '.join(NAMES[i] for i in texts[0][:30])} -->", flush=True)
    return rows, found


HEADER = [
    "step",
    "mean H",
    "sd of H",
    "5 % .. 95 %",
    "true word kept, %",
    "its -log p, floor 1e-6",
    "H of texts",
    "their -log p by the model",
    "words below 1e-5, %",
    "4-grams again, %",
    "distinct 1-, 2-, 3-grams",
    "MAUVE of windows",
]


def table(rows):
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def keep_histograms(found, model_entropy):
    """How many contexts have which entropy, in bins around the multiples of a sixth of a nat."""
    panels = {"softmax, the model's own": model_entropy, **found}
    edges = np.arange(55) / 6 - 1 / 12
    counted = {name: {"mean": h.mean(), "contexts": np.histogram(h, edges)[0]} for name, h in panels.items()}
    keep("sampling", {"edges": edges, "panels": counted})


def cut(model, test, names):
    """64 contexts and the 199 words that are likeliest over them, with the mass of all others as the last column."""
    random = np.random.default_rng(1)
    at = np.sort(random.choice(np.flatnonzero(test[2:] != UNKNOWN), 64, replace=False))
    p = np.exp(model(test[at], test[at + 1]).astype(np.float64))
    ends = np.array([i for i, name in enumerate(names) if name.isalpha()])
    words = np.sort(ends[np.argsort(-p[:, ends].mean(axis=0))[:199]])
    others = 1 - p[:, words].sum(axis=1)
    lines = ["context," + ",".join(names[i] for i in words) + ",other"]
    clean = {",": "comma", '"': "quote"}
    for row, i in enumerate(at):
        context = " ".join(clean.get(names[t], names[t]) for t in test[i : i + 2])
        scores = [*np.log(p[row, words]), np.log(others[row])]
        lines.append(context + "," + ",".join(f"{s:.4g}" for s in scores))
    (ROOT / "examples/data/language_scores.csv").write_text("\n".join(lines) + "\n")


parser = argparse.ArgumentParser()
parser.add_argument("text")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--slice", action="store_true")
arguments = parser.parse_args()
train, test, NAMES = read(arguments.text)
model = Model(train)
if arguments.slice:
    cut(model, test, NAMES)
    raise SystemExit
known = np.flatnonzero(test[2:] != UNKNOWN)[::5]
scores = model(test[known], test[known + 1])
loss = -scores[np.arange(len(known)), test[known + 2]].mean()
h = entropies(np.exp(scores))
print(f"{len(train)} words to train on, {len(test)} to test on, perplexity there {np.exp(loss):.1f}, entropy {h.mean():.2f}")
yardstick(model, train, test, arguments.seed)
for target in TARGETS:
    rows, found = compare(model, test, target, arguments.seed)
    print(f"\nMean entropy {target:g}\n\n{table(rows)}\n", flush=True)
    if target == 3.0:
        keep_histograms(found, h)
