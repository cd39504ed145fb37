"""isentropic.torch.scaled_dot_product_attention beside torch's own, and what torch's has not."""

import inspect
import itertools
import os

import pytest

try:
    import torch
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("torch is not installed: pip install torch==2.13.0", allow_module_level=True)

from torch._dynamo.testing import CompileCounter

import isentropic.torch as et

theirs = torch.nn.functional.scaled_dot_product_attention
ours = et.scaled_dot_product_attention


def tensors(*shapes, dtype=torch.float64):
    generator = torch.Generator().manual_seed(sum(map(sum, shapes)))
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def mask_of(kind, m, n):
    if kind is None:
        return None
    generator = torch.Generator().manual_seed(m * n)
    seen = torch.rand(m, n, generator=generator) < 0.6
    seen[0], seen[-1] = False, True  # a query that sees nothing
    if kind == "bool":
        return seen
    return torch.where(seen, torch.randn(2, 1, m, n, generator=generator), -torch.inf)


def gradients(function, inputs, **options):
    out = function(*inputs, **options)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype)
    return out, torch.autograd.grad((out * weights).sum(), inputs)


TOLERANCES = {torch.float32: 3e-6, torch.float64: 1e-13, torch.float16: 6e-3, torch.bfloat16: 5e-2}


def test_the_signature_is_torchs():
    names = [*inspect.signature(ours).parameters][:8]
    assert names == ["query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"]
    q, k, v = tensors((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 2))
    torch.testing.assert_close(ours(q, k, v, None, 0.0, True), theirs(q, k, v, None, 0.0, True))
    torch.testing.assert_close(ours(query=q, value=v, key=k, scale=0.2), theirs(query=q, value=v, key=k, scale=0.2))


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("mask", [None, "bool", "float", "causal"])
@pytest.mark.parametrize(("m", "n"), [(6, 6), (4, 9), (9, 4), (1, 5)])
def test_softmax_is_torchs(dtype, mask, m, n):
    inputs = tensors((2, 3, m, 8), (2, 3, n, 8), (2, 3, n, 5), dtype=dtype)
    given = mask_of(mask if mask != "causal" else None, m, n)
    if given is not None and given.is_floating_point():
        given = given.to(dtype)
    for scale, part in itertools.product((None, 0.3), (slice(None), slice(1))):
        # Heads of one head broadcast; torch computes halves in halves, so in float64 for those.
        q, k, v = inputs[0], inputs[1][:, part], inputs[2][:, part]
        options = {"attn_mask": given, "is_causal": mask == "causal", "scale": scale}
        out, found = gradients(ours, (q, k, v), **options)
        wide = torch.float64 if dtype in (torch.float16, torch.bfloat16) else dtype
        wanted = [x.detach().to(wide).requires_grad_() for x in (q, k, v)]
        if given is not None and given.is_floating_point():
            options["attn_mask"] = given.to(wide)
        want, slopes = gradients(theirs, wanted, **options)
        assert out.dtype == dtype and not out.isnan().any()
        tolerance = {"atol": TOLERANCES[dtype], "rtol": TOLERANCES[dtype]}
        torch.testing.assert_close(out.to(wide), want, **tolerance)
        for a, b in zip(found, slopes, strict=True):
            torch.testing.assert_close(a.to(wide), b, **tolerance)


def test_shared_heads():
    q, k, v = tensors((2, 6, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3))
    for a, b in zip(gradients(ours, (q, k, v), enable_gqa=True), gradients(theirs, (q, k, v), enable_gqa=True), strict=True):
        torch.testing.assert_close(a, b)
    with pytest.raises(ValueError, match=r"query must have the heads of key and value, 2, unless enable_gqa is True, got 6"):
        ours(q, k, v)


@pytest.mark.parametrize("axes", [2, 3, 5])
def test_axes(axes):
    lead = (2, 3, 2)[: axes - 2]
    q, k, v = tensors((*lead, 4, 3), (*lead, 6, 3), (*lead, 6, 2))
    for options in ({}, {"is_causal": True}, {"attn_mask": mask_of("bool", 4, 6)}, {"softcap": 1e9}):
        plain = {name: value for name, value in options.items() if name != "softcap"}
        torch.testing.assert_close(ours(q, k, v, **options), theirs(q, k, v, **plain))


@pytest.mark.parametrize("map", ["softmax", ("entmax", {"alpha": 1.5}), "sparsemax"], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (1, 1, 4, 6), (6,)], ids=str)
def test_a_bias_is_learned(map, shape):
    q, k, v, bias = tensors((2, 3, 4, 3), (2, 3, 6, 3), (2, 3, 6, 2), shape)
    function = lambda *x: ours(*x, map=map)  # noqa: E731
    # Each entry by itself for one shape, a random direction for the others.
    torch.autograd.gradcheck(function, (q, k, v, bias), check_forward_ad=shape == (6,), fast_mode=shape != (6,))
    if map == "softmax":
        inputs = (q, k, v, bias)
        torch.testing.assert_close(gradients(ours, inputs), gradients(theirs, inputs))
    found = torch.func.grad(lambda b: ours(q, k, v, b, map=map).square().sum())(bias)
    torch.testing.assert_close(found, torch.autograd.grad(ours(q, k, v, bias, map=map).square().sum(), bias)[0])
    torch.testing.assert_close(found, torch.autograd.grad(et.attention(q, k, v, mask=bias, map=map).square().sum(), bias)[0])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_dropout_is_torchs(dtype):
    q, k, v = (x.detach() for x in tensors((2, 3, 40, 8), (2, 3, 50, 8), (2, 3, 50, 4), dtype=dtype))
    for causal in (False, True):
        torch.manual_seed(3)
        want = theirs(q, k, v, dropout_p=0.4, is_causal=causal)
        torch.manual_seed(3)
        got = ours(q, k, v, dropout_p=0.4, is_causal=causal)
        torch.testing.assert_close(got, want, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])
    assert torch.equal(ours(q, k, v, dropout_p=1.0), torch.zeros_like(got))


def by_hand(q, k, v, seen=None, softcap=None, sinks=None, bias=0.0):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if softcap:
        scores = softcap * (scores / softcap).tanh()
    scores = scores + bias
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:-1], 1)], -1)
    return scores


@pytest.mark.parametrize("map", ["softmax", "entmax"])
@pytest.mark.parametrize("mask", ["bool", None, "float"])
def test_softcap_and_sinks(map, mask):
    q, k, v, sinks = tensors((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 2), (3,))
    seen = mask_of("bool", 5, 6) if mask else None
    bias = torch.randn(5, 6, dtype=torch.float64) if mask == "float" else 0.0
    given = torch.where(seen, bias, -torch.inf) if mask == "float" else seen
    want = getattr(et, map)(by_hand(q, k, v, seen, 0.8, sinks, bias))[..., :6] @ v
    torch.testing.assert_close(ours(q, k, v, given, map=map, softcap=0.8, sinks=sinks), want)
    torch.testing.assert_close(ours(q, k, v, given, map=map, softcap=0.8, sinks=sinks[:, None, None]), want)
    checked = lambda *x: ours(*x[:3], given, map=map, softcap=0.8, sinks=x[3])  # noqa: E731
    # Each entry by itself without a mask, a random direction with one.
    torch.autograd.gradcheck(checked, (q, k, v, sinks), fast_mode=mask is not None)


@pytest.mark.parametrize(("m", "n"), [(6, 6), (4, 9), (9, 4)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 3, 100])
def test_window(m, n, causal, window):
    q, k, v = tensors((2, m, 4), (2, n, 4), (2, n, 2))
    seen = torch.tensor([[abs(i - j) < window and (not causal or j <= i) for j in range(n)] for i in range(m)])
    got = ours(q, k, v, is_causal=causal, window=window)
    torch.testing.assert_close(got, theirs(q, k, v, attn_mask=seen))
    bias = torch.randn(m, n, dtype=torch.float64)
    if not causal:
        got = ours(q, k, v, attn_mask=bias, window=window)
        torch.testing.assert_close(got, theirs(q, k, v, attn_mask=torch.where(seen, bias, -torch.inf)))


@pytest.mark.parametrize(("m", "n"), [(6, 6), (4, 9), (9, 4)])
def test_weights(m, n):
    q, k, v = tensors((2, 3, m, 4), (2, 3, n, 4), (2, 3, n, 5))
    for options in ({}, {"is_causal": True}, {"attn_mask": mask_of("bool", m, n), "sinks": torch.zeros(3).double()}):
        out, weights = ours(q, k, v, return_weights=True, map="entmax", **options)
        assert weights.shape == (2, 3, m, n)
        torch.testing.assert_close(weights @ v, out)
        torch.testing.assert_close(ours(q, k, v, map="entmax", **options), out)


def test_scale_and_parameters_are_learned():
    q, k, v, raw = tensors((2, 3, 4, 3), (2, 3, 5, 3), (2, 3, 5, 2), (3, 1, 1))
    torch.autograd.gradcheck(lambda scale: ours(q, k, v, scale=scale.exp(), map="sparsemax"), (raw,))
    torch.autograd.gradcheck(lambda a: ours(q, k, v, map="entmax", alpha=1 + a.sigmoid()), (raw,))
    got = ours(q, k, v, scale="entropy_invariant", train_length=7, is_causal=True)
    torch.testing.assert_close(
        got, et.attention(q, k[..., :4, :], v[..., :4, :], scale="entropy_invariant", train_length=7, causal=True)
    )


EVERY = {
    "plain": {},
    "causal": {"is_causal": True, "map": "entmax"},
    "dropout": {"dropout_p": 0.3, "map": "sparsemax"},
    "softcap and window": {"softcap": 2.0, "window": 3, "is_causal": True},
}


@pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)
def test_compile(options):
    torch._dynamo.reset()
    inputs = tensors((5, 3, 6, 4), (5, 3, 6, 4), (5, 3, 6, 2), dtype=torch.float32)
    torch.manual_seed(1)
    want = gradients(ours, inputs, **options)
    torch.manual_seed(1)
    compiled = torch.compile(lambda *x: ours(*x, **options), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled, inputs), want)
    dynamic = torch.compile(lambda *x: ours(*x, **options), fullgraph=True, dynamic=True, backend="eager")
    torch.manual_seed(1)
    torch.testing.assert_close(dynamic(*inputs), want[0])


@pytest.mark.parametrize("name", ["scaled_dot_product_attention", "attention", "linear_attention"])
def test_dynamic_shapes_are_one_graph(name):
    """Neither the batch nor the length is compiled in."""
    torch._dynamo.reset()
    counter = CompileCounter()
    function = torch.compile(getattr(et, name), fullgraph=True, dynamic=True, backend=counter)
    for batch, length in ((5, 6), (3, 7), (7, 9)):
        q, k, v = tensors((batch, 4, length, 8), (batch, 2, length, 8), (batch, 2, length, 3))
        options = {"enable_gqa": True} if name.startswith("scaled") else {}
        assert function(q, k, v, **options).shape == (batch, 4, length, 3)
    assert counter.frame_count == 1


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("alpha", [1.5, torch.nn.Parameter(torch.full((3, 1, 1), 1.4))], ids=["number", "learned"])
def test_export(strict, alpha):
    module = et.Attention(map="entmax", causal=True, alpha=alpha)
    q, k, v = (x.detach() for x in tensors((2, 3, 6, 4), (2, 3, 6, 4), (2, 3, 6, 4), dtype=torch.float32))
    batch, length = torch.export.Dim("batch", max=64), torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(module, (q, k, v), dynamic_shapes=[{0: batch, 2: length}] * 3, strict=strict)
    for shape in ((1, 3, 2, 4), (5, 3, 9, 4)):
        given = [x.detach() for x in tensors(*[shape] * 3, dtype=torch.float32)]
        torch.testing.assert_close(program.module()(*given), module(*given))


@pytest.mark.parametrize("name", ["scaled_dot_product_attention", "attention", "linear_attention"])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_autocast(name, kind):
    """Like torch's: all tensors get autocast's type, except float64."""
    q, k, v = tensors((2, 3, 6, 8), (2, 3, 6, 8), (2, 3, 6, 8), dtype=torch.float32)
    function = getattr(et, name)
    with torch.autocast("cpu", dtype=kind):
        out = function(q, k, v.to(kind))
        assert theirs(q, k, v.to(kind)).dtype == out.dtype == kind
        assert function(q.double(), k.double(), v.double()).dtype == torch.float64
        if name != "linear_attention":
            options = {"softcap": 1e9} if name.startswith("scaled") else {"mask": torch.zeros(6, 6, requires_grad=True)}
            torch.testing.assert_close(function(q, k, v, **options), out)
    out.float().sum().backward()
    assert {x.grad.dtype for x in (q, k, v)} == {torch.float32}
    assert torch.equal(out, function(q.to(kind), k.to(kind), v.to(kind)))
    with pytest.raises(TypeError, match="of one dtype"):
        function(q, k, v.to(kind))


def test_vmap():
    q, k, v, bias = (x.detach() for x in tensors((5, 2, 4, 3), (5, 2, 6, 3), (5, 2, 6, 2), (5, 4, 6)))
    got = torch.func.vmap(lambda *x: ours(*x[:3], attn_mask=x[3], map="entmax"))(q, k, v, bias)
    torch.testing.assert_close(got, ours(q, k, v, attn_mask=bias[:, None], map="entmax"))
    got = torch.func.vmap(lambda *x: ours(*x, softcap=2.0))(q, k, v)
    torch.testing.assert_close(got, ours(q, k, v, softcap=2.0))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"attn_mask": torch.ones(4, 6, dtype=torch.bool), "is_causal": True}, ValueError, "attn_mask must be None if"),
        ({"attn_mask": torch.ones(4, 6, dtype=torch.int64)}, TypeError, "attn_mask must be of bools"),
        ({"attn_mask": torch.ones(4, 6, dtype=torch.int64), "window": 2}, TypeError, "attn_mask must be of bools"),
        ({"attn_mask": [[1.0]]}, TypeError, "attn_mask must be a torch.Tensor, got list"),
        ({"dropout_p": 1.5}, ValueError, r"dropout_p must be in \[0, 1\], got 1.5"),
        ({"dropout_p": float("nan")}, ValueError, "dropout_p must be"),
        ({"softcap": 0.0}, ValueError, "softcap must be above 0 and finite, got 0.0"),
        ({"kappa": 1.5}, ValueError, "kappa must be None unless scale is 'entropy_invariant' or 'log_n', got scale 'sqrt'"),
        ({"window": 0}, ValueError, "window must be an integer of at least 1, got 0"),
        ({"window": 2.5}, ValueError, "window must be an integer"),
        ({"sinks": 1.0}, TypeError, "sinks must be a torch.Tensor, got float"),
        ({"scale": "half"}, ValueError, "scale must be"),
        ({"map": "entmaxx"}, ValueError, "map must be one of"),
        ({"beta": 1.0}, TypeError, "has no parameter 'beta'"),
    ],
)
def test_refused(options, error, text):
    q, k, v = tensors((2, 4, 3), (2, 6, 3), (2, 6, 2))
    with pytest.raises(error, match=f"^scaled_dot_product_attention: .*{text}"):
        ours(q, k, v, **options)
