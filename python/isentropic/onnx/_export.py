"""From a module to a file: torch.export, our operators as standard ones, torch.onnx."""

import contextlib
import errno
import logging
import math
import os
import tempfile
import warnings

import numpy as np
import onnx_ir
import torch
from onnx_ir.passes import common as passes
from torch.utils import _pytree

from isentropic import _descriptions
from isentropic.onnx import _maps, _searches
from isentropic.torch._spec import result_type
from isentropic.torch.backends.reference import IMPLEMENTATIONS

# The version of ONNX's operators that a file requires.
OPSET = 18

_BY_REFERENCE = (
    *_descriptions.LOSSES,
    *(name for name in _descriptions.MEASURES if name not in _descriptions.OF_ONE_ROW),
    "attention",
    "attention_entropy",
    "linear_attention",
)


def _token_statistics(x, target, rows, temperature, top, dim):
    """With ONNX's TopK, which has the lower index first of equal numbers; torch's need not."""
    found, indices = IMPLEMENTATIONS["token_statistics"](x, target, rows, temperature, 0, dim)
    if top:
        x = x.to(found.dtype).movedim(dim, -1)
        indices = torch.where(x.isnan(), torch.inf, x).topk(top).indices
    return found, indices


def _log1p(x):
    """log(1 + x), for which ONNX has no operator, accurate for a small x."""
    y = 1 + x
    more = y - 1
    ratio = torch.where(more == x, 1.0, x / torch.where(more == 0, 1.0, more))
    return torch.where(more == 0, x, y.log() * ratio)


def _where(condition, x, y):
    """Of bools by logic: onnxruntime's Where has no bools."""
    if not (isinstance(x, torch.Tensor) and x.dtype == torch.bool):
        return NotImplemented
    return (condition & x) | (~condition & y)


def _in_float64(run):
    """A composition in float64 inside, like the maps: sums of float32 lose digits in long rows."""

    def decomposed(*arguments):
        dtype = result_type(next(one for one in arguments if isinstance(one, torch.Tensor)))
        found = run(*(_cast(one, torch.float64) for one in arguments))
        return _cast(found, dtype) if isinstance(found, torch.Tensor) else tuple(_cast(one, dtype) for one in found)

    return decomposed


def _cast(x, dtype):
    return x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def _decomposition(name):
    if name in _descriptions.MAPS:
        return _maps.decomposition(name)
    run = IMPLEMENTATIONS[name]
    return run if "attention" in name else _in_float64(run)


_DECOMPOSITIONS = {
    getattr(torch.ops.isentropic, name).default: _decomposition(name)
    for name in (*_maps.NAMES, *(name for name in _BY_REFERENCE if name in IMPLEMENTATIONS))
} | {
    torch.ops.isentropic.token_statistics.default: _in_float64(_token_statistics),
    torch.ops.aten.log1p.default: _log1p,
    torch.ops.aten.where.self: _where,
}


class _Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def export(module, args, path, *, dynamic_shapes=None):
    """Writes a module that uses ``isentropic.torch`` as an ONNX file of standard operators, which needs no isentropic to run.

    Parameters
    ----------
    module : torch.nn.Module or callable
        What to export, in its present mode (usually call ``module.eval()`` first). A function of tensors is accepted too.
    args : tuple
        Example arguments, which give the types and, except for `dynamic_shapes`, the shapes. A tensor that is given several
        times counts as several inputs.
    path : str or path-like
        The file to write. It is written completely or not at all.
    dynamic_shapes : as of torch.export.export, default None
        Which axes may have other sizes when the file runs. The number of rows and their length both may.

    Raises
    ------
    ValueError
        Naming each operation that ONNX has no operators for.
    TypeError
        module is neither a module nor a function.
    FileNotFoundError
        The folder of path does not exist.

    Notes
    -----
    Maps, log_softmax, logsumexp, losses, measures, attention and token_statistics are exported, for the forward pass. All but
    attention are computed in float64 inside. They have isentropic's rules for -inf, +inf, NaN and rows without a score. A file
    cannot raise errors for wrong numbers, such as a negative probability: see docs/howto/onnx.md.

    Examples
    --------
    >>> isentropic.onnx.export(et.Entmax(alpha=1.3), (torch.zeros(2, 5),), "entmax.onnx")  # doctest: +SKIP
    """
    if isinstance(args, torch.Tensor):
        args = (args,)
    # A file that cannot be written is refused before the work.
    path = os.fspath(path)
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise FileNotFoundError(errno.ENOENT, "onnx.export: the folder of path does not exist", path)
    if not callable(module):
        raise TypeError(f"onnx.export: module must be a torch.nn.Module or a function of tensors, got {type(module).__name__}")
    if not isinstance(module, torch.nn.Module):
        module = _Function(module)
        dynamic_shapes = None if dynamic_shapes is None else (tuple(dynamic_shapes),)
    with torch.no_grad(), _quiet():
        exported = torch.export.export(module, _distinct(tuple(args)), dynamic_shapes=dynamic_shapes)
        _refuse_what_is_left(exported)
        table = torch.export.default_decompositions()
        table.update(_DECOMPOSITIONS)
        exported = exported.run_decompositions(table)
        _with_all_digits(exported.graph_module)
        program = torch.onnx.export(
            exported,
            dynamo=True,
            opset_version=OPSET,
            custom_translation_table=_searches.TRANSLATIONS,
            verbose=False,
        )
    _without_functions(program.model)
    _save(program, path)


def _parts(value):
    """Numbers of float32 whose sum times a power of 2 is the value, and the exponent."""
    fraction, exponent = math.frexp(value)
    parts = []
    while fraction and len(parts) < 3:
        parts.append(float(np.float32(fraction)))
        fraction -= parts[-1]
    return parts, exponent


def _number(graph, value, like):
    """A node for a float64 number; `like` is a tensor of the export."""
    aten, (parts, exponent) = torch.ops.aten, _parts(value)

    def node(target, *arguments, **more):
        one = graph.call_function(target, arguments, more)
        with like.fake_mode:
            one.meta["val"] = torch.empty((), dtype=torch.float64)
        return one

    found = node(aten.scalar_tensor.default, parts[0], dtype=torch.float64)
    for part in parts[1:]:
        found = node(aten.add.Tensor, found, part)
    while exponent:
        step = max(-100, min(100, exponent))
        found, exponent = node(aten.mul.Tensor, found, 2.0**step), exponent - step
    return found


def _with_all_digits(module):
    """torch.onnx rounds plain numbers to float32. In float64 others become sums of such numbers."""
    aten = torch.ops.aten
    filled = {aten.scalar_tensor.default, aten.full.default, aten.full_like.default}
    of_tensors = {getattr(aten, name).Scalar: getattr(aten, name).Tensor for name in ("lt", "le", "gt", "ge", "eq", "ne")}
    of_tensors |= {aten.clamp.default: aten.clamp.Tensor}
    graph = module.graph
    for node in list(graph.nodes):
        like = node.meta.get("val")
        wide = [one for one in (like, *(one.meta.get("val") for one in node.all_input_nodes)) if isinstance(one, torch.Tensor)]
        long = [one for one in node.args if isinstance(one, float) and math.isfinite(one) and float(np.float32(one)) != one]
        if not long or all(one.dtype != torch.float64 for one in wide):
            continue
        with graph.inserting_before(node):
            numbers = {value: _number(graph, value, wide[0]) for value in long}
        if node.target in filled:
            node.args = tuple(1.0 if one in numbers else one for one in node.args)
            with graph.inserting_after(node):
                scaled = graph.call_function(aten.mul.Tensor, (node, numbers[long[0]]))
            scaled.meta["val"] = like
            node.replace_all_uses_with(scaled, delete_user_cb=lambda user, scaled=scaled: user is not scaled)
        else:
            node.args = tuple(numbers.get(one, one) if isinstance(one, float) else one for one in node.args)
            node.target = of_tensors.get(node.target, node.target)
    module.recompile()


def _distinct(args):
    """The arguments with a copy of each tensor that came before: torch.export takes one object for one input."""
    seen = set()

    def one(x):
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) in seen:
            return x.clone()
        seen.add(id(x))
        return x

    return _pytree.tree_map(one, args)


def _without_functions(model):
    """Inlines the functions that searches share: torch inlines the searches themselves, but not the functions that they
    call."""
    function = onnx_ir.from_proto(_searches.Searched.to_function_proto())
    model.functions[function.identifier()] = function
    passes.InlinePass()(model)
    model.functions.pop(function.identifier(), None)
    model.opset_imports.pop(function.domain, None)


def _refuse_what_is_left(exported):
    wrong = []
    for part in exported.graph_module.modules():
        for node in getattr(part, "graph", torch.fx.Graph()).nodes:
            if getattr(node.target, "namespace", None) == "isentropic":
                name = node.target._schema.name.split("::")[1]
                if node.target not in _DECOMPOSITIONS:
                    wrong.append(name)
                elif (given := _arguments(node)).get("kind") == "sphere" and given["margin_rows"] is not None:
                    wrong.append(f"{name} of kind sphere with a margin that is a tensor")
                elif name != "perturb_max" and given.get("noise", "gumbel") != "gumbel":
                    wrong.append(f"{name} of perturb_max with noise={given['noise']!r}")
    if wrong:
        raise ValueError(
            f"onnx.export: {', '.join(dict.fromkeys(wrong))} cannot be exported: ONNX has no operators for it; "
            "maps, losses, measures, attention and token_statistics can be"
        )


def _arguments(node):
    found = dict(zip((one.name for one in node.target._schema.arguments), node.args, strict=False)) | dict(node.kwargs)
    if "row_names" in found:  # a map as arguments of another operator
        found |= _descriptions.map_params(*(found[key] for key in ("map", "names", "values")), [], None)
    return found


@contextlib.contextmanager
def _quiet():
    """Silences torch, which lists its unused operators in every export."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _save(program, path):
    """Saves under a temporary name and renames, together with the file of weights of a large model."""
    folder, name = os.path.split(os.path.abspath(path))
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}.") as beside:
        program.save(os.path.join(beside, name))
        for one in sorted(os.listdir(beside), key=lambda one: one == name):
            os.replace(os.path.join(beside, one), os.path.join(folder, one))
