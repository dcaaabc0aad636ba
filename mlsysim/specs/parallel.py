"""A parallel plan: which rank holds which part of a tensor, and which of those that hold it writes it."""

from __future__ import annotations

from attrs import field, frozen

from mlsysim.errors import InputError
from mlsysim.fields import choice, count, take_count
from mlsysim.specs.sharding import Rows, Sharding
from mlsysim.specs.tensor import Tensor
from mlsysim.specs.writers import Balanced, Writers

__all__ = ["ParallelPlan", "Placed"]

_MOST = 2**31


@frozen(kw_only=True)
class Placed:
    """A tensor with what a plan needs to know of it.

    Parameters
    ----------
    tensor : Tensor
    stage : int
        Pipeline stage that holds it.
    tensor_axis : int or None
        Axis along which tensor parallelism cuts it; None where every tensor-parallel rank holds it whole.
    sharded : bool
        Whether data parallelism may shard it; buffers and step counters stay whole on every rank.
    expert : int or None
        Expert-parallel rank that holds it, where it belongs to an expert.
    everywhere : bool
        Whether every stage holds it.
    trained : bool
        Whether it has optimizer state; a buffer has none.
    """

    tensor: Tensor
    stage: int = 0
    tensor_axis: int | None = None
    sharded: bool = True
    expert: int | None = None
    everywhere: bool = False
    trained: bool = True

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.tensor, Tensor):
            raise InputError("Placed.tensor", "a Tensor", self.tensor, 'Write tensor=Tensor(name="w", shape=(4, 4), dtype="float32").')
        for name in ("sharded", "everywhere", "trained"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"Placed.{name}", "True or False", getattr(self, name), f"Write {name}=True.")
        for name, given in (("stage", self.stage), ("expert", 0 if self.expert is None else self.expert)):
            if type(given) is not int or not 0 <= given < _MOST:
                raise InputError(f"Placed.{name}", "a whole number of at least 0", given, f"Write {name}=0, say.")
        axes, axis = len(self.tensor.shape), self.tensor_axis
        if axis is not None and (type(axis) is not int or not 0 <= axis < axes):
            raise InputError("Placed.tensor_axis", f"an axis of {self.tensor.name}, below {axes}", axis, "Leave it out for no cut.")


def _layers(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, (tuple, list)):
        raise InputError("ParallelPlan.stage_layers", "a tuple of layers of each stage", value, "Write stage_layers=(4, 4, 3), say.")
    return tuple(take_count(each, "ParallelPlan.stage_layers") for each in value)


@frozen(kw_only=True)
class ParallelPlan:
    """Degrees of parallelism; rank = tensor + T (context + C (data + D pipeline)), as Megatron and device meshes order them.

    Parameters
    ----------
    tensor, pipeline, data, context : int
        Degrees. Context parallelism replicates the state.
    expert : int, optional
        Degree of expert parallelism, within the data-parallel ranks; to be given where the model has experts.
    zero : int
        ZeRO stage, 0 to 3: from 1 the optimizer is sharded over the data-parallel ranks, from 2 gradients, from 3 weights.
        Fully sharded data parallelism is 3.
    shard_group : int, optional
        Ranks that share one sharded copy, where the data-parallel ranks hold several (HSDP); all of them where left out.
    stage_layers : tuple of int, optional
        Layers of each pipeline stage; left out, one more for each of the first stages where they do not divide.
    vocabulary_multiple : int
        The vocabulary is padded to a multiple of this times ``tensor``.
    devices_per_process : int
        Devices that one writing process drives, as in JAX; the ranks of a layout are then processes.
    sharding : Sharding
        How a tensor is cut over the data-parallel ranks.
    writers : Writers
        Who writes what several ranks hold.

    Raises
    ------
    InputError
        If a degree is no count, zero is not 0 to 3, shard_group or expert does not divide data, or stage_layers does not have
        one entry for each stage.

    Examples
    --------
    >>> ParallelPlan(tensor=8, pipeline=16, data=128, zero=1).ranks
    16384
    """

    tensor: int = count(default=1)
    pipeline: int = count(default=1)
    data: int = count(default=1)
    context: int = count(default=1)
    expert: int | None = count(optional=True)
    zero: int = field(default=0)
    shard_group: int | None = count(optional=True)
    stage_layers: tuple[int, ...] | None = field(default=None, converter=_layers)
    vocabulary_multiple: int = count(default=1)
    devices_per_process: int = count(default=1)
    sharding: Sharding = choice(Sharding, example="Rows()", default=Rows())
    writers: Writers = choice(Writers, example="Balanced()", default=Balanced())

    def __attrs_post_init__(self) -> None:
        if type(self.zero) is not int or not 0 <= self.zero <= 3:
            raise InputError("ParallelPlan.zero", "a ZeRO stage from 0 to 3", self.zero, "Write zero=1, or zero=3 for FSDP.")
        for name in ("shard_group", "expert"):
            value = getattr(self, name)
            if value is not None and self.data * self.context % value:
                whole = self.data * self.context
                raise InputError(f"ParallelPlan.{name}", f"a divisor of data x context, {whole}", value, f"Write {name}={whole}, say.")
        if self.ranks % self.devices_per_process:
            fix = "Write devices_per_process=8, say."
            raise InputError("ParallelPlan.devices_per_process", f"a divisor of {self.ranks} ranks", self.devices_per_process, fix)
        if self.stage_layers is not None and len(self.stage_layers) != self.pipeline:
            given = f"{len(self.stage_layers)} entries"
            raise InputError("ParallelPlan.stage_layers", f"one entry for each of {self.pipeline} stages", given, "Name them all.")

    @property
    def ranks(self) -> int:
        """Ranks of the whole job."""
        return self.tensor * self.pipeline * self.data * self.context

    @property
    def processes(self) -> int:
        """Processes that write."""
        return self.ranks // self.devices_per_process

    @property
    def replicas(self) -> int:
        """Ranks that hold the same state where nothing is sharded: data times context."""
        return self.data * self.context

    @property
    def expert_ways(self) -> int:
        """Groups that the experts are spread over."""
        return self.expert or 1

    @property
    def shards(self) -> int:
        """Parts that a sharded tensor is cut into."""
        return self.shard_group or self.replicas

    def layers_of(self, layers: int) -> tuple[int, ...]:
        """Layers of each stage.

        Raises
        ------
        InputError
            If a stage would have none, or ``stage_layers`` does not add up.
        """
        if self.stage_layers is not None:
            if sum(self.stage_layers) != layers:
                fix = "Let them add up to the model's layers."
                raise InputError("ParallelPlan.stage_layers", f"{layers} layers in all", sum(self.stage_layers), fix)
            return self.stage_layers
        each, more = divmod(layers, self.pipeline)
        if not each:
            raise InputError("ParallelPlan.pipeline", f"at most the {layers} layers", self.pipeline, "A stage without layers does nothing.")
        return tuple(each + (stage < more) for stage in range(self.pipeline))
