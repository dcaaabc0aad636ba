"""What a check of a checkpoint finds, and whom to ask about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from attrs import frozen

__all__ = ["KINDS", "Finding", "Report"]

# every kind of finding, and what it says
KINDS = {
    "digest differs": "the bytes do not have the digest that was recorded for them",
    "replicas disagree": "copies of one fragment hold different bytes",
    "hole": "a part of a tensor is in no fragment",
    "overlap": "fragments cover the same elements and are no replicas",
    "out of bounds": "a fragment reaches beyond its tensor",
    "shape differs": "the payload's own header gives another shape",
    "dtype differs": "the payload's own header gives another element type",
    "byte count differs": "the bytes stored are not shape times element size",
    "padding differs": "the padding does not hold what it claims",
    "unknown padding": "the padding's meaning is not known",
    "missing replica": "a member of a replica group is not there",
    "missing rank": "a rank of the world wrote nothing",
    "topology differs": "ranks or coordinates do not fit the world or each other",
    "tie differs": "tensors tied together hold different contents",
    "file missing": "a payload file is not there",
    "file short": "a payload file ends before its last fragment",
    "unclaimed bytes": "a payload file holds bytes that no fragment claims",
    "missing tensor": "a fragment's tensor is not in its payload file",
    "unknown schema version": "the document's version is not one that can be checked",
    "manifest digest differs": "the list of fragments does not have the digest that was published",
    "oracle differs": "the whole tensor does not equal the oracle",
    "unreadable payload": "a payload could not be read",
    "replicas possible": "the format keeps one copy: whether ranks held different tensors under one name cannot be seen",
}
_SEVERITIES = ("error", "warning", "note")


@frozen(kw_only=True)
class Finding:
    """One thing that is wrong, or worth knowing.

    Parameters
    ----------
    kind : str
        One of ``KINDS``.
    message : str
        One sentence with the numbers.
    severity : str
        ``"error"`` (the checkpoint is not what it says), ``"warning"``, ``"note"``.
    tensor, file : str, optional
    rank : int, optional
        Which node to look at.
    """

    kind: str
    message: str
    severity: str = "error"
    tensor: str | None = None
    rank: int | None = None
    file: str | None = None

    def __str__(self) -> str:
        where = [f"rank {self.rank}" if self.rank is not None else "", self.tensor or "", self.file or ""]
        named = ", ".join(each for each in where if each)
        return f"{self.severity}: {self.kind}{f' ({named})' if named else ''}: {self.message}"


@frozen(kw_only=True, repr=False)
class Report:
    """What ``verify`` found.

    Parameters
    ----------
    findings : tuple of Finding
    payload : bool
        Whether the payload was read.
    checked : str
        What was checked, in a line.
    """

    findings: tuple[Finding, ...]
    payload: bool
    checked: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; warnings and notes do not count."""
        return not any(each.severity == "error" for each in self.findings)

    def of_kind(self, kind: str) -> tuple[Finding, ...]:
        """The findings of one kind."""
        return tuple(each for each in self.findings if each.kind == kind)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        read = "payload of the tensors read" if self.payload else "payload not read"
        head = f"{'ok' if self.ok else 'NOT OK'}: {self.checked or 'layout'}, {read}"
        return "\n".join([head, *(f"  {each}" for each in self.findings)])


def sorted_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then by file, tensor and rank."""

    def key(each: Finding) -> Any:
        return (_SEVERITIES.index(each.severity), each.file or "", each.tensor or "", -1 if each.rank is None else each.rank, each.kind)

    return tuple(sorted(findings, key=key))
