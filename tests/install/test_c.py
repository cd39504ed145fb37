"""isentropic/c.h from other languages: ISENTROPIC_BUILD is a build of the shared library."""

import ctypes as c
import json
import math
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = Path(os.environ["ISENTROPIC_BUILD"]).resolve() / "tests/libisentropic_shared.so"
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
    lib.isentropic_registry.restype = lib.isentropic_last_error.restype = c.c_char_p
    return lib


def call(library, name, arrays, parameters=None, vjp=False):
    """arrays: name -> (ctypes array, rows, cols, type)."""
    given = [
        Array(c.sizeof(Array), key.encode(), c.addressof(data), *rest[:2], 0, 0, rest[2])
        for key, (data, *rest) in arrays.items()
    ]
    function = library.isentropic_apply_vjp if vjp else library.isentropic_apply
    text = None if parameters is None else (parameters if isinstance(parameters, str) else json.dumps(parameters)).encode()
    code = function(name.encode(), text, (Array * len(given))(*given), c.c_size_t(len(given)))
    return "" if code == 0 else library.isentropic_last_error().decode()


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
        ROOT / "include/isentropic/c.h",
        "-x",
        "c++",
        "/dev/null",
    )


def test_example_in_c(tmp_path):
    assert run(compiled(EXAMPLES / "first_steps.c", tmp_path / "first")) == SAID


@pytest.mark.parametrize(("language", "ending"), [("luajit", "lua"), ("perl", "pl"), ("ruby", "rb")])
def test_example_in(language, ending):
    assert shutil.which(language), f"scripts/setup test installs {language}"
    assert run(language, EXAMPLES / f"first_steps.{ending}", env={**os.environ, "ISENTROPIC_LIBRARY": str(LIBRARY)}) == SAID


def test_example_in_rust(tmp_path):
    assert shutil.which("rustc"), "scripts/setup test installs rustc"
    link = ["-L", LIBRARY.parent, "-l", "dylib=isentropic_shared", "-C", f"link-arg=-Wl,-rpath,{LIBRARY.parent}"]
    run("rustc", "--edition=2021", "-D", "warnings", *link, EXAMPLES / "first_steps.rs", "-o", tmp_path / "first")
    assert run(tmp_path / "first") == SAID


def test_example_in_r(tmp_path):
    assert shutil.which("Rscript"), "scripts/setup test installs r-base-core"
    shutil.copy(EXAMPLES / "first_steps_r.c", tmp_path)
    flags = {
        "PKG_CFLAGS": f"-I{ROOT / 'include'}",
        "PKG_LIBS": f"-L{LIBRARY.parent} -lisentropic_shared -Wl,-rpath,{LIBRARY.parent}",
    }
    run("R", "CMD", "SHLIB", "first_steps_r.c", cwd=tmp_path, env={**os.environ, **flags})
    env = {**os.environ, "ISENTROPIC_R": str(tmp_path / "first_steps_r.so")}
    assert run("Rscript", EXAMPLES / "first_steps.R", env=env) == SAID


def column(kind, values):
    return (kind * len(values))(*values), len(values), 1


# Arrays that are not rows x 3 of distributions: their shapes, with 2 points, problems or queries and 3 columns.
SHAPES = {
    "attention": {
        **dict.fromkeys(("entropy", "entropy_grad", "sinks", "dsinks"), (2, 1)),
        **{"weights": (2, 2), "mask": (2, 2)},
    },
    "wasserstein": {"value": (1, 1), "a": (1, 2), "b": (2, 1), "plan": (2, 2)},
    **{key: {"value": (1, 1), "a": (1, 2), "b": (2, 1)} for key in ("sinkhorn_divergence", "unbalanced_sinkhorn_divergence")},
    "wasserstein_histogram": {"support": (1, 3)},
    "optimal_transport": {"cost": (6, 3), "plan": (6, 3)},
    "partial_transport": {"cost": (6, 3), "plan": (6, 3)},
    "unbalanced_sinkhorn": {"cost": (6, 3), "plan": (6, 3)},
    "sinkhorn_barycenter": {
        **dict.fromkeys(("marginal_error", "iterations", "converged"), (1, 1)),
        **{"cost": (3, 3), "q": (1, 3), "weights": (1, 2)},
    },
    "sliced_wasserstein": {"value": (1, 1), "error": (1, 1), "a": (1, 2), "b": (2, 1)},
    "sinkhorn": {"cost": (6, 3), "plan": (6, 3)},
    "sparse_distillation_loss": {"log_probs": (2, 1)},
    "entropy_of_counts": {"deviation": (2, 1)},
    "mutual_information_of_counts": {"value": (1, 1)},
}
WHOLE = {"status", "indices", "iterations", "converged"}
NUMBERS = {"value", "gamma", "reached", "gap", "error", "multiplier", "marginal_error", "lower_bound", "upper_bound"}


def test_every_operation_of_the_registry_runs(library):
    """With values for required parameters, every operation fills its outputs, for both types."""
    needed = {
        "alpha": 1.5,
        "k": 2,
        "p": 0.9,
        "entropy": 0.5,
        "gamma": 1.5,
        "order": 2,
        "epsilon": 0.5,
        "mass": 0.5,
        "penalty": 0.5,
    }
    needed["steps"] = [{"name": "temperature", "temperature": 0.8}, {"name": "top_k", "k": 2}]
    operations = json.loads(library.isentropic_registry())
    assert len({one["name"] for one in operations}) == len(operations) > 50
    for kind, code in [(c.c_float, FLOAT32), (c.c_double, FLOAT64)]:
        for one in operations:
            parameters = {p["name"]: needed[p["name"]] for p in one["parameters"] if p["required"]}
            if one["name"] in {"gamma_for_entropy", "entropy_normalize"}:
                parameters["entropy"] = 0.5
            if one["name"] == "entropy_clip":
                parameters["max_entropy"] = 0.8
            arrays = {}

            def fill(names, one=one, kind=kind, code=code, arrays=arrays):
                for array in names:
                    name = array["name"]
                    if array["optional"] and one["name"] == "self_information":
                        continue
                    of_rows = name in NUMBERS and one["family"] != "entry"
                    rows, cols = SHAPES.get(one["name"], {}).get(name, (2, 1 if of_rows or name in WHOLE else 3))
                    if one["family"] == "table" and name == "value":
                        rows = 1
                    if one["name"] == "logsumexp" and name in {"y", "grad"}:
                        cols = 1
                    if name in WHOLE:
                        arrays[name] = (*column(c.c_int64, [-9 if array["output"] else 1] * rows), INT64)
                        continue
                    if name in {"tokens", "bounds"}:  # none of the steps here reads a text, or has a bound of draws
                        continue
                    if name == "target" and one["name"] not in {"multilabel_softmax_loss", "distillation_loss", "jsd_loss"}:
                        arrays[name] = (*column(c.c_int64, [1, 2]), INT64)
                        continue
                    if array["output"]:
                        numbers = [-9] * (rows * cols)
                    elif name == "target":
                        numbers = [1, 0, 1, 0, 1, 0]
                    elif one["name"].endswith("_of_counts"):
                        numbers = [3, 1, 2, 2, 5, 1][: rows * cols]
                    elif cols == 3 and name != "support":
                        numbers = ([0.5, 0.25, 0.25, 0.125, 0.75, 0.125] * rows)[: 3 * rows]
                    else:
                        numbers = [1.0 / (i + 2) for i in range(rows * cols)]
                        numbers = [number / sum(numbers) for number in numbers]
                        numbers = [-number for number in numbers] if name.startswith("log_") else numbers
                    if one["family"] == "table":
                        numbers = [number / 2 if number > 0 else number for number in numbers]
                    wide = of_rows or (name == "entropy" and array["output"])
                    taken = (c.c_double, FLOAT64) if wide else (kind, code)
                    arrays[name] = ((taken[0] * len(numbers))(*numbers), rows, cols, taken[1])

            fill(one["arrays"])
            assert call(library, one["name"], arrays, parameters) == "", one["name"]
            for array in one["arrays"]:
                if array["output"] and array["name"] in arrays:
                    assert -9 not in list(arrays[array["name"]][0]), (one["name"], array["name"])
            if one["vjp"] is not None:
                given = {array["name"] for array in one["vjp"]}
                fill(array for array in one["vjp"] if array["name"] not in arrays)
                asked = {name: array for name, array in arrays.items() if name in given}
                assert call(library, one["name"], asked, parameters, vjp=True) == "", one["name"]
                for array in one["vjp"]:
                    assert not array["output"] or -9 not in list(arrays[array["name"]][0]), one["name"]


def numbers(rows, cols, seed=1):
    """Some numbers without a pattern, as float64."""
    import random

    draw = random.Random(seed)
    return (c.c_double * (rows * cols))(*(draw.gauss(0, 1) for _ in range(rows * cols))), rows, cols, FLOAT64


def zeros(rows, cols):
    return (c.c_double * (rows * cols))(), rows, cols, FLOAT64


@pytest.mark.parametrize("map", ["softmax", {"name": "entmax", "alpha": 1.3}])
@pytest.mark.parametrize("further", [False, True])
def test_attention_is_its_definition(library, map, further):
    """2 x 4 heads of queries, 2 of keys, made of the map itself; and its gradient by differences. Further: a cap, and for each
    query a sink and a factor of log n."""
    batch, heads, kv_heads, m, n, d = 2, 4, 2, 3, 5, 2
    q, k, v = numbers(batch * heads * m, d), numbers(batch * kv_heads * n, d, 2), numbers(batch * kv_heads * n, 3, 3)
    mask = numbers(m, n, 4)
    mask[0][1] = float("-inf")
    arrays = {"q": q, "k": k, "v": v, "mask": mask, "out": zeros(batch * heads * m, 3)}
    arrays |= {"weights": zeros(batch * heads * m, n), "entropy": zeros(batch * heads * m, 1)}
    parameters = {"map": map, "batch": batch, "heads": heads, "kv_heads": kv_heads}
    if further:
        parameters |= {"scale": "log_n", "softcap": 1.5}
        arrays |= {"sinks": numbers(batch * heads * m, 1, 7), "kappa": numbers(batch * heads * m, 1, 8)}
        for i, kappa in enumerate(arrays["kappa"][0]):
            arrays["kappa"][0][i] = 0.2 + abs(kappa)
    assert call(library, "attention", arrays, parameters) == ""
    width = n + further
    scores, p, entropy = zeros(batch * heads * m, width), zeros(batch * heads * m, width), zeros(batch * heads * m, 1)
    for row in range(batch * heads * m):
        head = row // m // heads * kv_heads + row // m % heads * kv_heads // heads
        for j in range(n):
            dot = sum(q[0][row * d + i] * k[0][(head * n + j) * d + i] for i in range(d))
            scaled = dot / d**0.5
            if further:
                scaled *= arrays["kappa"][0][row] * math.log(sum(mask[0][row % m * n + i] > -math.inf for i in range(n)))
                scaled = 1.5 * math.tanh(scaled / 1.5)
            scores[0][row * width + j] = scaled + mask[0][row % m * n + j]
        if further:
            scores[0][row * width + n] = arrays["sinks"][0][row]
    name, inner = ("softmax", {}) if map == "softmax" else ("entmax", {"alpha": 1.3})
    assert call(library, name, {"x": scores, "y": p}, inner) == ""
    assert call(library, "entropy", {"p": p, "value": entropy}) == ""
    of_keys = [p[0][row * width + j] for row in range(batch * heads * m) for j in range(n)]
    assert list(arrays["weights"][0]) == pytest.approx(of_keys, abs=1e-14)
    assert list(arrays["entropy"][0]) == pytest.approx(list(entropy[0]), abs=1e-13)
    for row in range(batch * heads * m):
        head = row // m // heads * kv_heads + row // m % heads * kv_heads // heads
        for i in range(3):
            value = sum(p[0][row * width + j] * v[0][(head * n + j) * 3 + i] for j in range(n))
            assert arrays["out"][0][row * 3 + i] == pytest.approx(value, abs=1e-13)
    g, of_entropy = numbers(batch * heads * m, 3, 5), numbers(batch * heads * m, 1, 6)
    back = {name: arrays[name] for name in ("q", "k", "v", "mask")}
    back |= {"grad": g, "entropy_grad": of_entropy, "dq": zeros(*q[1:3]), "dk": zeros(*k[1:3]), "dv": zeros(*v[1:3])}
    if further:
        back |= {name: arrays[name] for name in ("sinks", "kappa")}
        back |= {"dsinks": zeros(batch * heads * m, 1), "d_kappa": zeros(batch * heads * m, 1)}
    assert call(library, "attention", back, parameters, vjp=True) == ""
    for name in ("q", "k", "v", *(("sinks", "kappa") if further else ())):
        sums = []
        for h in (1e-6, -1e-6):
            kept = back[name][0][3]
            back[name][0][3] = kept + h
            assert call(library, "attention", {**arrays, name: back[name]}, parameters) == ""
            back[name][0][3] = kept
            pairs = ((arrays["out"], g), (arrays["entropy"], of_entropy))
            sums.append(sum(a * b for found, by in pairs for a, b in zip(found[0], by[0], strict=True)))
        slope = back["d_kappa" if name == "kappa" else "d" + name][0][3]
        assert slope == pytest.approx((sums[0] - sums[1]) / 2e-6, abs=1e-8)


def test_linear_attention_is_attention(library):
    arrays = {"q": numbers(6, 2), "k": numbers(8, 2, 2), "v": numbers(8, 3, 3)}
    some, same = zeros(6, 3), zeros(6, 3)
    both = {"heads": 2, "causal": True}
    assert call(library, "linear_attention", {**arrays, "out": some}, both) == ""
    assert call(library, "attention", {**arrays, "out": same}, {**both, "map": {"name": "taylor_softmax", "order": 2}}) == ""
    assert list(some[0]) == pytest.approx(list(same[0]), abs=1e-13)


def test_chains(library):
    x, y, same = numbers(40, 9), zeros(40, 9), zeros(40, 9)
    steps = [{"name": "top_k", "k": 3}]
    assert call(library, "sampler_probs", {"x": x, "y": y}, {"steps": steps}) == ""
    assert call(library, "top_k_softmax", {"x": x, "y": same}, {"k": 3}) == ""
    assert list(y[0]) == pytest.approx(list(same[0]), abs=1e-15)
    drawn, others = ((c.c_int32 * 80)(), 40, 2, INT32), ((c.c_int64 * 80)(), 40, 2, INT64)
    steps = [{"name": "temperature", "temperature": 0.7}]
    noise = {"seed": 2**64 - 1, "stream": 3, "position": 5}
    assert call(library, "sampler_sample", {"x": x, "indices": drawn}, {"steps": steps, **noise}) == ""
    assert call(library, "sample", {"x": x, "indices": others}, {"temperature": 0.7, **noise}) == ""
    assert list(drawn[0]) == list(others[0])
    clipped = [{"name": "entropy_clip", "min_entropy": 1.0, "max_entropy": 1.2}, {"name": "min_p", "p": 0.01}]
    assert call(library, "sampler_probs", {"x": x, "y": y}, {"steps": clipped}) == ""
    assert call(library, "sampler_probs", {"x": x, "y": y}, {"steps": []}) == ""
    (about,) = next(one for one in json.loads(library.isentropic_registry()) if one["name"] == "sampler_probs")["parameters"]
    assert about["choices"] == [one["name"] for one in about["steps"]] and "typical_p" in about["choices"]
    for parameters, said in (
        ({}, "sampler_probs: steps is required"),
        ({"steps": [{"k": 3}]}, 'sampler_probs: a step must have the member "name"'),
        ({"steps": [{"name": "top_k", "k": 0}]}, "top_k: k must be"),
        ({"steps": [{"name": "top_z"}]}, "step must be one of temperature, top_k,"),
        ({"steps": 3}, "sampler_probs: parameters must be a JSON object"),
        ({"steps": [{"name": "dry", "base": None}]}, "dry: base must be "),
        ({"steps": [], "seed": 1}, "sampler_probs: there is no parameter 'seed'"),
    ):
        assert call(library, "sampler_probs", {"x": x, "y": y}, parameters).startswith(said), parameters


def test_transport(library):
    a, b = ((c.c_double * 4)(0.5, 0.5, 1.0, 0.0), 2, 2, FLOAT64), ((c.c_double * 4)(0.25, 0.75, 0.5, 0.5), 2, 2, FLOAT64)
    cost = (c.c_double * 4)(0, 1, 2, 0), 2, 2, FLOAT64  # of both problems
    out = {"value": zeros(2, 1), "plan": zeros(4, 2), "f": zeros(2, 2), "g": zeros(2, 2), "gap": zeros(2, 1)}
    given = {"a": a, "b": b, "cost": cost}
    assert call(library, "optimal_transport", {**given, **out}) == ""
    assert list(out["value"][0]) == [0.25, 0.5]
    assert list(out["plan"][0]) == [0.25, 0.25, 0, 0.5, 0.5, 0.5, 0, 0]
    assert list(out["gap"][0]) == pytest.approx([0, 0], abs=1e-15)
    isentropic = {"value": zeros(2, 1), "plan": zeros(4, 2), "converged": (*column(c.c_int32, [9, 9]), INT32)}
    isentropic |= {"lower_bound": zeros(2, 1), "upper_bound": zeros(2, 1)}
    assert call(library, "sinkhorn", {**given, **isentropic}, {"epsilon": 0.05, "tolerance": 1e-12}) == ""
    assert list(isentropic["converged"][0]) == [1, 1]
    rows = [sum(isentropic["plan"][0][2 * i : 2 * i + 2]) for i in range(4)]
    assert rows == pytest.approx(list(a[0]), abs=1e-12)
    for low, exact, high in zip(isentropic["lower_bound"][0], [0.25, 0.5], isentropic["upper_bound"][0], strict=True):
        assert low <= exact + 1e-12 and exact <= high + 1e-12
    u, v, value = ((c.c_double * 2)(0, 2), 1, 2, FLOAT64), ((c.c_double * 3)(1, 3, 5), 1, 3, FLOAT64), zeros(1, 1)
    assert call(library, "wasserstein_1d", {"u": u, "v": v, "value": value}) == ""
    assert value[0][0] == pytest.approx(2)
    points = {"x": ((c.c_double * 4)(0, 0, 3, 4), 2, 2, FLOAT64), "y": ((c.c_double * 2)(0, 0), 1, 2, FLOAT64), "value": value}
    assert call(library, "wasserstein", points) == "" and value[0][0] == pytest.approx(2.5)
    heavy = {"a": ((c.c_double * 2)(1, 3), 2, 1, FLOAT64)}
    assert call(library, "wasserstein", {**points, **heavy}) == "" and value[0][0] == pytest.approx(3.75)
    p, q = ((c.c_double * 2)(1, 0), 1, 2, FLOAT64), ((c.c_double * 2)(0.5, 0.5), 1, 2, FLOAT64)
    support = {"support": ((c.c_float * 2)(0, 10), 2, 1, FLOAT32)}
    assert call(library, "wasserstein_histogram", {"p": p, "q": q, "value": value}) == "" and value[0][0] == 0.5
    assert call(library, "wasserstein_histogram", {"p": p, "q": q, "value": value, **support}) == "" and value[0][0] == 5
    assert "must have shape" in call(library, "attention", {"q": u, "k": u, "v": u, "out": p, "mask": v})
    assert call(library, "attention", {"q": u, "k": u, "v": u, "out": u}, {"heads": 2}).startswith(
        "attention: q must have a multi"
    )
    assert (
        call(library, "attention", {"q": u, "k": u, "v": u, "out": u}, {"heads": 0})
        == "attention: heads must be above 0, got 0"
    )
    short = (c.c_uint16 * 2)(), 1, 2, FLOAT16
    assert (
        call(library, "wasserstein_1d", {"u": short, "v": short, "value": value})
        == "wasserstein_1d: u must be float32 or float64, got float16"
    )


def test_one_row_for_all(library):
    p, q = ((c.c_double * 4)(0.5, 0.5, 0.25, 0.75), 2, 2, FLOAT64), ((c.c_double * 2)(0.5, 0.5), 1, 2, FLOAT64)
    for name in ("kl_divergence", "js_divergence", "js_distance", "cross_entropy"):
        found, wanted = ({key: zeros(2, cols) for key, cols in (("value", 1), ("dp", 2), ("dq", 2))} for _ in range(2))
        assert call(library, name, {"p": p, "q": q, **found}) == ""
        both = (c.c_double * 4)(0.5, 0.5, 0.5, 0.5), 2, 2, FLOAT64
        assert call(library, name, {"p": p, "q": both, **wanted}) == ""
        assert all(list(found[key][0]) == list(wanted[key][0]) for key in found)
    wide = (c.c_double * 3)(0.5, 0.5, 0), 1, 3, FLOAT64
    assert call(library, "kl_divergence", {"p": p, "q": wide, "value": zeros(2, 1)}).startswith("kl_divergence: q must have")


BAD = [
    ("nosuch", {}, "operation must be a name in isentropic_registry(), got 'nosuch'"),
    ("softmax", {"temperature": -1}, "softmax: temperature must be above 0 and finite, got -1"),
    ("softmax", {"temperature": None}, "softmax: temperature must be above 0 and finite, got null"),
    ("perturb_max", {"noise": None}, "perturb_max: noise must be "),
    ("softmax", {"temp": 1}, "softmax: there is no parameter 'temp'; it has temperature"),
    ("softmax", "[1]", "softmax: parameters must be a JSON object, got '[1]': expected { at character 1"),
    (
        "softmax",
        '{"temperature": 1',
        "softmax: parameters must be a JSON object, got '{\"temperature\": 1': expected } at character 18",
    ),
    ("softmax", '{"temperature": 1, "temperature": 2}', "softmax: parameters has 'temperature' twice"),
    ("softmax", {"temperature": "hot"}, "softmax: temperature must be a number, got 'hot'"),
    ("top_k_softmax", {}, "top_k_softmax: k is required"),
    ("perturb_max", {"noise": "cauchy"}, "perturb_max: noise must be one of "),
    ("smooth_accuracy_loss", '{"map":' * 20000, "smooth_accuracy_loss: parameters must not be nested more than 64 deep"),
    *(
        (
            "softmax",
            f'{{"temperature": {number}}}',
            f"softmax: parameters must be a JSON object, got '{{\"temperature\": {number}}}'",
        )
        for number in ("01", "-00.5", "+1", "-", "1e999")
    ),
    ("top_k_softmax", {"k": 2**64 - 1}, "top_k_softmax: k must be an integer, got 1.8446744073709552e+19"),
    ("gumbel_softmax", {"seed": 2**64}, "gumbel_softmax: seed must be an integer, got 1.8446744073709552e+19"),
]


@pytest.mark.parametrize(("name", "parameters", "said"), BAD)
def test_what_is_refused(library, name, parameters, said):
    arrays = {key: ((c.c_double * 3)(1, 2, 3), 1, 3, FLOAT64) for key in "xy"}
    assert call(library, name, arrays, parameters).startswith(said)


def test_large_integers(library):
    """Numbers keep their sign; seeds, streams and positions count modulo 2^64."""
    x = ((c.c_double * 3)(1, 2, 3), 1, 3, FLOAT64)

    def y_of(name, parameters, **more):
        y = (c.c_double * 3)()
        assert call(library, name, {"x": x, "y": (y, 1, 3, FLOAT64), **more}, parameters) == ""
        return list(y)

    for large in (2**63, 2**64 - 1):
        assert y_of("softmax", {"temperature": large}) == y_of("softmax", {"temperature": float(large)})
        tokens = (*column(c.c_int64, [0]), INT64)
        found = [{"steps": [{"name": "penalties", "presence": one}]} for one in (large, float(large))]
        assert y_of("sampler_probs", found[0], tokens=tokens) == y_of("sampler_probs", found[1], tokens=tokens)
        for which in ("seed", "stream", "position"):
            assert y_of("gumbel_softmax", {which: large}) == y_of("gumbel_softmax", {which: large - 2**64})


def test_arrays_that_are_refused(library):
    x, y = ((c.c_double * 3)(1, 2, 3), 1, 3, FLOAT64), ((c.c_float * 3)(), 1, 3, FLOAT32)
    assert call(library, "softmax", {"x": x}) == "softmax: the array 'y' is missing"
    assert call(library, "softmax", {"x": x, "y": y}) == "softmax: y must be of the type of x, float64, got float32"
    assert call(library, "softmax", {"x": x, "y": (*x[:3], 9)}).startswith("softmax: type of y must be")
    assert call(library, "softmax", {"x": x, "y": x, "z": x}) == "softmax: there is no array 'z'; it has x, y"
    alpha = ((c.c_double * 3)(2, 2, 2), 3, 1, FLOAT64)
    assert (
        call(library, "entmax", {"x": x, "y": x, "alpha": alpha})
        == "entmax: alpha must have shape (1, 1), one for each row, got (3, 1)"
    )


def arrays_in(memory, places):
    """places: name -> (first number, rows, cols) or with a row_stride; numbers of 64 bits, integers if the name is in WHOLE."""
    return [
        Array(
            c.sizeof(Array),
            name.encode(),
            c.addressof(memory) + 8 * first,
            rows,
            cols,
            *more,
            *([0] * (1 - len(more))),
            0,
            INT64 if name in {"stream", "target", *WHOLE} else FLOAT64,
            0,
        )
        for name, (first, rows, cols, *more) in places.items()
    ]


ROWS = {"x": (0, 2, 3), "y": (6, 2, 3)}
VJP = {**ROWS, "grad": (12, 2, 3), "dx": (18, 2, 3), "alpha": (24, 2, 1), "d_alpha": (26, 2, 1)}
DRAWS, HEADS = {"x": (0, 4, 3), "indices": (12, 4, 2)}, {"q": (0, 4, 2), "k": (8, 4, 2), "v": (16, 4, 2), "out": (24, 4, 2)}
PLANS = {"a": (0, 1, 2), "b": (2, 1, 2), "cost": (4, 2, 2), "value": (8, 1, 1), "plan": (9, 2, 2), "f": (13, 1, 2)}
APART, SEPARATE = "must share no memory with", "must have a separate place for each of its numbers"
PART = "itself or share no memory with it, got arrays that overlap in part"


@pytest.mark.parametrize(
    ("name", "places", "changed", "said"),
    [
        ("entmax", {**ROWS, "alpha": (12, 2, 1)}, {"alpha": (7, 2, 1)}, f"entmax: y must be alpha {PART}"),
        ("entmax", VJP, {"d_alpha": (20, 2, 1)}, f"entmax_vjp: dx {APART} d_alpha"),
        ("entmax", VJP, {"d_alpha": (0, 2, 1)}, f"entmax_vjp: d_alpha must be x {PART}"),
        ("entmax", VJP, {"d_alpha": (24, 2, 1)}, ""),
        ("sample", DRAWS, {"indices": (3, 4, 2)}, f"sample: indices must be x {PART}"),
        ("sample", DRAWS, {"indices": (12, 4, 2, 1)}, f"sample: indices {SEPARATE}"),
        ("sample", {**DRAWS, "stream": (20, 4, 1)}, {"stream": (13, 4, 1)}, f"sample: indices must be stream {PART}"),
        ("attention", HEADS, {"out": (24, 4, 2, 1)}, f"attention: out {SEPARATE}"),
        ("attention", {**HEADS, "entropy": (32, 4, 1)}, {"entropy": (24, 4, 1)}, f"attention: out {APART} entropy"),
        ("attention", {**HEADS, "entropy": (32, 4, 1)}, {"entropy": (0, 4, 1)}, f"attention: entropy {APART} q"),
        (
            "gamma_for_entropy",
            {"x": (0, 2, 3), "gamma": (6, 2, 1), "reached": (8, 2, 1), "status": (10, 2, 1)},
            {"reached": (6, 2, 1)},
            f"gamma_for_entropy: gamma {APART} reached",
        ),
        ("optimal_transport", PLANS, {"value": (13, 1, 1)}, f"optimal_transport: value {APART} f"),
        ("optimal_transport", PLANS, {"value": (0, 1, 1)}, f"optimal_transport: value must be a {PART}"),
    ],
)
def test_outputs_that_overlap(library, name, places, changed, said):
    """They are refused before anything is written; apart, and in place, the call is good."""
    vjp = "dx" in places
    parameters = b'{"entropy": 0.5}' if name == "gamma_for_entropy" else b'{"map": "entmax"}' if name == "attention" else None
    function = library.isentropic_apply_vjp if vjp else library.isentropic_apply

    def outcome(places):
        memory = (c.c_double * 40)(*([1.5] * 40))
        if name == "optimal_transport":
            memory[:4] = [0.5] * 4
        before = bytes(memory)
        given = arrays_in(memory, places)
        code = function(name.encode(), parameters, (Array * len(given))(*given), c.c_size_t(len(given)))
        assert code == 0 or bytes(memory) == before
        return "" if code == 0 else library.isentropic_last_error().decode()

    assert outcome(places) == ""
    assert said in outcome({**places, **changed})


def test_gradients_in_parameters_that_nothing_calculates(library):
    """isentropic_apply refuses them where it wrote nothing before."""
    x, out = ((c.c_double * 2)(0.5, 0.5), 1, 2, FLOAT64), ((c.c_double * 2)(), 1, 2, FLOAT64)

    def one(code=FLOAT64):
        return (c.c_double * 1)(), 1, 1, code

    gamma = {"x": x, "gamma": one(), "reached": one(), "status": one(INT32), "d_entropy": one()}
    assert call(library, "gamma_for_entropy", gamma, {"entropy": 0.5}).startswith(
        "gamma_for_entropy: there is no array 'd_entropy'; it has x, gamma, reached, status"
    )
    power = {"p": x, "q": out, "d_gamma": one()}
    assert "there is no array 'd_gamma'" in call(library, "power_transform", power, {"gamma": 0.5})
    queries = {**dict.fromkeys("qkv", x), "out": out, "d_alpha": one()}
    for name, arrays, parameters, gradient in (
        ("entropy_clip", {"x": x, "y": out, "d_min_entropy": one()}, {"min_entropy": 0.5}, "d_min_entropy"),
        ("attention", queries, {"map": {"name": "entmax"}}, "d_alpha"),
        ("softmax", {"x": x, "y": out, "d_temperature": one()}, {}, "d_temperature"),
    ):
        said = f"{name}: {gradient} is an array of isentropic_apply_vjp, which calculates it"
        assert call(library, name, arrays, parameters) == said
    slope = one()
    entropy = {"p": x, "value": one(), "alpha": ((c.c_double * 1)(0.5), 1, 1, FLOAT64), "d_alpha": slope}
    assert call(library, "renyi_entropy", entropy) == ""


def test_a_maps_parameter_is_given_once(library):
    x = ((c.c_double * 2)(1, 2), 1, 2, FLOAT64)
    alpha = ((c.c_double * 1)(3), 1, 1, FLOAT64)
    arrays = {**dict.fromkeys("qkv", x), "out": ((c.c_double * 2)(), 1, 2, FLOAT64), "alpha": alpha}
    assert call(library, "attention", arrays, {"map": {"name": "entmax"}}) == ""
    said = "attention: alpha must be a parameter or an array, got both"
    assert call(library, "attention", arrays, {"map": {"name": "entmax", "alpha": 1.1}}) == said


def test_a_map_in_a_parameter(library):
    """The map by its name, or with its own parameters."""
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
    """The bits of 16-bit numbers, and their values."""
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


def test_each_row_has_its_own_number(library):
    """Classes and values of parameters, of 32 and of 64 bits."""
    scores = [0.0, 1.0, 3.0]
    x = ((c.c_double * 9)(*scores * 3), 3, 3, FLOAT64)
    losses = [3.169846, 2.169846, 0.169846]
    for kind, code in ((c.c_int32, INT32), (c.c_int64, INT64)):
        value = (c.c_double * 3)()
        arrays = {"x": x, "target": (*column(kind, [0, 1, 2]), code), "value": (value, 3, 1, FLOAT64)}
        assert call(library, "softmax_loss", arrays) == ""
        assert list(value) == pytest.approx(losses, abs=1e-6)
    temperatures = [0.5, 1.0, 2.0]
    for kind, code in ((c.c_float, FLOAT32), (c.c_double, FLOAT64)):
        y = (c.c_double * 9)()
        arrays = {"x": x, "y": (y, 3, 3, FLOAT64), "temperature": (*column(kind, temperatures), code)}
        assert call(library, "softmax", arrays) == ""
        for r, temperature in enumerate(temperatures):
            one = (c.c_double * 3)()
            alone = {"x": ((c.c_double * 3)(*scores), 1, 3, FLOAT64), "y": (one, 1, 3, FLOAT64)}
            assert call(library, "softmax", alone, {"temperature": temperature}) == ""
            assert list(y[3 * r : 3 * r + 3]) == list(one)


def test_a_parameter_is_given_once(library):
    arrays = {name: ((c.c_double * 3)(0, 1, 3), 1, 3, FLOAT64) for name in ("x", "y")}
    arrays["temperature"] = (*column(c.c_double, [2.0]), FLOAT64)
    said = call(library, "softmax", arrays, {"temperature": 1.0})
    assert said == "softmax: temperature must be a parameter or an array, got both"


def test_rows_without_a_stride_follow_each_other(library):
    """A row of 3 numbers that lie 2 apart takes 6 places."""
    x, y = (c.c_double * 12)(0, 9, 1, 9, 2, 9, 2, 9, 1, 9, 0, 9), (c.c_double * 6)()
    arrays = (Array * 2)(
        Array(c.sizeof(Array), b"x", c.addressof(x), 2, 3, 0, 2, FLOAT64),
        Array(c.sizeof(Array), b"y", c.addressof(y), 2, 3, 0, 0, FLOAT64),
    )
    assert library.isentropic_apply(b"softmax", None, arrays, c.c_size_t(2)) == 0
    assert y[0] < y[1] < y[2] and list(y[3:]) == [y[2], y[1], y[0]]


def test_an_array_is_given_once(library):
    numbers = (c.c_double * 3)(0, 1, 3)
    of = [Array(c.sizeof(Array), name, c.addressof(numbers), 1, 3, 0, 0, FLOAT64) for name in (b"x", b"y", b"x")]
    assert library.isentropic_apply(b"softmax", None, (Array * 3)(*of), c.c_size_t(3)) != 0
    assert library.isentropic_last_error() == b"softmax: the array 'x' is given twice"


def test_draws_of_rows_that_are_copied_in_blocks(library):
    """Scores that lie column by column are copied, some thousand rows at a time: their streams go on."""
    rows, cols = 20000, 3
    numbers = [(37 * r + 11 * k) % 23 / 5 for r in range(rows) for k in range(cols)]
    drawn = []
    for data, strides in ((numbers, (cols, 1)), ([numbers[cols * r + k] for k in range(cols) for r in range(rows)], (1, rows))):
        scores, indices = (c.c_double * len(data))(*data), (c.c_int64 * rows)()
        arrays = (Array * 2)(
            Array(c.sizeof(Array), b"x", c.addressof(scores), rows, cols, *strides, FLOAT64),
            Array(c.sizeof(Array), b"indices", c.addressof(indices), rows, 1, 0, 0, INT64),
        )
        assert library.isentropic_apply(b"sample", b'{"seed": 5}', arrays, c.c_size_t(2)) == 0, library.isentropic_last_error()
        drawn.append(list(indices))
    assert drawn[0] == drawn[1]


def prepared(library, name, parameters=None, vjp=False):
    library.isentropic_prepare.restype = c.c_void_p
    library.isentropic_prepare.argtypes = (c.c_char_p, c.c_char_p, c.c_int)
    library.isentropic_run.argtypes = (c.c_void_p, c.POINTER(Array), c.c_size_t)
    library.isentropic_release.argtypes = (c.c_void_p,)
    library.isentropic_release.restype = None
    return library.isentropic_prepare(name.encode(), None if parameters is None else json.dumps(parameters).encode(), vjp)


SIZES = [
    (1, 2**63 - 1, 0, 0),
    (2**62, 2**62, 0, 0),
    (2**40, 2**40, 1, 1),
    (3, 4, 2**61, 1),
    (3, 4, 4, -(2**62)),
    (1, 1, -(2**63), 0),
]


@pytest.mark.parametrize("size", SIZES)
def test_no_array_is_larger_than_memory(library, size):
    x = (c.c_double * 4)()
    rows, cols, *strides = size
    given = [
        Array(c.sizeof(Array), name, c.addressof(x), rows, cols, *strides, FLOAT64, 0)
        for name, strides in ((b"x", strides), (b"out", (0, 0)))
    ]
    assert library.isentropic_apply(b"softmax", None, (Array * 2)(*given), c.c_size_t(2)) != 0
    said = f"softmax: x must fit in memory, got {rows} x {cols} with the strides {strides[0]} and {strides[1]}"
    assert library.isentropic_last_error().decode() == said


def run_prepared(library, handle, arrays):
    given = [
        Array(c.sizeof(Array), key.encode(), c.addressof(data), *rest[:2], 0, 0, rest[2])
        for key, (data, *rest) in arrays.items()
    ]
    code = library.isentropic_run(handle, (Array * len(given))(*given), len(given))
    return "" if code == 0 else library.isentropic_last_error().decode()


@pytest.mark.parametrize(
    ("name", "parameters", "out"),
    [
        ("entmax", {"alpha": 1.3}, "y"),
        ("sampler_probs", {"steps": [{"name": "top_k", "k": 2}]}, "y"),
        ("gumbel_softmax", {"seed": 3, "stream": 5}, "y"),
    ],
)
def test_a_prepared_call_is_the_call(library, name, parameters, out):
    """Its results are those of isentropic_apply, for any arrays, as often as it is run."""
    handle = prepared(library, name, parameters)
    assert handle
    for rows in (1, 3):
        x = (c.c_double * (4 * rows))(*(math.sin(i * rows) for i in range(4 * rows)))
        once, twice = (c.c_double * (4 * rows))(), (c.c_double * (4 * rows))()
        assert call(library, name, {"x": (x, rows, 4, FLOAT64), out: (once, rows, 4, FLOAT64)}, parameters) == ""
        assert run_prepared(library, handle, {"x": (x, rows, 4, FLOAT64), out: (twice, rows, 4, FLOAT64)}) == ""
        assert list(once) == list(twice)
        assert sum(once) == pytest.approx(rows)
    library.isentropic_release(handle)


def test_a_prepared_gradient(library):
    x, y, g, dx = ((c.c_double * 3)(*numbers) for numbers in ((1, 2, 3), (0, 0, 0), (1, 0, 0), (0, 0, 0)))
    assert call(library, "softmax", {"x": (x, 1, 3, FLOAT64), "y": (y, 1, 3, FLOAT64)}) == ""
    handle = prepared(library, "softmax", {"temperature": 2.0}, vjp=True)
    arrays = {key: (data, 1, 3, FLOAT64) for key, data in (("x", x), ("y", y), ("grad", g), ("dx", dx))}
    assert run_prepared(library, handle, arrays) == ""
    assert dx[0] == pytest.approx(y[0] * (1 - y[0]) / 2)
    library.isentropic_release(handle)


def test_what_cannot_be_prepared(library):
    for name, parameters, vjp, said in (
        ("softmax", {"heat": 1}, False, "softmax: there is no parameter 'heat'; it has temperature"),
        ("sample", {}, True, "operation must be a name in isentropic_registry() with a vjp, got 'sample'"),
    ):
        assert prepared(library, name, parameters, vjp) is None
        assert library.isentropic_last_error().decode() == said
    assert run_prepared(library, None, {}) == "isentropic_run: call must not be null"
    library.isentropic_release(None)
    x = (c.c_double * 2)(1, 2)
    handle = prepared(library, "softmax", {"temperature": -1})  # ranges are those of a run
    said = run_prepared(library, handle, {"x": (x, 1, 2, FLOAT64), "y": (x, 1, 2, FLOAT64)})
    assert said == "softmax: temperature must be above 0 and finite, got -1"
    library.isentropic_release(handle)
