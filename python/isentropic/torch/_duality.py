"""Potentials of transport, and helpers for training a critic of distributions."""

from collections.abc import Iterable

import torch

import isentropic
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic.torch._spec import Tensor, result_type
from isentropic.torch._transport import common_type, floats, refuse_as_numpy, wide_floats


@documented
def c_transform(f, cost):
    """min_i (C_ij - f_i), the largest g with f_i + g_j <= C_ij: ``isentropic.c_transform``, differentiable in both.

    >>> isentropic.torch.c_transform(torch.tensor([0.0, 0.5]), torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
    tensor([ 0.0000, -0.5000])
    """
    f, cost = wide_floats("c_transform", f=f, cost=cost).values()
    if f.shape[-1:] != cost.shape[-2:-1]:
        raise ValueError(f"c_transform: f must have shape (..., n) for cost (..., n, m), got {f.shape} and {cost.shape}")
    return (cost - f[..., None]).amin(-2)


@documented
def dual_value(f, g, a, b):
    """<a, f> + <b, g>: ``isentropic.dual_value``, differentiable in all four.

    >>> f, g = torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.0])
    >>> isentropic.torch.dual_value(f, g, torch.tensor([0.25, 0.75]), torch.tensor([1.0, 0.0]))
    tensor(1.2500)
    """
    f, g, a, b = wide_floats("dual_value", f=f, g=g, a=a, b=b).values()
    refuse_as_numpy(isentropic.dual_value, f, g, a, b)
    return _dual_value(f, g, a, b)


def _dual_value(f, g, a, b):
    def mean(potential, mass):
        potential = torch.where((mass == 0) & ~potential.isfinite(), 0, potential)
        return (potential.to(torch.float64) * mass.to(torch.float64)).sum(-1)

    return (mean(f, a) + mean(g, b)).to(common_type(f, g, a, b))


@documented
def lipschitz_constant(f, distance):
    """max |f_i - f_j| / D_ij over i != j: ``isentropic.lipschitz_constant``, differentiable in both.

    >>> distance = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    >>> isentropic.torch.lipschitz_constant(torch.tensor([0.0, 1.0, 4.0]), distance)
    tensor(3.)
    """
    f, distance = wide_floats("lipschitz_constant", f=f, distance=distance).values()
    refuse_as_numpy(isentropic.lipschitz_constant, f, distance)
    if f.ndim != 1 or tuple(distance.shape) != (len(f), len(f)):
        raise ValueError(
            f"lipschitz_constant: f must have shape (n,) and distance (n, n), got {tuple(f.shape)} and {tuple(distance.shape)}"
        )
    if len(f) == 0:
        return f.new_zeros(())
    rise = (f[:, None] - f).abs()
    apart = distance > 0
    fast = torch.where(rise > 0, torch.full_like(rise, float("inf")), 0 * rise)
    slope = torch.where(apart, rise / torch.where(apart, distance, 1), fast)
    return torch.where(torch.eye(len(f), dtype=torch.bool, device=f.device), 0, slope).amax()


@documented
def wgan_critic_loss(critic_real, critic_fake):
    """The loss of a critic: its mean over generated samples minus its mean over real ones.

    For a critic with Lipschitz constant L, -loss / L is a lower bound of W_1 of the two batches. ``isentropic.wasserstein``
    computes the exact value. The generator minimises -mean(critic_fake).
    Source: Arjovsky, Chintala, Bottou, ICML 2017.

    >>> isentropic.torch.wgan_critic_loss(torch.tensor([1.0, 3.0]), torch.tensor([0.5, 0.5]))
    tensor(-1.5000)
    """
    real, fake = floats("wgan_critic_loss", critic_real=critic_real, critic_fake=critic_fake).values()
    return fake.mean(dtype=result_type(fake)) - real.mean(dtype=result_type(real))


@documented
@torch.no_grad()
def clip_weights(parameters, bound=0.01):
    """Clamps parameters, or those of a module, to [-bound, bound] in place, which bounds its Lipschitz constant.

    Source: Arjovsky, Chintala, Bottou, ICML 2017.

    >>> layer = torch.nn.Linear(2, 1)
    >>> isentropic.torch.clip_weights(layer, 0.01)
    >>> bool(layer.weight.abs().max() <= 0.01)
    True
    """
    bound = _checks.number("clip_weights", "bound", bound)
    if not bound > 0:
        raise ValueError(f"clip_weights: bound must be above 0, got {bound}")
    given = parameters.parameters() if isinstance(parameters, torch.nn.Module) else parameters
    given = list(given) if isinstance(given, Iterable) and not isinstance(given, Tensor) else [given]
    for one in given:
        if not isinstance(one, Tensor):
            raise TypeError(f"clip_weights: parameters must be a module, a tensor or tensors, got {type(one).__name__}")
    for parameter in given:
        parameter.clamp_(-bound, bound)


@documented
def gradient_penalty(critic, real, fake, *, target=1.0, one_sided=False, generator=None):
    """The mean of (|d critic / d z| - target)^2 at z = t real + (1 - t) fake, t uniform on [0, 1] for each sample.

    The norm is each sample's own, over all axes but the first; its gradient at 0 is 0, not NaN. one_sided penalises only norms
    above target. Differentiable in the critic's parameters.
    Sources: Gulrajani et al., NeurIPS 2017; one-sided: Petzka, Fischer, Lukovnikov, ICLR 2018.

    >>> critic = lambda z: 3 * z.sum(dim=(1, 2))
    >>> isentropic.torch.gradient_penalty(critic, torch.zeros(5, 2, 2), torch.ones(5, 2, 2))
    tensor(25.)
    """
    _checks.flag("gradient_penalty", "one_sided", one_sided)
    target = _checks.number("gradient_penalty", "target", target)
    if not callable(critic):
        raise TypeError(f"gradient_penalty: critic must be a module or a function, got {type(critic).__name__}")
    real, fake = floats("gradient_penalty", real=real, fake=fake).values()
    if real.shape != fake.shape:
        raise ValueError(f"gradient_penalty: fake must have the shape of real, {tuple(real.shape)}, got {tuple(fake.shape)}")
    if real.ndim == 0:
        raise ValueError("gradient_penalty: real must have at least one axis, of samples, got shape ()")
    shape = (len(real), *[1] * (real.ndim - 1))
    t = torch.rand(shape, dtype=real.dtype, device=real.device, generator=generator)
    z = (fake + t * (real - fake)).detach().requires_grad_()
    with torch.enable_grad():
        values = critic(z)
        (slope,) = torch.autograd.grad(values.sum(), z, create_graph=True)
    square = slope.to(result_type(slope)).flatten(1).square().sum(1)
    norm = torch.where(square > 0, torch.where(square > 0, square, 1).sqrt(), 0 * square)
    excess = norm - target
    return (excess.clamp(min=0) if one_sided else excess).square().mean()
