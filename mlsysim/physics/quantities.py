"""Amounts: how many bytes a state holds, and how long they take to move."""

from __future__ import annotations

from mlsysim.fields import BANDWIDTH, BYTES_PER_PARAM, INFORMATION, PARAMETERS, TIME, give, take
from mlsysim.units import Magnitude, Quantity

__all__ = ["memory_from_params", "transfer_time"]


def memory_from_params(parameters: Quantity, bytes_per_param: Quantity) -> Quantity:
    """Bytes that a training state of so many parameters holds.

    Equation: ``S = P * b``.

    Parameters
    ----------
    parameters : Quantity [parameter], scalar or array
        ``P``, each counted once.
    bytes_per_param : Quantity [information / parameter], scalar or array
        ``b``, what a save holds for each: weights, master weights, optimizer moments.

    Returns
    -------
    Quantity [information], broadcast of the inputs

    Raises
    ------
    InputError
        If an input is without unit, of another dimension, not positive or not finite.

    Notes
    -----
    Assumes: every parameter costs the same bytes, and each is stored once.
    Ignores: what is not per parameter (step counters, random states, metadata, container headers), and replicas.

    References
    ----------
    The definition of an average. [Rajbhandari2020] sec. 3.1 counts the bytes of mixed-precision Adam.

    Examples
    --------
    GPT-3 with bf16 weights, a 4-byte master copy and two 4-byte moments:

    >>> from mlsysim import Q_
    >>> print(memory_from_params(Q_("175e9 param"), Q_("14 byte/param")).to("TB"))
    2.45 terabyte
    """
    place = "memory_from_params"
    return give(
        _memory(
            take(parameters, PARAMETERS, f"{place}.parameters"),
            take(bytes_per_param, BYTES_PER_PARAM, f"{place}.bytes_per_param"),
        ),
        INFORMATION,
    )


def _memory(parameters: Magnitude, bytes_per_param: Magnitude) -> Magnitude:
    return parameters * bytes_per_param


def transfer_time(amount: Quantity, bandwidth: Quantity) -> Quantity:
    """Time for an amount of information to pass at a bandwidth.

    Equation: ``t = D / B``.

    Parameters
    ----------
    amount : Quantity [information], scalar or array
        ``D``.
    bandwidth : Quantity [information / time], scalar or array
        ``B``, sustained over the whole transfer.

    Returns
    -------
    Quantity [time], broadcast of the inputs

    Raises
    ------
    InputError
        If an input is without unit, of another dimension, not positive or not finite.

    Notes
    -----
    Assumes: the bandwidth is sustained from the first byte to the last.
    Ignores: latency, ramp-up, metadata, contention with other traffic.

    References
    ----------
    The definition of a mean rate.

    Examples
    --------
    A 10 Gb/s line moves a 978 GB checkpoint in 13 minutes; who takes it for 10 GB/s expects 1.6:

    >>> from mlsysim import Q_
    >>> print(f"{transfer_time(Q_('978406572032 byte'), Q_('10 Gb/s')).to('min'):.4g}")
    13.05 minute
    """
    place = "transfer_time"
    return give(
        _transfer(take(amount, INFORMATION, f"{place}.amount"), take(bandwidth, BANDWIDTH, f"{place}.bandwidth")),
        TIME,
    )


def _transfer(amount: Magnitude, bandwidth: Magnitude) -> Magnitude:
    return amount / bandwidth
