"""A card: a headline, rows, checks and notes, as text or HTML. It draws what it is given, and knows no result."""

from __future__ import annotations

from attrs import field, frozen

__all__ = ["Card", "Row", "Verdict"]

_MARKS = {True: "ok", False: "FAILS", None: "not checked"}
# dark enough for white letters; the words say it without them
_COLOURS = {True: "#1a6e3c", False: "#b3261e", None: "#5f6368"}
_CELL = 'style="text-align:left;padding:2px 14px 2px 0;vertical-align:top"'
_KEPT = 'style="text-align:left;padding:2px 14px 2px 0;vertical-align:top;white-space:nowrap"'
_TABLE = 'style="border-collapse:collapse;margin:8px 0;color:inherit;font-size:inherit"'


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


@frozen(kw_only=True, repr=False)
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

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()

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
        """The card for a notebook: tables, no script, readable without its colours and on a dark page."""
        rows = "".join(
            f"<tr><td {_KEPT}>{_escaped(row.label)}</td><td {_KEPT}><b>{_escaped(row.value)}</b></td>{_quiet_cell(row.note)}</tr>"
            for row in self.rows
        )
        checks = "".join(
            f"<tr><td {_KEPT}>{_badge(_MARKS[each.holds], each.holds)}</td><td {_KEPT}>{_escaped(each.name)}</td>"
            f"<td {_KEPT}><b>{_escaped(each.comparison)}</b></td>{_quiet_cell(each.advice)}</tr>"
            for each in self.verdicts
        )
        notes = "".join(f'<div style="opacity:0.75">{_escaped(note)}</div>' for note in self.notes)
        tables = "".join(f"<table {_TABLE}>{each}</table>" for each in (rows, checks) if each)
        colour = _COLOURS[self._holds]
        return (
            f'<div style="border:1px solid #8886;border-left:5px solid {colour};border-radius:4px;padding:10px 14px;'
            f'display:inline-block;max-width:60em"><div><b>{_escaped(self.title)}: {_escaped(self.headline)}</b></div>{tables}{notes}</div>'
        )

    @property
    def _holds(self) -> bool | None:
        """The worst of the verdicts; None where there is none to show."""
        if any(each.holds is False for each in self.verdicts):
            return False
        return True if any(each.holds for each in self.verdicts) else None


def _badge(word: str, holds: bool | None) -> str:
    style = f"background:{_COLOURS[holds]};color:#fff;border-radius:3px;padding:1px 6px;white-space:nowrap"
    return f'<span style="{style}">{word}</span>'


def _escaped(words: str) -> str:
    # only notebooks need it, and it takes a millisecond to import
    from html import escape

    return escape(words)


def _quiet_cell(words: str) -> str:
    return f'<td {_CELL}><span style="opacity:0.75">{_escaped(words)}</span></td>'


def _aligned(cells: list[tuple[str, str, str]]) -> list[str]:
    first = max(len(cell[0]) for cell in cells)
    second = max(len(cell[1]) for cell in cells)
    return [f"  {left:<{first}}   {middle:<{second}}   {right}".rstrip() for left, middle, right in cells]
