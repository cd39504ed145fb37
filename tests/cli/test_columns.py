"""Which cells of a table are scores, names and labels, and who decides."""

import json

import numpy as np
import pytest
from conftest import parsed, softmax

import isentropic

X = np.array([[0.5, 1.5, -1.0], [2.0, 0.25, 0.125]])
P = softmax(X)


def table(header, rows=X, separator=","):
    lines = [separator.join(header)] if header else []
    return "\n".join(lines + [separator.join(map(str, row)) for row in rows]) + "\n"


def rows_of(text, columns=slice(None)):
    return parsed("\n".join(",".join(line.split(",")[columns]) for line in text.splitlines()))


def test_numbered_columns_are_an_error_that_says_which_flag_decides(cli):
    cli.write("x.csv", table(["0", "1", "2"]))
    assert cli.error("softmax", "x.csv") == (
        "x.csv:1: the first line, 0 to 2, may be names or scores: --header takes it as names, --no-header as scores"
    )
    named = cli.output("softmax", "x.csv", "--header").splitlines()
    assert named[0] == "0,1,2"
    np.testing.assert_allclose(parsed("\n".join(named[1:])), P)
    assert parsed(cli.output("softmax", "x.csv", "--no-header")).shape == (3, 3)


def test_the_empty_corner_of_pandas_and_r_is_above_labels(cli):
    cli.write("x.csv", ",0,1,2\n0,0.5,1.5,-1\n1,2,0.25,0.125\n")
    lines = cli.output("softmax", "x.csv").splitlines()
    assert lines[0] == '"",0,1,2' and [line[:2] for line in lines[1:]] == ["0,", "1,"]
    np.testing.assert_allclose(rows_of("\n".join(lines[1:]), slice(1, 4)), P)
    cli.write("r.csv", '"","a","b","c"\n"1",0.5,1.5,-1\n"2",2,0.25,0.125\n')
    lines = cli.output("softmax", "r.csv").splitlines()
    assert lines[0] == '"",a,b,c' and lines[1].startswith("1,")
    # write.table leaves the corner out, and quotes too if asked.
    cli.write("t.csv", '"a","b","c"\n"1",0.5,1.5,-1\n"2",2,0.25,0.125\n')
    assert cli.output("softmax", "t.csv").splitlines() == lines
    cli.write("t.csv", "a,b,c\n1,0.5,1.5,-1\n2,2,0.25,0.125\n")
    assert cli.output("softmax", "t.csv").splitlines() == lines
    cli.write("t.csv", '"a","b","c"\n"0.5",0.5,1.5,-1\n"-1",2,0.25,0.125\n')
    assert [line.split(",")[0] for line in cli.output("softmax", "t.csv").splitlines()] == ['""', "0.5", "-1"]
    cli.write("t.csv", "a,b,c\nu,0.5,1.5,-1\nv,2,0.25,0.125\n")
    assert [line.split(",")[0] for line in cli.output("softmax", "t.csv").splitlines()] == ['""', "u", "v"]


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize(
    ("first", "second", "missing", "header"),
    [
        (",0,1", "0,0.5,1.5", None, True),  # as pandas counts columns and rows
        (",2019,2020", "0.5,1.5,2.5", None, True),
        (",2019,2020", "0,,2.5", "nan", True),
        (",0.25,0.75", "0,1.5,2.5", None, True),  # quantiles
        (",0.25,0.75", "cat,1.5,2.5", "nan", True),
        (",-2.6,a", "1.6,1.5,2.5", "skip", True),
        (",0.25,0.75", "0,1.5,2.5", "nan", None),
        (",-2.6,6.5", "1.6,3.5,2.5", None, None),
        (",-2.6,6.5", "1.6,3.5,2.5", "nan", None),
        (",-2.6,NA", "1.6,3.5,2.5", "skip", None),
        (",-2.6,6.5", "NA,3.5,2.5", "nan", None),
    ],
)
def test_an_empty_cell_before_numbers_is_above_labels_or_missing(cli, separator, first, second, missing, header):
    """A row that begins with a missing score is not lost as a header."""
    name = "x.csv" if separator == "," else "x.tsv"
    cli.write(name, f"{first}\n{second}\n".replace(",", separator))
    options = ["--missing", missing] if missing else []
    if header is None:
        assert cli.error("softmax", name, *options) == (
            f"{name}:1: the first line, with an empty cell before numbers, may be names or scores: --header takes it as names, "
            "--no-header as scores"
        )
        if missing:
            rows = cli.output("softmax", name, *options, "--no-header").splitlines()
            assert len(rows) == 1 + (missing == "nan")
    else:
        assert len(cli.output("softmax", name, *options).splitlines()) == 2
    if "NA" not in first + second:
        label = second.split(",")[0]
        assert cli.output("softmax", name, *options, "--header").splitlines()[1].startswith(f"{label},")


@pytest.mark.parametrize(
    ("text", "place", "cells"),
    [
        ("my scores\n1.5,2\n0.5,9\n", "2:2", "2 cells, and the first one has 1"),
        ("a,b\n0.3,2,3\n0.5,1,2\n", "2:3", "3 cells, and the first one has 2"),
        ("a,b\n1,2,3\n-0.5,1,2\n", "3:3", "3 cells, and the first one has 2"),
        ("a,b\nu,2,3\n2.5,1,2\n", "3:3", "3 cells, and the first one has 2"),
        ("a,b\n+1,2,3\n", "2:3", "3 cells, and the first one has 2"),
        ("a,b\n,2,3\n", "2:3", "3 cells, and the first one has 2"),
        ("a,b\n10%,2,3\n", "2:3", "3 cells, and the first one has 2"),
        ("# a title\n1,2\n3,4\n", "2:2", "2 cells, and the first one has 1; it begins with #, but comments are not skipped"),
        ("# a,b\n1,2,3,4\n", "2:3", "4 cells, and the first one has 2; it begins with #, but comments are not skipped"),
    ],
)
@pytest.mark.parametrize("header", [[], ["--header"]])
def test_a_title_does_not_make_labels_of_scores(cli, text, place, cells, header):
    cli.write("x.csv", text)
    assert cli.error("softmax", "x.csv", *header) == f"x.csv:{place}: the line has {cells}"


def test_what_savetxt_writes_under_a_title(cli):
    np.savetxt(cli.directory / "x.csv", X, delimiter=",", header="my scores")
    assert "it begins with #" in cli.error("softmax", "x.csv")
    np.savetxt(cli.directory / "x.csv", X, delimiter=",", header="a,b,c")
    np.testing.assert_allclose(parsed("\n".join(cli.output("softmax", "x.csv").splitlines()[1:])), P)


def test_labels_of_any_kind_without_a_corner(cli):
    cli.write("x.csv", "a,b\n0.3,1,1\n-0.5,1,1\n")
    assert cli.output("softmax", "x.csv", "--labels", 1) == '"",a,b\n0.3,0.5,0.5\n-0.5,0.5,0.5\n'


def test_a_column_of_ids_does_not_join_the_softmax(cli):
    cli.write("x.csv", "id,a,b,c\n17,0.5,1.5,-1\n18,2,0.25,0.125\n")
    message = cli.error("softmax", "x.csv")
    assert message.startswith("x.csv:1:1: column 'id' may be scores or the rows' names: --labels 1 ")
    for option in (["--labels", "id"], ["--labels", 1]):
        lines = cli.output("softmax", "x.csv", *option).splitlines()
        assert lines[0] == "id,a,b,c" and lines[1].startswith("17,")
        np.testing.assert_allclose(rows_of("\n".join(lines[1:]), slice(1, 4)), P)
    for option in (["--exclude", "id"], ["--columns", "a,b-c"], ["--columns", "2-4"]):
        lines = cli.output("softmax", "x.csv", *option).splitlines()
        assert lines[0] == "a,b,c"
        np.testing.assert_allclose(parsed("\n".join(lines[1:])), P)
    assert cli.output("softmax", "x.csv", "--columns", "1-4").splitlines()[0] == "id,a,b,c"


def test_columns_and_labels_by_name(cli):
    cli.write("x.csv", "when,word,a,note,b-c,d\n2024,one,0.5,x,1.5,-1\n2025,two,2,,0.25,0.125\n")
    lines = cli.output("softmax", "x.csv", "--labels", "word", "--columns", "a,b-c-d").splitlines()
    assert lines[0] == "word,a,b-c,d" and lines[2].startswith("two,")
    np.testing.assert_allclose(rows_of("\n".join(lines[1:]), slice(1, 4)), P)
    lines = cli.output("softmax", "x.csv", "--labels", "word", "--exclude", "when,note").splitlines()
    assert lines[0] == "word,a,b-c,d"
    assert cli.error("softmax", "x.csv", "--columns", "a,z").startswith("x.csv: --columns: there is no column called 'z'")
    assert cli.error("softmax", "x.csv", "--columns", "9") == "x.csv: --columns names column 9, but there are only 6 columns"
    assert cli.error("softmax", "x.csv", "--columns", "d-a") == "x.csv: --columns: 'd-a' goes backwards"
    assert cli.error("softmax", "x.csv", "--labels", "z").startswith("x.csv: --labels: there is no column called 'z'")
    cli.write("y.csv", "a,b,a\n1.5,0.5,2.5\n")
    for command, option in (("softmax", "labels"), ("softmax", "columns"), ("softmax", "exclude"), ("describe", "keep")):
        assert cli.error(command, "y.csv", f"--{option}", "a") == (
            f"y.csv: --{option}: several columns are called 'a'; their numbers, counted from 1, tell them apart"
        )
    assert cli.output("softmax", "y.csv", "--columns", "b-3").splitlines()[0] == "b,a"
    cli.save("x.npy", X)
    assert cli.error("softmax", "x.npy", "--columns", "1") == (
        "x.npy: --columns is for columns of .csv and .tsv; an .npy file has none with names"
    )


def test_delimiters(cli):
    text = table(["a", "b", "c"], separator=";")
    cli.write("x.csv", text)
    assert cli.error("softmax", "x.csv") == (
        "x.csv:1: the cells look separated by semicolons; if they are, give --delimiter ';' "
        "(numbers may have decimal commas then), otherwise --delimiter ','"
    )
    for content in (text, text.replace(".", ",")):
        cli.write("x.csv", content)
        lines = cli.output("softmax", "x.csv", "--delimiter", ";").splitlines()
        np.testing.assert_allclose(parsed("\n".join(lines[1:])), P)
    cli.write("x.csv", "a;b\n1,5;2\n1.000,5;2\n")
    assert cli.error("softmax", "x.csv", "--delimiter", ";") == "x.csv:3:1: '1.000,5' is not a number (--thousands . reads it)"
    cli.write("x.txt", table([], separator="|"))
    np.testing.assert_allclose(parsed(cli.output("softmax", "x.txt", "--format-in", "csv", "--delimiter", "|")), P)
    cli.write("x.csv", table([], separator="\t"))
    assert (
        cli.error("softmax", "x.csv")
        == "x.csv:1: the cells look separated by tabs; if they are, give --delimiter tab, otherwise --delimiter ','"
    )
    np.testing.assert_allclose(parsed(cli.output("softmax", "x.csv", "--delimiter", "tab")), P)
    assert cli.error("softmax", "x.csv", "--delimiter", "7").startswith("--delimiter must be tab or one character")


TYPESET = {"\u2212": "its sign is U+2212 instead of -", "\u2013": "its sign is U+2013 instead of -"}
TYPESET["\u00a0"] = "it has a no-break space (U+00A0)"
MISTYPED = ['"1,000"', "10%", "0x1p3", "0x1d", "NA", "1 000", "1d5", "1.5D-03", "--5", "+-5", "(5)", "(1 000)"]


@pytest.mark.parametrize("cell", [*MISTYPED, *(mark + number for mark in TYPESET for number in ("1", ".5", "1e5", "1 000"))])
def test_what_resembles_a_number_is_no_label(cli, cell):
    why = f", because {TYPESET[cell[0]]}" if cell[0] in TYPESET else ""
    cli.write("x.csv", f"{cell},1,2\n{cell},3,4\n")
    message = cli.error("softmax", "x.csv")
    assert message.startswith(f"x.csv:1:1: '{cell.strip(chr(34))}' is not a number{why} (")
    assert len(cli.output("softmax", "x.csv", "--labels", 1).splitlines()) == 2
    cli.write("x.csv", f"1,2\n{cell},4\n")
    assert cli.error("softmax", "x.csv").startswith(f"x.csv:2:1: '{cell.strip(chr(34))}' is not a number{why}")


WORDS = [
    "2024-01-05",
    "1a",
    "5d",
    "1day",
    "v1.5.2",
    "1.5.2",
    "(none)",
    "(a5)",
    "-",
    "\u2013",
    "\u2212a",
    "a\u00a0b",
    "12:30",
    "--",
]


@pytest.mark.parametrize("cell", [*WORDS, "01.02.2024", "1/2/24", "d5", "()", "\u00a0"])
def test_names_are_labels(cli, cell):
    cli.write("x.csv", f"{cell},1,1\n")
    assert cli.output("softmax", "x.csv") == f"{cell},0.5,0.5\n"


@pytest.mark.parametrize("mark", TYPESET)
def test_a_first_row_of_typeset_numbers_is_no_header(cli, mark):
    cli.write("x.csv", f"{mark}1,{mark}2\n3,4\n")
    message = cli.error("softmax", "x.csv")
    assert message == f"x.csv:1:1: '{mark}1' is not a number, because {TYPESET[mark]} (if it is a name: --header)"
    assert cli.output("softmax", "x.csv", "--header").startswith(f"{mark}1,{mark}2\n0.2")


@pytest.mark.parametrize("cell", ["", "NA", "null", "#N/A"])
def test_missing_cells(cli, cell):
    cli.write("x.csv", f"word,a,b,c\none,0.5,1.5,-1\ntwo,{cell},1,2\nthree,2,0.25,0.125\n")
    assert cli.error("softmax", "x.csv").endswith("(--missing nan reads it as NaN, --missing skip leaves out the row)")
    lines = cli.output("softmax", "x.csv", "--missing", "nan").splitlines()
    assert lines[2] == "two,nan,nan,nan" and len(lines) == 4
    lines = cli.output("softmax", "x.csv", "--missing", "skip").splitlines()
    assert [line.split(",")[0] for line in lines] == ["word", "one", "three"]
    np.testing.assert_allclose(rows_of("\n".join(lines[1:]), slice(1, 4)), P)


@pytest.mark.parametrize("first", ["NA,NA", "null,NA", "u,NA,NA"])
def test_a_first_row_whose_numbers_are_missing_is_no_header(cli, first):
    label = "v," if first.startswith("u") else ""
    cli.write("x.csv", f"{first}\n{label}0,0\n")
    column = 1 + first.startswith("u")
    assert cli.error("softmax", "x.csv").startswith(f"x.csv:1:{column}: ")
    lines = cli.output("softmax", "x.csv", "--missing", "nan").splitlines()
    assert lines == [f"{first[:2] if label else ''}nan,nan", f"{label}0.5,0.5"]
    assert cli.output("softmax", "x.csv", "--missing", "skip").splitlines() == [f"{label}0.5,0.5"]
    assert cli.output("softmax", "x.csv", "--header").splitlines()[1:] == [f"{label}0.5,0.5"]


def test_rows_left_out_do_not_count(cli):
    """Row r of those that are left draws from stream r, and measures name it."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(40_000, 3))
    gaps = rng.random(len(x)) < 0.2
    lines = [",".join(map(repr, row.tolist())) for row in x]
    cli.write("gaps.csv", "\n".join(",1,NA" if gap else line for line, gap in zip(lines, gaps, strict=True)) + "\n")
    cli.write("whole.csv", "\n".join(line for line, gap in zip(lines, gaps, strict=True) if not gap) + "\n")
    draws = cli.output("sample", "whole.csv", "--seed", 3)
    for threads in (1, 2):
        assert cli.output("sample", "gaps.csv", "--seed", 3, "--no-header", "--missing", "skip", "--threads", threads) == draws


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--header"], "a .jsonl file has no header"),
        (["--delimiter", ";"], "--delimiter is not for a .jsonl file"),
    ],
)
def test_options_of_tables_are_refused_of_json(cli, option, said):
    cli.write("x.jsonl", '{"a": 1, "b": 2}\n')
    assert cli.error("softmax", "x.jsonl", *option) == f"x.jsonl: {said}"


OBJECTS = """{"id": 17, "cat": 2, "dog": 1, "who": "x"}

{"id": 18, "cat": 2.5, "dog": 1, "who": "y"}
"""


def test_fields_of_objects(cli):
    cli.write("x.jsonl", OBJECTS)
    message = cli.error("softmax", "x.jsonl")
    assert message.startswith("x.jsonl:1: 'id' looks like a name for rows; --labels id takes it as the label")
    want = np.exp([[2, 1], [2.5, 1]])
    want /= want.sum(axis=1, keepdims=True)
    labelled = cli.output("softmax", "x.jsonl", "--labels", "id", "--columns", "cat,dog").splitlines()
    assert labelled[0] == "id,cat,dog" and [line.split(",")[0] for line in labelled[1:]] == ["17", "18"]
    np.testing.assert_allclose(rows_of("\n".join(labelled[1:]), slice(1, 3)), want)
    excluded = cli.output("softmax", "x.jsonl", "--exclude", "id", "--format-out", "jsonl").splitlines()
    assert [json.loads(line)["who"] for line in excluded] == ["x", "y"]
    np.testing.assert_allclose([[json.loads(line)[name] for name in ("cat", "dog")] for line in excluded], want)
    assert (
        cli.error("softmax", "x.jsonl", "--columns", "cow")
        == "x.jsonl: --columns: there is no field called 'cow' with a number"
    )
    assert cli.error("softmax", "x.jsonl", "--labels", "cow") == "x.jsonl:1: --labels: there is no field called 'cow'"
    assert cli.error("softmax", "x.jsonl", "--labels", "id").startswith("x.jsonl:1: 'who' is neither a number nor the label")


NESTED = """{"id": 17, "name": "a", "out": {"all": {"scores": [2, 1, 0]}}, "t": 0.5}
{"id": 18, "name": "b", "out": {"all": {"scores": [1, null, 0]}}}
"""


def test_arrays_inside_objects(cli):
    """--key goes inside, what stands beside the array is kept, and results have the name of the operation."""
    cli.write("x.jsonl", NESTED)
    assert cli.error("softmax", "x.jsonl", "--key", "out.all.scores") == (
        "x.jsonl:2:2: null is not a number (--missing nan reads it as NaN, --missing skip leaves out the row)"
    )
    found = cli.output("softmax", "x.jsonl", "--key", "out.all.scores", "--missing", "skip", "--format-out", "jsonl")
    row = json.loads(found)
    assert list(row) == ["id", "t", "name", "softmax"] and (row["id"], row["t"], row["name"]) == (17, 0.5, "a")
    np.testing.assert_allclose(row["softmax"], np.exp([2, 1, 0]) / np.exp([2, 1, 0]).sum())
    options = ["--key", "out.all.scores", "--missing", "nan", "--input", "scores", "--format-out", "jsonl", "--precision", 4]
    lines = [json.loads(line) for line in cli.output("entropy", "x.jsonl", *options).splitlines()]
    assert [line["entropy"] for line in lines] == [0.8324, "nan"] and lines[1]["t"] is None
    assert cli.error("softmax", "x.jsonl", "--key", "out.scores") == "x.jsonl:1: 'out.scores' is missing"
    # Without a header these would pass for scores.
    assert cli.output("softmax", "x.jsonl", "--key", "out.all.scores", "--missing", "skip").count(",") == 3


def test_missing_arrays(cli):
    """null instead of an array is a row without numbers, and as many rows where a line has several."""
    cli.write("x.jsonl", '{"id": 1, "x": [1, 1]}\n{"id": 2, "x": null}\n{"id": 3, "x": [0, 0]}\n')
    written = ("--format-out", "jsonl")
    lines = cli.output("softmax", "x.jsonl", "--missing", "skip", *written).splitlines()
    assert [json.loads(line) for line in lines] == [{"id": i, "softmax": [0.5, 0.5]} for i in (1, 3)]
    lines = cli.output("entropy", "x.jsonl", "--input", "scores", "--missing", "nan", *written).splitlines()
    assert [json.loads(line)["entropy"] for line in lines] == [np.log(2), "nan", np.log(2)]
    cli.write("first.jsonl", '{"x": null}\n{"x": [0, 0]}\n')
    for missing in ("nan", "skip"):  # how many numbers a row has, the first line must show
        message = cli.error("softmax", "first.jsonl", "--key", "x", "--missing", missing)
        assert message == "first.jsonl:1: 'x' is null, not an array of numbers; leave out the line"
    cli.write("y.jsonl", '{"x": [[0, 0], [0, 0]]}\n{"x": null}\n{"x": [[1, 1], [null, 1]]}\n')
    assert cli.output("softmax", "y.jsonl", "--missing", "skip", *written).count("[0.5, 0.5]") == 3
    assert cli.output("softmax", "y.jsonl", "--missing", "nan", *written).count('["nan", "nan"]') == 3


@pytest.mark.parametrize("ending", ["csv", "jsonl", "npy", "npz", "safetensors"])
def test_rows(cli, ending):
    """Parts of a file give the same results as these rows of the whole file, also for draws."""
    x = np.random.default_rng(3).normal(size=(30_000, 5))
    cli.save("x.npy", x)
    cli.output("softmax", "x.npy", "-o", f"p.{ending}")
    draws = cli.output("sample", f"p.{ending}", "--seed", 3).splitlines()
    measures = cli.output("entropy", f"p.{ending}").splitlines()
    for first, end in [(0, 1), (0, 10_000), (9_999, 29_999), (29_999, 50_000), (12_345, 12_347)]:
        rows = ["--rows", f"{first}:{end}", "--threads", 2]
        assert cli.output("sample", f"p.{ending}", "--seed", 3, *rows).splitlines() == draws[first:end]
        assert cli.output("entropy", f"p.{ending}", *rows).splitlines() == measures[first:end]
        assert len(cli.output("kl_divergence", f"p.{ending}", f"p.{ending}", *rows).split()) == len(draws[first:end])
    assert cli.output("entropy", f"p.{ending}", "--rows", "29990:").splitlines() == measures[29990:]
    cli.output("entropy", f"p.{ending}", "--rows", "10:20", "-o", "h.npy")
    np.testing.assert_array_equal(np.load(cli.directory / "h.npy"), [float(one) for one in measures[10:20]])
    message = cli.error("entropy", f"p.{ending}", "--rows", "30000:")
    assert message == f"p.{ending}: --rows begins at 30000, but there are only 30000 rows"


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("many", [0, 40_000])
def test_mistakes_outside_the_rows_do_not_matter(cli, ending, many):
    """Whether they are far from these rows or near."""
    good, bad = {
        "csv": ("u,0,0\n", ["v,0\n", "v,0,0,0\n", "v,x,0\n", '"v\nw"x,0,0\n', '"v\nw","0\n1",0\n', "7,0,1e999\n", "v,0,\n"]),
        "jsonl": ('{"l": "u", "n": 3, "x": [0, 0]}\n', ['{"x": [0]}\n', '{"l": 1}\n', "x\n", '["l"]\n', '{"x": [null, 0]}\n']),
    }[ending]
    lines = [good, *[good] * many, *bad, good, good, *bad]
    cli.write(f"x.{ending}", "".join(lines))
    file = f"x.{ending}"
    first = 1 + many + len(bad)
    for rows in f"{first}:{first + 2}", f"{first}:{first + 1}", f"{first + 1}:{first + 2}":
        count = 2 if rows == f"{first}:{first + 2}" else 1
        assert cli.output("softmax", file, "--rows", rows, "--format-out", "csv").splitlines()[-count:] == ["u,0.5,0.5"] * count
        found = cli.output("describe", file, "--input", "scores", "--measures", "support", "--rows", rows, "-o", "s.npy")
        assert found == "" and cli.load("s.npy").shape == (count, 1)
    for rows in f"{first - 1}:{first + 1}", f"{first}:{first + 3}":
        assert cli.error("softmax", file, "--rows", rows, "-o", "r.csv").startswith(f"x.{ending}:")
    if ending == "csv":
        cli.write("x.csv", "".join(lines) + "u,-1,0.5\n")
        message = cli.error("entropy", file, "--rows", f"{first + 2 + len(bad)}:")
        assert message.startswith(f"x.csv:{len(lines) + 7}:2: ")  # six lines begin inside quotes


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("5", "--rows must be A:B, from row A up to row B, counted from 0, got '5'"),
        ("5:5", "--rows must be A:B with A below B, got '5:5'"),
        ("-1:5", "A of --rows A:B must be a whole number of at least 0, got '-1'"),
        ("1:x", "B of --rows A:B must be a whole number of at least 0, got 'x'"),
    ],
)
def test_rows_that_are_none(cli, rows, said):
    cli.write("x.csv", "1,2\n")
    assert cli.error("softmax", "x.csv", "--rows=" + rows) == said


def test_what_is_kept_of_objects(cli):
    """By its own type in each line, whatever the first line has; a field with the result's name gives way to it."""
    lines = [
        '{"loss": null, "tok": "inf", "ok": true, "entropy": 5, "s": [1, 1]}',
        '{"loss": 3, "tok": "x", "ok": null, "s": [1, 1]}',
    ]
    cli.write("x.jsonl", "\n".join(lines) + "\n")
    found = cli.output("entropy", "x.jsonl", "--input", "scores", "--format-out", "jsonl", "--precision", 3, "--key", "s")
    assert found.splitlines() == [
        '{"loss": null, "tok": "inf", "ok": true, "entropy": 0.693}',
        '{"loss": 3, "tok": "x", "ok": null, "entropy": 0.693}',
    ]
    cli.write("named.jsonl", '{"name": "q", "x": 1, "y": 1, "z": 3}\n')
    found = cli.output("describe", "named.jsonl", "--input", "scores", "--keep", "z", "--measures", "perplexity")
    assert found == "name,z,perplexity\nq,3,2\n" or found == "z,name,perplexity\n3,q,2\n"


@pytest.mark.parametrize(
    ("line", "options", "said"),
    [
        ('{"a": 1..5, "s": [1, 2]}', [], "x.jsonl:1: '1..5' is not a number"),
        ('{"a": 1, "a": 2, "s": [1, 2]}', [], "x.jsonl:1: 'a' appears twice"),
        ('{"a": "x", "a": "y", "s": [1, 2]}', [], "x.jsonl:1: 'a' appears twice"),
        ('{"a": "x", "s": [1, 2]}\n{"a": "x", "s": [1, 2], "a": "y"}', [], "x.jsonl:2: 'a' appears twice"),
        ('{"a": [1, 2], "a": [3, 4]}', [], "x.jsonl:1: 'a' appears twice"),
        ('{"a": {"b": [1, 2]}}', [], "x.jsonl:1: 'a' is an object with an array in it; choose that with --key a.b"),
        (
            '{"x": 1, "a": {"t": {"n": 1}, "b": {"c": []}}, "y": 1}',
            [],
            "x.jsonl:1: 'a' is an object with an array in it; choose that with --key a.b.c",
        ),
        (
            '{"x": 1, "a": {"b": 1}}',
            [],
            "x.jsonl:1:2: this is an object, not a number; jq makes rows of numbers, as in jq -c '[.[].score]'",
        ),
        ("[1, 2]", ["--key", "a"], "x.jsonl:1: an array has no field that could be 'a'"),
    ],
)
def test_objects_that_are_none(cli, line, options, said):
    cli.write("x.jsonl", line + "\n")
    assert cli.error("softmax", "x.jsonl", *options) == said


def test_a_key_with_a_dot(cli):
    cli.write("x.jsonl", '{"a.b": [1, 1], "a": {"b": [3, 4]}}\n')
    assert cli.output("softmax", "x.jsonl", "--key", "a.b") == "0.5,0.5\n"


def test_rows_left_out_of_one_of_two_files(cli):
    cli.write("x.csv", "a,b\n1,2\nNA,1\n3,4\n")
    cli.write("y.csv", "0\n1\n1\n")
    cli.write("q.csv", "a,b\n0.5,0.5\n0.1,0.9\n")
    for command in ("softmax_loss", "fit_temperature"):
        message = cli.error(command, "x.csv", "y.csv", "--missing", "skip")
        assert message == "--missing skip leaves out rows of x.csv, and the others would no longer match those of TARGET"
    cli.write("p.csv", "a,b\n0.5,0.5\nNA,1\n0.25,0.75\n")
    message = cli.error("kl_divergence", "p.csv", "q.csv", "--missing", "skip")
    assert message == "kl_divergence: --missing skip leaves out rows of p.csv, and the others would no longer match those of Q"


@pytest.mark.parametrize("shape", [(5,), (4, 3, 2)])
def test_arrays_lack_nothing(cli, shape):
    """--missing skip changes nothing, the shape included."""
    x = np.random.default_rng(6).normal(size=shape)
    cli.save("x.npy", x)
    for ending in ("npy", "npz", "safetensors"):
        cli.output("softmax", "x.npy", "--missing", "skip", "-o", f"p.{ending}")
        cli.output("entropy", f"p.{ending}", "--missing", "skip", "-o", "h.npy")
        np.testing.assert_allclose(np.load(cli.directory / "h.npy"), isentropic.entropy(isentropic.softmax(x)))


@pytest.mark.parametrize(
    ("name", "content", "command", "said"),
    [
        (
            "x.csv",
            "entropy,a,b\nx,0.5,0.5\n",
            ["entropy"],
            "the labels and a column of the result are both called 'entropy'; --exclude entropy leaves the labels out",
        ),
        (
            "x.csv",
            "status,a,b\nx,1,2\n",
            ["gamma", "--entropy", 0.5],
            "the labels and a column of the result are both called 'status'; --exclude status leaves the labels out",
        ),
        (
            "x.csv",
            "a,a,b\n1,2,3\n",
            ["softmax", "-o", "y.jsonl"],
            "two columns are called 'a', and a .jsonl has each name once; --columns or --exclude leaves one out",
        ),
        (
            "x.csv",
            "a,a,b\nz,2,3\n",
            ["softmax", "-o", "y.jsonl"],
            "the labels and a column of the result are both called 'a'; --exclude a leaves the labels out",
        ),
        (
            "x.csv",
            "a,b,entropy\n0.5,0.5,3\n",
            ["describe", "--keep", "entropy"],
            "a column of the result is called 'entropy' too; leave it out of --keep",
        ),
        (
            "x.jsonl",
            '{"softmax": "x", "a": [1, 2]}\n',
            ["softmax", "-o", "y.jsonl"],
            "the labels and a column of the result are both called 'softmax'; rename the labels",
        ),
    ],
)
def test_no_name_is_given_twice(cli, name, content, command, said):
    cli.write(name, content)
    assert cli.error(command[0], name, *command[1:]) == f"{name}: {said}"
    if name == "x.csv" and "--keep" not in command:
        cli.output(command[0], name, *command[1:], "--exclude", 1)


def test_names_that_may_be_given_twice(cli):
    """The file's own names stay in a .csv, arrays have none, and a result takes the place of a field of its name."""
    cli.write("x.csv", "a,a,b\n0,0,-inf\n")
    assert cli.output("softmax", "x.csv") == "a,a,b\n0.5,0.5,0\n"
    assert cli.output("softmax", "x.csv", "--columns", "2,3", "--format-out", "jsonl") == '{"a": 1, "b": 0}\n'
    cli.output("softmax", "x.csv", "-o", "y.npy")
    cli.write("x.jsonl", '{"id": "x", "entropy": 3, "p": [0.5, 0.5]}\n')
    assert cli.output("entropy", "x.jsonl", "--base", 2, "--format-out", "jsonl") == '{"id": "x", "entropy": 1}\n'
    assert (
        cli.output("describe", "x.jsonl", "--measures", "support,entropy", "--precision", 3)
        == "id,support,entropy\nx,2,0.693\n"
    )


def test_two_files_have_their_columns_in_one_order(cli):
    cli.write("p.csv", "name,a,b\nu,0.9,0.1\n")
    cli.write("q.csv", "b,a\n0.1,0.9\n")
    cli.write("q.jsonl", '{"b": 0.1, "c": 0.9}\n')
    for command in ("kl_divergence", "softmax_loss", "distillation_loss", "wasserstein_histogram", "sinkhorn_divergence"):
        for second in ("q.csv", "q.jsonl"):
            options = ["--epsilon", 1] if command == "sinkhorn_divergence" else []
            message = cli.error(command, "p.csv", second, *options, "-o", "y.csv")
            assert message == f"{second}: the column 'b' is not where p.csv has it; columns are compared in their order"
    assert cli.error("sliced_wasserstein", "p.csv", "q.csv").startswith("q.csv: the column 'b' is not where p.csv has it")
    # Other names, or none, say nothing about the order. Nor does a file of classes.
    want = cli.output("kl_divergence", "p.csv", cli.write("q.csv", "a,b\n0.1,0.9\n"))
    for second in ("x,y\n0.1,0.9\n", "a,y\n0.1,0.9\n", "0.1,0.9\n"):
        assert cli.output("kl_divergence", "p.csv", cli.write("q.csv", second)) == want
    cli.output("softmax_loss", "p.csv", cli.write("y.csv", "b\n1\n"))


def test_two_files_have_their_rows_in_one_order(cli):
    cli.write("p.csv", "l,a,b\nx,0.5,0.5\ny,0.1,0.9\n")
    cli.write("q.csv", "l,a,b\ny,0.1,0.9\nx,0.5,0.5\n")
    cli.write("q.jsonl", '{"l": "x", "p": [0.5, 0.5]}\n{"l": "z", "p": [0.1, 0.9]}\n')
    cli.write("y.csv", "l,class\nx,0\nz,1\n")
    for command in ("kl_divergence", "softmax_loss", "distillation_loss", "wasserstein_histogram", "wasserstein_1d"):
        for second, place, label, first in (("q.csv", "2:1", "y", "2 has 'x'"), ("q.jsonl", "2", "z", "3 has 'y'")):
            message = cli.error(command, "p.csv", second, "-o", "r.csv")
            assert message == f"{second}:{place}: the label is '{label}', and p.csv:{first}; rows are compared in their order"
    for command in ("softmax_loss", "fit_temperature", "expected_calibration_error"):
        message = cli.error(command, "p.csv", "y.csv")
        assert message == "y.csv:3:1: the label is 'z', and p.csv:3 has 'y'; rows are compared in their order"
    assert cli.error("kl_divergence", "p.csv", "q.csv", "--rows", "1:").startswith(
        "q.csv:3:1: the label is 'x', and p.csv:3 has"
    )
    # Points are not paired, a single row is compared with all, and a file may lack labels.
    cli.output("sinkhorn_divergence", "p.csv", "q.csv", "--epsilon", 1)
    for text in ("l,a,b\nz,0.5,0.5\n", "a,b\n0.5,0.5\n0.1,0.9\n", (cli.directory / "p.csv").read_text()):
        cli.output("kl_divergence", "p.csv", cli.write("q.csv", text))
        cli.output("wasserstein_histogram", "p.csv", "q.csv")


def test_labels_of_many_rows(cli):
    rows = [f"r{i},0.5,0.5\n" for i in range(60_000)]
    cli.write("p.csv", "".join(rows))
    rows[50_001] = "s,0.5,0.5\n"
    cli.write("q.csv", "".join(rows))
    for options in ([], ["--rows", "50000:"]):
        message = cli.error("kl_divergence", "p.csv", "q.csv", *options, "-o", "r.csv")
        assert message.startswith("q.csv:50002:1: the label is 's', and p.csv:50002 has 'r50001'; ")


def test_two_arrays_have_their_rows_along_the_same_axes(cli):
    """As in Python, though as many rows lie along others."""
    p = np.full((2, 3, 4), 0.25)
    cli.save("p.npy", p)
    cli.save("flat.npy", p.reshape(6, 4))
    cli.save("q.npy", p.reshape(3, 2, 4))
    cli.save("one.npy", p[:1, :1])
    cli.save("few.npy", p[0])
    for name, array in ("p", p), ("q", p.reshape(3, 2, 4)):
        cli.write(f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in array.tolist()))
    for command in ("kl_divergence", "distillation_loss", "softmax_loss", "wasserstein_1d"):
        for first, second, shapes in (
            ("p.npy", "q.npy", ["3, 2, 4", "2, 3, 4"]),
            ("p.npy", "q.jsonl", ["3, 2, 4", "2, 3, 4"]),
            ("p.jsonl", "q.npy", ["3, 2, 4", "2, 3, 4"]),
        ):
            message = cli.error(command, first, second, "-o", "r.npy")
            assert message == f"{second}: its shape is ({shapes[0]}), and that of {first} is ({shapes[1]})"
        for first, second in (("p.npy", "p.npy"), ("p.npy", "p.jsonl"), ("p.jsonl", "p.npy"), ("p.npy", "flat.npy")):
            cli.output(command, first, second, "-o", "r.npy")
            assert np.load(cli.directory / "r.npy").shape == (2, 3)
        assert "rows" in cli.error(command, "p.npy", "few.npy")
    for command in "kl_divergence", "wasserstein_1d":
        cli.output(command, "p.npy", "one.npy", "-o", "r.npy")
    # A part of an array is a list of rows.
    assert len(cli.output("kl_divergence", "p.npy", "q.npy", "--rows", "1:3").splitlines()) == 2


def test_numbers_in_quotes_beside_numbers_are_words(cli):
    cli.write("x.csv", 'name,a,b\n"17",1,1\n"NA",2,2\n"0.5",3,3\n')
    want = 'name,a,b\n"17",0.5,0.5\n"NA",0.5,0.5\n"0.5",0.5,0.5\n'
    assert cli.output("softmax", "x.csv") == want
    assert cli.output("softmax", stdin=want.encode()) == want
    cli.write("x.csv", 'name,"2019","2020"\nu,1,1\n')
    assert cli.output("softmax", "x.csv") == 'name,"2019","2020"\nu,0.5,0.5\n'
    cli.write("x.csv", '"2019","2020"\n1,1\n')
    assert cli.output("softmax", "x.csv") == '"2019","2020"\n0.5,0.5\n'
    # All in quotes are numbers, and so is one of several.
    cli.write("x.csv", '"1","1"\n"2","2"\n')
    assert cli.output("softmax", "x.csv") == "0.5,0.5\n0.5,0.5\n"
    cli.write("x.csv", '"1","1",1\n"2","2",2\n')
    np.testing.assert_allclose(parsed(cli.output("softmax", "x.csv")), np.full((2, 3), 1 / 3))


@pytest.mark.parametrize("name", ["label", "labels", "class", "target", "token"])
@pytest.mark.parametrize("place", [1, 3])
def test_a_column_of_classes_is_no_score(cli, name, place):
    cells = ["a", "b"]
    cells.insert(place - 1, name)
    cli.write("x.csv", ",".join(cells) + "\n1,2,0\n")
    assert cli.error("softmax", "x.csv") == (
        f"x.csv:1:{place}: column '{name}' may be scores or the rows' names: --labels {place} takes it as names, "
        f"--exclude {place} leaves it out, --columns 1-3 takes it as scores"
    )
    assert len(cli.output("softmax", "x.csv", "--columns", "1-3").splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 2 3\n", "1:1: '1 2 3' is not a number (--delimiter space separates cells at blanks; if it is a name: --header)"),
        ("10%,20%\n0.3,0.4\n", "1:1: '10%' is not a number (if it is a name: --header)"),
        (
            '"1,5","2,5"\n1,2\n',
            "1:1: '1,5' is not a number (decimal commas are read only in files with semicolons between cells) "
            "(if it is a name: --header)",
        ),
        ("(5),(6)\n", "1:1: '(5)' is not a number (if it is a name: --header)"),
        ("u,10%,20%\nv,1,2\n", "1:2: '10%' is not a number (if it is a name: --header)"),
        ("[1,2]\n", "1:1: '[1' looks like JSON; --format-in jsonl reads lines of it (if it is a name: --header)"),
        ('{"x":[1,2]}\n', "1:1: '{\"x\":[1' looks like JSON; --format-in jsonl reads lines of it (if it is a name: --header)"),
        ("1|2|3\n", "1: the cells look separated by '|'; if they are, give --delimiter '|', otherwise --delimiter ','"),
    ],
)
def test_rows_in_another_form_are_no_header(cli, text, said):
    assert cli.error("softmax", stdin=text.encode()) == f"standard input:{said}"


def test_some_names_look_like_numbers(cli):
    for names in ("mean,25%,max", "(5),x,1_000", "name,25%,max"):
        cli.write("x.csv", f"{names}\n{'u' if names.startswith('name') else 1},1,1\n")
        assert cli.output("softmax", "x.csv").startswith(names + "\n")


def test_a_name_may_have_a_semicolon(cli):
    cli.write("x.csv", "name,b;c,d\nr,1,1\n")
    assert cli.output("softmax", "x.csv") == "name,b;c,d\nr,0.5,0.5\n"


def test_whole_numbers_from_0_above_whole_numbers_are_a_row(cli):
    # Names of two columns are also the distribution of a class that is certain.
    for text in ("0,1,2\n2,1,0\n", "0,1\n-3,4\n0.5,1\n", "0,1\n0.25,0.75\n", "0,1\nnan,1\n"):
        cli.write("x.csv", text)
        assert len(cli.output("softmax", "x.csv").splitlines()) == text.count("\n")
    for text in ("0,1,2\n2,1.5,0\n", "0,1,2\nnan,1,1\n", "0,1,2\n1e1,1,1\n"):
        cli.write("x.csv", text)
        assert "may be names or scores" in cli.error("softmax", "x.csv")


def test_columns_that_two_options_name(cli):
    cli.write("x.csv", table(["a", "b", "c"]))
    for command, options, said in (
        ("softmax", ["--labels", "a", "--exclude", "a"], "column 'a' is in both --labels and --exclude"),
        ("softmax", ["--labels", "1", "--columns", "a-c"], "column 'a' is in both --labels and --columns"),
        ("softmax", ["--columns", "a-c", "--exclude", "b"], "column 'b' is in both --columns and --exclude"),
        ("describe", ["--exclude", "c", "--keep", "c", "--input", "scores"], "column 'c' is in both --exclude and --keep"),
        ("describe", ["--columns", "a,b", "--keep", "a", "--input", "scores"], "column 'a' is in both --columns and --keep"),
    ):
        assert cli.error(command, "x.csv", *options) == f"x.csv: {said}"
    cli.write("y.csv", table([]))
    assert (
        cli.error("softmax", "y.csv", "--labels", "2", "--exclude", "2") == "y.csv: column 2 is in both --labels and --exclude"
    )


def test_whole_numbers_with_marks_between_thousands(cli):
    cli.write("x.csv", 'a,b,c\n"1,234","2,345",12\n"3,456","1,100",15\n')
    found = parsed(cli.output("entropy", "x.csv", "--normalize", "--thousands", ",").split("\n", 1)[1])
    counts = np.array([[1234, 2345, 12], [3456, 1100, 15]])
    np.testing.assert_allclose(found.ravel(), isentropic.entropy(counts, normalize=True))
