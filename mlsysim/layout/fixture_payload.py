"""What the bytes of a fixture case show: digests, replicas, ties, padding, and whole tensors against their oracles."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from mlsysim.errors import InputError
from mlsysim.layout.findings import Finding
from mlsysim.layout.fixture import FixturePayload
from mlsysim.layout.fixture_findings import about, alike, copies, deviants, tied_pairs
from mlsysim.layout.hashing import Piece, digests
from mlsysim.layout.layout import CheckpointLayout
from mlsysim.layout.safetensors_header import elements, mapped, packed
from mlsysim.specs.dtypes import bits_of

__all__ = ["payload_findings"]

_PREFIX = "sha256:"


def payload_findings(payload: FixturePayload, layout: CheckpointLayout, advance: Any = None) -> Iterator[Finding]:
    """All findings that need the payload."""
    contents = _contents(payload, advance)
    fragments = payload.case.fragments
    for row, (fragment, content) in enumerate(zip(fragments, contents, strict=True)):
        if isinstance(content, InputError):
            yield about(layout, fragment, row, "unreadable payload", str(content))
        elif content is not None and _PREFIX + content != fragment.digest:
            yield about(layout, fragment, row, "digest differs", f"the bytes give {_PREFIX}{content}, recorded is {fragment.digest[:80]}")
        if fragment.padding.semantic == "zeros" and fragment.padding.some and content is not None:
            yield from _padding(payload, layout, row)
    known = [content if isinstance(content, str) else None for content in contents]
    yield from _replicas(payload, layout, known)
    whole = _Whole(payload, layout, known)
    yield from _ties(payload, layout, known, whole)
    yield from _oracles(payload, layout, whole)


def _contents(payload: FixturePayload, advance: Any) -> list[str | InputError | None]:
    """Digest of each fragment's bytes; None where they are not there, which other findings tell."""
    found: list[str | InputError | None] = [None] * len(payload.case.fragments)
    rows, pieces = [], []
    for row, fragment in enumerate(payload.case.fragments):
        stored = payload.stored[fragment.payload_file]
        span = stored.span(fragment.payload_key)
        if span is not None and stored.holds(fragment.payload_key):
            rows.append(row)
            pieces.append(Piece(stored.path, fragment.payload_file, *span))
    for row, content in zip(rows, digests(pieces, advance=advance), strict=True):
        found[row] = content
    return found


def _padding(payload: FixturePayload, layout: CheckpointLayout, row: int) -> Iterator[Finding]:
    """Whether the elements around a fragment's own are zero, bit by bit."""
    fragment = payload.case.fragments[row]
    stored = payload.stored[fragment.payload_file]
    place = stored.places[fragment.payload_key]
    span = stored.span(fragment.payload_key)
    if stored.header is None or span is None or stored.header.shapes[place] != fragment.local_shape:
        return
    where = f"{fragment.payload_file}: {fragment.payload_key}"
    try:
        raw = mapped(stored.path, where, *span)
        dtype = stored.header.dtypes[place]
        single = raw.reshape((*fragment.local_shape, -1)) if bits_of(dtype) >= 8 else elements(raw, dtype, fragment.local_shape, where)
    except InputError as error:
        yield about(layout, fragment, row, "unreadable payload", str(error))
        return
    single, wrong = single.view(np.uint8), 0
    for axis, (before, extent) in enumerate(zip(fragment.padding.before, fragment.element_extent, strict=True)):
        # each slab once: of the axes before this one only the fragment's own span
        own = tuple(slice(a, a + b) for a, b in zip(fragment.padding.before[:axis], fragment.element_extent[:axis], strict=True))
        for part in (slice(0, before), slice(before + extent, None)):
            wrong += int(np.count_nonzero(single[(*own, part)]))
    if wrong:
        yield about(layout, fragment, row, "padding differs", f"zeros are claimed, but {wrong:,} byte of the padding are not zero")


def _replicas(payload: FixturePayload, layout: CheckpointLayout, known: list[str | None]) -> Iterator[Finding]:
    fragments = payload.case.fragments
    for rows in copies(payload.case).values():
        same = alike(fragments, rows)
        contents = [known[row] if same else _own(payload, row, known) for row in rows]
        recorded = [fragments[row].digest for row in rows]
        told = set(deviants(rows, recorded)) if same else set()
        for row in deviants(rows, contents, [each.removeprefix(_PREFIX) for each in recorded]):
            if row not in told:
                ranks = ", ".join(str(fragments[other].rank) for other in rows[:8] if other != row)
                yield about(layout, fragments[row], row, "replicas disagree", f"other bytes than on ranks {ranks}")


def _own(payload: FixturePayload, row: int, known: list[str | None]) -> str | None:
    """Digest of a fragment's own elements, padding left out."""
    if known[row] is None:
        return None
    try:
        own = payload.read(row)
    except InputError:
        return None  # the headers' findings say why
    return hashlib.sha256(packed(own, payload.case.fragments[row].dtype).data).hexdigest()


class _Whole:
    """Digests of whole tensors, each computed once."""

    def __init__(self, payload: FixturePayload, layout: CheckpointLayout, known: list[str | None]) -> None:
        self._payload, self._layout, self._known = payload, layout, known
        self._found: dict[int, str | InputError] = {}

    def digest(self, place: int) -> str | InputError:
        """Digest of the tensor at a place, or why it cannot be put together."""
        if place not in self._found:
            self._found[place] = self._computed(place)
        return self._found[place]

    def _computed(self, place: int) -> str | InputError:
        tensor = self._layout.tensors[place]
        row = int(self._layout.rows_of(place)[0])
        fragment, known = self._payload.case.fragments[row], self._known[row]
        if known is not None and fragment.local_shape == fragment.element_extent == tensor.global_shape:
            return known
        try:
            raw = packed(self._layout.reassemble(tensor.name), tensor.dtype)
        except InputError as error:
            return error
        return hashlib.sha256(raw.data).hexdigest()


def _ties(payload: FixturePayload, layout: CheckpointLayout, known: list[str | None], whole: _Whole) -> Iterator[Finding]:
    fragments = payload.case.fragments
    for group, first, other in tied_pairs(payload, layout):
        one, two = layout.tensors[first], layout.tensors[other]
        if (one.dtype, one.global_shape) != (two.dtype, two.global_shape):
            continue
        held = {(fragments[row].box, fragments[row].padding): row for row in layout.rows_of(first).tolist()}
        rows = layout.rows_of(other).tolist()
        pairs = [(held.get((fragments[row].box, fragments[row].padding)), row) for row in rows]
        if all(match is not None for match, _ in pairs):
            for match, row in pairs:
                contents = (known[row], known[match] if match is not None else None)
                recorded = match is not None and fragments[match].digest != fragments[row].digest
                if None not in contents and contents[0] != contents[1] and not recorded:
                    yield about(layout, fragments[row], row, "tie differs", f"tied to {one.name} by {group!r}, but of other bytes")
            continue
        digest = whole.digest(first), whole.digest(other)
        if isinstance(digest[0], str) and isinstance(digest[1], str) and digest[0] != digest[1]:
            yield Finding(kind="tie differs", tensor=two.name, message=f"tied to {one.name} by {group!r}, but of other contents")


def _oracles(payload: FixturePayload, layout: CheckpointLayout, whole: _Whole) -> Iterator[Finding]:
    """The oracles' own bytes, then each tensor against its oracle."""
    oracles, stored = payload.case.oracles, payload.oracle
    spans = [stored.span(each.payload_key) if stored is not None and stored.holds(each.payload_key) else None for each in oracles]
    name = payload.case.oracle_file or ""
    pieces = [Piece(stored.path, name, *span) for span in spans if span is not None and stored is not None]
    contents = iter(digests(pieces))
    places = {each.name: place for place, each in enumerate(layout.tensors)}
    for oracle, span in zip(oracles, spans, strict=True):
        content = next(contents) if span is not None else None
        tensor = oracle.logical_tensor_id
        if isinstance(content, InputError):
            yield Finding(kind="unreadable payload", tensor=tensor, file=name, message=str(content))
        elif content is not None and _PREFIX + content != oracle.digest:
            message = f"the oracle's own bytes give {_PREFIX}{content}, recorded is {oracle.digest[:80]}"
            yield Finding(kind="oracle differs", tensor=tensor, file=name, message=message)
        if tensor not in places:
            continue
        held = whole.digest(places[tensor])
        if isinstance(held, InputError):
            message = f"could not be compared with its oracle: {held}"
            yield Finding(kind="unreadable payload", severity="warning", tensor=tensor, message=message)
        elif _PREFIX + held != oracle.digest:
            message = f"the whole tensor has digest {_PREFIX}{held}, its oracle {oracle.digest[:80]}"
            yield Finding(kind="oracle differs", tensor=tensor, message=message)
