"""The library isentropic_cuda: its functions by name, on addresses in a device's memory."""

import ctypes
import functools
import json
import os
from pathlib import Path

# The environment variable with the path of the library; it replaces the one beside the package's modules.
VARIABLE = "ISENTROPIC_CUDA_LIBRARY"
TYPES = {"float32": 1, "float64": 2, "float16": 3, "bfloat16": 4, "int32": 5, "int64": 6}
ALIGNMENT = 128


class Array(ctypes.Structure):
    """isentropic_array of isentropic/c.h."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("rows", ctypes.c_size_t),
        ("cols", ctypes.c_size_t),
        ("row_stride", ctypes.c_ssize_t),
        ("col_stride", ctypes.c_ssize_t),
        ("type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


def found():
    """The path of the library, or None."""
    given = os.environ.get(VARIABLE)
    if given:
        return given
    beside = Path(__file__).with_name("libisentropic_cuda.so")
    return str(beside) if beside.exists() else None


@functools.cache
def library():
    loaded = ctypes.CDLL(found())
    loaded.isentropic_cuda_memory.restype = ctypes.c_size_t
    size, text = ctypes.c_size_t, ctypes.c_char_p
    loaded.isentropic_cuda_memory.argtypes = (text, text, size, size, ctypes.c_int32)
    for run in (loaded.isentropic_cuda_run, loaded.isentropic_cuda_vjp):
        run.argtypes = (text, text, ctypes.POINTER(Array), size, ctypes.c_void_p, size, ctypes.c_void_p)
    loaded.isentropic_cuda_last_error.restype = ctypes.c_char_p
    return loaded


def _fail():
    message = library().isentropic_cuda_last_error().decode()
    raise (RuntimeError if message.startswith("cuda:") else ValueError)(message)


def memory(name, parameters, rows, cols, dtype):
    """Bytes of memory for a call on the current device. Devices differ, so it is asked each time."""
    return library().isentropic_cuda_memory(name.encode(), parameters.encode(), rows, cols, TYPES[dtype]) or _fail()


def run(name, parameters, arrays, at, size, stream, vjp=False):
    """Puts an operation on a stream. arrays: (name, address, rows, columns, type); `at`: the address of `size` bytes."""
    places = (Array * len(arrays))()
    for place, (array, address, rows, cols, dtype) in zip(places, arrays, strict=True):
        place.struct_size, place.name, place.data = ctypes.sizeof(Array), array.encode(), address
        place.rows, place.cols, place.type = rows, cols, TYPES[dtype]
    call = library().isentropic_cuda_vjp if vjp else library().isentropic_cuda_run
    if call(name.encode(), parameters.encode(), places, len(places), at, size, stream) != 0:
        _fail()


def type_name(array):
    return str(array.dtype).rpartition(".")[2]


def call(name, parameters, arrays, empty, address, stream, vjp=False, on_host=()):
    """Puts an operation on a stream of the current device, with memory for it.

    arrays: by name; each is rows x cols or has one number for each row, without gaps. The first one decides the type and the
    shape. empty(size): an array of bytes, address(array): its address. on_host: (name, NumPy array) of results that the
    operation writes to this machine's memory.
    """
    first = next(iter(arrays.values()))
    rows, cols = first.shape
    size = memory(name, parameters, rows, cols, type_name(first)) if rows * cols else 0
    workspace = empty(size + ALIGNMENT)
    at = -(-address(workspace) // ALIGNMENT) * ALIGNMENT
    places = [(key, address(array), *(*array.shape, 1)[:2], type_name(array)) for key, array in arrays.items()]
    places += [(key, array.ctypes.data, 1, 1, type_name(array)) for key, array in on_host]
    run(name, parameters, places, at, size, stream, vjp)


def as_json(description, values, **more):
    """Parameters by name as JSON for the library; those without a value have their default."""
    kinds = {param["name"]: param["kind"] for param in description["params"]}
    given = {key: float(value) if "float" in kinds.get(key, "") else value for key, value in values if value is not None}
    return json.dumps(given | more)
