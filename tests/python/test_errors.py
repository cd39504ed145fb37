"""Each error: its type and what it says. Nothing is written before it is raised."""

import numpy as np
import pytest

import entropic
from cases import OPERATIONS, SHAPED, call, call_vjp, each

X = np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]])


@each(OPERATIONS)
def test_parameter_out_of_range(operation):
    name = operation["name"]
    for param in operation["params"]:
        if param["kind"] != "float":
            continue
        wrong = [np.nan] + ([] if param["above"] is None else [param["above"], param["above"] - 1])
        wrong += [np.inf, 10**400] if param["up_to"] is None else [np.nextafter(param["up_to"], np.inf)]
        for value in wrong:
            got = "inf" if isinstance(value, int) and value > 10**300 else str(float(value)).removesuffix(".0")
            expected = f"^{name}: {param['name']} must be .*, got {got}"
            with pytest.raises(ValueError, match=expected):
                call(operation, X, **{param["name"]: value})
            with pytest.raises(ValueError, match=expected):
                call(operation, X[:0], **{param["name"]: value})
            y = call(operation, X)
            with pytest.raises(ValueError, match=expected):
                call_vjp(operation, X, y, y, **{param["name"]: value})
            if not operation["reduces"]:
                out = np.full_like(X, 7.0)
                with pytest.raises(ValueError, match=expected):
                    call(operation, X, out=out, **{param["name"]: value})
                assert (out == 7.0).all()


@each(OPERATIONS)
def test_parameter_of_wrong_type(operation):
    for param in operation["params"]:
        expected = {"float": "a number", "int": "an integer", "optional float": "a number", "name": "a string"}[param["kind"]]
        if param["per_row"]:
            expected += " or an array of numbers"
        for value in (object(), 1j, "1" if param["kind"] != "name" else 1, *([] if param["per_row"] else [[], [1.0]])):
            with pytest.raises(TypeError, match=f"^{operation['name']}: {param['name']} must be {expected}, got "):
                call(operation, X, **{param["name"]: value})


@each(OPERATIONS)
def test_parameter_of_any_kind_of_number(operation):
    for param in operation["params"]:
        if param["kind"] != "float":
            continue
        want = call(operation, X, **{param["name"]: 1.0})
        for one in (1, True, np.float32(1), np.float64(1), np.int8(1), np.array(1.0)):
            np.testing.assert_array_equal(call(operation, X, **{param["name"]: one}), want)


@each(OPERATIONS)
def test_wrong_keyword_is_named(operation):
    with pytest.raises(TypeError, match="'temprature'"):
        call(operation, X, temprature=1.0)
    with pytest.raises(TypeError, match="positional"):
        call(operation, X, 1.0)
    with pytest.raises(TypeError, match="positional"):
        call_vjp(operation, x=X, y=X, grad=X)


@each(OPERATIONS)
def test_axis(operation):
    y = call(operation, X)
    for axis in (2, -3, 10**30):
        for run in (lambda axis=axis: call(operation, X, axis=axis), lambda axis=axis: call_vjp(operation, X, y, y, axis=axis)):
            with pytest.raises(np.exceptions.AxisError, match="out of bounds for array of dimension 2") as caught:
                run()
            assert isinstance(caught.value, (ValueError, IndexError))
            assert str(caught.value).startswith(operation["name"])
    for axis, got in (((0, 1), "tuple"), (None, "NoneType"), (1.0, "float"), ("0", "str")):
        with pytest.raises(TypeError, match=f"axis must be one integer .*reshape them into one first.*, got {got}"):
            call(operation, X, axis=axis)
    np.testing.assert_array_equal(call(operation, X, axis=np.int64(-1)), y)


@each(OPERATIONS)
def test_no_axis_at_all(operation):
    for x in (1.0, 3, np.float32(2), np.array(2.0)):
        with pytest.raises(ValueError, match=f"{operation['name']}: x must have at least one axis, got a single number"):
            call(operation, x)


@each(OPERATIONS)
@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (np.zeros(3, complex), "complex128"),
        (np.zeros(3, object), "object"),
        (np.array(["a", "b"]), "<U1"),
        (["a", "b"], "<U1"),
        (np.zeros(3, "M8[s]"), "datetime64"),
        (np.zeros(3, [("a", float)]), "'a'"),
        (np.zeros(3, np.longdouble), "longdouble|float128"),
        (None, "object"),
        ({1.0, 2.0}, "object"),
    ],
)
def test_dtype_is_named(operation, x, dtype):
    with pytest.raises(TypeError, match=f"^{operation['name']}: x must be of float16, .* got dtype .*({dtype})"):
        call(operation, x)


@each(OPERATIONS)
def test_masked_array(operation):
    masked = np.ma.masked_array([0.0, 1.0], [True, False])
    with pytest.raises(TypeError, match=r"x is a masked array; fill it first.*x.filled\(-numpy.inf\)"):
        call(operation, masked)
    with pytest.raises(TypeError, match=r"_vjp: grad is a masked array"):
        call_vjp(operation, np.zeros(2), np.zeros(2), masked)


@each(SHAPED)
def test_out(operation):
    name = operation["name"]
    read_only = np.empty_like(X)
    read_only.flags.writeable = False
    for out, error, text in (
        (np.empty((3, 2)), ValueError, r"out must have the shape of x, \(2, 3\), got \(3, 2\)"),
        (np.empty(3), ValueError, r"out must have the shape of x, \(2, 3\), got \(3,\)"),
        (np.empty((2, 3), np.float32), ValueError, "out must be of dtype float64, as the result is, got float32"),
        (np.empty((2, 3), int), ValueError, "out must be of dtype float64, as the result is, got int64"),
        (read_only, ValueError, "out must be writable, got a read-only array"),
        ([[0.0] * 3] * 2, TypeError, "out must be an array, got list"),
        (np.ma.masked_array(np.empty((2, 3))), TypeError, "out is a masked array"),
    ):
        with pytest.raises(error, match=f"^{name}: {text}"):
            call(operation, X, out=out)
        with pytest.raises(error, match=f"^{name}: {text}"):
            call(operation, X.astype(int), out=out)
    frozen = X.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match=f"{name}: out must be writable"):
        call(operation, frozen, out=frozen)
    np.testing.assert_array_equal(frozen, X)


@each(OPERATIONS)
def test_shapes_given_to_vjp(operation):
    y = call(operation, X)
    name = operation["name"] + "_vjp"
    for wrong in (np.zeros(7), np.zeros((1, 2, 3)), np.zeros((2, 2)), 1.0, np.zeros((3, 2))):
        with pytest.raises(ValueError, match=rf"^{name}: y must have the shape of x.*\(2, 3\), got \("):
            call_vjp(operation, X, wrong, y)
        with pytest.raises(ValueError, match=rf"^{name}: grad must have the shape of x.*\(2, 3\), got \("):
            call_vjp(operation, X, y, wrong)


def test_threads_and_targets():
    with pytest.raises(ValueError, match="set_num_threads: n must be 0 or more, got -1"):
        entropic.set_num_threads(-1)
    with pytest.raises(TypeError, match="set_num_threads: n must be an integer, got str"):
        entropic.set_num_threads("2")
    with pytest.raises(TypeError, match="set_num_threads: n must be an integer, got NoneType"):
        entropic.set_num_threads(None)
    with pytest.raises(ValueError, match=r"force_simd_target: name must be one of .*, got 'MMX'"):
        entropic.force_simd_target("MMX")
    with pytest.raises(TypeError, match="force_simd_target: name must be a string, got int"):
        entropic.force_simd_target(2)
