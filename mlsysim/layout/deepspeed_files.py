"""Which files a DeepSpeed checkpoint has, by their names: what each is, and who wrote it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.limits import Limits, inside, read_capped

__all__ = ["DeepSpeedFile", "Folder", "expected", "find_folder", "kind_of", "looks_like"]

_FIX = "Check what DeepSpeed wrote; a save that was cut short lacks files."
_RAISE = "Raise the cap with limits=Limits(files=...) if you trust it."
_LATEST, _LONGEST_TAG = "latest", 4096
_TAG = re.compile(r"global_step\d+")
_KINDS = {
    "optimizer": re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(?P<data>\d{1,6})_mp_rank_(?P<model>\d{1,6})_optim_states\.pt", re.ASCII),
    "sharded model": re.compile(r"zero_pp_rank_(?P<data>\d{1,6})_mp_rank_(?P<model>\d{1,6})_model_states\.pt", re.ASCII),
    "model": re.compile(r"mp_rank_(?P<model>\d{1,6})_model_states\.pt", re.ASCII),
    "layer": re.compile(r"layer_(?P<number>\d{1,6})(?:-model_(?P<model>\d{1,6}))?-model_states\.pt", re.ASCII),
    "expert": re.compile(r"(?:layer_(?P<layer>\d{1,6})_)?expert_(?P<number>\d{1,6})_mp_rank_(?P<model>\d{1,6})_model_states\.pt", re.ASCII),
}
_OF_A_TAG = ("optimizer", "sharded model", "model")


@frozen(kw_only=True)
class DeepSpeedFile:
    """A file, by its name.

    Parameters
    ----------
    name : str
        Relative to the checkpoint's folder.
    kind : str
        ``"optimizer"``, ``"sharded model"`` (stage 3), ``"model"``, ``"layer"`` (of a pipeline) or ``"expert"``.
    data, model : int
        Data- and model-parallel rank in the name; 0 where it has none.
    number : int
        Of the layer or the expert.
    layer : int
        Of an expert: which of the layers with experts.
    """

    name: str
    kind: str
    data: int = 0
    model: int = 0
    number: int = 0
    layer: int = 0


@frozen(kw_only=True)
class Folder:
    """The folder that names are relative to, the tag's folder in it (empty if it is the same), and what is there.

    Parameters
    ----------
    root : Path
    tag : str
    files : tuple of DeepSpeedFile
    others : tuple of str
        Files named like DeepSpeed's that are not read.
    metadata : dict of str to int
    """

    root: Path
    tag: str
    files: tuple[DeepSpeedFile, ...]
    others: tuple[str, ...]
    metadata: dict[str, int]

    @property
    def place(self) -> str:
        """The tag's folder, for errors."""
        return self.tag or self.root.name


def kind_of(name: str) -> DeepSpeedFile | None:
    """What a file is by its name, without folder; None for every other name.

    Examples
    --------
    >>> kind_of("bf16_zero_pp_rank_3_mp_rank_01_optim_states.pt").data
    3
    """
    for kind, pattern in _KINDS.items():
        if found := pattern.fullmatch(name):
            numbers = {key: int(value) for key, value in found.groupdict().items() if value is not None}
            return DeepSpeedFile(name=name, kind=kind, **numbers)
    return None


def looks_like(path: Path) -> bool:
    """Whether a path is a DeepSpeed checkpoint, by names alone: its folder, the folder of a tag, latest, or a file of it."""
    if path.is_file():
        found = kind_of(path.name)
        return (found is not None and found.kind in _OF_A_TAG) or (path.name == _LATEST and looks_like(path.parent))
    try:
        return _is_tag(path) or bool(_tags(path)) if path.is_dir() else False
    except InputError:
        return False


def find_folder(path: Path, limits: Limits) -> Folder:
    """The folder of the checkpoint and its files.

    Raises
    ------
    InputError
        If it has no file of DeepSpeed's ZeRO, or latest names no folder inside it.
    """
    if path.is_file():
        path = path.parent
    metadata: dict[str, int] = {}
    tag = ""
    if (path / _LATEST).is_file():
        tag, metadata[_LATEST] = _latest(path)
    elif not _is_tag(path):
        tags = _tags(path)
        if len(tags) != 1:
            got = f"{len(tags)} folders of tags, and no latest" if tags else "a folder without ..._optim_states.pt"
            raise InputError(f"{path.name}", "a DeepSpeed ZeRO checkpoint", Shown(got), "Give the folder of one tag, global_step... say.")
        tag = tags[0]
    folder = path / tag if tag else path
    names = _names(folder, limits.files)
    found = [each for each in map(kind_of, names) if each is not None]
    if not any(each.kind in _OF_A_TAG for each in found):
        raise InputError(tag or folder.name, "a DeepSpeed ZeRO checkpoint", Shown("no ..._optim_states.pt"), _FIX)
    lead = f"{tag}/" if tag else ""
    files = tuple(DeepSpeedFile(
        name=lead + each.name, kind=each.kind, data=each.data, model=each.model, number=each.number, layer=each.layer
    ) for each in found)  # fmt: skip
    known = {each.name for each in found}
    others = tuple(name for name in names if name.endswith("_states.pt") and name not in known)
    return Folder(root=path, tag=tag, files=files, others=others, metadata=metadata)


def expected(files: Sequence[DeepSpeedFile], data: int, model: int) -> Iterator[DeepSpeedFile]:
    """Files that ranks should have written and that are not among those found."""
    there = {(each.kind, each.data, each.model) for each in files}
    for kind in _OF_A_TAG:
        like = next((each.name for each in files if each.kind == kind), None)
        if like is None:
            continue
        lead, _, name = like.rpartition("/")
        for one in range(data if kind != "model" else 1):
            for two in range(model):
                if (kind, one, two) not in there:
                    named = re.sub(r"(?<=pp_rank_)\d+", f"{one}", re.sub(r"(?<=mp_rank_)\d+", f"{two:02d}", name))
                    yield DeepSpeedFile(name=f"{lead}/{named}" if lead else named, kind=kind, data=one, model=two)


def _latest(path: Path) -> tuple[str, int]:
    """The tag that latest names, and the size of that file."""
    raw = read_capped(inside(path, _LATEST, _LATEST), _LONGEST_TAG, _LATEST)
    try:
        tag = raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise InputError(_LATEST, "the name of a folder, in UTF-8", raw[:20], _FIX) from None
    folder = inside(path, tag, _LATEST)
    try:
        there = folder.is_dir()
    except (OSError, ValueError):
        there = False
    if not there:
        raise InputError(_LATEST, "the name of a folder that is there", tag, _FIX)
    return tag, len(raw)


def _names(folder: Path, most: int) -> list[str]:
    found: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append(entry.name)
                if len(found) > most:
                    raise InputError(folder.name, f"a folder of at most {most:,} files", Shown("more"), _RAISE)
    except OSError as error:
        raise InputError(f"{folder}", "a folder that can be read", Shown(error.strerror or "an error"), "Check its permissions.") from None
    return sorted(found)


def _is_tag(folder: Path) -> bool:
    kinds = (kind_of(name) for name in _names(folder, Limits().files))
    return any(each is not None and each.kind in _OF_A_TAG for each in kinds)


def _tags(path: Path) -> list[str]:
    """Folders in a folder that hold a tag's files; links are not followed. Without latest, those with DeepSpeed's own names for tags."""
    found = []
    named = (path / _LATEST).is_file()
    for name in _names(path, Limits().files):
        if not named and not _TAG.fullmatch(name):
            continue
        below = path / name
        if below.is_dir() and not below.is_symlink() and _is_tag(below):
            found.append(name)
    return found
