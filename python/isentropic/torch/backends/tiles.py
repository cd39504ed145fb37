"""Attention on a device: torch's matrix products and the maps' row kernels, for a tile of queries at a time.

The scores of a tile are in memory between the products and the map, never more. A kernel that fused all three would read and
write them less often, but it would need a product of its own for each architecture. With these products a tile costs about as
much time in them as in the map, both are on torch's stream, and the map has the bits that it has for any rows.

Products are those of torch in float32 or float64, so torch's setting for TF32 holds. No number is read on the host.
"""

import math
from typing import NamedTuple

import torch

from isentropic import _descriptions
from isentropic._attention import BY_N, shape_of
from isentropic.formulas import attention as formulas
from isentropic.torch._spec import absent, result_type

SCORES = 1 << 24  # of a tile: 64 MiB of float32


class _Tile(NamedTuple):
    """Some queries of some heads."""

    batch: slice
    heads: slice  # of keys and values
    queries: slice
    keys: int  # the first ones, as many as some query may see


class _Scores(NamedTuple):
    """The scores of a tile, and what its gradients need."""

    scores: torch.Tensor  # scaled, with -inf for keys that are not seen; then those of sinks
    factor: torch.Tensor | float  # of the products
    some: torch.Tensor | None  # the queries that see a key; None: all do
    tanh: torch.Tensor | None  # of the scores over softcap


class _Problem:
    """Tensors of attention's operator as (batch, heads of keys, queries' heads of each, rows, columns), and what their scores
    need. `implementation(name)` gives the operator of a map."""

    def __init__(self, implementation, q, k, v, mask, rows, name, names, values, row_names, *scaling):
        self.implementation, self.name, self.names = implementation, name, (names, values, row_names)
        self.scale, self.number, self.train_length, self.kappa, self.causal, self.softcap = scaling
        self.shape = shape = shape_of("attention", q.shape, k.shape, v.shape)
        self.type, self.device, self.d, self.dv = result_type(q), q.device, q.shape[-1], v.shape[-1]
        self.m, self.n, self.kv = shape.queries, shape.keys, shape.kv_heads
        self.count, self.group = math.prod(shape.batch), shape.heads // max(shape.kv_heads, 1)
        self.q = q.expand(*shape.batch, shape.heads, self.m, self.d).reshape(*self._lead, self.m, self.d)
        self.k, self.v = (
            x.expand(*shape.batch, self.kv, self.n, x.shape[-1]).reshape(self.count, self.kv, self.n, x.shape[-1])
            for x in (k, v)
        )
        self.mask = None if mask is None else self._broadcast(mask)
        self.rows = None if rows is None else rows.reshape(*self._lead, self.m, rows.shape[-1])

    @property
    def _lead(self):
        return self.count, self.kv, self.group

    def _broadcast(self, mask):
        """The mask with five axes; those along which it is the same have size 1, so that it is not copied."""
        shape = self.shape
        own = mask.reshape(*[1] * (len(shape.batch) + 3 - mask.dim()), *mask.shape)
        batch, heads = own.shape[:-3], own.shape[-3]
        if any(size != 1 for size in batch):
            own = own.expand(*shape.batch, *own.shape[-3:]).reshape(self.count, *own.shape[-3:])
        else:
            own = own.reshape(1, *own.shape[-3:])
        return own.unflatten(1, (1, 1) if heads == 1 else (self.kv, self.group))

    def tiles(self):
        """Tiles of at most SCORES scores, or of one query of one head of keys."""
        of_head = max(self.group * self.m * self.n, 1)
        heads = max(SCORES // of_head, 1)
        at_once = max(heads // max(self.kv, 1), 1)
        queries = max(SCORES // max(self.group * self.n, 1), 1)
        for b in range(0, self.count, at_once):
            for h in range(0, self.kv, heads):
                for i in range(0, self.m, queries):
                    end = min(i + queries, self.m)
                    keys = min(max(end + self.n - self.m, 0), self.n) if self.causal else self.n
                    yield _Tile(slice(b, b + at_once), slice(h, h + heads), slice(i, end), keys)

    def queries(self, x, tile):
        """The part of a tensor with queries: (heads of the tile, queries of a head of keys, columns)."""
        part = x[tile.batch, tile.heads, :, tile.queries]
        return part.reshape(-1, part.shape[2] * part.shape[3], part.shape[4]).to(self.type)

    def keys(self, x, tile):
        part = x[tile.batch, tile.heads, : tile.keys]
        return part.reshape(-1, *part.shape[2:]).to(self.type)

    def _part(self, x, tile):
        """The part of a tensor that may have size 1 for any axis."""
        at = [tile.batch, tile.heads, slice(None), tile.queries, slice(tile.keys)]
        return x[tuple(slice(None) if size == 1 else one for size, one in zip(x.shape, at, strict=True))]

    def scores(self, tile):
        lead = self.q[tile.batch, tile.heads].shape[:3]
        scores = torch.bmm(self.queries(self.q, tile), self.keys(self.k, tile).mT)
        scores = scores.view(*lead, tile.queries.stop - tile.queries.start, tile.keys)
        seen, added = self._seen(tile)
        factor = self._factor(tile, seen)
        scores.mul_(factor)
        tanh = None
        if self.softcap is not None:
            tanh = torch.tanh(scores / self.softcap)
            scores = self.softcap * tanh
        if added is not None:
            scores.add_(added)
        if seen is not None:
            scores.masked_fill_(~seen, -math.inf)
        all_see = self.mask is None and not (self.causal and self.m > self.n)
        some = None if all_see else seen.any(-1, keepdim=True)
        sinks = self.row("sinks", tile)
        if sinks is not None:
            sinks = sinks.to(self.type)
            scores = torch.cat([scores, sinks if some is None else sinks.masked_fill(~some, 0)], -1)
        return _Scores(scores, factor, some, tanh)

    def _seen(self, tile):
        """(which keys are seen, or None if all are; what is added to their scores)."""
        seen = added = None
        if self.mask is not None:
            seen = self._part(self.mask, tile)
            if seen.dtype is not torch.bool:
                seen, added = seen != -math.inf, seen.to(self.type)
        if self.causal and self.m > 1:
            last = torch.arange(tile.queries.start, tile.queries.stop, device=self.device) + (self.n - self.m)
            before = torch.arange(tile.keys, device=self.device) <= last[:, None]
            seen = before if seen is None else seen & before
        return seen, added

    def _factor(self, tile, seen):
        d = self.d or 1
        if self.scale not in BY_N:
            return 1 / math.sqrt(d) if self.scale == "sqrt" else self.number
        kappa = self.row("kappa", tile)
        if kappa is not None:  # one that is not positive and finite makes its query's result NaN
            kappa = torch.where((kappa > 0) & (kappa < math.inf), kappa, math.nan)
        unit = formulas.unit_of(self.scale, d, self.train_length, self.kappa if kappa is None else kappa)
        if seen is None:
            factor = math.log(max(tile.keys, 1)) * unit
        else:
            # A mask may be the same for all keys.
            count = seen.expand(*seen.shape[:-1], tile.keys).sum(-1, keepdim=True)
            factor = count.clamp(min=1).to(torch.float64).log() * unit
        return factor.to(self.type) if isinstance(factor, torch.Tensor) else factor

    def row(self, name, tile):
        """A number for each query of the tile, or None."""
        if name not in self.names[2]:
            return None
        column = self.names[2].index(name)
        return self.rows[tile.batch, tile.heads, :, tile.queries, column : column + 1]

    def _arguments(self, tile):
        """(the map's parameters with a value for each query, or None for each; its other parameters)."""
        rows = None if self.rows is None else self.rows[tile.batch, tile.heads, :, tile.queries]
        params = _descriptions.map_params(self.name, *self.names, rows)
        description = _descriptions.MAPS[self.name]
        per_row, numbers = [], []
        for param in description["params"]:
            value = params[param["name"]]
            if param["per_row"]:
                per_row.append(value if isinstance(value, torch.Tensor) else None)
            if isinstance(value, torch.Tensor):
                value = 0.0 if param["required"] else param["default"]
            numbers.append(value)
        return per_row, numbers

    def weights(self, tile):
        """(scores, p, that of sinks in its last column, the map's arguments)."""
        made = self.scores(tile)
        per_row, numbers = self._arguments(tile)
        p = self.implementation(self.name)(made.scores, *per_row, *numbers, 4)
        if made.some is not None:
            p = p.masked_fill(~made.some, 0)
        return made, p, (per_row, numbers)

    def entropy(self, p, some):
        """-sum p log p of each query."""
        values = [param["default"] for param in _descriptions.MEASURES["entropy"]["params"]]
        found = self.implementation("entropy")(p, *values, 4, False)[0]
        return found if some is None else found.masked_fill(~some[..., 0], 0)

    def pulled_back(self, scores, some, p, dp, per_row, numbers):
        """(the gradient in scores, the gradients in parameters by query)."""
        found = self.implementation(f"{self.name}_vjp")(scores, *per_row, p, dp, *numbers, 4)
        ds, *slopes = found if isinstance(found, tuple) else (found,)
        slopes = [slope for slope, row in zip(slopes, per_row, strict=False) if row is not None]
        if some is None:
            return ds, slopes
        return ds.masked_fill(~some, 0), [slope.masked_fill(~some, 0) for slope in slopes]


def attention(implementation, q, k, v, *arguments):
    """The operator of this name."""
    return _attended(_Problem(implementation, q, k, v, *arguments), None)


def attention_entropy(implementation, q, k, v, *arguments):
    """The operator of this name: out, and the entropy of each query."""
    problem = _Problem(implementation, q, k, v, *arguments)
    entropy = q.new_zeros(problem.q.shape[:-1])
    return _attended(problem, entropy), entropy.reshape(*problem.shape.lead, problem.m)


def _attended(problem, entropy):
    out = problem.q.new_zeros(*problem.q.shape[:-1], problem.dv)
    for tile in problem.tiles():
        if tile.keys == 0:
            continue
        made, p, _ = problem.weights(tile)
        here, of_keys = out[tile.batch, tile.heads, :, tile.queries], p[..., : tile.keys]
        here.copy_(torch.bmm(of_keys.flatten(0, 1).flatten(1, 2), problem.keys(problem.v, tile)).view(here.shape))
        if entropy is not None:
            entropy[tile.batch, tile.heads, :, tile.queries] = problem.entropy(p, made.some)
    return out.reshape(*problem.shape.lead, problem.m, problem.dv)


def attention_vjp(implementation, q, k, v, mask, rows, grad, *arguments):
    """The operator of this name: scores are computed again."""
    return attention_entropy_vjp(implementation, q, k, v, mask, rows, grad, None, *arguments)


def attention_entropy_vjp(implementation, q, k, v, mask, rows, grad, entropy_grad, *arguments):
    """The operator of this name, where one of the gradients may be None."""
    problem = _Problem(implementation, q, k, v, mask, rows, *arguments)
    lead = problem.q.shape[:-1]
    g = q.new_zeros(*lead, problem.dv) if grad is None else grad.reshape(*lead, problem.dv)
    of_entropy = None if entropy_grad is None else entropy_grad.to(problem.type).reshape(*lead, 1)
    dq = torch.zeros_like(problem.q, memory_format=torch.contiguous_format)
    dk, dv = (torch.zeros(x.shape, dtype=problem.type, device=x.device) for x in (problem.k, problem.v))
    drows = None if rows is None else torch.zeros_like(problem.rows)
    for tile in problem.tiles():
        if tile.keys == 0:
            continue
        made, p, given = problem.weights(tile)
        here = problem.queries(g, tile)
        dp = torch.bmm(here, problem.keys(problem.v, tile).mT).view(*p.shape[:-1], tile.keys)
        if p.shape[-1] > tile.keys:  # the value of a sink is 0
            dp = torch.cat([dp, torch.zeros_like(dp[..., :1])], -1)
        if of_entropy is not None:
            # A constant would not matter, since p sums to 1, nor what is added where p is 0.
            dp.addcmul_(of_entropy[tile.batch, tile.heads, :, tile.queries], torch.where(p > 0, p, 1).log_(), value=-1)
        ds, slopes = problem.pulled_back(made.scores, made.some, p, dp, *given)
        slopes = dict(enumerate(slopes))  # by columns of rows
        if p.shape[-1] > tile.keys:
            slopes[problem.names[2].index("sinks")] = ds[..., -1:]
            ds, p = ds[..., : tile.keys], p[..., : tile.keys]
        if made.tanh is not None:  # of hidden keys it may be NaN
            ds = torch.where(ds == 0, 0, ds * (1 - made.tanh) * (1 + made.tanh))
        ds = (ds * made.factor).flatten(0, 1).flatten(1, 2)
        to, back = dq[tile.batch, tile.heads, :, tile.queries], torch.bmm(ds, problem.keys(problem.k, tile))
        to.copy_(back.view(to.shape))
        if "kappa" in problem.names[2]:
            along = (back * problem.queries(problem.q, tile)).sum(-1).view(to.shape[:-1]).unsqueeze(-1)
            slopes[problem.names[2].index("kappa")] = along / problem.row("kappa", tile)
        for total, part in (
            (dk, torch.bmm(ds.mT, problem.queries(problem.q, tile))),
            (dv, torch.bmm(p.flatten(0, 1).flatten(1, 2).mT, here)),
        ):
            into = total[tile.batch, tile.heads, : tile.keys]
            into.add_(part.view(into.shape))
        for column, slope in slopes.items():
            drows[tile.batch, tile.heads, :, tile.queries, column] = slope[..., 0]
    batch, m, n = problem.shape.batch, problem.m, problem.n
    found = []
    for x, dx, count in ((q, dq, m), (k, dk, n), (v, dv, n)):
        whole = dx.reshape(*batch, problem.shape.heads if dx is dq else problem.kv, count, x.shape[-1])
        found.append(whole.sum_to_size(x.shape).to(x.dtype))
    return *found, absent(q) if rows is None else drows.reshape(rows.shape)
