"""``[Wang2023]`` in a docstring becomes a link to ``references.md``; a key that the page lacks is a warning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

# an author and a year, or a name with at least two capitals; a dimension such as [information] is neither
KEY = re.compile(r"(?<![\w`\]])\[([A-Z][A-Za-z]+\d{4}[a-z]?|[A-Z]{2,}[A-Za-z0-9]*)\](?![_\[(])")


def known_keys(folder: Path) -> set[str]:
    """The keys that the page of references defines."""
    return set(re.findall(r"^\(ref-.*\)=\n## (\S+)$", (folder / "references.md").read_text(encoding="utf-8"), re.MULTILINE))


def link(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:  # noqa: ARG001
    """Turn the keys of one docstring into links."""
    known = known_keys(Path(app.srcdir))

    def linked(found: re.Match[str]) -> str:
        key = found[1]
        if key not in known:
            logging.getLogger(__name__).warning("%s cites [%s], which references.md does not have", name, key)
            return found[0]
        return f":ref:`[{key}] <ref-{key.lower()}>`"

    lines[:] = [KEY.sub(linked, line) for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry point; after numpydoc, which rewrites the sections."""
    app.connect("autodoc-process-docstring", link, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
