"""`isentropic sample`: draws, kept columns and errors."""

import json
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


@pytest.mark.parametrize("option", ["--count", "--stream", "--position"])
def test_probs_takes_no_option_of_draws(cli, option):
    cli.save("x.npy", X)
    message = cli.error("sample", "x.npy", "--probs", option, 2)
    assert message == f"{option} excludes --probs; see isentropic sample --help"


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


TEXTS = [[3, 1, 3], [], [0, 1, 2, 0, 1], [39]]
TEXT_CHAIN = [("penalties", {"repetition": 1.3, "presence": 0.5, "frequency": 0.25, "last": -1}), ("dry", {"breakers": [7, 9]})]
TEXT_STEPS = "penalties=1.3:0.5:0.25:-1,dry=:::7+9:"


def padded(texts):
    return np.array([text + [-1] * (5 - len(text)) for text in texts])


def given_texts(cli, form):
    """The option and the file of scores, with the texts in it or beside it."""
    x = X[:4]
    lines = {
        "txt": "\n".join(" ".join(map(str, text)) for text in TEXTS) + "\n",
        "csv": "\n".join(",".join(map(str, text)) for text in TEXTS),
        "jsonl": "\n".join(map(str, TEXTS)) + "\n",
    }
    if form in lines:
        cli.save("x.npy", x)
        return "x.npy", cli.write(f"texts.{form}", lines[form])
    if form == "npy":
        cli.save("x.npy", x)
        return "x.npy", cli.save("texts.npy", padded(TEXTS))
    rows = [[" ".join(map(str, text)), *map(repr, row)] for text, row in zip(TEXTS, x.tolist(), strict=True)]
    if form == "column":
        header = ",".join(["context", *(f"s{i}" for i in range(40))])
        return cli.write("x.csv", "\n".join([header, *(",".join(row) for row in rows)]) + "\n"), "context"
    objects = [{"context": text, "scores": row} for text, row in zip(TEXTS, x.tolist(), strict=True)]
    return cli.write("x.jsonl", "".join(f"{o}\n".replace("'", '"') for o in objects)), "context"


@pytest.mark.parametrize("form", ["txt", "csv", "jsonl", "npy", "column", "field"])
def test_texts(cli, form):
    file, texts = given_texts(cli, form)
    sampler = isentropic.Sampler(TEXT_CHAIN, seed=3)
    options = [file, "--steps", TEXT_STEPS, "--tokens", texts, "--seed", 3, "--threads", 2]
    cli.output("sample", *options, "-o", "d.npy")
    np.testing.assert_array_equal(cli.load("d.npy"), sampler.sample(X[:4], tokens=padded(TEXTS)))
    cli.output("sample", *options, "--probs", "-o", "p.npy")
    np.testing.assert_array_equal(cli.load("p.npy"), sampler.probs(X[:4], tokens=padded(TEXTS)))
    cli.output("sample", *options, "--rows", "2:4", "--probs", "-o", "p.npy")
    np.testing.assert_array_equal(cli.load("p.npy"), sampler.probs(X[2:4], tokens=padded(TEXTS[2:])))
    assert not np.array_equal(cli.load("p.npy"), isentropic.softmax(X[2:4]))


def test_a_long_file_of_texts(cli):
    """Rows in parts have their own texts."""
    rng = np.random.default_rng(8)
    x, texts = rng.normal(size=(20_000, 12)), rng.integers(-1, 12, size=(20_000, 4))
    cli.save("x.npy", x)
    cli.write("t.txt", "".join(" ".join(map(str, text)) + "\n" for text in texts.tolist()))
    steps = "penalties=:1:0:-1,top_k=3"
    cli.output("sample", "x.npy", "--steps", steps, "--tokens", "t.txt", "--seed", 1, "-o", "d.npy")
    sampler = isentropic.Sampler([("penalties", {"presence": 1, "last": -1}), ("top_k", 3)], seed=1)
    np.testing.assert_array_equal(cli.load("d.npy"), sampler.sample(x, tokens=texts))


WHOLE = "--tokens takes whole numbers, a line or cell of them for each row"


@pytest.mark.parametrize(
    ("steps", "tokens", "message"),
    [
        ("dry=::::", None, "sample: the step dry reads the text so far: --tokens names a file or a column with its tokens"),
        ("top_k=2", "t.txt", "sample: --tokens: no step reads the text so far; penalties and dry do"),
        ("dry=::::", "", "sample: --tokens must be the name of a file or of a column, got ''"),
        ("dry=::::", "no.txt", "no.txt: No such file or directory"),
        ("dry=::::", "t.txt", "t.txt: it has 2 texts, fewer than x.csv has rows"),
        ("dry=::::", "long.txt", "long.txt: it has 4 texts, and x.csv has 3 rows"),
        ("dry=::::", "word.txt", "word.txt:2: 'b' is not a token number; " + WHOLE),
        ("dry=::::", "large.txt", "large.txt: text 1: there is no token 2: the rows have 2 scores, of the tokens from 0 on"),
        ("dry=::::", "half.npy", "half.npy: 0.5 is not a token number at entry 0 in row 1"),
        ("dry=::::", "nothing", "x.csv: --tokens: there is no column called 'nothing'"),
        ("dry=::::", "text", "x.csv:3: 'two' is not a token number; " + WHOLE),
    ],
)
def test_refused_texts(cli, steps, tokens, message):
    cli.write("x.csv", f"text,a,b\n1,0.5,1.5\n{'two' if tokens == 'text' else 1},0.5,1.5\n1,0.5,2.5\n")
    given = ["--exclude", "text"] if tokens != "text" and tokens != "nothing" else []
    cli.write("t.txt", "1\n0\n")
    cli.write("long.txt", "1\n0\n\n1\n")
    cli.write("word.txt", "1\nb\n1\n")
    cli.write("large.txt", "1\n2\n0\n")
    cli.save("half.npy", np.array([[0], [0.5], [1]]))
    given += [] if tokens is None else ["--tokens", tokens]
    assert cli.error("sample", "x.csv", "--steps", steps, "--seed", 1, *given, "-o", "out.csv") == message


def test_arrays_have_no_columns_of_texts(cli):
    cli.save("x.npy", X)
    message = cli.error("sample", "x.npy", "--steps", TEXT_STEPS, "--seed", 1, "--tokens", "context")
    assert message.startswith("sample: --tokens context: x.npy has no columns; --tokens names a file, such as tokens.txt")


@pytest.mark.parametrize("name", ["topnsigma", "top_nsigma", "top-n-sigma", "top_n_sigm"])
def test_a_misspelt_step(cli, name):
    message = cli.error("sample", cli.write("x.csv", "1,2\n"), "--seed", 1, "--steps", f"{name}=1")
    steps = [one["name"] for one in json.loads(cli.output("list", "--json")) if one["family"] == "step"]
    assert message == f"sample: --steps must be one of {', '.join(steps)}, got '{name}': did you mean top_n_sigma?"


def test_probabilities_that_depend_on_the_draw(cli):
    cli.write("x.csv", "1,2,3\n")
    for step in ("xtc=0.5:0.1", "mirostat=2:0.1"):
        message = cli.error("sample", "x.csv", "--steps", step, "--probs")
        assert message == f"sample: --probs: what {step.split('=')[0]} leaves depends on the draw; leave the step out"
