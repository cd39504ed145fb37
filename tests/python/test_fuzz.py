"""Any arguments to any function: an answer, or ValueError or TypeError; of finite scores never NaN."""

import inspect
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import isentropic
from cases import FLOATS, OPERATIONS, call, call_vjp, each, laid_out, param_values, reshaped

# Those left out change what all others do, read files, or end the process's patience.
FUNCTIONS = sorted(
    set(isentropic.__all__)
    - {"__version__", "force_simd_target", "set_num_threads", "read", "write", "TemperatureClampedWarning"}
)
WORDS = [None, True, False, 0, 1, -1, 2, 3, 64, 10**30, 0.5, 1.5, -0.5, 1e300, np.nan, np.inf, -np.inf]
WORDS += [
    "probs",
    "log_probs",
    "scores",
    "entmax",
    "sqrt",
    "x",
    b"x",
    "",
    [1.0],
    (0, 1),
    [[1.0], [2.0, 3.0]],
    {},
    np.exp,
    object(),
]
WORDS += [("top_k_softmax", {"k": 2}), [("top_k", 2), ("entropy", 1.0)], np.float32(2), np.array(1.0), 1j]


@st.composite
def arrays(draw, shape):
    """Numbers of any kind in this shape, or in another."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if draw(st.integers(0, 9)) == 0:
        shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    kind = draw(st.sampled_from(["scores", "scores", "probs", "probs", "classes", "labels", "extreme"]))
    if kind == "probs" and shape and 0 not in shape:
        x = rng.dirichlet(np.ones(shape[-1]), shape[:-1])
    elif kind in ("classes", "labels"):
        shape = shape[:-1] if kind == "classes" else shape
        x = rng.integers(-1 if draw(st.booleans()) else 0, 3, shape)
    elif kind == "extreme":
        x = rng.choice([np.nan, np.inf, -np.inf, 0, -0.0, 1e308, -1e308, 5e-324, 1.0], shape)
    else:
        x = rng.standard_normal(shape) * 3
    dtype = draw(st.sampled_from([None, None, *FLOATS, np.int32, bool, complex, object, ">f8", np.longdouble]))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = x if dtype is None else np.asarray(x).astype(dtype)
    step = draw(st.sampled_from([1, 1, 1, -1]))
    x = np.asarray(x)[..., ::step] if np.ndim(x) else np.asarray(x)
    return x.tolist() if draw(st.integers(0, 9)) == 0 else x


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=25)
@given(data=st.data())
def test_answers_or_refuses(name, data):
    function = getattr(isentropic, name)
    shape = tuple(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    positional, keywords = [], {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            wild = data.draw(st.integers(0, 19)) == 0
            positional.append(data.draw(st.sampled_from(WORDS)) if wild else data.draw(arrays(shape)))
        elif parameter.default is parameter.empty or data.draw(st.integers(0, 2)) == 0:
            if parameter.name == "max_iterations":
                keywords[parameter.name] = data.draw(st.integers(-1, 20))  # it ends, but when
            elif parameter.name == "epsilon":
                keywords[parameter.name] = data.draw(st.sampled_from([0.1, 1.0, -1, 0, "x", np.nan]))
            else:
                wild = data.draw(st.sampled_from([*WORDS, "array"]), label=parameter.name)
                keywords[parameter.name] = data.draw(arrays(shape)) if isinstance(wild, str) and wild == "array" else wild
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(*positional, **keywords)
        except (ValueError, TypeError) as error:
            assert str(error)


@each(OPERATIONS)
@settings(max_examples=25)
@given(data=st.data())
def test_finite_scores_give_numbers(operation, data):
    dtype = data.draw(st.sampled_from(FLOATS))
    x, axis = data.draw(laid_out(dtype))
    if 0 in x.shape:
        return
    scale = data.draw(st.sampled_from([1, 1e-6, 1e3]))
    with np.errstate(all="ignore"):
        x = (x * scale).astype(dtype)
    params = data.draw(param_values(operation))
    y = call(operation, x, axis=axis, **params)
    moved = np.moveaxis(x, axis, -1)
    assert np.moveaxis(y, axis, -1).shape == moved.shape if not operation["reduces"] else y.shape == reshaped(operation, moved)
    assert y.dtype == dtype
    assert not np.isnan(y).any()
    if not operation["reduces"]:
        assert not np.isnan(call_vjp(operation, x, y, np.ones_like(y), axis=axis, **params)).any()
