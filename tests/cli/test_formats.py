"""Formats besides .csv and .npy: files as NumPy, pandas, safetensors, json and jq write them, and broken ones."""

import gzip
import io
import json
import struct
import subprocess
import zipfile

import numpy as np
import pandas
import pytest
import safetensors.numpy
from conftest import parsed

X = (np.random.default_rng(11).normal(size=(7, 5)) * 3).astype(np.float32)
ENDINGS = ["csv", "tsv", "npy", "npz", "jsonl", "safetensors"]


def softmax_of(cli, array):
    cli.save("expected.npy", array)
    cli.output("softmax", "expected.npy", "-o", "expected_p.npy")
    return cli.load("expected_p.npy")


def load(cli, name):
    path = cli.directory / name
    if name.endswith(".npy"):
        return np.load(path)
    if name.endswith(".npz"):
        with np.load(path) as file:
            [key] = file
            return file[key]
    if name.endswith(".safetensors"):
        [array] = safetensors.numpy.load_file(path).values()
        return array
    if name.endswith(".jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return np.array([next(iter(row.values())) if isinstance(row, dict) else row for row in rows])
    return parsed(path.read_text(), "\t" if name.endswith(".tsv") else ",")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(cli, save):
    save(cli.directory / "x.npz", logits=X, other=X[:2], text=np.array(["a"]))
    cli.output("softmax", "x.npz", "--key", "logits", "-o", "p.npy")
    assert np.array_equal(cli.load("p.npy"), softmax_of(cli, X))
    assert cli.error("softmax", "x.npz") == "x.npz: there are several arrays: 'logits', 'other', 'text'; choose one with --key"
    assert (
        cli.error("softmax", "x.npz", "--key", "no") == "x.npz: there is no array 'no'; the file has 'logits', 'other', 'text'"
    )
    assert "the array's type is '<U1'" in cli.error("softmax", "x.npz", "--key", "text")
    save(cli.directory / "one.npz", X)
    assert np.array_equal(parsed(cli.output("softmax", "one.npz")).astype(np.float32), softmax_of(cli, X))
    with open(cli.directory / "one.npz", "rb") as file:
        piped = cli.output("softmax", "--format-in", "npz", stdin=file.read())
    assert np.array_equal(parsed(piped).astype(np.float32), softmax_of(cli, X))


def test_npz_that_is_written(cli):
    np.savez(cli.directory / "x.npz", logits=X)
    cli.output("softmax", "x.npz", "-o", "p.npz")
    with np.load(cli.directory / "p.npz") as file:
        assert list(file) == ["logits"]
        assert np.array_equal(file["logits"], softmax_of(cli, X))
    with zipfile.ZipFile(cli.directory / "p.npz") as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8, np.uint64, np.bool_])
def test_safetensors(cli, dtype):
    x = (X > 0 if dtype is np.bool_ else np.abs(X)).astype(dtype)
    safetensors.numpy.save_file({"a": x, "b": x[:1]}, cli.directory / "x.safetensors", metadata={"format": "np"})
    cli.output("softmax", "x.safetensors", "--key", "a", "-o", "p.safetensors")
    [(key, p)] = safetensors.numpy.load_file(cli.directory / "p.safetensors").items()
    assert key == "a"
    expected = softmax_of(cli, x)
    assert p.dtype == expected.dtype and np.array_equal(p, expected)
    for key in "a", "b":  # through a pipe nothing can be skipped but by reading
        piped = cli.output("softmax", "--format-in", "safetensors", "--key", key, stdin=cli.files()["x.safetensors"])
        assert len(piped.splitlines()) == (7 if key == "a" else 1)


@pytest.mark.parametrize("ending", ["npy", "npz", "safetensors"])
def test_bfloat16(cli, ending):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    x = torch.tensor(X).bfloat16()
    save_file({"x": x}, cli.directory / "x.safetensors")
    cli.output("softmax", "x.safetensors", "-o", f"y.{ending}")
    cli.output("log_softmax", f"y.{ending}", "-o", "z.safetensors")
    [p] = load_file(cli.directory / "z.safetensors").values()
    assert p.dtype == torch.bfloat16
    expected = torch.log_softmax(torch.softmax(x.float(), 1).bfloat16().float(), 1)
    assert (p.float() - expected).abs().max() < 0.02


def test_float16_is_computed_as_float32(cli):
    x = X.astype(np.float16)
    cli.save("x.npy", x)
    for name in "softmax", "sparsemax", "power_transform":
        source = "x.npy" if name != "power_transform" else "softmax.npy"
        parameters = ["--gamma", 2] if name == "power_transform" else []
        cli.output(name, source, *parameters, "-o", f"{name}.npy")
        cli.save("wide.npy", cli.load(source).astype(np.float32))
        cli.output(name, "wide.npy", *parameters, "-o", "wide_p.npy")
        p = cli.load(f"{name}.npy")
        assert p.dtype == np.float16 and np.array_equal(p, cli.load("wide_p.npy").astype(np.float16))


def test_jsonl_of_arrays(cli):
    x = X.astype(np.float64)
    cli.write("x.jsonl", "".join(json.dumps(row) + "\n" for row in x.tolist()))
    cli.output("softmax", "x.jsonl", "-o", "p.jsonl")
    assert np.array_equal(load(cli, "p.jsonl"), softmax_of(cli, x))


def test_jsonl_of_pandas(cli):
    frame = pandas.DataFrame(X.astype(np.float64), columns=["a", "b b", 'c"', "größe", "e"])
    frame.insert(2, "name", ["x", "y\n", "z,", "", "w", "'", '"'])
    frame.to_json(cli.directory / "x.jsonl", orient="records", lines=True)
    frame = pandas.read_json(cli.directory / "x.jsonl", lines=True)
    cli.output("softmax", "x.jsonl", "-o", "p.jsonl")
    cli.output("softmax", "x.jsonl", "-o", "p.csv")
    numbers = [name for name in frame.columns if name != "name"]
    expected = softmax_of(cli, frame[numbers].to_numpy())
    for p in (
        pandas.read_json(cli.directory / "p.jsonl", lines=True, precise_float=True),
        pandas.read_csv(cli.directory / "p.csv"),
    ):
        assert list(p.columns) == list(frame.columns)
        assert p["name"].fillna("").tolist() == frame["name"].tolist()
        np.testing.assert_allclose(p[numbers].to_numpy(), expected, rtol=1e-15)


def test_jsonl_of_jq(cli):
    cli.write("x.json", json.dumps([{"id": f"r{i}", "n": i, "scores": row, "w": [1]} for i, row in enumerate(X.tolist())]))
    lines = subprocess.run(["jq", "-c", ".[]", cli.directory / "x.json"], capture_output=True, check=True).stdout
    cli.write("x.jsonl", lines)
    message = "x.jsonl:1: there are several arrays: 'scores', 'w'; choose one with --key"
    assert cli.error("softmax", "x.jsonl") == message
    cli.output("softmax", "x.jsonl", "--key", "scores", "-o", "p.jsonl")
    rows = [json.loads(line) for line in (cli.directory / "p.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"r{i}" for i in range(len(X))]
    assert np.array_equal([row["softmax"] for row in rows], softmax_of(cli, X.astype(np.float64)))
    assert subprocess.run(["jq", "-c", ".softmax|add", cli.directory / "p.jsonl"], capture_output=True).stdout.count(b"\n") == 7


OPENAI = {
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi!"},
            "logprobs": {
                "content": [
                    {
                        "token": token,
                        "logprob": logprobs[0],
                        "bytes": [72],
                        "top_logprobs": [
                            {"token": name, "logprob": one, "bytes": None}
                            for name, one in zip([token, "x"], logprobs, strict=True)
                        ],
                    }
                    for token, logprobs in [("Hi", [-0.2, -1.8]), ("!", [-0.5, -1.1])]
                ]
            },
        }
    ]
}
LLAMA_CPP = {
    "content": "Hi!",
    "completion_probabilities": [
        {"id": 1, **{name: one[name] for name in ("token", "logprob", "top_logprobs")}}
        for one in OPENAI["choices"][0]["logprobs"]["content"]
    ],
}


@pytest.mark.parametrize("reply", [OPENAI, LLAMA_CPP], ids=["OpenAI", "llama.cpp"])
def test_reply_of_a_server(cli, reply):
    """The command in the help works unchanged."""
    text = cli.output("--help")
    assert "  isentropic describe reply.json --format-in logprobs\n" in text
    cli.write("reply.json", json.dumps(reply, indent=1))
    done = cli.output("describe", "reply.json", "--format-in", "logprobs", "--measures", "entropy")
    rows = [line.split(",") for line in done.splitlines()[1:]]
    assert [row[0] for row in rows] == ["Hi", "!"]
    for (*_, entropy), logprobs in zip(rows, [[-0.2, -1.8], [-0.5, -1.1]], strict=True):
        p = np.exp(logprobs) / np.exp(logprobs).sum()
        assert float(entropy) == pytest.approx(-(p * np.log(p)).sum(), rel=1e-12)
    message = cli.error("softmax", "reply.json")
    assert message.startswith(
        "reply.json: JSON is read as lines, .jsonl (jq -c '.[]' reply.json makes them from an array of rows)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"top_logprobs": [{"logprob": -0.5},\n  {"logprob": NaN}]}', ":2:15: this is not JSON: 'NaN' is no value of JSON"),
        ('{"top_logprobs": [{"logprob": -Infinity}]}', ":1:31: this is not JSON: '-Infinity' is no value of JSON"),
        ('{"é": 1}\n{"top_logprobs": [{"logprob": -1e400}]}', ":2:31: this is not JSON: '-1e400' is too large"),
        ('{"é": [-1e-400, 18446744073709551616]}', ":1:17: this is not JSON: '18446744073709551616' is too large"),
        ('{"é": "a, \\"{", "b": nul}', ":1:22: this is not JSON: 'nul' is no value of JSON"),
        ('\ufeff{"a": NaN}', ":1:7: this is not JSON: 'NaN' is no value of JSON"),
        ("{'a': 1}", ":1:2: this is not JSON: ''a'' is no value of JSON"),
        ('[1]\n {"a": "\\x"}', ":2:8: this is not JSON: '\"\\x\"' is no value of JSON: "),
        ('[1]\n {"a" 1}', ":2:2: reply 2, which begins here, is not JSON: "),
    ],
)
def test_replies_that_are_not_json(cli, text, message):
    cli.write("reply.json", text)
    assert cli.error("describe", "reply.json", "--format-in", "logprobs").startswith("reply.json" + message)


def test_numbers_that_json_lacks(cli):
    cli.write("x.jsonl", '[1, NaN]\n[1, -Infinity]\n["inf", null]\n["-inf", 1e-400]\n')
    lines = cli.output("log_softmax", "x.jsonl", "-o", "/dev/stdout", "--missing", "nan").splitlines()
    assert lines[:2] == ["nan,nan", "0,-inf"]
    cli.output("log_softmax", "x.jsonl", "-o", "y.jsonl", "--missing", "nan")
    assert (cli.directory / "y.jsonl").read_text().splitlines()[:2] == ['["nan", "nan"]', '[0, "-inf"]']
    assert (
        cli.output("softmax", cli.write("y.jsonl", '{"a": NaN, "b": "NaN, \\"Infinity"}\n')) == 'a,b\nnan,"NaN, ""Infinity"\n'
    )


def test_numbers_of_json_with_many_digits(cli):
    random = np.random.default_rng(3)
    numbers = ["0.50000000000000000000", "0.69999999999999995559", "-0.1234567890123456789012345e-7", "123456789012345678901.5"]
    for _ in range(2000):
        zeros, digits = "0" * random.integers(12), "".join(map(str, random.integers(0, 10, random.integers(1, 40))))
        numbers.append(
            f"{random.choice(['', '-'])}{random.choice(['0', '7', '12'])}.{zeros}{digits}{random.choice(['', 'e-5'])}"
        )
    cli.write("x.jsonl", "".join(f"[{number}]\n" for number in numbers))
    found = cli.output("logsumexp", "x.jsonl").split()
    assert [float(one) for one in found] == [float(number) for number in numbers]
    wrong = cli.error("logsumexp", cli.write("y.jsonl", "[0.123456789012345678901x]\n"))
    assert wrong == "y.jsonl:1:1: '0.123456789012345678901x' is not a number"


def test_results_with_words(cli):
    cli.write("x.csv", "name,a,b\ncat,0,1\ndog,2,2\n")
    cli.output("gamma", "x.csv", "--entropy", 0.5, "-o", "g.jsonl")
    rows = [json.loads(line) for line in (cli.directory / "g.jsonl").read_text().splitlines()]
    assert [list(row) for row in rows] == [["name", "gamma", "entropy", "status"]] * 2
    assert [row["status"] for row in rows] == ["ok", "constant"]


@pytest.mark.parametrize("source", ENDINGS)
@pytest.mark.parametrize("target", ENDINGS)
def test_any_format_to_any(cli, source, target):
    x = X.astype(np.float64)
    cli.save("x.npy", x)
    cli.output("log_softmax", "x.npy", "-o", "a.npy")
    cli.output("log_softmax", "x.npy", "-o", f"b.{source}")
    cli.output("softmax", f"b.{source}", "-o", f"c.{target}")
    cli.output("softmax", "a.npy", "-o", "d.npy")
    assert np.array_equal(load(cli, f"c.{target}"), cli.load("d.npy"))
    cli.output("logsumexp", f"b.{source}", "-o", f"e.{target}")
    assert np.abs(load(cli, f"e.{target}")).max() < 1e-14


def zipped(*changes):
    def content(cli):
        np.savez(cli.directory / "good.npz", x=X)
        data = bytearray((cli.directory / "good.npz").read_bytes())
        (cli.directory / "good.npz").unlink()
        for change in changes:
            change(data)
        return bytes(data)

    return content


def flip(place):
    def change(data):
        data[place] ^= 0xFF

    return change


def cut(length):
    def change(data):
        del data[length:]

    return change


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda cli: b"", "the file is empty"),
        (lambda cli: b"1,2\n", "this is not an .npz file, or it is cut short"),
        (zipped(cut(100)), "this is not an .npz file, or it is cut short"),
        (zipped(flip(250)), "the zip archive is broken: a checksum is wrong"),
        (zipped(flip(1)), "the zip archive is broken or cut short"),
    ],
)
def test_broken_npz(cli, content, message):
    assert cli.error("softmax", cli.write("x.npz", content(cli)), "-o", "p.npz") == f"x.npz: {message}"


def test_zip_without_arrays(cli):
    with zipfile.ZipFile(cli.directory / "x.npz", "w") as archive:
        archive.writestr("readme.txt", "nothing")
    assert cli.error("softmax", "x.npz") == "x.npz: there is no array in the file"


def tensors(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def tensor(dtype="F64", shape=(1, 2), offsets=(0, 16)):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


NOT = "this is not a .safetensors file, or it is cut short within its header"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"1,2\n", NOT),
        (tensors(tensor(), length=2**63), NOT),
        (tensors(tensor(), length=1000), NOT),
        (tensors(b"{nonsense}"), "the header is not a JSON object"),
        (tensors(b"[1]"), "the header is not a JSON object"),
        (tensors({}), "there is no array in the file"),
        (tensors({"x": {"dtype": "F64"}}), "the header lacks dtype, shape or data_offsets for 'x'"),
        (tensors(tensor(shape=("a",))), "the header has a shape that is not of numbers for 'x'"),
        (tensors(tensor(offsets=(8, 0)), b"\0" * 16), "the header has data_offsets that are not a range for 'x'"),
        (tensors(tensor(offsets=(0, 8, 16)), b"\0" * 16), "the header has data_offsets that are not a range for 'x'"),
        (tensors(tensor(), b"\0" * 15), "the file is cut short: 'x' ends at byte 16, the file at 15"),
        (
            tensors(tensor(offsets=(0, 8)), b"\0" * 16),
            "the file is cut short: shape (1, 2) needs 16 bytes of numbers, there are 8",
        ),
        (tensors(tensor(shape=())), "the file is cut short: 'x' ends at byte 16, the file at 0"),
        (
            tensors(tensor(), b"\0" * 17),
            "the file is longer than its header says: its arrays end at byte 16, the file at 17",
        ),
        (
            tensors(tensor(offsets=(8, 24)), b"\0" * 24),
            "'x' begins at byte 8, but the array before it ends at 0",
        ),
        (
            tensors(b'{"x":' + json.dumps(tensor()["x"]).encode() + b',"x":' + json.dumps(tensor()["x"]).encode() + b"}"),
            "the header has 'x' twice",
        ),
        (
            tensors(tensor("F8_E4M3"), b"\0" * 16),
            "the array's type is 'F8_E4M3'; floats of 16, 32 and 64 bits, integers and booleans can be read",
        ),
    ],
)
def test_broken_safetensors(cli, content, message):
    assert cli.error("softmax", cli.write("x.safetensors", content), "-o", "p.safetensors") == f"x.safetensors: {message}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "x.jsonl: the file is empty"),
        ("\n", "x.jsonl: the file is empty"),
        ("[1]\n\n[2, 3]\n", "x.jsonl:3: the line has 2 numbers, and the first one has 1"),
        ("[1, 2]\n[1]\n", "x.jsonl:2: the line has 1 number, and the first one has 2"),
        ("[1, 2]\n[1, 2\n", "x.jsonl:2: the line is cut short, or there is text after the row"),
        ("[1, 2] [3]\n", "x.jsonl:1: there is text after the row"),
        ("[1, true]\n", "x.jsonl:1:2: this is not a number"),
        ('[1, "abc"]\n', "x.jsonl:1:2: 'abc' is not a number"),
        ("[1, [2]]\n", "x.jsonl:1:2: numbers stand beside arrays"),
        ("[[1, 2], 3]\n", "x.jsonl:1:3: numbers stand beside arrays"),
        ("[[1, 2], [3]]\n", "x.jsonl:1:3: the array has rows of 2 and of 1"),
        ("[[1, 2]]\n[1, 2]\n", "x.jsonl:2: the array has shape (2), and that of the first line has (1, 2)"),
        ('{"x": [1]} y\n', "x.jsonl:1: the line is cut short, or there is text after the row"),
        ("[1, 02]\n", "x.jsonl:1:2: '02' is not a number"),
        ("[1, -00.5 ]\n", "x.jsonl:1:2: '-00.5' is not a number"),
        ("[1, 2.]\n", "x.jsonl:1:2: '2.' is not a number"),
        ('{"a": 007}\n', "x.jsonl:1:1: '007' is not a number"),
        ("[1, 1e400]\n", "x.jsonl:1:2: '1e400' is too large for float64"),
        ("7\n", "x.jsonl:1: a line must be an array of numbers or an object"),
        ('[1]\n{"a": 1}\n', "x.jsonl:2: the line is an object, and the first one is not"),
        ('{"a": 1}\n[1]\n', "x.jsonl:2: the line is an array, and the first one is not"),
        ('{"a": 1, "b": 2}\n{"a": 1}\n', "x.jsonl:2: 'b' is missing"),
        ('{"a": 1, "b": 2}\n{"b": 1, "c": 2}\n', "x.jsonl:2: 'c' is not in the first line"),
        ('{"a": 1, "a": 2}\n', "x.jsonl:1: 'a' appears twice"),
        ('{"a": "x"}\n', "x.jsonl:1: there are no numbers"),
        ('{"x": [1], "s": "a"}\n{"x": [1]}\n', "x.jsonl:2: 's' is missing"),
        ('{"x": [1]}\n{"y": [1]}\n', "x.jsonl:2: 'x' is missing"),
        ('{"x": [1]}\n{"x": 1}\n', "x.jsonl:2: 'x' is not an array of numbers"),
        (
            '{"x": [1]}\n{"x": null}\n',
            "x.jsonl:2: 'x' is null, not an array of numbers"
            " (--missing nan reads it as NaN, --missing skip leaves out the row)",
        ),
        ('{"x": [1]}\n{"x": nul}\n', "x.jsonl:2: this is not a line of JSON*"),
        ('{"x": 1}\n{"x": [1]}\n', "x.jsonl:2:1: this is an array, but in the first line it was a number or null"),
        ("[1]\0\n", "x.jsonl: this is not text"),
    ],
)
def test_broken_jsonl(cli, content, message):
    found = cli.error("softmax", cli.write("x.jsonl", content), "-o", "p.jsonl")
    assert found == message if "*" not in message else found.startswith(message.partition("*")[0])


def test_nested_jsonl(cli):
    """Arrays and objects inside each other, as many as are read and one more."""
    deep = "x.jsonl:1: the line is nested too deeply: at most 1024 arrays and objects inside each other are read"

    def arrays(depth):
        return cli.write("x.jsonl", "[" * depth + "7" + "]" * depth)

    def objects(depth, before=""):
        return cli.write("x.jsonl", "{" + before + '"a": {' * (depth - 1) + '"a": [1, 1]' + "}" * depth)

    cli.output("softmax", arrays(1024), "-o", "y.jsonl")
    assert (cli.directory / "y.jsonl").read_text() == "[" * 1024 + "1" + "]" * 1024 + "\n"
    assert cli.error("softmax", arrays(1025)) == deep
    assert "choose that with --key a.a.a" in cli.error("softmax", objects(1024))
    assert cli.error("softmax", objects(1025)) == deep
    key = ".".join("a" * 1024)
    assert cli.output("softmax", objects(1024), "--key", key) == "0.5,0.5\n"
    # An array in an object before it: only the key leads to the deep one.
    for depth, found in ((1024, "0.5,0.5\n"), (1025, deep)):
        key, file = ".".join("a" * depth), objects(depth, '"b": {"c": [1]}, ')
        ask = cli.output if depth == 1024 else cli.error
        assert ask("softmax", file, "--key", key) == found


def test_labels_of_jsonl_stay_what_they_are(cli):
    """The label's field keeps its name, and a number stays a number."""
    cli.write("x.jsonl", '{"id": 17, "x": [0, 2, 1]}\n')
    cli.write("word.jsonl", '{"id": "17", "x": [0, 2, 1]}\n')
    for command in (["gamma", "--entropy", 0.5], ["softmax"], ["describe", "--input", "scores"], ["sample", "--seed", 1]):
        for file, label, options in (("x.jsonl", 17, ["--labels", "id"]), ("x.jsonl", 17, []), ("word.jsonl", "17", [])):
            row = json.loads(cli.output(command[0], file, *command[1:], *options, "--format-out", "jsonl"))
            assert row["id"] == label and "label" not in row


def test_draws_of_jsonl_have_the_name_of_the_operation(cli):
    cli.write("x.jsonl", '{"id": "a", "x": [0, 99, 1]}\n')
    drawn = ("sample", "x.jsonl", "--seed", 1, "--format-out", "jsonl")
    assert cli.output(*drawn) == '{"id": "a", "sample": 1}\n'
    assert cli.output(*drawn, "--count", 2) == '{"id": "a", "sample": [1, 1]}\n'
    assert cli.output("sample", "x.jsonl", "--probs", "--format-out", "jsonl").startswith('{"id": "a", "sample": [')


def test_keys_swap_places(cli):
    file = cli.write("x.jsonl", '{"a": 0, "b": 1}\n{"b": 0, "a": 1}\n')
    assert cli.output("sparsemax", file) == "a,b\n0,1\n1,0\n"


@pytest.mark.parametrize("name", ["x.csv", "x.npy"])
def test_no_key(cli, name):
    cli.save("x.npy", X)
    cli.write("x.csv", "1,2\n")
    assert cli.error("softmax", name, "--key", "a") == f"{name}: only .npz, .jsonl and .safetensors files have a key"


def zstd(data, *options):
    return subprocess.run(["zstd", "-q", "-c", *options], input=data, capture_output=True, check=True).stdout


PACKINGS = {
    "gz": ("gzip", gzip.compress, gzip.decompress),
    "zst": ("zstd", zstd, lambda packed: zstd(packed, "-d")),
}


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("ending", ["csv", "tsv", "npy", "npz", "jsonl", "safetensors"])
def test_packed(cli, ending, packing):
    """What is called so is packed and unpacked; others read it too, and the same numbers give the same bytes."""
    tool, pack, unpack = PACKINGS[packing]
    cli.save("x.npy", X)
    cli.output("softmax", "x.npy", "-o", f"p.{ending}")
    cli.output("softmax", "x.npy", "-o", f"p.{ending}.{packing}")
    packed, plain = ((cli.directory / name).read_bytes() for name in (f"p.{ending}.{packing}", f"p.{ending}"))
    assert unpack(packed) == plain
    cli.output("softmax", "x.npy", "-o", f"again.{ending}.{packing}")
    assert (cli.directory / f"again.{ending}.{packing}").read_bytes() == packed
    assert cli.output("entropy", f"p.{ending}.{packing}") == cli.output("entropy", f"p.{ending}")
    cli.write(f"theirs.{ending}.{packing}", pack(plain))
    assert cli.output("entropy", f"theirs.{ending}.{packing}") == cli.output("entropy", f"p.{ending}")
    cut = cli.write(f"cut.{ending}.{packing}", packed[: len(packed) // 2])
    assert cli.error("entropy", cut, "-o", "h.csv") == f"{cut}: the packed file ends too early"
    damaged = cli.write(f"bad.{ending}.{packing}", packed[:20] + b"!!!!" + packed[24:])
    assert cli.error("entropy", damaged, "-o", "h.csv")
    none = cli.write(f"none.{ending}.{packing}", plain)
    assert cli.error("entropy", none).startswith(f"{none}: this is not {tool}, or it is damaged: ")
    empty = cli.write(f"empty.{ending}.{packing}", b"")
    assert cli.error("entropy", empty) == f"{empty}: the packed file ends too early"
    assert f"this is packed by {tool}" in cli.error("entropy", stdin=packed)


@pytest.mark.parametrize("packing", PACKINGS)
def test_packed_twice(cli, packing):
    pack = PACKINGS[packing][1]
    cli.write(f"x.csv.{packing}", pack(b"1,2\n") + pack(b"3,5\n"))
    assert len(cli.output("softmax", f"x.csv.{packing}").splitlines()) == 2
    assert cli.error("softmax", cli.write("x.csv.xz", b"")) == (
        "x.csv.xz: only .gz and .zst are unpacked; use a pipe for others: xz -dc x.csv.xz | isentropic ..."
    )


def test_arrays_in_arrays(cli):
    """Rows are along the last axis, as in NumPy; the rows of a line stay together."""
    cube = np.random.default_rng(3).standard_normal((4, 2, 3, 5))
    cli.write(
        "x.jsonl", "".join(json.dumps({"id": f"r{i}", "of": i, "x": block.tolist()}) + "\n" for i, block in enumerate(cube))
    )
    found = [json.loads(line) for line in cli.output("softmax", "x.jsonl", "--format-out", "jsonl").splitlines()]
    assert [(row["id"], row["of"]) for row in found] == [(f"r{i}", i) for i in range(4)]
    want = np.exp(cube) / np.exp(cube).sum(-1, keepdims=True)
    np.testing.assert_allclose(np.array([row["softmax"] for row in found]), want, rtol=1e-12)
    found = cli.output("entropy", "x.jsonl", "--input", "scores", "--format-out", "jsonl").splitlines()
    np.testing.assert_allclose([json.loads(row)["entropy"] for row in found], -(want * np.log(want)).sum(-1), rtol=1e-12)
    cli.output("softmax", "x.jsonl", "-o", "p.npy")
    assert np.load(cli.directory / "p.npy").shape == cube.shape
    # In lines of text each row has its line's label; parts of a file are rows one by one.
    assert [line.split(",")[0] for line in cli.output("softmax", "x.jsonl").splitlines()] == [f"r{i // 6}" for i in range(24)]
    assert len(cli.output("softmax", "x.jsonl", "--rows", "5:8", "--format-out", "jsonl").splitlines()) == 3


def test_missing_in_arrays(cli):
    cli.write("x.jsonl", "[[1, 2], [3, null]]\n[[null, 1], [5, 6]]\n")
    assert cli.error("softmax", "x.jsonl").startswith("x.jsonl:1:4: null is not a number")
    assert cli.output("sparsemax", "x.jsonl", "--missing", "skip") == "0,1\n0,1\n"
    assert cli.output("sparsemax", "x.jsonl", "--missing", "nan", "--format-out", "jsonl") == (
        '[[0, 1], ["nan", "nan"]]\n[["nan", "nan"], [0, 1]]\n'
    )


@pytest.mark.parametrize("name", ["csv", "tsv", "npy", "npz", "jsonl", "safetensors"])
def test_format_out(cli, name):
    """The same bytes as by the file's name: on standard output, through a pipe, in a file with another name."""
    cli.save("x.npy", X)
    cli.output("softmax", "x.npy", "-o", f"want.{name}")
    want = (cli.directory / f"want.{name}").read_bytes()
    assert cli("softmax", "x.npy", "--format-out", name).stdout == want
    cli.output("softmax", "x.npy", "--format-out", name, "-o", "other.txt")
    assert (cli.directory / "other.txt").read_bytes() == want
    message = "softmax: --format-out must be csv, tsv, npy, npz, jsonl or safetensors, got 'logprobs'"
    assert cli.error("softmax", "x.npy", "--format-out", "logprobs") == message


def test_precision(cli):
    cli.write("x.csv", "a,b\n1,2\n")
    assert cli.output("softmax", "x.csv", "--precision", 3) == "a,b\n0.269,0.731\n"
    assert cli.output("softmax", "x.csv", "--precision", 3, "--format-out", "jsonl") == '{"a": 0.269, "b": 0.731}\n'
    assert cli.output("sample", "x.csv", "--seed", 1, "--precision", 1, "--count", 3).splitlines()[0] == "draw1,draw2,draw3"
    for ending in ("npy", "npz", "safetensors"):
        message = f"--precision is for numbers in text; a .{ending} keeps all their digits"
        assert cli.error("softmax", "x.csv", "--precision", 3, "-o", f"p.{ending}") == message
        assert cli.error("sample", "x.csv", "--probs", "--precision", 3, "-o", f"p.{ending}") == message
    for wrong in (0, 18):
        assert cli.error("softmax", "x.csv", "--precision", wrong) == f"--precision must be from 1 to 17, got {wrong}"


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_what_python_reads(cli, ending):
    assert cli.error("softmax", cli.write("x" + ending, b"")).startswith(f"x{ending}: {ending} is read in Python: ")


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a\\b", "c:x", "a\x1b[31m"])
def test_names_of_arrays_that_lead_elsewhere(cli, name):
    with zipfile.ZipFile(cli.directory / "x.npz", "w") as archive:
        buffer = io.BytesIO()
        np.save(buffer, X)
        archive.writestr(name + ".npy", buffer.getvalue())
    cli.output("softmax", "x.npz", "-o", "p.npz")
    assert np.load(cli.directory / "p.npz").files == ["arr_0"]


def test_gzip_behind_another_name(cli):
    message = "this is packed by gzip; a file's name must end in .gz, and a pipe needs gzip -dc"
    assert cli.error("softmax", cli.write("x.csv", gzip.compress(b"1,2\n"))) == f"x.csv: {message}"
    cli.write("x.csv.gz", gzip.compress(b"1,1\n") + bytes(600))
    assert cli.output("softmax", "x.csv.gz") == "0.5,0.5\n"
