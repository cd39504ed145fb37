"""Barycenters of images: costs that are sums over two axes, so that the kernel is a product, applied to one axis at a time."""

import numpy as np

from isentropic import _checks
from isentropic._numpy._transport import Together

STORED = 600.0  # as in src/transport/sinkhorn_barycenter.cc
_STAGE_FACTOR, _STAGE_ERROR, _STAGE_ITERATIONS = 4.0, 0.05, 20  # as there


def is_grid(cost):
    return isinstance(cost, tuple) and len(cost) == 2 and all(np.ndim(one) == 2 for one in cost)


def _logarithms(scores, costs, epsilon, turned):
    """log sum exp(scores - cost / epsilon) over both axes, one after the other; turned: from rows of the costs to columns."""
    for axis, cost in zip((1, 2), costs, strict=True):
        cost = cost.T if turned else cost
        moved = np.moveaxis(scores, axis, -1)[..., None, :]
        found = np.empty((*moved.shape[:-2], len(cost)))
        for image, out in zip(moved, found, strict=True):  # one at a time: the terms take a multiple of its memory
            terms = np.ascontiguousarray(image - cost / epsilon)
            out[...] = _logsumexp(terms)
        scores = np.moveaxis(found, -1, axis)
    return scores


def _logsumexp(terms):
    top = terms.max(-1, keepdims=True)
    with np.errstate(divide="ignore"):  # the sum is 0, and its logarithm -inf, if all terms are -inf
        return np.log(np.exp(terms - np.where(np.isfinite(top), top, 0)).sum(-1)) + top[..., 0]


class _Kernel:
    """log sum exp(scores_j - C_ij / epsilon), by products with the stored kernels where their numbers stay normal."""

    def __init__(self, costs, epsilon):
        self.costs, self.epsilon = costs, epsilon
        self.least = sum(cost.min() for cost in costs) / epsilon
        self.stored = sum(np.ptp(cost) for cost in costs) <= STORED * epsilon
        self.kernels = [np.exp((cost.min() - cost) / epsilon) for cost in costs] if self.stored else None

    def __call__(self, scores, turned):
        if not self.stored:
            return _logarithms(scores, self.costs, self.epsilon, turned)
        top = scores.max((1, 2), keepdims=True)
        rows, columns = (one.T if turned else one for one in self.kernels)
        return np.log(rows @ np.exp(scores - top) @ columns.T) + (top - self.least)


def barycenter(name, p, costs, epsilon, weights, tolerance, max_iterations):
    """(arrays, barycenter, marginal error, iterations, whether it has converged) of images p of shape (k, h, w)."""
    arrays = Together(name, {"weights": weights}, p=p, cost_of_rows=costs[0], cost_of_columns=costs[1])
    epsilon, tolerance = (_checks.number(name, key, one) for key, one in (("epsilon", epsilon), ("tolerance", tolerance)))
    most = _checks.integer(name, "max_iterations", max_iterations)
    for key, value, fits in (
        ("epsilon", epsilon, epsilon > 0),
        ("tolerance", tolerance, tolerance >= 0),
        ("max_iterations", most, most > 0),
    ):
        if not (fits and np.isfinite(value)):
            raise ValueError(f"{name}: {key} must be {'at least' if key == 'tolerance' else 'above'} 0 and finite, got {value}")
    p, *costs = (arrays.given[key].astype(np.float64) for key in ("p", "cost_of_rows", "cost_of_columns"))
    if (
        p.ndim != 3
        or 0 in p.shape
        or [len(cost) for cost in costs] != list(p.shape[1:])
        or 0 in costs[0].shape + costs[1].shape
    ):
        got = f"{p.shape}, {costs[0].shape} and {costs[1].shape}"
        raise ValueError(
            f"{name}: images p and the costs of their axes must have shapes (k, h, w), (h, ...) and (w, ...), got {got}"
        )
    for cost in costs:
        if not (finite := np.isfinite(cost)).all():
            raise ValueError(f"{name}: costs must be finite, got {cost[~finite][0]}")
    sums = p.sum((1, 2), keepdims=True)
    wrong = np.argwhere(~((p >= 0) & np.isfinite(p)))
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        raise ValueError(f"{name}: p must be at least 0 and finite, got {p[at]} at image {at[0]}, row {at[1]}, column {at[2]}")
    if not (sums > 0).all():
        raise ValueError(f"{name}: p must have a finite sum above 0, got 0 in image {int(np.argmin(sums[:, 0, 0]))}")
    share = np.ones(len(p)) if weights is None else arrays.given["weights"].astype(np.float64)
    if share.shape != (len(p),):
        raise ValueError(f"{name}: weights must have shape ({len(p)},), one for each distribution, got {share.shape}")
    if not ((share >= 0).all() and 0 < share.sum() < np.inf):
        raise ValueError(f"{name}: weights must be finite, at least 0 and not all 0, got {share.tolist()}")
    p, share = p / sums, (share / share.sum())[:, None, None]
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    largest = max(epsilon, sum(abs(cost).max() for cost in costs))
    stage, in_stage, kernel, before = largest, 0, None, None
    g = np.zeros((len(p), costs[0].shape[1], costs[1].shape[1]))  # in units of the stage's epsilon
    for iterations in range(1, most + 1):
        if iterations == most and stage != epsilon:
            g, stage, kernel = g * (stage / epsilon), epsilon, None
        if kernel is None:
            kernel, before = _Kernel(costs, stage), None
        totals = kernel(g, False)
        error = np.inf if before is None else float((p * abs(np.expm1(totals - before))).sum((1, 2)).max())
        reached = kernel(log_p - totals, True)
        before = totals
        last = stage == epsilon
        mean = (share * reached).sum(0)
        if last and error <= tolerance:
            break
        g = mean - reached
        in_stage += 1
        if not last and (error <= _STAGE_ERROR or in_stage >= _STAGE_ITERATIONS):
            after = max(epsilon, stage / _STAGE_FACTOR)
            g, stage, in_stage, kernel = g * (stage / after), after, 0, None
    q = np.exp(mean - mean.max())
    return arrays, q / q.sum(), error, iterations, error <= tolerance
