"""Operations on DTensors: by parts if the mesh shards the rows, otherwise of each rank's rows."""

import inspect
import math

import torch
from torch import Tensor

from isentropic._descriptions import MAPS
from isentropic.torch._arguments import checked_dim
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
        if given.pop("input", "scores") != "scores":
            raise ValueError(f"{name}: input must be scores if dim is sharded")
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
        raise TypeError(f"{name}: q, k and v must all be DTensors, and mask none")
    if len({one.dim() for one in (q, k, v)}) > 1 or (mask is not None and mask.dim() > 2):
        raise ValueError(f"{name}: DTensors q, k and v must have equally many axes, and mask at most two")
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
