"""What the document of a fixture case, and the headers of its payload files, show to be wrong."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mlsysim.layout.findings import Finding
from mlsysim.layout.fixture import FixturePayload, Stored
from mlsysim.layout.fixture_case import SCHEMA_VERSION, Case, CaseFragment
from mlsysim.layout.layout import CheckpointLayout

__all__ = ["KNOWN_PADDING", "about", "copies", "deviants", "document_findings", "tied_pairs"]

KNOWN_PADDING = ("none", "zeros")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PREFIX = "sha256:"


def document_findings(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[Finding]:
    """All findings that need no payload."""
    case, name = payload.case, payload.name
    if case.schema_version != SCHEMA_VERSION:
        yield Finding(kind="unknown schema version", file=name, message=f"version {case.schema_version}; {SCHEMA_VERSION} can be checked")
    if case.expected is not None and case.expected.removeprefix(_PREFIX) != case.manifest.removeprefix(_PREFIX):
        message = f"the fragments give {case.manifest}, the case says {case.expected[:80]}"
        yield Finding(kind="manifest digest differs", file=name, message=message)
    yield from _topology(case, name)
    for row in range(len(case.fragments)):
        yield from _alone(payload, layout, row)
    yield from _groups(payload, layout)
    yield from _overlaps(payload, layout)
    yield from _replicas_disagree(payload, layout)
    yield from _ties(payload, layout)
    yield from _files(payload, layout)
    yield from _oracles(payload, layout)


def about(layout: CheckpointLayout, fragment: CaseFragment, row: int, kind: str, message: str) -> Finding:
    """A finding about one fragment."""
    rank = fragment.rank
    tensor = layout.tensors[int(layout.fragments.tensor[row])].name
    return Finding(kind=kind, message=message, tensor=tensor, rank=rank if rank >= 0 else None, file=fragment.payload_file)


def _topology(case: Case, name: str) -> Iterator[Finding]:
    """Ranks inside the world, coordinates inside the axes, each rank in one place and each place of one rank."""
    axes = {axis: size for axis, size in case.source.items() if axis != "world_size" and type(size) is int}
    stated, product = case.source.get("world_size", case.world_size), 1
    for size in axes.values():
        product *= size
    if stated != case.world_size or (axes and product != case.world_size):
        message = f"the source topology {case.source} does not make a world of {case.world_size:,}"
        severity = "error" if stated != case.world_size else "warning"
        yield Finding(kind="topology differs", severity=severity, file=name, message=message)
    seen: dict[int, dict[str, int]] = {}
    ranks: dict[tuple[int, ...], int] = {}
    told: set[tuple[int, str]] = set()
    for each in case.fragments:
        for message in _misplaced(each, case, axes, seen, ranks):
            if (each.rank, message) not in told:
                told.add((each.rank, message))
                rank = each.rank if each.rank >= 0 else None
                yield Finding(kind="topology differs", tensor=each.logical_tensor_id, rank=rank, file=each.payload_file, message=message)


def _misplaced(
    each: CaseFragment, case: Case, axes: dict[str, int], seen: dict[int, dict[str, int]], ranks: dict[tuple[int, ...], int]
) -> Iterator[str]:
    rank = each.rank
    if rank >= case.world_size:
        yield f"rank {rank:,} in a world of {case.world_size:,}"
    own = {axis: at for axis, at in each.coordinates.items() if axis != "rank"}
    for axis, at in own.items():
        if axis in axes and at >= axes[axis]:
            yield f"place {at:,} on axis {axis} of {axes[axis]:,}"
    if rank >= 0:
        first = seen.setdefault(rank, own)
        if any(first.get(axis, at) != at for axis, at in own.items()):
            yield f"rank {rank:,} is at {own}, elsewhere at {first}"
        elif axes and set(axes) <= set(own):
            holder = ranks.setdefault(tuple(own[axis] for axis in axes), rank)
            if holder != rank:
                yield f"rank {rank:,} is at {own}, where rank {holder:,} is"
    wrong = [axis for axis in each.partition_axes if isinstance(axis, int) and not 0 <= axis < len(each.global_shape)]
    if wrong:
        yield f"parted along axes {wrong}, but the tensor has {len(each.global_shape)}"


def _alone(payload: FixturePayload, layout: CheckpointLayout, row: int) -> Iterator[Finding]:
    """What is wrong with one fragment: against its tensor, within itself, and against its payload file."""
    fragment = payload.case.fragments[row]
    tensor = layout.tensors[int(layout.fragments.tensor[row])]

    def found(kind: str, message: str) -> Finding:
        return about(layout, fragment, row, kind, message)

    if fragment.dtype != tensor.dtype:
        yield found("dtype differs", f"this fragment says {fragment.dtype}, the others {tensor.dtype}")
    if fragment.global_shape != tensor.global_shape:
        yield found("shape differs", f"this fragment says shape {list(fragment.global_shape)}, the others {list(tensor.global_shape)}")
    yield from _padding(fragment, found)
    if not _DIGEST.fullmatch(fragment.digest):
        yield found("digest differs", f"{fragment.digest[:80]!r} is no sha256 digest")
    stored = payload.stored[fragment.payload_file]
    if stored.header is None:
        return
    place = stored.places.get(fragment.payload_key)
    if place is None:
        yield found("missing tensor", f"no tensor {fragment.payload_key!r} in the file")
        return
    dtype, shape = stored.header.dtypes[place], stored.header.shapes[place]
    size = int(stored.header.end[place] - stored.header.begin[place])
    if dtype != fragment.dtype:
        yield found("dtype differs", f"{dtype} in the file's header, {fragment.dtype} in the case")
    if shape != fragment.local_shape:
        yield found("shape differs", f"shape {list(shape)} in the file's header, {list(fragment.local_shape)} in the case")
    if size != fragment.stored:
        yield found("byte count differs", f"{size:,} byte in the file, {fragment.stored:,} by shape and element type")


def _padding(fragment: CaseFragment, found: Any) -> Iterator[Finding]:
    padding = fragment.padding
    if padding.semantic not in KNOWN_PADDING:
        yield found("unknown padding", f"semantic {padding.semantic[:80]!r}; known: {', '.join(KNOWN_PADDING)}")
    elif padding.semantic == "none" and padding.some:
        yield found("padding differs", f"none is claimed, but {list(padding.before)} before and {list(padding.after)} after")
    due = [a + b + c for a, b, c in zip(padding.before, fragment.element_extent, padding.after, strict=True)]
    if due != list(fragment.local_shape):
        yield found("padding differs", f"extent and padding give shape {due}, local_shape is {list(fragment.local_shape)}")


def copies(case: Case) -> dict[Any, list[int]]:
    """Rows by tensor, replica group and box; those without a replica group are left out."""
    found: dict[Any, list[int]] = defaultdict(list)
    for row, each in enumerate(case.fragments):
        if each.replica is not None:
            found[each.identity, each.replica.group_id, each.box].append(row)
    return found


def _groups(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[Finding]:
    """Each replica group has each of its members once, and all agree on their number."""
    fragments = payload.case.fragments
    for rows in copies(payload.case).values():
        members = [each for row in rows if (each := fragments[row].replica) is not None]
        # most are believed; of as many, the larger
        counts = Counter(each.member_count for each in members)
        due = max(counts, key=lambda count: (counts[count], count))
        places = Counter(each.member_index for each in members)
        ranks = ", ".join(str(fragments[row].rank) for row in rows[:8])
        for row, each in zip(rows, members, strict=True):
            if each.member_count != due:
                message = f"group {each.group_id!r} has {each.member_count:,} members here, {due:,} elsewhere"
                yield about(layout, fragments[row], row, "missing replica", message)
            if each.member_index >= due:
                message = f"member {each.member_index:,} of a group {each.group_id!r} of {due:,}"
                yield about(layout, fragments[row], row, "missing replica", message)
        twice = [place for place, count in places.items() if count > 1]
        # counted, not listed: a stranger may claim any number of members
        missing = due - sum(place < due for place in places)
        if missing or twice:
            first = next((place for place in range(len(places) + 1) if place not in places), 0)
            message = f"group {members[0].group_id!r} lacks {missing:,} of {due:,} members, the first {first}; found on ranks {ranks}"
            if not missing:
                message = f"group {members[0].group_id!r} has member {twice[0]:,} more than once, on ranks {ranks}"
            yield _lost(payload, layout, rows, first if missing else twice[0], message)


def _lost(payload: FixturePayload, layout: CheckpointLayout, rows: list[int], member: int, message: str) -> Finding:
    """A missing member, with the rank that should hold it where the others tell: ranks that go up evenly."""
    held = sorted((each.replica.member_index, each.rank) for row in rows if (each := payload.case.fragments[row]).replica is not None)
    (low, first), (high, last) = held[0], held[-1]
    step = (last - first) // (high - low) if high > low else 0
    regular = first >= 0 and all(rank == first + (index - low) * step for index, rank in held)
    rank: int | None = first + (member - low) * step
    if rank is None or not regular or len(held) < 2 or not 0 <= rank < payload.case.world_size:
        rank = None
    tensor = layout.tensors[int(layout.fragments.tensor[rows[0]])].name
    return Finding(kind="missing replica", message=message, tensor=tensor, rank=rank)


def _overlaps(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[Finding]:
    """Equal parts on different ranks that are not members of one group; those on one rank the common checks tell."""
    fragments = payload.case.fragments
    by_box: dict[Any, list[int]] = defaultdict(list)
    for row, each in enumerate(fragments):
        by_box[each.identity, each.box].append(row)
    for rows in by_box.values():
        groups: list[Any] = []
        for row in rows:
            replica = fragments[row].replica
            groups.append(("alone", row) if replica is None else ("group", replica.group_id))
        kinds = Counter(groups)
        if len(kinds) < 2 or 0 in fragments[rows[0]].element_extent or len({fragments[row].rank for row in rows}) < len(rows):
            continue
        most = kinds.most_common(1)[0][0]
        for row, group in zip(rows, groups, strict=True):
            if group != most:
                ranks = ", ".join(str(fragments[other].rank) for other in rows[:8] if other != row)
                yield about(layout, fragments[row], row, "overlap", f"the same part is on ranks {ranks}, and they are no replicas of it")


def deviants(rows: Sequence[int], contents: Sequence[Any], trusted: Iterable[Any] = ()) -> list[int]:
    """Rows whose content is not that of most; of as many, a trusted content is believed, then the first."""
    known = Counter(each for each in contents if each is not None)
    if len(known) < 2:
        return []
    sure = set(trusted)
    best = max(known, key=lambda each: (known[each], each in sure))
    return [row for row, each in zip(rows, contents, strict=True) if each is not None and each != best]


def alike(fragments: Sequence[CaseFragment], rows: Sequence[int]) -> bool:
    """Whether rows are stored alike, so that equal contents have equal bytes."""
    return len({(fragments[row].dtype, fragments[row].padding) for row in rows}) <= 1


def _replicas_disagree(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[Finding]:
    fragments = payload.case.fragments
    for rows in copies(payload.case).values():
        if alike(fragments, rows):
            for row in deviants(rows, [fragments[row].digest for row in rows]):
                ranks = ", ".join(str(fragments[other].rank) for other in rows[:8] if other != row)
                yield about(layout, fragments[row], row, "replicas disagree", f"another digest is recorded than for ranks {ranks}")


def tied_pairs(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[tuple[str, int, int]]:
    """Tie groups: each tensor with the first of its group."""
    groups: dict[str, dict[int, None]] = defaultdict(dict)
    for row, each in enumerate(payload.case.fragments):
        if each.tie_group_id is not None:
            groups[each.tie_group_id][int(layout.fragments.tensor[row])] = None
    for group, members in groups.items():
        first, *others = members
        for other in others:
            yield group, first, other


def _ties(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[Finding]:
    fragments = payload.case.fragments
    for group, first, other in tied_pairs(payload, layout):
        one, two = layout.tensors[first], layout.tensors[other]
        if (one.dtype, one.global_shape) != (two.dtype, two.global_shape):
            message = f"tied to {one.name} by {group!r}: {two.dtype} {list(two.global_shape)}, not {one.dtype} {list(one.global_shape)}"
            yield Finding(kind="tie differs", tensor=two.name, message=message)
            continue
        held = {(fragments[row].box, fragments[row].padding): fragments[row].digest for row in layout.rows_of(first).tolist()}
        for row in layout.rows_of(other).tolist():
            if held.get((fragments[row].box, fragments[row].padding), fragments[row].digest) != fragments[row].digest:
                message = f"tied to {one.name} by {group!r}, but another digest is recorded"
                yield about(layout, fragments[row], row, "tie differs", message)
    yield from _half_tied(payload, layout)
    yield from _shared(payload, layout)


def _half_tied(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[Finding]:
    """All fragments of a tensor name one tie group."""
    fragments = payload.case.fragments
    for place in range(len(layout.tensors)):
        rows = layout.rows_of(place).tolist()
        # a fragment without a tie is something to compare too
        for row in deviants(rows, [(fragments[row].tie_group_id,) for row in rows]):
            yield about(layout, fragments[row], row, "tie differs", f"tie group {fragments[row].tie_group_id!r}, unlike most of its tensor")


def _shared(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[Finding]:
    """Fragments that are one storage on one rank hold one content."""
    fragments = payload.case.fragments
    groups: dict[Any, list[int]] = defaultdict(list)
    for row, each in enumerate(fragments):
        if each.shared_storage_id is not None:
            groups[each.shared_storage_id, each.rank, each.dtype, each.local_shape].append(row)
    for (storage, *_), rows in groups.items():
        for row in deviants(rows, [fragments[row].digest for row in rows]):
            yield about(layout, fragments[row], row, "tie differs", f"shares storage {storage!r} with others of another digest")


def _files(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[Finding]:
    """Files that cannot be understood, and what in them belongs to no fragment."""
    claimed: dict[str, set[str]] = defaultdict(set)
    for each in payload.case.fragments:
        claimed[each.payload_file].add(each.payload_key)
    for place, name in enumerate(layout.files):
        rank = int(layout.data_files.rank[place])
        yield from _file(name, payload.stored[name], claimed[name], rank if rank >= 0 else None)
    if payload.oracle is not None and payload.case.oracle_file is not None:
        name = payload.case.oracle_file
        if payload.oracle.size < 0:
            yield Finding(kind="file missing", file=name, message="the file of the oracles is not there")
        elif payload.oracle.header is not None and payload.oracle.size < payload.oracle.header.claimed:
            yield Finding(kind="file short", file=name, message=f"{payload.oracle.size:,} byte of {payload.oracle.header.claimed:,}")
        yield from _file(name, payload.oracle, {each.payload_key for each in payload.case.oracles} | claimed[name], None)
    yield from _strays(payload, layout)


def _file(name: str, stored: Stored, claimed: set[str], rank: int | None) -> Iterator[Finding]:
    if stored.error is not None:
        short = stored.size < 8 or "inside the file" in stored.error.rule
        yield Finding(kind="file short" if short else "unreadable payload", file=name, rank=rank, message=str(stored.error))
    if stored.header is None:
        return
    if stored.size > stored.header.claimed:
        message = f"{stored.size - stored.header.claimed:,} byte after the last tensor"
        yield Finding(kind="unclaimed bytes", file=name, rank=rank, message=message)
    for key in stored.header.names:
        if key not in claimed:
            size = (stored.span(key) or (0, 0))[1]
            message = f"tensor {key!r} of {size:,} byte belongs to no fragment"
            yield Finding(kind="unclaimed bytes", file=name, rank=rank, message=message, tensor=key)


def _strays(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[Finding]:
    """Files beside the case that it does not name: a warning, for they may belong to another."""
    known = {*layout.files, payload.case.oracle_file}
    if layout.root is None:
        return
    try:
        names = sorted(each.name for each in layout.root.glob("*.safetensors"))
    except OSError:
        return
    for name in names:
        if name not in known:
            yield Finding(kind="unclaimed bytes", severity="warning", file=name, message="the case does not name this file")


def _oracles(payload: FixturePayload, layout: CheckpointLayout) -> Iterator[Finding]:
    """Oracles against the tensors and against their own file."""
    by_name = {each.name: each for each in layout.tensors}
    for oracle in payload.case.oracles:
        name = oracle.logical_tensor_id
        tensor = by_name.get(name)
        if tensor is None:
            yield Finding(kind="missing tensor", tensor=name, file=payload.name, message="there is an oracle, but no fragment of it")
        elif (tensor.dtype, tensor.global_shape) != (oracle.dtype, oracle.shape):
            message = f"the oracle is {oracle.dtype} {list(oracle.shape)}, the tensor {tensor.dtype} {list(tensor.global_shape)}"
            yield Finding(kind="oracle differs", tensor=name, file=payload.name, message=message)
        if not _DIGEST.fullmatch(oracle.digest):
            yield Finding(kind="oracle differs", tensor=name, file=payload.name, message=f"{oracle.digest[:80]!r} is no sha256 digest")
        stored = payload.oracle
        if stored is None or stored.header is None:
            continue
        place = stored.places.get(oracle.payload_key)
        if place is None:
            message = f"no oracle {oracle.payload_key!r} in the file"
            yield Finding(kind="missing tensor", tensor=name, file=payload.case.oracle_file, message=message)
        elif (stored.header.dtypes[place], stored.header.shapes[place]) != (oracle.dtype, oracle.shape):
            held = f"{stored.header.dtypes[place]} {list(stored.header.shapes[place])}"
            message = f"the oracle's file holds {held}, the case says {oracle.dtype} {list(oracle.shape)}"
            yield Finding(kind="oracle differs", tensor=name, file=payload.case.oracle_file, message=message)
