"""Numbers as a person reads them, and as text that loses nothing."""

from __future__ import annotations

import math

import pytest

from mlsysim import Q_
from mlsysim.fields import BANDWIDTH, INFORMATION, TIME
from mlsysim.report.wording import lossless, percent, readable, safe_side


@pytest.mark.parametrize(
    ("quantity", "words"),
    [
        ("0.341796875 s", "0.342 s"),
        ("2.45e12 byte", "2.45 TB"),
        ("2544 s", "42.4 min"),
        ("600 s", "10 min"),
        ("89 s", "89 s"),
        ("90 s", "1.5 min"),
        ("3 h", "3 h"),
        ("100 min", "100 min"),
        ("47.7 day", "47.7 day"),
        ("12 ms", "12 ms"),
        ("3e-6 s", "3 us"),
        ("1 year", "365 day"),
        ("20 year", "20 year"),
        ("999.4 GB", "999 GB"),
        ("28 GB/s", "28 GB/s"),
        ("400 Gb/s", "50 GB/s"),
        ("1 byte", "1 B"),
        ("1500 B", "1.5 kB"),
        ("175e9 param", "175 billion parameters"),
        ("1.5e12 param", "1.5 trillion parameters"),
        ("7 param", "7 parameters"),
        ("2e6 EB", "2000000 EB"),
        ("14 byte/param", "14 byte/parameter"),
    ],
)
def test_readable(quantity: str, words: str) -> None:
    """Three digits, and a unit that suits the size."""
    assert words == readable(Q_(quantity))


@pytest.mark.parametrize(("value", "words"), [(math.inf, "never"), (0.0, "0 s")])
def test_times_at_the_ends(value: float, words: str) -> None:
    """An infinite time is never, and none is none."""
    assert words == readable(Q_(value, "s"))


def test_infinite_rate() -> None:
    """An infinite rate is unbounded."""
    assert "unbounded" == readable(Q_(math.inf, "GB/s"))


def test_not_stated() -> None:
    """What was left out is said to be."""
    assert "not stated" == readable(None)


def test_binary_units() -> None:
    """2.45e12 byte are 2.23 TiB."""
    assert "2.23 TiB" == readable(Q_("2.45e12 byte"), binary=True)


@pytest.mark.parametrize(
    ("values", "words"), [([1, 60], "60 s to 60 min"), ([5, 5], "5 min"), ([], "none"), ([1, math.inf], "60 s to never")]
)
def test_arrays_are_ranges(values: list[float], words: str) -> None:
    """An array is shown by its least and most."""
    assert words == readable(Q_(values, "min"))


@pytest.mark.parametrize(
    ("share", "words"), [(0.0005696614583, "0.057 %"), (1.5, "150 %"), (0.5, "50 %"), (0.0, "0 %"), (math.inf, "never")]
)
def test_percent(share: float, words: str) -> None:
    """A share is told in per cent."""
    assert words == percent(share)


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        ("12e9 byte/s", "12 GB/s"), ("600 s", "10 min"), ("14 B/param", "14 byte/parameter"), ("400 Gb/s", "50 GB/s"),
        ("405853388800 param", "405853388800 parameter"), ("0.1 TB", "100 GB"),
    ],
)  # fmt: skip
def test_lossless(quantity: str, text: str) -> None:
    """A quantity is written in a fitting unit where that loses nothing."""
    assert text == lossless(Q_(quantity))


@pytest.mark.parametrize("base", [1 / 3, 1e12 / 7, 2**53 - 1, 1e-9, 5e-324, 1.7976931348623157e308, math.pi])
@pytest.mark.parametrize("unit", ["byte", "second", "byte/second"])
def test_lossless_reads_back(base: float, unit: str) -> None:
    """Any float comes back bit for bit."""
    quantity = Q_(base, unit)
    assert quantity == Q_(lossless(quantity))


@pytest.mark.parametrize(
    ("base", "kind"), [(58333333333.3, BANDWIDTH), (1e12, INFORMATION), (2543.99, TIME), (0.123456, TIME), (999.9e9, INFORMATION)]
)
def test_safe_side(base: float, kind: object) -> None:
    """The number found is the least of three digits that is large enough: it holds, and it is within a hundredth."""
    found = safe_side(base, kind, lambda value: value >= base).base  # type: ignore[arg-type]
    assert base <= found <= base * 1.0101
