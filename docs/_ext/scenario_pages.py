"""A reference page for each scenario class, written from the class at build time.

Every name in ``mlsysim.engine.scenario_types.__all__`` but the abstract ``Scenario`` gets a page: the sections come from
the docstring, the attributes from the attrs fields and their annotations. A new class needs no edit here.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from numpydoc.docscrape import NumpyDocString
from reference_keys import KEY
from sphinx.application import Sphinx

from mlsysim.engine import scenario_types

# what a docstring calls them, and what the page does
NOTES = {"Equation": "Equation", "Assumes": "Assumptions", "Ignores": "Excludes"}
PUBLIC = "mlsysim.engine.scenario_types"


def scenario_classes() -> list[type]:
    """The concrete scenarios, by name."""
    return [getattr(scenario_types, name) for name in sorted(scenario_types.__all__) if name != "Scenario"]


def page(kind: type) -> str:
    """The reference page of one class, in MyST."""
    text = NumpyDocString(inspect.getdoc(kind) or "")
    parts = [*_top(kind, text), *_notes(text), *_section(text, "References"), *_examples(text), *_attributes(kind, text)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _top(kind: type, text: Any) -> Iterator[str]:
    family = kind.__module__.rpartition(".")[2].replace("_", " ").capitalize()
    yield f"({kind.__name__.lower()})=\n# {kind.__name__}"
    yield f"{family} scenarios · Implementation: `{kind.__module__.replace('.', '/')}.py`."
    yield f"```{{py:class}} {PUBLIC}.{kind.__name__}({_signature(kind)})\n```"
    yield (
        "Every field is given by keyword; one without a default must be given. "
        "A quantity is text with its unit, or a `Quantity`; its dimension stands in brackets after its type."
    )
    yield _myst(text["Summary"])
    yield _myst(text["Extended Summary"])


def _signature(kind: type) -> str:
    return ", ".join(["*", *(each.name if each.default is attrs.NOTHING else f"{each.name}=..." for each in attrs.fields(kind))])


def _notes(text: Any) -> Iterator[str]:
    """The notes as a list: what begins a line of the docstring with a known word becomes an item."""
    lines = [line.strip() for line in text["Notes"] if line.strip()]
    if not lines:
        return
    yield "## Notes"
    items = re.split(rf"(?:^|\n)({'|'.join(NOTES)}): ", "\n".join(lines))
    yield _myst(items[0].split("\n"))
    for heading, words in zip(items[1::2], items[2::2], strict=True):
        yield f"**{NOTES[heading]}:** {_myst(words.split(chr(10)))}"


def _section(text: Any, heading: str) -> Iterator[str]:
    if any(line.strip() for line in text[heading]):
        yield f"## {heading}"
        yield _myst(text[heading])


def _examples(text: Any) -> Iterator[str]:
    """Doctests as Python fences, and what stands between them as prose."""
    if not text["Examples"]:
        return
    yield "## Examples"
    for paragraph in re.split(r"\n\s*\n", "\n".join(text["Examples"]).strip()):
        yield f"```python\n{paragraph}\n```" if paragraph.lstrip().startswith(">>>") else _myst(paragraph.split("\n"))


def _attributes(kind: type, text: Any) -> Iterator[str]:
    told = {name: (each.type, _myst(each.desc)) for each in text["Parameters"] for name in each.name.split(", ")}
    properties = {name: value for name, value in vars(kind).items() if isinstance(value, property) and not name.startswith("_")}
    yield "## Attributes"
    yield _table(kind, told, properties)
    annotations = typing.get_type_hints(kind)
    for each in attrs.fields(kind):
        dimension = re.search(r"\[.*?\]", told.get(each.name, ("", ""))[0])
        yield f"({kind.__name__.lower()}.{each.name})=\n### {each.name}"
        yield told.get(each.name, ("", ""))[1]
        yield f"Type: {_type(annotations[each.name])}{f' `{dimension[0]}`' if dimension else ''}."
        yield f"Declared default: {_default(each.default)}."
    for name, value in properties.items():
        yield f"({kind.__name__.lower()}.{name})=\n### {name}"
        yield f"`{PUBLIC.removeprefix('mlsysim.')}.{kind.__name__}.{name}`"
        yield _summary(value)
        yield f"Type: {_type(typing.get_type_hints(value.fget)['return'])}. Computed each time it is asked for; not a field."


def _table(kind: type, told: dict[str, tuple[str, str]], properties: dict[str, Any]) -> str:
    rows = {each.name: told.get(each.name, ("", ""))[1] for each in attrs.fields(kind)}
    rows |= {name: _summary(value) for name, value in properties.items()}
    lines = ["| Name | Description |", "|---|---|"]
    return "\n".join(
        [*lines, *(f"| [{name}](#{kind.__name__.lower()}.{name}) | {' '.join(rows[name].split())} |" for name in sorted(rows))]
    )


def _summary(value: property) -> str:
    return _myst(NumpyDocString(inspect.getdoc(value) or "")["Summary"])


def _type(annotation: Any) -> str:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return " or ".join(map(_type, typing.get_args(annotation)))
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and annotation.__module__.startswith("mlsysim"):
        return f"{{py:class}}`~mlsysim.{annotation.__name__}`"
    return f"`{getattr(annotation, '__name__', str(annotation).replace('typing.', ''))}`"


def _default(default: Any) -> str:
    if default is attrs.NOTHING:
        return "required"
    return f"made by `{default.factory.__name__}`" if isinstance(default, attrs.Factory) else f"`{default}`"  # type: ignore[arg-type]


def _myst(lines: list[str]) -> str:
    """Docstring lines as MyST: double backticks mean the same in both, keys of references become links."""
    text = "\n".join(line.rstrip() for line in lines).strip()
    return KEY.sub(lambda found: rf"[\[{found[1]}\]](#ref-{found[1].lower()})", text)


def write_pages(app: Sphinx) -> None:
    """Write what changed, and remove the page of a class that is gone."""
    folder = Path(app.srcdir) / "reference" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{kind.__name__}.md": page(kind) for kind in scenario_classes()}
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx's entry point."""
    app.connect("builder-inited", write_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
