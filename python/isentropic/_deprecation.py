"""Before a public name is removed, it works and warns for at least one minor version."""

import functools
import warnings


def deprecated(since, instead):
    """Decorates a function that a later version will not have: ``@deprecated("0.3", "use isentropic.softmax")``."""

    def decorate(function):
        message = f"isentropic.{function.__name__} is deprecated since isentropic {since}: {instead}"

        @functools.wraps(function)
        def warning(*args, **kwargs):
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        warning.__deprecated__ = message
        return warning

    return decorate
