"""Writes DeepSpeed ZeRO checkpoints without DeepSpeed or torch: what a stage stores of given master weights, and where."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.layout.torch_files import Global, Object, dumped, saved, tensor

STAGE = Global("deepspeed.runtime.zero.config", "ZeroStageEnum")
ADDRESS = Global("deepspeed.utils.tensor_fragment", "fragment_address")
SCALER = Global("deepspeed.runtime.fp16.loss_scaler", "LossScaler")
MOMENTS = ("exp_avg", "exp_avg_sq")

Weights = list[dict[str, np.ndarray[Any, Any]]]


class File:
    """A file under construction: its storages by key."""

    def __init__(self) -> None:
        self.storages: dict[str, bytes] = {}

    def put(self, array: np.ndarray[Any, Any], of: np.ndarray[Any, Any] | None = None) -> Object:
        """A tensor of a storage of its own, or the beginning of a larger one."""
        key = f"{len(self.storages)}"
        whole = array if of is None else of
        self.storages[key] = whole.tobytes()
        return tensor(array, key, elements=whole.size)

    def write(self, path: Path, value: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(saved(value, self.storages, pickled=dumped(value, 2)))


def weights(seed: int = 0, *shapes: tuple[int, ...]) -> dict[str, np.ndarray[Any, Any]]:
    """Master weights of some shapes."""
    numbers = np.random.default_rng(seed)
    return {f"layer.{number}.weight": numbers.standard_normal(shape).astype(np.float32) for number, shape in enumerate(shapes)}


def flat(stage: int, group: dict[str, np.ndarray[Any, Any]], ways: int) -> list[np.ndarray[Any, Any]]:
    """The partitions of a group: cut from one run of all parameters, or each parameter cut by itself."""
    if stage < 3:
        run = np.concatenate([each.reshape(-1) for each in group.values()])
        padded = np.concatenate((run, np.zeros(-run.size % (2 * ways), np.float32)))
        return np.split(padded, ways)
    pieces: list[list[np.ndarray[Any, Any]]] = [[] for _ in range(ways)]
    for each in group.values():
        padded = np.concatenate((each.reshape(-1), np.zeros(-each.size % ways, np.float32)))
        for rank, piece in enumerate(np.split(padded, ways)):
            pieces[rank].append(piece)
    return [np.concatenate(each) for each in pieces]


def slices(group: dict[str, np.ndarray[Any, Any]], rank: int, size: int) -> dict[str, Object]:
    """Where stages 1 and 2 say that the parameters lie in a rank's partition."""
    found, at = {}, 0
    for name, each in group.items():
        start, stop = max(at - rank * size, 0), min(at + each.size - rank * size, size)
        if start < stop:
            found[name] = Object(ADDRESS, (), {"numel": stop - start, "start": start})
        at += each.size
    return found


def optimizer_file(path: Path, stage: int, groups: Weights, ways: int, rank: int, **changed: Any) -> None:
    """A rank's optimizer file. The last part of a group is stored with its padding, and shown without in stages 1 and 2."""
    file = File()
    parts, state, paddings = [], {}, []
    for number, group in enumerate(groups):
        part = flat(stage, group, ways)[rank]
        beyond = max((rank + 1) * part.size - sum(each.size for each in group.values()), 0) if stage < 3 else 0
        paddings.append(min(beyond, part.size))
        parts.append(file.put(part[: part.size - paddings[-1]], part))
        state[number] = {"step": file.put(np.float32(2).reshape(()))} | {key: file.put(part * 0.5) for key in MOMENTS}
    inner: dict[str, Any] = {"loss_scaler": Object(SCALER, (), {"cur_scale": 1.0}), "zero_stage": Object(STAGE, (stage,), call=True)}
    if stage == 3:
        inner |= {"partition_count": ways, "optimizer_state_dict": {"state": state, "param_groups": []}, "fp32_flat_groups": parts}
    else:
        inner |= {
            "partition_count": [ways] * len(groups), "base_optimizer_state": {"state": state, "param_groups": []},
            "single_partition_of_fp32_groups": parts, "group_paddings": paddings,
            "param_slice_mappings": [slices(group, rank, flat(stage, group, ways)[0].size) for group in groups],
        }  # fmt: skip
    file.write(path, {"optimizer_state_dict": inner | changed, "ds_config": {}, "ds_version": "0.19.8"})


def model_file(path: Path, stage: int, groups: Weights, ways: int, models: int = 1, **changed: Any) -> None:
    """A model file: weights in bfloat16, or in stage 3 placeholders for them."""
    file = File()
    module = {
        name: file.put(np.zeros(0, ml_dtypes.bfloat16) if stage == 3 else each.astype(ml_dtypes.bfloat16))
        for group in groups
        for name, each in group.items()
    }
    size = Global("torch", "Size")
    shapes = [{name: Object(size, (tuple(each.shape),), call=True) for name, each in group.items()} for group in groups]
    file.write(path, {
        "module": module, "buffer_names": [], "param_shapes": shapes, "shared_params": {}, "dp_world_size": ways, "mp_world_size": models,
        "ds_config": {"zero_optimization": {"stage": stage}}, **changed,
    })  # fmt: skip


def checkpoint(root: Path, stage: int, models: list[Weights], ways: int) -> Path:
    """A checkpoint of one or more model-parallel ranks."""
    tag = root / "global_step2"
    for model, groups in enumerate(models):
        for rank in range(ways):
            optimizer_file(tag / f"zero_pp_rank_{rank}_mp_rank_{model:02d}_optim_states.pt", stage, groups, ways, rank)
            if stage == 3:
                model_file(tag / f"zero_pp_rank_{rank}_mp_rank_{model:02d}_model_states.pt", stage, groups, ways, len(models))
        if stage < 3:
            model_file(tag / f"mp_rank_{model:02d}_model_states.pt", stage, groups, ways, len(models))
    (root / "latest").write_text("global_step2")
    return root


def payload(stage: int, groups: Weights, ways: int) -> int:
    """Bytes that a model-parallel rank stores: 2 a parameter in stages 1 and 2, 12 a parameter with padding, and the steps."""
    parts = sum(each.nbytes for group in groups for each in flat(stage, group, ways))
    elements = sum(math.prod(each.shape) for group in groups for each in group.values())
    return 3 * parts + 4 * ways * len(groups) + (0 if stage == 3 else 2 * elements)
