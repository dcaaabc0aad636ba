"""Tensors put back together from fragments, in memory and in one file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from mlsysim import CheckpointLayout, InputError, TensorInfo, read_checkpoint
from mlsysim.layout import reassembly
from mlsysim.layout.layout import Files, Fragments, Payload


class Parts(Payload):
    """Fragments that are held in memory."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def read(self, row: int) -> Any:
        return self.parts[row]


def layout_of(whole: Any, boxes: list[tuple[tuple[int, ...], tuple[int, ...]]], name: str = "w") -> CheckpointLayout:
    """A layout of one tensor in these boxes."""
    parts = [whole[tuple(slice(start, start + reach) for start, reach in zip(*box, strict=True))] for box in boxes]
    return CheckpointLayout(
        format="pytorch_dcp",
        tensors=(TensorInfo(name=name, dtype=str(whole.dtype), global_shape=whole.shape),),
        fragments=Fragments.from_rows([(0, rank, 0, *box, 0, 0, -1) for rank, box in enumerate(boxes)]),
        data_files=Files.from_rows([("file", 0, 1)]),
        ranks=len(boxes),
        replicas_recorded=False,
        payload=Parts(parts),
    )


@st.composite
def cut(draw: st.DrawFn) -> tuple[Any, list[tuple[tuple[int, ...], tuple[int, ...]]]]:
    """A tensor of up to four axes, cut into boxes again and again."""
    shape = tuple(draw(st.lists(st.integers(1, 6), max_size=4)))
    boxes = [((0,) * len(shape), shape)]
    for _ in range(draw(st.integers(0, 5)) if shape else 0):
        offset, extent = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        axis = draw(st.integers(0, len(shape) - 1))
        if extent[axis] < 2:
            boxes.append((offset, extent))
            continue
        at = draw(st.integers(1, extent[axis] - 1))
        left = tuple(at if place == axis else reach for place, reach in enumerate(extent))
        right = tuple(reach - at if place == axis else reach for place, reach in enumerate(extent))
        boxes += [(offset, left), (tuple(start + at if place == axis else start for place, start in enumerate(offset)), right)]
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape), boxes


@pytest.mark.parametrize("small", [0, 64, 2**16])
def test_whole_from_any_cut(small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a tensor was cut, it comes back whole, written run by run or through the mapped file."""
    monkeypatch.setattr(reassembly, "_SMALL_RUN", small)

    @given(cut())
    def run(found: tuple[Any, list[tuple[tuple[int, ...], tuple[int, ...]]]]) -> None:
        whole, boxes = found
        layout = layout_of(whole, boxes)
        assert layout.verify().ok
        assert np.array_equal(whole, layout.reassemble("w"))
        layout.reassemble_all(tmp_path / "out.safetensors")
        assert np.array_equal(whole, load_file(tmp_path / "out.safetensors")["w"])

    run()


def test_the_file_is_as_any_other(tmp_path: Path) -> None:
    """The file gets the permissions of a new file, and nothing is left beside it."""
    whole = np.ones((4, 4), np.float32)
    layout_of(whole, [((0, 0), (4, 4))]).reassemble_all(tmp_path / "out.safetensors")
    (tmp_path / "plain").touch()
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == stat.S_IMODE((tmp_path / "out.safetensors").stat().st_mode)
    assert {"out.safetensors", "plain"} == {each.name for each in tmp_path.iterdir()}


@pytest.mark.parametrize("name", ["w", "__metadata__"])
def test_nothing_half_written(name: str, tmp_path: Path) -> None:
    """A hole, or a name that the format keeps for itself, leaves no file behind."""
    boxes = [((0,), (2,))] if name == "w" else [((0,), (4,))]
    with pytest.raises(InputError):
        layout_of(np.ones(4, np.float32), boxes, name).reassemble_all(tmp_path / "out.safetensors")
    assert [] == list(tmp_path.iterdir())


def test_no_folder_to_write_to(tmp_path: Path) -> None:
    """A folder that is not there is refused by the path."""
    with pytest.raises(InputError, match=r"out\.safetensors"):
        layout_of(np.ones(4, np.float32), [((0,), (4,))]).reassemble_all(tmp_path / "nowhere" / "out.safetensors")


def test_unknown_tensor_names_the_nearest() -> None:
    """A name that is not there is refused with the nearest."""
    with pytest.raises(InputError, match=r"Did you mean embed\.weight"):
        layout_of(np.ones(4, np.float32), [((0,), (4,))], "embed.weight").reassemble("embed.weigth")


def test_no_file_of_the_checkpoint_is_written_over(tmp_path: Path) -> None:
    """A file that is being read is not replaced, by any of its names; another file is."""
    source = tmp_path / "model.safetensors"
    save_file({"w": np.ones(4, np.float32)}, source)
    (tmp_path / "link").symlink_to(source.name)
    (tmp_path / "other").write_bytes(b"old")
    layout = read_checkpoint(source)
    for name in (source.name, "link"):
        with pytest.raises(InputError, match="must be no file of the checkpoint"):
            layout.reassemble_all(tmp_path / name)
    layout.reassemble_all(tmp_path / "other")
    assert np.array_equal(load_file(tmp_path / "other")["w"], load_file(source)["w"])


def test_a_link_is_followed(tmp_path: Path) -> None:
    """What a link leads to is written, and the link stays."""
    (tmp_path / "link").symlink_to("target")
    layout_of(np.ones(4, np.float32), [((0,), (4,))]).reassemble_all(tmp_path / "link")
    assert (True, ["w"]) == ((tmp_path / "link").is_symlink(), list(load_file(tmp_path / "target")))


@pytest.mark.parametrize("name", ["pipe", "folder", "null", "a\0b", "x" * 300, "file/out", "."])
def test_a_place_that_is_no_file_is_refused(name: str, tmp_path: Path) -> None:
    """A pipe, a folder, a device or an impossible name is refused, and left as it is."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "file").touch()
    before = sorted(each.name for each in tmp_path.iterdir())
    with pytest.raises(InputError, match="a file that can be written"):
        layout_of(np.ones(4, np.float32), [((0,), (4,))]).reassemble_all(tmp_path / name)
    assert before == sorted(each.name for each in tmp_path.iterdir())
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room for small runs, that is an InputError and leaves nothing behind."""

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    whole = np.ones((100, 8), np.float32)
    with pytest.raises(InputError, match="No space left on device"):
        layout_of(whole, [((0, 0), (100, 4)), ((0, 4), (100, 4))]).reassemble_all(tmp_path / "out.safetensors")
    assert [] == list(tmp_path.iterdir())


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    """A file holds one tensor of a name."""
    layout = layout_of(np.ones(4, np.float32), [((0,), (4,))])
    with pytest.raises(InputError, match="the name of one tensor"):
        attrs.evolve(layout, tensors=layout.tensors * 2).reassemble_all(tmp_path / "out.safetensors")


def test_more_bytes_than_a_file_has_are_refused(tmp_path: Path) -> None:
    """A tensor by claim larger than any file is refused before a file is made."""
    layout = layout_of(np.ones(4, np.float32), [((0,), (4,))])
    tensors = (attrs.evolve(layout.tensors[0], global_shape=(2**61,)),)
    with pytest.raises(InputError, match=r"must be of less than 4,611,686,018,427,387,904 byte"):
        attrs.evolve(layout, tensors=tensors).reassemble_all(tmp_path / "out.safetensors")
    assert [] == list(tmp_path.iterdir())
