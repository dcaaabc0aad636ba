"""The named cases: ``Scenarios.Gpt3TieredCheckpoint2K`` and its like, each number with its source."""

from __future__ import annotations

from typing import Any

from mlsysim import catalog
from mlsysim.catalog import Catalog
from mlsysim.engine import scenario_types
from mlsysim.engine.scenario_types import Scenario

__all__ = ["Scenarios"]

# a field of a scenario that names an entry: where it is looked up
_NAMED: dict[str, Catalog[Any]] = {"workload": catalog.Models, "fleet": catalog.Fleets}


def _scenario(fields: dict[str, Any]) -> Scenario:
    given = {key: getattr(_NAMED[key], value) if key in _NAMED else value for key, value in fields.items()}
    del given["title"]
    kind: type[Scenario] = getattr(scenario_types, given.pop("scenario"))
    return kind(**given)


Scenarios: Catalog[Any] = Catalog(name="Scenarios", file="scenarios.toml", build=_scenario)
