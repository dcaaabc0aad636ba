"""Whole tensors from their fragments, and all of them into one safetensors file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.errors import InputError, Shown
from mlsysim.layout.coverage import coverage
from mlsysim.layout.layout import CheckpointLayout, Column, TensorInfo
from mlsysim.specs.dtypes import bits_of, numpy_dtype

__all__ = ["SAFETENSORS_NAMES", "reassemble", "reassemble_all"]

# runs shorter than this are pasted into the mapped file; pieces of at most this much are written at a time
_SMALL_RUN, _PIECE = 2**16, 2**26

_LARGEST = 2**62

# element types that safetensors has a name for
SAFETENSORS_NAMES = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16", "uint32": "U32",
    "uint64": "U64", "float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16", "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip


def reassemble(layout: CheckpointLayout, place: int) -> Column:
    """The tensor at a place, from one copy of each of its parts."""
    tensor = layout.tensors[place]
    rows = _whole(layout, place)
    if len(rows) == 1 and tuple(layout.fragments.extent[rows[0], : len(tensor.global_shape)]) == tensor.global_shape:
        return np.array(_read(layout, int(rows[0]))).reshape(tensor.global_shape)
    whole = _allocated(tensor)
    for row in rows:
        _paste(layout, int(row), whole)
    return whole


def _allocated(tensor: TensorInfo) -> Column:
    try:
        return np.empty(tensor.global_shape, numpy_dtype(tensor.dtype))
    except (MemoryError, ValueError):
        raise InputError(tensor.name, "a tensor that fits in memory", f"{tensor.bytes:,} byte", "Use reassemble_all.") from None


def _whole(layout: CheckpointLayout, place: int) -> Column:
    """Rows that make up a tensor, each part once; refused where a part is missing or lies outside."""
    tensor = layout.tensors[place]
    rows, axes = layout.rows_of(place), len(tensor.global_shape)
    offset, extent = layout.fragments.offset[rows, :axes], layout.fragments.extent[rows, :axes]
    shape = np.array(tensor.global_shape, np.int64)
    fix = "Run verify() to see what is wrong with it."
    if ((offset < 0) | (extent < 0) | (extent > shape - offset)).any():
        raise InputError(tensor.name, "made of fragments inside the tensor", "one that reaches beyond it", fix)
    keys = np.concatenate([offset, extent], axis=1)
    kept = np.sort(np.unique(keys, axis=0, return_index=True)[1]) if axes else np.arange(min(len(rows), 1))
    found = coverage(offset[kept], extent[kept], tensor.global_shape)
    if found.missing:
        raise InputError(tensor.name, "whole", f"{found.missing:,} elements in no fragment, from {found.hole}", fix)
    return rows[kept]


def _read(layout: CheckpointLayout, row: int) -> Column:
    if layout.payload is None:
        raise InputError("reassemble", "asked of a checkpoint on disk", f"a {layout.format} layout", "A predicted layout has no payload.")
    return layout.payload.read(row)


def _paste(layout: CheckpointLayout, row: int, whole: Column) -> None:
    axes = whole.ndim
    offset, extent = layout.fragments.offset[row, :axes], layout.fragments.extent[row, :axes]
    part = tuple(slice(int(start), int(start + reach)) for start, reach in zip(offset, extent, strict=True))
    whole[part] = _read(layout, row).reshape(tuple(extent.tolist()))


def reassemble_all(layout: CheckpointLayout, out: Path, advance: Any = None) -> None:
    """Every tensor into one safetensors file, written beside its place and moved there once whole."""
    header, starts, size = _header(layout)
    fix = "Choose a folder that exists and can be written to."
    _refuse_place(layout, out)
    # a link is followed, as by every other program that writes
    out = Path(os.path.realpath(out))
    try:
        handle, temporary = tempfile.mkstemp(prefix=out.name, suffix=".part", dir=out.parent)
    except OSError as error:
        raise InputError(f"{out}", "a file that can be written", error.strerror or "an error", fix) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(header)
            file.truncate(len(header) + size)
        for place in np.argsort(starts, kind="stable"):
            _write_tensor(layout, int(place), Path(temporary), len(header) + starts[place])
            if advance is not None:
                advance(layout.tensors[int(place)].bytes)
        Path(temporary).chmod(_mode())
        Path(temporary).replace(out)
    except OSError as error:
        raise InputError(f"{out}", "a file that can be written", error.strerror or "an error", fix) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()


def _refuse_place(layout: CheckpointLayout, out: Path) -> None:
    """Refuse to write where there is something other than a file, or a file that is being read."""
    fix = "Write to a file of its own."
    try:
        found = out.stat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        told = Shown(getattr(error, "strerror", None) or str(error))
        raise InputError(f"{out}", "a file that can be written", told, fix) from None
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{out}", "a file that can be written", Shown("no regular file"), fix)
    for name in (*layout.files, *layout.metadata_files):
        if layout.root is not None and _is_same(found, layout.root / name):
            raise InputError(f"{out}", "no file of the checkpoint", Shown(name), fix)


def _is_same(found: os.stat_result, path: Path) -> bool:
    try:
        return os.path.samestat(found, path.stat())
    except (OSError, ValueError):
        return False


def _mode() -> int:
    """Permissions that a new file gets: a temporary one is its owner's alone."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _header(layout: CheckpointLayout) -> tuple[bytes, list[int], int]:
    """The header, where each tensor begins in the data, and the size of the data: largest elements first, for alignment."""
    order = sorted(range(len(layout.tensors)), key=lambda place: (-bits_of(layout.tensors[place].dtype), layout.tensors[place].name))
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    starts, at = [0] * len(layout.tensors), 0
    for place in order:
        tensor = layout.tensors[place]
        if tensor.name == "__metadata__":
            raise InputError("__metadata__", "no name of a tensor", tensor.name, "safetensors keeps it for itself; reassemble it alone.")
        if tensor.dtype not in SAFETENSORS_NAMES:
            fix = "Reassemble it alone, with reassemble(name)."
            raise InputError(tensor.name, "of an element type that safetensors has a name for", tensor.dtype, fix)
        if tensor.name in entries:
            raise InputError(tensor.name, "the name of one tensor", "two of that name", "Reassemble it alone, with reassemble(name).")
        starts[place] = at
        end = at + tensor.bytes
        entries[tensor.name] = {
            "dtype": SAFETENSORS_NAMES[tensor.dtype], "shape": list(tensor.global_shape), "data_offsets": [at, end],
        }  # fmt: skip
        at = end
    if at >= _LARGEST:
        raise InputError("reassemble_all", f"of less than {_LARGEST:,} byte", f"{at:,}", "Run verify() to see what is wrong.")
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, starts, at


def _write_tensor(layout: CheckpointLayout, place: int, path: Path, start: int) -> None:
    """One tensor into its place, a fragment at a time; what lies together is written together, small runs through the file's pages."""
    tensor = layout.tensors[place]
    rows = _whole(layout, place)
    if tensor.bytes == 0:
        return
    scattered = []
    with path.open("r+b", buffering=0) as file:
        for row in rows:
            extent = tuple(layout.fragments.extent[row, : len(tensor.global_shape)].tolist())
            if _run_bytes(tensor, extent) < _SMALL_RUN and extent != tensor.global_shape:
                scattered.append(int(row))
                continue
            offset = layout.fragments.offset[row, : len(tensor.global_shape)].tolist()
            _write_runs(file, start, tensor, offset, _read(layout, int(row)).reshape(extent))
        if scattered and hasattr(os, "posix_fallocate"):
            # a page of a mapped file that the disk has no room for ends the process; this is an error that can be told
            os.posix_fallocate(file.fileno(), start, tensor.bytes)
    if scattered:
        whole: Any = np.memmap(path, numpy_dtype(tensor.dtype), "r+", start, tensor.global_shape or (1,))
        for row in scattered:
            _paste(layout, row, whole if tensor.global_shape else whole.reshape(()))
        del whole


def _run_axis(tensor: TensorInfo, extent: tuple[int, ...]) -> int:
    """Axis from which on a fragment's elements lie together in the tensor: the one before those that it spans."""
    axis = len(extent)
    while axis > 0 and extent[axis - 1] == tensor.global_shape[axis - 1]:
        axis -= 1
    return max(axis - 1, 0)


def _run_bytes(tensor: TensorInfo, extent: tuple[int, ...]) -> int:
    """Bytes of a fragment that lie together in the tensor."""
    return math.prod(extent[_run_axis(tensor, extent) :]) * numpy_dtype(tensor.dtype).itemsize


def _write_runs(file: Any, start: int, tensor: TensorInfo, offset: list[int], part: Column) -> None:
    """A fragment's elements, run by run, to where they belong in the file."""
    axis, item = _run_axis(tensor, part.shape), numpy_dtype(tensor.dtype).itemsize
    steps = [math.prod(tensor.global_shape[place + 1 :]) for place in range(part.ndim)]
    for outer in np.ndindex(part.shape[:axis]):
        index = [*outer, *([0] * (part.ndim - axis))]
        at = sum((begin + more) * step for begin, more, step in zip(offset, index, steps, strict=True))
        raw = np.ascontiguousarray(part[outer]).reshape(-1).view(np.uint8)
        file.seek(start + at * item)
        for begin in range(0, raw.size, _PIECE):
            piece = raw[begin : begin + _PIECE].data
            while piece:
                piece = piece[file.write(piece) :]
