"""Operations on batches of a table, for Ray Data, Hugging Face datasets, Spark, DuckDB and polars."""

import numpy as np

from entropic import _core, _entropy_control, _generated, _sampling

# The value of absent entries when rows of unequal length are padded to one length: no mass.
_ABSENT = {"scores": -np.inf, "log_probs": -np.inf, "probs": 0.0}

# Operations whose rows are distributions unless input says otherwise.
_OF_PROBABILITIES = ("power_transform",)


class BatchMap:
    """An operation on a column of rows, as a function from batches to batches.

    It can be pickled, has no state, and computes every row by itself. So results do not depend on how a table is split into
    batches, or where these run.

    Parameters
    ----------
    operation : str
        The name of a function of entropic whose argument is an array of rows: any map, log_softmax, logsumexp,
        gamma_for_entropy, power_transform, a measure, a divergence, a loss, sample, gumbel_softmax.
    column : str, or tuple of str
        The column of rows: arrays or lists of numbers. Operations of two arrays, such as kl_divergence and softmax_loss, take
        a tuple of two columns, the second of rows or of classes.
    out : str, default None
        The column of results; None names it as the operation. gamma_for_entropy makes three: out, out_entropy, out_status.
        A column of this name is replaced.
    row : str, default None
        Of sample and gumbel_softmax: the column of global row numbers. The row of number r draws from stream + r, so that a
        table gives the same draws however it is cut. None counts rows from 0 in each batch.
    **params
        Parameters of the operation.

    Calling it takes and returns a dict of NumPy arrays or lists, a pyarrow Table or RecordBatch, a pandas or a polars
    DataFrame. Rows may have unequal lengths: shorter ones are filled with absent scores (-inf; for probabilities 0), and
    results have the length of their row. A row that is null has null as its result.

    Raises
    ------
    TypeError, ValueError
        When it is made: there is no such operation, or it has no such parameter. When it is called: a column is missing, or an
        entry is not a row of numbers; the message names the column and the row.

    Examples
    --------
    >>> normalize = entropic.BatchMap("entropy_normalize", "scores", out="p", entropy=0.5)
    >>> batch = normalize({"scores": np.array([[0.0, 1.0, 3.0], [2.0, 2.5, 0.0]])})
    >>> batch["p"].shape
    (2, 3)
    """

    def __init__(self, operation, column, *, out=None, row=None, **params):
        if not isinstance(operation, str) or operation.startswith("_") or operation not in FUNCTIONS:
            raise ValueError(f"BatchMap: operation must be the name of an operation on rows, got {operation!r}")
        columns = (column,) if isinstance(column, str) else tuple(column)
        wanted = 2 if operation in _TWO else 1
        if len(columns) != wanted or not all(isinstance(name, str) for name in columns):
            what = "a tuple of two names" if wanted == 2 else "one name"
            raise TypeError(f"BatchMap: column must be {what} for {operation}, got {column!r}")
        if row is not None and operation not in _DRAWS:
            raise TypeError(f"BatchMap: row is only for sample and gumbel_softmax, and operation is {operation!r}")
        self.operation, self.columns, self.out, self.row, self.params = operation, columns, out or operation, row, params
        if "axis" in params or "out" in params:
            raise TypeError("BatchMap: rows are along the last axis; axis and out must not be given")
        self._run(self._none(), np.zeros(0, np.int64))  # an invalid parameter raises here

    def __call__(self, batch):
        table = _table_of(batch)
        first, *others = (
            _Column(table.column(name), name, self._absent(), none)
            for name, none in zip(self.columns, self._none(), strict=True)
        )
        arrays = [first.values, *(other.alike(first) for other in others)]
        rows = np.arange(len(first.values)) if self.row is None else np.asarray(table.column(self.row), np.int64)
        for other in others:
            first.leave_out(other.there)
        if first.there is not None:
            arrays, rows = [array[first.there] for array in arrays], rows[first.there]
        found = self._run(arrays, rows)
        results = found if isinstance(found, tuple) else (found,)
        names = [self.out, *(f"{self.out}_{field}" for field in getattr(found, "_fields", ())[1:])]
        for name, result in zip(names, results, strict=False):
            table.add(name, result, first)
        return table.result()

    def __repr__(self):
        params = "".join(f", {name}={value!r}" for name, value in self.params.items())
        columns = self.columns[0] if len(self.columns) == 1 else self.columns
        return f"BatchMap({self.operation!r}, {columns!r}, out={self.out!r}, row={self.row!r}{params})"

    def _none(self):
        """The columns of a batch without rows."""
        rows, classes = np.zeros((0, 1)), np.zeros(0, np.int64)
        return [rows, classes if self.operation in _OF_CLASSES else rows][: len(self.columns)]

    def _absent(self):
        default = "probs" if self.operation in _OF_PROBABILITIES or self.operation in _MEASURES else "scores"
        return _ABSENT[self.params.get("input", default)]

    def _run(self, arrays, rows):
        params = self.params
        if self.operation in _DRAWS:
            stream = np.asarray(params.get("stream", 0)).astype(np.uint64) + rows.astype(np.uint64)
            params = {**params, "stream": stream}
        return FUNCTIONS[self.operation](*arrays, **params)


_DRAWS = ("sample", "gumbel_softmax")


def _names(family):
    return {info["name"] for info in family}


_TWO = _names(info for info in _core.measure_operations() if info["family"] == "divergence") | _names(_core.losses())
_OF_CLASSES = _names(info for info in _core.losses() if info["target"].startswith("class"))
_MEASURES = _names(info for info in _core.measure_operations() if info["family"] in ("measure", "divergence", "entry"))
_MAPS = _names(_core.operations())
FUNCTIONS = {name: getattr(_generated, name) for name in _MAPS | _MEASURES | _TWO | {"gamma_for_entropy"}}
FUNCTIONS |= {
    one.__name__: one
    for one in (
        _entropy_control.power_transform,
        _entropy_control.mean_field_entropy,
        _sampling.sample,
        _sampling.gumbel_softmax,
    )
}


class _Column:
    """A column as an array of rows, with their lengths if these differ, and a mask of the rows that are not null."""

    def __init__(self, column, name, absent, none):
        """`none`: what the column is if it has no rows, or only null, and no type."""
        self.name, self.absent, self.lengths, self.there = name, absent, None, None
        if isinstance(column, np.ndarray) and column.dtype != object:
            self.values = column
            return
        rows = [None if row is None else np.asarray(row) for row in column]
        for number, row in enumerate(rows):
            if row is not None and (row.dtype.kind not in "fiub" or row.ndim > 1):
                raise TypeError(
                    f"BatchMap: column {name!r} must hold numbers or rows of numbers, got {column[number]!r} in row {number}"
                )
        if any(row is None for row in rows):
            self.there = np.array([row is not None for row in rows])
        present = [row for row in rows if row is not None]
        if not present:
            self.values = np.zeros((len(rows), *none.shape[1:]), none.dtype)
            return
        dtype = np.result_type(*present)
        if present[0].ndim == 0:
            self.values = np.array([0 if row is None else row for row in rows], dtype)
            return
        dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
        lengths = np.array([0 if row is None else len(row) for row in rows], np.int64)
        size = int(lengths.max(initial=0))
        self.values = np.full((len(rows), size), absent, dtype)
        for row, length, to in zip(rows, lengths, self.values, strict=True):
            if row is not None:
                to[:length] = row
        if (lengths != size).any():
            self.lengths = lengths

    def alike(self, first):
        """The rows of a second column, with the lengths of the first column's rows."""
        values = self.values
        if values.ndim == 1 or values.shape[1] >= first.values.shape[1]:
            return values
        wider = np.full((len(values), first.values.shape[1]), self.absent, values.dtype)
        wider[:, : values.shape[1]] = values
        return wider

    def leave_out(self, there):
        """Take rows for null that are null in another column."""
        if there is not None:
            self.there = there if self.there is None else self.there & there

    def is_plain(self, result):
        """Whether each row of a result belongs to the row with the same number and length."""
        cut = self.lengths is not None and result.ndim > 1 and result.shape[1:] == self.values.shape[1:]
        return not cut and self.there is None

    def listed(self, result):
        """A result as a list of numbers or of rows, each as long as its row, with None for null rows."""
        there = np.ones(len(self.values), bool) if self.there is None else self.there
        each = list(result)
        if result.ndim == 1:
            each = result.tolist()
        elif self.lengths is not None and result.shape[1:] == self.values.shape[1:]:
            each = [row[:length] for row, length in zip(result, self.lengths[there], strict=True)]
        present = iter(each)
        return [next(present) if is_there else None for is_there in there]


def _table_of(batch):
    module = type(batch).__module__.partition(".")[0]
    if isinstance(batch, dict):
        return _Dict(batch)
    if module == "pyarrow":
        return _Arrow(batch)
    if module == "pandas":
        return _Pandas(batch)
    if module == "polars":
        return _Polars(batch)
    raise TypeError(
        "BatchMap: a batch must be a dict of arrays, a pyarrow Table or RecordBatch, a pandas or a polars DataFrame, "
        f"got {type(batch).__name__}"
    )


def _missing(name, names):
    return ValueError(f"BatchMap: there is no column {name!r}; there are {', '.join(map(repr, names))}")


class _Dict:
    def __init__(self, batch):
        self._batch = dict(batch)

    def column(self, name):
        if name not in self._batch:
            raise _missing(name, self._batch)
        return self._batch[name]

    def add(self, name, result, column):
        if not column.is_plain(result):
            rows = column.listed(result)
            result = np.empty(len(rows), object)
            result[:] = rows
        self._batch[name] = result

    def result(self):
        return self._batch


class _Pandas:
    def __init__(self, batch):
        self._batch = batch.copy(deep=False)

    def column(self, name):
        if name not in self._batch.columns:
            raise _missing(name, self._batch.columns)
        return self._batch[name].to_numpy()

    def add(self, name, result, column):
        import pandas  # type: ignore[import-untyped]

        plain = column.is_plain(result)
        if result.ndim > 1:  # a column without rows has the type of rows too
            rows = list(result) if plain else column.listed(result)
            self._batch[name] = pandas.Series(rows, self._batch.index, object)
        else:
            self._batch[name] = result if plain else column.listed(result)

    def result(self):
        return self._batch


class _Arrow:
    def __init__(self, batch):
        import pyarrow as pa  # type: ignore[import-untyped]

        self._pa, self._batch = pa, batch

    def column(self, name):
        if name not in self._batch.schema.names:
            raise _missing(name, self._batch.schema.names)
        return _from_arrow(self._pa, self._batch.column(name))

    def add(self, name, result, column):
        pa = self._pa
        if result.ndim == 1:
            kind = pa.string() if result.dtype.kind in "US" else pa.from_numpy_dtype(result.dtype)
            array = pa.array(result if column.is_plain(result) else column.listed(result), kind)
        else:
            array = _to_arrow_list(pa, result if column.is_plain(result) else column.listed(result), result.dtype)
        if isinstance(self._batch, pa.Table):
            array = pa.chunked_array([array])
        names = self._batch.schema.names
        if name in names:
            self._batch = self._batch.set_column(names.index(name), name, array)
        elif isinstance(self._batch, pa.Table):
            self._batch = self._batch.append_column(name, array)
        else:
            self._batch = pa.RecordBatch.from_arrays([*self._batch.columns, array], [*names, name])

    def result(self):
        return self._batch


class _Polars:
    def __init__(self, batch):
        self._inner = _Arrow(batch.to_arrow())

    def column(self, name):
        return self._inner.column(name)

    def add(self, name, result, column):
        self._inner.add(name, result, column)

    def result(self):
        import polars  # type: ignore[import-not-found,import-untyped]

        return polars.from_arrow(self._inner.result())


def _from_arrow(pa, column):
    """An Arrow column as an array if all rows have one length, otherwise as a list of arrays; both have the column's type."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # with no or several chunks
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(column.type) for is_kind in kinds):
        return column.to_numpy(zero_copy_only=False)
    flat = column.flatten()
    dtype = flat.type.to_pandas_dtype()
    fixed = pa.types.is_fixed_size_list(column.type)
    if len(column) == 0:
        return np.zeros((0, column.type.list_size if fixed else 0), dtype)
    if column.null_count == 0 and flat.null_count == 0 and len(flat) % len(column) == 0:
        size = len(flat) // len(column)
        if fixed or bool((np.diff(column.offsets.to_numpy(zero_copy_only=False)) == size).all()):
            return flat.to_numpy(zero_copy_only=False).reshape(len(column), size)
    rows = column.to_pylist()
    for number, row in enumerate(rows if flat.null_count > 0 else ()):
        if row is not None and None in row:
            raise ValueError(f"BatchMap: row {number} holds null among its numbers")
    return [None if row is None else np.asarray(row, dtype) for row in rows]


def _to_arrow_list(pa, rows, dtype):
    kind = pa.list_(pa.from_numpy_dtype(dtype))
    if isinstance(rows, np.ndarray):
        offsets = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
        if offsets[-1] < 2**31:
            return pa.ListArray.from_arrays(offsets.astype(np.int32), pa.array(rows.reshape(-1)))
        return pa.LargeListArray.from_arrays(offsets, pa.array(rows.reshape(-1)))
    return pa.array([None if row is None else row.tolist() for row in rows], kind)
