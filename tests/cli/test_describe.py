"""Servers' replies in, several measures out."""

import json

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
    assert lines[0] == ["token", "entropy", "perplexity", "max_probability", "margin", "effective_support"]
    assert [line[0] for line in lines[1:]] == [token if token == token.strip() else f'"{token}"' for token, _ in repeated]
    for line, (_, top) in zip(lines[1:], repeated, strict=True):
        p = np.sort(softmax(np.array([lp for _, lp in top])))[::-1]
        h = -(p * np.log(p)).sum()
        np.testing.assert_allclose(np.array(line[1:], float), [h, np.exp(h), p[0], p[0] - p[1], np.exp(h)], rtol=1e-9)


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
        assert cli.error("describe", "--format-in", "logprobs", stdin=text.encode()).startswith("standard input: ")
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
