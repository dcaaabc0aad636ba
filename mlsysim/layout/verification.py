"""Checks that every format shares: do the fragments make up the tensors, and are the files there and whole?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from mlsysim.layout.coverage import Box, coverage
from mlsysim.layout.findings import Finding, Report, sorted_findings
from mlsysim.layout.layout import CheckpointLayout, Column

__all__ = ["verify"]

# findings of one kind that are told one by one; the rest are counted
_MOST_OF_A_KIND = 1000


def verify(layout: CheckpointLayout, payload: bool, advance: Any = None) -> Report:
    """All findings about a layout; with ``payload``, about its bytes as well."""
    found = [_tensor_findings(layout), _file_findings(layout)]
    if layout.payload is not None:
        found.append(layout.payload.findings(layout))
        if payload:
            found.append(layout.payload.payload_findings(layout, advance))
    checked = f"{len(layout.tensors):,} tensors, {len(layout.fragments):,} fragments, {len(layout.files):,} files"
    read = payload and layout.payload is not None and not layout.untold
    return Report(findings=_shortened(chain.from_iterable(found)), payload=read, checked=checked)


def _shortened(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The first of each kind and severity, sorted, and how many more there are; the others are never held."""
    counts: dict[tuple[str, str], int] = {}
    kept = []
    for each in findings:
        alike = each.kind, each.severity
        counts[alike] = counts.get(alike, 0) + 1
        if counts[alike] <= _MOST_OF_A_KIND:
            kept.append(each)
    more = (
        Finding(kind=kind, severity=severity, message=f"and {count - _MOST_OF_A_KIND:,} more of this kind")
        for (kind, severity), count in counts.items() if count > _MOST_OF_A_KIND
    )  # fmt: skip
    return (*sorted_findings(kept), *more)


def _tensor_findings(layout: CheckpointLayout) -> Iterator[Finding]:
    for place, tensor in enumerate(layout.tensors):
        rows = layout.rows_of(place)
        axes = len(tensor.global_shape)
        offset, extent = layout.fragments.offset[rows, :axes], layout.fragments.extent[rows, :axes]
        shape = np.array(tensor.global_shape, np.int64)
        outside = ((offset < 0) | (extent < 0) | (offset > shape) | (extent > shape - offset)).any(axis=1)
        for row in rows[outside]:
            yield _at(layout, int(row), "out of bounds", f"{_box(layout, int(row), axes)} reaches beyond {list(tensor.global_shape)}")
        yield from _cover_findings(layout, place, rows[~outside], offset[~outside], extent[~outside])


def _cover_findings(layout: CheckpointLayout, place: int, rows: Column, offset: Column, extent: Column) -> Iterator[Finding]:
    tensor = layout.tensors[place]
    keys = np.concatenate([offset, extent], axis=1)
    _, kept, copy_of = np.unique(keys, axis=0, return_index=True, return_inverse=True) if keys.shape[1] else _one_box(len(rows))
    yield from _copy_findings(layout, rows, copy_of)
    found = coverage(offset[kept], extent[kept], tensor.global_shape)
    if found.missing:
        message = f"{found.missing:,} of {tensor.elements:,} elements are in no fragment, the first at {found.hole}"
        yield Finding(kind="hole", tensor=tensor.name, message=message, rank=_near(layout, rows, offset, found.hole))
    if found.doubled:
        yield from _overlap_findings(layout, rows[kept], offset[kept], extent[kept], found.overlap)
    elif not found.complete:
        message = f"not all of its {len(kept):,} parts were compared, for too many lie across each other"
        yield Finding(kind="overlap", severity="warning", tensor=tensor.name, message=message)


def _one_box(count: int) -> tuple[None, Column, Column]:
    """The places of a tensor without axes: all its fragments are copies of one."""
    return None, np.zeros(min(count, 1), np.int64), np.zeros(count, np.int64)


def _copy_findings(layout: CheckpointLayout, rows: Column, copy_of: Column) -> Iterator[Finding]:
    """Copies of one part are replicas where ranks differ and the format records replicas, and overlaps where not."""
    name = layout.tensors[int(layout.fragments.tensor[rows[0]])].name if len(rows) else ""
    may_repeat = layout.replicas_recorded or name in layout.details.get("stored_by_every_rank", ())
    copy_of = copy_of.reshape(-1)
    order = np.argsort(copy_of, kind="stable")
    counts = np.bincount(copy_of) if len(copy_of) else np.zeros(0, np.int64)
    ends = np.cumsum(counts)
    for group in np.flatnonzero(counts > 1):
        members = rows[order[ends[group] - counts[group] : ends[group]]]
        ranks = layout.fragments.rank[members]
        if may_repeat and len(np.unique(ranks)) == len(members):
            continue
        first = int(members[0])
        axes = len(layout.tensors[int(layout.fragments.tensor[first])].global_shape)
        if not layout.fragments.extent[first, :axes].all():
            # parts without elements share none
            continue
        message = f"{_box(layout, first, axes)} is stored {len(members)} times, by ranks {_listed(ranks)}"
        yield _at(layout, int(members[-1]), "overlap", message)


def _overlap_findings(layout: CheckpointLayout, rows: Column, offset: Column, extent: Column, overlap: Box | None) -> Iterator[Finding]:
    if overlap is None:
        return
    point = np.array(overlap.offset, np.int64)
    inside = ((offset <= point) & (point < offset + extent)).all(axis=1)
    members = rows[inside]
    boxes = " and ".join(str(_box(layout, int(row), len(point))) for row in members[:3])
    yield _at(layout, int(members[-1]), "overlap", f"{boxes} share {overlap}, by ranks {_listed(layout.fragments.rank[members])}")


def _near(layout: CheckpointLayout, rows: Column, offset: Column, hole: Box | None) -> int | None:
    """Rank of the fragment before a hole: where to look first."""
    if hole is None or not len(rows) or not len(hole.offset):
        return None
    order = np.lexsort(offset.T[::-1])
    before = [place for place in order if tuple(offset[place]) <= hole.offset]
    rank = int(layout.fragments.rank[rows[before[-1] if before else order[0]]])
    return rank if rank >= 0 else None


def _file_findings(layout: CheckpointLayout) -> Iterator[Finding]:
    claimed, alone = _claimed_ends(layout), _only_tensors(layout)
    for place, name in enumerate(layout.files):
        size, end = int(layout.data_files.size[place]), int(claimed[place])
        rank = int(layout.data_files.rank[place])
        who = rank if rank >= 0 else None
        tensor = layout.tensors[int(alone[place])].name if alone[place] >= 0 else None
        if size < 0:
            if layout.root is not None:
                yield Finding(kind="file missing", file=name, rank=who, tensor=tensor, message="the payload file is not there")
        elif size < end:
            message = f"{size:,} byte, but its fragments reach to {end:,}"
            yield Finding(kind="file short", file=name, rank=who, tensor=tensor, message=message)
    yield from _gap_findings(layout)
    if layout.ranks is not None and layout.root is not None and (layout.data_files.rank >= 0).any():
        wrote = set(layout.data_files.rank.tolist()) | set(np.unique(layout.fragments.rank).tolist())
        absent = (rank for rank in range(layout.ranks) if rank not in wrote)
        for rank in islice(absent, _MOST_OF_A_KIND + 1):
            yield Finding(kind="missing rank", rank=rank, message=f"none of the {layout.ranks:,} ranks' files is by rank {rank}")


def _only_tensors(layout: CheckpointLayout) -> Column:
    """The tensor of each file that holds fragments of one only; -1 for the others."""
    low, high = np.full(len(layout.files), len(layout.tensors), np.int64), np.full(len(layout.files), -1, np.int64)
    held = layout.fragments.file >= 0
    np.minimum.at(low, layout.fragments.file[held], layout.fragments.tensor[held])
    np.maximum.at(high, layout.fragments.file[held], layout.fragments.tensor[held])
    return np.where(low == high, low, -1)


def _claimed_ends(layout: CheckpointLayout) -> Column:
    ends = np.zeros(len(layout.files), np.int64)
    fragments = layout.fragments
    known = (fragments.file_offset >= 0) & (fragments.file >= 0)
    np.maximum.at(ends, fragments.file[known], fragments.file_offset[known] + fragments.stored_bytes[known])
    return ends


def _gap_findings(layout: CheckpointLayout) -> Iterator[Finding]:
    """Bytes of a file that nothing claims, for formats whose claims tile the file (``details['claims']``)."""
    claims = layout.details.get("claims")
    if claims is None:
        return
    files, starts, lengths = claims
    order = np.lexsort((starts, files))
    files, starts, ends = files[order], starts[order], (starts + lengths)[order]
    bounds = np.searchsorted(files, np.arange(len(layout.files) + 1))
    for place, name in enumerate(layout.files):
        size = int(layout.data_files.size[place])
        mine = slice(int(bounds[place]), int(bounds[place + 1]))
        reach = np.maximum.accumulate(np.concatenate(([0], ends[mine])))
        gaps = np.concatenate((starts[mine], [max(size, 0)])) - reach
        if size >= 0 and (gaps > 0).any():
            at = int(np.argmax(gaps > 0))
            rank = int(layout.data_files.rank[place])
            message = f"{int(gaps[gaps > 0].sum()):,} byte belong to no fragment, the first at {int(reach[at]):,}"
            yield Finding(kind="unclaimed bytes", severity="warning", file=name, rank=rank if rank >= 0 else None, message=message)


def _at(layout: CheckpointLayout, row: int, kind: str, message: str) -> Finding:
    """A finding about one fragment."""
    fragments = layout.fragments
    rank, file = int(fragments.rank[row]), int(fragments.file[row])
    return Finding(
        kind=kind, message=message, tensor=layout.tensors[int(fragments.tensor[row])].name,
        rank=rank if rank >= 0 else None, file=layout.files[file] if file >= 0 else None,
    )  # fmt: skip


def _box(layout: CheckpointLayout, row: int, axes: int) -> Box:
    return Box(tuple(layout.fragments.offset[row, :axes].tolist()), tuple(layout.fragments.extent[row, :axes].tolist()))


def _listed(ranks: Column) -> str:
    known = [str(rank) for rank in ranks.tolist() if rank >= 0]
    return ", ".join(known[:8]) + (", ..." if len(known) > 8 else "") if known else "unknown"
