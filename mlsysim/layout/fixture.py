"""The fixture case: a document that states every fragment, and payload files in safetensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.findings import Finding
from mlsysim.layout.fixture_case import SCHEMA_ID, Case, read_case
from mlsysim.layout.layout import UNKNOWN, CheckpointLayout, Column, Files, Fragments, Payload, TensorInfo
from mlsysim.layout.limits import Limits, file_size, inside, read_capped
from mlsysim.layout.reading import Reader
from mlsysim.layout.safetensors_header import Header, elements, mapped, read_header

__all__ = ["READER", "FixturePayload", "Stored"]

_NAME = "case.json"


@frozen(eq=False)
class Stored:
    """What a payload file says of itself, or why it says nothing.

    Parameters
    ----------
    path : Path
    size : int
        -1 where the file is not there.
    header : Header or None
    places : dict of str to int
        Place of each tensor in the header.
    error : InputError or None
    """

    path: Path
    size: int
    header: Header | None
    places: dict[str, int]
    error: InputError | None

    def span(self, key: str) -> tuple[int, int] | None:
        """Where a tensor begins in the file, and its bytes; None where the header has no such tensor."""
        place = self.places.get(key)
        if self.header is None or place is None:
            return None
        begin = int(self.header.begin[place])
        return begin, int(self.header.end[place]) - begin

    def holds(self, key: str) -> bool:
        """Whether the bytes of a tensor are all there."""
        span = self.span(key)
        return span is not None and sum(span) <= self.size

    @classmethod
    def at(cls, root: Path, name: str, limits: Limits) -> Stored:
        """What lies under a name in a case's folder; a name that leads out of it is refused."""
        path = inside(root, name, name)
        size = file_size(path)
        if size is None:
            return cls(path, UNKNOWN, None, {}, None)
        try:
            header = read_header(path, name, limits, exact=False)
        except InputError as error:
            return cls(path, size, None, {}, error)
        return cls(path, size, header, {key: place for place, key in enumerate(header.names)}, None)


class FixturePayload(Payload):
    """Fetches and checks the fragments of a case."""

    __slots__ = ("case", "name", "oracle", "root", "stored")

    def __init__(self, case: Case, root: Path, name: str, stored: dict[str, Stored], oracle: Stored | None) -> None:
        self.case, self.root, self.name, self.stored, self.oracle = case, root, name, stored, oracle

    def read(self, row: int) -> Column:
        """The elements of a fragment, padding left out."""
        fragment = self.case.fragments[row]
        stored = self.stored[fragment.payload_file]
        place = f"{fragment.payload_file}: {fragment.payload_key}"
        span = stored.span(fragment.payload_key)
        if stored.header is None or span is None:
            what = "a tensor of a file that is there" if stored.size < 0 else "a tensor in the file"
            raise stored.error or InputError(place, what, Shown("nothing"), "Run verify() to see what is missing.")
        at = stored.places[fragment.payload_key]
        dtype, shape = stored.header.dtypes[at], stored.header.shapes[at]
        before, extent, after = fragment.padding.before, fragment.element_extent, fragment.padding.after
        if dtype != fragment.dtype or shape != tuple(a + b + c for a, b, c in zip(before, extent, after, strict=True)):
            raise InputError(place, f"{fragment.dtype} {list(fragment.local_shape)}, as the case says", Shown(f"{dtype} {list(shape)}"),
                             "Run verify() to see what differs.")  # fmt: skip
        path = inside(self.root, fragment.payload_file, fragment.payload_file)
        whole = elements(mapped(path, fragment.payload_file, *span), dtype, shape, place)
        own: tuple[Any, ...] = (..., *(slice(start, start + reach) for start, reach in zip(before, extent, strict=True)))
        inner: Column = whole[own]
        return inner

    def findings(self, layout: CheckpointLayout) -> Iterator[Finding]:
        """What the document and the headers of the payload files show."""
        from mlsysim.layout.fixture_findings import document_findings

        return document_findings(self, layout)

    def payload_findings(self, layout: CheckpointLayout, advance: Any = None) -> Iterator[Finding]:
        """What the bytes show: digests, replicas, ties, padding, oracles."""
        from mlsysim.layout.fixture_payload import payload_findings

        return payload_findings(self, layout, advance)


def _document(path: Path) -> Path:
    return path / _NAME if path.is_dir() else path


def _matches(path: Path) -> bool:
    return (path / _NAME).is_file() if path.is_dir() else path.name.endswith(_NAME)


def _read(path: Path, limits: Limits) -> CheckpointLayout:
    path = _document(path)
    data = read_capped(path, limits.json_bytes, path.name)
    case = read_case(data, path.name, limits)
    root = path.parent
    names = sorted({each.payload_file for each in case.fragments})
    if len(names) > limits.files:
        raise InputError(f"{path.name}: fragments", f"in at most {limits.files:,} files", Shown(f"{len(names):,}"), "Raise the cap.")
    stored = {name: Stored.at(root, name, limits) for name in names}
    oracle = None if case.oracle_file is None else Stored.at(root, case.oracle_file, limits)
    tensors, place_of = _tensors(case)
    rank_of = _file_ranks(case)
    files = Files.from_rows([(name, rank_of[name], stored[name].size) for name in names])
    return CheckpointLayout(
        format=SCHEMA_ID, tensors=tensors, fragments=_fragments(case, place_of, names, stored), data_files=files, ranks=case.world_size,
        replicas_recorded=True, root=root, metadata_files={path.name: len(data)}, manifest=case.manifest,
        payload=FixturePayload(case, root, path.name, stored, oracle), details={"case": case},
    )  # fmt: skip


def _tensors(case: Case) -> tuple[tuple[TensorInfo, ...], dict[Any, int]]:
    """The tensors, and the place of each identity among them.

    Where fragments disagree on element type or shape, most are believed. Where one logical tensor comes in several components,
    names or roles, the most common keeps its plain name.
    """
    said: dict[Any, Counter[tuple[str, tuple[int, ...]]]] = {}
    for each in case.fragments:
        said.setdefault(each.identity, Counter())[each.dtype, each.global_shape] += 1
    plain: dict[str, Any] = {}
    for identity, counts in said.items():
        best = plain.get(identity[0])
        if best is None or counts.total() > said[best].total():
            plain[identity[0]] = identity
    tensors = []
    for identity, counts in said.items():
        logical, component, fqn, role, axes = identity
        name = logical if plain[logical] == identity else f"{logical} ({component}: {fqn}, {role}, {axes} axes)"
        dtype, shape = counts.most_common(1)[0][0]
        tensors.append(TensorInfo(name=name, dtype=dtype, global_shape=shape))
    return tuple(tensors), {identity: place for place, identity in enumerate(said)}


def _file_ranks(case: Case) -> dict[str, int]:
    """The one rank of each file; unknown where several wrote it."""
    found: dict[str, set[int]] = {}
    for each in case.fragments:
        found.setdefault(each.payload_file, set()).add(each.rank)
    return {name: ranks.pop() if len(ranks) == 1 else UNKNOWN for name, ranks in found.items()}


def _fragments(case: Case, place_of: dict[Any, int], names: list[str], stored: dict[str, Stored]) -> Fragments:
    file_of = {name: place for place, name in enumerate(names)}
    rows = []
    for each in case.fragments:
        span = stored[each.payload_file].span(each.payload_key)
        start = span[0] if span is not None and span[1] == each.stored else UNKNOWN
        rows.append((place_of[each.identity], each.rank, file_of[each.payload_file], each.element_offset, each.element_extent,
                     each.stored, each.stored, start))  # fmt: skip
    return Fragments.from_rows(rows)


READER = Reader(format=SCHEMA_ID, looks_for=f"{_NAME}, with safetensors files beside it", matches=_matches, read=_read)
