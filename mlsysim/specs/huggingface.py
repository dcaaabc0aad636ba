"""The shape of a transformer from the ``config.json`` of Hugging Face's transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, Shown
from mlsysim.specs.huggingface_families import FAMILIES
from mlsysim.specs.huggingface_keys import Keys, read_object
from mlsysim.specs.transformer import TransformerShape
from mlsysim.specs.transformer_parts import Experts, LatentAttention

__all__ = ["shape_from_config"]

# keys that change the number of parameters in some family; one that its family does not read is refused
_COUNTED = frozenset((
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size", "shared_intermediate_size", "decoder_sparse_step",
    "mlp_only_layers", "first_k_dense_replace", "moe_layer_freq", "kv_lora_rank", "q_lora_rank", "index_topk", "attention_bias", "mlp_bias",
    "use_bias", "bias", "qkv_bias", "add_bias_linear", "qk_layernorm", "use_qk_norm", "query_key_norm", "parallel_attn", "multi_query",
    "new_decoder_architecture", "num_ln_in_parallel_attn", "n_inner", "ffn_hidden_size", "word_embed_proj_dim", "embedding_size",
    "add_cross_attention", "is_encoder_decoder", "num_nextn_predict_layers", "state_size", "mamba_d_state", "conv_kernel", "full_attn_idxs",
    "linear_num_value_heads", "block_configs", "hidden_size_per_layer_input", "vocab_size_per_layer_input", "altup_num_inputs",
    "laurel_rank", "text_config", "vision_config", "audio_config",
))  # fmt: skip
_LAYER_TYPES = frozenset(("full_attention", "sliding_attention", "chunked_attention"))


def shape_from_config(config: str | Path | Mapping[str, Any]) -> TransformerShape:
    """The shape of the causal language model that a Hugging Face ``config.json`` describes.

    Parameters
    ----------
    config : str, Path or mapping
        The file, the folder that holds it, or what it holds.

    Returns
    -------
    TransformerShape

    Raises
    ------
    InputError
        If the file is no JSON object; its family is not known; a size is missing or no count; or a key changes the number of
        parameters in a way that is not covered. All faults together, each with its key.

    Notes
    -----
    Assumes: the model that transformers builds from the config, with the output layer of a causal language model. Sizes that the
    families differ in (layers, hidden, heads, vocabulary) must be there, as they are in every published config; a nested
    ``text_config`` holds only what differs from the defaults of its class, and gets those. Ignores: how weights are quantized; the
    vision tower of Gemma 3; the multi-token-prediction module of DeepSeek-V3.

    References
    ----------
    The configuration classes of huggingface/transformers, ``src/transformers/models/*/configuration_*.py``.

    Examples
    --------
    >>> mistral = shape_from_config({"model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
    ...     "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000})
    >>> f"{mistral.parameter_count:,}"
    '7,241,732,096'
    """
    place, table = ("config", dict(config)) if isinstance(config, Mapping) else read_object(Path(config))
    keys = Keys(table, place)
    family = table.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise _unknown(family, table, place)
    if family == "gemma3":
        keys = keys.nested("text_config")
    fields = FAMILIES[family](keys)
    _refuse_others(keys, family)
    _refuse_heads(table, place, keys, tied=fields["tied_embeddings"])
    keys.finish()
    try:
        parts = {name: kind(**fields[name]) for name, kind in (("experts", Experts), ("latent", LatentAttention)) if fields.get(name)}
        return TransformerShape(**{**fields, **parts})
    except InputError as error:
        raise InputError.together(fault.at(keys.place_of(fault.place)) for fault in error.faults) from None


def _unknown(family: object, table: Mapping[str, Any], place: str) -> InputError:
    """What is missing for a family that is not read: its name, and the keys that change its count."""
    known = f"Known: {', '.join(sorted(FAMILIES))}."
    nested = table.get("text_config")
    if isinstance(nested, Mapping) and nested.get("model_type") in FAMILIES:
        known += " Its text_config is of a known family: give that alone, for the language model without the rest."
    counted = sorted(key for key in _COUNTED if table.get(key) not in (None, False, 0, [], {}))
    if counted:
        known += f" This config changes the number of parameters by {', '.join(counted)}."
    given = Shown("nothing") if family is None else family
    return InputError(f"{place}: model_type", "a known family", given, f"{known} Or describe the model with TransformerShape(...).")


def _refuse_others(keys: Keys, family: str) -> None:
    """Keys that change the count, and that the family has no place for."""
    for key in sorted(_COUNTED):
        if key not in keys.read and keys.table.get(key) not in (None, False, 0, [], {}):
            keys.refuse(key, f"left out or null, since it changes the number of parameters in a way not covered for {family}")
    kinds = keys.table.get("layer_types")
    if kinds is not None and not (isinstance(kinds, list) and all(isinstance(kind, str) and kind in _LAYER_TYPES for kind in kinds)):
        keys.refuse("layer_types", f"of {', '.join(sorted(_LAYER_TYPES))}, which have the same parameters")


def _refuse_heads(table: Mapping[str, Any], place: str, keys: Keys, *, tied: bool) -> None:
    """Architectures whose output layer is not that of a causal language model."""
    names = table.get("architectures") or []
    names = names if isinstance(names, list) else [names]
    for name in names:
        if not isinstance(name, str):
            fix = 'Write "architectures": ["LlamaForCausalLM"].'
            keys.faults.append(InputError(f"{place}: architectures", "a list of names", name, fix))
            continue
        other = re.search(r"For(?!CausalLM|ConditionalGeneration)|DoubleHeads", str(name))
        # the bare model has no output layer: the same tensors as a tied one
        bare = str(name).endswith("Model") and not str(name).endswith("LMHeadModel")
        if other or (bare and not tied):
            fix = "Write the architecture of the causal language model; for one without output layer, also tie_word_embeddings true."
            keys.faults.append(InputError(f"{place}: architectures", "that of a causal language model, with its output layer", name, fix))
