"""Choosing the temperature or the entropy: the functions of entropic.calibration."""

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

from entropic import _checks, _convert, _core, _device


class TemperatureClampedWarning(UserWarning):
    """fit_temperature returned an end of [1e-3, 1e3], and the loss would fall further beyond it.

    At 1e-3 (nearly) every label has the largest score of its row, so the data do not limit the certainty. At 1e3 the scores do
    not favour the labels.
    """


def fit_temperature(x, labels, *, sample_weight=None, ignore_index=None):
    """The temperature T for which the labels have the smallest mean negative log-likelihood under softmax(x/T).

        T = argmin_T mean_r -log softmax(x_r / T)_{y_r}, 1e-3 <= T <= 1e3

    Parameters
    ----------
    x : NumPy array, anything with DLPack (such as a torch CPU tensor of any type) or nested lists
        Scores (logits), of shape (..., n): n classes along the last axis. A -inf score is an absent class.
    labels : array of integers
        The class of each row, in [0, n), of shape x.shape[:-1].
    sample_weight : array of shape x.shape[:-1], default None
        The weight of each row, at least 0; None: all rows have the same. A row of weight 0 is not read.
    ignore_index : int, default None
        Rows with this label are left out, as with -100 in torch.

    Returns
    -------
    float
        T, with a relative error of about 1e-14, larger if the loss is flat. 1.0 if no row has two different finite scores.

    Raises
    ------
    ValueError
        There is no row, labels has another shape, a label is not a class or is one with score -inf (the loss would be infinite
        at every T), or a score is NaN or +inf. The message names the row, counted as in x.reshape(-1, n).
    TypeError
        x is not an array of numbers, or labels not of integers.

    Warns
    -----
    TemperatureClampedWarning
        The loss would fall further beyond an end of [1e-3, 1e3]; this end is returned.

    Notes
    -----
    The loss is convex in 1/T, so there is one minimum. Newton's method inside a bracket finds it for any scale of the scores,
    without a learning rate. Sums are in float64 and do not depend on the number of threads.
    Source: Guo, Pleiss, Sun, Weinberger, ICML 2017.

    Examples
    --------
    >>> T = entropic.fit_temperature([[1, 0], [1, 0], [1, 0], [1, 0]], [0, 0, 0, 1])
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


def fit_target_entropy(x, labels, *, sample_weight=None, ignore_index=None):
    """The entropy H for which labels have the smallest mean negative log-likelihood under entropy_normalize(x, entropy=H).

        H = argmin_H mean_r -log entropy_normalize(x_r, entropy=H)_{y_r}, 0 <= H <= log n

    Parameters
    ----------
    x : NumPy array, anything with DLPack (such as a torch CPU tensor of any type) or nested lists
        Scores, of shape (..., n): n classes along the last axis. A -inf score is an absent class.
    labels : array of integers
        The class of each row, in [0, n), of shape x.shape[:-1].
    sample_weight : array of shape x.shape[:-1], default None
        The weight of each row, at least 0; None: all rows have the same. A row of weight 0 is not read.
    ignore_index : int, default None
        Rows with this label are left out, as with -100 in torch.

    Returns
    -------
    float
        H in nats, with an error of 1e-12 log n, larger if the loss is flat; of equally good values the largest.

    Raises
    ------
    ValueError, TypeError
        As fit_temperature.

    Notes
    -----
    The loss is not convex in H. It is evaluated at 65 entropies, and at those where rows may become uniform (the logarithms of
    1 to 16, of the number of scores and of the number of largest scores). In every interval in which the slope changes from
    negative to positive, bracketed root finding (Chandrupatla 1997) finds its root, and the best is returned. A minimum may be
    missed if the slope changes its sign twice between two of the 65. With more than 8192 rows, 4096 of them select at most
    four intervals, which are searched with all rows.

    Examples
    --------
    >>> H = entropic.fit_target_entropy([[1, 0], [20, 0], [300, 0], [4000, 0]], [0, 0, 0, 1])
    >>> round(H, 12) == round(math.log(4) - 0.75 * math.log(3), 12)  # p = 3/4 in every row
    True
    """
    name = "fit_target_entropy"
    if _device.holds(x):
        return _fit_on_device(name, "x", x, labels, sample_weight, ignore_index)[0]
    return _core.fit_target_entropy(*labelled(name, "x", x, labels, sample_weight, ignore_index)[:3])


def match_entropy(x_reference, *, sample_weight=None):
    """The mean entropy of softmax(x_reference), as a target for other scores.

        H = mean_r -sum_i p_ri log p_ri, p_r = softmax(x_r)

    Parameters
    ----------
    x_reference : NumPy array, anything with DLPack (such as a torch CPU tensor of any type) or nested lists
        Scores, of shape (..., n): rows along the last axis.
    sample_weight : array of shape x_reference.shape[:-1], default None
        The weight of each row, at least 0; None: all rows have the same. A row of weight 0 is not read.

    Returns
    -------
    float
        H in nats.

    Raises
    ------
    ValueError
        There is no row, or a row has a NaN or no score above -inf. The message names the row.
    TypeError
        x_reference is not an array of numbers.

    Examples
    --------
    >>> H = entropic.match_entropy([[0.0, 0.0, 0.0], [1000.0, 0.0, 0.0]])
    >>> round(H, 12) == round(math.log(3) / 2, 12)
    True
    """
    name = "match_entropy"
    if _device.holds(x_reference):
        return _fit_on_device(name, "x_reference", x_reference, None, sample_weight, None)[0]
    values, shape, _ = _matrix(name, "x_reference", x_reference)
    return _core.match_entropy(values, _weights(name, "x_reference", sample_weight, shape))


class VectorScaling(NamedTuple):
    """What fit_vector_scaling found: scale * x + bias are the calibrated scores."""

    scale: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any]


def fit_vector_scaling(x, labels, *, ridge=1e-6, sample_weight=None, ignore_index=None):
    """A scale and a bias for each class at which softmax(scale x + bias) gives the labels the least mean loss.

        argmin_{w, b} mean_r -log softmax(w x_r + b)_{y_r} + ridge/2 (s^2 |w - 1/T|^2 + |b + (w - 1/T) m|^2)

    T is the best temperature, m = mean_r x_r, s^2 = mean_ri (x_ri - m_i)^2: scores in other units give the same distributions.

    Parameters
    ----------
    x : NumPy array, anything with DLPack (such as a torch CPU tensor of any type) or nested lists
        Scores (logits), of shape (..., n): n classes along the last axis. A -inf score is an absent class.
    labels : array of integers
        The class of each row, in [0, n), of shape x.shape[:-1].
    ridge : float, at least 0 and finite, default 1e-6
        The weight of the penalty for changes from the scores x/T: of the scale of each class, and of its mean score. With a
        value above 0 there is always one minimum; 0 means the likelihood alone.
    sample_weight : array of shape x.shape[:-1], default None
        The weight of each row, at least 0; None: all rows have the same. A row of weight 0 is not read.
    ignore_index : int, default None
        Rows with this label are left out, as with -100 in torch.

    Returns
    -------
    VectorScaling
        A named tuple of two arrays of n numbers, `scale` and `bias`; the biases have mean 0. There the gradient of the loss is
        below 1e-9 times the size of the scores.

    Raises
    ------
    ValueError
        As fit_temperature. Also if there is no minimum, which is possible only with ridge 0: if no row has the label of some
        class, its bias would be -inf; or some scales and biases classify every row of a class correctly.
    TypeError
        As fit_temperature.

    Notes
    -----
    Unlike a temperature it can change which class has the largest score. It has 2n parameters to fit, so with few labels per
    class prefer fit_temperature, or a larger ridge. The loss is convex; Newton's method, with steps by conjugate gradients,
    starts from the best temperature. Sums are in float64.
    Source: Guo, Pleiss, Sun, Weinberger, ICML 2017.

    Examples
    --------
    >>> x, labels = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]], [0, 1, 1, 1, 0]
    >>> scale, bias = entropic.fit_vector_scaling(x, labels)
    >>> p = entropic.softmax(scale * x[4] + bias)  # 1/3, 2/3: as often as the labels of such rows
    """
    name = "fit_vector_scaling"
    ridge = _checks.number(name, "ridge", ridge)
    if not 0 <= ridge < math.inf:
        raise ValueError(f"{name}: ridge must be at least 0 and finite, got {ridge:g}")
    values, classes, weights, _ = labelled(name, "x", x, labels, sample_weight, ignore_index)
    values = values.astype(np.float64)
    # Scaled so that sums of squares neither overflow nor vanish.
    largest = np.abs(values, where=np.isfinite(values), out=np.zeros_like(values)).max(initial=0)
    unit = 2.0 ** np.clip(np.frexp(largest)[1], -1020, 1020) if largest > 0 else 1.0
    values = values / unit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperatureClampedWarning)
        try:
            temperature, clamped = _core.fit_temperature(values, classes, weights)  # checks x and labels too
        except ValueError as error:
            raise ValueError(str(error).replace("fit_temperature", name)) from None
    rows = slice(None) if len(weights) == 0 else weights > 0
    weights = np.ones(len(values)) if len(weights) == 0 else weights[rows] / weights.max()
    values, classes = values[rows], classes[rows]
    missing = np.setdiff1d(np.arange(values.shape[1]), classes)
    if ridge == 0 and len(missing) > 0:
        raise ValueError(
            f"{name}: class {missing[0]} is not the label of any row, so its bias would be -inf; give a ridge above 0"
        )
    if clamped and temperature < 1:  # every label has the largest score, of any size
        finite = values[np.isfinite(values)]
        temperature = max(finite.max() - finite.min(), np.finfo(float).tiny)
    change, mean, found = _newton(values / temperature, classes, weights / weights.sum(), ridge)
    if not found:
        raise ValueError(
            f"{name}: the loss has no minimum, because scales and biases exist at which every row of some class is right; "
            f"give a ridge above {ridge:g}"
        )
    bias = change[1] - change[0] * mean
    return VectorScaling((1 + change[0]) / temperature / unit, bias - bias.mean())


def _newton(x, labels, weights, ridge):
    """The least loss of scores x + d (x - mean) + c: ((d, c), mean, whether there is one). A change of d costs in units of
    the spread of x."""
    absent = np.isneginf(x)
    x = np.where(absent, 0, x)
    mean = weights @ x
    centred = np.where(absent, 0, x - mean)
    deviation = math.sqrt((weights @ centred**2).mean()) or 1.0
    centred /= deviation
    at = np.arange(len(x)), labels
    column = weights[:, None]
    change = np.zeros((2, x.shape[1]))

    def scores(change):
        return centred * change[0] + change[1]

    def summed(entries):  # the transpose of scores
        return np.stack([np.einsum("ri,ri->i", centred, entries), entries.sum(axis=0)])

    def state(change):
        z = np.where(absent, -np.inf, x + scores(change))
        top = z.max(axis=1, keepdims=True)
        p = np.exp(z - top)
        sums = p.sum(axis=1, keepdims=True)
        loss = weights @ (np.log(sums) + top)[:, 0] - weights @ z[at] + ridge / 2 * (change**2).sum()
        return loss, p / sums

    loss, p = state(change)
    for _ in range(_NEWTON_STEPS):
        residual = p * column
        residual[at] -= weights
        gradient = summed(residual) + ridge * change
        spread = column * p * (1 - p)
        diagonal = np.stack([np.einsum("ri,ri->i", centred**2, spread), spread.sum(axis=0)]) + ridge

        def curved(step, p=p, diagonal=diagonal):
            u = scores(step)
            u -= np.einsum("ri,ri->r", p, u)[:, None]
            # Where the loss is flat, as along equal biases, rounding must not make the step infinite.
            return summed(column * p * u) + ridge * step + _DAMPING * diagonal * step

        step = -_conjugate_gradients(curved, gradient, diagonal)
        step[1] -= step[1].mean()
        moves = np.where(absent, 0, scores(step))
        moved = np.abs(moves - np.einsum("ri,ri->r", p, moves)[:, None]).max(initial=0)
        size_of_scores = np.abs(x + scores(change)).max()
        if moved <= 1e-8 * (1 + size_of_scores):
            p[at] -= 1
            change += step
            return (change[0] / deviation, change[1]), mean, ridge > 0 or np.abs(p).max(axis=0).min() > 1e-12
        slope = (gradient * step).sum()
        size = min(1.0, _LONGEST / max(moved, 1e-300))
        while True:
            candidate = change + size * step
            new, now = state(candidate)
            if new <= loss + 1e-4 * size * slope + 1e-14 * (loss + size_of_scores):
                break
            size /= 2
            if size < 1e-10:
                return change, mean, False
        change, loss, p = candidate, new, now
    return change, mean, False


_DAMPING = 1e-9
_LONGEST = 10.0  # the most that scores move in one step: where p is 0 or 1 the loss has no curvature to limit it
_NEWTON_STEPS = 50  # along a direction without a minimum each moves scores by about 1


def _conjugate_gradients(curved, gradient, diagonal):
    """H^-1 gradient, where curved(s) is H s, as exactly as Newton's next step needs it."""
    inverse = np.where(diagonal > 0, 1 / np.where(diagonal > 0, diagonal, 1), 0)
    solution, residual = np.zeros_like(gradient), gradient.copy()
    direction = inverse * residual
    norm = start = (residual * direction).sum()
    tolerance = min(1e-4, start) * start
    for _ in range(2 * gradient.size + 10):
        if norm <= tolerance:
            break
        image = curved(direction)
        curvature = (direction * image).sum()
        if not curvature > 0:
            break
        step = norm / curvature
        solution += step * direction
        residual -= step * image
        scaled = inverse * residual
        before, norm = norm, (residual * scaled).sum()
        direction = scaled + norm / before * direction
    return solution


def entropy_invariant_scale(n, d, *, train_length=512, kappa=None):
    """The scale of the scores q.k at which the entropy of attention grows less with the number n of keys.

        log n / (log(train_length) sqrt(d)), or where kappa is given kappa log n / d

    Parameters
    ----------
    n : number or array
        The number of keys that a query sees, at least 1.
    d : float, above 0
        The size of q and k.
    train_length : float, above 1 and finite, default 512
        The n at which the scale is the usual 1/sqrt(d). It is not used if kappa is given.
    kappa : float or None, above 0 and finite, default None
        The factor of log n / d.

    Returns
    -------
    float or array
        Of the kind, shape and dtype of n; float64 if n is a list or has integers.

    Raises
    ------
    ValueError
        n, d or a parameter is out of its range.
    TypeError
        An argument is of the wrong type.

    Notes
    -----
    Source: Su, kexue.fm 8823, 2021, and 9034, 2022.

    Examples
    --------
    >>> entropic.entropy_invariant_scale(512, 64)
    0.125
    >>> scale = entropic.entropy_invariant_scale([512, 512 * 512], 64)  # 0.125, 0.25
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


for _one in (
    TemperatureClampedWarning,
    fit_temperature,
    fit_target_entropy,
    match_entropy,
    VectorScaling,
    fit_vector_scaling,
    entropy_invariant_scale,
):
    _one.__module__ = "entropic.calibration"
del _one
