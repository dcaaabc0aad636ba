"""The nouns: workload, node, fleet, store."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from mlsysim import Q_, Fleet, InputError, Node, Store, Workload

NODE = Node(name="8-GPU", accelerators=8, network_bandwidth="400 Gbps", local_read_bandwidth="20 GB/s", local_capacity="30 TB")
SPECS = [
    Workload(name="my 70B", parameters="70.6e9 param"), NODE, Fleet(name="ours", node=NODE, count=128),
    Store(name="ours", write_bandwidth="1 TB/s", read_bandwidth="2 TB/s"),
]  # fmt: skip


def test_accelerators_of_a_fleet() -> None:
    """A fleet has its nodes times the accelerators of each."""
    assert 1024 == Fleet(name="ours", node=NODE, count=128).accelerators


@pytest.mark.parametrize("count", [0, -4, 2.5, True, "256", None])
@pytest.mark.parametrize("owner", ["Fleet.count", "Node.accelerators"])
def test_bad_count(count: Any, owner: str) -> None:
    """A count of 0, -4, 2.5 or True is refused under the name of its field."""
    with pytest.raises(InputError, match=f"^{owner} must be a whole number of at least 1; got"):
        Fleet(name="a", node=NODE, count=count) if owner == "Fleet.count" else Node(name="a", accelerators=count)


@pytest.mark.parametrize("node", [None, "Generic8", {"name": "a", "accelerators": 8}, Node, 5])
def test_fleet_wants_a_node(node: Any) -> None:
    """A fleet takes a Node, and says how to make one."""
    with pytest.raises(InputError, match=r'^Fleet.node must be a Node; got .*Write node=Node\(name="8-GPU", accelerators=8\).'):
        Fleet(name="a", node=node, count=3)


@pytest.mark.parametrize(
    "name", ["", " ", "a\nb", "a\0b", "x" * 201, None, 5, b"x", "\u202eabc", "a\u200bb", "\ud800", "\x1b[31m", ["a"]], ids=repr
)
def test_bad_name(name: Any) -> None:
    """A name is one line of text that can be shown."""
    with pytest.raises(InputError, match=r"^Workload.name must be a name on one line; got"):
        Workload(name=name, parameters="1e9 param")


@pytest.mark.parametrize("name", ["模型 70B", "é", "🎉", "<script>alert(1)</script>", 'a"b\\c', "'; --", "x" * 200, "[tool]"])
def test_good_name(name: str) -> None:
    """Any letters make a name."""
    assert name == Workload(name=name, parameters="1e9 param").name


@pytest.mark.parametrize("field", ["network_bandwidth", "local_read_bandwidth", "local_capacity"])
@pytest.mark.parametrize("value", ["0 GB", "1 USD", 5, "-1 GB/s", "nan GB"])
def test_bad_node_field(field: str, value: Any) -> None:
    """Each optional field of a node is checked under its own name."""
    with pytest.raises(InputError, match=f"^Node.{field} must be"):
        Node(name="a", accelerators=8, **{field: value})


def test_store_rates() -> None:
    """A store's rates are bandwidths."""
    with pytest.raises(InputError, match=r"^Store.write_bandwidth must be a bandwidth"):
        Store(name="a", write_bandwidth="1 TB")


@pytest.mark.parametrize("spec", SPECS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda spec: pickle.loads(pickle.dumps(spec)), attrs.evolve],
    ids=["copy", "deepcopy", "pickle", "evolve"],
)
def test_value(spec: Any, again: Callable[[Any], Any]) -> None:
    """A spec that was copied, pickled or evolved without a change is equal and hashes alike."""
    other = again(spec)
    assert (spec, hash(spec), repr(spec)) == (other, hash(other), repr(other))


@pytest.mark.parametrize("spec", SPECS, ids=lambda each: type(each).__name__)
def test_frozen(spec: Any) -> None:
    """No field of a spec can be set, added or deleted."""
    for change in (lambda: setattr(spec, "name", "b"), lambda: setattr(spec, "new", 1), lambda: delattr(spec, "name")):
        with pytest.raises(AttributeError):
            change()


@pytest.mark.parametrize("spec", SPECS, ids=lambda each: type(each).__name__)
def test_keyword_only(spec: Any) -> None:
    """A spec takes no argument by position."""
    with pytest.raises(TypeError, match="positional"):
        type(spec)(*attrs.astuple(spec, recurse=False))


def test_keywords_are_pythons_business() -> None:
    """From Python, a missing or unknown keyword is a TypeError."""
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'parameters'"):
        Workload(name="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'parametres'"):
        Workload(name="a", parameters="1e9 param", parametres="1e9 param")  # type: ignore[call-arg,arg-type]


def test_equal_by_meaning() -> None:
    """Specs that say the same in other units are equal and hash alike."""
    one, other = Node(name="a", accelerators=8, local_capacity="1 TB"), Node(name="a", accelerators=8, local_capacity=Q_(1000, "GB"))
    assert (one, hash(one)) == (other, hash(other))


def test_evolve_validates_again() -> None:
    """A changed copy goes through the same checks."""
    assert Q_("2 TB") == attrs.evolve(NODE, local_capacity="2 TB").local_capacity
    with pytest.raises(InputError, match=r"^Node.local_capacity must be greater than 0"):
        attrs.evolve(NODE, local_capacity="-2 TB")
