"""Measures, their derivatives in orders, and estimators against tests/golden/measures.jsonl, which mpmath computed from the
definitions."""

import json
import math
import pathlib

import numpy as np
import pytest

import isentropic

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "measures.jsonl"
RECORDS = [json.loads(line) for line in GOLDEN.read_text(encoding="ascii").splitlines()]


def rows_of(record):
    return [np.array([float.fromhex(v) for v in record[key]]) for key in "pq" if key in record]


def close(got, want, tolerance, atol=1e-300):
    want = float(want)
    if math.isinf(want):
        assert got == want
    else:
        assert abs(got - want) <= tolerance * abs(want) + atol, (got, want)


def titles(record):
    return "-".join(map(str, (record.get("measure", record.get("estimator")), *record["params"].values())))


@pytest.mark.parametrize("record", [one for one in RECORDS if "measure" in one], ids=titles)
def test_measures(record):
    measure, rows = getattr(isentropic, record["measure"]), rows_of(record)
    kinds = [({"normalize": True}, rows)]
    with np.errstate(divide="ignore"):
        kinds.append(({"input": "scores"}, [np.log(row) for row in rows]))
    for more, given in kinds:
        asked = {"param_grad": True} if "dalpha" in record else {}
        found = measure(*given, **record["params"], **more, **asked)
        value, *slope = found if asked else (found,)
        # Nearly equal rows are read with an error of 1e-16, at distances of 1e-6.
        close(value, record["value"], 1e-9, 1e-22)
        for one in slope:  # 0 where the value is infinite, or larger than the largest double
            close(one, 0 if math.isinf(float(record["value"])) else record["dalpha"], 1e-7, 1e-15)


@pytest.mark.parametrize("record", [one for one in RECORDS if "estimator" in one], ids=titles)
def test_estimators(record):
    name, counts, params = record["estimator"], record["counts"], record["params"]
    value = isentropic.entropy_of_counts(counts, estimator=name, **params)
    close(value, record["value"], 2e-12)
    close(
        isentropic.entropy_of_counts(counts[::-1], estimator=name, base=2, **params),
        float(record["value"]) / math.log(2),
        2e-12,
    )
    if "std" in record:
        _, std = isentropic.entropy_of_counts(counts, estimator=name, return_std=True, **params)
        close(std, record["std"], 1e-9)


def test_every_new_measure_and_estimator_is_there():
    names = {one.get("measure", one.get("estimator")) for one in RECORDS}
    assert {"varentropy", "hill_number", "renyi_divergence", "alpha_divergence", "nsb", "james_stein"} <= names
