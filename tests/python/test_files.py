"""isentropic.read and isentropic.write: every format of the command line, in and out, and Arrow's arrays."""

import json
import os
import threading

import numpy as np
import pytest

import isentropic
from isentropic._numpy._convert import from_arrow

X = np.random.default_rng(16).normal(size=(7, 5)).astype(np.float32)
BINARY = ["npy", "npz", "safetensors"]
TEXT = ["csv", "tsv", "jsonl"]
ARROW = ["parquet", "arrow", "feather"]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("ending", [*BINARY, *TEXT, *ARROW])
def test_round_trip(tmp_path, ending, dtype):
    if ending in ARROW:
        pytest.importorskip("pyarrow")
    x, path = X.astype(dtype), tmp_path / f"x.{ending}"
    isentropic.write(path, x)
    back = isentropic.read(path)
    assert back.dtype == (np.float64 if ending in TEXT else dtype)
    assert np.array_equal(back.astype(dtype), x)
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("ending", [*TEXT, *ARROW])
def test_names(tmp_path, ending):
    if ending in ARROW:
        pytest.importorskip("pyarrow")
    path, columns, labels = tmp_path / f"x.{ending}", ["a", "b,", 'c"', "größe", "e"], list("stuvwxy")
    isentropic.write(path, X, columns=columns, labels=labels)
    array, found, rows = isentropic.read(path, names=True)
    assert (found, rows) == (columns, labels) and np.array_equal(array.astype(np.float32), X)


@pytest.mark.parametrize("ending", BINARY)
@pytest.mark.parametrize("shape", [(3, 4, 5), (6,), (0, 3), (2, 0)])
def test_shapes_stay(tmp_path, ending, shape):
    x = np.zeros(shape)
    isentropic.write(tmp_path / f"x.{ending}", x)
    assert isentropic.read(tmp_path / f"x.{ending}").shape == shape


def test_one_number_per_row(tmp_path):
    isentropic.write(tmp_path / "x.csv", np.array([1.0, 2.0]))
    assert (tmp_path / "x.csv").read_text() == "1\n2\n"


def test_key(tmp_path):
    np.savez(tmp_path / "x.npz", a=X, b=X[:1])
    assert np.array_equal(isentropic.read(tmp_path / "x.npz", key="a"), X)
    with pytest.raises(ValueError, match="there are several arrays: 'a', 'b'; choose one with key="):
        isentropic.read(tmp_path / "x.npz")
    isentropic.write(tmp_path / "y.safetensors", X, key="logits")
    assert np.array_equal(isentropic.read(tmp_path / "y.safetensors", key="logits"), X)


def test_what_others_read(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    isentropic.write(tmp_path / "x.safetensors", X, key="x")
    assert np.array_equal(numpy.load_file(tmp_path / "x.safetensors")["x"], X)
    isentropic.write(tmp_path / "x.npz", X, key="x")
    with np.load(tmp_path / "x.npz") as file:
        assert np.array_equal(file["x"], X)
    isentropic.write(tmp_path / "x.npy", X.T)
    assert np.array_equal(np.load(tmp_path / "x.npy"), X.T)


def test_bfloat16(tmp_path):
    torch = pytest.importorskip("torch")
    x = torch.tensor(X).bfloat16()
    for ending in BINARY:
        isentropic.write(tmp_path / f"x.{ending}", x)
        back = isentropic.read(tmp_path / f"x.{ending}")
        assert back.dtype == np.float32 and np.array_equal(back, x.float().numpy())


@pytest.mark.parametrize("packing", ["gz", "zst", "GZ"])
@pytest.mark.parametrize("ending", ["csv", "npy", "npz", "jsonl", "safetensors"])
def test_packed(tmp_path, ending, packing):
    path = tmp_path / f"x.{ending}.{packing}"
    isentropic.write(path, X)
    assert path.read_bytes()[:2] == (b"\x28\xb5" if packing == "zst" else b"\x1f\x8b")
    assert np.array_equal(isentropic.read(path).astype(np.float32), X)


def test_packed_files_that_are_refused(tmp_path):
    for function in (isentropic.read, lambda path: isentropic.write(path, X)):
        with pytest.raises(ValueError, match=r"path must end in one of \.csv, .*, got '.*x\.gz'$"):
            function(tmp_path / "x.gz")
        with pytest.raises(ValueError, match=r"a \.parquet is packed inside, and cannot be a \.gz too"):
            function(tmp_path / "x.parquet.gz")


def test_failures(tmp_path):
    with pytest.raises(FileNotFoundError, match="no\\.csv"):
        isentropic.read(tmp_path / "no.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(IsADirectoryError):
        isentropic.read(tmp_path / "folder.csv")
    with pytest.raises(FileNotFoundError):
        isentropic.write(tmp_path / "no" / "x.npy", X)
    with pytest.raises(ValueError, match=r"path must end in one of \.csv, "):
        isentropic.read("x.xls")
    with pytest.raises(ValueError, match=r"format must be one of csv, .*, got 'xls'"):
        isentropic.read("x.csv", format="xls")
    (tmp_path / "x.csv").write_text("1,2\n3,abc\n")
    with pytest.raises(ValueError, match=r"x\.csv:2:2: 'abc' is not a number$"):
        isentropic.read(tmp_path / "x.csv")
    (tmp_path / "x.jsonl").write_text("[" * 100_000 + "1" + "]" * 100_000)
    with pytest.raises(ValueError, match=r"x\.jsonl:1: the line is nested too deeply"):
        isentropic.read(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").unlink()
    with pytest.raises(ValueError, match=r"only \.npz, \.jsonl and \.safetensors files have a key"):
        isentropic.read(tmp_path / "x.csv", key="a")
    with pytest.raises(ValueError, match="columns must be 5 names, one for each, got 1"):
        isentropic.write(tmp_path / "y.csv", X, columns=["a"])
    with pytest.raises(ValueError, match="must have at least one axis"):
        isentropic.write(tmp_path / "y.csv", 1.0)
    with pytest.raises(TypeError, match="must be of numbers"):
        isentropic.write(tmp_path / "y.csv", np.array(["a"]))
    assert sorted(os.listdir(tmp_path)) == ["folder.csv", "x.csv"]


def test_a_failed_write_keeps_the_old_file(tmp_path):
    isentropic.write(tmp_path / "x.npy", X)
    isentropic.write(tmp_path / "x.jsonl", X)
    for path in (tmp_path / "x.npy", tmp_path / "x.jsonl"):
        with pytest.raises(ValueError, match="labels must be"):
            isentropic.write(path, X, labels=["a"])
        assert np.array_equal(isentropic.read(path).astype(np.float32), X)


@pytest.mark.parametrize(
    ("labels", "error", "got"),
    [(0, ValueError, "0"), (-1, ValueError, "-1"), ("", ValueError, "''"), (1.5, TypeError, "float")],
)
def test_labels_are_a_column(tmp_path, labels, error, got):
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    wanted = "the name of a column, or its number counted from 1"
    with pytest.raises(error, match=f"^read: labels must be {wanted}, got {got}$"):
        isentropic.read(tmp_path / "x.csv", labels=labels)
    with pytest.raises(
        ValueError, match=r"labels: there is no column called 'a', as the file has no header \(header=True says"
    ):
        isentropic.read(tmp_path / "x.csv", labels="a")


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        (
            "a;b\n1,5;2\n",
            {"delimiter": ";"},
            "give delimiter=';' (numbers may have decimal commas then), otherwise delimiter=','",
        ),
        ("1 2\n3 4\n", {"delimiter": " "}, "'1 2' is not a number (delimiter=' ' separates cells at blanks; "),
        ("0,1,2\n3,4.5,6\n", {"header": True}, "may be names or scores: header=True takes it as names, header=False as scores"),
        (
            "0,1,2\n3,4.5,6\n",
            {"header": False},
            "may be names or scores: header=True takes it as names, header=False as scores",
        ),
        ("id,a,b\n7,1,2\n", {"labels": "id"}, "labels=1 takes it as names, exclude=1 leaves it out, columns='1-3' takes it as"),
        ("id,a,b\n7,1,2\n", {"exclude": ["id"]}, "labels=1 takes it as names"),
        ("id,a,b\n7,1,2\n", {"columns": [2, "b"]}, "labels=1 takes it as names"),
        ("id,a,b\n7,1,2\n", {"columns": "a-b"}, "labels=1 takes it as names"),
        ("a,b\n1,NA\n3,4\n", {"missing": "nan"}, "(missing='nan' reads it as NaN, missing='skip' leaves out the row)"),
        ("a,b\n1,NA\n3,4\n", {"missing": "skip"}, "(missing='nan' reads it as NaN, missing='skip' leaves out the row)"),
        ("[1,2]\n", {"format": "jsonl"}, "looks like JSON; format='jsonl' reads lines of it (if it is a name: header=True)"),
    ],
)
def test_options_of_text(tmp_path, text, options, said):
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(ValueError) as error:
        isentropic.read(path)
    assert said in str(error.value) and "--" not in str(error.value)
    array = isentropic.read(path, **options)
    numbers = {"a;b": [[1.5, 2]], "1 2": [[1, 2], [3, 4]], "id,": [[1, 2]], "[1,": [[1, 2]]}
    numbers |= {"0,1": [[3, 4.5, 6]] if options.get("header") else [[0, 1, 2], [3, 4.5, 6]]}
    numbers |= {"a,b": [[1, np.nan], [3, 4]] if options.get("missing") == "nan" else [[3, 4]]}
    np.testing.assert_array_equal(array, numbers[text[:3]])
    assert isentropic.read(path, names=True, **options).labels == (["7"] if "labels" in options else None)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"header": 1}, TypeError, "header must be a bool, got int"),
        ({"columns": []}, ValueError, "columns must not be empty"),
        ({"exclude": [0]}, ValueError, "exclude must be the name of a column, or its number counted from 1, got 0"),
        ({"columns": ["a,b"]}, ValueError, "columns must be names without commas, or numbers, got 'a,b'"),
        ({"delimiter": "::"}, ValueError, "delimiter must be one character that is in no number, got '::'"),
        ({"delimiter": 5}, TypeError, "delimiter must be a character, got int"),
        ({"missing": None}, ValueError, "missing must be one of error, nan, skip, got None"),
    ],
)
def test_options_that_are_none(tmp_path, options, error, said):
    (tmp_path / "x.csv").write_text("1,2\n")
    with pytest.raises(error, match=f"^read: {said}$"):
        isentropic.read(tmp_path / "x.csv", **options)


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_names_that_look_like_numbers(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    for columns in (None, ["a", "b"], ["2019", "2020"], ["NA", "0"], ["0", "1"]):
        for labels in (None, ["3", "4"], ["NA", "x"], ["0.5", ""], ["nan", "-1e5"]):
            isentropic.write(path, np.eye(2), columns=columns, labels=labels)
            array, found, rows = isentropic.read(path, names=True)
            np.testing.assert_array_equal(array, np.eye(2))
            assert (found, rows) == (columns or [], labels)
    with pytest.raises(ValueError, match="write: columns must not have an empty name"):
        isentropic.write(path, np.eye(2), columns=["", "a"])
    isentropic.write(path, np.eye(2), columns=["a", "b"], labels=["", "x"])
    assert isentropic.read(path, names=True).labels == ["", "x"]
    path.unlink()
    with pytest.raises(ValueError, match="write: labels must not begin with an empty one"):  # the line is one of names
        isentropic.write(path, np.eye(2), labels=["", "x"])
    assert not path.exists()


@pytest.mark.parametrize("ending", [*ARROW, "jsonl"])
def test_names_that_are_keys_appear_once(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    for options, said in (
        ({"columns": ["x", "y", "x"]}, "columns must not have a name twice in a .*, got 'x'"),
        ({"columns": ["x", "label", "y"], "labels": "abc"}, "columns .* got 'label'; labels are called label"),
        ({"key": "label", "labels": "abc"}, "key .* got 'label'; labels are called label"),
        ({"key": "k", "columns": "abc"}, "key must be None if columns have names, got 'k'"),
    ):
        options |= {name: list(options[name]) for name in ("columns", "labels") if name in options}
        with pytest.raises(ValueError, match=f"^write: {said}"):
            isentropic.write(path, np.eye(3), **options)
        assert not path.exists()
    if ending in ARROW:
        pytest.importorskip("pyarrow")
    isentropic.write(path, np.eye(3), columns=["x", "label", "y"])
    assert isentropic.read(path, names=True, columns=["x", "label", "y"]).columns == ["x", "label", "y"]


@pytest.mark.parametrize("ending", ARROW)
def test_missing_numbers_of_arrow(tmp_path, ending):
    """A null is an error, NaN, or leaves its row out, in columns and in lists, as an empty cell of a .csv."""
    pa = pytest.importorskip("pyarrow")
    write = pytest.importorskip("pyarrow.parquet").write_table
    if ending != "parquet":
        write = pytest.importorskip("pyarrow.feather").write_feather
    path = tmp_path / f"x.{ending}"
    names, nan = ["u", "v", "w"], np.nan
    lists = pa.array([[1.5, 2.0], None, [None, 4.0]])
    for columns, where, whole in (
        ({"a": [1.5, None, 3.0], "b": [2.0, 2.5, 1.0]}, "'a' has a missing value in row 1", [[1.5, 2], [nan, 2.5], [3, 1]]),
        ({"a": [1, None, 3]}, "'a' has a missing value in row 1", [[1], [nan], [3]]),
        ({"a": [True, False, None]}, "'a' has a missing value in row 2", [[1], [0], [nan]]),
        ({"x": lists}, "'x' has a missing value in row 1", [[1.5, 2], [nan, nan], [nan, 4]]),
        ({"x": lists.cast(pa.list_(pa.float64(), 2))}, "'x' has a missing", [[1.5, 2], [nan, nan], [nan, 4]]),
        ({"x": pa.array([[1, 2], [3, None], [5, 6]])}, "'x' has a missing value in row 1", [[1, 2], [3, nan], [5, 6]]),
    ):
        write(pa.table({"name": names} | columns), path)
        with pytest.raises(ValueError, match=f"the column {where}.*missing='nan' reads it as NaN"):
            isentropic.read(path)
        found, rows = isentropic.read(path, missing="nan", names=True)[::2]
        np.testing.assert_array_equal(found, whole)
        assert found.dtype == np.float64 and rows == names
        there = ~np.isnan(whole).any(-1)
        found, rows = isentropic.read(path, missing="skip", names=True)[::2]
        np.testing.assert_array_equal(found, np.array(whole)[there])
        assert rows == np.array(names)[there].tolist()
    write(pa.table({"a": [1.5, nan], "b": [2.0, 2.5]}), path)  # NaN is a number
    assert np.isnan(isentropic.read(path)).tolist() == [[False, False], [True, False]]
    write(pa.table({"x": [[1, 2], [3, 4]]}), path)
    assert isentropic.read(path).dtype == np.float64
    for broken, said in (
        (pa.table([[1.0], [2.0]], names=["a", "a"]), "two columns are called 'a'"),
        (pa.table({"x": [["a"]]}), "'x' is of list.*; lists of numbers are needed"),
        (pa.table({"x": [[1.0], [1.0, 2.0]]}), "the lists of 'x' differ in length: 1 to 2"),
    ):
        write(broken, path)
        with pytest.raises(ValueError, match=said):
            isentropic.read(path)


@pytest.mark.parametrize("ending", ARROW)
def test_words_of_arrow(tmp_path, ending):
    """Categories, which pandas writes, are words; bfloat16, which Arrow lacks, becomes float32; no columns are an error."""
    pa = pytest.importorskip("pyarrow")
    write = pytest.importorskip("pyarrow.parquet").write_table
    if ending != "parquet":
        write = pytest.importorskip("pyarrow.feather").write_feather
    path = tmp_path / f"x.{ending}"
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())):
        write(pa.table({"name": pa.array(["u", "v"]).cast(kind), "a": [1.5, 2.5]}), path)
        assert isentropic.read(path, names=True).labels == ["u", "v"]
    with pytest.raises(ValueError, match="write: array must have at least one column"):
        isentropic.write(path, np.zeros((3, 0)))
    numbers = np.array([[1.5, 2.5]]).astype(pytest.importorskip("ml_dtypes").bfloat16)
    for columns in (None, ["a", "b"]):
        isentropic.write(path, numbers, columns=columns)
        found = isentropic.read(path)
        assert found.tolist() == [[1.5, 2.5]] and found.dtype == np.float32


@pytest.mark.parametrize("ending", [*BINARY, *TEXT])
def test_names_that_a_format_has_no_place_for(tmp_path, ending):
    given = {"columns": list("abcde"), "labels": list("stuvwxy")} if ending in BINARY else {}
    given |= {"key": "a"} if ending in ("csv", "tsv", "npy") else {}
    for argument, names in given.items():
        with pytest.raises(ValueError, match=f"^write: {argument} must be None for .{ending}, which cannot store such"):
            isentropic.write(tmp_path / f"x.{ending}", X, **{argument: names})
    with pytest.raises((TypeError, ValueError), match=r"^write: columns must be"):
        isentropic.write(tmp_path / f"x.{ending}", X, columns="abcde")
    assert os.listdir(tmp_path) == []


def test_several_threads(tmp_path):
    def work(i):
        for _ in range(20):
            isentropic.write(tmp_path / f"x{i}.npz", X + i)
            assert np.array_equal(isentropic.read(tmp_path / f"x{i}.npz"), X + i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(os.listdir(tmp_path)) == 4


class Producer:
    """Only the Arrow interface of an Arrow object."""

    def __init__(self, array, stream=False):
        if stream:
            self.__arrow_c_stream__ = array.__arrow_c_stream__
        else:
            self.__arrow_c_array__ = array.__arrow_c_array__


def test_arrow_without_a_copy():
    pa = pytest.importorskip("pyarrow")
    flat = pa.array(X.reshape(-1))
    rows = pa.FixedSizeListArray.from_arrays(flat, 5)
    array = from_arrow(Producer(rows))
    assert array.shape == (7, 5) and array.ctypes.data == flat.buffers()[1].address
    assert np.array_equal(array, X)
    assert np.array_equal(from_arrow(rows[2:6]), X[2:6])
    assert np.array_equal(isentropic.softmax(rows), isentropic.softmax(X))
    del rows, flat
    assert np.array_equal(array, X)  # it keeps what it needs


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int8", "uint64"])
def test_arrow_types(kind):
    pa = pytest.importorskip("pyarrow")
    x = np.arange(6).astype(kind)
    assert from_arrow(Producer(pa.array(x))).tolist() == list(range(6))


def test_arrow_tables_and_streams():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({str(c): X[:, c] for c in range(5)})
    assert np.array_equal(isentropic.softmax(table), isentropic.softmax(X))
    rows = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 5)
    chunked = pa.chunked_array([rows[:3], rows[3:]])
    assert np.array_equal(from_arrow(Producer(chunked, stream=True)), X)


def test_arrow_nulls_outside_a_slice():
    """A slice of lists or columns uses a part of its child."""
    pa = pytest.importorskip("pyarrow")
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1.0, None, 3.0, 4.0]), 2)
    columns = pa.StructArray.from_arrays([pa.array([1.0, None, 3.0]), pa.array([1.0, 2.0, 3.0])], ["a", "b"])
    for array, part in ((lists.slice(1), [[3.0, 4.0]]), (columns.slice(2), [[3.0, 3.0]]), (columns.slice(0, 1), [[1.0, 1.0]])):
        assert np.array_equal(isentropic.softmax(array), isentropic.softmax(part))
    for array in (lists, lists.slice(0, 1), columns.slice(1), columns.slice(0, 2)):
        with pytest.raises(ValueError, match="null"):
            isentropic.softmax(array)


def test_arrow_refusals():
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="nulls"):
        from_arrow(pa.array([1.0, None]))
    with pytest.raises(ValueError, match="must be of numbers"):
        from_arrow(pa.array(["a"]))
    for words in (pa.array(["a", "b", "a"]), pa.array([0.5, 2.5, 0.5])):
        coded = words.dictionary_encode()
        with pytest.raises(ValueError, match="dictionary"):
            from_arrow(Producer(coded))
        with pytest.raises(ValueError, match="dictionary"):
            isentropic.softmax(pa.table({"x": coded, "y": [1.0, 2.0, 3.0]}))
    columns = pa.StructArray.from_arrays([pa.array([1.0, 2.0]), pa.array([3.0, 4.0])], ["x", "y"])
    with pytest.raises(ValueError, match="lists of several columns"):
        from_arrow(pa.FixedSizeListArray.from_arrays(columns, 2))


REPORT = {"relative_path": ["a.wav", "b.wav"], "speaker": [1001, 1002], "y_true": [1, 0]}
REPORT |= {"logit_0": [0.5, 2.0], "logit_1": [-1.5, 1.0]}


@pytest.mark.parametrize("ending", [*TEXT, *ARROW])
def test_columns_that_may_be_no_scores(tmp_path, ending):
    path = tmp_path / f"x.{ending}"
    lines = [[str(one) for one in row] for row in zip(*REPORT.values(), strict=True)]
    if ending == "jsonl":
        rows = [dict(zip(REPORT, row, strict=True)) for row in zip(*REPORT.values(), strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif ending in ARROW:
        pa = pytest.importorskip("pyarrow")
        module = pytest.importorskip("pyarrow.parquet" if ending == "parquet" else "pyarrow.feather")
        getattr(module, "write_table" if ending == "parquet" else "write_feather")(pa.table(REPORT), path)
    else:
        separator = "\t" if ending == "tsv" else ","
        path.write_text("".join(separator.join(row) + "\n" for row in [list(REPORT), *lines]))
    with pytest.raises(ValueError) as error:
        isentropic.read(path)
    said = str(error.value)
    assert "'speaker'" in said and "'y_true'" in said and "--" not in said
    assert all(f"{argument}=" in said for argument in ("labels", "exclude", "columns"))
    assert ", since they stand beside 'logit_0' and 'logit_1'" in said
    want = np.stack([REPORT["logit_0"], REPORT["logit_1"]], axis=1)
    for options in ({"exclude": ["speaker", "y_true"]}, {"columns": ["logit_0", "logit_1"]}):
        array, columns, labels = isentropic.read(path, names=True, **options)
        assert (columns, labels) == (["logit_0", "logit_1"], REPORT["relative_path"])
        np.testing.assert_array_equal(array, want)
    with pytest.raises(ValueError, match=r"no (column|field) called 'z'"):
        isentropic.read(path, exclude="z")
    if ending != "jsonl":
        table = isentropic.read(path, names=True, labels="y_true", columns="4-5")
        assert table.labels == ["1", "0"] and np.array_equal(table.array, want)


@pytest.mark.parametrize("ending", ARROW)
def test_whole_columns_of_arrow(tmp_path, ending):
    pa = pytest.importorskip("pyarrow")
    write = pytest.importorskip("pyarrow.parquet").write_table
    if ending != "parquet":
        write = pytest.importorskip("pyarrow.feather").write_feather
    path = tmp_path / f"x.{ending}"
    write(pa.table({"who": [3, 1], "cat": [0.5, 1.5], "dog": [2.5, 0.25]}), path)
    with pytest.raises(ValueError, match=r"x\.\w+: column 'who' may be scores or the rows' names, since it has whole numbers"):
        isentropic.read(path)
    assert isentropic.read(path, exclude="who").shape == isentropic.read(path, columns="cat-dog").shape == (2, 2)
    write(pa.table({"a": [3, 1], "b": [2, 0]}), path)
    assert isentropic.read(path).tolist() == [[3, 2], [1, 0]]
    write(pa.table({"Class": [0.0, 1.0], "b": [2.0, 0.5]}), path)
    with pytest.raises(ValueError, match="column 'Class' may be"):
        isentropic.read(path)
    write(pa.table({"a": [1, 2], "x": [[0.5, 1.5], [1.5, 0.5]]}), path)
    with pytest.raises(ValueError, match="exclude is for columns of numbers, and the file has an array"):
        isentropic.read(path, exclude="a")


def test_a_reply_without_alternatives(tmp_path):
    (tmp_path / "x.json").write_text('{"token": " cat", "logprob": -0.9, "top_logprobs": []}')
    with pytest.raises(ValueError, match=r"token 1: no alternatives are known.* \(missing='nan' reads it as NaN"):
        isentropic.read(tmp_path / "x.json", format="logprobs")
    table = isentropic.read(tmp_path / "x.json", format="logprobs", missing="nan", names=True)
    assert table.labels == [" cat"] and np.isnan(table.array).tolist() == [[True]]


@pytest.mark.parametrize("ending", TEXT)
@pytest.mark.parametrize("columns", [None, ["a", "b", "c"]])
def test_whole_scores_beside_fractions_are_read_again(tmp_path, ending, columns):
    path = tmp_path / f"x.{ending}"
    for first in ([2], [1001], [0, 1, 2, 3], [-5, 3], [1e20], [2] * 20):
        x = np.stack([first, np.full(len(first), 0.5), np.linspace(1.25, 2.75, len(first))], axis=1)
        isentropic.write(path, x, columns=columns)
        np.testing.assert_array_equal(isentropic.read(path), x)
    isentropic.write(path, [[1001.0, 3.0, 0.5]], columns=columns)
    assert isentropic.read(path).tolist() == [[1001, 3, 0.5]]
    isentropic.write(path, [[2.0, 1.0], [3.0, 0.5]], columns=["a", "b"])
    assert ".0" not in path.read_text()


@pytest.mark.parametrize("ending", [*TEXT, *ARROW])
def test_names_of_frames(tmp_path, ending):
    pandas = pytest.importorskip("pandas")
    if ending in ARROW:
        pytest.importorskip("pyarrow")
    path, columns, labels = tmp_path / f"x.{ending}", list("abcde"), list("stuvwxy")
    named = pandas.DataFrame(X, index=labels, columns=columns)
    counted = pandas.DataFrame(X)  # numbers are places, not names
    for frame, given, expected in (
        (named, {}, (columns, labels)),
        (named.reset_index(drop=True), {}, (columns, None)),
        (named, {"columns": list("vwxyz")}, (list("vwxyz"), labels)),
        (named, {"labels": list("1234567")}, (columns, list("1234567"))),
        (counted, {}, (None, None)),
        (counted[counted[0] > X[0, 0]], {}, (None, None)),
    ):
        isentropic.write(path, frame, **given)
        array, found, rows = isentropic.read(path, names=True)
        assert np.array_equal(array.astype(np.float32), frame.to_numpy())
        assert rows == expected[1] and (expected[0] is None or found == expected[0])
    isentropic.write(path, named["a"])  # a series has a name for each row
    array, _, rows = isentropic.read(path, names=True)
    assert rows == labels and np.array_equal(np.ravel(array).astype(np.float32), X[:, 0])
    if ending == "jsonl":
        isentropic.write(path, named, key="scores")
        assert isentropic.read(path, key="scores", names=True)[1:] == ([], labels)
