"""Measures of distributions: their operators and functions."""

import functools

import torch

from entropic import _functions as numpy_functions
from entropic import _measures as numpy_measures
from entropic.torch import _descriptions
from entropic.torch._arguments import Tensor, checked_dim, numbers_and_rows, one_device, one_dim
from entropic.torch._builder import Operator
from entropic.torch._reductions import reduced, row_reduction
from entropic.torch._spec import OpSpec
from entropic.torch.backends.reference.measures import entries_vjp

DESCRIPTIONS = _descriptions.MEASURES


def _operator(description):
    name, params = description["name"], _descriptions.params(description)
    if description["family"] == "entry":
        return Operator(
            OpSpec(
                name=name,
                tensors=("p",),
                params={**params, "dim": "int"},
                outputs=("value",),
                shapes=lambda p, *_: p.new_empty(p.shape),
                differentiable=("p",),
                keeps=("p",),
                derivative=functools.partial(entries_vjp, description),
            )
        )
    if description["family"] == "table":
        params["cols"] = "int"
    arguments = numpy_measures.ARGUMENTS[description["family"]]
    return row_reduction(name, arguments, arguments, params, _descriptions.rows(description))


OPERATORS = {name: _operator(one) for name, one in DESCRIPTIONS.items() if name != "joint_entropy"}


def build(descriptions):
    """The public functions of one and of two distributions by name."""
    functions = {}
    for description in descriptions:
        family, name = description["family"], description["name"]
        if name == "joint_entropy":
            continue
        arguments = numpy_measures.ARGUMENTS[family]
        declared = [numpy_functions.declare(param) for param in description["params"]]
        given = "".join(f"{param['name']}, " for param in description["params"])
        if family == "entry":
            axis = ", dim=None, axis=None" if numpy_measures.has_axis(description) else ""
            source = f"({{}}, *, {', '.join(declared)}{axis}):\n"
            source += f"    return _call_entries({name!r}, {{}}, ({given}), {'dim, axis' if axis else '-1, None'})\n"
        elif family == "table":
            source = f"({{}}, *, {', '.join(declared)}):\n    return _call_table({name!r}, pxy, ({given}))\n"
        else:
            source = f"({{}}, *, {', '.join(declared)}, dim=None, axis=None):\n"
            source += f"    return _call({name!r}, ({{}},), ({given}), dim, axis)\n"
        listed = ", ".join(arguments)
        namespace = {}
        exec(f"def {name}{source.replace('{}', listed)}", globals(), namespace)
        function = functions[name] = namespace[name]
        function.__module__ = "entropic.torch"
        function.__doc__ = _doc(description)
    return functions


def _call(name, tensors, values, dim, axis):
    dim = one_dim(name, dim, axis)
    for argument, x in zip("pq", tensors, strict=False):
        checked_dim(name, argument, x, dim)
    if len(tensors) == 2:
        one_device(name, dict(zip("pq", tensors, strict=True)))
        try:
            tensors = torch.broadcast_tensors(*tensors)
        except RuntimeError:
            shapes = [tuple(x.shape) for x in tensors]
            raise ValueError(
                f"{name}: q must have a shape that broadcasts with that of p, {shapes[0]}, got {shapes[1]}"
            ) from None
        wider = torch.promote_types(*(x.dtype for x in tensors))
        tensors = [x.to(wider) for x in tensors]
    dim = checked_dim(name, "p", tensors[0], dim)
    values, rows = numbers_and_rows(DESCRIPTIONS[name], values, "p", tensors[0], dim)
    return reduced(OPERATORS[name], tensors, rows, values, dim)


def _call_entries(name, p, values, dim, axis):
    single = isinstance(p, Tensor) and p.dim() == 0
    p = p.unsqueeze(0) if single else p
    dim = checked_dim(name, "p", p, one_dim(name, dim, axis))
    values, _ = numbers_and_rows(DESCRIPTIONS[name], values, "p", p, dim)
    value = OPERATORS[name](p, *values, dim)
    return value.squeeze(0) if single else value


def _call_table(name, pxy, values):
    checked_dim(name, "pxy", pxy, -1)
    if pxy.dim() < 2:
        raise ValueError(f"{name}: pxy must have at least two axes, x in rows and y in columns, got shape {tuple(pxy.shape)}")
    flat = pxy.flatten(-2)
    values, _ = numbers_and_rows(DESCRIPTIONS[name], values, "pxy", flat, -1)
    return reduced(OPERATORS[name], (flat,), (), (*values, pxy.shape[-1]), flat.dim() - 1)


def joint_entropy(pxy, *, base=None, input="probs", normalize=False):
    """The entropy of both variables of a table together, of torch tensors: see entropic.joint_entropy."""
    checked_dim("joint_entropy", "pxy", pxy, -1)
    if pxy.dim() < 2:
        raise ValueError(
            f"joint_entropy: pxy must have at least two axes, x in rows and y in columns, got shape {tuple(pxy.shape)}"
        )
    return functions["entropy"](pxy.flatten(-2), base=base, input=input, normalize=normalize)


def _doc(description):
    arrays = ", ".join(numpy_measures.ARGUMENTS[description["family"]])
    dim = "dim : int, default -1\n    The dimension along which they are distributions; axis is another name for it.\n"
    dim = dim if numpy_measures.has_axis(description) else ""
    return f"""{description["summary"]}

    {description["formula"]}

As entropic.{description["name"]}, of torch tensors, and differentiable in {arrays}: {description["gradient"]}.

Parameters
----------
{arrays} : Tensor
    What input says, of float32, float64, float16 or bfloat16.
{numpy_functions.param_doc(description)}{dim}
Returns
-------
Tensor
    One number for each {"entry" if description["family"] == "entry" else "distribution"}.
"""


functions = build(DESCRIPTIONS.values())
joint_entropy.__module__ = "entropic.torch"
functions["joint_entropy"] = joint_entropy
