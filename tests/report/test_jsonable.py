"""Answers as JSON."""

from __future__ import annotations

import json
import math

import attrs
import numpy as np
import pytest

from mlsysim import Q_
from mlsysim.report.jsonable import jsonable


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        (Q_("2.45 TB"), {"magnitude": 2.45e12, "unit": "byte"}),
        (Q_("10 min"), {"magnitude": 600.0, "unit": "second"}),
        (Q_("400 Gb/s"), {"magnitude": 50e9, "unit": "byte/second"}),
        (Q_(math.inf, "min"), {"magnitude": None, "unit": "second", "never": True}),
    ],
)
def test_quantity(quantity: object, expected: object) -> None:
    """A quantity is its magnitude and unit in base units; an infinite one never comes."""
    assert expected == jsonable(quantity)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.5), 0.5), (np.bool_(True), True), (np.int64(3), 3), (np.array([True, False]), [True, False]), (math.inf, None),
        (math.nan, None),
        (None, None), ("a", "a"), ((1, 2), [1, 2]), ({1: Q_("1 s")}, {"1": {"magnitude": 1.0, "unit": "second"}}), (True, True),
        (Q_([1.0, math.inf], "s"), {"magnitude": [1.0, None], "unit": "second"}),
    ],
)  # fmt: skip
def test_value(value: object, expected: object) -> None:
    """What numpy made becomes Python's own, and no NaN or Infinity is left."""
    made = jsonable(value)
    assert (expected, json.dumps(expected, allow_nan=False)) == (made, json.dumps(made, allow_nan=False))


def test_record() -> None:
    """A record has its fields."""

    @attrs.frozen
    class Pair:
        first: object
        second: object

    assert {"first": {"magnitude": 1.0, "unit": "second"}, "second": [1]} == jsonable(Pair(Q_("1 s"), (1,)))
