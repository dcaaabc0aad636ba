"""Laws of quantities: reading, converting, comparing, writing."""

from __future__ import annotations

import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import Q_, InputError
from mlsysim.report.wording import lossless, readable
from mlsysim.units import parse

numbers = st.floats(min_value=1e-30, max_value=1e30, allow_nan=False)
information = st.sampled_from(["byte", "bit", "kB", "MB", "GB", "TB", "KiB", "GiB", "Gb", "Tb"])
times = st.sampled_from(["second", "ms", "min", "h", "day", "week", "year"])
units = st.one_of(information, times, st.sampled_from(["GB/s", "Gbps", "GiB/h", "param", "byte/param", "USD", "failure/node/day"]))


@given(numbers, units)
def test_text_and_number_agree(number: float, unit: str) -> None:
    """Text and number make one quantity, with one hash."""
    one, other = parse(f"{number!r} {unit}"), Q_(number, unit)
    assert (one, hash(one)) == (other, hash(other))


@given(st.decimals(min_value=Decimal("1e-9"), max_value=Decimal("1e9"), places=9), st.integers(-9, 9))
def test_prefixes_are_powers_of_ten(number: Decimal, power: int) -> None:
    """Writing a number with its point elsewhere and another prefix changes nothing."""
    prefixes = {0: "MB", 3: "kB", -3: "GB", -6: "TB", 6: "B"}
    written = {parse(f"{number.scaleb(shift):f} {unit}") for shift, unit in prefixes.items()}
    assert 1 == len(written)
    assert parse(f"{number:f} kB") == parse(f"{number.scaleb(power):f}e{-power} kB")


@given(numbers, information, information)
def test_conversion_keeps_the_value(number: float, unit: str, other: str) -> None:
    """A quantity in another unit is equal, hashes alike, and converts back."""
    quantity = Q_(number, unit)
    moved = quantity.to(other)
    assert (quantity, hash(quantity), quantity.base) == (moved, hash(moved), moved.to(unit).base)


@given(numbers, numbers, information, information)
def test_order_is_total(one: float, other: float, unit: str, other_unit: str) -> None:
    """Of two quantities exactly one of less, equal and greater holds, and it is what exact arithmetic says, up to rounding once."""
    left, right = Q_(one, unit), Q_(other, other_unit)
    assert 1 == sum((left < right, left == right, left > right))
    sizes = {
        "byte": 1, "bit": Fraction(1, 8), "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "GiB": 2**30,
        "Gb": Fraction(10**9, 8), "Tb": Fraction(10**12, 8),
    }  # fmt: skip
    exact = [float(Fraction(Decimal(repr(number))) * sizes[name]) for number, name in ((one, unit), (other, other_unit))]
    assert exact == [left.base, right.base]


@given(st.floats(min_value=5e-324, max_value=1e300), st.sampled_from(["byte", "second", "byte/second", "parameter", "byte/parameter"]))
def test_writing_loses_nothing(base: float, unit: str) -> None:
    """A quantity written as text reads back to the very same value."""
    quantity = Q_(base, unit)
    assert quantity == parse(lossless(quantity))


@given(numbers, units)
def test_pickling_loses_nothing(number: float, unit: str) -> None:
    """A quantity comes back from a pickle with value, hash and unit."""
    quantity = Q_(number, unit)
    back = pickle.loads(pickle.dumps(quantity))
    assert (quantity, hash(quantity), str(quantity)) == (back, hash(back), str(back))


@given(st.lists(numbers, min_size=1, max_size=5), units)
def test_an_array_holds_its_scalars(values: list[float], unit: str) -> None:
    """The elements of an array are within rounding of the scalars of the same numbers."""
    array = Q_(np.array(values), unit)
    np.testing.assert_allclose(array.base, [Q_(value, unit).base for value in values], rtol=4e-16)


@given(st.text(max_size=40))
def test_any_text_is_a_quantity_or_an_input_error(text: str) -> None:
    """Whatever the text, it is read or refused with an InputError, never anything else."""
    try:
        found = str(np.isfinite(parse(text).base))
    except InputError as error:
        found = str(error)
    assert (True, True) == (found != "False", found.isprintable())


@given(st.text(alphabet="0123456789.eE+-*/^ GBTiMbsbytehourmin_()", max_size=30))
def test_near_texts_too(text: str) -> None:
    """Text that looks like a quantity is read or refused, never evaluated."""
    test_any_text_is_a_quantity_or_an_input_error.hypothesis.inner_test(text)  # type: ignore[attr-defined]


@given(st.floats(min_value=1e-6, max_value=1e24), st.sampled_from(["byte", "second", "byte/second", "param"]))
def test_readable_is_near(base: float, unit: str) -> None:
    """What a person reads is within half a per cent of the value, in no more than three digits below a thousand."""
    words = readable(Q_(base, unit))
    number, _, rest = words.partition(" ")
    for word, factor in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if rest.startswith(word):
            number, rest = f"{float(number) * factor!r}", "param"
    read = Q_(float(number), rest.replace("parameters", "param")).base
    if base >= 1 or unit == "second":
        assert abs(read - base) <= max(0.00501 * base, 5.01e-12)
