"""What every scenario shares: it is one frozen situation, and it can be written down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mlsysim.errors import InputError

if TYPE_CHECKING:
    from mlsysim.report.card import Card

__all__ = ["Scenario"]

S = TypeVar("S", bound="Scenario")


class Scenario:
    """A frozen situation that asks a solver. Abstract."""

    __slots__ = ()

    @property
    def result(self) -> Any:
        """The answer to this situation."""
        raise NotImplementedError

    def about(self, *, binary: bool = False) -> tuple[str, ...]:
        """What the situation is, in lines; in binary units where asked."""
        raise NotImplementedError

    def card(self, *, binary: bool = False) -> Card:
        """The answer as a person sees it; in binary units where asked."""
        card: Card = self.result.card(binary=binary)
        return card

    def _repr_html_(self) -> str:
        return self.card().html()

    def to_dict(self) -> dict[str, Any]:
        """Fields as tables, text and numbers, with the name of the class under ``scenario``."""
        from mlsysim.engine.text import plain

        fields: dict[str, Any] = plain(self)
        return {"scenario": type(self).__name__, **fields}

    def to_toml(self) -> str:
        """The scenario as a TOML file; ``from_toml`` gives an equal one."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())

    def to_json(self) -> str:
        """The scenario as JSON; ``from_json`` gives an equal one."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls: type[S], table: dict[str, Any], source: str = "", *, folder: Path | None = None) -> S:
        """A scenario from a table; an InputError carries every fault, each with its place. Paths are relative to ``folder``."""
        from mlsysim.engine.text import structured

        fields = dict(table)
        named = fields.pop("scenario", cls.__name__)
        if named != cls.__name__:
            raise InputError(f"{source}: scenario".removeprefix(": "), cls.__name__, named, f'Write scenario = "{cls.__name__}".')
        return structured(cls, fields, source, folder or Path())

    @classmethod
    def from_toml(cls: type[S], text: str, source: str = "") -> S:
        """A scenario from TOML text."""
        from mlsysim.engine.text import read_toml

        return cls.from_dict(read_toml(text, source or "the text"), source)

    @classmethod
    def from_json(cls: type[S], text: str, source: str = "") -> S:
        """A scenario from JSON text."""
        from mlsysim.engine.text import read_json

        return cls.from_dict(read_json(text, source or "the text"), source)
