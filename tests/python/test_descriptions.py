"""What descriptions say of doors is so: a door has an operation, or the description says that it has not, and why."""

import numpy as np
import pytest

from cases import torch_or_skip
from isentropic import _core
from isentropic._descriptions import per_row
from isentropic._numpy import _sampling

FAMILIES = (
    _core.operations(),
    _core.control_operations(),
    _core.measure_operations(),
    _core.losses(),
    _core.sampling_operations(),
    _core.attention_operations(),
    _core.transport_operations(),
    _core.calibration_operations(),
)
OPERATIONS = {one["name"]: one for family in FAMILIES for one in family}


def test_reasons_are_sentences():
    assert len(OPERATIONS) > 50
    for one in OPERATIONS.values():
        assert all(len(why.split()) > 3 for why in one["not_in"].values()), one["name"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_c(name):
    """The C interface, by which JAX calls too, knows the operation: it asks for arrays, or says that there is no such name."""
    with pytest.raises(ValueError) as error:
        _core.apply_on_host(name, "{}", [], False)
    assert ("operation must be a name in isentropic_registry()" in str(error.value)) == ("c" in OPERATIONS[name]["not_in"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_ranks(name):
    torch_or_skip()
    import isentropic.torch.distributed as parts

    assert hasattr(parts, name) == ("ranks" not in OPERATIONS[name]["not_in"]), (
        f"not_in of {name} names Door::ranks if isentropic.torch.distributed lacks it, and else not"
    )


@pytest.mark.parametrize("name", [one["name"] for one in _core.operations()])
def test_formulas(name):
    """JAX's derivatives, torch's second ones and other devices need the formula of each map and of its parameters."""
    from isentropic.formulas.maps import known

    missing = [param for param in (None, *per_row(OPERATIONS[name])) if not known(name, param)]
    assert not missing, f"python/isentropic/formulas lacks {name}: compositions.py has the maps, maps.py their derivatives"


@pytest.mark.parametrize("name", _sampling.STEPS)
def test_ranks_of_steps(name):
    torch_or_skip()
    from isentropic.torch.distributed._chain import Chain

    assert (name in Chain.STEPS) == ("ranks" not in _sampling.STEPS[name]["not_in"])


@pytest.mark.parametrize("name", [one["name"] for one in _core.operations()])
def test_jacobians(name):
    """Symmetric, or a function of the result alone, where the description says so, and not elsewhere."""
    import isentropic

    one, x = OPERATIONS[name], np.array([[0.9, -0.3, 0.4, 0.1, 0.6]])
    params = {param["name"]: param["typical"] for param in one["params"] if param["required"]}
    if name == "entropy_normalize":
        params = {"entropy": 1.2}
    if name == "entropy_clip":
        params = {"max_entropy": 1.2}
    if one["reduces"]:
        assert not one["symmetric"] and not one["of_result"]
        return
    y, vjp = getattr(isentropic, name)(x, **params), getattr(isentropic, f"{name}_vjp")
    rows = [vjp(x, y, g[None], **params)[0] for g in np.eye(5)]
    assert np.allclose(rows, np.transpose(rows), rtol=0, atol=1e-13) == one["symmetric"]
    if one["of_result"]:  # with any scores that are finite
        np.testing.assert_array_equal([vjp(0 * x, y, g[None], **params)[0] for g in np.eye(5)], rows)
