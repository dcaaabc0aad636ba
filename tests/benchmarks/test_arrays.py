"""(c) Many situations at once, every field read, against the same arithmetic in bare numpy."""

from collections.abc import Callable
from time import thread_time
from typing import Any

import numpy as np
import pytest

from mlsysim import Q_, Quantity, TieredCheckpointModel
from tests.benchmarks.alternating import fastest, peak_memory

SIZE, NODES, LOCAL = 2.45e12, 256, 28e9


def bare(interval: Any, durable: Any) -> dict[str, Any]:
    """What a person would write by hand for the same fields."""
    shard = SIZE / NODES
    pause = shard / LOCAL
    drain = SIZE / durable
    advances, keeps_up = pause < interval, drain <= interval
    sustained = advances & keeps_up
    return {
        "checkpoint_bytes": SIZE,
        "per_node_shard": shard,
        "local_write_time": pause,
        "drain_time": drain,
        "drain_limit": np.full(drain.shape, "durable_bandwidth", dtype=object),
        "durable_share_per_node": durable / NODES,
        "pause_fraction": pause / interval,
        "drain_utilization": drain / interval,
        "shortest_save_interval": np.maximum(pause, drain),
        "waiting_cadence": np.maximum(interval, pause + drain),
        "backlog_growth": np.maximum(SIZE / interval - SIZE / drain, 0.0),
        "worst_local_age": np.where(sustained, interval + pause, np.inf),
        "worst_durable_age": np.where(sustained, interval + pause + drain, np.inf),
        "local_bytes_needed": 2.0 * shard,
        "checks": (advances, interval - pause, keeps_up, interval - drain),
        "feasible": sustained,
    }


def ours(interval: Quantity, durable: Quantity) -> dict[str, Any]:
    result = TieredCheckpointModel().solve(
        checkpoint_bytes=Q_(SIZE, "byte"), nodes=NODES, local_bandwidth=Q_(LOCAL, "byte/s"),
        durable_bandwidth=durable, save_interval=interval,
    )  # fmt: skip
    return {name: getattr(result, name) for name in result.json_fields}


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields without units, the checks as their verdicts and slacks."""
    advances, keeps_up, _ = fields["checks"]
    checks = (advances.holds, advances.slack.base, keeps_up.holds, keeps_up.slack.base)
    return {name: value.base if isinstance(value, Quantity) else value for name, value in fields.items()} | {"checks": checks}


@pytest.mark.slow
@pytest.mark.parametrize(("intervals", "bandwidths", "rounds"), [(1_000, 1_000, 25), (1_000, 10_000, 10)], ids=["1e6", "1e7"])
def test_arrays(intervals: int, bandwidths: int, rounds: int, benchmark: Any, report_ratio: Callable[..., None]) -> None:
    """A grid of intervals and bandwidths is answered to the last bit as bare numpy answers it."""
    column, row = np.linspace(60.0, 3600.0, intervals)[:, None], np.geomspace(1e9, 1e12, bandwidths)
    given = Q_(column, "s"), Q_(row, "byte/s")
    points = f"{intervals * bandwidths:.0e} points : bare numpy".replace("e+0", "e")

    solved, by_hand = fastest(lambda: ours(*given), lambda: bare(column, row), rounds=rounds, clock=thread_time)
    report_ratio(f"time of {points}", ours=solved * 1e3, bare=by_hand * 1e3, unit="ms", aim=1.2)
    memory = peak_memory(lambda: ours(*given)), peak_memory(lambda: bare(column, row))
    report_ratio(f"peak memory of {points}", ours=memory[0] / 1e6, bare=memory[1] / 1e6, unit="MB", aim=1.2)

    benchmark.extra_info.update(time_ratio=solved / by_hand, memory_ratio=memory[0] / memory[1])
    answer, expected = plain(benchmark.pedantic(ours, given, rounds=3)), bare(column, row)
    assert list(expected) == list(answer)
    assert all(map(_identical, expected.values(), answer.values()))


def _identical(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(map(_identical, one, other))
    return np.shape(one) == np.shape(other) and np.array_equal(one, other)
