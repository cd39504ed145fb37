"""entropic.jax: the NumPy functions' bits, and derivatives in both directions against differences."""

import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402

import entropic  # noqa: E402
import entropic.jax as ej  # noqa: E402

MAPS = [
    ("softmax", {"temperature": 0.7}),
    ("sparsemax", {"temperature": 1.3}),
    ("entmax", {"alpha": 1.3}),
    ("entmax", {"alpha": 1.0}),
    ("taylor_softmax", {"order": 4}),
    ("sigsoftmax", {}),
    ("top_k_softmax", {"k": 3}),
    ("top_p_softmax", {"p": 0.8}),
    ("min_p_softmax", {"p": 0.1}),
    ("perturb_max", {"noise": "normal", "scale": 1.5}),
    ("entropy_normalize", {"entropy": 1.2}),
    ("entropy_normalize", {"perplexity": 3.0}),
    ("entropy_clip", {"min_entropy": 1.0, "max_entropy": 1.4}),
    ("log_softmax", {"temperature": 1.5}),
    ("logsumexp", {"temperature": 0.5}),
]
LOSSES = [
    ("softmax_loss", {"label_smoothing": 0.1}),
    ("sparsemax_loss", {}),
    ("entmax_loss", {"alpha": 1.3}),
    ("top_k_softmax_loss", {"k": 5}),
    ("smooth_accuracy_loss", {"map": "entmax"}),
    ("margin_softmax_loss", {"kind": "arc"}),
    ("distillation_loss", {"temperature": 2.0}),
    ("jsd_loss", {"beta": 0.3}),
]
MEASURES = [("entropy", {}), ("renyi_entropy", {"alpha": 2.0}), ("perplexity", {}), ("kl_divergence", {}), ("js_distance", {})]
PER_ROW = [
    ("softmax", {"temperature": 0.7}),
    ("sparsemax", {"temperature": 1.3}),
    ("entmax", {"alpha": 1.3}),
    ("entmax", {"alpha": 1.0}),
    ("perturb_max", {"scale": 1.5}),
    ("entropy_normalize", {"entropy": 1.2}),
    ("entropy_clip", {"min_entropy": 1.5}),
    ("log_softmax", {"temperature": 1.5}),
    ("logsumexp", {"temperature": 0.5}),
]


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        yield


def scores(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize(("name", "params"), MAPS)
def test_the_bits_of_numpy(name, params, dtype):
    x = scores(3, 4, 7, dtype=dtype)
    x[0, 0, 2] = -np.inf
    if name == "taylor_softmax":
        x[0, 0, 2] = 0
    for axis in (-1, 1):
        ours = getattr(entropic, name)(x, axis=axis, **params)
        theirs = jax.jit(lambda x: getattr(ej, name)(x, axis=axis, **params))(x)  # noqa: B023
        assert theirs.dtype == x.dtype and ours.tobytes() == np.asarray(theirs).tobytes()


@pytest.mark.parametrize(("name", "params"), MAPS)
def test_derivatives_of_maps(name, params):
    function = lambda x: getattr(ej, name)(x, **params)  # noqa: E731
    # perturb_max is a quadrature, right to some 1e-13: that over 2h.
    x, v, h = scores(4, 6), scores(4, 6, seed=1), 1e-4 if name == "perturb_max" else 1e-6
    differences = (function(x + h * v) - function(x - h * v)) / (2 * h)
    forward = jax.jit(lambda x, v: jax.jvp(function, (x,), (v,))[1])(x, v)
    np.testing.assert_allclose(forward, differences, atol=2e-8)
    y, backward = jax.vjp(function, jnp.asarray(x))
    g = scores(*y.shape, seed=2)
    np.testing.assert_allclose((backward(jnp.asarray(g))[0] * v).sum(), (forward * g).sum(), rtol=1e-10, atol=1e-12)
    if name != "perturb_max":  # its derivative is a kernel
        gradient = jax.grad(lambda x: (function(x) ** 2).sum())
        twice = jax.jvp(gradient, (x,), (v,))[1]
        np.testing.assert_allclose(twice, (gradient(x + h * v) - gradient(x - h * v)) / (2 * h), atol=2e-7)


@pytest.mark.parametrize(("name", "params"), PER_ROW)
def test_parameters_of_rows(name, params):
    (key, value), x, h = *params.items(), scores(4, 6), 1e-6
    given = np.full((4, 1), value)
    function = lambda t: getattr(ej, name)(x, **{key: t})  # noqa: E731
    expected = getattr(entropic, name)(x, **{key: given})
    assert np.asarray(function(jnp.asarray(given))).tobytes() == np.asarray(expected).tobytes()
    slope = jax.jvp(function, (jnp.asarray(given),), (jnp.ones((4, 1)),))[1]
    np.testing.assert_allclose(slope, (function(given + h) - function(given - h)) / (2 * h), atol=1e-6)
    with jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64():
        narrow = jax.grad(lambda t: (getattr(ej, name)(x.astype("f"), **{key: t}) ** 2).sum())(jnp.full((4, 1), value, "f"))
        assert narrow.dtype == jnp.float32 and np.isfinite(np.asarray(narrow)).all()


def arguments(name):
    x = scores(4, 6)
    if name in ("distillation_loss", "jsd_loss"):
        return x, scores(4, 6, seed=3)
    return (np.tanh(x) if "margin" in name else x), np.array([0, 2, 5, 1])


@pytest.mark.parametrize(("name", "params"), LOSSES)
def test_losses(name, params):
    x, target = arguments(name)
    expected, dx = getattr(entropic, name)(x, target, return_grad=True, **params)
    value, gradient = jax.jit(jax.value_and_grad(lambda x: getattr(ej, name)(x, target, **params).sum()))(x)
    assert np.asarray(getattr(ej, name)(x, target, **params)).tobytes() == expected.tobytes()
    np.testing.assert_allclose(value, expected.sum(), rtol=1e-14)
    np.testing.assert_array_equal(gradient, dx)


@pytest.mark.parametrize(("name", "params"), MEASURES)
def test_measures(name, params):
    given = [entropic.softmax(scores(4, 6, seed=seed)) for seed in range(2 if "_d" in name else 1)]
    expected, *slopes = getattr(entropic, name)(*given, return_grad=True, **params)
    function = lambda *given: getattr(ej, name)(*given, **params)  # noqa: E731
    assert np.asarray(jax.jit(function)(*given)).tobytes() == expected.tobytes()
    gradients = jax.grad(lambda *given: function(*given).sum(), tuple(range(len(given))))(*given)
    for gradient, slope in zip(gradients, slopes, strict=True):
        np.testing.assert_array_equal(gradient, slope)


@pytest.mark.parametrize(("name", "params"), MAPS)
def test_vmap_is_one_call(name, params):
    x = scores(3, 4, 6)
    function = lambda x: getattr(ej, name)(x, **params)  # noqa: E731
    np.testing.assert_array_equal(jax.vmap(function)(x), function(x))
    assert "while" not in jax.jit(jax.vmap(function)).lower(x).as_text()


def test_bfloat16():
    x = jnp.asarray(scores(3, 5), jnp.bfloat16)
    assert ej.entmax(x).dtype == jnp.bfloat16 == jax.grad(lambda x: ej.entmax(x)[:, 0].sum())(x).dtype
    assert ej.softmax_loss(x, jnp.zeros(3, int)).dtype == jnp.float32


def test_entropy_and_draws():
    x = scores(5, 9)
    ours, theirs = entropic.gamma_for_entropy(x, entropy=1.1), jax.jit(lambda x: ej.gamma_for_entropy(x, entropy=1.1))(x)
    assert ours.gamma.tobytes() == np.asarray(theirs.gamma).tobytes() and not theirs.status.any()
    for size in (None, 4):
        drawn = jax.jit(lambda x: ej.sample(x, size=size, seed=7, stream=2))(x)  # noqa: B023
        np.testing.assert_array_equal(drawn, entropic.sample(x, size=size, seed=7, stream=2))


@pytest.mark.parametrize("name", ["softmax", "entmax"])
def test_attention(name):
    q, k, v = scores(2, 5, 4), scores(2, 6, 4, seed=1), scores(2, 6, 3, seed=2)
    np.testing.assert_allclose(ej.attention(q, k, v, map=name), entropic.attention(q, k, v, map=name), atol=1e-12)


def test_rows_over_devices_are_not_gathered():
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")), ("rows",))
    rows = jax.sharding.PartitionSpec("rows")
    shard_map = getattr(jax, "shard_map", None) or sys.modules["jax"].experimental.shard_map.shard_map
    x = scores(8, 6)
    split = jax.jit(shard_map(ej.entmax, mesh=mesh, in_specs=rows, out_specs=rows))
    np.testing.assert_array_equal(split(x), ej.entmax(x))
    assert "all-gather" not in split.lower(x).compile().as_text()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: ej.softmax(x, temperature=-1.0), "softmax: temperature must be above 0 and finite, got -1"),
        (lambda x: ej.softmax(x, temp=1.0), "softmax: there is no parameter 'temp'; it has temperature"),
        (lambda x: ej.softmax(x, axis=2), "softmax: axis must be from -2 to 1, got 2"),
        (lambda x: ej.entmax(x, alpha=jnp.ones(5)), r"entmax: alpha must broadcast to \(3, 1\), got shape \(5,\)"),
        (lambda x: ej.top_k_softmax(x), "top_k_softmax: k is required"),
        (lambda x: ej.softmax_loss(x, jnp.zeros(2, int)), "softmax_loss: target must have shape"),
        (lambda x: ej.softmax_loss(x, jnp.zeros(3, int) + 9), "softmax_loss: .*target.* 9"),
        (lambda x: ej.kl_divergence(x, x[0]), "kl_divergence: q must have the shape"),
    ],
)
def test_errors_name_the_argument(call, said):
    with pytest.raises(Exception, match=said):
        jax.block_until_ready(call(jnp.ones((3, 4))))
