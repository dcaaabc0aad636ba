"""One reader per format: which files it looks for, and how it fills a layout."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from attrs import evolve, frozen

from mlsysim.errors import InputError, Shown, nearest
from mlsysim.layout.layout import CheckpointLayout
from mlsysim.layout.limits import Limits

__all__ = ["Reader", "read_checkpoint"]

# entries of a folder that are looked into for a checkpoint below it
_MOST_BELOW = 1000


@frozen(kw_only=True)
class Reader:
    """How one format is known and read.

    Parameters
    ----------
    format : str
    looks_for : str
        The files it is known by, in words.
    matches : callable
        Whether a path is of this format, by names alone.
    read : callable
        The layout at a path.
    """

    format: str
    looks_for: str
    matches: Callable[[Path], bool]
    read: Callable[[Path, Limits], CheckpointLayout]


def _readers() -> tuple[Reader, ...]:
    """All readers, the more particular first."""
    from mlsysim.layout import deepspeed, fixture, megatron, orbax, pytorch, safetensors

    return (
        fixture.READER, megatron.READER, pytorch.READER, deepspeed.READER, orbax.READER,
        safetensors.SHARDED, safetensors.INDEX, safetensors.READER,
    )  # fmt: skip


def read_checkpoint(path: str | Path, format: str | None = None, *, limits: Limits | None = None) -> CheckpointLayout:  # noqa: A002
    """The layout of a checkpoint on disk; its format is known by its files. No payload is read, no code of it is run.

    Parameters
    ----------
    path : str or Path
        A folder, or the file that describes the checkpoint.
    format : str, optional
        To read it as one format without looking.
    limits : Limits, optional
        Caps on what is taken in.

    Returns
    -------
    CheckpointLayout

    Raises
    ------
    InputError
        If the format is unknown (it lists what was looked for), or a file is damaged, hostile or over a cap.
    """
    place = Path(path)
    try:
        return _read(place, format, limits or Limits())
    except OSError as error:
        # a name that is too long, a folder that may not be looked into, a disk that fails
        told = Shown(error.strerror or "an error")
        raise InputError(f"{path}", "a folder or file that can be read", told, "Check the path and its permissions.") from None


def _read(path: Path, format: str | None, limits: Limits) -> CheckpointLayout:  # noqa: A002
    readers = _readers()
    if not path.exists():
        raise InputError(f"{path}", "a folder or file that exists", Shown("nothing there"), "Check the path.")
    if format is not None:
        known = {reader.format: reader for reader in readers}
        if format not in known:
            raise InputError("format", "the name of a known format", format, nearest(format, known))
        return evolve(known[format].read(path, limits), path=path)
    for reader in readers:
        if reader.matches(path):
            return evolve(reader.read(path, limits), path=path)
    inner = sorted(islice(path.iterdir(), _MOST_BELOW)) if path.is_dir() else []
    below = [each.name for each in inner if each.is_dir() and any(reader.matches(each) for reader in readers)]
    if below:
        there = Shown("a folder that holds one")
        raise InputError(f"{path}", "a checkpoint of a known format", there, f"Give the folder below it: {', '.join(below[:5])}.")
    looked = "; ".join(f"{reader.format}: {reader.looks_for}" for reader in readers)
    raise InputError(f"{path}", "a checkpoint of a known format", Shown("no file that tells one"), f"Looked for {looked}.")
