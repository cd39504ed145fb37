"""Operations that take distributions as well as scores: the keyword input."""

import numpy as np
import pytest

import isentropic
from cases import OPERATIONS, call, call_vjp, each, scores

WITH_INPUT = [operation for operation in OPERATIONS if any(param["name"] == "input" for param in operation["params"])]


def test_there_are_some():
    assert {"entropy_normalize", "entropy_clip"} <= {operation["name"] for operation in WITH_INPUT}


@each(WITH_INPUT)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_are_scores_in_other_words(operation, dtype):
    x = scores(np.random.default_rng(0), (4, 30), dtype, 1.0)
    p = call(operation, x)
    np.testing.assert_array_equal(call(operation, x, input="log_probs"), p)
    np.testing.assert_array_equal(call(operation, x, input="scores"), p)
    q = isentropic.softmax(x)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(call(operation, q, input="probs"), p, rtol=tolerance, atol=tolerance)
    # d log q = dq / q, and J^T g is orthogonal to a shift of the scores.
    grad = scores(np.random.default_rng(1), (4, 30), dtype)
    dq = call_vjp(operation, q, p, grad, input="probs")
    np.testing.assert_allclose(dq * q, call_vjp(operation, x, p, grad), rtol=2e-3, atol=10 * tolerance)


@each(WITH_INPUT)
def test_zeros_stay_and_what_is_no_distribution_is_nan(operation):
    q = np.array([[0.5, 0.0, 0.3, 0.2], [0.5, -0.1, 0.3, 0.3], [0.5, np.nan, 0.3, 0.2], [0, 0, 0, 0], [1, np.inf, 0, 0]])
    p = call(operation, q, input="probs")
    assert p[0, 1] == 0 and abs(p[0].sum() - 1) < 1e-12
    assert np.isnan(p[1:]).all()
    np.testing.assert_allclose(call(operation, 7 * q[0], input="probs"), p[0], rtol=1e-12)


@each(WITH_INPUT)
def test_the_words_are_named(operation):
    with pytest.raises(ValueError, match="input must be one of scores, probs, log_probs, got 'logits'"):
        call(operation, np.ones(3), input="logits")
    assert '"scores", "probs", "log_probs"' in getattr(isentropic, operation["name"]).__doc__
