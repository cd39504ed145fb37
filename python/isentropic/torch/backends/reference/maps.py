"""Every map and its gradient: the formulas, on tensors. Only perturb_max's integral, which needs the noises' distribution
functions, is torch's own.
"""

import functools
import math

import numpy as np
import torch

from isentropic import _descriptions
from isentropic.formulas import compositions, maps
from isentropic.formulas.rows import below_most, canonical, carried, divided, has_none
from isentropic.torch._arguments import numbers_and_rows
from isentropic.torch._rows import ROWS, last
from isentropic.torch._spec import OPERATORS, absent, working

# The noises of perturb_max: log of the distribution function, of the density, their kinks, and the range outside of which
# nothing matters.


def _normal_log_density(t):
    return -t * t / 2 - 0.5 * math.log(2 * math.pi)


def _laplace_log_cdf(t):
    return torch.where(t < 0, t - math.log(2), torch.log1p(-torch.exp(-t.clamp(min=0)) / 2))


NOISES = {
    "normal": (torch.special.log_ndtr, _normal_log_density, (), -38.0, 9.5),
    "logistic": (
        torch.nn.functional.logsigmoid,
        lambda t: torch.nn.functional.logsigmoid(t) + torch.nn.functional.logsigmoid(-t),
        (),
        -60.0,
        50.0,
    ),
    "laplace": (_laplace_log_cdf, lambda t: -t.abs() - math.log(2), (0.0,), -60.0, 50.0),
    "exponential": (lambda t: torch.log(-torch.expm1(-t)), lambda t: -t, (0.0,), 0.0, 50.0),
    "uniform": (torch.log, lambda t: torch.zeros_like(t), (0.0, 1.0), 0.0, 1.0),
}
PANELS, NODES = 24, 24


def _integrand(x, params):
    """At Gauss-Legendre points u between the kinks, in float64: h = f/F at u - x, and the product of all F times the point's
    weight. O(n^2) points with kinks."""
    log_cdf, log_density, kinks, low, high = NOISES[params["noise"]]
    z = divided(ROWS, below_most(ROWS, x.double()), params["scale"]).nan_to_num(nan=0.0, posinf=0.0)
    present = z > torch.finfo(torch.float64).min
    z = torch.where(present, z, -1e300)
    most = z.amax(-1, keepdim=True)
    near = torch.maximum(z, most - 1000)  # still out of reach
    top = most + high + (math.log(z.shape[-1]) if high > 10 else 0.0)
    bottom = most + low
    ends = [bottom + (top - bottom) * k / PANELS for k in range(PANELS + 1)]
    ends += [torch.maximum(torch.minimum(near + kink, top), bottom) for kink in kinks]
    ends = torch.cat(ends, -1).sort(-1).values
    nodes, weights = (torch.as_tensor(a, device=x.device) for a in np.polynomial.legendre.leggauss(NODES))
    left, right = ends[..., :-1, None], ends[..., 1:, None]
    u = ((left + right) / 2 + (right - left) / 2 * nodes).flatten(-2)
    weight = ((right - left) / 2 * weights).flatten(-2)
    t = u[..., None, :] - near[..., :, None]
    inside = t > low
    if params["noise"] == "uniform":
        log_f = torch.where(inside, torch.log(torch.where(inside, t.clamp(max=1.0), 1.0)), -1e4)
        ratio = torch.where(inside & (t < 1), torch.exp(-log_f), 0.0)
    else:
        safe = torch.where(inside, t, 1.0)
        log_f = torch.where(inside, log_cdf(safe), -1e4)
        ratio = torch.where(inside, torch.exp(log_density(safe) - log_f), 0.0)
    present = present[..., None]
    return torch.where(present, ratio, 0.0), torch.exp(torch.where(present, log_f, 0.0).sum(-2)) * weight


def _perturb_max(rows, x, params):
    if params["noise"] == "gumbel":
        return compositions.softmax(rows, x, {"temperature": params["scale"]})
    x = canonical(rows, x)
    ratio, product = _integrand(x, params)
    p = (ratio @ product.unsqueeze(-1)).squeeze(-1)
    p = p / p.sum(-1, keepdim=True)
    return torch.where(has_none(rows, x), math.nan, p).to(x.dtype)


def _perturbed(rows, at, w):
    """The Jacobian in x / scale, which is symmetric, times w."""
    if at.params["noise"] == "gumbel":
        return maps.CORES["perturb_max"](rows, at, w)
    ratio, product = _integrand(at.x, at.params)
    w = carried(rows, at.p, w).double().unsqueeze(-1)
    pairs = ratio * (w * ratio.sum(-2, keepdim=True) - (w * ratio).sum(-2, keepdim=True))
    return torch.where(at.x.isinf(), at.p * 0, (pairs @ product.unsqueeze(-1)).squeeze(-1)).to(at.x.dtype)


FORWARD = {**compositions.FORWARD, "perturb_max": _perturb_max}
CORES = {"perturb_max": _perturbed}


def symmetric(description, *arguments):
    """Whether the Jacobian is symmetric with these parameters of the operator."""
    return description["symmetric"] and "probs" not in arguments


# As operators.


def call_map(name, x, params, dim):
    """A map by its operator, which uses a kernel if there is one; differentiable in x and in parameters that are tensors."""
    description = _descriptions.MAPS[name]
    numbers, rows = numbers_and_rows(description, (params[param["name"]] for param in description["params"]), "x", x, dim)
    return OPERATORS[name](x, *rows, *numbers, dim)


def _map(description, x, *arguments):
    count, dim = len(_descriptions.rows(description)), arguments[-1]
    params = _descriptions.named(description, last(dim, *arguments[:count]), arguments[count:-1])
    y = FORWARD[description["name"]](ROWS, *last(dim, working(x)), params)
    return y.movedim(-1, dim).to(x.dtype).contiguous()


def _vjp(description, x, *arguments):
    name, per_row = description["name"], _descriptions.per_row(description)
    rows, (y, grad, *values, dim) = arguments[: len(per_row)], arguments[len(per_row) :]
    rows = last(dim, *rows)
    params = _descriptions.named(description, rows, values)
    given = last(dim, working(x), working(y), working(grad))
    wanted = [param for param, row in zip(per_row, rows, strict=True) if row is not None]
    dx, slopes = _pulled(name, *given, params, wanted)
    dx = dx.movedim(-1, dim).to(x.dtype).contiguous()
    found = [slopes[param].double().movedim(-1, dim).contiguous() if param in slopes else absent(x) for param in per_row]
    return (dx, *found) if found else dx


def _pulled(name, x, y, grad, params, wanted):
    """(the gradient in x, those in parameters by name); what the formulas do not know is differentiated."""
    own = [param for param in wanted if maps.known(name, param)]
    if maps.known(name):
        dx, slopes = maps.pulled(ROWS, name, x, y, params, grad, own, CORES.get(name))
    else:
        dx, slopes = torch.func.vjp(lambda x: FORWARD[name](ROWS, x, params), x)[1](grad)[0], {}
    for param in (one for one in wanted if one not in own):
        back = torch.func.vjp(lambda row, param=param: FORWARD[name](ROWS, x, {**params, param: row}), params[param])[1]
        slopes[param] = back(grad)[0]
    return dx, slopes


_COMPOSED = {name: _descriptions.MAPS[name] for name in FORWARD}
IMPLEMENTATIONS = {name: functools.partial(_map, one) for name, one in _COMPOSED.items()}
IMPLEMENTATIONS |= {f"{name}_vjp": functools.partial(_vjp, one) for name, one in _COMPOSED.items()}
