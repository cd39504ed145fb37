"""The numbers: against mpmath at 50 digits, the laws of every map, special values, gradients against differences."""

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import isentropic
from cases import MAPS, OPERATIONS, SHAPED, call, call_vjp, each, param_values, reshaped, scores

mpmath.mp.dps = 50

EPS = {np.float32: 2.0**-24, np.float64: 2.0**-53}


@st.composite
def rows(draw):
    """One row of scores: lengths around the vector widths, scales from flat to peaked, an offset, ties, absent entries."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    n = draw(st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 33, 65]))
    scale = draw(st.sampled_from([1e-3, 0.3, 1.0, 10.0, 100.0, 1e4]))
    offset = draw(st.sampled_from([0.0, -3.0, 1e3, -1e6]))
    x = scores(np.random.default_rng(draw(st.integers(0, 2**32))), n, dtype, scale) + dtype(offset)
    if draw(st.booleans()):
        x = np.round(x)
    if draw(st.booleans()) and n > 1:
        x[draw(st.integers(0, n - 2)) :: 3] = -np.inf
        assume(np.isfinite(x).any())
    return x.astype(dtype)


temperatures = st.sampled_from([1.0, 0.1, 0.5, 3.0, 100.0])


def exact(x, temperature):
    """(d = max x - x, x / T, logsumexp(x / T)) with absent entries as None or left out."""
    values = [None if v == -np.inf else mpmath.mpf(float(v)) / mpmath.mpf(temperature) for v in x]
    top = max(v for v in values if v is not None)
    total = mpmath.fsum(mpmath.exp(v - top) for v in values if v is not None)
    return values, top, top + mpmath.log(total)


@given(rows(), temperatures)
def test_softmax_against_mpmath(x, temperature):
    got = isentropic.softmax(x, temperature=temperature)
    values, top, lse = exact(x, temperature)
    p = [mpmath.mpf(0) if v is None else mpmath.exp(v - lse) for v in values]
    d = [mpmath.mpf(0) if v is None else top - v for v in values]  # already over T
    mean_d = mpmath.fsum(a * b for a, b in zip(p, d, strict=True))
    for i, want in enumerate(p):
        if want >= 1.2e-38:
            assert abs(float(got[i]) - want) <= (8 + 3 * (d[i] + mean_d)) * EPS[x.dtype.type] * want
        else:
            assert 0 <= got[i] <= 1.3e-38


@given(rows(), temperatures)
def test_sparsemax_against_mpmath(x, temperature):
    got = isentropic.sparsemax(x, temperature=temperature)
    values, _, _ = exact(x, temperature)
    present = sorted((v for v in values if v is not None), reverse=True)
    total = mpmath.mpf(0)
    for k, v in enumerate(present, 1):
        total += v
        if 1 + k * v > total:
            tau = (total - 1) / k
    for i, v in enumerate(values):
        want = mpmath.mpf(0) if v is None else max(v - tau, mpmath.mpf(0))
        assert abs(float(got[i]) - want) <= 4 * EPS[x.dtype.type]
        if want >= 1e-6:
            assert got[i] > 0
        if v is None or (v < tau - mpmath.mpf("1e-6")):
            assert got[i] == 0


@given(rows(), temperatures)
def test_log_softmax_and_logsumexp_against_mpmath(x, temperature):
    eps = EPS[x.dtype.type]
    values, top, lse = exact(x, temperature)
    got = isentropic.log_softmax(x, temperature=temperature)
    for i, v in enumerate(values):
        if v is None:
            assert got[i] == -np.inf
        else:
            want = v - lse
            assert abs(float(got[i]) - want) <= 8 * eps * (1 + abs(want))
    got = isentropic.logsumexp(x, temperature=temperature)
    assert abs(float(got) - lse * temperature) <= 8 * eps * (abs(top) + 1) * temperature


@pytest.mark.parametrize("order", [2, 4, 8, 22, 24, 32, 48, 64])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_taylor_softmax_of_any_order_against_mpmath(order, dtype):
    """Terms of x < 0 cancel by many digits, most near the minimum of the polynomial."""
    x = np.stack([-np.arange(0.25, 40, 0.75), np.zeros(53)], axis=1).astype(dtype)
    y = isentropic.taylor_softmax(x, order=order)
    dx = isentropic.taylor_softmax_vjp(x, y, np.broadcast_to(np.array([1, -1], dtype), x.shape), order=order)
    with mpmath.workdps(100):
        for row, got, slopes in zip(x, y, dx, strict=True):
            terms = [[mpmath.mpf(float(v)) ** m / mpmath.factorial(m) for m in range(order + 1)] for v in row]
            f, less = [mpmath.fsum(t) for t in terms], [mpmath.fsum(t[:-1]) for t in terms]
            p = [v / mpmath.fsum(f) for v in f]
            d = [mpmath.log(max(p) / v) for v in p]
            relative = [(8 + 3 * (di + mpmath.fdot(p, d))) * EPS[dtype] for di in d]
            assert all(abs(g - v) <= e * v for g, v, e in zip(got.tolist(), p, relative, strict=True)), row
            inner = p[0] - p[1]
            for k, g in enumerate([1, -1]):
                want = less[k] / f[k] * p[k] * (g - inner)
                assert abs(float(slopes[k]) - want) <= 4 * max(relative) * (1 + abs(less[k] / f[k])) * p[k], row


@each(OPERATIONS)
@given(data=st.data())
def test_every_parameter_acts_and_rows_do_not_see_each_other(operation, data):
    """A single row gives the same bits as in a batch, for any values of the parameters."""
    params = data.draw(param_values(operation))
    n = data.draw(st.sampled_from([1, 2, 5, 16, 40]))
    x = scores(np.random.default_rng(n), (7, n), data.draw(st.sampled_from([np.float32, np.float64])))
    y = call(operation, x, **params)
    for r in range(len(x)):
        np.testing.assert_array_equal(call(operation, x[r], **params), y[r], strict=True)


@each(OPERATIONS)
def test_no_parameter_is_dead(operation):
    x = scores(np.random.default_rng(0), (5, 30), scale=1.0)
    for param in operation["params"]:
        if param["kind"] != "float":
            continue
        low = 0 if param["above"] is None else param["above"]
        high = low + 2 if param["up_to"] is None else param["up_to"]
        values = [low + (high - low) * part for part in (0.25, 0.75)]
        a, b = (call(operation, x, **{param["name"]: value}) for value in values)
        assert not np.array_equal(a, b), param["name"]


@each(MAPS)
@given(data=st.data())
def test_laws(operation, data):
    params = data.draw(param_values(operation))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    n = data.draw(st.sampled_from([1, 2, 3, 16, 17, 100, 1000]))
    x = scores(np.random.default_rng(data.draw(st.integers(0, 99))), (4, n), dtype)
    x[0] = np.round(x[0])
    p = call(operation, x, **params)
    assert (p >= 0).all()
    bound = 1e-6 if dtype is np.float32 else 1e-14 * max(1.0, np.log2(n))
    assert abs(p.sum(axis=-1, dtype=np.float64) - 1).max() <= bound
    if operation["laws"]["shift"]:  # exact in floating point for integers
        np.testing.assert_array_equal(call(operation, x[0] + 512, **params), p[0])
    order = np.argsort(x, axis=-1, kind="stable")
    x_sorted, p_sorted = np.take_along_axis(x, order, -1), np.take_along_axis(p, order, -1)
    if operation["laws"]["order"]:
        assert (np.diff(p_sorted) >= 0).all() or operation["laws"]["ties_by_index"]
    if not operation["laws"]["ties_by_index"]:
        assert (np.diff(p_sorted)[np.diff(x_sorted) == 0] == 0).all()


SPECIAL = [
    ([np.nan, 1.0, 2.0], [np.nan, np.nan, np.nan]),
    ([np.nan, np.inf, -np.inf], [np.nan, np.nan, np.nan]),
    ([-np.inf, -np.inf, -np.inf], [np.nan, np.nan, np.nan]),
    ([np.inf, 1.0, np.inf], [0.5, 0.0, 0.5]),
    ([np.inf, -np.inf, 5.0], [1.0, 0.0, 0.0]),
    ([-np.inf, 4.0, -np.inf], [0.0, 1.0, 0.0]),
]


@each(MAPS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("axis", [-1, 0])
def test_special_rows_of_maps(operation, dtype, axis):
    x = np.array([row for row, _ in SPECIAL] + [[0.0, 1.0, 2.0]], dtype)
    want = np.array([p for _, p in SPECIAL], dtype)
    with np.errstate(all="raise"):
        p = np.moveaxis(call(operation, np.moveaxis(x, 1, axis), axis=axis), axis, 1)
    np.testing.assert_array_equal(p[:-1], want)
    np.testing.assert_array_equal(p[-1], call(operation, x[-1]))  # no other row changes


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_special_rows_of_log_softmax_and_logsumexp(dtype):
    x = np.array([row for row, _ in SPECIAL], dtype)
    with np.errstate(divide="ignore"):
        want = np.log(np.array([p for _, p in SPECIAL], np.float64)).astype(dtype)
    np.testing.assert_allclose(isentropic.log_softmax(x), want, rtol=1e-3)
    np.testing.assert_array_equal(isentropic.logsumexp(x), np.array([np.nan, np.nan, -np.inf, np.inf, np.inf, 4.0], dtype))


@each(OPERATIONS)
@given(data=st.data())
def test_vjp_against_central_differences(operation, data):
    params = data.draw(param_values(operation))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = scores(rng, (3, data.draw(st.sampled_from([1, 2, 5, 16, 19]))), scale=1.0)
    direction, grad = rng.standard_normal(x.shape), rng.standard_normal(reshaped(operation, x))
    slopes = []
    for h in (1e-5, 2e-5):
        above, below = (call(operation, x + s * h * direction, **params) for s in (1, -1))
        assume(((above == 0) == (below == 0)).all())  # no kink in between
        slopes.append((grad * (above - below)).sum() / (2 * h))
    # Near the edge of entmax's support the curvature is large, beyond alpha = 2 without a bound: then these are no derivatives.
    want = (4 * slopes[0] - slopes[1]) / 3
    dx = call_vjp(operation, x, call(operation, x, **params), grad, **params)
    assert dx.shape == x.shape
    slowest = max([1.0, *(1 / v for v in params.values() if isinstance(v, float))])
    scale = np.abs(grad).sum() * np.abs(direction).max() * slowest
    assume(abs(slopes[1] - slopes[0]) <= 1e-5 * scale)
    assert abs((dx * direction).sum() - want) <= 1e-7 * scale


@each(SHAPED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_at_absent_scores_is_zero_and_their_grad_not_read(operation, dtype):
    x = np.array([[0.0, -np.inf, 1.0, -np.inf]], dtype)
    grad = np.array([[1.0, np.nan, 2.0, np.inf]], dtype)
    dx = call_vjp(operation, x, call(operation, x), grad)
    assert dx[0, 1] == 0 and dx[0, 3] == 0
    present = [0, 2]
    np.testing.assert_array_equal(
        dx[:, present], call_vjp(operation, x[:, present], call(operation, x[:, present]), grad[:, present])
    )


def test_limits_that_tie_operations():
    x = scores(np.random.default_rng(1), (6, 33))
    np.testing.assert_allclose(np.exp(isentropic.log_softmax(x)), isentropic.softmax(x), rtol=1e-13)
    np.testing.assert_allclose(x - isentropic.logsumexp(x, keepdims=True), isentropic.log_softmax(x), rtol=0, atol=1e-13)
    y = isentropic.logsumexp(x, temperature=2.0)
    dx = isentropic.logsumexp_vjp(x, y, np.ones(6), temperature=2.0)
    np.testing.assert_allclose(dx, isentropic.softmax(x, temperature=2.0), rtol=1e-14)
