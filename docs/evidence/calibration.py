"""Prints the tables of docs/evidence/calibration.md. Needs scikit-learn and torch."""

import time
import warnings

import numpy as np
import torch
from sklearn.calibration import _TemperatureScaling
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import isentropic
from isentropic.calibration import EntropyScaler, TemperatureScaler

torch.set_num_threads(1)  # for so few numbers the faster
warnings.simplefilter("error")  # a fit that does not converge, or is clamped, says so


def recipe(x, labels):
    """T as gpleiss/temperature_scaling fits it: one call of torch's LBFGS, from T = 1.5."""
    scores, targets = torch.from_numpy(x), torch.from_numpy(labels)
    temperature = torch.nn.Parameter(torch.ones(1, dtype=scores.dtype) * 1.5)
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def evaluate():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(scores / temperature, targets)
        loss.backward()
        return loss

    optimizer.step(evaluate)
    return temperature.item()


def drawn(temperature, rows=5000, n=10):
    """Scores of size 2 T, and labels drawn from softmax(scores / T)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, n)) * 2 * temperature
    return x, (isentropic.softmax(x, temperature=temperature).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)


def negative_log_likelihood(x, labels, temperature):
    return -isentropic.log_softmax(x, temperature=temperature)[np.arange(len(x)), labels].mean()


def timed(fit, x, labels):
    start = time.perf_counter()
    return fit(x, labels), 1e3 * (time.perf_counter() - start)


def recovery():
    recipe(*drawn(1.0))  # torch's first call takes a second
    print("| true T | method | T found | NLL | ms |\n|---|---|---|---|---|")
    for temperature in (20.0, 5.0, 1.0, 0.3, 0.05):
        x, labels = drawn(temperature)
        for name, fit in (
            ("`fit_temperature`", isentropic.fit_temperature),
            ("LBFGS recipe", recipe),
            ("scikit-learn", lambda x, y: 1 / _TemperatureScaling().fit(x, y).beta_),
        ):
            found, ms = timed(fit, x, labels)
            loss = negative_log_likelihood(x, labels, found) if found > 0 else np.nan
            print(f"| {temperature:g} | {name} | {found:.4g} | {loss:.4f} | {ms:.1f} |")


def digits():
    pixels, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))
    train, fit, test = rows[:600], rows[600:1200], rows[1200:]
    classifier = LogisticRegression(C=1.0, max_iter=5000).fit(pixels[train], y[train])
    x_fit, x_test = (classifier.decision_function(pixels[part]) for part in (fit, test))
    y_fit, y_test = y[fit], y[test]
    print(f"\naccuracy {(x_test.argmax(axis=1) == y_test).mean():.3f}, {len(fit)} rows to fit on, {len(test)} to test on\n")
    rng = np.random.default_rng(1)
    scales = {"as trained": (1, 1), "times 20": (20, 20), "times 0.3": (0.3, 0.3)}
    scales["each row its own scale"] = tuple(10 ** rng.uniform(-1, 1, (len(part), 1)) for part in (fit, test))
    print("| scores | method | fitted | NLL | ECE |\n|---|---|---|---|---|")
    for scores, (scale_fit, scale_test) in scales.items():
        x, z = x_fit * scale_fit, x_test * scale_test
        temperature, entropy = TemperatureScaler().fit(x, y_fit), EntropyScaler().fit(x, y_fit)
        found = recipe(x, y_fit)
        for method, fitted, log_p in (
            ("none", "", isentropic.log_softmax(z)),
            ("`TemperatureScaler`", f"T = {temperature.temperature_:.4g}", isentropic.log_softmax(temperature.transform(z))),
            ("`EntropyScaler`", f"H = {entropy.entropy_:.4g}", isentropic.log_softmax(entropy.transform(z))),
            ("LBFGS recipe", f"T = {found:.4g}", isentropic.log_softmax(z / found)),
        ):
            loss = -log_p[np.arange(len(z)), y_test].mean()
            error = isentropic.expected_calibration_error(np.exp(log_p), y_test)
            print(f"| {scores} | {method} | {fitted} | {loss:.3f} | {error:.3f} |")


recovery()
digits()
