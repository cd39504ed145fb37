"""The distribution with given moments that is nearest to a prior."""

import math
from typing import Any, NamedTuple

import numpy as np

from isentropic import _checks
from isentropic._descriptions import documented
from isentropic._numpy import _convert

# How far moments may be from what is asked, and outside of the reach of the features, as shares of their ranges.
TOLERANCE = 1e-9


@documented
class MaximumEntropyResult(NamedTuple):
    """What maximum_entropy found: see there."""

    p: np.ndarray[Any, Any]
    multipliers: np.ndarray[Any, Any]
    entropy: np.ndarray[Any, Any]
    divergence: np.ndarray[Any, Any]
    status: np.ndarray[Any, Any]


@documented
def maximum_entropy(features, moments, *, prior=None):
    """
    The distribution with given moments that assumes nothing else: the one with the smallest divergence from the prior.

        argmin_p KL(p, prior) such that sum_i p_i features_ij = moments_j;   p ~ prior exp(features @ multipliers)

    features: The numbers whose means are given, of shape (classes, moments): row i is for class i.
    moments: Their means under p, of shape (moments,), or (..., moments) for several problems. A single number is for one
        feature.
    prior (array or None): At least 0, of shape (classes,) or one for each problem; divided by its sum. None: uniform.
    Returns (MaximumEntropyResult): A named tuple, in the widest of the arrays' dtypes, at least float32: `p` of shape (...,
        classes); `multipliers` of shape (..., moments); the `entropy` of p and its `divergence` from the prior, in nats;
        `status`, "ok", or "clamped" where the moments are on the edge of what the features reach: p is the limit, and the
        multipliers of features at an end are infinite, or of others NaN.
    Raises: No distribution has these moments, because they are beyond the reach of the features (the message names the feature
        if one feature alone shows it); a number is not finite, a prior is negative or 0 everywhere, shapes do not fit.
    Notes: Newton's method with a line search minimises the dual problem, log sum_i prior_i exp((features_i - moments)
        multipliers), which is convex. Features are divided by their ranges, and moments are met to 1e-9 of these ranges. If
        features are linearly dependent, the multipliers are the smallest possible.
    Source: Jaynes, Phys. Rev. 106, 1957; Hainmueller, Polit. Anal. 20, 2012 (entropy balancing).
    >>> die = np.arange(1.0, 7.0)
    >>> found = isentropic.maximum_entropy(die[:, None], [4.5])  # a die that shows 4.5 on average
    >>> found.p.round(4).tolist(), found.multipliers.round(4).tolist(), str(found.status)
    ([0.0544, 0.0788, 0.1142, 0.1654, 0.2398, 0.3475], [0.371], 'ok')
    """
    name = "maximum_entropy"
    given = {"features": features, "moments": moments} | ({} if prior is None else {"prior": prior})
    for argument, x in given.items():
        _checks.no_autograd(name, argument, x)
    arrays = {
        argument: _convert.to_floats(name, argument, _convert.to_numpy(name, argument, x, bfloat16=True))[0]
        for argument, x in given.items()
    }
    values = {argument: x.astype(np.float64) for argument, x in arrays.items()}
    dtype = np.result_type(*arrays.values(), np.float32)
    table, wanted = values["features"], values["moments"]
    table = table[:, None] if table.ndim == 1 else table
    wanted = wanted[None] if wanted.ndim == 0 else wanted
    check_shapes(name, table.shape, wanted.shape, values["prior"].shape if "prior" in values else None)
    lead = wanted.shape[:-1]
    weights = values.get("prior", np.ones(len(table)))
    for argument, x in values.items():
        if not np.isfinite(x).all() or (argument == "prior" and (x < 0).any()):
            at = tuple(map(int, np.argwhere(~np.isfinite(x) | ((x < 0) & (argument == "prior")))[0]))
            raise ValueError(
                f"{name}: {argument} must be {'at least 0 and ' * (argument == 'prior')}finite, got {x[at]} at {at}"
            )
    if len(empty := np.argwhere(~(weights.max(-1) > 0))):
        where = _checks.place("in problem", empty[0].tolist())
        raise ValueError(f"{name}: prior must have an entry above 0, got none{where}")
    weights = np.ldexp(weights, -np.frexp(weights.max(-1, keepdims=True))[1])  # so that the sum is in the range
    weights = np.broadcast_to(weights / weights.sum(-1, keepdims=True), (*lead, len(table)))
    problems = wanted.reshape(math.prod(lead), wanted.shape[-1]), weights.reshape(math.prod(lead), len(table))
    found = [_solved(name, table, *one, _checks.place("in problem", at) if lead else "") for at, one in
             zip(np.ndindex(lead), zip(*problems, strict=True), strict=True)]  # fmt: skip
    p, multipliers, status = (list(each) for each in zip(*found, strict=True)) if found else ([], [], [])
    p = np.array(p).reshape(*lead, len(table))
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(p > 0, np.log(np.where(p > 0, p, 1)), 0.0)
        apart = np.where(p > 0, logs - np.log(weights), 0.0)
    result = MaximumEntropyResult(
        p,
        np.array(multipliers).reshape(*lead, table.shape[1]),
        np.asarray(np.maximum(-(p * logs).sum(-1), 0.0)),
        np.asarray(np.maximum((p * apart).sum(-1), 0.0)),
        np.array(status, "<U7").reshape(lead)[()],
    )
    like = next((x for x in (moments, features) if hasattr(x, "dtype")), None)

    def back(one):
        return _convert.number_or_array(_convert.same_kind(like, _convert.cast(one, dtype), widen=True))

    return result._replace(**{key: back(one) for key, one in result._asdict().items() if key != "status"})


def check_shapes(name, features, moments, prior):
    """Refuses shapes that do not fit; that of prior may be None."""
    features, moments = tuple(features), tuple(moments)
    if len(features) != 2 or moments[-1] != features[1] or not features[0]:
        raise ValueError(
            f"{name}: features must have shape (classes, moments) and moments (..., moments), got {features} and {moments}"
        )
    lead, n = moments[:-1], features[0]
    if prior is not None and tuple(prior) not in ((n,), (*lead, n)):
        several = f", or {(*lead, n)}, one for each problem" if lead else ""
        raise ValueError(f"{name}: prior must have shape {(n,)}{several}, got {tuple(prior)}")


def of_each(features, moments, prior):
    """(p, multipliers, whether they are clamped) for torch and JAX: of problems whose features may be their own. One with NaN
    among several is NaN."""
    lead, (n, k), own = moments.shape[:-1], features.shape[-2:], features.shape[:-2]
    features = features.reshape(*own, *(1,) * (len(lead) - len(own)), n, k)
    p, multipliers = np.full((*lead, n), math.nan), np.full((*lead, k), math.nan)
    clamped = np.zeros(lead, np.int32)
    tables, weights = np.broadcast_to(features, (*lead, n, k)), np.broadcast_to(prior, (*lead, n))
    for at in np.ndindex(lead):
        problem = tables[at], moments[at], weights[at]
        if any(np.isnan(x).any() for x in problem):
            continue
        try:
            found = maximum_entropy(*problem[:2], prior=problem[2])
        except ValueError as error:
            raise ValueError(f"{error}{_checks.place('in problem', at)}") from None
        p[at], multipliers[at], clamped[at] = found.p, found.multipliers, found.status == "clamped"
    return p, multipliers, clamped


def _solved(name, features, moments, prior, place):
    """(p, multipliers, status) of one problem."""
    n, k = features.shape
    there, multipliers, status = prior > 0, np.zeros(k), "ok"
    free = np.ones(k, bool)  # features whose multipliers are finite
    while True:
        of = features[there]
        low, high = of.min(0), of.max(0)
        spread = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
        for j in np.flatnonzero(free):
            beyond = max(low[j] - moments[j], moments[j] - high[j])
            if beyond > TOLERANCE * spread[j]:
                where = f"{name}: moments must be within the reach of the features, got {moments[j]:g} for feature {j}"
                raise ValueError(f"{where}, which is between {low[j]:g} and {high[j]:g}{place}")
        # A feature at an end of its range leaves the classes that are there.
        ends = [j for j in np.flatnonzero(free) if high[j] > low[j]
                and min(moments[j] - low[j], high[j] - moments[j]) <= TOLERANCE * spread[j] / 1000]  # fmt: skip
        if not ends:
            break
        j = ends[0]
        end = low[j] if moments[j] - low[j] < high[j] - moments[j] else high[j]
        multipliers[j], status = math.inf if end == high[j] else -math.inf, "clamped"
        there[np.flatnonzero(there)[of[:, j] != end]] = False
        free[j] = False
    kept = free & (high > low)
    centred = ((of - moments) / spread)[:, kept]
    found = _newton(centred, np.log(prior[there]))
    if found is None:
        raise ValueError(f"{name}: moments must be within the reach of the features together, got {moments.tolist()}{place}")
    own, face = found
    if face is not None:
        inside = np.zeros(n, bool)
        inside[np.flatnonzero(there)[face]] = True
        p, _, _ = _solved(name, features, moments, np.where(inside, prior, 0.0), place)
        return p, np.where(free, math.nan, multipliers), "clamped"
    scaled = np.zeros(k)
    scaled[kept] = own / spread[kept]
    p = np.zeros(n)
    p[there] = _law(centred @ own, np.log(prior[there]))[0]
    return p, np.where(free, scaled, multipliers), status


def _law(exponents, log_prior):
    """(the distribution, the logarithm of the sum that it was divided by)."""
    logs = exponents + log_prior
    top = logs.max()
    mass = np.exp(logs - top)
    return mass / mass.sum(), top + math.log(mass.sum())


def _newton(centred, log_prior):
    """(multipliers, None) where the mean of the centred features is 0; (multipliers, the classes that are left) where the limit
    is on a face of their hull; None if 0 is outside of it."""
    multipliers = np.zeros(centred.shape[1])
    p, value = _law(centred @ multipliers, log_prior)
    for _ in range(500):
        slope = p @ centred
        if np.abs(slope).max(initial=0) <= TOLERANCE / 1000:
            break
        away = centred - slope
        step = -np.linalg.lstsq((p[:, None] * away).T @ away, slope, rcond=1e-13)[0]
        change = centred @ step
        size = min(1.0, 20 / max(np.abs(change).max(), 1e-300))
        descent = slope @ step
        if not descent < 0:
            break
        while size > 1e-12:
            law, next_value = _law(centred @ (multipliers + size * step), log_prior)
            if next_value <= value + 1e-4 * size * descent + 1e-15 * (1 + abs(value)):
                break
            size /= 2
        multipliers, p, value = multipliers + size * step, law, next_value
        length = np.linalg.norm(multipliers)
        if length > 1 and (centred @ multipliers).max() < -TOLERANCE * length:
            return None
        if length > 1e4 or value < -700:
            break
    face = _face(centred, p, multipliers)
    if face is not None:
        return multipliers, face
    return (multipliers, None) if np.abs(p @ centred).max(initial=0) <= TOLERANCE else None


def _face(centred, p, multipliers):
    """The classes that keep mass in the limit, if there is a direction in which their features stay and all others fall."""
    for least in (1e-3, 1e-5, 1e-7):
        kept = p > least * p.max()
        if kept.all():
            continue
        inner = centred[kept]
        direction = multipliers - np.linalg.lstsq(inner, inner @ multipliers, rcond=1e-10)[0]
        length = np.linalg.norm(direction)
        if length > 1e-6 * np.linalg.norm(multipliers) and length > 1e-6:
            reached = centred @ (direction / length)
            if reached[~kept].max() < -1e-7 and np.abs(reached[kept]).max() < 1e-9:
                return kept
    return None
