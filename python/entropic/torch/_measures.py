"""Measures of distributions as torch operators."""

import math

import torch

from entropic import _core
from entropic import _functions as numpy_functions
from entropic import _measures as numpy_measures
from entropic.torch._ops import SCHEMA, Registered, checked_dim, numbers_and_rows, one_device, one_dim, place
from entropic.torch._reductions import RowReduction

Tensor = torch.Tensor
DESCRIPTIONS = {description["name"]: description for description in _core.measure_operations()}


# The same of torch's own operations: for other devices, and for second derivatives.


def _where(condition, x, otherwise):
    return torch.where(condition, x, torch.full_like(x, otherwise))


class _Distribution:
    """p, and log p where p > 0, of what a tensor holds."""

    def __init__(self, x, values, dim):
        self.dim, self.divisor = dim, None
        if values["input"] == "probs":
            if values["normalize"]:
                self.divisor = x.sum(dim, keepdim=True)
                x = x / self.divisor
            self.p = x
            self.present = x > 0
            self.log = torch.log(_where(self.present, x, 1.0))
            self.through = "division" if values["normalize"] else "probs"
            return
        softmax = values["input"] == "scores" or values["normalize"]
        log = torch.log_softmax(x, dim) if softmax else x
        self.p = log.exp()
        self.present = log > -math.inf
        self.log = _where(self.present, log, 0.0)
        self.through = "softmax" if softmax else "logs"

    def gradient(self, g):
        """Of a function whose partial derivatives in p are g, where p > 0."""
        if self.through == "probs":
            return g
        weighted = _where(self.present, self.p * g, 0.0)
        if self.through == "logs":
            return weighted
        mean = weighted.sum(self.dim, keepdim=True)
        return weighted - self.p * mean if self.through == "softmax" else (g - mean) / self.divisor


def _entropy(p, values, dim):
    return -(p.p * p.log).sum(dim), (-p.log - 1,)


def _perplexity(p, values, dim):
    h, (g,) = _entropy(p, values, dim)
    return h.exp(), (g * h.exp().unsqueeze(dim),)


def _renyi_entropy(p, values, dim):
    alpha = values["alpha"]
    if alpha == 1:
        return _entropy(p, values, dim)
    if alpha == 0:
        return p.present.sum(dim).to(p.p.dtype).log(), (torch.zeros_like(p.p),)
    largest = p.p.amax(dim, keepdim=True)
    if alpha == math.inf:
        top = (p.p == largest).to(p.p.dtype)
        return -largest.squeeze(dim).log(), (-top / (largest * top.sum(dim, keepdim=True)),)
    rest = 1 - alpha
    if abs(rest) < 2**-10:
        more = _where(p.present, p.p * torch.expm1(-rest * p.log), 0.0).sum(dim, keepdim=True)
        return torch.log1p(more).squeeze(dim) / rest, (_near(p, alpha) / (1 + more),)
    powers = _where(p.present, (alpha * (p.log - largest.log())).exp(), 0.0)
    log_sum = powers.sum(dim, keepdim=True).log() + alpha * largest.log()
    g = alpha / rest * _where(p.present, (-rest * p.log - log_sum).exp(), 0.0 if alpha > 1 else math.inf)
    return log_sum.squeeze(dim) / rest, (g,)


def _near(p, alpha):
    z = (alpha - 1) * p.log
    return -z.exp() - torch.expm1(z) / (alpha - 1)


def _tsallis_entropy(p, values, dim):
    alpha = values["alpha"]
    if alpha == 1:
        return _entropy(p, values, dim)
    if alpha == 0:
        return p.present.sum(dim).to(p.p.dtype) - 1, (torch.zeros_like(p.p),)
    if alpha == math.inf:
        return torch.zeros_like(p.p.sum(dim)), (torch.zeros_like(p.p),)
    terms = _where(p.present, p.p * torch.expm1((alpha - 1) * p.log), 0.0).sum(dim)
    if abs(alpha - 1) < 2**-10:
        return -terms / (alpha - 1), (_near(p, alpha),)
    g = _where(p.present, ((alpha - 1) * p.log).exp(), 0.0 if alpha > 1 else math.inf)
    return (1 - p.p.sum(dim) - terms) / (alpha - 1), (-alpha / (alpha - 1) * g,)


def _missing(p, q):
    return p.present & ~q.present


def _cross_entropy(p, q, values, dim):
    value = _where(~_missing(p, q), -p.p * q.log, math.inf).sum(dim)
    neither = ~p.present & ~q.present
    dq = torch.where(p.present, -p.p / torch.where(q.present, q.p, torch.zeros_like(q.p)), torch.zeros_like(p.p))
    return value, (torch.where(q.present | neither, -q.log, torch.full_like(q.log, math.inf)), dq)


def _kl_divergence(p, q, values, dim):
    difference = p.log - q.log
    terms = torch.where(p.present, p.p * difference - p.p + q.p, q.p)
    value = torch.where(_missing(p, q), torch.full_like(terms, math.inf), terms).sum(dim)
    nothing = torch.zeros_like(terms)
    dp = torch.where(p.present & q.present, difference, nothing)
    dp = torch.where(_missing(p, q), torch.full_like(dp, math.inf), dp)
    dp = torch.where(_missing(q, p), torch.full_like(dp, -math.inf), dp)
    dq = torch.where(q.present, (q.p - p.p) / _where(q.present, q.p, 1.0), nothing)
    return value, (dp, torch.where(_missing(p, q), torch.full_like(dq, -math.inf), dq))


def _js_divergence(p, q, values, dim):
    middle = (p.p + q.p) / 2
    log = torch.log(_where(middle > 0, middle, 1.0))
    value = (p.p * (p.log - log) + q.p * (q.log - log)).sum(dim) / 2
    g = [torch.where(one.present, (one.log - log) / 2, torch.where(middle > 0, -math.inf, 0.0)) for one in (p, q)]
    return value.clamp(0, math.log(2)), tuple(g)


def _safe_log(x):
    return torch.log(_where(x > 0, x, 1.0))


def _table(p, values, dim):
    """(table, log p, the dimensions of x and of y) of a flattened one."""
    x, y = dim - p.p.dim() - 1, dim - p.p.dim()
    table, log = (part.unflatten(dim, (-1, values["cols"])) for part in (p.p, p.log))
    return table, log, x, y


def _conditional_entropy(p, values, dim):
    table, log, x, y = _table(p, values, dim)
    given = table.sum(y if values["given"] == "x" else x, keepdim=True)
    g = (_safe_log(given) - log).flatten(x, y)
    return (p.p * g).sum(dim), (torch.where(p.present, g, _infinite_where(given, table, x, y)),)


def _infinite_where(marginal, table, x, y):
    """What -log p is at p = 0: nothing, where its marginal is 0 too."""
    return torch.where(marginal.expand_as(table) > 0, math.inf, 0.0).to(table.dtype).flatten(x, y)


def _mutual_information(p, values, dim):
    table, log, x, y = _table(p, values, dim)
    rows, cols = table.sum(y, keepdim=True), table.sum(x, keepdim=True)
    both = _safe_log(rows) + _safe_log(cols) - _safe_log(rows.sum(x, keepdim=True))
    g = (log - both).flatten(x, y)
    return (p.p * g).sum(dim).clamp(min=0), (torch.where(p.present, g, -_infinite_where(rows * cols, table, x, y)),)


COMPOSED = {
    "entropy": _entropy,
    "perplexity": _perplexity,
    "renyi_entropy": _renyi_entropy,
    "tsallis_entropy": _tsallis_entropy,
    "cross_entropy": _cross_entropy,
    "kl_divergence": _kl_divergence,
    "js_divergence": _js_divergence,
    "js_distance": _js_divergence,
    "conditional_entropy": _conditional_entropy,
    "mutual_information": _mutual_information,
}


def _composition(name):
    def composed(tensors, values, dim):
        rows = [_Distribution(x, values, dim) for x in tensors]
        value, partials = COMPOSED[name](*rows, values, dim)
        gradients = [row.gradient(g) for row, g in zip(rows, partials, strict=True)]
        unit = 1.0 if values["base"] is None or name == "perplexity" else math.log(values["base"])
        value, gradients = value / unit, [g / unit for g in gradients]
        if name == "js_distance":
            value = value.sqrt()
            factor = torch.where(value > 0, 0.5 / _where(value > 0, value, 1.0), torch.zeros_like(value)).unsqueeze(dim)
            gradients = [g * factor for g in gradients]
        return (value, *gradients)

    return composed


def _as_tables(tensor, cols):
    return tensor.view(tensor.shape[0], -1 if cols else 0, cols)


def _kernel(description):
    names = [param["name"] for param in description["params"]]

    def kernel(tensors, value, gradients, values):
        given = tuple(values[name] for name in names)
        if "cols" in values:
            tensors = [_as_tables(tensor, values["cols"]) for tensor in tensors]
            gradients = [None if gradient is None else _as_tables(gradient, values["cols"]) for gradient in gradients]
        wanted = (None if gradient is None else place(gradient) for gradient in gradients)
        numpy_measures._in_python(description["run"])(*map(place, tensors), place(value), *wanted, given)

    return kernel


def _self_information(p, values, dim):
    return _where(p.present, -p.log, math.inf)


def _self_information_pullback(x, grad, values, dim):
    if values["input"] == "scores" or (values.get("normalize") and values["input"] == "log_probs"):
        return torch.softmax(x, dim) * grad.sum(dim, keepdim=True) - grad
    if values["input"] == "log_probs":
        return -grad
    through_sum = grad.sum(dim, keepdim=True) / x.sum(dim, keepdim=True) if values["normalize"] else 0
    return through_sum - _times(grad, 1 / x)


def _times(grad, slope):
    """Their product, 0 where nobody asks for an infinite slope."""
    return grad * torch.where((grad == 0) & slope.isinf(), 0, slope)


def _binary_entropy(x, values, dim):
    if values["input"] == "scores":
        logs = torch.nn.functional.logsigmoid(torch.stack([x, -x]))
    elif values["input"] == "probs":
        logs = torch.stack([torch.log(x), torch.log1p(-x)])
    else:
        logs = torch.stack([x, torch.log(-torch.expm1(x))])
    return -torch.where(logs > -math.inf, logs.exp() * logs, 0).sum(0)


def _binary_entropy_pullback(x, grad, values, dim):
    if values["input"] == "scores":
        steep = torch.sigmoid(x) * torch.sigmoid(-x)
        return grad * torch.where(steep > 0, -x * steep, 0)
    if values["input"] == "probs":
        return _times(grad, torch.log1p(-x) - torch.log(x))
    p = x.exp()
    return _times(grad, torch.where(p > 0, p * (torch.log(-torch.expm1(x)) - torch.where(p > 0, x, 0)), 0))


PULLBACKS = {"self_information": _self_information_pullback, "binary_entropy": _binary_entropy_pullback}


class _Entries:
    """``torch.ops.entropic.NAME(p, parameters..., dim)``, a number for each entry, with rules for autograd, fake tensors and
    vmap. Its derivative is made of torch's operations and so has one itself."""

    def __init__(self, description):
        self.name, self.run = description["name"], numpy_measures._in_python(description["run"])
        self.params = [param["name"] for param in description["params"]]
        declared = "".join(f"{SCHEMA[param['kind']]} {param['name']}, " for param in description["params"])
        self.call = Registered(
            f"{self.name}(Tensor p, {declared}int dim) -> Tensor",
            self._on_cpu,
            self._composed,
            lambda p, *_: p.new_empty(p.shape),
            self._setup,
            self._backward,
            self._batched,
        )

    def _on_cpu(self, p, *arguments):
        *values, dim = arguments
        moved = p.movedim(dim, -1)
        rows = moved.contiguous().view(math.prod(moved.shape[:-1]), p.shape[dim])
        value = torch.empty_like(rows)
        self.run(place(rows), place(value), None, tuple(values))
        return value.view(moved.shape).movedim(-1, dim).contiguous()

    def _composed(self, p, *arguments):
        *values, dim = arguments
        named = {"normalize": False, **dict(zip(self.params, values, strict=True))}
        wide = p.to(torch.promote_types(p.dtype, torch.float32))
        if self.name == "binary_entropy":
            value = _binary_entropy(wide, named, dim)
        else:
            value = _self_information(_Distribution(wide, named, dim), named, dim)
        return (value / _unit(named)).to(p.dtype).contiguous()

    def _setup(self, ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.arguments = inputs[1:]

    def _backward(self, ctx, grad):
        (x,) = ctx.saved_tensors
        *values, dim = ctx.arguments
        named = dict(zip(self.params, values, strict=True))
        wide = torch.promote_types(x.dtype, torch.float32)
        dx = PULLBACKS[self.name](x.to(wide), grad.to(wide), named, dim) / _unit(named)
        return (dx.to(x.dtype), *(None for _ in ctx.arguments))

    def _batched(self, call, info, in_dims, *inputs):
        return call(inputs[0].movedim(in_dims[0], 0), *inputs[1:-1], inputs[-1] + 1), 0


def _unit(values):
    return 1.0 if values["base"] is None else math.log(values["base"])


def build(descriptions):
    """The public functions of one and of two distributions by name."""
    functions = {}
    for description in descriptions:
        family, name = description["family"], description["name"]
        if name == "joint_entropy":
            continue
        arguments = numpy_measures.ARGUMENTS[family]
        params = {param["name"]: SCHEMA[param["kind"]] for param in description["params"]}
        if family == "table":
            params["cols"] = "int"
        if family == "entry":
            operators[name] = _Entries(description)
        else:
            operators[name] = RowReduction(name, arguments, arguments, params, _kernel(description), _composition(name))
        declared = [numpy_functions.declare(param) for param in description["params"]]
        given = "".join(f"{param['name']}, " for param in description["params"])
        if family == "entry":
            axis = ", dim=None, axis=None" if numpy_measures.has_axis(description) else ""
            source = f"({{}}, *, {', '.join(declared)}{axis}):\n"
            source += f"    return _call_entries({name!r}, {{}}, ({given}), {'dim, axis' if axis else '-1, None'})\n"
        elif family == "table":
            source = f"({{}}, *, {', '.join(declared)}):\n    return _call_table({name!r}, pxy, ({given}))\n"
        else:
            source = f"({{}}, *, {', '.join(declared)}, dim=None, axis=None):\n"
            source += f"    return _call({name!r}, ({{}},), ({given}), dim, axis)\n"
        listed = ", ".join(arguments)
        namespace = {}
        exec(f"def {name}{source.replace('{}', listed)}", globals(), namespace)
        function = functions[name] = namespace[name]
        function.__module__ = "entropic.torch"
        function.__doc__ = _doc(description)
    return functions


operators: dict[str, RowReduction] = {}


def _call(name, tensors, values, dim, axis):
    dim = one_dim(name, dim, axis)
    for argument, x in zip("pq", tensors, strict=False):
        checked_dim(name, argument, x, dim)
    if len(tensors) == 2:
        one_device(name, dict(zip("pq", tensors, strict=True)))
        try:
            tensors = torch.broadcast_tensors(*tensors)
        except RuntimeError:
            shapes = [tuple(x.shape) for x in tensors]
            raise ValueError(
                f"{name}: q must have a shape that broadcasts with that of p, {shapes[0]}, got {shapes[1]}"
            ) from None
        wider = torch.promote_types(*(x.dtype for x in tensors))
        tensors = [x.to(wider) for x in tensors]
    dim = checked_dim(name, "p", tensors[0], dim)
    values, _ = numbers_and_rows(DESCRIPTIONS[name], values, "p", tensors[0], dim)
    return operators[name](tensors, values, (), dim)


def _call_entries(name, p, values, dim, axis):
    single = isinstance(p, Tensor) and p.dim() == 0
    p = p.unsqueeze(0) if single else p
    dim = checked_dim(name, "p", p, one_dim(name, dim, axis))
    values, _ = numbers_and_rows(DESCRIPTIONS[name], values, "p", p, dim)
    value = operators[name].call(p, *values, dim)
    return value.squeeze(0) if single else value


def _call_table(name, pxy, values):
    checked_dim(name, "pxy", pxy, -1)
    if pxy.dim() < 2:
        raise ValueError(f"{name}: pxy must have at least two axes, x in rows and y in columns, got shape {tuple(pxy.shape)}")
    flat = pxy.flatten(-2)
    values, _ = numbers_and_rows(DESCRIPTIONS[name], values, "pxy", flat, -1)
    return operators[name]((flat,), (*values, pxy.shape[-1]), (), flat.dim() - 1)


def joint_entropy(pxy, *, base=None, input="probs", normalize=False):
    """The entropy of both variables of a table together, of torch tensors: see entropic.joint_entropy."""
    checked_dim("joint_entropy", "pxy", pxy, -1)
    if pxy.dim() < 2:
        raise ValueError(
            f"joint_entropy: pxy must have at least two axes, x in rows and y in columns, got shape {tuple(pxy.shape)}"
        )
    return functions["entropy"](pxy.flatten(-2), base=base, input=input, normalize=normalize)


def _doc(description):
    arrays = ", ".join(numpy_measures.ARGUMENTS[description["family"]])
    dim = "dim : int, default -1\n    The dimension along which they are distributions; axis is another name for it.\n"
    dim = dim if numpy_measures.has_axis(description) else ""
    return f"""{description["summary"]}

    {description["formula"]}

As entropic.{description["name"]}, of torch tensors, and differentiable in {arrays}: {description["gradient"]}.

Parameters
----------
{arrays} : Tensor
    What input says, of float32, float64, float16 or bfloat16.
{numpy_functions.param_doc(description)}{dim}
Returns
-------
Tensor
    One number for each {"entry" if description["family"] == "entry" else "distribution"}.
"""


functions = build(DESCRIPTIONS.values())
joint_entropy.__module__ = "entropic.torch"
functions["joint_entropy"] = joint_entropy
