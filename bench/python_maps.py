"""Times the maps from Python beside torch and SciPy, one thread each, medians of interleaved repetitions.

python bench/python_maps.py   (needs torch, scipy, scikit-learn and the entmax package)
"""

import entmax
import numpy as np
import scipy.special
import torch
from sklearn.manifold import _utils as sklearn_manifold
from timing import least_times, median_times

import isentropic

SHAPES = [(1, 16), (1024, 64), (64, 1024), (128, 32000), (256, 131072)]


def torch_sparsemax(x):
    """Sparsemax by sorting, as torch users write it."""
    z, _ = torch.sort(x, dim=-1, descending=True)
    cumsum = z.cumsum(-1) - 1
    k = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    support = (z * k > cumsum).sum(-1, keepdim=True)
    return (x - cumsum.gather(-1, support - 1) / support).clamp(min=0)


def torch_top_p_softmax(x, p):
    """Top-p by sorting, as samplers write it."""
    z, order = torch.sort(x, dim=-1, descending=True)
    mass = torch.softmax(z, dim=-1)
    drop = mass.cumsum(-1) - mass >= p
    drop = torch.zeros_like(drop).scatter_(-1, order, drop)
    return torch.softmax(x.masked_fill(drop, -torch.inf), dim=-1)


def torch_top_k_softmax(x, k):
    least = torch.topk(x, k, dim=-1).values[..., -1:]
    return torch.softmax(x.masked_fill(x < least, -torch.inf), dim=-1)


def monte_carlo(x, samples, rng):
    """perturb_max with normal noise as one draws it in NumPy, in pieces that fit the cache."""
    counts = np.zeros(x.size)
    for _ in range(samples // 1000):
        winners = np.argmax(x + rng.standard_normal((1000, x.size), dtype=np.float32), axis=1)
        counts += np.bincount(winners, minlength=x.size)
    return counts / samples


def perturb_max():
    """One row of 1000 against a million draws, timed on a hundredth of them."""
    x = np.random.default_rng(1).standard_normal(1000, dtype=np.float32)
    rng = np.random.default_rng(2)
    p = isentropic.perturb_max(x, noise="normal")
    np.testing.assert_allclose(monte_carlo(x, 50000, rng), p, atol=5 * (p.max() / 50000) ** 0.5)
    times = median_times(
        {"ours": lambda: isentropic.perturb_max(x, noise="normal"), "drawn": lambda: monte_carlo(x, 10000, rng)}, 7
    )
    drawn = 100 * times["drawn"]
    print(f"perturb_max, normal noise, n = 1000: {times['ours'] * 1e6:.4g} us, 1e6 draws in NumPy {drawn:.4g} s,", end=" ")
    print(f"{drawn / times['ours']:.3g} times as long")


def entmax_package():
    """The entmax package at the shape of a translation model's output, its sorting and its bisecting versions."""
    x = np.random.default_rng(0).standard_normal((128, 32000), dtype=np.float32)
    t, out = torch.from_numpy(x), np.empty_like(x)
    calls = {
        "sparsemax": (lambda: isentropic.sparsemax(x, out=out), lambda: entmax.sparsemax(t)),
        "entmax15": (lambda: isentropic.entmax(x, out=out), lambda: entmax.entmax15(t)),
        "entmax15, k=100": (lambda: isentropic.entmax(x, out=out), lambda: entmax.entmax15(t, k=100)),
        "entmax_bisect 1.5": (lambda: isentropic.entmax(x, out=out), lambda: entmax.entmax_bisect(t, alpha=1.5)),
        "entmax_bisect 1.3": (lambda: isentropic.entmax(x, alpha=1.3, out=out), lambda: entmax.entmax_bisect(t, alpha=1.3)),
    }
    print("| the entmax package, 128 x 32000 | it | we | times as fast |\n|---|---|---|---|")
    for name, (ours, theirs) in calls.items():
        np.testing.assert_allclose(ours(), theirs().numpy(), atol=1e-5)
        times = median_times({"ours": ours, "theirs": theirs}, 5)
        row = (f"{times['theirs'] * 1e3:.4g} ms", f"{times['ours'] * 1e3:.4g} ms", f"{times['theirs'] / times['ours']:.0f}")
        print(f"| {name} | " + " | ".join(row) + " |")


def reference_iteration(x, entropy, steps=10):
    """The iteration of kexue.fm 8829, for all rows of a batch at once."""
    p = scipy.special.softmax(x, axis=-1)
    for _ in range(steps):
        h = -(p * np.log(p)).sum(-1, keepdims=True)
        gamma = 1 + (entropy - h) / (h**2 - (p * np.log(p) ** 2).sum(-1, keepdims=True))
        p = p**gamma
        p /= p.sum(-1, keepdims=True)
    return p


def torch_bisection(x, entropy, steps=60):
    """The gamma of each row by halving an interval of log gamma, as one writes it in torch."""
    z = x - x.amax(-1, keepdim=True)
    low, high = torch.full_like(z[:, :1], -15.0), torch.full_like(z[:, :1], 15.0)
    for _ in range(steps):
        middle = (low + high) / 2
        a = middle.exp() * z
        e = a.exp()
        total = e.sum(-1, keepdim=True)
        above = total.log() - (e * a).sum(-1, keepdim=True) / total > entropy
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return torch.softmax(((low + high) / 2).exp() * z, -1)


def language_scores(rows, n, rng):
    """A few large scores and a long tail, as a language model gives to its vocabulary."""
    x = rng.normal(0, 0.5, (rows, n)) - 1.2 * np.log(np.arange(1, n + 1))
    return rng.permuted(x, axis=1).astype(np.float32)


def entropies(p):
    p = p.astype(np.float64)
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)


def entropy_normalization():
    """Against the reference iteration, scikit-learn's search and a bisection: times a row, rows missed by more than 1e-4."""
    print("| scores | rows x n | target | ours | NumPy, 10 steps | times | missed | scikit-learn | times | missed |", end=" ")
    print("torch, 60 halvings | times | missed |\n" + "|---" * 13 + "|")
    rng = np.random.default_rng(3)
    for rows, n in [(256, 64), (256, 1024), (16, 32768)]:
        for scores, x in {
            "normal": rng.standard_normal((rows, n), dtype=np.float32),
            "language": language_scores(rows, n, rng),
            "nearly uniform": rng.normal(0, 1e-4, (rows, n)).astype(np.float32),
            "one spike": rng.normal(0, 1, (rows, n)).astype(np.float32) + 30 * (np.arange(n) == 5).astype(np.float32),
            "masked": np.where(np.arange(n) % 3 == 0, -np.inf, rng.standard_normal((rows, n))).astype(np.float32),
        }.items():
            own = float(entropies(isentropic.softmax(x)).mean())
            targets = {"half": 0.5 * own, "near": 0.95 * own, "above": 0.5 * (own + np.log(n))}
            if scores in ("nearly uniform", "one spike", "masked"):
                targets = {"0.6 log n": 0.6 * np.log(n)}
            for target, entropy in targets.items():
                t, out, d = torch.from_numpy(x), np.empty_like(x), -x + x.max(1, keepdims=True)
                calls = {
                    "ours": lambda x=x, entropy=entropy, out=out: isentropic.entropy_normalize(x, entropy=entropy, out=out),
                    "numpy": lambda x=x, entropy=entropy: reference_iteration(x, entropy),
                    "sklearn": lambda d=d, entropy=entropy: sklearn_manifold._binary_search_perplexity(d, np.exp(entropy), 0),
                    "torch": lambda t=t, entropy=entropy: torch_bisection(t, entropy),
                }
                with np.errstate(all="ignore"):
                    missed = {
                        name: int((~(abs(entropies(np.asarray(call())) - entropy) <= 1e-4)).sum())
                        for name, call in calls.items()
                    }
                    assert missed["ours"] == 0
                    times = least_times(calls)
                cells = [scores, f"{rows} x {n}", target, f"{times['ours'] / rows * 1e6:.3g} us"]
                for name in ("numpy", "sklearn", "torch"):
                    cells += [
                        f"{times[name] / rows * 1e6:.3g} us",
                        f"{times[name] / times['ours']:.0f}",
                        f"{missed[name]} of {rows}",
                    ]
                print("| " + " | ".join(cells) + " |", flush=True)


def main():
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    theirs = ["torch.softmax", "scipy softmax", "sparsemax by torch.sort", "top-p 0.9 by torch.sort", "top-k 50 by torch.topk"]
    print("| rows x n | " + " | ratio | ".join(theirs) + " | ratio |\n" + "|---" * (1 + 2 * len(theirs)) + "|")
    for rows, n in SHAPES:
        x = np.random.default_rng(0).standard_normal((rows, n), dtype=np.float32)
        t = torch.from_numpy(x)
        np.testing.assert_allclose(isentropic.softmax(x), torch.softmax(t, -1).numpy(), atol=1e-6)
        np.testing.assert_allclose(isentropic.sparsemax(x), torch_sparsemax(t).numpy(), atol=1e-5)
        k = min(50, n)
        np.testing.assert_allclose(isentropic.top_p_softmax(x, p=0.9), torch_top_p_softmax(t, 0.9).numpy(), atol=1e-3)
        np.testing.assert_allclose(isentropic.top_k_softmax(x, k=k), torch_top_k_softmax(t, k).numpy(), atol=1e-6)
        out = np.empty_like(x)
        torch_out = torch.empty_like(t)
        times = median_times(
            {
                "softmax": lambda x=x, out=out: isentropic.softmax(x, out=out),
                "torch": lambda t=t, out=torch_out: torch.softmax(t, -1, out=out),
                "scipy": lambda x=x: scipy.special.softmax(x, axis=-1),
                "sparsemax": lambda x=x, out=out: isentropic.sparsemax(x, out=out),
                "torch_sparsemax": lambda t=t: torch_sparsemax(t),
                "top_p": lambda x=x, out=out: isentropic.top_p_softmax(x, p=0.9, out=out),
                "torch_top_p": lambda t=t: torch_top_p_softmax(t, 0.9),
                "top_k": lambda x=x, k=k, out=out: isentropic.top_k_softmax(x, k=k, out=out),
                "torch_top_k": lambda t=t, k=k: torch_top_k_softmax(t, k),
            },
            5 if rows * n > 10**6 else 15,
        )
        cells = []
        pairs = [("softmax", "torch"), ("softmax", "scipy")]
        pairs += [(name, "torch_" + name) for name in ("sparsemax", "top_p", "top_k")]
        for ours, theirs in pairs:
            cells += [f"{times[theirs] * 1e6:.4g} us", f"{times[ours] / times[theirs]:.3f}"]
        print(f"| {rows} x {n} | " + " | ".join(cells) + " |")
    print()
    entmax_package()
    print()
    perturb_max()
    print()
    entropy_normalization()


if __name__ == "__main__":
    main()
