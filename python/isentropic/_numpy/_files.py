"""Files of rows: the formats of the command line, and with pyarrow also Parquet and Arrow files."""

import math
import os
import re
import sys
from typing import Any, NamedTuple

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _convert, _names

ARROW = ("parquet", "arrow", "feather")

# The endings of packed files, which the library packs and unpacks.
PACKED = (".gz", ".zst")

# What an empty cell is, in the order of the library.
MISSING = ("error", "nan", "skip")

# The formats without a place for names, and those without one for the name of an array.
UNNAMED = ("npy", "npz", "safetensors")
WITHOUT_KEY = ("csv", "tsv", "npy")


class Table(NamedTuple):
    """The numbers of a file and the names that came with them."""

    array: Any
    columns: list[str]
    labels: list[str] | None


@documented
def read(
    path,
    *,
    key=None,
    labels=None,
    header=None,
    columns=None,
    exclude=None,
    delimiter=None,
    missing="error",
    na=(),
    thousands=None,
    format=None,
    names=False,
):
    r"""
    Read the array in a file, as the command line reads it.

    path (str or os.PathLike): A .csv, .tsv, .npy, .npz, .jsonl or .safetensors, whose name may also end in .gz or .zst; with
        pyarrow also a .parquet, .arrow or .feather.
    key (str or None): Which array, if a file has several.
    labels (str, int or None): The column of labels, by name or counted from 1; of a .jsonl, the field. A column of words is
        found automatically. A column of numbers that may be something other than scores is an error: one called class, y_true
        or id, one beside logit_0 and logit_1, or one of whole numbers beside others with fractions.
    header (bool or None): Whether the first line holds names. A first line without a number does.
    columns, exclude (str, or sequence of str or int, or None): The columns of scores, or those to leave out, by name or counted
        from 1: "a,c-f", ["a", "c"], [1, 2]. All but the labels are scores otherwise.
    delimiter (str or None): The character between cells, such as "\t" or " ". With ";" numbers may have decimal commas.
    missing ("error", "nan" or "skip"): What an empty cell, NA or null is: an error, NaN, or a reason to leave out its row. NaN
        is a number.
    na (str, or sequence of str): Words or numbers that also mean a missing value, such as "-" or "-999".
    thousands (str or None): The character between groups of three digits, as in 1,234.5: one of , . ' _ and a blank. Without it
        such numbers are errors.
    format (str or None): The format of the file, if its name does not say it: "csv", "npy" and so on.
    names (bool): Return names beside the numbers.
    Returns (ndarray, or Table(array, columns, labels) with `names`): float64, float32 and float16 as the file has them, text
        and integers as float64, bfloat16 as float32.
    Raises: The content of the file is wrong. The message names the place: "scores.csv:17:4: 'abc' is not a number". OSError:
        the file cannot be read.
    TypeError: A parameter is of the wrong type.
    """
    path = _path("read", path)
    form = _format("read", path, format)
    given = {"header": header, "delimiter": delimiter, "thousands": thousands, "na": na or None}
    if missing not in MISSING:
        raise ValueError(f"read: missing must be one of {', '.join(MISSING)}, got {missing!r}")
    options = (
        "" if labels is None else _column("read", "labels", labels),
        None if header is None else _checks.flag("read", "header", header),
        _columns("read", "columns", columns),
        _columns("read", "exclude", exclude),
        _delimiter("read", delimiter),
        MISSING.index(missing),
        _words("read", "na", na),
        _thousands("read", thousands),
    )
    if form in ARROW:
        for argument, value in given.items():
            if value is not None:
                raise ValueError(f"read: {argument} must be None for .{form}, whose columns have names and types")
        table = _read_arrow(path, form, key, options[0], options[2], options[3], missing)
        return table if names else table.array
    try:
        data, kind, shape, columns, row_labels = _core.read_file(path, format or "", key or "", *options)
    except ValueError as error:
        raise ValueError(_in_python(error)) from None
    array = _of_bfloat16(data.view(np.uint16)).reshape(shape) if kind == "bfloat16" else data.view(kind).reshape(shape)
    return Table(array, columns, row_labels) if names else array


@documented
def write(path, array, *, columns=None, labels=None, key=None, format=None):
    """
    Write an array to a file, complete or not at all.

    path (str or os.PathLike): As of `read`.
    array: Rows along the last axis; an array of one axis has a number for each row. float64, float32, float16 and bfloat16 (of
        torch or ml_dtypes) keep their type, and anything else becomes float64. Parquet and Arrow have no bfloat16: it becomes
        float32.
    columns, labels (sequence of str or None): A name for each column and for each row; .npy, .npz and .safetensors cannot store
        them. Without them those of a frame of pandas or polars are written if they are text; columns=[] writes none.
    key (str or None): The name of the array in an .npz, .jsonl, .safetensors, .parquet or .arrow, if columns have no names.
    format (str or None): The format of the file, if its name does not say it.
    Raises: The format cannot store the names, the number of names is not that of columns or rows, or in a .jsonl, .parquet or
        .arrow, where labels are called label, a name appears twice. OSError: the file cannot be written.
    TypeError: A parameter is of the wrong type.
    """
    path = _path("write", path)
    form = _format("write", path, format)
    for argument, given, formats in (("columns", columns, UNNAMED), ("labels", labels, UNNAMED), ("key", key, WITHOUT_KEY)):
        if given is not None and form in formats:
            raise ValueError(f"write: {argument} must be None for .{form}, which cannot store such names")
        if isinstance(given, str) and argument != "key":
            raise TypeError(f"write: {argument} must be a sequence of names, got one string")
    if form not in UNNAMED:
        own_columns, own_labels = _names.texts(array)
        columns = own_columns if columns is None and key is None else columns
        labels = own_labels if labels is None else labels
    values, kind = _numbers(array)
    if values.ndim == 0:
        raise ValueError("write: array must have at least one axis, got a single number")
    cols = 1 if values.ndim == 1 else values.shape[-1]
    rows = len(values) if values.ndim == 1 else math.prod(values.shape[:-1])
    columns = [] if columns is None else [str(name) for name in columns]
    labels = None if labels is None else [str(label) for label in labels]
    for argument, given, wanted in (("columns", columns or None, cols), ("labels", labels, rows)):
        if given is not None and len(given) != wanted:
            raise ValueError(f"write: {argument} must be {wanted} names, one for each, got {len(given)}")
    if "" in columns and form in ("csv", "tsv"):
        raise ValueError(
            f"write: columns must not have an empty name in a .{form}, which is the place above labels, got {columns}"
        )
    if labels and labels[0] == "" and not columns and form in ("csv", "tsv"):
        raise ValueError(f"write: labels must not begin with an empty one in a .{form} without columns: it would be a header")
    if columns and key is not None:
        raise ValueError(f"write: key must be None if columns have names, got {key!r}")
    if form in (*ARROW, "jsonl"):
        names = columns or ([] if key is None else [key])
        twice = _repeated([*names, *([] if labels is None else ["label"])])
        if twice is not None:
            what = "columns" if columns else "key"
            beside = "; labels are called label" if twice == "label" and labels is not None else ""
            raise ValueError(f"write: {what} must not have a name twice in a .{form}, got {twice!r}{beside}")
    if form in ARROW:
        if kind == "bfloat16":
            values = _of_bfloat16(values)
        return _write_arrow(path, form, values.reshape(rows, cols), columns, labels, key)
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    _core.write_file(path, form, data, kind, list(values.shape), rows, cols, columns, labels, key or "")


def _path(function, path):
    try:
        return os.fsdecode(path)
    except TypeError:
        raise TypeError(f"{function}: path must be a string or a path, got {type(path).__name__}") from None


def _column(function, argument, column):
    """The name or number of a column, as text."""
    wanted = "the name of a column, or its number counted from 1"
    if not isinstance(column, str):
        column = _checks.integer(function, argument, column, wanted)
    if column == "" or (not isinstance(column, str) and not 0 < column < 1 << 63):
        raise ValueError(f"{function}: {argument} must be {wanted}, got {column!r}")
    return str(column)


def _columns(function, argument, columns):
    """A list of columns as text, "a,c-f"."""
    if columns is None or isinstance(columns, str):
        if columns == "":
            raise ValueError(f"{function}: {argument} must not be empty")
        return columns or ""
    given = [_column(function, argument, column) for column in columns]
    for name in given:
        if "," in name:
            raise ValueError(f"{function}: {argument} must be names without commas, or numbers, got {name!r}")
    if not given:
        raise ValueError(f"{function}: {argument} must not be empty")
    return ",".join(given)


def _delimiter(function, delimiter):
    if delimiter is None:
        return "\0"
    if not isinstance(delimiter, str):
        raise TypeError(f"{function}: delimiter must be a character, got {type(delimiter).__name__}")
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '0123456789.+-"\r\n\0':
        raise ValueError(f"{function}: delimiter must be one character that is in no number, got {delimiter!r}")
    return delimiter


def _words(function, argument, words):
    words = [words] if isinstance(words, str) else list(words)
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"{function}: {argument} must be words, got {type(word).__name__}")
        if not word:
            raise ValueError(f"{function}: {argument} must be words that are not empty, got {word!r}")
    return words


def _thousands(function, thousands):
    if thousands is None:
        return "\0"
    if thousands not in (",", ".", "'", "_", " "):
        raise ValueError(f"{function}: thousands must be one of , . ' _ and a blank, got {thousands!r}")
    return thousands


def _format(function, path, format):
    stem, ending = os.path.splitext(path)
    packed = ending.lower() in PACKED
    if packed:
        ending = os.path.splitext(stem)[1]
    name = ending.lower().removeprefix(".") if format is None else format
    known = (*_core.file_formats, *ARROW)
    if packed and name in ARROW:
        raise ValueError(f"{function}: a .{name} is packed inside, and cannot be a {os.path.splitext(path)[1]} too, got {path}")
    if name not in known:
        what = (
            "path must end in one of ." + ", .".join(known) if format is None else "format must be one of " + ", ".join(known)
        )
        raise ValueError(f"{function}: {what}, got {path if format is None else format!r}")
    return name


def _in_python(error):
    """The message with arguments in place of the command line's options."""
    message = str(error)
    for option, argument in _ARGUMENTS:
        message = re.sub(option, argument, message)
    return message


# Options that have a value, those without, and those that stand for themselves in a sentence, with their arguments.
_ARGUMENTS = (
    ("--format-in (\\w+)", r"format='\1'"),
    ("--key(?= |$)", "key="),
    ("--labels NAME", "labels=NAME"),
    ("--(labels|exclude|columns) (\\d+)(?![\\w-]|,\\d)", r"\1=\2"),
    ("--(labels|exclude|columns) (\\d[\\d,-]*\\d)", r"\1='\2'"),
    ("--(labels|exclude) (.+?) (takes|leaves) (it|the first|them)\\b", r"\1='\2' \3 \4"),
    ("--columns chooses(?! fields)", "columns= chooses"),
    ("--delimiter tab", r"delimiter='\\t'"),
    ("--delimiter space", "delimiter=' '"),
    ("--delimiter ('.')", r"delimiter=\1"),
    ("--thousands space", "thousands=' '"),
    (r"--thousands \\'", 'thousands="\'"'),
    ("--thousands (.) ", r"thousands='\1' "),
    ("--na ('[^']*')", r"na=\1"),
    ("--missing (nan|skip)", r"missing='\1'"),
    ("--no-header", "header=False"),
    ("--header", "header=True"),
    ("--(labels|exclude|columns|delimiter|missing|na|thousands)", r"\1"),
)


def _numbers(array):
    """(array, the name of its type) in a type that files have."""
    if _convert.is_bfloat16(array):
        return array.detach().cpu().contiguous().view(sys.modules["torch"].int16).numpy(), "bfloat16"
    values = _convert.to_numpy("write", "array", array)
    if values.dtype.name == "bfloat16":  # of ml_dtypes
        return np.ascontiguousarray(values).view(np.uint16), "bfloat16"
    if values.dtype.kind not in "biuf":
        raise TypeError(f"write: array must be of numbers, got dtype {values.dtype}")
    if values.dtype not in (np.float16, np.float32, np.float64):
        values = values.astype(np.float64)
    return values.astype(values.dtype.newbyteorder("="), copy=False), values.dtype.name


def _repeated(names):
    """The first name that appears again, or None."""
    return next((name for at, name in enumerate(names) if name in names[at + 1 :]), None)


def _of_bfloat16(bits):
    """float32, which holds all numbers of bfloat16."""
    return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _pyarrow():
    try:
        import pyarrow  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError("reading and writing Parquet and Arrow files needs pyarrow: pip install pyarrow") from None
    return pyarrow


def _read_arrow(path, form, key, label, chosen, excluded, missing):
    _pyarrow()
    if form == "parquet":
        import pyarrow.parquet  # type: ignore[import-untyped]

        with pyarrow.parquet.ParquetFile(path) as file:
            table = file.read()
    else:
        import pyarrow.feather  # type: ignore[import-untyped]

        table = pyarrow.feather.read_table(path)
    known = table.column_names
    twice = _repeated(known)
    if twice is not None:
        raise ValueError(f"{path}: two columns are called {twice!r}; names must differ")
    lists = [field.name for field in table.schema if _is_list(field.type)]
    words = [field.name for field in table.schema if _is_text(field.type)]
    taken = [known[c] for c in _chosen(path, "columns", known, chosen)]
    left_out = {known[c] for c in _chosen(path, "exclude", known, excluded)}
    if label:
        words = [known[c] for c in _chosen(path, "labels", known, label, one=True)]
    else:
        words = [name for name in words if name not in left_out and name not in taken]
    if key is not None or lists:
        for argument, given in (("columns", chosen), ("exclude", excluded)):
            if given:
                raise ValueError(f"{path}: {argument} is for columns of numbers, and the file has an array")
        if key is None and len(lists) > 1:
            raise ValueError(f"{path}: there are several arrays: {', '.join(map(repr, lists))}; choose one with key=")
        names = [lists[0] if key is None else key]
        if names[0] not in known:
            raise ValueError(f"{path}: there is no array {names[0]!r}; the file has {', '.join(map(repr, known))}")
        kind = table.schema.field(names[0]).type
        if not _is_list(kind) or not _is_number(_innermost(kind)):
            raise ValueError(f"{path}: {names[0]!r} is of {kind}; lists of numbers are needed")
    else:
        names = [name for name in (taken or known) if name not in words[:1] and name not in left_out]
        for name in names:
            kind = table.schema.field(name).type
            if not _is_number(kind):
                raise ValueError(f"{path}: the column {name!r} is of {kind}; numbers are needed")
        if not taken and len(known) > 1:
            _refuse_doubtful(path, table.select(names).slice(0, _core.rows_looked_at))
    table = _without_missing(path, table, names, missing)
    labels = table[words[0]].to_pylist() if words else None
    if label:
        labels = [one if one is None else str(one) for one in labels]
    if key is not None or lists:
        return Table(_as_floats(_list_column(path, names[0], table[names[0]])), [], labels)
    arrays = [table[name].to_numpy() for name in names]
    return Table(_as_floats(np.stack(arrays, axis=-1)) if arrays else np.empty((len(table), 0)), names, labels)


def _as_floats(array):
    return array if array.dtype in (np.float16, np.float32, np.float64) else array.astype(np.float64)


def _is_list(kind):
    types = _pyarrow().types
    return types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)


def _innermost(kind):
    return _innermost(kind.value_type) if _is_list(kind) else kind


def _is_number(kind):
    types = _pyarrow().types
    return types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)


def _is_text(kind):
    """Whether a column is of words: strings of any kind, or categories of them as pandas writes."""
    types = _pyarrow().types
    return _is_text(kind.value_type) if types.is_dictionary(kind) else "string" in str(kind) and not types.is_nested(kind)


def _without_missing(path, table, names, missing):
    """The table without the rows that lack a number, if `missing` says so; an error if there must be none."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    lacking = np.zeros(len(table), bool)
    for name in names:
        own = np.array(table[name].is_null())
        if _is_list(table.schema.field(name).type):
            lists = table[name].combine_chunks()
            rows = np.repeat(np.flatnonzero(~own), np.asarray(pc.list_value_length(lists.filter(lists.is_valid()))))
            own[rows[np.asarray(pc.list_flatten(lists).is_null())]] = True
        if missing == "error" and own.any():
            raise ValueError(
                f"{path}: the column {name!r} has a missing value in row {int(np.argmax(own))} (missing='nan' reads it as NaN, "
                "missing='skip' leaves out the row)"
            )
        lacking |= own
    return table.filter(_pyarrow().array(~lacking)) if missing == "skip" and lacking.any() else table


def _chosen(path, argument, known, text, one=False):
    """The places of the columns that a list such as "a,c-f" names."""

    def place(item):
        if item in known:
            return known.index(item)
        if item.isdecimal() and 0 < int(item) <= len(known):
            return int(item) - 1
        return None

    found = []
    for item in [text] if one else filter(None, text.split(",")):
        ends = place(item), place(item)
        for dash in (at for at, c in enumerate(item) if c == "-" and ends[0] is None):
            ends = place(item[:dash]), place(item[dash + 1 :])
            if None not in ends:
                break
        if None in ends:
            raise ValueError(f"{path}: {argument}: there is no column called {item!r}")
        if ends[0] > ends[1]:
            raise ValueError(f"{path}: {argument}: {item!r} goes backwards")
        found += range(ends[0], ends[1] + 1)
    return sorted(set(found))


def _refuse_doubtful(path, table):
    pa = _pyarrow()
    names = table.column_names
    rows = np.array([table[name].to_numpy().astype(np.float64) for name in names]).T.tolist()
    whole = [not pa.types.is_floating(field.type) for field in table.schema]
    places, reason = _core.doubtful_columns(names, whole, rows)
    if not places:
        return
    doubtful = [names[c] for c in places]
    one = len(doubtful) == 1
    raise ValueError(
        f"{path}: column{'' if one else 's'} {', '.join(map(repr, doubtful))} may be scores or the rows' names{reason}: "
        f"labels={doubtful[0]!r} takes {'it' if one else 'the first'} as names, exclude={doubtful!r} leaves "
        f"{'it' if one else 'them'} out, columns= chooses the scores"
    )


def _list_column(path, name, column):
    """The rows of a column of lists of one length; missing lists and numbers are NaN."""
    import pyarrow.compute as pc

    lists = column.combine_chunks()
    if isinstance(lists, _pyarrow().FixedSizeListArray) and not lists.null_count and not lists.flatten().null_count:
        return _convert.from_arrow(lists)
    some = lists.filter(lists.is_valid())
    lengths = set(np.asarray(pc.list_value_length(some)).tolist())
    if len(lengths) > 1:
        raise ValueError(f"{path}: the lists of {name!r} differ in length: {min(lengths)} to {max(lengths)}")
    width = lengths.pop() if lengths else 0
    numbers = _as_floats(some.flatten().to_numpy(zero_copy_only=False)).reshape(len(some), width)
    rows = np.full((len(lists), width), np.nan, numbers.dtype)
    rows[np.asarray(lists.is_valid())] = numbers
    return rows


def _write_arrow(path, form, values, columns, labels, key):
    pa = _pyarrow()
    if values.shape[1] == 0:
        raise ValueError(f"write: array must have at least one column in a .{form}, got none")
    arrays = {} if labels is None else {"label": pa.array(labels)}
    if columns:
        arrays |= {name: pa.array(np.ascontiguousarray(values[:, c])) for c, name in enumerate(columns)}
    else:
        flat = pa.array(np.ascontiguousarray(values).reshape(-1))
        arrays[key or "values"] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    table = pa.table(arrays)
    beside = f"{path}.{os.getpid()}.part"
    try:
        if form == "parquet":
            import pyarrow.parquet  # type: ignore[import-untyped]

            pyarrow.parquet.write_table(table, beside)
        else:
            import pyarrow.feather  # type: ignore[import-untyped]

            pyarrow.feather.write_feather(table, beside, compression="uncompressed")
        os.replace(beside, path)
    except BaseException:
        if os.path.exists(beside):
            os.remove(beside)
        raise
