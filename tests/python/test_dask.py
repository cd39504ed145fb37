"""Functions given Dask arrays return lazy Dask arrays, with the numbers of one machine."""

import dask.array as da
import numpy as np
import pytest

import entropic

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 5, 8))
P = entropic.softmax(X)
Q = entropic.softmax(RNG.normal(size=(6, 5, 8)))
Y = RNG.integers(0, 8, (6, 5))
G = RNG.normal(size=(6, 5, 8))
ALPHA = RNG.uniform(1.1, 2, (6, 5, 1))
STEPS = [("temperature", 0.8), ("top_p", 0.9)]
CALLS = {
    "softmax": lambda f, x, axis: f.softmax(x, temperature=0.7, axis=axis),
    "entmax of rows": lambda f, x, axis: f.entmax(x, alpha=np.moveaxis(ALPHA, -1, axis), axis=axis),
    "logsumexp": lambda f, x, axis: f.logsumexp(x, axis=axis),
    "logsumexp, keepdims": lambda f, x, axis: f.logsumexp(x, axis=axis, keepdims=True),
    "gamma": lambda f, x, axis: f.gamma_for_entropy(x, entropy=1.5, axis=axis)[0],
    "status": lambda f, x, axis: f.gamma_for_entropy(x, entropy=9.0, axis=axis).status,
    "entropy": lambda f, x, axis: f.entropy(x, input="scores", axis=axis),
    "self_information": lambda f, x, axis: f.self_information(x, input="scores", axis=axis),
    "kl_divergence": lambda f, x, axis: f.kl_divergence(x, np.moveaxis(Q, -1, axis), input="scores", axis=axis),
    "kl with one": lambda f, x, axis: f.kl_divergence(
        x, np.moveaxis(np.broadcast_to(Q[:1, :1], Q.shape), -1, axis), input="scores", axis=axis
    ),
    "js gradient": lambda f, x, axis: f.js_divergence(x, np.moveaxis(Q, -1, axis), input="scores", axis=axis, return_grad=True)[
        1
    ],
    "power_transform": lambda f, x, axis: f.power_transform(x * x, gamma=2.0, axis=axis),
    "mean_field_entropy": lambda f, x, axis: f.mean_field_entropy(x, axis=axis),
    "sample": lambda f, x, axis: f.sample(x, seed=4, stream=2, axis=axis),
    "several draws": lambda f, x, axis: f.sample(x, size=3, seed=4, position=7, axis=axis),
    "no draws": lambda f, x, axis: f.sample(x, size=0, seed=4, axis=axis),
    "Sampler.probs": lambda f, x, axis: f.Sampler(STEPS).probs(x, axis=axis),
    "Sampler.sample": lambda f, x, axis: f.Sampler(STEPS, seed=3).sample(x, stream=5, axis=axis),
    "Sampler, several draws": lambda f, x, axis: f.Sampler(STEPS, seed=3).sample(x, size=2, position=1, axis=axis),
    "gumbel_softmax": lambda f, x, axis: f.gumbel_softmax(x, seed=4, axis=axis),
    "softmax_loss": lambda f, x, axis: f.softmax_loss(x, Y, axis=axis),
    "loss gradient": lambda f, x, axis: f.sparsemax_loss(x, Y, axis=axis, return_grad=True)[1],
    "soft target": lambda f, x, axis: f.softmax_loss(x, np.moveaxis(Q, -1, axis), axis=axis),
    "surrogate_loss": lambda f, x, axis: f.surrogate_loss(x, Y, map="entmax", alpha=1.3, axis=axis),
    "vjp": lambda f, x, axis: f.sparsemax_vjp(
        x, np.moveaxis(entropic.sparsemax(X), -1, axis), np.moveaxis(G, -1, axis), axis=axis
    ),
}


@pytest.mark.parametrize(("axis", "dtype"), [(-1, np.float64), (0, np.float32)])
@pytest.mark.parametrize("chunks", [(2, 5, 8), (6, 2, 3)], ids=str)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_lazy_and_equal(call, chunks, axis, dtype):
    x = np.moveaxis(X.astype(dtype), -1, axis)
    lazy = CALLS[call](entropic, da.from_array(x, chunks=np.moveaxis(np.empty(chunks), -1, axis).shape), axis)
    assert isinstance(lazy, da.Array)
    expected = CALLS[call](entropic, x, axis)
    assert lazy.shape == expected.shape and lazy.dtype.kind == expected.dtype.kind
    found = lazy.compute()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_nothing_is_computed_before_it_is_asked_for():
    def refuse(block):
        raise AssertionError("computed")

    x = da.from_array(X, chunks=(2, 5, 8)).map_blocks(refuse, dtype=X.dtype)
    for call in CALLS.values():
        call(entropic, x, -1)


def test_a_wrong_axis_names_the_function():
    x = da.from_array(X)
    for name in ("softmax", "logsumexp", "entropy", "gamma_for_entropy", "sample", "self_information", "mean_field_entropy"):
        params = {"gamma_for_entropy": {"entropy": 1.0}, "sample": {"seed": 1}}.get(name, {})
        with pytest.raises(np.exceptions.AxisError, match=f"^{name}: axis 3 is out of bounds"):
            getattr(entropic, name)(x, axis=3, **params)
    with pytest.raises(np.exceptions.AxisError, match=r"^Sampler\.probs: axis 3"):
        entropic.Sampler([]).probs(x, axis=3)


def test_out_is_refused():
    with pytest.raises(TypeError, match="softmax: out cannot be given for arrays of Dask"):
        entropic.softmax(da.from_array(X), out=np.empty_like(X))
