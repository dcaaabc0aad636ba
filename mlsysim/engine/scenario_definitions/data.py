"""Scenarios of saving and moving data."""

from __future__ import annotations

from attrs import frozen

from mlsysim.engine.scenario_definitions.base import Scenario
from mlsysim.fields import BANDWIDTH, BYTES_PER_PARAM, INFORMATION, TIME, choice, count, quantity
from mlsysim.physics.quantities import memory_from_params
from mlsysim.report.wording import readable
from mlsysim.solvers import TieredCheckpointModel, TieredCheckpointResult
from mlsysim.specs import Fleet, StagingPlan, Workload
from mlsysim.units import Quantity

__all__ = ["TieredCheckpointScenario"]


@frozen(kw_only=True)
class TieredCheckpointScenario(Scenario):
    """One save of ``workload``'s state on ``fleet``: a local write per node, then a drain to the durable store.

    Parameters
    ----------
    workload : Workload
        What is trained.
    bytes_per_param : Quantity [information / parameter]
        What a save holds for each parameter.
    fleet : Fleet
        What it is trained on.
    local_bandwidth : Quantity [information / time]
        Writing to local storage, of one node.
    durable_bandwidth : Quantity [information / time]
        Writing to the durable store, of the whole fleet together.
    save_interval : Quantity [time]
        Start of one save to the start of the next.
    staging : StagingPlan, optional
        How a save passes through host memory; left out, host memory is not looked at.
    kept : int, optional
        Complete checkpoints that stay on the durable store; left out, its room is not looked at.
    durable_capacity : Quantity [information], optional
        Room on the durable store for this job's checkpoints.

    Raises
    ------
    InputError
        If a field is without unit, of another dimension, not positive or not finite, or an array.

    Notes
    -----
    Equation: ``memory_from_params`` gives the checkpoint, ``TieredCheckpointModel`` the times, rates and checks.
    Assumes: an even split over the nodes; what the solver and the law of each field assume, which
    ``result.explain(field)`` prints.
    Ignores: failures, slow nodes, latency, and the slowdown of training while the drain runs.

    References
    ----------
    No law of its own: it binds the fields to ``mlsysim.physics.quantities.memory_from_params`` and
    ``mlsysim.solvers.TieredCheckpointModel``, whose references apply.

    Examples
    --------
    >>> from mlsysim import Scenarios
    >>> case = Scenarios.Gpt3TieredCheckpoint2K
    >>> type(case.result).__name__
    'TieredCheckpointResult'
    >>> print(f"{case.result.local_write_time:.3f}, {case.result.drain_time:.2f}")
    0.342 second, 2.45 second
    """

    workload: Workload = choice(Workload, example='Workload(name="my 70B", parameters="70.6e9 param")')
    bytes_per_param: Quantity = quantity(BYTES_PER_PARAM)
    fleet: Fleet = choice(Fleet, example='Fleet(name="ours", node=Node(name="8-GPU", accelerators=8), count=128)')
    local_bandwidth: Quantity = quantity(BANDWIDTH)
    durable_bandwidth: Quantity = quantity(BANDWIDTH)
    save_interval: Quantity = quantity(TIME)
    staging: StagingPlan | None = choice(StagingPlan, example="StagingPlan(buffers=2)", optional=True)
    kept: int | None = count(optional=True)
    durable_capacity: Quantity | None = quantity(INFORMATION, optional=True)

    @property
    def result(self) -> TieredCheckpointResult:
        """The answer of ``mlsysim.solvers.TieredCheckpointModel.solve`` to this situation."""
        node = self.fleet.node
        return TieredCheckpointModel().solve(
            checkpoint_bytes=memory_from_params(self.workload.parameters, self.bytes_per_param),
            nodes=self.fleet.count,
            local_bandwidth=self.local_bandwidth,
            durable_bandwidth=self.durable_bandwidth,
            save_interval=self.save_interval,
            network_bandwidth=node.network_bandwidth,
            local_read_bandwidth=node.local_read_bandwidth,
            local_capacity=node.local_capacity,
            local_endurance=node.local_endurance,
            host_memory=node.host_memory,
            staging=self.staging,
            durable_capacity=self.durable_capacity,
            kept=self.kept,
        )

    def about(self, *, binary: bool = False) -> tuple[str, ...]:
        """What the situation is, in lines; in binary units where asked."""
        local, durable = (readable(each, binary=binary) for each in (self.local_bandwidth, self.durable_bandwidth))
        fleet = self.fleet
        return (
            f"{self.workload.name}: {readable(self.workload.parameters)}, {readable(self.bytes_per_param)}",
            f"{fleet.name}: {fleet.count:,} nodes of {fleet.node.accelerators} accelerators",
            f"local write {local} per node, store {durable}",
        )
