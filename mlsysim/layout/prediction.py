"""The layout of a checkpoint that does not exist yet: who will write which bytes.

Each array of the state is cut by tensor parallelism, then over the data-parallel ranks; every part has holders, and the plan's
writers say which of them writes it. The columns are those that the readers fill, so that predicted and real are compared in a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import attrs
import numpy as np
from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.containers import Bare, Container
from mlsysim.layout.layout import CheckpointLayout, Column, Files, Fragments, TensorInfo
from mlsysim.layout.limits import Limits
from mlsysim.layout.writing import written
from mlsysim.specs.parallel import ParallelPlan, Placed
from mlsysim.specs.recipe import Adapters, Component, StateRecipe
from mlsysim.specs.sharding import Flat, Pieces
from mlsysim.specs.tensor import Tensor
from mlsysim.specs.transformer import TransformerShape
from mlsysim.specs.writers import EveryHolder, FullyParallel, ReplicaParallel, Writers

__all__ = ["Array", "Parts", "predict_layout"]


WEIGHTS = 3
_LARGEST = 2**62
# memory of a part's holder, of a row, and of a row whose writer is chosen one by one, measured and rounded up
_HOLDER_BYTES, _ROW_BYTES, _TURN_BYTES = 10, 150, 700


@frozen(eq=False)
class Array:
    """An array of the state: where it belongs, whether the data-parallel ranks share it, and who writes it if not the plan's."""

    placed: Placed
    sharded: bool
    writers: Writers | None


@frozen(eq=False)
class Parts:
    """The parts that an array is cut into, and who holds each.

    Parameters
    ----------
    offset, extent : array (parts, axes)
    holders : array (parts, copies) of ranks, ascending
    """

    offset: Column
    extent: Column
    holders: Column


def predict_layout(
    tensors: TransformerShape | Iterable[Tensor | Placed],
    recipe: StateRecipe,
    plan: ParallelPlan,
    *,
    container: Container | None = None,
    objects: Sequence[str] = (),
    limits: Limits | None = None,
) -> CheckpointLayout:
    """Who will write which bytes of a checkpoint.

    Parameters
    ----------
    tensors : TransformerShape, or iterable of Tensor or Placed
        The model. A plain Tensor is on the first stage, and no tensor-parallel rank holds less than the whole.
    recipe : StateRecipe
        What a save holds of each.
    plan : ParallelPlan
        Who holds which part, and who writes it.
    container : Container, optional
        What the format adds to the payload; nothing where left out.
    objects : sequence of str
        What every rank holds besides and is no tensor.
    limits : Limits, optional
        ``built_bytes`` caps the memory that the layout may take, by an estimate from above.

    Returns
    -------
    CheckpointLayout
        Of format ``"predicted"``.

    Raises
    ------
    InputError
        If tensor parallelism does not divide an axis that it cuts, a stage would have no layers, experts are there and do not
        divide over the expert-parallel ranks, or the vocabulary does not divide and is not padded; or the layout would be too
        large for its cap, or a component for 63 bits.

    Notes
    -----
    Assumes: the order of ranks that ``ParallelPlan`` states, and each rank's state in the order of the recipe's components.
    Ignores: what the framework stores besides the recipe and ``objects``; compression.

    Examples
    --------
    Eight ranks share a matrix that does not divide; the last holds less:

    >>> from mlsysim.specs.parallel import ParallelPlan
    >>> from mlsysim.specs.recipe import Component, StateRecipe
    >>> from mlsysim.specs.tensor import Tensor
    >>> weights = StateRecipe(name="weights", components=(Component(name="weights", dtype="float32", sharded_from=3),))
    >>> layout = predict_layout([Tensor(name="w", shape=(50, 16), dtype="float32")], weights, ParallelPlan(data=8, zero=3))
    >>> layout.bytes_per_rank.base.tolist()
    [448.0, 448.0, 448.0, 448.0, 448.0, 448.0, 448.0, 64.0]
    """
    arrays = list(_arrays(_placed(tensors, plan), recipe, plan))
    _refuse_large(arrays, plan, (limits or Limits()).built_bytes)
    parts = [_parts(each, plan) for each in arrays]
    copies = {each.placed.tensor.name: part.holders.shape[1] for each, part in zip(arrays, parts, strict=True)}
    rows = written(parts, arrays, plan, len(objects))
    return _layout(arrays, copies, rows, plan, container or Bare(), objects)


def _placed(tensors: TransformerShape | Iterable[Tensor | Placed], plan: ParallelPlan) -> list[Placed]:
    if isinstance(tensors, TransformerShape):
        from mlsysim.specs.placement import placed_tensors

        return list(placed_tensors(tensors, plan))
    placed = [each if isinstance(each, Placed) else Placed(tensor=each) for each in tensors]
    for each in placed:
        if each.stage >= plan.pipeline:
            raise InputError("Placed.stage", f"a stage of the plan, below {plan.pipeline}", each.stage, "Write a longer pipeline.")
    return placed


def _arrays(placed: list[Placed], recipe: StateRecipe, plan: ParallelPlan) -> Iterator[Array]:
    """The arrays of the state in each rank's order: components that are sharded alike alternate, tensor by tensor."""
    trained = placed
    if recipe.adapters is not None:
        base = recipe.adapters.frozen_base
        if base is not None:
            yield from (array for each in placed for array in _kept(each, base, plan.zero >= base.sharded_from))
        trained = [adapter for each in placed for adapter in _adapters(each, recipe.adapters)]
    for stage, together in groupby(recipe.components, key=lambda each: each.sharded_from):
        components, shards = list(together), plan.zero >= stage
        kept = [[list(_kept(each, component, shards)) for component in components] for each in trained]
        if shards and isinstance(plan.sharding, (Flat, Pieces)):
            for place, component in enumerate(components):
                yield from _flattened([array for each in kept for array in each[place]], component, plan)
        else:
            yield from (array for each in kept for arrays in each for array in arrays)
            if plan.zero and isinstance(plan.sharding, Flat):
                for place, component in enumerate(components):
                    yield from _padding([array.placed for each in kept for array in each[place]], component, plan)


def _adapters(placed: Placed, adapters: Adapters) -> Iterator[Placed]:
    """The two adapters of a matrix: each is cut as the side of the matrix that it lies along."""
    for side, tensor in zip((1, 0), adapters.pair(placed.tensor), strict=False):
        yield attrs.evolve(placed, tensor=tensor, tensor_axis=side if placed.tensor_axis == side else None)


def _kept(placed: Placed, component: Component, shards: bool) -> Iterator[Array]:
    if not placed.trained and component.sharded_from < WEIGHTS:
        return
    for array in component.rule.kept(placed.tensor, component.dtype):
        name = f"{component.prefix}{placed.tensor.name}{array.name}{component.suffix}"
        axis = placed.tensor_axis if len(array.shape) == len(placed.tensor.shape) else None
        one = attrs.evolve(placed, tensor=attrs.evolve(array, name=name), tensor_axis=axis)
        yield Array(one, shards and placed.sharded and bool(array.shape), component.writers)


def _padding(placed: list[Placed], component: Component, plan: ParallelPlan) -> Iterator[Array]:
    """What pads the flat buffer that whole weights are views of, and is stored with them."""
    for stage in sorted({each.stage for each in placed if each.sharded}):
        here = [each for each in placed if each.sharded and each.stage == stage]
        size = sum(each.tensor.elements // (plan.tensor if each.tensor_axis is not None else 1) for each in here)
        pad = _aligned(size, plan.sharding, plan) - size
        if pad:
            tensor = Tensor(name=f"{component.prefix}padding.{stage}{component.suffix}", shape=(pad * plan.tensor,), dtype=component.dtype)
            yield Array(Placed(tensor=tensor, stage=stage, tensor_axis=0), False, component.writers)


def _aligned(size: int, sharding: Any, plan: ParallelPlan) -> int:
    unit = sharding.alignment * plan.shards
    return int(-(-size // unit) * unit)


def _flattened(kept: list[Array], component: Component, plan: ParallelPlan) -> Iterator[Array]:
    """One flat array for each stage in the place of a component's arrays, padded as the sharding says."""
    yield from (each for each in kept if not each.sharded)
    for stage in sorted({each.placed.stage for each in kept if each.sharded}):
        here = [each.placed for each in kept if each.sharded and each.placed.stage == stage]
        sizes = [each.tensor.elements // (plan.tensor if each.tensor_axis is not None else 1) for each in here]
        if isinstance(plan.sharding, Flat):
            length = _aligned(sum(sizes), plan.sharding, plan)
        else:
            length = sum(-(-size // plan.shards) for size in sizes) * plan.shards
        name = f"{component.prefix}{stage}{component.suffix}"
        tensor = Tensor(name=name, shape=(length * plan.tensor,), dtype=component.dtype)
        yield Array(Placed(tensor=tensor, stage=stage, tensor_axis=0), True, component.writers)


def _refuse_large(arrays: list[Array], plan: ParallelPlan, most: int) -> None:
    """Refuse what would take more memory than the cap, or numbers of more than 63 bits, before anything of it is built."""
    copied, spent = 0, 0
    for each in arrays:
        tensor, writers = each.placed.tensor, each.writers or plan.writers
        ways = plan.tensor if each.placed.tensor_axis is not None else 1
        shards = _shards_of(each.placed, plan) if each.sharded else 1
        held = plan.replicas // (plan.expert_ways if each.placed.expert is not None else 1) * plan.tensor
        held *= plan.pipeline if each.placed.everywhere else 1
        copied += max(tensor.bytes, tensor.elements, *tensor.shape, 0) * max(held // (ways * shards), 1)
        # the first axis is cut to ceil(n / d), so that a part may be left empty
        first = -(-tensor.shape[0] // (ways if each.placed.tensor_axis == 0 else 1)) if tensor.shape else 1
        rows = ways * (-(-first // max(-(-first // shards), 1)))
        if isinstance(writers, (EveryHolder, ReplicaParallel)):
            rows = max(held, rows)
        spent += _HOLDER_BYTES * held + (_TURN_BYTES if isinstance(writers, FullyParallel) else _ROW_BYTES) * rows
    if spent > most:
        fix = "Write a smaller plan, or raise the cap with limits=Limits(built_bytes=...)."
        raise InputError("predict_layout.plan", f"of a layout of at most {most:,} byte of memory", Shown(f"about {spent:,}"), fix)
    if copied >= _LARGEST:
        got = Shown(f"{copied:,} byte")
        raise InputError("predict_layout.tensors", "of less than 2^62 byte on all ranks together", got, "Write a smaller model or plan.")


def _parts(array: Array, plan: ParallelPlan) -> Parts:
    """Boxes of an array and their holders: tensor parallelism cuts first, then the data-parallel ranks share what is left."""
    placed, shape = array.placed, array.placed.tensor.shape
    offset, extent = np.zeros((1, len(shape)), np.int64), np.array([shape], np.int64).reshape(1, len(shape))
    ways = 1
    if placed.tensor_axis is not None and plan.tensor > 1:
        ways = plan.tensor
        offset, extent = _cut(offset, extent, placed.tensor_axis, ways)
    shards = _shards_of(placed, plan) if array.sharded else 1
    if shards > 1:
        offset, extent = _cut(offset, extent, 0, shards)
    holders = _holders(placed, ways, shards, plan)
    filled = extent.prod(axis=1) > 0 if shape else np.ones(1, bool)
    return Parts(offset[filled], extent[filled], holders[filled])


def _shards_of(placed: Placed, plan: ParallelPlan) -> int:
    """Ranks that share a sharded copy; an expert has fewer to share it."""
    return min(plan.shards, plan.replicas // plan.expert_ways) if placed.expert is not None else plan.shards


def _cut(offset: Column, extent: Column, axis: int, ways: int) -> tuple[Column, Column]:
    """Each box in so many along an axis: ceil(n / ways) to the first, what is left to the last, none to those after."""
    step = -(-extent[:, axis] // ways)
    start = np.minimum(step[:, None] * np.arange(ways), extent[:, axis, None])
    stop = np.minimum(start + step[:, None], extent[:, axis, None])
    offset, extent = np.repeat(offset, ways, axis=0), np.repeat(extent, ways, axis=0)
    offset[:, axis] += start.reshape(-1)
    extent[:, axis] = (stop - start).reshape(-1)
    return offset, extent


def _holders(placed: Placed, ways: int, shards: int, plan: ParallelPlan) -> Column:
    """Ranks that hold each part, ascending: shape (ways x shards, copies)."""
    grid = np.arange(plan.ranks, dtype=np.int64).reshape(plan.pipeline, plan.replicas, plan.tensor)
    grid = grid if placed.everywhere else grid[placed.stage : placed.stage + 1]
    if placed.expert is not None and plan.expert_ways > 1:
        groups = grid.reshape(grid.shape[0], plan.replicas // plan.expert_ways, plan.expert_ways, plan.tensor)
        grid = groups[:, :, placed.expert % plan.expert_ways]
    by_axis: Any = grid.reshape(grid.shape[0], grid.shape[1] // shards, shards, plan.tensor)  # stage, copy, shard, tensor
    order = (2, 0, 1, 3) if ways == 1 else (3, 2, 0, 1)
    return np.sort(by_axis.transpose(order).reshape(ways * shards, -1), axis=1)


def _layout(
    arrays: list[Array], copies: dict[str, int], rows: Any, plan: ParallelPlan, container: Container, objects: Sequence[str]
) -> CheckpointLayout:
    tensors = [each.placed.tensor for each in arrays]
    tensor, offset, extent, device = rows
    rank = device // np.int32(plan.devices_per_process)
    bits = np.array([each.bytes * 8 / each.elements if each.elements else 0 for each in tensors])
    payload = np.ceil(extent.prod(axis=1) * bits[tensor] / 8).astype(np.int64)
    stored = payload + container.per_fragment
    size = np.bincount(rank, weights=stored, minlength=plan.processes).astype(np.int64) + container.per_file
    writers = np.flatnonzero(np.bincount(rank, minlength=plan.processes)) if len(rank) else np.zeros(0, np.int64)
    place = np.full(plan.processes, -1, np.int32)
    place[writers] = np.arange(len(writers), dtype=np.int32)
    return CheckpointLayout(
        format="predicted",
        tensors=tuple(TensorInfo(name=each.name, dtype=each.dtype, global_shape=each.shape) for each in tensors),
        fragments=Fragments(
            tensor=tensor, rank=rank, file=place[rank], offset=offset, extent=extent, payload_bytes=payload, stored_bytes=stored,
            file_offset=np.full(len(rank), -1, np.int64),
        ),
        data_files=Files(
            names=tuple(f"rank_{each}" for each in writers.tolist()), rank=writers.astype(np.int32), size=size[writers],
        ),
        ranks=plan.processes,
        replicas_recorded=True,
        metadata_files=container.metadata(len(rank), len(tensors)),
        objects=tuple(objects),
        details={"replicas_held": copies, "gathered_plan_bytes": container.plan_per_fragment * len(rank)},
    )  # fmt: skip
