"""isentropic.onnx: files that another runtime runs, beside the library. An export costs seconds: all maps share one."""

import json
import os
import pathlib

import numpy as np
import pytest

import isentropic

try:
    import onnx
    import onnxruntime
    import torch

    import isentropic.onnx
    import isentropic.torch as et
except ImportError:
    if os.environ.get("CI"):
        raise
    pytest.skip("torch, onnx, onnxscript and onnxruntime are not installed", allow_module_level=True)

INF = np.inf
MAPS = [
    ("softmax", {"temperature": 0.7}),
    ("log_softmax", {}),
    ("logsumexp", {"temperature": 1.7}),
    ("sparsemax", {"temperature": 0.7}),
    *(("entmax", {"alpha": alpha}) for alpha in (0.6, 1.0, 1.3, 1.5, 2.5)),
    ("top_k_softmax", {"k": 3}),
    ("top_p_softmax", {"p": 0.9}),
    ("top_p_softmax", {"p": 1.0}),
    ("min_p_softmax", {"p": 0.1}),
    ("min_p_softmax", {"p": 1.0}),
    ("taylor_softmax", {"order": 4}),
    ("sigsoftmax", {}),
    ("perturb_max", {"scale": 0.6}),
    ("entropy_normalize", {"entropy": 0.9}),
    ("entropy_normalize", {"perplexity": 2.5}),
    ("entropy_clip", {"min_entropy": 0.4, "max_entropy": 1.2}),
]
RNG = np.random.default_rng(7)
ROWS = {
    "random": RNG.standard_normal((5, 40)) * 3,
    "wide": RNG.standard_normal((9, 300)) * 30,
    "ties": np.round(RNG.standard_normal((6, 12)) * 2) / 2,
    "nearly constant": 1 + RNG.standard_normal((4, 9)) * 1e-6,
    "of one score": np.zeros((2, 1)),
    "of no scores": np.zeros((3, 0)),
    "none": np.zeros((0, 4)),
    "huge": np.array([[0.0, -1e-3, -1e30, 5.0], [1e30, 0.0, 1.0, -1e30], [3e4, 3e4, 0.0, -3e4]]),
    "special": np.array(
        [[0, 1, -INF, 2], [-INF] * 4, [np.nan, 1, 2, 3], [1, 1, 1, 1], [5, 5, 1, -INF], [INF, 1, INF, -INF], [INF, 1, 0, 2]]
    ),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    file = tmp_path_factory.mktemp("onnx") / "maps.onnx"

    def maps(x):
        return tuple(getattr(et, name)(x, **params) for name, params in MAPS)

    sizes = ({0: torch.export.Dim("rows"), 1: torch.export.Dim("n")},)
    isentropic.onnx.export(maps, (torch.zeros(2, 7, dtype=torch.float64),), file, dynamic_shapes=sizes)
    onnx.checker.check_model(str(file))
    session = onnxruntime.InferenceSession(str(file))
    return lambda x: dict(zip(range(len(MAPS)), session.run(None, {session.get_inputs()[0].name: x}), strict=True))


@pytest.mark.parametrize("rows", ROWS)
def test_maps(run, rows):
    x = ROWS[rows]
    for k, got in run(x).items():
        name, params = MAPS[k]
        want = getattr(isentropic, name)(x, **params)
        np.testing.assert_allclose(
            got, want, rtol=1e-11 if name in ("log_softmax", "logsumexp") else 0, atol=2e-11, err_msg=f"{name} {params}"
        )


def test_noises(tmp_path):
    """An integral at fixed points between the kinks of the noise."""
    noises = ("normal", "logistic", "laplace", "exponential", "uniform")

    def maps(x):
        p = [et.perturb_max(x, noise=noise, scale=0.6) for noise in noises]
        return *p, et.smooth_accuracy_loss(
            x, torch.zeros_like(x[..., 0], dtype=torch.int64), map=("perturb_max", {"noise": "normal"})
        )

    sizes = ({0: torch.export.Dim("rows"), 1: torch.export.Dim("n")},)
    isentropic.onnx.export(maps, (torch.zeros(2, 7, dtype=torch.float64),), tmp_path / "m.onnx", dynamic_shapes=sizes)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    for rows in ("random", "ties", "special", "of one score"):
        x = ROWS[rows]
        *found, loss = session.run(None, {session.get_inputs()[0].name: x})
        if rows == "random":
            given = ("perturb_max", {"noise": "normal"})
            want = isentropic.smooth_accuracy_loss(x, np.zeros(len(x), int), map=given)
            np.testing.assert_allclose(loss, want, rtol=0, atol=1e-7)
        for noise, got in zip(noises, found, strict=True):
            want = isentropic.perturb_max(x, noise=noise, scale=0.6)
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-10, err_msg=f"{noise} {rows}")


def test_hard_rows_for_an_entropy(run):
    """Clusters far apart, ties up to the last bits, targets near the ends: rows on which Newton's method fails."""
    gaps = [1e-12, 1e-6, 1e-3, 1.0, 30.0, 1e3, 1e6]
    hard = [np.array([0.0, *-np.cumsum(RNG.exponential(gap, 11))]) for gap in gaps]
    hard += [np.repeat([0.0, -gap], 6) for gap in gaps]
    hard += [np.array([0.0] + [-gap] * 11) for gap in gaps] + [np.array([0.0] * 11 + [-gap]) for gap in gaps]
    hard += [np.concatenate([np.zeros(4), -gap + 1e-9 * np.arange(4), -1e3 * gap + np.zeros(4)]) for gap in gaps]
    x = np.stack([RNG.permutation(row) for row in hard])
    for k, got in run(x).items():
        name, params = MAPS[k]
        if name.startswith("entropy"):
            np.testing.assert_allclose(got, getattr(isentropic, name)(x, **params), rtol=0, atol=2e-11, err_msg=f"{params}")


def generated_row(n):
    """The rows of tests/entropy_control_test.cc: of every kind that has broken an entropy normalisation somewhere."""
    kind, scale = RNG.integers(11), 10.0 ** RNG.uniform(-6, 6)
    if kind == 0:  # normal, perhaps far from 0
        return scale * RNG.standard_normal(n) + 1e6 * RNG.integers(2)
    if kind == 1:  # a few large, a long tail
        return np.where(np.arange(n) < 4, 5 + 4 * RNG.standard_normal(n), -5 + 2 * RNG.standard_normal(n))
    if kind == 2:  # Zipf
        return -RNG.uniform(0.5, 2) * np.log1p(np.arange(n))
    if kind == 3:  # ties everywhere
        return np.round(RNG.standard_normal(n))
    if kind == 4:  # masked
        x = np.where(RNG.integers(3, size=n) == 0, RNG.standard_normal(n), -INF)
        x[RNG.integers(n)] = 1
        return x
    if kind == 5:  # one spike
        x = 1e-3 * RNG.standard_normal(n)
        x[RNG.integers(n)] = RNG.uniform(0, 1e4)
        return x
    if kind == 6:  # magnitudes of every size
        return RNG.choice([1, -1], n) * 10.0 ** RNG.uniform(-30, 30, n)
    if kind == 7:  # two values
        return np.where(RNG.integers(2, size=n) == 0, 0, -scale)
    if kind == 8:  # subnormal differences
        return 5e-324 * RNG.integers(50, size=n)
    if kind == 9:  # nearly uniform: equal but for the last digits
        return 1 + 2.0**-52 * RNG.integers(3, size=n)
    return np.where(RNG.integers(5, size=n) == 0, 3, 3 - 10.0 ** RNG.uniform(-5, 3, n))  # ties at the top


def generated_target(x):
    """Any entropy, and often one near an end of the reach, or beyond."""
    low, high = np.log((x == x.max()).sum()), np.log(np.isfinite(x).sum())
    small, kind = (high - low) * 10.0 ** (-14 * RNG.random()), RNG.integers(6)
    if kind > 2:
        return low + (high - low) * RNG.random()
    return (max(0.0, low + small), max(0.0, high - small), 1.2 * high * RNG.random())[kind]


def test_an_entropy_is_reached_on_the_hard_rows_of_the_oracle(tmp_path):
    rows, most = 3000, 300
    x = np.full((rows, most), -INF)
    for row in x:
        n = RNG.integers(1, 65 if RNG.random() < 0.7 else most + 1)
        row[:n] = generated_row(n)
    target = np.array([[generated_target(row)] for row in x])
    top = x.max(-1, keepdims=True)
    goal = np.clip(target[:, 0], np.log((x == top).sum(-1)), np.log(np.isfinite(x).sum(-1)))
    dims = ({0: torch.export.Dim("rows"), 1: torch.export.Dim("n")}, {0: torch.export.Dim("rows")})
    example = torch.zeros(3, 7, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64)

    def function(x, target):
        return et.entropy_normalize(x, entropy=target), et.entropy_clip(x, min_entropy=target, max_entropy=target)

    isentropic.onnx.export(function, example, tmp_path / "m.onnx", dynamic_shapes=dims)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    for p in session.run(None, dict(zip([one.name for one in session.get_inputs()], (x, target), strict=True))):
        wide = p.astype(np.longdouble)
        reached = -np.where(p > 0, wide * np.log(np.where(p > 0, wide, 1)), 0).sum(-1)
        np.testing.assert_allclose(reached, goal, rtol=1e-13, atol=1e-13)
        assert np.array_equal(np.diff(np.take_along_axis(p, np.argsort(x, -1), -1)) < 0, np.zeros((rows, most - 1), bool))
        equal = np.diff(np.sort(x, -1)) == 0
        assert not np.diff(np.take_along_axis(p, np.argsort(x, -1), -1))[equal].any()


def test_golden_values(tmp_path):
    """The definitions by mpmath; temperature and alpha are one for each row."""
    rows, results = {}, {}
    for line in (pathlib.Path(__file__).parents[1] / "golden/golden.jsonl").read_text(encoding="ascii").splitlines():
        record = json.loads(line)
        if "map" not in record:
            rows[record["row"]] = [float.fromhex(value) for value in record["x"]]
        elif record["map"] in ("softmax", "sparsemax", "entmax", "log_softmax", "logsumexp"):
            params = record["params"]
            results.setdefault((params.get("temperature", 1.0), params.get("alpha", 1.3)), []).append(record)
    x = np.full((len(rows), max(map(len, rows.values()))), -INF)
    for row, given in zip(x, rows.values(), strict=True):
        row[: len(given)] = given

    def function(x, temperature, alpha):
        names = ("softmax", "sparsemax", "log_softmax", "logsumexp")
        return et.entmax(x, alpha=alpha, temperature=temperature), *(
            getattr(et, name)(x, temperature=temperature) for name in names
        )

    of_rows = {0: torch.export.Dim("rows")}
    dims = ({0: torch.export.Dim("rows"), 1: torch.export.Dim("n")}, of_rows, of_rows)
    example = torch.zeros(3, 7, dtype=torch.float64), *(torch.full((3, 1), 1.3, dtype=torch.float64) for _ in range(2))
    isentropic.onnx.export(function, example, tmp_path / "m.onnx", dynamic_shapes=dims)
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    inputs, checked = [one.name for one in session.get_inputs()], 0
    for (temperature, alpha), records in results.items():
        given = x, np.full((len(x), 1), temperature), np.full((len(x), 1), alpha)
        maps = ("entmax", "softmax", "sparsemax", "log_softmax", "logsumexp")
        found = dict(zip(maps, session.run(None, dict(zip(inputs, given, strict=True))), strict=True))
        for record in records:
            got, want = found[record["map"]][list(rows).index(record["row"])], np.array(record["y"], np.float64)
            got = np.atleast_1d(got)[record["at"]] if record["map"] != "logsumexp" else np.atleast_1d(got)
            relative = 5e-15 if record["map"] in ("log_softmax", "logsumexp") else 0
            said = f"{record['map']} {record['row']} {record['params']}"
            np.testing.assert_allclose(got, want[: len(got)], rtol=relative, atol=5e-15, err_msg=said)
            checked += 1
    assert checked > 800


def test_the_graph_is_small(tmp_path):
    isentropic.onnx.export(lambda x: et.entmax(x, alpha=1.3), (torch.zeros(2, 5),), tmp_path / "m.onnx")
    model = onnx.load(tmp_path / "m.onnx")
    assert len(model.graph.node) < 120
    assert {one.domain for one in model.opset_import} == {""}
    assert {one.version for one in model.opset_import} == {isentropic.onnx.OPSET}
    x = ROWS["random"].astype(np.float32)[:2, :5]
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    (got,) = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_allclose(got, isentropic.entmax(x, alpha=1.3), rtol=0, atol=2e-7)


def test_what_cannot_be_exported_is_named(tmp_path):
    for function, name in (
        (lambda x: et.gamma_for_entropy(x, entropy=0.5).gamma, "gamma_for_entropy"),
        (lambda x: et.power_transform(x, gamma=2.0), "power_transform"),
        (lambda x: et.soft_top_k(x, k=1.5), "soft_top_k"),
        (
            lambda x: et.margin_softmax_loss(x, torch.tensor([0, 1]), kind="sphere", margin=torch.tensor([[2.0], [3.0]])),
            "margin_softmax_loss of kind sphere with a margin that is a tensor",
        ),
    ):
        with pytest.raises(ValueError, match=f"onnx.export: {name} cannot be exported"):
            isentropic.onnx.export(function, (torch.ones(2, 3),), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


MEASURES = [
    ("entropy", {}),
    ("renyi_entropy", {"alpha": 2.0}),
    ("tsallis_entropy", {"alpha": 1.5}),
    ("perplexity", {}),
    ("self_information", {}),
    ("cross_entropy", {}),
    ("kl_divergence", {}),
    ("js_divergence", {}),
    ("js_distance", {}),
]
TWO = {"cross_entropy", "kl_divergence", "js_divergence", "js_distance"}


def test_wrong_arguments_are_named(tmp_path):
    x, path = torch.zeros(2, 5), tmp_path / "one.onnx"
    with pytest.raises(TypeError, match=r"onnx.export: module must be a torch.nn.Module or a function of tensors, got int"):
        isentropic.onnx.export(5, (x,), path)
    missing = tmp_path / "missing" / "one.onnx"
    with pytest.raises(FileNotFoundError, match="the folder of path does not exist") as refused:
        isentropic.onnx.export(et.softmax, (x,), missing)
    assert refused.value.filename == str(missing)
    assert not list(tmp_path.iterdir())


def test_measures_and_losses(tmp_path):
    """Numbers in losses and measures are float32 where torch makes constants of them."""

    def all_of_them(p, q, target):
        values = [getattr(et, name)(*(p, q)[: 2 if name in TWO else 1], **params) for name, params in MEASURES]
        scores = torch.log(q)
        margin = et.margin_softmax_loss(torch.tanh(scores), target, kind="sphere", margin=3)
        losses = et.softmax_loss(scores, target), et.sparsemax_loss(scores, target), et.entmax_loss(scores, target), margin
        of_bools = torch.where(p > 0.1, q > 0.1, q > 0.05).int()  # which renyi_divergence needs
        return *values, *losses, of_bools, et.entmax(0 * p, alpha=1000.0)

    rows = torch.from_numpy(ROWS["random"])
    p, q = torch.softmax(rows, -1), torch.softmax(-rows / 2, -1)
    target = torch.arange(len(rows))
    isentropic.onnx.export(all_of_them, (p, q, target), tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    given = {one.name: x.numpy() for one, x in zip(session.get_inputs(), (p, q, target), strict=True)}
    for got, want in zip(session.run(None, given), all_of_them(p, q, target), strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_token_statistics(tmp_path, dtype):
    """With the indices of the largest logits: of equal ones the lowest first, NaN as +inf."""
    rows = [ROWS["special"], np.round(RNG.standard_normal((9, 4))), RNG.standard_normal((5, 4)) * 3]
    x = torch.from_numpy(np.concatenate(rows)).float()
    target = torch.arange(len(x)) % 4

    def statistics(x, target):
        found = [et.token_statistics(x.to(dtype), target, temperature=0.7, top=top) for top in (0, 1, 3, 4)]
        along = et.token_statistics(x.to(dtype).T, target, top=2, dim=0).top_indices
        return *found[0][:3], *(one.top_indices for one in found[1:]), along

    sizes = {0: torch.export.Dim("rows")}
    isentropic.onnx.export(statistics, (x, target), tmp_path / "m.onnx", dynamic_shapes=(sizes, sizes))
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    for rows in (slice(None), slice(7, None)):
        given = x[rows], target[rows]
        found = session.run(None, {one.name: y.numpy() for one, y in zip(session.get_inputs(), given, strict=True)})
        for k, (got, want) in enumerate(zip(found, statistics(*given), strict=True)):
            np.testing.assert_allclose(got, want.numpy(), rtol=2e-6, atol=0 if k > 2 else 2e-6)


@pytest.mark.parametrize("name", ["softmax", "sparsemax"])
def test_attention_with_its_entropy(tmp_path, name):
    def attend(q, k, v):
        return et.attention(q, k, v, map=name, causal=True, return_entropy=True)

    q, k, v = (torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    isentropic.onnx.export(attend, (q, k, v), tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"))
    given = {one.name: x.numpy() for one, x in zip(session.get_inputs(), (q, k, v), strict=True)}
    for got, want in zip(session.run(None, given), attend(q, k, v), strict=True):
        np.testing.assert_allclose(got, want.numpy(), atol=2e-6)


def test_attention_with_sinks_and_a_learned_scale(tmp_path):
    given = {"sinks": torch.nn.Parameter(torch.tensor([0.5, -1.0, 0.0])), "softcap": 2.0, "causal": True}
    module = et.Attention(map="entmax", scale="log_n", heads=3, **given)
    q, k, v = (torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    found = file_of(module, (q, k, v), tmp_path / "a.onnx")(q, k, v)
    np.testing.assert_allclose(found[0], module(q, k, v).detach().numpy(), atol=2e-6)


def file_of(function, example, path, dims=None):
    """The function's file, as a function of torch's tensors."""
    isentropic.onnx.export(function, example, path, dynamic_shapes=dims)
    session = onnxruntime.InferenceSession(str(path))
    names = [one.name for one in session.get_inputs()]
    return lambda *given: session.run(None, {name: x.numpy() for name, x in zip(names, given, strict=True)})


def test_a_measure_of_a_row_without_a_distribution_is_nan(tmp_path):
    """Also where onnxruntime's log_softmax of a NaN is a number."""

    def measures(p, q):
        of_both = [getattr(et, name)(p, q, input="scores") for name in sorted(TWO)]
        orders = [et.renyi_entropy(p, alpha=alpha, input="scores") for alpha in (0.0, 2.0, INF)]
        return *of_both, *orders, et.tsallis_entropy(p, alpha=INF, input="scores"), et.self_information(p, input="scores")

    nan, rows = np.nan, {0: torch.export.Dim("rows")}
    without = [[nan, 1, 2, 0], [1, 2, nan, -INF], [-INF] * 4, [-INF, nan, 0, INF]]
    special = [*without, [1, 2, 3, 0], [1, 2, INF, -INF], [1, -INF, 2, 0]]
    x = torch.tensor(special, dtype=torch.float64)
    p, q = x.repeat_interleave(len(x), 0), x.repeat(len(x), 1)
    run = file_of(measures, (p[:3], q[:3]), tmp_path / "m.onnx", (rows, rows))
    for k, (got, want) in enumerate(zip(run(p, q), measures(p, q), strict=True)):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-14, atol=1e-7, err_msg=f"{k}")


def test_losses_keep_their_digits_beside_an_offset_and_in_long_rows(tmp_path):
    def losses(x, target, q):
        soft = et.softmax_loss(x, q), et.softmax_loss(x, q, label_smoothing=0.25), et.top_k_softmax_loss(x, q, k=3)
        one = et.softmax_loss(x, target), et.top_k_softmax_loss(x, target, k=3), et.top_p_softmax_loss(x, target, p=0.5)
        measures = et.entropy(x, input="scores"), et.kl_divergence(x, -x / 2, input="scores")
        return *soft, *one, *measures, et.token_statistics(x, target).entropy

    rows, n = torch.export.Dim("rows"), torch.export.Dim("n")
    dims = {0: rows, 1: n}, {0: rows}, {0: rows, 1: n}
    example = torch.zeros(3, 7), torch.zeros(3, dtype=torch.int64), torch.ones(3, 7) / 7
    run = file_of(losses, example, tmp_path / "l.onnx", dims)
    x = torch.from_numpy(ROWS["random"]).float()
    target = x.argmax(-1) * (torch.arange(len(x)) % 2)
    q = torch.softmax(-x / 3, -1)
    given = [(x + offset, target, q) for offset in (0.0, 1e2, 1e4, 1e6)]
    long = torch.from_numpy(RNG.standard_normal((2, 2**16)) * 3).float()
    given += [(long, long.argmax(-1), torch.full_like(long, 2.0**-16))]
    for one in given:
        want = losses(*(a.double() if a.is_floating_point() else a for a in one))
        for k, (got, exact) in enumerate(zip(run(*one), want, strict=True)):
            np.testing.assert_allclose(got, exact.numpy(), rtol=2e-7, atol=3e-7, err_msg=f"{k}")
    small = torch.tensor([[0.0, -20, -30], [0, -10, -12], [3e38, 3e38, 3e38], [-3.4e38, -3.4e38, -3.4e38]])
    target = torch.zeros(4, dtype=torch.int64)
    q = torch.ones(4, 3) / 3
    got = run(small, target, q)[3]
    np.testing.assert_allclose(got, et.softmax_loss(small, target).numpy(), rtol=1e-6)


def test_scores_near_the_largest_number(tmp_path):
    def maps(x, q):
        clipped = et.entropy_clip(x, min_entropy=0.4, max_entropy=0.9), et.entropy_normalize(x, entropy=0.5)
        hot = et.softmax(x, temperature=1e308), et.log_softmax(x, temperature=2.0), et.logsumexp(x, temperature=2.0)
        target = torch.zeros_like(x[:, 0], dtype=torch.int64)
        losses = et.sparsemax_loss(x, q), et.softmax_loss(x, q), et.token_statistics(x, target, temperature=2.0).logprob
        return *clipped, *hot, et.sigsoftmax(x), et.perturb_max(x, scale=1e308), *losses

    most, rows = np.finfo(np.float64).max, {0: torch.export.Dim("rows")}
    ends = [[-most, most], [most, most], [-most, -most], [most / 2, -most], [5e-324, 0], [-most, -INF]]
    x = torch.tensor(ends, dtype=torch.float64)
    q = torch.tensor([[0.25, 0.75]], dtype=torch.float64).repeat(len(x), 1)
    run = file_of(maps, (x[:3], q[:3]), tmp_path / "m.onnx", (rows, rows))
    for k, (got, want) in enumerate(zip(run(x, q), maps(x, q), strict=True)):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-10, atol=1e-10, err_msg=f"{k}")


def test_one_tensor_given_as_several_arguments(tmp_path):
    """Each is its own input."""
    x, *given = (torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(4))
    for function, example in ((et.attention, (x, x, x)), (lambda q, kv: et.attention(q, kv[0], kv[1]), (given[0], (x, x)))):
        run = file_of(function, example, tmp_path / "a.onnx")
        np.testing.assert_allclose(run(*given)[0], et.attention(*given).numpy(), atol=2e-6)


def test_numbers_keep_their_digits(tmp_path):
    """torch.onnx alone writes a number such as 1.2 in float32, also where it meets float64."""
    rng = np.random.default_rng(3)
    x, target = 3 * rng.standard_normal((30, 12)), rng.integers(0, 12, 30)

    def function(x, target):
        logs = x.log_softmax(-1) * 1e-3 - 5e44 + 5e44
        return (
            *(et.entmax_loss(x, target, alpha=alpha) for alpha in (1.2, 1.7)),
            et.renyi_entropy(x, alpha=0.3, input="scores"),
            logs,
        )

    given = torch.tensor(x), torch.tensor(target)
    isentropic.onnx.export(function, given, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"))
    found = session.run(None, {one.name: value.numpy() for one, value in zip(session.get_inputs(), given, strict=True)})
    for got, want in zip(found, function(*given), strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=2e-14, atol=1e-15)
