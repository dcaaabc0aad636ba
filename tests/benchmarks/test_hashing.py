"""(g) Every byte of a checkpoint verified, against bare hashlib over the same bytes on all cores."""

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsysim.layout import CheckpointLayout, Limits, fixture
from mlsysim.layout.safetensors_header import read_header
from tests.benchmarks.alternating import fastest, peak_memory
from tests.layout.cases import digest, file_bytes, manifest_of

FILES, TENSORS, ELEMENTS = 8, 8, 2**23  # 8 files of 8 tensors of 32 MiB: 2.1 GB
CHUNK = 2**20


def write_case(folder: Path) -> int:
    """A tensor-parallel case of eight ranks; its payload in bytes."""
    fragments = []
    for rank in range(FILES):
        held = {}
        for number in range(TENSORS):
            raw = np.random.default_rng((rank, number)).integers(0, 2**32, ELEMENTS, np.uint32).tobytes()
            name, file = f"w{number}-r{rank}", f"rank-{rank:05}.safetensors"
            held[name] = ("F32", [ELEMENTS], raw)
            fragments.append({
                "dtype": "float32", "element_extent": [ELEMENTS], "element_offset": [ELEMENTS * rank], "fragment_digest": digest(raw),
                "global_shape": [ELEMENTS * FILES], "local_shape": [ELEMENTS], "logical_tensor_id": f"w{number}", "payload_file": file,
                "payload_key": name, "topology_coordinates": [["tp", rank], ["rank", rank]],
            })  # fmt: skip
        (folder / file).write_bytes(file_bytes(held))
    document = {
        "expected_manifest_digest": manifest_of(fragments), "fragments": fragments, "schema_id": "obliteratus.checkpoint-fixture-case",
        "schema_version": "1.0.0", "topology": {"source": {"tp": FILES}}, "world_size": FILES,
    }  # fmt: skip
    (folder / "case.json").write_text(json.dumps(document))
    return FILES * TENSORS * ELEMENTS * 4


def bare(layout: CheckpointLayout, folder: Path) -> None:
    """Each payload read once and hashed, file by file, a thread a core."""

    def hashed(name: str) -> str:
        found, buffer = hashlib.sha256(), bytearray(CHUNK)
        with (folder / name).open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                found.update(memoryview(buffer)[:count])
        return found.hexdigest()

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()) as pool:
        assert FILES == len(list(pool.map(hashed, layout.files)))


@pytest.mark.slow
def test_verify(tmp_path: Path, report_ratio: Callable[..., None]) -> None:
    """Two gigabytes of shards verify, in little memory."""
    size = write_case(tmp_path)
    try:
        layout = fixture.READER.read(tmp_path, Limits())
        told: list[int] = []
        memory = peak_memory(lambda: layout.verify(payload=True, advance=told.append))
        ours, plain = fastest(lambda: layout.verify(payload=True), lambda: bare(layout, tmp_path), rounds=3)
        report = layout.verify(payload=True)
    finally:
        for file in tmp_path.iterdir():
            file.unlink()
    report_ratio("verify 2.1 GB : hashlib on all cores", ours=ours, bare=plain, unit="s", aim=1.3)
    report_ratio("memory of verify : one chunk a core", ours=memory / 2**20, bare=float(os.cpu_count() or 1), unit="MiB", aim=4)
    assert not list(report)
    assert size == sum(told)


@pytest.mark.slow
def test_header(tmp_path: Path, report_ratio: Callable[..., Any]) -> None:
    """A header of 3,411 tensors is checked in full."""
    path = tmp_path / "big.safetensors"
    path.write_bytes(file_bytes({f"model.layers.{number}.mlp.up_proj.weight": ("F32", [2, 1], bytes(8)) for number in range(3411)}))
    header = read_header(path, path.name, Limits())
    text = path.read_bytes()[8 : 8 + header.length]
    ours, plain = fastest(lambda: read_header(path, path.name, Limits()), lambda: json.loads(text), rounds=30)
    report_ratio("a header of 3,411 tensors : json.loads", ours=ours * 1e3, bare=plain * 1e3, unit="ms", aim=5)
    assert 3411 == len(header.names)
