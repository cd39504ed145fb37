"""docs/why.md: each row has its evidence, and what it says of other packages is so."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import isentropic
import isentropic.torch

PAGE = Path(__file__).resolve().parents[2] / "docs/why.md"
QUESTIONS = {"right", "fast", "memory", "gradient", "devices", "bits"}


def sections():
    """The rows of each table, each as its cells."""
    for section in PAGE.read_text().split("\n## ")[1:]:
        lines = [line.strip("|") for line in section.splitlines() if line.startswith("| ") and not line.startswith("| |")]
        if lines:
            yield section.split("\n")[0], [[cell.strip() for cell in line.split(" | ")] for line in lines]


def test_every_question_has_a_row_and_every_row_its_evidence():
    tables = dict(sections())
    assert len(tables) == 8
    for name, rows in tables.items():
        assert {row[0] for row in rows} == QUESTIONS, name
        for row in rows:
            assert len(row) == 4 and all(row), (name, row)
            assert "](" in row[3] or row[3] == "not measured", (name, row)


def test_named_tests_stand_in_the_linked_files():
    named = re.findall(r"\[`(\w+)`\]\(([^)]+)\)", PAGE.read_text())
    assert len(named) > 40
    for test, file in named:
        text = (PAGE.parent / file).read_text()
        assert f"def {test}(" in text or re.search(rf"^TYPED_TEST\(\w+, {test}\)|^TEST\(\w+, {test}\)", text, re.MULTILINE), (
            test
        )


def test_times_are_results():
    """Each number with a point in the rows "fast" and "memory" stands in bench/RESULTS.md, perhaps with more digits."""
    measured = {float(number) for number in re.findall(r"\d+\.\d+", (PAGE.parents[1] / "bench/RESULTS.md").read_text())}
    said = [
        number
        for _, rows in sections()
        for row in rows
        if row[0] in ("fast", "memory") and "RESULTS.md" in row[3]
        for number in re.findall(r"\b\d+\.\d+\b", row[1] + " " + row[2])
    ]
    assert len(said) > 25
    for number in said:
        digits = len(number.partition(".")[2])
        assert any(round(result, digits) == float(number) for result in measured), number


def test_kl_of_masked_scores():
    x = torch.tensor([0.0, 1.0, -torch.inf], requires_grad=True)
    y = torch.tensor([1.0, 0.0, -torch.inf])
    p, q = torch.log_softmax(x, -1), torch.log_softmax(y, -1)
    (theirs,) = torch.autograd.grad(torch.nn.functional.kl_div(q, p, reduction="sum", log_target=True), x)
    assert theirs.isnan().any()
    (ours,) = torch.autograd.grad(isentropic.torch.kl_divergence(x, y, input="scores"), x)
    assert ours.isfinite().all()


def test_infeasible_transport():
    ot = pytest.importorskip("ot", reason="POT is not installed")
    cost = np.array([[np.inf, np.inf], [1.0, 2.0]])
    half = np.array([0.5, 0.5])
    with pytest.raises(ValueError, match="infeasible"):
        isentropic.optimal_transport(half, half, cost)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        plan = ot.emd(half, half, cost)
    assert said and not plan.any()
