"""A scenario: one frozen situation, and its answer."""

from __future__ import annotations

import copy
import multiprocessing
import operator
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pint
import pytest

from mlsysim import Q_, Fleet, InputError, Models, Node, Scenarios, TieredCheckpointResult, TieredCheckpointScenario, Workload
from mlsysim.engine.scenario_definitions.data import TieredCheckpointScenario as Defined
from mlsysim.engine.scenario_types import TieredCheckpointScenario as Public

QUANTITIES = ("bytes_per_param", "local_bandwidth", "durable_bandwidth", "save_interval")


def test_fixed_paths() -> None:
    """The scenario is found at its published paths."""
    assert (TieredCheckpointScenario, TieredCheckpointScenario) == (Defined, Public)


def test_name_of_the_result() -> None:
    """The published page's own example holds."""
    assert "TieredCheckpointResult" == type(Scenarios.Gpt3TieredCheckpoint2K.result).__name__


def test_result_is_that_of_the_solver(case: TieredCheckpointScenario) -> None:
    """70.6e9 parameters at 14 byte over 128 nodes: 988.4 GB, drained in 9.884 s."""
    result = case.result
    assert (Q_("988.4 GB"), Q_("7.721875 GB"), True) == (result.checkpoint_bytes, result.per_node_shard, result.feasible)
    assert 9.884 == pytest.approx(result.drain_time.base, rel=1e-15)


def test_what_the_node_states_is_used(fields: dict[str, Any]) -> None:
    """Network, reading and capacity come from the node, where it states them."""
    node = Node(name="slow", accelerators=8, network_bandwidth="10 MB/s", local_read_bandwidth="20 MB/s", local_capacity="10 GB")
    result = TieredCheckpointScenario(**(fields | {"fleet": Fleet(name="ours", node=node, count=128)})).result
    assert ("network_bandwidth", [True, False, False]) == (result.drain_limit, [check.holds for check in result.checks])


class TestBadInput:
    """Each bad input names the field, and says what to write."""

    @pytest.mark.parametrize(
        ("value", "rule"),
        [
            (14, "with its unit"),
            ("14", "with its unit"),
            (14.0, "with its unit"),
            (None, "with its unit"),
            (True, "with its unit"),
            (np.float64(14), "with its unit"),
            (np.array([14.0]), "with its unit"),
            ([14], "with its unit"),
            (b"14 GB/s", "with its unit"),
            ("1 USD", "a price"),
            ("1 token", "a number of tokens"),
            ("80,5 GB/s", "one number and one unit"),
            ("80 000 GB/s", "one number and one unit"),
            ("1:30:00", "one number and one unit"),
            ("9**9**9**9 byte", "one number and one unit"),
            ("nan s", "never NaN or infinity"),
            ("inf s", "never NaN or infinity"),
            ("1e999 s", "finite"),
            ("12 furlongs", "known unit"),
            ("", "one number and one unit"),
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("field", QUANTITIES)
    def test_no_quantity(self, fields: dict[str, Any], field: str, value: Any, rule: str) -> None:
        """A bare number, numeric text, bad text or the wrong kind of thing is refused under the name of the field."""
        with pytest.raises(InputError, match=rf"^TieredCheckpointScenario\.{field} must be ") as caught:
            TieredCheckpointScenario(**(fields | {field: value}))
        assert rule in str(caught.value)
        assert caught.value.fix

    @pytest.mark.parametrize(
        ("field", "value", "called"),
        [
            ("durable_bandwidth", "1 TB", "an amount of information"),
            ("local_bandwidth", "1 TB", "an amount of information"),
            ("durable_bandwidth", "3 dollar", "a price"),
            ("save_interval", "1 TB/s", "a bandwidth"),
            ("save_interval", "1000 token", "a number of tokens"),
            ("bytes_per_param", "14 byte", "an amount of information"),
            ("bytes_per_param", "14 param", "a number of parameters"),
        ],
    )
    def test_wrong_dimension(self, fields: dict[str, Any], field: str, value: str, called: str) -> None:
        """What was given instead is called by its name."""
        with pytest.raises(InputError, match=rf"^TieredCheckpointScenario\.{field} must be .*; got .*{called}.*Write {field}="):
            TieredCheckpointScenario(**(fields | {field: value}))

    @pytest.mark.parametrize("number", [0, -1, -1e-30, float("nan"), float("inf"), -float("inf"), 1e70])
    @pytest.mark.parametrize("field", QUANTITIES)
    def test_bad_number(self, fields: dict[str, Any], field: str, number: float) -> None:
        """Zero, negative, NaN, infinite and absurd numbers are refused."""
        unit = {"bytes_per_param": "byte/param", "save_interval": "s"}.get(field, "byte/s")
        with pytest.raises(InputError, match=rf"^TieredCheckpointScenario\.{field} must be .*(greater than 0|between)"):
            TieredCheckpointScenario(**(fields | {field: Q_(number, unit)}))

    @pytest.mark.parametrize("magnitude", [[1.0, 2.0], [1.0], [[1.0]], []])
    def test_array(self, fields: dict[str, Any], magnitude: list[float]) -> None:
        """A scenario is one situation: an array is refused, and the solver named as its place."""
        with pytest.raises(InputError, match=r"^TieredCheckpointScenario\.save_interval must be one value; got .*arrays to the solver"):
            TieredCheckpointScenario(**(fields | {"save_interval": Q_(np.array(magnitude), "s")}))

    @pytest.mark.parametrize("value", [None, 5, "Llama3_70B", {"name": "a"}, Workload, Node(name="a", accelerators=1)])
    @pytest.mark.parametrize("field", ["workload", "fleet"])
    def test_wrong_noun(self, fields: dict[str, Any], field: str, value: Any) -> None:
        """A workload is a Workload and a fleet a Fleet; the error shows how to make one."""
        with pytest.raises(
            InputError,
            match=rf"^TieredCheckpointScenario\.{field} must be a {field.capitalize()}; got .*Write {field}={field.capitalize()}\(",
        ):
            TieredCheckpointScenario(**(fields | {field: value}))

    def test_tokens_as_parameters(self) -> None:
        """Tokens are no parameters."""
        with pytest.raises(InputError, match=r"^Workload.parameters must be a number of parameters; got .*a number of tokens"):
            Workload(name="a", parameters="15e12 token")

    def test_bits_for_bytes(self, fields: dict[str, Any]) -> None:
        """400 Gbps are taken for the 50 GB/s that they are."""
        assert Q_("50 GB/s") == TieredCheckpointScenario(**(fields | {"local_bandwidth": "400 Gbps"})).local_bandwidth

    @pytest.mark.parametrize("field", ["workload", "save_interval"])
    def test_missing_keyword(self, fields: dict[str, Any], field: str) -> None:
        """From Python a missing keyword is Python's own TypeError."""
        del fields[field]
        with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{field}'"):
            TieredCheckpointScenario(**fields)

    def test_unknown_keyword(self, fields: dict[str, Any]) -> None:
        """From Python an unknown keyword is Python's own TypeError."""
        with pytest.raises(TypeError, match="unexpected keyword argument 'save_intervall'"):
            TieredCheckpointScenario(**fields, save_intervall="5 min")

    def test_by_position(self, fields: dict[str, Any]) -> None:
        """Nothing is taken by position."""
        with pytest.raises(TypeError, match="positional"):
            TieredCheckpointScenario(*fields.values())

    @pytest.mark.parametrize(("magnitude", "unit", "same"), [(10, "min", "10 min"), (0.5, "hour", "30 min")])
    def test_foreign_registry(self, fields: dict[str, Any], magnitude: float, unit: str, same: str) -> None:
        """A quantity of stock Pint is taken over by the names of its units."""
        made = TieredCheckpointScenario(**(fields | {"save_interval": pint.UnitRegistry().Quantity(magnitude, unit)}))
        assert (Q_(same), True) == (made.save_interval, hash(made) == hash(TieredCheckpointScenario(**(fields | {"save_interval": same}))))

    @pytest.mark.parametrize("unit", ["Gb/s", "meter", "degC"])
    def test_foreign_unit(self, fields: dict[str, Any], unit: str) -> None:
        """A unit of stock Pint that we do not speak is refused under the name of the field."""
        with pytest.raises(InputError, match=r"^TieredCheckpointScenario.durable_bandwidth must be in units that mlsysim knows; got "):
            TieredCheckpointScenario(**(fields | {"durable_bandwidth": pint.UnitRegistry().Quantity(20, unit)}))

    def test_foreign_dimension(self, fields: dict[str, Any]) -> None:
        """A quantity of stock Pint goes through the same checks."""
        with pytest.raises(InputError, match=r"^TieredCheckpointScenario.durable_bandwidth must be a bandwidth"):
            TieredCheckpointScenario(**(fields | {"durable_bandwidth": pint.UnitRegistry().Quantity(20, "s")}))


class TestObject:
    """A scenario is a value."""

    @pytest.mark.parametrize("name", ["save_interval", "workload", "result", "new"])
    def test_frozen(self, case: TieredCheckpointScenario, name: str) -> None:
        """No field can be set, added or deleted."""
        for change in (lambda: setattr(case, name, None), lambda: delattr(case, name)):
            with pytest.raises(AttributeError):
                change()

    @pytest.mark.parametrize(
        "change",
        [
            lambda case: case.save_interval.ito("hour"), lambda case: case.save_interval.ito_base_units(),
            lambda case: case.fleet.node.local_capacity.ito("GB"), lambda case: case.result.drain_time.ito("min"),
        ],
    )  # fmt: skip
    def test_nothing_changes_in_place(self, fields: dict[str, Any], change: Callable[[Any], None]) -> None:
        """``case.save_interval.ito("hour")`` and its like raise, and change neither value, unit nor hash."""
        node = Node(name="8-GPU", accelerators=8, local_capacity="1 TB")
        case = TieredCheckpointScenario(**(fields | {"fleet": Fleet(name="ours", node=node, count=128)}))
        before = (repr(case), hash(case))
        with pytest.raises(TypeError, match="never changes in place"):
            change(case)
        assert before == (repr(case), hash(case))

    def test_augmented_assignment(self, case: TieredCheckpointScenario) -> None:
        """``*=`` on a field raises, and on a name bound to it makes another quantity."""
        with pytest.raises(AttributeError):
            case.save_interval *= 2  # type: ignore[misc]
        interval = case.save_interval
        interval *= 2
        assert (Q_("20 min"), Q_("10 min")) == (interval, case.save_interval)

    def test_equal_by_meaning(self, fields: dict[str, Any]) -> None:
        """The same plan in other units is equal, hashes alike, and is one member of a set."""
        others = {
            "local_bandwidth": "96 Gb/s",
            "durable_bandwidth": Q_("0.1 TB/s"),
            "save_interval": "600 s",
            "bytes_per_param": "112 bit/param",
        }
        one, other = TieredCheckpointScenario(**fields), TieredCheckpointScenario(**(fields | others))
        assert (one, hash(one), 1) == (other, hash(other), len({one, other}))

    def test_a_difference_makes_another(self, fields: dict[str, Any]) -> None:
        """A millisecond makes another plan."""
        assert TieredCheckpointScenario(**fields) != TieredCheckpointScenario(**(fields | {"save_interval": "600.001 s"}))

    @pytest.mark.parametrize(
        "again",
        [
            copy.copy,
            copy.deepcopy,
            attrs.evolve,
            *(lambda case, p=p: pickle.loads(pickle.dumps(case, p)) for p in range(pickle.HIGHEST_PROTOCOL + 1)),
        ],
    )
    def test_copies(self, case: TieredCheckpointScenario, again: Callable[[Any], Any]) -> None:
        """A copied, evolved or pickled scenario is equal, hashes alike, and has an equal answer."""
        back = again(case)
        assert (case, hash(case), repr(case), case.result) == (back, hash(back), repr(back), back.result)

    def test_evolve_changes_one_field(self, case: TieredCheckpointScenario) -> None:
        """An evolved scenario has the one change, given as a person writes it."""
        other = attrs.evolve(case, save_interval="5 min")
        assert (Q_("5 min"), Q_("10 min"), case.fleet) == (other.save_interval, case.save_interval, other.fleet)

    @pytest.mark.parametrize("change", [{"save_interval": "-5 min"}, {"save_interval": 5}, {"fleet": None}, {"durable_bandwidth": "1 TB"}])
    def test_evolve_validates_again(self, case: TieredCheckpointScenario, change: dict[str, Any]) -> None:
        """A bad change is refused as in the constructor."""
        with pytest.raises(InputError, match=f"^TieredCheckpointScenario.{next(iter(change))} must be"):
            attrs.evolve(case, **change)

    def test_other_processes(self, case: TieredCheckpointScenario) -> None:
        """A scenario goes to a fresh process and its answer comes back, both equal; so does an InputError of several faults."""
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            there, result = pool.map(operator.attrgetter("fleet", "result"), [case])[0]
            assert (case.fleet, case.result, hash(case.result), TieredCheckpointResult) == (there, result, hash(result), type(result))
            with pytest.raises(InputError, match="faults") as caught:
                pool.apply(TieredCheckpointScenario.from_toml, ('save_interval = "5"',))
        assert 6 == len(caught.value.faults)

    def test_application_registry_stays(self, case: TieredCheckpointScenario) -> None:
        """Answering and pickling leave Pint's application registry as it was."""
        before = pint.get_application_registry().get()
        pickle.loads(pickle.dumps((case, case.result)))
        assert (True, "1 byte") == (before is pint.get_application_registry().get(), str(pint.Quantity(1, "byte")))

    def test_subclass_of_text_and_quantity(self, fields: dict[str, Any]) -> None:
        """Text and quantities of a class of one's own are taken for what they are."""

        class Text(str):
            __slots__ = ()

        assert Q_("5 min") == TieredCheckpointScenario(**(fields | {"save_interval": Text("5 min")})).save_interval

    def test_catalog_entries_make_scenarios(self, fields: dict[str, Any]) -> None:
        """A model of the catalog takes the place of one's own."""
        assert Q_("70553706496 param") == TieredCheckpointScenario(**(fields | {"workload": Models.Llama3_70B})).workload.parameters
