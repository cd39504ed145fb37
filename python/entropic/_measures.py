"""Measures of distributions: how uncertain one is, how far two are apart, what two variables know of each other."""

import math
from typing import Any, NamedTuple

import numpy as np

from entropic import _arrays, _core, _functions


class Kernel(NamedTuple):
    """A measure's function in _core, and its name for errors."""

    name: str
    run: object


def _in_python(run):
    """`run`, whose errors name what helps as it is written here."""

    def call(*args):
        try:
            run(*args)
        except ValueError as error:
            message = str(error).replace("(input scores takes scores)", '(input="scores" takes scores)')
            hint = '(normalize=True divides by the sum, input="scores" takes scores)'
            raise ValueError(message.replace("(normalize divides by the sum)", hint)) from None

    return call


def _of_one(operation, p, axis, return_grad, params):
    rows = _arrays.Rows(operation.name, "p", p, axis, halves=True)
    value = np.empty(len(rows.values))
    dp = np.empty_like(rows.values) if return_grad else None
    operation.run(rows.values, value, dp, params)
    return (rows.numbers(value), rows.back(dp)) if return_grad else rows.numbers(value)


def _of_two(operation, p, q, axis, return_grad, params):
    name = operation.name
    given = [_arrays._to_numpy(name, argument, x) for argument, x in (("p", p), ("q", q))]
    (first, p_type), (second, q_type) = (
        _arrays._to_floats(name, argument, array) for argument, array in zip("pq", given, strict=True)
    )
    # A list or integers go along with the other's type.
    if isinstance(p, (list, tuple)) or given[0].dtype.kind in "biu":
        p_type = q_type
    elif isinstance(q, (list, tuple)) or given[1].dtype.kind in "biu":
        q_type = p_type
    dtype = np.promote_types(p_type, q_type)
    try:
        shape = np.broadcast_shapes(first.shape, second.shape)
    except ValueError:
        raise ValueError(
            f"{name}: q must have a shape that broadcasts with that of p, {first.shape}, got {second.shape}"
        ) from None
    if not shape:
        raise ValueError(f"{name}: p must have at least one axis, got a single number")
    position = _core.normalize_axis(name, axis, len(shape))
    for argument, array in (("p", first), ("q", second)):
        before_end = len(shape) - position
        size = array.shape[-before_end] if array.ndim >= before_end else 1
        if size != shape[position]:
            raise ValueError(f"{name}: {argument} must have {shape[position]} entries along axis {position}, got {size}")
    like = q if isinstance(p, (list, tuple, int, float)) else p
    rows = _arrays.Rows(name, "p", np.broadcast_to(_arrays._cast(first, dtype), shape), position, halves=True, like=like)
    second = _arrays._cast(second, dtype)
    if second.size == shape[position]:  # one row for all
        others = np.ascontiguousarray(second.reshape(1, -1))
    else:
        others = _arrays.Rows(name, "q", np.broadcast_to(second, shape), position, halves=True).values
    value = np.empty(len(rows.values))
    gradients = [np.empty_like(rows.values) if return_grad else None for _ in range(2)]
    operation.run(rows.values, others, value, *gradients, params)
    return (rows.numbers(value), *map(rows.back, gradients)) if return_grad else rows.numbers(value)


def _of_table(operation, pxy, return_grad, params):
    name = operation.name
    values, dtype = _arrays._to_floats(name, "pxy", _arrays._to_numpy(name, "pxy", pxy))
    if values.ndim < 2:
        raise ValueError(f"{name}: pxy must have at least two axes, x in rows and y in columns, got shape {values.shape}")
    lead = values.shape[:-2]
    tables = np.ascontiguousarray(values).reshape(math.prod(lead), *values.shape[-2:])
    value = np.empty(len(tables))
    dp = np.empty_like(tables) if return_grad else None
    operation.run(tables, value, dp, params)
    result = _arrays._number_or_array(_arrays._same_kind(pxy, _arrays._cast(value.reshape(lead), dtype)))
    return (result, _arrays._same_kind(pxy, _arrays._cast(dp.reshape(values.shape), dtype))) if return_grad else result


def _of_entries(operation, p, axis, return_grad, params):
    array = _arrays._to_numpy(operation.name, "p", p)
    rows = _arrays.Rows(operation.name, "p", array if array.ndim else array.reshape(1), axis, halves=True, like=p)
    value = np.empty_like(rows.values)
    dp = np.empty_like(rows.values) if return_grad else None
    operation.run(rows.values, value, dp, params)
    results = [rows.back(result) for result in ((value, dp) if return_grad else (value,))]
    if array.ndim == 0:
        results = [_arrays._number_or_array(result.reshape(())) for result in results]
    return tuple(results) if return_grad else results[0]


RUN = {"measure": _of_one, "divergence": _of_two, "table": _of_table, "entry": _of_entries}
ARGUMENTS = {"measure": ("p",), "divergence": ("p", "q"), "table": ("pxy",), "entry": ("p",)}


def keywords(description):
    """The parameters as they stand in the signature."""
    declared = [_functions.declare(param) for param in description["params"]]
    if has_axis(description):
        declared.append("axis=-1")
    return [*declared, "return_grad=False"]


def has_axis(description):
    return description["family"] != "table" and description["name"] != "binary_entropy"


_functions_by_name: dict[str, Any] = {}  # what Counts calls


def build(operations):
    """The public functions by name."""
    functions = {}
    for description in operations:
        name, family = description["name"], description["family"]
        params = "".join(f"{param['name']}, " for param in description["params"])
        arrays = ", ".join(ARGUMENTS[family])
        axis = "axis, " if has_axis(description) else "" if family == "table" else "-1, "
        functions[name] = _functions.define(
            name,
            f"({arrays}, *, {', '.join(keywords(description))})",
            f"_run(_operation, {arrays}, {axis}return_grad, ({params}))",
            Kernel(name, _in_python(description["run"])),
            _doc(description),
            _run=RUN[family],
        )
    _functions_by_name.update(functions)
    Counts.__module__ = "entropic"
    return functions | {"Counts": Counts}


class Counts:
    """Counts of outcomes that arrive in chunks, and the measures of their frequencies.

    Parameters
    ----------
    *outcomes : int
        How many outcomes there are: of one variable, or of x and of y for a table with x in rows.

    Examples
    --------
    >>> morning, evening = entropic.Counts(3), entropic.Counts(3)
    >>> morning.add([0, 2, 2, 1]).add([2])
    Counts(3) of 5
    >>> evening.add([0, 0])
    Counts(3) of 2
    >>> float(morning.js_divergence(evening, base=2)) < 1
    True
    >>> (morning + evening).weights
    array([3., 1., 3.])
    """

    def __init__(self, *outcomes):
        if len(outcomes) not in (1, 2):
            raise TypeError(f"Counts: give the number of outcomes of one variable or of two, got {len(outcomes)} numbers")
        self._shape = tuple(_count(number) for number in outcomes)
        self._weights = np.zeros(self._shape)

    @property
    def weights(self):
        """The counts so far, as float64: exact up to 2^53 each."""
        return self._weights.copy()

    def add(self, *outcomes):
        """Count a chunk: outcomes 0 to n - 1 in an array, or as many of x and of y. Returns self."""
        if len(outcomes) != len(self._shape):
            raise TypeError(f"Counts.add: give {len(self._shape)} arrays of outcomes, got {len(outcomes)}")
        arrays = [np.asarray(array) for array in outcomes]
        flat = np.zeros(arrays[0].shape, np.int64)
        for array, size in zip(arrays, self._shape, strict=True):
            if array.size > 0 and array.dtype.kind not in "biu":
                raise TypeError(f"Counts.add: outcomes must be integers, got dtype {array.dtype}")
            if array.shape != flat.shape:
                raise ValueError(f"Counts.add: as many of y as of x, got shapes {flat.shape} and {array.shape}")
            wrong = array[(array < 0) | (array >= size)]
            if wrong.size > 0:
                raise ValueError(f"Counts.add: outcomes must be at least 0 and below {size}, got {wrong[0]}")
            flat = flat * size + array.astype(np.int64)
        self._weights += np.bincount(flat.ravel(), minlength=self._weights.size).reshape(self._shape)
        return self

    def merge(self, other):
        """Add what another has counted. Returns self."""
        self._weights += self._same(other, "merge")
        return self

    def __add__(self, other):
        return Counts(*self._shape).merge(self).merge(other) if isinstance(other, Counts) else NotImplemented

    def __repr__(self):
        return f"Counts({', '.join(map(str, self._shape))}) of {self._weights.sum():.0f}"

    def entropy(self, *, base=None):
        """Of one variable, or of both together."""
        return _functions_by_name["entropy"](self._weights.ravel(), base=base, normalize=True)

    def kl_divergence(self, other, *, base=None):
        """From these frequencies, p, to those of another, q."""
        return self._with("kl_divergence", other, base)

    def js_divergence(self, other, *, base=None):
        """Between these frequencies and those of another."""
        return self._with("js_divergence", other, base)

    def mutual_information(self, *, base=None):
        """Of the two variables."""
        if len(self._shape) != 2:
            raise TypeError("Counts.mutual_information: one variable has none, count two: Counts(n, m)")
        return _functions_by_name["mutual_information"](self._weights, base=base, normalize=True)

    def _with(self, name, other, base):
        others = self._same(other, name).ravel()
        return _functions_by_name[name](self._weights.ravel(), others, base=base, normalize=True)

    def _same(self, other, name):
        if not isinstance(other, Counts) or other._shape != self._shape:
            got = f"those of {other._shape}" if isinstance(other, Counts) else type(other).__name__
            raise TypeError(f"Counts.{name}: other must be Counts of {self._shape} outcomes, got {got}")
        return other._weights


def _count(number):
    count = _arrays.integer("Counts", "the number of outcomes", number)
    if count < 1:
        raise ValueError(f"Counts: the number of outcomes must be at least 1, got {count}")
    return count


INPUT = "NumPy array, anything with DLPack (such as a torch CPU tensor) or nested lists"
ARRAY_DOC = {
    "measure": f"p : {INPUT}\n    Distributions along axis, or what input says. Never changed.",
    "divergence": f"p, q : {INPUT}\n    Distributions along axis, or what input says, in shapes that broadcast: one q is\n"
    "    compared with every p. Never changed.",
    "table": f"pxy : {INPUT}\n    Tables p(x, y), x along the last axis but one and y along the last; further axes in front\n"
    "    count tables. All entries of a table together are one distribution, or what input says. Never changed.",
    "entry": f"p : {INPUT}\n    Probabilities, or what input says; a single number too. Never changed.",
}
RETURNS = {
    "measure": "One number for each row, of the kind and dtype of p; float64 where p is of integers or a list.",
    "divergence": "One number for each row, of the kind of p and the wider dtype; float64 for integers and lists.",
    "table": "One number for each table, of the kind and dtype of pxy; float64 where pxy is of integers or a list.",
    "entry": "Of the kind, shape and dtype of p; float64 where p is of integers or a list.",
}
GRADIENT_DOC = {
    "measure": "    Return (value, dp): the gradient as well, in the shape of p.",
    "divergence": "    Return (value, dp, dq): the gradients as well, in the shape that p and q broadcast to.",
    "table": "    Return (value, dp): the gradient as well, in the shape of pxy.",
    "entry": "    Return (value, dp): the derivative of each entry as well.",
}
EXAMPLE = {"measure": "[0.5, 0.25, 0.25]", "divergence": "[0.5, 0.5], [0.9, 0.1]", "table": "[[0.4, 0.1], [0.1, 0.4]]",
           "entry": "[0.5, 0.25]"}  # fmt: skip
AXIS_DOC = "axis : int, default -1\n    The axis along which p is a distribution; all others count rows.\n"


def _doc(description):
    name, family = description["name"], description["family"]
    params = _functions.param_doc(description) + (AXIS_DOC if has_axis(description) else "")
    required = "".join(f", {p['name']}={p['typical']!r}" for p in description["params"] if p["required"])
    names = [param["name"] for param in description["params"]]
    array = {"divergence": "p or q", "table": "pxy"}.get(family, "p")
    axis = f"numpy.exceptions.AxisError\n    axis is no axis of {array}.\n" if has_axis(description) else ""
    held = {"divergence": ", of both arrays", "table": ", of the whole table"}.get(family, "")
    scores = "x of p = 1 / (1 + exp(-x))" if name == "binary_entropy" else "x of p = softmax(x)"
    division = ", and with normalize through the division" if "normalize" in names else ""
    if family == "entry":
        refused = "An entry is not in [0, 1] (log_probs: above 0); the message names its row and entry."
    else:
        refused = (
            "An entry is negative, NaN or infinite, or a sum is further from 1 than 1e-6 (float64), 1e-4 (float32) or\n"
            "    1e-2 (float16) and normalize is not asked for; the message names the row and entry."
        )
    return f"""{description["summary"]}

    {description["formula"]}

Parameters
----------
{ARRAY_DOC[family]}
{params}return_grad : bool, default False
{GRADIENT_DOC[family]}

Returns
-------
array
    {RETURNS[family]}

Raises
------
ValueError
    {refused}
    A parameter is out of its range, shapes do not fit.
{axis}TypeError
    {_functions.TYPE_ERROR}

Notes
-----
input, what is given{held}: "probs" as they are, "log_probs" their logarithms, "scores" the {scores}; there NaN gives NaN and
-inf is an absent entry. 0 log 0 is 0. Computed in float64.
Gradient: {description["gradient"]}. It is that of the formula in the numbers given: in p, in log p, through the
function of scores{division}. Source: {description["source"]}.

Examples
--------
>>> value = entropic.{name}({EXAMPLE[family]}{required})
"""
