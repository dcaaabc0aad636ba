"""A scenario by its name or from its file, and changes to it by dotted path."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

from mlsysim.engine import scenario_types
from mlsysim.engine.scenario_types import Scenario
from mlsysim.engine.scenarios import Scenarios
from mlsysim.errors import InputError, Shown, nearest

__all__ = ["changed", "find_scenario", "load_scenario"]

_MOST_BYTES = 4_000_000


def load_scenario(path: str | Path) -> Any:
    """The scenario that a TOML or JSON file describes.

    Parameters
    ----------
    path : str or Path
        Ends in ``.toml`` or ``.json``.

    Returns
    -------
    Scenario
        Of the class that the file names under ``scenario``.

    Raises
    ------
    InputError
        If the file cannot be read; with all its faults, each with its place, if it is no scenario.
    """
    from mlsysim.engine.text import read_json, read_toml
    from mlsysim.layout.limits import opened

    file = Path(path)
    if file.suffix not in (".toml", ".json"):
        raise InputError(f"{path}", "a .toml or .json file", file.suffix or "no ending", "Name it plan.toml, say.")
    try:
        with opened(file) as binary:
            raw = binary.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise InputError(f"{path}", f"at most {_MOST_BYTES:,} byte", Shown("more"), "A scenario file is a page, not a data set.")
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}", "text in UTF-8", "other bytes", "Save it as UTF-8.") from None
    except InputError:
        raise
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        told = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}", "a file that can be read", Shown(told), "Check the path.") from None
    table = read_toml(text, file.name) if file.suffix == ".toml" else read_json(text, file.name)
    return _of_its_class(table, file.name, file.parent)


def _of_its_class(table: dict[str, Any], source: str, folder: Path) -> Any:
    names = [name for name in scenario_types.__all__ if name != "Scenario"]
    named = table.get("scenario")
    if named not in names:
        fix = 'Write scenario = "TieredCheckpointScenario".' if named is None else nearest(named, names)
        raise InputError(f"{source}: scenario", "the name of a scenario class", named if named is not None else Shown("nothing"), fix)
    kind: type[Scenario] = getattr(scenario_types, named)
    return kind.from_dict(table, source, folder=folder)


def find_scenario(name: str) -> Any:
    """A named case, or the scenario in a file.

    Raises
    ------
    InputError
        If it is neither; names the nearest case.
    """
    if Path(name).suffix in (".toml", ".json"):
        return load_scenario(name)
    if name not in Scenarios:
        raise InputError("the scenario", "a name in Scenarios, or a .toml or .json file", name, nearest(name, Scenarios))
    return getattr(Scenarios, name)


def changed(scenario: Scenario, changes: Iterable[str]) -> Any:
    """A scenario with fields set by dotted path, validated again.

    Parameters
    ----------
    scenario : Scenario
    changes : iterable of str
        ``"save_interval=5 min"``, ``"fleet.count=512"``.

    Raises
    ------
    InputError
        If a change names no field or gives it a bad value.
    """
    table = scenario.to_dict()
    for change in changes:
        path, equals, value = change.partition("=")
        if not equals:
            raise InputError("--set", "a field and a value", change, 'Write --set save_interval="5 min".')
        *steps, last = path.strip().split(".")
        inner = table
        kind: Any = type(scenario)
        for step in steps:
            known = attrs.fields_dict(kind)
            held = known[step].metadata.get("holds") if step in known else None
            # what was left out is not in the table: its fields can be set all the same
            below = inner.setdefault(step, {}) if held is not None else None
            if not isinstance(below, dict):
                raise InputError(f"--set {path.strip()}", "a known field", step, nearest(step, known))
            inner, kind = below, held
        inner[last] = _number_or_text(value.strip())
    return type(scenario).from_dict(table, "--set")


def _number_or_text(value: str) -> int | float | str:
    if re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
        return int(value)
    return float(value) if re.fullmatch(r"-?\d{1,18}\.\d{1,18}", value, re.ASCII) else value
