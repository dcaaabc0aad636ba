"""Safetensors: one file, a folder of files, Hugging Face's index, and PyTorch's shard files.

A file alone must end where its tensors end. Of several files, one that is missing, cut or too long is left for ``verify``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.errors import InputError, Shown
from mlsysim.layout.findings import Finding
from mlsysim.layout.hashing import Piece, digests
from mlsysim.layout.json_text import MOST, below, document, field, optional, typed, whole_numbers
from mlsysim.layout.layout import UNKNOWN, CheckpointLayout, Column, Files, Fragments, Payload, TensorInfo
from mlsysim.layout.limits import Limits, file_size, inside, opened, read_capped
from mlsysim.layout.reading import Reader
from mlsysim.layout.safetensors_header import Header, elements, mapped, read_header

__all__ = ["INDEX", "READER", "SHARDED", "SafetensorsPayload"]

_SUFFIX = ".safetensors"
_INDEX = ".safetensors.index.json"
_SHARD = re.compile(r"shard-(\d{1,9})-model-\d+-of-\d+\.safetensors")
_OFFSETS = "DCP_SHARDING_INFO"
_FIX = "Refuse this checkpoint, or write it again."


class SafetensorsPayload(Payload):
    """Fetches tensors from safetensors files; knows what reading the headers showed to be wrong."""

    __slots__ = ("_found", "_fragments", "_names", "_root", "_tensors")

    def __init__(self, root: Path, names: tuple[str, ...], tensors: tuple[TensorInfo, ...], fragments: Fragments, found: list[Finding]):
        self._root, self._names, self._tensors, self._fragments, self._found = root, names, tensors, fragments, tuple(found)

    def read(self, row: int) -> Column:
        """The elements of a fragment, mapped from its file."""
        fragments = self._fragments
        name, tensor = self._names[int(fragments.file[row])], self._tensors[int(fragments.tensor[row])]
        path = inside(self._root, name, name)
        raw = mapped(path, name, int(fragments.file_offset[row]), int(fragments.payload_bytes[row]))
        return elements(raw, tensor.dtype, tuple(fragments.extent[row, : len(tensor.global_shape)].tolist()), f"{name}: {tensor.name}")

    def findings(self, layout: CheckpointLayout) -> Iterator[Finding]:  # noqa: ARG002
        """What the headers and the index showed."""
        yield from self._found

    def payload_findings(self, layout: CheckpointLayout, advance: Any = None) -> Iterator[Finding]:
        """Every byte must be there to be read; there is no digest to compare with."""
        pieces = []
        for name, rank, size in zip(self._names, layout.data_files.rank.tolist(), layout.data_files.size.tolist(), strict=True):
            try:
                pieces.append((rank, Piece(inside(self._root, name, name), name, 0, max(size, 0))))
            except InputError as error:
                yield _unreadable(error, name, rank)
        for (rank, piece), found in zip(pieces, digests([piece for _, piece in pieces], advance=advance), strict=True):
            # a file that was not there when the layout was read is told already
            if isinstance(found, InputError) and piece.length:
                yield _unreadable(found, piece.place, rank)


def _unreadable(error: InputError, name: str, rank: int) -> Finding:
    return Finding(kind="unreadable payload", message=f"{error}", file=name, rank=rank if rank >= 0 else None)


class _Gathering:
    """Headers of several files, gathered into one layout."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self.root, self.limits = root, limits
        self.tensors: dict[str, tuple[int, str, list[int]]] = {}
        self.files: list[tuple[str, int, int]] = []
        self.claims: list[int] = []
        self.headers: dict[str, Header] = {}
        self.found: list[Finding] = []
        self.notes = ["Only the copy that was kept is recorded; how many ranks held it is not."]
        self.columns: list[tuple[list[int], int, int, list[tuple[int, ...]], list[tuple[int, ...]], Column, Column]] = []
        self.rows = self.axes = 0

    def open(self, name: str, rank: int = UNKNOWN, *, exact: bool = False) -> Header | None:
        """The header of a file; None, and a finding, where the file is not there or cut within its header."""
        path = inside(self.root, name, name)
        size = file_size(path)
        self.files.append((name, rank, UNKNOWN if size is None else size))
        self.claims.append(0)
        if size is None:
            return None
        if not exact and _cut(path, size, name):
            self._say("file short", f"{size:,} byte end within the header", None, rank, name)
            return None
        header = read_header(path, name, self.limits, exact=exact)
        self.claims[-1], self.headers[name] = header.claimed, header
        return header

    def add(self, header: Header, file: int, chosen: list[int], offsets: dict[str, tuple[int, ...]] | None = None) -> None:
        """The tensors of one file; those that contradict what another file says of them are left out, with a finding."""
        name, rank, _ = self.files[file]
        ids, kept, starts, shapes = [], [], [], []
        for each in chosen:
            tensor, dtype, shape = header.names[each], header.dtypes[each], header.shapes[each]
            start = (0,) * len(shape) if offsets is None else self._start(offsets, tensor, shape, name)
            known = self.tensors.get(tensor)
            if known is None:
                known = self.tensors[tensor] = len(self.tensors), dtype, [a + b for a, b in zip(start, shape, strict=True)]
            elif known[1] != dtype:
                self._say("dtype differs", f"{dtype} here, {known[1]} in another file", tensor, rank, name)
                continue
            elif len(known[2]) != len(shape) or (offsets is None and list(shape) != known[2]):
                self._say("shape differs", f"shape {list(shape)} here, {known[2]} in another file", tensor, rank, name)
                continue
            elif offsets is not None:
                known[2][:] = [max(a, b + c) for a, b, c in zip(known[2], start, shape, strict=True)]
            ids.append(known[0])
            kept.append(each)
            starts.append(start)
            shapes.append(shape)
        self.rows += len(ids)
        self.axes = max(self.axes, max(map(len, shapes), default=0))
        # offsets and extents, and as much again on the way
        if self.rows > self.limits.fragments or self.rows * self.axes * 32 > self.limits.built_bytes:
            raise InputError(name, f"part of a checkpoint of at most {self.limits.fragments:,} fragments", Shown("more"), "Raise the cap.")
        self.columns.append((ids, file, rank, starts, shapes, header.begin[kept], header.end[kept]))

    def _start(self, offsets: dict[str, tuple[int, ...]], tensor: str, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
        start = offsets.get(tensor, (0,) * len(shape))
        place = f"{name}: header.__metadata__.{_OFFSETS}.{tensor}"
        if len(start) != len(shape):
            raise InputError(place, f"{len(shape)} offsets, as the tensor has axes", list(start), _FIX)
        if any(a + b > MOST for a, b in zip(start, shape, strict=True)):
            raise InputError(place, "offsets that end below 2**63", list(start), _FIX)
        return start

    def _say(self, kind: str, message: str, tensor: str | None, rank: int, file: str | None, severity: str = "error") -> None:
        who = rank if rank >= 0 else None
        self.found.append(Finding(kind=kind, message=message, severity=severity, tensor=tensor, rank=who, file=file))

    def leave(self, names: list[str]) -> None:
        """Files of the folder that are no part of the checkpoint."""
        left = sorted(set(names) - {name for name, _, _ in self.files})
        if left:
            more = f" and {len(left) - 3:,} more" if len(left) > 3 else ""
            self.notes.append(f"Left out, for they are no part of it: {', '.join(left[:3])}{more}.")

    def infos(self) -> tuple[TensorInfo, ...]:
        """The tensors in the order of their names."""
        held = ((name, *self.tensors[name][1:]) for name in sorted(self.tensors))
        return tuple(TensorInfo(name=name, dtype=dtype, global_shape=tuple(shape)) for name, dtype, shape in held)

    def layout(self, form: str, *, ranks: int | None = None, metadata_files: dict[str, int] | None = None) -> CheckpointLayout:
        """The layout, tensors in the order of their names."""
        tensors, files, count = self.infos(), Files.from_rows(self.files), len(self.files)
        place_of = np.zeros(len(tensors), np.int32)
        place_of[[self.tensors[each.name][0] for each in tensors]] = np.arange(len(tensors))
        fragments = self._fragments(place_of)
        return CheckpointLayout(
            format=form, tensors=tensors, fragments=fragments, data_files=files, ranks=ranks, replicas_recorded=False, root=self.root,
            metadata_files=metadata_files or {}, payload=SafetensorsPayload(self.root, files.names, tensors, fragments, self.found),
            notes=tuple(self.notes),
            details={
                "metadata": {name: header.metadata for name, header in self.headers.items()},
                "header_bytes": {name: header.length for name, header in self.headers.items()},
                "claims": (np.arange(count), np.zeros(count, np.int64), np.array(self.claims, np.int64)),
            },
        )  # fmt: skip

    def _fragments(self, place_of: Column) -> Fragments:
        axes = max((len(each[2]) for each in self.tensors.values()), default=0)
        offset, extent = np.zeros((self.rows, axes), np.int64), np.ones((self.rows, axes), np.int64)
        tensor, rank, file = (np.zeros(self.rows, np.int32) for _ in range(3))
        begin, end = (np.zeros(self.rows, np.int64) for _ in range(2))
        at, zeros, ones = 0, (0,) * axes, (1,) * axes
        for ids, number, who, starts, shapes, first, last in self.columns:
            part = slice(at, at + len(ids))
            at += len(ids)
            tensor[part], rank[part], file[part], begin[part], end[part] = place_of[ids], who, number, first, last
            if ids and axes:
                offset[part] = [(*start, *zeros[len(start) :]) for start in starts]
                extent[part] = [(*shape, *ones[len(shape) :]) for shape in shapes]
        size = end - begin
        return Fragments(
            tensor=tensor, rank=rank, file=file, offset=offset, extent=extent,
            payload_bytes=size, stored_bytes=size.copy(), file_offset=begin,
        )  # fmt: skip


def _cut(path: Path, size: int, name: str) -> bool:
    """Whether a file ends within its header; a header over every cap is left to be refused."""
    if size < 8:
        return True
    try:
        with opened(path) as file:
            length = int.from_bytes(file.read(8), "little")
    except OSError as error:
        raise InputError(name, "a file that can be read", Shown(error.strerror or "an error"), "Check its permissions.") from None
    return size < 8 + length <= 8 + Limits().header_bytes


def _names(folder: Path, limits: Limits) -> list[str]:
    """Names of the safetensors files of a folder."""
    found = []
    try:
        for number, each in enumerate(folder.iterdir()):
            if number >= limits.files:
                raise InputError(folder.name, f"a folder of at most {limits.files:,} files", Shown("more"), "Raise the cap.")
            if each.name.endswith(_SUFFIX):
                found.append(each.name)
    except OSError as error:
        raise InputError(f"{folder}", "a folder that can be read", Shown(error.strerror or "an error"), "Check its permissions.") from None
    return sorted(found)


def _matches(path: Path) -> bool:
    return any(path.glob(f"*{_SUFFIX}")) if path.is_dir() else path.name.endswith(_SUFFIX)


def _matches_index(path: Path) -> bool:
    return any(path.glob(f"*{_INDEX}")) if path.is_dir() else path.name.endswith(_INDEX)


def _read(path: Path, limits: Limits) -> CheckpointLayout:
    if not path.is_dir():
        return _read_index(path, limits) if path.name.endswith(_INDEX) else _read_file(path, limits)
    indexes = sorted(path.glob(f"*{_INDEX}"))
    if len(indexes) > 1:
        indexes = [each for each in indexes if each.name == f"model{_INDEX}"]
        if not indexes:
            raise InputError(f"{path}", "a folder with one index", Shown("several"), "Give the path of the index file.")
    if indexes:
        return _read_index(indexes[0], limits)
    names = _names(path, limits)
    if not names:
        raise InputError(f"{path}", f"a folder with files *{_SUFFIX}", Shown("none"), "Check the path.")
    if len(names) == 1:
        return _read_file(path / names[0], limits)
    gathering = _Gathering(path, limits)
    for number, name in enumerate(names):
        header = gathering.open(name)
        if header is not None:
            gathering.add(header, number, list(range(len(header.names))))
    return gathering.layout("safetensors")


def _read_file(path: Path, limits: Limits) -> CheckpointLayout:
    if path.is_symlink():
        # a caller's own link is followed; one within a checkpoint may not lead out
        path = path.resolve()
    gathering = _Gathering(path.parent, limits)
    header = gathering.open(path.name, exact=True)
    if header is None:
        raise InputError(path.name, "a file that can be read", Shown("none"), "Check the path.")
    gathering.add(header, 0, list(range(len(header.names))))
    return gathering.layout("safetensors")


def _read_index(path: Path, limits: Limits) -> CheckpointLayout:
    data = read_capped(path, limits.json_bytes, path.name)
    table = document(data, place=path.name, limits=limits)
    wanted = field(table, "weight_map", dict, path.name)
    for tensor, file in wanted.items():
        typed(file, str, below(path.name, f"weight_map.{tensor}"))
    names = sorted(set(wanted.values()))
    if len(names) > limits.files:
        raise InputError(path.name, f"an index of at most {limits.files:,} files", f"{len(names):,}", "Raise the cap.")
    gathering = _Gathering(path.parent, limits)
    headers = [gathering.open(name) for name in names]
    _add_indexed(gathering, headers, names, wanted)
    gathering.leave(_names(path.parent, limits))
    metadata = optional(table, "metadata", dict, path.name) or {}
    if None not in headers:
        gathering.found += _total_findings(metadata.get("total_size"), gathering.infos(), path.name)
    layout = gathering.layout("safetensors_index", metadata_files={path.name: len(data)})
    layout.details["index"] = metadata
    return layout


def _add_indexed(gathering: _Gathering, headers: list[Header | None], names: list[str], wanted: dict[str, str]) -> None:
    """Tensors from where the index says they are, then the others that lie in its files."""
    others: list[list[int]] = []
    for number, (name, header) in enumerate(zip(names, headers, strict=True)):
        listed = [each for each, tensor in enumerate(header.names) if wanted.get(tensor) == name] if header else []
        others.append(sorted(set(range(len(header.names))) - set(listed)) if header else [])
        if header is not None:
            gathering.add(header, number, listed)
    for number, (name, header) in enumerate(zip(names, headers, strict=True)):
        if header is not None and others[number]:
            for each in others[number]:
                where = wanted.get(header.names[each])
                what = "the index does not list it" if where is None else f"the index lists it in {where}"
                gathering._say("unclaimed bytes", f"in the file, but {what}", header.names[each], UNKNOWN, name, "warning")
            gathering.add(header, number, others[number])
    held = {name: set(header.names) for name, header in zip(names, headers, strict=True) if header is not None}
    for tensor, name in wanted.items():
        if tensor not in held.get(name, ()):
            why = "is not in its file" if name in held else "is in a file that is not there or cannot be read"
            gathering._say("missing tensor", f"the index lists it, but it {why}", tensor, UNKNOWN, name)


def _total_findings(total: Any, tensors: tuple[TensorInfo, ...], name: str) -> Iterator[Finding]:
    held = sum(each.bytes for each in tensors)
    if total is not None and (isinstance(total, bool) or total != held):
        shown = f"{total:,}" if isinstance(total, (int, float)) else repr(total)[:40]
        yield Finding(kind="byte count differs", file=name, message=f"total_size is {shown}, the tensors have {held:,} byte")


def _sharded_names(folder: Path, limits: Limits) -> list[tuple[str, int]]:
    """Shard files and their ranks."""
    found = []
    for name in _names(folder, limits):
        parts = _SHARD.fullmatch(name)
        if parts:
            if int(parts[1]) < 1 or int(parts[1]) > limits.files:
                raise InputError(name, f"a shard file numbered from 1 to {limits.files:,}", int(parts[1]), _FIX)
            found.append((name, int(parts[1]) - 1))
    return found


def _matches_sharded(path: Path) -> bool:
    return path.is_dir() and any(_SHARD.fullmatch(each.name) for each in path.glob(f"shard-*{_SUFFIX}"))


def _read_sharded(path: Path, limits: Limits) -> CheckpointLayout:
    folder = path if path.is_dir() else path.parent
    names = _sharded_names(folder, limits)
    if not names:
        raise InputError(f"{path}", "a folder with files shard-00001-model-00001-of-00001.safetensors", Shown("none"), "Check the path.")
    gathering = _Gathering(folder, limits)
    for number, (name, rank) in enumerate(names):
        header = gathering.open(name, rank)
        if header is not None:
            gathering.add(header, number, list(range(len(header.names))), _offsets(header, name, limits))
    gathering.leave(_names(folder, limits))
    return gathering.layout("dcp_safetensors_sharded", ranks=1 + max(rank for _, rank in names))


def _offsets(header: Header, name: str, limits: Limits) -> dict[str, tuple[int, ...]]:
    """Where each tensor of a shard file begins in the whole; from 0 where the file does not say."""
    text = (header.metadata or {}).get(_OFFSETS)
    if text is None:
        return {}
    place = f"{name}: header.__metadata__.{_OFFSETS}"
    table = typed(document(text.encode(), place=place, limits=limits, most=limits.header_bytes), dict, place)
    return {tensor: whole_numbers(each, "saved_offsets", below(place, tensor)) for tensor, each in table.items()}


READER = Reader(format="safetensors", looks_for=f"*{_SUFFIX}", matches=_matches, read=_read)
INDEX = Reader(format="safetensors_index", looks_for=f"*{_INDEX}", matches=_matches_index, read=_read)
SHARDED = Reader(
    format="dcp_safetensors_sharded",
    looks_for="shard-00001-model-00001-of-00001.safetensors and its like",
    matches=_matches_sharded,
    read=_read_sharded,
)
