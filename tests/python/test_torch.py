"""isentropic.torch: the same numbers as isentropic, under everything that torch does to a function."""

import copy
import inspect
import os
import warnings

import numpy as np
import pytest

import isentropic
from isentropic import _checks, _core

try:
    import torch
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("torch is not installed: pip install torch==2.13.0", allow_module_level=True)

import isentropic.torch as et
from isentropic.torch._maps import OPERATORS
from isentropic.torch.backends import reference

DESCRIPTIONS = {d["name"]: d for d in _core.operations()}
VARIANTS = [
    *((name, {p["name"]: p["typical"] for p in d["params"] if p["typical"] is not None}) for name, d in DESCRIPTIONS.items()),
    ("softmax", {"temperature": 0.5}),
    ("log_softmax", {"temperature": 2.0}),
    ("logsumexp", {"temperature": 0.7}),
    ("sparsemax", {"temperature": 1.7}),
    *(("entmax", {"alpha": alpha}) for alpha in (0.6, 1.0, 1.2, 2.0, 2.5)),
    ("entmax", {"alpha": 1.3, "temperature": 0.6}),
    ("taylor_softmax", {"order": 4}),
    ("top_k_softmax", {"k": 2, "temperature": 3.0}),
    ("top_p_softmax", {"p": 0.6, "temperature": 2.0}),
    ("min_p_softmax", {"p": 0.3, "temperature": 2.0}),
    *(("perturb_max", {"noise": noise, "scale": 0.8}) for noise in ("normal", "logistic", "laplace", "exponential", "uniform")),
    ("entropy_normalize", {"entropy": 0.6}),
    ("entropy_normalize", {"perplexity": 2.5}),
    ("entropy_clip", {"min_entropy": 1.3}),
    ("entropy_clip", {"max_entropy": 0.8}),
    ("entropy_clip", {"min_entropy": 0.1, "max_entropy": 1.55}),
]
NAMES = [f"{name}-{'-'.join(f'{k}={v}' for k, v in params.items())}" for name, params in VARIANTS]
every_variant = pytest.mark.parametrize(("name", "params"), VARIANTS, ids=NAMES)

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def scores(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def per_row_tensors(name, params, rows):
    """The parameters that may be per row as tensors that require a gradient, one number for each of `rows`."""
    tensors = {}
    for param in DESCRIPTIONS[name]["params"]:
        value = params.get(param["name"], param["default"])
        if param["per_row"] and value is not None:
            steps = torch.linspace(0, 0.1, rows, dtype=torch.float64)
            tensors[param["name"]] = (value + steps).reshape(rows, 1).requires_grad_()
    return tensors


@every_variant
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_the_numbers_are_those_of_isentropic(name, params, dtype):
    x = scores(6, 3, 9, dtype=dtype)
    x[1, 2, 4], x[0, 0, 0], x[2, 1, 3] = -torch.inf, torch.nan, torch.inf
    x = x.permute(2, 0, 1)[::2]  # no axis is contiguous
    for dim in (0, 1, -1):
        want = torch.from_numpy(getattr(isentropic, name)(x.numpy(), axis=dim, **params))
        got = getattr(et, name)(x, dim=dim, **params)
        assert got.dtype is dtype
        assert got.is_contiguous()
        assert torch.equal(got.nan_to_num(nan=-7.0), want.nan_to_num(nan=-7.0))
        assert torch.equal(getattr(et, name)(x, axis=dim, **params).nan_to_num(nan=-7.0), want.nan_to_num(nan=-7.0))
        through = OPERATORS[name].op(x, *rows_of(name), *values_of(name, params), dim % 3)
        assert torch.equal(
            (through.squeeze(dim) if name == "logsumexp" else through).nan_to_num(nan=-7.0), want.nan_to_num(nan=-7.0)
        )


def values_of(name, params):
    """The arguments of an operator after its tensors: numbers."""
    return [params.get(p["name"], p["default"]) for p in DESCRIPTIONS[name]["params"]]


def rows_of(name):
    """None for each parameter that may be per row."""
    return [None for p in DESCRIPTIONS[name]["params"] if p["per_row"]]


@every_variant
def test_bfloat16_is_computed_in_float32(name, params):
    x = scores(40, 33, dtype=torch.bfloat16)
    got = getattr(et, name)(x, **params)
    assert got.dtype is torch.bfloat16
    assert torch.equal(got, getattr(et, name)(x.float(), **params).bfloat16())
    grad = scores(*got.shape, dtype=torch.bfloat16, seed=1)
    wide, narrow = x.float().requires_grad_(), x.clone().requires_grad_()
    getattr(et, name)(wide, **params).backward(grad.float())
    getattr(et, name)(narrow, **params).backward(grad)
    assert torch.equal(narrow.grad, wide.grad.bfloat16())


@every_variant
@pytest.mark.parametrize("dtype", DTYPES)
def test_opcheck(name, params, dtype):
    operator = OPERATORS[name]
    # Tracing by a compiler sees neither the type nor a parameter's value, and takes long.
    once = dtype is torch.float32 and VARIANTS.index((name, params)) < len(DESCRIPTIONS)
    for x, dim in ((scores(2, 5, dtype=dtype), 1), (scores(5, 2, 3, dtype=dtype)[:, 1:], 0)):
        which = {} if once and dim == 0 else {"test_utils": ("test_schema", "test_autograd_registration", "test_faketensor")}
        rest = *values_of(name, params), dim
        torch.library.opcheck(operator.op, (x.clone().requires_grad_(), *rows_of(name), *rest), **which)
        y = operator.op(x, *rows_of(name), *rest)
        x, y, grad = (tensor.clone().requires_grad_() for tensor in (x, y, torch.ones_like(y)))
        torch.library.opcheck(operator.vjp.op, (x, *rows_of(name), y, grad, *rest), **which)


@every_variant
def test_gradcheck_and_gradgradcheck(name, params):
    x = scores(2, 5, seed=3).requires_grad_()
    function = getattr(et, name)
    assert torch.autograd.gradcheck(lambda x: function(x, **params), (x,))
    assert torch.autograd.gradgradcheck(lambda x: function(x, **params), (x,), rtol=1e-3, atol=1e-5)
    tensors = per_row_tensors(name, params, 2)
    if tensors:
        rest = {k: v for k, v in params.items() if k not in tensors}

        def with_rows(x, *rows):
            return function(x, **rest, **dict(zip(tensors, rows, strict=True)))

        assert torch.autograd.gradcheck(with_rows, (x, *tensors.values()))
        # Slow above: with rows each entry is one more.
        assert torch.autograd.gradgradcheck(with_rows, (x, *tensors.values()), rtol=1e-3, atol=1e-5, fast_mode=True)


@every_variant
def test_second_derivatives_at_a_score_of_0(name, params):
    """Where torch takes 0 for the derivative of a size, and |x| in a formula would lose that of the whole."""
    x = torch.tensor([[0.0, 0.7, -0.4, 1.1, -1.3]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: getattr(et, name)(x, **params), (x,), rtol=1e-3, atol=1e-5)


@every_variant
def test_transforms(name, params):
    x, function = scores(4, 3, 5, seed=4), getattr(et, name)

    def mapped(x):
        return function(x, **params)

    for in_dim in (0, 1, 2):
        rows = [mapped(part) for part in x.unbind(in_dim)]
        assert torch.equal(torch.func.vmap(mapped, in_dims=in_dim)(x), torch.stack(rows))
    plain = torch.func.vmap(lambda x: OPERATORS[name].op(x, *rows_of(name), *values_of(name, params), 1))(x)
    assert torch.equal(plain.view(mapped(x).shape), mapped(x))
    loss = lambda x: mapped(x).square().sum()  # noqa: E731
    want = x.clone().requires_grad_()
    loss(want).backward()
    assert torch.equal(torch.func.grad(loss)(x), want.grad)
    assert torch.equal(torch.func.vmap(torch.func.grad(loss))(x), want.grad)
    if name != "logsumexp":
        jacobian = torch.func.jacrev(mapped)(x[0, 0])
        assert torch.allclose(jacobian.sum(0), torch.zeros(5, dtype=x.dtype), atol=1e-9) or name == "log_softmax"
    twice = torch.func.grad(lambda x: torch.func.grad(loss)(x).square().sum())(x)
    once = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(once), once, create_graph=True)
    assert torch.allclose(twice, torch.autograd.grad(first.square().sum(), once)[0], rtol=1e-10, atol=1e-12)


def test_vmap_over_rows_of_a_parameter():
    x, alpha = scores(4, 5), torch.tensor([1.1, 1.5, 2.0, 2.5], dtype=torch.float64)
    want = torch.stack([et.entmax(row, alpha=float(a)) for row, a in zip(x, alpha, strict=True)])
    one = lambda row, a: et.entmax(row, alpha=a.reshape(1))  # noqa: E731
    assert torch.equal(torch.func.vmap(one)(x, alpha), want)
    many = torch.func.vmap(one, in_dims=(None, 0))(x[0], alpha)
    assert torch.equal(many, torch.stack([et.entmax(x[0], alpha=float(a)) for a in alpha]))


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_compile_without_graph_breaks(name):
    """All variants in one graph, of rows of their own, since a graph costs seconds."""
    variants = [params for one, params in VARIANTS if one == name]
    x, function = scores(len(variants), 3, 7, dtype=torch.float32), getattr(et, name)

    def each(x):
        return torch.stack([function(part * 2, **params) + 1 for part, params in zip(x, variants, strict=True)])

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(each, fullgraph=True, backend="aot_eager")
        left, right = x.clone().requires_grad_(), x.clone().requires_grad_()
        y = compiled(left)
        want = each(right)
        assert torch.equal(y, want)
        y.square().sum().backward()
        want.square().sum().backward()
        assert torch.equal(left.grad, right.grad)
        assert torch.equal(compiled(x), want)


@every_variant
def test_references_are_equivalent(name, params):
    """What runs on other devices, here on the CPU."""
    x = scores(7, 6, 11, seed=5)
    x[1, :, 2], x[2, 1, 3], x[3, 2, :2], x[4, 3] = -torch.inf, torch.nan, torch.inf, -torch.inf
    x[5] = 1.5
    x[6, :, :5] = 4.0
    for dim in (1, 2):
        rows, rest = rows_of(name), (*values_of(name, params), dim)
        want = OPERATORS[name].op(x, *rows, *rest)
        got = reference.IMPLEMENTATIONS[name](x, *rows, *rest)
        assert torch.allclose(got, want, rtol=1e-7, atol=1e-9, equal_nan=True)
        grad = scores(*want.shape, seed=6)
        dx = OPERATORS[name].vjp.op(x, *rows, want, grad, *rest)
        composed = reference.IMPLEMENTATIONS[f"{name}_vjp"](x, *rows, want, grad, *rest)
        dx, composed = (pair[0] if isinstance(pair, tuple) else pair for pair in (dx, composed))
        usual = torch.ones_like(x, dtype=torch.bool)
        usual[2:5] = False  # at NaN and infinities only the forward is compared
        assert torch.allclose(composed[usual], dx[usual], rtol=1e-6, atol=1e-8, equal_nan=True)


@pytest.mark.parametrize(("name", "params"), [("entropy_normalize", {"entropy": 0.9}), ("entropy_clip", {"max_entropy": 0.9})])
def test_distributions_in_place_of_scores(name, params):
    x = scores(3, 6, seed=7)
    function, p = getattr(et, name), torch.softmax(2 * x, 1)
    want = function(2 * x, **params)
    assert torch.allclose(function(p, input="probs", **params), want, rtol=1e-9)
    assert torch.equal(function(p.log(), input="log_probs", **params), function(p.log(), **params))
    p[0, 1], p[1, 2], p[2, 3] = 0.0, -0.1, torch.inf
    arguments = p, *rows_of(name), *values_of(name, {**params, "input": "probs"}), 1
    got = OPERATORS[name].op(*arguments)
    assert torch.allclose(reference.IMPLEMENTATIONS[name](*arguments), got, rtol=1e-7, atol=1e-9, equal_nan=True)
    assert got[1:].isnan().all()
    positive = (x.abs() + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: function(p, input="probs", **params), (positive,))
    assert torch.autograd.gradgradcheck(lambda p: function(p, input="probs", **params), (positive,), rtol=1e-3, atol=1e-5)


def test_rows_reach_their_parameters():
    """A learned alpha for each head, and a learned entropy for all rows."""
    x = scores(2, 4, 3, 8).requires_grad_()
    alpha = torch.full((4, 1, 1), 1.5, requires_grad=True)
    et.entmax(x, alpha=alpha).square().sum().backward()
    assert alpha.grad.shape == (4, 1, 1)
    y = isentropic.entmax(x.detach().numpy(), alpha=1.5)
    _, want = isentropic.entmax_vjp(x.detach().numpy(), y, 2 * y, alpha=np.full((4, 1, 1), 1.5), param_grad=True)
    assert torch.allclose(alpha.grad.double().flatten(), torch.from_numpy(want).sum((0, 2)), rtol=1e-5)
    entropy = torch.tensor(1.2, requires_grad=True)
    et.entropy_normalize(x, entropy=entropy).square().sum().backward()
    assert entropy.grad.shape == ()


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_modules(name):
    class_name = {"sigsoftmax": "SigSoftmax", "logsumexp": "LogSumExp"}.get(name, name.title().replace("_", ""))
    module = getattr(et, class_name)
    params = dict(VARIANTS)[name] if name not in ("entropy_normalize",) else {"entropy": 1.0}
    x = scores(3, 6)
    made = module(**params, dim=0)
    assert torch.equal(made(x), getattr(et, name)(x, **params, dim=0))
    assert torch.equal(copy.deepcopy(made)(x), made(x))
    assert class_name in repr(made)
    taken = inspect.signature(module).parameters
    further = ["dim", "keepdim"] if name == "logsumexp" else ["dim"]
    assert set(taken) == {*further, *(param["name"] for param in DESCRIPTIONS[name]["params"])}
    positional = [param for param, how in taken.items() if how.kind is how.POSITIONAL_OR_KEYWORD]
    assert positional[-1] == "dim" and len(positional) <= 2
    with pytest.raises(TypeError, match=f"{class_name}: dim must be one integer"):
        module(**params, dim=1.0)
    if "keepdim" in further:
        assert torch.equal(module(**params, dim=0, keepdim=True)(x), made(x).unsqueeze(0))


def test_modules_learn():
    module = et.Entmax(alpha=torch.nn.Parameter(torch.tensor([[1.2], [1.6]])))
    assert [name for name, _ in module.named_parameters()] == ["alpha"]
    module(scores(2, 5)).square().sum().backward()
    assert module.alpha.grad.shape == (2, 1)
    fixed = et.EntropyNormalize(entropy=torch.tensor([[0.5], [1.0]]))
    assert list(fixed.state_dict()) == ["entropy"]
    reached = torch.special.entr(fixed(scores(2, 5))).sum(1)
    assert torch.allclose(reached, torch.tensor([0.5, 1.0], dtype=torch.float64))


def test_autocast_keeps_what_torch_softmax_keeps():
    x = scores(2, 5, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert et.entmax(x).dtype is torch.softmax(x, -1).dtype
        assert et.entmax(x.float()).dtype is torch.softmax(x.float(), -1).dtype


def test_views_that_are_not_what_they_hold():
    z = torch.randn(3, 4, dtype=torch.complex64).conj().imag
    assert z.is_neg()
    assert torch.equal(et.softmax(z), et.softmax(z.clone()))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1,), (2, 1)])
def test_empty_and_single(shape):
    x = torch.zeros(shape, requires_grad=True)
    y = et.entmax(x)
    assert y.shape == x.shape
    y.sum().backward()
    assert x.grad.shape == x.shape


def test_traced_functions_still_compute():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(lambda x: et.entmax(x), torch.zeros(2, 3))
    x = scores(2, 3, dtype=torch.float32)
    assert torch.equal(traced(x), et.entmax(x))


def test_messages_know_which_functions_torch_has():
    """Functions of arrays that refuse a tensor name isentropic.torch where it has them, and do not import it to know."""
    of_threads = {"get_num_threads", "set_num_threads", "force_simd_target", "simd_target", "simd_targets"}
    for name in set(isentropic.__all__) - of_threads:
        if inspect.isfunction(getattr(isentropic, name)):
            assert _checks.of_torch(name.removesuffix("_vjp"), torch.zeros(1)) == hasattr(et, name.removesuffix("_vjp")), name


def test_errors_name_the_argument():
    x = torch.zeros(2, 3)
    with pytest.raises(TypeError, match=r"^entmax: x must be a torch.Tensor, got list; isentropic.entmax takes other arrays"):
        et.entmax([1.0, 2.0])
    with pytest.raises(TypeError, match=r"^softmax: x must be of float16.*got dtype torch.int64; pass x.float"):
        et.softmax(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(TypeError, match="give one of dim and axis"):
        et.softmax(x, dim=0, axis=0)
    with pytest.raises(IndexError, match="out of bounds"):
        et.softmax(x, dim=2)
    with pytest.raises(ValueError, match="at least one axis"):
        et.softmax(torch.tensor(1.0))
    for with_grad in (False, True):
        with pytest.raises(ValueError, match="entmax: alpha must be above 0 and finite, got -1"):
            et.entmax(x.clone().requires_grad_(with_grad), alpha=-1.0)
    with pytest.raises(ValueError, match=r"alpha must be a number or a tensor that broadcasts to \(2, 1\).*got shape \(3,\)"):
        et.entmax(x, alpha=torch.ones(3))
    with pytest.raises(ValueError, match="alpha of row 1 must be above 0"):
        et.entmax(x, alpha=torch.tensor([[1.0], [-2.0]]))
    elsewhere = _Elsewhere._make_wrapper_subclass(_Elsewhere, (2, 3), dtype=torch.float32, device="xpu")
    with pytest.raises(TypeError, match=r"^softmax: x is on device xpu.*pass x.cpu\(\)"):
        et.softmax(elsewhere)


class _Elsewhere(torch.Tensor):
    """A tensor on a device that this machine lacks."""

    @classmethod
    def __torch_dispatch__(cls, *_, **__):
        raise NotImplementedError


@pytest.mark.parametrize("gradients", [False, True])
def test_parameters_as_arrays(gradients):
    x = scores(3, 6).requires_grad_(gradients)
    alphas = np.array([[1.2], [1.5], [2.0]])
    want = et.entmax(x, alpha=torch.from_numpy(alphas))
    for given in (alphas, alphas[::-1].copy()[::-1], alphas.astype(">f8"), alphas[:, 0][:, None]):
        assert torch.equal(et.entmax(x, alpha=given), want)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(et.entmax(x, alpha=np.broadcast_to(1.5, (3, 1))), et.entmax(x, alpha=torch.tensor(1.5)))
    with pytest.raises(TypeError, match=r"^entmax: alpha must be .*, got "):
        et.entmax(x, alpha=np.array([["a"], ["b"], ["c"]]))


@pytest.mark.parametrize("gradients", [False, True])
def test_dim_is_any_integer(gradients):
    x = scores(3, 6).requires_grad_(gradients)
    for dim in (np.int64(0), np.uint8(0), np.int32(-2)):
        assert torch.equal(et.softmax(x, dim=dim), et.softmax(x, dim=0))
        assert torch.equal(et.logsumexp(x, dim=dim), et.logsumexp(x, dim=0))
        assert torch.equal(et.Softmax(dim)(x), et.softmax(x, dim=0))
    for dim in (True, False, np.True_, 1.0, "a"):
        for call in (et.softmax, et.logsumexp, et.power_transform):
            with pytest.raises(TypeError, match=f"^{call.__name__}: dim must be one integer, got "):
                call(x, dim=dim, **({"gamma": 1} if call is et.power_transform else {}))
        with pytest.raises(TypeError, match=r"^Softmax: dim must be one integer, got "):
            et.Softmax(dim)


def test_functions_take_dim_second_as_torch_does():
    x = torch.randn(3, 4)
    for name in ("softmax", "log_softmax", "logsumexp"):
        torch.testing.assert_close(getattr(et, name)(x, 0), getattr(torch, name)(x, 0))
    torch.testing.assert_close(et.entmax(x, 0, alpha=1.3), et.entmax(x, alpha=1.3, dim=0))


def test_modules_take_dim_as_torch_does():
    x = scores(3, 6)
    assert torch.equal(et.Softmax(0)(x), et.softmax(x, dim=0))
    assert torch.equal(et.Sparsemax(0)(x), et.sparsemax(x, dim=0))
    assert torch.equal(et.Entmax(1.3, 0)(x), et.entmax(x, alpha=1.3, dim=0))
    assert torch.equal(et.TopKSoftmax(2, 0)(x), et.top_k_softmax(x, k=2, dim=0))
