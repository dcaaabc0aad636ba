"""PyTorch Distributed Checkpoint: ``.metadata`` and ``*.distcp``, each chunk a ``torch.save`` zip of its own.

Saved without collectives, every rank has a metadata file of its own (``__R.metadata``), and every copy is there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.dcp_metadata import Document, read_document
from mlsysim.layout.findings import Finding
from mlsysim.layout.layout import CheckpointLayout, Column, Files, Fragments, Payload, TensorInfo
from mlsysim.layout.limits import Limits, file_size, inside, opened, read_capped
from mlsysim.layout.pickles import label
from mlsysim.layout.reading import Reader
from mlsysim.layout.torch_zip import StoredTensor, TorchArchive, read_torch
from mlsysim.specs.dtypes import numpy_dtype

__all__ = ["READER", "read_folder"]

_FIX = "Refuse this checkpoint, or ask who made it."
_RAISE = "Raise the cap with limits=Limits(...) if you trust it."
_LARGEST = 2**62
_MOST_RANKS = 10_000_000
_DATA = re.compile(r".*__(\d{1,9})_(\d{1,9})\.distcp")
_ANY_DATA = re.compile(r".*__(\d+)_\d+\.distcp")
_RANK_METADATA = re.compile(r".*__(\d{1,9})\.metadata")


def _names(folder: Path, limits: Limits) -> list[str]:
    """Names in a folder, not further down."""
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append(entry.name)
                if len(found) > limits.files:
                    raise InputError(f"{folder.name}", f"a folder of at most {limits.files:,} files", Shown("more"), _RAISE)
    except OSError as error:
        raise InputError(f"{folder}", "a folder that can be read", Shown(error.strerror or "an error"), "Check its permissions.") from None
    return sorted(found)


def _folder_of(path: Path) -> Path | None:
    """The checkpoint's folder, if the path is one or its metadata file."""
    if path.is_dir():
        return path
    return path.parent if path.name == ".metadata" or _RANK_METADATA.fullmatch(path.name) else None


def _metadata_names(names: Sequence[str]) -> list[str]:
    """The one metadata file, or those of the ranks in their order."""
    if ".metadata" in names:
        return [".metadata"]
    ranks = [(int(found[1]), name) for name in names if (found := _RANK_METADATA.fullmatch(name))]
    return [name for _, name in sorted(ranks)]


def _matches(path: Path) -> bool:
    folder = _folder_of(path)
    if folder is None:
        return False
    if not path.is_dir() or (folder / ".metadata").exists():
        return True
    try:
        with os.scandir(folder) as entries:
            return any(_RANK_METADATA.fullmatch(entry.name) for entry, _ in zip(entries, range(1_000_000), strict=False))
    except OSError:
        return False


def _read(path: Path, limits: Limits) -> CheckpointLayout:
    folder = _folder_of(path)
    if folder is None:
        raise InputError(f"{path}", "a folder with .metadata, or that file", Shown("another file"), "Give the checkpoint's folder.")
    return read_folder(folder, limits, format="pytorch_dcp")


def read_folder(
    folder: Path,
    limits: Limits,
    *,
    format: str,  # noqa: A002
    besides: Sequence[str] = (),
    notes: Sequence[str] = (),
    details: dict[str, Any] | None = None,
) -> CheckpointLayout:
    """The layout of a folder with ``.metadata``, or with a metadata file of each rank.

    Parameters
    ----------
    folder : Path
    limits : Limits
    format : str
        The layout's format.
    besides : sequence of str
        Further files without payload; those that are not there are left out.
    notes : sequence of str
    details : dict, optional

    Returns
    -------
    CheckpointLayout

    Raises
    ------
    InputError
        If there is no metadata file, or it is damaged, hostile or over a cap.
    """
    names = _names(folder, limits)
    documents = _metadata_names(names)
    if not documents:
        raise InputError(f"{folder}", "a folder with .metadata", Shown("a folder without"), "A save that did not finish has none yet.")
    alone = documents != [".metadata"]
    merged = _Merged(folder, limits, alone)
    for name in documents:
        rank = _RANK_METADATA.fullmatch(name) if alone else None
        data = read_capped(inside(folder, name, name), limits.metadata_bytes, name)
        merged.add(read_document(data, place=name, limits=limits), name)
        del data
        if rank is not None:
            merged.rank_seen(int(rank[1]), name)
    merged.add_files([name for name in names if name.endswith(".distcp")])
    sizes = {name: file_size(inside(folder, name, name)) for name in (*documents, *besides)}
    return merged.layout(
        format, {name: size for name, size in sizes.items() if size is not None}, tuple(notes), dict(details or {})
    )  # fmt: skip


@frozen(kw_only=True, eq=False)
class _Part:
    """The rows of one metadata file."""

    tensor: Column
    file: Column
    offset: Column
    extent: Column
    start: Column
    length: Column
    transformed: Column
    claims: tuple[Column, Column, Column]


class _Merged:
    """The tensors, files and rows of one metadata file or of several."""

    def __init__(self, folder: Path, limits: Limits, alone: bool) -> None:
        self.folder, self.limits, self.alone = folder, limits, alone
        self.tensors: dict[str, tuple[int, TensorInfo]] = {}
        self.objects: dict[str, None] = {}
        self.files: dict[str, int] = {}
        self.parts: list[_Part] = []
        self.ranks = 0
        self.rows = 0

    def rank_seen(self, rank: int, name: str) -> None:
        if rank >= _MOST_RANKS:
            raise InputError(label(name), f"of ranks below {_MOST_RANKS:,}", rank, _FIX)
        self.ranks = max(self.ranks, rank + 1)

    def add_files(self, names: Sequence[str]) -> None:
        for name in names:
            self.files.setdefault(name, len(self.files))
        if len(self.files) > self.limits.files:
            raise InputError(f"{self.folder.name}", f"of at most {self.limits.files:,} files", Shown(f"{len(self.files):,}"), _RAISE)

    def add(self, document: Document, name: str) -> None:
        tensors = np.array([self.tensor(each, name) for each in document.tensors], np.int32)
        self.objects |= dict.fromkeys(document.objects)
        self.add_files(document.files)
        files = np.array([self.files[each] for each in document.files], np.int32)
        self.rows += len(document.chunk_tensor)
        axes = max((len(each.global_shape) for each in document.tensors), default=0)
        # offsets and extents, and as much again on the way
        if self.rows > self.limits.fragments or self.rows * axes * 32 > self.limits.built_bytes:
            raise InputError(name, f"of at most {self.limits.fragments:,} fragments", Shown(f"{self.rows:,} of {axes} axes"), _RAISE)
        entry = _entries_of_chunks(document)
        found = entry >= 0
        if (document.entry_start > _LARGEST - document.entry_length).any():
            raise InputError(name, "of chunks at offsets below 2^62", Shown("a larger one"), _FIX)
        transformed = np.zeros(len(document.entry_name) + 1, bool)
        transformed[list(document.transformed)] = True
        nothing = np.array([-1], np.int64)
        table = [np.concatenate((each, nothing)) for each in (document.entry_file, document.entry_start, document.entry_length)]
        self.parts.append(_Part(
            tensor=tensors[document.chunk_tensor] if len(tensors) else np.zeros(0, np.int32),
            file=np.where(found, files[table[0][entry]] if len(files) else -1, -1).astype(np.int32),
            offset=_table(document.sizes, axes, 0)[document.chunk_offset], extent=_table(document.sizes, axes, 1)[document.chunk_extent],
            start=table[1][entry], length=np.maximum(table[2][entry], 0), transformed=transformed[entry],
            claims=(files[document.entry_file] if len(files) else np.zeros(0, np.int32), document.entry_start, document.entry_length),
        ))  # fmt: skip

    def tensor(self, found: TensorInfo, name: str) -> int:
        place, known = self.tensors.setdefault(found.name, (len(self.tensors), found))
        if known != found:
            got = f"{found.dtype} {list(found.global_shape)} here and {known.dtype} {list(known.global_shape)} before"
            raise InputError(f"{name}: {label(found.name)}", "the same in each rank's metadata", Shown(got), _FIX)
        return place

    def layout(
        self, format: str, metadata_files: dict[str, int], notes: tuple[str, ...], details: dict[str, Any]  # noqa: A002
    ) -> CheckpointLayout:  # fmt: skip
        files, order = self.data_files()
        axes = max((each.offset.shape[1] for each in self.parts), default=0)
        tensor = np.concatenate([each.tensor for each in self.parts])
        offset = np.concatenate([_wider(each.offset, axes, 0) for each in self.parts])
        extent = np.concatenate([_wider(each.extent, axes, 1) for each in self.parts])
        start, length, transformed, file = (
            np.concatenate([getattr(each, key) for each in self.parts]) for key in ("start", "length", "transformed", "file")
        )  # fmt: skip
        file = order[file]
        tensors = tuple(info for _, info in self.tensors.values())
        claims = tuple(np.concatenate([each.claims[number] for each in self.parts]) for number in range(3))
        details["claims"] = (order[claims[0]], claims[1], claims[2])
        rank = np.append(files.rank, -1)[file].astype(np.int32)
        fragments = Fragments(
            tensor=tensor, rank=rank, file=file, offset=offset, extent=extent, payload_bytes=_bytes(tensors, tensor, extent),
            stored_bytes=length.astype(np.int64), file_offset=start.astype(np.int64),
        )  # fmt: skip
        return CheckpointLayout(
            format=format, tensors=tensors, fragments=fragments, data_files=files, ranks=self.ranks or None, replicas_recorded=self.alone,
            root=self.folder, path=self.folder, metadata_files=metadata_files, objects=tuple(self.objects), notes=notes, details=details,
            payload=_ChunkPayload(self.folder, self.limits, tensors, fragments, files.names, transformed),
        )  # fmt: skip

    def data_files(self) -> tuple[Files, Column]:
        """The data files by rank and number, and where each went; the last place stays -1."""
        rows = []
        for name, place in self.files.items():
            found = _DATA.fullmatch(name.rpartition("/")[2])
            if found is None and _ANY_DATA.fullmatch(name):
                raise InputError(label(name), f"of ranks below {_MOST_RANKS:,}", Shown("a larger one"), _FIX)
            rank, number = (int(found[1]), int(found[2])) if found else (-1, -1)
            self.rank_seen(rank, name)
            rows.append((rank < 0, rank, number, name, place))
        rows.sort()
        order = np.full(len(rows) + 1, -1, np.int32)
        sized = []
        for new, (_, rank, _, name, place) in enumerate(rows):
            order[place] = new
            size = file_size(inside(self.folder, name, label(name)))
            sized.append((name, rank, -1 if size is None else size))
        return Files.from_rows(sized), order


def _table(sizes: list[tuple[int, ...]], axes: int, fill: int) -> Column:
    """Sizes as rows; those of more axes than any tensor has occur in no chunk."""
    made = np.full((len(sizes) + 1, axes), fill, np.int64)
    for place, size in enumerate(sizes):
        if len(size) <= axes:
            made[place, : len(size)] = size
    return made


def _wider(columns: Column, axes: int, fill: int) -> Column:
    more = axes - columns.shape[1]
    return np.pad(columns, ((0, 0), (0, more)), constant_values=fill) if more else columns


def _entries_of_chunks(document: Document) -> Column:
    """For each chunk the storage entry with its name and offset, -1 where there is none; the last of several, as in a dict."""
    places = {each.name: place for place, each in enumerate(document.tensors)}
    tensor_of = np.array([places.get(each, -1) for each in document.names] + [-1], np.int64)
    width = len(document.sizes) + 1
    offset = document.entry_offset.astype(np.int64)
    held = tensor_of[document.entry_name] if len(document.entry_name) else np.zeros(0, np.int64)
    entries = np.where(held >= 0, held * width + offset, -1)
    wanted = document.chunk_tensor.astype(np.int64) * width + document.chunk_offset
    order = np.argsort(entries, kind="stable")
    sorted_entries = entries[order]
    at = np.searchsorted(sorted_entries, wanted, side="right") - 1
    good = (at >= 0) & (sorted_entries[np.maximum(at, 0)] == wanted) if len(entries) else np.zeros(len(wanted), bool)
    return np.where(good, order[np.maximum(at, 0)] if len(entries) else -1, -1)


def _bytes(tensors: Sequence[TensorInfo], tensor: Column, extent: Column) -> Column:
    """Bytes of each chunk, refused where they would not fit in 62 bits."""
    item = np.array([numpy_dtype(each.dtype).itemsize for each in tensors] or [0], np.int64)[tensor]
    rough = extent.astype(np.float64).prod(axis=1) * item
    if (rough > _LARGEST).any() or float(rough.sum()) > _LARGEST:
        row = int(np.argmax(rough))
        raise InputError(f"{label(tensors[int(tensor[row])].name)}", "of less than 2^62 byte", Shown(f"{rough[row]:.3g} byte"), _FIX)
    made: Column = extent.prod(axis=1) * item
    return made


class _ChunkPayload(Payload):
    """The zips in the ``.distcp`` files."""

    __slots__ = ("folder", "fragments", "limits", "names", "tensors", "transformed")

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        tensors: tuple[TensorInfo, ...],
        fragments: Fragments,
        names: tuple[str, ...],
        transformed: Column,
    ) -> None:
        self.folder, self.limits, self.tensors, self.fragments = folder, limits, tensors, fragments
        self.names, self.transformed = names, transformed

    def _tensor(self, row: int) -> TensorInfo:
        return self.tensors[int(self.fragments.tensor[row])]

    def _axes(self, column: Column, row: int) -> tuple[int, ...]:
        return tuple(column[row, : len(self._tensor(row).global_shape)].tolist())

    def _open(self, name: str) -> BinaryIO:
        path = inside(self.folder, name, label(name))
        # opening a pipe would wait without end
        if file_size(path) is None:
            raise InputError(label(name), "a regular file that is there", Shown("none"), "Run verify() to see what is missing.")
        try:
            return opened(path)
        except OSError as error:
            raise InputError(label(name), "a file that can be read", Shown(error.strerror or "an error"), "Check it.") from None

    def _archive(self, file: BinaryIO, row: int) -> tuple[TorchArchive, StoredTensor]:
        place = f"{label(self.names[int(self.fragments.file[row])])}: chunk of {label(self._tensor(row).name)}"
        if self.transformed[row]:
            raise InputError(place, "stored as it is", Shown("stored transformed (compressed, say)"), "Load it with torch.")
        start, length = int(self.fragments.file_offset[row]), int(self.fragments.stored_bytes[row])
        archive = read_torch(file, place=place, limits=self.limits, start=start, length=length)
        if type(archive.value) is not StoredTensor:
            raise InputError(place, "a tensor", Shown(type(archive.value).__name__), _FIX)
        return archive, archive.value

    def read(self, row: int) -> Column:
        tensor, number = self._tensor(row), int(self.fragments.file[row])
        if number < 0:
            raise InputError(label(tensor.name), "in a data file", Shown("in none: the metadata says nothing of it"), _FIX)
        name, extent = self.names[number], self._axes(self.fragments.extent, row)
        with self._open(name) as file:
            archive, stored = self._archive(file, row)
        if stored.shape != extent or stored.dtype != tensor.dtype:
            rule = f"{tensor.dtype} {list(extent)} as the metadata says"
            raise InputError(archive.place, rule, Shown(f"{stored.dtype} {list(stored.shape)}"), _FIX)
        return archive.array(inside(self.folder, name, label(name)), stored)

    def findings(self, layout: CheckpointLayout) -> Iterator[Finding]:
        fragments = layout.fragments
        if not layout.replicas_recorded:
            message = "the format keeps one copy of each chunk: whether ranks held different tensors under one name cannot be seen"
            yield Finding(kind="replicas possible", severity="note", message=message)
        for row in np.flatnonzero(fragments.file < 0):
            message = f"no file holds the chunk at {list(self._axes(fragments.offset, int(row)))}"
            yield Finding(kind="missing tensor", tensor=self._tensor(int(row)).name, message=message)
        short = (fragments.file >= 0) & (fragments.stored_bytes < fragments.payload_bytes) & ~self.transformed
        for row in np.flatnonzero(short):
            message = f"{fragments.stored_bytes[row]:,} byte are stored for {fragments.payload_bytes[row]:,} byte of elements"
            yield self._finding(int(row), "byte count differs", message)

        for row in np.flatnonzero(self._shared(layout)):
            message = f"its bytes, from {fragments.file_offset[row]:,} on, are in part those of another chunk; they are not read again"
            yield self._finding(int(row), "overlap", message)

    def _shared(self, layout: CheckpointLayout) -> Column:
        """Rows whose bytes in the file an earlier chunk has as well: many large ones could be made of few bytes."""
        order, bounds = self._in_files(layout)
        shared = np.zeros(len(order), bool)
        for begin, end in pairwise(bounds.tolist()):
            rows = order[begin:end]
            reach = np.maximum.accumulate(self.fragments.file_offset[rows] + self.fragments.stored_bytes[rows])
            shared[rows[1:]] = self.fragments.file_offset[rows[1:]] < reach[:-1]
        return shared

    def _in_files(self, layout: CheckpointLayout) -> tuple[Column, Column]:
        """Rows by file and place in it, and where each file's begin."""
        order = np.lexsort((self.fragments.file_offset, self.fragments.file))
        return order, np.searchsorted(self.fragments.file[order], np.arange(len(layout.files) + 1))

    def payload_findings(self, layout: CheckpointLayout, advance: Any = None) -> Iterator[Finding]:
        (order, bounds), shared = self._in_files(layout), self._shared(layout)
        for place, name in enumerate(layout.files):
            if layout.data_files.size[place] < 0:
                continue
            try:
                with self._open(name) as file:
                    for row in order[bounds[place] : bounds[place + 1]]:
                        if not shared[row]:
                            yield from self._chunk_findings(int(row), file, advance)
            except InputError as error:
                yield Finding(kind="unreadable payload", file=name, message=f"{error}")

    def _chunk_findings(self, row: int, file: BinaryIO, advance: Any) -> Iterator[Finding]:
        if self.transformed[row]:
            message = "the chunk is stored transformed (compressed, say), and was not checked"
            yield self._finding(row, "unreadable payload", message, severity="warning")
            return
        try:
            archive, stored = self._archive(file, row)
            yield from self._header_findings(row, archive, stored)
            for name, found, said in archive.damaged(file, advance):
                yield self._finding(row, "digest differs", f"{name} has CRC-32 {found:08x}, the zip says {said:08x}")
        except InputError as error:
            yield self._finding(row, "unreadable payload", f"{error}")
        except OSError as error:
            yield self._finding(row, "unreadable payload", error.strerror or "an error")

    def _header_findings(self, row: int, archive: TorchArchive, stored: StoredTensor) -> Iterator[Finding]:
        tensor, extent = self._tensor(row), self._axes(self.fragments.extent, row)
        if stored.shape != extent:
            yield self._finding(row, "shape differs", f"stored as {list(stored.shape)}, {list(extent)} in the metadata")
        if stored.dtype != tensor.dtype:
            yield self._finding(row, "dtype differs", f"stored as {stored.dtype}, {tensor.dtype} in the metadata")
        if stored.storage is None:
            yield self._finding(row, "unreadable payload", "stored without elements")
        elif (size := archive.storage_size(stored.storage.key)) != stored.storage.bytes:
            message = f"{size:,} byte are stored for {stored.storage.bytes:,} byte of elements"
            yield self._finding(row, "byte count differs", message)

    def _finding(self, row: int, kind: str, message: str, severity: str = "error") -> Finding:
        rank = int(self.fragments.rank[row])
        return Finding(
            kind=kind, message=message, severity=severity, tensor=self._tensor(row).name, rank=rank if rank >= 0 else None,
            file=self.names[int(self.fragments.file[row])],
        )  # fmt: skip


READER = Reader(
    format="pytorch_dcp",
    looks_for=".metadata beside *.distcp, or __0.metadata, __1.metadata, ...",
    matches=_matches,
    read=_read,
)
