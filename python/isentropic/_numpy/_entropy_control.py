"""Entropy control: functions that change the scale of scores, or take powers of a distribution."""

import math
from typing import Any, NamedTuple

import numpy as np

import isentropic._core as _core
from isentropic import _checks, _descriptions
from isentropic._descriptions import documented
from isentropic._numpy import _containers, _convert, _layout

STATUS = np.array(_descriptions.STATUSES)


@documented
class GammaResult(NamedTuple):
    """The result of gamma_for_entropy: one entry for each row."""

    gamma: Any
    entropy: Any
    status: Any


@documented
def gamma_for_entropy(
    x, *, entropy=None, perplexity=None, gamma_range=(0.0, math.inf), max_iterations=100, input="scores", axis=-1
):
    """
    gamma_range (pair of floats): The least and the largest gamma allowed.
    Returns (GammaResult): A named tuple (gamma, entropy, status) of arrays in x's shape without the axis, or of single values
        if no axis is left. entropy is that of softmax(gamma x), in nats. gamma and entropy are of the kind and dtype of x, but
        float32 for float16, whose range gamma may exceed. status is a NumPy array of strings:

        "ok"             the target was met, or max_iterations ended the search
        "clamped_low"    the target is below every entropy that can be reached; gamma is inf, or the end of gamma_range
        "clamped_high"   the target is above every entropy that can be reached; gamma is 0, or the end of gamma_range
        "constant"       all scores are equal, or one is +inf, so that gamma changes nothing; gamma is 1
        "invalid"        the row has a NaN or no score above -inf; gamma is NaN
    Raises: A parameter is out of its range, not exactly one target is given, x has no axis.
    Notes: The entropy that was found differs from the target by at most 1e-12 max(1, target), before it is rounded to x's
        dtype. Gradient, by the implicit function theorem: d gamma / dx = -gamma u / Var x, d gamma / d entropy = -1 / (gamma
        Var x), u = p (x - <x,p>).
    >>> gamma, reached, status = isentropic.gamma_for_entropy([0.0, 1.0, 2.0], entropy=1.0)
    >>> str(status), round(float(gamma), 9), round(float(reached), 9)
    ('ok', 0.565276381, 1.0)
    """
    params = {"entropy": entropy, "perplexity": perplexity, "min_gamma": None, "max_gamma": None}
    params |= {"max_iterations": max_iterations, "input": input}
    if _containers.is_container(x):

        def of_blocks(x, values):
            given = dict(zip(params, values, strict=True))
            return tuple(gamma_for_entropy(x, gamma_range=gamma_range, **{key: given[key] for key in _GIVEN}))

        values = tuple(params.values())
        return GammaResult(*_containers.along("gamma_for_entropy", of_blocks, [(x, True)], [False] * 3, axis, values))
    rows = _layout.Along("gamma_for_entropy", "x", x, axis)
    gamma, entropy, status = gammas_of(rows.values, rows.axis, gamma_range, params)
    return GammaResult(rows.measured(gamma), rows.measured(entropy), STATUS[status])


_GIVEN = "entropy", "perplexity", "max_iterations", "input"


def gammas_of(x, axis, gamma_range, params):
    """gamma and the entropy in float64, and the number of the status, for each row of float32 or float64 scores."""
    name = "gamma_for_entropy"
    params["min_gamma"], params["max_gamma"] = checked_range(name, gamma_range)
    lead = (*x.shape[:axis], *x.shape[axis + 1 :])
    gamma, entropy, status = np.empty(lead), np.empty(lead), np.empty(lead, np.int32)
    values = tuple(_convert.per_row(name, param, value) for param, value in params.items())
    _core.gamma_for_entropy(x, gamma, entropy, status, axis, values)
    return gamma, entropy, status


def checked_range(name, gamma_range):
    try:
        low, high = (_checks.number(name, "gamma_range", end) for end in gamma_range)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: gamma_range must be a pair of numbers (least, largest), got {gamma_range!r}") from None
    if not (0 <= low < math.inf and low <= high > 0):
        raise ValueError(f"{name}: gamma_range must be (least, largest) with 0 <= least <= largest > 0, got {gamma_range!r}")
    return low, high


@documented
def power_transform(p, *, gamma, axis=-1):
    """
    p: Non-negative numbers, of any shape with at least one axis; they need not sum to 1. Never changed.
    gamma (float or array, at least 0): 0 gives the uniform distribution over p > 0, inf that over the maxima of p. An array
        gives each row its own: it broadcasts with p and has size 1 along axis.
    axis: The axis along which p is a distribution; all others count rows.
    Returns: Of the kind, shape and dtype of p; float64 if p is a list or has integers or bools. A row with a negative entry,
        NaN, inf or no mass is NaN.
    Raises: gamma is out of its range, p has no axis.
    Notes: With p = softmax(x) it is softmax(gamma x): gamma is 1/T.
    >>> isentropic.power_transform([0.8, 0.2, 0.0], gamma=0.5)
    array([0.66666667, 0.33333333, 0.        ])
    """
    if _containers.is_container(p):
        return _containers.along(
            "power_transform", lambda p, params: power_transform(p, gamma=params[0]), [(p, True)], [True], axis, (gamma,)
        )
    rows = _layout.Along("power_transform", "p", p, axis)
    q = np.empty_like(rows.values)
    _core.power_transform(rows.values, q, rows.axis, (_convert.per_row("power_transform", "gamma", gamma),))
    return rows.back(q)


@documented
def normalize_density(p, weights, *, entropy, axis=-1):
    """
    p: The density at the nodes, up to a factor: non-negative and finite. Zeros stay zeros. Never changed.
    weights: The weights of the quadrature, at least 0: one for each node along axis, or in a shape that broadcasts to p's. A
        node of weight 0 is left out, its density 0.
    entropy: In nats; of a density it may be negative. An array gives each row its own: it broadcasts with p and has size 1
        along axis.
    axis: The axis of the nodes; all others count rows.
    Returns (density, gamma : arrays): density with sum(weights * density) = 1, of the kind, shape and dtype of p; float64 if p
        is a list or has integers. gamma, the power of each row, in p's shape without the axis: inf or 0 if the entropy is an
        end of the reachable interval, 1 for a constant density.
    Raises: The entropy cannot be met: powers of p have entropies from the log of the weight at the maximum of p to log sum w
        over p > 0. Or a row of p is not a density, a weight is negative or not finite, or shapes do not fit. The message names
        the row.
    Notes: The entropy of the result differs from the target by at most 1e-12 max(1, abs(entropy)), and by what rounding it to
        float32 or float16 adds.
    Examples: A normal density of variance 1 gets the entropy of one of variance 4:

    >>> t = np.linspace(-40, 40, 2001)
    >>> density, gamma = isentropic.normalize_density(
    ...     np.exp(-t * t / 2), np.full(2001, t[1] - t[0]), entropy=0.5 * np.log(2 * np.pi * np.e * 4)
    ... )
    >>> round(float(gamma), 9)
    0.25
    """
    rows = _layout.Along("normalize_density", "p", p, axis)
    q, gamma = density_of(rows, weights, entropy)
    return rows.back(q), rows.numbers(gamma)


def density_of(rows, weights, entropy):
    """Densities in the shape of p, and the gamma of each row in float64."""
    name = "normalize_density"
    p, q = rows.values, np.empty_like(rows.values)
    targets = _convert.per_row(name, "entropy", entropy)
    shape = (*p.shape[: rows.axis], 1, *p.shape[rows.axis + 1 :])
    try:
        wanted = np.broadcast_to(targets, shape).ravel()
    except ValueError:
        raise ValueError(
            f"{name}: entropy must be a number or an array that broadcasts to {shape}, p's shape with 1 for axis {rows.axis}, "
            f"got shape {np.shape(targets)}"
        ) from None
    found = _core.normalize_density(p, _weights(name, weights, rows), q, rows.axis, (wanted if np.ndim(targets) else targets,))
    if q.size > 0:
        moved = np.moveaxis(p, rows.axis, -1)
        for row, result in enumerate(found):
            if result[-1] != "ok":
                values = moved[np.unravel_index(row, rows.lead)]
                _raise_unless_met(name, "p", "entropy", float(wanted[row]), values, rows.index(row), result)
    return q, np.array([result[0] for result in found])


def _weights(name, weights, rows):
    """Weights in the shape of p, repeated without a copy."""
    given, _ = _convert.to_wide_floats(name, "weights", _convert.to_numpy(name, "weights", weights))
    given = given.astype(np.float64, copy=False)
    nodes = rows.shape[rows.axis]
    try:
        if given.shape == (nodes,):
            along = [1] * len(rows.shape)
            along[rows.axis] = nodes
            return np.broadcast_to(given.reshape(along), rows.shape)
        if given.ndim < 2:
            raise ValueError
        return np.broadcast_to(given, rows.shape)
    except ValueError:
        raise ValueError(
            f"{name}: weights must have an entry for each of {nodes} nodes along axis {rows.axis}, or broadcast to the shape "
            f"of p, {rows.shape}, got shape {given.shape}"
        ) from None


@documented
def normalize_joint(pxy, *, joint=None, marginal=None, conditional=None):
    """
    pxy: Non-negative numbers with x along the last axis but one and y along the last, any factor of a distribution; further
        axes in front count tables. Zeros stay zeros. Never changed.
    joint (float or array, at least 0 and finite): H(X, Y) in nats, by a power of the whole table.
    marginal (float or array, at least 0 and finite): H(X) in nats, by a power of the row sums p(x); every p(y|x) is kept.
    conditional (float or array, at least 0 and finite): H(Y|X) in nats, by one power of all p(y|x); p(x) is kept. Give exactly
        one of the three, as a number or as an array that broadcasts to the axes that count tables.
    Returns: Tables of sum 1, of the kind, shape and dtype of pxy; float64 if pxy is a list or has integers or bools.
    Raises: The target cannot be met: H(X, Y) and H(X) lie between the log of the number of maxima and the log of the number of
        entries above 0, of the table or of p(x); H(Y|X) lies between the means of both under p(x). Or a table has a negative
        entry, NaN, inf or no mass, not exactly one target is given, or it is out of its range. The message names the table.
    Notes: The entropy of the result differs from the target by at most 1e-12 max(1, target), and by what rounding it to float32
        or float16 adds. Columns are p(y): to change H(Y) or H(X|Y), transpose.
    Source: Su, kexue.fm 8829, 2021.
    >>> isentropic.normalize_joint([[3, 1], [1, 3]], conditional=np.log(2)).tolist()
    [[0.25, 0.25], [0.25, 0.25]]
    """
    array = _convert.to_numpy("normalize_joint", "pxy", pxy)
    values, dtype = _convert.to_wide_floats("normalize_joint", "pxy", array)
    tables, _ = tables_of(values, {"joint": joint, "marginal": marginal, "conditional": conditional})
    return _convert.same_kind(pxy, _convert.cast(tables, dtype))


def tables_of(values, targets):
    """Tables in the shape of float32 or float64 values, and the gamma of each in float64."""
    name = "normalize_joint"
    if values.ndim < 2:
        raise ValueError(f"{name}: pxy must have at least two axes, x in rows and y in columns, got shape {values.shape}")
    *lead, rows, cols = values.shape
    spread = {target: _spread(name, target, value, tuple(lead)) for target, value in targets.items()}
    tables = np.ascontiguousarray(values).reshape(math.prod(lead), rows, cols)
    result, gamma = np.empty_like(tables), np.ones(len(tables))
    if tables.size == 0:  # there is no target to meet, but parameters are checked
        at_first = tuple(value if value is None or np.ndim(value) == 0 else 0.0 for value in spread.values())
        _core.normalize_joint(np.empty((0, 0)), np.empty((0, 0)), at_first)
    else:
        for i, table in enumerate(tables):
            params = tuple(value if np.ndim(value) == 0 else float(value[i]) for value in spread.values())
            found = _core.normalize_joint(table, result[i], params)
            target, wanted = next((t, v) for t, v in zip(spread, params, strict=True) if v is not None)
            where = _checks.place("of table", np.unravel_index(i, lead))
            _raise_unless_met(name, "pxy", target, wanted, table, where, found)
            gamma[i] = found[0]
    return result.reshape(values.shape), gamma.reshape(lead)


def _spread(name, target, value, lead):
    """A target unchanged, or as one number for each table."""
    value = _convert.per_row(name, target, value)
    if not isinstance(value, np.ndarray):
        return value
    try:
        return np.broadcast_to(value, lead).reshape(-1) if lead else float(value.reshape(()))
    except ValueError:
        raise _checks.misfit(name, target, lead, "the axes of pxy that count tables", value) from None


def _raise_unless_met(name, argument, target, wanted, values, where, result):
    _, entropy, least, most, status = result
    if status == "invalid":
        wrong = np.argwhere(~((values >= 0) & (values < np.inf)))
        if len(wrong) == 0:
            raise ValueError(f"{name}: {argument}{where} must have an entry above 0, got none")
        at = tuple(map(int, wrong[0]))
        raise ValueError(
            f"{name}: {argument} must be at least 0 and finite, got {values[at]}{_checks.place('at entry', at)}"
            f"{where.replace('of', 'in', 1)}"
        )
    if status != "ok" and not abs(entropy - wanted) <= 1e-12 * max(1.0, abs(wanted)):
        raise ValueError(
            f"{name}: {target}{where} must be in [{least:.9g}, {most:.9g}], which powers of {argument} reach, got {wanted:.9g}"
        )


@documented
def mean_field_entropy(x, *, gamma=1.0, axis=-1):
    """
    gamma: Scale of the scores, 1/T.
    Returns: In nats, of the kind and dtype of x, or float32 for halves, in its shape without the axis; a NumPy number if no
        axis is left. A row with NaN, or without a score above -inf, gives NaN. A row with scores of +inf gives the log of their
        number.
    Raises: gamma is out of its range, x has no axis.
    Notes: With H the entropy of softmax(gamma x) and R = max x - min x, 0 <= H - estimate <= gamma^2 R^2 / 8 + min(gamma (max x
        - mean x), log n). It may be negative.
    >>> round(float(isentropic.mean_field_entropy([0.0, 0.5, 1.0, 0.5])), 9)  # of 1.325
    0.886294361
    """
    if _containers.is_container(x):
        return _containers.along(
            "mean_field_entropy", lambda x, params: mean_field_entropy(x, gamma=params[0]), [(x, True)], [False], axis, (gamma,)
        )
    rows = _layout.Along("mean_field_entropy", "x", x, axis)
    estimate = np.empty(rows.lead)
    _core.mean_field_entropy(rows.values, estimate, rows.axis, (gamma,))
    return rows.measured(estimate)
