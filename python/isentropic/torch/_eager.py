"""Calls of plain tensors in C++ (python/torch_eager.cc), if the package was built with this version of torch: `eager` is their
module, otherwise None, and the package makes these calls in Python."""

import contextlib
import importlib
import re
from typing import Any

import torch

from isentropic import _threads

eager: Any = None
with contextlib.suppress(ImportError):
    eager = importlib.import_module("isentropic.torch._eager_" + re.sub(r"\W", "_", torch.__version__))

_threads_of_torch = torch.get_num_threads
# A faster call than is_compiling; other tracers pass tensors that are not plain.
_is_traced = torch.compiler.is_dynamo_compiling


def ready():
    """eager, for calls with torch's number of threads; None without it and while torch compiles."""
    if eager is None or _is_traced():
        return None
    _threads.follow(_threads_of_torch())
    return eager
