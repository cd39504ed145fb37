"""Replies of servers: which reply a token belongs to, where it stands in it, its logprob and its rank; streams, prompts, and
the forms of other servers than OpenAI's."""

import csv
import io
import json
import math

import numpy as np
import pytest

TOP = [("Hi", -0.2), ("Yo", -2.0), ("Oh", -4.0)]


def candidates(top, name="token", logprob="logprob"):
    return [{name: text, logprob: value} for text, value in top]


def token(text, own, top=TOP):
    return {"token": text, "logprob": own, "bytes": list(text.encode()), "top_logprobs": candidates(top)}


def chat(*choices, **fields):
    """Each choice is a list of tokens."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [
            {"index": i, "message": {"content": ""}, "logprobs": {"content": tokens}, "finish_reason": "stop"}
            for i, tokens in enumerate(choices)
        ],
        **fields,
    }


def chunk(index, tokens, finish=None, identifier="chatcmpl-1"):
    logprobs = None if tokens is None else {"content": tokens}
    choice = {"index": index, "delta": {"content": ""}, "logprobs": logprobs, "finish_reason": finish}
    return {"id": identifier, "object": "chat.completion.chunk", "choices": [choice]}


def events(documents, end="data: [DONE]\n\n"):
    return "".join(f"data: {json.dumps(document)}\n\n" for document in documents) + end


def described(cli, given, *options, measures="entropy"):
    text = given if isinstance(given, str) else json.dumps(given)
    done = cli("describe", "--format-in", "logprobs", "--measures", measures, "--quiet", *options, stdin=text.encode())
    assert (done.returncode, done.stderr.decode()) == (0, "")
    return list(csv.DictReader(io.StringIO(done.stdout.decode())))


def cells(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]


def refused(cli, given, *options, command="describe"):
    text = given if isinstance(given, str) else json.dumps(given)
    return cli.error(command, "--format-in", "logprobs", *options, stdin=text.encode())


def entropy(top):
    p = np.exp([value for _, value in top])
    p /= p.sum()
    return -(p * np.log(p)).sum()


def test_the_drawn_token_and_its_rank(cli):
    rows = described(cli, chat([token("Hi", -0.2), token("Oh", -4.0), token("Eh", -9.5)]))
    assert cells(rows, "token", "reply", "position", "logprob", "rank") == [
        ("Hi", "0", "0", "-0.2", "1"),
        ("Oh", "0", "1", "-4", "3"),
        ("Eh", "0", "2", "-9.5", ""),  # none of the listed ones: its rank is not known, its logprob is
    ]
    np.testing.assert_allclose(
        [float(row["entropy"]) for row in rows], [entropy(TOP), entropy(TOP), entropy([*TOP, ("Eh", -9.5)])]
    )


def test_a_rank_is_the_column_of_the_candidate(cli):
    rng = np.random.default_rng(5)
    tokens, drawn = [], []
    for k in range(20):
        p = np.sort(rng.dirichlet(np.ones(6)))[::-1][:5]
        top = [(f"w{k}{i}", float(lp)) for i, lp in enumerate(np.log(p))]
        drawn.append(int(rng.integers(5)))
        rng.shuffle(top)  # a server may list them in any order
        tokens.append(token(f"w{k}{drawn[-1]}", dict(top)[f"w{k}{drawn[-1]}"], top))
    rows = described(cli, chat(tokens))
    softmax = cli.output("log_softmax", "--format-in", "logprobs", stdin=json.dumps(chat(tokens)).encode()).splitlines()[1:]
    for row, line, index in zip(rows, softmax, drawn, strict=True):
        logs = [float(cell) for cell in line.split(",")[1:]]
        if row["rank"] == "":  # vLLM's order, and room for another token: not known
            assert index == 4
            continue
        assert int(row["rank"]) == index + 1
        shift = logs[0] - logs[index]
        assert math.isclose(shift, max(logs) - logs[int(row["rank"]) - 1], rel_tol=1e-12)


def test_several_choices_and_several_replies_are_kept_apart(cli):
    one = chat([token("Hi", -0.2)], [token("Yo", -2.0), token("Hi", -0.2)])
    for text in (json.dumps([one, one]), "\n".join([json.dumps(one)] * 2), json.dumps(one, indent=1) * 2):
        rows = described(cli, text)
        assert cells(rows, "token", "reply", "position") == [
            ("Hi", "0", "0"),
            ("Yo", "1", "0"),
            ("Hi", "1", "1"),
            ("Hi", "2", "0"),
            ("Yo", "3", "0"),
            ("Hi", "3", "1"),
        ]
    lines = "\n".join(json.dumps({"custom_id": f"r{i}", "response": {"status_code": 200, "body": one}}) for i in range(2))
    assert cells(described(cli, lines), "reply") == cells(rows, "reply")  # a batch


def test_replies_of_several_files_are_counted_on(cli):
    for name in ("a.json", "b.json"):
        cli.write(name, json.dumps(chat([token("Hi", -0.2)], [token("Yo", -2.0)])))
    rows = list(csv.DictReader(io.StringIO(cli.output("describe", "a.json", "b.json", "--format-in", "logprobs"))))
    assert cells(rows, "reply", "position") == [("0", "0"), ("1", "0"), ("2", "0"), ("3", "0")]
    rows = list(
        csv.DictReader(io.StringIO(cli.output("describe", "a.json", "b.json", "--format-in", "logprobs", "--by", "reply")))
    )
    assert cells(rows, "reply", "tokens") == [("0", "1"), ("1", "1"), ("2", "1"), ("3", "1")]
    part = cli.output("describe", "a.json", "b.json", "--format-in", "logprobs", "--rows", "1:3", "--measures", "entropy")
    assert [line.split(",")[:3] for line in part.splitlines()[1:]] == [["Yo", "1", "0"], ["Hi", "2", "0"]]


def test_a_row_for_each_reply(cli):
    given = chat([token("Hi", -0.2), token("Eh", -9.5)], [token("Yo", -2.0)])
    rows = described(cli, given, "--by", "reply")
    assert list(rows[0]) == ["reply", "tokens", "mean_logprob", "min_logprob", "mean_entropy"]
    assert cells(rows, "reply", "tokens") == [("0", "2"), ("1", "1")]
    found = [[float(row[name]) for name in ("mean_logprob", "min_logprob", "mean_entropy")] for row in rows]
    h = entropy(TOP), entropy([*TOP, ("Eh", -9.5)])
    np.testing.assert_allclose(found, [[-4.85, -9.5, (h[0] + h[1]) / 2], [-2, -2, h[0]]], rtol=1e-12)
    rows = described(cli, given, "--by", "reply", measures="perplexity,mass")
    assert list(rows[0])[4:] == ["mean_perplexity", "mean_mass"]
    cli.write("r.json", json.dumps(given))
    cli.output("describe", "r.json", "--format-in", "logprobs", "--by", "reply", "-o", "r.npy", "--quiet")
    assert cli.load("r.npy").shape == (2, 4)
    cli.output("describe", "r.json", "--format-in", "logprobs", "--by", "reply", "-o", "r.jsonl")
    first = json.loads((cli.directory / "r.jsonl").read_text().splitlines()[0])
    assert first["reply"] == 0 and first["tokens"] == 2
    assert cli.error("describe", cli.write("p.csv", "0.5,0.5\n"), "--by", "reply") == (
        "describe: --by reply is for replies of servers, --format-in logprobs"
    )
    assert cli.error("describe", "p.csv", "--by", "token") == "describe: --by must be reply, got 'token'"


def test_what_is_not_known_is_empty_or_null(cli):
    cli.write("r.json", json.dumps(chat([token("Eh", -9.5), {"token": "Eh", "top_logprobs": candidates(TOP)}])))
    lines = cli.output("describe", "r.json", "--format-in", "logprobs", "--measures", "support").splitlines()
    assert lines[1:] == ["Eh,0,0,-9.5,,4", "Eh,0,1,,,3"]
    cli.output("describe", "r.json", "--format-in", "logprobs", "--measures", "support", "-o", "r.jsonl")
    found = [json.loads(line) for line in (cli.directory / "r.jsonl").read_text().splitlines()]
    assert found[0] == {"reply": 0, "position": 0, "logprob": -9.5, "rank": None, "token": "Eh", "support": 4}
    assert found[1] == {"reply": 0, "position": 1, "logprob": None, "rank": None, "token": "Eh", "support": 3}
    rows = described(cli, chat([{"token": "Eh", "top_logprobs": candidates(TOP)}]), "--by", "reply")
    assert cells(rows, "tokens", "mean_logprob", "min_logprob") == [("1", "nan", "nan")]
    rows = described(cli, chat([token("Yo", -2.0)]), "--precision", "2", measures="perplexity")
    assert rows[0]["logprob"] == "-2" and len(rows[0]["perplexity"]) <= 3


@pytest.mark.parametrize("form", ["events", "lines", "array", "crlf"])
def test_streams(cli, form):
    documents = [
        chunk(0, None),
        chunk(1, None),
        chunk(0, [token("Hi", -0.2)]),
        chunk(1, [token("Yo", -2.0)]),
        chunk(0, [token("Oh", -4.0), token("Hi", -0.2)]),
        chunk(0, None, "stop"),
        chunk(1, [token("Oh", -4.0)], "length"),
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": {"total_tokens": 9}},
    ]
    text = {
        "events": ": comment\n\n" + events(documents),
        "lines": "\n".join(map(json.dumps, documents)),
        "array": json.dumps(documents),
        "crlf": events(documents).replace("\n", "\r\n"),
    }[form]
    rows = described(cli, text)
    assert cells(rows, "reply", "position", "token", "rank") == [
        ("0", "0", "Hi", "1"),
        ("0", "1", "Oh", "3"),
        ("0", "2", "Hi", "1"),
        ("1", "0", "Yo", "2"),
        ("1", "1", "Oh", "3"),
    ]
    if form != "array":  # two streams
        again = text.replace("chatcmpl-1", "chatcmpl-2")
        assert cells(described(cli, text + "\n" + again), "reply") == [(str(r),) for r in (0, 0, 0, 1, 1, 2, 2, 2, 3, 3)]


def test_streams_of_completions(cli):
    def part(text, own, top, finish=None):
        logprobs = {"tokens": [text], "token_logprobs": [own], "top_logprobs": [dict(top)], "text_offset": [0]}
        return {
            "id": "cmpl-1",
            "object": "text_completion",
            "choices": [{"index": 0, "logprobs": logprobs, "finish_reason": finish}],
        }

    documents = [part("Hi", -0.2, TOP), part("Oh", -4.0, TOP), part("Yo", -2.0, TOP, "length")]
    expected = [("0", "0", "Hi"), ("0", "1", "Oh"), ("0", "2", "Yo")]
    assert cells(described(cli, events(documents)), "reply", "position", "token") == expected
    assert cells(described(cli, "\n".join(map(json.dumps, documents))), "reply", "position", "token") == expected
    whole = part("Hi", -0.2, TOP, "length")  # two whole completions of one id are two
    assert cells(described(cli, "\n".join([json.dumps(whole)] * 2)), "reply") == [("0",), ("1",)]


def test_streams_without_ids(cli):
    llama = [
        {"index": 0, "content": "", "stop": False, "completion_probabilities": [token(text, own)]}
        for text, own in [("Hi", -0.2), ("Yo", -2.0)]
    ]
    llama.append({"index": 0, "content": "", "stop": True})
    tgi = [
        {"index": i, "token": {"id": 3, "text": text, "logprob": own, "special": False}, "top_tokens": candidates(TOP, "text")}
        for i, (text, own) in enumerate([("Hi", -0.2), ("Yo", -2.0)])
    ]
    tgi[-1] |= {"generated_text": "HiYo", "details": {"finish_reason": "length", "generated_tokens": 2, "seed": None}}
    ollama = [
        {"model": "m", "response": "", "done": False, "logprobs": [token(text, own)]}
        for text, own in [("Hi", -0.2), ("Yo", -2.0)]
    ]
    ollama.append({"model": "m", "response": "", "done": True})
    responses = [
        {"type": "response.created", "response": {"output": []}},
        *(
            {"type": "response.output_text.delta", "delta": "", "logprobs": [token(*one)]}
            for one in [("Hi", -0.2), ("Yo", -2.0)]
        ),
        {"type": "response.output_text.done", "logprobs": [token("Hi", -0.2), token("Yo", -2.0)]},
        {
            "type": "response.completed",
            "response": {"output": [{"content": [{"logprobs": [token("Hi", -0.2), token("Yo", -2.0)]}]}]},
        },
    ]
    one = [("0", "0", "Hi", "1"), ("0", "1", "Yo", "2")]
    two = [*one, *(("1", *row[1:]) for row in one)]
    for text in (events(llama * 2, ""), events(tgi * 2, ""), events(responses) * 2, "\n".join(map(json.dumps, ollama * 2))):
        assert cells(described(cli, text), "reply", "position", "token", "rank") == two
    assert cells(described(cli, responses[-1]), "reply", "position", "token", "rank") == one


def test_a_line_that_belongs_to_no_event(cli):
    message = refused(cli, events([chunk(0, [token("Hi", -0.2)])], "") + "HTTP/1.1 200 OK\n")
    assert message.startswith("standard input:3: 'HTTP/1.1 200 OK' is no line of a stream of events, which begins with data:")
    text = events([chunk(0, [token("Hi", -0.2)])], "").replace("-0.2", "NaN", 1)
    assert refused(cli, text).startswith(f"standard input:1:{text.index('NaN') + 1}: this is not JSON: 'NaN'")


TGI = {
    "generated_text": " cat sat",
    "details": {
        "finish_reason": "length",
        "generated_tokens": 2,
        "seed": 7,
        "prefill": [],
        "tokens": [
            {"id": 7, "text": "Yo", "logprob": -2.0, "special": False},
            {"id": 8, "text": "Eh", "logprob": -9.5, "special": False},
        ],
        "top_tokens": [candidates(TOP, "text"), candidates(TOP, "text")],
    },
}
GEMINI = {
    "candidates": [
        {
            "content": {"parts": [{"text": "YoEh"}], "role": "model"},
            "finishReason": "STOP",
            "index": 0,
            "logprobsResult": {
                "chosenCandidates": candidates([("Yo", -2.0), ("Eh", -9.5)], logprob="logProbability"),
                "topCandidates": [{"candidates": candidates(TOP, logprob="logProbability")}] * 2,
                "logProbabilitySum": -11.5,
            },
        }
    ],
    "responseId": "r1",
}
WATSONX = {
    "results": [
        {
            "generated_tokens": [
                {"text": t, "logprob": lp, "top_tokens": candidates(TOP, "text")} for t, lp in [("Yo", -2.0), ("Eh", -9.5)]
            ]
        }
    ]
}


def snake(value):
    """As Python's package writes it."""
    names = {"logprobsResult": "logprobs_result", "chosenCandidates": "chosen_candidates", "topCandidates": "top_candidates"}
    names |= {"logProbability": "log_probability", "finishReason": "finish_reason", "responseId": "response_id"}
    if isinstance(value, dict):
        return {names.get(key, key): snake(one) for key, one in value.items()}
    return [snake(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("form", ["tgi", "gemini", "gemini, underscores", "gemini, stream", "watsonx"])
def test_other_servers(cli, form):
    pieces = []
    for i in range(2):
        piece = json.loads(json.dumps(GEMINI))
        result = piece["candidates"][0]["logprobsResult"]
        for key in ("chosenCandidates", "topCandidates"):
            result[key] = [result[key][i]]
        if i == 0:
            del piece["candidates"][0]["finishReason"]
        pieces.append(piece)
    given = {"tgi": TGI, "gemini": GEMINI, "gemini, underscores": snake(GEMINI), "gemini, stream": pieces, "watsonx": WATSONX}[
        form
    ]
    rows = described(cli, given)
    assert cells(rows, "token", "reply", "position", "logprob", "rank") == [
        ("Yo", "0", "0", "-2", "2"),
        ("Eh", "0", "1", "-9.5", ""),
    ]
    np.testing.assert_allclose([float(row["entropy"]) for row in rows], [entropy(TOP), entropy([*TOP, ("Eh", -9.5)])])
    if form == "gemini, stream":
        assert cells(described(cli, events(pieces, "")), "reply", "position") == [("0", "0"), ("0", "1")]


def test_sequences_of_text_generation_inference(cli):
    both = json.loads(json.dumps(TGI))
    both["details"]["best_of_sequences"] = [json.loads(json.dumps(TGI["details"]))]
    assert cells(described(cli, both), "reply", "position") == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    short = json.loads(json.dumps(TGI))
    del short["details"]["top_tokens"][1]
    assert refused(cli, short).endswith("token 1: there are 2 tokens and 1 lists of candidates for them")
    without = json.loads(json.dumps(TGI))
    del without["details"]["top_tokens"]
    assert "no alternatives are known" in refused(cli, without)
    rows = described(cli, without, "--missing", "nan")
    assert cells(rows, "logprob", "rank", "entropy") == [("-2", "", "nan"), ("-9.5", "", "nan")]


def test_gemini_without_the_chosen_ones(cli):
    given = json.loads(json.dumps(GEMINI))
    del given["candidates"][0]["logprobsResult"]["chosenCandidates"]
    assert refused(cli, given).endswith("topCandidates without chosenCandidates does not say which token was drawn")


def ranked(*tokens):
    """vLLM's prompt_logprobs: the prompt's token first, each with its rank."""
    return [
        None,
        *(
            {str(i): {"logprob": lp, "rank": rank, "decoded_token": text} for i, (text, lp, rank) in enumerate(one)}
            for one in tokens
        ),
    ]


PROMPT = ranked([("The", -8.5, 812), ("A", -0.5, 1), ("An", -1.5, 2)], [(" cat", -0.5, 1), (" dog", -1.5, 2)])


def test_prompts(cli):
    expected = [("The", "0", "1", "-8.5", "812"), (" cat", "0", "2", "-0.5", "1")]
    columns = ["token", "reply", "position", "logprob", "rank"]
    only = {"id": "1", "choices": [{"index": 0, "logprobs": None, "finish_reason": "length"}], "prompt_logprobs": PROMPT}
    for options in ([], ["--key", "prompt"]):
        assert cells(described(cli, only, *options), *columns) == expected
    both = chat([token("Yo", -2.0)], prompt_logprobs=PROMPT)
    assert cells(described(cli, both, "--key", "prompt"), *columns) == expected
    assert cells(described(cli, both, "--key", "reply"), *columns) == [("Yo", "0", "0", "-2", "2")]
    message = refused(cli, both)
    assert message.startswith("standard input:1:") and message.endswith(
        ": the prompt's tokens have log-probabilities here, beside those of the reply; --key reply takes the generated tokens, "
        "--key prompt the prompt's"
    )
    completion = {"choices": [{"index": 0, "text": "", "prompt_logprobs": PROMPT, "logprobs": None, "finish_reason": "length"}]}
    assert cells(described(cli, completion), *columns) == expected
    tgi = json.loads(json.dumps(TGI))
    tgi["details"]["prefill"] = [{"id": 1, "text": "<s>", "logprob": None}, {"id": 2, "text": "The", "logprob": -3.5}]
    rows = described(cli, tgi, "--key", "prompt", "--missing", "nan")
    assert cells(rows, *columns) == [("The", "0", "1", "-3.5", "")]
    assert refused(cli, tgi).startswith("standard input:1:")
    assert "--key of replies is reply, for the generated tokens, or prompt" in refused(cli, tgi, "--key", "prefill")
    assert refused(cli, chat([token("Yo", -2.0)]), "--key", "prompt") == (
        "standard input: there are no log-probabilities of the prompt; ask the server for prompt_logprobs"
    )


def test_outputs_of_vllm(cli):
    outputs = [{"index": i, "text": "", "token_ids": [0, 0], "logprobs": PROMPT[1:]} for i in range(2)]
    rows = described(cli, {"request_id": "0", "prompt_logprobs": None, "outputs": outputs})
    assert cells(rows, "token", "reply", "position", "rank") == [
        ("The", "0", "0", "812"),
        (" cat", "0", "1", "1"),
        ("The", "1", "0", "812"),
        (" cat", "1", "1", "1"),
    ]


def test_a_rank_is_not_guessed(cli):
    """vLLM lists the drawn token before the others, in place of the last of them if it is none of them; completions have it in
    the dictionary in any case."""
    top = [("Hi", -0.7), ("Yo", -1.5), ("Oh", -2.0)]
    drawn_first = [("Eh", -3.0), ("Hi", -0.7), ("Yo", -1.5)]
    assert cells(described(cli, chat([token("Eh", -3.0, drawn_first)])), "rank") == [("",)]
    assert cells(described(cli, chat([token("Yo", -1.5, [("Yo", -1.5), ("Hi", -0.7), ("Oh", -2.0)])])), "rank") == [("2",)]
    assert cells(described(cli, chat([token("Oh", -2.0, top)])), "rank") == [("3",)]

    def completion(*positions):
        return {
            "tokens": [text for text, _ in positions],
            "token_logprobs": [dict(one)[text] for text, one in positions],
            "top_logprobs": [dict(one) for _, one in positions],
        }

    assert cells(described(cli, completion(("Oh", top))), "rank") == [("",)]  # of two and itself, or the third
    rows = described(cli, completion(("Hi", top), ("Oh", top), ("Eh", [*top, ("Eh", -4.0)])))
    assert cells(rows, "rank") == [("1",), ("3",), ("",)]  # three were asked for
    assert cells(described(cli, completion(("Oh", [("Hi", -0.2), ("Oh", -1.8)]))), "rank") == [("2",)]  # no room for another


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([chat([token("Hi", -0.2)]), chat([])], ": this reply has no log-probabilities, and others have some"),
        (chat([token("Hi", -0.2)], []), ": this reply has no log-probabilities, and others have some"),
        ([chat([token("Hi", -0.2)]), {"a": 1}], ": this reply has no log-probabilities, and others have some"),
        (
            [chat([token("Hi", -0.2)]), {"error": {"message": "no such model", "code": 404}}],
            ": this is no reply but an error of the server: 'no such model', and others have some",
        ),
    ],
)
def test_a_reply_without_logprobs_among_others(cli, given, message):
    help_with = " (--missing skip leaves it out)"
    assert refused(cli, given).endswith(message + help_with)
    rows = described(cli, given, "--missing", "skip")
    assert cells(rows, "reply", "token") == [("0", "Hi")]


def test_errors_of_servers(cli):
    assert refused(cli, {"error": {"message": "no such model"}}) == (
        "standard input:1:1: this is no reply but an error of the server: 'no such model'"
    )
    assert refused(cli, events([{"error": "overloaded"}], "")).endswith(
        "this is no reply but an error of the server: 'overloaded'"
    )
    sglang = {
        "text": "a",
        "meta_info": {"output_token_logprobs": [[-0.1, 3, None]], "output_top_logprobs": [[[-0.1, 3, None]]]},
    }
    assert "output_token_logprobs is a form of SGLang's that is not read" in refused(cli, sglang)


def test_comparisons_show_the_words_of_the_candidates(cli):
    cli.write("r.json", json.dumps(chat([token("Hi", -0.2), token("Eh", -9.5)])))
    given = ("compare", "r.json", "--format-in", "logprobs", "--maps", "softmax")
    assert json.loads(cli.output(*given, "--format", "json"))["classes"] == ["Hi", "Yo", "Oh", ""]
    assert json.loads(cli.output(*given, "--row", 1, "--format", "json"))["classes"] == ["Hi", "Yo", "Oh", "Eh"]
    report = json.loads(cli.output(*given, "--row", 1, "--format", "json"))
    assert [report[name] for name in ("reply", "position", "logprob", "rank")] == [0, 1, -9.5, None]
    assert cli.output(*given, "--row", 1).splitlines()[0] == "r.json, row 1 (Eh), reply 0, position 1: 4 classes"
    words = [line.split()[0] for line in cli.output(*given, "--row", 1).splitlines()[3:7]]
    assert words == ["Hi", "Yo", "Oh", "Eh"]
    cli.output(*given, "--static", "-o", "r.html")
    expected = '"words":[["Hi","Yo","Oh"],["Hi","Yo","Oh","Eh"]],"tokens":[[0,0],[0,1]]'
    assert expected in (cli.directory / "r.html").read_text()


def test_the_page_is_of_replies(cli):
    cli.write("p.csv", "a,b\n0.5,0.5\n")
    assert cli.error("describe", "p.csv", "-o", "p.html") == (
        "p.html: a page is of the text of replies, --format-in logprobs; compare -o p.html draws rows of scores"
    )
    cli.write("r.json", json.dumps(chat([token("Hi", -0.2)])))
    assert "--by reply is for tables" in cli.error(
        "describe", "r.json", "--format-in", "logprobs", "--by", "reply", "-o", "p.html"
    )
    assert "no alternatives" in cli.error(
        "describe", cli.write("q.json", json.dumps({"token": "a", "logprob": -1})), "--format-in", "logprobs", "-o", "p.html"
    )


def test_help_names_the_columns(cli):
    text = " ".join(cli.output("describe", "--help").split())
    for word in (
        "reply and position, both counted from 0",
        "logprob",
        "rank, its place among all tokens by probability, from 1",
    ):
        assert word in text


def test_parts_of_a_character_are_different_candidates(cli):
    """They all are U+FFFD, and may have one logprob; their bytes or numbers tell them apart."""
    for ours, theirs in (({"bytes": [240]}, {"bytes": [226]}), ({"id": 6}, {"id": 7})):
        parts = [{"token": "\ufffd", "logprob": -1.75, **own} for own in (ours, theirs)]
        top = [{"token": "a", "logprob": -0.5}, *parts, {"token": "b", "logprob": -3.0}]
        reply = chat([{"token": "a", "logprob": -0.5, "top_logprobs": top}])
        (row,) = described(cli, reply, measures="entropy,support,mass")
        np.testing.assert_allclose(float(row["mass"]), np.exp([-0.5, -1.75, -1.75, -3.0]).sum())
        assert row["support"] == "4"
        again = chat([{"token": "a", "logprob": -0.5, "top_logprobs": [*top, parts[0]]}])  # one of them twice
        assert described(cli, again, measures="entropy,support,mass") == [row]


def test_a_log_that_is_cut_names_the_reply(cli):
    whole = json.dumps(chat([token("Hi", -0.2)]))
    message = refused(cli, whole + "\n" + whole[:-20])
    assert message == "standard input:2:1: reply 2, which begins here, is cut short"
