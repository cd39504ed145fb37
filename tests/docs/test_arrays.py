"""The statements of docs/arrays.md that a session cannot show everywhere: namespaces, arrays with only DLPack, other
devices."""

import os
import sys
import types

import numpy as np
import pytest

import isentropic


class OnlyDLPack:
    def __init__(self, values, device=(1, 0)):
        self.values, self.place = values, device

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.place


@pytest.fixture
def strict():
    try:
        import array_api_strict
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip("array_api_strict is not installed")
    return array_api_strict


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_namespace_comes_back(strict, dtype):
    x = strict.asarray([[2, 1, 0], [0, 0, 5]], dtype=getattr(strict, dtype))
    y = isentropic.sparsemax(x, axis=0)
    assert y.__array_namespace__().__name__ == "array_api_strict"
    assert y.dtype == (strict.float64 if dtype == "int64" else x.dtype)
    np.testing.assert_array_equal(np.from_dlpack(y), isentropic.sparsemax(np.from_dlpack(x), axis=0))
    dx = isentropic.sparsemax_vjp(x, y, y, axis=0)
    assert type(dx) is type(x) and dx.shape == x.shape
    assert type(isentropic.logsumexp(x)) is type(x)


def test_namespace_out_is_filled(strict):
    x = strict.asarray([2.0, 1.0, 0.0])
    out = strict.empty_like(x)
    assert isentropic.softmax(x, out=out) is out
    np.testing.assert_array_equal(np.from_dlpack(out), isentropic.softmax([2.0, 1.0, 0.0]))


def test_nothing_is_copied_on_the_way_back(monkeypatch):
    """The namespace is handed memory, not numbers."""
    given = []
    namespace = types.SimpleNamespace(from_dlpack=lambda values: given.append(values) or values)
    x = OnlyDLPack(np.array([2.0, 1.0]))
    x.__array_namespace__ = lambda: namespace
    assert isentropic.softmax(x) is given[0]


def test_dlpack_alone_comes_back_by_its_module(monkeypatch):
    library = types.ModuleType("somelibrary")
    library.from_dlpack = lambda values: ("somelibrary", values)
    monkeypatch.setitem(sys.modules, "somelibrary", library)
    monkeypatch.setattr(OnlyDLPack, "__module__", "somelibrary.arrays")
    kind, values = isentropic.softmax(OnlyDLPack(np.zeros(2)))
    assert kind == "somelibrary"
    np.testing.assert_array_equal(values, [0.5, 0.5])


def test_another_device_is_named():
    with pytest.raises(TypeError, match=r"softmax: x is a OnlyDLPack on device .*isentropic computes on the CPU.*x\.cpu\(\)"):
        isentropic.softmax(OnlyDLPack(np.zeros(2), device=(2, 0)))


def test_refused_out_is_untouched():
    memory = np.arange(8.0)
    before = memory.copy()
    for out in (memory[1:7], memory[:6].astype(np.float32), memory[:5].reshape(5, 1)):
        with pytest.raises(ValueError, match="softmax: out must"):
            isentropic.softmax(memory[:6], out=out)
    np.testing.assert_array_equal(memory, before)


def test_numpy_protocols_are_not_answered():
    assert not any(hasattr(isentropic, name) for name in ("__array_namespace__", "__array_function__", "__array_ufunc__"))
