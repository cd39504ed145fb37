"""Results and gradients against tests/golden/golden.jsonl, which mpmath computed from the definitions."""

import json
import pathlib

import numpy as np
import pytest

import entropic

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
    """A row in its type, and what the errors of softmax depend on: p, d = (max x - x)/T and the mean of d, in float64."""

    def __init__(self, x, g, dtype, params):
        self.x, self.g, self.weight = x.astype(dtype), g.astype(dtype), g[0]
        # g is never read where a score is absent.
        self.g[np.isneginf(x)] = np.nan
        self.present = np.where(np.isneginf(x), 0, g)
        self.temperature = params["temperature"]
        self.d = (x.max() - x) / self.temperature
        self.log_sum = np.log(np.exp(-self.d).sum())
        self.p = np.exp(-self.d - self.log_sum)
        self.d[np.isneginf(x)] = 0
        self.mean_d = self.p @ self.d
        self.eps, self.tiny = EPS[dtype], np.finfo(dtype).tiny
        self.relative = 8 + 3 * (self.d + self.mean_d)  # softmax's error in units of eps p


# The error of each entry of a map and of its gradient, for SPEC 2.2. Gradients start from the library's own result, so
# that result's error comes in beside the rounding of a few operations.


def softmax_bounds(row, y):
    mean = row.p @ row.present
    mean_error = row.p * abs(row.present) @ (row.relative + 5)
    own = row.p * ((row.relative + 6) * abs(row.present - mean) + mean_error + abs(row.present) + abs(mean))
    return row.relative * row.eps * row.p + row.tiny, own * row.eps / row.temperature + row.tiny * 16 / row.temperature


def sparsemax_bounds(row, y):
    largest = abs(row.present).max()
    return np.full(row.x.size, 4 * row.eps), np.full(row.x.size, 16 * largest * row.eps / row.temperature)


def log_softmax_bounds(row, y):
    error = (4 + 3 * row.d + 2 * (row.d + row.log_sum)) * row.eps  # |y| = d + log sum
    total = abs(row.present).sum()
    own = row.p * (total * (error + 10 * row.eps)) + 4 * row.eps * abs(row.present)
    return error, own / row.temperature + row.tiny * total / row.temperature


def logsumexp_bounds(row, y):
    own = ((row.relative + 2) * row.eps * row.p + row.tiny) * abs(row.weight)
    return 2 * row.eps * abs(y) + 8 * row.eps * row.temperature, own


BOUNDS = {
    "softmax": softmax_bounds,
    "sparsemax": sparsemax_bounds,
    "log_softmax": log_softmax_bounds,
    "logsumexp": logsumexp_bounds,
}


def check(got, want, bound, what):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
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
    y = getattr(entropic, name)(row.x, **params)
    reduces = np.ndim(y) == 0
    dx = getattr(entropic, name + "_vjp")(row.x, y, dtype(g[0]) if reduces else row.g, **params)
    assert np.asarray(y).dtype == dtype
    assert dx.dtype == dtype
    assert dx.shape == row.x.shape

    want_y, want_dx = np.array(result["y"], np.float64), np.array(result["dx"], np.float64)
    y_bound, dx_bound = BOUNDS[name](row, want_y)
    if reduces:
        check([y], want_y, y_bound, "result")
    else:
        check(y[at], want_y, y_bound[at], "result")
    if "support" in result:
        assert (y[at][want_y >= 1e-6] > 0).all()
        assert (y[row.d > 1 + 1e-6] == 0).all()  # d is the distance from the maximum, so these are outside for certain
        # An entry whose exact probability is below 1e-6 may fall on either side of the edge: then so does the gradient.
        if np.count_nonzero(y) != result["support"]:
            return
    check(dx[at], want_dx, dx_bound[at], "gradient")
    # Masked entries are as if absent.
    masked = np.isneginf(x)
    assert (dx[masked] == 0).all()
    if name != "logsumexp":
        assert (y[masked] == (-np.inf if name == "log_softmax" else 0)).all()
