"""A tiered save repeated: what share it takes, whether the drain keeps up, how old a copy can get.

``save_interval`` is the time from the start of one save to the start of the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlsysim.fields import BANDWIDTH, INFORMATION, TIME, give, give_ratio, take, take_count
from mlsysim.units import Magnitude, Quantity

__all__ = [
    "backlog_growth", "drain_utilization", "pause_fraction", "save_interval_from_steps", "shortest_save_interval",
    "waiting_cadence", "worst_durable_age", "worst_local_age",
]  # fmt: skip


def _times(place: str, **times: Quantity) -> list[Magnitude]:
    return [take(value, TIME, f"{place}.{name}") for name, value in times.items()]


def pause_fraction(*, local_write_time: Quantity, save_interval: Quantity) -> Any:
    """Share of the time that training stands still for saves.

    Equation: ``f = t_write / T``.

    Parameters
    ----------
    local_write_time : Quantity [time], scalar or array
        ``t_write``, the pause of one save.
    save_interval : Quantity [time], scalar or array
        ``T``, start of one save to the start of the next.

    Returns
    -------
    float, or array: a ratio; 1 or more means that training never advances

    Raises
    ------
    InputError
        If an input is not a positive time.

    Notes
    -----
    Assumes: every save pauses training for the same time.
    Ignores: the slowdown of training while the drain runs.

    References
    ----------
    The definition of a share.

    Examples
    --------
    Forty seconds every three hours, the 0.37 % that BLOOM reports:

    >>> from mlsysim import Q_
    >>> round(pause_fraction(local_write_time=Q_("40 s"), save_interval=Q_("3 h")), 4)
    0.0037
    """
    pause, interval = _times("pause_fraction", local_write_time=local_write_time, save_interval=save_interval)
    return give_ratio(share_of_interval_in_base(pause, interval))


def drain_utilization(*, drain_time: Quantity, save_interval: Quantity) -> Any:
    """Share of the time that the durable store is busy with this job's saves.

    Equation: ``u = t_drain / T``.

    Parameters
    ----------
    drain_time : Quantity [time], scalar or array
        ``t_drain`` of one save.
    save_interval : Quantity [time], scalar or array
        ``T``, start of one save to the start of the next.

    Returns
    -------
    float, or array: a ratio; above 1 the drain falls behind

    Raises
    ------
    InputError
        If an input is not a positive time.

    Notes
    -----
    Assumes: every save is drained.
    Ignores: other jobs on the store.

    References
    ----------
    The utilization of a single server with deterministic arrivals and service.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> round(drain_utilization(drain_time=Q_("42.4 min"), save_interval=Q_("30 min")), 3)
    1.413
    """
    drain, interval = _times("drain_utilization", drain_time=drain_time, save_interval=save_interval)
    return give_ratio(share_of_interval_in_base(drain, interval))


def share_of_interval_in_base(time: Magnitude, interval: Magnitude) -> Magnitude:
    return time / interval


def shortest_save_interval(*, local_write_time: Quantity, drain_time: Quantity) -> Quantity:
    """Infimum of the intervals that the path sustains with two local slots.

    Equation: ``T_min = max(t_write, t_drain)``.

    Parameters
    ----------
    local_write_time, drain_time : Quantity [time], scalar or array
        ``t_write`` and ``t_drain`` of one save.

    Returns
    -------
    Quantity [time], broadcast of the inputs

    Raises
    ------
    InputError
        If an input is not a positive time.

    Notes
    -----
    Assumes: two local slots, so that one save is written while the other drains.
    Ignores: what is left for training. Where the pause is the longer, nothing is: the bound itself is not reached.

    References
    ----------
    No clear provenance; the cycle time of a two-stage pipeline.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> print(shortest_save_interval(local_write_time=Q_("12 s"), drain_time=Q_("42.4 min")))
    2544.0 second
    """
    pause, drain = _times("shortest_save_interval", local_write_time=local_write_time, drain_time=drain_time)
    return give(shortest_interval_in_base(pause, drain), TIME)


def shortest_interval_in_base(pause: Magnitude, drain: Magnitude) -> Magnitude:
    return np.maximum(pause, drain)


def waiting_cadence(*, save_interval: Quantity, local_write_time: Quantity, drain_time: Quantity) -> Quantity:
    """Interval that results where each save waits for the drain of the one before.

    Equation: ``T' = max(T, t_write + t_drain)``.

    Parameters
    ----------
    save_interval : Quantity [time], scalar or array
        ``T``, as planned.
    local_write_time, drain_time : Quantity [time], scalar or array
        ``t_write`` and ``t_drain`` of one save.

    Returns
    -------
    Quantity [time], broadcast of the inputs

    Raises
    ------
    InputError
        If an input is not a positive time.

    Notes
    -----
    Assumes: one save in flight, as in several frameworks' asynchronous checkpointing.
    Ignores: skipping a save instead of waiting for it.

    References
    ----------
    No clear provenance; the rule is in the code of those frameworks, not in a paper.

    Examples
    --------
    Planned every 30 minutes, saved every 42.6:

    >>> from mlsysim import Q_
    >>> times = dict(local_write_time=Q_("12 s"), drain_time=Q_("42.4 min"))
    >>> print(waiting_cadence(save_interval=Q_("30 min"), **times).to("min"))
    42.6 minute
    """
    interval, pause, drain = _times(
        "waiting_cadence", save_interval=save_interval, local_write_time=local_write_time, drain_time=drain_time
    )
    return give(waiting_cadence_in_base(interval, pause, drain), TIME)


def waiting_cadence_in_base(interval: Magnitude, pause: Magnitude, drain: Magnitude) -> Magnitude:
    return np.maximum(interval, pause + drain)


def backlog_growth(*, checkpoint_bytes: Quantity, save_interval: Quantity, drain_time: Quantity) -> Quantity:
    """Rate at which undrained data grows.

    Equation: ``g = max(0, S / T - S / t_drain)``.

    Parameters
    ----------
    checkpoint_bytes : Quantity [information], scalar or array
        ``S`` of one save.
    save_interval, drain_time : Quantity [time], scalar or array
        ``T`` and ``t_drain``.

    Returns
    -------
    Quantity [information / time], broadcast of the inputs; 0 where the drain keeps up

    Raises
    ------
    InputError
        If an input is not positive, or has another dimension.

    Notes
    -----
    Assumes: saves go on at their interval whether or not the one before has drained.
    Ignores: the moment when local storage is full and saves stop.

    References
    ----------
    Inflow less outflow; no clear provenance.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> growth = backlog_growth(
    ...     checkpoint_bytes=Q_("6.36 TB"), save_interval=Q_("30 min"), drain_time=Q_("42.4 min"))
    >>> print(f"{growth.to('GB/s'):.3g}")
    1.03 gigabyte / second
    """
    size = take(checkpoint_bytes, INFORMATION, "backlog_growth.checkpoint_bytes")
    interval, drain = _times("backlog_growth", save_interval=save_interval, drain_time=drain_time)
    return give(backlog_growth_in_base(size, interval, drain), BANDWIDTH)


def backlog_growth_in_base(size: Magnitude, interval: Magnitude, drain: Magnitude) -> Magnitude:
    return np.maximum(size / interval - size / drain, 0.0)


def worst_local_age(*, save_interval: Quantity, local_write_time: Quantity, drain_time: Quantity) -> Quantity:
    """Oldest that the newest complete local copy can get.

    Equation: ``a = T + t_write``; infinite when ``t_write >= T`` or ``t_drain > T``.

    Parameters
    ----------
    save_interval : Quantity [time], scalar or array
        ``T``, start of one save to the start of the next.
    local_write_time, drain_time : Quantity [time], scalar or array
        ``t_write`` and ``t_drain`` of one save.

    Returns
    -------
    Quantity [time], broadcast of the inputs

    Raises
    ------
    InputError
        If an input is not a positive time.

    Notes
    -----
    Assumes: a copy holds the state as its save began, and counts once its write is complete.
    Ignores: failures of the write itself. A plan whose drain or pause does not keep up queues without end: infinite.

    References
    ----------
    No clear provenance; the age of a periodic copy just before the next is complete.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> times = dict(local_write_time=Q_("12 s"), drain_time=Q_("5 min"))
    >>> print(worst_local_age(save_interval=Q_("10 min"), **times))
    612.0 second
    """
    interval, pause, drain = _times(
        "worst_local_age", save_interval=save_interval, local_write_time=local_write_time, drain_time=drain_time
    )
    return give(worst_local_age_in_base(interval, pause, sustained_in_base(interval, pause, drain)), TIME)


def worst_durable_age(*, save_interval: Quantity, local_write_time: Quantity, drain_time: Quantity) -> Quantity:
    """Oldest that the newest durable copy can get: what the loss of the whole fleet may cost.

    Equation: ``a = T + t_write + t_drain``; infinite when ``t_write >= T`` or ``t_drain > T``.

    Parameters
    ----------
    save_interval : Quantity [time], scalar or array
        ``T``, start of one save to the start of the next.
    local_write_time, drain_time : Quantity [time], scalar or array
        ``t_write`` and ``t_drain`` of one save.

    Returns
    -------
    Quantity [time], broadcast of the inputs

    Raises
    ------
    InputError
        If an input is not a positive time.

    Notes
    -----
    Assumes: the drain begins when the local write is complete, and the copy counts when the drain is.
    Ignores: a copy that is finalised only later, and the time to detect that one is needed.

    References
    ----------
    No clear provenance; the age of a periodic copy just before the next is complete.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> times = dict(local_write_time=Q_("12 s"), drain_time=Q_("5 min"))
    >>> print(worst_durable_age(save_interval=Q_("10 min"), **times))
    912.0 second
    """
    interval, pause, drain = _times(
        "worst_durable_age", save_interval=save_interval, local_write_time=local_write_time, drain_time=drain_time
    )
    return give(worst_durable_age_in_base(interval, pause, drain, sustained_in_base(interval, pause, drain)), TIME)


def sustained_in_base(interval: Magnitude, pause: Magnitude, drain: Magnitude) -> Any:
    """Whether saves do not queue: the two time checks of a plan."""
    return (pause < interval) & (drain <= interval)


def worst_local_age_in_base(interval: Magnitude, pause: Magnitude, sustained: Any) -> Magnitude:
    return np.where(sustained, interval + pause, np.inf)


def worst_durable_age_in_base(interval: Magnitude, pause: Magnitude, drain: Magnitude, sustained: Any) -> Magnitude:
    return np.where(sustained, interval + pause + drain, np.inf)


def save_interval_from_steps(*, steps: int, step_time: Quantity) -> Quantity:
    """Save interval of a job that saves every so many steps.

    Equation: ``T = n * t_step``.

    Parameters
    ----------
    steps : int, or array of int
        ``n``, steps from one save to the next.
    step_time : Quantity [time], scalar or array
        ``t_step``, the mean over the interval, with the pause of the save in it.

    Returns
    -------
    Quantity [time], broadcast of the inputs

    Raises
    ------
    InputError
        If steps is no whole number of at least 1, or step_time no positive time.

    Notes
    -----
    Assumes: the mean step time holds from save to save.
    Ignores: the pause, unless it is counted in ``step_time``.

    References
    ----------
    The definition of a mean.

    Examples
    --------
    >>> print(save_interval_from_steps(steps=500, step_time="4.2 s").to("min"))
    35.0 minute
    """
    place = "save_interval_from_steps"
    count = take_count(steps, f"{place}.steps")
    return give(count * take(step_time, TIME, f"{place}.step_time"), TIME)
