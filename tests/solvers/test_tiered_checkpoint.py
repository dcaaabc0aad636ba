"""The tiered save: numbers, arrays, locks, and the law behind every number."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import attrs
import numpy as np
import pytest

from mlsysim import Q_, InputError, TieredCheckpointModel, TieredCheckpointResult

MODEL = TieredCheckpointModel()
QUANTITIES = (
    "checkpoint_bytes", "per_node_shard", "local_write_time", "drain_time", "durable_share_per_node", "shortest_save_interval",
    "waiting_cadence", "backlog_growth", "worst_local_age", "worst_durable_age", "local_bytes_needed",
)  # fmt: skip
RATIOS = ("pause_fraction", "drain_utilization")
REQUIRED = ("checkpoint_bytes", "nodes", "local_bandwidth", "durable_bandwidth", "save_interval")
OPTIONAL = ("largest_shard", "network_bandwidth", "local_read_bandwidth", "local_capacity")


def numbers(result: TieredCheckpointResult) -> dict[str, Any]:
    """Every field in base units."""
    return {name: getattr(result, name).base for name in QUANTITIES} | {name: getattr(result, name) for name in RATIOS}


def test_numbers_of_gpt3(plan: dict[str, Any]) -> None:
    """The known values of the GPT-3 case, to twelve digits."""
    expected = {
        "checkpoint_bytes": 2.45e12, "per_node_shard": 9570312500.0, "local_write_time": 0.341796875, "drain_time": 2.45,
        "durable_share_per_node": 3.90625e9, "pause_fraction": 0.0005696614583333334, "drain_utilization": 2.45 / 600,
        "shortest_save_interval": 2.45, "waiting_cadence": 600.0, "backlog_growth": 0.0, "worst_local_age": 600.341796875,
        "worst_durable_age": 602.791796875, "local_bytes_needed": 19140625000.0,
    }  # fmt: skip
    result = MODEL.solve(**plan)
    assert expected == pytest.approx(numbers(result), rel=1e-12, abs=0)
    assert (True, "durable_bandwidth", ()) == (result.feasible, result.drain_limit, result.shape)


def test_numbers_where_the_drain_falls_behind(plan: dict[str, Any]) -> None:
    """At 2.45 GB/s the drain takes 1000 s of the 600: saves queue, and data piles up at 1.63 GB/s."""
    result = MODEL.solve(**(plan | {"durable_bandwidth": "2.45 GB/s"}))
    assert (False, 1000.0, 1000.341796875) == (result.feasible, result.shortest_save_interval.base, result.waiting_cadence.base)
    assert pytest.approx(2.45e12 / 600 - 2.45e9, rel=1e-12) == result.backlog_growth.base
    assert (math.inf, math.inf) == (result.worst_local_age.base, result.worst_durable_age.base)


@pytest.mark.parametrize(
    ("rates", "limit"),
    [
        ({}, "durable_bandwidth"),
        ({"network_bandwidth": "1 GB/s"}, "network_bandwidth"),
        ({"local_read_bandwidth": "1 GB/s"}, "local_read_bandwidth"),
        ({"network_bandwidth": "2 GB/s", "local_read_bandwidth": "1 GB/s"}, "local_read_bandwidth"),
        ({"network_bandwidth": "1 GB/s", "local_read_bandwidth": "2 GB/s"}, "network_bandwidth"),
        ({"network_bandwidth": "1 GB/s", "local_read_bandwidth": "1 GB/s"}, "network_bandwidth"),
        ({"network_bandwidth": "1 TB/s", "local_read_bandwidth": "1 TB/s"}, "durable_bandwidth"),
        ({"network_bandwidth": "62.5 GB/s", "local_read_bandwidth": "62.5 GB/s"}, "durable_bandwidth"),
    ],
)
def test_drain_limit(rates: dict[str, str], limit: str) -> None:
    """The slowest of the three is named, the first of them on a tie."""
    result = MODEL.solve(
        checkpoint_bytes=Q_("1 TB"), nodes=16, local_bandwidth=Q_("1 GB/s"), durable_bandwidth=Q_("1 TB/s"), save_interval=Q_("10 min"),
        **{name: Q_(rate) for name, rate in rates.items()},
    )  # fmt: skip
    assert limit == result.drain_limit


def test_largest_shard_sets_the_pause(plan: dict[str, Any]) -> None:
    """Where one node writes more, training waits for it, and it needs the room; the drain to the store is the same."""
    result = MODEL.solve(**(plan | {"largest_shard": "28 GB"}))
    assert (Q_("28 GB"), Q_("1 s"), Q_("56 GB"), Q_("2.45 s")) == (
        result.per_node_shard, result.local_write_time, result.local_bytes_needed, result.drain_time
    )  # fmt: skip


@pytest.mark.parametrize("largest", ["2.45 TB", "9570312500 byte", "9570312500.000001 byte", "9570312499.999999 byte"])
def test_largest_shard_at_its_bounds(plan: dict[str, Any], largest: str) -> None:
    """The even share and the whole checkpoint are allowed, and so is a share that was rounded."""
    assert Q_(largest) == MODEL.solve(**(plan | {"largest_shard": largest})).per_node_shard


@pytest.mark.parametrize("largest", ["9.57 GB", "1 byte", "2.46 TB", "2450000000001 byte", Q_([10, 1], "GB")])
def test_largest_shard_out_of_bounds(plan: dict[str, Any], largest: Any) -> None:
    """Less than the even share or more than the whole checkpoint is no largest shard."""
    with pytest.raises(InputError, match=r"^TieredCheckpointModel.largest_shard must be between the even share and the whole checkpoint"):
        MODEL.solve(**(plan | {"largest_shard": largest}))


def test_largest_shard_of_one_node(plan: dict[str, Any]) -> None:
    """On one node the largest shard is the checkpoint."""
    assert Q_("2.45 TB") == MODEL.solve(**(plan | {"nodes": 1, "largest_shard": "2.45 TB"})).per_node_shard


class TestScalars:
    """Answers without axes are Python's own."""

    @pytest.mark.parametrize("wrap", [float, np.float64, np.array, np.float32], ids=lambda each: each.__name__)
    def test_types(self, wrap: Any) -> None:
        """Whatever kind of number goes in, ``bool``, ``float`` and ``str`` come out."""
        given = {
            "local_bandwidth": (16, "GB/s"),
            "durable_bandwidth": (1, "TB/s"),
            "save_interval": (10, "min"),
            "checkpoint_bytes": (2, "TB"),
        }
        result = MODEL.solve(
            nodes=wrap(4).astype(int) if wrap is np.array else 4, **{name: Q_(wrap(number), unit) for name, (number, unit) in given.items()}
        )
        assert {float} == {type(getattr(result, name).base) for name in QUANTITIES} | {type(getattr(result, name)) for name in RATIOS}
        assert (bool, str, bool) == (type(result.feasible), type(result.drain_limit), type(result.checks[0].holds))

    def test_text_is_taken(self, plan: dict[str, Any]) -> None:
        """The solver takes text as a scenario does."""
        texts = {"checkpoint_bytes": "2.45 TB", "local_bandwidth": "28 GB/s", "durable_bandwidth": "1 TB/s", "save_interval": "10 min"}
        assert MODEL.solve(**plan) == MODEL.solve(**(plan | texts))


class TestArrays:
    """Arrays go through the same code, with numpy broadcasting."""

    @pytest.fixture
    def table(self, plan: dict[str, Any]) -> TieredCheckpointResult:
        """A column of two intervals against a row of three bandwidths."""
        return MODEL.solve(**(plan | {"durable_bandwidth": Q_([1, 2, 5000], "GB/s"), "save_interval": Q_([[10], [30]], "min")}))

    def test_each_field_has_the_shape_of_its_own_inputs(self, table: TieredCheckpointResult) -> None:
        """A pause knows no durable bandwidth, a drain no interval."""
        shapes = {name: np.shape(getattr(table, name).base) for name in QUANTITIES} | {
            name: np.shape(getattr(table, name)) for name in RATIOS
        }
        assert {
            "checkpoint_bytes": (), "per_node_shard": (), "local_write_time": (), "local_bytes_needed": (), "drain_time": (3,),
            "durable_share_per_node": (3,), "shortest_save_interval": (3,), "pause_fraction": (2, 1), "drain_utilization": (2, 3),
            "waiting_cadence": (2, 3), "backlog_growth": (2, 3), "worst_local_age": (2, 3), "worst_durable_age": (2, 3),
        } == shapes  # fmt: skip

    def test_feasible_has_the_shape_of_the_result(self, table: TieredCheckpointResult) -> None:
        """Feasible is a boolean array of the shape of all inputs together."""
        assert ((2, 3), (2, 3), np.bool_) == (table.shape, table.feasible.shape, table.feasible.dtype)

    def test_which_is_feasible(self, table: TieredCheckpointResult) -> None:
        """Only what is drained in time is feasible."""
        assert [[False, False, True], [False, True, True]] == table.feasible.tolist()

    def test_drain_limit_is_an_array_of_names(self, plan: dict[str, Any]) -> None:
        """Each drain has its limit."""
        result = MODEL.solve(**(plan | {"durable_bandwidth": Q_([1, 5000], "GB/s"), "network_bandwidth": Q_("1 GB/s")}))
        assert ["durable_bandwidth", "network_bandwidth"] == result.drain_limit.tolist()

    @pytest.mark.parametrize("field", [*REQUIRED, *OPTIONAL])
    def test_every_input_may_be_an_array(self, plan: dict[str, Any], field: str) -> None:
        """Each input alone may be an array, and each of its elements is answered as it is alone."""
        several = {
            "checkpoint_bytes": Q_([1, 2450, 1e6], "GB"),
            "nodes": np.array([1, 256, 4096]),
            "local_bandwidth": Q_([0.01, 28, 100], "GB/s"),
            "durable_bandwidth": Q_([1, 1000, 5000], "GB/s"),
            "save_interval": Q_([1, 600, 6000], "s"),
            "largest_shard": Q_([9.6, 20, 2450], "GB"),
            "network_bandwidth": Q_([0.001, 1, 50], "GB/s"),
            "local_read_bandwidth": Q_([0.001, 1, 50], "GB/s"),
            "local_capacity": Q_([1, 20, 100], "GB"),
        }[field]
        together = MODEL.solve(**(plan | {field: several}))
        alone = [MODEL.solve(**(plan | {field: one if field != "nodes" else int(one)})) for one in several]
        assert ((3,), [each.feasible for each in alone]) == (together.shape, together.feasible.tolist())
        for name, value in numbers(together).items():
            assert [numbers(each)[name] for each in alone] == np.broadcast_to(value, (3,)).tolist(), name
        assert [each.drain_limit for each in alone] == np.broadcast_to(together.drain_limit, (3,)).tolist()
        for number, check in enumerate(together.checks):
            if check.holds is not None:
                assert [each.checks[number].holds for each in alone] == np.broadcast_to(check.holds, (3,)).tolist()

    def test_shape_counts_inputs_that_no_check_needs(self, plan: dict[str, Any]) -> None:
        """With a largest shard stated, the nodes only share out the store; the result has their shape all the same."""
        result = MODEL.solve(**(plan | {"nodes": np.array([256, 512]), "largest_shard": "20 GB"}))
        assert ((2,), (2,), [True, True]) == (result.shape, result.durable_share_per_node.magnitude.shape, result.feasible.tolist())

    def test_nothing_to_solve(self, plan: dict[str, Any]) -> None:
        """An empty array is answered with empty arrays, and has a card."""
        result = MODEL.solve(**(plan | {"save_interval": Q_(np.array([]), "s")}))
        assert ((0,), (0,), True) == (result.shape, result.feasible.shape, "0 of 0" in str(result))

    def test_shapes_that_do_not_go_together(self, plan: dict[str, Any]) -> None:
        """Arrays that cannot be broadcast are named by their shapes."""
        with pytest.raises(InputError, match=r"arrays that broadcast together; got '\(3,\), \(2,\)'"):
            MODEL.solve(**(plan | {"durable_bandwidth": Q_([1, 2, 3], "GB/s"), "save_interval": Q_([1, 2], "min")}))

    def test_one_bad_element(self, plan: dict[str, Any]) -> None:
        """One bad element is named with its value."""
        with pytest.raises(InputError, match=r"^TieredCheckpointModel.save_interval must be greater than 0; got -60.0 second"):
            MODEL.solve(**(plan | {"save_interval": Q_([1, -1, 3], "min")}))

    def test_result_is_read_only(self, table: TieredCheckpointResult) -> None:
        """No array of a result can be written, those that it was computed from included."""
        arrays = [getattr(table, name).magnitude for name in QUANTITIES] + [
            getattr(table, name) for name in (*RATIOS, "feasible", "drain_limit")
        ]
        arrays += [
            table.inputs.durable_bandwidth.magnitude,
            table.inputs.save_interval.magnitude,
            table.checks[1].holds,
            table.checks[1].slack.magnitude,
        ]  # type: ignore[union-attr]
        for array in arrays:
            if isinstance(array, np.ndarray):
                with pytest.raises(ValueError, match="read-only"):
                    array[...] = array

    def test_result_is_unhashable(self, table: TieredCheckpointResult) -> None:
        """A result that holds arrays is no key."""
        with pytest.raises(TypeError, match="unhashable"):
            hash(table)

    @pytest.mark.parametrize(
        "again", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))], ids=["copy", "deepcopy", "pickle"]
    )
    def test_result_comes_back_locked(self, table: TieredCheckpointResult, again: Any) -> None:
        """A copied or pickled result is equal, and as read-only as the first."""
        back = again(table)
        assert (True, False, False, False) == (
            table == back, back.drain_time.magnitude.flags.writeable, back.feasible.flags.writeable,
            back.inputs.save_interval.magnitude.flags.writeable
        )  # fmt: skip

    def test_caller_keeps_the_arrays(self, plan: dict[str, Any]) -> None:
        """The caller's arrays are neither changed nor locked, and changing them later changes no result."""
        sources = {
            "save_interval": np.array([600.0, 1200.0]),
            "durable_bandwidth": np.array([[1e9], [1e12]]),
            "checkpoint_bytes": np.array([1e12, 2e12]),
        }
        units = {"save_interval": "s", "durable_bandwidth": "byte/s", "checkpoint_bytes": "byte"}
        nodes, copies = np.array([128, 256]), {name: each.copy() for name, each in sources.items()}
        result = MODEL.solve(**(plan | {"nodes": nodes} | {name: Q_(each, units[name]) for name, each in sources.items()}))
        before = pickle.dumps(result)
        assert all(np.array_equal(copies[name], each) and each.flags.writeable for name, each in sources.items())
        assert nodes.flags.writeable
        for each in (*sources.values(), nodes):
            each[...] = 1
        assert before == pickle.dumps(result)


class TestBadInput:
    """Each bad input names the field, and says what to write."""

    @pytest.mark.parametrize("field", [each for each in (*REQUIRED, *OPTIONAL) if each != "nodes"])
    @pytest.mark.parametrize(
        "value",
        [
            14,
            "14",
            "0 byte",
            "-1 byte",
            "1 USD",
            "nan s",
            "80,5 GB/s",
            "1:30:00",
            "9**9**9**9 byte",
            True,
            [1],
            Q_(float("inf"), "s"),
            "1 bogon",
        ],
    )
    def test_quantity(self, plan: dict[str, Any], field: str, value: Any) -> None:
        """What is no quantity of the right kind is refused under the name of its field."""
        with pytest.raises(InputError, match=f"^TieredCheckpointModel.{field} must be .*; got ") as caught:
            MODEL.solve(**(plan | {field: value}))
        assert caught.value.fix

    @pytest.mark.parametrize("nodes", [0, -4, 2.5, True, "256", None, np.array([4, 0]), np.array([2.0])])
    def test_nodes(self, plan: dict[str, Any], nodes: Any) -> None:
        """Nodes are a count, or an array of counts."""
        with pytest.raises(InputError, match=r"^TieredCheckpointModel.nodes must be"):
            MODEL.solve(**(plan | {"nodes": nodes}))

    def test_required_is_not_optional(self, plan: dict[str, Any]) -> None:
        """None stands for what may be left out, and only for that."""
        with pytest.raises(InputError, match=r"^TieredCheckpointModel.durable_bandwidth must be a bandwidth"):
            MODEL.solve(**(plan | {"durable_bandwidth": None}))

    @pytest.mark.parametrize("change", [{"durable_bandwith": Q_("1 TB/s")}, {"mtbf": Q_("1 h")}])
    def test_unknown_keyword(self, plan: dict[str, Any], change: dict[str, Any]) -> None:
        """From Python, an unknown keyword is a TypeError."""
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            MODEL.solve(**(plan | change))

    @pytest.mark.parametrize("field", REQUIRED)
    def test_missing_keyword(self, plan: dict[str, Any], field: str) -> None:
        """From Python, a missing keyword is a TypeError."""
        del plan[field]
        with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{field}'"):
            MODEL.solve(**plan)


class TestObject:
    """A result is a value."""

    def test_equal_by_meaning(self, plan: dict[str, Any]) -> None:
        """The same plan in other units has an equal answer, with an equal hash."""
        others = {"checkpoint_bytes": Q_("2450 GB"), "durable_bandwidth": Q_("8 Tb/s"), "save_interval": Q_("600 s")}
        one, other = MODEL.solve(**plan), MODEL.solve(**(plan | others))
        assert (one, hash(one)) == (other, hash(other))

    def test_other_plans_have_other_answers(self, plan: dict[str, Any]) -> None:
        """Another interval is another answer."""
        assert MODEL.solve(**plan) != MODEL.solve(**(plan | {"save_interval": Q_("11 min")}))

    @pytest.mark.parametrize("other", [None, 1, "FEASIBLE", object()])
    def test_equals_nothing_else(self, plan: dict[str, Any], other: object) -> None:
        """A result is equal to results only."""
        assert MODEL.solve(**plan) != other

    def test_frozen(self, plan: dict[str, Any]) -> None:
        """No field can be set."""
        result = MODEL.solve(**plan)
        for name in ("drain_time", "feasible", "checks", "new"):
            with pytest.raises(AttributeError):
                setattr(result, name, None)

    def test_models_are_equal(self) -> None:
        """The solver holds nothing, so that all of them are one."""
        assert (TieredCheckpointModel(), 1) == (MODEL, len({TieredCheckpointModel(), MODEL}))


class TestExplain:
    """``explain`` prints the law behind a number."""

    @pytest.mark.parametrize("field", [*QUANTITIES, *RATIOS, "drain_limit"])
    def test_every_number_has_its_law(self, plan: dict[str, Any], field: str) -> None:
        """Each names the field, the equation, what it assumes and ignores, and its source."""
        text = MODEL.solve(**plan).explain(field)
        assert text.startswith(f"{field} = ")
        for part in ("Equation: ", "Assumes: ", "Ignores: ", "Source: "):
            assert part in text, part

    def test_numbers_are_put_in(self, plan: dict[str, Any]) -> None:
        """The drain shows its equation, the numbers in it, and the answer."""
        text = MODEL.solve(**(plan | {"network_bandwidth": "400 Gb/s"})).explain("drain_time")
        for part in (
            "drain_time = 2.45 s",
            "max(S / B_durable",
            "checkpoint_bytes = 2.45 TB",
            "durable_bandwidth = 1 TB/s",
            "network_bandwidth = 50 GB/s",
        ):
            assert part in text, part

    def test_what_was_not_stated_is_not_put_in(self, plan: dict[str, Any]) -> None:
        """A rate that nobody stated does not appear among the numbers."""
        assert "network_bandwidth =" not in MODEL.solve(**plan).explain("drain_time")

    def test_of_arrays(self, plan: dict[str, Any]) -> None:
        """An array is shown by its range."""
        assert "drain_time = 2.45 s to 24.5 s" in MODEL.solve(**(plan | {"durable_bandwidth": Q_([100, 1000], "GB/s")})).explain(
            "drain_time"
        )

    @pytest.mark.parametrize(
        ("name", "hint"), [("drain_tme", "Did you mean drain_time?"), ("inputs", "Known: "), ("", "Known: "), ("__class__", "Known: ")]
    )
    def test_unknown_field(self, plan: dict[str, Any], name: str, hint: str) -> None:
        """A field without a law is an InputError that names the nearest."""
        with pytest.raises(InputError, match=f"TieredCheckpointResult.explain must be .*{hint[:10]}"):
            MODEL.solve(**plan).explain(name)


def test_solver_holds_nothing() -> None:
    """The solver itself takes no fields."""
    assert () == attrs.fields(TieredCheckpointModel)
