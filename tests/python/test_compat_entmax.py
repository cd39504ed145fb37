"""isentropic.compat.entmax: everything that entmax 1.3 promises, checked against it where it is right, without its defects."""

import functools
import importlib.metadata
import inspect
import itertools
import math
import os
import pickle
import shutil
import subprocess
import sys

import pytest

try:
    import entmax as package
    import torch
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("torch or entmax is not installed: pip install torch==2.13.0 entmax==1.3", allow_module_level=True)

import entmax.activations
import entmax.losses
import entmax.root_finding
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

import isentropic.torch
from isentropic.compat import entmax as ours

INF, NAN = math.inf, math.nan
MAPS = ["sparsemax", "entmax15", "sparsemax_bisect", "entmax_bisect", "normmax_bisect", "budget_bisect"]
LOSSES = ["sparsemax_loss", "entmax15_loss", "sparsemax_bisect_loss", "entmax_bisect_loss", "normmax_bisect_loss"]
MODULES = ["SparsemaxLoss", "Entmax15Loss", "SparsemaxBisectLoss", "EntmaxBisectLoss", "NormmaxBisectLoss"]
every_map = pytest.mark.parametrize("name", MAPS)
every_loss = pytest.mark.parametrize("name", LOSSES)
every_module = pytest.mark.parametrize("name", MODULES)


def scores(*shape, dtype=torch.float64, seed=0, scale=1.0):
    return (scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)).to(dtype)


def labels(count, classes, seed=1):
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))


def gradient(function, x):
    x = x.detach().clone().requires_grad_()
    y = function(x)
    weights = scores(*y.shape, dtype=y.dtype, seed=9)
    (dx,) = torch.autograd.grad((y * weights).sum(), x)
    return y.detach(), dx


# In its place

AS_ENTMAX = """
import os, sys
import isentropic.compat.entmax
sys.modules["entmax"] = isentropic.compat.entmax
import torch
torch.manual_seed(int(os.environ["SEED"]))
"""


@pytest.mark.parametrize("seed", [0, 1])
def test_the_packages_own_tests_pass_unchanged(tmp_path, seed):
    files = [file for file in importlib.metadata.files("entmax") if file.match("test_*.py")]
    assert len(files) == 4
    for file in files:
        shutil.copy(file.locate(), tmp_path)
    (tmp_path / "as_entmax.py").write_text(AS_ENTMAX)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "as_entmax", "-p", "no:cacheprovider", "--rootdir", ".", "."]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "SEED": str(seed)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "127 passed" in done.stdout


def test_one_line_puts_it_in_its_place_and_names_stay_the_same_objects():
    program = (
        "import sys, isentropic.compat.entmax; sys.modules['entmax'] = isentropic.compat.entmax\n"
        "import entmax, entmax.activations, entmax.losses, entmax.root_finding\n"
        "from entmax import Sparsemax, SparsemaxLoss, EntmaxBisect\n"
        "assert entmax.activations.Sparsemax is Sparsemax\n"
        "assert entmax.losses.SparsemaxLoss is SparsemaxLoss\n"
        "assert entmax.root_finding.EntmaxBisect is EntmaxBisect\n"
        "assert 'isentropic' in Sparsemax.__module__ and entmax.__version__ == '1.3'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("part", ["", ".activations", ".root_finding", ".losses"])
def test_every_name_is_there_and_takes_the_same_arguments(part):
    theirs, here = sys.modules["entmax" + part], sys.modules["isentropic.compat.entmax" + part]
    wanted = [name for name, value in vars(theirs).items() if getattr(value, "__module__", "").startswith("entmax" + part)]
    wanted = [name for name in wanted if not name.startswith("_") or name.endswith("_and_support")]
    assert len(wanted) >= (22 if not part else 6)
    for name in wanted:
        value, mine = getattr(theirs, name), getattr(here, name)
        if isinstance(value, type) and issubclass(value, torch.autograd.Function):
            assert callable(mine.apply)
            continue
        said = list(inspect.signature(value).parameters.values())
        got = list(inspect.signature(mine).parameters.values())
        assert [(p.name, p.default) for p in got[: len(said)]] == [(p.name, p.default) for p in said], name
        assert all(p.name == "return_support_size" for p in got[len(said) :])
        assert inspect.getdoc(mine), name


def test_functions_that_code_applies_directly():
    x, y = scores(4, 6), labels(4, 6)
    assert torch.equal(ours.activations.SparsemaxFunction.apply(x, 0, None), ours.sparsemax(x, 0))
    assert torch.equal(ours.activations.Entmax15Function.apply(x), ours.entmax15(x, 0))  # this one's default
    assert torch.equal(ours.root_finding.EntmaxBisectFunction.apply(x, 1.3, 0, 50, True), ours.entmax_bisect(x, 1.3, 0))
    assert torch.equal(ours.losses.Entmax15LossFunction.apply(x, y, 3), ours.entmax15_loss(x, y))


# The same numbers where it is right

PARAMETERS = [
    ("sparsemax", {}),
    ("sparsemax", {"k": 2}),
    ("entmax15", {}),
    ("entmax15", {"k": 3}),
    ("sparsemax_bisect", {"n_iter": 60, "ensure_sum_one": False}),
    *(("entmax_bisect", {"alpha": alpha}) for alpha in (0.5, 1.2, 1.5, 2.0, 3.0)),
    ("entmax_bisect", {"alpha": 1.7, "n_iter": 70, "ensure_sum_one": False}),
    *(("normmax_bisect", {"alpha": alpha}) for alpha in (1.3, 2, 5.0)),
    *(("budget_bisect", {"budget": budget}) for budget in (1, 1.5, 2, 3)),
]


@pytest.mark.parametrize(("name", "params"), PARAMETERS)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
def test_maps_and_gradients_are_the_packages(name, params, dim, scale):
    x = scores(4, 5, 6, scale=scale)
    for dtype, error in ((torch.float64, 1e-9), (torch.float32, 2e-5)):
        y, dx = gradient(functools.partial(getattr(ours, name), dim=dim, **params), x.to(dtype))
        # budget_bisect of the package has no gradient along the last of three axes by its positive number.
        want, want_dx = gradient(functools.partial(getattr(package, name), dim=-1 if dim == 2 else dim, **params), x)
        assert y.dtype == dx.dtype == dtype
        assert y.is_contiguous()
        assert (y - want).abs().max() < error
        if dtype is torch.float64:
            assert (dx - want_dx).abs().max() < 1e-6 * max(1, want_dx.abs().max())


@pytest.mark.parametrize("name", ["entmax_bisect", "normmax_bisect", "budget_bisect"])
def test_a_parameter_for_each_row(name):
    rows = torch.tensor([1.2, 1.5, 2.0, 2.8], dtype=torch.float64).reshape(4, 1, 1)
    x = scores(4, 5, 6)
    assert (getattr(ours, name)(x, rows) - getattr(package, name)(x, rows.expand(4, 5, 1))).abs().max() < 1e-9
    assert torch.equal(getattr(ours, name)(x.movedim(2, 0), rows.movedim(2, 0), 0).movedim(0, 2), getattr(ours, name)(x, rows))
    small, rows = scores(3, 4), rows[:3, 0].clone().requires_grad_()
    small.requires_grad_()
    assert gradcheck(getattr(ours, name), (small, rows))
    assert gradgradcheck(getattr(ours, name), (small, rows))


@every_loss
@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
def test_losses_and_gradients_are_the_packages(name, scale):
    x, y = scores(30, 7, scale=scale), labels(30, 7)
    for dtype, error in ((torch.float64, 1e-9), (torch.float32, 2e-5 * max(1.0, scale))):
        value, dx = gradient(lambda x: getattr(ours, name)(x, y), x.to(dtype))
        want, want_dx = gradient(lambda x: getattr(package, name)(x, y), x)
        assert value.dtype == dx.dtype == dtype
        assert value.min() >= 0
        assert (value - want).abs().max() < error
        assert (dx - want_dx).abs().max() < error


@pytest.mark.parametrize(
    ("name", "alpha"),
    [("entmax_bisect_loss", 0.5), *itertools.product(("entmax_bisect_loss", "normmax_bisect_loss"), (1.2, 1.5, 2.0, 3.0))],
)
def test_losses_of_alpha(name, alpha):
    x, y = scores(30, 7), labels(30, 7)
    value, dx = gradient(lambda x: getattr(ours, name)(x, y, alpha), x)
    want, want_dx = gradient(lambda x: getattr(package, name)(x, y, alpha), x)
    assert (value - want).abs().max() < 1e-9
    assert (dx - want_dx).abs().max() < 1e-9
    assert torch.allclose(getattr(ours, name)(x, y, torch.tensor(alpha, dtype=torch.float64)), value, atol=1e-14)
    assert torch.allclose(getattr(ours, name)(x, y, torch.full((30,), alpha)), value, atol=1e-6)


def test_cross_entropy_is_the_loss_of_alpha_1():
    x, y = scores(30, 7, scale=5.0), labels(30, 7)
    value, dx = gradient(lambda x: ours.entmax_bisect_loss(x, y, 1.0), x)
    want, want_dx = gradient(lambda x: torch.nn.functional.cross_entropy(x, y, reduction="none"), x)
    assert (value - want).abs().max() < 1e-13
    assert (dx - want_dx).abs().max() < 1e-13


@every_module
@pytest.mark.parametrize("reduction", ["none", "sum", "elementwise_mean"])
@pytest.mark.parametrize("ignore_index", [-100, 3])
def test_reductions_are_the_packages(name, reduction, ignore_index):
    x, y = scores(30, 7), labels(30, 7)
    mine, theirs = (getattr(m, name)(ignore_index=ignore_index, reduction=reduction) for m in (ours, package))
    value, dx = gradient(lambda x: mine(x, y), x)
    want, want_dx = gradient(lambda x: theirs(x, y), x)
    assert torch.allclose(value, want)
    assert torch.allclose(dx, want_dx)


def test_modules_are_their_functions():
    x, y = scores(4, 6), labels(4, 6)
    for module, want in (
        (ours.Sparsemax(0, 2), ours.sparsemax(x, 0)),
        (ours.Entmax15(dim=0, k=9), ours.entmax15(x, 0)),
        (ours.SparsemaxBisect(0), ours.sparsemax(x, 0)),
        (ours.EntmaxBisect(1.2, 0, 30), ours.entmax_bisect(x, 1.2, 0)),
        (ours.NormmaxBisect(3, 0), ours.normmax_bisect(x, 3, 0)),
        (ours.BudgetBisect(3, 0), ours.budget_bisect(x, 3, 0)),
    ):
        assert torch.equal(module(x), want)
        assert torch.equal(pickle.loads(pickle.dumps(module))(x), want)
        assert not module.state_dict()
        assert "dim=0" in repr(module)
    assert torch.equal(ours.EntmaxBisectLoss(1.3, 10, 2, "sum")(x, y), ours.EntmaxBisectLoss(1.3)(x[y != 2], y[y != 2]) * 3)


def test_support_sizes():
    x, y = scores(5, 8), labels(5, 8)
    for function in (ours.sparsemax, ours.entmax15, ours.Sparsemax(return_support_size=True)):
        p, size = function(x) if isinstance(function, torch.nn.Module) else function(x, return_support_size=True)
        assert torch.equal(size, (p > 0).sum(-1, keepdim=True))
    for module in (ours.SparsemaxLoss, ours.Entmax15Loss):
        loss, size = module(return_support_size=True)(x, y)
        assert torch.equal(loss, module()(x, y))
        assert size.shape == (5, 1)


@pytest.mark.parametrize("name", ["_sparsemax_threshold_and_support", "_entmax_threshold_and_support"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_thresholds(name, dim):
    for scale in (1e-5, 0.5, 1e4):
        x = scores(3, 4, 5, scale=scale)
        tau, size = getattr(ours.activations, name)(x, dim)
        want_tau, want_size = getattr(entmax.activations, name)(x, dim)
        assert torch.allclose(tau, want_tau, atol=1e-12)
        assert torch.equal(size, want_size)


# Its defects, each there and not here


def raises(function, *arguments):
    try:
        function(*arguments)
    except (RuntimeError, AttributeError, IndexError):
        return True
    return False


def holds(check, *arguments):
    return bool(check(*arguments, raise_exception=False))


def test_a_nan_is_its_own_rows_alone():
    x = scores(3, 5)
    x[1, 2] = NAN
    assert all(raises(getattr(package, name), x) for name in ("sparsemax", "entmax15"))
    for name in MAPS:
        y, dx = gradient(getattr(ours, name), x)
        assert y.isnan().all(-1).tolist() == [False, True, False]
        assert y.isnan().any(-1).tolist() == [False, True, False]
        assert dx[[0, 2]].isfinite().all()
        assert torch.equal(y[[0, 2]], getattr(ours, name)(x[[0, 2]]))
    for name in LOSSES:
        assert getattr(ours, name)(x, labels(3, 5)).isnan().tolist() == [False, True, False]


def test_rows_of_nothing_but_minus_infinity_and_infinities():
    x = torch.tensor([[-INF] * 4, [INF, 1.0, INF, -INF], [0.0, 1.0, 2.0, -INF]])
    assert all(raises(getattr(package, name), x[i : i + 1]) for name in ("sparsemax", "entmax15") for i in (0, 1))
    for name in MAPS:
        y, dx = gradient(getattr(ours, name), x)
        assert y[0].isnan().all()
        half = 1.0 if name == "budget_bisect" else 0.5
        assert y[1].tolist() == [half, 0, half, 0]
        assert torch.equal(y[2, :3], getattr(ours, name)(x[2, :3]))
        assert (dx[1] == 0).all()
        assert dx[2].isfinite().all()


@every_map
def test_masked_entries(name):
    x = scores(4, 7)
    x[:, 5:] = -INF
    y, dx = gradient(getattr(ours, name), x)
    assert torch.allclose(y[:, :5], getattr(ours, name)(x[:, :5]), atol=1e-15)
    assert (y[:, 5:] == 0).all()
    assert (dx[:, 5:] == 0).all()
    assert dx.isfinite().all()
    assert package.budget_bisect(x).isnan().all()


def test_alpha_1_is_softmax_and_its_gradient_passes_through():
    x = scores(3, 6)
    assert (package.entmax_bisect(x, 1.0) - x.softmax(-1)).abs().max() > 0.1
    assert (ours.entmax_bisect(x, 1.0) - x.softmax(-1)).abs().max() < 1e-15
    steps = [1.0 + sign * 10.0**-power for power in range(2, 15) for sign in (-1, 1)]
    for near in steps:
        distance = (ours.entmax_bisect(x, near) - x.softmax(-1)).abs().max()
        assert distance < 0.5 * abs(near - 1) + 1e-15
    for alpha in (1.0, 1.0 + 1e-9, 1.0 - 1e-6):
        alpha = torch.full((3, 1), alpha, dtype=torch.float64, requires_grad=True)
        moving = x.clone().requires_grad_()
        assert holds(gradcheck, ours.entmax_bisect, (moving, alpha))
        assert holds(gradgradcheck, ours.entmax_bisect, (moving, alpha))
        assert not holds(gradcheck, package.entmax_bisect, (moving, alpha))
    slopes = []
    for alpha in (1.0, 1.00001, 1.0001):
        alpha = torch.tensor(alpha, requires_grad=True)
        slopes.append(torch.autograd.grad(ours.entmax_bisect(x.float(), alpha).square().sum(), alpha)[0].item())
    assert max(slopes) - min(slopes) < 1e-3 * abs(slopes[0])


@pytest.mark.parametrize("name", ["sparsemax", "entmax15", "entmax_bisect"])
def test_double_backward_of_maps(name):
    x = scores(3, 6).requires_grad_()
    assert holds(gradgradcheck, getattr(ours, name), (x,))
    assert holds(gradgradcheck, getattr(package, name), (x,)) == (name == "sparsemax")


@every_loss
def test_double_backward_of_losses(name):
    x, y = scores(3, 6).requires_grad_(), labels(3, 6)
    assert holds(gradcheck, lambda x: getattr(ours, name)(x, y), (x,))
    assert holds(gradgradcheck, lambda x: getattr(ours, name)(x, y), (x,))
    assert not holds(gradgradcheck, lambda x: getattr(package, name)(x, y), (x,))

    def slope(x):
        return torch.autograd.grad(getattr(ours, name)(x, y).sum(), x, create_graph=True)[0]

    assert holds(gradgradcheck, slope, (x,))


@pytest.mark.parametrize("name", ["entmax_bisect_loss", "normmax_bisect_loss"])
@pytest.mark.parametrize("alphas", [(1.3, 2.5, 1.7), (1.0, 1.5, 2.0), (3.0,)])
def test_losses_have_gradients_in_alpha(name, alphas):
    x, y = scores(3, 6).requires_grad_(), labels(3, 6)
    alpha = torch.tensor(alphas, dtype=torch.float64).reshape(-1, 1).requires_grad_()
    assert gradcheck(lambda x, a: getattr(ours, name)(x, y, a), (x, alpha))
    assert gradgradcheck(lambda x, a: getattr(ours, name)(x, y, a), (x, alpha))
    single = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.grad(getattr(package, name)(x, y, single).sum(), single, allow_unused=True) == (None,)


@every_map
def test_a_common_offset_of_a_million(name):
    x = scores(20, 6).float() + 1e6
    exact = getattr(package, name)(x.double() - 1e6)
    assert (getattr(ours, name)(x) - exact).abs().max() < 5e-7
    if name in ("entmax_bisect", "normmax_bisect", "budget_bisect"):
        assert (package.entmax_bisect(x) - package.entmax_bisect(x.double() - 1e6)).abs().max() > 5e-3


@every_module
def test_ignored_rows_may_hold_anything(name):
    x, y = scores(5, 6), labels(5, 6)
    y[1] = -100
    assert raises(getattr(package, name)(), x, y)
    x[1] = torch.tensor([NAN, INF, -INF, 0.0, 1e300, NAN])
    kept = [0, 2, 3, 4]
    value, dx = gradient(lambda x: getattr(ours, name)(reduction="none")(x, y), x)
    rest = getattr(ours, name)(reduction="none")(x[kept], y[kept])
    assert value[1] == 0
    assert (dx[1] == 0).all()
    assert torch.equal(value[kept], rest)
    for reduction in ("elementwise_mean", "mean"):
        assert torch.allclose(getattr(ours, name)(reduction=reduction)(x, y), rest.mean())
    assert torch.allclose(getattr(ours, name)(ignore_index=-1, reduction="sum")(x, y.masked_fill(y == -100, -1)), rest.sum())
    assert getattr(ours, name)(reduction="sum")(x[1:2], y[1:2]) == 0
    assert getattr(ours, name)()(x[1:2], y[1:2]).isnan()
    y[1] = 6
    with pytest.raises(RuntimeError if name.startswith("Normmax") else ValueError):
        getattr(ours, name)()(x, y)


@every_loss
def test_losses_with_absent_classes(name):
    x, y = scores(20, 7), labels(20, 5)
    x[:, 5:] = -INF
    assert getattr(package, name)(x, y).isnan().all()
    value, dx = gradient(lambda x: getattr(ours, name)(x, y), x)
    want, want_dx = gradient(lambda x: getattr(ours, name)(x, y), x[:, :5])
    assert torch.allclose(value, want, atol=1e-14)
    assert torch.allclose(dx[:, :5], want_dx, atol=1e-14)
    assert (dx[:, 5:] == 0).all()
    assert getattr(ours, name)(x, torch.full_like(y, 6)).isinf().all()


@every_loss
def test_losses_are_never_negative(name):
    for dtype, scale in itertools.product((torch.float16, torch.float32, torch.float64), (1e-4, 1.0, 1e3)):
        x = scores(400, 9, dtype=dtype, scale=scale)
        y = x.argmax(-1)
        value = getattr(ours, name)(x, y)
        assert value.dtype is dtype
        assert value.min() >= 0
        assert (value[(x.sort(-1).values.diff(dim=-1)[:, -1] > 2.5)] == 0).all()
    assert (getattr(ours, name)(torch.zeros(2, 5), torch.tensor([0, 4])) > 0).all()
    x = scores(5000, 9, dtype=torch.float32) + 1e3
    y = x.argmax(-1)
    assert (getattr(ours, name)(x, y) - getattr(ours, name)(x.double(), y)).abs().max() < 5e-7
    assert name == "sparsemax_loss" or getattr(package, name)(x, y).min() < -1e-5


@every_module
@pytest.mark.parametrize("map_name", MAPS)
def test_shapes_on_any_device(name, map_name):
    x = torch.empty(4, 6, device="meta")
    assert getattr(ours, map_name)(x).shape == (4, 6)
    assert getattr(ours, name)(reduction="none")(x, torch.empty(4, dtype=torch.long, device="meta")).shape == (4,)


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
def test_k_has_no_influence(name):
    x = scores(3, 40, 4, scale=0.01)
    want = getattr(ours, name)(x, 1)
    for dim, k in itertools.product((1, -2), (1, 3, 7, 39, 40, 41, 100000)):
        assert torch.equal(getattr(ours, name)(x, dim, k), want)
    assert raises(getattr(package, name), x, -2, 3)


def test_integers_are_numbers():
    x = torch.tensor([1, 2, 3])
    assert raises(package.sparsemax, x)
    assert package.entmax_bisect(x).tolist() == pytest.approx([1 / 3] * 3)
    for name in MAPS:
        assert torch.equal(getattr(ours, name)(x), getattr(ours, name)(x.float()))
    assert ours.sparsemax_loss(x[None], torch.tensor([1])).tolist() == [1.0]


def test_modules_learn_alpha():
    alpha = torch.nn.Parameter(torch.tensor(1.3))
    assert raises(package.EntmaxBisect, alpha)
    for module in (ours.EntmaxBisect(alpha), ours.NormmaxBisect(alpha), ours.EntmaxBisectLoss(alpha)):
        assert list(module.parameters()) == [alpha]
        arguments = (scores(4, 6), labels(4, 6)) if isinstance(module, ours.EntmaxBisectLoss) else (scores(4, 6),)
        (slope,) = torch.autograd.grad(module(*arguments).square().sum(), alpha)
        assert slope.isfinite()
        assert slope != 0


def test_budget_beside_an_axis_of_one():
    x = scores(4, 1, 6).requires_grad_()
    assert holds(gradcheck, ours.budget_bisect, (x,))
    with pytest.raises((RuntimeError, GradcheckError)):
        gradcheck(package.budget_bisect, (x,))


def test_empty_input():
    assert raises(package.sparsemax, torch.zeros(3, 0))
    for name in MAPS:
        for shape in ((3, 0), (0, 3)):
            assert getattr(ours, name)(torch.zeros(shape)).shape == shape


@every_map
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_computed_wider(name, dtype):
    x = scores(3, 300, dtype=dtype)
    assert torch.equal(getattr(ours, name)(x), getattr(ours, name)(x.float()).to(dtype))


# normmax and budget by their definitions


@pytest.mark.parametrize("alpha", [1.0 + 1e-9, 1.001, 1.05, 1.5, 2.0, 7.0, 1000.0, 1e300])
def test_normmax_meets_its_conditions(alpha):
    for x in (scores(50, 9), scores(50, 9, scale=100.0), scores(50, 9, scale=1e-6), scores(50, 1), scores(50, 9).round()):
        p = ours.normmax_bisect(x, alpha)
        assert (p.sum(-1) - 1).abs().max() < 1e-14
        most = p.amax(-1, keepdim=True)
        support = p > 0
        norm = ((p / most) ** min(alpha, 1e6)).sum(-1, keepdim=True) ** (1 / min(alpha, 1e6)) * most
        tau = x.amax(-1, keepdim=True) - (most / norm) ** (alpha - 1)
        # On the support the slope of the objective is tau, off it at most that (but at 0 mass the slope is x).
        slope = x - torch.where(support, torch.exp((alpha - 1) * torch.log(p / norm)), 0.0)
        if alpha < 100:
            assert (slope - tau).abs()[support].max() < 1e-9
        # A power that vanishes in float64 has no mass either.
        assert ((x - tau).clamp(min=0) ** (1 / (alpha - 1)))[~support].lt(1e-9).all() or alpha > 100


def test_normmax_at_and_below_1_takes_the_largest():
    x = torch.tensor([[0.0, 2.0, 1.0], [3.0, 3.0, -INF]], dtype=torch.float64)
    for alpha in (1, 0.3):
        assert ours.normmax_bisect(x, alpha).tolist() == [[0, 1, 0], [0.5, 0.5, 0]]
        assert ours.normmax_bisect_loss(x, torch.tensor([2, 0]), alpha).tolist() == [1, 0]
    assert package.normmax_bisect(x[:1], 0.3).argmax() == 0  # the smallest


def budget_by_bisection(row, budget):
    """In exact fractions of float64: tau between neighbouring numbers."""
    low, high = row.min().item() - 1, row.max().item()
    for _ in range(200):
        middle = (low + high) / 2
        mass = math.fsum(min(max(value - middle, 0.0), 1.0) for value in row.tolist())
        low, high = (middle, high) if mass >= budget else (low, middle)
    return [min(max(value - high, 0.0), 1.0) for value in row.tolist()]


@pytest.mark.parametrize("budget", [0.001, 0.5, 1, 1.7, 2, 4.999, 6, 8.5])
def test_budget_by_bisection(budget):
    for scale in (1e-3, 0.3, 1.0, 10.0, 1e5):
        x = scores(10, 9, scale=scale)
        p = ours.budget_bisect(x, budget)
        assert (p.sum(-1) - budget).abs().max() < 1e-12
        for row, got in zip(x, p, strict=True):
            assert got.tolist() == pytest.approx(budget_by_bisection(row, budget), abs=1e-10 * max(1.0, scale / 10))


def test_budget_at_its_ends():
    x = torch.tensor([3.0, 1.0, 2.0, -INF], dtype=torch.float64)
    for budget, want in ((-1, [0, 0, 0, 0]), (0, [0, 0, 0, 0]), (3, [1, 1, 1, 0]), (4, [1, 1, 1, 0]), (100, [1, 1, 1, 0])):
        p, dx = gradient(lambda x, budget=budget: ours.budget_bisect(x, budget), x)
        assert p.tolist() == want
        assert (dx == 0).all()
    # Ties share, and where they fill exactly are full.
    ties = torch.tensor([2.0, 2.0, 0.0], dtype=torch.float64)
    assert ours.budget_bisect(ties, 1).tolist() == [0.5, 0.5, 0]
    p, dx = gradient(lambda x: ours.budget_bisect(x, 2), ties)
    assert p.tolist() == [1, 1, 0]
    assert (dx == 0).all()
    # Scores far apart.
    assert ours.budget_bisect(torch.tensor([1e300, 0.0, -1e300, 0.5]), 2).tolist() == [1, 0.25, 0, 0.75]
    assert ours.budget_bisect(torch.tensor([INF, 0.0, 0.5]), 2).tolist() == [1, 0.25, 0.75]
    assert ours.budget_bisect(torch.tensor([INF, INF, INF, 0.5]), 1.5).tolist() == [0.5, 0.5, 0.5, 0]
    assert ours.budget_bisect(x, NAN).isnan().all()


def test_a_budget_of_1_is_sparsemax():
    for scale in (0.1, 1.0, 30.0):
        x = scores(30, 8, scale=scale)
        assert torch.allclose(ours.budget_bisect(x, 1), isentropic.torch.sparsemax(x), atol=1e-14)


# Under torch's transforms


@every_map
def test_maps_under_vmap_and_compile(name):
    function, x = getattr(ours, name), scores(3, 6)
    assert torch.equal(torch.func.vmap(function)(x), function(x))
    want = gradient(function, x)[1]
    weights = scores(3, 6, seed=9)
    assert torch.allclose(torch.func.vmap(torch.func.grad(lambda x, w: (function(x) * w).sum()))(x, weights), want)
    assert torch.equal(torch.compile(function, fullgraph=True, backend="aot_eager")(x), function(x))


@every_module
def test_losses_under_vmap_and_compile(name):
    loss, x, y = getattr(ours, name)(reduction="none"), scores(3, 6), labels(3, 6)
    assert torch.equal(torch.func.vmap(loss)(x, y), loss(x, y))
    want = torch.func.grad(lambda x: loss(x, y).sum())(x)
    assert torch.allclose(torch.func.vmap(torch.func.grad(lambda x, y: loss(x[None], y[None]).sum()))(x, y), want)
    leaf = x.clone().requires_grad_()
    torch.compile(loss, fullgraph=True, backend="aot_eager")(leaf, y).sum().backward()
    assert torch.allclose(leaf.grad, want)


# Errors name the argument


def test_errors():
    x, y = scores(4, 6), labels(4, 6)
    for target in (y[:3], y[:, None]):
        with pytest.raises(ValueError, match="target must hold one class for each row"):
            ours.SparsemaxLoss()(x, target)
    with pytest.raises(TypeError, match="integers"):
        ours.sparsemax_loss(x, y.double())
    with pytest.raises(ValueError, match="reduction must be"):
        ours.SparsemaxLoss(reduction="average")
    with pytest.raises(ValueError, match="alpha"):
        ours.entmax_bisect(x, -1.0)
    with pytest.raises(TypeError, match="target must be of integers"):
        ours.normmax_bisect_loss(x, y > 2)
    parameter = {"entmax_bisect": "alpha", "normmax_bisect": "alpha", "budget_bisect": "budget"}
    for name in ("sparsemax", "entmax15", *parameter):
        of = getattr(ours, name)
        for wrong in (x.tolist(), x.to(torch.complex64), x.to(torch.float8_e4m3fn)):
            with pytest.raises(TypeError, match=r"^[a-z_]+: [xX] must be "):
                of(wrong)
        with pytest.raises(IndexError, match=r"^[a-z_]+: dim 2 is out of bounds"):
            of(x, dim=2)
        if name in parameter:
            with pytest.raises(TypeError, match=f"^{name}: {parameter[name]} must be a number or a tensor, got str"):
                of(x, **{parameter[name]: "a"})
            with pytest.raises(ValueError, match=rf"^[a-z_]+: {parameter[name]} must be .* \(4, 1\), .* got shape \(3,\)"):
                of(x, **{parameter[name]: torch.ones(3)})
            assert torch.equal(of(x, **{parameter[name]: [1.5]}), of(x, **{parameter[name]: 1.5}))
