"""Arrays of any kind become NumPy arrays of a type that the library has, and results become the kind that was given."""

import sys

import numpy as np

import isentropic._core as _core
from isentropic import _checks
from isentropic._numpy import _device

FLOAT16 = np.dtype(np.float16)
FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)

# DLPack's numbers for memory that a processor can read: CPU, and host memory pinned for CUDA or ROCm.
HOST_DEVICES = (1, 3, 11)

ndarray = np.ndarray


def per_row(function, argument, value):
    """A parameter that may have a value for each row: an array becomes float64. Anything else is returned unchanged, and so is
    an array in a GPU's memory, which belongs to scores there."""
    if _device.holds(value):
        return value
    if isinstance(value, (ndarray, list, tuple)) or hasattr(value, "__dlpack__"):
        return to_floats(function, argument, to_numpy(function, argument, value))[0].astype(FLOAT64, copy=False)
    return value


def number_or_array(result):
    return result[()] if isinstance(result, ndarray) else result  # a number if no axis is left, as for NumPy's sums


def of_value(dtype):
    """The dtype of losses, measures and transport of such an array: those of float16 may be beyond its range, and they are
    float32."""
    return FLOAT32 if dtype == FLOAT16 else dtype


def cast(array, dtype):
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):  # a number beyond float16's range becomes inf, without a warning
        return array.astype(dtype)


def cast_toward(array, dtype, limit):
    """A bound in another dtype: rounded toward the limit, inf or -inf, and never beyond the number itself."""
    found = cast(array, dtype)
    past = found < array if limit > 0 else found > array
    return np.where(past, np.nextafter(found, dtype.type(limit)), found)


def to_numpy(operation, argument, x, bfloat16=False):
    """x as a plain ndarray of any dtype, without a copy if it is an array.

    `bfloat16`: torch's tensors of this type, which NumPy lacks, become float32, which holds all their values.
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
    if type(x).__module__.startswith("jax.") and isinstance(x, sys.modules["jax"].core.Tracer):
        raise TypeError(
            f"{operation}: {argument} is a tracer of JAX, whose numbers are not known yet; isentropic.jax.{operation} works "
            "under jit, grad and vmap"
        )
    if not hasattr(x, "__dlpack__") or type(x).__module__.startswith("pyarrow"):
        # Arrow's arrays without a copy, as lists of one length. pandas' frames and xarray's arrays have both interfaces.
        # NumPy's is better for them: the other adds rows of coordinates to the numbers.
        has_arrow = hasattr(x, "__arrow_c_array__") or hasattr(x, "__arrow_c_stream__")
        if has_arrow and not type(x).__module__.startswith(("pandas", "xarray")):
            return _of_arrow(operation, argument, x)
        array = np.asarray(x)
        # NumPy reads a Series of Float64 with missing values as one with NaN.
        nullable = hasattr(x, "isna") and (array.dtype == object or hasattr(getattr(x, "dtype", None), "numpy_dtype"))
        return _of_nullable(operation, argument, x, array) if nullable else array

    _checks.no_autograd(operation, argument, x)
    kind = type(x).__name__
    try:
        on_host = x.__dlpack_device__()[0] in HOST_DEVICES
        if on_host:
            return x.float().numpy() if bfloat16 and is_bfloat16(x) else np.from_dlpack(in_memory(x))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        hint = ""
        if kind == "Tensor":
            hint = "; isentropic.torch can" if _checks.of_torch(operation, x) else f"; pass {argument}.float()"
        raise TypeError(
            f"{operation}: {argument} is a {kind} of dtype {getattr(x, 'dtype', None)} that NumPy cannot read{hint}: {error}"
        ) from error
    raise TypeError(
        f"{operation}: {argument} is a {kind} on device {getattr(x, 'device', None)}, and isentropic computes on the CPU, "
        f"some functions by the library isentropic_cuda on a GPU; pass {argument}.cpu()"
    )


def in_memory(x):
    """x, or its copy if it is a torch tensor whose negation is lazy, or zeros without memory, which DLPack does not show."""
    return x.clone() if hasattr(x, "_is_zerotensor") and (x.is_neg() or x._is_zerotensor()) else x


def is_bfloat16(x):
    return str(getattr(x, "dtype", None)) == "torch.bfloat16"


def to_floats(operation, argument, array):
    """(array in the type of the computation, dtype of the result)."""
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
        hint = f"; numpy.asarray({argument}, float) makes numbers of text, isentropic.read reads a file"
    elif dtype.kind in "O":
        hint = f"; numpy.asarray({argument}, float) makes numbers of objects that are some"
    raise TypeError(
        f"{operation}: {argument} must be of float16, float32, float64, an integer type or bool, got dtype {dtype}{hint}"
    )


def to_wide_floats(operation, argument, array):
    """Like to_floats, for operations that do not compute in float16."""
    values, dtype = to_floats(operation, argument, array)
    return values.astype(FLOAT32) if values.dtype == FLOAT16 else values, dtype


def writable(operation, out, shape, dtype):
    """out as a plain ndarray over the same memory, of this shape and dtype."""
    if not (isinstance(out, ndarray) or hasattr(out, "__dlpack__")):
        raise TypeError(f"{operation}: out must be an array, got {type(out).__name__}")
    if in_memory(out) is not out:
        raise ValueError(f"{operation}: out must have its numbers in memory, got a negative view or zeros without memory")
    target = to_numpy(operation, "out", out)
    if target.shape != shape:
        raise ValueError(f"{operation}: out must have the shape of x, {shape}, got {target.shape}")
    if target.dtype != dtype:
        raise ValueError(f"{operation}: out must be of dtype {dtype}, as the result is, got {target.dtype}")
    if not target.flags.writeable and hasattr(out, "__array__"):
        same = np.asarray(out)  # NumPy before 2.1 reads all of DLPack as read-only
        target = same if same_memory(same, target) else target
    if not target.flags.writeable:
        raise ValueError(f"{operation}: out must be writable, got a read-only array")
    return target


def same_memory(a, b):
    return a.ctypes.data == b.ctypes.data and a.strides == b.strides and a.shape == b.shape


def same_kind(x, result, widen=False):
    """result as the same kind of array as x, in the same memory unless x is bfloat16. `widen`: then it stays float32."""
    if isinstance(x, ndarray) or not hasattr(x, "__dlpack__") or type(x).__module__.startswith("pyarrow"):
        return result
    if is_bfloat16(x):
        found = sys.modules["torch"].from_dlpack(result)
        return found if widen else found.to(x.dtype)
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__().from_dlpack(result)
    return sys.modules[type(x).__module__.partition(".")[0]].from_dlpack(result)  # torch


def _is_of_pandas(x, kind):
    return type(x).__module__.startswith("pandas") and isinstance(x, getattr(sys.modules["pandas"], kind))


def of_entries(x, result):
    """A number for each entry of x in the kind of x; of a series of pandas one with the same names."""
    if _is_of_pandas(x, "Series"):
        return sys.modules["pandas"].Series(result, index=x.index, name=x.name)
    return same_kind(x, result)


def of_rows(x, numbers, axis):
    """Numbers of rows along an axis in the kind of x; of a frame of pandas a series with the names of its rows."""
    if _is_of_pandas(x, "DataFrame"):
        return sys.modules["pandas"].Series(numbers, index=x.axes[1 - axis])
    return number_or_array(same_kind(x, numbers))


def is_missing(one):
    """Whether a label is None, NaN, NaT or pandas' NA."""
    try:
        return one is None or bool(one != one)
    except TypeError:  # pandas' NA says neither
        return True


def column_names(x):
    """The names of a frame's columns, or of Arrow's table; None of anything else."""
    return getattr(x, "column_names", getattr(x, "columns", None))


def from_arrow(x):
    """An Arrow array, table or stream as an ndarray: without a copy unless it has several columns or several parts."""
    if hasattr(x, "__arrow_c_array__"):
        parts = [_core.from_arrow(*x.__arrow_c_array__())]
    else:
        parts = _core.from_arrow_stream(x.__arrow_c_stream__())
    arrays = [_stacked([data.view(kind).reshape(shape) for _, data, kind, shape in part]) for part in parts]
    if not arrays:
        return np.empty((0, len(x.schema)) if hasattr(x, "schema") else 0)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _of_arrow(operation, argument, x):
    """An Arrow array, table or stream as an ndarray; an error names the argument."""
    if str(getattr(x, "dtype", "")).startswith("List("):  # polars' lists, whose lengths pyarrow knows
        x = x.to_arrow()
    kind = getattr(x, "type", None)
    if hasattr(kind, "storage_type"):
        raise TypeError(
            f"{operation}: {argument} must be of numbers or lists, got Arrow's {kind}; pass its numbers as an array"
        )
    # Lists of one length by their type are read as they are.
    if hasattr(kind, "value_field") and not (hasattr(kind, "list_size") and x.null_count == 0):
        return _of_lists(operation, argument, x)
    try:
        return from_arrow(x)
    except ValueError as error:
        raise ValueError(f"{operation}: {argument}: {error}") from None


def _of_lists(operation, argument, x):
    """pyarrow's array of lists, as rows of a matrix."""
    whole = x.combine_chunks() if hasattr(x, "combine_chunks") else x
    lengths = np.asarray(whole.value_lengths().fill_null(-1))
    wrong = np.flatnonzero(lengths < 0)
    wrong = wrong if len(wrong) else np.flatnonzero(lengths != lengths[:1].max(initial=0))
    if len(wrong):
        what = "a missing one" if lengths[wrong[0]] < 0 else f"{lengths[wrong[0]]} entries"
        raise ValueError(f"{operation}: {argument} must be lists of one length, got {what} in row {wrong[0]}")
    flat = whole.flatten()
    if flat.null_count:
        row, entry = divmod(int(np.flatnonzero(np.asarray(flat.is_null()))[0]), int(lengths[0]))
        raise ValueError(f"{operation}: {argument} must have no missing values, got one in row {row}, entry {entry}")
    return flat.to_numpy(zero_copy_only=False).reshape(len(whole), -1 if len(whole) else 0)


def _of_nullable(operation, argument, x, array):
    """A frame or series of pandas whose columns may have missing values; other objects are returned unchanged."""
    missing = np.argwhere(np.asarray(x.isna()))
    if len(missing):
        row, *column = missing[0].tolist()
        where = f", column {x.columns[column[0]]!r}" if column else ""
        raise ValueError(f"{operation}: {argument} must have no missing values, got one in row {row}{where}")
    kinds = [getattr(one, "numpy_dtype", one) for one in (x.dtypes if array.ndim > 1 else [x.dtype])]
    numbers = all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in kinds)
    return x.to_numpy(dtype=np.result_type(*kinds)) if numbers else array


def _stacked(columns):
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=-1)
