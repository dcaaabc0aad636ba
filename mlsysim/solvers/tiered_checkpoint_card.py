"""The card of a tiered save: its numbers in the order in which they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.report.card import Card, Row
from mlsysim.report.wording import percent, readable

if TYPE_CHECKING:
    from mlsysim.solvers.tiered_checkpoint_result import TieredCheckpointResult

__all__ = ["card_of"]


def card_of(result: TieredCheckpointResult, binary: bool) -> Card:
    """Rows and checks of a result, in binary units where asked."""

    def shown(value: Any) -> str:
        return readable(value, binary=binary)

    given = result.inputs
    limit = result.drain_limit if not np.ndim(result.drain_limit) else " or ".join(sorted(set(result.drain_limit.flat)))
    even = "the largest node's share" if given.largest_shard is not None else f"an even share of {_counted(given.nodes)} nodes"
    rows = [
        Row("checkpoint", shown(result.checkpoint_bytes)),
        Row("per node", shown(result.per_node_shard), even),
        Row("local write", shown(result.local_write_time), f"training pauses {percent(result.pause_fraction)} of the time"),
        Row("drain", shown(result.drain_time), f"{percent(result.drain_utilization)} of the interval; limited by {limit}"),
        Row("store per node", shown(result.durable_share_per_node), "of durable_bandwidth"),
        Row("save interval", shown(given.save_interval), f"the path sustains one from {shown(result.shortest_save_interval)}"),
        _oldest("oldest local copy", result.worst_local_age),
        _oldest("oldest durable copy", result.worst_durable_age),
    ]
    if np.any(result.backlog_growth.base > 0):
        rows.append(Row("backlog grows", shown(result.backlog_growth), "until local storage is full"))
        rows.append(Row("if saves wait", shown(result.waiting_cadence), "is the interval that results with one save in flight"))
    return Card(
        title="Tiered checkpoint",
        headline=_headline(result),
        rows=tuple(rows),
        verdicts=tuple(each.verdict(binary=binary) for each in result.checks),
    )


def _oldest(label: str, age: Any) -> Row:
    note = "saves queue without end" if np.all(np.isinf(age.base)) else "at worst"
    return Row(label, readable(age, digits=4).replace("never", "ever older"), note)


def _headline(result: TieredCheckpointResult) -> str:
    if result.shape:
        return f"feasible in {np.count_nonzero(result.feasible)} of {np.size(result.feasible)} situations"
    return "FEASIBLE" if result.feasible else "NOT FEASIBLE"


def _counted(count: Any) -> str:
    """Nodes as a card shows them."""
    if not np.ndim(count):
        return f"{count:,}"
    return f"{np.min(count):,} to {np.max(count):,}" if np.size(count) else "no"
