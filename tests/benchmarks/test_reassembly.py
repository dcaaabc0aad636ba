"""(h) A sharded checkpoint put back together in one file, against copying its files; (i) the layout of a fleet predicted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlsysim import read_checkpoint
from tests.benchmarks.alternating import PEAK, fastest
from tests.layout.cases import file_bytes

RANKS, TENSORS, ROWS, COLUMNS = 8, 8, 2**11, 2**12  # 8 files of 8 tensors of 32 MiB: 2.1 GB

PREDICT = (
    PEAK
    + """
import json, time
from mlsysim import ParallelPlan, Recipes, TransformerShape, predict_layout
shape = TransformerShape(layers=126, hidden=16384, feed_forward=53248, heads=128, kv_heads=8, vocabulary=128256, gated=True)
start = time.perf_counter()
layout = predict_layout(shape, Recipes.mixed_adam, ParallelPlan(tensor=8, pipeline=16, data={data}, zero=3))
print(json.dumps([time.perf_counter() - start, len(layout.fragments), peak()]))
"""
)


def write_shards(folder: Path) -> None:
    """A sharded checkpoint as PyTorch's safetensors writer leaves it: each rank has rows of every tensor."""
    names = [f"w{number}" for number in range(TENSORS)]
    for rank in range(RANKS):
        raw = np.random.default_rng(rank).integers(0, 2**32, ROWS * COLUMNS, np.uint32).tobytes()
        offsets = json.dumps({name: {"saved_offsets": [rank * ROWS, 0]} for name in names})
        held = {name: ("F32", [ROWS, COLUMNS], raw) for name in names}
        content = file_bytes(held, {"DCP_SHARDING_INFO": offsets, "DCP_VERSION": "1.0"})
        (folder / f"shard-{rank + 1:05}-model-00001-of-00001.safetensors").write_bytes(content)


@pytest.mark.slow
def test_reassemble_all(tmp_path: Path, report_ratio: Callable[..., None]) -> None:
    """2.1 GB of shards go into one file; told as a ratio to copying them."""
    source, copied, out = tmp_path / "source", tmp_path / "copied", tmp_path / "whole.safetensors"
    source.mkdir()
    write_shards(source)
    layout = read_checkpoint(source)

    def copy() -> None:
        shutil.rmtree(copied, ignore_errors=True)
        shutil.copytree(source, copied)

    ours, bare = fastest(lambda: layout.reassemble_all(out), copy, rounds=3)
    assert out.stat().st_size > RANKS * TENSORS * ROWS * COLUMNS * 4
    report_ratio("reassemble_all of 2.1 GB / copying the files", ours=ours, bare=bare, unit="s", aim=2)
    shutil.rmtree(source)
    shutil.rmtree(copied)
    out.unlink()


@pytest.mark.slow
def test_predicted_fleet(report_ratio: Callable[..., None]) -> None:
    """The layout of a 405B at 16,384 ranks takes seconds and under 1 GB; told against an eighth of the ranks."""
    found = [
        json.loads(
            subprocess.run([sys.executable, "-c", PREDICT.replace("{data}", str(data))], capture_output=True, check=True, text=True).stdout
        )
        for data in (16, 128)
    ]
    (small, few, _), (large, many, peak) = found
    report_ratio("memory of that layout : 1 GB", ours=peak / 1e6, bare=1000.0, unit="MB", aim=1)
    report_ratio(f"layout of a 405B, {many:,} fragments / {few:,}", ours=large, bare=small, unit="s", aim=many / few)
    assert peak < 1e9
