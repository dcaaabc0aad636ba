"""Where a checkpoint becomes durable."""

from __future__ import annotations

from attrs import frozen

from mlsysim.fields import BANDWIDTH, quantity, text
from mlsysim.units import Quantity

__all__ = ["Store"]


@frozen(kw_only=True)
class Store:
    """A durable store, by the rates that a whole fleet gets from it.

    Parameters
    ----------
    name : str
    write_bandwidth : Quantity [information / time]
        Of the whole store, all clients together.
    read_bandwidth : Quantity [information / time], optional

    Raises
    ------
    InputError
        If a rate has another dimension, or is not positive and finite.

    Examples
    --------
    >>> print(Store(name="20 Gb/s object store", write_bandwidth="20 Gb/s").write_bandwidth.to("GB/s"))
    2.5 gigabyte / second
    """

    name: str = text()
    write_bandwidth: Quantity = quantity(BANDWIDTH)
    read_bandwidth: Quantity | None = quantity(BANDWIDTH, optional=True)
