"""Cards for a terminal and for a notebook."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from mlsysim import Q_, Scenarios, TieredCheckpointModel
from mlsysim.report.card import Card, Row, Verdict


def test_terminal_shows_the_numbers_a_person_reads() -> None:
    """The GPT-3 card says 2.45 TB, 0.342 s, 2.45 s and that the plan is feasible."""
    text = str(Scenarios.Gpt3TieredCheckpoint2K.result)
    for part in ("Tiered checkpoint: FEASIBLE", "2.45 TB", "9.57 GB", "0.342 s", "2.45 s", "3.91 GB/s", "10 min", "[ok]", "[not checked]"):
        assert part in text, part


def test_terminal_shows_what_fails_and_the_advice() -> None:
    """The MT-NLG card says that the drain fails, and what would mend it."""
    text = str(Scenarios.MtNlgTieredCheckpoint20Gb.result)
    for part in (
        "NOT FEASIBLE",
        "[FAILS]",
        "42.4 min",
        "raise durable_bandwidth to 3.54 GB/s, or save every 42.4 min",
        "1.03 GB/s",
        "saves queue without end",
    ):
        assert part in text, part


@pytest.mark.parametrize("name", list(Scenarios))
def test_lines_fit(name: str) -> None:
    """No line is longer than a terminal is wide, give or take."""
    assert 110 > max(map(len, str(Scenarios.__getattr__(name).result).splitlines()))


@pytest.mark.parametrize("name", list(Scenarios))
def test_html_is_well_formed(name: str) -> None:
    """The card of a notebook is well-formed, holds the headline, and brings no script."""
    html = getattr(Scenarios, name)._repr_html_()
    root = ET.fromstring(html)
    assert (True, []) == ("FEASIBLE" in "".join(root.itertext()), list(root.iter("script")))


def test_html_shows_what_the_terminal_shows() -> None:
    """Every number and every advice of the text is in the HTML too."""
    result = Scenarios.MtNlgTieredCheckpoint20Gb.result
    words = "".join(ET.fromstring(result._repr_html_()).itertext())
    for row in result.card().rows:
        assert row.value in words, row
    for check in result.checks:
        assert check.advice in words, check


def test_html_is_escaped() -> None:
    """Names with markup in them stay names."""
    evil = "<script>alert(1)</script>&"
    html = Card(title=evil, headline=evil, rows=(Row(evil, evil, evil),), verdicts=(Verdict(evil, True, evil, evil),), notes=(evil,)).html()
    assert (0, 9) == (html.count("<script"), html.count("&lt;script&gt;alert(1)&lt;/script&gt;&amp;"))


def test_binary_card() -> None:
    """In binary units the checkpoint is 2.23 TiB."""
    text = Scenarios.Gpt3TieredCheckpoint2K.result.card(binary=True).text()
    assert ("2.23 TiB" in text, "2.45 TB" in text) == (True, False)


def test_card_of_arrays(plan: dict[str, Any]) -> None:
    """A card of several situations shows ranges, and how many are feasible."""
    result = TieredCheckpointModel().solve(**(plan | {"durable_bandwidth": Q_([1, 1000], "GB/s")}))
    text = str(result)
    for part in ("feasible in 1 of 2 situations", "2.45 s to 40.8 min", "solve one of them alone for advice"):
        assert part in text, part


def test_bare_card() -> None:
    """A card without rows is its headline."""
    assert "One save: fine" == Card(title="One save", headline="fine").text()
