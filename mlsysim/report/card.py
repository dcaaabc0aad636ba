"""A card: a headline, rows, checks and notes, as text or HTML. It draws what it is given, and knows no result."""

from __future__ import annotations

from html import escape

from attrs import field, frozen

__all__ = ["Card", "Row", "Verdict"]

_MARKS = {True: "ok", False: "FAILS", None: "not checked"}
_COLOURS = {True: "#1a6e3c", False: "#b3261e", None: "#5f6368"}


@frozen
class Row:
    """One number: what it is, the number, and what to know about it."""

    label: str
    value: str
    note: str = ""


@frozen
class Verdict:
    """One check: its name, whether it holds (None: not checked), the comparison, and the advice."""

    name: str
    holds: bool | None
    comparison: str
    advice: str = ""


@frozen(kw_only=True)
class Card:
    """What a person sees of a result.

    Parameters
    ----------
    title, headline : str
    rows : tuple of Row
    verdicts : tuple of Verdict
    notes : tuple of str

    Examples
    --------
    >>> print(Card(title="One save", headline="feasible", rows=(Row("pause", "0.342 s"),)).text())
    One save: feasible
    <BLANKLINE>
      pause   0.342 s
    """

    title: str
    headline: str
    rows: tuple[Row, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def text(self) -> str:
        """The card for a terminal."""
        lines = [f"{self.title}: {self.headline}"]
        if self.rows:
            lines += ["", *_aligned([(row.label, row.value, row.note) for row in self.rows])]
        if self.verdicts:
            lines += ["", *self._verdict_lines()]
        if self.notes:
            lines += ["", *(f"  {note}" for note in self.notes)]
        return "\n".join(lines)

    def _verdict_lines(self) -> list[str]:
        table = _aligned([(f"[{_MARKS[each.holds]}]", each.name, each.comparison) for each in self.verdicts])
        lines = []
        for line, each in zip(table, self.verdicts, strict=True):
            lines.append(line)
            if each.advice:
                lines.append(f"      -> {each.advice}")
        return lines

    def html(self) -> str:
        """The card for a notebook: one table, no script, readable without its colours."""
        cell = 'style="text-align:left;padding:2px 12px 2px 0;vertical-align:top"'
        rows = "".join(
            f"<tr><td {cell}>{escape(row.label)}</td><td {cell}><b>{escape(row.value)}</b></td><td {cell}>{escape(row.note)}</td></tr>"
            for row in self.rows
        )
        checks = "".join(
            f'<tr><td {cell}><b style="color:{_COLOURS[each.holds]}">{_MARKS[each.holds]}</b></td>'
            f"<td {cell}>{escape(each.name)}: {escape(each.comparison)}</td>"
            f"<td {cell}>{escape(each.advice)}</td></tr>"
            for each in self.verdicts
        )
        notes = "".join(f'<div style="color:#5f6368">{escape(note)}</div>' for note in self.notes)
        return (
            '<div style="border:1px solid #bbb;border-radius:6px;padding:10px 14px;display:inline-block;max-width:60em">'
            f"<div><b>{escape(self.title)}</b>: {escape(self.headline)}</div>"
            f'<table style="border-collapse:collapse;margin:8px 0">{rows}</table>'
            f'<table style="border-collapse:collapse;margin:8px 0">{checks}</table>{notes}</div>'
        )


def _aligned(cells: list[tuple[str, str, str]]) -> list[str]:
    first = max(len(cell[0]) for cell in cells)
    second = max(len(cell[1]) for cell in cells)
    return [f"  {left:<{first}}   {middle:<{second}}   {right}".rstrip() for left, middle, right in cells]
