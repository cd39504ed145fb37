"""Each error: its type and its message. Nothing is written before it is raised."""

import numpy as np
import pytest

import isentropic
from cases import OPERATIONS, SHAPED, call, call_vjp, each, torch_or_skip

X = np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]])


@each(OPERATIONS)
def test_parameter_out_of_range(operation):
    name = operation["name"]
    for param in operation["params"]:
        if param["kind"] != "float":
            continue
        wrong = [np.nan, np.copysign(np.nan, -1)] + ([] if param["above"] is None else [param["above"], param["above"] - 1])
        wrong += [np.inf, 10**400] if param["up_to"] is None else [np.nextafter(param["up_to"], np.inf)]
        for value in wrong:
            got = "inf" if isinstance(value, int) and value > 10**300 else str(float(value)).removesuffix(".0")
            expected = f"^{name}: {param['name']} must be .*, got {got}"
            with pytest.raises(ValueError, match=expected):
                call(operation, X, **{param["name"]: value})
            with pytest.raises(ValueError, match=expected):
                call(operation, X[:0], **{param["name"]: value})
            y = call(operation, X)
            with pytest.raises(ValueError, match=expected):
                call_vjp(operation, X, y, y, **{param["name"]: value})
            if not operation["reduces"]:
                out = np.full_like(X, 7.0)
                with pytest.raises(ValueError, match=expected):
                    call(operation, X, out=out, **{param["name"]: value})
                assert (out == 7.0).all()


@each(OPERATIONS)
def test_parameter_of_wrong_type(operation):
    for param in operation["params"]:
        expected = {"float": "a number", "int": "an integer", "optional float": "a number", "name": "a string"}[param["kind"]]
        if param["per_row"]:
            expected += " or an array of numbers"
        for value in (object(), 1j, "1" if param["kind"] != "name" else 1, *([] if param["per_row"] else [[], [1.0]])):
            with pytest.raises(TypeError, match=f"^{operation['name']}: {param['name']} must be {expected}, got "):
                call(operation, X, **{param["name"]: value})


@each(OPERATIONS)
def test_parameter_of_any_kind_of_number(operation):
    for param in operation["params"]:
        if param["kind"] != "float":
            continue
        want = call(operation, X, **{param["name"]: 1.0})
        for one in (1, True, np.float32(1), np.float64(1), np.int8(1), np.array(1.0)):
            np.testing.assert_array_equal(call(operation, X, **{param["name"]: one}), want)


@each(OPERATIONS)
def test_wrong_keyword_is_named(operation):
    with pytest.raises(TypeError, match="'temprature'"):
        call(operation, X, temprature=1.0)
    with pytest.raises(TypeError, match="positional"):
        call(operation, X, 1.0)
    with pytest.raises(TypeError, match="positional"):
        call_vjp(operation, x=X, y=X, grad=X)


@each(OPERATIONS)
def test_axis(operation):
    y = call(operation, X)
    for axis in (2, -3, 10**30):
        for run in (lambda axis=axis: call(operation, X, axis=axis), lambda axis=axis: call_vjp(operation, X, y, y, axis=axis)):
            with pytest.raises(np.exceptions.AxisError, match="out of bounds for array of dimension 2") as caught:
                run()
            assert isinstance(caught.value, (ValueError, IndexError))
            assert str(caught.value).startswith(operation["name"])
    for axis, got in (((0, 1), "tuple"), (None, "NoneType"), (1.0, "float"), ("0", "str"), (True, "bool")):
        with pytest.raises(TypeError, match=f"axis must be one integer .*reshape them into one first.*, got {got}"):
            call(operation, X, axis=axis)
    np.testing.assert_array_equal(call(operation, X, axis=np.int64(-1)), y)


@each(OPERATIONS)
def test_no_axis_at_all(operation):
    for x in (1.0, 3, np.float32(2), np.array(2.0)):
        with pytest.raises(ValueError, match=f"{operation['name']}: x must have at least one axis, got a single number"):
            call(operation, x)


@each(OPERATIONS)
@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (np.zeros(3, complex), "complex128"),
        (np.zeros(3, object), "object"),
        (np.array(["a", "b"]), "<U1"),
        (["a", "b"], "<U1"),
        (np.zeros(3, "M8[s]"), "datetime64"),
        (np.zeros(3, [("a", float)]), "'a'"),
        (np.zeros(3, np.longdouble), "longdouble|float128"),
        (None, "object"),
        ({1.0, 2.0}, "object"),
    ],
)
def test_dtype_is_named(operation, x, dtype):
    with pytest.raises(TypeError, match=f"^{operation['name']}: x must be of float16, .* got dtype .*({dtype})"):
        call(operation, x)


@each(OPERATIONS)
def test_masked_array(operation):
    masked = np.ma.masked_array([0.0, 1.0], [True, False])
    with pytest.raises(TypeError, match=r"x is a masked array; fill it first.*x.filled\(-numpy.inf\)"):
        call(operation, masked)
    with pytest.raises(TypeError, match=r"_vjp: grad is a masked array"):
        call_vjp(operation, np.zeros(2), np.zeros(2), masked)


@each(SHAPED)
def test_out(operation):
    name = operation["name"]
    read_only = np.empty_like(X)
    read_only.flags.writeable = False
    for out, error, text in (
        (np.empty((3, 2)), ValueError, r"out must have the shape of x, \(2, 3\), got \(3, 2\)"),
        (np.empty(3), ValueError, r"out must have the shape of x, \(2, 3\), got \(3,\)"),
        (np.empty((2, 3), np.float32), ValueError, "out must be of dtype float64, as the result is, got float32"),
        (np.empty((2, 3), int), ValueError, "out must be of dtype float64, as the result is, got int64"),
        (read_only, ValueError, "out must be writable, got a read-only array"),
        ([[0.0] * 3] * 2, TypeError, "out must be an array, got list"),
        (np.ma.masked_array(np.empty((2, 3))), TypeError, "out is a masked array"),
    ):
        with pytest.raises(error, match=f"^{name}: {text}"):
            call(operation, X, out=out)
        with pytest.raises(error, match=f"^{name}: {text}"):
            call(operation, X.astype(int), out=out)
    frozen = X.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match=f"{name}: out must be writable"):
        call(operation, frozen, out=frozen)
    np.testing.assert_array_equal(frozen, X)


@each(OPERATIONS)
def test_shapes_given_to_vjp(operation):
    y = call(operation, X)
    name = operation["name"] + "_vjp"
    for wrong in (np.zeros(7), np.zeros((1, 2, 3)), np.zeros((2, 2)), 1.0, np.zeros((3, 2))):
        with pytest.raises(ValueError, match=rf"^{name}: y must have the shape of x.*\(2, 3\), got \("):
            call_vjp(operation, X, wrong, y)
        with pytest.raises(ValueError, match=rf"^{name}: grad must have the shape of x.*\(2, 3\), got \("):
            call_vjp(operation, X, y, wrong)


def test_threads_and_targets():
    with pytest.raises(ValueError, match="set_num_threads: n must be 0 or more, got -1"):
        isentropic.set_num_threads(-1)
    with pytest.raises(TypeError, match="set_num_threads: n must be an integer, got str"):
        isentropic.set_num_threads("2")
    with pytest.raises(TypeError, match="set_num_threads: n must be an integer, got NoneType"):
        isentropic.set_num_threads(None)
    with pytest.raises(ValueError, match=r"force_simd_target: name must be one of .*, got 'MMX'"):
        isentropic.force_simd_target("MMX")
    with pytest.raises(TypeError, match="force_simd_target: name must be a string, got int"):
        isentropic.force_simd_target(2)


# What a beginner writes, and the whole sentence that answers it.
RAGGED = [[1.0, 2.0], [3.0]]
P = np.array([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])
NUMBERS = "of float16, float32, float64, an integer type or bool, got dtype"
SUM = '(normalize=True divides by the sum, input="scores" takes scores)'
MAPS = ", ".join(operation["name"] for operation in OPERATIONS if operation["family"] == "map")
TOLD = {
    # What is no array of numbers.
    "softmax('scores.csv')": (
        f"softmax: x must be {NUMBERS} <U10; numpy.asarray(x, float) makes numbers of text, isentropic.read reads a file"
    ),
    "entmax([['a', 1.0]])": (
        f"entmax: x must be {NUMBERS} <U32; numpy.asarray(x, float) makes numbers of text, isentropic.read reads a file"
    ),
    "softmax([1, None, 2])": (
        f"softmax: x must be {NUMBERS} object; numpy.asarray(x, float) makes numbers of objects that are some"
    ),
    "softmax({'a': 1.0})": (
        f"softmax: x must be {NUMBERS} object; numpy.asarray(x, float) makes numbers of objects that are some"
    ),
    "softmax(X.astype(complex))": f"softmax: x must be {NUMBERS} complex128",
    "softmax(RAGGED)": (
        "softmax: x must be an array, got lists of unequal length; pad them to one length, with -inf for what is absent"
    ),
    "entropy(RAGGED)": "entropy: p must be an array, got lists of unequal length; pad them to one length",
    "entmax(X, alpha=RAGGED)": "entmax: alpha must be an array, got lists of unequal length; pad them to one length",
    "softmax_loss(X, RAGGED)": "softmax_loss: target must be an array, got lists of unequal length; pad them to one length",
    "fit_temperature(X, RAGGED)": (
        "fit_temperature: labels must be an array, got lists of unequal length; pad them to one length"
    ),
    "softmax(3.0)": "softmax: x must have at least one axis, got a single number",
    # Parameters.
    "softmax(X, axis=2)": "softmax: axis 2 is out of bounds for array of dimension 2",
    "softmax(X, temperature=0)": "softmax: temperature must be above 0 and finite, got 0",
    "softmax(X, temperature=-1)": "softmax: temperature must be above 0 and finite, got -1",
    "softmax(X, temperature=None)": "softmax: temperature must be a number or an array of numbers, got NoneType",
    "softmax(X, temprature=1)": "softmax() got an unexpected keyword argument 'temprature'",
    "entmax(X, alpha='1.5')": "entmax: alpha must be a number or an array of numbers, got str",
    "entmax(X, alpha=[1.5, 2])": (
        "entmax: alpha must be a number or an array that broadcasts to (2, 1), x's shape with 1 for axis 1, got shape (2,)"
    ),
    "top_k_softmax(X)": "top_k_softmax() missing 1 required keyword-only argument: 'k'",
    "top_k_softmax(X, k=0)": "top_k_softmax: k must be above 0, got 0",
    "top_k_softmax(X, k=2.0)": "top_k_softmax: k must be an integer, got float",
    "top_p_softmax(X, p=90)": "top_p_softmax: p must be above 0 and at most 1, got 90",
    "perturb_max(X, noise='gaussian')": (
        "perturb_max: noise must be one of gumbel, normal, logistic, laplace, exponential, uniform, got 'gaussian'"
    ),
    "entropy_normalize(X)": "entropy_normalize: exactly one of entropy and perplexity must be given",
    "entropy_normalize(X, entropy=1, input='p')": "entropy_normalize: input must be one of scores, probs, log_probs, got 'p'",
    "gamma_for_entropy(X, entropy=1, gamma_range=5)": (
        "gamma_for_entropy: gamma_range must be a pair of numbers (least, largest), got 5"
    ),
    "power_transform(P, gamma=-1)": "power_transform: gamma must be at least 0 (inf is allowed), got -1",
    # Scores where probabilities are due, and what else is no distribution.
    "entropy(X)": f"entropy: p must sum to 1 within 1e-06, got 3 in row 0 {SUM}",
    "kl_divergence(P, X)": f"kl_divergence: q must sum to 1 within 1e-06, got 3 in row 0 {SUM}",
    "mutual_information(P)": f"mutual_information: pxy must sum to 1 within 1e-06, got 2 {SUM}",
    "entropy(-P)": 'entropy: p must be at least 0 and finite, got -0.2 at entry 0 in row 0 (input="scores" takes scores)',
    "entropy([0, 0], normalize=True)": "entropy: p must have an entry above 0, got none in row 0",
    "entropy(P, normalize='yes')": "entropy: normalize must be a bool, got str",
    "binary_entropy(1.5)": "binary_entropy: p must be in [0, 1], got 1.5 at entry 0 in row 0",
    "kl_divergence(P, P[:, :2])": "kl_divergence: q must have a shape that broadcasts with that of p, (2, 3), got (2, 2)",
    "normalize_joint(P, joint=9)": "normalize_joint: joint must be in [0, 1.79175947], which powers of pxy reach, got 9",
    "wasserstein_histogram(P, X)": (
        "wasserstein_histogram: q must sum to 1 within 1e-06, got 3 in row 0 (normalize=True divides by the sum)"
    ),
    "expected_calibration_error(X, [0, 1])": "expected_calibration_error: p must sum to 1 within 1e-06, got 3 in row 0",
    # Targets and labels.
    "softmax_loss(X, [0, 3])": "softmax_loss: target must be a class from 0 to 2, got 3 in row 1",
    "softmax_loss(X, [[0], [1]])": (
        "softmax_loss: target must have one class for each row, of shape (2,), got integers of shape (2, 1)"
    ),
    "softmax_loss(X, [0.0, 1.0])": (
        "softmax_loss: target must have one probability for each entry, of shape (2, 3), got shape (2,); classes are "
        "integers: pass target.astype(int)"
    ),
    "softmax_loss(X, ['cat', 'dog'])": (
        "softmax_loss: target must be integers, one class for each row, or floating-point numbers, a distribution, got "
        "dtype <U3"
    ),
    "softmax_loss(X, P * 2)": "softmax_loss: target must be a distribution in every row, got a sum of 2 in row 0",
    "softmax_loss(X, [0, 1], reduction='mean')": "softmax_loss() got an unexpected keyword argument 'reduction'",
    "multilabel_softmax_loss(X, P)": (
        "multilabel_softmax_loss: target must be 0 or 1 in every entry, got 0.2 at entry 0 in row 0"
    ),
    "smooth_accuracy_loss(X, [0, 1], map='softmx')": f"smooth_accuracy_loss: map must be one of {MAPS}, got 'softmx'",
    "fit_temperature(X, [0, 5])": (
        "fit_temperature: labels must be at least 0 and below the number of classes, 3, got 5 in row 1"
    ),
    "fit_temperature(X, [[0], [1]])": (
        "fit_temperature: labels must have the shape of x without its last axis, (2,), got (2, 1)"
    ),
    "fit_temperature(X, [0.0, 1.0])": "fit_temperature: labels must be of an integer type, got dtype float64",
    # Sampling, attention, transport, files.
    "sample(X)": "sample() missing 1 required keyword-only argument: 'seed'",
    "sample(X, seed=None)": "sample: seed must be an integer, got NoneType",
    "sample(X, seed=1, size=-1)": "sample: size must be at least 0 and below 2**62, got -1",
    "sample(X, seed=1, size=(2, 3))": "sample: size must be an integer, got tuple",
    "gumbel_softmax(X, seed=1, hard='no')": "gumbel_softmax: hard must be a bool, got str",
    "Sampler([('topk', 3)])": (
        "Sampler: a step must be one of temperature, top_k, top_p, min_p, typical_p, entropy, entropy_clip, epsilon, eta, "
        "top_n_sigma, top_h, p_less, xtc, penalties, dry, mirostat, got 'topk': did you mean top_k?"
    ),
    "Sampler([('top_k', 0)])": "Sampler: top_k: k must be above 0, got 0",
    "Sampler({'top_k': 3})": "Sampler: steps must be a list of (name, value) pairs such as (\"top_k\", 50), got {'top_k': 3}",
    "attention(X, X[:, :2], X)": "attention: k must have the last axis of q, 3, got shape (2, 2)",
    "attention(X, X, X, map='top_k_softmax')": (
        "attention: map 'top_k_softmax' needs the parameter 'k': map=('top_k_softmax', {'k': ...})"
    ),
    "attention(X, X, X, causal='no')": "attention: causal must be a bool, got str",
    "attention(X, X, X, scale=np.inf)": (
        "attention: scale must be 'sqrt', 'entropy_invariant', 'log_n' or a finite number, got inf"
    ),
    "linear_attention(X, X, X, scale=np.nan)": "linear_attention: scale must be 'sqrt' or a finite number, got nan",
    "linear_attention(X, X, X, causal=1)": "linear_attention: causal must be a bool, got int",
    "optimal_transport([0.5, 0.5], [0.5, 0.6], np.ones((2, 2)))": (
        "optimal_transport: a and b must have equal sums within 1e-06 of them, got 1 and 1.1"
    ),
    "sinkhorn([1.0], [1.0], [[1.0]])": "sinkhorn() missing 1 required keyword-only argument: 'epsilon'",
    "wasserstein_1d([1, 2], [])": "wasserstein_1d: u and v must have at least one sample, got 2 and 0",
    "read(5)": "read: path must be a string or a path, got int",
    "read('scores.xlsx')": (
        "read: path must end in one of .csv, .tsv, .npy, .npz, .jsonl, .safetensors, .logprobs, .parquet, .arrow, "
        ".feather, got 'scores.xlsx'"
    ),
    "write(5, X)": "write: path must be a string or a path, got int",
    "write('/tmp/x.csv', RAGGED)": "write: array must be an array, got lists of unequal length; pad them to one length",
}


@pytest.mark.parametrize("call", TOLD)
def test_told(call):
    with pytest.raises((ValueError, TypeError)) as error:
        eval(call, {**vars(isentropic), "np": np, "X": X, "P": P, "RAGGED": RAGGED})
    assert str(error.value) == TOLD[call]


# Not errors: a frame is its numbers, no rows and no columns give none.
def test_what_is_taken():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abc"))
    np.testing.assert_array_equal(isentropic.softmax(frame), isentropic.softmax(X))
    np.testing.assert_array_equal(isentropic.softmax(frame["a"]), isentropic.softmax(X[:, 0]))
    for shape in ((0, 3), (3, 0), (0,)):
        assert isentropic.softmax(np.zeros(shape)).shape == shape
    assert isentropic.softmax(X.astype(int)).dtype == np.float64
    assert isentropic.softmax(X.astype(np.float16)).dtype == np.float16
    np.testing.assert_allclose(isentropic.top_k_softmax(X, k=9), isentropic.softmax(X), rtol=1e-15)


TORCH_TOLD = {
    "softmax(X.numpy())": "softmax: x must be a torch.Tensor, got ndarray; isentropic.softmax takes other arrays",
    "softmax(X.int())": "softmax: x must be of float16, bfloat16, float32 or float64, got dtype torch.int32; pass x.float()",
    "softmax(X.to_sparse())": "softmax: x must be a dense tensor, got layout torch.sparse_coo; pass x.to_dense()",
    "softmax(X, dim=2)": "softmax: dim 2 is out of bounds for a tensor of 2 dimensions",
    "softmax(X, dim='x')": "softmax: dim must be one integer, got 'x'",
    "softmax(X, axis=1, dim=1)": "softmax: give one of dim and axis, got dim=1 and axis=1",
    "softmax_loss(X, [0, 1])": "softmax_loss: target must be a torch.Tensor, got list",
    "softmax_loss(X, torch.tensor([0, 3]))": "softmax_loss: target must be a class from 0 to 2, got 3 in row 1",
    "softmax_loss(X, torch.tensor([0.0, 1.0]))": (
        "softmax_loss: target must have one probability for each entry, of shape (2, 3), got shape (2,); classes are "
        "integers: pass target.long()"
    ),
    "entropy(X)": f"entropy: p must sum to 1 within 0.0001, got 3 in row 0 {SUM}",
    "kl_divergence(X, X[:, :2])": "kl_divergence: q must have a shape that broadcasts with that of p, (2, 3), got (2, 2)",
    "attention(X, X, X, mask=[[True]])": "attention: mask must be a torch.Tensor, got list",
    "attention(X, X, X, causal='no')": "attention: causal must be a bool, got str",
    "linear_attention(X, X, X, scale=float('nan'))": "linear_attention: scale must be 'sqrt' or a finite number, got nan",
    "gumbel_softmax(X, seed=1, hard='no')": "gumbel_softmax: hard must be a bool, got str",
    "wasserstein_1d(X, X.numpy())": (
        "wasserstein_1d: v must be a torch.Tensor, got ndarray; isentropic.wasserstein_1d takes other arrays"
    ),
    "softmax(X.long())": "softmax: x must be of float16, bfloat16, float32 or float64, got dtype torch.int64; pass x.float()",
    "softmax_loss(X, torch.tensor([0, 1]), dtype='half')": (
        "softmax_loss: dtype must be float16, bfloat16, float32 or float64, got 'half'"
    ),
    "wasserstein_1d(X, X[:, :0])": "wasserstein_1d: u and v must have at least one sample, got 3 and 0",
    "wasserstein_1d(X, X, dim=7)": "wasserstein_1d: dim 7 is out of bounds for a tensor of 2 dimensions",
    "wasserstein_1d(X[0, 0], X)": "wasserstein_1d: u must have at least one axis, got a single number",
    "wasserstein_1d(X, X, u_weights=-X)": "wasserstein_1d: u_weights must be at least 0 and finite, got -1 at entry 1 in row 0",
    "wasserstein_1d(X, X, order='a')": "wasserstein_1d: order must be a number, got str",
    "wasserstein_histogram(X, X, dim=2)": "wasserstein_histogram: dim 2 is out of bounds for a tensor of 2 dimensions",
    "smooth_accuracy_loss(X, torch.tensor([0, 3]))": "smooth_accuracy_loss: target must be a class from 0 to 2, got 3 in row 1",
    "surrogate_loss(X.bfloat16(), torch.tensor([0, 3]))": "surrogate_loss: target must be a class from 0 to 2, got 3 in row 1",
    "surrogate_loss(X, X)": "surrogate_loss: target must be a distribution in every row, got a sum of 3 in row 0",
    "wasserstein_1d(X, X, u_weights=X[:, :2])": (
        "wasserstein_1d: u_weights must broadcast to the shape of u, (2, 3), got (2, 2)"
    ),
    "wasserstein_histogram(X, X[:, :2])": (
        "wasserstein_histogram: p and q must have equal lengths along axis -1, got shapes (2, 3) and (2, 2)"
    ),
    "wasserstein_histogram(X, X, support=X[0, :2])": (
        "wasserstein_histogram: support must have shape (3,), one point for each entry, got (2,)"
    ),
    "sinkhorn([1.0], X, X, epsilon=1.0)": (
        "sinkhorn: a must be a torch.Tensor, got list; isentropic.sinkhorn takes other arrays"
    ),
    "SoftmaxLoss(reduction='avg')": "SoftmaxLoss: reduction must be 'mean', 'sum' or 'none', got 'avg'",
}


@pytest.mark.parametrize("call", TORCH_TOLD)
def test_told_by_torch(call):
    torch = torch_or_skip()
    import isentropic.torch

    with pytest.raises((ValueError, TypeError, IndexError)) as error:
        eval(call, {**vars(isentropic.torch), "torch": torch, "X": torch.tensor(X, dtype=torch.float32)})
    assert str(error.value) == TORCH_TOLD[call]


WRONG_TYPES = {
    "softmax(X, temperature='a')": "softmax: temperature must be a number or an array of numbers, got str",
    "softmax(X, temperature=None)": "softmax: temperature must be a number or an array of numbers, got NoneType",
    "softmax(X, temperature=torch.ones(2))": "softmax: temperature must be a number or a tensor that broadcasts to (2, 1)",
    "entmax(X, alpha=[1.5])": "entmax: alpha must be a number or an array of numbers, got list",
    "entropy_normalize(X, entropy='a')": "entropy_normalize: entropy must be a number or an array of numbers, got str",
    "entropy_normalize(X, entropy=1.0, input=True)": "entropy_normalize: input must be a string, got bool",
    "top_k_softmax(X, k=2.5)": "top_k_softmax: k must be an integer, got float",
    "perturb_max(X, noise=3)": "perturb_max: noise must be a string, got int",
    "logsumexp(X, temperature='a')": "logsumexp: temperature must be a number or an array of numbers, got str",
    "renyi_entropy(P, alpha='a')": "renyi_entropy: alpha must be a number or an array of numbers, got str",
    "entropy(P, normalize=1)": "entropy: normalize must be a bool, got int",
    "entropy(P, base=[2])": "entropy: base must be a number, got list",
    "self_information(P, base='a')": "self_information: base must be a number, got str",
    "mutual_information(P, input=3, normalize=True)": "mutual_information: input must be a string, got int",
    "softmax_loss(X, T, label_smoothing='a')": "softmax_loss: label_smoothing must be a number or an array of numbers, got str",
    "entmax_loss(X, T, alpha='a')": "entmax_loss: alpha must be a number or an array of numbers, got str",
    "margin_softmax_loss(P, T, kind=3)": "margin_softmax_loss: kind must be a string, got int",
    "smooth_accuracy_loss(X, T, map='entmax', alpha='a')": "entmax: alpha must be a number or an array of numbers, got str",
    "jsd_loss(X, X.detach(), beta=2.0)": "jsd_loss: beta must be",  # and the range
    "softmax(X, dim=1.0)": "softmax: dim must be one integer, got 1.0",
    "sinkhorn(Q, Q, P, epsilon='a')": "sinkhorn: epsilon must be a number, got str",
    "sinkhorn(Q, Q, P, epsilon=1.0, max_iterations=2.5)": "sinkhorn: max_iterations must be an integer, got float",
    "sinkhorn(Q, Q, P, epsilon=1.0, mass_tolerance='a')": "sinkhorn: mass_tolerance must be a number, got str",
    "optimal_transport(Q, Q, P, mass_tolerance='a')": "optimal_transport: mass_tolerance must be a number, got str",
    "sinkhorn_divergence(P, P, epsilon=1.0, order='a')": "sinkhorn_divergence: order must be a number, got str",
    "sinkhorn_divergence(P, P, epsilon=None)": "sinkhorn_divergence: epsilon must be a number, got NoneType",
    "wasserstein(P, P, order='2')": "wasserstein: order must be a number, got str",
    "wasserstein_histogram(P, P, order='2')": "wasserstein_histogram: order must be a number, got str",
    "attention(X, X, X, train_length='a')": "attention: train_length must be a number, got str",
}


@pytest.mark.parametrize("call", WRONG_TYPES)
@pytest.mark.parametrize("gradients", [False, True])
def test_told_by_torch_with_gradients_and_without(call, gradients):
    torch = torch_or_skip()
    import isentropic.torch

    x, p = (torch.tensor(values, dtype=torch.float64).requires_grad_(gradients) for values in (X, P))
    with pytest.raises((ValueError, TypeError)) as error:
        eval(call, {**vars(isentropic.torch), "torch": torch, "X": x, "P": p, "Q": p[0], "T": torch.tensor([0, 1])})
    assert str(error.value).startswith(WRONG_TYPES[call])


@pytest.mark.parametrize("gradients", [False, True])
def test_torch_takes_numbers_and_arrays_of_numpy_as_parameters(gradients):
    torch = torch_or_skip()
    import isentropic.torch as et

    x = torch.tensor(X, dtype=torch.float64).requires_grad_(gradients)
    assert torch.equal(et.softmax(x, temperature=np.float32(2)), et.softmax(x, temperature=2.0))
    assert torch.equal(et.softmax(x, temperature=torch.tensor([2.0])), et.softmax(x, temperature=2.0))
    assert torch.equal(et.top_k_softmax(x, k=2**70), et.top_k_softmax(x, k=3))
    alpha = np.array([[1.2], [1.7]])
    assert torch.equal(et.entmax(x, alpha=alpha), et.entmax(x, alpha=torch.from_numpy(alpha)))


def test_torch_measures_of_two_dtypes():
    torch = torch_or_skip()
    import isentropic.torch as et

    p, q = torch.tensor([0.5, 0.5]).requires_grad_(), torch.tensor([0.75, 0.25], dtype=torch.float64).requires_grad_()
    for name in ("kl_divergence", "cross_entropy", "js_divergence", "js_distance"):
        value = getattr(et, name)(p, q)
        assert value.dtype is torch.float64
        assert value.item() == getattr(isentropic, name)(p.detach().numpy(), q.detach().numpy())
        dp, dq = torch.autograd.grad(value, (p, q))
        assert dp.dtype is torch.float32 and dq.dtype is torch.float64
    assert et.kl_divergence(p.half(), q.bfloat16()).dtype is torch.float32


def test_a_tracer_of_jax_is_told_of_isentropic_jax():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    x = jax.numpy.ones((2, 3))
    assert isinstance(isentropic.softmax(x), jax.Array)
    for transform in (jax.jit, jax.vmap, lambda function: jax.jacobian(function)):
        for name in ("entmax", "entropy", "gamma_for_entropy", "softmax_loss"):
            options = {"gamma_for_entropy": {"entropy": 0.5}, "entropy": {"input": "scores"}}.get(name, {})
            targets = (np.zeros(2, int),) if name == "softmax_loss" else ()
            with pytest.raises(TypeError, match=rf"^{name}: \w+ is a tracer of JAX, .*; isentropic.jax.{name} works under jit"):
                transform(lambda x: getattr(isentropic, name)(x, *targets, **options))(x)  # noqa: B023
