"""Functions given DataArrays of xarray: results keep names, dimensions and coordinates, and have the numbers of NumPy."""

import numpy as np
import pytest

xarray = pytest.importorskip("xarray", reason="xarray is not installed")
import isentropic  # noqa: E402

RNG = np.random.default_rng(3)
X = RNG.normal(size=(3, 4, 5))
COORDS = {"site": ["a", "b", "c"], "species": list("vwxyz"), "area": ("time", [1.0, 2.0, 4.0, 8.0])}


def labelled(values, name="scores"):
    return xarray.DataArray(values, dims=("site", "time", "species"), coords=COORDS, name=name, attrs={"unit": "1"})


P = isentropic.softmax(X)
CALLS = {
    "softmax": lambda x, axis, wrap: isentropic.softmax(x, temperature=0.7, axis=axis),
    "logsumexp": lambda x, axis, wrap: isentropic.logsumexp(x, axis=axis),
    "logsumexp, keepdims": lambda x, axis, wrap: isentropic.logsumexp(x, axis=axis, keepdims=True),
    "entropy": lambda x, axis, wrap: isentropic.entropy(x, input="scores", axis=axis),
    "self_information": lambda x, axis, wrap: isentropic.self_information(x, input="scores", axis=axis),
    "kl_divergence": lambda x, axis, wrap: isentropic.kl_divergence(x, wrap(2 * X), input="scores", axis=axis),
    "gamma": lambda x, axis, wrap: isentropic.gamma_for_entropy(x, entropy=1.0, axis=axis).gamma,
    "status": lambda x, axis, wrap: isentropic.gamma_for_entropy(x, entropy=1.0, axis=axis).status,
    "sample": lambda x, axis, wrap: isentropic.sample(x, seed=3, stream=5, axis=axis),
    "gumbel_softmax": lambda x, axis, wrap: isentropic.gumbel_softmax(x, seed=3, axis=axis),
    "power_transform": lambda x, axis, wrap: isentropic.power_transform(x * x, gamma=2.0, axis=axis),
    "vjp": lambda x, axis, wrap: isentropic.sparsemax_vjp(x, wrap(P), wrap(X), axis=axis),
}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("dim", ["species", "site"])
@pytest.mark.parametrize("call", CALLS)
def test_names_and_coordinates_are_kept(call, dim, chunked):
    x = labelled(X)
    axis = x.get_axis_num(dim)
    if chunked:
        x = x.chunk({"time": 2})
    expected = np.asarray(CALLS[call](X, axis, lambda values: values))
    for given in (dim, axis):
        found = CALLS[call](x, given, labelled)
        assert isinstance(found, xarray.DataArray) and (found.chunks is not None) == chunked
        np.testing.assert_array_equal(found.values, expected)
        assert found.name == "scores" and found.attrs == x.attrs
        whole = expected.shape == X.shape
        assert found.dims == (x.dims if expected.ndim == 3 else tuple(d for d in x.dims if d != dim))
        for name, coordinate in x.coords.items():
            if dim not in coordinate.dims or whole:
                assert found.coords[name].equals(coordinate), name
            else:
                assert name not in found.coords


def test_dimensions_go_together_by_name():
    p, q = labelled(P), labelled(P[::-1].copy())
    expected = isentropic.kl_divergence(P, P[::-1])
    np.testing.assert_array_equal(isentropic.kl_divergence(p, q.transpose("species", "site", "time")), expected)
    one = q.isel(site=0, drop=True)
    np.testing.assert_array_equal(isentropic.kl_divergence(p, one), isentropic.kl_divergence(P, np.broadcast_to(P[2], P.shape)))
    alpha = xarray.DataArray([1.2, 1.5, 2.0], dims="site", coords={"site": COORDS["site"]})
    expected = isentropic.entmax(X, alpha=np.array([1.2, 1.5, 2.0])[:, None, None], axis=2)
    np.testing.assert_array_equal(isentropic.entmax(labelled(X), alpha=alpha, axis="species"), expected)


def test_what_does_not_fit_is_refused():
    p = labelled(P)
    with pytest.raises(ValueError, match="align"):
        isentropic.kl_divergence(p, p.assign_coords(species=list("abcde")))
    with pytest.raises(ValueError, match="'year', which the first one lacks"):
        isentropic.kl_divergence(p, p.rename(site="year"))
    with pytest.raises(ValueError, match="depth"):
        isentropic.softmax(p, axis="depth")
    with pytest.raises(TypeError, match="softmax: out cannot be given"):
        isentropic.softmax(p, out=np.empty_like(P))


def test_functions_that_keep_no_names_read_the_numbers():
    """By its values: an xarray also offers itself as an Arrow stream, of numbers and coordinates in one row."""
    rng = np.random.default_rng(1)
    u, v = rng.random((3, 4)), rng.random((3, 4))
    one, other = (xarray.DataArray(x, dims=("row", "at"), coords={"row": ["a", "b", "c"]}) for x in (u, v))
    assert isentropic.match_entropy(one) == isentropic.match_entropy(u)
    assert isentropic.wasserstein(one, other) == isentropic.wasserstein(u, v)
    np.testing.assert_array_equal(isentropic.wasserstein_1d(one, other), isentropic.wasserstein_1d(u, v))
    chain = isentropic.Sampler([("top_k", 2)], seed=1)
    np.testing.assert_array_equal(chain.probs(one), chain.probs(u))
