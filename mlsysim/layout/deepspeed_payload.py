"""The bytes of a DeepSpeed checkpoint's files, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.errors import InputError, Shown
from mlsysim.layout.deepspeed_master import MasterWeights
from mlsysim.layout.deepspeed_state import State
from mlsysim.layout.findings import Finding
from mlsysim.layout.layout import CheckpointLayout, Column, Payload
from mlsysim.layout.limits import inside, opened
from mlsysim.layout.torch_zip import StoredTensor

__all__ = ["FlatPayload"]

_FIX = "Check what DeepSpeed wrote; a save that was cut short lacks files."
# a view may repeat its storage's elements: larger ones than this are not laid out in memory
_MOST_REPEATED = 2**26


class FlatPayload(Payload):
    """The storages in the ``.pt`` files.

    Parameters
    ----------
    root : Path
    states : sequence of State or None
        What each data file holds; None where it is not there or cut short.
    stored : sequence of StoredTensor
        By row of the layout.
    file_of : array (rows,) of int
    faults : sequence of Finding
        What was found wrong while reading.
    """

    __slots__ = ("_faults", "_file_of", "_root", "_states", "_stored")

    def __init__(
        self, root: Path, states: Sequence[State | None], stored: Sequence[StoredTensor], file_of: Column, faults: Sequence[Finding]
    ) -> None:
        self._root, self._states, self._stored, self._file_of, self._faults = root, states, stored, file_of, faults

    def read(self, row: int) -> Column:  # noqa: D102
        state, tensor = self._states[int(self._file_of[row])], self._stored[row]
        if state is None:
            raise InputError("payload", "in a file that is there", Shown("a missing one"), _FIX)
        if tensor.storage is not None and tensor.bytes > max(tensor.storage.bytes, _MOST_REPEATED):
            raise InputError(state.file.name, "of tensors no larger than their storage", Shown(f"{tensor.bytes:,} byte"), _FIX)
        return state.archive.array(inside(self._root, state.file.name, state.file.name), tensor)

    def findings(self, layout: CheckpointLayout) -> Iterator[Finding]:  # noqa: D102
        yield from self._faults
        claimed: list[set[str]] = [set() for _ in self._states]
        for row, tensor in enumerate(self._stored):
            if tensor.storage is not None and tensor.storage.key not in claimed[int(self._file_of[row])]:
                claimed[int(self._file_of[row])].add(tensor.storage.key)
                yield from self._storage_findings(layout, row, tensor)
        for place, state in enumerate(self._states):
            if state is not None:
                rest = [each.removeprefix("data/") for each in state.archive.members if each.startswith("data/")]
                left = sum(state.archive.members[f"data/{key}"].size for key in rest if key not in claimed[place])
                if left:
                    yield _about(layout, place, "unclaimed bytes", f"{left:,} byte of storages belong to no tensor", "warning")
        yield from _master_findings(layout)

    def _storage_findings(self, layout: CheckpointLayout, row: int, tensor: StoredTensor) -> Iterator[Finding]:
        state = self._states[int(self._file_of[row])]
        storage = tensor.storage
        if state is None or storage is None:
            return
        member = state.archive.members.get(f"data/{storage.key}")
        name = layout.tensors[int(layout.fragments.tensor[row])].name
        if member is None:
            yield _about(layout, int(self._file_of[row]), "missing tensor", f"no member data/{storage.key} in the zip", tensor=name)
        elif member.size != storage.bytes:
            message = f"data/{storage.key} has {member.size:,} byte, the pickle says {storage.bytes:,}"
            yield _about(layout, int(self._file_of[row]), "byte count differs", message, tensor=name)

    def payload_findings(self, layout: CheckpointLayout, advance: Any = None) -> Iterator[Finding]:  # noqa: D102
        for place, state in enumerate(self._states):
            if state is None:
                continue
            try:
                with opened(inside(self._root, state.file.name, state.file.name)) as file:
                    for name, found, said in state.archive.damaged(file, advance):
                        message = f"{name} has CRC-32 {found:08x}, the zip says {said:08x}"
                        tensor = self._first(layout, place, name.removeprefix("data/"))
                        yield _about(layout, place, "digest differs", message, tensor=tensor)
            except OSError as error:
                yield _about(layout, place, "unreadable payload", error.strerror or "an error")
            except InputError as error:
                yield _about(layout, place, "unreadable payload", f"{error}")
        for name in sorted(layout.details["stored_by_every_rank"]):
            yield from self._deviants(layout, name)

    def _first(self, layout: CheckpointLayout, place: int, key: str) -> str | None:
        """The first tensor in a storage."""
        for row in np.flatnonzero(self._file_of == place).tolist():
            storage = self._stored[row].storage
            if storage is not None and storage.key == key:
                return layout.tensors[int(layout.fragments.tensor[row])].name
        return None

    def _deviants(self, layout: CheckpointLayout, name: str) -> Iterator[Finding]:
        """Copies of a tensor that are not as the first one."""
        rows = layout.rows_of(layout.place_of(name)).tolist()
        first = None
        for row in rows:
            try:
                raw = np.ascontiguousarray(self.read(row)).tobytes()
            except InputError as error:
                yield _about(layout, int(self._file_of[row]), "unreadable payload", f"{error}", tensor=name)
                continue
            first = raw if first is None else first
            if raw != first:
                # a buffer may differ by rank; the optimizer's counters must not
                severity, message = "error" if ".state." in name else "warning", "it is not as the first rank has it"
                yield _about(layout, int(self._file_of[row]), "replicas disagree", message, severity, name)


def _master_findings(layout: CheckpointLayout) -> Iterator[Finding]:
    """Parameters whose master weights are not all there, or lie outside of their partitions or on each other."""
    partitions: dict[str, dict[int, int]] = {}
    elsewhere: dict[int, str] = {}
    for each in layout.details["fp32_parameters"]:
        for rank in each.elsewhere:
            elsewhere.setdefault(rank, each.name)
        for group in {part[1] for part in each.slices} | {part[0] for part in each.piece}:
            tensor = each.tensors[group]
            if tensor not in partitions:
                partitions[tensor] = _partitions(layout, tensor)
        if not _even(each, partitions):
            yield from _parameter_findings(each, partitions)
    for rank, name in elsewhere.items():
        message = "param_slice_mappings record another place for it than the order of param_shapes gives, which is followed"
        yield Finding(kind="topology differs", severity="warning", tensor=name, rank=rank, message=message)
    yield from _overlap_findings(layout)


def _even(each: MasterWeights, partitions: dict[str, dict[int, int]]) -> bool:
    """Whether a parameter of stage 3 is there whole, without a look at each of its fragments."""
    enough = len(each.ranks) * sum(count for _, _, count in each.piece) >= each.elements
    return enough and all(_holds(partitions[each.tensors[group]], each.ranks, start + count) for group, start, count in each.piece)


def _parameter_findings(each: MasterWeights, partitions: dict[str, dict[int, int]]) -> Iterator[Finding]:
    there = 0
    # ranks without a file have nothing, however many are claimed
    present = sorted({rank for group, _, _ in each.piece for rank in partitions[each.tensors[group]]})
    for rank, group, start, count in each.on(present):
        size = partitions[each.tensors[group]].get(rank, 0)
        there += max(min(start + count, size) - start, 0)
        if start + count > size > 0:
            message = f"its master weights reach to {start + count:,} of a partition of {size:,}"
            yield Finding(kind="out of bounds", tensor=each.name, rank=rank, message=message)
    if there != each.elements:
        message = f"{there:,} of {each.elements:,} elements of its master weights are there"
        yield Finding(kind="hole" if there < each.elements else "overlap", tensor=each.name, message=message)


def _overlap_findings(layout: CheckpointLayout) -> Iterator[Finding]:
    """Parameters that share a place: where files without shapes say it. Those of stage 3 lie one after the other."""
    held: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
    for each in layout.details["fp32_parameters"]:
        for rank, group, start, count in each.slices:
            held.setdefault((each.tensors[group], rank), []).append((start, start + count, each.name))
    for (_, rank), spans in held.items():
        spans.sort()
        for one, two in pairwise(spans):
            if two[0] < min(one[1], two[1]):
                message = f"its master weights share a place with those of {one[2]}"
                yield Finding(kind="overlap", tensor=two[2], rank=rank, message=message)


def _holds(sizes: dict[int, int], ranks: Sequence[int], end: int) -> bool:
    """Whether every rank has a part that reaches so far."""
    return len(sizes) == len(ranks) and min(sizes.values(), default=0) >= end


def _partitions(layout: CheckpointLayout, tensor: str) -> dict[int, int]:
    """Elements of each rank's part of a flat tensor."""
    try:
        rows = layout.rows_of(layout.place_of(tensor))
    except InputError:
        return {}
    return dict(zip(layout.fragments.rank[rows].tolist(), layout.fragments.extent[rows, 0].tolist(), strict=True))


def _about(
    layout: CheckpointLayout, place: int, kind: str, message: str, severity: str = "error", tensor: str | None = None
) -> Finding:  # fmt: skip
    rank = int(layout.data_files.rank[place])
    return Finding(
        kind=kind, message=message, severity=severity, tensor=tensor, rank=rank if rank >= 0 else None, file=layout.files[place]
    )  # fmt: skip
