"""Digests of what every operation gives, to compare two builds by: before a change of structure and at every step of it.

    PYTHONPATH=build/dev/python python tests/digest.py --target AVX2 > before.txt
    PYTHONPATH=build/dev/python python tests/digest.py --target AVX2 --compare before.txt

A line is a hash of all bytes that one operation gives for one type and one purpose: `numpy softmax float32 temperature` is
softmax with several temperatures, `... temperature gradient` what its gradient is then. Errors count with type and message.
--compare prints the lines that changed, went or are new, and fails where any changed or went.
--cli is about the program that $ISENTROPIC_CLI names: help, lists, completion, and each command on small files.

Operations, parameters and ranges are those of the registry, so that a new operation joins by itself. Inputs are exact
numbers made of a hash of their place: the same on every machine and with every version of NumPy.
"""

import argparse
import functools
import hashlib
import inspect
import math
import os
import re
import subprocess
import sys
import tempfile
import warnings
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FLOATS = ("float16", "float32", "float64")
LOG_2 = 0.6931471805599453


# Inputs.


def hashes(seed, *shape):
    """Integers below 2^64: SplitMix64 of 0, 1, 2 ..."""
    z = np.arange(1, math.prod(shape) + 1, dtype=np.uint64) + np.uint64(zlib.crc32(seed.encode()) << 20)
    with np.errstate(over="ignore"):
        z *= np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))).reshape(shape)


def numbers(seed, *shape):
    """About normal, of standard deviation 1, multiples of 2^-15 from -3.5 to 3.5: the same in float32 and float64."""
    h = hashes(seed, *shape)
    parts = [((h >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.float64) for shift in (0, 16, 32, 48)]
    return (sum(parts) - 131070) * 1.75 / 2**16


def distributions(seed, *shape):
    """Rows of sum 1, the largest entries many times the others."""
    h = hashes(seed, *shape)
    weights = ((h >> np.uint64(44)) >> (h % np.uint64(14))).astype(np.float64) + 1  # integers, whose sums are exact
    return weights / weights.sum(-1, keepdims=True)


def halvings(seed, rows, cols):
    """Powers of 2 that sum to 1, as exponents: distributions whose logarithms are known."""
    choices = hashes(seed, rows, cols)
    powers = np.zeros((rows, cols))
    for r in range(rows):
        for i in range(1, cols):
            split = int(choices[r, i]) % i
            powers[r, [split, i]] = powers[r, split] + 1
    return powers


def as_type(x, dtype):
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def odd_rows(cols):
    """Ties, masks, infinities, NaN, offsets, and numbers of extreme size."""
    x = numbers("odd", 18, cols) * 2
    x[0] = np.round(x[0] * 2) / 2
    x[1] = 0.5
    x[2, 0] = -np.inf
    x[3, ::2] = -np.inf
    x[4, :-1] = -np.inf
    x[5] = -np.inf
    x[6, cols // 2] = np.inf
    x[7, ::3] = np.inf
    x[7, -1] = -np.inf
    x[8, -1] = np.nan
    x[9] += 2**20
    x[10] *= 2.0**-30
    x[11] = np.where(x[11] < 0, -0.0, 0.0)
    x[12] = np.sort(x[12])[::-1]
    x[13, cols // 3] = 80
    x[14] = np.round(x[14]) * 2.0**-149
    x[15] *= 2.0**120
    x[16, 0], x[16, -1] = -np.inf, np.inf
    x[17, cols // 2 :] = x[17, 0]
    return x


LENGTHS = (1, 2, 7, 16, 33, 64, 100, 1000)
SCALES = (2.0**-10, 0.25, 1.0, 8.0, 1024.0, 8192.0)


@functools.cache
def scores(dtype):
    """(those for everything, those to try parameters with): arrays and the axis of their rows."""
    few = [numbers("few", rows, cols) * 2 for rows, cols in ((5, 7), (37, 33), (3, 100), (1, 1000))]
    few += [odd_rows(7), odd_rows(70)]
    every = list(few)
    for i, cols in enumerate(LENGTHS):
        every += [numbers(f"{cols} of {scale}", 37 if cols < 1000 else 5, cols) * scale for scale in SCALES]
        every += [odd_rows(cols), numbers(f"{cols} alone", cols) * SCALES[i % 6]]
    every += [numbers("long", 2, 5000) * 4, numbers("longest", 1, 70000) * 4, odd_rows(5000)[:4]]
    every += [np.zeros(shape) for shape in ((0,), (0, 5), (5, 0), (2, 0, 3))]
    every, few = ([(as_type(x, dtype), -1) for x in batch] for batch in (every, few))
    return every + along_axes(as_type(numbers("axes", 3, 5, 33, 4), dtype)), few


def along_axes(x):
    """An array of four axes along each, and in other orders of memory."""
    views = [(x, axis) for axis in range(4)]
    views += [(x.transpose(2, 0, 3, 1), 0), (x[::-1, :, ::-2], 2), (np.asfortranarray(x), -2)]
    return [*views, (np.broadcast_to(x[:, :1], x.shape), 2)]


@functools.cache
def probabilities(dtype, which):
    """The same for distributions: the `which`-th of a pair."""
    few = [(distributions(f"{which} few", rows, cols), -1) for rows, cols in ((5, 7), (37, 33), (1, 1000))]
    edges = np.vstack([np.eye(7)[:2], distributions("edges", 6, 7)])
    edges[2:4, 3:] = 0
    edges[4] = 1 / 7
    edges[5, which] += 2.0**-20  # nearly the other
    edges[6, 0] = np.nan
    edges[7] *= 2
    few += [(edges[row : row + 1], -1) for row in range(8)]
    every = few + [(distributions(f"{which} {cols}", 37 if cols < 1000 else 5, cols), -1) for cols in LENGTHS]
    every += [(distributions(f"{which} long", 1, 70000), -1)]
    every += [(np.moveaxis(distributions(f"{which} axes", 3, 4, 33), -1, axis), axis) for axis in range(3)]
    return tuple([(as_type(x, dtype), axis) for x, axis in batch] for batch in (every, few))


# Calls.


@dataclass
class Subject:
    """An operation and its calls: `calls` of a type are pairs of arrays and keywords, all of them and a few."""

    name: str
    params: list
    calls: Any
    differentiable: int | None = None  # how many of the arrays torch takes gradients in; None: all
    fixed: dict = field(default_factory=dict)  # keywords of every call
    function: Any = None
    vjp: Any = None  # of maps; other operations that know their gradient take return_grad

    def parameters(self):
        """Those that the function takes by their names."""
        taken = inspect.signature(self.function).parameters
        return [param for param in self.params if param["name"] in taken]

    def keywords(self, given):
        """The given keywords, and values for parameters without a default; an optional number excludes the others."""
        optional = {param["name"] for param in self.params if param["kind"] == "optional float"}
        left_out = optional if optional & given.keys() else set()
        typical = {param["name"]: param.get("typical") for param in self.parameters() if param["name"] not in left_out}
        return self.fixed | {name: value for name, value in typical.items() if value is not None} | given


NUMBERS = (0.0, 2.0**-10, 0.25, 0.5, 0.875, 1.0, 1 + 2.0**-20, 1.5, 2.0, 3.0, 30.0, 1000.0, math.inf)


def allowed(param, value):
    """Whether a number is in the parameter's range."""
    above, at_least, up_to = (param.get(bound) for bound in ("above", "at_least", "up_to"))
    multiple = param.get("multiple_of") or 1
    return (
        (above is None or value > above)
        and (at_least is None or value >= at_least)
        and (value <= up_to if up_to is not None else value < math.inf)
        and (param["kind"] != "int" or value % multiple == 0)
    )


def values_of(param):
    """Several allowed values."""
    kind = param["kind"]
    if kind == "name":
        return list(param["names"])
    if kind == "bool":
        return [False, True]
    if kind == "int":
        step = param.get("multiple_of") or 1
        return [step * k for k in (1, 2, 3, 5, 50) if allowed(param, step * k)]
    if kind == "ints":
        return [(1,), (0, 2)]
    if "float" in kind:
        ends = [param.get("at_least"), param.get("up_to")]
        given = {*NUMBERS, *(end for end in ends if end is not None), *({param["typical"]} - {None})}
        return sorted(value for value in given if allowed(param, value)) + ([None] if kind == "optional float" else [])
    return []


def refused_values(param):
    """Values out of range or of the wrong type."""
    bounds = [param.get(bound) for bound in ("above", "at_least", "up_to")]
    ends = [end for end in bounds if end is not None and math.isfinite(end)]
    near = [value for end in ends for value in (end, math.nextafter(end, -math.inf), math.nextafter(end, math.inf), end * 3)]
    if param["kind"] in ("int",):
        near = [int(value) for value in near] + [0, -1, 3]
    wrong = [value for value in near if not allowed(param, value)]
    return [*wrong, math.nan, -1.0, math.inf, "no such", None, [1.0, 2.0, 3.0, 4.0], 1j, True]


def spread(param, x, axis):
    """Values for each row of x, or none where the parameter's are not numbers."""
    shape = list(x.shape)
    shape[axis] = 1
    choices = [value for value in values_of(param) if isinstance(value, float)]
    return np.resize(np.array(choices), math.prod(shape)).reshape(shape) if choices and 0 not in shape else None


class Digests:
    """Lines of hashes."""

    def __init__(self):
        self._hashes = {}

    def add(self, line, run, *args, **kwargs):
        """Calls run, and adds its result or error to the line."""
        try:
            outcome = run(*args, **kwargs)
        except Exception as error:
            outcome = error
        self.put(line, outcome)
        return outcome

    def put(self, line, outcome):
        feed(self._hashes.setdefault(line, hashlib.sha256()), outcome)

    def lines(self):
        return {line: digest.hexdigest()[:16] for line, digest in sorted(self._hashes.items())}


def feed(digest, outcome):
    """Into the hash, in a form that says where a part ends."""
    if isinstance(outcome, (tuple, list)):
        digest.update(f"({len(outcome)} ".encode())
        for part in outcome:
            feed(digest, part)
    elif isinstance(outcome, Exception):
        digest.update(f"{type(outcome).__name__}: {outcome}\n".encode())
    elif isinstance(outcome, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(outcome)
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)  # of all NaN one
        digest.update(f"{array.dtype} {np.shape(outcome)} ".encode())
        digest.update(str(array.tolist()).encode() if array.dtype.kind in "OU" else array.tobytes())
    elif isinstance(outcome, bytes):
        digest.update(f"{len(outcome)} ".encode() + outcome)
    elif type(outcome).__module__.startswith("torch"):
        feed(digest, (str(outcome.dtype), outcome.detach().double().numpy()))
    else:
        digest.update(f"{outcome!r}\n".encode())


def digest_subject(digests, subject, run, door, dtypes):
    """Every line of one operation through one door: `run(subject, line, arrays, keywords)` calls it."""
    for dtype in dtypes:
        every, few = subject.calls("float32" if dtype == "bfloat16" else dtype)  # which NumPy does not have
        start = f"{door} {subject.name} {dtype}"
        for arrays, keywords in every if door == "numpy" else few or every:
            run(subject, f"{start} values", arrays, subject.keywords(keywords))
        for param in subject.parameters():
            name = param["name"]
            for arrays, keywords in few:
                if name in keywords:
                    continue
                for value in values_of(param):
                    run(subject, f"{start} {name}", arrays, subject.keywords(keywords | {name: value}))
                if param["per_row"] and arrays[0].ndim:
                    values = spread(param, arrays[0], keywords.get("axis", -1))
                    if values is not None:
                        run(subject, f"{start} {name} per row", arrays, subject.keywords(keywords | {name: values}), name)


def digest_refusals(digests, subject):
    """Errors of arguments."""
    every, few = subject.calls("float64")
    arrays, keywords = (few or every)[0]
    start = f"numpy {subject.name}"
    for param in subject.parameters():
        for value in refused_values(param):
            given = subject.keywords(keywords | {param["name"]: value})
            digests.add(f"{start} refuses {param['name']}", subject.function, *arrays, **given)
    line = f"{start} refuses arrays"
    for i, array in enumerate(arrays):
        wrong = ["text", 1j * np.ones(3), np.ma.masked_array([1.0, 2.0], [0, 1]), 3.0, [[1.0], [1.0, 2.0]], None]
        for value in [*wrong, np.zeros((2, 3, 2, 2)), np.asarray(array)[..., :1], np.asarray(array).tolist()]:
            digests.add(line, subject.function, *arrays[:i], value, *arrays[i + 1 :], **subject.keywords(keywords))
    digests.add(line, subject.function, *arrays, **subject.keywords(keywords | {"no_such": 1}))
    if "axis" in inspect.signature(subject.function).parameters:
        for axis in (9, -9, 0.5, "x", None, True):
            digests.add(line, subject.function, *arrays, **subject.keywords(keywords | {"axis": axis}))
    digests.add(f"{start} refuses to be called without", subject.function, *arrays, **keywords)


def with_numpy(digests):
    def run(subject, line, arrays, keywords, param=None):
        taken = inspect.signature(subject.function).parameters
        asked = {"return_grad": True} if "return_grad" in taken else {}
        if asked and param and "param_grad" in taken:
            asked["param_grad"] = True
        result = digests.add(line, subject.function, *arrays, **keywords, **asked)
        if asked and isinstance(result, Exception):
            digests.add(line, subject.function, *arrays, **keywords)
        if subject.vjp is None or isinstance(result, Exception):
            return
        grad = as_type(numbers("gradient", *np.shape(result)), result.dtype)
        asked = {"param_grad": True} if param and "param_grad" in inspect.signature(subject.vjp).parameters else {}
        digests.add(f"{line} gradient", subject.vjp, *arrays, result, grad, **keywords, **asked)

    return run


def with_torch(digests):
    import torch

    def tensor(value, dtype):
        if not isinstance(value, np.ndarray):
            return value
        value = torch.from_numpy(value.copy())
        return value.to(dtype) if value.is_floating_point() else value

    def run(subject, line, arrays, keywords, param=None):
        dtype = getattr(torch, line.split()[2])
        given = [tensor(array, dtype) for array in arrays]
        leaves = [x.requires_grad_() for x in given[: subject.differentiable] if hasattr(x, "requires_grad_")]
        keywords = {name: tensor(value, torch.float64 if name == param else dtype) for name, value in keywords.items()}
        if param:
            leaves.append(keywords[param].requires_grad_())
        result = digests.add(line, subject.function, *given, **keywords)
        results = result if isinstance(result, tuple) else (result,)
        results = [one for one in results if isinstance(one, torch.Tensor) and one.requires_grad]
        if not results:
            return
        twice = dtype == torch.float64 and results[0].numel() < 100
        weights = [tensor(np.asarray(numbers("gradient", *one.shape)), one.dtype) for one in results]
        grads = digests.add(
            f"{line} gradient", torch.autograd.grad, results, leaves, weights, create_graph=twice, allow_unused=True
        )
        if twice and not isinstance(grads, Exception):
            for leaf, grad in zip(leaves, grads, strict=True):
                if grad is not None and grad.requires_grad:
                    weights = tensor(np.asarray(numbers("second", *grad.shape)), grad.dtype)
                    further = {"retain_graph": True, "allow_unused": True}
                    digests.add(f"{line} second gradient", torch.autograd.grad, grad, leaf, weights, **further)

    return run


# Operations.


def subjects(package):
    """The operations as `package`, isentropic or isentropic.torch, has them."""
    from isentropic import _core

    in_torch = package.__name__ == "isentropic.torch"
    maps = [one for one in _core.operations() if one["family"] == "map"]
    found = [Subject(one["name"], one["params"], on_scores) for one in _core.operations()]
    found += [Subject(one["name"], one["params"], on_targets(one["target"]), differentiable=1) for one in _core.losses()]
    found += [Subject(one["name"], one["params"], MEASURED[one["family"]]) for one in _core.measure_operations()]
    described = [*_core.control_operations(), *_core.sampling_operations(), *_core.transport_operations()]
    params = {one["name"]: one["params"] for one in described}
    found += [Subject(name, params.get(name, []), calls) for name, calls in OTHERS.items()]
    for one in maps:
        values = {param["name"]: param["typical"] for param in one["params"] if param["typical"] is not None}
        named = {"map": (one["name"], values)}
        for loss in ("surrogate_loss", "smooth_accuracy_loss"):
            found.append(Subject(f"{loss}({one['name']})", [], on_targets("class or distribution"), 1, named))
        found.append(Subject(f"attention({one['name']})", [], on_attention, fixed=named))
        found.append(Subject(f"attention_vjp({one['name']})", [], on_attention_vjp, fixed=named))
    for subject in found:
        name = subject.name.partition("(")[0]
        subject.function = getattr(package, name, None)
        subject.vjp = None if in_torch or "attention" in name else getattr(package, f"{name}_vjp", None)
    return [subject for subject in found if subject.function is not None]


def on_scores(dtype):
    return [[((x,), {"axis": axis}) for x, axis in batch] for batch in scores(dtype)]


def classes(x, axis):
    """One for each row, also at its ends."""
    lead = np.delete(np.array(x.shape), axis)
    return (hashes("classes", *lead) % np.uint64(max(x.shape[axis], 1))).astype(np.int64)


def on_targets(kind):
    """A loss's scores and targets."""

    def calls(dtype):
        batches = []
        for batch in scores(dtype):
            found = []
            for x, axis in batch:
                if x.size == 0:
                    continue
                cols = x.shape[axis]
                if kind == "class":
                    x = np.where(x == -np.inf, x, np.clip(x / 4, -1, 1))
                if kind.startswith("class"):
                    labels = classes(x, axis)
                    found += [((x, labels), {"axis": axis}), ((x, labels), {"axis": axis, "ignore_index": 0})]
                if kind == "class or distribution":
                    q = distributions("target", *np.moveaxis(x, axis, -1).shape)
                    q = np.where(hashes("sparse", *q.shape) % np.uint64(3) == 0, 0.0, q) if cols % 3 == 1 else q
                    sums = q.sum(-1, keepdims=True)
                    q = np.where(sums > 0, q / np.where(sums > 0, sums, 1), 1 / cols)
                    found.append(((x, as_type(np.moveaxis(q, -1, axis), dtype)), {"axis": axis}))
                if kind == "labels":
                    found.append(((x, as_type(hashes("labels", *x.shape) % np.uint64(2), dtype)), {"axis": axis}))
                if kind == "scores":
                    teacher = as_type(np.asarray(x, np.float64) + numbers("teacher", *x.shape), dtype)
                    found += [((x, teacher), {"axis": axis}), ((x, x), {"axis": axis})]
            batches.append(found)
        return batches

    return calls


def on_distributions(dtype):
    every, few = ([((x,), {"axis": axis}) for x, axis in batch] for batch in probabilities(dtype, 0))
    given = [((as_type(-LOG_2 * halvings("log", 5, cols), dtype),), {"input": "log_probs"}) for cols in (1, 7, 100)]
    given += [((x,), {"axis": axis, "input": "scores"}) for x, axis in scores(dtype)[1]]
    given += [((as_type(hashes("counts", 5, 7) % np.uint64(9), dtype),), {"normalize": True})]
    return every + given + [((x,), {"axis": axis, "input": "scores"}) for x, axis in scores(dtype)[0][6::5]], few + given[2:5]


def on_pairs(dtype):
    batches = []
    for first, second in zip(probabilities(dtype, 0), probabilities(dtype, 1), strict=True):
        batches.append([((p, q), {"axis": axis}) for (p, axis), (q, _) in zip(first, second, strict=True)])
    every, few = batches
    few += [((p, p), {"axis": axis}) for p, axis in probabilities(dtype, 0)[1]]
    p, q = (as_type(distributions(which, *shape), dtype) for which, shape in (("all", (37, 33)), ("one", (33,))))
    few.append(((p, q), {}))
    few += [((x, x[::-1]), {"input": "scores"}) for x, _ in scores(dtype)[1]]
    few.append((tuple(as_type(-LOG_2 * halvings(which, 5, 33), dtype) for which in "pq"), {"input": "log_probs"}))
    return every + few, few


def on_tables(dtype):
    shapes = ((3, 2, 2), (3, 5, 7), (3, 40, 33))
    tables = [distributions(f"table {rows}", n, rows * cols).reshape(n, rows, cols) for n, rows, cols in shapes]
    tables += [np.outer(distributions("x", 5), distributions("y", 4)), np.eye(3) / 3, np.eye(3)[:1]]
    calls = [((as_type(table, dtype),), {}) for table in tables]
    calls += [((as_type(x, dtype),), {"input": "scores"}) for x in (numbers("table", 2, 5, 7), odd_rows(4))]
    return calls, calls


def on_entries(dtype):
    entries = [0.0, 1.0, 0.5, 2.0**-24, 1 - 2.0**-10, 2.0, -1.0, np.nan]
    every = [((as_type(np.array([entry]), dtype),), {}) for entry in entries]
    few = [((as_type(distributions("entries", 7, 33), dtype),), {})]
    few += [((x,), {"input": "scores"}) for x, _ in scores(dtype)[1]]
    return every + few, few


def on_square_tables(dtype):
    shapes = (3, 4, 4), (2, 5, 7), (2, 17, 18), (1, 40, 33)
    calls = []
    for table in (*(numbers("square", *shape) for shape in shapes), numbers("far", 3, 4) * 1000):
        calls += [((as_type(table, dtype),), given) for given in ({}, {"iterations": 3, "temperature": 0.5})]
    return calls, calls


MEASURED = {"measure": on_distributions, "divergence": on_pairs, "table": on_tables, "entry": on_entries}


def on_powers(dtype):
    return [[((x,), {"axis": axis}) for x, axis in batch] for batch in probabilities(dtype, 0)]


def on_densities(dtype):
    p = as_type(np.floor(distributions("density", 5, 33) * 1024) / 64, dtype)
    weights = as_type(distributions("weights", 33) * 4, dtype)
    targets = (-3.0, -1.0, 0.25, 9.0, np.linspace(-2, 0.25, 5)[:, None])
    return [[((p, weights), {"entropy": entropy}) for entropy in targets]] * 2


def on_joints(dtype):
    calls = [
        ((as_type(distributions(f"joint {cols}", 3, 5 * cols).reshape(3, 5, cols), dtype),), {name: value})
        for cols in (1, 4, 33)
        for name in ("joint", "marginal", "conditional")
        for value in (0.0, 0.75, 1.25, 30.0)
    ]
    return calls, []


def on_draws(dtype):
    every, few = ([((x,), {"axis": axis, "seed": 7}) for x, axis in batch] for batch in scores(dtype))
    x, axis = scores(dtype)[1][1]
    further = [{"seed": 2**64 - 1}, {"seed": 1, "stream": 2**63}, {"seed": 1, "stream": np.arange(37) * 3}]
    return every + [((x,), {"axis": axis, **keywords}) for keywords in further], few


def on_samples(dtype):
    every, few = on_draws(dtype)
    return every + [((x,), keywords | {"stream": 2, "position": 9, "size": 5}) for (x,), keywords in few], few


def on_lines(dtype):
    calls = []
    for m, n in ((1, 1), (7, 7), (33, 20), (1000, 900)):
        u, v = as_type(numbers("u", 3, m), dtype), as_type(numbers("v", 3, n) * 2, dtype)
        weights = {"u_weights": as_type(distributions("u", m), dtype), "v_weights": as_type(distributions("v", 3, n), dtype)}
        calls += [((u, v), {}), ((u, v), weights), ((np.round(u), np.round(v)), weights)]
    return calls, calls


def on_histograms(dtype):
    every, few = on_pairs(dtype)
    calls = [call for call in every if "input" not in call[1]]
    p, q = (as_type(distributions(which, 5, 33), dtype) for which in "pq")
    calls.append(((p, q), {"support": as_type(np.cumsum(distributions("support", 33)) * 16, dtype)}))
    return calls, [call for call in few if "input" not in call[1]]


def on_points(dtype):
    calls = []
    for m, n, d in ((1, 1, 1), (5, 7, 2), (20, 20, 3)):
        x, y = as_type(numbers("x", m, d), dtype), as_type(numbers("y", n, d) + 0.5, dtype)
        weights = {"a": as_type(distributions("a", m), dtype), "b": as_type(distributions("b", n), dtype)}
        calls += [((x, y), {}), ((x, y), weights), ((x, x), {})]
    return calls, calls


def on_problems(dtype):
    calls = []
    for m, n in ((1, 1), (3, 3), (7, 5), (33, 40)):
        a, b = as_type(distributions("a", m), dtype), as_type(distributions("b", n), dtype)
        cost = as_type(np.abs(numbers("cost", m, n)), dtype)
        forbidden = np.where(hashes("forbidden", m, n) % np.uint64(5) == 0, np.inf, cost).astype(dtype)
        calls += [((a, b, cost), {}), ((a, b, forbidden), {}), ((a, b, np.round(cost * 2)), {})]
    calls.append(((a[:3], b, cost), {}))
    return calls, calls


def on_barycenters(dtype):
    calls = []
    for k, n, m in ((1, 1, 1), (2, 5, 5), (4, 33, 40)):
        p, cost = as_type(distributions("p", k, n), dtype), as_type(np.abs(numbers("cost", n, m)), dtype)
        calls += [((p, cost), {}), ((p, cost), {"weights": as_type(distributions("weights", k), dtype)})]
    return calls, calls


def on_potentials(dtype):
    calls = [
        ((as_type(numbers("f", m), dtype), as_type(numbers("g", n), dtype), *arrays[:2]), {})
        for (arrays, _), (m, n) in zip(on_problems(dtype)[0][::3], ((1, 1), (3, 3), (7, 5), (33, 40)), strict=False)
    ]
    return calls, calls


def on_costs(dtype):
    calls = [((as_type(numbers("f", len(a)), dtype), cost), {}) for (a, _, cost), _ in on_problems(dtype)[0]]
    return calls, calls


OTHERS = {
    "gamma_for_entropy": on_scores,
    "mean_field_entropy": on_scores,
    "power_transform": on_powers,
    "normalize_density": on_densities,
    "normalize_joint": on_joints,
    "sample": on_samples,
    "gumbel_softmax": on_draws,
    "wasserstein_1d": on_lines,
    "wasserstein_histogram": on_histograms,
    "wasserstein": on_points,
    "sinkhorn_divergence": on_points,
    "unbalanced_sinkhorn_divergence": on_points,
    "sinkhorn": on_problems,
    "optimal_transport": on_problems,
    "partial_transport": on_problems,
    "unbalanced_sinkhorn": on_problems,
    "sinkhorn_barycenter": on_barycenters,
    "doubly_stochastic": on_square_tables,
    "sliced_wasserstein": on_points,
    "dual_value": on_potentials,
    "c_transform": on_costs,
    "lipschitz_constant": on_costs,
    "linear_attention": lambda dtype: on_attention(dtype, linear=True),
    "linear_attention_vjp": lambda dtype: on_attention_vjp(dtype, linear=True),
}


def on_attention(dtype, linear=False):
    calls = []
    sizes = ((), 1, 1, 1, 1), ((), 5, 7, 3, 2), ((2, 2), 9, 9, 8, 4), ((1,), 50, 70, 16, 16), ((), 3, 130, 64, 8)
    for lead, m, n, d, dv in sizes:
        shapes = ((*lead, m, d), (*lead, n, d), (*lead, n, dv))
        arrays = tuple(as_type(numbers(which, *shape), dtype) for which, shape in zip("qkv", shapes, strict=True))
        keywords = [{}, {"causal": True}, {"scale": 0.75}]
        if not linear:
            visible = hashes("visible", m, n) % np.uint64(3) > 0
            visible[0] = False
            keywords += [{"scale": "entropy_invariant"}, {"scale": "entropy_invariant", "kappa": 1.5, "causal": True}]
            keywords += [{"mask": visible}, {"mask": as_type(numbers("mask", m, n), dtype)}]
            keywords += [{"mask": np.where(visible, 0.5, -np.inf).astype(dtype), "causal": True}]
        calls += [(arrays, one) for one in keywords]
    return calls, calls[: len(keywords) * 3]


def on_attention_vjp(dtype, linear=False):
    batches = []
    for batch in on_attention(dtype, linear):
        found = []
        for (q, k, v), keywords in batch:
            lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2])
            found.append(((q, k, v, as_type(numbers("grad", *lead, q.shape[-2], v.shape[-1]), dtype)), keywords))
        batches.append(found)
    return batches


def digest_rest(digests):
    """Functions with special calls: chains of steps, calibration, ratio_map."""
    import isentropic
    from isentropic import _core

    steps = [
        (step["name"], values[0] if len(values) == 1 else tuple(values))
        for step in _core.sampling_steps()
        for values in zip(*(values_of(param) for param in step["params"]), strict=False)
    ] + [("p_less", None)]
    texts = {step["name"] for step in _core.sampling_steps() if step["reads_text"]}
    chains = [[step] for step in steps]
    chains += [[steps[i], steps[(7 * i + 3) % len(steps)], steps[(5 * i + 1) % len(steps)]] for i in range(len(steps))]
    for dtype in FLOATS:
        for chain in chains:
            line = f"numpy Sampler {dtype} {' '.join(name for name, _ in chain)}"
            sampler = digests.add(line, lambda chain=chain: isentropic.Sampler(chain, seed=3))
            if isinstance(sampler, Exception):
                continue
            more = {"tokens": [1, 0, 2, 1, 0, 2]} if any(name in texts for name, _ in chain) else {}
            for x, axis in scores(dtype)[1]:
                digests.add(line, sampler.probs, x, axis=axis, **more)
                digests.add(line, sampler.sample, x, axis=axis, size=3, stream=5, position=2, **more)
        for x, axis in scores(dtype)[1]:
            for f in (np.square, lambda x: 1 + x, lambda x: np.maximum(x, 0)):
                digests.add(f"numpy ratio_map {dtype} values", isentropic.ratio_map, x, f, axis=axis)
            labels = classes(x, axis)
            for name in ("fit_temperature", "fit_target_entropy"):
                digests.add(f"numpy {name} {dtype} values", getattr(isentropic, name), x, labels)
            digests.add(f"numpy match_entropy {dtype} values", isentropic.match_entropy, x)
        for p, _ in probabilities(dtype, 0)[1]:
            for strategy in ("uniform", "quantile", "no such"):
                line = f"numpy expected_calibration_error {dtype} values"
                digests.add(line, isentropic.expected_calibration_error, p, classes(p, -1), bins=4, strategy=strategy)
    for keywords in ({}, {"kappa": 2.0}, {"train_length": 100}, {"kappa": -1.0}):
        digests.add("numpy entropy_invariant_scale", isentropic.entropy_invariant_scale, [1, 2, 512, 4096], 64, **keywords)


def digest_modules(digests):
    """torch.nn modules, as they are printed and on one batch."""
    import torch

    import isentropic.torch
    from isentropic import _core

    typical = {}
    for one in [*_core.operations(), *_core.losses()]:
        name = "".join(part.capitalize() for part in one["name"].split("_"))
        typical[name] = {param["name"]: param["typical"] for param in one["params"] if param["typical"] is not None}
    for name in isentropic.torch.__all__:
        made = getattr(isentropic.torch, name)
        if not (isinstance(made, type) and issubclass(made, torch.nn.Module)):
            continue
        line = f"torch {name} module"
        taken = inspect.signature(made).parameters.values()
        given = {one.name: 4 for one in taken if one.default is one.empty and one.kind is not one.VAR_KEYWORD}
        given |= typical.get(name, {})
        module = digests.add(line, made, **given)
        if isinstance(module, Exception):
            continue
        for parameter in module.parameters():
            parameter.data = torch.from_numpy(numbers("parameter", *parameter.shape)).to(parameter.dtype)
        x = torch.from_numpy(numbers("module", 5, 4)).float().requires_grad_()
        targets = [[], [torch.tensor([0, 3, 1, 2, -100])], [torch.from_numpy(numbers("teacher", 5, 4)).float()]]
        targets += [[torch.from_numpy(hashes("labels", 5, 4) % np.uint64(2)).float()], [x.detach(), x.detach() * 2]]
        for target in targets:
            y = digests.add(line, module, x, *target)
            if isinstance(y, torch.Tensor) and y.requires_grad:
                digests.add(line, torch.autograd.grad, y.sum(), [x, *module.parameters()], allow_unused=True)


def digest_python(digests, torch_too):
    import isentropic

    isentropic.set_num_threads(1)
    for subject in subjects(isentropic):
        digest_subject(digests, subject, with_numpy(digests), "numpy", FLOATS)
        digest_refusals(digests, subject)
    digest_rest(digests)
    if not torch_too:
        return
    try:
        import torch

        import isentropic.torch
    except ImportError as error:
        print(f"digest.py: without torch: {error}", file=sys.stderr)
        return
    torch.set_num_threads(1)
    for subject in subjects(isentropic.torch):
        digest_subject(digests, subject, with_torch(digests), "torch", (*FLOATS, "bfloat16"))
    digest_modules(digests)


# The program.


def digest_program(digests, target):
    """Lines of the program's commands: standard output, standard error, status and files."""
    program = os.path.abspath(os.environ["ISENTROPIC_CLI"])
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)

        def run(line, *arguments):
            forced = ["--simd", target] if target else []
            done = subprocess.run([program, *forced, *arguments], input=b"", cwd=place, capture_output=True, env={"PATH": ""})
            for part in (done.stdout, done.stderr, done.returncode):
                digests.put(f"cli {line}", part)
            for path in sorted(place.glob("out.*")):
                digests.put(f"cli {line}", (path.name, path.read_bytes()))
                path.unlink()
            return done.stdout.decode()

        def save(name, rows):
            (place / name).write_text("".join(",".join(map(str, row)) + "\n" for row in np.asarray(rows).tolist()))

        save("x.csv", numbers("x", 6, 5))
        save("odd.csv", odd_rows(5))
        save("p.csv", halves := 2.0 ** -halvings("p", 6, 5))
        save("q.csv", halves[::-1])
        save("log_p.csv", -LOG_2 * halvings("p", 6, 5))
        save("a.csv", [[0.25, 0.5, 0.25]])
        save("b.csv", [[0.5, 0.125, 0.125, 0.25]])
        save("cost.csv", np.abs(numbers("cost", 3, 4)))
        save("square.csv", np.abs(numbers("square", 5, 5)))
        (place / "named.tsv").write_text("word\tyes\tno\nfirst\t1.5\t-2\nsecond\t0.25\tnan\n")
        np.save(place / "x.npy", numbers("npy", 2, 3, 4).astype(np.float32))

        help_text = run("--help", "--help")
        run("--version", "--version")
        for words in ("list", "list --markdown", "man", "completion bash", "completion zsh", "no_such", ""):
            run(words or "nothing", *words.split())
        problem = ["--a", "a.csv", "--b", "b.csv", "--cost", "cost.csv"]
        by_hand = {
            "compare": [["x.csv"], ["x.csv", "--format", "json"], ["x.csv", "--format", "html"], ["odd.csv", "--row", "3"],
                        ["x.csv", "--maps", "softmax,entmax", "--entropy", "1"]],
            "gamma": [["odd.csv", "--entropy", "1"], ["x.csv", "--perplexity", "2"], ["x.csv"]],
            "power_transform": [["p.csv", "--gamma", "0.5"], ["p.csv", "--gamma", "inf"]],
            "sample": [["x.csv", "--seed", "1", "--count", "3"], ["x.csv", "--steps", "temperature=0.8,top_p=0.9", "--probs"],
                       ["x.csv", "--steps", "entropy_clip=0.5:1,top_k=3", "--seed", "2"], ["x.csv", "--steps", "top_k=0"]],
            "transport": [[*problem, *more] for more in ([], ["--epsilon", "0.1"])],
            "partial_transport": [[*problem, "--mass", mass] for mass in ("0.5", "2")],
            "unbalanced_sinkhorn": [[*problem, "--epsilon", "0.1", "--penalty", "1"]],
            "sinkhorn_barycenter": [["p.csv", "--cost", "square.csv", "--epsilon", "0.1"]],
            "sliced_wasserstein": [["x.csv", "p.csv", "--seed", "1"]],
            "sinkhorn_divergence": [["x.csv", "p.csv", "--epsilon", "0.5"]],
            "unbalanced_sinkhorn_divergence": [["x.csv", "p.csv", "--epsilon", "0.5", "--penalty", "1"]],
        }  # fmt: skip
        for command in re.findall(r"^  ([a-z][a-z_0-9]+)(?:,| |$)", help_text.partition("Subcommands:")[2], re.MULTILINE):
            text = run(f"{command} --help", command, "--help")
            if command in ("list", "man", "completion"):
                continue
            required = re.findall(r"--([a-z_]+)[^(]*\([^()]*required", " ".join(text.split()))
            given = [part for name in required for part in (f"--{name}", "2" if name == "k" else "0.5")]
            calls = by_hand.get(command, [[name, *given] for name in ("x.csv", "odd.csv", "p.csv")])
            calls += [[name, *given] for name in ("named.tsv", "x.npy", "missing.csv")]
            calls += [["p.csv", "q.csv", *given], ["log_p.csv", "q.csv", "--input", "log_probs", *given]]
            calls += [["p.csv", "--no-such"], ["p.csv", *given, "-o", "out.npy"], ["p.csv", *given, "-o", "out.jsonl"]]
            for option in re.findall(r"^  (--[a-z_]+)\S* (?:NUMBER|[a-z]+\|)", text, re.MULTILINE):
                others = [part for name in required if f"--{name}" != option for part in (f"--{name}", "0.5")]
                calls += [["p.csv", *others, option, value] for value in ("1", "0.5", "-1", "x")]
            for arguments in calls:
                run(command, command, *arguments)


def compare(before, now):
    """Prints what differs; how many lines changed or went."""
    changed = 0
    for line in sorted(before.keys() | now.keys()):
        if before.get(line) != now.get(line):
            what = "new    " if line not in before else "gone   " if line not in now else "changed"
            changed += line in before
            print(what, line)
    print(f"{changed} of {len(before)} lines changed or went, {len(now.keys() - before.keys())} are new", file=sys.stderr)
    return changed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", help="the SIMD target to run on")
    parser.add_argument("--cli", action="store_true", help="of the program that $ISENTROPIC_CLI names")
    parser.add_argument("--no-torch", action="store_true", help="nothing of isentropic.torch")
    parser.add_argument("--compare", metavar="FILE", type=Path, help="print what differs from these digests")
    options = parser.parse_args()
    digests = Digests()
    if options.cli:
        digest_program(digests, options.target)
    else:
        warnings.simplefilter("ignore")
        if options.target:
            import isentropic

            isentropic.force_simd_target(options.target)
        digest_python(digests, not options.no_torch)
    lines = digests.lines()
    if options.compare is None:
        for line, digest in lines.items():
            print(digest, line)
        return 0
    before = dict(reversed(line.split(" ", 1)) for line in options.compare.read_text().splitlines())
    return 1 if compare(before, lines) else 0


if __name__ == "__main__":
    sys.exit(main())
