"""The laws of a tiered save that is repeated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mlsysim import Q_, InputError, save_interval_from_steps
from mlsysim.physics import cadence

TIMES: dict[str, Any] = {"save_interval": Q_("10 min"), "local_write_time": Q_("1 min"), "drain_time": Q_("5 min")}


def times(*names: str, **changed: Any) -> dict[str, Any]:
    """Some of the times above, some of them changed."""
    return {name: Q_(changed[name]) if name in changed else TIMES[name] for name in names}


ALL = tuple(TIMES)


def test_pause_fraction() -> None:
    """A minute in ten is a tenth."""
    assert 0.1 == cadence.pause_fraction(**times("local_write_time", "save_interval"))


def test_drain_utilization() -> None:
    """Five minutes in ten are a half."""
    assert 0.5 == cadence.drain_utilization(**times("drain_time", "save_interval"))


@pytest.mark.parametrize(
    ("pause", "drain", "shortest"), [("1 min", "5 min", "5 min"), ("6 min", "5 min", "6 min"), ("5 min", "5 min", "5 min")]
)
def test_shortest_save_interval(pause: str, drain: str, shortest: str) -> None:
    """The longer of the pause and the drain bounds the interval from below."""
    assert Q_(shortest) == cadence.shortest_save_interval(local_write_time=Q_(pause), drain_time=Q_(drain))


@pytest.mark.parametrize(("drain", "waits"), [("5 min", "10 min"), ("9 min", "10 min"), ("9.5 min", "10.5 min"), ("20 min", "21 min")])
def test_waiting_cadence(drain: str, waits: str) -> None:
    """A save that waits for the drain before it comes every pause plus drain, and no more often than planned."""
    assert Q_(waits) == cadence.waiting_cadence(**times(*ALL, drain_time=drain))


def test_backlog_growth() -> None:
    """What comes in above what goes out is the growth."""
    growth = cadence.backlog_growth(checkpoint_bytes=Q_("6 TB"), save_interval=Q_("1 min"), drain_time=Q_("2 min"))
    assert Q_("50 GB/s") == growth


@pytest.mark.parametrize("drain", ["5 min", "10 min"])
def test_no_backlog_where_the_drain_keeps_up(drain: str) -> None:
    """Up to a drain as long as the interval nothing piles up."""
    assert 0.0 == cadence.backlog_growth(checkpoint_bytes=Q_("6 TB"), save_interval=Q_("10 min"), drain_time=Q_(drain)).magnitude


def test_worst_ages() -> None:
    """The local copy gets as old as interval and pause, the durable one older by the drain."""
    assert (Q_("11 min"), Q_("16 min")) == (cadence.worst_local_age(**TIMES), cadence.worst_durable_age(**TIMES))


@pytest.mark.parametrize(
    ("changed", "endless"),
    [
        ({"drain_time": "10 min"}, False), ({"drain_time": "10.1 min"}, True), ({"local_write_time": "10 min"}, True),
        ({"local_write_time": "9.99 min"}, False), ({"save_interval": "5 min"}, False), ({"save_interval": "1 min"}, True),
    ],
)  # fmt: skip
def test_ages_without_end(changed: dict[str, str], endless: bool) -> None:
    """Ages are infinite where the pause leaves no time, or the drain takes longer than the interval, and only there."""
    ages = (cadence.worst_local_age(**times(*ALL, **changed)), cadence.worst_durable_age(**times(*ALL, **changed)))
    assert [endless, endless] == [math.isinf(age.magnitude) for age in ages]


def test_save_interval_from_steps() -> None:
    """500 steps of 4.2 s are 35 minutes."""
    assert Q_("35 min") == save_interval_from_steps(steps=500, step_time="4.2 s")  # type: ignore[arg-type]


def test_save_interval_from_arrays_of_steps() -> None:
    """A column of steps against a row of step times is a table."""
    table = save_interval_from_steps(steps=np.array([[100], [200]]), step_time=Q_([1, 2], "s"))
    assert [[100.0, 200.0], [200.0, 400.0]] == table.magnitude.tolist()


@pytest.mark.parametrize("steps", [0, -4, 2.5, True, "500", None])
def test_bad_steps(steps: Any) -> None:
    """Steps are a count."""
    with pytest.raises(InputError, match=r"^save_interval_from_steps.steps must be a whole number of at least 1; got .*Write steps=8"):
        save_interval_from_steps(steps=steps, step_time=Q_("4.2 s"))


@pytest.mark.parametrize("step_time", [4.2, "4.2", "4.2 GB", "0 s", "-1 s", "nan s", "1:30:00"])
def test_bad_step_time(step_time: Any) -> None:
    """A step time is a time, with its unit."""
    with pytest.raises(InputError, match=r"^save_interval_from_steps.step_time must be"):
        save_interval_from_steps(steps=500, step_time=step_time)


@pytest.mark.parametrize("law", [getattr(cadence, name) for name in cadence.__all__], ids=lambda law: law.__name__)
def test_arguments_go_by_name(law: Any) -> None:
    """Times cannot be swapped by position."""
    with pytest.raises(TypeError, match="positional"):
        law(Q_("1 min"), Q_("1 min"), Q_("1 min"))
