"""isentropic.formulas: every rule once, over NumPy, torch and JAX, beside 50 digits."""

import functools

import mpmath as mp
import numpy as np
import pytest

xp = pytest.importorskip("array_api_compat.numpy", reason="array-api-compat is not installed")

from isentropic.formulas import Rows, compositions, losses, maps, measures  # noqa: E402
from isentropic.formulas.rows import log1p_over, mean_exp, mean_exp_slope, second_rest  # noqa: E402

NAN, INF = float("nan"), float("inf")


def namespaces():
    """(rows, from NumPy's arrays, to NumPy's)"""

    def numpy():
        return Rows(xp), np.asarray, np.asarray

    def torch():
        torch = pytest.importorskip("torch")
        from isentropic.torch._rows import ROWS

        return ROWS, lambda x: torch.tensor(np.asarray(x)), lambda x: x.numpy()

    def jax():
        jax = pytest.importorskip("jax")
        jax.config.update("jax_enable_x64", True)
        from isentropic.jax._rows import ROWS

        return ROWS, jax.numpy.asarray, np.asarray

    return {"numpy": numpy, "torch": torch, "jax": jax}


@pytest.fixture(scope="module", params=namespaces())
def door(request):
    rows, given, back = namespaces()[request.param]()

    def run(function, *arrays, jitted=True):
        """function(rows, *arrays), with NumPy's arrays on both sides; XLA takes seconds to compile a composition's search."""

        def one(*arrays):
            return function(rows, *arrays)

        if request.param == "jax" and jitted:
            import jax

            one = jax.jit(one)
        with np.errstate(all="ignore"):
            found = one(*map(given, arrays))
        return tuple(map(back, found)) if isinstance(found, tuple) else back(found)

    return run


# Definitions in 50 digits, of a list of numbers.


def root(function, low, high):
    """Of a falling function."""
    for _ in range(180):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return low


def entmax(x, alpha, temperature):
    b = alpha - 1
    z = [v / temperature for v in x]
    if b == 0:
        return ratios([mp.exp(v) for v in z])

    def masses(tau):
        return [max(b * v - tau, 0) ** (1 / b) for v in z]

    return masses(root(lambda tau: sum(masses(tau)) - 1, b * max(z) - 1, b * max(z)))


def ratios(weights):
    return [w / sum(weights) for w in weights]


def softmax(x, temperature=1):
    return ratios([mp.exp((v - max(x)) / temperature) for v in x])


def entropy_of(p):
    return -sum(v * mp.log(v) for v in p if v > 0)


def entropy_normalize(x, entropy):
    gamma = root(lambda gamma: entropy_of(softmax(x, 1 / gamma)) - entropy, mp.mpf(10) ** -9, mp.mpf(10) ** 9)
    return softmax(x, 1 / gamma)


def polynomial(v, order):
    return sum(v**m / mp.factorial(m) for m in range(order + 1))


def log_sum(x, temperature):
    return temperature * mp.log(sum(mp.exp(v / temperature) for v in x))


DEFINITIONS = {
    "softmax": (softmax, {"temperature": 0.7}),
    "sparsemax": (lambda x, temperature: entmax(x, mp.mpf(2), temperature), {"temperature": 1.3}),
    "entmax": (entmax, {"alpha": 1.3, "temperature": 0.8}),
    "entmax near 1": (entmax, {"alpha": 1.0 + 2**-12, "temperature": 1.0}),
    "entmax 2.4": (entmax, {"alpha": 2.4, "temperature": 1.0}),
    "taylor_softmax": (
        lambda x, order: ratios([sum(v**m / mp.factorial(m) for m in range(order + 1)) for v in x]),
        {"order": 2},
    ),
    "sigsoftmax": (lambda x: ratios([mp.exp(v) / (1 + mp.exp(-v)) for v in x]), {}),
    "entropy_normalize": (entropy_normalize, {"entropy": 1.1}),
    "log_softmax": (lambda x, temperature: [mp.log(v) for v in softmax(x, temperature)], {"temperature": 0.6}),
    "logsumexp": (lambda x, temperature: [log_sum(x, temperature)], {"temperature": 0.6}),
}
MORE = {"entropy_normalize": {"perplexity": None, "input": "scores"}}
X = [0.3, 1.2, -0.4, 0.9, -3.0]
V = [0.5, -1.0, 2.0, 0.25, 1.5]
G = [1.0, 0.5, -2.0, 0.75, 0.3]


@functools.cache
def wanted(case):
    """(the result, its change for V, the gradient of <G, result>, changes of the result for each parameter) as float64."""
    function, params = DEFINITIONS[case]
    with mp.workdps(50):
        given = {key: value if isinstance(value, int) else mp.mpf(value) for key, value in params.items()}
        x, v, h = [mp.mpf(one) for one in X], [mp.mpf(one) for one in V], mp.mpf(10) ** -15

        def difference(there, back):
            return np.array([float((a - b) / (2 * h)) for a, b in zip(there, back, strict=True)])

        def at(x, **more):
            return function(x, **{**given, **more})

        p = np.array([float(one) for one in at(x)])
        moved = difference(*(at([a + sign * h * b for a, b in zip(x, v, strict=True)]) for sign in (1, -1)))
        units = [[mp.mpf(i == j) for j in range(len(x))] for i in range(len(x))]
        columns = [difference(*(at([a + s * h * b for a, b in zip(x, e, strict=True)]) for s in (1, -1))) for e in units]
        by_param = {
            key: difference(*(at(x, **{key: value + sign * h}) for sign in (1, -1)))
            for key, value in given.items()
            if not isinstance(value, int)
        }
    return p, moved, np.array([column @ G[: len(p)] for column in columns]), by_param


@pytest.mark.parametrize("case", DEFINITIONS)
def test_maps(door, case):
    name, numbers = case.split(" ")[0], DEFINITIONS[case][1]
    p, moved, pulled, by_param = wanted(case)
    params = {**numbers, **MORE.get(name, {})}
    found = door(lambda rows, x: compositions.FORWARD[name](rows, x, params), [X], jitted=False)
    np.testing.assert_allclose(found[0], p, rtol=4e-14, atol=1e-16)
    found = door(lambda rows, x, p, v: maps.pushed(rows, name, x, p, params, v, {}), [X], [p], [V])
    np.testing.assert_allclose(found[0], moved, rtol=1e-13, atol=1e-15)
    keys, rows_of = tuple(by_param), [np.array([[numbers[key]]]) for key in by_param]

    def of_params(rows, x, p, g, *given):
        dx, slopes = maps.pulled(rows, name, x, p, {**params, **dict(zip(keys, given, strict=True))}, g, keys)
        return dx, *(slopes[key] for key in keys)

    dx, *slopes = door(of_params, [X], [p], [G[: len(p)]], *rows_of)
    np.testing.assert_allclose(dx[0], pulled, rtol=1e-13, atol=1e-15)
    for key, slope in zip(keys, slopes, strict=True):
        np.testing.assert_allclose(slope[0, 0], by_param[key] @ G[: len(p)], rtol=1e-12, atol=1e-15)

        def in_param(rows, x, p, row, key=key):
            return maps.pushed(rows, name, x, p, {**params, key: row}, 0 * x, {key: 0 * row + 1})

        found = door(in_param, [X], [p], [[numbers[key]]])
        np.testing.assert_allclose(found[0], by_param[key], rtol=1e-12, atol=1e-15)


def both(door, name, x, p, params, g=None):
    """(a change for V, the gradient for G) of rows."""
    x, p = np.asarray(x, float), np.asarray(p, float)
    v, g = (np.broadcast_to(one, p.shape).copy() for one in (V[: p.shape[1]], G[: p.shape[1]] if g is None else g))
    moved = door(lambda rows, x, p, v: maps.pushed(rows, name, x, p, params, v, {}), x, p, v)
    return moved, door(lambda rows, x, p, g: maps.pulled(rows, name, x, p, params, g)[0], x, p, g)


@pytest.mark.parametrize("case", ["softmax", "entmax", "entropy_normalize", "log_softmax"])
def test_compiled_by_torch(case):
    torch = pytest.importorskip("torch")
    from isentropic.torch._rows import ROWS

    name, params = case.split(" ")[0], {**DEFINITIONS[case][1], **MORE.get(case, {})}
    x, p, v = (torch.tensor([one], dtype=torch.float64) for one in (X, wanted(case)[0].tolist(), V))

    def both(x, p, v):
        moved = maps.pushed(ROWS, name, x, p, params, v, {})
        return moved, maps.pulled(ROWS, name, x, p, params, v)[0]

    torch._dynamo.reset()
    for one, other in zip(torch.compile(both, fullgraph=True, backend="aot_eager")(x, p, v), both(x, p, v), strict=True):
        assert torch.equal(one, other)


PARAMS = {
    "softmax": {"temperature": 1.0},
    "sparsemax": {"temperature": 1.0},
    "entmax": {"alpha": 1.5, "temperature": 1.0},
    "sigsoftmax": {},
    "taylor_softmax": {"order": 2},
    "log_softmax": {"temperature": 1.0},
    "entropy_normalize": {"entropy": 0.8, "perplexity": None, "input": "scores"},
    "entropy_clip": {"min_entropy": 0.8, "max_entropy": None, "input": "scores"},
}
every = pytest.mark.parametrize("name", PARAMS)


def at(name, x):
    """The map by its composition."""
    with np.errstate(all="ignore"):
        return compositions.FORWARD[name](Rows(xp), np.asarray(x, float), PARAMS[name])


@every
def test_an_absent_entry_moves_nothing(door, name):
    x = np.array([[0.3, -INF, 1.1, -0.2]])
    p = at(name, x)
    infinite = np.where(p == 0, INF, [G[:4]])  # as an entropy's gradient is at 0
    given = both(door, name, x, p, PARAMS[name], infinite if name != "log_softmax" else G[:4])
    there = np.isfinite(x[0])
    rest = x[:, there], p[:, there], np.array([V[:4]])[:, there]
    rest = door(lambda rows, x, p, v: maps.pushed(rows, name, x, p, PARAMS[name], v, {}), *rest)
    np.testing.assert_allclose(given[0][:, there], rest, rtol=1e-12, atol=1e-15)
    assert given[0][0, 1] == 0 and given[1][0, 1] == 0 and np.isfinite(given[1]).all()


@every
def test_rows_without_a_distribution_are_nan(door, name):
    x = np.array([[0.3, NAN, 1.1], [0.1, 0.2, -0.4], [-INF, -INF, -INF]])
    for found in both(door, name, x, at(name, x), PARAMS[name]):
        assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()
        assert (found[2] == 0).all() if name == "log_softmax" else np.isnan(found[2]).all()


@every
def test_nothing_moves_beside_infinite_scores(door, name):
    x = np.array([[0.3, INF, 1.1, INF], [INF, 0.0, 0.0, 0.0]])
    p = at(name, x)
    if name != "log_softmax":
        np.testing.assert_array_equal(p, [[0, 0.5, 0, 0.5], [1, 0, 0, 0]])
    for found in both(door, name, x, p, PARAMS[name]):
        assert (found == 0).all()


@pytest.mark.parametrize("name", [name for name in PARAMS if name not in ("sigsoftmax", "taylor_softmax")])
@pytest.mark.parametrize("offset", [2.0**40, 1e300])
def test_an_offset_changes_nothing(door, name, offset):
    """x + offset would be rounded; so the scores are multiples of what it is rounded to."""
    unit = max(2.0**-10, np.spacing(offset))
    x = np.array([[3.0, 1.0, 0.0, -2.0]]) * unit
    p, params = at(name, x), PARAMS[name]

    def slopes(rows, x, p, g):
        return maps.pulled(rows, name, x, p, params, g, ["temperature"] if "temperature" in params else [])[1].get(
            "temperature", g
        )

    for one, other in zip(both(door, name, x + offset, p, params), both(door, name, x, p, params), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    g = np.array([G[:4]])
    np.testing.assert_allclose(door(slopes, x + offset, p, g), door(slopes, x, p, g), rtol=1e-12)


def test_rows_at_an_entropy_that_cannot_change(door):
    """Uniform rows, ties of all mass, and scores of one value."""
    params = PARAMS["entropy_normalize"]
    x = np.array([[0.3, 1.1, -0.2], [2.0, 2.0, -1.0], [0.7, 0.7, 0.7]])
    p = np.array([[1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    for found in both(door, "entropy_normalize", x, p, params):
        assert (found == 0).all()
    row = np.full((3, 1), 0.8)

    def in_entropy(rows, x, p, row):
        return maps.pushed(rows, "entropy_normalize", x, p, {**params, "entropy": row}, 0 * x, {"entropy": row})

    assert (door(in_entropy, x, p, row) == 0).all()


def test_a_row_at_the_bound_of_entropy_clip_is_held(door):
    """Where softmax has the bound's entropy exactly, the derivative is the bound's, as in the kernels."""
    x = np.array([[0.3, 1.1, -0.2]])
    p = np.exp(x) / np.exp(x).sum()
    bound = float(-(p * np.log(p)).sum())
    for end in ("min_entropy", "max_entropy"):
        params = {"min_entropy": None, "max_entropy": None, "input": "scores", end: bound}
        held = both(door, "entropy_clip", x, p, params)
        normalized = both(door, "entropy_normalize", x, p, {**PARAMS["entropy_normalize"], "entropy": bound})
        for one, other in zip(held, normalized, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13)
        params[end] = bound + (-0.1 if end == "min_entropy" else 0.1)
        free = both(door, "entropy_clip", x, p, params)
        for one, other in zip(free, both(door, "softmax", x, p, PARAMS["softmax"]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13)


def test_probabilities_as_input(door):
    """Their scores are logarithms; an entry of 0 moves nothing."""
    params = {"entropy": 0.8, "perplexity": None, "input": "probs"}
    q, scores = np.array([[0.5, 0.3, 0.2, 0.0]]), {**params, "input": "scores"}
    with np.errstate(divide="ignore"):
        log = np.log(q)
    p = compositions.FORWARD["entropy_normalize"](Rows(xp), log, scores)
    moved, pulled = both(door, "entropy_normalize", q, p, params)
    v = np.where(q > 0, np.array([V[:4]]) / np.where(q > 0, q, 1), 0)
    want = door(lambda rows, x, p, v: maps.pushed(rows, "entropy_normalize", x, p, scores, v, {}), log, p, v)
    np.testing.assert_allclose(moved, want, rtol=1e-13, atol=1e-16)
    want = both(door, "entropy_normalize", log, p, scores)[1] / np.where(q > 0, q, 1)
    np.testing.assert_allclose(pulled, want, rtol=1e-13, atol=1e-16)


SERIES = {
    mean_exp: lambda y: mp.expm1(y) / y,
    mean_exp_slope: lambda y: (y * mp.exp(y) - mp.expm1(y)) / y**2,
    second_rest: lambda y: 2 * (mp.expm1(y) - y) / y**2,
    log1p_over: lambda y: mp.log1p(y) / y,
}


@pytest.mark.parametrize("function", SERIES, ids=lambda one: one.__name__)
def test_what_cancels_near_0(door, function):
    y = np.array([1e-300, -1e-12, 1e-5, -0.01, 0.0156, 0.3, -0.7, 0.99999, 1.00001, 2.5])
    with mp.workdps(50):
        want = [float(SERIES[function](mp.mpf(one))) if abs(one) > 1e-20 else 1.0 for one in y]
    want[0] = 0.5 if function is mean_exp_slope else 1.0
    np.testing.assert_allclose(door(function, [y])[0], want, rtol=2e-15)


# Losses and measures: gradients are the differences of values, and the slopes in parameters too; values are compared with the
# kernels' in the tests of the doors, and with definitions in those of the kernels.


def differences(function, *arrays, step=1e-6):
    """The derivatives of a number of each row in each entry of the first array."""
    first, *others = arrays
    found = np.zeros_like(first)
    for j in range(first.shape[1]):
        move = np.zeros_like(first)
        move[:, j] = step
        found[:, j] = ((function(first + move, *others) - function(first - move, *others)) / (2 * step))[:, 0]
    return found


P = np.array([[0.5, 0.2, 0.2, 0.1], [0.1, 0.3, 0.35, 0.25]])
Q = np.array([[0.1, 0.4, 0.3, 0.2], [0.7, 0.1, 0.1, 0.1]])


@pytest.mark.parametrize("input", ["probs", "log_probs", "scores"])
@pytest.mark.parametrize("name", measures.MEASURES)
@pytest.mark.parametrize("more", [{}, {"smoothing": 0.1, "alpha": 0.3, "average": "min"}], ids=str)
def test_measures(door, name, input, more):
    params = {"base": 2.0, "input": input, "normalize": input == "probs", "alpha": 1.4, "order": 1.4, "given": "x", "cols": 2}
    params |= {"average": "geometric", **more}
    if measures.MEASURES[name].__code__.co_argcount != 4:
        params.pop("smoothing", None)
    arrays = [P, Q] if measures.MEASURES[name].__code__.co_argcount == 4 else [P]
    arrays = [np.log(one) if input != "probs" else one for one in arrays]

    def value(*arrays):
        return door(lambda rows, *arrays: measures.graded(rows, name, arrays, params)[0], *arrays, jitted=False)

    gradients = door(lambda rows, *arrays: tuple(measures.graded(rows, name, arrays, params)[1]), *arrays, jitted=False)
    for k, gradient in enumerate(gradients):
        turned = [arrays[k], *(one for i, one in enumerate(arrays) if i != k)]
        order = (lambda a, b: value(b, a)) if k else value
        np.testing.assert_allclose(gradient, differences(order, *turned), rtol=1e-6, atol=1e-8)


def kernels(name, arrays, **more):
    """The kernel's value and gradients of rows of scores, or of tables of two columns; and the parameters of the formula."""
    import isentropic
    from isentropic._descriptions import MEASURES as DESCRIPTIONS

    params = {"base": None, "input": "scores", "normalize": False, "alpha": 1.4, "order": 1.4, "given": "x", "cols": 2}
    params |= {"average": "geometric", **more}
    known = {key: params[key] for key in (param["name"] for param in DESCRIPTIONS[name]["params"]) if key in params}
    table = DESCRIPTIONS[name]["family"] == "table"
    given = [one.reshape(-1, one.shape[1] // 2, 2) for one in arrays] if table else arrays
    value, *gradients = getattr(isentropic, name)(*given, return_grad=True, **known)
    return value[:, None], [one.reshape(arrays[0].shape) for one in gradients], params


@pytest.mark.parametrize("name", measures.MEASURES)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0, INF])
def test_measures_of_any_scores_are_those_of_the_kernels(door, name, alpha):
    """Of rows without a distribution, with probabilities that underflow, absent scores, and equal rows."""
    if alpha == INF and name in ("alpha_divergence", "renyi_divergence"):
        alpha = -0.5 if name == "alpha_divergence" else INF
    x = [[0, 1, 2, 0.5], [0, -800, -3, -900], [700, -800, 3, -5], [NAN, 0, 1, 2], [-INF] * 4, [-INF, 1, 0, 2], [INF, 0, INF, 1]]
    x = np.array(x, np.float64)
    two = measures.MEASURES[name].__code__.co_argcount == 4
    arrays = [np.repeat(x, len(x), 0), np.tile(x, (len(x), 1))] if two else [x]
    value, gradients, params = kernels(name, arrays, alpha=alpha, order=alpha)
    found = door(lambda rows, *arrays: measures.graded(rows, name, arrays, params)[0], *arrays, jitted=False)
    np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-14)
    # An infinite value has no gradient.
    finite = ~np.isinf(value[:, 0])
    found = door(lambda rows, *arrays: tuple(measures.graded(rows, name, arrays, params)[1]), *arrays, jitted=False)
    for got, want in zip(found, gradients, strict=True):
        np.testing.assert_allclose(got[finite], want[finite], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", measures.ENTRIES)
def test_measures_of_entries_are_those_of_the_kernels(door, name):
    import isentropic

    x = np.array([[0, 1, -2, 0.5], [NAN, 0, 1, 2], [-INF, 1, 0, INF], [-800, 0, 3, 700]], np.float64)
    want = getattr(isentropic, name)(x, input="scores")
    params = {"base": None, "input": "scores", "normalize": False}
    found = door(lambda rows, x: measures.entries(rows, name, x, params), x, jitted=False)
    np.testing.assert_allclose(found, want, rtol=1e-14, atol=1e-290)


CASES = {
    "softmax_loss": {"label_smoothing": 0.1},
    "sparsemax_loss": {},
    "entmax_loss": {"alpha": 1.4},
    "margin_softmax_loss": {"kind": "arc", "margin": 0.4, "scale": 7.0},
    "multilabel_softmax_loss": {},
    "distillation_loss": {"temperature": 1.7, "divergence": "forward_kl", "beta": None},
    "jsd_loss": {"beta": 0.3},
}
FURTHER = [{"temperature": 1.7, "divergence": one, "beta": None} for one in ("reverse_kl", "total_variation")]
FURTHER = [*FURTHER, {"temperature": 0.8, "divergence": "jsd", "beta": 0.3}]


@pytest.mark.parametrize(("name", "params"), [*CASES.items(), *(("distillation_loss", one) for one in FURTHER)])
def test_losses(door, name, params):
    from isentropic._descriptions import LOSSES

    def graded(rows, x, q, **more):
        def of_map(name, x, params):
            return compositions.FORWARD[name](rows, x, params)

        return losses.graded(rows, LOSSES[name], x, q, None, {**params, **more}, of_map)

    one_hot = name in ("margin_softmax_loss", "multilabel_softmax_loss")
    x, q = np.log(P) / 3, np.array([[0, 1.0, 0, 0], [0, 0, 0, 1.0]]) if one_hot else Q

    def value(x, q):
        return door(lambda rows, x, q: graded(rows, x, q)[0], x, q, jitted=False)

    dx = door(lambda rows, x, q: graded(rows, x, q)[1], x, q, jitted=False)
    np.testing.assert_allclose(dx, differences(value, x, q), rtol=1e-6, atol=1e-8)
    for param in (key for loss, key in losses.BY_PARAM if loss == name and params[key] is not None):
        number = np.full((2, 1), params[param])

        def of_row(row, param=param):
            return door(lambda rows, x, q, row: graded(rows, x, q, **{param: row})[0], x, q, row, jitted=False)

        def by_row(rows, x, q, row, param=param):
            return graded(rows, x, q, **{param: row})[2][param]

        slope = door(by_row, x, q, number, jitted=False)
        np.testing.assert_allclose(slope, (of_row(number + 1e-6) - of_row(number - 1e-6)) / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["renyi_entropy", "tsallis_entropy"])
def test_the_slope_in_an_order_where_a_probability_underflows(name):
    x, alpha = [0, -800, 1], mp.mpf("0.1")
    given = {"alpha": np.array([[0.1]]), "base": None, "input": "scores", "normalize": False}
    with np.errstate(all="ignore"):
        slope = measures.graded(Rows(xp), name, [np.array([x], float)], given)[2]["alpha"]
    p = ratios([mp.exp(v) for v in x])

    def entropy(a):
        powers = sum(v**a for v in p)
        return mp.log(powers) / (1 - a) if name == "renyi_entropy" else (1 - powers) / (a - 1)

    np.testing.assert_allclose(float(slope[0, 0]), float(mp.diff(entropy, alpha)), rtol=1e-12)
