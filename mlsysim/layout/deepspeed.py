"""DeepSpeed ZeRO 1, 2 and 3: weights in the model files, master weights and moments as flat partitions in the optimizer files.

Names come from the pickles, read with an inert stand-in for every name in them; bytes come from the zip directories, where a storage
counts once, however many tensors are views of it. A flat partition is one tensor of the layout, its parts one after the other by
data-parallel rank; ``details["fp32_parameters"]`` says where each parameter's master weights lie in it, and ``fp32_parameter`` puts
one back together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from mlsysim.errors import InputError, Shown, nearest
from mlsysim.layout.deepspeed_columns import ROW_BYTES, Grid, columns
from mlsysim.layout.deepspeed_files import DeepSpeedFile, Folder, expected, find_folder, looks_like
from mlsysim.layout.deepspeed_master import MasterWeights, frozen_parts, master_weights
from mlsysim.layout.deepspeed_payload import FlatPayload
from mlsysim.layout.deepspeed_state import State, state_of
from mlsysim.layout.findings import Finding
from mlsysim.layout.layout import UNKNOWN, CheckpointLayout, Column, Files
from mlsysim.layout.limits import Limits, file_size, inside, opened
from mlsysim.layout.pickles import Name
from mlsysim.layout.reading import Reader
from mlsysim.layout.torch_zip import read_torch, torch_name

__all__ = ["READER", "fp32_parameter"]

_FIX = "Check what DeepSpeed wrote; a save that was cut short lacks files."
_MOST_RANKS = 262_144
# what a parameter's master weights, and each of their places, take in memory, rather too much
_MASTER_BYTES, _SLICE_BYTES = 1000, 250
_END, _END_BYTES = b"PK\5\6", 22


def _read(path: Path, limits: Limits) -> CheckpointLayout:
    folder = find_folder(path, limits)
    files, states, faults = _opened(folder, limits)
    known = [each for each in states if each is not None]
    stage = _stage(known, folder)
    grid, odd = _grid(files, known, folder)
    faults += odd
    for each in expected(files, grid.data, grid.model):
        files.append(each)
        states.append(None)
    ranks = _ranks(files, known, grid)
    rank_of = {each.name: rank if rank >= 0 else None for each, rank in zip(files, ranks, strict=True)}
    faults = [evolve(each, rank=rank_of[each.file or ""]) for each in faults]
    made = columns(states, grid, ranks)
    # those that were expected and not found have no size
    sizes = [*(_size(folder, each) for each in folder.files), *[UNKNOWN] * (len(files) - len(folder.files))]
    sized = Files.from_rows([(each.name, rank, size) for each, rank, size in zip(files, ranks, sizes, strict=True)])
    masters = tuple(_masters(stage, known, grid, folder, limits))
    dtypes = {each.name: each.dtype for each in made.tensors}
    frozen = tuple(_frozen(known, grid, dtypes)) if stage == 3 else ()
    return CheckpointLayout(
        format=f"deepspeed_zero{stage}" if stage else "deepspeed",
        tensors=made.tensors,
        fragments=made.fragments,
        data_files=sized,
        ranks=grid.data * grid.model,
        replicas_recorded=False,
        root=folder.root,
        path=path,
        metadata_files=folder.metadata,
        objects=tuple(dict.fromkeys(name for each in known for name in each.objects)),
        payload=FlatPayload(folder.root, states, made.stored, made.file_of, faults),
        notes=tuple(_notes(stage, known, grid, folder, -1 in ranks)),
        details={
            "zero_stage": stage, "data_parallel": grid.data, "model_parallel": grid.model, "fp32_parameters": masters,
            "frozen_parameters": frozen, "shared_params": _leading(known, grid, "tied"), "same_storage": _leading(known, grid, "same"),
            "stored_by_every_rank": made.repeated,
        },
    )  # fmt: skip


def _opened(folder: Folder, limits: Limits) -> tuple[list[DeepSpeedFile], list[State | None], list[Finding]]:
    """The files and what each holds; one that is cut short, or comes a second time, holds nothing and is told of."""
    files: list[DeepSpeedFile] = []
    states: list[State | None] = []
    faults: list[Finding] = []
    seen: dict[tuple[Any, ...], str] = {}
    first: InputError | None = None
    spent = 0
    for each in folder.files:
        files.append(each)
        states.append(None)
        key = (each.kind, each.data, each.model, each.number, each.layer)
        if key in seen:
            message = f"{seen[key]} is of the same rank: one of them is of another save"
            faults.append(Finding(kind="topology differs", file=each.name, message=message))
            continue
        seen[key] = each.name
        path = inside(folder.root, each.name, each.name)
        if _cut_short(path, each.name):
            first = first or InputError(each.name, "a zip as torch.save writes it", Shown("one that is cut short"), _FIX)
            message = "it is cut short: no directory of a zip at its end"
            faults.append(Finding(kind="file short", file=each.name, message=message))
            continue
        states[-1] = state = _state(path, each, limits)
        spent += len(state.parts) * ROW_BYTES
        if spent > limits.built_bytes:
            fix = "Raise the cap with limits=Limits(built_bytes=...) if you trust it."
            raise InputError(each.name, f"of at most {limits.built_bytes // ROW_BYTES:,} tensors with the others", Shown("more"), fix)
    if first is not None and not any(each is not None and each.file.kind == "optimizer" for each in states):
        raise first
    return files, states, faults


def _cut_short(path: Path, name: str) -> bool:
    """Whether a file lacks the end of a zip's directory. A file in the form before zips is not cut short, and is refused later."""
    size = file_size(path)
    if size is None:
        raise InputError(name, "a file that can be read", Shown("no regular file"), _FIX)
    if size < _END_BYTES:
        return True
    try:
        with opened(path) as file:
            begins = file.read(2)
            file.seek(size - _END_BYTES)
            return begins != b"\x80\x02" and file.read(len(_END)) != _END
    except OSError as error:
        raise InputError(name, "a file that can be read", Shown(error.strerror or "an error"), _FIX) from None


def _state(path: Path, file: DeepSpeedFile, limits: Limits) -> State:
    try:
        with opened(path) as binary:
            archive = read_torch(
                binary, place=file.name, limits=limits, find=lambda module, name: torch_name(module, name) or Name(module, name)
            )
    except OSError as error:
        raise InputError(file.name, "a file that can be read", Shown(error.strerror or "an error"), _FIX) from None
    return state_of(file, archive, evolve(archive, value=None))


def _size(folder: Folder, file: DeepSpeedFile) -> int:
    size = file_size(inside(folder.root, file.name, file.name))
    return UNKNOWN if size is None else size


def _stage(known: Sequence[State], folder: Folder) -> int:
    """The ZeRO stage: what the optimizers say; or the configuration, or the names of the files."""
    optimizers = [each for each in known if each.file.kind == "optimizer"]
    told = {each.stage for each in optimizers or known if each.stage is not None}
    if len(told) > 1:
        raise InputError(folder.place, "of one ZeRO stage in every file", Shown(f"stages {sorted(told)}"), _FIX)
    if any(each.kind == "sharded model" for each in folder.files):
        told = told or {3}
    stage = told.pop() if told else 0
    # bf16 without ZeRO partitions its optimizer as stage 1 does
    return max(stage, 1) if optimizers else stage


def _grid(files: Sequence[DeepSpeedFile], known: Sequence[State], folder: Folder) -> tuple[Grid, list[Finding]]:
    """Degrees: what the files say, and at least what they are named for."""
    data = 1 + max(each.data for each in files)
    model = 1 + max(each.model for each in files if each.kind != "layer")
    said = {key: {each.degrees[key] for each in known if key in each.degrees} for key in ("data", "model", "tensor")}
    counts = {group.ways for each in known for group in each.groups if group.ways}
    claimed = max(counts or (said["data"] if any(each.kind == "sharded model" for each in files) else set()), default=data)
    faults = []
    if claimed < data:
        last = next(each.name for each in files if each.data == data - 1)
        message = f"files of {data:,} data-parallel ranks, and partitions of {claimed:,}: some are of another save"
        faults.append(Finding(kind="topology differs", file=last, message=message))
    data, model = max(data, claimed), max(model, *said["model"], 1)
    if data * model > _MOST_RANKS:
        raise InputError(folder.place, f"of at most {_MOST_RANKS:,} ranks", Shown(f"{data:,} times {model:,}"), _FIX)
    layers = [each.model for each in files if each.kind == "layer"]
    tensor = max(said["tensor"], default=1 + max(layers) if layers else model)
    return Grid(data=data, model=model, tensor=tensor if model % tensor == 0 else model), faults


def _ranks(files: Sequence[DeepSpeedFile], known: Sequence[State], grid: Grid) -> list[int]:
    """Who wrote each file; -1 where it does not show."""
    experts = max((each.experts for each in known), default=0)
    spread = grid.data // min((group.ways for each in known for group in each.groups if group.ways), default=grid.data)
    # a layer is written by the first data-parallel rank of its stage, which has the layer's parameters
    stages = {
        name.partition(".")[0]: each.file.model // grid.tensor
        for each in known if each.file.kind == "model"
        for group in each.shapes
        for name in group
    }  # fmt: skip
    alone = grid.data == 1 or not any("spread" in each.degrees for each in known)
    ranks = []
    for file in files:
        data, model = file.data, file.model
        if file.kind == "layer":
            stage = stages.get(f"{file.number}") if alone and model < grid.tensor else None
            model = stage * grid.tensor + model if stage is not None else UNKNOWN
        elif file.kind == "expert":
            data = file.number * spread // experts if file.number < experts else UNKNOWN
        known_rank = 0 <= data < grid.data and 0 <= model < grid.model
        ranks.append(grid.rank(data, model) if known_rank else UNKNOWN)
    return ranks


def _models(known: Sequence[State], grid: Grid) -> Iterator[tuple[int, State | None, range]]:
    """Each model-parallel rank, its first model file, and its ranks by data-parallel rank."""
    first: dict[int, State] = {}
    for each in known:
        if each.file.kind in ("model", "sharded model"):
            first.setdefault(each.file.model, each)
    for model in range(grid.model):
        yield model, first.get(model), grid.ranks(model)


def _masters(stage: int, known: Sequence[State], grid: Grid, folder: Folder, limits: Limits) -> Iterator[MasterWeights]:
    """Where master weights lie; how many places there are is the product of what different files claim."""
    spent = 0
    for each in _all_masters(stage, known, grid):
        spent += _MASTER_BYTES + _SLICE_BYTES * len(each.slices)
        if spent > limits.built_bytes:
            fix = "Raise the cap with limits=Limits(built_bytes=...) if you trust it."
            got = Shown("parameters in more places")
            raise InputError(folder.place, f"of at most {limits.built_bytes:,} byte when built", got, fix)
        yield each


def _all_masters(stage: int, known: Sequence[State], grid: Grid) -> Iterator[MasterWeights]:
    if stage == 3 and any(each.odd for each in known):
        return
    by_model: dict[int, dict[int, State]] = {}
    for each in known:
        if each.file.kind == "optimizer":
            by_model.setdefault(each.file.model, {})[each.file.data] = each
    for model, file, ranks in _models(known, grid):
        shapes = file.shapes if file is not None else ()
        yield from master_weights(stage, shapes, by_model.get(model, {}), ranks, grid.lead(model))


def _frozen(known: Sequence[State], grid: Grid, dtypes: dict[str, str]) -> Iterator[MasterWeights]:
    for model, file, ranks in _models(known, grid):
        if file is not None:
            yield from frozen_parts(file.frozen_shapes, dtypes, ranks, grid.lead(model))


def _leading(known: Sequence[State], grid: Grid, which: str) -> dict[str, str]:
    """Names that stand for another, with the model-parallel rank where there are several."""
    return {
        grid.lead_of(each) + one: grid.lead_of(each) + other
        for each in known if each.file.kind != "optimizer"
        for one, other in getattr(each, which).items()
    }  # fmt: skip


def _notes(stage: int, known: Sequence[State], grid: Grid, folder: Folder, unknown: bool) -> Iterator[str]:
    placeholders = sum(each.placeholders for each in known)
    if placeholders:
        yield f"The model files hold {placeholders:,} placeholders without elements; the weights are in the optimizer files alone."
    elif stage:
        yield "The model file is written by the first data-parallel rank alone; the optimizer's counters are in every rank's file."
    if grid.model > 1:
        yield "Ranks are counted with tensor-parallel ranks as neighbours, then data-parallel ranks, then the stages of a pipeline."
        yield "Weights of each model-parallel rank are tensors of their own, mp_rank_MM. before their name: how they join is not recorded."
    if any(group.ways and group.ways < grid.data for each in known for group in each.groups):
        yield "Groups of experts are partitioned over fewer ranks; each expert-parallel rank has tensors of its own."
    if unknown:
        yield "Which rank wrote the files of some layers or experts does not show."
    for each in dict.fromkeys(each.odd for each in known if each.odd):
        yield f"Where single parameters lie is not covered: {each}."
    if folder.others:
        yield f"{len(folder.others):,} files are not read: {', '.join(folder.others[:3])[:200]}."


def fp32_parameter(layout: CheckpointLayout, name: str) -> Column:
    """The fp32 master weights of one parameter, whole, from the flat partitions of all ranks.

    Parameters
    ----------
    layout : CheckpointLayout
        Of a DeepSpeed checkpoint.
    name : str
        The parameter's name, as in ``layout.details["fp32_parameters"]``; a tied parameter goes by any of its names. A frozen parameter,
        which has no master weights, is given in its own type.

    Returns
    -------
    array of float32, of the parameter's shape

    Raises
    ------
    InputError
        If the layout is no DeepSpeed one, has no such parameter, or a part of it is missing.
    """
    details = layout.details
    known: dict[str, MasterWeights] = {each.name: each for key in ("frozen_parameters", "fp32_parameters") for each in details.get(key, ())}
    found = known.get(details.get("shared_params", {}).get(name, name)) or known.get(name)
    if found is None:
        raise InputError("fp32_parameter", "asked for a parameter of a DeepSpeed checkpoint", name, nearest(name, known))
    pieces = [_piece(layout, found, *each) for each in found.fragments]
    size = sum(each.size for each in pieces)
    if size != found.elements:
        raise InputError(name[:200], f"of {found.elements:,} elements", Shown(f"{size:,}"), "A rank's file is missing; run verify().")
    whole: Column = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    return whole.reshape(found.global_shape)


def _piece(layout: CheckpointLayout, found: MasterWeights, rank: int, group: int, start: int, count: int) -> Column:
    try:
        rows = layout.rows_of(layout.place_of(found.tensors[group]))
    except InputError:
        rows = np.zeros(0, np.int64)
    mine = rows[layout.fragments.rank[rows] == rank]
    if not len(mine) or layout.payload is None:
        raise InputError(found.name[:200], "held by every rank's file", Shown(f"nothing of rank {rank}"), "Run verify().")
    flat = layout.payload.read(int(mine[0]))
    if start + count > flat.size:
        got = Shown(f"elements to {start + count:,} of {flat.size:,} of rank {rank}")
        raise InputError(found.name[:200], "inside its partition", got, "Run verify().")
    return flat.reshape(-1)[start : start + count]


READER = Reader(
    format="deepspeed",
    looks_for="zero_pp_rank_*_mp_rank_*_optim_states.pt, in the folder or in the one that latest names",
    matches=looks_like,
    read=_read,
)
