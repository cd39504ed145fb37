"""Tables of three variables."""

import torch

import isentropic.torch._generated as _generated
from isentropic import _checks
from isentropic._descriptions import documented
from isentropic.formulas.measures import independent_given
from isentropic.torch._arguments import checked_dim
from isentropic.torch._rows import ROWS
from isentropic.torch._spec import result_type


@documented
def conditional_mutual_information(pxyz, *, base=None, input="probs", normalize=False):
    """``isentropic.conditional_mutual_information``, I(X; Y | Z) of tables in the last three axes, differentiable.

    >>> coins = torch.tensor([[[0.25, 0.0], [0.0, 0.25]], [[0.0, 0.25], [0.25, 0.0]]])
    >>> isentropic.torch.conditional_mutual_information(coins, base=2)
    tensor(1.)
    """
    name = "conditional_mutual_information"
    _checks.flag(name, "normalize", normalize)
    checked_dim(name, "pxyz", pxyz, -1)
    if pxyz.dim() < 3:
        raise ValueError(f"{name}: pxyz must have at least 3 axes, x, y and z, got shape {tuple(pxyz.shape)}")
    if input not in ("probs", "log_probs", "scores"):
        raise ValueError(f"{name}: input must be one of probs, log_probs, scores, got {input!r}")
    flat = pxyz.to(result_type(pxyz)).flatten(-3)
    lost = None
    if input == "scores":
        p = _generated.softmax(flat)
        lost = p.isnan().any(-1)  # tables with NaN, or without a score above -inf
        p = torch.where(lost[..., None], 1 / max(p.shape[-1], 1), p)
    elif input == "log_probs" and normalize:
        p = torch.softmax(flat, -1)
    else:
        p = flat.exp() if input == "log_probs" else flat / flat.sum(-1, keepdim=True) if normalize else flat
    q = independent_given(ROWS.xp, p.reshape(pxyz.shape)).flatten(-3)
    with _checks.in_the_name_of(name, "kl_divergence"):
        value = _generated.kl_divergence(p, q, base=base)
    return value if lost is None else torch.where(lost, torch.nan, value)
