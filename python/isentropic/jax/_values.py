"""Losses and measures: one number for each row, each table or each entry, with its gradient by the kernel."""

import functools
import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np

from isentropic._checks import each_number, index_or_none
from isentropic._descriptions import (
    LOSSES,
    MEASURES,
    OF_CLASSES,
    SPARSE_LOSSES,
    documented,
    inputs_of_two,
    no_distribution,
    several,
    still,
    takes_classes,
)
from isentropic.formulas import losses, measures
from isentropic.jax._call import array, as_array, call, like, normalized, wide
from isentropic.jax._maps import mapped
from isentropic.jax._parameters import along_rows, split, with_map
from isentropic.jax._rows import ROWS


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def _value(operation, static, names, moved, arrays, rows):
    given = dict(zip(names, arrays, strict=True))
    x = arrays[0]
    return call(operation, static, {**given, **rows}, {"value": like(x, 1, wide(x).dtype)})[0]


def _live(operation, static, arrays, name, slope):
    """Where a slope may change. Elsewhere, where it is 0, 0 times a tangent that is not finite counts as 0."""
    array, given = arrays[name], dict(static)
    there = jnp.isfinite(array)
    if operation in MEASURES and given.get("input", "probs") == "probs":
        there = there & (array > 0)
    if "target" in arrays and jnp.issubdtype(arrays["target"].dtype, jnp.integer) and "ignore_index" in given:
        there = there & (arrays["target"] != given["ignore_index"])  # ignored rows have no gradient at all
    return (slope != 0) | there


@jax.custom_jvp
def _finite(slope):
    """0 for an infinite slope, with its derivative, such as that of -log q in log p - log q where p is 0."""
    return jnp.where(jnp.isinf(slope), 0, slope)


_finite.defjvp(lambda primals, tangents: (_finite(*primals), *tangents))


def _times(slope, v):
    """slope v, and 0 where v is 0 even if the slope is infinite. Such a slope is three large factors: linear in v, but they
    raise every v other than 0 to infinity."""
    slope, v = wide(slope), wide(v)
    large = jax.lax.stop_gradient(jnp.copysign(jnp.finfo(slope.dtype).max, slope))
    return _finite(slope) * v + jnp.where(jnp.isinf(slope), v * large * large * large, 0)


@_value.defjvp
def _value_jvp(operation, static, names, moved, primals, tangents):
    arrays, rows = primals
    value, slopes, of_rows = _graded(operation, static, names, moved, arrays, rows)
    given, change = dict(zip(names, arrays, strict=True)), jnp.zeros_like(value)
    for (name, _), slope in zip(moved, slopes, strict=True):
        live = _live(operation, static, given, name, slope)
        change += jnp.where(live, _times(slope, tangents[0][names.index(name)]), 0).sum(-1, keepdims=True)
    for name, slope in of_rows.items():
        change += slope * tangents[1][name]
    return value, change


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3))
def _graded(operation, static, names, moved, arrays, rows):
    """(values, their gradients in arrays, in parameters of rows)."""
    outputs = {"value": like(arrays[0], 1, wide(arrays[0]).dtype)}
    outputs |= {slope: like(arrays[names.index(name)]) for name, slope in moved}
    without = still(_INFO[operation], _params(operation, static).values()) if rows else []
    of_rows = [name for name in rows if name not in without]
    outputs |= {f"d_{name}": like(rows[name]) for name in of_rows}
    value, *slopes = call(operation, static, {**dict(zip(names, arrays, strict=True)), **rows}, outputs)
    return value, slopes[: len(moved)], dict(zip(of_rows, slopes[len(moved) :], strict=True))


@_graded.defjvp
def _graded_jvp(operation, static, names, moved, primals, tangents):
    """The gradients are the kernel's, their derivatives those of the formulas."""
    if operation not in _FORMULAS:
        raise NotImplementedError(f"isentropic.jax: {operation} has no second derivative")
    found = value, slopes, of_rows = _graded(operation, static, names, moved, *primals)
    given, rows = dict(zip(names, primals[0], strict=True)), primals[1]
    places = [name for name, _ in moved]

    def formula(some, rows):
        gradients, of_params = _formula(operation, static, {**given, **dict(zip(places, some, strict=True))}, rows)
        return gradients, {param: of_params[param] for param in of_rows}

    vs = [tangents[0][names.index(name)] for name in places]
    _, turned = jax.jvp(formula, ([given[name] for name in places], rows), (vs, tangents[1]))
    turned, turned_rows = jax.tree.map(lambda one, slope: one.astype(slope.dtype), turned, (list(slopes), of_rows))
    change = jnp.zeros_like(value)
    for name, slope, v in zip(places, slopes, vs, strict=True):
        live = _live(operation, static, given, name, slope)
        change += jnp.where(live, _times(slope, v), 0).sum(-1, keepdims=True).astype(value.dtype)
    for name, slope in of_rows.items():
        change += slope * tangents[1][name]
    return found, (change, turned, turned_rows)


_INFO = {**LOSSES, **SPARSE_LOSSES, **MEASURES}
_FORMULAS = {*losses.LOSSES, *SPARSE_LOSSES, *measures.MEASURES}


def _params(operation, static, rows=None):
    return {param["name"]: param["default"] for param in _INFO[operation]["params"]} | dict(static) | (rows or {})


def _formula(operation, static, arrays, rows):
    """([the gradients in arrays], those in parameters of rows)."""
    params = _params(operation, static, rows)
    arrays = {name: wide(x) if jnp.issubdtype(x.dtype, jnp.floating) else x for name, x in arrays.items()}
    if operation in MEASURES:
        return measures.graded(ROWS, operation, list(arrays.values()), params)[1:]
    if operation in SPARSE_LOSSES:
        _, dx, slopes = losses.sparse_graded(ROWS, *arrays.values(), params)
        return [dx], slopes
    x, target, ignored = arrays["x"], arrays["target"], None
    if jnp.issubdtype(target.dtype, jnp.integer):
        if params.get("ignore_index") is not None:
            ignored = target == params["ignore_index"]
            x, target = jnp.where(ignored, 0, x), jnp.where(ignored, 0, target)
        target = (jnp.arange(x.shape[-1]) == target).astype(x.dtype)

    def of_map(name, x, own):
        numbers = tuple(sorted((key, value) for key, value in own.items() if not isinstance(value, jax.Array)))
        return mapped(name, numbers, x, {key: value for key, value in own.items() if isinstance(value, jax.Array)})

    _, dx, slopes = losses.graded(ROWS, _INFO[operation], x, target, ignored, params, of_map)
    return [dx], slopes


def _signed(classes):
    """Classes as the kernels take them. One that is too large for that stays too large, and does not become one to ignore."""
    kind = jnp.int32 if classes.dtype.itemsize < 8 else jnp.int64
    unsigned = jnp.issubdtype(classes.dtype, jnp.unsignedinteger)
    return (jnp.minimum(classes, jnp.iinfo(kind).max) if unsigned else classes).astype(kind)


def make_loss(info):
    name, (first, second) = info["name"], info["arguments"]

    def function(x, target, *, axis=-1, **parameters):
        x = array(name, first, x)
        axis = normalized(name, axis, x.ndim)
        moved = jnp.moveaxis(x, axis, -1)
        # Losses without classes have no such parameter.
        ignored = index_or_none(name, parameters.pop("ignore_index", None)) if takes_classes(info) else None
        static, rows = split(info, with_map(info, parameters), moved, axis)
        if ignored is not None:
            static = (*static, ("ignore_index", ignored))
        target = as_array(name, second, target)
        if jnp.issubdtype(target.dtype, jnp.integer) and info["target"] in ("class", "class or distribution"):
            if target.shape != moved.shape[:-1]:
                raise ValueError(
                    f"{name}: {second} must have shape {moved.shape[:-1]}, one class for each row, got {target.shape}"
                )
            target = _signed(target)[..., None]
        else:
            if target.shape != x.shape:
                raise ValueError(f"{name}: {second} must have the shape {x.shape} of {first}, got {target.shape}")
            target = jnp.moveaxis(array(name, second, target).astype(x.dtype), axis, -1)
        target = jax.lax.stop_gradient(target)
        return _value(name, static, ("x", "target"), (("x", "dx"),), (moved, target), rows)[..., 0]

    return function if (first, second) == ("x", "target") else _renamed(function, name, {first: "x", second: "target"})


def _renamed(function, name, names):
    """The function with other names of its first arguments."""
    old = inspect.signature(function).parameters.values()
    new = dict(zip(names.values(), names, strict=True))
    signature = inspect.Signature([one.replace(name=new.get(one.name, one.name)) for one in old])

    def renamed(*arrays, **parameters):
        try:
            signature.bind(*arrays, **parameters)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        return function(*arrays, **{names.get(key, key): value for key, value in parameters.items()})

    renamed.__signature__ = signature
    return renamed


@documented
def sparse_distillation_loss(
    student, indices, log_probs, *, temperature=1.0, divergence="forward_kl", beta=None, tail="bin", axis=-1
):
    """
    student: Scores, of any shape with at least one axis; -inf counts as absent.
    indices (array of integers): The classes that each row of the teacher has, as last axis; -1 is not a class.
    log_probs (array): Their log-probabilities, of any floating-point type; no gradient is taken in them.
    Returns: One number for each row, in student's shape without axis; float32 of halves.
    """
    name = "sparse_distillation_loss"
    x, log_probs = array(name, "student", student), array(name, "log_probs", log_probs)
    indices = as_array(name, "indices", indices)
    axis = normalized(name, axis, x.ndim)
    moved = jnp.moveaxis(x, axis, -1)
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        raise TypeError(f"{name}: indices must be integers, the classes of each row, got dtype {indices.dtype}")
    if indices.ndim == 0 or indices.shape[:-1] != moved.shape[:-1]:
        raise ValueError(f"{name}: indices must have shape {moved.shape[:-1]} + (k,), got {indices.shape}")
    if log_probs.shape != indices.shape:
        raise ValueError(f"{name}: log_probs must have the shape of indices, {indices.shape}, got {log_probs.shape}")
    parameters = {"temperature": temperature, "divergence": divergence, "beta": beta, "tail": tail}
    static, rows = split(SPARSE_LOSSES[name], parameters, moved, axis)
    indices = _signed(indices)
    arrays = moved, jax.lax.stop_gradient(indices), jax.lax.stop_gradient(log_probs)
    return _value(name, static, ("student", "indices", "log_probs"), (("student", "dx"),), arrays, rows)[..., 0]


def make_measure(info, two):
    name = info["name"]

    def one(p, *, axis=-1, **parameters):
        if (listed := several(info)) and np.ndim(parameters.get(listed, 0)):
            if isinstance(parameters[listed], jax.core.Tracer):
                raise TypeError(f"{name}: {listed} must be known outside of jit and grad")
            numbers = each_number(name, listed, parameters[listed])
            return jnp.stack([one(p, axis=axis, **{**parameters, listed: number}) for number in numbers], -1)
        p = array(name, "p", p)
        axis = normalized(name, axis, p.ndim)
        moved = jnp.moveaxis(p, axis, -1)
        static, rows = split(info, parameters, moved, axis)
        return _value(name, static, ("p",), (("p", "dp"),), (moved,), rows)[..., 0]

    def both(p, q, *, axis=-1, **parameters):
        if name in OF_CLASSES:
            for argument, one, other in (("p", p, q), ("q", q, p)):
                if np.ndim(one) == np.ndim(other) - 1 and jnp.issubdtype(jnp.result_type(one), jnp.integer):
                    raise no_distribution(name, argument, f"integers of shape {np.shape(one)}")
        p, q = array(name, "p", p), array(name, "q", q)
        if q.shape != p.shape:
            raise ValueError(f"{name}: q must have the shape {p.shape} of p, got {q.shape}")
        axis = normalized(name, axis, p.ndim)
        dtype = jnp.promote_types(p.dtype, q.dtype)
        arrays = jnp.moveaxis(p.astype(dtype), axis, -1), jnp.moveaxis(q.astype(dtype), axis, -1)
        kind, pair = inputs_of_two(info, parameters.get("input", "probs"))
        parameters = {**parameters, "input": kind}
        if pair is not None:
            (p, first), (q, second) = (measures.logarithms(ROWS, wide(x), kind) for x, kind in zip(arrays, pair, strict=True))
            given = {key: along_rows(name, key, one, p, axis) if np.ndim(one) else one for key, one in parameters.items()}
            return jnp.where((first | second)[..., 0], jnp.nan, both(p, q, **given))
        static, rows = split(info, parameters, arrays[0], axis)
        return _value(name, static, ("p", "q"), (("p", "dp"), ("q", "dq")), arrays, rows)[..., 0]

    return both if two else one


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _table(operation, static, pxy):
    value = jax.ShapeDtypeStruct((1, 1), wide(pxy).dtype)
    return call(operation, static, {"pxy": pxy}, {"value": value}, vmap_method="sequential")[0]


@_table.defjvp
def _table_jvp(operation, static, primals, tangents):
    value, slope = _graded_table(operation, static, *primals)
    return value, jnp.where(slope != 0, _times(slope, tangents[0]), 0).sum(keepdims=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _graded_table(operation, static, pxy):
    """(the value, its gradient)."""
    outputs = {"value": jax.ShapeDtypeStruct((1, 1), wide(pxy).dtype), "dp": like(pxy)}
    return tuple(call(operation, static, {"pxy": pxy}, outputs, vmap_method="sequential"))


@_graded_table.defjvp
def _graded_table_jvp(operation, static, primals, tangents):
    if operation not in measures.MEASURES:
        raise NotImplementedError(f"isentropic.jax: {operation} has no second derivative")
    value, slope = _graded_table(operation, static, *primals)
    (table,), (v,) = primals, tangents
    params = {**_params(operation, static), "cols": table.shape[-1]}

    def gradient(table):
        return measures.graded(ROWS, operation, [wide(table).reshape(1, -1)], params)[1][0].reshape(table.shape)

    change = jnp.where(slope != 0, _times(slope, v), 0).sum(keepdims=True)
    return (value, slope), (change, jax.jvp(gradient, (table,), (v,))[1].astype(slope.dtype))


def make_entry(info):
    name = info["name"]
    of_rows = any(param["name"] in ("normalize",) for param in info["params"])  # such a row is normalised first

    def function(p, **parameters):
        p = wide(array(name, "p", p, least=0))
        if p.ndim == 0:
            return function(p[None], **parameters)[0]
        axis = normalized(name, parameters.pop("axis", -1), p.ndim)
        moved = jnp.moveaxis(p, axis, -1)
        static, _ = split(info, parameters, moved, axis)
        kind, whole = dict(static).get("input", "probs"), dict(static).get("normalize", False)
        if of_rows and (kind == "scores" or whole):
            y = _information(static, kind != "probs", moved)
        else:
            y = _entries(name, static, moved)
        return jnp.moveaxis(y, -1, axis)

    return function


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _entries(operation, static, p):
    return call(operation, static, {"p": p}, {"value": like(p)})[0]


@_entries.defjvp
def _entries_jvp(operation, static, primals, tangents):
    value, slope = _graded_entries(operation, static, *primals)
    return value, _times(slope, tangents[0])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _information(static, of_scores, x):
    """self_information of scores, or of rows divided by their sum: an entry depends on its whole row."""
    return _entries("self_information", static, x)


@_information.defjvp
def _information_jvp(static, of_scores, primals, tangents):
    def information(x):
        if of_scores:
            return -mapped("log_softmax", (), x, {})
        there = x > 0
        return jnp.log(x.sum(-1, keepdims=True)) - jnp.log(jnp.where(there, x, 1))

    (x,), (v,) = primals, tangents
    base = dict(static).get("base")
    change = jax.jvp(information, (x,), (v,))[1]
    return _information(static, of_scores, x), change / math.log(base) if base else change


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _graded_entries(operation, static, p):
    """(values, their derivatives)."""
    return tuple(call(operation, static, {"p": p}, {"value": like(p), "dp": like(p)}))


@_graded_entries.defjvp
def _graded_entries_jvp(operation, static, primals, tangents):
    if operation not in measures.ENTRIES:
        raise NotImplementedError(f"isentropic.jax: {operation} has no second derivative")
    value, slope = _graded_entries(operation, static, *primals)
    params, (p,), (v,) = _params(operation, static), primals, tangents
    turned = jax.jvp(lambda p: measures.entries_pulled(ROWS, operation, p, jnp.ones_like(p), params), (p,), (v,))[1]
    return (value, slope), (_times(slope, v), turned.astype(slope.dtype))


def make_table(info):
    name = info["name"]

    def function(pxy, **parameters):
        pxy = array(name, "pxy", pxy)
        if pxy.ndim < 2:
            raise ValueError(f"{name}: pxy must have at least two axes, x in rows and y in columns, got shape {pxy.shape}")
        static, _ = split(info, parameters, pxy, 1)
        each = jax.vmap(lambda one: _table(name, static, one)[0, 0])
        return each(pxy.reshape(math.prod(pxy.shape[:-2]), *pxy.shape[-2:])).reshape(pxy.shape[:-2])

    return function
