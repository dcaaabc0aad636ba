"""Numbers with their sources: a catalog reads a TOML file of entries and builds one when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, Generic, TypeVar

from attrs import field, frozen

from mlsysim.errors import nearest

__all__ = ["Catalog", "Source", "entries"]

T = TypeVar("T")


@frozen(kw_only=True)
class Source:
    """Where a number comes from; an assumed one says why it is what it is.

    Parameters
    ----------
    field, value : str
        The number, as written in the catalog.
    assumed : bool
        Whether it was assumed and not found.
    note : str
        Where in the source it stands; for an assumed number, the reason.
    title, url, looked_up : str
        The document and the day it was looked up; empty where assumed.
    seen : str
        ``primary`` (read in the source), ``quoted`` (in another document), ``memory``; empty where assumed.
    """

    field: str
    value: str
    assumed: bool
    note: str
    title: str = ""
    url: str = ""
    looked_up: str = ""
    seen: str = ""

    def __str__(self) -> str:
        if self.assumed:
            return f"{self.field} = {self.value}: assumed, {self.note}"
        where = f", {self.note}" if self.note else ""
        return f"{self.field} = {self.value}: {self.title}{where} ({_SEEN[self.seen]} {self.looked_up}) {self.url}".rstrip()


# how a number was seen, in words, before the day
_SEEN = {
    "primary": "read in the source",
    "quoted": "read as a quotation elsewhere",
    "memory": "from memory, not seen again on",
}


@cache
def entries(file: str) -> dict[str, Any]:
    """The tables of one catalog file."""
    import tomllib

    return tomllib.loads(files("mlsysim.catalog").joinpath(file).read_text(encoding="utf-8"))


@frozen(kw_only=True, eq=False, repr=False)
class Catalog(Generic[T]):
    """Named entries as attributes; lists its names, and knows the source of every number."""

    name: str
    _file: str
    _build: Callable[[dict[str, Any]], T]
    _built: dict[str, T] = field(factory=dict, init=False)

    def __getattr__(self, name: str) -> T:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no {name}")
        if name not in (known := entries(self._file)):
            raise AttributeError(f"{self.name} has no {name}. {nearest(name, self)}")
        if name not in self._built:
            self._built[name] = self._build(values(known[name]))
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(entries(self._file)))

    def __len__(self) -> int:
        return len(entries(self._file))

    def __contains__(self, name: object) -> bool:
        return name in entries(self._file)

    def __dir__(self) -> list[str]:
        return [*self, "sources", "title"]

    def __repr__(self) -> str:
        return f"{self.name}: {', '.join(self)}"

    def title(self, name: str) -> str:
        """What an entry is, in a line."""
        table = entries(self._file)[name]
        return str(table.get("title", table.get("name", name)))

    def sources(self, name: str) -> tuple[Source, ...]:
        """The source of every number of an entry, those of the entries that it names included."""
        getattr(self, name)
        return tuple(_sources(entries(self._file)[name], ""))


def values(table: dict[str, Any]) -> dict[str, Any]:
    """An entry without its sources: what a constructor takes."""
    return {key: value["value"] if isinstance(value, dict) and "value" in value else value for key, value in table.items()}


def _sources(table: dict[str, Any], path: str) -> Iterator[Source]:
    documents = entries("sources.toml")
    for key, value in table.items():
        field = f"{path}.{key}".strip(".")
        if isinstance(value, dict) and "value" in value:
            text = str(value["value"])
            if "assumed" in value:
                yield Source(field=field, value=text, assumed=True, note=value["assumed"])
            else:
                document = documents[value["source"]]
                yield Source(
                    field=field, value=text, assumed=False, note=value.get("where", ""), seen=value.get("seen", "primary"),
                    title=document["title"], url=document.get("url", ""), looked_up=str(document["looked_up"]),
                )  # fmt: skip
        elif key in _FILES and isinstance(value, str):
            yield from _sources(entries(_FILES[key])[value], field)


# fields that name an entry of another file
_FILES = {"workload": "models.toml", "fleet": "fleets.toml", "node": "nodes.toml", "store": "stores.toml"}
