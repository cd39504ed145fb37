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
