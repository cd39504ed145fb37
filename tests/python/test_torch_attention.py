"""isentropic.torch.attention: gradients, first and second; torch.compile, torch.func, modules, other devices' composition."""

import copy
import math
import os

import numpy as np
import pytest

import isentropic

try:
    import torch
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("torch is not installed: pip install torch==2.13.0", allow_module_level=True)

from torch._dynamo.testing import CompileCounterWithBackend

import isentropic.torch as et
from isentropic import _descriptions
from isentropic.torch import _attention, _schemas
from isentropic.torch.backends import reference

MAPS = {
    "softmax": {},
    "sparsemax": {},
    "entmax": {"alpha": 1.5},
    "taylor_softmax": {},
    "sigsoftmax": {},
    "top_k_softmax": {"k": 3},
    "entropy_normalize": {"entropy": 0.6},
    "entropy_clip": {"max_entropy": 0.6},
}


def tensors(*shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(sum(map(sum, shapes)))
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("gradients", [False, True])
def test_a_parameter_as_an_array(gradients):
    q, k, v = (x.detach().requires_grad_(gradients) for x in tensors((2, 5, 4), (2, 6, 4), (2, 6, 3)))
    alpha = np.array([[[1.5]], [[2.0]]])
    want = et.attention(q, k, v, map="entmax", alpha=torch.from_numpy(alpha))
    for given in (alpha, alpha[::-1].copy()[::-1], alpha.astype(">f8")):
        assert torch.equal(et.attention(q, k, v, map="entmax", alpha=given), want)
    wanted = isentropic.attention(*(x.detach().numpy() for x in (q, k, v)), map="entmax", alpha=alpha)
    np.testing.assert_array_equal(want.detach().numpy(), wanted)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(
    "options", [{}, {"causal": True, "scale": "entropy_invariant", "train_length": 5}], ids=["plain", "causal"]
)
def test_gradcheck(name, options):
    q, k, v = tensors((2, 2, 4, 3), (2, 1, 5, 3), (1, 5, 2))
    torch.autograd.gradcheck(lambda *x: et.attention(*x, map=(name, MAPS[name]), **options), (q, k, v), atol=1e-5)


@pytest.mark.parametrize("name", ["softmax", "entmax", "taylor_softmax"])
def test_second_gradient(name):
    q, k, v = tensors((2, 3, 3), (2, 4, 3), (2, 4, 2))
    mask = torch.tensor([True, False, True, True])
    torch.autograd.gradgradcheck(lambda *x: et.attention(*x, map=(name, MAPS[name]), mask=mask), (q, k, v), atol=1e-5)


SPECIAL = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "taylor_softmax", "top_k_softmax"])
def test_special_numbers_reach_only_who_sees_them(name):
    """The composition has the kernel's results and gradients, whatever is NaN, and whatever values are infinite."""
    rng = np.random.default_rng(0)
    for turn in range(12):
        arrays = [rng.standard_normal((2, *shape)) for shape in ((4, 3), (5, 3), (5, 2), (4, 2))]
        for x, share, special in zip(arrays, (0.02, 0.05, 0.08), ([math.nan], [math.nan], SPECIAL), strict=False):
            there = rng.random(x.shape) < share
            x[there] = rng.choice(special, there.sum())
        q, k, v, g = arrays
        mask = rng.random((2, 4, 5)) < 0.6
        if turn % 3 == 0:
            mask = np.where(mask, rng.standard_normal(mask.shape), -np.inf)
            mask[0, 1, 2] = np.nan
        options = {"map": (name, MAPS[name]), "causal": turn % 5 == 0}
        moving = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
        returned = {"return_weights": True, "return_entropy": True, **options}
        got = et.attention(*moving, mask=torch.from_numpy(mask), **returned)
        for a, b in zip(got, isentropic.attention(q, k, v, mask=mask, **returned), strict=True):
            torch.testing.assert_close(a.detach(), torch.from_numpy(b), equal_nan=True, atol=1e-8, rtol=1e-8)
        gradients = torch.autograd.grad(got[0], moving, torch.from_numpy(g))
        for x, a, b in zip((q, k, v), gradients, isentropic.attention_vjp(q, k, v, g, mask=mask, **options), strict=True):
            known, b = np.isfinite(x), np.where(np.isinf(b), np.nan, b)
            np.testing.assert_allclose(a.numpy()[known], b[known], rtol=1e-8, atol=1e-8)


HIDING = {
    "plain": lambda q, k, v, b: et.attention(q, k, v, mask=b),
    "weights": lambda q, k, v, b: et.attention(q, k, v, mask=b, return_weights=True)[0],
    "learned mask": lambda q, k, v, b: et.attention(q, k, v, mask=torch.where(b, 0 * q[..., :1] + 0.3, -math.inf)),
    "softcap": lambda q, k, v, b: et.scaled_dot_product_attention(q, k, v, b, softcap=2.0),
    "sinks": lambda q, k, v, b: et.scaled_dot_product_attention(q, k, v, b, sinks=torch.zeros(3)),
    "dropout": lambda q, k, v, b: et.scaled_dot_product_attention(q, k, v, b, 0.4),
}


@pytest.mark.parametrize("attend", HIDING.values(), ids=HIDING)
def test_hidden_keys_change_nothing(attend):
    """Neither the result nor first and second derivatives, also where no number can be read."""
    q, k, v = (x.detach() for x in tensors((2, 3, 4, 4), (2, 3, 5, 4), (2, 3, 5, 4)))
    mask = torch.tensor([[True, True, False, True, False], [False, True, False, False, True]]).repeat(2, 1)

    def derivatives(*given):
        torch.manual_seed(1)
        moving = [x.clone().requires_grad_() for x in given]
        out = attend(*moving, mask)
        first = torch.autograd.grad((out * out).sum(), moving, create_graph=True)
        return [out, *first, *torch.autograd.grad(sum((x * x).sum() for x in first), moving)]

    spoilt = k.clone(), v.clone()
    for x in spoilt:
        x[..., 2, :] = math.nan
    want, got = derivatives(q, k, v), derivatives(q, *spoilt)
    torch.testing.assert_close(got, want)
    if attend is not HIDING["dropout"]:
        mapped = torch.func.vmap(attend, (0, 0, 0, None))(q, *spoilt, mask)
        pushed = torch.func.jvp(lambda v: attend(q, spoilt[0], v, mask), (spoilt[1],), (v,))
        compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")(q, *spoilt, mask)
        torch.testing.assert_close([mapped, *pushed, compiled], [want[0].detach()] * 4)


def test_without_columns():
    """All scores are 0: the mean of the values."""
    v = tensors((5, 2))[0]
    for scale in ("sqrt", "entropy_invariant"):
        out, weights = et.attention(v[:, :0], v[:, :0], v, scale=scale, return_weights=True)
        torch.testing.assert_close(out, v.mean(0).expand(5, 2))
        torch.testing.assert_close(weights, torch.full((5, 5), 0.2, dtype=v.dtype))


def test_learned_alpha():
    q, k, v, alpha = *tensors((2, 3, 4, 3), (2, 3, 5, 3), (2, 3, 5, 2)), torch.tensor([[[1.3]], [[1.5]], [[1.9]]]).double()
    alpha.requires_grad_()
    torch.autograd.gradcheck(lambda *x: et.attention(*x[:3], map="entmax", alpha=x[3]), (q, k, v, alpha), atol=1e-5)
    attend = lambda *x: et.attention(*x[:3], map="entmax", alpha=x[3])  # noqa: E731
    torch.autograd.gradgradcheck(attend, (q, k, v, alpha), atol=1e-4, fast_mode=True)
    least = torch.full((3, 1, 1), 0.4).double().requires_grad_()

    def clip(least):
        return et.attention(q, k, v, map="entropy_clip", min_entropy=least, max_entropy=0.9)

    torch.autograd.gradcheck(clip, least)


RETURNED = [("return_entropy",), ("return_weights",), ("return_weights", "return_entropy")]


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("returned", RETURNED, ids=str)
def test_weights_and_entropy(name, returned):
    q, k, v = tensors((2, 2, 4, 3), (2, 1, 5, 3), (1, 5, 2))
    mask = torch.tensor([[True, False, True, True, True]]).repeat(4, 1)
    mask[1] = False
    options = {"map": (name, MAPS[name]), "causal": True, **dict.fromkeys(returned, True)}
    for given in (mask, torch.where(mask, 0.25, -torch.inf).double()):
        got = et.attention(q, k, v, mask=given, **options)
        want = isentropic.attention(*(x.detach().numpy() for x in (q, k, v)), mask=given.numpy(), **options)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a.detach(), torch.from_numpy(b), atol=1e-8, rtol=1e-8)
    # Each entry by itself for both results, a random direction for one of them.
    fast = len(returned) == 1
    torch.autograd.gradcheck(lambda *x: et.attention(*x, mask=mask, **options), (q, k, v), atol=1e-5, fast_mode=fast)


@pytest.mark.parametrize("name", ["softmax", "entmax", "entropy_normalize"])
def test_second_gradient_of_entropy(name):
    q, k, v = tensors((2, 3, 3), (2, 4, 3), (2, 4, 2))
    options = {"map": (name, MAPS[name]), "causal": True, "return_entropy": True}
    attend = lambda *x: et.attention(*x, **options)  # noqa: E731
    torch.autograd.gradgradcheck(attend, (q, k, v), atol=1e-5, fast_mode=name == "entropy_normalize")
    # An additive mask that requires grad.
    added = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda *x: et.attention(*x[:3], mask=x[3], **options), (q, k, v, added), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_entropy_without_scores_in_memory(dtype):
    """The bits of isentropic; a gradient of one result alone; a parameter for each query."""
    q, k, v = (x.detach().requires_grad_() for x in tensors((4, 60, 8), (2, 70, 8), (2, 70, 6), dtype=dtype))
    alpha = torch.full((4, 1, 1), 1.4, dtype=torch.float64, requires_grad=True)
    out, entropy = et.attention(q, k, v, map="entmax", alpha=alpha, causal=True, return_entropy=True)
    arrays = [(x if dtype in (torch.float32, torch.float64) else x.float()).detach().numpy() for x in (q, k, v)]
    want = isentropic.attention(*arrays, map="entmax", alpha=1.4, causal=True, return_entropy=True)
    for got, exact in zip((out, entropy), want, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.detach(), torch.from_numpy(np.asarray(exact)).to(dtype), atol=0, rtol=0)
    assert torch.equal(et.attention(q, k, v, map="entmax", alpha=alpha, causal=True), out)
    both = torch.autograd.grad(out.sum() + entropy.sum(), (q, k, v, alpha), retain_graph=True)
    of_out = torch.autograd.grad(out.sum(), (q, k, v, alpha), retain_graph=True)
    of_entropy = torch.autograd.grad(entropy.sum(), (q, k, v, alpha))
    assert not of_entropy[2].any() and all(x.any() for x in (of_entropy[0], of_entropy[1], of_entropy[3]))
    near = {torch.float32: 1e-4, torch.float64: 1e-11}.get(dtype, 3e-2)
    for a, b, c in zip(both, of_out, of_entropy, strict=True):
        torch.testing.assert_close(a, b + c, atol=near * float(a.abs().max()), rtol=near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_same_as_isentropic(dtype):
    q, k, v = (x.detach() for x in tensors((2, 4, 60, 8), (2, 2, 70, 8), (2, 2, 70, 6), dtype=dtype))
    out = et.attention(q, k, v, causal=True, scale="entropy_invariant")
    assert out.dtype == dtype and out.shape == (2, 4, 60, 6)
    arrays = [(x if dtype in (torch.float32, torch.float64) else x.float()).numpy() for x in (q, k, v)]
    want = isentropic.attention(*arrays, causal=True, scale="entropy_invariant")
    torch.testing.assert_close(out, torch.from_numpy(np.asarray(want)).to(dtype), atol=0, rtol=0)
    # Transposed storage, as heads split from a projection.
    turned = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    assert torch.equal(et.attention(*turned, causal=True, scale="entropy_invariant"), out)


@pytest.mark.parametrize("name", MAPS)
def test_composition_is_the_same(name):
    """What runs on other devices."""
    q, k, v, g = (x.detach() for x in tensors((2, 4, 6, 3), (2, 2, 7, 3), (2, 2, 7, 2), (2, 4, 6, 2)))
    mask = torch.rand(6, 7, generator=torch.Generator().manual_seed(1)) < 0.6
    mask[2] = False
    params = {param["name"]: param["default"] for param in _descriptions.MAPS[name]["params"]} | MAPS[name]
    for causal, scale in ((False, "sqrt"), (True, "entropy_invariant")):
        rest = *_schemas.map_arguments(name, params), scale, 1.0, 9.0, None, causal, 1.5 if causal else None
        for operator, given in (
            ("attention", (q, k, v, mask, None)),
            ("attention_vjp", (q, k, v, mask, None, g)),
            ("attention_entropy", (q, k, v, mask, None)),
            ("attention_entropy_vjp", (q, k, v, mask, None, g, g[..., 0])),
            ("attention_entropy_vjp", (q, k, v, mask, None, None, g[..., 0])),
        ):
            theirs, ours = (
                reference.IMPLEMENTATIONS[operator](*given, *rest),
                getattr(torch.ops.isentropic, operator)(*given, *rest),
            )
            for a, b in zip(theirs, ours, strict=True):
                torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("name", ["softmax", "entmax"])
def test_compile(name):
    q, k, v = tensors((2, 4, 6, 8), (2, 2, 7, 8), (2, 2, 7, 8), dtype=torch.float32)
    module = et.Attention(map=name, causal=True, scale="entropy_invariant")

    def loss(q, k, v):
        entropy = module(q, k, v, return_entropy=True)[1]
        return (module(q, k, v) ** 2).sum() + (et.linear_attention(q, k, v) ** 2).sum() + (entropy**2).sum()

    want = torch.autograd.grad(loss(q, k, v), (q, k, v))
    got = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(q, k, v), (q, k, v))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_opcheck():
    q, k, v = tensors((2, 4, 6, 8), (2, 2, 7, 8), (2, 2, 7, 8))
    given = ["alpha", "temperature"], [1.5, 1.0], []
    arguments = (torch.rand(6, 7) < 0.9, None, "entmax", *given, "sqrt", 1.0, 512.0, None, False, None)
    torch.library.opcheck(torch.ops.isentropic.attention.default, (q, k, v, *arguments))
    rows = torch.rand(2, 4, 6, 2, dtype=torch.float64, requires_grad=True)
    further = (None, rows, "softmax", ["temperature"], [0.9], ["kappa", "sinks"], "log_n", 1.0, 512.0, None, True, 2.0)
    torch.library.opcheck(torch.ops.isentropic.attention.default, (q, k, v, *further))
    torch.library.opcheck(torch.ops.isentropic.attention_entropy.default, (q, k, v, *arguments))
    torch.library.opcheck(torch.ops.isentropic.linear_attention.default, (q, k, v, None, True))
    grad = torch.ones(2, 4, 6, 8, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.isentropic.linear_attention_vjp.default, (q, k, v, grad, None, True))


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_torch_func(axes):
    lead = (2, 3)[: axes - 2]
    q, k, v = (x.detach() for x in tensors((5, *lead, 4, 3), (*lead, 6, 3), (5, *lead, 6, 2)))
    alpha = torch.full((5, *([1] * axes)), 1.4, dtype=torch.float64) + torch.arange(5).reshape(5, *([1] * axes)) / 10

    def attend(q, k, v, alpha):
        out, entropy = et.attention(q, k, v, map="entmax", alpha=alpha, causal=True, return_entropy=True)
        return out + entropy[..., None]

    got = torch.func.vmap(attend, (0, None, 0, 0))(q, k, v, alpha)
    want = torch.stack([attend(q[i], k, v[i], alpha[i]) for i in range(5)])
    torch.testing.assert_close(got, want)
    linear = torch.func.vmap(et.linear_attention, (0, None, 0))(q, k, v)
    torch.testing.assert_close(linear, torch.stack([et.linear_attention(q[i], k, v[i]) for i in range(5)]))

    def loss(q, k, v, alpha):
        return (attend(q, k, v, alpha) ** 2).sum() + (et.linear_attention(q, k, v) ** 2).sum()

    each = torch.func.vmap(torch.func.grad(loss, (0, 1, 2, 3)), (0, None, 0, 0))(q, k, v, alpha)
    for i in range(5):
        one = torch.func.grad(loss, (0, 1, 2, 3))(q[i], k, v[i], alpha[i])
        for a, b in zip(each, one, strict=True):
            torch.testing.assert_close(a[i], b)
    jacobian = torch.func.jacrev(lambda q: attend(q, k, v[0], alpha[0]))(q[0])
    assert jacobian.shape == (*lead, 4, 2, *lead, 4, 3)


def test_linear_gradient():
    q, k, v = tensors((2, 4, 3), (1, 5, 3), (1, 5, 2))
    torch.autograd.gradcheck(lambda *x: et.linear_attention(*x, causal=True, scale=0.4), (q, k, v))
    torch.autograd.gradgradcheck(lambda *x: et.linear_attention(*x, causal=True), (q, k, v), atol=1e-5)


def test_modules():
    q, k, v = tensors((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8), dtype=torch.float32)
    module = et.Attention(map="entmax", alpha=torch.nn.Parameter(torch.full((3, 1, 1), 1.5)), causal=True)
    assert [name for name, _ in module.named_parameters()] == ["map_alpha"]
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    before = module(q, k, v)
    (before**2).sum().backward()
    optimizer.step()
    assert not torch.equal(module(q, k, v), before)
    assert module.map_alpha.grad.shape == (3, 1, 1) and module.map_alpha.grad.any()
    twin = copy.deepcopy(module)
    twin.load_state_dict(module.state_dict())
    assert torch.equal(twin(q, k, v), module(q, k, v))
    assert "map='entmax'" in repr(module) and "alpha=(3, 1, 1)" in repr(module)
    assert et.LinearAttention(causal=True)(q, k, v).shape == (2, 3, 4, 8)
    mask = torch.zeros(4, 5, dtype=torch.bool)
    assert not et.Attention()(q, k, v, mask=mask).any()


def test_a_module_learns_kappa_and_sinks():
    q, k, v = (x.detach() for x in tensors((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8), dtype=torch.float32))
    module = et.Attention(map="entmax", scale="log_n", heads=3, causal=True, train_length=4)
    assert {name: one.shape for name, one in module.named_parameters()} == {"kappa": (3, 1, 1)}
    plain = et.attention(q, k, v, map="entmax", scale="log_n", train_length=4, causal=True)
    torch.testing.assert_close(module(q, k, v), plain)
    module(q, k, v).square().sum().backward()
    assert module.kappa.grad.shape == (3, 1, 1) and module.kappa.grad.all()
    assert "scale='log_n'" in repr(module) and "kappa=(3, 1, 1)" in repr(module)
    twin = et.Attention(map="entmax", scale="log_n", heads=3, causal=True, kappa=7.0)
    assert torch.equal(twin.kappa, torch.full((3, 1, 1), 7.0))
    twin.load_state_dict(module.state_dict())
    assert torch.equal(twin(q, k, v), module(q, k, v))
    both = et.Attention(scale="entropy_invariant", heads=3, kappa=0.5, sinks=torch.nn.Parameter(torch.zeros(3)), softcap=4.0)
    assert {name for name, _ in both.named_parameters()} == {"kappa", "sinks"}
    want = et.attention(q, k, v, scale="entropy_invariant", kappa=0.5, sinks=torch.zeros(3), softcap=4.0)
    torch.testing.assert_close(both(q, k, v), want)
    both(q, k, v).square().sum().backward()
    assert both.sinks.grad.all() and both.kappa.grad.all()
    for given, message in (
        ({"heads": 3}, "heads is for scale 'log_n' and 'entropy_invariant', whose kappa it learns, got 'sqrt'"),
        ({"heads": 3, "scale": 0.3}, "heads is for scale 'log_n' and 'entropy_invariant', whose kappa it learns, got float"),
        ({"heads": 3, "scale": "entropy_invariant"}, "kappa must be given with heads and scale 'entropy_invariant'"),
        ({"heads": 0, "scale": "log_n"}, "heads must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=f"^Attention: {message}"):
            et.Attention(**given)


KAPPAS = {"log_n": {"scale": "log_n"}, "entropy_invariant": {"scale": "entropy_invariant", "causal": True}}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("options", KAPPAS.values(), ids=KAPPAS)
def test_kappa_and_sinks_are_learned(name, options):
    q, k, v, raw, sinks = tensors((2, 3, 4, 3), (2, 3, 5, 3), (2, 3, 5, 2), (3, 1, 1), (3,))
    mask = torch.tensor([True, False, True, True, True])
    options = {"map": (name, MAPS[name]), "mask": mask, "softcap": 2.5, **options}
    attend = lambda *x: et.attention(*x[:3], kappa=x[3].exp(), sinks=x[4], return_entropy=True, **options)  # noqa: E731
    torch.autograd.gradcheck(attend, (q, k, v, raw, sinks), atol=1e-5, fast_mode=True)
    one = lambda *x: attend(q, k, v, *x)  # noqa: E731
    torch.autograd.gradcheck(one, (raw, sinks), atol=1e-5, check_forward_ad=name == "entmax")
    if name in ("softmax", "entmax"):
        torch.autograd.gradgradcheck(attend, (q, k, v, raw, sinks), atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "entmax"])
def test_sinks_caps_and_scales_without_scores_in_memory(dtype, name, monkeypatch):
    """The bits of isentropic, and its gradients, by the kernel."""
    monkeypatch.setattr(_attention, "composed", None)
    q, k, v = (x.detach().requires_grad_() for x in tensors((4, 60, 8), (2, 70, 8), (2, 70, 6), dtype=dtype))
    kappa = torch.rand(4, 1, 1, generator=torch.Generator().manual_seed(1)).add(0.3).requires_grad_()
    sinks = torch.randn(4, generator=torch.Generator().manual_seed(2)).requires_grad_()
    options = {"map": name, "scale": "log_n", "causal": True, "softcap": 3.0}
    out, entropy = et.attention(q, k, v, kappa=kappa, sinks=sinks, return_entropy=True, **options)
    arrays = [(x if dtype in (torch.float32, torch.float64) else x.float()).detach().numpy() for x in (q, k, v)]
    given = {"kappa": kappa.detach().numpy(), "sinks": sinks.detach().numpy(), **options}
    want = isentropic.attention(*arrays, return_entropy=True, **given)
    for got, exact in zip((out, entropy), want, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.detach(), torch.from_numpy(np.asarray(exact)).to(dtype), atol=0, rtol=0)
    g = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    found = torch.autograd.grad(out, (q, k, v, sinks, kappa), g)
    wanted = isentropic.attention_vjp(*arrays, g.to(q.dtype).float().numpy(), param_grad="kappa", **given)
    wanted = [*wanted[:4], wanted[4].sum(-1).reshape(4, 1, 1)]
    for a, b, x in zip(found, wanted, (q, k, v, sinks, kappa), strict=True):
        assert a.dtype == x.dtype and a.shape == x.shape
        near = {torch.float32: 2e-5, torch.float64: 2e-6}.get(x.dtype, 2e-2)
        torch.testing.assert_close(
            a.double(), torch.from_numpy(np.asarray(b, np.float64)), atol=near * float(np.abs(b).max()), rtol=0
        )
    # The same through scaled_dot_product_attention, with and without gradients.
    seen = torch.ones(60, 70, dtype=torch.bool).tril(10)
    del options["causal"]
    same = et.scaled_dot_product_attention(q, k, v, seen, enable_gqa=True, kappa=kappa, sinks=sinks, **options)
    torch.testing.assert_close(same, out)
    with torch.no_grad():
        assert torch.equal(et.attention(q, k, v, kappa=kappa, sinks=sinks, causal=True, **options), out)


def test_learned_scales_compile_and_map():
    q, k, v = (x.detach() for x in tensors((5, 3, 4, 3), (5, 3, 6, 3), (5, 3, 6, 2)))
    kappa, sinks = torch.rand(5, 3, 1, 1, dtype=torch.float64) + 0.3, torch.randn(5, 3, dtype=torch.float64)

    def attend(q, k, v, kappa, sinks):
        return et.attention(q, k, v, map="entmax", scale="log_n", kappa=kappa, sinks=sinks, softcap=2.0, causal=True)

    want = torch.stack([attend(*(x[i] for x in (q, k, v, kappa, sinks))) for i in range(5)])
    torch.testing.assert_close(torch.func.vmap(attend)(q, k, v, kappa, sinks), want)
    compiled = torch.compile(attend, fullgraph=True, dynamic=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q[0], k[0], v[0], kappa[0], sinks[0]), want[0])
    slopes = torch.func.vmap(torch.func.grad(lambda *x: attend(*x).square().sum(), (3, 4)))(q, k, v, kappa, sinks)
    for i in range(5):
        each = torch.func.grad(lambda *x: attend(*x).square().sum(), (3, 4))(*(x[i] for x in (q, k, v, kappa, sinks)))
        torch.testing.assert_close([x[i] for x in slopes], [*each])


def test_keys_seen():
    for causal in (False, True):
        for m, n in ((3, 5), (5, 3), (0, 2)):
            found = et.keys_seen(m, n, causal=causal)
            assert found.dtype is torch.int64
            np.testing.assert_array_equal(found.numpy(), isentropic.keys_seen(m, n, causal=causal))
        mask = torch.rand(2, 1, 4, 6, generator=torch.Generator().manual_seed(0)) < 0.6
        for given in (mask, torch.where(mask, 0.5, -math.inf)):
            found = et.keys_seen(4, 6, causal=causal, mask=given)
            np.testing.assert_array_equal(found.numpy(), isentropic.keys_seen(4, 6, causal=causal, mask=given.numpy()))
    with pytest.raises(TypeError, match=r"keys_seen: mask must be a torch.Tensor, got ndarray"):
        et.keys_seen(2, 3, mask=np.ones((2, 3), bool))
    with pytest.raises(ValueError, match=r"keys_seen: mask must broadcast to \(..., 2, 3\), got shape \(2, 2\)"):
        et.keys_seen(2, 3, mask=torch.ones(2, 2, dtype=torch.bool))


def test_refused():
    q, k, v = tensors((2, 4, 3), (2, 5, 3), (2, 5, 2))
    with pytest.raises(TypeError, match="q, k and v must be of one dtype, got "):
        et.attention(q.float(), k, v)
    with pytest.raises(
        ValueError, match=r"alpha must be a number or a tensor that broadcasts to \(2, 4, 1\), .* got shape \(3, 1, 1\)"
    ):
        et.attention(q, k, v, map="entmax", alpha=torch.ones(3, 1, 1))
    for scale in (torch.ones(3), torch.ones(2, 4), torch.ones(5, 1, 1)):
        for function in (et.attention, et.linear_attention):
            message = f"{function.__name__}: scale must be .* that broadcasts to (2, 4, 1), .* got shape {tuple(scale.shape)}"
            with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
                function(q, k, v, scale=scale)
    heads = tensors((2, 3, 4, 3), (2, 3, 5, 3), (2, 3, 5, 2))
    with pytest.raises(ValueError, match=r"sinks must be one for each of 3 heads, got shape \(2,\)"):
        et.scaled_dot_product_attention(*heads, sinks=torch.zeros(2))
    with pytest.raises(ValueError, match=r"sinks must be .* that broadcasts to \(2, 3, 4, 1\), .* got shape \(3, 4\)"):
        et.scaled_dot_product_attention(*heads, sinks=torch.zeros(3, 4))
    with pytest.raises(ValueError, match="linear_attention: k must have the last axis of q, 3, got shape"):
        et.linear_attention(q, v, v)
    for given, message in (
        ({"scale": "log_n", "kappa": torch.ones(4)}, r"kappa must be a number or a tensor that broadcasts to \(2, 4, 1\)"),
        ({"scale": "log_n", "kappa": torch.tensor(-1.0)}, "kappa of row 0 must be above 0 and finite, got -1"),
        ({"kappa": torch.tensor(1.0)}, "kappa must be None unless scale is 'entropy_invariant' or 'log_n', got scale 'sqrt'"),
        ({"softcap": -1}, "softcap must be above 0 and finite, got -1"),
        ({"sinks": torch.zeros(4)}, r"sinks must be one for each of 2 heads, got shape \(4,\)"),
    ):
        with pytest.raises(ValueError, match=f"^attention: {message}"):
            et.attention(q, k, v, **given)
    with pytest.raises(TypeError, match="attention: return_entropy must be a bool, got str"):
        et.attention(q, k, v, return_entropy="no")
    with pytest.raises(TypeError, match="map 'softmax' has no parameter 'alpha'"):
        et.Attention(alpha=1.5)


@pytest.mark.parametrize("function", [et.attention, et.linear_attention])
def test_the_scale_is_learned(function):
    q, k, v = (torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(n), dtype=torch.float64) for n in range(3))
    for scale in (torch.tensor(0.4, dtype=torch.float64), torch.full((2, 1, 1), 0.4, dtype=torch.float64)):
        torch.testing.assert_close(function(q, k, v, scale=scale), function(q, k, v, scale=0.4))
        assert torch.autograd.gradcheck(lambda s: function(q, k, v, scale=s), scale.requires_grad_())
    module = et.Attention(scale=torch.nn.Parameter(torch.ones(1, dtype=torch.float64)))
    module(q, k, v).sum().backward()
    assert module.scale.grad.shape == (1,)


PARAMETER = "torch.nn.Parameter(torch.tensor(2.0))"


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (f"attention(x, x, x, scale='entropy_invariant', train_length={PARAMETER})", "train_length"),
        (f"top_p_softmax(x, p={PARAMETER})", "p"),
        (f"wasserstein(x, x, order={PARAMETER})", "order"),
    ],
)
def test_what_cannot_be_learned_says_so(call, argument):
    with pytest.raises(TypeError, match=f"{argument} requires grad, and there is no gradient in it; pass {argument}.detach"):
        eval(call, {**vars(et), "torch": torch, "x": torch.rand(2, 3)})


@pytest.mark.parametrize("function", [et.attention, et.linear_attention])
def test_a_compiled_function_may_get_other_scales(function):
    q = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    compiled = torch.compile(lambda q, s: function(q, q, q, scale=s), fullgraph=True, backend="aot_eager")
    for scale in (0.3, 0.4, 0.5):
        torch.testing.assert_close(compiled(q, scale), function(q, q, q, scale=scale))


@pytest.mark.parametrize("function", [et.attention, et.linear_attention])
def test_one_graph_for_all_scales(function):
    """The first scale is taken for a constant, as by torch.compile of anything; then it is a symbol."""
    counted = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda q, scale: function(q, q, q, scale=scale), fullgraph=True, backend=counted)
    q = torch.randn(2, 5, 8, dtype=torch.float64)
    for scale in (0.3, 0.4, 0.5, 0.6):
        torch.testing.assert_close(compiled(q, scale), function(q, q, q, scale=scale), rtol=1e-13, atol=1e-13)
    assert counted.frame_count == 2


def test_a_mask_of_the_wrong_shape_is_named_as_it_was_given():
    q = torch.randn(2, 4, 7, 8)
    for function, argument in ((et.attention, "mask"), (et.scaled_dot_product_attention, "attn_mask")):
        for options in ({}, {"map": "entmax"}):
            with pytest.raises(
                ValueError,
                match=rf"{argument} must broadcast to \(2, 4, 7, 7\), got shape \(2, 7\); one of each batch's keys is "
                rf"{argument}\[:, None, None, :\]$",
            ):
                function(q, q, q, **{argument: torch.ones(2, 7, dtype=torch.bool)}, **options)
            with pytest.raises(ValueError, match=rf"{argument} must broadcast to \(2, 4, 7, 7\), got shape \(3, 7\)$"):
                function(q, q, q, **{argument: torch.ones(3, 7, dtype=torch.bool)}, **options)
            function(q, q, q, **{argument: torch.ones(2, 7, dtype=torch.bool)[:, None, None, :]}, **options)
