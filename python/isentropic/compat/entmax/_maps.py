"""The maps of ``entmax``: sparsemax and entmax are isentropic's, normmax is entmax of other scores, budget one threshold."""

import inspect
import math

import torch

import isentropic.torch as maps
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic.torch._arguments import checked_dim

INF = math.inf


def floating(X):
    """X; if it has integers, X in torch's default dtype. What maps refuse is left to them."""
    numbers = isinstance(X, torch.Tensor) and not X.is_floating_point() and not X.is_complex()
    return X.to(torch.get_default_dtype()) if numbers else X


def per_row(function, argument, value, X, dim):
    """Numbers as a float64 tensor of X's shape with 1 for dim."""
    at = checked_dim(function, "X", X, dim)
    shape = [1 if axis == at else size for axis, size in enumerate(X.shape)]
    try:
        value = torch.as_tensor(value, dtype=torch.float64, device=X.device)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{function}: {argument} must be a number or a tensor, got {type(value).__name__}") from None
    try:
        return value.expand(shape)
    except RuntimeError:
        which, may_be = f"X's shape with 1 for dim {dim}", "a number or a tensor"
        raise _checks.misfit(function, argument, shape, which, value, may_be) from None


def from_largest(x, dim):
    """x - max x. If a row has +inf, these entries are 0 and all others -inf; a row with NaN, or with only -inf, is NaN.

    The maximum counts as a constant, which gives the right derivative for maps that a shift does not change.
    """
    most = x.detach().amax(dim, keepdim=True)
    return torch.where(most == INF, torch.where(x == INF, 0.0, -INF).to(x.dtype), x - most)


def support_size(p, dim):
    return (p > 0).sum(dim, keepdim=True)


def _with_support(p, dim, return_support_size):
    return (p, support_size(p, dim)) if return_support_size else p


@documented(module=__name__)
def sparsemax(X, dim=-1, k=None, return_support_size=False):
    """
    argmin_p |X - p|^2 over distributions p: the projection onto the simplex.

    X (torch.Tensor): Scores of any shape and floating dtype; integers are taken in torch's default dtype.
    dim (int): The axis along which scores compete.
    k (int or None): Accepted without effect: nothing is sorted. It may be larger than the length of the axis.
    return_support_size (bool): Also return the number of positive entries, as int64, with size 1 along dim.
    Returns: Of X's shape. Differentiable, twice. A row with NaN, or with only -inf, is NaN; an entry of -inf gets 0; entries of
        +inf share the mass.
    Notes: The same as isentropic.torch.sparsemax.
    Source: Martins, Astudillo, "From Softmax to Sparsemax", ICML 2016.
    >>> p = isentropic.compat.entmax.sparsemax(torch.tensor([0.0, 1.0, 1.5]))
    """
    return _with_support(maps.sparsemax(floating(X), dim=dim), dim, return_support_size)


@documented(module=__name__)
def entmax15(X, dim=-1, k=None, return_support_size=False):
    """
    argmax_p <X, p> + H_1.5(p) over distributions p, with Tsallis entropy H_1.5(p) = (1 - sum p^1.5) / 0.75.

    X, dim, k, return_support_size: As for sparsemax, like the result and the errors.
    Notes: The same as isentropic.torch.entmax(X, alpha=1.5).
    Source: Peters, Niculae, Martins, "Sparse Sequence-to-Sequence Models", ACL 2019.
    """
    return _with_support(maps.entmax(floating(X), alpha=1.5, dim=dim), dim, return_support_size)


def sparsemax_bisect(X, dim=-1, n_iter=50, ensure_sum_one=True):
    """sparsemax. n_iter and ensure_sum_one are accepted and have no effect: rows sum to 1 up to rounding."""
    return sparsemax(X, dim)


@documented(module=__name__)
def entmax_bisect(X, alpha=1.5, dim=-1, n_iter=50, ensure_sum_one=True):
    """
    argmax_p <X, p> + H_alpha(p) over distributions p, H_alpha(p) = (1 - sum p^alpha) / (alpha (alpha - 1)).

    X (torch.Tensor): Scores of any shape and floating dtype; integers are taken in torch's default dtype.
    alpha (float or torch.Tensor): Above 0: 1 is softmax, 2 sparsemax. A tensor broadcasts to X's shape with 1 for dim and has a
        gradient, also at 1.
    dim (int): The axis along which scores compete.
    n_iter, ensure_sum_one: Accepted without effect: the solution is exact up to rounding, and its sum is 1.
    Returns: Of X's shape. Differentiable in X and alpha, twice.
    Notes: The same as isentropic.torch.entmax.
    Source: Peters, Niculae, Martins, "Sparse Sequence-to-Sequence Models", ACL 2019; the gradient in alpha: Correia, Niculae,
        Martins, "Adaptively Sparse Transformers", EMNLP 2019.
    >>> p = isentropic.compat.entmax.entmax_bisect(torch.randn(4, 6), alpha=torch.full((4, 1), 1.3))
    """
    X = floating(X)
    if not isinstance(alpha, (int, float, torch.Tensor)):
        alpha = per_row("entmax_bisect", "alpha", alpha, X, dim)
    return maps.entmax(X, alpha=alpha, dim=dim)


@documented(module=__name__)
def normmax_bisect(X, alpha=2, dim=-1, n_iter=50):
    """
    argmax_p <X, p> - (sum p^alpha)^(1/alpha) over distributions p.

    X (torch.Tensor): Scores of any shape and floating dtype; integers are taken in torch's default dtype.
    alpha (float or torch.Tensor): A tensor broadcasts to X's shape with 1 for dim and has a gradient. If it is at most 1, the
        largest scores share the mass.
    dim (int): The axis along which scores compete.
    n_iter (int): Accepted without effect.
    Returns: Of X's shape, computed in float64. Differentiable in X and alpha, twice.
    Notes: On the support, X_i - tau = (p_i / |p|)^(alpha - 1), |p| the alpha-norm. With q = p / |p|, whose q^alpha sum to 1,
        that is q_i^alpha = [X_i - tau]_+^(alpha / (alpha - 1)): entmax of alpha' = 2 - 1/alpha of X alpha / (alpha - 1). Then p
        is q / sum q. For alpha <= 1, |p| >= sum p = 1 with equality where one entry has all: the largest score is best.
    Source: Blondel, Martins, Niculae, "Learning with Fenchel-Young Losses", JMLR 2020.
    """
    X = floating(X)
    alpha = per_row("normmax_bisect", "alpha", alpha, X, dim).clamp(1.0, 1e300)
    if X.numel() == 0:
        return X.clone()
    hard = alpha == 1.0
    inverse = 1.0 / torch.where(hard, 2.0, alpha)
    z = from_largest(X.double(), dim)
    present = z > -INF
    scores = torch.where(present, torch.where(present, z, 0.0) / (1.0 - inverse), -INF)
    powers = maps.entmax(scores, alpha=2.0 - inverse, dim=dim)
    positive = powers > 0
    q = torch.where(positive, torch.exp(torch.log(torch.where(positive, powers, 1.0)) * inverse), 0.0)
    q = torch.where(hard, (z == 0).double(), q)
    return (q / q.sum(dim, keepdim=True)).to(X.dtype)


def _budget_threshold(w, wanted):
    """t in [0, 1] with sum_i clip(t - w_i, 0, 1) = wanted, which the sum at t = 1 reaches; w is ascending, within [-1, 1]."""
    sums = torch.cat([torch.zeros_like(w[..., :1]), w.cumsum(-1)], -1)
    low, high = torch.zeros_like(wanted), torch.ones_like(wanted)
    for _ in range(54):
        t = (low + high) / 2
        full, begun = torch.searchsorted(w, t - 1, right=True), torch.searchsorted(w, t)
        mass = full + (begun - full) * t - (sums.gather(-1, begun) - sums.gather(-1, full))
        enough = mass >= wanted
        low, high = torch.where(enough, low, t), torch.where(enough, t, high)
    return high


@documented(module=__name__)
def budget_bisect(X, budget=2, dim=-1, n_iter=50):
    """
    argmin_p |X - p|^2 over 0 <= p <= 1 with sum p = budget: p = clip(X - tau, 0, 1).

    X (torch.Tensor): Scores of any shape and floating dtype; integers are taken in torch's default dtype.
    budget (float or torch.Tensor): A tensor broadcasts to X's shape with 1 for dim and has a gradient. A budget above the
        number of entries gives each entry 1, one below 0 gives each 0.
    dim (int): The axis along which scores compete.
    n_iter (int): Accepted without effect: tau is found up to rounding, in float64.
    Returns: Of X's shape. Differentiable in X and budget; where p is 0 or 1, the gradient is 0. A row with NaN, or with only
        -inf, is NaN; an entry of -inf gets 0; entries of +inf are served first.
    >>> p = isentropic.compat.entmax.budget_bisect(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]), budget=2)
    """
    X = floating(X)
    budget = per_row("budget_bisect", "budget", budget, X, dim).movedim(dim, -1)
    if X.numel() == 0:
        return X.clone()
    x = X.double().movedim(dim, -1)
    present = (x > -INF).sum(-1, keepdim=True).double()
    wanted = torch.minimum(budget.clamp(min=0.0), present)
    with torch.no_grad():
        # The last of the c = ceil(wanted) entries with mass has x = r: r - 1 <= tau <= r, since at r - 1 all c are full.
        # Scores farther than 1 from r are certainly full or empty, and their distance does not matter.
        sorted_x = X.movedim(dim, -1).contiguous().sort(descending=True).values.double()
        last = (wanted.nan_to_num().ceil().long() - 1).clamp(min=0)
        r = sorted_x.gather(-1, last)
        t = _budget_threshold(torch.where(sorted_x == r, 0.0, r - sorted_x).clamp(-1.0, 1.0), wanted)
        w = torch.where(x == r, 0.0, r - x).clamp(-1.0, 1.0)
        full = w <= t - 1
        between = (w < t) & ~full
        r = torch.where(r.isinf(), 0.0, r)
    # tau - r follows from the sum, because entries between are x - tau.
    z = torch.where(between, torch.where(x.isinf(), 0.0, x) - r, 0.0)
    tau = (full.sum(-1, keepdim=True) + z.sum(-1, keepdim=True) - wanted) / between.sum(-1, keepdim=True).clamp(min=1)
    p = torch.where(between, (z - tau).clamp(0.0, 1.0), full.double())
    undefined = x.isnan().any(-1, keepdim=True) | (present == 0) | budget.isnan()
    return torch.where(undefined, math.nan, p).movedim(-1, dim).to(X.dtype).contiguous()


def _sparsemax_threshold_and_support(X, dim=-1, k=None):
    """(tau, support size), each with size 1 along dim: sparsemax(X) is [X - tau]_+. k has no effect."""
    p = sparsemax(X, dim)
    return floating(X).amax(dim, keepdim=True) - p.amax(dim, keepdim=True), support_size(p, dim)


def _entmax_threshold_and_support(X, dim=-1, k=None):
    """(tau, support size), each with size 1 along dim: entmax15(2 X) is [X - tau]_+^2. k has no effect."""
    X = floating(X)
    p = maps.entmax(X, alpha=1.5, temperature=0.5, dim=dim)
    return X.amax(dim, keepdim=True) - p.amax(dim, keepdim=True).sqrt(), support_size(p, dim)


class Module(torch.nn.Module):
    """The module of a function, with the usual values of its parameters: ``class NAME(Module, of=function, dim=-1)``."""

    def __init_subclass__(cls, of=None, **usual):
        super().__init_subclass__()
        if usual:
            parameters = [inspect.Parameter(k, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=v) for k, v in usual.items()]
            cls._function, cls.__signature__ = staticmethod(of), inspect.Signature(parameters)

    def __init__(self, *values, **named):
        super().__init__()
        given = self.__signature__.bind(*values, **named)
        given.apply_defaults()
        for name, value in given.arguments.items():
            setattr(self, name, value)

    def _given(self):
        return {name: getattr(self, name) for name in self.__signature__.parameters}

    def forward(self, X):
        return self._function(X, **self._given())

    def extra_repr(self):
        return ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if name in ("dim", "alpha", "budget"))


class Sparsemax(Module, of=sparsemax, dim=-1, k=None, return_support_size=False):
    """The module of sparsemax, with its parameters."""


class Entmax15(Module, of=entmax15, dim=-1, k=None, return_support_size=False):
    """The module of entmax15, with its parameters."""


class SparsemaxBisect(Module, of=sparsemax_bisect, dim=-1, n_iter=None):
    """The module of sparsemax_bisect, with its parameters."""


class EntmaxBisect(Module, of=entmax_bisect, alpha=1.5, dim=-1, n_iter=50):
    """The module of entmax_bisect, with its parameters. An nn.Parameter as alpha is learned."""


class NormmaxBisect(Module, of=normmax_bisect, alpha=2, dim=-1, n_iter=50):
    """The module of normmax_bisect, with its parameters. An nn.Parameter as alpha is learned."""


class BudgetBisect(Module, of=budget_bisect, budget=2, dim=-1, n_iter=50):
    """The module of budget_bisect, with its parameters. An nn.Parameter as budget is learned."""


# For code that uses the classes behind the functions: their `apply`.


class SparsemaxFunction:
    apply = staticmethod(sparsemax)


class Entmax15Function:
    @staticmethod
    def apply(X, dim=0, k=None):
        return entmax15(X, dim, k)


class SparsemaxBisectFunction:
    apply = staticmethod(sparsemax_bisect)


class EntmaxBisectFunction:
    apply = staticmethod(entmax_bisect)


class NormmaxBisectFunction:
    apply = staticmethod(normmax_bisect)


class BudgetBisectFunction:
    apply = staticmethod(budget_bisect)
