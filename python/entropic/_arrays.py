"""Any array in, the same kind out: what stands between a public function and _core, which knows floating-point NumPy arrays.

Each function below takes an operation (see _maps.Kernels) and first tries the common case, a plain array.
"""

import math
import operator
import sys

import numpy as np

from entropic import _core, _dask

FLOAT16 = np.dtype(np.float16)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)

# DLPack's numbers for memory that a processor can read: CPU, and host memory pinned for CUDA or ROCm.
HOST_DEVICES = (1, 3, 11)

ndarray = np.ndarray
empty_like = np.empty_like
may_share_memory = np.may_share_memory


def run_map(operation, x, axis, out, params):
    """operation(x) in x's shape, into out where given."""
    if type(x) is ndarray:
        dtype = x.dtype
        if dtype is FLOAT32 or dtype is FLOAT64 or dtype is FLOAT16:
            if out is None:
                y = empty_like(x)
                operation.forward(x, y, axis, params)
                return y
            if out is x or (
                type(out) is ndarray and out.dtype is dtype and out.shape == x.shape and not may_share_memory(x, out)
            ):
                operation.forward(x, out, axis, params)
                return out

    name = operation.name
    if _dask.is_lazy(x):
        if out is not None:
            raise TypeError(f"{name}: out cannot be given for a Dask array, whose result is computed later")
        return _dask.along(lambda x, params: run_map(operation, x, -1, None, params), [(x, True)], [True], axis, params)
    array = _to_numpy(name, "x", x, bfloat16=True)
    values, dtype = _to_floats(name, "x", array)
    if out is None:
        y = empty_like(values)
        operation.forward(values, y, axis, params)
        return _same_kind(x, _cast(y, dtype))
    target = _writable(name, out, array.shape, dtype)
    if not _same_memory(array, target) and may_share_memory(array, target):
        # Exact, but not at any price.
        if may_share_memory(array, target, max_work=100_000):
            raise ValueError(f"{name}: out must be x itself or share no memory with it, got arrays that overlap in part")
        values = values.copy()  # interleaved: legal, but no business of the library
    y = target if target.dtype == values.dtype else empty_like(values)
    operation.forward(values, y, axis, params)
    if y is not target:
        with np.errstate(all="ignore"):
            target[...] = y
    return out


def run_reduction(operation, x, axis, keepdims, params):
    """operation(x), one number per row."""
    name = operation.name
    if _dask.is_lazy(x):
        y = _dask.along(lambda x, params: run_reduction(operation, x, -1, False, params), [(x, True)], [False], axis, params)
        return y.reshape(*(1 if d == axis % x.ndim else size for d, size in enumerate(x.shape))) if keepdims else y
    values, dtype = _to_floats(name, "x", _to_numpy(name, "x", x, bfloat16=True))
    shape = list(values.shape)
    position = _core.normalize_axis(name, axis, values.ndim)
    if keepdims:
        shape[position] = 1
    else:
        del shape[position]
    y = np.empty(shape, values.dtype)
    operation.forward(values, y, axis, params)
    return _number_or_array(_same_kind(x, _cast(y, dtype)))


def run_vjp(operation, x, y, grad, axis, params):
    """J^T grad in x's shape."""
    if type(x) is ndarray and type(y) is ndarray and type(grad) is ndarray:
        dtype = x.dtype
        if (dtype is FLOAT32 or dtype is FLOAT64 or dtype is FLOAT16) and y.dtype is dtype and grad.dtype is dtype:
            dx = empty_like(x)
            operation.vjp(x, y, grad, dx, axis, params)
            return dx
    if _dask.is_lazy(x):
        arrays = [(x, True), *((array, array.ndim == x.ndim) for array in (y, grad))]
        return _dask.along(lambda x, y, g, params: run_vjp(operation, x, y, g, -1, params), arrays, [True], axis, params)

    values, others, dtype = _vjp_arrays(operation, x, y, grad)
    dx = empty_like(values)
    operation.vjp(values, *others, dx, axis, params)
    return _same_kind(x, _cast(dx, dtype))


def run_param_vjp(operation, x, y, grad, axis, params):
    """J^T grad, and the gradient in each parameter per row that is given, one number per row."""
    values, others, dtype = _vjp_arrays(operation, x, y, grad)
    dx = empty_like(values)
    shape = list(values.shape)
    del shape[_core.normalize_axis(operation.name + "_vjp", axis, values.ndim)]
    asked = tuple(
        (param, np.empty(shape)) for param, value in zip(operation.per_row, params, strict=True) if param and value is not None
    )
    operation.param_vjp(values, *others, dx, axis, params, asked)
    dparams = tuple(_number_or_array(_same_kind(x, _cast(dparam, dtype))) for _, dparam in asked)
    return _same_kind(x, _cast(dx, dtype)), dparams[0] if len(dparams) == 1 else dparams


def _vjp_arrays(operation, x, y, grad):
    """(x, [y, grad], dtype of the result), all in the type to compute in."""
    name = operation.name + "_vjp"
    values, dtype = _to_floats(name, "x", _to_numpy(name, "x", x, bfloat16=True))
    others = [
        _cast(_to_floats(name, argument, _to_numpy(name, argument, array, bfloat16=True))[0], values.dtype)
        for argument, array in (("y", y), ("grad", grad))
    ]
    return values, others, dtype


class Along:
    """An array along an axis in .values, of its shape and any strides, and the way back: what functions that are no maps are
    built on."""

    def __init__(self, function, argument, x, axis, *, halves=False, like=None):
        """`halves`: float16 stays so. `like`: whose kind results have, if not that of x."""
        array = _to_numpy(function, argument, x)
        self.values, self._dtype = (_to_floats if halves else to_wide_floats)(function, argument, array)
        self.shape = self.values.shape
        if not self.shape:
            raise ValueError(f"{function}: {argument} must have at least one axis, got a single number")
        self._function, self._argument, self._x = function, argument, x if like is None else like
        self.axis = _core.normalize_axis(function, axis, len(self.shape))
        self.lead = (*self.shape[: self.axis], *self.shape[self.axis + 1 :])

    def alike(self, argument, array):
        """Another array of the same shape, in the same dtype."""
        if array.shape != self.shape:
            raise ValueError(
                f"{self._function}: {argument} must have the shape of {self._argument}, {self.shape}, got {array.shape}"
            )
        return _cast(_to_floats(self._function, argument, array)[0], self.values.dtype)

    def back(self, values):
        """Results of the same shape in the kind and dtype of the array."""
        return _same_kind(self._x, _cast(values, self._dtype))

    def numbers(self, numbers):
        """One number for each row, in the kind and dtype of the array and its shape without the axis."""
        return _number_or_array(_same_kind(self._x, _cast(numbers.reshape(self.lead), self._dtype)))

    def strings(self, strings):
        """The same for strings, which only NumPy has."""
        return strings.reshape(self.lead)[()]

    def index(self, row, preposition="of"):
        """Where a row is, for messages: " of row 3", " of row (0, 2)", or nothing where there is no other axis."""
        at = tuple(map(int, np.unravel_index(row, self.lead)))
        return f" {preposition} row {at[0] if len(at) == 1 else at}" if at else ""


class Rows(Along):
    """The same as contiguous rows in .values, for what takes a matrix."""

    def __init__(self, function, argument, x, axis, *, halves=False):
        super().__init__(function, argument, x, axis, halves=halves)
        moved = np.moveaxis(self.values, self.axis, -1)
        self.values = np.ascontiguousarray(moved).reshape(math.prod(self.lead), moved.shape[-1])

    def per_row(self, argument, value):
        """A parameter that may have a value for each row: an array as one float64 for each, anything else as it is."""
        value = per_row(self._function, argument, value)
        if not isinstance(value, ndarray) or value.ndim == 0:
            return value
        wanted = (*self.shape[: self.axis], 1, *self.shape[self.axis + 1 :])
        try:
            return np.ascontiguousarray(np.broadcast_to(value, wanted)).reshape(-1)
        except ValueError:
            which = f"{self._argument}'s shape with 1 for axis {self.axis}"
            raise misfit(self._function, argument, wanted, which, value) from None

    def back(self, values):
        """Rows of results in the kind, shape and dtype of the array."""
        return super().back(np.moveaxis(values.reshape(*self.lead, values.shape[-1]), -1, self.axis))


def per_row(function, argument, value):
    """A parameter that may have a value for each row: an array as float64, anything else as it is."""
    if isinstance(value, (ndarray, list, tuple)) or hasattr(value, "__dlpack__"):
        return _to_floats(function, argument, _to_numpy(function, argument, value))[0].astype(FLOAT64, copy=False)
    return value


def misfit(function, argument, wanted, which, value, may_be="a number or an array"):
    """The error of a parameter whose values do not spread over the rows: `which` says what the shape `wanted` is."""
    return ValueError(
        f"{function}: {argument} must be {may_be} that broadcasts to {tuple(wanted)}, {which}, got shape {tuple(value.shape)}"
    )


def sum_to(x, shape):
    """x summed over the axes along which an array of this shape was repeated."""
    x = x.sum(tuple(range(x.ndim - len(shape)))) if x.ndim > len(shape) else x
    repeated = tuple(i for i, (own, size) in enumerate(zip(shape, x.shape, strict=True)) if own == 1 and size != 1)
    return x.sum(repeated, keepdims=True) if repeated else x


def _number_or_array(result):
    return result[()] if isinstance(result, ndarray) else result  # a number where no axis is left, as NumPy's sums


def _cast(array, dtype):
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):  # beyond float16's range is inf, without a word
        return array.astype(dtype)


def _to_numpy(operation, argument, x, bfloat16=False):
    """x as a plain ndarray of whatever dtype, without a copy where it is an array.

    `bfloat16`: torch's tensors of that, which NumPy does not have, become float32, which holds all of them.
    """
    if type(x) is ndarray:
        return x
    if isinstance(x, ndarray):
        if isinstance(x, np.ma.MaskedArray):
            how = ", with -inf for entries to leave out: x.filled(-numpy.inf)" if argument == "x" else ""
            raise TypeError(f"{operation}: {argument} is a masked array; fill it first{how}")
        return np.asarray(x)
    if isinstance(x, (list, tuple)):
        try:
            array = np.asarray(x)
        except ValueError:
            raise ValueError(
                f"{operation}: {argument} must be an array, got lists of unequal length; pad them to one length"
                f"{', with -inf for what is absent' if argument == 'x' else ''}"
            ) from None
        return array.astype(np.float64) if array.dtype.kind in "f" else array
    if not hasattr(x, "__dlpack__") or type(x).__module__.startswith("pyarrow"):
        # Arrow's arrays without a copy, as lists of one length; pandas' frames have both interfaces, and NumPy's knows more.
        if (hasattr(x, "__arrow_c_array__") or hasattr(x, "__arrow_c_stream__")) and not type(x).__module__.startswith(
            "pandas"
        ):
            from entropic import _files

            return _files.from_arrow(x)
        return np.asarray(x)

    kind = type(x).__name__
    if getattr(x, "requires_grad", False):
        raise TypeError(
            f"{operation}: {argument} is a {kind} that requires grad; the functions of entropic.torch are differentiable, "
            f"or pass {argument}.detach() and use the _vjp function for the gradient"
        )
    try:
        on_host = x.__dlpack_device__()[0] in HOST_DEVICES
        if on_host:
            return x.float().numpy() if bfloat16 and _is_bfloat16(x) else np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(
            f"{operation}: {argument} is a {kind} of dtype {getattr(x, 'dtype', None)} that NumPy cannot read"
            f"{'; entropic.torch can' if kind == 'Tensor' else ''}: {error}"
        ) from error
    raise TypeError(
        f"{operation}: {argument} is a {kind} on device {getattr(x, 'device', None)}, and entropic computes on the CPU; "
        f"pass {argument}.cpu()"
    )


def _is_bfloat16(x):
    return str(getattr(x, "dtype", None)) == "torch.bfloat16"


def _to_floats(operation, argument, array):
    """(array in the type to compute in, dtype of the result)."""
    dtype = array.dtype
    if dtype is FLOAT32 or dtype is FLOAT64 or dtype is FLOAT16:
        return array, dtype
    if dtype.kind in "biu":
        return array.astype(FLOAT64), FLOAT64
    if dtype.kind == "f" and dtype.itemsize <= 8:
        native = (FLOAT16, FLOAT32, FLOAT64)[dtype.itemsize // 4]
        return array.astype(native, copy=False), native
    hint = ""
    if dtype.kind in "US":
        hint = f"; numpy.asarray({argument}, float) makes numbers of text, entropic.read reads a file"
    elif dtype.kind == "O":
        hint = f"; numpy.asarray({argument}, float) makes numbers of objects that are some"
    raise TypeError(
        f"{operation}: {argument} must be of float16, float32, float64, an integer type or bool, got dtype {dtype}{hint}"
    )


def flag(operation, argument, value):
    """A bool, and nothing that Python would take for one: "no" is true."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{operation}: {argument} must be a bool, got {type(value).__name__}")
    return bool(value)


def number(operation, argument, value, expected="a number"):
    """A float, and nothing that Python would read as one: float("1") is 1. Beyond floats: inf."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError, RuntimeError):
        pass
    raise TypeError(f"{operation}: {argument} must be {expected}, got {type(value).__name__}")


def integer(operation, argument, value, expected="an integer"):
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{operation}: {argument} must be {expected}, got {type(value).__name__}") from None


def to_wide_floats(operation, argument, array):
    """The same where float16 is none to compute in."""
    values, dtype = _to_floats(operation, argument, array)
    return values.astype(FLOAT32) if values.dtype == FLOAT16 else values, dtype


def _writable(operation, out, shape, dtype):
    """out as a plain ndarray over the same memory, of this shape and dtype."""
    if not (isinstance(out, ndarray) or hasattr(out, "__dlpack__")):
        raise TypeError(f"{operation}: out must be an array, got {type(out).__name__}")
    target = _to_numpy(operation, "out", out)
    if target.shape != shape:
        raise ValueError(f"{operation}: out must have the shape of x, {shape}, got {target.shape}")
    if target.dtype != dtype:
        raise ValueError(f"{operation}: out must be of dtype {dtype}, as the result is, got {target.dtype}")
    if not target.flags.writeable and hasattr(out, "__array__"):
        same = np.asarray(out)  # NumPy before 2.1 reads all of DLPack as read-only
        target = same if _same_memory(same, target) else target
    if not target.flags.writeable:
        raise ValueError(f"{operation}: out must be writable, got a read-only array")
    return target


def _same_memory(a, b):
    return a.ctypes.data == b.ctypes.data and a.strides == b.strides and a.shape == b.shape


def _same_kind(x, result):
    """result as the kind of array that x is, over the same memory where x is not bfloat16."""
    if isinstance(x, ndarray) or not hasattr(x, "__dlpack__") or type(x).__module__.startswith("pyarrow"):
        return result
    if _is_bfloat16(x):
        return sys.modules["torch"].from_dlpack(result).to(x.dtype)
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__().from_dlpack(result)
    return sys.modules[type(x).__module__.partition(".")[0]].from_dlpack(result)  # torch
