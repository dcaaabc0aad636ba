"""What each family of Hugging Face's transformers makes of its config: from keys to the fields of ``TransformerShape``.

A key that is left out means what the family's config class makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlsysim.specs.huggingface_keys import Keys

__all__ = ["FAMILIES", "Fields"]

Fields = dict[str, Any]


def _sizes(keys: Keys) -> Fields:
    return {
        "layers": keys.size("num_hidden_layers", example=32),
        "hidden": keys.size("hidden_size", example=4096),
        "feed_forward": keys.size("intermediate_size", example=14336),
        "heads": keys.size("num_attention_heads", example=32),
        "vocabulary": keys.size("vocab_size", example=32000),
    }


def _llama_like(keys: Keys, *, kv_heads: int | None = None) -> Fields:
    """RMS norms, a gated feed-forward layer, grouped heads; ``kv_heads`` where the key is left out."""
    return _sizes(keys) | {
        "kv_heads": keys.optional("num_key_value_heads", default=kv_heads),
        "gated": True,
        "tied_embeddings": keys.flag("tie_word_embeddings", default=False),
    }


def _attention_bias(keys: Keys) -> Fields:
    bias = keys.flag("attention_bias", default=False)
    return {"query_key_value_biases": bias, "attention_output_biases": bias}


def _llama(keys: Keys) -> Fields:
    more = {"head_size": keys.optional("head_dim"), "feed_forward_biases": keys.flag("mlp_bias", default=False)}
    return _llama_like(keys) | _attention_bias(keys) | more


def _mistral(keys: Keys) -> Fields:
    return _llama_like(keys, kv_heads=8) | {"head_size": keys.optional("head_dim")}


def _mixtral(keys: Keys) -> Fields:
    fields = _mistral(keys)
    number, active = keys.size("num_local_experts", default=8), keys.size("num_experts_per_tok", default=2)
    return fields | {"experts": {"number": number, "active": active, "feed_forward": fields["feed_forward"]}}


def _qwen2(keys: Keys) -> Fields:
    # the class has biases on query, key and value whatever the config says
    keys.ignore("attention_bias")
    return _llama_like(keys, kv_heads=32) | {"query_key_value_biases": True}


def _qwen3(keys: Keys) -> Fields:
    more = {"head_size": keys.optional("head_dim", default=128), "query_key_norms": True}
    return _llama_like(keys, kv_heads=32) | _attention_bias(keys) | more


def _phi3(keys: Keys) -> Fields:
    return _llama_like(keys)


def _gemma2(keys: Keys) -> Fields:
    more = {"head_size": keys.optional("head_dim", default=256), "post_norms": True}
    return (
        _llama_like(keys, kv_heads=4) | _attention_bias(keys) | more | {"tied_embeddings": keys.flag("tie_word_embeddings", default=True)}
    )


def _gemma3(keys: Keys) -> Fields:
    if keys.is_nested:
        keys.defaults(vocab_size=262208, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26, num_attention_heads=8)
    return _gemma2(keys) | {"query_key_norms": True}


def _all_biases(*, attention: bool = True, feed_forward: bool = True) -> Fields:
    return {
        "query_key_value_biases": attention, "attention_output_biases": attention, "feed_forward_biases": feed_forward, "norm_biases": True,
    }  # fmt: skip


def _gpt2(keys: Keys) -> Fields:
    hidden = keys.size("n_embd", "hidden_size", example=768)
    return _all_biases() | {
        "layers": keys.size("n_layer", "num_hidden_layers", example=12),
        "hidden": hidden,
        "feed_forward": keys.optional("n_inner", default=4 * hidden) or 4 * hidden,
        "heads": keys.size("n_head", "num_attention_heads", example=12),
        "vocabulary": keys.size("vocab_size", example=50257),
        "positions": keys.size("n_positions", "max_position_embeddings", default=1024),
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
    }


def _gpt_neox(keys: Keys) -> Fields:
    # one norm for attention and one for feed-forward, whether they run in parallel or not
    biases = _all_biases(attention=keys.flag("attention_bias", default=True))
    return _sizes(keys) | biases | {"tied_embeddings": keys.flag("tie_word_embeddings", default=False)}


def _opt(keys: Keys) -> Fields:
    bias = keys.flag("enable_bias", default=True)
    if not keys.flag("layer_norm_elementwise_affine", default=True):
        keys.refuse("layer_norm_elementwise_affine", "true or left out")
    before = keys.flag("do_layer_norm_before", default=True)
    return _all_biases(attention=bias, feed_forward=bias) | {
        "layers": keys.size("num_hidden_layers", example=12),
        "hidden": keys.size("hidden_size", example=768),
        "feed_forward": keys.size("ffn_dim", example=3072),
        "heads": keys.size("num_attention_heads", example=12),
        "vocabulary": keys.size("vocab_size", example=50272),
        # the table of positions starts two rows late
        "positions": keys.size("max_position_embeddings", default=2048) + 2,
        "embedding_size": keys.optional("word_embed_proj_dim"),
        "final_norm": before and not keys.flag("_remove_final_layer_norm", default=False),
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
    }


def _bloom(keys: Keys) -> Fields:
    hidden = keys.size("n_embed", "hidden_size", example=14336)
    if keys.optional("n_inner", default=4 * hidden) not in (None, 4 * hidden):
        keys.refuse("n_inner", f"four times the hidden size, {4 * hidden}, or left out")
    return _all_biases() | {
        "layers": keys.size("n_layer", "num_hidden_layers", example=70),
        "hidden": hidden,
        "feed_forward": 4 * hidden,
        "heads": keys.size("n_head", "num_attention_heads", example=112),
        "vocabulary": keys.size("vocab_size", example=250880),
        "embedding_norm": True,
        "tied_embeddings": keys.flag("tie_word_embeddings", default=True),
    }


def _deepseek(keys: Keys, *, number: int, active: int | None, width: int, shared: int, dense: int, correction: bool) -> Fields:
    fields = _sizes(keys) | _attention_bias(keys) | {"gated": True, "tied_embeddings": keys.flag("tie_word_embeddings", default=False)}
    fields["latent"] = {
        "key_value_rank": keys.size("kv_lora_rank", default=512),
        "query_rank": keys.optional("q_lora_rank", default=1536),
        "position_free_size": keys.size("qk_nope_head_dim", default=128),
        "rotary_size": keys.size("qk_rope_head_dim", default=64),
        "value_size": keys.size("v_head_dim", default=128),
    }
    experts = keys.optional("n_routed_experts", default=number)
    if experts is None:
        # every layer is dense, whatever the rest says of experts
        keys.ignore("num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "first_k_dense_replace", "moe_layer_freq")
        return fields
    fields["experts"] = {
        "number": experts,
        "active": keys.size("num_experts_per_tok", default=active, example=6),
        "feed_forward": keys.size("moe_intermediate_size", default=width),
        "shared": keys.optional("n_shared_experts", default=shared, zero=True) or None,
        "dense_layers": keys.optional("first_k_dense_replace", default=dense, zero=True) or None,
        "layer_step": keys.optional("moe_layer_freq"),
        "correction_bias": correction,
    }
    return fields


def _deepseek_v2(keys: Keys) -> Fields:
    return _deepseek(keys, number=64, active=None, width=1407, shared=2, dense=0, correction=False)


def _deepseek_v3(keys: Keys) -> Fields:
    # a module after the last layer, which transformers does not build
    keys.ignore("num_nextn_predict_layers")
    return _deepseek(keys, number=256, active=8, width=2048, shared=1, dense=3, correction=True)


FAMILIES: dict[str, Callable[[Keys], Fields]] = {
    "bloom": _bloom, "deepseek_v2": _deepseek_v2, "deepseek_v3": _deepseek_v3, "gemma2": _gemma2, "gemma3": _gemma3,
    "gemma3_text": _gemma3, "gpt2": _gpt2, "gpt_neox": _gpt_neox, "llama": _llama, "mistral": _mistral, "mixtral": _mixtral,
    "opt": _opt, "phi3": _phi3, "qwen2": _qwen2, "qwen3": _qwen3,
}  # fmt: skip
