"""Operations on batches of a table, for Ray Data, Hugging Face datasets, Spark, DuckDB and polars."""

import re

import numpy as np

import isentropic._generated as _generated
from isentropic._descriptions import LOSSES, MAPS, MEASURES
from isentropic._numpy import _entropy_control, _sampling


class BatchMap:
    """An operation on a column of rows, as a function from batches to batches.

    It can be pickled, has no state, and computes every row by itself. So results do not depend on how a table is split into
    batches, or where these run.

    Parameters
    ----------
    operation : str
        The name of a function of isentropic whose argument is an array of rows: any map, log_softmax, logsumexp,
        gamma_for_entropy, power_transform, a measure, a divergence, a loss, sample, gumbel_softmax.
    column : str, or tuple of str
        The column of rows: arrays or lists of numbers. Operations of two arrays, such as kl_divergence and softmax_loss, take
        a tuple of two columns, the second of rows or of classes. self_information and binary_entropy also take a column of
        numbers.
    out : str, default None
        The column of results; None names it as the operation. gamma_for_entropy makes three: out, out_entropy, out_status.
        A column of this name is replaced.
    row : str, default None
        For sample and gumbel_softmax: the column of global row numbers, integers in [0, 2**64). The row of number r draws from
        stream + r, so that a table gives the same draws however it is cut. None counts rows from 0 in each batch.
    **params
        Parameters of the operation, except axis, out, return_grad and param_grad.

    Calling it takes and returns a dict of NumPy arrays or lists, a pyarrow Table or RecordBatch, a pandas or a polars
    DataFrame. Rows may have unequal lengths. Where a column is null, so is the result.

    Raises
    ------
    TypeError, ValueError
        When it is made: there is no such operation, or it has no such parameter. When it is called: a column is missing, an
        entry is not a row of numbers, or the operation refuses a row; the message names the column and the row.

    Examples
    --------
    >>> normalize = isentropic.BatchMap("entropy_normalize", "scores", out="p", entropy=0.5)
    >>> batch = normalize({"scores": np.array([[0.0, 1.0, 3.0], [2.0, 2.5, 0.0]])})
    >>> batch["p"].shape
    (2, 3)
    """

    def __init__(self, operation, column, *, out=None, row=None, **params):
        if not isinstance(operation, str) or operation.startswith("_") or operation not in FUNCTIONS:
            raise ValueError(f"BatchMap: operation must be the name of an operation on rows, got {operation!r}")
        columns = tuple(column) if isinstance(column, (tuple, list)) else (column,)
        wanted = 2 if operation in _TWO else 1
        if len(columns) != wanted or not all(isinstance(name, str) for name in columns):
            what = "a tuple of two names" if wanted == 2 else "one name"
            raise TypeError(f"BatchMap: column must be {what} for {operation}, got {column!r}")
        for argument, value in (("out", out), ("row", row)):
            if not (value is None or isinstance(value, str)):
                raise TypeError(f"BatchMap: {argument} must be a column's name, got {value!r}")
        if row is not None and operation not in _DRAWS:
            raise TypeError(f"BatchMap: row is only for sample and gumbel_softmax, and operation is {operation!r}")
        self.operation, self.columns, self.row, self.params = operation, columns, row, params
        self.out = operation if out is None else out
        if "axis" in params or "out" in params:
            raise TypeError("BatchMap: rows are along the last axis; axis and out must not be given")
        if params.get("return_grad") or params.get("param_grad"):
            raise TypeError("BatchMap: there is no column for gradients; return_grad and param_grad must not be given")
        if operation in _DRAWS:
            _sampling.natural("BatchMap", "stream", params.get("stream", 0))
        self._run(self._none(), np.zeros(0, np.uint64))  # an invalid parameter raises here

    def __call__(self, batch):
        table = _table_of(batch)
        columns = [table.column(name, none) for name, none in zip(self.columns, self._none(), strict=True)]
        count = len(columns[0].rows)
        for column, numbers_too in zip(columns, self._of_numbers(), strict=True):
            column.check(count, numbers_too, f"as {self.columns[0]!r} has")
        numbers = np.arange(count, dtype=np.uint64)
        if self.row is not None:
            numbers = table.column(self.row, numbers[:0]).integers(count, f"as {self.columns[0]!r} has")
        places, parts = [], []
        try:
            for place, arrays in _groups(columns):
                found = self._run(arrays, numbers[place])
                places.append(place)
                parts.append(found if isinstance(found, tuple) else (found,))
        except (TypeError, ValueError) as error:
            raise self._refusal(columns, numbers) or error from None
        names = [self.out, *(f"{self.out}_{field}" for field in getattr(found, "_fields", ())[1:])]
        for name, results in zip(names, zip(*parts, strict=True), strict=False):
            table.add(name, _Results(results, places, count))
        return table.result()

    def __repr__(self):
        params = "".join(f", {name}={value!r}" for name, value in self.params.items())
        columns = self.columns[0] if len(self.columns) == 1 else self.columns
        return f"BatchMap({self.operation!r}, {columns!r}, out={self.out!r}, row={self.row!r}{params})"

    def _none(self):
        """The columns of a batch without rows."""
        rows, classes = np.zeros((0, 1)), np.zeros(0, np.int64)
        return [rows, classes if self.operation in _OF_CLASSES else rows][: len(self.columns)]

    def _of_numbers(self):
        """For each column whether it may have a number where others have a row."""
        # An entry's value is its own, unless the row is normalised first.
        whole = self.operation in _NORMALISED and (self.params.get("normalize") or self.params.get("input") == "scores")
        by_entry = self.operation in _ENTRIES and not whole
        return [by_entry, self.operation in _OF_CLASSES][: len(self.columns)]

    def _run(self, arrays, numbers):
        params = self.params
        if self.operation in _DRAWS:
            params = {**params, "stream": np.uint64(params.get("stream", 0)) + numbers}  # modulo 2**64
        if self.operation in _OF_DISTRIBUTIONS and arrays[1].ndim > 1 and arrays[1].dtype.kind in "iub":
            arrays = [arrays[0], arrays[1].astype(np.float64)]  # a row such as [0, 1] is a distribution, not classes
        return FUNCTIONS[self.operation](*arrays, **params)

    def _refusal(self, columns, numbers):
        """The error of the first row that the operation refuses, with this row's number; None if there is no such row."""
        which = f"column {self.columns[0]!r}" if len(self.columns) == 1 else f"columns {', '.join(map(repr, self.columns))}"
        for number, row in enumerate(zip(*(column.rows for column in columns), strict=True)):
            if any(one is None for one in row):
                continue
            try:
                self._run([np.asarray(one)[np.newaxis] for one in row], numbers[number : number + 1])
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                reason = re.sub(r" (in|of) row 0\b", "", str(error))  # alone, each row has the number 0
                return kind(f"BatchMap: row {number} of {which}: {reason}")
        return None


_DRAWS = ("sample", "gumbel_softmax")


def _names(family):
    return {info["name"] for info in family}


_TWO = _names(info for info in MEASURES.values() if info["family"] == "divergence") | _names(LOSSES.values())
_OF_CLASSES = _names(info for info in LOSSES.values() if info["target"].startswith("class"))
_OF_DISTRIBUTIONS = _names(info for info in LOSSES.values() if info["target"] == "class or distribution")
_MEASURES = _names(info for info in MEASURES.values() if info["family"] in ("measure", "divergence", "entry"))
_ENTRIES = _names(info for info in MEASURES.values() if info["family"] == "entry")
_NORMALISED = _names(info for info in MEASURES.values() if any(param["name"] in {"normalize"} for param in info["params"]))
_MAPS = _names(MAPS.values())
FUNCTIONS = {name: getattr(_generated, name) for name in _MAPS | _MEASURES | _TWO}
FUNCTIONS |= {
    one.__name__: one
    for one in (
        _entropy_control.gamma_for_entropy,
        _entropy_control.power_transform,
        _entropy_control.mean_field_entropy,
        _sampling.sample,
        _sampling.gumbel_softmax,
    )
}


class _Column:
    """The rows of a column: an array, or a list of arrays, with None for null. An entry may also be a number."""

    def __init__(self, name, given, none):
        """`none`: the column's type, as a column without rows."""
        self.name, self.rows, self.none = name, given, none
        if not hasattr(given, "__len__") or isinstance(given, str) or getattr(given, "ndim", 1) == 0:
            raise TypeError(f"BatchMap: column {name!r} must be an array or a list of rows, got {type(given).__name__}")
        # An array without rows may have one axis because nothing said how long they are.
        if isinstance(given, np.ndarray) and given.dtype.kind not in "OUSMm" and (given.ndim > 1 or len(given) > 0):
            self.none = given[:0]
            return
        self.rows = [None if entry is None else self._row(number, entry) for number, entry in enumerate(given)]

    def _row(self, number, entry):
        try:
            row = np.asarray(entry)
        except (TypeError, ValueError):  # lists of unequal length, tensors of a type that NumPy lacks
            row = None
        if row is None or row.dtype.kind not in "fiub" or row.ndim > 1:
            raise TypeError(
                f"BatchMap: column {self.name!r} must hold numbers or rows of numbers, got {entry!r} in row {number}"
            )
        return row

    def at(self, places):
        """An array of rows of one type and length."""
        rows = self.rows
        return rows[places] if isinstance(rows, np.ndarray) else np.array([rows[place] for place in places])

    def check(self, count, numbers_too, why):
        """Refuses another number of rows; and numbers, which would be one row across the batch, unless these are wanted."""
        if len(self.rows) != count:
            raise ValueError(f"BatchMap: column {self.name!r} must have {count} rows, {why}, got {len(self.rows)}")
        if numbers_too:
            return
        alone = enumerate(self.rows if isinstance(self.rows, list) else ())
        number = next((number for number, row in alone if row is not None and row.ndim == 0), None)
        if number is not None or self.none.ndim == 1:
            where = "a column of numbers" if number is None else f"the number {self.rows[number]} in row {number}"
            raise TypeError(f"BatchMap: column {self.name!r} must hold rows of numbers, got {where}")

    def integers(self, count, why):
        """The column as integers of 64 bits without sign."""
        self.check(count, True, why)
        rows = self.rows
        if isinstance(rows, list) or rows.ndim > 1 or rows.dtype.kind not in "iu" or (rows < 0).any():
            what = f"the row number of column {self.name!r} in row"
            rows = [
                _sampling.natural("BatchMap", f"{what} {number}", None if row is None else row.tolist())
                for number, row in enumerate(rows)
            ]
        return np.asarray(rows, np.uint64)


def _groups(columns):
    """Rows of one type and length in each column: their places, and for each column an array of them.

    Rows are not padded to one length, so that no row's result depends on the others.
    """
    if all(isinstance(column.rows, np.ndarray) for column in columns):
        yield slice(None), [column.rows for column in columns]
        return
    alike = {}
    for number, row in enumerate(zip(*(column.rows for column in columns), strict=True)):
        if not any(one is None for one in row):
            alike.setdefault(tuple((one.dtype, one.shape) for one in row), []).append(number)
    for places in alike.values():
        yield np.array(places), [column.at(places) for column in columns]
    if not alike:  # the results of no rows say which type they have
        yield np.zeros(0, np.int64), [np.zeros((0, 1)[: column.none.ndim], column.none.dtype) for column in columns]


class _Results:
    """One result of each row of a table. `rows` is an array if all are there and have one shape, else a list with None for
    null."""

    def __init__(self, parts, places, count):
        self.dtype, self.of_rows = np.result_type(*{part.dtype for part in parts}), any(part.ndim > 1 for part in parts)
        if len(parts) == 1 and len(parts[0]) == count:
            self.rows = parts[0]
        elif sum(map(len, parts)) == count and len({part.shape[1:] for part in parts}) == 1:
            self.rows = np.empty((count, *parts[0].shape[1:]), self.dtype)
            for place, part in zip(places, parts, strict=True):
                self.rows[place] = part
        else:
            self.rows = [None] * count
            for place, part in zip(places, parts, strict=True):
                for number, row in zip(place, part.tolist() if part.ndim == 1 else part, strict=True):
                    self.rows[number] = row


def _table_of(batch):
    module = type(batch).__module__.partition(".")[0]
    if isinstance(batch, dict):
        return _Dict(batch)
    if module == "pyarrow" and hasattr(batch, "column_names"):
        return _Arrow(batch)
    if module == "pandas" and hasattr(batch, "columns"):
        return _Pandas(batch)
    if module == "polars" and hasattr(batch, "to_arrow") and hasattr(batch, "columns"):
        return _Polars(batch)
    raise TypeError(
        "BatchMap: a batch must be a dict of arrays, a pyarrow Table or RecordBatch, a pandas or a polars DataFrame, "
        f"got {type(batch).__name__}"
    )


def _check_column(name, names):
    names = list(names)
    if names.count(name) == 0:
        raise ValueError(f"BatchMap: there is no column {name!r}; there are {', '.join(map(repr, names))}")
    if names.count(name) > 1:
        raise ValueError(f"BatchMap: there are {names.count(name)} columns {name!r}")


class _Dict:
    def __init__(self, batch):
        self._batch = dict(batch)

    def column(self, name, none):
        _check_column(name, self._batch)
        return _Column(name, self._batch[name], none)

    def add(self, name, results):
        rows = results.rows
        self._batch[name] = rows if isinstance(rows, np.ndarray) else np.fromiter(rows, object, len(rows))

    def result(self):
        return self._batch


class _Pandas:
    def __init__(self, batch):
        self._batch = batch.copy(deep=False)

    def column(self, name, none):
        _check_column(name, self._batch.columns)
        column = self._batch[name]
        if hasattr(column.dtype, "pyarrow_dtype"):
            return _of_arrow(name, column.array.__arrow_array__(), none)
        there = column.notna().to_numpy()
        if there.all() or (isinstance(column.dtype, np.dtype) and column.dtype != object):  # in which NaN is a number
            return _Column(name, column.to_numpy(), none)
        return _Column(name, _with_null(column[there].to_numpy(), there), none)

    def add(self, name, results):
        import pandas  # type: ignore[import-untyped]

        rows = results.rows
        # A column without rows has the type of rows too.
        self._batch[name] = pandas.Series(list(rows), self._batch.index, object) if results.of_rows else rows

    def result(self):
        return self._batch


class _Arrow:
    def __init__(self, batch):
        import pyarrow as pa  # type: ignore[import-untyped]

        self._pa, self._batch = pa, batch

    def column(self, name, none):
        _check_column(name, self._batch.schema.names)
        return _of_arrow(name, self._batch.column(name), none)

    def add(self, name, results):
        pa = self._pa
        if results.of_rows:
            array = _to_arrow_list(pa, results)
        else:
            array = pa.array(results.rows, pa.string() if results.dtype.kind in "US" else pa.from_numpy_dtype(results.dtype))
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

    def column(self, name, none):
        return self._inner.column(name, none)

    def add(self, name, results):
        self._inner.add(name, results)

    def result(self):
        import polars  # type: ignore[import-not-found,import-untyped]

        return polars.from_arrow(self._inner.result())


def _of_arrow(name, column, none):
    """An Arrow column; its rows have the column's type."""
    import pyarrow as pa  # type: ignore[import-untyped]

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # with no or several chunks
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    of_rows = any(is_kind(column.type) for is_kind in kinds)
    kind = column.type.value_type if of_rows else column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return _Column(name, column.to_pylist() if of_rows else column.to_numpy(zero_copy_only=False), none)
    none = np.zeros((0, 1) if of_rows else 0, kind.to_pandas_dtype())
    there, present = column.is_valid().to_numpy(zero_copy_only=False), column.drop_null()
    rows = present.flatten() if of_rows else present
    if of_rows:
        ends = np.cumsum(present.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64)
        if rows.null_count > 0:
            first = np.argmin(rows.is_valid().to_numpy(zero_copy_only=False))
            number = np.flatnonzero(there)[np.searchsorted(ends, first, "right")]
            raise ValueError(f"BatchMap: column {name!r}: row {number} holds null among its numbers")
    rows = rows.to_numpy(zero_copy_only=False)
    if of_rows and len(present) > 0:
        size = len(rows) // len(present)
        one_size = bool((ends == np.arange(1, len(present) + 1) * size).all())
        rows = rows.reshape(len(present), size) if one_size else np.split(rows, ends[:-1])
    whole = isinstance(rows, np.ndarray) and there.all() and len(there) > 0
    return _Column(name, rows if whole else _with_null(rows, there), none)


def _with_null(rows, there):
    present = iter(rows)
    return [next(present) if one else None for one in there]


def _to_arrow_list(pa, results):
    rows, null = results.rows, None
    if isinstance(rows, np.ndarray):
        offsets, flat = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1], rows.reshape(-1)
    else:
        offsets = np.cumsum([0, *(0 if row is None else len(row) for row in rows)], dtype=np.int64)
        flat = np.concatenate([np.zeros(0, results.dtype), *(row for row in rows if row is not None)])
        null = np.array([*(row is None for row in rows), False])
    if offsets[-1] < 2**31:
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32), mask=null), pa.array(flat))
    return pa.LargeListArray.from_arrays(pa.array(offsets, mask=null), pa.array(flat))
