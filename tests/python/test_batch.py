"""BatchMap: a table gives the same results however it is split, and in every format."""

import inspect
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import isentropic

RNG = np.random.default_rng(7)
SCORES = RNG.normal(size=(9, 6)) * 2
PROBS = isentropic.softmax(SCORES)
OTHERS = isentropic.softmax(RNG.normal(size=(9, 6)))
CLASSES = RNG.integers(0, 6, 9)
PARAMS = {
    "top_k_softmax": {"k": 3},
    "soft_top_k": {"k": 2},
    "top_p_softmax": {"p": 0.8},
    "min_p_softmax": {"p": 0.1},
    "entropy_normalize": {"entropy": 1.0},
    "entropy_clip": {"min_entropy": 0.5, "max_entropy": 1.0},
    "gamma_for_entropy": {"entropy": 1.0},
    "power_transform": {"gamma": 2.0},
    "renyi_entropy": {"alpha": 2.0},
    "tsallis_entropy": {"alpha": 2.0},
    "hill_number": {"order": 2.0},
    "renyi_divergence": {"alpha": 2.0},
    "alpha_divergence": {"alpha": 0.5},
    "top_k_softmax_loss": {"k": 6},
    "top_p_softmax_loss": {"p": 0.9},
    "sample": {"seed": 3},
    "gumbel_softmax": {"seed": 3},
}
COLUMNS = {"scores": SCORES, "probs": PROBS, "others": OTHERS, "y": CLASSES, "labels": (SCORES > 1).astype(float),
           "cosines": np.tanh(SCORES), "id": np.arange(9)}  # fmt: skip


def every_operation():
    return sorted(isentropic.batch.FUNCTIONS)


def columns_of(operation):
    if operation in isentropic.batch._TWO:
        if not operation.endswith("_loss"):
            return "probs", "others"
        second = {"multilabel_softmax_loss": "labels", "distillation_loss": "others", "jsd_loss": "others"}.get(operation, "y")
        return ("cosines" if operation == "margin_softmax_loss" else "scores"), second
    return "probs" if operation in isentropic.batch._MEASURES or operation == "power_transform" else "scores"


def as_table(kind, rows=slice(None)):
    if kind == "dict":
        return {name: column[rows] for name, column in COLUMNS.items()}
    frame = {name: list(column[rows]) for name, column in COLUMNS.items()}
    if kind == "pandas":
        return pd.DataFrame(frame)
    table = pa.table({name: pa.array([v.tolist() for v in column]) for name, column in frame.items()})
    if kind == "large":
        return pa.table(
            {
                n: c.cast(pa.large_list(pa.float64())) if pa.types.is_list(c.type) else c
                for n, c in zip(table.column_names, table.columns, strict=True)
            }
        )
    return table if kind == "arrow" else table.to_batches()[0]


def result_of(batch, name="out"):
    column = batch[name] if not isinstance(batch, (pa.Table, pa.RecordBatch)) else batch.column(name).to_pylist()
    return np.array([np.asarray(row) for row in column])


@pytest.mark.parametrize("operation", every_operation())
def test_every_operation_in_every_form(operation):
    params, columns = PARAMS.get(operation, {}), columns_of(operation)
    arrays = [COLUMNS[name] for name in ((columns,) if isinstance(columns, str) else columns)]
    expected = getattr(isentropic, operation)(*arrays, **params)
    expected = expected if isinstance(expected, tuple) else (expected,)
    row = {"row": "id"} if operation in isentropic.batch._DRAWS else {}
    apply = pickle.loads(pickle.dumps(isentropic.BatchMap(operation, columns, out="out", **row, **params)))
    for kind in ("dict", "pandas", "arrow", "large", "batch"):
        for cut in (0, 4):
            parts = (
                [apply(as_table(kind, slice(cut))), apply(as_table(kind, slice(cut, None)))] if cut else [apply(as_table(kind))]
            )
            assert type(parts[0]) is type(as_table(kind))
            names = ["out", *(f"out_{field}" for field in getattr(expected, "_fields", ())[1:])]
            for name, value in zip(names, expected, strict=False):
                found = np.concatenate([result_of(part, name) for part in parts])
                np.testing.assert_array_equal(found, value, err_msg=f"{kind} {cut}")


def test_rows_of_unequal_length_and_none():
    rows = [np.array([1.0, 2.0, 3.0]), None, np.array([0.5]), np.array([2.0, 0.0])]
    for apply, on_one in (
        (isentropic.BatchMap("sparsemax", "x", out="p"), isentropic.sparsemax),
        (isentropic.BatchMap("entropy", "x", out="p", normalize=True), lambda x: isentropic.entropy(x, normalize=True)),
    ):
        for batch in ({"x": rows}, pd.DataFrame({"x": pd.Series(rows, dtype=object)}), pa.table({"x": pa.array(rows)})):
            result = apply(batch)
            found = result.column("p").to_pylist() if isinstance(result, pa.Table) else list(result["p"])
            for row, one in zip(rows, found, strict=True):
                if row is None:
                    assert one is None or np.isnan(one)
                else:
                    np.testing.assert_array_equal(one, on_one(row))


def test_null_in_one_of_two_columns():
    p = [np.array([0.5, 0.5]), np.array([0.25, 0.75]), None]
    q = [None, np.array([0.5, 0.5]), np.array([0.5, 0.5])]
    found = isentropic.BatchMap("kl_divergence", ("p", "q"))({"p": p, "q": q})["kl_divergence"]
    assert found.tolist() == [None, isentropic.kl_divergence(p[1], q[1]), None]


LENGTHS = (6, 2, 0, 17, 6, 1, 2, 70, 17)
RAGGED = {
    "scores": [RNG.normal(size=n).astype(np.float32) * 3 for n in LENGTHS],
    "probs": [isentropic.softmax(RNG.normal(size=n)) for n in LENGTHS],
    "others": [isentropic.softmax(RNG.normal(size=n)) for n in LENGTHS],
    "y": [RNG.integers(0, max(n, 1)) for n in LENGTHS],
    "labels": [RNG.integers(0, 2, n) for n in LENGTHS],
    "cosines": [np.tanh(RNG.normal(size=n)) for n in LENGTHS],
    "id": [3, 8, 0, 2**64 - 1, 7, 7, 2**63, 5, 1],
}


def ragged(kind, rows):
    table = {name: [column[row] for row in rows] for name, column in RAGGED.items()}
    if kind == "dict":
        return table
    if kind == "pandas":
        return pd.DataFrame(table)
    types = {"y": pa.int64(), "labels": pa.list_(pa.int8()), "id": pa.uint64(), "scores": pa.list_(pa.float32())}
    table = pa.table({name: pa.array(column, types.get(name, pa.list_(pa.float64()))) for name, column in table.items()})
    return table if kind == "arrow" else table.to_pandas(types_mapper=pd.ArrowDtype)


def assert_same(found, expected):
    """The same bits. Arrow's lists have lost their type."""
    np.testing.assert_array_equal(np.asarray(found, np.asarray(expected).dtype), expected)


@pytest.mark.parametrize("kind", ["dict", "pandas", "arrow", "pandas of arrow"])
@pytest.mark.parametrize("operation", every_operation())
def test_a_row_does_not_depend_on_its_neighbours(operation, kind):
    params, columns = (
        {**PARAMS.get(operation, {}), **({"k": 1} if operation == "top_k_softmax_loss" else {})},
        columns_of(operation),
    )
    names = (columns,) if isinstance(columns, str) else columns
    draws = operation in isentropic.batch._DRAWS
    apply = isentropic.BatchMap(operation, columns, out="out", **({"row": "id"} if draws else {}), **params)
    rows = [row for row, n in enumerate(LENGTHS) if n > 0 or len(names) == 1]
    result = apply(ragged(kind, rows))
    found = result["out"].to_pylist() if kind == "arrow" else list(result["out"])
    for row, one in zip(rows, found, strict=True):
        alone = [np.asarray(RAGGED[name][row])[np.newaxis] for name in names]
        stream = {"stream": np.array([RAGGED["id"][row]], np.uint64)} if draws else {}
        expected = getattr(isentropic, operation)(*alone, **params, **stream)
        assert_same(one, (expected[0] if isinstance(expected, tuple) else expected)[0])


def test_rows_without_entries():
    for kind in (pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 0)):
        for rows in ([[], []], [[], None]):
            batch = pa.table({"x": pa.array(rows, kind)})
            found = isentropic.BatchMap("softmax", "x", out="p")(batch)["p"]
            assert found.type == pa.list_(pa.float32()) and found.to_pylist() == rows
            assert isentropic.BatchMap("sample", "x", out="i", seed=1)(batch)["i"].to_pylist() == [
                -1,
                None if rows[1] is None else -1,
            ]
    found = isentropic.BatchMap("softmax", "x", out="p")({"x": [[], [1.0]]})["p"]
    assert [row.tolist() for row in found] == [[], [1.0]]


def test_every_row_has_its_draws_of_any_number():
    x = {"s": [[0.0, 1.0, 2.0], [3.0, 1.0]]}
    for size in range(5):
        found = isentropic.BatchMap("sample", "s", out="i", seed=1, size=size)(x)["i"]
        assert found.shape == (2, size)
        for row in range(2):
            np.testing.assert_array_equal(found[row], isentropic.sample(x["s"][row], seed=1, size=size, stream=row))


def test_targets_of_unequal_length():
    x = [[0.0, 1.0, 2.0], None, [3.0, 1.0], [1.0, 2.0, 0.5]]
    soft, labels = [[0.25, 0.5, 0.25], [1.0], [0.5, 0.5], [0, 0, 1]], [[1, 0, 1], [1], [0, 1], None]
    for batch in ({"x": x, "t": soft}, pa.table({"x": x, "t": pa.array(soft, pa.list_(pa.float32()))})):
        found = list(isentropic.BatchMap("softmax_loss", ("x", "t"), out="loss")(batch)["loss"])
        assert [f if isinstance(f, float | None) else f.as_py() for f in found] == [
            None if x[i] is None else isentropic.softmax_loss(x[i], np.asarray(soft[i], float)) for i in range(4)
        ]
    found = isentropic.BatchMap("multilabel_softmax_loss", ("x", "t"), out="loss")({"x": x, "t": labels})["loss"].tolist()
    assert found == [isentropic.multilabel_softmax_loss(x[i], labels[i]) if i in (0, 2) else None for i in range(4)]


def test_rows_keep_their_type_beside_others():
    rows = [np.float32([0.3, 1.0]), np.array([0.3, 1.0]), np.array([1, 2])]
    found = isentropic.BatchMap("entropy", "x", out="h", input="scores")({"x": rows})["h"]
    assert found.tolist() == [float(isentropic.entropy(row, input="scores")) for row in rows]


def test_rows_of_one_length_are_one_call(monkeypatch):
    calls, softmax = [], isentropic.batch.FUNCTIONS["softmax"]
    monkeypatch.setitem(isentropic.batch.FUNCTIONS, "softmax", lambda x: calls.append(x.shape) or softmax(x))
    apply = isentropic.BatchMap("softmax", "x")
    calls.clear()
    apply({"x": SCORES})
    apply({"x": SCORES.tolist()})
    apply(pa.table({"x": SCORES.tolist()}))
    apply({"x": [[1.0], [1.0, 2.0], None, [2.0], [3.0, 4.0], [5.0]]})
    assert calls == [(9, 6), (9, 6), (9, 6), (3, 1), (2, 2)]


def refused(kind, message, operation, columns, batch, **params):
    with pytest.raises(kind) as caught:
        isentropic.BatchMap(operation, columns, **params)(batch)
    assert str(caught.value) == message


def test_a_refused_row_has_its_number_in_the_table():
    p, q = [[0.5, 0.5], None, None, [0.5, 0.2], [0.5, 0.1], [1.0]], [[0.5, 0.5], [1.0], None, [0.5, 0.5], [1.0], [0.5, 0.5]]
    wrong = 'entropy: p must sum to 1 within 1e-06, got 0.7 (normalize=True divides by the sum, input="scores" takes scores)'
    for batch in ({"p": p}, pa.table({"p": p}), pd.DataFrame({"p": p})):
        refused(ValueError, f"BatchMap: row 3 of column 'p': {wrong}", "entropy", "p", batch)
    rows = np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.2]])
    refused(ValueError, f"BatchMap: row 2 of column 'p': {wrong}", "entropy", "p", {"p": rows})
    p[3] = p[4] = [0.5, 0.5]
    lengths = "kl_divergence: q must have 2 entries along axis 1, got 1"
    refused(ValueError, f"BatchMap: row 4 of columns 'p', 'q': {lengths}", "kl_divergence", ("p", "q"), {"p": p, "q": q})
    x, y = [[0.0, 1.0, 2.0], [0.0, 1.0], [1.0]], [2, 2, 0]
    of_class = "softmax_loss: target must be a class from 0 to 1, got 2"
    refused(ValueError, f"BatchMap: row 1 of columns 'x', 'y': {of_class}", "softmax_loss", ("x", "y"), {"x": x, "y": y})
    refused(
        ValueError,
        "BatchMap: column 'y' must have 3 rows, as 'x' has, got 2",
        "softmax_loss",
        ("x", "y"),
        {"x": x, "y": [0, 0]},
    )
    what = "BatchMap: column 'x' must hold numbers or rows of numbers, got [[1.0], [1.0, 2.0]] in row 1"
    refused(TypeError, what, "softmax", "x", {"x": [[1.0], [[1.0], [1.0, 2.0]]]})
    what = "BatchMap: column 'x' must hold numbers or rows of numbers, got 'a' in row 0"
    refused(TypeError, what, "softmax", "x", pa.table({"x": ["a", "b"]}))


NUMBERS = {
    "array": {"x": np.array([1.0, 2.0])},
    "list": {"x": [1.0]},
    "arrow": pa.table({"x": [1.0, 2.0]}),
    "only null": pa.table({"x": pa.array([None, None], pa.float64())}),
    "pandas": pd.DataFrame({"x": [1.0, 2.0]}),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_are_not_one_row(kind):
    where = "the number 1.0 in row 0" if kind == "list" else "a column of numbers"
    message = f"BatchMap: column 'x' must hold rows of numbers, got {where}"
    for operation, params in (
        ("softmax", {}),
        ("entropy", {}),
        ("sample", {"seed": 1}),
        ("self_information", {"input": "scores"}),
    ):
        refused(TypeError, message, operation, "x", NUMBERS[kind], **params)
    two = {"p": [[0.5, 0.5], [1.0, 0.0]], "q": np.array([0.5, 0.5])}
    message = "BatchMap: column 'q' must hold rows of numbers, got a column of numbers"
    refused(TypeError, message, "kl_divergence", ("p", "q"), two)


def test_numbers_where_each_has_a_result():
    p = np.array([0.5, 0.25, 1.0])
    for operation in ("self_information", "binary_entropy"):
        apply = isentropic.BatchMap(operation, "p", out="h")
        expected = getattr(isentropic, operation)(p)
        for batch in ({"p": p}, {"p": p.tolist()}, pd.DataFrame({"p": p}), pa.table({"p": p})):
            np.testing.assert_array_equal(np.asarray(apply(batch)["h"]), expected)
        assert apply(pa.table({"p": [0.5, None]}))["h"].to_pylist() == [expected[0], None]
        assert [len(apply(batch)["h"]) for batch in ({"p": np.array([])}, {"p": []})] == [0, 0]


def test_what_is_no_row_number():
    what = "BatchMap: the row number of column 'id' in row 1 must be"
    for given, kind, message in (
        ([0, None], TypeError, f"{what} an integer, got NoneType"),
        ([0, -1], ValueError, f"{what} at least 0 and below 2**64, got -1"),
        ([0, 0.5], TypeError, f"{what} an integer, got float"),
        ([0, "a"], TypeError, "BatchMap: column 'id' must hold numbers or rows of numbers, got 'a' in row 1"),
        ([0, 1, 2], ValueError, "BatchMap: column 'id' must have 2 rows, as 's' has, got 3"),
    ):
        refused(kind, message, "sample", "s", {"s": SCORES[:2], "id": given}, row="id", seed=1)
    for batch in (
        pa.table({"s": SCORES[:2].tolist(), "id": pa.array([0, None])}),
        pd.DataFrame({"s": list(SCORES[:2]), "id": pd.array([0, None], "Int64")}),
    ):
        refused(TypeError, f"{what} an integer, got NoneType", "sample", "s", batch, row="id", seed=1)
    refused(
        ValueError,
        f"{what} at least 0 and below 2**64, got -1",
        "sample",
        "s",
        {"s": SCORES[:2], "id": np.array([0, -1])},
        row="id",
        seed=1,
    )
    refused(
        TypeError,
        "BatchMap: the row number of column 'id' in row 0 must be an integer, got float",
        "sample",
        "s",
        {"s": SCORES[:2], "id": np.zeros(2)},
        row="id",
        seed=1,
    )


def test_row_numbers_have_64_bits():
    numbers = [2**63, 2**64 - 1, 0]
    expected = isentropic.sample(SCORES[:3], seed=1, stream=np.array([2**63 + 1, 0, 1], np.uint64))
    for given in (numbers, np.array(numbers, np.uint64), np.array(numbers, object)):
        found = isentropic.BatchMap("sample", "s", out="i", row="id", seed=1, stream=1)({"s": SCORES[:3], "id": given})["i"]
        np.testing.assert_array_equal(found, expected)


def test_what_is_no_stream_and_what_has_no_column():
    for stream, kind, message in (
        (-3, ValueError, "BatchMap: stream must be at least 0 and below 2**64, got -3"),
        (1.7, TypeError, "BatchMap: stream must be an integer, got float"),
        ([1, 2], TypeError, "BatchMap: stream must be an integer, got list"),
    ):
        for operation in ("sample", "gumbel_softmax"):
            refused(kind, message, operation, "s", {}, seed=1, stream=stream)
    message = "BatchMap: there is no column for gradients; return_grad and param_grad must not be given"
    refused(TypeError, message, "entropy", "p", {}, return_grad=True)
    refused(TypeError, message, "renyi_entropy", "p", {}, alpha=2.0, param_grad=True)


def test_null_of_every_kind():
    x = [[1.0, 2.0], None, [3.0]]
    expected = [[*isentropic.softmax(np.float32(row))] if row else None for row in x]
    for column in (
        pd.Series(x, dtype=pd.ArrowDtype(pa.list_(pa.float32()))),
        pd.Series([np.float32(x[0]), np.nan, np.float32(x[2])]),
        pd.Series([np.float32(x[0]), pd.NA, np.float32(x[2])]),
    ):
        found = isentropic.BatchMap("softmax", "x", out="p")(pd.DataFrame({"x": column}))["p"]
        assert [None if row is None else row.tolist() for row in found] == expected
    # Fixed and other lists, cut from a longer column.
    for kind in (pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2)):
        rows = pa.array([[9.0, 9.0], None, [1.0, 2.0], None, [0.5, 0.0], [9.0, 9.0]], kind)
        found = isentropic.BatchMap("softmax", "x", out="p")(pa.table({"x": rows.slice(1, 4)}))["p"]
        assert found.type == pa.list_(pa.float32())
        whole = isentropic.softmax(np.float32([[1.0, 2.0], [0.5, 0.0]])).tolist()
        assert found.to_pylist() == [None, whole[0], None, whole[1]]
        none = isentropic.BatchMap("softmax", "x", out="p")(pa.table({"x": rows.slice(1, 1)}))["p"]
        assert none.type == pa.list_(pa.float32()) and none.to_pylist() == [None]


def test_a_null_class():
    x, y = [[1.0, 2.0], [3.0, 1.0, 0.0], [3.0, 1.0]], [0, None, 1]
    expected = [isentropic.softmax_loss(x[0], 0), None, isentropic.softmax_loss(x[2], 1)]
    for batch in (
        {"x": x, "y": y},
        pa.table({"x": x, "y": pa.array(y, pa.int32())}),
        pd.DataFrame({"x": x, "y": pd.array(y, "Int64")}),
        pd.DataFrame({"x": x, "y": pd.array(y, pd.ArrowDtype(pa.int64()))}),
    ):
        found = isentropic.BatchMap("softmax_loss", ("x", "y"), out="loss")(batch)["loss"]
        found = found.to_pylist() if isinstance(batch, pa.Table) else found.tolist()
        assert [None if one is None or np.isnan(one) else one for one in found] == expected


EMPTY = {
    "float lists": pa.table({"x": pa.array([], pa.list_(pa.float32())), "y": pa.array([], pa.list_(pa.float32()))}),
    "fixed lists": pa.table({"x": pa.array([], pa.list_(pa.float32(), 3)), "y": pa.array([], pa.list_(pa.float32(), 3))}),
    "a batch cut to nothing": pa.RecordBatch.from_pydict(
        {"x": pa.array([[1.0], [0.5, 0.5]], pa.list_(pa.float32())), "y": pa.array([[1.0], [0.5, 0.5]], pa.list_(pa.float32()))}
    ).slice(0, 0),
    "lists of pandas": pd.DataFrame({"x": [[0.5, 0.5]], "y": [[0.5, 0.5]]}).iloc[:0],
    "arrays of pandas": pd.DataFrame({"x": [np.ones(1, "f")], "y": [np.ones(1, "f")]}).iloc[:0],
    "a dict of arrays": {"x": np.zeros((0, 3), "f"), "y": np.zeros((0, 3), "f")},
    "a dict of lists": {"x": [], "y": []},
    "a dict of objects": {"x": np.zeros(0, object), "y": np.zeros(0, object)},
}


@pytest.mark.parametrize("kind", EMPTY)
def test_batches_without_rows(kind):
    batch = EMPTY[kind]
    for operation, columns, params, of_rows in (
        ("softmax", "x", {}, True),
        ("entropy", "x", {}, False),
        ("gamma_for_entropy", "x", {"entropy": 1.0}, False),
        ("kl_divergence", ("x", "y"), {}, False),
    ):
        result = isentropic.BatchMap(operation, columns, out="p", **params)(batch)
        assert type(result) is type(batch) and len(result["p"]) == 0
        if isinstance(batch, (pa.Table, pa.RecordBatch)):
            assert result.schema.field("p").type == (pa.list_(pa.float32()) if of_rows else pa.float32())
        elif isinstance(batch, pd.DataFrame):
            assert result["p"].dtype == (object if of_rows else np.float64)
        else:
            assert result["p"].dtype.kind == "f" and result["p"].ndim == 1 + of_rows
    draws = isentropic.BatchMap("sample", "x", out="p", seed=1)(batch)
    assert len(draws["p"]) == 0


def test_batches_without_classes_and_of_null_only():
    for batch in ({"x": [], "y": []}, pd.DataFrame({"x": [[1.0, 2.0]], "y": [0]}).iloc[:0], {"x": [None, None], "y": [0, 1]}):
        found = isentropic.BatchMap("margin_softmax_loss", ("x", "y"), out="p")(batch)["p"]
        assert list(found) == [None] * len(batch["x"])


def test_lists_of_arrow_keep_their_type():
    """Batches of one table have one type, whether or not their rows have one length."""
    x = pa.array([[1.0, 2.0], [3.0, 1.0], [0.5]], pa.list_(pa.float32()))
    whole = isentropic.BatchMap("softmax", "x", out="p")(pa.table({"x": x}))
    assert whole.schema.field("p").type == pa.list_(pa.float32())
    part = isentropic.BatchMap("softmax", "x", out="p")(pa.table({"x": x.slice(0, 2)}))
    assert part.column("p").to_pylist() == whole.column("p").to_pylist()[:2]


def test_draws_follow_the_row_numbers():
    apply = isentropic.BatchMap("sample", "scores", out="token", row="id", seed=11, stream=5)
    whole = apply(as_table("dict"))["token"]
    np.testing.assert_array_equal(whole, isentropic.sample(SCORES, seed=11, stream=5))
    shuffled = RNG.permutation(9)
    np.testing.assert_array_equal(apply(as_table("dict", shuffled))["token"], whole[shuffled])


def test_what_is_refused_says_why():
    with pytest.raises(ValueError, match="must be the name of an operation on rows, got 'softmin'"):
        isentropic.BatchMap("softmin", "x")
    with pytest.raises(TypeError, match="'beta'"):
        isentropic.BatchMap("entmax", "x", beta=2)
    with pytest.raises(ValueError, match="alpha must be above 0"):
        isentropic.BatchMap("entmax", "x", alpha=0.0)
    with pytest.raises(TypeError, match="a tuple of two names for kl_divergence, got 'p'"):
        isentropic.BatchMap("kl_divergence", "p")
    with pytest.raises(TypeError, match="column must be one name for softmax, got 3"):
        isentropic.BatchMap("softmax", 3)
    for argument in ("out", "row"):
        with pytest.raises(TypeError, match=f"{argument} must be a column's name, got 3"):
            isentropic.BatchMap("sample", "x", seed=1, **{argument: 3})
    with pytest.raises(TypeError, match="row is only for sample and gumbel_softmax"):
        isentropic.BatchMap("softmax", "x", row="id")
    with pytest.raises(ValueError, match="there is no column 'y'; there are 'x'"):
        isentropic.BatchMap("softmax", "y")({"x": SCORES})
    with pytest.raises(TypeError, match="column 'x' must hold numbers or rows of numbers, got 'a' in row 1"):
        isentropic.BatchMap("softmax", "x")({"x": [[1.0, 2.0], "a"]})
    with pytest.raises(ValueError, match="there are 2 columns 'x'"):
        isentropic.BatchMap("softmax", "x")(pa.table([pa.array([[1.0]])] * 2, names=["x", "x"]))
    with pytest.raises(ValueError, match="there are 2 columns 'x'"):
        isentropic.BatchMap("softmax", "x")(pd.DataFrame([[[1.0], [2.0]]], columns=["x", "x"]))
    for column in (1.0, np.float64(1), np.array(1.0), "ab"):
        with pytest.raises(TypeError, match=r"column 'x' must be an array or a list of rows, got (float|ndarray|str)"):
            isentropic.BatchMap("softmax", "x")({"x": column})
    columns = pa.array([[1.0]]), pa.table({"x": [[1.0]]}).to_reader(), pd.Series([1.0]), [1.0]
    for batch, kind in zip(columns, ("DoubleArray|ListArray", "RecordBatchReader", "Series", "list"), strict=True):
        with pytest.raises(TypeError, match=f"a batch must be a dict of arrays, .* got ({kind})"):
            isentropic.BatchMap("softmax", "x")(batch)
    with pytest.raises(ValueError, match="row 1 holds null"):
        isentropic.BatchMap("softmax", "x")(pa.table({"x": [[1.0, 2.0], [1.0, None]]}))


def test_the_batch_is_not_changed():
    for kind in ("dict", "pandas", "arrow"):
        batch = as_table(kind)
        names = list(batch) if kind != "arrow" else batch.column_names
        isentropic.BatchMap("softmax", "scores", out="p")(batch)
        assert (list(batch) if kind != "arrow" else batch.column_names) == names
    assert "axis" in inspect.signature(isentropic.softmax).parameters
