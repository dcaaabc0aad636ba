"""Whether memory, drives and the store have room for a tiered save: checked where something is stated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from mlsysim.fields import BANDWIDTH, INFORMATION, TIME, give, give_ratio
from mlsysim.physics import retention
from mlsysim.report.wording import readable, safe_side
from mlsysim.solvers.check import Check, Remedies, Remedy
from mlsysim.units import Quantity

if TYPE_CHECKING:
    from mlsysim.solvers.tiered_checkpoint_result import TieredCheckpointResult

__all__ = ["room_checks"]


def room_checks(result: TieredCheckpointResult) -> Iterator[Check]:
    """Host memory where a staging plan is stated, drives where an endurance is, the store where kept or a capacity is."""
    given = result.inputs
    if given.staging is not None:
        yield _host_memory_holds_it(result)
    if given.local_endurance is not None:
        yield _local_drives_last(result)
    if given.kept is not None:
        yield _store_holds_what_is_kept(result)


def _host_memory_holds_it(result: TieredCheckpointResult) -> Check:
    given = result.inputs
    needed = given.staging.host_bytes(result.per_node_shard)  # type: ignore[union-attr]
    check = _within("host memory holds it", needed, given.host_memory, "host_memory")
    return attrs.evolve(check, remedies=(*check.remedies, *_more_waves(result))) if check.holds is False else check


def _more_waves(result: TieredCheckpointResult) -> Remedies:
    """The fewest waves that fit, where what is staged can be parted."""
    plan, memory = result.inputs.staging, result.inputs.host_memory
    if plan is None or memory is None:
        return ()
    resident = 0.0 if plan.resident_per_process is None else float(plan.resident_per_process.base) * plan.processes
    whole = (float(plan.host_bytes(result.per_node_shard).base) - resident) * plan.waves
    if float(memory.base) <= resident:
        return ()
    waves = math.ceil(whole / (float(memory.base) - resident))
    while attrs.evolve(plan, waves=waves).host_bytes(result.per_node_shard).base > memory.base:
        waves += 1
    each = readable(give(whole / waves, INFORMATION))
    return ((Remedy(field="waves", value=waves, words=f"stage in {waves} waves of {each}"),),)


def _local_drives_last(result: TieredCheckpointResult) -> Check:
    shard, interval, bound = result.per_node_shard, result.inputs.save_interval, result.inputs.local_endurance
    value = retention.local_write_rate(per_node_shard=shard, save_interval=interval)
    check = _within("local drives last", value, bound, "local_endurance")
    if check.holds is not False or bound is None:
        return check
    amount, most = float(shard.base), float(bound.base)
    longer = safe_side(amount / most, TIME, lambda base: retention.local_write_rate_in_base(amount, base) <= most)
    return attrs.evolve(check, remedies=(*check.remedies, (Remedy(field="save_interval", value=longer),)))


def _store_holds_what_is_kept(result: TieredCheckpointResult) -> Check:
    given = result.inputs
    value = give(retention.retained_bytes_in_base(result.checkpoint_bytes.base, given.kept), INFORMATION)
    check = _within("store holds what is kept", value, given.durable_capacity, "durable_capacity")
    if check.holds is not False or given.durable_capacity is None:
        return check
    fewer = int(float(given.durable_capacity.base) // float(result.checkpoint_bytes.base)) - 1
    keep = ((Remedy(field="kept", value=fewer, words=f"keep {fewer}"),),) if fewer >= 1 else ()
    return attrs.evolve(check, remedies=(*check.remedies, *keep))


def _within(name: str, value: Quantity, bound: Quantity | None, field: str) -> Check:
    """A check that a value stays within what was stated, and the least bound that would do."""
    if bound is None:
        return Check(name=name, holds=None, value=value, bound=None, slack=None, missing=field)
    kind = BANDWIDTH if field == "local_endurance" else INFORMATION
    holds = give_ratio(value.base <= bound.base)
    remedies: Remedies = ()
    if holds is False:
        least = float(value.base)
        remedies = ((Remedy(field=field, value=safe_side(least, kind, lambda base: least <= base)),),)
    return Check(name=name, holds=holds, value=value, bound=bound, slack=give(bound.base - value.base, kind), remedies=remedies)
