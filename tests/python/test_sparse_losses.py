"""sparse_distillation_loss: values and gradients against the definition with 45 digits, in every door; its errors."""

import importlib

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import isentropic
import losses_reference as reference

mpmath.mp.dps = 45

DIVERGENCES = ["forward_kl", "reverse_kl", "jsd", "total_variation"]
VARIANTS = [
    *({"divergence": one} for one in DIVERGENCES),
    {"divergence": "jsd", "beta": 0.1},
    *({"divergence": one, "tail": "renormalize", "temperature": t} for one in DIVERGENCES for t in (1.0, 2.5)),
]
every = pytest.mark.parametrize("params", VARIANTS, ids=["-".join(map(str, one.values())) for one in VARIANTS])
loss = isentropic.sparse_distillation_loss


def teacher(rng, n, k, rows, near=None):
    """(indices, log_probs) of the k most probable classes of each row, some without the last ones."""
    scores = 2 * rng.standard_normal((rows, n)) if near is None else near + 1e-6 * rng.standard_normal((rows, n))
    log_p = isentropic.log_softmax(scores)
    indices = np.argsort(-log_p, axis=-1)[:, :k]
    found = np.take_along_axis(log_p, indices, -1)
    indices[::3, -1] = -1
    found[::3, -1] = np.nan  # is not read
    return indices, found


def cases(rng):
    for n, k, rows in ((1, 1, 2), (2, 1, 4), (7, 3, 4), (7, 7, 2), (150, 20, 3)):
        x = 2 * rng.standard_normal((rows, n))
        x[-1] *= 20
        if n > max(k, 5):
            x[1, 2] = -np.inf
        for near in (None, x):
            indices, log_probs = teacher(rng, n, k, rows, near)
            if n == k:  # all classes: the mass is 1
                indices[::3, -1] = np.setdiff1d(np.arange(n), indices[0])[0] if n > 1 else 0
                for r in range(0, rows, 3):
                    indices[r, -1] = np.setdiff1d(np.arange(n), indices[r, :-1])[0]
                log_probs = np.take_along_axis(isentropic.log_softmax(x if near is not None else x[::-1].copy()), indices, -1)
            log_probs = np.where(np.isneginf(x)[np.arange(rows)[:, None], indices], -40.0, log_probs)
            yield x, indices, log_probs


@every
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_is_the_definition(params, dtype):
    rng = np.random.default_rng(3)
    eps = np.finfo(dtype).eps
    for x, indices, log_probs in cases(rng):
        x, log_probs = x.astype(dtype), log_probs.astype(dtype)
        if params.get("tail") == "renormalize" and indices.shape[1] == 1:
            indices, log_probs = indices.clip(0), np.nan_to_num(log_probs)
        value, dx = loss(x, indices, log_probs, return_grad=True, **params)
        assert value.dtype == dx.dtype == dtype
        assert (value >= 0).all()
        for r, row in enumerate(x):
            if (indices[r] < 0).all():
                assert value[r] == 0 and not dx[r].any()
                continue
            numbers = [mpf(float(v)) if np.isfinite(v) else mpf("-inf") for v in row]
            want, slopes = reference.sparse_distillation_loss(numbers, indices[r], log_probs[r], **params)
            if mpmath.isinf(want):
                assert value[r] == np.inf and np.isfinite(dx[r]).all()
                continue
            left = 1 - mpmath.fsum(mpmath.exp(mpf(float(v))) for i, v in zip(indices[r], log_probs[r], strict=True) if i >= 0)
            if np.isinf(value[r]):  # no mass is left, up to rounding
                assert params["divergence"] == "reverse_kl" and abs(left) < 1e-15 and not dx[r].any()
                continue
            scale = max(1, float(np.abs(row[np.isfinite(row)]).max()))
            # 1 less the listed mass has the rounding of float64, by which the teacher's last bin is off, the student's by that
            # of the scores' type.
            off = 0 if params.get("tail") == "renormalize" else 2.0**-52
            first_order = params["divergence"] == "total_variation"
            near = 0 if dtype is np.float64 or not off else eps * scale * (1 if first_order else mpmath.sqrt(want))
            close = 20 * eps * scale * (want + eps) + 20 * off + near
            assert abs(value[r] - want) <= close, (r, value[r], want)
            largest = max(map(abs, slopes))
            for got, slope in zip(dx[r], slopes, strict=True):
                assert abs(float(got) - slope) <= 20 * eps * scale * (largest + eps) + 20 * off + (eps * scale if off else 0), (
                    r,
                    got,
                    slope,
                )


def test_no_class_no_tail_and_classes_in_any_order():
    x, rng = np.random.default_rng(5).standard_normal((4, 9)), np.random.default_rng(6)
    indices, log_probs = teacher(rng, 9, 4, 4)
    want = loss(x, indices, log_probs, return_grad=True)
    order = rng.permutation(4)
    for got, expected in zip(loss(x, indices[:, order], log_probs[:, order], return_grad=True), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-16)
    none = np.full((4, 4), -1)
    value, dx = loss(np.full((4, 9), np.nan), none, log_probs, return_grad=True)
    assert not value.any() and not dx.any()
    # All classes: what distillation_loss gives of the same teacher.
    every = np.tile(np.arange(9), (4, 1))
    log_p = isentropic.log_softmax(x[::-1].copy())
    for divergence in DIVERGENCES:
        for tail in ("bin", "renormalize"):
            value, dx = loss(x, every, log_p, divergence=divergence, tail=tail, return_grad=True)
            same = isentropic.distillation_loss(x, log_p, divergence=divergence, return_grad=True)
            np.testing.assert_allclose(value, same[0], rtol=1e-12, atol=1e-15)
            np.testing.assert_allclose(dx, same[1], rtol=1e-11, atol=1e-15)


def test_a_tail_that_is_far_below():
    """Where the listed classes have all but e^-2000, the tail has a logarithm and no number."""
    x, indices = np.array([2000.0, 0.0, 1.0]), np.array([0])
    value, dx = loss(x, indices, np.log([0.75]), return_grad=True)
    tail = np.log(0.25) + 2000 - np.log1p(np.e)
    np.testing.assert_allclose(value, 0.75 * np.log(0.75) + 0.25 * tail, rtol=1e-13)
    np.testing.assert_allclose(dx, [0.25, -0.25 / (1 + np.e), -0.25 * np.e / (1 + np.e)], rtol=1e-13)


def test_special_rows():
    indices, log_probs = np.array([[0, 2]] * 4), np.log([[0.5, 0.25]] * 4)
    x = np.array([[1.0, 2, 3], [np.nan, 0, 0], [-np.inf] * 3, [np.inf, 0, np.inf]])
    for tail in ("bin", "renormalize"):
        value, dx = loss(x, indices, log_probs, tail=tail, return_grad=True)
        usual = loss(x[0], indices[0], log_probs[0], tail=tail, return_grad=True)
        assert value[0] == usual[0] and np.array_equal(dx[0], usual[1])
        assert np.isnan(value[1:3]).all() and np.isnan(dx[1:3]).all()
        assert not np.isnan(value[3]) and not dx[3].any()
    unlisted = x[1:2].copy()
    unlisted[0] = [0, np.nan, 0]
    assert np.isnan(loss(unlisted, indices[:1], log_probs[:1], tail="renormalize"))
    # Infinite scores beside the listed ones share the tail's mass, and the listed classes have none.
    value, dx = loss([0.0, np.inf, np.inf, 1.0], [0], np.log([0.5]), divergence="reverse_kl", return_grad=True)
    np.testing.assert_allclose(value, np.log(2))
    assert not dx.any()
    assert loss([0.0, 1.0, -np.inf], [0, 1], np.log([0.5, 0.5]), divergence="reverse_kl") < np.inf
    value, dx = loss([0.0, 1.0, 0.0], [0, 1], np.log([0.5, 0.5]), divergence="reverse_kl", return_grad=True)
    assert value == np.inf and not dx.any()


def test_types_axes_and_layouts():
    rng = np.random.default_rng(8)
    x, (indices, log_probs) = rng.standard_normal((6, 9)), teacher(rng, 9, 4, 6)
    log_probs = np.nan_to_num(log_probs)
    want, slopes = loss(x, indices, log_probs, return_grad=True)
    value, dx = loss(x.T, indices, log_probs, axis=0, return_grad=True)
    assert np.array_equal(value, want) and np.array_equal(dx, slopes.T)
    value, dx = loss(x.reshape(2, 3, 9), indices.reshape(2, 3, 4), log_probs.reshape(2, 3, 4), return_grad=True)
    assert np.array_equal(value.ravel(), want) and np.array_equal(dx.reshape(6, 9), slopes)
    assert np.array_equal(
        loss(x, indices.astype(np.int32)[:, ::-1], np.asfortranarray(log_probs[:, ::-1])),
        loss(x, indices[:, ::-1].copy(), log_probs[:, ::-1].copy()),
    )
    half = loss(x.astype(np.float16), indices, log_probs.astype(np.float32))
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, want, rtol=1e-2, atol=1e-2)
    rounded = log_probs.astype(np.float16)  # whose mass may be above 1 by its rounding
    np.testing.assert_allclose(loss(x, indices, rounded), want, rtol=2e-2, atol=1e-2)
    assert loss(np.empty((0, 9)), np.empty((0, 4), int), np.empty((0, 4))).shape == (0,)
    temperature = np.linspace(0.5, 3, 6)[:, None]
    params = {"tail": "renormalize", "divergence": "jsd"}
    each = loss(x, indices, log_probs, temperature=temperature, **params)
    assert [loss(x[r], indices[r], log_probs[r], temperature=float(temperature[r, 0]), **params) for r in range(6)] == list(
        each
    )


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_gradients_in_parameters(divergence):
    rng = np.random.default_rng(9)
    x, (indices, log_probs) = rng.standard_normal((5, 8)), teacher(rng, 8, 4, 5)
    beta = {"beta": 0.3} if divergence == "jsd" else {}
    given = {"temperature": 1.4, **beta}

    def at(**moved):
        return loss(x, indices, log_probs, divergence=divergence, tail="renormalize", **{**given, **moved})

    _, slopes = loss(x, indices, log_probs, divergence=divergence, tail="renormalize", param_grad=True, **given)
    slopes = dict(zip(given, slopes if beta else (slopes,), strict=True))
    for name, number in given.items():
        difference = (at(**{name: number + 1e-6}) - at(**{name: number - 1e-6})) / 2e-6
        np.testing.assert_allclose(slopes[name], difference, rtol=1e-7, atol=1e-8)


X, CLASSES, L = np.zeros((3, 4)), np.array([[0, 1], [2, 3], [-1, 1]]), np.log([[0.5, 0.25]] * 3)
WRONG = {
    "indices must have a class once in every row, got class 2 twice (row 1, entry 1)": {"i": [[0, 1], [2, 2], [0, 1]]},
    "indices must be classes from 0 to 3, or -1 for none, got 4 (row 2, entry 1)": {"i": [[0, 1], [2, 3], [0, 4]]},
    "indices must be classes from 0 to 3, or -1 for none, got -2 (row 0, entry 0)": {"i": [[-2, 1], [2, 3], [0, 1]]},
    "log_probs must have a mass of at most 1 in every row, got 1.4 (row 1, entry 1)": {"p": [[0.5, 0.5], [0.7, 0.7], [0, 1]]},
    "log_probs must be at most 0": {"l": [[-1.0, 0.5], [-1, -1], [-1, -1]]},
    "got nan": {"l": [[-1.0, np.nan], [-1, -1], [-1, -1]]},
    "must have at least one class": {"i": np.empty((3, 0), int), "l": np.empty((3, 0))},
    "log_probs must have the shape of indices": {"l": [[-1.0]] * 3},
    "indices must have": {"i": CLASSES[:2]},
    "indices must be integers": {"i": CLASSES.astype(float)},
    "temperature must be 1 with tail bin": {"temperature": 2.0},
    "beta must be left out unless divergence is jsd": {"beta": 0.5},
    "beta must be below 1": {"beta": 1.0, "divergence": "jsd"},
    "divergence must be one of forward_kl, reverse_kl, jsd, total_variation": {"divergence": "kl"},
    "tail must be one of bin, renormalize": {"tail": "none"},
    "mass above 0": {"l": [[-np.inf, -np.inf], [-1, -1], [-1, -1]], "tail": "renormalize"},
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(text):
    given = dict(WRONG[text])
    with np.errstate(divide="ignore"):
        logs = np.log(given.pop("p")) if "p" in given else np.asarray(given.pop("l", L))
    indices = np.asarray(given.pop("i", CLASSES))
    with pytest.raises((ValueError, TypeError)) as error:
        loss(X, indices, logs, **given)
    assert text.split(" (row")[0] in str(error.value), str(error.value)
    if "(row" in text:
        row, entry = text[text.index("(row") + 5 : -1].split(", entry ")
        assert f"row {row}" in str(error.value) and f"entry {entry}" in str(error.value), str(error.value)


def test_all_classes_have_a_mass_of_one():
    with pytest.raises(ValueError, match=r"log_probs must have a mass of 1 where all classes are listed, got 0\.75"):
        loss(np.zeros(2), [0, 1], np.log([0.5, 0.25]))
    assert loss(np.zeros(2), [0, 1], np.log([0.5, 0.25]), tail="renormalize") > 0


def torch_doors():
    return pytest.importorskip("torch"), importlib.import_module("isentropic.torch")


@every
def test_torch(params):
    torch, et = torch_doors()
    rng = np.random.default_rng(11)
    x, (indices, log_probs) = rng.standard_normal((5, 7)), teacher(rng, 7, 3, 5)
    x[0, 3] = -np.inf
    want, slopes = loss(x, indices, log_probs, return_grad=True, **params)
    given = torch.tensor(x, requires_grad=True), torch.tensor(indices), torch.tensor(log_probs)
    value = et.sparse_distillation_loss(*given, **params)
    assert np.array_equal(value.detach().numpy(), want)
    (dx,) = torch.autograd.grad(value.sum(), given[0])
    assert np.array_equal(dx.numpy(), slopes)
    finite = torch.tensor(rng.standard_normal((3, 6)), requires_grad=True)
    some = torch.tensor(indices[:3]).clamp(max=5), torch.tensor(np.nan_to_num(log_probs[:3] - 2, nan=-9.0))
    some = torch.tensor([[0, 3, -1], [5, 1, 2], [4, 0, 1]]), some[1]

    def function(x):
        return et.sparse_distillation_loss(x, *some, **params)

    assert torch.autograd.gradcheck(function, finite)
    assert torch.autograd.gradgradcheck(function, finite, rtol=1e-4, atol=1e-6)
    along = et.sparse_distillation_loss(finite.T, *some, dim=0, **params)
    assert torch.equal(along, function(finite))
    half = et.sparse_distillation_loss(finite.bfloat16(), some[0], some[1].float(), **params)
    assert half.dtype is torch.float32
    batched = torch.func.vmap(lambda x: et.sparse_distillation_loss(x, *some, **params))(torch.stack([finite, 2 * finite]))
    torch.testing.assert_close(batched[0], function(finite))


def test_torch_parameters_modules_and_reductions():
    torch, et = torch_doors()
    rng = np.random.default_rng(12)
    x = torch.tensor(rng.standard_normal((2, 3, 7)), requires_grad=True)
    indices, log_probs = (torch.tensor(one).reshape(2, 3, 4) for one in teacher(rng, 7, 4, 6))
    each = et.sparse_distillation_loss(x, indices, log_probs)
    labels = torch.zeros(2, 3, dtype=torch.int64)
    labels[0, 1] = -100
    kept = labels == 0
    module = et.SparseDistillationLoss()
    torch.testing.assert_close(module(x, indices, log_probs), each.mean())
    torch.testing.assert_close(module(x, indices, log_probs, labels=labels), each[kept].mean())
    weight = torch.rand(2, 3, dtype=torch.float64)
    got = module(x, indices, log_probs, weight, labels=labels)
    torch.testing.assert_close(got, (each * weight)[kept].sum() / weight[kept].sum())
    total = et.SparseDistillationLoss(reduction="sum")(x, indices, log_probs, labels=labels)
    torch.testing.assert_close(total, each[kept].sum())
    nothing = indices.clone()
    nothing[1, 2] = -1
    torch.testing.assert_close(module(x, nothing, log_probs), each.flatten()[:-1].mean())
    spoiled = torch.where(kept.unsqueeze(-1), x, torch.nan).detach().requires_grad_()
    module(spoiled, indices, log_probs, labels=labels).backward()
    assert spoiled.grad.isfinite().all()
    dense = et.DistillationLoss(divergence="jsd", beta=0.3)
    scores = torch.tensor(rng.standard_normal((2, 3, 7)))
    each = et.distillation_loss(x, scores, divergence="jsd", beta=0.3)
    torch.testing.assert_close(dense(x, scores, labels=labels), each[kept].mean())
    torch.testing.assert_close(et.JSDLoss(beta=0.3)(x, scores, labels=labels), each[kept].mean())
    with pytest.raises(ValueError, match=r"labels must be integers, one for each row, of shape \(2, 3\)"):
        dense(x, scores, labels=labels[0])
    for parameter, params in (("temperature", {"tail": "renormalize"}), ("beta", {"divergence": "jsd"})):
        learned = torch.full((2, 3, 1), 0.7, dtype=torch.float64, requires_grad=True)

        def function(x, one, parameter=parameter, params=params):
            return et.sparse_distillation_loss(x, indices, log_probs, **{parameter: one}, **params)

        assert torch.autograd.gradcheck(function, (x, learned))
        assert torch.autograd.gradgradcheck(function, (x, learned), rtol=1e-4, atol=1e-6)
    with pytest.raises(TypeError, match="temperature requires grad, and there is no gradient in it"):
        et.sparse_distillation_loss(x, indices, log_probs, temperature=torch.ones(2, 3, 1, requires_grad=True))


def test_torch_compiles():
    torch, et = torch_doors()
    x = torch.randn(4, 9, requires_grad=True)
    best = torch.randn(4, 9).log_softmax(-1).topk(3)

    def function(x):
        return et.sparse_distillation_loss(x, best.indices, best.values).mean()

    torch._dynamo.reset()
    value = torch.compile(function, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(value, function(x))
    torch.testing.assert_close(torch.autograd.grad(value, x), torch.autograd.grad(function(x), x))


@every
def test_jax(params):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    import isentropic.jax as ej

    rng = np.random.default_rng(13)
    x, (indices, log_probs) = rng.standard_normal((5, 7)), teacher(rng, 7, 3, 5)
    want, slopes = loss(x, indices, log_probs, return_grad=True, **params)

    def function(x):
        return ej.sparse_distillation_loss(x, indices, log_probs, **params)

    assert np.array_equal(jax.jit(function)(x), want)
    assert np.array_equal(jax.grad(lambda x: function(x).sum())(x), slopes)
    v, h = rng.standard_normal((5, 7)), 1e-6
    turned = jax.jvp(jax.grad(lambda x: function(x).sum()), (x,), (v,))[1]
    ends = (loss(x + s * v, indices, log_probs, return_grad=True, **params)[1] for s in (h, -h))
    np.testing.assert_allclose(turned, np.subtract(*ends) / (2 * h), rtol=1e-6, atol=1e-8)
    batched = jax.vmap(lambda x: ej.sparse_distillation_loss(x, indices, log_probs, **params))(np.stack([x, 2 * x]))
    np.testing.assert_allclose(batched[0], want, rtol=1e-13)
    with pytest.raises(ValueError, match="log_probs must have the shape of indices"):
        ej.sparse_distillation_loss(x, indices, log_probs[:, 1:])
