"""One array of an Orbax checkpoint: what its ``.zarray`` or ``zarr.json`` says, and how a chunk of it is decoded."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.json_text import MOST, below, document, field, items, optional, typed, whole_numbers
from mlsysim.layout.layout import Column
from mlsysim.layout.limits import Limits
from mlsysim.layout.orbax_codec import COMPRESSORS, checked, expanded
from mlsysim.specs.dtypes import known_dtypes, numpy_dtype

__all__ = ["ZarrArray", "chunk_place", "decoded", "filled", "read_zarr"]

_FIX = "Refuse this checkpoint, or ask who made it."
# as tensorstore has it
_MOST_AXES = 32
_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_TYPE = re.compile(r"([<>|])([biufc])(\d{1,2})")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_NOT_STORED = 2**64 - 1


@frozen(kw_only=True)
class Codecs:
    """How the elements of a chunk became bytes: axes reordered, cut in inner chunks, or written and then compressed.

    Parameters
    ----------
    big : bool
        Big-endian.
    axes : tuple of int
        Order in which the axes were written.
    steps : tuple of str
        Compressors and ``"crc32c"``, in the order in which they were applied.
    inner : tuple of int, optional
        Shape of the inner chunks of a shard; ``steps`` are then theirs.
    index_checked, index_first : bool
        Whether the shard's index has a checksum, and is at the beginning.
    """

    big: bool
    axes: tuple[int, ...]
    steps: tuple[str, ...]
    inner: tuple[int, ...] | None = None
    index_checked: bool = False
    index_first: bool = False


@frozen(kw_only=True)
class ZarrArray:
    """What is known of an array.

    Parameters
    ----------
    version : int
        2 or 3.
    dtype : str
    shape, chunk : tuple of int
    codecs : Codecs
    lead, separator : str
        How the keys of chunks begin, and what parts their numbers.
    fill : object
        Element of a chunk that is not stored.
    """

    version: int
    dtype: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    codecs: Codecs
    lead: str
    separator: str
    fill: Any

    @property
    def grid(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(-(-size // part) for size, part in zip(self.shape, self.chunk, strict=True))

    @property
    def read_chunk(self) -> tuple[int, ...]:
        """Shape of what can be read at once."""
        return self.codecs.inner or self.chunk


def read_zarr(data: bytes, version: int, place: str, limits: Limits) -> ZarrArray:
    """The array that a document describes.

    Raises
    ------
    InputError
        If it is no such document, or asks for what is not known here: filters, text elements, other codecs.
    """
    table = typed(document(data, place=place, limits=limits), dict, place)
    return _version_2(table, place) if version == 2 else _version_3(table, place)


def _version_2(table: dict[str, Any], place: str) -> ZarrArray:
    _only(field(table, "zarr_format", int, place), 2, below(place, "zarr_format"))
    shape, chunk = _shapes(table, "shape", table, "chunks", place, place)
    if table.get("filters"):
        raise InputError(below(place, "filters"), "none", table["filters"], _FIX)
    order = field(table, "order", str, place)
    axes = tuple(range(len(shape)))
    dtype, big = _dtype_2(field(table, "dtype", str, place), below(place, "dtype"))
    compressor = optional(table, "compressor", dict, place)
    named = [] if compressor is None else [field(compressor, "id", str, below(place, "compressor"))]
    codecs = Codecs(big=big, axes=axes if _one_of(order, ("C", "F"), below(place, "order")) == "C" else axes[::-1],
                    steps=tuple(_one_of(each, COMPRESSORS, below(place, "compressor.id")) for each in named))  # fmt: skip
    separator = _one_of(optional(table, "dimension_separator", str, place) or ".", (".", "/"), below(place, "dimension_separator"))
    fill = _fill(table.get("fill_value"), dtype, below(place, "fill_value"))
    return ZarrArray(version=2, dtype=dtype, shape=shape, chunk=chunk, codecs=codecs, lead="", separator=separator, fill=fill)


def _version_3(table: dict[str, Any], place: str) -> ZarrArray:
    _only(field(table, "zarr_format", int, place), 3, below(place, "zarr_format"))
    _only(field(table, "node_type", str, place), "array", below(place, "node_type"))
    if table.get("storage_transformers"):
        raise InputError(below(place, "storage_transformers"), "none", table["storage_transformers"], _FIX)
    grid = field(table, "chunk_grid", dict, place)
    _only(field(grid, "name", str, below(place, "chunk_grid")), "regular", below(place, "chunk_grid.name"))
    settings = below(place, "chunk_grid.configuration")
    shape, chunk = _shapes(table, "shape", _settings(grid, below(place, "chunk_grid")), "chunk_shape", place, settings)
    dtype = _one_of(field(table, "data_type", str, place), known_dtypes(), below(place, "data_type"))
    encoding = field(table, "chunk_key_encoding", dict, place)
    there = below(place, "chunk_key_encoding")
    kind = _one_of(field(encoding, "name", str, there), ("default", "v2"), below(there, "name"))
    parted = optional(_settings(encoding, there), "separator", str, below(there, "configuration")) or ("/" if kind == "default" else ".")
    separator = _one_of(parted, (".", "/"), below(there, "configuration.separator"))
    codecs = _codecs(items(table, "codecs", dict, place), chunk, below(place, "codecs"))
    fill = _fill(table.get("fill_value"), dtype, below(place, "fill_value"))
    lead = "c" if kind == "default" else ""
    return ZarrArray(version=3, dtype=dtype, shape=shape, chunk=chunk, codecs=codecs, lead=lead, separator=separator, fill=fill)


def _codecs(listed: list[dict[str, Any]], chunk: tuple[int, ...], place: str, *, inner: bool = False) -> Codecs:
    """A list of codecs: an order of axes if any, then shards or bytes, then compression."""
    axes, left = tuple(range(len(chunk))), list(listed)
    at = 0
    if left and left[0].get("name") == "transpose":
        there = below(place, f"{at}.configuration")
        order = field(left.pop(0), "configuration", dict, below(place, f"{at}"))
        axes = whole_numbers(order, "order", there, length=len(chunk))
        if sorted(axes) != list(range(len(chunk))):
            raise InputError(below(there, "order"), "each axis once", list(axes), _FIX)
        at = 1
    if not left:
        raise InputError(place, "a list that turns elements into bytes", Shown("too short a one"), _FIX)
    head, there = left.pop(0), below(place, f"{at}")
    name = _one_of(field(head, "name", str, there), ("bytes",) if inner else ("bytes", "sharding_indexed"), below(there, "name"))
    settings = _settings(head, there)
    if name == "sharding_indexed":
        if left or at:
            raise InputError(place, "shards alone", Shown("other codecs around them"), _FIX)
        return _shards(settings, chunk, below(there, "configuration"))
    endian = optional(settings, "endian", str, below(there, "configuration")) or "little"
    places = (below(place, f"{number + at + 1}") for number in range(len(left)))
    known = ("zstd", "blosc", "gzip", "crc32c")
    steps = tuple(_one_of(field(each, "name", str, its), known, below(its, "name")) for each, its in zip(left, places, strict=True))
    if len(steps) - steps.count("crc32c") > 1:
        raise InputError(place, "compression by one compressor at most", list(steps), _FIX)
    return Codecs(big=_one_of(endian, ("little", "big"), below(there, "configuration.endian")) == "big", axes=axes, steps=steps)


def _shards(settings: dict[str, Any], chunk: tuple[int, ...], place: str) -> Codecs:
    part = whole_numbers(settings, "chunk_shape", place, length=len(chunk))
    if any(small < 1 or large % small for small, large in zip(part, chunk, strict=True)):
        raise InputError(below(place, "chunk_shape"), f"a divisor of {list(chunk)}", list(part), _FIX)
    held = _codecs(items(settings, "codecs", dict, place), part, below(place, "codecs"), inner=True)
    index = _codecs(items(settings, "index_codecs", dict, place), (), below(place, "index_codecs"), inner=True)
    if index.big or index.steps not in ((), ("crc32c",)):
        raise InputError(below(place, "index_codecs"), "little-endian bytes, with crc32c or without", list(index.steps), _FIX)
    where = _one_of(optional(settings, "index_location", str, place) or "end", ("start", "end"), below(place, "index_location"))
    return Codecs(big=held.big, axes=held.axes, steps=held.steps, inner=part, index_checked=bool(index.steps), index_first=where == "start")


def _settings(table: dict[str, Any], place: str) -> dict[str, Any]:
    return optional(table, "configuration", dict, place) or {}


def _shapes(one: Any, first: str, two: Any, second: str, place: str, settings: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = whole_numbers(one, first, place)
    if len(shape) > _MOST_AXES:
        raise InputError(below(place, first), f"of at most {_MOST_AXES} axes", len(shape), _FIX)
    chunk = whole_numbers(two, second, settings, length=len(shape))
    if 0 in chunk:
        raise InputError(below(settings, second), "numbers of at least 1", list(chunk), _FIX)
    # 128 bits is the largest element
    if max(math.prod(shape), math.prod(chunk)) > MOST // 128 or any(max(each) > MOST // 2 for each in (shape, chunk) if each):
        raise InputError(below(place, first), "a shape of at most 2**56 elements", list(shape), _FIX)
    return shape, chunk


def _dtype_2(text: str, place: str) -> tuple[str, bool]:
    found = _TYPE.fullmatch(text)
    if found is None:
        if text in known_dtypes() and text not in ("bool",) and not re.fullmatch(r"(u?int|float|complex)(8|16|32|64|128)", text):
            return text, False
        raise InputError(place, "an element type of numbers", text, _FIX)
    order, kind, size = found.groups()
    name = "bool" if (kind, size) == ("b", "1") else f"{_KINDS[kind]}{8 * int(size)}" if kind != "b" else text
    return _one_of(name, known_dtypes(), place), order == ">"


def _only(value: object, wanted: object, place: str) -> None:
    if value != wanted:
        raise InputError(place, f"{wanted}", value, _FIX)


def _one_of(value: str, known: tuple[str, ...], place: str) -> str:
    if value not in known:
        raise InputError(place, f"one of {', '.join(known)}" if len(known) < 8 else "a known element type", value, _FIX)
    return value


def _fill(value: Any, dtype: str, place: str) -> Any:
    """The fill value as a numpy scalar; zero where there is none."""
    kind = numpy_dtype(dtype)
    words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    number = 0 if value is None else words.get(value, value) if isinstance(value, str) else value
    if isinstance(number, str) and re.fullmatch(r"0x[0-9a-f]{1,32}", number) and len(number) == 2 + 2 * kind.itemsize:
        return np.frombuffer(int(number, 16).to_bytes(kind.itemsize, "little"), kind)[0]
    if isinstance(number, list) and kind.kind == "c" and len(number) == 2:
        pair = [words.get(each, each) if isinstance(each, str) else each for each in number]
        number = complex(*pair) if all(isinstance(each, (int, float)) for each in pair) else None
    whole = kind.kind in "iub"
    if not isinstance(number, (int, float, complex)) or (whole and not isinstance(number, int)):
        raise InputError(place, f"a value of {dtype}", value, _FIX)
    try:
        with np.errstate(all="ignore"):
            return np.array([number]).astype(kind)[0]
    except (OverflowError, ValueError, TypeError):
        raise InputError(place, f"a value of {dtype}", value, _FIX) from None


def chunk_place(array: ZarrArray, key: str) -> tuple[int, ...] | None:
    """Numbers of a chunk on the grid, by the part of its key after the array's name; None where it is no chunk's key."""
    axes = len(array.shape)
    parts = key.split(array.separator)
    if array.lead:
        if parts[0] != array.lead:
            return None
        parts = parts[1:]
    elif axes == 0:
        return () if parts == ["0"] else None
    if len(parts) != axes or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    return tuple(int(part) for part in parts)


def filled(array: ZarrArray, shape: tuple[int, ...], place: str, most: int) -> Column:
    """Elements of a chunk that is not stored."""
    _capped(array, shape, place, most)
    return np.full(shape, array.fill, numpy_dtype(array.dtype))


def _capped(array: ZarrArray, shape: tuple[int, ...], place: str, most: int) -> None:
    size = math.prod(shape) * numpy_dtype(array.dtype).itemsize
    if size > most:
        fix = "Raise the cap with limits=Limits(built_bytes=...): a chunk may take half of it."
        raise InputError(place, f"a chunk of at most {most:,} byte", Shown(f"{size:,}"), fix)


def decoded(array: ZarrArray, data: bytes, place: str, most: int) -> Column:
    """The elements of a whole chunk, at the tensor's edge with what lies beyond it.

    Raises
    ------
    InputError
        If the bytes are not such a chunk, or it is larger than the cap.
    """
    _capped(array, array.chunk, place, most)
    if array.codecs.inner is None:
        return _elements(array, data, array.chunk, place)
    return _shard(array, array.codecs.inner, data, place)


def _elements(array: ZarrArray, data: bytes, shape: tuple[int, ...], place: str) -> Column:
    """Undo compression and the order of axes."""
    codecs, kind = array.codecs, numpy_dtype(array.dtype)
    size = math.prod(shape) * kind.itemsize
    compressed = next((number for number, each in enumerate(codecs.steps) if each != "crc32c"), len(codecs.steps))
    for step in reversed(codecs.steps):
        # checksums that were taken before the compression were compressed with the rest
        data = checked(data, place) if step == "crc32c" else expanded(step, data, size + 4 * compressed, place)
    if len(data) != size:
        raise InputError(place, f"{size:,} byte of elements", Shown(f"{len(data):,}"), _FIX)
    stored = np.frombuffer(data, kind.newbyteorder(">") if codecs.big and kind.itemsize > 1 else kind)
    if kind.kind == "b" and stored.view(np.uint8).max(initial=0) > 1:
        raise InputError(place, "true or false throughout", Shown("other bytes"), _FIX)
    laid = stored.reshape([shape[axis] for axis in codecs.axes])
    return laid.transpose(np.argsort(codecs.axes)).astype(kind, copy=False) if shape else laid.astype(kind, copy=False)


def _shard(array: ZarrArray, inner: tuple[int, ...], data: bytes, place: str) -> Column:
    """A shard: an index says where each inner chunk is."""
    codecs = array.codecs
    grid = tuple(large // small for large, small in zip(array.chunk, inner, strict=True))
    size = 16 * math.prod(grid) + 4 * codecs.index_checked
    if size > len(data):
        raise InputError(place, f"a shard with an index of {size:,} byte", Shown(f"{len(data):,} byte"), _FIX)
    raw = data[:size] if codecs.index_first else data[len(data) - size :]
    index = np.frombuffer(checked(raw, place) if codecs.index_checked else raw, "<u8").reshape(-1, 2)
    whole = np.full(array.chunk, array.fill, numpy_dtype(array.dtype))
    for number, at in enumerate(np.ndindex(*grid)):
        start, length = int(index[number, 0]), int(index[number, 1])
        if start == length == _NOT_STORED:
            continue
        if start + length > len(data):
            raise InputError(place, f"a shard of at least {start + length:,} byte", Shown(f"{len(data):,} byte"), _FIX)
        part = tuple(slice(low * reach, (low + 1) * reach) for low, reach in zip(at, inner, strict=True))
        whole[part] = _elements(array, data[start : start + length], inner, f"{place}: inner chunk {number}")
    return whole
