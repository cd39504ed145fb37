"""The functions of isentropic on arrays in a GPU's memory: arrays that say so, over this machine's memory, with the emulated
library."""

import os
import types
from pathlib import Path

import numpy as np
import pytest

import isentropic
from isentropic import _cuda

ROOT = Path(__file__).resolve().parents[2]
BUILT = sorted(ROOT.glob("build/*/tests/libisentropic_cuda_emulated.so"), key=os.path.getmtime)
LIBRARY = os.environ.get(_cuda.VARIABLE) or (str(BUILT[-1]) if BUILT else None)

pytestmark = [
    pytest.mark.skipif(LIBRARY is None, reason="the emulated library is not built: cmake --build ... isentropic_cuda_emulated"),
    pytest.mark.skipif(isentropic.simd_target() in ("SSE4", "SSE2", "EMU128", "SCALAR"), reason="bits are those of FMA"),
]


class Device:
    """A device that counts how often it is made the current one."""

    entered = 0

    def __enter__(self):
        Device.entered += 1

    def __exit__(self, *_):
        pass


DEVICE = Device()


class Array:
    """An array as CuPy's: what it does not have would copy it to the host."""

    def __init__(self, numbers):
        self.numbers = numbers

    device = DEVICE
    shape = property(lambda self: self.numbers.shape)
    dtype = property(lambda self: self.numbers.dtype)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        return self.numbers.__dlpack__()

    @property
    def __cuda_array_interface__(self):
        return dict(self.numbers.__array_interface__) | {"stream": 1}

    def __array_namespace__(self):
        return Namespace

    def __array__(self, *_, **__):
        raise TypeError("implicit conversion to a host array")


class OnlyDlpack(Array):
    @property
    def __cuda_array_interface__(self):
        raise AttributeError


class Namespace:
    """The functions that the standard for arrays has."""

    uint8, int64, float16, float32, float64 = np.uint8, np.int64, np.float16, np.float32, np.float64

    def empty(shape, *, dtype, device):
        assert device is DEVICE
        kind = np.dtype(dtype)
        return Array(np.full(shape, 77 if kind.kind in "iu" else np.nan, kind))

    def asarray(x, *, copy=None, device=None):
        return Array(np.array(x.numbers if isinstance(x, Array) else x, order="C", copy=True))

    def astype(x, dtype):
        return Array(x.numbers.astype(dtype))

    def moveaxis(x, source, target):
        return Array(np.moveaxis(x.numbers, source, target))

    def reshape(x, shape):
        return Array(x.numbers.reshape(shape))

    def broadcast_to(x, shape):
        return Array(np.broadcast_to(x.numbers, shape))


@pytest.fixture(autouse=True)
def library(monkeypatch):
    monkeypatch.setenv(_cuda.VARIABLE, LIBRARY)
    _cuda.library.cache_clear()


def test_memory_is_that_of_the_current_device(monkeypatch):
    sizes = iter((100, 200))
    devices = types.SimpleNamespace(isentropic_cuda_memory=lambda *_: next(sizes))
    monkeypatch.setattr(_cuda, "library", lambda: devices)
    assert [_cuda.memory("softmax", "{}", 2, 3, "float32") for _ in range(2)] == [100, 200]


def scores(dtype=np.float32, shape=(3, 4, 20), seed=0):
    x = 2 * np.random.default_rng(seed).standard_normal(shape)
    x[0, 1, 3] = -np.inf
    return x.astype(dtype)


def expect_same(got, want):
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert isinstance(a, Array)
        assert a.numbers.dtype == np.asarray(b).dtype and a.numbers.shape == np.shape(b)
        np.testing.assert_array_equal(a.numbers, b)


NEEDED = {"top_k_softmax": {"k": 3}, "top_p_softmax": {"p": 0.7}, "min_p_softmax": {"p": 0.1}}
NEEDED |= {"entropy_normalize": {"entropy": 1.1}, "entropy_clip": {"min_entropy": 0.5, "max_entropy": 1.5}}
ON_DEVICES = [one for one in isentropic._core.operations() if "device" not in one["not_in"]]
MAPS = [one["name"] for one in ON_DEVICES if one["name"] not in ("perturb_max",) and not one["reduces"]]


@pytest.mark.parametrize("kind", [Array, OnlyDlpack])
@pytest.mark.parametrize("name", MAPS)
def test_maps_and_gradients_have_the_bits_of_arrays_of_the_host(name, kind):
    function, vjp = getattr(isentropic, name), getattr(isentropic, f"{name}_vjp")
    for dtype in (np.float32, np.float64, np.float16):
        for axis in (-1, 1):
            x, params = scores(dtype), NEEDED.get(name, {})
            y, g = function(x, axis=axis, **params), scores(dtype, seed=5).clip(-9)
            expect_same(function(kind(x), axis=axis, **params), y)
            got = vjp(kind(x), kind(y), kind(g), axis=axis, **params)
            expect_same(got, vjp(x, y, g, axis=axis, **params))


def test_logsumexp():
    x = scores()
    for keepdims in (True, False):
        expect_same(
            isentropic.logsumexp(Array(x), axis=1, keepdims=keepdims), isentropic.logsumexp(x, axis=1, keepdims=keepdims)
        )


def test_parameters_by_row_and_their_gradients():
    x = scores()
    alpha = np.linspace(1.1, 2.2, 12).reshape(3, 4, 1)
    y = isentropic.entmax(x, alpha=alpha)
    expect_same(isentropic.entmax(Array(x), alpha=alpha), y)
    expect_same(isentropic.entmax(Array(x), alpha=Array(alpha)), y)
    want = isentropic.entmax_vjp(x, y, y, alpha=alpha, param_grad=True)
    expect_same(isentropic.entmax_vjp(Array(x), Array(y), Array(y), alpha=alpha, param_grad=True), want)


@pytest.mark.parametrize("name", [one["name"] for one in isentropic._core.losses()])
def test_losses(name):
    (description,) = (one for one in isentropic._core.losses() if one["name"] == name)
    function, kind = getattr(isentropic, name), description["target"]
    x = scores() if name != "margin_softmax_loss" else scores().clip(-1, 1)
    params = {"top_k_softmax_loss": {"k": 3}, "top_p_softmax_loss": {"p": 0.7}}.get(name, {})
    if kind.startswith("class"):
        target = np.arange(12).reshape(3, 4) % 20
        params |= {"ignore_index": 2}
    else:
        target = scores(seed=9) if kind == "scores" else (np.arange(240).reshape(3, 4, 20) % 3 == 0).astype(np.float32)
    want = function(x, target, return_grad=True, **params)
    expect_same(function(Array(x), Array(target), return_grad=True, **params), want)
    expect_same(function(Array(x), Array(target), **params), want[0])


def test_a_loss_with_a_map():
    x, target = scores(), np.arange(12).reshape(3, 4)
    params = {"map": ("entmax", {"alpha": 1.3}), "return_grad": True}
    expect_same(isentropic.surrogate_loss(Array(x), Array(target), **params), isentropic.surrogate_loss(x, target, **params))


MEASURES = {one["name"]: one for one in isentropic._core.measure_operations() if "device" not in one["not_in"]}


@pytest.mark.parametrize("name", MEASURES)
def test_measures(name):
    function, given = (
        getattr(isentropic, name),
        (scores(), scores(seed=4))[: 2 if MEASURES[name]["family"] == "divergence" else 1],
    )
    params = {param["name"]: param["typical"] for param in MEASURES[name]["params"] if param["required"]}
    params |= {"input": "scores", "axis": 1, "return_grad": True}
    expect_same(function(*map(Array, given), **params), function(*given, **params))


STEPS = [("temperature", 0.7), ("top_k", 9), ("top_p", 0.9), ("entropy_clip", (0.5, None))]


@pytest.mark.parametrize("stream", [7, list(range(12)), 2**64 - 3])
def test_draws(stream):
    x = scores()
    for size in (None, 5):
        params = {"seed": 2**64 - 5, "stream": stream, "position": 11, "size": size}
        expect_same(isentropic.sample(Array(x), **params), isentropic.sample(x, **params))
        chain, params = isentropic.Sampler(STEPS, seed=3), {"stream": stream, "size": size}
        expect_same(chain.sample(Array(x), **params), chain.sample(x, **params))
    expect_same(chain.probs(Array(x), axis=1), chain.probs(x, axis=1))
    params = {"seed": 5, "stream": stream, "hard": True}
    expect_same(isentropic.gumbel_softmax(Array(x), **params), isentropic.gumbel_softmax(x, **params))


def test_calls_go_to_the_arrays_device_and_stream(monkeypatch):
    streams, run = [], _cuda.run

    def watched(*arguments):
        streams.append(arguments[5])
        run(*arguments[:5], None, *arguments[6:])

    monkeypatch.setattr(_cuda, "run", watched)
    entered = Device.entered
    isentropic.softmax(Array(scores()))
    isentropic.softmax(OnlyDlpack(scores()))
    assert streams == [1, None] and Device.entered == entered + 2


def test_tensors_of_torch(monkeypatch):
    """A tensor that says that it is on a GPU takes the same way, in its own types."""
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    from isentropic._numpy import _device

    monkeypatch.setattr(_device, "holds", lambda x: isinstance(x, torch.Tensor))
    monkeypatch.setattr(_device._Tensors, "stream", lambda self: None)
    monkeypatch.setattr(_device._Tensors, "on_device", lambda self: _device.contextlib.nullcontext())
    x = torch.from_numpy(scores()).to(torch.bfloat16)
    got = isentropic.entmax(x, axis=1)
    assert got.dtype is torch.bfloat16 and got.shape == x.shape
    monkeypatch.undo()
    assert torch.equal(got, isentropic.entmax(x, axis=1))


def test_what_is_wrong_is_named(monkeypatch):
    x = Array(scores())
    with pytest.raises(ValueError, match=r"^entmax: alpha must be above 0 and finite, got -1"):
        isentropic.entmax(x, alpha=-1.0)
    with pytest.raises(ValueError, match=r"^softmax_vjp: grad must have the shape of x"):
        isentropic.softmax_vjp(x, x, Array(np.zeros((3, 4), np.float32)))
    with pytest.raises(TypeError, match=r"^kl_divergence: q must be on the device of p, got ndarray"):
        isentropic.kl_divergence(x, scores())
    with pytest.raises(TypeError, match=r"^softmax: x must be of .* or float64 on a GPU, got dtype int64"):
        isentropic.softmax(Array(np.zeros((3, 4), np.int64)))
    with pytest.raises(TypeError, match="out cannot be given for arrays of a GPU"):
        isentropic.softmax(x, out=x)
    monkeypatch.delenv(_cuda.VARIABLE)
    with pytest.raises(TypeError, match=r"^softmax: x is a Array on device .* by the library isentropic_cuda on a GPU"):
        isentropic.softmax(x)


def test_empty_arrays():
    x = Array(np.empty((0, 5), np.float32))
    assert isentropic.softmax(x).shape == (0, 5)


def labelled(dtype, n=20):
    """Scores, and labels that are right in every second row."""
    x = scores(dtype, (3, 4, n))
    labels = np.arange(12).reshape(3, 4) % 2
    labels[:, ::2] = x.argmax(-1)[:, ::2]
    return x, labels


@pytest.mark.parametrize("kind", [Array, OnlyDlpack])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_fits_are_those_of_arrays_of_the_host(dtype, kind):
    x, labels = (given[:2] for given in labelled(dtype))
    weights = np.arange(8.0).reshape(2, 4)
    ignored = labels.copy()
    ignored[1, 2] = ignored[0, 0] = -100
    for function, own in ((isentropic.fit_temperature, x), (isentropic.fit_target_entropy, x)):
        for how in ({}, {"sample_weight": weights}, {"ignore_index": -100}):
            y = ignored if "ignore_index" in how else labels
            want = function(own, y, **how)
            placed = {k: kind(v) if isinstance(v, np.ndarray) else v for k, v in how.items()}
            got = function(kind(own), y.tolist() if "ignore_index" in how else kind(y), **placed)
            assert type(got) is float
            np.testing.assert_allclose(got, want, rtol=1e-8)
    for how in ({}, {"sample_weight": weights}):
        got = isentropic.match_entropy(kind(x), **{k: kind(v) for k, v in how.items()})
        assert got == pytest.approx(isentropic.match_entropy(x, **how), rel=1e-6)


def test_fits_refuse_what_they_refuse_of_the_host():
    x, labels = labelled(np.float32)
    right = x.argmax(-1)
    with pytest.warns(isentropic.calibration.TemperatureClampedWarning, match="T = 0.001"):
        assert isentropic.fit_temperature(Array(x), Array(right)) == 1e-3
    nan, outside = x.copy(), labels.copy()
    nan[1, 2, 5], outside[2, 1] = np.nan, 20
    for args, error in (
        ((x, labels[0]), ValueError),
        ((x, labels.astype(np.float32)), TypeError),
        ((x, outside), ValueError),
        ((nan, labels), ValueError),
        ((x[:0], labels[:0]), ValueError),
        ((x, np.full_like(labels, 7), {"ignore_index": 7}), ValueError),
        ((x, labels, {"ignore_index": 1.5}), TypeError),
        ((x, labels, {"sample_weight": -np.ones((3, 4))}), ValueError),
        ((x, labels, {"sample_weight": np.ones(3)}), ValueError),
        ((x, np.where(labels == 0, 7, labels), {"ignore_index": 7, "sample_weight": 1.0 * (labels == 0)}), ValueError),
        ((np.zeros((0, 3), np.float32), np.array([])), ValueError),
    ):
        how = args[2] if len(args) > 2 else {}
        for function in (isentropic.fit_temperature, isentropic.fit_target_entropy):
            with pytest.raises(error) as host:
                function(*args[:2], **how)
            placed = {k: Array(v) if isinstance(v, np.ndarray) else v for k, v in how.items()}
            with pytest.raises(error) as device:
                function(Array(args[0]), Array(args[1]), **placed)
            assert str(device.value) == str(host.value)
    empty = np.where(np.arange(4)[None, :, None] == 2, -np.inf, x).astype(x.dtype)
    for bad in (nan, empty, np.zeros((7, 0), np.float32)):
        with pytest.raises(ValueError, match=r"^match_entropy: scores must not") as host:
            isentropic.match_entropy(bad)
        with pytest.raises(ValueError, match=r"^match_entropy: scores must not") as device:
            isentropic.match_entropy(Array(bad))
        assert str(device.value) == str(host.value)
    assert isentropic.fit_temperature(Array(x), labels, ignore_index=2**70) == isentropic.fit_temperature(
        Array(x), Array(labels)
    )


def test_fits_refuse_gradients_and_other_numbers(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")
    from isentropic._numpy import _device

    monkeypatch.setattr(_device, "holds", lambda x: isinstance(x, torch.Tensor))
    x, labels = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    for given in (
        (x.requires_grad_(), labels, None),
        (x.detach(), labels, torch.ones(4, requires_grad=True)),
    ):
        with pytest.raises(TypeError, match=r"requires grad, and the result has no gradient; pass \w+.detach\(\)"):
            isentropic.fit_temperature(*given[:2], sample_weight=given[2])
    for how in ({"sample_weight": np.ones(4) * 1j}, {"sample_weight": ["a"] * 4}, {"ignore_index": 0.5}):
        with pytest.raises(TypeError) as device:
            isentropic.fit_temperature(x.detach(), labels, **how)
        with pytest.raises(TypeError) as host:
            isentropic.fit_temperature(np.zeros((4, 3)), np.zeros(4, int), **how)
        assert str(device.value) == str(host.value)


@pytest.mark.parametrize(
    ("name", "parameters", "changed", "said"),
    [
        ("fit_temperature", "{}", {"value": np.zeros((2, 1))}, "value must be one number, got 2"),
        ("fit_temperature", "{}", {"value": np.zeros((1, 1), np.float32)}, "value must be float64, got float32"),
        ("fit_temperature", "{}", {"clamped": np.zeros((1, 1), np.int64)}, "clamped must be int32, got int64"),
        ("fit_temperature", "{}", {"clamped": np.zeros((2, 1), np.int32)}, "clamped must be one number, got 2"),
        ("fit_temperature", '{"ignore_index": 1.5}', {}, "ignore_index must be an integer"),
        ("fit_temperature", '{"temperature": 1.5}', {}, "there is no parameter 'temperature'"),
        ("fit_target_entropy", "{}", {"clamped": np.zeros((1, 1), np.int32)}, "there is no array 'clamped'"),
    ],
)
def test_fits_by_name_refuse(name, parameters, changed, said):
    arrays = {"x": np.zeros((3, 5), np.float32), "labels": np.zeros((3, 1), np.int64), "value": np.full((1, 1), 9.0)} | changed
    places = [(key, array.ctypes.data, *array.shape, str(array.dtype)) for key, array in arrays.items()]
    with pytest.raises(ValueError, match=f"^{name}: {said}"):
        _cuda.run(name, parameters, places, None, 0, None)
    assert arrays["value"].ravel()[0] == (9 if "value" not in changed else 0)


@pytest.mark.parametrize(
    ("name", "parameters", "more", "said"),
    [
        ("temperature_slopes", '{"beta": "warm"}', {"labels": np.zeros((3, 1), np.int64)}, "beta must be a number"),
        ("target_entropy_losses", '{"entropy": true}', {"labels": np.zeros((3, 1), np.int64)}, "entropy must be a number"),
        ("token_statistics", '{"temperature": "hot"}', {"target": np.zeros((3, 1), np.int64)}, "temperature must be a number"),
    ],
)
def test_parameters_of_a_devices_own_operations_are_numbers(name, parameters, more, said):
    found = {"statistics" if name == "token_statistics" else "found": np.full((3, 4), 9.0)}
    arrays = {"x": np.zeros((3, 5)), **more, **found}
    places = [(key, array.ctypes.data, *array.shape, str(array.dtype)) for key, array in arrays.items()]
    with pytest.raises(ValueError, match=f"^{name}: {said}"):
        _cuda.run(name, parameters, places, None, 0, None)
    with pytest.raises(ValueError, match=r"^token_statistics: top must be an integer"):
        _cuda.memory("token_statistics", '{"top": 1.5}', 3, 5, "float64")


UNKNOWN = {
    "softmax": ("x", "y"),
    "log_softmax": ("x", "y"),
    "logsumexp": ("x", "y of rows"),
    "softmax_loss": ("x", "target", "value"),
    "entropy": ("p", "value"),
    "kl_divergence": ("p", "q", "value"),
    "gamma_for_entropy": ("x", "gamma", "reached", "status"),
    "token_statistics": ("x", "target", "statistics"),
    "calibration_facts": ("x", "labels", "found"),
    "fit_temperature": ("x", "labels", "value"),
    "match_entropy": ("x_reference", "value"),
    "sampler_probs": ("x", "y"),
    "sampler_sample": ("x", "indices"),
    "sample": ("x", "indices"),
    "gumbel_softmax": ("x", "y"),
    "gumbel_noise": ("y",),
}
INPUTS = ("x", "p", "q", "x_reference", "target", "labels")


REQUIRED = {"gamma_for_entropy": '"entropy": 1.0', "sampler_probs": '"steps": []', "sampler_sample": '"steps": []'}


def arrays_of(operation, *others):
    """Arrays of three rows that the operation takes, by name; outputs are full of 9."""
    given = {}
    for name in (*UNKNOWN[operation], *others):
        if name in ("target", "labels", "indices"):
            given[name] = np.zeros((3, 1), np.int64)
        elif name == "status":
            given[name] = np.full((3, 1), 9, np.int32)
        elif name in ("value", "gamma", "reached"):
            given[name] = np.full((1 if operation in ("fit_temperature", "match_entropy") else 3, 1), 9.0)
        else:
            cols = {"y of rows": 1, "statistics": 4, "found": 4}.get(name, 5)
            given[name] = np.full((3, cols), 9.0, np.float64 if name == "found" else np.float32)
        if name in ("p", "q"):
            given[name][:] = 0.2
    return given


def places_of(given):
    return [(name.split()[0], array.ctypes.data, *array.shape, str(array.dtype)) for name, array in given.items()]


@pytest.mark.parametrize("operation", UNKNOWN)
def test_arrays_of_unknown_names_are_refused_before_anything_is_written(operation):
    given = arrays_of(operation, "no_such")
    text = "{" + REQUIRED.get(operation, "") + "}"
    first = next(iter(given.values()))
    size = _cuda.memory(operation, text, *first.shape, str(first.dtype))
    memory = np.zeros(size + _cuda.ALIGNMENT, np.uint8)
    at = memory.ctypes.data + -memory.ctypes.data % _cuda.ALIGNMENT
    before = {name: array.copy() for name, array in given.items()}
    places = places_of(given)
    with pytest.raises(ValueError, match=f"^{operation}: there is no array 'no_such'"):
        _cuda.run(operation, text, places, at, size, None)
    for name, array in given.items():
        np.testing.assert_array_equal(array, before[name])
    _cuda.run(operation, text, places[:-1], at, size, None)
    written = {name for name, array in given.items() if not np.array_equal(array, before[name])}
    assert written and not written & set(INPUTS)


@pytest.mark.parametrize("parameter", ["no_such", "steps"])
@pytest.mark.parametrize("operation", UNKNOWN)
def test_parameters_of_unknown_names_are_refused_before_anything_is_written(operation, parameter):
    if parameter == "steps" and operation.startswith("sampler_"):
        parameter = "no_such"
    given = arrays_of(operation)
    before = {name: array.copy() for name, array in given.items()}
    texts = [*filter(None, [REQUIRED.get(operation)]), f'"{parameter}": ' + ("[]" if parameter == "steps" else "1")]
    with pytest.raises(ValueError, match=f"^{operation}: .*{parameter}"):
        _cuda.run(operation, "{" + ", ".join(texts) + "}", places_of(given), None, 0, None)
    for name, array in given.items():
        np.testing.assert_array_equal(array, before[name])
