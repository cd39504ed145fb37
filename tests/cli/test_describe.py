"""Servers' replies in, several measures out."""

import json
import re

import numpy as np
import pytest
from conftest import softmax

TOKENS = [("The", [("The", -0.1), ("A", -2.5), ("Then", -4.0)]), (" cat", [(" dog", -0.7), (" cat", -0.9)])]


def lists(tokens, key="top_logprobs"):
    return [
        {"token": token, "logprob": dict(top)[token], key: [{"token": t, "logprob": lp} for t, lp in top]}
        for token, top in tokens
    ]


def chat(tokens):
    return {"object": "chat.completion", "choices": [{"index": 0, "logprobs": {"content": lists(tokens)}}]}


def completions(tokens):
    logprobs = {
        "tokens": ["<s>", *(token for token, _ in tokens)],
        "token_logprobs": [None, *(dict(top)[token] for token, top in tokens)],
        "top_logprobs": [None, *(dict(top) for _, top in tokens)],
        "text_offset": [0, 1, 2],
    }
    return {"choices": [{"text": "", "logprobs": logprobs}]}


def llama_cpp(tokens):
    return {"content": "The cat", "completion_probabilities": lists(tokens)}


def llama_cpp_probs(tokens):
    return {
        "completion_probabilities": [
            {
                "token": token,
                "prob": np.exp(dict(top)[token]),
                "top_probs": [{"token": t, "prob": np.exp(lp)} for t, lp in top],
            }
            for token, top in tokens
        ]
    }


def llama_cpp_old(tokens):
    return {
        "completion_probabilities": [
            {"content": token, "probs": [{"tok_str": t, "prob": np.exp(lp)} for t, lp in top]} for token, top in tokens
        ]
    }


def vllm_dictionaries(tokens):
    return {
        "tokens": [token for token, _ in tokens],
        "top_logprobs": [{t: {"logprob": lp, "rank": r} for r, (t, lp) in enumerate(top)} for _, top in tokens],
    }


def responses(tokens):
    return {"output": [{"content": [{"type": "output_text", "text": "", "logprobs": lists(tokens)}]}]}


REPLIES = [chat, completions, llama_cpp, llama_cpp_probs, llama_cpp_old, vllm_dictionaries, responses]


def lines_of(text):
    return [line.split(",") for line in text.splitlines()]


@pytest.mark.parametrize("reply", REPLIES)
@pytest.mark.parametrize("form", ["whole", "indented", "lines", "array"])
def test_replies(cli, reply, form):
    one = reply(TOKENS)
    text = {
        "whole": json.dumps(one),
        "indented": json.dumps(one, indent=2),
        "lines": (json.dumps(one) + "\n") * 2,
        "array": json.dumps([one, one]),
    }[form]
    repeated = TOKENS * (2 if form in ("lines", "array") else 1)
    lines = lines_of(cli.output("describe", "--format-in", "logprobs", stdin=text.encode()))
    measures = ["entropy", "perplexity", "max_probability", "margin", "effective_support"]
    assert lines[0] == ["token", "reply", "position", "logprob", "rank", *measures]
    assert [line[0] for line in lines[1:]] == [token if token == token.strip() else f'"{token}"' for token, _ in repeated]
    for line, (token, top) in zip(lines[1:], repeated, strict=True):
        p = np.sort(softmax(np.array([lp for _, lp in top])))[::-1]
        h = -(p * np.log(p)).sum()
        np.testing.assert_allclose(np.array(line[5:], float), [h, np.exp(h), p[0], p[0] - p[1], np.exp(h)], rtol=1e-9)
        np.testing.assert_allclose(float(line[3]), dict(top)[token], rtol=1e-12)
    first = int(reply is completions)  # its first token is the prompt's
    expected = [[str(reply), str(first + k), str(k + 1)] for reply in range(len(repeated) // 2) for k in range(2)]
    assert [[line[1], line[2], line[4]] for line in lines[1:]] == expected


def test_the_mark_of_utf_8_is_skipped(cli):
    text = "\ufeff" + json.dumps(chat(TOKENS))
    plain = cli.output("describe", "--format-in", "logprobs", stdin=json.dumps(chat(TOKENS)).encode())
    assert cli.output("describe", "--format-in", "logprobs", stdin=text.encode()) == plain
    message = cli.error("describe", "--format-in", "logprobs", stdin=text.replace("-0.1", "NaN").encode())
    assert message.startswith(f"standard input:1:{text.index('-0.1')}: ")  # counted from 1, without the mark
    assert cli.error("describe", "--format-in", "logprobs", stdin=b"\xef\xbb\xbf") == "standard input: the file is empty"


def test_ragged_rows_are_absent_scores_at_the_end(cli):
    text = json.dumps(chat(TOKENS)).encode()
    lines = lines_of(cli.output("softmax", "--format-in", "logprobs", stdin=text))
    assert lines[0] == ["token", "top1", "top2", "top3"]
    assert float(lines[2][3]) == 0
    np.testing.assert_allclose(np.array(lines[2][1:3], float), softmax(np.array([-0.7, -0.9])))


def test_the_token_that_was_drawn_counts_though_it_is_none_of_the_most_probable(cli):
    one = {"token": "x", "logprob": -5.0, "top_logprobs": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -2.0}]}
    lines = lines_of(cli.output("softmax", "--format-in", "logprobs", stdin=json.dumps(one).encode()))
    np.testing.assert_allclose(np.array(lines[1][1:], float), softmax(np.array([-0.5, -2.0, -5.0])))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": the file is empty"),
        ("{}", ": there are no log-probabilities in the reply; ask the server for logprobs and top_logprobs"),
        ('{"token": "a", "top_logprobs": []}', ": no token has candidates; ask the server for top_logprobs"),
        ('{"token": "a", "top_logprobs": [{"token": "a"}]}', ":1:33: token 1: a candidate has no logprob"),
        ('{"token": "a", "top_logprobs": [{"token": "a", "logprob": 3}]}', ":1:33: token 1: 3 is not a log-probability"),
        ('{"tokens": ["a"], "top_logprobs": [3]}', ":1:36: token 1: the candidates are not a dictionary"),
    ],
)
def test_replies_without(cli, text, message):
    assert cli.error("describe", "--format-in", "logprobs", stdin=text.encode()) == f"standard input{message}"


@pytest.mark.parametrize("wrong", ['"-0.1"', '"x"', "null", "[]", "{}", "true"])
def test_a_logprob_that_is_not_a_number(cli, wrong):
    """It must not be left out: the others would get its probability."""
    good = '{"token": "é\\"]}", "logprob": -0.5, "top_logprobs": [{"token": "a", "logprob": -0.5}]}'
    bad = '{"token": "The", "top_logprobs": [\n  {"token": "A", "logprob": -2.5}, {"token": "The", "logprob": WRONG}]}'.replace(
        "WRONG", wrong
    )
    cli.write("reply.json", f'[{good}, {{"other": [{{}}, 1, "\\\\"]}},\n{bad}]')
    for command in "describe", "softmax":
        message = cli.error(command, "reply.json", "--format-in", "logprobs", "-o", "out.csv")
        assert message == f"reply.json:3:36: token 2: the logprob '{wrong}' is not a number"
    cli.write("reply.json", '{"tokens": ["s", "a"],\n "top_logprobs": [null,\n {"a": -1, "b": WRONG}]}'.replace("WRONG", wrong))
    message = cli.error("describe", "reply.json", "--format-in", "logprobs")
    assert message.startswith("reply.json:3:17: token 1: ") and ("no logprob" if wrong == "{}" else wrong) in message


def test_broken_json(cli):
    for text in ('{"a": 1} {"b"', '{"a": [1, 2}', "[1, 2", '"'):
        assert re.match(r"standard input(:\d+:\d+)?: ", cli.error("describe", "--format-in", "logprobs", stdin=text.encode()))
    assert "--format-in logprobs" in cli.error("describe", cli.write("reply.json", "{}"))
    assert cli.error("softmax", cli.write("x.csv", "1,2\n"), "-o", "y.logprobs").startswith("y.logprobs: the name must end in")


def test_measures_stand_beside_what_is_kept(cli):
    cli.write("p.csv", "name,step,a,b,c\ncat,7,0.5,0.25,0.25\ndog,8,1,0,0\n")
    measures = "entropy,tsallis_entropy=2,support,argmax,margin"
    text = cli.output("describe", "p.csv", "--measures", measures, "--keep", "step")
    lines = lines_of(text)
    assert lines[0] == ["name", "step", "entropy", "tsallis_entropy=2", "support", "argmax", "margin"]
    assert lines[1][:2] == ["cat", "7"] and lines[2][:2] == ["dog", "8"]
    np.testing.assert_allclose(np.array(lines[1][2:], float), [1.5 * np.log(2), 0.625, 3, 0, 0.25])
    np.testing.assert_allclose(np.array(lines[2][2:], float), [0, 0, 1, 0, 1])
    cli.output("describe", "p.csv", "--measures", "support", "--keep", "step", "-o", "d.jsonl")
    found = [json.loads(line) for line in (cli.directory / "d.jsonl").read_text().splitlines()]
    assert found == [{"step": 7, "name": "cat", "support": 3}, {"step": 8, "name": "dog", "support": 1}]
    cli.write("q.csv", "values,a,b\n7,0.5,0.5\n")
    cli.output("describe", "q.csv", "--measures", "support", "--keep", "values", "-o", "d.jsonl")
    assert json.loads((cli.directory / "d.jsonl").read_text()) == {"values": 7, "support": 2}


def test_each_measure_is_that_of_its_command(cli):
    rng = np.random.default_rng(4)
    cli.save("x.npy", rng.normal(size=(5, 40)))
    cli.output("describe", "x.npy", "--input", "scores", "--measures", "entropy,perplexity,renyi_entropy=2", "-o", "d.npy")
    for c, command in enumerate([["entropy"], ["perplexity"], ["renyi_entropy", "--alpha", 2]]):
        cli.output(*command, "x.npy", "--input", "scores", "-o", "one.npy")
        np.testing.assert_array_equal(cli.load("d.npy")[:, c], cli.load("one.npy"))


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        ("entropie", "describe: --measures must be among effective_support, entropy"),
        ("renyi_entropy", "describe: --measures: renyi_entropy needs a value, as in renyi_entropy=2"),
        ("renyi_entropy=x", "describe: --measures: alpha of renyi_entropy must be a number, got 'x'"),
        ("margin=2", "describe: --measures: margin takes no value"),
        ("", "describe: --measures must be among "),
    ],
)
def test_bad_measures(cli, measures, message):
    assert cli.error("describe", cli.write("p.csv", "0.5,0.5\n"), "--measures", measures).startswith(message)


def test_scores_are_not_taken_for_probabilities(cli):
    assert "--input scores takes scores" in cli.error("describe", cli.write("x.csv", "2,1.5\n"))


def test_values_of_measures_without_parameters(cli):
    cli.write("x.csv", "0.5,0.5\n")
    for name in ("entropy", "perplexity", "effective_support", "margin"):
        assert cli.error("describe", "x.csv", "--measures", f"{name}=2") == f"describe: --measures: {name} takes no value"


ALONE = {
    "chat": {"choices": [{"logprobs": {"content": [{"token": " cat", "logprob": -0.9, "top_logprobs": []}]}}]},
    "itself": {"token": " cat", "logprob": -0.9, "top_logprobs": [{"token": " cat", "logprob": -0.9}]},
    "null": {"token": " cat", "logprob": -0.9, "top_logprobs": None},
    "without": {"choices": [{"logprobs": {"content": [{"token": " cat", "logprob": -0.9}]}}]},
    "one": {"token": " cat", "top_logprobs": [{"token": " cat", "logprob": -0.9}]},
    "absent": {"token": " cat", "logprob": -0.9, "top_logprobs": [{"token": "a", "logprob": -9999.0}]},
    "nothing": {"token": " cat", "logprob": -9999.0, "top_logprobs": [{"token": "a", "logprob": -9999.0}]},
    "completions": {"tokens": [" cat"], "token_logprobs": [-0.9], "top_logprobs": None},
    "completions, none": {"tokens": [" cat"], "token_logprobs": [-0.9], "top_logprobs": [None]},
    "completions, empty": {"tokens": [" cat"], "token_logprobs": [-0.9], "top_logprobs": [{}]},
    "completions, itself": {"tokens": [" cat"], "token_logprobs": [-0.9], "top_logprobs": [{" cat": -0.9}]},
    "completions, without": {"tokens": ["<s>", " cat"], "token_logprobs": [None, -0.9]},
    "vllm": {"tokens": [" cat"], "token_logprobs": [-0.9], "top_logprobs": [{"token_id:7": -0.9}]},
    "vllm, ranks": {"tokens": [" cat"], "top_logprobs": [{" cat": {"logprob": -0.9, "rank": 1}}]},
    "llama.cpp": {"completion_probabilities": [{"token": " cat", "prob": 0.4, "top_probs": [{"token": " cat", "prob": 0.4}]}]},
    "llama.cpp, old": {"completion_probabilities": [{"content": " cat", "probs": [{"tok_str": " cat", "prob": 0.4}]}]},
    "responses": {"output": [{"content": [{"logprobs": [{"token": " cat", "logprob": -0.9, "top_logprobs": []}]}]}]},
}
UNKNOWN = "no alternatives are known, so its distribution is not; ask the server for top_logprobs"
OPTIONS = " (--missing nan reads it as NaN, --missing skip leaves out the row)"


@pytest.mark.parametrize("form", ALONE)
def test_a_token_without_alternatives_has_no_distribution(cli, form):
    """Its probability alone would be a certainty from nothing."""
    cli.write("reply.json", json.dumps(ALONE[form]))
    cli.write("pair.json", json.dumps([*lists(TOKENS), ALONE[form]]))
    for command in (["describe"], ["softmax"], ["sample", "--seed", 1], ["entropy", "--input", "log_probs", "--normalize"]):
        message = cli.error(*command, "reply.json", "--format-in", "logprobs")
        assert message.startswith("reply.json:1:") and message.endswith(f": token 1: {UNKNOWN}{OPTIONS}")
        assert f": token 3: {UNKNOWN}" in cli.error(*command, "pair.json", "--format-in", "logprobs")
    lines = lines_of(cli.output("describe", "pair.json", "--format-in", "logprobs", "--missing", "nan"))
    assert lines[3][0] == '" cat"' and lines[3][5:] == ["nan"] * 5 and "nan" not in lines[1] + lines[2]
    left = cli.output("describe", "pair.json", "--format-in", "logprobs", "--missing", "skip")
    cli.write("two.json", json.dumps(lists(TOKENS)))
    assert left == cli.output("describe", "two.json", "--format-in", "logprobs")
    assert cli.error("describe", "reply.json", "--format-in", "logprobs", "--missing", "skip") == (
        "reply.json: no alternatives of any token are known; ask the server for top_logprobs"
    )


def test_a_certain_token_needs_no_alternatives(cli):
    for logprob in (0, 0.0, -1e-7, 1e-6):
        cli.write("reply.json", json.dumps({"token": "a", "top_logprobs": [{"token": "a", "logprob": logprob}]}))
        line = lines_of(cli.output("describe", "reply.json", "--format-in", "logprobs", "--measures", "entropy"))[1]
        assert line == ["a", "0", "0", str(float(logprob)).removesuffix(".0"), "1", "0"]
    # -9999 stands for -inf, which JSON lacks.
    top = [{"token": "a", "logprob": 0}, {"token": "b", "logprob": -9999.0}]
    cli.write("reply.json", json.dumps({"token": "a", "logprob": 0, "top_logprobs": top}))
    assert cli.output("log_softmax", "reply.json", "--format-in", "logprobs").splitlines()[1] == "a,0,-inf"


def test_the_drawn_token_of_completions_counts(cli):
    cli.write("reply.json", json.dumps({"tokens": ["x"], "token_logprobs": [-5], "top_logprobs": [{"a": -0.5, "b": -2}]}))
    lines = lines_of(cli.output("softmax", "reply.json", "--format-in", "logprobs"))
    np.testing.assert_allclose(np.array(lines[1][1:], float), softmax(np.array([-0.5, -2.0, -5.0])))


def test_candidates_with_little_of_the_probability(cli):
    """The result says that it is of the candidates alone."""
    few = [("a", [("a", -3), ("b", -3.5)]), *TOKENS]
    cli.write("reply.json", json.dumps(chat(few)))
    done = cli("describe", "reply.json", "--format-in", "logprobs", "--measures", "mass,entropy")
    assert done.returncode == 0 and done.stderr.decode() == (
        "isentropic: for 1 of 3 tokens the candidates have less than 0.9 of the probability; the measures are of the "
        "candidates alone (--measures mass is their probability)\n"
    )
    masses = [float(line[5]) for line in lines_of(done.stdout.decode())[1:]]
    np.testing.assert_allclose(masses, [np.exp([lp for _, lp in top]).sum() for _, top in few], rtol=1e-12)
    assert cli("describe", "reply.json", "--format-in", "logprobs", "--quiet").stderr == b""
    cli.write("p.csv", "a,b\n0.5,0.25\n")
    assert (
        cli.output("describe", "p.csv", "--normalize", "--measures", "mass,max_probability")
        .splitlines()[1]
        .startswith("0.75,0.6")
    )
    cli.write("large.csv", "1e308,1e308,5e307\n")  # their sum is beyond the range
    out = cli.output("describe", "large.csv", "--normalize", "--measures", "max_probability,margin,entropy").splitlines()
    assert out[-1].startswith("0.4,0,1.0549")
    assert cli.error("describe", "p.csv", "--input", "scores", "--measures", "mass") == (
        "describe: --measures: mass is of probabilities, and --input scores has none"
    )


def test_a_candidate_that_comes_twice_counts_once(cli):
    """Under its name, or under another name with the same probability; and probabilities that are too large are refused."""
    own = {"token": " cat", "logprob": -0.9}
    for twice in ([own, own], [{"token": "token_id:7", "logprob": -0.9}]):
        cli.write("reply.json", json.dumps({**own, "top_logprobs": twice}))
        assert UNKNOWN in cli.error("describe", "reply.json", "--format-in", "logprobs") or "no alternatives of any token" in (
            cli.error("describe", "reply.json", "--format-in", "logprobs")
        )
    many = [{"token": "a", "logprob": -0.1}, {"token": "b", "logprob": -0.1}]
    cli.write("reply.json", json.dumps({"token": "a", "logprob": -0.1, "top_logprobs": many}))
    assert "the candidates have the probability 1.81 together" in cli.error("describe", "reply.json", "--format-in", "logprobs")


def test_every_token_has_candidates_or_none_is_dropped(cli):
    reply = {"tokens": [" cat", " sat"], "token_logprobs": [-0.9, -0.5], "top_logprobs": [{" cat": -0.9, "dog": -1}]}
    cli.write("reply.json", json.dumps(reply))
    assert "there are 2 tokens and 1 candidates for them" in cli.error("describe", "reply.json", "--format-in", "logprobs")
