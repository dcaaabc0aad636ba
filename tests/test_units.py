"""The one registry, its vocabulary, its grammar, and quantities as values."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pint
import pytest

from mlsysim import Q_, InputError, ureg
from mlsysim.units import parse, parse_unit


@pytest.mark.parametrize(
    ("text", "base", "unit"),
    [
        ("400 Gbps", 50e9, "byte/second"), ("400 Gb/s", 50e9, "byte/second"), ("50 GB/s", 50e9, "byte/second"),
        ("20 Gb/s", 2.5e9, "byte/second"), ("1 bit", 0.125, "byte"), ("8 b", 1.0, "byte"), ("1 octet", 1.0, "byte"),
        ("1 KiB", 1024.0, "byte"), ("1 GiB", 2.0**30, "byte"), ("1 TiB", 2.0**40, "byte"), ("1 kB", 1000.0, "byte"),
        ("1 gibibyte", 2.0**30, "byte"), ("3 gigabytes", 3e9, "byte"), ("1 Tbps", 125e9, "byte/second"), ("2 GBps", 2e9, "byte/second"),
        ("10 min", 600.0, "second"), ("1 h", 3600.0, "second"), ("1 day", 86400.0, "second"), ("1 week", 604800.0, "second"),
        ("1 year", 31557600.0, "second"), ("340 ms", 0.34, "second"), ("5 µs", 5e-6, "second"), ("5 us", 5e-6, "second"),
        ("70.6e9 param", 70.6e9, "parameter"), ("14 byte/param", 14.0, "byte/parameter"), ("14 B/parameter", 14.0, "byte/parameter"),
        ("3 USD", 3.0, "dollar"), ("2 token", 2.0, "token"), ("6.5e-3 failure/node/day", 6.5e-3 / 86400, "failure/node/second"),
        ("1 GB / s", 1e9, "byte/second"), ("1GB/s", 1e9, "byte/second"), ("+.5 GB", 5e8, "byte"), ("5. GB", 5e9, "byte"),
        ("2 GB**2", 2e18, "byte**2"), ("2 GB^2", 2e18, "byte**2"), ("4 1/s", 4.0, "1/second"),
    ],
)  # fmt: skip
def test_text_is_read(text: str, base: float, unit: str) -> None:
    """A number and a unit are read, decimal and binary prefixes, bits and bytes told apart."""
    read = parse(text)
    assert (base, parse_unit(unit)._units) == (pytest.approx(read.base, rel=1e-15), read.base_units)


@pytest.mark.parametrize(
    "text",
    [
        "80,5 GB/s", "80 000 GB/s", "1:30:00", "9**9**9**9 byte", "9**9 byte", "1_000 GB", "0x10 GB", "GB", "", " ", "12 %", "12 GB//s",
        "12 GB/", "12 /s/", "12 * GB", "12 GB 3", "(12) GB", "12 (GB)", "12 GB/s; import os", "\u0661\u0662 GB", "12 \uff27B", "12 GB\n",
        "\n12 GB\nx",
        "1 \u00c5", "12 GB/s\x00", "1e5e5 GB", "1e9999 GB", "--1 GB", "1e GB", ". GB", "12 GB**99999", "12 GB**9**9", "12 GB**-", "12 2 GB",
        "\u221e s", "\u00bd GB",
        "1" * 500 + " GB", "12 " + "GB*" * 500 + "s", "12 GB/s" + " " * 500 + "x", "\uff11\uff12 GB", "12\u00a0\u00a0,GB", "x" * 10**6,
    ],
)  # fmt: skip
def test_text_is_refused(text: str) -> None:
    """What is not one number and one unit is refused, never guessed at and never evaluated."""
    with pytest.raises(InputError):
        parse(text)


@pytest.mark.parametrize("text", ["nan GB/s", "inf GB/s", "-inf GB/s", "NaN s", "Infinity s", "+inf s"])
def test_no_finite_number_in_text(text: str) -> None:
    """NaN and infinity are refused by name."""
    with pytest.raises(InputError, match="never NaN or infinity"):
        parse(text)


@pytest.mark.parametrize("text", ["1e999 GB/s", "1e308 YB"])
def test_number_beyond_a_float(text: str) -> None:
    """A number that a float cannot hold is refused, never read as infinite."""
    with pytest.raises(InputError, match="finite"):
        parse(text)


@pytest.mark.parametrize("text", ["14", "14 ", "3e5", "-1"])
def test_number_without_unit(text: str) -> None:
    """Numeric text without a unit is asked for its unit."""
    with pytest.raises(InputError, match="a number with its unit"):
        parse(text)


@pytest.mark.parametrize(
    ("unit", "hint"),
    [("gb", "Gb"), ("gbps", "Gbps"), ("GBs", "GB"), ("Minutes", "minute"), ("bites", "bi")],
)
def test_unknown_unit_names_the_nearest(unit: str, hint: str) -> None:
    """An unknown unit, in the wrong case say, is answered with the nearest that is known."""
    with pytest.raises(InputError, match=f"Did you mean.*{hint}"):
        parse(f"12 {unit}/s")


@pytest.mark.parametrize("text", ["100 mb/s", "100 mB/s", "1 µB", "3 mparam", "5 nbit"])
def test_part_of_a_bit_is_refused(text: str) -> None:
    """A prefix that makes a thousandth of a byte was meant to be another case."""
    with pytest.raises(InputError, match="M is mega"):
        parse(text)


@pytest.mark.parametrize("unit", ["__import__", "_x", "__class__", "meter", "kg", "degC", "lambda", "pint"])
def test_unknown_unit_is_an_input_error(unit: str) -> None:
    """Any word that is no unit of ours is an InputError, whatever it is in Python."""
    with pytest.raises(InputError, match="known unit"):
        parse(f"1 {unit}")


EVIL = "9**9**9**9 byte"


@pytest.mark.parametrize(
    "read",
    [
        Q_, parse, ureg, ureg.parse_expression, ureg.parse_units, ureg.Unit, lambda text: Q_(1, text), lambda text: Q_("1 GB").to(text),
        lambda text: Q_("1 GB").m_as(text), lambda text: ureg.convert(1, text, "s"), lambda text: Q_([1, 2], "GB").to(text),
    ],
    ids=["Q_", "parse", "ureg", "parse_expression", "parse_units", "Unit", "unit", "to", "m_as", "convert", "array.to"],
)  # fmt: skip
def test_no_text_is_evaluated(read: Callable[[str], Any]) -> None:
    """A tower of powers is refused at once, by every way in."""
    with pytest.raises(InputError):
        read(EVIL)


def test_dimensions_are_apart() -> None:
    """Bytes, parameters, tokens, dollars and seconds each have a dimension, and none is a number."""
    units = ("byte", "parameter", "token", "dollar", "euro", "second", "failure", "node", "accelerator")
    dimensions = {str(Q_(1, unit).dimensionality) for unit in units}
    assert (len(units), False) == (len(dimensions), "dimensionless" in dimensions)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3350 GB/s", "3.35 TB/s"), ("1000 GB", "1 TB"), ("1024 GiB", "1 TiB"), ("400 Gbps", "50 GB/s"), ("90 s", "1.5 min"),
        ("0.1 TB", "100 GB"), ("0.3 TB", "300 GB"), ("1.1 h", "66 min"), ("70.6e9 param", "70600000000 param"), ("8 bit", "1 byte"),
        ("4.35 TB", "4350 GB"), ("0.7 s", "700 ms"),
    ],
)  # fmt: skip
def test_equal_as_it_reads(one: str, other: str) -> None:
    """Two texts of one amount are equal, hash alike, and are one member of a set."""
    assert (True, True, 1) == (Q_(one) == Q_(other), hash(Q_(one)) == hash(Q_(other)), len({Q_(one), Q_(other)}))


def test_number_and_text_agree() -> None:
    """A quantity made of a number and a unit is the one that the text makes."""
    assert {Q_("3.35 TB/s")} == {
        Q_(3.35, "TB/s"),
        Q_(3350, "GB/s"),
        Q_(3350.0, ureg.GB / ureg.s),
        Q_("3350", "GB/s"),
        3.35 * ureg.TB / ureg.s,
    }


def test_different_amounts_differ() -> None:
    """A last digit makes a difference."""
    assert (True, False) == (Q_("1 TB") != Q_("1000.0000001 GB"), Q_("1 TB") == Q_("1000.0000001 GB"))


@pytest.mark.parametrize("other", [None, "1 GB", 1, 1.0, object(), [], Q_("1 s"), Q_("1 param"), True])
def test_amount_equals_nothing_else(other: object) -> None:
    """A quantity is not equal to a number, a text, or an amount of something else."""
    assert (False, True) == (Q_("1 GB") == other, Q_("1 GB") != other)


@pytest.mark.parametrize(("quantity", "number"), [(Q_("1 GB") / Q_("1 kB"), 1e6), (Q_(0.5, ""), 0.5), (Q_(0, "s"), 0)])
def test_equal_number_hashes_alike(quantity: Any, number: float) -> None:
    """Where a quantity equals a number, it hashes as that number."""
    assert (True, hash(number)) == (quantity == number, hash(quantity))


def test_order_is_that_of_the_amounts() -> None:
    """Quantities in different units are ordered by what they amount to."""
    amounts = [Q_("1 MB"), Q_("1 GiB"), Q_("1 GB"), Q_("8000.5 Mb")]
    assert [Q_("1 MB"), Q_("1 GB"), Q_("8000.5 Mb"), Q_("1 GiB")] == sorted(amounts)


def test_equal_amounts_are_not_less() -> None:
    """0.3 TB is not less than 300 GB by a rounding error."""
    assert (False, True, True) == (Q_("0.3 TB") < Q_("300 GB"), Q_("0.3 TB") <= Q_("300 GB"), Q_("0.3 TB") >= Q_("300 GB"))


def test_bytes_and_times_do_not_add() -> None:
    """Adding bytes to seconds is Pint's own error."""
    with pytest.raises(pint.DimensionalityError):
        Q_("1 GB") + Q_("1 s")


@pytest.mark.parametrize(
    "change",
    [
        lambda q: q.ito("MB"), lambda q: q.ito_base_units(), lambda q: q.ito_root_units(), lambda q: q.ito_reduced_units(),
        lambda q: q.ito_preferred([ureg.MB]), lambda q: q.__setitem__(0, 1), lambda q: setattr(q, "magnitude", 3),
        lambda q: setattr(q, "m", 3),        lambda q: setattr(q, "units", "s"), lambda q: q.put(0, 1), lambda q: q.fill(0),
        lambda q: q.ito_unprefixed(),
    ],
)  # fmt: skip
@pytest.mark.parametrize("quantity", [Q_("1 GB"), Q_([1.0, 2.0], "GB")], ids=["scalar", "array"])
def test_nothing_changes_it_in_place(change: Callable[[Any], Any], quantity: Any) -> None:
    """What would change a quantity in place raises, and leaves it as it was."""
    before = repr(quantity)
    with pytest.raises((TypeError, AttributeError)):
        change(quantity)
    assert before == repr(quantity)


@pytest.mark.parametrize(
    "change",
    [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow],
    ids=lambda each: each.__name__,
)
@pytest.mark.parametrize("magnitude", [2.0, [2.0, 3.0]], ids=["scalar", "array"])
def test_augmented_assignment_makes_another(change: Callable[[Any, Any], Any], magnitude: Any) -> None:
    """``q *= 2`` and its like bind a new quantity and leave the old one alone."""
    quantity = Q_(magnitude, "GB")
    other = 2 if change in (operator.imul, operator.itruediv, operator.ipow) else Q_("1 GB")
    changed = change(quantity, other)
    assert (False, repr(Q_(magnitude, "GB"))) == (changed is quantity, repr(quantity))


@pytest.mark.parametrize(
    ("magnitude", "kept"),
    [
        (Decimal("12.5"), 12.5), (Fraction(25, 2), 12.5), (np.float32(0.5), 0.5), (np.float64(0.1), 0.1), (np.int8(5), 5),
        (np.array(5.0), 5.0),        (np.longdouble(3), 3.0), (np.float16(1), 1.0), (2**70, float(2**70)), ("12.5", 12.5),
    ],
)  # fmt: skip
def test_numbers_of_all_kinds(magnitude: Any, kept: float) -> None:
    """Every kind of number becomes Python's own, and an array without axes a scalar."""
    quantity = Q_(magnitude, "GB")
    assert (kept, True) == (quantity.magnitude, type(quantity.magnitude) in (int, float))


@pytest.mark.parametrize(
    "magnitude",
    [
        True, None, 1j, b"12", object(), {}, {1}, 10**400, -(10**400), np.bool_(True), [[1], [2, 3]], np.array([True, False]),
        np.array([1, None], dtype=object), np.array(["1", "2"]), np.ma.array([1.0, 2.0], mask=[False, True]), np.array([1j]), [Q_("1 GB")],
        Decimal("sNaN"), np.array(True), np.datetime64(1, "s"), np.timedelta64(1, "s"), [True], ["1"], range(3), pint,
    ],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_what_is_no_number(magnitude: Any) -> None:
    """What is no number, or an array of something else, is no magnitude."""
    with pytest.raises(InputError, match="a number, or an array of numbers"):
        Q_(magnitude, "GB")


def test_scalar_shares_nothing() -> None:
    """A scalar made of an array without axes does not change with that array."""
    source = np.array(5.0)
    quantity = Q_(source, "GB")
    source[()] = 7.0
    assert Q_("5 GB") == quantity


@pytest.mark.parametrize("text", ["1 GB", "0.1 TB", "70.6e9 param", "3 USD", "5e-3 failure/node/day", "1 GB**2", "2 1/s"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(text: str, protocol: int) -> None:
    """A quantity comes back from a pickle equal, in our registry, and in the unit that it had."""
    quantity = Q_(text)
    back = pickle.loads(pickle.dumps(quantity, protocol))
    assert (quantity, hash(quantity), str(quantity), Q_) == (back, hash(back), str(back), type(back))


def test_root_of_a_quantity_is_a_value_too() -> None:
    """A broken power compares, hashes and pickles."""
    root = Q_("4 s") ** 0.5
    assert (root, hash(root), Q_("4 s")) == (pickle.loads(pickle.dumps(root)), hash(Q_("4 s") ** 0.5), root**2)


def test_array_pickles_with_its_lock() -> None:
    """An array of quantities comes back as writeable as it went."""
    open_array, locked = Q_([1.0, 2.0], "GB"), Q_([1.0, 2.0], "GB")
    locked.magnitude.flags.writeable = False
    assert [True, False] == [pickle.loads(pickle.dumps(each)).magnitude.flags.writeable for each in (open_array, locked)]


def test_array_is_unhashable() -> None:
    """An array of quantities is no key."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(Q_([1, 2], "GB"))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy])
def test_copies(again: Callable[[Any], Any]) -> None:
    """A copy is equal, and a deep copy shares no array that can be written."""
    assert Q_("1 GB") == again(Q_("1 GB"))


def test_deep_copy_shares_no_array() -> None:
    """Writing into the array of a deep copy leaves the first alone."""
    first = Q_(np.array([1.0, 2.0]), "GB")
    copy.deepcopy(first).magnitude[0] = 9.0
    assert 1.0 == first.magnitude[0]


def test_conversion_keeps_the_value() -> None:
    """There and back through another unit is the same quantity."""
    quantity = Q_("0.1 TB")
    assert (quantity, hash(quantity)) == (quantity.to("Gb").to("GiB").to("TB"), hash(quantity.to("Gb").to("GiB")))


def test_unit_pickles() -> None:
    """A unit comes back into our registry."""
    assert ureg.GB == pickle.loads(pickle.dumps(ureg.GB))


class TestForeignRegistries:
    """Quantities of somebody else's Pint registry are taken over by the names of their units, or refused with a sentence."""

    stock = pint.UnitRegistry()

    @pytest.mark.parametrize(
        ("magnitude", "unit", "same"),
        [
            (12, "GB/s", "12 GB/s"),
            (10, "min", "10 min"),
            (400, "Gbit/s", "400 Gb/s"),
            (1.5, "TiB", "1.5 TiB"),
            (2, "hours", "2 h"),
            (1, "year", "1 year"),
        ],
    )
    def test_taken_over(self, magnitude: float, unit: str, same: str) -> None:
        """Stock Pint's gigabytes per second become ours."""
        assert Q_(same) == Q_(self.stock.Quantity(magnitude, unit))

    def test_of_their_own_making(self) -> None:
        """A registry that defines parameters as we do is understood."""
        theirs = pint.UnitRegistry()
        theirs.define("parameter = [parameter] = param")
        assert Q_("7e9 param") == Q_(theirs.Quantity(7e9, "param"))

    @pytest.mark.parametrize("unit", ["meter", "degC", "Gb/s", "kg", "month", "percent", "count", "radian", "inch_Hg_60F", "‰"])
    def test_refused(self, unit: str) -> None:
        """What we do not speak is refused by its name; stock Pint's ``Gb`` is a gilbert."""
        with pytest.raises(InputError, match="units that mlsysim knows"):
            Q_(self.stock.Quantity(12, unit))

    @pytest.mark.parametrize("magnitude", [1j, 10**400, np.ma.array([1.0], mask=[True]), np.array([True])], ids=str)
    def test_refused_by_magnitude(self, magnitude: Any) -> None:
        """Their quantity of no number is no quantity of ours."""
        with pytest.raises(InputError):
            Q_(self.stock.Quantity(magnitude, "s"))

    def test_no_name_means_something_else(self) -> None:
        """Every unit that both vocabularies name is the same amount of the same thing."""
        differing = []
        for name in {next(iter(self.stock.parse_units(each)._units), "") for each in self.stock._units if each.isascii()}:
            for prefixed in (name, f"kilo{name}", f"mega{name}", f"gibi{name}"):
                if not prefixed.isidentifier() or prefixed not in ureg:
                    continue
                factor, base = ureg.get_root_units(prefixed)
                theirs = self.stock.Quantity(1, prefixed).to_root_units()
                expected = theirs.magnitude / 8 if str(theirs.units) == "bit" else theirs.magnitude
                if str(base) != str(theirs.units).replace("bit", "byte") or factor != pytest.approx(expected, rel=1e-15):
                    differing.append(prefixed)
        assert [] == differing

    def test_application_registry_stays(self) -> None:
        """Making, comparing and unpickling our quantities leaves Pint's application registry as it was."""
        before = pint.get_application_registry().get()
        ours = pickle.loads(pickle.dumps(Q_([1, 2], "GB")))
        Q_(pint.Quantity(3, "GB"))
        after = pint.get_application_registry().get()
        assert (True, False, True) == (before is after, ours._REGISTRY is after, pint.Quantity(1, "byte").dimensionless)
