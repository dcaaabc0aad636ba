"""Public names that are loaded when first asked for: nobody waits for what they never use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["on_demand"]


def on_demand(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package that gives names out of modules not loaded yet.

    Parameters
    ----------
    package : str
        ``__name__`` of the package.
    homes : mapping of str to tuple of str
        Modules, and the names to take from each. A module directly inside the package may be asked for as well.

    Examples
    --------
    >>> load = on_demand("fractions_of", {"fractions": ("Fraction",)})
    >>> load("Fraction")(1, 2)
    Fraction(1, 2)
    """

    def load(name: str) -> Any:
        for home, names in homes.items():
            if name in names:
                return getattr(import_module(home), name)
            if home == f"{package}.{name}":
                return import_module(home)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load
