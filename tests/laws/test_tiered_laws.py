"""Laws of the tiered save, held against plain arithmetic and against each other."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import attrs
import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from mlsysim import Q_, Fleet, Node, Quantity, TieredCheckpointModel, TieredCheckpointResult, TieredCheckpointScenario, Workload
from mlsysim.physics import cadence, tiered

MODEL = TieredCheckpointModel()
QUANTITIES = (
    "checkpoint_bytes", "per_node_shard", "local_write_time", "drain_time", "durable_share_per_node", "shortest_save_interval",
    "waiting_cadence", "backlog_growth", "worst_local_age", "worst_durable_age", "local_bytes_needed",
)  # fmt: skip
RATIOS = ("pause_fraction", "drain_utilization")
UNITS = {
    "checkpoint_bytes": "byte", "local_bandwidth": "byte/s", "durable_bandwidth": "byte/s", "save_interval": "s",
    "network_bandwidth": "byte/s", "local_read_bandwidth": "byte/s", "local_capacity": "byte", "largest_shard": "byte",
}  # fmt: skip


def positive(least: float, most: float) -> st.SearchStrategy[float]:
    """Floats spread over the decades."""
    return st.floats(math.log10(least), math.log10(most)).map(lambda power: float(10**power))


def stated(least: float, most: float) -> st.SearchStrategy[float | None]:
    """A number, or nothing stated."""
    return st.none() | positive(least, most)


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Inputs of the solver in base units, feasible and not."""
    size, nodes = draw(positive(1e6, 1e16)), draw(st.integers(1, 20_000))
    largest = draw(st.none() | st.floats(0, 1))
    return {
        "checkpoint_bytes": size, "nodes": nodes, "local_bandwidth": draw(positive(1e6, 1e12)), "durable_bandwidth": draw(positive(1e6,
        1e13)),
        "save_interval": draw(positive(1e-2, 1e6)), "network_bandwidth": draw(stated(1e6, 1e12)), "local_read_bandwidth": draw(stated(1e6,
        1e12)),
        "local_capacity": draw(stated(1e3, 1e15)),
        "largest_shard": None if largest is None else min(size, size / nodes + largest * (size - size / nodes)),
    }  # fmt: skip


def quantities(plan: dict[str, Any]) -> dict[str, Any]:
    """The same inputs with their units."""
    return {name: Q_(value, UNITS[name]) if name in UNITS and value is not None else value for name, value in plan.items()}


def solve(plan: dict[str, Any]) -> TieredCheckpointResult:
    """The answer to inputs in base units."""
    return MODEL.solve(**quantities(plan))


def values(result: TieredCheckpointResult) -> dict[str, Any]:
    """Every number of a result, in base units."""
    return {name: getattr(result, name).base for name in QUANTITIES} | {name: getattr(result, name) for name in RATIOS}


def close(one: float, other: float) -> bool:
    """Equal but for rounding."""
    return one == other or math.isclose(one, other, rel_tol=1e-12)


@given(plans())
def test_numbers_are_those_of_exact_arithmetic(plan: dict[str, Any]) -> None:
    """Every field follows its definition, worked out in fractions."""
    size, local, durable, interval = (
        Fraction(plan[name]) for name in ("checkpoint_bytes", "local_bandwidth", "durable_bandwidth", "save_interval")
    )
    shard = size / plan["nodes"] if plan["largest_shard"] is None else Fraction(plan["largest_shard"])
    times = {"durable_bandwidth": size / durable}
    times |= {name: shard / Fraction(plan[name]) for name in ("network_bandwidth", "local_read_bandwidth") if plan[name] is not None}
    pause, drain = shard / local, max(times.values())
    assume(all(abs(one / other - 1) > 1e-9 for one in times.values() for other in times.values() if one != other))
    assume(abs(pause / interval - 1) > 1e-9)
    assume(abs(drain / interval - 1) > 1e-6)
    sustained = pause < interval and drain <= interval
    expected = {
        "checkpoint_bytes": size, "per_node_shard": shard, "local_write_time": pause, "drain_time": drain,
        "durable_share_per_node": durable / plan["nodes"], "pause_fraction": pause / interval, "drain_utilization": drain / interval,
        "shortest_save_interval": max(pause, drain), "waiting_cadence": max(interval, pause + drain),
        "worst_local_age": interval + pause if sustained else math.inf, "local_bytes_needed": 2 * shard,
        "worst_durable_age": interval + pause + drain if sustained else math.inf,
    }  # fmt: skip
    result = solve(plan)
    actual = values(result)
    assert dict.fromkeys(expected, True) == {name: close(float(each), actual[name]) for name, each in expected.items()}
    growth = float(max(Fraction(0), size / interval - size / drain))
    assert abs(growth - actual["backlog_growth"]) <= 1e-9 * float(size / interval)
    assert max(times, key=lambda name: times[name]) == result.drain_limit
    fits = None if plan["local_capacity"] is None else bool(2 * shard <= Fraction(plan["local_capacity"]))
    assert [pause < interval, drain <= interval, fits] == [check.holds for check in result.checks]


@given(plans())
def test_feasible_is_that_no_check_fails(plan: dict[str, Any]) -> None:
    """What is not checked does not fail."""
    result = solve(plan)
    assert (False not in [check.holds for check in result.checks]) is result.feasible


@given(plans())
def test_fields_are_those_of_the_laws(plan: dict[str, Any]) -> None:
    """Putting a result's own numbers into the public laws gives its other numbers: there is one path."""
    result = solve(plan)
    times = {"local_write_time": result.local_write_time, "drain_time": result.drain_time}
    interval = Q_(plan["save_interval"], "s")
    assert result.shortest_save_interval == cadence.shortest_save_interval(**times)
    assert result.waiting_cadence == cadence.waiting_cadence(save_interval=interval, **times)
    assert result.worst_durable_age == cadence.worst_durable_age(save_interval=interval, **times)
    assert result.worst_local_age == cadence.worst_local_age(save_interval=interval, **times)
    assert result.pause_fraction == cadence.pause_fraction(local_write_time=result.local_write_time, save_interval=interval)
    assert result.local_bytes_needed == tiered.local_bytes_needed(per_node_shard=result.per_node_shard)
    growth = cadence.backlog_growth(checkpoint_bytes=result.checkpoint_bytes, save_interval=interval, drain_time=result.drain_time)
    assert result.backlog_growth == growth


ADVICE = re.compile(r"(?:raise (?P<field>\w+) to|(?P<every>save every)) (?P<number>[\d.e+-]+) (?P<unit>\S+?)(?=,| and |$)")


@given(plans())
def test_advice_put_back_makes_the_check_hold(plan: dict[str, Any]) -> None:
    """Every alternative of every advice, read from its sentence and put back, makes that check hold."""
    for number, check in enumerate(solve(plan).checks):
        if check.holds is not False:
            continue
        alternatives = check.advice.split(", or ")
        assert alternatives != [""]
        for alternative in alternatives:
            changes = {
                found["field"] or "save_interval": Q_(f"{found['number']} {found['unit']}") for found in ADVICE.finditer(alternative)
            }
            assert len(changes) == alternative.count(" and ") + 1
            mended = MODEL.solve(**(quantities(plan) | changes)).checks[number]
            assert (True, check.name) == (mended.holds, mended.name), alternative


@given(plans())
def test_advice_is_not_lavish(plan: dict[str, Any]) -> None:
    """The number of an advice is within a hundredth of what is needed."""
    result = solve(plan)
    needed = {
        "local_bandwidth": result.per_node_shard.base / plan["save_interval"],
        "durable_bandwidth": plan["checkpoint_bytes"] / plan["save_interval"],
        "network_bandwidth": result.per_node_shard.base / plan["save_interval"],
        "local_read_bandwidth": result.per_node_shard.base / plan["save_interval"],
        "save_interval": result.shortest_save_interval.base, "local_capacity": result.local_bytes_needed.base,
    }  # fmt: skip
    for check in result.checks:
        for found in ADVICE.finditer(check.advice):
            field = found["field"] or "save_interval"
            assert needed[field] * (1 - 1e-12) <= Q_(f"{found['number']} {found['unit']}").base <= needed[field] * 1.0101


@given(plans(), st.lists(positive(1e-2, 1e6), min_size=1, max_size=4), st.lists(positive(1e6, 1e13), min_size=1, max_size=4))
def test_arrays_hold_the_scalars(plan: dict[str, Any], intervals: list[float], rates: list[float]) -> None:
    """A column of intervals against a row of bandwidths holds exactly what each pair gives alone."""
    together = MODEL.solve(
        **(quantities(plan) | {"save_interval": Q_(np.array(intervals)[:, None], "s"), "durable_bandwidth": Q_(np.array(rates), "byte/s")})
    )
    shape = (len(intervals), len(rates))
    table = {name: np.broadcast_to(each, shape) for name, each in values(together).items()}
    limits, feasible = np.broadcast_to(together.drain_limit, shape), np.broadcast_to(together.feasible, shape)
    for row, interval in enumerate(intervals):
        for column, rate in enumerate(rates):
            alone = solve(plan | {"save_interval": interval, "durable_bandwidth": rate})
            assert values(alone) == {name: each[row, column] for name, each in table.items()}
            assert (alone.drain_limit, alone.feasible) == (limits[row, column], feasible[row, column])


OTHER_UNITS = {"byte": ["MB", "TiB", "Gb", "bit"], "byte/s": ["Gb/s", "MiB/s", "TB/h", "GB/day"], "s": ["min", "h", "day", "ms"]}


@given(plans(), st.data())
def test_units_do_not_matter(plan: dict[str, Any], data: st.DataObject) -> None:
    """The same plan in other units has an equal answer, with an equal hash."""
    given_units = quantities(plan)
    moved = {
        name: value.to(data.draw(st.sampled_from(OTHER_UNITS[UNITS[name]]))) if isinstance(value, Quantity) else value
        for name, value in given_units.items()
    }
    one, other = MODEL.solve(**given_units), MODEL.solve(**moved)
    assert (one, hash(one), values(one)) == (other, hash(other), values(other))


@given(plans(), st.sampled_from([2.0, 4.0, 0.5]))
def test_bytes_scale(plan: dict[str, Any], factor: float) -> None:
    """Everything stored and every bandwidth times a factor leaves all times, ratios and verdicts as they were."""
    bigger = {
        name: value * factor if name in UNITS and value is not None and name != "save_interval" else value for name, value in plan.items()
    }
    one, other = solve(plan), solve(bigger)
    for name in ("local_write_time", "drain_time", "shortest_save_interval", "waiting_cadence", "worst_local_age", "worst_durable_age"):
        assert getattr(one, name) == getattr(other, name), name
    assert (one.pause_fraction, one.drain_utilization, one.feasible, one.drain_limit) == (
        other.pause_fraction, other.drain_utilization, other.feasible, other.drain_limit
    )  # fmt: skip


@given(plans(), st.sampled_from([2.0, 4.0, 0.5]))
def test_times_scale(plan: dict[str, Any], factor: float) -> None:
    """Every bandwidth over a factor and the interval times it makes all times longer by it, and changes no verdict."""
    slower = plan | {
        name: None if plan[name] is None else plan[name] / factor
        for name in ("local_bandwidth", "durable_bandwidth", "network_bandwidth", "local_read_bandwidth")
    }
    one, other = solve(plan), solve(slower | {"save_interval": plan["save_interval"] * factor})
    assert [each * factor for each in (one.local_write_time.base, one.drain_time.base, one.worst_durable_age.base)] == [
        other.local_write_time.base, other.drain_time.base, other.worst_durable_age.base
    ]  # fmt: skip
    assert (one.feasible, one.drain_limit, one.pause_fraction) == (other.feasible, other.drain_limit, other.pause_fraction)


@given(
    plans(),
    st.sampled_from(["local_bandwidth", "durable_bandwidth", "network_bandwidth", "local_read_bandwidth", "local_capacity"]),
    positive(1, 1e3),
)
def test_more_never_harms(plan: dict[str, Any], field: str, factor: float) -> None:
    """A faster path or more room makes no time longer and no feasible plan infeasible."""
    assume(plan[field] is not None)
    one, other = solve(plan), solve(plan | {field: plan[field] * factor})
    for name in (
        "local_write_time",
        "drain_time",
        "shortest_save_interval",
        "waiting_cadence",
        "worst_local_age",
        "worst_durable_age",
        "backlog_growth",
    ):
        assert getattr(one, name) >= getattr(other, name), name
    assert one.feasible <= other.feasible


@given(plans(), positive(1, 1e3))
def test_longer_interval_costs_less_and_keeps_up(plan: dict[str, Any], factor: float) -> None:
    """A longer interval lowers the shares and the backlog, and makes no feasible plan infeasible."""
    one, other = solve(plan), solve(plan | {"save_interval": plan["save_interval"] * factor})
    assert one.pause_fraction >= other.pause_fraction
    assert one.drain_utilization >= other.drain_utilization
    assert one.backlog_growth >= other.backlog_growth
    assert one.feasible <= other.feasible


@given(plans(), st.integers(2, 10))
def test_more_nodes_shorten_the_pause_only(plan: dict[str, Any], factor: float) -> None:
    """With an even split, more nodes make the shard and the pause smaller, and leave what the store takes."""
    alone = plan | {"largest_shard": None, "network_bandwidth": None, "local_read_bandwidth": None}
    one, other = solve(alone), solve(alone | {"nodes": plan["nodes"] * factor})
    assert one.per_node_shard > other.per_node_shard
    assert one.local_write_time > other.local_write_time
    assert one.drain_time == other.drain_time


@given(plans())
def test_even_split_is_the_least_largest_shard(plan: dict[str, Any]) -> None:
    """No largest shard pauses training for less than an even split."""
    even = solve(plan | {"largest_shard": None})
    assert even.local_write_time.base <= solve(plan).local_write_time.base * (1 + 1e-12)


@given(plans())
def test_limit_of_a_fast_store(plan: dict[str, Any]) -> None:
    """With a store, a network and reading without end the drain vanishes, and the pause alone bounds the interval."""
    fast = dict.fromkeys(("durable_bandwidth", "network_bandwidth", "local_read_bandwidth"), 1e50)
    result = solve(plan | fast)
    assert (result.local_write_time, 0.0) == (result.shortest_save_interval, result.backlog_growth.base)


@given(plans())
def test_limit_of_a_single_node(plan: dict[str, Any]) -> None:
    """One node writes the whole checkpoint."""
    assert plan["checkpoint_bytes"] == solve(plan | {"nodes": 1, "largest_shard": None}).per_node_shard.base


@given(plans())
def test_shortest_interval_is_the_bound(plan: dict[str, Any]) -> None:
    """A little above the shortest interval the time checks hold; a little below one fails."""
    shortest = solve(plan).shortest_save_interval.base
    above, below = (solve(plan | {"save_interval": shortest * factor, "local_capacity": None}) for factor in (1 + 1e-9, 1 - 1e-9))
    assert (True, False) == (above.feasible, below.feasible)


@given(plans())
def test_backlog_grows_where_the_drain_falls_behind(plan: dict[str, Any]) -> None:
    """Undrained data grows where, and only where, the drain does not keep up."""
    result = solve(plan)
    assume(abs(result.drain_utilization - 1) > 1e-9)
    assert (result.checks[1].holds is False) is (result.backlog_growth.base > 0)


@given(plans())
def test_waiting_saves_are_sustained(plan: dict[str, Any]) -> None:
    """At the cadence that results from waiting, the plan keeps up."""
    result = solve(plan)
    waited = solve(plan | {"save_interval": result.waiting_cadence.base, "local_capacity": None})
    assert True is waited.feasible


names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=30).filter(str.isprintable)


@st.composite
def scenarios(draw: st.DrawFn) -> TieredCheckpointScenario:
    """Scenarios of all kinds, in base units or not."""
    node = Node(
        name=draw(names),
        accelerators=draw(st.integers(1, 10**6)),
        **{
            field: Q_(value, unit)
            for field, unit in (("network_bandwidth", "Gb/s"), ("local_read_bandwidth", "GiB/s"), ("local_capacity", "TB"))
            if (value := draw(stated(1e-3, 1e3))) is not None
        },
    )
    return TieredCheckpointScenario(
        workload=Workload(name=draw(names), parameters=Q_(draw(positive(1, 1e15)), "param")),
        bytes_per_param=Q_(draw(positive(0.1, 100)), "byte/param"),
        fleet=Fleet(name=draw(names), node=node, count=draw(st.integers(1, 10**9))),
        local_bandwidth=Q_(draw(positive(1e-3, 1e3)), "GB/s"),
        durable_bandwidth=Q_(draw(positive(1e-3, 1e3)), "Tb/s"),
        save_interval=Q_(draw(positive(1e-3, 1e3)), "min"),
    )


@given(scenarios())
def test_text_loses_nothing(case: TieredCheckpointScenario) -> None:
    """A scenario comes back from TOML and from JSON equal, with an equal hash and an equal answer."""
    for back in (TieredCheckpointScenario.from_toml(case.to_toml()), TieredCheckpointScenario.from_json(case.to_json())):
        assert (case, hash(case), case.result) == (back, hash(back), back.result)


@given(scenarios(), st.data())
def test_equal_by_meaning(case: TieredCheckpointScenario, data: st.DataObject) -> None:
    """A scenario whose fields are put in other units is equal, with an equal hash."""
    fields = ("local_bandwidth", "durable_bandwidth", "save_interval")
    moved = {
        name: getattr(case, name).to(data.draw(st.sampled_from(OTHER_UNITS["s" if name == "save_interval" else "byte/s"])))
        for name in fields
    }
    other = attrs.evolve(case, **moved)
    assert (case, hash(case)) == (other, hash(other))
