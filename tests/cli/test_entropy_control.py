"""`isentropic gamma` and `isentropic power_transform`: their results, kept columns and errors."""

import math

import numpy as np
import pytest
from conftest import parsed, softmax

X = np.random.default_rng(3).normal(size=(20, 33)) * 3
FILE = "name,a,b,c\ncat,2,0,1\ndog,0,0,0\neel,nan,1,2\nfly,1,1,-inf\ngnu,3,3,0\n"


def entropy(p):
    return -(p * np.log(p)).sum(axis=-1)


def table(text):
    header, *lines = [line.split(",") for line in text.splitlines()]
    return header, np.array([line[:2] for line in lines], float), [line[2] for line in lines]


@pytest.mark.parametrize("option", ["--entropy", "--perplexity"])
def test_gamma_gives_the_entropy(cli, option):
    cli.save("x.npy", X)
    value = 1.5 if option == "--entropy" else math.exp(1.5)
    header, numbers, status = table(cli.output("gamma", "x.npy", option, value))
    assert header == ["gamma", "entropy", "status"]
    assert status == ["ok"] * len(X)
    np.testing.assert_allclose(numbers[:, 1], 1.5, atol=2e-12)
    np.testing.assert_allclose(entropy(softmax(numbers[:, :1] * X)), 1.5, atol=1e-11)


def test_labels_and_statuses(cli):
    lines = cli.output("gamma", cli.write("x.csv", FILE), "--entropy", 0.5).splitlines()
    assert lines[0] == "name,gamma,entropy,status"
    assert [line.split(",")[0] for line in lines[1:]] == ["cat", "dog", "eel", "fly", "gnu"]
    assert [line.split(",")[3] for line in lines[1:]] == ["ok", "constant", "invalid", "constant", "clamped_low"]
    assert lines[3] == "eel,nan,nan,invalid"
    assert lines[5] == f"gnu,inf,{math.log(2)!r},clamped_low"
    assert cli.output("gamma", "x.csv", "--entropy", 0.5, "-o", "y.tsv") == ""
    assert (cli.directory / "y.tsv").read_text() == "\n".join(lines).replace(",", "\t") + "\n"
    # Labels at the end of the line, and without a header.
    out = cli.output("gamma", cli.write("y.csv", "1,2,cat\n3,7,dog\n"), "--perplexity", 2)
    assert out.splitlines()[0] == "gamma,entropy,label,status"
    assert out.splitlines()[1].split(",")[2:] == ["cat", "ok"]


def test_npy_has_the_numbers(cli):
    cli.save("x.npy", X.reshape(4, 5, 33).astype(np.float32))
    cli.output("gamma", "x.npy", "--entropy", 2, "-o", "y.npy")
    y = cli.load("y.npy")
    assert y.shape == (4, 5, 2) and y.dtype == np.float64
    np.testing.assert_array_equal(y.reshape(-1, 2), table(cli.output("gamma", "x.npy", "--entropy", 2))[1])
    assert "An .npy leaves the status out" in cli.output("gamma", "--help")


def test_options(cli):
    cli.save("x.npy", X)
    _, free, _ = table(cli.output("gamma", "x.npy", "--entropy", 2))
    for spelled in ("--max-gamma", "--max_gamma"):
        _, numbers, status = table(cli.output("gamma", "x.npy", "--entropy", 2, spelled, 0.01))
        assert status == ["clamped_low"] * len(X)
        np.testing.assert_allclose(numbers[:, 0], 0.01, rtol=1e-14)
    _, numbers, status = table(cli.output("gamma", "x.npy", "--entropy", 2, "--min-gamma", 50))
    assert status == ["clamped_high"] * len(X) and (numbers[:, 1] < 2).all()
    _, rough, _ = table(cli.output("gamma", "x.npy", "--entropy", 2, "--max-iterations", 1))
    assert (rough != free).any()
    assert cli.output("gamma_for_entropy", "x.npy", "--entropy", 2) == cli.output("gamma", "x.npy", "--entropy", 2)


def test_power_transform(cli):
    p = softmax(X)
    cli.save("p.npy", p)
    cli.output("power_transform", "p.npy", "--gamma", 0.25, "-o", "q.npy")
    np.testing.assert_allclose(cli.load("q.npy"), softmax(X / 4), rtol=1e-13)
    np.testing.assert_array_equal(parsed(cli.output("power_transform", "p.npy", "--gamma", 0.25)), cli.load("q.npy"))
    file = cli.write("p.csv", "name,a,b\ncat,1,3\ndog,1,0\neel,0,0\nfly,-1,2\n")
    lines = cli.output("power_transform", file, "--gamma", 2).splitlines()
    assert [float(cell) for cell in lines[1].split(",")[1:]] == pytest.approx([0.1, 0.9], rel=1e-15)
    assert lines[:1] + lines[2:] == ["name,a,b", "dog,1,0", "eel,nan,nan", "fly,nan,nan"]
    assert parsed(cli.output("power_transform", cli.write("q.csv", "4,4,1\n"), "--gamma", "inf")).tolist() == [[0.5, 0.5, 0]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gamma"], "gamma: exactly one of --entropy and --perplexity must be given"),
        (
            ["gamma", "--entropy", 1, "--perplexity", 2],
            "gamma: exactly one of --entropy and --perplexity must be given, got --entropy 1, --perplexity 2",
        ),
        (["gamma", "--entropy", -1], "gamma: --entropy must be at least 0 and finite, got -1"),
        (["gamma", "--perplexity", 0.5], "gamma: --perplexity must be at least 1 and finite, got 0.5"),
        (["gamma", "--entropy", "low"], "--entropy must be a number, got 'low'"),
        (["gamma", "--entropy"], "gamma: --entropy needs a value; see isentropic gamma --help"),
        (
            ["gamma", "--entropy", 1, "--min-gamma", 2, "--max-gamma", 1],
            "gamma: --min_gamma must be at most --max_gamma, got --min_gamma 2, --max_gamma 1",
        ),
        (["gamma", "--entropy", 1, "--max-iterations", 1.5], "--max_iterations must be a whole number, got '1.5'"),
        (
            ["gamma", "--entropy", 1, "--max-iterations", 0],
            "gamma: --max_iterations must be above 0 and at most 1000, got 0",
        ),
        (
            ["power_transform"],
            "--gamma is required, as in isentropic power_transform probabilities.csv --gamma 2 -o result.npy",
        ),
        (["power_transform", "--gamma", -1], "power_transform: --gamma must be at least 0 (inf is allowed), got -1"),
        (["power_transform", "--gamma", "nan"], "power_transform: --gamma must be at least 0 (inf is allowed), got nan"),
    ],
)
def test_refused(cli, arguments, message):
    name, *options = arguments
    assert cli.error(name, cli.write("x.csv", "1,2\n"), "-o", "y.csv", *options) == message


def test_bad_file(cli):
    assert (
        cli.error("gamma", cli.write("x.csv", "1,2\n3,a\n"), "--entropy", 1, "-o", "y.csv") == "x.csv:2:2: 'a' is not a number"
    )


def test_compare_at_an_entropy(cli):
    file = cli.write("x.csv", "2,0,1,-1\n")
    out = cli.output("compare", file, "--maps", "softmax", "--entropy", 0.7)
    assert "entropy_normalize is shown with entropy = 0.7." in out
    assert out.splitlines()[2].split() == ["class", "score", "softmax", "entropy_normalize"]
    assert next(line for line in out.splitlines() if line.startswith("entropy (nats)")).split()[3] == "0.7000"
    for maps in ([], ["--maps", "softmax,entropy_normalize,sparsemax"]):
        out = cli.output("compare", file, *maps, "--entropy", 0.25)
        assert out.count("entropy_normalize is shown with") == 1
        assert "entropy_normalize is shown with entropy = 0.25." in out
    assert "entropy_normalize is shown with entropy = 1." in cli.output("compare", file)
    message = "entropy_normalize: entropy must be at least 0 and finite, got -1"
    assert cli.error("compare", file, "--entropy", -1, "-o", "y.txt") == message
    assert cli.error("compare", file, "--entropy", "x") == "--entropy must be a number, got 'x'"
