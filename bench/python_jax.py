"""Under jax.jit beside jax.nn.softmax, a sparsemax by sorting in jnp and optax's projection: python bench/python_jax.py

Needs jax; optax's row is left out without it. float32, on one CPU device; all times of a table come from one run, each round
in turn, medians of wall-clock time. Results are compared first.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import numpy as np
from timing import median_times

import isentropic
import isentropic.jax as ej


def sorted_sparsemax(x):
    """As it is written down: the threshold from the sorted scores and their cumulated sums."""
    ordered = -jnp.sort(-x, -1)
    count = jnp.arange(1, x.shape[-1] + 1)
    above = 1 + count * ordered > jnp.cumsum(ordered, -1)
    size = above.sum(-1, keepdims=True)
    tau = (jnp.where(above, ordered, 0).sum(-1, keepdims=True) - 1) / size
    return jnp.maximum(x - tau, 0)


def calls_of(x):
    """By name, theirs before ours."""
    pairs = [
        ("jax.nn.softmax", jax.nn.softmax, "softmax", ej.softmax),
        ("sparsemax by sorting", sorted_sparsemax, "sparsemax", ej.sparsemax),
    ]
    try:
        from optax.projections import projection_simplex

        pairs.append(("optax projection_simplex", jax.vmap(projection_simplex), "sparsemax again", ej.sparsemax))
    except ImportError:
        pass
    calls = {}
    for theirs, their_function, ours, our_function in pairs:
        np.testing.assert_allclose(our_function(x), their_function(x), atol=1e-5)
        for name, function in ((theirs, their_function), (ours, our_function)):
            one, slope = jax.jit(function), jax.jit(jax.grad(lambda x, f=function: (f(x) ** 2).sum()))
            calls[name] = lambda one=one: one(x).block_until_ready()
            calls[f"{name}, with the gradient"] = lambda slope=slope: slope(x).block_until_ready()
    return calls


def main():
    isentropic.set_num_threads(1)
    print(f"kernels: {isentropic.simd_target()}, jax {jax.__version__}\n")
    print("| rows x n | call | us |\n|---|---|---|")
    for shape in ((1, 16), (64, 1024), (32, 32000)):
        x = jax.random.normal(jax.random.key(0), shape)
        for name, took in median_times(calls_of(x), 9, least=0.01).items():
            print(f"| {shape[0]} x {shape[1]} | {name} | {1e6 * took:.0f} |", flush=True)


main()
