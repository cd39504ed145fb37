"""The maps and logarithms as commands: parameters, threads and targets, errors, and their list."""

import json
import math

import numpy as np
import pytest
from conftest import parsed, softmax

import isentropic
from isentropic import _core

X = np.random.default_rng(3).normal(size=(40, 33)) * 3
MAPS = ["softmax", "sparsemax"]
OPERATIONS = [*MAPS, "log_softmax", "logsumexp"]


@pytest.mark.parametrize("temperature", [0.3, 1, 7])
def test_definitions(cli, temperature):
    cli.save("x.npy", X)
    results = {}
    for name in OPERATIONS:
        cli.output(name, "x.npy", "--temperature", temperature, "-o", "y.npy")
        results[name] = cli.load("y.npy")
    z = X / temperature
    top = z.max(axis=1, keepdims=True)
    normalizer = top + np.log(np.exp(z - top).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(results["softmax"], softmax(z), rtol=1e-12)
    np.testing.assert_allclose(results["log_softmax"], z - normalizer, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(results["logsumexp"], temperature * normalizer[:, 0], rtol=1e-12)
    p = results["sparsemax"]
    tau = ((z * (p > 0)).sum(axis=1) - 1) / (p > 0).sum(axis=1)
    np.testing.assert_allclose(p, np.maximum(z - tau[:, None], 0), atol=1e-13)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-13)


def test_soft_top_k(cli):
    cli.save("x.npy", X)
    cli.output("soft_top_k", "x.npy", "--k", 2.5, "--temperature", 0.7, "-o", "y.npy")
    y = cli.load("y.npy")
    np.testing.assert_array_equal(y, isentropic.soft_top_k(X, k=2.5, temperature=0.7))
    np.testing.assert_allclose(y.sum(axis=1), 2.5, rtol=1e-13)
    assert "soft_top_k: --k must be above 0 and finite, got 0" in cli.error("soft_top_k", "x.npy", "--k", 0)


def test_input_says_what_rows_are(cli):
    q = softmax(X)
    cli.save("x.npy", X)
    cli.save("q.npy", q)
    cli.save("log_q.npy", np.log(q))
    results = []
    for file, kind in ("x.npy", "scores"), ("q.npy", "probs"), ("log_q.npy", "log_probs"):
        cli.output("entropy_normalize", file, "--entropy", 2, "--input", kind, "-o", "y.npy")
        results.append(cli.load("y.npy"))
    np.testing.assert_allclose(-(results[1] * np.log(results[1])).sum(axis=1), 2, rtol=1e-11)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-10, atol=1e-13)


def test_formats_agree_to_the_bit(cli):
    cli.save("x.npy", X)
    cli.write("x.csv", "\n".join(",".join(map(repr, row)) for row in X.tolist()))
    for name in OPERATIONS:
        cli.output(name, "x.npy", "-o", "y.npy")
        y = cli.load("y.npy").reshape(len(X), -1)
        assert np.array_equal(parsed(cli.output(name, "x.csv")), y)
        assert np.array_equal(parsed(cli.output(name, "x.npy")), y)


def test_extreme_scores(cli):
    file = cli.write("x.csv", "1e300,-1e300\n1e6,1000001\n-1e300,-1e300\n")
    out = parsed(cli.output("softmax", file))
    np.testing.assert_allclose(out, [[1, 0], [1 / (1 + math.e), math.e / (1 + math.e)], [0.5, 0.5]], rtol=1e-14)
    assert parsed(cli.output("sparsemax", file)).tolist() == [[1, 0], [0, 1], [0.5, 0.5]]


def test_special_scores(cli):
    file = cli.write("x.csv", "-inf,0,0\ninf,0,inf\nnan,0,0\n-inf,-inf,-inf\n")
    for name in MAPS:
        assert cli.output(name, file) == "0,0.5,0.5\n0.5,0,0.5\nnan,nan,nan\nnan,nan,nan\n"
    assert cli.output("logsumexp", file).splitlines()[1:] == ["inf", "nan", "-inf"]


def test_names_of_logsumexp(cli):
    file = cli.write("x.csv", "a,name,b\n3,cat,-inf\n")
    assert cli.output("logsumexp", file) == "logsumexp,name\n3,cat\n"
    assert cli.output("logsumexp", cli.write("y.csv", "3,-inf,cat\n7,7,dog\n")).startswith("3,cat\n")


def test_threads_and_targets(cli):
    cli.save("x.npy", np.random.default_rng(4).normal(size=(3000, 64)))
    expected = cli.output("softmax", "x.npy", "--threads", 1)
    for threads in [0, 2, 3, 16]:
        assert cli.output("softmax", "x.npy", "--threads", threads) == expected
        assert cli.output("--threads", threads, "softmax", "x.npy") == expected
        cli.output("entropy", "x.npy", "--input", "scores", "--threads", threads)  # without a word of warning
    message = cli.error("softmax", "x.npy", "--simd", "ABACUS")
    assert message.startswith("--simd must be ") and message.endswith(", got 'ABACUS'")
    targets = message.removeprefix("--simd must be ").removesuffix(", got 'ABACUS'").replace(" or ", ", ").split(", ")
    assert set(targets) == ({"SSE4"} if cli.sanitized else set(isentropic.simd_targets()))
    for target in targets:
        out = cli.output("softmax", "x.npy", "--simd", target, "--quiet")
        np.testing.assert_allclose(parsed(out), parsed(expected), rtol=1e-13)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_parameter_out_of_range(cli, name, value):
    message = cli.error(name, cli.write("x.csv", "1,2\n"), "--temperature", value, "-o", "y.csv")
    assert "temperature" in message and value in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which command? See isentropic --help"),
        (["--quiet"], "which command? See isentropic --help"),
        (["sparsmax", "x.csv"], "there is no command 'sparsmax'; did you mean sparsemax? See isentropic --help"),
        (
            ["softmax", "x.csv", "--temperatur", "2"],
            "softmax: unexpected argument '--temperatur'; did you mean --temperature? See isentropic softmax --help",
        ),
        (
            ["top-p", "x.csv"],
            "there is no command 'top-p'; did you mean top_p_softmax or top_p_softmax_loss? See isentropic --help",
        ),
        (
            ["topk", "x.csv", "--k", "2"],
            "there is no command 'topk'; did you mean top_k_softmax or top_k_softmax_loss? See isentropic --help",
        ),
        (["zebra"], "there is no command 'zebra'; see isentropic --help"),
        (["optimal_transport"], "there is no command 'optimal_transport'; it is isentropic transport"),
        (["sinkhorn", "x.csv"], "there is no command 'sinkhorn'; it is isentropic transport --epsilon"),
        (["gumbel_softmax"], "there is no command 'gumbel_softmax', only a function in C++ and Python"),
        (["softmax", "-x.csv"], "softmax: unexpected argument '-x.csv'; a file of that name is ./-x.csv"),
        (["x.csv"], "there is no command 'x.csv'; the command comes before the file, as in isentropic softmax x.csv"),
        (
            ["sample", "x.csv", "--seed", "1", "--temperature", "2"],
            "sample: unexpected argument '--temperature'; temperature is a step: --steps temperature=NUMBER; "
            "see isentropic sample --help",
        ),
        (["x.csv", "softmax"], "the command comes before the file: isentropic softmax x.csv"),
        (["compare", "x.csv", "y.csv"], "compare: unexpected argument 'y.csv'; see isentropic compare --help"),
        (["softmax", "x.csv", "--temperature", "warm"], "--temperature must be a number, got 'warm'"),
        (["softmax", "x.csv", "--threads", "-2"], "--threads must be a whole number of at least 0, got '-2'"),
        (
            ["softmax", "x.csv", "--threads", "99999999999999999999"],
            "--threads is too large: it must be at most 18446744073709551615, got '99999999999999999999'",
        ),
        (
            ["top_k_softmax", "x.csv", "--k", "99999999999999999999"],
            "--k is too large: it must be at most 9223372036854775807, got '99999999999999999999'",
        ),
        (
            ["top_k_softmax", "x.csv", "--k", "-99999999999999999999"],
            "--k is too small: it must be at least -9223372036854775808, got '-99999999999999999999'",
        ),
        (["top_k_softmax", "x.csv", "--k", "99999999999999999999x"], "--k must be a whole number, got '99999999999999999999x'"),
        *(
            (["softmax", "x.csv", "--precision", text], f"--precision must be from 1 to 17, got {text}")
            for text in ("x", "0", "18", "-1", "3.5", "99999999999999999999")
        ),
        (["softmax", "x.csv", "--threads", "1.5"], "--threads must be a whole number of at least 0, got '1.5'"),
        (
            ["softmax", "x.csv", "--format-in", "xls"],
            "softmax: --format-in must be csv, tsv, npy, npz, jsonl, safetensors or logprobs, got 'xls'",
        ),
        (["softmax", "x.csv", "--temperature"], "softmax: --temperature needs a value; see isentropic softmax --help"),
        (["softmax", "x.csv", "--threads"], "softmax: --threads needs a value; see isentropic softmax --help"),
        (["softmax", "x.csv", "-o"], "softmax: --output needs a value; see isentropic softmax --help"),
        (["--hepl"], "unexpected argument '--hepl'; see isentropic --help"),
        (["gamma", "x.csv"], "gamma: exactly one of --entropy and --perplexity must be given"),
        (
            ["sample", "x.csv"],
            "--seed is required, as in isentropic sample scores.csv --steps temperature=0.8,top_p=0.95 --seed 1",
        ),
        (["softmax", "x.csv", "--quiet=3"], "softmax: --quiet takes no value; see isentropic softmax --help"),
        (
            ["sample", "x.csv", "--seed", "1", "--probs=2"],
            "sample: --probs takes no value; see isentropic sample --help",
        ),
        (["--simd"], "--simd needs a value; see isentropic --help"),
        (
            ["softmax", "x.csv", "--temperature", "1", "--temperature", "2"],
            "softmax: --temperature is given more than once; see isentropic softmax --help",
        ),
        (["softmax", "x.csv", "--quiet=abc"], "softmax: --quiet takes no value; see isentropic softmax --help"),
        (["softmax", "x.csv", "-o", ""], "softmax: -o must be the name of a file, or - for standard output, got ''"),
        (["compare", "x.csv", "-o", ""], "compare: -o must be the name of a file, or - for standard output, got ''"),
        (["softmax", ""], "softmax: FILE must be the name of a file, or - for standard input, got ''"),
    ],
)
def test_usage(cli, arguments, message):
    cli.write("x.csv", "1,2\n")
    assert cli.error(*arguments) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["top_k_softmax"], "--k is required, as in isentropic top_k_softmax scores.csv --k 3 -o result.npy"),
        (["top_k_softmax", "--k"], "top_k_softmax: --k needs a value; see isentropic top_k_softmax --help"),
        (["top_k_softmax", "--k", "2.5"], "--k must be a whole number, got '2.5'"),
        (["top_k_softmax", "--k", "0"], "top_k_softmax: --k must be above 0, got 0"),
        (["min_p_softmax"], "--p is required, as in isentropic min_p_softmax scores.csv --p 0.1 -o result.npy"),
        (["min_p_softmax", "--p", "1.5"], "min_p_softmax: --p must be above 0 and at most 1, got 1.5"),
        (["taylor_softmax", "--order", "3"], "taylor_softmax: --order must be *, got 3"),
    ],
)
def test_parameters_without_a_default(cli, arguments, message):
    name, *parameters = arguments
    found = cli.error(name, cli.write("x.csv", "1,2\n"), "-o", "y.csv", *parameters)
    start, _, end = message.partition("*")
    assert found == message if "*" not in message else found.startswith(start) and found.endswith(end)


def test_results_with_parameters(cli):
    file = cli.write("x.csv", "name,a,b,c\ncat,2,0,2\ndog,0,-inf,-1\n")
    assert cli.output("top_k_softmax", file, "--k", 2).splitlines()[:2] == ["name,a,b,c", "cat,0.5,0,0.5"]
    assert cli.output("top_k_softmax", file, "--k", 1).splitlines()[1:] == ["cat,1,0,0", "dog,1,0,0"]
    assert cli.output("min_p_softmax", file, "--p", 0.5).splitlines()[1:] == ["cat,0.5,0,0.5", "dog,1,0,0"]
    out = parsed(cli.output("taylor_softmax", cli.write("y.csv", "0,-1\n"), "--order", 2))
    np.testing.assert_allclose(out, [[1 / 1.5, 0.5 / 1.5]], rtol=1e-14)


def test_help_and_version(cli):
    assert cli.output("--version").startswith("isentropic ")
    for command in ["list", "compare", *OPERATIONS]:
        assert command in cli.output("--help")
        assert f"Example: isentropic {command}" in cli.output(command, "--help")
        assert cli.output("help", command) == cli.output(command, "--help")
    assert "--temperature" in cli.output("softmax", "--help")
    assert cli.output("help") == cli.output("--help")
    assert cli.output("--quiet", "help", "softmax") == cli.output("softmax", "--help")
    assert "leave out the header and labels" in " ".join(cli.output("softmax", "--help").split())
    assert "Points: .csv" in cli.output("wasserstein", "--help") and "Probabilities: .csv" in cli.output("entropy", "--help")


def test_help_fits_the_terminal(cli):
    """Only examples, which are to be copied, may be longer."""
    commands = cli.output("completion", "bash").split("commands='")[1].split("'")[0].split()
    for words in [["list"], ["--help"], *([command, "--help"] for command in commands)]:
        wide = [line for line in cli.output(*words).splitlines() if len(line) > 80]
        assert [line for line in wide if not line.startswith("Example: ")] == [], words


def test_examples_of_the_help(cli):
    """They run with files of the names that they give."""
    scores = "name,a,b,c,d\nx,0.5,0.25,-0.5,1\ny,-1,0.5,0.75,0.25\n"
    masses = "0.5,0.25,0.125,0.125\n0.25,0.25,0.25,0.25\n"
    cli.write("scores.csv", scores + scores.partition("\n")[2])
    cli.write("teacher_scores.csv", masses * 2)
    cli.write("labels.csv", "0,1,0,1\n" * 4)
    cli.write("labelled_scores.csv", scores.replace("x,", "d,").replace("y,", "c,") + "b,1,0.5,0.5,0.5\n")
    cli.write("labelled_probabilities.csv", "name,a,b,c,d\na,0.5,0.25,0.25,0\nb,0.25,0.5,0.25,0\n")
    for name in ("probabilities.csv", "p.csv", "q.csv", "x.csv", "y.csv", "before.csv", "after.csv"):
        cli.write(name, masses)
    cli.write("a.csv", "0.5,0.5\n")
    cli.write("b.csv", "0.25,0.75\n")
    cli.write("ages.csv", "1,2,3,5\n")
    cli.write("table.csv", "0.25,0.25\n0.5,0\n")
    cli.write("texts.txt", "0 2 0\n\n1\n3\n")
    cli.write("counts.csv", "2,0,3\n1,1,1\n")
    cli.write("count_table.csv", "2,0,3\n1,1,1\n")
    cli.write("cost.csv", "".join(",".join(f"{abs(i - j)}.0" for j in range(4)) + "\n" for i in range(4)))
    cli.save("cost.npy", np.array([[0.0, 1.0], [1.0, 0.0]]))
    cli.write(
        "reply.json", '[{"token": "a", "top_logprobs": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1}]}]'
    )
    for command in cli.output("completion", "bash").split("commands='")[1].split("'")[0].split():
        examples = [line for line in cli.output(command, "--help").splitlines() if line.startswith("Example: isentropic ")]
        assert examples or command == "help", command
        for example in examples:
            words = example.removeprefix("Example: isentropic ").partition(" |")[0].partition(" >")[0]
            if command == "describe":
                words = words.replace("--keep id", "--keep name")
            if command != "explore":  # which stays open
                cli.output(*words.split())


def test_a_file_that_may_not_be_left_out(cli):
    for name, file in (("jsd_loss", "TARGET"), ("multilabel_softmax_loss", "TARGET"), ("kl_divergence", "Q")):
        assert f"Usage: isentropic {name} [OPTIONS] [FILE] {file}\n" in cli.output(name, "--help")
        assert cli.error(name, cli.write("x.csv", "1\n")).startswith(f"{name}: {file} is missing; ")
    assert "[FILE] [TARGET]\n" in cli.output("softmax_loss", "--help")


def test_list(cli):
    text, markdown = cli.output("list"), cli.output("list", "--markdown")
    for name in OPERATIONS:
        assert f"\n  {name}\n" in text
        assert f"\n### `{name}`\n" in markdown
    for name in ("normalize_joint", "entropy_invariant_scale", "expected_calibration_error"):  # no commands, but operations
        assert f"\n  {name}\n" in text
        assert f"\n### `{name}`\n" in markdown
    assert "--joint" not in text and "--temperature" in text
    assert "| `temperature` | 1 | above 0 and finite |" in markdown
    assert markdown.startswith("# Operations\n")


def test_list_as_json_is_what_python_knows(cli):
    known = {
        one["name"]: one
        for family in (
            _core.operations(),
            _core.control_operations(),
            _core.measure_operations(),
            _core.count_operations(),
            _core.losses(),
            _core.sparse_losses(),
            _core.sampling_operations(),
            _core.attention_operations(),
            _core.transport_operations(),
            _core.table_maps(),
            _core.calibration_operations(),
        )
        for one in family
    }
    listed = json.loads(cli.output("list", "--json"))
    found = {one["name"]: one for one in listed if one["family"] != "step"}
    assert found.keys() == known.keys() and len(listed) > len(found) > 50
    same = ("family", "formula", "symmetric", "of_result", "not_in")
    for name, one in found.items():
        assert {key: one[key] for key in same} == {key: known[name][key] for key in same}
        assert [param["name"] for param in one["parameters"]] == [param["name"] for param in known[name]["params"]]
        assert (one["command"] is None) == ("command_line" in one["not_in"])
        if one["command"] is not None:
            assert cli.output(*one["command"].split()[:1], "--help")
    assert "--markdown excludes --json" in cli.error("list", "--json", "--markdown")
