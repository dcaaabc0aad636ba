"""Where the master weights of each parameter lie in the flat partitions of a DeepSpeed checkpoint."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from mlsysim.layout.deepspeed_state import Group, State

__all__ = ["MasterWeights", "frozen_parts", "master_weights"]


@frozen(kw_only=True)
class MasterWeights:
    """Where the master weights of a parameter lie.

    Parameters
    ----------
    name : str
    global_shape : tuple of int
    dtype : str
    tensors : dict of int to str
        By flat group: the layout's tensor that is made of the group's partitions.
    slices : tuple of (rank, group, partition_offset, elements)
        Stages 1 and 2: where its parts lie, in the order of the elements.
    elsewhere : tuple of int
        Stages 1 and 2: ranks whose file records another place for it. With round-robin gradients DeepSpeed records the places that
        parameters would have in their original order; the order that it stores them in is that of their shapes.
    ranks : range
        Stage 3: the ranks that it is cut over, evenly, the last piece padded.
    piece : tuple of (group, partition_offset, elements)
        Stage 3: where a rank's piece lies, the same on each.
    """

    name: str
    global_shape: tuple[int, ...]
    dtype: str
    tensors: dict[int, str]
    slices: tuple[tuple[int, int, int, int], ...] = ()
    elsewhere: tuple[int, ...] = ()
    ranks: range = range(0)
    piece: tuple[tuple[int, int, int], ...] = ()

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.global_shape)

    @property
    def fragments(self) -> tuple[tuple[int, int, int, int], ...]:
        """Rank, flat group, offset in the rank's partition of it, and elements of each part, in the order of the elements."""
        return tuple(self.on(self.ranks))

    def on(self, ranks: Iterable[int]) -> Iterator[tuple[int, int, int, int]]:
        """The fragments; in stage 3 those on some of the ranks."""
        yield from self.slices
        each = sum(count for _, _, count in self.piece)
        for rank in ranks:
            if rank not in self.ranks:
                continue
            left = self.elements - self.ranks.index(rank) * each
            for group, start, count in self.piece:
                if left > 0:
                    yield rank, group, start, min(count, left)
                left -= count


def master_weights(
    stage: int, shapes: Sequence[dict[str, tuple[int, ...]]], optimizers: dict[int, State], ranks: range, lead: str
) -> Iterator[MasterWeights]:
    """Where the master weights of each parameter of one model-parallel rank lie.

    Parameters
    ----------
    stage : int
    shapes : sequence of dict
        Of its model file, by group.
    optimizers : dict of int to State
        Its optimizer files by data-parallel rank; some may be missing.
    ranks : range
        The rank of each data-parallel rank.
    lead : str
        What the names of its tensors begin with.
    """
    if not optimizers:
        return
    if stage == 3:
        yield from _cut_evenly(shapes, optimizers, ranks, lead)
        return
    for number in range(max(len(each.groups) for each in optimizers.values())):
        held = {data: state.groups[number] for data, state in sorted(optimizers.items()) if number < len(state.groups)}
        wanted = shapes[number] if number < len(shapes) else {}
        ways = max((each.ways for each in held.values()), default=0) or len(ranks)
        spread = len(ranks) // ways if ways < len(ranks) and len(ranks) % ways == 0 else 1
        paddings = next((each.paddings[number] for each in optimizers.values() if number < len(each.paddings)), ())
        for expert in range(spread):
            mine = {data // spread: group for data, group in held.items() if data % spread == expert}
            inner = f".expert_parallel_{expert}" if spread > 1 else ""
            name = f"{lead}optimizer.single_partition_of_fp32_groups.{number}{inner}"
            front = lead + (f"expert_parallel_{expert}." if spread > 1 else "")
            yield from _sliced(number, wanted, mine, ranks[expert::spread], front, name, paddings)


def _sliced(
    number: int, shapes: dict[str, tuple[int, ...]], held: dict[int, Group], ranks: range, lead: str, tensor: str,
    paddings: Sequence[int],
) -> Iterator[MasterWeights]:  # fmt: skip
    """Stages 1 and 2: parameters one after the other over all partitions; without their shapes, where every rank says its slices are."""
    if not held:
        return
    dtype = next(iter(held.values())).dtype
    told: dict[str, list[tuple[int, int, int, int]]] = {}
    for data, group in held.items():
        for name, (start, count) in (group.slices or {}).items():
            told.setdefault(name, []).append((ranks[data], number, start, count))
    if not shapes:
        for name, parts in told.items():
            yield MasterWeights(
                name=lead + name, global_shape=(sum(each[3] for each in parts),), dtype=dtype, tensors={number: tensor}, slices=tuple(parts)
            )  # fmt: skip
        return
    there = {ranks[data] for data, group in held.items() if group.slices is not None}
    for name, parts in _in_turn(number, shapes, max(group.padded for group in held.values()), ranks, paddings).items():
        differ = {each for each in parts if each[0] in there} ^ set(told.get(name, ()))
        yield MasterWeights(
            name=lead + name, global_shape=shapes[name], dtype=dtype, tensors={number: tensor}, slices=tuple(parts),
            elsewhere=tuple(sorted({each[0] for each in differ})),
        )  # fmt: skip


def _in_turn(
    number: int, shapes: dict[str, tuple[int, ...]], size: int, ranks: range, paddings: Sequence[int]
) -> dict[str, list[tuple[int, int, int, int]]]:
    """Parameters one after the other over partitions of one size, each with its padding behind it."""
    found: dict[str, list[tuple[int, int, int, int]]] = {}
    at = 0
    for place, (name, shape) in enumerate(shapes.items()):
        end = at + math.prod(shape)
        parts = found.setdefault(name, [])
        for data in range(at // size if size else len(ranks), len(ranks)):
            start, stop = max(at - data * size, 0), min(end - data * size, size)
            if stop <= start:
                break
            parts.append((ranks[data], number, start, stop - start))
        at = end + (paddings[place] if len(paddings) == len(shapes) else 0)
    return found


def _cut_evenly(
    shapes: Sequence[dict[str, tuple[int, ...]]], optimizers: dict[int, State], ranks: range, lead: str
) -> Iterator[MasterWeights]:
    """Stage 3: each parameter in pieces of ceil(n / d), the last one padded, one after the other in each rank's groups."""
    groups = next((each.groups for _, each in sorted(optimizers.items()) if each.groups), ())
    tensors = {number: f"{lead}optimizer.fp32_flat_groups.{number}" for number in range(len(groups))}
    number, used = 0, 0
    for names in shapes:
        for name, shape in names.items():
            left = -(-math.prod(shape) // len(ranks))
            piece = []
            while left and number < len(groups):
                count = min(left, groups[number].elements - used)
                if count:
                    piece.append((number, used, count))
                used, left = used + count, left - count
                if used == groups[number].elements and left:
                    number, used = number + 1, 0
            dtype = groups[piece[0][0]].dtype if piece else "float32"
            yield MasterWeights(
                name=lead + name, global_shape=shape, dtype=dtype, tensors=tensors, ranks=ranks, piece=tuple(piece)
            )  # fmt: skip


def frozen_parts(shapes: dict[str, tuple[int, ...]], dtypes: dict[str, str], ranks: range, lead: str) -> Iterator[MasterWeights]:
    """Stage 3: parameters that no optimizer has, cut over the ranks' model files in the same way."""
    for name, shape in shapes.items():
        tensor = f"{lead}frozen_param_fragments.{name}"
        if tensor in dtypes:
            each = -(-math.prod(shape) // len(ranks))
            yield MasterWeights(
                name=lead + name, global_shape=shape, dtype=dtypes[tensor], tensors={0: tensor}, ranks=ranks, piece=((0, 0, each),)
            )  # fmt: skip
