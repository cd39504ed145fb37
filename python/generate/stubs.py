"""Stubs of what is written by hand: signatures from the sources, types by the names of arguments."""

# Types by the names of arguments, where the source has none; all others are Any, or tensors. A default of None adds None.
_OF_ARRAYS = {
    "_DLPack | _Lists": "x p pxy q k v x_reference",
    "SupportsFloat": "order epsilon penalty tolerance mass temperature train_length kappa mass_tolerance ridge d base",
    "SupportsIndex": "axis position seed max_iterations bins ignore_index size",
    "SupportsIndex | _DLPack | Sequence[SupportsIndex]": "stream",
    "bool": "causal hard return_grad return_weights return_entropy param_grad header",
    "_Target": "gamma entropy joint marginal conditional",
    "_Map": "map",
    'Literal["sqrt", "entropy_invariant"] | SupportsFloat': "scale",
    'Literal["uniform", "quantile"]': "strategy",
    'Literal["error", "nan", "skip"]': "missing",
    "Callable[[Any], Any]": "f",
    "Sequence[_Step]": "steps",
    "_Labels": "labels",
    "_Rows": "sample_weight",
    "str": "key delimiter format",
}
_OF_TENSORS = {
    "float": "order tolerance penalty mass mass_tolerance train_length kappa dropout_p bound softcap z_loss target",
    "float | Tensor": "temperature gamma entropy perplexity joint marginal conditional epsilon margin",
    "int": "seed max_iterations dim axis top window in_features num_classes ignore_index",
    "int | Tensor": "stream",
    "bool": "hard causal is_causal enable_gqa return_weights return_entropy one_sided",
    "str": "loss reduction",
    "_MapName": "map",
    'Literal["sqrt", "entropy_invariant"] | float | Tensor': "scale",
    'Literal["scores", "probs", "log_probs"]': "input",
    "tuple[float, float]": "gamma_range",
    "Callable[[Tensor], Tensor]": "critic",
    "nn.Module | Tensor | Iterable[Tensor]": "parameters",
    "Generator": "generator",
    "Any": "projections params map_params device dtype",
}
# Results by the names of functions; "{}" is the kind of the first argument, and there is a stub for each.
RESULTS = {
    "attention_vjp": "tuple[Any, ...]",
    "linear_attention_vjp": "tuple[Any, Any, Any]",
    "normalize_density": "tuple[{}, Any]",
    **dict.fromkeys(("power_transform", "normalize_joint", "gumbel_softmax", "probs"), "{}"),
    **dict.fromkeys(("fit_temperature", "fit_target_entropy", "match_entropy", "brier_score"), "float"),
    "expected_calibration_error": "float",
    "reliability_bins": "ReliabilityBins",
    "fit_vector_scaling": "VectorScaling",
    "gamma_for_entropy": "GammaResult",
    "optimal_transport": "TransportResult",
    "sinkhorn": "SinkhornResult",
    "partial_transport": "PartialResult",
    "unbalanced_sinkhorn": "UnbalancedResult",
    "sinkhorn_barycenter": "BarycenterResult",
    "sliced_wasserstein": "SlicedResult",
}
