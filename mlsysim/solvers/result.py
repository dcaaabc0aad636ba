"""What every answer shares: equal by value, locked, and able to explain itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import numpy as np

from mlsysim.errors import InputError, nearest
from mlsysim.report.wording import readable
from mlsysim.units import Quantity

if TYPE_CHECKING:
    from mlsysim.report.card import Card

__all__ = ["Record", "Result"]


class Record:
    """A frozen record that may hold arrays: equal by value, unhashable where it holds an array, locked after pickling."""

    __slots__ = ()

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, each.name) for each in attrs.fields(type(self)))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(map(_same, self._values(), other._values()))

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __reduce__(self) -> Any:
        return _rebuilt, (type(self), self._values())


def _same(one: Any, other: Any) -> bool:
    if np.ndim(getattr(one, "magnitude", one)) or np.ndim(getattr(other, "magnitude", other)):
        if isinstance(one, (tuple, list)) or isinstance(one, Quantity) != isinstance(other, Quantity):
            return bool(one == other)
        if isinstance(one, Quantity):
            return bool(one.base_units == other.base_units and np.array_equal(one.base, other.base))
        return np.array_equal(one, other)
    return bool(one == other)


def _rebuilt(kind: type, values: tuple[Any, ...]) -> Any:
    for value in values:
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return kind(**{each.name.lstrip("_"): value for each, value in zip(attrs.fields(kind), values, strict=True)})


class Result(Record):
    """An answer: numbers with their units, checks, a card, and the law behind every number."""

    __slots__ = ()

    laws: ClassVar[dict[str, Callable[..., Any]]] = {}

    def card(self, *, binary: bool = False) -> Card:
        """The answer as rows and checks; in binary units where asked."""
        raise NotImplementedError

    def _put_in(self) -> dict[str, Any]:
        """Names that a law may ask for, and their values."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.card().text()

    def _repr_html_(self) -> str:
        return self.card().html()

    def explain(self, name: str) -> str:
        """The law behind a field: equation, the numbers put in, assumptions, source.

        Parameters
        ----------
        name : str
            A field of the result.

        Returns
        -------
        str
            Several lines; ``print`` it.

        Raises
        ------
        InputError
            If no such field comes from a law.
        """
        law = self.laws.get(name)
        if law is None:
            raise InputError(f"{type(self).__name__}.explain", "asked for a field with a law", name, nearest(name, self.laws))
        return _explained(name, getattr(self, name), law, self._put_in())


def _explained(name: str, value: Any, law: Callable[..., Any], known: dict[str, Any]) -> str:
    text = inspect.getdoc(law) or ""
    lines = [f"{name} = {value if isinstance(value, str) else readable(value)}", f"  {text.splitlines()[0]}" if text else ""]
    equation = re.search(r"^Equation: (.*?)$", text, re.MULTILINE)
    if equation:
        lines.append(f"  Equation: {equation[1].replace('``', '')}")
    given = [f"{each} = {readable(known[each])}" for each in inspect.signature(law).parameters if known.get(each) is not None]
    if given:
        lines.append(f"  With: {', '.join(given)}")
    for heading in ("Notes", "References"):
        section = re.search(rf"^{heading}\n-+\n(.*?)(?=\n\n\S[^\n]*\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
        if section:
            prefix = "" if heading == "Notes" else "Source: "
            lines += [f"  {prefix}{line}" for line in " ".join(section[1].split("\n")).replace(" Ignores:", "\nIgnores:").split("\n")]
    return "\n".join(line.replace("``", "") for line in lines if line.strip())
