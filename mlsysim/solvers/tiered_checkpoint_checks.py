"""What a tiered save must satisfy, and the changes that would mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlsysim.fields import BANDWIDTH, INFORMATION, TIME, give, give_ratio
from mlsysim.physics import tiered
from mlsysim.report.wording import safe_side
from mlsysim.solvers.check import Check, Remedies, Remedy
from mlsysim.solvers.tiered_checkpoint_room import room_checks

if TYPE_CHECKING:
    from mlsysim.solvers.tiered_checkpoint_result import TieredCheckpointResult

__all__ = ["checks_of"]


def checks_of(result: TieredCheckpointResult) -> tuple[Check, ...]:
    """Training advances, drain keeps up, local storage holds it; then what else something was stated for."""
    always = (_training_advances(result), _drain_keeps_up(result), _local_storage_holds_it(result))
    return (*always, *room_checks(result))


def _training_advances(result: TieredCheckpointResult) -> Check:
    pause, interval = result.local_write_time.base, result.inputs.save_interval.base
    holds = give_ratio(pause < interval)
    remedies: Remedies = ()
    if holds is False:
        shard = float(result.per_node_shard.base)
        faster = safe_side(shard / float(interval), BANDWIDTH, lambda rate: tiered.local_write_time_in_base(shard, rate) < interval)
        remedies = ((Remedy(field="local_bandwidth", value=faster),), (_longer_interval(result),))
    return Check(
        name="training advances", holds=holds, value=result.local_write_time, bound=result.inputs.save_interval,
        slack=give(interval - pause, TIME), remedies=remedies, strict=True,
    )  # fmt: skip


def _drain_keeps_up(result: TieredCheckpointResult) -> Check:
    drain, interval = result.drain_time.base, result.inputs.save_interval.base
    holds = give_ratio(drain <= interval)
    remedies: Remedies = ()
    if holds is False:
        remedies = (tuple(_faster_paths(result)), (_longer_interval(result),))
    return Check(
        name="drain keeps up", holds=holds, value=result.drain_time, bound=result.inputs.save_interval,
        slack=give(interval - drain, TIME), remedies=remedies,
    )  # fmt: skip


def _faster_paths(result: TieredCheckpointResult) -> list[Remedy]:
    """Every path that is too slow, raised until it is not: one alone would leave the others in the way."""
    given, interval = result.inputs, float(result.inputs.save_interval.base)
    amounts = (float(result.checkpoint_bytes.base), float(result.per_node_shard.base), float(result.per_node_shard.base))
    rates = (given.durable_bandwidth, given.network_bandwidth, given.local_read_bandwidth)
    remedies = []
    for name, amount, rate in zip(tiered.DRAIN_LIMITS, amounts, rates, strict=True):
        if rate is not None and amount / float(rate.base) > interval:
            needed = safe_side(amount / interval, BANDWIDTH, lambda base, amount=amount: amount / base <= interval)  # type: ignore[misc]
            remedies.append(Remedy(field=name, value=needed))
    return remedies


def _longer_interval(result: TieredCheckpointResult) -> Remedy:
    """An interval at which both time checks hold."""
    pause, drain = float(result.local_write_time.base), float(result.drain_time.base)
    longer = safe_side(max(pause, drain), TIME, lambda interval: pause < interval and drain <= interval)
    return Remedy(field="save_interval", value=longer)


def _local_storage_holds_it(result: TieredCheckpointResult) -> Check:
    needed, capacity = result.local_bytes_needed.base, result.inputs.local_capacity
    name = "local storage holds it"
    if capacity is None:
        return Check(name=name, holds=None, value=result.local_bytes_needed, bound=None, slack=None, missing="local_capacity")
    holds = give_ratio(needed <= capacity.base)
    remedies: Remedies = ()
    if holds is False:
        room = safe_side(float(needed), INFORMATION, lambda base: needed <= base)
        remedies = ((Remedy(field="local_capacity", value=room),),)
    return Check(
        name=name, holds=holds, value=result.local_bytes_needed, bound=capacity,
        slack=give(capacity.base - needed, INFORMATION), remedies=remedies,
    )  # fmt: skip
