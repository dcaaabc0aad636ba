"""The checks of a tiered save, and advice that mends."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from mlsysim import Q_, Check, TieredCheckpointModel

MODEL = TieredCheckpointModel()
NAMES = ["training advances", "drain keeps up", "local storage holds it"]


def checks(plan: dict[str, Any], **changed: Any) -> dict[str, Check]:
    """The checks of a changed plan by their names."""
    return {check.name: check for check in MODEL.solve(**(plan | changed)).checks}


def test_three_checks_in_order(plan: dict[str, Any]) -> None:
    """Training advances, drain keeps up, local storage holds it."""
    assert NAMES == list(checks(plan))


def test_fields_of_a_check(plan: dict[str, Any]) -> None:
    """A check has a name, whether it holds, the value, its bound, the slack between them, and no advice where it holds."""
    check = checks(plan)["drain keeps up"]
    assert (True, Q_("2.45 s"), Q_("10 min"), Q_("597.55 s"), "") == (check.holds, check.value, check.bound, check.slack, check.advice)


def test_slack_is_negative_where_it_fails(plan: dict[str, Any]) -> None:
    """What is missing is a negative slack."""
    check = checks(plan, save_interval=Q_("2 s"))["drain keeps up"]
    assert (False, pytest.approx(-0.45)) == (check.holds, check.slack.base)  # type: ignore[union-attr]


def test_what_is_not_stated_is_not_checked(plan: dict[str, Any]) -> None:
    """Without a capacity the check holds None, never True; the room is still told, and the plan may be feasible."""
    check = checks(plan)["local storage holds it"]
    assert (None, None, None, Q_("19.140625 GB")) == (check.holds, check.bound, check.slack, check.value)
    assert "local_capacity" in check.advice
    assert True is MODEL.solve(**plan).feasible


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({}, []),
        ({"local_capacity": Q_("20 GB")}, []),
        ({"local_capacity": Q_("19.140625 GB")}, []),
        ({"local_capacity": Q_("19.140624999 GB")}, ["local storage holds it"]),
        ({"save_interval": Q_("2.45 s")}, []),
        ({"save_interval": Q_("2.449999999 s")}, ["drain keeps up"]),
        ({"local_bandwidth": Q_("1 GB/s"), "save_interval": Q_("9.5703125 s")}, ["training advances"]),
        ({"local_bandwidth": Q_("1 GB/s"), "save_interval": Q_("9.570312501 s")}, []),
        ({"local_bandwidth": Q_("1 GB/s"), "save_interval": Q_("1 s"), "local_capacity": Q_("1 GB")}, NAMES),
    ],
)
def test_bounds(plan: dict[str, Any], changed: dict[str, Any], failing: list[str]) -> None:
    """A pause must stay below the interval; a drain may take all of it; two shards may fill the room. Feasible: none fails."""
    result = MODEL.solve(**(plan | changed))
    assert failing == [check.name for check in result.checks if check.holds is False]
    assert (not failing) is result.feasible


@pytest.mark.parametrize(
    ("changed", "name", "advice"),
    [
        ({"durable_bandwidth": Q_("2 GB/s")}, "drain keeps up", "raise durable_bandwidth to 4.09 GB/s, or save every 20.5 min"),
        ({"network_bandwidth": Q_("10 MB/s")}, "drain keeps up", "raise network_bandwidth to 16 MB/s, or save every 16 min"),
        ({"local_read_bandwidth": Q_("10 MB/s")}, "drain keeps up", "raise local_read_bandwidth to 16 MB/s, or save every 16 min"),
        (
            {"durable_bandwidth": Q_("2 GB/s"), "network_bandwidth": Q_("10 MB/s")},
            "drain keeps up",
            "raise durable_bandwidth to 4.09 GB/s and raise network_bandwidth to 16 MB/s, or save every 20.5 min",
        ),
        ({"local_bandwidth": Q_("10 MB/s")}, "training advances", "raise local_bandwidth to 16 MB/s, or save every 16 min"),
        ({"local_capacity": Q_("1 GB")}, "local storage holds it", "raise local_capacity to 19.2 GB"),
    ],
)
def test_advice(plan: dict[str, Any], changed: dict[str, Any], name: str, advice: str) -> None:
    """Advice names what binds, and numbers rounded to the safe side."""
    assert advice == checks(plan, **changed)[name].advice


def test_issue_example_of_advice(plan: dict[str, Any]) -> None:
    """35 TB in 10 min want 58.4 GB/s, or the 17.5 min that 33.4 GB/s take."""
    changed = {"checkpoint_bytes": Q_("35 TB"), "durable_bandwidth": Q_("33.4 GB/s")}
    assert "raise durable_bandwidth to 58.4 GB/s, or save every 17.5 min" == checks(plan, **changed)["drain keeps up"].advice


def test_advice_on_arrays_counts(plan: dict[str, Any]) -> None:
    """For arrays the advice tells how many fail, and where to get numbers."""
    found = checks(plan, save_interval=Q_([1, 2, 600], "s"))["drain keeps up"]
    assert ([False, False, True], True) == (found.holds.tolist(), found.advice.startswith("2 of 3 situations fail"))


def test_a_check_is_a_value(plan: dict[str, Any]) -> None:
    """Checks are equal by meaning, hash, pickle, and cannot be changed."""
    one, other = checks(plan)["drain keeps up"], checks(plan, save_interval=Q_("600 s"))["drain keeps up"]
    assert (one, hash(one), one) == (other, hash(other), pickle.loads(pickle.dumps(one)))
    with pytest.raises(AttributeError):
        one.holds = False  # type: ignore[misc]


def test_a_check_of_arrays_is_locked(plan: dict[str, Any]) -> None:
    """Whether a check holds cannot be overwritten, before a pickle or after."""
    check = checks(plan, save_interval=Q_([1, 600], "s"))["drain keeps up"]
    for each in (check, pickle.loads(pickle.dumps(check))):
        assert (False, np.bool_) == (each.holds.flags.writeable, each.holds.dtype)


def test_a_check_shows_itself(plan: dict[str, Any]) -> None:
    """In a terminal a check reads as a sentence."""
    assert "Check('drain keeps up', holds=True, 2.45 s <= 10 min)" == repr(checks(plan)["drain keeps up"])
