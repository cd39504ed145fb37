"""The estimators of isentropic.calibration: scikit-learn is imported here and nowhere else."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, TransformerMixin  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

import isentropic._core as _core
import isentropic._generated as _generated
from isentropic._descriptions import documented
from isentropic._numpy import _calibration, _convert, _vector_scaling


class _Scaler(ClassifierMixin, TransformerMixin, BaseEstimator):
    """The base of both scalers: they take scores and predict classes. One column of scores s, or one axis as from
    decision_function for two classes, stands for the scores (0, s)."""

    classes_: np.ndarray[Any, Any]
    n_features_in_: int

    def __init__(self, *, classes=None, input="scores"):
        self.classes, self.input = classes, input

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X, y, sample_weight=None):
        X, y = validate_data(self, _as_column(_readable(self, X)), y, dtype=[np.float64, np.float32], ensure_all_finite=False)
        check_classification_targets(y)
        X = self._scores(X)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64)
        columns = max(2, X.shape[1])
        found, labels = np.unique(y, return_inverse=True)
        classes = self._columns_as_classes(found, columns) if self.classes is None else self.classes
        if classes is not None:
            self.classes_ = np.asarray(classes)
            if self.classes_.shape != (columns,) or len(np.unique(self.classes_)) != columns:
                raise ValueError(f"classes must name {columns} different classes, one for each column of X, got {classes!r}")
            unknown = found[~np.isin(found, self.classes_)]
            if len(unknown) > 0:
                raise ValueError(f"y has the class {unknown[:1].tolist()[0]!r}, which is not in classes")
            order = np.argsort(self.classes_)
            labels = order[np.searchsorted(self.classes_, found, sorter=order)][labels]
        elif len(found) == columns:
            self.classes_ = found
        elif found.dtype.kind in "iubf" and (found == found.astype(np.int64)).all() and 0 <= found[0] <= found[-1] < columns:
            self.classes_ = np.arange(columns)
            labels = y.astype(np.int64)
        else:
            raise ValueError(
                f"y has {len(found)} classes and X scores for {columns}: pass classes=, the class of each column, "
                "such as classifier.classes_"
            )
        self._fit(_with_zeros(X), labels, sample_weight)
        return self

    def _columns_as_classes(self, found, columns):
        """The names of a frame's columns, if they name each class that was found; otherwise None."""
        names = getattr(self, "feature_names_in_", None)
        return names if names is not None and len(names) == columns and set(found.tolist()) <= set(names) else None

    def predict_proba(self, X):
        """The calibrated probabilities, of shape (n_samples, n_classes), columns as in classes_."""
        return self._probabilities(_with_zeros(self._checked(X)))

    def predict(self, X):
        """The class with the largest score: calibration does not change it. The first of equal ones."""
        scores = _with_zeros(self._checked(X))
        return self.classes_[scores.argmax(axis=1)]

    def _checked(self, X):
        check_is_fitted(self)
        X = _readable(self, X)
        if self.n_features_in_ == 1:
            X = _as_column(X)
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_all_finite=False, reset=False)
        return self._scores(X)

    def _scores(self, X):
        """X as scores; one column of probabilities as those of two classes."""
        self._check(X)
        if self.input == "log_probs" and X.shape[1] == 1:
            raise ValueError(
                f'{type(self).__name__}: with input "log_probs" X must have a column for each class, got one column; '
                'input "probs" takes one, the probabilities of the second of two classes'
            )
        given = X[:, 0] if self.input == "probs" and X.shape[1] == 1 else X
        return _calibration.as_scores(type(self).__name__, "X", given, self.input)

    def _check(self, X):
        # -inf stands for an absent class, and scikit-learn's own check cannot allow only one infinity.
        wrong = np.isnan(X).any(axis=1) | np.isposinf(X).any(axis=1)
        if wrong.any():
            raise ValueError(
                f"Input X of {type(self).__name__} contains NaN or infinity in row {wrong.argmax()}; -inf, an absent class, "
                "is allowed"
            )
        if self.input != "probs" and X.shape[1] > 1 and np.isneginf(X).all(axis=1).any():
            raise ValueError(f"Input X of {type(self).__name__} has a row with only -infinity")


def _readable(estimator, X):
    """Tensors of torch that NumPy cannot read: bfloat16 becomes float32, and tensors with a gradient are refused."""
    if getattr(X, "requires_grad", False):
        raise TypeError(
            f"{type(estimator).__name__}: X is a tensor that requires grad, but estimators have no gradient; pass X.detach()"
        )
    return X.float() if _convert.is_bfloat16(X) else X


def _as_column(X):
    """One-dimensional scores, as from decision_function for two classes, as one column."""
    if isinstance(X, (list, tuple)) and X and all(np.ndim(one) == 0 for one in X):
        X = np.asarray(X)
    return X.reshape(-1, 1) if isinstance(X, np.ndarray) and X.ndim == 1 else X


def _with_zeros(X):
    return np.hstack([np.zeros_like(X), X]) if X.shape[1] == 1 else X


@documented(module="isentropic.calibration")
class TemperatureScaler(_Scaler):
    """Temperature scaling: divides scores by the number T that makes the labels most probable under softmax.

    Fit it on scores (decision_function, logits, or log-probabilities) of data that the classifier was not trained on.

    Parameters
    ----------
    classes : array of shape (n_classes,), default None
        The class of each column of X, such as classifier.classes_. None: the columns of X if it is a frame that has all classes
        in y as columns; else the classes in y, sorted, if there are as many as columns; else the numbers of the columns, if y
        has whole numbers in [0, n_classes).
    input : "scores", "probs" or "log_probs", default "scores"
        What X holds. Of probabilities the scores are log p; one column is the probability of the second of two classes.

    Attributes
    ----------
    temperature_ : float
        T, see isentropic.fit_temperature.
    classes_ : array of shape (n_classes,)
        The class of each column of predict_proba.
    n_features_in_ : int
        The number of columns of X: the number of classes, or 1 for the scores s of two classes, which stand for (0, s).

    Examples
    --------
    >>> scaler = TemperatureScaler().fit([[1, 0], [1, 0], [1, 0], [0, 1]], ["a", "a", "b", "b"])
    >>> p = scaler.predict_proba([[1, 0]])  # 3/4, 1/4
    """

    temperature_: float

    def fit(self, X, y, sample_weight=None):
        """Find T for scores X of shape (n_samples, n_classes), or (n_samples,) or (n_samples, 1) for two classes, and
        classes y; sample_weight is how much each row counts.

        Warns with isentropic.TemperatureClampedWarning where T is an end of [1e-3, 1e3].
        """
        return super().fit(X, y, sample_weight)

    def _fit(self, X, labels, sample_weight):
        self.temperature_ = _calibration.fit_temperature(X, labels, input="log_probs", sample_weight=sample_weight)

    def transform(self, X):
        """The scaled scores X / temperature_, in X's shape: softmax of them is predict_proba."""
        X = self._checked(X)
        return X / X.dtype.type(self.temperature_)

    def _probabilities(self, X):
        return _generated.softmax(X, temperature=self.temperature_)


@documented(module="isentropic.calibration")
class VectorScaler(_Scaler):
    """Vector scaling: a scale and a bias for each class that make the labels most probable under softmax.

    Unlike a temperature it may change which class is the largest. It needs many labels of each class, or a ridge.

    Parameters
    ----------
    classes : array of shape (n_classes,), default None
        As for TemperatureScaler.
    input : "scores", "probs" or "log_probs", default "scores"
        As for TemperatureScaler.
    ridge : float, at least 0, default 1e-6
        The weight of the penalty for changes of the scores, see isentropic.fit_vector_scaling.

    Attributes
    ----------
    scale_, bias_ : array of shape (n_classes,)
        See isentropic.fit_vector_scaling.
    classes_, n_features_in_
        As for TemperatureScaler.

    Examples
    --------
    >>> X, y = [[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], ["a", "b", "b", "b", "a"]
    >>> p = VectorScaler().fit(X, y).predict_proba([[0, 1]])  # 1/3, 2/3
    """

    scale_: np.ndarray[Any, Any]
    bias_: np.ndarray[Any, Any]

    def __init__(self, *, classes=None, input="scores", ridge=1e-6):
        super().__init__(classes=classes, input=input)
        self.ridge = ridge

    def fit(self, X, y, sample_weight=None):
        """Find scale and bias for scores X of shape (n_samples, n_classes), or (n_samples,) or (n_samples, 1) for two classes,
        and classes y; sample_weight is how much each row counts."""
        return super().fit(X, y, sample_weight)

    def _fit(self, X, labels, sample_weight):
        found = _vector_scaling.fit_vector_scaling(X, labels, ridge=self.ridge, input="log_probs", sample_weight=sample_weight)
        self.scale_, self.bias_ = found

    def transform(self, X):
        """The scores scale_ X + bias_, of shape (n_samples, n_classes): softmax of them is predict_proba."""
        return self._scaled(_with_zeros(self._checked(X)))

    def predict(self, X):
        """The class with the largest scaled score."""
        largest = self.transform(X).argmax(axis=1)
        return self.classes_[largest]

    def _scaled(self, X):
        absent = np.isneginf(X)
        scaled = np.where(absent, 0, X) * self.scale_.astype(X.dtype) + self.bias_.astype(X.dtype)
        scaled[absent] = -np.inf
        return scaled

    def _probabilities(self, X):
        return _generated.softmax(self._scaled(X))


@documented(module="isentropic.calibration")
class EntropyScaler(_Scaler):
    """Gives every row of scores the same entropy, the one that makes the labels most probable.

    TemperatureScaler uses the scale of a row's scores as a sign of certainty. This estimator ignores the scale. Use it if the
    scale has no meaning, or differs between sources.

    Parameters
    ----------
    classes : array of shape (n_classes,), default None
        As for TemperatureScaler.
    input : "scores", "probs" or "log_probs", default "scores"
        As for TemperatureScaler.

    Attributes
    ----------
    entropy_ : float
        In nats, see isentropic.fit_target_entropy.
    classes_, n_features_in_
        As for TemperatureScaler.

    Examples
    --------
    >>> scaler = EntropyScaler().fit([[1, 0], [20, 0], [300, 0], [0, 4000]], ["a", "a", "b", "b"])
    >>> p = scaler.predict_proba([[1, 0]])  # 3/4, 1/4
    """

    entropy_: float

    def fit(self, X, y, sample_weight=None):
        """Find the entropy for scores X of shape (n_samples, n_classes), or (n_samples,) or (n_samples, 1) for two classes, and
        classes y; sample_weight is how much each row counts."""
        return super().fit(X, y, sample_weight)

    def _fit(self, X, labels, sample_weight):
        self.entropy_ = _calibration.fit_target_entropy(X, labels, input="log_probs", sample_weight=sample_weight)

    def transform(self, X):
        """The scores times each row's gamma, in X's shape: softmax of them is predict_proba.

        The largest score of the row is subtracted if there are several columns. If gamma would be infinite, the scores are
        -inf and 0.
        """
        X = self._checked(X)
        scores = np.ascontiguousarray(_with_zeros(X), np.float64)
        gamma = np.empty(len(scores))
        _core.calibrated_gamma(scores, self.entropy_, gamma)
        below = (scores if X.shape[1] > 1 else X) - (scores.max(axis=1, keepdims=True) if X.shape[1] > 1 else 0)
        with np.errstate(invalid="ignore", over="ignore"):
            scaled = np.where((below == 0) | np.isneginf(below), below, below * gamma[:, None])
        return scaled.astype(X.dtype, copy=False)

    def _probabilities(self, X):
        return _generated.entropy_normalize(X, entropy=self.entropy_)


@documented(module="isentropic.calibration")
class EntropyNormalizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Turns every row of scores into the distribution softmax(gamma x) with a given entropy; each row has its own gamma.

    It learns nothing from data. In a pipeline it brings rows of different scales to the same entropy.

    Parameters
    ----------
    perplexity : float, at least 1, default 2.0
        e to the power of the entropy: the number of equally likely columns. It is not used if entropy is given.
    entropy : float or None, at least 0, default None
        The entropy in nats. Beyond the logarithm of the number of columns a row is uniform.
    input : "scores", "probs" or "log_probs", default "scores"
        What X holds.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns of X.

    Examples
    --------
    >>> p = EntropyNormalizer(perplexity=2.0).fit_transform([[0.0, 1.0, 3.0], [0.0, 10.0, 30.0]])  # the rows are equal
    """

    def __init__(self, *, perplexity=2.0, entropy=None, input="scores"):
        self.perplexity, self.entropy, self.input = perplexity, entropy, input

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    def fit(self, X, y=None):
        """Only look at the number of columns and at the parameters."""
        self._normalized(validate_data(self, _readable(self, X), dtype="numeric", ensure_all_finite=False)[:1, ...])
        return self

    def transform(self, X):
        """The distributions, in X's shape; of X's kind, on the CPU, where scikit-learn's array_api_dispatch is on."""
        # If it was not fitted, any number of columns is right.
        reset = not hasattr(self, "n_features_in_")
        return self._normalized(validate_data(self, _readable(self, X), dtype="numeric", ensure_all_finite=False, reset=reset))

    def _normalized(self, X):
        target = {"perplexity": self.perplexity} if self.entropy is None else {"entropy": self.entropy}
        p = _generated.entropy_normalize(X, input=self.input, **target)
        wrong = np.isnan(np.asarray(p)).any(axis=1) | np.isposinf(np.asarray(X, np.float64)).any(axis=1)
        if wrong.any():
            raise ValueError(
                f"Input X of EntropyNormalizer contains NaN, infinity or no entry at all in row {wrong.argmax()}; "
                "-inf among scores, an absent entry, is allowed"
            )
        return p
