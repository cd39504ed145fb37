"""token_statistics on the CPU: rows are read once, some at a time, and all intermediate results stay in the cache."""

import torch

from isentropic.torch._spec import absent, result_type
from isentropic.torch.backends.reference.token_statistics import limit_of, split, statistics, statistics_vjp, top_indices

_PART = 1 << 18  # numbers
_NOTHING = -1e4  # instead of -inf: its exponential is 0, and so are products with it


def _parts(x, target, rows, dim):
    """(slice, rows of x in the type of the computation, their classes, their temperatures or None), part by part.

    Rows are contiguous: the order of their sums, and so the bits, does not depend on the batch.
    """
    n = x.shape[dim]
    flat, classes = x.movedim(dim, -1).reshape(-1, n), target.reshape(-1)
    temperatures = None if rows is None else rows.reshape(-1, 1)
    step = max(1, _PART // max(1, n))
    for begin in range(0, len(flat), step):
        part = slice(begin, begin + step)
        wide = flat[part].to(result_type(x)).contiguous()
        yield part, wide, classes[part].unsqueeze(1), None if rows is None else temperatures[part]


class _Divisor:
    """T of the rows, as numbers in the type of the computation."""

    def __init__(self, temperature, per_row, dtype):
        s, t = split(temperature if per_row is None else per_row, dtype)
        self.some = torch.is_tensor(s)
        self.ordinary = bool((s == 1).all()) if self.some else s == 1
        self.s, self.t = (s.to(dtype), t.to(dtype)) if self.some else (s, t)

    def of(self, wide):
        """wide / T, in its place."""
        wide = wide if self.ordinary else wide.mul_(self.s)
        return wide if not self.some and self.t == 1 else wide.div_(self.t)

    def of_difference(self, wide, largest):
        """(wide - largest) / T. Of a hot temperature the difference of quotients, which cannot leave the range."""
        if self.ordinary:
            return self.of(wide - largest)
        less = self.s.clamp(max=1) if self.some else min(self.s, 1.0)
        return (wide * less - largest * less).mul_(self.s / less).div_(self.t)


def _total(e):
    """Sums of rows that contain a 1. If the rest is small, its digits matter and the sum is in float64."""
    total = e.sum(1, keepdim=True).double()
    sure = (total < 2).squeeze(1).nonzero().squeeze(1)
    if len(sure):
        total[sure] = e[sure].sum(1, keepdim=True, dtype=torch.float64)
    return total


def _odd(largest):
    """The rows whose largest logit is not finite, or so large that a difference may not be: a few by the definition, in
    float64."""
    moderate = (largest.isfinite() & (largest <= limit_of(largest.dtype))).squeeze(1)
    return (~moderate).nonzero().squeeze(1)


def check_classes(name, target, n):
    wrong = (target < 0) | (target >= n)
    if wrong.any():
        row = int(wrong.reshape(-1).nonzero()[0])
        raise ValueError(f"{name}: target must be a class from 0 to {n - 1}, got {int(target.reshape(-1)[row])} in row {row}")


def _top_indices(x, top, dim):
    """As of the reference, which reads a row several times: only for rows in which topk had a choice."""
    n = x.shape[dim]
    if top == 0 or x.numel() == 0:
        return top_indices(x, top, dim)
    moved = x.movedim(dim, -1)
    flat = moved.reshape(-1, n)
    values, found = flat.topk(top)
    found, order = found.sort()
    order = values.gather(1, order).sort(dim=1, descending=True, stable=True).indices
    found = found.gather(1, order)
    last = values[:, -1:]
    chosen = ((flat == last).sum(1) == (values == last).sum(1)) & ~values[:, 0].isnan()
    again = (~chosen).nonzero().squeeze(1)
    found[again] = top_indices(flat[again], top, 1)
    return found.view(*moved.shape[:-1], top)


def _statistics(x, target, rows, temperature, top, dim):
    check_classes("token_statistics", target, x.shape[dim])
    found = torch.empty(target.numel(), 4, dtype=result_type(x))
    for part, wide, classes, per_row in _parts(x, target, rows, dim):
        largest = wide.amax(1, keepdim=True)
        divisor = _Divisor(temperature, per_row, wide.dtype)
        z = divisor.of_difference(wide, largest)
        own = z.gather(1, classes)
        e = z.clamp_(min=_NOTHING).exp()
        total = _total(e)
        log_total = total.log()
        mean = e.mul_(z).sum(1, keepdim=True) / total
        found[part] = torch.cat([own - log_total, log_total - mean, 1 / total, largest], 1).to(found.dtype)
        odd = _odd(largest)
        if len(odd):
            given = wide[odd].double(), classes[odd, 0], None if per_row is None else per_row[odd].double()
            found[part][odd] = statistics(*given, temperature, 0, 1)[0].to(found.dtype)
    return found.view(*target.shape, 4), _top_indices(x, top, dim)


def _statistics_vjp(x, target, rows, known, grad, temperature, top, dim):
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    along = dx.movedim(dim, -1)
    flat = along.view(-1, x.shape[dim]) if along.is_contiguous() else torch.empty(target.numel(), x.shape[dim], dtype=x.dtype)
    known, grad = known.reshape(-1, 4), grad.reshape(-1, 4).to(result_type(x))
    slopes = None if rows is None else torch.empty(target.numel(), 1, dtype=torch.float64)
    for part, wide, classes, per_row in _parts(x, target, rows, dim):
        _, entropy, largest_p, largest = known[part].unsqueeze(2).unbind(1)
        of_logprob, of_entropy = (grad[part, k, None] for k in (0, 1))
        odd = _odd(largest)
        given = wide[odd].double()
        divisor = _Divisor(temperature, per_row, wide.dtype)
        z = divisor.of_difference(wide, largest).clamp_(min=_NOTHING)
        d = torch.addcmul(of_logprob + of_entropy * (entropy + largest_p.log()), z, of_entropy)
        d *= z.exp() if rows is not None else z.exp_()
        d *= -largest_p
        there = wide.gather(1, classes) > -torch.inf
        d.scatter_add_(1, classes, torch.where(there, of_logprob, 0.0))
        if rows is not None:
            slopes[part] = -d.mul(z).sum(1, keepdim=True, dtype=torch.float64) / per_row
        flat[part] = divisor.of(d)
        if len(odd):
            of_odd = None if per_row is None else per_row[odd].double()
            arguments = given, classes[odd, 0], of_odd, None, grad[part][odd].double(), temperature, 0, 1
            d, slope = statistics_vjp(*arguments)
            flat[part][odd] = d.to(x.dtype)
            if rows is not None:
                slopes[part][odd] = slope
        asked = (of_logprob != 0) | (of_entropy != 0)  # a row whose incoming gradient is 0 may have NaN
        if not asked.all():
            flat[part] = torch.where(asked, flat[part], 0.0)
            if rows is not None:
                slopes[part] = torch.where(asked, slopes[part], 0.0)
    if not along.is_contiguous():
        along.copy_(flat.view(along.shape))
    return dx, absent(x) if rows is None else slopes.view(rows.shape)


IMPLEMENTATIONS = {"token_statistics": _statistics, "token_statistics_vjp": _statistics_vjp}
