"""Entropy control on tensors: the library's values, and derivatives by compositions of torch's operations.

The operators here have rows along the last axis and no gradient. What a function returns has their values, and the derivatives
of the same made of torch's operations in float64: with_gradient_of.
"""

from collections.abc import Sequence
from math import inf

import torch

import entropic
from entropic import _arrays, _core
from entropic import _entropy_control as numpy_control
from entropic.torch._compositions import or_nan, working
from entropic.torch._ops import (
    batch_first,
    checked_dim,
    from_array,
    has_numbers,
    misfit,
    numbers_and_rows,
    one_device,
    one_dim,
    wants_gradient,
    with_gradient_of,
)

Tensor = torch.Tensor
DESCRIPTIONS = {description["name"]: description for description in _core.control_operations()}


def _operator(fake):
    """``torch.ops.entropic.NAME`` of a function of tensors on the CPU, whose results have the shapes that fake gives."""

    def register(function):
        name = function.__name__.strip("_")

        def on_host(*arguments):
            device = arguments[0].device
            results = function(*(x.cpu().resolve_neg() if isinstance(x, Tensor) else x for x in arguments))
            return tuple(result.to(device) for result in results) if isinstance(results, tuple) else results.to(device)

        def call(*arguments):
            return operator(*(x.detach() if isinstance(x, Tensor) else x for x in arguments))

        def batched(info, in_dims, *arguments):
            """A batch is one more of the leading axes."""
            results = operator(*batch_first(info, in_dims, arguments))
            return results, (0,) * len(results) if isinstance(results, tuple) else 0

        schema = torch.library.infer_schema(function, mutates_args=())
        operator = torch.library.custom_op(f"entropic::{name}", on_host, mutates_args=(), schema=schema)
        operator.register_fake(fake)
        operator.register_vmap(batched)
        return call

    return register


def _numpy(x):
    return working(x).numpy()


def _per_row(numbers, rows, names):
    """The values by name: rows as arrays where there are such."""
    return {name: number if row is None else row.numpy() for name, number, row in zip(names, numbers, rows, strict=True)}


@_operator(lambda p, gamma, rows: p.new_empty(p.shape))
def _power_transform(p: Tensor, gamma: float, rows: Tensor | None) -> Tensor:
    q = entropic.power_transform(_numpy(p), gamma=gamma if rows is None else rows.numpy())
    return torch.from_numpy(q).to(p.dtype)


@_operator(lambda x, gamma: x.new_empty(x.shape[:-1]))
def _mean_field_entropy(x: Tensor, gamma: float) -> Tensor:
    return torch.as_tensor(entropic.mean_field_entropy(_numpy(x), gamma=gamma)).to(x.dtype)


def _wide(x, *shape):
    return x.new_empty(shape, dtype=torch.float64)


def _fake_gamma(x, *_):
    return _wide(x, *x.shape[:-1]), _wide(x, *x.shape[:-1]), x.new_empty(x.shape[:-1], dtype=torch.uint8)


@_operator(_fake_gamma)
def _gamma_for_entropy(
    x: Tensor,
    entropy: float | None,
    perplexity: float | None,
    entropy_rows: Tensor | None,
    perplexity_rows: Tensor | None,
    gamma_range: Sequence[float],
    max_iterations: int,
    input: str,
) -> tuple[Tensor, Tensor, Tensor]:
    rows = _arrays.Rows("gamma_for_entropy", "x", _numpy(x), -1)
    params = _per_row((entropy, perplexity), (entropy_rows, perplexity_rows), ("entropy", "perplexity"))
    params |= {"min_gamma": None, "max_gamma": None, "max_iterations": max_iterations, "input": input}
    found = numpy_control.gammas_of(rows, gamma_range, params)
    gamma, reached, status = (torch.from_numpy(one).reshape(x.shape[:-1]) for one in found)
    return gamma, reached, status


@_operator(lambda p, *_: (p.new_empty(p.shape), _wide(p, *p.shape[:-1])))
def _normalize_density(p: Tensor, weights: Tensor, entropy: float, rows: Tensor | None) -> tuple[Tensor, Tensor]:
    values = _arrays.Rows("normalize_density", "p", _numpy(p), -1)
    q, gamma = numpy_control.density_of(values, _numpy(weights), entropy if rows is None else rows.numpy())
    return torch.from_numpy(q).reshape(p.shape).to(p.dtype), torch.from_numpy(gamma).reshape(p.shape[:-1])


@_operator(lambda pxy, *_: (pxy.new_empty(pxy.shape), _wide(pxy, *pxy.shape[:-2])))
def _normalize_joint(
    pxy: Tensor,
    joint: float | None,
    marginal: float | None,
    conditional: float | None,
    joint_tables: Tensor | None,
    marginal_tables: Tensor | None,
    conditional_tables: Tensor | None,
) -> tuple[Tensor, Tensor]:
    numbers, tables = (joint, marginal, conditional), (joint_tables, marginal_tables, conditional_tables)
    found, gamma = numpy_control.tables_of(_numpy(pxy), _per_row(numbers, tables, ("joint", "marginal", "conditional")))
    return torch.from_numpy(found).to(pxy.dtype), torch.from_numpy(gamma)


# The same of torch's operations, in float64 along the last axis, to be differentiated.


def _log(p):
    """(log p, which is 0 where p is not above 0; where it is)."""
    present = (p > 0) & (p < inf)
    return torch.log(torch.where(present, p, 1.0)), present


def _powers(log_p, present, gamma, log_weight=None):
    """(log q, entropy, its derivative in gamma) of q = p^gamma / sum w p^gamma, the last two with size 1 for the axis.

    gamma = inf leaves the maxima alone, equally. Rows without an entry are as if all were equal.
    """
    some = present.any(-1, keepdim=True)
    present, log_p = present | ~some, torch.where(some, log_p, 0.0)
    # All else is measured from one largest entry, itself 0: its derivative is then what the others leave, and exact where they
    # are next to nothing.
    top = torch.where(present, log_p, -inf).argmax(-1, keepdim=True)
    most = log_p.gather(-1, top)
    others = torch.arange(log_p.shape[-1], device=log_p.device) != top
    gamma = torch.as_tensor(gamma, dtype=log_p.dtype, device=log_p.device)
    endless = gamma == inf
    present = present & (~endless | (log_p == most))
    gamma = torch.where(endless, 0.0, gamma)
    log_p = torch.where(present & others, log_p - most, 0.0)
    exponent = gamma * log_p + (0.0 if log_weight is None else log_weight)
    total = torch.logsumexp(torch.where(present, exponent, -inf), -1, keepdim=True)
    mass = torch.where(present, torch.exp(exponent - total), 0.0)
    mean = (mass * log_p).sum(-1, keepdim=True)
    variance = (mass * (log_p - mean) ** 2).sum(-1, keepdim=True)
    log_q = torch.where(present, gamma * log_p - total, -inf)
    return log_q, total - gamma * mean, -gamma * variance


def _solution(gamma, solved, target, entropy_of):
    """gamma, where solved the solution of entropy_of(gamma) = target, as a function of all that this equation holds.

    The target is moved to what gamma reaches, so that gamma, however rough, stays where it is, and the derivatives are those
    there. Two steps of Newton's method: each squares the error, so the first derivative of one step is the solution's, and the
    first three of two. entropy_of gives an entropy and its derivative.
    """

    def step(gamma, entropy, slope):
        steep = solved & (slope < 0)
        return torch.where(steep, gamma - (entropy - target) / torch.where(steep, slope, -1.0), gamma)

    entropy, slope = entropy_of(gamma)
    target = torch.as_tensor(target, dtype=torch.float64)
    target = entropy.detach() + (target - target.detach())
    gamma = step(gamma, entropy, slope)
    return step(gamma, *entropy_of(gamma))


def _can_move(gamma, log_p, present):
    """Whether gamma is inside what powers of a row reach, and the row has different entries."""
    high = torch.where(present, log_p, -inf).amax(-1, keepdim=True)
    low = torch.where(present, log_p, inf).amin(-1, keepdim=True)
    return (gamma > 0) & (gamma < inf) & (high > low)


def _unit(x, dims):
    """A power of two of the size of x, of which sums and squares are neither 0 nor inf."""
    largest = x.detach().abs().amax(dims, keepdim=True)
    return torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 1)


def _last(row, dim):
    return None if row is None else row.movedim(dim, -1)


def _value(number, row):
    return number if row is None else row


# The public functions.


def power_transform(p, *, gamma, dim=None, axis=None):
    """A distribution sharpened (gamma > 1) or flattened (gamma < 1); zeros stay zeros.

        q_i = p_i^gamma / sum_j p_j^gamma

    See entropic.power_transform.

    Parameters
    ----------
    p : torch.Tensor
        Non-negative numbers of float32, float64, float16 or bfloat16, of any shape with at least one axis.
    gamma : float or tensor, at least 0, required
        0 is uniform over p > 0, inf over the maxima of p. A tensor gives each row its own: it broadcasts with p and has size 1
        along dim.
    dim : int, default -1
        The axis along which p is a distribution; axis is another name for it.

    Returns
    -------
    torch.Tensor
        Of p's shape and dtype. Differentiable, twice, in p and gamma; at p = 0 the gradient is 0, in a row that is
        NaN it is NaN.

    Raises
    ------
    ValueError, TypeError, IndexError
        Naming the argument.

    Notes
    -----
    Gradient: gamma q / p (g - <g,q>); in gamma <g, q (log p - <q, log p>)>.

    Examples
    --------
    >>> entropic.torch.power_transform(torch.tensor([0.8, 0.2, 0.0]), gamma=0.5)
    tensor([0.6667, 0.3333, 0.0000])
    """
    name = "power_transform"
    dim = checked_dim(name, "p", p, one_dim(name, dim, axis))
    (number,), (row,) = numbers_and_rows(DESCRIPTIONS[name], (gamma,), "p", p, dim)
    p, row = p.movedim(dim, -1), _last(row, dim)

    def composed():
        log_p, present = _log(p.double())
        valid = ((p >= 0) & (p < inf)).all(-1, keepdim=True) & present.any(-1, keepdim=True)
        q = _powers(log_p, present, _value(number, row))[0].exp()
        return or_nan(q, valid, p, row)

    return _answer(lambda: _power_transform(p, number, row), composed, p, row).movedim(-1, dim).contiguous()


def _answer(run, composed, x, *others):
    """What run() gives on the CPU, with the derivatives of what composed() gives, or that alone elsewhere."""
    if x.shape[-1] > 0 and not x.is_cpu:
        return composed().to(x.dtype)
    value = run()
    return with_gradient_of(value, composed()) if x.shape[-1] > 0 and wants_gradient(x, *others) else value


def mean_field_entropy(x, *, gamma=1.0, dim=None, axis=None):
    """An estimate from below of the entropy of softmax(gamma x), by the largest score and the mean alone.

        H = log n - gamma (max x - mean x), over the n finite scores

    See entropic.mean_field_entropy.

    Parameters
    ----------
    x : torch.Tensor
        Scores of float32, float64, float16 or bfloat16, of any shape with at least one axis.
    gamma : float, at least 0 and finite, default 1.0
        Scale of the scores, 1/T.
    dim : int, default -1
        The axis along which scores compete; axis is another name for it.

    Returns
    -------
    torch.Tensor
        In nats, in x's shape without dim and its dtype. Differentiable, twice, in x; equal maxima share theirs; in a
        row that is NaN the gradient is NaN.

    Raises
    ------
    ValueError, TypeError, IndexError
        Naming the argument.

    Examples
    --------
    >>> entropic.torch.mean_field_entropy(torch.tensor([0.0, 0.5, 1.0, 0.5]))
    tensor(0.8863)
    """
    name = "mean_field_entropy"
    dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
    (number,), _ = numbers_and_rows(DESCRIPTIONS[name], (gamma,), "x", x, dim)
    x = x.movedim(dim, -1)

    def composed():
        wide, finite = x.double(), x.isfinite()
        count = finite.sum(-1)
        most = torch.where(finite, wide, -inf).amax(-1)
        mean = torch.where(finite, wide, 0.0).sum(-1) / count
        infinite = (x == inf).sum(-1)
        value = torch.where(infinite > 0, infinite.double().log(), count.double().log() - number * (most - mean))
        invalid = x.isnan().any(-1, keepdim=True) | (x == -inf).all(-1, keepdim=True)
        return or_nan(value.unsqueeze(-1), ~invalid, wide.sum(-1, keepdim=True)).squeeze(-1)

    return _answer(lambda: _mean_field_entropy(x, number), composed, x)


def gamma_for_entropy(
    x, *, entropy=None, perplexity=None, gamma_range=(0.0, inf), max_iterations=100, input="scores", dim=None, axis=None
):
    """The gamma = 1/T at which softmax has a chosen entropy.

        gamma > 0 such that -sum p log p, p = softmax(gamma x), is the entropy, or exp of it the perplexity

    See entropic.gamma_for_entropy.

    Parameters
    ----------
    x : torch.Tensor
        Scores of float32, float64, float16 or bfloat16, of any shape with at least one axis.
    entropy : float, tensor or None, at least 0 and finite, default None
        In nats; out of reach, the nearest. A tensor gives each row its own: it broadcasts with x and has size 1 along dim.
    perplexity : float, tensor or None, at least 1 and finite, default None
        exp(entropy), likewise; exactly one of them is given.
    gamma_range : pair of floats, default (0.0, inf)
        The least and the largest gamma allowed.
    max_iterations : int, above 0 and at most 1000, default 100
        Evaluations of the entropy; fewer give a rough gamma.
    input : one of "scores", "probs", "log_probs", default "scores"
        What x is; the scores of probs q are log q.
    dim : int, default -1
        The axis along which scores compete; axis is another name for it.

    Returns
    -------
    entropic.GammaResult
        gamma and entropy are tensors in x's shape without dim and its dtype, differentiable, twice, in x and the target; a
        gamma that is not "ok" has the gradient 0, or NaN where it is "invalid". status is a NumPy array of strings, or one;
        None under a compiler or a transform, which have no such arrays, and of tensors without numbers (meta, fake). On
        another device than the CPU gamma is found on the CPU.

    Raises
    ------
    ValueError, TypeError, IndexError
        Naming the argument.

    Notes
    -----
    Gradient, by the implicit function theorem: d gamma / dx = -gamma u / Var x, d gamma / d entropy = -1 / (gamma Var x),
    u = p (x - <x,p>).

    Examples
    --------
    >>> found = entropic.torch.gamma_for_entropy(torch.tensor([0.0, 1.0, 2.0]), entropy=1.0)
    >>> found.gamma, str(found.status)
    (tensor(0.5653), 'ok')
    """
    name = "gamma_for_entropy"
    dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
    low, high = numpy_control.checked_range(name, gamma_range)
    given = (entropy, perplexity, low, high, max_iterations, input)
    (entropy, perplexity, low, high, max_iterations, input), rows = numbers_and_rows(DESCRIPTIONS[name], given, "x", x, dim)
    x, rows = x.movedim(dim, -1), [_last(row, dim) for row in rows]
    gamma, reached, status = _gamma_for_entropy(x, entropy, perplexity, *rows, (low, high), max_iterations, input)
    words = numpy_control.STATUS[status.cpu().numpy()] if has_numbers(status) else None
    found = gamma.to(x.dtype), reached.to(x.dtype)
    if x.shape[-1] == 0 or not wants_gradient(x, *rows):
        return entropic.GammaResult(*found, words)
    target = _value(perplexity, rows[1])
    target = _value(entropy, rows[0]) if target is None else torch.as_tensor(target, dtype=torch.float64).log()
    wide, valid = x.double(), (status != _INVALID).unsqueeze(-1)
    log_p, present = _log(wide) if input == "probs" else (wide, wide > -inf)
    still = (status >= _CONSTANT).unsqueeze(-1)
    log_p, present = torch.where(still | ~present, 0.0, log_p), present | still
    unit = _unit(log_p, -1)
    log_p, start = log_p / unit, torch.where(still, 1.0, gamma.unsqueeze(-1)) * unit
    moving = _solution(
        start,
        (status == 0).unsqueeze(-1) & _can_move(start, log_p, present),
        target,
        lambda gamma: _powers(log_p, present, gamma)[1:],
    )
    found_again = moving / unit, _powers(log_p, present, moving)[1]
    inputs = wide.sum(-1, keepdim=True), *rows
    composed = (or_nan(one, valid, *inputs).squeeze(-1) for one in found_again)
    return entropic.GammaResult(*map(with_gradient_of, found, composed), words)


_CONSTANT = list(_core.gamma_status_names).index("constant")  # from here on gamma does not follow from the row
_INVALID = list(_core.gamma_status_names).index("invalid")


def normalize_density(p, weights, *, entropy, dim=None, axis=None):
    """A density, known at the nodes of a quadrature, raised to the power that gives it a chosen differential entropy.

        q_i = p_i^gamma / sum_j w_j p_j^gamma, gamma > 0 such that -sum w q log q is the entropy

    See entropic.normalize_density.

    Parameters
    ----------
    p : torch.Tensor
        The density at the nodes, up to a factor, of float32, float64, float16 or bfloat16.
    weights : torch.Tensor
        Those of the quadrature: one for each node along dim, or in a shape that broadcasts to p's.
    entropy : float or tensor, finite, required
        In nats. A tensor gives each row its own: it broadcasts with p and has size 1 along dim.
    dim : int, default -1
        The axis of the nodes; axis is another name for it.

    Returns
    -------
    density : torch.Tensor
        Of p's shape and dtype.
    gamma : torch.Tensor
        In p's shape without dim and its dtype. Both are differentiable, twice, in p, the weights and the entropy; at p = 0 and
        at a weight of 0 the gradient is 0. On another device than the CPU gamma is found on the CPU.

    Raises
    ------
    ValueError, TypeError, IndexError
        Naming the argument and, where the entropy cannot be met, the row.

    Examples
    --------
    >>> t = torch.linspace(-40, 40, 2001, dtype=torch.float64)
    >>> density, gamma = entropic.torch.normalize_density(
    ...     torch.exp(-t * t / 2), torch.full((2001,), 0.04), entropy=0.5 * math.log(2 * math.pi * math.e * 4)
    ... )
    >>> gamma
    tensor(0.2500, dtype=torch.float64)
    """
    name = "normalize_density"
    dim = checked_dim(name, "p", p, one_dim(name, dim, axis))
    checked_dim(name, "weights", weights, -1)
    one_device(name, {"p": p, "weights": weights})
    (number,), (row,) = numbers_and_rows(DESCRIPTIONS[name], (entropy,), "p", p, dim)
    row, nodes = _last(row, dim), p.shape[dim]
    try:
        if weights.shape != (nodes,):
            if weights.dim() < 2:
                raise RuntimeError
            weights = weights.expand(p.shape).movedim(dim, -1)
    except RuntimeError:
        raise ValueError(
            f"{name}: weights must have an entry for each of {nodes} nodes along dim {dim}, or broadcast to the shape of p, "
            f"{tuple(p.shape)}, got shape {tuple(weights.shape)}"
        ) from None
    p = p.movedim(dim, -1)
    weights = weights.double().expand(p.shape)
    density, gamma = _normalize_density(p, weights, number, row)
    found = density, gamma.to(p.dtype)
    if nodes > 0 and wants_gradient(p, weights, row):
        (log_p, present), (log_weight, weighs) = _log(p.double()), _log(weights)
        present, start = present & weighs, gamma.unsqueeze(-1)
        moving = _solution(
            start,
            _can_move(start, log_p, present),
            _value(number, row),
            lambda gamma: _powers(log_p, present, gamma, log_weight)[1:],
        )
        composed = _powers(log_p, present, moving, log_weight)[0].exp(), moving.squeeze(-1)
        found = tuple(map(with_gradient_of, found, composed))
    return found[0].movedim(-1, dim).contiguous(), found[1]


def normalize_joint(pxy, *, joint=None, marginal=None, conditional=None):
    """A joint table p(x, y), x in rows, with a chosen entropy H(X, Y), H(X) or H(Y|X).

        joint: p(x,y)^gamma / Z; marginal: p(x)^gamma / Z p(y|x); conditional: p(x) p(y|x)^gamma / Z(x), one gamma

    See entropic.normalize_joint.

    Parameters
    ----------
    pxy : torch.Tensor
        Tables of float32, float64, float16 or bfloat16, x along the last axis but one and y along the last.
    joint : float, tensor or None, at least 0 and finite, default None
        H(X, Y) in nats, by a power of the whole table.
    marginal : float, tensor or None, at least 0 and finite, default None
        H(X) in nats, by a power of the row sums p(x); every p(y|x) is kept.
    conditional : float, tensor or None, at least 0 and finite, default None
        H(Y|X) in nats, by one power of all p(y|x); p(x) is kept.

    Exactly one of them is given, as a number or as a tensor that broadcasts to the axes that count tables.

    Returns
    -------
    torch.Tensor
        Of pxy's shape and dtype. Differentiable, twice, in pxy and the target; at an entry of 0 the gradient is 0. On another
        device than the CPU gamma is found on the CPU.

    Raises
    ------
    ValueError, TypeError, IndexError
        Naming the argument and, where the target cannot be met, the table.

    Examples
    --------
    >>> entropic.torch.normalize_joint(torch.tensor([[3.0, 1.0], [1.0, 3.0]]), conditional=math.log(2))
    tensor([[0.2500, 0.2500],
            [0.2500, 0.2500]])
    """
    name = "normalize_joint"
    checked_dim(name, "pxy", pxy, -1)
    if pxy.dim() < 2:
        raise ValueError(f"{name}: pxy must have at least two axes, x in rows and y in columns, got shape {tuple(pxy.shape)}")
    lead = pxy.shape[:-2]
    targets = []
    for argument, value in (("joint", joint), ("marginal", marginal), ("conditional", conditional)):
        value = from_array(name, argument, value)
        if isinstance(value, Tensor):
            try:
                value = value.to(device=pxy.device, dtype=torch.float64)
                value = value.expand(lead) if lead else value.reshape(())
            except RuntimeError:
                raise misfit(name, argument, lead, "the axes of pxy that count tables", value) from None
        targets.append(value)
    numbers = tuple(None if isinstance(value, Tensor) else value for value in targets)
    tables = tuple(value if isinstance(value, Tensor) else None for value in targets)
    if not torch.compiler.is_compiling():
        numbers = DESCRIPTIONS[name]["in_their_types"](numbers)
    table, gamma = _normalize_joint(pxy, *numbers, *tables)
    if pxy.numel() == 0 or not wants_gradient(pxy, *tables):
        return table
    kind = next(k for k, value in enumerate(targets) if value is not None)
    target = targets[kind].reshape(*lead, 1) if isinstance(targets[kind], Tensor) else numbers[kind]
    p = torch.where(pxy > 0, pxy, 0.0).double()  # an entry of 0 stays 0, and has no part in a row's sum either
    p = p / _unit(p, (-2, -1))
    composed = (_joint, _marginal, _conditional)[kind](p, p.sum(-1), target, gamma.unsqueeze(-1))
    return with_gradient_of(table, composed)


def _power_to(p, target, gamma):
    """p^gamma / sum p^gamma of an entropy."""
    log_p, present = _log(p)
    gamma = _solution(gamma, _can_move(gamma, log_p, present), target, lambda gamma: _powers(log_p, present, gamma)[1:])
    return _powers(log_p, present, gamma)[0].exp()


def _joint(p, rows, target, gamma):
    return _power_to(p.flatten(-2), target, gamma).reshape(p.shape)


def _given_x(p, rows):
    """p(y|x), 0 where p(x) is."""
    return p / torch.where(rows > 0, rows, 1.0).unsqueeze(-1)


def _marginal(p, rows, target, gamma):
    return _power_to(rows, target, gamma).unsqueeze(-1) * _given_x(p, rows)


def _conditional(p, rows, target, gamma):
    px = (rows / rows.sum(-1, keepdim=True)).unsqueeze(-1)
    log_p, present = _log(_given_x(p, rows))

    def entropy_of(gamma):
        _, entropy, slope = _powers(log_p, present, gamma.unsqueeze(-1))
        return (px * entropy).sum(-2), (px * slope).sum(-2)

    movable = _can_move(gamma.unsqueeze(-1), log_p, present).any(-2)
    gamma = _solution(gamma, movable, target, entropy_of)
    return px * _powers(log_p, present, gamma.unsqueeze(-1))[0].exp()


PUBLIC = (gamma_for_entropy, mean_field_entropy, normalize_density, normalize_joint, power_transform)
for _one in PUBLIC:
    _one.__module__ = "entropic.torch"
