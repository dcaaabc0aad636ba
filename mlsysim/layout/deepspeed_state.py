"""What a DeepSpeed file holds: its arrays by name, its ZeRO stage, and where master weights lie in the flat partitions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.pickles import Inert
from mlsysim.layout.torch_zip import StoredTensor, TorchArchive

if TYPE_CHECKING:
    from mlsysim.layout.layout import CheckpointLayout

__all__ = ["MasterWeights", "StatePart", "master_weights", "state_parts", "zero_stage_of"]

_FIX = "Refuse this file, or ask who made it."
_FLAT = ("single_partition_of_fp32_groups", "fp32_flat_groups")
_MOST_PARTS, _MOST_STEPS = 4_000_000, 40_000_000
_MOST_ELEMENTS = 2**62
# paths in an optimizer file that stand for the optimizer's state
_STATES = ("optimizer_state_dict.base_optimizer_state.state.", "optimizer_state_dict.base_optimizer_state.",
           "optimizer_state_dict.optimizer_state_dict.state.")  # fmt: skip


@frozen(kw_only=True, eq=False)
class StatePart:
    """An array in a file: its name in the layout, and whether it is a partition of a flat one."""

    name: str
    tensor: StoredTensor
    flat: bool


@frozen(kw_only=True)
class MasterWeights:
    """Where the fp32 master weights of a parameter lie.

    Parameters
    ----------
    name : str
    global_shape : tuple of int
    fragments : tuple of (rank, group, partition_offset, elements)
        In the order of the elements: data-parallel rank, which flat group, where in that rank's part of it, how many.
    model : int
        Model-parallel rank.
    stage : int
    """

    name: str
    global_shape: tuple[int, ...]
    fragments: tuple[tuple[int, int, int, int], ...]
    model: int
    stage: int
    dtype: str = "float32"

    def pieces(self, layout: CheckpointLayout) -> Iterator[tuple[int, int, str, int, int]]:
        """Rank, row of the layout, name of the flat tensor, start and count of elements of each piece."""
        ways = layout.details["model_parallel"]
        prefix = f"mp_rank_{self.model:02d}." if ways > 1 else ""
        for data, group, start, elements in self.fragments:
            name = f"{prefix}optimizer.{_FLAT[self.stage == 3]}.{group}"
            rank = self.model + ways * data
            rows = layout.rows_of(layout.place_of(name))
            mine = rows[layout.fragments.rank[rows] == rank]
            if not len(mine):
                raise InputError(self.name[:200], "held by every rank's file", Shown(f"nothing of rank {rank}"), "Run verify().")
            yield rank, int(mine[0]), name, start, elements


def state_parts(archive: TorchArchive, part: str, place: str) -> Iterator[StatePart]:
    """The arrays of a file; one that lies where another one does is the same one, tied, and comes once."""
    seen: set[tuple[str, int, tuple[int, ...], tuple[int, ...]]] = set()
    tied = _tied(archive.value)
    for count, (path, tensor) in enumerate(_tensors(archive.value, place)):
        if count >= _MOST_PARTS:
            raise InputError(place, f"of at most {_MOST_PARTS:,} tensors", Shown("more"), _FIX)
        if not tensor.elements or tensor.storage is None:
            continue
        lies = (tensor.storage.key, tensor.offset, tensor.shape, tensor.stride)
        if lies in seen or (part == "model" and path in tied):
            continue
        seen.add(lies)
        name = path if part == "model" else _optimizer_name(path)
        flat = part == "optimizer" and len(tensor.shape) == 1
        yield StatePart(name=name, tensor=tensor, flat=flat)


def _optimizer_name(path: str) -> str:
    for prefix in _STATES:
        if path.startswith(prefix):
            return "optimizer.state." + path.removeprefix(prefix)
    return "optimizer." + path.removeprefix("optimizer_state_dict.")


def _tied(value: Any) -> set[str]:
    shared = value.get("shared_params") if isinstance(value, dict) else None
    return {f"module.{name}" for name in shared if isinstance(name, str)} if isinstance(shared, dict) else set()


def _tensors(value: Any, place: str) -> Iterator[tuple[str, StoredTensor]]:
    """Tensors in nested dicts and lists, with their path, in the file's order; every container is walked once."""
    waiting: list[tuple[str, Any]] = [("", value)]
    seen: set[int] = set()
    steps = 0
    while waiting:
        path, each = waiting.pop()
        steps += 1
        if steps > _MOST_STEPS:
            raise InputError(place, f"of at most {_MOST_STEPS:,} parts", Shown("more"), _FIX)
        if isinstance(each, StoredTensor):
            yield path, each
        elif isinstance(each, (dict, list, tuple)) and id(each) not in seen:
            seen.add(id(each))
            items = each.items() if isinstance(each, dict) else enumerate(each)
            inner = [(f"{path}.{key}".lstrip(".")[:4096], one) for key, one in items if isinstance(key, (str, int))]
            waiting += reversed([one for one in inner if isinstance(one[1], (dict, list, tuple, StoredTensor))])


def zero_stage_of(value: Any) -> int | None:
    """ZeRO stage that a file tells: of its optimizer, or of its configuration."""
    state = value.get("optimizer_state_dict") if isinstance(value, dict) else None
    said = state.get("zero_stage") if isinstance(state, dict) else None
    if isinstance(said, Inert) and said.args:
        said = said.args[0]
    if said is None and isinstance(value, dict):
        config = value.get("ds_config")
        zero = config.get("zero_optimization") if isinstance(config, dict) else None
        said = zero.get("stage") if isinstance(zero, dict) else None
    return said if isinstance(said, int) and not isinstance(said, bool) and said in (1, 2, 3) else None


def master_weights(stage: int, known: list[tuple[str, int, int, Any]], place: str) -> tuple[MasterWeights, ...]:
    """Where the master weights of each parameter lie, from every file's part, data- and model-parallel rank, and content."""
    found: list[MasterWeights] = []
    for model in sorted({each[2] for each in known}):
        shapes = next((_shapes(value, place) for part, _, rank, value in known if part == "model" and rank == model), [])
        optimizers = {data: value for part, data, rank, value in known if part == "optimizer" and rank == model}
        gather = _pieces_of_stage_3 if stage == 3 else _slices
        found += gather(shapes, optimizers, model, stage)
    return tuple(found)


def _shapes(value: Any, place: str) -> list[dict[str, tuple[int, ...]]]:
    """Shapes of the parameters, group by group."""
    given = value.get("param_shapes") if isinstance(value, dict) else None
    groups = given if isinstance(given, list) else [given]
    shapes = []
    for group in groups:
        shapes.append({
            name: tuple(shape) for name, shape in group.items()
            if isinstance(name, str) and isinstance(shape, (tuple, list)) and all(type(each) is int and each >= 0 for each in shape)
        } if isinstance(group, dict) else {})  # fmt: skip
        if any(math.prod(shape) > _MOST_ELEMENTS for shape in shapes[-1].values()):
            raise InputError(f"{place}: param_shapes", "of less than 2^62 elements", Shown("more"), _FIX)
    return shapes


def _slices(shapes: list[dict[str, tuple[int, ...]]], optimizers: dict[int, Any], model: int, stage: int) -> Iterator[MasterWeights]:
    """Stages 1 and 2: every rank says which slice of which parameter its partition holds."""
    for group, names in enumerate(shapes):
        mappings = {data: _mapping(value, group) for data, value in sorted(optimizers.items())}
        for name, shape in names.items():
            pieces = tuple((data, group, *mapping[name]) for data, mapping in mappings.items() if name in mapping)
            yield MasterWeights(name=name, global_shape=shape, fragments=pieces, model=model, stage=stage)


def _mapping(value: Any, group: int) -> dict[str, tuple[int, int]]:
    """Start and count of each parameter in a rank's partition of a group."""
    state = value.get("optimizer_state_dict") if isinstance(value, dict) else None
    groups = state.get("param_slice_mappings") if isinstance(state, dict) else None
    if not isinstance(groups, (list, tuple)) or group >= len(groups) or not isinstance(groups[group], dict):
        return {}
    found = {}
    for name, address in groups[group].items():
        said = address.state if isinstance(address, Inert) else address
        if isinstance(name, str) and isinstance(said, dict):
            start, count = said.get("start"), said.get("numel")
            if type(start) is int and type(count) is int and 0 <= start <= _MOST_ELEMENTS and 0 <= count <= _MOST_ELEMENTS:
                found[name] = (start, count)
    return found


def _pieces_of_stage_3(
    shapes: list[dict[str, tuple[int, ...]]], optimizers: dict[int, Any], model: int, stage: int
) -> Iterator[MasterWeights]:
    """Stage 3: each parameter in pieces of ceil(n / d), the last one padded, one after the other in each rank's groups."""
    ways = 1 + max(optimizers, default=0)
    at = 0
    sizes = _group_sizes(next(iter(optimizers.values()), None))
    for names in shapes:
        for name, shape in names.items():
            count = math.prod(shape)
            each = -(-count // ways)
            group, start = _within(sizes, at)
            held = [(data, group, start, min(each, count - data * each)) for data in range(ways)]
            yield MasterWeights(name=name, global_shape=shape, fragments=tuple(one for one in held if one[3] > 0), model=model, stage=stage)
            at += each


def _group_sizes(value: Any) -> list[int]:
    state = value.get("optimizer_state_dict") if isinstance(value, dict) else None
    groups = state.get("fp32_flat_groups") if isinstance(state, dict) else None
    return [each.elements for each in groups if isinstance(each, StoredTensor)] if isinstance(groups, (list, tuple)) else []


def _within(sizes: list[int], at: int) -> tuple[int, int]:
    """Which group a place in the sequence of all groups lies in, and where in it."""
    for group, size in enumerate(sizes):
        if at < size:
            return group, at
        at -= size
    return max(len(sizes) - 1, 0), at
