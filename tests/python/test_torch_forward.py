"""Forward mode of every differentiable function: torch.func.jvp, linearize, forward_ad, and over and under reverse mode."""

import functools
import inspect
import itertools
import math
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import torch.autograd.forward_ad as fw  # noqa: E402

import isentropic  # noqa: E402
import isentropic.torch as et  # noqa: E402
from isentropic import _descriptions  # noqa: E402


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


X, Y = random(3, 5), random(3, 5, seed=1)
P, TABLE = random(3, 5).softmax(-1), random(2, 12).softmax(-1).reshape(2, 3, 4)
ROWS = torch.tensor([[1.3], [1.5], [2.2]], dtype=torch.float64)
CLASSES, LABELS = torch.tensor([1, 2, 0]), (random(3, 5, seed=3) > 0).double()
WEIGHTS = 0.5 + random(5, seed=3).softmax(-1)
HEADS = random(2, 4, 3), random(2, 5, 3, seed=1), random(2, 5, 2, seed=2)
SCALE = torch.tensor(0.7, dtype=torch.float64)
MASSES = random(4), random(2, 5, seed=1), random(4, 5, seed=2).abs()

MAPS = {
    "softmax": {"temperature": 0.7},
    "log_softmax": {},
    "logsumexp": {"temperature": 2.0},
    "soft_top_k": {"k": 2.5},
    "taylor_softmax": {},
    "sigsoftmax": {},
    "top_k_softmax": {"k": 3},
    "top_p_softmax": {"p": 0.8},
    "min_p_softmax": {"p": 0.2},
    "sparsemax": {},
    "entmax": {},
    "perturb_max": {"noise": "logistic"},
    "entropy_normalize": {"entropy": 0.8},
    "entropy_clip": {"max_entropy": 0.8},
}
LOSSES = {
    "softmax_loss": {"label_smoothing": 0.1},
    "sparsemax_loss": {},
    "entmax_loss": {},
    "smooth_accuracy_loss": {},
    "surrogate_loss": {},
}
CASES = {
    **{name: (lambda x, name=name, kw=kw: getattr(et, name)(x, **kw), (X,)) for name, kw in MAPS.items()},
    **{name: (lambda x, name=name, kw=kw: getattr(et, name)(x, CLASSES, **kw), (X,)) for name, kw in LOSSES.items()},
    **{
        name: (lambda p, name=name: getattr(et, name)(p, input="scores"), (X,))
        for name in ("entropy", "perplexity", "self_information", "binary_entropy", "mutual_information")
    },
    **{
        name: (lambda p, q, name=name: getattr(et, name)(p, q, input="scores"), (X, Y))
        for name in ("cross_entropy", "kl_divergence", "js_divergence", "js_distance")
    },
    "entmax alpha": (lambda x, a: et.entmax(x, alpha=a), (X, ROWS)),
    "entropy_normalize of probs": (lambda p, h: et.entropy_normalize(p, entropy=h, input="probs"), (P, ROWS / 2)),
    "entmax_loss alpha": (lambda x, a: et.entmax_loss(x, CLASSES, alpha=a), (X, ROWS)),
    "top_k_softmax_loss": (lambda x: et.top_k_softmax_loss(x, CLASSES, k=5), (X,)),
    "margin_softmax_loss": (lambda x: et.margin_softmax_loss(x, CLASSES, kind="arc", scale=3.0), (0.9 * X.tanh(),)),
    "multilabel_softmax_loss": (lambda x: et.multilabel_softmax_loss(x, LABELS), (X,)),
    "jsd_loss": (lambda x: et.jsd_loss(x, Y), (X,)),
    "distillation_loss": (lambda x: et.distillation_loss(x, Y), (X,)),
    "renyi_entropy": (lambda p: et.renyi_entropy(p, alpha=1.7, input="scores"), (X,)),
    "conditional_entropy": (lambda p: et.conditional_entropy(p), (TABLE,)),
    "power_transform": (lambda p, g: et.power_transform(p, gamma=g), (P, ROWS)),
    "gamma_for_entropy": (lambda x: torch.cat(et.gamma_for_entropy(x, entropy=1.0)[:2]), (X,)),
    "normalize_density": (lambda p: et.normalize_density(p, WEIGHTS, entropy=0.8)[0], (P,)),
    "normalize_joint": (lambda p: et.normalize_joint(p, joint=2.0), (TABLE,)),
    "mean_field_entropy": (lambda x: et.mean_field_entropy(x, gamma=0.7), (X,)),
    "ratio_map": (lambda x: et.ratio_map(x, torch.square), (X,)),
    "gumbel_softmax": (lambda x: et.gumbel_softmax(x, seed=3), (X,)),
    "attention": (lambda *x: et.attention(*x, causal=True, map="entmax"), HEADS),
    "attention's entropy": (lambda *x: et.attention(*x, map="entmax", return_entropy=True)[1], HEADS),
    "attention's scale": (lambda q, s: et.attention(q, *HEADS[1:], scale=s), (HEADS[0], SCALE)),
    "attention's kappa": (
        lambda q, s: et.attention(q, *HEADS[1:], scale="log_n", kappa=s.exp(), causal=True),
        (HEADS[0], SCALE),
    ),
    "attention's sinks": (lambda q, s: et.attention(q, *HEADS[1:], sinks=s, map="entmax", softcap=2.0), (HEADS[0], SCALE)),
    "attention's scale in its entropy": (lambda s: et.attention(*HEADS, scale=s, return_entropy=True)[1], (SCALE,)),
    "scaled_dot_product_attention's scale": (lambda s: et.scaled_dot_product_attention(*HEADS, scale=s), (SCALE,)),
    "linear_attention": (lambda *x: et.linear_attention(*x, causal=True), HEADS),
    "linear_attention's scale": (lambda s: et.linear_attention(*HEADS, scale=s), (SCALE,)),
    "linear_loss": (
        lambda h, w, b: et.linear_loss(h, w, CLASSES, bias=b, reduction="none"),
        (X, random(4, 5, seed=4), Y[0, :4]),
    ),
    "wasserstein_1d": (lambda u, v, w: et.wasserstein_1d(u, v, u_weights=w.exp(), order=2), (X[0], Y[1], X[2])),
    "wasserstein_histogram": (lambda p, q: et.wasserstein_histogram(p.softmax(-1), q.softmax(-1)), (X, Y)),
    "sinkhorn": (lambda a, b, c: et.sinkhorn(a.softmax(-1), b.softmax(-1), c, epsilon=0.3, tolerance=1e-13).plan, MASSES),
    "sliced_wasserstein": (lambda x, y, w: et.sliced_wasserstein(x, y, a=w.exp()).distance, (X, Y, X[:, 0])),
    "c_transform": (et.c_transform, (MASSES[0], MASSES[2])),
}
ONCE = {
    "optimal_transport": (lambda a, b, c: et.optimal_transport(a.softmax(-1), b.softmax(-1), c).cost, MASSES),
    "partial_transport": (lambda a, b, c: et.partial_transport(a.softmax(-1), b.softmax(-1), c, mass=0.6).cost, MASSES),
    "sinkhorn_divergence": (lambda x, y: et.sinkhorn_divergence(x, y, epsilon=0.5, tolerance=1e-12), (X, Y)),
    "wasserstein": (lambda x, y: et.wasserstein(x, y, order=2), (X, Y)),
    "wasserstein's weights": (
        lambda x, w: et.wasserstein(x, Y, a=w.exp(), b=w.exp()[:1].expand(len(Y)), order=2),
        (X, X[:, 0]),
    ),
}
twice = pytest.mark.parametrize(("function", "inputs"), CASES.values(), ids=CASES)
once = pytest.mark.parametrize("name", CASES | ONCE)
# linearize traces the tangent and evaluates it, which takes long: one operation of each kind, and each of several arrays.
TRACED = {"entmax", "softmax_loss", "kl_divergence", *ONCE}


def close(got, want, rtol=1e-9):
    scale = float(want.abs().amax())
    torch.testing.assert_close(got, want, rtol=rtol, atol=rtol * scale + 1e-14)


@once
def test_every_door_to_the_tangent(name):
    function, inputs = (CASES | ONCE)[name]
    tangents = tuple(random(*x.shape, seed=7 + k) for k, x in enumerate(inputs))
    back = random(*function(*inputs).shape, seed=20)
    reverse = torch.func.vjp(function, *inputs)[1](back)
    want = sum((g * t).sum() for g, t in zip(reverse, tangents, strict=True))
    value, tangent = torch.func.jvp(function, inputs, tangents)
    assert torch.equal(value, function(*inputs))
    close((tangent * back).sum(), want)
    if name in TRACED:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's tracing
            close((torch.func.linearize(function, *inputs)[1](*tangents) * back).sum(), want)
    with fw.dual_level():
        dual = function(*map(fw.make_dual, inputs, tangents))
        close((fw.unpack_dual(dual).tangent * back).sum(), want)
    batch = torch.stack([tangents[0], 2 * tangents[0], 0 * tangents[0]])
    mapped = torch.func.vmap(lambda t: torch.func.jvp(lambda x: function(x, *inputs[1:]), inputs[:1], (t,))[1])(batch)
    close(mapped[1], 2 * mapped[0])
    assert not mapped[2].any()


def along_dims():
    """Every operation of the registry that works along a dim, with its tensors of numbers: f(*tensors, dim)."""
    cube, other = random(4, 4, 4, seed=5), random(4, 4, 4, seed=6)
    targets = {"labels": (other > 0).double(), "scores": other, "class": other.argmax(-1)}
    for name, one in {**_descriptions.MAPS, **_descriptions.LOSSES, **_descriptions.MEASURES}.items():
        if "dim" not in inspect.signature(getattr(et, name)).parameters:
            continue
        given = {param["name"]: param["typical"] for param in one["params"] if param["typical"] is not None}
        if any(param["name"] == "input" for param in one["params"]):
            given["input"] = "scores"
        inputs = (0.9 * cube.tanh(),)
        if name in _descriptions.LOSSES:
            inputs += (targets.get(one["target"], (2 * other).softmax(-1)),)
        elif one.get("family") == "divergence":
            inputs += (other,)
        yield name, functools.partial(getattr(et, name), **given), inputs


ALONG = {name: (function, inputs) for name, function, inputs in along_dims()}


@pytest.mark.parametrize("name", ALONG)
def test_tangents_along_any_dim(name):
    """Those along another dim are those along the last, moved; a cube hides no wrong axis behind its shape."""
    function, inputs = ALONG[name]
    tangent = random(4, 4, 4, seed=7)
    want = torch.func.jvp(lambda x: function(x, *inputs[1:], dim=-1), inputs[:1], (tangent,))
    for dim in (0, 1):
        x, t, *rest = (one.movedim(-1, dim) if one.dim() == 3 else one for one in (inputs[0], tangent, *inputs[1:]))
        got = torch.func.jvp(lambda x, dim=dim, rest=rest: function(x, *rest, dim=dim), (x,), (t,))
        for found, expected in zip(got, want, strict=True):
            torch.testing.assert_close(found, expected if expected.dim() < 3 else expected.movedim(-1, dim))
        with fw.dual_level():
            dual = fw.unpack_dual(function(fw.make_dual(x, t), *rest, dim=dim)).tangent
        torch.testing.assert_close(dual, got[1])


TYPICAL = {"alpha": 1.6, "beta": 0.4, "label_smoothing": 0.1, "margin": 0.2, "scale": 1.4, "temperature": 0.8}
TYPICAL |= {"k": 1.5, "entropy": 0.7, "perplexity": 2.0, "min_entropy": 1.0, "max_entropy": 0.6}


def with_parameter(name, target, param, given, x, scores, value, dim):
    targets = {None: (), "scores": (scores,), "class": (scores.argmax(dim),)}
    return getattr(et, name)(x, *targets.get(target, (scores.softmax(dim),)), **given, **{param: value}, dim=dim)


def along_dims_in_parameters():
    """Every operation of the registry along a dim, with each parameter that may be per row and each value of those that are
    names: f(x, scores that make the target, value, dim)."""
    for name, one in {**_descriptions.MAPS, **_descriptions.LOSSES, **_descriptions.MEASURES}.items():
        names = {param["name"]: param["names"] for param in one["params"] if param["kind"] == "name"}
        names |= {"input": ["scores"]} if "input" in names else {}
        names |= {param["name"]: [param["typical"]] for param in one["params"] if param["required"] and not param["per_row"]}
        needed = [param["name"] for param in one["params"] if param["required"] and param["per_row"]]
        typical = {param["name"]: param["typical"] or param["default"] for param in one["params"]} | TYPICAL
        for param in _descriptions.per_row(one):
            others = {other: typical[other] for other in needed if other != param}
            for values in itertools.product(*names.values()):
                if param == "margin" and "sphere" in values:  # a whole number
                    continue
                if param == "beta" and "divergence" in names and "jsd" not in values:  # of jsd alone
                    continue
                target = "scores" if one.get("family") == "divergence" else one.get("target")
                given = target, param, others | dict(zip(names, values, strict=True))
                yield (
                    " ".join(map(str, (name, param, *values))),
                    functools.partial(with_parameter, name, *given),
                    typical[param],
                )


IN_PARAMETERS = {name: rest for name, *rest in along_dims_in_parameters()}


@pytest.mark.parametrize("per_row", [True, False], ids=["per row", "one number"])
@pytest.mark.parametrize("name", IN_PARAMETERS)
def test_derivatives_in_parameters_along_any_dim(name, per_row):
    """The derivative, the tangent and second derivatives along another dim are those along the last, moved."""
    function, typical = IN_PARAMETERS[name]
    x, scores, t = 0.9 * random(3, 4, 5, seed=5).tanh(), 2 * random(3, 4, 5, seed=6), random(3, 4, 5, seed=7)

    def derivatives(dim, x, scores, t, value, u, back):
        def both(x, value):
            return function(x, scores, value, dim)

        def reverse(x, value):
            return torch.func.vjp(both, x, value)[1](back)

        return torch.func.jvp(both, (x, value), (t, u))[1], *reverse(x, value), *torch.func.vjp(reverse, x, value)[1]((t, u))

    for dim in (0, 1):

        def last(one, dim=dim):
            return one.movedim(dim, -1) if one.dim() == 3 else one

        shape = x.select(dim, 0).unsqueeze(dim).shape if per_row else ()
        value, u = typical * (1 + 0.1 * random(*shape, seed=9).tanh()), random(*shape, seed=10)
        given = x, scores, t, value, u, random(*function(x, scores, value, dim).shape, seed=12)
        for got, want in zip(derivatives(dim, *given), derivatives(-1, *map(last, given)), strict=True):
            torch.testing.assert_close(last(got), want, rtol=1e-7, atol=1e-9)


INF, NAN = float("inf"), float("nan")
SPECIAL = torch.tensor(
    [
        *([NAN, 0.1, 0.2, 0.5], [NAN, -INF, 0.2, 0.5], [NAN, INF, 0.2, 0.5]),
        *([-INF, 0.1, 0.2, 0.5], [0.3, -INF, -INF, -INF], [-INF, -INF, -INF, -INF]),
        *([INF, 0.1, 0.2, 0.5], [INF, -INF, 0.2, 0.5], [INF, INF, 0.2, 0.5]),
    ],
    dtype=torch.float64,
)
# Of one number in a parameter, and of no parameter: f(x, scores that make the target, value).
OF_ROWS = {
    name: (lambda x, scores, value, f=f, one=f.args[0]: f(x, scores, value, -1), torch.tensor(typical, dtype=torch.float64))
    for name, (f, typical) in IN_PARAMETERS.items()
}
OF_ROWS |= {
    f"{name} alone": (lambda x, scores, value, f=f, rest=inputs[1:]: f(x, *(scores for _ in rest), dim=-1), None)
    for name, (f, inputs) in ALONG.items()
    if name in _descriptions.MAPS or name in _descriptions.MEASURES
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_tangents_of_special_rows(name):
    """The tangent is J t, with the J of backward mode, whether it is 0, NaN or finite."""
    function, value = OF_ROWS[name]
    scores, t = (
        torch.tensor([0.3, 0.1, -0.4, 0.2], dtype=torch.float64),
        torch.tensor([1.0, 2.0, 3.0, 5.0], dtype=torch.float64),
    )
    for x in SPECIAL:
        if "margin" in name and bool((x == INF).any()):  # a cosine of +inf is refused
            continue
        moving = (x,) if value is None else (x, value)

        def run(*moving, more=(scores, value)):
            return function(moving[0], more[0], moving[1] if moving[1:] else more[1])

        y, back = torch.func.vjp(run, *moving)
        rows = [back(unit.reshape(y.shape)) for unit in torch.eye(y.numel(), dtype=torch.float64)]
        want = torch.stack([(dx * t).sum() for dx, *_ in rows])
        got = torch.func.jvp(lambda x, rest=moving[1:]: run(x, *rest), (x,), (t,))[1]
        torch.testing.assert_close(got.reshape(-1), want, equal_nan=True)
        if value is not None:
            got = torch.func.jvp(lambda v, x=x: run(x, v), (value,), (torch.full_like(value, 2.0),))[1]
            torch.testing.assert_close(got.reshape(-1), 2 * torch.stack([dv for _, dv in rows]), equal_nan=True)


def second_derivatives(function, x, scores, value, back, dx, dvalue):
    """In x, in the value and in back of <dx, gradient in x> + dvalue gradient in the value."""
    moving = [one.clone().requires_grad_() for one in ((x,) if value is None else (x, value))]
    back = back.clone().requires_grad_()
    y = function(moving[0], scores, moving[1] if moving[1:] else None)
    gradients = torch.autograd.grad(y, moving, back, create_graph=True)
    total = sum((g * d).sum() for g, d in zip(gradients, (dx, dvalue), strict=False))
    found = torch.autograd.grad(total, [*moving, back], allow_unused=True)
    return [torch.zeros_like(x) if one is None else one for x, one in zip([*moving, back], found, strict=True)]


@pytest.mark.parametrize("name", IN_PARAMETERS)
def test_second_derivatives_in_parameters_beside_an_absent_score(name):
    """They are those of the row without it."""
    function, value = OF_ROWS[name]
    x, kept = torch.tensor([0.5, -INF, 0.8, 0.4, -0.3], dtype=torch.float64), torch.tensor([0, 2, 3, 4])
    scores, back, dx = random(5, seed=1).where(x > -INF, x), random(5, seed=2), random(5, seed=3)
    if function(x, scores, value).dim() == 0 or "logsumexp" in name:
        back = torch.full_like(function(x, scores, value), 1.3)

    def without(one):
        return one[kept] if one.shape == x.shape else one

    got = second_derivatives(function, x, scores, value, back, dx, 0.8)
    want = second_derivatives(function, x[kept], scores[kept], value, without(back), dx[kept], 0.8)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(without(one), other, rtol=1e-8, atol=1e-10)
        assert one.shape != x.shape or one[1] == 0


# The order of a measure changes the value of such a row, and so does k, which +inf scores share.
STILL = [name for name in OF_ROWS if "loss" not in name and not (name.split()[0] in _descriptions.MEASURES and "alpha" in name)]
STILL.remove("soft_top_k k")


@pytest.mark.parametrize("name", STILL)
def test_rows_of_infinite_scores_have_no_second_derivatives(name):
    """Where the first derivatives are 0, so are theirs."""
    function, value = OF_ROWS[name]
    for x in SPECIAL[-3:]:
        y, back = torch.func.vjp(lambda x: function(x, X[0, :4], value), x)
        if any(back(unit.reshape(y.shape))[0].any() for unit in torch.eye(y.numel(), dtype=torch.float64)):
            continue  # of a divergence, and of each entry
        found = second_derivatives(function, x, X[0, :4], value, torch.rand_like(y), Y[0, :4], 0.3)
        assert not any(bool(one.any()) for one in found)


# log p of far scores overflows, and Taylor softmax and entropy_clip are not those of nearer ones.
FAR = set(MAPS) - {"log_softmax", "taylor_softmax", "entropy_clip"}


@pytest.mark.parametrize("name", [name for name in OF_ROWS if name.split()[0] in FAR])
def test_derivatives_of_far_scores(name):
    """They are those of nearer ones, where the first also has all mass, or of the entropy, which has no unit of scores."""
    function, value = OF_ROWS[name]
    x, t = torch.tensor([1e308, -1e308, 1.0, 0.0], dtype=torch.float64), torch.tensor([1.0, 2.0, 3.0, 5.0], dtype=torch.float64)
    normalized = "entropy_normalize" in name
    near, unit = (x / 1e308, 1e308) if normalized else (x.clamp(-2000.0, 2000.0), 1.0)

    def derivatives(x, dx, value):
        y = function(x, X[0, :4], value)
        back = torch.cos(torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape)
        found = second_derivatives(function, x, X[0, :4], value, back, dx, 0.3)
        if value is not None:
            found.append(torch.func.jvp(lambda value: function(x, X[0, :4], value), (value,), (value,))[1])
        return found

    values = [torch.tensor(one, dtype=torch.float64) for one in (0.5, 0.7, 1.0, 2.0)]
    for now in values if "temperature" in name or "scale" in name else [value]:
        got, want = derivatives(x, t, now), derivatives(near, t / unit, now)
        assert got[0].isfinite().all()
        for one, other in zip(got[normalized:], want[normalized:], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in IN_PARAMETERS if name.split()[1] in ("temperature", "scale")])
def test_mixed_second_derivatives_where_one_score_has_all_mass(name):
    """Both orders give the same."""
    function, _ = OF_ROWS[name]
    x = torch.tensor([800.0, 0.0, 1.0], dtype=torch.float64).requires_grad_()
    value = torch.tensor(1.0, dtype=torch.float64).requires_grad_()
    y = function(0.9 * (x / 900 if "margin" in name else x), X[0, :3], value)
    back = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)[: y.numel()].reshape(y.shape)
    dx, dvalue = torch.autograd.grad(y, (x, value), back, create_graph=True)
    want = torch.stack([torch.autograd.grad(one, value, retain_graph=True)[0] for one in dx])
    torch.testing.assert_close(torch.autograd.grad(dvalue, x)[0], want, rtol=1e-8, atol=1e-9)


CLAMPED = {
    "normalize": lambda x, target: et.entropy_normalize(x, entropy=target),
    "log_probs": lambda x, target: et.entropy_normalize(x.log_softmax(-1), entropy=target, input="log_probs"),
    "perplexity": lambda x, target: et.entropy_normalize(x, perplexity=target.exp()),
    "clip": lambda x, target: et.entropy_clip(x, min_entropy=target),
}


@pytest.mark.parametrize("function", CLAMPED.values(), ids=CLAMPED)
def test_rows_at_a_clamped_target_have_no_derivatives(function):
    for n in range(2, 9):
        x = random(n, seed=n).requires_grad_()
        for target in (math.log(n), math.log(n) + 1):
            target = torch.tensor(target, dtype=torch.float64).requires_grad_()
            found = [*torch.func.jacfwd(function, (0, 1))(x, target), *torch.func.jacrev(function, (0, 1))(x, target)]
            first = torch.autograd.grad(function(x, target) @ x.detach(), (x, target), create_graph=True)
            found += torch.autograd.grad(first[0].sin().sum() + first[1].sin(), (x, target), retain_graph=True)
            assert not any(bool(one.any()) for one in found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("low, high", [(0.0, 0.0), (-0.1, 0.0), (0.0, 0.1), (-0.1, 0.1), (0.1, 0.2), (-0.2, -0.1)])
def test_clip_at_a_bound(low, high, dtype):
    """Forward and backward mode agree, and with NumPy's door."""
    for x in (torch.full((3,), 2.0, dtype=dtype), random(4, seed=1).to(dtype)):
        p = x.double().softmax(-1)
        ends = tuple(-(p * p.log()).sum() + away for away in (low, high))

        def clip(x, low, high):
            return et.entropy_clip(x, min_entropy=low, max_entropy=high)

        forward, reverse = (how(clip, (0, 1, 2))(x, *ends) for how in (torch.func.jacfwd, torch.func.jacrev))
        for one, other in zip(forward, reverse, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, check_dtype=False)
        numbers = {"min_entropy": ends[0].item(), "max_entropy": ends[1].item()}
        y = isentropic.entropy_clip(x.numpy(), **numbers)
        for row, unit in zip(forward[0], torch.eye(len(x), dtype=dtype), strict=True):
            want = isentropic.entropy_clip_vjp(x.numpy(), y, unit.numpy(), **numbers)
            torch.testing.assert_close(row, torch.as_tensor(want), rtol=1e-4, atol=1e-5)


@twice
def test_forward_over_reverse_and_the_others(function, inputs):
    back = random(*function(*inputs).shape, seed=20)

    def total(*inputs):
        return (function(*inputs) * back).square().sum()

    want = torch.func.jacrev(torch.func.grad(total))(*inputs)
    close(torch.func.hessian(total)(*inputs), want, 1e-8)
    close(torch.func.jacrev(torch.func.jacfwd(total))(*inputs), want, 1e-8)
    close(torch.func.jacfwd(torch.func.jacfwd(total))(*inputs), want, 1e-8)
    tangent = random(*inputs[0].shape, seed=8)
    with fw.dual_level():
        dual = fw.make_dual(inputs[0].clone().requires_grad_(), tangent)
        (grad,) = torch.autograd.grad(total(dual, *inputs[1:]), dual)
        got = fw.unpack_dual(grad).tangent
    close(got, (want * tangent).sum(tuple(range(-tangent.dim(), 0))), 1e-8)


def test_second_derivatives_of_a_plan():
    function, inputs = CASES["sinkhorn"]
    assert torch.autograd.gradgradcheck(function, [x.clone().requires_grad_() for x in inputs], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("function", "inputs"), ONCE.values(), ids=ONCE)
def test_what_has_no_second_derivative_says_so(function, inputs):
    def total(cost):
        return function(*inputs[:-1], cost).square().sum()

    for transform in (
        torch.func.hessian(total),
        torch.func.jacfwd(torch.func.jacfwd(total)),
        torch.func.jacrev(torch.func.jacfwd(total)),
    ):
        with pytest.raises(RuntimeError, match="there are no second derivatives"):
            transform(inputs[-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_types_of_tangents(dtype):
    x, t = X.to(dtype), Y.to(dtype)
    for function in (et.softmax, et.log_softmax, et.entmax, lambda x: et.softmax_loss(x, CLASSES)):
        value, tangent = torch.func.jvp(function, (x,), (t,))
        assert tangent.dtype is value.dtype
        _, wide = torch.func.jvp(function, (x.double(),), (t.double(),))
        torch.testing.assert_close(tangent.double(), wide, rtol=4 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)


def test_masked_scores_have_no_part():
    x = torch.tensor([[0.0, 1.0, -torch.inf, 2.0]], dtype=torch.float64)
    t = torch.tensor([[1.0, 2.0, torch.inf, 4.0]], dtype=torch.float64)
    for name in ("softmax", "sparsemax", "entmax"):
        _, tangent = torch.func.jvp(getattr(et, name), (x,), (t,))
        _, without = torch.func.jvp(getattr(et, name), (x[:, [0, 1, 3]],), (t[:, [0, 1, 3]],))
        assert torch.equal(tangent[:, [0, 1, 3]], without) and tangent[0, 2] == 0


def test_no_operator_loses_a_tangent():
    """Under the dispatcher itself nothing can be differentiated forward, and torch says so."""
    from isentropic.torch._maps import OPERATORS

    with fw.dual_level():
        x = fw.make_dual(X, Y)
        assert fw.unpack_dual(OPERATORS["softmax"](x, None, 1.0, 1)).tangent is not None


@pytest.mark.parametrize("ask", [torch.func.grad, torch.func.jacfwd])
def test_numbers_without_a_derivative_are_refused(ask):
    functions = {
        "train_length": lambda v: et.attention(*HEADS, scale="entropy_invariant", train_length=v).sum(),
        "tolerance": lambda v: et.sinkhorn(P[0], P[1], torch.ones(5, 5), epsilon=0.3, tolerance=v).cost,
    }
    for argument, function in functions.items():
        with pytest.raises(TypeError, match=f"{argument} (requires grad|has a tangent), and there is no gradient in it"):
            ask(function)(torch.tensor(3.0))


LOSSES_OF_TARGETS = {
    "softmax_loss": lambda x, y: et.softmax_loss(x, y),
    "entmax_loss": lambda x, y: et.entmax_loss(x, y, alpha=1.5),
    "margin_softmax_loss": lambda x, y: et.margin_softmax_loss(x.tanh(), y),
    "multilabel_softmax_loss": lambda x, y: et.multilabel_softmax_loss(x, (torch.arange(x.shape[-1]) <= y[..., None]).double()),
    "soft target": lambda x, y: et.softmax_loss(x, (0 * x.detach()).softmax(-1)),
    "distillation_loss": lambda x, y: et.distillation_loss(x, (2 * x).detach()),
    "token_statistics": lambda x, y: et.token_statistics(x, x.argmax(-1)).logprob,
}


@pytest.mark.parametrize("loss", LOSSES_OF_TARGETS.values(), ids=LOSSES_OF_TARGETS)
def test_targets_without_a_tangent_may_be_made_inside_of_a_transform(loss):
    y = torch.tensor([0, 1, 0])

    def total(x, y):
        return loss(x, y).sum()

    want = torch.func.jacrev(torch.func.jacrev(total))(X, y)
    for made in (lambda y: y, lambda y: y[:], lambda y: (y + 0).detach()):
        close(torch.func.hessian(lambda x: total(x, made(y)))(X), want)  # noqa: B023
    close(torch.func.hessian(total)(X, y), want)
    close(torch.func.jacfwd(torch.func.jacfwd(total))(X, y), want)
    product = torch.func.jvp(torch.func.grad(lambda x: total(x, y[:])), (X,), (Y,))[1]
    close(product, (want * Y).sum((-2, -1)))
    rows = torch.func.vmap(torch.func.hessian(lambda x, y: total(x[None], y[None])))(X, y)
    close(rows, torch.stack([want[i, :, i] for i in range(len(X))]))
    with pytest.raises(TypeError, match=r"target (requires grad|has a tangent), and there is no gradient in it"):
        torch.func.jvp(torch.func.grad(lambda x: et.softmax_loss(x, x.softmax(-1)).sum()), (X,), (Y,))


def test_an_epsilon_has_a_tangent():
    def function(epsilon):
        return et.sinkhorn_divergence(X, Y, epsilon=epsilon, tolerance=1e-12)

    want = torch.func.grad(function)(SCALE)
    assert want != 0
    close(torch.func.jvp(function, (SCALE,), (torch.ones_like(SCALE),))[1], want)
    with fw.dual_level():
        close(fw.unpack_dual(function(fw.make_dual(SCALE, torch.ones_like(SCALE)))).tangent, want)


def test_a_scale_is_mapped():
    scales = torch.tensor([0.5, 0.7], dtype=torch.float64)
    want = torch.stack([et.attention(*HEADS, scale=scale) for scale in scales])
    close(torch.func.vmap(lambda scale: et.attention(*HEADS, scale=scale))(scales), want)
