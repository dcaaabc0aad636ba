"""The header of a safetensors file, by exactly the rules of the reference library.

Stricter in a few things: a name there twice (the library takes two equal entries); whole numbers beyond 63 bits and more than
100 levels of nesting (which matter only in tensors without elements, and in keys that the format does not know); more than 64 axes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from mlsysim.errors import InputError, Shown, nearest
from mlsysim.layout.json_text import MOST, below, document, typed
from mlsysim.layout.layout import Column
from mlsysim.layout.limits import Limits, file_size, opened
from mlsysim.specs.dtypes import bits_of, numpy_dtype

__all__ = ["AXES", "DTYPES", "Header", "elements", "mapped", "packed", "read_header"]

# safetensors' name of each element type, and ours
DTYPES = {
    "BOOL": "bool", "F4": "float4_e2m1fn", "F6_E2M3": "float6_e2m3fn", "F6_E3M2": "float6_e3m2fn", "U8": "uint8", "I8": "int8",
    "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn", "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E8M0": "float8_e8m0fnu", "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32",
    "U32": "uint32", "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64", "U64": "uint64",
}  # fmt: skip
# most axes that an array can have
AXES = 64
_FIX = "Refuse this file, or write it again."
_MOST_BITS = 2**64 - 1


@frozen(eq=False)
class Header:
    """What a safetensors file says of itself.

    Parameters
    ----------
    names, dtypes : tuple of str
        The tensors, in the order of the header; element types by our names.
    shapes : tuple of tuple of int
    begin, end : array (tensors,) of int64
        Where each tensor lies in the file.
    length : int
        Bytes of the header alone.
    size : int
        Bytes of the file.
    metadata : dict of str to str, or None
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    begin: Column
    end: Column
    length: int
    size: int
    metadata: dict[str, str] | None

    @property
    def claimed(self) -> int:
        """Bytes of the file that header and tensors take."""
        return max(int(self.end.max(initial=0)), 8 + self.length)


def read_header(path: Path, name: str, limits: Limits, *, exact: bool = True) -> Header:
    """The header of one file, checked.

    Parameters
    ----------
    path : Path
    name : str
        The file as errors name it.
    limits : Limits
        ``header_bytes`` caps the header before it is read.
    exact : bool
        Whether the tensors must end where the file ends. Where not, the caller has to look at ``claimed`` and ``size``.

    Raises
    ------
    InputError
        Where the reference library refuses the file, or the header names a tensor twice.
    """
    size = file_size(path)
    if size is None:
        raise InputError(name, "a file that can be read", path.name, "Check the path and its permissions.")
    try:
        with opened(path) as file:
            lead = file.read(8)
            if len(lead) < 8:
                raise InputError(name, "at least 8 byte long", Shown(f"{len(lead)} byte"), _FIX)
            length = int.from_bytes(lead, "little")
            if length > limits.header_bytes:
                fix = "Raise the cap with limits=Limits(header_bytes=...) if you trust it."
                raise InputError(f"{name}: header", f"at most {limits.header_bytes:,} byte", Shown(f"{length:,} byte"), fix)
            if length + 8 > size:
                raise InputError(f"{name}: header", f"inside the file of {size:,} byte", Shown(f"{length:,} byte"), _FIX)
            data = file.read(length)
    except OSError as error:
        raise InputError(name, "a file that can be read", Shown(error.strerror or "an error"), "Check its permissions.") from None
    header = _parsed(data, size, name, limits)
    if exact and header.claimed != size:
        raise InputError(name, f"{header.claimed:,} byte long, as its header says", Shown(f"{size:,} byte"), _FIX)
    return header


def _parsed(data: bytes, size: int, name: str, limits: Limits) -> Header:
    place = f"{name}: header"
    table = typed(document(data, place=place, limits=limits, most=limits.header_bytes), dict, place)
    metadata = table.pop("__metadata__", None)
    if metadata is not None:
        for key, value in typed(metadata, dict, below(place, "__metadata__")).items():
            typed(value, str, below(place, f"__metadata__.{key}"))
    entries = [_entry(each, place, key) for key, each in table.items()]
    start = 8 + len(data)
    spans = np.array([each[2] for each in entries], np.int64).reshape(-1, 2)
    _tiled(spans, tuple(table), place)
    if int(spans.max(initial=0)) > MOST - start:
        raise InputError(place, "of tensors of less than 2**63 byte", Shown(f"{int(spans.max()):,} byte"), _FIX)
    return Header(
        tuple(table), tuple(each[0] for each in entries), tuple(each[1] for each in entries),
        spans[:, 0] + start, spans[:, 1] + start, len(data), size, metadata,
    )  # fmt: skip


def _entry(entry: Any, place: str, name: str) -> tuple[str, tuple[int, ...], list[int]]:
    """Element type, shape and range of one tensor."""
    # the library also takes the three values in a list
    table = dict(zip(("dtype", "shape", "data_offsets"), entry, strict=False)) if type(entry) is list and len(entry) == 3 else entry
    if type(table) is not dict:
        table = typed(table, dict, below(place, name))
    dtype, shape, span = table.get("dtype"), table.get("shape"), table.get("data_offsets")
    if type(dtype) is dict and len(dtype) == 1 and next(iter(dtype.values())) is None:
        dtype = next(iter(dtype))
    if type(dtype) is not str or dtype not in DTYPES:
        raise InputError(below(place, f"{name}.dtype"), "an element type of safetensors", dtype, nearest(dtype, DTYPES))
    if type(shape) is not list or not _natural(shape) or len(shape) > AXES:
        raise InputError(below(place, f"{name}.shape"), f"a list of at most {AXES} whole numbers of at least 0", shape, _FIX)
    if type(span) is not list or len(span) != 2 or not _natural(span):
        raise InputError(below(place, f"{name}.data_offsets"), "two whole numbers of at least 0", span, _FIX)
    _sized(bits_of(DTYPES[dtype]), shape, span, place, name)
    return DTYPES[dtype], tuple(shape), span


def _natural(numbers: list[Any]) -> bool:
    # the library takes neither true nor 1.0
    for each in numbers:  # noqa: SIM110 - three times as fast as all()
        if type(each) is not int or each < 0:
            return False
    return True


def _sized(bits: int, shape: list[int], span: list[int], place: str, name: str) -> None:
    """Shape times bits must be the range; an overflow on the way is refused, even where a later extent is 0."""
    count = 1
    for extent in shape:
        count *= extent
        if count > _MOST_BITS:
            break
    count *= bits
    if count > _MOST_BITS:
        raise InputError(below(place, f"{name}.shape"), "of less than 2**64 bits", shape, _FIX)
    if count % 8 or count // 8 != span[1] - span[0]:
        rule = f"{count // 8:,} byte apart, as shape and element type say" if count % 8 == 0 else "at whole bytes"
        raise InputError(below(place, f"{name}.data_offsets"), rule, span, _FIX)


def _tiled(spans: Column, names: tuple[str, ...], place: str) -> None:
    """The ranges, sorted, must follow each other from 0 without gap or overlap."""
    order = np.lexsort((spans[:, 1], spans[:, 0]))
    begin, end = spans[order, 0], spans[order, 1]
    due = np.concatenate(([0], end[:-1])) if len(end) else end
    wrong = np.flatnonzero((begin != due) | (end < begin))
    if len(wrong):
        first = int(wrong[0])
        where = below(place, f"{names[int(order[first])]}.data_offsets")
        raise InputError(where, f"a range that begins at {due[first]:,}, where the one before it ends", spans[order[first]].tolist(), _FIX)


def mapped(path: Path, place: str, start: int, length: int) -> Column:
    """Bytes of a file, read as they are looked at; refused where the file ends before."""
    size = file_size(path)
    if size is None or start + length > size:
        got = Shown("no file" if size is None else f"{size:,} byte")
        raise InputError(place, f"at least {start + length:,} byte long", got, "Copy the file again.")
    if not length:
        return np.zeros(0, np.uint8)
    try:
        with opened(path) as file:
            return np.memmap(file, np.uint8, "r", start, (length,))
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or str(error)
        raise InputError(place, "a file that can be read", Shown(told), "Check its permissions.") from None


def elements(raw: Column, dtype: str, shape: tuple[int, ...], place: str) -> Column:
    """Raw little-endian bytes as an array; a sub-byte type is unpacked to one element a byte, the low bits first."""
    bits = bits_of(dtype)
    count = 1
    for extent in shape:
        count *= extent
    if (count * bits + 7) // 8 != len(raw):
        raise InputError(place, f"{(count * bits + 7) // 8:,} byte", Shown(f"{len(raw):,} byte"), _FIX)
    if bits < 8:
        raw = _unpacked(raw, bits)[:count]
    try:
        return raw.view(numpy_dtype(dtype)).reshape(shape)
    except ValueError:
        raise InputError(place, "of a shape that an array can have", shape, _FIX) from None


def _unpacked(raw: Column, bits: int) -> Column:
    if bits == 4:
        return np.stack((raw & 15, raw >> 4), axis=-1).reshape(-1)
    single: Column = np.unpackbits(raw, bitorder="little")
    single = single[: len(single) // bits * bits].reshape(-1, bits)
    return np.packbits(np.pad(single, ((0, 0), (0, 8 - bits))), axis=1, bitorder="little").reshape(-1)


def packed(array: Column, dtype: str) -> Column:
    """The raw bytes of an array, as safetensors stores them: the inverse of ``elements``."""
    raw: Column = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    bits = bits_of(dtype)
    if bits == 8 * numpy_dtype(dtype).itemsize:
        return raw
    single = np.unpackbits(raw, bitorder="little").reshape(-1, 8)[:, :bits]
    return np.packbits(single.reshape(-1), bitorder="little")
