"""The one registry: ``ureg``, ``Q_``, ``Quantity``, and the strict grammar of text.

A quantity is a value: it cannot be changed in place, and it equals and hashes as it reads.
Stock Pint makes bytes dimensionless and reads ``Gb`` as gilbert; the vocabulary in ``units.txt`` is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pint
from pint.facets.plain import PlainQuantity
from pint.util import UnitsContainer

from mlsysim.errors import InputError, nearest
from mlsysim.vocabulary import definitions

__all__ = ["Q_", "Magnitude", "Quantity", "adopt", "is_ours", "parse", "parse_unit", "quantity_in", "ureg"]

# a float, or an array of float64
Magnitude: TypeAlias = Any

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?"
_NAME = r"[A-Za-zµμ_]+"
_POWER = r"(?:\s*(?:\*\*|\^)\s*-?[1-9])?"
_TEXT = re.compile(rf"\s*({_NUMBER})\s*(\S.*)?", re.ASCII)
_UNIT = re.compile(rf"(?:1\s*/\s*)?{_NAME}{_POWER}(?:\s*[*/]\s*{_NAME}{_POWER})*")
_LONGEST_TEXT = 120


class Quantity(pint.UnitRegistry.Quantity):  # type: ignore[type-arg]
    """A number with its unit, or an array of numbers with one unit; immutable.

    Parameters
    ----------
    value : float, array, text or Quantity
        Text is read by a strict grammar: one number, one unit.
    units : text, optional
        Left out where the text names the unit.

    Examples
    --------
    >>> Q_("3350 GB/s") == Q_("3.35 TB/s") == Q_(3.35, "TB/s")
    True
    >>> Q_("400 Gbps").to("GB/s")
    <Quantity(50.0, 'gigabyte / second')>
    >>> len({Q_("1000 GB"), Q_("1 TB")})
    1
    """

    def __new__(cls, value: Any, units: Any = None) -> Any:  # noqa: D102
        if isinstance(value, str):
            return _parsed(value, "Quantity") if units is None else _parsed(f"{value} {units}", "Quantity")
        if isinstance(units, str):
            units = parse_unit(units)
        if isinstance(value, PlainQuantity) and not is_ours(value):
            value = adopt(value, "Quantity")
        return super().__new__(cls, value if isinstance(value, PlainQuantity) else _number(value, "Quantity"), units)

    @property
    def base(self) -> Magnitude:
        """Magnitude in base units: decimal arithmetic on the number as it reads, rounded once."""
        known: Magnitude | None = self.__dict__.get("_base")
        if known is None:
            known = _base_magnitude(self._magnitude, self._units)
            if isinstance(known, float):
                self.__dict__["_base"] = known
        return known

    @property
    def base_units(self) -> UnitsContainer:
        """The product of base units that ``base`` is counted in."""
        return _base_of(self._units)[1]

    def to(self, other: Any = None, *contexts: Any, **ctx_kwargs: Any) -> Any:
        """The same value in another unit, rounded once."""
        units = parse_unit(other)._units if isinstance(other, str) else getattr(other, "_units", None)
        if units is None or _base_of(units)[1] != self.base_units or not isinstance(self.base, float):
            return super().to(other, *contexts, **ctx_kwargs)
        changed = self.__class__(float(_exact(self.base) / _base_of(units)[0]), units)
        changed.__dict__["_base"] = self.base
        return changed

    def compare(self, other: Any, op: Callable[[Any, Any], Any]) -> Any:
        """Order two quantities by their base magnitudes, so that equal readings never differ."""
        if is_ours(other) and other.base_units == self.base_units:
            return op(self.base, other.base)
        return super().compare(other, op)

    def __eq__(self, other: object) -> Any:
        if is_ours(other):
            return self.base == other.base if self.base_units == other.base_units else False  # type: ignore[attr-defined]
        if isinstance(other, PlainQuantity):
            return NotImplemented
        return super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        same = self.__eq__(other)
        return same if same is NotImplemented else np.logical_not(same) if np.ndim(same) else not same

    def __hash__(self) -> int:
        if not isinstance(self.base, float):
            raise TypeError("an array of quantities is unhashable")
        # Pint's zero of any unit equals 0
        return hash((self.base, self.base_units)) if self.base_units and self.base else hash(self.base)

    def __reduce__(self) -> Any:
        writeable = not isinstance(self._magnitude, np.ndarray) or self._magnitude.flags.writeable
        return _rebuilt, (self._magnitude, tuple(self._units.items()), self.__dict__.get("_base"), writeable)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        if isinstance(self._magnitude, np.ndarray) and self._magnitude.flags.writeable:
            return type(self)(self._magnitude.copy(), self._units)
        return self

    def _fixed(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a Quantity never changes in place; write q = q.to('GB/s') instead of q.ito('GB/s')")

    ito = ito_base_units = ito_root_units = ito_reduced_units = ito_preferred = ito_unprefixed = _fixed
    __setitem__ = put = fill = _fixed

    # `q *= 2` binds a new quantity and leaves the old one as it was
    def __iadd__(self, other: Any) -> Any:
        return self + other

    def __isub__(self, other: Any) -> Any:
        return self - other

    def __imul__(self, other: Any) -> Any:
        return self * other

    def __itruediv__(self, other: Any) -> Any:
        return self / other

    def __ifloordiv__(self, other: Any) -> Any:  # type: ignore[misc]
        return self // other

    def __imod__(self, other: Any) -> Any:  # type: ignore[misc]
        return self % other

    def __ipow__(self, other: Any) -> Any:  # type: ignore[misc]
        return self**other


class Unit(pint.UnitRegistry.Unit):
    """A unit of our vocabulary; pickles into our registry."""

    def __reduce__(self) -> Any:
        return parse_unit, (str(self),)


class _Registry(pint.registry.GenericUnitRegistry[Quantity, Unit]):
    Quantity: TypeAlias = Quantity
    Unit: TypeAlias = Unit

    def load_definitions(self, file: Any, *_: Any, **__: Any) -> None:
        definition: Any
        for definition in definitions(Path(file).read_text(encoding="utf-8")):
            self.define(definition)

    def parse_expression(self, input_string: str, *_: Any, **__: Any) -> Any:
        return _parsed(input_string, "Quantity")

    __call__ = parse_expression

    def parse_units_as_container(self, input_string: str, *args: Any, **kwargs: Any) -> Any:
        # Pint would evaluate it: "9**9**9 byte" takes hours
        if input_string and not input_string.isidentifier() and not _UNIT.fullmatch(input_string):
            raise _no_unit(input_string)
        return super().parse_units_as_container(input_string, *args, **kwargs)


def parse(text: str, place: str = "Quantity", example: str = "12 GB/s") -> Quantity:
    """One number and one unit, exactly; anything else is refused, never guessed at, never evaluated.

    Parameters
    ----------
    text : str
        ``"12 GB/s"``, ``"6.5e-3 failure/node/day"``.
    place, example : str
        Named in the error.

    Raises
    ------
    InputError
        If the text is not a number and a unit, or the unit is unknown.

    Examples
    --------
    >>> parse("80,5 GB/s")
    Traceback (most recent call last):
    ...
    mlsysim.errors.InputError: Quantity must be one number and one unit; got '80,5 GB/s'. Write it like "12 GB/s", with a point for decimals and no spaces or commas in the number.
    """  # noqa: E501
    return _parsed(text, place, example)


def _parsed(text: str, place: str, example: str = "12 GB/s") -> Quantity:
    how = f'Write it like "{example}", with a point for decimals and no spaces or commas in the number.'
    found = _TEXT.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        finite = not re.match(r"\s*[+-]?(nan|inf)", text[:20], re.IGNORECASE)
        raise InputError(place, "one number and one unit" if finite else "finite, never NaN or infinity", text, how)
    number, unit = found.groups()
    if unit is None:
        raise InputError(place, "a number with its unit", text, f'Name the unit, as in "{example}".')
    if not _UNIT.fullmatch(unit.strip()):
        raise InputError(place, "one number and one unit", text, how)
    units = parse_unit(unit, place, example)._units
    _refuse_small_prefixes(units, text, place)
    quantity: Quantity = ureg.Quantity(float(number), units)
    try:
        quantity.__dict__["_base"] = float(Fraction(Decimal(number)) * _base_of(units)[0])
    except OverflowError:
        raise InputError(place, "finite", text, f'Write it like "{example}".') from None
    return quantity


def _refuse_small_prefixes(units: UnitsContainer, text: str, place: str) -> None:
    """Nobody means a thousandth of a bit: ``mb/s`` is ``Mb/s`` with the wrong case."""
    for name in units:
        one, base = _base_of(UnitsContainer({name: 1}))
        if one < Fraction(1, 8) and base != UnitsContainer({"second": 1}):
            raise InputError(place, "in whole bits, bytes or parameters", text, "Mind the case: M is mega, m is milli; write MB or Mb/s.")


def parse_unit(text: str, place: str = "unit", example: str = "12 GB/s") -> Any:
    """A unit by its text; an unknown one is refused with the nearest known."""
    return _unit(text.strip(), place, example)


@lru_cache(maxsize=1024)
def _unit(text: str, place: str, example: str) -> Any:
    if text in ("", "dimensionless"):
        return ureg.Unit("")
    if len(text) > _LONGEST_TEXT or not _UNIT.fullmatch(text):
        raise _no_unit(text, place, example)
    for name in re.findall(_NAME, text):
        if not _known(name):
            raise InputError(place, "in a known unit", name, _unit_advice(name, example))
    return ureg.parse_units(text)


def _known(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_") and name in ureg


def _no_unit(text: str, place: str = "unit", example: str = "12 GB/s") -> InputError:
    return InputError(place, "a product of unit names", text, f'Write it as in "{example}".')


def _unit_advice(name: str, example: str) -> str:
    spellings = ("B", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "PiB", "bit", "Gb", "Mb", "Gbps", "Tbps",
                 "ms", "s", "min", "h", "day", "week", "year", "param", "token", "failure", "node", "USD", "byte",
                 "second", "minute", "hour", "accelerator")  # fmt: skip
    close = "Did you mean min?" if name in ("m", "M") else nearest(name, spellings, most=3)
    return f'{close} Write it as in "{example}".'


def adopt(value: Any, place: str) -> Quantity:
    """A quantity of somebody else's Pint registry, taken over by the names of its units."""
    names = {str(name): power for name, power in value._units.items()}
    for name in names:
        if not _known(name):
            raise InputError(place, "in units that mlsysim knows", value, f'{name} is not one; make it with mlsysim.Q_(12, "GB/s").')
    magnitude = _number(value.magnitude, place)
    adopted: Quantity = ureg.Quantity(magnitude if isinstance(magnitude, np.ndarray) else float(magnitude), UnitsContainer(names))
    return adopted


def _number(value: Any, place: str) -> Magnitude:
    """A magnitude as we keep it: a number or an array of numbers; no truth value, no text, nothing masked, nothing shared."""
    if type(value) is float:
        return value
    try:
        if isinstance(value, (list, tuple)):
            value = np.array(value)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iuf" and not isinstance(value, np.ma.MaskedArray):
            return value if value.ndim else value.item()
        if isinstance(value, (float, np.integer, np.floating, Decimal, Fraction)):
            return float(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value if abs(value) < 2**63 else float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(place, "a number, or an array of numbers, with a unit", value, 'Write Q_(12, "GB/s") or Q_([12, 24], "GB/s").')


def quantity_in(magnitude: Magnitude, units: UnitsContainer) -> Quantity:
    """A quantity in base units, as a law gives it; an array is locked."""
    quantity: Quantity = object.__new__(Q_)  # a tenth of the cost of Pint's constructor, which would look for text and foreign units
    if isinstance(magnitude, np.ndarray) and magnitude.ndim:
        magnitude.flags.writeable = False
    else:
        magnitude = float(magnitude)
        quantity.__dict__["_base"] = magnitude
    quantity._magnitude = magnitude
    quantity._units = units
    return quantity


def is_ours(value: object) -> bool:
    """Whether a value is a quantity of the one registry."""
    registry: Any = ureg
    return isinstance(value, Quantity) and value._REGISTRY is registry


def _rebuilt(magnitude: Any, units: tuple[tuple[str, Any], ...], base: float | None, writeable: bool) -> Quantity:
    if not writeable:
        magnitude.flags.writeable = False
    quantity: Quantity = ureg.Quantity(magnitude, UnitsContainer(dict(units)))
    if base is not None:
        quantity.__dict__["_base"] = base
    return quantity


def _exact(value: float) -> Fraction | float:
    """A float as it reads: 0.1 is a tenth. Infinities and NaN stay what they are."""
    return Fraction(Decimal(repr(value))) if np.isfinite(value) else value


@lru_cache(maxsize=4096)
def _base_of(units: UnitsContainer) -> tuple[Fraction, UnitsContainer]:
    factor = Fraction(1)
    for name, power in units.items():
        one: Any = ureg.get_root_units(name)[0]
        factor *= Fraction(Fraction(Decimal(repr(float(one)))) ** Fraction(str(power)))
    return factor, ureg.get_root_units(units)[1]._units


def _base_magnitude(magnitude: Any, units: UnitsContainer) -> Magnitude:
    factor = _base_of(units)[0]
    if isinstance(magnitude, np.ndarray) and magnitude.ndim:
        numbers = magnitude.astype(np.float64, copy=False)
        if factor == 1:
            return numbers
        return numbers * float(factor) if factor > 1 else numbers / float(1 / factor)
    number = float(magnitude)
    return float(_exact(number) * factor) if factor != 1 else number


ureg = _Registry(filename=str(Path(__file__).with_name("units.txt")))
Q_ = ureg.Quantity
