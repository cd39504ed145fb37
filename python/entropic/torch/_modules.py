"""torch.nn modules of the functions."""

import torch

from entropic import _functions as numpy_functions
from entropic.torch._arguments import integer_dim
from entropic.torch._maps import param_doc
from entropic.torch._names import class_name


def build(descriptions, functions):
    modules = {}
    for description in descriptions:
        name = description["name"]
        module = _build(description, functions[name])
        modules[module.__name__] = module
    return modules


class Configured(torch.nn.Module):
    """Keeps the values it was made with under their names: tensors among them move with the module, and an nn.Parameter is
    learned."""

    def __init__(self, values):
        super().__init__()
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        self._names = tuple(values)

    def _values(self):
        """What it was made with, as it is now."""
        return {name: getattr(self, name) for name in self._names}

    def extra_repr(self, *also):
        shown = ((name, getattr(self, name)) for name in (*self._names, *also))
        return ", ".join(f"{name}={tuple(v.shape) if isinstance(v, torch.Tensor) else repr(v)}" for name, v in shown)


class _Map(Configured):
    """Calls `_function` with the parameters it was made with."""

    def __init__(self, **values):
        super().__init__(values)
        self.dim = integer_dim(type(self).__name__, self.dim)

    def forward(self, x):
        return type(self)._function(x, **self._values())


def _build(description, function):
    name = description["name"]
    names = [param["name"] for param in description["params"]]
    declared = dict(zip(names, map(numpy_functions.declare, description["params"]), strict=True)) | {"dim": "dim=-1"}
    if description["reduces"]:
        declared["keepdim"] = "keepdim=False"
    # As torch's: Softmax(-1), Entmax(1.5, -1).
    first = names[: names[:1] != ["temperature"]]
    rest = [name for name in declared if name not in (*first, "dim")]
    params = [declared.get(param, param) for param in (*first, "dim", *(["*"] if rest else []), *rest)]
    namespace = {"inf": float("inf")}
    exec(
        f"def __init__(self, {', '.join(params)}):\n    _Map.__init__(self, {', '.join(f'{n}={n}' for n in declared)})\n",
        {"_Map": _Map},
        namespace,
    )
    learned = " and ".join(param["name"] for param in description["params"] if param["per_row"])
    learned = (
        f"{learned} may be an nn.Parameter that broadcasts with x and has size 1 along dim: it is then learned.\n\n"
        * bool(learned)
    )
    size = "keepdim : bool, default False\n    Keep dim, with size 1.\n" * description["reduces"]
    shape = "x's shape without dim" if description["reduces"] else "x's shape"
    given = numpy_functions.assignments(description).removeprefix(", ")
    doc = f"""{description["summary"]}

    {description["formula"]}

The module of entropic.torch.{name}: calls it with x of any shape, and gives {shape}.

Parameters
----------
{param_doc(description)}dim : int, default -1
    The axis along which scores compete.
{size}
{learned}Examples
--------
>>> module = entropic.torch.{class_name(name)}({given})
>>> y = module(torch.tensor([0.0, 1.0, 2.0]))
"""
    return type(
        class_name(name),
        (_Map,),
        {
            "__init__": namespace["__init__"],
            "__doc__": doc,
            "__module__": "entropic.torch",
            "_function": staticmethod(function),
        },
    )
