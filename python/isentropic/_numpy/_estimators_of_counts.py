"""Entropies and information estimated from counts, and of tables of three variables."""

import math

import numpy as np

import isentropic._core as _core
import isentropic._generated as _generated
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _containers, _convert, _layout, _measures
from isentropic.formulas.measures import independent_given

# How far the sum of a distribution may be from 1, by the bytes of its numbers.
TOLERANCE = {2: 1e-2, 4: 1e-4, 8: 1e-6}


@documented
def entropy_of_counts(counts, *, estimator="grassberger", classes=None, base=None, axis=-1, return_std=False):
    """
    counts: How often each class was drawn, whole numbers of at least 0 of any type; the other axes count rows. Never changed.
    axis: The axis along which the classes are.
    return_std (bool): Return (estimate, deviation): the posterior standard deviation as well, of estimator nsb.
    Returns (array): One number for each row, as entropy does; NaN for a row without counts, and for a single draw with the
        jackknife.
    Raises: A count is negative, NaN or not a whole number (the message names row and entry); classes is below the number of
        classes that were seen, or is given for an estimator other than james_stein and nsb; return_std is given for an
        estimator other than nsb.
    Notes: The entropy of frequencies is too small on average, by about (classes - 1) / (2 N) nats. All estimators but plugin
        correct this: miller_madow by this term, grassberger and jackknife also by higher powers of 1/N, chao_shen for classes
        that were not seen, james_stein by shrinking the frequencies towards the uniform distribution, nsb by the mean under a
        prior that is flat in the entropy. docs/math/estimators.md compares them.
    >>> draws = [4, 2, 0, 1, 1, 0, 0, 0]
    >>> [round(float(isentropic.entropy_of_counts(draws, estimator=one)), 3) for one in ("plugin", "miller_madow", "nsb")]
    [1.213, 1.401, 1.544]
    >>> isentropic.entropy_of_counts([[8, 8], [1, 0]], estimator="plugin", base=2)
    array([1., 0.])
    """
    name = "entropy_of_counts"
    _checks.flag(name, "return_std", return_std)
    params = (estimator, classes if classes is None else _checks.number(name, "classes", classes), base)
    if return_std and estimator != "nsb":
        raise ValueError(f'{name}: return_std needs estimator "nsb", got "{estimator}"')
    if _containers.is_container(counts):
        results = [False, False] if return_std else [False]

        def of_blocks(counts, _):
            return entropy_of_counts(counts, estimator=estimator, classes=classes, base=base, axis=-1, return_std=return_std)

        return _containers.along(name, of_blocks, [(counts, True)], results, axis)
    rows = _layout.Along(name, "counts", counts, axis, halves=True)
    value, deviation = np.empty(rows.lead), np.empty(rows.lead) if return_std else None
    _core.entropy_of_counts(rows.values, value, deviation, rows.axis, params)
    return (rows.measured(value), rows.measured(deviation)) if return_std else rows.measured(value)


def _tables(name, argument, x, axes, named):
    """(the array, its tables one after the other, dtype) of an argument whose last axes are a table."""
    values, dtype = _convert.to_floats(name, argument, _convert.to_numpy(name, argument, x))
    if values.ndim < axes:
        raise ValueError(f"{name}: {argument} must have at least {axes} axes, {named}, got shape {values.shape}")
    lead = values.shape[: values.ndim - axes]
    return values, np.ascontiguousarray(values).reshape(math.prod(lead), *values.shape[values.ndim - axes :]), dtype


def check_base(function, base):
    """Refuses a base in the name of the function that was called."""
    with _checks.in_the_name_of(function, "entropy"):
        _generated.entropy([1.0], base=base)


@documented
def mutual_information_of_counts(table, *, estimator="miller_madow", base=None):
    """
    table: How often each pair was drawn, x along the last axis but one and y along the last; further axes count tables.
    Returns (array): One number for each table, of the kind and dtype of table; float64 of integers. It may be below 0, except
        with plugin and james_stein. NaN for a table without counts.
    Raises: A count is negative, NaN or not a whole number; the message names its place. The table is a frame of two columns
        that may be labels, unless it is of pandas.crosstab.
    >>> round(float(isentropic.mutual_information_of_counts([[12, 3], [4, 11]], estimator="plugin", base=2)), 4)
    0.2175
    """
    name = "mutual_information_of_counts"
    _measures.refuse_labels(name, "table", table)
    values, tables, dtype = _tables(name, "table", table, 2, "x in rows and y in columns")
    value = np.empty(len(tables))
    _core.mutual_information_of_counts(tables, value, (estimator, base))
    result = _convert.cast(value.reshape(values.shape[:-2]), _convert.of_value(dtype))
    return _convert.number_or_array(_convert.same_kind(table, result))


def _probabilities(name, tables, dtype, input, normalize):
    """The tables as probabilities in float64, checked; and their sums before."""
    axes = (-3, -2, -1)
    wide = tables.astype(np.float64)
    if input == "scores":
        return _generated.softmax(wide.reshape(len(wide), math.prod(wide.shape[1:]))).reshape(wide.shape), None
    lowest = 0 if input == "probs" else -math.inf
    wrong = np.argwhere(~((wide >= lowest) & (wide < math.inf)))
    if len(wrong):
        place, what = tuple(map(int, wrong[0])), "at least 0 and finite" if input == "probs" else "a logarithm below inf"
        raise ValueError(f"{name}: pxyz must be {what}, got {wide[tuple(wrong[0])]} at {place[1:]} in table {place[0]}")
    top = wide.max(axes, keepdims=True, initial=-math.inf) if input == "log_probs" and normalize else 0.0
    p = wide if input == "probs" else np.exp(wide - np.where(np.isfinite(top), top, 0.0))
    # A power of 2 brings the sum into the range.
    unit = np.frexp(p.max(axes, keepdims=True, initial=0.0))[1] if normalize else 0
    p = np.ldexp(p, -unit)
    sums = p.sum(axes, keepdims=True)
    tolerance = TOLERANCE[dtype.itemsize]
    bad = ~(sums > 0) if normalize else ~(abs(sums - 1) <= tolerance)
    if p.size and bad.any():
        table = int(np.argmax(bad))
        must = "have an entry above 0" if normalize else f"sum to 1 within {tolerance}"
        how = "" if normalize else " (normalize divides by the sum)"
        raise ValueError(f"{name}: pxyz must {must}, got {sums.ravel()[table]} in table {table}{how}")
    with np.errstate(over="ignore"):
        return (p / sums if normalize else p), np.ldexp(sums, unit)


@documented
def conditional_mutual_information(pxyz, *, base=None, input="probs", normalize=False, return_grad=False):
    """
    How much x tells about y if z is known: I(X; Y | Z) = KL(p(x, y, z), p(x, z) p(y, z) / p(z)), never below 0.

    pxyz: Tables p(x, y, z) in the last three axes; further axes in front count tables. All entries of a table together are one
        distribution, of the kind that input says. Never changed.
    base (float or None): Base of the logarithm: 2 gives bits; None, nats.
    input: What the tables hold: "probs", "log_probs" or "scores".
    normalize (bool): Divide each table by its sum first.
    return_grad (bool): Return (value, dp): the gradient as well, in the shape of pxyz.
    Returns (array): One number for each table, of the kind and dtype of pxyz; float16 gives float32, integers and lists
        float64.
    Raises: An entry is negative, NaN or infinite, or a sum is not 1 and normalize is False; the message names the place.
    Notes: Gradient: log(p(x,y,z) p(z) / (p(x,z) p(y,z))); in scores p (that - I).
    Source: Shannon, 1948; Wyner, Inf. Control 38, 1978.
    >>> coins = [[[0.25, 0], [0, 0.25]], [[0, 0.25], [0.25, 0]]]  # z says whether x and y differ
    >>> float(isentropic.conditional_mutual_information(coins, base=2))
    1.0
    """
    name = "conditional_mutual_information"
    _checks.flag(name, "normalize", normalize)
    _checks.flag(name, "return_grad", return_grad)
    if input not in ("probs", "log_probs", "scores"):
        raise ValueError(f'{name}: input must be one of probs, log_probs, scores, got "{input}"')
    check_base(name, base)
    values, tables, dtype = _tables(name, "pxyz", pxyz, 3, "x, y and z")
    p, sums = _probabilities(name, tables, dtype, input, normalize)
    q = independent_given(np, p)
    flat = [one.reshape(len(p), math.prod(p.shape[1:])) for one in (p, q)]
    there = ~np.isnan(p).any((1, 2, 3)) if p.size else np.zeros(len(p), bool)
    value, g = np.full(len(p), math.nan), np.full(flat[0].shape, math.nan)
    if there.any():
        found, slope, _ = _generated.kl_divergence(*(one[there] for one in flat), base=base, normalize=True, return_grad=True)
        # With the marginals of p in q, the derivatives in q cancel. kl_divergence divides by the sum, and its slope with it.
        given = np.ones(int(there.sum())) if input == "scores" or normalize else flat[0][there].sum(1)
        value[there] = found * given
        g[there] = slope * given[:, None] + (0.0 if input == "scores" or normalize else found[:, None])
    lead = values.shape[:-3]
    result = _convert.cast(value.reshape(lead), _convert.of_value(dtype))
    result = _convert.number_or_array(_convert.same_kind(pxyz, result))
    if not return_grad:
        return result
    if input != "probs":
        with np.errstate(invalid="ignore"):
            g = np.where(flat[0] == 0, 0.0, flat[0] * g)
    elif normalize:
        g = g / sums.reshape(-1, 1)
    return result, _convert.same_kind(pxyz, _convert.cast(g.reshape(values.shape), dtype))
