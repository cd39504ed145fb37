"""Calibration: the functions against scipy's optimisers and dense grids, every kind of array, every error."""

import doctest
import math
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special

import isentropic
from cases import torch_or_skip

INF = np.inf
FITS = [isentropic.fit_temperature, isentropic.fit_target_entropy]
LABELLED = [*FITS, isentropic.expected_calibration_error]
X = np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0], [1.0, 1.5, 1.0], [0.0, 2.0, 1.0]])
LABELS = np.array([2, 0, 1, 2])


def named(functions):
    return pytest.mark.parametrize("function", functions, ids=lambda function: function.__name__)


def quietly(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", isentropic.TemperatureClampedWarning)
        return function(*args, **kwargs)


def drawn(rng, shape, scale=2.0, temperature=1.0):
    """Scores, and labels that have the law softmax(scores / temperature)."""
    x = rng.standard_normal(shape) * scale
    cumulated = special.softmax(x / temperature, axis=-1).cumsum(axis=-1)
    return x, (cumulated > rng.random((*shape[:-1], 1))).argmax(axis=-1)


def loss(x, labels, temperature):
    return -np.take_along_axis(special.log_softmax(x / temperature, axis=-1), labels[:, None], axis=-1).mean()


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 300),
    n=st.integers(2, 20),
    scale=st.floats(-2, 3),
    ratio=st.floats(-1.5, 1.5),
)
def test_temperature_is_the_minimum(seed, rows, n, scale, ratio):
    scale, ratio = 10**scale, 10**ratio
    x, labels = drawn(np.random.default_rng(seed), (rows, n), scale, scale * ratio)
    got = quietly(isentropic.fit_temperature, x, labels)
    assert 1e-3 <= got <= 1e3
    best = optimize.minimize_scalar(
        lambda t: loss(x, labels, math.exp(t)), bounds=(math.log(1e-3), math.log(1e3)), method="bounded"
    )
    assert loss(x, labels, got) <= best.fun * (1 + 1e-12) + 1e-15


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 100), n=st.integers(2, 20))
def test_target_entropy_is_the_minimum_of_a_grid(seed, rows, n):
    x, labels = drawn(np.random.default_rng(seed), (rows, n), 3.0, 2.0)

    def target_loss(entropy):
        p = isentropic.entropy_normalize(x, entropy=entropy)
        with np.errstate(divide="ignore"):
            return -np.log(np.take_along_axis(p, labels[:, None], axis=-1)).mean()

    got = isentropic.fit_target_entropy(x, labels)
    assert target_loss(got) <= min(target_loss(h) for h in np.linspace(0, math.log(n), 200)) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("temperature", [20.0, 0.3])
def test_temperatures_far_from_1_are_found(temperature):
    x, labels = drawn(np.random.default_rng(0), (20000, 10), 2 * temperature, temperature)
    assert isentropic.fit_temperature(x, labels) == pytest.approx(temperature, rel=0.03)
    assert isentropic.fit_temperature(x + 1e6, labels) == pytest.approx(isentropic.fit_temperature(x, labels), rel=1e-7)


def test_clamped_temperatures_warn():
    for labels, temperature, why in (([2, 0, 1, 1], 1e-3, "largest score"), ([0, 2, 0, 0], 1e3, "do not favour")):
        with pytest.warns(isentropic.TemperatureClampedWarning, match=f"T = {temperature:g} is an end .*{why}") as caught:
            assert isentropic.fit_temperature(X, labels) == temperature
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isentropic.fit_temperature(np.zeros((3, 4)), [0, 1, 2]) == 1.0
        assert isinstance(isentropic.fit_temperature(X, LABELS), float)
    assert issubclass(isentropic.TemperatureClampedWarning, UserWarning)


def test_edges():
    assert quietly(isentropic.fit_temperature, [[1e4, 0], [0, 1e4]], [0, 1]) == 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = [[1e3, 0], [1e3, 0], [1e3, 0], [1e3, 0], [2, 2], [-INF, 7]]
        assert isentropic.fit_temperature(rows, [0, 0, 0, 1, 1, 1]) == pytest.approx(1e3 / math.log(3), rel=1e-14)
    assert isentropic.fit_target_entropy([[0, 1], [5, 4]], [1, 0]) == 0
    assert isentropic.fit_target_entropy([[0, 1], [5, 4]], [0, 1]) == math.log(2)
    assert isentropic.match_entropy([[0.0, 0.0, -INF], [INF, 1, INF], [1, -INF, -INF]]) == pytest.approx(math.log(4) / 3)


def test_match_entropy_is_the_mean():
    x = np.random.default_rng(0).standard_normal((50, 30)) * 4
    assert isentropic.match_entropy(x) == pytest.approx(special.entr(special.softmax(x, axis=1)).sum(axis=1).mean(), rel=1e-14)


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 200),
    bins=st.integers(1, 20),
    digits=st.sampled_from([1, 2, 16]),
    strategy=st.sampled_from(["uniform", "quantile"]),
)
def test_calibration_error_is_the_definition(seed, rows, bins, digits, strategy):
    rng = np.random.default_rng(seed)
    first = rng.random(rows).round(digits)
    p, labels = np.stack([first, 1 - first], axis=1), rng.integers(0, 2, rows)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    want = 0.0
    for b in range(bins):
        if strategy == "uniform":
            inside = (confidence >= b / bins) & ((confidence < (b + 1) / bins) | (b == bins - 1))
        else:
            inside = (confidence < confidence[:, None]).sum(axis=1) * bins // rows == b
        if inside.any():
            want += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert isentropic.expected_calibration_error(p, labels, bins=bins, strategy=strategy) == pytest.approx(want, abs=1e-12)


@named(LABELLED)
def test_every_kind_of_array(function):
    scores, labels = drawn(np.random.default_rng(1), (40, 5))
    x = isentropic.softmax(scores)
    want = function(x, labels)
    assert type(want) is float
    kept = x.copy()
    wide = np.zeros((80, 10))
    wide[::2, ::2] = x
    misaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(x.shape)
    misaligned[...] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    for same in (wide[::2, ::2], np.asfortranarray(x), misaligned, frozen, x.tolist(), x.astype(">f8")):
        assert function(same, labels) == want
    for same in (labels.tolist(), labels.astype(np.int8), labels.astype(np.uint64), labels.astype(">i4"), labels[::-1][::-1]):
        assert function(x, same) == want
    assert function(x.reshape(2, 20, 5), labels.reshape(2, 20)) == want
    assert quietly(function, x[0], labels[0]) == quietly(function, x[:1], labels[:1])
    assert function(x.astype(np.float32), labels) == pytest.approx(want, rel=1e-3)
    half = x.astype(np.float16)
    assert function(half, labels) == pytest.approx(want, rel=0.1)
    np.testing.assert_array_equal(x, kept)


@named(LABELLED)
def test_torch(function):
    torch = torch_or_skip()
    scores, labels = drawn(np.random.default_rng(2), (40, 5))
    x = isentropic.softmax(scores)
    assert function(torch.from_numpy(x), torch.from_numpy(labels)) == function(x, labels)
    assert function(torch.from_numpy(x).half(), torch.from_numpy(labels)) == function(x.astype(np.float16), labels)
    assert isentropic.match_entropy(torch.from_numpy(x)) == isentropic.match_entropy(x)


def test_entropy_invariant_scale():
    scale = isentropic.entropy_invariant_scale
    assert scale(512, 64) == 0.125 and type(scale(512, 64)) is float
    assert scale(1, 64) == 0
    assert scale(100, 16, train_length=10) == pytest.approx(0.5)
    assert scale(100, 16, kappa=2) == pytest.approx(math.log(100) / 8)
    n = np.array([[2, 512], [3, 131072]])
    want = np.log(n) / math.log(512) / 8
    np.testing.assert_allclose(scale(n, 64), want, rtol=1e-15)
    assert scale(n, 64).dtype == np.float64
    assert scale(n.tolist(), 64).shape == (2, 2)
    np.testing.assert_allclose(scale(n[::-1, ::-1], 64), want[::-1, ::-1], rtol=1e-15)
    assert scale(n.astype(np.float32), 64).dtype == np.float32
    assert type(scale(np.float32(512), 64)) is np.float32
    assert scale(np.zeros((0, 3)), 64).shape == (0, 3)
    torch = torch_or_skip()
    np.testing.assert_array_equal(scale(torch.from_numpy(n), 64).numpy(), scale(n, 64))


def changed(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


ERRORS = [
    (ValueError, "{name}: labels must have the shape of {x} without its last axis, (4,), got (3,)", X, LABELS[:3]),
    (ValueError, "{name}: labels must have the shape of {x} without its last axis, (4,), got (4, 1)", X, LABELS[:, None]),
    (ValueError, "{name}: {x} must have at least one axis, got a single number", 1.0, 0),
    (ValueError, "{name}: {x} must have at least one row", X[:0], LABELS[:0]),
    (ValueError, "{name}: {x} must have at least one row", X[:0], []),
    (ValueError, "{name}: labels must be at least 0 and below the number of classes, 3, got 3 in row 1", X, [2, 3, 1, 2]),
    (ValueError, "{name}: labels must be at least 0 and below the number of classes, 3, got -1 in row 0", X, [-1, 0, 1, 2]),
    (ValueError, "{name}: labels must be at least 0 and below the number of classes, 0, got 2 in row 0", X[:, :0], LABELS),
    (TypeError, "{name}: labels must be of an integer type, got dtype float64", X, [2.0, 0.0, 1.0, 2.0]),
    (
        ValueError,
        "{name}: there must be a name for each of 3 classes, got ['a', 'b', 'c', 'd']; classes= gives them",
        X,
        ["a", "b", "c", "d"],
    ),
    (ValueError, "{name}: labels must have no missing names, got None in row 1", X, ["a", None, "b", "c"]),
    (
        TypeError,
        "{name}: {x} must be of float16, float32, float64, an integer type or bool, got dtype complex128",
        1j * X,
        LABELS,
    ),
]
SCORE_ERRORS = [
    ("{name}: scores must not be NaN, got one in row 1", changed(X, (1, 0), np.nan)),
    ("{name}: scores must be finite or -inf, got +inf in row 3", changed(X, (3, 0), INF)),
    (
        "{name}: labels must be classes with a score above -inf, otherwise the loss is infinite, got 1 in row 2",
        changed(X, (2, 1), -INF),
    ),
]


def expect(error, text, function, *args, **kwargs):
    with pytest.raises(error) as caught:
        function(*args, **kwargs)
    assert str(caught.value) == text


@named(LABELLED)
@pytest.mark.parametrize(("error", "text", "x", "labels"), ERRORS)
def test_errors_of_labels(function, error, text, x, labels):
    argument = "p" if function is isentropic.expected_calibration_error else "x"
    expect(error, text.format(name=function.__name__, x=argument), function, x, labels)


@named(FITS)
@pytest.mark.parametrize(("text", "x"), SCORE_ERRORS)
def test_errors_of_scores(function, text, x):
    for dtype in (np.float64, np.float32):
        expect(ValueError, text.format(name=function.__name__), function, x.astype(dtype), LABELS)


def test_errors_of_match_entropy():
    expect(
        ValueError, "match_entropy: scores must not be NaN, got one in row 1", isentropic.match_entropy, [[0, 1], [0, np.nan]]
    )
    expect(
        ValueError,
        "match_entropy: scores must not all be -inf, got nothing else in row 0",
        isentropic.match_entropy,
        [[-INF, -INF], [0, 1]],
    )
    expect(ValueError, "match_entropy: x_reference must have at least one row", isentropic.match_entropy, np.zeros((0, 3)))


def test_errors_of_the_calibration_error():
    p = isentropic.softmax(X)
    name, function = "expected_calibration_error", isentropic.expected_calibration_error
    for value, got in ((-0.25, "-0.25"), (np.nan, "nan"), (INF, "inf")):
        expect(
            ValueError,
            f"{name}: p must be at least 0 and finite, got {got} at entry 0 in row 2",
            function,
            changed(p, (2, 0), value),
            LABELS,
        )
    half = np.full((4, 2), 0.5)
    for dtype, tolerance, text in ((np.float64, 1e-6, "1e-06"), (np.float32, 1e-4, "0.0001"), (np.float16, 1e-2, "0.01")):
        function(half.astype(dtype), [0] * 4)
        function(changed(half, (1, 0), 0.5 + 0.75 * tolerance).astype(dtype), [0] * 4)
        with pytest.raises(ValueError, match=rf"^{name}: p must sum to 1 within {text}, got 1\.0\S* in row 1"):
            function(changed(half, (1, 0), 0.5 + 1.5 * tolerance).astype(dtype), [0] * 4)
    for bins in (0, -3, 10**7, 10**30):
        with pytest.raises(ValueError, match=f"^{name}: bins must be above 0 and at most 1000000, got "):
            function(p, LABELS, bins=bins)
    for bins in (1.5, "15", None):
        expect(TypeError, f"{name}: bins must be an integer, got {type(bins).__name__}", function, p, LABELS, bins=bins)
    assert function(p, LABELS, bins=np.int64(3)) == function(p, LABELS, bins=3)
    expect(ValueError, f"{name}: strategy must be one of uniform, quantile, got 'other'", function, p, LABELS, strategy="other")
    expect(TypeError, f"{name}: strategy must be a string, got int", function, p, LABELS, strategy=1)
    with pytest.raises(TypeError, match="positional"):
        function(p, LABELS, 10)


def test_errors_of_the_scale():
    name, function = "entropy_invariant_scale", isentropic.entropy_invariant_scale
    expect(ValueError, f"{name}: n must be at least 1 and finite, got 0", function, 0, 64)
    expect(ValueError, f"{name}: n must be at least 1 and finite, got 0.5", function, [2, 0.5], 64)
    expect(ValueError, f"{name}: n must be at least 1 and finite, got nan", function, np.nan, 64)
    expect(ValueError, f"{name}: d must be above 0 and finite, got 0", function, 2, 0)
    expect(ValueError, f"{name}: d must be above 0 and finite, got inf", function, 2, 10**400)
    expect(ValueError, f"{name}: train_length must be above 1 and finite, got 1", function, 2, 64, train_length=1)
    expect(ValueError, f"{name}: kappa must be above 0 and finite, got 0", function, 2, 64, kappa=0)
    expect(TypeError, f"{name}: d must be a number, got str", function, 512, "64")
    expect(TypeError, f"{name}: train_length must be a number, got NoneType", function, 2, 64, train_length=None)
    expect(TypeError, f"{name}: kappa must be a number, got list", function, 2, 64, kappa=[1.0])


def test_masked_arrays_and_tensors_that_require_grad_are_refused():
    with pytest.raises(TypeError, match=r"^fit_temperature: x is a masked array"):
        isentropic.fit_temperature(np.ma.masked_array(X), LABELS)
    with pytest.raises(TypeError, match=r"^fit_temperature: labels is a masked array"):
        isentropic.fit_temperature(X, np.ma.masked_array(LABELS))
    torch = torch_or_skip()
    with pytest.raises(TypeError, match=r"^match_entropy: x_reference is a Tensor that requires grad"):
        isentropic.match_entropy(torch.zeros(2, 3, requires_grad=True))


FUNCTIONS = [*LABELLED, isentropic.match_entropy, isentropic.entropy_invariant_scale]


@named(FUNCTIONS)
def test_public_and_documented(function):
    assert function.__name__ in isentropic.__all__
    assert function.__name__ in isentropic.calibration.__all__
    assert pickle.loads(pickle.dumps(function)) is function
    run_examples(function)


def run_examples(documented):
    names = {"isentropic": isentropic, "math": math, **vars(isentropic.calibration)}
    names.update(
        {name: getattr(isentropic.calibration, name) for name in dir(isentropic.calibration) if "Ent" in name or "Sc" in name}
    )
    tests = [test for test in doctest.DocTestFinder(recurse=False).find(documented, documented.__name__, globs=names)]
    assert sum(len(test.examples) for test in tests) > 0
    for test in tests:
        said = []
        assert doctest.DocTestRunner().run(test, out=said.append).failed == 0, "".join(said)


# The estimators.

SCALERS = ["TemperatureScaler", "EntropyScaler"]


@pytest.fixture(params=SCALERS)
def scaler(request):
    sklearn_or_skip()
    return getattr(isentropic.calibration, request.param)


def sklearn_or_skip():
    try:
        import sklearn
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip("SKIPPED: scikit-learn is not installed, and the tests of the estimators were NOT run")
    return sklearn


COLUMNS = "the columns of X are scores of classes, and this check has two columns and three classes"
NOT_APPLICABLE = {
    "check_estimators_overwrite_params": COLUMNS,
    "check_estimators_fit_returns_self": COLUMNS,
    "check_readonly_memmap_input": COLUMNS,
    "check_classifiers_classes": COLUMNS,
    "check_classifiers_one_label": "which classes there are is known from the columns, also when y has only one",
    "check_classifiers_train": "features are taken for scores: what they predict has nothing to do with y",
}


@pytest.mark.parametrize("name", [*SCALERS, "VectorScaler"])
def test_check_estimator(name):
    sklearn_or_skip()
    scaler = getattr(isentropic.calibration, name)
    from sklearn.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(scaler(), expected_failed_checks=NOT_APPLICABLE, on_fail=None, on_skip=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert not failed
    expected = NOT_APPLICABLE.keys() - ({"check_classifiers_one_label"} if name == "VectorScaler" else set())
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == expected
    assert sum(result["status"] == "passed" for result in results) > 45


def test_entropy_normalizer_passes_scikit_learns_checks():
    """With arrays of other namespaces too, which SciPy has to be told before it is imported."""
    sklearn_or_skip()
    code = """if True:
        import warnings
        from sklearn.utils.estimator_checks import check_estimator
        from isentropic.calibration import EntropyNormalizer
        warnings.simplefilter("ignore")
        results = check_estimator(EntropyNormalizer(), on_fail=None, on_skip=None)
        print([(one["check_name"], str(one["exception"])) for one in results if one["status"] not in ("passed", "skipped")])
        print(sum(one["status"] == "passed" for one in results) > 40)
        import array_api_strict, sklearn
        with sklearn.config_context(array_api_dispatch=True):
            p = EntropyNormalizer().fit_transform(array_api_strict.asarray([[0.0, 1.0, 3.0]]))
        print(p.__array_namespace__().__name__)
    """
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "SCIPY_ARRAY_API": "1"}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\nTrue\narray_api_strict\n"


def test_entropy_normalizer():
    sklearn_or_skip()
    normalizer = isentropic.calibration.EntropyNormalizer
    run_examples(normalizer)
    x = np.random.default_rng(8).normal(size=(5, 7))
    x[x > 1.5] = -np.inf
    np.testing.assert_array_equal(normalizer().fit_transform(x), isentropic.entropy_normalize(x, perplexity=2.0))
    np.testing.assert_array_equal(normalizer(entropy=1.2).transform(x), isentropic.entropy_normalize(x, entropy=1.2))
    p = isentropic.softmax(x)
    found = normalizer(input="probs").fit(p).transform(p.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, isentropic.entropy_normalize(p, perplexity=2.0, input="probs"), atol=1e-6)
    for wrong, text in (([[0, np.nan]], "in row 0"), ([[0, 1], [0, np.inf]], "in row 1"), ([[-np.inf] * 2], "in row 0")):
        with pytest.raises(ValueError, match=text):
            normalizer().fit_transform(wrong)
    with pytest.raises(ValueError, match="perplexity must be"):
        normalizer(perplexity=0.5).fit(x)


@pytest.fixture(scope="module")
def digits():
    """(scores to fit on, their classes, scores to test on, their classes): ten classes, of a logistic regression."""
    sklearn_or_skip()
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    x, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(x))
    train, fit, test = rows[:300], rows[300:1000], rows[1000:]
    classifier = LogisticRegression(C=100.0, max_iter=5000).fit(x[train], y[train])
    return classifier.decision_function(x[fit]), y[fit], classifier.decision_function(x[test]), y[test]


def negative_log_likelihood(p, labels):
    return -np.log(np.maximum(p[np.arange(len(p)), labels], 1e-300)).mean()


def test_scores_probabilities_and_classes_agree(scaler, digits):
    fit_scores, fit_labels, scores, labels = digits
    fitted = scaler().fit(fit_scores, fit_labels)
    assert fitted.n_features_in_ == 10
    np.testing.assert_array_equal(fitted.classes_, np.arange(10))
    np.testing.assert_array_equal(fitted.predict(scores), scores.argmax(axis=1))
    np.testing.assert_allclose(
        isentropic.softmax(fitted.transform(scores)), fitted.predict_proba(scores), rtol=1e-9, atol=1e-15
    )
    assert fitted.score(scores, labels) == (scores.argmax(axis=1) == labels).mean()


def test_temperature_lowers_loss_and_error(digits):
    fit_scores, fit_labels, scores, labels = digits
    for factor in (1, 20, 0.05):
        fitted = isentropic.calibration.TemperatureScaler().fit(factor * fit_scores, fit_labels)
        before, after = isentropic.softmax(factor * scores), fitted.predict_proba(factor * scores)
        assert negative_log_likelihood(after, labels) < 0.8 * negative_log_likelihood(before, labels)
        error = isentropic.expected_calibration_error
        assert error(after, labels) < 0.6 * error(before, labels)


def test_entropy_is_for_rows_of_different_scales(digits):
    fit_scores, fit_labels, scores, labels = digits
    rng = np.random.default_rng(4)
    scale, fit_scale = (10 ** rng.uniform(-2, 2, (len(x), 1)) for x in (scores, fit_scores))
    entropy, temperature = (
        negative_log_likelihood(scaler().fit(fit_scale * fit_scores, fit_labels).predict_proba(scale * scores), labels)
        for scaler in (isentropic.calibration.EntropyScaler, isentropic.calibration.TemperatureScaler)
    )
    assert entropy < 0.5 * temperature


def test_fitted_numbers_are_the_functions(digits):
    x, y = digits[:2]
    assert isentropic.calibration.TemperatureScaler().fit(x, y).temperature_ == isentropic.fit_temperature(x, y)
    assert isentropic.calibration.EntropyScaler().fit(x, y).entropy_ == isentropic.fit_target_entropy(x, y)


def test_classes(scaler, digits):
    x, y = digits[:2]
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    plain = scaler().fit(x, y)
    told = scaler(classes=names).fit(x, names[y])
    np.testing.assert_array_equal(told.classes_, names)
    np.testing.assert_array_equal(told.predict_proba(x), plain.predict_proba(x))
    np.testing.assert_array_equal(told.predict(x), names[plain.predict(x)])
    few = y < 7
    np.testing.assert_array_equal(scaler().fit(x[few], y[few]).classes_, np.arange(10))
    with pytest.raises(ValueError, match="y has 7 classes and X scores for 10: pass classes="):
        scaler().fit(x[few], names[y[few]])
    assert list(scaler(classes=names).fit(x[few], names[y[few]]).classes_) == list(names)
    with pytest.raises(ValueError, match="y has the class 'ten', which is not in classes"):
        scaler(classes=names).fit(x, changed(names[y], 3, "ten"))
    for wrong in (names[:9], [*names[:9], "one"], "zero"):
        with pytest.raises(ValueError, match="classes must name 10 different classes"):
            scaler(classes=wrong).fit(x, names[y])


def test_one_column_stands_for_two_classes(scaler):
    rng = np.random.default_rng(3)
    x, labels = drawn(rng, (500, 2), 3.0, 2.0)
    s = (x[:, 1] - x[:, 0])[:, None]
    one, two = scaler().fit(s, labels), scaler().fit(np.hstack([0 * s, s]), labels)
    assert one.n_features_in_ == 1 and one.predict_proba(s).shape == (500, 2)
    np.testing.assert_array_equal(one.predict_proba(s), two.predict_proba(np.hstack([0 * s, s])))
    transformed = one.transform(s)
    assert transformed.shape == s.shape
    np.testing.assert_allclose(special.expit(transformed[:, 0]), one.predict_proba(s)[:, 1], rtol=1e-9)
    names = scaler().fit(s, np.array(["no", "yes"])[labels])
    np.testing.assert_array_equal(names.predict(s) == "yes", s[:, 0] > 0)


def test_masked_classes_and_ties(scaler):
    x = np.array([[0.0, 1.0, -INF], [2.0, 2.0, 0.0], [1.0, -INF, 0.0], [3.0, 0.0, 1.0]])
    fitted = scaler().fit(x, [1, 0, 2, 0])
    p = fitted.predict_proba(x)
    assert (p[np.isneginf(x)] == 0).all() and p[1, 0] == p[1, 1]
    np.testing.assert_allclose(isentropic.softmax(fitted.transform(x)), p, atol=1e-12)
    for low in (0.0, math.log(3)):
        if hasattr(fitted, "entropy_"):
            fitted.entropy_ = low  # beyond what rows reach
            np.testing.assert_allclose(
                isentropic.softmax(fitted.transform(x)), isentropic.entropy_normalize(x, entropy=low), atol=1e-12
            )
    for wrong in (np.nan, INF):
        with pytest.raises(ValueError, match="contains NaN or infinity in row 2"):
            fitted.transform(changed(x, (2, 0), wrong))
    with pytest.raises(ValueError, match="a row with only -infinity"):
        fitted.predict(np.full((1, 3), -INF))


def test_float32_stays(scaler, digits):
    x, y = digits[0].astype(np.float32), digits[1]
    fitted = scaler().fit(x, y)
    assert fitted.transform(x).dtype == np.float32 and fitted.predict_proba(x).dtype == np.float32


def test_clone_and_pickle(scaler, digits):
    from sklearn.base import clone

    fitted = scaler().fit(*digits[:2])
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.predict_proba(digits[2]), fitted.predict_proba(digits[2]))
    assert not hasattr(clone(fitted), "classes_")
    assert repr(scaler(classes=[1, 2])) == f"{scaler.__name__}(classes=[1, 2])"
    assert scaler.__module__ == "isentropic.calibration"
    run_examples(scaler)


def python(code):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)


def test_sklearn_is_not_needed():
    ran = python("import sys, isentropic, isentropic.calibration; assert 'sklearn' not in sys.modules")
    assert (ran.returncode, ran.stderr) == (0, "")
    without = "import sys; sys.modules['sklearn'] = None; import isentropic.calibration as c; "
    ran = python(without + "print(c.fit_temperature([[0, 1]] * 4, [1, 1, 1, 0]))")
    assert float(ran.stdout) == pytest.approx(1 / math.log(3))
    for line in ("c.TemperatureScaler", "from isentropic.calibration import TemperatureScaler"):
        ran = python(without + line)
        expected = "ImportError: isentropic.calibration.TemperatureScaler needs scikit-learn: pip install scikit-learn"
        assert ran.stderr.strip().splitlines()[-1] == expected
    assert {"TemperatureScaler", "EntropyScaler"} <= set(dir(isentropic.calibration))
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        isentropic.calibration.other  # noqa: B018


# Weights, vector scaling, reliability and the Brier score.

WEIGHTED = [
    *LABELLED,
    isentropic.brier_score,
    lambda p, labels, **kw: np.concatenate(isentropic.reliability_bins(p, labels, bins=4, strategy="quantile", **kw)),
    lambda p, labels, **kw: np.concatenate(isentropic.reliability_bins(p, labels, **kw)),
    lambda p, labels, **kw: np.concatenate(isentropic.fit_vector_scaling(p, labels, ridge=0.01, **kw)),
]
SAME = pytest.mark.parametrize("function", WEIGHTED, ids=lambda function: function.__name__)


@SAME
def test_weights_are_how_often_a_row_is_there(function):
    rng = np.random.default_rng(4)
    x, labels = drawn(rng, (60, 4))
    p, weights = isentropic.softmax(x), rng.integers(0, 4, 60)
    want = function(np.repeat(p, weights, axis=0), np.repeat(labels, weights))
    np.testing.assert_allclose(function(p, labels, sample_weight=weights), want, rtol=1e-9, atol=1e-9)
    if function is not WEIGHTED[-1] and "lambda" not in function.__name__:
        np.testing.assert_allclose(function(p, labels, sample_weight=weights / 4), want, rtol=1e-9, atol=1e-9)
    wrong = np.where(weights[:, None] > 0, p, np.nan), np.where(weights > 0, labels, -100)
    np.testing.assert_array_equal(
        function(*wrong, sample_weight=weights), function(p, labels, sample_weight=weights.astype(np.float32))
    )
    kept = weights > 0
    ignored = function(wrong[0], wrong[1], ignore_index=-100)
    np.testing.assert_allclose(ignored, function(p[kept], labels[kept]), rtol=1e-9, atol=1e-9)
    square = function(p.reshape(6, 10, 4), labels.reshape(6, 10), sample_weight=weights.reshape(6, 10))
    np.testing.assert_array_equal(square, function(p, labels, sample_weight=weights))


def test_weights_of_match_entropy():
    x, weights = np.random.default_rng(5).standard_normal((20, 7)), np.arange(20) % 4
    want = isentropic.match_entropy(np.repeat(x, weights, axis=0))
    assert isentropic.match_entropy(x, sample_weight=weights) == pytest.approx(want, rel=1e-13)
    assert isentropic.match_entropy(np.where(weights[:, None] > 0, x, np.nan), sample_weight=weights) == pytest.approx(want)


@SAME
def test_errors_of_weights(function):
    p = isentropic.softmax(X)
    for weights, text in (
        ([1, 1, 1], r"sample_weight must have the shape of [xp] without its last axis, \(4,\), got \(3,\)"),
        ([1, -1, 1, 1], "sample_weight must be at least 0 and finite, got -1 in row 1"),
        ([1, 1, np.nan, 1], "sample_weight must be at least 0 and finite, got nan in row 2"),
        ([0, 0, 0, 0], "sample_weight must be above 0 in some row, got 0 in all 4"),
    ):
        with pytest.raises(ValueError, match=text):
            function(p, LABELS, sample_weight=weights)
    with pytest.raises(TypeError, match="ignore_index must be an integer, got float"):
        function(p, LABELS, ignore_index=1.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@SAME
def test_tensors_of_every_type(function, dtype):
    torch = torch_or_skip()
    scores, labels = drawn(np.random.default_rng(2), (40, 5))
    p = torch.softmax(torch.from_numpy(scores), -1).to(getattr(torch, dtype))
    weights = torch.rand(40).to(p.dtype)
    got = function(p, torch.from_numpy(labels), sample_weight=weights)
    if dtype != "bfloat16" or "fit" in function.__name__:
        same = p.numpy() if dtype != "bfloat16" else p.double().numpy()
        want = function(same, labels, sample_weight=weights.double().numpy())
        np.testing.assert_allclose(got, want, rtol=1e-12)
    with pytest.raises(TypeError, match=r"is a Tensor that requires grad, .*; pass [xp]\.detach\(\)"):
        function(p.requires_grad_(), labels)
    p = p.detach()
    assert np.isfinite(got).all()
    assert np.isfinite(isentropic.match_entropy(p, sample_weight=weights))


@SAME
@pytest.mark.parametrize("size", [2.0**1020, 2.0**-1020])
def test_weights_of_any_size(function, size):
    x, labels = drawn(np.random.default_rng(4), (60, 4))
    p, some = isentropic.softmax(x), np.arange(60) % 3 > 0
    got, want = (function(p, labels, sample_weight=some * one) for one in (size, 1.0))
    got = np.asarray(got)
    of_bins = (got > 1e200) | (got < 1e-200) & (got > 0)  # the weights of bins are in this unit too
    np.testing.assert_array_equal(np.where(of_bins, got / size, got), want)


def test_weights_of_bins_are_in_their_own_unit():
    p, labels = [[0.75, 0.25], [0.75, 0.25], [0.1, 0.9]], [0, 1, 1]
    for size in (1e-300, 3.0, 1e300):
        found = isentropic.reliability_bins(p, labels, bins=10, sample_weight=np.full(3, size))
        np.testing.assert_allclose(found.weight, [2 * size, size], rtol=1e-15)


@SAME
def test_what_is_said_where_no_row_counts(function):
    p, labels = [[0.75, 0.25]] * 3, [0, -100, -100]
    with pytest.raises(ValueError, match=r"some label must be other than ignore_index, got -100 in all 2 rows"):
        function(p[1:], labels[1:], ignore_index=-100)
    with pytest.raises(ValueError, match=r"sample_weight must be above 0 in some row that ignore_index keeps, got 0 in all 1"):
        function(p, labels, ignore_index=-100, sample_weight=[0, 1, 1])


def vector_loss(x, labels, scale, bias):
    return -np.take_along_axis(special.log_softmax(x * scale + bias, axis=-1), labels[:, None], axis=-1).mean()


@pytest.mark.parametrize(("rows", "n"), [(500, 2), (2000, 5), (3000, 30)])
@pytest.mark.parametrize("size", [0.1, 1.0, 50.0])
def test_vector_scaling_is_the_minimum(rows, n, size):
    rng = np.random.default_rng(rows)
    x, _ = drawn(rng, (rows, n))
    _, labels = drawn(rng, (rows, n))
    labels = np.where(rng.random(rows) < 0.3, labels, x.argmax(axis=1))
    x = (x * rng.uniform(0.5, 2, n) + rng.standard_normal(n)) * size
    scale, bias = isentropic.fit_vector_scaling(x, labels, ridge=0)

    def objective(both):
        return vector_loss(x, labels, both[:n] / size, both[n:])

    best = optimize.minimize(objective, np.concatenate([scale * size, bias]), method="BFGS")
    got = vector_loss(x, labels, scale, bias)
    assert got <= best.fun + 1e-12
    assert got <= loss(x, labels, isentropic.fit_temperature(x, labels))
    p = special.softmax(x * scale + bias, axis=1)
    p[np.arange(rows), labels] -= 1
    np.testing.assert_allclose(p.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose((p * x).mean(axis=0) / size, 0, atol=1e-9)
    assert abs(bias.mean()) < 1e-9


def test_vector_scaling_without_a_minimum():
    with pytest.raises(ValueError, match="class 2 is not the label of any row, so its bias would be -inf"):
        isentropic.fit_vector_scaling(X, [0, 1, 1, 0], ridge=0)
    x, labels = drawn(np.random.default_rng(0), (300, 3))
    for right in (labels * 0 + x.argmax(axis=1), np.where(x.argmax(axis=1) == 0, 0, np.clip(labels, 1, 2))):
        apart = x * 0
        apart[np.arange(300), right] = 1 + np.abs(x[:, 0])
        some = np.where(right == 0, 0, labels.clip(1, 2))
        with pytest.raises(ValueError, match="the loss has no minimum"):
            isentropic.fit_vector_scaling(apart, some, ridge=0)
        scale, bias = isentropic.fit_vector_scaling(apart, some, ridge=1e-3)
        assert np.isfinite([scale, bias]).all()
        p = special.softmax(apart * scale + bias, axis=1)
        p[np.arange(300), some] -= 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            temperature = isentropic.fit_temperature(apart, some)
        if temperature == 1e-3:  # there is none, as every label has the largest score
            temperature = np.ptp(apart)
        slope = p.mean(axis=0) + 1e-3 * (bias + (scale - 1 / temperature) * apart.mean(axis=0))
        np.testing.assert_allclose(slope, slope.mean(), rtol=1e-6)  # all alike: biases count up to a constant
    with pytest.raises(ValueError, match="ridge must be at least 0 and finite, got -1"):
        isentropic.fit_vector_scaling(X, LABELS, ridge=-1)
    for value in (np.nan, INF):
        with pytest.raises(ValueError, match=r"^fit_vector_scaling: scores must"):
            isentropic.fit_vector_scaling(changed(X, (0, 0), value), LABELS)


@pytest.mark.parametrize("size", [1e-300, 1e-6, 1e3, 1e6, 1e305])
def test_vector_scaling_in_any_unit(size):
    x, labels = drawn(np.random.default_rng(3), (300, 4))
    want, got = isentropic.fit_vector_scaling(x, labels), isentropic.fit_vector_scaling(x * size, labels)
    np.testing.assert_allclose(got.scale * size, want.scale, rtol=1e-6)
    np.testing.assert_allclose(got.bias, want.bias, atol=1e-6)


def test_vector_scaling_of_scores_that_are_too_small():
    x, labels = drawn(np.random.default_rng(3), (300, 4))
    with pytest.raises(
        ValueError, match=r"fit_vector_scaling: x must be large enough .*, got scores of at most .*e-309 in size"
    ):
        isentropic.fit_vector_scaling(x / np.abs(x).max() * 5e-309, labels)


def test_vector_scaling_leaves_absent_classes_out():
    x, labels = drawn(np.random.default_rng(3), (2000, 4))
    x[::3, 3] = -INF
    labels = np.where((labels == 3) & np.isneginf(x[:, 3]), 0, labels)
    scale, bias = isentropic.fit_vector_scaling(x, labels, ridge=0)
    p = special.softmax(np.where(np.isneginf(x), -INF, x * scale + bias), axis=1)
    p[np.arange(2000), labels] -= 1
    np.testing.assert_allclose(p.mean(axis=0), 0, atol=1e-9)


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 80), n=st.integers(1, 8), bins=st.integers(1, 20))
def test_reliability_and_brier_are_their_definitions(seed, rows, n, bins):
    rng = np.random.default_rng(seed)
    p, labels, weights = rng.dirichlet(np.ones(n), rows), rng.integers(0, n, rows), rng.random(rows) + 0.01
    right, confidence = p.argmax(axis=1) == labels, p.max(axis=1)
    for strategy in ("uniform", "quantile"):
        found = isentropic.reliability_bins(p, labels, bins=bins, strategy=strategy, sample_weight=weights)
        total = 0.0
        for lower, upper, weight, mean, accuracy in zip(*found, strict=True):
            inside = (confidence >= lower) & (
                (confidence < upper) | (upper == 1 if strategy == "uniform" else confidence == upper)
            )
            assert weight == pytest.approx(weights[inside].sum())
            assert mean == pytest.approx(np.average(confidence[inside], weights=weights[inside]))
            assert accuracy == pytest.approx(np.average(right[inside], weights=weights[inside]))
            total += weight * abs(accuracy - mean)
        error = isentropic.expected_calibration_error(p, labels, bins=bins, strategy=strategy, sample_weight=weights)
        assert error == pytest.approx(total / weights.sum(), abs=1e-12)
    want = np.average(((p - np.eye(n)[labels]) ** 2).sum(axis=1), weights=weights)
    assert isentropic.brier_score(p, labels, sample_weight=weights) == pytest.approx(want, abs=1e-12)


def test_brier_score_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    scores, labels = drawn(np.random.default_rng(6), (200, 2))
    p = isentropic.softmax(scores)
    assert isentropic.brier_score(p, labels) == pytest.approx(2 * metrics.brier_score_loss(labels, p[:, 1]), rel=1e-12)


def test_reliability_diagram():
    pytest.importorskip("matplotlib")
    scores, labels = drawn(np.random.default_rng(7), (300, 3))
    p = isentropic.softmax(scores)
    ax = isentropic.reliability_diagram(p, labels, bins=8)
    found = isentropic.reliability_bins(p, labels, bins=8)
    bars = [bar.get_height() for bar in ax.containers[1]]
    np.testing.assert_allclose(bars, found.accuracy)
    assert f"{isentropic.expected_calibration_error(p, labels, bins=8):.3f}" in ax.get_title()
    assert isentropic.reliability_diagram(p, labels, ax=ax) is ax


def test_one_dimensional_scores_of_two_classes():
    calibration = pytest.importorskip("isentropic._numpy._estimators")
    scores, labels = drawn(np.random.default_rng(8), (400, 1))
    labels = (scores[:, 0] + np.random.default_rng(9).logistic(size=400) > 0).astype(int)
    for kind in (calibration.TemperatureScaler, calibration.EntropyScaler, calibration.VectorScaler):
        one, column = kind().fit(scores[:, 0], labels), kind().fit(scores, labels)
        np.testing.assert_array_equal(one.predict_proba(scores[:, 0]), column.predict_proba(scores))
        np.testing.assert_array_equal(one.predict(scores[:, 0].tolist()), column.predict(scores))
        with pytest.raises(ValueError, match="Reshape your data"):
            kind().fit(np.hstack([-scores, scores]), labels).predict(scores[:, 0])


def test_estimators_take_weights():
    _estimators = pytest.importorskip("isentropic._numpy._estimators")

    x, labels = drawn(np.random.default_rng(10), (500, 3))
    scaler = _estimators.VectorScaler().fit(x, labels)
    np.testing.assert_allclose(scaler.predict_proba(x), special.softmax(x * scaler.scale_ + scaler.bias_, axis=1), rtol=1e-9)
    weights = np.arange(500) % 3
    for kind in (_estimators.TemperatureScaler, _estimators.EntropyScaler, _estimators.VectorScaler):
        weighted = kind().fit(x, labels, sample_weight=weights)
        repeated = kind().fit(np.repeat(x, weights, axis=0), np.repeat(labels, weights))
        np.testing.assert_allclose(weighted.predict_proba(x), repeated.predict_proba(x), rtol=1e-8)


@pytest.mark.parametrize("name", ["TemperatureScaler", "VectorScaler", "EntropyScaler"])
def test_scalers_take_tensors_of_every_type(name):
    pytest.importorskip("sklearn")
    torch = torch_or_skip()
    x, labels = drawn(np.random.default_rng(3), (60, 4))
    scaler = getattr(isentropic.calibration, name)()
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        given = torch.from_numpy(x).to(dtype)
        want = scaler.fit(given.double().numpy(), labels).predict_proba(given.double().numpy())
        got = scaler.fit(given, torch.from_numpy(labels)).predict_proba(given)
        np.testing.assert_allclose(got, want, rtol=1e-5)
    with pytest.raises(TypeError, match=f"{name}: X is a tensor that requires grad"):
        scaler.fit(given.requires_grad_(), labels)
    p = isentropic.calibration.EntropyNormalizer().fit_transform(torch.from_numpy(x).bfloat16())
    np.testing.assert_allclose(isentropic.perplexity(np.asarray(p, np.float64)), 2, rtol=1e-5)


def test_one_probability_in_each_row_is_that_of_the_second_class():
    p, y = np.array([0.81, 0.33, 0.62, 0.93, 0.24]), np.array([1, 0, 0, 1, 1])
    both = np.stack([1 - p, p], -1)
    function = isentropic.brier_score
    assert function(p, y) == function(both, y) == function(p.tolist(), np.array(["no", "yes"])[y])
    assert function(p.astype(np.float32), y == 1) == pytest.approx(function(both, y), rel=1e-6)
    # Bins of p: its mean beside the share of ones.
    found = isentropic.reliability_bins(p, y, bins=2)
    np.testing.assert_allclose(found.confidence, [0.285, (0.81 + 0.62 + 0.93) / 3])
    np.testing.assert_allclose(found.accuracy, [0.5, 2 / 3])
    error = (2 * abs(0.285 - 0.5) + abs(0.81 + 0.62 + 0.93 - 2)) / 5
    for labels in (y, y == 1, y.astype(float), np.array(["no", "yes"])[y], [["no", "yes"][one] for one in y]):
        assert isentropic.expected_calibration_error(p, labels, bins=2) == pytest.approx(error, rel=1e-14)
    given = isentropic.expected_calibration_error(p, np.array(["yes", "no"])[y], bins=2, classes=["yes", "no"])
    assert given == pytest.approx(error, rel=1e-14)
    assert isentropic.expected_calibration_error(p, y, bins=2, norm="max") == pytest.approx(0.215)
    with pytest.raises(ValueError, match=r"^expected_calibration_error: classwise must not go with binary"):
        isentropic.expected_calibration_error(p, y, classwise=True)
    for fit in (isentropic.fit_temperature, isentropic.fit_target_entropy):
        assert fit(p, y, input="probs") == pytest.approx(fit(np.log(both), y), rel=1e-12)
        assert fit(np.log(p / (1 - p)), y) == pytest.approx(fit(np.log(both), y), rel=1e-9)
    assert isentropic.brier_score([0.25, 0.75], 1) == 0.125  # a single distribution
    with pytest.raises(ValueError, match=r"^brier_score: there must be a name for each of 2 classes, got \['a', 'b', 'c'\]"):
        isentropic.brier_score([0.2, 0.3, 0.4], ["a", "b", "c"])
    with pytest.raises(ValueError, match="row 1"):
        isentropic.brier_score([0.2, 1.3, 0.4], [0, 1, 1])


def test_norms_of_the_calibration_error():
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(3), 400)
    y = np.array([rng.choice(3, p=row**0.5 / (row**0.5).sum()) for row in p])
    of = isentropic.expected_calibration_error
    found = isentropic.reliability_bins(p, y, bins=8)
    apart, share = found.accuracy - found.confidence, found.weight / 400
    assert of(p, y, bins=8) == pytest.approx(share @ abs(apart), rel=1e-12)
    assert of(p, y, bins=8, norm="l2") == pytest.approx(math.sqrt(share @ apart**2), rel=1e-12)
    assert of(p, y, bins=8, norm="max") == pytest.approx(abs(apart).max(), rel=1e-12)
    variance = found.accuracy * (1 - found.accuracy)
    squared = share @ (apart**2 - np.where(found.weight > 1, variance / np.maximum(found.weight - 1, 1), 0))
    assert of(p, y, bins=8, norm="l2", debiased=True) == pytest.approx(math.sqrt(max(squared, 0)), rel=1e-12)
    for norm in ("l1", "l2", "max"):
        each = [of(p[:, k], y == k, bins=8, norm=norm) for k in range(3)]
        assert of(p, y, bins=8, norm=norm, classwise=True) == pytest.approx(np.mean(each), rel=1e-12)
    # Of a calibrated model only chance is left, which the debiased error leaves out.
    good = np.array([rng.choice(3, p=row) for row in p])
    for norm in ("l1", "l2"):
        assert of(p, good, norm=norm, debiased=True) < 0.75 * of(p, good, norm=norm)
    drawn = rng.normal(apart[:, None], np.sqrt(variance / found.weight)[:, None], (len(apart), 200000))
    bias = share @ (abs(drawn).mean(1) - abs(apart))
    assert of(p, y, bins=8, debiased=True) == pytest.approx(share @ abs(apart) - bias, abs=2e-4)
    with pytest.raises(ValueError, match=r"^expected_calibration_error: debiased must not go with norm max"):
        of(p, y, norm="max", debiased=True)
    with pytest.raises(ValueError, match=r"^expected_calibration_error: norm must be one of l1, l2, max"):
        of(p, y, norm="l3")


@pytest.mark.parametrize("bins", [3, 5, 10, 15])
def test_quantiles_do_not_depend_on_the_unit_of_weights(bins):
    """Sums of weights such as 1/3 are rounded, and must not move rows at the edge of two bins."""
    rng, options = np.random.default_rng(12), {"bins": bins, "strategy": "quantile"}
    for n in range(2, 41):
        p, y = rng.dirichlet(np.ones(3), n), rng.integers(0, 3, n)
        counts = rng.integers(1, 6, n)
        repeated = isentropic.reliability_bins(p.repeat(counts, 0), y.repeat(counts), **options)
        for want, weights in (
            (isentropic.reliability_bins(p, y, **options), [np.full(n, w) for w in (1 / n, 0.1, 0.3, 1 / 3, 7, 1e-300)]),
            (repeated, [counts, counts / counts.sum(), counts / 3]),
        ):
            for w in weights:
                got = isentropic.reliability_bins(p, y, sample_weight=w, **options)
                np.testing.assert_allclose(got.weight / w.sum(), want.weight / want.weight.sum(), rtol=1e-12)
                np.testing.assert_allclose(got.accuracy, want.accuracy, rtol=1e-12, atol=1e-15)


def test_names_as_labels():
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    x, y = np.random.default_rng(6).normal(size=(60, 3)), np.random.default_rng(7).integers(0, 3, 60)
    y[:3] = 0, 1, 2
    names = np.array(["cat", "dog", "eel"])
    other = np.array(["dog", "eel", "cat"])
    for function, rows in ((isentropic.fit_temperature, x), (isentropic.fit_target_entropy, x),
                            (isentropic.fit_vector_scaling, x), (isentropic.brier_score, isentropic.softmax(x))):  # fmt: skip
        want = function(rows, y)
        of_arrow = [pa.array(names[y]), pa.chunked_array([names[y]]), pa.array(names[y]).dictionary_encode()]
        for labels in (names[y], names[y].tolist(), pd.Series(names[y]), pd.Categorical(names[y]), *of_arrow):
            np.testing.assert_array_equal(function(rows, labels), want)
        np.testing.assert_array_equal(function(rows, other[y], classes=other), want)
        np.testing.assert_array_equal(function(rows, pd.Categorical(other[y], categories=other)), want)
        # The columns of a frame go before the categories, unless they lack a label.
        for labels in (other[y], pd.Categorical(other[y]), pd.Series(other[y], dtype="category")):
            np.testing.assert_array_equal(function(pd.DataFrame(rows, columns=other), labels), want)
            np.testing.assert_array_equal(function(pa.table(dict(zip(other, rows.T, strict=True))), labels), want)
        for columns in (["x", "y", "z"], None):
            frame = pd.DataFrame(rows, columns=columns)
            np.testing.assert_array_equal(function(frame, pd.Categorical(other[y], categories=other)), want)
    with pytest.raises(ValueError, match=r"^fit_temperature: labels must be one of the classes .*, got .*'eel'.* in row 2$"):
        isentropic.fit_temperature(x, names[y], classes=["cat", "dog", "fox"])
    for missing in (pd.array(["cat", None], dtype="string"), pd.Series(["cat", None]), ["cat", None]):
        with pytest.raises(ValueError, match=r"^fit_temperature: labels must have no missing names, got .* in row 1$"):
            isentropic.fit_temperature(x[:2], missing)
    with pytest.raises(ValueError, match=r"^fit_temperature: labels must be .*, got 9223372036854775807 in row 1$"):
        isentropic.fit_temperature(x[:2], np.array([0, 2**64 - 100], np.uint64), ignore_index=-100)


@pytest.mark.parametrize("name", ["TemperatureScaler", "VectorScaler", "EntropyScaler"])
def test_columns_of_a_frame_are_classes(name):
    """In their order, also if y lacks one; classes= and labels that are no columns go before them."""
    pytest.importorskip("sklearn")
    pd = pytest.importorskip("pandas")
    x, y = drawn(np.random.default_rng(9), (90, 3))
    columns, kind = np.array(["dog", "eel", "cat"]), getattr(isentropic.calibration, name)
    frame = pd.DataFrame(x, columns=columns)
    for rows in (slice(None), y != 1):
        found = kind().fit(frame[rows], columns[y[rows]])
        want = kind(classes=columns).fit(x[rows], columns[y[rows]])
        assert found.classes_.tolist() == columns.tolist()
        np.testing.assert_array_equal(found.predict_proba(frame), want.predict_proba(x))
        np.testing.assert_array_equal(found.predict(frame), want.predict(x))
    for labels, kwargs, classes in (
        (columns[y], {"classes": ["eel", "dog", "cat"]}, ["eel", "dog", "cat"]),
        (np.array(["x", "z", "y"])[y], {}, ["x", "y", "z"]),
        (y, {}, [0, 1, 2]),
    ):
        assert kind(**kwargs).fit(frame, labels).classes_.tolist() == classes


@pytest.mark.parametrize("name", ["TemperatureScaler", "VectorScaler", "EntropyScaler"])
def test_probabilities_as_input(name):
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(8)
    p, labels = rng.dirichlet(np.ones(3), 80), rng.integers(0, 3, 80)
    p[0] = 0.25, 0.75, 0
    labels[0] = 1
    with np.errstate(divide="ignore"):
        scores = np.log(p)
    kind = getattr(isentropic.calibration, name)
    of_probs = kind(input="probs").fit(p, labels)
    np.testing.assert_allclose(of_probs.predict_proba(p), kind().fit(scores, labels).predict_proba(scores), rtol=1e-9)
    with pytest.raises(ValueError, match=r'with input "log_probs" X must have a column for each class, got one column'):
        kind(input="log_probs").fit(np.log(p[1:, :1]), labels[1:] == 0)  # (0, log p) would be other probabilities
    one = kind(input="probs").fit(p[1:, 0], labels[1:] == 0)
    both = kind(input="probs").fit(np.stack([1 - p[1:, 0], p[1:, 0]], -1), labels[1:] == 0)
    np.testing.assert_allclose(
        one.predict_proba(p[1:, 0]), both.predict_proba(np.stack([1 - p[1:, 0], p[1:, 0]], -1)), rtol=1e-9
    )
    with pytest.warns(UserWarning, match="each row of X sums to 1"):
        kind().fit(p[1:], labels[1:])
    for fit in (isentropic.fit_temperature, isentropic.fit_target_entropy):
        assert fit(p, labels, input="probs") == fit(scores, labels)
        with pytest.warns(UserWarning, match=f'^{fit.__name__}: each row of x sums to 1; pass input="probs"'):
            fit(p[1:], labels[1:])
        with pytest.raises(ValueError, match=f"^{fit.__name__}: x must be at least 0 and finite, got -1.0 at entry 0 in row 1"):
            fit([[0.5, 0.5], [-1, 2]], [0, 1], input="probs")
        with pytest.raises(ValueError, match=f"^{fit.__name__}: x must sum to 1 within 1e-06, got 0.75 in row 0"):
            fit([[0.5, 0.25]], [0], input="probs")
        with pytest.raises(ValueError, match=f"^{fit.__name__}: input must be one of scores, probs, log_probs, got 'odds'"):
            fit(p, labels, input="odds")
    assert isentropic.match_entropy(p, input="probs") == pytest.approx(isentropic.entropy(p).mean(), rel=1e-12)


def test_probabilities_of_rows_without_weight_are_not_read():
    """Nor those of rows with an ignored label; the rest is checked, and counted as in x."""
    rng = np.random.default_rng(10)
    p, labels = rng.dirichlet(np.ones(3), 20), rng.integers(0, 3, 20)
    bad, weights = np.array([[np.nan, 0.5, 0.5], [-1, 1, 1], [3, 4, 5], [0, 0, 0]]), np.repeat([0.0, 1.0], [4, 20])
    x, y, ignored = np.vstack([bad, p]), np.hstack([[0, 1, 2, 0], labels]), np.hstack([[-100] * 4, labels])
    for fit in (isentropic.fit_temperature, isentropic.fit_target_entropy, isentropic.fit_vector_scaling):
        want = fit(p, labels, input="probs")
        np.testing.assert_array_equal(fit(x, y, input="probs", sample_weight=weights), want)
        np.testing.assert_array_equal(fit(x, ignored, input="probs", ignore_index=-100), want)
        one = fit(p[:, 0] / 2, labels != 0, input="probs")
        np.testing.assert_array_equal(fit(x[:, 0] / 2, y != 0, input="probs", sample_weight=weights), one)
        with pytest.raises(ValueError, match=rf"^{fit.__name__}: x must be .*, got nan at entry 0 in row 0$"):
            fit(x, y, input="probs", sample_weight=weights + 1)
        with pytest.raises(ValueError, match=rf"^{fit.__name__}: x must sum to 1 within 1e-06, got 0.0 in row 3$"):
            fit(x, y, input="probs", sample_weight=np.repeat([0.0, 1.0], [3, 21]))
    want = isentropic.match_entropy(p, input="probs")
    assert isentropic.match_entropy(x, input="probs", sample_weight=weights) == want
    with pytest.raises(
        ValueError, match=r"^match_entropy: x_reference must be at least 0 and finite, got nan at entry 0 in row 0"
    ):
        isentropic.match_entropy(x, input="probs")
