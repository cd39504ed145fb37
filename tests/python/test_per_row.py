"""Parameters with a value for each row, given as arrays, and the gradient in them."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isentropic
from cases import OPERATIONS, call, call_vjp, laid_out, scores, torch_or_skip
from isentropic import _core


def usual(param):
    return param["default"] if param["typical"] is None else param["typical"]


PARAMS = [
    pytest.param(operation, param["name"], usual(param), id=f"{operation['name']}-{param['name']}")
    for operation in OPERATIONS
    for param in operation["params"]
    if param["per_row"] and usual(param) is not None
]
each_param = pytest.mark.parametrize(("operation", "name", "value"), PARAMS)


def one_number_per_row(shape, axis):
    return [1 if d == axis % len(shape) else size for d, size in enumerate(shape)]


def values_around(value, shape, seed=0):
    return value * np.random.default_rng(seed).uniform(0.7, 1.3, shape)


def shape_of(operation, x, axis=-1):
    """The shape of operation(x)."""
    return tuple(np.delete(x.shape, axis)) if operation["reduces"] else x.shape


def row_by_row(x, values, axis, run, reduces=False):
    """run(row of x, its value) for each row, the rows put where they were."""
    y = np.empty(np.delete(x.shape, axis) if reduces else x.shape, x.dtype)
    rows, results = np.moveaxis(x, axis, -1), y if reduces else np.moveaxis(y, axis, -1)
    values = np.broadcast_to(np.asarray(values, np.float64), one_number_per_row(x.shape, axis))
    for i in np.ndindex(rows.shape[:-1]):
        results[i] = run(i, np.ascontiguousarray(rows[i]), float(np.moveaxis(values, axis, -1)[i][0]))
    return y


@st.composite
def broadcast_values(draw, value, shape, axis):
    """An array of any layout that broadcasts with x: some axes of size 1, some in front left out."""
    full = one_number_per_row(shape, axis)
    own = [draw(st.sampled_from([1, size])) for size in full]
    while own and own[0] == 1 and draw(st.booleans()):
        own = own[1:]
    order = draw(st.permutations(range(len(own))))
    values = values_around(value, [own[d] for d in order]).transpose(np.argsort(order)) if own else np.array(value)
    return values[tuple(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in own)]


@each_param
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_bits_of_the_same_number_for_each_row_alone(operation, name, value, dtype, data):
    x, axis = data.draw(laid_out(dtype))
    values = data.draw(broadcast_values(value, x.shape, axis))
    before = values.copy()
    y = call(operation, x, axis=axis, **{name: values})
    reduces = operation["reduces"]
    want = row_by_row(x, values, axis, lambda i, row, number: call(operation, row, **{name: number}), reduces)
    np.testing.assert_array_equal(y, want)
    assert y.dtype == dtype
    if not reduces:
        out = np.full([2 * size for size in x.shape], 7.0, dtype)[tuple(slice(None, None, 2) for _ in x.shape)]
        assert call(operation, x, axis=axis, out=out, **{name: values}) is out
        np.testing.assert_array_equal(out, want)

    grad = np.asfortranarray(scores(np.random.default_rng(1), y.shape, dtype))
    grads, ys = (grad, y) if reduces else (np.moveaxis(grad, axis, -1), np.moveaxis(y, axis, -1))
    slopes = np.empty(np.delete(x.shape, axis), dtype)

    def vjp(i, row, number):
        dx, slopes[i] = call_vjp(operation, row, ys[i], grads[i], param_grad=name, **{name: number})
        return dx

    dx = call_vjp(operation, x, y, grad, axis=axis, **{name: values})
    np.testing.assert_array_equal(dx, row_by_row(x, values, axis, vjp), strict=True)
    dx_again, dparam = call_vjp(operation, x, y, grad, axis=axis, param_grad=name, **{name: values})
    np.testing.assert_array_equal(dx_again, dx)
    np.testing.assert_array_equal(dparam, slopes)
    assert dparam.dtype == dtype and np.shape(dparam) == tuple(np.delete(x.shape, axis))
    np.testing.assert_array_equal(values, before)


@each_param
@pytest.mark.parametrize(("shape", "axis"), [((3000, 100), 0), ((20_000, 2), 1), ((2, 3, 20_000), 1)])
def test_more_than_one_block_of_gathered_rows(operation, name, value, shape, axis):
    x = np.asfortranarray(scores(np.random.default_rng(5), shape, np.float32))
    values = values_around(value, one_number_per_row(shape, axis))
    last, column = np.moveaxis(x, axis, -1).copy(), np.moveaxis(values, axis, -1).copy()
    y, want = call(operation, x, axis=axis, **{name: values}), call(operation, last, **{name: column})
    np.testing.assert_array_equal(y, want if operation["reduces"] else np.moveaxis(want, -1, axis))
    got = call_vjp(operation, x, y, y, axis=axis, param_grad=name, **{name: values})
    want = call_vjp(operation, last, want, want, param_grad=name, **{name: column})
    np.testing.assert_array_equal(got[0], np.moveaxis(want[0], -1, axis))
    np.testing.assert_array_equal(got[1], want[1])


@each_param
def test_arrays_of_every_kind(operation, name, value):
    x = scores(np.random.default_rng(2), (3, 5))
    values = np.array([[1.25], [1.5], [1.75]], np.float32)  # exact in float16
    want = call(operation, x, **{name: values})
    for same in (
        values.astype(float),
        values.astype(np.float16),
        values.astype(">f4"),
        values.tolist(),
        tuple(values.tolist()),
    ):
        np.testing.assert_array_equal(call(operation, x, **{name: same}), want)
    counts = [[1], [1], [1]]
    for same in (np.array(counts), np.array(counts, np.uint8), np.array(counts, bool), counts, [1], np.array([[1]]), [[1.0]]):
        np.testing.assert_array_equal(call(operation, x, **{name: same}), call(operation, x, **{name: 1.0}))
    for number in (np.array(value), np.float64(value), np.array([value]), [value]):
        np.testing.assert_array_equal(call(operation, x, **{name: number}), call(operation, x, **{name: value}))
    third = np.float32(1) + np.float32(1) / 3  # read as it is, not as 4/3
    np.testing.assert_array_equal(call(operation, x, **{name: [third]}), call(operation, x, **{name: float(third)}))
    np.testing.assert_array_equal(call(operation, x[0], **{name: values[0]}), want[0])
    np.testing.assert_array_equal(call(operation, x.tolist(), **{name: values}), want)
    y = call(operation, x.astype(np.float16), **{name: values})
    dx, dparam = call_vjp(operation, x.astype(np.float16), y, y, param_grad=name, **{name: values})
    assert (y.dtype, dx.dtype) == (np.float16, np.float16)
    assert dparam.dtype == np.float16


@each_param
def test_torch(operation, name, value):
    torch = torch_or_skip()
    x, values = torch.randn(3, 4), torch.tensor([[1.2], [1.5], [1.7]])
    y = call(operation, x, **{name: values})
    assert isinstance(y, torch.Tensor)
    np.testing.assert_array_equal(y.numpy(), call(operation, x.numpy(), **{name: values.numpy()}))
    dx, dparam = call_vjp(operation, x, y, y, param_grad=name, **{name: values})
    assert isinstance(dx, torch.Tensor)
    assert isinstance(dparam, torch.Tensor) and dparam.shape == (3,) and dparam.dtype == torch.float32
    y = call(operation, x, **{name: torch.tensor(value)})
    np.testing.assert_array_equal(y.numpy(), call(operation, x.numpy(), **{name: value}))
    with pytest.raises(TypeError, match=rf"{name} is a Tensor that requires grad.*pass {name}.detach\(\)"):
        call(operation, x, **{name: values.requires_grad_()})


@each_param
def test_wrong_shape(operation, name, value):
    x = np.zeros((2, 3, 4))
    y = call(operation, x)
    for shape in ((3,), (2,), (0,), (2, 3), (2, 3, 4), (2, 1, 4), (1, 2, 3, 1), (3, 2, 1)):
        text = f"{name} must be a number or an array that broadcasts to (2, 3, 1), x's shape with 1 for axis 2, got shape"
        for function, run in (
            ("", lambda values: call(operation, x, **{name: values})),
            ("_vjp", lambda values: call_vjp(operation, x, y, y, **{name: values})),
        ):
            with pytest.raises(ValueError, match=re.escape(f"{operation['name']}{function}: {text} {shape}")):
                run(np.full(shape, value))
    with pytest.raises(ValueError, match=re.escape("broadcasts to (1,), x's shape with 1 for axis 0, got shape (4,)")):
        call(operation, x[0, 0], **{name: np.full(4, value)})
    with pytest.raises(np.exceptions.AxisError):
        call(operation, x, axis=3, **{name: [value]})


@each_param
def test_wrong_type(operation, name, value):
    x = np.zeros((2, 3))
    for values in ([[1j]], ["a"], np.array([None]), np.array(["a"])):
        with pytest.raises(TypeError, match=f"^{operation['name']}: {name} must be of float16, .* got dtype"):
            call(operation, x, **{name: values})
    with pytest.raises(TypeError, match=f"^{operation['name']}: {name} is a masked array; fill it first$"):
        call(operation, x, **{name: np.ma.masked_array([[1.0], [2.0]])})
    for values in (b"1.5", "1.5"):
        with pytest.raises(TypeError, match=f"^{operation['name']}: {name} must be a number or an array of numbers, got"):
            call(operation, x, **{name: values})


@each_param
@pytest.mark.parametrize("wrong", [np.nan, -1.0, np.inf])
def test_value_out_of_range_names_the_row_and_nothing_is_written(operation, name, value, wrong):
    """Also where rows are gathered in blocks: the row is counted in the order of x's other axes."""
    x = np.asfortranarray(np.zeros((2000, 100, 3)))
    for i, j in ((0, 0), (3, 7), (1999, 99)):
        values = np.full((2000, 100, 1), value)
        values[i, j] = wrong
        out = np.full_like(x, 7.0)
        with pytest.raises(ValueError, match=f"^{operation['name']}: {name} of row {100 * i + j} must be .*, got "):
            call(operation, x, **({} if operation["reduces"] else {"out": out}), **{name: values})
        assert (out == 7.0).all()
        y = np.zeros(shape_of(operation, x))
        with pytest.raises(ValueError, match=f"^{operation['name']}: {name} of row {100 * i + j} must be .*, got "):
            call_vjp(operation, x, y, y, param_grad=name, **{name: values})


@each_param
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_empty(operation, name, value, shape):
    x = np.empty(shape)
    values = np.full(one_number_per_row(shape, -1), value)
    y = call(operation, x, **{name: values})
    dx, dparam = call_vjp(operation, x, y, y, param_grad=name, **{name: values})
    assert (y.shape, dx.shape) == (shape_of(operation, x), shape)
    assert dparam.shape == shape[:-1] and (dparam == 0).all()


@each_param
@given(data=st.data())
def test_param_grad_against_central_differences(operation, name, value, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = scores(rng, (4, data.draw(st.sampled_from([2, 5, 16, 19]))), scale=1.0)
    values, grad = values_around(value, (4, 1), 3), rng.standard_normal(shape_of(operation, x))
    h = 1e-6
    above, below = (call(operation, x, **{name: values + s * h}) for s in (1, -1))
    above, below, weights = (y.reshape(4, -1) for y in (above, below, grad))
    same_support = ((above == 0) == (below == 0)).all(axis=-1)
    want = (weights * (above - below)).sum(axis=-1) / (2 * h)
    y = call(operation, x, **{name: values})
    _, dparam = call_vjp(operation, x, y, grad, param_grad=name, **{name: values})
    np.testing.assert_allclose(dparam[same_support], want[same_support], rtol=0, atol=1e-6)


def test_which_gradients_are_asked_for():
    x, g = np.array([[1.0, 0.5, -1.0], [0.25, 0.5, 0.0]]), np.ones((2, 3)).cumsum(1)
    given = {"alpha": 1.5, "temperature": 2.0}
    y = isentropic.entmax(x, **given)
    _, alpha = isentropic.entmax_vjp(x, y, g, param_grad=True, **given)
    _, temperature = isentropic.entmax_vjp(x, y, g, param_grad="temperature", **given)
    _, both = isentropic.entmax_vjp(x, y, g, param_grad=["temperature", "alpha"], **given)
    np.testing.assert_array_equal(both, [temperature, alpha])
    assert not np.array_equal(alpha, temperature)
    y = isentropic.softmax(x, temperature=2.0)
    np.testing.assert_array_equal(
        isentropic.softmax_vjp(x, y, g, temperature=2.0, param_grad=True)[1],
        isentropic.softmax_vjp(x, y, g, temperature=2.0, param_grad="temperature")[1],
    )
    for wrong in ("order", ["alpha", "k"], 3):
        with pytest.raises(ValueError, match=r"^entmax_vjp: param_grad must be True, False or names of given parameters, "):
            isentropic.entmax_vjp(x, y, g, param_grad=wrong, **given)
    q = np.eye(3)
    *_, slope = isentropic.attention_vjp(q, q, q, q, map="entmax", alpha=1.5, param_grad="temperature")
    ends = [(q * isentropic.attention(q, q, q, map="entmax", alpha=1.5, temperature=1 + h)).sum(1) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entmax_at_its_ends(dtype):
    x = scores(np.random.default_rng(7), (6, 40), dtype)
    alpha = np.array([1, 2, 1, 2, 1.5, 1])[:, None]
    y = isentropic.entmax(x, alpha=alpha, temperature=0.7)
    for one, same in ((1, isentropic.softmax), (2, isentropic.sparsemax)):
        rows = alpha[:, 0] == one
        np.testing.assert_array_equal(y[rows], same(x[rows], temperature=0.7))
    np.testing.assert_array_equal(isentropic.entmax(x, alpha=np.ones((6, 1))), isentropic.softmax(x))


@pytest.mark.parametrize("alpha", [1.0, 1 + 1e-7, 1.5, 2.0])
def test_entmax_param_grad_of_special_rows(alpha):
    x = np.array([[0.0, 1.0, -np.inf], [np.inf, 1.0, 0.0], [np.nan, 1.0, 0.0], [-np.inf, -np.inf, -np.inf]])
    grad = np.array([[1.0, 2.0, np.nan]] + [[1.0, 2.0, 3.0]] * 3)
    y = isentropic.entmax(x, alpha=alpha)
    _, dalpha = isentropic.entmax_vjp(x, y, grad, alpha=alpha, param_grad=True)
    _, present = isentropic.entmax_vjp(x[0, :2], y[0, :2], grad[0, :2], alpha=alpha, param_grad=True)
    assert type(present) is np.float64
    np.testing.assert_array_equal(dalpha, [present, 0.0, np.nan, np.nan])


LEARNED = [
    pytest.param(description, id=description["name"])
    for description in [*_core.losses(), *_core.measure_operations()]
    if any(param["per_row"] for param in description["params"])
]


@pytest.mark.parametrize("description", LEARNED)
@pytest.mark.parametrize("axis", [0, 1])
def test_losses_and_measures_have_gradients_in_their_parameters(description, axis):
    """All at once, along any axis, against differences; one number for all rows gives each row's share."""
    function = getattr(isentropic, description["name"])
    rng = np.random.default_rng(5)
    x = np.tanh(rng.standard_normal((6, 4)))
    if "target" in description:
        classes = rng.integers(0, 6 if axis == 0 else 4, 4 if axis == 0 else 6)
        arrays = (x, classes if description["target"].startswith("class") else rng.standard_normal((6, 4)))
        fixed = {"axis": axis}
    else:
        others = (rng.standard_normal((6, 4)),) if description["family"] == "divergence" else ()
        arrays, fixed = (x, *others), {"axis": axis, "input": "scores"}
    lead = (1, 4) if axis == 0 else (6, 1)
    names = [param["name"] for param in description["params"] if param["per_row"]]
    usual_values = {param["name"]: usual(param) for param in description["params"]}
    values = {name: (usual_values[name] or 0.3) * rng.uniform(0.75, 1, lead) for name in names}
    if any("jsd" in param["names"] for param in description["params"]):
        fixed["divergence"] = "jsd"  # beta is of no other
    value, dx, *others, slopes = function(*arrays, **values, **fixed, return_grad=True, param_grad=True)
    assert len(others) == (description.get("family") == "divergence")
    assert value.shape == dx.sum(axis).shape
    slopes = slopes if len(names) > 1 else (slopes,)
    assert len(slopes) == len(names)
    for name, slope in zip(names, slopes, strict=True):
        above, below = (function(*arrays, **{**values, name: values[name] + step}, **fixed) for step in (1e-6, -1e-6))
        np.testing.assert_allclose(slope, (above - below) / 2e-6, rtol=1e-6, atol=1e-8)
        one = {other: float(values[other].flat[0]) for other in names}
        first = tuple(array[:, 0] if axis == 0 else array[0] for array in arrays if array.ndim == 2)
        first += tuple(array[0] for array in arrays if array.ndim == 1)
        alone = function(*first, **one, **{**fixed, "axis": -1}, param_grad=True)[1]
        alone = alone if len(names) > 1 else (alone,)
        assert alone[names.index(name)] == slope[0]


def test_losses_of_maps_have_gradients_in_the_parameters_of_the_map():
    x, target = np.array([[1.0, 0.5, -1.0], [0.25, 0.5, 0.0]]), np.array([1, 0])
    alpha = np.array([[1.25], [1.5]])
    value, slopes = isentropic.smooth_accuracy_loss(x, target, map="entmax", alpha=alpha, param_grad=True)
    slope = slopes[0] if type(slopes) is tuple else slopes
    ends = [isentropic.smooth_accuracy_loss(x, target, map=("entmax", {"alpha": alpha + step})) for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, atol=1e-8)
    np.testing.assert_array_equal(value, isentropic.smooth_accuracy_loss(x, target, map="entmax", alpha=alpha))
    with pytest.raises(
        ValueError, match="surrogate_loss: there is no gradient in alpha, because the value only stands for a gradient"
    ):
        isentropic.surrogate_loss(x, target, map="entmax", param_grad=True)


def test_a_margin_that_is_whole_has_no_gradient():
    """Of kind sphere param_grad is that in scale alone, as where no margin is given."""
    x, target = np.array([[0.5, 0.25, -1.0], [0.25, 0.5, 0.0]]), np.array([1, 0])
    for margin in (4, np.array([[4.0], [4.0]])):
        for return_grad in (False, True):
            given = {"kind": "sphere", "return_grad": return_grad, "param_grad": True}
            found = isentropic.margin_softmax_loss(x, target, margin=margin, **given)
            for got, want in zip(found, isentropic.margin_softmax_loss(x, target, **given), strict=True):
                np.testing.assert_array_equal(got, want)


@each_param
def test_the_gradient_of_a_row_without_a_distribution_is_nan(operation, name, value):
    """In NumPy by the kernel, in torch by it and under vmap by the formula, in JAX by its transposed forward rule."""
    if "param_vjp" not in operation:
        pytest.skip(f"{operation['name']} has no gradient in parameters")
    x = np.array([[0.3, -0.2, 0.8, 0.1], [np.nan, 0.0, 1.0, 2.0], [-np.inf] * 4, [np.inf, 0.0, 1.0, 2.0]])
    values = np.full((4, 1), value)
    others = {p["name"]: usual(p) for p in operation["params"] if p["required"] and p["name"] != name}
    y = getattr(isentropic, operation["name"])(x, **others, **{name: values})
    g = np.ones(4) if operation["reduces"] else np.tile(np.arange(4.0), (4, 1))
    want = [False, True, operation["name"] not in ("log_softmax", "logsumexp", "soft_top_k"), False]
    found = getattr(isentropic, operation["name"] + "_vjp")(x, y, g, param_grad=True, **others, **{name: values})[1]
    np.testing.assert_array_equal(np.isnan(np.ravel(found)), want)
    torch = torch_or_skip()
    function = getattr(pytest.importorskip("isentropic.torch"), operation["name"])

    def pulled(x, value, g):
        return torch.func.vjp(lambda value: function(x, **others, **{name: value}), value)[1](g)[0]

    arguments = torch.tensor(x), torch.tensor(values), torch.tensor(g)
    for run in (pulled, torch.func.vmap(pulled)):
        np.testing.assert_array_equal(np.isnan(np.ravel(run(*arguments))), want)
    jax = pytest.importorskip("jax")
    in_jax = getattr(pytest.importorskip("isentropic.jax"), operation["name"])
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        _, back = jax.vjp(lambda value: in_jax(jax.numpy.asarray(x), **others, **{name: value}), jax.numpy.asarray(values))
        np.testing.assert_array_equal(np.isnan(np.ravel(back(jax.numpy.asarray(g))[0])), want)
