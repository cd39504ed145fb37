"""Maps, losses, measures and draws of arrays in a GPU's memory, by the library isentropic_cuda: CuPy's, torch's, and others
that export DLPack or __cuda_array_interface__.

Results and memory are made by the array's own library. A call goes on the stream that the array names, and waits for nothing;
only the fits of calibration wait for their numbers. Arrays are copied only along an axis that is not the last, or if they have
gaps.
"""

import contextlib
import ctypes
import json
import math
import sys

import numpy as np

import isentropic._core as _core
from isentropic import _checks, _cuda, _descriptions

_CUDA_DEVICES = (2, 13)  # DLPack's numbers for a GPU's memory, and for memory that both sides read


def holds(x):
    """Whether x is an array in a GPU's memory, and the library for it is here."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack_device__"):
        return False
    if type(x).__module__.startswith(("jax", "pyarrow")):
        return False  # jax has a door of its own, whose arrays cannot be written
    try:
        on_device = x.__dlpack_device__()[0] in _CUDA_DEVICES
    except (BufferError, RuntimeError, TypeError, ValueError):
        return False
    return on_device and _cuda.found() is not None


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_pointer_of_capsule = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of_capsule.restype, _pointer_of_capsule.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class _Arrays:
    """The library of an array: what makes further arrays beside it, and where calls go."""

    def __init__(self, x):
        self.x = x
        found = getattr(x, "__array_namespace__", None)
        self.np = found() if found is not None else sys.modules[type(x).__module__.partition(".")[0]]
        self.device = {"device": x.device} if found is not None else {}

    def empty(self, shape, dtype):
        return self.np.empty(shape, dtype=getattr(self.np, dtype), **self.device)

    def bytes(self, size):
        return self.empty((size,), "uint8")

    def to(self, array, dtype):
        return self.np.astype(array, getattr(self.np, dtype)) if hasattr(self.np, "astype") else array.astype(dtype)

    def from_host(self, array):
        return self.np.asarray(array, **self.device)

    def address(self, array):
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is not None:
            return interface["data"][0]
        # The capsule owns the description with the address; the array, which stays alive, owns the numbers.
        capsule = array.__dlpack__(stream=1)
        tensor = ctypes.cast(_pointer_of_capsule(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
        return (tensor.data or 0) + tensor.byte_offset

    def contiguous(self, array):
        if hasattr(self.np, "ascontiguousarray"):
            return self.np.ascontiguousarray(array)
        return self.np.asarray(array, copy=True)

    def stream(self):
        """The handle of the stream that the array's library works on; the default one if it does not say."""
        return (getattr(self.x, "__cuda_array_interface__", None) or {}).get("stream")

    def on_device(self):
        device = getattr(self.x, "device", None)
        return device if hasattr(device, "__enter__") else contextlib.nullcontext()


class _Tensors(_Arrays):
    """torch as such a library."""

    def __init__(self, x):
        self.x, self.np, self.device = x.detach(), sys.modules["torch"], {"device": x.device}

    def to(self, array, dtype):
        return array.to(getattr(self.np, dtype))

    def address(self, array):
        return array.data_ptr()

    def contiguous(self, array):
        return array.resolve_neg().contiguous()

    def stream(self):
        return self.np.cuda.current_stream(self.x.device).cuda_stream

    def on_device(self):
        return self.np.cuda.device(self.x.device)


class Rows:
    """An array along an axis as contiguous rows, further arrays beside it, and a call."""

    def __init__(self, function, argument, x, axis):
        _checks.no_autograd(function, argument, x)
        self.function, self.argument, self.type = function, argument, _cuda.type_name(x)
        if self.type not in ("float16", "bfloat16", "float32", "float64"):
            raise TypeError(
                f"{function}: {argument} must be of float16, bfloat16, float32 or float64 on a GPU, got dtype {x.dtype}"
            )
        self.arrays = _Tensors(x) if type(x).__module__.startswith("torch") else _Arrays(x)
        self.shape = tuple(x.shape)
        if not self.shape:
            raise ValueError(f"{function}: {argument} must have at least one axis, got a single number")
        self.axis = _core.normalize_axis(function, axis, len(self.shape))
        self.lead = (*self.shape[: self.axis], *self.shape[self.axis + 1 :])
        self.count, self.n = math.prod(self.lead), self.shape[self.axis]
        self.given = {argument: self._matrix(self.arrays.x)}

    def _matrix(self, x):
        moved = self.arrays.np.moveaxis(x, self.axis, -1)
        return self.arrays.contiguous(self.arrays.np.reshape(moved, (self.count, moved.shape[-1])))

    @staticmethod
    def holds(x):
        """Whether an array is where the rows are."""
        return holds(x)

    def alike(self, argument, x, size=None):
        """Another input of the same shape, or with another size of the axis."""
        if not self.holds(x):
            raise TypeError(f"{self.function}: {argument} must be on the device of {self.argument}, got {type(x).__name__}")
        wanted = (*self.shape[: self.axis], self.n if size is None else size, *self.shape[self.axis + 1 :])
        if tuple(x.shape) != wanted:
            raise ValueError(f"{self.function}: {argument} must have the shape of {self.argument}, {wanted}, got {x.shape}")
        self.given[argument] = self._matrix(self.arrays.to(x, self.type))

    def numbers(self, argument, x, dtype, own_axis=False):
        """One number for each row: an array of the device or of this machine. It broadcasts to this shape without the axis, or
        with 1 for the axis if it has its `own_axis`."""
        if not self.holds(x):
            x = self.arrays.from_host(np.asarray(x))
        wanted = (*self.shape[: self.axis], 1, *self.shape[self.axis + 1 :]) if own_axis else self.lead
        if tuple(x.shape) not in (wanted, (self.count,)):
            try:
                x = self.arrays.np.broadcast_to(x, wanted)
            except (RuntimeError, ValueError):
                raise ValueError(
                    f"{self.function}: {argument} must have a number for each row, of shape {wanted}, got {tuple(x.shape)}"
                ) from None
        self.given[argument] = self.arrays.contiguous(self.arrays.np.reshape(self.arrays.to(x, dtype), (self.count,)))

    def out(self, name, cols=None, dtype=None):
        shape = (self.count,) if cols is None else (self.count, cols)
        self.given[name] = self.arrays.empty(shape, dtype or self.type)

    def run(self, operation, parameters, vjp=False, on_host=()):
        """Calls the library. on_host: (name, NumPy array) of results that it writes to this machine's memory."""
        arrays = self.arrays
        with arrays.on_device():
            _cuda.call(operation, parameters, self.given, arrays.bytes, arrays.address, arrays.stream(), vjp, on_host)

    def back(self, name):
        """A result with the array's axes: with its own number of entries along the axis."""
        x = self.given[name]
        return self.arrays.np.moveaxis(self.arrays.np.reshape(x, (*self.lead, x.shape[1])), -1, self.axis)

    def values(self, name, keep=False, halves=True):
        """A result with one number for each row, of the array's type; `halves`: also if that has 16 bits, else of float32."""
        x = self.arrays.to(self.given[name], self.type if halves or self.type[-2:] != "16" else "float32")
        shape = (*self.shape[: self.axis], 1, *self.shape[self.axis + 1 :]) if keep else self.lead
        return self.arrays.np.reshape(x, shape)


def _parameters(rows, description, values, **more):
    """Parameters as JSON; those with a number for each row become arrays of `rows`."""
    numbers = []
    for param, value in zip(description["params"], values, strict=True):
        if param["kind"] == "map":
            name, own = value
            of_map = json.loads(_parameters(rows, _descriptions.MAPS[name], own.values()))
            more[param["name"]] = {"name": name, **of_map}
        elif param["per_row"] and (hasattr(value, "__dlpack__") or isinstance(value, (np.ndarray, list, tuple))):
            rows.numbers(param["name"], value, "float64", own_axis=True)
        else:
            numbers.append((param["name"], value))
    return _cuda.as_json(description, numbers, **more)


# Calls by description, whose results are in `rows`.


def run_map(rows, description, params):
    text = _parameters(rows, description, params)
    rows.out("y", 1 if description["reduces"] else rows.n)
    rows.run(description["name"], text)


def run_vjp(rows, description, y, grad, params, asked):
    text = _parameters(rows, description, params)
    size = 1 if description["reduces"] else None
    rows.alike("y", y, size)
    rows.alike("grad", grad, size)
    rows.out("dx", rows.n)
    for param in asked:
        rows.out(f"d_{param}", dtype="float64")
    rows.run(description["name"], text, vjp=True)


def run_reduction(rows, description, params, wanted, asked, **more):
    """A loss or a measure, with the gradients `wanted` and those in the parameters `asked`."""
    text = _parameters(rows, description, params, **more)
    rows.out("value", dtype="float64")
    for gradient in wanted:
        rows.out(gradient, rows.n)
    for param in asked:
        rows.out(f"d_{param}", dtype="float64")
    rows.run(description["name"], text)


def map_of(name, x, axis, params, keep=False):
    """A map in x's shape. For logsumexp one number for each row; `keep`: with an axis of size 1."""
    rows, description = Rows(name, "x", x, axis), _descriptions.MAPS[name]
    run_map(rows, description, params)
    return rows.values("y", keep) if description["reduces"] else rows.back("y")


def vjp_of(name, x, y, grad, axis, params, asked=()):
    """(J^T grad, [the gradient in each of the parameters `asked`])."""
    rows = Rows(f"{name}_vjp", "x", x, axis)
    run_vjp(rows, _descriptions.MAPS[name], y, grad, params, asked)
    return rows.back("dx"), [rows.values(f"d_{param}") for param in asked]


def loss_of(name, x, target, params, ignore_index, axis, asked, return_grad):
    """(the value of each row, the gradient or None, [the gradient in each of the parameters `asked`])."""
    description = _descriptions.LOSSES[name]
    scores, against = description["arguments"]
    rows = Rows(name, scores, x, axis)
    rows.given = {"x": rows.given.pop(scores)}
    if not holds(target):
        target = rows.arrays.from_host(np.asarray(target))
    if _cuda.type_name(target).startswith(("int", "uint")):
        rows.numbers("target", target, "int64")
    else:
        rows.alike(against, target)
        rows.given["target"] = rows.given.pop(against)
    more = {} if ignore_index is None else {"ignore_index": ignore_index}
    return _reduced(rows, description, params, ("dx",) if return_grad else (), asked, **more)


def measure_of(name, arrays, axis, params, asked, return_grad):
    """(the value of each row, the gradients in the arrays, [the gradient in each of the parameters `asked`])."""
    rows = Rows(name, "p", arrays[0], axis)
    for other in arrays[1:]:
        rows.alike("q", other)
    return _reduced(rows, _descriptions.MEASURES[name], params, ("dp", "dq")[: len(arrays)] if return_grad else (), asked)


def _reduced(rows, description, params, wanted, asked, **more):
    run_reduction(rows, description, params, wanted, asked, **more)
    value, *slopes = (rows.values(one, halves=False) for one in ("value", *(f"d_{param}" for param in asked)))
    return value, [rows.back(one) for one in wanted], slopes


def fit_of(name, argument, x, of_rows, parameters):
    """(the number that a fit of calibration finds, whether it is an end of its range). of_rows: (name, numbers, type)."""
    rows = Rows(name, argument, x, -1)
    for one, numbers, dtype in of_rows:
        rows.numbers(one, numbers, dtype)
    value, clamped = np.zeros(1), np.zeros(1, np.int32)
    results = [("value", value), ("clamped", clamped)]
    rows.run(name, json.dumps(parameters), on_host=results if name == "fit_temperature" else results[:1])
    return float(value[0]), bool(clamped[0])


def draws_of(name, operation, parameters, x, axis, stream, size, result):
    """Draws, or a distribution after steps, `result` "indices" or "y"."""
    rows = Rows(name, "x", x, axis)
    parameters = dict(parameters)
    if isinstance(stream, int):
        parameters["stream"] = stream
    elif stream is not None:
        rows.numbers("stream", stream, "int64")
    if result == "y":
        rows.out("y", rows.n)
        rows.run(operation, json.dumps(parameters))
        return rows.back("y")
    rows.out("indices", 1 if size is None else size, "int64")
    rows.run(operation, json.dumps(parameters))
    return rows.arrays.np.reshape(rows.given["indices"], rows.lead if size is None else (*rows.lead, size))
