"""The key-value tree of an Orbax checkpoint (OCDBT): its manifest and B+tree nodes, read without handing either to a library.

A node costs what it takes in memory before it is built; no node is read twice; every path that a node names stays in the
folder. Values that lie outside the nodes are not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.layout import Column
from mlsysim.layout.limits import Limits, file_size, inside, opened
from mlsysim.layout.orbax_codec import checked, unzstd

__all__ = ["MANIFEST", "Budget", "Tree", "read_slice", "read_tree"]

MANIFEST = "manifest.ocdbt"
_FIX = "Refuse this checkpoint, or ask who made it."
_MANIFEST_MAGIC, _NODE_MAGIC = 0x0CDB3A2A, 0x0CDB20DE
_MOST = 2**63 - 1
_ABSENT = 2**64 - 1
# what an entry takes as Python objects, from above
_ENTRY_BYTES = 400


class Budget:
    """Memory that the description of a checkpoint may take; asked before anything is built."""

    __slots__ = ("left", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits, self.left = limits, limits.built_bytes

    def charge(self, amount: int, place: str) -> None:
        """Take some of it, or refuse."""
        self.left -= amount
        if self.left < 0:
            fix = "Raise the cap with limits=Limits(built_bytes=...) if you trust it."
            raise InputError(place, f"part of a description of at most {self.limits.built_bytes:,} byte in memory", Shown("more"), fix)


@frozen(kw_only=True, eq=False)
class Tree:
    """Keys in order, and where each value is: inline, or in a file.

    Parameters
    ----------
    keys : list of str
    file : array (keys,) of int32
        Place in ``files``; -1 where the value is inline.
    offset, length : array (keys,) of int64
    inline : dict of int to bytes
    files : list of str
        Every file that a node or value is in, relative to the checkpoint's folder.
    """

    keys: list[str]
    file: Column
    offset: Column
    length: Column
    inline: dict[int, bytes]
    files: list[str] = field(factory=list)


def read_slice(root: Path, name: str, offset: int, length: int) -> bytes:
    """Bytes of a file in the folder, all of them there.

    Raises
    ------
    InputError
        If the path leads out of the folder, or the file is not there, ends before them or cannot be read.
    """
    path = inside(root, name, name)
    size = file_size(path)
    if size is None:
        raise InputError(name, "a file that is there", Shown("none"), "Copy the whole folder.")
    if offset < 0 or length < 0 or offset + length > size:
        raise InputError(name, f"at least {offset + length:,} byte", Shown(f"{size:,} byte"), "Copy the file again: it is cut.")
    try:
        with opened(path) as file:
            file.seek(offset)
            data = file.read(length)
    except OSError as error:
        raise InputError(name, "a file that can be read", Shown(error.strerror or "an error"), "Check its permissions.") from None
    if len(data) != length:
        raise InputError(name, f"at least {offset + length:,} byte", Shown("less"), "Copy the file again: it is cut.")
    return data


class _Cursor:
    """Reads the fields of a decoded node one after the other."""

    __slots__ = ("at", "data", "place", "view")

    def __init__(self, data: bytes, place: str) -> None:
        self.data, self.place, self.at = data, place, 0
        self.view = np.frombuffer(data, np.uint8)

    def refuse(self, rule: str, value: object) -> InputError:
        return InputError(f"{self.place}: decoded byte {self.at}", rule, value, _FIX)

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - self.at:
            raise self.refuse(f"followed by {count:,} byte", Shown(f"{len(self.data) - self.at:,}"))
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        return int(self.numbers(1)[0])

    def numbers(self, count: int) -> Column:
        """So many numbers of 7 bits a byte, the last byte of each below 128."""
        if count > len(self.data) - self.at:
            raise self.refuse(f"followed by {count:,} numbers", Shown("less"))
        window = self.view[self.at : self.at + 10 * count]
        ends = np.flatnonzero(window < 128)[:count]
        if len(ends) < count:
            raise self.refuse(f"followed by {count:,} numbers", Shown("less"))
        starts = np.concatenate((np.zeros(min(count, 1), np.int64), ends[:-1] + 1))
        sizes = ends - starts + 1
        widest = int(sizes.max(initial=0))
        if widest > 10:
            raise self.refuse("numbers of at most 64 bits", Shown("a longer one"))
        values = np.zeros(count, np.uint64)
        for place in range(widest):
            held = sizes > place
            values[held] |= (window[starts[held] + place] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * place)
        self.at += int(ends[-1]) + 1 if count else 0
        return values

    def sizes(self, count: int) -> Column:
        """As ``numbers``, each at most 2**63 - 1."""
        values = self.numbers(count)
        if count and int(values.max()) > _MOST:
            raise self.refuse("numbers of at most 63 bits", int(values.max()))
        return values.astype(np.int64)

    def done(self) -> None:
        if self.at != len(self.data):
            raise self.refuse("the end", Shown(f"{len(self.data) - self.at:,} byte more"))


class _Walk:
    """One tree: its files, what it may still cost, and the keys found so far."""

    def __init__(self, root: Path, folder: str, budget: Budget) -> None:
        self.root, self.folder, self.budget = root, folder, budget
        self.places: dict[str, int] = {}
        self.keys: list[str] = []
        self.inline: dict[int, bytes] = {}
        self.columns: list[tuple[Column, Column, Column]] = []

    def file(self, name: str) -> int:
        """Place of a file; its path is checked once."""
        if name not in self.places:
            inside(self.root, name, f"{self.folder}{MANIFEST}: a file of its tree")
            if len(self.places) >= self.budget.limits.files:
                raise InputError(f"{self.folder}{MANIFEST}", f"a tree of at most {self.budget.limits.files:,} files", Shown("more"), _FIX)
            self.places[name] = len(self.places)
        return self.places[name]

    def decoded(self, name: str, offset: int, length: int, magic: int) -> _Cursor:
        """The body of a manifest or node: checksum, length and magic number right."""
        place = f"{name}: byte {offset}"
        most = self.budget.limits.json_bytes
        if length > most:
            raise InputError(place, f"a node of at most {most:,} byte", Shown(f"{length:,}"), _FIX)
        self.budget.charge(length, place)
        body = checked(read_slice(self.root, name, offset, length), place)
        head = _Cursor(body, place)
        if int.from_bytes(head.take(4), "big") != magic or int.from_bytes(head.take(8), "little") != length:
            raise InputError(place, "a manifest or node of this length", body[:12], _FIX)
        version, compression = head.number(), head.number()
        if version != 0 or compression > 1:
            raise InputError(place, "of version 0, plain or with zstd", f"version {version}, compression {compression}", _FIX)
        data = unzstd(body[head.at :], most, place) if compression else body[head.at :]
        self.budget.charge(2 * len(data), place)
        return _Cursor(data, place)

    def table(self, body: _Cursor, transitive: str) -> list[tuple[str, str]]:
        """The files that a node refers to: what its children's paths begin with, and the whole path."""
        count = body.number()
        prefixes = [0, *body.sizes(max(count - 1, 0)).tolist()] if count else []
        suffixes, bases = body.sizes(count).tolist(), body.sizes(count).tolist()
        found, path = [], b""
        for prefix, suffix, base in zip(prefixes, suffixes, bases, strict=True):
            if prefix > len(path) or prefix + suffix > 4096 or base > prefix + suffix:
                raise body.refuse("the name of a file", Shown("lengths that do not fit"))
            path = path[:prefix] + body.take(suffix)
            self.budget.charge(len(path) + _ENTRY_BYTES, body.place)
            found.append((transitive + _text(path[:base], body), transitive + _text(path, body)))
        return found

    def keys_of(self, body: _Cursor, count: int, *, interior: bool) -> tuple[list[bytes], list[int]]:
        """Keys of a node's entries, each cut where it repeats the one before; and how much of each its subtree shares."""
        prefixes = np.concatenate((np.zeros(min(count, 1), np.int64), body.sizes(max(count - 1, 0))))
        suffixes = body.sizes(count)
        shared = body.sizes(count).tolist() if interior else []
        if max(int(prefixes.max(initial=0)), int(suffixes.max(initial=0))) > 65535:
            raise body.refuse("keys of at most 65,535 byte", Shown("a longer one"))
        self.budget.charge(int((prefixes + suffixes).sum()) + _ENTRY_BYTES * count, body.place)
        found: list[bytes] = []
        key = b""
        for prefix, suffix in zip(prefixes.tolist(), suffixes.tolist(), strict=True):
            new = key[:prefix] + body.take(suffix)
            if prefix > len(key) or (new <= key and found):
                raise body.refuse("keys in order", new)
            found.append(key := new)
        if interior and any(most > len(key) for most, key in zip(shared, found, strict=True)):
            raise body.refuse("prefixes within their keys", Shown("a longer one"))
        return found, shared

    def root_of(self) -> tuple[str, str, int, int, int] | None:
        """The root of the newest version: paths as in ``table``, offset, length and height; None of an empty tree."""
        name = self.folder + MANIFEST
        size = file_size(inside(self.root, name, name))
        body = self.decoded(name, 0, size if size is not None else 0, _MANIFEST_MAGIC)
        body.take(16)
        if body.byte() != 0:
            raise body.refuse("a manifest in one file", Shown("numbered manifests"))
        body.numbers(2)
        body.byte()
        if body.number() == 1:
            body.take(4)
        files, count = self.table(body, self.folder), body.number()
        generations = body.numbers(count)
        heights = body.take(count)
        places, offsets, lengths = body.numbers(count), body.numbers(count), body.numbers(count)
        if not count or (generations[1:] <= generations[:-1]).any():
            raise body.refuse("versions in order", Shown("none, or another order"))
        offset, length, place = int(offsets[-1]), int(lengths[-1]), int(places[-1])
        if offset == _ABSENT and length == _ABSENT:
            return None
        if place >= len(files):
            raise body.refuse("the place of a file", place)
        return *files[place], offset, length, heights[-1]

    def walk(self) -> None:
        """All nodes from the root, in the order of their keys."""
        found = self.root_of()
        waiting = [] if found is None else [(b"", *found)]
        seen: set[tuple[str, int]] = set()
        while waiting:
            prefix, transitive, name, offset, length, height = waiting.pop()
            if (name, offset) in seen:
                raise InputError(f"{name}: byte {offset}", "a node of one place in the tree", Shown("two"), _FIX)
            seen.add((name, offset))
            self.file(name)
            body = self.decoded(name, offset, length, _NODE_MAGIC)
            if body.byte() != height:
                raise body.refuse(f"a node of height {height}", Shown("another"))
            files, count = self.table(body, transitive), body.number()
            keys, shared = self.keys_of(body, count, interior=height > 0)
            if height:
                waiting += reversed(self.children(body, files, keys, shared, prefix, height))
            else:
                self.leaf(body, files, keys, prefix)
            body.done()

    def children(self, body: _Cursor, files: list[Any], keys: list[bytes], shared: list[int], prefix: bytes, height: int) -> list[Any]:
        """The nodes below an interior one."""
        count = len(keys)
        places, offsets, lengths = self.places_of(body, files, count), body.sizes(count).tolist(), body.sizes(count).tolist()
        body.numbers(3 * count)
        heads = (prefix + key[:most] for key, most in zip(keys, shared, strict=True))
        rows = zip(heads, places, offsets, lengths, strict=True)
        return [(head, *files[place], offset, length, height - 1) for head, place, offset, length in rows]

    def places_of(self, body: _Cursor, files: list[Any], count: int) -> list[int]:
        places = body.numbers(count)
        if count and int(places.max()) >= len(files):
            raise body.refuse("places of files", int(places.max()))
        found: list[int] = places.tolist()
        return found

    def leaf(self, body: _Cursor, files: list[Any], keys: list[bytes], prefix: bytes) -> None:
        """The entries of a leaf."""
        count = len(keys)
        lengths, kinds = body.sizes(count), body.numbers(count)
        if count and int(kinds.max()) > 1:
            raise body.refuse("values inline or in a file", int(kinds.max()))
        outside = np.flatnonzero(kinds == 1)
        places = self.places_of(body, files, len(outside))
        offset, file = np.full(count, -1, np.int64), np.full(count, -1, np.int32)
        offset[outside] = body.sizes(len(outside))
        if (offset[outside] > _MOST - lengths[outside]).any():
            raise body.refuse("values that end below 2**63", Shown("one that ends beyond"))
        numbers = {place: self.file(files[place][1]) for place in sorted(set(places))}
        file[outside] = [numbers[place] for place in places]
        if len(self.keys) + count > self.budget.limits.fragments:
            raise body.refuse(f"a tree of at most {self.budget.limits.fragments:,} keys", Shown("more"))
        self.budget.charge(len(prefix) * count, body.place)
        for place in np.flatnonzero(kinds == 0).tolist():
            self.inline[len(self.keys) + place] = body.take(int(lengths[place]))
        texts = [_text(prefix + key, body) for key in keys]
        if self.keys and texts and texts[0].encode() <= self.keys[-1].encode():
            raise body.refuse("keys in order", texts[0])
        self.keys += texts
        self.columns.append((file, offset, lengths))


def _text(data: bytes, body: _Cursor) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise body.refuse("UTF-8", data[:40]) from None


def read_tree(root: Path, folder: str, budget: Budget) -> Tree:
    """The newest version of the tree in a folder of the checkpoint.

    Parameters
    ----------
    root : Path
        The checkpoint's folder, which no path leaves.
    folder : str
        Where the manifest is, ``""`` or ``"ocdbt.process_0/"``.
    budget : Budget

    Raises
    ------
    InputError
        If a node is not there, damaged, hostile or over a cap, or tensorstore is not installed.
    """
    walk = _Walk(root, folder, budget)
    walk.walk()
    file, offset, length = (
        np.concatenate([each[column] for each in walk.columns]) if walk.columns else np.zeros(0, np.int64) for column in range(3)
    )
    return Tree(keys=walk.keys, file=file, offset=offset, length=length, inline=walk.inline, files=list(walk.places))
