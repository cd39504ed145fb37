"""The kernels of the library isentropic_cuda as implementations of operators, where that library is found.

A call is put on torch's current stream and waits for nothing: no number is copied to the host. Memory comes from torch, so that
a call may be part of a CUDA graph. Along an axis that is not the last, or of a tensor with gaps, rows are copied.
"""

import functools
import json
from math import inf

import torch

from isentropic import _cuda, _descriptions
from isentropic._cuda import VARIABLE, found  # noqa: F401
from isentropic._numpy import _device
from isentropic._numpy._sampling import STEPS, Sampler
from isentropic.torch._spec import absent, result_type
from isentropic.torch.backends.reference.token_statistics import top_indices


def call(name, parameters, arrays, vjp=False):
    """Runs an operation on tensors by name. The first one decides the type and the shape; each is rows x cols or has one number
    for each row, without gaps."""
    x = next(iter(arrays.values()))
    empty = functools.partial(torch.empty, dtype=torch.uint8, device=x.device)
    if x.is_cuda:
        with torch.cuda.device(x.device):
            stream = torch.cuda.current_stream(x.device).cuda_stream
            _cuda.call(name, parameters, arrays, empty, torch.Tensor.data_ptr, stream, vjp)
    else:  # the emulated library, whose device is this machine
        _cuda.call(name, parameters, arrays, empty, torch.Tensor.data_ptr, None, vjp)


class _Rows(_device.Rows):
    """Rows of a tensor, and tensors beside it."""

    def __init__(self, description, argument, x, dim):
        super().__init__(description["name"], argument, x.detach(), dim)

    @staticmethod
    def holds(x):
        return isinstance(x, torch.Tensor)

    def run(self, operation, parameters, vjp=False, on_host=()):
        call(operation, parameters, self.given, vjp)

    def result(self, name):
        return self.back(name).contiguous()

    def slopes(self, description, rows):
        """The gradients in parameters per row, in the shapes of `rows`."""
        pairs = zip(_descriptions.per_row(description), rows, strict=True)
        return [absent(self.arrays.x) if row is None else self.given[f"d_{name}"].reshape(row.shape) for name, row in pairs]


def _flat(x, dim):
    """Rows along dim, one after the other."""
    return x.movedim(dim, -1).reshape(-1, x.shape[dim]).contiguous()


def _back(flat, x, dim):
    """Flat rows in x's shape, with as many entries along dim as they have."""
    lead = (*x.shape[:dim], *x.shape[dim + 1 :])
    return flat.reshape(*lead, flat.shape[-1]).movedim(-1, dim)


def _split(description, arguments):
    """(rows, the parameters' values in their order, the names of those with rows)."""
    names = _descriptions.per_row(description)
    rows, numbers = arguments[: len(names)], arguments[len(names) :]
    values = _descriptions.named(description, rows, numbers[: len(description["params"])])
    return rows, tuple(values.values()), [name for name, row in zip(names, rows, strict=True) if row is not None]


def _map(description, instead, x, *arguments):
    if x.numel() == 0:
        return instead(x, *arguments)
    rows = _Rows(description, "x", x, arguments[-1])
    _device.run_map(rows, description, _split(description, arguments[:-1])[1])
    return rows.result("y")


def _map_vjp(description, instead, x, *arguments):
    if x.numel() == 0:
        return instead(x, *arguments)
    count = len(_descriptions.per_row(description))
    y, grad, *rest = arguments[count:]
    per_row, values, asked = _split(description, (*arguments[:count], *rest[:-1]))
    rows = _Rows(description, "x", x, rest[-1])
    _device.run_vjp(rows, description, y, grad, values, asked)
    return (rows.result("dx"), *rows.slopes(description, per_row)) if count else rows.result("dx")


def _reduction(description, names, gradients, instead):
    """An operation that calculates one number for each row, with its gradients in the same call. It takes the names of its
    tensors and of the gradients; `instead` runs if rows are empty."""

    def run(*arguments):
        x, *others = arguments[: len(names)]
        *given, dim, wanted = arguments[len(names) :]
        if x.numel() == 0:
            return instead(*arguments)
        count = len(description["params"]) + len(_descriptions.per_row(description))
        per_row, values, asked = _split(description, given)
        ignored = {} if given[count:] in ([], [None]) else {"ignore_index": given[count]}
        rows = _Rows(description, names[0], x, dim)
        for name, other in zip(names[1:], others, strict=True):
            rows.numbers(name, other, "int64") if other.dtype is torch.int64 else rows.alike(name, other)
        _device.run_reduction(rows, description, values, gradients if wanted else (), asked if wanted else (), **ignored)
        value = rows.given["value"].reshape(rows.lead).to(result_type(x))
        if not wanted:
            return value, *[absent(x)] * (len(gradients) + len(per_row))
        return value, *map(rows.result, gradients), *rows.slopes(description, per_row)

    return run


# Statistics of tokens.

_MOST_TOP = 1024  # the kernel's work grows with the square


def _token_statistics(instead, x, target, rows, temperature, top, dim):
    if x.numel() == 0:
        return instead(x, target, rows, temperature, top, dim)
    flat, within = _flat(x, dim), top if top <= _MOST_TOP else 0
    statistics = flat.new_empty(flat.shape[0], 4, dtype=result_type(x))
    indices = torch.empty(flat.shape[0], within, dtype=torch.int64, device=x.device)
    arrays = {"x": flat, "target": target.reshape(-1).contiguous(), "statistics": statistics}
    arrays |= {"top": indices} if within else {}
    arrays |= {} if rows is None else {"temperature": rows.to(torch.float64).reshape(-1).contiguous()}
    one = {"temperature": temperature} if rows is None else {}
    call("token_statistics", json.dumps({**one, "top": within}), arrays)
    if within < top:
        indices = top_indices(flat, top, 1)
    return statistics.view(*target.shape, 4), indices.view(*target.shape, top)


def _token_statistics_vjp(instead, x, target, rows, statistics, grad, temperature, top, dim):
    if x.numel() == 0:
        return instead(x, target, rows, statistics, grad, temperature, top, dim)
    flat, more = _flat(x, dim), {}
    dx = torch.empty_like(flat)
    if rows is not None:
        wide = rows.to(torch.float64).reshape(-1).contiguous()
        more = {"temperature": wide, "d_temperature": torch.empty_like(wide)}
    of_rows = (t.to(result_type(x)).reshape(-1, 4).contiguous() for t in (statistics, grad))
    arrays = {"x": flat, "target": target.reshape(-1).contiguous(), **dict(zip(("statistics", "grad"), of_rows, strict=True))}
    one = {"temperature": temperature} if rows is None else {}
    call("token_statistics", json.dumps(one), arrays | {"dx": dx} | more, vjp=True)
    return _back(dx, x, dim).contiguous(), absent(x) if rows is None else more["d_temperature"].view(rows.shape)


# Entropy control.


def _gamma_for_entropy(instead, x, entropy_rows, perplexity_rows, entropy, perplexity, gamma_range, max_iterations, input):
    if x.numel() == 0:
        return instead(x, entropy_rows, perplexity_rows, entropy, perplexity, gamma_range, max_iterations, input)
    wide = x.to(result_type(x)).log() if input == "probs" else x.to(result_type(x))
    flat = wide.reshape(-1, x.shape[-1]).contiguous()
    gamma, reached = (torch.empty(flat.shape[0], dtype=torch.float64, device=x.device) for _ in range(2))
    status = torch.empty(flat.shape[0], dtype=torch.int32, device=x.device)
    rows = {"entropy": entropy_rows, "perplexity": perplexity_rows}
    more = {name: row.to(torch.float64).reshape(-1).contiguous() for name, row in rows.items() if row is not None}
    numbers = {"entropy": entropy, "perplexity": perplexity, "min_gamma": gamma_range[0], "max_gamma": gamma_range[1]}
    given = {name: float(value) for name, value in numbers.items() if value is not None and name not in more and value != inf}
    given |= {"max_iterations": max_iterations, "input": "scores" if input == "probs" else input}
    call("gamma_for_entropy", json.dumps(given), {"x": flat, "gamma": gamma, "reached": reached, "status": status, **more})
    lead = x.shape[:-1]
    return gamma.view(lead), reached.view(lead), status.to(torch.uint8).view(lead)


# Noise.


def _noise(name, parameters, x, streams, seed, position, dim):
    wide = x if x.dtype == torch.float64 else x.float()
    if x.numel() == 0:
        return torch.empty_like(wide)
    wide = _flat(wide, dim)
    y = torch.empty_like(wide)
    streams = streams.to(x.device, torch.int64).reshape(-1).contiguous()
    arrays = {"x": wide} if name == "gumbel_softmax" else {}
    given = json.dumps({**parameters, "seed": seed, "position": position})
    call(name, given, {**arrays, "y": y, "stream": streams})
    return _back(y, x, dim).contiguous()


# Chains of steps, with rows along the last axis.


@functools.lru_cache(maxsize=1024)
def _chain(steps, **more):
    return json.dumps({"steps": Sampler(json.loads(steps))._named(), **more})


@functools.lru_cache(maxsize=1024)
def _has_kernels(steps):
    return all("device" not in STEPS[name]["not_in"] for name, _ in json.loads(steps))


def _on_host(run, x, *tensors_and_more):
    """What has no kernel, on the CPU, with results on x's device."""
    given = (one.cpu() if isinstance(one, torch.Tensor) else one for one in tensors_and_more)
    found = run(x.cpu(), *given)
    return tuple(one.to(x.device) for one in found) if isinstance(found, tuple) else found.to(x.device)


def _sampler_probs(reference, x, tokens, steps, logarithm):
    if not _has_kernels(steps):
        return _on_host(reference, x, tokens, steps, logarithm)
    wide = x.double() if logarithm else x
    y = torch.empty_like(wide, memory_format=torch.contiguous_format)
    if x.numel() > 0:
        call("sampler_probs", _chain(steps), {"x": _flat(wide, x.dim() - 1), "y": y.view(-1, x.shape[-1])})
    return y.log().to(x.dtype) if logarithm else y


def _sampler_sample(reference, x, streams, positions, tokens, bounds, steps, seed, size, replace, probs):
    if not (replace and _has_kernels(steps)):
        return _on_host(reference, x, streams, positions, tokens, bounds, steps, seed, size, replace, probs)
    index = torch.full((*x.shape[:-1], size), -1, dtype=torch.int64, device=x.device)
    if x.numel() > 0 and size > 0:
        of_rows = {"stream": streams.reshape(-1).contiguous(), "position": positions.reshape(-1).contiguous()}
        arrays = {"x": _flat(x, x.dim() - 1), "indices": index.view(-1, size), **of_rows}
        call("sampler_sample", _chain(steps, seed=seed), arrays)
    p = _sampler_probs(reference, x, tokens, steps, False) if probs else x.new_empty(0)
    return index, bounds.clone(), p


def implementations(reference):
    """Implementations by the operators' names; none without the library. Those of `reference` run if there is nothing to do."""
    if found() is None:
        return {}
    table = {}
    for name, one in _descriptions.MAPS.items():
        if "device" in one["not_in"]:
            continue
        table[name] = functools.partial(_map, one, reference[name])
        table[f"{name}_vjp"] = functools.partial(_map_vjp, one, reference[f"{name}_vjp"])
    for name, one in _descriptions.LOSSES.items():
        if not _descriptions.takes_map(one):
            table[name] = _reduction(one, ("x", "target"), ("dx",), reference[name])
    for name, one in _descriptions.MEASURES.items():
        if "device" in one["not_in"]:
            continue
        if one["family"] == "measure":
            table[name] = _reduction(one, ("p",), ("dp",), reference[name])
        if one["family"] == "divergence":
            table[name] = _reduction(one, ("p", "q"), ("dp", "dq"), reference[name])
    table["token_statistics"] = functools.partial(_token_statistics, reference["token_statistics"])
    table["token_statistics_vjp"] = functools.partial(_token_statistics_vjp, reference["token_statistics_vjp"])
    table["gamma_for_entropy"] = functools.partial(_gamma_for_entropy, reference["gamma_for_entropy"])
    table["sampler_probs"] = functools.partial(_sampler_probs, reference["sampler_probs"])
    table["sampler_sample"] = functools.partial(_sampler_sample, reference["sampler_sample"])
    table["gumbel_noise"] = functools.partial(_noise, "gumbel_noise", {})
    table["gumbel_hard"] = functools.partial(_noise, "gumbel_softmax", {"hard": True})
    return table
