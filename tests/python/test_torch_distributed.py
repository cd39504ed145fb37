"""isentropic.torch.distributed in processes of gloo: the same bits for any number of parts, rounds and bytes, errors,
gradients.

The ranks are started once. Each answers a job, a function of this module by name, with what it returns.
"""

import copy
import functools
import hashlib
import inspect
import math
import os
import signal
import socket
import sys
import time
from datetime import timedelta
from decimal import Decimal, localcontext

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402

import isentropic  # noqa: E402
import isentropic.torch as et  # noqa: E402
import isentropic.torch.distributed as D  # noqa: E402

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without torch.distributed")
RANKS, N, ROWS = 4, 8192, 6
CUTS = {0: [0, N], 1: [0, N], 2: [0, N // 2, N], 3: [0, 1000, 1003, N], 4: [0, N // 4, N // 2, 3 * N // 4, N]}
PARTS = (1, 2, 3, 4)
_groups = {}
# Ranks are forked from a process that has imported what takes them seconds each.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["isentropic.torch.distributed", "torch.distributed.tensor", "pytest"])


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def join(rank, ranks, port, timeout):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout)
    )


def serve(rank, port, pipe):
    join(rank, RANKS, port, 60)
    for size in PARTS:
        _groups[size] = dist.new_group(list(range(size)))
    while True:
        job, size, arguments = pipe.recv()
        if job is None:
            os._exit(0)
        try:
            pipe.send((True, globals()[job](rank, size, *arguments)))
        except Exception as error:
            pipe.send((False, (type(error).__name__, str(error))))


@pytest.fixture(scope="module")
def ranks():
    port, pipes = free_port(), []
    for rank in range(RANKS):
        ours, theirs = CONTEXT.Pipe()
        CONTEXT.Process(target=serve, args=(rank, port, theirs), daemon=True).start()
        pipes.append(ours)

    def run(job, size, *arguments):
        for pipe in pipes[:size]:
            pipe.send((job, size, arguments))
        answers = []
        for pipe in pipes[:size]:
            assert pipe.poll(60), f"{job}: no answer"
            answers.append(pipe.recv())
        return answers

    yield run
    for pipe in pipes:
        pipe.send((None, 0, ()))


def all_of(answers):
    assert all(good for good, _ in answers), answers
    return [answer for _, answer in answers]


def rows_of(dtype, seed=0):
    """Rows of many kinds: ties, masks, one large score, a part that is wholly masked."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, N)) * np.array([1.0, 3.0, 2.0, 1.0, 4.0, 0.5])[:, None]
    x[1] = np.round(x[1])
    x[2, : N // 2] = -np.inf
    x[3, 5] = 20
    x[4, ::3] = -np.inf
    return torch.tensor(x).to(dtype)


def part_of(x, rank, size):
    cuts = CUTS[size]
    return x[..., cuts[rank] : cuts[rank + 1]].clone()


TARGET = torch.tensor([7, 1001, 5000, 5, 8191, 2000])

OPERATIONS = {
    "softmax": (lambda x, **k: D.softmax(x, **k), lambda x: et.softmax(x)),
    "softmax_hot": (lambda x, **k: D.softmax(x, temperature=2.5, **k), lambda x: et.softmax(x, temperature=2.5)),
    "log_softmax": (lambda x, **k: D.log_softmax(x, **k), lambda x: et.log_softmax(x)),
    "logsumexp": (lambda x, **k: D.logsumexp(x, **k), lambda x: et.logsumexp(x)),
    "sparsemax": (lambda x, **k: D.sparsemax(x, **k), lambda x: et.sparsemax(x)),
    "sparsemax_many": (lambda x, **k: D.sparsemax(x, temperature=200.0, **k), lambda x: et.sparsemax(x, temperature=200.0)),
    "entmax": (lambda x, **k: D.entmax(x, alpha=1.5, **k), lambda x: et.entmax(x, alpha=1.5)),
    "entmax_1.2": (lambda x, **k: D.entmax(x, alpha=1.2, **k), lambda x: et.entmax(x, alpha=1.2)),
    "top_k_softmax": (lambda x, **k: D.top_k_softmax(x, k=50, **k), lambda x: et.top_k_softmax(x, k=50)),
    "top_p_softmax": (lambda x, **k: D.top_p_softmax(x, p=0.9, **k), lambda x: et.top_p_softmax(x, p=0.9)),
    "min_p_softmax": (lambda x, **k: D.min_p_softmax(x, p=0.05, **k), lambda x: et.min_p_softmax(x, p=0.05)),
    "entropy_normalize": (
        lambda x, **k: D.entropy_normalize(x, entropy=3.0, **k),
        lambda x: et.entropy_normalize(x, entropy=3.0),
    ),
    "entropy_clip": (
        lambda x, **k: D.entropy_clip(x, min_entropy=2.0, max_entropy=6.0, **k),
        lambda x: et.entropy_clip(x, min_entropy=2.0, max_entropy=6.0),
    ),
    "gamma_for_entropy": (
        lambda x, **k: D.gamma_for_entropy(x, entropy=3.0, **k).gamma,
        lambda x: et.gamma_for_entropy(x, entropy=3.0).gamma,
    ),
    "softmax_loss": (lambda x, **k: D.softmax_loss(x, TARGET, **k), lambda x: et.softmax_loss(x, TARGET)),
    "sparsemax_loss": (
        lambda x, **k: D.sparsemax_loss(x, TARGET, **k),
        lambda x: et.sparsemax_loss(x, TARGET),
    ),
    "entmax_loss": (
        lambda x, **k: D.entmax_loss(x, TARGET, alpha=1.5, **k),
        lambda x: et.entmax_loss(x, TARGET, alpha=1.5),
    ),
    "entropy": (lambda x, **k: D.entropy(x, **k), lambda x: et.entropy(x, input="scores")),
    "logprob": (lambda x, **k: D.token_statistics(x, TARGET, **k).logprob, lambda x: et.token_statistics(x, TARGET).logprob),
    "kl_divergence": (
        lambda x, **k: D.kl_divergence(x, x.detach() * 0.9, **k),
        lambda x: et.kl_divergence(x, x.detach() * 0.9, input="scores"),
    ),
    "js_divergence": (
        lambda x, **k: D.js_divergence(x, x.detach() * 0.9, **k),
        lambda x: et.js_divergence(x, x.detach() * 0.9, input="scores"),
    ),
}
ROW = {
    "temperature": [0.5, 1.0, 1.0, 2.0, 0.5, 3.0],
    "alpha": [1.3, 1.0009, 2.0, 1.0, 1.5, 1.1],
    "entropy": [1.0, 3.0, 3.0, 0.5, 2.0, 4.0],
}
ROW = {name: torch.tensor(values, dtype=torch.float64) for name, values in ROW.items()}
ROW |= {"perplexity": ROW["entropy"].exp(), "min_entropy": ROW["entropy"], "max_entropy": ROW["entropy"] + 1}
# Maps whose parameters are tensors of one for each row, or of one.
OF_ROWS = {
    "softmax": ("temperature",),
    "log_softmax": ("temperature",),
    "logsumexp": ("temperature",),
    "sparsemax": ("temperature",),
    "entmax": ("alpha", "temperature"),
    "top_p_softmax": ("temperature",),
    "entropy_normalize": ("entropy",),
    "entropy_clip": ("min_entropy", "max_entropy"),
}


def of_rows(rank, size, name, single):
    x = part_of(rows_of(torch.float64), rank, size).requires_grad_()
    given = [(ROW[key][1] if single else ROW[key][:, None]).clone().requires_grad_() for key in OF_ROWS[name]]
    if size == 0:
        function, where = getattr(et, name), {}
    else:
        function, where = getattr(D, name), {"group": _groups[size]}
    if name == "top_p_softmax":
        where["p"] = 0.9
    y = function(x, **dict(zip(OF_ROWS[name], given, strict=True)), **where)
    g = weights(ROWS) if name == "logsumexp" else part_of(weights((ROWS, N)), rank, size)
    gradients = torch.autograd.grad(torch.where(y.isfinite(), y, 0), [x, *given], g.to(y.dtype))
    return y.detach(), gradients, tuple(D.traffic())


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("name", OF_ROWS)
def test_parameters_of_rows(ranks, name, single):
    want, gradients, _ = of_rows(0, 0, name, single)
    bits = set()
    for size in (1, 3, 4):
        answers = all_of(ranks("of_rows", size, name, single))
        y = answers[0][0] if name == "logsumexp" else torch.cat([answer[0] for answer in answers], -1)
        dx = torch.cat([answer[1][0] for answer in answers], -1)
        np.testing.assert_allclose(y, want, atol=1e-9)
        np.testing.assert_allclose(dx, gradients[0], atol=1e-8)
        for answer in answers:
            for found, expected in zip(answer[1][1:], gradients[1:], strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
        bits.add(digest(y, dx, *answers[0][1][1:]))
    assert len(bits) == 1


HOT = [
    name
    for name, function in sorted(vars(D).items())
    if callable(function) and "temperature" in inspect.signature(function).parameters and name != "sample"
]


def hot(rank, size, name):
    """A function that takes a temperature, with values and gradient."""
    x = part_of(rows_of(torch.float64), rank, size).requires_grad_()
    given = {"token_statistics": (TARGET,)}.get(name, ())
    more = {"top_k_softmax": {"k": 50}, "top_p_softmax": {"p": 0.9}, "min_p_softmax": {"p": 0.05}}.get(name, {})
    where = {"group": _groups[size]} if size else {}
    found = getattr(D if size else et, name)(x, *given, temperature=0.6, **more, **where)
    values = found[:3] if isinstance(found, tuple) else (found,)
    total = sum(torch.where(y.isfinite(), y, 0).sin().sum() for y in values if y.requires_grad)
    return [y.detach() for y in values], torch.autograd.grad(total, x)[0]


@pytest.mark.parametrize("name", HOT)
def test_temperatures_that_are_numbers(ranks, name):
    want, gradient = hot(0, 0, name)
    answers = all_of(ranks("hot", 3, name))
    for k, expected in enumerate(want):
        values = [answer[0][k] for answer in answers]
        found = torch.cat(values, -1) if expected.shape[-1] == N else values[0]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(torch.cat([answer[1] for answer in answers], -1), gradient, rtol=1e-8, atol=1e-9)


REDUCES = {"logsumexp", "gamma_for_entropy", "softmax_loss", "sparsemax_loss", "entmax_loss", "entropy", "logprob"}
REDUCES |= {"kl_divergence", "js_divergence"}


def weights(y):
    return torch.tensor(np.random.default_rng(5).normal(size=y)).float()


def value_and_gradient(rank, size, name, dtype, given):
    x = part_of(rows_of(dtype), rank, size).requires_grad_()
    where = {"group": _groups[size]}
    if given:
        where |= {"first": CUTS[size][rank], "n": N}
    y = OPERATIONS[name][0](x, **where)
    cost = [tuple(D.traffic())]
    g = weights(ROWS) if name in REDUCES else part_of(weights((ROWS, N)), rank, size)
    (dx,) = torch.autograd.grad(y, x, g.to(y.dtype))
    return y.detach(), dx, [*cost, tuple(D.traffic())]


def whole(name, answers):
    y = answers[0][0] if name in REDUCES else torch.cat([answer[0] for answer in answers], -1)
    if name in REDUCES:
        assert all(torch.equal(answer[0].nan_to_num(7), y.nan_to_num(7)) for answer in answers)
    return y, torch.cat([answer[1] for answer in answers], -1)


def digest(*tensors):
    return hashlib.sha256(b"".join(t.double().contiguous().numpy().tobytes() for t in tensors)).hexdigest()[:16]


@pytest.mark.parametrize("name", OPERATIONS)
def test_bits_do_not_depend_on_the_parts(ranks, name):
    dtypes = (
        (torch.float32, torch.float64, torch.bfloat16)
        if name in ("softmax", "entropy_normalize", "entmax")
        else (torch.float32,)
    )
    for dtype in dtypes:
        digests = {
            size: digest(*whole(name, all_of(ranks("value_and_gradient", size, name, dtype, size % 2 == 0)))) for size in PARTS
        }
        assert len(set(digests.values())) == 1, (dtype, digests)


@pytest.mark.parametrize("name", OPERATIONS)
def test_values_and_gradients_are_those_of_whole_rows(ranks, name):
    found, gradient = whole(name, all_of(ranks("value_and_gradient", 3, name, torch.float32, False)))
    x = rows_of(torch.float32).requires_grad_()
    want = OPERATIONS[name][1](x)
    g = weights(tuple(want.shape)) if name not in REDUCES else weights(ROWS)
    (dx,) = torch.autograd.grad(want, x, g.to(want.dtype))
    scale = want.detach().abs().clamp(min=1).nan_to_num(1, 1, 1)
    assert ((found - want.detach()).abs().nan_to_num(0) <= 3e-5 * scale).all(), name
    assert torch.equal(found.isfinite(), want.isfinite())
    assert (gradient - dx).abs().max() <= 2e-4 * dx.abs().max().clamp(min=1), name


def test_rounds_and_bytes(ranks):
    def cost(name):
        return all_of(ranks("value_and_gradient", 4, name, torch.float32, True))[0][2]

    for name in ("softmax_loss", "entropy", "logprob"):
        forward, backward = cost(name)
        assert forward[0] == 2 and forward[1] <= 40, name
        assert backward == (0, 0)
    forward, _ = cost("entropy_normalize")
    assert forward[0] == 3 and forward[1] <= 830
    assert cost("softmax")[0] == (2, 16)
    assert cost("top_k_softmax")[0] == (1, 400)
    assert cost("top_p_softmax")[0][0] <= 7
    forward, _ = cost("sparsemax")
    assert forward == (1, 256)
    assert cost("sparsemax_many")[0][0] < 9
    assert cost("entmax_1.2")[0][0] < 9
    assert cost("kl_divergence")[0] == (3, 176)
    assert cost("js_divergence")[0] == (3, 216)


# Functions whose number of rounds depends on the scores, and so the only ones that ask anything of a tensor's numbers.
ASKS = {"sparsemax", "sparsemax_many", "entmax", "entmax_1.2", "entropy_normalize", "entropy_clip", "gamma_for_entropy"}
ASKS |= {"sparsemax_loss", "entmax_loss", "kl_divergence", "js_divergence"}


def without_reads(rank, size, name):
    """Value and gradient as of tensors on another device; what asks for numbers."""
    from isentropic.torch.distributed import _calls, _chain, _divergences, _entries, _functions, _searches

    x = part_of(rows_of(torch.float32), rank, size).requires_grad_()
    where, asked = {"group": _groups[size], "first": CUTS[size][rank], "n": N}, []
    g = weights(ROWS) if name in REDUCES else part_of(weights((ROWS, N)), rank, size)
    want = OPERATIONS[name][0](x, **where)  # the ranks agree on the arguments once
    slope = torch.autograd.grad(want, x, g.to(want.dtype))[0]

    def refuse(*given, **more):
        raise AssertionError("a tensor's numbers were read")

    with pytest.MonkeyPatch.context() as patch:
        reads = ("item", "cpu", "numpy", "tolist", "__bool__", "__int__", "__float__", "__index__", "__array__", "nonzero")
        kept = torch.Tensor.__bool__
        for read in reads:
            patch.setattr(torch.Tensor, read, refuse)

        def anywhere(condition):
            asked.append(name)
            return kept(condition.any())

        for module in (_calls, _chain, _divergences, _entries, _searches):
            patch.setattr(module, "anywhere", anywhere, raising=False)
        for module in (_calls, _functions):
            patch.setattr(module, "can_be_read", lambda x: False)
        y = OPERATIONS[name][0](x, **where)
        dx = torch.autograd.grad(y, x, g.to(y.dtype))[0]
    equal = [torch.equal(a.detach().nan_to_num(7), b.detach().nan_to_num(7)) for a, b in ((y, want), (dx, slope))]
    return all(equal), bool(asked)


@pytest.mark.parametrize("name", OPERATIONS)
def test_numbers_are_read_only_where_rounds_depend_on_them(ranks, name):
    assert all_of(ranks("without_reads", 2, name)) == [(True, name in ASKS)] * 2


@pytest.mark.parametrize("row", [[-torch.inf] * 3, [torch.nan, 1.0, 2.0]])
@pytest.mark.parametrize("asked", [0.0, 1.0])
@pytest.mark.parametrize("of", ["logprob", "entropy"])
def test_token_statistics_of_rows_without_a_distribution(row, asked, of):
    """Such a row has no gradient if none is asked of it, as with isentropic.torch."""

    def gradient(library):
        x = torch.tensor([row, [1.0, 2.0, 3.0]], requires_grad=True)
        getattr(library.token_statistics(x, torch.tensor([0, 1])), of).backward(torch.tensor([asked, 1.0]))
        return x.grad

    torch.testing.assert_close(gradient(D), gradient(et), equal_nan=True)


def test_rows_that_are_wrong_are_nan_where_numbers_cannot_be_read(monkeypatch):
    from isentropic.torch.distributed import _calls

    monkeypatch.setattr(_calls, "can_be_read", lambda x: False)
    x, target, q = torch.zeros(3, 4), torch.tensor([1, 4, -2]), torch.tensor([[0.25] * 4, [0.3] * 4, [1.0, 0.5, -0.5, 0.0]])
    assert D.softmax_loss(x, target, ignore_index=-2).isnan().tolist() == [False, True, False]
    for name in ("softmax_loss", "sparsemax_loss", "entmax_loss"):
        for given in (target, q):
            assert getattr(D, name)(x, given).isnan().tolist() == [False, True, True], name
    assert D.token_statistics(x, target).logprob.isnan().tolist() == [False, True, True]
    assert D.entropy(q, input="probs").isnan().tolist() == [False, True, True]
    assert D.kl_divergence(q, q, input="probs").isnan().tolist() == [False, True, True]


def draws(rank, size, steps):
    where = {"group": _groups[size]}
    x = part_of(rows_of(torch.float32), rank, size)
    plain = D.sample(x, size=20, temperature=0.7, seed=3, stream=5, position=2, **where)
    cost = tuple(D.traffic())
    sampler = D.Sampler(steps, seed=9)
    return plain, sampler.sample(x, size=20, **where), sampler.probs(x, **where), cost


CHAINS = [
    [("temperature", 0.8), ("top_k", 50), ("top_p", 0.95)],
    [("min_p", 0.02), ("typical_p", 0.9)],
    [("entropy", 3.4)],
    [("top_p", 0.99), ("entropy_clip", (1.0, 2.0))],
    [("temperature", 0.7), ("epsilon", 0.02), ("top_n_sigma", 1.5)],
    [("top_n_sigma", 1.0), ("temperature", 1.3), ("eta", 0.05)],
    [("temperature", 1.7), ("p_less", None), ("top_k", 9)],
]


@pytest.mark.parametrize("steps", CHAINS, ids=lambda steps: "-".join(step for step, _ in steps))
def test_draws_are_those_of_one_machine(ranks, steps):
    x = rows_of(torch.float32).numpy()
    plain = isentropic.sample(x, size=20, temperature=0.7, seed=3, stream=5, position=2)
    sampler = isentropic.Sampler(steps, seed=9)
    chain, probs = sampler.sample(x, size=20), sampler.probs(x)
    for size in PARTS:
        answers = all_of(ranks("draws", size, steps))
        for found, drawn, *_ in answers:
            assert np.array_equal(found, plain)
            assert np.array_equal(drawn, chain)
        np.testing.assert_allclose(torch.cat([answer[2] for answer in answers], -1), probs, atol=3e-6)
    assert answers[0][3][1] == 20 * 16 + 56 / ROWS


def top_indices(rank, size):
    x = part_of(rows_of(torch.float32), rank, size)
    return D.token_statistics(x, TARGET, top=5, group=_groups[size]).top_indices


def test_top_indices(ranks):
    want = et.token_statistics(rows_of(torch.float32), TARGET, top=5)
    for size in PARTS:
        for found in all_of(ranks("top_indices", size)):
            assert torch.equal(found, want.top_indices)


def short_rows():
    inf, nan = float("inf"), float("nan")
    rows = [[1.0, -inf, -inf, 2.0, -inf], [-inf] * 5, [0.0] * 5, [1.0, 1.0, 1.0, 1.0, 2.0], [nan, 1.0, inf, 3.0, nan]]
    return torch.tensor(rows)


def top_of_short_rows(rank, size, cuts, top):
    x = short_rows()[:, cuts[rank] : cuts[rank + 1]]
    return D.token_statistics(x, torch.zeros(len(x), dtype=torch.int64), top=top, group=_groups[size]).top_indices


def top_of_no_rows(rank, size):
    x, target = torch.zeros(0, 2 + rank), torch.zeros(0, dtype=torch.int64)
    return D.token_statistics(x, target, top=2, group=_groups[size]).top_indices


@pytest.mark.parametrize("size", PARTS)
def test_top_indices_of_no_rows(ranks, size):
    for found in all_of(ranks("top_of_no_rows", size)):
        assert found.shape == (0, 2) and found.dtype is torch.int64


@pytest.mark.parametrize("cuts", [(0, 5), (0, 1, 5), (0, 2, 5), (0, 4, 5), (0, 0, 5), (0, 5, 5), (0, 2, 3, 5), (0, 1, 1, 2, 5)])
def test_top_indices_where_parts_have_fewer_tokens(ranks, cuts):
    for top in range(1, 6):
        want = et.token_statistics(short_rows(), torch.zeros(5, dtype=torch.int64), top=top).top_indices
        for found in all_of(ranks("top_of_short_rows", len(cuts) - 1, cuts, top)):
            assert torch.equal(found, want)
    for top, wrong in ((6, "an integer from 0 to 5, how many tokens there are, got 6"), (-1, "an integer from 0, got -1")):
        for good, (kind, message) in ranks("top_of_short_rows", len(cuts) - 1, cuts, top):
            assert not good and kind == "ValueError" and f"token_statistics: top must be {wrong}" in message


@pytest.mark.parametrize(
    "step", [("penalties", {"repetition": 1.1}), ("xtc", (0.5, 0.1)), ("top_h", 0.4), ("mirostat", (3.0, 0.1))]
)
def test_steps_that_need_more_than_sums(step):
    with pytest.raises(
        NotImplementedError, match=f"^Sampler: there is no step '{step[0]}' for rows over ranks, which have temp"
    ):
        D.Sampler([step])


EXTREME = [1e-300, 1e-46, 1e-39, 1e30, 1e300]
MAPS = {
    "softmax": {},
    "log_softmax": {},
    "logsumexp": {},
    "sparsemax": {},
    "entmax": {"alpha": 1.5},
    "top_k_softmax": {"k": 3},
    "top_p_softmax": {"p": 0.7},
    "min_p_softmax": {"p": 0.3},
}


def wide_rows(dtype):
    """Scores of ordinary size, and such whose differences leave the type's range."""
    big, inf = 1.7e308 if dtype is torch.float64 else 3e38, float("inf")
    rows = [
        [0.0, 1.0, 2.0, 3.0, -1.0],
        [0.0] * 5,
        [5.0, 5.0, 4.0, -3.0, -inf],
        [-3.0, -2.0, -2.6, -8.0, -9.0],
        [1e6 + 0.5, 1e6, 1e6 - 1, 0.0, 1.0],
        [big, -big, 0.97 * big, 0.0, 1.0],
        [-big, -0.99 * big, -0.9 * big, -big, -inf],
        [big, -big, -big, -inf, 0.5 * big],
    ]
    return torch.tensor(rows, dtype=dtype)


def extremes(rank, size, dtype):
    """Maps, token statistics, draws and chains of two of three parts; if size is 0, of the whole rows."""
    whole = wide_rows(dtype)
    cuts = (0, 2, 2, 5)
    x = whole[:, cuts[rank] : cuts[rank + 1]].contiguous() if size == 3 else whole
    library, where = (D, {"group": _groups[size]}) if size else (et, {})
    target, found = torch.full((len(x),), 2), {}
    for temperature in EXTREME:
        for rows in (False, True):
            given = torch.full((len(x), 1), temperature, dtype=torch.float64) if rows else temperature
            for name, params in MAPS.items():
                found[name, temperature, rows] = getattr(library, name)(x, temperature=given, **params, **where)
        told = library.token_statistics(x, target, temperature=temperature, **where)
        found |= {(f"statistic {k}", temperature): told[k] for k in range(3)}
        more = [[("epsilon", 0.2)], [("eta", 0.3)], [("p_less", None)], [("top_n_sigma", 0.8)]]
        for steps in ([], [("top_k", 2)], [("top_p", 0.7)], [("min_p", 0.3)], [("typical_p", 0.7)], *more):
            chain = [("temperature", temperature), *steps]
            if size:
                sampler, given = D.Sampler(chain, seed=3), x
            else:
                sampler, given = isentropic.Sampler(chain, seed=3), x.numpy()
            found[f"chain {steps}", temperature] = torch.as_tensor(sampler.probs(given, **where))
            found[f"drawn by {steps}", temperature] = torch.as_tensor(sampler.sample(given, size=9, **where))
    for name, params in {
        "entropy_normalize": {"entropy": 0.5},
        "entropy_clip": {"min_entropy": 0.3, "max_entropy": 0.6},
    }.items():
        moving = x.clone().requires_grad_()
        y = getattr(library, name)(moving, **params, **where)
        g = torch.arange(5.0)[cuts[rank] : cuts[rank + 1]] if size == 3 else torch.arange(5.0)
        found[name,] = y.detach()
        found[f"{name} gradient",] = torch.autograd.grad(y, moving, g.expand(y.shape).to(y.dtype))[0]
    for name in ("sparsemax_loss", "entmax_loss"):
        found[name,] = getattr(library, name)(x, target, **where)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_temperatures_and_scores(ranks, dtype):
    """As on one machine, with the same bits for any number of parts, where x / T or a difference leaves the type's range."""
    want = extremes(0, 0, dtype)
    alone, parts = (all_of(ranks("extremes", size, dtype)) for size in (1, 3))
    tolerance = 2e-6 if dtype is torch.float32 else 1e-11
    for key, expected in want.items():
        found = alone[0][key]
        several = [answer[key] for answer in parts]
        joined = torch.cat(several, -1) if sum(one.shape[-1] for one in several) == 5 else several[0]
        assert torch.equal(joined.nan_to_num(7), found.nan_to_num(7)), key
        np.testing.assert_allclose(found, expected, rtol=5 * tolerance, atol=tolerance, err_msg=str(key))


def test_chains_with_entropies_at_extreme_temperatures():
    x = wide_rows(torch.float64)
    steps = (
        [("entropy", 0.5)],
        [("entropy_clip", (0.3, 0.6))],
        [("top_k", 3), ("entropy_clip", (None, 0.4)), ("temperature", 2.0)],
    )
    for temperature in EXTREME[1:]:
        for some in steps:
            chain = [("temperature", temperature), *some]
            found, want = D.Sampler(chain).probs(x), isentropic.Sampler(chain).probs(x.numpy())
            np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-9, err_msg=str(chain))


@pytest.mark.parametrize(
    "given",
    [
        {"seed": 1.5},
        {"seed": -1},
        {"seed": 2**64},
        {"seed": 1, "stream": -1},
        {"seed": 1, "stream": 0.5},
        {"seed": 1, "stream": [-1, 0]},
        {"seed": 1, "position": -1},
        {"seed": 1, "position": 2**64 - 1, "size": 3},
        {"seed": 1, "size": -1},
        {"seed": 1, "size": 2.0},
        {"seed": 1, "temperature": "a"},
    ],
    ids=str,
)
def test_arguments_of_draws_are_checked_as_on_one_machine(given):
    x = torch.zeros(2, 4)
    with pytest.raises((TypeError, ValueError)) as want:
        isentropic.sample(x, **given)
    with pytest.raises(want.type) as found:
        D.sample(x, **given)
    assert str(found.value) == str(want.value)
    of_sampler = {name: value for name, value in given.items() if name not in ("seed", "temperature")}
    if of_sampler:
        with pytest.raises(want.type) as found:
            D.Sampler([], seed=1).sample(x, **of_sampler)
        assert str(found.value) == f"Sampler.{want.value}"


@pytest.mark.parametrize(
    "steps",
    [
        [("temperature", "a")],
        [("temperature", 0.0)],
        [("entropy_clip", 3)],
        [("top_k", 0)],
        [("top_k", 1.5)],
        [("top_p", 2.0)],
        [("heat", 1.0)],
        [3],
        "ab",
        None,
    ],
    ids=str,
)
def test_steps_are_checked_as_on_one_machine(steps):
    with pytest.raises((TypeError, ValueError)) as want:
        isentropic.Sampler(steps)
    with pytest.raises(want.type) as found:
        D.Sampler(steps)
    assert str(found.value) == str(want.value)


def test_draws_take_what_one_machine_takes():
    x = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(1))
    chain = [("temperature", np.float32(0.5)), ("top_k", np.int64(20)), ("entropy_clip", (None, 2))]
    ours, theirs = D.Sampler(chain, seed=np.int64(5)), isentropic.Sampler(chain, seed=5)
    np.testing.assert_allclose(ours.probs(x), theirs.probs(x.numpy()), atol=1e-6)
    streams = 3, 2**64 - 2, [4, 5, 6], np.arange(6, dtype=np.uint64) + np.uint64(2**63), torch.tensor([[1], [9]])
    for stream in streams:
        for size in (None, 0, 4):
            found, want = (one.sample(x, size=size, stream=stream, position=7) for one in (ours, theirs))
            assert np.array_equal(found, want)


def special(rank, size):
    x = rows_of(torch.float32)
    x[0, 3], x[1, 10], x[1, 4000], x[2] = float("nan"), float("inf"), float("inf"), -float("inf")
    x = part_of(x, rank, size)
    return D.softmax(x, group=_groups[size]), D.entropy(x, group=_groups[size]), D.sample(x, seed=1, group=_groups[size])


def test_nan_and_infinities(ranks):
    answers = all_of(ranks("special", 3))
    p = torch.cat([answer[0] for answer in answers], -1)
    assert p[0].isnan().all() and p[2].isnan().all()
    assert p[1, 10] == p[1, 4000] == 0.5 and p[1].sum() == 1
    for _, entropy, drawn in answers:
        assert entropy[0].isnan() and entropy[2].isnan() and abs(entropy[1] - np.log(2)) < 1e-6
        assert drawn[0] == drawn[2] == -1 and drawn[1] in (10, 4000)


def special_rows(rank, size, name):
    """Value and gradients, also in parameters of rows, of rows without a distribution or with +inf, each in one part only; of
    isentropic.torch if size is 0."""
    x = rows_of(torch.float64)
    x[0, 3], x[1, 10], x[1, 4000], x[2], x[4, 8000] = float("nan"), float("inf"), float("inf"), -float("inf"), float("nan")
    library, where = (D, {"group": _groups[size]}) if size else (et, {})
    x = part_of(x, rank, size).requires_grad_()
    given = []
    if name.endswith("of_rows"):
        name = name.removesuffix(" of_rows")
        given = [ROW[key][:, None].clone().requires_grad_() for key in OF_ROWS[name]]
        if name == "top_p_softmax":
            where["p"] = 0.9
        y = getattr(library, name)(x, **dict(zip(OF_ROWS[name], given, strict=True)), **where)
    elif name.endswith("soft"):
        q = part_of(torch.softmax(rows_of(torch.float64, 1), -1), rank, size)
        y = getattr(library, name.removesuffix(" soft"))(x, q, **where)
    elif name.endswith("ignored"):
        y = getattr(library, name.removesuffix(" ignored"))(x, torch.full((ROWS,), 5), ignore_index=5, **where)
    else:
        y = OPERATIONS[name][0 if size else 1](x, **where)
    g = weights(ROWS) if y.dim() == 1 else part_of(weights((ROWS, N)), rank, size)
    return y.detach(), *torch.autograd.grad(y, [x, *given], g.to(y.dtype))


LOSSES = "softmax_loss", "sparsemax_loss", "entmax_loss"
SPECIAL = [
    *OPERATIONS,
    *(f"{name} {how}" for name in LOSSES for how in ("soft", "ignored")),
    *(f"{name} of_rows" for name in OF_ROWS),
]


@pytest.mark.parametrize("name", SPECIAL)
def test_special_rows_are_those_of_whole_rows(ranks, name):
    """NaN in a row, +inf and a row of -inf: values and gradients as isentropic.torch has them."""
    want, *gradients = special_rows(0, 0, name)
    answers = all_of(ranks("special_rows", 3, name))
    found = [torch.cat([answer[1] for answer in answers], -1), *answers[0][2:]]
    value = answers[0][0] if want.dim() == 1 else torch.cat([answer[0] for answer in answers], -1)
    for a, b in zip((value, *found), (want, *gradients), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_rows_with_their_own_temperature_after_many_rounds():
    """A word that is as large as the one that a failed rank sends."""
    x = torch.tensor([[1.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    temperature = torch.tensor([[2.0]])
    found = D.top_p_softmax(x, p=0.8, temperature=temperature)
    np.testing.assert_allclose(found, et.top_p_softmax(x, p=0.8, temperature=temperature), rtol=1e-12)


def far_rows(rank, size, dtype):
    """Losses and a divergence of two of three parts; of isentropic.torch, if size is 0. A difference of scores may overflow."""
    most = 1.7e308 if dtype is torch.float64 else 3e38
    x = torch.tensor([[top, -least, -1.0] for least in (10.0, 1e13, 1e15, most) for top in (0.0, least)], dtype=dtype)
    q = torch.tensor([0.9, 0.1, 0.0], dtype=dtype).expand_as(x)
    near = x[:7]  # of greater differences that of one machine is not right either
    p = torch.tensor([0.0, -1.0, -1.0], dtype=dtype).expand_as(near)
    masked = torch.where(torch.arange(3) == 1, -torch.inf, x)
    cuts = (0, 2, 2, 3)
    x, q, p, near, masked = (one[:, cuts[rank] : cuts[rank + 1]] if size else one for one in (x, q, p, near, masked))
    library, where = (D, {"group": _groups[size]}) if size else (et, {})
    return [
        library.softmax_loss(x, q, **where),
        library.sparsemax_loss(x, q, **where),
        library.entmax_loss(x, q, **where),
        library.softmax_loss(masked, q, **where),
        library.kl_divergence(p, near, input="scores", **where),
        library.kl_divergence(p, masked[: len(p)], input="scores", **where),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_of_far_scores(ranks, dtype):
    """They are finite where those of one machine are, also if terms of a sum are large."""
    want, eps = far_rows(0, 0, dtype), torch.finfo(dtype).eps
    assert all(one.isfinite().all() == (k not in (3, 5)) for k, one in enumerate(want))
    for answer in all_of(ranks("far_rows", 3, dtype)):
        for found, one in zip(answer, want, strict=True):
            torch.testing.assert_close(found, one, rtol=max(2 * eps, 1e-12), atol=2 * eps)


def test_divergence_of_masked_scores():
    """A score of -inf has no gradient, also in the second distribution."""
    p, q = torch.tensor([[0.3, 1.0, 0.2]]), torch.tensor([[0.3, 1.0, -float("inf")]], requires_grad=True)
    slopes = [torch.autograd.grad(of, q)[0] for of in (D.kl_divergence(p, q), et.kl_divergence(p, q, input="scores"))]
    np.testing.assert_allclose(*slopes, rtol=1e-6)
    assert slopes[0][0, 2] == 0


def of_probabilities(rank, size):
    p, q = (part_of(torch.softmax(k * rows_of(torch.float64), -1), rank, size).requires_grad_() for k in (1, 0.9))
    where = {"input": "probs", "group": _groups[size]}
    values = [D.entropy(p, **where), D.kl_divergence(p, q, **where), D.js_divergence(p, q, **where)]
    return [(y.detach(), *torch.autograd.grad(y.sum(), (p, q)[: 1 + (i > 0)])) for i, y in enumerate(values)]


def test_probabilities(ranks):
    p, q = (torch.softmax(k * rows_of(torch.float64), -1).requires_grad_() for k in (1, 0.9))
    answers = all_of(ranks("of_probabilities", 3))
    for i, (want, given) in enumerate(
        ((et.entropy(p), (p,)), (et.kl_divergence(p, q), (p, q)), (et.js_divergence(p, q), (p, q)))
    ):
        for answer in answers:
            np.testing.assert_allclose(answer[i][0], want.detach(), rtol=1e-10)
        for k, slope in enumerate(torch.autograd.grad(want.sum(), given)):
            found = torch.cat([answer[i][1 + k] for answer in answers], -1)
            live = given[k] > 0
            np.testing.assert_allclose(found[live], slope[live], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("given", ["probs", "log_probs"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_probabilities_that_are_zero(given, dtype):
    p = torch.tensor([[0.5, 0.25, 0.0, 0.25, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]], dtype=dtype)
    q = torch.tensor([[0.5, 0.0, 0.25, 0.25, 0.0], [0.25, 0.25, 0.25, 0.25, 0.0]], dtype=dtype)
    p, q = ((x.log() if given == "log_probs" else x).requires_grad_() for x in (p, q))
    for function, inputs in (("entropy", (p,)), ("kl_divergence", (p, q)), ("js_divergence", (p, q))):
        found, want = (getattr(of, function)(*inputs, input=given) for of in (D, et))
        assert found.dtype is want.dtype
        np.testing.assert_allclose(found.detach(), want.detach(), rtol=1e-3 if dtype is torch.float16 else 1e-6)
        slopes = [torch.autograd.grad(of.sum(), inputs) for of in (found, want)]
        for one, other in zip(*slopes, strict=True):
            assert one.dtype is other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-2 if dtype is torch.float16 else 1e-6, atol=1e-6)


SHORT_CUTS = [(0, 7), (0, 0, 7), (0, 3, 3, 7), (0, 1, 4, 7)]


def near_distributions(dtype):
    """Scores and two arrays of rows that are distributions within the tolerance of their type, which do not sum to 1."""
    random = np.random.default_rng(8)
    away = {torch.float64: 9e-7, torch.float32: 9e-5, torch.float16: 4e-3}[dtype]
    x, p, q = (torch.tensor(random.normal(size=(12, 7)) * 2, dtype=torch.float64) for _ in range(3))
    x[1::3] += 30
    q[2] = p[2] + 1e-3
    x, p, q = (one.index_fill(1, torch.tensor([2, 5]), -torch.inf) if k % 2 else one for k, one in enumerate((x, p, q)))
    p, q = (torch.softmax(one, -1) for one in (p, q))
    p[4], q[4] = torch.eye(7)[1], torch.eye(7)[1]
    p[5], q[5] = torch.eye(7)[3], torch.eye(7)[0]
    p, q = (one * (1 + away * torch.tensor(random.choice([-1, -0.5, 1], size=(12, 1)))) for one in (p, q))
    return [one.to(dtype) for one in (x, p, q)]


AS_GIVEN = {
    "entropy probs": lambda of, x, p, q, **k: of.entropy(p, input="probs", **k),
    "entropy log_probs": lambda of, x, p, q, **k: of.entropy(p.log(), input="log_probs", **k),
    "kl_divergence probs": lambda of, x, p, q, **k: of.kl_divergence(p, q, input="probs", **k),
    "kl_divergence log_probs": lambda of, x, p, q, **k: of.kl_divergence(p.log(), q.log(), input="log_probs", **k),
    "js_divergence probs": lambda of, x, p, q, **k: of.js_divergence(p, q, input="probs", **k),
    "js_divergence log_probs": lambda of, x, p, q, **k: of.js_divergence(p.log(), q.log(), input="log_probs", **k),
    "softmax_loss": lambda of, x, p, q, **k: of.softmax_loss(x, q, **k),
    "sparsemax_loss": lambda of, x, p, q, **k: of.sparsemax_loss(x, q, **k),
    "entmax_loss 0.7": lambda of, x, p, q, **k: of.entmax_loss(x, q, alpha=0.7, **k),
    "entmax_loss 1": lambda of, x, p, q, **k: of.entmax_loss(x, q, alpha=1.0, **k),
    "entmax_loss 1.1": lambda of, x, p, q, **k: of.entmax_loss(x, q, alpha=1.1, **k),
    "entmax_loss 1.5": lambda of, x, p, q, **k: of.entmax_loss(x, q, **k),
    "entmax_loss 3": lambda of, x, p, q, **k: of.entmax_loss(x, q, alpha=3.0, **k),
}


def as_given(rank, size, name, dtype, cuts):
    given = near_distributions(dtype)
    if size:
        given = [one[:, cuts[rank] : cuts[rank + 1]].contiguous() for one in given]
    x, p, q = given
    moving = [p] if "entropy" in name else [p, q] if "divergence" in name else [x]
    for one in moving:
        one.requires_grad_()
    y = AS_GIVEN[name](D if size else et, x, p, q, **({"group": _groups[size]} if size else {}))
    return y.detach(), torch.cat(torch.autograd.grad(y, moving, torch.linspace(0.5, 2, len(y)).to(y.dtype)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("name", AS_GIVEN)
def test_distributions_are_taken_as_given(ranks, name, dtype):
    """They are not divided by their sums, which are 1 within the tolerance only."""
    want, slopes = as_given(0, 0, name, dtype, None)
    bits = set()
    for cuts in SHORT_CUTS:
        answers = all_of(ranks("as_given", len(cuts) - 1, name, dtype, cuts))
        found, gradient = answers[0][0], torch.cat([answer[1] for answer in answers], -1)
        close = {"rtol": 1e-10, "atol": 1e-12} if dtype is torch.float64 else {"rtol": 3e-6, "atol": 3e-6}
        np.testing.assert_allclose(found, want, **close)
        np.testing.assert_allclose(gradient, slopes, **({"rtol": 2e-3, "atol": 1e-4} if dtype is torch.float16 else close))
        bits.add(digest(found, gradient))
    assert len(bits) == 1


WRONG = {
    "NaN": (2, 4, math.nan),
    "negative": (1, 6, -0.25),
    "infinite": (3, 0, math.inf),
    "too small a sum": (0, slice(None), 1 / 8),
    "zeros": (2, slice(None), 0.0),
    "too large a sum": (1, 1, 1.5),
}


def no_distribution(rank, size, name, kind, known):
    """The error, or None, of rows of which one is no distribution; only the rank with the entry can see it."""
    cuts = (0, 3, 3, 7)
    _, p, _ = near_distributions(torch.float32)
    x, q = torch.zeros(4, 7), p[:4].clone()
    where = {"group": _groups[size]} if size else {}
    for row, entry, value in ([WRONG[kind]] if kind else []) * 2:
        q[row, entry] = value
    x, q = (one[:, cuts[rank] : cuts[rank + 1]].contiguous() if size else one for one in (x, q))
    if known:
        where |= {"first": cuts[rank], "n": 7}
        D.softmax_loss(x, torch.zeros(4, dtype=torch.int64), **where)  # from now on the ranks agree
    given = {"entmax_loss": {"alpha": 1.3}, "entropy": {"input": "probs"}, "kl_divergence": {"input": "probs"}}.get(name, {})
    values = {"entropy": (q,), "kl_divergence": (q, q)}.get(name, (x, q))
    try:
        getattr(D if size else et, name)(*values, **given, **where)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("name", ["softmax_loss", "sparsemax_loss", "entmax_loss", "entropy", "kl_divergence"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_row_that_is_no_distribution_is_refused_on_all_ranks(ranks, name, kind):
    row, entry, value = WRONG[kind]
    kind_of_error, text = no_distribution(0, 0, name, kind, False)
    assert f"in row {row}" in text
    argument = {"entropy": "x", "kl_divergence": "p"}.get(name, "target")
    what = f"row {row} sums to " if "sum" in kind or kind == "zeros" else f", got {value} at entry {entry}"
    for known in (False, True):
        found = all_of(ranks("no_distribution", 3, name, kind, known))
        assert len(set(found)) == 1 and found[0][0] == kind_of_error == "ValueError"
        assert found[0][1].startswith(f"{name}: {argument} must have rows that are distributions, row {row} ")
        assert what in found[0][1]
        assert all_of(ranks("no_distribution", 3, name, None, known)) == [None] * 3


@pytest.mark.parametrize("name", ["softmax_loss", "sparsemax_loss", "entmax_loss", "token_statistics"])
def test_targets_of_other_kinds_are_refused_as_on_one_machine(name):
    x = torch.zeros(3, 4)
    wrong = [torch.ones(3, dtype=torch.bool), torch.ones(3, dtype=torch.complex64), torch.zeros(2, dtype=torch.int64)]
    wrong += [torch.zeros(3), torch.full((3, 4), 0.25, requires_grad=True), [1, 2, 3]]
    for target in wrong:
        with pytest.raises((TypeError, ValueError)) as want:
            getattr(et, name)(x, target)
        with pytest.raises(want.type) as found:
            getattr(D, name)(x, target)
        assert str(found.value) == str(want.value)


def near_scores(d):
    random = np.random.default_rng(6)
    x = 3 * random.normal(size=(3, 40)) + np.array([[0.0], [1000.0], [-7.0]])
    return torch.tensor(x), torch.tensor(x + d * random.normal(size=x.shape) + np.array([[0.0], [7.25], [0.5]]))


def near_rows(rank, size, d, cuts):
    x, y = (one[:, cuts[rank] : cuts[rank + 1]].contiguous().requires_grad_() for one in near_scores(d))
    found = [of(x, y, group=_groups[size]) for of in (D.kl_divergence, D.js_divergence)]
    cost = tuple(D.traffic())
    slopes = [torch.cat(torch.autograd.grad(value.sum(), (x, y))) for value in found]
    return [value.detach() for value in found], slopes, cost


def exact_divergences(x, y):
    """Two divergences with their gradients in x and y."""

    def softmax(scores):
        powers = [(Decimal(one) - Decimal(max(scores))).exp() for one in scores]
        return [power / sum(powers) for power in powers]

    def kl(p, q):
        return sum(a * (a / b).ln() for a, b in zip(p, q, strict=True))

    def slopes(p, q):
        return [a * ((a / b).ln() - kl(p, q)) for a, b in zip(p, q, strict=True)]

    with localcontext(prec=60):
        p, q = softmax(x), softmax(y)
        middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        of_kl = [kl(p, q), *slopes(p, q), *(b - a for a, b in zip(p, q, strict=True))]
        of_js = [(kl(p, middle) + kl(q, middle)) / 2, *(one / 2 for each in (p, q) for one in slopes(each, middle))]
        return [[float(one) for one in several] for several in (of_kl, of_js)]


@pytest.mark.parametrize("d", [1, 1e-2, 1e-4, 1e-6, 1e-9, 1e-12])
def test_divergences_of_nearly_equal_scores(ranks, d):
    """Against 60 digits, with gradients."""
    exact = np.array([exact_divergences(*pair) for pair in zip(*(one.tolist() for one in near_scores(d)), strict=True)])
    bits = set()
    for cuts in ((0, 40), (0, 0, 40), (0, 11, 11, 40), (0, 3, 29, 40)):
        answers = all_of(ranks("near_rows", len(cuts) - 1, d, cuts))
        assert answers[0][2][0] == 4  # rounds, one of them to find the places of the parts
        found, gradients = answers[0][0], [torch.cat([answer[1][k] for answer in answers], -1) for k in (0, 1)]
        for k in (0, 1):
            np.testing.assert_allclose(found[k], exact[:, k, 0], rtol=1e-14)
            want = np.concatenate(np.split(exact[:, k, 1:], 2, 1))
            np.testing.assert_allclose(gradients[k], want, rtol=1e-12, atol=1e-14 * np.abs(want).max())
        bits.add(digest(*found, *gradients))
    assert len(bits) == 1


def far_apart(rank, size):
    """Divergences and gradients of scores of any size, with absent ones; of isentropic.torch, if size is 0."""
    random, results = np.random.default_rng(4), []
    for dtype, scale in ((torch.float64, 1e307), (torch.float64, 300), (torch.float64, 2), (torch.float32, 5e37)):
        x, y = scale * random.normal(size=(2, 40, 5))
        y = np.where(random.random(size=(40, 1)) < 0.5, x + 1e-3 * y, y)
        x, y = (np.where(random.random(size=one.shape) < 0.15, -np.inf, one) for one in (x, y))
        x, y = (np.where(random.random(size=one.shape) < 0.03, np.inf, one) for one in (x, y))
        cuts = (0, 2, 2, 5)
        for of in (et.kl_divergence, et.js_divergence) if size == 0 else (D.kl_divergence, D.js_divergence):
            a, b = (torch.tensor(one).to(dtype) for one in (x, y))
            if size:
                a, b = (one[:, cuts[rank] : cuts[rank + 1]].contiguous() for one in (a, b))
            pair = a.requires_grad_(), b.requires_grad_()
            value = of(*pair, input="scores", **({"group": _groups[size]} if size else {}))
            slopes = torch.autograd.grad(value, pair, torch.linspace(-1, 1, 40).to(value.dtype))
            results.append((value.detach(), torch.cat(slopes)))
    return results


def test_divergences_of_scores_far_apart(ranks):
    answers = all_of(ranks("far_apart", 3))
    for k, (want, slopes) in enumerate(far_apart(0, 0)):
        found, gradient = answers[0][k][0], torch.cat([answer[k][1] for answer in answers], -1)
        close = {"rtol": 1e-9, "atol": 1e-13} if want.dtype is torch.float64 else {"rtol": 2e-5, "atol": 2e-6}
        np.testing.assert_allclose(found, want, **close)
        np.testing.assert_allclose(gradient, slopes, **close)
        assert not (found < 0).any()


def same_rows(rank, size):
    found = []
    for dtype in (torch.float64, torch.float32, torch.float16):
        x = rows_of(dtype)
        x[0, 3], x[0, 4000], x[5] = torch.inf, torch.inf, 60 * x[5]
        x = part_of(x, rank, size)
        log_p = part_of(torch.log_softmax(rows_of(torch.float64), -1), rank, size)
        for of in (D.kl_divergence, D.js_divergence):
            for one, given in ((x, "scores"), (log_p, "log_probs"), (log_p.exp(), "probs")):
                found.append(of(one, one.clone(), input=given, group=_groups[size]))
    return torch.cat(found).double()


@pytest.mark.parametrize("size", PARTS)
def test_a_divergence_from_itself_is_exactly_0(ranks, size):
    assert all((found == 0).all() for found in all_of(ranks("same_rows", size)))


CLIPPED = [[0.0] * 3, [5.0] * 3, [2.0, 2.0, -math.inf], [1.0, -math.inf, -math.inf], [math.inf, math.inf, 0.0]]
CLIPPED += [[math.inf, 1.0, 0.0], [1e38] * 3, [0.3, 0.2, 0.1]]
BOUNDS = [
    (0.4, None),
    (0.2, 0.9),
    (None, 0.9),
    (None, 3.0),
    (0.4, 1.2),
    (1.2, None),
    (math.log(3), None),
    (None, math.log(2)),
    (0, 0.5),
]


def clipped(rank, size, dtype):
    cuts, found = (0, 1, 1, 3), []
    g = torch.tensor([1.0, 0.5, -0.9], dtype=dtype)
    for low, high in BOUNDS:
        for rows in (False, True):
            given = [None if one is None else torch.full((8, 1), float(one)).double() if rows else one for one in (low, high)]
            x, slope = torch.tensor(CLIPPED, dtype=dtype), g
            x, slope = (one[..., cuts[rank] : cuts[rank + 1]] if size else one for one in (x, slope))
            x = x.contiguous().requires_grad_()
            where = {"group": _groups[size]} if size else {}
            y = (D if size else et).entropy_clip(x, min_entropy=given[0], max_entropy=given[1], **where)
            found.append(torch.autograd.grad(y, x, slope.expand_as(y))[0])
    return torch.stack(found)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_of_equal_scores_that_are_clipped(ranks, dtype):
    """Softmax's if their entropy lies inside; 0 if it is held at an end, and beside +inf."""
    want, found = clipped(0, 0, dtype), torch.cat(all_of(ranks("clipped", 3, dtype)), -1)
    tolerance = 1e-6 if dtype is torch.float32 else 1e-10
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)
    assert (want[0, 0].abs() > 0.01).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_log_softmax_that_overflows_has_a_gradient(dtype):
    """-inf as a logarithm of a probability is not -inf as a score."""
    most = 1.7e308 if dtype is torch.float64 else 3e38
    x = torch.tensor([[most / 3, -most, 0.0], [most, -most, -torch.inf], [0.0, -most, 1.0]]).to(dtype).requires_grad_()
    for temperature in (1.0, 0.5):
        slopes = [
            torch.autograd.grad(of.log_softmax(x, temperature=temperature), x, torch.tensor([[1.0, 2.0, 3.0]] * 3).to(dtype))[0]
            for of in (D, et)
        ]
        np.testing.assert_allclose(*(one.double() for one in slopes), rtol=1e-2 if dtype is torch.bfloat16 else 1e-6)


def test_gradients_at_the_smallest_gammas():
    """Where 1 / gamma is above the largest number."""
    most = sys.float_info.max
    for row in ([most, -most, -most], [most, -most], [0.6 * most, -0.6 * most, -0.6 * most]):
        for entropy in (0.3, 0.69, 1.09):
            slopes = []
            for of in (D, et):
                x = torch.tensor([row], dtype=torch.float64, requires_grad=True)
                told = of.gamma_for_entropy(x, entropy=entropy)
                value = told.gamma.sum() + told.entropy.sum() + of.entropy_normalize(x, entropy=entropy)[:, 0].sum()
                slopes.append(torch.autograd.grad(value, x)[0])
            np.testing.assert_allclose(*slopes, atol=1e-300)


def test_the_entropy_at_an_end_of_gammas_range_has_a_gradient():
    x = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3), requires_grad=True)
    for gammas in ((0.0, 1.0), (3.0, 9.0), (0.0, math.inf)):
        for weights in ((1.0, 0.0), (0.0, 1.0), (0.5, 2.0)):
            slopes = []
            for of in (D, et):
                found = of.gamma_for_entropy(x, entropy=1.0, gamma_range=gammas)
                value = weights[0] * found.gamma.sum() + weights[1] * found.entropy.sum()
                slopes.append(torch.autograd.grad(value, x)[0])
            np.testing.assert_allclose(*slopes, rtol=1e-8, atol=1e-8)


def compiled(rank, size):
    x = part_of(rows_of(torch.float32), rank, size).requires_grad_()
    first, group, goal = CUTS[size][rank], _groups[size].group_name, torch.full((ROWS,), 3.0)

    def step(x):
        p = D.entropy_normalize(x * 1.0, entropy=goal, group=group, first=first, n=N)
        return p, D.softmax_loss(x, TARGET, group=group, first=first, n=N)

    want = step(x)
    found = torch.compile(step, fullgraph=True, backend="aot_eager")(x)
    gradients = [torch.autograd.grad(y[1].sum(), x)[0] for y in (want, found)]
    return all(torch.equal(a, b) for a, b in zip(want, found, strict=True)) and torch.equal(*gradients)


def test_compile_fullgraph(ranks):
    assert all(all_of(ranks("compiled", 2)))


def compiled_dynamic(rank, size, name):
    function = functools.partial(OPERATIONS[name][0], group=_groups[size].group_name)
    x = part_of(rows_of(torch.float32), rank, size)
    torch._dynamo.reset()
    found = torch.compile(lambda x: function(x), fullgraph=True, dynamic=True, backend="aot_eager")(x)
    return torch.equal(found, function(x))


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - {"gamma_for_entropy"}))  # its status is an array of NumPy
def test_compile_with_numbers_that_stand_for_any(ranks, name):
    assert all(all_of(ranks("compiled_dynamic", 2, name)))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", AS_GIVEN)
def test_compile_with_distributions(name, dynamic):
    given = near_distributions(torch.float32)
    torch._dynamo.reset()
    function = functools.partial(AS_GIVEN[name], D)
    found = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")(*given)
    assert torch.equal(found, function(*given))


def sharded(rank, size):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = DeviceMesh.from_group(_groups[size], "cpu")
    x = rows_of(torch.float32)[:, :100].contiguous()
    x[2] = x[0] + 1
    results = []
    for placement in (Shard(1), Shard(0), Replicate()):
        d = distribute_tensor(x, mesh, [placement]).requires_grad_()
        for name, params in (("softmax", {}), ("sparsemax", {}), ("entropy_normalize", {"entropy": 2.0}), ("logsumexp", {})):
            y = getattr(et, name)(d, **params)
            (dx,) = torch.autograd.grad(y.sum() if name == "logsumexp" else y[:, :50].sum(), d)
            want = getattr(et, name)(x, **params)
            close = torch.allclose(y.full_tensor(), want, atol=1e-5)
            as_placed = name == "logsumexp" or tuple(y.placements) == (placement,)
            results.append((name, str(placement), close, dx.shape == x.shape, as_placed))
    return results


def test_dtensors(ranks):
    for answer in all_of(ranks("sharded", 3)):
        assert all(all(good) for _, _, *good in answer), answer


OF_DTENSORS = {
    "softmax_loss": ({}, {"ignore_index": 5}, {"soft": True}),
    "sparsemax_loss": ({},),
    "entmax_loss": ({"alpha": 1.3},),
    "entropy": ({}, {"input": "scores", "base": 2.0}),
    "kl_divergence": ({}, {"input": "scores"}),
    "js_divergence": ({"base": 2.0},),
    "top_k_softmax_loss": ({"k": 60},),
    "renyi_entropy": ({"alpha": 2.0},),
}


def sharded_rows(rank, size):
    """Losses and measures of rows and columns over the mesh, with gradients; operations without parts are refused by name."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = DeviceMesh.from_group(_groups[size], "cpu")
    random = torch.Generator().manual_seed(3)
    x, other = torch.randn(6, 100, generator=random), torch.randn(6, 100, generator=random)
    p, q = torch.softmax(x, -1), torch.softmax(other, -1)
    target, g, results = torch.tensor([3, 99, 5, 50, 60, 0]), torch.arange(1.0, 7.0), []
    for placement in (Shard(1), Shard(0), Replicate()):
        for name, all_params in OF_DTENSORS.items():
            for params in all_params:
                params, given = dict(params), x if "loss" in name or params.get("input") == "scores" else p
                second = () if "entropy" in name else (target,) if "loss" in name else (other if given is x else q,)
                if params.pop("soft", False):
                    second = (q,)
                function, whole = getattr(et, name), given.clone().requires_grad_()
                want = function(whole, *second, **params)
                (dx,) = torch.autograd.grad(want, whole, g)
                d = distribute_tensor(given, mesh, [placement]).requires_grad_()
                if placement == Shard(1) and name in ("top_k_softmax_loss", "renyi_entropy"):
                    with pytest.raises(
                        ValueError, match=f"{name}: dim 1 must not be sharded, because there is no such operation on"
                    ):
                        function(d, *second, **params)
                    continue
                for others in (second, tuple(distribute_tensor(one, mesh, [Replicate()]) for one in second)):
                    y = function(d, *others, **params)
                    rows = [Shard(0)] if placement == Shard(0) else [Replicate()]
                    (slope,) = torch.autograd.grad(y, d, distribute_tensor(g, mesh, rows))
                    good = (
                        torch.allclose(y.full_tensor(), want, atol=1e-5),
                        torch.allclose(slope.full_tensor(), dx, atol=1e-5),
                        list(y.placements) == rows and y.shape == want.shape,
                    )
                    results.append((name, str(placement), params, *good))
    for placement in (Shard(1), Shard(0)):
        d = distribute_tensor(x, mesh, [placement])
        found, want = et.token_statistics(d, target, top=3), et.token_statistics(x, target, top=3)
        pairs = list(zip(found, want, strict=True))
        if placement == Shard(1):
            assert found.top_logprobs is None
            del pairs[-1]
        equal = [torch.allclose(a.full_tensor().double(), b.double(), atol=1e-5) for a, b in pairs]
        results.append(("token_statistics", str(placement), {}, *equal))
        found, want = et.gamma_for_entropy(d, entropy=2.0), et.gamma_for_entropy(x, entropy=2.0)
        equal = [torch.allclose(a.full_tensor(), b, atol=1e-5) for a, b in zip(found[:2], want[:2], strict=True)]
        results.append(("gamma_for_entropy", str(placement), {}, *equal, set(found.status.tolist()) <= {"ok"}))
    heads = torch.randn(3, 4, 6, 5, 8, generator=random)
    whole = {
        "power_transform": (p, lambda p: et.power_transform(p, gamma=2.0)),
        "mean_field_entropy": (x, lambda x: et.mean_field_entropy(x, gamma=0.5)),
        "self_information": (p, lambda p: et.self_information(p, base=2.0)),
        "attention": (heads[0], lambda x: et.attention(x, 2 * x, -x, map="entmax", alpha=1.3, causal=True)),
        "attention's entropy": (heads[0], lambda x: et.attention(x, 2 * x, -x, return_entropy=True)[1]),
        "scaled_dot_product_attention": (heads[1], lambda x: et.scaled_dot_product_attention(x, 2 * x, -x, is_causal=True)),
    }
    for name, (given, function) in whole.items():
        for axis in (0, 1):
            d = distribute_tensor(given, mesh, [Shard(axis)]).requires_grad_()
            if axis == 1 and "attention" not in name:
                with pytest.raises(ValueError, match=f"{name}: dim 1 must not be sharded"):
                    function(d)
                continue
            alone = given.clone().requires_grad_()
            want, y = function(alone), function(d)
            (dx,), (slope,) = torch.autograd.grad(want.square().sum(), alone), torch.autograd.grad(y.square().sum(), d)
            good = torch.equal(y.full_tensor(), want), torch.allclose(slope.full_tensor(), dx, atol=1e-5)
            results.append((name, str(axis), {}, *good, y.placements[0] == Shard(axis)))
    queries = distribute_tensor(heads[2], mesh, [Shard(2)])
    d = distribute_tensor(x, mesh, [Shard(1)])
    for call, text in (
        (lambda: et.attention(queries, queries, queries), "attention: queries and their entries must not be sharded"),
        (lambda: et.softmax_loss(d, target, label_smoothing=0.1), "label_smoothing must be 0.* if dim is sharded, got 0.1"),
        (
            lambda: et.entropy(d, input="scores", normalize=True),
            "entropy: normalize must be False if dim is sharded, got True",
        ),
        (lambda: et.softmax_loss(d, [1, 2]), "softmax_loss: target must be a torch.Tensor, got list"),
        (lambda: et.entropy(distribute_tensor(2 * p, mesh, [Shard(1)])), "entropy: x must have rows that are distributions"),
    ):
        with pytest.raises((ValueError, TypeError), match=text):
            call()
    mean = et.SoftmaxLoss()(d, target)
    results.append(("module", "", {}, torch.allclose(mean.full_tensor(), et.SoftmaxLoss()(x, target))))
    return results


@pytest.mark.parametrize("size", [2, 3])
def test_losses_and_measures_of_dtensors(ranks, size):
    for answer in all_of(ranks("sharded_rows", size)):
        assert len(answer) > 40
        assert not [one for one in answer if not all(one[3:])]


HEADS = {
    "softmax_loss": {},
    "softmax_loss ignored": {"ignore_index": 3},
    "softmax_loss z": {"z_loss": 0.1, "reduction": "sum"},
    "softmax_loss bias": {"bias": True, "reduction": "none"},
    "softmax_loss soft": {},
    "sparsemax_loss weighted": {"sample_weight": torch.arange(12.0).reshape(3, 4)},
    "softmax_loss nan": {"sample_weight": torch.arange(12.0).reshape(3, 4), "ignore_index": 8, "z_loss": 0.1},
    "entmax_loss nan": {"alpha": 1.3, "sample_weight": torch.arange(12.0).reshape(3, 4), "ignore_index": 8},
    "softmax_loss none": {"ignore_index": None},
    "entmax_loss": {"alpha": 1.3, "bias": True},
}


def split_heads(rank, size):
    """linear_loss with the classes of weight over the mesh, value and gradients beside those of the whole weight."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Shard, distribute_tensor

    from isentropic.torch.distributed import _dtensor

    mesh, results = DeviceMesh.from_group(_groups[size], "cpu"), []
    random = torch.Generator().manual_seed(4)
    hidden, weight, bias = (torch.randn(*shape, generator=random).double() for shape in ((3, 4, 6), (50, 6), (50,)))
    classes, g = torch.arange(12).reshape(3, 4) * 4, torch.randn(3, 4, generator=random).double()
    soft = torch.softmax(torch.randn(3, 4, 50, generator=random), -1).double()
    for part in (1 << 23, 90):  # also some rows at a time
        _dtensor._PART = part
        for name, given in HEADS.items():
            given, target = dict(given), soft if "soft" in name.split() else classes
            with_bias, none = given.pop("bias", False), given.get("reduction") == "none"
            of_rows = hidden.clone()
            if "nan" in name.split():  # of weight 0 and ignored
                of_rows[0, 0], of_rows[0, 2] = torch.nan, torch.inf
            whole = [one.clone().requires_grad_() for one in (of_rows, weight, *([bias] if with_bias else []))]
            split = [of_rows, *(distribute_tensor(one, mesh, [Shard(0)]) for one in (weight, bias)[: len(whole) - 1])]
            split = [one.requires_grad_() for one in split]
            values, slopes = [], []
            for one in (whole, split):
                own = {"bias": one[2]} if with_bias else {}
                value = et.linear_loss(*one[:2], target, loss=name.split()[0], **given, **own)
                values.append(value)
                slopes.append(torch.autograd.grad(value, one, g if none else None))
            found = [getattr(one, "full_tensor", lambda one=one: one)() for one in slopes[1]]
            close = [
                torch.allclose(a, b, rtol=1e-9, atol=1e-11)
                for a, b in zip((*found, values[1]), (*slopes[0], values[0]), strict=True)
            ]
            results.append((name, part, *close, all(tuple(one.placements) == (Shard(0),) for one in slopes[1][1:])))
    with pytest.raises(ValueError, match="linear_loss: sample_weight must have one factor for each row"):
        et.linear_loss(hidden, distribute_tensor(weight, mesh, [Shard(0)]), classes, sample_weight=torch.ones(3))
    d = distribute_tensor(weight, mesh, [Shard(1)])
    with pytest.raises(ValueError, match="linear_loss: weight must be sharded by classes in one dimension of the mesh"):
        et.linear_loss(hidden, d, classes)
    with pytest.raises(ValueError, match="top_k_softmax_loss: dim 1 must not be sharded"):
        et.linear_loss(hidden, distribute_tensor(weight, mesh, [Shard(0)]), classes, loss="top_k_softmax_loss", k=3)
    return results


@pytest.mark.parametrize("size", [2, 3])
def test_losses_with_a_split_head(ranks, size):
    for answer in all_of(ranks("split_heads", size)):
        assert len(answer) == 2 * len(HEADS)
        assert not [one for one in answer if not all(one[2:])]


def split_statistics(rank, size):
    """linear_token_statistics with the classes of weight over the mesh, beside that of the whole weight."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Shard, distribute_tensor

    from isentropic.torch.distributed import _dtensor

    mesh, results = DeviceMesh.from_group(_groups[size], "cpu"), []
    random = torch.Generator().manual_seed(4)
    hidden, weight, bias = (torch.randn(*shape, generator=random).double() for shape in ((3, 4, 6), (50, 6), (50,)))
    target, g = torch.arange(12).reshape(3, 4) * 4, torch.randn(2, 3, 4, generator=random).double()
    target[1, 2] = -100
    masked = torch.ones(3, 4, dtype=torch.float64)
    masked[2, 1] = 0
    for part in (1 << 23, 90):  # also some rows at a time
        _dtensor._PART = part
        for given in ({}, {"temperature": 0.7, "top": 3}, {"ignore_index": None, "top": 1}, {"nan": True}):
            used, given, of_rows = target.clamp(min=0) if "ignore_index" in given else target, dict(given), hidden.clone()
            nan = given.pop("nan", False)
            if nan:  # in rows that a mask leaves out
                of_rows[2, 1] = torch.nan
            split = [of_rows, *(distribute_tensor(one, mesh, [Shard(0)]) for one in (weight, bias))]
            values, slopes = [], []
            for one in ([of_rows.clone(), weight.clone(), bias.clone()], split):
                one = [x.requires_grad_() for x in one]
                found = et.linear_token_statistics(*one[:2], used, bias=one[2], **given)
                values.append(found)
                parts = (found.logprob * g[0] + found.entropy * g[1])[masked > 0]
                slopes.append(torch.autograd.grad(parts.sum(), one))
            found = [getattr(one, "full_tensor", lambda one=one: one)() for one in slopes[1]]
            assert all(one.isfinite().all() for one in found)
            pairs = zip((*found, *values[1][:3]), (*slopes[0], *values[0][:3]), strict=True)
            close = [torch.allclose(a, b, rtol=1e-9, atol=1e-11, equal_nan=True) for a, b in pairs]
            same = not given.get("top") or torch.equal(values[0].top_indices, values[1].top_indices)
            kept = all(tuple(one.placements) == (Shard(0),) for one in slopes[1][1:])
            results.append((str(given), part, *close, same, kept, values[1].top_logprobs is None))
    d = distribute_tensor(weight, mesh, [Shard(0)])
    with pytest.raises(ValueError, match="linear_token_statistics: weight as a DTensor has no softcap"):
        et.linear_token_statistics(hidden, d, target, softcap=3.0)
    with pytest.raises(ValueError, match="linear_token_statistics: weight must be sharded by classes in one dimension"):
        et.linear_token_statistics(hidden, distribute_tensor(weight, mesh, [Shard(1)]), target)
    with pytest.raises(TypeError, match="linear_token_statistics: weight must be a DTensor that is sharded by classes if"):
        et.linear_token_statistics(d, weight, target)
    return results


@pytest.mark.parametrize("size", [2, 3])
def test_token_statistics_with_a_split_head(ranks, size):
    for answer in all_of(ranks("split_statistics", size)):
        assert len(answer) == 8
        assert not [one for one in answer if not all(one[2:])]


class _Policy(torch.nn.Module):
    """Linear operations inside the forward of a wrapped module, where its parameters are whole."""

    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(6, 8), torch.nn.Linear(8, 50, bias=False)

    def forward(self, x, target):
        hidden = self.body(x).tanh()
        found = et.linear_token_statistics(hidden, self.head.weight, target)
        loss = et.linear_loss(hidden, self.head.weight, target, loss="entmax_loss", alpha=1.3)
        return loss - found.logprob.mean() - 0.1 * found.entropy.mean()


def wrapped(rank, size):
    """Under DistributedDataParallel and FSDP2, gradients are the means of those of all rows."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    results = []
    for kind in ("ddp", "fsdp"):
        torch.manual_seed(5)
        alone = _Policy().double()
        module = copy.deepcopy(alone)
        x, target = torch.randn(size, 4, 6).double(), torch.randint(0, 50, (size, 4))
        torch.stack([alone(*one) for one in zip(x, target, strict=True)]).mean().backward()
        if kind == "ddp":
            module = torch.nn.parallel.DistributedDataParallel(module, process_group=_groups[size])
        else:
            fully_shard(module, mesh=DeviceMesh.from_group(_groups[size], "cpu"))
        module(x[rank], target[rank]).backward()
        pairs = zip(module.parameters(), alone.parameters(), strict=True)
        whole = [getattr(one.grad, "full_tensor", lambda one=one: one.grad)() for one, _ in pairs]
        results.append((kind, *(torch.allclose(a, b.grad) for a, b in zip(whole, alone.parameters(), strict=True))))
    return results


@pytest.mark.parametrize("size", [2, 3])
def test_linear_operations_in_wrapped_modules(ranks, size):
    for answer in all_of(ranks("wrapped", size)):
        assert [one[0] for one in answer] == ["ddp", "fsdp"] and all(all(one[1:]) for one in answer)


def wrong(rank, size, kind):
    x = part_of(rows_of(torch.float32), rank, size)
    if kind == "rows" and rank == 1:
        x = x[:2]
    if kind == "rows_given":
        x = x[: 3 - rank]
        return D.softmax(x, group=_groups[size], first=CUTS[size][rank], n=N)
    if kind == "dtype" and rank == 1:
        x = x.double()
    if kind == "argument" and rank == 1:
        x = x.to(torch.int32)
    if kind == "target":
        return D.softmax_loss(x, TARGET + 9000, group=_groups[size])
    if kind == "probs":
        p = part_of(torch.softmax(rows_of(torch.float64), -1), rank, size)
        p[3] *= 1.01
        return D.entropy(p, input="probs", group=_groups[size])
    if kind == "negative":
        p = part_of(torch.softmax(rows_of(torch.float64), -1), rank, size)
        q = p.clone()
        if rank == 2:
            q[4, 5] = -1e-3
        return D.kl_divergence(p, q, input="probs", group=_groups[size])
    if kind == "temperature":
        return D.softmax(x, temperature=torch.tensor([[1.0], [0.0]]), group=_groups[size])
    if kind == "target_of_one":
        target = TARGET.clone()
        if rank == 1:
            target[2] = -7
        return D.entmax_loss(x, target, group=_groups[size])
    if kind == "token_of_one":
        return D.token_statistics(x, TARGET if rank < 2 else torch.full_like(TARGET, N), group=_groups[size])
    if kind == "temperature_of_one":
        return D.softmax(x, temperature=float(rank), group=_groups[size])
    if kind == "k_of_one":
        return D.top_k_softmax(x, k=int(rank != 1), group=_groups[size])
    if kind == "entropy_of_one":
        return D.entropy_normalize(x, entropy=1.0 - rank, group=_groups[size])
    if kind == "range_of_one":
        return D.gamma_for_entropy(x, entropy=0.5, gamma_range=(2.0, 1.0) if rank == 0 else (0, 9), group=_groups[size])
    if kind == "iterations_of_one":
        return D.gamma_for_entropy(x, entropy=0.5, max_iterations=rank, group=_groups[size])
    if kind == "other_k":
        return D.top_k_softmax(x, k=40 + rank // 2, group=_groups[size])
    if kind == "other_function":
        return (D.sparsemax if rank == 1 else D.softmax)(x, group=_groups[size])
    if kind == "other_target":
        return D.softmax_loss(x, TARGET - rank * (TARGET == 1001), group=_groups[size])
    if kind == "other_temperatures":
        return D.softmax(x, temperature=torch.ones(ROWS, 1).index_fill_(0, torch.tensor(4), 1 + rank), group=_groups[size])
    if kind == "other_seed":
        return D.sample(x, seed=rank // 2, group=_groups[size])
    if kind == "other_stream":
        return D.sample(x, seed=1, stream=torch.full((ROWS,), rank), group=_groups[size])
    if kind == "other_steps":
        return D.Sampler([("top_k", 5 + rank)], seed=1).probs(x, group=_groups[size])
    if kind == "other_top":
        return D.token_statistics(x, TARGET, top=1 + rank, group=_groups[size])
    if kind == "q_of_one":
        return D.kl_divergence(x, x[:, 1:] if rank == 1 else x, group=_groups[size])
    if kind == "draw_of_one":
        return D.sample(x, temperature=-1.0 if rank == 0 else 1.0, seed=1, group=_groups[size])
    if kind == "other_size":
        return D.sample(x, seed=1, size=2 + rank, group=_groups[size])
    if kind == "other_input":
        p = part_of(torch.softmax(rows_of(torch.float32), -1), rank, size)
        return D.kl_divergence(p, p, input="probs" if rank else "scores", group=_groups[size])
    if kind == "other_input_of_halves":
        p = part_of(torch.softmax(rows_of(torch.float16), -1), rank, size)
        return D.entropy(p.log() if rank else p, input="log_probs" if rank else "probs", group=_groups[size])
    if kind == "other_half":
        p = part_of(torch.softmax(rows_of(torch.float64), -1), rank, size)
        return D.entropy(p.to(torch.bfloat16 if rank else torch.float32), input="probs", group=_groups[size])
    if kind == "other_target_kind":
        p = part_of(torch.softmax(rows_of(torch.float32), -1), rank, size)
        return D.softmax_loss(x, p if rank else TARGET, group=_groups[size])
    if kind == "target_with_gradient":
        p = part_of(torch.softmax(rows_of(torch.float32), -1), rank, size)
        return D.softmax_loss(x, p.requires_grad_(rank == 2), group=_groups[size])
    if kind == "first_below_0":
        return D.softmax(x, group=_groups[size], first=-1 if rank == 1 else None)
    if kind == "n_below_0":
        return D.softmax(x, group=_groups[size], n=-1 if rank == 1 else None)
    if kind == "first_of_float":
        return D.sample(x, seed=1, group=_groups[size], first=float(CUTS[size][rank]))
    if kind == "extent":
        return D.softmax(x, group=_groups[size], first=CUTS[size][rank] + rank, n=N)
    if kind == "first_of_one":
        return D.softmax(x, group=_groups[size], first=CUTS[size][rank] + (rank == 1))
    if kind == "n_of_one":
        return D.softmax(x, group=_groups[size], n=N + 1 if rank == 2 else None)
    return D.softmax(x, group=_groups[size])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("rows", "must have as many rows"),
        ("rows_given", "must have as many rows"),
        ("dtype", "same dtype"),
        ("argument", "int32"),
        ("target", "softmax_loss: target must be a class from 0 to 8191, got "),
        ("target_of_one", "entmax_loss: target must be a class from 0 to 8191, got -7 in row 2 (rank 1)"),
        ("token_of_one", "token_statistics: target must be a class from 0 to 8191, got 8192 in row 0 (rank 2)"),
        ("temperature_of_one", "softmax: temperature must be above 0 and finite, got 0.0 (rank 0)"),
        ("k_of_one", "top_k_softmax: k must be above 0, got 0 (rank 1)"),
        ("entropy_of_one", "entropy_normalize: entropy must be at least 0 and finite, got -1.0 (rank 2)"),
        (
            "range_of_one",
            "gamma_for_entropy: gamma_range must be two numbers with 0 <= min_gamma <= max_gamma, got 2.0 and 1.0",
        ),
        ("iterations_of_one", "gamma_for_entropy: max_iterations must be at least 1, got 0 (rank 0)"),
        ("other_k", "all ranks must have the same k, got 40 on rank 0 and 41 on rank 2"),
        ("other_function", "must have the same function, got softmax on rank 0 and sparsemax on rank 1"),
        ("other_target", "softmax_loss: all ranks must have the same target, got 1001 in row 1 on rank 0 and 1000 on rank 1"),
        (
            "other_temperatures",
            "softmax: all ranks must have the same temperature, got 1.0 in row 4 on rank 0 and 2.0 on rank 1",
        ),
        ("other_seed", "sample: all ranks must have the same seed, got 0 on rank 0 and 1 on rank 2"),
        ("other_stream", "sample: all ranks must have the same stream, got 0 in row 0 on rank 0 and 1 on rank 1"),
        ("other_steps", "all ranks must have the same steps, got [['top_k', [5]]] on rank 0 and [['top_k', [6]]] on rank 1"),
        ("other_top", "token_statistics: all ranks must have the same top, got 1 on rank 0 and 2 on rank 1"),
        ("q_of_one", "kl_divergence: q must have the shape of p"),
        ("draw_of_one", "sample: temperature must be above 0 and finite, got -1.0 (rank 0)"),
        ("other_size", "sample: all ranks must have the same size, got 2 on rank 0 and 3 on rank 1"),
        ("other_input", "kl_divergence: all ranks must have the same input, got scores on rank 0 and probs on rank 1"),
        ("other_input_of_halves", "entropy: all ranks must have the same input, got probs on rank 0 and log_probs on rank 1"),
        ("other_half", "entropy: all ranks must have the same dtype, got torch.float32 on rank 0 and torch.bfloat16 on rank 1"),
        (
            "other_target_kind",
            "softmax_loss: all ranks must have the same target, got one for each row on rank 0 and a distribution on rank 1",
        ),
        ("target_with_gradient", "softmax_loss: target requires grad, and there is no gradient in it"),
        ("first_below_0", "softmax: first must be at least 0, got -1 (rank 1)"),
        ("n_below_0", "softmax: n must be at least 0, got -1 (rank 1)"),
        ("first_of_float", "sample: first must be an integer, got float (rank 0)"),
        ("extent", "first"),
        ("first_of_one", "first and n must agree with the parts of all ranks: that of rank 1 has "),
        ("n_of_one", "of 8192, got n = 8193"),
        ("probs", "entropy: x must have rows that are distributions, row 3 sums to 1.01"),
        ("negative", "kl_divergence: q must have rows that are distributions, row 4 has an entry that is negative"),
        ("temperature", "softmax: temperature must be above 0 and finite, got 0.0"),
    ],
)
def test_an_error_on_one_rank_is_the_same_on_all(ranks, kind, text):
    answers = ranks("wrong", 3, kind)
    assert not any(good for good, _ in answers), answers
    assert len({error[0] for _, error in answers}) == 1, answers
    assert all(text in error[1] for _, error in answers), answers
    assert np.isfinite(all_of(ranks("wrong", 3, "nothing"))[0].numpy()).all()  # and the group works on


def outside(rank, size):
    """A rank that is not in a group gets a number from torch in place of it."""
    x, where, found = torch.zeros(2, 3), {"group": dist.GroupMember.NON_GROUP_MEMBER}, []
    for call in (lambda: D.softmax(x, **where), lambda: D.Sampler([]).probs(x, **where)) if rank == 1 else ():
        try:
            call()
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


def test_a_rank_outside_of_the_group_is_told(ranks):
    _, found = all_of(ranks("outside", 2))
    text = "group must be a process group that this rank is in, got "
    assert [(kind, text in error) for kind, error in found] == [("ValueError", True)] * 2


def test_measures_of_no_entries_are_nan():
    x = torch.zeros(2, 0)
    for of in (D, et):
        for given in ("scores", "probs", "log_probs"):
            assert of.entropy(x, input=given).isnan().all()
            assert of.kl_divergence(x, x, input=given).isnan().all() and of.js_divergence(x, x, input=given).isnan().all()
        assert all(getattr(of, name)(x, x).isnan().all() for name in LOSSES)


def left_alone(rank, port, kind, pipe):
    join(rank, 3, port, 3)
    x = torch.randn(2, 64)
    D.softmax(x)
    dist.barrier()
    if rank == 1:
        if kind == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        pipe.send("stops")
        os.kill(os.getpid(), signal.SIGSTOP)
    start = time.time()
    try:
        D.entropy_normalize(x, entropy=2.0)
        pipe.send("finished")
    except RuntimeError as error:
        pipe.send((time.time() - start, str(error)))
    os._exit(0)


@pytest.mark.parametrize("kind", ["dies", "stalls"])
def test_a_rank_that_is_lost_ends_the_others(kind):
    port, pipes, processes = free_port(), [], []
    for rank in range(3):
        ours, theirs = CONTEXT.Pipe()
        processes.append(CONTEXT.Process(target=left_alone, args=(rank, port, kind, theirs), daemon=True))
        processes[-1].start()
        pipes.append(ours)
    for rank in (0, 2):
        assert pipes[rank].poll(40)
        elapsed, text = pipes[rank].recv()
        assert elapsed < 10
        assert "entropy_normalize" in text and "round 1" in text and f"rank {rank} of 3" in text
    processes[1].kill()
    for process in processes:
        process.join(10)
