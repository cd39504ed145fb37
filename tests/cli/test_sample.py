"""`isentropic sample`: draws, kept columns and errors."""

import pathlib

import numpy as np
import pytest
from conftest import parsed

import isentropic

X = np.random.default_rng(4).normal(size=(30, 40)) * 2
STEPS = "temperature=0.8,top_k=20,top_p=0.95,min_p=0.01,typical_p=0.99,entropy=2,entropy_clip=1:3"
CHAIN = [
    ("temperature", 0.8),
    ("top_k", 20),
    ("top_p", 0.95),
    ("min_p", 0.01),
    ("typical_p", 0.99),
    ("entropy", 2),
    ("entropy_clip", (1, 3)),
]


def test_draws_are_those_of_python(cli):
    cli.save("x.npy", X)
    cli.save("x32.npy", X.astype(np.float32))
    for name, x in ("x.npy", X), ("x32.npy", X.astype(np.float32)):
        got = parsed(cli.output("sample", name, "--steps", STEPS, "--seed", 7, "--count", 5))
        np.testing.assert_array_equal(got, isentropic.Sampler(CHAIN, seed=7).sample(x, size=5))
        got = parsed(cli.output("sample", name, "--seed", 7, "--stream", 3, "--position", 11))
        np.testing.assert_array_equal(got[:, 0], isentropic.sample(x, seed=7, stream=3, position=11))
        got = parsed(cli.output("sample", name, "--steps", STEPS, "--seed", 0, "--probs"))
        np.testing.assert_array_equal(got.astype(x.dtype), isentropic.Sampler(CHAIN).probs(x))
    one_sided = parsed(cli.output("sample", "x.npy", "--steps", "entropy_clip=:1.5", "--seed", 1, "--probs"))
    np.testing.assert_array_equal(one_sided, isentropic.Sampler([("entropy_clip", (None, 1.5))]).probs(X))


def test_files(cli):
    cli.save("x.npy", X.reshape(5, 6, 40))
    cli.output("sample", "x.npy", "--seed", 1, "-o", "y.npy")
    cli.output("sample", "x.npy", "--seed", 1, "--count", 3, "-o", "z.npy")
    assert cli.load("y.npy").shape == (5, 6) and cli.load("z.npy").shape == (5, 6, 3)
    np.testing.assert_array_equal(cli.load("y.npy"), cli.load("z.npy")[..., 0])
    file = cli.write("x.csv", "name,a,b,c\ncat,-inf,0,-inf\neel,nan,1,2\nfly,-inf,-inf,-inf\nowl,0,inf,0\n")
    lines = cli.output("sample", file, "--seed", 1, "--count", 2).splitlines()
    assert lines == ["name,draw1,draw2", "cat,1,1", "eel,-1,-1", "fly,-1,-1", "owl,1,1"]
    assert cli.output("sample", "-", "--seed", 5, stdin=b"0,-inf\n") == "0\n"


def test_scores_of_a_language_model(cli):
    file = pathlib.Path(__file__).parents[2] / "examples/data/language_scores.csv"
    lines = cli.output("sample", file, "--steps", "entropy=2", "--seed", 1, "--probs").splitlines()
    assert lines[0].startswith("context,the,and,") and lines[0].endswith(",other") and len(lines) == 65
    p = np.array([[float(cell) for cell in line.split(",")[1:]] for line in lines[1:]])
    np.testing.assert_allclose(-(p * np.log(np.where(p > 0, p, 1))).sum(axis=1), 2, atol=1e-11)


def test_threads_and_targets_do_not_matter(cli):
    cli.save("x.npy", X.astype(np.float32))
    want = cli.output("sample", "x.npy", "--steps", STEPS, "--seed", 3, "--count", 4)
    assert cli.output("sample", "x.npy", "--steps", STEPS, "--seed", 3, "--count", 4, "--threads", 3) == want
    for target in ["SSE4"] if cli.sanitized else isentropic.simd_targets():
        assert cli.output("sample", "x.npy", "--steps", STEPS, "--seed", 3, "--count", 4, "--simd", target) == want


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", 1, "--steps", "top_k=0"], "top_k: k must be above 0, got 0"),
        (["--seed", 1, "--steps", "top_k"], "sample: --steps: top_k needs a value, top_k=VALUE"),
        (["--seed", 1, "--steps", "top_k=many"], "sample: --steps: k of top_k must be a whole number, got 'many'"),
        (["--seed", 1, "--steps", "top_k="], "sample: --steps: k of top_k must be a whole number, got ''"),
        (
            ["--seed", 1, "--steps", "entropy_clip=1"],
            "sample: --steps: entropy_clip takes 2 values, entropy_clip=min_entropy:max_entropy, got 1",
        ),
        (["--seed", 1, "--steps", "top_p=0.5:3"], "sample: --steps: top_p takes 1 value, top_p=VALUE, got 2"),
        (
            ["--seed", 1, "--steps", "topk=3"],
            "sample: --steps must be one of temperature, top_k, top_p, min_p, typical_p, entropy, entropy_clip, epsilon, eta, "
            "top_n_sigma, top_h, p_less, xtc, penalties, dry, mirostat, got 'topk': did you mean top_k?",
        ),
        (["--seed", 1, "--steps", "p_less=1"], "sample: --steps: p_less takes no value"),
        (["--seed", 1, "--steps", "dry=::0.5::"], "sample: --steps: allowed_length of dry must be a whole number, got '0.5'"),
        (["--seed", 1, "--steps", "dry=:::1+a:"], "sample: --steps: breakers of dry must be a whole number, got 'a'"),
        (["--seed", -1], "--seed must be a whole number of at least 0, got '-1'"),
        (["--seed", 1, "--count", 0], "--count must be a whole number of at least 1, got '0'"),
        (["--seed", 1, "--count", -1], "--count must be a whole number of at least 1, got '-1'"),
        (
            ["--seed", 1, "--position", 2**64 - 2, "--count", 3],
            "sample: --position must be at most 18446744073709551613 with --count 3, got 18446744073709551614",
        ),
        *(
            (
                ["--seed", 1, "--steps", f"temperature={text}"],
                "sample: --steps: temperature of temperature is out of range: its size must be 0 or from 5e-324 to 1.8e308, "
                f"got '{text}'",
            )
            for text in ("1e400", "-1e400", "1e-400")
        ),
    ],
)
def test_refusals(cli, arguments, message):
    cli.save("x.npy", X)
    assert cli.error("sample", "x.npy", *arguments) == message


def test_the_last_position(cli):
    cli.save("x.npy", X)
    for count in (1, 3):
        first = 2**64 - count
        got = parsed(cli.output("sample", "x.npy", "--seed", 1, "--position", first, "--count", count))
        np.testing.assert_array_equal(got, isentropic.sample(X, seed=1, position=first, size=count))


def test_seed_is_required(cli):
    cli.save("x.npy", X)
    assert "--seed is required" in cli.error("sample", "x.npy")
    assert cli.output("sample", "x.npy", "--probs") == cli.output("sample", "x.npy", "--probs", "--seed", 3)
    help_text = cli.output("sample", "--help")
    assert "isentropic sample scores.csv --steps" in help_text
    listed = cli.output("list")
    assert "typical_p" in listed and "gumbel_softmax" in listed


def test_more_draws_than_memory(cli):
    cli.write("x.csv", "1,2\n" * 4)
    assert "memory" in cli.error("sample", "x.csv", "--seed", 1, "--count", 2**62 + 1, status=1)
