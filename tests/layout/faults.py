"""Single faults of a fixture case, and how each must be named.

A fault is a function of the case's document, its files, and the place of a fragment. It changes one thing, and tells the kind of finding
that must name it, with tensor, rank and file; or it gives None where the case has nothing of the sort.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.layout.cases import digest, file_bytes, read_back, republish

Document = dict[str, Any]
Files = dict[str, bytes]


@dataclass(frozen=True)
class Expected:
    """How a fault must be named; fields that are "any" are left open."""

    kind: str
    tensor: Any = "any"
    rank: Any = "any"
    file: Any = "any"
    payload: bool = False
    severity: str = "error"


Fault = Callable[[Document, Files, int], Expected | None]
FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    FAULTS[function.__name__] = function
    return function


def rank_of(fragment: Document) -> int:
    return dict(fragment["topology_coordinates"])["rank"]


def named(kind: str, fragment: Document, **more: Any) -> Expected:
    return Expected(kind, fragment["logical_tensor_id"], rank_of(fragment), fragment["payload_file"], **more)


def raw_of(files: Files, fragment: Document) -> bytes:
    return read_back(files[fragment["payload_file"]])[fragment["payload_key"]][2]


def change(files: Files, fragment: Document, *, dtype: str | None = None, shape: list[int] | None = None, raw: bytes | None = None) -> None:
    """Another element type, shape or content of one tensor in a payload file."""
    tensors = read_back(files[fragment["payload_file"]])
    old = tensors[fragment["payload_key"]]
    tensors[fragment["payload_key"]] = (dtype or old[0], old[1] if shape is None else shape, old[2] if raw is None else raw)
    files[fragment["payload_file"]] = file_bytes(tensors)


def drop(document: Document, files: Files, row: int) -> None:
    """A fragment and its bytes are gone."""
    fragment = document["fragments"].pop(row)
    tensors = read_back(files[fragment["payload_file"]])
    del tensors[fragment["payload_key"]]
    files[fragment["payload_file"]] = file_bytes(tensors)
    republish(document)


def flipped(raw: bytes, at: int = 0) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


def copies(fragment: Document) -> int:
    return fragment["replica"]["member_count"]


# --- digests and contents --------------------------------------------------------------------------------------------------


@fault
def recorded_digest_differs(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    fragment["fragment_digest"] = digest(b"something else")
    republish(document)
    return named("digest differs", fragment, payload=True)


@fault
def digest_of_another_kind(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    fragment["fragment_digest"] = "md5:0123"
    republish(document)
    return named("digest differs", fragment)


@fault
def payload_byte_flipped(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    raw = raw_of(files, fragment)
    if not raw:
        return None
    change(files, fragment, raw=flipped(raw, len(raw) // 2))
    return named("digest differs", fragment, payload=True)


@fault
def replica_byte_flipped(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    raw = raw_of(files, fragment)
    if copies(fragment) < 2 or not raw:
        return None
    change(files, fragment, raw=flipped(raw))
    return named("replicas disagree", fragment, payload=True)


@fault
def replica_of_other_content(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    raw = raw_of(files, fragment)
    if copies(fragment) < 2 or not raw:
        return None
    change(files, fragment, raw=flipped(raw))
    fragment["fragment_digest"] = digest(flipped(raw))
    republish(document)
    # of two copies nobody can say which is right
    return Expected("replicas disagree", fragment["logical_tensor_id"], rank_of(fragment) if copies(fragment) > 2 else "any")


@fault
def manifest_digest_wrong(document: Document, files: Files, row: int) -> Expected | None:
    document["expected_manifest_digest"] = digest(b"something else")
    return Expected("manifest digest differs", None, None, "case.json")


@fault
def schema_version_unknown(document: Document, files: Files, row: int) -> Expected | None:
    document["schema_version"] = "2.0.0"
    return Expected("unknown schema version", None, None, "case.json")


@fault
def schema_version_of_another_type(document: Document, files: Files, row: int) -> Expected | None:
    document["schema_version"] = 1
    return Expected("unknown schema version", None, None, "case.json")


# --- where a fragment lies -------------------------------------------------------------------------------------------------


@fault
def fragment_gone(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if 0 in fragment["element_extent"]:
        return None
    tensor = fragment["logical_tensor_id"]
    alone = sum(each["logical_tensor_id"] == tensor for each in document["fragments"]) == 1
    drop(document, files, row)
    if alone:
        return Expected("missing tensor", tensor)
    return Expected("missing replica" if copies(fragment) > 1 else "hole", tensor, rank_of(fragment) if copies(fragment) > 2 else "any")


@fault
def all_of_one_rank_gone(document: Document, files: Files, row: int) -> Expected | None:
    rank = rank_of(document["fragments"][row])
    document["fragments"] = [each for each in document["fragments"] if rank_of(each) != rank]
    del files[f"rank-{rank:05}.safetensors"]
    republish(document)
    return Expected("missing rank", None, rank) if document["fragments"] else None


@fault
def rank_more_in_the_world(document: Document, files: Files, row: int) -> Expected | None:
    document["world_size"] += 1
    return Expected("missing rank", None, document["world_size"] - 1)


@fault
def rank_beyond_the_world(document: Document, files: Files, row: int) -> Expected | None:
    if document["world_size"] == 1:
        return None
    document["world_size"] -= 1
    return Expected("topology differs", "any", document["world_size"])


@fault
def beyond_the_tensor(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if not fragment["element_offset"]:
        return None
    fragment["element_offset"][0] += fragment["global_shape"][0] + 1
    republish(document)
    return named("out of bounds", fragment)


@fault
def before_the_tensor(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if not fragment["element_offset"]:
        return None
    fragment["element_offset"][-1] = -1
    republish(document)
    return named("out of bounds", fragment)


@fault
def shard_moved_onto_another(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    axis = next((axis for axis, at in enumerate(fragment["element_offset"]) if at and fragment["element_extent"][axis] > 1), None)
    if axis is None or copies(fragment) > 1 or 0 in fragment["element_extent"]:
        return None
    fragment["element_offset"][axis] -= 1
    republish(document)
    return Expected("overlap", fragment["logical_tensor_id"])


@fault
def copy_that_is_no_replica(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if copies(fragment) < 3 or 0 in fragment["element_extent"]:
        return None
    fragment["replica"] = None
    republish(document)
    return named("overlap", fragment)


@fault
def copy_of_another_group(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if copies(fragment) < 2 or 0 in fragment["element_extent"]:
        return None
    fragment["replica"]["group_id"] = "another"
    republish(document)
    return Expected("overlap", fragment["logical_tensor_id"], rank_of(fragment) if copies(fragment) > 2 else "any")


# --- replicas and topology -------------------------------------------------------------------------------------------------


@fault
def member_twice(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if copies(fragment) < 2:
        return None
    fragment["replica"]["member_index"] = (fragment["replica"]["member_index"] + 1) % copies(fragment)
    republish(document)
    return Expected("missing replica", fragment["logical_tensor_id"])


@fault
def member_more(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    fragment["replica"]["member_index"] = copies(fragment)
    republish(document)
    return named("missing replica", fragment)


@fault
def member_count_wrong(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    fragment["replica"]["member_count"] += 1
    republish(document)
    return Expected("missing replica", fragment["logical_tensor_id"])


@fault
def member_count_huge(document: Document, files: Files, row: int) -> Expected | None:
    for fragment in document["fragments"]:
        fragment["replica"]["member_count"] = 2**62
    republish(document)
    return Expected("missing replica", document["fragments"][row]["logical_tensor_id"])


@fault
def rank_of_another(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if document["world_size"] == 1:
        return None
    rank = (rank_of(fragment) + 1) % document["world_size"]
    fragment["topology_coordinates"][-1] = ["rank", rank]
    republish(document)
    return Expected("topology differs")


@fault
def place_of_another(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    axis, at = fragment["topology_coordinates"][0]
    size = document["topology"]["source"][axis]
    if size == 1:
        return None
    fragment["topology_coordinates"][0] = [axis, (at + 1) % size]
    republish(document)
    return Expected("topology differs")


@fault
def place_beyond_the_axis(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    axis, _ = fragment["topology_coordinates"][0]
    fragment["topology_coordinates"][0] = [axis, document["topology"]["source"][axis]]
    republish(document)
    return named("topology differs", fragment)


@fault
def axis_larger(document: Document, files: Files, row: int) -> Expected | None:
    axis = next(iter(document["topology"]["source"]))
    document["topology"]["source"][axis] += 1
    return Expected("topology differs", None, None, "case.json", severity="warning")


@fault
def parted_along_no_axis(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    fragment["partition_axes"] = [len(fragment["global_shape"])]
    republish(document)
    return named("topology differs", fragment)


# --- the payload's own header ----------------------------------------------------------------------------------------------


@fault
def header_of_another_shape(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    change(files, fragment, shape=[1, *fragment["local_shape"]])
    return named("shape differs", fragment)


@fault
def header_of_another_type(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    other = {"F32": "I32", "BF16": "F16", "I64": "F64", "F8_E4M3": "F8_E5M2", "F8_E5M2": "U8", "BOOL": "U8"}
    old = read_back(files[fragment["payload_file"]])[fragment["payload_key"]][0]
    change(files, fragment, dtype=other[old])
    return named("dtype differs", fragment)


@fault
def header_of_more_bytes(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    raw = raw_of(files, fragment)
    if not raw:
        return None
    change(files, fragment, shape=[2, *fragment["local_shape"]], raw=raw * 2)
    return named("byte count differs", fragment)


@fault
def document_of_another_type(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    fragment["dtype"] = "uint16" if fragment["dtype"] != "uint16" else "int16"
    republish(document)
    return named("dtype differs", fragment)


@fault
def document_of_another_local_shape(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if not fragment["local_shape"]:
        return None
    fragment["local_shape"][0] += 1
    republish(document)
    return named("shape differs", fragment)


@fault
def document_of_another_global_shape(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    tensor = fragment["logical_tensor_id"]
    if sum(each["logical_tensor_id"] == tensor for each in document["fragments"]) < 3 or not fragment["global_shape"]:
        return None
    fragment["global_shape"][0] += 1
    republish(document)
    return named("shape differs", fragment)


# --- padding ---------------------------------------------------------------------------------------------------------------


@fault
def padding_unknown(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    fragment["padding"]["semantic"] = "reflect"
    republish(document)
    return named("unknown padding", fragment)


@fault
def padding_claimed_to_be_none(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if not any(fragment["padding"]["after"]):
        return None
    fragment["padding"]["semantic"] = "none"
    republish(document)
    return named("padding differs", fragment)


@fault
def padding_wider(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if not fragment["padding"]["before"]:
        return None
    fragment["padding"]["before"][0] += 1
    republish(document)
    return named("padding differs", fragment)


@fault
def padding_not_zero(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if not any(fragment["padding"]["after"]):
        return None
    raw = raw_of(files, fragment)
    # the last element is in the padding, whatever the axis
    raw = raw[:-1] + b"\x01"
    change(files, fragment, raw=raw)
    fragment["fragment_digest"] = digest(raw)
    republish(document)
    return named("padding differs", fragment, payload=True)


# --- ties ------------------------------------------------------------------------------------------------------------------


@fault
def tied_of_other_content(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if fragment["tie_group_id"] is None:
        return None
    raw = flipped(raw_of(files, fragment))
    change(files, fragment, raw=raw)
    fragment["fragment_digest"] = digest(raw)
    republish(document)
    return Expected("tie differs", payload=True)


@fault
def tied_byte_flipped(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if fragment["tie_group_id"] is None:
        return None
    change(files, fragment, raw=flipped(raw_of(files, fragment)))
    return Expected("tie differs", payload=True)


@fault
def tie_of_one_fragment_only(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    tensor = fragment["logical_tensor_id"]
    if sum(each["logical_tensor_id"] == tensor for each in document["fragments"]) < 2:
        return None
    fragment["tie_group_id"] = "another"
    republish(document)
    return Expected("tie differs", tensor)


@fault
def tied_to_another_shape(document: Document, files: Files, row: int) -> Expected | None:
    shapes = {tuple(each["global_shape"]) for each in document["fragments"]}
    if len(shapes) < 2:
        return None
    for each in document["fragments"]:
        each["tie_group_id"] = "all"
    republish(document)
    return Expected("tie differs")


@fault
def shared_storage_of_other_content(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    others = [
        each
        for each in document["fragments"]
        if rank_of(each) == rank_of(fragment) and each["local_shape"] == fragment["local_shape"] and each["dtype"] == fragment["dtype"]
    ]
    if len({each["fragment_digest"] for each in others}) < 2:
        return None
    for each in others:
        each["shared_storage_id"] = "one"
    republish(document)
    return Expected("tie differs", "any", rank_of(fragment))


# --- files -----------------------------------------------------------------------------------------------------------------


@fault
def file_missing(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    del files[fragment["payload_file"]]
    return Expected("file missing", "any", rank_of(fragment), fragment["payload_file"])


@fault
def file_short_by_a_byte(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    if not any(each[2] for each in read_back(files[fragment["payload_file"]]).values()):
        return None
    files[fragment["payload_file"]] = files[fragment["payload_file"]][:-1]
    return Expected("file short", "any", rank_of(fragment), fragment["payload_file"])


@fault
def file_cut_in_its_header(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    files[fragment["payload_file"]] = files[fragment["payload_file"]][:30]
    return Expected("file short", "any", rank_of(fragment), fragment["payload_file"])


@fault
def file_empty(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    files[fragment["payload_file"]] = b""
    return Expected("file short", "any", rank_of(fragment), fragment["payload_file"])


@fault
def file_of_something_else(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    files[fragment["payload_file"]] = b"\2\0\0\0\0\0\0\0[]"
    return Expected("unreadable payload", "any", rank_of(fragment), fragment["payload_file"])


@fault
def bytes_after_the_last_tensor(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    files[fragment["payload_file"]] += b"more"
    return Expected("unclaimed bytes", "any", rank_of(fragment), fragment["payload_file"])


@fault
def tensor_that_nobody_claims(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    tensors = {**read_back(files[fragment["payload_file"]]), "stray": ("F32", [1], b"\0\0\0\0")}
    files[fragment["payload_file"]] = file_bytes(tensors)
    return Expected("unclaimed bytes", "stray", rank_of(fragment), fragment["payload_file"])


@fault
def file_that_nobody_names(document: Document, files: Files, row: int) -> Expected | None:
    files["stray.safetensors"] = file_bytes({})
    return Expected("unclaimed bytes", None, None, "stray.safetensors", severity="warning")


@fault
def payload_key_unknown(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    fragment["payload_key"] = "another"
    return named("missing tensor", fragment)


@fault
def payload_file_unknown(document: Document, files: Files, row: int) -> Expected | None:
    fragment = document["fragments"][row]
    fragment["payload_file"] = "another.safetensors"
    return Expected("file missing", fragment["logical_tensor_id"], rank_of(fragment), "another.safetensors")


# --- what names a tensor ---------------------------------------------------------------------------------------------------


def _renamed(key: str) -> Fault:
    def renamed(document: Document, files: Files, row: int) -> Expected | None:
        fragment = document["fragments"][row]
        if 0 in fragment["element_extent"] or sum(e[key] == fragment[key] for e in document["fragments"]) < 2:
            return None
        same = [each for each in document["fragments"] if each["logical_tensor_id"] == fragment["logical_tensor_id"]]
        if len(same) < 2:
            return None
        fragment[key] = "another"
        republish(document)
        return Expected("missing replica" if copies(fragment) > 1 else "hole")

    renamed.__name__ = f"{key}_of_another"
    return renamed


for _key in ("logical_tensor_id", "component_id", "fqn", "role"):
    fault(_renamed(_key))


# --- oracles ---------------------------------------------------------------------------------------------------------------


@fault
def oracle_digest_wrong(document: Document, files: Files, row: int) -> Expected | None:
    document["oracles"][0]["sha256"] = digest(b"something else")
    return Expected("oracle differs", document["oracles"][0]["logical_tensor_id"], payload=True)


@fault
def oracle_digest_of_another_kind(document: Document, files: Files, row: int) -> Expected | None:
    document["oracles"][0]["sha256"] = "0123"
    return Expected("oracle differs", document["oracles"][0]["logical_tensor_id"])


@fault
def oracle_byte_flipped(document: Document, files: Files, row: int) -> Expected | None:
    tensors = read_back(files["oracles.safetensors"])
    key, (dtype, shape, raw) = next(iter(tensors.items()))
    if not raw:
        return None
    files["oracles.safetensors"] = file_bytes({**tensors, key: (dtype, shape, flipped(raw))})
    return Expected("oracle differs", document["oracles"][0]["logical_tensor_id"], None, "oracles.safetensors", payload=True)


@fault
def oracle_of_other_content(document: Document, files: Files, row: int) -> Expected | None:
    tensors = read_back(files["oracles.safetensors"])
    key, (dtype, shape, raw) = next(iter(tensors.items()))
    if not raw:
        return None
    files["oracles.safetensors"] = file_bytes({**tensors, key: (dtype, shape, flipped(raw))})
    document["oracles"][0]["sha256"] = digest(flipped(raw))
    return Expected("oracle differs", document["oracles"][0]["logical_tensor_id"], payload=True)


@fault
def oracle_of_another_shape(document: Document, files: Files, row: int) -> Expected | None:
    document["oracles"][0]["shape"] = [1, *document["oracles"][0]["shape"]]
    return Expected("oracle differs", document["oracles"][0]["logical_tensor_id"], None, "case.json")


@fault
def oracle_of_another_type(document: Document, files: Files, row: int) -> Expected | None:
    document["oracles"][0]["dtype"] = "uint16"
    return Expected("oracle differs", document["oracles"][0]["logical_tensor_id"], None, "oracles.safetensors")


@fault
def oracle_of_no_tensor(document: Document, files: Files, row: int) -> Expected | None:
    document["oracles"][0]["logical_tensor_id"] = "another"
    return Expected("missing tensor", "another")


@fault
def oracle_key_unknown(document: Document, files: Files, row: int) -> Expected | None:
    document["oracles"][0]["payload_key"] = "another"
    return Expected("missing tensor", document["oracles"][0]["logical_tensor_id"], None, "oracles.safetensors")


@fault
def oracle_file_missing(document: Document, files: Files, row: int) -> Expected | None:
    del files["oracles.safetensors"]
    return Expected("file missing", None, None, "oracles.safetensors")


@fault
def oracle_file_short(document: Document, files: Files, row: int) -> Expected | None:
    if not any(each[2] for each in read_back(files["oracles.safetensors"]).values()):
        return None
    files["oracles.safetensors"] = files["oracles.safetensors"][:-1]
    return Expected("file short", None, None, "oracles.safetensors")
