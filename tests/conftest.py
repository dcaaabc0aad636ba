"""What the tests share: one plan, in the form that each layer takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

from mlsysim import Q_, Fleet, Node, TieredCheckpointScenario, Workload

# machines that run tests are shared: a slow example is no fault, and the same examples run everywhere
settings.register_profile("steady", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("steady")


@pytest.fixture
def plan() -> dict[str, Any]:
    """The inputs of the solver for the GPT-3 case."""
    return {
        "checkpoint_bytes": Q_("2.45 TB"), "nodes": 256, "local_bandwidth": Q_("28 GB/s"),
        "durable_bandwidth": Q_("1 TB/s"), "save_interval": Q_("10 min"),
    }  # fmt: skip


@pytest.fixture
def fields() -> dict[str, Any]:
    """The fields of a scenario, as a person writes them."""
    return {
        "workload": Workload(name="my 70B", parameters="70.6e9 param"), "bytes_per_param": "14 byte/param",
        "fleet": Fleet(name="ours", node=Node(name="8-GPU", accelerators=8), count=128),
        "local_bandwidth": "12 GB/s", "durable_bandwidth": "100 GB/s", "save_interval": "10 min",
    }  # fmt: skip


@pytest.fixture
def case(fields: dict[str, Any]) -> TieredCheckpointScenario:
    """The scenario of those fields."""
    return TieredCheckpointScenario(**fields)


@pytest.fixture
def file_text() -> str:
    """The same scenario as a file."""
    return """\
scenario = "TieredCheckpointScenario"
bytes_per_param = "14 byte/param"
local_bandwidth = "12 GB/s"
durable_bandwidth = "100 GB/s"
save_interval = "10 min"
workload = { name = "my 70B", parameters = "70.6e9 param" }
fleet = { name = "ours", count = 128, node = { name = "8-GPU", accelerators = 8 } }
"""
