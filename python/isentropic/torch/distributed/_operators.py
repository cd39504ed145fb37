"""The operations on parts as operators of torch."""

import json

import torch
from torch import Tensor

from isentropic.torch.distributed import _searches
from isentropic.torch.distributed._calls import OPERATIONS, Call, shapes
from isentropic.torch.distributed._chain import Chain
from isentropic.torch.distributed._group import start_counting


def _kind(spec):
    return OPERATIONS[json.loads(spec)["kind"]]


@torch.library.custom_op("isentropic::parts", mutates_args=())
def operate(
    x: Tensor, other: Tensor | None, target: Tensor | None, params: Tensor | None, spec: str, first: int, n: int, group: str
) -> tuple[Tensor, Tensor]:
    start_counting()
    return _kind(spec)[0](Call(spec, x, other, target, params, first, n, group))


@operate.register_fake
def _(x, other, target, params, spec, first, n, group):
    cols, count = shapes(spec, *x.shape)
    return x.new_empty(x.shape[0], cols), x.new_empty(x.shape[0], count, dtype=torch.float64)


@torch.library.custom_op("isentropic::parts_vjp", mutates_args=())
def operate_vjp(
    x: Tensor,
    other: Tensor | None,
    target: Tensor | None,
    params: Tensor | None,
    y: Tensor,
    values: Tensor,
    gy: Tensor,
    gvalues: Tensor,
    spec: str,
    first: int,
    n: int,
    group: str,
) -> tuple[Tensor, Tensor]:
    start_counting()
    dx, more = _kind(spec)[1](Call(spec, x, other, target, params, first, n, group), y, values, gy, gvalues)
    more = x.new_empty(0, 0) if more is None else more
    return dx.to(x.dtype), more.to(torch.float64 if params is not None else x.dtype)


@operate_vjp.register_fake
def _(x, other, target, params, y, values, gy, gvalues, spec, first, n, group):
    if params is not None:
        return torch.empty_like(x), torch.empty_like(params)
    two = json.loads(spec)["kind"] == "two"
    return torch.empty_like(x), torch.empty_like(x) if two else x.new_empty(0, 0)


def _refuse(ctx, *grads):
    raise RuntimeError("isentropic.torch.distributed: there are no second derivatives")


operate_vjp.register_autograd(_refuse)


def _setup(ctx, inputs, output):
    x, other, target, params, *ctx.rest = inputs
    ctx.save_for_backward(x, other, target, params, *output)


def _backward(ctx, gy, gvalues):
    x, other, target, params, y, values = ctx.saved_tensors
    gy = torch.zeros_like(y) if gy is None else gy
    gvalues = torch.zeros_like(values) if gvalues is None else gvalues
    dx, more = operate_vjp(x, other, target, params, y, values, gy.contiguous(), gvalues.contiguous(), *ctx.rest)
    two = json.loads(ctx.rest[0])["kind"] == "two"
    return dx, more if two else None, None, None if params is None else more, None, None, None, None


operate.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("isentropic::parts_draw", mutates_args=())
def draw(x: Tensor, streams: Tensor, spec: str, first: int, n: int, group: str) -> Tensor:
    start_counting()
    return Chain(Call(spec, x, None, None, None, first, n, group, streams)).run().draw()


@draw.register_fake
def _(x, streams, spec, first, n, group):
    return x.new_empty(x.shape[0], json.loads(spec)["size"], dtype=torch.int64)


@torch.library.custom_op("isentropic::parts_chain", mutates_args=())
def chain_probs(x: Tensor, spec: str, first: int, n: int, group: str) -> Tensor:
    start_counting()
    return Chain(Call(spec, x, None, None, None, first, n, group)).run().probs()


@chain_probs.register_fake
def _(x, spec, first, n, group):
    return torch.empty_like(x)


@torch.library.custom_op("isentropic::parts_top", mutates_args=())
def top_indices(x: Tensor, k: int, first: int, n: int, group: str) -> Tensor:
    call = Call(json.dumps({"name": "token_statistics", "top": k}), x, None, None, None, first, n, group)
    if k > call.n:
        raise ValueError(f"token_statistics: top must be an integer from 0 to {call.n}, how many tokens there are, got {k}")
    return _searches.top_k(call, torch.where(x.isnan(), torch.inf, x), k)[1] + call.first


@top_indices.register_fake
def _(x, k, first, n, group):
    return x.new_empty(x.shape[0], k, dtype=torch.int64)
