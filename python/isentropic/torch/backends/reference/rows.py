"""Numbers of rows as operators."""

from isentropic import _descriptions
from isentropic.torch._rows import last
from isentropic.torch._spec import absent, result_type


def reduction(composed, tensors, description, further=()):
    """The operator of a row's number and its gradients.

    ``composed(tensors, params) -> (value, gradients in tensors, {parameter given as a tensor: gradient})``, of rows along the
    last axis; numbers of rows have size 1 there. `tensors`: their number; `further`: names of parameters that are not in the
    description.
    """
    names = [*(param["name"] for param in description["params"]), *further]
    per_row = _descriptions.per_row(description)

    def run(*arguments):
        given, rows = arguments[:tensors], arguments[tensors : tensors + len(per_row)]
        *values, dim, wanted = arguments[tensors + len(per_row) :]
        x, params = given[0], dict(zip(names, values, strict=True))
        moving = {name: row for name, row in zip(per_row, last(dim, *rows), strict=True) if row is not None}
        along = [one.movedim(dim, -1) if one.dim() == x.dim() else one for one in given]
        value, gradients, slopes = composed(along, {**params, **moving})
        outputs = [value.squeeze(-1).to(result_type(x)).contiguous()]
        outputs += [one.movedim(-1, dim).to(x.dtype).contiguous() if wanted else absent(x) for one in gradients]
        for name in per_row:
            asked = name in moving and wanted
            outputs.append(slopes[name].double().movedim(-1, dim).contiguous() if asked else absent(x))
        return tuple(outputs)

    return run
