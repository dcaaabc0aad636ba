"""Where a plan puts the tensors of a transformer: pipeline stage, tensor-parallel axis, expert-parallel rank."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from mlsysim.errors import InputError, Shown
from mlsysim.specs.parallel import ParallelPlan, Placed
from mlsysim.specs.tensor import Tensor
from mlsysim.specs.transformer import TransformerShape

__all__ = ["placed_tensors"]

# parts of names, and the axis that tensor parallelism cuts: what widens is cut by rows, what narrows by columns
_BY_ROWS = (".query.", ".key.", ".value.", ".query_up.", ".key_value_up.", ".gate.", ".up.")
_BY_COLUMNS = (".output.weight", ".down.weight")
_OUTER = ("embedding.weight", "head.weight", "head.bias")


def placed_tensors(shape: TransformerShape, plan: ParallelPlan) -> Iterator[Placed]:
    """Every tensor of a transformer in its place.

    Parameters
    ----------
    shape : TransformerShape
    plan : ParallelPlan

    Raises
    ------
    InputError
        If tensor parallelism does not divide the heads, an axis or the padded vocabulary; expert parallelism does not
        divide the experts, or is asked of a model without; or a stage would have no layers.
    """
    _check(shape, plan)
    stage_of = [stage for stage, layers in enumerate(plan.layers_of(shape.layers)) for _ in range(layers)]
    for whole in shape.tensors():
        name = whole.name
        tensor = _padded(whole, plan) if name in _OUTER else whole
        if name.startswith("layers."):
            stage = stage_of[int(name.split(".")[1])]
        else:
            stage = plan.pipeline - 1 if name.startswith(("final_norm", "head")) else 0
        axis = _tensor_axis(name)
        if axis is not None and tensor.shape[axis] % plan.tensor:
            fix = "Choose a divisor, or pad the vocabulary with vocabulary_multiple."
            raise InputError("ParallelPlan.tensor", f"a divisor of {name}'s {tensor.shape[axis]}", plan.tensor, fix)
        yield Placed(tensor=tensor, stage=stage, tensor_axis=axis, expert=_expert(shape, name, plan))


def _check(shape: TransformerShape, plan: ParallelPlan) -> None:
    if shape.heads % plan.tensor:
        raise InputError("ParallelPlan.tensor", f"a divisor of the {shape.heads} heads", plan.tensor, "Write tensor=8, say.")
    if shape.experts is not None and plan.expert is None:
        fix = "Write expert=8, or expert=1 where every rank holds all experts."
        raise InputError("ParallelPlan.expert", "given for a model with experts", Shown("nothing"), fix)
    if plan.expert_ways > 1 and shape.experts is None:
        raise InputError("ParallelPlan.expert", "1 for a model without experts", plan.expert, "Leave it out.")
    if shape.experts is not None and shape.experts.number % plan.expert_ways:
        number = shape.experts.number
        raise InputError("ParallelPlan.expert", f"a divisor of the {number} experts", plan.expert, f"Write expert={number}, say.")


def _tensor_axis(name: str) -> int | None:
    if any(part in name for part in _BY_COLUMNS):
        return 1
    if name in _OUTER or any(part in name for part in _BY_ROWS):
        return 0
    return None


def _padded(tensor: Tensor, plan: ParallelPlan) -> Tensor:
    """A table of the vocabulary with its rows padded to the multiple that the plan states."""
    unit = plan.vocabulary_multiple * plan.tensor if plan.vocabulary_multiple > 1 else 1
    return attrs.evolve(tensor, shape=(-(-tensor.shape[0] // unit) * unit, *tensor.shape[1:]))


def _expert(shape: TransformerShape, name: str, plan: ParallelPlan) -> int | None:
    if shape.experts is None or ".experts." not in name:
        return None
    return int(name.split(".experts.")[1].split(".", maxsplit=1)[0]) // (shape.experts.number // plan.expert_ways)
