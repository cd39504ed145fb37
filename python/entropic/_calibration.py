"""Choosing the temperature or the entropy: the functions of entropic.calibration."""

import math
import warnings

import numpy as np

from entropic import _checks, _convert, _core


class TemperatureClampedWarning(UserWarning):
    """fit_temperature returned an end of [1e-3, 1e3], beyond which the loss falls on.

    At 1e-3 (nearly) every label has the largest score of its row: more data would show how sure to be. At 1e3 the scores say
    nothing about the labels, or the opposite.
    """


def fit_temperature(x, labels):
    """The temperature T at which softmax(x/T) gives the labels the least mean negative log-likelihood.

        T = argmin_T mean_r -log softmax(x_r / T)_{y_r}, 1e-3 <= T <= 1e3

    Parameters
    ----------
    x : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
        Scores (logits), of shape (..., n): n classes along the last axis. A -inf score is an absent class.
    labels : array of integers
        The class of each row, in [0, n), of shape x.shape[:-1].

    Returns
    -------
    float
        T, to about 1e-14 (relative) times what the labels leave open. 1.0 where no row has two different finite scores.

    Raises
    ------
    ValueError
        There is no row, labels has another shape, a label is no class or one with score -inf (the loss is then infinite
        at every T), a score is NaN or +inf. The row is named, counted as in x.reshape(-1, n).
    TypeError
        x is no array of numbers, labels is not of integers.

    Warns
    -----
    TemperatureClampedWarning
        The loss falls on beyond an end of [1e-3, 1e3], which is returned.

    Notes
    -----
    The loss is convex in 1/T, so there is one minimum; Newton's method inside a bracket finds it whatever the scale of the
    scores, without a learning rate. Sums are in float64 and do not depend on the number of threads.
    Source: Guo, Pleiss, Sun, Weinberger, ICML 2017.

    Examples
    --------
    >>> T = entropic.fit_temperature([[1, 0], [1, 0], [1, 0], [1, 0]], [0, 0, 0, 1])
    >>> round(1 / T, 12) == round(math.log(3), 12)  # p = 3/4, as the labels say
    True
    """
    temperature, clamped = _core.fit_temperature(*_labelled("fit_temperature", "x", x, labels)[:2])
    if clamped:
        why = (
            "(nearly) every label has the largest score of its row"
            if temperature < 1
            else "the scores do not favour the labels"
        )
        warnings.warn(
            f"fit_temperature: T = {temperature:g} is an end of what is allowed, and the loss falls on beyond it: {why}",
            TemperatureClampedWarning,
            stacklevel=2,
        )
    return temperature


def fit_target_entropy(x, labels):
    """The entropy H at which entropy_normalize(x, entropy=H) gives the labels the least mean negative log-likelihood.

        H = argmin_H mean_r -log entropy_normalize(x_r, entropy=H)_{y_r}, 0 <= H <= log n

    Parameters
    ----------
    x : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
        Scores, of shape (..., n): n classes along the last axis. A -inf score is an absent class.
    labels : array of integers
        The class of each row, in [0, n), of shape x.shape[:-1].

    Returns
    -------
    float
        H in nats, to 1e-12 log n times what the labels leave open; of equally good ones the largest.

    Raises
    ------
    ValueError, TypeError
        As fit_temperature.

    Notes
    -----
    The loss is not convex in H. It is evaluated at 65 entropies and at those at which rows may become uniform (the logarithms
    of 1 to 16, and of how many scores a row has or has at its top); every interval in which the slope turns from falling to
    rising is narrowed by bracketed root finding (Chandrupatla 1997) on the slope, and the best is taken. A minimum may be
    missed if the slope turns twice between two of the 65. Of more than 8192 rows, 4096 say in which intervals, at most four,
    to look with all.

    Examples
    --------
    >>> H = entropic.fit_target_entropy([[1, 0], [20, 0], [300, 0], [4000, 0]], [0, 0, 0, 1])
    >>> round(H, 12) == round(math.log(4) - 0.75 * math.log(3), 12)  # p = 3/4 in every row
    True
    """
    return _core.fit_target_entropy(*_labelled("fit_target_entropy", "x", x, labels)[:2])


def match_entropy(x_reference):
    """The mean entropy of softmax(x_reference): the target that gives other scores the entropy of these.

        H = mean_r -sum_i p_ri log p_ri, p_r = softmax(x_r)

    Parameters
    ----------
    x_reference : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
        Scores, of shape (..., n); each row along the last axis counts once.

    Returns
    -------
    float
        H in nats.

    Raises
    ------
    ValueError
        There is no row, or one with NaN or without a score above -inf; it is named.
    TypeError
        x_reference is no array of numbers.

    Examples
    --------
    >>> H = entropic.match_entropy([[0.0, 0.0, 0.0], [1000.0, 0.0, 0.0]])
    >>> round(H, 12) == round(math.log(3) / 2, 12)
    True
    """
    return _core.match_entropy(_matrix("match_entropy", "x_reference", x_reference)[0])


def expected_calibration_error(p, labels, *, bins=15, strategy="uniform"):
    """How far confidence is from accuracy, over bins of confidence.

        sum_b |sum_{r in b} (1[argmax p_r = y_r] - max p_r)| / rows

    The confidence of a row is its largest probability, its prediction the first class that has it; each bin counts with the
    share of rows in it.

    Parameters
    ----------
    p : NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists
        Distributions, of shape (..., n).
    labels : array of integers
        The class of each row, in [0, n), of shape p.shape[:-1].
    bins : int, above 0 and at most 1000000, default 15
        How many there are. Empty ones add nothing.
    strategy : "uniform" or "quantile", default "uniform"
        "uniform": bin b holds confidences in [b/bins, (b+1)/bins), the last one also 1.
        "quantile": a row goes by the number k of rows with a lower confidence into bin floor(k bins / rows): equally many in
        each, but equal confidences stay together.

    Returns
    -------
    float
        Between 0 and 1.

    Raises
    ------
    ValueError
        A row of p is no distribution: an entry is negative, NaN or infinite, or the sum is not 1 within 1e-6 (float64),
        1e-4 (float32), 1e-2 (float16). It is named, counted as in p.reshape(-1, n). There is no row, labels has another
        shape, a label is no class, bins or strategy is out of its range.
    TypeError
        p is no array of numbers, labels is not of integers, bins is no integer.

    Notes
    -----
    It is biased upwards for few rows, and depends on the bins: compare errors of the same data and bins only.
    Source: Naeini, Cooper, Hauskrecht, AAAI 2015; Guo, Pleiss, Sun, Weinberger, ICML 2017.

    Examples
    --------
    >>> entropic.expected_calibration_error([[0.75, 0.25], [0.75, 0.25]], [0, 1])
    0.25
    """
    name = "expected_calibration_error"
    values, labels, dtype = _labelled(name, "p", p, labels)
    tolerance = _core.sum_tolerance[dtype.itemsize]
    return _core.expected_calibration_error(values, labels, (bins, strategy, tolerance))


def entropy_invariant_scale(n, d, *, train_length=512, kappa=None):
    """The factor of scores q.k that keeps attention's entropy from growing with the number n of keys.

        log n / (log(train_length) sqrt(d)), or where kappa is given kappa log n / d

    Parameters
    ----------
    n : number or array
        How many keys a query sees, at least 1.
    d : float, above 0
        The size of q and k.
    train_length : float, above 1 and finite, default 512
        The n at which the scale is the usual 1/sqrt(d); not used where kappa is given.
    kappa : float or None, above 0 and finite, default None
        The factor of log n / d.

    Returns
    -------
    float or array
        Of the kind, shape and dtype of n; float64 where n is of integers or a list.

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


def _matrix(name, argument, x):
    """(x as a contiguous matrix of float32 or float64, the shape of its rows, the dtype of x)."""
    array, dtype = _convert.to_wide_floats(name, argument, _convert.to_numpy(name, argument, x))
    if array.ndim == 0:
        raise ValueError(f"{name}: {argument} must have at least one axis, got a single number")
    shape = array.shape[:-1]
    return np.require(array, requirements=["C", "A"]).reshape(math.prod(shape), array.shape[-1]), shape, dtype


def _labelled(name, argument, x, labels):
    """(x as such a matrix, the class of each row, the dtype of x)."""
    matrix, shape, dtype = _matrix(name, argument, x)
    classes = _convert.to_numpy(name, "labels", labels)
    if classes.dtype.kind not in "iub" and classes.size > 0:
        raise TypeError(f"{name}: labels must be of an integer type, got dtype {classes.dtype}")
    if classes.shape != shape:
        raise ValueError(
            f"{name}: labels must have the shape of {argument} without its last axis, {shape}, got {classes.shape}"
        )
    return matrix, np.require(classes, np.int64, ["C", "A"]).reshape(-1), dtype


for _one in (
    TemperatureClampedWarning,
    fit_temperature,
    fit_target_entropy,
    match_entropy,
    expected_calibration_error,
    entropy_invariant_scale,
):
    _one.__module__ = "entropic.calibration"
del _one
