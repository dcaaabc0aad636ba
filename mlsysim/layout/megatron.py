"""Megatron-core's ``torch_dist``: a PyTorch distributed checkpoint in ``iter_NNNNNNN``, beside ``metadata.json`` and ``common.pt``.

Nothing of ``common.pt`` (iteration and arguments) is read but its size.
"""

from __future__ import annotations

import re
from pathlib import Path

from mlsysim.errors import InputError, Shown
from mlsysim.layout.json_text import document, field
from mlsysim.layout.layout import CheckpointLayout
from mlsysim.layout.limits import Limits, inside, read_capped
from mlsysim.layout.pytorch import read_folder
from mlsysim.layout.reading import Reader

__all__ = ["READER"]

_BACKEND = "metadata.json"
_LATEST = "latest_checkpointed_iteration.txt"
_ITERATION = re.compile(r"iter_(\d{7,12})")
_LARGEST_TEXT = 65_536


def _folder_of(path: Path) -> Path | None:
    """The iteration's folder, by names alone; for the parent, None where its text file has to be read first."""
    if path.is_file():
        path = path.parent if path.name in (_BACKEND, ".metadata", "common.pt") else path
    return path if (path / _BACKEND).is_file() and ((path / ".metadata").is_file() or (path / "common.pt").is_file()) else None


def _matches(path: Path) -> bool:
    return _folder_of(path) is not None or ((path / _LATEST).is_file() and any(path.glob(f"*/{_BACKEND}"))) or bool(_iterations(path))


def _iterations(parent: Path) -> list[Path]:
    """Folders of iterations in a folder."""
    found = sorted(parent.glob("iter_*")) if parent.is_dir() else []
    return [each for each in found if _ITERATION.fullmatch(each.name) and _folder_of(each) is not None]


def _latest(parent: Path) -> Path:
    """The iteration that the parent folder names as the latest."""
    text = read_capped(inside(parent, _LATEST, _LATEST), _LARGEST_TEXT, _LATEST).strip()
    if text != b"release" and not (text.isdigit() and len(text) <= 12):
        raise InputError(_LATEST, "the number of an iteration", Shown(repr(text[:20])), "Give the folder of the iteration itself.")
    name = f"iter_{int(text):07d}" if text.isdigit() else "release"
    folder = inside(parent, name, _LATEST)
    if not folder.is_dir():
        raise InputError(_LATEST, "an iteration whose folder is there", Shown(name), "Give the folder of another iteration.")
    return folder


def _only(parent: Path) -> Path:
    """The one iteration in a folder that does not say which is the latest."""
    found = _iterations(parent)
    if len(found) != 1:
        there = Shown(f"{len(found)} folders iter_NNNNNNN")
        raise InputError(f"{parent}", f"a folder with {_BACKEND} and .metadata, or of one iteration", there, "Give the one to read.")
    return found[0]


def _read(path: Path, limits: Limits) -> CheckpointLayout:
    folder = _folder_of(path)
    if folder is None:
        folder = _latest(path) if (path / _LATEST).is_file() else _only(path)
    if (folder / _BACKEND).is_file():
        told = document(read_capped(inside(folder, _BACKEND, _BACKEND), _LARGEST_TEXT, _BACKEND), place=_BACKEND, limits=limits)
        backend = field(told, "sharded_backend", str, _BACKEND)
        if backend != "torch_dist":
            fix = "Convert the checkpoint to torch_dist with Megatron-core."
            raise InputError(f"{_BACKEND}: sharded_backend", "torch_dist", backend, fix)
    found = _ITERATION.fullmatch(folder.name)
    details = {"iteration": int(found[1])} if found else {}
    note = "A padded vocabulary is told with its padded size; rank R's files are by thread, not by tensor-parallel rank."
    return read_folder(
        folder, limits, format="megatron_torch_dist", besides=("common.pt", _BACKEND), notes=(note,), details=details
    )  # fmt: skip


READER = Reader(
    format="megatron_torch_dist",
    looks_for=f"{_BACKEND} beside .metadata in iter_NNNNNNN, or {_LATEST} beside it",
    matches=_matches,
    read=_read,
)
