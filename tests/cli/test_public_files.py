"""Files of scores as programs and competitions write them, made up anew: read right, or refused with the option to type.

A case is its file, what a refusal must advise (nothing: it is read), the options that read it, the names of its scores, and its
labels. A number of classes, an identifier or an index is never read as a score without a word."""

import csv
import io
import json

import numpy as np
import pytest


def lines(*objects):
    return "".join(json.dumps(one) + "\n" for one in objects)


CAT_DOG = [[0.5, 1.5], [0.25, 0.75]]
CASES = {
    # Competitions
    "Kaggle, classes": (
        "id,Class_1,Class_2\n7,0.5,1.5\n9,0.25,0.75\n",
        "--labels 1",
        ["--labels", 1],
        "Class_1,Class_2",
        "7,9",
    ),
    "Kaggle, one target": (
        "id,target\n0,0.5\n1,0.25\n",
        "--columns 1-2",
        ["--columns", "target", "--labels", "id"],
        "target",
        "0,1",
    ),
    "Kaggle, digits": ("ImageId,Label\n1,2\n2,0\n", "--exclude 1-2", ["--labels", 1, "--columns", 2], "Label", "1,2"),
    "Kaggle, survivors": (
        "PassengerId,Survived\n892,0\n893,1\n",
        "--labels 1",
        ["--labels", 1, "--columns", 2],
        "Survived",
        "892,893",
    ),
    "Kaggle, ids that are words": (
        "id,cat,dog\n00ab12ff,0.5,1.5\n0ec22a01,0.25,0.75\n",
        "",
        [],
        "cat,dog",
        "00ab12ff,0ec22a01",
    ),
    "Kaggle, features and class": (
        "id,feat_1,feat_2,target\n1,1,0,Class_1\n2,0,3,Class_2\n",
        "--exclude 1",
        ["--exclude", 1],
        "feat_1,feat_2",
        "Class_1,Class_2",
    ),
    "Kaggle, row_id": ("row_id,cat,dog\n0,0.5,1.5\n1,0.25,0.75\n", "--labels 1", ["--labels", 1], "cat,dog", "0,1"),
    "Kaggle, UIDs": (
        "StudyInstanceUID,a b,c d\n1.2.826.1,0.5,1.5\n1.2.826.2,0.25,0.75\n",
        "",
        [],
        "a b,c d",
        "1.2.826.1,1.2.826.2",
    ),
    "MNIST": ("label,pixel0,pixel1\n5,0,12\n0,3,255\n", "--labels 1", ["--labels", 1], "pixel0,pixel1", "5,0"),
    # scikit-learn, torch, pandas
    "predict_proba with index": (",0,1\n0,0.5,1.5\n1,0.25,0.75\n", "", [], "0,1", "0,1"),
    "predict_proba without": (
        "0,1,2\n0.1,0.2,0.7\n0.3,0.3,0.4\n",
        "--header takes it as names, --no-header as scores",
        ["--header"],
        "0,1,2",
        None,
    ),
    "y_true beside": (
        "y_true,proba_0,proba_1\n1,0.5,1.5\n0,0.25,0.75\n",
        "--labels 1",
        ["--labels", 1],
        "proba_0,proba_1",
        "1,0",
    ),
    "y_true and y_pred": (
        "y_true,y_pred,proba_0,proba_1\n1,1,0.5,1.5\n0,0,0.25,0.75\n",
        "--exclude 1-2",
        ["--labels", 1, "--exclude", 2],
        "proba_0,proba_1",
        "1,0",
    ),
    "decision_function": (
        "index,setosa,other\n0,0.5,1.5\n1,0.25,0.75\n",
        "--exclude 1",
        ["--exclude", 1],
        "setosa,other",
        None,
    ),
    "y_prob and y_test": ("y_prob,y_test\n0.75,1\n0.25,0\n", "--labels 2", ["--labels", 2], "y_prob", "1,0"),
    "savetxt": ("1.0000000e+00,2.500000e+00\n5.000000e-01,1.500000e+00\n", "", [], None, None),
    "savetxt with a header": ("# a,b\n0.5,1.5\n0.25,0.75\n", "", [], "# a,b", None),
    "savetxt with blanks": ("0.5 1.5\n0.25 0.75\n", "--delimiter space", ["--delimiter", "space"], None, None),
    "label first": ("label,logit_0,logit_1\n1,0.5,1.5\n0,0.25,0.75\n", "--labels 1", ["--labels", 1], "logit_0,logit_1", "1,0"),
    "label last": ("logit_0,logit_1,label\n0.5,1.5,1\n0.25,0.75,0\n", "--labels 3", ["--labels", 3], "logit_0,logit_1", "1,0"),
    "label last, no header": ("0.5,1.5,1\n0.25,0.75,0\n0.5,0.25,1\n", "--labels 3", ["--labels", 3], None, "1,0,1"),
    "CLASS in capitals": ("CLASS,CAT,DOG\n2,0.5,1.5\n1,0.25,0.75\n", "--labels 1", ["--labels", 1], "CAT,DOG", "2,1"),
    "epoch and batch": (
        "epoch,batch,logit_a,logit_b\n0,0,0.5,1.5\n0,1,0.25,0.75\n",
        "--exclude 1-2",
        ["--exclude", "1-2"],
        "logit_a,logit_b",
        None,
    ),
    "history of training": (
        "epoch,accuracy,loss\n0,0.5,1.5\n1,0.25,0.75\n",
        "--exclude 1",
        ["--exclude", 1],
        "accuracy,loss",
        None,
    ),
    "timestamps": (
        "timestamp,cat,dog\n1700000000,0.5,1.5\n1700000001,0.25,0.75\n",
        "--exclude 1",
        ["--exclude", 1],
        "cat,dog",
        None,
    ),
    "dates": ("date,cat,dog\n2024-01-05,0.5,1.5\n2024-01-06,0.25,0.75\n", "", [], "cat,dog", "2024-01-05,2024-01-06"),
    "paths and gold": (
        "file,gold,cat,dog\na.png,1,0.5,1.5\nb.png,0,0.25,0.75\n",
        "--exclude 2",
        ["--exclude", 2],
        "cat,dog",
        "a.png,b.png",
    ),
    "reset_index": (
        "level_0,index,cat,dog\n0,3,0.5,1.5\n1,4,0.25,0.75\n",
        "--exclude 1-2",
        ["--labels", "index", "--exclude", 1],
        "cat,dog",
        "3,4",
    ),
    "Unnamed: 0": ("Unnamed: 0,cat,dog\n0,0.5,1.5\n1,0.25,0.75\n", "--exclude 1", ["--exclude", 1], "cat,dog", None),
    "xgboost contributions": (
        "f0,f1,bias\n0.5,1.5,-1\n0.25,0.75,-1\n",
        "--columns 1-3",
        ["--columns", "1-3"],
        "f0,f1,bias",
        None,
    ),
    # R and Weka
    "write.csv": ('"","cat","dog"\n"1",0.5,1.5\n"2",0.25,0.75\n', "", [], "cat,dog", "1,2"),
    "write.csv, row.names=FALSE": ('"cat","dog"\n0.5,1.5\n0.25,0.75\n', "", [], "cat,dog", None),
    "write.table": ('"cat"\t"dog"\n"1"\t0.5\t1.5\n"2"\t0.25\t0.75\n', "", ["--format-in", "tsv"], "cat,dog", "1,2"),
    "write.csv2": (
        '"";"cat";"dog"\n"1";0,5;1,5\n"2";0,25;0,75\n',
        "--delimiter ';'",
        ["--delimiter", ";"],
        "cat,dog",
        "1,2",
    ),
    "predict with obs": (
        '"","no","yes","obs"\n"1",0.5,1.5,"no"\n"2",0.25,0.75,"yes"\n',
        "--labels 4",
        ["--labels", "obs", "--exclude", 1],
        "no,yes",
        "no,yes",
    ),
    "caret": (
        "pred,obs,no,yes,rowIndex\nno,no,0.5,1.5,3\nyes,yes,0.25,0.75,7\n",
        "--exclude 5",
        ["--labels", "obs", "--columns", "no,yes"],
        "no,yes",
        "no,yes",
    ),
    "Weka": (
        "inst#,actual,predicted,cat,dog\n1,1:yes,1:yes,0.5,1.5\n2,2:no,1:yes,0.25,0.75\n",
        "--exclude 1",
        ["--labels", "actual", "--columns", "cat,dog"],
        "cat,dog",
        "1:yes,2:no",
    ),
    # Spreadsheets and statistics
    "Excel, German": (
        "Name;Katze;Hund\r\nx;0,5;1,5\r\ny;0,25;0,75\r\n",
        "--delimiter ';'",
        ["--delimiter", ";"],
        "Katze,Hund",
        "x,y",
    ),
    "Excel, sep=": ("sep=;\r\nName;Katze;Hund\r\nx;0,5;1,5\r\ny;0,25;0,75\r\n", "", [], "Katze,Hund", "x,y"),
    "Excel, class in German": (
        "\ufeffKlasse;Katze;Hund\r\n3;0,5;1,5\r\n4;0,25;0,75\r\n",
        "--delimiter ';'",
        ["--delimiter", ";", "--labels", "Klasse"],
        "Katze,Hund",
        "3,4",
    ),
    "Excel, thousands": (
        'Name,Rome,Oslo\r\nx,"1,234.50","2,345.00"\r\ny,"3,000.25","1,000.75"\r\n',
        "--thousands ,",
        ["--thousands", ","],
        "Rome,Oslo",
        "x,y",
    ),
    "Excel, errors": (
        "Name,a,b\r\nx,#DIV/0!,1.5\r\ny,0.25,0.75\r\n",
        "--na '#DIV/0!'",
        ["--na", "#DIV/0!", "--missing", "skip"],
        "a,b",
        "y",
    ),
    "Excel, percent": ("Name,a,b\r\nx,25%,75%\r\n", "save the cells as numbers", None, None, None),
    "SPSS": (
        "case,a,b\n1,-99,0.5\n2,0.25,0.75\n",
        "--exclude 1",
        ["--exclude", 1, "--na", "-99", "--missing", "skip"],
        "a,b",
        None,
    ),
    "Stata": (
        "person,a,b\n1,.,0.5\n2,0.25,0.75\n",
        "--na '.'",
        ["--labels", 1, "--na", ".", "--missing", "skip"],
        "a,b",
        "2",
    ),
    # Speech, search, boosting
    "n-best lists": ("utt_id,am_score,lm_score\nu1,0.5,1.5\nu2,0.25,0.75\n", "", [], "am_score,lm_score", "u1,u2"),
    "a run of a search engine": (
        "qid,docid,rank,score\n101,7,1,0.5\n101,9,2,0.25\n",
        "--exclude 1-2",
        ["--columns", "score", "--labels", "docid"],
        "score",
        "7,9",
    ),
    "pairs without a header": (
        "101\t7\t0.5\n101\t9\t0.25\n101\t8\t0.75\n",
        "--exclude 1-2",
        ["--format-in", "tsv", "--columns", 3],
        None,
        None,
    ),
    "AutoGluon": ("Id,no,yes\n1,0.5,1.5\n2,0.25,0.75\n", "--labels 1", ["--labels", 1], "no,yes", "1,2"),
    "H2O": ("predict,p0,p1\n1,0.5,1.5\n0,0.25,0.75\n", "--labels 1", ["--labels", 1], "p0,p1", "1,0"),
    "similarities of words": (
        "word\tking\tqueen\nman\t0.5\t1.5\nwoman\t0.25\t0.75\n",
        "",
        ["--format-in", "tsv"],
        "king,queen",
        "man,woman",
    ),
    "counts of a confusion": ("actual,cat,dog\ncat,30,2\ndog,4,25\n", "", [], "cat,dog", "cat,dog"),
}
OBJECTS = {
    "lm-eval, logprobs": (
        lines(*({"doc_id": i, "target": 1 - i, "logprobs": row, "acc": 1.0} for i, row in enumerate(CAT_DOG))),
        "",
        [],
        2,
    ),
    "lm-eval, samples": (lines({"doc_id": 0, "resps": [[[-1.5, False]]], "filtered_resps": [[-1.5, False]]}), "--key", None, 0),
    "data set with logits": (lines(*({"text": "x", "label": i, "logits": row} for i, row in enumerate(CAT_DOG))), "", [], 2),
    "data set with tokens": (
        lines(*({"idx": i, "input_ids": [1, 2], "logits": row} for i, row in enumerate(CAT_DOG))),
        "--key",
        ["--key", "logits"],
        2,
    ),
    "tokens alone": (
        lines({"text": "x", "input_ids": [101, 7592]}),
        "--key input_ids takes it as scores",
        ["--key", "input_ids"],
        2,
    ),
    "labels alone": (lines({"text": "x", "labels": [1, 0]}), "--key labels takes it as scores", ["--key", "labels"], 2),
    "zero-shot": (lines({"sequence": "s", "labels": ["a", "b"], "scores": [0.5, 1.5]}), "--key", ["--key", "scores"], 2),
    "pipeline": (lines([{"label": "A", "score": 0.5}, {"label": "B", "score": 1.5}]), "jq -c '[.[].score]'", None, 0),
    "records": (
        lines(*({"idx": i, "cat": row[0], "dog": row[1]} for i, row in enumerate(CAT_DOG))),
        "--labels idx",
        ["--labels", "idx"],
        2,
    ),
    "records with a class": (
        lines(*({"Class": i, "cat": row[0], "dog": row[1]} for i, row in enumerate(CAT_DOG))),
        "--exclude Class",
        ["--exclude", "Class"],
        2,
    ),
    "records with whole numbers": (
        lines(*({"who": i + 3, "cat": row[0], "dog": row[1]} for i, row in enumerate(CAT_DOG))),
        "--labels who",
        ["--labels", "who"],
        2,
    ),
    "null": (lines({"cat": None, "dog": 1.5}, {"cat": 0.5, "dog": 1.5}), "--missing skip", ["--missing", "skip"], 2),
}


def read(cli, file, options):
    """The lines of the result, and its numbers."""
    cli.output("softmax", file, *options, "-o", "out.csv")
    rows = list(csv.reader(io.StringIO((cli.directory / "out.csv").read_text())))
    cli.output("softmax", file, *options, "-o", "out.npy")
    return rows, cli.load("out.npy")


@pytest.mark.parametrize("case", CASES)
def test_tables(cli, case):
    text, advice, options, names, labels = CASES[case]
    tabs = options is not None and "tsv" in options
    file = cli.write("x.tsv" if tabs else "x.csv", text)
    if advice:
        assert advice in cli.error("softmax", file)
    else:
        cli.output("softmax", file)
    if options is None:
        return
    rows, p = read(cli, file, options)
    header = rows.pop(0) if names is not None else [""] * len(rows[0])
    if labels is not None:  # they keep their place
        at = [",".join(column) for column in zip(*rows, strict=True)].index(labels)
        for row in [header, *rows]:
            del row[at]
    if names is not None:
        assert ",".join(header) == names
    assert p.shape == (len(rows), len(header))
    if names is not None and names.count(",") == 1 and len(rows) == 2 and "0.25" in text.replace(",25;", ".25;"):
        x = np.array(CAT_DOG)
        if "thousands" not in case:
            np.testing.assert_allclose(p, np.exp(x) / np.exp(x).sum(axis=1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("case", OBJECTS)
def test_objects(cli, case):
    text, advice, options, columns = OBJECTS[case]
    file = cli.write("x.jsonl", text)
    if advice:
        assert advice in cli.error("softmax", file)
    if options is None:
        return
    _, p = read(cli, file, options)
    assert p.shape[1] == columns
    assert len(p) == len(text.splitlines()) - (case == "null")


def test_there_are_enough():
    assert len(CASES) + len(OBJECTS) > 60
