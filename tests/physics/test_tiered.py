"""The laws of one tiered save."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlsysim import Q_, InputError
from mlsysim.physics.tiered import drain_time, durable_share_per_node, local_bytes_needed, local_write_time, per_node_shard


def test_per_node_shard() -> None:
    """2.45 TB on 256 nodes are 9,570,312,500 byte each."""
    assert 9570312500.0 == per_node_shard(checkpoint_bytes=Q_("2.45 TB"), nodes=256).to("byte").magnitude


def test_local_write_time() -> None:
    """That shard at 28 GB/s takes 0.341796875 s."""
    assert Q_("0.341796875 s") == local_write_time(per_node_shard=Q_("9570312500 byte"), local_bandwidth=Q_("28 GB/s"))


DRAIN: dict[str, Any] = {"checkpoint_bytes": Q_("8 TB"), "per_node_shard": Q_("1 TB"), "durable_bandwidth": Q_("1 TB/s")}


def test_drain_is_the_slowest_of_three() -> None:
    """The store takes 8 s, the network 10 s, reading 5 s: the drain takes 10 s."""
    assert Q_("10 s") == drain_time(**DRAIN, network_bandwidth=Q_("100 GB/s"), local_read_bandwidth=Q_("200 GB/s"))


def test_what_is_not_stated_does_not_limit_the_drain() -> None:
    """With neither network nor reading stated, the store alone sets the time."""
    assert Q_("8 s") == drain_time(**DRAIN)


def test_durable_share_per_node() -> None:
    """1 TB/s over 256 nodes is 3.90625 GB/s each."""
    assert Q_("3.90625 GB/s") == durable_share_per_node(durable_bandwidth=Q_("1 TB/s"), nodes=256)


def test_local_bytes_needed() -> None:
    """Two shards have to fit: the last complete one and the one being written."""
    assert Q_("20 GB") == local_bytes_needed(per_node_shard=Q_("10 GB"))


def test_counts_may_be_an_array() -> None:
    """A row of fleets gives a row of shards."""
    assert [1e12, 5e11, 2.5e11] == per_node_shard(checkpoint_bytes=Q_("1 TB"), nodes=np.array([1, 2, 4])).to("byte").magnitude.tolist()


@pytest.mark.parametrize("nodes", [0, -4, 2.5, True, "256"])
def test_bad_nodes(nodes: Any) -> None:
    """Nodes are a count."""
    with pytest.raises(InputError, match=r"^per_node_shard.nodes must be a whole number of at least 1"):
        per_node_shard(checkpoint_bytes=Q_("1 TB"), nodes=nodes)


@pytest.mark.parametrize("field", ["checkpoint_bytes", "per_node_shard", "durable_bandwidth", "network_bandwidth", "local_read_bandwidth"])
def test_drain_of_bad_input(field: str) -> None:
    """Each argument is checked under its own name."""
    with pytest.raises(InputError, match=f"^drain_time.{field} must be"):
        drain_time(**(DRAIN | {field: "1 USD"}))


def test_arguments_go_by_name() -> None:
    """Two arguments of one dimension cannot be swapped by position."""
    with pytest.raises(TypeError, match="positional"):
        drain_time(Q_("8 TB"), Q_("1 TB"), Q_("1 TB/s"))  # type: ignore[misc]
