"""Which options of FILE apply to a second file, and that errors about it advise no others."""

import json

import numpy as np
import pytest
from conftest import parsed

P = "id,a,b\n1,0.5,0.5\n2,0.2,0.8\n"
SAME = ["kl_divergence", "distillation_loss", "multilabel_softmax_loss", "wasserstein_1d", "wasserstein_histogram"]
ADVICE = ("--labels", "--exclude", "--columns", "--format-in", "--key", "--missing", "--delimiter")


def columns(command):
    """The last column of a command's result."""
    return [line.split(",")[-1] for line in command.splitlines()]


@pytest.mark.parametrize("command", SAME)
@pytest.mark.parametrize(
    "options",
    [["--labels", "id"], ["--labels", 1], ["--exclude", "id"], ["--exclude", 1], ["--columns", "a,b"], ["--columns", "2-3"]],
)
def test_columns_are_chosen_in_both_files(cli, command, options):
    q = "id,a,b\n1,0,1\n2,1,0\n"
    cli.write("p.csv", P)
    cli.write("q.csv", q)
    cli.write("bare_p.csv", P.replace("id,", "").replace("1,0.5", "0.5").replace("2,0.2", "0.2"))
    cli.write("bare_q.csv", "a,b\n0,1\n1,0\n")
    want = columns(cli.output(command, "bare_p.csv", "bare_q.csv"))
    assert columns(cli.output(command, "p.csv", "q.csv", *options)) == want
    # A file without these columns is taken as it is, with or without a header.
    for name in "bare_q.csv", cli.write("numbers.csv", "0.0,1\n1,0\n"):
        assert columns(cli.output(command, "p.csv", name, *options)) == want


def test_labels_of_both_files_are_compared(cli):
    cli.write("p.csv", P)
    cli.write("q.csv", "id,a,b\n2,0.5,0.5\n1,0.2,0.8\n")
    message = cli.error("kl_divergence", "p.csv", "q.csv", "--labels", "id")
    assert message == "q.csv:2:1: the label is '2', and p.csv:2 has '1'; rows are compared in their order"


def test_what_the_first_file_lacks_is_an_error(cli):
    cli.write("p.csv", "a,b\n0.5,0.5\n0.2,0.8\n")
    cli.write("q.csv", P)
    for option in "--labels", "--exclude", "--columns":
        message = cli.error("kl_divergence", "p.csv", "q.csv", option, "id")
        assert message.startswith(f"p.csv: {option}: there is no column called 'id'")


def test_fields_are_chosen_in_both_files(cli):
    cli.write("p.jsonl", '{"id": 1, "a": 0.5, "b": 0.5}\n')
    cli.write("q.jsonl", '{"id": 1, "a": 0.2, "b": 0.8}\n')
    cli.write("bare.jsonl", '{"a": 0.2, "b": 0.8}\n')
    cli.write("array.jsonl", "[0.2, 0.8]\n")
    for options in ["--labels", "id"], ["--exclude", "id"], ["--columns", "a,b"]:
        want = cli.output("kl_divergence", "p.jsonl", "q.jsonl", *options)
        assert want == cli.output("kl_divergence", "p.jsonl", "bare.jsonl", *options)
        assert want == cli.output("kl_divergence", "p.jsonl", "array.jsonl", *options)
    cli.write("y.jsonl", '{"id": 1, "class": 1}\n')
    cli.output("softmax_loss", "p.jsonl", "y.jsonl", "--labels", "id")
    message = cli.error("softmax_loss", "p.jsonl", "y.jsonl", "--exclude", "id")
    assert message == "y.jsonl:1: 'id' looks like a name for rows; leave it out of the file"


def test_the_format_of_both_files(cli):
    for name in "p.txt", "q.txt":
        cli.write(name, "0.5\t0.5\n")
    cli.write("q.csv", "0.5,0.5\n")
    cli.save("q.npy", np.array([[0.5, 0.5]]))
    cli.write("y.txt", "1\n")
    for second in "q.txt", "q.csv", "q.npy":  # an ending that names a format says more
        assert cli.output("kl_divergence", "p.txt", second, "--format-in", "tsv") == "0\n"
    cli.output("softmax_loss", "p.txt", "y.txt", "--format-in", "tsv")
    assert cli.output("kl_divergence", "p.txt", "-", "--format-in", "tsv", stdin=b"0.5\t0.5\n") == "0\n"
    cli.output("softmax_loss", "p.txt", "-", "--format-in", "tsv", stdin=b"1\n")  # a pipe of classes is CSV
    for name in "p.csv", "q.csv":
        cli.write(name, "0.5\t0.5\n")
    assert cli.output("kl_divergence", "p.csv", "q.csv", "--format-in", "tsv") == "0\n"
    reply = json.dumps([{"token": "a", "top_logprobs": [{"token": "a", "logprob": -1}, {"token": "b", "logprob": -2}]}])
    for name in "p.json", "q.json":
        cli.write(name, reply)
    assert "a,0" in cli.output("kl_divergence", "p.json", "q.json", "--format-in", "logprobs", "--input", "scores")


@pytest.mark.parametrize("command", ["softmax_loss", "fit_temperature", "expected_calibration_error"])
def test_a_first_column_of_labels_in_a_file_of_classes(cli, command):
    cli.write("p.csv", P)
    cli.write("y.csv", "0\n1\n")
    want = columns(cli.output(command, "p.csv", "y.csv", "--labels", "id", "--quiet"))
    for text in "id,class\n1,0\n2,1\n", "name,class\n1,0\n2,1\n", "class\n0\n1\n":
        cli.write("named.csv", text)
        cli.write("p.csv", P.replace("id", text.split(",")[0]) if "," in text else P)
        name = text.split(",")[0] if "," in text else "id"
        assert columns(cli.output(command, "p.csv", "named.csv", "--labels", name, "--quiet")) == want
    # Labels of FILE may be called like the only column, or one that is not the first.
    cli.write("p.csv", P.replace("id", "class"))
    assert columns(cli.output(command, "p.csv", "named.csv", "--labels", "class", "--quiet")) == want
    cli.write("words.csv", "name,class\n1x,0\n2x,1\n")
    message = cli.error(command, "p.csv", "words.csv", "--labels", "class")
    assert message == "words.csv:2:1: the label is '1x', and p.csv:2 has '1'; rows are compared in their order"
    assert columns(cli.output(command, "p.csv", "words.csv", "--exclude", "class", "--quiet")) == want


CONTENTS = {
    "id": "id,a\n1,0.5\n2,0.5\n",
    "words": "0.5,u\n0.5,1\n",
    "mistyped": "10%,1\n1,2\n",
    "one line": "0.5,u\n",
    "mixed": "1,u,v\n1,2,3\n",
    "missing": "0.5,\n0.5,NA\n",
    "tabs": "0.5\t0.5\n0.5\t0.5\n",
    "array": b"\x93NUMPY\x01\x00",
    "zip": b"PK\x03\x04",
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize(
    "command",
    [
        ["transport", "--a", "FILE", "--b", "m.csv", "--cost", "c.csv"],
        ["partial_transport", "--a", "m.csv", "--b", "FILE", "--cost", "c.csv", "--mass", 0.5],
        ["unbalanced_sinkhorn", "--a", "m.csv", "--b", "m.csv", "--cost", "FILE", "--epsilon", 1, "--penalty", 1],
        ["kl_divergence", "p.npy", "FILE"],
        ["softmax_loss", "p.npy", "FILE"],
        ["sinkhorn_divergence", "p.npy", "p.npy", "--epsilon", 1, "--a", "FILE"],
    ],
    ids=lambda command: command[0],
)
def test_advice_is_about_options_that_act(cli, content, command):
    """Those of the array FILE do not act on a table, and commands without FILE have none of them."""
    cli.save("p.npy", np.full((2, 2), 0.5))
    cli.write("m.csv", "0.5,0.5\n")
    cli.write("c.csv", "0,1\n1,0\n")
    cli.write("x.csv", CONTENTS[content])
    message = cli.error(*["x.csv" if word == "FILE" else word for word in command])
    assert "x.csv" in message and not any(option in message for option in ADVICE), message


def test_advice_about_formats_and_headers(cli):
    cli.save("p.npy", np.full((2, 2), 0.5))
    cli.write("m.txt", "0.5,0.5\n")
    cli.write("0.csv", "0,1,2\n0.5,0.25,0.25\n")
    cli.write("0.tsv", "0\t1\t2\n0.5\t0.25\t0.25\n")
    cli.write("c.csv", "0,1,2\n1,0.5,1\n2,1,0\n")
    endings = "the name ends in none of .csv, .tsv, .npy, .npz, .jsonl, .safetensors"
    assert cli.error("transport", "--a", "m.txt", "--b", "m.txt", "--cost", "c.csv") == f"m.txt: {endings}"
    assert cli.error("kl_divergence", "p.npy", "m.txt") == f"m.txt: {endings}; --format-in names the format"
    ambiguous = "the first line, 0 to 2, may be names or scores"
    assert cli.error("kl_divergence", "p.npy", "0.csv") == f"0.csv:1: {ambiguous}; names need a letter"
    for name in "0.csv", "0.tsv":
        message = cli.error("transport", "--a", name, "--b", name, "--cost", "c.csv")
        assert message == f"{name}:1: {ambiguous}: --header takes it as names, --no-header as scores"
    cli.write("c.csv", "0,1,2\n0,1,2\n1,0.5,1\n2,1,0\n")
    for name in "0.csv", "0.tsv":
        found = cli.output("transport", "--a", name, "--b", name, "--cost", "c.csv", "--header")
        assert parsed(found.splitlines()[1].removesuffix(",optimal"))[0, 0] >= 0


def test_advice_about_a_second_file_that_is_followed(cli):
    cli.write("p.csv", P)
    cli.write("q.csv", P)
    for option in "--labels 1", "--exclude 1", "--columns 1-3":
        assert option in cli.error("kl_divergence", "p.csv", "q.csv")
    cli.write("p.csv", P.replace("id,", "name,").replace("1,0.5", "u,0.5").replace("2,0.2", "v,0.2"))
    message = cli.error("kl_divergence", "p.csv", "q.csv")
    assert message.startswith("q.csv:1:1: column 'id' may be scores or the rows' names: --labels 1")
    cli.output("kl_divergence", "p.csv", "q.csv", "--exclude", 1)
