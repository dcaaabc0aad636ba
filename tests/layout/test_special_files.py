"""Pipes, devices, folders and links where files should be: refused or found, and never waited for."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from mlsysim import InputError, read_checkpoint
from mlsysim.layout.hashing import Piece, digests
from mlsysim.layout.limits import opened

DATA = Path(__file__).parents[1] / "data"
SAMPLES = [
    DATA / "dcp" / "hf_sharded_4ranks" / "ckpt", DATA / "dcp" / "pp_uneven_4ranks" / "ckpt", DATA / "deepspeed" / "zero1",
    DATA / "deepspeed" / "zero3", DATA / "megatron" / "plain",
]  # fmt: skip
KINDS = ["pipe", "device", "folder", "loop", "way out", "empty", "gone"]


def replace(path: Path, kind: str) -> None:
    """Puts something else in the place of a file."""
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind != "gone":
        path.symlink_to({"device": "/dev/zero", "loop": path.name, "way out": "/etc/hostname"}[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda each: each.relative_to(DATA).parts[1])
def test_a_data_file_that_is_replaced_after_reading_is_found(tmp_path: Path, sample: Path, kind: str) -> None:
    """Whatever comes in the place of a data file between reading and verifying is an error of the report."""
    shutil.copytree(sample, tmp_path / "checkpoint")
    root = next((tmp_path / "checkpoint").rglob("*.distcp"), tmp_path / "checkpoint" / "x").parent if "megatron" in str(sample) else None
    layout = read_checkpoint(root or tmp_path / "checkpoint")
    assert layout.root is not None
    assert layout.verify(payload=True).ok
    replace(layout.root / layout.files[-1], kind)
    report = layout.verify(payload=True)
    assert layout.files[-1] in {each.file for each in report if each.severity == "error"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda each: each.relative_to(DATA).parts[1])
def test_a_file_that_is_none_is_refused_or_read_around(tmp_path: Path, sample: Path, kind: str) -> None:
    """Any one file replaced before reading: the checkpoint is refused, or read."""
    shutil.copytree(sample, tmp_path / "checkpoint")
    for path in [each for each in sorted((tmp_path / "checkpoint").rglob("*")) if each.is_file()][:6]:
        data = path.read_bytes()
        replace(path, kind)
        with contextlib.suppress(InputError):
            read_checkpoint(tmp_path / "checkpoint").verify(payload=True)
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        path.write_bytes(data)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    """A pipe without writer and a device are an OSError at once; a file is opened, through a link too."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match=r"no regular file|Is a directory"):
            opened(path)
    with opened(tmp_path / "link") as file:
        assert b"abc" == file.read()


def test_a_pipe_is_not_hashed(tmp_path: Path) -> None:
    """A piece of a pipe could not be read."""
    os.mkfifo(tmp_path / "pipe")
    (found,) = digests([Piece(tmp_path / "pipe", "pipe", 0, 10)])
    assert isinstance(found, InputError)
