"""How much of a stranger's file is taken in, and where its paths may lead."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.fields import count

__all__ = ["Limits", "file_size", "inside", "opened", "read_capped"]

GIB = 2**30


@frozen(kw_only=True)
class Limits:
    """Caps on what is read from a checkpoint before its payload; raise one by passing another.

    Parameters
    ----------
    metadata_bytes : int
        Largest ``.metadata`` or other pickle, 1 GiB.
    built_bytes : int
        Most memory that what a pickle builds may take, by an estimate from above, 4 GiB.
    json_bytes : int
        Largest JSON document, 256 MiB.
    header_bytes : int
        Largest safetensors header, 100,000,000 as the reference library has it.
    members : int
        Most members of a zip archive, a million.
    fragments : int
        Most fragments of a checkpoint, 64 million.
    files : int
        Most files in a checkpoint folder, a million.
    depth : int
        Deepest nesting of a document or pickle, 100.
    """

    metadata_bytes: int = count(default=GIB)
    built_bytes: int = count(default=4 * GIB)
    json_bytes: int = count(default=GIB // 4)
    header_bytes: int = count(default=100_000_000)
    members: int = count(default=1_000_000)
    fragments: int = count(default=64_000_000)
    files: int = count(default=1_000_000)
    depth: int = count(default=100)


def inside(root: Path, name: str, place: str) -> Path:
    """A path of a checkpoint, which must stay inside its folder, links followed.

    Raises
    ------
    InputError
        If the name is absolute, climbs out, or is a link that leads out.
    """
    fix = "Refuse this checkpoint, or ask who made it."
    parts = PurePosixPath(name).parts
    hostile = not name or "\0" in name or "\\" in name or len(name) > 4096 or (len(name) > 1 and name[1] == ":")
    if hostile or name.startswith("/") or ".." in parts:
        raise InputError(place, "a path inside the checkpoint's folder", name, fix)
    path = root / name
    try:
        resolved, base = path.resolve(), root.resolve()
    except (OSError, RuntimeError):
        raise InputError(place, "a path that can be followed", name, fix) from None
    if not resolved.is_relative_to(base):
        raise InputError(place, "a path inside the checkpoint's folder, links followed", name, fix)
    return path


def file_size(path: Path) -> int | None:
    """Size of a regular file; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def opened(path: Path, buffering: int = -1) -> BinaryIO:
    """A regular file, open for reading. What is none is an OSError: a pipe or a device that came in its place is never waited for."""

    def opener(name: str, flags: int) -> int:
        handle = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "no regular file")
        return handle

    return open(path, "rb", buffering=buffering, opener=opener)


def read_capped(path: Path, most: int, name: str) -> bytes:
    """The bytes of a small file, refused over a cap.

    Raises
    ------
    InputError
        If the file cannot be read, is no regular file, or is larger than the cap.
    """
    size = file_size(path)
    if size is None:
        raise InputError(name, "a file that can be read", str(path.name), "Check the path and its permissions.")
    if size > most:
        raise InputError(name, f"at most {most:,} byte", Shown(f"{size:,} byte"), "Raise the cap with limits=Limits(...) if you trust it.")
    try:
        with opened(path) as file:
            return file.read(most + 1)[: size + 1]
    except OSError as error:
        raise InputError(name, "a file that can be read", Shown(error.strerror or "an error"), "Check its permissions.") from None
