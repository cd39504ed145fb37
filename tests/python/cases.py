"""What the tests share: the registry, values for its parameters, arrays of every layout, and torch or its absence."""

import os

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import isentropic
from isentropic import _core

OPERATIONS = _core.operations()
MAPS = [operation for operation in OPERATIONS if operation["family"] == "map"]
SHAPED = [operation for operation in OPERATIONS if not operation["reduces"]]
FLOATS = [np.float16, np.float32, np.float64]

hypothesis.settings.register_profile("isentropic", deadline=None, derandomize=bool(os.environ.get("CI")), max_examples=60)
hypothesis.settings.load_profile("isentropic")


def each(operations):
    return pytest.mark.parametrize("operation", operations, ids=lambda operation: operation["name"])


def typical(operation):
    """Values for the parameters that have no default."""
    return {param["name"]: param["typical"] for param in operation["params"] if param["typical"] is not None}


def call(operation, *args, **kwargs):
    return getattr(isentropic, operation["name"])(*args, **{**typical(operation), **kwargs})


def call_vjp(operation, *args, **kwargs):
    return getattr(isentropic, operation["name"] + "_vjp")(*args, **{**typical(operation), **kwargs})


def reshaped(operation, x):
    """The shape of operation(x)."""
    return x.shape[:-1] if operation["reduces"] else x.shape


@st.composite
def param_values(draw, operation):
    """A value for every parameter, inside its range and of moderate size."""
    values = {}
    for param in operation["params"]:
        if param["name"] == "input":  # says what x is: the arrays here are scores
            continue
        if param["kind"] == "name":
            values[param["name"]] = draw(st.sampled_from(param["names"]))
            continue
        if param["kind"] == "optional float":
            if param["typical"] is not None:
                values[param["name"]] = param["typical"] * draw(st.sampled_from([0.75, 1.0, 1.25]))
            continue
        low = 0 if param["above"] is None else param["above"]
        high = low + 8 if param["up_to"] is None else param["up_to"]
        if param["kind"] == "int":
            step = param["multiple_of"] or 1
            values[param["name"]] = step * draw(st.integers(int(low) // step + 1, int(high) // step))
        else:
            values[param["name"]] = low + (high - low) * draw(st.sampled_from([0.0625, 0.125, 0.3, 0.5, 1.0]))
    return values


def scores(rng, shape, dtype=np.float64, scale=3.0):
    x = rng.standard_normal(shape) * scale
    return x.clip(np.finfo(dtype).min, np.finfo(dtype).max).astype(dtype)


@st.composite
def laid_out(draw, dtype=np.float64):
    """(x, axis): an array of 1 to 4 axes with some axes permuted, reversed, sliced, broadcast or misaligned in memory."""
    dims = draw(st.integers(1, 4))
    shape = draw(st.lists(st.integers(0, 5), min_size=dims, max_size=dims))
    axis = draw(st.integers(-dims, dims - 1))
    if draw(st.booleans()):
        shape[axis] = draw(st.integers(1, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, -1, -3]), min_size=dims, max_size=dims))
    order = draw(st.permutations(range(dims)))
    stored = scores(rng, [shape[d] * abs(steps[d]) + draw(st.integers(0, 1)) for d in order], dtype)
    if draw(st.booleans()):  # an address that is no multiple of the entry's size
        memory = np.empty(stored.nbytes + 1, np.uint8)
        misaligned = memory[1:].view(dtype).reshape(stored.shape)
        misaligned[...] = stored
        stored = misaligned
    x = stored.transpose(np.argsort(order))
    x = x[tuple(slice(None, None, step) for step in steps)][tuple(slice(0, size) for size in shape)]
    if draw(st.integers(0, 5)) == 0 and 0 not in shape:
        repeated = draw(st.integers(0, dims - 1))
        x = np.broadcast_to(x.take([0], repeated), x.shape)
    return x, axis


def torch_or_skip():
    try:
        import torch
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip("SKIPPED: torch is not installed, and the tests with its tensors were NOT run")
    return torch
