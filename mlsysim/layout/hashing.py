"""SHA-256 of many pieces of files, on all cores, in bounded memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.limits import opened

__all__ = ["CHUNK", "Piece", "digests"]

# bytes that one thread holds at a time
CHUNK = 2**20
# small pieces of one file are hashed together: one opening, one hand-over
_BATCH = 2**25


@frozen
class Piece:
    """Bytes of a file.

    Parameters
    ----------
    path : Path
    place : str
        The file as errors name it.
    start, length : int
    """

    path: Path
    place: str
    start: int
    length: int


def digests(
    pieces: Sequence[Piece], *, advance: Callable[[int], object] | None = None, threads: int | None = None
) -> list[str | InputError]:
    """SHA-256 of each piece as hexadecimal digits, or why it could not be read.

    Parameters
    ----------
    pieces : sequence of Piece
    advance : callable, optional
        Called from this thread with the number of bytes hashed since the last call.
    threads : int, optional
        As many as the process has cores where not given. Each holds ``CHUNK`` bytes.

    Examples
    --------
    >>> digests([])
    []
    """
    # a stranger may name one piece again and again
    places: dict[Piece, int] = {}
    wanted = [places.setdefault(piece, len(places)) for piece in pieces]
    found = _digests(list(places), advance, threads)
    return [found[place] for place in wanted]


def _digests(pieces: Sequence[Piece], advance: Callable[[int], object] | None, threads: int | None) -> list[str | InputError]:
    found: list[str | InputError] = [""] * len(pieces)
    batches = _batches(pieces)
    if not batches:
        return found
    said: SimpleQueue[int | None] = SimpleQueue()
    with ThreadPoolExecutor(min(threads or _cores(), len(batches))) as pool:
        jobs = [pool.submit(_hash_batch, pieces, batch, found, said) for batch in batches]
        waiting = len(jobs)
        try:
            while waiting:
                count = said.get()
                if count is None:
                    waiting -= 1
                elif advance is not None:
                    advance(count)
        except BaseException:
            # an interrupt, or a fault of the caller's progress: hash no more than what is under way
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        for job in jobs:
            job.result()
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _batches(pieces: Sequence[Piece]) -> list[list[int]]:
    """Places of pieces that are hashed together, the largest first, so that no thread is left with a large one at the end."""
    order = sorted(range(len(pieces)), key=lambda place: (str(pieces[place].path), pieces[place].start))
    batches: list[list[int]] = []
    sizes: list[int] = []
    last: Path | None = None
    for place in order:
        piece = pieces[place]
        if piece.path != last or sizes[-1] + piece.length > _BATCH:
            batches.append([])
            sizes.append(0)
            last = piece.path
        batches[-1].append(place)
        sizes[-1] += piece.length
    return [batches[each] for each in sorted(range(len(batches)), key=lambda each: -sizes[each])]


def _hash_batch(pieces: Sequence[Piece], batch: list[int], found: list[str | InputError], said: SimpleQueue[int | None]) -> None:
    buffer = memoryview(bytearray(CHUNK))
    try:
        with opened(pieces[batch[0]].path, buffering=0) as file:
            for place in batch:
                found[place] = _hash_piece(file, pieces[place], buffer, said)
    except OSError as error:
        for place in batch:
            found[place] = found[place] or _unreadable(pieces[place], error.strerror or "an error")
    finally:
        said.put(None)


def _hash_piece(file: BinaryIO, piece: Piece, buffer: memoryview, said: SimpleQueue[int | None]) -> str | InputError:
    file.seek(piece.start)
    digest, left = hashlib.sha256(), piece.length
    while left:
        count = file.readinto(buffer[: min(left, CHUNK)])  # type: ignore[attr-defined]
        if not count:
            return _unreadable(piece, f"an end {left:,} byte too early")
        digest.update(buffer[:count])
        said.put(count)
        left -= count
    return digest.hexdigest()


def _unreadable(piece: Piece, what: str) -> InputError:
    return InputError(f"{piece.place}: byte {piece.start:,}", f"{piece.length:,} byte that can be read", Shown(what), "Check the file.")
