"""CSV and TSV: input, kept columns, and the place of every error."""

import numpy as np
import pytest
from conftest import parsed, softmax


def test_rows_of_numbers(cli):
    out = cli.output("softmax", cli.write("x.csv", "1,2,3\n-4,5e-1,+6\n"))
    np.testing.assert_allclose(parsed(out), softmax(np.array([[1, 2, 3], [-4, 0.5, 6]])), rtol=1e-14)


ON_MISSING = " (--missing nan reads it as NaN, --missing skip leaves out the row)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n7\n", "a\n1\n"),
        ("name,a\ncat,7\ndog,8\n", "name,a\ncat,1\ndog,1\n"),
        ("cat,7\ndog,8\n", "cat,1\ndog,1\n"),
        ("7,cat\n8,dog\n", "1,cat\n1,dog\n"),
        (",a\ncat,7\n", '"",a\ncat,1\n'),  # pandas leaves the corner empty
        ("2024,a,b\ncat,inf,0\n", "2024,a,b\ncat,1,0\n"),
        ("cat,7\n", "cat,1\n"),
        ("1,cat\n2,dog\n", "1,cat\n1,dog\n"),
        ("cat,7\n,8\n", 'cat,1\n"",1\n'),
        ('"a ""b"", c"\n7\n', '"a ""b"", c"\n1\n'),
        ('"two\nlines",7\n', '"two\nlines",1\n'),
        ('"7"\n', "1\n"),
        (" a \n 7 \n", "a\n1\n"),
        ("7", "1\n"),
        ("7\n\n \n\n", "1\n"),
        ("name,a\r\ncat,7\r\n", "name,a\ncat,1\n"),
        ("\ufeffname,a\ncat,7\n", "name,a\ncat,1\n"),
        ("größe,寸\nklein,7\n", "größe,寸\nklein,1\n"),
        ("a,b\n", "a,b\n"),
        ("inf,0\n-inf,0\nINFINITY,Inf\n+inf,0\n", "1,0\n0,1\n0.5,0.5\n1,0\n"),
        ("nan,0\n0,-NaN\n-inf,-inf\n7,7\n", "nan,nan\nnan,nan\nnan,nan\n0.5,0.5\n"),
        ("1e-400,-1e-400\n", "0.5,0.5\n"),
    ],
)
def test_what_is_kept(cli, text, expected):
    """One score per row becomes probability 1, so that the rest of the file shows."""
    assert cli.output("softmax", cli.write("x.csv", text)) == expected


def test_labels_where_the_caller_says(cli):
    file = cli.write("x.csv", "7,1,3\n9,2,3\n")
    out = cli.output("softmax", file, "--labels", 1)
    assert [line.split(",")[0] for line in out.splitlines()] == ["7", "9"]
    assert cli.output("softmax", cli.write("y.csv", "id,a\n3,4\n"), "--labels", 1) == "id,a\n3,1\n"
    assert cli.output("logsumexp", cli.write("z.csv", "1,2,7\n"), "--labels", 3).endswith(",7\n")
    assert cli.output("softmax", cli.write("cat.csv", "cat,7\n12,8\n"), "--labels", 1) == "cat,1\n12,1\n"
    assert cli.output("softmax", cli.write("word.csv", "7,cat\n"), "--labels", 2) == "1,cat\n"


def test_tsv(cli):
    file = cli.write("x.tsv", "name\ta, b\tc\ncat\tinf\t0\n")
    assert cli.output("softmax", file) == 'name,"a, b",c\ncat,1,0\n'
    cli.output("softmax", file, "-o", "y.tsv")
    assert cli.files()["y.tsv"] == b"name\ta, b\tc\ncat\t1\t0\n"


def test_every_bit_survives(cli):
    numbers = np.random.default_rng(1).integers(0, 2**63, 3000, dtype=np.int64).view(np.float64)
    x = numbers[np.isfinite(numbers) & (abs(numbers) < 1e300)][:2000].reshape(-1, 1)
    cli.save("x.npy", x)
    cli.output("logsumexp", "x.npy", "-o", "y.csv")  # of one score: the score
    assert np.array_equal(parsed(cli.files()["y.csv"].decode()), x)
    cli.output("logsumexp", "y.csv", "-o", "z.npy")
    assert np.array_equal(cli.load("z.npy"), x[:, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3,4\n" * 16 + "1,2,3,abc\n", "x.csv:17:4: 'abc' is not a number"),
        ("name,a\ncat,1\ndog,1x\n", "x.csv:3:2: '1x' is not a number"),
        ("1,2\n3,\n", "x.csv:2:2: empty cell" + ON_MISSING),
        (",1,2\n", "x.csv:1:1: empty cell" + ON_MISSING),
        ("a,,c\n1,2,3\n", "x.csv:1:2: empty cell (a header names every column)"),
        ("1,2\n3\n", "x.csv:2:2: the line ends after 1 of 2 cells"),
        ("1,2\n3,4,5\n", "x.csv:2:3: the line has 3 cells, and the first one has 2"),
        ("a,b\n1\n", "x.csv:2:2: the line ends after 1 of 2 cells"),
        ("1,2\n\n3,4\n", "x.csv:2: empty line"),
        ("\n1,2\n", "x.csv:1: empty line"),
        ("1\na\nb\n", "x.csv:2:1: 'a' is not a number"),
        ("a\nb\n", "x.csv:2:1: 'b' is not a number"),
        (
            "id,1,abc,3\nx,4,5,6\n",
            "x.csv:1:3: 'abc' is not a number, though other cells of this first line are numbers (a header holds none; "
            "--header and --no-header decide)",
        ),
        (
            "1,abc,3\n4,5,6\n",
            "x.csv:1:2: 'abc' is not a number, but line 2 has one there "
            "(if these are labels: --labels 2; a header holds no numbers)",
        ),
        (
            "id,2019,2020\n1,3,4\n",
            "x.csv:1:1: 'id' is not a number, but line 2 has one there "
            "(if these are labels: --labels 1; a header holds no numbers)",
        ),
        (
            "cat,7\ndog,8\n12,9\n",
            "x.csv:1:1: 'cat' is not a number, but line 3 has one there "
            "(if these are labels: --labels 1; a header holds no numbers)",
        ),
        (
            "name,a\ncat,7\n12,8\n",
            "x.csv:2:1: 'cat' is not a number, but line 3 has one there (if these are labels: --labels 1)",
        ),
        (
            "a,name,b\n1,cat,7\n2,12,8\n",
            "x.csv:2:2: 'cat' is not a number, but line 3 has one there (if these are labels: --labels 2)",
        ),
        ("1,abc\n", "x.csv:1:2: 'abc' is not a number (if it is a label: --labels 2)"),
        ("1,abc,3\n\n", "x.csv:1:2: 'abc' is not a number (if it is a label: --labels 2)"),
        ('1,"2\n3,4\n', "x.csv:1:2: a quote is opened and never closed"),
        ('1,"2"3\n', "x.csv:1:2: there is text after the closing quote"),
        ('"a\nb",1\nc,d\n', "x.csv:3:2: 'd' is not a number"),
        ("1,1e309\n", "x.csv:1:2: '1e309' is too large for float64"),
        ("1,2\n1,0x10\n", "x.csv:2:2: '0x10' is not a number"),
        ("1,2\n1,+-2\n", "x.csv:2:2: '+-2' is not a number"),
        ("1,2\n1,nan(3)\n", "x.csv:2:2: 'nan(3)' is not a number"),
        ("1,2\n1,a\tb\x1b[31m\n", "x.csv:2:2: 'a\\x09b\\x1b[31m' is not a number"),
        ("1,2\n1," + "é" * 30 + "\n", "x.csv:2:2: '" + "é" * 20 + "...' is not a number"),
        ("", "x.csv: the file is empty"),
        ("\n\n", "x.csv: the file is empty"),
        ("1,\0\n", "x.csv: this is not text"),
        ("1,2\n".encode("utf-16"), "x.csv: this is UTF-16 text; save it as UTF-8"),
        (b"\x93NUMPY\x01\x00", "x.csv: this is a NumPy file; read it with --format-in npy"),
    ],
)
def test_bad_input(cli, text, message):
    assert cli.error("softmax", cli.write("x.csv", text), "-o", "y.csv") == message


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (3, "x.csv: --labels names column 3, but there are only 2 columns"),
        (0, "--labels counts columns from 1, got 0"),
        (
            "-1",
            "x.csv: --labels: there is no column called '-1', as the file has no header (--header says that it has)",
        ),
        (
            "b",
            "x.csv: --labels: there is no column called 'b', as the file has no header (--header says that it has)",
        ),
    ],
)
def test_bad_labels(cli, labels, message):
    assert cli.error("softmax", cli.write("x.csv", "1,2\n"), "--labels", labels) == message


def test_labels_alone_are_no_scores(cli):
    message = "x.csv: the only column holds labels, so there are no scores"
    assert cli.error("softmax", cli.write("x.csv", "1\n2\n"), "--labels", 1) == message


def test_lines_of_old_macs(cli):
    """CR alone ends no line: the file would be a header without rows."""
    for content in ("a,b\r1,2\r3,4\r", "name,a\rx,1\r", "a,b\r", "1,2\r3,4\r"):
        message = cli.error("softmax", cli.write("x.csv", content), "-o", "y.csv")
        assert message == "x.csv:1: a carriage return (CR) is not followed by a line feed; lines end with LF or CR LF"
    assert cli.output("softmax", cli.write("x.csv", '"a\rb",b\r\n1,1\r\n')) == '"a\rb",b\n0.5,0.5\n'


@pytest.mark.parametrize("rows", ["12.500;2,5\n", "2,5;1\n12.500;1\n", "1;0,5\n1;2\n0.5;2\n"])
def test_decimal_points_beside_decimal_commas(cli, rows):
    cli.write("x.csv", "sep=;\na;b\n" + rows)
    assert "and other numbers of the file have " in cli.error("logsumexp", "x.csv")
    cli.write("x.csv", "a;b\n" + rows)
    if "." in rows and "12.500" in rows:
        assert (
            cli.output("logsumexp", "x.csv", "--delimiter", ";", "--thousands", ".", "--columns", "1-2")
            .splitlines()[1]
            .startswith("12500" if rows.startswith("12") else "2.7")
        )
    cli.write("x.csv", "a;b\n0.125;1\n2.5;3\n")  # points alone
    assert len(cli.output("logsumexp", "x.csv", "--delimiter", ";").splitlines()) == 3


def test_labels_that_are_not_utf8(cli):
    cli.write("x.csv", b"l,a,b\nn\xe9,1,2\nn\xe8,2,1\n")
    done = cli("softmax", "x.csv", "--format-out", "jsonl")
    assert done.returncode == 2 and done.stdout == b"" and b"is not UTF-8, which JSON needs; iconv" in done.stderr
    assert b"n\xe9," in cli("softmax", "x.csv").stdout


def test_blanks_that_align_columns(cli):
    assert cli.error("softmax", "--delimiter", "space", stdin=b"1   2 3\n").endswith("tr -s ' ' makes it so")


def test_a_letter_in_a_number_is_no_label(cli):
    cli.write("x.csv", "a,b,c\n1,2,1O\n")
    assert cli.error("softmax", "x.csv").startswith("x.csv:2:3: '1O' is not a number")
    cli.write("x.csv", "name,a,b\nO2,1,2\nI1,2,1\n")
    assert cli.output("softmax", "x.csv").splitlines()[1].startswith("O2,")
