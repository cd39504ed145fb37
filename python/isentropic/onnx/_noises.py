"""perturb_max with other noises than Gumbel's: the integral of its probabilities at fixed points, in float64.

p_i = int f(u - x_i) prod_{j != i} F(u - x_j) du, by Gauss-Legendre quadrature between the kinks of F.
"""

import math

import numpy as np
import torch

PANELS, NODES = 24, 24
_TERMS = 28


def _points(like):
    """Nodes and weights of Gauss-Legendre quadrature: they lie symmetrically."""
    half = [values[NODES // 2 :].tolist() for values in np.polynomial.legendre.leggauss(NODES)]
    nodes, weights = (torch.stack([like.new_full((), value) for value in values]) for values in half)
    return torch.cat([-nodes, nodes]), torch.cat([weights, weights])


def _chebyshev():
    """log erfc(z) + z^2 as a series in 4/(2 + z) - 1, for z from 0."""

    def scaled(s):
        z = 4 / (s + 1) - 2
        if z < 20:
            return math.log(math.erfc(z)) + z * z
        terms, term = 1.0, 1.0
        for k in range(1, 12):
            term *= -(2 * k - 1) / (2 * z * z)
            terms += term
        return math.log(terms / (z * math.sqrt(math.pi)))

    # Points of the second kind would need z = infinity. A factor removes the singularity of log z there.
    def smooth(s):
        return scaled(s) - math.log((s + 1) / 2)

    return np.polynomial.chebyshev.chebinterpolate(np.vectorize(smooth), _TERMS - 1)


def _log_ndtr(t):
    z = t.abs() * math.sqrt(0.5)
    half = 2 / (2 + z)
    s = 2 * half - 1
    later, last = torch.zeros_like(s), torch.zeros_like(s)
    series = _chebyshev()
    twice = 2 * s
    for value in series[:0:-1]:
        later, last = twice * later - last + float(value), later
    log_erfc = s * later - last + float(series[0]) + half.log() - z * z
    below = log_erfc - math.log(2)
    return torch.where(t < 0, below, torch.log(1 - torch.exp(below)))


def _logistic(t):
    """log F, without overflow."""
    return t.clamp(max=0.0) - torch.log(1 + torch.exp(-t.abs()))


def _laplace(t):
    half = torch.exp(-t.abs()) / 2
    return torch.where(t < 0, t - math.log(2), torch.log(1 - half))


# log F, log f, the kinks of F, and the range outside of which nothing matters.
NOISES = {
    "normal": (_log_ndtr, lambda t: -t * t / 2 - 0.5 * math.log(2 * math.pi), (), -38.0, 9.5),
    "logistic": (_logistic, lambda t: _logistic(t) + _logistic(-t), (), -60.0, 50.0),
    "laplace": (_laplace, lambda t: -t.abs() - math.log(2), (0.0,), -60.0, 50.0),
    "exponential": (lambda t: torch.log(1 - torch.exp(-t)), lambda t: -t, (0.0,), 0.0, 50.0),
    "uniform": (torch.log, lambda t: 0 * t, (0.0, 1.0), 0.0, 1.0),
}


def perturb_max(z, params):
    """perturb_max of scores in units of the noise's scale, along the last axis. The largest is 0; absent ones are -inf."""
    log_cdf, log_density, kinks, low, high = NOISES[params["noise"]]
    present = z > -math.inf
    near = torch.where(present, z, 0.0).clamp(min=-1000.0)
    count = torch.ones_like(z).sum(-1, keepdim=True)
    top = count.log() + high if high > 10 else 0 * count + high
    bottom = 0 * count + low
    grid = torch.arange(PANELS + 1, device=z.device).double() / PANELS
    ends = [bottom + (top - bottom) * grid]
    ends += [torch.minimum(torch.maximum(near + kink, bottom), top) for kink in kinks]
    ends, _ = torch.sort(torch.cat(ends, -1), dim=-1)
    nodes, weights = _points(z)
    left, right = ends[..., :-1].unsqueeze(-1), ends[..., 1:].unsqueeze(-1)
    u = ((left + right) / 2 + (right - left) / 2 * nodes).flatten(-2)
    weight = ((right - left) / 2 * weights).flatten(-2)
    t = u.unsqueeze(-2) - near.unsqueeze(-1)
    inside = t > low
    if params["noise"] == "uniform":
        inside_both = inside & (t < 1.0)
        log_f = torch.where(inside, torch.log(torch.where(inside, t.clamp(max=1.0), 1.0)), -1e4)
        log_ratio = torch.where(inside_both, -log_f, -1e4)
    else:
        safe = torch.where(inside, t, 1.0)
        log_f = torch.where(inside, log_cdf(safe), -1e4)
        log_ratio = torch.where(inside, log_density(safe) - log_f, -1e4)
    here = present.unsqueeze(-1)
    total = torch.where(here, log_f, 0.0).sum(-2, keepdim=True)
    p = torch.where(here, torch.exp(log_ratio + total) * weight.unsqueeze(-2), 0.0).sum(-1)
    return p / p.sum(-1, keepdim=True)
