"""What a run of saves leaves behind: how many, how much room, how fast it wears the drives."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from mlsysim.fields import BANDWIDTH, INFORMATION, RATE, TIME, give, take, take_count
from mlsysim.units import Magnitude, Quantity

__all__ = ["archived_saves", "drive_writes_per_day", "local_write_rate", "retained_bytes", "saves_in_run"]


def saves_in_run(*, run_time: Quantity, save_interval: Quantity) -> int:
    """Saves that a run completes, counted exactly.

    Equation: ``n = floor(t_run / T)``.

    Parameters
    ----------
    run_time, save_interval : Quantity [time], scalar
        ``t_run`` and ``T``.

    Returns
    -------
    int

    Raises
    ------
    InputError
        If an input is not a positive time.

    Notes
    -----
    Assumes: the first save starts one interval after the run does, and saves never wait.
    Ignores: failures, which shift the saves after them.

    References
    ----------
    The definition of a count. Both times are taken as they read, so that no rounded division loses a save.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> saves_in_run(run_time=Q_("7 day"), save_interval=Q_("10 min"))
    1008
    """
    run, interval = take(run_time, TIME, "saves_in_run.run_time"), take(save_interval, TIME, "saves_in_run.save_interval")
    return int(_as_it_reads(run) // _as_it_reads(interval))


def _as_it_reads(value: Magnitude) -> Fraction:
    return Fraction(Decimal(repr(float(value))))


def archived_saves(*, saves: int, every: int) -> int:
    """Saves that are archived: every k-th, and the last.

    Equation: ``a = ceil(n / k)``.

    Parameters
    ----------
    saves, every : int
        ``n`` and ``k``.

    Returns
    -------
    int

    Raises
    ------
    InputError
        If an input is no whole number of at least 1.

    Notes
    -----
    Assumes: the k-th, 2k-th, ... save is archived, and the last one whether or not its turn has come.
    Ignores: saves that failed.

    References
    ----------
    No clear provenance; a common policy.

    Examples
    --------
    >>> archived_saves(saves=1008, every=100)
    11
    """
    return -(-take_count(saves, "archived_saves.saves") // take_count(every, "archived_saves.every"))  # type: ignore[no-any-return]


def retained_bytes(*, checkpoint_bytes: Quantity, kept: int) -> Quantity:
    """Room that keeping so many checkpoints takes at its peak: one more, while the newest is written.

    Equation: ``room = (k + 1) S``.

    Parameters
    ----------
    checkpoint_bytes : Quantity [information], scalar or array
        ``S``.
    kept : int, or array of int
        ``k``, complete checkpoints that are always there.

    Returns
    -------
    Quantity [information], broadcast of the inputs

    Raises
    ------
    InputError
        If the checkpoint is not a positive amount, or kept no whole number of at least 1.

    Notes
    -----
    Assumes: an old checkpoint is deleted only when the new one is whole. Deleting it first needs ``k S`` and loses it.
    Ignores: uneven stripes; the free space that counts is that of the fullest target, not the sum.

    References
    ----------
    No clear provenance; the peak of any safe rotation.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> print(retained_bytes(checkpoint_bytes=Q_("100 GB"), kept=1).to("GB"))
    200.0 gigabyte
    """
    size = take(checkpoint_bytes, INFORMATION, "retained_bytes.checkpoint_bytes")
    return give(retained_bytes_in_base(size, take_count(kept, "retained_bytes.kept")), INFORMATION)


def retained_bytes_in_base(size: Magnitude, kept: Any) -> Magnitude:
    return (kept + 1) * size


def local_write_rate(*, per_node_shard: Quantity, save_interval: Quantity) -> Quantity:
    """Rate at which a node writes its local storage, averaged over an interval.

    Equation: ``r = s / T``.

    Parameters
    ----------
    per_node_shard : Quantity [information], scalar or array
        ``s``, of the node that writes most.
    save_interval : Quantity [time], scalar or array
        ``T``.

    Returns
    -------
    Quantity [information / time], broadcast of the inputs

    Raises
    ------
    InputError
        If an input is not positive, or has another dimension.

    Notes
    -----
    Assumes: every save writes the whole shard.
    Ignores: write amplification, and what else is written.

    References
    ----------
    The definition of a mean rate.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> print(local_write_rate(per_node_shard=Q_("12 GB"), save_interval=Q_("10 min")).to("MB/s"))
    20.0 megabyte / second
    """
    shard = take(per_node_shard, INFORMATION, "local_write_rate.per_node_shard")
    return give(local_write_rate_in_base(shard, take(save_interval, TIME, "local_write_rate.save_interval")), BANDWIDTH)


def local_write_rate_in_base(shard: Magnitude, interval: Magnitude) -> Magnitude:
    return shard / interval


def drive_writes_per_day(*, per_node_shard: Quantity, save_interval: Quantity, local_capacity: Quantity) -> Quantity:
    """How often a day a node's local storage is written over, as drives are rated.

    Equation: ``w = s / (T C)``.

    Parameters
    ----------
    per_node_shard : Quantity [information], scalar or array
        ``s``.
    save_interval : Quantity [time], scalar or array
        ``T``.
    local_capacity : Quantity [information], scalar or array
        ``C``, of one node.

    Returns
    -------
    Quantity [1 / time], broadcast of the inputs

    Raises
    ------
    InputError
        If an input is not positive, or has another dimension.

    Notes
    -----
    Assumes: writes are spread evenly over the node's drives.
    Ignores: write amplification, and what else is written.

    References
    ----------
    The definition of the rating.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> rate = drive_writes_per_day(per_node_shard=Q_("178 GB"), save_interval=Q_("10 min"), local_capacity=Q_("30.72 TB"))
    >>> print(f"{rate.to('1/day').magnitude:.3g}")
    0.834
    """
    place = "drive_writes_per_day"
    shard = take(per_node_shard, INFORMATION, f"{place}.per_node_shard")
    interval = take(save_interval, TIME, f"{place}.save_interval")
    capacity = take(local_capacity, INFORMATION, f"{place}.local_capacity")
    return give(local_write_rate_in_base(shard, interval) / capacity, RATE)
