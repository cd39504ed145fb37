"""Labels of two variables: how often each pair occurs, and what one tells about the other."""

import math
from typing import Any, NamedTuple

import numpy as np

import isentropic._generated as _generated
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _convert
from isentropic._numpy._estimators_of_counts import (
    check_base,
    conditional_mutual_information,
    entropy_of_counts,
    mutual_information_of_counts,
)

AVERAGES = ("arithmetic", "geometric", "min", "max")
ESTIMATORS = ("plugin", "miller_madow", "jackknife", "grassberger", "chao_shen", "james_stein", "nsb")
_ROWS = 1024
# Tables of more cells are not made.
MOST_CELLS = 2**24


@documented
class ContingencyTable(NamedTuple):
    """How often each pair of labels occurs: a[i] with b[j] counts[i, j] times."""

    counts: np.ndarray[Any, Any]
    a_labels: np.ndarray[Any, Any]
    b_labels: np.ndarray[Any, Any]


class _Coded(NamedTuple):
    codes: np.ndarray  # of each entry
    labels: np.ndarray


def _refuse_missing(function, argument, missing):
    if missing.any():
        raise ValueError(
            f"{function}: {argument} has a missing label at entry {int(np.argmax(missing))}; drop such rows, or name them"
        )


def _of_categories(function, argument, codes, categories):
    codes = np.asarray(codes)
    _refuse_missing(function, argument, codes < 0)
    return _Coded(codes.astype(np.intp), np.asarray(categories))


def _of_arrow(function, argument, x):
    """An array of Arrow: of categories, or as one of NumPy."""
    if hasattr(x, "combine_chunks"):
        x = x.combine_chunks()
        x = x.chunk(0) if hasattr(x, "chunk") and x.num_chunks == 1 else x
    if x.null_count:
        _refuse_missing(function, argument, np.asarray(x.is_null()))
    if hasattr(x, "indices"):
        return _of_categories(function, argument, x.indices, x.dictionary.to_numpy(zero_copy_only=False))
    return x.to_numpy(zero_copy_only=False)


def _missing(array):
    """Which entries are None, NaN, NaT or pandas' NA."""
    if array.dtype.kind in "O":
        return np.fromiter(map(_convert.is_missing, array), bool, len(array))
    if array.dtype.kind in "fc":
        return np.isnan(array)
    return np.isnat(array) if array.dtype.kind in "mM" else np.zeros(0, bool)


def _as_array(labels):
    """Labels as an array: of objects if they are a list of which NumPy would make others. It writes numbers, None and bytes
    beside strings as strings; it drops NULs at the end of a string, and the last digits of large integers of no common type."""
    array = np.asarray(labels)
    if not isinstance(labels, (list, tuple)) or not array.size:
        return array
    if array.dtype.kind in "US":
        one_kind, objects = (str, bytes)[array.dtype.kind in "S"], np.array(labels, object)
        kept = all(isinstance(one, one_kind) and one[-1:] not in ("\0", b"\0") for one in objects.flat)
        return array if kept else objects
    if array.dtype.kind in "f" and (abs(array) >= 2**53).any():
        objects = np.array(labels, object)
        return objects if any(isinstance(one, (int, np.integer)) for one in objects.flat) else array
    return array


def _coded(function, argument, labels):
    """Labels as numbers from 0 on, in their sorted order, categories in their own."""
    module = type(labels).__module__.partition(".")[0]
    categories = getattr(labels, "cat", labels) if module == "pandas" else None
    if categories is not None and hasattr(categories, "categories"):
        return _of_categories(function, argument, categories.codes, categories.categories)
    if module == "pyarrow":
        labels = _of_arrow(function, argument, labels)
        if isinstance(labels, _Coded):
            return labels
    if isinstance(labels, np.ma.MaskedArray):
        _refuse_missing(function, argument, np.ma.getmaskarray(labels))
    _checks.no_autograd(function, argument, labels)
    array = _as_array(labels)
    if array.ndim != 1:
        raise ValueError(f"{function}: {argument} must have one axis, a label for each row, got shape {array.shape}")
    if array.dtype.kind in "f" and len(array):
        with np.errstate(invalid="ignore"):
            whole = array.astype(np.int64)
        found = _of_integers(whole) if (whole == array).all() else None
        if found:
            return found._replace(labels=found.labels.astype(array.dtype))
    if array.dtype.kind in "biu" and len(array):
        # A difference of labels may overflow a narrower type, and a label of uint64 may overflow int64.
        found = _of_integers(array if array.dtype == np.uint64 else array.astype(np.int64))
        if found:
            return found._replace(labels=found.labels.astype(array.dtype))
    _refuse_missing(function, argument, _missing(array))
    return _sorted(function, argument, array)


def _of_integers(array):
    """By counting instead of sorting, if they are not far apart."""
    low, high = int(array.min()), int(array.max())
    if high - low > 4 * len(array) + 1024:
        return None
    codes = (array - array.dtype.type(low)).astype(np.intp)
    seen = np.bincount(codes) > 0
    labels = array.dtype.type(low) + np.flatnonzero(seen).astype(array.dtype)
    return _Coded(codes if seen.all() else (np.cumsum(seen) - 1)[codes], labels)


def _sorted(function, argument, array):
    try:
        labels, codes = np.unique(array, return_inverse=True)
    except TypeError:
        kinds = sorted({type(one).__name__ for one in array})
        raise TypeError(f"{function}: {argument} must have labels that can be sorted, got {' and '.join(kinds)}") from None
    return _Coded(codes.reshape(array.shape), labels)


def _refuse_other_rows(function, named):
    """Refuses Series whose indexes name other rows, or the same in another order; pandas' default numbers are no names."""
    series = [(one, x.index) for one, x in named.items() if type(x).__module__.startswith("pandas") and hasattr(x, "axes")]
    series = [(one, index) for one, index in series if type(index).__name__ != "RangeIndex"]
    for one, index in series[1:]:
        first, rows = series[0]
        if len(index) == len(rows) and not index.equals(rows):
            found, other = (names.tolist()[int(np.argmax(index != rows))] for names in (index, rows))
            raise ValueError(
                f"{function}: {one} must have the index of {first}, got {found!r} in place of {other!r}; "
                f"{one}.reindex({first}.index) pairs rows by name, reset_index(drop=True) of both by place"
            )


def _pair(function, named):
    _refuse_other_rows(function, named)
    coded = {argument: _coded(function, argument, labels) for argument, labels in named.items()}
    (first, *_), lengths = coded, [len(one.codes) for one in coded.values()]
    for argument, length in zip(coded, lengths, strict=True):
        if length != lengths[0]:
            raise ValueError(f"{function}: {argument} must have as many labels as {first}, {lengths[0]}, got {length}")
    return coded


def _weights(function, given, rows):
    if given is None:
        return None
    weights = _convert.to_floats(function, "sample_weight", _convert.to_numpy(function, "sample_weight", given))[0]
    weights = weights.astype(np.float64)
    if weights.shape != (rows,):
        raise ValueError(f"{function}: sample_weight must have one number for each of {rows} rows, got shape {weights.shape}")
    wrong = ~((weights >= 0) & (weights < math.inf))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"{function}: sample_weight must be at least 0 and finite, got {weights[at]} at entry {at}")
    return weights


@documented
def contingency_table(a, b, *, sample_weight=None):
    """
    How often each pair of labels occurs: the table for mutual_information and its relatives, with normalize=True.

    a, b: Labels of the same rows: numbers, strings or dates in arrays, lists, Series or Arrow arrays, or categories of pandas
        or Arrow. Of two Series the indexes must be equal, unless one is a RangeIndex.
    sample_weight (array or None): The weight of each row, at least 0. None: every row counts 1.
    Returns (ContingencyTable): (counts, a_labels, b_labels): counts has a row for each of a's labels and a column for each of
        b's, whole numbers unless there are weights. Labels are sorted; categories keep their own order, and those that do not
        occur have zeros.
    Raises: A label is missing (None, NaN, NA; the message names the entry), a and b are not of the same length, indexes
        differ, labels are of kinds that cannot be sorted together, a weight is negative or no number.
    >>> counts, drinks, sizes = isentropic.contingency_table(["tea", "tea", "milk"], [2, 1, 1])
    >>> print(counts.tolist(), drinks.tolist(), sizes.tolist())
    [[1, 0], [1, 1]] ['milk', 'tea'] [1, 2]
    """
    function = "contingency_table"
    one, other = _pair(function, {"a": a, "b": b}).values()
    shape = len(one.labels), len(other.labels)
    weights = _weights(function, sample_weight, len(one.codes))
    flat = one.codes * shape[1] + other.codes
    counts = np.bincount(flat, weights, minlength=math.prod(shape)).reshape(shape)
    return ContingencyTable(counts, one.labels, other.labels)


def _choice(function, argument, value, choices):
    if value not in choices:
        raise ValueError(f"{function}: {argument} must be one of {', '.join(choices)}, got {value!r}")


def _counts_of(coded):
    """The table of codes, or None if it were too large."""
    shape = tuple(len(one.labels) for one in coded)
    if math.prod(shape) > MOST_CELLS:
        return None
    flat = coded[0].codes
    for one in coded[1:]:
        flat = flat * len(one.labels) + one.codes
    return np.bincount(flat, minlength=math.prod(shape)).reshape(shape)


def _entropy(coded, estimator, base):
    """The entropy of the labels taken together: each cell is a class, even if most cells were never seen."""
    flat, cells = np.zeros(len(coded[0].codes), np.int64), 1
    for one in coded:
        flat, cells = flat * len(one.labels) + one.codes, cells * len(one.labels)
        if cells > MOST_CELLS:
            flat = np.unique(flat, return_inverse=True)[1].reshape(flat.shape)
    classes = float(cells) if estimator in ("james_stein", "nsb") else None
    counts = np.bincount(flat)
    return entropy_of_counts(counts, estimator=estimator, classes=classes, base=base)


def _information(function, coded, estimator, base):
    """The information between two variables, or between two given a third."""
    table = _counts_of(coded)
    if table is not None and estimator == "plugin":
        measure = _generated.mutual_information if len(coded) == 2 else conditional_mutual_information
        return measure(table, base=base, normalize=True)
    if table is not None and len(coded) == 2:
        return mutual_information_of_counts(table, estimator=estimator, base=base)
    if estimator == "james_stein":
        raise ValueError(f"{function}: estimator james_stein needs a table of two variables with at most {MOST_CELLS} cells")
    a, b, *given = coded
    parts = [[a, *given], [b, *given], [a, b, *given], given]
    sums = [_entropy(part, estimator, base) if part else 0.0 for part in parts]
    return np.float64(sums[0] + sums[1] - sums[2] - sums[3])


@documented
def mutual_information_of_labels(a, b, *, given=None, normalized=None, estimator="plugin", base=None):
    """
    How much the labels a tell about the labels b of the same rows, and b about a.

    a, b: Labels as contingency_table takes them.
    given (labels or None): Labels that are known: the information that is left, I(A; B | given).
    normalized (str or None): "arithmetic", "geometric", "min" or "max": as a share of this mean of both entropies, in [0, 1],
        by the plugin estimator without given and base.
    estimator (str): "plugin", "miller_madow", "jackknife", "grassberger", "chao_shen", "james_stein" or "nsb": see
        entropy_of_counts. plugin takes frequencies as probabilities; for independent labels it gives about (classes of a - 1)
        (classes of b - 1) / (2 rows) nats.
    base (float or None): Base of the logarithm: 2 gives bits; None, nats.
    Returns (float): The information; NaN without rows. With plugin never below 0.
    Raises: A label is missing, lengths or indexes differ, or parameters exclude each other.
    >>> a = ["x", "x", "y", "y", "x", "y"]
    >>> round(float(isentropic.mutual_information_of_labels(a, [0, 0, 1, 1, 0, 0], base=2)), 4)
    0.4591
    >>> float(isentropic.mutual_information_of_labels(a, a, normalized="max"))
    1.0
    """
    function = "mutual_information_of_labels"
    _choice(function, "estimator", estimator, ESTIMATORS)
    named = {"a": a, "b": b} | ({} if given is None else {"given": given})
    if normalized is not None:
        _choice(function, "normalized", normalized, AVERAGES)
        if given is not None or estimator != "plugin" or base is not None:
            wrong = "given" if given is not None else "base" if base is not None else "estimator"
            raise ValueError(f"{function}: normalized needs the plugin estimator, without given and base, got {wrong}")
    check_base(function, base)
    coded = list(_pair(function, named).values())
    if not len(coded[0].codes):
        return np.float64(math.nan)
    if normalized is None:
        return _information(function, coded, estimator, base)
    table = _counts_of(coded)
    if table is None:
        raise ValueError(f"{function}: normalized needs a table of at most {MOST_CELLS} cells")
    return _generated.normalized_mutual_information(table, average=normalized, normalize=True)


@documented
def mutual_information_scores(X, y, *, estimator="plugin", base=None):
    """
    How much each column of X tells about y: a score function for scikit-learn's SelectKBest.

    X: Columns of labels, a 2-D array or a frame; put numbers that vary continuously into bins first.
    y: The label of each row.
    estimator (str): As in mutual_information_of_labels.
    base (float or None): Base of the logarithm: 2 gives bits; None, nats.
    Returns (array of float64): One number for each column.
    Raises: A label is missing (the message names column and entry), y does not have one label for each row of X.
    >>> X = [[0, 1], [0, 0], [1, 1], [1, 0]]
    >>> isentropic.mutual_information_scores(X, ["a", "a", "b", "b"], base=2)
    array([1., 0.])
    """
    function = "mutual_information_scores"
    _choice(function, "estimator", estimator, ESTIMATORS)
    check_base(function, base)
    names = _convert.column_names(X)
    if names is not None:
        columns = {f"X[{name!r}]": X[name] for name in names}
    else:
        array = _as_array(X)
        if array.ndim != 2:
            raise ValueError(f"{function}: X must have two axes, got shape {array.shape}")
        if isinstance(X, np.ma.MaskedArray):
            for i, masked in enumerate(np.ma.getmaskarray(X).T):
                _refuse_missing(function, f"X[:, {i}]", masked)
        turned = np.empty(array.shape[::-1], array.dtype)
        for row in range(0, len(array), _ROWS):  # each part stays in the cache
            turned[:, row : row + _ROWS] = array[row : row + _ROWS].T
        columns = {f"X[:, {i}]": column for i, column in enumerate(turned)}
    target = _coded(function, "y", y)
    scores = []
    for name, column in columns.items():
        coded = _coded(function, name, column)
        if len(coded.codes) != len(target.codes):
            raise ValueError(
                f"{function}: y must have as many labels as X has rows, {len(coded.codes)}, got {len(target.codes)}"
            )
        scores.append(_information(function, [coded, target], estimator, base) if len(target.codes) else math.nan)
    return np.array(scores, np.float64)
