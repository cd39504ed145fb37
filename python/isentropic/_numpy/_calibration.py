"""Choosing the temperature or the entropy: the functions of isentropic.calibration."""

import math
import warnings

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _convert, _device


@documented(module="isentropic.calibration")
class TemperatureClampedWarning(UserWarning):
    """fit_temperature returned an end of [1e-3, 1e3], and the loss would fall further beyond it.

    At 1e-3 (nearly) every label has the largest score of its row, so the data do not limit the certainty. At 1e3 the scores do
    not favour the labels.
    """


@documented(module="isentropic.calibration")
def fit_temperature(x, labels, *, input="scores", classes=None, sample_weight=None, ignore_index=None):
    """
    The temperature T for which the labels have the smallest mean negative log-likelihood under softmax(x/T).

        T = argmin_T mean_r -log softmax(x_r / T)_{y_r}, 1e-3 <= T <= 1e3

    x: Scores (logits), of shape (..., n): n classes along the last axis. A -inf score is an absent class. For two classes also
        of shape (rows,), like labels: scores s, which stand for (0, s), or the probabilities of the second class.
    labels (array of integers or of names): The class of each row, of shape x.shape[:-1]: numbers in [0, n), or names.
    input ("scores", "probs" or "log_probs"): What x holds. Of probabilities the scores are log p; 0 is an absent class.
    classes (sequence or None): The name of each column, if labels are names. None: the columns of x if it is a frame that has
        all labels as columns, otherwise the categories of labels, or the names in sorted order.
    Returns (float): T, with a relative error of about 1e-14, larger if the loss is flat. 1.0 if no row has two different finite
        scores.
    Raises: There is no row, labels has another shape, a label is not a class or is one with score -inf (the loss would be
        infinite at every T), or a score is NaN or +inf. The message names the row, counted as in x.reshape(-1, n).
    TypeError: x is not an array of numbers.
    Warns (TemperatureClampedWarning): The loss would fall further beyond an end of [1e-3, 1e3]; this end is returned.
    Warns (UserWarning): Each row of scores sums to 1, as probabilities do.
    Notes: The loss is convex in 1/T, so there is one minimum. Newton's method inside a bracket finds it for any scale of the
        scores, without a learning rate. Sums are in float64 and do not depend on the number of threads.
    Source: Guo, Pleiss, Sun, Weinberger, ICML 2017.
    >>> T = isentropic.fit_temperature([[1, 0], [1, 0], [1, 0], [1, 0]], [0, 0, 0, 1])
    >>> round(1 / T, 12) == round(math.log(3), 12)  # p = 3/4, as the labels say
    True
    """
    name = "fit_temperature"
    if _device.holds(x):
        _scores_on_device(name, input, classes)
        temperature, clamped = _fit_on_device(name, "x", x, labels, sample_weight, ignore_index)
    else:
        given = scored(name, x, labels, input, classes, sample_weight, ignore_index)
        temperature, clamped = _core.fit_temperature(*given)
    if clamped:
        why = (
            "(nearly) every label has the largest score of its row"
            if temperature < 1
            else "the scores do not favour the labels"
        )
        warnings.warn(
            f"{name}: T = {temperature:g} is an end of the allowed range, and the loss still falls beyond it: {why}",
            TemperatureClampedWarning,
            stacklevel=2,
        )
    return temperature


@documented(module="isentropic.calibration")
def fit_target_entropy(x, labels, *, input="scores", classes=None, sample_weight=None, ignore_index=None):
    """
    The entropy H for which labels have the smallest mean negative log-likelihood under entropy_normalize(x, entropy=H).

        H = argmin_H mean_r -log entropy_normalize(x_r, entropy=H)_{y_r}, 0 <= H <= log n

    x: Scores, of shape (..., n): n classes along the last axis. A -inf score is an absent class.
    labels, input, classes: As for fit_temperature.
    Returns (float): H in nats, with an error of 1e-12 log n, larger if the loss is flat; of equally good values the largest.
    Raises: As fit_temperature.
    Notes: The loss is not convex in H. It is evaluated at 65 entropies, and at those where rows may become uniform (the
        logarithms of 1 to 16, of the number of scores and of the number of largest scores). In every interval in which the
        slope changes from negative to positive, bracketed root finding (Chandrupatla 1997) finds its root, and the best is
        returned. A minimum may be missed if the slope changes its sign twice between two of the 65. With more than 8192 rows,
        4096 of them select at most four intervals, which are searched with all rows.
    >>> H = isentropic.fit_target_entropy([[1, 0], [20, 0], [300, 0], [4000, 0]], [0, 0, 0, 1])
    >>> round(H, 12) == round(math.log(4) - 0.75 * math.log(3), 12)  # p = 3/4 in every row
    True
    """
    name = "fit_target_entropy"
    if _device.holds(x):
        _scores_on_device(name, input, classes)
        return _fit_on_device(name, "x", x, labels, sample_weight, ignore_index)[0]
    return _core.fit_target_entropy(*scored(name, x, labels, input, classes, sample_weight, ignore_index))


@documented(module="isentropic.calibration")
def match_entropy(x_reference, *, input="scores", sample_weight=None):
    """
    The mean entropy of softmax(x_reference), as a target for other scores.

        H = mean_r -sum_i p_ri log p_ri, p_r = softmax(x_r)

    x_reference: Scores, of shape (..., n): rows along the last axis.
    input ("scores", "probs" or "log_probs"): What x_reference holds.
    sample_weight (array of shape x_reference.shape[:-1]): The weight of each row, at least 0; None: all rows have the same. A
        row of weight 0 is not read.
    Returns (float): H in nats.
    Raises: There is no row, or a row has a NaN or no score above -inf. The message names the row.
    TypeError: x_reference is not an array of numbers.
    >>> H = isentropic.match_entropy([[0.0, 0.0, 0.0], [1000.0, 0.0, 0.0]])
    >>> round(H, 12) == round(math.log(3) / 2, 12)
    True
    """
    name = "match_entropy"
    if _device.holds(x_reference):
        _scores_on_device(name, input, None)
        return _fit_on_device(name, "x_reference", x_reference, None, sample_weight, None)[0]
    values, shape, _ = _matrix(name, "x_reference", _unchecked_scores(name, "x_reference", x_reference, input))
    weights = _weights(name, "x_reference", sample_weight, shape)
    if input == "probs":
        _check_probs(name, "x_reference", x_reference, weights)
    return _core.match_entropy(values, weights)


@documented(module="isentropic.calibration")
def entropy_invariant_scale(n, d, *, train_length=512, kappa=None):
    """
    n (number or array): The number of keys that a query sees, at least 1.
    d (float, above 0): The size of q and k.
    train_length: The n at which the scale is the usual 1/sqrt(d). It is not used if kappa is given.
    kappa: The factor of log n / d.
    Returns (float or array): Of the kind, shape and dtype of n; float64 if n is a list or has integers.
    Raises: n, d or a parameter is out of its range.
    TypeError: An argument is of the wrong type.
    >>> isentropic.entropy_invariant_scale(512, 64)
    0.125
    >>> scale = isentropic.entropy_invariant_scale([512, 512 * 512], 64)  # 0.125, 0.25
    """
    name = "entropy_invariant_scale"
    values, dtype = _convert.to_wide_floats(name, "n", _convert.to_numpy(name, "n", n))
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    scale = np.empty_like(flat)
    _core.entropy_invariant_scale(flat, _checks.number(name, "d", d), scale, (train_length, kappa))
    if values.ndim == 0 and not hasattr(n, "dtype"):
        return float(scale[0])
    return _convert.number_or_array(_convert.same_kind(n, _convert.cast(scale.reshape(values.shape), dtype)))


def _array(name, argument, x):
    """Any array as a NumPy array, also torch's bfloat16."""
    _checks.no_gradient(name, argument, x)
    return _convert.to_numpy(name, argument, x, bfloat16=True)


def _matrix(name, argument, x):
    """(x as a contiguous matrix of float32 or float64, the shape of its rows, the tolerance for sums of p in this type)."""
    array, dtype = _convert.to_wide_floats(name, argument, _array(name, argument, x))
    if array.ndim == 0:
        raise ValueError(f"{name}: {argument} must have at least one axis, got a single number")
    shape = array.shape[:-1]
    tolerance = _core.sum_tolerance[2 if _convert.is_bfloat16(x) else dtype.itemsize]
    return np.require(array, requirements=["C", "A"]).reshape(math.prod(shape), array.shape[-1]), shape, tolerance


def _check_shape(name, argument, own, given, shape):
    if tuple(given) != shape:
        raise ValueError(f"{name}: {own} must have the shape of {argument} without its last axis, {shape}, got {tuple(given)}")


def _weights(name, argument, sample_weight, shape):
    """The weights, one number for each row in float64, or none."""
    if sample_weight is None:
        return np.empty(0)
    weights = _convert.to_floats(name, "sample_weight", _array(name, "sample_weight", sample_weight))[0]
    _check_shape(name, argument, "sample_weight", weights.shape, shape)
    return np.require(weights, np.float64, ["C", "A"]).reshape(-1)


def _classes(name, argument, labels, shape, names=None, count=None, columns=None, one_column=False):
    """The class of each row. `names`: of `count` classes, in their order, if labels are names; otherwise `columns` that have
    them all, the categories of labels, or their sorted order."""
    categories = getattr(getattr(labels, "cat", labels), "categories", None)
    # Arrow's and pandas' names, which are not numbers.
    of_text = str(getattr(labels, "type", "")).startswith(("string", "large_string", "dictionary"))
    given = np.asarray(labels) if of_text or type(labels).__module__.startswith("pandas") else labels
    classes = _array(name, "labels", given)
    if (classes.dtype.kind in "iub" and categories is None and names is None) or not classes.size:
        _check_shape(name, argument, "labels", classes.shape, shape)
        if classes.dtype == np.uint64:  # beyond int64 no class either
            classes = np.minimum(classes, np.uint64(2**63 - 1))
        return np.require(classes, np.int64, ["C", "A"]).reshape(-1)
    if names is None and classes.dtype.kind not in "OUST" and categories is None:
        if not one_column or classes.dtype.kind not in "f" or not np.isin(classes, (0, 1)).all():
            raise TypeError(f"{name}: labels must be of an integer type, got dtype {classes.dtype}")
        return classes.astype(np.int64).reshape(-1)
    _check_shape(name, argument, "labels", classes.shape, shape)
    flat = classes.reshape(-1)
    for row, one in enumerate(flat):
        if _convert.is_missing(one):
            raise ValueError(f"{name}: labels must have no missing names, got {one} in row {row}")
    found = sorted(set(flat.tolist()), key=lambda one: (type(one).__name__, one))
    if names is None:
        if columns is not None and set(found) <= set(columns):  # a table's columns say more than the categories of one column
            names = list(columns)
        else:
            names = found if categories is None else list(categories)
    names = list(names.tolist() if hasattr(names, "tolist") else names)
    if len(set(names)) != len(names) or len(names) != count:
        raise ValueError(f"{name}: there must be a name for each of {count} classes, got {names[:5]}; classes= gives them")
    places = {one: place for place, one in enumerate(names)}
    unknown = next((row for row, one in enumerate(flat.tolist()) if one not in places), None)
    if unknown is not None:
        raise ValueError(f"{name}: labels must be one of the classes {names[:5]}, got {flat[unknown]!r} in row {unknown}")
    return np.fromiter((places[one] for one in flat.tolist()), np.int64, flat.size)


INPUTS = ("scores", "probs", "log_probs")


def _scores_on_device(name, input, classes):
    if input != "scores" or classes is not None:
        what = "classes must not be given" if input == "scores" else "input must be scores"
        raise ValueError(f"{name}: {what} for arrays in a GPU's memory")


def as_scores(name, argument, x, input):
    """x as scores: the logarithms of probabilities, of which each row is checked. It warns if scores are probabilities."""
    scores = _unchecked_scores(name, argument, x, input)
    if input == "probs":
        _check_probs(name, argument, x)
    return scores


def _unchecked_scores(name, argument, x, input):
    if input not in INPUTS:
        raise ValueError(f"{name}: input must be one of {', '.join(INPUTS)}, got {input!r}")
    if input == "log_probs":
        return x
    array, dtype = _convert.to_wide_floats(name, argument, _array(name, argument, x))
    if array.ndim == 0:
        return x
    if input == "scores":
        rows = _as_rows(array)
        may_be = array.ndim > 1 and rows.shape[1] > 1 and ((rows >= 0) & (rows <= 1)).all()
        tolerance = _core.sum_tolerance[2 if _convert.is_bfloat16(x) else dtype.itemsize]
        if may_be and (rows % 1 != 0).any() and (abs(rows.sum(-1, dtype=np.float64) - 1) <= tolerance).all():
            warnings.warn(
                f'{name}: each row of {argument} sums to 1; pass input="probs" if they are probabilities', stacklevel=4
            )
        return x
    with np.errstate(divide="ignore", invalid="ignore"):
        if array.ndim == 1:
            return np.stack([np.log1p(-array), np.log(array)], -1)
        return np.log(array)


def _as_rows(array):
    return array.reshape(math.prod(array.shape[:-1]), array.shape[-1]) if array.ndim > 1 else array.reshape(-1, 1)


def _check_probs(name, argument, x, weights=None):
    """Refuses rows that are no distributions, of those that weigh something."""
    array, dtype = _convert.to_wide_floats(name, argument, _array(name, argument, x))
    if array.ndim == 0:
        return
    rows = _as_rows(array)
    read = np.ones(len(rows), bool) if weights is None or not weights.size else weights != 0
    wrong = np.argwhere(~((rows >= 0) & (rows <= (1 if array.ndim == 1 else np.inf))) & read[:, None])
    if len(wrong):
        row, entry = map(int, wrong[0])
        what = "in [0, 1]" if array.ndim == 1 else "at least 0 and finite"
        raise ValueError(f"{name}: {argument} must be {what}, got {rows[row, entry]} at entry {entry} in row {row}")
    tolerance = _core.sum_tolerance[2 if _convert.is_bfloat16(x) else dtype.itemsize]
    sums = rows.sum(-1, dtype=np.float64)
    if array.ndim > 1 and (bad := read & ~(abs(sums - 1) <= tolerance)).any():
        row = int(np.argmax(bad))
        raise ValueError(f"{name}: {argument} must sum to 1 within {tolerance}, got {sums[row]} in row {row}")


def scored(name, x, labels, input, classes, sample_weight, ignore_index):
    """(scores as a matrix, the class of each row, their weights or none) for a fit. One axis is of two classes."""
    scores = _unchecked_scores(name, "x", x, input)
    if np.ndim(scores) == 1 and np.ndim(labels) == 1 and len(labels) == len(scores) and input == "scores":
        values = _convert.to_wide_floats(name, "x", _array(name, "x", scores))[0]
        scores = np.stack([np.zeros_like(values), values], -1)
    columns = _convert.column_names(x)
    given = labelled(name, "x", scores, labels, sample_weight, ignore_index, classes, columns)[:3]
    if input == "probs":
        _check_probs(name, "x", x, given[2])
    return given


def _fit_on_device(name, argument, x, labels, sample_weight, ignore_index):
    """(what the fit finds, whether it is an end of its range), for x in a GPU's memory. labels and weights may be there or on
    this machine."""
    _checks.no_gradient(name, argument, x)
    shape = tuple(x.shape)[:-1]
    given = [("labels", labels, _classes, "int64", ("int", "uint", "bool"))] if argument == "x" else []
    if sample_weight is not None:
        given.append(("sample_weight", sample_weight, _weights, "float64", ("int", "uint", "bool", "float", "bfloat")))
    of_rows = []
    for own, numbers, on_host, dtype, kinds in given:
        if _device.holds(numbers):
            _checks.no_gradient(name, own, numbers)
            if 0 not in tuple(numbers.shape) and not str(numbers.dtype).rpartition(".")[2].startswith(kinds):
                wanted = "of an integer type" if own == "labels" else "of numbers"
                raise TypeError(f"{name}: {own} must be {wanted}, got dtype {numbers.dtype}")
            _check_shape(name, argument, own, numbers.shape, shape)
        else:
            numbers = on_host(name, argument, numbers, shape).reshape(shape)
        of_rows.append((own, numbers, dtype))
    parameters = {}
    if ignore_index is not None:
        ignored = _checks.integer(name, "ignore_index", ignore_index)
        if -(2**63) <= ignored < 2**63:  # no label is another number
            parameters["ignore_index"] = ignored
    return _device.fit_of(name, argument, x, of_rows, parameters)


def of_probability(name, p, labels, classes=None):
    """(p, labels, classes, whether p is one column): one number in each row is the probability of the second of two classes."""
    given = _array(name, "p", p)
    if given.ndim != 1 or np.shape(labels) != given.shape:
        return p, labels, classes, False
    values, _ = _convert.to_wide_floats(name, "p", given)
    return values, _classes(name, "p", labels, given.shape, classes, 2, one_column=True), None, True


def labelled(name, argument, x, labels, sample_weight, ignore_index, names=None, columns=None, one_column=False):
    """(x as a matrix like _matrix, the class of each row, their weights or none, the tolerance of sums). `one_column`: of x
    with one axis."""
    matrix, shape, tolerance = _matrix(name, argument, x[:, None] if one_column else x)
    classes = _classes(name, argument, labels, shape, names, matrix.shape[-1], columns)
    weights = _weights(name, argument, sample_weight, shape)
    if ignore_index is not None:
        ignored = classes == _checks.integer(name, "ignore_index", ignore_index)
        if classes.size > 0 and ignored.all():
            raise ValueError(
                f"{name}: some label must be other than ignore_index, got {ignore_index} in all {classes.size} rows"
            )
        if weights.size > 0 and not weights[~ignored].any():
            raise ValueError(
                f"{name}: sample_weight must be above 0 in some row that ignore_index keeps, got 0 in all {(~ignored).sum()}"
            )
        weights = np.where(ignored, 0.0, weights if weights.size else 1.0)
    return matrix, classes, weights, tolerance
