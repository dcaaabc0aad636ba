"""What one DeepSpeed file holds: its arrays by name, and what it says of stages, groups and parameters, every field checked."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

from attrs import field, frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.deepspeed_files import DeepSpeedFile
from mlsysim.layout.pickles import Inert
from mlsysim.layout.torch_zip import StoredTensor, TorchArchive
from mlsysim.specs.dtypes import numpy_dtype

__all__ = ["FLAT", "Group", "State", "StatePart", "state_of"]

_FIX = "Refuse this file, or ask who made it."
_LONGEST_NAME = 1000
# groups, and parameters in all groups together, of one file: what a pickle says once it may refer to again and again
_MOST_GROUPS, _MOST_PARAMETERS = 1_000_000, 4_000_000
# bytes that the names of a file's tensors and containers may take, with as much again for each as it takes besides
_MOST_NAMES, _EACH_NAME = 2**30, 200
_LARGEST = 2**62
FLAT = {"single_partition_of_fp32_groups": "base_optimizer_state", "fp32_flat_groups": "optimizer_state_dict"}
# what DeepSpeed itself puts in a model file; the rest is the user's
_OWN = frozenset((
    "module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes", "shared_params", "frozen_param_fragments",
    "lr_scheduler", "data_sampler", "random_ltd", "sparse_tensor_module_names", "csr_tensor_module_names", "skipped_steps",
    "global_steps", "global_samples", "dp_world_size", "mp_world_size", "checkpoint_parallel_dimensions", "ds_config", "ds_version",
    "num_experts", "ds_autoep_layers", "autoep_layers", "universal_checkpoint_info", "folding", "loss_scaler", "rng_states",
))  # fmt: skip


@frozen(kw_only=True, eq=False)
class StatePart:
    """An array in a file.

    Parameters
    ----------
    name : str
        In the layout.
    tensor : StoredTensor
    payload : int
        Bytes of its storage that are its own, padding behind it included; those that an earlier tensor has are not counted again.
    group : int or None
        The flat group that it is a rank's part of; -1 for a frozen parameter's part, None for what is whole.
    """

    name: str
    tensor: StoredTensor
    payload: int
    group: int | None = None


@frozen(kw_only=True, eq=False)
class Group:
    """A flat group as a rank's optimizer file has it.

    Parameters
    ----------
    elements : int
        Of the rank's part of the master weights, without padding where it was cut off.
    padded : int
        With it.
    ways : int
        Ranks that share the group; 0 where the file does not say.
    slices : dict of str to (int, int) or None
        Stages 1 and 2: where each parameter begins in the part, and how many elements of it are there.
    dtype : str
    """

    elements: int
    padded: int
    ways: int = 0
    slices: dict[str, tuple[int, int]] | None = None
    dtype: str = "float32"


@frozen(kw_only=True, eq=False)
class State:
    """A file read: what its pickle says, without its objects.

    Parameters
    ----------
    file : DeepSpeedFile
    archive : TorchArchive
        Without its value.
    parts : tuple of StatePart
    stage : int or None
    groups : tuple of Group
        Of an optimizer file.
    paddings : tuple of tuple of int
        Of an optimizer file: elements of padding behind each parameter of each group.
    shapes : tuple of dict of str to tuple of int
        Of a model file: parameters and their shapes, by group in the order of the flat groups.
    frozen_shapes, tied : dict
        Of a model file; of tied parameters, the one that has no master weights of its own and the one that has.
    same : dict of str to str
        Tensors that are the same view of the same storage as another, and that one.
    placeholders : int
        Tensors without elements that stand for parameters that lie in the optimizer files.
    experts : int
        Of a model file: experts of a layer, 0 without.
    degrees : dict of str to int
        Parallel degrees that the file tells.
    objects : tuple of str
        What a user put in and is no tensor.
    odd : str
        What of it is not covered.
    """

    file: DeepSpeedFile
    archive: TorchArchive
    parts: tuple[StatePart, ...]
    stage: int | None = None
    groups: tuple[Group, ...] = ()
    paddings: tuple[tuple[int, ...], ...] = ()
    shapes: tuple[dict[str, tuple[int, ...]], ...] = ()
    frozen_shapes: dict[str, tuple[int, ...]] = field(factory=dict)
    tied: dict[str, str] = field(factory=dict)
    same: dict[str, str] = field(factory=dict)
    placeholders: int = 0
    experts: int = 0
    degrees: dict[str, int] = field(factory=dict)
    objects: tuple[str, ...] = ()
    odd: str = ""


def state_of(file: DeepSpeedFile, archive: TorchArchive, bare: TorchArchive) -> State:
    """What a file holds.

    Parameters
    ----------
    file : DeepSpeedFile
    archive : TorchArchive
    bare : TorchArchive
        The same without its value, which is kept.

    Raises
    ------
    InputError
        If it is no dict, or a field has a value that it cannot have.
    """
    value = archive.value
    if type(value) is not dict:
        raise InputError(file.name, "a dict, as DeepSpeed saves one", Shown(type(value).__name__), _FIX)
    found = list(_tensors(value, file.name))
    config = _dict(value.get("ds_config"))
    if file.kind == "optimizer":
        state = _dict(value.get("optimizer_state_dict"))
        groups = _groups(state, file.name)
        parts, same = _parts(found, archive, lambda path: _optimizer_name(path, state), groups, {}, False)
        odd = "its parameters are partitioned over groups of their own" if "ds_zero_partition_groups" in state else ""
        return State(
            file=file, archive=bare, parts=parts, same=same, stage=_stage(state, config), groups=groups, odd=odd,
            paddings=_paddings(state, len(groups), file.name),
        )  # fmt: skip
    if file.kind in ("layer", "expert"):
        lead = f"module.{file.number}." if file.kind == "layer" else "module."
        parts, same = _parts(found, archive, lambda path: lead + path, (), {}, False)
        return State(file=file, archive=bare, parts=parts, same=same)
    shapes = tuple(_shapes(each, file.name) for each in _few(_list(value.get("param_shapes"), file.name), file.name))
    frozen_shapes = _shapes(value.get("frozen_param_shapes"), file.name)
    cut = file.kind == "sharded model"
    named = _list(value.get("buffer_names"), file.name)
    buffers = {f"module.{each}" for each in named if type(each) is str and len(each) < _LONGEST_NAME}
    kept = [(path, each) for path, each in found if not cut or each.elements or not path.startswith("module.") or path in buffers]
    tied = {
        one: each for one, each in _dict(value.get("shared_params")).items()
        if type(one) is type(each) is str and max(len(one), len(each)) < _LONGEST_NAME
    }  # fmt: skip
    dims = _dict(value.get("checkpoint_parallel_dimensions"))
    said = {"data": value.get("dp_world_size"), "model": value.get("mp_world_size"), "tensor": dims.get("tp_degree")}
    parts, same = _parts(kept, archive, lambda path: path, (), tied, cut)
    parallel = _dict(_dict(config.get("checkpoint")).get("parallel_write")).get("pipeline_stage")
    return State(
        file=file, archive=bare, parts=parts, same=same, stage=_stage({}, config), shapes=shapes, frozen_shapes=frozen_shapes, tied=tied,
        placeholders=len(found) - len(kept), experts=_experts(value.get("num_experts")),
        degrees={key: each for key, each in (said | {"spread": int(parallel is True)}).items() if type(each) is int and each > 0},
        objects=tuple(each for each in value if type(each) is str and each not in _OWN and type(value[each]) is not StoredTensor),
        odd="its experts are partitioned over groups of their own" if cut and _experts(value.get("num_experts")) else "",
    )  # fmt: skip


def _dict(value: Any) -> dict[Any, Any]:
    return value if type(value) is dict else {}


def _list(value: Any, place: str) -> list[Any]:
    if type(value) is dict:
        return [value]
    found = list(value) if type(value) in (list, tuple) else []
    if len(found) > _MOST_GROUPS:
        raise InputError(place, f"of at most {_MOST_GROUPS:,} groups", Shown(f"{len(found):,}"), _FIX)
    return found


def _tensors(value: Any, place: str) -> Iterator[tuple[str, StoredTensor]]:
    """Tensors in nested dicts, lists and objects, by the shortest path to each container, which is walked once."""
    waiting: deque[tuple[str, Any]] = deque([("", value)])
    seen: set[int] = {id(value)}
    spent = 0
    while waiting:
        for path, each in _inside(*waiting.popleft(), place):
            if id(each) in seen and type(each) is not StoredTensor:
                continue
            spent += len(path) + _EACH_NAME
            if spent > _MOST_NAMES:
                raise InputError(place, f"of names that take at most {_MOST_NAMES:,} byte", Shown("more"), _FIX)
            if type(each) is StoredTensor:
                yield path, each
            else:
                seen.add(id(each))
                waiting.append((path, each))


def _inside(path: str, value: Any, place: str) -> Iterator[tuple[str, Any]]:
    items: list[tuple[Any, Any]] = []
    if type(value) is dict:
        items = list(value.items())
    elif type(value) in (list, tuple, set, frozenset):
        items = list(enumerate(value))
    elif type(value) is Inert:
        items = [*enumerate(value.args), *enumerate(value.items), *value.pairs]
        items += value.state.items() if type(value.state) is dict else [("state", value.state)]
    for number, (key, each) in enumerate(items):
        if type(each) in (StoredTensor, dict, list, tuple, set, frozenset, Inert):
            named = str(key) if type(key) in (str, int) and (type(key) is str or abs(key) < _LARGEST) else f"{number}"
            if len(path) + len(named) >= _LONGEST_NAME:
                raise InputError(place, f"of names of less than {_LONGEST_NAME:,} characters", named[:40], _FIX)
            yield (f"{path}.{named}" if path else named), each


def _optimizer_name(path: str, state: dict[Any, Any]) -> str:
    """Name in the layout of a tensor of an optimizer file: the state by group, whichever way it was saved."""
    inner = path.removeprefix("optimizer_state_dict.")
    if inner == path:
        return path
    for base in FLAT.values():
        lead = f"{base}." if type(state.get(base)) is list else f"{base}.state."
        if inner.startswith(lead):
            return "optimizer.state." + inner.removeprefix(lead)
    return "optimizer." + inner


def _parts(
    found: list[tuple[str, StoredTensor]], archive: TorchArchive, named: Any, groups: tuple[Group, ...], tied: dict[str, str], cut: bool
) -> tuple[tuple[StatePart, ...], dict[str, str]]:
    """The arrays of a file under their names; one that is the same view as an earlier one comes once, and is told beside."""
    same: dict[str, str] = {}
    kept: list[tuple[str, StoredTensor]] = []
    seen: dict[Any, str] = {}
    names: dict[str, int] = {}
    # of tied parameters, the one that holds the data comes first
    alias = {f"module.{each}" for each in tied}
    for path, tensor in sorted(found, key=lambda each: each[0] in alias) if alias else found:
        name = named(path)
        if tensor.storage is not None and tensor.elements:
            lies = (tensor.storage.key, tensor.dtype, tensor.offset, tensor.shape, tensor.stride)
            if lies in seen:
                same[name] = seen[lies]
                continue
            seen[lies] = name
        names[name] = names.get(name, 0) + 1
        kept.append((name if names[name] == 1 else f"{name}#{names[name]}", tensor))
    payload = _shares([tensor for _, tensor in kept], archive)
    parts = tuple(
        StatePart(name=name, tensor=tensor, payload=size, group=_group_of(name, tensor, groups, cut))
        for (name, tensor), size in zip(kept, payload, strict=True)
    )
    return parts, same


def _group_of(name: str, tensor: StoredTensor, groups: tuple[Group, ...], cut: bool) -> int | None:
    """The flat group that an array is a part of: it has one axis, and the size of the group's part."""
    if len(tensor.shape) != 1:
        return None
    if cut and name.startswith("frozen_param_fragments."):
        return -1
    owner, _, rest = name.removeprefix("optimizer.").partition(".")
    number, _, key = rest.partition(".")
    if not (number.isascii() and number.isdigit()) or len(number) > 9 or int(number) >= len(groups):
        return None
    group = groups[int(number)]
    if (owner in FLAT and not key) or (owner == "state" and key and tensor.elements in (group.elements, group.padded)):
        return int(number)
    return None


def _shares(tensors: list[StoredTensor], archive: TorchArchive) -> list[int]:
    """Bytes of each tensor's storage that are its own: storages are counted once, and whole, as the zip's directory has them."""
    shares = [0] * len(tensors)
    by_storage: dict[str, list[int]] = {}
    for place, tensor in enumerate(tensors):
        if tensor.storage is not None:
            by_storage.setdefault(tensor.storage.key, []).append(place)
    for key, places in by_storage.items():
        member = archive.members.get(f"data/{key}")
        size = member.size if member is not None else 0
        spans = []
        for place in places:
            tensor = tensors[place]
            item = numpy_dtype(tensor.dtype).itemsize
            spans.append((tensor.offset * item, (tensor.offset + tensor.reach) * item, place))
        spans.sort()
        starts = [*(min(start, size) for start, _, _ in spans[1:]), size]
        reach = 0
        for (_, stop, place), following in zip(spans, starts, strict=True):
            # its elements that no earlier one has, and what lies unused between it and the next
            end = max(min(stop, size), following, reach)
            shares[place] = end - reach
            reach = end
    return shares


def _stage(state: dict[Any, Any], config: dict[Any, Any]) -> int | None:
    """ZeRO stage that a file tells: of its optimizer, or else of its configuration."""
    said = state.get("zero_stage")
    if type(said) is Inert:
        said = said.args[0] if said.args else None
    if said is None:
        said = _dict(config.get("zero_optimization")).get("stage")
    return said if type(said) is int and 0 <= said <= 3 else None


def _groups(state: dict[Any, Any], place: str) -> tuple[Group, ...]:
    """The flat groups of an optimizer file."""
    key = next((each for each in FLAT if type(state.get(each)) in (list, tuple)), "")
    tensors = _list(state.get(key), place)
    counts, paddings, mappings = state.get("partition_count"), state.get("group_paddings"), state.get("param_slice_mappings")
    _few(_list(mappings, place)[: len(tensors)], place)
    found = []
    for number, tensor in enumerate(tensors):
        if type(tensor) is not StoredTensor:
            raise InputError(f"{place}: {key}", "a list of tensors", Shown(type(tensor).__name__), _FIX)
        padding = _count(paddings, number)
        stored = tensor.storage.bytes // numpy_dtype(tensor.dtype).itemsize if tensor.storage is not None else 0
        padded = tensor.elements + padding
        found.append(Group(
            elements=tensor.elements, padded=padded if padded <= max(stored, tensor.elements) else tensor.elements, dtype=tensor.dtype,
            ways=counts if type(counts) is int and 0 < counts < _LARGEST else _count(counts, number), slices=_slices(mappings, number),
        ))  # fmt: skip
    return tuple(found)


def _few(groups: list[Any], place: str) -> list[Any]:
    """The same; refused if they hold too many parameters together."""
    count = sum(len(each) for each in groups if type(each) in (dict, list, tuple))
    if count > _MOST_PARAMETERS:
        raise InputError(place, f"of at most {_MOST_PARAMETERS:,} parameters", Shown(f"{count:,}"), _FIX)
    return groups


def _count(values: Any, number: int) -> int:
    value = values[number] if isinstance(values, (list, tuple)) and number < len(values) else 0
    return value if type(value) is int and 0 < value < _LARGEST else 0


def _paddings(state: dict[Any, Any], count: int, place: str) -> tuple[tuple[int, ...], ...]:
    groups = _few(_list(state.get("param_alignment_paddings"), place)[:count], place)
    return tuple(tuple(_count(each, place) for place in range(len(each))) if type(each) in (list, tuple) else () for each in groups)


def _slices(mappings: Any, number: int) -> dict[str, tuple[int, int]] | None:
    """Where each parameter begins in a rank's part of a group, and how many elements of it are there."""
    if type(mappings) not in (list, tuple) or number >= len(mappings) or type(mappings[number]) is not dict:
        return None
    found = {}
    for name, address in mappings[number].items():
        said = _dict(address.state) if type(address) is Inert else _dict(address)
        start, count = said.get("start"), said.get("numel")
        if (
            type(name) is str
            and len(name) < _LONGEST_NAME
            and type(start) is int
            and type(count) is int
            and 0 <= start < _LARGEST
            and 0 <= count < _LARGEST
        ):
            found[name] = (start, count)
    return found


def _shapes(group: Any, place: str) -> dict[str, tuple[int, ...]]:
    """Parameters and their shapes."""
    found = {}
    for name, shape in _dict(group).items():
        if type(name) is not str or len(name) >= _LONGEST_NAME or type(shape) not in (tuple, list) or len(shape) > 64:
            continue
        if not all(type(each) is int and 0 <= each < _LARGEST for each in shape) or math.prod(each for each in shape if each) >= _LARGEST:
            raise InputError(f"{place}: param_shapes", "of sizes below 2^62", name, _FIX)
        found[name] = tuple(shape)
    return found


def _experts(value: Any) -> int:
    """Experts of a layer, where all layers have as many."""
    counts = value if type(value) in (list, tuple) else [value]
    same = {each for each in counts if type(each) is int and 0 < each < _LARGEST} if len(counts) < _MOST_GROUPS else set()
    return same.pop() if len(same) == 1 else 0
