"""The package as a whole: signatures, docstrings, stubs, import, SIMD targets, threads, the GIL, fork."""

import inspect
import multiprocessing
import os
import pathlib
import pickle
import re
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import isentropic
from cases import OPERATIONS, call, call_vjp, each, scores, torch_or_skip
from isentropic import _core


def parameter(param):
    default = inspect.Parameter.empty if param["required"] else param["default"]
    return inspect.Parameter(param["name"], inspect.Parameter.KEYWORD_ONLY, default=default)


def keyword(name, default):
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)


@each(OPERATIONS)
def test_signatures(operation):
    last = keyword("keepdims", False) if operation["reduces"] else keyword("out", None)
    x = inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    params = [parameter(param) for param in operation["params"]]
    assert inspect.signature(getattr(isentropic, operation["name"])) == inspect.Signature(
        [x, *params, keyword("axis", -1), last]
    )
    arrays = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("x", "y", "grad")]
    vjp = getattr(isentropic, operation["name"] + "_vjp")
    asks = [keyword("param_grad", False)] if any(param["per_row"] for param in operation["params"]) else []
    assert inspect.signature(vjp) == inspect.Signature([*arrays, *params, keyword("axis", -1), *asks])


def test_signature_as_printed():
    assert str(inspect.signature(isentropic.softmax)) == "(x, *, temperature=1.0, axis=-1, out=None)"
    vjp = "(x, y, grad, /, *, temperature=1.0, axis=-1, param_grad=False)"
    assert str(inspect.signature(isentropic.softmax_vjp)) == vjp
    assert str(inspect.signature(isentropic.entmax)) == "(x, *, alpha=1.5, temperature=1.0, axis=-1, out=None)"
    vjp = "(x, y, grad, /, *, alpha=1.5, temperature=1.0, axis=-1, param_grad=False)"
    assert str(inspect.signature(isentropic.entmax_vjp)) == vjp
    assert str(inspect.signature(isentropic.logsumexp)) == "(x, *, temperature=1.0, axis=-1, keepdims=False)"


@each(OPERATIONS)
def test_docstrings(operation):
    for function in (getattr(isentropic, operation["name"]), getattr(isentropic, operation["name"] + "_vjp")):
        text = inspect.getdoc(function)
        for said in ("formula", "gradient", "source"):
            assert operation[said] in text, said
        for name, param in inspect.signature(function).parameters.items():
            assert f"\n{name} : " in text, name
            if param.default is not inspect.Parameter.empty:
                assert f"default {param.default!r}" in text
        for param in operation["params"]:
            assert param["meaning"] in text
            assert param["kind"] == "name" or f", {param['allowed']}, " in text
        for section in ("Parameters", "Returns", "Raises", "Notes", "Examples"):
            assert f"\n{section}\n{'-' * len(section)}\n" in text
        assert max(map(len, text.splitlines())) <= 120
        lines = [line[4:] for line in text.splitlines() if line.startswith(">>> ")]
        assert lines
        exec("\n".join(lines), {"isentropic": isentropic})


# What a parameter of the registry is called in Python, or None where it is no keyword.
PARAMETERS = {
    "attention": {"number": "scale"},
    "expected_calibration_error": {"sum_tolerance": None, "binary": None},
    "gamma_for_entropy": {"min_gamma": "gamma_range", "max_gamma": "gamma_range"},
    "wasserstein_histogram": {"sum_tolerance": None},
}


@each(
    [
        *isentropic._core.attention_operations(),
        *isentropic._core.calibration_operations(),
        *isentropic._core.control_operations(),
        *isentropic._core.sampling_operations(),
        *isentropic._core.transport_operations(),
    ]
)
def test_written_functions_say_what_the_registry_says(operation):
    function = getattr(isentropic, operation["name"])
    assert operation["summary"] in inspect.getdoc(function)
    assert operation["formula"] in inspect.getdoc(function)
    renamed = PARAMETERS.get(operation["name"], {})
    keywords = inspect.signature(function).parameters
    for param in operation["params"]:
        name = renamed.get(param["name"], param["name"])
        assert name is None or name in keywords
        if name == param["name"]:
            default = inspect.Parameter.empty if param["required"] else param["default"]
            assert keywords[name].default == (
                "sqrt" if operation["name"] == "linear_attention" and name == "scale" else default
            )


@each(OPERATIONS)
def test_functions_are_public_and_pickle(operation):
    for name in (operation["name"], operation["name"] + "_vjp"):
        function = getattr(isentropic, name)
        assert name in isentropic.__all__
        assert (function.__name__, function.__qualname__, function.__module__) == (name, name, "isentropic")
        assert pickle.loads(pickle.dumps(function)) is function


def python(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, env=os.environ | {"MYPYPATH": ""}
    )


def test_import_is_quiet_and_leaves_torch_alone():
    code = "import sys, isentropic; isentropic.softmax([1.0]); assert 'torch' not in sys.modules; print(isentropic.__version__)"
    ran = python("-W", "error", "-X", "dev", "-c", code)
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, isentropic.__version__, "")


def test_errors_leave_nothing_behind():
    """nanobind reports objects that leak when the interpreter ends."""
    code = "import isentropic\ntry: isentropic.softmax([1.0], temperature=-1)\nexcept ValueError as e: kept = e"
    ran = python("-W", "error", "-X", "dev", "-c", code)
    assert (ran.returncode, ran.stderr) == (0, "")


USER_CODE = """
    from typing import assert_type

    import numpy as np
    from numpy.typing import NDArray

    import isentropic

    x32: NDArray[np.float32] = np.zeros((2, 3), np.float32)
    assert_type(isentropic.softmax(x32, temperature=2, axis=0), NDArray[np.float32])
    assert_type(isentropic.softmax(x32, out=x32), NDArray[np.float32])
    assert_type(isentropic.sparsemax([[1.0, 2.0], [3, 4]]), NDArray[np.float64])
    assert_type(isentropic.sparsemax([1, 2]), NDArray[np.float64])
    assert_type(isentropic.log_softmax(np.zeros(3, np.int64)), NDArray[np.float64])
    assert_type(isentropic.softmax_vjp(x32, x32, x32, temperature=np.float32(2)), NDArray[np.float32])
    assert_type(isentropic.entmax(x32, alpha=x32[:, :1]), NDArray[np.float32])
    assert_type(isentropic.entmax(x32, alpha=[[1.5], [2]]), NDArray[np.float32])
    assert_type(isentropic.entmax_vjp(x32, x32, x32), NDArray[np.float32])
    assert_type(isentropic.entmax_vjp(x32, x32, x32, param_grad=True), tuple[NDArray[np.float32], NDArray[np.float32]])
    assert_type(isentropic.simd_targets(), list[str])
    assert_type(isentropic.get_num_threads(), int)
    total: NDArray[np.float32] = isentropic.logsumexp(x32, keepdims=True)
    isentropic.softmax(x32, temprature=1.0)  # type: ignore[call-overload]
    steps = isentropic.Sampler([("top_h", 0.4), ("p_less", None), ("xtc", (0.5, 0.1)), ("penalties", {"presence": 1.0})])
    steps.sample(x32, tokens=[[1], [2]], return_probs=True)
    isentropic.sample(x32, seed=1, size=2, replace=False)
    isentropic.wasserstein(x32, x32, metric="cosine")
    isentropic.wasserstein_histogram(x32, x32, period=24, normalize=True)
    isentropic.sinkhorn([0.5, 0.5], [0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], epsilon=[0.1, 0.2]).map([1.0, 2.0])
    isentropic.doubly_stochastic(x32, iterations=3)
    isentropic.top_k_softmax(x32, k="hot")  # type: ignore[call-overload]
    isentropic.sigsoftmax_vjp(x32, x32, x32, param_grad=True)  # type: ignore[call-overload]
    isentropic.softmax(None)  # type: ignore[call-overload]
"""


def test_stubs_by_mypy(tmp_path):
    (tmp_path / "user.py").write_text(textwrap.dedent(USER_CODE))
    package = pathlib.Path(isentropic.__file__).parent
    assert (package / "py.typed").exists()
    ran = python("-m", "mypy", "--strict", "user.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = python("-m", "mypy", "--strict", "-m", "isentropic", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_stubs_have_every_step_and_every_public_name_of_torch():
    package = pathlib.Path(isentropic.__file__).parent
    stubs = (package / "__init__.pyi").read_text()
    kinds = stubs[stubs.index("_Step: TypeAlias") : stubs.index("def simd_targets")]
    for step in _core.sampling_steps():
        assert f'"{step["name"]}"' in kinds
    torch_or_skip()
    import isentropic.torch as et

    stubs = (package / "torch/__init__.pyi").read_text()
    for name in et.__all__:
        assert re.search(rf"^(def|class) {name}\b", stubs, re.MULTILINE), name


def test_stubs_say_what_the_functions_are(tmp_path):
    # nanobind's functions are no Python functions, torch says nothing of what its Functions take, and what is private has no
    # stubs.
    allowed = (
        r"isentropic\._core\..*",
        # The fields of structures of ctypes, and functions whose results functools keeps.
        r"isentropic\..*\._fields_",
        r"isentropic\._cuda\.(library|memory)",
        r"isentropic\.jax\._call\._check",
        r"isentropic\.torch\.(_|.*\._).*",
        r"isentropic\.compat\.entmax\._.*",
        # Graphs that onnxscript makes of functions; and the name of an exception that was handled.
        r"isentropic\.onnx\.(_searches\..*|error)",
        # Where transformers is not installed.
        r"isentropic\.transformers.*",
    )
    (tmp_path / "allowed").write_text("\n".join(allowed))
    # To mypy arrays of two types are one; what onnxscript reads as a graph is no Python.
    overlapping = "[mypy]\n[mypy-isentropic._core]\ndisable_error_code = overload-overlap\n"
    graphs = "[mypy-isentropic.onnx._searches]\nignore_errors = True\n"
    # The frameworks' own types are not looked at here: mypy takes a minute to read them. test_stubs_know_torch does.
    frameworks = "[mypy-torch.*,jax.*,onnx.*,onnxscript.*,transformers.*,sklearn.*,pandas.*,pyarrow.*]\n"
    skipped = "follow_imports = skip\nfollow_imports_for_stubs = True\n"
    (tmp_path / "config").write_text(overlapping + graphs + frameworks + skipped)
    flags = ["--ignore-missing-stub", "--ignore-unused-allowlist", "--allowlist", "allowed", "--mypy-config-file", "config"]
    ran = python("-m", "mypy.stubtest", "isentropic", *flags, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


TORCH_CODE = """
    from typing import assert_type

    import torch
    from torch import Tensor, nn

    import isentropic.torch
    from isentropic.torch import EntropyClip, softmax

    x = torch.zeros(2, 3)
    t: Tensor = isentropic.softmax(x, out=x)
    assert_type(softmax(x, temperature=2, dim=0), Tensor)
    assert_type(isentropic.torch.entmax(x, alpha=torch.ones(2, 1), axis=-1), Tensor)
    assert_type(isentropic.torch.logsumexp(x, keepdim=True), Tensor)
    assert_type(isentropic.torch.Entmax(alpha=nn.Parameter(torch.ones(2, 1)))(x), Tensor)
    assert_type(isentropic.torch.TopKSoftmax(2).k, int)
    model: nn.Module = nn.Sequential(EntropyClip(max_entropy=0.5), isentropic.torch.PerturbMax("normal", scale=2))
    labels = torch.zeros(2, dtype=torch.long)
    isentropic.torch.Sampler([("top_h", 0.4)], seed=labels[0]).sample(x, tokens=labels[:, None], return_probs=True)
    assert_type(isentropic.torch.sample(x, seed=1, size=2, replace=False, position=3), Tensor)
    assert_type(isentropic.torch.gumbel_noise((2, 3), seed=1), Tensor)
    isentropic.torch.speculative_sample(None, x, labels[:1], seed=1)
    isentropic.torch.token_statistics(x, labels, softcap=2.0, top=1)
    isentropic.torch.linear_loss(x, x, (labels[:, None], x[:, :1]), loss="sparse_distillation_loss")
    assert_type(isentropic.torch.hill_number(x, order=[0, 1], input="scores"), Tensor)
    isentropic.torch.hill_number(x, order=torch.ones(2), input="scores")
    isentropic.torch.wasserstein(x, x, metric="cosine")
    isentropic.torch.wasserstein_histogram(x, x, period=24, normalize=True)
    isentropic.torch.doubly_stochastic(x, iterations=3)
    controller = isentropic.torch.EntropyController(2.0, coefficient=0.1, rate=1e-2, low=0.0, high=0.5)
    assert_type(controller.update(x.mean()), float)
    controller.load_state_dict(controller.state_dict())
    isentropic.torch.softmax([1.0])  # type: ignore[arg-type]
    isentropic.torch.softmax(x, temprature=1.0)  # type: ignore[call-arg]
    isentropic.torch.top_k_softmax(x)  # type: ignore[call-arg]
    isentropic.torch.perturb_max(x, noise="loud")  # type: ignore[arg-type]
    isentropic.torch.Softmax(alpha=1.5)  # type: ignore[call-arg]
"""


def test_stubs_know_torch(tmp_path):
    torch_or_skip()
    (tmp_path / "user.py").write_text(textwrap.dedent(TORCH_CODE))
    ran = python("-m", "mypy", "--strict", "--follow-imports=silent", "user.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def restored():
    yield
    isentropic.force_simd_target("")
    isentropic.set_num_threads(0)


HAVE_FMA = ("AVX2", "AVX3", "AVX3_DL", "AVX3_ZEN4", "AVX3_SPR", "NEON", "SVE", "SVE2", "SVE_256", "SVE2_128")


@each(OPERATIONS)
def test_bits_are_the_same_on_targets_with_fma_and_any_number_of_threads(operation, restored):
    x = scores(np.random.default_rng(4), (500, 333), np.float32)
    want = call(operation, x)
    want_dx = call_vjp(operation, x, want, want)
    targets = isentropic.simd_targets()
    assert isentropic.simd_target() == targets[0]
    for target in targets:
        isentropic.force_simd_target(target)
        assert isentropic.simd_target() == target
        for threads in (1, 2, 5):
            isentropic.set_num_threads(threads)
            assert isentropic.get_num_threads() == threads
            y, dx = call(operation, x), call_vjp(operation, x, want, want)
            if target in HAVE_FMA:
                np.testing.assert_array_equal(y, want)
                np.testing.assert_array_equal(dx, want_dx)
            np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    isentropic.force_simd_target("")
    assert isentropic.simd_target() == targets[0]


@pytest.mark.parametrize("axis", [1, 0])
def test_the_gil_is_released(axis, restored):
    """A second thread runs in the middle of a call, not only before and after it."""
    isentropic.set_num_threads(1)
    x = np.zeros((3000, 4096))
    span = []

    def work():
        out = np.empty_like(x)
        for _ in range(20):  # until one call is long enough to tell
            begin = time.perf_counter()
            isentropic.log_softmax(x, axis=axis, out=out)
            span[:] = [begin, time.perf_counter()]

    worker = threading.Thread(target=work)
    ticks = []
    worker.start()
    while worker.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.0005)
    begin, end = span
    margin = (end - begin) / 4
    assert sum(begin + margin < tick < end - margin for tick in ticks) >= 2


FORKING = """
    import multiprocessing

    import numpy as np

    import isentropic

    isentropic.set_num_threads(2)
    x = np.random.default_rng(6).standard_normal((2000, 500))
    want = isentropic.softmax(x)  # has started threads
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for got in pool.map_async(isentropic.softmax, [x, x, x]).get(timeout=60):
            np.testing.assert_array_equal(got, want)
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork on this system")
def test_works_in_a_forked_child():
    """In a separate process: jax, which other tests import, does not survive a fork."""
    ran = python("-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(FORKING))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_many_threads_at_once():
    x = [scores(np.random.default_rng(i), (300, 200)) for i in range(8)]
    want = [isentropic.sparsemax(a, axis=0) for a in x]
    got = [None] * len(x)

    def work(i):
        for _ in range(20):
            got[i] = isentropic.sparsemax(x[i], axis=0)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(x))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
