"""SHA-256 of pieces of files, on all cores."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mlsysim.errors import InputError
from mlsysim.layout.hashing import CHUNK, Piece, digests

DATA = bytes(range(251)) * (3 * CHUNK // 251)
SPANS = [(0, 0), (0, 1), (7, 100), (0, CHUNK), (1, CHUNK), (5, CHUNK + 1), (0, len(DATA)), (len(DATA), 0), (len(DATA) - 3, 3)]


def test_each_piece_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    """Pieces of any size and place, of several files, in any order, on any number of threads."""
    pieces, expected = [], []
    for number, data in enumerate((DATA, DATA[::-1])):
        path = tmp_path / f"{number}"
        path.write_bytes(data)
        pieces += [Piece(path, path.name, start, length) for start, length in SPANS]
        expected += [hashlib.sha256(data[start : start + length]).hexdigest() for start, length in SPANS]
    for threads in (1, 2, 5, None):
        assert expected == digests(pieces, threads=threads)
    assert expected[::-1] == digests(pieces[::-1])


def test_progress_sums_to_the_bytes(tmp_path: Path) -> None:
    """advance is told every byte, at most a chunk at a time."""
    (tmp_path / "a").write_bytes(DATA)
    told: list[int] = []
    digests([Piece(tmp_path / "a", "a", start, length) for start, length in SPANS], advance=told.append)
    assert sum(length for _, length in SPANS) == sum(told)
    assert max(told) <= CHUNK


def test_a_piece_that_cannot_be_read_does_not_spoil_the_others(tmp_path: Path) -> None:
    """A file that is not there, and one that ends early, give an InputError in their place that names file and byte."""
    (tmp_path / "a").write_bytes(DATA)
    pieces = [Piece(tmp_path / "a", "a", 5, len(DATA)), Piece(tmp_path / "b", "b", 0, 1), Piece(tmp_path / "a", "a", 0, 3)]
    short, missing, good = digests(pieces)
    assert isinstance(short, InputError)
    assert "a: byte 5" == short.place
    assert "an end 5 byte too early" in str(short)
    assert isinstance(missing, InputError)
    assert "b: byte 0" == missing.place
    assert hashlib.sha256(DATA[:3]).hexdigest() == good


def test_a_fault_of_the_progress_comes_out(tmp_path: Path) -> None:
    """What advance raises, an interrupt say, ends the hashing and comes out as it is."""
    (tmp_path / "a").write_bytes(DATA)

    def interrupted(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        digests([Piece(tmp_path / "a", "a", 0, len(DATA))], advance=interrupted)


def test_a_piece_that_is_named_again_is_read_once(tmp_path: Path) -> None:
    """The same bytes asked for twice are hashed once, and told twice."""
    (tmp_path / "a").write_bytes(DATA)
    told: list[int] = []
    piece = Piece(tmp_path / "a", "a", 0, len(DATA))
    assert [hashlib.sha256(DATA).hexdigest()] * 3 == digests([piece, piece, piece], advance=told.append)
    assert len(DATA) == sum(told)
