"""The answer of the tiered save: its numbers, and the law behind each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import numpy as np
from attrs import frozen

from mlsysim.errors import InputError
from mlsysim.fields import give_ratio
from mlsysim.physics import cadence, quantities, tiered
from mlsysim.solvers import tiered_checkpoint_checks
from mlsysim.solvers.check import Check
from mlsysim.solvers.result import Record, Result
from mlsysim.specs import StagingPlan
from mlsysim.units import Quantity

if TYPE_CHECKING:
    from mlsysim.report.card import Card

__all__ = ["TieredCheckpointInputs", "TieredCheckpointResult"]

_DRAIN_LIMITS = np.array(tiered.DRAIN_LIMITS, dtype=object)


@frozen(kw_only=True, eq=False)
class TieredCheckpointInputs(Record):
    """What a result was computed from, as it was given."""

    checkpoint_bytes: Quantity
    nodes: Any
    local_bandwidth: Quantity
    durable_bandwidth: Quantity
    save_interval: Quantity
    largest_shard: Quantity | None = None
    network_bandwidth: Quantity | None = None
    local_read_bandwidth: Quantity | None = None
    local_capacity: Quantity | None = None
    local_endurance: Quantity | None = None
    host_memory: Quantity | None = None
    staging: StagingPlan | None = None
    durable_capacity: Quantity | None = None
    kept: Any = None


@frozen(kw_only=True, eq=False, repr=False)
class TieredCheckpointResult(Result):
    """The answer of ``TieredCheckpointModel.solve``; ``explain`` names the law behind each field.

    Each field has the shape that its own inputs broadcast to; ``shape`` is that of all inputs together.

    Parameters
    ----------
    inputs : TieredCheckpointInputs
    checkpoint_bytes, per_node_shard, local_bytes_needed : Quantity [information]
    local_write_time, drain_time : Quantity [time]
        The pause of training, and the time until the store has the copy.
    drain_limit_code : int or array of int8
        Place in the list of limits; ``drain_limit`` is the name.
    durable_share_per_node : Quantity [information / time]
    pause_fraction, drain_utilization : float or array
    shortest_save_interval, waiting_cadence : Quantity [time]
    backlog_growth : Quantity [information / time]
    worst_local_age, worst_durable_age : Quantity [time]
        Infinite where saves queue without end.
    feasible : bool or array
        That no check fails.

    Examples
    --------
    >>> from mlsysim import Scenarios
    >>> result = Scenarios.Gpt3TieredCheckpoint2K.result
    >>> print(result.drain_time, result.drain_limit, result.feasible)
    2.45 second durable_bandwidth True
    """

    inputs: TieredCheckpointInputs
    checkpoint_bytes: Quantity
    per_node_shard: Quantity
    local_write_time: Quantity
    drain_time: Quantity
    drain_limit_code: Any
    durable_share_per_node: Quantity
    pause_fraction: Any
    drain_utilization: Any
    shortest_save_interval: Quantity
    waiting_cadence: Quantity
    backlog_growth: Quantity
    worst_local_age: Quantity
    worst_durable_age: Quantity
    local_bytes_needed: Quantity
    feasible: Any

    json_fields: ClassVar[tuple[str, ...]] = (
        "checkpoint_bytes", "per_node_shard", "local_write_time", "drain_time", "drain_limit", "durable_share_per_node",
        "pause_fraction", "drain_utilization", "shortest_save_interval", "waiting_cadence", "backlog_growth",
        "worst_local_age", "worst_durable_age", "local_bytes_needed", "checks", "feasible",
    )  # fmt: skip
    laws: ClassVar[dict[str, Callable[..., Any]]] = {
        "checkpoint_bytes": quantities.memory_from_params,
        "drain_limit": tiered.drain_time,
        **{name: getattr(law, name) for law in (tiered, cadence) for name in law.__all__ if name != "save_interval_from_steps"},
    }

    @property
    def drain_limit(self) -> Any:
        """Which of the three sets the drain: its name, or an array of names."""
        named = _DRAIN_LIMITS[self.drain_limit_code]
        return give_ratio(named)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape that all inputs broadcast to; ``()`` for one situation."""
        return np.shape(self.feasible)

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks in order: training advances, drain keeps up, local storage holds it."""
        return tiered_checkpoint_checks.checks_of(self)

    def _put_in(self) -> dict[str, Any]:
        known = {name: getattr(self.inputs, name) for name in attrs.fields_dict(TieredCheckpointInputs)}
        return known | {name: getattr(self, name) for name in ("per_node_shard", "local_write_time", "drain_time")}

    def card(self, *, binary: bool = False) -> Card:
        """The answer as rows and checks; in binary units where asked."""
        from mlsysim.solvers.tiered_checkpoint_card import card_of

        return card_of(self, binary)

    def timeline(self, axes: Any = None) -> Any:
        """One save interval drawn to scale; needs the extra ``plot``.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Where to draw; a new figure where left out.

        Returns
        -------
        matplotlib Axes
        """
        from mlsysim.report.figures import timeline

        if self.shape:
            raise InputError("timeline", "drawn for one situation", f"results of shape {self.shape}", "Solve one of them alone.")
        pause, drain, interval = (float(each.base) for each in (self.local_write_time, self.drain_time, self.inputs.save_interval))
        return timeline(pause=pause, drain=drain, interval=interval, limit=self.drain_limit, axes=axes)
