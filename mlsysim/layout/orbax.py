"""Orbax checkpoints: arrays as zarr, in one database for all processes (OCDBT) or in a folder each.

Reading the layout reads the JSON documents and the nodes of the database. A value of up to a kilobyte lies in a node and
is read with it; all others are left alone until their elements are asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field

from mlsysim.errors import InputError, Shown
from mlsysim.layout.dtypes import bits_of
from mlsysim.layout.findings import Finding
from mlsysim.layout.layout import UNKNOWN, CheckpointLayout, Column, Files, Fragments, Payload, TensorInfo
from mlsysim.layout.limits import Limits, file_size, inside, read_capped
from mlsysim.layout.orbax_codec import INSTALL, tensorstore
from mlsysim.layout.orbax_documents import Sharding, read_array_metadata, read_leaves, read_sharding
from mlsysim.layout.orbax_tree import MANIFEST, Budget, Tree, read_slice, read_tree
from mlsysim.layout.orbax_zarr import ZarrArray, chunk_place, decoded, filled, read_zarr
from mlsysim.layout.reading import Reader

__all__ = ["READER", "OrbaxPayload"]

_METADATA, _SHARDING, _STEP = "_METADATA", "_sharding", "_CHECKPOINT_METADATA"
_PROCESS = re.compile(r"ocdbt\.process_(\d{1,6})/")
_NOTED = re.compile(r"array_metadatas/process_(\d{1,6})")
_DOCUMENTS = {".zarray": 2, "zarr.json": 3}
# what describes one array takes less; a cap for what lies outside the nodes
_ARRAY_DOCUMENT = 2**20


class OrbaxPayload(Payload):
    """Fetches and decodes chunks; knows what reading the layout showed to be wrong."""

    __slots__ = ("_arrays", "_files", "_found", "_fragments", "_inline", "_limits", "_root", "_tensors")

    def __init__(
        self, root: Path, limits: Limits, files: tuple[str, ...], tensors: tuple[TensorInfo, ...], fragments: Fragments,
        arrays: list[ZarrArray], inline: dict[int, bytes], found: list[Finding],
    ):  # fmt: skip
        self._root, self._limits, self._files, self._tensors, self._fragments = root, limits, files, tensors, fragments
        self._arrays, self._inline, self._found = arrays, inline, tuple(found)

    def read(self, row: int) -> Column:
        """The elements of a chunk, cut to the tensor."""
        fragments, place = self._fragments, int(self._fragments.tensor[row])
        array, name = self._arrays[place], self._tensors[place].name
        extent = tuple(fragments.extent[row, : len(array.shape)].tolist())
        file = int(fragments.file[row])
        if file < 0 and row not in self._inline:
            return filled(array, extent)
        offset = fragments.offset[row, : len(array.shape)].tolist()
        there = f"{self._files[file] if file >= 0 else MANIFEST}: {name} at {offset}"
        most = min(self._limits.built_bytes, 2**32 - 2**20)
        if file < 0:
            data = self._inline[row]
        else:
            stored = int(fragments.stored_bytes[row])
            if stored > most:
                raise InputError(there, f"at most {most:,} byte", Shown(f"{stored:,}"), "Raise the cap with limits=Limits(built_bytes=...).")
            data = read_slice(self._root, self._files[file], int(fragments.file_offset[row]), stored)
        whole = decoded(array, data, there, most)
        return whole[tuple(slice(0, reach) for reach in extent)]

    def findings(self, layout: CheckpointLayout) -> Iterator[Finding]:  # noqa: ARG002
        """What the documents and the database showed."""
        yield from self._found

    def payload_findings(self, layout: CheckpointLayout, advance: Any = None) -> Iterator[Finding]:
        """Every chunk must decode to its shape; there is no digest to compare with."""
        fragments = layout.fragments
        for row in range(len(fragments)):
            file, rank = int(fragments.file[row]), int(fragments.rank[row])
            if file >= 0 and layout.data_files.size[file] < 0:
                continue
            try:
                self.read(row)
            except InputError as error:
                yield Finding(
                    kind="unreadable payload", message=str(error), tensor=self._tensors[int(fragments.tensor[row])].name,
                    rank=rank if rank >= 0 else None, file=self._files[file] if file >= 0 else None,
                )  # fmt: skip
            if advance is not None:
                advance(int(fragments.payload_bytes[row]))


@define
class _Chunks:
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
class _Gathering:
    """All items of a checkpoint, gathered into one layout."""

    root: Path
    budget: Budget
    sizes: dict[str, int]
    chunks: list[_Chunks] = field(factory=list)
    files: dict[str, int] = field(factory=dict)
    found: list[Finding] = field(factory=list)
    objects: list[str] = field(factory=list)
    notes: list[str] = field(factory=list)
    details: dict[str, Any] = field(factory=dict)
    processes: set[int] = field(factory=set)
    ocdbt: bool = False
    unknown: bool = False

    @property
    def limits(self) -> Limits:
        """The caps."""
        return self.budget.limits

    def say(self, kind: str, message: str, *, tensor: str | None = None, rank: int | None = None, file: str | None = None,
            severity: str = "error") -> None:  # fmt: skip
        """Keep a finding for ``verify``."""
        self.found.append(Finding(kind=kind, message=message, severity=severity, tensor=tensor, rank=rank, file=file))

    def place_of(self, name: str) -> int:
        """Place of a data file; one that is named but not there is added."""
        if name not in self.files:
            self.files[name] = len(self.files)
        return self.files[name]

    def document(self, name: str) -> bytes | None:
        """A JSON document of the folder; None where there is none."""
        return read_capped(inside(self.root, name, name), self.limits.json_bytes, name) if name in self.sizes else None


# ---------------------------------------------------------------- the folder


def _listed(root: Path, limits: Limits) -> dict[str, int]:
    """Every file below a folder and its size; links to folders are not followed."""
    found: dict[str, int] = {}
    waiting = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        if depth > limits.depth:
            raise InputError(folder, f"at most {limits.depth} folders deep", Shown("more"), "Raise the cap with limits=Limits(depth=...).")
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    name = folder + _name(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((f"{name}/", depth + 1))
                        continue
                    size = file_size(inside(root, name, name) if entry.is_symlink() else root / name)
                    if size is not None:
                        found[name] = size
                    if len(found) + len(waiting) > limits.files:
                        fix = "Raise the cap with limits=Limits(files=...)."
                        raise InputError(root.name, f"a folder of at most {limits.files:,} files", Shown("more"), fix)
        except OSError as error:
            raise InputError(folder or f"{root}", "a folder that can be read", Shown(error.strerror or "an error"), "Check it.") from None
    return dict(sorted(found.items()))


def _name(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError("the checkpoint's folder", "of file names in UTF-8", name, "Rename that file.") from None
    return name


def _is_item(folder: Path) -> bool:
    """Whether a folder holds arrays by Orbax: names alone are looked at."""
    return (folder / MANIFEST).is_file() or (folder / _METADATA).is_file() or any(folder.glob(f"ocdbt.process_*/{MANIFEST}"))


def _items(folder: Path) -> list[str]:
    """Names of the items of a step's folder."""
    try:
        return sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.is_symlink() and _is_item(each))
    except OSError:
        return []


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _matches(path: Path) -> bool:
    if not path.is_dir() and path.name not in (MANIFEST, _METADATA, _SHARDING, _STEP):
        return False
    folder = _folder(path)
    return _is_item(folder) or bool(_items(folder))


def _read(path: Path, limits: Limits) -> CheckpointLayout:
    root = _folder(path)
    items = [""] if _is_item(root) else [f"{name}/" for name in _items(root)]
    if not items:
        fix = f"Give the folder of one step: it holds {_METADATA}, or folders that do."
        raise InputError(f"{path}", f"a folder with {MANIFEST} or {_METADATA}", Shown("neither"), fix)
    gathering = _Gathering(root=root, budget=Budget(limits), sizes=_listed(root, limits))
    for item in items:
        _Item(gathering, item, f"{item}" if len(items) > 1 else "").read()
    if len(items) > 1:
        gathering.notes.append(f"Several items are saved together: a tensor's name begins with its item's, as in {items[0]}.")
    return _layout(gathering)


# ---------------------------------------------------------------- one item


class _Item:
    """One saved tree of a checkpoint."""

    def __init__(self, gathering: _Gathering, folder: str, label: str) -> None:
        self.all, self.folder, self.label = gathering, folder, label
        self.names = [name[len(folder) :] for name in gathering.sizes if name.startswith(folder)]
        self.ocdbt = any(name == MANIFEST or _PROCESS.match(name) for name in self.names)
        self.ranks = sorted({int(found[1]) for name in self.names if (found := _PROCESS.match(name) or _NOTED.fullmatch(name))})

    def read(self) -> None:
        """Add what the item holds."""
        whole, limits = self.all, self.all.limits
        raw = whole.document(self.folder + _METADATA)
        leaves, switches = read_leaves(raw, self.folder + _METADATA, limits) if raw is not None else ([], {})
        whole.ocdbt = whole.ocdbt or self.ocdbt or bool(switches.get("use_ocdbt"))
        whole.processes.update(self.ranks)
        raw = whole.document(self.folder + _SHARDING)
        shardings = read_sharding(raw, self.folder + _SHARDING, limits) if raw is not None else None
        self._describe(shardings)
        for name in self.names:
            if self._is_data(name):
                whole.place_of(self.folder + name)
        whole.objects += [self.label + leaf.name for leaf in leaves if leaf.stored and not leaf.array]
        known = self._arrays(bool(switches.get("store_array_data_equal_to_fill_value")))
        if known is not None:
            for leaf in leaves:
                if leaf.stored and leaf.array and leaf.name not in known:
                    whole.say("missing tensor", f"{_METADATA} names it, but nothing of it is stored", tensor=self.label + leaf.name)
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
        for name in self.names:
            if _NOTED.fullmatch(name):
                noted = read_array_metadata(self.all.document(self.folder + name) or b"", self.folder + name, self.all.limits)
                for array, shapes in noted.items():
                    details.setdefault("noted", {}).setdefault(self.label + array, shapes)

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
        else:
            tree = self._plain()
            rank = np.full(len(tree.keys), self.ranks[0] if len(self.ranks) == 1 else 0 if not self.ranks else UNKNOWN, np.int32)
        for name in tree.files:
            self.all.place_of(name)
        return self._add(tree, rank, all_stored)

    def _without(self) -> None:
        told = "Names, partitions and sizes of files are from the JSON documents; shapes, element types and chunks are not known"
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
            found = _PROCESS.fullmatch(folder)
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
        found = _PROCESS.match(name[len(self.folder) :])
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
        members: dict[str, list[tuple[int, tuple[int, ...]]]] = {name: [] for name in arrays}
        for place, key in enumerate(tree.keys):
            folder, _, last = key.rpartition("/")
            if last in _DOCUMENTS:
                continue
            name = _owner(key, folder, arrays)
            at = chunk_place(arrays[name], key[len(name) + 1 :]) if name is not None else None
            if name is None or at is None:
                if not any(key.startswith(f"{each}/") for each in lost):
                    file = tree.files[int(tree.file[place])] if tree.file[place] >= 0 else None
                    whole.say("unclaimed bytes", f"{key} is no chunk of any array", file=file, severity="warning")
            elif any(low >= most for low, most in zip(at, arrays[name].grid, strict=True)):
                whole.say("out of bounds", f"{key} lies beyond the shape {list(arrays[name].shape)}", tensor=self.label + name)
            else:
                whole.budget.charge(100 + 40 * len(at), name)
                members[name].append((place, at))
        for name, array in arrays.items():
            whole.chunks.append(self._chunks(name, array, members[name], tree, rank, all_stored))
        return set(arrays) | lost

    def _documents(self, tree: Tree) -> tuple[dict[str, ZarrArray], set[str]]:
        """The arrays that a tree describes; and those whose description lies in a file that is not there."""
        arrays: dict[str, ZarrArray] = {}
        lost: set[str] = set()
        for place, key in enumerate(tree.keys):
            name, slash, last = key.rpartition("/")
            if last not in _DOCUMENTS or not slash:
                continue
            there = f"{self.folder}{key}"
            if tree.file[place] < 0:
                data = tree.inline[place]
            elif tree.length[place] > _ARRAY_DOCUMENT:
                raise InputError(there, f"at most {_ARRAY_DOCUMENT:,} byte", Shown(f"{int(tree.length[place]):,} byte"), "Refuse this checkpoint.")
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

    def _chunks(self, name: str, array: ZarrArray, members: list[tuple[int, tuple[int, ...]]], tree: Tree, rank: Column,
                all_stored: bool) -> _Chunks:  # fmt: skip
        """The chunks of an array; those that equal the fill value and were left out follow, with no bytes."""
        places = np.array([place for place, _ in members], np.int64)
        grid = np.array([at for _, at in members], np.int64).reshape(len(members), len(array.shape))
        absent = self._absent(name, array, grid) if not all_stored else grid[:0]
        numbers = np.array([self.all.place_of(each) for each in tree.files] + [UNKNOWN], np.int32)
        zeros = np.zeros(len(absent), np.int64)
        inline = {row: tree.inline[place] for row, place in enumerate(places.tolist()) if place in tree.inline}
        return _Chunks(
            name=self.label + name, array=array, grid=np.concatenate([grid, absent]), stored=len(members), inline=inline,
            rank=np.concatenate([rank[places], zeros]), file=np.concatenate([numbers[tree.file[places]], zeros + UNKNOWN]),
            offset=np.concatenate([tree.offset[places], zeros + UNKNOWN]), length=np.concatenate([tree.length[places], zeros]),
        )  # fmt: skip

    def _absent(self, name: str, array: ZarrArray, grid: Column) -> Column:
        """Places on the grid where no chunk is stored."""
        count = int(np.prod([float(each) for each in array.grid]))
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


def _owner(key: str, folder: str, arrays: dict[str, ZarrArray]) -> str | None:
    """The array that a key belongs to: the longest name that it begins with."""
    for _ in range(40):
        if folder in arrays:
            return folder
        if not folder:
            return None
        folder = folder.rpartition("/")[0]
    return None


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
    file, offset, length = (np.array([found[key][column] for key in keys], np.int64) for column in range(3))
    inline = {place: data for place, key in enumerate(keys) if (data := found[key][3]) is not None}
    return Tree(keys=keys, file=file.astype(np.int32), offset=offset, length=length, inline=inline, files=list(files))


# ---------------------------------------------------------------- the layout


def _layout(all_: _Gathering) -> CheckpointLayout:
    all_.chunks.sort(key=lambda each: each.name)
    tensors = tuple(TensorInfo(name=each.name, dtype=each.array.dtype, global_shape=each.array.shape) for each in all_.chunks)
    fragments, inline = _fragments(all_)
    files = Files.from_rows([(name, _rank(name), all_.sizes.get(name, UNKNOWN)) for name in all_.files])
    ranks = max((*all_.processes, *(int(each) for each in files.rank.tolist())), default=0) + 1
    if not all_.ocdbt:
        # a file does not tell who wrote it, but one process alone wrote all
        files = evolve(files, rank=np.full(len(files.names), 0 if ranks == 1 else UNKNOWN, np.int32))
    metadata = {name: size for name, size in all_.sizes.items() if name not in all_.files}
    arrays = [each.array for each in all_.chunks]
    payload = OrbaxPayload(all_.root, all_.limits, files.names, tensors, fragments, arrays, inline, all_.found)
    return CheckpointLayout(
        format="orbax_ocdbt" if all_.ocdbt else "orbax_zarr", tensors=tensors, fragments=fragments, data_files=files, ranks=ranks,
        replicas_recorded=not all_.unknown, root=all_.root, metadata_files=metadata, objects=tuple(sorted(set(all_.objects))),
        payload=payload, notes=_notes(all_), details=_details(all_, fragments, files, ranks),
    )  # fmt: skip


def _rank(name: str) -> int:
    found = re.search(r"(?:^|/)ocdbt\.process_(\d{1,6})/", name)
    return int(found[1]) if found else UNKNOWN


def _fragments(all_: _Gathering) -> tuple[Fragments, dict[int, bytes]]:
    """One row for each chunk, cut to its tensor; and the values that lay in the nodes, by row."""
    rows, axes = sum(len(each.grid) for each in all_.chunks), max((len(each.array.shape) for each in all_.chunks), default=0)
    if rows > all_.limits.fragments:
        raise InputError(all_.root.name, f"a checkpoint of at most {all_.limits.fragments:,} fragments", Shown(f"{rows:,}"), "Raise the cap.")
    all_.budget.charge(rows * (40 + 16 * axes), all_.root.name)
    offset, extent = np.zeros((rows, axes), np.int64), np.ones((rows, axes), np.int64)
    tensor, rank, file = (np.zeros(rows, np.int32) for _ in range(3))
    payload, stored, start = (np.zeros(rows, np.int64) for _ in range(3))
    inline: dict[int, bytes] = {}
    at = 0
    for number, each in enumerate(all_.chunks):
        part, array, used = slice(at, at + len(each.grid)), each.array, len(each.array.shape)
        low = each.grid * np.array(array.chunk, np.int64)
        reach = np.minimum(np.array(array.chunk, np.int64), np.array(array.shape, np.int64) - low)
        offset[part, :used], extent[part, :used] = low, reach
        tensor[part], rank[part], file[part], start[part], stored[part] = number, each.rank, each.file, each.offset, each.length
        payload[at : at + each.stored] = (reach[: each.stored].prod(axis=1) * bits_of(array.dtype) + 7) // 8
        inline.update({at + row: data for row, data in each.inline.items()})
        at += len(each.grid)
    return Fragments(
        tensor=tensor, rank=rank, file=file, offset=offset, extent=extent, payload_bytes=payload, stored_bytes=stored, file_offset=start
    ), inline


def _notes(all_: _Gathering) -> tuple[str, ...]:
    notes = list(all_.notes)
    if all_.chunks:
        notes.append("One copy is stored, parted among the replicas; how many devices held each array follows from its sharding.")
        notes.append("Chunks carry no digest: a byte that changed inside one is seen only where it no longer decodes.")
    return tuple(notes)


def _details(all_: _Gathering, fragments: Fragments, files: Files, ranks: int) -> dict[str, Any]:
    """What is particular to Orbax: see docs for the meaning of each."""
    merged = (files.rank < 0) & (files.size > 0)
    known = fragments.rank >= 0
    values = np.bincount(fragments.rank[known], weights=fragments.stored_bytes[known], minlength=ranks)
    versions = {each.array.version for each in all_.chunks}
    details = dict(all_.details)
    details["zarr_version"] = versions.pop() if len(versions) == 1 else None
    details["merged_bytes"] = int(files.size[merged].sum()) if all_.ocdbt else 0
    details["value_bytes_per_rank"] = [int(each) for each in values] if known.all() else None
    details["write_chunk"] = {each.name: list(each.array.chunk) for each in all_.chunks}
    details["read_chunk"] = {each.name: list(each.array.read_chunk) for each in all_.chunks}
    return details


READER = Reader(
    format="orbax",
    looks_for=f"{MANIFEST} or {_METADATA}, in the folder or in an item's folder below that of a step",
    matches=_matches,
    read=_read,
)
