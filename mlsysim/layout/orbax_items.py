"""One saved tree of an Orbax checkpoint: its documents, arrays and chunks, and who wrote each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field

from mlsysim.errors import InputError, Shown
from mlsysim.layout.findings import Finding
from mlsysim.layout.layout import UNKNOWN, Column
from mlsysim.layout.limits import Limits, inside, read_capped
from mlsysim.layout.orbax_codec import INSTALL, tensorstore
from mlsysim.layout.orbax_documents import Sharding, read_array_metadata, read_leaves, read_sharding
from mlsysim.layout.orbax_tree import MANIFEST, Budget, Tree, read_slice, read_tree
from mlsysim.layout.orbax_zarr import ZarrArray, chunk_place, read_zarr

__all__ = ["METADATA", "PROCESS", "SHARDING", "Chunks", "Gathering", "Item"]

METADATA, SHARDING = "_METADATA", "_sharding"
PROCESS = re.compile(r"ocdbt\.process_(\d{1,6})/")
_NOTED = re.compile(r"array_metadatas/process_(\d{1,6})")
_DOCUMENTS = {".zarray": 2, "zarr.json": 3}
# what describes one array takes less; a cap for what lies outside the nodes
_ARRAY_DOCUMENT = 2**20


@define
class Chunks:
    """The chunks of one array, as columns."""

    name: str
    array: ZarrArray
    grid: Column
    rank: Column
    file: Column
    offset: Column
    length: Column
    inline: dict[int, bytes]
    # the chunks after these are not stored: they equal the fill value
    stored: int


@define
class Gathering:
    """All items of a checkpoint, gathered into one layout."""

    root: Path
    budget: Budget
    sizes: dict[str, int]
    chunks: list[Chunks] = field(factory=list)
    files: dict[str, int] = field(factory=dict)
    found: list[Finding] = field(factory=list)
    objects: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)
    details: dict[str, Any] = field(factory=dict)
    processes: set[int] = field(factory=set)
    ocdbt: bool = False
    unknown: bool = False
    untold: str = ""

    @property
    def limits(self) -> Limits:
        """The caps."""
        return self.budget.limits

    def say(self, kind: str, message: str, *, tensor: str | None = None, rank: int | None = None, file: str | None = None,
            severity: str = "error") -> None:  # fmt: skip
        """Keep a finding for ``verify``."""
        self.budget.charge(1000, file or tensor or kind)
        self.found.append(Finding(kind=kind, message=message, severity=severity, tensor=tensor, rank=rank, file=file))

    def place_of(self, name: str) -> int:
        """Place of a data file; one that is named but not there is added."""
        if name not in self.files:
            self.files[name] = len(self.files)
        return self.files[name]

    def document(self, name: str) -> bytes | None:
        """A JSON document of the folder; None where there is none."""
        return read_capped(inside(self.root, name, name), self.limits.json_bytes, name) if name in self.sizes else None


class Item:
    """One saved tree of a checkpoint."""

    def __init__(self, gathering: Gathering, folder: str, label: str) -> None:
        self.all, self.folder, self.label = gathering, folder, label
        self.names = [name[len(folder) :] for name in gathering.sizes if name.startswith(folder)]
        self.ocdbt = any(name == MANIFEST or PROCESS.match(name) for name in self.names)
        self.ranks = sorted({int(found[1]) for name in self.names if (found := PROCESS.match(name) or _NOTED.fullmatch(name))})

    def read(self) -> None:
        """Add what the item holds."""
        whole, limits = self.all, self.all.limits
        raw = whole.document(self.folder + METADATA)
        leaves, switches = read_leaves(raw, self.folder + METADATA, limits) if raw is not None else ([], {})
        self.ocdbt = self.ocdbt or bool(switches.get("use_ocdbt"))
        whole.ocdbt = whole.ocdbt or self.ocdbt
        whole.processes.update(self.ranks)
        raw = whole.document(self.folder + SHARDING)
        shardings = read_sharding(raw, self.folder + SHARDING, limits) if raw is not None else None
        self._describe(shardings)
        for name in self.names:
            if self._is_data(name):
                whole.place_of(self.folder + name)
        whole.objects += [self.label + leaf.name for leaf in leaves if leaf.stored and not leaf.array]
        known = self._arrays(bool(switches.get("store_array_data_equal_to_fill_value")))
        if known is not None:
            for leaf in leaves:
                if leaf.stored and leaf.array and leaf.name not in known:
                    whole.say("missing tensor", f"{METADATA} names it, but nothing of it is stored", tensor=self.label + leaf.name)
        else:
            whole.details.setdefault("arrays", []).extend(self.label + leaf.name for leaf in leaves if leaf.stored and leaf.array)

    def _is_data(self, name: str) -> bool:
        """Whether a file holds arrays: documents lie at the top, all else is below."""
        if "/" not in name:
            return self.ocdbt and name.startswith("manifest.")
        return not name.startswith(("array_metadatas/", "descriptor/"))

    def _describe(self, shardings: dict[str, Sharding] | None) -> None:
        """What the documents tell of each array."""
        details = self.all.details
        if shardings is None:
            self.all.unknown = True
        for name, sharding in (shardings or {}).items():
            if sharding.replicas is not None:
                details.setdefault("replicas_held", {})[self.label + name] = sharding.replicas
            details.setdefault("partition", {})[self.label + name] = [list(axes) for axes in sharding.partition]
        # all processes note the same arrays: one document will do
        first = next((self.folder + name for name in self.names if _NOTED.fullmatch(name)), None)
        if first is not None:
            noted = read_array_metadata(self.all.document(first) or b"", first, self.all.limits)
            details.setdefault("noted", {}).update({self.label + array: shapes for array, shapes in noted.items()})

    # ------------------------------------------------------------ arrays and their chunks

    def _arrays(self, all_stored: bool) -> set[str] | None:
        """Add arrays and chunks; their names, or None where tensorstore would be needed to know."""
        if self.ocdbt:
            try:
                tensorstore()
            except InputError:
                self._without()
                return None
            tree = self._tree()
            rank = self._ranks_of(tree)
            if self.ranks and not any(PROCESS.match(name) for name in self.names):
                for process in self.ranks:
                    self.all.say("missing rank", f"the folder ocdbt.process_{process} is not there", rank=process)
        else:
            tree = self._plain()
            rank = np.full(len(tree.keys), 0 if self.ranks == [0] else UNKNOWN, np.int32)
        for name in tree.files:
            self.all.place_of(name)
        return self._add(tree, rank, all_stored)

    def _without(self) -> None:
        told = "Names, partitions and sizes of files are from the JSON documents; shapes, element types and chunks are not known"
        self.all.untold = INSTALL
        self.all.notes.append(f"{told} without tensorstore. {INSTALL}")
        self.all.say("unreadable payload", f"chunks were not looked at: tensorstore is not there. {INSTALL}", severity="warning")

    def _tree(self) -> Tree:
        """The merged tree; where a save was not finished, the trees of the processes together."""
        if MANIFEST in self.names:
            return read_tree(self.all.root, self.folder, self.all.budget)
        self.all.say("file missing", "the processes' databases were not merged: the save was not finished", file=self.folder + MANIFEST)
        self.all.notes.append("The save was not finished: what the processes wrote was not merged.")
        trees = [tree for _, tree in self._trees()]
        return _together(trees, self.all.budget)

    def _trees(self) -> Iterator[tuple[int, Tree]]:
        """The tree of each process; one that cannot be read is a finding."""
        folders = sorted({name.partition("/")[0] + "/" for name in self.names if name.startswith("ocdbt.process_") and "/" in name})
        for folder in folders:
            found = PROCESS.fullmatch(folder)
            rank = int(found[1]) if found else UNKNOWN
            try:
                yield rank, read_tree(self.all.root, self.folder + folder, self.all.budget)
            except InputError as error:
                file = self.folder + folder + MANIFEST
                self.all.say("unreadable payload", f"the process's own database: {error}", rank=rank if rank >= 0 else None, file=file)

    def _ranks_of(self, tree: Tree) -> Column:
        """Who wrote each value: by the folder it lies in, or by whose own tree has its key."""
        by_file = np.array([self._rank_of_file(name) for name in tree.files] + [UNKNOWN], np.int32)
        rank = by_file[tree.file]
        unknown = rank < 0
        if unknown.any():
            owner: dict[str, int] = {}
            for process, own in self._trees():
                for key in own.keys:
                    owner.setdefault(key, process)
            rank[unknown] = [owner.get(tree.keys[place], UNKNOWN) for place in np.flatnonzero(unknown)]
        return rank

    def _rank_of_file(self, name: str) -> int:
        found = PROCESS.match(name[len(self.folder) :])
        return int(found[1]) if found else UNKNOWN

    def _plain(self) -> Tree:
        """A folder of files, seen as a tree."""
        names = [name for name in self.names if self._is_data(name)]
        sizes = np.array([self.all.sizes[self.folder + name] for name in names], np.int64)
        files = [self.folder + name for name in names]
        self.all.budget.charge(400 * len(names), self.all.root.name)
        return Tree(keys=names, file=np.arange(len(names), dtype=np.int32), offset=np.zeros(len(names), np.int64), length=sizes,
                    inline={}, files=files)  # fmt: skip

    def _add(self, tree: Tree, rank: Column, all_stored: bool) -> set[str]:
        """Add every array of a tree."""
        whole = self.all
        arrays, lost = self._documents(tree)
        grids = {name: array.grid for name, array in arrays.items()}
        members: dict[str, list[tuple[int, tuple[int, ...]]]] = {name: [] for name in arrays}
        for place, key in enumerate(tree.keys):
            folder, _, last = key.rpartition("/")
            if last in _DOCUMENTS:
                continue
            name = _owner(folder, arrays)
            at = chunk_place(arrays[name], key[len(name) + 1 if name else 0 :]) if name is not None else None
            if name is None or at is None:
                if not any(key.startswith(f"{each}/") for each in lost):
                    file = tree.files[int(tree.file[place])] if tree.file[place] >= 0 else None
                    whole.say("unclaimed bytes", f"{key} is no chunk of any array", file=file, severity="warning")
            elif any(low >= most for low, most in zip(at, grids[name], strict=True)):
                whole.say("out of bounds", f"{key} lies beyond the shape {list(arrays[name].shape)}", tensor=self.label + name)
            else:
                whole.budget.charge(100 + 40 * len(at), name)
                members[name].append((place, at))
        files = np.array([*(whole.place_of(each) for each in tree.files), UNKNOWN], np.int32)[tree.file]
        for name, array in arrays.items():
            whole.chunks.append(self._chunks(name, array, members[name], tree, (rank, files), all_stored))
        return set(arrays) | lost

    def _documents(self, tree: Tree) -> tuple[dict[str, ZarrArray], set[str]]:
        """The arrays that a tree describes; and those whose description lies in a file that is not there."""
        arrays: dict[str, ZarrArray] = {}
        lost: set[str] = set()
        for place, key in enumerate(tree.keys):
            name, _, last = key.rpartition("/")
            if last not in _DOCUMENTS:
                continue
            there = f"{self.folder}{key}"
            if tree.file[place] < 0:
                data = tree.inline[place]
            elif tree.length[place] > _ARRAY_DOCUMENT:
                size = Shown(f"{int(tree.length[place]):,} byte")
                raise InputError(there, f"at most {_ARRAY_DOCUMENT:,} byte", size, "Refuse this checkpoint.")
            elif tree.files[tree.file[place]] not in self.all.sizes:
                lost.add(name)
                self.all.say("missing tensor", f"{key} is in a file that is not there", tensor=self.label + name)
                continue
            else:
                data = read_slice(self.all.root, tree.files[tree.file[place]], int(tree.offset[place]), int(tree.length[place]))
            if name in arrays:
                raise InputError(there, "the one description of its array", Shown("a second one"), "Refuse this checkpoint.")
            self.all.budget.charge(4000 + 10 * len(data), there)
            arrays[name] = read_zarr(data, _DOCUMENTS[last], there, self.all.limits)
        return arrays, lost

    def _chunks(self, name: str, array: ZarrArray, members: list[tuple[int, tuple[int, ...]]], tree: Tree,
                columns: tuple[Column, Column], all_stored: bool) -> Chunks:  # fmt: skip
        """The chunks of an array; those that equal the fill value and were left out follow, with no bytes."""
        places = np.array([place for place, _ in members], np.int64)
        grid = np.array([at for _, at in members], np.int64).reshape(len(members), len(array.shape))
        absent = self._absent(name, array, grid) if not all_stored else grid[:0]
        rank, file = columns
        zeros = np.zeros(len(absent), np.int64)
        inline = {row: tree.inline[place] for row, place in enumerate(places.tolist()) if place in tree.inline}
        return Chunks(
            name=self.label + name, array=array, grid=np.concatenate([grid, absent]), stored=len(members), inline=inline,
            rank=np.concatenate([rank[places], zeros]), file=np.concatenate([file[places], zeros + UNKNOWN]),
            offset=np.concatenate([tree.offset[places], zeros + UNKNOWN]), length=np.concatenate([tree.length[places], zeros]),
        )  # fmt: skip

    def _absent(self, name: str, array: ZarrArray, grid: Column) -> Column:
        """Places on the grid where no chunk is stored."""
        count = math.prod(array.grid)
        if count <= len(grid):
            return grid[:0]
        if count > self.all.limits.fragments:
            raise InputError(name, f"an array of at most {self.all.limits.fragments:,} chunks", Shown(f"{count:,}"), "Raise the cap.")
        self.all.budget.charge(count * (16 + 16 * len(array.shape)), name)
        flat = np.ones(count, bool)
        flat[np.ravel_multi_index(tuple(grid.T), array.grid) if array.grid else np.zeros(len(grid), np.int64)] = False
        missing = np.flatnonzero(flat)
        note = "Some chunks are not stored because they equal the fill value; they count no bytes."
        if note not in self.all.notes:
            self.all.notes.append(note)
        return np.stack(np.unravel_index(missing, array.grid), axis=1).astype(np.int64) if array.grid else np.zeros((1, 0), np.int64)


def _owner(folder: str, arrays: dict[str, ZarrArray]) -> str | None:
    """The array that a chunk's folder belongs to: the longest name that it begins with."""
    # a chunk's key has one part an axis below it at most, and one more
    for _ in range(40):
        if folder in arrays or not folder:
            break
        folder = folder.rpartition("/")[0]
    return folder if folder in arrays else None


def _together(trees: Iterable[Tree], budget: Budget) -> Tree:
    """Several trees as one; of a key in several, the first."""
    files: dict[str, int] = {}
    found: dict[str, tuple[int, int, int, bytes | None]] = {}
    for tree in trees:
        budget.charge(400 * len(tree.keys), MANIFEST)
        numbers = [files.setdefault(name, len(files)) for name in tree.files]
        for place, key in enumerate(tree.keys):
            file = int(tree.file[place])
            row = (numbers[file] if file >= 0 else UNKNOWN, int(tree.offset[place]), int(tree.length[place]), tree.inline.get(place))
            found.setdefault(key, row)
    keys = sorted(found)
    columns = [np.array([found[key][column] for key in keys], np.int64) for column in range(3)]
    inline = {place: data for place, key in enumerate(keys) if (data := found[key][3]) is not None}
    return Tree(keys=keys, file=columns[0].astype(np.int32), offset=columns[1], length=columns[2], inline=inline, files=list(files))
