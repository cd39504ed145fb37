"""The Wasserstein distances as commands: the numbers of Python, rows, columns, weights, and files that do not fit."""

import numpy as np
import pytest
from conftest import parsed

import isentropic

RANDOM = np.random.default_rng(3)
U, V = RANDOM.normal(size=(4, 9)), RANDOM.normal(size=(4, 6))
A, B = RANDOM.random(9), RANDOM.random(6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("order", [1, 2, "inf"])
def test_samples(cli, dtype, order):
    u, v = U.astype(dtype), V.astype(dtype)
    cli.save("u.npy", u)
    cli.save("v.npy", v)
    cli.save("one.npy", v[2:3])
    cli.save("a.npy", A)
    cli.save("b.npy", B[:, None])
    wide = u.astype(float), v.astype(float)
    p = float(order)
    for files, weights, want in (
        (("u.npy", "v.npy"), (), isentropic.wasserstein_1d(*wide, order=p)),
        (("u.npy", "one.npy"), (), isentropic.wasserstein_1d(wide[0], wide[1][2], order=p)),
        (("u.npy", "v.npy"), ("--u_weights", "a.npy"), isentropic.wasserstein_1d(*wide, u_weights=A, order=p)),
        (
            ("u.npy", "v.npy"),
            ("--u-weights", "a.npy", "--v-weights", "b.npy"),
            isentropic.wasserstein_1d(*wide, u_weights=A, v_weights=B, order=p),
        ),
    ):
        cli.output("wasserstein_1d", *files, *weights, "--order", order, "-o", "y.npy")
        np.testing.assert_array_equal(cli.load("y.npy"), want, strict=True)


def test_columns_are_samples_and_names_stay(cli):
    cli.write("u.csv", "time\n" + "".join(f"{x!r}\n" for x in U[0].tolist()))
    cli.write("v.csv", "".join(f"{x!r}\n" for x in V[0].tolist()))
    assert float(cli.output("wasserstein_1d", "u.csv", "v.csv")) == isentropic.wasserstein_1d(U[0], V[0])
    rows = "".join(f"row{i}," + ",".join(map(repr, row)) + "\n" for i, row in enumerate(U.tolist()))
    lines = cli.output("wasserstein_1d", "-", "v.csv", stdin=("name,a,b,c,d,e,f,g,h,i\n" + rows).encode()).splitlines()
    assert lines[0] == "name,wasserstein_1d"
    assert [float(line.removeprefix(f"row{i},")) for i, line in enumerate(lines[1:])] == list(
        isentropic.wasserstein_1d(U, V[0])
    )


def test_histograms(cli):
    p, q = RANDOM.dirichlet(np.ones(5), size=3), RANDOM.dirichlet(np.ones(5))
    support = np.array([0.0, 4, 1, -2, 7])
    cli.save("p.npy", p)
    cli.save("q.npy", q[None])
    cli.save("at.npy", support)
    got = parsed(cli.output("wasserstein_histogram", "p.npy", "q.npy", "--support", "at.npy", "--order", 2))
    np.testing.assert_array_equal(got.ravel(), isentropic.wasserstein_histogram(p, q, support=support, order=2))
    got = parsed(cli.output("wasserstein_histogram", "p.npy", "q.npy"))
    np.testing.assert_array_equal(got.ravel(), isentropic.wasserstein_histogram(p, q))
    cli.save("p.npy", (p * (1 + 3e-5)).astype(np.float32))  # the sum of a float32 file may be as far off
    cli.output("wasserstein_histogram", "p.npy", "q.npy")
    message = cli.error("wasserstein_histogram", "p.npy", "q.npy", "--sum_tolerance", 1e-7, "-o", "y.npy")
    assert message.startswith("p.npy: wasserstein_histogram: p must sum to 1 within 1e-07, got 1.00002")


def test_points(cli):
    x, y = RANDOM.normal(size=(7, 3)), RANDOM.normal(size=(5, 3))
    a, b = RANDOM.random(7), RANDOM.random(5)
    for name, array in {"x": x, "y": y, "a": a, "b": b}.items():
        cli.save(f"{name}.npy", array)
    assert float(cli.output("wasserstein", "x.npy", "y.npy")) == isentropic.wasserstein(x, y)
    weights = ("--a", "a.npy", "--b", "b.npy")
    assert float(cli.output("wasserstein", "x.npy", "y.npy", *weights, "--order", 2)) == isentropic.wasserstein(
        x, y, a=a, b=b, order=2
    )
    want = isentropic.sinkhorn_divergence(x, y, a=a, b=b, epsilon=0.3)
    assert float(cli.output("sinkhorn_divergence", "x.npy", "y.npy", *weights, "--epsilon", 0.3)) == want
    want = isentropic.unbalanced_sinkhorn_divergence(x, y, a=a, b=b, epsilon=0.3, penalty=2)
    options = ["--epsilon", 0.3, "--penalty", 2]
    assert float(cli.output("unbalanced_sinkhorn_divergence", "x.npy", "y.npy", *weights, *options)) == want
    want = isentropic.wasserstein(x, y, a=a, b=b, metric="cityblock")
    assert float(cli.output("wasserstein", "x.npy", "y.npy", *weights, "--metric", "cityblock")) == want
    cli.output("wasserstein", "x.npy", "y.npy", "-o", "w.npy")
    np.testing.assert_array_equal(cli.load("w.npy"), [isentropic.wasserstein(x, y)])


def test_refused(cli):
    cli.write("u.csv", "1,2,3\n4,5,6\n7,8,9\n")
    cli.write("v.csv", "1,2\n4,5\n")
    cli.write("p.csv", "0.5,0.5\n")
    end = ("-o", "y.csv")
    message = cli.error("wasserstein_1d", "u.csv", "v.csv", *end)
    assert message == "wasserstein_1d: u.csv has 3 rows and v.csv has 2; only a single row is compared with all"
    message = cli.error("wasserstein_histogram", "p.csv", "u.csv", *end)
    assert message == "wasserstein_histogram: p.csv has 2 columns and u.csv has 3"
    message = cli.error("wasserstein_1d", "u.csv", "p.csv", "--u_weights", "v.csv", *end)
    assert message == "wasserstein_1d: v.csv must be one row or one column of weights, got 2 x 2"
    message = cli.error("wasserstein_1d", "u.csv", "p.csv", "--u_weights", "p.csv", *end)
    assert message == "p.csv: wasserstein_1d: u_weights must have the shape of u, 1 x 3, got 1 x 2"
    message = cli.error("wasserstein_1d", "u.csv", "p.csv", "--order", 0.5, *end)
    assert message == "wasserstein_1d: --order must be at least 1 (inf is allowed), got 0.5"
    message = cli.error("wasserstein", "u.csv", "v.csv", *end)
    assert message == "v.csv: wasserstein: y must have points of as many coordinates as x, 3, got 2"
    assert cli.error("wasserstein_1d", "u.csv", *end).endswith(
        "V is required, as in isentropic wasserstein_1d before.csv after.csv --order 2"
    )
    assert "--epsilon is required" in cli.error("sinkhorn_divergence", "u.csv", "u.csv", *end)


def test_listed(cli):
    listed = cli.output("list")
    for name in ("transport", "wasserstein_1d", "wasserstein_histogram", "wasserstein", "sinkhorn_divergence"):
        assert f"\n  {name}\n" in listed
        assert f"Example: isentropic {name}" in cli.output(name, "--help")
