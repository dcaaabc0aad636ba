"""The definitions in ``units.txt``, as Pint takes them.

The file is in Pint's format. Pint's reader is made for any such file, and would be a fifth of what our import costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pint.facets.plain import PrefixDefinition, ScaleConverter, UnitDefinition
from pint.util import ParserHelper, UnitsContainer

__all__ = ["definitions"]


def definitions(text: str) -> Iterator[PrefixDefinition | UnitDefinition]:
    """Every prefix and unit, in the order in which the text defines them.

    Examples
    --------
    >>> [each.aliases for each in definitions("byte = [information] = B = octet  # eight bits")]
    [('octet',)]
    """
    for line in text.splitlines():
        name, *relations = (part.strip() for part in line.partition("#")[0].split("="))
        if not relations:
            continue
        relation: Any = ParserHelper.from_string(relations[0])
        symbol, *aliases = (each.rstrip("-") for each in relations[1:] or [""])
        if name.endswith("-"):
            yield PrefixDefinition(name.rstrip("-"), relation.scale, symbol or None, tuple(aliases))
        else:
            yield UnitDefinition(name, symbol or None, tuple(aliases), ScaleConverter(relation.scale), UnitsContainer(relation))
