"""How well the confidences of predictions agree with labels."""

from typing import Any, NamedTuple

import numpy as np

import isentropic._core as _core
from isentropic._descriptions import documented
from isentropic._numpy import _convert
from isentropic._numpy._calibration import labelled, of_probability


@documented(module="isentropic.calibration")
def expected_calibration_error(
    p,
    labels,
    *,
    bins=15,
    strategy="uniform",
    norm="l1",
    classwise=False,
    debiased=False,
    classes=None,
    sample_weight=None,
    ignore_index=None,
):
    """
    The confidence of a row is its largest probability. Its prediction is the first class with this probability. The weight of
    a bin is the share of rows in it.

    p: Distributions, of shape (..., n). For two classes also the probabilities of the second class, of shape (rows,) like
        labels: then the mean of p in a bin of p is compared with the share of that class.
    labels (array of integers or of names): The class of each row, of shape p.shape[:-1]: numbers in [0, n), or names.
    classes (sequence or None): The name of each column, if labels are names. None: the columns of p if it is a frame that has
        all labels as columns, otherwise the categories of labels, or the names in sorted order.
    bins: The number of bins. Empty bins add nothing.
    strategy ("uniform" or "quantile"): "uniform": bin b holds confidences in [b/bins, (b+1)/bins), the last one also 1.
        "quantile": a row with k rows of lower confidence is in bin floor(k bins / rows). Bins then have about equally many
        rows, and rows with equal confidence are in the same bin. With weights, weights are counted in place of rows;
        rounding does not matter: equal weights of any size give the same bins.
    norm ("l1", "l2" or "max"): What is returned of the distances in the bins: their mean, the root of their mean square, or the
        largest.
    classwise (bool): The mean over classes of the error of each class's probability against all other classes; every row counts
        in each.
    debiased (bool): Subtract the error that a perfectly calibrated model has on average because bins have few rows; the result
        is at least 0. For "l2" it is accuracy (1 - accuracy) / (rows - 1) in each bin; for "l1" the accuracy of each bin is
        assumed to be normally distributed.
    sample_weight (array of shape p.shape[:-1]): The weight of each row, at least 0; None: all rows have the same. A row of
        weight 0 is not read.
    Returns (float): Between 0 and 1.
    Raises: A row of p is not a distribution: an entry is negative, NaN or infinite, or the sum is not 1 within 1e-6 (float64),
        1e-4 (float32), 1e-2 (float16). It is named, counted as in p.reshape(-1, n). There is no row, labels has another shape,
        a label is not a class, bins or strategy is out of its range, debiased is given with norm "max", or classwise with p of
        one axis.
    TypeError: p is not an array of numbers, labels neither of integers nor names, or bins not an integer.
    Notes: The error is biased upwards if there are few rows, and depends on the bins. So compare only errors of the same data
        and bins.
    Source: Naeini, Cooper, Hauskrecht, AAAI 2015; Kull et al., NeurIPS 2019 (class-wise); Kumar, Liang, Ma, NeurIPS 2019
        (debiased).
    >>> isentropic.expected_calibration_error([[0.75, 0.25], [0.75, 0.25]], [0, 1])
    0.25
    """
    name = "expected_calibration_error"
    *given, tolerance, binary = _judged(name, p, labels, classes, sample_weight, ignore_index)
    return _core.expected_calibration_error(*given, (bins, strategy, tolerance, norm, classwise, debiased, binary))


def _judged(name, p, labels, classes, sample_weight, ignore_index):
    """What _core takes, with the tolerance of sums, and whether p has one column."""
    values, labels, classes, binary = of_probability(name, p, labels, classes)
    columns = _convert.column_names(p)
    return *labelled(name, "p", values, labels, sample_weight, ignore_index, classes, columns, binary), binary


@documented(module="isentropic.calibration")
class ReliabilityBins(NamedTuple):
    """The bins of a reliability diagram that have rows, in the order of confidence: see reliability_bins."""

    lower: np.ndarray[Any, Any]
    upper: np.ndarray[Any, Any]
    weight: np.ndarray[Any, Any]
    confidence: np.ndarray[Any, Any]
    accuracy: np.ndarray[Any, Any]


@documented(module="isentropic.calibration")
def reliability_bins(p, labels, *, bins=15, strategy="uniform", classes=None, sample_weight=None, ignore_index=None):
    """
    Confidence and accuracy in bins of confidence, which expected_calibration_error sums.

        accuracy_b = share of rows in b whose argmax p_r is y_r,   confidence_b = mean of max p_r in b

    p, labels, bins, strategy, classes, sample_weight, ignore_index: As for expected_calibration_error.
    Returns (ReliabilityBins): A named tuple of arrays with a number for each bin that has rows: its edges `lower` and `upper`
        (for "quantile" its smallest and largest confidence), the `weight` of its rows (without sample_weight their number),
        their mean `confidence` and their `accuracy`.
    Raises: As expected_calibration_error.
    >>> found = isentropic.reliability_bins([[0.75, 0.25], [0.75, 0.25], [0.1, 0.9]], [0, 1, 1], bins=10)
    >>> found.weight, found.confidence, found.accuracy
    (array([2., 1.]), array([0.75, 0.9 ]), array([0.5, 1. ]))
    """
    name = "reliability_bins"
    *given, tolerance, binary = _judged(name, p, labels, classes, sample_weight, ignore_index)
    found = _core.reliability_bins(*given, (bins, strategy, tolerance, "l1", False, False, binary))
    return ReliabilityBins(*np.asarray(found, np.float64).reshape(-1, 5).T.copy())


@documented(module="isentropic.calibration")
def reliability_diagram(
    p, labels, *, bins=15, strategy="uniform", classes=None, sample_weight=None, ignore_index=None, ax=None
):
    """
    Draw accuracy against confidence: bars below the diagonal belong to rows with more confidence than accuracy.

    It needs matplotlib (pip install matplotlib).

    p, labels, bins, strategy, classes, sample_weight, ignore_index: As for expected_calibration_error, whose result is the
        title.
    ax (matplotlib Axes): Where to draw; None: a new figure.
    Returns (matplotlib Axes): With a bar of each bin's accuracy over its edges, a point at its confidence, and the share of
        rows in gray.
    Raises: As expected_calibration_error.
    Raises (ImportError): There is no matplotlib.
    >>> p, labels = [[0.75, 0.25], [0.75, 0.25], [0.1, 0.9]], [0, 1, 1]
    >>> ax = isentropic.reliability_diagram(p, labels)  # ax.figure.savefig("reliability.svg") saves it
    """
    chosen = {"classes": classes, "sample_weight": sample_weight, "ignore_index": ignore_index}
    found = reliability_bins(p, labels, bins=bins, strategy=strategy, **chosen)
    if ax is None:
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("reliability_diagram needs matplotlib: pip install matplotlib") from error
        ax = Figure(figsize=(4.5, 4.5)).subplots()
    total = found.weight.sum()
    distance = (found.weight * np.abs(found.accuracy - found.confidence)).sum() / total
    width = np.maximum(found.upper - found.lower, 0.004)
    ax.bar(found.lower, found.weight / total, width, align="edge", color="0.85", label="share of rows")
    ax.bar(found.lower, found.accuracy, width, align="edge", color="tab:blue", alpha=0.6, edgecolor="white", label="accuracy")
    ax.plot([0, 1], [0, 1], color="black", linewidth=1, linestyle="dashed", label="as sure as right")
    ax.plot(found.confidence, found.accuracy, "o", color="tab:orange", markersize=4, label="mean confidence")
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy", title=f"calibration error {distance:.3f}")
    ax.legend(loc="upper left", fontsize="small")
    return ax


@documented(module="isentropic.calibration")
def brier_score(p, labels, *, classes=None, sample_weight=None, ignore_index=None):
    """
    The mean squared distance of distributions from the labels: calibration and discrimination in one number.

        mean_r sum_i (p_ri - 1[i = y_r])^2

    p, labels, classes, sample_weight, ignore_index: As for expected_calibration_error.
    Returns (float): Between 0 and 2. For two classes it is twice (p_1 - y)^2, which is sometimes called the Brier score too.
    Raises: As expected_calibration_error.
    Notes: It is a proper score: the expected score is smallest if p is the distribution of the labels.
    Source: Brier, Monthly Weather Review 78, 1950.
    >>> isentropic.brier_score([[0.75, 0.25], [0.75, 0.25]], [0, 1])
    0.625
    """
    name = "brier_score"
    *given, tolerance, binary = _judged(name, p, labels, classes, sample_weight, ignore_index)
    if binary:  # as two columns
        given[0] = np.concatenate([1 - given[0], given[0]], -1)
    return _core.brier_score(*given, tolerance)
