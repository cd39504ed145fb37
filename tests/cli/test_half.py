"""Files of float16 and bfloat16: maps keep the type, measures and the like are float32 at least."""

import json
import struct

import numpy as np
import pytest
from conftest import parsed, softmax

import isentropic

rng = np.random.default_rng(21)
SCORES = rng.normal(scale=0.3, size=(3, 20_000)).astype(np.float32)


def bfloat16(x):
    """The nearest bfloat16 numbers as bits, and as float32."""
    bits = x.astype(np.float32).view(np.uint32)
    bits = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32)


def safetensors(bits, dtype="BF16"):
    header = json.dumps({"x": {"dtype": dtype, "shape": list(bits.shape), "data_offsets": [0, bits.nbytes]}}).encode()
    return struct.pack("<Q", len(header)) + header + bits.tobytes()


def read_safetensors(data):
    (size,) = struct.unpack("<Q", data[:8])
    (entry,) = json.loads(data[8 : 8 + size]).values()
    return entry, data[8 + size :]


@pytest.fixture(params=["bfloat16", "float16"])
def half(request, cli):
    """A file of half precision, and what its scores are in float64."""
    if request.param == "float16":
        x = SCORES.astype(np.float16)
        return cli.save("x.npy", x), x.astype(np.float64)
    bits, x = bfloat16(SCORES)
    return cli.write("x.safetensors", safetensors(bits)), x.astype(np.float64)


def entropy(p):
    return -(p * np.log(p)).sum(axis=-1)


def test_measures_are_not_narrowed_to_the_files_type(cli, half):
    path, x = half
    found = parsed(cli.output("entropy", path, "--input", "scores"))[:, 0]
    np.testing.assert_allclose(found, entropy(softmax(x)), rtol=1e-6)
    cli.output("entropy", path, "--input", "scores", "-o", "h.npy")
    assert cli.load("h.npy").dtype == np.float32
    np.testing.assert_array_equal(cli.load("h.npy"), found.astype(np.float32))
    cli.output("entropy", path, "--input", "scores", "-o", "h.safetensors")
    assert read_safetensors((cli.directory / "h.safetensors").read_bytes())[0]["dtype"] == "F32"


def test_logsumexp_gamma_and_entries_are_not_narrowed_either(cli, half):
    path, x = half
    found = parsed(cli.output("logsumexp", path))[:, 0]
    np.testing.assert_allclose(found, np.log(np.exp(x).sum(axis=-1)), rtol=1e-6)
    cli.output("gamma", path, "--entropy", 9, "-o", "g.npy")
    gamma, reached = cli.load("g.npy").T
    np.testing.assert_allclose(reached, 9, rtol=1e-6)
    np.testing.assert_allclose(entropy(softmax(gamma[:, None] * x)), 9, rtol=1e-6)
    cli.save("p.npy", np.array([[0.3, 0.7]], dtype=np.float16))
    found = parsed(cli.output("self_information", "p.npy"))
    np.testing.assert_allclose(found, -np.log(np.array([[0.3, 0.7]], dtype=np.float16).astype(float)), rtol=1e-6)


def test_tables_and_divergences_are_not_narrowed(cli):
    cli.save("t.npy", np.array([[0.25, 0.3], [0.3, 0.15]], dtype=np.float16))
    found = float(cli.output("joint_entropy", "t.npy"))
    assert found == pytest.approx(entropy(np.float16([0.25, 0.3, 0.3, 0.15]).astype(float)), rel=1e-6)
    p, q = np.float16([[0.25, 0.75]]), np.float16([[0.3, 0.7]])
    cli.save("p.npy", p)
    cli.save("q.npy", q)
    p, q = p.astype(float), q.astype(float)
    expected = (p * np.log(p / q) - p + q).sum()
    assert float(cli.output("kl_divergence", "p.npy", "q.npy")) == pytest.approx(expected, rel=1e-6)


def test_what_a_map_writes_is_read_back_with_the_tolerance_of_its_type(cli, half):
    path, x = half
    out = "p" + path[1:]
    cli.output("softmax", path, "-o", out)
    found = parsed(cli.output("entropy", out))[:, 0]
    np.testing.assert_allclose(found, entropy(softmax(x)), rtol=2e-3)
    # Also beside a file of another type.
    cli.save("q.npy", softmax(x))
    for pair in [(out, "q.npy"), ("q.npy", out)]:
        np.testing.assert_allclose(parsed(cli.output("kl_divergence", *pair)), 0, atol=1e-4)


def test_soft_targets_and_calibration_have_the_tolerance_of_their_type(cli):
    """Sums of 16-bit probabilities are 1 within 1e-2."""
    generator = np.random.default_rng(4)
    x = generator.normal(size=(5, 6))
    exact = softmax(2 * generator.normal(size=x.shape))
    p = (exact * 0.998).astype(np.float16)
    q = p.astype(np.float64) / p.astype(np.float64).sum(axis=1, keepdims=True)
    losses = [("softmax_loss",), ("sparsemax_loss",), ("entmax_loss",), ("smooth_accuracy_loss",), ("surrogate_loss",)]
    losses += [("top_k_softmax_loss", "--k", 3), ("top_p_softmax_loss", "--p", 0.9)]
    cli.save("p.npy", p)
    cli.save("q.npy", q)
    bits, wide = bfloat16(exact)
    cli.write("p.safetensors", safetensors(bits))
    wide = wide.astype(float)
    cli.save("wide.npy", wide / wide.sum(axis=1, keepdims=True))
    for dtype in (np.float16, np.float32, np.float64):
        cli.save("x.npy", x.astype(dtype))
        for name, *options in losses:
            for target, same in (("p.npy", "q.npy"), ("p.safetensors", "wide.npy")):
                found = parsed(cli.output(name, "x.npy", target, *options))
                np.testing.assert_allclose(found, parsed(cli.output(name, "x.npy", same, *options)), rtol=5e-3, atol=5e-3)
    # The same type goes to the library as it is, as in Python.
    cli.save("x.npy", x.astype(np.float16))
    found = parsed(cli.output("entmax_loss", "x.npy", "p.npy"))[:, 0]
    np.testing.assert_array_equal(found.astype(np.float32), isentropic.entmax_loss(x.astype(np.float16), p))
    cli.save("p.npy", (exact * 0.98).astype(np.float16))
    assert cli.error("softmax_loss", "x.npy", "p.npy").startswith("p.npy: softmax_loss: target must be a distribution")

    cli.save("p.npy", p)
    cli.save("t.npy", np.arange(5))
    cli.output("expected_calibration_error", "p.npy", "t.npy", "--report", "e.html", "-o", "e.npy")
    want = isentropic.expected_calibration_error(p, np.arange(5))
    np.testing.assert_allclose(cli.load("e.npy"), want, rtol=1e-6)
    assert "must sum to 1 within 0.001" in cli.error("expected_calibration_error", "p.npy", "t.npy", "--sum_tolerance", 0.001)


def test_draws_are_int64_in_arrays(cli, half):
    cli.output("sample", half[0], "--seed", 1, "--count", 4, "-o", "d.npy")
    drawn = cli.load("d.npy")
    assert (drawn.dtype, drawn.shape) == (np.int64, (3, 4))
    assert drawn.max() > 2048  # which float16 could not count to
    cli.output("sample", half[0], "--seed", 1, "--count", 4, "-o", "d.safetensors")
    entry, data = read_safetensors((cli.directory / "d.safetensors").read_bytes())
    assert entry["dtype"] == "I64" and entry["shape"] == [3, 4]
    np.testing.assert_array_equal(np.frombuffer(data, np.int64).reshape(3, 4), drawn)
    cli.output("sample", half[0], "--seed", 1, "--count", 4, "-o", "d.npz")
    np.testing.assert_array_equal(cli.load("d.npz")["x" if half[0].endswith("safetensors") else "arr_0"], drawn)
