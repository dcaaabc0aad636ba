"""One tiered save: how long it pauses training, when the copy is durable, and whether the plan works."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen

from mlsysim.errors import InputError
from mlsysim.fields import BANDWIDTH, INFORMATION, TIME, give, give_ratio, locked, take, take_count
from mlsysim.physics import cadence, retention, tiered
from mlsysim.report.wording import readable
from mlsysim.solvers.tiered_checkpoint_result import TieredCheckpointInputs, TieredCheckpointResult
from mlsysim.specs import StagingPlan
from mlsysim.units import Quantity

__all__ = ["TieredCheckpointModel"]

_PLACE = "TieredCheckpointModel"


@frozen(kw_only=True)
class TieredCheckpointModel:
    """Each node writes its shard locally while training waits; the shards then drain to the durable store.

    Examples
    --------
    A row of bandwidths against a column of intervals:

    >>> from mlsysim import Q_
    >>> answer = TieredCheckpointModel().solve(
    ...     checkpoint_bytes=Q_("6.36 TB"), nodes=280, local_bandwidth=Q_("2 GB/s"),
    ...     durable_bandwidth=Q_([20, 40], "Gb/s"), save_interval=Q_([[30], [60]], "min"))
    >>> answer.feasible
    array([[False,  True],
           [ True,  True]])
    """

    def solve(
        self,
        *,
        checkpoint_bytes: Quantity,
        nodes: Any,
        local_bandwidth: Quantity,
        durable_bandwidth: Quantity,
        save_interval: Quantity,
        largest_shard: Quantity | None = None,
        network_bandwidth: Quantity | None = None,
        local_read_bandwidth: Quantity | None = None,
        local_capacity: Quantity | None = None,
        local_endurance: Quantity | None = None,
        host_memory: Quantity | None = None,
        staging: StagingPlan | None = None,
        durable_capacity: Quantity | None = None,
        kept: Any = None,
    ) -> TieredCheckpointResult:
        """Times, rates and checks of one save, or of arrays of saves.

        Parameters
        ----------
        checkpoint_bytes : Quantity [information], scalar or array
            ``S``, as stored, replicas included.
        nodes : int, or array of int
        local_bandwidth : Quantity [information / time], scalar or array
            Write, per node.
        durable_bandwidth : Quantity [information / time], scalar or array
            Of the whole store, shared by the fleet.
        save_interval : Quantity [time], scalar or array
            Start of one save to the start of the next.
        largest_shard : Quantity [information], scalar or array, optional
            What the node with most writes; an even split where left out.
        network_bandwidth, local_read_bandwidth : Quantity [information / time], scalar or array, optional
            Per node; left out, they do not limit.
        local_capacity : Quantity [information], scalar or array, optional
            Per node; left out, it is not checked.
        local_endurance : Quantity [information / time], scalar or array, optional
            What a node's local storage may be written on average.
        host_memory : Quantity [information], scalar or array, optional
            Per node, what a save may use.
        staging : StagingPlan, optional
            How a save passes through host memory; left out, host memory is not looked at.
        durable_capacity : Quantity [information], scalar or array, optional
            Room on the store for this job's checkpoints.
        kept : int, or array of int, optional
            Complete checkpoints that stay on the store; left out, its room is not looked at.

        Returns
        -------
        TieredCheckpointResult

        Raises
        ------
        InputError
            If an input is of another dimension, not positive or not finite, shapes do not broadcast, or
            ``S/N <= largest_shard <= S`` does not hold.

        Notes
        -----
        Assumes: one fleet of equal nodes that save together at a fixed interval, as the laws of each field say.
        Ignores: failures, slow nodes, latency, and the slowdown of training while the drain runs.
        """
        size = take(checkpoint_bytes, INFORMATION, f"{_PLACE}.checkpoint_bytes")
        count = take_count(nodes, f"{_PLACE}.nodes")
        local = take(local_bandwidth, BANDWIDTH, f"{_PLACE}.local_bandwidth")
        durable = take(durable_bandwidth, BANDWIDTH, f"{_PLACE}.durable_bandwidth")
        interval = take(save_interval, TIME, f"{_PLACE}.save_interval")
        network = _optional(network_bandwidth, BANDWIDTH, "network_bandwidth")
        read = _optional(local_read_bandwidth, BANDWIDTH, "local_read_bandwidth")
        capacity = _optional(local_capacity, INFORMATION, "local_capacity")
        largest = _optional(largest_shard, INFORMATION, "largest_shard")
        endurance = _optional(local_endurance, BANDWIDTH, "local_endurance")
        memory = _optional(host_memory, INFORMATION, "host_memory")
        room = _optional(durable_capacity, INFORMATION, "durable_capacity")
        copies = None if kept is None else take_count(kept, f"{_PLACE}.kept")
        shape = _shape_of(size, count, local, durable, interval, network, read, capacity, largest, endurance, memory, room, copies)

        shard = tiered.per_node_shard_in_base(size, count) if largest is None else _within(largest, size, count)
        pause = tiered.local_write_time_in_base(shard, local)
        drain, limit = tiered.slowest_in_base(tiered.drain_times_in_base(size, shard, durable, network, read))
        needed = tiered.local_bytes_in_base(shard)
        sustained = cadence.sustained_in_base(interval, pause, drain)
        fits = sustained if capacity is None else sustained & (needed <= capacity)
        if endurance is not None:
            fits = fits & (retention.local_write_rate_in_base(shard, interval) <= endurance)
        if memory is not None and staging is not None:
            fits = fits & (staging.host_bytes(give(np.array(shard), INFORMATION)).base <= memory)
        if room is not None and copies is not None:
            fits = fits & (retention.retained_bytes_in_base(size, copies) <= room)
        return TieredCheckpointResult(
            inputs=TieredCheckpointInputs(
                checkpoint_bytes=_kept(checkpoint_bytes, size, INFORMATION),
                nodes=_kept_count(count),
                local_bandwidth=_kept(local_bandwidth, local, BANDWIDTH),
                durable_bandwidth=_kept(durable_bandwidth, durable, BANDWIDTH),
                save_interval=_kept(save_interval, interval, TIME),
                largest_shard=_kept(largest_shard, largest, INFORMATION),
                network_bandwidth=_kept(network_bandwidth, network, BANDWIDTH),
                local_read_bandwidth=_kept(local_read_bandwidth, read, BANDWIDTH),
                local_capacity=_kept(local_capacity, capacity, INFORMATION),
                local_endurance=_kept(local_endurance, endurance, BANDWIDTH),
                host_memory=_kept(host_memory, memory, INFORMATION),
                staging=staging,
                durable_capacity=_kept(durable_capacity, room, INFORMATION),
                kept=_kept_count(copies),
            ),
            checkpoint_bytes=_kept(checkpoint_bytes, size, INFORMATION),
            per_node_shard=give(shard if largest is None else np.array(shard), INFORMATION),
            local_write_time=give(pause, TIME),
            drain_time=give(drain, TIME),
            drain_limit_code=give_ratio(np.broadcast_to(limit, np.shape(drain)) if np.ndim(drain) else limit),
            durable_share_per_node=give(tiered.durable_share_in_base(durable, count), BANDWIDTH),
            pause_fraction=give_ratio(cadence.share_of_interval_in_base(pause, interval)),
            drain_utilization=give_ratio(cadence.share_of_interval_in_base(drain, interval)),
            shortest_save_interval=give(cadence.shortest_interval_in_base(pause, drain), TIME),
            waiting_cadence=give(cadence.waiting_cadence_in_base(interval, pause, drain), TIME),
            backlog_growth=give(cadence.backlog_growth_in_base(size, interval, drain), BANDWIDTH),
            worst_local_age=give(cadence.worst_local_age_in_base(interval, pause, sustained), TIME),
            worst_durable_age=give(cadence.worst_durable_age_in_base(interval, pause, drain, sustained), TIME),
            local_bytes_needed=give(needed, INFORMATION),
            feasible=_spread(fits, shape),
        )


def _optional(value: Any, kind: Any, name: str) -> Any:
    return None if value is None else take(value, kind, f"{_PLACE}.{name}")


def _kept(value: Any, base: Any, kind: Any) -> Any:
    """What was given, as nothing else can change it."""
    if value is None:
        return None
    if isinstance(base, float):
        return value if isinstance(value, Quantity) and not isinstance(value.magnitude, np.ndarray) else give(base, kind)
    return locked(give(np.array(base), kind))


def _kept_count(count: Any) -> Any:
    return give_ratio(np.array(count)) if isinstance(count, np.ndarray) else count


def _within(largest: Any, size: Any, count: Any) -> Any:
    even = tiered.per_node_shard_in_base(size, count)
    # an even share that was itself rounded is no fault
    good = (largest >= even * (1 - 1e-12)) & (largest <= size)
    if not np.all(good):
        least, most = readable(give(np.array(even), INFORMATION), digits=6), readable(give(np.array(size), INFORMATION), digits=6)
        raise InputError(
            f"{_PLACE}.largest_shard", "between the even share and the whole checkpoint", readable(give(np.array(largest), INFORMATION)),
            f"Write a value from {least} to {most}, or leave it out for an even split.",
        )  # fmt: skip
    return largest


def _spread(feasible: Any, shape: tuple[int, ...]) -> Any:
    """Of the shape of all inputs, those that no check needs included."""
    return give_ratio(feasible if np.shape(feasible) == shape else np.broadcast_to(feasible, shape))


def _shape_of(*values: Any) -> tuple[int, ...]:
    shapes = [value.shape for value in values if isinstance(value, np.ndarray)]
    if not shapes:
        return ()
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = ", ".join(map(str, shapes))
        raise InputError(f"{_PLACE}.solve", "given arrays that broadcast together", listed, "Give a column and a row, say.") from None
