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
def fit_temperature(x, labels, *, sample_weight=None, ignore_index=None):
    """
    The temperature T for which the labels have the smallest mean negative log-likelihood under softmax(x/T).

        T = argmin_T mean_r -log softmax(x_r / T)_{y_r}, 1e-3 <= T <= 1e3

    x: Scores (logits), of shape (..., n): n classes along the last axis. A -inf score is an absent class.
    Returns (float): T, with a relative error of about 1e-14, larger if the loss is flat. 1.0 if no row has two different finite
        scores.
    Raises: There is no row, labels has another shape, a label is not a class or is one with score -inf (the loss would be
        infinite at every T), or a score is NaN or +inf. The message names the row, counted as in x.reshape(-1, n).
    TypeError: x is not an array of numbers, or labels not of integers.
    Warns (TemperatureClampedWarning): The loss would fall further beyond an end of [1e-3, 1e3]; this end is returned.
    Notes: The loss is convex in 1/T, so there is one minimum. Newton's method inside a bracket finds it for any scale of the
        scores, without a learning rate. Sums are in float64 and do not depend on the number of threads.
    Source: Guo, Pleiss, Sun, Weinberger, ICML 2017.
    >>> T = isentropic.fit_temperature([[1, 0], [1, 0], [1, 0], [1, 0]], [0, 0, 0, 1])
    >>> round(1 / T, 12) == round(math.log(3), 12)  # p = 3/4, as the labels say
    True
    """
    name = "fit_temperature"
    if _device.holds(x):
        temperature, clamped = _fit_on_device(name, "x", x, labels, sample_weight, ignore_index)
    else:
        temperature, clamped = _core.fit_temperature(*labelled(name, "x", x, labels, sample_weight, ignore_index)[:3])
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
def fit_target_entropy(x, labels, *, sample_weight=None, ignore_index=None):
    """
    The entropy H for which labels have the smallest mean negative log-likelihood under entropy_normalize(x, entropy=H).

        H = argmin_H mean_r -log entropy_normalize(x_r, entropy=H)_{y_r}, 0 <= H <= log n

    x: Scores, of shape (..., n): n classes along the last axis. A -inf score is an absent class.
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
        return _fit_on_device(name, "x", x, labels, sample_weight, ignore_index)[0]
    return _core.fit_target_entropy(*labelled(name, "x", x, labels, sample_weight, ignore_index)[:3])


@documented(module="isentropic.calibration")
def match_entropy(x_reference, *, sample_weight=None):
    """
    The mean entropy of softmax(x_reference), as a target for other scores.

        H = mean_r -sum_i p_ri log p_ri, p_r = softmax(x_r)

    x_reference: Scores, of shape (..., n): rows along the last axis.
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
        return _fit_on_device(name, "x_reference", x_reference, None, sample_weight, None)[0]
    values, shape, _ = _matrix(name, "x_reference", x_reference)
    return _core.match_entropy(values, _weights(name, "x_reference", sample_weight, shape))


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


def _classes(name, argument, labels, shape):
    """The class of each row."""
    classes = _array(name, "labels", labels)
    if classes.dtype.kind not in "iub" and classes.size > 0:
        raise TypeError(f"{name}: labels must be of an integer type, got dtype {classes.dtype}")
    _check_shape(name, argument, "labels", classes.shape, shape)
    return np.require(classes, np.int64, ["C", "A"]).reshape(-1)


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


def of_two_classes(name, p, labels):
    """(p, labels) as `labelled` takes them: one number in each row is the probability of the second of two classes."""
    given = _array(name, "p", p)
    classes = _array(name, "labels", labels) if given.ndim == 1 else given
    if given.ndim != 1 or classes.shape != given.shape:
        return p, labels
    if classes.dtype.kind not in "iub":
        names, classes = np.unique(classes, return_inverse=True)
        if len(names) != 2:
            raise ValueError(f"{name}: labels must be of two classes if p has one probability in each row, got {len(names)}")
    values = _convert.to_wide_floats(name, "p", given)[0].astype(np.float64)
    return np.stack([1 - values, values], -1), classes


def labelled(name, argument, x, labels, sample_weight, ignore_index):
    """(x as a matrix like _matrix, the class of each row, their weights or none, the tolerance of sums)."""
    matrix, shape, tolerance = _matrix(name, argument, x)
    classes = _classes(name, argument, labels, shape)
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
