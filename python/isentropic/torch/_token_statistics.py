"""token_statistics: its operator and function."""

import numpy as np
import torch

from isentropic._descriptions import documented
from isentropic.torch._arguments import Tensor, checked_dim, checked_target, from_array, one_dim, readable, spread
from isentropic.torch._builder import Operator
from isentropic.torch._compat import is_dtensor
from isentropic.torch._spec import OpSpec, TokenStatistics, result_type

_NAME = "token_statistics"
_OPERATOR = Operator(
    OpSpec(
        name=_NAME,
        tensors=("x", "target", "temperature_rows?"),
        params={"temperature": "float", "top": "int", "dim": "int"},
        outputs=("statistics", "indices"),
        shapes=lambda x, target, rows, temperature, top, dim: (
            x.new_empty((*target.shape, 4), dtype=result_type(x)),
            x.new_empty((*target.shape, top), dtype=torch.int64),
        ),
        moving=(0,),
        differentiable=("x", "temperature_rows"),
        keeps=("x", "target", "temperature_rows", "statistics"),
        derivative="operator",
    )
)


@documented
def token_statistics(logits, target, *, temperature=1.0, top=0, dim=None, axis=None):
    """
    Log-probability of a token, entropy and largest probability of its distribution, from one pass over the logits.

        p = softmax(logits / T): (log p_target, -sum p log p, max p, the `top` indices of largest p)

    logits: Scores, of any shape with at least one axis; -inf counts as absent.
    target (torch.Tensor of integers): The token of each row, in the shape of logits without dim.
    temperature (float or tensor, above 0 and finite): T. A tensor gives each row its own, broadcasts with logits with size 1
        along dim, and has a gradient.
    top (int): The number of indices to return: those of the largest logits, in falling order, of equal ones the lowest first.
        NaN counts as +inf.
    Returns (TokenStatistics): (logprob, entropy, max_probability, top_indices), one number for each row, float32 of halves;
        top_indices have `top` in the place of dim, and are None without. logprob and entropy are differentiable, twice.
    Notes: Gradients: (onehot - p) / T of logprob, -p (log p + H) / T of the entropy H. Intermediate values are computed for
        some rows at a time; the only array of the logits' size is the gradient.
    >>> found = isentropic.torch.token_statistics(torch.tensor([[0.0, 0.0, 0.0, 0.0]]), torch.tensor([2]))
    >>> found.logprob, found.entropy, found.max_probability
    (tensor([-1.3863]), tensor([1.3863]), tensor([0.2500]))
    """
    if is_dtensor(logits):
        from isentropic.torch.distributed._dtensor import rows_of_dtensors

        def on_local(logits, target):
            return token_statistics(logits, target, temperature=temperature, top=top, dim=dim, axis=axis)

        given = {"temperature": temperature, "top": top}
        return rows_of_dtensors(_NAME, (logits, target), one_dim(_NAME, dim, axis), given, {}, on_local)
    dim = checked_dim(_NAME, "logits", logits, one_dim(_NAME, dim, axis))
    target = checked_target(_NAME, {"arguments": ("logits", "target"), "target": "class"}, logits, target, dim)
    n = logits.shape[dim]
    if isinstance(top, bool) or not isinstance(top, int) or not 0 <= top <= n:
        raise ValueError(f"{_NAME}: top must be an integer from 0 to {n}, how many tokens there are, got {top!r}")
    temperature = from_array(_NAME, "temperature", temperature)
    rows, number = None, temperature
    if isinstance(temperature, Tensor):
        rows, number = spread(_NAME, "temperature", temperature, "logits", logits, dim), 1.0
        if readable(rows) and not bool(((rows > 0) & (rows < torch.inf)).all()):
            raise ValueError(f"{_NAME}: temperature must be above 0 and finite in every row")
    elif isinstance(temperature, bool) or not isinstance(temperature, (int, float, np.floating, np.integer)):
        raise TypeError(f"{_NAME}: temperature must be a number or a tensor, got {type(temperature).__name__}")
    elif not 0 < temperature < float("inf"):
        raise ValueError(f"{_NAME}: temperature must be above 0 and finite, got {temperature!r}")
    statistics, indices = _OPERATOR(logits, target, rows, float(number), top, dim)
    logprob, entropy, largest, _ = statistics.unbind(-1)
    return TokenStatistics(logprob, entropy, largest.detach(), indices.movedim(-1, dim) if top else None)
