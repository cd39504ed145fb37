"""Single numbers as arguments, and errors that several functions share."""

import math
import operator

import numpy as np


def misfit(function, argument, wanted, which, value, may_be="a number or an array"):
    """The error of a parameter whose values do not spread over the rows: `which` says what the shape `wanted` is."""
    return ValueError(
        f"{function}: {argument} must be {may_be} that broadcasts to {tuple(wanted)}, {which}, got shape {tuple(value.shape)}"
    )


def flag(operation, argument, value):
    """A bool, and nothing that Python would take for one: "no" is true."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{operation}: {argument} must be a bool, got {type(value).__name__}")
    return bool(value)


def number(operation, argument, value, expected="a number"):
    """A float, and nothing that Python would read as one: float("1") is 1. Beyond floats: inf."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError, RuntimeError):
        pass
    raise TypeError(f"{operation}: {argument} must be {expected}, got {type(value).__name__}")


def integer(operation, argument, value, expected="an integer"):
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{operation}: {argument} must be {expected}, got {type(value).__name__}") from None


def asked_params(function, names, values, param_grad):
    """The parameters that `param_grad` asks for, True or names: `names` are those per row, None in the place of others.

    Where a map has others than the temperature, True is these.
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
