"""Host memory that a save passes through."""

from __future__ import annotations

from typing import Any

from mlsysim.fields import INFORMATION, give, take, take_count
from mlsysim.units import Magnitude, Quantity

__all__ = ["host_bytes_needed"]


def host_bytes_needed(
    *, staged: Quantity, buffers: int = 1, replication: int = 1, waves: int = 1, growth: float = 1.0, resident: Quantity | None = None
) -> Quantity:
    """Host memory that a node needs while it saves.

    Equation: ``H = g b r s / w + m``.

    Parameters
    ----------
    staged : Quantity [information], scalar or array
        ``s``, what a node stages for one save.
    buffers, replication, waves : int, or array of int
        ``b`` saves in flight, ``r`` copies of each shard among peers, ``w`` parts that are staged one after the other.
    growth : float
        ``g``, measured peak over what was staged.
    resident : Quantity [information], scalar or array, optional
        ``m``, what lies in host memory besides.

    Returns
    -------
    Quantity [information], broadcast of the inputs

    Raises
    ------
    InputError
        If an amount is not positive, or a count no whole number of at least 1.

    Notes
    -----
    Assumes: waves are equal, and the memory of one is free before the next begins.
    Ignores: the page cache, pinned memory that is never given back, fragmentation beyond ``g``.

    References
    ----------
    No clear provenance; an account of copies.

    Examples
    --------
    651 GB a node fit once in 780 GB and not twice:

    >>> from mlsysim import Q_
    >>> print(host_bytes_needed(staged=Q_("651 GB"), buffers=2).to("GB"))
    1302.0 gigabyte
    """
    place = "host_bytes_needed"
    named = (("buffers", buffers), ("replication", replication), ("waves", waves))
    flight, copies, parts = (take_count(each, f"{place}.{name}") for name, each in named)
    amount = take(staged, INFORMATION, f"{place}.staged")
    besides = 0.0 if resident is None else take(resident, INFORMATION, f"{place}.resident")
    return give(host_bytes_in_base(amount, flight, copies, parts, growth, besides), INFORMATION)


def host_bytes_in_base(staged: Magnitude, buffers: Any, replication: Any, waves: Any, growth: float, resident: Magnitude) -> Magnitude:
    return growth * buffers * replication * staged / waves + resident
