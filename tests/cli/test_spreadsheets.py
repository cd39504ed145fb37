"""Tables that people have: groups of digits, words for a missing number, Excel's first line, several columns of words."""

import json

import numpy as np
import pytest
from conftest import parsed, softmax

import isentropic

X = np.array([[1234.5, 1233.25], [-1000000.0, -1000001.0]])


@pytest.mark.parametrize(
    ("thousands", "delimiter", "rows"),
    [
        (",", ",", ['"1,234.5","1,233.25"', '"-1,000,000","-1,000,001"']),
        ("comma", ",", ['"1,234.5",1233.25', '-1000000,"-1,000,001"']),
        (",", ";", ["1,234.5;1,233.25", "-1,000,000;-1,000,001"]),
        (".", ";", ["1.234,5;1.233,25", "-1.000.000;-1.000.001"]),
        ("point", ";", ["1.234,5;1233,25", "-1.000.000;-1000001"]),
        ("space", ";", ["1 234,5;1\u00a0233,25", "-1\u202f000\u202f000;-1 000 001"]),
        (" ", "tab", ["1 234.5\t1 233.25", "-1 000 000\t-1 000 001"]),
        ("'", ",", ["1'234.5,1'233.25", "-1'000'000,-1'000'001"]),
        ("_", ",", ["1_234.5,1_233.25", "-1_000_000,-1_000_001"]),
    ],
)
def test_groups_of_digits(cli, thousands, delimiter, rows):
    separator = "\t" if delimiter == "tab" else delimiter
    for header in ([], [separator.join("ab")]):
        cli.write("x.csv", "\n".join([*header, *rows]) + "\n")
        given = ["--delimiter", delimiter, "--thousands", thousands]
        lines = cli.output("softmax", "x.csv", *given).splitlines()[len(header) :]
        np.testing.assert_allclose(parsed("\n".join(lines)), softmax(X))
        name = {"comma": ",", "point": ".", "space": " "}.get(thousands, thousands)
        read = isentropic.read(cli.directory / "x.csv", delimiter=separator, thousands=name)
        np.testing.assert_array_equal(read, X)
        message = cli.error("softmax", "x.csv", "--delimiter", delimiter)
        assert f"(--thousands {'space' if name == ' ' else name} reads it)" in message.replace("\\'", "'"), message


@pytest.mark.parametrize("rows", ["1,5\t2,25\n", "a\tb\n1,5\t2,25\n"])
def test_decimal_commas_between_tabs(cli, rows):
    message = cli.error("softmax", cli.write("x.tsv", rows))
    assert "'1,5' is not a number (decimal commas are read only in files with semicolons between cells)" in message


@pytest.mark.parametrize("row", range(2))
@pytest.mark.parametrize("column", range(3))
def test_groups_of_digits_where_everything_is_in_quotes(cli, row, column):
    """Quotes around all cells say nothing, wherever the number with groups stands: it needs them only for its comma."""
    cells = [["2.5", "1.75", "-3.0"], ["0.5", "2.25", "4.0"]]
    cells[row][column] = "1,234.5"
    want = [[float(cell.replace(",", "")) for cell in line] for line in cells]
    for quoted in (["2.5", "17"], ["a", "b"], []):  # labels in front, or none
        lines = [[label, *line] for label, line in zip(quoted, cells, strict=True)] if quoted == ["a", "b"] else cells
        text = "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines)
        np.testing.assert_array_equal(isentropic.read(cli.directory / cli.write("x.csv", text), thousands=","), want)
    # Beside a number without quotes, one with quotes is a word, but not one that needs them.
    text = "".join(f'"{17 + r}",' + ",".join(f'"{c}"' if "," in c else c for c in line) + "\n" for r, line in enumerate(cells))
    table = isentropic.read(cli.directory / cli.write("x.csv", text), thousands=",", names=True)
    assert table.labels == ["17", "18"]
    np.testing.assert_array_equal(table.array, want)


@pytest.mark.parametrize("cell", ["1,23", "12345,678", "1,234,56", ",234", "1,234.5,678", "1,,234"])
def test_groups_that_are_none(cli, cell):
    """A comma is no decimal point where it is between groups."""
    cli.write("x.csv", f"a;b\n{cell};1.5\n")
    message = cli.error("softmax", "x.csv", "--delimiter", ";", "--thousands", ",")
    assert message.startswith(f"x.csv:2:1: '{cell}' is not a number")


def test_what_groups_are_not_for(cli):
    cli.save("x.npy", X)
    assert cli.error("softmax", "x.npy", "--thousands", ",") == "x.npy: --thousands is not for an .npy file"
    assert "--thousands is for .csv and .tsv" in cli.error("softmax", cli.write("x.jsonl", "[1, 2]\n"), "--thousands", ",")
    for text in ("", "x", "5", ",,"):
        assert (
            cli.error("softmax", "x.npy", "--thousands", text) == f"--thousands must be one of , . ' _ and space, got '{text}'"
        )
    with pytest.raises(ValueError, match="thousands must be one of"):
        isentropic.read(cli.directory / "x.npy", thousands="x")


@pytest.mark.parametrize("word", ["-", "?", "n.d.", "-999", "-999.0", "missing", "."])
def test_words_for_a_missing_number(cli, word):
    cli.write("x.csv", f"a,b\n{word},1.5\n2.5,1.5\n")
    quoted = word if word.startswith("-9") else f'"{word}"'
    cli.write("x.jsonl", f'{{"x": [{quoted}, 1.5]}}\n{{"x": [2.5, 1.5]}}\n')
    for file in ("x.csv", "x.jsonl"):
        given = (file, f"--na={word},no", "--missing")
        skipped = cli.output("softmax", *given, "skip", "--format-out", "csv")
        np.testing.assert_allclose(parsed(skipped.splitlines()[-1]), softmax(np.array([[2.5, 1.5]])))
        as_nan = cli.output("softmax", *given, "nan", "--format-out", "csv").splitlines()
        assert as_nan[-2] == "nan,nan" and as_nan[-1] == skipped.splitlines()[-1]
        assert "(--missing nan reads it as NaN" in cli.error("softmax", *given, "error")
        found = isentropic.read(cli.directory / file, na=[word], missing="nan")
        np.testing.assert_array_equal(found, [[np.nan, 1.5], [2.5, 1.5]])
        np.testing.assert_array_equal(isentropic.read(cli.directory / file, na=word, missing="skip"), [[2.5, 1.5]])
    if word.startswith("-9"):  # without the word it is a number
        assert cli.output("softmax", "x.csv")
    else:
        assert f"--na '{word}'" in cli.error("softmax", "x.csv")


@pytest.mark.parametrize(
    "word, cell", [("-999", "-999.0"), ("-999.0", "-9.99e2"), ("0", "-0.00"), ("nan", "NaN"), ("1e3", "1000")]
)
def test_numbers_for_a_missing_number(cli, word, cell):
    """However they are written, also with a decimal comma or between groups of digits; other numbers stay."""
    cli.write("x.csv", f"a,b\n{cell},1.5\n2.5,-999.5\n")
    cli.write("x.jsonl", f'{{"x": [{cell}, 1.5]}}\n{{"x": [2.5, -999.5]}}\n')
    cli.write("comma.csv", f"a;b\n{cell.replace('.', ',')};1,5\n2,5;-999,5\n")
    for file in ("x.csv", "x.jsonl", "comma.csv"):
        given = {"delimiter": ";"} if file == "comma.csv" else {}
        found = isentropic.read(cli.directory / file, na=word, missing="nan", **given)
        np.testing.assert_array_equal(found, [[np.nan, 1.5], [2.5, -999.5]])
        out = cli.output("softmax", file, f"--na={word}", "--missing", "skip", *(["--delimiter=;"] * bool(given)))
        assert "nan" not in out.lower() and out.count("\n") == (1 if file == "x.jsonl" else 2)


def test_groups_of_digits_for_a_missing_number(cli):
    cli.write("x.csv", 'a,b\n"-9,999",1.5\n2.5,"1,000.5"\n')
    found = isentropic.read(cli.directory / "x.csv", na="-9999", missing="nan", thousands=",")
    np.testing.assert_array_equal(found, [[np.nan, 1.5], [2.5, 1000.5]])


def test_words_that_are_none(cli):
    cli.save("x.npy", X)
    assert cli.error("softmax", "x.npy", "--na", "-") == "x.npy: --na is not for an .npy file"
    for text in ("", "a,,b", "a,"):
        assert cli.error("softmax", "x.npy", "--na", text) == f"--na must be words with commas between them, got '{text}'"
    with pytest.raises(ValueError, match="na must be words that are not empty"):
        isentropic.read(cli.directory / "x.npy", na=[""])


def test_the_usual_words_of_json(cli):
    for value in ('"NA"', '""', '"None"', "null"):
        cli.write("x.jsonl", f'{{"x": [{value}, 1.5]}}\n{{"x": [2.5, 1.5]}}\n')
        assert "(--missing nan reads it as NaN" in cli.error("softmax", "x.jsonl")
        assert json.loads(cli.output("softmax", "x.jsonl", "--missing", "skip", "--format-out", "jsonl"))


@pytest.mark.parametrize(
    ("first", "separator"),
    [("sep=;", ";"), ("SEP=;", ";"), ("sep=,", ","), ("sep=\t", "\t"), ("sep=|", "|"), ("\ufeffsep=;", ";")],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_first_line_of_excel(cli, first, separator, end):
    rows = [separator.join("ab"), separator.join(["2.5", "1.5"]), separator.join(["0.5", "x"])]
    cli.write("x.csv", end.join([first, *rows[:2]]) + end)
    lines = cli.output("softmax", "x.csv").splitlines()
    assert lines[0] == "a,b"
    np.testing.assert_allclose(parsed(lines[1]), softmax(np.array([[2.5, 1.5]])))
    np.testing.assert_array_equal(isentropic.read(cli.directory / "x.csv"), [[2.5, 1.5]])
    message = cli.error("softmax", cli.write("y.csv", end.join([first, *rows]) + end))
    assert message == "y.csv:4:2: 'x' is not a number"  # lines are those of the file


def test_what_is_no_first_line_of_excel(cli):
    assert cli.output("softmax", cli.write("x.csv", "sep=a,b\n2,1\n")).splitlines()[0] == "sep=a,b"
    assert cli.output("softmax", stdin=b"s\n1\n") == "s\n1\n"
    assert cli.error("softmax", stdin=b"sep=;\n") == "standard input: the file is empty"
    cli.write("x.csv", "sep=;\n1,5;2,5\n")
    np.testing.assert_allclose(parsed(cli.output("softmax", "x.csv")), softmax(np.array([[1.5, 2.5]])))


def test_two_columns_of_words(cli):
    cli.write("x.csv", "name,city,a,b\nx,Berlin,2.5,1.5\ny,Rome,0.5,1\n")
    advice = "column 1 has the labels: --exclude 2 leaves column 2 out, --labels 2 takes it instead"
    assert cli.error("softmax", "x.csv") == f"x.csv:2:2: 'Berlin' is not a number; {advice}"
    with pytest.raises(ValueError, match="column 1 has the labels: exclude=2 leaves column 2 out, labels=2 takes it instead"):
        isentropic.read(cli.directory / "x.csv")
    assert cli.output("softmax", "x.csv", "--exclude", 2).splitlines()[0] == "name,a,b"
    assert cli.output("softmax", "x.csv", "--labels", 2, "--exclude", 1).splitlines()[0] == "city,a,b"
    cli.write("x.jsonl", '{"name": "x", "city": "Berlin", "a": 2.5, "b": 1.5}\n')
    assert "'city' is neither a number nor the label, which is 'name'" in cli.error("softmax", "x.jsonl")


NAMES = ["id", "ID", "Id", "row", "index", "Row_ID", "Label", "TARGET", "Class", "image_id", "y_true", "gold", "Idx", "UUID"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("number", ["7", "0.25"])
def test_one_rule_for_every_reader(cli, name, place, number):
    """What a name says does not depend on the place of its column, nor on the format."""
    names, row = ["cat", "dog"], ["2.5", "1.5"]
    names.insert(place, name)
    row.insert(place, number)
    cli.write("x.csv", ",".join(names) + "\n" + ",".join(row) + "\n")
    cli.write("x.tsv", "\t".join(names) + "\n" + "\t".join(row) + "\n")
    cli.write("x.jsonl", "{" + ", ".join(f'"{n}": {v}' for n, v in zip(names, row, strict=True)) + "}\n")
    done = [cli("softmax", file).returncode for file in ("x.csv", "x.tsv", "x.jsonl")]
    for file in ("x.csv", "x.tsv", "x.jsonl"):
        try:
            isentropic.read(cli.directory / file)
            done.append(0)
        except ValueError as error:
            assert name in str(error)
            done.append(2)
    assert len(set(done)) == 1
    assert done[0] == 2 or (number == "0.25" and name in ("image_id", "gold"))


def test_a_list_of_operations_with_a_word(cli):
    listed = cli.output("list", "DRY")
    assert "\n  dry\n" in listed and "\n  softmax\n" not in listed and "allowed_length" in listed
    assert "\n  top_k_softmax\n" in cli.output("list", "top-k") and "\n  top_k\n" in cli.output("list", "top k")
    assert "\n  gamma\n" in cli.output("list", "gamma_for_entropy")
    assert cli.error("list", "nothing such") == "list: no operation has the word 'nothing such'; isentropic list shows all"
    assert cli.error("list", "") == "list: WORD must not be empty"
    assert "excludes" in cli.error("list", "dry", "--json")
