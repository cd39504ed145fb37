"""Temperatures and scales of maps as tensors: learned, one per row, under vmap and compilers."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")

import isentropic.torch as et  # noqa: E402

MAPS = [
    ("softmax", "Softmax", "temperature", {}),
    ("sparsemax", "Sparsemax", "temperature", {}),
    ("entmax", "Entmax", "temperature", {"alpha": 1.3}),
    ("log_softmax", "LogSoftmax", "temperature", {}),
    ("logsumexp", "LogSumExp", "temperature", {}),
    ("top_k_softmax", "TopKSoftmax", "temperature", {"k": 3}),
    ("top_p_softmax", "TopPSoftmax", "temperature", {"p": 0.8}),
    ("min_p_softmax", "MinPSoftmax", "temperature", {"p": 0.1}),
    ("perturb_max", "PerturbMax", "scale", {}),
    ("perturb_max", "PerturbMax", "scale", {"noise": "normal"}),
]


@pytest.mark.parametrize(("name", "module", "param", "others"), MAPS)
def test_learned(name, module, param, others):
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    rows = torch.tensor([[0.7], [1.0], [1.6]], dtype=torch.float64, requires_grad=True)

    def function(x, value):
        return getattr(et, name)(x, **{param: value}, **others)

    assert torch.autograd.gradcheck(function, (x, rows))
    assert torch.autograd.gradgradcheck(function, (x, rows), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(torch.func.vmap(function)(x, rows), function(x, rows))
    torch.testing.assert_close(function(x, rows)[2], function(x[2], 1.6))
    learned = getattr(et, module)(**{param: torch.nn.Parameter(torch.ones(1))}, **others)  # of one axis, as FSDP2 wants
    learned(x.detach().float()).square().sum().backward()
    grad = getattr(learned, param).grad
    assert grad.shape == (1,) and grad.isfinite() and grad != 0


def test_through_others():
    q = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: et.attention(q, q, q, temperature=t), temperature)
    assert torch.autograd.gradcheck(lambda t: et.gumbel_softmax(q, seed=1, temperature=t), temperature)
    torch._dynamo.reset()

    def total(x, t):
        return et.softmax(x, temperature=t).square().sum()

    compiled = torch.compile(total, fullgraph=True, backend="aot_eager")
    assert torch.equal(*(torch.autograd.grad(run(q, temperature), temperature)[0] for run in (compiled, total)))


OF_ROWS = [
    *((name, param, ()) for name, _, param, _ in MAPS[:2]),
    ("entmax", "alpha", ()),
    ("entropy_normalize", "entropy", ()),
    ("gamma_for_entropy", "entropy", ()),
    ("renyi_entropy", "alpha", ()),
    ("softmax_loss", "label_smoothing", (torch.zeros(3, dtype=torch.int64),)),
    ("token_statistics", "temperature", (torch.zeros(3, dtype=torch.int64),)),
    ("attention", "scale", (torch.zeros(3, 5), torch.zeros(3, 5))),
    ("linear_attention", "scale", (torch.zeros(3, 5), torch.zeros(3, 5))),
]
FIELDS = "name", "param", "arguments"


@pytest.mark.parametrize(FIELDS, OF_ROWS[:-1])
def test_numbers_that_are_nowhere_are_refused(name, param, arguments):
    for shape in ((), (3, 1)):
        for x in (torch.zeros(3, 5), torch.zeros(3, 5, requires_grad=True)):
            value = torch.ones(shape, device="meta")
            given = {"map": "entmax", "alpha": value} if name == "attention" else {param: value}
            with pytest.raises(TypeError, match=rf"^{name}: {list(given)[-1]} is on device meta"):
                getattr(et, name)(x, *arguments, **given)


@pytest.mark.parametrize(FIELDS, OF_ROWS)
@pytest.mark.parametrize("value", [torch.tensor(1 + 1j), torch.full((3, 1), 1 + 0j, dtype=torch.complex128)])
def test_complex_numbers_are_refused(name, param, arguments, value):
    """torch would take their real part."""
    with pytest.raises(TypeError, match=rf"^{name}: {param} must .*, got dtype torch.complex"):
        getattr(et, name)(torch.zeros(3, 5), *arguments, **{param: value})
