"""Makes ``torch.ops.isentropic.NAME`` of an OpSpec: schema, implementations, fake tensors, vmap, and derivatives backward,
twice backward and forward."""

import functools
import sys
import warnings
from dataclasses import replace

import torch

from isentropic.torch import backends
from isentropic.torch._compat import (
    alive,
    carries_tangent,
    dispatch_modes,
    function_modes,
    has_memory,
    in_forward_mode,
    in_reverse_transform,
    in_transform,
    is_nowhere,
    never_again,
    primals,
    pushing_further,
    tracing,
)
from isentropic.torch._spec import HALVES, OPERATORS, Call, OpSpec, Tensor, absent

_library = torch.library.Library("isentropic", "DEF")


class Operator:
    """The operator of a specification; call it with the operator's arguments."""

    def __init__(self, spec, implementations=None, reference=None):
        OPERATORS[spec.name] = self
        self.spec, self.count = spec, len(spec.tensors)
        at = {name: k for k, name in enumerate((*spec.names, *spec.outputs))}
        self._moving = [at[name] for name in spec.differentiable]
        self._kept = [at[name] for name in spec.keeps]
        self._dim = list(spec.params).index("dim") if "dim" in spec.params else None
        self._single = len(spec.outputs) == 1
        self._results = spec.moving or tuple(range(len(spec.outputs)))

        _library.define(spec.schema)
        implementations = implementations or backends.implementations(spec.name)
        for place, run in implementations.items():
            _library.impl(spec.name, run, place)
        self.op = getattr(torch.ops.isentropic, spec.name).default
        self._kernel = implementations["CPU"]
        qualified = f"isentropic::{spec.name}"
        torch.library.register_fake(qualified, functools.partial(_shapes, spec), lib=_library)
        torch.library.register_vmap(qualified, functools.partial(self._batched, self.op), lib=_library)
        if not spec.differentiable:
            return
        if spec.derivative == "operator":
            self.vjp = Operator(_vjp_of(spec))
        by_name = {"operator": self._by_operator, "outputs": self.by_outputs, "reference": self._by_reference}
        self._pull_back = by_name.get(spec.derivative, spec.derivative)
        self._reference = reference or backends.DIFFERENTIABLE.get(spec.name)
        torch.library.register_autograd(qualified, self._backward, setup_context=self._setup, lib=_library)
        shared = {"backward": self._backward, "jvp": self._jvp}
        # For torch.func, under whose transforms the rules of torch.library do not work; and for plain calls, for which such a
        # Function takes half the time of torch.library's rules.
        vmap = functools.partial(self._batched, self)
        self._function = _function(spec.name, forward=self.op, setup_context=self._setup, vmap=vmap, **shared)
        self._eager = _function(spec.name, forward=self._forward, **shared)

    def __call__(self, *arguments):
        if not self.spec.differentiable:
            return self.op(*(x.detach() if isinstance(x, Tensor) else x for x in arguments))
        if in_transform():
            return self._function.apply(*arguments)
        if torch.compiler.is_compiling():
            return self.op(*arguments)
        if tracing() is not None:
            _say_how_to_export(self.spec)
            return self.op(*arguments)
        if in_forward_mode() or wants_gradient(*arguments[: self.count]):
            return self._eager.apply(*arguments)
        return self._run(arguments)

    def _run(self, arguments):
        """The operator without derivatives; it skips the dispatcher if that has nothing to do."""
        if not dispatch_modes() and not function_modes() and all(map(_is_plain, arguments[: self.count])):
            return self._kernel(*arguments)
        return self.op(*arguments)

    def _tuple(self, output):
        return (output,) if self._single else output

    # The part of a call that derivatives need.

    def _forward(self, ctx, *inputs):
        output = self._run(inputs)
        self._setup(ctx, inputs, output)
        ctx.owned = True  # the caller also has the results of the operator itself
        return output

    def _setup(self, ctx, inputs, output):
        ctx.owned = False
        ctx.set_materialize_grads(False)
        everything = [*inputs[: self.count], *self._tuple(output)]
        kept = [everything[k] for k in self._kept]
        ctx.sparing = self._is_sparing(inputs)
        if ctx.sparing == "result":
            kept = [output, inputs[0].detach().amax(inputs[self.count + self._dim], keepdim=True)]
        elif ctx.sparing == "scores":
            kept = [inputs[0]]
        ctx.save_for_backward(*kept)
        if in_transform() or in_forward_mode():
            ctx.save_for_forward(*kept)
        ctx.params = inputs[self.count :]
        ctx.given = [everything[k] is not None for k in self._moving]
        ctx.results = [(out.shape, out.dtype) for out in everything[self.count :]]

    def _is_sparing(self, inputs):
        """What is kept of a map: only the "result", or for halves (their result is rounded) only the "scores"; None: all."""
        x, *rows = inputs[: self.count]
        if self.spec.nothing is None or any(row is not None for row in rows) or x.shape[inputs[self.count + self._dim]] == 0:
            return None
        return "scores" if x.dtype in HALVES else "result"

    def _call(self, ctx, without=alive):
        saved, params = without(ctx.saved_tensors), tuple(ctx.params)
        if ctx.sparing is not None:
            nothing = (None,) * (self.count - 1)
            if ctx.sparing == "scores":
                return Call((saved[0], *nothing), params, (self(saved[0], *nothing, *params),), ctx.owned)
            y, most = saved
            x = torch.where(y > self.spec.nothing, torch.inf, -torch.inf).to(y.dtype)  # beside +inf
            x = torch.where(most == torch.inf, x, torch.where(most == -torch.inf, -torch.inf, y))
            return Call((x, *nothing), params, (y,), ctx.owned)
        everything = [None] * (self.count + len(self.spec.outputs))
        for k, tensor in zip(self._kept, saved, strict=True):
            everything[k] = tensor
        return Call(tuple(everything[: self.count]), params, tuple(everything[self.count :]), ctx.owned)

    # J^T g.

    def _backward(self, ctx, *grads):
        results = [None] * (self.count + len(ctx.params))
        if all(grad is None for grad in grads):
            return tuple(results)
        call = self._call(ctx)
        if self.spec.once or any(grad is not None for k, grad in enumerate(grads) if k not in self._results):
            self._refuse(call, grads)
        for k, given, result in zip(self._moving, ctx.given, self._pull_back(call, grads), strict=True):
            results[k] = result if given else None
        return tuple(results)

    def _refuse(self, call, grads=()):
        """Refuses derivatives that do not exist: of some outputs, and second ones of some operators."""
        others = [self.spec.outputs[k] for k, grad in enumerate(grads) if grad is not None and k not in self._results]
        missing = [f"there is no derivative of {others[0]}"] if others else []
        if self.spec.once and (others or any(map(carries_tangent, call.tensors))):
            missing.insert(0, "there are no second derivatives")
        if missing:
            raise RuntimeError(f"{self.spec.name}: {', and '.join(missing)}")

    def _by_operator(self, call, grads):
        everything = (*call.tensors, *call.outputs)
        moving = (grads[k] for k in self._results)
        return self.vjp._tuple(self.vjp(*(everything[k] for k in self._kept), *moving, *call.params))

    def _by_reference(self, call, grads):
        if self.spec.nearby is not None and call.tensors[0].numel() == 0:  # its rows have no results, or NaN
            return [None if call.tensors[k] is None else torch.zeros_like(call.tensors[k]) for k in self._moving]

        def function(tensors):
            if self.spec.nearby is not None:
                return self.spec.nearby(call._replace(tensors=tuple(tensors)))
            return self._tuple(self._reference(*tensors, *call.params))

        return pullback(function, call.tensors, self._moving, [grads[k] for k in self._results])

    def by_outputs(self, call, grads):
        grad, *seconds = grads
        slopes = self._slopes(call)
        results = [None] * len(self._moving)
        if grad is not None:
            product = _into if call.owned and call.params[-1] and never_again(grad) else _times
            dim = call.params[self._dim]
            grad = grad.unsqueeze(dim)
            results = [
                None if call.tensors[k] is None else product(slope, grad, dim)
                for k, slope in zip(self._moving, slopes, strict=True)
            ]
        if any(second is not None for second in seconds):
            more = pullback(self._slopes_of(call), call.tensors, self._moving, seconds)
            results = [a if b is None else b if a is None else a + b for a, b in zip(results, more, strict=True)]
        return results

    def _slopes(self, call):
        """The gradients of the first output."""
        return call.outputs[1:] if call.params[-1] else self(*call.tensors, *call.params[:-1], True)[1:]

    def _slopes_of(self, call):
        """The gradients of the first output as a function of the tensors."""
        return lambda tensors: self._reference(*tensors, *call.params[:-1], True)[1:]

    # J t.

    def _jvp(self, ctx, *tangents):
        with pushing_further():
            call = self._call(ctx, lambda tensors: primals(alive(tensors)))
            if self.spec.once:
                self._refuse(call)
            return self._push_forward(call, ctx.results, tangents)

    def _push_forward(self, call, results, tangents):
        tangents = [tangents[k] for k in self._moving]
        if self.spec.derivative == "outputs":
            return self._by_outputs_forward(call, tangents, results)
        if self.spec.symmetric(*call.params) and all(tangent is None for tangent in tangents[1:]):
            return self._pull_back(call, (tangents[0],))[0]
        found = transposed(functools.partial(self._pull_back, call), call.tensors, results, tangents, self._results)
        return found[0] if self._single else found

    def _by_outputs_forward(self, call, tangents, results):
        pairs = [(slope, t) for slope, t in zip(self._slopes(call), tangents, strict=True) if t is not None]
        value = sum((slope * t).sum(call.params[self._dim], dtype=results[0][1]) for slope, t in pairs)
        if not call.params[-1]:
            return value, *(pairs[0][0].new_zeros(shape, dtype=dtype) for shape, dtype in results[1:])

        def pull_back(seconds):
            return pullback(self._slopes_of(call), call.tensors, self._moving, seconds)

        return value, *transposed(pull_back, call.tensors, results[1:], tangents, range(len(results) - 1))

    # A batch: along a new first axis.

    def _batched(self, run, info, in_dims, *arguments):
        def first(x, at):
            if x is None:
                return None
            return x.unsqueeze(0).expand(info.batch_size, *x.shape) if at is None else x.movedim(at, 0)

        moved = map(first, arguments[: self.count], in_dims[: self.count])
        params = list(arguments[self.count :])
        if self._dim is not None:
            params[self._dim] += 1
        results = run(*moved, *params)
        if self._single:
            return results, 0
        return results, tuple(0 if out.shape[0] == info.batch_size else None for out in results)


_said: set[str] = set()


def _refuse_onnx(spec):
    if getattr(sys.modules.get("torch.onnx"), "is_in_onnx_export", bool)():
        raise RuntimeError(f"{spec.name}: torch.onnx.export cannot write it; use isentropic.onnx.export(module, args, path)")


def _shapes(spec, *arguments):
    """Empty results, for compilers and exporters."""
    _refuse_onnx(spec)
    return spec.shapes(*arguments)


def _say_how_to_export(spec):
    """Of torch.jit.trace, whose result needs our operators, once; torch.onnx.export may have called it."""
    _refuse_onnx(spec)
    if "trace" not in _said:
        _said.add("trace")
        instead = "torch.export.export keeps a program, isentropic.onnx.export writes a file that needs no isentropic"
        warnings.warn(
            f"isentropic.torch: what torch.jit.trace makes runs only after import isentropic.torch; {instead}", stacklevel=4
        )


def _is_plain(x):
    return x is None or (type(x) in _PLAIN and x.is_cpu and x.layout is torch.strided and not x.is_neg() and has_memory(x))


def is_alone(x):
    """Whether it is a plain tensor of this machine's memory that no transform, mode or tangent sees."""
    return (
        type(x) is Tensor
        and x.is_cpu
        and x.layout is _STRIDED
        and not (x.is_neg() or is_nowhere(x) or in_transform() or in_forward_mode() or dispatch_modes())
    )


_STRIDED = torch.strided
_PLAIN = (Tensor, torch.nn.Parameter)


def wants_gradient(*tensors):
    """Whether one of them, which may be None, requires a gradient."""
    if not torch.compiler.is_compiling() and in_transform():
        return in_reverse_transform()
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _function(name, **rules):
    return type(name, (torch.autograd.Function,), {rule: staticmethod(does) for rule, does in rules.items()})


def _vjp_of(spec):
    """The specification of NAME_vjp."""
    tensors = [name for name in spec.tensors if name.removesuffix("?") in spec.keeps]
    tensors += [name for name in spec.outputs if name in spec.keeps]
    of = [tensors.index(name) if name in tensors else tensors.index(f"{name}?") for name in spec.differentiable]
    results = [name for k, name in enumerate(spec.outputs) if spec.moving is None or k in spec.moving]
    # Where there are several, some may not be used.
    tensors += [f"d_{name}{'?' * (len(results) > 1)}" for name in results]
    moving = [
        name for name in (one.removesuffix("?") for one in tensors) if name not in set(spec.names) - set(spec.differentiable)
    ]

    def shapes(*arguments):
        found = [arguments[k] for k in of]
        found = tuple(absent(arguments[0]) if x is None else x.new_empty(x.shape) for x in found)
        return found[0] if len(found) == 1 else found

    return replace(
        spec,
        name=f"{spec.name}_vjp",
        tensors=tuple(tensors),
        outputs=tuple(f"d_{name}" for name in spec.differentiable),
        shapes=shapes,
        differentiable=tuple(moving),
        keeps=tuple(name.removesuffix("?") for name in tensors),
        derivative="reference",
        symmetric=OpSpec.symmetric,
        nearby=None,
        moving=None,
        nothing=None,
    )


def product_with(slopes, grad, dim):
    """Slopes, which are not shared, each times the gradient in the value; None stays None."""
    product = _into if never_again(grad) else _times
    grad = grad.unsqueeze(dim)
    return [None if slope is None else product(slope, grad, dim) for slope in slopes]


def _times(slope, factor, dim):
    return (slope * factor).to(slope.dtype)


def _into(slope, factor, dim):
    """slope, multiplied by a factor that has size 1 for dim."""
    slope = slope.detach()
    if slope.dtype == factor.dtype or slope.dim() == 1:
        return slope.mul_(factor)
    # torch copies operands of two types, so this works on parts.
    axis = 1 if dim == 0 else 0
    size = max(1, _PART * slope.shape[axis] // max(1, slope.numel()))
    for part, by in zip(slope.split(size, axis), factor.split(size, axis), strict=True):
        part.mul_(by)
    return slope


_PART = 1 << 16  # numbers


def pullback(function, tensors, moving, cotangents):
    """J^T cotangents of function(tensors), a tuple, in the tensors numbered `moving`; None for those that are."""
    given = [k for k in moving if tensors[k] is not None]
    asked = [k for k, c in enumerate(cotangents) if c is not None]  # 0 times the others' derivatives may be NaN

    def moved(*some):
        now = list(tensors)
        for k, x in zip(given, some, strict=True):
            now[k] = x
        outputs = function(now)
        return tuple(outputs[k] for k in asked)

    outputs, back = torch.func.vjp(moved, *(tensors[k] for k in given))
    found = back(tuple(cotangents[k].to(out.dtype) for k, out in zip(asked, outputs, strict=True)))
    found = dict(zip(given, found, strict=True))
    return [found.get(k) for k in moving]


def transposed(pull_back, tensors, results, tangents, moving):
    """J tangents, where pull_back(grads) is J^T grads: this is linear, so its own pullback is the forward derivative.

    results: shapes and types of the outputs; those numbered `moving` have derivatives.
    """
    like = next(x for x in (*tensors, *tangents) if x is not None)
    zeros = [like.new_zeros(shape, dtype=dtype) for shape, dtype in results]
    asked = [k for k, tangent in enumerate(tangents) if tangent is not None]

    def linear(*grads):
        now = [None] * len(zeros)
        for k, grad in zip(moving, grads, strict=True):
            now[k] = grad
        found = pull_back(now)
        return tuple(found[k] for k in asked)

    outputs, back = torch.func.vjp(linear, *(zeros[k] for k in moving))
    found = back(tuple(tangents[k].to(out.dtype) for k, out in zip(asked, outputs, strict=True)))
    for k, tangent in zip(moving, found, strict=True):
        zeros[k] = tangent
    return tuple(zero if zero.is_floating_point() else None for zero in zeros)
