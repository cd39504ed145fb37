"""Stubs of what is written by hand: signatures from the sources, types by the names of arguments, or by their defaults."""

import ast

from source import head

# Types by the names of arguments, where the source has none. Others have that of their default; the rest are Any, or tensors.
# A default of None adds None.
_OF_ARRAYS = {
    "_DLPack | _Lists": "x p pxy pxyz q k v x_reference counts table",
    "SupportsFloat": "order penalty tolerance mass temperature train_length softcap mass_tolerance ridge d base period beta",
    "SupportsIndex": "axis position seed max_iterations bins ignore_index size outcomes m n iterations",
    "SupportsIndex | _DLPack | Sequence[SupportsIndex]": "stream",
    "bool": "causal hard return_weights return_entropy return_grad return_std param_grad header normalize classwise debiased",
    'Literal["l1", "l2", "max"]': "norm",
    'Literal["arithmetic", "geometric", "min", "max"]': "normalized",
    'Literal["plugin", "miller_madow", "jackknife", "grassberger", "chao_shen", "james_stein", "nsb"]': "estimator",
    "_Target": "gamma entropy perplexity joint marginal conditional",
    "_Map": "map",
    'Literal["sqrt", "entropy_invariant", "log_n"] | SupportsFloat | _DLPack | _Lists': "scale",
    "SupportsFloat | _DLPack | _Lists": "kappa epsilon",
    'Literal["euclidean", "sqeuclidean", "cosine", "cityblock"]': "metric",
    'Literal["uniform", "quantile"]': "strategy",
    'Literal["error", "nan", "skip"]': "missing",
    'Literal["scores", "probs", "log_probs"]': "input",
    "Callable[[Any], Any]": "f",
    "Sequence[_Step]": "steps",
    "_DLPack | _Lists | Sequence[str] | int": "labels",
    "_DLPack | _Lists | float": "sample_weight",
    "str": "key delimiter thousands format",
    "str | Sequence[str]": "na",
    "tuple[SupportsFloat, SupportsFloat]": "gamma_range",
    "str | os.PathLike[str]": "path",
    "Counts": "other",
}
_OF_TENSORS = {
    "float": "order tolerance penalty mass mass_tolerance train_length dropout_p bound softcap z_loss period base",
    "float | Tensor": "temperature beta gamma entropy perplexity joint marginal conditional epsilon margin kappa",
    "int": "max_iterations dim axis top window in_features num_classes ignore_index heads m n iterations size",
    "int | Tensor": "stream seed position",
    "int | Sequence[int]": "shape",
    "Tensor | None": "draft",
    'Literal["euclidean", "sqeuclidean", "cosine", "cityblock"]': "metric",
    "bool": "hard causal is_causal enable_gqa return_weights return_entropy one_sided",
    "str": "loss reduction divergence tail",
    "_MapName": "map",
    'Literal["sqrt", "entropy_invariant", "log_n"] | float | Tensor': "scale",
    'Literal["scores", "probs", "log_probs"]': "input",
    "tuple[float, float]": "gamma_range",
    "Callable[[Tensor], Tensor]": "critic f",
    "nn.Module | Tensor | Iterable[Tensor]": "parameters",
    "Generator": "generator",
    "Any": "projections params map_params device dtype tokens steps",
    "dict[str, Any]": "state",
}
ARRAYS, TENSORS = (
    {name: kind for kind, names in table.items() for name in names.split()} for table in (_OF_ARRAYS, _OF_TENSORS)
)
# Results by the names of functions; "{}" is the kind of the first argument, and there is a stub for each.
RESULTS = {
    "attention_vjp": "tuple[Any, ...]",
    "linear_attention_vjp": "tuple[Any, Any, Any]",
    "normalize_density": "tuple[{}, Any]",
    **dict.fromkeys(("power_transform", "normalize_joint", "gumbel_softmax", "probs"), "{}"),
    **dict.fromkeys(("fit_temperature", "fit_target_entropy", "match_entropy", "brier_score"), "float"),
    "expected_calibration_error": "float",
    "contingency_table": "ContingencyTable",
    "maximum_entropy": "MaximumEntropyResult",
    "mutual_information_of_labels": "np.float64",
    "mutual_information_scores": "NDArray[np.float64]",
    "reliability_bins": "ReliabilityBins",
    "fit_vector_scaling": "VectorScaling",
    "gamma_for_entropy": "GammaResult",
    "optimal_transport": "TransportResult",
    "sinkhorn": "SinkhornResult",
    "partial_transport": "PartialResult",
    "unbalanced_sinkhorn": "UnbalancedResult",
    "sinkhorn_barycenter": "BarycenterResult",
    "sliced_wasserstein": "SlicedResult",
    **dict.fromkeys(("token_statistics", "linear_token_statistics"), "TokenStatistics"),
    **dict.fromkeys(("add", "merge", "__add__"), "Counts"),
    **dict.fromkeys(("entropy", "kl_divergence", "js_divergence", "mutual_information"), "np.float64"),
    "weights": "NDArray[np.float64]",
    "steps": "tuple[_Step, ...]",
    "seed": "int",
    "fit": "Self",
    **dict.fromkeys(("predict", "predict_proba"), "NDArray[Any]"),
    "write": "None",
}
OF_TENSORS = {
    "normalize_density": "tuple[Tensor, Tensor]",
    "clip_weights": "None",
    "reset_parameters": "None",
    "extra_repr": "str",
    "maximum_entropy": "Any",
}
KINDS = (("_Integers", "NDArray[np.float64]"), ("_Array", "_Array"), ("_Lists", "NDArray[np.float64]"))

# Results that depend on a flag: the types of flags, with the result.
_NO, _YES = "Literal[False]", "Literal[True]"
FLAGS = {
    "wasserstein_1d": (({"return_grad": _NO}, "Any"), ({"return_grad": _YES}, "tuple[Any, Any, Any]")),
    "wasserstein_histogram": (({"return_grad": _NO}, "Any"), ({"return_grad": _YES}, "tuple[Any, Any, Any]")),
    "entropy_invariant_scale": (
        ({"n": "float"}, "float"),
        ({"n": "_Integers | _Lists"}, "NDArray[np.float64]"),
        ({"n": "_Array"}, "_Array"),
    ),
    "entropy_of_counts": (({"return_std": _NO}, "Any"), ({"return_std": _YES}, "tuple[Any, Any]")),
    "conditional_mutual_information": (({"return_grad": _NO}, "Any"), ({"return_grad": _YES}, "tuple[Any, Any]")),
    "read": (({"names": _NO}, "NDArray[np.floating[Any]]"), ({"names": _YES}, "_Table")),
}
FLAGS_OF_TENSORS = {
    "linear_loss": (({"target": "Tensor | tuple[Tensor, Tensor] | None"}, "Tensor"),),
    "attention": (
        ({"return_weights": _NO, "return_entropy": _NO}, "Tensor"),
        ({"return_weights": _YES}, "tuple[Tensor, ...]"),
        ({"return_weights": _NO, "return_entropy": _YES}, "tuple[Tensor, Tensor]"),
    ),
}
BASES = {
    "Configured": "nn.Module",
    "Loss": "_Loss",
    "TeacherLoss": "_TeacherLoss",
    "BaseEstimator": "_Estimator",
    "ClassifierMixin": "_Classifier",
    "TransformerMixin": "_Transformer",
    "OneToOneFeatureMixin": "_OneToOneFeature",
}
# The bases, in stubs, of classes that are called with other arguments than their base.
OTHER_BASES = {"SparseDistillationLoss": ["_SparseTeacherLoss"]}


def of_file(file, tensors=False):
    """The stubs of what a file defines as documented, and of the classes that are bases."""
    tree = ast.parse(file.read_text())
    public = [one for one in tree.body if any("documented" in ast.unparse(by) for by in getattr(one, "decorator_list", ()))]
    bases = {ast.unparse(base) for one in public if isinstance(one, ast.ClassDef) for base in one.bases}
    for one in tree.body:
        if isinstance(one, ast.ClassDef) and (one in public or one.name in bases):
            yield of_class(one, tensors)
        elif one in public:
            yield of_function(one, tensors)


def of_class(node, tensors):
    bases = OTHER_BASES.get(node.name) or [BASES.get(ast.unparse(base), ast.unparse(base)) for base in node.bases]
    lines = [ast.unparse(one) for one in node.body if isinstance(one, ast.AnnAssign)]
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and (one.name[0] != "_" or one.name in ("__init__", "__add__")):
            lines += ["@property"] * any(ast.unparse(by) == "property" for by in one.decorator_list)
            lines += of_function(one, tensors).rstrip("\n").split("\n")
    body = "".join(f"    {line}\n" for line in lines) or "    pass\n"
    return f"class {node.name}({', '.join(bases)}):\n{body}"


def of_function(node, tensors):
    result = ast.unparse(node.returns) if node.returns else "None" if node.name == "__init__" else ""
    result = result or (tensors and OF_TENSORS.get(node.name)) or RESULTS.get(node.name, "Tensor" if tensors else "Any")
    result = "Tensor" if tensors and "{}" in result else result
    first = next((one.arg for one in node.args.args if one.arg != "self"), "")
    ways = (FLAGS_OF_TENSORS if tensors else FLAGS).get(node.name, (({}, result),))
    if "{}" in result:
        ways = [({first: given}, result.format(kind)) for given, kind in KINDS]
    overload = "@overload\n" * (len(ways) > 1)
    return "".join(f"{overload}{head(node.name, _typed(node.args, given, tensors))} -> {of}: ...\n" for given, of in ways)


def _typed(args, given, tensors):
    """The parts of a signature with types; `given` are those of some arguments."""
    first = len(args.args) - len(args.defaults)
    parts = [
        _argument(one, args.defaults[k - first] if k >= first else None, given, tensors) for k, one in enumerate(args.args)
    ]
    if args.vararg:
        parts.append(f"*{_argument(args.vararg, None, given, tensors)}")
    elif args.kwonlyargs:
        parts.append("*")
    pairs = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    parts += [_argument(one, default, given, tensors) for one, default in pairs]
    return [*parts, *([f"**{args.kwarg.arg}: Any"] if args.kwarg else [])]


def _argument(argument, default, given, tensors):
    name = argument.arg
    if name == "self":
        return name
    value = getattr(default, "value", None)  # of a constant
    of_default = type(value).__name__ if isinstance(value, (bool, str, float)) else ""
    default = ast.unparse(default) if default is not None else ""
    known = (TENSORS if tensors else ARRAYS).get(name) or of_default or ("Tensor" if tensors else "Any")
    kind = ast.unparse(argument.annotation) if argument.annotation else known
    kind += " | None" * (default == "None" and kind != "Any" and not kind.endswith(" | None"))
    if name in given:
        kind, default = given[name], "" if given[name] == _YES else default
    return f"{name}: {kind}" + (
        f" = {default if default.isidentifier() or default[:1] not in '(' else '...'}" if default else ""
    )
