"""Measures in isentropic.torch: the numbers of isentropic, gradients of every order, compile and vmap."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import isentropic  # noqa: E402
import isentropic.torch as et  # noqa: E402
from isentropic._descriptions import MEASURES  # noqa: E402
from isentropic.torch._measures import OPERATORS  # noqa: E402
from isentropic.torch.backends import reference  # noqa: E402

ONE, TWO, TABLE = (
    [name for name, one in MEASURES.items() if one["family"] == family] for family in ("measure", "divergence", "table")
)
NAMES = [*ONE, *TWO, *TABLE]
each = pytest.mark.parametrize("name", NAMES)


def arrays(name, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 5, generator=generator, dtype=torch.float64).to(dtype) for _ in range(1 + (name in TWO))]


def values(name, **given):
    """All parameters of a measure in their order, as its operator takes them."""
    chosen = params(name, **given)
    return [chosen.get(param["name"], param["default"]) for param in MEASURES[name]["params"]]


def params(name, **given):
    """A value for each parameter without a default; of those given, the ones that the measure has."""
    has = {param["name"]: param for param in MEASURES[name]["params"]}
    typical = {one: 1.7 for one in has if has[one]["required"]}
    return typical | {key: value for key, value in given.items() if key in has}


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_same_numbers(name, dtype):
    x = arrays(name, dtype)
    got = getattr(et, name)(*x, input="scores", **params(name, base=2))
    want = getattr(isentropic, name)(*(t.numpy() for t in x), input="scores", **params(name, base=2))
    np.testing.assert_array_equal(got.numpy(), want)
    if name not in TABLE:
        got = getattr(et, name)(*x, input="scores", dim=0, **params(name))
        want = getattr(isentropic, name)(*(t.numpy() for t in x), input="scores", axis=0, **params(name))
        np.testing.assert_array_equal(got.numpy(), want)
        half = getattr(et, name)(*(t.bfloat16() for t in x), input="scores", **params(name))
        assert half.dtype == torch.float32 and half.shape == (3,)
        rounded = getattr(et, name)(*(t.bfloat16() for t in x), input="scores", dtype=torch.bfloat16, **params(name))
        assert torch.equal(rounded, half.bfloat16())
        floats = getattr(et, name)(*(t.bfloat16().float() for t in x), input="scores", **params(name))
        torch.testing.assert_close(half, floats, rtol=1e-6, atol=1e-7)
        if dtype is torch.float32:
            double = getattr(et, name)(*x, input="scores", dtype=torch.float64, **params(name))
            assert torch.equal(double, getattr(et, name)(*(t.double() for t in x), input="scores", **params(name)))


@each
@pytest.mark.parametrize(("kind", "normalize"), [("scores", False), ("probs", True), ("log_probs", True)])
@pytest.mark.parametrize("smoothing", [0, 0.3])
def test_gradients(name, kind, normalize, smoothing):
    if smoothing and not params(name, smoothing=1).get("smoothing"):
        return
    x = [(t.abs() + 0.1 if kind == "probs" else t).requires_grad_() for t in arrays(name)]

    def function(*x):
        return getattr(et, name)(*x, input=kind, normalize=normalize, **params(name, smoothing=smoothing))

    assert torch.autograd.gradcheck(function, x)
    # Each entry by itself for scores, a random direction for the others.
    assert torch.autograd.gradgradcheck(function, x, fast_mode=kind != "scores")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TABLE])
def test_second_derivatives_beside_an_absent_score(name):
    """They are those of the row without it."""
    kept = torch.tensor([0, 2, 3])
    x = torch.tensor([1.0, -torch.inf, 0.5, -0.3], dtype=torch.float64)
    q = torch.tensor([0.3, -torch.inf, 0.2, 1.0], dtype=torch.float64)
    others = (q,) if name in TWO else ()
    for alpha in [0.5, 1.0, 2.0, 3.0] if params(name) else [None]:
        more = dict.fromkeys(params(name), alpha)

        def second(x, *others, more=more):
            x = x.requires_grad_()
            (dx,) = torch.autograd.grad(getattr(et, name)(x, *others, input="scores", **more), x, create_graph=True)
            return torch.autograd.grad(dx.square().sum(), x)[0]

        found = second(x.clone(), *others)
        assert found[1] == 0
        torch.testing.assert_close(found[kept], second(x[kept], *(q[kept] for q in others)))


def test_second_derivatives_where_a_probability_is_rounded_to_0():
    for dtype, top in ((torch.float64, 1001.0), (torch.float32, 201.0)):
        z, t = torch.tensor([top, 0.0, top - 0.5], dtype=dtype), torch.tensor([0.2, 0.3, 0.5], dtype=dtype)
        for function in (
            lambda z, t=t: et.kl_divergence(t.log(), z, input="scores"),
            lambda z: et.renyi_entropy(z, alpha=0.5, input="scores"),
        ):
            hessian = torch.func.hessian(function)(z)
            near = torch.func.hessian(function)(torch.where(z == 0, top - 30.0, z))
            torch.testing.assert_close(hessian, near, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 1 + 1e-7, 3.0, float("inf")])
@pytest.mark.parametrize("name", ["renyi_entropy", "tsallis_entropy"])
def test_orders(name, alpha):
    """The composition, which gives second derivatives, beside the kernel."""
    x = arrays(name)[0]
    composed = reference.IMPLEMENTATIONS[name](x, None, alpha, None, "scores", False, 1, True)
    got, dp = getattr(isentropic, name)(x.numpy(), alpha=alpha, input="scores", return_grad=True)
    np.testing.assert_allclose(composed[0], got, rtol=1e-6)
    np.testing.assert_allclose(composed[1], dp, rtol=1e-5, atol=1e-7)


ORDERS = [[0.0], [0.3], [1.0], [1 + 1e-7], [1.7], [3.0], [float("inf")]]
LEARNED = [name for name in NAMES if any(param["per_row"] for param in MEASURES[name]["params"])]


def rows_of(name, count, cols, kind):
    """Arrays of a measure; those of scores have an absent one."""
    generator = torch.Generator().manual_seed(2)
    found = []
    for _ in range(1 + (name in TWO)):
        x = torch.randn(count, cols, generator=generator, dtype=torch.float64)
        found.append((x.softmax(1) if kind == "probs" else x).requires_grad_())
    return found


@pytest.mark.parametrize("kind", ["scores", "probs"])
@pytest.mark.parametrize("name", LEARNED)
def test_an_order_for_each_row(name, kind):
    x = [one.detach() for one in rows_of(name, 7, 5, "scores")]
    for one in x:
        one[:, 2] = -torch.inf
    x = [(one.softmax(1) if kind == "probs" else one).requires_grad_() for one in x]
    orders = ORDERS if name != "alpha_divergence" else [*ORDERS[:-1], [-1.5]]
    alpha = torch.tensor(orders, dtype=torch.float64, requires_grad=True)
    value = getattr(et, name)(*x, alpha=alpha, input=kind)
    kernel = {"alpha": alpha.detach().numpy(), "input": kind, "return_grad": True, "param_grad": True}
    want, *slopes, dalpha = getattr(isentropic, name)(*(one.detach().numpy() for one in x), **kernel)
    np.testing.assert_array_equal(value.detach(), want)
    wanted = *slopes, dalpha[:, None]
    for got, expected in zip(torch.autograd.grad(value.sum(), [*x, alpha]), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
    given = values(name, alpha=0.0, input=kind)
    composed = reference.IMPLEMENTATIONS[name](*(one.detach() for one in x), alpha.detach(), *given, 1, True)
    for got, expected in zip(composed, (want, *wanted), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["scores", "probs"])
@pytest.mark.parametrize("name", LEARNED)
def test_orders_are_learned(name, kind):
    x = rows_of(name, 5, 4, kind)

    def function(*given):
        *x, alpha = given
        return getattr(et, name)(*x, alpha=alpha, input=kind, normalize=kind == "probs", base=2)

    rows = torch.tensor([[0.5], [1.0], [1.0005], [1.7], [3.0]], dtype=torch.float64, requires_grad=True)
    for alpha in (rows, torch.tensor(1.0, dtype=torch.float64, requires_grad=True), torch.tensor([1.3]).requires_grad_()):
        wide = alpha if alpha.dtype is torch.float64 else alpha.detach().double().requires_grad_()
        assert torch.autograd.gradcheck(function, (*x, wide))
        # Each entry by itself for a number and scores, otherwise a random direction: it takes a tenth of the time.
        by_entry = wide.dim() == 0 and kind == "scores"
        assert torch.autograd.gradgradcheck(function, (*x, wide), rtol=1e-4, atol=1e-6, fast_mode=not by_entry)
        function(*x, alpha).sum().backward()
        assert alpha.grad.shape == alpha.shape and alpha.grad.isfinite().all()
    batched = torch.func.vmap(function)(*x, rows)
    assert torch.equal(batched, function(*x, rows))
    alone = (None,) * len(x)
    assert torch.equal(torch.func.vmap(function, in_dims=(*alone, 0))(*x, rows)[3], function(*x, rows[3]))
    operator = OPERATORS[name].op
    # What a compiler traces of any sizes takes long: of one operation and kind of input. torch.compile below traces each.
    any_sizes = (name, kind) == ("tsallis_entropy", "scores")
    which = {} if any_sizes else {"test_utils": ("test_schema", "test_autograd_registration", "test_faketensor")}
    given = values(name, alpha=0.0, base=2.0, input=kind, normalize=kind == "probs")
    torch.library.opcheck(operator, (*(one.detach().requires_grad_() for one in x), rows, *given, 1, True), **which)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    got, want = (torch.autograd.grad(run(*x, rows).sum(), [*x, rows]) for run in (compiled, function))
    assert all(map(torch.equal, got, want))


@pytest.mark.parametrize("name", TWO)
def test_compositions_at_zeros(name):
    for p, q in (([0.4, 0.6, 0.0], [0.5, 0.5, 0.0]), ([0.5, 0.5, 0.0], [0.25, 0.25, 0.5]), ([0.5, 0.5, 0.0], [1.0, 0.0, 0.0])):
        tensors = [torch.tensor([row], dtype=torch.float64) for row in (p, q)]
        for order in (-0.5, 0, 0.5, 1, 2, np.inf) if params(name) else (1,):
            if (name, order) in (("alpha_divergence", np.inf), ("renyi_divergence", -0.5)):
                continue
            for smoothing in (0, 0.1) if "smoothing" in params(name, smoothing=0) else (0,):
                chosen = params(name, alpha=order, smoothing=smoothing)
                learned = {"param_grad": True} if name in LEARNED else {}
                rows = [torch.tensor([[float(order)]], dtype=torch.float64)] if learned else []
                composed = reference.IMPLEMENTATIONS[name](*tensors, *rows, *values(name, **chosen), 1, True)
                wanted = getattr(isentropic, name)([p], [q], return_grad=True, **chosen, **learned)
                for got, want in zip(composed[3:], wanted[3:], strict=True):
                    np.testing.assert_allclose(got[0], want, rtol=1e-12, atol=1e-15, err_msg=f"{chosen} {p} {q}")
                    assert want == 0 or np.isfinite(wanted[0])
                if name == "renyi_divergence" and np.isinf(wanted[0]):
                    continue  # there is no gradient
                for got, want in zip(composed[:3], wanted[:3], strict=True):
                    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15, err_msg=f"{chosen} {p} {q}")


def test_masked_scores_have_finite_gradients():
    x = torch.tensor([[1.0, 2.0, -torch.inf]], requires_grad=True)
    y = torch.tensor([[0.0, 3.0, -torch.inf]], requires_grad=True)
    for name in ("entropy", *TWO):
        given = (x, y) if name in TWO else (x,)
        grads = torch.autograd.grad(getattr(et, name)(*given, input="scores", **params(name)).sum(), given)
        assert all(bool(grad.isfinite().all()) and grad[0, 2] == 0 for grad in grads), name


def test_vmap_compile_and_broadcast():
    x, y = arrays("kl_divergence")
    want = et.kl_divergence(x, y, input="scores")
    assert torch.equal(torch.func.vmap(lambda a, b: et.kl_divergence(a, b, input="scores"))(x, y), want)
    jacobian = torch.func.jacrev(lambda a: et.entropy(a, input="scores"))(x[0])
    np.testing.assert_allclose(jacobian, isentropic.entropy(x[0].numpy(), input="scores", return_grad=True)[1])
    compiled = torch.compile(lambda a, b: 2 * et.kl_divergence(a, b, input="scores"), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, y), 2 * want)
    torch.library.opcheck(torch.ops.isentropic.kl_divergence.default, (x, y, *values("kl_divergence", input="scores"), 1, True))
    one = et.js_divergence(x, y[0], input="scores")
    np.testing.assert_array_equal(one, isentropic.js_divergence(x.numpy(), y[0].numpy(), input="scores"))


ENTRIES = [
    ("self_information", {}),
    ("self_information", {"normalize": True}),
    ("self_information", {"input": "log_probs"}),
    ("self_information", {"input": "log_probs", "normalize": True}),
    ("self_information", {"input": "scores"}),
    ("binary_entropy", {}),
    ("binary_entropy", {"input": "log_probs"}),
    ("binary_entropy", {"input": "scores"}),
]


@pytest.mark.parametrize("base", [None, 2])
@pytest.mark.parametrize(("name", "options"), ENTRIES)
def test_entries(name, options, base):
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    kind = options.get("input", "probs")
    x = x.softmax(1) if kind == "probs" else x.log_softmax(1) if kind == "log_probs" else x
    axis = {} if name == "binary_entropy" else {"dim": 1}
    numpy_axis = {"axis": 1} if axis else {}

    def function(x):
        return getattr(et, name)(x, base=base, **options, **axis)

    for one in (x, x.float(), x.bfloat16()):
        got = function(one)
        assert got.dtype == (torch.float32 if one.dtype is torch.bfloat16 else one.dtype)
        assert getattr(et, name)(one, base=base, dtype=torch.float16, **options, **axis).dtype is torch.float16
        if one.dtype != torch.bfloat16:
            want = getattr(isentropic, name)(one.numpy(), base=base, **options, **numpy_axis)
            np.testing.assert_array_equal(got.numpy(), want, strict=True)
    operator, given = OPERATORS[name], {"base": base, "input": kind, "normalize": options.get("normalize", False)}
    values = [given[key] for key in operator.spec.params if key != "dim"]
    np.testing.assert_allclose(reference.IMPLEMENTATIONS[name](x, *values, 1), function(x), rtol=1e-12)
    torch.library.opcheck(operator.op, (x.clone().requires_grad_(), *values, 1))
    moving = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: function(x + 0), [moving])
    assert torch.autograd.gradgradcheck(lambda x: function(x + 0), [moving])
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: 2 * function(x), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), 2 * function(x))
    rows = x.movedim(1, -1)
    option = {} if name == "binary_entropy" else {"dim": -1}
    batched = torch.func.vmap(lambda row: getattr(et, name)(row, base=base, **options, **option))(rows)
    np.testing.assert_array_equal(batched, getattr(et, name)(rows, base=base, **options, **option))


def test_entries_at_the_ends():
    p = torch.tensor([0.0, 1.0, 0.25], dtype=torch.float64, requires_grad=True)
    (got,) = torch.autograd.grad(et.binary_entropy(p).sum(), p)
    np.testing.assert_allclose(got, isentropic.binary_entropy(p.detach().numpy(), return_grad=True)[1], rtol=1e-15)
    x = torch.tensor([-torch.inf, 40.0, torch.inf], dtype=torch.float64, requires_grad=True)
    et.binary_entropy(x, input="scores").sum().backward()
    assert x.grad.isfinite().all()
    assert et.binary_entropy(torch.tensor(0.5), base=2) == 1
    with pytest.raises(ValueError, match=r"^binary_entropy: p must"):
        et.binary_entropy(torch.tensor([1.5]))


def test_refused():
    with pytest.raises(ValueError, match=r"^entropy: p must sum to 1 within 1e-06, got"):
        et.entropy(torch.tensor([0.5, 0.6], dtype=torch.float64))
    with pytest.raises(TypeError, match=r"^entropy: p must be a torch\.Tensor"):
        et.entropy([0.5, 0.5])
    with pytest.raises(ValueError, match=r"^mutual_information: pxy must have at least two axes"):
        et.mutual_information(torch.ones(1))


def test_one_device():
    """An operator would read memory of one device as another's."""
    p = torch.full((2, 3), 1 / 3)
    with pytest.raises(TypeError, match=r"kl_divergence: q is on device meta, p on cpu; pass q\.to\(p\.device\)"):
        et.kl_divergence(p, p.to("meta"))
    with pytest.raises(TypeError, match=r"attention: v is on device meta, q on cpu; pass v\.to\(q\.device\)"):
        et.attention(p, p, p.to("meta"))


def test_slopes_that_nobody_asks_for():
    """0 in the incoming gradient is 0 in the result, also where the slope is infinite."""
    p = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
    (grad,) = torch.autograd.grad((et.binary_entropy(p) * torch.tensor([0.0, 1.0, 0.0])).sum(), p)
    assert grad.tolist() == [0.0, 0.0, 0.0]
    (grad,) = torch.autograd.grad(et.self_information(p)[1], p)
    assert grad.tolist() == [0.0, -2.0, 0.0]


@pytest.mark.parametrize("function", [et.renyi_entropy, et.tsallis_entropy])
@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5, 1.0, 1.0005, 2.0, 400.0])
def test_second_derivatives_of_far_scores(function, alpha):
    """p^(alpha - 1) overflows where p times it does not."""
    x = torch.tensor([[120.0, 0.0, 0.0, -120.0, 1.0], [0.5, 0.0, 0.0, -1.0, 1.0]], dtype=torch.float64)

    def hessian(x):
        return torch.func.hessian(lambda x: function(x, alpha=alpha, input="scores").sum())(x)

    torch.testing.assert_close(hessian(x.float()).double(), hessian(x), rtol=1e-4, atol=1e-7)
    assert hessian(10 * x).isfinite().all()
    both = torch.tensor(alpha, dtype=torch.float64)

    first = torch.func.jacrev(lambda a: torch.func.grad(lambda x: function(x, alpha=a, input="scores").sum())(x))(both)
    second = torch.func.jacrev(lambda x: torch.func.grad(lambda a: function(x, alpha=a, input="scores").sum())(both))(x)
    torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-9)


def test_cross_entropy_of_classes_names_the_loss():
    with pytest.raises(TypeError, match=r"^cross_entropy: q must be a distribution, got dtype torch.int64; .* softmax_loss$"):
        et.cross_entropy(torch.randn(2, 3), torch.tensor([0, 2]))


def test_several_orders_at_once():
    x = arrays("hill_number")[0]
    for order in ([0.0, 1.0, 2.5], torch.tensor([0.0, 1.0, 2.5])):
        got = et.hill_number(x, order=order, input="scores")
        want = isentropic.hill_number(x.numpy(), order=[0, 1, 2.5], input="scores")
        np.testing.assert_array_equal(got, want)
        assert got.shape == (3, 3)
    for k, order in enumerate((0.0, 1.0, 2.5)):
        np.testing.assert_array_equal(want[:, k], isentropic.hill_number(x.numpy(), order=order, input="scores"))
    moving = x.clone().requires_grad_()
    (dx,) = torch.autograd.grad(et.hill_number(moving, order=[1.0, 2.0], input="scores").sum(), moving)
    _, slopes = isentropic.hill_number(x.numpy(), order=[1, 2], input="scores", return_grad=True)
    np.testing.assert_allclose(dx, slopes.sum(-1), rtol=1e-12)
    orders = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, order: et.hill_number(x, order=order, input="scores"), (moving, orders))
    assert torch.autograd.gradcheck(
        lambda order: et.hill_number(x, order=order, input="scores"), orders[1].detach().requires_grad_()
    )
    for wrong in ([], [[1.0]], torch.ones(1, 1), torch.ones(0, requires_grad=True)):
        with pytest.raises(ValueError, match="hill_number: order must be a number or a list of some numbers, got shape"):
            et.hill_number(x, order=wrong, input="scores")
    for function, p in ((et.hill_number, x), (isentropic.hill_number, x.numpy())):
        with pytest.raises(TypeError, match="hill_number: order must be a number or a list of numbers, got"):
            function(p, order=["a"], input="scores")


def test_orders_that_a_compiler_does_not_know():
    x = arrays("hill_number")[0].softmax(-1)
    orders = torch.tensor([0.0, 1.0, 2.5], dtype=torch.float64)
    want = et.hill_number(x, order=orders)
    compiled = torch.compile(lambda x, order: et.hill_number(x, order=order), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, orders), want, rtol=1e-12, atol=0)
    for order in (0.5, 0.75):
        torch.testing.assert_close(compiled(x, order), et.hill_number(x, order=order))
    torch.testing.assert_close(compiled(x, [1.0, 2.0]), et.hill_number(x, order=[1.0, 2.0]))
    torch.testing.assert_close(compiled(x, orders[2]), want[:, 2], rtol=1e-12, atol=0)
    each = torch.func.vmap(lambda order: et.hill_number(x, order=order))(orders)
    torch.testing.assert_close(each, want.T, rtol=1e-12, atol=0)


@pytest.mark.parametrize("pair", [("probs", "scores"), ("scores", "log_probs"), ("log_probs", "probs")], ids="-".join)
@pytest.mark.parametrize("name", TWO)
def test_two_kinds_of_input(name, pair):
    x = arrays(name)
    held = {"scores": lambda x: x, "probs": lambda x: x.softmax(-1), "log_probs": lambda x: x.log_softmax(-1)}
    p, q = (held[kind](one).requires_grad_() for kind, one in zip(pair, x, strict=True))

    def function(p, q):
        return getattr(et, name)(p, q, input=pair, **params(name))

    value = function(p, q)
    want = getattr(isentropic, name)(p.detach(), q.detach(), input=pair, return_grad=True, **params(name))
    for got, wanted in zip((value, *torch.autograd.grad(value.sum(), (p, q))), want, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(torch.func.vmap(function)(p, q), value, rtol=1e-12, atol=1e-14)
    moved = getattr(et, name)(p.T, q.T, input=pair, dim=0, **params(name))
    torch.testing.assert_close(moved, value, rtol=1e-12, atol=1e-14)
    scores = [one.clone().requires_grad_() for one in x]

    def of_scores(x, y):
        return function(held[pair[0]](x), held[pair[1]](y))

    assert torch.autograd.gradcheck(of_scores, scores)
    assert torch.autograd.gradgradcheck(of_scores, scores, fast_mode=True)
    if name == "kl_divergence":
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(p, q), value)


def test_two_kinds_of_input_of_special_rows_and_wrong_ones():
    p = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], requires_grad=True)
    x = torch.tensor([[1.0, 2.0, -torch.inf], [torch.nan, 0.0, 1.0]], requires_grad=True)
    value = et.kl_divergence(p, x, input=("probs", "scores"))
    dp, dx = torch.autograd.grad(value.sum(), (p, x))
    assert value[1].isnan() and value[0].isfinite() and dp[0].isfinite().all() and dx[0].isfinite().all() and dx[0, 2] == 0
    for wrong, message in ((2.0, "p must sum to 1 within"), (-1.0, "p must be at least 0 and finite where its input is probs")):
        with pytest.raises(ValueError, match=f"^kl_divergence: {message}"):
            et.kl_divergence(wrong * p, x, input=("probs", "scores"))
    with pytest.raises(ValueError, match=r"^kl_divergence: input must be one of .*, or a pair of them"):
        et.kl_divergence(p, x, input=("probs",))
