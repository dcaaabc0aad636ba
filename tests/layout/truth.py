"""Compares a layout with the right answers that lie beside a sample."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from mlsysim.layout import CheckpointLayout
from mlsysim.layout.safetensors_header import packed
from mlsysim.specs.dtypes import bits_of


def check_against_truth(layout: CheckpointLayout, truth: dict[str, Any], *, payload: bool = True) -> None:
    """Assert everything that ``truth["layout"]`` (or ``truth`` itself) says; with payload, the digest of every whole tensor too."""
    told = truth.get("layout", truth)
    assert told["format"] == layout.format
    assert told["ranks"] == layout.ranks
    assert told["replicas_recorded"] == layout.replicas_recorded
    assert told["logical_bytes"] == layout.logical_bytes.base
    assert told["payload_bytes"] == layout.payload_bytes.base
    assert told["stored_bytes"] == layout.stored_bytes.base
    if told.get("payload_bytes_per_rank") is not None:
        assert told["payload_bytes_per_rank"] == layout.bytes_per_rank.base.tolist()
    if told.get("stored_bytes_per_rank") is not None:
        assert told["stored_bytes_per_rank"] == layout.stored_bytes_per_rank.base.tolist()
    if "metadata_bytes" in told:
        assert told["metadata_bytes"] == layout.metadata_bytes.base
        assert told["metadata_files"] == layout.metadata_files
    assert set(_names(told.get("objects", ()))) == set(layout.objects)
    assert sorted(_files(told)) == sorted(_files_of(layout))
    assert sorted(_tensors(told)) == sorted((each.name, each.dtype, each.global_shape, each.bytes) for each in layout.tensors)
    for tensor in told["tensors"]:
        place = layout.place_of(tensor["name"])
        keys = [key for key in ("file_offset", "stored_bytes") if key in tensor["chunks"][0]]
        assert sorted(_chunks(tensor, keys), key=repr) == sorted(_chunks_of(layout, place, keys), key=repr), tensor["name"]
        if payload:
            array = layout.reassemble(tensor["name"])
            assert tuple(tensor["global_shape"]) == array.shape
            raw = packed(array, tensor["dtype"]) if bits_of(tensor["dtype"]) < 8 else np.ascontiguousarray(array)
            assert tensor["sha256"] == hashlib.sha256(raw.tobytes()).hexdigest(), tensor["name"]


def _names(objects: Any) -> list[str]:
    return [each["name"] if isinstance(each, dict) else each for each in objects]


def _rank(rank: int | None) -> int:
    return -1 if rank is None else rank


def _file(layout: CheckpointLayout, row: int) -> str | None:
    """The file of a fragment; None where its bytes lie in the metadata."""
    file = int(layout.fragments.file[row])
    return layout.files[file] if file >= 0 else None


def _files(told: dict[str, Any]) -> list[Any]:
    return [(each["file"], _rank(each["rank"]), each["payload_bytes"], each["stored_bytes"]) for each in told["files"]]


def _files_of(layout: CheckpointLayout) -> list[Any]:
    inside = layout.fragments.file >= 0
    held = np.bincount(layout.fragments.file[inside], weights=layout.fragments.payload_bytes[inside], minlength=len(layout.files))
    files = layout.data_files
    return list(zip(files.names, files.rank.tolist(), held.tolist(), files.size.tolist(), strict=True))


def _tensors(told: dict[str, Any]) -> list[Any]:
    return [(each["name"], each["dtype"], tuple(each["global_shape"]), each["bytes"]) for each in told["tensors"]]


def _chunks(tensor: dict[str, Any], keys: list[str]) -> list[Any]:
    return [
        (
            _rank(each["rank"]), each["file"], tuple(each["offset"]), tuple(each["extent"]), each["payload_bytes"],
            *(_rank(each[key]) for key in keys),
        )
        for each in tensor["chunks"]
    ]  # fmt: skip


def _chunks_of(layout: CheckpointLayout, place: int, keys: list[str]) -> list[Any]:
    fragments, axes = layout.fragments, len(layout.tensors[place].global_shape)
    return [
        (
            int(fragments.rank[row]), _file(layout, row), tuple(fragments.offset[row, :axes].tolist()),
            tuple(fragments.extent[row, :axes].tolist()), int(fragments.payload_bytes[row]),
            *(int(getattr(fragments, key)[row]) for key in keys),
        )
        for row in layout.rows_of(place).tolist()
    ]  # fmt: skip
