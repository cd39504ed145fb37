"""entropic/c.h from other languages: ENTROPIC_BUILD is a build of the shared library."""

import ctypes as c
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = Path(os.environ["ENTROPIC_BUILD"]).resolve() / "tests/libentropic_shared.so"
EXAMPLES = ROOT / "examples/other_languages"
SAID = """0.7635 0.2057 0.0309 0.0000 entropy 0.6387
softmax: temperature must be above 0 and finite, got -1
"""
FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT32, INT64 = range(1, 7)


class Array(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("data", c.c_void_p),
        ("rows", c.c_size_t),
        ("cols", c.c_size_t),
        ("row_stride", c.c_ssize_t),
        ("col_stride", c.c_ssize_t),
        ("type", c.c_int32),
        ("reserved", c.c_int32),
    ]


@pytest.fixture(scope="module")
def library():
    lib = c.CDLL(str(LIBRARY))
    lib.entropic_registry.restype = lib.entropic_last_error.restype = c.c_char_p
    return lib


def call(library, name, arrays, parameters=None, vjp=False):
    """arrays: name -> (ctypes array, rows, cols, type)."""
    given = [
        Array(c.sizeof(Array), key.encode(), c.addressof(data), *rest[:2], 0, 0, rest[2])
        for key, (data, *rest) in arrays.items()
    ]
    function = library.entropic_apply_vjp if vjp else library.entropic_apply
    text = None if parameters is None else (parameters if isinstance(parameters, str) else json.dumps(parameters)).encode()
    code = function(name.encode(), text, (Array * len(given))(*given), c.c_size_t(len(given)))
    return "" if code == 0 else library.entropic_last_error().decode()


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compiled(source, program):
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Werror", f"-I{ROOT / 'include'}"]
    run("gcc", *flags, source, LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}", "-lm", "-o", program)
    return program


def test_strict_c99(tmp_path):
    assert run(compiled(ROOT / "tests/install/c_client.c", tmp_path / "client")) == ""


@pytest.mark.parametrize("standard", ["c++98", "c++17"])
def test_older_cpp(standard):
    run(
        "g++",
        f"-std={standard}",
        "-pedantic",
        "-Werror",
        "-fsyntax-only",
        "-include",
        ROOT / "include/entropic/c.h",
        "-x",
        "c++",
        "/dev/null",
    )


def test_example_in_c(tmp_path):
    assert run(compiled(EXAMPLES / "first_steps.c", tmp_path / "first")) == SAID


@pytest.mark.parametrize(("language", "ending"), [("luajit", "lua"), ("perl", "pl"), ("ruby", "rb")])
def test_example_in(language, ending):
    assert shutil.which(language), f"scripts/setup test installs {language}"
    assert run(language, EXAMPLES / f"first_steps.{ending}", env={**os.environ, "ENTROPIC_LIBRARY": str(LIBRARY)}) == SAID


def test_example_in_rust(tmp_path):
    assert shutil.which("rustc"), "scripts/setup test installs rustc"
    link = ["-L", LIBRARY.parent, "-l", "dylib=entropic_shared", "-C", f"link-arg=-Wl,-rpath,{LIBRARY.parent}"]
    run("rustc", "--edition=2021", "-D", "warnings", *link, EXAMPLES / "first_steps.rs", "-o", tmp_path / "first")
    assert run(tmp_path / "first") == SAID


def test_example_in_r(tmp_path):
    assert shutil.which("Rscript"), "scripts/setup test installs r-base-core"
    shutil.copy(EXAMPLES / "first_steps_r.c", tmp_path)
    flags = {
        "PKG_CFLAGS": f"-I{ROOT / 'include'}",
        "PKG_LIBS": f"-L{LIBRARY.parent} -lentropic_shared -Wl,-rpath,{LIBRARY.parent}",
    }
    run("R", "CMD", "SHLIB", "first_steps_r.c", cwd=tmp_path, env={**os.environ, **flags})
    env = {**os.environ, "ENTROPIC_R": str(tmp_path / "first_steps_r.so")}
    assert run("Rscript", EXAMPLES / "first_steps.R", env=env) == SAID


def column(kind, values):
    return (kind * len(values))(*values), len(values), 1


def test_every_operation_of_the_registry_runs(library):
    """With a value for what is required, every one fills its outputs, for both types."""
    needed = {"alpha": 1.5, "k": 2, "p": 0.9, "entropy": 0.5, "gamma": 1.5, "order": 2}
    operations = json.loads(library.entropic_registry())
    assert len({one["name"] for one in operations}) == len(operations) > 40
    for kind, code in [(c.c_float, FLOAT32), (c.c_double, FLOAT64)]:
        for one in operations:
            parameters = {p["name"]: needed[p["name"]] for p in one["parameters"] if p["required"]}
            if one["name"] in {"gamma_for_entropy", "entropy_normalize"}:
                parameters["entropy"] = 0.5
            if one["name"] == "entropy_clip":
                parameters["max_entropy"] = 0.8
            arrays = {}
            for array in one["arrays"]:
                name, optional = array["name"], array["optional"]
                if optional and one["name"] == "self_information":
                    continue
                per_row = name in {"value", "gamma", "reached"} and one["family"] != "entry"
                if name == "status":
                    arrays[name] = (*column(c.c_int32, [-9, -9]), INT32)
                elif name == "indices":
                    arrays[name] = (*column(c.c_int64, [-9, -9]), INT64)
                elif name == "target" and one["name"] not in {"multilabel_softmax_loss", "distillation_loss", "jsd_loss"}:
                    arrays[name] = (*column(c.c_int64, [1, 2]), INT64)
                elif per_row or (name == "y" and one["name"] == "logsumexp"):
                    rows = 1 if one["family"] == "table" else 2
                    wide = one["family"] != "logarithm"
                    arrays[name] = (*column(c.c_double if wide else kind, [-9] * rows), FLOAT64 if wide else code)
                else:
                    numbers = [-9] * 6 if array["output"] else [0.5, 0.25, 0.25, 0.125, 0.75, 0.125]
                    if one["family"] == "table" and not array["output"]:
                        numbers = [number / 2 for number in numbers]
                    if name == "target":
                        numbers = [1, 0, 1, 0, 1, 0]
                    arrays[name] = ((kind * 6)(*numbers), 2, 3, code)
            assert call(library, one["name"], arrays, parameters) == "", one["name"]
            for array in one["arrays"]:
                if array["output"] and array["name"] in arrays:
                    assert -9 not in list(arrays[array["name"]][0]), (one["name"], array["name"])
            if one["vjp"] is not None:
                width = arrays["y"][0]._length_
                arrays["grad"] = ((kind * width)(*range(width)), *arrays["y"][1:])
                arrays["dx"] = ((kind * 6)(*[-9] * 6), 2, 3, code)
                assert call(library, one["name"], arrays, parameters, vjp=True) == "", one["name"]
                assert -9 not in list(arrays["dx"][0]), one["name"]


BAD = [
    ("nosuch", {}, "operation must be a name that entropic_registry() has, got 'nosuch'"),
    ("softmax", {"temperature": -1}, "softmax: temperature must be above 0 and finite, got -1"),
    ("softmax", {"temp": 1}, "softmax: there is no parameter 'temp'; it has temperature"),
    ("softmax", "[1]", "softmax: parameters must be a JSON object, got '[1]': no { at character 1"),
    (
        "softmax",
        '{"temperature": 1',
        "softmax: parameters must be a JSON object, got '{\"temperature\": 1': no } at character 18",
    ),
    ("softmax", '{"temperature": 1, "temperature": 2}', "softmax: parameters has 'temperature' twice"),
    ("softmax", {"temperature": "hot"}, "softmax: temperature must be a number, got 'hot'"),
    ("top_k_softmax", {}, "top_k_softmax: k is required"),
    ("perturb_max", {"noise": "cauchy"}, "perturb_max: noise must be one of "),
]


@pytest.mark.parametrize(("name", "parameters", "said"), BAD)
def test_what_is_refused(library, name, parameters, said):
    arrays = {key: ((c.c_double * 3)(1, 2, 3), 1, 3, FLOAT64) for key in "xy"}
    assert call(library, name, arrays, parameters).startswith(said)


def test_arrays_that_are_refused(library):
    x, y = ((c.c_double * 3)(1, 2, 3), 1, 3, FLOAT64), ((c.c_float * 3)(), 1, 3, FLOAT32)
    assert call(library, "softmax", {"x": x}) == "softmax: the array 'y' is missing"
    assert call(library, "softmax", {"x": x, "y": y}) == "softmax: y must be of the type of x"
    assert call(library, "softmax", {"x": x, "y": (*x[:3], 9)}).startswith("softmax: type of y must be")
    assert call(library, "softmax", {"x": x, "y": x, "z": x}) == "softmax: there is no array 'z'; it has x, y"
    alpha = ((c.c_double * 3)(2, 2, 2), 3, 1, FLOAT64)
    assert (
        call(library, "entmax", {"x": x, "y": x, "alpha": alpha})
        == "entmax: alpha must have shape (1, 1), one for each row, got (3, 1)"
    )


def test_a_map_in_a_parameter(library):
    """By its name, or with parameters of its own."""
    x = ((c.c_double * 3)(1, 2, 3), 1, 3, FLOAT64)
    values = []
    for inner in ["entmax", {"name": "entmax", "alpha": 1.5}, {"name": "entmax", "alpha": 2}]:
        value = (c.c_double * 1)()
        arrays = {"x": x, "target": (*column(c.c_int64, [2]), INT64), "value": (value, 1, 1, FLOAT64)}
        assert call(library, "smooth_accuracy_loss", arrays, {"map": inner}) == ""
        values.append(value[0])
    assert values[0] == values[1] != values[2]


def test_an_error_is_its_threads_own(library):
    from concurrent.futures import ThreadPoolExecutor

    arrays = {key: ((c.c_double * 3)(1, 2, 3), 1, 3, FLOAT64) for key in "xy"}
    with ThreadPoolExecutor(4) as pool:
        names = [f"none_{i}" for i in range(100)]
        for name, said in zip(names, pool.map(lambda name: call(library, name, arrays), names), strict=True):
            assert name in said


def halves(values, brain):
    """The bits of numbers of 16 bits, and what they stand for."""
    if brain:
        bits = [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]
    else:
        bits = [struct.unpack("<H", struct.pack("<e", value))[0] for value in values]
    return bits, [of_bits(one, brain) for one in bits]


def of_bits(bits, brain):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0] if brain else struct.unpack("<e", struct.pack("<H", bits))[0]


@pytest.mark.parametrize(("code", "precision"), [(FLOAT16, 2**-11), (BFLOAT16, 2**-8)])
def test_numbers_of_16_bits(library, code, precision):
    """Maps and gradients of halves are halves, right to one rounding; losses and measures of them are float32."""
    brain = code == BFLOAT16
    bits, exact = halves([0.5, -1.25, 3.0, 0.1, 0.0, -2.0], brain)
    _, ones = halves([1.0, 2.0, 3.0, -1.0, 0.5, 0.25], brain)
    ones_bits, _ = halves(ones, brain)

    def narrow(numbers):
        return (c.c_uint16 * len(numbers))(*numbers), 2, 3, code

    def wide(numbers):
        return (c.c_double * len(numbers))(*numbers), 2, 3, FLOAT64

    for name, parameters in [
        ("softmax", {}),
        ("sparsemax", {}),
        ("entmax", {"alpha": 1.3}),
        ("entropy_normalize", {"entropy": 0.7}),
    ]:
        x, y, dx = narrow(bits), narrow([9] * 6), narrow([9] * 6)
        assert call(library, name, {"x": x, "y": y}, parameters) == ""
        found = [of_bits(one, brain) for one in y[0]]
        want = wide([0] * 6)
        assert call(library, name, {"x": wide(exact), "y": want}, parameters) == ""
        assert list(want[0]) == pytest.approx(found, rel=2 * precision, abs=1e-6)
        assert call(library, name, {"x": x, "y": y, "grad": narrow(ones_bits), "dx": dx}, parameters, vjp=True) == ""
        assert 9 not in list(dx[0])
    value, of_wide = (c.c_float * 2)(), (c.c_double * 2)()
    target = (*column(c.c_int64, [1, 2]), INT64)
    assert call(library, "softmax_loss", {"x": narrow(bits), "target": target, "value": (value, 2, 1, FLOAT32)}) == ""
    assert call(library, "softmax_loss", {"x": wide(exact), "target": target, "value": (of_wide, 2, 1, FLOAT64)}) == ""
    assert list(value) == pytest.approx(list(of_wide), rel=1e-6)
    drawn, same = column(c.c_int64, [-9, -9]), column(c.c_int64, [-8, -8])
    assert call(library, "sample", {"x": narrow(bits), "indices": (*drawn, INT64)}, {"seed": 3}) == ""
    floats = (c.c_float * 6)(*exact), 2, 3, FLOAT32
    assert call(library, "sample", {"x": floats, "indices": (*same, INT64)}, {"seed": 3}) == ""
    assert list(drawn[0]) == list(same[0])
    refused = call(
        library, "gamma_for_entropy", {name: narrow(bits) for name in ("x", "gamma", "reached", "status")}, {"entropy": 1.0}
    )
    assert refused.startswith("gamma_for_entropy: ")
