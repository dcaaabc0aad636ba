"""The vocabulary file is in Pint's format: what we read is what Pint reads."""

from pathlib import Path
from typing import Any

import pint
import pytest

import mlsysim
from mlsysim import ureg

FILE = Path(mlsysim.__file__).with_name("units.txt")


@pytest.fixture(scope="module")
def stock() -> Any:
    return pint.UnitRegistry(filename=str(FILE))


def test_names(stock: Any) -> None:
    """The registry knows every name that Pint finds in the file."""
    assert set() == set(stock) - set(ureg)


def test_prefixes(stock: Any) -> None:
    """Every prefix, its symbols and its aliases scale a byte as Pint has them scale it."""
    names = [f"{prefix}byte" for prefix in stock._prefixes]
    assert [stock.get_root_units(name)[0] for name in names] == [ureg.get_root_units(name)[0] for name in names]


def test_units(stock: Any) -> None:
    """Every unit has the size, the base units and the symbol that Pint gives it."""

    def told(registry: Any) -> dict[str, Any]:
        return {name: (*map(str, registry.get_root_units(name)), registry.get_symbol(name)) for name in stock}

    assert told(stock) == told(ureg)


def test_compatible_units(stock: Any) -> None:
    """Pint's own search finds the units of a dimension."""
    assert {str(unit) for unit in stock.get_compatible_units("byte")} == {str(unit) for unit in ureg.get_compatible_units("byte")}
