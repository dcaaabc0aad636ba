"""Coverage of tensors that only a stranger would make: many axes, and cuts without end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.layout import coverage as module
from mlsysim.layout.coverage import coverage

Boxes = tuple[tuple[int, ...], np.ndarray, np.ndarray]


@st.composite
def boxes(draw: st.DrawFn) -> Boxes:
    """A small tensor, and distinct boxes within it."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    found = set()
    for _ in range(draw(st.integers(0, 5))):
        offset = [draw(st.integers(0, size)) for size in shape]
        found.add((*offset, *(draw(st.integers(0, size - start)) for size, start in zip(shape, offset, strict=True))))
    table = np.array(sorted(found), np.int64).reshape(-1, 2 * len(shape))
    return shape, table[:, : len(shape)], table[:, len(shape) :]


def counted(case: Boxes) -> np.ndarray:
    """How often each element is covered, one by one."""
    shape, offset, extent = case
    counts = np.zeros(shape, int)
    for start, reach in zip(offset, extent, strict=True):
        counts[tuple(slice(a, a + b) for a, b in zip(start, reach, strict=True))] += 1
    return counts


@settings(max_examples=300, deadline=None)
@given(case=boxes())
def test_coverage_is_what_counting_gives(case: Boxes) -> None:
    """Elements missing and doubled, and the examples of both, equal a count of every element."""
    counts, found = counted(case), coverage(case[1], case[2], case[0])
    assert ((counts == 0).sum(), (counts > 1).sum()) == (found.missing, found.doubled)
    for box, wrong in ((found.hole, counts == 0), (found.overlap, counts > 1)):
        assert (box is not None) == wrong.any()
        if box is not None:
            part = wrong[tuple(slice(a, a + b) for a, b in zip(box.offset, box.extent, strict=True))]
            assert part.size
            assert part.all()


@settings(max_examples=300, deadline=None)
@given(case=boxes())
def test_boxes_compared_one_by_one_give_the_same_verdict(case: Boxes) -> None:
    """Where no grid can be laid: the same verdict, and the same number missing where nothing overlaps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_AXES", 0)
        found = coverage(case[1], case[2], case[0])
    counts = counted(case)
    assert (counts > 1).any() == (found.doubled > 0)
    if not found.doubled:
        assert (counts == 0).sum() == found.missing


def test_axes_that_nothing_divides_cost_nothing() -> None:
    """A tensor of 64 axes, in two pieces along one of them."""
    shape = (1,) * 40 + (10,) + (3,) * 23
    offset, extent = np.zeros((2, 64), np.int64), np.array([shape, shape], np.int64)
    extent[0, 40], offset[1, 40], extent[1, 40] = 4, 5, 5
    found = coverage(offset, extent, shape)
    assert (3**23, 0) == (found.missing, found.doubled)
    assert found.hole is not None
    assert ((4, 1), 3**0) == ((found.hole.offset[40], found.hole.extent[40]), found.hole.extent[0])


def test_many_divided_axes_are_no_grid() -> None:
    """40 pieces, each half of the tensor along another axis: 2**40 cells are never counted."""
    extent = np.full((40, 40), 2) - np.eye(40, dtype=np.int64)
    found = coverage(np.zeros((40, 40), np.int64), extent, (2,) * 40)
    assert found.overlap is not None


def test_not_all_are_compared_where_all_lie_across_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plates along each pair of axes, in three corners: in the order along any axis most of them are neighbours."""
    monkeypatch.setattr(module, "_COMPARED_PER_BOX", 10)
    monkeypatch.setattr(module, "_CELLS_PER_BOX", 1)
    monkeypatch.setattr(module, "_FEW_CELLS", 1)
    count, offset, extent = 100, [], []
    for axis in range(3):
        for place in range(count):
            start, reach = [axis * 1000] * 3, [500] * 3
            start[axis], reach[axis] = axis * 1000 + 2 * place, 1
            offset.append(start)
            extent.append(reach)
    boxes = np.array(offset), np.array(extent)
    found = coverage(*boxes, (3000,) * 3)
    assert (0, False, 3000**3 - 3 * count * 500**2) == (found.doubled, found.complete, found.missing)
    monkeypatch.setattr(module, "_COMPARED_PER_BOX", 4000)
    assert coverage(*boxes, (3000,) * 3).complete


def test_many_cuts_along_two_axes_are_no_grid() -> None:
    """20,000 pieces with cuts of their own along both axes: 1.6 thousand million cells are never counted."""
    count = 20_000
    offset = np.stack((np.arange(count) * 3, np.arange(count) * 3), axis=1)
    found = coverage(offset, np.full((count, 2), 2), (3 * count, 3 * count))
    assert (9 * count**2 - 4 * count, 0) == (found.missing, found.doubled)
