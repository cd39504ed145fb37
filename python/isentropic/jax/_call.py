"""Calls from functions of JAX arrays into the library, and into functions of NumPy arrays."""

import functools
import json
import math
import os
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import isentropic
import isentropic._core as _core

if tuple(int(part) for part in jax.__version__.split(".")[:3]) < (0, 5, 3):
    raise ImportError(f"isentropic.jax needs jax 0.5.3 or newer, this is {jax.__version__}")

jax.ffi.register_ffi_target("isentropic", _core.xla_call(), platform="cpu")
jax.ffi.register_ffi_target("isentropic_python", _core.xla_call_python(), platform="cpu")

for _platform in ("CUDA", "ROCM"):
    for _target in ("isentropic", "isentropic_python"):
        jax.ffi.register_ffi_target(_target, _core.xla_refuse(), platform=_platform)

HALVES = (jnp.float16, jnp.bfloat16)


def _varying(x):
    """The axes of shard_map's mesh along which x differs between devices; later versions of JAX have them in the type."""
    of = jax.typeof(x)
    return frozenset(of.mat.varying if hasattr(of, "mat") else getattr(of, "vma", ()))


def _bind(target, inputs, outputs, vmap_method, **attributes):
    """The call; it makes all inputs and outputs differ along the same axes of a mesh."""
    axes = frozenset().union(*map(_varying, inputs))
    if axes:
        cast = functools.partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary
        inputs = [cast(x, tuple(axes - _varying(x))) if axes - _varying(x) else x for x in inputs]
        of = jax.typeof(inputs[0])
        outputs = [of.update(shape=one.shape, dtype=one.dtype, weak_type=False) for one in outputs]
    kernel = functools.partial(jax.ffi.ffi_call(target, outputs, vmap_method=vmap_method), **attributes)
    if os.environ.get("ISENTROPIC_STRICT") == "0":
        _say_where(attributes["operation"])
        copied = functools.partial(_copied, target, outputs, vmap_method, attributes)
        found = jax.lax.platform_dependent(*inputs, cpu=kernel, default=copied)
    else:
        found = kernel(*inputs)
    if not (hasattr(jax.lax, "pcast") or hasattr(jax.lax, "pvary")) and not jax.typeof(inputs[0]).sharding.mesh.empty:
        # Before JAX 0.6 the results of calls lack the mesh; the results of products have it.
        found = [one * np.ones((), one.dtype) for one in found]
    return found


_said: set[str] = set()


def _say_where(operation):
    if jax.default_backend() != "cpu" and operation not in _said:
        _said.add(operation)
        message = f"isentropic.jax: {operation} has no kernel for {jax.default_backend()}, its arrays are copied to the CPU"
        warnings.warn(f"{message} (without ISENTROPIC_STRICT=0 this is an error)", stacklevel=2)


# The numbers of isentropic/c.h.
_TYPES = {"float32": 1, "float64": 2, "float16": 3, "bfloat16": 4, "int32": 5, "int64": 6}


def _copied(target, outputs, vmap_method, attributes, *inputs):
    """The call on a device without kernels: through the host."""

    def run(*inputs):
        given = [np.ascontiguousarray(x) for x in inputs]
        # All arrays of a vectorised call have more axes.
        more = max((x.shape[: x.ndim - len(one)] for x, one in zip(given, shapes, strict=True)), key=len, default=())
        results = [np.empty((*more, *one.shape), one.dtype) for one in outputs]
        if target == "isentropic_python":
            wrong = on_host(attributes["operation"], attributes["parameters"], given, results)
            if wrong is not None:
                raise ValueError(wrong)
            return results
        names = attributes["arrays"].split(",")
        arrays = [
            (name, x.ctypes.data, math.prod(x.shape[:-1]), x.shape[-1], _TYPES[x.dtype.name])
            for name, x in zip(names, [*given, *results], strict=True)
        ]
        _core.apply_on_host(attributes["operation"], attributes["parameters"], arrays, bool(attributes["vjp"]))
        return results

    shapes = [x.shape for x in inputs]
    return jax.pure_callback(run, outputs, *inputs, vmap_method=vmap_method)


def call(operation, parameters, inputs, outputs, vjp=False, vmap_method="broadcast_all"):
    """inputs: name -> array; outputs: name -> ShapeDtypeStruct. All have the rows' axes first and one axis more."""
    text = json.dumps({key: value for key, value in parameters if value is not None})
    names = ",".join([*inputs, *outputs])
    arrays = tuple((name, x.shape[-1], x.dtype.name) for name, x in {**inputs, **outputs}.items())
    _check(operation, text, arrays, vjp)
    attributes = {"operation": operation, "parameters": text, "arrays": names, "vjp": np.bool_(vjp)}
    return _bind("isentropic", list(inputs.values()), list(outputs.values()), vmap_method, **attributes)


@functools.lru_cache(maxsize=1024)
def _check(operation, text, arrays, vjp):
    """Raises for a wrong parameter at once, and not when the program runs: the call for no rows, or a table of one entry."""
    if any(name == "pxy" for name, _, _ in arrays):
        numbers = np.ones(len(arrays))
        given = [(name, numbers[i:].ctypes.data, 1, 1, _TYPES["float64"]) for i, (name, _, _) in enumerate(arrays)]
    else:
        given = [(name, 0, 0, cols, _TYPES[dtype]) for name, cols, dtype in arrays]
    _core.apply_on_host(operation, text, given, vjp)


def like(x, cols=None, dtype=None):
    return jax.ShapeDtypeStruct(x.shape if cols is None else (*x.shape[:-1], cols), dtype or x.dtype)


def as_array(operation, name, x):
    """An array of any type that JAX has."""
    if isinstance(x, (list, tuple, int, float)):
        try:
            x = np.asarray(x)
        except ValueError:
            raise ValueError(f"{operation}: {name} must be an array, got lists of unequal length") from None
    if not hasattr(x, "dtype"):
        raise TypeError(f"{operation}: {name} must be an array, got {type(x).__name__}")
    if getattr(x.dtype, "kind", "") in "OSUMm":
        raise TypeError(f"{operation}: {name} must be an array of numbers, got dtype {x.dtype}")
    return jnp.asarray(x)


def array(operation, name, x, least=1):
    """An array of floating-point numbers with at least this many axes; integers and bools are converted."""
    x = as_array(operation, name, x)
    if jnp.issubdtype(x.dtype, jnp.integer) or x.dtype == bool:
        x = x.astype(jnp.result_type(float))
    if x.dtype not in (*HALVES, jnp.float32, jnp.float64):
        raise TypeError(
            f"{operation}: {name} must be of float16, bfloat16, float32, float64, an integer type or bool, got dtype {x.dtype}"
        )
    if x.ndim < least:
        raise ValueError(f"{operation}: {name} must have at least one axis, got a single number")
    return x


normalized = _core.normalize_axis


def sum_tolerance(*arrays):
    """The tolerance for sums if some of these are halves, which the library then gets in a wider type; otherwise None, which is
    that of the type that it gets."""
    return _core.sum_tolerance[2] if any(getattr(x, "dtype", None) in HALVES for x in arrays) else None


def wide(x):
    return x.astype(jnp.float32) if x.dtype in HALVES else x


# Functions of NumPy arrays by name, where they are not the package's own; their results fill the outputs of the call.
HOSTED: dict[str, Callable[..., Any]] = {}


def hosted(name):
    return lambda function: HOSTED.setdefault(name, function)


def call_hosted(function, parameters, inputs, outputs, vmap_method="broadcast_all"):
    """function(*inputs, **parameters), one of HOSTED or isentropic's, when the program runs; outputs: ShapeDtypeStructs."""
    given = [wide(x) for x in inputs]
    text = json.dumps(plain(function, "", parameters))
    return _bind("isentropic_python", given, list(outputs), vmap_method, operation=function, parameters=text)


def plain(function, name, value):
    """Numbers of NumPy and JAX in parameters as Python's, which JSON has."""
    if isinstance(value, dict):
        return {key: plain(function, key, one) for key, one in value.items()}
    if isinstance(value, (np.generic, np.ndarray, jax.Array)) and not isinstance(value, jax.core.Tracer) and not value.ndim:
        value = value.item()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    what = f"an array of shape {value.shape}" if hasattr(value, "shape") else type(value).__name__
    raise TypeError(f"{function}: {name} must be one value known outside of jit and grad, got {what}")


def on_host(function, parameters, inputs, outputs):
    """Called by XLA; returns None or an error message."""
    try:
        run = HOSTED.get(function) or getattr(isentropic, function)
        results = run(*inputs, **json.loads(parameters))
        results = results if isinstance(results, tuple) else (results,)
        for output, result in zip(outputs, results, strict=True):
            output[...] = result
    except Exception as error:
        return str(error)
    return None
