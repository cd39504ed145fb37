"""Single numbers as arguments, and errors that several functions share."""

import contextlib
import math
import operator

import numpy as np


def misfit(function, argument, wanted, which, value, may_be="a number or an array"):
    """The error for a parameter whose values do not broadcast over the rows; `which` describes the shape `wanted`."""
    return ValueError(
        f"{function}: {argument} must be {may_be} that broadcasts to {tuple(wanted)}, {which}, got shape {tuple(value.shape)}"
    )


def place(what, index):
    """An index for messages: " of row 3", " of row (0, 2)", or nothing if there is no axis; `what` is "of row"."""
    index = tuple(map(int, index))
    return f" {what} {index[0] if len(index) == 1 else index}" if index else ""


def points(operation, argument, shape):
    """Refuses shapes that are not those of points, and empty ones."""
    if len(shape) not in (1, 2):
        raise ValueError(f"{operation}: {argument} must have shape (points, coordinates) or (points,), got {tuple(shape)}")
    if 0 in shape:
        what = "coordinate" if shape[0] else "point"
        raise ValueError(f"{operation}: {argument} must have at least one {what}, got shape {tuple(shape)}")


def flag(operation, argument, value):
    """A bool. Other values that Python would convert are refused: "no" would be true."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{operation}: {argument} must be a bool, got {type(value).__name__}")
    return bool(value)


def number(operation, argument, value, expected="a number"):
    """A float. Other values that Python would convert are refused, such as "1". A number beyond floats becomes inf."""
    if type(value) is float:  # torch.compile's symbols too: float() would turn them into one number
        return value
    if type(value) is not int:  # a compiler's symbol for an int has no gradient, nor the attribute that no_gradient reads
        no_gradient(operation, argument, value)
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError, RuntimeError):
        pass
    raise TypeError(f"{operation}: {argument} must be {expected}, got {type(value).__name__}")


def positive(operation, argument, values, what=""):
    """Refuses numbers that are not above 0 and finite, of an array that no kernel sees; `what` is "in problem"."""
    values = np.asarray(values)
    if wrong := np.argwhere(~((values > 0) & np.isfinite(values))).tolist():
        at = tuple(wrong[0])
        where = place(what, at) if what else ""
        raise ValueError(f"{operation}: {argument} must be above 0 and finite, got {values[at]}{where}")


def integer(operation, argument, value, expected="an integer"):
    if type(value) is int:  # torch.compile's symbols too: operator.index would turn them into one number
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{operation}: {argument} must be {expected}, got {type(value).__name__}") from None


@contextlib.contextmanager
def in_the_name_of(function, inner):
    """An error of an inner function as one of the function that was called."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(str(error).replace(f"{inner}: ", f"{function}: ", 1)) from None


def each_number(operation, argument, given):
    """The numbers of a list, or of an array with one axis."""
    array = np.asarray(given)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{operation}: {argument} must be a number or a list of numbers, got {given!r}")
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{operation}: {argument} must be a number or a list of some numbers, got shape {array.shape}")
    return array.astype(float).tolist()


def index_or_none(name, ignore_index):
    """An ignored class, within int64."""
    if ignore_index is None:
        return None
    return min(max(integer(name, "ignore_index", ignore_index, "an integer or None"), -(2**63)), 2**63 - 1)


def asked_params(function, names, values, param_grad):
    """The parameters that `param_grad`, True or names, asks for. `names` are those per row, with None for others.

    If a map has other parameters than the temperature, True means these.
    """
    given = [name for name, value in zip(names, values, strict=True) if name is not None and value is not None]
    if param_grad is True:
        return [name for name in given if name != "temperature"] or given
    asked = [param_grad] if isinstance(param_grad, str) else param_grad
    if not isinstance(asked, (list, tuple)) or any(name not in given for name in asked):
        allowed = " and ".join(repr(name) for name in given) or "none"
        raise ValueError(
            f"{function}: param_grad must be True, False or names of given parameters, {allowed}, got {param_grad!r}"
        )
    return list(asked)


# The functions of arrays that isentropic.torch does not have.
_NOT_OF_TORCH = {
    "brier_score",
    "contingency_table",
    "entropy_invariant_scale",
    "entropy_of_counts",
    "expected_calibration_error",
    "fit_target_entropy",
    "fit_temperature",
    "fit_vector_scaling",
    "match_entropy",
    "mutual_information_of_counts",
    "mutual_information_of_labels",
    "mutual_information_scores",
    "read",
    "reliability_bins",
    "reliability_diagram",
    "write",
}


def along_axis(weights, x, axis):
    """Weights that broadcast to x: those of one axis lie along x's `axis`, a weight for each of its entries."""
    if weights.ndim != 1 or x.ndim < 2:
        return weights
    return weights.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def of_torch(operation, x):
    """Whether x is a tensor for which isentropic.torch has the operation; a method's name has a dot."""
    return type(x).__module__.startswith("torch") and operation not in _NOT_OF_TORCH and "." not in operation


def no_autograd(operation, name, x):
    """Refuses a tensor that requires grad, for functions that autograd does not see."""
    if getattr(x, "requires_grad", False):
        if not of_torch(operation.removesuffix("_vjp"), x):
            no_gradient(operation, name, x)
        raise TypeError(
            f"{operation}: {name} is a {type(x).__name__} that requires grad; "
            f"isentropic.torch.{operation.removesuffix('_vjp')} is differentiable, or pass {name}.detach()"
        )


def no_gradient(operation, name, x):
    """Refuses a tensor that requires grad, for results that have no gradient."""
    if getattr(x, "requires_grad", False):
        raise TypeError(
            f"{operation}: {name} is a {type(x).__name__} that requires grad, and the result has no gradient; "
            f"pass {name}.detach()"
        )
