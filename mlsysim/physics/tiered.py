"""One tiered save: each node writes its shard locally, then all shards drain to the durable store.

Every law has its arithmetic in a body ``*_in_base``: floats or arrays in base units, the only one there is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlsysim.fields import BANDWIDTH, INFORMATION, TIME, give, take, take_count
from mlsysim.units import Magnitude, Quantity

__all__ = ["drain_time", "durable_share_per_node", "local_bytes_needed", "local_write_time", "per_node_shard"]

# what may set the drain, in the order of the times in ``drain_times_in_base``
DRAIN_LIMITS = ("durable_bandwidth", "network_bandwidth", "local_read_bandwidth")


def per_node_shard(*, checkpoint_bytes: Quantity, nodes: int) -> Quantity:
    """Bytes that each node writes when a checkpoint is spread evenly.

    Equation: ``s = S / N``.

    Parameters
    ----------
    checkpoint_bytes : Quantity [information], scalar or array
        ``S``, the whole checkpoint as stored.
    nodes : int, or array of int
        ``N``.

    Returns
    -------
    Quantity [information], broadcast of the inputs

    Raises
    ------
    InputError
        If the checkpoint is not a positive amount of information, or nodes is no whole number of at least 1.

    Notes
    -----
    Assumes: an even split. Where one node writes more, give its share as ``largest_shard`` instead.
    Ignores: replicas, padding and containers, unless they are counted in ``S``.

    References
    ----------
    The definition of an even share.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> print(per_node_shard(checkpoint_bytes=Q_("2.45 TB"), nodes=256).to("GB"))
    9.5703125 gigabyte
    """
    place = "per_node_shard"
    size = take(checkpoint_bytes, INFORMATION, f"{place}.checkpoint_bytes")
    return give(per_node_shard_in_base(size, take_count(nodes, f"{place}.nodes")), INFORMATION)


def per_node_shard_in_base(size: Magnitude, nodes: Any) -> Magnitude:
    return size / nodes


def local_write_time(*, per_node_shard: Quantity, local_bandwidth: Quantity) -> Quantity:
    """Time that training stands still while every node writes its shard to local storage.

    Equation: ``t_write = s / B_local``.

    Parameters
    ----------
    per_node_shard : Quantity [information], scalar or array
        ``s``, of the node that writes most.
    local_bandwidth : Quantity [information / time], scalar or array
        ``B_local``, write, of one node.

    Returns
    -------
    Quantity [time], broadcast of the inputs

    Raises
    ------
    InputError
        If an input has another dimension, or is not positive and finite.

    Notes
    -----
    Assumes: all nodes start together and training waits for the slowest, which is the one with the largest shard.
    Ignores: the copy from accelerator to host, serialization, file system latency, slow drives.

    References
    ----------
    No clear provenance; the training pause of every local-first scheme, as in [Nicolae2020] and [Wang2023].

    Examples
    --------
    >>> from mlsysim import Q_
    >>> print(local_write_time(per_node_shard=Q_("9.5703125 GB"), local_bandwidth=Q_("28 GB/s")))
    0.341796875 second
    """
    place = "local_write_time"
    shard = take(per_node_shard, INFORMATION, f"{place}.per_node_shard")
    return give(local_write_time_in_base(shard, take(local_bandwidth, BANDWIDTH, f"{place}.local_bandwidth")), TIME)


def local_write_time_in_base(shard: Magnitude, local_bandwidth: Magnitude) -> Magnitude:
    return shard / local_bandwidth


def drain_time(
    *,
    checkpoint_bytes: Quantity,
    per_node_shard: Quantity,
    durable_bandwidth: Quantity,
    network_bandwidth: Quantity | None = None,
    local_read_bandwidth: Quantity | None = None,
) -> Quantity:
    """Time for the durable tier to receive one checkpoint.

    Equation: ``t_drain = max(S / B_durable, s / B_network, s / B_read)``.

    Parameters
    ----------
    checkpoint_bytes : Quantity [information], scalar or array
        ``S``, what is stored, replicas included.
    per_node_shard : Quantity [information], scalar or array
        ``s``, of the node that holds most.
    durable_bandwidth : Quantity [information / time], scalar or array
        ``B_durable``, of the whole store, shared by the fleet.
    network_bandwidth, local_read_bandwidth : Quantity [information / time], scalar or array, optional
        ``B_network`` and ``B_read`` of one node; left out, they do not limit.

    Returns
    -------
    Quantity [time], broadcast of the inputs

    Raises
    ------
    InputError
        If an input has another dimension, or is not positive and finite.

    Notes
    -----
    Assumes: reading, sending and storing overlap fully, so that the slowest of the three sets the time.
    Ignores: latency and metadata, other jobs on the store, the share of the network that training uses.

    References
    ----------
    No clear provenance; the bottleneck of a pipeline. [Wang2023] takes ``S / B_durable`` alone.

    Examples
    --------
    MT-NLG 530B at 12 byte per parameter through 20 Gb/s, which GEMINI gives as 42 minutes:

    >>> from mlsysim import Q_
    >>> size = Q_("6.36 TB")
    >>> print(drain_time(checkpoint_bytes=size, per_node_shard=size / 280, durable_bandwidth=Q_("20 Gb/s")).to("min"))
    42.4 minute
    """
    place = "drain_time"
    times = drain_times_in_base(
        take(checkpoint_bytes, INFORMATION, f"{place}.checkpoint_bytes"),
        take(per_node_shard, INFORMATION, f"{place}.per_node_shard"),
        take(durable_bandwidth, BANDWIDTH, f"{place}.durable_bandwidth"),
        None if network_bandwidth is None else take(network_bandwidth, BANDWIDTH, f"{place}.network_bandwidth"),
        None if local_read_bandwidth is None else take(local_read_bandwidth, BANDWIDTH, f"{place}.local_read_bandwidth"),
    )
    return give(slowest_in_base(times)[0], TIME)


def drain_times_in_base(
    size: Magnitude, shard: Magnitude, durable: Magnitude, network: Magnitude | None, read: Magnitude | None
) -> tuple[Magnitude | None, ...]:
    """The three times of which the slowest is the drain; None where nothing was stated."""
    return size / durable, None if network is None else shard / network, None if read is None else shard / read


def slowest_in_base(times: tuple[Magnitude | None, ...]) -> tuple[Magnitude, Any]:
    """The largest of the times, and which it was: the first on a tie."""
    slowest: Any = times[0]
    which: Any = np.int8(0)
    for number, time in enumerate(times[1:], start=1):
        if time is not None:
            which = np.where(time > slowest, np.int8(number), which)
            slowest = np.maximum(slowest, time)
    return slowest, which


def durable_share_per_node(*, durable_bandwidth: Quantity, nodes: int) -> Quantity:
    """Bandwidth of the durable store that falls to each node when all drain together.

    Equation: ``b = B_durable / N``.

    Parameters
    ----------
    durable_bandwidth : Quantity [information / time], scalar or array
        ``B_durable``, of the whole store.
    nodes : int, or array of int
        ``N``.

    Returns
    -------
    Quantity [information / time], broadcast of the inputs

    Raises
    ------
    InputError
        If the bandwidth is not positive, or nodes is no whole number of at least 1.

    Notes
    -----
    Assumes: the store is shared evenly and by nobody else.
    Ignores: what one client can drive; a share above the node's network bandwidth is never reached.

    References
    ----------
    The definition of an even share.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> print(durable_share_per_node(durable_bandwidth=Q_("1 TB/s"), nodes=256).to("GB/s"))
    3.90625 gigabyte / second
    """
    place = "durable_share_per_node"
    bandwidth = take(durable_bandwidth, BANDWIDTH, f"{place}.durable_bandwidth")
    return give(durable_share_in_base(bandwidth, take_count(nodes, f"{place}.nodes")), BANDWIDTH)


def durable_share_in_base(durable_bandwidth: Magnitude, nodes: Any) -> Magnitude:
    return durable_bandwidth / nodes


def local_bytes_needed(*, per_node_shard: Quantity) -> Quantity:
    """Room that a node needs: the last complete shard stays until the next is whole.

    Equation: ``room = 2 s``.

    Parameters
    ----------
    per_node_shard : Quantity [information], scalar or array
        ``s``, of the node that writes most.

    Returns
    -------
    Quantity [information]

    Raises
    ------
    InputError
        If the shard is not a positive amount of information.

    Notes
    -----
    Assumes: two local slots, one holding the last complete copy and one being written.
    Ignores: replicas of other nodes' shards, and what else lies on the drive.

    References
    ----------
    [NVRx] asks for at least two parts per rank, clean and dirty.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> print(local_bytes_needed(per_node_shard=Q_("10 GB")).to("GB"))
    20.0 gigabyte
    """
    return give(local_bytes_in_base(take(per_node_shard, INFORMATION, "local_bytes_needed.per_node_shard")), INFORMATION)


def local_bytes_in_base(shard: Magnitude) -> Magnitude:
    return 2.0 * shard
