"""Every map as a few operations of torch that become as many operators of ONNX, or one search.

``MAPS[name](z, params)``, along the last axis, for scores z in float64; the largest of a row is 0, and absent entries are -inf.
``params`` holds numbers, strings, or float64 tensors with size 1 for that axis. z is a half of the differences in rows where
these could overflow: ``params["part"]`` is 0.5 there, otherwise 1.
"""

import math

import torch

from isentropic import _descriptions
from isentropic.onnx import _noises
from isentropic.onnx._searches import ABSENT, entmax_of, softmax_of_entropy

INF = math.inf


def _divided(z, params, divisor="temperature"):
    return z / params[divisor] / params["part"]


def _softmax(z, params):
    return torch.softmax(_divided(z, params), -1)


def _sorted(z):
    """(z from the largest down, their indices, 1, 2, ...). Among equal numbers ONNX puts the lower index first."""
    values, order = torch.sort(z, dim=-1, descending=True)
    return values, order, torch.arange(z.shape[-1], device=z.device)


def _sparsemax(z, params):
    # Below -1 there is no mass.
    z = _divided(z, params).clamp(min=-2.0)
    s, _, k = _sorted(z)
    inside = s * (k + 1) > s.cumsum(-1) - 1
    size = inside.sum(-1, keepdim=True)
    tau = (torch.where(inside, s, 0.0).sum(-1, keepdim=True) - 1) / size
    return (z - tau).clamp(min=0.0)


def _entmax_15(z, params):
    """p = relu(z/2 - tau)^2; of the k largest, tau = mean - sqrt((1 - k variance) / k)."""
    z = (_divided(z, params) / 2).clamp(min=-2.0)
    s, _, k = _sorted(z)
    k = (k + 1).to(z.dtype)
    mean, square = s.cumsum(-1) / k, (s * s).cumsum(-1) / k
    tau = mean - ((1 / k - (square - mean * mean)).clamp(min=0.0)).sqrt()
    size = (s > tau).sum(-1, keepdim=True)
    tau = torch.where(k == size, tau, 0.0).sum(-1, keepdim=True)  # a Gather would fail for rows without entries
    p = (z - tau).clamp(min=0.0) ** 2
    return p / p.sum(-1, keepdim=True)


def _entmax(z, params):
    alpha = params["alpha"]
    if not isinstance(alpha, torch.Tensor) and alpha in _ENTMAX:
        return _ENTMAX[alpha](z, params)
    z = _divided(z, params)
    b = torch.zeros_like(z[..., :1]) + (alpha - 1.0)
    p = torch.where(z > -INF, entmax_of(torch.maximum(z, _absent(z)), b), 0.0)
    return p / p.sum(-1, keepdim=True)


_ENTMAX = {1.0: _softmax, 1.5: _entmax_15, 2.0: _sparsemax}  # these need no search


def _kept(z, kept, params):
    return _softmax(torch.where(kept, z, -INF), params)


def _scattered(order, kept):
    """Values of sorted scores in the order of the original scores."""
    kept = kept.expand_as(order).to(torch.float32)
    return torch.zeros_like(kept).scatter(-1, order, kept) > 0


def _top_k_softmax(z, params):
    _, order, k = _sorted(z)
    return _kept(z, _scattered(order, k < params["k"]), params)


def _top_p_softmax(z, params):
    if not isinstance(params["p"], torch.Tensor) and params["p"] == 1.0:
        return _softmax(z, params)
    s, order, k = _sorted(z)
    mass = _softmax(s, params).cumsum(-1)
    cut = (mass < params["p"]).sum(-1, keepdim=True)  # the entries below p, and the one that reaches it
    return _kept(z, _scattered(order, k <= cut), params)


def _min_p_softmax(z, params):
    p = params["p"]
    return _kept(z, _divided(z, params) >= (p.log() if isinstance(p, torch.Tensor) else math.log(p)), params)


def _absent(z):
    return z.new_full((), ABSENT)


def _target(params):
    perplexity = params["perplexity"]
    if perplexity is None:
        return params["entropy"]
    return perplexity.log() if isinstance(perplexity, torch.Tensor) else math.log(perplexity)


def _of_entropy(z, target):
    present = z > -INF
    reach = torch.where(present, -z, 0.0).amax(-1, keepdim=True)
    target = torch.zeros_like(reach) + target
    # Rows with nothing to search for: all scores tie, or the target is 0.
    still = (reach == 0) | (target <= 0)
    scaled = torch.where(present, z / torch.where(reach > 0, reach, 1.0), _absent(z))
    top, count = (z == 0).to(z.dtype), present.to(z.dtype)
    ties, most = top.sum(-1, keepdim=True), count.sum(-1, keepdim=True)
    low, high = target <= ties.log(), target >= most.log()
    # A target that cannot be met has no root; it is replaced by the middle of the reach.
    inner = torch.where(still | low | high, (ties.log() + most.log()) / 2, target)
    p = softmax_of_entropy(torch.where(reach > 0, scaled, torch.where(count > 0, -count, _absent(z))), inner)
    return torch.where(high, count / most, torch.where(low, top / ties, p))


def _entropy_normalize(z, params):
    return _of_entropy(z, _target(params))


def _entropy_clip(z, params):
    p = torch.softmax(z / params["part"], -1)
    entropy = -torch.where(p > 0, p * torch.where(p > 0, p, 1.0).log(), 0.0).sum(-1, keepdim=True)
    low, high = params["min_entropy"], params["max_entropy"]
    target = entropy if low is None else torch.maximum(entropy, torch.zeros_like(entropy) + low)
    target = target if high is None else torch.minimum(target, torch.zeros_like(entropy) + high)
    return torch.where(target == entropy, p, _of_entropy(z, target))


def _perturb_max(z, params):
    if params["noise"] != "gumbel":
        return _noises.perturb_max(_divided(z, params, "scale"), params)
    return torch.softmax(_divided(z, params, "scale"), -1)


MAPS = {
    "softmax": _softmax,
    "sparsemax": _sparsemax,
    "entmax": _entmax,
    "top_k_softmax": _top_k_softmax,
    "top_p_softmax": _top_p_softmax,
    "min_p_softmax": _min_p_softmax,
    "entropy_normalize": _entropy_normalize,
    "entropy_clip": _entropy_clip,
    "perturb_max": _perturb_max,
}


# The rules that all share.


def _rows(x):
    """(scores in float64 with the largest at 0, what part they are of the differences, their largest, whether a row has no
    distribution); rows without one are 0."""
    x = x.double()
    nan = x.isnan().any(-1, keepdim=True)
    x = torch.where(nan, 0.0, x)
    largest = x.amax(-1, keepdim=True)
    # If a row has +inf, only these entries count, equally.
    x = torch.where(largest == INF, torch.where(x == INF, 0.0, -INF), x)
    none = nan | (largest == -INF)
    top = torch.where(largest.abs() == INF, 0.0, largest)
    part = torch.where(top > 2.0**100, 0.5, 1.0).to(x.dtype)  # only below a large score can a difference overflow
    return torch.where(none, 0.0, x) * part - top * part, part, largest, none


def _map(name, x, params):
    if params.get("input") == "probs":
        x = torch.where(x == INF, math.nan, x).double().log()
    z, part, _, none = _rows(x)
    return torch.where(none, math.nan, MAPS[name](z, {**params, "part": part}))


def _sigsoftmax(x, params):
    """softmax(x + log s(x)), from halves: for scores near the lowest number the sum would overflow."""
    x = x.double()
    half = x / 2 + x.clamp(max=0.0) / 2 - torch.log(1 + torch.exp(-x.abs())) / 2
    return _map("softmax", half, {"temperature": 0.5})


def _taylor_softmax(x, params):
    """f(x) / sum f, f = sum x^m / m! by Horner's scheme, divided by a power of the largest magnitude so that it does not
    overflow."""
    order, x = params["order"], x.double()
    infinite, nan = (x == INF).to(x.dtype), x.isnan().any(-1, keepdim=True)
    present = (x > -INF).to(x.dtype)
    z = torch.where((x.abs() == INF) | nan, 0.0, x)
    scale = z.abs().amax(-1, keepdim=True).clamp(min=1.0)
    y, value, power = z / scale, torch.zeros_like(z), torch.ones_like(scale)
    for m in range(order, -1, -1):
        value = value * y + power / math.factorial(m)
        power = power / scale
    value = torch.where(infinite.sum(-1, keepdim=True) > 0, infinite, value * present)
    return torch.where(nan | (present.sum(-1, keepdim=True) == 0), math.nan, value / value.sum(-1, keepdim=True))


def _log_softmax(x, params):
    z, part, _, none = _rows(x)
    z = _divided(z, {**params, "part": part})
    return torch.where(none, math.nan, z - z.exp().sum(-1, keepdim=True).log())


def _logsumexp(x, params):
    z, part, largest, _ = _rows(x)
    sum_of = params["temperature"] * _divided(z, {**params, "part": part}).exp().sum(-1, keepdim=True).log()
    value = torch.where(largest.abs() == INF, largest, largest + sum_of)
    # A sum, because what a runtime's maximum of no entries is, torch.any's operator, is not defined.
    return torch.where(x.isnan().to(value.dtype).sum(-1, keepdim=True) > 0, math.nan, value)


_OTHERS = {
    "sigsoftmax": _sigsoftmax,
    "taylor_softmax": _taylor_softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
}


NAMES = (*MAPS, *_OTHERS)


def decomposition(name):
    """The decomposition of a map's operator."""
    description = _descriptions.MAPS[name]
    count, run = len(_descriptions.rows(description)), _OTHERS.get(name)

    def decomposed(x, *arguments):
        if name not in NAMES:
            raise ValueError(f"onnx.export: {name} cannot be exported: it is not written in operators of ONNX")
        rows, values, dim = arguments[:count], arguments[count:-1], arguments[-1]
        params = _descriptions.named(description, rows, values)
        inner = dim != x.dim() - 1
        if inner:
            x = x.movedim(dim, -1)
            params = {
                key: value.movedim(dim, -1) if isinstance(value, torch.Tensor) else value for key, value in params.items()
            }
        p = run(x, params) if run else _map(name, x, params)
        return (p.movedim(-1, dim) if inner else p).to(x.dtype).contiguous()

    return decomposed
