"""The operations on parts as operators of torch."""

import json

import numpy as np
import torch
from torch import Tensor

from isentropic.torch.distributed._calls import OPERATIONS, Call, shapes
from isentropic.torch.distributed._chain import Chain
from isentropic.torch.distributed._group import start_counting


def array(tensor):
    return None if tensor is None else np.ascontiguousarray(tensor.detach().cpu().numpy())


@torch.library.custom_op("isentropic::parts", mutates_args=())
def operate(
    x: Tensor, other: Tensor | None, target: Tensor | None, params: Tensor | None, spec: str, first: int, n: int, group: str
) -> tuple[Tensor, Tensor]:
    start_counting()
    call = Call(spec, array(x), array(other), array(target), first, n, group, array(params))
    y, values = OPERATIONS[call.spec["kind"]][0](call)
    return torch.from_numpy(np.ascontiguousarray(y)).to(x.device), torch.from_numpy(np.ascontiguousarray(values)).to(x.device)


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
    call = Call(spec, array(x), array(other), array(target), first, n, group, array(params))
    saved = [array(one) for one in (y, values, gy, gvalues)]
    found = OPERATIONS[call.spec["kind"]][1](call, *saved)
    dx, more = found if isinstance(found, tuple) else (found, np.zeros((0, 0)))
    dx, more = (torch.from_numpy(np.ascontiguousarray(d)).to(x.device) for d in (dx, more))
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
    call = Call(spec, array(x), None, None, first, n, group, streams=array(streams).view(np.uint64))
    chain = Chain(call)
    for step, values in call.spec["steps"]:
        chain.apply(step, values)
    return torch.from_numpy(chain.draw(call.streams)).to(x.device)


@draw.register_fake
def _(x, streams, spec, first, n, group):
    return x.new_empty(x.shape[0], json.loads(spec)["size"], dtype=torch.int64)


@torch.library.custom_op("isentropic::parts_chain", mutates_args=())
def chain_probs(x: Tensor, spec: str, first: int, n: int, group: str) -> Tensor:
    start_counting()
    call = Call(spec, array(x), None, None, first, n, group)
    chain = Chain(call)
    for step, values in call.spec["steps"]:
        chain.apply(step, values)
    return torch.from_numpy(chain.probs()).to(x.device)


@chain_probs.register_fake
def _(x, spec, first, n, group):
    return torch.empty_like(x)


@torch.library.custom_op("isentropic::parts_top", mutates_args=())
def top_indices(x: Tensor, k: int, first: int, n: int, group: str) -> Tensor:
    call = Call(json.dumps({"name": "token_statistics", "top": k}), array(x), None, None, first, n, group)
    if k > call.n:
        raise ValueError(f"token_statistics: top must be an integer from 0 to {call.n}, how many tokens there are, got {k}")
    wide = np.where(np.isnan(call.x), np.inf, call.x.astype(np.float64))
    order = np.argsort(-wide, axis=1, kind="stable")[:, :k]
    # A part may have fewer tokens than k. No token is behind all others, also those of -inf.
    told = np.tile([-np.inf, np.inf], (call.rows, k, 1))
    told[:, : order.shape[1], 0] = np.take_along_axis(wide, order, 1)
    told[:, : order.shape[1], 1] = order + call.first
    joined = call.group.join(told.view(np.int64).reshape(-1), "gather", call.rows).view(np.float64)
    parts = call.group.size
    joined = joined.reshape(parts, call.rows, k, 2).transpose(1, 0, 2, 3).reshape(call.rows, parts * k, 2)
    best = np.lexsort((joined[:, :, 1], -joined[:, :, 0]))[:, :k]
    return torch.from_numpy(np.take_along_axis(joined[:, :, 1], best, 1).astype(np.int64)).to(x.device)


@top_indices.register_fake
def _(x, k, first, n, group):
    return x.new_empty(x.shape[0], k, dtype=torch.int64)
