"""Parts that only some transformers have: a choice of experts, and attention through latents."""

from __future__ import annotations

from attrs import frozen

from mlsysim.errors import InputError
from mlsysim.fields import count, flag

__all__ = ["Experts", "LatentAttention"]


@frozen(kw_only=True)
class Experts:
    """Feed-forward layers that are a choice of experts.

    Parameters
    ----------
    number, active : int
        Experts of a layer, and how many of them a token uses.
    feed_forward : int
        Width of one expert.
    shared : int, optional
        Experts that every token uses besides; they are stored as one of so many times the width.
    dense_layers : int, optional
        First layers that have no experts.
    layer_step : int, optional
        Only layers whose number, from 0, is a multiple of it have experts; every layer where left out.
    correction_bias : bool
        Whether the router keeps a bias for each expert, as DeepSeek-V3's does.
    shared_expert_gate : bool
        Whether the shared experts have a gate of their own, as Qwen's do.

    Raises
    ------
    InputError
        If a size is no count, more experts are active than there are, or a gate has no shared expert.

    Examples
    --------
    >>> Experts(number=8, active=9, feed_forward=14336)
    Traceback (most recent call last):
    ...
    mlsysim.errors.InputError: Experts.active must be at most number, 8; got 9. Write active=2, say.
    """

    number: int = count()
    active: int = count()
    feed_forward: int = count()
    shared: int | None = count(optional=True)
    dense_layers: int | None = count(optional=True)
    layer_step: int | None = count(optional=True)
    correction_bias: bool = flag()
    shared_expert_gate: bool = flag()

    def __attrs_post_init__(self) -> None:
        if self.active > self.number:
            raise InputError("Experts.active", f"at most number, {self.number}", self.active, f"Write active={min(2, self.number)}, say.")
        if self.shared_expert_gate and self.shared is None:
            raise InputError("Experts.shared_expert_gate", "False where there is no shared expert", True, "Write shared=1 as well.")

    def in_layer(self, layer: int) -> bool:
        """Whether a layer, counted from 0, has experts."""
        return layer >= (self.dense_layers or 0) and layer % (self.layer_step or 1) == 0


@frozen(kw_only=True)
class LatentAttention:
    """Attention through low-rank latents, as in DeepSeek-V2 and V3.

    Parameters
    ----------
    key_value_rank : int
        Size of the latent that keys and values are made from.
    query_rank : int, optional
        Size of the latent that queries are made from; left out, the query is one full matrix, as in DeepSeek-V2-Lite.
    position_free_size, rotary_size, value_size : int
        Sizes of one head: the part of query and key without position, the rotary part, the value.

    Raises
    ------
    InputError
        If a size is no count.

    References
    ----------
    DeepSeek-V2, arXiv:2405.04434, section 2.1.

    Examples
    --------
    >>> LatentAttention(key_value_rank=512, position_free_size=128, rotary_size=64, value_size=128).query_rank is None
    True
    """

    key_value_rank: int = count()
    query_rank: int | None = count(optional=True)
    position_free_size: int = count()
    rotary_size: int = count()
    value_size: int = count()
