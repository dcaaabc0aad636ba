"""Whole tensors from their fragments, and all of them into one safetensors file."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from mlsysim.errors import InputError
from mlsysim.layout.coverage import coverage
from mlsysim.layout.dtypes import bits_of, numpy_dtype
from mlsysim.layout.layout import CheckpointLayout, Column, TensorInfo

__all__ = ["SAFETENSORS_NAMES", "reassemble", "reassemble_all"]

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
        Path(temporary).replace(out)
    except OSError as error:
        raise InputError(f"{out}", "a file that can be written", error.strerror or "an error", fix) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()


def _header(layout: CheckpointLayout) -> tuple[bytes, list[int], int]:
    """The header, where each tensor begins in the data, and the size of the data: largest elements first, for alignment."""
    order = sorted(range(len(layout.tensors)), key=lambda place: (-bits_of(layout.tensors[place].dtype), layout.tensors[place].name))
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    starts, at = [0] * len(layout.tensors), 0
    for place in order:
        tensor = layout.tensors[place]
        if tensor.dtype not in SAFETENSORS_NAMES:
            fix = "Reassemble it alone, with reassemble(name)."
            raise InputError(tensor.name, "of an element type that safetensors has a name for", tensor.dtype, fix)
        starts[place] = at
        end = at + tensor.bytes
        entries[tensor.name] = {
            "dtype": SAFETENSORS_NAMES[tensor.dtype], "shape": list(tensor.global_shape), "data_offsets": [at, end],
        }  # fmt: skip
        at = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, starts, at


def _write_tensor(layout: CheckpointLayout, place: int, path: Path, start: int) -> None:
    """One tensor into its place: a fragment is in memory at a time, the rest is the file's own pages."""
    tensor = layout.tensors[place]
    rows = _whole(layout, place)
    if tensor.bytes == 0:
        return
    whole: Any = np.memmap(path, numpy_dtype(tensor.dtype), "r+", start, tensor.global_shape or (1,))
    target = whole if tensor.global_shape else whole.reshape(())
    for row in rows:
        _paste(layout, int(row), target)
    del whole, target
