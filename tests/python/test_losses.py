"""Losses: values and gradients against the definitions with 50 digits, the rules for rows that are special, errors."""

import itertools

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import isentropic
import losses_reference as reference
from isentropic import _core

mpmath.mp.dps = 45

DESCRIPTIONS = {description["name"]: description for description in _core.losses()}
CLASSES = [name for name, description in DESCRIPTIONS.items() if description["target"].startswith("class")]
DISTRIBUTIONS = [name for name, description in DESCRIPTIONS.items() if description["target"] == "class or distribution"]
VARIANTS = [
    ("softmax_loss", {}),
    ("softmax_loss", {"label_smoothing": 0.1}),
    ("softmax_loss", {"label_smoothing": 1.0}),
    ("sparsemax_loss", {}),
    *(("entmax_loss", {"alpha": alpha}) for alpha in (0.3, 0.9, 1.0, 1.0000001, 1.001, 1.15, 1.3, 1.5, 1.9, 2.0, 2.5, 4.0)),
    *(("top_k_softmax_loss", {"k": k}) for k in (1, 3, 100)),
    *(("top_p_softmax_loss", {"p": p}) for p in (0.5, 0.95, 1.0)),
    ("smooth_accuracy_loss", {}),
    ("surrogate_loss", {}),
    ("margin_softmax_loss", {}),
    ("margin_softmax_loss", {"kind": "arc"}),
    ("margin_softmax_loss", {"kind": "arc", "margin": 0.0, "scale": 4.0}),
    ("margin_softmax_loss", {"kind": "sphere"}),
    ("margin_softmax_loss", {"kind": "sphere", "margin": 1, "scale": 16.0}),
    ("margin_softmax_loss", {"kind": "sphere", "margin": 3}),
    ("margin_softmax_loss", {"margin": 0.2, "scale": 64.0}),
    ("multilabel_softmax_loss", {}),
    *(("distillation_loss", {"temperature": t}) for t in (0.5, 1.0, 4.0)),
    *(
        ("distillation_loss", {"temperature": t, "divergence": divergence})
        for t in (0.5, 3.0)
        for divergence in ("reverse_kl", "jsd", "total_variation")
    ),
    ("distillation_loss", {"divergence": "jsd", "beta": 0.1}),
    *(("jsd_loss", {"beta": beta}) for beta in (0.1, 0.5, 0.9)),
]
IDS = [f"{name}-{'-'.join(f'{k}={v}' for k, v in params.items())}" for name, params in VARIANTS]
every_variant = pytest.mark.parametrize(("name", "params"), VARIANTS, ids=IDS)


def typical(name):
    return {p["name"]: p["typical"] for p in DESCRIPTIONS[name]["params"] if p["typical"] is not None}


def score_rows(rng):
    """Of every kind that breaks a loss somewhere."""
    normal = rng.standard_normal(9)
    masked = normal.copy()
    masked[[1, 4, 8]] = -np.inf
    return {
        "one": np.array([0.7]),
        "two equal": np.array([1.0, 1.0]),
        "normal": normal,
        "large": normal * 1e4,
        "small": normal * 1e-3,
        "offset": np.round(normal * 4) / 4 + 1e4,
        "peaked": np.array([-3.0, 40.0, -5.0, 2.0]),
        "masked": masked,
        "boundary": np.array([2.0, 1.0, 0.0, 2.0 - 1e-9]),
        "equal": np.full(35, -2.5),
        "long": rng.standard_normal(70) * 3,
    }


def cosine_rows(rng):
    masked = rng.uniform(-1, 1, 6)
    masked[2] = -np.inf
    ends = np.array([1.0, -1.0, 0.0, np.cos(np.pi / 4), -0.99999, 0.9999999])
    return {"any": rng.uniform(-1, 1, 7), "ends": ends, "masked": masked, "many": rng.uniform(-0.3, 0.3, 40)}


def distributions(rng, x):
    """Without mass on absent classes; with zeros; softmax's own, up to rounding."""
    present = x > -np.inf
    q = np.where(present, rng.exponential(size=len(x)), 0)
    zeros = np.where(np.arange(len(x)) % 3 == 0, q, 0)
    zeros = zeros if zeros.sum() > 0 else q
    near = np.exp((x - x.max()) / (1 if np.ptp(x[present]) < 50 else 1e3))
    return [one / one.sum() for one in (q, zeros, near)]


def cases(name, rng):
    """(row, scores, target as the function takes it, target as the reference does)."""
    kind = DESCRIPTIONS[name]["target"]
    rows = cosine_rows(rng) if name == "margin_softmax_loss" else score_rows(rng)
    for label, x in rows.items():
        n = len(x)
        if kind.startswith("class"):
            present = np.flatnonzero(x > -np.inf)
            chosen = {present[0], present[-1], present[np.argmax(x[present])], present[np.argmin(x[present])]}
            chosen = present if name == "margin_softmax_loss" and n < 10 else sorted(chosen)
            for t in chosen:
                yield label, x, int(t), [mpf(int(i == t)) for i in range(n)]
        if kind == "class or distribution":
            for q in distributions(rng, x):
                yield label, x, q, None
        elif kind == "labels":
            for labels in (rng.integers(0, 2, n), np.zeros(n, int), np.ones(n, int)):
                labels = np.where(x > -np.inf, labels, 0)
                yield label, x, labels, [int(v) for v in labels]
        elif kind == "scores":
            near = np.where(x > -np.inf, x + 1e-6 * abs(x).clip(max=10) * rng.standard_normal(n), x)
            for teacher in (rng.standard_normal(n) * 2, near, x):
                yield label, x, teacher, None


def as_numbers(values):
    return [mpf(float(v)) if np.isfinite(v) else mpf("inf") * int(np.sign(v)) for v in values]


TOLERANCE = {np.float32: 3e-6, np.float64: 1e-14}


@every_variant
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_and_gradients(name, params, dtype):
    rng = np.random.default_rng(3)
    function, definition = getattr(isentropic, name), getattr(reference, name)
    checked = 0
    for label, x, target, known in cases(name, rng):
        x = x.astype(dtype)
        if not isinstance(target, int):
            target = target.astype(dtype)
            if known is None and DESCRIPTIONS[name]["target"] != "scores":
                target = (target / target.sum(dtype=np.float64)).astype(dtype)
        numbers = as_numbers(target) if known is None else known
        if known is None and DESCRIPTIONS[name]["target"] != "scores":
            numbers = [v / mpmath.fsum(numbers) for v in numbers]
        wanted_value, wanted_dx = definition(as_numbers(x), numbers, **params)
        wanted_dx = [mpf(0) if np.isneginf(v) else w for v, w in zip(x, wanted_dx, strict=True)]
        value, dx = function(x, target, return_grad=True, **params)
        assert value.dtype == dx.dtype == dtype
        assert function(x, target, **params) == value
        distance = float(np.ptp(x[np.isfinite(x)].astype(np.float64)))
        scale = 1 + params.get("scale", 30.0 if name == "margin_softmax_loss" else 0.0)
        bound = TOLERANCE[dtype] * scale * (1 + min(distance, 40.0))
        error = 0 if wanted_value == value == np.inf else abs(mpf(float(value)) - wanted_value)
        assert error <= bound * (1 + abs(wanted_value)), (label, target, float(value), float(wanted_value))
        worst = max(abs(mpf(float(a)) - b) for a, b in zip(dx, wanted_dx, strict=True))
        largest = max(1, *(abs(v) for v in wanted_dx))
        alpha = params.get("alpha", 1.5)
        steep = 1 if alpha <= 2 else 1e3  # beyond 2 p itself is ill-conditioned at the edge of its support
        if kinked(name, params, target, x):
            continue
        assert worst <= bound * 8 * largest * steep, (label, target, dx, [float(v) for v in wanted_dx])
        checked += 1
    assert checked > 5


def kinked(name, params, target, x):
    """Where arc's slope is held: checked on its own."""
    return name == "margin_softmax_loss" and params.get("kind") == "arc" and abs(float(x[target])) > 1 - 1e-6


@pytest.mark.parametrize("name", [name for name in DESCRIPTIONS if name != "multilabel_softmax_loss"])
def test_small_losses_keep_their_digits(name):
    """A target far ahead, or a distribution next to p: relative to the loss itself."""
    definition, params = getattr(reference, name), typical(name)
    if DESCRIPTIONS[name]["target"] == "scores":
        x = np.array([0.3, -1.0, 2.0, 0.5])
        pairs = [(x, x + step * np.array([1.0, -0.5, 0.25, 0.0])) for step in (1e-2, 1e-4, 1e-6)]
        pairs.append((x * 0, x))
    elif name in ("entmax_loss", "sparsemax_loss"):
        pairs = [(np.array([1.9999, 0.0]), 0), (np.array([0.999999, 0.0]), 0), (np.array([1.0, 0.2, 0.1]), None)]
    elif name == "softmax_loss":
        pairs = [(np.array([30.0, 0.0, -1.0]), 0), (np.array([80.0, 0.0]), 0)]
    else:
        return
    for x, target in pairs:
        variants = [params]
        if name == "entmax_loss":
            variants = [{"alpha": alpha} for alpha in (0.7, 1.0, 1.2, 1.5, 2.0, 3.0)]
        if name == "distillation_loss":
            variants = [{"temperature": t} for t in (0.5, 1.0, 1e3)]
        for given in variants:
            q = target
            if target is None:
                p = isentropic.entmax(x, **given) if name == "entmax_loss" else isentropic.sparsemax(x)
                q = p + 1e-5 * np.array([1.0, -0.5, -0.5]) * (p > 0)
                q = q / q.sum()
            numbers = [mpf(int(i == q)) for i in range(len(x))] if isinstance(q, int) else as_numbers(q)
            if not isinstance(q, int) and DESCRIPTIONS[name]["target"] != "scores":
                numbers = [v / mpmath.fsum(numbers) for v in numbers]
            wanted, _ = definition(as_numbers(x), numbers, **given)
            got = getattr(isentropic, name)(x, q, **given)
            assert abs(mpf(float(got)) - wanted) <= 1e-9 * wanted + mpf(10) ** -40, (given, q, got, float(wanted))


@pytest.mark.parametrize("alpha", [0.4, 0.999999, 1.0, 1.0000001, 1.001, 1.3, 1.5, 2.0, 3.0])
def test_gradient_in_alpha(alpha):
    rng = np.random.default_rng(1)
    for x in (rng.standard_normal(5), rng.standard_normal(12) * 3, np.array([4.0, 0.0, -1.0]), np.zeros(4)):
        q = rng.exponential(size=len(x))
        q[0] = 0
        q /= q.sum()
        for target in (2, q):
            value, dx, slope = isentropic.entmax_loss(x, target, alpha=alpha, return_grad=True, param_grad=True)
            assert isentropic.entmax_loss(x, target, alpha=alpha, param_grad=True) == (value, slope)
            p = reference._entmax(as_numbers(x), mpf(alpha))
            wanted = reference.entropy_slope(p, alpha)
            wanted -= reference.entropy_slope(as_numbers(q), alpha) if target is q else 0
            assert abs(mpf(float(slope)) - wanted) <= 1e-11 * (1 + abs(wanted)), (alpha, x, slope, float(wanted))
            assert abs(dx.sum()) < 1e-12


def test_alpha_of_each_row():
    x = np.random.default_rng(0).standard_normal((4, 3, 5))
    alpha = np.array([1.0, 1.3, 2.0])[:, None]
    target = np.arange(12).reshape(4, 3) % 5
    value, dx, slope = isentropic.entmax_loss(x, target, alpha=alpha, return_grad=True, param_grad=True)
    assert slope.shape == (4, 3)
    for j, one in enumerate((1.0, 1.3, 2.0)):
        parts = isentropic.entmax_loss(x[:, j], target[:, j], alpha=one, return_grad=True, param_grad=True)
        for whole, part in zip((value, dx, slope), parts, strict=True):
            assert np.array_equal(whole[:, j], part)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_class_is_the_distribution_that_has_it(name):
    x = np.random.default_rng(2).standard_normal((20, 7)) * 2
    target = np.arange(20) % 7
    for dtype, close in ((np.float64, 1e-12), (np.float32, 2e-5)):
        scores = x.astype(dtype)
        value, dx = getattr(isentropic, name)(scores, target, return_grad=True, **typical(name))
        same, same_dx = getattr(isentropic, name)(scores, np.eye(7, dtype=dtype)[target], return_grad=True, **typical(name))
        assert np.allclose(value, same, rtol=close, atol=close)
        assert np.allclose(dx, same_dx, rtol=close, atol=close)


@pytest.mark.parametrize(
    "map_and_params", [("sparsemax", {}), ("entmax", {"alpha": 1.3}), ("taylor_softmax", {}), ("top_k_softmax", {"k": 2})]
)
def test_losses_of_any_map(map_and_params):
    x = np.random.default_rng(4).standard_normal((6, 5))
    target, (name, params) = np.arange(6) % 5, map_and_params
    p, onehot = getattr(isentropic, name)(x, **params), np.eye(5)[np.arange(6) % 5]
    value, dx = isentropic.smooth_accuracy_loss(x, target, map=name, return_grad=True, **params)
    assert np.array_equal(value, -p[np.arange(6), target])
    assert np.array_equal(dx, getattr(isentropic, f"{name}_vjp")(x, p, -onehot, **params))
    _, dx = isentropic.surrogate_loss(x, target, map=(name, params), return_grad=True)
    assert np.array_equal(dx, p - onehot)
    q = np.full((6, 5), 0.2)
    assert np.allclose(isentropic.smooth_accuracy_loss(x, q, map=name, **params), -0.2)


def test_losses_never_are_negative():
    rng = np.random.default_rng(5)
    for dtype, scale in itertools.product((np.float32, np.float64), (1e-4, 1.0, 30.0, 1e4)):
        x = (rng.standard_normal((200, 6)) * scale).astype(dtype)
        target = rng.integers(0, 6, 200)
        for name in ("softmax_loss", "sparsemax_loss", "entmax_loss"):
            assert (getattr(isentropic, name)(x, target) >= 0).all()
        for alpha in (0.5, 1.0, 1.2, 1.5, 2.0, 3.0):
            p = isentropic.entmax(x, alpha=alpha)
            assert (isentropic.entmax_loss(x, p, alpha=alpha) >= 0).all()
            assert (isentropic.entmax_loss(x, p, alpha=alpha) < 1e-6).all()
            value, dx = isentropic.entmax_loss(x, target, alpha=alpha, return_grad=True)
            assert ((value > 0) == (dx != 0).any(1)).all()
        divergences = DESCRIPTIONS["distillation_loss"]["params"][1]["names"]
        for name, params in [("jsd_loss", {}), *(("distillation_loss", {"divergence": one}) for one in divergences)]:
            assert (getattr(isentropic, name)(x, np.roll(x, 1, 0), **params) >= 0).all()
            value, dx = getattr(isentropic, name)(x, x, return_grad=True, **params)
            assert (value == 0).all() and (dx == 0).all()
        assert (isentropic.jsd_loss(x, np.roll(x, 1, 0)) <= np.log(2) + 1e-7).all()
    assert isentropic.sparsemax_loss([1.0, 0.0, -2.0], 0) == 0
    assert isentropic.sparsemax_loss([0.99, 0.0, -2.0], 0) > 0
    assert isentropic.top_k_softmax_loss([3.0, 2.0, 2.5], 1, k=1) == 1


@pytest.mark.parametrize("name", DESCRIPTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_special_rows(name, dtype):
    """NaN, all absent, +inf, and their neighbours untouched."""
    n, kind, params = 5, DESCRIPTIONS[name]["target"], typical(name)
    function = getattr(isentropic, name)
    x = np.random.default_rng(6).uniform(-1, 1, (6, n)).astype(dtype)
    target = {"labels": np.eye(n, dtype=dtype)[np.arange(6) % n], "scores": x[::-1].copy()}.get(kind, np.arange(6) % n)
    usual, usual_dx = function(x, target, return_grad=True, **params)
    y = x.copy()
    y[1, 3], y[2] = np.nan, -np.inf
    y[3, 4] = -np.inf
    value, dx = function(y, target, return_grad=True, **params)
    assert np.isnan(value[1])
    assert np.isnan(dx[1]).all()
    if kind == "labels":
        assert value[2] == np.inf
    else:
        assert np.isnan(value[2])
        assert np.isnan(dx[2]).all()
    assert dx[3, 4] == 0
    for row in (0, 4, 5):
        assert value[row] == usual[row]
        assert np.array_equal(dx[row], usual_dx[row])
    if name == "margin_softmax_loss":
        return
    y = x.copy()
    y[0, [0, 1]], y[1, 0] = np.inf, np.inf
    value, dx = function(y, target, return_grad=True, **params)
    assert not np.isnan(value).any()
    if kind.startswith("class"):
        assert (dx[:2] == 0).all()
        if name != "smooth_accuracy_loss":
            assert value[1] == np.inf
    if name == "softmax_loss":  # smoothing gives a share to finite scores, which have no mass beside +inf
        assert value[0] == (np.inf if params.get("label_smoothing") else value.dtype.type(np.log(2)))


@pytest.mark.parametrize("name", CLASSES)
def test_a_target_that_is_absent(name):
    x = np.array([0.5, -np.inf, 0.2, -0.4])
    value, dx = getattr(isentropic, name)(x, 1, return_grad=True, **typical(name))
    assert value == (0 if name == "smooth_accuracy_loss" else np.inf)
    assert dx[1] == 0
    assert np.isfinite(dx).all()
    if name in DISTRIBUTIONS and name != "smooth_accuracy_loss":
        value, dx = getattr(isentropic, name)(x, [0.5, 0.5, 0.0, 0.0], return_grad=True, **typical(name))
        assert value == np.inf
        assert dx[1] == 0
        assert np.isfinite(dx).all()


def test_label_smoothing_is_over_classes_that_are_there():
    x = np.array([0.5, -np.inf, 0.2])
    want = 0.9 * isentropic.softmax_loss(x, 0) + 0.1 * (isentropic.softmax_loss(x, 0) + isentropic.softmax_loss(x, 2)) / 2
    assert np.isclose(isentropic.softmax_loss(x, 0, label_smoothing=0.1), want, rtol=1e-14)
    # Beside +inf: as the same target given as a distribution.
    inf = np.inf
    for row in ([inf, 1, 2], [inf, -inf, 2], [inf, -inf, -inf], [inf, inf, -inf], [inf, inf, 0.5]):
        for share in (0, 0.1, 1):
            present = np.isfinite(row) | (np.array(row) == inf)
            target = (1 - share) * np.eye(3)[0] + share * present / present.sum()
            value, dx = isentropic.softmax_loss(row, 0, label_smoothing=share, return_grad=True)
            assert value == pytest.approx(isentropic.softmax_loss(row, target), rel=1e-15)
            assert (dx == 0).all()


@pytest.mark.parametrize("kind", ["am", "arc", "sphere"])
def test_margins_at_and_beyond_the_ends(kind):
    for dtype in (np.float32, np.float64):
        grid = np.concatenate([np.linspace(-1, 1, 2001), [np.nextafter(dtype(1), dtype(0)), 1 - 1e-12]]).astype(dtype)
        grid = np.sort(grid)
        cosines = np.stack([grid, np.zeros_like(grid)], 1)
        value, dx = isentropic.margin_softmax_loss(cosines, np.zeros(len(grid), int), kind=kind, scale=2.0, return_grad=True)
        assert np.isfinite(value).all()
        assert np.isfinite(dx).all()
        assert (np.diff(value) <= 1e-6).all()  # psi rises with the cosine
        assert (dx[:, 0] <= 0).all()
        beyond = isentropic.margin_softmax_loss(np.array([[1 + 1e-6, 0.0]], dtype), [0], kind=kind, scale=2.0)
        assert np.isclose(beyond, value[-1], atol=1e-4)
    least = {"arc": np.sin(0.5) * 2.0**24, "am": 1, "sphere": 16}[kind]
    value, dx = isentropic.margin_softmax_loss([1.0, 0.0], 0, kind=kind, scale=1.0, return_grad=True)
    assert np.isclose(dx[0], -least * dx[1], rtol=1e-12)
    _, dx = isentropic.margin_softmax_loss([-1.0, 0.0], 0, kind=kind, scale=1.0, return_grad=True)
    assert np.isclose(dx[0], -least * dx[1], rtol=1e-12)


def test_ignored_rows():
    x = np.array([[np.nan, 1.0], [2.0, 1.0], [np.inf, 1.0]])
    for name in CLASSES:
        if name == "margin_softmax_loss":
            continue
        value, dx = getattr(isentropic, name)(x, [-7, 0, -7], ignore_index=-7, return_grad=True, **typical(name))
        alone = getattr(isentropic, name)(x[1], 0, **typical(name))
        assert value.tolist() == [0, alone, 0]
        assert not dx[[0, 2]].any()


@every_variant
def test_layouts_and_types(name, params):
    rng = np.random.default_rng(7)
    kind, function = DESCRIPTIONS[name]["target"], getattr(isentropic, name)
    x = rng.uniform(-1, 1, (3, 8, 4))
    target = {"labels": rng.integers(0, 2, x.shape), "scores": rng.uniform(-1, 1, x.shape)}.get(kind)
    for axis in (0, 1, 2):
        against = rng.integers(0, x.shape[axis], np.delete(x.shape, axis)) if target is None else target
        value, dx = function(x, against, axis=axis, return_grad=True, **params)
        assert value.shape == tuple(np.delete(x.shape, axis))
        rows = np.moveaxis(x, axis, -1)
        row_target = against if target is None else np.moveaxis(against, axis, -1)
        want, want_dx = function(rows.copy(), row_target, return_grad=True, **params)
        assert np.array_equal(value, want)
        assert np.array_equal(np.moveaxis(dx, axis, -1), want_dx)
        for row in np.ndindex(*value.shape):
            assert function(rows[row], row_target[row], **params) == value[row]
    half, half_dx = function(x.astype(np.float16), against, return_grad=True, **params)
    wide, wide_dx = function(x.astype(np.float16).astype(np.float32), against, return_grad=True, **params)
    assert half.dtype == np.float32 and half_dx.dtype == np.float16
    if kind != "scores":
        assert np.array_equal(half, wide)
        assert np.array_equal(half_dx, wide_dx.astype(np.float16))


def test_empty():
    assert isentropic.softmax_loss(np.zeros((0, 3)), np.zeros(0, int)).shape == (0,)
    assert np.isnan(isentropic.softmax_loss(np.zeros((2, 0)), np.zeros((2, 0)))).all()
    assert (isentropic.multilabel_softmax_loss(np.zeros((2, 0)), np.zeros((2, 0))) == 0).all()


def test_errors_name_the_argument():
    x = np.zeros((2, 3))

    def fails(error, text, call):
        with pytest.raises(error, match=text):
            call()

    loss = isentropic.softmax_loss
    fails(ValueError, r"^softmax_loss: target must be a class from 0 to 2, got 3 in row 1", lambda: loss(x, [0, 3]))
    fails(ValueError, r"^softmax_loss: target must be a class from 0 to 2, got -1 in row 0", lambda: loss(x, [-1, 3]))
    fails(
        ValueError,
        r"target must have one class for each row, of shape \(2,\), got integers of shape \(3,\)",
        lambda: loss(x, [0, 1, 2]),
    )
    fails(ValueError, "a distribution is of floating-point numbers", lambda: loss(x, np.eye(3, dtype=int)[:2]))
    fails(ValueError, r"target must have the shape of x, \(2, 3\), got \(3,\)", lambda: loss(x, [0.5, 0.5, 0.0]))
    fails(ValueError, r"got shape \(2,\); classes are integers: pass target\.astype\(int\)", lambda: loss(x, [0.0, 1.0]))
    fails(
        TypeError, "target must be integers.*or floating-point numbers, a distribution, got dtype bool", lambda: loss(x, x == 0)
    )
    fails(ValueError, "a distribution in every row, got a sum of 0.5 in row 1", lambda: loss(x, [[1.0, 0, 0], [0.5, 0, 0]]))
    fails(ValueError, "0 in every entry, got -0.5 at entry 2 in row 0", lambda: loss(x, [[1.0, 0.5, -0.5], [1.0, 0, 0]]))
    fails(ValueError, "0 in every entry, got nan at entry 1 in row 1", lambda: loss(x, [[1.0, 0, 0], [1.0, np.nan, 0]]))
    fails(ValueError, "label_smoothing must be at least 0 and at most 1, got 1.5", lambda: loss(x, [0, 0], label_smoothing=1.5))
    fails(TypeError, "ignore_index must be an integer or None, got float", lambda: loss(x, [0, 0], ignore_index=1.5))
    fails(np.exceptions.AxisError, "softmax_loss", lambda: loss(x, [0, 0], axis=2))
    fails(ValueError, "at least one axis", lambda: loss(1.0, 0))
    fails(ValueError, r"alpha of row 1 must be above 0", lambda: isentropic.entmax_loss(x, [0, 0], alpha=[[1.0], [-1.0]]))
    fails(
        ValueError,
        "target must be 0 or 1 in every entry, got 2 at entry 0 in row 0",
        lambda: isentropic.multilabel_softmax_loss(x, x + 2),
    )
    fails(
        ValueError,
        "cosines must be from -1 to 1, got 3 at entry 2 in row 0",
        lambda: isentropic.margin_softmax_loss([[0.0, 1, 3]], [0]),
    )
    fails(TypeError, "target must be integers", lambda: isentropic.margin_softmax_loss(x, x))
    for margin in (0.5, 2.5):
        fails(
            ValueError,
            "margin must be an integer of at least 1 for kind sphere",
            lambda margin=margin: isentropic.margin_softmax_loss(x, [0, 0], kind="sphere", margin=margin),
        )
    fails(
        ValueError,
        "margin must be at most pi for kind arc",
        lambda: isentropic.margin_softmax_loss(x, [0, 0], kind="arc", margin=4),
    )
    fails(ValueError, "kind must be one of am, arc, sphere", lambda: isentropic.margin_softmax_loss(x, [0, 0], kind="cos"))
    fails(ValueError, "beta must be below 1", lambda: isentropic.jsd_loss(x, x, beta=1.0))
    fails(ValueError, "beta must be above 0", lambda: isentropic.jsd_loss(x, x, beta=0.0))
    fails(ValueError, r"teacher must have the shape of student", lambda: isentropic.jsd_loss(x, x[:1]))
    fails(ValueError, "map must be one of softmax, sparsemax", lambda: isentropic.surrogate_loss(x, [0, 0], map="soft"))
    fails(TypeError, "map 'softmax' has no parameter 'alpha'", lambda: isentropic.surrogate_loss(x, [0, 0], alpha=2.0))
    fails(
        TypeError,
        "map 'top_k_softmax' needs the parameter 'k'",
        lambda: isentropic.surrogate_loss(x, [0, 0], map="top_k_softmax"),
    )


def test_ratio_map():
    x = np.random.default_rng(8).standard_normal((3, 4)) + 3
    assert np.allclose(isentropic.ratio_map(x, np.exp), isentropic.softmax(x), rtol=1e-12)
    assert np.allclose(isentropic.ratio_map(x, np.square, axis=0), x**2 / (x**2).sum(0))
    assert isentropic.ratio_map([3.0, -np.inf, 4.0], np.square).tolist() == [0.36, 0.0, 0.64]
    assert isentropic.ratio_map([np.inf, 1.0, np.inf], np.square).tolist() == [0.5, 0.0, 0.5]
    assert np.isnan(isentropic.ratio_map([[np.nan, 1.0], [-np.inf, -np.inf]], np.square)).all()
    with pytest.raises(ValueError, match=r"^ratio_map: f must be at least 0 and finite, got -1.0 of -1.0 at entry 1 in row 0"):
        isentropic.ratio_map([[1.0, -1.0]], lambda x: x)
    with pytest.raises(ValueError, match="f must give a positive number somewhere, got only 0 in row 1"):
        isentropic.ratio_map([[1.0, -1.0], [0.0, 0.0]], np.square)
    with pytest.raises(ValueError, match="f must give an array of the shape"):
        isentropic.ratio_map([1.0, 2.0], np.sum)
    with pytest.raises(TypeError, match="f must be callable"):
        isentropic.ratio_map([1.0], 2)


@pytest.mark.parametrize("size", [1e-1, 1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_near_equal_student_and_teacher(size, shift):
    """Relative to themselves, however near; the gradient relative to its largest entry."""
    rng = np.random.default_rng(5)
    teacher = 2 * rng.normal(size=(3, 25))
    student = teacher + shift + size * rng.normal(size=teacher.shape)
    student[2, 3:6] = teacher[2, 3:6] = -np.inf

    def softmax(x, temperature):
        e = [mpmath.exp(mpf(float(v)) / temperature) if np.isfinite(v) else mpf(0) for v in x]
        return [v / mpmath.fsum(e) for v in e]

    def kl(p, q):
        return mpmath.fsum(a * mpmath.log(a / b) for a, b in zip(p, q, strict=True) if a)

    for temperature in (0.5, 1.0, 3.0):
        value, gradient = isentropic.distillation_loss(student, teacher, temperature=temperature, return_grad=True)
        for r in range(3):
            s, t = softmax(student[r], temperature), softmax(teacher[r], temperature)
            want = mpf(temperature) ** 2 * kl(t, s)
            assert abs(mpf(float(value[r])) - want) <= 1e-14 * want
            slopes = [temperature * (a - b) for a, b in zip(s, t, strict=True)]
            worst = max(abs(mpf(float(g)) - w) for g, w in zip(gradient[r], slopes, strict=True))
            assert worst <= 1e-14 * max(map(abs, slopes))
    value = isentropic.jsd_loss(student, teacher, beta=0.3)
    for r in range(3):
        s, t = softmax(student[r], 1), softmax(teacher[r], 1)
        m = [mpf(0.3) * b + (1 - mpf(0.3)) * a for a, b in zip(s, t, strict=True)]
        want = mpf(0.3) * kl(t, m) + (1 - mpf(0.3)) * kl(s, m)
        assert abs(mpf(float(value[r])) - want) <= 1e-14 * want


def test_student_and_teacher_where_differences_end():
    """Scores whose differences are the largest numbers, or beyond."""
    most = np.finfo(np.float64).max
    for student, teacher in (([5e307], [most]), ([most, most], [-most, -most]), ([most, most, -most], [most, most, 3e307])):
        for name in ("distillation_loss", "jsd_loss"):
            value, gradient = getattr(isentropic, name)(student, teacher, return_grad=True)
            assert value == 0 and not np.any(gradient), (name, student, value, gradient)
        assert isentropic.kl_divergence(teacher, student, input="scores") == 0
        assert isentropic.js_divergence(teacher, student, input="scores") == 0


@pytest.mark.parametrize("param_grad", ["alpha", ["alpha"], 1])
def test_param_grad_is_a_bool(param_grad):
    x, target = np.zeros((2, 3)), np.array([0, 1])
    for call in (
        lambda: isentropic.entmax_loss(x, target, alpha=1.5, param_grad=param_grad),
        lambda: isentropic.smooth_accuracy_loss(x, target, map="entmax", alpha=1.5, param_grad=param_grad),
        lambda: isentropic.renyi_entropy(np.full((2, 2), 0.5), alpha=2.0, param_grad=param_grad),
    ):
        with pytest.raises(TypeError, match="param_grad must be a bool, got " + type(param_grad).__name__):
            call()
