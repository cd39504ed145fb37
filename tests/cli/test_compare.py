"""`isentropic compare`: the numbers of the report, and that it fits where it is read."""

import gzip
import json
import math

import numpy as np
import pytest
from conftest import softmax

UTF8 = {"LANG": "C.UTF-8"}
PAIR = ("--maps", "softmax,sparsemax")
FILE = "name,cat,dog,größe\nfirst,2,1,-1\nsecond,0,0,0\n"


def test_text(cli):
    file = cli.write("x.csv", "name,cat,dog,eel\nfirst,0,-inf,0\n")
    out = cli.output("compare", file, *PAIR, environment={**UTF8, "COLUMNS": "60"})
    assert out.splitlines() == [
        "x.csv, row 0 (first): 3 classes",
        "",
        "class       score  softmax              sparsemax",
        "cat             0  0.5000 ████████████  0.5000 ████████████",
        "dog          -inf       0                    0",
        "eel             0  0.5000 ████████████  0.5000 ████████████",
        "",
        "entropy (nats)     0.6931               0.6931",
        "effective support    2.00                 2.00",
        "zeros                   1                    1",
        "maximum            0.5000               0.5000",
        "",
        "A full bar is 0.5000.",
    ]


def test_ascii_without_utf8(cli):
    file = cli.write("x.csv", "0,-1,-30\n")
    out = cli.output("compare", file, environment={"LC_ALL": "C", "LANG": "en_US.UTF-8"})
    assert out.isascii() and "####" in out
    assert out.splitlines()[5].split()[:4] == ["2", "-30", "7e-14", "."]
    assert "█" in cli.output("compare", file, environment={"LANG": "de_AT.utf8"})


def test_json(cli):
    report = json.loads(cli.output("compare", cli.write("x.csv", FILE), *PAIR, "--row", 0, "--format", "json"))
    assert (report["file"], report["row"], report["label"]) == ("x.csv", 0, "first")
    assert report["classes"] == ["cat", "dog", "größe"]
    assert report["scores"] == [2, 1, -1]
    assert [column["name"] for column in report["maps"]] == ["softmax", "sparsemax"]
    for column in report["maps"]:
        p = np.array(column["probabilities"])
        first_row = cli.output(column["name"], "x.csv").splitlines()[1]
        assert p.tolist() == [float(cell) for cell in first_row.split(",")[1:]]
        entropy = -sum(q * math.log(q) for q in p if q > 0)
        assert column["entropy"] == pytest.approx(entropy, abs=1e-15)
        assert column["effective_support"] == pytest.approx(math.exp(entropy))
        assert column["zeros"] == (p == 0).sum()
        assert column["maximum"] == p.max()
    assert report["maps"][1]["probabilities"] == [1, 0, 0]


def test_json_writes_any_text_and_number(cli):
    file = cli.write("x.csv", b'"a ""b"" \\ \n\xff",\xc3\xa9\nnan,inf\n-inf,0\n')
    report = json.loads(cli.output("compare", file, "--format", "json"))
    assert report["classes"] == ['a "b" \\ \n\ufffd', "é"]
    assert report["scores"] == ["nan", "inf"]
    assert report["maps"][0]["probabilities"] == ["nan", "nan"]
    assert report["maps"][0]["entropy"] == report["maps"][0]["maximum"] == "nan"
    assert json.loads(cli.output("compare", file, "--row", 1, "--format", "json"))["scores"] == ["-inf", 0]


def test_row_and_maps(cli):
    cli.write("x.csv", FILE)
    out = cli.output("compare", "x.csv", "--row", 1, "--maps", "sparsemax")
    assert "row 1 (second)" in out and "softmax" not in out.replace("sparsemax", "")
    report = json.loads(cli.output("compare", "x.csv", "--maps", "sparsemax,softmax", "--format", "json"))
    assert [column["name"] for column in report["maps"]] == ["sparsemax", "softmax"]


def test_static_is_for_pages(cli):
    cli.write("x.csv", FILE)
    for given in ([], ["--format", "json"], ["-o", "x.txt"]):
        assert cli.error("compare", "x.csv", "--static", *given) == "compare: --static is for pages, --format html"


def test_all_maps_without_a_choice(cli):
    report = json.loads(cli.output("compare", cli.write("x.csv", FILE), "--format", "json"))
    assert [column["name"] for column in report["maps"]][:2] == ["softmax", "sparsemax"]


def test_every_map_fits_80_columns(cli):
    file = cli.write("x.csv", "one,two,three\n2,1,0\n")
    out = cli.output("compare", file, environment={**UTF8, "COLUMNS": "80"})
    assert max(map(len, out.splitlines())) <= 80
    heads = [line for line in out.splitlines() if line.startswith("class ")]
    report = json.loads(cli.output("compare", file, "--format", "json"))
    assert " ".join(heads).replace("class", "").replace("score", "").split() == [map["name"] for map in report["maps"]]
    # Values that the user did not choose are told, those that are defaults need not be.
    assert "\ntop_k_softmax is shown with k = " in out and "\nmin_p_softmax is shown with p = " in out
    assert "\nsoftmax is shown" not in out


def test_many_maps_fit_the_terminal(cli):
    cli.write("x.csv", "one,two\n1,2\n")
    for width in [60, 80, 100]:
        maps = ",".join(["softmax", "sparsemax"] * 5)
        out = cli.output("compare", "x.csv", "--maps", maps, environment={**UTF8, "COLUMNS": str(width)})
        assert out.count("softmax") == 5 and out.count("entropy (nats)") > 1
        assert max(map(len, out.splitlines())) <= width


def test_many_classes(cli):
    x = np.random.default_rng(5).normal(size=(1, 1000))
    out = cli.output("compare", cli.save("x.npy", x), *PAIR, environment=UTF8)
    lines = out.splitlines()
    assert len(lines) < 40 and max(map(len, lines)) <= 80
    assert [int(line.split()[0]) for line in lines[3:23]] == np.argsort(-x[0])[:20].tolist()
    rest = 1 - np.sort(softmax(x)[0])[-20:].sum()
    assert lines[23].split() == ["980", "more", f"{rest:.4f}", "together", "0", "together"]


def test_long_and_strange_names(cli):
    file = cli.write("x.csv", '"' + "long " * 30 + '",寸寸寸,"e\x1b[31m\nf"\n1,2,3\n')
    lines = cli.output("compare", file, environment=UTF8).splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)
    assert lines[3].startswith("long long") and ".. " in lines[3]


def test_rows_without_a_distribution(cli):
    for row in ["nan,1", "-inf,-inf"]:
        out = cli.output("compare", cli.write("x.csv", row + "\n"))
        assert "entropy (nats)        nan" in out and "-nan" not in out


def test_output_file(cli):
    cli.output("compare", cli.write("x.csv", FILE), "-o", "report.txt", environment={"COLUMNS": "150"})
    assert max(map(len, (cli.directory / "report.txt").read_text().splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row", "2"], "x.csv: there is no row 2; the rows are 0 to 1"),
        (["--row", "-1"], "--row must be a whole number of at least 0, got '-1'"),
        (["--maps", "softmax,hardmax"], "compare: --maps must be among softmax, sparsemax, *, got 'hardmax'"),
        (["--maps", "softmax,"], "compare: --maps must be among softmax, sparsemax, *, got ''"),
        (["--format", "xml"], "compare: --format must be text, json or html, got 'xml'"),
    ],
)
def test_bad_arguments(cli, arguments, message):
    found = cli.error("compare", cli.write("x.csv", FILE), *arguments, "-o", "report.txt")
    start, _, end = message.partition("*")
    assert found == message if "*" not in message else found.startswith(start) and found.endswith(end)


def test_no_rows(cli):
    assert cli.error("compare", cli.write("x.csv", "a,b\n")) == "x.csv: there are no rows to compare"


def test_format_by_the_name_of_the_output(cli):
    cli.write("x.csv", "1,2,3\n")
    cli.output("compare", "x.csv", "-o", "r.html")
    cli.output("compare", "x.csv", "-o", "r.json")
    cli.output("compare", "x.csv", "-o", "text.html", "--format", "text")
    files = {name: content.decode() for name, content in cli.files().items()}
    assert files["r.html"].startswith("<!doctype html>") and json.loads(files["r.json"])
    assert files["text.html"] == cli.output("compare", "x.csv")


def test_row_by_its_label(cli):
    file = cli.write("x.csv", "name,a,b\ncat,0,1\ndog,2,2\n")
    assert cli.output("compare", file, "--row", "dog") == cli.output("compare", file, "--row", 1)
    assert cli.error("compare", file, "--row", "cow") == "x.csv: there is no row with the label 'cow'"
    file = cli.write("y.csv", "0,1\n")
    assert cli.error("compare", file, "--row", "cow") == "--row must be a whole number of at least 0, got 'cow'"


def test_report_of_another_name(cli):
    file = cli.write("x.csv", "0,1\n")
    message = "compare: -o must end in .txt, .json or .html, got 'y.csv'; --format names the format"
    assert cli.error("compare", file, "-o", "y.csv") == message
    cli.output("compare", file, "-o", "y.csv", "--format", "json")
    cli.output("compare", file, "-o", "y")
    for name in ("y.png", "folder.d/y.png", "y.csv.gz", "y."):
        assert cli.error("compare", file, "-o", name).startswith("compare: -o must end in .txt, .json or .html, got ")
    cli.output("compare", file, "-o", "y.JSON.gz")
    assert json.loads(gzip.decompress((cli.directory / "y.JSON.gz").read_bytes()))["file"] == file
    assert cli.error("compare", file, "--maps", "") == "compare: --maps must not be empty"
    assert "text: bars to read" in cli.output("compare", "--help")


def test_rows_are_counted_in_the_file(cli):
    cli.write("x.csv", "\n".join(f"{r}.25,{2 * r}.5" for r in range(40)) + "\n")
    read = ["compare", "x.csv", "--rows", "20:30", "--format", "json"]
    for given, row in (([], 20), (["--row", "22"], 22)):
        found = json.loads(cli.output(*read, *given))
        assert found["row"] == row and found["scores"] == [row + 0.25, 2 * row + 0.5]
        assert found["maps"][0]["distances"]["first_row"] == 20
    assert cli.error(*read, "--row", "3") == "x.csv: there is no row 3; the rows are 20 to 29"
    assert cli.output("compare", "x.csv", "--rows", "20:30", "--row", "29").startswith("x.csv, row 29: 2 classes\n")
    page = cli.output("compare", "x.csv", "--rows", "20:30", "--row", "22", "--format", "html", "--static")
    assert '"before":20,"total":10,' in page and '"first":20,' in page and '"row":22,' in page
