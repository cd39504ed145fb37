"""The golden values and the laws that the package is tested with (tests/python), by the library in WebAssembly.

The tests are the same ones: their `isentropic` is a stand-in that calls the library in wasmtime, then in Chromium. Where the
package has the kernels of SSE4, every result must also have their bits.
"""

import base64
import json
import pathlib
import sys

import numpy as np
import pytest

pytest.importorskip("wasmtime")
pytest.importorskip("mpmath")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
pytest.register_assert_rewrite("cases", "test_golden", "test_values")

from test_wasm import FILE, ROOT, Library, bits  # noqa: E402

import cases  # noqa: E402
import isentropic  # noqa: E402
import test_golden as golden  # noqa: E402
import test_values as values  # noqa: E402
from test_values import (  # noqa: E402, F401
    test_every_parameter_acts_and_rows_do_not_see_each_other,
    test_gradient_at_absent_scores_is_zero_and_their_grad_not_read,
    test_laws,
    test_limits_that_tie_operations,
    test_log_softmax_and_logsumexp_against_mpmath,
    test_no_parameter_is_dead,
    test_softmax_against_mpmath,
    test_sparsemax_against_mpmath,
    test_vjp_against_central_differences,
)

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="scripts/wasm builds it")


class InBrowser:
    """Library of test_wasm, by a page."""

    def __init__(self, browser):
        self.page = browser.new_page()
        self.page.goto("about:blank")
        self.page.add_script_tag(content=(ROOT / "docs/explorer/library.js").read_text())
        self.page.evaluate(
            """(wasm) => {
              const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
              const library = new Library(new WebAssembly.Module(bytes(wasm)));
              window.apply = ([operation, parameters, vjp, arrays]) => {
                const types = {float32: Float32Array, float64: Float64Array}, placed = {};
                for (const [name, [type, rows, data]] of Object.entries(arrays)) {
                  placed[name] = {data: new types[type](bytes(data).buffer), rows};
                }
                library.apply(operation, JSON.parse(parameters), placed, 1, vjp);
                const result = new Uint8Array(placed[vjp ? "dx" : "y"].data.buffer), parts = [];
                for (let i = 0; i < result.length; i += 8192) parts.push(String.fromCharCode(...result.subarray(i, i + 8192)));
                return btoa(parts.join(""));
              };
            }""",
            base64.b64encode(FILE.read_bytes()).decode(),
        )

    def apply(self, operation, parameters, vjp=False, **arrays):
        given = {name: [a.dtype.name, len(a), base64.b64encode(a.tobytes()).decode()] for name, a in arrays.items()}
        result = self.page.evaluate("(call) => apply(call)", [operation, json.dumps(parameters), vjp, given])
        output = arrays["dx" if vjp else "y"]
        output[...] = np.frombuffer(base64.b64decode(result), output.dtype).reshape(output.shape)


class StandIn:
    """`isentropic` of the tests: its maps and logarithms, and their gradients."""

    def __init__(self, library):
        self.library = library
        self.calls = 0

    def __getattr__(self, name):
        operation, vjp, _ = name.partition("_vjp")
        reduces = operation == "logsumexp"

        def call(*given, axis=-1, keepdims=False, param_grad=False, **parameters):
            if param_grad:  # isentropic/c.h has none: what bounds of errors are made of
                return getattr(isentropic, name)(*given, param_grad=True, **parameters)
            arrays = dict(zip(["x", "y", "grad"], given, strict=False))
            if vjp and np.asarray(arrays["x"]).dtype == np.float32:  # left out: gradients are of float64
                return getattr(isentropic, name)(*given, axis=axis, **parameters)
            x = np.moveaxis(np.asarray(arrays["x"]), axis, -1)
            rows = x.shape[:-1]
            placed = {}
            for key, one in arrays.items():
                one = np.asarray(one, x.dtype)
                one = one.reshape(-1) if reduces and key != "x" else np.moveaxis(one, axis, -1).reshape(-1, x.shape[-1])
                placed[key] = np.ascontiguousarray(one)
            result = np.empty_like(placed["x"][:, 0] if reduces and not vjp else placed["x"])
            placed["dx" if vjp else "y"] = result
            self.library.apply(operation, parameters, vjp=bool(vjp), **placed)
            self.calls += 1
            if "SSE4" in isentropic.simd_targets():
                native = [placed[key] for key in arrays]
                assert bits(result) == bits(np.asarray(getattr(isentropic, name)(*native, **parameters))), name
            if reduces and not vjp:
                return result.reshape((*rows, 1) if keepdims else rows)[()]
            return np.moveaxis(result.reshape(x.shape), -1, axis)

        return call


@pytest.fixture(scope="module", autouse=True, params=["wasmtime", "Chromium"])
def stand_in(request):
    """In place of the package in what the tests call."""
    browser = request.getfixturevalue("browser") if request.param == "Chromium" else None
    stand_in = StandIn(InBrowser(browser) if browser else Library())
    sse4 = "SSE4" in isentropic.simd_targets()
    if sse4:
        isentropic.force_simd_target("SSE4")
    with pytest.MonkeyPatch.context() as patched:
        for module in (cases, golden, values):
            patched.setattr(module, "isentropic", stand_in)
        yield stand_in
    if sse4:
        isentropic.force_simd_target("")


@pytest.mark.parametrize(("result", "x", "g", "dtype"), list(golden.cases()))
def test_golden(stand_in, result, x, g, dtype):
    before = stand_in.calls
    golden.test_golden({key: one for key, one in result.items() if key != "dparam"}, x, g, dtype)
    assert stand_in.calls >= before + (1 if dtype == np.float32 else 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("operation", cases.MAPS, ids=lambda operation: operation["name"])
def test_special_rows_of_maps(operation, dtype):
    for axis in -1, 0:
        values.test_special_rows_of_maps(operation, dtype, axis)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_rows_of_log_softmax_and_logsumexp(dtype):
    values.test_special_rows_of_log_softmax_and_logsumexp(dtype)


@pytest.mark.parametrize("operation", cases.MAPS, ids=lambda operation: operation["name"])
def test_the_order_of_scores_does_not_matter(stand_in, operation):
    """A permuted row has the permuted result, but for the rounding of sums."""
    random = np.random.default_rng(11)
    for cols in (2, 5, 17, 300):
        x = random.standard_normal((3, cols)) * 2
        order = random.permutation(cols)
        p = cases.call(operation, x)
        np.testing.assert_allclose(cases.call(operation, x[:, order]), p[:, order], rtol=1e-11, atol=1e-14)
