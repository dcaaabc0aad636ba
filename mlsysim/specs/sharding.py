"""How a tensor is cut over the ranks that share it."""

from __future__ import annotations

from attrs import frozen

from mlsysim.fields import count

__all__ = ["Flat", "Pieces", "Rows", "Sharding"]


class Sharding:
    """How a tensor is cut. Abstract."""

    __slots__ = ()


@frozen(kw_only=True)
class Rows(Sharding):
    """Along the first axis, ceil(n / d) rows to each of the first ranks and what is left to the last, as FSDP2 does."""


@frozen(kw_only=True)
class Flat(Sharding):
    """All tensors of a component one after the other, padded, in equal parts, as ZeRO 1 and 2 do.

    Parameters
    ----------
    alignment : int
        The whole is padded to a multiple of this times the number of parts.
    """

    alignment: int = count(default=2)


@frozen(kw_only=True)
class Pieces(Sharding):
    """Each tensor flat, in pieces of ceil(n / d), the last one padded, as ZeRO 3 does."""
