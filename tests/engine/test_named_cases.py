"""The named cases."""

from __future__ import annotations

import pytest

from mlsysim import Q_, Scenarios
from mlsysim.fields import INFORMATION

NAMES = [
    "Gpt3TieredCheckpoint2K", "Llama3_405BTieredCheckpoint16K", "Llama3_405BTieredCheckpointSuperPod", "MtNlgTieredCheckpoint20Gb",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_is_there(name: str) -> None:
    """The four cases are listed, by iteration, ``dir`` and ``in``."""
    assert (True, True, True) == (name in list(Scenarios), name in dir(Scenarios), name in Scenarios)


def test_gpt3() -> None:
    """GPT-3 on 256 nodes of 8: the fields as published."""
    case = Scenarios.Gpt3TieredCheckpoint2K
    assert ("175e9 param", "14 byte/param", "28 GB/s", "1 TB/s", "10 min") == tuple(
        text for text, value in [
            ("175e9 param", case.workload.parameters), ("14 byte/param", case.bytes_per_param), ("28 GB/s", case.local_bandwidth),
            ("1 TB/s", case.durable_bandwidth), ("10 min", case.save_interval),
        ] if Q_(text) == value
    )  # fmt: skip
    assert (256, 8) == (case.fleet.count, case.fleet.node.accelerators)


def test_llama_on_16k() -> None:
    """Llama 3 405B on 2,048 nodes drains at the published 2 TB/s, and works."""
    case = Scenarios.Llama3_405BTieredCheckpoint16K
    assert (2048, 16384, Q_("2 TB/s"), Q_("405853388800 param"), True) == (
        case.fleet.count, case.fleet.accelerators, case.durable_bandwidth, case.workload.parameters, case.result.feasible
    )  # fmt: skip


def test_llama_on_a_superpod() -> None:
    """405B at one scalable unit's best write rate drains in 91.6443136 s."""
    case = Scenarios.Llama3_405BTieredCheckpointSuperPod
    assert (Q_("62 GB/s"), 91.6443136) == (case.durable_bandwidth, pytest.approx(case.result.drain_time.base, rel=1e-12))


def test_mtnlg_fails_and_says_what_would_mend_it() -> None:
    """MT-NLG through 20 Gb/s every 30 minutes drains in 42.4 minutes, fails, and advises on the store and the interval."""
    case = Scenarios.MtNlgTieredCheckpoint20Gb
    assert (Q_("12 byte/param"), Q_("2.5 GB/s"), Q_("30 min")) == (case.bytes_per_param, case.durable_bandwidth, case.save_interval)
    assert (False, pytest.approx(42.4, rel=1e-12)) == (case.result.feasible, case.result.drain_time.to("min").magnitude)
    assert ["", "raise durable_bandwidth to 3.54 GB/s, or save every 42.4 min"] == [check.advice for check in case.result.checks[:2]]


@pytest.mark.parametrize("name", list(Scenarios))
def test_every_number_has_a_source_or_is_marked_as_assumed(name: str) -> None:
    """Each field that is a number appears among the sources, with a document and a day, or with the reason it was assumed."""
    sources = Scenarios.sources(name)
    fields = {source.field for source in sources}
    assert {"workload.parameters", "fleet.count", "bytes_per_param", "local_bandwidth", "durable_bandwidth", "save_interval"} <= fields
    for source in sources:
        assert (source.assumed and source.note) or (source.title and source.looked_up and source.seen in ("primary", "quoted", "memory")), (
            source
        )


@pytest.mark.parametrize(
    ("name", "assumed"),
    [
        ("Gpt3TieredCheckpoint2K", set()),
        ("Llama3_405BTieredCheckpoint16K", {"bytes_per_param", "local_bandwidth", "save_interval"}),
        ("Llama3_405BTieredCheckpointSuperPod", {"bytes_per_param", "local_bandwidth", "save_interval"}),
        ("MtNlgTieredCheckpoint20Gb", {"bytes_per_param", "local_bandwidth", "save_interval"}),
    ],
)
def test_what_is_assumed(name: str, assumed: set[str]) -> None:
    """The numbers of a case that no document gives are marked."""
    assert assumed == {source.field for source in Scenarios.sources(name) if source.assumed and "." not in source.field}


def test_asked_twice_is_one_object() -> None:
    """A case is made once."""
    assert Scenarios.Gpt3TieredCheckpoint2K is Scenarios.Gpt3TieredCheckpoint2K


@pytest.mark.parametrize(
    ("typed", "meant"), [("Gpt3TieredCheckpoint2k", NAMES[0]), ("MtNlgTieredCheckpoint", NAMES[3]), ("Gpt3TieredCheckpoint", NAMES[0])]
)
def test_unknown_name(typed: str, meant: str) -> None:
    """An unknown name is an AttributeError that names the nearest."""
    with pytest.raises(AttributeError, match=f"Scenarios has no {typed}. Did you mean {meant}?"):
        getattr(Scenarios, typed)


def test_checkpoint_is_an_amount_of_information() -> None:
    """Every case has a checkpoint to save."""
    assert {INFORMATION.units} == {getattr(Scenarios, name).result.checkpoint_bytes.base_units for name in Scenarios}
