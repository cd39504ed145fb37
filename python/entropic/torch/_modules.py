"""torch.nn modules of the functions."""

import torch

from entropic import _functions as numpy_functions
from entropic.torch._names import class_name


def build(descriptions, functions):
    modules = {}
    for description in descriptions:
        name = description["name"]
        module = _build(description, functions[name])
        modules[module.__name__] = module
    return modules


class _Map(torch.nn.Module):
    """Calls `_function` with the parameters it was made with: tensors among them move with the module, and an
    nn.Parameter is learned."""

    def __init__(self, **values):
        super().__init__()
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        self._names = tuple(values)

    def forward(self, x):
        return type(self)._function(x, **{name: getattr(self, name) for name in self._names})

    def extra_repr(self):
        shown = ((name, getattr(self, name)) for name in self._names)
        return ", ".join(f"{name}={tuple(v.shape) if isinstance(v, torch.Tensor) else repr(v)}" for name, v in shown)


def _build(description, function):
    name = description["name"]
    params = [numpy_functions.declare(param) for param in description["params"]] + ["dim=-1"]
    names = [param["name"] for param in description["params"]] + ["dim"]
    if description["reduces"]:
        params.append("keepdim=False")
        names.append("keepdim")
    namespace = {"inf": float("inf")}
    exec(
        f"def __init__(self, {', '.join(params)}):\n    _Map.__init__(self, {', '.join(f'{n}={n}' for n in names)})\n",
        {"_Map": _Map},
        namespace,
    )
    learned = " and ".join(param["name"] for param in description["params"] if param["per_row"])
    doc = f"{description['summary']}\n\nThe module of entropic.torch.{name}, with its parameters and dim=-1."
    if learned:
        doc += f"\n{learned} may be an nn.Parameter that broadcasts with x and has size 1 along dim: it is then learned."
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
