"""The catalog: numbers with their sources."""

from __future__ import annotations

import copy
import datetime as dt
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from mlsysim import Q_, Fleet, Fleets, Models, Node, Nodes, Scenarios, Store, Stores, Workload
from mlsysim.catalog import Catalog

CATALOGS: list[tuple[Catalog[Any], type]] = [(Models, Workload), (Nodes, Node), (Fleets, Fleet), (Stores, Store)]
ENTRIES = [pytest.param(catalog, kind, name, id=name) for catalog, kind in CATALOGS for name in catalog]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Gpt3_175B", "175e9"),
        ("Opt_175B", "175e9"),
        ("Bloom_176B", "176247271424"),
        ("Llama3_8B", "8030261248"),
        ("Llama3_70B", "70553706496"),
        ("Llama3_405B", "405853388800"),
        ("MtNlg_530B", "530e9"),
    ],
)
def test_parameters(name: str, parameters: str) -> None:
    """The models have their published numbers of parameters."""
    assert Q_(f"{parameters} param") == getattr(Models, name).parameters


@pytest.mark.parametrize(("name", "billions"), [("Llama2_70B", 69), ("DeepSeekV3_671B", 671)])
def test_rounded_parameters(name: str, billions: int) -> None:
    """Models whose parameters are published in billions have so many."""
    assert billions == round(getattr(Models, name).parameters.base / 1e9)


@pytest.mark.parametrize(("catalog", "kind", "name"), ENTRIES)
def test_every_entry_can_be_made(catalog: Catalog[Any], kind: type, name: str) -> None:
    """Each entry is a valid object of its class with a title, and hashes."""
    made = getattr(catalog, name)
    assert (kind, True, True) == (type(made), bool(catalog.title(name)), hash(made) == hash(copy.deepcopy(made)))


@pytest.mark.parametrize(("catalog", "kind", "name"), ENTRIES)
def test_every_number_has_a_source(catalog: Catalog[Any], kind: type, name: str) -> None:
    """Each number names a document and a day, or is marked as assumed with a reason."""
    sources = catalog.sources(name)
    assert sources
    for source in sources:
        if source.assumed:
            assert source.note, source
        else:
            assert (True, True, True) == (bool(source.title), source.seen in ("primary", "quoted", "memory"), bool(source.value)), source
            assert dt.date(2024, 1, 1) < dt.date.fromisoformat(source.looked_up)


def numbers(table: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a catalog entry."""
    for key, value in table.items():
        if isinstance(value, dict) and "value" not in value:
            yield from numbers(value, f"{path}.{key}")
        else:
            yield f"{path}.{key}", value


@pytest.mark.parametrize("file", ["models.toml", "nodes.toml", "fleets.toml", "stores.toml", "scenarios.toml"])
def test_no_bare_number(file: str) -> None:
    """A number in a catalog file is never without its source or its reason."""
    for place, value in numbers(tomllib.loads(files("mlsysim.catalog").joinpath(file).read_text(encoding="utf-8"))):
        if isinstance(value, dict):
            assert {"source", "assumed"} & set(value), place
        else:
            assert isinstance(value, str), place
            assert not value[:1].isdigit() or place.endswith((".name", ".title")), place


@pytest.mark.parametrize("catalog", [Models, Nodes, Fleets, Stores, Scenarios], ids=lambda each: each.name)
def test_lists_its_names(catalog: Catalog[Any]) -> None:
    """A catalog lists its names by iteration, ``dir``, length, membership, and in its text."""
    names = list(catalog)
    assert (names, len(names), True) == (sorted(names), len(catalog), set(names) <= set(dir(catalog)))
    assert all(name in catalog and name in repr(catalog) for name in names)


@pytest.mark.parametrize(
    ("catalog", "typed", "meant"),
    [(Models, "Llama3_7B", "Llama3_70B"), (Models, "llama3_405b", "Llama3_405B"), (Fleets, "MetaLlama3_16k", "MetaLlama3_16K")],
)
def test_unknown_name(catalog: Catalog[Any], typed: str, meant: str) -> None:
    """An unknown name is an AttributeError that names the nearest."""
    with pytest.raises(AttributeError, match=rf"{catalog.name} has no {typed}\. Did you mean .*"):
        getattr(catalog, typed)
    assert meant in catalog


def test_nothing_near() -> None:
    """Where nothing is near, the names are listed."""
    with pytest.raises(AttributeError, match=r"Models has no zzz\. Known: .*Gpt3_175B"):
        Models.zzz  # noqa: B018


def test_unknown_sources() -> None:
    """Sources of an unknown entry are the same error."""
    with pytest.raises(AttributeError, match="Did you mean Llama3_70B"):
        Models.sources("Llama3_70b")


@pytest.mark.parametrize("name", ["_repr_html_", "__wrapped__", "_ipython_display_"])
def test_no_dunder_is_an_entry(name: str) -> None:
    """What notebooks look for is not there."""
    assert False is hasattr(Models, name)


@pytest.mark.parametrize(
    "change", [lambda: setattr(Models, "Mine", 1), lambda: setattr(Models, "Gpt3_175B", 1), lambda: delattr(Models, "name")]
)
def test_frozen(change: Any) -> None:
    """Nobody can put an entry of his own in its place."""
    with pytest.raises(AttributeError):
        change()


def test_copies() -> None:
    """A catalog can be copied."""
    assert list(Models) == list(copy.copy(Models)) == list(copy.deepcopy(Models))
