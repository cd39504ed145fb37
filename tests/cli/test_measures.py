"""The measures as commands: Python's numbers, kept columns, and errors."""

import numpy as np
import pytest
from conftest import parsed

import isentropic

P = np.random.default_rng(5).dirichlet(np.ones(7), size=6)
Q = np.random.default_rng(6).dirichlet(np.ones(7), size=6)
ONE = ["entropy", "perplexity", "renyi_entropy", "tsallis_entropy"]
TWO = ["cross_entropy", "kl_divergence", "js_divergence", "js_distance"]
TABLE = ["joint_entropy", "conditional_entropy", "mutual_information"]


def alpha(name):
    return {"alpha": 2.5} if name in ("renyi_entropy", "tsallis_entropy") else {}


def options(params):
    return [word for name, value in params.items() for word in (f"--{name}", value)]


@pytest.mark.parametrize("name", [*ONE, *TWO])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_rows(cli, name, dtype):
    cli.save("p.npy", P.astype(dtype).reshape(2, 3, 7))
    cli.save("q.npy", Q.astype(dtype))
    files = ["p.npy", "q.npy"] if name in TWO else ["p.npy"]
    arrays = (P.astype(dtype), Q.astype(dtype)) if name in TWO else (P.astype(dtype),)
    for params in ({**alpha(name)}, {**alpha(name), "base": 2, "input": "scores"}):
        cli.output(name, *files, *options(params), "-o", "y.npy")
        want = getattr(isentropic, name)(*arrays, **params)
        found = cli.load("y.npy")
        assert found.dtype == np.result_type(dtype, np.float32)
        np.testing.assert_array_equal(found.astype(want.dtype), want.reshape(2, 3), strict=True)
    cli.output(name, *files, "--normalize", *options(alpha(name)), "-o", "y.npy")
    want = getattr(isentropic, name)(*arrays, normalize=True, **alpha(name))
    np.testing.assert_array_equal(cli.load("y.npy").ravel().astype(want.dtype), want)


@pytest.mark.parametrize("name", TABLE)
def test_tables(cli, name):
    tables = np.stack([P, Q]) / 6
    cli.save("p.npy", tables)
    cli.output(name, "p.npy", "-o", "y.npy")
    np.testing.assert_array_equal(cli.load("y.npy"), getattr(isentropic, name)(tables), strict=True)
    cli.save("one.npy", tables[0])
    assert float(cli.output(name, "one.npy")) == getattr(isentropic, name)(tables[0])
    if name == "conditional_entropy":
        assert float(cli.output(name, "one.npy", "--given", "y")) == isentropic.conditional_entropy(tables[0], given="y")


def test_one_q_for_all_labels_and_entries(cli):
    cli.write("p.csv", "name,a,b\nx,0.5,0.5\ny,0.9,0.1\n")
    cli.write("q.csv", "0.5,0.5\n")
    assert cli.output("kl_divergence", "p.csv", "q.csv").splitlines()[:2] == ["name,kl_divergence", "x,0"]
    assert cli.output("js_distance", "p.csv", "p.csv") == "name,js_distance\nx,0\ny,0\n"
    assert cli.output("entropy", "p.csv", "--base", 2).splitlines()[1] == "x,1"
    assert cli.output("self_information", "p.csv", "--base", 2).splitlines()[1] == "x,1,1"
    np.testing.assert_array_equal(parsed(cli.output("binary_entropy", "q.csv")), [[np.log(2), np.log(2)]])
    cli.save("p32.npy", np.array([[0.5, 0.5], [0.75, 0.25]], np.float32))
    got = parsed(cli.output("kl_divergence", "p32.npy", "q.csv"))
    assert got[1, 0] == isentropic.kl_divergence([0.75, 0.25], [0.5, 0.5])


def test_refused(cli):
    cli.write("bad.csv", "0.5,0.5\n0.5,0.6\n")
    cli.write("q.csv", "0.5,0.5\n")
    assert cli.error("entropy", "bad.csv") == (
        "bad.csv:2: entropy: p must sum to 1 within 1e-06, got 1.1; --normalize divides by the sum; --input scores takes scores"
    )
    cli.write("scores.csv", "0.5,0.5\n0.5,-0.7\n")
    assert cli.error("entropy", "scores.csv") == (
        "scores.csv:2:2: entropy: p must be at least 0 and finite, got -0.7; --input scores takes scores"
    )
    assert cli.error("mutual_information", "scores.csv") == (
        "scores.csv:2:2: mutual_information: pxy must be at least 0 and finite, got -0.7"
    )
    assert cli.error("joint_entropy", "bad.csv") == (
        "bad.csv: joint_entropy: pxy must sum to 1 within 1e-06, got 2.1; --normalize divides by the sum; "
        "--input scores takes scores"
    )
    assert cli.error("kl_divergence", "q.csv") == "kl_divergence: Q is missing; it is the file that P is compared with"
    cli.write("wide.csv", "0.5,0.25,0.25\n")
    assert cli.error("kl_divergence", "q.csv", "wide.csv") == "wide.csv: it has 3 columns, and q.csv has 2"
    assert "base must be above 1" in cli.error("entropy", "q.csv", "--base", 1)
    assert "is required" in cli.error("renyi_entropy", "q.csv")


def test_rows_of_q_that_have_no_p(cli):
    cli.write("p.csv", "0.5,0.5\n0.1,0.9\n")
    cli.write("q.csv", "0.5,0.5\n" * 3)
    assert cli.error("kl_divergence", "p.csv", "q.csv", "-o", "d.csv") == (
        "q.csv: it has 3 rows, and p.csv has 2; only a single row is compared with all"
    )


def test_options_are_those_of_the_first_file(cli):
    """--labels only applies to FILE, --key to all files of its format."""
    cli.write("p.csv", "1,0.5,0.5\n2,0.2,0.8\n")
    cli.write("q.csv", "0.5,0.5\n0.1,0.9\n")
    assert parsed(cli.output("wasserstein_1d", "p.csv", "q.csv", "--labels", 1)) == pytest.approx(np.array([[1, 0], [2, 0.1]]))
    p, q = np.array([[0.5, 0.5], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.1, 0.9]])
    np.savez(cli.directory / "p.npz", a=p, b=p[:1])
    np.savez(cli.directory / "q.npz", a=q, b=p)
    with_csv = cli.output("kl_divergence", "p.npz", "q.csv", "--key", "a")
    assert cli.output("kl_divergence", "p.npz", "q.npz", "--key", "a") == with_csv
