"""Room for a tiered save: host memory, drives, the store; checked where something is stated, with advice that mends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import Q_, InputError, StagingPlan, TieredCheckpointModel
from mlsysim.solvers import Check

MODEL = TieredCheckpointModel()


def named(result: Any, name: str) -> Check:
    found: Check = next(each for each in result.checks if each.name == name)
    return found


def test_nothing_stated_nothing_checked(plan: dict[str, Any]) -> None:
    """Without a staging plan, an endurance or kept checkpoints there are the three checks alone."""
    assert ["training advances", "drain keeps up", "local storage holds it"] == [each.name for each in MODEL.solve(**plan).checks]


def test_stated_without_a_bound_is_not_checked(plan: dict[str, Any]) -> None:
    """A staging plan without host memory, or kept checkpoints without a capacity, is not checked, and never passed."""
    result = MODEL.solve(**plan, staging=StagingPlan(), kept=3)
    assert [None, None] == [each.holds for each in result.checks[3:]]
    assert ["host_memory", "durable_capacity"] == [each.missing for each in result.checks[3:]]
    assert result.feasible


def test_each_check_decides_feasibility(plan: dict[str, Any]) -> None:
    """Any one of the three that fails makes the plan infeasible."""
    for given_ in (
        {"staging": StagingPlan(), "host_memory": "1 GB"},
        {"local_endurance": "1 MB/s"},
        {"kept": 3, "durable_capacity": "9 TB"},
    ):
        assert not MODEL.solve(**plan, **given_).feasible


def test_room_on_the_store(plan: dict[str, Any]) -> None:
    """Keeping three checkpoints of 2.45 TB takes 9.8 TB, and the advice gives the most that fits."""
    check = named(MODEL.solve(**plan, kept=3, durable_capacity=Q_("7.5 TB")), "store holds what is kept")
    assert (Q_("9.8 TB"), False, Q_("-2.3 TB")) == (check.value, check.holds, check.slack)
    assert "raise durable_capacity to 9.8 TB, or keep 2" == check.advice


@given(
    memory=st.floats(0.1, 200), buffers=st.integers(1, 4), replication=st.integers(1, 3), growth=st.floats(1, 3),
    resident=st.floats(0.001, 50),
)  # fmt: skip
def test_waves_put_back_fit(memory: float, buffers: int, replication: int, growth: float, resident: float) -> None:
    """The waves that the advice names make the check hold, and one fewer does not."""
    staging = StagingPlan(buffers=buffers, replication=replication, growth=growth, resident_per_process=Q_(resident, "GB"))
    plan = {
        "checkpoint_bytes": Q_("2.45 TB"), "nodes": 256, "local_bandwidth": Q_("28 GB/s"), "durable_bandwidth": Q_("1 TB/s"),
        "save_interval": Q_("10 min"), "host_memory": Q_(memory, "GB"),
    }  # fmt: skip
    check = named(MODEL.solve(**plan, staging=staging), "host memory holds it")
    for group in check.remedies:
        for remedy in group:
            if remedy.field == "waves":
                assert named(MODEL.solve(**plan, staging=evolve(staging, waves=remedy.value)), check.name).holds
                if remedy.value > 1:
                    assert not named(MODEL.solve(**plan, staging=evolve(staging, waves=remedy.value - 1)), check.name).holds
            else:
                assert named(MODEL.solve(**(plan | {remedy.field: remedy.value}), staging=staging), check.name).holds


@given(rate=st.floats(1e-3, 1e3))
def test_endurance_put_back_holds(rate: float) -> None:
    """The endurance or the interval that the advice names makes the drives last."""
    plan = {
        "checkpoint_bytes": Q_("2.45 TB"), "nodes": 256, "local_bandwidth": Q_("28 GB/s"), "durable_bandwidth": Q_("1 TB/s"),
        "save_interval": Q_("10 min"), "local_endurance": Q_(rate, "MB/s"),
    }  # fmt: skip
    check = named(MODEL.solve(**plan), "local drives last")
    assert (rate * 1e6 >= 2.45e12 / 256 / 600) == check.holds
    for group in check.remedies:
        for remedy in group:
            assert named(MODEL.solve(**(plan | {remedy.field: remedy.value})), check.name).holds


def test_arrays(plan: dict[str, Any]) -> None:
    """An array of kept checkpoints gives an array of answers."""
    result = MODEL.solve(**plan, kept=np.array([1, 2, 3]), durable_capacity="8 TB")
    assert ((3,), [True, True, False]) == (result.shape, result.feasible.tolist())


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"kept": 0}, "kept"),
        ({"kept": True}, "kept"),
        ({"host_memory": "5 GB/s"}, "host_memory"),
        ({"durable_capacity": 7}, "durable_capacity"),
    ],
)
def test_bad_room_is_named(plan: dict[str, Any], bad: dict[str, Any], field: str) -> None:
    """A bad amount of room is refused by its field."""
    with pytest.raises(InputError, match=field):
        MODEL.solve(**plan, **bad)
