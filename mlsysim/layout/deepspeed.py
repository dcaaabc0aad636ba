"""DeepSpeed ZeRO 1, 2 and 3: weights in the model files, master weights and moments as flat partitions in the optimizer files.

Names come from the pickles, read with an inert stand-in for every name in them; bytes come from the zip directories. A flat partition
is one tensor of the layout, its parts one after the other by data-parallel rank; ``details["fp32_parameters"]`` says where each
parameter's master weights lie in it, and ``fp32_parameter`` puts one back together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from attrs import frozen

from mlsysim.errors import InputError, Shown, nearest
from mlsysim.layout.deepspeed_state import MasterWeights, StatePart, master_weights, state_parts, zero_stage_of
from mlsysim.layout.findings import Finding
from mlsysim.layout.layout import UNKNOWN, CheckpointLayout, Column, Files, Fragments, Payload, TensorInfo
from mlsysim.layout.limits import Limits, file_size, inside, read_capped
from mlsysim.layout.pickles import Name
from mlsysim.layout.reading import Reader
from mlsysim.layout.torch_zip import StoredTensor, TorchArchive, read_torch, torch_name

__all__ = ["READER", "fp32_parameter"]

_FIX = "Check what DeepSpeed wrote; a save that was cut short lacks files."
_OPTIMIZER = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d{1,7})_mp_rank_(\d{1,7})_optim_states\.pt")
_SHARDED_MODEL = re.compile(r"zero_pp_rank_(\d{1,7})_mp_rank_(\d{1,7})_model_states\.pt")
_MODEL = re.compile(r"mp_rank_(\d{1,7})_model_states\.pt")
_OTHER = re.compile(r"(?:layer_\d+-model_\d+-model_states|layer_\d+_expert_\d+_mp_rank_\d+_(?:model|optim)_states|expp_rank_\d+_.*)\.pt")
_LATEST = "latest"
_MOST_RANKS = 1_000_000


@frozen(kw_only=True, eq=False)
class _File:
    """A file of the checkpoint: what it is, who wrote it, and what is in it; no archive where it is not there."""

    name: str
    part: str
    data: int
    model: int
    size: int
    archive: TorchArchive | None


def _matches(path: Path) -> bool:
    return path.is_dir() and any(_is_tag(folder) for folder in _candidates(path))


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    if (path / _LATEST).is_file():
        yield from (each for each in sorted(path.iterdir()) if each.is_dir())


def _is_tag(folder: Path) -> bool:
    return any(_OPTIMIZER.fullmatch(each.name) or _SHARDED_MODEL.fullmatch(each.name) for each in folder.iterdir())


def _read(path: Path, limits: Limits) -> CheckpointLayout:
    root, tag, metadata = _tag_of(path)
    files = _files(root, tag, limits)
    stage, parts, masters = _parts(files)
    data, model = _degrees(files)
    files = _with_missing(files, data, model, tag)
    tensors, fragments, stored = _columns(files, parts, data, model)
    notes = [*_left_out(root, tag)]
    if model > 1:
        notes.append("The rank is the model-parallel rank plus the number of those times the data-parallel rank, as Megatron counts.")
        notes.append("Weights of each model-parallel rank are tensors of their own: how they join is not recorded.")
    return CheckpointLayout(
        format=f"deepspeed_zero{stage}",
        tensors=tensors,
        fragments=fragments,
        data_files=Files.from_rows([(each.name, _rank(each, model), each.size) for each in files]),
        ranks=data * model,
        replicas_recorded=False,
        root=root,
        metadata_files=metadata,
        payload=_FlatPayload(root, files, fragments, stored),
        notes=tuple(notes),
        details={
            "zero_stage": stage, "data_parallel": data, "model_parallel": model, "fp32_parameters": masters,
            "stored_by_every_rank": _counters(parts, files, model),
        },
    )  # fmt: skip


def _tag_of(path: Path) -> tuple[Path, str, dict[str, int]]:
    """The folder that names are relative to, the folder of the tag in it, and files without payload."""
    if not path.is_dir():
        raise InputError(f"{path.name}", "the folder of a DeepSpeed checkpoint", Shown("a file"), "Give the folder that holds latest.")
    latest = path / _LATEST
    if not latest.is_file():
        return path, "", {}
    raw = read_capped(latest, 4096, _LATEST)
    try:
        tag = raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise InputError(_LATEST, "the name of a folder, in UTF-8", raw[:20], _FIX) from None
    folder = inside(path, tag, _LATEST)
    if not folder.is_dir():
        raise InputError(_LATEST, "the name of a folder that is there", tag, _FIX)
    return path, tag, {_LATEST: len(raw)}


def _files(root: Path, tag: str, limits: Limits) -> list[_File]:
    folder = root / tag if tag else root
    names = sorted(each.name for each in folder.iterdir())
    if len(names) > limits.files:
        fix = "Raise the cap with limits=Limits(files=...) if you trust it."
        raise InputError(f"{tag or folder.name}", f"at most {limits.files:,} files", Shown(f"{len(names):,}"), fix)
    found = []
    for name in names:
        kind = _kind(name)
        if kind is not None:
            part, data, model = kind
            relative = f"{tag}/{name}" if tag else name
            path = inside(root, relative, relative)
            found.append(_File(
                name=relative, part=part, data=data, model=model, size=file_size(path) or 0, archive=_opened(path, relative, limits),
            ))  # fmt: skip
    if not any(each.part == "optimizer" for each in found):
        raise InputError(tag or folder.name, "a DeepSpeed ZeRO checkpoint", Shown("no ..._optim_states.pt"), _FIX)
    return found


def _kind(name: str) -> tuple[str, int, int] | None:
    """What a file is, and its data- and model-parallel rank."""
    if found := _OPTIMIZER.fullmatch(name):
        return "optimizer", int(found[1]), int(found[2])
    if found := _SHARDED_MODEL.fullmatch(name):
        return "model", int(found[1]), int(found[2])
    if found := _MODEL.fullmatch(name):
        return "model", 0, int(found[1])
    return None


def _left_out(root: Path, tag: str) -> Iterator[str]:
    folder = root / tag if tag else root
    other = [each.name for each in folder.iterdir() if _OTHER.fullmatch(each.name)]
    if other:
        yield f"{len(other)} files of pipeline layers or experts are not read: {', '.join(sorted(other)[:3])}."


def _opened(path: Path, name: str, limits: Limits) -> TorchArchive:
    try:
        with path.open("rb") as file:
            return read_torch(file, place=name, limits=limits, find=lambda module, each: torch_name(module, each) or Name(module, each))
    except OSError as error:
        raise InputError(name, "a file that can be read", Shown(error.strerror or "an error"), _FIX) from None


def _parts(files: list[_File]) -> tuple[int, list[tuple[int, StatePart]], tuple[MasterWeights, ...]]:
    """Stage, the arrays of every file, and where each parameter's master weights lie."""
    stages = {zero_stage_of(each.archive.value) for each in files if each.archive is not None} - {None}
    if len(stages) > 1:
        raise InputError(files[0].name, "of one ZeRO stage with the other files", Shown(f"stages {sorted(map(str, stages))}"), _FIX)
    sharded = any(_SHARDED_MODEL.fullmatch(each.name.rpartition("/")[2]) for each in files)
    stage = next(iter(stages)) if stages else 3 if sharded else 1
    parts = [
        (place, part)
        for place, each in enumerate(files)
        if each.archive is not None
        for part in state_parts(each.archive, each.part, each.name)
    ]
    known = [(each.part, each.data, each.model, each.archive.value) for each in files if each.archive is not None]
    return stage or 1, parts, master_weights(stage or 1, known, files[0].name)


def _degrees(files: list[_File]) -> tuple[int, int]:
    """Data- and model-parallel degrees: what the files are named for, and what the model file says where that is more."""
    data, model = 1 + max(each.data for each in files), 1 + max(each.model for each in files)
    for each in files:
        value = each.archive.value if each.archive is not None else None
        if each.part == "model" and isinstance(value, dict):
            said = value.get("dp_world_size")
            data = max(data, said) if isinstance(said, int) and not isinstance(said, bool) else data
    if data * model > _MOST_RANKS:
        raise InputError(files[0].name, f"of at most {_MOST_RANKS:,} ranks", Shown(f"{data * model:,}"), _FIX)
    return data, model


def _with_missing(files: list[_File], data: int, model: int, tag: str) -> list[_File]:
    """The files, and those of ranks that should have one and have none."""
    there = {(each.data, each.model) for each in files if each.part == "optimizer"}
    prefix = next(each.name.rpartition("/")[2] for each in files if each.part == "optimizer").partition("zero_pp_rank_")[0]
    missing = []
    for one in range(data):
        for two in range(model):
            if (one, two) not in there:
                name = f"{prefix}zero_pp_rank_{one}_mp_rank_{two:02d}_optim_states.pt"
                full = f"{tag}/{name}" if tag else name
                missing.append(_File(name=full, part="optimizer", data=one, model=two, size=UNKNOWN, archive=None))
    return files + missing


def _rank(file: _File, model: int) -> int:
    return file.model + model * file.data


def _counters(parts: list[tuple[int, StatePart]], files: list[_File], model: int) -> frozenset[str]:
    """Tensors that every rank stores alike: the step of an optimizer."""
    return frozenset(_named(part, files[place], model) for place, part in parts if not part.flat and part.name.startswith("optimizer."))


def _named(part: StatePart, file: _File, model: int) -> str:
    """Name of a tensor, with the model-parallel rank where there are several."""
    return f"mp_rank_{file.model:02d}.{part.name}" if model > 1 else part.name


def _columns(
    files: list[_File], parts: list[tuple[int, StatePart]], data: int, model: int
) -> tuple[tuple[TensorInfo, ...], Fragments, list[StoredTensor]]:
    """One tensor for each name, and model-parallel rank where there are several; flat partitions side by side."""
    groups: dict[str, list[tuple[int, StatePart]]] = {}
    for place, part in parts:
        groups.setdefault(_named(part, files[place], model), []).append((place, part))
    tensors, rows, stored = [], [], []
    for number, (name, members) in enumerate(groups.items()):
        first = members[0][1].tensor
        if any(part.tensor.dtype != first.dtype or part.flat != members[0][1].flat for _, part in members):
            raise InputError(name[:200], "of one element type in every file", Shown("several"), _FIX)
        step = max(part.tensor.elements for _, part in members)
        shape = (step * data,) if members[0][1].flat else first.shape
        for place, part in members:
            if not part.flat and part.tensor.shape != shape:
                raise InputError(name[:200], f"of shape {list(shape)} in every file", Shown(f"{list(part.tensor.shape)}"), _FIX)
            offset = (step * files[place].data,) if part.flat else (0,) * len(shape)
            size = part.tensor.bytes
            rows.append((number, _rank(files[place], model), place, offset, part.tensor.shape, size, size, UNKNOWN))
            stored.append(part.tensor)
        tensors.append(TensorInfo(name=name, dtype=first.dtype, global_shape=shape))
    return tuple(tensors), Fragments.from_rows(rows), stored


class _FlatPayload(Payload):
    """The storages in the ``.pt`` files."""

    __slots__ = ("_files", "_fragments", "_root", "_stored")

    def __init__(self, root: Path, files: list[_File], fragments: Fragments, stored: list[StoredTensor]) -> None:
        self._root, self._files, self._fragments, self._stored = root, files, fragments, stored

    def read(self, row: int) -> Column:
        file = self._files[int(self._fragments.file[row])]
        if file.archive is None:
            raise InputError(file.name, "there", Shown("missing"), _FIX)
        return file.archive.array(inside(self._root, file.name, file.name), self._stored[row])

    def findings(self, layout: CheckpointLayout) -> Iterator[Finding]:
        for row, tensor in enumerate(self._stored):
            archive = self._files[int(self._fragments.file[row])].archive
            if archive is None or tensor.storage is None:
                continue
            member = archive.members.get(f"data/{tensor.storage.key}")
            if member is None or member.size < tensor.storage.bytes:
                there = "none" if member is None else f"{member.size:,} byte"
                yield _finding(layout, row, "byte count differs", f"{there} stored for {tensor.storage.bytes:,} byte of elements")

    def payload_findings(self, layout: CheckpointLayout, advance: Any = None) -> Iterator[Finding]:
        for place, each in enumerate(self._files):
            if each.archive is None:
                continue
            rank = int(layout.data_files.rank[place])
            try:
                with inside(self._root, each.name, each.name).open("rb") as file:
                    yield from _damaged(each, file, rank, advance)
            except (OSError, InputError) as error:
                yield Finding(kind="unreadable payload", file=each.name, rank=rank, message=f"{error}")


def _damaged(each: _File, file: BinaryIO, rank: int, advance: Any) -> Iterator[Finding]:
    """Members whose bytes do not have the checksum that the zip gives for them."""
    for name, found, said in each.archive.damaged(file, advance):  # type: ignore[union-attr]
        message = f"{name} has CRC-32 {found:08x}, the zip says {said:08x}"
        yield Finding(kind="digest differs", file=each.name, rank=rank, message=message)


def _finding(layout: CheckpointLayout, row: int, kind: str, message: str) -> Finding:
    fragments = layout.fragments
    return Finding(
        kind=kind, message=message, tensor=layout.tensors[int(fragments.tensor[row])].name, rank=int(fragments.rank[row]),
        file=layout.files[int(fragments.file[row])],
    )  # fmt: skip


def fp32_parameter(layout: CheckpointLayout, name: str) -> Column:
    """The fp32 master weights of one parameter, whole, from the flat partitions of all ranks.

    Parameters
    ----------
    layout : CheckpointLayout
        Of a DeepSpeed checkpoint.
    name : str
        The parameter's name, as in ``layout.details["fp32_parameters"]``.

    Returns
    -------
    array of float32, of the parameter's shape

    Raises
    ------
    InputError
        If the layout is no DeepSpeed one, has no such parameter, or a part of it is missing.
    """
    known = {each.name: each for each in layout.details.get("fp32_parameters", ())}
    if name not in known:
        raise InputError("fp32_parameter", "asked for a parameter of a DeepSpeed checkpoint", name, nearest(name, known))
    found = known[name]
    pieces = []
    for rank, place, tensor, start, elements in found.pieces(layout):
        flat = layout.payload.read(place) if layout.payload is not None else np.zeros(0, np.float32)
        if start + elements > flat.size:
            raise InputError(name[:200], "inside its partition", Shown(f"beyond {tensor} of rank {rank}"), _FIX)
        pieces.append(flat.reshape(-1)[start : start + elements])
    whole: Column = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    size = int(np.prod(found.global_shape, dtype=np.int64))
    if whole.size != size:
        raise InputError(name[:200], f"{size:,} elements", Shown(f"{whole.size:,}"), "A rank's file is missing; run verify().")
    return whole.reshape(found.global_shape)


READER = Reader(
    format="deepspeed",
    looks_for="zero_pp_rank_*_mp_rank_*_optim_states.pt, in the folder or in the one that latest names",
    matches=_matches,
    read=_read,
)
