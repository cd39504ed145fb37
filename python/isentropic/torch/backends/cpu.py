"""The library's kernels as implementations of operators."""

import functools
import json
import math
from typing import Any

import numpy as np
import torch

import isentropic
import isentropic._core as _core
from isentropic import _descriptions, _threads
from isentropic._attention import shape_of
from isentropic._numpy import _entropy_control, _further_transport, _layout, _wasserstein
from isentropic._numpy import _maximum_entropy as _maximum
from isentropic._numpy._transport import with_nan_alone
from isentropic.torch._spec import CODES, HALVES, absent, result_type

_ALL_CODES = {**CODES, torch.int64: 4, torch.bool: 6}  # classes and masks too

CONTIGUOUS = torch.contiguous_format
torch_threads = torch.get_num_threads


def place(tensor):
    """A tensor as _core reads it. The last entry only keeps the memory: the tensor may be a temporary one."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), _ALL_CODES[tensor.dtype], tensor


def _numpy(x):
    """A tensor as an array of a type that the library computes in."""
    return (x.float() if x.dtype in HALVES else x).detach().numpy()


def _values(description, rows, values):
    """Parameters as _core takes them: numbers or, if given, arrays of float64. An expanded single number becomes that number,
    so that kernels need not treat rows separately."""
    if all(row is None for row in rows):
        return values
    by_name = _descriptions.named(description, [None if row is None else _number_or_array(row) for row in rows], values)
    return tuple(by_name[param["name"]] for param in description["params"])


def _number_or_array(row):
    one = all(size == 1 or stride == 0 for size, stride in zip(row.shape, row.stride(), strict=True))
    return row[(0,) * row.dim()].item() if one and row.numel() > 0 else row.numpy()


# Maps.


def _map(description, x, *arguments):
    count, dim = len(_descriptions.per_row(description)), arguments[-1]
    if description["reduces"]:
        y = x.new_empty((*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    else:
        y = torch.empty_like(x, memory_format=CONTIGUOUS)
    description["forward"](place(x), place(y), dim, _values(description, arguments[:count], arguments[count:-1]))
    return y


def _map_vjp(description, x, *arguments):
    per_row = _descriptions.per_row(description)
    rows, (y, grad, *values, dim) = arguments[: len(per_row)], arguments[len(per_row) :]
    dx = torch.empty_like(x, memory_format=CONTIGUOUS)
    places, values = (place(x), place(y), place(grad), place(dx)), _values(description, rows, tuple(values))
    if not per_row:
        description["vjp"](*places, dim, values)
        return dx
    slopes = [absent(x) if row is None else torch.empty(row.shape, dtype=torch.float64) for row in rows]
    asked = ((name, slope.numpy()) for name, slope, row in zip(per_row, slopes, rows, strict=True) if row is not None)
    description["param_vjp"](*places, dim, values, tuple(asked))
    return dx, *slopes


# Operations that calculate one number for each row, and its gradients in the same pass.


def reduction(kernel, differentiable, tensors=None, rows=0):
    """``kernel(tensors, value, gradients, rows, values, dim)`` on tensors of any strides. It writes value, of float64, in the
    first tensor's shape without dim; gradients, one for each tensor numbered in `differentiable`, of its dtype, and for each of
    rows, of float64, or None if not wanted.
    """
    count = len(differentiable) if tensors is None else tensors

    def run(*arguments):
        given, per_row, (*values, dim, wanted) = arguments[:count], arguments[count : count + rows], arguments[count + rows :]
        x = given[0]
        value = torch.empty((*x.shape[:dim], *x.shape[dim + 1 :]), dtype=torch.float64)
        gradients = [torch.empty_like(given[k], memory_format=CONTIGUOUS) if wanted else None for k in differentiable]
        slopes = [None if row is None or not wanted else torch.empty(row.shape, dtype=torch.float64) for row in per_row]
        kernel(given, value, [*gradients, *slopes], per_row, tuple(values), dim)
        results = [absent(x) if one is None else one for one in (*gradients, *slopes)]
        return value.to(result_type(x)), *results

    return run


class Direct:
    """The direct call of such an operation, if every tensor is plain and no parameter has a number for each row."""

    def __init__(self, description, differentiable):
        self.kernel, self.differentiable = description["run"], differentiable
        self.rows, self.params = len(_descriptions.per_row(description)), len(description["params"])

    def __call__(self, tensors, values, dim, wanted):
        """(the value, the gradients in tensors that require one, if wanted, and None for others)."""
        _threads.follow(torch_threads())
        x = tensors[0]
        shape, dtype = x.shape, x.dtype
        value = torch.empty(shape[:dim] + shape[dim + 1 :], dtype=torch.float32 if dtype in HALVES else dtype)
        gradients = [None] * len(self.differentiable)
        if wanted:
            asked = (tensors[k] for k in self.differentiable)
            gradients = [torch.empty_like(one, memory_format=CONTIGUOUS) if one.requires_grad else None for one in asked]
        self.run(tensors, place(value), [None if one is None else place(one) for one in gradients], values, dim)
        return value, gradients


class _DirectLoss(Direct):
    def __call__(self, tensors, values, dim, wanted):
        _threads.follow(torch_threads())
        x, target = tensors
        dtype = torch.float32 if x.dtype in HALVES else x.dtype
        if target.dtype is torch.int64:  # of its shape is the value; torch.empty takes 1 us longer
            value = torch.empty_like(target, dtype=dtype, memory_format=CONTIGUOUS)
        else:
            value = torch.empty(x.shape[:dim] + x.shape[dim + 1 :], dtype=dtype)
        dx = torch.empty_like(x, memory_format=CONTIGUOUS) if wanted and x.requires_grad else None
        numbers, ignored = values[: self.params], values[self.params] if len(values) > self.params else None
        self.kernel(place(x), place(target), place(value), _place(dx), dim, numbers, ignored, ())
        return value, [dx]


class _DirectMeasure(Direct):
    def run(self, tensors, value, gradients, values, dim):
        self.kernel(*map(place, tensors), value, *gradients, dim, values)


def _place(tensor):
    return None if tensor is None else place(tensor)


def _loss(description, tensors, value, gradients, rows, values, dim):
    x, target = map(place, tensors)
    params = _values(description, rows, values[: len(description["params"])])
    ignore_index = values[len(description["params"])] if len(values) > len(description["params"]) else None
    dx, *slopes = gradients
    asked = _asked(description, slopes) if any(slope is not None for slope in slopes) else ()
    description["run"](x, target, place(value), _place(dx), dim, tuple(params), ignore_index, asked)


def _sparse_loss(description, tensors, value, gradients, rows, values, dim):
    dx, *slopes = gradients
    asked = _asked(description, slopes) if any(slope is not None for slope in slopes) else ()
    description["param_run"](*map(place, tensors), place(value), _place(dx), dim, _values(description, rows, values), asked)


def _asked(description, slopes):
    """The wanted gradients in parameters, as _core takes them."""
    return tuple(
        (name, slope.numpy())
        for name, slope in zip(_descriptions.per_row(description), slopes, strict=True)
        if slope is not None
    )


def _measure(description, tensors, value, gradients, rows, values, dim):
    wanted, asked = gradients, ()
    if rows:
        wanted, asked = gradients[: -len(rows)], (_asked(description, gradients[-len(rows) :]),)
    params = _values(description, rows, values)
    description["param_run" if rows else "run"](*map(place, tensors), place(value), *map(_place, wanted), dim, params, *asked)


def _table(description, tensors, value, gradients, rows, values, dim):
    """Tables are flat along dim, which is the last axis."""
    *params, cols = values
    tables = value.numel()

    def table(x):
        return None if x is None else place(x.view(tables, x.shape[-1] // cols if cols else 0, cols))

    (x,), (dx,) = tensors, gradients
    description["run"](table(x.contiguous()), place(value.view(tables)), table(dx), tuple(params))


def _entries(description, p, *arguments):
    *values, dim = arguments
    p = p.to(result_type(p))
    value = torch.empty_like(p, memory_format=CONTIGUOUS)
    description["run"](place(p), place(value), None, dim, tuple(values))
    return value


def _measure_implementation(one):
    if one["family"] == "entry":
        return functools.partial(_entries, one)
    if one["family"] == "table":
        return reduction(functools.partial(_table, one), (0,))
    moving = (0, 1) if one["family"] == "divergence" else (0,)
    return reduction(functools.partial(_measure, one), moving, rows=len(_descriptions.per_row(one)))


# Entropy control, with rows along the last axis.


def _power_transform(p, rows, gamma):
    return _back(isentropic.power_transform(_numpy(p), gamma=gamma if rows is None else rows.numpy()), p)


def _mean_field_entropy(x, gamma):
    return torch.as_tensor(isentropic.mean_field_entropy(_numpy(x), gamma=gamma)).to(x.dtype)


def _gamma_for_entropy(x, entropy_rows, perplexity_rows, entropy, perplexity, gamma_range, max_iterations, input):
    entropy, perplexity = _numbers((entropy_rows, perplexity_rows), (entropy, perplexity))
    params = {"entropy": entropy, "perplexity": perplexity, "min_gamma": None, "max_gamma": None}
    params |= {"max_iterations": max_iterations, "input": input}
    gamma, reached, status = _entropy_control.gammas_of(_numpy(x), x.dim() - 1, gamma_range, params)
    return torch.from_numpy(gamma), torch.from_numpy(reached), torch.from_numpy(status.astype(np.uint8))


def _numbers(rows, numbers):
    return (number if row is None else row.numpy() for row, number in zip(rows, numbers, strict=True))


def _normalize_density(p, weights, rows, entropy):
    values = _layout.Along("normalize_density", "p", _numpy(p), -1)
    q, gamma = _entropy_control.density_of(values, _numpy(weights), entropy if rows is None else rows.numpy())
    return _back(q, p), torch.from_numpy(gamma).reshape(p.shape[:-1])


def _normalize_joint(pxy, *targets):
    joint, marginal, conditional = _numbers(targets[:3], targets[3:])
    found, gamma = _entropy_control.tables_of(_numpy(pxy), {"joint": joint, "marginal": marginal, "conditional": conditional})
    return torch.from_numpy(found).to(pxy.dtype), torch.from_numpy(gamma)


# Attention.


def _back(result, like):
    return torch.from_numpy(np.ascontiguousarray(result)).to(like.dtype)


def _attention_keywords(mask, rows, name, names, values, row_names, scale, number, train_length, kappa, causal, softcap):
    params = _descriptions.map_params(name, names, values, row_names, None if rows is None else rows.numpy())
    own = {"kappa": params.pop("kappa", kappa), "sinks": params.pop("sinks", None)}
    return own | {
        "map": (name, params),
        "scale": number if scale == "number" else scale,
        "causal": causal,
        "mask": None if mask is None else _numpy(mask),
        "train_length": train_length,
        "softcap": softcap,
    }


def attend(q, k, v, mask, map, map_values, values):
    """Attention of tensors of one type with two to four axes, and a mask of this type or of bools, with the same axes."""
    _threads.follow(torch_threads())
    wide = [_rows(x) for x in (q, k, v)]
    out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=result_type(q))
    _core.attention(*(_place(x) for x in (*wide, _mask(mask), None, out)), None, None, ((map, map_values), *values))
    return out.to(q.dtype)


def attend_vjp(q, k, v, grad, mask, map, map_values, values):
    """The gradients in q, k and v."""
    _threads.follow(torch_threads())
    wide = [_rows(x) for x in (q, k, v, grad)]
    gradients = [torch.empty(x.shape, dtype=x.dtype) for x in wide[:3]]
    arrays = *wide, _mask(mask), None, None, *gradients, None
    _core.attention_vjp(*(_place(x) for x in arrays), ((map, map_values), *values), ())
    return [one.to(q.dtype) for one in gradients]


def _rows(x):
    """A tensor of float32 or float64 without gaps in its last axis."""
    x = x.float() if x.dtype in HALVES else x
    return x if x.shape[-1] <= 1 or x.stride(-1) == 1 else x.contiguous()


def _mask(mask):
    return mask.float() if mask is not None and mask.dtype in HALVES else mask


def _attend(q, k, v, *arguments):
    return _back(isentropic.attention(*map(_numpy, (q, k, v)), **_attention_keywords(*arguments)), q)


def _attend_with_entropy(q, k, v, *arguments):
    found = isentropic.attention(*map(_numpy, (q, k, v)), **_attention_keywords(*arguments), return_entropy=True)
    return tuple(_back(one, q) for one in found)


def _attention_vjp(q, k, v, mask, rows, grad, *arguments):
    return _attention_entropy_vjp(q, k, v, mask, rows, grad, None, *arguments)


def _attention_entropy_vjp(q, k, v, mask, rows, grad, entropy_grad, *arguments):
    keywords = _attention_keywords(mask, rows, *arguments)
    if grad is None:
        grad = q.new_zeros(*shape_of("attention_vjp", q.shape, k.shape, v.shape).lead, q.shape[-2], v.shape[-1])
    if entropy_grad is not None:
        keywords["entropy_grad"] = _numpy(entropy_grad)
    row_names = arguments[3]
    with_sinks = "sinks" in row_names  # the last one
    of_params = row_names[:-1] if with_sinks else row_names
    results = isentropic.attention_vjp(*map(_numpy, (q, k, v, grad)), **keywords, param_grad=of_params or False)
    gradients = [_back(d, x) for d, x in zip(results, (q, k, v), strict=False)]
    if rows is None:
        return *gradients, absent(q)
    slopes = [*results[4:], results[3][..., 0]] if with_sinks else results[3:]
    return *gradients, torch.stack([torch.from_numpy(np.asarray(slope, np.float64)) for slope in slopes], -1)


def _linear_keywords(scale, causal):
    return {"causal": causal} | ({} if scale is None else {"scale": scale})


def _linear_attention(q, k, v, *arguments):
    return _back(isentropic.linear_attention(*map(_numpy, (q, k, v)), **_linear_keywords(*arguments)), q)


def _linear_attention_vjp(q, k, v, grad, *arguments):
    results = isentropic.linear_attention_vjp(*map(_numpy, (q, k, v, grad)), **_linear_keywords(*arguments))
    return tuple(_back(d, x) for d, x in zip(results, (q, k, v), strict=True))


# Transport, for problems whose leading axes broadcast.

_OF_SINKHORN = ("epsilon", "tolerance", "max_iterations", "mass_tolerance")
_PARAMETERS = {
    "optimal_transport": ("mass_tolerance",),
    "sinkhorn": _OF_SINKHORN,
    "sinkhorn_minimum": _OF_SINKHORN,
    "partial_transport": ("mass",),
    "unbalanced_sinkhorn": ("epsilon", "penalty", "tolerance", "max_iterations"),
}


def _problems(name, a, b, cost, *params):
    given, params = [x.detach().resolve_neg() for x in (a, b, cost)], dict(zip(_PARAMETERS[name], params, strict=True))
    if any(x.dtype is torch.bfloat16 for x in given):  # NumPy lacks it. Sums may differ as those of float16, which it has.
        given = [x.float() if x.dtype is torch.bfloat16 else x for x in given]
        if params.get("mass_tolerance", 0) is None:
            params["mass_tolerance"] = _core.sum_tolerance[2]

    def run(*arrays):
        if name == "sinkhorn_minimum":
            found = isentropic.sinkhorn(*arrays, **params)
            return isentropic.dual_value(found.f, found.g, *arrays[:2]), found.plan, found.f, found.g
        found = getattr(isentropic, name)(*arrays, **params)
        return found[: {"optimal_transport": 5, "sinkhorn": 9}.get(name)]  # without status, which is words, or epsilon

    found = map(torch.as_tensor, with_nan_alone(run, *(x.numpy() for x in given), total=2.0 * params.get("mass", 0.5)))
    dtype = functools.reduce(torch.promote_types, map(result_type, (a, b, cost)))
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in found)


def _sinkhorn_barycenter(p, cost, weights, *params):
    given = (x.detach().resolve_neg().numpy() for x in (p, cost, weights))

    def run(p, cost, weights):
        _, lead, (q, _, g, *numbers) = _further_transport.barycenters(p, cost, weights, params)
        return tuple(x.reshape((*lead, *x.shape[1:])) for x in (q, g, *numbers))

    return tuple(map(torch.as_tensor, with_nan_alone(run, *given, own=(2, 2, 1))))


def _points(x, y, a, b, order, metric, of_weights):
    given = (one.detach().resolve_neg().numpy() for one in (x, y, a, b))
    solved = functools.partial(_wasserstein.slopes_of, order, metric, of_weights)
    return tuple(map(torch.as_tensor, _wasserstein.of_each(solved, *given)))


def _maximum_entropy(features, moments, prior):
    given = (one.detach().resolve_neg().numpy() for one in (features, moments, prior))
    return tuple(map(torch.from_numpy, _maximum.of_each(*given)))


# Noise.


def _along(run, x, streams, seed, position, dim):
    """run(x, result, dim, seed, streams, position), in float32 or float64."""
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    result = torch.empty(x.shape, dtype=wide.dtype)
    # All were passed as int64.
    streams = streams.contiguous().numpy().view(np.uint64).reshape(-1)
    run(place(wide), place(result), dim, seed % (1 << 64), streams, position % (1 << 64))
    return result


def _gumbel_noise(x, result, dim, *key):
    _core.gumbel_noise(result, dim, *key)


def _gumbel_hard(x, result, dim, *key):
    _core.gumbel_softmax(x, result, dim, (1.0, True), *key)


@functools.lru_cache(maxsize=1024)
def _sampler(steps, seed=0):
    return isentropic.Sampler(json.loads(steps), seed=seed)


def _flat_rows(x):
    """A tensor's rows along its last axis, without gaps between their numbers."""
    return x.detach().resolve_neg().reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _texts(sampler, tokens):
    return _flat_rows(tokens).contiguous().numpy() if sampler.reads_text else None


def _sampler_probs(x, tokens, steps, logarithm):
    sampler = _sampler(steps)
    p = torch.empty(x.shape, dtype=x.dtype)
    run = sampler._core.log_probs if logarithm else sampler._core.probs
    run(place(_flat_rows(x)), place(_flat_rows(p)), _texts(sampler, tokens), 1)
    return p


def _sampler_sample(x, streams, positions, tokens, bounds, steps, seed, size, replace, probs):
    sampler = _sampler(steps, seed % (1 << 64))
    lead, x = x.shape[:-1], _flat_rows(x)
    streams = streams.reshape(-1).contiguous().numpy().view(np.uint64)
    positions, after = positions.reshape(-1).numpy(), bounds.clone().reshape(-1).contiguous()
    texts = _texts(sampler, tokens)
    index = np.empty((len(x), size), np.int64)
    p = torch.empty(x.shape if probs else 0, dtype=x.dtype)

    def run(x, index, texts, after, p, streams, position):
        position = int(position) % (1 << 64)
        if not replace:
            ((_, temperature),) = sampler.steps
            return _core.sample(place(x), index, 1, (temperature, False), sampler.seed, streams, position)
        bounds = after.numpy() if sampler.adjusts and after.numel() else None
        sampler._core.sample(place(x), index, texts, bounds, place(p) if probs else None, 1, streams, position)

    if len(x) and (positions == positions[0]).all():
        run(x, index, texts, after, p, streams, positions[0])
    else:
        for position in np.unique(positions):
            rows = np.flatnonzero(positions == position)
            some = [one[rows] if len(one) else one for one in (x, index, after, p)]
            run(some[0], some[1], None if texts is None else texts[rows], some[2], some[3], streams[rows], position)
            for whole, part in zip((index, after, p), some[1:], strict=True):
                if len(whole):
                    whole[rows] = part
    return (
        torch.from_numpy(index).reshape(*lead, size),
        after.reshape(bounds.shape),
        p.reshape(*lead, x.shape[1]) if probs else p,
    )


def _with_threads(run):
    """Calls run with torch's number of threads."""

    def running(*arguments):
        _threads.follow(torch_threads())
        return run(*arguments)

    return running


IMPLEMENTATIONS: dict[str, Any] = {name: functools.partial(_map, one) for name, one in _descriptions.MAPS.items()}
IMPLEMENTATIONS |= {f"{name}_vjp": functools.partial(_map_vjp, one) for name, one in _descriptions.MAPS.items()}
IMPLEMENTATIONS |= {
    name: reduction(functools.partial(_loss, one), (0,), tensors=2, rows=len(_descriptions.per_row(one)))
    for name, one in _descriptions.LOSSES.items()
}
IMPLEMENTATIONS |= {
    name: reduction(functools.partial(_sparse_loss, one), (0,), tensors=3, rows=len(_descriptions.per_row(one)))
    for name, one in _descriptions.SPARSE_LOSSES.items()
}
IMPLEMENTATIONS |= {name: _measure_implementation(one) for name, one in _descriptions.MEASURES.items()}
DIRECT: dict[str, Direct] = {name: _DirectLoss(one, (0,)) for name, one in _descriptions.LOSSES.items()}
DIRECT |= {
    name: _DirectMeasure(one, (0, 1) if one["family"] == "divergence" else (0,))
    for name, one in _descriptions.MEASURES.items()
    if one["family"] in ("measure", "divergence")
}
IMPLEMENTATIONS |= {name: functools.partial(_problems, name) for name in _PARAMETERS}
IMPLEMENTATIONS |= {
    "attention": _attend,
    "attention_vjp": _attention_vjp,
    "attention_entropy": _attend_with_entropy,
    "attention_entropy_vjp": _attention_entropy_vjp,
    "gamma_for_entropy": _gamma_for_entropy,
    "gumbel_hard": functools.partial(_along, _gumbel_hard),
    "gumbel_noise": functools.partial(_along, _gumbel_noise),
    "linear_attention": _linear_attention,
    "linear_attention_vjp": _linear_attention_vjp,
    "maximum_entropy": _maximum_entropy,
    "mean_field_entropy": _mean_field_entropy,
    "normalize_density": _normalize_density,
    "normalize_joint": _normalize_joint,
    "power_transform": _power_transform,
    "sampler_probs": _sampler_probs,
    "sampler_sample": _sampler_sample,
    "sinkhorn_barycenter": _sinkhorn_barycenter,
    "wasserstein": _points,
}
IMPLEMENTATIONS = {name: _with_threads(run) for name, run in IMPLEMENTATIONS.items()}
