"""Sinkhorn's iteration on a device, by the row kernels of logsumexp and softmax.

With X_ij = g_j + epsilon log b_j - C_ij the potentials are f = -logsumexp of X's rows, and g those of its columns' counterpart,
at the temperature epsilon. Both are rows of a matrix, so an iteration is two sums and two calls of the kernel, and the error of
its marginals is what g changes by. It is all in float64: potentials are some hundred epsilon, and the error should be small.

Each problem has its own epsilon, which falls as on the CPU, and stays as it is once it has converged. Only the host can end the
loop: it waits for the device once in every CHECK iterations, to learn whether all problems have converged.
"""

import functools
import math

import torch

import isentropic._core as _core
from isentropic.torch._spec import HALVES, result_type

CHECK = 32  # iterations
_ROUNDING = 2.0**-50  # eight times that of one operation in float64
_STAGE_FACTOR, _STAGE_ERROR, _STAGE_ITERATIONS = 4.0, 0.05, 20  # as in src/transport/sinkhorn.cc


def finished(converged):
    """Whether all problems have converged. The host waits for the device."""
    return bool(converged.all())


class _Problems:
    """Problems with equally many leading axes, in float64."""

    def __init__(self, implementation, a, b, cost, mass_tolerance):
        self.dtype = functools.reduce(torch.promote_types, map(result_type, (a, b, cost)))
        lead = torch.broadcast_shapes(a.shape[:-1], b.shape[:-1], cost.shape[:-2])
        self.a, self.b = (x.to(torch.float64).expand(*lead, x.shape[-1]) for x in (a, b))
        self.cost = cost.to(torch.float64).expand(*lead, *cost.shape[-2:]).contiguous()
        self.turned = self.cost.mT.contiguous()
        self._logsumexp, self._softmax = implementation("logsumexp"), implementation("softmax")
        self.mass = self.a.sum(-1)
        size = 2 if any(x.dtype in HALVES for x in (a, b, cost)) else self.dtype.itemsize
        self.good = self._good(_core.sum_tolerance[size] if mass_tolerance is None else mass_tolerance)
        self.b = self.b * (self.mass / self.b.sum(-1))[..., None]
        self.log_a, self.log_b = self.a.log(), self.b.log()
        self.symmetric = None
        if self.a.shape == self.b.shape:
            self.symmetric = (self.a == self.b).all(-1) & (self.cost == self.turned).all((-2, -1))

    def _good(self, allowed):
        """Problems that the CPU would not refuse."""
        of_b, finite = self.b.sum(-1), self.cost < math.inf
        good = ~(self.cost.isnan() | (self.cost == -math.inf)).any(-1).any(-1)
        for x, total in ((self.a, self.mass), (self.b, of_b)):
            good &= (x >= 0).all(-1) & (total > 0) & (total < math.inf)
        good &= (self.mass - of_b).abs() <= allowed * torch.maximum(self.mass, of_b)
        rows = (finite & (self.b > 0)[..., None, :]).any(-1)
        columns = (finite & (self.a > 0)[..., None]).any(-2)
        return good & rows.all(-1) & (columns | (self.b == 0)).all(-1)

    def rows(self, g, epsilon):
        """g_j + epsilon log b_j - C_ij."""
        return (g + epsilon[..., None] * self.log_b)[..., None, :] - self.cost

    def _potential(self, scores, epsilon):
        temperatures = epsilon[..., None, None].expand(*scores.shape[:-1], 1)
        return -self._logsumexp(scores, temperatures, 1.0, scores.dim() - 1)[..., 0]

    def f(self, g, epsilon):
        return self._potential(self.rows(g, epsilon), epsilon)

    def g(self, f, epsilon):
        return self._potential((f + epsilon[..., None] * self.log_a)[..., None, :] - self.turned, epsilon)

    def plan(self, g, epsilon):
        """The plan of g, and of the f that makes the sums of its rows exact."""
        scores = self.rows(g, epsilon)
        temperatures = epsilon[..., None, None].expand(*scores.shape[:-1], 1)
        return self.a[..., None] * self._softmax(scores, temperatures, 1.0, scores.dim() - 1)

    def error(self, g, after, epsilon):
        """What the sums of columns differ by: a column has b_j e^((g_j - after_j) / epsilon)."""
        apart = torch.where(self.b > 0, (g - after) / epsilon[..., None], 0)
        return (self.b * torch.expm1(apart)).abs().sum(-1) / self.mass

    def nearer(self, f, g, after):
        """The next g. Where f = g at the solution, the mean of both is nearer, unless the plan has little mass on its diagonal:
        see correct_symmetric in src/transport/sinkhorn.cc."""
        if self.symmetric is None:
            return after
        apart, moved = (torch.where(self.b > 0, x - g, 0) for x in (f, after))
        along, own = ((self.b * x * apart).sum(-1) for x in (moved, apart))
        return torch.where((self.symmetric & (along <= own))[..., None], (f + after) / 2, after)

    def or_nan(self, x):
        good = self.good.reshape((*self.good.shape, *[1] * (x.dim() - self.good.dim())))
        return torch.where(good, x, math.nan)


def _solve(problems, epsilon, tolerance, max_iterations):
    """(f, g, column sums' potential, error, iterations, converged)."""
    target = torch.full_like(problems.mass, epsilon)
    largest = torch.where(problems.cost < math.inf, problems.cost.abs(), 0).amax((-2, -1))
    now = torch.maximum(target, largest)
    g = torch.zeros_like(problems.b)
    f = torch.zeros_like(problems.a)
    done = ~problems.good
    iterations, in_stage = torch.zeros_like(problems.mass, dtype=torch.int64), torch.zeros_like(target)
    for turn in range(max_iterations):
        found = problems.f(g, now)
        after = problems.g(found, now)
        error = problems.error(g, after, now)
        iterations += ~done
        in_stage += 1
        last = now <= target
        f = torch.where(done[..., None], f, found)
        done = done | (last & (error <= tolerance))
        # A problem that has converged keeps the g of its f.
        g = torch.where(done[..., None] | (problems.b == 0), g, problems.nearer(found, g, after))
        ended = ~last & ((error <= _STAGE_ERROR) | (in_stage > _STAGE_ITERATIONS))
        now = torch.where(ended, torch.maximum(target, now / _STAGE_FACTOR), now)
        in_stage = torch.where(ended, 0, in_stage)
        if (turn + 1) % CHECK == 0 and finished(done):
            break
    # Problems that were stopped early have the wanted epsilon too.
    f = torch.where(done[..., None], f, problems.f(g, target))
    after = problems.g(f, target)
    return f, g, after, problems.error(g, after, target), iterations, done & problems.good


def _found(implementation, a, b, cost, epsilon, tolerance, max_iterations, mass_tolerance):
    problems = _Problems(implementation, a, b, cost, mass_tolerance)
    f, g, after, error, iterations, converged = _solve(problems, epsilon, tolerance, max_iterations)
    plan = problems.plan(g, torch.full_like(problems.mass, epsilon))
    g = torch.where(problems.b > 0, g, after)
    return problems, plan, f, g, error, iterations, converged


def _cost_of(plan, cost):
    return torch.where(plan > 0, plan * torch.where(plan > 0, cost, 0), 0).sum((-2, -1))


def _value(a, f):
    return torch.where(a > 0, a * torch.where(a > 0, f, 0), 0).sum(-1)


def sinkhorn(implementation, a, b, cost, epsilon, *limits):
    """The operator of this name."""
    problems, plan, f, g, error, iterations, converged = _found(implementation, a, b, cost, epsilon, *limits)
    # A feasible plan: columns that are too full are reduced, and what rows and columns then lack is spread.
    a, b, cost = problems.a, problems.b, problems.cost
    sums = plan.sum(-2)
    keep, lack = torch.where(sums > b, b / sums, 1), (b - sums).clamp(min=0)
    kept, lacking = plan * keep[..., None, :], lack.sum(-1, keepdim=True)
    share = lack / torch.where(lacking > 0, lacking, 1)
    spread = torch.where(share[..., None, :] > 0, share[..., None, :] * cost, 0).sum(-1)
    missing = (a - kept.sum(-1)).clamp(min=0)
    missing = torch.where((missing > 2.0**-50 * a) & (lacking > 0), missing * spread, 0).sum(-1)
    upper = _cost_of(kept, cost) + missing
    # Potentials with f_i + g_j <= C_ij: g from f, and f from that g.
    low_g = torch.where(a[..., None] > 0, cost - f[..., None], math.inf).amin(-2)
    low_f = torch.where(b[..., None, :] > 0, cost - low_g[..., None, :], math.inf).amin(-1)
    lower = _value(a, low_f) + _value(b, low_g)
    # What rounding may have changed, as in src/transport/sinkhorn.cc; here sums are plain ones.
    rounding = _ROUNDING * (a.shape[-1] + b.shape[-1] + 20)
    largest = torch.where(cost < math.inf, cost.abs(), 0).amax((-2, -1))
    upper = _toward(upper + rounding * problems.mass * largest, math.inf, problems.dtype)
    lower = lower - rounding * (_value(a, low_f.abs()) + _value(b, low_g.abs()))
    lower = torch.minimum(_toward(lower, -math.inf, problems.dtype), upper)
    numbers = (_cost_of(plan, cost), plan, f, g, error, lower, upper)
    return *(problems.or_nan(x).to(problems.dtype) for x in numbers), iterations, converged


def _toward(x, limit, dtype):
    """A bound in this type, rounded toward the limit."""
    found = x.to(dtype)
    wide = found.to(x.dtype)
    past = wide < x if limit > 0 else wide > x
    return torch.where(past, found.nextafter(torch.full_like(found, limit)), found)


def sinkhorn_minimum(implementation, a, b, cost, epsilon, *limits):
    """The operator of this name."""
    problems, plan, f, g, *_ = _found(implementation, a, b, cost, epsilon, *limits)
    value = _value(problems.a, f) + _value(problems.b, g)
    return tuple(problems.or_nan(x).to(problems.dtype) for x in (value, plan, f, g))
