"""Numbers as a person reads them: three digits and a fitting unit."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from mlsysim.fields import BANDWIDTH, INFORMATION, PARAMETERS, RATIO, TIME, Kind, kind_of
from mlsysim.units import Quantity, parse

__all__ = ["lossless", "percent", "readable", "safe_side"]

_DECIMAL = (("EB", 10**18), ("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))
_BINARY = (("EiB", 2**60), ("PiB", 2**50), ("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1))
_TIMES = (
    ("year", 31557600), ("day", 86400), ("h", 3600), ("min", 60), ("s", 1),
    ("ms", Fraction(1, 10**3)), ("us", Fraction(1, 10**6)), ("ns", Fraction(1, 10**9)),
)  # fmt: skip
# a unit is used from so many of it on: 90 s, not 1.5 min, and 0.34 s, not 340 ms
_FROM = {"year": 2, "day": 2, "h": 2, "min": 1.5, "s": 0.1}
_WORDS = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"))


def readable(value: Quantity | float | None, *, binary: bool = False, digits: int = 3) -> str:
    """A quantity in a unit that suits its size; an array as its range.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> readable(Q_("2.45e12 byte")), readable(Q_("2.45e12 byte"), binary=True), readable(Q_("2544 s"))
    ('2.45 TB', '2.23 TiB', '42.4 min')
    >>> readable(Q_("175e9 param")), readable(Q_([1, 60], "min"))
    ('175 billion parameters', '60 s to 60 min')
    """
    if value is None:
        return "not stated"
    if not isinstance(value, Quantity):
        return _range(value, lambda number: _digits(Fraction(number), digits)) if np.ndim(value) else _number(float(value), digits)
    kind = kind_of(value)
    return _range(value.base, lambda base: _one(float(base), kind, binary, digits))


def _range(values: Any, one: Callable[[float], str]) -> str:
    if not np.ndim(values):
        return one(values)
    if not np.size(values):
        return "none"
    least, most = one(float(np.min(values))), one(float(np.max(values)))
    return least if least == most else f"{least} to {most}"


def _number(value: float, digits: int) -> str:
    return _digits(Fraction(value), digits) if np.isfinite(value) else "never"


def _one(base: float, kind: Kind, binary: bool, digits: int) -> str:
    if not np.isfinite(base):
        return "never" if kind == TIME else "unbounded"
    if kind == PARAMETERS:
        for size, word in _WORDS:
            if base >= size:
                return f"{_digits(Fraction(base) / size, digits)} {word} parameters"
        return f"{_digits(Fraction(base), digits)} parameters"
    unit, factor = _fitting(base, kind, binary)
    return f"{_digits(Fraction(base) / Fraction(factor), digits)} {unit}".strip()


def _fitting(base: float, kind: Kind, binary: bool) -> tuple[str, Any]:
    """The unit that suits a size, and how many base units it is."""
    size = abs(base)
    if kind == TIME:
        fits = [(unit, factor) for unit, factor in _TIMES if size >= _FROM.get(unit, 1) * factor]
        return fits[0] if fits else _TIMES[4] if size == 0 else _TIMES[-1]
    if kind in (INFORMATION, BANDWIDTH):
        ladder = _BINARY if binary else _DECIMAL
        unit, factor = next((step for step in ladder if size >= step[1]), ladder[-1])
        return unit + ("/s" if kind == BANDWIDTH else ""), factor
    return ("" if kind == RATIO else str(kind.units).replace(" ", "")), 1


def _digits(value: Fraction, digits: int) -> str:
    if value == 0:
        return "0"
    exact = _decimal(value)
    if abs(exact.adjusted()) > 12:
        return f"{exact:.{digits - 1}e}"
    step = Decimal((0, (1,), exact.adjusted() - digits + 1))
    rounded = exact.quantize(min(step, Decimal(1)), rounding=ROUND_HALF_EVEN)
    if abs(rounded.adjusted()) > 12:
        return f"{rounded:.{digits - 1}e}"
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: Any) -> str:
    """A share in per cent, an array as its range.

    Examples
    --------
    >>> percent(0.0005696614583), percent(1.5)
    ('0.057 %', '150 %')
    """
    return _range(share, lambda one: f"{_digits(Fraction(float(one)) * 100, 2 if one < 0.1 else 3)} %" if np.isfinite(one) else "never")


def safe_side(base: float, kind: Kind, holds: Callable[[float], bool]) -> Quantity:
    """The next larger quantity of three digits that makes a condition hold, in a unit to read.

    Examples
    --------
    >>> print(safe_side(58_333_333_333.3, BANDWIDTH, lambda rate: 35e12 / rate <= 600))
    58.4 gigabyte / second
    """
    unit, factor = _fitting(base, kind, binary=False)
    exact = _decimal(Fraction(base) / Fraction(factor))
    text = exact.quantize(Decimal((0, (1,), exact.adjusted() - 2)), rounding=ROUND_CEILING)
    step = Decimal((0, (1,), text.adjusted() - 2))
    while not holds(float((found := parse(f"{text:e} {unit}")).base)):
        text += step
    return found


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def lossless(value: Quantity) -> str:
    """A quantity as text that reads back to the very same value, in a fitting unit where one does.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> lossless(Q_("12e9 byte/s")), lossless(Q_("600 s")), lossless(Q_("14 byte/param"))
    ('12 GB/s', '10 min', '14 byte/parameter')
    """
    kind, base = kind_of(value), float(value.base)
    unit, factor = _fitting(base, kind, binary=False)
    number = Fraction(Decimal(repr(base))) / Fraction(factor)
    shortest = f"{float(number)!r}".removesuffix(".0")
    if Fraction(Decimal(shortest)) == number:
        return f"{shortest} {unit}".strip()
    return f"{base!r} {str(kind.units).replace(' ', '')}"
