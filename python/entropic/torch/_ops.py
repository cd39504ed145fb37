"""Every operation of the registry as torch operators: ``torch.ops.entropic.NAME`` and ``NAME_vjp``, with rules for autograd,
fake tensors and vmap. On the CPU they run the library's kernels, elsewhere _compositions.

A parameter that may be per row has two arguments: its number, and ``NAME_rows``, a float64 tensor of x's shape with 1 for dim
or None. Where there are such, NAME_vjp returns also the gradient in those that are given, stacked.
"""

import functools
import operator

import numpy as np
import torch
from torch._subclasses.fake_tensor import is_fake

from entropic import _arrays, _core
from entropic.torch import _compositions

Tensor = torch.Tensor

# _core's numbers for the types.
CODES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}

# The kinds of parameters as torch's schemas have them.
SCHEMA = {"float": "float", "optional float": "float?", "int": "int", "name": "str", "bool": "bool"}

CONTIGUOUS = torch.contiguous_format

_library = torch.library.Library("entropic", "DEF")


def place(tensor):
    """A tensor as _core reads it."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), CODES[tensor.dtype]


# Whether torch.func is at work.
in_transform = torch._C._are_functorch_transforms_active


def batch_first(info, in_dims, inputs):
    """The inputs of a vmap, every tensor with the batch as its first axis."""

    def moved(x, batched):
        if not isinstance(x, Tensor):
            return x
        return x.unsqueeze(0).expand(info.batch_size, *x.shape) if batched is None else x.movedim(batched, 0)

    return [moved(x, batched) for x, batched in zip(inputs, in_dims, strict=True)]


class Registered:
    """``torch.ops.entropic.NAME`` with its rules; schema is "NAME(arguments) -> results".

    on_cpu and elsewhere calculate, fake gives results of the right shape, setup and backward are those of an
    autograd.Function, and batched(call, info, in_dims, *inputs) is the vmap of the latter, which calls `call`.
    """

    def __init__(self, schema, on_cpu, elsewhere, fake, setup, backward, batched):
        name = schema.partition("(")[0]
        _library.define(schema)
        _library.impl(name, on_cpu, "CPU")
        _library.impl(name, elsewhere, "CUDA")
        torch.library.register_fake(f"entropic::{name}", fake, lib=_library)
        torch.library.register_autograd(f"entropic::{name}", backward, setup_context=setup, lib=_library)
        self.op = getattr(torch.ops.entropic, name).default
        torch.library.register_vmap(f"entropic::{name}", functools.partial(batched, self.op), lib=_library)
        # For torch.func: what torch.library makes of an autograd rule does not work below another transform.
        vmap = functools.partial(batched, self)
        rules = {"forward": self.op, "setup_context": setup, "backward": backward, "vmap": vmap}
        self.function = type(name, (torch.autograd.Function,), {rule: staticmethod(does) for rule, does in rules.items()})

    def __call__(self, *arguments):
        return (self.function.apply if in_transform() else self.op)(*arguments)


def one_dim(name, dim, axis):
    """dim, of which axis is another name."""
    if axis is None:
        return -1 if dim is None else dim
    if dim is not None:
        raise TypeError(f"{name}: give one of dim and axis, got dim={dim!r} and axis={axis!r}")
    return axis


def integer_dim(name, dim):
    """dim, of whatever kind of integer; a bool is none."""
    if isinstance(dim, int) and not isinstance(dim, bool):
        return dim
    try:
        if not isinstance(dim, bool):
            return operator.index(dim)
    except TypeError:
        pass
    raise TypeError(f"{name}: dim must be one integer, got {dim!r}")


def checked_dim(name, argument, x, dim):
    """dim counted from 0, of a tensor that these operators take."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{name}: {argument} must be a torch.Tensor, got {type(x).__name__}; entropic.{name} takes other arrays"
        )
    if x.dtype not in CODES:
        raise TypeError(
            f"{name}: {argument} must be of float16, bfloat16, float32 or float64, got dtype {x.dtype}; pass {argument}.float()"
        )
    if x.layout is not torch.strided:
        raise TypeError(f"{name}: {argument} must be a dense tensor, got layout {x.layout}; pass {argument}.to_dense()")
    dim = integer_dim(name, dim)
    if x.dim() == 0:
        raise ValueError(f"{name}: {argument} must have at least one axis, got a single number")
    if not -x.dim() <= dim < x.dim():
        raise IndexError(f"{name}: dim {dim} is out of bounds for a tensor of {x.dim()} dimensions")
    if x.device.type not in ("cpu", "cuda", "meta"):
        raise TypeError(
            f"{name}: {argument} is on device {x.device}, where this operation has no implementation; pass {argument}.cpu()"
        )
    return dim % x.dim()


def has_numbers(tensor):
    """Whether its numbers are there to be read: no compiler and no transform at work, and no tensor that is only a shape."""
    return not (torch.compiler.is_compiling() or in_transform() or tensor.is_meta or is_fake(tensor))


def readable(*tensors):
    """The same of tensors on the CPU."""
    return all(tensor.is_cpu and has_numbers(tensor) for tensor in tensors)


def one_device(name, tensors):
    """Refuses tensors, by their arguments' names, on several devices: one kernel would read them all as its own."""
    first, x = next(iter(tensors.items()))
    for argument, tensor in tensors.items():
        if tensor.device != x.device:
            raise TypeError(
                f"{name}: {argument} is on device {tensor.device}, {first} on {x.device}; pass {argument}.to({first}.device)"
            )


misfit = functools.partial(_arrays.misfit, may_be="a number or a tensor")


def from_array(name, param, value):
    """A tensor of float64 of an array for a parameter; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    if torch.compiler.is_compiling():
        return torch.as_tensor(value)
    return torch.from_numpy(np.array(_arrays.per_row(name, param, value), np.float64))


def spread(name, param, value, argument, x, dim):
    """A value for each row in float64: of x's shape with 1 for dim."""
    shape = list(x.shape)
    shape[dim] = 1
    try:
        return value.to(device=x.device, dtype=torch.float64).expand(shape)
    except RuntimeError:
        raise misfit(name, param, shape, f"{argument}'s shape with 1 for dim {dim}", value) from None


def numbers_and_rows(description, values, argument, x, dim):
    """(values of an operation's parameters in their types, for each that may be per row a tensor of one for each row or None).

    A tensor for a parameter that may be per row is rows, beside the default in its place; any other is its number.
    """
    numbers, rows = [], []
    for param, value in zip(description["params"], values, strict=True):
        row = None
        if param["per_row"]:
            value = from_array(description["name"], param["name"], value)
            if isinstance(value, Tensor):
                row, value = spread(description["name"], param["name"], value, argument, x, dim), param["default"]
            rows.append(row)
        elif isinstance(value, Tensor) and value.numel() == 1:
            value = value.item()
        numbers.append(value)
    if not torch.compiler.is_compiling():
        numbers = description["in_their_types"](tuple(numbers))
    return tuple(numbers), rows


def wants_gradient(*tensors):
    """Whether a gradient in one of them, or None, may be asked for."""
    return in_transform() or (
        torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
    )


class _StraightThrough(torch.autograd.Function):
    """The value of one tensor with the gradient of another."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value, differentiated):
        return value.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return None, grad


def with_gradient_of(value, differentiated):
    """value, whose derivatives are taken to be those of another tensor of its shape."""
    return _StraightThrough.apply(value, differentiated.to(value.dtype))


class Operator:
    """An operation as its two operators know it."""

    def __init__(self, description):
        self.name = description["name"]
        self.description = description
        self.reduces = description["reduces"]
        self.forward = description["forward"]
        self.vjp = description["vjp"]
        self.param_vjp = description["param_vjp"]
        self.params = [param["name"] for param in description["params"]]
        self.per_row = [param["name"] for param in description["params"] if param["per_row"]]
        arguments = [f"{SCHEMA[param['kind']]} {param['name']}" for param in description["params"]]
        arguments += [f"Tensor? {name}_rows" for name in self.per_row]
        arguments = ", ".join([*arguments, "int dim"])
        result = "(Tensor, Tensor)" if self.per_row else "Tensor"
        self.call = Registered(
            f"{self.name}(Tensor x, {arguments}) -> Tensor",
            self._map,
            self._composed_map,
            self._fake_map,
            self._setup,
            self._backward,
            self._batched,
        )
        self.call_vjp = Registered(
            f"{self.name}_vjp(Tensor x, Tensor y, Tensor grad, {arguments}) -> {result}",
            self._map_vjp,
            self._composed_vjp,
            self._fake_vjp,
            self._setup_vjp,
            self._backward_vjp,
            self._batched_vjp,
        )

    def _split(self, arguments):
        """(values of the parameters, their rows, dim) of what follows the tensors."""
        count = len(self.params)
        return arguments[:count], arguments[count:-1], arguments[-1]

    def _values(self, values, rows):
        """What _core takes: numbers, or where given an array of float64."""
        if rows.count(None) == len(rows):
            return values
        by_name = {name: row for name, row in zip(self.per_row, rows, strict=True) if row is not None}
        return tuple(
            by_name[name].numpy() if name in by_name else value for name, value in zip(self.params, values, strict=True)
        )

    def _named(self, values, rows):
        """What the compositions take."""
        params = dict(zip(self.params, values, strict=True))
        params.update({name: row for name, row in zip(self.per_row, rows, strict=True) if row is not None})
        return params

    def _row_shape(self, x, dim):
        shape = list(x.shape)
        shape[dim] = 1
        return shape

    # What an operator does.

    def _map(self, x, *arguments):
        values, rows, dim = self._split(arguments)
        y = x.new_empty(self._row_shape(x, dim)) if self.reduces else torch.empty_like(x, memory_format=CONTIGUOUS)
        self.forward(place(x), place(y), dim, self._values(values, rows))
        return y

    def _map_vjp(self, x, y, grad, *arguments):
        values, rows, dim = self._split(arguments)
        dx = torch.empty_like(x, memory_format=CONTIGUOUS)
        places = place(x), place(y), place(grad), place(dx)
        if not self.per_row:
            self.vjp(*places, dim, self._values(values, rows))
            return dx
        asked = [name for name, row in zip(self.per_row, rows, strict=True) if row is not None]
        drows = torch.empty((len(asked), *self._row_shape(x, dim)), dtype=torch.float64)
        self.param_vjp(*places, dim, self._values(values, rows), tuple(zip(asked, drows.numpy(), strict=True)))
        return dx, drows

    def _composed_map(self, x, *arguments):
        values, rows, dim = self._split(arguments)
        y = _compositions.forward(self.name, x, dim, self._named(values, rows))
        return y.to(x.dtype).contiguous()

    def _composed_vjp(self, x, y, grad, *arguments):
        values, rows, dim = self._split(arguments)
        result = _compositions.vjp(self.name, x, y, grad, dim, self._named(values, rows))
        if self.per_row:
            return result[0].to(x.dtype).contiguous(), result[1].contiguous()
        return result.to(x.dtype).contiguous()

    # What it gives, without doing it.

    def _fake_map(self, x, *arguments):
        return x.new_empty(self._row_shape(x, arguments[-1]) if self.reduces else x.shape)

    def _fake_vjp(self, x, y, grad, *arguments):
        _, rows, dim = self._split(arguments)
        dx = x.new_empty(x.shape)
        if not self.per_row:
            return dx
        count = sum(row is not None for row in rows)
        return dx, x.new_empty((count, *self._row_shape(x, dim)), dtype=torch.float64)

    # Its derivatives.

    def _keep(self, ctx, tensors, arguments):
        values, rows, dim = self._split(arguments)
        ctx.save_for_backward(*tensors, *rows)
        ctx.values, ctx.dim = values, dim

    def _setup(self, ctx, inputs, output):
        x, *arguments = inputs
        self._keep(ctx, (x, output), tuple(arguments))

    def _backward(self, ctx, grad):
        x, y, *rows = ctx.saved_tensors
        result = self.call_vjp(x, y, grad, *ctx.values, *rows, ctx.dim)
        dx, drows = result if self.per_row else (result, ())
        return (dx, *self._align(ctx, rows, drows))

    def _setup_vjp(self, ctx, inputs, output):
        x, y, grad, *arguments = inputs
        self._keep(ctx, (x, y, grad), tuple(arguments))

    def _backward_vjp(self, ctx, *grads):
        x, y, grad, *rows = ctx.saved_tensors
        given = [row for row in rows if row is not None]

        def composed(x, y, grad, *given):
            filled = iter(given)
            rows_now = [None if row is None else next(filled) for row in rows]
            return _compositions.vjp(self.name, x, y, grad, ctx.dim, self._named(ctx.values, rows_now))

        outputs, pullback = torch.func.vjp(composed, x, y, grad, *given)
        if self.per_row:
            pairs = zip(grads, outputs, strict=True)
            cotangents = tuple(torch.zeros_like(out) if g is None else g.to(out.dtype) for g, out in pairs)
        else:
            cotangents = grads[0].to(outputs.dtype)
        dx, dy, dgrad, *drows = pullback(cotangents)
        return (dx, dy, dgrad, *self._align(ctx, rows, drows))

    def _align(self, ctx, rows, drows):
        """None for numbers and dim, the gradient for rows that are given."""
        filled = iter(drows)
        return (*(None for _ in ctx.values), *(None if row is None else next(filled) for row in rows), None)

    # A batch of it: along a new first axis.

    def _batched(self, call, info, in_dims, *inputs):
        *moved, dim = batch_first(info, in_dims, inputs)
        return call(*moved, dim + 1), 0

    def _batched_vjp(self, call, info, in_dims, *inputs):
        result, _ = self._batched(call, info, in_dims, *inputs)
        return result, ((0, 1) if self.per_row else 0)


OPERATORS = {description["name"]: Operator(description) for description in _core.operations()}
