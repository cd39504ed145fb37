"""Measures of distributions: the formulas, on tensors."""

import functools

import torch

from isentropic import _descriptions
from isentropic.formulas import measures
from isentropic.torch._rows import ROWS, last
from isentropic.torch._spec import working
from isentropic.torch.backends.reference.rows import reduction


def _measure(description, tensors, params):
    return measures.graded(ROWS, description["name"], [working(x) for x in tensors], params)


def _entries(description, p, *arguments):
    *values, dim = arguments
    wide = working(p)
    value = measures.entries(ROWS, description["name"], *last(dim, wide), _descriptions.named(description, (), values))
    return value.movedim(-1, dim).to(wide.dtype).contiguous()


def entries_vjp(description, call, grads):
    (x,), (*values, dim) = call.tensors, call.params
    wide = last(dim, *(one.to(torch.promote_types(x.dtype, torch.float32)) for one in (x, grads[0])))
    dx = measures.entries_pulled(ROWS, description["name"], *wide, _descriptions.named(description, (), values))
    return (dx.movedim(-1, dim).to(x.dtype),)


def _implementation(one):
    if one["family"] == "entry":
        return functools.partial(_entries, one)
    of_tables = ["cols"] * (one["family"] == "table")
    return reduction(functools.partial(_measure, one), 1 + (one["family"] == "divergence"), one, of_tables)


IMPLEMENTATIONS = {
    name: _implementation(one) for name, one in _descriptions.MEASURES.items() if name not in _descriptions.OF_ONE_ROW
}
