"""What a save holds for each parameter: which 12, 14, 16 or 18 bytes it was.

A recipe is a list of components (weights, master weights, moments, ...); each says by a rule which arrays it keeps for a
tensor of the model. What is not per parameter (factored moments, block scales, adapters) is counted as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs
from attrs import field, frozen

from mlsysim.errors import InputError, nearest
from mlsysim.fields import BYTES_PER_PARAM, choice, count, give, part, text
from mlsysim.specs.dtypes import known_dtypes
from mlsysim.specs.tensor import Tensor
from mlsysim.specs.writers import Writers
from mlsysim.units import Quantity

__all__ = ["Adapters", "Blockwise", "Component", "Every", "Factored", "Matrices", "Others", "Rule", "Scalar", "StateRecipe"]


def _dtype(*, optional: bool = False) -> Any:
    """An attrs field that holds an element type by name."""

    def convert(value: object, owner: object, attribute: attrs.Attribute[Any]) -> str | None:
        if value is None and optional:
            return None
        if not isinstance(value, str) or value not in known_dtypes():
            place = f"{type(owner).__name__}.{attribute.name}"
            raise InputError(place, "a known element type", value, nearest(value, known_dtypes()))
        return str(value)

    converter = attrs.Converter(convert, takes_self=True, takes_field=True)
    return field(converter=converter, default=None) if optional else field(converter=converter)


class Rule:
    """Which arrays a component keeps for a tensor of the model. Abstract."""

    __slots__ = ()

    def kept(self, tensor: Tensor, dtype: str) -> Iterator[Tensor]:
        """Arrays kept for one tensor: a suffix as the name, shape and element type."""
        raise NotImplementedError


@frozen(kw_only=True)
class Every(Rule):
    """One element for each of the tensor's."""

    def kept(self, tensor: Tensor, dtype: str) -> Iterator[Tensor]:  # noqa: D102
        yield Tensor(name="", shape=tensor.shape, dtype=dtype)


@frozen(kw_only=True)
class Matrices(Rule):
    """One element for each of a hidden matrix's; nothing for vectors, embeddings and output layers, as in Muon."""

    def kept(self, tensor: Tensor, dtype: str) -> Iterator[Tensor]:  # noqa: D102
        if _hidden_matrix(tensor):
            yield Tensor(name="", shape=tensor.shape, dtype=dtype)


@frozen(kw_only=True)
class Others(Rule):
    """One element for each of what ``Matrices`` leaves out."""

    def kept(self, tensor: Tensor, dtype: str) -> Iterator[Tensor]:  # noqa: D102
        if not _hidden_matrix(tensor):
            yield Tensor(name="", shape=tensor.shape, dtype=dtype)


@frozen(kw_only=True)
class Scalar(Rule):
    """One number for each tensor, as PyTorch keeps the step count of Adam."""

    def kept(self, tensor: Tensor, dtype: str) -> Iterator[Tensor]:  # noqa: ARG002, D102
        yield Tensor(name="", shape=(), dtype=dtype)


@frozen(kw_only=True)
class Factored(Rule):
    """A row and a column of sums for a matrix whose last two axes reach ``least``; every element elsewhere."""

    least: int = count(default=128)

    def kept(self, tensor: Tensor, dtype: str) -> Iterator[Tensor]:  # noqa: D102
        if len(tensor.shape) < 2 or min(tensor.shape[-2:]) < self.least:
            yield Tensor(name="", shape=tensor.shape, dtype=dtype)
        else:
            yield Tensor(name=".row", shape=tensor.shape[:-1], dtype=dtype)
            yield Tensor(name=".column", shape=(*tensor.shape[:-2], tensor.shape[-1]), dtype=dtype)


@frozen(kw_only=True)
class Blockwise(Rule):
    """A byte for each element and one fp32 scale for each block; tensors under ``least`` elements stay fp32."""

    block: int = count(default=256)
    least: int = count(default=4096)

    def kept(self, tensor: Tensor, dtype: str) -> Iterator[Tensor]:  # noqa: D102
        if tensor.elements < self.least:
            yield Tensor(name="", shape=tensor.shape, dtype="float32")
        else:
            yield Tensor(name="", shape=tensor.shape, dtype=dtype)
            yield Tensor(name=".absmax", shape=(-(-tensor.elements // self.block),), dtype="float32")


def _hidden_matrix(tensor: Tensor) -> bool:
    """Whether a tensor is a matrix inside the network: no vector, no embedding, no output layer."""
    return len(tensor.shape) >= 2 and not any(part in tensor.name for part in ("embedding", "embed", "head.", "lm_head"))


@frozen(kw_only=True)
class Component:
    """One thing that a save keeps.

    Parameters
    ----------
    name : str
        ``"weights"``, ``"master weights"``, ``"first moment"``, ...
    dtype : str
        Numpy's or ml_dtypes' name.
    rule : Rule
        One element for each of a tensor's, unless said otherwise.
    sharded_from : int
        ZeRO stage from which it is sharded over the data-parallel ranks: 1 for optimizer state, 2 for gradients, 3 for weights.
    writers : Writers, optional
        Who writes it, where that differs from the plan's.
    prefix, suffix : str
        What stands before and after the tensor's name in a layout: ``"optimizer.exp_avg."``.
    """

    name: str = text()
    dtype: str = _dtype()
    rule: Rule = choice(Rule, example="Every()", default=Every())
    sharded_from: int = count(default=1)
    writers: Writers | None = choice(Writers, example="LowestRank()", optional=True)
    prefix: str = part()
    suffix: str = part()


def _names(value: Any) -> tuple[str, ...]:
    # a text alone would be taken for its letters
    if not isinstance(value, (tuple, list)) or not all(isinstance(each, str) and each for each in value):
        raise InputError("Adapters.on", "parts of names", value, 'Write on=("query", "value"), say.')
    return tuple(value)


@frozen(kw_only=True)
class Adapters:
    """Low-rank adapters, trained in the place of the matrices that they are put on.

    Parameters
    ----------
    rank : int
        Each matrix gets one of ``rank`` rows and one of ``rank`` columns.
    on : tuple of str
        Parts of the names of the matrices that get one; all hidden matrices where empty.
    base : str or None
        Element type of the frozen base where a save holds it too; None saves the adapters only.
    """

    rank: int = count()
    on: tuple[str, ...] = field(default=(), converter=_names)
    base: str | None = _dtype(optional=True)

    def pair(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """The two matrices that are trained in the place of one; none where it gets no adapter."""
        if not _hidden_matrix(tensor) or (self.on and not any(part in tensor.name for part in self.on)):
            return ()
        *stack, rows, columns = tensor.shape
        return (
            attrs.evolve(tensor, name=f"{tensor.name}.lora_a", shape=(*stack, self.rank, columns)),
            attrs.evolve(tensor, name=f"{tensor.name}.lora_b", shape=(*stack, rows, self.rank)),
        )

    @property
    def frozen_base(self) -> Component | None:
        """The component that holds the frozen base, where a save does."""
        return None if self.base is None else Component(name="frozen base", dtype=self.base, sharded_from=3)


def _components(value: Any) -> tuple[Component, ...]:
    if not isinstance(value, (tuple, list)) or not all(isinstance(each, Component) for each in value):
        fix = 'Write components=(Component(name="weights", dtype="bfloat16"), ...).'
        raise InputError("StateRecipe.components", "a tuple of Component", value, fix)
    return tuple(value)


@frozen(kw_only=True)
class StateRecipe:
    """What a save holds, component by component.

    Parameters
    ----------
    name : str
        Named in the result, so that nobody has to guess which bytes per parameter it was.
    components : tuple of Component
    adapters : Adapters, optional
        Where only low-rank adapters are trained.

    Raises
    ------
    InputError
        If there is no component, or two have one name.

    Examples
    --------
    >>> recipe = StateRecipe(name="mixed precision Adam", components=(
    ...     Component(name="weights", dtype="bfloat16"), Component(name="master weights", dtype="float32"),
    ...     Component(name="first moment", dtype="float32"), Component(name="second moment", dtype="float32")))
    >>> print(recipe.bytes_per_param([Tensor(name="w", shape=(4096, 4096), dtype="bfloat16")]))
    14.0 byte / parameter
    """

    name: str = text()
    components: tuple[Component, ...] = field(converter=_components)
    adapters: Adapters | None = choice(Adapters, example="Adapters(rank=16)", optional=True)

    def __attrs_post_init__(self) -> None:
        names = [each.name for each in self.components]
        if not names or len(set(names)) != len(names):
            fix = 'Write components=(Component(name="weights", dtype="bfloat16"), ...).'
            raise InputError("StateRecipe.components", "at least one, each with a name of its own", names, fix)

    def state(self, tensors: Iterable[Tensor]) -> Iterator[tuple[Component, Tensor]]:
        """Every array that a save of these tensors keeps, with its component."""
        trained = list(tensors)
        if self.adapters is not None:
            base = self.adapters.frozen_base
            if base is not None:
                yield from ((base, attrs.evolve(each, dtype=base.dtype)) for each in trained)
            trained = [adapter for each in trained for adapter in self.adapters.pair(each)]
        for component in self.components:
            for tensor in trained:
                for kept in component.rule.kept(tensor, component.dtype):
                    yield component, attrs.evolve(kept, name=f"{component.prefix}{tensor.name}{kept.name}{component.suffix}")

    def bytes_by_component(self, tensors: Iterable[Tensor]) -> dict[str, int]:
        """Bytes of one copy, component by component."""
        totals: dict[str, int] = {}
        for component, tensor in self.state(tensors):
            totals[component.name] = totals.get(component.name, 0) + tensor.bytes
        return totals

    def bytes_per_param(self, tensors: Iterable[Tensor]) -> Quantity:
        """Bytes that a save of these tensors holds, over their number of parameters.

        Raises
        ------
        InputError
            If the tensors have no elements.
        """
        listed = list(tensors)
        parameters = sum(each.elements for each in listed)
        if not parameters:
            raise InputError("StateRecipe.bytes_per_param", "asked for tensors with elements", "none", "Give the tensors of a model.")
        return give(sum(self.bytes_by_component(listed).values()) / parameters, BYTES_PER_PARAM)
