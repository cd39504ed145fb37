"""token_statistics and linear_token_statistics: their operators and functions."""

import numpy as np
import torch

from isentropic._checks import index_or_none
from isentropic._descriptions import documented
from isentropic.torch._arguments import Tensor, checked_dim, checked_target, from_array, one_dim, readable, spread
from isentropic.torch._builder import Operator
from isentropic.torch._compat import is_dtensor
from isentropic.torch._linear_loss import checked_linear, checked_softcap
from isentropic.torch._spec import OpSpec, TokenStatistics, result_type
from isentropic.torch.backends.reference.token_statistics import capped

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


_LINEAR = "linear_token_statistics"
_LINEAR_OPERATOR = Operator(
    OpSpec(
        name=_LINEAR,
        tensors=("hidden", "weight", "target", "bias?", "temperature_rows?"),
        params={"temperature": "float", "softcap": "float", "top": "int"},
        outputs=("statistics", "indices"),
        shapes=lambda hidden, weight, target, bias, rows, temperature, softcap, top: (
            hidden.new_empty((*target.shape, 4 + top), dtype=result_type(hidden)),
            hidden.new_empty((*target.shape, top), dtype=torch.int64),
        ),
        moving=(0,),
        differentiable=("hidden", "weight", "bias", "temperature_rows"),
        keeps=("hidden", "weight", "target", "bias", "temperature_rows", "statistics"),
        derivative="operator",
    )
)


@documented
def token_statistics(logits, target, *, temperature=1.0, softcap=None, top=0, ignore_index=-100, dim=None, axis=None):
    """
    Log-probability of a token, entropy and largest probability of its distribution, from one pass over the logits.

        p = softmax(logits / T): (log p_target, -sum p log p, max p, the `top` indices of largest p, their log p)

    logits: Scores, of any shape with at least one axis; -inf counts as absent.
    target (torch.Tensor of integers): The token of each row, in the shape of logits without dim.
    temperature (float or tensor, above 0 and finite): T. A tensor gives each row its own, broadcasts with logits with size 1
        along dim, and has a gradient.
    softcap (float, above 0): The logits are softcap tanh(logits / softcap), before T divides them.
    top (int): The number of indices to return: those of the largest logits, in descending order, of equal logits the lowest
        index first. NaN counts as +inf.
    ignore_index (int or None): Rows with this target have log-probability 0 and no gradient from it; the rest does not depend
        on the target.
    Returns (TokenStatistics): (logprob, entropy, max_probability, top_indices, top_logprobs), one number for each row, float32
        for halves. The last two have an axis of size `top` in place of dim, and are None if top is 0. logprob and entropy are
        differentiable, twice. Logits that are sharded along dim over ranks have no top_logprobs.
    Notes: Gradients: (onehot - p) / T of logprob, -p (log p + H) / T of the entropy H. Intermediate values are computed for
        some rows at a time; the only array of the logits' size is the gradient, with softcap also the scores.
    >>> found = isentropic.torch.token_statistics(torch.tensor([[0.0, 0.0, 0.0, 0.0]]), torch.tensor([2]))
    >>> found.logprob, found.entropy, found.max_probability
    (tensor([-1.3863]), tensor([1.3863]), tensor([0.2500]))
    """
    if is_dtensor(logits):
        from isentropic.torch.distributed._dtensor import rows_of_dtensors

        given = {"temperature": temperature, "softcap": softcap, "top": top, "ignore_index": ignore_index}

        def on_local(logits, target):
            return token_statistics(logits, target, **given, dim=dim, axis=axis)

        return rows_of_dtensors(_NAME, (logits, target), one_dim(_NAME, dim, axis), given, {"softcap": None}, on_local)
    dim = checked_dim(_NAME, "logits", logits, one_dim(_NAME, dim, axis))
    target = checked_target(_NAME, {"arguments": ("logits", "target"), "target": "class"}, logits, target, dim)
    target, ignored = _without_ignored(_NAME, target, ignore_index)
    _check_top(_NAME, top, logits.shape[dim])
    rows, number = _temperature(_NAME, temperature, "logits", logits, dim)
    softcap = checked_softcap(_NAME, softcap)
    if softcap:  # a NaN has no slope, as 0, its gradient in a row that is ignored, times NaN would be NaN
        nan = logits.isnan()
        logits = torch.where(nan, torch.nan, capped(torch.where(nan, 0.0, logits), softcap))
    statistics, indices = _OPERATOR(logits, target, rows, number, top, dim)
    scores = None
    if top:
        scores, indices = logits.detach().gather(dim, indices.movedim(-1, dim)).movedim(dim, -1), indices
        rows = None if rows is None else rows.movedim(dim, -1)
    return _found(statistics, ignored, indices, scores, rows, number, dim)


@documented
def linear_token_statistics(hidden, weight, target, *, bias=None, temperature=1.0, softcap=None, top=0, ignore_index=-100):
    """
    token_statistics of logits = hidden @ weight.T + bias. Only the logits of some rows are in memory at a time.

    hidden: (..., features).
    weight: (classes, features), of the same dtype. As a DTensor that is sharded by classes, no rank has a whole row of logits;
        then hidden and target are the same on all ranks, bias is whole or sharded like weight, temperature is a number, and
        there is neither softcap nor top_logprobs.
    target (torch.Tensor of integers): The token of each row, of shape (...).
    bias (torch.Tensor or None): (classes,).
    temperature (float or tensor, above 0 and finite): T. A tensor broadcasts with (..., 1), and has a gradient.
    softcap: As in token_statistics.
    top: As in token_statistics.
    ignore_index: As in token_statistics.
    Returns (TokenStatistics): As of token_statistics, of shape (...); top_indices and top_logprobs (..., top). logprob and
        entropy are differentiable, twice, in hidden, weight, bias and temperature.
    Notes: Numbers and gradients are those of the logits of torch.nn.functional.linear, up to rounding. Backward recomputes the
        logits, some rows at a time, for all gradients. Gradients of halves are summed in float32. Under autocast the product is
        computed in autocast's type. Rows whose incoming gradient is 0, such as masked or ignored ones, may contain NaN.
    >>> hidden, weight = torch.randn(6, 8, requires_grad=True), torch.randn(1000, 8, requires_grad=True)
    >>> found = isentropic.torch.linear_token_statistics(hidden, weight, torch.arange(6))
    >>> (-found.logprob.mean() - 0.01 * found.entropy.mean()).backward()
    """
    if is_dtensor(weight) or is_dtensor(hidden):
        from isentropic.torch.distributed._dtensor import linear_token_statistics_of_dtensors

        if softcap is not None:
            raise ValueError(f"{_LINEAR}: weight as a DTensor has no softcap; pass weight.full_tensor()")
        options = {"temperature": temperature, "top": top, "ignore_index": ignore_index}
        return linear_token_statistics_of_dtensors(token_statistics, hidden, weight, target, bias, options)
    hidden, weight, bias = checked_linear(_LINEAR, hidden, weight, bias)
    lead, n = hidden.shape[:-1], len(weight)
    logits = hidden.new_empty(1).expand(*lead, n)  # only its shape
    description = {"arguments": ("hidden", "target"), "target": "class"}
    target = checked_target(_LINEAR, description, logits, target, len(lead))
    target, ignored = _without_ignored(_LINEAR, target, ignore_index)
    _check_top(_LINEAR, top, n)
    rows, number = _temperature(_LINEAR, temperature, "hidden", logits, len(lead))
    flat_rows = None if rows is None else rows.reshape(-1, 1)
    flat = hidden.reshape(-1, hidden.shape[-1])
    found = _LINEAR_OPERATOR(flat, weight, target.reshape(-1), bias, flat_rows, number, checked_softcap(_LINEAR, softcap), top)
    statistics, indices = (one.reshape(*lead, one.shape[-1]) for one in found)
    scores = statistics[..., 4:] if top else None
    return _found(statistics[..., :4], ignored, indices, scores, rows, number, len(lead))


def _without_ignored(name, target, ignore_index):
    """(a class for every row, which rows are ignored or None)."""
    ignore_index = index_or_none(name, ignore_index)
    if ignore_index is None:
        return target, None
    ignored = target == ignore_index
    return torch.where(ignored, 0, target), ignored


def _check_top(name, top, n):
    if isinstance(top, bool) or not isinstance(top, int) or not 0 <= top <= n:
        raise ValueError(f"{name}: top must be an integer from 0 to {n}, how many tokens there are, got {top!r}")


def _temperature(name, temperature, argument, x, dim):
    """(its numbers for each row or None, the number)."""
    temperature = from_array(name, "temperature", temperature)
    if isinstance(temperature, Tensor):
        rows = spread(name, "temperature", temperature, argument, x, dim)
        if readable(rows) and bool((wrong := ~((rows > 0) & (rows < torch.inf))).any()):
            raise ValueError(f"{name}: temperature must be above 0 and finite in every row, got {rows[wrong][0].item():g}")
        return rows, 1.0
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float, np.floating, np.integer)):
        raise TypeError(f"{name}: temperature must be a number or a tensor, got {type(temperature).__name__}")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"{name}: temperature must be above 0 and finite, got {temperature!r}")
    return None, float(temperature)


def _found(statistics, ignored, indices, scores, rows, number, dim):
    """scores: those at the indices, along the last axis, or None."""
    logprob, entropy, largest, most = statistics.unbind(-1)
    if ignored is not None:
        logprob = torch.where(ignored, 0.0, logprob)
    if scores is None:
        return TokenStatistics(logprob, entropy, largest.detach(), None, None)
    most, log_largest = most.detach().unsqueeze(-1), largest.detach().log().unsqueeze(-1)
    scores = scores.detach().to(most.dtype)
    below = torch.where(scores == most, 0.0, scores - most) / (number if rows is None else rows.detach().to(most.dtype))
    top_logprobs = (below + log_largest).movedim(-1, dim)
    return TokenStatistics(logprob, entropy, largest.detach(), indices.movedim(-1, dim), top_logprobs)
