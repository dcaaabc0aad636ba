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
    from mlsysim.units import Quantity

__all__ = ["card_of", "layout_fields"]

_ASKED = (
    "logical_bytes", "payload_bytes", "stored_bytes", "metadata_bytes", "bytes_per_rank", "stored_bytes_per_rank", "bytes_per_file",
    "replication", "imbalance", "manifest_digest",
)  # fmt: skip


def card_of(layout: CheckpointLayout, *, binary: bool = False, per_node: Quantity | None = None) -> Card:
    """Rows of a layout, in binary units where asked."""

    def shown(value: object) -> str:
        return readable(value, binary=binary)  # type: ignore[arg-type]

    ranks = "ranks not recorded" if layout.ranks is None else f"{layout.ranks:,} ranks"
    rows = [
        Row("tensors", f"{len(layout.tensors):,}", f"{len(layout.fragments):,} fragments"),
        Row("files", f"{len(layout.files):,}", ranks),
        Row("each tensor once", shown(layout.logical_bytes)),
        Row("payload", shown(layout.payload_bytes), f"{layout.replication:.4g} times each tensor once"),
        _stored(layout, binary),
    ]
    try:
        per_rank = layout.bytes_per_rank.base
        least, mean, most = (give(float(each), INFORMATION) for each in (per_rank.min(), per_rank.mean(), per_rank.max()))
        largest = int(per_rank.argmax())
        rows.append(Row("payload per rank", f"{shown(least)} to {shown(most)}", f"mean {shown(mean)}, most on rank {largest}"))
        rows.append(Row("imbalance", f"{layout.imbalance:.4g}", "largest rank over the mean"))
    except InputError as error:
        rows.append(Row("payload per rank", "not known", error.fix))
    if per_node is not None:
        note = f"{len(per_node.base):,} nodes, most on node {int(per_node.base.argmax())}"
        rows.append(Row("stored per node", shown(per_node), note))
    replicas = "recorded" if layout.replicas_recorded else "not known"
    told = "the format tells every copy" if layout.replicas_recorded else "one copy is kept; how many ranks held it is not recorded"
    rows.append(Row("replicas", replicas, told))
    return Card(title="Checkpoint layout", headline=layout.format, rows=tuple(rows), notes=layout.notes)


def _stored(layout: CheckpointLayout, binary: bool) -> Row:
    try:
        stored, payload = layout.stored_bytes, layout.payload_bytes
    except InputError as error:
        return Row("stored", "not known", f"{error.value}")
    share = float(stored.base) / float(payload.base) - 1 if float(payload.base) else 0.0
    more = "more" if share >= 0 else "less"
    return Row("stored", readable(stored, binary=binary), f"{abs(share) * 100:.3g} % {more} than payload")


def layout_fields(layout: CheckpointLayout, per_node: Quantity | None = None, report: Report | None = None) -> dict[str, Any]:
    """A layout as JSON takes it; what the format does not tell is null, and ``unknown`` says why."""
    fields: dict[str, Any] = {"format": layout.format, "ranks": layout.ranks, "files": list(layout.files)}
    unknown: dict[str, str] = {}
    for name in _ASKED:
        try:
            fields[name] = jsonable(getattr(layout, name))
        except InputError as error:
            fields[name], unknown[name] = None, str(error)
    if per_node is not None:
        fields["bytes_per_node"] = jsonable(per_node)
    fields |= {"replicas_recorded": layout.replicas_recorded, "unknown": unknown, "notes": list(layout.notes)}
    fields["tensors"] = [jsonable(each) for each in layout.tensors]
    fields["objects"] = list(layout.objects)
    if report is not None:
        fields |= {"ok": report.ok, "findings": [jsonable(each) for each in report.findings]}
    return fields
