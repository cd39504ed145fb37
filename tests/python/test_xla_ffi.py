"""The handlers of isentropic.jax as XLA calls them: what they answer, and which calls they refuse."""

import ctypes

import numpy as np
import pytest

import isentropic
from isentropic import _core

# The structs of python/xla_ffi.h, for frames that a test makes.


class Extension(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("kind", ctypes.c_int), ("next", ctypes.c_void_p))


class Version(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("extensions", ctypes.c_void_p), ("major", ctypes.c_int), ("minor", ctypes.c_int))


class Metadata(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("version", Version), ("traits", ctypes.c_uint32), ("later", ctypes.c_int64))


class MetadataExtension(ctypes.Structure):
    _fields_ = (("head", Extension), ("answer", ctypes.POINTER(Metadata)))


class Arrays(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), *((name, ctypes.c_void_p) for name in ("extensions", "count", "kinds", "values")))


class Attributes(ctypes.Structure):
    _fields_ = (*Arrays._fields_, ("more", ctypes.c_void_p))


class ErrorRequest(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
        ("code", ctypes.c_int),
    )


MAKE_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ErrorRequest))


class Api(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extensions", ctypes.c_void_p),
        ("version", Version),
        ("internals", ctypes.c_void_p),
        ("make_error", MAKE_ERROR),
    )


class Frame(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("extensions", ctypes.POINTER(Extension)),
        ("api", ctypes.POINTER(Api)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", Arrays),
        ("results", Arrays),
        ("attributes", Attributes),
    )


FRAME = ctypes.sizeof(Frame)
HANDLERS = ("xla_call", "xla_call_python", "xla_refuse")


def answer(handler, size=FRAME, extension=None, stage=3):
    """(error or None, its code, its message) of a call without arrays and attributes."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    found = []

    @MAKE_ERROR
    def make_error(request):
        assert request[0].size == ErrorRequest.code.offset + ErrorRequest.code.size and not request[0].extensions
        found.append((request[0].code, request[0].message.decode()))
        return 12345

    api = Api(size=ctypes.sizeof(Api), make_error=make_error)
    frame = Frame(size=size, api=ctypes.pointer(api), stage=stage)
    if extension is not None:
        frame.extensions = ctypes.cast(ctypes.pointer(extension), ctypes.POINTER(Extension))
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Frame))(get(getattr(_core, handler)(), None))
    error = call(ctypes.pointer(frame))
    assert error == (12345 if found else None) and len(found) < 2
    return found[0] if found else None


@pytest.mark.parametrize("handler", HANDLERS)
def test_the_version_is_asked_for(handler):
    later = 99
    given = Metadata(size=ctypes.sizeof(Metadata), traits=77, later=later)
    asked = MetadataExtension(Extension(ctypes.sizeof(MetadataExtension), 1, None), ctypes.pointer(given))
    assert answer(handler, extension=asked, stage=0) is None
    assert (given.version.size, given.version.extensions) == (ctypes.sizeof(Version), None)
    assert (given.version.major, given.version.minor, given.traits, given.later) == (0, 1, 0, later)
    # After an extension that is not known.
    given.version.minor = 9
    first = Extension(ctypes.sizeof(Extension), 500, ctypes.addressof(asked))
    assert answer(handler, extension=first) is None and given.version.minor == 1
    # Too small for the answer.
    given.size = Metadata.traits.offset
    code, message = answer(handler, extension=asked)
    assert code == 3 and "FFI 0.1" in message
    given.size, asked.head.size = ctypes.sizeof(Metadata), ctypes.sizeof(Extension)
    assert answer(handler, extension=asked)[0] == 3


@pytest.mark.parametrize("handler", HANDLERS)
def test_other_frames_and_stages_are_refused(handler):
    for size in (0, FRAME - 8, FRAME + 8):
        code, message = answer(handler, size=size)
        assert code == 3 and "FFI 0.1" in message
    for stage in (0, 1, 2, 4):
        code, message = answer(handler, stage=stage)
        assert code == 3 and "executed" in message
    code, message = answer(handler)
    if handler == "xla_refuse":
        assert code == 12 and message.startswith("isentropic.jax: this operation has no kernel for GPUs")
    else:
        assert (code, message) == (3, "isentropic: the call must have the attribute operation, a string")


def xla_call(target, *arrays, shape=(2, 3), **attributes):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import isentropic.jax  # noqa: F401, it registers the handlers

    out = jax.ShapeDtypeStruct(shape, np.float32)
    return np.asarray(jax.block_until_ready(jax.ffi.ffi_call(target, out)(*arrays, **attributes)))


GOOD = {"operation": "softmax", "parameters": "{}", "arrays": "x,y", "vjp": np.bool_(False)}


def test_a_call_by_hand():
    x = np.array([[1, 2, 3], [3, 0, 0]], np.float32)
    np.testing.assert_array_equal(xla_call("isentropic", x, **GOOD), isentropic.softmax(x))


# JAX takes 0 and False for the same attribute, and the call that it compiled for the one for the other.
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"operation": None}, "INVALID_ARGUMENT.*the call must have the attribute operation, a string"),
        ({"operation": np.int32(3)}, "INVALID_ARGUMENT.*the call must have the attribute operation, a string"),
        ({"parameters": np.bool_(True)}, "INVALID_ARGUMENT.*the call must have the attribute parameters, a string"),
        ({"arrays": None}, "INVALID_ARGUMENT.*the call must have the attribute arrays, a string"),
        ({"vjp": None}, "INVALID_ARGUMENT.*the call must have the attribute vjp, a bool"),
        ({"vjp": np.int32(7)}, "INVALID_ARGUMENT.*the call must have the attribute vjp, a bool"),
        ({"vjp": "false"}, "INVALID_ARGUMENT.*the call must have the attribute vjp, a bool"),
        ({"operation": "softmox"}, "INVALID_ARGUMENT.*softmox"),
        ({"parameters": '{"temperature": -1}'}, "INVALID_ARGUMENT.*temperature"),
        ({"arrays": "x"}, "INVALID_ARGUMENT"),
    ],
)
def test_wrong_calls_are_errors(changed, why):
    attributes = {key: value for key, value in (GOOD | changed).items() if value is not None}
    with pytest.raises(Exception, match=why):
        xla_call("isentropic", np.ones((2, 3), "f"), **attributes)


def test_a_single_number_and_other_types_are_errors():
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*softmax: x must have at least one axis, got a single number"):
        xla_call("isentropic", np.float32(1), **GOOD)
    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        xla_call("isentropic", np.ones((2, 3), np.int8), **GOOD)
    hosted = {"operation": "wasserstein_1d", "parameters": "{}"}
    with pytest.raises(Exception, match=r"INTERNAL.*an array's type is none of float32, float64, int32, int64"):
        xla_call("isentropic_python", np.ones((2, 3), np.int8), **hosted)
    with pytest.raises(Exception, match="the call must have the attribute parameters, a string"):
        xla_call("isentropic_python", np.ones((2, 3), "f"), operation="wasserstein_1d", parameters=np.int32(1))
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT.*'no such function'"):
        xla_call("isentropic_python", np.ones((2, 3), "f"), **(hosted | {"operation": "no such function"}))
