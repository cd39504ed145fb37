"""Linear attention on a device, by torch's matrix products.

With x = (1, scale q) and y = (1, k) twice a weight is 1 + <x, y>^2 = 1 + <x x^T, y y^T>. So a query needs the sums over keys of
v and of y y^T v: a state of (d + 1)^2 rows. Masses are the state of one more column of v, of ones. Gradients are sums of the
same kind: with out = N / D and G = (g, -<g, out>) / D, dv_j and dk_j read the state of x and G, dq_i that of y and v.

States are added in float64. A causal query reads the state of the keys before its chunk, and the others by their products.
"""

import math

import torch

from isentropic._attention import shape_of
from isentropic.torch._spec import result_type
from isentropic.torch.backends import tiles

CHUNK = 1024  # queries or keys at a time


def _products(x):
    """x x^T of each row, flat."""
    return (x[..., :, None] * x[..., None, :]).flatten(-2)


class _State:
    """sum_r y_r y_r^T w_r and sum_r w_r over rows y, w of a batch."""

    def __init__(self, y, w):
        self.type, self.e = y.dtype, y.shape[-1]
        self.products = y.new_zeros(len(y), self.e * self.e, w.shape[-1], dtype=torch.float64)
        self.sum = y.new_zeros(len(y), 1, w.shape[-1], dtype=torch.float64)

    def add(self, y, w):
        for first in range(0, y.shape[1], CHUNK):
            rows, more = y[:, first : first + CHUNK], w[:, first : first + CHUNK]
            self.products += torch.bmm(_products(rows).mT, more)
            self.sum += more.sum(1, keepdim=True, dtype=torch.float64)

    def read(self, x):
        """sum_r (1 + <x, y_r>^2) w_r for each row x."""
        state = self.products.to(self.type)
        return self._by_chunks(lambda rows: torch.bmm(_products(rows), state) + self.sum.to(self.type), x)

    def slope(self, x, w):
        """The gradient in x of <w, read(x)>: 2 sum_r <x, y_r> <w, w_r> y_r."""
        state = self.products.to(self.type).mT

        def rows(x, w):
            matrices = torch.bmm(w, state).unflatten(-1, (self.e, self.e))
            return 2 * (matrices @ x[..., None])[..., 0]

        return self._by_chunks(rows, x, w)

    def _by_chunks(self, run, *rows):
        count = rows[0].shape[1]
        return torch.cat([run(*(x[:, at : at + CHUNK] for x in rows)) for at in range(0, max(count, 1), CHUNK)], 1)


class _Heads:
    """Some heads of keys: x (heads, queries' heads of each, queries, e), y and values with ones (heads, keys, ...)."""

    def __init__(self, q, k, v, scale, causal):
        self.group, self.m, self.n, self.causal = q.shape[1], q.shape[2], k.shape[1], causal
        self.x = torch.cat([torch.ones_like(q[..., :1]), scale * q], -1)
        self.y = torch.cat([torch.ones_like(k[..., :1]), k], -1)
        self.w = torch.cat([v, torch.ones_like(v[..., :1])], -1)

    def chunks(self):
        """(queries, the keys that all of them see, the further keys that some of them see)."""
        if not self.causal:
            return [(slice(0, self.m), self.n, slice(self.n, self.n))]
        ends = range(0, self.m, CHUNK)
        before = [min(max(i + self.n - self.m, 0), self.n) for i in (*ends, self.m)]
        return [(slice(i, min(i + CHUNK, self.m)), before[c], slice(before[c], before[c + 1])) for c, i in enumerate(ends)]

    def flat(self, x, queries):
        return x[:, :, queries].flatten(1, 2)

    def between(self, queries, keys):
        """<x, y> of these queries and keys, and which the queries see."""
        count = queries.stop - queries.start
        dots = torch.bmm(self.flat(self.x, queries), self.y[:, keys].mT).unflatten(1, (self.group, count))
        device = self.x.device
        last = torch.arange(queries.start, queries.stop, device=device) + (self.n - self.m)
        return dots, torch.arange(keys.start, keys.stop, device=device) <= last[:, None]

    def values(self):
        """For each chunk: (queries, further keys, their products, the sums of values, the state)."""
        state, known = _State(self.y, self.w), 0
        for queries, before, keys in self.chunks():
            state.add(self.y[:, known:before], self.w[:, known:before])
            known, inner = before, None
            sums = state.read(self.flat(self.x, queries))
            if keys.stop > keys.start:
                inner = self.between(queries, keys)
                dots, seen = inner
                sums += torch.bmm(torch.where(seen, 1 + dots * dots, 0).flatten(1, 2), self.w[:, keys])
            yield queries, keys, inner, sums, state

    def out(self):
        out = self.x.new_empty(*self.x.shape[:3], self.w.shape[-1] - 1)
        for queries, _, _, sums, _ in self.values():
            out[:, :, queries] = _ratio(sums).unflatten(1, (self.group, -1))
        return out

    def gradients(self, g):
        """In x, y and values, for the gradient g in out."""
        dx, dy, dw = torch.zeros_like(self.x), torch.zeros_like(self.y), torch.zeros_like(self.w)
        pulled = self.x.new_empty(*self.x.shape[:3], self.w.shape[-1])
        for queries, _, _, sums, state in self.values():
            here, out = self.flat(g, queries), _ratio(sums)
            mass = sums[..., -1:]
            some = mass > 0
            both = torch.cat([here, -(here * out).sum(-1, keepdim=True)], -1) / torch.where(some, mass, 1)
            both = torch.where(some | mass.isnan(), both, 0)
            pulled[:, :, queries] = both.unflatten(1, (self.group, -1))
            dx[:, :, queries] = state.slope(self.flat(self.x, queries), both).unflatten(1, (self.group, -1))
        state = _State(self.y, self.w)
        for queries, _, keys in reversed(self.chunks()):
            # Queries of later chunks see all further keys.
            x, back = self.flat(self.x, queries), self.flat(pulled, queries)
            if keys.stop > keys.start:
                y, w = self.y[:, keys], self.w[:, keys]
                dots, seen = self.between(queries, keys)
                weights = torch.where(seen, 1 + dots * dots, 0).flatten(1, 2)
                slopes = torch.where(seen, 2 * dots, 0).flatten(1, 2) * torch.bmm(back, w.mT)
                dx[:, :, queries] += torch.bmm(slopes, y).unflatten(1, (self.group, -1))
                dy[:, keys] = state.slope(y, w) + torch.bmm(slopes.mT, x)
                dw[:, keys] = state.read(y) + torch.bmm(weights.mT, back)
            state.add(x, back)
        first = slice(0, self.chunks()[0][1] if self.chunks() else 0)
        dy[:, first], dw[:, first] = state.slope(self.y[:, first], self.w[:, first]), state.read(self.y[:, first])
        return dx[..., 1:], dy[..., 1:], dw[..., :-1]


def _ratio(sums):
    """Values over masses; 0 for a query that sees no key."""
    mass = sums[..., -1:]
    return torch.where(mass == 0, 0, sums[..., :-1] / torch.where(mass == 0, 1, mass))


def _call(scale, causal):
    number = ("sqrt", 1.0) if scale is None else ("number", scale)
    return "taylor_softmax", ["order"], [2.0], [], *number, 512.0, None, causal, None


def _is_short(q, k):
    """Whether all scores cost less than the state."""
    return k.shape[-2] <= (q.shape[-1] + 1) ** 2


def _by_heads(q, k, v, scale, causal, *queries):
    """_Heads, few enough for the products of a chunk, with their part of tensors that have queries."""
    shape, kind, d = shape_of("linear_attention", q.shape, k.shape, v.shape), result_type(q), q.shape[-1]
    count, kv = math.prod(shape.batch) * shape.kv_heads, shape.kv_heads
    group = shape.heads // max(kv, 1)
    factor = 1 / math.sqrt(d or 1) if scale is None else scale

    def of_queries(x):
        return x.expand(*shape.batch, shape.heads, *x.shape[-2:]).reshape(count, group, *x.shape[-2:]).to(kind)

    def of_keys(x):
        return x.expand(*shape.batch, kv, *x.shape[-2:]).reshape(count, *x.shape[-2:]).to(kind)

    q, queries, k, v = of_queries(q), [of_queries(x) for x in queries], of_keys(k), of_keys(v)
    at_once = max(tiles.SCORES // (CHUNK * group * (d + 1) ** 2), 1)
    parts = [slice(h, h + at_once) for h in range(0, count, at_once)]
    return shape, factor, ((_Heads(q[at], k[at], v[at], factor, causal), *(x[at] for x in queries)) for at in parts)


def linear_attention(implementation, q, k, v, scale, causal):
    """The operator of this name."""
    if _is_short(q, k):
        return tiles.attention(implementation, q, k, v, None, None, *_call(scale, causal))
    shape, _, parts = _by_heads(q, k, v, scale, causal)
    out = [heads.out() for (heads,) in parts]
    return torch.cat(out).reshape(*shape.lead, shape.queries, v.shape[-1]).to(q.dtype)


def linear_attention_vjp(implementation, q, k, v, grad, scale, causal):
    """The operator of this name."""
    if _is_short(q, k):
        return tiles.attention_vjp(implementation, q, k, v, None, None, grad, *_call(scale, causal))[:3]
    shape, factor, parts = _by_heads(q, k, v, scale, causal, grad)
    dq, dk, dv = (torch.cat(x) for x in zip(*(heads.gradients(g) for heads, g in parts), strict=True))
    heads = shape.heads, shape.kv_heads, shape.kv_heads
    found = []
    for x, dx, count in zip((q, k, v), (factor * dq, dk, dv), heads, strict=True):
        whole = dx.reshape(*shape.batch, count, x.shape[-2], x.shape[-1])
        found.append(whole.sum_to_size(x.shape).to(x.dtype))
    return tuple(found)
