"""Times one token from 131,072 scores through chains of steps beside NumPy, torch, transformers' warpers and llama.cpp's
samplers: one thread each, medians of interleaved repetitions. What each may draw is compared before it is timed.

python bench/python_sampling.py   (needs torch; transformers and llama-cpp-python where they are installed)
"""

import contextlib
import ctypes

import numpy as np
import torch
from timing import median_times

import isentropic

N = 131072
CHAINS = {
    "softmax": [],
    "temperature, top_k, top_p": [("temperature", 0.8), ("top_k", 50), ("top_p", 0.95)],
    "top_p": [("top_p", 0.95)],
    "min_p": [("min_p", 0.05)],
    "typical_p": [("typical_p", 0.9)],
    "entropy": [("entropy", 3.4)],
}


def numpy_chain(steps):
    random = np.random.default_rng(1)

    def probs(x):
        kept = np.arange(len(x))
        z = x
        for name, value in steps:
            if name == "temperature":
                z = z / value
            elif name == "top_k":
                best = np.argpartition(z, -value)[-value:]
                kept, z = kept[best], z[best]
            elif name == "min_p":
                mask = z >= z.max() + np.log(value)
                kept, z = kept[mask], z[mask]
            else:
                p = np.exp(z - z.max())
                p /= p.sum()
                key = -p
                if name == "typical_p":
                    key = np.abs(-np.log(p) + (p * np.log(p)).sum())
                order = np.argsort(key, kind="stable")
                order = order[: np.searchsorted(np.cumsum(p[order]), value) + 1]
                kept, z = kept[order], z[order]
        p = np.exp(z - z.max())
        return kept, p / p.sum()

    def draw(x):
        kept, p = probs(x)
        return kept[np.searchsorted(np.cumsum(p), random.random())]

    return probs, draw


def torch_chain(steps):
    """Sorting, as it is usually written."""

    def probs(x):
        z = x
        for name, value in steps:
            if name == "temperature":
                z = z / value
            elif name == "top_k":
                z = z.masked_fill(z < torch.topk(z, value).values[-1], -torch.inf)
            elif name == "min_p":
                p = torch.softmax(z, -1)
                z = z.masked_fill(p < value * p.max(), -torch.inf)
            else:
                log_p = torch.log_softmax(z, -1)
                p = log_p.exp()
                key = -log_p if name == "top_p" else (-log_p + torch.nansum(p * log_p)).abs()
                _, order = torch.sort(key)
                before = p[order].cumsum(-1) - p[order]
                z = z.masked_fill((before >= value)[torch.argsort(order)], -torch.inf)
        return torch.softmax(z, -1)

    return probs, lambda x: torch.multinomial(probs(x), 1)


def transformers_chain(steps):
    from transformers.generation import logits_process as theirs

    classes = {
        "temperature": theirs.TemperatureLogitsWarper,
        "top_k": theirs.TopKLogitsWarper,
        "top_p": theirs.TopPLogitsWarper,
        "min_p": theirs.MinPLogitsWarper,
        "typical_p": theirs.TypicalLogitsWarper,
    }
    warpers = [classes[name](value) for name, value in steps]

    def probs(x):
        for warper in warpers:
            x = warper(None, x)
        return torch.softmax(x, -1)

    return probs, lambda x: torch.multinomial(probs(x), 1)


def llama_chain(steps, scores):
    import llama_cpp as lib

    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    for name, value in steps:
        made = {
            "temperature": lambda v: lib.llama_sampler_init_temp(v),
            "top_k": lambda v: lib.llama_sampler_init_top_k(v),
            "top_p": lambda v: lib.llama_sampler_init_top_p(v, 1),
            "min_p": lambda v: lib.llama_sampler_init_min_p(v, 1),
            "typical_p": lambda v: lib.llama_sampler_init_typical(v, 1),
        }[name](value)
        lib.llama_sampler_chain_add(chain, made)
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dist(1))
    kind = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
    data = np.zeros(N, kind)
    array = lib.llama_token_data_array()
    array.data = data.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))

    # Like a program that embeds llama.cpp, this fills the candidates anew for each token.
    fresh = np.zeros(N, kind)
    fresh["id"], fresh["logit"] = np.arange(N), scores

    def draw(_):
        data[:] = fresh
        array.size, array.selected, array.sorted = N, -1, False
        lib.llama_sampler_apply(chain, ctypes.byref(array))
        return array.data[array.selected].id

    def probs(x):
        draw(x)
        return np.array([array.data[i].id for i in range(array.size)]), None

    return probs, draw


def language_scores():
    """Few large, a long tail: softmax of them is about rank^-1.2."""
    random = np.random.default_rng(1)
    x = random.normal(0, 0.5, N) - 1.2 * np.log(np.arange(1, N + 1))
    random.shuffle(x)
    return x.astype(np.float32)


# In generate: a processor and the draw after it. Theirs are three processors, softmax and multinomial.
PROCESSED = [("temperature", 0.8), ("min_p", 0.05), ("epsilon", 1e-4)]


def processors(x):
    from transformers.generation import logits_process as theirs

    from isentropic.transformers import SamplerLogitsProcessor, sampling

    warpers = [theirs.TemperatureLogitsWarper(0.8), theirs.MinPLogitsWarper(0.05), theirs.EpsilonLogitsWarper(1e-4)]
    (drawing,) = sampling(PROCESSED)["logits_processor"]
    given = SamplerLogitsProcessor(PROCESSED)
    ids = torch.zeros(1, 3, dtype=torch.long)

    def after(scores):
        return torch.multinomial(torch.softmax(scores, -1, dtype=torch.float32), 1)

    def theirs_draw(scores):
        for warper in warpers:
            scores = warper(ids, scores)
        return after(scores)

    kept = given(ids, x).isfinite()
    scores = x
    for warper in warpers:
        scores = warper(ids, scores)
    assert (kept != scores.isfinite()).sum() <= max(2, kept.sum() // (100 if x.dtype == torch.float32 else 5))
    return median_times(
        {
            "transformers": lambda: theirs_draw(x),
            "sampling": lambda: drawing(ids, x).argmax(-1),
            "processor": lambda: after(given(ids, x)),
        },
        7,
    )


def support(result):
    kept = result[0] if isinstance(result, tuple) else np.flatnonzero(np.asarray(result).reshape(-1))
    return set(np.asarray(kept).tolist())


def main():
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    x = language_scores()
    tensor = torch.from_numpy(x)
    out = np.empty_like(x)
    print("| chain | ours, us | of our softmax | NumPy | torch | transformers | llama.cpp |\n|---|---|---|---|---|---|---|")
    for name, steps in CHAINS.items():
        sampler = isentropic.Sampler(steps, seed=1)
        ours = support(sampler.probs(x))
        position = iter(range(1 << 60))
        calls = {
            "softmax": lambda: isentropic.softmax(x, out=out),
            "ours": lambda sampler=sampler, position=position: sampler.sample(x, position=next(position)),
        }
        made = {}
        if name != "entropy":
            made["NumPy"] = (*numpy_chain(steps), x)
            made["torch"] = (*torch_chain(steps), tensor)
            with contextlib.suppress(ImportError):
                made["transformers"] = (*transformers_chain(steps), tensor[None])
            with contextlib.suppress(ImportError):
                made["llama.cpp"] = (*llama_chain(steps, x), x)
        for who, (probs, draw, scores) in made.items():
            # float32 sums differ in the last digits, and so may a few scores at a cut.
            apart = len(ours ^ support(probs(scores)))
            assert apart <= max(2, len(ours) // 100), (name, who, apart, len(ours))
            calls[who] = lambda draw=draw, scores=scores: draw(scores)
        times = median_times(calls, 7)
        cells = [f"{times['ours'] * 1e6:.0f}", f"{times['ours'] / times['softmax']:.2f}"]
        for who in ("NumPy", "torch", "transformers", "llama.cpp"):
            cells.append(f"{times[who] / times['ours']:.1f} x" if who in times else "")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\n| temperature, min_p, epsilon with the draw | transformers, us | sampling(steps) | its processor alone |")
    print("|---|---|---|---|")
    for dtype in (torch.float32, torch.bfloat16):
        times = processors(tensor[None].to(dtype))
        cells = [f"{times[who] / times['transformers']:.2f}" for who in ("sampling", "processor")]
        print(f"| {str(dtype)[6:]} | {times['transformers'] * 1e6:.0f} | {' | '.join(cells)} |", flush=True)


main()
