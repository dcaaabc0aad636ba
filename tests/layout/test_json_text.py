"""JSON of strangers."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.layout.json_text import document, field, items, optional, whole_numbers
from mlsysim.layout.limits import Limits
from tests.layout.fuzzing import mutated

SAMPLE = json.dumps({"a": [1, 2.5, {"b": '\u00e9\ud83d\ude00\\"', "c": None}], "d": {"e": [[[]]], "f": True}}).encode()

REFUSED = {
    "twice": (b'{"a": 1, "a": 1}', "x.json: a", "once"),
    "twice below": (b'{"a": [0, {"b": {"c": 1, "c": 2}}]}', "x.json: a.1.b.c", "once"),
    "twice in a dropped value": (b'{"a": {"b": 1, "b": 2}, "a": 1}', "x.json: a", "once"),
    "nan": (b"[NaN]", "x.json", "finite"),
    "infinite": (b"[-Infinity]", "x.json", "finite"),
    "too large a float": (b"[1e999]", "x.json", "float"),
    "beyond 63 bits": (b"[9223372036854775808]", "x.json", "63 bits"),
    "far beyond": (b"[" + b"9" * 10_000 + b"]", "x.json", "63 bits"),
    "below": (b"[-9223372036854775809]", "x.json", "63 bits"),
    "half a pair": (b'{"a": ["\\ud800"]}', "x.json: a.0", "surrogate"),
    "half a pair in a key": (b'{"a": {"\\udc00": 1}}', "x.json: a", "surrogate"),
    "no utf-8": (b'"\xff"', "x.json: byte 1", "UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf[]", "x.json: byte 0", "beginning"),
    "cut": (b'{"a": [1, ', "x.json: byte 10", "JSON"),
    "more": (b"[] []", "x.json: byte 3", "JSON"),
    "nothing": (b"", "x.json: byte 0", "JSON"),
    "lead zero": (b"[01]", "x.json: byte 2", "JSON"),
    "control character": (b'["\n"]', "x.json: byte 2", "JSON"),
    "deep lists": (b"[" * 101 + b"]" * 101, "x.json", "deep"),
    "deep objects": (b'{"a":' * 101 + b"1" + b"}" * 101, "x.json", "deep"),
    "deep beyond any stack": (b"[" * 10_000_000, "x.json", "deep"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_strict_json_is_refused_with_its_place(name: str) -> None:
    """Each departure from strict JSON is an InputError that names file and path."""
    data, place, word = REFUSED[name]
    with pytest.raises(InputError) as caught:
        document(data, place="x.json", limits=Limits())
    assert place == caught.value.place
    assert word in str(caught.value)


def test_good_json_reads_as_python_reads_it() -> None:
    """A good document gives what the standard library gives."""
    assert json.loads(SAMPLE) == document(SAMPLE, place="x", limits=Limits())


def test_marks_in_texts_do_not_nest() -> None:
    """Brackets and escaped quotes within a text count as text."""
    data = json.dumps(["[{" * 500, '"[' * 500, "\\" * 7 + '"[[['] * 3).encode()
    assert json.loads(data) == document(data, place="x", limits=Limits(depth=2))


def test_the_ends_of_63_bits_are_read() -> None:
    """The largest and the smallest whole number are still read."""
    assert [2**63 - 1, -(2**63)] == document(b"[9223372036854775807, -9223372036854775808]", place="x", limits=Limits())


def test_minus_zero_is_no_whole_number() -> None:
    """-0 reads as a float, as in the libraries of other languages."""
    (value,) = document(b"[-0]", place="x", limits=Limits())
    assert isinstance(value, float)
    assert math.copysign(1, value) == -1


def test_a_hundred_levels_are_read() -> None:
    """The cap on depth is the deepest that is read."""
    data = b"[" * 100 + b"]" * 100
    assert json.loads(data) == document(data, place="x", limits=Limits())


def test_a_document_over_the_cap_is_refused() -> None:
    """Size is capped in bytes, with the way to raise it."""
    with pytest.raises(InputError, match="at most 10 byte; got 11 byte"):
        document(b"[1,2,3,4,5]", place="x", limits=Limits(json_bytes=10))


def test_many_small_values_are_refused_before_they_are_built() -> None:
    """A document of few bytes a value cannot fill the memory: values are capped at an eighth of the bytes."""
    with pytest.raises(InputError, match="values"):
        document(b"[" + b"{}," * 1000 + b"{}]", place="x", limits=Limits(json_bytes=4000))


def test_a_depth_raised_beyond_the_interpreter_is_refused() -> None:
    """Where a caller raised the cap on depth too far, the refusal is still an InputError."""
    with pytest.raises(InputError, match="less nested"):
        document(b"[" * 500_000 + b"]" * 500_000, place="x", limits=Limits(depth=1_000_000))


@pytest.mark.parametrize(("kind", "value"), [(int, True), (int, 1.0), (float, True), (str, 1), (dict, []), (list, {}), (bool, 1)])
def test_a_field_of_another_type_is_refused(kind: type, value: object) -> None:
    """True is no whole number, and 1.0 neither."""
    with pytest.raises(InputError, match=r"x\.json: a\.b must be"):
        field({"b": value}, "b", kind, "x.json: a")


def test_a_field_that_is_not_there_is_refused_and_an_optional_one_is_none() -> None:
    """Only what is optional may be absent or null."""
    with pytest.raises(InputError, match=r"x: b must be a text; got nothing"):
        field({}, "b", str, "x")
    assert [None, None] == [optional({}, "b", str, "x"), optional({"b": None}, "b", str, "x")]


def test_lists_name_the_entry_that_is_wrong() -> None:
    """The place of a fault in a list has its number."""
    with pytest.raises(InputError, match=r"x: a\.1 must be a text"):
        items({"a": ["b", 1]}, "a", str, "x")
    with pytest.raises(InputError, match=r"x: a\.2 must be a whole number of at least 0"):
        whole_numbers({"a": [1, 2, -3]}, "a", "x")
    with pytest.raises(InputError, match=r"x: a must be 2 whole numbers"):
        whole_numbers({"a": [1]}, "a", "x", length=2)


@settings(max_examples=200, deadline=None)
@given(data=mutated(SAMPLE))
def test_mutated_json_reads_as_python_reads_it_or_is_refused(data: bytes) -> None:
    """Only InputError comes out, and what is read equals the standard library's reading."""
    try:
        value = document(data, place="x", limits=Limits())
    except InputError:
        return
    assert json.loads(data) == value


@settings(max_examples=200, deadline=None)
@given(data=st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
                         | st.text(st.characters(exclude_categories=["Cs"])),
                         lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)),
       ascii_only=st.booleans())  # fmt: skip
def test_every_strict_document_is_read(data: object, ascii_only: bool) -> None:
    """What the standard library writes of finite values is read back."""
    assert data == document(json.dumps(data, ensure_ascii=ascii_only).encode(), place="x", limits=Limits())
