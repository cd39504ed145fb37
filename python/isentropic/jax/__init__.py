"""The functions of isentropic for JAX: under ``jit``, ``grad``, ``jvp``, ``hessian`` and ``vmap``, on the CPU.

Maps, log_softmax, logsumexp, losses and measures can be differentiated forward and backward and more than once, in scores and
in parameters that are arrays. Values have the bits of the NumPy functions.
``isentropic.jax.distributed`` has functions for rows that are split over devices.
"""

from typing import Any

from isentropic._descriptions import LOSSES, MAPS, MEASURES
from isentropic.jax import _calibration, _transport
from isentropic.jax._attention import attention, linear_attention
from isentropic.jax._entropy_control import GammaResult, gamma_for_entropy, mean_field_entropy, power_transform
from isentropic.jax._maps import make_map, ratio_map
from isentropic.jax._sampling import Sampler, gumbel_softmax, sample
from isentropic.jax._values import make_entry, make_loss, make_measure, make_table

_OTHERS: tuple[Any, ...] = (*_transport.PUBLIC, *_calibration.PUBLIC)
globals().update({one.__name__: one for one in _OTHERS})
__all__ = ["GammaResult", "Sampler", "attention", "gamma_for_entropy", "gumbel_softmax", "linear_attention"]
__all__ += ["mean_field_entropy", "power_transform", "ratio_map", "sample"]
for _name in __all__:
    globals()[_name].__module__ = __name__
__all__ += [one.__name__ for one in _OTHERS]


def _publish(name, function, info):
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = f"{info['summary']}\n\n{info['formula']}\n\nAs isentropic.{name}; under jit, grad and vmap too."
    globals()[name] = function
    __all__.append(name)


for _name, _info in MAPS.items():
    _publish(_name, make_map(_info), _info)
for _info in LOSSES.values():
    _publish(_info["name"], make_loss(_info), _info)
for _info in MEASURES.values():
    _name = _info["name"]
    if _info["family"] in ("measure", "divergence"):
        _publish(_name, make_measure(_info, _info["family"] == "divergence"), _info)
    elif _info["family"] == "table":
        _publish(_name, make_table(_info), _info)
    elif _info["family"] == "entry":
        _publish(_name, make_entry(_info), _info)
