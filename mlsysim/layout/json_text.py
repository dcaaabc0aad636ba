"""JSON of strangers: read strictly, in bounded memory, and every refusal says where.

``document`` gives the plain Python objects; ``field``, ``items`` and ``optional`` fetch what must be in them.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn, TypeVar

import numpy as np

from mlsysim.errors import InputError, Shown
from mlsysim.layout.limits import Limits

__all__ = ["MOST", "document", "field", "items", "optional", "typed", "whole_numbers"]

T = TypeVar("T")

# the largest whole number that is read
MOST = 2**63 - 1
_FIX = "Refuse this file, or ask who made it."
_RAISE = "Raise the cap with limits=Limits(...) if you trust it."
# bytes that one value takes on average in a document at its cap: bounds the objects that are built
_BYTES_PER_VALUE = 8
_SCANNED = 2**22
_STEP = np.zeros(256, np.int8)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1
_MARKS = np.zeros(256, bool)
_MARKS[[ord(mark) for mark in '[]{}",:']] = True
_WORDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def document(data: bytes, *, place: str, limits: Limits, most: int | None = None) -> Any:
    """The value that a JSON document holds.

    Parameters
    ----------
    data : bytes
        UTF-8, without a byte order mark.
    place : str
        Name of the file, for the errors.
    limits : Limits
        ``json_bytes`` caps the size, ``depth`` the nesting.
    most : int, optional
        Another cap on the size, in bytes.

    Returns
    -------
    dict, list, str, int, float, bool or None
        ``-0`` is a float, as elsewhere: it is no whole number.

    Raises
    ------
    InputError
        If it is no JSON or no UTF-8, is too large or too deep, holds a key twice, a whole number beyond 63 bits, a number that is
        not finite, or half of a surrogate pair. The place is the file and the path of keys.

    Examples
    --------
    >>> document(b'{"a": {"b": 1, "b": 2}}', place="case.json", limits=Limits())
    Traceback (most recent call last):
    ...
    mlsysim.errors.InputError: case.json: a.b must be there once; got the same key twice. Refuse this file, or ask who made it.
    """
    cap = limits.json_bytes if most is None else most
    if len(data) > cap:
        raise InputError(place, f"at most {cap:,} byte", Shown(f"{len(data):,} byte"), _RAISE)
    _bounded(data, place, limits.depth, max(cap // _BYTES_PER_VALUE, 1))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: byte {error.start}", "UTF-8", data[error.start : error.start + 4], _FIX) from None
    if text.startswith("\ufeff"):
        raise InputError(f"{place}: byte 0", "the beginning of JSON", Shown("a byte order mark"), _FIX)
    return _parsed(data, text, place)


def _bounded(data: bytes, place: str, depth: int, values: int) -> None:
    """Refuse what nests too deep or holds too many values, before anything of it is built."""
    if max(data.count(b"["), data.count(b"{")) * 2 <= depth and len(data) <= values:
        return
    # an escaped quote ends no text; where pairs are taken out, places in the document do not matter any more
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    level, inside, count = 0, False, 0
    for start in range(0, len(bare), _SCANNED):
        part = np.frombuffer(bare, np.uint8, min(_SCANNED, len(bare) - start), start)
        marks = part[_MARKS[part]]
        quoted = np.logical_xor.accumulate(np.concatenate(([inside], marks == ord('"'))))
        inside = bool(quoted[-1])
        marks = marks[~quoted[1:] & (marks != ord('"'))]
        levels = level + np.cumsum(_STEP[marks], dtype=np.int64)
        if len(levels):
            level = int(levels[-1])
            if int(levels.max()) > depth:
                raise InputError(place, f"nested at most {depth} deep", Shown("more"), _RAISE)
        count += int((_STEP[marks] >= 0).sum())
        if count > values:
            raise InputError(place, f"of at most {values:,} values", Shown("more"), _RAISE)


def _parsed(data: bytes, text: str, place: str) -> Any:
    repeated: dict[int, tuple[dict[str, Any], str]] = {}

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(found)
        if len(table) != len(found):
            seen: set[str] = set()
            again = next(key for key, _ in found if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            repeated[id(table)] = table, again
        return table

    # numbers are looked at one by one only where one could be too large, or minus zero
    alike = data.translate(_ALIKE)
    doubtful = b"-0" in data or any(each in alike for each in _DOUBTFUL)
    del alike
    numbers: dict[str, Any] = {"parse_int": _whole, "parse_float": _finite} if doubtful else {}
    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=_constant, **numbers)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}: byte {len(text[: error.pos].encode())}", "JSON", Shown(error.msg), _FIX) from None
    except _RefusedError as error:
        raise InputError(place, error.rule, Shown(error.text), _FIX) from None
    except RecursionError:
        # only where the cap on depth was raised beyond what the interpreter can do
        raise InputError(place, "less nested", Shown("more than the interpreter can read"), _FIX) from None
    if repeated:
        path, key = _where(value, repeated)
        raise InputError(f"{place}: {path}{key}", "there once", _AGAIN, _FIX)
    if "\\u" in text and _HALVES.search(text):
        _whole_texts(value, place)
    return value


_AGAIN = Shown("the same key twice")
# all digits alike: then 19 on end, or an exponent of three, are found at once
_ALIKE = bytes.maketrans(b"123456789E", b"000000000e")
_DOUBTFUL = (b"0" * 19, b"0e000", b"0e+000")
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")


class _RefusedError(Exception):
    def __init__(self, rule: str, text: str) -> None:
        super().__init__(rule)
        self.rule, self.text = rule, text if len(text) < 40 else text[:40] + "..."


def _whole(text: str) -> int | float:
    if text == "-0":
        return -0.0
    if len(text) < 19:
        return int(text)
    if len(text) > 20 or not -MOST - 1 <= int(text) <= MOST:
        raise _RefusedError("free of whole numbers beyond 63 bits", text)
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise _RefusedError("free of numbers too large for a float", text)
    return value


def _constant(text: str) -> NoReturn:
    raise _RefusedError("free of numbers that are not finite", text)


def _walk(value: Any) -> Any:
    """Every object, list and text below a value, with its path; without recursion."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        path, each = waiting.pop()
        yield path, each
        if isinstance(each, dict):
            waiting += [(f"{path}{key}.", below) for key, below in each.items() if isinstance(below, (dict, list, str))]
        elif isinstance(each, list):
            waiting += [(f"{path}{number}.", below) for number, below in enumerate(each) if isinstance(below, (dict, list, str))]


def _where(value: Any, repeated: dict[int, tuple[dict[str, Any], str]]) -> tuple[str, str]:
    """Path of an object with a repeated key; one inside a value that was dropped has an outer one that was not."""
    return next((path, repeated[id(each)][1]) for path, each in _walk(value) if id(each) in repeated)


def _whole_texts(value: Any, place: str) -> None:
    for path, each in _walk(value):
        for text in (each,) if isinstance(each, str) else each if isinstance(each, dict) else ():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InputError(f"{place}: {path.rstrip('.')}", "free of half surrogate pairs", text, _FIX) from None


def typed(value: Any, kind: type[T], place: str, *, null: bool = False) -> T:
    """A value of one type; ``true`` is no whole number, and a whole number is a ``float`` too.

    Raises
    ------
    InputError
        If it is of another type.
    """
    good = isinstance(value, kind) or (kind is float and isinstance(value, int))
    if isinstance(value, bool) and kind is not bool:
        good = False
    if not good and not (null and value is None):
        raise InputError(place, _WORDS.get(kind, kind.__name__) + (" or null" if null else ""), value, _FIX)
    return value  # type: ignore[no-any-return]


def field(table: Any, key: str, kind: type[T], place: str) -> T:
    """What an object holds under a key, of one type.

    Parameters
    ----------
    table : object
        Checked to be an object.
    key : str
    kind : type
        dict, list, str, int, float or bool.
    place : str
        Where the object is, ``"case.json: fragments.0"``; the error's place is this and the key.

    Raises
    ------
    InputError
        If the key is not there, or its value is of another type.

    Examples
    --------
    >>> field({"world_size": True}, "world_size", int, "case.json")
    Traceback (most recent call last):
    ...
    mlsysim.errors.InputError: case.json: world_size must be a whole number; got True. Refuse this file, or ask who made it.
    """
    held = table if type(table) is dict else typed(table, dict, place)
    if key not in held:
        raise InputError(below(place, key), _WORDS[kind], Shown("nothing"), _FIX)
    value = held[key]
    # the place is put together only where it is needed
    return value if type(value) is kind else typed(value, kind, below(place, key))


def optional(table: Any, key: str, kind: type[T], place: str) -> T | None:
    """As ``field``; None where the key is not there or holds null."""
    held = table if type(table) is dict else typed(table, dict, place)
    value = held.get(key)
    return value if value is None or type(value) is kind else typed(value, kind, below(place, key))


def items(table: Any, key: str, kind: type[T], place: str) -> list[T]:
    """As ``field``: a list whose entries are all of one type."""
    held = field(table, key, list, place)
    for number, each in enumerate(held):
        if type(each) is not kind:
            typed(each, kind, below(place, f"{key}.{number}"))
    return held


def whole_numbers(table: Any, key: str, place: str, *, length: int | None = None) -> tuple[int, ...]:
    """As ``items``: whole numbers of at least 0, and so many of them."""
    held = items(table, key, int, place)
    if length is not None and len(held) != length:
        raise InputError(below(place, key), f"{length} whole numbers", held, _FIX)
    for number, each in enumerate(held):
        if each < 0:
            raise InputError(below(place, f"{key}.{number}"), "a whole number of at least 0", each, _FIX)
    return tuple(held)


def below(place: str, key: str) -> str:
    """The place of a key under a place: ``file: a`` and ``b`` are ``file: a.b``."""
    return f"{place}.{key}" if ": " in place else f"{place}: {key}"
