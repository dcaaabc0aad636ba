"""Orbax checkpoints: arrays as zarr, in one database for all processes (OCDBT) or in a folder each.

Reading the layout reads the JSON documents and the nodes of the database. A value of up to a kilobyte lies in a node and
is read with it; all others are left alone until their elements are asked for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from mlsysim.errors import InputError, Shown
from mlsysim.layout.json_text import MOST
from mlsysim.layout.layout import UNKNOWN, CheckpointLayout, Files, Fragments, TensorInfo
from mlsysim.layout.limits import Limits, file_size, inside
from mlsysim.layout.orbax_items import METADATA, PROCESS, SHARDING, Gathering, Item
from mlsysim.layout.orbax_payload import OrbaxPayload
from mlsysim.layout.orbax_tree import MANIFEST, Budget
from mlsysim.layout.reading import Reader
from mlsysim.specs.dtypes import bits_of

__all__ = ["READER"]

_STEP = "_CHECKPOINT_METADATA"


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
    return (folder / MANIFEST).is_file() or (folder / METADATA).is_file() or any(folder.glob(f"ocdbt.process_*/{MANIFEST}"))


def _items(folder: Path) -> list[str]:
    """Names of the items of a step's folder."""
    try:
        return sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.is_symlink() and _is_item(each))
    except OSError:
        return []


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _matches(path: Path) -> bool:
    if not path.is_dir() and path.name not in (MANIFEST, METADATA, SHARDING, _STEP):
        return False
    folder = _folder(path)
    return _is_item(folder) or bool(_items(folder))


def _read(path: Path, limits: Limits) -> CheckpointLayout:
    root = _folder(path)
    items = [""] if _is_item(root) else [f"{name}/" for name in _items(root)]
    if not items:
        fix = f"Give the folder of one step: it holds {METADATA}, or folders that do."
        raise InputError(f"{path}", f"a folder with {MANIFEST} or {METADATA}", Shown("neither"), fix)
    gathering = Gathering(root=root, budget=Budget(limits), sizes=_listed(root, limits))
    for item in items:
        Item(gathering, item, f"{item}" if len(items) > 1 else "").read()
    if len(items) > 1:
        gathering.notes.append(f"Several items are saved together: a tensor's name begins with its item's, as in {items[0]}.")
    return _layout(gathering)


def _layout(all_: Gathering) -> CheckpointLayout:
    all_.chunks.sort(key=lambda each: each.name)
    tensors = tuple(TensorInfo(name=each.name, dtype=each.array.dtype, global_shape=each.array.shape) for each in all_.chunks)
    if sum(each.bytes for each in tensors) > MOST:
        raise InputError(all_.root.name, "a checkpoint of fewer than 2**63 byte", Shown("more"), "Refuse this checkpoint.")
    fragments, inline = _fragments(all_)
    files = Files.from_rows([(name, _rank(name), all_.sizes.get(name, UNKNOWN)) for name in all_.files])
    processes = all_.processes | {rank for rank in files.rank.tolist() if rank >= 0}
    ranks = max(processes) + 1 if processes else None
    if not all_.ocdbt:
        # a file does not tell who wrote it; but where one process alone noted its arrays, it wrote all
        files = evolve(files, rank=np.full(len(files.names), 0 if processes == {0} else UNKNOWN, np.int32))
    metadata = {name: size for name, size in all_.sizes.items() if name not in all_.files}
    arrays = [each.array for each in all_.chunks]
    payload = OrbaxPayload(all_.root, all_.limits, files.names, tensors, fragments, arrays, inline, all_.found)
    return CheckpointLayout(
        format="orbax_ocdbt" if all_.ocdbt else "orbax_zarr", tensors=tensors, fragments=fragments, data_files=files, ranks=ranks,
        replicas_recorded=not all_.unknown, root=all_.root, metadata_files=metadata, objects=tuple(sorted(set(all_.objects))),
        payload=payload, notes=_notes(all_), untold=all_.untold, details=_details(all_, fragments, files, ranks),
    )  # fmt: skip


def _rank(name: str) -> int:
    found = PROCESS.search(name)
    return int(found[1]) if found else UNKNOWN


def _fragments(all_: Gathering) -> tuple[Fragments, dict[int, bytes]]:
    """One row for each chunk, cut to its tensor; and the values that lay in the nodes, by row."""
    rows, axes = sum(len(each.grid) for each in all_.chunks), max((len(each.array.shape) for each in all_.chunks), default=0)
    if rows > all_.limits.fragments:
        rule = f"a checkpoint of at most {all_.limits.fragments:,} fragments"
        raise InputError(all_.root.name, rule, Shown(f"{rows:,}"), "Raise the cap with limits=Limits(fragments=...).")
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


def _notes(all_: Gathering) -> tuple[str, ...]:
    notes = list(all_.notes)
    if all_.chunks:
        notes.append("One copy is stored, parted among the replicas; how many devices held each array follows from its sharding.")
        notes.append("Chunks carry no digest: a byte that changed inside one is seen only where it no longer decodes.")
    return tuple(notes)


def _details(all_: Gathering, fragments: Fragments, files: Files, ranks: int | None) -> dict[str, Any]:
    """What is particular to Orbax: see docs for the meaning of each."""
    merged = (files.rank < 0) & (files.size > 0)
    known = fragments.rank >= 0
    values = np.bincount(fragments.rank[known], weights=fragments.stored_bytes[known], minlength=ranks or 0)
    versions = {each.array.version for each in all_.chunks}
    details = dict(all_.details)
    details["zarr_version"] = versions.pop() if len(versions) == 1 else None
    details["merged_bytes"] = int(files.size[merged].sum()) if all_.ocdbt else 0
    details["value_bytes_per_rank"] = [int(each) for each in values] if known.all() and ranks is not None else None
    details["write_chunk"] = {each.name: list(each.array.chunk) for each in all_.chunks}
    details["read_chunk"] = {each.name: list(each.array.read_chunk) for each in all_.chunks}
    return details


READER = Reader(
    format="orbax",
    looks_for=f"{MANIFEST} or {METADATA}, in the folder or in an item's folder below that of a step",
    matches=_matches,
    read=_read,
)
