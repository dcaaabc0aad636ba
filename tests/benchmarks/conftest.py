"""The table of ratios that a benchmark run ends with."""

from collections.abc import Callable
from typing import Any

import pytest

_KEY = "ratio"


@pytest.fixture
def report_ratio(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Put one ratio into the closing table: what was compared, ours, the bare one, the aim."""

    def report(what: str, *, ours: float, bare: float, unit: str, aim: float) -> None:
        record_property(_KEY, (what, f"{ours:.4g} {unit}", f"{bare:.4g} {unit}", f"{ours / bare:.2f}", f"{aim:g}"))

    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    rows = [
        value
        for report in terminalreporter.getreports("passed")
        if report.when == "call"
        for key, value in report.user_properties
        if key == _KEY
    ]
    if rows:
        table = [("what", "ours", "bare", "ratio", "aim"), *rows]
        widths = [max(len(row[column]) for row in table) for column in range(5)]
        terminalreporter.section("ratios, each to the bare one in the same run")
        for row in table:
            terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
