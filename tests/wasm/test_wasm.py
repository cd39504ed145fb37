"""The library in WebAssembly, build/wasm/isentropic.wasm (scripts/wasm), in wasmtime and in Chromium.

Needs wasmtime, playwright and the Python package, whose SSE4 kernels, without FMA as these, are what bits are compared with.
Golden values and laws: test_cases.py.
"""

import base64
import gzip
import hashlib
import json
import pathlib
import struct

import numpy as np
import pytest

import isentropic

wasmtime = pytest.importorskip("wasmtime")
ROOT = pathlib.Path(__file__).parents[2]
FILE = ROOT / "build/wasm/isentropic.wasm"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="scripts/wasm builds it")
MAPS = [
    ("softmax", {}),
    ("softmax", {"temperature": 0.3}),
    ("sparsemax", {}),
    ("entmax", {}),
    ("entmax", {"alpha": 1.3}),
    ("taylor_softmax", {}),
    ("sigsoftmax", {}),
    ("top_k_softmax", {"k": 3}),
    ("top_p_softmax", {"p": 0.9}),
    ("min_p_softmax", {"p": 0.1}),
    ("perturb_max", {"noise": "normal"}),
    ("entropy_normalize", {"entropy": 1.0}),
    ("entropy_clip", {"min_entropy": 0.5, "max_entropy": 1.0}),
]


class Library:
    """One instance; after a call that traps it is of no use."""

    engine = wasmtime.Engine()
    module = None

    def __init__(self):
        Library.module = Library.module or wasmtime.Module.from_file(self.engine, str(FILE))
        self.store = wasmtime.Store(self.engine)
        self.store.set_wasi(wasmtime.WasiConfig())
        linker = wasmtime.Linker(self.engine)
        linker.define_wasi()
        self.exports = linker.instantiate(self.store, self.module).exports(self.store)
        self.exports["_initialize"](self.store)
        self.memory = self.exports["memory"]

    def put(self, data):
        at = self.exports["malloc"](self.store, len(data) + 1)
        self.memory.write(self.store, data, at)
        return at

    def text(self, at):
        data = self.memory.read(self.store, at, self.memory.data_len(self.store))
        return bytes(data[: data.index(0)]).decode()

    def apply(self, operation, parameters, vjp=False, **arrays):
        """Fills the arrays, as the interface does where it is in the same memory."""
        placed = {name: self.put(array.tobytes()) for name, array in arrays.items()}
        given = b""
        for name, array in arrays.items():
            rows, cols = array.shape if array.ndim == 2 else (len(array), 1)
            kind = {"float32": 1, "float64": 2, "int32": 5, "int64": 6}[array.dtype.name]
            given += struct.pack("<9I", 36, self.put(name.encode() + b"\0"), placed[name], rows, cols, 0, 0, kind, 0)
        function = self.exports["isentropic_apply_vjp" if vjp else "isentropic_apply"]
        texts = [self.put(text.encode() + b"\0") for text in (operation, json.dumps(parameters))]
        assert function(self.store, *texts, self.put(given), len(arrays)) == 0
        for name, array in arrays.items():
            read = self.memory.read(self.store, placed[name], placed[name] + array.nbytes)
            array[...] = np.frombuffer(read, array.dtype).reshape(array.shape)
            self.exports["free"](self.store, placed[name])

    def map(self, name, parameters, x):
        p = np.empty_like(x)
        self.apply(name, parameters, x=x, y=p)
        return p

    def map_vjp(self, name, parameters, x, p, g):
        dx = np.empty_like(x)
        self.apply(name, parameters, vjp=True, x=x, y=p, grad=g, dx=dx)
        return dx


@pytest.fixture(scope="module")
def library():
    return Library()


@pytest.fixture
def sse4():
    if "SSE4" not in isentropic.simd_targets():
        pytest.skip("this build has no SSE4 kernels to compare with")
    isentropic.force_simd_target("SSE4")
    yield
    isentropic.force_simd_target("")


def rows(dtype, cols):
    x = (np.random.default_rng(cols).standard_normal((23, cols)) * 3).astype(dtype)
    x[1] = 0
    x[2, ::2] = -np.inf
    return x


def bits(numbers):
    """Bytes, but of any NaN those of one: WebAssembly leaves its sign open."""
    return np.where(np.isnan(numbers), np.array(np.nan, numbers.dtype), numbers).tobytes()


def test_size():
    packed = FILE.with_suffix(".wasm.gz").read_bytes()
    assert gzip.decompress(packed) == FILE.read_bytes()
    assert len(packed) <= 600_000


def test_registry(library):
    found = json.loads(library.text(library.exports["isentropic_registry"](library.store)))
    assert {one["name"] for one in found if one["family"] == "map"} == {name for name, _ in MAPS}


@pytest.mark.parametrize("cols", [1, 5, 64, 100, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_of_maps(library, sse4, dtype, cols):
    x = rows(dtype, cols)
    g = np.random.default_rng(9).standard_normal(x.shape).astype(dtype)
    for name, parameters in MAPS:
        p, dx = getattr(isentropic, name)(x, **parameters), None
        mine = library.map(name, parameters, x)
        assert bits(mine) == bits(p), name
        if hasattr(isentropic, name + "_vjp") and dtype == "float64":
            dx = getattr(isentropic, name + "_vjp")(x, p, g, **parameters)
            assert bits(library.map_vjp(name, parameters, x, p, g)) == bits(dx), name


def test_measures_gamma_losses_and_draws(library, sse4):
    p = isentropic.softmax(rows("float64", 50))
    q = p[::-1].copy()
    value = np.empty(len(p))
    for name in "entropy", "perplexity":
        library.apply(name, {}, p=p, value=value)
        assert value.tobytes() == getattr(isentropic, name)(p).tobytes()
    for name in "kl_divergence", "js_divergence", "js_distance":
        library.apply(name, {}, p=p, q=q, value=value)
        assert value.tobytes() == getattr(isentropic, name)(p, q).tobytes()
    library.apply("wasserstein_histogram", {}, p=p, q=q, value=value)
    assert value.tobytes() == isentropic.wasserstein_histogram(p, q).tobytes()
    x = rows("float32", 50)
    gamma, reached, status = np.empty(len(x)), np.empty(len(x)), np.empty(len(x), np.int32)
    library.apply("gamma_for_entropy", {"entropy": 1.5}, x=x, gamma=gamma, reached=reached, status=status)
    assert isentropic.gamma_for_entropy(x, entropy=1.5).gamma.tobytes() == gamma.astype("float32").tobytes()
    scores, classes = rows("float64", 50)[3:], np.arange(20, dtype=np.int64)
    dx, value = np.empty_like(scores), np.empty(len(scores))
    library.apply("softmax_loss", {}, x=scores, target=classes, value=value, dx=dx)
    assert value.tobytes() == isentropic.softmax_loss(scores, classes).tobytes()
    draws = np.empty((len(x), 7), np.int64)
    library.apply("sample", {"seed": 5}, x=x.astype("float64"), indices=draws)
    assert draws.tobytes() == isentropic.sample(x.astype("float64"), size=7, seed=5).tobytes()


def test_optimal_transport(library, sse4):
    a, b = isentropic.softmax(rows("float64", 9)[3:5])
    cost = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))
    plan, value = np.empty_like(cost), np.empty(1)
    library.apply("optimal_transport", {}, a=a[None], b=b[None], cost=cost, plan=plan, value=value)
    assert plan.tobytes() == isentropic.optimal_transport(a, b, cost).plan.tobytes()
    assert value[0] == pytest.approx(isentropic.wasserstein_histogram(a, b), rel=1e-12)


@pytest.mark.parametrize(("name", "parameters", "words"), [
    ("softmax", {"temperature": -1}, "temperature must be above 0"),
    ("entmaxx", {}, "operation must be a name in isentropic_registry()"),
    ("attention", {}, "operation must be a name in isentropic_registry()"),
    ("softmax", {"alpha": 1}, "alpha"),
    ("softmax", {"temperature": "warm"}, "temperature"),
])  # fmt: skip
def test_refused(name, parameters, words):
    library = Library()
    x = np.zeros((1, 3))
    with pytest.raises(wasmtime.Trap):
        library.apply(name, parameters, x=x, y=x.copy())
    assert words in library.text(library.exports["isentropic_last_error"](library.store))


def test_a_gradient_is_of_float64():
    library, x = Library(), np.zeros((1, 3), np.float32)
    with pytest.raises(wasmtime.Trap):
        library.map_vjp("softmax", {}, x, x, x)
    assert "softmax_vjp: x must be float64" in library.text(library.exports["isentropic_last_error"](library.store))


def test_in_chromium(library, browser):
    """The same bytes as in wasmtime."""
    x = rows("float32", 300)
    expected = hashlib.sha256(b"".join(library.map(name, parameters, x).tobytes() for name, parameters in MAPS)).hexdigest()
    page = browser.new_page()
    page.goto("about:blank")
    page.add_script_tag(content=(ROOT / "docs/explorer/library.js").read_text())
    results = page.evaluate(
        """([wasm, numbers, maps]) => {
          const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
          const library = new Library(new WebAssembly.Module(bytes(wasm)));
          const x = new Float32Array(bytes(numbers).buffer);
          return maps.map(([name, parameters]) =>
            btoa(String.fromCharCode(...new Uint8Array(library.map(name, parameters, x, 23).buffer))));
        }""",
        [base64.b64encode(FILE.read_bytes()).decode(), base64.b64encode(x.tobytes()).decode(), MAPS],
    )
    assert hashlib.sha256(b"".join(map(base64.b64decode, results))).hexdigest() == expected
