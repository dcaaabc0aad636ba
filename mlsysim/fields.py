"""What a value must be: dimensions with a name, and attrs fields that know theirs.

``take`` takes the unit off at the entry of a law or solver, ``give`` puts it on at the exit; between them there is
plain arithmetic in base units.
"""

from __future__ import annotations

from typing import Any, TypeVar

import attrs
import numpy as np
from attrs import field, frozen
from pint.facets.plain import PlainQuantity
from pint.util import UnitsContainer

from mlsysim.errors import InputError
from mlsysim.units import Magnitude, Quantity, adopt, is_ours, parse, parse_unit, quantity_in

__all__ = [
    "BANDWIDTH", "BYTES_PER_PARAM", "INFORMATION", "KINDS", "PARAMETERS", "RATE", "RATIO", "TIME", "Kind",
    "choice", "count", "flag", "give", "give_ratio", "kind_of", "locked", "part", "quantity", "ratio", "take", "take_count", "text",
    "valid",
]  # fmt: skip

T = TypeVar("T")

# beyond any machine, and far enough from the ends of a float that no law overflows
_LEAST, _MOST = 1e-60, 1e60
_MOST_COUNT = 10**15
_LONGEST_PART = 1000


@frozen
class Kind:
    """A dimension with the name people give it, its base unit, and an example to write."""

    name: str
    units: UnitsContainer
    example: str


def _kind(name: str, unit: str, example: str) -> Kind:
    return Kind(name, parse_unit(unit)._units, example)


INFORMATION = _kind("an amount of information", "byte", "2.45 TB")
TIME = _kind("a time", "second", "10 min")
BANDWIDTH = _kind("a bandwidth (information per time)", "byte/second", "12 GB/s")
PARAMETERS = _kind("a number of parameters", "parameter", "70.6e9 param")
BYTES_PER_PARAM = _kind("an amount of information per parameter", "byte/parameter", "14 byte/param")
RATIO = _kind("a ratio", "", "0.5")
RATE = _kind("a rate (per time)", "1/second", "3 1/day")
KINDS = {kind.units: kind for kind in (INFORMATION, TIME, BANDWIDTH, PARAMETERS, BYTES_PER_PARAM, RATIO, RATE)}

# what people write by mistake, so that the error can call it by its name
_MISTAKEN = {
    "dollar": "a price", "euro": "a price", "token": "a number of tokens", "byte": "an amount of information",
    "second": "a time", "parameter": "a number of parameters", "failure": "a number of failures",
}  # fmt: skip


def kind_of(value: Quantity) -> Kind:
    """The kind a quantity is of; one without a name gets one from its units."""
    units = value.base_units
    return KINDS.get(units) or Kind(f"in {units}", units, f"1 {units}")


def take(value: object, kind: Kind, place: str, *, zero: bool = False) -> Magnitude:
    """The magnitude in base units of a quantity, scalar or array, checked.

    Parameters
    ----------
    value : Quantity or text
        Of the dimension of ``kind``; a quantity of another Pint registry is taken over by the names of its units.
    kind : Kind
        What it must be.
    place : str
        ``"Owner.field"``, named in the error.
    zero : bool
        Whether zero is allowed.

    Raises
    ------
    InputError
        If there is no unit, the dimension differs, or a number is not finite and positive.

    Examples
    --------
    >>> take("400 Gbps", BANDWIDTH, "Node.network_bandwidth")
    50000000000.0
    >>> take(14, BYTES_PER_PARAM, "Scenario.bytes_per_param")
    Traceback (most recent call last):
    ...
    mlsysim.errors.InputError: Scenario.bytes_per_param must be an amount of information per parameter, with its unit; got 14. Write bytes_per_param="14 byte/param".
    """  # noqa: E501
    held: Any = value if is_ours(value) else _as_quantity(value, kind, place)
    if held._units != kind.units and held.base_units != kind.units:
        raise InputError(place, kind.name, _mistaken(held), _write(place, kind))
    base = held.base
    if isinstance(base, float):
        if not _LEAST <= base <= _MOST and not (zero and base == 0):
            raise _out_of_range(base, held, kind, place, zero)
        return base
    good = ((base >= _LEAST) & (base <= _MOST)) | (zero & (base == 0))
    if not good.all():
        first = base[~good].flat[0]
        raise _out_of_range(float(first), quantity_in(float(first), kind.units), kind, place, zero)
    return base


def _as_quantity(value: object, kind: Kind, place: str) -> Any:
    if isinstance(value, str):
        try:
            return parse(value, place, kind.example)
        except InputError as error:
            if "with its unit" in error.rule:
                raise InputError(place, f"{kind.name}, with its unit", value, _write(place, kind)) from None
            raise
    if isinstance(value, PlainQuantity):
        return adopt(value, place)
    raise InputError(place, f"{kind.name}, with its unit", value, _write(place, kind))


def _write(place: str, kind: Kind) -> str:
    return f'Write {place.rpartition(".")[2]}="{kind.example}".'


def _mistaken(held: Quantity) -> object:
    unit = str(held.base_units)
    known = KINDS[held.base_units].name if held.base_units in KINDS and unit != "dimensionless" else _MISTAKEN.get(unit)
    return _Described(f"{held:~}".strip() + (f", {known}" if known else ""))


class _Described(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _out_of_range(base: float, held: Quantity, kind: Kind, place: str, zero: bool) -> InputError:
    least = "at least 0" if zero else "greater than 0"
    if not np.isfinite(base):
        return InputError(place, f"finite and {least}, never {'NaN' if np.isnan(base) else 'infinite'}", held, _write(place, kind))
    if base <= 0:
        return InputError(place, least, held, _write(place, kind))
    unit = str(kind.units)
    return InputError(place, f"between {_LEAST:g} and {_MOST:g} {unit}", held, _write(place, kind))


def take_count(value: object, place: str) -> Any:
    """A whole number of at least 1, or an array of them; True is no count."""
    if isinstance(value, np.ndarray) and value.ndim:
        if value.dtype.kind not in "iu" or isinstance(value, np.ma.MaskedArray) or not ((value >= 1) & (value <= _MOST_COUNT)).all():
            raise InputError(place, "whole numbers of at least 1", value, _write_count(place))
        return value
    whole = isinstance(value, (int, np.integer)) or (isinstance(value, np.ndarray) and value.dtype.kind in "iu")
    if isinstance(value, bool) or not whole or not 1 <= int(value) <= _MOST_COUNT:  # type: ignore[call-overload]
        raise InputError(place, "a whole number of at least 1", value, _write_count(place))
    return int(value)  # type: ignore[call-overload]


def _write_count(place: str) -> str:
    return f"Write {place.rpartition('.')[2]}=8, say."


def give(magnitude: Magnitude, kind: Kind) -> Quantity:
    """Base units put back on: a float becomes a scalar, an array is locked."""
    return quantity_in(magnitude, kind.units)


def give_ratio(value: Any) -> Any:
    """A number without unit: Python's own float or bool, or a locked array."""
    if isinstance(value, np.ndarray) and value.ndim:
        value.flags.writeable = False
        return value
    return value.item() if isinstance(value, (np.generic, np.ndarray)) else value


def locked(value: Quantity) -> Quantity:
    """A quantity that nothing else can change: a scalar as it is, a caller's array as a locked copy."""
    if isinstance(value.magnitude, np.ndarray) and value.magnitude.flags.writeable:
        return quantity_in(np.array(value.base), value.base_units)
    return value


def valid(value: object, kind: Kind, place: str, *, zero: bool = False) -> Quantity:
    """One checked quantity, in the unit it was given in; an array is refused."""
    held: Any = value if is_ours(value) else _as_quantity(value, kind, place)
    if np.ndim(held.magnitude):
        raise InputError(place, "one value", held, "A scenario is one situation: give a scalar here, and arrays to the solver.")
    take(held, kind, place, zero=zero)
    checked: Quantity = held
    return checked


def quantity(kind: Kind, *, optional: bool = False, zero: bool = False) -> Any:
    """An attrs field that holds one quantity of a kind."""

    def convert(value: object, owner: object, attribute: attrs.Attribute[Any]) -> Quantity | None:
        if value is None and optional:
            return None
        return valid(value, kind, f"{type(owner).__name__}.{attribute.name}", zero=zero)

    return _field(convert, optional, kind=kind, zero=zero)


def count(*, optional: bool = False, default: int | None = None) -> Any:
    """An attrs field that holds a whole number of at least 1, or one that may be left out."""

    def convert(value: object, owner: object, attribute: attrs.Attribute[Any]) -> int | None:
        if value is None and optional:
            return None
        place = f"{type(owner).__name__}.{attribute.name}"
        if isinstance(value, np.ndarray) and value.ndim:
            raise InputError(place, "a whole number of at least 1", value, _write_count(place))
        return int(take_count(value, place))

    return _field(convert, optional, default)


def flag(*, default: bool = False) -> Any:
    """An attrs field that holds True or False, and nothing that merely counts as one."""

    def convert(value: object, owner: object, attribute: attrs.Attribute[Any]) -> bool:
        if not isinstance(value, bool):
            place = f"{type(owner).__name__}.{attribute.name}"
            raise InputError(place, "True or False", value, f"Write {attribute.name}={not default}.")
        return value

    return field(converter=attrs.Converter(convert, takes_self=True, takes_field=True), default=default)


def text() -> Any:
    """An attrs field that holds a name."""

    def convert(value: object, owner: object, attribute: attrs.Attribute[Any]) -> str:
        if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > 200:
            place = f"{type(owner).__name__}.{attribute.name}"
            raise InputError(place, "a name on one line", value, f'Write {attribute.name}="my cluster", say.')
        return value

    return _field(convert, False)


def choice(kind: type[T], *, example: str, optional: bool = False, default: T | None = None) -> Any:
    """An attrs field that holds an object of one class, or nothing where that is allowed."""

    def convert(value: object, owner: object, attribute: attrs.Attribute[Any]) -> T | None:
        if value is None and optional:
            return None
        if not isinstance(value, kind):
            place = f"{type(owner).__name__}.{attribute.name}"
            raise InputError(place, f"a {kind.__name__}", value, f"Write {attribute.name}={example}.")
        return value

    return _field(convert, optional, default, holds=kind)


def part(default: str = "") -> Any:
    """An attrs field that holds a part of a name, empty too."""

    def convert(value: object, owner: object, attribute: attrs.Attribute[Any]) -> str:
        if not isinstance(value, str) or len(value) > _LONGEST_PART:
            place = f"{type(owner).__name__}.{attribute.name}"
            raise InputError(place, f"text of at most {_LONGEST_PART:,} characters", value, f'Write {attribute.name}="optimizer.", say.')
        return value

    return _field(convert, False, default)


def ratio(*, least: float, most: float, default: float) -> Any:
    """An attrs field that holds a plain number between two bounds."""

    def convert(value: object, owner: object, attribute: attrs.Attribute[Any]) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            place = f"{type(owner).__name__}.{attribute.name}"
            raise InputError(place, f"a ratio from {least:g} to {most:g}", value, f"Write {attribute.name}={default:g}, say.")
        return float(value)

    return _field(convert, False, default)


def _field(convert: Any, optional: bool, default: Any = None, **metadata: Any) -> Any:
    converter: Any = attrs.Converter(convert, takes_self=True, takes_field=True)
    without: Any = None if optional else attrs.NOTHING
    return field(converter=converter, default=without if default is None else default, metadata=metadata)
