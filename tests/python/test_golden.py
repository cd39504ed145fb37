"""Results and gradients against tests/golden/golden.jsonl, which mpmath computed from the definitions."""

import json
import pathlib

import numpy as np
import pytest

import isentropic

EPS = {np.float32: 2.0**-24, np.float64: 2.0**-53}
GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "golden.jsonl"


def load():
    rows, results = {}, []
    for line in GOLDEN.read_text(encoding="ascii").splitlines():
        record = json.loads(line)
        if "map" in record:
            results.append(record)
        else:
            rows[record["row"]] = [np.array([float.fromhex(v) for v in record[key]]) for key in ("x", "g")]
    return rows, results


ROWS, RESULTS = load()


class Row:
    """A row in its type, and the variables of softmax's error: p, d = (max x - x)/T and the mean of d, in float64."""

    def __init__(self, x, g, dtype, params):
        self.x, self.g, self.weight = x.astype(dtype), g.astype(dtype), g[0]
        # g is never read where a score is absent.
        self.g[np.isneginf(x)] = np.nan
        self.present = np.where(np.isneginf(x), 0, g)
        self.params, self.temperature = params, params.get("temperature", 1.0)
        self.d = (x.max() - x) / self.temperature
        self.log_sum = np.log(np.exp(-self.d).sum())
        self.p = np.exp(-self.d - self.log_sum)
        self.d[np.isneginf(x)] = 0
        self.mean_d = self.p @ self.d
        self.eps, self.tiny = EPS[dtype], np.finfo(dtype).tiny
        self.relative = 8 + 3 * (self.d + self.mean_d)  # softmax's error in units of eps p


# The error of each kept entry of a map, of its gradient and of the gradient in its parameter, as docs/math/maps.md states it.
# `result` is the line of golden.jsonl, y what the library gave for the whole row. Gradients start from y, so that its error
# comes in beside the rounding of a few operations.


def softmax_bounds(row, result, y):
    mean = row.p @ row.present
    mean_error = row.p * abs(row.present) @ (row.relative + 5)
    own = row.p * ((row.relative + 6) * abs(row.present - mean) + mean_error + abs(row.present) + abs(mean))
    bounds = row.relative * row.eps * row.p + row.tiny, own * row.eps / row.temperature + row.tiny * 16 / row.temperature
    return [bound[result["at"]] for bound in bounds]


def sparsemax_bounds(row, result, y):
    return 4 * row.eps, 16 * abs(row.present).max() * row.eps / row.temperature


def relative_bounds(factor):
    """For maps like softmax, whose gradient has the factor besides p (g - <g, p>): relative to p, by its distance to max p."""

    def bounds(row, result, y):
        p, mean_distance = np.array(result["y"], np.float64), result["mean_distance"]
        distance = np.log(y.max()) - np.log(p, where=p > 0, out=np.full(len(p), np.log(y.max())))
        relative = 8 + 3 * (distance + mean_distance)
        largest = abs(row.present).max()
        mean_error = largest * (13 + 6 * mean_distance)  # sum p (relative + 5) |g|
        own = p * ((relative + 6) * np.ptp(row.present) + mean_error + 2 * largest)
        slope = factor / row.temperature
        return relative * row.eps * p + row.tiny, slope * (own * row.eps + row.tiny * 16)

    return bounds


def entmax_bounds(row, result, y):
    """4 eps; beyond alpha = 2 what scores that are off by 8 eps (1 + distance) do to p, and they move tau as far again."""
    alpha, want = row.params["alpha"], np.array(result["y"], np.float64)

    def error(p):
        b = alpha - 1
        if b <= 1:
            return np.full(p.shape, 4 * row.eps)
        moved = [np.maximum(p**b + sign * 16 * (1 + b) * row.eps, 0) ** (1 / b) for sign in (-1, 1)]
        return 4 * row.eps + np.maximum(*abs(moved - p))

    # How far the gradients move if each entry of y is off by its error.
    p, present = y.astype(np.float64), row.present
    x = row.x.astype(np.float64)
    dx, dparam = isentropic.entmax_vjp(x, p, present, **row.params, param_grad=True)
    inside = np.flatnonzero(y)
    moves = np.zeros((inside.size, y.size))
    moves[np.arange(inside.size), inside] = error(p)[inside]
    dx_error, dparam_error = 0.0, 0.0
    for q in (p + moves, np.maximum(p - moves, 0)):
        moved_dx, moved_dparam = isentropic.entmax_vjp(
            np.broadcast_to(x, q.shape), q, np.broadcast_to(present, q.shape), **row.params, param_grad=True
        )
        dx_error += abs(moved_dx - dx).sum(axis=0)
        dparam_error += abs(moved_dparam - dparam).sum()
    dx_error += 40 * row.eps * max(alpha, 1) * np.maximum(1 / row.temperature, abs(dx).max())
    return error(want), dx_error[result["at"]], dparam_error + 8 * row.eps


def log_softmax_bounds(row, result, y):
    error = (4 + 3 * row.d + 2 * (row.d + row.log_sum)) * row.eps  # |y| = d + log sum
    total = abs(row.present).sum()
    own = row.p * (total * (error + 10 * row.eps)) + 4 * row.eps * abs(row.present)
    return error[result["at"]], (own / row.temperature + row.tiny * total / row.temperature)[result["at"]]


def logsumexp_bounds(row, result, y):
    own = ((row.relative + 2) * row.eps * row.p + row.tiny) * abs(row.weight)
    return 2 * row.eps * abs(y) + 8 * row.eps * row.temperature, own[result["at"]]


def soft_top_k_bounds(row, result, y):
    """Weights p (1 - p) are computed in float64: relative to each other they are off by their distances."""
    finite = row.x[np.isfinite(row.x)].astype(np.float64)
    distance = np.ptp(finite) / row.temperature
    reach = np.ptp(row.present)
    weights = (8 + 4 * distance) * 2.0**-53
    return 4 * row.eps, 4 * row.eps * reach / row.temperature, reach * (weights + 4 * row.eps) + 8 * row.eps


BOUNDS = {
    "softmax": softmax_bounds,
    "sparsemax": sparsemax_bounds,
    "entmax": entmax_bounds,
    "taylor_softmax": relative_bounds(2),
    "sigsoftmax": relative_bounds(2),
    "top_k_softmax": relative_bounds(1),
    "top_p_softmax": relative_bounds(1),
    "min_p_softmax": relative_bounds(1),
    "log_softmax": log_softmax_bounds,
    "logsumexp": logsumexp_bounds,
    "soft_top_k": soft_top_k_bounds,
}


def reach(params):
    """The distance from the maximum, over T, beyond which a score is outside the support for certain."""
    return 1 / max(params.get("alpha", 2) - 1, 1e-300)


def check(got, want, bound, what):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    bound = np.broadcast_to(bound, want.shape)
    infinite = np.isinf(want)
    np.testing.assert_array_equal(got[infinite], want[infinite], err_msg=what)
    error = np.abs(np.where(infinite, 0, got) - np.where(infinite, 0, want))
    if not (error <= bound).all():
        worst = np.argmax(error / bound)
        pytest.fail(f"{what}: kept entry {worst} is {got[worst]!r}, not {want[worst]!r}; error bound {bound[worst]:.3g}")


def cases():
    for result in RESULTS:
        x, g = ROWS[result["row"]]
        for dtype in (np.float64, np.float32):
            if np.array_equal(x.astype(dtype), x):
                values = "-".join(f"{key}={value:g}" for key, value in result["params"].items())
                yield pytest.param(result, x, g, dtype, id=f"{result['map']}-{result['row']}-{values}-{dtype.__name__}")


@pytest.mark.parametrize(("result", "x", "g", "dtype"), list(cases()))
def test_golden(result, x, g, dtype):
    name, params, at = result["map"], result["params"], result["at"]
    row = Row(x, g, dtype, params)
    y = getattr(isentropic, name)(row.x, **params)
    reduces = np.ndim(y) == 0
    asks = {"param_grad": True} if "dparam" in result else {}
    dx = getattr(isentropic, name + "_vjp")(row.x, y, dtype(g[0]) if reduces else row.g, **params, **asks)
    dparams = []
    if asks:
        dx, *dparams = dx
    assert np.asarray(y).dtype == dtype
    assert dx.dtype == dtype
    assert dx.shape == row.x.shape

    want_y, want_dx = np.array(result["y"], np.float64), np.array(result["dx"], np.float64)
    y_bound, dx_bound, *dparam_bound = BOUNDS[name](row, result, y)
    check([y] if reduces else y[at], want_y, y_bound, "result")
    masked = np.isneginf(x)
    assert (dx[masked] == 0).all()
    if not reduces:
        assert (y[masked] == (-np.inf if name == "log_softmax" else 0)).all()
    if "support" in result:
        assert (y[at][want_y >= 1e-6] > 0).all()
        if name in ("sparsemax", "entmax"):
            assert (y[row.d > reach(params) + 1e-6] == 0).all()
        # An entry whose exact probability is below 1e-6 may fall on either side of the edge: then so does the gradient.
        if np.count_nonzero(y) != result["support"]:
            return
    check(dx[at], want_dx, dx_bound, "gradient")
    if asks:
        check(dparams, [float(result["dparam"])], dparam_bound, "gradient in the parameter")
