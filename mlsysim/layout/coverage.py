"""Which parts of a tensor its fragments cover: once, never, or more than once.

The cuts that the fragments make divide each axis; on the grid of those divisions a difference array counts covers
without a loop over fragments.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attrs import frozen

__all__ = ["Box", "Coverage", "coverage"]

Column = np.ndarray[Any, np.dtype[Any]]
# cells of the grid that are counted at once: 64 MB
_CELLS = 8_000_000
# cells across one division of the first axis, cells in all (or for each box), and divided axes, beyond which boxes are compared
# instead: only a stranger's do
_MOST_CELLS = 64_000_000
_FEW_CELLS, _CELLS_PER_BOX = 250_000, 2000
_MOST_AXES = 6
_MOST_PAIRS = 1000
# comparisons for each box, beyond which the rest is left alone: time grows with the boxes, not with their square
_COMPARED_PER_BOX = 4000


@frozen
class Box:
    """A part of a tensor: where it begins, and how far it reaches along each axis."""

    offset: tuple[int, ...]
    extent: tuple[int, ...]

    def __str__(self) -> str:
        spans = ", ".join(f"{start}:{start + reach}" for start, reach in zip(self.offset, self.extent, strict=True))
        return f"[{spans}]"


@frozen
class Coverage:
    """Elements in no box, elements in more than one, and one part of each as an example; whether all boxes were compared."""

    missing: int
    doubled: int
    hole: Box | None
    overlap: Box | None
    complete: bool = True


def coverage(offset: Column, extent: Column, shape: tuple[int, ...]) -> Coverage:
    """How boxes cover a tensor.

    Parameters
    ----------
    offset, extent : array (boxes, axes) of int64
        Within the tensor; equal boxes are to be given once.
    shape : tuple of int
        Of the tensor, ``axes`` long.

    Returns
    -------
    Coverage

    Examples
    --------
    >>> found = coverage(np.array([[0], [6]]), np.array([[5], [4]]), (10,))
    >>> found.missing, str(found.hole), found.doubled
    (1, '[5:6]', 0)
    """
    if 0 in shape:
        return Coverage(0, 0, None, None)
    filled = (extent > 0).all(axis=1)
    start, stop = offset[filled], (offset + extent)[filled]
    if not shape:
        count = len(start)
        point = Box((), ())
        return Coverage(int(count == 0), int(count > 1), point if count == 0 else None, point if count > 1 else None)
    # an axis that every box spans divides nothing: any number of them costs nothing
    kept = [axis for axis, size in enumerate(shape) if (start[:, axis] > 0).any() or (stop[:, axis] < size).any()] or [0]
    found = _on_axes(start[:, kept], stop[:, kept], [shape[axis] for axis in kept])
    return found if len(kept) == len(shape) else _widened(found, kept, shape)


def _on_axes(start: Column, stop: Column, shape: list[int]) -> Coverage:
    """Coverage along the axes that are divided."""
    cuts = [np.unique(np.concatenate(([0, size], start[:, axis], stop[:, axis]))) for axis, size in enumerate(shape)]
    first = [np.searchsorted(cuts[axis], start[:, axis]) for axis in range(len(shape))]
    last = [np.searchsorted(cuts[axis], stop[:, axis]) for axis in range(len(shape))]
    inner = math.prod(len(each) for each in cuts[1:])
    cells = inner * len(cuts[0])
    if inner > _MOST_CELLS or len(shape) > _MOST_AXES or cells > max(_FEW_CELLS, _CELLS_PER_BOX * len(start)):
        return _pairwise(start, stop, shape)
    slabs = max(1, _CELLS // max(inner, 1))
    total = Coverage(0, 0, None, None)
    for low in range(0, len(cuts[0]) - 1, slabs):
        total = _merged(total, _slab(cuts, first, last, low, min(low + slabs, len(cuts[0]) - 1)))
    return total


def _widened(found: Coverage, kept: list[int], shape: tuple[int, ...]) -> Coverage:
    """Coverage of a tensor from that along some of its axes; all boxes span the others."""
    rest = math.prod(size for axis, size in enumerate(shape) if axis not in kept)

    def wide(box: Box | None) -> Box | None:
        if box is None:
            return None
        offset, extent = [0] * len(shape), list(shape)
        for place, axis in enumerate(kept):
            offset[axis], extent[axis] = box.offset[place], box.extent[place]
        return Box(tuple(offset), tuple(extent))

    return Coverage(found.missing * rest, found.doubled * rest, wide(found.hole), wide(found.overlap), found.complete)


def _pairwise(start: Column, stop: Column, shape: list[int]) -> Coverage:
    """Coverage where the divisions are too many to count: shared parts box by box, what is missing from the volumes.

    Where boxes share elements, ``missing`` is the least that it can be; the whole is given as the place of a hole. Where too many
    lie across each other, not all are compared.
    """
    volumes = [math.prod(each) for each in (stop - start).tolist()]
    # in the order along an axis, a box shares elements only with those that begin before it ends
    reaches = [np.searchsorted(np.sort(start[:, each]), stop[:, each]) for each in range(len(shape))]
    axis = min(range(len(shape)), key=lambda each: int(reaches[each].sum()))
    order = np.argsort(start[:, axis], kind="stable")
    start, stop, reach = start[order], stop[order], reaches[axis][order]
    doubled, overlap, left = 0, None, _COMPARED_PER_BOX * len(start)
    for place, end in enumerate(reach.tolist()):
        if end <= place + 1:
            continue
        left -= end - place - 1
        if left < 0:
            break
        low, high = np.maximum(start[place], start[place + 1 : end]), np.minimum(stop[place], stop[place + 1 : end])
        shared = np.flatnonzero((low < high).all(axis=1))
        for other in shared[:_MOST_PAIRS].tolist():
            doubled += math.prod((high[other] - low[other]).tolist())
            overlap = overlap or Box(tuple(low[other].tolist()), tuple((high[other] - low[other]).tolist()))
        if doubled > 0 and len(shared) > _MOST_PAIRS:
            break
    missing = max(math.prod(shape) - sum(volumes), 0)
    return Coverage(missing, doubled, Box((0,) * len(shape), tuple(shape)) if missing else None, overlap, left >= 0)


def _slab(cuts: list[Column], first: list[Column], last: list[Column], low: int, high: int) -> Coverage:
    """Coverage of the divisions ``low`` to ``high`` along the first axis."""
    touching = (first[0] < high) & (last[0] > low)
    ends = [(np.clip(one[touching], low, high) - low, np.clip(two[touching], low, high) - low) for one, two in [(first[0], last[0])]]
    ends += [(one[touching], two[touching]) for one, two in zip(first[1:], last[1:], strict=True)]
    counts = np.zeros([high - low + 1, *(len(each) for each in cuts[1:])], np.int32)
    axes = len(ends)
    for corner in range(2**axes):
        place = tuple(ends[axis][corner >> axis & 1] for axis in range(axes))
        np.add.at(counts, place, 1 - 2 * (corner.bit_count() % 2))
    for axis in range(axes):
        np.cumsum(counts, axis=axis, out=counts)
    counts = counts[tuple(slice(0, size - 1) for size in counts.shape)]
    widths = [np.diff(cuts[0][low : high + 1]), *(np.diff(each) for each in cuts[1:])]
    starts = [cuts[0][low:high], *(each[:-1] for each in cuts[1:])]
    missing, hole = _measured(counts == 0, widths, starts)
    doubled, overlap = _measured(counts > 1, widths, starts)
    return Coverage(missing, doubled, hole, overlap)


def _measured(cells: Column, widths: list[Column], starts: list[Column]) -> tuple[int, Box | None]:
    """Elements in some cells, and the first of them."""
    if not cells.any():
        return 0, None
    # Python integers where the volumes of a stranger's shapes would overflow
    exact = object if float(np.prod([float(each.sum()) for each in widths])) >= 2**62 else np.int64
    volume: Any = cells.astype(exact)
    for axis in range(len(widths) - 1, -1, -1):
        volume = volume @ widths[axis].astype(exact)
    place = np.unravel_index(int(cells.argmax()), cells.shape)
    return int(volume), Box(
        tuple(int(starts[axis][at]) for axis, at in enumerate(place)), tuple(int(widths[axis][at]) for axis, at in enumerate(place))
    )


def _merged(one: Coverage, two: Coverage) -> Coverage:
    return Coverage(one.missing + two.missing, one.doubled + two.doubled, one.hole or two.hole, one.overlap or two.overlap)
