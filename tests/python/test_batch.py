"""BatchMap: a table gives the same results however it is split, and in every format."""

import inspect
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import entropic

RNG = np.random.default_rng(7)
SCORES = RNG.normal(size=(9, 6)) * 2
PROBS = entropic.softmax(SCORES)
OTHERS = entropic.softmax(RNG.normal(size=(9, 6)))
CLASSES = RNG.integers(0, 6, 9)
PARAMS = {
    "top_k_softmax": {"k": 3},
    "top_p_softmax": {"p": 0.8},
    "min_p_softmax": {"p": 0.1},
    "entropy_normalize": {"entropy": 1.0},
    "entropy_clip": {"min_entropy": 0.5, "max_entropy": 1.0},
    "gamma_for_entropy": {"entropy": 1.0},
    "power_transform": {"gamma": 2.0},
    "renyi_entropy": {"alpha": 2.0},
    "tsallis_entropy": {"alpha": 2.0},
    "top_k_softmax_loss": {"k": 6},
    "top_p_softmax_loss": {"p": 0.9},
    "sample": {"seed": 3},
    "gumbel_softmax": {"seed": 3},
}
COLUMNS = {"scores": SCORES, "probs": PROBS, "others": OTHERS, "y": CLASSES, "labels": (SCORES > 1).astype(float),
           "cosines": np.tanh(SCORES), "id": np.arange(9)}  # fmt: skip


def every_operation():
    return sorted(entropic.batch.FUNCTIONS)


def columns_of(operation):
    if operation in entropic.batch._TWO:
        if not operation.endswith("_loss"):
            return "probs", "others"
        second = {"multilabel_softmax_loss": "labels", "distillation_loss": "others", "jsd_loss": "others"}.get(operation, "y")
        return ("cosines" if operation == "margin_softmax_loss" else "scores"), second
    return "probs" if operation in entropic.batch._MEASURES or operation == "power_transform" else "scores"


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
    expected = getattr(entropic, operation)(*arrays, **params)
    expected = expected if isinstance(expected, tuple) else (expected,)
    row = {"row": "id"} if operation in entropic.batch._DRAWS else {}
    apply = pickle.loads(pickle.dumps(entropic.BatchMap(operation, columns, out="out", **row, **params)))
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
        (entropic.BatchMap("sparsemax", "x", out="p"), entropic.sparsemax),
        (entropic.BatchMap("entropy", "x", out="p", normalize=True), lambda x: entropic.entropy(x, normalize=True)),
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
    found = entropic.BatchMap("kl_divergence", ("p", "q"))({"p": p, "q": q})["kl_divergence"]
    assert found.tolist() == [None, entropic.kl_divergence(p[1], q[1]), None]


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
        result = entropic.BatchMap(operation, columns, out="p", **params)(batch)
        assert type(result) is type(batch) and len(result["p"]) == 0
        if isinstance(batch, (pa.Table, pa.RecordBatch)):
            assert result.schema.field("p").type == (pa.list_(pa.float32()) if of_rows else pa.float32())
        elif isinstance(batch, pd.DataFrame):
            assert result["p"].dtype == (object if of_rows else np.float64)
        else:
            assert result["p"].dtype.kind == "f" and result["p"].ndim == 1 + of_rows
    draws = entropic.BatchMap("sample", "x", out="p", seed=1)(batch)
    assert len(draws["p"]) == 0


def test_batches_without_classes_and_of_null_only():
    for batch in ({"x": [], "y": []}, pd.DataFrame({"x": [[1.0, 2.0]], "y": [0]}).iloc[:0], {"x": [None, None], "y": [0, 1]}):
        found = entropic.BatchMap("margin_softmax_loss", ("x", "y"), out="p")(batch)["p"]
        assert list(found) == [None] * len(batch["x"])


def test_lists_of_arrow_keep_their_type():
    """Batches of one table have one type, whether or not their rows have one length."""
    x = pa.array([[1.0, 2.0], [3.0, 1.0], [0.5]], pa.list_(pa.float32()))
    whole = entropic.BatchMap("softmax", "x", out="p")(pa.table({"x": x}))
    assert whole.schema.field("p").type == pa.list_(pa.float32())
    part = entropic.BatchMap("softmax", "x", out="p")(pa.table({"x": x.slice(0, 2)}))
    assert part.column("p").to_pylist() == whole.column("p").to_pylist()[:2]


def test_draws_follow_the_row_numbers():
    apply = entropic.BatchMap("sample", "scores", out="token", row="id", seed=11, stream=5)
    whole = apply(as_table("dict"))["token"]
    np.testing.assert_array_equal(whole, entropic.sample(SCORES, seed=11, stream=5))
    shuffled = RNG.permutation(9)
    np.testing.assert_array_equal(apply(as_table("dict", shuffled))["token"], whole[shuffled])


def test_what_is_refused_says_why():
    with pytest.raises(ValueError, match="must be the name of an operation on rows, got 'softmin'"):
        entropic.BatchMap("softmin", "x")
    with pytest.raises(TypeError, match="'beta'"):
        entropic.BatchMap("entmax", "x", beta=2)
    with pytest.raises(ValueError, match="alpha must be above 0"):
        entropic.BatchMap("entmax", "x", alpha=0.0)
    with pytest.raises(TypeError, match="a tuple of two names for kl_divergence, got 'p'"):
        entropic.BatchMap("kl_divergence", "p")
    with pytest.raises(TypeError, match="row is only for sample and gumbel_softmax"):
        entropic.BatchMap("softmax", "x", row="id")
    with pytest.raises(ValueError, match="there is no column 'y'; there are 'x'"):
        entropic.BatchMap("softmax", "y")({"x": SCORES})
    with pytest.raises(TypeError, match="column 'x' must hold numbers or rows of numbers, got 'a' in row 1"):
        entropic.BatchMap("softmax", "x")({"x": [[1.0, 2.0], "a"]})
    with pytest.raises(TypeError, match="got list"):
        entropic.BatchMap("softmax", "x")([1.0])
    with pytest.raises(ValueError, match="row 1 holds null"):
        entropic.BatchMap("softmax", "x")(pa.table({"x": [[1.0, 2.0], [1.0, None]]}))


def test_the_batch_is_not_changed():
    for kind in ("dict", "pandas", "arrow"):
        batch = as_table(kind)
        names = list(batch) if kind != "arrow" else batch.column_names
        entropic.BatchMap("softmax", "scores", out="p")(batch)
        assert (list(batch) if kind != "arrow" else batch.column_names) == names
    assert "axis" in inspect.signature(entropic.softmax).parameters
