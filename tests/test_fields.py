"""What a value must be: the checks that every field and every law goes through."""

from __future__ import annotations

import re
from typing import Any

import attrs
import numpy as np
import pytest

from mlsysim import Q_, InputError
from mlsysim.fields import BANDWIDTH, BYTES_PER_PARAM, INFORMATION, PARAMETERS, TIME, Kind, give, give_ratio, quantity, take, take_count


@pytest.mark.parametrize("value", [14, 14.0, "14", True, None, np.float64(14), np.array([14]), [14], (), {}, b"14 GB", 10**400, object()])
@pytest.mark.parametrize("kind", [BANDWIDTH, BYTES_PER_PARAM, INFORMATION, PARAMETERS, TIME], ids=lambda each: each.example)
def test_bare_number(value: object, kind: Kind) -> None:
    """Where a unit belongs, a bare number or numeric text is refused, and the error says what to write."""
    with pytest.raises(InputError, match=re.escape(f"Owner.field must be {kind.name}, with its unit; got ")) as caught:
        take(value, kind, "Owner.field")
    assert f'Write field="{kind.example}".' == caught.value.fix


@pytest.mark.parametrize(
    ("value", "kind", "called"),
    [
        ("12 USD", BANDWIDTH, "a price"), ("12 euro", BANDWIDTH, "a price"), ("12 GB", BANDWIDTH, "an amount of information"),
        ("12 s", BANDWIDTH, "a time"), ("70e9 token", PARAMETERS, "a number of tokens"), ("70 GB", PARAMETERS, "an amount of information"),
        ("70e9 param", INFORMATION, "a number of parameters"), ("12 GB/s", INFORMATION, "a bandwidth"),
        ("14 byte", BYTES_PER_PARAM, "information"),
        ("3 failure", TIME, "a number of failures"), ("12 GB/s", TIME, "a bandwidth"),
    ],
)  # fmt: skip
def test_wrong_dimension(value: str, kind: Kind, called: str) -> None:
    """A quantity of something else is refused, and called by its name."""
    with pytest.raises(InputError, match=f"must be {re.escape(kind.name)}; got .*{called}"):
        take(value, kind, "Owner.field")


@pytest.mark.parametrize("value", ["0 GB/s", "-1 GB/s", "-1e-9 GB/s", "-0.0 GB/s", "1e-999 GB/s", Q_(-1, "GB/s"), Q_([1, 0, 2], "GB/s")])
def test_not_positive(value: object) -> None:
    """Zero and what is negative is refused, also within an array."""
    with pytest.raises(InputError, match=r"Owner.field must be greater than 0; got"):
        take(value, BANDWIDTH, "Owner.field")


@pytest.mark.parametrize(("number", "word"), [(float("nan"), "NaN"), (float("inf"), "infinite"), (float("-inf"), "infinite")])
@pytest.mark.parametrize("array", [False, True], ids=["scalar", "array"])
def test_not_finite(number: float, word: str, array: bool) -> None:
    """NaN and infinity are refused by name."""
    with pytest.raises(InputError, match=f"finite and greater than 0, never {word}"):
        take(Q_([1.0, number] if array else number, "GB/s"), BANDWIDTH, "Owner.field")


@pytest.mark.parametrize("value", ["1e61 s", "1e-61 s", "1e300 s"])
def test_beyond_any_machine(value: str) -> None:
    """A number so large or small that a law might overflow is refused."""
    with pytest.raises(InputError, match="between 1e-60 and 1e"):
        take(value, TIME, "Owner.field")


def test_zero_where_it_makes_sense() -> None:
    """Zero is taken where the field allows it, and below it nothing is."""
    assert 0.0 == take("0 s", TIME, "Owner.field", zero=True)
    with pytest.raises(InputError, match="at least 0"):
        take("-1 s", TIME, "Owner.field", zero=True)


def test_bits_are_no_bytes() -> None:
    """400 Gbps is 50 GB/s."""
    assert (50e9, 50e9) == (take("400 Gbps", BANDWIDTH, "x"), take("400 Gb/s", BANDWIDTH, "x"))


@pytest.mark.parametrize("value", [1, 256, np.int8(4), np.uint64(7), np.array(5), 10**15])
def test_count(value: Any) -> None:
    """Whole numbers of at least 1 are counts, and become Python's own int."""
    counted = take_count(value, "Fleet.count")
    assert (int(value), int) == (counted, type(counted))


@pytest.mark.parametrize(
    "value",
    [
        0, -4, 2.5, True, False, 4.0, "256", None, np.bool_(True), np.float64(4), np.array(4.0), np.array(True), 10**16,
        10**400, float("nan"), [4],
        Q_(4, "node"), Q_(4, ""), np.array([4, 0]), np.array([4.0]), np.array([True]), np.array([4], dtype=object), np.array(["4"]),
        np.ma.array([4, 5], mask=[False, True]), b"4", 4j,
    ],
    ids=repr,
)  # fmt: skip
def test_no_count(value: object) -> None:
    """What is no whole number of at least 1 is no count, and True is none."""
    with pytest.raises(InputError, match=r"Fleet.count must be (a )?whole numbers? of at least 1; got .*Write count=8, say."):
        take_count(value, "Fleet.count")


def test_counts_in_an_array() -> None:
    """An array of whole numbers is taken as it is."""
    counts = np.array([1, 2, 3])
    assert counts is take_count(counts, "Fleet.count")


def test_give_is_pythons_own() -> None:
    """What has no axes comes out as Python's own float, bool or str, whatever numpy made of it."""
    assert [float, float, bool] == [
        type(give(np.float64(1), TIME).magnitude), type(give_ratio(np.array(0.5))), type(give_ratio(np.bool_(True)))
    ]  # fmt: skip


def test_give_locks_arrays() -> None:
    """An array comes out read-only."""
    assert (False, False) == (give(np.array([1.0]), TIME).magnitude.flags.writeable, give_ratio(np.array([1.0])).flags.writeable)


def test_a_field_names_its_owner() -> None:
    """A class that declares a quantity field gets errors with its own name in them."""

    @attrs.frozen(kw_only=True)
    class Pipe:
        rate: Any = quantity(BANDWIDTH)

    assert Q_("50 GB/s") == Pipe(rate="400 Gbps").rate
    with pytest.raises(InputError, match=r"^Pipe.rate must be a bandwidth"):
        Pipe(rate="12 GB")


def test_optional_field_may_be_left_out() -> None:
    """A field that may be left out is None then."""

    @attrs.frozen(kw_only=True)
    class Pipe:
        rate: Any = quantity(BANDWIDTH, optional=True)

    assert (None, None) == (Pipe().rate, Pipe(rate=None).rate)
