"""fit_vector_scaling of isentropic.calibration."""

import math
import warnings
from typing import Any, NamedTuple

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy._calibration import TemperatureClampedWarning, scored


@documented(module="isentropic.calibration")
class VectorScaling(NamedTuple):
    """What fit_vector_scaling found: scale * x + bias are the calibrated scores."""

    scale: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any]


@documented(module="isentropic.calibration")
def fit_vector_scaling(x, labels, *, ridge=1e-6, input="scores", classes=None, sample_weight=None, ignore_index=None):
    """
    A scale and a bias for each class at which softmax(scale x + bias) gives the labels the smallest mean loss.

        argmin_{w, b} mean_r -log softmax(w x_r + b)_{y_r} + ridge/2 (s^2 |w - 1/T|^2 + |b + (w - 1/T) m|^2)

    T is the best temperature, m = mean_r x_r, s^2 = mean_ri (x_ri - m_i)^2: scores in other units give the same distributions.

    x: Scores (logits), of shape (..., n): n classes along the last axis. A -inf score is an absent class.
    labels, input, classes: As for fit_temperature. Of log p the scale and the bias are those of beta calibration for two
        classes, and of Dirichlet calibration with a diagonal for more.
    ridge (float, at least 0 and finite): The weight of the penalty for changes from the scores x/T: of the scale of each class,
        and of its mean score. With a value above 0 there is always one minimum; 0 means the likelihood alone.
    Returns (VectorScaling): A named tuple of two arrays of n numbers, `scale` and `bias`; the biases have mean 0. There the
        gradient of the loss is below 1e-9 times the size of the scores.
    Raises: As fit_temperature. Also if the scores are so small that a scale overflows. Also if there is no minimum, which is
        possible only with ridge 0: if no row has the label of some class, its bias would be -inf; or some scales and biases
        classify every row of a class correctly.
    TypeError: As fit_temperature.
    Notes: Unlike a temperature it can change which class has the largest score. It has 2n parameters to fit, so with few labels
        per class prefer fit_temperature, or a larger ridge. The loss is convex; Newton's method, with steps by conjugate
        gradients, starts from the best temperature. Sums are in float64.
    Source: Guo, Pleiss, Sun, Weinberger, ICML 2017; of log p: Kull, Silva Filho, Flach, AISTATS 2017 (beta calibration), and
        Kull et al., NeurIPS 2019 (Dirichlet calibration).
    >>> x, labels = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]], [0, 1, 1, 1, 0]
    >>> scale, bias = isentropic.fit_vector_scaling(x, labels)
    >>> p = isentropic.softmax(scale * x[4] + bias)  # 1/3, 2/3: as often as the labels of such rows
    """
    name = "fit_vector_scaling"
    ridge = _checks.number(name, "ridge", ridge)
    if not 0 <= ridge < math.inf:
        raise ValueError(f"{name}: ridge must be at least 0 and finite, got {ridge:g}")
    values, classes, weights = scored(name, x, labels, input, classes, sample_weight, ignore_index)
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
    with np.errstate(over="ignore"):
        scale = (1 + change[0]) / temperature / unit
    if not np.isfinite(scale).all():
        raise ValueError(
            f"{name}: x must be large enough for a scale that is finite, got scores of at most {largest:g} in size"
        )
    return VectorScaling(scale, bias - bias.mean())


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
