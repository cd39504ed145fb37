"""A flag takes a bool alone, in every function; a number of a function of tensors takes no tensor whose gradient it loses."""

import inspect

import numpy as np
import pytest

import isentropic

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 3, 5))
P, Q = isentropic.softmax(X), isentropic.softmax(Y)
LABELS = np.array([0, 1, 2])
POINTS, OTHERS, WEIGHTS, HEAD = (RNG.normal(size=shape) for shape in ((4, 2), (3, 2), (5, 4), (6, 5)))
A, B, COST = np.full(4, 1 / 4), np.full(3, 1 / 3), RNG.uniform(size=(4, 3))
TABLE = np.full((3, 2), 1 / 6)
CLASSES, LOGS = np.array([[0, 1], [1, 2], [2, -1]]), np.full((3, 2), -1.0)

# Arrays and required parameters by function; those with arrays of the same kind together.
GIVEN = {
    "softmax sparsemax entmax taylor_softmax sigsoftmax perturb_max log_softmax logsumexp mean_field_entropy "
    "doubly_stochastic": ((X,), {}),
    "sample gumbel_softmax": ((X,), {"seed": 1}),
    "top_k_softmax soft_top_k": ((X,), {"k": 2}),
    "top_p_softmax min_p_softmax": ((X,), {"p": 0.5}),
    "entropy_normalize gamma_for_entropy": ((X,), {"entropy": 1.0}),
    "entropy_clip": ((X,), {"min_entropy": 1.0}),
    "entropy perplexity varentropy self_information binary_entropy": ((P,), {}),
    "renyi_entropy tsallis_entropy": ((P,), {"alpha": 2.0}),
    "hill_number": ((P,), {"order": 2.0}),
    "cross_entropy kl_divergence js_divergence js_distance total_variation hellinger_distance chi_squared_divergence "
    "jeffreys_divergence wasserstein_1d wasserstein_histogram": ((P, Q), {}),
    "renyi_divergence alpha_divergence": ((P, Q), {"alpha": 2.0}),
    "joint_entropy conditional_entropy mutual_information normalized_mutual_information variation_of_information": (
        (TABLE,),
        {},
    ),
    "conditional_mutual_information": ((TABLE[None],), {}),
    "softmax_loss sparsemax_loss entmax_loss smooth_accuracy_loss surrogate_loss token_statistics": ((X, LABELS), {}),
    "top_k_softmax_loss": ((X, LABELS), {"k": 2}),
    "top_p_softmax_loss": ((X, LABELS), {"p": 0.5}),
    "margin_softmax_loss": ((np.tanh(X), LABELS), {}),
    "multilabel_softmax_loss": ((X, (Y > 0) * 1.0), {}),
    "distillation_loss jsd_loss": ((X, Y), {}),
    "sparse_distillation_loss": ((X, CLASSES, LOGS), {}),
    "attention linear_attention scaled_dot_product_attention": ((X, Y, Y), {}),
    "linear_token_statistics linear_loss": ((X, HEAD, LABELS), {}),
    "power_transform": ((P,), {"gamma": 2.0}),
    "normalize_density": ((P, np.ones(5)), {"entropy": 1.0}),
    "normalize_joint": ((np.array([[0.1, 0.2], [0.3, 0.4]]),), {"joint": 1.0}),
    "sinkhorn": ((A, B, COST), {"epsilon": 0.1}),
    "optimal_transport": ((A, B, COST), {}),
    "partial_transport": ((A, B, COST), {"mass": 0.5}),
    "unbalanced_sinkhorn": ((A, B, COST), {"epsilon": 0.1, "penalty": 1.0}),
    "sinkhorn_divergence": ((POINTS, OTHERS), {"epsilon": 0.1}),
    "unbalanced_sinkhorn_divergence": ((POINTS, OTHERS), {"epsilon": 0.1, "penalty": 1.0}),
    "wasserstein sliced_wasserstein": ((POINTS, OTHERS), {}),
    "sinkhorn_barycenter": ((P, WEIGHTS**2), {"epsilon": 0.5}),
    "keys_seen": ((3, 4), {}),
    "entropy_of_counts": ((np.array([1, 2]),), {}),
    "expected_calibration_error": ((P, LABELS), {}),
}
CALLS = {name: given for names, given in GIVEN.items() for name in names.split()}
# Values of numbers that are None unless given, and what they need.
NUMBERS = {
    "beta": (0.5, {"divergence": "jsd"}),
    "base": (2.0, {}),
    "softcap": (2.0, {}),
    "kappa": (0.5, {"scale": "log_n"}),
    "margin": (0.3, {}),
    "period": (9.0, {}),
    "mass_tolerance": (1e-6, {}),
    "tolerance": (1e-6, {}),
    "max_entropy": (1.5, {}),
}


def parameters(function):
    return inspect.signature(function).parameters.items()


def refuses_what_is_no_bool(function, args, given):
    for name, parameter in parameters(function):
        if isinstance(parameter.default, bool):
            for wrong in ("no", 1, 2.5, 0, None):
                with pytest.raises(TypeError, match=rf"^{function.__name__}: {name}.* must be a bool, got"):
                    function(*args, **{**given, name: wrong})


@pytest.mark.parametrize("name", [name for name in CALLS if hasattr(isentropic, name)])
def test_flags(name):
    refuses_what_is_no_bool(getattr(isentropic, name), *CALLS[name])


@pytest.mark.parametrize("name", CALLS)
def test_flags_and_numbers_of_torch(name):
    torch = pytest.importorskip("torch")
    import isentropic.torch as et

    if not hasattr(et, name):
        pytest.skip("not a function of tensors")
    function, (args, given) = getattr(et, name), CALLS[name]
    args = [torch.tensor(x) if isinstance(x, np.ndarray) else x for x in args]
    refuses_what_is_no_bool(function, args, given)

    def moving(found):
        return [found] if isinstance(found, torch.Tensor) else [x for x in found or () if isinstance(x, torch.Tensor)]

    for param, described in parameters(function):
        value, more = NUMBERS.get(param, (given.get(param, described.default), {}))
        if param not in dict(parameters(function)) or isinstance(value, bool) or not isinstance(value, float):
            continue
        more = more if name != "jsd_loss" else {}
        number = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        try:
            found = [x for x in moving(function(*args, **{**given, **more, param: number})) if x.requires_grad]
        except (TypeError, ValueError) as error:
            assert str(error).startswith(f"{name}: {param}"), error
            continue
        (slope,) = torch.autograd.grad(sum(x.sum() for x in found), number, allow_unused=True)
        assert slope is not None, param


def test_flags_of_jax():
    pytest.importorskip("jax")
    import isentropic.jax as ej

    for function, argument in ((ej.logsumexp, "keepdims"), (ej.attention, "return_weights"), (ej.attention, "return_entropy")):
        args = (X,) if function is ej.logsumexp else (X, Y, Y)
        with pytest.raises(TypeError, match=rf"^{function.__name__}: {argument} must be a bool, got str"):
            function(*args, **{argument: "no"})
