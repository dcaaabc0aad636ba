"""Every public field has a row in ``glossary.md``; one without is a warning, and so is a row that names nothing."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import attrs
from sphinx.application import Sphinx
from sphinx.util import logging

import mlsysim


def public_fields() -> set[str]:
    """Fields and properties of the public classes, and what their solvers take."""
    names: set[str] = set()
    for name in mlsysim.__all__:
        kind = getattr(mlsysim, name)
        if not (isinstance(kind, type) and attrs.has(kind)):
            continue
        names |= {each.name for each in attrs.fields(kind)}
        names |= {each for each, value in inspect.getmembers(kind) if isinstance(value, property)}
        if hasattr(kind, "solve"):
            names |= set(inspect.signature(kind.solve).parameters) - {"self"}
    return {name for name in names if not name.startswith("_")}


def check(app: Sphinx) -> None:
    """Compare the page with the package."""
    text = (Path(app.srcdir) / "glossary.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE))
    warn = logging.getLogger(__name__).warning
    for name in sorted(public_fields() - rows):
        warn("glossary.md has no row for the public field %s", name)
    for name in sorted(rows - public_fields()):
        warn("glossary.md has a row for %s, which is no public field", name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry point."""
    app.connect("builder-inited", check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
