"""Entropy control on tensors: operators with rows along the last axis, and the public functions."""

from math import inf

import torch

import isentropic
from isentropic import _descriptions
from isentropic._descriptions import documented
from isentropic._numpy import _entropy_control as numpy_control
from isentropic.torch._arguments import (
    checked_dim,
    from_array,
    has_numbers,
    misfit,
    numbers_and_rows,
    numbers_near,
    one_device,
    one_dim,
    readable,
    spread,
)
from isentropic.torch._builder import Operator
from isentropic.torch._compat import is_dtensor
from isentropic.torch._spec import OpSpec, Tensor, result_type
from isentropic.torch.backends.reference.entropy_control import NEARBY

DESCRIPTIONS = _descriptions.CONTROL


def _operator(name, tensors, params, outputs, shapes, moving=(0,)):
    names = tuple(tensor.removesuffix("?") for tensor in tensors)
    return Operator(
        OpSpec(
            name=name,
            tensors=tensors,
            params=params,
            outputs=outputs,
            shapes=shapes,
            differentiable=names,
            keeps=(*names, *outputs),
            nearby=NEARBY[name],
            moving=moving,
        )
    )


def _wide(x, *shape):
    return x.new_empty(shape, dtype=torch.float64)


_power_transform = _operator(
    "power_transform", ("p", "gamma_rows?"), {"gamma": "float"}, ("q",), lambda p, *_: p.new_empty(p.shape)
)
_mean_field_entropy = _operator(
    "mean_field_entropy", ("x",), {"gamma": "float"}, ("value",), lambda x, *_: x.new_empty(x.shape[:-1])
)
_gamma_for_entropy = _operator(
    "gamma_for_entropy",
    ("x", "entropy_rows?", "perplexity_rows?"),
    {"entropy": "float?", "perplexity": "float?", "gamma_range": "float[]", "max_iterations": "int", "input": "str"},
    ("gamma", "reached", "status"),
    lambda x, *_: (_wide(x, *x.shape[:-1]), _wide(x, *x.shape[:-1]), x.new_empty(x.shape[:-1], dtype=torch.uint8)),
    moving=(0, 1),
)
_normalize_density = _operator(
    "normalize_density",
    ("p", "weights", "entropy_rows?"),
    {"entropy": "float"},
    ("density", "gamma"),
    lambda p, *_: (p.new_empty(p.shape), _wide(p, *p.shape[:-1])),
    moving=(0, 1),
)
_normalize_joint = _operator(
    "normalize_joint",
    ("pxy", "joint_tables?", "marginal_tables?", "conditional_tables?"),
    {"joint": "float?", "marginal": "float?", "conditional": "float?"},
    ("table", "gamma"),
    lambda pxy, *_: (pxy.new_empty(pxy.shape), _wide(pxy, *pxy.shape[:-2])),
)


def _last(row, dim):
    return None if row is None else row.movedim(dim, -1)


# The public functions.


@documented
def power_transform(p, *, gamma, dim=None, axis=None):
    """
    Returns: Of p's shape and dtype. Differentiable, twice, in p and gamma; at p = 0 the gradient is 0, in a row that is NaN it
        is NaN.
    Notes: Gradient: gamma q / p (g - <g,q>); in gamma <g, q (log p - <q, log p>)>.
    >>> isentropic.torch.power_transform(torch.tensor([0.8, 0.2, 0.0]), gamma=0.5)
    tensor([0.6667, 0.3333, 0.0000])
    """
    name = "power_transform"
    dim = checked_dim(name, "p", p, one_dim(name, dim, axis))
    if is_dtensor(p):
        from isentropic.torch.distributed._dtensor import entries_of_dtensor

        return entries_of_dtensor(name, p, dim, lambda p: power_transform(p, gamma=gamma, dim=dim))
    (number,), (row,) = numbers_and_rows(DESCRIPTIONS[name], (gamma,), "p", p, dim)
    return _power_transform(p.movedim(dim, -1), _last(row, dim), number).movedim(-1, dim).contiguous()


@documented
def mean_field_entropy(x, *, gamma=1.0, dim=None, axis=None):
    """
    gamma (float or tensor, at least 0 and finite): Scale of the scores, 1/T. A tensor with one value for each row broadcasts
        with x and has size 1 along dim.
    Returns: In nats, in x's shape without dim and its dtype, or float32 for halves. Differentiable, twice, in x and gamma;
        equal maxima share the gradient; in a row that is NaN it is NaN.
    >>> isentropic.torch.mean_field_entropy(torch.tensor([0.0, 0.5, 1.0, 0.5]))
    tensor(0.8863)
    """
    name = "mean_field_entropy"
    dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
    if is_dtensor(x):
        from isentropic.torch.distributed._dtensor import rows_of_dtensors

        return rows_of_dtensors(name, (x,), dim, {}, {}, lambda x: mean_field_entropy(x, gamma=gamma, dim=dim))
    gamma = from_array(name, "gamma", gamma)
    if isinstance(gamma, Tensor) and (gamma.numel() != 1 or gamma.requires_grad or not has_numbers(gamma)):
        rows = _checked_gamma(spread(name, "gamma", gamma, "x", x, dim).squeeze(dim))
        # It is linear in gamma, so that two values give all.
        wide = x.movedim(dim, -1).double()
        log_n = _mean_field_entropy(wide.detach(), 0.0)
        return (log_n - rows * (log_n - _mean_field_entropy(wide, 1.0))).to(result_type(x))
    (number,), _ = numbers_and_rows(DESCRIPTIONS[name], (gamma,), "x", x, dim)
    return _mean_field_entropy(x.movedim(dim, -1).to(result_type(x)), number)


def _checked_gamma(rows):
    if readable(rows):
        wrong = ~((rows >= 0) & rows.isfinite()).reshape(-1)
        if wrong.any():
            row = int(wrong.nonzero()[0])
            raise ValueError(
                f"mean_field_entropy: gamma of row {row} must be at least 0 and finite, got {rows.reshape(-1)[row].item():g}"
            )
    return rows


@documented
def gamma_for_entropy(
    x, *, entropy=None, perplexity=None, gamma_range=(0.0, inf), max_iterations=100, input="scores", dim=None, axis=None
):
    """
    Returns (isentropic.GammaResult): gamma and entropy are tensors in x's shape without dim and its dtype, or float32 for
        halves, whose range gamma may exceed. They are twice differentiable in x and the target. If the status is not "ok", the
        gradient is 0, or NaN if it is "invalid". status is a NumPy array of strings, or one string. It is None under a compiler
        or a transform, and for tensors without numbers (meta, fake). For a DTensor it is that of this rank's rows. On a GPU it
        is a tensor of numbers, 0 for "ok", because words would wait for the device; gamma is computed there by the library
        isentropic_cuda if it is found, otherwise on the CPU.
    >>> found = isentropic.torch.gamma_for_entropy(torch.tensor([0.0, 1.0, 2.0]), entropy=1.0)
    >>> found.gamma, str(found.status)
    (tensor(0.5653), 'ok')
    """
    name = "gamma_for_entropy"
    if is_dtensor(x):
        from isentropic.torch.distributed._dtensor import rows_of_dtensors

        given = {"entropy": entropy, "perplexity": perplexity, "gamma_range": gamma_range, "max_iterations": max_iterations}

        def on_local(x):
            return gamma_for_entropy(x, **given, input=input, dim=dim, axis=axis)

        return rows_of_dtensors(name, (x,), one_dim(name, dim, axis), {**given, "input": input}, {"input": "scores"}, on_local)
    dim = checked_dim(name, "x", x, one_dim(name, dim, axis))
    low, high = numpy_control.checked_range(name, gamma_range)
    given = (entropy, perplexity, low, high, max_iterations, input)
    (entropy, perplexity, low, high, max_iterations, input), rows = numbers_and_rows(DESCRIPTIONS[name], given, "x", x, dim)
    x, rows = x.movedim(dim, -1), [_last(row, dim) for row in rows]
    gamma, reached, status = _gamma_for_entropy(x, *rows, entropy, perplexity, (low, high), max_iterations, input)
    if readable(status):
        status = numpy_control.STATUS[status.numpy()]
    elif not status.is_cuda:  # a compiler does not know the numbers
        status = None
    return isentropic.GammaResult(gamma.to(result_type(x)), reached.to(result_type(x)), status)


@documented
def normalize_density(p, weights, *, entropy, dim=None, axis=None):
    """
    Returns (density, gamma : torch.Tensor): density in p's shape and dtype, gamma in p's shape without dim and its dtype. Both
        are differentiable, twice, in p, the weights and the entropy; at p = 0 and at a weight of 0 the gradient is 0. On
        another device than the CPU gamma is found on the CPU.
    Raises: If the entropy cannot be met, it names the row.
    >>> t = torch.linspace(-40, 40, 2001, dtype=torch.float64)
    >>> density, gamma = isentropic.torch.normalize_density(
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
    density, gamma = _normalize_density(p, weights, row, number)
    return density.movedim(-1, dim).contiguous(), gamma.to(p.dtype)


@documented
def normalize_joint(pxy, *, joint=None, marginal=None, conditional=None):
    """
    Returns: Of pxy's shape and dtype. Differentiable, twice, in pxy and the target; at an entry of 0 the gradient is 0. On
        another device than the CPU gamma is found on the CPU.
    Raises: If the target cannot be met, it names the table.
    >>> isentropic.torch.normalize_joint(torch.tensor([[3.0, 1.0], [1.0, 3.0]]), conditional=math.log(2))
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
                value = numbers_near(name, argument, value, "pxy", pxy)
                value = value.expand(lead) if lead else value.reshape(())
            except RuntimeError:
                raise misfit(name, argument, lead, "the axes of pxy that count tables", value) from None
        targets.append(value)
    numbers = tuple(None if isinstance(value, Tensor) else value for value in targets)
    tables = tuple(value if isinstance(value, Tensor) else None for value in targets)
    if not torch.compiler.is_compiling():
        numbers = DESCRIPTIONS[name]["in_their_types"](numbers)
    return _normalize_joint(pxy, *tables, *numbers)[0]
