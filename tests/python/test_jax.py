"""isentropic.jax: the NumPy functions' bits, and derivatives in both directions against differences."""

import functools
import inspect
import os
import re

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402

import isentropic  # noqa: E402
import isentropic.jax as ej  # noqa: E402
import isentropic.jax.distributed as ejd  # noqa: E402
from isentropic import _descriptions as descriptions  # noqa: E402

try:
    from jax.extend.core import jaxprs_in_params
except ImportError:  # older releases
    from jax.core import jaxprs_in_params

# What takes the time here is XLA's compiler. It reads its flags at its first use, and aborts at one that it does not know.
if (0, 10) <= jax.__version_info__ < (0, 11):
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_use_fusion_emitters=false"
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_disable_most_optimizations", True)

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
    ("perturb_max", {"scale": 1.5}),
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
    ("smooth_accuracy_loss", {"map": "entmax", "alpha": 1.2}),
    ("surrogate_loss", {"map": ("top_k_softmax", {"k": 2})}),
    ("margin_softmax_loss", {"kind": "arc"}),
    ("distillation_loss", {"temperature": 2.0}),
    ("distillation_loss", {"divergence": "jsd", "beta": 0.3}),
    ("jsd_loss", {"beta": 0.3}),
]
MEASURES = [
    (name, {param["name"]: param["typical"] for param in one["params"] if param["required"]})
    for name, one in descriptions.MEASURES.items()
    if one["family"] in ("measure", "divergence")
]
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
        ours = getattr(isentropic, name)(x, axis=axis, **params)
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
    if params.get("noise") != "normal":  # its derivative is a kernel
        gradient = jax.jit(jax.grad(lambda x: (function(x) ** 2).sum()))
        twice = jax.jit(lambda x, v: jax.jvp(gradient, (x,), (v,))[1])(x, v)
        np.testing.assert_allclose(twice, (gradient(x + h * v) - gradient(x - h * v)) / (2 * h), atol=2e-7)


def no_x64():
    return jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64()


@pytest.mark.parametrize("offset", [1e4, 1e6])
@pytest.mark.parametrize(("name", "params"), [one for one in MAPS if one[0] not in ("taylor_softmax", "sigsoftmax")])
def test_an_offset_of_scores_changes_no_derivative(name, params, offset):
    x, g = np.round(scores(5, 8) * 4).astype("f") / 4, scores(5, 8, seed=1, dtype=np.float32)
    (key, value), *_ = params.items()

    def slopes(x):
        def total(x, value):
            y = getattr(ej, name)(x, **{**params, key: value})
            return (y * g[:, : y.shape[-1]]).sum() if y.ndim == 2 else (y * g[:, 0]).sum()

        # A parameter that is a word or a whole number has no derivative.
        if isinstance(value, (str, int)) or (name, key) in (("top_p_softmax", "p"), ("min_p_softmax", "p")):
            return [jax.grad(lambda x: total(x, value))(x)]
        return jax.grad(total, (0, 1))(x, jnp.float32(value))

    with no_x64():
        for here, there in zip(slopes(jnp.asarray(x)), slopes(jnp.asarray(x + np.float32(offset))), strict=True):
            np.testing.assert_allclose(there, here, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("scale", [1e-36, 1e-20, 1e15, 1e30])
@pytest.mark.parametrize("name", ["entropy_normalize", "gamma_for_entropy"])
def test_the_scale_of_scores_at_an_entropy(name, scale):
    x, g = scores(5, 8, dtype=np.float32), scores(5, 8, seed=1, dtype=np.float32)

    def total(x, entropy):
        found = getattr(ej, name)(x, entropy=entropy)
        return (found * g).sum() if name == "entropy_normalize" else (found.gamma * scale * g[:, 0]).sum()

    with no_x64():
        want = jax.grad(lambda x, e: total(x, e) / (1 if name == "entropy_normalize" else scale), (0, 1))(jnp.asarray(x), 1.2)
        found = jax.grad(total, (0, 1))(jnp.asarray(x * np.float32(scale)), 1.2)
        np.testing.assert_allclose(np.float64(found[0]) * scale, want[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[1], want[1], rtol=1e-4)


@pytest.mark.parametrize("order", [2, 4, 8])
def test_taylor_softmax_of_large_scores(order):
    x = np.array([[1e15, 0, 1], [3, -1, 30], [-1e12, 1e12, 2], [0.5, order + 0.5, -order - 0.5]], np.float32)
    g = scores(4, 3, dtype=np.float32)
    with no_x64():
        found = jax.grad(lambda x: (ej.taylor_softmax(x, order=order) * g).sum())(jnp.asarray(x))
    p = isentropic.taylor_softmax(x, order=order)
    np.testing.assert_allclose(found, isentropic.taylor_softmax_vjp(x, p, g, order=order), rtol=1e-5, atol=1e-7)


def test_no_derivative_at_infinite_gamma():
    p, v = jnp.array([0.2, 0.4, 0.4]), jnp.array([1.0, 2, 3])
    assert not jax.jvp(lambda p: ej.power_transform(p, gamma=np.inf), (p,), (v,))[1].any()
    assert not jax.jvp(lambda t: ej.power_transform(p, gamma=t), (jnp.full(1, np.inf),), (jnp.ones(1),))[1].any()


def test_logsumexp_of_rows_without_a_distribution():
    for row in ([-np.inf, -np.inf], [np.inf, 1.0], [-np.inf, 1.0]):
        x = jnp.array(row)
        for function in (lambda x: ej.logsumexp(x), lambda x: ej.logsumexp(x, temperature=jnp.full(1, 2.0))):
            assert jnp.isfinite(jax.grad(function)(x)).all() and jnp.isfinite(jax.jit(jax.hessian(function))(x)).all()


@pytest.mark.parametrize("settings", [{"input": "scores"}, {"input": "log_probs", "normalize": True}, {"normalize": True}])
@pytest.mark.parametrize("base", [None, 2.0])
def test_self_information_of_whole_rows(settings, base):
    function = lambda x: ej.self_information(x, base=base, **settings)  # noqa: E731
    x, v, h = np.exp(scores(4, 6)), scores(4, 6, seed=1), 1e-6
    change = jax.jit(lambda x: jax.jvp(function, (x,), (v,))[1])(x)
    np.testing.assert_allclose(change, (function(x + h * v) - function(x - h * v)) / (2 * h), atol=1e-7)
    twice = jax.jvp(jax.grad(lambda x: (function(x) ** 2).sum()), (x,), (v,))[1]
    gradient = jax.grad(lambda x: (function(x) ** 2).sum())
    np.testing.assert_allclose(twice, (gradient(x + h * v) - gradient(x - h * v)) / (2 * h), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "params"), PER_ROW)
def test_parameters_of_rows(name, params):
    (key, value), x, h = *params.items(), scores(4, 6), 1e-6
    given = np.full((4, 1), value)
    function = lambda t: getattr(ej, name)(x, **{key: t})  # noqa: E731
    expected = getattr(isentropic, name)(x, **{key: given})
    assert np.asarray(function(jnp.asarray(given))).tobytes() == np.asarray(expected).tobytes()
    slope = jax.jvp(function, (jnp.asarray(given),), (jnp.ones((4, 1)),))[1]
    np.testing.assert_allclose(slope, (function(given + h) - function(given - h)) / (2 * h), atol=1e-6)
    with no_x64():
        narrow = jax.grad(lambda t: (getattr(ej, name)(x.astype("f"), **{key: t}) ** 2).sum())(jnp.full((4, 1), value, "f"))
        assert narrow.dtype == jnp.float32 and np.isfinite(np.asarray(narrow)).all()


OF_ROWS = [
    (family, name, param["name"])
    for family in ("MAPS", "LOSSES", "MEASURES", "CONTROL")
    for name, one in getattr(descriptions, family).items()
    for param in one["params"]
    if param["per_row"] and hasattr(ej, name) and name != "normalize_density"  # whose weights are along the axis too
]


@pytest.mark.parametrize(("family", "name", "param"), OF_ROWS)
def test_parameters_of_rows_broadcast_along_every_axis(family, name, param):
    """With size 1 along the axis, as for NumPy, whatever axes they have."""
    one = getattr(descriptions, family)[name]
    (usual,) = (known["typical"] or known["default"] for known in one["params"] if known["name"] == param)
    usual = usual or {"label_smoothing": 0.1, "beta": 0.3}.get(param, 1.5)
    others = {known["name"]: known["typical"] for known in one["params"] if known["required"] and known["name"] != param}
    others |= {"kind": "arc"} if "margin" in name else {}
    others |= {"divergence": "jsd"} if param == "beta" and name == "distillation_loss" else {}
    x, y = scores(3, 4, 3, 5), scores(3, 4, 3, 5, seed=2)
    for axis in (0, 1, -1):
        lead = list(x.shape)
        lead[axis] = 1
        given = [x]
        if family == "MEASURES" or name == "power_transform":
            given = [isentropic.softmax(z, axis=axis) for z in (x, y)][: 2 if one["family"] == "divergence" else 1]
        if family == "LOSSES":
            target = y if one["target"] == "scores" else np.argmax(y, axis) * 0
            target = (y > 0).astype(int) if one["target"] not in ("scores", "class", "class or distribution") else target
            given = [np.tanh(x) if "margin" in name else x, target]
        for drop in range(4):  # leading axes left out, or of size 1
            shape = tuple(lead)[drop:]
            value = usual * (1 + 0.002 * np.arange(np.prod(shape)).reshape(shape))
            for array in (value, value[..., :1] if shape else value):
                want = getattr(isentropic, name)(*given, axis=axis, **others, **{param: array})
                got = getattr(ej, name)(*given, axis=axis, **others, **{param: jnp.asarray(array)})
                pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
                for a, b in pairs:
                    if b.dtype.kind == "f":  # the status of gamma is a word in NumPy
                        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_large_classes_are_not_ignored(dtype):
    x, target = scores(2, 300), np.array([0, np.iinfo(dtype).max], dtype)
    for function in (isentropic.softmax_loss, ej.softmax_loss):
        if dtype == np.uint8:
            assert function(x, target, ignore_index=-1)[1] != 0
        else:
            with pytest.raises(Exception, match="target must be"):
                np.asarray(function(x, target, ignore_index=-1))


def test_a_margin_that_is_a_whole_number_has_no_gradient():
    x, target = np.tanh(scores(4, 6)), np.array([0, 2, 5, 1])
    given = {"kind": "sphere", "margin": np.full((4, 1), 3.0), "scale": 5.0}
    want = isentropic.margin_softmax_loss(x, target, return_grad=True, **given)[1]
    np.testing.assert_array_equal(jax.grad(lambda x: ej.margin_softmax_loss(x, target, **given).sum())(x), want)
    assert np.isfinite(jax.hessian(lambda x: ej.margin_softmax_loss(x, target, **given).sum())(x)).all()


@pytest.mark.parametrize("wrong", [-1.0, 0.0, np.nan, np.inf])
def test_traced_numbers_out_of_range_give_nan(wrong):
    table, half = jnp.eye(2), jnp.full(2, 0.5)
    assert np.isnan(jax.jit(lambda t: ej.doubly_stochastic(table, temperature=t))(wrong)).all()
    assert np.isnan(jax.jit(lambda t: ej.doubly_stochastic(table, temperature=t, iterations=3))(wrong)).all()
    found = jax.jit(lambda t: ej.sinkhorn(half, half, table, epsilon=t))(wrong)
    assert np.isnan([np.asarray(one).sum() for one in found[:7]]).all() and not found.converged and np.isnan(found.epsilon)
    if wrong != 0:
        assert np.isnan(jax.jit(lambda t: ej.mean_field_entropy(jnp.arange(3.0), gamma=t))(wrong))
    far = np.float32([3e38, -3e38])
    assert ej.mean_field_entropy(far, gamma=0.0) == isentropic.mean_field_entropy(far, gamma=0.0)


def arguments(name):
    x = scores(4, 6)
    if name in ("distillation_loss", "jsd_loss"):
        return x, scores(4, 6, seed=3)
    return (np.tanh(x) if "margin" in name else x), np.array([0, 2, 5, 1])


@pytest.mark.parametrize(("name", "params"), LOSSES)
def test_losses(name, params):
    x, target = arguments(name)
    expected, dx = getattr(isentropic, name)(x, target, return_grad=True, **params)
    value, gradient = jax.jit(jax.value_and_grad(lambda x: getattr(ej, name)(x, target, **params).sum()))(x)
    assert np.asarray(getattr(ej, name)(x, target, **params)).tobytes() == expected.tobytes()
    np.testing.assert_allclose(value, expected.sum(), rtol=1e-14)
    np.testing.assert_array_equal(gradient, dx)


@pytest.mark.parametrize(("name", "params"), MEASURES)
def test_measures(name, params):
    two = descriptions.MEASURES[name]["family"] == "divergence"
    given = [isentropic.softmax(scores(4, 6, seed=seed)) for seed in range(2 if two else 1)]
    expected, *slopes = getattr(isentropic, name)(*given, return_grad=True, **params)
    function = lambda *given: getattr(ej, name)(*given, **params)  # noqa: E731
    assert np.asarray(jax.jit(function)(*given)).tobytes() == expected.tobytes()
    gradients = jax.grad(lambda *given: function(*given).sum(), tuple(range(len(given))))(*given)
    for gradient, slope in zip(gradients, slopes, strict=True):
        np.testing.assert_array_equal(gradient, slope)


LEARNED = [name for name, one in descriptions.MEASURES.items() if any(param["per_row"] for param in one["params"])]


@pytest.mark.parametrize("name", LEARNED)
def test_an_order_for_each_row(name):
    two = descriptions.MEASURES[name]["family"] == "divergence"
    x = [scores(6, 5, seed=seed) for seed in range(2 if two else 1)]
    alpha = np.array([[0.0], [0.3], [1.0], [1 + 1e-7], [3.0], [2.0 if name == "alpha_divergence" else np.inf]])
    function = lambda *given: getattr(ej, name)(*given[:-1], alpha=given[-1], input="scores")  # noqa: E731
    expected, *slopes, dalpha = getattr(isentropic, name)(*x, alpha=alpha, input="scores", return_grad=True, param_grad=True)
    assert np.asarray(jax.jit(function)(*x, alpha)).tobytes() == expected.tobytes()
    total = lambda *given: function(*given).sum()  # noqa: E731
    gradients = jax.jit(jax.grad(total, tuple(range(len(x) + 1))))(*x, alpha)
    for gradient, slope in zip(gradients, (*slopes, dalpha[:, None]), strict=True):
        np.testing.assert_array_equal(gradient, slope)
    np.testing.assert_array_equal(jax.vmap(function)(*(one[:, None] for one in x), alpha)[:, 0], expected)
    # Second derivatives are those of the gradients.
    gradient, inner = jax.jit(jax.grad(total, tuple(range(len(x) + 1)))), [1, 4]
    at = [one[inner] for one in (*x, alpha)]
    v = [scores(*one.shape, seed=5 + k) for k, one in enumerate(at)]
    moved = [gradient(*(one + sign * 1e-5 * by for one, by in zip(at, v, strict=True))) for sign in (1, -1)]
    for found, above, below in zip(jax.jvp(gradient, at, v)[1], *moved, strict=True):
        np.testing.assert_allclose(found, (above - below) / 2e-5, rtol=1e-6, atol=1e-8)
    one = jax.grad(lambda order: total(*x, order))(1.0)
    assert np.isfinite(one) and one.shape == ()


@pytest.mark.parametrize("name", [name for name, one in descriptions.MEASURES.items() if one["family"] == "divergence"])
def test_two_kinds_of_input(name):
    p, y = isentropic.softmax(scores(4, 6)).T.copy(), scores(4, 6, seed=1).T.copy()
    pair, params = ("probs", "scores"), {"alpha": np.full((1, 4), 1.7)} if name in LEARNED else {}
    function = lambda p, y: getattr(ej, name)(p, y, input=pair, axis=0, **params)  # noqa: E731
    expected, *slopes = getattr(isentropic, name)(p, y, input=pair, axis=0, return_grad=True, **params)
    np.testing.assert_allclose(jax.jit(function)(p, y), expected, rtol=1e-13)
    gradients = jax.jit(jax.grad(lambda p, y: function(p, y).sum(), (0, 1)))(p, y)
    for gradient, slope in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(gradient, slope, rtol=1e-10, atol=1e-13)
    y[0, 1] = np.nan
    assert np.isnan(function(p, y)).tolist() == [False, True, False, False]
    with pytest.raises(ValueError, match=f"^{name}: input must be one of .*, or a pair of them"):
        getattr(ej, name)(p, y, input=("probs", "logits"), axis=0, **params)


def test_several_orders_at_once():
    p = isentropic.softmax(scores(4, 6))
    want = isentropic.hill_number(p, order=[0, 1, 2])
    np.testing.assert_array_equal(ej.hill_number(p, order=[0, 1, 2]), want)
    np.testing.assert_array_equal(jax.jit(lambda p: ej.hill_number(p, order=np.array([0, 1, 2.0])))(p), want)


@pytest.mark.parametrize(("name", "params"), MAPS)
def test_vmap_is_one_call(name, params):
    x = scores(3, 4, 6)
    function = lambda x: getattr(ej, name)(x, **params)  # noqa: E731
    np.testing.assert_array_equal(jax.vmap(function)(x), function(x))
    assert "while" not in jax.jit(jax.vmap(function)).lower(x).as_text()


@pytest.mark.parametrize(("name", "params"), MAPS, ids=str)
def test_gradients_without_a_distribution_and_with_infinite_scores(name, params):
    """A NaN row's are NaN, those of infinite scores 0; as NumPy's, and in both directions."""
    x = np.array([[0.3, np.nan, -np.inf, 1], [-np.inf] * 4, [np.inf, 1, 2, -np.inf], [0.5, -np.inf, 1, 0.2]])
    function = lambda x: getattr(ej, name)(x, axis=-1, **params)  # noqa: E731
    y = getattr(isentropic, name)(x, axis=-1, **params)
    g = scores(*y.shape, seed=2)
    want = getattr(isentropic, f"{name}_vjp")(x, y, g, axis=-1, **params)
    want[0] = np.nan  # NumPy's log_softmax has 0 at -inf
    gradient = jax.vjp(function, jnp.asarray(x))[1](jnp.asarray(g))[0]
    np.testing.assert_allclose(gradient, want, atol=1e-13)
    forward = jax.jvp(function, (x,), (np.ones_like(x),))[1]
    assert np.isnan(forward[0]).all() and not np.any(forward[2]) and np.isfinite(forward[3]).all()
    if params.get("noise") != "normal":
        second = jax.jit(jax.hessian(lambda x: (function(x[None]) ** 2)[np.isfinite(y[3:])].sum()))(x[3])
        assert np.isfinite(second).all() and not second[1].any() and not second[:, 1].any()


@pytest.mark.parametrize(("name", "params"), PER_ROW, ids=str)
def test_gradients_in_parameters_of_rows_without_a_distribution(name, params):
    ((key, value),) = params.items()
    x = np.array([[0.3, np.nan, 1], [np.inf, 1, 2], [0.5, 0.2, 1]])
    function = lambda t: getattr(ej, name)(x, **{key: t}, axis=-1).reshape(3, -1)[:, 0].sum()  # noqa: E731
    if name == "log_softmax":
        function = lambda t: ej.log_softmax(x, temperature=t)[:, 0].sum()  # noqa: E731
    slope = jax.grad(function)(jnp.full((3, 1), value))[:, 0]
    assert np.isnan(slope[0]) and slope[1] == 0 and np.isfinite(slope[2])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("entropy_normalize", "entropy", 0.1),
        ("entropy_normalize", "entropy", 1.2),
        ("entropy_normalize", "entropy", 3.0),
        ("entropy_normalize", "perplexity", 20.0),
        ("entropy_clip", "min_entropy", 3.0),
        ("entropy_clip", "max_entropy", 0.1),
    ],
)
def test_rows_of_constants_and_at_clamped_targets_do_not_move(name, key, value, dtype):
    none = -np.inf
    rows = [
        [0.5] * 9,
        [2, 2, 0, -1],
        [2, 1, 0, none],
        [np.inf, 2, 0, -1],
        [np.inf, np.inf, 0, 1],
        [3.0],
        [1e6, 1e6 + 1, 1e6 - 2],
    ]
    x = np.array([row + [none] * (9 - len(row)) for row in [*rows, *scores(3, 9).tolist()]], dtype)
    g, given = scores(*x.shape, seed=1, dtype=dtype), np.full((len(x), 1), value)
    function = lambda x, t: getattr(ej, name)(x, **{key: t})  # noqa: E731
    y = getattr(isentropic, name)(x, **{key: value})
    dx, slope = getattr(isentropic, f"{name}_vjp")(x, y, g, **{key: given}, param_grad=key)
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == np.float64 else {"rtol": 2e-3, "atol": 2e-4}
    backward = jax.vjp(function, jnp.asarray(x), jnp.asarray(given))[1](jnp.asarray(g))
    np.testing.assert_allclose(backward[0], dx, **tolerance)
    np.testing.assert_allclose(backward[1][:, 0], slope, **tolerance)
    moved = jax.jit(lambda *moves: jax.jvp(function, (x, given), moves)[1])
    by_x, by_target = moved(g, np.zeros_like(given)), moved(np.zeros_like(x), np.ones_like(given))
    np.testing.assert_allclose(by_x, dx, **tolerance)
    np.testing.assert_allclose((by_target * g).sum(-1), slope, **tolerance)
    still = (slope == 0) & ~dx.any(-1)
    assert still[[0, 3, 4, 5]].all()
    assert not np.asarray(backward[0])[still].any() and not np.asarray(backward[1])[still].any()
    assert not np.asarray(by_x)[still].any() and not np.asarray(by_target)[still].any()


# Entries of mass 0: by -inf, by a threshold, by a cut, by underflow.
NONE = -np.inf
WITH_ZEROS = np.array(
    [[2, 1, 0, NONE], [3, 1, 0, -4], [2e4, 0, 1, 2], [2e4, 19999, 1, NONE], [2, 1.5, -2e4, NONE], [np.inf, 0, np.inf, 1]]
)
GIVES_ZEROS = [one for one in MAPS if one[0] not in ("log_softmax", "logsumexp")]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("name", "params"), GIVES_ZEROS, ids=str)
def test_an_infinite_gradient_where_a_mass_is_zero_is_not_read(name, params, dtype):
    """As the gradient of an entropy is. The results are NumPy's."""
    x, function = WITH_ZEROS.astype(dtype), lambda x: getattr(ej, name)(x, **params)
    y, backward = jax.vjp(function, x)
    assert (y == 0).any()
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-5}
    for other in (np.inf, NONE, np.nan):
        g = np.where(np.asarray(y) > 0, scores(*x.shape, seed=1), other).astype(dtype)
        want = getattr(isentropic, f"{name}_vjp")(x, np.asarray(y), g, **params)
        np.testing.assert_allclose(backward(g)[0], want, **tolerance)
    entropy = lambda x: ej.entropy(function(x))  # noqa: E731
    ways = [jax.grad(entropy), jax.grad(lambda x: ej.kl_divergence(function(x), np.full(4, 0.25, dtype)))]
    if params.get("noise") != "normal" and dtype == np.float64:
        ways += [jax.hessian(entropy), jax.jacrev(jax.grad(entropy))]
    for found in jax.jit(lambda x: [jax.vmap(way)(x) for way in ways])(x):
        assert np.isfinite(found).all()


@pytest.mark.parametrize(("name", "params"), [one for one in PER_ROW if one[0] not in ("log_softmax", "logsumexp")], ids=str)
def test_an_infinite_gradient_where_a_mass_is_zero_in_a_parameter(name, params):
    ((key, value),), x = params.items(), WITH_ZEROS
    y, backward = jax.vjp(lambda t: getattr(ej, name)(x, **{key: t}), jnp.full((len(x), 1), value))
    g = scores(*x.shape, seed=1)
    np.testing.assert_allclose(backward(jnp.where(y > 0, g, jnp.inf))[0], backward(jnp.where(y > 0, g, 0))[0], atol=1e-14)


def test_an_infinite_gradient_where_a_mass_is_zero_elsewhere():
    x, p = WITH_ZEROS, np.array([[0, 0.25, 0.75, 0], [1, 0, 0, 0], [0, 1e-300, 1, 1e-320]])
    parts = lambda name: split(lambda x: getattr(ejd, name)(x, axis_name="parts"), x, (None, "parts"), 2)  # noqa: E731
    for function, given in (
        (lambda x: ej.gumbel_softmax(x, seed=1), x),
        (lambda p: ej.power_transform(p, gamma=2.0), p),
        (lambda x: ej.ratio_map(x, jnp.exp), x[[0, 1, 5]]),
        *((parts(name), x) for name in ("softmax", "sparsemax", "entmax")),
    ):
        y, backward = jax.vjp(function, given)
        g = scores(*y.shape, seed=1)
        np.testing.assert_allclose(backward(jnp.where(y > 0, g, jnp.inf))[0], backward(jnp.where(y > 0, g, 0))[0], atol=1e-14)


def test_gradients_of_nan_rows_elsewhere():
    x, g = jnp.array([[0.3, np.nan, 1], [0.5, 0.2, 0.3]]), np.array([1.0, 2, 4])
    for function in (
        lambda x: ej.mean_field_entropy(x).sum(),
        lambda x: (ej.ratio_map(x, jnp.square) * g).sum(),
        lambda x: (ej.gumbel_softmax(x, seed=1) * g).sum(),
        lambda x: (ej.power_transform(x, gamma=2.0) * g).sum(),
    ):
        gradient = jax.grad(function)(x)
        assert np.isnan(gradient[0]).all() and np.isfinite(gradient[1]).all()


def test_perturb_max_is_vectorised_with_its_derivatives():
    x, g = scores(3, 5), scores(5, seed=1)
    for noise in ("gumbel", "normal"):
        function = lambda x: ej.perturb_max(x, noise=noise)  # noqa: B023, E731
        value = lambda x: (function(x) * g).sum()  # noqa: B023, E731
        want = jnp.stack([jax.grad(value)(one) for one in x])
        np.testing.assert_allclose(jax.vmap(jax.grad(value))(x), want, atol=1e-15)
        assert "while" not in jax.jit(jax.vmap(jax.grad(value))).lower(x).as_text()
        forward, backward = jax.jit(lambda x: (jax.jacfwd(function)(x), jax.jacrev(function)(x)))(x[0])  # noqa: B023
        np.testing.assert_allclose(forward, backward, atol=1e-13)
        np.testing.assert_allclose(g @ forward, want[0], atol=1e-13)
    for hessian in (jax.hessian, lambda f: jax.jacrev(jax.grad(f))):
        with pytest.raises(NotImplementedError, match=r"isentropic.jax: perturb_max has no second derivative"):
            hessian(value)(x[0])


def test_vectorised_draws_are_those_of_separate_calls():
    x, sampler = np.zeros((4, 3)), ej.Sampler([("top_p", 0.9)], seed=1)
    for draw in (lambda x: ej.sample(x, seed=1), lambda x: ej.gumbel_softmax(x, seed=1), lambda x: sampler.sample(x, size=3)):
        np.testing.assert_array_equal(jax.vmap(draw)(x), [draw(one) for one in x])
    of_rows = jax.vmap(lambda x, stream: ej.sample(x, seed=1, stream=stream))
    np.testing.assert_array_equal(of_rows(x, jnp.arange(4)), isentropic.sample(x, seed=1))
    assert "while" not in jax.jit(of_rows).lower(x, jnp.arange(4)).as_text()


@pytest.mark.parametrize("wide", [True, False])
def test_arguments_of_draws_are_those_of_numpy(wide):
    """The same draws, and the same errors at once."""
    with integers_of_64_bits(wide):
        compare_arguments_of_draws()


def integers_of_64_bits(wide):
    return jax.enable_x64(wide) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(wide)


def compare_arguments_of_draws():
    x, drawn = np.random.default_rng(4).normal(size=(2, 3, 5)).astype(np.float32), set()
    ours, theirs = ej.Sampler([("top_k", 4)], seed=1), isentropic.Sampler([("top_k", 4)], seed=1)
    calls = [
        (ej.sample, isentropic.sample, ("seed", "stream", "position", "size")),
        (ej.gumbel_softmax, isentropic.gumbel_softmax, ("seed", "stream")),
        (ours.sample, theirs.sample, ("stream", "position", "size")),
    ]
    for key, value in [
        ("seed", -1),
        ("seed", 1.5),
        ("seed", "a"),
        ("seed", 2**64),
        ("seed", 2**64 - 1),
        ("stream", -1),
        ("stream", 1.5),
        ("stream", None),
        ("stream", 2**64),
        ("stream", 2**64 - 1),
        ("stream", np.array(7)),
        ("stream", [4, 5, 6]),
        ("stream", [[4], [5]]),
        ("stream", np.arange(6, dtype=np.uint8)),
        ("stream", [4, 5]),
        ("stream", [-1, 5, 6]),
        ("stream", [1.5, 5, 6]),
        ("position", -1),
        ("position", 1.5),
        ("position", 2**64 - 1),
        ("position", 2**64),
        ("size", -1),
        ("size", 1.5),
        ("size", 2),
    ]:
        for call, reference, known in calls:
            given = {key: value} if call == ours.sample else {"seed": 1, key: value}
            if key not in known:
                continue
            try:
                want = reference(x, **given)
            except (TypeError, ValueError) as error:
                with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
                    call(x, **given)
            else:
                np.testing.assert_array_equal(call(x, **given), want)
                drawn.add(key)
    assert drawn == {"seed", "stream", "position", "size"}
    with pytest.raises(ValueError, match=r"^sample: position must be at least 0 and below 18446744073709551614, got"):
        ej.sample(x, seed=1, position=2**64 - 2, size=3)


def test_streams_that_are_traced():
    """One for each row, or the first row's; what is not an integer of 32 or 64 bits, or has another shape, is refused."""
    x = np.random.default_rng(4).normal(size=(2, 3, 5)).astype(np.float32)
    draw = jax.jit(lambda stream: ej.sample(x, seed=1, stream=stream))
    for stream in (7, np.array([4, 5, 6]), np.array([[4], [5]])):
        np.testing.assert_array_equal(draw(stream), isentropic.sample(x, seed=1, stream=stream))
    with pytest.raises(TypeError, match=r"^sample: stream, traced, must be of int32 or int64, got dtype float32"):
        draw(np.float32(7))
    with pytest.raises(ValueError, match=r"^sample: stream must be an integer or an array that broadcasts to \(2, 3\)"):
        draw(np.arange(2))


def test_streams_beyond_32_bits():
    x, streams = np.random.default_rng(4).normal(size=(2, 5)).astype(np.float32), np.array([2**40, 2**64 - 1], np.uint64)
    np.testing.assert_array_equal(ej.sample(x, seed=1, stream=2**40), isentropic.sample(x, seed=1, stream=2**40))
    with integers_of_64_bits(True):
        np.testing.assert_array_equal(ej.sample(x, seed=1, stream=streams), isentropic.sample(x, seed=1, stream=streams))
    with integers_of_64_bits(False):
        text = r"^sample: stream, an array, must be below 2\*\*31 unless jax_enable_x64 is set, got 18446744073709551615"
        with pytest.raises(ValueError, match=text):
            ej.sample(x, seed=1, stream=streams)


def test_bfloat16():
    x = jnp.asarray(scores(3, 5), jnp.bfloat16)
    assert ej.entmax(x).dtype == jnp.bfloat16 == jax.grad(lambda x: ej.entmax(x)[:, 0].sum())(x).dtype
    assert ej.softmax_loss(x, jnp.zeros(3, int)).dtype == jnp.float32


def test_entropy_and_draws():
    x = scores(5, 9)
    ours, theirs = isentropic.gamma_for_entropy(x, entropy=1.1), jax.jit(lambda x: ej.gamma_for_entropy(x, entropy=1.1))(x)
    assert ours.gamma.tobytes() == np.asarray(theirs.gamma).tobytes() and not theirs.status.any()
    for size in (None, 4):
        drawn = jax.jit(lambda x: ej.sample(x, size=size, seed=7, stream=2))(x)  # noqa: B023
        np.testing.assert_array_equal(drawn, isentropic.sample(x, size=size, seed=7, stream=2))


def test_derivatives_of_gamma():
    x, target = scores(4, 6), np.full((4, 1), 1.1)
    x[1, 2] = -np.inf
    finite, g = np.isfinite(x), scores(4, seed=3)
    weighted = lambda found: (found.gamma * g + found.entropy * g[::-1]).sum()  # noqa: E731
    placed = lambda x: jnp.where(finite, x, -jnp.inf)  # noqa: E731
    x = np.where(finite, x, 0.0)
    differentiated(lambda x, t: weighted(ej.gamma_for_entropy(placed(x), entropy=t)), x, target)
    differentiated(lambda x, t: weighted(ej.gamma_for_entropy(placed(x), perplexity=t)), x, target + 1)
    differentiated(lambda x: weighted(ej.gamma_for_entropy(jax.nn.softmax(placed(x)), entropy=1.1, input="probs")), x)
    gradient = jax.grad(lambda x: weighted(ej.gamma_for_entropy(x, entropy=1.1)))
    twice = scores(4, 6, seed=5)
    differentiated(lambda x: (gradient(x) * twice).sum(), scores(4, 6, seed=1), atol=1e-6)
    # What stays where it is: the entropy moves, gamma does not.
    bound = lambda x: ej.gamma_for_entropy(x, entropy=0.1, gamma_range=(0.5, 0.7))  # noqa: E731
    assert not jax.jit(jax.grad(lambda x: bound(x).gamma.sum()))(x).any()
    differentiated(lambda x: bound(x).entropy.sum(), scores(4, 6))
    # A row that is constant, or has +inf, has no derivatives.
    constant = np.array([[np.inf, 2, 0, -1], [0.7, 0.7, 0.7, 0.7]])
    assert not jax.jit(jax.grad(lambda x: weighted(ej.gamma_for_entropy(jnp.tile(x, (2, 1)), entropy=0.1))))(constant).any()
    lost = jax.jit(jax.grad(lambda x: ej.gamma_for_entropy(x, entropy=0.1).gamma.sum()))(np.full((1, 3), np.nan))
    assert np.isnan(lost).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.0, 1 + 1e-7, 1.0011, 1.01, 1.2, 1.5, 2.0, 0.7, 3.0])
def test_the_gradient_in_alpha_near_1(alpha, dtype):
    x, g = 2 * scores(3, 9, dtype=dtype), scores(3, 9, seed=1, dtype=dtype)
    given = np.full((3, 1), alpha)
    y = isentropic.entmax(x.astype(np.float64), alpha=given)
    _, want = isentropic.entmax_vjp(x.astype(np.float64), y, g.astype(np.float64), alpha=given, param_grad=True)
    got = jax.grad(lambda a: (ej.entmax(x, alpha=a) * g).sum())(jnp.asarray(given, dtype))
    tolerance = 1e-12 if dtype == np.float64 else 2e-5
    np.testing.assert_allclose(got, want.reshape(3, 1), rtol=tolerance, atol=tolerance)


# Where there are no kernels.


def test_a_gpu_is_refused_by_name():
    jax.ffi.register_ffi_target("isentropic_refuses", isentropic._core.xla_refuse(), platform="cpu")
    shape = jax.ShapeDtypeStruct((2, 3), np.float32)
    with pytest.raises(Exception, match=r"isentropic.jax: entmax has no kernel for GPUs.*ISENTROPIC_STRICT=0"):
        jax.block_until_ready(jax.ffi.ffi_call("isentropic_refuses", shape)(np.ones((2, 3), "f"), operation="entmax"))


def test_what_is_copied_to_the_cpu(monkeypatch):
    """As on a GPU, where the same callbacks run."""
    x, labels = scores(3, 5), np.array([0, 2, 1])
    calls = {
        "entmax": lambda x: ej.entmax(x, alpha=1.3),
        "perturb_max": lambda x: ej.perturb_max(x, noise="normal"),
        "softmax_loss": lambda x: ej.softmax_loss(x, labels),
        "wasserstein_1d": lambda x: ej.wasserstein_1d(x, x[:, ::-1] + 1.0),
    }
    wanted = {name: jax.value_and_grad(lambda x, f=f: (f(x) ** 2).sum())(x) for name, f in calls.items()}
    for name, function in calls.items():
        lowered = jax.jit(function).trace(x).lower(lowering_platforms=("cuda",)).as_text()
        assert "@isentropic" in lowered and "callback" not in lowered, name
    monkeypatch.setenv("ISENTROPIC_STRICT", "0")
    jax.clear_caches()
    for name, function in calls.items():
        assert "pure_callback" in str(jax.make_jaxpr(function)(x)), name
        assert "@isentropic" in jax.jit(function).lower(x).as_text(), name  # the CPU has kernels
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax.lax, "platform_dependent", lambda *given, cpu, default: default(*given))
    jax.clear_caches()
    for name, function in calls.items():
        with pytest.warns(
            UserWarning, match=rf"isentropic.jax: {name} has no kernel for gpu, its arrays are copied to the CPU"
        ):
            function(x)
        value, slope = jax.jit(jax.value_and_grad(lambda x, f=function: (f(x) ** 2).sum()))(x)
        np.testing.assert_allclose(value, wanted[name][0], rtol=1e-15)
        np.testing.assert_allclose(slope, wanted[name][1], atol=1e-15)
    each = jax.vmap(lambda x: ej.entmax(x, alpha=1.3))(x)
    assert np.asarray(each).tobytes() == isentropic.entmax(x, alpha=1.3).tobytes()
    half = ej.entmax(jnp.asarray(x, jnp.bfloat16))
    with pytest.raises(Exception, match=r"softmax_loss: .*target.* 9"):
        jax.block_until_ready(ej.softmax_loss(x, labels * 0 + 9))
    monkeypatch.undo()
    jax.clear_caches()
    assert np.asarray(half).tobytes() == np.asarray(ej.entmax(jnp.asarray(x, jnp.bfloat16))).tobytes()


ATTENTION = [
    {},
    {"map": "entmax"},
    {"map": ("entmax", {"alpha": 1.3}), "causal": True},
    {"scale": "entropy_invariant", "causal": True, "train_length": 4},
    {"scale": "entropy_invariant", "kappa": 2.0, "mask": "bool"},
    {"scale": 0.3, "mask": "float"},
    {"scale": "log_n", "kappa": np.linspace(0.5, 2, 4)[:, None, None], "causal": True},
    {"scale": "log_n", "sinks": np.linspace(-1, 1, 4), "map": "entmax", "mask": "bool"},
    {"sinks": scores(4, 5, 1, seed=9), "softcap": 0.7, "causal": True},
    {"sinks": np.zeros(4), "softcap": 0.7, "mask": "float"},
]


@pytest.mark.parametrize("options", ATTENTION, ids=str)
def test_attention(options):
    """Four heads of queries share two of keys; one query sees nothing."""
    q, k, v = scores(2, 4, 5, 4), scores(2, 2, 6, 4, seed=1), scores(2, 2, 6, 3, seed=2)
    seen = np.random.default_rng(3).random((2, 4, 5, 6)) < 0.7
    seen[0, 1, 2] = False
    masks = {"bool": seen, "float": np.where(seen, scores(5, 6, seed=4), -np.inf)}
    given = {**options, **({"mask": masks[options["mask"]]} if "mask" in options else {})}
    both = {"return_weights": True, "return_entropy": True, **given}
    ours = jax.jit(lambda q, k, v: ej.attention(q, k, v, **both))(q, k, v)
    for one, other in zip(ours, isentropic.attention(q, k, v, **both), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    if given.get("map") is None and given.get("mask") is None:
        g = scores(2, 4, 5, 3, seed=5)
        gradients = jax.grad(lambda q, k, v: (ej.attention(q, k, v, **given) * g).sum(), (0, 1, 2))(q, k, v)
        for one, other in zip(gradients, isentropic.attention_vjp(q, k, v, g, **given)[:3], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-11)


def test_keys_seen():
    for causal in (False, True):
        np.testing.assert_array_equal(ej.keys_seen(3, 5, causal=causal), isentropic.keys_seen(3, 5, causal=causal))
        mask = np.random.default_rng(0).random((2, 3, 5)) < 0.6
        for given in (mask, np.where(mask, 0.5, -np.inf)):
            found = jax.jit(lambda mask: ej.keys_seen(3, 5, causal=causal, mask=mask))(given)  # noqa: B023
            np.testing.assert_array_equal(found, isentropic.keys_seen(3, 5, causal=causal, mask=given))


def largest(jaxpr):
    """The number of entries of the largest array in a program and its parts."""
    found = [int(np.prod(one.aval.shape)) for equation in jaxpr.eqns for one in equation.outvars]
    parts = [part for equation in jaxpr.eqns for part in jaxprs_in_params(equation.params)]
    return max([*found, *(largest(part) for part in parts)], default=0)


@pytest.mark.parametrize("options", ATTENTION, ids=str)
def test_attention_without_all_scores(options, monkeypatch):
    """Some queries at a time: the same results and gradients."""
    q, k, v, g = scores(2, 4, 25, 4), scores(2, 2, 26, 4, seed=1), scores(2, 2, 26, 3, seed=2), scores(2, 4, 25, 3, seed=5)
    seen = np.random.default_rng(3).random((2, 4, 25, 26)) < 0.7
    seen[0, 1, 2] = False
    masks = {"bool": seen, "float": np.where(seen, scores(25, 26, seed=4), -np.inf)}
    given = {**options, **({"mask": masks[options["mask"]]} if "mask" in options else {})}
    if np.ndim(given.get("sinks")) > 1:
        given["sinks"] = scores(4, 25, 1, seed=9)
    moving = {"q": q, "k": k, "v": v} | {key: given.pop(key) for key in ("sinks", "kappa") if np.ndim(given.get(key, 0)) > 0}

    def loss(x):
        further = {key: one for key, one in x.items() if key not in "qkv"}
        out, entropy = ej.attention(x["q"], x["k"], x["v"], return_entropy=True, **given, **further)
        return (out * g).sum() + (entropy * g[..., 0]).sum(), (out, entropy)

    def run():
        return jax.jit(jax.value_and_grad(lambda x: loss(x), has_aux=True))(moving)

    want = run()
    monkeypatch.setattr("isentropic.jax._attention.SCORES", 8 * 26 * 7)
    for one, other in zip(jax.tree.leaves(run()), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11)
    given.pop("mask", None)  # which is itself as large
    assert largest(jax.make_jaxpr(jax.grad(lambda x: loss(x)[0]))(moving).jaxpr) < 8 * 25 * 26


@pytest.mark.parametrize("map", ["softmax", "entmax", "sparsemax"])
def test_attention_learns_kappa_and_sinks(map):
    q, k, v, g = (scores(2, 3, *shape, seed=i) for i, shape in enumerate(((5, 4), (6, 4), (6, 3), (5, 3))))
    kappa, sinks = np.linspace(0.5, 1, 3)[:, None, None], np.linspace(-1, 1, 3)
    seen = np.random.default_rng(3).random((5, 6)) < 0.7
    seen[2] = False
    options = {"map": map, "scale": "log_n", "mask": seen, "softcap": 1.5}
    attend = lambda *x: ej.attention(*x[:3], kappa=x[3], sinks=x[4], **options)  # noqa: E731
    found = jax.jit(jax.grad(lambda *x: (attend(*x) * g).sum(), tuple(range(5))))(q, k, v, kappa, sinks)
    *wanted, dkappa = isentropic.attention_vjp(q, k, v, g, kappa=kappa, sinks=sinks, param_grad="kappa", **options)
    for one, other in zip(found, [*wanted[:3], dkappa.sum((0, 2)).reshape(3, 1, 1), wanted[3]], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11)
    # A sink that is NaN, or a kappa out of its range, makes its queries NaN and no others.
    spoilt = jax.jit(attend)(q, k, v, np.where(kappa < 0.6, -1, kappa), np.where(sinks > 0.5, np.nan, sinks))
    good = np.asarray(attend(q, k, v, kappa, sinks))
    np.testing.assert_allclose(spoilt[:, 1], good[:, 1], atol=1e-15)
    assert np.isnan(spoilt[:, [0, 2]][:, :, seen.any(-1)]).all()


def test_attention_with_special_numbers():
    """The kernel's results and gradients, whatever is NaN, and whatever values are infinite."""
    rng = np.random.default_rng(0)
    for turn, name in enumerate(["softmax", "entmax", "sparsemax", "taylor_softmax"] * 3):
        q, k, v, g = (rng.standard_normal((2, *shape)) for shape in ((4, 3), (5, 3), (5, 2), (4, 2)))
        for x, share, special in ((q, 0.02, [np.nan]), (k, 0.05, [np.nan]), (v, 0.08, [np.nan, np.inf, -np.inf])):
            there = rng.random(x.shape) < share
            x[there] = rng.choice(special, there.sum())
        mask = rng.random((2, 4, 5)) < 0.6
        if turn % 2:
            mask = np.where(mask, rng.standard_normal(mask.shape), -np.inf)
            mask[0, 1, 2] = np.nan
        options = {"map": name, "causal": turn % 5 == 0, "mask": mask}
        returned = {"return_weights": True, "return_entropy": True, **options}
        got, pull = jax.vjp(lambda q, k, v: ej.attention(q, k, v, **returned), q, k, v)  # noqa: B023
        for one, other in zip(got, isentropic.attention(q, k, v, **returned), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)
        gradients = pull((jnp.asarray(g), *map(jnp.zeros_like, got[1:])))
        for x, one, other in zip((q, k, v), gradients, isentropic.attention_vjp(q, k, v, g, **options), strict=True):
            known, other = np.isfinite(x), np.where(np.isinf(other), np.nan, other)
            np.testing.assert_allclose(np.asarray(one)[known], other[known], rtol=1e-8, atol=1e-8)


def test_hidden_keys_change_no_second_derivative():
    q, k, v = scores(4, 3), scores(5, 3, seed=1), scores(5, 2, seed=2)
    spoilt = [np.where(np.arange(5)[:, None] == 2, np.nan, x) for x in (k, v)]
    attend = lambda q, k, v: ej.attention(q, k, v, mask=np.arange(5) != 2)  # noqa: E731
    hessian = jax.jit(jax.hessian(lambda q, k, v: (attend(q, k, v) ** 2).sum(), (0, 1, 2)))
    for one, other in zip(jax.tree.leaves(hessian(q, *spoilt)), jax.tree.leaves(hessian(q, k, v)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    mapped = jax.jit(jax.vmap(attend))(*(np.stack([x] * 2) for x in (q, *spoilt)))
    np.testing.assert_allclose(mapped[1], attend(q, k, v), atol=1e-14)


X = np.ones((2, 3, 4))
REFUSED = [
    ((X, X, X), {"mask": np.ones((3, 3), int)}),
    ((X, X, X), {"mask": np.ones((2, 3), bool)}),
    ((X, X, X), {"mask": np.zeros((5, 2, 3, 3))}),
    ((X, X, X), {"map": "log_softmax"}),
    ((X, X, X), {"map": "logsumexp"}),
    ((X, X, X), {"alpha": 2.0}),
    ((X, X, X), {"map": "entmax", "alpha": -1.0}),
    ((X, X, X), {"scale": np.nan}),
    ((X, X, X), {"scale": np.inf}),
    ((X, X, X), {"scale": "linear"}),
    ((X, X, X), {"train_length": 1}),
    ((X, X, X), {"train_length": -2}),
    ((X, X, X), {"kappa": 0}),
    ((X, X, X), {"kappa": np.nan, "scale": "log_n"}),
    ((X, X, X), {"kappa": 1.5}),
    ((X, X, X), {"kappa": np.ones(5), "scale": "log_n"}),
    ((X, X, X), {"softcap": 0}),
    ((X, X, X), {"sinks": np.ones(5)}),
    ((X, X, X), {"sinks": np.ones((5, 1))}),
    ((X, X, X), {"causal": "no"}),
    ((X[0, 0], X, X), {}),
    ((X, X[..., :3], X), {}),
    ((X, X, X[:, :2]), {}),
    ((X, X[[0, 0, 0]], X[[0, 0, 0]]), {}),
]


@pytest.mark.parametrize(("arrays", "options"), REFUSED)
def test_attention_refuses_what_numpys_refuses(arrays, options):
    with pytest.raises((TypeError, ValueError)) as theirs:
        isentropic.attention(*arrays, **options)
    with pytest.raises(type(theirs.value), match=f"^{re.escape(str(theirs.value))}$"):
        ej.attention(*arrays, **options)
    if options.keys() <= {"scale", "causal"}:
        with pytest.raises(type(theirs.value), match=r"^linear_attention: "):
            ej.linear_attention(*arrays, **options)


def test_attention_takes_what_numpys_takes():
    """Nested lists, halves, no columns, no keys, a scale for each query."""
    lists = [[1.0, 2.0]], [[1, 2], [3, 4]], [[1.0], [2.0]]
    for name in ("attention", "linear_attention"):
        ours, theirs = getattr(ej, name), getattr(isentropic, name)
        halves = [scores(3, 4, dtype=np.float16) for _ in range(3)]
        found, of_halves = jax.jit(lambda: (ours(*lists), ours(*halves)))()  # noqa: B023
        np.testing.assert_allclose(found, theirs(*lists), rtol=1e-12)
        assert of_halves.dtype == np.float16
        q, k, v = scores(3, 2), scores(4, 2, seed=1), scores(4, 2, seed=2)
        for causal in (False, True):
            several = (q[:, :0], k[:, :0], v), (q, k[:0], v[:0]), (q, k[:1], v[:1])
            found = jax.jit(lambda: [ours(*given, causal=causal) for given in several])()  # noqa: B023
            for one, given in zip(found, several, strict=True):
                np.testing.assert_allclose(one, theirs(*given, causal=causal), atol=1e-12)
        scale = jnp.asarray([[0.5], [1.0], [2.0]])
        each = [theirs(q[i : i + 1], k, v, scale=float(scale[i, 0]))[0] for i in range(3)]
        np.testing.assert_allclose(jax.jit(lambda: ours(q, k, v, scale=scale))(), each, atol=1e-12)  # noqa: B023
        with pytest.raises(ValueError, match=rf"^{name}: scale must be .* broadcasts to \(3, 1\), .* got shape \(2, 1\)"):
            ours(q, k, v, scale=scale[:2])
    mean = np.broadcast_to(v.mean(0), (3, 2))
    found = jax.jit(lambda: ej.attention(q[:, :0], k[:, :0], v, scale="entropy_invariant"))()
    np.testing.assert_allclose(found, mean, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("spoilt", range(3))
def test_linear_attention_with_a_nan(spoilt, causal):
    given = [scores(3, 2), scores(3, 2, seed=1), scores(3, 2, seed=2)]
    given[spoilt][1, 0] = np.nan
    ours = jax.jit(lambda: ej.linear_attention(*given, causal=causal))()
    np.testing.assert_allclose(ours, isentropic.linear_attention(*given, causal=causal), atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention(causal):
    q, k, v = scores(2, 4, 7, 3), scores(2, 2, 6, 3, seed=1), scores(2, 2, 6, 3, seed=2)
    ours = jax.jit(lambda: ej.linear_attention(q, k, v, causal=causal, scale=0.4))()
    np.testing.assert_allclose(ours, isentropic.linear_attention(q, k, v, causal=causal, scale=0.4), atol=1e-12)
    q = np.float32(q) * np.float32([1e20, 1e-40, 1e30, 1e37])[:, None, None]  # their squares overflow
    k, v = np.float32(k), np.float32(v)
    ours = jax.jit(lambda: ej.linear_attention(q, k, v, causal=causal))()
    np.testing.assert_allclose(ours, isentropic.linear_attention(q, k, v, causal=causal), atol=1e-5)


def test_entries_estimates_and_ratios():
    p = masses(3, 5)
    for name, params in (("self_information", {"base": 2.0}), ("binary_entropy", {})):
        function = lambda p: getattr(ej, name)(p, **params)  # noqa: B023, E731
        expected, slope = getattr(isentropic, name)(p, return_grad=True, **params)
        assert np.asarray(jax.jit(function)(p)).tobytes() == expected.tobytes()
        np.testing.assert_array_equal(jax.grad(lambda p: function(p).sum())(p), slope)  # noqa: B023
    x = scores(5, 6)
    x[0, 1], x[1, 2], x[2], x[3, 3] = -np.inf, np.inf, -np.inf, np.nan
    np.testing.assert_allclose(ej.mean_field_entropy(x, gamma=0.7), isentropic.mean_field_entropy(x, gamma=0.7), rtol=1e-14)
    far = np.float32(1e6 + x)  # the differences of such scores are all that counts
    np.testing.assert_allclose(ej.mean_field_entropy(far), isentropic.mean_field_entropy(far), rtol=1e-6)
    differentiated(lambda x, t: ej.mean_field_entropy(x, gamma=t).sum(), scores(4, 6), np.array(0.7))
    for shape in ((3, 0), (0, 3), (0, 0)):
        nothing = jnp.zeros(shape)
        np.testing.assert_array_equal(ej.mean_field_entropy(nothing), np.full(shape[0], np.nan))
        assert jax.grad(lambda x: ej.mean_field_entropy(x).sum())(nothing).shape == shape
    for axis in (-1, 0):
        np.testing.assert_allclose(
            ej.ratio_map(x, jnp.square, axis=axis), isentropic.ratio_map(x, np.square, axis=axis), rtol=1e-14
        )


STEPS = [("temperature", 0.8), ("top_k", 5), ("top_p", 0.95), ("min_p", 0.02), ("typical_p", 0.9), ("entropy_clip", (0.5, 1))]


OPEN = [[("entropy_clip", (None, 1.1))], [("entropy_clip", (1.9, None))]]


@pytest.mark.parametrize("steps", [STEPS, [("entropy", 1.2)], *OPEN, []], ids=str)
def test_chains(steps):
    x, ours, theirs = scores(20, 9), ej.Sampler(steps, seed=3), isentropic.Sampler(steps, seed=3)
    assert np.asarray(jax.jit(ours.probs)(x)).tobytes() == theirs.probs(x).tobytes()
    for options in ({}, {"size": 3, "stream": 5, "position": 2}):
        drawn = jax.jit(lambda x: ours.sample(x, **options))(x)  # noqa: B023
        np.testing.assert_array_equal(drawn, theirs.sample(x, **options))
    each = [theirs.sample(one) for one in x.reshape(4, 5, 9)]
    np.testing.assert_array_equal(jax.vmap(ours.sample)(x.reshape(4, 5, 9)), each)
    with pytest.raises(ValueError, match="top_k"):
        ej.Sampler([("top_k", 0)])


OF_TABLES = ("joint_entropy", "conditional_entropy", "mutual_information")
TWICE = [
    *((name, {"input": kind}) for name in ("perplexity", *OF_TABLES) for kind in ("probs", "scores")),
    *((name, {"input": "log_probs"}) for name in ("self_information", "binary_entropy")),
    ("renyi_entropy", {"alpha": 1.4, "input": "scores"}),
    ("tsallis_entropy", {"alpha": 0.7, "normalize": True}),
    ("kl_divergence", {"input": "scores"}),
    ("js_distance", {"base": 2.0}),
    ("varentropy", {"input": "scores"}),
    ("hill_number", {"order": 2.0}),
    ("hellinger_distance", {"input": "scores"}),
    ("chi_squared_divergence", {"smoothing": 0.1}),
    ("jeffreys_divergence", {}),
    ("renyi_divergence", {"alpha": 0.5, "input": "scores"}),
    ("alpha_divergence", {"alpha": 2.0, "input": "scores", "smoothing": 0.1}),
    ("normalized_mutual_information", {"average": "geometric"}),
    ("variation_of_information", {"input": "scores"}),
    ("margin_softmax_loss", {"kind": "arc"}),
    ("distillation_loss", {"temperature": 2.0}),
    ("jsd_loss", {}),
    ("softmax_loss", {"label_smoothing": np.full((2, 1), 0.1)}),
]


@pytest.mark.parametrize(("name", "params"), TWICE, ids=str)
def test_second_derivatives_of_numbers_are_those_of_their_gradients(name, params):
    """Formulas give them; the gradients are the kernels'."""
    p, others = np.array([[0.3, 0.45, 0.25], [0.2, 0.3, 0.5]]), ()
    p = p / 2 if re.match("joint|cond|mut|norm|vari", name) and params.get("input") != "scores" else p
    p = np.log(p) if params.get("input", "probs") != "probs" else p
    if re.search("_di", name) and not name.endswith("loss"):
        others = (np.log([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]]) if params.get("input") else p[::-1].copy(),)
    elif name.endswith("loss"):
        others = (np.array([[0.2, 0.3, 0.5], [0.5, 0.3, 0.2]]) if re.match("dist|jsd", name) else np.array([0, 2]),)
    value = lambda x: (getattr(ej, name)(x, *others, **params) * 1.5).sum()  # noqa: E731
    gradient, v = jax.jit(jax.grad(value)), scores(2, 3, seed=3)
    v = v - v.mean(-1, keepdims=True)  # of distributions, which stay some
    want = (gradient(p + 1e-5 * v) - gradient(p - 1e-5 * v)) / 2e-5
    for found in (jax.jvp(gradient, (p,), (v,))[1], jax.vjp(gradient, p)[1](v)[0]):
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["softmax_loss", "entmax_loss", "margin_softmax_loss"])
def test_ignored_rows_have_no_second_derivative(name):
    x, target = scores(3, 4) / 10, np.array([1, 2, 0])
    loss = lambda x: getattr(ej, name)(x, target, ignore_index=2).sum()  # noqa: E731
    second = jax.hessian(loss)(x)
    assert (second[1] == 0).all() and (second[:, :, 1] == 0).all()
    assert (abs(second[0, :, 0]).max(-1) > 0).all()
    # Whatever an ignored row is multiplied by.
    moved = np.where(np.arange(3)[:, None] == 1, np.nan, x)
    np.testing.assert_array_equal(jax.jvp(loss, (x,), (moved,))[1], jax.jvp(loss, (x,), (np.nan_to_num(moved),))[1])


EQUAL = {"kl": 1, "js": 0.25, "alpha": 1, "jeffreys": 2, "renyi": 2, "chi_squared": 2}


@pytest.mark.parametrize("name", [*(f"{one}_divergence" for one in EQUAL), "total_variation"])
def test_second_derivatives_where_p_is_q(name):
    """The slope is 0 there, and its derivative factor / p in entries not tied by their sum; |p - q| has none, as sign."""
    p, params = np.array([0.2, 0.3, 0.5]), {"alpha": 2.0} if name in ("alpha_divergence", "renyi_divergence") else {}
    want = np.diag(EQUAL.get(name.removesuffix("_divergence"), 0) / p)
    v = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])  # distributions stay some
    for which in (0, 1):
        found = jax.hessian(functools.partial(getattr(ej, name), **params), argnums=which)(p, p)
        np.testing.assert_allclose(v @ found @ v.T, v @ want @ v.T, rtol=1e-10, atol=1e-12)


def split(function, x, over, parts, result=None, mapped=None):
    """The function under shard_map, the axes of x over parts devices."""
    mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")[:parts]), ("parts",))
    spec = jax.sharding.PartitionSpec(*over)
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    # Releases that do not know which values are the same on all devices count replicated results once for each.
    old = {} if hasattr(jax.lax, "pcast") or hasattr(jax.lax, "pvary") else {"check_rep": False}
    out = spec if result is None else jax.sharding.PartitionSpec(*result)
    return jax.jit(shard_map(function, mesh=mesh, in_specs=(spec,), out_specs=out, **old))


def test_rows_over_devices_are_not_gathered():
    x = scores(8, 6)
    of_rows = split(ej.entmax, x, ("parts",), 4)
    np.testing.assert_array_equal(of_rows(x), ej.entmax(x))
    assert "all-gather" not in of_rows.lower(x).compile().as_text()
    loss = lambda f: lambda x: (f(x) ** 2).sum()  # noqa: E731
    np.testing.assert_allclose(jax.grad(loss(of_rows))(x), jax.grad(loss(ej.entmax))(x), atol=1e-15)


DISTRIBUTED = [
    ("softmax", {"temperature": 0.7}),
    ("log_softmax", {}),
    ("logsumexp", {"temperature": 2.0}),
    ("entropy", {}),
    ("softmax_loss", {"ignore_index": 2}),
    ("sparsemax", {"temperature": 1.3}),
    ("entmax", {}),
    ("entmax", {"alpha": 3.0}),
    ("entmax", {"alpha": 1.0}),
]
SINGLE = [("softmax", {}, np.float32), ("softmax_loss", {}, np.float32), ("entmax", {}, np.float32)]


@pytest.mark.parametrize(("name", "params", "dtype"), [(*one, np.float64) for one in DISTRIBUTED] + SINGLE)
def test_rows_in_parts(name, params, dtype):
    x = 3 * scores(5, 16, dtype=dtype)
    x[0, 3], x[1, 8:], x[4] = -np.inf, -np.inf, 1
    targets, ours = np.array([1, 7, 12, 2, 4]), dict(params)
    arguments = (targets,) if name == "softmax_loss" else ()
    if name == "entropy":
        ours["input"] = "scores"
    result = (None, "parts") if "max" in name and "loss" not in name else ()
    local = lambda x: getattr(ej, name)(x, *arguments, **ours)  # noqa: E731
    part = lambda x: getattr(ejd, name)(x, *arguments, axis_name="parts", **params)  # noqa: E731
    whole = np.asarray(local(x))
    found = [np.asarray(split(part, x, (None, "parts"), count, result)(x)) for count in (1, 2, 4)]
    tolerance = 1e-13 if dtype == np.float64 else 3e-6
    np.testing.assert_allclose(found[0], whole, rtol=tolerance, atol=tolerance / 10)
    assert np.array_equal(found[0] == 0, whole == 0)
    if name not in ("sparsemax", "entmax") or params.get("alpha") == 1:
        assert len({one.tobytes() for one in found}) == 1
    g = scores(*whole.shape, seed=4).astype(dtype)

    def total(function):
        def value(x):
            y = function(x)
            return (jnp.where(jnp.isfinite(y), y, 0) * g).sum()

        return value

    expected = jax.jit(jax.grad(total(local)))(x)
    gradient = jax.jit(jax.grad(total(split(part, x, (None, "parts"), 4, result))))(x)
    np.testing.assert_allclose(gradient, expected, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_loss_of_any_target_in_parts(dtype):
    """Also of one whose probability is 0 by underflow, or that has no score; in both directions, as for whole rows."""
    tops = [1e38, 1e4, 800, 110, 100, 80, 8, np.inf, -np.inf]
    x = np.array([[top, 0, 1, -np.inf] for top in tops] + [[-1e38, 0, 1e38, 2e38], [-np.inf] * 4, [np.nan, 0, 1, 2]], dtype)
    x = np.repeat(x, 4, 0)
    target, g, v = np.tile(np.arange(4), len(x) // 4), scores(len(x), dtype=dtype), scores(*x.shape, seed=1, dtype=dtype)
    whole = lambda x: ej.softmax_loss(x, target)  # noqa: E731
    part = split(lambda x: ejd.softmax_loss(x, target, axis_name="parts"), x, (None, "parts"), 2, ())
    (ours, forward), (theirs, want) = (jax.jvp(function, (x,), (v,)) for function in (part, whole))
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-13}
    np.testing.assert_allclose(ours, theirs, **tolerance)
    some = (x != -np.inf).any(-1)
    np.testing.assert_allclose(forward[some], want[some], **tolerance)
    assert np.isnan(forward[~some]).all()
    backward, want = (jax.vjp(function, x)[1](g)[0] for function in (part, whole))
    np.testing.assert_allclose(backward, want, **tolerance)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_the_types_of_rows_in_parts(dtype):
    x = jnp.asarray(scores(3, 4), dtype)
    for name in ("softmax", "log_softmax", "logsumexp", "entropy", "softmax_loss", "sparsemax", "entmax"):
        more = (jnp.zeros(3, int),) if name == "softmax_loss" else ()
        whole = getattr(ej, name)(x, *more, **({"input": "scores"} if name == "entropy" else {}))
        result = (None, "parts") if whole.ndim == 2 else ()
        part = split(lambda x: getattr(ejd, name)(x, *more, axis_name="parts"), x, (None, "parts"), 2, result)  # noqa: B023
        assert part(x).dtype == whole.dtype, name
        np.testing.assert_allclose(np.float64(part(x)), np.float64(whole), rtol=2e-2, err_msg=name)


def test_parameters_of_rows_in_parts_are_known_numbers():
    x = scores(3, 4)
    for name in ("softmax", "log_softmax", "logsumexp", "sparsemax", "entmax"):
        for key in ("temperature", "alpha") if name == "entmax" else ("temperature",):
            part = lambda value: getattr(ejd, name)(x, axis_name="parts", **{key: value})  # noqa: B023, E731
            with pytest.raises(TypeError, match=f"{name}: {key} must be a number known outside of jit and grad"):
                jax.jit(part)(1.5)


@pytest.mark.parametrize("alpha", [1 + 1e-12, 1.00001, 1.01])
def test_entmax_in_parts_near_softmax(alpha):
    """Where 1 / (alpha - 1) is large, a power would lose all digits."""
    x = 3 * scores(3, 16, dtype=np.float32)
    part = jax.vmap(lambda part: ejd.entmax(part, axis_name="parts", alpha=alpha), 1, 1, axis_name="parts")
    found = np.reshape(part(x.reshape(3, 2, 8)), x.shape)
    np.testing.assert_allclose(found, isentropic.entmax(x.astype(float), alpha=alpha), atol=2e-7)


def test_classes_of_rows_in_parts():
    parts = scores(4, 6).reshape(4, 2, 3)

    def loss(target, parts, **params):
        run = lambda part: ejd.softmax_loss(part, target, axis_name="parts", **params)  # noqa: E731
        return jax.vmap(run, 1, axis_name="parts")(parts)[0]

    traced = jax.jit(loss)(np.array([5, 6, -1, 1 << 40]), parts)
    np.testing.assert_array_equal(np.isnan(traced), [False, True, True, True])
    for target, params, said in (
        ([0, 6, 1, 2], {}, "target must be at least 0 and below the number of classes, 6, got 6 in row 1"),
        ([0, -1, 1, 2], {"ignore_index": -2}, "target must be at least 0 and below the number of classes, 6, got -1 in row 1"),
        ([0], {}, r"target must have shape \(4,\), one class for each row, got \(1,\)"),
        ([0, 1, 2, 3], {"ignore_index": "1"}, "ignore_index must be an integer or None, got str"),
        (None, {}, "target must be of an integer type, one class for each row, got object"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^softmax_loss: {said}"):
            jax.eval_shape(functools.partial(loss, np.array(target), **params), parts)
    with pytest.raises(ValueError, match=r"^softmax: axis_name must be an axis of the mesh of a shard_map .*, got 'other'"):
        jax.eval_shape(lambda part: ejd.softmax(part, axis_name="other"), parts)


def test_sums_of_parts_are_exact():
    """To the last of 44 bits after the binary point, or 62, in any order."""
    for dtype, bits in ((np.float32, 44), (np.float64, 62)):
        terms = np.random.default_rng(5).random((3, 2, 64)).astype(dtype) ** 3
        want = [sum(round(float(one) * 2**bits) for one in row) / 2**bits for row in terms.transpose(1, 0, 2).reshape(2, -1)]
        joined = jax.vmap(lambda part: ejd._exact(part, "parts"), axis_name="parts")(terms)
        np.testing.assert_allclose(joined[0, :, 0], want, rtol=2 * np.finfo(dtype).eps)
        once = jax.vmap(lambda part: ejd._exact(part, "parts"), axis_name="parts")(terms[::-1, :, ::-1])
        assert np.array_equal(joined, once)


def test_rows_in_parts_are_not_brought_to_the_host():
    x, target = scores(3, 4), np.array([1, 2, 3])
    for name in ejd.__all__:
        more = (target,) if name == "softmax_loss" else ()
        part = lambda x: getattr(ejd, name)(x, *more, axis_name="parts")  # noqa: B023, E731
        function = split(part, x, (None, "parts"), 2, (None, "parts") if "max" in name and "loss" not in name else ())
        assert not any(word in function.lower(x).as_text() for word in ("callback", "isentropic")), name


def test_rows_in_parts_of_no_numbers():
    x = np.array([[np.nan, 0, 1, 2], [-np.inf] * 4, [np.inf, 0, np.inf, 1]])
    for name in ("softmax", "sparsemax", "entmax", "log_softmax", "logsumexp", "entropy"):
        function, params = getattr(ej, name), {"input": "scores"} if name == "entropy" else {}
        whole = lambda x: function(x, **params)  # noqa: B023, E731
        y = whole(x)
        result = (None, "parts") if y.ndim == 2 else ()
        part = split(lambda x: getattr(ejd, name)(x, axis_name="parts"), x, (None, "parts"), 2, result)  # noqa: B023
        g, v = scores(*y.shape, seed=2), scores(*x.shape, seed=3)
        both = lambda f: jax.jit(lambda x: (jax.vjp(f, x)[1](g)[0], jax.jvp(f, (x,), (v,))[1]))(x)  # noqa: B023, E731
        for one, other in zip(both(part), both(whole), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-15, err_msg=name)
    for name in ("softmax", "sparsemax", "entmax", "log_softmax"):
        part = lambda x: getattr(ejd, name)(x, axis_name="parts")  # noqa: B023, E731
        np.testing.assert_allclose(split(part, x, (None, "parts"), 2)(x), getattr(isentropic, name)(x), rtol=1e-15)
    far = (np.round(x * 4) / 4 + 1e6).astype("f")
    for name in ("softmax", "sparsemax", "entmax"):
        part = lambda x: getattr(ejd, name)(x, axis_name="parts", temperature=0.7)  # noqa: B023, E731
        want = getattr(isentropic, name)(far, temperature=0.7)
        np.testing.assert_allclose(split(part, far, (None, "parts"), 2)(far), want, atol=5e-7, err_msg=name)


# Transport, tables, noise and calibration.


def differentiated(function, *given, atol=1e-8, seed=9):
    """The gradients of a function of a number, forwards and backwards, against differences."""
    h, moves = 1e-6, [scores(*x.shape, seed=seed + i) for i, x in enumerate(given)]

    @jax.jit
    def slopes(given, moves):
        return jax.grad(function, tuple(range(len(given))))(*given), jax.jvp(function, given, moves)[1], function(*given)

    moved = [[x + sign * h * v for x, v in zip(given, moves, strict=True)] for sign in (1, -1)]
    expected = (slopes(tuple(moved[0]), tuple(moves))[2] - function(*moved[1])) / (2 * h)
    gradients, forward, _ = slopes(tuple(given), tuple(moves))
    backward = sum((np.asarray(g) * v).sum() for g, v in zip(gradients, moves, strict=True))
    np.testing.assert_allclose([forward, backward], [expected] * 2, atol=atol)


def masses(*shape, seed=0):
    return np.asarray(isentropic.softmax(scores(*shape, seed=seed)))


@pytest.mark.parametrize("order", [1.0, 2.0])
def test_distances_on_the_line(order):
    u, v, p, q = scores(3, 5), scores(4, 1, 6, seed=1), masses(3, 5), masses(3, 5, seed=1)
    weights = masses(4, 1, 6, seed=2)
    for name, two, more in (
        ("wasserstein_1d", (u, v), {}),
        ("wasserstein_1d", (u, v), {"v_weights": weights}),
        ("wasserstein_histogram", (p, q), {}),
        ("wasserstein_histogram", (p, q), {"support": scores(5, seed=3)}),
    ):
        ours = lambda *two: getattr(ej, name)(*two, order=order, **more)  # noqa: B023, E731
        expected = getattr(isentropic, name)(*two, order=order, **more)
        assert np.asarray(jax.jit(ours)(*two)).tobytes() == expected.tobytes()
        slopes = getattr(isentropic, name)(*two, order=order, return_grad=True, **more)[1:]
        for gradient, slope in zip(jax.grad(lambda *two: ours(*two).sum(), (0, 1))(*two), slopes, strict=True):  # noqa: B023
            np.testing.assert_allclose(gradient, slope, atol=1e-15)
    vectorised = jax.vmap(lambda u, v: ej.wasserstein_1d(u, v, order=order))(u, v[:3, 0])
    np.testing.assert_array_equal(vectorised, isentropic.wasserstein_1d(u, v[:3, 0], order=order))


def test_plans():
    a, b, cost = masses(2, 4), masses(5, seed=1), np.abs(scores(2, 4, 5, seed=2))
    ours, theirs = jax.jit(ej.optimal_transport)(a, b, cost), isentropic.optimal_transport(a, b, cost)
    for one, other in zip(ours, theirs[:5], strict=True):
        assert np.asarray(one).tobytes() == other.tobytes()
    options = {"epsilon": 0.3, "tolerance": 1e-13}
    ours, theirs = ej.sinkhorn(a, b, cost, **options), isentropic.sinkhorn(a, b, cost, **options)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
    vectorised = jax.vmap(lambda a, c: ej.optimal_transport(a, b, c).plan)(a, cost)
    np.testing.assert_array_equal(vectorised, isentropic.optimal_transport(a, b, cost).plan)
    logits = scores(2, 4), scores(5, seed=1)
    prepared = lambda s, t: (ej.softmax(s), ej.softmax(t))  # noqa: E731
    differentiated(lambda s, t, c: ej.optimal_transport(*prepared(s, t), c).cost.sum(), *logits, cost)
    weights = scores(2, 4, 5, seed=7)
    differentiated(lambda s, t, c: (ej.sinkhorn(*prepared(s, t), c, **options).plan * weights).sum(), *logits, cost)
    differentiated(lambda s, t, c: ej.sinkhorn(*prepared(s, t), c, **options).cost.sum(), *logits, cost)


@pytest.mark.parametrize(("order", "weighted"), [(1.0, True), (3.0, False)])
def test_points(order, weighted):
    x, y, a, b = scores(5, 2), scores(4, 2, seed=1), masses(5), masses(4, seed=1)
    for weights in ({"a": a, "b": b} if weighted else {},):
        for name, more in (("wasserstein", {}), ("sinkhorn_divergence", {"epsilon": 0.5, "tolerance": 1e-13})):
            ours = lambda x, y: getattr(ej, name)(x, y, order=order, **more, **weights)  # noqa: B023, E731
            want = getattr(isentropic, name)(x, y, order=order, **more, **weights)
            np.testing.assert_allclose(jax.jit(ours)(x, y), want, rtol=1e-12)
            differentiated(ours, x, y)
            in_weights = lambda a, b: getattr(ej, name)(x, y, order=order, a=a, b=b, **more)  # noqa: B023, E731
            differentiated(in_weights, a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", [1, 5, 14, 100, 1e4])
def test_distances_that_the_plan_does_not_use_do_not_count(order, dtype):
    x, y = np.array([[0, 0], [1000, 0]], dtype), np.array([[0.5, 0], [1000.5, 0]], dtype)
    distance, slope = jax.jit(jax.value_and_grad(lambda x, y: ej.wasserstein(x, y, order=order)))(x, y)
    np.testing.assert_allclose(distance, 0.5, rtol=1e-6)
    np.testing.assert_allclose(slope, [[-0.5, 0], [-0.5, 0]], rtol=1e-6)
    assert distance.dtype == dtype


def test_second_derivatives_in_points():
    x, y, a, v = scores(5, 2), scores(4, 2, seed=1), masses(5), scores(5, 2, seed=2)
    slope = jax.jit(jax.grad(lambda x: ej.wasserstein(x, y, order=3)))
    wanted = (np.asarray(slope(x + 1e-5 * v)) - np.asarray(slope(x - 1e-5 * v))) / 2e-5
    np.testing.assert_allclose(jax.jit(lambda x: jax.jvp(slope, (x,), (v,))[1])(x), wanted, atol=1e-8)
    with pytest.raises(NotImplementedError, match="wasserstein has no second derivative in weights"):
        jax.hessian(lambda a: ej.wasserstein(x, y, a=a))(a)


@pytest.mark.parametrize(("name", "more"), [("wasserstein", {"order": 3}), ("sinkhorn_divergence", {"epsilon": 0.5})])
def test_points_of_several_problems(name, more):
    ours, theirs = getattr(ej, name), getattr(isentropic, name)
    for x, y, a in (
        ((2, 3, 2), (4, 2), (3,)),
        ((1, 3, 2), (5, 2, 4, 2), (2, 3)),
        ((3, 2), (0, 4, 2), (3,)),
        ((3, 2), (4, 2), (3,)),
    ):
        x, y, a = scores(*x), scores(*y, seed=1), np.exp(scores(*a, seed=2))
        found = jax.jit(lambda x, y, a: ours(x, y, a=a, **more))(x, y, a)
        np.testing.assert_allclose(found, theirs(x, y, a=a, **more), rtol=1e-9)
    for wrong, said in (((0, 2), "x must have at least one point"), ((2, 2, 0), "x must have at least one coordinate")):
        with pytest.raises(ValueError, match=f"^{name}: {said}, got shape"):
            ours(np.zeros(wrong), np.zeros(wrong), **more)
    with pytest.raises(ValueError, match=f"^{name}: x must have at least 2 axes"):
        ours(scores(3), scores(2, 3, 1), **more)


def test_duals():
    f, cost, a, b = scores(2, 4), np.abs(scores(2, 4, 5, seed=1)), masses(2, 4), masses(2, 5, seed=1)
    f[0, 1], cost[0, 0, 2] = -np.inf, np.inf
    g = ej.c_transform(f, cost)
    np.testing.assert_array_equal(g, isentropic.c_transform(f, cost))
    f[0, 1], a[0, 1] = np.inf, 0
    np.testing.assert_allclose(ej.dual_value(f, g, a, b), isentropic.dual_value(f, g, a, b), rtol=1e-14)
    points, distance = scores(5), np.abs(scores(5, 5, seed=3))
    np.testing.assert_allclose(
        jax.jit(ej.lipschitz_constant)(points, distance), isentropic.lipschitz_constant(points, distance), rtol=1e-15
    )
    differentiated(ej.lipschitz_constant, points, distance)


@pytest.mark.parametrize("hard", [False, True])
def test_relaxed_draws(hard):
    x, options = scores(3, 6), {"seed": 5, "stream": 3, "temperature": 0.7}
    for dtype in (np.float64, np.float32, np.float16):
        ours = jax.jit(lambda x: ej.gumbel_softmax(x, hard=hard, **options))(x.astype(dtype))
        assert np.asarray(ours).tobytes() == isentropic.gumbel_softmax(x.astype(dtype), hard=hard, **options).tobytes()
    g = scores(3, 6, seed=2)
    soft = lambda x: (ej.gumbel_softmax(x, **options) * g).sum()  # noqa: E731
    differentiated(soft, x)
    straight = jax.grad(lambda x: (ej.gumbel_softmax(x, hard=hard, **options) * g).sum())(x)
    np.testing.assert_array_equal(straight, jax.grad(soft)(x))


@pytest.mark.parametrize("hard", [False, True])
def test_relaxed_draws_at_a_temperature_of_each_row(hard):
    """Traced, or an array: NumPy's results up to rounding, with the derivative; rows follow the library's rules."""
    x, options = 3 * scores(6, 5), {"seed": 5, "stream": 3}
    x[0, 1], x[1, :2], x[2, 3], x[3] = -np.inf, np.inf, np.nan, -np.inf
    g, finite = scores(6, 5, seed=2), np.isfinite(x)
    for dtype, atol in ((np.float64, 1e-14), (np.float32, 2e-6), (np.float16, 1e-3)):
        given = x.astype(dtype)
        draw = jax.jit(lambda t: ej.gumbel_softmax(given, hard=hard, temperature=t, **options))  # noqa: B023
        for number in (0.01, 0.7, 1.0, 30.0):
            want = isentropic.gumbel_softmax(given, hard=hard, temperature=number, **options)
            traced = draw(number)
            assert traced.dtype == want.dtype
            np.testing.assert_allclose(np.float64(traced), np.float64(want), atol=atol)
    for axis, t in ((-1, np.linspace(0.4, 2, 6)[:, None]), (0, np.linspace(0.4, 2, 6)[None])):
        along = np.moveaxis(x, -1, axis)
        found = ej.gumbel_softmax(along, axis=axis, hard=hard, temperature=t, **options)
        each = [isentropic.gumbel_softmax(along, axis=axis, hard=hard, temperature=one, **options) for one in t.ravel()]
        want = [np.moveaxis(one, axis, -1)[i] for i, one in enumerate(each)]
        np.testing.assert_allclose(np.moveaxis(found, axis, -1), want, atol=1e-14)
    t = np.linspace(0.4, 2, 6)[:, None]
    soft = lambda x, t: (ej.gumbel_softmax(jnp.where(finite[4:], x, NONE), temperature=t, **options) * g[4:]).sum()  # noqa: E731
    differentiated(soft, x[4:], t[4:])
    straight = jax.grad(lambda x, t: (ej.gumbel_softmax(x, hard=hard, temperature=t, **options) * g).sum(), (0, 1))(x, t)
    at = lambda t: jax.grad(lambda x: (ej.gumbel_softmax(x, temperature=t, **options) * g).sum())  # noqa: E731
    fixed = jax.jit(lambda x: [at(t)(x) for t in t.ravel()])(x)
    np.testing.assert_allclose(straight[0], [one[i] for i, one in enumerate(fixed)], atol=1e-13)
    assert not straight[0][1].any() and np.isnan(straight[0][2]).all()
    assert np.isfinite(np.asarray(straight[1])[[0, 1, 4, 5]]).all()
    with pytest.raises(ValueError, match=r"^gumbel_softmax: temperature must broadcast to \(6, 1\), got shape \(5,\)"):
        ej.gumbel_softmax(x, seed=1, temperature=jnp.ones(5))


def test_numbers_of_draws_and_distances_are_known():
    x, sampler = scores(2, 3), ej.Sampler([], seed=1)
    calls = [
        (lambda n: ej.sample(x, seed=1, temperature=n), "sample: temperature must be a number .*; x may be divided by it"),
        (lambda n: ej.sample(x, seed=n), "sample: seed must be a number"),
        (lambda n: ej.top_k_softmax(x, k=n), "top_k_softmax: k must be one value"),
        (lambda n: ej.sample(x, seed=1, position=n), "sample: position must be a number"),
        (lambda n: ej.sample(x, seed=1, size=n), "sample: size must be a number"),
        (lambda n: ej.gumbel_softmax(x, seed=n), "gumbel_softmax: seed must be a number"),
        (lambda n: sampler.sample(x, position=n), "Sampler.sample: position must be a number"),
        (lambda n: ej.wasserstein_1d(x, x, order=n), "wasserstein_1d: order must be a number"),
        (lambda n: ej.wasserstein_histogram(x, x, order=n), "wasserstein_histogram: order must be a number"),
        (lambda n: ej.wasserstein(x, x, order=n), "wasserstein: order must be a number"),
        (lambda n: ej.sinkhorn_divergence(x, x, epsilon=1, order=n), "sinkhorn_divergence: order must be a number"),
    ]
    for call, said in calls:
        with pytest.raises(TypeError, match=f"^{said}.*known outside of jit and grad" if "may" not in said else f"^{said}"):
            jax.jit(call)(2)
    with pytest.raises(TypeError, match=r"^sample: temperature must be a number, got ndarray"):
        ej.sample(x, seed=1, temperature=np.ones((2, 1)))
    np.testing.assert_array_equal(
        ej.sample(x, seed=1, temperature=jnp.array(0.5)), isentropic.sample(x, seed=1, temperature=0.5)
    )


@pytest.mark.parametrize(
    ("name", "params"),
    [("joint_entropy", {}), ("conditional_entropy", {"given": "y"}), ("mutual_information", {"base": 2.0})],
)
def test_tables(name, params):
    tables = masses(2, 12).reshape(2, 3, 4)
    function = lambda pxy: getattr(ej, name)(pxy, **params)  # noqa: E731
    expected, slope = getattr(isentropic, name)(tables[0], return_grad=True, **params)
    assert jax.jit(function)(tables[0]) == expected
    np.testing.assert_array_equal(jax.grad(function)(tables[0]), slope)
    each = [getattr(isentropic, name)(table, **params) for table in tables]
    np.testing.assert_array_equal(jax.vmap(function)(tables), each)
    np.testing.assert_array_equal(function(tables[None]), [each])
    assert function(tables[:0]).shape == (0,)


def test_powers_and_targets():
    p, gamma = masses(3, 5), np.full((3, 1), 1.7)
    assert np.asarray(ej.power_transform(p, gamma=gamma)).tobytes() == isentropic.power_transform(p, gamma=gamma).tobytes()
    g = scores(3, 5, seed=2)
    differentiated(lambda s, gamma: (ej.power_transform(ej.softmax(s), gamma=gamma) * g).sum(), scores(3, 5), gamma)
    table = masses(12).reshape(3, 4)
    np.testing.assert_array_equal(ej.normalize_joint(table, joint=1.5), isentropic.normalize_joint(table, joint=1.5))
    weights = np.full(5, 0.3)
    density = p / (p * weights).sum(-1, keepdims=True)
    for one, other in zip(
        jax.jit(lambda p: ej.normalize_density(p, weights, entropy=0.2))(density),
        isentropic.normalize_density(density, weights, entropy=0.2),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_calibration():
    x, labels = 2 * scores(40, 5), np.random.default_rng(3).integers(0, 5, 40)
    p = isentropic.softmax(x)
    for name, given, params in (
        ("fit_temperature", (x + 3 * np.eye(5)[labels], labels), {}),
        ("fit_target_entropy", (x, labels), {}),
        ("match_entropy", (x,), {}),
        ("expected_calibration_error", (p, labels), {"bins": 7, "strategy": "quantile"}),
        ("brier_score", (p, labels), {}),
    ):
        ours = jax.jit(lambda *given: getattr(ej, name)(*given, **params))(*given)  # noqa: B023
        assert ours.shape == () and ours == getattr(isentropic, name)(*given, **params)
    for one, other in zip(ej.fit_vector_scaling(x, labels), isentropic.fit_vector_scaling(x, labels), strict=True):
        np.testing.assert_array_equal(one, other)
    halves = jax.vmap(ej.expected_calibration_error)(p.reshape(2, 20, 5), labels.reshape(2, 20))
    assert [*halves] == [isentropic.expected_calibration_error(*one) for one in ((p[:20], labels[:20]), (p[20:], labels[20:]))]
    for more in ({}, {"kappa": 2.0}, {"train_length": 64}):
        expected = isentropic.entropy_invariant_scale(np.array([2.0, 512.0]), 64, **more)
        np.testing.assert_allclose(ej.entropy_invariant_scale(jnp.array([2, 512]), 64, **more), expected, rtol=1e-15)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_sums_of_halves(dtype):
    """Halves are rounded, so their sums may be as far from 1, or from each other, as in NumPy and torch; those of numbers of 32
    bits may not."""
    p, cost = np.array([0.1, 0.2, 0.3, 0.4]), np.ones((4, 4))
    for name, run in {
        "wasserstein_histogram": lambda p, q: ej.wasserstein_histogram(p, q),
        "wasserstein_histogram of a support": lambda p, q: ej.wasserstein_histogram(p, q, support=q),
        "wasserstein_histogram's gradient": lambda p, q: jax.grad(lambda p: ej.wasserstein_histogram(p, q))(p),
        "wasserstein_histogram of several": lambda p, q: jax.vmap(lambda s: ej.wasserstein_histogram(p, q, support=s))(q[None]),
        "optimal_transport": lambda p, q: ej.optimal_transport(p, q, cost.astype(p.dtype)).cost,
        "sinkhorn": lambda p, q: ej.sinkhorn(p, q, cost.astype(p.dtype), epsilon=1.0).cost,
        "expected_calibration_error": lambda p, _: ej.expected_calibration_error(p[None], np.array([1])),
        "brier_score": lambda p, _: ej.brier_score(p[None], np.array([1])),
    }.items():
        for off, kind, fits in ((1.005, dtype, True), (1.05, dtype, False), (1.005, np.float32, False)):
            given = jnp.asarray(off * p).astype(kind), jnp.asarray(p).astype(kind)
            if fits:
                assert np.isfinite(np.asarray(run(*given), np.float64)).all(), name
                continue
            with pytest.raises(Exception, match="sum"):
                jax.block_until_ready(run(*given))
    given = (jnp.asarray(x).astype(dtype) for x in (1.05 * p, p, cost))
    assert float(ej.optimal_transport(*given, mass_tolerance=0.1).cost) > 0  # the one that is given counts


def test_what_is_refused_when_it_runs():
    cost = np.full((2, 2), np.inf)
    with pytest.raises(Exception, match="optimal_transport: infeasible: every plan needs an entry of cost inf"):
        jax.block_until_ready(ej.optimal_transport(np.ones(2) / 2, np.ones(2) / 2, cost))
    with pytest.raises(Exception, match="normalize_joint: joint must be in"):
        jax.block_until_ready(ej.normalize_joint(masses(4).reshape(2, 2), joint=9.0))
    with pytest.raises(Exception, match="differentia"):
        jax.grad(lambda x: ej.match_entropy(x))(scores(3, 4))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: ej.softmax(x, temperature=-1.0), "softmax: temperature must be above 0 and finite, got -1"),
        (lambda x: ej.softmax(x, temp=1.0), "softmax: there is no parameter 'temp'; it has temperature"),
        (lambda x: ej.entmax(x, alpha=jnp.ones(5)), r"entmax: alpha must broadcast to \(3, 1\), got shape \(5,\)"),
        (lambda x: ej.top_k_softmax(x), "top_k_softmax: k is required"),
        (lambda x: ej.surrogate_loss(x, jnp.zeros(3, int), k=2), "surrogate_loss: map 'softmax' has no parameter 'k'"),
        (
            lambda x: ej.surrogate_loss(x, jnp.zeros(3, int), map="entmax", alpha=jnp.ones((3, 1))),
            "surrogate_loss: alpha of the map must be one number",
        ),
        (lambda x: ej.softmax_loss(x, jnp.zeros(2, int)), "softmax_loss: target must have shape"),
        (lambda x: ej.softmax_loss(x, jnp.zeros(3, int) + 9), "softmax_loss: .*target.* 9"),
        (lambda x: ej.kl_divergence(x, x[0]), "kl_divergence: q must have the shape"),
        (
            lambda x: ej.joint_entropy(x[0]),
            "joint_entropy: pxy must have at least two axes, x in rows and y in columns, got shape",
        ),
        (lambda x: ej.optimal_transport(x[0], x[0], x), r"optimal_transport: cost must have shape \(\.\.\., 4, 4\), got"),
        (lambda x: ej.wasserstein_1d(x, x[:2]), "wasserstein_1d: the leading axes of u, v must broadcast"),
        (lambda x: ej.fit_temperature(x, x[:, 0]), "fit_temperature: labels must be of an integer type"),
        (lambda x: ejd.entmax(x, axis_name="parts", alpha=0.5), "entmax: alpha must be at least 1 for rows in parts, got 0.5"),
        (lambda x: ejd.softmax(x, axis_name="parts", temperature=0), "softmax: temperature must be above 0"),
    ],
)
def test_errors_name_the_argument(call, said):
    with pytest.raises(Exception, match=said):
        jax.block_until_ready(call(jnp.ones((3, 4))))


LOSSES = [one["name"] for one in isentropic._core.losses()]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_take_the_keywords_that_numpys_take(name):
    x, one = np.full((2, 3), 0.5, np.float32), {"top_k_softmax_loss": {"k": 2}, "top_p_softmax_loss": {"p": 0.5}}.get(name, {})
    targets = np.zeros(2, int), np.zeros((2, 3), np.float32)

    def outcome(module, keywords):
        kinds = set()
        for target in targets:
            try:
                getattr(module, name)(x, target, **one, **keywords)
                kinds.add("value")
            except Exception as error:
                kinds.add(type(error))
        return "value" if "value" in kinds else TypeError if TypeError in kinds else kinds

    for keywords in ({"ignore_index": 0}, {"ignore_index": None}, {"ignore_index": 0.5}, {"bogus": 1}, {"axis": 1}):
        assert outcome(ej, keywords) == outcome(isentropic, keywords), keywords


def test_a_wrong_axis_is_numpys_error():
    x = np.ones((3, 4))
    for call in (
        lambda module, axis: module.softmax(x, axis=axis),
        lambda module, axis: module.entropy(x, axis=axis, input="scores"),
        lambda module, axis: module.gamma_for_entropy(x, entropy=1.0, axis=axis),
        lambda module, axis: module.wasserstein_1d(x, x, axis=axis),
        lambda module, axis: module.normalize_density(x, np.ones(4), entropy=1.0, axis=axis),
    ):
        for axis, kind in ((2, np.exceptions.AxisError), (-3, np.exceptions.AxisError), ("x", TypeError), (True, TypeError)):
            said = []
            for module in (isentropic, ej):
                with pytest.raises(kind) as refused:
                    call(module, axis)
                said.append(str(refused.value))
            assert said[0] == said[1]
    assert (ej.softmax(x, axis=np.int64(0)) == 1 / 3).all()


def test_second_derivatives_of_a_divergence():
    """Of points and weights, beside differences of first derivatives: plan and potentials move."""
    rng = np.random.default_rng(17)
    x, y = rng.random((4, 2)), rng.random((5, 2))
    a, b = rng.random(4) + 0.5, rng.random(5) + 0.5
    for moved, of in (
        (x, lambda x: ej.sinkhorn_divergence(x, y, epsilon=0.3, a=a, b=b, tolerance=1e-14)),
        (a, lambda a: ej.sinkhorn_divergence(x, y, epsilon=0.3, a=a, b=b, tolerance=1e-14)),
    ):
        slope, step = jax.jit(jax.grad(of)), 1e-6
        steps = step * np.eye(moved.size).reshape(-1, *moved.shape)
        want = np.array([np.asarray(slope(moved + one)) - np.asarray(slope(moved - one)) for one in steps]) / (2 * step)
        found = jax.jit(jax.hessian(of))(moved).reshape(moved.size, *moved.shape)
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-8)


def test_plans_in_parts():
    """Where arcs of cost inf leave a plan of two parts potentials are free in each, and the derivative is defined."""
    rng = np.random.default_rng(17)
    cost, apart = rng.random((4, 4)), np.kron(np.eye(2), np.ones((2, 2))) == 0
    mass = np.full(4, 0.25)

    def plan(cost):
        return ej.sinkhorn(mass, mass, jnp.where(apart, np.inf, cost), epsilon=0.2, tolerance=1e-13).plan

    found, step, compiled = jax.jit(jax.jacobian(plan))(cost), 1e-5, jax.jit(plan)
    for i, j in np.ndindex(4, 4):
        moved = step * (np.arange(16).reshape(4, 4) == 4 * i + j)
        want = (np.asarray(compiled(cost + moved)) - np.asarray(compiled(cost - moved))) / (2 * step)
        np.testing.assert_allclose(found[:, :, i, j], want, atol=1e-8)


def test_transport_says_what_has_no_derivative():
    rng = np.random.default_rng(17)
    u, v, weights = rng.random(4), rng.random(5), rng.random(4)
    p, q, supports = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4)), rng.random((3, 4))
    with pytest.raises(NotImplementedError, match="wasserstein_1d has no derivative in its weights"):
        jax.grad(lambda w: ej.wasserstein_1d(u, v, u_weights=w))(weights)
    with pytest.raises(NotImplementedError, match=r"isentropic.jax: wasserstein_1d has no second derivative"):
        jax.hessian(lambda u: ej.wasserstein_1d(u, v, order=2))(u)
    with pytest.raises(NotImplementedError, match="wasserstein_histogram has no derivative in support"):
        jax.grad(lambda s: ej.wasserstein_histogram(p, q, support=s))(u)
    with pytest.raises(TypeError, match="epsilon must be a number known outside of jit and grad"):
        jax.grad(lambda e: ej.sinkhorn_divergence(u, v, epsilon=e))(0.3)
    found = jax.vmap(lambda s: ej.wasserstein_histogram(p, q, support=s))(supports)
    want = [isentropic.wasserstein_histogram(p, q, support=one) for one in supports]
    np.testing.assert_allclose(found, want, rtol=1e-6)
    slope = jax.vmap(jax.grad(lambda p, s: ej.wasserstein_histogram(p, q, support=s)), (None, 0))(p, supports)
    want = [isentropic.wasserstein_histogram(p, q, support=one, return_grad=True)[1] for one in supports]
    np.testing.assert_allclose(slope, want, rtol=1e-6, atol=1e-12)


def test_the_gradient_of_a_plan_with_entropy_in_masses_of_0():
    """It is the limit of that in small masses."""
    random = np.random.default_rng(7)
    cost, weights = random.random((2, 4, 3))
    cost[3, 1] = np.inf

    def value(a, b, of_plan):
        found = ej.sinkhorn(a, b, cost, epsilon=0.2, tolerance=1e-14)
        return (found.plan * weights).sum() if of_plan else found.cost

    @jax.jit
    def slopes(a, b):
        return [[way(value, argnums=(0, 1))(a, b, of_plan) for way in (jax.grad, jax.jacfwd)] for of_plan in (False, True)]

    for zeros in (([2], []), ([], [1]), ([3], [0]), ([0, 3], [2])):
        gradients = []
        for least in (0.0, 1e-8):
            a, b = np.full(4, 0.25), np.full(3, 1 / 3)
            a[zeros[0]], b[zeros[1]] = least, least
            found = []
            for backward, forward in jax.device_get(slopes(a / a.sum(), b / b.sum())):
                for one, other in zip(forward, backward, strict=True):
                    np.testing.assert_allclose(one - one[-1], other - other[-1], atol=1e-8)
                found += backward
            gradients.append([one - one[0] for one in found])  # up to a constant
        for one, other in zip(*gradients, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


WRONG = {
    "entropy: base": lambda x: ej.entropy(x, base=0, input="scores"),
    "entropy: input": lambda x: ej.entropy(x, input="foo"),
    "renyi_entropy: alpha": lambda x: ej.renyi_entropy(x, alpha=-1),
    "self_information: base": lambda x: ej.self_information(x, base=-2),
    "softmax_loss: label_smoothing": lambda x: ej.softmax_loss(x, np.zeros(2, int), label_smoothing=1.1),
    "margin_softmax_loss: kind": lambda x: ej.margin_softmax_loss(x, np.zeros(2, int), kind="foo"),
    "top_k_softmax_loss: k": lambda x: ej.top_k_softmax_loss(x, np.zeros(2, int), k=0),
    "jsd_loss: beta": lambda x: ej.jsd_loss(x, x, beta=1),
    "gamma_for_entropy: entropy": lambda x: ej.gamma_for_entropy(x, entropy=-1.0).gamma,
    "power_transform: gamma": lambda x: ej.power_transform(x, gamma=-1.0),
    "mean_field_entropy: gamma": lambda x: ej.mean_field_entropy(x, gamma=-1.0),
    "conditional_entropy: given": lambda x: ej.conditional_entropy(x / 6, given="z"),
    "sample: temperature": lambda x: ej.sample(x, seed=1, temperature=0),
    "gumbel_softmax: temperature": lambda x: ej.gumbel_softmax(x, seed=1, temperature=0),
    "wasserstein_1d: order": lambda x: ej.wasserstein_1d(x, x, order=0.5),
    "wasserstein_histogram: order": lambda x: ej.wasserstein_histogram(x / 3, x / 3, order=0.5),
    "sinkhorn: epsilon": lambda x: ej.sinkhorn(x[0], x[0], jnp.ones((3, 3)), epsilon=-1).cost,
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_parameter_is_refused_when_it_is_traced(what):
    with pytest.raises(ValueError, match=f"^{what} must"):
        jax.jit(WRONG[what]).lower(jnp.ones((2, 3)))


WITH_PARAMETERS = descriptions.MAPS | descriptions.LOSSES | descriptions.SPARSE_LOSSES | descriptions.MEASURES
WITH_PARAMETERS |= {name: descriptions.CONTROL[name] for name in ("power_transform", "mean_field_entropy")}


def test_a_value_that_is_not_of_a_parameters_kind_is_refused():
    """None too: it does not stand for a default."""
    x, two = np.full((2, 2), 0.25), ("loss", "divergence")
    for name, info in WITH_PARAMETERS.items():
        arrays = (x, x)[: 1 + (info["family"] in two)]
        if name in descriptions.SPARSE_LOSSES:
            arrays = x, np.zeros((2, 1), int), x[:, :1]
        for param in info["params"]:
            kind, argument = param["kind"], param["name"]
            for value in (None, "1", b"1", [1.0], {}, object(), np.array(["1"])):
                free = kind == "map" or (value is None and "optional" in kind)
                if free or (kind == "name" and isinstance(value, str)) or (argument == "order" and isinstance(value, list)):
                    continue
                with pytest.raises((TypeError, ValueError), match=rf"^{name}: {argument} must be (one|an?) "):
                    getattr(ej, name)(*arrays, **{argument: value})


OF_WRONG_TYPES = {
    "softmax: x": lambda x: ej.softmax(np.array([["1"]])),
    "softmax_loss: target": lambda x: ej.softmax_loss(x, None),
    "multilabel_softmax_loss: target": lambda x: ej.multilabel_softmax_loss(x, x + 1j),
    "gumbel_softmax: hard": lambda x: ej.gumbel_softmax(x, seed=1, hard="no"),
    "gumbel_softmax: temperature": lambda x: ej.gumbel_softmax(x, seed=1, temperature="1"),
    "conditional_mutual_information: normalize": lambda x: ej.conditional_mutual_information(x[None], normalize="no"),
    "conditional_mutual_information: base": lambda x: ej.conditional_mutual_information(x[None] / 6, base="2"),
    "entropy_invariant_scale: n": lambda x: ej.entropy_invariant_scale(0, 64),
    "entropy_invariant_scale: d": lambda x: ej.entropy_invariant_scale(4, 0),
    "entropy_invariant_scale: kappa": lambda x: ej.entropy_invariant_scale(4, 64, kappa=-1),
    "mean_field_entropy: gamma": lambda x: ej.mean_field_entropy(x, gamma=np.ones(3)),
    "normalize_density: entropy": lambda x: ej.normalize_density(x, np.ones(3), entropy=np.ones((2, 1))),
    "expected_calibration_error: bins": lambda x: ej.expected_calibration_error(x, np.zeros(2, int), bins=np.ones(2)),
    "sinkhorn_divergence: epsilon": lambda x: ej.sinkhorn_divergence(x, x, epsilon=np.ones(2)),
    "wasserstein: order": lambda x: ej.wasserstein(x, x, order="1"),
    "wasserstein_1d: u_weights": lambda x: ej.wasserstein_1d(x, x, u_weights="1"),
    "wasserstein_histogram: support": lambda x: ej.wasserstein_histogram(x / 3, x / 3, support=np.ones(1)),
    "attention: sinks": lambda x: ej.attention(x, x, x, sinks=1j),
    "attention: mask": lambda x: ej.attention(x, x, x, mask="1"),
    "dual_value: f and a": lambda x: ej.dual_value(x[0, :1], x[0], x[0], x[0]),
}


@pytest.mark.parametrize("what", OF_WRONG_TYPES)
def test_an_argument_of_a_wrong_type_is_refused(what):
    with pytest.raises((TypeError, ValueError), match=f"^{what} must"):
        OF_WRONG_TYPES[what](jnp.ones((2, 3)))


def test_numbers_of_numpy_and_of_jax_are_numbers():
    x, labels = scores(2, 4), np.array([0, 3], np.uint32)
    for number in (np.float32(0.5), np.array(0.5), jnp.array(0.5)):
        np.testing.assert_array_equal(ej.top_p_softmax(x, p=number), isentropic.top_p_softmax(x, p=0.5))
    assert ej.sinkhorn_divergence(x, -x, epsilon=np.float32(0.5)) == isentropic.sinkhorn_divergence(x, -x, epsilon=0.5)
    assert ej.fit_temperature(x, labels) == ej.fit_temperature(x, labels.astype(int))
    for name in ("self_information", "binary_entropy"):
        value = getattr(ej, name)(0.25)
        assert value.shape == () and value == getattr(isentropic, name)(0.25)
    gamma = np.array([[0.5], [2.0]])
    each = [isentropic.mean_field_entropy(row, gamma=float(one[0])) for row, one in zip(x, gamma, strict=True)]
    np.testing.assert_allclose(ej.mean_field_entropy(x, gamma=gamma), each, rtol=1e-14)
    np.testing.assert_allclose(ej.mean_field_entropy(x.T, gamma=gamma.T, axis=0), each, rtol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("binary_entropy", {}),
        ("self_information", {"base": 2}),
        ("self_information", {"normalize": True}),
        ("self_information", {"input": "scores"}),
    ],
    ids=str,
)
def test_entries_of_halves_are_calculated_in_float32(name, params, dtype):
    def function(p):
        return getattr(ej, name)(p, **params)

    p = jnp.asarray([0.9429, 0.3, 0.01], dtype)
    value, wide = function(p), function(p.astype(jnp.float32))
    assert value.dtype == jnp.float32
    np.testing.assert_array_equal(value, wide)
    slope, wide = (jax.grad(lambda p: function(p).sum())(x) for x in (p, p.astype(jnp.float32)))
    np.testing.assert_array_equal(slope, wide.astype(dtype))


def test_kernels_take_subnormal_numbers_as_numbers():
    """XLA's threads set them to 0."""
    x = np.float32([np.linspace(0, -110, 64), np.linspace(3, -100, 64)])
    p = ej.softmax(x)
    assert ((np.asarray(p) > 0) & (np.asarray(p) < np.finfo(np.float32).tiny)).any()
    np.testing.assert_array_equal(p, isentropic.softmax(x))
    np.testing.assert_array_equal(jax.jit(ej.softmax)(x), isentropic.softmax(x))
    wide = np.array([[1e-307, -3e-307, 2e-307, 2e-308]])
    np.testing.assert_array_equal(ej.entropy_normalize(wide, entropy=0.5), isentropic.entropy_normalize(wide, entropy=0.5))
    most = np.array([[1.7e308, -1.7e308, 4.6e307]])
    np.testing.assert_array_equal(ej.taylor_softmax(most), isentropic.taylor_softmax(most))
    np.testing.assert_array_equal(ej.softmax(wide, temperature=1e-308), isentropic.softmax(wide, temperature=1e-308))
    gamma = ej.gamma_for_entropy(wide, entropy=0.5)
    np.testing.assert_array_equal(gamma.gamma, isentropic.gamma_for_entropy(wide, entropy=0.5).gamma)
    assert gamma.status.tolist() == [0]


def test_a_problem_with_nan_is_nan_alone():
    a, b = (np.asarray(jax.nn.softmax(scores(3, 4, seed=k))) for k in range(2))
    cost = np.abs(scores(3, 4, 4, seed=2))
    spoilt = cost.copy()
    spoilt[1, 2, 0] = np.nan
    for function in (ej.optimal_transport, lambda a, b, cost: ej.sinkhorn(a, b, cost, epsilon=0.1)):
        found, alone = jax.jit(function)(a, b, spoilt), jax.jit(function)(a[::2], b[::2], cost[::2])
        np.testing.assert_array_equal(found.plan[::2], alone.plan)
        assert np.isnan(found.plan[1]).all() and np.isnan(found.cost[1])
        slope = jax.jit(jax.grad(lambda cost: function(a, b, cost).cost[::2].sum()))(spoilt)  # noqa: B023
        assert np.isfinite(slope[::2]).all()


def test_points_and_histograms_with_nan_are_nan_alone():
    x, y, a = scores(3, 4, 2, seed=3), scores(3, 5, 2, seed=4), np.exp(scores(3, 4, seed=5))
    p, q = (np.asarray(jax.nn.softmax(scores(3, 4, seed=k))) for k in (6, 7))
    supports = jnp.asarray(scores(3, 4, seed=8))
    calls = [
        (lambda x: ej.wasserstein(x, y, a=a), x),
        (lambda a: ej.wasserstein(x, y, a=a, metric="cosine"), a),
        (lambda x: ej.sinkhorn_divergence(x, y, epsilon=0.3), x),
        (lambda p: ej.wasserstein_histogram(p, q), p),
        (lambda p: ej.wasserstein_histogram(p, q, period=4.0, normalize=True), p),
        (
            lambda p: jax.vmap(lambda p, q, s: ej.wasserstein_histogram(p, q, support=s))(p, q, supports),
            p,
        ),
        (lambda p: ej.wasserstein_1d(scores(3, 4, seed=9), q, u_weights=p), p),
        (lambda x: jax.vmap(lambda x, y: ej.wasserstein(x, y))(x, y), x),
    ]
    for call, given in calls:
        spoilt = given.copy()
        spoilt[1, 2] = np.nan
        for run in (call, jax.jit(call)):
            np.testing.assert_allclose(run(spoilt)[::2], call(given)[::2], rtol=1e-12)
            assert np.isnan(run(spoilt)[1])
        if given is not p or "1d" not in str(call.__code__.co_names):  # which has no derivative in weights
            assert np.isfinite(jax.grad(lambda given: call(given)[::2].sum())(spoilt)[::2]).all()  # noqa: B023
    with pytest.raises(Exception, match="x must be finite, got nan at point 2"):
        ej.wasserstein(np.where(np.arange(4)[:, None] == 2, np.nan, x[1]), y[1]).block_until_ready()


def test_arrays_have_the_names_of_the_functions_of_numpy():
    for name in set(ej.__all__) & set(isentropic.__all__) - {"attention"}:
        if isinstance(getattr(isentropic, name), type):
            continue
        arrays = [
            one.name
            for one in inspect.signature(getattr(isentropic, name)).parameters.values()
            if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty
        ]
        found = list(inspect.signature(getattr(ej, name)).parameters.values())[: len(arrays)]
        assert [one.name for one in found] == arrays, name
        assert all(one.kind is one.POSITIONAL_OR_KEYWORD for one in found), name
    x, target = np.array([[0.5, 1.0]]), np.array([[0.2, 0.3]])
    want = ej.distillation_loss(x, target)
    assert ej.distillation_loss(student=x, teacher=target) == ej.distillation_loss(x, teacher=target) == want
    assert ej.softmax_loss(x=x, target=np.array([1])) == ej.softmax_loss(x, np.array([1]))
    with pytest.raises(TypeError, match=r"^distillation_loss: missing a required argument: 'teacher'"):
        ej.distillation_loss(x)
    np.testing.assert_array_equal(ej.softmax(x, 0), ej.softmax(x, axis=0))  # as jax.nn.softmax


def test_what_it_has_not_is_refused_by_name():
    with pytest.raises(AttributeError, match=r"^isentropic.jax has no unbalanced_sinkhorn; isentropic.unba"):
        ej.unbalanced_sinkhorn  # noqa: B018
    assert not hasattr(ej, "softmin")


def test_fits_of_probabilities():
    x = scores(40, 3, seed=11)
    labels = np.random.default_rng(1).integers(0, 3, 40)
    p = np.asarray(jax.nn.softmax(x))
    for name in ("fit_temperature", "fit_target_entropy", "fit_vector_scaling"):
        function, known = getattr(ej, name), getattr(isentropic, name)
        np.testing.assert_array_equal(function(p, labels, input="probs"), known(p, labels, input="probs"))
        with pytest.raises(ValueError, match=f"^{name}: input must be one of scores, probs, log_probs, got 'logits'"):
            function(p, labels, input="logits")
    assert ej.match_entropy(np.log(p), input="log_probs") == isentropic.match_entropy(np.log(p), input="log_probs")


def test_orders_are_a_list():
    for wrong in ([], [[1.0]]):
        with pytest.raises(ValueError, match=r"^hill_number: order must be a number or a list of some numbers, got shape"):
            ej.hill_number(np.array([0.5, 0.5]), order=wrong)


@pytest.mark.parametrize("wrong", [(1,), 5, "ab"])
def test_a_range_of_gamma_is_a_pair(wrong):
    with pytest.raises(TypeError, match=r"^gamma_for_entropy: gamma_range must be a pair of numbers \(least, largest\), got"):
        ej.gamma_for_entropy(scores(3, 4), entropy=1.0, gamma_range=wrong)
