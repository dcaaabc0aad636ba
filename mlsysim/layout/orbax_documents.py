"""The JSON documents of an Orbax checkpoint: names and kinds of the leaves, meshes and partitions, which processes wrote."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

from attrs import frozen

from mlsysim.errors import InputError
from mlsysim.layout.json_text import MOST, below, document, field, items, optional, typed, whole_numbers
from mlsysim.layout.limits import Limits

__all__ = ["Leaf", "Sharding", "read_array_metadata", "read_leaves", "read_sharding"]

_FIX = "Refuse this checkpoint, or ask who made it."
# leaves that are stored as arrays; empty containers are not stored
_ARRAYS = ("jax.Array", "np.ndarray", "scalar")


@frozen(kw_only=True)
class Leaf:
    """A leaf of the saved tree.

    Parameters
    ----------
    name : str
        Its keys, joined by dots.
    array, stored : bool
        Whether it is stored as an array, or at all.
    """

    name: str
    array: bool
    stored: bool


@frozen(kw_only=True)
class Sharding:
    """How an array lay on the devices.

    Parameters
    ----------
    kind : str
        ``"NamedSharding"``, ``"SingleDeviceSharding"``, ...
    mesh : dict of str to int
        Devices along each axis of the mesh.
    partition : tuple of tuple of str
        Axes of the mesh along each axis of the array.
    replicas : int or None
        How many devices held each part; None where it does not follow.
    """

    kind: str
    mesh: dict[str, int]
    partition: tuple[tuple[str, ...], ...]
    replicas: int | None


def read_leaves(data: bytes, place: str, limits: Limits) -> tuple[list[Leaf], dict[str, Any]]:
    """The leaves that ``_METADATA`` names, and its switches: ``use_ocdbt``, ``use_zarr3``, ..."""
    table = typed(document(data, place=place, limits=limits), dict, place)
    tree = optional(table, "tree_metadata", dict, place) or {}
    leaves = []
    for key, entry in tree.items():
        there = below(place, f"tree_metadata.{key}")
        keys = [each.get("key") for each in items(entry, "key_metadata", dict, there)]
        if not all(isinstance(each, (str, int)) for each in keys):
            raise InputError(below(there, "key_metadata"), "texts and whole numbers", keys, _FIX)
        value = field(entry, "value_metadata", dict, there)
        kind = field(value, "value_type", str, below(there, "value_metadata"))
        skipped = optional(value, "skip_deserialize", bool, below(there, "value_metadata"))
        leaves.append(Leaf(name=".".join(str(each) for each in keys), array=kind in _ARRAYS, stored=not skipped))
    switches = ("use_ocdbt", "use_zarr3", "store_array_data_equal_to_fill_value")
    return leaves, {switch: optional(table, switch, bool, place) for switch in switches}


def read_array_metadata(data: bytes, place: str, limits: Limits) -> dict[str, dict[str, tuple[int, ...]]]:
    """Shape of a write and of a chunk by array, as one process noted them."""
    table = typed(document(data, place=place, limits=limits), dict, place)
    found = {}
    for number, entry in enumerate(items(table, "array_metadatas", dict, place)):
        there = below(place, f"array_metadatas.{number}")
        inner = field(entry, "array_metadata", dict, there)
        there = below(there, "array_metadata")
        shapes = {key: whole_numbers(inner, key, there) for key in ("write_shape", "chunk_shape") if inner.get(key) is not None}
        found[field(inner, "param_name", str, there)] = shapes
    return found


def read_sharding(data: bytes, place: str, limits: Limits) -> dict[str, Sharding]:
    """The sharding of each array; its name is the key in base64."""
    table = typed(document(data, place=place, limits=limits), dict, place)
    found = {}
    for key, text in table.items():
        there = below(place, key)
        try:
            name = base64.b64decode(key, validate=True).decode()
        except (binascii.Error, ValueError):
            raise InputError(there, "the name of an array in base64", key, _FIX) from None
        inner = document(typed(text, str, there).encode(), place=there, limits=limits)
        if inner is not None:
            found[name] = _sharding(typed(inner, dict, there), there)
    return found


def _sharding(table: dict[str, Any], place: str) -> Sharding:
    kind = field(table, "sharding_type", str, place)
    if kind != "NamedSharding":
        return Sharding(kind=kind, mesh={}, partition=(), replicas=1 if kind == "SingleDeviceSharding" else None)
    names = items(table, "axis_names", str, place)
    sizes = whole_numbers(table, "shape", place, length=len(names))
    if 0 in sizes or math.prod(sizes) > MOST or len(set(names)) != len(names):
        raise InputError(below(place, "shape"), "a mesh of at least 1 along each of its named axes", list(sizes), _FIX)
    mesh = dict(zip(names, sizes, strict=True))
    partition = tuple(_axes(each, mesh, below(place, "partition_spec")) for each in field(table, "partition_spec", list, place))
    used = [axis for axes in partition for axis in axes]
    if len(set(used)) != len(used):
        raise InputError(below(place, "partition_spec"), "each axis of the mesh once at most", used, _FIX)
    return Sharding(kind=kind, mesh=mesh, partition=partition, replicas=math.prod(sizes) // math.prod(mesh[axis] for axis in used))


def _axes(value: Any, mesh: dict[str, int], place: str) -> tuple[str, ...]:
    listed = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(each, str) and each in mesh for each in listed):
        raise InputError(place, f"made of the mesh's axes {', '.join(mesh)}", value, _FIX)
    return tuple(listed)
