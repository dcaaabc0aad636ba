"""The fences of the documentation and of the README: Python runs as doctests, scenario files are read."""

import tomllib
from doctest import ELLIPSIS
from typing import Any

from sybil import Example, Sybil
from sybil.evaluators.doctest import NUMBER
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser

import mlsysim

collect_ignore_glob = ["docs/*.py", "docs/_ext/*.py", "docs/_build/**", ".ci/**"]


def read_scenario(example: Example) -> None:
    """Read a TOML fence that is a scenario file, and have it answered; a checkpoint that it names is not here."""
    table = tomllib.loads(example.parsed)
    if "scenario" in table and "layout" not in table:
        _ = getattr(mlsysim, table["scenario"]).from_toml(example.parsed).result


parsers: list[Any] = [
    CodeBlockParser(language="toml", evaluator=read_scenario),
    PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | NUMBER),
]
pages = Sybil(parsers=parsers, path="docs", patterns=["*.md"], excludes=["_build/*", "reference/generated/*"])
readme = Sybil(parsers=parsers, patterns=["README.md"])

pytest_collect_file = (pages + readme).pytest()
