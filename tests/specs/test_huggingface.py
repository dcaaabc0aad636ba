"""Published models by their ``config.json``, each against the count of its published weights."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from mlsysim import InputError, shape_from_config


def config(model_type: str, hidden: int, intermediate: int, layers: int, heads: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    """The sizes that most families name alike."""
    sizes = {"hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {"model_type": model_type, "vocab_size": vocabulary} | sizes | more


def opt(hidden: int, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": hidden, "ffn_dim": 4 * hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {"model_type": "opt", "vocab_size": 50272, "max_position_embeddings": 2048, "do_layer_norm_before": True} | sizes | more


def gpt2(width: int, layers: int, heads: int) -> dict[str, Any]:
    sizes = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": 1024, "n_ctx": 1024}
    return {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257} | sizes


def gemma3(hidden: int, intermediate: int, layers: int, **more: int) -> dict[str, Any]:
    """As published: the nested config leaves out what its class defaults to."""
    text = {"model_type": "gemma3_text", "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers, **more}
    vision = {"model_type": "siglip_vision_model", "hidden_size": 1152, "num_hidden_layers": 27}
    return {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": text, "vision_config": vision}


DEEPSEEK = {
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_layer_freq": 1,
    "tie_word_embeddings": False,
}  # fmt: skip
MISTRAL = config("mistral", 4096, 14336, 32, 32, 32000, num_key_value_heads=8, tie_word_embeddings=False)
MIXTRAL = config("mixtral", 4096, 14336, 32, 32, 32000, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2)
LLAMA = config("llama", 4096, 14336, 32, 32, 128256, num_key_value_heads=8, attention_bias=False, mlp_bias=False)
DEEPSEEK_V2_LITE = config(
    "deepseek_v2", 2048, 10944, 27, 16, 102400, q_lora_rank=None, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6,
    moe_intermediate_size=1408, first_k_dense_replace=1, topk_method="greedy", **DEEPSEEK,
)  # fmt: skip

# SigLIP So400m at 896 pixels, patches of 14: the vision tower of Gemma 3, derived from its shapes; the count of Gemma 3's weights
# holds it, and a projection with a norm
_LAYER = 4 * (1152**2 + 1152) + 2 * 1152 * 4304 + 4304 + 1152 + 4 * 1152
_SIGLIP = (3 * 14**2 + 1) * 1152 + 4096 * 1152 + 27 * _LAYER + 2 * 1152


def _language(weights: int, hidden: int) -> int:
    return weights - _SIGLIP - 1152 * hidden - 1152


# Sizes: the config.json of each model. Counts: the total of the model's safetensors (its model card shows it) or the number of parameters
# that transformers reports, as quoted in public repositories, unless a comment says otherwise.
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "Llama 3.1 8B": (LLAMA, 8_030_261_248),
    "Llama 3.1 70B": (config("llama", 8192, 28672, 80, 64, 128256, num_key_value_heads=8), 70_553_706_496),
    "Llama 3.1 405B": (config("llama", 16384, 53248, 126, 128, 128256, num_key_value_heads=8), 405_853_388_800),
    "Llama 3.2 1B": (
        config("llama", 2048, 8192, 16, 32, 128256, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True), 1_235_814_400,
    ),
    "Mistral 7B v0.1": (MISTRAL, 7_241_732_096),
    "Mistral Nemo 12B": (config("mistral", 5120, 14336, 40, 32, 131072, num_key_value_heads=8, head_dim=128), 12_247_782_400),
    "Qwen2 7B": (config("qwen2", 3584, 18944, 28, 28, 152064, num_key_value_heads=4, tie_word_embeddings=False), 7_615_616_512),
    "Qwen2.5 0.5B": (config("qwen2", 896, 4864, 24, 14, 151936, num_key_value_heads=2, tie_word_embeddings=True), 494_032_768),
    "Qwen3 8B": (config("qwen3", 4096, 12288, 36, 32, 151936, num_key_value_heads=8, head_dim=128, attention_bias=False), 8_190_735_360),
    "Qwen3 0.6B": (
        config("qwen3", 1024, 3072, 28, 16, 151936, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True), 596_049_920,
    ),
    "Gemma 2 2B": (config("gemma2", 2304, 9216, 26, 8, 256000, num_key_value_heads=4, head_dim=256), 2_614_341_888),
    "Gemma 2 9B": (config("gemma2", 3584, 14336, 42, 16, 256000, num_key_value_heads=8, head_dim=256), 9_241_705_984),
    "Gemma 2 27B": (config("gemma2", 4608, 36864, 46, 32, 256000, num_key_value_heads=16, head_dim=128), 27_227_128_320),
    "Gemma 3 1B": (config("gemma3_text", 1152, 6912, 26, 4, 262144, num_key_value_heads=1, head_dim=256), 999_885_952),
    "Gemma 3 4B": (gemma3(2560, 10240, 34), _language(4_300_079_472, 2560)),
    "Gemma 3 12B": (gemma3(3840, 15360, 48, num_attention_heads=16, num_key_value_heads=8), _language(12_187_325_040, 3840)),
    "Gemma 3 27B": (
        gemma3(5376, 21504, 62, num_attention_heads=32, num_key_value_heads=16, head_dim=128), _language(27_432_406_640, 5376),
    ),
    "Phi-3 mini": (config("phi3", 3072, 8192, 32, 32, 32064, num_key_value_heads=32), 3_821_079_552),
    "Phi-4": (config("phi3", 5120, 17920, 40, 40, 100352, num_key_value_heads=10), 14_659_507_200),
    "Phi-4 mini": (config("phi3", 3072, 8192, 32, 24, 200064, num_key_value_heads=8, tie_word_embeddings=True), 3_836_021_760),
    "GPT-2 small": (gpt2(768, 12, 12), 124_439_808),
    "GPT-2 large": (gpt2(1280, 36, 20), 774_030_080),
    "GPT-2 XL": (gpt2(1600, 48, 25), 1_557_611_200),
    "GPT-NeoX 20B": (config("gpt_neox", 6144, 24576, 44, 64, 50432, use_parallel_residual=True), 20_554_567_680),
    "Pythia 6.9B": (config("gpt_neox", 4096, 16384, 32, 32, 50432), 6_857_302_016),
    "OPT 125M": (opt(768, 12, 12, word_embed_proj_dim=768), 125_239_296),
    "OPT 350M": (opt(1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False), 331_196_416),
    "OPT 1.3B": (opt(2048, 24, 32, word_embed_proj_dim=2048), 1_315_758_080),
    # derived: the embedding, 2050 positions, and 12 h^2 + 13 h a layer, and a norm
    "OPT 6.7B": (opt(4096, 32, 32), (50272 + 2050 + 2) * 4096 + 32 * (12 * 4096**2 + 13 * 4096)),
    "BLOOM 560M": ({"model_type": "bloom", "vocab_size": 250880, "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16}, 559_214_592),
    "BLOOM 7.1B": ({"model_type": "bloom", "vocab_size": 250880, "hidden_size": 4096, "n_layer": 30, "n_head": 32}, 7_069_016_064),
    "BLOOM": (
        {"model_type": "bloom", "vocab_size": 250880, "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "n_inner": None},
        176_247_271_424,
    ),
    "Mixtral 8x7B": (MIXTRAL, 46_702_792_704),
    "Mixtral 8x22B": (
        config("mixtral", 6144, 16384, 56, 48, 32768, num_key_value_heads=8, num_local_experts=8, num_experts_per_tok=2), 140_630_071_296,
    ),
    "DeepSeek-V2-Lite": (DEEPSEEK_V2_LITE, 15_706_484_224),
    "DeepSeek-V2": (
        config(
            "deepseek_v2", 5120, 12288, 60, 128, 102400, q_lora_rank=1536, n_routed_experts=160, n_shared_experts=2, num_experts_per_tok=6,
            moe_intermediate_size=1536, first_k_dense_replace=1, topk_method="group_limited_greedy", **DEEPSEEK,
        ),
        235_741_434_880,
    ),
    "DeepSeek-V3": (
        config(
            "deepseek_v3", 7168, 18432, 61, 128, 129280, q_lora_rank=1536, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8,
            moe_intermediate_size=2048, first_k_dense_replace=3, topk_method="noaux_tc", num_nextn_predict_layers=1,
            num_key_value_heads=128, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}, **DEEPSEEK,
        ),
        671_026_419_200,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_count_is_the_published_one(name: str) -> None:
    """The config of a published model gives the parameter count of its weights, exactly."""
    table, published = PUBLISHED[name]
    assert published == shape_from_config(table).parameter_count


def without(table: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


@pytest.mark.parametrize(
    ("table", "written"),
    [
        (without(MISTRAL, "num_key_value_heads"), {"num_key_value_heads": 8}),
        (MISTRAL | {"num_key_value_heads": None}, {"num_key_value_heads": 32}),
        (without(LLAMA, "num_key_value_heads"), {"num_key_value_heads": 32}),
        (without(MIXTRAL, "num_local_experts", "num_experts_per_tok"), {"num_local_experts": 8, "num_experts_per_tok": 2}),
        (LLAMA, {"tie_word_embeddings": False, "head_dim": 128}),
        (config("qwen2", 4096, 22016, 32, 32, 151936), {"num_key_value_heads": 32, "tie_word_embeddings": False}),
        (config("qwen3", 1024, 3072, 28, 32, 151936), {"num_key_value_heads": 32, "head_dim": 128}),
        (config("gemma2", 2304, 9216, 26, 8, 256000), {"num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": True}),
        (config("phi3", 3072, 8192, 32, 32, 32064), {"num_key_value_heads": 32, "tie_word_embeddings": False}),
        (config("gpt_neox", 512, 2048, 6, 8, 50304), {"tie_word_embeddings": False, "attention_bias": True}),
        (without(gpt2(768, 12, 12), "n_positions"), {"n_positions": 1024, "n_inner": 3072, "tie_word_embeddings": True}),
        (opt(768, 12, 12), {"word_embed_proj_dim": 768, "enable_bias": True, "_remove_final_layer_norm": False}),
        (without(opt(768, 12, 12), "max_position_embeddings", "do_layer_norm_before"), {"max_position_embeddings": 2048}),
        (config("deepseek_v2", 2048, 10944, 27, 16, 102400, num_experts_per_tok=6),
         {"q_lora_rank": 1536, "n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407, **DEEPSEEK}),
        (config("deepseek_v3", 7168, 18432, 61, 128, 129280),
         {"q_lora_rank": 1536, "n_routed_experts": 256, "n_shared_experts": 1, "moe_intermediate_size": 2048, "num_experts_per_tok": 8,
          "first_k_dense_replace": 3, **DEEPSEEK}),
        (gemma3(2304, 9216, 26), {"text_config": {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
                                                  "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26}}),
    ],
)  # fmt: skip
def test_key_left_out_means_what_its_class_means(table: dict[str, Any], written: dict[str, Any]) -> None:
    """A key that is left out is what the family's config class in transformers defaults to."""
    assert list(shape_from_config(table | written).tensors()) == list(shape_from_config(table).tensors())


@pytest.mark.parametrize(
    ("table", "change", "more"),
    [
        (LLAMA, {"attention_bias": True}, 32 * (4096 + 2 * 1024 + 4096)),
        (LLAMA, {"mlp_bias": True}, 32 * (2 * 14336 + 4096)),
        (LLAMA, {"tie_word_embeddings": True}, -128256 * 4096),
        (PUBLISHED["Qwen3 8B"][0], {"attention_bias": True}, 36 * (4096 + 2 * 1024 + 4096)),
        (PUBLISHED["GPT-NeoX 20B"][0], {"attention_bias": False}, -44 * 4 * 6144),
        (PUBLISHED["GPT-NeoX 20B"][0], {"use_parallel_residual": False}, 0),
        (PUBLISHED["GPT-2 small"][0], {"n_inner": 768}, -12 * (2 * 768 + 1) * 2304),
        (PUBLISHED["OPT 125M"][0], {"enable_bias": False}, -12 * (4 * 768 + 3072 + 768)),
        (PUBLISHED["OPT 125M"][0], {"_remove_final_layer_norm": True}, -2 * 768),
        (DEEPSEEK_V2_LITE, {"attention_bias": True}, 27 * (512 + 64 + 2048)),
        (DEEPSEEK_V2_LITE, {"n_shared_experts": None}, -26 * 3 * 2048 * 2816),
        (DEEPSEEK_V2_LITE, {"first_k_dense_replace": 0}, 66 * 3 * 2048 * 1408 + 64 * 2048 - 3 * 2048 * 10944),
        (DEEPSEEK_V2_LITE, {"moe_layer_freq": 2}, 13 * (3 * 2048 * 10944 - 66 * 3 * 2048 * 1408 - 64 * 2048)),
        (DEEPSEEK_V2_LITE, {"n_routed_experts": None}, 26 * (3 * 2048 * 10944 - 66 * 3 * 2048 * 1408 - 64 * 2048)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_key_changes_the_count_by_its_tensors(table: dict[str, Any], change: dict[str, Any], more: int) -> None:
    """A key adds or takes the parameters of its own tensors."""
    assert more == shape_from_config(table | change).parameter_count - shape_from_config(table).parameter_count


def test_active_parameters_of_mixtral() -> None:
    """A token of Mixtral 8x7B uses 12.9 billion parameters, as its authors say."""
    assert 12.9 == round(shape_from_config(MIXTRAL).active_parameter_count / 1e9, 1)


def test_file_and_folder_are_read(tmp_path: Path) -> None:
    """A config is read from its file, from the folder that holds it, and from what it holds."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA), encoding="utf-8")
    assert shape_from_config(LLAMA) == shape_from_config(file) == shape_from_config(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "place", "said"),
    [
        ({"model_type": "falcon", "multi_query": True, "bias": False}, "model_type", "multi_query"),
        ({"model_type": "qwen3_moe", "num_experts": 128}, "model_type", "num_experts"),
        ({"model_type": "llava", "text_config": LLAMA}, "model_type", "give that alone"),
        ({"model_type": None}, "model_type", "Known: bloom, deepseek_v2"),
        ({"model_type": ["llama"]}, "model_type", "qwen3"),
        ({"num_local_experts": 8}, "num_local_experts", "not covered for llama"),
        ({"qk_layernorm": True}, "qk_layernorm", "not covered for llama"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "layer_types", "sliding_attention"),
        ({"layer_types": [["full_attention"]]}, "layer_types", "sliding_attention"),
        ({"layer_types": "full_attention"}, "layer_types", "sliding_attention"),
        ({"architectures": [3]}, "architectures", "a list of names"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures", "causal language model"),
        ({"architectures": ["LlamaModel"]}, "architectures", "tie_word_embeddings"),
        ({"num_attention_heads": 48}, "num_attention_heads", "divisor of hidden"),
        ({"num_key_value_heads": 5}, "num_key_value_heads", "divisor of heads"),
        ({"hidden_size": "4096"}, "hidden_size", "a whole number"),
        ({"hidden_size": 4096.0}, "hidden_size", "a whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers", "at least 1"),
        ({"num_hidden_layers": True}, "num_hidden_layers", "at least 1"),
        ({"head_dim": 0}, "head_dim", "at least 1"),
        ({"vocab_size": None}, "vocab_size", "at least 1"),
        ({"attention_bias": 1}, "attention_bias", "true or false"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_config_is_refused_by_its_key(change: dict[str, Any], place: str, said: str) -> None:
    """A config that is not covered, or wrong, is refused with its key and a sentence that says what is missing."""
    with pytest.raises(InputError, match=said) as caught:
        shape_from_config(LLAMA | change)
    assert f"config: {place}" == caught.value.place


@pytest.mark.parametrize(
    ("table", "place"),
    [
        (MIXTRAL | {"num_experts_per_tok": 9}, "config: num_experts_per_tok"),
        (opt(768, 12, 12, layer_norm_elementwise_affine=False), "config: layer_norm_elementwise_affine"),
        (PUBLISHED["BLOOM"][0] | {"n_inner": 4096}, "config: n_inner"),
        (PUBLISHED["BLOOM"][0] | {"hidden_size": 4096}, "config: hidden_size"),
        (without(DEEPSEEK_V2_LITE, "num_experts_per_tok"), "config: num_experts_per_tok"),
        (gpt2(768, 12, 12) | {"add_cross_attention": True}, "config: add_cross_attention"),
        ({"model_type": "gemma3"}, "config: text_config"),
        (gemma3(2560, 10240, 0), "config: text_config.num_hidden_layers"),
        (gemma3(2560, 10240, 34, num_key_value_heads=3), "config: text_config.num_key_value_heads"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_variant_is_refused_by_its_key(table: dict[str, Any], place: str) -> None:
    """What a family does not cover is refused with the key, and its path."""
    with pytest.raises(InputError) as caught:
        shape_from_config(table)
    assert place == caught.value.place


def test_missing_keys_are_told_together() -> None:
    """Every size that is missing is named, with what to write."""
    with pytest.raises(InputError) as caught:
        shape_from_config({"model_type": "llama", "vocab_size": 32000, "intermediate_size": 11008, "num_attention_heads": "32"})
    assert ["num_hidden_layers", "hidden_size", "num_attention_heads"] == [fault.place.split(": ")[1] for fault in caught.value.faults]
    assert 'Write "hidden_size": 4096, say.' == caught.value.faults[1].fix


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"model_type": "llama", "model_type": "opt"}', "model_type must be given once"),
        (b'{"text_config": {"a": 1, "a": 2}}', "a must be given once"),
        (b'{"model_type": NaN}', "not finite"),
        (b"[1]", "a JSON object"),
        (b"", "valid JSON"),
        (b'{"a": ' + b"[" * 100_000, "valid JSON"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "valid JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b" " * 4_000_001, "at most 4,000,000 bytes"),
        (b"{" + b",".join(b'"%d":1' % number for number in range(300_000)) + b',"299999":1}', "299999 must be given once"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_file_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    """A file that is not one JSON object, each key once, is refused by its name."""
    file = tmp_path / "config.json"
    file.write_bytes(text)
    with pytest.raises(InputError, match=said) as caught:
        shape_from_config(file)
    assert "config.json" == caught.value.place.split(":")[0]


@pytest.mark.parametrize("name", ["pipe", "zero", "a\0b", "x" * 5000])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, name: str) -> None:
    """A pipe, a device and an impossible name are refused, and never waited for."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="a file that can be read"):
        shape_from_config(tmp_path / name)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    """A file that is not there is refused by its path."""
    with pytest.raises(InputError, match="a file that can be read") as caught:
        shape_from_config(tmp_path)
    assert f"{tmp_path}" == caught.value.place
