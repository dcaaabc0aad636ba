"""Pickles of strangers: plain things come out, nothing of the file runs, and memory is bounded."""

from __future__ import annotations

import collections
import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.layout.dcp_metadata import read_document
from mlsysim.layout.limits import Limits
from mlsysim.layout.pickles import Inert, Name, common_name, refused, unpickled

DATA = Path(__file__).parents[1] / "data"
HOSTILE = DATA / "hostile"
EXPECTED = json.loads((HOSTILE / "expected.json").read_text())


def every_name(module: str, name: str) -> Name:
    return common_name(module, name) or Name(module, name)


def no_name(module: str, name: str) -> Name:
    raise refused("free of names", f"{module} {name}")


def load(data: bytes, **limits: int) -> Any:
    return unpickled(data, place="a.pt", limits=Limits(**limits), find=every_name)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**1000), 2**1000) | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.text(min_size=300),
    lambda below: st.lists(below) | st.tuples(below, below) | st.dictionaries(st.text() | st.integers(-(2**62), 2**62), below)
    | st.tuples(below) | st.tuples() | st.sets(st.integers(-9, 9)) | st.frozensets(st.text()),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(value=PLAIN, protocol=st.integers(0, 5))
def test_plain_things_come_out_as_they_went_in(value: Any, protocol: int) -> None:
    """Containers, numbers and text of every protocol are read as pickle itself reads them."""
    assert value == load(pickle.dumps(value, protocol))


@pytest.mark.parametrize("protocol", range(6))
def test_plain_things_by_name(protocol: int) -> None:
    """An ordered dict, bytes, a bytearray, sets and complex numbers need names, which stand for the plain things."""
    value = [collections.OrderedDict(a=1), b"\x00\xff", bytearray(b"abc"), {1, 2}, frozenset({3}), 3 + 4j]
    assert value == load(pickle.dumps(value, protocol))


def test_shared_and_circular_things_stay_so() -> None:
    """One list in two places is one list, and a list in itself is in itself."""
    shared: list[Any] = []
    shared.append(shared)
    first, second = load(pickle.dumps([shared, shared]))
    assert first is second is first[0]


class Harm:
    """Would write a file if it were made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_a_call_is_recorded_and_not_made(tmp_path: Path) -> None:
    """What a pickle would call is an inert object that knows the name and the arguments."""
    path = tmp_path / "harm"
    found = load(pickle.dumps(Harm(path)))
    assert (Inert, "mkdir", (str(path),)) == (type(found), found.of.name, found.args)
    assert not path.exists()


def test_state_items_and_pairs_are_recorded() -> None:
    """A list or dict by kind keeps what was put into it, and any object its state."""
    data = b"\x80\x04\x8c\x01m\x8c\x01C\x93)\x81(K\x01K\x02e(\x8c\x01aK\x03u}\x8c\x01bK\x04sb."
    found = load(data)
    assert ([1, 2], [("a", 3)], {"b": 4}) == (found.items, found.pairs, found.state)


def test_a_name_that_find_refuses_is_refused_with_its_place() -> None:
    """The error says the file and the byte."""
    with pytest.raises(InputError, match=r"a\.pt: byte \d+ must be free of names; got posix mkdir"):
        unpickled(pickle.dumps(Harm(Path("x"))), place="a.pt", limits=Limits(), find=no_name)


BOMBS = {
    "a memo index of four thousand million": b"\x80\x04Nr\xf0\xff\xff\xff.",
    "a byte string of 1 TiB": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"ab.",
    "a text of 2 GiB": b"\x80\x04X" + struct.pack("<I", 2**31) + b"ab.",
    "a bytearray of 2^63 byte": b"\x80\x05\x96" + struct.pack("<Q", 2**63) + b"ab.",
    "a frame of 2^63 byte": b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"N.",
    "a number of 16 MB": b"\x80\x04\x8b" + struct.pack("<I", 2**24) + b"\x01" * 2**24 + b".",
    "a number of 5000 digits": b"I" + b"9" * 5000 + b"\n.",
    "an unknown memo entry": b"\x80\x04h\x07.",
    "a memo entry below none": b"\x80\x04Nq\x01.",
    "a stack that is empty": b"\x80\x04\x85.",
    "a stack that is empty, of two": b"\x80\x04N\x86.",
    "a stack that is empty, of a dict": b"\x80\x04NNs.",
    "a mark that is not there": b"\x80\x04Nt.",
    "marks without end": b"\x80\x04" + b"(" * 200 + b"t" * 200 + b".",
    "lists in lists": b"\x80\x04" + b"]" * 500 + b"a" * 499 + b".",
    "tuples in tuples": b"\x80\x04)" + b"\x85" * 500 + b".",
    "state on state": b"\x80\x04" + b"\x8c\x01m\x8c\x01C\x93)\x81" * 500 + b"b" * 499 + b".",
    "an odd number of keys and values": b"\x80\x04}(NNNu.",
    "an item put into a number": b"\x80\x04K\x01Na.",
    "a key that is a list": b"\x80\x04}]Ns.",
    "a key of many parts": b"\x80\x04)\x94" + b"".join(b"0h%ch%c\x86\x94" % (n, n) for n in range(30)) + b"0}h\x1eNs.",
    "a number beyond 64 bits as a key": b"\x80\x04}\x8a\x0a" + b"\x7f" * 10 + b"Ns.",
    "a call of a number": b"\x80\x04K\x01)R.",
    "a call with a number": b"\x80\x04\x8c\x01m\x8c\x01C\x93K\x01R.",
    "a call with keywords that are no dict": b"\x80\x04\x8c\x01m\x8c\x01C\x93)N\x92.",
    "state on a class": b"\x80\x04\x8c\x01m\x8c\x01C\x93}b.",
    "state on a list": b"\x80\x04]}b.",
    "a dotted name": b"\x80\x04\x8c\x01m\x8c\x03C.D\x93.",
    "a name that is a number": b"\x80\x04\x8c\x01mK\x01\x93.",
    "a persistent id": b"\x80\x04NQ.",
    "a persistent id as text": b"Pabc\n.",
    "INST": b"(imod\nname\n.",
    "OBJ": b"(cmod\nname\no.",
    "EXT1": b"\x80\x02\x82\x01.",
    "EXT4": b"\x80\x02\x84\x01\x00\x00\x00.",
    "a buffer from outside": b"\x80\x05\x97.",
    "a buffer to be read only": b"\x80\x05N\x98.",
    "an unknown opcode": b"\x80\x04\xff.",
    "protocol 6": b"\x80\x06N.",
    "text that is no UTF-8": b"\x80\x04\x8c\x01\xff.",
    "half a surrogate pair": b"\x80\x04\x8c\x03\xed\xa0\x80.",
    "bytes after the end": b"\x80\x04N.N",
    "nothing on the stack": b"\x80\x04.",
    "two things on the stack": b"\x80\x04NN.",
    "a mark left": b"\x80\x04N(N.",
    "no end": b"\x80\x04N",
    "nothing": b"",
    "a line without end": b"\x80\x02cabc",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused(bomb: str) -> None:
    """What no checkpoint does is refused with the file named."""
    with pytest.raises(InputError, match=r"^a\.pt"):
        load(BOMBS[bomb])


def test_no_file_is_read_over_its_cap() -> None:
    """A pickle larger than the cap is refused by its size alone."""
    with pytest.raises(InputError, match="at most 10 byte; got 12 byte"):
        load(pickle.dumps("a" * 10, 2)[:12], metadata_bytes=10)


@pytest.mark.parametrize(
    "opcode", [b"}", b"]", b"\x8f", b"\x8c\x01m\x8c\x01C\x93)\x81", b"K\x01\x85", b"G12345678", b"\x8c\x02ab", b"h\x00"]
)
def test_what_is_built_is_capped(opcode: bytes) -> None:
    """However small the pieces, what they take together is refused over the cap."""
    data = b"\x80\x04N\x94" + opcode * (2**20 // len(opcode)) + b"."
    with pytest.raises(InputError, match="at most 65,536 byte when built"):
        load(data, built_bytes=2**16)


def test_a_thing_made_again_and_again_is_capped() -> None:
    """Bytes made of one text a thousand times count a thousand times."""
    text = b"X" + struct.pack("<I", 2**16) + b"a" * 2**16
    data = b"\x80\x02c_codecs\nencode\nq\x00" + text + b"q\x01X\x06\x00\x00\x00latin1q\x02" + b"h\x00h\x01h\x02\x86R0" * 1000 + b"N."
    with pytest.raises(InputError, match="when built"):
        load(data, built_bytes=2**24)


def test_tuples_that_collide_as_keys_are_few() -> None:
    """Tuples of -1 and -2 all hash alike; a hundred thousand of them are refused after a thousand."""
    numbers = [b"J\xff\xff\xff\xff", b"J\xfe\xff\xff\xff"]
    keys = [b"(" + b"".join(numbers[number >> bit & 1] for bit in range(17)) + b"tN" for number in range(2**17)]
    with pytest.raises(InputError, match="at most 1,024 keys that are tuples"):
        load(b"\x80\x04}(" + b"".join(keys) + b"u.")


def test_a_dense_web_of_tuples_is_walked_once() -> None:
    """A hundred tuples, each twice in the next, are 2^100 paths: reading and bounding them takes no time."""
    web = b"\x80\x04)\x94" + b"".join(b"0h%ch%c\x86\x94" % (number, number) for number in range(90)) + b"."
    assert 2 == len(load(web, depth=100))
    with pytest.raises(InputError, match="nested at most 20 deep"):
        load(web, depth=20)


@pytest.mark.parametrize("case", EXPECTED)
def test_hostile_metadata_is_refused(case: str) -> None:
    """Case C46: each of the ten files is refused, and nothing of it is run."""
    data = (HOSTILE / case / ".metadata").read_bytes()
    with pytest.raises(InputError, match=r"^\.metadata: byte \d+"):
        read_document(data, place=".metadata", limits=Limits())


@pytest.mark.parametrize("case", EXPECTED)
def test_hostile_metadata_is_inert_where_every_name_is_taken(case: str) -> None:
    """With a stand-in for every name, each is refused or gives stand-ins."""
    try:
        found = load((HOSTILE / case / ".metadata").read_bytes())
    except InputError:
        return
    assert type(found) in (Inert, Name)


_CHILD = """
import resource, sys
from mlsysim.errors import InputError
from mlsysim.layout.limits import Limits
from mlsysim.layout.pickles import Name, unpickled
from mlsysim.layout.dcp_metadata import read_document
before = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (before + 2**27, before + 2**27))
opcode, times, cap = bytes.fromhex(sys.argv[1]), int(sys.argv[2]), 2**25
data = b"\\x80\\x04N\\x94" + opcode * times + b"."
for read in (lambda: unpickled(data, place="a", limits=Limits(built_bytes=cap), find=Name),
             lambda: read_document(data, place="a", limits=Limits(built_bytes=cap))):
    try:
        read()
        print("read")
    except InputError as error:
        print("refused")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="address-space limits are Linux's")
@pytest.mark.parametrize("opcode", [b"}", b"]", b"\x8f", b"(", b"N", b"h\x00", b"\x94N", b"K\x01\x85", b"\x8c\x03abc", b"(NNt", b"2"])
def test_memory_is_bounded(opcode: bytes) -> None:
    """Four million bytes of any opcode are refused in 128 MiB of address space, where 32 MiB may be built."""
    command = [sys.executable, "-c", _CHILD, opcode.hex(), str(2**22 // len(opcode))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ("refused\nrefused\n", "") == (done.stdout, done.stderr)
