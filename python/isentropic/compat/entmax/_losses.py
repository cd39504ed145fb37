"""The losses of ``entmax``: L(x, t) = max_p (<x, p> + H(p)) - x_t, at least 0, with gradient p - e_t, p the map of x.

The losses of sparsemax and entmax are isentropic's. That of normmax is here, with H(p) = 1 - |p|, which is 0 if one entry has
all the mass; p is the maximiser. The derivative in a parameter of H is that of H at a fixed p, because p is a maximum
(Danskin). Source: Blondel, Martins, Niculae, "Learning with Fenchel-Young Losses", JMLR 2020.
"""

import torch

import isentropic.torch as losses
from isentropic._descriptions import documented
from isentropic.compat.entmax._maps import Module, entmax15, floating, normmax_bisect, per_row, sparsemax, support_size


class _KnownDerivatives(torch.autograd.Function):
    """value, with the derivative p - e_target in x and alpha_slope in alpha. These are tensors with their own derivatives,
    which give all further derivatives."""

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
    if target.is_floating_point() or target.dtype is torch.bool:
        raise TypeError(f"target must be of integers, the classes, got dtype {target.dtype}")


# x_i - max x = (p_i^b - m^b) / |p|^b where p_i > 0, with b = alpha - 1 and m = max p: in <x, p> - |p| + 1 - max x, this leaves
# no score that could be -inf, only 1 - (m / |p|)^b. An alpha below 1 is taken as 1, as in the map.


def _held(alpha):
    return alpha.clamp(1.0, 1e300)


def _log_norm(p, m, alpha):
    """log (|p| / m), without powers of small numbers."""
    positive = p > 0
    log_ratio = torch.log(torch.where(positive, p / m.unsqueeze(-1), 1.0)).double()
    return torch.log(torch.where(positive, torch.exp(alpha * log_ratio), 0.0).sum(-1)) / alpha.squeeze(-1)


def _conjugate(p, m, alpha):
    """max_p (<x, p> + H(p)) - max x."""
    alpha = _held(alpha)
    return -torch.expm1((1 - alpha.squeeze(-1)) * _log_norm(p, m, alpha))


def _entropy(p, alpha):
    alpha = _held(alpha)
    m = p.amax(-1)
    return 1 - m * torch.exp(_log_norm(p, m, alpha))


def _alphas(function, alpha, X):
    """One alpha for each row, with size 1 for the axis of classes, which may be absent in the argument."""
    if isinstance(alpha, torch.Tensor) and X.dim() > 1 and alpha.shape == X.shape[:-1]:
        alpha = alpha.unsqueeze(-1)
    return per_row(function, "alpha", alpha, X, -1)


def _with_support(loss, X, to_p, return_support_size):
    if not return_support_size:
        return loss
    with torch.no_grad():
        return loss, support_size(to_p(X), -1)


@documented(module=__name__)
def sparsemax_loss(X, target, k=None, return_support_size=False):
    """
    The loss of sparsemax for each row, max_p (<x, p> - |p|^2 / 2 + 1/2) - x_target.

    X (torch.Tensor): Scores of shape (..., classes); the package takes (samples, classes).
    target (torch.Tensor): The right class of each row, integers of X's shape without the last axis.
    k (int or None): Accepted without effect.
    return_support_size (bool): Also return the number of classes with mass, as int64, with size 1 in the place of classes.
    Returns: One loss for each row, at least 0; 0 where the target leads by 1. Its gradient is p - e_target; differentiable
        twice. A class of -inf counts as absent, and as target costs inf. A row with NaN, or with only -inf, is NaN.
    Raises: The shapes must fit, the target be of integers and each class in range.
    >>> loss = isentropic.compat.entmax.sparsemax_loss(torch.randn(4, 6), torch.tensor([0, 5, 2, 2]))
    """
    _checked(X, target)
    return _with_support(losses.sparsemax_loss(floating(X), target, dtype=floating(X).dtype), X, sparsemax, return_support_size)


def entmax15_loss(X, target, k=None, return_support_size=False):
    """The loss of entmax15 for each row, max_p (<x, p> + (1 - sum p^1.5) / 0.75) - x_target.

    Parameters, result and errors are those of sparsemax_loss; it is 0 where the target leads by 2.
    """
    _checked(X, target)
    return _with_support(
        losses.entmax_loss(floating(X), target, alpha=1.5, dtype=floating(X).dtype), X, entmax15, return_support_size
    )


def sparsemax_bisect_loss(X, target, n_iter=50):
    """sparsemax_loss. n_iter is accepted and has no effect."""
    return sparsemax_loss(X, target)


@documented(module=__name__)
def entmax_bisect_loss(X, target, alpha=1.5, n_iter=50):
    """
    The loss of entmax for each row, max_p (<x, p> + (1 - sum p^alpha) / (alpha (alpha - 1))) - x_target.

    X, target (torch.Tensor): As for sparsemax_loss.
    alpha (float or torch.Tensor): Above 0; 1 is cross-entropy. A tensor holds one number, or one for each row, and has a
        gradient, also at 1.
    n_iter (int): Accepted without effect.
    Returns: As for sparsemax_loss.
    """
    _checked(X, target)
    x = floating(X)
    if not isinstance(alpha, (int, float)):
        alpha = _alphas("entmax_bisect_loss", alpha, x)
    return losses.entmax_loss(x, target, alpha=alpha, dtype=x.dtype)


def normmax_bisect_loss(X, target, alpha=2, n_iter=50):
    """The loss of normmax for each row, max_p (<x, p> - |p|) + 1 - x_target, |p| the alpha-norm.

    Parameters and result are those of entmax_bisect_loss; a class out of range is torch's RuntimeError. For alpha at most 1
    it is max x - x_target.
    """
    _checked(X, target)
    x = floating(X)
    alpha = _alphas("normmax_bisect_loss", alpha, x)
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    target = target.long().unsqueeze(-1)
    p = normmax_bisect(x, alpha)
    with torch.no_grad():
        most, own = x.amax(-1), x.gather(-1, target).squeeze(-1)
        behind = torch.where(own == most, 0.0, most - own)
        value = (behind + _conjugate(p, p.amax(-1), alpha)).clamp(min=0.0).to(x.dtype)
    alpha_slope = None
    if alpha.requires_grad:
        _, pullback = torch.func.vjp(lambda a: _entropy(p, a), alpha)
        (alpha_slope,) = pullback(torch.ones_like(value, dtype=alpha.dtype))
    value = _KnownDerivatives.apply(value, x, p, target, alpha, alpha_slope)
    return value.to(X.dtype) if X.is_floating_point() else value


_USUAL = {"ignore_index": -100, "reduction": "elementwise_mean"}


class _GenericLoss(Module, of=None, **_USUAL, return_support_size=False):
    """loss(X, target), reduced. Ignored rows give 0 and no gradient for any content, and the mean is over the other rows (NaN
    if there are none)."""

    def __init_subclass__(cls, of=None, **usual):
        super().__init_subclass__(of, **usual)
        if of is not None:
            cls.__doc__ = f"The module of {of.__name__}, with its parameters and these:{_REDUCED}"

    def __init__(self, *values, **named):
        super().__init__(*values, **named)
        if self.reduction not in ("elementwise_mean", "mean", "sum", "none"):
            raise ValueError(f"reduction must be 'elementwise_mean' (or 'mean'), 'sum' or 'none', got {self.reduction!r}")

    def loss(self, X, target):
        given = self._given()
        del given["ignore_index"], given["reduction"]
        return self._function(X, target, **given)

    def forward(self, X, target):
        _checked(X, target)
        ignored = target == self.ignore_index
        # Masked instead of multiplied by 0: their gradient may be NaN.
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


class SparsemaxLoss(_GenericLoss, of=sparsemax_loss, k=None, **_USUAL, return_support_size=False):
    pass


class Entmax15Loss(_GenericLoss, of=entmax15_loss, k=100, **_USUAL, return_support_size=False):
    pass


class SparsemaxBisectLoss(_GenericLoss, of=sparsemax_bisect_loss, n_iter=50, **_USUAL):
    pass


class EntmaxBisectLoss(_GenericLoss, of=entmax_bisect_loss, alpha=1.5, n_iter=50, **_USUAL):
    pass


class NormmaxBisectLoss(_GenericLoss, of=normmax_bisect_loss, alpha=2, n_iter=50, **_USUAL):
    pass


# For code that uses the classes behind the functions: their `apply`.


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


__all__ = ["Entmax15Loss", "EntmaxBisectLoss", "NormmaxBisectLoss", "SparsemaxBisectLoss", "SparsemaxLoss"]
__all__ += ["entmax15_loss", "entmax_bisect_loss", "normmax_bisect_loss", "sparsemax_bisect_loss", "sparsemax_loss"]
__all__ += ["Entmax15LossFunction", "SparsemaxBisectLossFunction", "SparsemaxLossFunction"]
__all__ += ["EntmaxBisectLossFunction", "NormmaxBisectLossFunction"]
