"""The losses of ``entmax``: L(x, t) = max_p (<x, p> + H(p)) - x_t, at least 0, with gradient p - e_t, p the map of x.

H is concave and 0 where one entry has all; p is where the maximum is. The derivative in a parameter of H is that of H at p
held fixed, since p is a maximum (Danskin). Source: Blondel, Martins, Niculae, "Learning with Fenchel-Young Losses", JMLR 2020.

Where p_i > 0, x_i is tau plus a power of p_i, the largest of them too; put into <x, p>, the scores that remain are max x and
x_t, so that no -inf is ever multiplied by 0.
"""

import math

import torch

from entropic.compat.entmax._maps import (
    entmax15,
    entmax_bisect,
    floating,
    normmax_bisect,
    per_row,
    sparsemax,
    support_size,
)


class _KnownDerivatives(torch.autograd.Function):
    """value, whose derivative in x is p - e_target and in alpha alpha_slope. As these are tensors with derivatives of their
    own, so are all further derivatives."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value, x, p, target, alpha, alpha_slope):
        return value.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, _, p, target, _, alpha_slope = inputs
        ctx.save_for_backward(p, target, alpha_slope)

    @staticmethod
    def backward(ctx, grad):
        p, target, alpha_slope = ctx.saved_tensors
        grad = grad.unsqueeze(-1)
        dx = (grad * p).scatter_add(-1, target, -grad)
        return None, dx, None, None, None if alpha_slope is None else grad * alpha_slope, None


def _checked(X, target):
    if not isinstance(X, torch.Tensor) or not isinstance(target, torch.Tensor):
        raise TypeError(f"X and target must be torch.Tensors, got {type(X).__name__} and {type(target).__name__}")
    if X.dim() < 1 or target.shape != X.shape[:-1]:
        raise ValueError(
            f"target must hold one class for each row of X: of shape {tuple(X.shape[:-1])} for X of {tuple(X.shape)}, "
            f"got {tuple(target.shape)}"
        )
    if target.is_floating_point():
        raise TypeError(f"target must be of integers, the classes, got dtype {target.dtype}")


def _loss(X, target, to_p, conjugate, entropy=None, alpha=None):
    """One loss for each row of X: to_p(x) is the map, conjugate(p, largest p) is max_p (<x, p> + H(p)) - max x, and
    entropy(p, alpha) H, where alpha has a gradient."""
    _checked(X, target)
    x = floating(X)
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    target = target.long().unsqueeze(-1)
    p = to_p(x)
    with torch.no_grad():
        most, own = x.amax(-1), x.gather(-1, target).squeeze(-1)
        behind = torch.where(own == most, 0.0, most - own)
        value = (behind + conjugate(p, p.amax(-1))).clamp(min=0.0).to(x.dtype)
    alpha_slope = None
    if alpha is not None and alpha.requires_grad:
        _, pullback = torch.func.vjp(lambda a: entropy(p, a), alpha)
        (alpha_slope,) = pullback(torch.ones_like(value, dtype=alpha.dtype))
    return _KnownDerivatives.apply(value, x, p, target, alpha, alpha_slope).to(X.dtype if X.is_floating_point() else x.dtype)


def _relative_expm1(t):
    """(e^t - 1) / t, by its series near 0, so that its derivatives are right there too."""
    near = t.abs() < 1
    far = torch.where(near, 1.0, t)
    inner = torch.where(near, t, 0.0)
    series = torch.zeros_like(t)
    for m in range(19, -1, -1):
        series = series * inner + 1 / math.factorial(m + 1)
    return torch.where(near, series, torch.expm1(far) / far)


# Entmax, b = alpha - 1: x_i - max x = (p_i^b - m^b) / b with m = max p, and <x, p> + H(p) - max x becomes
# (sum p^alpha - 1) / alpha + (1 - m^b) / b, smoothly through b = 0 where it is -log m.


def _conjugate_2(p, m):
    return ((p * p).sum(-1) - 1) / 2 + (1 - m)


def _conjugate_15(p, m):
    return ((p * p.sqrt()).sum(-1) - 1) / 1.5 + 2 * (1 - m.sqrt())


def _conjugate(p, m, alpha):
    log_m = torch.log(m.double())
    powers = p.pow(alpha).sum(-1)
    alpha = alpha.squeeze(-1) if isinstance(alpha, torch.Tensor) else alpha
    return (powers - 1) / alpha - log_m * _relative_expm1((alpha - 1) * log_m)


def _entropy(p, alpha):
    """Tsallis: sum p (1 - p^b) / (alpha b), smoothly through b = 0 where it is -sum p log p."""
    log_p = torch.log(torch.where(p > 0, p, 1.0)).double()
    return -(p * log_p * _relative_expm1((alpha - 1) * log_p)).sum(-1) / alpha.squeeze(-1)


# Normmax: x_i - max x = (p_i^b - m^b) / |p|^b, and <x, p> - |p| + 1 - max x becomes 1 - (m / |p|)^b. Below 1, alpha is held
# at 1 as the map is.


def _held(alpha):
    return alpha.clamp(1.0, 1e300)


def _log_norm(p, m, alpha):
    """log (|p| / m), where no power of small numbers is taken."""
    positive = p > 0
    log_ratio = torch.log(torch.where(positive, p / m.unsqueeze(-1), 1.0)).double()
    return torch.log(torch.where(positive, torch.exp(alpha * log_ratio), 0.0).sum(-1)) / alpha.squeeze(-1)


def _conjugate_of_norm(p, m, alpha):
    alpha = _held(alpha)
    return -torch.expm1((1 - alpha.squeeze(-1)) * _log_norm(p, m, alpha))


def _entropy_of_norm(p, alpha):
    alpha = _held(alpha)
    m = p.amax(-1)
    return 1 - m * torch.exp(_log_norm(p, m, alpha))


def _alphas(alpha, X):
    """One alpha for each row, with size 1 in the place of classes; rows may be given without that."""
    if isinstance(alpha, torch.Tensor) and X.dim() > 1 and alpha.shape == X.shape[:-1]:
        alpha = alpha.unsqueeze(-1)
    return per_row(alpha, X, -1)


def _with_support(loss, X, to_p, return_support_size):
    if not return_support_size:
        return loss
    with torch.no_grad():
        return loss, support_size(to_p(X), -1)


def sparsemax_loss(X, target, k=None, return_support_size=False):
    """The loss of sparsemax for each row, max_p (<x, p> - |p|^2 / 2 + 1/2) - x_target.

    Parameters
    ----------
    X : torch.Tensor
        Scores of shape (..., classes); the package takes (samples, classes).
    target : torch.Tensor
        The right class of each row, integers of X's shape without the last axis.
    k : int, optional
        Accepted and without influence.
    return_support_size : bool, default False
        Also return how many classes have mass, as int64, with size 1 in the place of classes.

    Returns
    -------
    torch.Tensor
        One loss for each row, at least 0; 0 where the target leads by 1. Its gradient is p - e_target; differentiable twice.
        A class of -inf counts as absent, and as target costs inf. A row with NaN, or of -inf alone, is NaN.

    Raises
    ------
    ValueError, TypeError
        If the shapes do not fit or the target is not of integers; RuntimeError by torch if a class is out of range.

    Examples
    --------
    >>> loss = entropic.compat.entmax.sparsemax_loss(torch.randn(4, 6), torch.tensor([0, 5, 2, 2]))
    """
    return _with_support(_loss(X, target, sparsemax, _conjugate_2), X, sparsemax, return_support_size)


def entmax15_loss(X, target, k=None, return_support_size=False):
    """The loss of entmax15 for each row, max_p (<x, p> + (1 - sum p^1.5) / 0.75) - x_target.

    Parameters, result and errors are those of sparsemax_loss; it is 0 where the target leads by 2.
    """
    return _with_support(_loss(X, target, entmax15, _conjugate_15), X, entmax15, return_support_size)


def sparsemax_bisect_loss(X, target, n_iter=50):
    """sparsemax_loss. n_iter is accepted and without influence."""
    return sparsemax_loss(X, target)


def entmax_bisect_loss(X, target, alpha=1.5, n_iter=50):
    """The loss of entmax for each row, max_p (<x, p> + (1 - sum p^alpha) / (alpha (alpha - 1))) - x_target.

    Parameters
    ----------
    X, target : torch.Tensor
        As for sparsemax_loss.
    alpha : float or torch.Tensor, default 1.5
        Above 0; 1 is cross-entropy. A tensor holds one number, or one for each row, and has a gradient, also at 1.
    n_iter : int
        Accepted and without influence.

    Returns
    -------
    torch.Tensor
        As for sparsemax_loss.
    """
    _checked(X, target)
    alpha = _alphas(alpha, X) if isinstance(alpha, torch.Tensor) else float(alpha)
    rows = alpha if isinstance(alpha, torch.Tensor) else None
    return _loss(X, target, lambda x: entmax_bisect(x, alpha), lambda p, m: _conjugate(p, m, alpha), _entropy, rows)


def normmax_bisect_loss(X, target, alpha=2, n_iter=50):
    """The loss of normmax for each row, max_p (<x, p> - |p|) + 1 - x_target, |p| the alpha-norm.

    Parameters and result are those of entmax_bisect_loss. For alpha at most 1 it is max x - x_target.
    """
    _checked(X, target)
    alpha = _alphas(alpha, X)
    return _loss(
        X,
        target,
        lambda x: normmax_bisect(x, alpha),
        lambda p, m: _conjugate_of_norm(p, m, alpha),
        _entropy_of_norm,
        alpha,
    )


class _GenericLoss(torch.nn.Module):
    """loss(X, target) reduced: ignored rows give 0 and no gradient, whatever they hold, and the mean is over the rest (NaN
    where there is none)."""

    def __init__(self, ignore_index=-100, reduction="elementwise_mean", return_support_size=False):
        super().__init__()
        if reduction not in ("elementwise_mean", "mean", "sum", "none"):
            raise ValueError(f"reduction must be 'elementwise_mean' (or 'mean'), 'sum' or 'none', got {reduction!r}")
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.return_support_size = return_support_size

    def forward(self, X, target):
        _checked(X, target)
        ignored = target == self.ignore_index
        # Not 0 times their gradient, which may be NaN.
        loss = self.loss(X.masked_fill(ignored.unsqueeze(-1), 0.0), target.masked_fill(ignored, 0))
        loss, *support = loss if isinstance(loss, tuple) else (loss,)
        loss = loss.masked_fill(ignored, 0.0)
        if self.reduction == "sum":
            loss = loss.sum()
        elif self.reduction != "none":
            loss = loss.sum() / (~ignored).sum()
        return (loss, *support) if support else loss


_REDUCED = """

    ignore_index : int, default -100
        Rows with this target give 0 and no gradient, and do not count in the mean; it may be negative.
    reduction : str, default "elementwise_mean"
        "elementwise_mean" or "mean", "sum" or "none"."""


class SparsemaxLoss(_GenericLoss):
    def __init__(self, k=None, ignore_index=-100, reduction="elementwise_mean", return_support_size=False):
        super().__init__(ignore_index, reduction, return_support_size)
        self.k = k

    def loss(self, X, target):
        return sparsemax_loss(X, target, self.k, self.return_support_size)


class Entmax15Loss(_GenericLoss):
    def __init__(self, k=100, ignore_index=-100, reduction="elementwise_mean", return_support_size=False):
        super().__init__(ignore_index, reduction, return_support_size)
        self.k = k

    def loss(self, X, target):
        return entmax15_loss(X, target, self.k, self.return_support_size)


class SparsemaxBisectLoss(_GenericLoss):
    def __init__(self, n_iter=50, ignore_index=-100, reduction="elementwise_mean"):
        super().__init__(ignore_index, reduction)
        self.n_iter = n_iter

    def loss(self, X, target):
        return sparsemax_bisect_loss(X, target, self.n_iter)


class EntmaxBisectLoss(_GenericLoss):
    def __init__(self, alpha=1.5, n_iter=50, ignore_index=-100, reduction="elementwise_mean"):
        super().__init__(ignore_index, reduction)
        self.alpha, self.n_iter = alpha, n_iter

    def loss(self, X, target):
        return entmax_bisect_loss(X, target, self.alpha, self.n_iter)


class NormmaxBisectLoss(_GenericLoss):
    def __init__(self, alpha=2, n_iter=50, ignore_index=-100, reduction="elementwise_mean"):
        super().__init__(ignore_index, reduction)
        self.alpha, self.n_iter = alpha, n_iter

    def loss(self, X, target):
        return normmax_bisect_loss(X, target, self.alpha, self.n_iter)


for _module, _function in (
    (SparsemaxLoss, sparsemax_loss),
    (Entmax15Loss, entmax15_loss),
    (SparsemaxBisectLoss, sparsemax_bisect_loss),
    (EntmaxBisectLoss, entmax_bisect_loss),
    (NormmaxBisectLoss, normmax_bisect_loss),
):
    _module.__doc__ = f"The module of {_function.__name__}, with its parameters and these:{_REDUCED}"


# What code calls that goes below the functions: their `apply`.


class SparsemaxLossFunction:
    apply = staticmethod(sparsemax_loss)


class Entmax15LossFunction:
    apply = staticmethod(entmax15_loss)


class SparsemaxBisectLossFunction:
    apply = staticmethod(sparsemax_bisect_loss)


class EntmaxBisectLossFunction:
    apply = staticmethod(entmax_bisect_loss)


class NormmaxBisectLossFunction:
    apply = staticmethod(normmax_bisect_loss)
