"""Where operators run: what stands in for a kernel says so, once, or raises."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import isentropic.torch as et  # noqa: E402
from isentropic.torch import backends  # noqa: E402
from isentropic.torch._maps import OPERATORS as MAPS  # noqa: E402
from isentropic.torch.backends import cpu, reference  # noqa: E402


@pytest.fixture
def nothing_said(monkeypatch):
    monkeypatch.setattr(backends, "_said", set())
    monkeypatch.delenv("ISENTROPIC_STRICT", raising=False)


def test_a_reference_warns_once_and_names_the_operation(nothing_said):
    x = torch.randn(2, 5)
    run = backends.implementations("sparsemax")["CUDA"]
    with pytest.warns(UserWarning, match=r"^isentropic\.torch: sparsemax has no kernel for CUDA, .*ISENTROPIC_STRICT=1"):
        got = run(x, None, 1.0, 1)
    torch.testing.assert_close(got, et.sparsemax(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(x, None, 1.0, 1)
    with pytest.warns(UserWarning, match="entmax has no kernel"):
        backends.implementations("entmax")["CUDA"](x, None, None, 1.5, 1.0, 1)


def test_strict_makes_it_an_error(nothing_said, monkeypatch):
    run = backends.implementations("sparsemax")["CUDA"]
    monkeypatch.setenv("ISENTROPIC_STRICT", "1")
    with pytest.raises(RuntimeError, match=r"^isentropic\.torch: sparsemax has no kernel for CUDA, and ISENTROPIC_STRICT"):
        run(torch.randn(2, 5), None, 1.0, 1)
    monkeypatch.setenv("ISENTROPIC_STRICT", "0")
    with pytest.warns(UserWarning, match="sparsemax"):
        run(torch.randn(2, 5), None, 1.0, 1)


def test_what_has_no_reference_runs_on_the_cpu(nothing_said):
    p = torch.rand(2, 5)
    with pytest.warns(UserWarning, match="power_transform has no kernel for CUDA, it runs on the CPU"):
        got = backends.implementations("power_transform")["CUDA"](p, None, 0.5)
    assert torch.equal(got, et.power_transform(p, gamma=0.5))


def test_kernels_say_nothing(nothing_said):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.randn(2, 5, requires_grad=True)
        et.softmax_loss(et.sparsemax(x), torch.tensor([0, 1])).sum().backward()


def test_every_operator_has_an_implementation():
    for name in MAPS:
        for operator in (name, f"{name}_vjp"):
            assert operator in cpu.IMPLEMENTATIONS and operator in reference.IMPLEMENTATIONS


def test_a_map_without_a_gradient_of_its_own_is_differentiated(monkeypatch):
    """A reference may consist of only the definition."""
    x = torch.randn(2, 5, dtype=torch.float64)
    y = et.softmax(x)
    grad = torch.randn_like(y)
    want = reference.IMPLEMENTATIONS["softmax_vjp"](x, None, y, grad, 1.0, 1)
    monkeypatch.delitem(reference.maps.maps.CORES, "softmax")
    torch.testing.assert_close(reference.IMPLEMENTATIONS["softmax_vjp"](x, None, y, grad, 1.0, 1), want)
