"""Hostile variants of good files: bytes flipped, cut out, doubled, and pieces of one put into another."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

# inputs of a reader's long run
LONG_RUN = 100_000
_WORDS = (
    b"\0", b"\xff", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"-1", b"1e999", b"NaN", b"null", b"true", b"9" * 19, b"9" * 400,
    b"18446744073709551615", b"9223372036854775807", b"\\ud800", b"\xed\xa0\x80", b"../", b"/", b"[" * 200,
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, sample: bytes, others: tuple[bytes, ...] = ()) -> bytes:
    """A sample with one to four changes."""
    data = bytearray(sample)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["flip", "cut", "end", "word", "digit", "double", "splice"]))
        if change == "flip" and at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif change == "cut":
            del data[at : at + draw(st.integers(1, 40))]
        elif change == "end":
            del data[at:]
        elif change == "word":
            word = draw(st.sampled_from(_WORDS))
            data[at : at + draw(st.integers(0, len(word)))] = word
        elif change == "digit" and at < len(data):
            data[at] = draw(st.sampled_from(b"0123456789-."))
        elif change == "double":
            data[at:at] = data[at : at + draw(st.integers(1, 200))]
        elif change == "splice":
            other = draw(st.sampled_from((sample, *others)))
            start = draw(st.integers(0, len(other)))
            data[at:at] = other[start : start + draw(st.integers(1, 200))]
    return bytes(data)


_NUMBERS = st.sampled_from([0, 1, 2, 3, 7, -1, 2**31, 2**62, 2**63 - 1, -(2**63), 10**7, 10**12])
_VALUES = st.one_of(
    _NUMBERS, st.lists(_NUMBERS, max_size=4), st.text(max_size=6), st.none(), st.booleans(), st.just(0.5), st.just(-0.0),
    st.just({}), st.just([]), st.just([0] * 70), st.sampled_from(["float32", "float4_e2m1fn", "zeros", "none", "rank-00000.safetensors"]),
)  # fmt: skip


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """A document with one to four values replaced, taken away or swapped for others of its own."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 4))):
        held, key = None, None
        below = document
        while isinstance(below, (dict, list)) and below:
            if held is not None and draw(st.integers(0, 5)) == 0:
                break
            held, key = below, draw(st.sampled_from(sorted(below))) if isinstance(below, dict) else draw(st.integers(0, len(below) - 1))
            below = held[key]
        if held is None:
            return document
        change = draw(st.sampled_from(["value", "value", "value", "gone", "twice"]))
        if change == "value":
            held[key] = copy.deepcopy(draw(_VALUES))
        elif change == "gone":
            del held[key]
        elif isinstance(held, list):
            held.insert(0, copy.deepcopy(below))
    return document
