"""Functions given Dask arrays return lazy Dask arrays, with the numbers of one machine."""

import dask.array as da
import numpy as np
import pytest

import isentropic

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 5, 8))
P = isentropic.softmax(X)
Q = isentropic.softmax(RNG.normal(size=(6, 5, 8)))
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
        x, np.moveaxis(isentropic.sparsemax(X), -1, axis), np.moveaxis(G, -1, axis), axis=axis
    ),
}


@pytest.mark.parametrize(("axis", "dtype"), [(-1, np.float64), (0, np.float32)])
@pytest.mark.parametrize("chunks", [(2, 5, 8), (6, 2, 3)], ids=str)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_lazy_and_equal(call, chunks, axis, dtype):
    x = np.moveaxis(X.astype(dtype), -1, axis)
    lazy = CALLS[call](isentropic, da.from_array(x, chunks=np.moveaxis(np.empty(chunks), -1, axis).shape), axis)
    assert isinstance(lazy, da.Array)
    expected = CALLS[call](isentropic, x, axis)
    assert lazy.shape == expected.shape and lazy.dtype.kind == expected.dtype.kind
    found = lazy.compute()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_nothing_is_computed_before_it_is_asked_for():
    def refuse(block):
        raise AssertionError("computed")

    x = da.from_array(X, chunks=(2, 5, 8)).map_blocks(refuse, dtype=X.dtype)
    for call in CALLS.values():
        call(isentropic, x, -1)


def test_a_wrong_axis_names_the_function():
    x = da.from_array(X)
    for name in ("softmax", "logsumexp", "entropy", "gamma_for_entropy", "sample", "self_information", "mean_field_entropy"):
        params = {"gamma_for_entropy": {"entropy": 1.0}, "sample": {"seed": 1}}.get(name, {})
        with pytest.raises(np.exceptions.AxisError, match=f"^{name}: axis 3 is out of bounds"):
            getattr(isentropic, name)(x, axis=3, **params)
    with pytest.raises(np.exceptions.AxisError, match=r"^Sampler\.probs: axis 3"):
        isentropic.Sampler([]).probs(x, axis=3)


@pytest.mark.parametrize("name", ["kl_divergence", "js_divergence", "js_distance", "cross_entropy"])
def test_a_reference_of_fewer_axes(name):
    """It has the last axes, as NumPy broadcasts."""
    function = getattr(isentropic, name)
    for p, q, axis in (
        (P[0], Q[0, 0], -1),
        (P[0], Q[0, 0], 1),
        (P, Q[0], -1),
        (P, Q[0, 0], 2),
        (np.moveaxis(P, -1, 1), np.moveaxis(Q[0], -1, 0), 1),
    ):
        lazy = da.from_array(p, chunks=2)
        for mine, theirs in ((lazy, q), (lazy, da.from_array(q, chunks=3)), (p, da.from_array(q))):
            for found, expected in (
                (function(mine, theirs, axis=axis), function(p, q, axis=axis)),
                (function(theirs, mine, axis=axis), function(q, p, axis=axis)),
                (function(mine, theirs, axis=axis, return_grad=True)[2], function(p, q, axis=axis, return_grad=True)[2]),
            ):
                assert isinstance(found, da.Array)
                np.testing.assert_array_equal(found.compute(), expected)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.float32])
@pytest.mark.parametrize("name", ["entropy", "perplexity", "renyi_entropy", "kl_divergence", "js_divergence"])
def test_counts(name, dtype):
    counts = RNG.integers(1, 2 if dtype is np.bool_ else 9, (6, 4)).astype(dtype)
    given = (counts, counts[::-1]) if name.endswith("divergence") else (counts,)
    params = {"alpha": 2.0} if name == "renyi_entropy" else {}
    lazy = (da.from_array(one, chunks=(4, 4)) for one in given)
    found = getattr(isentropic, name)(*lazy, normalize=True, **params)
    np.testing.assert_array_equal(found.compute(), getattr(isentropic, name)(*given, normalize=True, **params))
    certain = np.eye(3).astype(dtype)
    assert (isentropic.entropy(da.from_array(certain, chunks=(2, 3))).compute() == 0).all()


@pytest.mark.parametrize("name", ["softmax", "logsumexp", "entropy", "gamma_for_entropy"])
def test_rows_of_nothing(name):
    params = {"entropy": {"input": "scores"}, "gamma_for_entropy": {"entropy": 1.0}}.get(name, {})
    x = np.zeros((3, 0))
    found, want = (getattr(isentropic, name)(given, **params) for given in (da.from_array(x, chunks=(2, 0)), x))
    for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, want)), strict=True):
        assert isinstance(one, da.Array)
        np.testing.assert_array_equal(one.compute(), other)


def test_draws_of_an_unknown_number_of_rows():
    x = da.from_array(X[0], chunks=(2, 8))
    unknown = x[x[:, 0] > -np.inf]
    what = r"x must have chunks of known size.* call x\.compute_chunk_sizes\(\) first"
    for draw in (isentropic.sample, isentropic.gumbel_softmax):
        with pytest.raises(ValueError, match=f"^{draw.__name__}: {what}"):
            draw(unknown, seed=1)
    with pytest.raises(ValueError, match=rf"^Sampler\.sample: {what}"):
        isentropic.Sampler([]).sample(unknown, size=2)
    np.testing.assert_array_equal(isentropic.logsumexp(unknown, keepdims=True), isentropic.logsumexp(X[0], keepdims=True))
    found = isentropic.sample(unknown.compute_chunk_sizes(), seed=1)
    np.testing.assert_array_equal(found.compute(), isentropic.sample(X[0], seed=1))


def test_a_wrong_stream_is_an_error():
    x = da.from_array(X)
    with pytest.raises(TypeError, match=r"^sample: stream must be an integer, got float"):
        isentropic.sample(x, seed=1, stream=1.7)
    with pytest.raises(ValueError, match=r"^sample: stream must be at least 0 and below 2\*\*64, got -3"):
        isentropic.sample(x, seed=1, stream=-3)


def test_out_is_refused():
    with pytest.raises(TypeError, match="softmax: out cannot be given for arrays of Dask"):
        isentropic.softmax(da.from_array(X), out=np.empty_like(X))
