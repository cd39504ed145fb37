"""docs/coming_from.md and coming_from_entmax.md: what stands side by side in the tables is equal, and the traps are there."""

import importlib
import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.special
import scipy.stats
import torch

import isentropic
import isentropic.torch
from isentropic._numpy._chain import Chain
from isentropic.compat import entmax as compat

try:
    import entmax as package  # now: a session in the documents puts another in its place
except ImportError:
    package = None

DOCS = Path(__file__).resolve().parents[2] / "docs"
X = np.array([[[0.0, 1.0, 2.5], [2.0, 0.5, -1.0]], [[1.0, 1.0, 0.5], [0.3, -2.0, 0.4]]])
P, Q = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]), np.array([[0.1, 0.1, 0.8], [0.3, 0.3, 0.4]])
KL = (P * np.log(P / Q)).sum(-1)


def rows_of(section):
    """The rows of the tables in a section of the page whose first cell is code, each as its cells."""
    text = re.search(
        rf"^## {section}\n(.*?)(?=^## |\Z)", (DOCS / "coming_from.md").read_text(), flags=re.MULTILINE | re.DOTALL
    )[1]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def snippets(cell):
    return re.findall(r"`([^`]+)`", cell)


PAIRS = [(theirs, snippets(row[1])[0]) for row in rows_of("Maps") for theirs in snippets(row[0]) if "*" not in row[0]]


def value(expression, x):
    """What a snippet of the table gives for x, as an array."""
    names = {"x": x, "T": 0.5, "s": 3.0, "dim": -2, "k": 2, "alpha": 1.3, "n_iter": 50, "scipy": scipy, "torch": torch}
    names["isentropic"] = isentropic
    first = expression.split(".")[0]
    if first == "entmax":
        names[first] = package or pytest.skip("entmax is not installed")
    elif first in ("jax", "optax", "jaxopt", "distrax"):
        names[first] = pytest.importorskip(first)
        importlib.import_module("jax.nn")
    result = eval(expression, names)
    return np.asarray(result(x) if isinstance(result, torch.nn.Module) else result)


def test_the_table_is_found():
    assert len(PAIRS) == 22
    assert {theirs.split(".")[0] for theirs, _ in PAIRS} == {"scipy", "torch", "jax", "optax", "jaxopt", "distrax", "entmax"}


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_what_stands_side_by_side_is_equal(theirs, ours):
    x = X[0] if "dim=" not in ours else X
    x = np.array([0.0, 1.0, 2.5]) if "projection_simplex" in theirs else x
    here = torch.from_numpy(x) if "torch." in ours else x
    there = torch.from_numpy(x) if theirs.startswith(("torch", "entmax")) else x
    np.testing.assert_allclose(value(ours, here), value(theirs, there), rtol=2e-6, atol=1e-9)


MEASURES = [(theirs, snippets(row[1])[0]) for row in rows_of("Measures") for theirs in snippets(row[0])]


@pytest.mark.parametrize(("theirs", "ours"), MEASURES)
def test_measures_side_by_side_are_equal(theirs, ours):
    names = {"p": P, "q": Q, "x": X[0], "isentropic": isentropic, "scipy": scipy, "torch": torch, "t": torch.from_numpy}
    names["P"], names["Q"] = (torch.distributions.Categorical(torch.from_numpy(one)) for one in (P, Q))
    names["counts"] = np.array([[3, 0, 2], [1, 4, 1]])
    names |= {"c": np.array([2, 0]), "la": [0, 0, 1, 2, 2, 1], "lb": [1, 1, 0, 0, 2, 1]}
    first = theirs.split(".")[0]
    names["log"] = (lambda q: torch.from_numpy(np.log(q))) if first == "torch" else np.log
    if first not in names:
        names[first] = pytest.importorskip(first)
        for module in {"jax": ["jax.scipy.special"], "sklearn": ["sklearn.metrics"]}.get(first, []):
            importlib.import_module(module)
    single = first in ("jax", "optax", "distrax")  # JAX computes in float32
    np.testing.assert_allclose(eval(ours, names), eval(theirs, names), rtol=2e-6 if single else 1e-12)


def test_the_table_of_measures_is_found():
    assert len(MEASURES) == 20
    named = re.findall(r"`isentropic\.(\w+)", (DOCS / "coming_from.md").read_text())
    assert len(named) > 40
    assert [name for name in named if not hasattr(isentropic, name)] == []


def test_defaults_of_an_axis():
    assert scipy.special.softmax(X).sum() == pytest.approx(1)
    assert scipy.special.log_softmax(X).shape == X.shape
    assert np.exp(scipy.special.log_softmax(X)).sum() == pytest.approx(1)
    assert np.ndim(scipy.special.logsumexp(X)) == 0
    weights = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(isentropic.logsumexp(X + np.log(weights)), scipy.special.logsumexp(X, axis=-1, b=weights))
    x = torch.from_numpy(X)
    for implicit, dim in ((x[0, 0], 0), (x[0], 1), (x, 0), (x[None], 1)):
        with pytest.warns(UserWarning, match="Implicit dimension"):
            got = torch.nn.functional.softmax(implicit)
        assert torch.equal(got, torch.softmax(implicit, dim))
    with pytest.raises(TypeError):
        torch.softmax(x)
    with pytest.raises(TypeError):
        torch.log_softmax(x)
    with pytest.raises(TypeError):
        torch.logsumexp(x)
    np.testing.assert_allclose(isentropic.softmax(X).sum(-1), 1)
    np.testing.assert_allclose(isentropic.torch.softmax(x).sum(-1), 1)
    assert isentropic.logsumexp(X, keepdims=True).shape == isentropic.torch.logsumexp(x, keepdim=True).shape == (2, 2, 1)


def test_projection_simplex_takes_the_whole_array():
    optax, jax = pytest.importorskip("optax"), pytest.importorskip("jax")
    x = X[0].astype(np.float32)
    assert float(optax.projections.projection_simplex(x).sum()) == pytest.approx(1)
    rows = jax.vmap(optax.projections.projection_simplex)(x)
    np.testing.assert_allclose(isentropic.sparsemax(x), rows, atol=1e-6)
    assert np.ndim(jax.nn.logsumexp(x)) == 0
    labels = np.array([0, 2])
    np.testing.assert_allclose(
        optax.losses.multiclass_sparsemax_loss(x, labels),
        compat.sparsemax_loss(torch.from_numpy(x), torch.from_numpy(labels)),
        rtol=1e-6,
    )
    np.testing.assert_allclose(optax.losses.kl_divergence(np.log(Q), P), KL, rtol=1e-5)


def test_rows_that_are_not_finite():
    infinite, absent = np.array([np.inf, 0.0, np.inf]), np.full(3, -np.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x in (infinite, absent):
            assert np.isnan(scipy.special.softmax(x)).any()
            assert torch.softmax(torch.from_numpy(x), -1).isnan().any()
    assert isentropic.softmax(infinite).tolist() == [0.5, 0, 0.5]
    assert np.isnan(isentropic.softmax(absent)).all()


def test_cuts_keep_the_lower_index():
    ties = np.array([1.0, 2.0, 2.0, 2.0])
    assert (isentropic.top_k_softmax(ties, k=2) > 0).tolist() == [False, True, True, False]
    assert (isentropic.top_p_softmax(ties, p=0.5) > 0).tolist() == [False, True, True, False]
    assert (isentropic.min_p_softmax(ties, p=1.0) > 0).tolist() == [False, True, True, True]


def test_perplexity_is_that_of_t_sne():
    points = np.random.default_rng(0).standard_normal((50, 3))
    scores = -((points[0] - points[1:]) ** 2).sum(-1)
    p = isentropic.entropy_normalize(scores, perplexity=30)
    assert math.exp(-(p * np.log(p)).sum()) == pytest.approx(30)
    assert 2 ** -(p * np.log2(p)).sum() == pytest.approx(30)


def test_traps_of_measures_and_losses():
    log_q, p = torch.from_numpy(np.log(Q)), torch.from_numpy(P)
    entropies = -(P * np.log(P)).sum(-1)
    np.testing.assert_allclose(scipy.stats.entropy(3 * P, axis=-1), entropies)
    np.testing.assert_allclose(scipy.stats.entropy(P.T), entropies)  # axis 0
    np.testing.assert_allclose(scipy.stats.entropy(P, base=2, axis=-1), entropies / math.log(2))
    np.testing.assert_allclose(scipy.stats.entropy(3 * P, 5 * Q, axis=-1), KL)
    np.testing.assert_allclose(scipy.special.rel_entr(P, Q).sum(-1), KL)
    np.testing.assert_allclose(scipy.special.kl_div(P, Q), scipy.special.rel_entr(P, Q) - P + Q)
    np.testing.assert_allclose(scipy.special.kl_div(P, Q).sum(-1), KL)
    kl_div = torch.nn.functional.kl_div
    assert kl_div(log_q, p, reduction="sum").item() == pytest.approx(KL.sum())
    assert kl_div(log_q, p, reduction="batchmean").item() == pytest.approx(KL.sum() / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert kl_div(log_q, p).item() == pytest.approx(KL.sum() / 6)
    categorical = torch.distributions.Categorical
    got = torch.distributions.kl_divergence(categorical(p), categorical(torch.from_numpy(Q)))
    np.testing.assert_allclose(got, KL)
    middle = (P + Q) / 2
    js = (P * np.log(P / middle) + Q * np.log(Q / middle)).sum(-1) / 2
    np.testing.assert_allclose(scipy.spatial.distance.jensenshannon(3 * P.T, Q.T) ** 2, js)  # axis 0
    x, target = torch.from_numpy(X[0]), torch.tensor([2, 1])
    loss = torch.nn.functional.cross_entropy(x, target, reduction="none")
    np.testing.assert_allclose(compat.entmax_bisect_loss(x, target, alpha=1.0), loss)
    images = torch.from_numpy(X)
    got = torch.nn.functional.cross_entropy(images, torch.zeros(2, 3, dtype=torch.long), reduction="none")
    np.testing.assert_allclose(got, -torch.log_softmax(images, 1)[:, 0])
    places = np.array([0.0, 1.0, 2.0])
    cumulated = np.abs(np.cumsum(P[0] - Q[0]))[:-1].sum()
    assert scipy.stats.wasserstein_distance(places, places, P[0], Q[0]) == pytest.approx(cumulated)
    draws = [torch.nn.functional.gumbel_softmax(x) for _ in range(2)]
    assert not torch.equal(*draws)
    np.testing.assert_allclose(draws[0].sum(-1), 1)


def test_tests_that_the_entmax_page_names_exist():
    tests = (DOCS.parent / "tests/python/test_compat_entmax.py").read_text()
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "coming_from_entmax.md").read_text()))
    assert len(named) > 12
    for name in named:
        assert f"def {name}(" in tests, name


def test_numbers_of_the_entmax_page():
    """The evidence that stands in its table."""
    if package is None:
        pytest.skip("entmax is not installed")
    third = torch.full((3,), 1 / 3)
    assert torch.allclose(package.entmax_bisect(torch.tensor([0.0, 1.0, 2.0]), 1.0), third)
    assert torch.allclose(package.entmax_bisect(torch.tensor([1, 2, 3])), third)
    slopes = {}
    for module in (package, compat):
        for alpha in (1.0, 1.00001):
            leaf = torch.tensor(alpha, requires_grad=True)
            p = module.entmax_bisect(torch.tensor([0.0, 1.0, 2.0]), leaf)
            slopes[module, alpha] = torch.autograd.grad(p[2], leaf)[0].item()
    assert math.isnan(slopes[package, 1.0])
    assert abs(slopes[package, 1.00001]) > 10
    assert slopes[compat, 1.0] == pytest.approx(0.31637, abs=2e-5)
    assert slopes[compat, 1.00001] == pytest.approx(0.31637, abs=2e-5)
    x = torch.randn(1000, 10, generator=torch.Generator().manual_seed(0)) + 1e6
    want = compat.entmax_bisect(x.double())
    assert (package.entmax_bisect(x) - want).abs().max() > 0.02
    assert (compat.entmax_bisect(x) - want).abs().max() < 3e-7
    x = torch.tensor([0.0, 1.0, 2.5], dtype=torch.float64)
    for name in ("entmax15", "entmax_bisect"):
        theirs, ours = getattr(package, name), getattr(compat, name)
        assert torch.autograd.functional.hessian(lambda x, f=theirs: f(x)[2], x).isnan().all()
        assert torch.autograd.functional.hessian(lambda x, f=ours: f(x)[2], x)[2, 2].item() == pytest.approx(-0.2652, abs=1e-4)
    flat = 0.01 * torch.randn(4, 32000, generator=torch.Generator().manual_seed(0))
    sums = package.entmax15(flat.bfloat16()).float().sum(-1)
    assert (sums - 1).abs().max() > 0.05
    assert (compat.entmax15(flat.bfloat16()).float().sum(-1) - 1).abs().max() < 1e-3


# Transport.

MOVED = [(snippets(row[0])[0], snippets(row[1])[0]) for row in rows_of("Transport")]


def transport_names():
    rng = np.random.default_rng(15)
    names = {"scipy": scipy, "reg": 0.3, **{name: getattr(isentropic, name) for name in dir(isentropic) if name[0] != "_"}}
    names |= {"u": rng.normal(size=6), "v": rng.normal(size=6), "wu": rng.random(6), "wv": rng.random(6)}
    names |= {"x": rng.normal(size=6), "y": rng.normal(size=6), "M": rng.random((6, 6))}
    names |= {name: part / part.sum() for name, part in (("a", rng.random(6)), ("b", rng.random(6)))}
    theta, points = rng.normal(size=(5, 2)), rng.random(6)
    names["theta"] = theta / np.linalg.norm(theta, axis=1, keepdims=True)
    return names | {"C": (points[:, None] - points) ** 2, "H": rng.dirichlet(np.ones(6), 3)}


def test_the_table_of_transport_is_found():
    assert len(MOVED) == 15
    assert {theirs.split(".")[0] for theirs, _ in MOVED} == {"scipy", "ot"}


@pytest.mark.parametrize(("theirs", "ours"), MOVED)
def test_transport_side_by_side_is_equal(theirs, ours):
    names = transport_names()
    if theirs.startswith("ot."):
        names["ot"] = pytest.importorskip("ot", reason="POT is not installed")
    if "_nd(" in theirs or "empirical" in theirs or "sliced" in theirs:
        names["x"], names["y"] = (names[name].reshape(3, 2) for name in "xy")
        names["a"], names["b"] = (names[name][:3] / names[name][:3].sum() for name in "ab")
    if "empirical" in theirs:  # the value differs by the entropy, as the table says
        x, y, reg = names["x"], names["y"], names["reg"]

        def plain(x, y):
            even = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
            return isentropic.sinkhorn(*even, ((x[:, None] - y) ** 2).sum(-1), epsilon=reg, tolerance=1e-12).cost

        assert eval(theirs, names) == pytest.approx(plain(x, y) - (plain(x, x) + plain(y, y)) / 2, rel=1e-5)
        assert eval(theirs, names) != pytest.approx(eval(ours, names), rel=1e-3)
        return
    np.testing.assert_allclose(eval(ours, names), eval(theirs, names), rtol=1e-5 if "sinkhorn" in theirs else 1e-9, atol=1e-12)


def test_traps_of_transport():
    ot = pytest.importorskip("ot", reason="POT is not installed")
    names = transport_names()
    a, b, M, u, v = (names[name] for name in ("a", "b", "M", "u", "v"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.all(ot.emd(a, b * 0.5, M, check_marginals=False, numItermax=1) >= 0)  # a plan, whatever it is worth
    with pytest.raises(ValueError, match=r"^optimal_transport: a and b must have equal sums"):
        isentropic.optimal_transport(a, b * 0.5, M)
    forbidden = np.full((6, 6), np.inf)
    with pytest.raises(ValueError, match=r"^optimal_transport: infeasible"):
        isentropic.optimal_transport(a, b, forbidden)
    assert ot.wasserstein_1d(u, v, p=2) == pytest.approx(isentropic.wasserstein_1d(u, v, order=2) ** 2)
    columns = np.stack([u, v, u * v], -1)
    weights = np.arange(1.0, len(u) + 1) / np.arange(1.0, len(u) + 1).sum()  # of one axis: along the samples, in both
    for a, b in ((weights, None), (weights, weights[::-1])):
        there = ot.wasserstein_1d(columns, 2 * columns, a, b, p=2)
        here = isentropic.wasserstein_1d(columns, 2 * columns, u_weights=a, v_weights=b, order=2, axis=0) ** 2
        np.testing.assert_allclose(here, there)
    assert ot.emd2_1d(u, v) == pytest.approx(isentropic.wasserstein_1d(u, v, order=2) ** 2)


# Losses and attention.

LOSSES = [(snippets(row[0])[0], snippets(row[1])[0]) for row in rows_of("Losses")]
ATTENTION = [(snippets(row[0])[0], snippets(row[1])[0]) for row in rows_of("Attention")]


def test_the_tables_of_losses_and_attention_are_found():
    assert len(LOSSES) == 10
    assert len(ATTENTION) == 5


@pytest.mark.parametrize(("theirs", "ours"), LOSSES)
def test_losses_side_by_side_are_equal(theirs, ours):
    generator = torch.Generator().manual_seed(3)
    x, s, t = (torch.randn(5, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    names = {"x": x, "s": s, "t": t, "c": torch.tensor([0, 3, 1, 2, 2]), "T": 2.0, "alpha": 1.3, "torch": torch}
    names |= {"h": x, "w": torch.randn(6, 4, generator=generator, dtype=torch.float64)}
    names |= {
        "softmax": lambda x: torch.softmax(x, -1),
        "log_softmax": lambda x: torch.log_softmax(x, -1),
        "isentropic": isentropic,
    }
    if theirs.startswith("entmax."):
        names["entmax"] = package or pytest.skip("entmax is not installed")
    if theirs.startswith("optax."):
        names["optax"] = pytest.importorskip("optax")
        names |= {"x": x.numpy(), "t": t.numpy(), "c": names["c"].numpy(), "softmax": isentropic.softmax}
    np.testing.assert_allclose(eval(ours, names), eval(theirs, names), rtol=2e-6)


@pytest.mark.parametrize(("theirs", "ours"), ATTENTION)
def test_attention_side_by_side_is_equal(theirs, ours):
    generator = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(2, 3, 6, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    seen = torch.rand(6, 6, generator=generator) < 0.7
    seen[:, 2] = True
    names = {"q": q, "k": k, "v": v, "seen": seen, "torch": torch, "isentropic": isentropic}
    np.testing.assert_allclose(eval(ours, names), eval(theirs, names), rtol=1e-10)


def test_traps_of_losses_and_attention():
    x, c = torch.tensor([[1.0, 0.0, -torch.inf]], dtype=torch.float64), torch.tensor([0])
    smoothed = {"label_smoothing": 0.1}
    assert torch.nn.functional.cross_entropy(x, c, **smoothed).isinf()
    assert isentropic.torch.softmax_loss(x, c, **smoothed).isfinite().all()
    q, k = torch.randn(2, 4), torch.randn(5, 4)
    v = torch.eye(5)
    theirs = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    ours = isentropic.torch.attention(q, k, v, causal=True)
    assert ((theirs > 0).sum(-1)).tolist() == [1, 2]
    assert ((ours > 0).sum(-1)).tolist() == [4, 5]
    assert (isentropic.torch.attention(q, k, v, mask=torch.zeros(2, 5, dtype=torch.bool)) == 0).all()


# Samplers.

STEPS = [[snippets(cell)[0] for cell in row[:4]] for row in rows_of("Samplers") if len(row) == 5]
LOGITS = np.random.default_rng(8).normal(size=(20, 50)) * 2


def softmax(x):
    p = np.exp(x - x.max())
    return p / p.sum()


def keep(x, indices):
    kept = np.full_like(x, -np.inf)
    kept[indices] = x[indices]
    return softmax(kept)


def llama(call, x):
    """What the sampler of llama.h leaves of one row, from its definition."""
    name, arguments = re.fullmatch(r"llama_sampler_init_(\w+)\((.*)\)", call).groups()
    value = float(arguments.split(",")[0])
    p = softmax(x)
    falling = np.argsort(-x)
    if name == "temp":
        return softmax(x / value)
    if name == "top_k":
        return keep(x, falling[: int(value)])
    if name == "top_p":
        return keep(x, falling[: np.searchsorted(np.cumsum(p[falling]), value) + 1])
    if name == "min_p":
        return keep(x, p >= value * p.max())
    assert name == "typical"
    typical = np.argsort(np.abs(-np.log(p) + (p * np.log(p)).sum()))
    return keep(x, typical[: np.searchsorted(np.cumsum(p[typical]), value) + 1])


def test_the_table_of_samplers_is_found():
    assert [eval(ours)[0] for _, _, _, ours in STEPS] == ["temperature", "top_k", "top_p", "min_p", "typical_p"]


@pytest.mark.parametrize(("_", "theirs", "__", "ours"), STEPS)
def test_steps_are_those_of_llama_cpp(_, theirs, __, ours):
    left = isentropic.Sampler([eval(ours)]).probs(LOGITS)
    np.testing.assert_allclose(left, [llama(theirs, x) for x in LOGITS], rtol=1e-10)


def warped(call, x):
    logits_process = pytest.importorskip("transformers.generation.logits_process", exc_type=ImportError)
    return torch.softmax(eval(call, vars(logits_process))(None, torch.from_numpy(x)), -1).numpy()


@pytest.mark.parametrize(("theirs", "_", "__", "ours"), STEPS)
def test_steps_are_those_of_transformers(theirs, _, __, ours):
    np.testing.assert_allclose(isentropic.Sampler([eval(ours)]).probs(LOGITS), warped(theirs, LOGITS), rtol=1e-10)


def test_further_steps():
    names = {"n": 1.0, "e": 0.01, "p": 0.5, "t": 0.1, "tau": 3.0, "eta": 0.1, "log": math.log, "tokens": [1, 2]}
    names |= {"a": 0.4, "r": 1.2, "f": 0.1, "n": 1}
    found = [
        snippet for row in rows_of("Samplers") if len(row) == 3 for snippet in snippets(row[1]) if snippet.startswith('("')
    ]
    steps = [eval(snippet, names) for snippet in found if not snippet.startswith(('("top_k"', '("entropy'))]
    left = {step[0]: Chain([step], 1 if step[0] in ("xtc", "mirostat") else None, 0) for step in steps}
    assert left.keys() == {"mirostat", "top_n_sigma", "epsilon", "eta", "top_h", "xtc", "penalties", "dry"}
    scores = LOGITS.astype(np.float32)
    for x, got in zip(scores, left["top_n_sigma"](scores, 1), strict=True):
        assert (np.isfinite(got) == (x >= x.max() - x.astype(np.float64).std())).all()
    for name, theirs in (("epsilon", "EpsilonLogitsWarper(0.01)"), ("eta", "EtaLogitsWarper(0.01)")):
        np.testing.assert_allclose(np.exp(left[name](scores, 1)), warped(theirs, scores), rtol=1e-5)


def test_traps_of_samplers():
    with pytest.raises(ValueError, match="temperature must be above 0"):
        isentropic.Sampler([("temperature", 0.0)])
    ties = np.array([[1.0, 2.0, 2.0, 2.0]])
    assert (isentropic.Sampler([("top_k", 1)]).probs(ties) > 0).tolist() == [[False, True, False, False]]
    assert ties.argmax(-1).tolist() == [1]
    assert (warped("TopKLogitsWarper(1)", ties) > 0).tolist() == [[False, True, True, True]]
    assert (isentropic.Sampler([("top_p", 0.5)]).probs(ties) > 0).tolist() == [[False, True, True, False]]
    assert (warped("TopPLogitsWarper(0.5)", ties) > 0).sum() == 2
    equal = np.zeros((1, 4))
    assert (isentropic.Sampler([("typical_p", 0.5)]).probs(equal) > 0).tolist() == [[True, True, False, False]]
    assert (warped("TypicalLogitsWarper(0.5)", equal) > 0).all()
    chain = isentropic.Sampler([("top_k", 5)], seed=3)
    np.testing.assert_array_equal(chain.sample(LOGITS, position=4), chain.sample(LOGITS, position=4))
