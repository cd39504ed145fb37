"""Bad input for every format and every kind of command: one sentence that names the file and the place, and nothing written."""

import io
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

ENDINGS = ["csv", "tsv", "npy", "npz", "jsonl", "safetensors"]
P = np.array([[0.5, 0.25, 0.25], [0.125, 0.375, 0.5], [0.0, 0.5, 0.5]])
BODY = P.tobytes()

# One command of every group, wherever it takes a file; good.csv is beside it.
COMMANDS = [
    ["softmax", "FILE", "-o", "out.npy"],
    ["logsumexp", "FILE", "-o", "out.csv"],
    ["gamma", "FILE", "--entropy", "0.5", "-o", "out.csv"],
    ["power_transform", "FILE", "--gamma", "2", "-o", "out.jsonl"],
    ["entropy", "FILE"],
    ["self_information", "FILE", "-o", "out.safetensors"],
    ["kl_divergence", "FILE", "good.csv", "-o", "out.npz"],
    ["kl_divergence", "good.csv", "FILE", "--format-in", "csv"],
    ["mutual_information", "FILE", "-o", "out.csv"],
    ["sample", "FILE", "--seed", "1", "-o", "out.npy"],
    ["compare", "FILE", "-o", "out.html", "--format", "html"],
    ["transport", "--a", "FILE", "--b", "good.csv", "--cost", "good.csv", "-o", "out.csv"],
    ["transport", "--a", "row.csv", "--b", "row.csv", "--cost", "FILE"],
]
NAMES = [" ".join(command[:3]) for command in COMMANDS]


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def described(descr="<f8", shape=(3, 3), body=BODY):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + body


def npz(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name + ".npy", content)
    return file.getvalue()


def safetensors(dtype="F64", shape=(3, 3), offsets=(0, 72), body=BODY, **more):
    header = json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}, **more}).encode()
    return struct.pack("<Q", len(header)) + header + body


def flipped(content, needle):
    """One bit of the bytes turned around, where they are."""
    at = content.index(needle)
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def separated(text, separator):
    return text.replace(",", separator).encode()


def text_cases(separator):
    return {
        "word": (separated("0.5,0.5\n0.5,abc\n", separator), r":2:2: 'abc' is not a number"),
        "bool": (separated("0.5,0.5\n0.5,True\n", separator), r":2:2: 'True' is not a number"),
        "complex": (separated("0.5,0.5\n0.5,1+2j\n", separator), r":2:2: '1\+2j' is not a number"),
        "ragged": (separated("0.5,0.5\n1\n", separator), r":2:2: the line ends after 1 of 2 cells"),
        "wide": (separated("0.5,0.5\n1,0,0\n", separator), r":2:3: the line has 3 cells"),
        "too large": (separated("0.5,0.5\n1e999,0\n", separator), r":2:1: '1e999' is too large"),
        "truncated": (separated('0.5,0.5\n0.5,"0.', separator), r":2:2: a quote is opened and never closed"),
        "binary": (b"0.5\0\n", r": this is not text"),
    }


CASES = {
    "csv": text_cases(","),
    "tsv": text_cases("\t"),
    "jsonl": {
        "word": (b'[0.5, 0.5]\n[0.5, "abc"]\n', r":2:2: 'abc' is not a number"),
        "bool": (b"[0.5, 0.5]\n[0.5, true]\n", r":2:2: "),
        "nested": (b"[0.5, 0.5]\n[0.5, [1]]\n", r":2:2: "),
        "ragged": (b"[0.5, 0.5]\n[1]\n", r":2: the line has 1 number, and the first one has 2"),
        "truncated": (b"[0.5, 0.5]\n[0.5, 0.", r":2: "),
        "other form": (b'[0.5, 0.5]\n{"a": [0.5, 0.5]}\n', r":2: the line is an object"),
        "deep": (b"[" * 100_000 + b"1" + b"]" * 100_000, r":1: the line is nested too deeply: at most 1024 "),
        "deep object": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, r":1: the line is nested too deeply: at most 1024 "),
        "binary": (b"[0.5]\0\n", r": this is not text"),
    },
    "npy": {
        "strings": (npy(P.astype(str)), r": the array's type is '<U"),
        "complex": (npy(P.astype(complex)), r": the array's type is '<c16'"),
        "objects": (npy(P.astype(object)), r": the array holds Python objects"),
        "records": (npy(np.zeros(3, [("a", "f8")])), r": the array holds records"),
        "truncated": (npy(P)[:-5], r": the file is cut short: shape \(3, 3\) needs 72 bytes of numbers, there are 67"),
        "header cut": (npy(P)[:50], r": the file is cut short within its header"),
        "lying header": (described(shape=(3, 4)), r": the file is cut short: shape \(3, 4\) needs 96 bytes"),
        "too long": (described(shape=(3, 2)), r": the file is longer than its header says"),
        "number": (npy(np.float64(1)), r": the array is a single number"),
        "another": (b"0.5,0.5\n", r": this is not an \.npy file"),
    },
    "npz": {
        "strings": (npz(a=npy(P.astype(str))), r": the array's type is '<U"),
        "truncated": (npz(a=npy(P))[:-30], r": this is not an \.npz file, or it is cut short"),
        "lying header": (npz(a=described(shape=(3, 4))), r": the file is cut short"),
        "checksum": (flipped(npz(a=npy(P)), BODY), r": the zip archive is broken: a checksum is wrong"),
        "no array": (npz().replace(b"PK\x05\x06", b"PK\x05\x07"), r": this is not an \.npz file"),
        "two arrays": (npz(a=npy(P), b=npy(P)), r": there are several arrays: 'a', 'b'(; choose one with --key)?$"),
        "another": (b"0.5,0.5\n", r": this is not an \.npz file"),
    },
    "safetensors": {
        "type": (safetensors(dtype="F8_E5M2"), r": the array's type is 'F8_E5M2'"),
        "truncated": (safetensors()[:-5], r": the file is cut short: 'a' ends at byte 72, the file at 67"),
        "header cut": (safetensors()[:30], r": .*cut short within its header"),
        "lying header": (safetensors(shape=(3, 4)), r": the file is cut short"),
        "lying length": (b"\xff" * 8 + safetensors()[8:], r": this is not a \.safetensors file"),
        "no JSON": (struct.pack("<Q", 2) + b"[}", r": the header is not a JSON object"),
        "two arrays": (
            safetensors(b={"dtype": "F64", "shape": [0, 3], "data_offsets": [72, 72]}),
            r": there are several arrays: 'a', 'b'(; choose one with --key)?$",
        ),
        "another": (b"0.5,0.5\n0.5,0.5\n", r": this is not a \.safetensors file"),
    },
}


def prepared(cli, command, file):
    cli.write("good.csv", "0.5,0.25,0.25\n" * 3)
    cli.write("row.csv", "1,0,0\n")
    cli.write("out.npy", "what was there before")
    return [file if word == "FILE" else word for word in command]


def refused(cli, command, file, expected):
    # `sample` and the like may say what they are before the file that is wrong.
    message = cli.error(*prepared(cli, command, file))
    assert re.match(rf"(transport: )?{re.escape(file)}{expected}", message), f"{command}: {message}"


@pytest.mark.parametrize(("ending", "case"), [(ending, case) for ending in ENDINGS for case in CASES[ending]])
def test_contents(cli, ending, case):
    content, expected = CASES[ending][case]
    file = cli.write(f"x y.{ending}", content)
    for command in COMMANDS:
        refused(cli, command, file, expected)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_files(cli, ending, command):
    refused(cli, command, f"no.{ending}", ": No such file or directory$")
    refused(cli, command, cli.write(f"x.{ending}", b""), ": the file is empty$")
    (cli.directory / f"folder.{ending}").mkdir()
    refused(cli, command, f"folder.{ending}", ": this is a folder, not a file$")
    os.symlink(f"loop.{ending}", cli.directory / f"loop.{ending}")
    refused(cli, command, f"loop.{ending}", ": Too many levels of symbolic links$")


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_without_permission(cli, command):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in "good.csv", "row.csv", "FILE.csv":
            Path(folder, name).write_text("0.5,0.5\n")
        os.chmod(Path(folder, "FILE.csv"), 0)
        user = {}
        if os.geteuid() == 0:  # who may read everything: the program runs as nobody
            user = {"user": 65534}
            if subprocess.run(["/bin/sh", "-c", f"test -x '{cli.program}'"], **user).returncode != 0:
                shutil.copy(cli.program, folder)
                os.chmod(Path(folder, "isentropic"), 0o755)
        program = Path(folder, "isentropic") if Path(folder, "isentropic").exists() else cli.program
        words = [f"{word}.csv" if word == "FILE" else word for word in command]
        words = words[: words.index("-o")] if "-o" in words else words
        done = subprocess.run([program, *words], cwd=folder, capture_output=True, **user)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.decode() == "isentropic: FILE.csv: Permission denied\n"


@pytest.mark.parametrize("ending", ENDINGS)
def test_keys(cli, ending):
    contents = {"npz": npz(a=npy(P)), "safetensors": safetensors(), "jsonl": b'{"a": [0.5, 0.25, 0.25]}\n', "npy": npy(P)}
    file = cli.write(f"x.{ending}", contents.get(ending, b"0.5\n"))
    expected = {"npz": "there is no array 'b'; the file has 'a'", "safetensors": "there is no array 'b'; the file has 'a'"}
    expected["jsonl"] = "'b' is missing"
    place = ":1" if ending == "jsonl" else ""
    for command in COMMANDS:
        if command[0] == "transport" or command[1] != "FILE":
            continue
        what = expected.get(ending, "only .npz, .jsonl and .safetensors files have a key")
        refused(cli, [*command, "--key", "b"], file, re.escape(f"{place}: {what}"))


TEXT = ("csv", "tsv", "jsonl")  # files of lines


def encoded(ending, array):
    """The array as a file of this ending."""
    if ending in ("csv", "tsv"):
        separator = "," if ending == "csv" else "\t"
        return "".join(separator.join(map(repr, row)) + "\n" for row in array.tolist())
    if ending == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in array.tolist())
    if ending == "safetensors":
        return safetensors(shape=array.shape, offsets=(0, array.nbytes), body=array.tobytes())
    return npz(a=npy(array)) if ending == "npz" else npy(array)


@pytest.mark.parametrize("ending", ENDINGS)
def test_nan(cli, ending):
    """Scores may be NaN, and make their row NaN; probabilities may not."""
    file = cli.write(f"x.{ending}", encoded(ending, np.array([[0.5, 0.5], [np.nan, 1]])))
    assert cli.output("softmax", file).splitlines()[-2:] == ["0.5,0.5", "nan,nan"]
    assert cli.output("sample", file, "--seed", 1).splitlines()[-1] == "-1"
    assert cli.output("gamma", file, "--entropy", 0.5).splitlines()[2] == "nan,nan,invalid"
    for command in [["entropy", file], ["kl_divergence", file, file], ["binary_entropy", file]]:
        message = cli.error(*command, "-o", "y.csv")
        place, row = (":2:1", "") if ending in TEXT else ("", " at entry 0 in row 1")
        assert re.match(rf"{file}{place}: {command[0]}: p must be [^;]*, got nan{row}(;.*)?$", message), message


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_are_those_of_the_file(cli, ending, threads):
    """Where a file comes in parts, a message counts from the first row of the file."""
    p = np.full((70_000, 4), 0.25)
    p[60_001, 2] = 2
    file = cli.write(f"x.{ending}", encoded(ending, p))
    cli.write("q.csv", "0.25,0.25,0.25,0.25\n")
    for command in [["entropy", file], ["kl_divergence", file, "q.csv"]]:
        message = cli.error(*command, "--threads", threads, "-o", "y.csv")
        place, row = (":60002", "") if ending in TEXT else ("", " in row 60001")
        assert message.startswith(f"{file}{place}: {command[0]}: p must sum to 1 within 1e-06, got 2.75{row};"), message


def places(cli, *arguments):
    """What a message begins with, before the name of the operation."""
    return re.match(r"(.*?):? (?!\d)", cli.error(*arguments, "-o", "out.csv")).group(1)


def test_places_in_a_csv(cli):
    """The line and cell of an entry, whatever is left out before it."""
    cli.write("x.csv", 'a,l,b\n0.5,x,0.5\n,"y\nz",-3\n0.5,"u\nv",-0.5\n0.5,w,0.6\n')
    skip = ("--missing", "skip")
    assert places(cli, "entropy", "x.csv", *skip) == "x.csv:6:3"
    assert places(cli, "entropy", "x.csv", *skip, "--rows", "1:2") == "x.csv:6:3"
    assert places(cli, "entropy", "x.csv", *skip, "--rows", "2:") == "x.csv:7"
    assert places(cli, "entropy", "x.csv", "--missing", "nan", "--rows", "2:3") == "x.csv:6:3"
    assert places(cli, "describe", "x.csv", *skip, "--keep", "l", "--columns", "b,a") == "x.csv:6:3"
    cli.write("good.csv", "a,l,b\n" + "0.5,x,0.5\n" * 3)
    assert places(cli, "entropy", "good.csv", "x.csv", *skip) == "x.csv:6:3"
    assert places(cli, "entropy", "good.csv", "x.csv", "--missing", "nan", "--rows", "5:6") == "x.csv:6:3"
    cli.write("bare.csv", "a,b\n" + "0.5,0.5\n" * 3)
    assert places(cli, "kl_divergence", "bare.csv", "x.csv", "--missing", "nan") == "x.csv:3:1"
    assert places(cli, "joint_entropy", "x.csv", *skip) == "x.csv:6:3"
    assert places(cli, "self_information", "x.csv", *skip) == "x.csv:6:3"
    assert places(cli, "wasserstein_histogram", "x.csv", "bare.csv", "--missing", "skip") == "x.csv:6:3"


def test_places_in_a_jsonl(cli):
    cli.write("named.jsonl", '{"l": "y", "a": 0.5, "b": 0.5}\n\n{"l": "x", "b": 1.5, "a": -0.5}\n')
    assert places(cli, "entropy", "named.jsonl") == "named.jsonl:3:3"
    cli.write("array.jsonl", '{"p": [0.5, 0.5]}\n \n{"p": [0.5, 0.9]}\n')
    assert places(cli, "entropy", "array.jsonl") == "array.jsonl:3"
    cli.write("nested.jsonl", "[[0.5, 0.5], [1, 0]]\n[[0.5, 0.5], [0.5, -1]]\n")
    assert (
        places(cli, "entropy", "nested.jsonl") == places(cli, "entropy", "nested.jsonl", "--rows", "3:") == "nested.jsonl:2:4"
    )
    cli.write(
        "reply.json", '[{"token": "é", "top_logprobs": [{"logprob": 0}]},\n {"token": "b", "top_logprobs": [{"logprob": -1}]}]'
    )
    given = ("reply.json", "--format-in", "logprobs", "--input", "log_probs")
    assert places(cli, "entropy", *given) == places(cli, "entropy", *given, "--rows", "1:") == "reply.json:2:2"


@pytest.mark.parametrize("ending", ["npy", "npz", "safetensors"])
def test_rows_of_an_array_are_counted_from_its_first(cli, ending):
    p = np.full((4, 2), 0.5)
    p[3] = [0.75, -1]
    file = cli.write(f"x.{ending}", encoded(ending, p))
    for options in ([], ["--rows", "2:"]):
        for command in ("entropy", "joint_entropy", "self_information"):
            message = cli.error(command, file, *options)
            assert re.match(rf"{file}: {command}: px?y? must be .*, got -1 at (entry|column) 1 in row 3", message), message
        cli.write("y.csv", "0\n" * 4)
        message = cli.error("expected_calibration_error", file, "y.csv", *options)
        assert message.startswith(f"{file}: expected_calibration_error: p must be ") and message.endswith(" in row 3")


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_full_disk(cli, command):
    if command[0] == "transport":
        command = ["transport", "--a", "row.csv", "--b", "row.csv", "--cost", "FILE"]
    if command[0] == "mutual_information":
        command = [*command, "--normalize"]
    cli.write("P.csv", "\n".join(",".join(map(str, row)) for row in P.tolist()) + "\n")
    words = prepared(cli, command, "P.csv")
    words = words[: words.index("-o")] + words[words.index("-o") + 2 :] if "-o" in words else words
    assert cli.error(*words, "-o", "/dev/full", status=1) == "/dev/full: No space left on device"


def test_messages_do_not_speak_to_the_terminal(cli):
    for name, shown in [
        ("a\x1b[31m.csv", "a\\x1b[31m.csv"),
        ("b\u009b.csv", "b\\x9b.csv"),
        ("c\u202ed.csv", "c\\u202ed.csv"),
        ("d\n.csv", "d\\x0a.csv"),
    ]:
        assert cli.error("softmax", name) == f"{shown}: No such file or directory"
    assert cli.error("softmax", "ü 東.csv") == "ü 東.csv: No such file or directory"


@pytest.mark.parametrize(
    ("arguments", "content"),
    [
        (["softmax", "--temperature", "-nan"], "1,2\n"),
        (["entmax", "--alpha", "-nan"], "1,2\n"),
        (["entropy"], "-nan,1\n"),
        (["entropy", "--input", "log_probs"], "-nan,0\n"),
        (["joint_entropy"], "-nan,1\n"),
        (["kl_divergence", "x.csv"], "-nan,1\n"),
        (["wasserstein_histogram", "x.csv"], "-nan,1\n"),
        (["wasserstein", "x.csv"], "-nan,1\n"),
        (["softmax_loss", "x.csv"], "-nan\n1\n"),
        (["expected_calibration_error", "t.csv"], "-nan,1\n"),
    ],
)
def test_a_nan_has_no_sign_in_a_message(cli, arguments, content):
    cli.write("x.csv", content)
    cli.write("t.csv", "0\n")
    done = cli(arguments[0], "x.csv", *arguments[1:])
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 2 and "nan" in said and "-nan" not in said, said


@pytest.mark.parametrize("form", ["csv", "jsonl", "text", "json"])
def test_a_nan_has_no_sign_in_a_result(cli, form):
    cli.write("x.csv", "-nan,1\n1,2\n")
    command = ["compare", "--format", form] if form in ("text", "json") else ["softmax", "--format-out", form]
    said = cli.output(command[0], "x.csv", *command[1:])
    assert "nan" in said and "-nan" not in said
