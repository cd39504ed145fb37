"""Labels of two variables: tables of every kind of label, and what one tells about the other."""

import datetime
import math

import numpy as np
import pytest

import isentropic


def test_tables_of_every_kind_of_label():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    a, b = ["tea", "tea", "milk", "tea"], [3, 1, 1, 3]
    want = [[1, 0], [1, 2]]
    for first in (a, tuple(a), np.array(a), np.array(a, object), pd.Series(a), pd.Series(a, dtype="string"), pa.array(a),
                  pa.chunked_array([a[:2], a[2:]])):  # fmt: skip
        for second in (b, np.array(b), np.array(b, np.uint8), np.array(b, float), pd.Series(b), pa.array(b)):
            counts, drinks, numbers = isentropic.contingency_table(first, second)
            assert counts.tolist() == want and counts.dtype.kind == "i"
            assert list(drinks) == ["milk", "tea"] and numbers.tolist() == [1, 3]
    days = [datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)]
    assert isentropic.contingency_table(days, [True, False]).counts.tolist() == [[1, 0], [0, 1]]
    far = isentropic.contingency_table([10**12, -5], [0.5, -0.25])
    assert far.a_labels.tolist() == [-5, 10**12] and far.b_labels.tolist() == [-0.25, 0.5]
    # Categories keep their order, and those that were not seen are zeros.
    sizes = pd.Categorical(["S", "L", "S"], categories=["S", "M", "L"])
    for given in (sizes, pd.Series(sizes), pa.DictionaryArray.from_arrays([0, 2, 0], ["S", "M", "L"])):
        counts, names, _ = isentropic.contingency_table(given, [0, 1, 0])
        assert counts.tolist() == [[2, 0], [0, 0], [0, 1]] and list(names) == ["S", "M", "L"]
    weighted = isentropic.contingency_table(a, b, sample_weight=[0.5, 1, 2, 3])
    assert weighted.counts.tolist() == [[2, 0], [1, 3.5]]
    assert isentropic.contingency_table([], []).counts.shape == (0, 0)


def test_what_is_no_label():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    table = isentropic.contingency_table
    for missing in (["x", None], ["x", math.nan], [1.0, math.nan], pd.Series(["x", None]), pd.Series([1, pd.NA], dtype="Int64"),
                    pd.Categorical(["x", None]), pa.array(["x", None]), np.ma.array([1, 2], mask=[False, True]),
                    np.array(["2020-01-01", "NaT"], "datetime64[D]"), pd.Series(["x", pd.NA], dtype="string")):  # fmt: skip
        with pytest.raises(ValueError, match=r"^contingency_table: b has a missing label at entry 1; drop such rows"):
            table(["a", "b"], missing)
    with pytest.raises(ValueError, match=r"^contingency_table: b must have as many labels as a, 2, got 3"):
        table([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match=r"^contingency_table: a must have one axis, a label for each row, got shape \(1, 2\)"):
        table([[1, 2]], [1])
    with pytest.raises(TypeError, match=r"^contingency_table: a must have labels that can be sorted, got int and str"):
        table(["x", 1], [1, 2])
    with pytest.raises(
        ValueError, match=r"^contingency_table: sample_weight must be at least 0 and finite, got -1.0 at entry 1"
    ):
        table([1, 2], [1, 2], sample_weight=[1, -1])
    with pytest.raises(ValueError, match=r"^contingency_table: sample_weight must have one number for each of 2 rows"):
        table([1, 2], [1, 2], sample_weight=[1])


def test_information():
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    a = rng.integers(0, 5, 300)
    b = np.where(rng.random(300) < 0.5, a, rng.integers(0, 4, 300))
    of = isentropic.mutual_information_of_labels
    assert of(a, b) == pytest.approx(sklearn.mutual_info_score(a, b), rel=1e-12)
    for average in ("arithmetic", "geometric", "min", "max"):
        want = sklearn.normalized_mutual_info_score(a, b, average_method=average)
        assert of(a, b, normalized=average) == pytest.approx(want, rel=1e-12)
        assert of(a, a, normalized=average) == pytest.approx(1, rel=1e-14)
        assert of(a, np.zeros(300), normalized=average) == 0
    table = isentropic.contingency_table(a, b).counts
    for name in ("miller_madow", "grassberger", "james_stein", "nsb"):
        want = isentropic.mutual_information_of_counts(table, estimator=name)
        assert of(a, b, estimator=name) == want == of(a.astype(str), b.astype(str), estimator=name)
    assert of(a, b, base=2) == pytest.approx(of(a, b) / math.log(2))
    assert math.isnan(of([], []))
    # Identifiers: a table of all pairs would not fit.
    names = rng.permutation(20000)
    assert of(names, names, base=2) == pytest.approx(math.log2(20000))
    assert of(names, names % 3) == pytest.approx(isentropic.entropy(np.bincount(names % 3), normalize=True), rel=1e-9)


def test_information_given_a_third():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 2, (2, 4000))
    z = x ^ y
    of = isentropic.mutual_information_of_labels
    assert of(x, y, base=2) < 0.01 and of(x, y, given=z, base=2) > 0.99
    assert of(x, y, given=z) == of(x.astype(str), y, given=z.astype(float))
    tables = np.zeros((2, 2, 2))
    np.add.at(tables, (x, y, z), 1)
    want = sum(t.sum() / 4000 * isentropic.mutual_information(t, normalize=True) for t in np.moveaxis(tables, -1, 0))
    assert of(x, y, given=z) == pytest.approx(want, rel=1e-12)
    plugin = of(x, y, given=z, estimator="plugin")
    assert abs(of(x, y, given=z, estimator="grassberger") - plugin) < 0.01
    with pytest.raises(ValueError, match=r"^mutual_information_of_labels: normalized needs the plugin estimator, .*got given"):
        of(x, y, given=z, normalized="min")
    with pytest.raises(ValueError, match=r"^mutual_information_of_labels: normalized needs .*got base"):
        of(x, y, base=2, normalized="min")
    with pytest.raises(ValueError, match=r"^mutual_information_of_labels: normalized must be one of arithmetic"):
        of(x, y, normalized="mean")
    with pytest.raises(ValueError, match=r"^mutual_information_of_labels: given has a missing label at entry 0"):
        of([1, 2], [1, 2], given=[None, "x"])
    with pytest.raises(ValueError, match=r"^mutual_information_of_labels: estimator must be one of plugin"):
        of(x, y, estimator="ml")


def test_conditional_information():
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(24), 3).reshape(3, 2, 3, 4)
    of = isentropic.conditional_mutual_information
    for table, found in zip(p, of(p), strict=True):
        want = sum(t.sum() * isentropic.mutual_information(t, normalize=True) for t in np.moveaxis(table, -1, 0))
        assert found == pytest.approx(want, rel=1e-12)
    # Independent given z: only rounding is left.
    x, y, z = rng.dirichlet(np.ones(3), 4).T, rng.dirichlet(np.ones(5), 4).T, rng.dirichlet(np.ones(4))
    assert 0 <= of(x[:, None] * y[None] * z) < 1e-28
    for kind, given, normalize in (("probs", p, False), ("probs", 7 * p, True), ("log_probs", np.log(p), False),
                                   ("log_probs", np.log(p) + 2, True), ("scores", np.log(p) + 1, False)):  # fmt: skip
        value, slope = of(given, input=kind, normalize=normalize, base=2, return_grad=True)
        np.testing.assert_allclose(value, of(p, base=2), rtol=1e-10)
        direction, step = rng.normal(size=p.shape), 1e-6
        direction -= direction.mean((1, 2, 3), keepdims=True) * (kind == "probs" and not normalize)
        ahead, back = (of(given + sign * step * direction * p, input=kind, normalize=normalize or kind == "log_probs", base=2)
                       for sign in (1, -1))  # fmt: skip
        if kind == "probs" and not normalize:
            continue  # the steps leave the simplex
        if kind == "log_probs" and not normalize:
            continue
        np.testing.assert_allclose((slope * direction * p).sum((1, 2, 3)), (ahead - back) / (2 * step), rtol=1e-6, atol=1e-9)
    for large in (1e308, 5e-324):  # the sum, or the inverse of the entries, is beyond the range
        assert of(np.full((2, 2, 2), large) * [[[1, 1], [1, 0]], [[1, 1], [0, 1]]], normalize=True) == pytest.approx(
            of(np.array([[[1, 1], [1, 0]], [[1, 1], [0, 1]]]) / 6)
        )
    with pytest.raises(ValueError, match=r"^conditional_mutual_information: pxyz must have at least 3 axes, x, y and z"):
        of(p[0, 0])
    with pytest.raises(ValueError, match=r"^conditional_mutual_information: pxyz must be at least 0 and finite, got -1.0 at"):
        of(-np.ones((1, 1, 1)))
    with pytest.raises(
        ValueError, match=r"^conditional_mutual_information: pxyz must sum to 1 within 1e-06, got 2.0 in table 0"
    ):
        of(2 * p / p.sum((1, 2, 3), keepdims=True))
    torch = pytest.importorskip("torch")
    import isentropic.torch as et

    given = torch.tensor(np.log(p), requires_grad=True)
    np.testing.assert_allclose(et.conditional_mutual_information(given, input="scores").detach(), of(p), rtol=1e-12)
    assert torch.autograd.gradcheck(lambda x: et.conditional_mutual_information(x, input="scores"), given, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda x: et.conditional_mutual_information(x, input="scores"), given, fast_mode=True)


def test_scores_of_features():
    feature_selection = pytest.importorskip("sklearn.feature_selection")
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 500)
    X = np.stack([rng.integers(0, 4, 500), y, np.where(rng.random(500) < 0.7, y, 0)], 1)
    got = isentropic.mutual_information_scores(X, y)
    np.testing.assert_allclose(got, feature_selection.mutual_info_classif(X, y, discrete_features=True), rtol=1e-9)
    frame = pd.DataFrame({"a": X[:, 0].astype(str), "b": pd.Categorical(X[:, 1]), "c": X[:, 2].astype(float)})
    np.testing.assert_array_equal(isentropic.mutual_information_scores(frame, y.astype(str)), got)
    best = feature_selection.SelectKBest(isentropic.mutual_information_scores, k=2).fit(X, y)
    assert best.get_support().tolist() == [False, True, True]
    frame.loc[3, "c"] = np.nan
    with pytest.raises(ValueError, match=r"^mutual_information_scores: X\['c'\] has a missing label at entry 3"):
        isentropic.mutual_information_scores(frame, y)
    with pytest.raises(ValueError, match=r"^mutual_information_scores: y must have as many labels as X has rows, 500, got 3"):
        isentropic.mutual_information_scores(X, [1, 2, 3])


def test_a_frame_of_labels_is_no_table():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [0, 1, 1, 0], "b": [0, 1, 1, 1]})
    message = "^mutual_information: pxy is a frame of two columns, which may be labels: mutual_information_of_labels takes 'a'"
    for one in (frame, frame.astype(str), frame.astype("category")):
        with pytest.raises(ValueError, match=message):
            isentropic.mutual_information(one, normalize=True)
        with pytest.raises(
            ValueError, match=r"^mutual_information_of_counts: table is a frame of .* and table.to_numpy\(\) is"
        ):
            isentropic.mutual_information_of_counts(one)
    assert isentropic.mutual_information_of_counts(pd.crosstab(frame["a"], frame["b"]), estimator="plugin") == pytest.approx(
        isentropic.mutual_information_of_labels(frame["a"], frame["b"])
    )
    assert isentropic.mutual_information(frame.to_numpy(), normalize=True) >= 0
    assert isentropic.mutual_information(frame.astype(float) / 5) >= 0
    assert isentropic.mutual_information(pd.crosstab(frame["a"], frame["b"]), normalize=True) == pytest.approx(
        isentropic.mutual_information_of_labels(frame["a"], frame["b"])
    )


def test_labels_at_the_ends_of_their_types():
    """A difference of labels may be beyond their type, and a label of uint64 beyond int64."""
    for kind in "bhilBHIL":
        ends = np.iinfo(kind)
        labels = np.array([ends.max, ends.min, ends.max, ends.max - 1], kind)
        counts, of_a, _ = isentropic.contingency_table(labels, [0, 1, 0, 1])
        assert counts.tolist() == [[0, 1], [0, 1], [2, 0]]
        assert of_a.tolist() == [ends.min, ends.max - 1, ends.max] and of_a.dtype == np.dtype(kind)
    high = np.array([2**64 - 1, 2**64 - 3], np.uint64)
    assert isentropic.contingency_table(high, high).a_labels.tolist() == [2**64 - 3, 2**64 - 1]


def test_classes_in_place_of_a_distribution():
    """cross_entropy(logits, labels) is softmax_loss, and says so; a distribution of whole numbers stays one."""
    x, labels = np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 1.0]]), np.array([0, 2])
    text = r"^cross_entropy: q must be a distribution, got integers of shape \(\d,\); that of classes is softmax_loss"
    for given in (labels, labels.tolist(), np.array([0, 1]), np.array([0, 1, 2])):
        with pytest.raises(TypeError, match=text):
            isentropic.cross_entropy(x, given)
    p = isentropic.softmax(x)
    np.testing.assert_array_equal(isentropic.cross_entropy(p, np.array([0, 1, 0])), [math.inf, math.inf])
    pytest.importorskip("jax")
    import isentropic.jax as ej

    with pytest.raises(TypeError, match=text):
        ej.cross_entropy(x, labels)


def test_errors_are_of_the_function_that_was_called():
    a, b = [0, 1, 1], ["x", "y", "x"]
    calls = {
        "mutual_information_of_labels": lambda **more: isentropic.mutual_information_of_labels(a, b, **more),
        "mutual_information_scores": lambda **more: isentropic.mutual_information_scores([[0], [1], [1]], b, **more),
        "conditional_mutual_information": lambda **more: isentropic.conditional_mutual_information(
            np.ones((2, 2, 2)) / 8, **more
        ),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=rf"^{name}: base must be above 1 and finite, got 1"):
            call(base=1)
        with pytest.raises(TypeError, match=rf"^{name}: base must be a number, got str"):
            call(base="e")
    for wrong in (["1", "2", "3"], "a"):
        with pytest.raises(TypeError, match=r"^contingency_table: sample_weight must be of float16"):
            isentropic.contingency_table(a, b, sample_weight=wrong)


def test_scores_of_arrow_tables():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": [0, 0, 1, 1], "b": ["x", "y", "x", "y"]})
    np.testing.assert_allclose(isentropic.mutual_information_scores(table, [0, 0, 1, 1], base=2), [1, 0], atol=1e-15)


@pytest.mark.filterwarnings("error")
def test_conditional_information_of_infinite_scores():
    """Scores of inf share the mass. A table with NaN, or without a score above -inf, is NaN, alone and without a warning."""
    x = np.random.default_rng(0).normal(size=(5, 2, 3, 2))
    x[1], x[2, 0, 1, 1], x[3, 0, 0, 0], x[3, 1, 2, 0], x[4, 1, 1, 1] = -math.inf, math.nan, math.inf, math.inf, -math.inf
    want = isentropic.conditional_mutual_information(x, input="scores")
    share = np.zeros((2, 3, 2))
    share[0, 0, 0] = share[1, 2, 0] = 0.5
    assert want[3] == isentropic.conditional_mutual_information(share) == pytest.approx(math.log(2))
    assert np.isnan(want).tolist() == [False, True, True, False, False]
    value, slope = isentropic.conditional_mutual_information(x, input="scores", return_grad=True)
    np.testing.assert_array_equal(value, want)
    assert np.isnan(slope[[1, 2]]).all() and np.isfinite(slope[[0, 3, 4]]).all()
    torch = pytest.importorskip("torch")
    import isentropic.torch as et

    moving = torch.tensor(x, requires_grad=True)
    found = et.conditional_mutual_information(moving, input="scores")
    np.testing.assert_allclose(found.detach(), want, rtol=1e-12, atol=1e-14)
    found[[0, 4]].sum().backward()
    np.testing.assert_allclose(moving.grad[[0, 4]], slope[[0, 4]], rtol=1e-9, atol=1e-12)
    jax = pytest.importorskip("jax")
    import isentropic.jax as ej

    jax.config.update("jax_enable_x64", True)
    np.testing.assert_allclose(ej.conditional_mutual_information(x, input="scores"), want, rtol=1e-12, atol=1e-14)


def test_series_of_other_rows():
    """The index of a Series names rows, which pandas.crosstab would pair; a RangeIndex does not."""
    pd = pytest.importorskip("pandas")
    a, b = pd.Series(["x", "y", "y"], index=[3, 5, 7]), pd.Series([0, 1, 0], index=[5, 3, 7])
    for function in (isentropic.contingency_table, isentropic.mutual_information_of_labels):
        with pytest.raises(
            ValueError, match=rf"^{function.__name__}: b must have the index of a, got 5 in place of 3; b.reindex\(a.index\)"
        ):
            function(a, b)
        for same in (b.reindex(a.index), b.reset_index(drop=True), b.to_numpy()):
            function(a, same)
    paired = isentropic.contingency_table(a, b.reindex(a.index)).counts
    np.testing.assert_array_equal(paired, pd.crosstab(a, b))
    with pytest.raises(ValueError, match=r"^mutual_information_of_labels: given must have the index of a, got 5"):
        isentropic.mutual_information_of_labels(a, [0, 1, 0], given=b)


def test_labels_of_lists_stay_apart():
    """NumPy would write what is beside a string as a string, drop NULs at the end, and round large integers."""
    for labels, others in (
        (["a\0", "a", "a"], ["x", "y", "y"]),
        ([b"a\0", b"a", b"a"], ["x", "y", "y"]),
        ([2**63 + 1, 2**63 + 2, -1], [1, 2, 0]),
        ([1, "1", "1"], None),
        (["a", b"a", b"a"], None),
    ):
        if others is None:
            with pytest.raises(TypeError, match=r"^contingency_table: a must have labels that can be sorted, got"):
                isentropic.contingency_table(labels, [0, 1, 1])
            continue
        counts, kept, _ = isentropic.contingency_table(labels, others)
        assert set(kept.tolist()) == set(labels) and (counts > 0).sum() == len(kept)
    assert isentropic.contingency_table(["b", "a"], [0, 1]).a_labels.dtype.kind == "U"
    for X, place in (
        ([[math.nan, "a"], ["x", "b"]], r"X\[:, 0\] has a missing label at entry 0"),
        ([["x", "a"], ["x", None]], r"X\[:, 1\] has a missing label at entry 1"),
        (np.ma.masked_array([[0, 1], [1, 0]], [[0, 0], [0, 1]]), r"X\[:, 1\] has a missing label at entry 1"),
    ):
        with pytest.raises(ValueError, match=f"^mutual_information_scores: {place}"):
            isentropic.mutual_information_scores(X, ["p", "q"])
    bits = isentropic.mutual_information_scores([[1, "a"], [2, "b"]], ["p", "q"], base=2)
    np.testing.assert_array_equal(bits, [1, 1])
    whole = np.ma.masked_array([[0, 1], [1, 1]], False)
    np.testing.assert_array_equal(isentropic.mutual_information_scores(whole, ["p", "q"], base=2), [1, 0])
