"""Digits classified with each loss, and embeddings by margin losses judged by retrieval; prints the tables of losses.md.

    python docs/evidence/losses.py

Needs torch and scikit-learn. scikit-learn's digits: 1797 images of 8 x 8.
"""

import itertools

import numpy as np
import torch
from sklearn.datasets import load_digits

import isentropic
import isentropic.torch as et

SEEDS = 3
x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)


def mean_and_spread(values, form):
    values = np.array(values)
    return f"{format(values.mean(), form)} ± {format(values.std(), form)}"


def batches(count, size=64):
    order = torch.randperm(count)
    return [order[i : i + size] for i in range(0, count - size + 1, size)]


def network(out):
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, out))


# Each loss as a function of scores and classes, and the map that turns its scores into probabilities.
LOSSES = {
    "softmax_loss": (et.softmax_loss, isentropic.softmax, {}),
    "softmax_loss, label_smoothing=0.1": (lambda z, t: et.softmax_loss(z, t, label_smoothing=0.1), isentropic.softmax, {}),
    "entmax_loss, alpha=1.3": (lambda z, t: et.entmax_loss(z, t, alpha=1.3), isentropic.entmax, {"alpha": 1.3}),
    "entmax_loss, alpha=1.5": (et.entmax_loss, isentropic.entmax, {"alpha": 1.5}),
    "sparsemax_loss": (et.sparsemax_loss, isentropic.sparsemax, {}),
    "top_k_softmax_loss, k=3": (lambda z, t: et.top_k_softmax_loss(z, t, k=3), isentropic.top_k_softmax, {"k": 3}),
    "top_p_softmax_loss, p=0.95": (lambda z, t: et.top_p_softmax_loss(z, t, p=0.95), isentropic.top_p_softmax, {"p": 0.95}),
    "smooth_accuracy_loss": (et.smooth_accuracy_loss, isentropic.softmax, {}),
    "multilabel_softmax_loss": (
        lambda z, t: et.multilabel_softmax_loss(z, torch.nn.functional.one_hot(t, 10)),
        isentropic.softmax,
        {},
    ),
    "surrogate_loss of sigsoftmax": (lambda z, t: et.surrogate_loss(z, t, map="sigsoftmax"), isentropic.sigsoftmax, {}),
    "surrogate_loss of taylor_softmax": (
        lambda z, t: et.surrogate_loss(z, t, map="taylor_softmax"),
        isentropic.taylor_softmax,
        {},
    ),
}


def classified(loss, epochs=30):
    """(scores of the test half, its classes), and the trained scores of all."""
    order = torch.randperm(len(y))
    train, test = order[:900], order[900:]
    model = network(10)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in batches(len(train)):
            optimizer.zero_grad()
            loss(model(x[train[batch]]), y[train[batch]]).mean().backward()
            optimizer.step()
    with torch.no_grad():
        return model(x[test]).numpy(), y[test].numpy(), model(x)


def classification():
    print("| loss | accuracy, % | calibration error | classes with mass |")
    print("|---|---|---|---|")
    teacher = None
    for name, (loss, to_p, params) in LOSSES.items():
        results = []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            scores, labels, _ = classified(loss)
            p = to_p(scores.astype(np.float64), **params)
            results.append(
                (
                    100 * (scores.argmax(1) == labels).mean(),
                    isentropic.expected_calibration_error(p, labels),
                    (p > 0).sum(1).mean(),
                )
            )
        accuracy, calibration, support = zip(*results, strict=True)
        cells = mean_and_spread(accuracy, ".1f"), mean_and_spread(calibration, ".3f"), mean_and_spread(support, ".1f")
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)

    # A smaller student, from a teacher's scores alone.
    torch.manual_seed(0)
    _, _, teacher = classified(et.softmax_loss)
    for name, loss in {
        "distillation_loss, temperature=2, no labels": lambda z, t: et.distillation_loss(z, t, temperature=2.0),
        "jsd_loss, beta=0.5, no labels": lambda z, t: et.jsd_loss(z, t, beta=0.5),
    }.items():
        results = []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            order = torch.randperm(len(y))
            train, test = order[:900], order[900:]
            student = torch.nn.Linear(64, 10)
            optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
            for _ in range(30):
                for batch in batches(len(train)):
                    optimizer.zero_grad()
                    loss(student(x[train[batch]]), teacher[train[batch]]).mean().backward()
                    optimizer.step()
            with torch.no_grad():
                scores = student(x[test]).numpy().astype(np.float64)
            labels = y[test].numpy()
            results.append(
                (
                    100 * (scores.argmax(1) == labels).mean(),
                    isentropic.expected_calibration_error(isentropic.softmax(scores), labels),
                )
            )
        accuracy, calibration = zip(*results, strict=True)
        print(f"| `{name}` | {mean_and_spread(accuracy, '.1f')} | {mean_and_spread(calibration, '.3f')} | 10.0 |", flush=True)


def recall_at_1(embeddings, labels):
    """How often the nearest other by angle is of the same class."""
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    cosines = unit @ unit.T
    cosines.fill_diagonal_(-2.0)
    return 100 * (labels[cosines.argmax(1)] == labels).float().mean().item()


def retrieval():
    """Trained on five digits, judged on images of these that were held out, and on the five that were never seen."""
    print("\n| numbers of an embedding | module | margin | recall@1, digits trained on | recall@1, digits never seen |")
    print("|---|---|---|---|---|")
    modules = (et.AMSoftmaxLoss, (0.0, 0.35)), (et.ArcFaceLoss, (0.5,)), (et.SphereFaceLoss, (2, 4))
    for size, (module, margins) in itertools.product((3, 8), modules):
        for margin in margins:
            seen, unseen = [], []
            for seed in range(2 * SEEDS):
                torch.manual_seed(seed)
                digits = torch.randperm(10)
                code = torch.full((10,), -1)
                code[digits[:5]] = torch.arange(5)
                known = torch.nonzero(code[y] >= 0).flatten()
                known = known[torch.randperm(len(known))]
                train, test = known[: len(known) // 2], known[len(known) // 2 :]
                model, loss = network(size), module(size, 5, margin=margin, scale=16.0)
                optimizer = torch.optim.Adam([*model.parameters(), *loss.parameters()], lr=3e-3)
                for _ in range(30):
                    for batch in batches(len(train)):
                        optimizer.zero_grad()
                        loss(model(x[train[batch]]), code[y[train[batch]]]).backward()
                        optimizer.step()
                with torch.no_grad():
                    others = torch.nonzero(code[y] < 0).flatten()
                    seen.append(recall_at_1(model(x[test]), y[test]))
                    unseen.append(recall_at_1(model(x[others]), y[others]))
            cells = mean_and_spread(seen, ".1f"), mean_and_spread(unseen, ".1f")
            print(f"| {size} | `{module.__name__}` | {margin} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    classification()
    retrieval()
