"""Pickles of strangers: read without running anything, in bounded memory.

An interpreter of our own for the pickle machine. Every name in the file becomes what ``find`` gives for it: a ``Name``,
which is never called as the class it stands for. Making an object of it gives an ``Inert`` that only records.

>>> import pickle
>>> from datetime import timedelta
>>> made = unpickled(pickle.dumps([1, timedelta(2)]), place="a.pt", limits=Limits(), find=Name)
>>> made[1].of, made[1].args
(Name('datetime', 'timedelta'), (2, 0, 0))
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from sys import getsizeof
from typing import Any, NoReturn

from mlsysim.errors import InputError, Shown
from mlsysim.layout.limits import Limits

__all__ = ["Inert", "Name", "common_name", "label", "refused", "unpickled"]

_FIX = "Refuse this file, or ask who made it."
_HERE = "pickle"
_RAISE = "Raise the cap with limits=Limits(...) if you trust it."
# longest whole number, in bytes, and longest line and text of the old text opcodes
_LONGEST_NUMBER, _LONGEST_LINE, _LONGEST_TEXT = 1024, 4096, 65_536
# tuples hash without a secret, so that many of them as keys could be made to collide
_MOST_TUPLE_KEYS, _MOST_KEY_PARTS = 1024, 64
_HASHED = frozenset((str, int, bytes, bool, float, type(None)))
_LARGEST_KEY = 2**63


class Name:
    """A name that a pickle mentions: stands for a class or a function, and never is it.

    Parameters
    ----------
    module, name : str
    make : callable, optional
        Ours: what is made of it, from the arguments in the file. Its result is charged by its size.
        Without it, an ``Inert`` is made.
    shortcut : callable, optional
        Ours: may take in at once what follows ``NEWOBJ``. Called with the data, the position, the stack and the memo; gives the new
        position and what the memo and the columns grew by in bytes, or None if what follows is of another form.
    """

    __slots__ = ("make", "module", "name", "shortcut")

    def __init__(
        self,
        module: str,
        name: str,
        make: Callable[[tuple[Any, ...]], Any] | None = None,
        shortcut: Callable[[Any, int, list[Any], list[Any]], tuple[int, int] | None] | None = None,
    ) -> None:
        self.module, self.name, self.make, self.shortcut = module, name, make, shortcut

    def __repr__(self) -> str:
        return f"Name({self.module!r}, {self.name!r})"


class Inert:
    """An object of a class that a pickle names: records what it was made with, and does nothing. Equal to itself only.

    Parameters
    ----------
    of : Name
        The class or function.
    args : tuple
        What it was made with, keywords last as a dict where the file gives some.

    Attributes
    ----------
    state : object
        What was set on it, as in the file (a dict, or a pair of dicts for slots); None if nothing was.
    items : list
        What was appended to it, if it is a list by kind.
    pairs : list of tuple
        What was set in it by key, if it is a dict by kind.
    """

    __slots__ = ("args", "items", "of", "pairs", "state")

    def __init__(self, of: Name, args: tuple[Any, ...] = ()) -> None:
        self.of, self.args = of, args
        self.state: Any = None
        self.items: list[Any] | tuple[()] = ()
        self.pairs: list[tuple[Any, Any]] | tuple[()] = ()

    def __repr__(self) -> str:
        return f"Inert({self.of.module}.{self.of.name})"


def label(text: str, most: int = 120) -> str:
    """A stranger's text as an error may show it: short, and on one line."""
    return "".join(each if each.isprintable() else "?" for each in text[:most]) + ("..." if len(text) > most else "")


def refused(rule: str, value: str, fix: str = _FIX) -> InputError:
    """What ``find``, ``persistent`` and a ``make`` raise; the file and the byte are put before it."""
    return InputError(_HERE, rule, Shown(label(value, 160)), fix)


def unpickled(
    data: bytes | memoryview,
    *,
    place: str,
    limits: Limits,
    find: Callable[[str, str], Any],
    persistent: Callable[[Any], Any] | None = None,
    dotted: bool = False,
) -> Any:
    """What a pickle holds: plain containers, numbers and text, and what ``find`` gives for names.

    Parameters
    ----------
    data : bytes or memoryview
        The whole pickle, of protocol 0 to 5; bytes after its end are refused.
    place : str
        Name of the file, for the errors.
    limits : Limits
        ``metadata_bytes`` caps the pickle, ``built_bytes`` what is built, ``depth`` the nesting.
    find : callable
        Called once with each module and name; gives a ``Name``, or raises InputError (see ``refused``).
    persistent : callable, optional
        Gives what a persistent id stands for; without it, such ids are refused.
    dotted : bool
        Whether names may have dots. For a ``find`` that takes every name.

    Returns
    -------
    object
        May refer to itself, or to one thing in many places: walk it with a bound. Nested ``limits.depth`` deep at most, by the
        shortest way from the root.

    Raises
    ------
    InputError
        If it is no pickle, is cut short, names what ``find`` refuses, does what no checkpoint does, or goes beyond a cap.
    """
    if len(data) > limits.metadata_bytes:
        raise InputError(place, f"at most {limits.metadata_bytes:,} byte", Shown(f"{len(data):,} byte"), _RAISE)
    machine = _Machine(data, place, limits, find, persistent, dotted)
    value = machine.run()
    _bounded_depth(value, place, limits.depth)
    return value


def common_name(module: str, name: str) -> Name | None:
    """A ``Name`` that makes the plain thing, for the few names that stand for plain things; None for all others."""
    make = _COMMON.get((module, name))
    return None if make is None else Name(module, name, make)


def key_checked(key: Any, tuples: list[int]) -> None:
    """Refuse a key that would be slow to hash or to compare; ``tuples`` counts those that are tuples."""
    kind = type(key)
    if kind in _HASHED:
        if kind is int and not -_LARGEST_KEY <= key <= _LARGEST_KEY:
            raise refused("free of keys beyond 64 bits", "a larger one")
        return
    if kind is not tuple:
        if kind in (Inert, Name):
            return
        raise refused("free of keys that cannot be hashed", kind.__name__)
    tuples[0] += 1
    if tuples[0] > _MOST_TUPLE_KEYS:
        raise refused(f"of at most {_MOST_TUPLE_KEYS:,} keys that are tuples", "more")
    waiting, seen = list(key[: _MOST_KEY_PARTS + 1]), 0
    while waiting:
        each = waiting.pop()
        seen += 1
        if seen > _MOST_KEY_PARTS or len(waiting) > _MOST_KEY_PARTS:
            raise refused(f"free of keys of more than {_MOST_KEY_PARTS} parts", "more")
        if type(each) is tuple:
            waiting += each[: _MOST_KEY_PARTS + 1]
        else:
            key_checked(each, tuples)


def _bounded_depth(value: Any, place: str, depth: int) -> None:
    seen: set[int] = set()
    level: list[Any] = [value]
    for _ in range(depth + 1):
        below: list[Any] = []
        for each in level:
            if type(each) in _HASHED or id(each) in seen:
                continue
            seen.add(id(each))
            for part in _parts(each):
                below += (one for one in part if type(one) not in _HASHED)
        level = below
        if not level:
            return
    raise InputError(place, f"nested at most {depth} deep", Shown("more"), _RAISE)


def _parts(value: Any) -> Iterable[Iterable[Any]]:
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return (value,)
    if kind is dict:
        return (value.keys(), value.values())
    if kind is Inert:
        return (value.args, value.items, value.pairs, (value.state,))
    return ()


def _plain_set(args: tuple[Any, ...]) -> set[Any]:
    if not args:
        return set()
    (items,) = _kinds(args, (list, tuple))
    for each in items:
        # no tuples here: a set can be made of one list again and again
        key_checked(each, [_MOST_TUPLE_KEYS])
    return set(items)


def _encoded(args: tuple[Any, ...]) -> bytes:
    """Bytes as protocols 0 to 2 write them."""
    text, codec = _kinds(args, str, str)
    if codec not in ("latin1", "latin-1") or (not text.isascii() and max(text) > "\xff"):
        raise refused("bytes written as latin1", "another encoding")
    return text.encode("latin-1")  # type: ignore[no-any-return]


def _ordered(args: tuple[Any, ...]) -> dict[Any, Any]:
    _kinds(args)
    return {}


def _complex(args: tuple[Any, ...]) -> complex:
    return complex(*_kinds(args, float, float))


def _bytes(args: tuple[Any, ...]) -> bytes:
    return bytes(_kinds(args, bytes)[0]) if args else b""


def _kinds(args: tuple[Any, ...], *kinds: Any) -> tuple[Any, ...]:
    """The arguments, which must be of these types."""
    if len(args) != len(kinds) or not all(isinstance(each, kind) for each, kind in zip(args, kinds, strict=True)):
        raise refused("free of calls with odd arguments", f"{len(args)} of other types")
    return args


_COMMON: dict[tuple[str, str], Callable[[tuple[Any, ...]], Any]] = {
    ("collections", "OrderedDict"): _ordered,
    ("_codecs", "encode"): _encoded,
    **{(module, "set"): _plain_set for module in ("builtins", "__builtin__")},
    **{(module, "frozenset"): lambda args: frozenset(_plain_set(args)) for module in ("builtins", "__builtin__")},
    **{(module, "complex"): _complex for module in ("builtins", "__builtin__")},
    **{(module, "bytes"): _bytes for module in ("builtins", "__builtin__")},
    **{(module, "bytearray"): lambda args: bytearray(_bytes(args)) for module in ("builtins", "__builtin__")},
}

_DICT_ITEM = 120
# what an opcode may take in memory, in bytes and rather too much; the length of what it reads is charged besides
_CHARGES = {
    b"K": 16, b"M": 48, b"J": 48, b"\x8a": 64, b"\x8b": 64, b"G": 48, b"I": 64, b"L": 64, b"F": 64,
    b"\x8c": 80, b"X": 80, b"\x8d": 80, b"V": 80, b"C": 64, b"B": 64, b"\x8e": 64, b"\x96": 96,
    b"}": 96, b"]": 88, b"\x8f": 256, b"(": 0, b"\x85": 80, b"\x86": 88, b"\x87": 96, b"t": 80, b"l": 96, b"d": 256,
    b"\x91": 256, b"c": 256, b"\x93": 256, b"R": 200, b"\x81": 200, b"\x92": 400, b"s": _DICT_ITEM + 100,
}  # fmt: skip
_COST = tuple(_CHARGES.get(bytes((code,)), 16) for code in range(256))

_NUMBERS = {size: struct.Struct(form).unpack_from for size, form in ((2, "<H"), (4, "<I"), (8, "<Q"), (-4, "<i"), (-8, ">d"))}
_STOP = ord(".")
_NEVER = {
    b"i": "INST", b"o": "OBJ", b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4", b"P": "PERSID", b"\x97": "NEXT_BUFFER",
    b"\x98": "READONLY_BUFFER", b"S": "STRING", b"T": "BINSTRING", b"U": "SHORT_BINSTRING",
}  # fmt: skip


class _Machine:
    """The stack, the memo, and one small method for each opcode."""

    def __init__(
        self,
        data: bytes | memoryview,
        place: str,
        limits: Limits,
        find: Callable[[str, str], Any],
        persistent: Callable[[Any], Any] | None,
        dotted: bool,
    ) -> None:
        self.data, self.place, self.limits, self.dotted = data, place, limits, dotted
        self.find, self.persistent = find, persistent
        self.at, self.spent = 0, 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: list[Any] = []
        self.names: dict[tuple[str, str], Any] = {}
        self.tuples = [0]
        self.table = self._table()

    def run(self) -> Any:
        data, table, most = self.data, self.table, self.limits.built_bytes
        start = 0
        try:
            while True:
                start = self.at
                code = data[start]
                self.at = start + 1
                self.spent += _COST[code]
                if self.spent > most:
                    self.over()
                if code == _STOP:
                    return self.end()
                table[code]()
        except (IndexError, struct.error):
            # the data, the stack or the memo has not what the opcode wants: each is a list access or an unpack_from in this file
            what = "a whole pickle" if start >= len(data) or self.at >= len(data) else "a pickle whose opcodes fit together"
            raise InputError(f"{self.place}: byte {start}", what, Shown("one that is cut short or damaged"), _FIX) from None
        except InputError as error:
            raise error.at(f"{self.place}: byte {start}") if error.place == _HERE else error from None

    def end(self) -> Any:
        if self.below or len(self.stack) != 1:
            raise refused("one value when it ends", f"{len(self.stack)} and {len(self.below)} marks")
        if self.at != len(self.data):
            raise refused("the end of the file where the pickle ends", f"{len(self.data) - self.at:,} byte more")
        return self.stack[0]

    def over(self) -> NoReturn:
        raise refused(f"of at most {self.limits.built_bytes:,} byte when built", "more", _RAISE)

    def charge(self, amount: int) -> None:
        self.spent += amount
        if self.spent > self.limits.built_bytes:
            self.over()

    # reading

    def number(self, size: int) -> Any:
        (value,) = _NUMBERS[size](self.data, self.at)
        self.at += abs(size)
        return value

    def byte(self) -> int:
        value = self.data[self.at]
        self.at += 1
        return value

    def take(self, length: int, times: int = 1) -> bytes | memoryview:
        """So many bytes; refused before anything is made if they are not there."""
        if length > len(self.data) - self.at:
            raise refused("a pickle that holds what it announces", f"{length:,} byte announced, {len(self.data) - self.at:,} left")
        self.charge(length * times)
        start = self.at
        self.at = start + length
        return self.data[start : self.at]

    def line_of(self, longest: int) -> bytes:
        part = bytes(self.data[self.at : self.at + longest])
        end = part.find(b"\n")
        if end < 0:
            raise refused(f"of lines of at most {longest:,} byte", "a longer one, or no end")
        self.at += end + 1
        return part[:end]

    def line(self) -> str:
        return self.decoded(self.line_of(_LONGEST_LINE))

    def decoded(self, part: bytes | memoryview) -> str:
        try:
            return str(part, "utf-8")
        except UnicodeDecodeError:
            raise refused("text in UTF-8", "other bytes") from None

    # numbers and text

    def text(self, length: int) -> None:
        part = self.take(length)
        value = self.decoded(part)
        self.charge(0 if value.isascii() else 4 * length)
        self.stack.append(value)

    def long(self, length: int) -> None:
        if length > _LONGEST_NUMBER:
            raise refused(f"free of numbers of more than {_LONGEST_NUMBER:,} byte", f"{length:,}")
        self.stack.append(int.from_bytes(self.take(length), "little", signed=True))

    def text_number(self, kind: Callable[[str], Any]) -> None:
        line = self.line().removesuffix("L") if kind is int else self.line()
        if kind is int and line in ("00", "01"):
            self.stack.append(line == "01")
            return
        if len(line) > 1000:
            raise refused("free of numbers of more than 1,000 digits", f"{len(line):,}")
        try:
            self.stack.append(kind(line))
        except ValueError:
            raise refused("a number", "other text") from None

    def old_text(self) -> None:
        line = self.line_of(_LONGEST_TEXT)
        self.charge(4 * len(line))
        try:
            text = line.decode("raw-unicode-escape")
            # half of a surrogate pair is no text, and could not be written anywhere
            text.encode()
        except UnicodeError:
            raise refused("text in raw-unicode-escape", "other text") from None
        self.stack.append(text)

    # containers

    def mark(self) -> None:
        if len(self.below) >= self.limits.depth:
            raise refused(f"nested at most {self.limits.depth} deep", "more", _RAISE)
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self, each: int = 8) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        self.charge(len(items) * each)
        return items

    def gather(self, kind: Callable[[list[Any]], Any]) -> None:
        made = kind(self.since_mark())
        self.stack.append(made)

    def small_tuple(self, count: int) -> None:
        stack = self.stack
        made = tuple(stack[-count + number] for number in range(count)) if len(stack) >= count else stack.pop(count)
        del stack[-count:]
        stack.append(made)

    def new_dict(self) -> None:
        made: dict[Any, Any] = {}
        self.set_items(made, self.since_mark(_DICT_ITEM))
        self.stack.append(made)

    def new_frozenset(self) -> None:
        items = self.since_mark(_DICT_ITEM)
        for each in items:
            key_checked(each, self.tuples)
        self.stack.append(frozenset(items))

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is list:
            target += items
        elif type(target) is Inert:
            target.items = target.items or []
            target.items += items
        else:
            raise refused("free of items put into what is no list", type(target).__name__)

    def set_items(self, target: Any, items: list[Any]) -> None:
        if len(items) % 2:
            raise refused("of keys and values in pairs", f"{len(items)} of them")
        if type(target) is Inert:
            target.pairs = target.pairs or []
            target.pairs += zip(items[::2], items[1::2], strict=True)
            return
        if type(target) is not dict:
            raise refused("free of keys set in what is no dict", type(target).__name__)
        for place in range(0, len(items), 2):
            key_checked(items[place], self.tuples)
            target[items[place]] = items[place + 1]

    def append_one(self) -> None:
        value = self.stack.pop()
        self.extend([value])

    def append_many(self) -> None:
        self.extend(self.since_mark())

    def set_one(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items(self.stack[-1], [key, value])

    def set_many(self) -> None:
        items = self.since_mark(_DICT_ITEM)
        self.set_items(self.stack[-1], items)

    def add_many(self) -> None:
        items = self.since_mark(_DICT_ITEM)
        target = self.stack[-1]
        if type(target) is not set:
            raise refused("free of items added to what is no set", type(target).__name__)
        for each in items:
            key_checked(each, self.tuples)
        target.update(items)

    # memo

    def memoize(self) -> None:
        self.memo.append(self.stack[-1])

    def put(self, index: int) -> None:
        if index == len(self.memo):
            self.memo.append(self.stack[-1])
        elif 0 <= index < len(self.memo):
            self.memo[index] = self.stack[-1]
        else:
            raise refused("of memo entries one after the other", f"number {index:,} after {len(self.memo):,} of them")

    def get(self, index: int) -> None:
        if not 0 <= index < len(self.memo):
            raise refused("free of memo entries that are not there", f"number {index:,} of {len(self.memo):,}")
        self.stack.append(self.memo[index])

    def text_index(self) -> int:
        line = self.line()
        if not (line.isascii() and line.isdigit() and len(line) < 12):
            raise refused("a memo number", "other text")
        return int(line)

    # names and objects

    def named(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise refused("of names that are text", "another type")
        if len(module) + len(name) > 1000 or not name or ("." in name and not self.dotted):
            raise refused("free of dotted or overlong names", f"{module[:60]} {name[:60]}")
        key = module, name
        if key not in self.names:
            self.names[key] = self.find(module, name)
        self.stack.append(self.names[key])

    def stack_named(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.named(module, name)

    def make(self, args: Any) -> None:
        """Replace the class or function on the stack by what is made of it."""
        of = self.stack.pop()
        if type(of) is not Name:
            raise refused("free of calls of what is no known name", type(of).__name__)
        if type(args) is not tuple:
            raise refused("of calls with a tuple of arguments", type(args).__name__)
        made: Any = Inert(of, args) if of.make is None else of.make(args)
        self.charge(0 if of.make is None else getsizeof(made))
        self.stack.append(made)

    def new(self) -> None:
        args = self.stack.pop()
        self.make(args)
        shortcut = self.stack[-1].of.shortcut if type(self.stack[-1]) is Inert else None
        if shortcut is not None:
            found = shortcut(self.data, self.at, self.stack, self.memo)
            if found is not None:
                self.at = found[0]
                self.charge(found[1])

    def new_with_keywords(self) -> None:
        keywords, args = self.stack.pop(), self.stack.pop()
        if type(keywords) is not dict or type(args) is not tuple:
            raise refused("of calls with a tuple and a dict", type(keywords).__name__)
        self.charge(8 * len(args))
        self.make((*args, keywords))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) is Inert:
            target.state = state
        elif type(target) is not dict:
            # an ordered dict may have attributes, which hold nothing of the checkpoint
            raise refused("free of state set on what is no object", type(target).__name__)

    def persistent_id(self) -> None:
        key = self.stack.pop()
        if self.persistent is None:
            raise refused("free of persistent ids", "one")
        made = self.persistent(key)
        self.charge(64)
        self.stack.append(made)

    # the rest

    def protocol(self) -> None:
        version = self.byte()
        if version > 5:
            raise refused("a pickle of protocol 0 to 5", f"{version}")

    def frame(self) -> None:
        length = self.number(8)
        if length > len(self.data) - self.at:
            raise refused("a pickle that holds what it announces", f"a frame of {length:,} byte, {len(self.data) - self.at:,} left")

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.stack = self.below.pop()

    def push(self, value: Any) -> Callable[[], None]:
        return lambda: self.stack.append(value)

    def never(self, code: int) -> Callable[[], None]:
        def refuse() -> NoReturn:
            raise refused("a pickle as checkpoints are written", f"opcode {_NEVER.get(bytes((code,)), hex(code))}")

        return refuse

    def _table(self) -> list[Callable[[], None]]:
        number, byte = self.number, self.byte
        known: dict[bytes, Callable[[], None]] = {
            b"\x80": self.protocol, b"\x95": self.frame, b"0": self.pop, b"1": lambda: (self.since_mark(), None)[1],
            b"2": lambda: self.stack.append(self.stack[-1]),
            b"N": self.push(None), b"\x88": self.push(True), b"\x89": self.push(False), b")": self.push(()),
            b"K": lambda: self.stack.append(byte()), b"M": lambda: self.stack.append(number(2)),
            b"J": lambda: self.stack.append(number(-4)), b"G": lambda: self.stack.append(number(-8)),
            b"\x8a": lambda: self.long(byte()), b"\x8b": lambda: self.long(number(4)),
            b"I": lambda: self.text_number(int), b"L": lambda: self.text_number(int), b"F": lambda: self.text_number(float),
            b"V": self.old_text, b"\x8c": lambda: self.text(byte()), b"X": lambda: self.text(number(4)),
            b"\x8d": lambda: self.text(number(8)),
            b"C": lambda: self.stack.append(bytes(self.take(byte()))), b"B": lambda: self.stack.append(bytes(self.take(number(4)))),
            b"\x8e": lambda: self.stack.append(bytes(self.take(number(8)))),
            b"\x96": lambda: self.stack.append(bytearray(self.take(number(8)))),
            b"}": lambda: self.stack.append({}), b"]": lambda: self.stack.append([]), b"\x8f": lambda: self.stack.append(set()),
            b"(": self.mark, b"t": lambda: self.gather(tuple), b"l": lambda: self.gather(list), b"d": self.new_dict,
            b"\x91": self.new_frozenset,
            b"\x85": lambda: self.small_tuple(1), b"\x86": lambda: self.small_tuple(2), b"\x87": lambda: self.small_tuple(3),
            b"a": self.append_one, b"e": self.append_many, b"s": self.set_one, b"u": self.set_many, b"\x90": self.add_many,
            b"\x94": self.memoize, b"q": lambda: self.put(byte()), b"r": lambda: self.put(number(4)),
            b"p": lambda: self.put(self.text_index()), b"h": lambda: self.get(byte()), b"j": lambda: self.get(number(4)),
            b"g": lambda: self.get(self.text_index()),
            b"c": lambda: self.named(self.line(), self.line()), b"\x93": self.stack_named,
            b"R": lambda: self.make(self.stack.pop()), b"\x81": self.new, b"\x92": self.new_with_keywords, b"b": self.build,
            b"Q": self.persistent_id,
        }  # fmt: skip
        return [known.get(bytes((code,)), self.never(code)) for code in range(256)]
