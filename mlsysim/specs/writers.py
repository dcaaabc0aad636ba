"""Who writes what several ranks hold."""

from __future__ import annotations

from attrs import frozen

__all__ = ["Balanced", "EveryHolder", "FullyParallel", "LowestRank", "ReplicaParallel", "Writers"]


class Writers:
    """Who writes what several ranks hold. Abstract."""

    __slots__ = ()


@frozen(kw_only=True)
class EveryHolder(Writers):
    """Every rank writes all that it holds, as a save without collectives does."""


@frozen(kw_only=True)
class LowestRank(Writers):
    """The lowest rank that holds it, as Megatron-core's plain save does, and PyTorch's with ``dedup_save_to_lowest_rank``."""


@frozen(kw_only=True)
class Balanced(Writers):
    """The holder with the least so far, counting the bytes of whole tensors, as PyTorch's distributed checkpoint does."""


@frozen(kw_only=True)
class FullyParallel(Writers):
    """The data-parallel ranks of the lowest holder share its parts out, as Megatron-core's fully parallel save does.

    What fewer of them hold comes first, then what is larger; each part goes to the one with the fewest bytes so far.
    """


@frozen(kw_only=True)
class ReplicaParallel(Writers):
    """The holders share it along the first axis that divides; where none does, the lowest rank writes it, as Orbax does."""
