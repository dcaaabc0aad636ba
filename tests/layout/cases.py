"""Fixture cases from a description of the layout: a mesh of ranks, and tensors laid over it."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

SAFETENSORS = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int64": "I64",
    "float64": "F64", "bool": "BOOL", "complex64": "C64", "int32": "I32",
}  # fmt: skip


@dataclass(frozen=True)
class Laid:
    """A tensor, and the mesh axis that parts each of its axes (None: not parted)."""

    name: str
    values: np.ndarray
    along: tuple[str | None, ...] = ()
    label: str = ""
    role: str = "parameter"
    component: str = "model"
    tie: str | None = None
    padded: bool = False
    # only ranks at these places hold it, as in a pipeline
    only: dict[str, int] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        return str(self.values.dtype)


@dataclass(frozen=True)
class Described:
    """A case as a person would describe it."""

    case_id: str
    mesh: dict[str, int]
    tensors: tuple[Laid, ...]
    features: tuple[str, ...] = ()
    components: tuple[str, ...] = ("full_model",)

    @property
    def world(self) -> int:
        return math.prod(self.mesh.values())


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def manifest_of(fragments: list[dict[str, Any]]) -> str:
    """The manifest digest, by the published recipe."""
    kept = [{key: each[key] for key in each if key not in {"payload_file", "payload_key"}} for each in fragments]
    return digest(json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def file_bytes(tensors: dict[str, tuple[str, list[int], bytes]], metadata: dict[str, str] | None = None, tail: bytes = b"") -> bytes:
    """A safetensors file of tensors ``name: (dtype, shape, data)``."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    at, data = 0, b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": SAFETENSORS.get(dtype, dtype), "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data += raw
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data + tail


def read_back(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """The tensors of a good safetensors file."""
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    return {
        name: (each["dtype"], each["shape"], body[slice(*each["data_offsets"])]) for name, each in header.items() if name != "__metadata__"
    }


def _fragment(case: Described, tensor: Laid, rank: int, place: dict[str, int]) -> tuple[dict[str, Any], bytes]:
    """One rank's part of one tensor: what the case says of it, and its bytes as stored."""
    along = tensor.along or (None,) * tensor.values.ndim
    offset, extent, after = [], [], []
    for size, axis in zip(tensor.values.shape, along, strict=True):
        parts = case.mesh[axis] if axis else 1
        step = -(-size // parts)
        start = min(size, step * (place[axis] if axis else 0))
        offset.append(start)
        extent.append(min(step, size - start))
        after.append(step - extent[-1] if tensor.padded else 0)
    own = tensor.values[tuple(slice(start, start + reach) for start, reach in zip(offset, extent, strict=True))]
    stored = np.zeros([a + b for a, b in zip(extent, after, strict=True)], tensor.values.dtype)
    stored[tuple(slice(0, reach) for reach in extent)] = own
    raw = stored.tobytes()
    spread = [axis for axis in case.mesh if axis not in along and axis not in tensor.only]
    member = 0
    for axis in spread:
        member = member * case.mesh[axis] + place[axis]
    used = [f"{axis}{place[axis]}" for axis in along if axis]
    name = f"{tensor.label or tensor.name}-r{rank}"
    file = f"rank-{rank:05}.safetensors"
    fragment = {
        "component_id": tensor.component, "dtype": tensor.dtype, "element_extent": extent, "element_offset": offset,
        "evidence_refs": [f"synthetic:{name}"], "fqn": tensor.name, "fragment_digest": digest(raw), "fragment_id": name,
        "global_shape": list(tensor.values.shape), "local_shape": list(stored.shape), "logical_tensor_id": tensor.name,
        "padding": {"after": after, "before": [0] * len(after), "semantic": "zeros" if tensor.padded else "none"},
        "partition_axes": [number for number, axis in enumerate(along) if axis],
        "payload_file": file, "payload_key": name,
        "replica": {
            "group_id": "-".join(["-".join(spread) or "one", "full", *used]), "member_count": math.prod(case.mesh[each] for each in spread),
            "member_index": member,
        },
        "role": tensor.role, "shard_digest_ref": f"source-digest:{file}", "shard_file_id": file, "shared_storage_id": None,
        "tie_group_id": tensor.tie, "topology_coordinates": [*([axis, place[axis]] for axis in case.mesh), ["rank", rank]],
    }  # fmt: skip
    return fragment, raw


def generate(case: Described) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The case document, and its files by name."""
    fragments, files = [], {}
    for rank, places in enumerate(itertools.product(*(range(size) for size in case.mesh.values()))):
        place = dict(zip(case.mesh, places, strict=True))
        held = {}
        for tensor in case.tensors:
            if all(place[axis] == at for axis, at in tensor.only.items()):
                fragment, raw = _fragment(case, tensor, rank, place)
                fragments.append(fragment)
                held[fragment["payload_key"]] = (tensor.dtype, fragment["local_shape"], raw)
        if held:
            files[f"rank-{rank:05}.safetensors"] = file_bytes(held)
    oracles = [
        {
            "dtype": each.dtype, "logical_tensor_id": each.name, "payload_key": f"tensor_{number:03}",
            "sha256": digest(each.values.tobytes()), "shape": list(each.values.shape),
        }
        for number, each in enumerate(case.tensors)
    ]  # fmt: skip
    files["oracles.safetensors"] = file_bytes(
        {f"tensor_{number:03}": (each.dtype, list(each.values.shape), each.values.tobytes()) for number, each in enumerate(case.tensors)}
    )
    document = {
        "case_id": case.case_id, "components": list(case.components), "expected_manifest_digest": manifest_of(fragments),
        "features": list(case.features), "fragments": fragments, "oracle_file": "oracles.safetensors", "oracles": oracles,
        "schema_id": "obliteratus.checkpoint-fixture-case", "schema_version": "1.0.0",
        "topology": {"source": dict(case.mesh), "target": {"world_size": 1}}, "world_size": case.world,
    }  # fmt: skip
    return document, files


def write(folder: Path, document: dict[str, Any], files: dict[str, bytes]) -> Path:
    """The case on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "case.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def republish(document: dict[str, Any]) -> None:
    """The digest that a changed list of fragments would be published with."""
    document["expected_manifest_digest"] = manifest_of(document["fragments"])


def _numbers(*shape: int, dtype: Any = np.float32, first: int = 1) -> np.ndarray:
    return (np.arange(math.prod(shape)) % 240 + first).reshape(shape).astype(dtype)


SEED = Described(
    "world4-dp-replicas", {"dp": 4}, (Laid("model.weight", np.array([5, 6, 7], np.float32), label="dp"),), ("dp_replica",)
)  # fmt: skip
TIED = _numbers(6, 4, first=3)
CASES = (
    SEED,
    Described("tp-rows", {"tp": 4}, (Laid("w", _numbers(8, 3), ("tp", None)),), ("tp_shard",)),
    Described("tp-columns", {"tp": 4}, (Laid("w", _numbers(3, 8), (None, "tp")),), ("tp_shard",)),
    Described("tp-middle-of-three", {"tp": 2}, (Laid("w", _numbers(3, 4, 2), (None, "tp", None)),)),
    Described("mesh-2x2", {"a": 2, "b": 2}, (Laid("w", _numbers(4, 6), ("a", "b")),)),
    Described("mesh-2x3-uneven-padded", {"a": 2, "b": 3}, (Laid("w", _numbers(5, 7), ("a", "b"), padded=True),), ("padding",)),
    Described("uneven-rows", {"tp": 4}, (Laid("w", _numbers(7, 2), ("tp", None)),)),
    Described("uneven-padded-one-empty", {"tp": 4}, (Laid("w", _numbers(5, 2), ("tp", None), padded=True),), ("padding",)),
    Described("tied", {"tp": 2}, (
        Laid("embed.weight", TIED, ("tp", None), tie="embedding"), Laid("head.weight", TIED.copy(), ("tp", None), tie="embedding"),
    ), ("tied",)),
    Described("tied-otherwise-parted", {"tp": 2}, (
        Laid("embed.weight", TIED, ("tp", None), tie="embedding"), Laid("head.weight", TIED.copy(), (None, "tp"), tie="embedding"),
    )),
    Described("replicas-beside-shards", {"dp": 2, "tp": 2}, (Laid("w", _numbers(4, 4), ("tp", None)), Laid("norm", _numbers(4)))),
    Described("pipeline", {"pp": 2, "dp": 2}, (
        Laid("first.w", _numbers(4, 2), only={"pp": 0}, component="stage0"),
        Laid("last.w", _numbers(2, 4), only={"pp": 1}, component="stage1"),
    ), (), ("stage0", "stage1")),
    Described("optimizer", {"dp": 2, "tp": 2}, (
        Laid("w", _numbers(4, 4, dtype=ml_dtypes.bfloat16), ("tp", None)),
        Laid("w.exp_avg", _numbers(4, 4, first=2), ("tp", "dp"), role="optimizer_state", component="optimizer"),
        Laid("step", np.array(7, np.int64), role="optimizer_state", component="optimizer"),
    ), ("optimizer",), ("model", "optimizer")),
    Described("fp8", {"tp": 2}, (
        Laid("w", _numbers(6, 2).astype(ml_dtypes.float8_e4m3fn), ("tp", None)), Laid("v", _numbers(3).astype(ml_dtypes.float8_e5m2)),
    )),
    Described("odd-names", {"dp": 2}, (Laid("слой/0 \"weight\"\\", _numbers(2)), Laid("", _numbers(1)), Laid("empty", _numbers(0, 3)))),
    Described("one-rank", {"dp": 1}, (Laid("w", _numbers(3)), Laid("u", _numbers(3, first=9)), Laid("flag", np.array(True)))),
)  # fmt: skip
