"""How many bytes a save of a model holds, by component, and by rank where a plan is given: what ``mlsysim bytes`` prints."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from attrs import frozen

from mlsysim.fields import INFORMATION, PARAMETERS, give
from mlsysim.layout.layout import CheckpointLayout
from mlsysim.layout.prediction import predict_layout
from mlsysim.report.card import Card, Row
from mlsysim.report.wording import readable
from mlsysim.specs.parallel import ParallelPlan
from mlsysim.specs.recipe import StateRecipe
from mlsysim.specs.transformer import TransformerShape
from mlsysim.units import Quantity

__all__ = ["StateBytes", "state_bytes"]


@frozen(kw_only=True, eq=False, repr=False)
class StateBytes:
    """Bytes of a save.

    Parameters
    ----------
    recipe : str
        Name of the recipe.
    parameters : Quantity [parameter]
    bytes_per_param : Quantity [information / parameter]
        Of this recipe on this model.
    checkpoint_bytes : Quantity [information]
        Each array once.
    bytes_by_component : dict of str to Quantity
    layout : CheckpointLayout or None
        Where a plan was given.
    plan : ParallelPlan or None
    """

    recipe: str
    parameters: Quantity
    bytes_per_param: Quantity
    checkpoint_bytes: Quantity
    bytes_by_component: dict[str, Quantity]
    layout: CheckpointLayout | None = None
    plan: ParallelPlan | None = None

    alone: ClassVar[tuple[str, ...]] = ("parameters", "bytes_per_param", "checkpoint_bytes", "bytes_by_component")
    planned: ClassVar[tuple[str, ...]] = (*alone, "bytes_per_rank", "imbalance", "replication")

    @property
    def json_fields(self) -> tuple[str, ...]:
        """What goes into JSON: the first four alone where there is no plan."""
        return self.alone if self.layout is None else self.planned

    @property
    def bytes_per_rank(self) -> dict[str, Quantity]:
        """Least, mean and most payload that a rank writes; empty without a plan."""
        if self.layout is None:
            return {}
        each = self.layout.bytes_per_rank.base
        return {
            name: give(float(value), INFORMATION) for name, value in (("least", each.min()), ("mean", each.mean()), ("most", each.max()))
        }

    @property
    def imbalance(self) -> float | None:
        """Largest rank over the mean; None without a plan."""
        return None if self.layout is None else self.layout.imbalance

    @property
    def replication(self) -> float | None:
        """Payload over each array once; None without a plan."""
        return None if self.layout is None else self.layout.replication

    def card(self, *, binary: bool = False, ranks_per_node: int = 8) -> Card:
        """Rows to read, in binary units where asked."""

        def shown(value: Quantity) -> str:
            return readable(value, binary=binary)

        rows = [
            Row("parameters", f"{int(self.parameters.base):,}"),
            Row("bytes per parameter", f"{float(self.bytes_per_param.base):.6g} byte/param", self.recipe),
            Row("checkpoint", shown(self.checkpoint_bytes), "each array once"),
            *(Row(f"  {name}", shown(value)) for name, value in self.bytes_by_component.items()),
        ]
        if self.layout is not None and self.plan is not None:
            rows += self._rank_rows(self.layout, self.plan, binary, ranks_per_node)
        return Card(title="State of a save", headline=self.recipe, rows=tuple(rows))

    def _rank_rows(self, layout: CheckpointLayout, plan: ParallelPlan, binary: bool, ranks_per_node: int) -> list[Row]:
        each = layout.bytes_per_rank.base
        rows = [
            Row(f"{name} per rank", readable(value, binary=binary), "" if name == "mean" else _where(each, name, plan))
            for name, value in self.bytes_per_rank.items()
        ]
        per_node = layout.bytes_per_node(ranks_per_node)
        rows.append(Row("per node", readable(per_node, binary=binary), f"{len(per_node.base):,} nodes of {ranks_per_node} ranks"))
        rows.append(Row("imbalance", f"{layout.imbalance:.4g}", "largest rank over the mean"))
        rows.append(Row("replication", f"{layout.replication:.4g}", "payload over each array once"))
        return rows


def _where(each: Any, name: str, plan: ParallelPlan) -> str:
    rank = int(np.argmin(each) if name == "least" else np.argmax(each))
    device = rank * plan.devices_per_process
    return f"rank {rank}, stage {device // (plan.tensor * plan.replicas)} of {plan.pipeline}"


def state_bytes(shape: TransformerShape, recipe: StateRecipe, plan: ParallelPlan | None = None) -> StateBytes:
    """Bytes of a save of a model.

    Parameters
    ----------
    shape : TransformerShape
    recipe : StateRecipe
    plan : ParallelPlan, optional
        Adds bytes per rank.

    Returns
    -------
    StateBytes

    Raises
    ------
    InputError
        If the plan does not fit the shape.

    Examples
    --------
    >>> from mlsysim.catalog.recipes import Recipes
    >>> llama = TransformerShape(
    ...     layers=32, hidden=4096, feed_forward=14336, heads=32, kv_heads=8, vocabulary=128256, gated=True)
    >>> print(state_bytes(llama, Recipes.mixed_adam).checkpoint_bytes.to("GB"))
    112.423657472 gigabyte
    """
    tensors = list(shape.tensors())
    by_component = recipe.bytes_by_component(tensors)
    return StateBytes(
        recipe=recipe.name,
        parameters=give(float(shape.parameter_count), PARAMETERS),
        bytes_per_param=recipe.bytes_per_param(tensors),
        checkpoint_bytes=give(float(sum(by_component.values())), INFORMATION),
        bytes_by_component={name: give(float(amount), INFORMATION) for name, amount in by_component.items()},
        layout=None if plan is None else predict_layout(shape, recipe, plan),
        plan=plan,
    )
