"""Columns of numbers that may be labels, identifiers or indices are not taken for scores without a word."""

import json

import numpy as np
import pytest
from conftest import parsed, softmax

LABELS = [
    *("Label", "LABEL", "Labels", "label_id", "labelIdx", "true_label", "True Label", "goldLabel", "gold-label", "label_ids"),
    *("Class", "CLASS", "classes", "class_id", "classId", "ClassID", "class label", "predicted_class", "target class"),
    *("Target", "targets", "target_id", "y", "Y", "y_true", "yTrue", "y-true", "Y True", "y.true", "y_pred", "y_test"),
    *("gold", "Gold", "gold_answer", "ground_truth", "GroundTruth", "gt", "actual", "pred", "prediction", "Token", "token_id"),
]
ROWS = [
    *("id", "ID", "Id", "index", "Index", "idx", "IDX", "row", "row_id", "rowId", "PassengerId", "image_id", "imageId"),
    *("example_idx", "sample id", "user_id", "guid", "qid", "Unnamed: 0", "unnamed: 0", "Unnamed: 0.1", "level_0"),
    *("__index_level_0__", "_step", "Step", "epoch", "timestamp", "speaker", "row number", "userid", "id_code"),
]


@pytest.mark.parametrize("name", [*LABELS, *ROWS])
@pytest.mark.parametrize("place", [1, 3])
def test_names_of_labels_and_rows(cli, name, place):
    if name in ("Y", "y"):  # beside other letters it is a coordinate
        assert len(cli.output("softmax", cli.write("x.csv", "x,y\n1,2\n")).splitlines()) == 2
    cells, row = ["cat", "dog"], ["2", "0"]
    cells.insert(place - 1, name)
    row.insert(place - 1, "1")
    cli.write("x.csv", ",".join(cells) + "\n" + ",".join(row) + "\n")
    message = cli.error("softmax", "x.csv")
    assert message == (
        f"x.csv:1:{place}: column '{name}' may be scores or the rows' names: --labels {place} takes it as names, "
        f"--exclude {place} leaves it out, --columns 1-3 takes it as scores"
    )
    assert cli.error("softmax", stdin=(cli.directory / "x.csv").read_bytes()) == message.replace("x.csv", "standard input")
    cli.write("x.tsv", "\t".join(cells) + "\n" + "\t".join(row) + "\n")
    assert cli.error("softmax", "x.tsv") == message.replace("x.csv", "x.tsv")
    want = softmax(np.array([[2.0, 0.0]]))
    np.testing.assert_allclose(parsed(cli.output("softmax", "x.csv", "--exclude", place).splitlines()[1]), want)
    assert cli.output("softmax", "x.csv", "--labels", name).splitlines()[1].split(",")[min(place - 1, 2)] == "1"
    assert len(cli.output("softmax", "x.csv", "--columns", "1-3").splitlines()) == 2
    cli.write("x.jsonl", json.dumps(dict(zip(cells, map(int, row), strict=True))) + "\n")
    assert cli.error("softmax", "x.jsonl") == (
        f"x.jsonl:1: '{name}' looks like a name for rows; --labels {name} takes it as the label, "
        f"--exclude {name} leaves it out, --columns chooses"
    )


def test_the_case_of_the_report(cli):
    cli.write("x.csv", "Label,cat,dog\n1,2.0,1.0\n")
    assert cli.error("softmax", "x.csv").startswith("x.csv:1:1: column 'Label' may be scores or the rows' names: --labels 1 ")
    # A corner or a label does not hide a second column.
    cli.write("x.csv", ",Label,cat,dog\n0,1,2.0,1.0\n")
    assert cli.error("softmax", "x.csv").startswith("x.csv:1:2: column 'Label' may be")
    cli.write("x.csv", "id,Label,cat,dog\n7,1,2.0,1.0\n")
    assert cli.error("softmax", "x.csv", "--labels", "id").startswith("x.csv:1:2: column 'Label' may be")
    assert cli.error("softmax", "x.csv").startswith("x.csv:1:1: columns 'id' and 'Label' may be")
    cli.write("x.csv", "a,y_true,b\n0.5,NA,1.5\n1,2,3\n")
    assert cli.error("softmax", "x.csv", "--missing", "nan").startswith("x.csv:1:2: column 'y_true' may be")
    cli.write("x.jsonl", '{"": 0, "cat": 1, "dog": 2}\n')
    assert cli.error("softmax", "x.jsonl") == "x.jsonl:1: '' looks like a name for rows; --columns chooses"


REPORT = ["relative_path", "speaker", "y_true", "logit_0", "logit_1"]


def test_identifiers_beside_numbered_scores(cli):
    cli.write("x.csv", ",".join(REPORT) + "\na.wav,1001,1,0.5,-1.5\nb.wav,1002,0,2,1\n")
    for options in ([], ["--labels", 1], ["--labels", "relative_path"]):
        assert cli.error("softmax", "x.csv", *options) == (
            "x.csv:1:2: columns 'speaker' and 'y_true' may be scores or the rows' names, since they stand beside 'logit_0' and "
            "'logit_1': --labels 2 takes the first as names, --exclude 2-3 leaves them out, --columns 2-5 takes them as scores"
        )
    left = cli.output("softmax", "x.csv", "--exclude", "2-3")
    assert left.splitlines()[0] == "relative_path,logit_0,logit_1"
    assert cli.output("softmax", "x.csv", "--columns", "logit_0-logit_1") == left
    for command in (["entropy", "--input", "scores"], ["sample", "--seed", 1], ["describe", "--input", "scores"], ["compare"]):
        assert cli.error(*command, "x.csv").startswith("x.csv:1:2: columns 'speaker' and 'y_true' may be")
    cli.write("x.jsonl", json.dumps(dict(zip(REPORT, ["a.wav", 1001, 1, 0.5, -1.5], strict=True))) + "\n")
    assert cli.error("softmax", "x.jsonl") == (
        "x.jsonl:1: 'speaker' and 'y_true' look like names for rows, since they stand beside 'logit_0' and 'logit_1'; "
        "--labels speaker takes the first as the label, --exclude speaker,y_true leaves them out, --columns chooses"
    )
    found = cli.output("softmax", "x.jsonl", "--exclude", "speaker,y_true")
    assert found.splitlines()[0] == "relative_path,logit_0,logit_1"


@pytest.mark.parametrize(
    ("names", "row", "doubtful"),
    [
        ("speaker_name_code,logit0,logit1", "7,2,1", [1]),
        ("logits[0],logits[1],take", "2,1,7", [3]),
        ("x,prob_cat,prob_dog", "7,0.5,0.5", [1]),
        ("x,cat_score,dog_score", "0.5,0.5,0.5", [1]),
        ("catLogit,dogLogit,z", "1.5,2.5,3.5", [3]),
        ("log_prob_1,log_prob_2,n", "1,2,3", [3]),
        ("logit_0,logit_1,prob_0,prob_1", "1,2,0.25,0.75", [3, 4]),
        ("take,score_00,score_01", "7,0.5,1", [1]),
        ("take,x0,x1", "7,0.5,1.5", [1]),
        ("V1,V2,take", "0.5,1.5,7", [3]),
    ],
)
def test_names_that_say_which_are_scores(cli, names, row, doubtful):
    message = cli.error("softmax", cli.write("x.csv", f"{names}\n{row}\n"))
    assert message.startswith(f"x.csv:1:{doubtful[0]}: column{'s' if len(doubtful) > 1 else ''} '")
    assert ", since " in message and f"--exclude {doubtful[0]}{'-4' if len(doubtful) > 1 else ''} leaves" in message
    fields = dict(zip(names.split(","), map(json.loads, row.split(",")), strict=True))
    assert " stand" in cli.error("softmax", cli.write("x.jsonl", json.dumps(fields) + "\n"))


WHOLE = ", since it has whole numbers and others have fractions: "


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("who,cat,dog\n1,2.0,1.0\n", "1"),
        ("cat,dog,who\n2.0,1.5,3\n", "3"),
        ("who,cat,dog\n3,0.5,1.5\n", "1"),
        ("who,cat,dog\n3,0.5,1.5\n1,2.5,0.25\n", "1"),
        ("cat,who,dog\n0.5,3,1.5\n2.5,0,0.25\n", "2"),
        ("who,cat,dog\n1001,0.5,1.5\n", "1"),
        ("who,cat\n1001,0.5\n1002,1\n", "1"),
        ("who,cat,dog\n0,0.5,0.5\n1,1,0\n2,0,1\n", "1"),
        ("name,who,cat,dog\nx,3,0.5,1.5\ny,1,2.5,0.25\n", "2"),
        ("who,cat,dog\n3,NA,1.5\nNA,2.5,0.25\n1,0.5,nan\n", "1"),
    ],
)
def test_whole_numbers_beside_fractions(cli, text, place):
    cli.write("x.csv", text)
    missing = ["--missing", "nan"] if "NA" in text else []
    message = cli.error("softmax", "x.csv", *missing)
    assert message.startswith(f"x.csv:1:{place}: column 'who' may be scores or the rows' names{WHOLE}--labels {place} takes it")
    assert cli.error("softmax", *missing, stdin=text.encode()) == message.replace("x.csv", "standard input")
    assert cli.output("softmax", "x.csv", "--exclude", "who", *missing)
    assert cli.output(
        "softmax", "x.csv", "--columns", ",".join(cell for cell in text.split("\n")[0].split(",") if cell != "name"), *missing
    )
    rows = [line.split(",") for line in text.splitlines()]
    value = lambda cell: "null" if cell == "NA" else "NaN" if cell == "nan" else cell if cell[0].isdigit() else f'"{cell}"'  # noqa: E731
    lines = ["{" + ", ".join(f'"{n}": {value(c)}' for n, c in zip(rows[0], row, strict=True)) + "}\n" for row in rows[1:]]
    cli.write("x.jsonl", "".join(lines))
    assert "'who' looks like a name for rows, since it has whole numbers" in cli.error("softmax", "x.jsonl", *missing)
    if "name" in text or text == "who,cat,dog\n3,0.5,1.5\n":  # a row alone, without names, may have any numbers
        return
    cli.write("bare.csv", text.split("\n", 1)[1])
    assert cli.error("softmax", "bare.csv", "--no-header", *missing).startswith(
        f"bare.csv:1:{place}: column {place} may be scores or the rows' names{WHOLE}"
    )


CLEAR = [
    "cat,dog,bird\n2,1,0.1\n",
    "2,1,0.1\n",
    "1,0.5\n2,0.25\n",
    "cat,dog\n2,1\n",
    "cat,dog\n2.0,1.0\n3.0,1.0\n",
    "name,cat,dog\na,0.5,2\nb,1,0.25\n",
    "a,b,c\n0.5,0.5,0\n0.25,0.75,0\n",
    "a,b,c\n1,0,0\n0,0.25,0.75\n1,0,0\n",
    ",0,1,2\n0,0.5,1.5,-1\n1,2,0.25,0.125\n",
    "x0,x1,x2\n0.5,1.5,2.5\n",
    "label_0,label_1\n0.5,2.5\n",
    "LABEL_0,LABEL_1\n1,2\n",
    "logit_0,logit_1\n1,2\n",
    "type1,type2,none\n0.5,1.5,2.5\n",
    "gpt3,gpt4,claude\n0.5,1.5,2.5\n",
    "the,gold,answer,king\n-1.5,-2.5,-3.5,-0.5\n",
    "first class,second class,third class\n1,2,3\n",
    "true,false\n1,2\n",
    "yes,no\n1,2\n",
    "solid,liquid,gas\n1,2,3\n",
    "target_1,target_2\n1,2\n",
    "p,q,y\n0.5,1,2\n",
    "a,b\n0.5,1\n0.25,7\n",
    "a,b,c\n0.5,1.5,3\n0.5,1.5,0.5\n",
]


@pytest.mark.parametrize("text", CLEAR)
def test_clear_files_are_read(cli, text):
    cli.write("x.csv", text)
    assert cli.output("softmax", "x.csv")
    assert cli.output("softmax", stdin=text.encode())


def test_points_and_costs_may_be_whole(cli):
    cli.write("x.csv", "u,v,w\n1,0.5,2.5\n2,1.5,0.5\n")
    assert cli.output("wasserstein", "x.csv", "x.csv")
    assert cli.output("sliced_wasserstein", "x.csv", "x.csv")
    assert "'id' may be" in cli.error("wasserstein", cli.write("y.csv", "id,u,v\n1,0.5,2.5\n"), "x.csv")


def test_a_second_file_is_read_by_the_same_rules(cli):
    cli.write("p.csv", "cat,dog\n0.25,0.75\n")
    cli.write("q.csv", "cat,dog,y_true\n0.5,0.5,1\n")
    assert cli.error("kl_divergence", "p.csv", "q.csv").startswith("q.csv:1:3: column 'y_true' may be")
    cli.write("many.csv", "cat,dog,who\n" + "0.5,0.5,1\n" * 3)
    assert cli.error("softmax", "p.csv", "many.csv", "-o", "all.csv").startswith("many.csv:1:3: column 'who' may be")


def test_rows_come_in_any_pieces(cli):
    """What decides are the first rows, not how a pipe hands them over."""
    rows = b"who,cat,dog\n" + b"3,0.5,1.5\n" * 20_000
    message = cli.error("softmax", stdin=rows)
    assert message.startswith("standard input:1:1: column 'who' may be")
    late = b"who,cat,dog\n" + b"3,0.5,1.5\n" * 7 + b"3.5,0.5,1.5\n" * 3
    assert cli.output("softmax", stdin=late).count("\n") == 11


# fmt: off
MORE_NAMES = [
    "sentiment_label", "image_label", "label1", "label_encoded", "my_label", "fine_label", "class_name", "class_no",
    "image_class", "defect_class", "subclass", "identifier", "sample_identifier", "ID_1", "sample_id_2", "objid",
    "imgid", "uttid", "seqid", "instanceid", "rownum", "rownames", "lineno", "indices", "idxs", "Index_1", "S.No.",
    "SNo", "yhat", "y_hat", "Survived", "Outcome", "species", "标签", "Klasse",
]
# fmt: on


@pytest.mark.parametrize("name", MORE_NAMES)
def test_names_in_many_words(cli, name):
    """Whole numbers under a name of labels, identifiers or indices, among whole scores and among fractions."""
    for scores in (("4,5", "3,2"), ("4.5,5.25", "3.5,2.25")):
        cli.write("x.csv", f"{name},cat,dog\n1,{scores[0]}\n0,{scores[1]}\n")
        assert f"column '{name}' may be" in cli.error("softmax", "x.csv")
        cli.output("softmax", "x.csv", "--columns", "cat,dog")


def test_a_column_of_whole_numbers_beside_one_of_fractions(cli):
    cli.write("x.csv", "spk,score\n12,0.5\n7,0.25\n13,1.5\n")
    assert "column 'spk' may be scores or the rows' names, since it has whole numbers" in cli.error("softmax", "x.csv")
