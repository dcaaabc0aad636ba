"""Keys of a ``config.json``, fetched with their type; faults are gathered, and told together."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, Shown

__all__ = ["Keys", "read_object"]

_LONGEST = 4_000_000
_MOST = 10**12
_NOTHING = Shown("nothing")

# which key of a config is behind a field of the shape, so that its fault names what is in the file
_BEHIND = {
    "TransformerShape.heads": ("num_attention_heads", "n_head"),
    "TransformerShape.kv_heads": ("num_key_value_heads",),
    "Experts.active": ("num_experts_per_tok",),
}


class Keys:
    """The keys of one object of a config.

    Parameters
    ----------
    table : dict
    place : str
        Name of the file, and the path in it.
    """

    def __init__(self, table: dict[str, Any], place: str) -> None:
        self.table = table
        self.place = place
        self.is_nested = False
        self.read: set[str] = set()
        self.faults: list[InputError] = []
        self._defaults: dict[str, int] = {}

    def nested(self, key: str) -> Keys:
        """The object under a key; one that says nothing about the output layer gets the word of the outer one."""
        inner = self.table.get(key)
        if not isinstance(inner, dict):
            given = inner if key in self.table else _NOTHING
            raise InputError(f"{self.place}: {key}", "an object", given, f'Write "{key}": {{"hidden_size": 2560, ...}}.')
        outer = {"tie_word_embeddings": self.table["tie_word_embeddings"]} if "tie_word_embeddings" in self.table else {}
        keys = Keys({**outer, **inner}, f"{self.place}: {key}")
        keys.is_nested = True
        return keys

    def defaults(self, **sizes: int) -> None:
        """What sizes are where their key is left out."""
        self._defaults = sizes

    def size(self, *names: str, default: int | None = None, example: int = 1) -> int:
        """A whole number of at least 1, under one of its names; a fault gives 1, and is told by ``finish``."""
        present = [name for name in names if name in self.table]
        self.read |= set(names)
        default = self._defaults.get(names[0], default)
        if not present:
            if default is None:
                self._fault(names[0], "there, a whole number of at least 1", _NOTHING, f'Write "{names[0]}": {example}, say.')
            return default or 1
        value = self.table[present[0]]
        if any(self.table[name] != value for name in present):
            self._fault(present[-1], f"the same as {present[0]}, {value}", self.table[present[-1]], "Delete one of the two.")
        return value if self._is_count(present[0], value, example or default or 1) else 1

    def optional(self, name: str, *, default: int | None = None, zero: bool = False) -> int | None:
        """A whole number of at least 1 (or 0), None where null; ``default`` where left out."""
        self.read.add(name)
        if name not in self.table:
            return default
        value = self.table[name]
        if value is None or (zero and value == 0 and not isinstance(value, bool)):
            return value if value is None else 0
        return value if self._is_count(name, value, default or 8) else None

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false; ``default`` where left out or null."""
        self.read.add(name)
        value = self.table.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._fault(name, "true or false", value, f'Write "{name}": {str(default).lower()}, say.')
        return bool(value)

    def ignore(self, *names: str) -> None:
        """Keys that the family has and that leave the count as it is."""
        self.read |= set(names)

    def refuse(self, name: str, rule: str) -> None:
        """A fault of a key: a variant that is not covered."""
        self._fault(name, rule, self.table.get(name), "Describe the model with TransformerShape(...) instead.")

    def finish(self) -> None:
        """Tell every fault found."""
        if self.faults:
            raise InputError.together(self.faults)

    def place_of(self, owned: str) -> str:
        """Where the value of a field, ``TransformerShape.heads``, stands in the config."""
        named = [key for key in _BEHIND.get(owned, ()) if key in self.table]
        return self._at(named[0] if named else owned)

    def _is_count(self, name: str, value: object, example: int) -> bool:
        good = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST
        if not good:
            self._fault(name, "a whole number of at least 1", value, f'Write "{name}": {example}, say.')
        return good

    def _fault(self, name: str, rule: str, value: object, fix: str) -> None:
        self.faults.append(InputError(self._at(name), rule, value, fix))

    def _at(self, name: str) -> str:
        return f"{self.place}.{name}" if self.is_nested else f"{self.place}: {name}"


def read_object(path: Path) -> tuple[str, dict[str, Any]]:
    """The name of a JSON file, or of ``config.json`` in a folder, and the object it holds.

    Raises
    ------
    InputError
        If it cannot be read, is long, or is not one JSON object in UTF-8 with each key once and finite numbers.
    """
    fix = "Give the path of a config.json, or of the folder that holds it."
    try:
        file = path / "config.json" if path.is_dir() else path
        name, found = file.name, file.stat()
        # a pipe may never end, and a device never does
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{file}", "a file that can be read", Shown("no regular file"), fix)
        if found.st_size > _LONGEST:
            raise InputError(name, f"at most {_LONGEST:,} bytes", Shown(f"{found.st_size:,}"), "A config is a page, not a data set.")
        with file.open("rb") as opened:
            text = opened.read(_LONGEST).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(name, "text in UTF-8", Shown("other bytes"), "Save it as UTF-8.") from None
    except InputError:
        raise
    except (OSError, ValueError) as error:  # a name with a null byte is a ValueError
        told = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{path}", "a file that can be read", Shown(told), fix) from None
    return name, _object(text, name)


def _object(text: str, name: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            seen: set[str] = set()
            again = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise InputError(f"{name}: {again}", "given once", Shown("the key twice"), "Delete one of the two.")
        return table

    def never(constant: str) -> None:
        raise InputError(name, "free of numbers that are not finite", Shown(constant), "Write a number, or null.")

    try:
        table = json.loads(text, object_pairs_hook=once, parse_constant=never)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(name, "valid JSON", Shown(f"{error}"), 'Write {"model_type": "llama", ...}.') from None
    if not isinstance(table, Mapping):
        raise InputError(name, "a JSON object", table, 'Write {"model_type": "llama", ...}.')
    return dict(table)
