"""How a save passes through host memory."""

from __future__ import annotations

from attrs import frozen

from mlsysim.fields import INFORMATION, count, quantity, ratio
from mlsysim.units import Quantity

__all__ = ["StagingPlan"]


@frozen(kw_only=True)
class StagingPlan:
    """Copies of a node's shard that are in its host memory at once, and what lies there besides.

    Parameters
    ----------
    buffers : int
        Saves in flight, each with a copy of its own.
    replication : int
        Copies of each shard among peers, its own included, as in-memory checkpoints keep.
    waves : int
        Parts that a shard is staged in, one after the other.
    growth : float
        Measured peak over what was staged; 1 where it was not measured.
    processes : int
        Processes on a node.
    staged_per_process : Quantity [information], optional
        Budget of each process; in the place of the node's shard where a framework takes one.
    resident_per_process : Quantity [information], optional
        What each process holds besides.

    Raises
    ------
    InputError
        If a count is no whole number of at least 1, growth is below 1, or an amount has another dimension.

    Examples
    --------
    Four processes that may stage 61 GiB each, beside 78 GiB that they hold anyway:

    >>> plan = StagingPlan(processes=4, staged_per_process="61 GiB", resident_per_process="78 GiB")
    >>> from mlsysim import Q_
    >>> print(plan.host_bytes(Q_("1 TB")).to("GiB"))
    556.0 gibibyte
    """

    buffers: int = count(default=1)
    replication: int = count(default=1)
    waves: int = count(default=1)
    growth: float = ratio(least=1, most=100, default=1.0)
    processes: int = count(default=1)
    staged_per_process: Quantity | None = quantity(INFORMATION, optional=True)
    resident_per_process: Quantity | None = quantity(INFORMATION, optional=True)

    def host_bytes(self, per_node_shard: Quantity) -> Quantity:
        """Host memory that a node needs while it saves; the law is ``mlsysim.physics.staging.host_bytes_needed``."""
        from mlsysim.physics.staging import host_bytes_needed

        staged = per_node_shard if self.staged_per_process is None else self.staged_per_process * self.processes
        resident = None if self.resident_per_process is None else self.resident_per_process * self.processes
        return host_bytes_needed(
            staged=staged, buffers=self.buffers, replication=self.replication, waves=self.waves, growth=self.growth, resident=resident,
        )  # fmt: skip
