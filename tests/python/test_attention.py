"""Attention: against its definition in NumPy and PyTorch's own, for arrays of every kind, and its errors."""

import doctest
import inspect
import math

import numpy as np
import pytest

import isentropic
from cases import torch_or_skip

MAPS = {
    "softmax": {},
    "sparsemax": {"temperature": 0.7},
    "entmax": {"alpha": 1.3},
    "taylor_softmax": {},
    "sigsoftmax": {},
    "top_k_softmax": {"k": 3},
    "top_p_softmax": {"p": 0.8},
    "min_p_softmax": {"p": 0.1},
    "perturb_max": {"noise": "normal", "scale": 0.5},
    "entropy_normalize": {"entropy": 0.6},
    "entropy_clip": {"max_entropy": 0.6},
}
each_map = pytest.mark.parametrize("name", MAPS)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def visible_of(shape, causal, mask):
    m, n = shape[-2:]
    seen = np.ones(shape, bool)
    if causal:
        seen &= np.arange(n) <= np.arange(m)[:, None] + n - m
    if mask is not None:
        seen &= mask if mask.dtype == bool else mask > -np.inf
    return seen


def definition(
    q,
    k,
    v,
    name="softmax",
    params=None,
    scale="sqrt",
    causal=False,
    mask=None,
    train_length=512,
    kappa=None,
    softcap=None,
    sinks=None,
):
    """(out, weights, entropy), by the maps of isentropic on whole matrices."""
    d = q.shape[-1]
    group = q.shape[-3] // k.shape[-3] if q.ndim > 2 and k.ndim > 2 else 1
    k, v = (np.repeat(x, group, -3) if group > 1 else x for x in (k, v))
    s = q @ np.swapaxes(k, -1, -2)
    seen = visible_of(s.shape, causal, mask)
    count = seen.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_n = np.log(count)
    if isinstance(scale, str) and scale == "sqrt":
        factor = 1 / math.sqrt(d)
    elif isinstance(scale, str):
        power = 1 if scale == "entropy_invariant" and kappa is not None else 0.5
        factor = np.where(count > 0, (1 / math.log(train_length) if kappa is None else kappa) * log_n / d**power, 0)
    else:
        factor = scale
    s = s * factor
    s = s if softcap is None else softcap * np.tanh(s / softcap)
    s = np.where(seen, s + (mask if mask is not None and mask.dtype != bool else 0), -np.inf)
    if sinks is not None:
        s = np.concatenate([s, np.broadcast_to(sinks, (*s.shape[:-1], 1))], -1)
    p = getattr(isentropic, name)(s, **(params or {}))
    p = np.where(count > 0, p, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(p > 0, p * np.log(p), 0).sum(-1)
    p = p[..., : k.shape[-2]]
    return p @ v, p, entropy


def masks(shape):
    generator = np.random.default_rng(3)
    seen = generator.random(shape) < 0.6
    seen[..., 1, :] = False  # a query that sees nothing
    added = np.where(generator.random(shape[-2:]) < 0.2, -np.inf, generator.standard_normal(shape[-2:]))
    return {"none": None, "visible": seen, "additive": added}


@each_map
@pytest.mark.parametrize("scale", ["sqrt", "entropy_invariant", -0.4])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "visible", "additive"])
def test_definition(name, scale, causal, kind):
    q, k, v = normal(2, 4, 60, 5), normal(2, 2, 70, 5, seed=1), normal(2, 2, 70, 6, seed=2)
    mask = masks((2, 4, 60, 70))[kind]
    options = {"scale": scale, "causal": causal, "mask": mask, "train_length": 30}
    want, weights, entropy = definition(q, k, v, name, MAPS[name], **options)
    got, p, h = isentropic.attention(q, k, v, map=(name, MAPS[name]), return_weights=True, return_entropy=True, **options)
    tolerance = 1e-8 if name == "perturb_max" else 1e-11
    np.testing.assert_allclose(got, want, atol=tolerance)
    np.testing.assert_allclose(p, weights, atol=tolerance)
    np.testing.assert_allclose(h, entropy, atol=10 * tolerance)
    kappa = definition(q, k, v, scale="entropy_invariant", kappa=1.5)[0]
    np.testing.assert_allclose(isentropic.attention(q, k, v, scale="entropy_invariant", kappa=1.5), kappa, atol=1e-12)


@each_map
@pytest.mark.parametrize("kind", ["none", "visible", "additive"])
def test_gradient_by_differences(name, kind):
    if name in ("top_k_softmax", "top_p_softmax", "min_p_softmax"):
        generator = np.random.default_rng(5)  # away from the cuts
    else:
        generator = np.random.default_rng(6)
    q, k, v = (generator.standard_normal(shape) for shape in ((2, 5, 3), (1, 6, 3), (1, 6, 2)))
    g, of_entropy = generator.standard_normal((2, 5, 2)), generator.standard_normal((2, 5))
    options = {"map": (name, MAPS[name]), "mask": masks((2, 5, 6))[kind], "scale": "entropy_invariant", "train_length": 4}
    gradients = isentropic.attention_vjp(q, k, v, g, entropy_grad=of_entropy, **options)
    direction = [generator.standard_normal(x.shape) for x in (q, k, v)]
    step = 1e-6

    def value(sign):
        moved = (x + sign * step * d for x, d in zip((q, k, v), direction, strict=True))
        out, entropy = isentropic.attention(*moved, return_entropy=True, **options)
        return (g * out).sum() + (of_entropy * entropy).sum()

    above, below = value(1), value(-1)
    slope = sum((x * d).sum() for x, d in zip(gradients, direction, strict=True))
    assert slope == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-5)
    for x, d in zip((q, k, v), gradients, strict=True):
        assert x.shape == d.shape and x.dtype == d.dtype


def of_heads(*shape, seed):
    return 0.3 + np.random.default_rng(seed).random(shape)


FURTHER = {
    "log_n": {"scale": "log_n", "train_length": 30},
    "kappa for all": {"scale": "log_n", "kappa": 0.7},
    "kappa of heads": {"scale": "log_n", "kappa": of_heads(4, 1, 1, seed=1)},
    "kappa of queries": {"scale": "entropy_invariant", "kappa": of_heads(2, 1, 60, 1, seed=2)},
    "scale of queries": {"scale": of_heads(60, 1, seed=3)},
    "sinks of heads": {"sinks": of_heads(4, seed=4), "scale": "log_n"},
    "sinks of queries": {"sinks": of_heads(2, 4, 60, 1, seed=5)},
    "softcap": {"softcap": 0.8},
    "all": {"softcap": 6.0, "sinks": of_heads(4, seed=6), "scale": "log_n", "kappa": of_heads(4, 1, 1, seed=7)},
}


@each_map
@pytest.mark.parametrize("further", FURTHER)
@pytest.mark.parametrize(("causal", "kind"), [(False, "none"), (True, "none"), (False, "visible"), (True, "additive")])
def test_scales_caps_and_sinks(name, further, causal, kind):
    q, k, v = normal(2, 4, 60, 5), normal(2, 2, 70, 5, seed=1), normal(2, 2, 70, 6, seed=2)
    options = {"causal": causal, "mask": masks((2, 4, 60, 70))[kind], **FURTHER[further]}
    given = dict(options)
    if "sinks" in options and options["sinks"].ndim == 1:
        given["sinks"] = options["sinks"][:, None, None]
    want = definition(q, k, v, name, MAPS[name], **given)
    got = isentropic.attention(q, k, v, map=(name, MAPS[name]), return_weights=True, return_entropy=True, **options)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-7 if name == "perturb_max" else 1e-10)


@each_map
@pytest.mark.parametrize("kind", ["none", "visible", "additive"])
@pytest.mark.parametrize("scale", ["log_n", "entropy_invariant", "number"])
def test_gradients_of_sinks_and_scales_by_differences(name, kind, scale):
    generator = np.random.default_rng(11)
    q, k, v = (generator.standard_normal(shape) for shape in ((2, 5, 3), (1, 6, 3), (1, 6, 2)))
    g, of_entropy = generator.standard_normal((2, 5, 2)), generator.standard_normal((2, 5))
    options = {"map": (name, MAPS[name]), "mask": masks((2, 5, 6))[kind], "softcap": 1.5, "causal": kind == "none"}
    own = "scale" if scale == "number" else "kappa"
    values = {"q": q, "k": k, "v": v, "sinks": of_heads(2, seed=9), own: of_heads(2, 5, 1, seed=8)}
    if own == "kappa":
        options["scale"] = scale
    # perturb_max has a scale of its own.
    asked = {} if name == "perturb_max" and own == "scale" else {"param_grad": own}
    *gradients, slope = isentropic.attention_vjp(grad=g, entropy_grad=of_entropy, **options, **values, **asked)
    gradients, slope = (gradients, slope) if asked else ([*gradients, slope], None)
    found = dict(zip(("q", "k", "v", "sinks"), gradients, strict=True))
    if asked:
        assert slope.shape == (2, 5)
        found[own] = slope[..., None]
    direction = {key: generator.standard_normal(x.shape) for key, x in values.items() if key in found}
    assert all(found[key].shape == x.shape for key, x in direction.items())

    def value(step):
        moved = {key: x + step * direction[key] if key in direction else x for key, x in values.items()}
        out, entropy = isentropic.attention(**moved, return_entropy=True, **options)
        return (g * out).sum() + (of_entropy * entropy).sum()

    slope = sum((found[key] * d).sum() for key, d in direction.items())
    assert slope == pytest.approx((value(1e-6) - value(-1e-6)) / 2e-6, rel=1e-5, abs=1e-5)


def test_sinks_of_every_kind():
    q, k, v = normal(2, 3, 4, 5), normal(2, 3, 6, 5, seed=1), normal(2, 3, 6, 2, seed=2)
    want = isentropic.attention(q, k, v, sinks=np.array([0.5, 0.5, 0.5]))
    for sinks in (0.5, [0.5], [0.5, 0.5, 0.5], np.full((1, 1), 0.5), np.full((3, 1, 1), np.float32(0.5))):
        np.testing.assert_array_equal(isentropic.attention(q, k, v, sinks=sinks), want)
    dsinks = isentropic.attention_vjp(q, k, v, want, sinks=np.full((3, 1, 1), 0.5, np.float32))[3]
    assert dsinks.shape == (3, 1, 1) and dsinks.dtype == np.float64
    single = isentropic.attention_vjp(q[0, 0], k[0, 0], v[0, 0], want[0, 0], sinks=np.full((4, 1), 0.5))[3]
    assert single.shape == (4, 1)
    # A sink beside hidden keys alone takes nothing: the query gives zeros. One key is taken, unless there is a sink.
    hidden = np.zeros((4, 6), bool)
    out, p, h = isentropic.attention(q, k, v, sinks=[1.0], mask=hidden, return_weights=True, return_entropy=True)
    assert not out.any() and not p.any() and not h.any()
    hidden[:, 2] = True
    np.testing.assert_array_equal(
        isentropic.attention(q, k, v, scale="log_n", mask=hidden), np.broadcast_to(v[..., 2:3, :], (2, 3, 4, 2))
    )
    half = isentropic.attention(q, k, v, scale="log_n", mask=hidden, sinks=[0.0])
    np.testing.assert_allclose(half, np.broadcast_to(v[..., 2:3, :] / 2, (2, 3, 4, 2)), atol=1e-15)


@each_map
@pytest.mark.parametrize("scale", ["log_n", "entropy_invariant"])
def test_decoding_with_a_cache(name, scale):
    """Query by query, each with the keys so far, is the whole sequence; a window is in the mask, and its keys are counted."""
    q, k, v = normal(2, 3, 40, 5), normal(2, 3, 40, 5, seed=1), normal(2, 3, 40, 6, seed=2)
    of_queries = {"kappa": of_heads(3, 1, 1, seed=3), "sinks": of_heads(3, seed=4)}
    options = {"map": (name, MAPS[name]), "scale": scale, "causal": True, "softcap": 3.0, **of_queries}
    near = np.abs(np.arange(40)[:, None] - np.arange(40)) < 9
    for mask in (None, near):
        whole = isentropic.attention(q, k, v, mask=mask, **options)
        for first, last in ((0, 1), (1, 7), (7, 8), (8, 39), (39, 40)):
            here = None if mask is None else mask[first:last, :last]
            part = isentropic.attention(q[..., first:last, :], k[..., :last, :], v[..., :last, :], mask=here, **options)
            np.testing.assert_allclose(part, whole[..., first:last, :], atol=1e-8 if name == "perturb_max" else 1e-12)
            np.testing.assert_array_equal(
                isentropic.keys_seen(last - first, last, causal=True, mask=here),
                isentropic.keys_seen(40, 40, causal=True, mask=mask)[first:last],
            )


def test_keys_seen():
    np.testing.assert_array_equal(isentropic.keys_seen(3, 5), [5, 5, 5])
    np.testing.assert_array_equal(isentropic.keys_seen(3, 5, causal=True), [3, 4, 5])
    np.testing.assert_array_equal(isentropic.keys_seen(4, 2, causal=True), [0, 0, 1, 2])
    assert isentropic.keys_seen(0, 3).shape == (0,) and not isentropic.keys_seen(2, 0, causal=True).any()
    for causal in (False, True):
        for mask in masks((2, 4, 6, 7)).values():
            shape = (6, 7) if mask is None else np.broadcast_shapes(mask.shape, (6, 7))
            found = isentropic.keys_seen(6, 7, causal=causal, mask=mask)
            assert found.dtype.kind == "i"
            np.testing.assert_array_equal(found, visible_of(shape, causal, mask).sum(-1))
    padding = np.arange(5) < np.array([[3], [5]])  # of two texts
    np.testing.assert_array_equal(isentropic.keys_seen(2, 5, causal=True, mask=padding[:, None]), [[3, 3], [4, 5]])
    # It is the n of the scales.
    q, k, v = normal(6, 4), normal(7, 4, seed=1), normal(7, 2, seed=2)
    seen = masks((6, 7))["visible"]
    n = isentropic.keys_seen(6, 7, causal=True, mask=seen)
    scale = 0.6 * np.log(np.maximum(n, 1))[:, None] / 2
    options = {"causal": True, "mask": seen}
    np.testing.assert_allclose(
        isentropic.attention(q, k, v, scale=scale, **options),
        isentropic.attention(q, k, v, scale="log_n", kappa=0.6, **options),
        atol=1e-14,
    )


def test_pytorch_agrees():
    torch = torch_or_skip()
    q, k, v = (torch.randn(2, 3, 65, 16, generator=torch.Generator().manual_seed(i)) for i in range(3))
    for causal in (False, True):
        want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        torch.testing.assert_close(isentropic.attention(q, k, v, causal=causal), want, atol=1e-6, rtol=1e-5)
    mask = torch.rand(3, 65, 65) < 0.5
    mask[..., 0] = True
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.3)
    torch.testing.assert_close(isentropic.attention(q, k, v, mask=mask, scale=0.3), want, atol=1e-6, rtol=1e-5)
    want = torch.nn.functional.scaled_dot_product_attention(q, k[:, :1], v[:, :1].expand(2, 1, 65, 16), enable_gqa=True)
    torch.testing.assert_close(isentropic.attention(q, k[:, :1], v[:, :1]), want, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_kinds_and_shapes(dtype):
    q, k, v = (np.round(4 * normal(*shape)).astype(dtype) for shape in ((3, 1, 2, 4, 5), (2, 7, 5), (1, 7, 3)))
    out, weights, entropy = isentropic.attention(q, k, v, return_weights=True, return_entropy=True)
    assert out.shape == (3, 1, 2, 4, 3) and weights.shape == (3, 1, 2, 4, 7) and entropy.shape == (3, 1, 2, 4)
    assert out.dtype == (np.float64 if dtype is np.int32 else dtype)
    wide = [x.astype(np.float64) for x in (q, k, np.broadcast_to(v, (2, 7, 3)))]
    np.testing.assert_allclose(out, definition(*wide)[0], atol={np.float16: 1e-2, np.float32: 1e-5}.get(dtype, 1e-12))
    # Strides: transposed, reversed, every other.
    big = [np.asfortranarray(np.repeat(x, 2, -1))[..., ::2] for x in (q, k, v)]
    np.testing.assert_array_equal(isentropic.attention(*big), out)
    dq, dk, dv = isentropic.attention_vjp(q, k, v, np.ones(out.shape, dtype))
    assert dq.shape == q.shape and dk.shape == k.shape and dv.shape == v.shape
    if dtype is not np.int32:
        np.testing.assert_array_equal(isentropic.attention(q[0, 0, 0].tolist(), k[0].tolist(), v[0].tolist()).shape, (4, 3))


def test_broadcast_gradients_are_sums():
    q, k, v, g = normal(3, 2, 4, 5), normal(1, 7, 5, seed=1), normal(3, 1, 7, 2, seed=2), normal(3, 2, 4, 2, seed=3)
    dq, dk, dv = isentropic.attention_vjp(q, k, v, g)
    whole = [np.broadcast_to(x, (3, 2, *x.shape[-2:])).copy() for x in (q, k, v)]
    eq, ek, ev = isentropic.attention_vjp(*whole, g)
    np.testing.assert_allclose(dq, eq, atol=1e-13)
    np.testing.assert_allclose(dk, ek.sum((0, 1))[None], atol=1e-13)
    np.testing.assert_allclose(dv, ev.sum(1, keepdims=True), atol=1e-13)


def test_alpha_for_each_head():
    q, k, v, g = (normal(2, 3, 50, 4, seed=i) for i in range(4))
    alpha = np.array([1.2, 1.5, 2.0])[:, None, None]
    out = isentropic.attention(q, k, v, map="entmax", alpha=alpha)
    for h in range(3):
        one = isentropic.attention(q[:, h], k[:, h], v[:, h], map="entmax", alpha=alpha[h, 0, 0])
        np.testing.assert_allclose(out[:, h], one, atol=1e-13)
    *_, dalpha = isentropic.attention_vjp(q, k, v, g, map="entmax", alpha=alpha, param_grad=True)
    assert dalpha.shape == (2, 3, 50)
    above, below = (
        (g * isentropic.attention(q, k, v, map="entmax", alpha=alpha + step)).sum((0, 2, 3)) for step in (1e-6, -1e-6)
    )
    np.testing.assert_allclose(dalpha.sum((0, 2)), (above - below) / 2e-6, atol=1e-5)


def test_what_is_hidden_does_not_matter():
    q, k, v = normal(70, 4), normal(70, 4, seed=1), normal(70, 3, seed=2)
    want = isentropic.attention(q, k, v, causal=True)
    k[50:], v[50:] = np.nan, np.inf
    got = isentropic.attention(q, k, v, causal=True)
    np.testing.assert_allclose(got[:50], want[:50], atol=1e-14)
    assert np.isnan(got[50:]).all()
    dq, _, _ = isentropic.attention_vjp(q[:50], k, v, np.ones((50, 3)), mask=np.tri(50, 70, dtype=bool))
    assert np.isfinite(dq).all()


def test_no_keys():
    nothing = np.zeros((2, 3), bool)
    out, p, h = isentropic.attention(*(normal(n, 4) for n in (2, 3, 3)), mask=nothing, return_weights=True, return_entropy=True)
    assert not out.any() and not p.any() and not h.any()
    assert not isentropic.attention(normal(2, 4), normal(0, 4), normal(0, 3)).any()
    assert not isentropic.linear_attention(normal(2, 4), normal(0, 4), normal(0, 3)).any()
    assert isentropic.attention(normal(0, 4), normal(2, 4), normal(2, 3)).shape == (0, 3)
    # More queries than keys, causal: the first see nothing.
    few = isentropic.attention(normal(5, 4), normal(2, 4), normal(2, 3), causal=True)
    assert not few[:3].any() and few[3:].all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (5, 9, 3, 2), (300, 300, 8, 5), (260, 600, 16, 17), (4, 2, 3, 3)])
def test_linear_attention(shape, causal):
    m, n, d, dv = shape
    q, k, v = normal(2, 2, m, d), normal(2, 1, n, d, seed=1), normal(2, 1, n, dv, seed=2)
    for scale in ("sqrt", -0.3):
        want = isentropic.attention(q, k, v, map="taylor_softmax", scale=scale, causal=causal)
        np.testing.assert_allclose(isentropic.linear_attention(q, k, v, scale=scale, causal=causal), want, atol=1e-12)
        single = (x.astype(np.float32) for x in (q, k, v))
        got = isentropic.linear_attention(*single, scale=scale, causal=causal)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (5, 9, 3, 2), (2100, 2300, 3, 5), (260, 260, 16, 17), (4, 2, 3, 3), (4, 0, 2, 2)]
)
def test_linear_attention_vjp(shape, causal):
    m, n, d, dv = shape
    q, k, v, g = normal(2, 2, m, d), normal(1, n, d, seed=1), normal(2, 1, n, dv, seed=2), normal(2, 2, m, dv, seed=3)
    for scale in ("sqrt", -0.3):
        want = isentropic.attention_vjp(q, k, v, g, map="taylor_softmax", scale=scale, causal=causal)
        got = isentropic.linear_attention_vjp(q, k, v, g, scale=scale, causal=causal)
        for a, b, x in zip(got, want, (q, k, v), strict=True):
            assert a.shape == x.shape
            np.testing.assert_allclose(a, b, atol=1e-11)


def test_linear_attention_over_many_keys():
    """Sums over keys keep what rounding loses: the error does not grow with their number."""
    q, k, v = (np.abs(normal(*shape, seed=5)).astype(np.float32) for shape in ((8, 2), (1 << 19, 2), (1 << 19, 3)))
    want = isentropic.linear_attention(*(x.astype(np.float64) for x in (q, k, v)))
    np.testing.assert_allclose(isentropic.linear_attention(q, k, v), want, rtol=4e-7)


def test_threads_and_batch_do_not_change_bits():
    q, k, v, g = (normal(3, 4, 100, 32, seed=i).astype(np.float32) for i in range(4))

    def results(q, k, v, g):
        options = {"map": "entmax", "causal": True, "scale": "entropy_invariant"}
        return (
            isentropic.attention(q, k, v, **options),
            *isentropic.attention_vjp(q, k, v, g, **options),
            isentropic.linear_attention(q, k, v, causal=True),
            *isentropic.linear_attention_vjp(q, k, v, g, causal=True),
        )

    want = results(q, k, v, g)
    try:
        for threads in (1, 2, 5):
            isentropic.set_num_threads(threads)
            for got, expected in zip(results(q, k, v, g), want, strict=True):
                np.testing.assert_array_equal(got, expected)
    finally:
        isentropic.set_num_threads(0)
    for got, expected in zip(results(*(x[1, 2] for x in (q, k, v, g))), want, strict=True):
        np.testing.assert_array_equal(got, expected[1, 2])


Q, K, V = normal(4, 6, 3), normal(2, 5, 3), normal(2, 5, 2)
REFUSED = {
    "attention: map must be one of softmax, sparsemax, entmax, taylor_softmax, sigsoftmax, top_k_softmax, top_p_softmax, "
    "min_p_softmax, perturb_max, entropy_normalize, entropy_clip, got 'soft'": lambda: isentropic.attention(
        Q, K, V, map="soft"
    ),
    "attention: map must be a name or (name, {parameter: value}), got int": lambda: isentropic.attention(Q, K, V, map=3),
    "attention: map 'top_k_softmax' needs the parameter 'k': map=('top_k_softmax', {'k': ...})": lambda: isentropic.attention(
        Q, K, V, map="top_k_softmax"
    ),
    "attention: map 'softmax' has no parameter 'alpha', nor has attention": lambda: isentropic.attention(Q, K, V, alpha=1.5),
    "attention: parameter 'alpha' of the map is given twice, in map and beside it": lambda: isentropic.attention(
        Q, K, V, map=("entmax", {"alpha": 2.0}), alpha=1.5
    ),
    "entmax: alpha must be above 0 and finite, got -1": lambda: isentropic.attention(Q, K, V, map="entmax", alpha=-1.0),
    "attention: scale must be 'sqrt', 'entropy_invariant', 'log_n' or a number, got 'log'": lambda: isentropic.attention(
        Q, K, V, scale="log"
    ),
    "attention: scale must be 'sqrt', 'entropy_invariant', 'log_n' or a number, got NoneType": lambda: isentropic.attention(
        Q, K, V, scale=None
    ),
    "attention: scale must be 'sqrt', 'entropy_invariant', 'log_n' or a finite number, got nan": lambda: isentropic.attention(
        Q, K, V, scale=math.nan
    ),
    "attention: train_length must be above 1 and finite, got 1": lambda: isentropic.attention(Q, K, V, train_length=1),
    "attention: kappa must be above 0 and finite, got 0": lambda: isentropic.attention(Q, K, V, scale="log_n", kappa=0),
    "attention: kappa must be None unless scale is 'entropy_invariant' or 'log_n', got scale 'sqrt'": (
        lambda: isentropic.attention(Q, K, V, kappa=1.5)
    ),
    "attention: kappa must be None unless scale is 'entropy_invariant' or 'log_n', got scale a number": (
        lambda: isentropic.attention(Q, K, V, kappa=1.5, scale=np.ones((4, 1, 1)))
    ),
    "attention: kappa of row 7 must be above 0 and finite, got nan": lambda: isentropic.attention(
        Q, K, V, scale="log_n", kappa=np.where(np.arange(6)[:, None] == 1, [[[1.0]], [[np.nan]], [[1.0]], [[1.0]]], 1.0)
    ),
    "attention: kappa must be a number or an array that broadcasts to (4, 6, 1), (..., m, 1), got shape (4,)": (
        lambda: isentropic.attention(Q, K, V, scale="log_n", kappa=np.ones(4))
    ),
    "attention: scale must be a number or an array that broadcasts to (4, 6, 1), (..., m, 1), got shape (3, 1, 1)": (
        lambda: isentropic.attention(Q, K, V, scale=np.ones((3, 1, 1)))
    ),
    "attention: sinks must be one for each of 4 heads, got shape (3,)": lambda: isentropic.attention(Q, K, V, sinks=np.ones(3)),
    "attention_vjp: sinks must be one for each head, or a number or an array that broadcasts to (4, 6, 1), (..., m, 1), "
    "got shape (6, 5)": lambda: isentropic.attention_vjp(Q, K, V, Q[..., :2], sinks=np.ones((6, 5))),
    "attention: softcap must be above 0 and finite, got 0.0": lambda: isentropic.attention(Q, K, V, softcap=0),
    "attention: softcap must be above 0 and finite, got nan": lambda: isentropic.attention(Q, K, V, softcap=math.nan),
    "attention_vjp: param_grad must be True, False or names of given parameters, 'temperature', got 'kappa'": (
        lambda: isentropic.attention_vjp(Q, K, V, Q[..., :2], scale="log_n", param_grad="kappa")
    ),
    "keys_seen: n must be at least 0, got -1": lambda: isentropic.keys_seen(2, -1),
    "keys_seen: m must be an integer, got float": lambda: isentropic.keys_seen(2.0, 3),
    "keys_seen: causal must be a bool, got int": lambda: isentropic.keys_seen(2, 3, causal=1),
    "keys_seen: mask must broadcast to (..., 2, 3), got shape (3, 3)": lambda: isentropic.keys_seen(2, 3, mask=np.eye(3) > 0),
    "keys_seen: mask must be of bools (True: the key is seen) or of floats (added to the scores), got dtype int64": (
        lambda: isentropic.keys_seen(2, 3, mask=np.ones(3, np.int64))
    ),
    "attention: k must have the last axis of q, 3, got shape (2, 5, 2)": lambda: isentropic.attention(Q, V, V),
    "attention: v must have as many rows as k, 5, got shape (2, 4, 2)": lambda: isentropic.attention(Q, K, V[:, 1:]),
    "attention: q must have a multiple of the heads of k, 2, got shape (3, 6, 3)": lambda: isentropic.attention(Q[:3], K, V),
    "attention: q must have at least two axes, got shape (3,)": lambda: isentropic.attention(Q[0, 0], K, V),
    "attention: mask must broadcast to (4, 6, 5), got shape (5, 6)": lambda: isentropic.attention(
        Q, K, V, mask=np.ones((5, 6), bool)
    ),
    "attention: mask must be of bools (True: the key is seen) or of floats (added to the scores), got dtype int64": (
        lambda: isentropic.attention(Q, K, V, mask=np.ones((6, 5), np.int64))
    ),
    "attention_vjp: grad must have the shape of out, (4, 6, 2), got (4, 6, 3)": lambda: isentropic.attention_vjp(Q, K, V, Q),
    "linear_attention: scale must be 'sqrt' or a number, got 'entropy_invariant'": lambda: isentropic.linear_attention(
        Q, K, V, scale="entropy_invariant"
    ),
    "linear_attention_vjp: grad must have the shape of out, (4, 6, 2), got (4, 6, 3)": (
        lambda: isentropic.linear_attention_vjp(Q, K, V, Q)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    with pytest.raises((TypeError, ValueError)) as error:
        REFUSED[message]()
    assert str(error.value) == message


@pytest.mark.parametrize("name", ["attention", "attention_vjp", "keys_seen", "linear_attention", "linear_attention_vjp"])
def test_documented(name):
    function = getattr(isentropic, name)
    assert name in isentropic.__all__ and function.__module__ == "isentropic"
    for parameter in inspect.signature(function).parameters:
        assert parameter in function.__doc__
    said = []
    test = doctest.DocTestParser().get_doctest(function.__doc__, {"isentropic": isentropic, "np": np}, name, None, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test, out=said.append).failed == 0, "".join(said)
