"""Arrays of every kind: any axis and layout, out, dtypes, lists, DLPack; the input never changes."""

import array
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isentropic
from cases import FLOATS, OPERATIONS, SHAPED, call, call_vjp, each, laid_out, reshaped, scores, torch_or_skip


def reference(operation, x, axis):
    """By way of a contiguous copy with the axis last, which needs no gathering."""
    y = call(operation, np.ascontiguousarray(np.moveaxis(x, axis, -1)))
    return y if operation["reduces"] else np.moveaxis(y, -1, axis)


@each(OPERATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_any_axis_and_layout_gives_the_bits_of_the_contiguous_one(operation, dtype, data):
    x, axis = data.draw(laid_out(dtype))
    before = x.copy()
    y = call(operation, x, axis=axis)
    np.testing.assert_array_equal(y, reference(operation, x, axis))
    assert y.dtype == dtype
    np.testing.assert_array_equal(x, before)


@each(OPERATIONS)
@given(data=st.data())
def test_vjp_of_any_axis_and_layout(operation, data):
    x, axis = data.draw(laid_out())
    y = call(operation, x, axis=axis)
    grad = np.asfortranarray(scores(np.random.default_rng(0), y.shape))
    dx = call_vjp(operation, x, y, grad, axis=axis)
    last = [np.ascontiguousarray(np.moveaxis(a, axis, -1)) if a.ndim == x.ndim else a for a in (x, y, grad)]
    np.testing.assert_array_equal(dx, np.moveaxis(call_vjp(operation, *last), -1, axis))


@each(SHAPED)
@given(data=st.data())
def test_out_of_any_layout(operation, data):
    x, axis = data.draw(laid_out())
    memory = np.full([3 * size for size in x.shape], 7.0)
    order = data.draw(st.permutations(range(x.ndim)))
    out = memory.transpose(order).transpose(np.argsort(order))[tuple(slice(1, 3 * size, 3) for size in x.shape)]
    assert call(operation, x, axis=axis, out=out) is out
    np.testing.assert_array_equal(out, reference(operation, x, axis))
    assert (memory == 7.0).sum() == memory.size - out.size  # nothing beside it was written


@each(SHAPED)
@given(data=st.data())
def test_in_place(operation, data):
    x, axis = data.draw(laid_out())
    x = x if x.flags.writeable else x.copy()
    want = reference(operation, x, axis)
    assert call(operation, x, axis=axis, out=x) is x
    np.testing.assert_array_equal(x, want)


@each(SHAPED)
@pytest.mark.parametrize("shape", [(3000, 100), (70, 5000), (2, 200_000), (200_000, 2)])
@pytest.mark.parametrize("axis", [0, 1])
def test_more_than_one_block_of_gathered_rows(operation, shape, axis):
    x = scores(np.random.default_rng(5), shape, np.float32)
    want = reference(operation, x, axis)
    np.testing.assert_array_equal(call(operation, x, axis=axis), want)
    out = np.empty((shape[0], shape[1] * 2), np.float32)[:, ::2]
    np.testing.assert_array_equal(call(operation, x, axis=axis, out=out), want)


@each(SHAPED)
def test_windows_and_interleaved_columns(operation):
    memory = scores(np.random.default_rng(2), 40)
    windows = np.lib.stride_tricks.sliding_window_view(memory, 8)  # rows that share entries
    np.testing.assert_array_equal(call(operation, windows), call(operation, windows.copy()))
    both = scores(np.random.default_rng(2), (8, 8))
    for x, out in (
        (both[:, ::2], both[:, 1::2]),
        (both[:, :4], both[:, 4:]),
        (both[:4, :4], both[::2, 4:]),
    ):
        want = call(operation, x.copy())
        np.testing.assert_array_equal(call(operation, x, out=out), want)


@each(SHAPED)
def test_out_that_overlaps_in_part_is_refused(operation):
    memory = np.zeros(20)
    before = memory.copy()
    for x, out in ((memory[:10], memory[1:11]), (memory[:10], memory[9::-1]), (memory[::2], memory[:10])):
        with pytest.raises(ValueError, match="out must be x itself or share no memory with it"):
            call(operation, x, out=out)
    np.testing.assert_array_equal(memory, before)


@each(OPERATIONS)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0)])
@pytest.mark.parametrize("axis", [0, -1])
def test_empty(operation, shape, axis):
    x = np.empty(shape, np.float32)
    y = call(operation, x, axis=axis)
    want = np.delete(shape, axis) if operation["reduces"] else shape
    assert y.shape == tuple(want) and y.dtype == np.float32
    if operation["reduces"]:
        assert (y == -np.inf).all()
    assert call_vjp(operation, x, y, np.ones_like(y), axis=axis).shape == shape


@each(OPERATIONS)
def test_dtypes(operation):
    x = np.array([[0, 1, 2], [3, 3, 0]])
    want = call(operation, x.astype(np.float64))
    for dtype in (bool, *np.typecodes["AllInteger"]):
        y = call(operation, x.astype(dtype))
        assert y.dtype == np.float64
        if dtype is not bool:
            np.testing.assert_array_equal(y, want)
    for dtype in FLOATS:
        y = call(operation, x.astype(dtype))
        assert y.dtype == dtype
        swapped = x.astype(np.dtype(dtype).newbyteorder())
        np.testing.assert_array_equal(call(operation, swapped), y)
        dx = call_vjp(operation, x.astype(dtype), y, y)
        assert dx.dtype == dtype
        np.testing.assert_array_equal(call_vjp(operation, swapped, y, y.astype(np.float64)), dx)


@each(OPERATIONS)
def test_float16_is_float32_rounded(operation):
    x = scores(np.random.default_rng(3), (9, 40), np.float16, 20000.0)  # log_softmax leaves float16's range
    with np.errstate(over="ignore"):
        want = call(operation, x.astype(np.float32)).astype(np.float16)
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(call(operation, x), want)
        if not operation["reduces"]:
            out = np.empty_like(x)
            assert call(operation, x, out=out) is out
            np.testing.assert_array_equal(out, want)


@each(OPERATIONS)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_lists_and_other_arrays(operation):
    x = [[0.0, 1.0, 2.0], [3.0, 3.0, 0.0]]
    want = call(operation, np.array(x))
    for given_x in (x, tuple(map(tuple, x)), [np.array(row, np.float32) for row in x], [[0, 1, 2], [3, 3, 0]]):
        y = call(operation, given_x)
        assert type(y) is np.ndarray
        np.testing.assert_array_equal(y, want, strict=True)
    assert call_vjp(operation, x, want.tolist(), want.tolist()).dtype == np.float64
    assert call(operation, array.array("f", x[0])).dtype == np.float32
    assert call(operation, np.asmatrix(x)).__class__ is np.ndarray


@each(OPERATIONS)
def test_read_only_input(operation):
    x = scores(np.random.default_rng(3), (3, 4))
    x.flags.writeable = False
    call(operation, x)
    y = call(operation, x)
    call_vjp(operation, x, y, y)


@each(SHAPED)
def test_layout_of_the_result_follows_x(operation):
    x = np.asfortranarray(scores(np.random.default_rng(3), (3, 4)))
    assert call(operation, x).flags.f_contiguous


def test_logsumexp_keeps_or_drops_the_axis():
    x = scores(np.random.default_rng(3), (2, 3, 4), np.float32)
    for axis in (0, 1, 2, -2):
        y = isentropic.logsumexp(x, axis=axis)
        kept = isentropic.logsumexp(x, axis=axis, keepdims=True)
        assert y.shape == np.delete(x.shape, axis).tolist() or y.shape == tuple(np.delete(x.shape, axis))
        np.testing.assert_array_equal(np.squeeze(kept, axis), y, strict=True)
        dx = isentropic.logsumexp_vjp(x, y, y, axis=axis)
        np.testing.assert_array_equal(isentropic.logsumexp_vjp(x, kept, kept, axis=axis), dx)
    y = isentropic.logsumexp(x[0, 0])
    assert type(y) is np.float32
    assert isentropic.logsumexp_vjp(x[0, 0], y, 1.0).shape == (4,)


class OnlyDLPack:
    """An array of a library that only has DLPack."""

    def __init__(self, values, device=(1, 0)):
        self.values, self.where = values, device

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.where

    def __array_namespace__(self):
        return OnlyDLPack

    @staticmethod
    def from_dlpack(values):
        return OnlyDLPack(np.from_dlpack(values))


@each(OPERATIONS)
def test_dlpack_in_dlpack_out(operation):
    x = scores(np.random.default_rng(3), (3, 4), np.float32)
    y = call(operation, OnlyDLPack(x))
    assert type(y) is OnlyDLPack
    np.testing.assert_array_equal(y.values, call(operation, x))


def test_dlpack_of_another_device_names_cpu():
    for wrong in (OnlyDLPack(np.zeros(3), (2, 0)), OnlyDLPack(np.zeros(3), (10, 0))):
        with pytest.raises(TypeError, match=r"softmax: x is a OnlyDLPack on device .* pass x.cpu\(\)"):
            isentropic.softmax(wrong)


@each(OPERATIONS)
def test_torch(operation):
    torch = torch_or_skip()
    for dtype in (torch.float16, torch.float32, torch.float64, torch.int32, torch.bool):
        x = (torch.arange(24).reshape(2, 3, 4) % 5).to(dtype)
        for axis in range(3):
            y = call(operation, x.transpose(0, 2), axis=axis)
            assert isinstance(y, torch.Tensor)
            assert y.dtype == (dtype if dtype.is_floating_point else torch.float64)
            np.testing.assert_array_equal(y.numpy(), call(operation, x.transpose(0, 2).numpy(), axis=axis))
            dx = call_vjp(operation, x.transpose(0, 2), y, y, axis=axis)
            assert isinstance(dx, torch.Tensor) and dx.shape == (4, 3, 2)


def test_tensors_that_are_not_what_is_in_memory():
    """The imaginary part of a conjugate is minus what is in memory, and torch has zeros without memory."""
    torch = torch_or_skip()
    x = torch.complex(torch.zeros(3, 4), torch.randn(3, 4)).conj().imag
    zeros = torch._efficientzerotensor((3, 4))
    assert x.is_neg() and zeros.data_ptr() == 0
    for tensor, want in ((x, x.resolve_neg().numpy()), (zeros, np.zeros((3, 4), np.float32))):
        np.testing.assert_array_equal(isentropic.softmax(tensor).numpy(), isentropic.softmax(want))
        np.testing.assert_array_equal(isentropic.softmax_vjp(*[tensor] * 3).numpy(), isentropic.softmax_vjp(*[want] * 3))
        with pytest.raises(ValueError, match="softmax: out must have its numbers in memory, got a negative view"):
            isentropic.softmax(want, out=tensor)


def test_the_address_of_what_only_has_dlpack():
    """The capsule may be freed only after it was read."""
    from isentropic._numpy import _device

    class OfDevice:
        device, numbers = "gpu", np.arange(12.0)

        def __array_namespace__(self):
            return np

        def __dlpack__(self, stream=None):
            return self.numbers.__dlpack__()

    x = OfDevice()
    assert [_device._Arrays(x).address(x) for _ in range(3)] == [x.numbers.ctypes.data] * 3


@each(SHAPED)
def test_torch_out(operation):
    torch = torch_or_skip()
    x = torch.randn(3, 5)
    want = call(operation, x)
    out = torch.empty(3, 10)[:, ::2]
    assert call(operation, x, out=out) is out
    assert torch.equal(out, want)
    assert call(operation, x, out=x) is x
    assert torch.equal(x, want)


@pytest.mark.parametrize(("of_x", "of_y"), [("float32", "float16"), ("float64", "float16"), ("float64", "float32")])
def test_a_gradient_does_not_depend_on_the_digits_of_y(of_x, of_y):
    random = np.random.default_rng(6)
    x, g = (random.normal(size=(40, 33)).astype(of_x) for _ in range(2))
    for name, params in [
        ("entropy_clip", {"max_entropy": 2.0}),
        ("entropy_normalize", {"entropy": 1.0}),
        ("softmax", {"temperature": 0.1}),
        ("entmax", {"alpha": 1.2}),
    ]:
        y, vjp = getattr(isentropic, name)(x, **params), getattr(isentropic, name + "_vjp")
        want = vjp(x, y, g, **params, param_grad=True)
        for got, exact in zip(vjp(x, y.astype(of_y), g, **params, param_grad=True), want, strict=True):
            np.testing.assert_array_equal(got, exact)
        np.testing.assert_array_equal(vjp(x, y.astype(of_y), g, **params), want[0])


def test_bfloat16_tensors_are_computed_in_float32():
    torch = torch_or_skip()
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(6, 33, generator=generator).bfloat16()
    wide = x.float()
    for own, of_wide in [
        (isentropic.softmax(x), isentropic.softmax(wide)),
        (isentropic.entmax(x.T, alpha=1.3, axis=0), isentropic.entmax(wide.T, alpha=1.3, axis=0)),
        (isentropic.softmax_vjp(x, isentropic.softmax(x), x), isentropic.softmax_vjp(wide, isentropic.softmax(wide), wide)),
        (isentropic.logsumexp(x), isentropic.logsumexp(wide)),
        (
            isentropic.entropy_normalize(isentropic.softmax(x), entropy=2.0, input="probs"),
            isentropic.entropy_normalize(isentropic.softmax(x).float(), entropy=2.0, input="probs"),
        ),
    ]:
        assert own.dtype is torch.bfloat16
        assert torch.equal(own, of_wide.bfloat16())
    clipped, wide_clipped = (isentropic.entropy_clip(one, max_entropy=2.0) for one in (x, wide))
    for own, of_wide in zip(
        isentropic.entropy_clip_vjp(x, clipped, x.flip(0), max_entropy=2.0, param_grad="max_entropy"),
        isentropic.entropy_clip_vjp(wide, wide_clipped, wide.flip(0), max_entropy=2.0, param_grad="max_entropy"),
        strict=True,
    ):
        assert torch.equal(own, of_wide.bfloat16()) and own.abs().amax(-1).all()
    out = torch.zeros_like(x)
    with pytest.raises(TypeError, match=r"softmax: out is a Tensor of dtype torch\.bfloat16 that NumPy cannot read"):
        isentropic.softmax(x, out=out)
    assert not out.any()
    # A distribution of so few digits sums to 1 only within 1e-2: isentropic.torch knows.
    with pytest.raises(
        TypeError, match=r"entropy: p is a Tensor of dtype torch\.bfloat16 that NumPy cannot read; isentropic.torch can"
    ):
        isentropic.entropy(isentropic.softmax(x))


def test_torch_that_cannot_be_read_says_what_to_do():
    torch = torch_or_skip()
    with pytest.raises(TypeError, match=r"x is a Tensor that requires grad.*isentropic.torch.*x.detach\(\)"):
        isentropic.softmax(torch.zeros(3, requires_grad=True))
    with pytest.raises(TypeError, match=r"softmax_vjp: grad is a Tensor that requires grad"):
        isentropic.softmax_vjp(torch.zeros(3), torch.zeros(3), torch.zeros(3, requires_grad=True))
    with pytest.raises(TypeError, match="complex64"):
        isentropic.softmax(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(TypeError, match="softmax: x is a Tensor"):
        isentropic.softmax(torch.zeros(3, device="meta"))
    with pytest.raises(TypeError, match="softmax: x is a Tensor"):
        isentropic.softmax(torch.zeros(3, 3).to_sparse())


@each(OPERATIONS)
def test_shape_of_result(operation):
    x = scores(np.random.default_rng(3), (2, 3, 4))
    assert call(operation, x).shape == reshaped(operation, x)


def test_arrow_lists():
    pa = pytest.importorskip("pyarrow")
    x = np.array([[1.0, 2.0, 0.5], [3.0, 4.0, -1.0]])
    want = isentropic.softmax(x)
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.float64()), pa.list_(pa.float64(), 3)):
        np.testing.assert_array_equal(isentropic.softmax(pa.array(x.tolist(), kind)), want)
    chunked = pa.chunked_array([pa.array(x[:1].tolist()), pa.array(x[1:].tolist())])
    np.testing.assert_array_equal(isentropic.softmax(chunked), want)
    np.testing.assert_array_equal(isentropic.softmax(pa.array(x.tolist())[1:]), want[1:])
    for lists, message in (
        ([[1.0, 2.0], [3.0]], "softmax: x must be lists of one length, got 1 entries in row 1"),
        ([[1.0, 2.0], None], "softmax: x must be lists of one length, got a missing one in row 1"),
        ([[1.0, 2.0], [3.0, None]], "softmax: x must have no missing values, got one in row 1, entry 1"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            isentropic.softmax(pa.array(lists))
    series = types.SimpleNamespace(dtype="List(Float64)", to_arrow=lambda: pa.array(x.tolist()), __arrow_c_stream__=None)
    np.testing.assert_array_equal(isentropic.softmax(series), want)  # a Series of polars


def test_arrow_arrays_that_are_no_numbers():
    pa = pytest.importorskip("pyarrow")
    coded = pa.array([1.0, 2.0]).dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays([1, 3], [1.0, 2.0])
    for given_array in (coded, pa.chunked_array([coded]), pa.table({"a": coded}), runs, pa.array(["a"]), pa.array([1.0, None])):
        with pytest.raises(ValueError, match=r"^softmax: x: an Arrow array "):
            isentropic.softmax(given_array)
    with pytest.raises(TypeError, match=r"^softmax: x must be of numbers or lists, got Arrow's extension<"):  # has other axes
        isentropic.softmax(pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 3, 4))))


@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("rows", [0, 1, 4])
def test_columns_side_by_side_are_rows(columns, rows):
    """However many there are: one column is rows of one number, and not a row."""
    pa = pytest.importorskip("pyarrow")
    x = np.random.default_rng(columns).standard_normal((rows, columns))
    table = pa.table({f"c{c}": x[:, c] for c in range(columns)})
    batch = pa.RecordBatch.from_arrays([pa.array(x[:, c]) for c in range(columns)], table.column_names)
    for one in (table, batch, pa.Table.from_batches([batch, batch])[:rows], pa.Table.from_batches([], table.schema)):
        want = isentropic.softmax(x[: one.num_rows])
        found = isentropic.softmax(one)
        assert found.shape == want.shape
        np.testing.assert_array_equal(found, want)
    for part in (table["c0"], pa.chunked_array([], pa.float64()), batch.column(0)):
        assert isentropic.softmax(part).shape == (len(part),)


def test_a_number_for_each_row_of_a_frame_is_a_series():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.5, 0.0], "b": [3.0, 4.5, 1.0]}, index=["x", "y", "z"])
    numbers = frame.to_numpy()
    for axis, names in ((-1, ["x", "y", "z"]), (0, ["a", "b"])):
        for function in (
            lambda x, axis: isentropic.entropy(x, input="scores", axis=axis),
            lambda x, axis: isentropic.logsumexp(x, axis=axis),
            lambda x, axis: isentropic.mean_field_entropy(x, axis=axis),
            lambda x, axis: isentropic.gamma_for_entropy(x, entropy=0.3, axis=axis).gamma,
            lambda x, axis: isentropic.softmax_loss(x, np.zeros(3 if axis else 2, int), axis=axis),
        ):
            found = function(frame, axis)
            assert isinstance(found, pd.Series) and list(found.index) == names
            np.testing.assert_array_equal(found, function(numbers, axis))
    value, gradient = isentropic.entropy(frame, input="scores", return_grad=True)
    assert isinstance(value, pd.Series) and isinstance(gradient, np.ndarray)
    assert isinstance(isentropic.entropy(frame["a"], input="scores"), float)
    for function in (
        isentropic.softmax,
        isentropic.log_softmax,
        lambda x: isentropic.self_information(x, input="scores"),
        lambda x: isentropic.power_transform(x, gamma=0.5),
        lambda x: isentropic.entropy(x, input="scores", return_grad=True)[1],
    ):
        column = frame["a"].rename("scores") if function is isentropic.softmax else frame["a"] / frame["a"].sum()
        found = function(column)
        assert isinstance(found, pd.Series) and list(found.index) == ["x", "y", "z"] and found.name == column.name
        np.testing.assert_array_equal(found, function(column.to_numpy()))


def test_names_at_other_places():
    """Two frames or Series whose entries have the same names in another order are refused; default numbers are no names, and
    those of rows are not compared."""
    pd = pytest.importorskip("pandas")
    p, q = [[0.2, 0.8], [0.5, 0.5]], [[0.8, 0.2], [0.1, 0.9]]

    def frame(rows, columns, index=None):
        return pd.DataFrame(rows, columns=columns, index=index)

    def turned(one):
        return frame(one.to_numpy().T, one.index, one.columns)

    for function, two in (
        (isentropic.kl_divergence, "pq"),
        (isentropic.js_distance, "pq"),
        (isentropic.total_variation, "pq"),
        (isentropic.wasserstein_histogram, "pq"),
        (isentropic.softmax_loss, ("x", "target")),
        (isentropic.distillation_loss, ("student", "teacher")),
    ):
        one, other = two
        message = rf"^{function.__name__}: {other} has the {{}} 'b' at place 0, {one} at place 1; reorder one: {other}{{}}$"
        want, a, b = function(np.array(p), np.array(q)), frame(p, ["a", "b"], ["r", "s"]), frame(q, ["b", "a"], ["s", "r"])
        with pytest.raises(ValueError, match=message.format("column", rf"\[{one}\.columns\]")):
            function(a, b)
        with pytest.raises(ValueError, match=message.format("name", rf"\.loc\[{one}\.index\]")):
            function(turned(a), turned(b), axis=0)
        with pytest.raises(ValueError, match=message.format("name", rf"\.reindex\({one}\.index\)")):
            function(a.loc["r"], b.loc["s"])
        for same in (frame(q, ["a", "b"]), frame(q, ["a", "c"]), frame(q, [0, 1]).rename(columns=str), pd.DataFrame(q)):
            np.testing.assert_array_equal(function(a, same), want)
        np.testing.assert_array_equal(function(pd.DataFrame(p), b), want)
        np.testing.assert_array_equal(function(a, q if "x" not in two else np.array(q)), want)
    kept = frame(p, ["a", "b"])
    with pytest.raises(ValueError, match=r"^kl_divergence: q has the column 'b' at place 0, p at place 1; .*: q\[p\.index\]$"):
        isentropic.kl_divergence(kept.iloc[0], kept[["b", "a"]])
    with pytest.raises(ValueError, match=r"^wasserstein_histogram: support has the name 'b' at place 0, p at place 1"):
        isentropic.wasserstein_histogram(kept, q, support=pd.Series([0.0, 1.0], index=["b", "a"]))
    masses = kept.iloc[1]
    for function, kwargs in ((isentropic.optimal_transport, {}), (isentropic.sinkhorn, {"epsilon": 0.1})):
        function(masses, masses, frame([[0, 1], [1, 0]], ["a", "b"], ["a", "b"]), **kwargs)
        with pytest.raises(ValueError, match=r"cost has the name 'b' at place 0, a at place 1; .*: cost\.loc\[a\.index"):
            function(masses, masses, frame([[0, 1], [1, 0]], ["a", "b"], ["b", "a"]), **kwargs)
        with pytest.raises(ValueError, match=r"cost has the column 'b' at place 0, b at place 1; .*: cost\[b\.index"):
            function(masses, masses, frame([[0, 1], [1, 0]], ["b", "a"], ["a", "b"]), **kwargs)


def test_arrays_of_pandas_without_names():
    """An index and an array of pandas are their numbers."""
    pd = pytest.importorskip("pandas")
    arrays = [pd.array([1.0, 2.0]), pd.array([1, 2]), pd.arrays.SparseArray([1.0, 2.0])]
    for x in (pd.Index([1.0, 2.0]), pd.RangeIndex(1, 3), *arrays):
        for function in (isentropic.softmax, isentropic.logsumexp, lambda x: isentropic.entropy(x, input="scores")):
            np.testing.assert_array_equal(function(x), function([1.0, 2.0]))
        assert type(isentropic.softmax(x)) is np.ndarray


def test_nullable_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.5], "b": [3.0, 4.5]})
    want = isentropic.softmax(frame.to_numpy())
    for backend in ("numpy_nullable", "pyarrow"):
        nullable = frame.convert_dtypes(dtype_backend=backend)
        np.testing.assert_array_equal(isentropic.softmax(nullable), want)
        np.testing.assert_array_equal(isentropic.softmax(nullable["a"]), isentropic.softmax([1.0, 2.5]))
    assert isentropic.softmax(frame.astype("Float32")).dtype == np.float32
    whole = pd.DataFrame({"a": [1, 2], "b": [3, 5]}).convert_dtypes()
    np.testing.assert_array_equal(isentropic.softmax(whole), isentropic.softmax([[1, 3], [2, 5]]))
    nullable = frame.convert_dtypes()
    nullable.loc[1, "b"] = pd.NA
    with pytest.raises(ValueError, match=r"^softmax: x must have no missing values, got one in row 1, column 'b'$"):
        isentropic.softmax(nullable)
    for column in (nullable["b"], nullable["b"].array, pd.Series([1.0, None], dtype="Float64")):
        with pytest.raises(ValueError, match=r"^softmax: x must have no missing values, got one in row 1$"):
            isentropic.softmax(column)
    with pytest.raises(TypeError, match="dtype object"):
        isentropic.softmax(pd.DataFrame({"a": ["one", "two"]}, dtype=object))
