"""Writes OCDBT databases byte by byte, good or hostile, with right lengths and checksums."""

from __future__ import annotations

import struct
from pathlib import Path

MANIFEST, NODE = 0x0CDB3A2A, 0x0CDB20DE
ABSENT = 2**64 - 1


def crc32c(data: bytes) -> int:
    """The checksum, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def varints(values: list[int]) -> bytes:
    return b"".join(map(varint, values))


def table(paths: list[tuple[str, str]]) -> bytes:
    """A table of files: pairs of base path and relative path."""
    whole = [(base + name).encode() for base, name in paths]
    return (
        varint(len(paths)) + varints([0] * (len(paths) - 1)) + varints([len(each) for each in whole])
        + varints([len(base.encode()) for base, _ in paths]) + b"".join(whole)
    )  # fmt: skip


def wrapped(magic: int, body: bytes, compression: int = 0) -> bytes:
    tail = varint(0) + varint(compression) + body
    head = struct.pack(">I", magic) + struct.pack("<Q", 12 + len(tail) + 4)
    return head + tail + struct.pack("<I", crc32c(head + tail))


def leaf(entries: list[tuple[str, bytes | tuple[int, int, int]]], paths: list[tuple[str, str]]) -> bytes:
    """Body of a leaf: values are bytes, or place in ``paths``, offset and length."""
    keys = [key.encode() for key, _ in entries]
    values = [value for _, value in entries]
    outside = [value for value in values if not isinstance(value, bytes)]
    return (
        b"\0" + table(paths) + varint(len(keys)) + varints([0] * (len(keys) - 1)) + varints([len(key) for key in keys]) + b"".join(keys)
        + varints([len(value) if isinstance(value, bytes) else value[2] for value in values])
        + varints([int(not isinstance(value, bytes)) for value in values])
        + varints([value[0] for value in outside]) + varints([value[1] for value in outside])
        + b"".join(value for value in values if isinstance(value, bytes))
    )  # fmt: skip


def interior(height: int, children: list[tuple[str, int, int, int]], paths: list[tuple[str, str]]) -> bytes:
    """Body of an interior node: children are key, place in ``paths``, offset and length."""
    keys = [key.encode() for key, *_ in children]
    return (
        bytes([height]) + table(paths) + varint(len(keys)) + varints([0] * (len(keys) - 1)) + varints([len(key) for key in keys])
        + varints([0] * len(keys)) + b"".join(keys) + b"".join(varints([child[column] for child in children]) for column in (1, 2, 3))
        + varints([0] * 3 * len(keys))
    )  # fmt: skip


def manifest(path: tuple[str, str], offset: int, length: int, height: int = 0) -> bytes:
    """A manifest with one version."""
    version = varint(1) + varint(1) + bytes([height]) + varint(0) + varint(offset) + varint(length) + varints([1, 1, 1]) + bytes(8)
    return wrapped(MANIFEST, bytes(16) + b"\0" + varint(1024) + varint(2**23) + b"\4" + varint(0) + table([path]) + version + varint(0))


def write(folder: Path, body: bytes, *, height: int = 0, compression: int = 0, metadata: bytes = b"{}") -> Path:
    """A checkpoint whose tree is one node."""
    node = wrapped(NODE, body, compression)
    (folder / "d").mkdir(parents=True, exist_ok=True)
    (folder / "d" / "n").write_bytes(node)
    (folder / "manifest.ocdbt").write_bytes(manifest(("", "d/n"), 0, len(node), height))
    (folder / "_METADATA").write_bytes(metadata)
    return folder


def rle(byte: int, count: int, stated: int | None = None) -> bytes:
    """A zstd frame of one byte repeated so often, a few bytes long; its header states a length where asked to."""
    head = b"\x28\xb5\x2f\xfd" + (b"\0\x68" if stated is None else b"\x80\x68" + struct.pack("<I", stated))
    sizes = [2**17] * (count // 2**17) + [count % 2**17]
    return head + b"".join((size << 3 | 2 | (at == len(sizes) - 1)).to_bytes(3, "little") + bytes([byte]) for at, size in enumerate(sizes))
