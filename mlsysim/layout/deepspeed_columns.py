"""The tensors and fragments of a DeepSpeed checkpoint, from what each of its files holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.deepspeed_state import State, StatePart
from mlsysim.layout.layout import UNKNOWN, Column, Fragments, TensorInfo
from mlsysim.layout.torch_zip import StoredTensor

__all__ = ["ROW_BYTES", "Columns", "Grid", "columns"]

_LARGEST = 2**62
# what a row takes while the columns are made, rather too much
ROW_BYTES = 2000


@frozen(kw_only=True)
class Grid:
    """How ranks are counted: tensor-parallel ranks are neighbours, then data-parallel ones, then the stages of a pipeline.

    Parameters
    ----------
    data, model : int
        Degrees; a model-parallel rank is a pipeline stage times the tensor-parallel degree plus a tensor-parallel rank.
    tensor : int
        Tensor-parallel degree.
    """

    data: int
    model: int
    tensor: int

    def rank(self, data: int, model: int) -> int:
        """The rank of a data- and a model-parallel rank.

        Examples
        --------
        >>> Grid(data=4, model=2, tensor=2).rank(1, 0)
        2
        """
        stage, inner = divmod(model, self.tensor)
        return (stage * self.data + data) * self.tensor + inner

    def ranks(self, model: int) -> range:
        """The ranks of a model-parallel rank, by data-parallel rank.

        Examples
        --------
        >>> list(Grid(data=4, model=2, tensor=2).ranks(1))
        [1, 3, 5, 7]
        """
        return range(self.rank(0, model), self.rank(self.data, model), self.tensor)

    def lead(self, model: int) -> str:
        """What the names of a model-parallel rank's tensors begin with."""
        return f"mp_rank_{model:02d}." if self.model > 1 else ""

    def lead_of(self, state: State) -> str:
        """What the names of a file's tensors begin with. A pipeline's layers are numbered through all its stages."""
        if state.file.kind == "layer":
            return f"model_{state.file.model:02d}." if self.tensor > 1 else ""
        return self.lead(state.file.model)

    def expert(self, state: State, group: int) -> tuple[int, int]:
        """Of a group that fewer ranks share: which expert-parallel rank this file is of, and how many there are."""
        ways = state.groups[group].ways if 0 <= group < len(state.groups) else 0
        spread = self.data // ways if 0 < ways < self.data and self.data % ways == 0 else 1
        return state.file.data % spread, spread


@frozen(kw_only=True, eq=False)
class Columns:
    """Tensors, fragments, the stored tensor and the file of each row, and names that several ranks store alike."""

    tensors: tuple[TensorInfo, ...]
    fragments: Fragments
    stored: tuple[StoredTensor, ...]
    file_of: Column
    repeated: frozenset[str]


def columns(states: Sequence[State | None], grid: Grid, ranks: Sequence[int]) -> Columns:
    """Flat partitions are one tensor, side by side; what every rank stores alike is one tensor with several copies.

    Parameters
    ----------
    states : sequence of State or None
        By data file.
    grid : Grid
    ranks : sequence of int
        Of the files; -1 where it is not known.

    Raises
    ------
    InputError
        If a flat tensor is too large, or of several element types.
    """
    whole, flat = _by_name(states, grid, ranks)
    tensors: list[TensorInfo] = []
    rows: list[tuple[int, int, int, tuple[int, ...], tuple[int, ...], int, int, int]] = []
    stored: list[StoredTensor] = []
    repeated = set()

    def add(place: int, offset: tuple[int, ...], part: StatePart) -> None:
        rows.append((len(tensors), ranks[place], place, offset, part.tensor.shape, part.payload, part.payload, UNKNOWN))
        stored.append(part.tensor)

    for name, copies in whole.items():
        first = copies[0][1].tensor
        for place, part in copies:
            add(place, (0,) * len(first.shape), part)
        tensors.append(TensorInfo(name=name, dtype=first.dtype, global_shape=first.shape))
        repeated |= {name} if len(copies) > 1 else set()
    for name, (ways, partitions) in flat.items():
        sizes = {each: part.tensor.elements for each, (_, part) in partitions.items()}
        # a partition that is not there is as large as the largest; how many are claimed may be far more than there are files
        at, after, largest = 0, 0, max(sizes.values())
        for each in sorted(each for each in partitions if each < ways):
            at += largest * (each - after)
            add(partitions[each][0], (at,), partitions[each][1])
            at, after = at + sizes[each], each + 1
        at += largest * (ways - after)
        if at >= _LARGEST:
            raise InputError(name[:200], "of less than 2^62 elements", Shown(f"{at:,}"), "Refuse this checkpoint, or ask who made it.")
        dtypes = {part.tensor.dtype for _, part in partitions.values()}
        if len(dtypes) > 1:
            fix = "Refuse this checkpoint, or ask who made it."
            raise InputError(name[:200], "of one element type in every file", Shown(", ".join(sorted(dtypes))), fix)
        tensors.append(TensorInfo(name=name, dtype=dtypes.pop(), global_shape=(at,)))
    return Columns(
        tensors=tuple(tensors), fragments=Fragments.from_rows(rows), stored=tuple(stored),
        file_of=np.array([row[2] for row in rows], np.int64), repeated=frozenset(repeated),
    )  # fmt: skip


_Part = tuple[int, StatePart]


def _by_name(
    states: Sequence[State | None], grid: Grid, ranks: Sequence[int]
) -> tuple[dict[str, list[_Part]], dict[str, tuple[int, dict[int, _Part]]]]:
    """Copies of whole tensors; and of flat ones how many partitions there are, and each by its number."""
    whole: dict[str, list[_Part]] = {}
    flat: dict[str, tuple[int, dict[int, _Part]]] = {}
    for place, state in enumerate(states):
        for part in state.parts if state is not None else ():
            if state is None:
                continue
            name = grid.lead_of(state) + part.name
            if part.group is None:
                owner = name if _shared(state, part, grid) else _alone(name, ranks[place], place)
                first = whole.setdefault(owner, [(place, part)])
                if first[0][1] is part:
                    continue
                one = first[0][1].tensor
                if (one.shape, one.dtype) == (part.tensor.shape, part.tensor.dtype):
                    first.append((place, part))
                else:
                    whole.setdefault(_alone(name, ranks[place], place), []).append((place, part))
                continue
            expert, spread = grid.expert(state, part.group)
            inner = f".expert_parallel_{expert}" if spread > 1 else ""
            flat.setdefault(name + inner, (grid.data // spread, {}))[1].setdefault(state.file.data // spread, (place, part))
    return whole, flat


def _shared(state: State, part: StatePart, grid: Grid) -> bool:
    """Whether ranks that store a whole tensor under one name store the same; what a user put in a model file is each rank's own."""
    return state.file.kind != "sharded model" or grid.data == 1 or part.name.startswith("module.")


def _alone(name: str, rank: int, place: int) -> str:
    return f"rank_{rank}.{name}" if rank >= 0 else f"file_{place}.{name}"
