"""Scenarios as text and back: TOML and JSON, units written out, nothing lost, all faults told at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from mlsysim import catalog
from mlsysim.errors import InputError, Shown, nearest
from mlsysim.layout import CheckpointLayout, read_checkpoint
from mlsysim.report.wording import lossless
from mlsysim.specs import Fleet, Node, Workload
from mlsysim.units import Quantity

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["plain", "read_json", "read_toml", "structured"]

T = TypeVar("T")

# where a file may name a catalog entry instead of describing one
_BY_NAME: dict[type, Any] = {Workload: catalog.Models, Fleet: catalog.Fleets, Node: catalog.Nodes}
_LONGEST = 1_000_000
_MOST_DOTS = 200


def read_toml(text: str, source: str) -> dict[str, Any]:
    """The table that a TOML text holds; faults name the source."""
    _refuse_long(text, source)
    # tomllib takes time with the square of the steps in a key
    if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
        raise InputError(source, f"of lines with at most {_MOST_DOTS} points", Shown("more"), 'Write lines like save_interval = "10 min".')
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InputError(source, "valid TOML", f"{error}", 'Write lines like save_interval = "10 min".') from None


def read_json(text: str, source: str) -> dict[str, Any]:
    """The object that a JSON text holds; a key given twice is refused."""
    _refuse_long(text, source)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in pairs:
            if key in table:
                raise InputError(f"{source}: {key}", "given once", "the key twice", "Delete one of the two.")
            table[key] = value
        return table

    try:
        table = json.loads(text, object_pairs_hook=once)
    except (json.JSONDecodeError, RecursionError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(source, "valid JSON", f"{error}", 'Write {"save_interval": "10 min", ...}.') from None
    if not isinstance(table, dict):
        raise InputError(source, "a JSON object", table, 'Write {"save_interval": "10 min", ...}.')
    return table


def _refuse_long(text: str, source: str) -> None:
    if len(text) > _LONGEST:
        raise InputError(source, f"at most {_LONGEST:,} characters", f"{len(text):,}", "A scenario file is a page, not a data set.")


def plain(value: Any) -> Any:
    """An object as tables, text and numbers: quantities with their unit, what was left out left out."""
    return _converter(Path()).unstructure(value)


def structured(kind: type[T], table: Mapping[str, Any], source: str, folder: Path) -> T:
    """An object from a table; every fault of the table is told, each with its place. Paths are relative to ``folder``.

    Raises
    ------
    InputError
        With all ``faults``.
    """
    from cattrs import BaseValidationError

    try:
        return _converter(folder).structure(table, kind)
    except BaseValidationError as error:
        raise InputError.together(_faults(error, source, "", kind)) from None


def _converter(folder: Path) -> Converter:
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    converter = Converter(detailed_validation=True)
    converter.register_unstructure_hook_func(lambda kind: isinstance(kind, type) and issubclass(kind, Quantity), lossless)

    converter.register_unstructure_hook(CheckpointLayout, _path_of)
    converter.register_structure_hook(CheckpointLayout, lambda value, _: _layout_at(value, folder))

    def structure_with(kind: type) -> Callable[[Any, Any], Any]:
        hooks = {each.name: override(struct_hook=_hook(kind, each, converter)) for each in attrs.fields(kind)}
        read: Any = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, **hooks)  # type: ignore[arg-type]

        def named_or_read(value: Any, _: Any) -> Any:
            if isinstance(value, str) and kind in _BY_NAME:
                return _from_catalog(kind, value)
            if not isinstance(value, Mapping):
                raise InputError(kind.__name__, "a table of fields", value, _how_to_write(kind))
            return read(dict(value), kind)

        return named_or_read

    converter.register_structure_hook_factory(lambda kind: attrs.has(kind) and kind is not CheckpointLayout, structure_with)
    converter.register_unstructure_hook_factory(
        lambda kind: attrs.has(kind) and kind is not CheckpointLayout,
        lambda kind: make_dict_unstructure_fn(kind, converter, _cattrs_omit_if_default=True),
    )
    return converter


def _path_of(layout: CheckpointLayout) -> str:
    if layout.path is None:
        raise InputError("layout", "read from a checkpoint", f"a {layout.format} layout", "Write down what it was predicted from instead.")
    return str(layout.path)


def _layout_at(value: Any, folder: Path) -> CheckpointLayout:
    if not isinstance(value, str):
        raise InputError("layout", "the path of a checkpoint", value, 'Write layout = "runs/step_1000", say.')
    try:
        return read_checkpoint(folder / value)
    except InputError as error:
        # the place becomes that in the scenario file, so what was wrong in the checkpoint is told as the value
        told = Shown(f"{value!r}: {error.place} must be {error.rule}, and is {error.value}")
        raise InputError("layout", "the path of a checkpoint that can be read", told, error.fix) from None


def _hook(kind: type, attribute: attrs.Attribute[Any], converter: Converter) -> Callable[[Any, Any], Any]:
    holds = attribute.metadata.get("holds")
    if holds is not None:
        return lambda value, _: converter.structure(value, holds)
    check = attribute.converter.converter  # type: ignore[union-attr]
    return lambda value, _: check(value, object.__new__(kind), attribute)


def _from_catalog(kind: type, name: str) -> Any:
    entries = _BY_NAME[kind]
    if name not in entries:
        raise InputError(kind.__name__, f"a table, or a name in {entries.name}", name, nearest(name, entries))
    return getattr(entries, name)


def _how_to_write(kind: type) -> str:
    fields = [each for each in attrs.fields(kind) if each.default is attrs.NOTHING] or list(attrs.fields(kind)[:1])
    return f"Write {{ {', '.join(f'{each.name} = ...' for each in fields)} }}."


def _faults(error: BaseException, source: str, path: str, kind: type) -> Iterator[InputError]:
    """The faults in a tree of exceptions, each with its place."""
    from cattrs import AttributeValidationNote, ForbiddenExtraKeysError

    if isinstance(error, ForbiddenExtraKeysError):
        names = [each.name for each in attrs.fields(error.cl)]
        for key in sorted(error.extra_fields):
            below = [each for each in _dotted(error.cl) if each.rpartition(".")[2] == key]
            fix = f"Did you mean {below[0]}?" if below else nearest(key, names)
            yield InputError(_place(source, path, key), "a known field", key, fix)
    elif isinstance(error, BaseExceptionGroup):
        inner_kind = getattr(error, "cl", kind)
        misspelt = _misspelt(error, inner_kind)
        for inner in error.exceptions:
            if isinstance(inner, KeyError) and inner.args[0] in misspelt:
                continue  # told already, as the unknown field that it was written as
            notes = [note for note in getattr(inner, "__notes__", ()) if isinstance(note, AttributeValidationNote)]
            step = f"{path}.{notes[-1].name}".strip(".") if notes else path
            yield from _faults(inner, source, step, inner_kind)
    elif isinstance(error, InputError):
        yield from (fault.at(_place(source, path)) for fault in error.faults)
    elif isinstance(error, KeyError):
        name = path.rpartition(".")[2]
        yield InputError(_place(source, path), "given", Shown("nothing"), f"Write {name} = {_example(kind, name)}.")
    else:
        raise error


def _dotted(kind: type, path: str = "") -> Iterator[str]:
    """Fields of the tables inside a table, by dotted path."""
    for each in attrs.fields(kind):
        inner = each.metadata.get("holds")
        if inner is not None and attrs.has(inner) and inner is not CheckpointLayout:
            for name in attrs.fields_dict(inner):
                yield f"{path}{each.name}.{name}"
            yield from _dotted(inner, f"{path}{each.name}.")


def _misspelt(error: BaseExceptionGroup[Any], kind: type) -> set[str]:
    """Fields that an unknown key was meant to be."""
    unknown = {key for inner in error.exceptions for key in getattr(inner, "extra_fields", ())}
    names = [each.name for each in attrs.fields(kind)]
    return {name for key in unknown for name in get_close_matches(key, names, n=1)}


def _place(source: str, *steps: str) -> str:
    path = ".".join(step for step in steps if step)
    return f"{source}: {path}" if source and path else source or path


def _example(kind: type, name: str) -> str:
    metadata = attrs.fields_dict(kind)[name].metadata
    if "kind" in metadata:
        return f'"{metadata["kind"].example}"'
    return _how_to_write(metadata["holds"])[6:-1] if "holds" in metadata else '"..."' if name == "name" else "256"
