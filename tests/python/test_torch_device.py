"""isentropic.torch on tensors of a GPU: see on_device.py. What composes row kernels and torch's operations has the CPU's
results, nothing waits for the device, and a softmax attention is torch's own."""

import contextlib
import inspect
import itertools
import math
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes  # noqa: E402

import isentropic  # noqa: E402
import isentropic.torch as et  # noqa: E402
from isentropic import _descriptions  # noqa: E402
from isentropic.torch import _attention, _loss_modules, _schemas, backends  # noqa: E402
from isentropic.torch._modules import Loss, TeacherLoss  # noqa: E402
from isentropic.torch.backends import cpu, device_transport, linear_attention, tiles  # noqa: E402
from on_device import CUDA, NEEDS, OnDevice, device, to_device, to_host, use_kernels  # noqa: E402

pytestmark = NEEDS


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """The table of implementations for CUDA."""
    use_kernels(monkeypatch)
    backends._on_cuda.cache_clear()
    yield backends.PLACES["CUDA"]
    backends._on_cuda.cache_clear()


def expect_near(got, want, bound):
    """The largest difference, in units of the largest number."""
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    assert len(got) == len(want)
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype
        a, b = a.double(), b.double()
        assert torch.equal(a.isnan(), b.isnan())
        apart, most = (float(x.nan_to_num(0, 0, 0).abs().max()) if b.numel() else 0.0 for x in (a - b, b))
        assert apart <= bound * most, k


# Attention by tiles.

BOUNDS = {torch.float64: 1e-9, torch.float32: 3e-5, torch.bfloat16: 2e-2}  # products are added in another order
SCALES = (
    ("sqrt", 1.0, 512.0, None),
    ("number", 0.3, 512.0, None),
    ("entropy_invariant", 1.0, 16.0, None),
    ("log_n", 1.0, 512.0, 0.8),
)


def tensors(dtype, m, n, seed=0):
    """q, k, v with heads that share keys, and v with an axis that broadcasts."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    return normal(2, 6, m, 8), normal(2, 3, n, 8), normal(1, 3, n, 5)


def mask_of(kind, m, n, dtype):
    generator = torch.Generator().manual_seed(5)
    seen = torch.rand(2, 1, m, n, generator=generator) > 0.3
    seen[0, 0, -1] = False
    if kind == "float":
        return torch.where(seen, torch.randn(1, 6, m, n, generator=generator), -math.inf).to(dtype)
    return seen if kind == "bool" else None


class Largest(TorchDispatchMode):
    """The most numbers of one tensor that an operation makes."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.is_contiguous() and found.is_floating_point():
            self.most = max(self.most, found.numel())
        return found


@pytest.mark.parametrize("scores", [1 << 24, 150])
@pytest.mark.parametrize(
    ("name", "params"),
    [("entmax", {"alpha": 1.5}), ("sparsemax", {}), ("top_k_softmax", {"k": 3}), ("softmax", {"temperature": 0.7})],
)
def test_attention_by_tiles_is_that_of_the_cpu(name, params, scores, table, monkeypatch):
    monkeypatch.setattr(tiles, "SCORES", scores)
    numbers = {one["name"]: params.get(one["name"], one["default"]) for one in _descriptions.MAPS[name]["params"]}
    named = _schemas.map_arguments(name, numbers)
    turn = 0
    for i, (m, n) in enumerate(((5, 7), (7, 7), (7, 4), (1, 6))):
        for j, kind in enumerate((None, "bool", "float")):
            for causal in (False, True):
                turn += 1
                if causal != (i + j + (scores == 150)) % 2:  # the other one at the other number of scores
                    continue
                dtype, bound = list(BOUNDS.items())[turn // 2 % 3]
                q, k, v = tensors(dtype, m, n)
                call = (*named, *SCALES[turn % 4], causal, 1.5 if turn % 5 == 0 else None)
                given = q, k, v, mask_of(kind, m, n, dtype), None
                g = tensors(dtype, m, n, seed=1)[0][..., :5]
                grads = [(g, g[..., 0]), (None, g[..., 0]), (g, None)][turn % 3]
                for operator, more, factor in (
                    ("attention", (), 1),
                    ("attention_entropy", (), 1),
                    ("attention_vjp", (g,), 20),
                    ("attention_entropy_vjp", grads, 20),
                ):
                    with Largest() as seen:
                        got = table[operator](*given, *more, *call)
                    assert seen.most <= max(scores, 2 * 6 * 8 * 8)
                    expect_near(got, cpu.IMPLEMENTATIONS[operator](*given, *more, *call), factor * bound)


def test_attention_gives_gradients_in_parameters(table, monkeypatch):
    monkeypatch.setattr(tiles, "SCORES", 100)
    q, k, v = tensors(torch.float64, 7, 9)
    rows = torch.linspace(1.1, 2.3, 2 * 6 * 7, dtype=torch.float64).reshape(2, 6, 7, 1)
    call = ("entmax", ["alpha", "temperature"], [1.5, 0.8], ["alpha"], *SCALES[0], True, None)
    given = q, k, v, mask_of("bool", 7, 9, torch.float64), rows
    expect_near(table["attention"](*given, *call), cpu.IMPLEMENTATIONS["attention"](*given, *call), 1e-12)
    grads = q[..., :5], q[..., 5]
    got = table["attention_entropy_vjp"](*given, *grads, *call)
    expect_near(got, cpu.IMPLEMENTATIONS["attention_entropy_vjp"](*given, *grads, *call), 1e-9)


@pytest.mark.parametrize("columns", [["alpha", "kappa", "sinks"], ["sinks"], ["kappa"]], ids=str)
@pytest.mark.parametrize("softcap", [None, 1.2])
def test_sinks_and_learned_scales_by_tiles(columns, softcap, table, monkeypatch):
    monkeypatch.setattr(tiles, "SCORES", 100)
    for turn, (scale, causal, kind) in enumerate(
        itertools.product(("log_n", "entropy_invariant"), (False, True), (None, "bool", "float"))
    ):
        dtype, bound = list(BOUNDS.items())[turn % 3]
        q, k, v = tensors(dtype, 7, 9 if turn % 2 else 5)
        given = torch.Generator().manual_seed(turn)
        rows = 1.1 + torch.rand(2, 6, 7, len(columns), generator=given, dtype=torch.float64)
        call = ("entmax", ["alpha", "temperature"], [1.5, 0.8], columns, scale, 1.0, 512.0, None, causal, softcap)
        given = q, k, v, mask_of(kind, 7, k.shape[-2], dtype), rows
        for operator, grads, factor in (
            ("attention_entropy", (), 1),
            ("attention_entropy_vjp", (q[..., :5], q[..., 5]), 20),
            ("attention_vjp", (q[..., :5],), 20),
        ):
            got, want = table[operator](*given, *grads, *call), cpu.IMPLEMENTATIONS[operator](*given, *grads, *call)
            expect_near(got, want, factor * bound)
            if operator == "attention_vjp":
                composed = backends.REFERENCE[operator](*given, *grads, *call)
                expect_near(composed[3], want[3], 40 * bound)


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
def test_only_minus_infinity_hides(name):
    q, k, v = (torch.randn(1, 2, n, 4, generator=torch.Generator().manual_seed(n)) for n in (3, 5, 5))
    mask = torch.zeros(3, 5)
    mask[0, 1], mask[1, 1] = math.nan, -math.inf
    with device():
        out = et.attention(*map(to_device, (q, k, v)), map=name, mask=to_device(mask))
    expect_near(to_host(out), et.attention(q, k, v, map=name, mask=mask), 1e-5)
    assert to_host(out).isnan().sum() == 2 * 4


def test_products_have_the_tensors_type_under_autocast(table):
    q, k, v = tensors(torch.float32, 5, 7)
    call = ("sparsemax", [], [], [], *SCALES[0], False, None)
    want = table["attention"](q, k, v, None, None, *call)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(table["attention"](q, k, v, None, None, *call), want)


# Linear attention.


@pytest.mark.parametrize(("chunk", "scores"), [(4, 1 << 24), (4, 300), (1024, 1 << 24)])
def test_linear_attention_is_that_of_the_cpu(chunk, scores, table, monkeypatch):
    monkeypatch.setattr(linear_attention, "CHUNK", chunk)
    monkeypatch.setattr(tiles, "SCORES", scores)
    for by_scores in (False, True):
        monkeypatch.setattr(linear_attention, "_is_short", lambda q, k, short=by_scores: short)
        # Each size with each type somewhere, with both ways and among the parametrisations.
        for turn, (m, n) in enumerate(((5, 7), (9, 9), (1, 6), (7, 4), (13, 17), (6, 6)), by_scores + (scores == 300)):
            dtype, bound = list(BOUNDS.items())[(turn + 2 * (chunk > 4)) % len(BOUNDS)]
            for causal in (False, True):
                q, k, v = tensors(dtype, m, n)
                call = (None if m == n else 0.4, causal)
                expect_near(
                    table["linear_attention"](q, k, v, *call),
                    cpu.IMPLEMENTATIONS["linear_attention"](q, k, v, *call),
                    bound,
                )
                g = tensors(dtype, m, n, seed=1)[0][..., :5]
                got = table["linear_attention_vjp"](q, k, v, g, *call)
                expect_near(got, cpu.IMPLEMENTATIONS["linear_attention_vjp"](q, k, v, g, *call), 20 * bound)


def test_short_texts_take_all_scores():
    q = torch.empty(3, 7)
    assert linear_attention._is_short(q, torch.empty(64, 7)) and not linear_attention._is_short(q, torch.empty(65, 7))


# Sinkhorn.


def waiting(monkeypatch):
    """Allows the one wait of Sinkhorn's loop, and counts it."""
    counted = []

    def finished(converged):
        counted.append(1)
        with _disable_current_modes():
            return bool(to_host(converged).all())

    monkeypatch.setattr(device_transport, "finished", finished)
    return counted


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.02])
def test_sinkhorn_is_that_of_the_cpu(epsilon, table, monkeypatch):
    counted = waiting(monkeypatch)
    generator = torch.Generator().manual_seed(3)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-6)):
        a, b = torch.rand(2, 6, generator=generator), torch.rand(2, 5, generator=generator)
        a[0, 0] = b[1, 2] = 0
        a, b = (x.to(dtype) / x.to(dtype).sum(-1, keepdim=True) for x in (a, b))
        cost = torch.rand(1, 6, 5, generator=generator).to(dtype)
        cost[0, 1, 1] = math.inf
        call = (a, b, cost, epsilon, tolerance, 10000, None)
        counted.clear()
        got, want = table["sinkhorn"](*call), cpu.IMPLEMENTATIONS["sinkhorn"](*call)
        assert got[8].all() and len(counted) == -(-int(got[7].max()) // device_transport.CHECK)
        expect_near(got[:2], want[:2], 50 * tolerance)
        assert (got[4] <= tolerance).all()
        # Potentials count up to a constant.
        for f, g, plan in ((got[2], got[3], got[1]), (want[2], want[3], want[1])):
            rows = a[..., None] * b[..., None, :] * torch.exp((f[..., None] + g[..., None, :] - cost) / epsilon)
            expect_near(rows, plan, 2e-5 if dtype is torch.float32 else 1e-12)
        exact = cpu.IMPLEMENTATIONS["optimal_transport"](a, b, cost, None)[0]
        assert (got[5] <= exact + 1e-6).all() and (exact <= got[6] + 1e-6).all()
        minimum = table["sinkhorn_minimum"](*call)
        expect_near(minimum[:2], cpu.IMPLEMENTATIONS["sinkhorn_minimum"](*call)[:2], 50 * tolerance)


def test_what_the_cpu_refuses_is_nan(table, monkeypatch):
    waiting(monkeypatch)
    half = torch.tensor([0.5, 0.5])
    wrong = {
        "unequal": (half, torch.tensor([0.5, 0.4]), torch.zeros(2, 2)),
        "negative": (torch.tensor([1.5, -0.5]), half, torch.zeros(2, 2)),
        "nan": (half, half, torch.tensor([[0.0, 1.0], [math.nan, 0.0]])),
        "forbidden": (half, half, torch.tensor([[math.inf, math.inf], [1.0, 0.0]])),
    }
    a, b, cost = (torch.stack(x) for x in zip(*wrong.values(), (half, half, torch.ones(2, 2)), strict=True))
    found = table["sinkhorn"](a, b, cost, 1.0, 1e-6, 50, None)
    assert found[0].isnan().tolist() == [True] * 4 + [False]
    assert found[1].isnan().all((1, 2)).tolist() == [True] * 4 + [False]
    assert found[8].tolist() == [False] * 4 + [True]


def test_sinkhorn_that_is_stopped_early_says_so(table, monkeypatch):
    waiting(monkeypatch)
    half, cost = torch.tensor([0.5, 0.5]), torch.tensor([[0.0, 1.0], [3.0, 0.5]])
    found = table["sinkhorn"](half, torch.tensor([0.9, 0.1]), cost, 0.01, 1e-12, 3, None)
    assert not found[8] and found[7] == 3 and found[4] > 1e-12
    torch.testing.assert_close(found[1].sum(-1), half)


# Every function.


class Made:
    """Tensors of this machine, or the same ones on the device, of a generator."""

    def __init__(self, wrap):
        self.generator, self.wrap, self.moving = torch.Generator().manual_seed(11), wrap, []

    def given(self, x, grad=True):
        x = self.wrap(x)
        if grad and x.is_floating_point():
            self.moving.append(x.requires_grad_())
        return x

    def normal(self, *shape, grad=True):
        return self.given(torch.randn(shape, generator=self.generator), grad)

    def distribution(self, *shape, grad=True):
        return self.given(torch.randn(shape, generator=self.generator).softmax(-1), grad)

    def uniform(self, *shape, grad=True):
        return self.given(torch.rand(shape, generator=self.generator), grad)

    def full(self, number, *shape):
        return self.given(torch.full(shape, number, dtype=torch.float64))

    def classes(self):
        return self.given(torch.tensor([1, 2, 3]))

    def heads(self, m=6, n=6):
        return self.normal(2, 4, m, 8), self.normal(2, 2, n, 8), self.normal(2, 2, n, 8)


def scores(a):
    return a.normal(3, 8)


CALLS = {
    "softmax": lambda a: et.softmax(scores(a), temperature=a.full(0.7, 3, 1)),
    "log_softmax": lambda a: et.log_softmax(scores(a), dim=0),
    "logsumexp": lambda a: et.logsumexp(scores(a)),
    "sigsoftmax": lambda a: et.sigsoftmax(scores(a)),
    "taylor_softmax": lambda a: et.taylor_softmax(scores(a)),
    "sparsemax": lambda a: et.sparsemax(scores(a)),
    "entmax": lambda a: et.entmax(scores(a), alpha=a.full(1.3, 3, 1)),
    "top_k_softmax": lambda a: et.top_k_softmax(scores(a), k=3),
    "top_p_softmax": lambda a: et.top_p_softmax(scores(a), p=0.8),
    "min_p_softmax": lambda a: et.min_p_softmax(scores(a), p=0.1),
    "perturb_max": lambda a: et.perturb_max(scores(a)),
    "entropy_normalize": lambda a: et.entropy_normalize(scores(a), entropy=a.full(1.2, 3, 1)),
    "entropy_clip": lambda a: et.entropy_clip(scores(a), min_entropy=0.5, max_entropy=1.0),
    "ratio_map": lambda a: et.ratio_map(scores(a), torch.exp),
    "softmax_loss": lambda a: et.softmax_loss(scores(a), a.classes(), label_smoothing=0.1, ignore_index=2),
    "sparsemax_loss": lambda a: et.sparsemax_loss(scores(a), a.classes()),
    "entmax_loss": lambda a: et.entmax_loss(scores(a), a.classes(), alpha=a.full(1.3, 3, 1)),
    "top_k_softmax_loss": lambda a: et.top_k_softmax_loss(scores(a), a.classes(), k=3),
    "top_p_softmax_loss": lambda a: et.top_p_softmax_loss(scores(a), a.classes(), p=0.8),
    "margin_softmax_loss": lambda a: et.margin_softmax_loss(a.uniform(3, 8), a.classes(), kind="arc"),
    "multilabel_softmax_loss": lambda a: et.multilabel_softmax_loss(scores(a), a.given((torch.eye(3, 8)), grad=False)),
    "smooth_accuracy_loss": lambda a: et.smooth_accuracy_loss(scores(a), a.classes()),
    "distillation_loss": lambda a: et.distillation_loss(scores(a), a.normal(3, 8, grad=False), temperature=2.0),
    "jsd_loss": lambda a: et.jsd_loss(scores(a), a.normal(3, 8, grad=False)),
    "surrogate_loss": lambda a: et.surrogate_loss(scores(a), a.classes()),
    "linear_loss": lambda a: et.linear_loss(a.normal(3, 4), a.normal(8, 4), a.classes()),
    "entropy": lambda a: et.entropy(a.distribution(3, 8)),
    "perplexity": lambda a: et.perplexity(a.distribution(3, 8)),
    "renyi_entropy": lambda a: et.renyi_entropy(a.distribution(3, 8), alpha=2.5),
    "tsallis_entropy": lambda a: et.tsallis_entropy(a.distribution(3, 8), alpha=0.5),
    "binary_entropy": lambda a: et.binary_entropy(a.uniform(3, 8)),
    "self_information": lambda a: et.self_information(a.uniform(3, 8)),
    "cross_entropy": lambda a: et.cross_entropy(a.distribution(3, 8), a.distribution(3, 8)),
    "kl_divergence": lambda a: et.kl_divergence(a.distribution(3, 8), a.distribution(3, 8)),
    "js_divergence": lambda a: et.js_divergence(a.distribution(3, 8), a.distribution(3, 8)),
    "js_distance": lambda a: et.js_distance(a.distribution(3, 8), a.distribution(3, 8)),
    "varentropy": lambda a: et.varentropy(a.distribution(3, 8)),
    "hill_number": lambda a: et.hill_number(a.distribution(3, 8), order=2.5),
    "total_variation": lambda a: et.total_variation(a.distribution(3, 8), a.distribution(3, 8)),
    "hellinger_distance": lambda a: et.hellinger_distance(a.distribution(3, 8), a.distribution(3, 8)),
    "chi_squared_divergence": lambda a: et.chi_squared_divergence(a.distribution(3, 8), a.distribution(3, 8)),
    "jeffreys_divergence": lambda a: et.jeffreys_divergence(a.distribution(3, 8), a.distribution(3, 8)),
    "renyi_divergence": lambda a: et.renyi_divergence(a.distribution(3, 8), a.distribution(3, 8), alpha=2.5),
    "alpha_divergence": lambda a: et.alpha_divergence(a.distribution(3, 8), a.distribution(3, 8), alpha=0.5),
    "normalized_mutual_information": lambda a: et.normalized_mutual_information(a.distribution(2, 12).reshape(2, 3, 4)),
    "variation_of_information": lambda a: et.variation_of_information(a.distribution(2, 12).reshape(2, 3, 4)),
    "conditional_mutual_information": lambda a: et.conditional_mutual_information(a.distribution(24).reshape(2, 3, 4)),
    "soft_top_k": lambda a: et.soft_top_k(scores(a), k=3),
    "doubly_stochastic": lambda a: et.doubly_stochastic(a.normal(3, 4, 5), temperature=a.full(0.7, 3, 1, 1), iterations=9),
    "mutual_information": lambda a: et.mutual_information(a.distribution(2, 12).reshape(2, 3, 4)),
    "joint_entropy": lambda a: et.joint_entropy(a.distribution(2, 12).reshape(2, 3, 4)),
    "conditional_entropy": lambda a: et.conditional_entropy(a.distribution(2, 12).reshape(2, 3, 4)),
    "gumbel_softmax": lambda a: et.gumbel_softmax(scores(a), seed=1, hard=True, stream=a.given(torch.arange(3))),
    "token_statistics": lambda a: et.token_statistics(scores(a), a.classes(), temperature=a.full(1.3, 3, 1)),
    "linear_token_statistics": lambda a: et.linear_token_statistics(scores(a), a.normal(8, 8), a.classes(), softcap=5.0),
    "sparse_distillation_loss": lambda a: et.sparse_distillation_loss(
        scores(a), a.given(torch.tensor([[0, 3], [5, -1], [7, 2]]), grad=False), a.given(torch.full((3, 2), -1.0), grad=False)
    ),
    "attention": lambda a: attention_with_details(a),
    "scaled_dot_product_attention": lambda a: et.scaled_dot_product_attention(
        *a.heads(), is_causal=True, window=3, enable_gqa=True, sinks=a.normal(4), softcap=5.0
    ),
    "linear_attention": lambda a: et.linear_attention(*a.heads(), causal=True, scale=a.given(torch.tensor(0.3))),
    "sinkhorn": lambda a: et.sinkhorn(a.distribution(8), a.distribution(6), a.uniform(8, 6), epsilon=0.5, tolerance=1e-7),
    "sinkhorn_divergence": lambda a: et.sinkhorn_divergence(a.normal(5, 2), a.normal(6, 2), epsilon=0.5, tolerance=1e-7),
    "wasserstein_1d": lambda a: et.wasserstein_1d(
        scores(a), scores(a), u_weights=a.distribution(3, 8), v_weights=a.distribution(3, 8), order=2.0
    ),
    "wasserstein_histogram": lambda a: et.wasserstein_histogram(a.distribution(3, 8), a.distribution(3, 8), order=2.0),
    "sliced_wasserstein": lambda a: et.sliced_wasserstein(a.normal(5, 3), a.normal(6, 3)),
    "wasserstein": lambda a: et.wasserstein(a.normal(5, 3), a.normal(6, 3)),
    "optimal_transport": lambda a: et.optimal_transport(a.distribution(8), a.distribution(6), a.uniform(8, 6)),
    "partial_transport": lambda a: et.partial_transport(a.distribution(8), a.distribution(6), a.uniform(8, 6), mass=0.5),
    "unbalanced_sinkhorn": lambda a: et.unbalanced_sinkhorn(
        a.distribution(8), a.distribution(6), a.uniform(8, 6), epsilon=0.5, penalty=1.0
    ),
    "unbalanced_sinkhorn_divergence": lambda a: et.unbalanced_sinkhorn_divergence(
        a.normal(5, 2), a.normal(6, 2), epsilon=0.5, penalty=1.0
    ),
    "dual_value": lambda a: et.dual_value(a.normal(8), a.normal(6), a.distribution(8), a.distribution(6)),
    "c_transform": lambda a: et.c_transform(a.normal(8), a.uniform(8, 6)),
    "lipschitz_constant": lambda a: et.lipschitz_constant(a.normal(8), a.uniform(8, 8)),
    "gamma_for_entropy": lambda a: et.gamma_for_entropy(scores(a), entropy=1.0),
    "mean_field_entropy": lambda a: et.mean_field_entropy(scores(a), gamma=0.5),
    "power_transform": lambda a: et.power_transform(a.distribution(3, 8), gamma=0.5),
    "normalize_density": lambda a: et.normalize_density(a.distribution(3, 8), a.given(torch.ones(8), grad=False), entropy=1.0),
}


def attention_with_details(a):
    heads = a.heads(5)
    out, entropy = et.attention(*heads, causal=True, map="entmax", alpha=a.full(1.4, 4, 1, 1), return_entropy=True)
    found, weights = et.attention(*heads, causal=True, map="sparsemax", return_weights=True)
    return et.attention(*heads, map="sparsemax") + out + entropy.unsqueeze(-1) + found + weights.square().sum(-1, keepdim=True)


# Tested elsewhere, or not about tensors of this kind.
OTHERS = {
    "maximum_entropy": "the CPU's search, to which features and moments are copied",
    "keys_seen": "numbers of keys, below",
    "gumbel_noise": "draws, below",
    "sample": "draws, below",
    "speculative_sample": "draws, below",
    "normalize_joint": "the CPU's search, one warning",
    "sinkhorn_barycenter": "the CPU's search; its gradient decomposes matrices, for which torch waits",
    "clip_weights": "changes modules",
    "gradient_penalty": "calls a critic",
    "wgan_critic_loss": "calls a critic",
}
# The CPU's searches and programs, to which tensors are copied; each says so once.
ON_HOST = {
    "optimal_transport",
    "partial_transport",
    "unbalanced_sinkhorn",
    "unbalanced_sinkhorn_divergence",
    "wasserstein",
    "mean_field_entropy",
    "power_transform",
    "normalize_density",
}


def first(found):
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize("name", CALLS)
def test_no_function_waits_and_results_are_those_of_the_cpu(name, monkeypatch):
    counted = waiting(monkeypatch)
    there, here = Made(to_device), Made(lambda x: x)
    with device(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        got = first(CALLS[name](there))
        assert isinstance(got, OnDevice) and got.device == CUDA
        got.square().sum().backward()
    want = first(CALLS[name](here))
    want.square().sum().backward()
    assert bool(counted) == ("sinkhorn" in name and name not in ON_HOST)
    assert any("it runs on the CPU" in str(one.message) for one in said) == (name in ON_HOST)
    bound = 1e-4 if "sinkhorn" in name else 3e-5
    expect_near(to_host(got).detach(), want.detach(), bound)
    for x, y in zip(there.moving, here.moving, strict=True):
        expect_near(to_host(x.grad), y.grad, 10 * bound)


def test_draws_do_not_wait_and_are_those_of_the_cpu():
    x = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(2))
    drafts = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 0, 1]])
    with device():
        noise = et.gumbel_noise((3, 8), seed=5, position=2, device=CUDA)
        drawn = et.sample(to_device(x), seed=5, position=2)
        found = et.speculative_sample(None, to_device(x), to_device(drafts), seed=5)
    assert all(isinstance(one, OnDevice) for one in (noise, drawn, *found))
    expect_near(to_host(noise), et.gumbel_noise((3, 8), seed=5, position=2), 0)
    assert torch.equal(to_host(drawn), et.sample(x, seed=5, position=2))
    for got, want in zip(found, et.speculative_sample(None, x, drafts, seed=5), strict=True):
        assert torch.equal(to_host(got), want)


def test_keys_are_counted_where_the_mask_is():
    mask = torch.tensor([[True, False, True], [False, False, True]])
    with device():
        seen = et.keys_seen(2, 3, mask=to_device(mask))
    assert isinstance(seen, OnDevice) and to_host(seen).tolist() == [2, 1]


def test_the_status_of_gamma_stays_on_the_device():
    x = torch.tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 1.0], [math.nan, 0.0, 1.0]])
    with device():
        found = et.gamma_for_entropy(to_device(x), entropy=1.0)
    assert isinstance(found.status, OnDevice) and found.status.device == CUDA
    want = et.gamma_for_entropy(x, entropy=1.0)
    words = isentropic._numpy._entropy_control.STATUS
    assert [str(words[number]) for number in to_host(found.status).tolist()] == [str(word) for word in want.status]


MODULES = {name: one for name in dir(et) if isinstance(one := getattr(et, name), type) and issubclass(one, torch.nn.Module)}
OF_LOSSES = [name for name, one in MODULES.items() if issubclass(one, Loss) and name != "SparseDistillationLoss"]
NEEDED = {"TopKSoftmaxLoss": {"k": 3}, "TopPSoftmaxLoss": {"p": 0.8}}


@pytest.mark.parametrize("name", OF_LOSSES)
def test_no_module_of_a_loss_waits(name):
    """Its mean over rows that have weights, class weights and ignored classes."""
    results = []
    for wrap in (to_device, lambda x: x):
        a, kind = Made(wrap), MODULES[name]
        directed = issubclass(kind, _loss_modules._MarginLoss)
        with device() if wrap is to_device else contextlib.nullcontext():
            x, sample_weight = a.normal(3, 8), a.uniform(3, grad=False)
            params = {"weight": a.uniform(8, grad=False), "ignore_index": 2} if kind._takes_classes else {}
            loss = kind(*(8, 8) if directed else (), **params, **NEEDED.get(name, {}))
            if directed:
                loss.classes = torch.nn.Parameter(a.normal(8, 8))
            if kind._takes_classes:
                target = a.classes()
            elif issubclass(kind, TeacherLoss):
                target = a.normal(3, 8, grad=False)
            else:
                target = a.given(torch.eye(3, 8), grad=False)
            found = loss(x, target, sample_weight)
            found.backward()
        results.append((to_host(found).detach(), to_host(x.grad)))
    expect_near(*results, 3e-5)


def test_every_function_is_tried():
    public = {name for name in dir(et) if name.islower() and inspect.isfunction(getattr(et, name)) and name[0] != "_"}
    assert public == CALLS.keys() | OTHERS.keys()


# Softmax attention is torch's.


@pytest.mark.parametrize("scale", ["sqrt", 0.3, "entropy_invariant", "log_n"])
@pytest.mark.parametrize(("m", "n"), [(6, 6), (4, 6), (6, 4), (1, 6)])
def test_softmax_attention_is_torchs(m, n, scale, monkeypatch):
    called, sdpa = [], torch.nn.functional.scaled_dot_product_attention

    def watched(*arguments, **more):
        called.append(arguments[3:6])
        return sdpa(*arguments, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    monkeypatch.setattr(_attention, "_attend", None)
    for causal in (False, True):
        for kind in (None, "bool", "float"):
            for temperature in (0.7, "rows"):
                results = []
                for wrap in (to_device, lambda x: x):
                    a = Made(wrap)
                    q, k, v = a.heads(m, n)
                    mask = mask_of(kind, m, n, torch.float32)
                    if kind == "float":
                        mask = mask[:, :4]
                    mask = None if mask is None else a.given(mask, grad=False)
                    t = a.full(0.7, 2, 4, m, 1) if temperature == "rows" else temperature
                    options = {"causal": causal, "mask": mask, "scale": scale, "train_length": 16}
                    if scale == "log_n":
                        options["kappa"] = a.full(0.6, 4, 1, 1)
                    if wrap is to_device:
                        with device():
                            out = et.attention(q, k, v, temperature=t, **options)
                            out.square().sum().backward()
                    else:
                        out = cpu_attention(q, k, v, temperature=t, **options)
                        out.square().sum().backward()
                    results.append((to_host(out).detach(), *(to_host(x.grad) for x in a.moving)))
                expect_near(*results, 1e-5)
                mask_given, dropout, by_flag = called.pop()
                assert dropout == 0.0 and not called
                # Where torch's flag for causal masks means the same, there is no mask.
                assert by_flag == (causal and m == n and kind is None) and (mask_given is None) == (
                    kind is None and (not causal or m in (1, n))
                )


def cpu_attention(q, k, v, temperature, mask, causal, scale, train_length, kappa=None):
    """The composition, in float64."""
    name = scale if isinstance(scale, str) else "number"
    number = 1.0 if isinstance(scale, str) else scale
    return _attention.composed(
        q.double(),
        k.double(),
        v.double(),
        mask,
        "softmax",
        {"temperature": temperature},
        name,
        number,
        train_length,
        kappa,
        causal,
    ).float()


def test_other_softmax_attention_goes_by_tiles():
    """Numbers that torch's kernels for GPUs do not have, and factors that float32 has not."""
    q = to_device(torch.randn(1, 1, 3, 8))
    assert _attention._is_torchs(q, "softmax", {"temperature": 1.0}, {})
    assert not _attention._is_torchs(q.double(), "softmax", {"temperature": 1.0}, {})
    assert not _attention._is_torchs(q, "softmax", {"temperature": 1e-40}, {})
    assert not _attention._is_torchs(q, "softmax", {"temperature": 1.0}, {"sinks": q})
    assert not _attention._is_torchs(q, "sparsemax", {"temperature": 1.0}, {})
    assert not _attention._is_torchs(to_host(q), "softmax", {"temperature": 1.0}, {})


# Compilers.


# Without a GPU torch does not index such tensors, and some of its checks cannot be made.
UNKNOWN = {"scaled_dot_product_attention", "sinkhorn_divergence", "token_statistics", "wasserstein", "ratio_map"}
UNKNOWN |= {"linear_token_statistics", "unbalanced_sinkhorn_divergence"}
UNKNOWN |= {"wasserstein_1d", "wasserstein_histogram", "sliced_wasserstein", "dual_value", "c_transform", "lipschitz_constant"}


@pytest.mark.parametrize("name", [name for name in CALLS if name not in UNKNOWN])
def test_shapes_are_known_without_numbers(name):
    """As torch.compile and torch.export see tensors of a GPU; a number of one would be an error."""
    with FakeTensorMode():
        a = Made(lambda x: torch.empty(x.shape, dtype=x.dtype, device="cuda"))
        a.generator = None
        with torch.no_grad():
            found = first(CALLS[name](a))
    assert found.device.type == "cuda"
