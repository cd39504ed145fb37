"""Maps of this rank's part, and their derivatives: forward and vjp as in _calls."""

import math

import torch

from isentropic._descriptions import STATUSES
from isentropic.formulas import maps
from isentropic.torch.distributed import _searches
from isentropic.torch.distributed._entries import (
    INF,
    blocks,
    key_of,
    moments,
    relative,
    scratch,
    times_power,
    weighted,
    without_distribution,
)

CONSTANT, INVALID = STATUSES.index("constant"), STATUSES.index("invalid")

# softmax, and the maps that cut.


def softmax(call, x, temperature):
    (top,) = call.largest(x)
    total = call.fixed.total(call.group.join(moments(x, top, temperature, call.fixed, 1)[:, 0], "sum"))
    return weighted(x, top, temperature, torch.where(without_distribution(top), math.nan, 1 / total)), top


def _softmax_forward(call):
    return softmax(call, call.x, call.temperature())


def _cut_forward(call):
    cut = _searches.CUTS[call.spec["map"].removesuffix("_softmax")]
    found = cut(call, call.x, next(iter(call.params.values())), call.temperature())
    y = weighted(call.x, found.top, call.temperature(), torch.where(without_distribution(found.top), math.nan, 1 / found.total))
    return y.mul_(found.kept), found.top


def _top_k_forward(call):
    values, at, top = _searches.top_k(call, call.x, call.params["k"])
    temperature = call.temperature()
    e = relative(values, top, temperature).exp_()
    total = call.fixed.total(call.fixed.of(e.double() * 1.0))
    p, inside = e / total, (at >= 0) & (at < call.x.shape[1])
    y = torch.where(without_distribution(top), math.nan, 0.0).to(call.x.dtype).expand(call.x.shape).contiguous()
    return (y.scatter_add_(1, torch.where(inside, at, 0), torch.where(inside, p, 0.0).to(y.dtype)) if y.shape[1] else y), top


def _entmax_forward(call):
    alpha = call.params.get("alpha", 2.0)
    if alpha == 1 if not isinstance(alpha, torch.Tensor) else False:
        return _softmax_forward(call)
    found = _searches.threshold(call, call.x, alpha, call.temperature())
    return found.written(call.x), found.top


def _entropy_forward(call):
    low, high = (*call.params.values(), None)[:2]
    found = _searches.gamma(call, call.x, low, low if high is None else high)
    return found.written(), found.values()


FORWARD = {
    "softmax": _softmax_forward,
    "top_k_softmax": _top_k_forward,
    "top_p_softmax": _cut_forward,
    "min_p_softmax": _cut_forward,
    "sparsemax": _entmax_forward,
    "entmax": _entmax_forward,
    "entropy_normalize": _entropy_forward,
    "entropy_clip": _entropy_forward,
}


def map_forward(call):
    if call.spec["map"] not in FORWARD:
        raise NotImplementedError(f"{call.spec['map']}: there is no such map for rows over ranks")
    return FORWARD[call.spec["map"]](call)


# Derivatives of maps. C is that of formulas.maps; here sums are exchanged, and what is known of rows need not be asked again.


def _alpha(call):
    return call.params.get("alpha", 2.0 if call.spec["map"] == "sparsemax" else 1.0)


def _slopes(call, p, rows, memory):
    """What C of the map is made of (formulas.maps.centred), of entries of these rows; p itself for the maps of softmax."""
    alpha = _alpha(call)
    if not isinstance(alpha, torch.Tensor) and alpha in (1.0, 1.5, 2.0):
        out = memory[: len(p)]
        return p if alpha == 1 else torch.sqrt(p, out=out) if alpha == 1.5 else torch.sign(p, out=out)
    return maps.entmax_slopes(call.in_rows, p, alpha[rows] if isinstance(alpha, torch.Tensor) else alpha)


def _few_with_mass(p):
    """The places of entries that are not 0, if they are few: they are looked for in the blocks that have some."""
    flat, size = p.view(-1), 64
    tail = len(flat) // size * size
    some = flat[:tail].view(-1, size).amax(1).nonzero()
    if 8 * size * len(some) > tail:
        return None
    at = torch.cat([(some * size + torch.arange(size)).view(-1), torch.arange(tail, len(flat))])
    return at[flat[at] != 0]


def _centred(call, p, g, top):
    """s (g - <s, g> / sum s) / T. An entry without mass has no part, and is not read; nor are those beside +inf."""
    alpha = _alpha(call)
    small = not isinstance(alpha, torch.Tensor) and alpha <= 2  # slopes are at most 1
    softmax = small and alpha == 1  # and they sum to 1
    least = torch.where(top == INF, INF, 0.0).to(p.dtype)
    # On a CPU it pays to look at the few entries with mass alone. These are then rows of one entry.
    at = few = _few_with_mass(p) if small and call.reads else None
    if few is not None:
        at, dx = few // max(p.shape[1], 1), torch.zeros_like(p)
        p, g, least = p.view(-1)[few, None], g.view(-1)[few, None], least[at]
    kept, zero, most = torch.empty_like(p), p.new_zeros(()), top.new_zeros((len(p), 1))
    memory, own_slopes = scratch(p, p.dtype), scratch(p, p.dtype)
    for some in blocks(p) if p.shape[1] else ():
        own = torch.where(p[some] > least[some], g[some], zero, out=kept[some])
        most[some] = torch.abs(own, out=memory[: len(own)]).amax(1, keepdim=True).double()

    def terms(some):
        s = _slopes(call, p[some], some, own_slopes)
        yield torch.mul(s, kept[some], out=memory[: len(s)])
        if not softmax:
            yield s

    if small:
        most = most if at is None else call.number(0.0).index_reduce_(0, at, most, "amax")
        mean, *total = call.in_units(call.join_first(key_of(most), "max"), terms, 0 if softmax else 1, p, at)
    else:
        mean, *total = call.sums_of(terms, 2)
    for one in total:
        mean = mean / torch.where(one == 0, 1.0, one)
    mean, temperature = torch.where(without_distribution(top), math.nan, mean).to(p.dtype), call.temperature()
    if at is not None:
        mean, temperature = mean[at], temperature if temperature is None else temperature[at]
    for some in blocks(p):
        own = kept[some].sub_(mean[some]).mul_(_slopes(call, p[some], some, own_slopes))
        own = own if temperature is None else own.div_(temperature[some].to(p.dtype))
        own.add_(0.0)  # no -0
    if few is None:
        return kept
    dx.view(-1)[few] = kept[:, 0]
    return dx


_OF_PARTS = ("softmax", "top_k_softmax", "top_p_softmax", "min_p_softmax", "sparsemax", "entmax")
# Maps that bring a row to an entropy, and whether they do so only outside of bounds.
SOLVES = {"entropy_normalize": False, "entropy_clip": True}


def map_vjp(call, y, values, gy, gvalues):
    name = call.spec["map"]
    if name in SOLVES:
        at = _AtEntropy(call, y, values, gy)
        dx = at.gradient(bounds=list(call.params.values()) if SOLVES[name] else None)
    elif name in _OF_PARTS:
        dx = _centred(call, y, gy, values[:, 0:1])
    else:
        raise NotImplementedError(f"{name}: there is no gradient for rows over ranks")
    slopes = []
    for param in call.own:
        value = call.params[param]
        if param == "temperature":  # y is a function of x / T, and dx sums to 0
            below = torch.where(dx == 0, 0.0, relative(call.x, values[:, 0:1], value))
            slopes += call.sums(-dx.double() * below)
        elif param == "alpha":
            by_alpha = maps.entmax_by_alpha(call.in_rows, y.double(), value)
            slopes += call.sums(torch.where(y == 0, 0.0, gy.double()) * by_alpha)
        else:
            slopes.append(at.slope(met_at=value if SOLVES[name] else None))
    return dx, torch.cat(slopes, 1) if slopes else None


class _AtEntropy:
    """What derivatives of softmax(gamma x) at an entropy are made of: z = gamma (x - max), the variance of z, and the
    covariance of z with g, under p."""

    def __init__(self, call, y, values, g):
        self.call, self.y, (self.gamma, self.reached, self.status, self.top, _) = call, y, values.split(1, 1)
        self.exists = (self.status < CONSTANT) & self.gamma.isfinite() & (self.gamma > 0)
        # gamma as a power of 2 and a number near 1, neither of which leaves the range of x's type.
        factor, power = torch.frexp(torch.where(self.exists, 2 * self.gamma.clamp(max=1e307), 1.0))
        power = power.clamp(-140, 120) if y.dtype is torch.float32 else power.clamp(-1020, 1020)
        self.power, self.factor = times_power(torch.ones_like(factor), power).to(y.dtype), factor.to(y.dtype)
        self.g, self.memory, zero = torch.empty_like(y), [scratch(y, y.dtype) for _ in range(2)], g.new_zeros(())
        most, least = self.call.number(0.0), torch.where(self.top.isfinite(), 0.0, INF).to(y.dtype)
        for some in blocks(y) if y.shape[1] else ():
            own = torch.where(y[some] > least[some], g[some], zero, out=self.g[some])
            most[some] = own.abs().amax(1, keepdim=True).double()
        most = call.join_first(key_of(most), "max").expand(-1, 2)
        self.mean_g, pzg, self.mean, pzz = call.in_units(most.contiguous(), self._terms, free=2)
        self.variance, self.covariance = pzz - self.mean**2, pzg - self.mean * self.mean_g

    def block(self, some):
        """(p, z, memory of a block)."""
        p, (z, one) = self.y[some], (one[: len(self.y[some])] for one in self.memory)
        torch.mul(self.call.x[some], 0.5, out=z).sub_(0.5 * self.top[some].to(p.dtype))
        z.mul_(self.power[some]).mul_(self.factor[some]).clamp_(min=-1e4)
        return p, torch.nan_to_num(z, out=z), one

    def _terms(self, some):
        p, z, one = self.block(some)
        yield torch.mul(p, self.g[some], out=one)
        yield one.mul_(z)
        yield torch.mul(p, z, out=one)
        yield one.mul_(z)

    def gradient(self, of_gamma=0.0, of_entropy=0.0, bounds=None):
        """p (a (g - mean g) + b (z - mean z)), with numbers of each row. Where gamma is at an end of its range, the entropy is
        that of softmax(gamma x)."""
        gamma, ok, there = self.gamma, self.status == 0, self.exists & (self.status == 0)
        of_g = torch.where(there, gamma, 0.0)
        of_z = torch.where(there, -(gamma * self.covariance + of_gamma * gamma * gamma) / self.variance, 0.0)
        of_z = torch.where(self.exists & ~ok, -gamma * of_entropy, of_z)
        if bounds is not None:
            # Softmax itself, if its entropy is inside. That of equal scores may be held at an end, and does not change there.
            tolerance = 1e-6 if self.call.x.dtype is torch.float32 else 1e-12
            low, high = (one if isinstance(one, torch.Tensor) else self.call.number(one) for one in bounds)
            inside = (self.reached > low + tolerance * low.clamp(min=1)) & (self.reached < high - tolerance * high.clamp(min=1))
            itself = ((gamma == 1) & ok) | ((self.status == CONSTANT) & self.top.isfinite() & inside)
            of_g, of_z = torch.where(itself, 1.0, of_g), torch.where(itself, 0.0, of_z)
        constant = -of_g * torch.where(of_g == 0, 0.0, self.mean_g) - of_z * torch.where(of_z == 0, 0.0, self.mean)
        constant = torch.where(self.status == INVALID, math.nan, constant)
        dx = torch.empty_like(self.y)
        of_z, constant, of_g = (one.to(dx.dtype) for one in (of_z, constant, of_g))
        for some in blocks(dx):
            p, z, _ = self.block(some)
            torch.mul(self.g[some], of_g[some], out=dx[some])
            dx[some].add_(z.mul_(of_z[some])).add_(constant[some]).mul_(p)
        return dx

    def slope(self, met_at=None):
        """In the entropy: dp / dH = -u / variance, if p has the entropy, and if a bound is met, in that bound."""
        slope = -self.covariance / self.variance
        there = self.exists & (self.status == 0) & slope.isfinite()
        if met_at is not None:
            there &= (self.gamma != 1) & ((self.reached - met_at).abs() <= 1e-3 * met_at.clamp(min=1e-3))
        return torch.where(self.status == INVALID, math.nan, torch.where(there, slope, 0.0))


def gamma_forward(call):
    spec = call.spec
    found = _searches.gamma(call, call.x, spec["entropy"], spec["entropy"], (spec["low"], spec["high"]), spec["iterations"])
    return found.written(), found.values()


def gamma_vjp(call, y, values, gy, gvalues):
    at = _AtEntropy(call, y, values, torch.zeros_like(y))
    return at.gradient(gvalues[:, 0:1], gvalues[:, 1:2]), None
