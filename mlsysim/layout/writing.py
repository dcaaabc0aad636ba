"""Which holder writes each part, rule by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mlsysim.layout.layout import Column
from mlsysim.specs.parallel import ParallelPlan
from mlsysim.specs.writers import Balanced, EveryHolder, FullyParallel, ReplicaParallel, Writers

if TYPE_CHECKING:
    from mlsysim.layout.prediction import Array, Parts

__all__ = ["written"]

Rows = tuple[Column, Column, Column, Column]


def written(parts: list[Parts], arrays: list[Array], plan: ParallelPlan, objects: int) -> Rows:
    """Columns tensor, offset, extent and rank of what is written.

    Parameters
    ----------
    parts, arrays : list
        What each array is cut into, and the array.
    plan : ParallelPlan
    objects : int
        Things that every rank holds and that are no tensors; they count in the balance.
    """
    axes = max((len(each.placed.tensor.shape) for each in arrays), default=0)
    owners = None
    if isinstance(plan.writers, Balanced):
        owners = _balanced(parts, arrays, plan.ranks, objects)
    elif isinstance(plan.writers, FullyParallel):
        owners = _fully_parallel(parts, arrays, plan)
    pieces: list[Any] = [_by_rule(each, array.writers or plan.writers, owners[place] if owners else None)
              for place, (each, array) in enumerate(zip(parts, arrays, strict=True))]  # fmt: skip
    parts.clear()  # a fleet's layout is large: what was cut is not needed once it is written
    total = sum(len(rank) for _, _, rank in pieces)
    tensor = np.repeat(np.arange(len(pieces), dtype=np.int32), [len(rank) for _, _, rank in pieces])
    offset, extent, ranks = np.zeros((total, axes), np.int64), np.ones((total, axes), np.int64), np.empty(total, np.int32)
    at = 0
    for place, (begin, reach, rank) in enumerate(pieces):
        here = slice(at, at + len(rank))
        offset[here, : begin.shape[1]], extent[here, : reach.shape[1]], ranks[here] = begin, reach, rank
        at += len(rank)
        pieces[place] = None
    return tensor, offset, extent, ranks


def _by_rule(parts: Parts, rule: Writers, owners: Column | None) -> tuple[Column, Column, Column]:
    """What is written of one array: offset, extent, rank."""
    copies = parts.holders.shape[1]
    if isinstance(rule, EveryHolder):
        return np.repeat(parts.offset, copies, axis=0), np.repeat(parts.extent, copies, axis=0), parts.holders.reshape(-1)
    if isinstance(rule, ReplicaParallel):
        return _shared(parts)
    if isinstance(rule, (Balanced, FullyParallel)) and owners is not None:
        return parts.offset, parts.extent, owners
    return parts.offset, parts.extent, parts.holders[:, 0]


def _shared(parts: Parts) -> tuple[Column, Column, Column]:
    """Each part again in as many as it has holders, along the first axis that divides."""
    copies = parts.holders.shape[1]
    axis = next((axis for axis in range(parts.extent.shape[1]) if (parts.extent[:, axis] % copies == 0).all()), None)
    if axis is None or copies == 1:
        return parts.offset, parts.extent, parts.holders[:, 0]
    extent, offset = np.repeat(parts.extent, copies, axis=0), np.repeat(parts.offset, copies, axis=0)
    extent[:, axis] //= copies
    offset[:, axis] += extent[:, axis] * np.tile(np.arange(copies), len(parts.offset))
    return offset, extent, parts.holders.reshape(-1)


def _balanced(parts: list[Parts], arrays: list[Array], ranks: int, objects: int) -> list[Column]:
    """Owner of each part: the lowest holders come to them in the order of their state, each goes to its least loaded holder."""
    counts = [len(each.offset) for each in parts]
    lowest = np.concatenate([each.holders[:, 0] for each in parts]) if parts else np.zeros(0, np.int64)
    weight = np.repeat([max(each.placed.tensor.bytes, 1) for each in arrays], counts)
    shared = np.repeat([each.holders.shape[1] > 1 for each in parts], counts)
    rows: Any = [holders for each in parts if each.holders.shape[1] > 1 for holders in each.holders]
    place = np.cumsum(shared) - 1
    owner, load = lowest.astype(np.int32), np.zeros(ranks, np.int64)
    order = np.argsort(lowest, kind="stable")
    last_of_first = int(np.searchsorted(lowest[order], 1)) if len(order) else 0
    at = 0
    # what one rank alone holds goes to it, and weighs from its turn on
    for turn in [*np.flatnonzero(shared[order]).tolist(), len(order)]:
        if at <= last_of_first <= turn and objects:
            np.add.at(load, lowest[order[at:last_of_first]], weight[order[at:last_of_first]])
            at = last_of_first
            for _ in range(objects):
                load[np.argmin(load)] += 1
            objects = 0
        np.add.at(load, lowest[order[at:turn]], weight[order[at:turn]])
        if turn < len(order):
            row = int(order[turn])
            holders = rows[place[row]]
            owner[row] = holders[np.argmin(load[holders])]
            load[owner[row]] += weight[row]
        at = turn + 1
    return np.split(owner, np.cumsum(counts)[:-1]) if parts else []


def _fully_parallel(parts: list[Parts], arrays: list[Array], plan: ParallelPlan) -> list[Column]:
    """Owner of each part: shared out within the data-parallel group of the lowest holder, by the bytes of the parts."""
    owners = [each.holders[:, 0].copy() for each in parts]
    load: Any = np.zeros(plan.ranks, np.int64)
    group = plan.replicas * plan.tensor
    turns = []
    for place, (each, array) in enumerate(zip(parts, arrays, strict=True)):
        tensor = array.placed.tensor
        size = each.extent.prod(axis=1) * tensor.bytes // max(tensor.elements, 1)
        for row, holders in enumerate(each.holders):
            low = holders[0]
            near = holders[(holders // group == low // group) & (holders % plan.tensor == low % plan.tensor)]
            turns.append((len(near), -int(size[row]), tensor.name, tuple(each.offset[row].tolist()), place, row, near))
    turns.sort(key=lambda turn: turn[:4])
    for _, size, _, _, place, row, near in turns:
        owner = near[np.argmin(load[near])]
        owners[place][row] = owner
        load[owner] -= size
    return owners
