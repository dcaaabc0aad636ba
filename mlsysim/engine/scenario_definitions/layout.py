"""Scenarios of saving a checkpoint that was read or predicted."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from attrs import frozen

from mlsysim.engine.scenario_definitions.base import Scenario
from mlsysim.errors import InputError
from mlsysim.fields import BANDWIDTH, INFORMATION, TIME, choice, count, give, quantity
from mlsysim.layout import CheckpointLayout
from mlsysim.report.card import Card, Row
from mlsysim.report.wording import readable
from mlsysim.solvers import TieredCheckpointModel, TieredCheckpointResult
from mlsysim.specs import StagingPlan
from mlsysim.units import Quantity

__all__ = ["LayoutCheckpointScenario"]


@frozen(kw_only=True)
class LayoutCheckpointScenario(Scenario):
    """One save of a checkpoint that was read or predicted: the largest node sets the pause, all bytes the drain.

    Parameters
    ----------
    layout : CheckpointLayout
        Who writes which bytes; in a scenario file, the path of a checkpoint.
    ranks_per_node : int
        Consecutive ranks that share a node.
    local_bandwidth : Quantity [information / time]
        Writing to local storage, of one node.
    durable_bandwidth : Quantity [information / time]
        Writing to the durable store, of the whole fleet together.
    save_interval : Quantity [time]
        Start of one save to the start of the next.
    network_bandwidth, local_read_bandwidth : Quantity [information / time], optional
        Of one node; left out, they do not limit.
    local_capacity : Quantity [information], optional
        Of one node; left out, it is not checked.
    local_endurance : Quantity [information / time], optional
        What a node's local storage may be written on average.
    host_memory : Quantity [information], optional
        What a save may use of a node's host memory.
    staging : StagingPlan, optional
        How a save passes through host memory; left out, host memory is not looked at.
    kept : int, optional
        Complete checkpoints that stay on the durable store; left out, its room is not looked at.
    durable_capacity : Quantity [information], optional
        Room on the durable store for this job's checkpoints.

    Raises
    ------
    InputError
        If a field is without unit, of another dimension, not positive or not finite; or, when the result is asked
        for, if the layout's format does not tell the rank or a data file is not there.

    Notes
    -----
    Equation: ``S`` is what is stored, ``s`` what the largest node stores; ``TieredCheckpointModel`` gives the rest.
    Assumes: a node holds ``ranks_per_node`` consecutive ranks; a file that no one rank wrote is written by the first
    node; metadata files weigh nothing.
    Ignores: what ``TieredCheckpointModel`` ignores.

    References
    ----------
    No law of its own: it binds the layout to ``mlsysim.solvers.TieredCheckpointModel``, whose references apply.

    Examples
    --------
    Four ranks that hold a copy each, two to a node, write four times what one copy takes:

    >>> from mlsysim import LayoutCheckpointScenario
    >>> from mlsysim.layout import CheckpointLayout, TensorInfo
    >>> from mlsysim.layout.layout import Files, Fragments
    >>> layout = CheckpointLayout(
    ...     format="predicted", ranks=4, replicas_recorded=True,
    ...     tensors=(TensorInfo(name="w", dtype="float32", global_shape=(250_000_000,)),),
    ...     data_files=Files.from_rows([(f"rank-{rank}", rank, 10**9) for rank in range(4)]),
    ...     fragments=Fragments.from_rows(
    ...         [(0, rank, rank, (0,), (250_000_000,), 10**9, 10**9, 0) for rank in range(4)]))
    >>> case = LayoutCheckpointScenario(
    ...     layout=layout, ranks_per_node=2, local_bandwidth="1 GB/s", durable_bandwidth="2 GB/s", save_interval="1 min")
    >>> print(case.result.local_write_time, case.result.drain_time, case.if_one_copy.drain_time)
    2.0 second 2.0 second 0.5 second
    """

    layout: CheckpointLayout = choice(CheckpointLayout, example='read_checkpoint("runs/step_1000")')
    ranks_per_node: int = count()
    local_bandwidth: Quantity = quantity(BANDWIDTH)
    durable_bandwidth: Quantity = quantity(BANDWIDTH)
    save_interval: Quantity = quantity(TIME)
    network_bandwidth: Quantity | None = quantity(BANDWIDTH, optional=True)
    local_read_bandwidth: Quantity | None = quantity(BANDWIDTH, optional=True)
    local_capacity: Quantity | None = quantity(INFORMATION, optional=True)
    local_endurance: Quantity | None = quantity(BANDWIDTH, optional=True)
    host_memory: Quantity | None = quantity(INFORMATION, optional=True)
    staging: StagingPlan | None = choice(StagingPlan, example="StagingPlan(buffers=2)", optional=True)
    kept: int | None = count(optional=True)
    durable_capacity: Quantity | None = quantity(INFORMATION, optional=True)

    @property
    def result(self) -> TieredCheckpointResult:
        """The answer of ``mlsysim.solvers.TieredCheckpointModel.solve`` to this situation."""
        per_node = self._stored_per_node()
        return self._solved(per_node.sum(), largest_shard=give(float(per_node.max()), INFORMATION))

    @property
    def if_even(self) -> TieredCheckpointResult:
        """The same save if every node stored the same."""
        return self._solved(self._stored_per_node().sum())

    @property
    def if_one_copy(self) -> TieredCheckpointResult:
        """The same save, even, if one copy of each tensor were written."""
        return self._solved(self._stored_per_node().sum() / self.layout.replication)

    @property
    def if_every_replica(self) -> TieredCheckpointResult:
        """The same save, even, if every rank wrote what it held; an InputError where the format does not tell."""
        copies = float(self.layout.held_bytes.base) / float(self.layout.payload_bytes.base)
        return self._solved(self._stored_per_node().sum() * copies)

    def _stored_per_node(self) -> Any:
        per_node = np.array(self.layout.bytes_per_node(self.ranks_per_node).base)
        per_node[0] += float(self.layout.stored_bytes.base) - per_node.sum()
        if not per_node.sum():
            raise InputError("LayoutCheckpointScenario.layout", "a checkpoint that stores something", "0 byte", "Give another one.")
        return per_node

    def _solved(self, stored: float, **largest: Quantity) -> TieredCheckpointResult:
        return TieredCheckpointModel().solve(
            checkpoint_bytes=give(float(stored), INFORMATION),
            nodes=len(self._stored_per_node()),
            local_bandwidth=self.local_bandwidth,
            durable_bandwidth=self.durable_bandwidth,
            save_interval=self.save_interval,
            network_bandwidth=self.network_bandwidth,
            local_read_bandwidth=self.local_read_bandwidth,
            local_capacity=self.local_capacity,
            local_endurance=self.local_endurance,
            host_memory=self.host_memory,
            staging=self.staging,
            durable_capacity=self.durable_capacity,
            kept=self.kept,
            **largest,
        )

    def about(self, *, binary: bool = False) -> tuple[str, ...]:
        """What the situation is, in lines; in binary units where asked."""
        local, durable = (readable(each, binary=binary) for each in (self.local_bandwidth, self.durable_bandwidth))
        layout = self.layout
        return (
            f"{layout.format}: {len(layout.tensors):,} tensors in {len(layout.files):,} files",
            f"{'unknown' if layout.ranks is None else f'{layout.ranks:,}'} ranks, {self.ranks_per_node:,} to a node",
            f"local write {local} per node, store {durable}",
        )

    def card(self, *, binary: bool = False) -> Card:
        """The answer, and what the imbalance and the replicas cost."""
        result = self.result
        card = result.card(binary=binary)
        rows = [_compared("if it were even", result, self.if_even)]
        if self.layout.replication > 1.001:
            rows.append(_compared("if one copy were written", result, self.if_one_copy))
        try:
            if float(self.layout.held_bytes.base) > 1.001 * float(self.layout.payload_bytes.base):
                rows.append(_compared("if every replica were", result, self.if_every_replica))
        except InputError:
            rows.append(Row("if every replica were", "not known", "the format does not say how many ranks held each tensor"))
        return attrs.evolve(card, rows=(*card.rows, *rows))


def _compared(label: str, now: TieredCheckpointResult, then: TieredCheckpointResult) -> Row:
    pause, drain = now.local_write_time, now.drain_time
    note = f"pause, {_times(pause, then.local_write_time)}; drain {readable(then.drain_time)}, {_times(drain, then.drain_time)}"
    return Row(label, readable(then.local_write_time), note)


def _times(now: Quantity, then: Quantity) -> str:
    ratio = float(now.base) / float(then.base)
    return "as now" if abs(ratio - 1) < 5e-4 else f"now {ratio:.3g} times that"
