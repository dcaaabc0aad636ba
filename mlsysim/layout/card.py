"""The card of a layout: what is there, who wrote it, what repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlsysim.errors import InputError
from mlsysim.fields import INFORMATION, give
from mlsysim.report.card import Card, Row
from mlsysim.report.jsonable import jsonable
from mlsysim.report.wording import readable

if TYPE_CHECKING:
    from mlsysim.layout.findings import Report
    from mlsysim.layout.layout import CheckpointLayout

__all__ = ["card_of", "layout_fields"]

_ASKED = (
    "logical_bytes", "payload_bytes", "stored_bytes", "held_bytes", "metadata_bytes", "bytes_per_rank", "stored_bytes_per_rank",
    "bytes_per_file", "replication", "imbalance", "manifest_digest",
)  # fmt: skip


def card_of(layout: CheckpointLayout, *, binary: bool = False, ranks_per_node: int | None = None) -> Card:
    """Rows of a layout, in binary units where asked; with ``ranks_per_node``, by node as well."""
    rows = [
        _tensors(layout),
        Row("files", f"{len(layout.files):,}", "ranks not recorded" if layout.ranks is None else _counted(layout.ranks, "rank")),
        *_payload(layout, binary),
        _stored(layout, binary),
    ]
    if layout.metadata_files:
        rows.append(Row("metadata", readable(layout.metadata_bytes, binary=binary), _counted(len(layout.metadata_files), "file")))
    rows += _per_rank(layout, binary)
    if ranks_per_node is not None:
        rows.append(_per_node(layout, binary, ranks_per_node))
    rows.append(_replicas(layout))
    return Card(title="Checkpoint layout", headline=layout.format, rows=tuple(rows), notes=layout.notes)


def _tensors(layout: CheckpointLayout) -> Row:
    if layout.untold:
        return Row("tensors", "not known", layout.untold)
    return Row("tensors", f"{len(layout.tensors):,}", _counted(len(layout.fragments), "fragment"))


def _payload(layout: CheckpointLayout, binary: bool) -> list[Row]:
    if layout.untold:
        return []
    return [
        Row("each tensor once", readable(layout.logical_bytes, binary=binary)),
        Row("payload", readable(layout.payload_bytes, binary=binary), f"{layout.replication:.4g} times each tensor once"),
    ]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _stored(layout: CheckpointLayout, binary: bool) -> Row:
    try:
        stored = layout.stored_bytes
        payload = stored if layout.untold else layout.payload_bytes
    except InputError as error:
        return Row("stored", "not known", f"{error.value}")
    if layout.untold or not float(payload.base):
        return Row("stored", readable(stored, binary=binary))
    share = float(stored.base) / float(payload.base)
    difference = f"{abs(share - 1) * 100:.3g} % {'more' if share >= 1 else 'less'} than payload"
    return Row("stored", readable(stored, binary=binary), f"{share:.3g} times the payload" if share >= 2 else difference)


def _per_rank(layout: CheckpointLayout, binary: bool) -> list[Row]:
    try:
        per_rank = layout.bytes_per_rank
    except InputError as error:
        return [Row("payload per rank", "not known", error.fix)]
    mean = readable(give(float(per_rank.base.mean()), INFORMATION), binary=binary)
    return [
        Row("payload per rank", readable(per_rank, binary=binary), f"mean {mean}, most on rank {int(per_rank.base.argmax())}"),
        Row("imbalance", f"{layout.imbalance:.4g}", "largest rank over the mean"),
    ]


def _per_node(layout: CheckpointLayout, binary: bool, ranks_per_node: int) -> Row:
    try:
        per_node = layout.bytes_per_node(ranks_per_node)
    except InputError as error:
        return Row("stored per node", "not known", f"{error.value}" if error.place == "stored_bytes" else error.fix)
    note = f"{_counted(len(per_node.base), 'node')}, most on node {int(per_node.base.argmax())}"
    return Row("stored per node", readable(per_node, binary=binary), note)


def _replicas(layout: CheckpointLayout) -> Row:
    if layout.untold:
        return Row("replicas", "not known", layout.untold)
    try:
        held = float(layout.held_bytes.base)
    except InputError:
        return Row("replicas", "not known", "one copy is kept; how many ranks held it is not recorded")
    once = float(layout.logical_bytes.base)
    return Row("replicas", "recorded", f"all ranks together held {held / once if once else 1.0:.4g} times each tensor once")


def layout_fields(layout: CheckpointLayout, ranks_per_node: int | None = None, report: Report | None = None) -> dict[str, Any]:
    """A layout as JSON takes it; what the format does not tell is null, and ``unknown`` says why."""
    fields: dict[str, Any] = {"format": layout.format, "ranks": layout.ranks, "files": list(layout.files)}
    unknown: dict[str, str] = {}
    for name in _ASKED:
        try:
            fields[name] = jsonable(getattr(layout, name))
        except InputError as error:
            fields[name], unknown[name] = None, str(error)
    if ranks_per_node is not None:
        try:
            fields["bytes_per_node"] = jsonable(layout.bytes_per_node(ranks_per_node))
        except InputError as error:
            fields["bytes_per_node"], unknown["bytes_per_node"] = None, str(error)
    fields |= {"replicas_recorded": layout.replicas_recorded, "unknown": unknown, "notes": list(layout.notes)}
    fields["tensors"] = [jsonable(each) for each in layout.tensors]
    fields["objects"] = list(layout.objects)
    if report is not None:
        fields |= {"ok": report.ok, "findings": [jsonable(each) for each in report.findings]}
    return fields
