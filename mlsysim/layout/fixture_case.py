"""The document of a fixture case: what it may hold, and its canonical digest."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.json_text import MOST, below, document, field, items, optional, typed, whole_numbers
from mlsysim.layout.limits import Limits
from mlsysim.specs.dtypes import bits_of

__all__ = ["SCHEMA_ID", "SCHEMA_VERSION", "Case", "CaseFragment", "Oracle", "Padding", "Replica", "manifest_digest", "read_case"]

SCHEMA_ID = "obliteratus.checkpoint-fixture-case"
SCHEMA_VERSION = "1.0.0"
# keys of a fragment that its digest leaves out: where the payload lies is no part of what it is
_UNDIGESTED = ("payload_file", "payload_key")
_MOST_RANKS = 10_000_000
_AXES = 64
_FIX = "Refuse this case, or ask who made it."


@frozen
class Padding:
    """Elements stored around a fragment's own.

    Parameters
    ----------
    before, after : tuple of int
        Along each axis.
    semantic : str
        What they hold: ``"none"`` (there are none), ``"zeros"``.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    semantic: str

    @property
    def some(self) -> bool:
        """Whether there is any."""
        return any(self.before) or any(self.after)


@frozen
class Replica:
    """Which copy a fragment is, and of how many."""

    group_id: str
    member_index: int
    member_count: int


@frozen(kw_only=True)
class CaseFragment:
    """A fragment as the case states it.

    Parameters
    ----------
    fragment_id, fqn, logical_tensor_id, component_id, role : str
    dtype : str
    global_shape, element_offset, element_extent, local_shape : tuple of int
        Of the tensor; of the fragment in it; as stored, padding included.
    padding : Padding
    partition_axes : tuple
    replica : Replica or None
    tie_group_id, shared_storage_id : str or None
    coordinates : dict of str to int
        Topology coordinates, the rank among them.
    digest : str
        ``sha256:`` and the digest of the bytes as stored.
    payload_file, payload_key : str
    """

    fragment_id: str
    fqn: str
    logical_tensor_id: str
    component_id: str
    role: str
    dtype: str
    global_shape: tuple[int, ...]
    element_offset: tuple[int, ...]
    element_extent: tuple[int, ...]
    local_shape: tuple[int, ...]
    padding: Padding
    partition_axes: tuple[Any, ...]
    replica: Replica | None
    tie_group_id: str | None
    shared_storage_id: str | None
    coordinates: dict[str, int]
    digest: str
    payload_file: str
    payload_key: str

    @property
    def rank(self) -> int:
        """The rank that holds it; -1 where the case does not tell."""
        return self.coordinates.get("rank", -1)

    @property
    def identity(self) -> tuple[str, str, str, str, int]:
        """What makes it a part of one tensor and not of another."""
        return self.logical_tensor_id, self.component_id, self.fqn, self.role, len(self.global_shape)

    @property
    def box(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Offset and extent."""
        return self.element_offset, self.element_extent

    @property
    def stored(self) -> int:
        """Bytes as stored, padding included."""
        count = bits_of(self.dtype)
        for extent in self.local_shape:
            count *= extent
        return (count + 7) // 8


@frozen(kw_only=True)
class Oracle:
    """What a whole tensor must be."""

    logical_tensor_id: str
    dtype: str
    shape: tuple[int, ...]
    payload_key: str
    digest: str


@frozen(kw_only=True)
class Case:
    """A fixture case.

    Parameters
    ----------
    case_id, schema_version : str
    world_size : int
    source, target : dict
        The topology it was written with, and the one it is to be read with: axes and their sizes.
    components, features : tuple of str
    fragments : tuple of CaseFragment
    oracle_file : str or None
    oracles : tuple of Oracle
    expected : str or None
        The published manifest digest.
    manifest : str
        The digest of the list of fragments as it is.
    """

    case_id: str
    schema_version: str
    world_size: int
    source: dict[str, Any]
    target: dict[str, Any]
    components: tuple[str, ...]
    features: tuple[str, ...]
    fragments: tuple[CaseFragment, ...]
    oracle_file: str | None
    oracles: tuple[Oracle, ...]
    expected: str | None
    manifest: str


def manifest_digest(fragments: list[dict[str, Any]]) -> str:
    """Digest of a list of fragments, as a case publishes it.

    Equation: ``sha256`` of the list's canonical JSON, keys ``payload_file`` and ``payload_key`` of each fragment left out.

    Examples
    --------
    >>> manifest_digest([])
    'sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945'
    """
    kept = [{key: value for key, value in each.items() if key not in _UNDIGESTED} for each in fragments]
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def read_case(data: bytes, name: str, limits: Limits) -> Case:
    """The case that a document holds.

    Raises
    ------
    InputError
        If the document is no case, or something in it is missing or of another type. What contradicts something else is no error here.
    """
    table = typed(document(data, place=name, limits=limits), dict, name)
    schema = field(table, "schema_id", str, name)
    if schema != SCHEMA_ID:
        raise InputError(f"{name}: schema_id", f"{SCHEMA_ID!r}", schema, "Give the path of a fixture case.")
    listed = items(table, "fragments", dict, name)
    if len(listed) > limits.fragments:
        raise InputError(f"{name}: fragments", f"at most {limits.fragments:,}", Shown(f"{len(listed):,}"), "Raise the cap.")
    topology = optional(table, "topology", dict, name) or {}
    oracles = items(table, "oracles", dict, name) if table.get("oracles") is not None else []
    return Case(
        case_id=optional(table, "case_id", str, name) or "", schema_version=_version(table),
        world_size=_count(table, "world_size", name), source=_sizes(topology, "source", f"{name}: topology"),
        target=_sizes(topology, "target", f"{name}: topology"),
        components=_texts(table, "components", name), features=_texts(table, "features", name),
        fragments=tuple(_fragment(each, f"{name}: fragments.{number}") for number, each in enumerate(listed)),
        oracle_file=optional(table, "oracle_file", str, name),
        oracles=tuple(_oracle(each, f"{name}: oracles.{number}") for number, each in enumerate(oracles)),
        expected=optional(table, "expected_manifest_digest", str, name), manifest=manifest_digest(listed),
    )  # fmt: skip


def _version(table: Any) -> str:
    """The version as a text; whether it is known is for ``verify`` to say."""
    version = table.get("schema_version")
    return version if isinstance(version, str) else json.dumps(version)[:40]


def _count(table: Any, key: str, name: str) -> int:
    count = field(table, key, int, name)
    if not 1 <= count <= _MOST_RANKS:
        raise InputError(below(name, key), f"a whole number from 1 to {_MOST_RANKS:,}", count, _FIX)
    return count


def _sizes(table: Any, key: str, place: str) -> dict[str, Any]:
    """Sizes of the axes of a topology; what else it says is kept as it is."""
    held = optional(table, key, dict, place) or {}
    for axis, size in held.items():
        if isinstance(size, int) and not isinstance(size, bool):
            _natural(size, below(place, f"{key}.{axis}"))
    return held


def _natural(value: Any, place: str) -> int:
    if typed(value, int, place) < 0:
        raise InputError(place, "a whole number of at least 0", value, _FIX)
    return int(value)


def _texts(table: Any, key: str, name: str) -> tuple[str, ...]:
    return tuple(items(table, key, str, name)) if table.get(key) is not None else ()


def _fragment(table: dict[str, Any], place: str) -> CaseFragment:
    shape = _shape(table, "global_shape", place)
    axes = len(shape)
    # one that is negative is out of bounds, which is for verify to say
    offset = tuple(items(table, "element_offset", int, place))
    if len(offset) != axes:
        raise InputError(below(place, "element_offset"), f"{axes} whole numbers", list(offset), _FIX)
    extent = whole_numbers(table, "element_extent", place, length=axes)
    padding = _padding(table, place, axes)
    local = table.get("local_shape")
    padded = tuple(a + b + c for a, b, c in zip(padding.before, extent, padding.after, strict=True))
    fragment = CaseFragment(
        fragment_id=optional(table, "fragment_id", str, place) or "", logical_tensor_id=field(table, "logical_tensor_id", str, place),
        fqn=optional(table, "fqn", str, place) or "", component_id=optional(table, "component_id", str, place) or "",
        role=optional(table, "role", str, place) or "", dtype=_dtype(table, place), global_shape=shape, element_offset=offset,
        element_extent=extent, local_shape=padded if local is None else whole_numbers(table, "local_shape", place, length=axes),
        padding=padding, partition_axes=tuple(optional(table, "partition_axes", list, place) or ()), replica=_replica(table, place),
        tie_group_id=optional(table, "tie_group_id", str, place), shared_storage_id=optional(table, "shared_storage_id", str, place),
        coordinates=_coordinates(table, place), digest=field(table, "fragment_digest", str, place),
        payload_file=field(table, "payload_file", str, place), payload_key=field(table, "payload_key", str, place),
    )  # fmt: skip
    if fragment.stored > MOST or any(a + b > MOST for a, b in zip(offset, extent, strict=True)):
        raise InputError(place, "a fragment of less than 2**63 byte, inside 2**63 elements", list(fragment.local_shape), _FIX)
    return fragment


def _shape(table: Any, key: str, place: str) -> tuple[int, ...]:
    shape = whole_numbers(table, key, place)
    if len(shape) > _AXES:
        raise InputError(below(place, key), f"of at most {_AXES} axes", Shown(f"{len(shape)}"), _FIX)
    return shape


def _dtype(table: Any, place: str) -> str:
    name = field(table, "dtype", str, place)
    bits_of(name, below(place, "dtype"))
    return name


def _padding(table: Any, place: str, axes: int) -> Padding:
    held = optional(table, "padding", dict, place)
    if held is None:
        return Padding((0,) * axes, (0,) * axes, "none")
    where = below(place, "padding")
    before, after = (whole_numbers(held, key, where, length=axes) for key in ("before", "after"))
    return Padding(before, after, field(held, "semantic", str, where))


def _replica(table: Any, place: str) -> Replica | None:
    held = optional(table, "replica", dict, place)
    if held is None:
        return None
    where = below(place, "replica")
    index, count = (_natural(field(held, key, int, where), below(where, key)) for key in ("member_index", "member_count"))
    return Replica(field(held, "group_id", str, where), index, count)


def _coordinates(table: Any, place: str) -> dict[str, int]:
    """Pairs of axis and place, each axis once."""
    found: dict[str, int] = {}
    pairs = items(table, "topology_coordinates", list, place) if table.get("topology_coordinates") is not None else []
    for number, pair in enumerate(pairs):
        where = below(place, f"topology_coordinates.{number}")
        if len(pair) != 2 or not isinstance(pair[0], str) or pair[0] in found:
            raise InputError(where, "an axis not named before, and a place along it", pair, _FIX)
        found[pair[0]] = _natural(pair[1], where)
    if found.get("rank", 0) >= _MOST_RANKS:
        raise InputError(below(place, "topology_coordinates"), f"of a rank below {_MOST_RANKS:,}", found["rank"], _FIX)
    return found


def _oracle(table: dict[str, Any], place: str) -> Oracle:
    return Oracle(
        logical_tensor_id=field(table, "logical_tensor_id", str, place), dtype=_dtype(table, place),
        shape=_shape(table, "shape", place), payload_key=field(table, "payload_key", str, place),
        digest=field(table, "sha256", str, place),
    )  # fmt: skip
