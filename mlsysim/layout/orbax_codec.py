"""Decompression in bounded memory: of zstd and blosc by tensorstore, of gzip and bzip2 by Python itself.

tensorstore never opens a file here, nor sees a specification that came with the checkpoint: bytes go into a store in
memory, under a specification of our making. Its zip store decodes zstd as a stream and stops at the size that the zip's
directory states, so that no frame can fill the memory, whatever it expands to.
"""

from __future__ import annotations

import bz2
import struct
import zlib
from typing import Any

import numpy as np

from mlsysim.errors import InputError, Shown

__all__ = ["COMPRESSORS", "INSTALL", "LIBRARY", "checked", "expanded", "tensorstore", "unzstd"]

LIBRARY = "tensorstore"
INSTALL = 'Install it with: pip install "mlsysim[orbax]"'
_FIX = "Refuse this checkpoint, or ask who made it."
# the largest block of a zstd frame, by the format
_BLOCK = 2**17
_MAGIC = b"\x28\xb5\x2f\xfd"
# a zip states sizes in 32 bits
_ZIP_MOST = 2**32 - 2
# a checksum of less than this is taken here: the index of a shard, say
_SHORT = 512
COMPRESSORS = ("zstd", "blosc", "gzip", "zlib", "bz2")


def tensorstore() -> Any:
    """The library, or a sentence on how to install it."""
    try:
        import tensorstore as library
    except ImportError:
        raise InputError(LIBRARY, "there to read the chunks of an Orbax checkpoint", Shown("none"), INSTALL) from None
    return library


def checked(data: bytes, place: str) -> bytes:
    """Bytes without the CRC-32C at their end, which must be theirs."""
    size = len(data) - 4
    if size < 0:
        raise InputError(place, "as long as its checksum", Shown(f"{len(data)} byte"), _FIX)
    if size < _SHORT:
        if _crc32c(data[:size]) != int.from_bytes(data[size:], "little"):
            raise InputError(place, "data with its CRC-32C after it", Shown("another checksum"), _FIX)
        return data[:size]
    codecs = [{"name": "bytes"}, {"name": "crc32c"}]
    grid = {"name": "regular", "configuration": {"chunk_shape": [size]}}
    metadata = {"shape": [size], "chunk_grid": grid, "data_type": "uint8", "codecs": codecs, "fill_value": 0}
    return _stored("zarr3", metadata, "c/0", data, place)


def _crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _table(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = tuple(_table(byte) for byte in range(256))


def expanded(compressor: str, data: bytes, size: int, place: str) -> bytes:
    """What was compressed, which must be of a size known beforehand.

    Raises
    ------
    InputError
        If it is not of that size, or damaged.
    """
    if compressor == "zstd":
        found = _unzstd_exactly(data, size, place)
    elif compressor == "blosc":
        # the header states what the decoder allocates
        if len(data) < 16 or struct.unpack_from("<I", data, 4)[0] != size or struct.unpack_from("<I", data, 12)[0] != len(data):
            raise InputError(place, f"a blosc buffer of {size:,} byte", Shown("a header of other sizes"), _FIX)
        metadata = {"shape": [size], "chunks": [max(size, 1)], "dtype": "|u1", "compressor": {"id": "blosc"}, "fill_value": None}
        found = b"" if size == 0 else _stored("zarr", metadata, "0", data, place)
    else:
        found = _inflated(compressor, data, size, place)
    if len(found) != size:
        raise InputError(place, f"{size:,} byte once decompressed", Shown(f"{len(found):,} or more"), _FIX)
    return found


def _inflated(compressor: str, data: bytes, size: int, place: str) -> bytes:
    decoder: Any = bz2.BZ2Decompressor() if compressor == "bz2" else zlib.decompressobj(47)
    try:
        found: bytes = decoder.decompress(data, size + 1)
    except (OSError, ValueError, zlib.error):
        raise InputError(place, f"whole {compressor} data", Shown("damaged data"), _FIX) from None
    if len(found) == size and not decoder.eof:
        raise InputError(place, f"whole {compressor} data", Shown("data that is cut"), _FIX)
    return found


def _stored(driver: str, metadata: dict[str, Any], key: str, data: bytes, place: str) -> bytes:
    """One chunk of bytes, decoded under a specification of our making."""
    library = tensorstore()
    context = library.Context({"cache_pool": {"total_bytes_limit": 0}})
    try:
        store = library.KvStore.open({"driver": "memory"}, context=context).result()
        store[key] = data
        array = library.open(
            {"driver": driver, "kvstore": {"driver": "memory"}, "metadata": metadata},
            context=context, open=True, assume_metadata=True,
        ).result()  # fmt: skip
        found: bytes = array.read().result().tobytes()
    # tensorstore raises whatever its status codes map to; nothing of ours is called within
    except Exception as error:
        raise InputError(place, "data that decodes", Shown(_reason(error)), _FIX) from None
    return found


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:60] or type(error).__name__


def _zipped(frame: bytes, size: int, place: str) -> bytes:
    """The first bytes of what a zstd frame holds: decoding stops there."""
    library = tensorstore()
    if max(size, len(frame)) > _ZIP_MOST:
        raise InputError(place, f"at most {_ZIP_MOST:,} byte", Shown(f"{max(size, len(frame)):,}"), _FIX)
    common = (0, 93, 0, 0x21, 0, len(frame), size, 1, 0)
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 63, *common) + b"x"
    central = struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 63, 63, *common, 0, 0, 0, 0, 0) + b"x"
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local) + len(frame), 0)
    context = library.Context({"cache_pool": {"total_bytes_limit": 0}})
    try:
        library.KvStore.open({"driver": "memory"}, context=context).result()["a"] = b"".join((local, frame, central, end))
        store = library.KvStore.open({"driver": "zip", "base": {"driver": "memory", "path": "a"}}, context=context).result()
        found: bytes = store["x"]
    # as above; where the frame holds less than that, the member is "not found"
    except Exception as error:
        raise InputError(place, f"a zstd frame of {size:,} byte", Shown(_reason(error)), _FIX) from None
    return found


class _Frame:
    """The outline of a zstd frame: its blocks are stepped over, nothing is decoded."""

    __slots__ = ("body", "bound", "content", "data", "end", "last", "window")

    def __init__(self, data: bytes, most: int, place: str) -> None:
        if len(data) < 9 or not data.startswith(_MAGIC) or data[4] & 0b1011:
            raise InputError(place, "a zstd frame without a dictionary", data[:9], _FIX)
        kind, single = data[4] >> 6, bool(data[4] & 32)
        width = (int(single), 2, 4, 8)[kind]
        start = 6 - single
        self.data, self.body = data, start + width
        self.content = int.from_bytes(data[start : self.body], "little") + 256 * (kind == 1) if width else None
        self.window = self.content or 1 if single else (1 << 10 + (data[5] >> 3)) * (8 + (data[5] & 7)) // 8
        self._step(most, place)

    def _step(self, most: int, place: str) -> None:
        data, at, self.bound, blocks = self.data, self.body, 0, 0
        while True:
            header = int.from_bytes(data[at : at + 3], "little")
            kind, size = header >> 1 & 3, header >> 3
            self.last = at
            at += 3 + (1 if kind == 1 else size)
            blocks += 1
            if at > len(data) or kind == 3 or (kind < 2 and size > _BLOCK) or blocks > 1024 + most // 1024:
                raise InputError(f"{place}: zstd block {blocks}", "whole, one of few", Shown("a damaged frame"), _FIX)
            self.bound += size if kind < 2 else _BLOCK
            if header & 1:
                break
        self.end = at
        if at + 4 * (data[4] >> 2 & 1) != len(data):
            raise InputError(place, "one zstd frame", Shown(f"{len(data) - at:,} byte after its last block"), _FIX)

    def with_filler(self, byte: int, count: int) -> bytes:
        """A frame that does not state its length, with so many bytes added: can be read without knowing where it ends."""
        block = min(self.window, _BLOCK)
        sizes = [block] * (count // block) + [count % block]
        heads = (size << 3 | 2 | (place == len(sizes) - 1) for place, size in enumerate(sizes))
        fill = b"".join(head.to_bytes(3, "little") + bytes([byte]) for head in heads)
        no_longer_last = bytes([self.data[self.last] & 0xFE])
        return _MAGIC + b"\0" + self.data[5 : self.last] + no_longer_last + self.data[self.last + 1 : self.end] + fill


def unzstd(data: bytes, most: int, place: str) -> bytes:
    """What one zstd frame holds, at most so many bytes.

    Raises
    ------
    InputError
        If it is damaged, no single frame, or may hold more.
    """
    frame = _Frame(data, most, place)
    if frame.content is not None:
        if frame.content > most:
            raise InputError(place, f"at most {most:,} byte", Shown(f"{frame.content:,}"), _FIX)
        return _zipped(data, frame.content, place)
    if frame.bound > most + _BLOCK:
        raise InputError(place, f"at most {most:,} byte", Shown("a zstd frame that may hold more"), _FIX)
    # the frame ends where two fillers begin to differ
    count = frame.bound + 1
    one, two = (_zipped(frame.with_filler(byte, count), count, place) for byte in (0, 255))
    return one[: int(np.argmax(np.frombuffer(one, np.uint8) != np.frombuffer(two, np.uint8)))]


def _unzstd_exactly(data: bytes, size: int, place: str) -> bytes:
    frame = _Frame(data, size, place)
    if frame.content is not None and frame.content != size:
        raise InputError(place, f"{size:,} byte once decompressed", Shown(f"{frame.content:,}"), _FIX)
    if frame.content is not None:
        return _zipped(data, size, place)
    # one byte more than is wanted must be the first one of the filler
    found = _zipped(frame.with_filler(170, 1), size + 1, place)
    if found[size] != 170:
        raise InputError(place, f"{size:,} byte once decompressed", Shown("more"), _FIX)
    return found[:size]
