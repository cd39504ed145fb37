"""Operations on DTensors: by parts if the mesh shards the rows, otherwise of each rank's rows."""

import functools
import inspect
import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from isentropic._descriptions import MAPS
from isentropic.torch._arguments import checked_dim, checked_sample_weight, is_ignored, quotient
from isentropic.torch._spec import TokenStatistics
from isentropic.torch.distributed import _functions


def _laid_out(name, x, dim):
    """(x without pending sums, its placements, the dimension of the mesh that shards dim or None)."""
    from torch.distributed.tensor import Replicate

    placements = tuple(Replicate() if one.is_partial() else one for one in x.placements)
    if placements != tuple(x.placements):
        x = x.redistribute(x.device_mesh, placements)
    meshes = [i for i, one in enumerate(placements) if one.is_shard(dim)]
    if len(meshes) > 1:
        raise ValueError(f"{name}: dim {dim} must be sharded by one dimension of the mesh, got placements {placements}")
    return x, placements, meshes[0] if meshes else None


def _operation_of_parts(name, placements, dim):
    if name not in _functions.__all__:
        raise ValueError(
            f"{name}: dim {dim} must not be sharded, because there is no such operation on parts, got placements {placements}"
        )
    return getattr(_functions, name)


def _as_dtensor(y, mesh, placements, shape):
    from torch.distributed.tensor import DTensor

    stride = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return DTensor.from_local(y, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride)


def of_dtensor(name, x, values, dim, on_rows):
    """A map of a DTensor: by parts if its mesh shards dim, otherwise on_rows(name, tensor, values, dim) of each rank's rows."""
    from torch.distributed.tensor import Replicate

    dim, reduces = dim % x.dim(), MAPS[name]["reduces"]
    x, placements, sharded = _laid_out(name, x, dim)
    if sharded is None:
        y = on_rows(name, x.to_local(), values, dim)
    else:
        of_parts = _operation_of_parts(name, placements, dim)
        given = {one["name"]: value for one, value in zip(MAPS[name]["params"], values, strict=True)}
        if (kind := given.pop("input", "scores")) != "scores":
            raise ValueError(f"{name}: input must be scores if dim is sharded, got {kind}")
        keep = {"keepdim": True} if reduces else {}
        y = of_parts(x.to_local(), dim=dim, group=x.device_mesh.get_group(sharded), **given, **keep)
        if reduces:
            placements = tuple(Replicate() if i == sharded else one for i, one in enumerate(placements))
    shape = list(x.shape)
    if reduces:
        shape[dim] = 1
    return _as_dtensor(y, x.device_mesh, placements, shape)


def entries_of_dtensor(name, x, dim, on_local):
    """A result of x's shape from each rank's rows; refused if the mesh shards dim."""
    x, placements, sharded = _laid_out(name, x, dim)
    if sharded is not None:
        _operation_of_parts(name, placements, dim)
    return _as_dtensor(on_local(x.to_local()), x.device_mesh, placements, x.shape)


def attention_of_dtensors(name, q, k, v, mask, on_local):
    """Attention of each rank's batches and heads: q, k and v are sharded alike, and in no other axis."""
    from torch.distributed.tensor import DTensor

    if not all(isinstance(one, DTensor) for one in (q, k, v)) or isinstance(mask, DTensor):
        got = ", ".join(type(one).__name__ for one in (q, k, v, mask))
        raise TypeError(f"{name}: q, k and v must all be DTensors, and mask must not be one, got {got}")
    if len({one.dim() for one in (q, k, v)}) > 1 or (mask is not None and mask.dim() > 2):
        got = ", ".join(str(one.dim()) for one in (q, k, v, mask) if one is not None)
        raise ValueError(f"{name}: DTensors q, k and v must have equally many axes, and mask at most two, got {got}")
    rows = q.dim() - 2
    (q, placements, _), *others = (_laid_out(name, one, rows) for one in (q, k, v))
    if any(one.is_shard() and one.dim >= rows for one in placements):
        raise ValueError(f"{name}: queries and their entries must not be sharded, got placements {placements}")
    for argument, (_, other, _) in zip("kv", others, strict=True):
        if other != placements:
            raise ValueError(f"{name}: {argument} must have the placements of q, {placements}, got {other}")
    k, v = (other[0] for other in others)
    found = on_local(q.to_local(), k.to_local(), v.to_local())

    def whole(one):
        return _as_dtensor(one, q.device_mesh, placements, (*q.shape[:rows], *one.shape[rows:]))

    return tuple(whole(one) for one in found) if isinstance(found, tuple) else whole(found)


def rows_of_dtensors(name, tensors, dim, given, defaults, on_local):
    """Numbers for each row of DTensors: by parts if their mesh shards dim, otherwise of each rank's rows.

    Other tensors get the placements of the first DTensor. on_local(*tensors) is the operation on whole rows.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard

    like = next(one for one in tensors if isinstance(one, DTensor))
    dim = checked_dim(name, "x", like, dim)
    like, placements, sharded = _laid_out(name, like, dim)
    mesh = like.device_mesh
    of_rows = tuple(
        Shard(one.dim - (one.dim > dim)) if one.is_shard() and i != sharded else Replicate() for i, one in enumerate(placements)
    )

    def local(tensor):
        if not isinstance(tensor, DTensor):
            tensor = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return tensor.redistribute(mesh, placements if tensor.dim() == like.dim() else of_rows).to_local()

    parts = [local(one) for one in tensors]
    if sharded is None:
        value = on_local(*parts)
    else:
        of_parts = _operation_of_parts(name, placements, dim)
        known = inspect.signature(of_parts).parameters
        scale = 1.0
        for param, value in list(given.items()):
            if param in known:
                continue
            del given[param]
            if param == "base" and value is not None:
                scale /= math.log(value)
            elif value != defaults[param] and param != "base":
                raise ValueError(f"{name}: {param} must be {defaults[param]} if dim is sharded, got {value!r}")
        value = of_parts(*parts, dim=dim, group=mesh.get_group(sharded), **given)
        value = value * scale if scale != 1 else value

    def whole(value):
        if not isinstance(value, Tensor):
            return value
        if sharded is not None and value.is_floating_point():
            value = value.to(torch.float64 if like.dtype == torch.float64 else torch.float32)
        shape = [*like.shape[:dim], *like.shape[dim + 1 :]]
        if value.dim() == len(shape):
            return _as_dtensor(value, mesh, of_rows, shape)
        shape.insert(dim, value.shape[dim])  # several for each row
        return _as_dtensor(value, mesh, [Replicate() if i == sharded else one for i, one in enumerate(placements)], shape)

    return whole(value) if isinstance(value, Tensor) else type(value)(*map(whole, value))


_PART = 1 << 23  # scores of a rank at a time


def _of_split_head(name, hidden, weight, bias, target, of_scores, out=None):
    """[of_scores(scores, target) for some rows at a time]. weight, and bias, are sharded by classes, and every rank has hidden
    and target; scores are a DTensor, and a rank has the scores of its classes. If there are several such parts, backward
    computes the scores again. Gradients in hidden are summed over the ranks, the others stay with the classes. Rows that are
    `out` are read as 0; those that are not finite have NaN for all scores, and no part in the weight's gradient."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    mesh = getattr(weight, "device_mesh", None)
    if mesh is None:
        raise TypeError(f"{name}: weight must be a DTensor that is sharded by classes if hidden is one, got a tensor")
    sharded = [i for i, one in enumerate(weight.placements) if one.is_shard(0)]
    if len(sharded) != 1 or any(not one.is_replicate() for i, one in enumerate(weight.placements) if i not in sharded):
        raise ValueError(f"{name}: weight must be sharded by classes in one dimension of the mesh, got {weight.placements}")

    def on_all(argument, x):
        if not isinstance(x, DTensor):
            return DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim, run_check=False)
        if any(not one.is_replicate() for one in x.placements):
            raise ValueError(f"{name}: {argument} must be replicated if weight is sharded, got placements {x.placements}")
        return x

    if bias is not None:
        bias = on_all("bias", bias) if not isinstance(bias, DTensor) or bias.placements != weight.placements else bias
        bias = bias.redistribute(mesh, weight.placements).to_local()
    sums = [Partial() if i in sharded else Replicate() for i in range(mesh.ndim)]
    hidden, part = on_all("hidden", hidden).to_local(grad_placements=sums), weight.to_local()
    hidden = hidden if out is None else torch.where(out.unsqueeze(-1), 0.0, hidden)
    lead, target = hidden.shape[:-1], on_all("target", target).to_local()
    placements = [Shard(1) if i in sharded else Replicate() for i in range(mesh.ndim)]

    def of_rows(hidden, part, bias, target):
        finite = hidden.isfinite().all(-1, keepdim=True)
        scores = torch.nn.functional.linear(torch.where(finite, hidden, 0.0), part, bias)
        scores = torch.where(finite, scores, torch.nan)
        return of_scores(_as_dtensor(scores, mesh, placements, (len(hidden), weight.shape[0])), target)

    rows, own = hidden.reshape(-1, hidden.shape[-1]), target.reshape(math.prod(lead), *target.shape[len(lead) :])
    step = max(1, _PART * mesh.size(sharded[0]) // max(1, weight.shape[0]))  # on all ranks alike
    run = of_rows if len(rows) <= step else functools.partial(checkpoint, of_rows, use_reentrant=False)
    return [run(rows[i : i + step], part, bias, own[i : i + step]) for i in range(0, max(1, len(rows)), step)]


def linear_token_statistics_of_dtensors(function, hidden, weight, target, bias, options):
    """linear_token_statistics whose classes are split; `function` is token_statistics, of DTensors."""

    def of_scores(scores, target):
        return tuple(one if one is None else one.to_local() for one in function(scores, target, **options))

    found = _of_split_head("linear_token_statistics", hidden, weight, bias, target, of_scores)
    lead = hidden.shape[:-1]
    whole = (None if one[0] is None else torch.cat(one) for one in zip(*found, strict=True))
    return TokenStatistics(*(one if one is None else one.reshape(*lead, *one.shape[1:]) for one in whole))


def linear_loss_of_dtensors(hidden, weight, target, functions, bias, reduction, sample_weight, z_loss, params):
    """linear_loss whose classes are split. `functions` are the loss and logsumexp, of DTensors."""
    lead = hidden.shape[:-1]
    sample_weight = checked_sample_weight("linear_loss", sample_weight, "hidden", hidden, lead)
    out = None if sample_weight is None else sample_weight == 0
    if not target.is_floating_point():
        params = {"ignore_index": -100, **params}
        ignored = is_ignored(target.to_local() if hasattr(target, "to_local") else target, params["ignore_index"])
        out = ignored if out is None else ignored | out

    def of_scores(scores, target):
        value = functions[0](scores, target, **params).to_local()
        return value if z_loss == 0 else torch.stack([value, functions[1](scores).to_local()])

    found = _of_split_head("linear_loss", hidden, weight, bias, target, of_scores, out)
    value = torch.cat(found, -1)
    value = value[0] + z_loss * value[1].square() if z_loss else value
    factors = torch.ones_like(value) if sample_weight is None else sample_weight.reshape(-1).to(value.dtype)
    factors = factors if out is None else torch.where(out.reshape(-1), 0.0, factors)
    value = torch.where(factors == 0, 0.0, value * factors)
    if reduction == "none":
        return value.reshape(lead)
    return value.sum() if reduction == "sum" else quotient(value.sum(), factors.sum())
