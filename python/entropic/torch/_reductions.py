"""Operations that make one number of each row, with its gradients in the same pass, as torch operators.

The gradient is an output beside the value: backward multiplies it by what comes back, and a second backward differentiates it.
"""

import math

import torch

from entropic.torch._ops import CONTIGUOUS, Registered, batch_first, in_transform, wants_gradient

Tensor = torch.Tensor


class RowReduction:
    """``torch.ops.entropic.NAME(tensors..., parameters..., rows..., dim, gradients) -> (value, gradient...)``, with rules for
    autograd (twice), fake tensors and vmap.

    Parameters
    ----------
    name : str
    tensors : sequence of str
        The tensor arguments. The first decides shape and dtype; each other one has its shape, or that without dim.
    differentiable : sequence of str
        Those of them that have a gradient.
    params : dict
        The other parameters in their order: name to type, as torch's schemas have it ("float", "int?", "str", "bool").
    rows : sequence of str
        Names of parameters that may also be given one number for each row, with a gradient: float64 tensors of the first
        tensor's shape with 1 for dim, or None.
    kernel : callable
        ``kernel(tensors, value, gradients, values)`` on the CPU, on tensors without gaps, one row after the other: tensors
        (rows, n) or (rows,); value (rows,) of float64, to be written; gradients a list like differentiable and rows, to be
        written: (rows, n) of the first tensor's dtype, (rows,) of float64, or None where none is wanted. values: a dict of
        params, and of rows as NumPy arrays (rows,) or None.
    composed : callable
        ``composed(tensors, values, dim) -> (value, gradient...)`` of torch's own operations or of differentiable ones of this
        package, in the tensors' shapes, rows as they are given (or None, and None for their gradients): for other devices,
        and for second derivatives, which are those of these gradients.
    """

    def __init__(self, name, tensors, differentiable, params, kernel, composed, rows=()):
        self.name, self.tensors, self.params, self.rows = name, tuple(tensors), dict(params), tuple(rows)
        self.differentiable = tuple(self.tensors.index(tensor) for tensor in differentiable)
        self.kernel, self.composed = kernel, composed
        arguments = [f"Tensor {tensor}" for tensor in self.tensors]
        arguments += [f"{kind} {param}" for param, kind in self.params.items()]
        arguments += [f"Tensor? {row}" for row in self.rows]
        outputs = ", ".join(["Tensor"] * (1 + len(self.differentiable) + len(self.rows)))
        self.call = Registered(
            f"{name}({', '.join([*arguments, 'int dim', 'bool gradients'])}) -> ({outputs})",
            self._on_cpu,
            self._composed,
            self._fake,
            self._setup,
            self._backward,
            self._batched,
        )
        rules = {"forward": staticmethod(self._forward), "backward": staticmethod(self._backward)}
        self.eager = type(name, (torch.autograd.Function,), rules)

    def __call__(self, tensors, values, rows, dim):
        """The value: one number for each row. values: in the order of params; rows: tensors or None; dim counts from 0."""
        wanted = wants_gradient(*(tensors[k] for k in self.differentiable), *rows)
        return self._quickest(*tensors, *values, *rows, dim, wanted)[0]

    def _quickest(self, *arguments):
        # A compiler is to see the operator. Otherwise a Function costs half of what torch.library makes of the rules.
        plain = not (in_transform() or torch.compiler.is_compiling())
        return (self.eager.apply if plain else self.call)(*arguments)

    def _split(self, arguments):
        """(tensors, values, rows, dim, whether gradients are wanted)."""
        ends = len(self.tensors), len(self.tensors) + len(self.params)
        return arguments[: ends[0]], arguments[ends[0] : ends[1]], arguments[ends[1] : -2], arguments[-2], arguments[-1]

    def _named(self, values, rows):
        return dict(zip((*self.params, *self.rows), (*values, *rows), strict=True))

    # What an operator does.

    def _on_cpu(self, *arguments):
        tensors, values, rows, dim, wanted = self._split(arguments)
        x = tensors[0]
        lead = (*x.shape[:dim], *x.shape[dim + 1 :])
        count = math.prod(lead)

        def flat(tensor):
            if tensor.dim() == x.dim():
                return tensor.movedim(dim, -1).contiguous().view(count, tensor.shape[dim])
            return tensor.contiguous().view(count)

        flats = [flat(tensor) for tensor in tensors]
        row_values = [None if row is None else row.detach().contiguous().view(count) for row in rows]
        value = torch.empty(count, dtype=torch.float64)
        gradients = [None] * (len(self.differentiable) + len(rows))
        if wanted:
            gradients[: len(self.differentiable)] = [
                torch.empty_like(flats[k], memory_format=CONTIGUOUS) for k in self.differentiable
            ]
            for k, row in enumerate(rows, len(self.differentiable)):
                gradients[k] = None if row is None else torch.empty(count, dtype=torch.float64)
        numbers = (None if row is None else row.numpy() for row in row_values)
        self.kernel(flats, value, gradients, self._named(values, tuple(numbers)))

        def back(k, gradient):
            if gradient is None:
                return _nothing(x, k >= len(self.differentiable))
            if k < len(self.differentiable):
                return gradient.view(*lead, x.shape[dim]).movedim(-1, dim).contiguous()
            return gradient.view(rows[k - len(self.differentiable)].shape)

        return value.to(x.dtype).view(lead), *(back(k, gradient) for k, gradient in enumerate(gradients))

    def _composed(self, *arguments):
        tensors, values, rows, dim, wanted = self._split(arguments)
        x = tensors[0]
        value, *gradients = self.composed(tensors, self._named(values, rows), dim)
        outputs = [value.to(x.dtype).contiguous()]
        for k, gradient in enumerate(gradients):
            is_row = k >= len(self.differentiable)
            if gradient is None or not wanted:
                outputs.append(_nothing(x, is_row))
            else:
                outputs.append(gradient.to(torch.float64 if is_row else x.dtype).contiguous())
        return tuple(outputs)

    # What it gives, without doing it.

    def _fake(self, *arguments):
        tensors, _, rows, dim, wanted = self._split(arguments)
        x = tensors[0]
        outputs = [x.new_empty((*x.shape[:dim], *x.shape[dim + 1 :]))]
        outputs += [x.new_empty(x.shape) if wanted else _nothing(x, False) for _ in self.differentiable]
        outputs += [_nothing(x, True) if row is None or not wanted else row.new_empty(row.shape) for row in rows]
        return tuple(outputs)

    # Its derivatives.

    def _forward(self, ctx, *inputs):
        output = self.call.op(*inputs)
        self._setup(ctx, inputs, output)
        ctx.owned = True  # nobody but backward sees the gradients; those of the operator itself its caller has too
        return output

    def _setup(self, ctx, inputs, output):
        tensors, values, rows, dim, wanted = self._split(inputs)
        ctx.owned = False
        ctx.set_materialize_grads(False)  # the gradients' own, but where there is a second backward
        ctx.save_for_backward(*tensors, *rows, *output[1:])
        ctx.values, ctx.dim, ctx.wanted = tuple(values), dim, wanted

    def _backward(self, ctx, grad, *seconds):
        saved, dim = ctx.saved_tensors, ctx.dim
        ends = len(self.tensors), len(self.tensors) + len(self.rows)
        tensors, rows, gradients = saved[: ends[0]], saved[ends[0] : ends[1]], saved[ends[1] :]
        if not ctx.wanted:
            gradients = self._quickest(*tensors, *ctx.values, *rows, dim, True)[1:]
        inputs = [*(tensors[k] for k in self.differentiable), *rows]
        results = [None] * len(inputs)
        if grad is not None:
            product = _into if ctx.owned and _never_again(grad) else torch.mul
            grad = grad.unsqueeze(dim)
            results = [
                None if one is None else product(gradient, grad) for one, gradient in zip(inputs, gradients, strict=True)
            ]
        if any(second is not None for second in seconds):
            for k, more in enumerate(self._pullback(ctx.values, dim, tensors, rows, inputs, seconds)):
                results[k] = more if results[k] is None else results[k] + more if more is not None else results[k]
        by_tensor = dict(zip(self.differentiable, results, strict=False))
        none = [None] * len(self.params)
        return (*(by_tensor.get(k) for k in range(len(self.tensors))), *none, *results[len(self.differentiable) :], None, None)

    def _pullback(self, values, dim, tensors, rows, inputs, seconds):
        """What comes back through the gradients, one for each of `inputs`."""
        given = [k for k, one in enumerate(inputs) if one is not None]

        def gradients_of(*moving):
            now = list(inputs)
            for k, one in zip(given, moving, strict=True):
                now[k] = one
            all_tensors = list(tensors)
            for k, one in zip(self.differentiable, now, strict=False):
                all_tensors[k] = one
            _, *gradients = self.composed(all_tensors, self._named(values, now[len(self.differentiable) :]), dim)
            return tuple(gradients[k] for k in given)

        outputs, pullback = torch.func.vjp(gradients_of, *(inputs[k] for k in given))
        cotangents = (
            torch.zeros_like(out) if seconds[k] is None else seconds[k].to(out.dtype)
            for k, out in zip(given, outputs, strict=True)
        )
        results = [None] * len(inputs)
        for k, result in zip(given, pullback(tuple(cotangents)), strict=True):
            results[k] = result
        return results

    # A batch of it: along a new first axis.

    def _batched(self, call, info, in_dims, *inputs):
        *moved, dim, wanted = batch_first(info, in_dims, inputs)
        outputs = call(*moved, dim + 1, wanted)
        rows = self._split(inputs)[2]
        present = [True] * (1 + len(self.differentiable)) + [row is not None for row in rows]
        return outputs, tuple(0 if k == 0 or (wanted and present[k]) else None for k in range(len(outputs)))


def _never_again(grad):
    """Whether the saved tensors of the node whose backward runs are freed after it: then the gradient needs no new memory,
    whose first touch takes longer than the product. Not for what stands for other tensors, as under vmap."""
    plain = torch._C._dispatch_keys(grad).has(torch._C.DispatchKey.CPU) and not in_transform()
    return plain and not (torch.is_grad_enabled() or torch.compiler.is_compiling() or _graph_is_kept())


_graph_is_kept = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def _into(gradient, factor):
    return gradient.detach().mul_(factor)


def _nothing(x, is_row):
    """In the place of a gradient that is not wanted."""
    return x.new_empty(0, dtype=torch.float64 if is_row else x.dtype)
