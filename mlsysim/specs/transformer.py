"""The shape of a transformer: its tensors by name and shape, and so its parameters, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

from attrs import field, frozen

from mlsysim.errors import InputError
from mlsysim.fields import PARAMETERS, count, flag, give
from mlsysim.specs.tensor import Tensor
from mlsysim.specs.transformer_parts import Experts, LatentAttention
from mlsysim.units import Quantity

__all__ = ["TransformerShape"]

Shapes: TypeAlias = Iterator[tuple[str, tuple[int, ...]]]

# beyond any model, and counted in seconds
_MOST_TENSORS = 500_000
# tensors of a layer besides its experts, rather too many
_MOST_BESIDES = 40


@frozen(kw_only=True)
class TransformerShape:
    """A decoder-only transformer by its sizes.

    Parameters
    ----------
    layers, hidden, feed_forward, heads, vocabulary : int
        ``feed_forward`` is the width of the layers without experts.
    kv_heads : int, optional
        Heads of keys and values; as many as ``heads`` where left out.
    head_size : int, optional
        ``hidden / heads`` where left out.
    positions : int, optional
        Rows of a learned table of positions.
    embedding_size : int, optional
        Width of the embedding; one that differs from ``hidden`` is projected, behind the embedding and before the output layer.
    tied_embeddings : bool
        Whether the output layer is the embedding, or there is none: it is then stored once.
    gated : bool
        Whether the feed-forward layer has a gate.
    query_key_value_biases, attention_output_biases, feed_forward_biases, norm_biases, head_bias : bool
        Biases on query, key and value; on the attention's output; in the feed-forward layers, experts included; in the norms; on
        the output layer. In latent attention the first are those on the projections from hidden to a latent.
    parallel_norm : bool
        Whether attention and feed-forward share one norm.
    post_norms : bool
        Whether attention and feed-forward have a norm after them as well, as in Gemma 2 and 3.
    query_key_norms : bool
        Whether query and key have a norm of one head's size, as in Qwen 3 and Gemma 3.
    embedding_norm, final_norm : bool
        A norm after the embedding, as in BLOOM, and after the last layer, as in nearly all.
    experts : Experts, optional
    latent : LatentAttention, optional
        In the place of query, key and value by heads.

    Raises
    ------
    InputError
        If a size is no count, hidden is no multiple of heads where head_size is left out, heads is no multiple of kv_heads,
        latent attention is given a kv_heads, head_size or query_key_norms, which it has no use for, or layers and experts make more
        than half a million tensors.

    Notes
    -----
    Assumes: every layer is like its neighbours, but for experts; separate tensors for query, key and value, and for gate and up,
    which count the same when they are stored fused. Ignores: buffers that are not trained (rotary frequencies, causal masks).

    Examples
    --------
    >>> llama = TransformerShape(
    ...     layers=32, hidden=4096, feed_forward=14336, heads=32, kv_heads=8, vocabulary=128256, gated=True)
    >>> f"{llama.parameter_count:,}"
    '8,030,261,248'
    >>> for tensor in list(llama.tensors())[:3]:
    ...     print(tensor.name, tensor.shape)
    embedding.weight (128256, 4096)
    layers.0.attention_norm.weight (4096,)
    layers.0.attention.query.weight (4096, 4096)
    """

    layers: int = count()
    hidden: int = count()
    feed_forward: int = count()
    heads: int = count()
    vocabulary: int = count()
    kv_heads: int | None = count(optional=True)
    head_size: int | None = count(optional=True)
    positions: int | None = count(optional=True)
    embedding_size: int | None = count(optional=True)
    tied_embeddings: bool = flag()
    gated: bool = flag()
    query_key_value_biases: bool = flag()
    attention_output_biases: bool = flag()
    feed_forward_biases: bool = flag()
    norm_biases: bool = flag()
    head_bias: bool = flag()
    parallel_norm: bool = flag()
    post_norms: bool = flag()
    query_key_norms: bool = flag()
    embedding_norm: bool = flag()
    final_norm: bool = flag(default=True)
    experts: Experts | None = field(default=None)
    latent: LatentAttention | None = field(default=None)

    def __attrs_post_init__(self) -> None:
        for name, kind in (("experts", Experts), ("latent", LatentAttention)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise InputError(f"TransformerShape.{name}", f"{kind.__name__} or None", value, f"Write {name}={kind.__name__}(...).")
        if self.latent is not None:
            for name in ("kv_heads", "head_size", "query_key_norms"):
                if getattr(self, name):
                    fix = "LatentAttention has the sizes of a head, and norms of its own."
                    raise InputError(f"TransformerShape.{name}", "left out beside latent", getattr(self, name), fix)
        elif self.head_size is None and self.hidden % self.heads:
            fix = "Write another number of heads, or give head_size."
            raise InputError("TransformerShape.heads", f"a divisor of hidden, {self.hidden}", self.heads, fix)
        if self.heads % self.key_value_heads:
            fix = f"Write kv_heads={math.gcd(self.heads, self.key_value_heads)}, say."
            raise InputError("TransformerShape.kv_heads", f"a divisor of heads, {self.heads}", self.kv_heads, fix)
        experts = 0 if self.experts is None else self.experts.number * (2 + self.gated) * (1 + self.feed_forward_biases)
        if self.layers * (_MOST_BESIDES + experts) > _MOST_TENSORS:
            fix = "Write the layers, and the experts of one, as the model has them."
            raise InputError("TransformerShape.layers", f"few enough for {_MOST_TENSORS:,} tensors in all", self.layers, fix)

    @property
    def key_value_heads(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def size_of_head(self) -> int:
        """Size of one head; of its query and key where the value's differs."""
        if self.latent is not None:
            return self.latent.position_free_size + self.latent.rotary_size
        return self.head_size or self.hidden // self.heads

    @property
    def parameter_count(self) -> int:
        """Every parameter once, tied ones too."""
        return _elements(self._shapes())

    @property
    def parameters(self) -> Quantity:
        """Every parameter once, as a quantity."""
        return give(float(self.parameter_count), PARAMETERS)

    @property
    def active_parameter_count(self) -> int:
        """Parameters that one token uses: all but the experts that it is not routed to; the whole embedding counts.

        Examples
        --------
        >>> mixtral = TransformerShape(layers=32, hidden=4096, feed_forward=14336, heads=32, kv_heads=8, vocabulary=32000,
        ...     gated=True, experts=Experts(number=8, active=2, feed_forward=14336))
        >>> f"{mixtral.parameter_count:,} of which {mixtral.active_parameter_count:,}"
        '46,702,792,704 of which 12,879,925,248'
        """
        if self.experts is None:
            return self.parameter_count
        layers = sum(self.experts.in_layer(layer) for layer in range(self.layers))
        idle = self.experts.number - self.experts.active
        return self.parameter_count - layers * idle * _elements(self._feed_forward("", self.experts.feed_forward))

    @property
    def active_parameters(self) -> Quantity:
        """Parameters that one token uses, as a quantity."""
        return give(float(self.active_parameter_count), PARAMETERS)

    def tensors(self, dtype: str = "bfloat16") -> Iterator[Tensor]:
        """Every tensor, in the order of the forward pass: ``embedding.weight``, ``layers.0.attention.query.weight``, ..."""
        for name, shape in self._shapes():
            yield Tensor(name=name, shape=shape, dtype=dtype)

    def _shapes(self) -> Shapes:
        width = self.embedding_size or self.hidden
        yield "embedding.weight", (self.vocabulary, width)
        if self.positions:
            yield "position_embedding.weight", (self.positions, self.hidden)
        if width != self.hidden:
            yield "embedding_projection.weight", (self.hidden, width)
        if self.embedding_norm:
            yield from self._norm("embedding_norm", self.hidden)
        for layer in range(self.layers):
            yield from ((f"layers.{layer}.{name}", shape) for name, shape in self._layer(layer))
        if self.final_norm:
            yield from self._norm("final_norm", self.hidden)
        if width != self.hidden:
            yield "head_projection.weight", (width, self.hidden)
        if not self.tied_embeddings:
            yield "head.weight", (self.vocabulary, width)
        if self.head_bias:
            yield "head.bias", (self.vocabulary,)

    def _layer(self, layer: int) -> Shapes:
        yield from self._norm("attention_norm", self.hidden)
        yield from self._latent_attention(self.latent) if self.latent else self._attention()
        if self.post_norms:
            yield from self._norm("attention_post_norm", self.hidden)
        if not self.parallel_norm:
            yield from self._norm("feed_forward_norm", self.hidden)
        if self.experts and self.experts.in_layer(layer):
            yield from self._experts(self.experts)
        else:
            yield from self._feed_forward("feed_forward", self.feed_forward)
        if self.post_norms:
            yield from self._norm("feed_forward_post_norm", self.hidden)

    def _norm(self, name: str, size: int) -> Shapes:
        yield f"{name}.weight", (size,)
        if self.norm_biases:
            yield f"{name}.bias", (size,)

    def _attention(self) -> Shapes:
        size = self.size_of_head
        for name, heads in (("query", self.heads), ("key", self.key_value_heads), ("value", self.key_value_heads)):
            yield from _linear(f"attention.{name}", (heads * size, self.hidden), self.query_key_value_biases)
        if self.query_key_norms:
            yield from self._norm("attention.query_norm", size)
            yield from self._norm("attention.key_norm", size)
        yield from _linear("attention.output", (self.hidden, self.heads * size), self.attention_output_biases)

    def _latent_attention(self, latent: LatentAttention) -> Shapes:
        biases = self.query_key_value_biases
        query = self.heads * self.size_of_head
        if latent.query_rank:
            yield from _linear("attention.query_down", (latent.query_rank, self.hidden), biases)
            yield from self._norm("attention.query_norm", latent.query_rank)
            yield "attention.query_up.weight", (query, latent.query_rank)
        else:
            yield "attention.query.weight", (query, self.hidden)
        yield from _linear("attention.key_value_down", (latent.key_value_rank + latent.rotary_size, self.hidden), biases)
        yield from self._norm("attention.key_value_norm", latent.key_value_rank)
        yield "attention.key_value_up.weight", (self.heads * (latent.position_free_size + latent.value_size), latent.key_value_rank)
        yield from _linear("attention.output", (self.hidden, self.heads * latent.value_size), self.attention_output_biases)

    def _feed_forward(self, name: str, width: int) -> Shapes:
        for part in ("gate", "up") if self.gated else ("up",):
            yield from _linear(f"{name}.{part}", (width, self.hidden), self.feed_forward_biases)
        yield from _linear(f"{name}.down", (self.hidden, width), self.feed_forward_biases)

    def _experts(self, experts: Experts) -> Shapes:
        yield "router.weight", (experts.number, self.hidden)
        if experts.correction_bias:
            yield "router.correction_bias", (experts.number,)
        for expert in range(experts.number):
            yield from self._feed_forward(f"experts.{expert}", experts.feed_forward)
        if experts.shared:
            yield from self._feed_forward("shared_experts", experts.shared * experts.feed_forward)
        if experts.shared_expert_gate:
            yield "shared_experts.router.weight", (1, self.hidden)


def _linear(name: str, shape: tuple[int, int], bias: bool) -> Shapes:
    yield f"{name}.weight", shape
    if bias:
        yield f"{name}.bias", shape[:1]


def _elements(shapes: Shapes) -> int:
    return sum(math.prod(shape) for _, shape in shapes)
