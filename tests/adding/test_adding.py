"""CONTRIBUTING's lists are whole: in a copy of the tree a map, a loss, a measure, a step of a sampler and a parameter are added
by exactly the files that it names, and run through every door that CI builds: C++ with its property tests, the kernels of a
device on the host, Python, torch, JAX and the command line. Half an hour: all is built anew, for one SIMD target."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ["maps_test", "losses_test", "measures_test", "sampling_test", "param_gradients_test"]
ON_DEVICE = ["cuda_test", "cuda_losses_test", "cuda_measures_test", "cuda_sampling_test"]

GUARDED = """// {first}

#if defined({guard}) == defined(HWY_TARGET_TOGGLE)
#ifdef {guard}
#undef {guard}
#else
#define {guard}
#endif

#include "{include}"

HWY_BEFORE_NAMESPACE();
namespace isentropic::inline ISENTROPIC_ABI {{
namespace HWY_NAMESPACE {{
{body}
}}  // namespace HWY_NAMESPACE
}}  // namespace isentropic::inline ISENTROPIC_ABI
HWY_AFTER_NAMESPACE();

#endif  // {guard}
"""

# softmax(s x).
MAP = """//   p = softmax(s x)
struct SharpSoftmax {
  double sharpness = 1.5;  // s
};

"""
MAP_DESCRIPTION = """
inline constexpr Absence kNoKernelYet[] = {{Door::device, "it has none"}, {Door::ranks, "it has none"}};
template <>
struct Described<SharpSoftmax> {
  static constexpr Description kDescription = {
      .name = "sharp_softmax",
      .summary = "Softmax of scores that are multiplied.",
      .formula = "p = softmax(s x)",
      .gradient = "s p (g - <g,p>)",
      .source = "this test",
      .arrays = kMapArrays,
      .jacobian = {.arrays = kMapGradient, .symmetric = true},
      .not_in = kNoKernelYet,
  };
  static constexpr Laws kLaws = {};
  static constexpr auto kParams = Params{Param<SharpSoftmax>{
      .name = "sharpness", .meaning = "s", .member = &SharpSoftmax::sharpness, .at_least = 0.1, .up_to = 2, .per_row = true}};
};
"""
MAP_KERNELS = """
template <class T>
struct KernelsOf<SharpSoftmax, T> {
  static constexpr ScoreParams<SharpSoftmax> kScores = {};
  static void MapRow(const SharpSoftmax& op, const T* x, size_t n, T max, T* p, Workspace workspace) {
    KernelsOf<Softmax, T>::MapRow({.temperature = 1 / op.sharpness}, x, n, max, p, workspace);
  }
  static void VjpRow(const SharpSoftmax& op, const T* x, const T* p, const T* g, size_t n, T* dx,
                     ParamValues<SharpSoftmax>* slopes, Workspace workspace) {
    if (slopes != nullptr) {
      double mean = 0, slope = 0;
      for (size_t i = 0; i < n; ++i) mean += static_cast<double>(g[i]) * p[i];
      for (size_t i = 0; i < n; ++i) slope += p[i] > 0 ? p[i] * (g[i] - mean) * x[i] : 0;
      *slopes = {slope};
    }
    KernelsOf<Softmax, T>::VjpRow({.temperature = 1 / op.sharpness}, x, p, g, n, dx, nullptr, workspace);
  }
  static constexpr NotOffered VjpFour = {}, MostInfinite = {}, Memory = {};
  using Short = NotOffered;
  using Several = NotOffered;
};
"""
MAP_ORACLE = """Row map(const isentropic::SharpSoftmax& op, const Row& x) {
  return map(isentropic::Softmax{.temperature = 1 / op.sharpness}, x);
}
"""
VJP_ORACLE = """Row vjp(const isentropic::SharpSoftmax& op, const Row& x, const Row& g) {
  return vjp(isentropic::Softmax{.temperature = 1 / op.sharpness}, x, g);
}

"""

# Twice softmax's loss.
LOSS = """//   2 (log sum exp(x) - <q,x>)
struct TwiceSoftmaxLoss {
  static constexpr TargetKind kTarget = TargetKind::classes_or_distributions;
};

"""
LOSS_DESCRIPTION = """
inline constexpr Absence kNoLossKernelYet[] = {{Door::device, "it has none"}, {Door::ranks, "it has none"}};
template <>
struct Described<TwiceSoftmaxLoss> {
  static constexpr Description kDescription = {
      .name = "twice_softmax_loss",
      .summary = "Twice cross-entropy.",
      .formula = "2 (log sum exp(x) - <q,x>)",
      .gradient = "2 (softmax(x) - q)",
      .source = "this test",
      .arrays = kLossArrays,
      .not_in = kNoLossKernelYet,
  };
  static constexpr auto kParams = Params{};
};
"""
LOSS_KERNELS = """
template <class T>
void FusedRows(const TwiceSoftmaxLoss& /*op*/, const LossBatch<T>& batch, LossScratch<T> scratch) {
  FusedRows(SoftmaxLoss{}, batch, scratch);
  for (size_t r = 0; r < batch.x.rows; ++r) {
    batch.value[r] *= 2;
    if (batch.dx.data != nullptr) ScaleRow(RowTag<T>(), T(2), batch.x.cols, batch.dx.row(r));
  }
}
"""
LOSS_ORACLE = """LossResult loss(const isentropic::TwiceSoftmaxLoss&, const Row& x, const Row& q) {
  LossResult result = loss(isentropic::SoftmaxLoss{}, x, q);
  result.value *= 2;
  for (long double& slope : result.dx) slope *= 2;
  return result;
}

}  // namespace
}  // namespace definition
"""

# Half of Shannon's entropy.
MEASURE = """//   H / 2
struct HalfEntropy {
  std::optional<double> base = {};
  Input input = Input::probs;
  bool normalize = false;
};

"""
MEASURE_DESCRIPTION = """
inline constexpr Absence kNoMeasureKernelYet[] = {{Door::device, "it has none"}, {Door::ranks, "it has none"}};
template <>
struct Described<HalfEntropy> {
  static constexpr Description kDescription = {
      .name = "half_entropy",
      .summary = "Half of the entropy.",
      .formula = "H / 2",
      .gradient = "-(log p + 1) / 2",
      .source = "this test",
      .arrays = kMeasureArrays,
      .not_in = kNoMeasureKernelYet,
  };
  static constexpr auto kParams = measure_params(&HalfEntropy::base, &HalfEntropy::input, &HalfEntropy::normalize);
};
"""
MEASURE_KERNELS = """inline HWY_NOINLINE double ValueOf(const HalfEntropy& /*op*/, const Distribution& row) {
  return ValueOf(Entropy{}, row) / 2;
}
HWY_INLINE Partial PartialOf(const HalfEntropy& /*op*/, const Distribution& row, double value, size_t i, size_t count) {
  const V64 half = hn::Set(D64(), 0.5);
  const Partial of = PartialOf(TsallisEntropy{.alpha = 1}, row, value, i, count);
  return {hn::Mul(of.g, half), hn::Mul(of.weight, half)};
}

"""
MEASURE_ORACLE = """long double nats(const isentropic::HalfEntropy&, const Numbers& p) {
  return nats(isentropic::Entropy{}, p) / 2;
}

"""

# Half of min_p's bound.
STEP = """//   as min_p, of p/2
struct HalfMinP {
  double p = 0;  // twice the ratio
};

"""
STEP_DESCRIPTION = """
inline constexpr Absence kNoStepKernelYet[] = {{Door::c, "a chain of steps is an operation"},
                                               {Door::command_line, "a chain of steps is an option"},
                                               {Door::device, "this test has none"},
                                               {Door::ranks, "this test has none"}};
template <>
struct Described<step::HalfMinP> {
  static constexpr Description kDescription = {
      .name = "half_min_p",
      .summary = "Keeps tokens at least p/2 times as likely as the most likely one.",
      .formula = "as min_p, of p/2",
      .gradient = "none: it is for drawing",
      .source = "this test",
      .arrays = kStepArrays,
      .not_in = kNoStepKernelYet,
  };
  static constexpr auto kParams = Params{Param<step::HalfMinP>{
      .name = "p",
      .meaning = "twice the ratio",
      .member = &step::HalfMinP::p,
      .above = 0,
      .up_to = 1,
      .required = true,
      .typical = 0.1}};
};
"""
STEP_KERNELS = """  HWY_INLINE void Apply(const step::HalfMinP& op) { Apply(step::MinP{op.p / 2}); }
"""
STEP_ORACLE = """Row after(const isentropic::step::HalfMinP& op, Row x) {
  return after(isentropic::step::MinP{op.p / 2}, std::move(x));
}

"""

# Sigsoftmax of scores that are divided by a power of two, which is exact.
PARAMETER = """  std::int64_t halvings = 0;  // k, the scores are divided by 2^k
"""
SCALED = """  const T half = static_cast<T>(1.0 / static_cast<double>(std::int64_t{1} << op.halvings));
  const auto scale = hn::Set(d, half);
"""
PARAMETER_DESCRIPTION = """Param<SigSoftmax, std::int64_t>{.name = "halvings",
                                                                           .meaning = "k, the scores are divided by 2^k",
                                                                           .member = &SigSoftmax::halvings,
                                                                           .at_least = 0,
                                                                           .up_to = 3}"""


# Descriptions stand at the end of a header.
END = "\n}  // namespace isentropic::inline ISENTROPIC_ABI\n"


def edit(file, *changes):
    text = file.read_text()
    for old, new in changes:
        assert text.count(old) == 1, (file, old, text.count(old))
        text = text.replace(old, new)
    file.write_text(text)


def add_map(tree):
    edit(
        tree / "include/isentropic/maps.h",
        ("using Map = std::variant<", MAP + "using Map = std::variant<SharpSoftmax, "),
        (END, MAP_DESCRIPTION + END),
    )
    guard = "ISENTROPIC_MAPS_SHARP_SOFTMAX_INL_H_"
    text = GUARDED.format(first="Softmax of sharper scores.", guard=guard, include="src/maps/softmax-inl.h", body=MAP_KERNELS)
    (tree / "src/maps/sharp_softmax-inl.h").write_text(text)
    include, line = '#include "src/maps/sigsoftmax-inl.h"\n', "ISENTROPIC_COMPILE_MAP(SigSoftmax);\n"
    edit(
        tree / "src/maps/softmax.cc",
        (include, '#include "src/maps/sharp_softmax-inl.h"\n' + include),
        (line, line + "ISENTROPIC_COMPILE_MAP(SharpSoftmax);\n"),
    )
    map_of = "Row map(const isentropic::SigSoftmax&"
    vjp_of = "Row vjp(const isentropic::SigSoftmax&"
    edit(tree / "tests/oracle/maps.cc", (map_of, MAP_ORACLE + map_of), (vjp_of, VJP_ORACLE + vjp_of))
    return {"include/isentropic/maps.h", "src/maps/sharp_softmax-inl.h", "src/maps/softmax.cc", "tests/oracle/maps.cc"}


def add_loss(tree):
    edit(
        tree / "include/isentropic/losses.h",
        ("using Loss = std::variant<", LOSS + "using Loss = std::variant<TwiceSoftmaxLoss, "),
        (END, LOSS_DESCRIPTION + END),
    )
    guard = "ISENTROPIC_LOSSES_TWICE_SOFTMAX_INL_H_"
    text = GUARDED.format(first="Twice softmax's loss.", guard=guard, include="src/losses/softmax-inl.h", body=LOSS_KERNELS)
    (tree / "src/losses/twice_softmax-inl.h").write_text(text)
    include = '#include "src/losses/softmax-inl.h"\n'
    edit(tree / "src/losses/all-inl.h", (include, include + '#include "src/losses/twice_softmax-inl.h"\n'))
    edit(tree / "tests/oracle/losses.cc", ("}  // namespace\n}  // namespace definition\n", LOSS_ORACLE))
    return {"include/isentropic/losses.h", "src/losses/twice_softmax-inl.h", "src/losses/all-inl.h", "tests/oracle/losses.cc"}


def add_measure(tree):
    edit(
        tree / "include/isentropic/measures.h",
        ("using Measure = std::variant<", MEASURE + "using Measure = std::variant<HalfEntropy, "),
        (END, MEASURE_DESCRIPTION + END),
    )
    slopes = "// Derivatives in the order; measures without an order have none.\n"
    edit(tree / "src/measures/entropies-inl.h", (slopes, MEASURE_KERNELS + slopes))
    of_two = "long double nats(const isentropic::CrossEntropy&"
    edit(tree / "tests/oracle/measures.cc", (of_two, MEASURE_ORACLE + of_two))
    return {"include/isentropic/measures.h", "src/measures/entropies-inl.h", "tests/oracle/measures.cc"}


def add_step(tree):
    edit(
        tree / "include/isentropic/sampling.h",
        ("}  // namespace step\n", STEP + "}  // namespace step\n"),
        ("std::variant<step::Temperature, ", "std::variant<step::Temperature, step::HalfMinP, "),
        (END, STEP_DESCRIPTION + END),
    )
    of_min_p = "  HWY_INLINE void Apply(const step::MinP& op)"
    edit(tree / "src/sampling/chain-inl.h", (of_min_p, STEP_KERNELS + of_min_p))
    of_typical = "Row after(const isentropic::step::TypicalP&"
    edit(tree / "tests/oracle/sampling.cc", (of_typical, STEP_ORACLE + of_typical))
    return {"include/isentropic/sampling.h", "src/sampling/chain-inl.h", "tests/oracle/sampling.cc"}


def add_parameter(tree):
    edit(
        tree / "include/isentropic/maps.h",
        ("struct SigSoftmax {};\n", "struct SigSoftmax {\n" + PARAMETER + "};\n"),
        (
            "  static constexpr Laws kLaws = {.shift = false};\n  static constexpr auto kParams = Params{};",
            "  static constexpr Laws kLaws = {.shift = false};\n"
            f"  static constexpr auto kParams = Params{{{PARAMETER_DESCRIPTION}}};",
        ),
    )
    edit(
        tree / "src/maps/sigsoftmax-inl.h",
        ("MapRow(const SigSoftmax& /*op*/", "MapRow(const SigSoftmax& op"),
        ("VjpRow(const SigSoftmax& /*op*/", "VjpRow(const SigSoftmax& op"),
        ("  const auto shift = hn::Set(d, max), one", SCALED + "  max *= half;\n  const auto shift = hn::Set(d, max), one"),
        ("= LoadUpTo(d, x + i, count, max);", "= hn::Mul(scale, LoadUpTo(d, x + i, count, max / half));"),
        (
            "  const auto one = hn::Set(d, T(1));\n  const auto mean",
            SCALED + "  const auto one = hn::Set(d, T(1));\n  const auto mean",
        ),
        (
            "= LoadUpTo(d, x + i, count, T(0));\n    const auto pi",
            "= hn::Mul(scale, LoadUpTo(d, x + i, count, T(0)));\n    const auto pi",
        ),
        ("hn::Add(one, s));\n    return", "hn::Mul(scale, hn::Add(one, s)));\n    return"),
    )
    edit(
        tree / "tests/oracle/maps.cc",
        (
            "Row map(const isentropic::SigSoftmax&, const Row& x) {\n",
            "Row map(const isentropic::SigSoftmax& op, Row x) {\n"
            "  for (long double& score : x) score = std::ldexp(score, -static_cast<int>(op.halvings));\n",
        ),
        (
            "return 1 + 1 / (1 + std::exp(x[i])); });",
            "const long double half = std::ldexp(1.0L, -static_cast<int>(op.halvings)); "
            "return half * (1 + 1 / (1 + std::exp(half * x[i]))); });",
        ),
    )
    return {"include/isentropic/maps.h", "src/maps/sigsoftmax-inl.h", "tests/oracle/maps.cc"}


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    return done.stdout


@pytest.fixture(scope="module")
def files():
    """What is added, by file."""
    return {}


@pytest.fixture(scope="module")
def tree(tmp_path_factory, files):
    tree = tmp_path_factory.mktemp("adding") / "isentropic"
    tree.mkdir()
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\n")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    files |= {"map": add_map(tree), "loss": add_loss(tree), "measure": add_measure(tree), "step": add_step(tree)}
    files["parameter"] = add_parameter(tree)
    run("cmake", "--preset", "dev", "-DISENTROPIC_PYTHON=ON", f"-DPython_EXECUTABLE={sys.executable}", cwd=tree)
    build = tree / "build/dev"
    targets = ["isentropic_cli", "isentropic_stubs", "isentropic_cuda_emulated", *PROGRAMS, *ON_DEVICE]
    run("cmake", "--build", build, "--target", *targets, cwd=tree)
    return tree


def listed(section):
    """The files of a section of CONTRIBUTING, <name> as a pattern."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    text = text.split(f"## {section}\n")[1].split("\n## ")[0]
    return [re.sub(r"<\w+>", r"\\w+", re.escape(name)) for name in re.findall(r"^\| `([^`]+)`", text, flags=re.MULTILINE)]


@pytest.mark.parametrize(("what", "most"), [("map", 5), ("loss", 4), ("measure", 4), ("step", 4), ("parameter", 3)])
def test_by_exactly_the_files_that_are_listed(tree, files, what, most):
    patterns = listed(f"Add a {what}")
    assert len(patterns) == len(files[what]) <= most
    assert all(any(re.fullmatch(pattern, name) for pattern in patterns) for name in files[what])


@pytest.mark.parametrize("program", [*PROGRAMS, *ON_DEVICE])
def test_properties(tree, program):
    """Of all operations, and so of the new ones, on every compiled target; a device's kernels link without them."""
    print(run(tree / "build/dev/tests" / program, "--gtest_brief=1"))


def test_command_line(tree):
    command = tree / "build/dev/cli/isentropic"
    assert "sharp_softmax" in run(command, "list") and "twice_softmax_loss" in run(command, "list")
    told = run(command, "sharp_softmax", "--sharpness", "2", input="1,2\n0,0\n")
    assert told == run(command, "softmax", "--temperature", "0.5", input="1,2\n0,0\n")
    told = run(command, "sigsoftmax", "--halvings", "1", input="2,4\n0,-2\n")
    assert told == run(command, "sigsoftmax", input="1,2\n0,-1\n")
    assert run(command, "half_entropy", "--base", "2", input="0.5,0.5\n").split() == ["0.5"]


PYTHON = """
import numpy as np, torch
import isentropic, isentropic.torch as et

x = np.array([[1.0, 2.0, 0.5], [0.0, 0.0, -1.0]])
assert (isentropic.sharp_softmax(x, sharpness=2.0) == isentropic.softmax(x, temperature=0.5)).all()
g = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])
p = isentropic.sharp_softmax(x, sharpness=2.0)
assert (isentropic.sharp_softmax_vjp(x, p, g, sharpness=2.0) == isentropic.softmax_vjp(x, p, g, temperature=0.5)).all()
assert (isentropic.twice_softmax_loss(x, np.array([0, 2])) == 2 * isentropic.softmax_loss(x, np.array([0, 2]))).all()
assert (isentropic.sigsoftmax(2 * x, halvings=1) == isentropic.sigsoftmax(x)).all()
assert (isentropic.half_entropy(p) == isentropic.entropy(p) / 2).all()
half, direct = (isentropic.Sampler([(name, value)]).probs(x) for name, value in (("half_min_p", 0.4), ("min_p", 0.2)))
assert (half == direct).all()
try:
    isentropic.sharp_softmax(x, sharpness=0.01)
except ValueError as error:
    assert "sharpness must be at least 0.1" in str(error), error
else:
    raise AssertionError

t = torch.tensor(x, requires_grad=True)
torch.testing.assert_close(et.SharpSoftmax(sharpness=0.5)(t), torch.softmax(t / 2, -1))
assert torch.autograd.gradcheck(et.sharp_softmax, (t,)) and torch.autograd.gradgradcheck(et.sharp_softmax, (t,))
loss = lambda t: et.twice_softmax_loss(t, torch.tensor([0, 2]))
torch.testing.assert_close(loss(t), 2 * torch.nn.functional.cross_entropy(t, torch.tensor([0, 2]), reduction="none"))
assert torch.autograd.gradcheck(loss, (t,)) and torch.autograd.gradgradcheck(loss, (t,))
halved = lambda t: et.sigsoftmax(t, halvings=1)
torch.testing.assert_close(halved(t), et.sigsoftmax(0.5 * t))
assert torch.autograd.gradcheck(halved, (t,))
q = torch.softmax(t.detach(), -1).requires_grad_()
assert torch.autograd.gradcheck(lambda q: et.half_entropy(q, input="scores"), (q,))
torch.testing.assert_close(isentropic.Sampler([("half_min_p", 0.4)]).probs(t.detach()), torch.from_numpy(direct))
hessian = torch.func.vmap(torch.func.hessian(lambda row: et.sharp_softmax(row).square().sum()))(t.detach())
want = torch.func.vmap(torch.func.hessian(lambda row: torch.softmax(1.5 * row, -1).square().sum()))(t.detach())
torch.testing.assert_close(hessian, want, rtol=1e-6, atol=1e-8)
compiled = torch.compile(et.sharp_softmax, fullgraph=True, backend="aot_eager")
torch.testing.assert_close(compiled(t), torch.softmax(1.5 * t, -1))
print("python and torch")
"""


def test_python_and_torch(tree):
    where = {**os.environ, "PYTHONPATH": str(tree / "build/dev/python")}
    assert run(sys.executable, "-c", PYTHON, env=where).strip().endswith("python and torch")


REFUSALS = """
import types
import numpy as np, torch, jax
import isentropic, isentropic.jax as ej, isentropic.onnx, isentropic.torch as et
from isentropic.torch.distributed import _maps

def refused(error, words, call):
    try:
        call()
    except error as found:
        assert words in str(found), found
    else:
        raise AssertionError(words)

x = np.float32([[1.0, 2.0, 0.5]])
np.testing.assert_array_equal(ej.sharp_softmax(x), isentropic.sharp_softmax(x))
np.testing.assert_allclose(ej.half_entropy(isentropic.softmax(x)), isentropic.half_entropy(isentropic.softmax(x)), rtol=1e-6)
refused(NotImplementedError, "sharp_softmax has no derivative", lambda: jax.grad(lambda x: ej.sharp_softmax(x)[0, 0])(x))
loss = lambda x: ej.twice_softmax_loss(x, np.array([0]))[0]
np.testing.assert_allclose(jax.grad(loss)(x), isentropic.twice_softmax_loss(x, [0], return_grad=True)[1])
refused(NotImplementedError, "twice_softmax_loss has no second derivative", lambda: jax.hessian(loss)(x))
ranks = types.SimpleNamespace(spec={"map": "sharp_softmax"})
refused(NotImplementedError, "sharp_softmax: there is no such map for rows over ranks", lambda: _maps.map_forward(ranks))
refused(Exception, "sharp_softmax cannot be exported",
        lambda: isentropic.onnx.export(et.SharpSoftmax(), (torch.from_numpy(x),), "x.onnx"))
print("refused by name")
"""


DEVICE = """
import numpy as np
from isentropic import _cuda

for name in ("sharp_softmax", "half_entropy", "twice_softmax_loss"):
    try:
        _cuda.memory(name, "{}", 1, 3, "float32")
    except ValueError as error:
        assert str(error).startswith("operation must be a name in isentropic/cuda_c.h"), error
    else:
        raise AssertionError(name)
assert _cuda.memory("sigsoftmax", '{"halvings": 2}', 1, 3, "float32") >= 0
print("refused by a device")
"""


def test_a_device_without_kernels_refuses_by_name(tree):
    library = next((tree / "build/dev").rglob("libisentropic_cuda_emulated.so"))
    where = {**os.environ, "PYTHONPATH": str(tree / "build/dev/python"), "ISENTROPIC_CUDA_LIBRARY": str(library)}
    assert run(sys.executable, "-c", DEVICE, env=where).strip().endswith("refused by a device")


def test_doors_that_were_not_told_refuse_by_name(tree, tmp_path):
    """The doors whose mathematics is their own: they have the new operations as far as the kernels go, and no further."""
    where = {**os.environ, "PYTHONPATH": str(tree / "build/dev/python")}
    assert run(sys.executable, "-c", REFUSALS, env=where, cwd=tmp_path).strip().endswith("refused by name")
