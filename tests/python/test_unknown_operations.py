"""An operation that a door has not been told of is refused by its name, never treated as another one.

Each door gets an operation of a new name with the description of one that it knows; where values come from a kernel, that
kernel stands behind the new name. tests/adding does the same with operations that are really added.
"""

import functools
import types

import numpy as np
import pytest

import isentropic
import isentropic.llama_cpp
from cases import torch_or_skip

NEW = "sharp_softmax"


def described(info, **more):
    return {**info, "name": NEW, **more}


# JAX.


@pytest.fixture
def jax(monkeypatch):
    jax = pytest.importorskip("jax", reason="jax is not installed")
    from isentropic.jax import _maps, _values

    def behind(module, known):
        call = module.call
        monkeypatch.setattr(module, "call", lambda name, *given, **more: call(known if name == NEW else name, *given, **more))

    return types.SimpleNamespace(jax=jax, maps=_maps, values=_values, behind=behind)


def test_jax_map(jax, monkeypatch):
    monkeypatch.setitem(jax.maps.MAPS, NEW, described(jax.maps.MAPS["softmax"]))
    jax.behind(jax.maps, "softmax")
    function, x = jax.maps.make_map(jax.maps.MAPS[NEW]), np.float32([1, 2, 4])
    np.testing.assert_array_equal(function(x), isentropic.softmax(x))
    for derivative in (jax.jax.grad, jax.jax.hessian, lambda f: lambda x: jax.jax.jvp(f, (x,), (x,))):
        with pytest.raises(NotImplementedError, match=f"^isentropic.jax: {NEW} has no derivative"):
            derivative(lambda x: function(x)[0])(x)


@pytest.mark.parametrize("kind", ["loss", "measure", "entry"])
def test_jax_second_derivatives(jax, kind):
    known = {"loss": "softmax_loss", "measure": "entropy", "entry": "self_information"}[kind]
    jax.behind(jax.values, known)
    from isentropic import _core

    info = next(one for one in (*_core.losses(), *_core.measure_operations()) if one["name"] == known)
    make = {"loss": jax.values.make_loss, "measure": functools.partial(jax.values.make_measure, two=False)}
    function = make.get(kind, jax.values.make_entry)(described(info))
    p = np.float32([0.5, 0.3, 0.2])
    one = (lambda p: function(p, 0)) if kind == "loss" else (lambda p: function(p).sum())
    assert jax.jax.grad(one)(p).shape == (3,)
    with pytest.raises(NotImplementedError, match=f"^isentropic.jax: {NEW} has no second derivative"):
        jax.jax.hessian(one)(p)


# Rows over ranks.


@pytest.fixture
def ranks():
    torch_or_skip()
    from isentropic.torch.distributed import _chain, _divergences, _maps

    return types.SimpleNamespace(maps=_maps, chain=_chain, divergences=_divergences)


def test_ranks_step(ranks):
    call = types.SimpleNamespace(x=np.zeros((1, 3)))
    with pytest.raises(
        NotImplementedError, match=r"^Sampler: there is no step 'sharpen' for rows over ranks, which have temperature, "
    ):
        ranks.chain.Chain(call).apply("sharpen", [1.0])


def test_ranks_map(ranks):
    call = types.SimpleNamespace(spec={"map": NEW})
    with pytest.raises(NotImplementedError, match=f"^{NEW}: there is no such map for rows over ranks$"):
        ranks.maps.map_forward(call)
    with pytest.raises(NotImplementedError, match=f"^{NEW}: there is no gradient for rows over ranks$"):
        ranks.maps.map_vjp(call, None, None, None, None)


def test_ranks_divergence(ranks):
    call = types.SimpleNamespace(spec={"name": "sharp_divergence"})
    with pytest.raises(NotImplementedError, match=r"^sharp_divergence: there is no such divergence for rows over ranks$"):
        ranks.divergences._terms_of_pair(call, None)


# ONNX, and steps of language models.


def test_onnx_map(monkeypatch):
    torch = torch_or_skip()
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    from isentropic.onnx import _maps

    monkeypatch.setitem(_maps._descriptions.MAPS, NEW, described(_maps._descriptions.MAPS["softmax"]))
    with pytest.raises(ValueError, match=f"^onnx.export: {NEW} cannot be exported: it is not written in operators of ONNX$"):
        _maps.decomposition(NEW)(torch.zeros(2, 3), 1.0, 1)


def test_steps():
    with pytest.raises(ValueError, match="sharpen"):
        isentropic.Sampler([("sharpen", 1.0)])
    with pytest.raises(ValueError, match="sharpen"):
        isentropic.llama_cpp.logits_processor([("sharpen", 1.0)])


# C: the interface knows operations by the registry alone.


def test_c():
    from isentropic import _core

    with pytest.raises(ValueError, match=NEW):
        _core.apply_on_host(NEW, "{}", [("x", 0, 0, 3, 0), ("y", 0, 0, 3, 0)], False)
