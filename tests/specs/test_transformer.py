"""Tensors and parameter counts of a transformer, from its sizes."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import Q_, Experts, InputError, LatentAttention, Tensor, TransformerShape

BIASES = {"query_key_value_biases": True, "attention_output_biases": True, "feed_forward_biases": True, "norm_biases": True}
DEEPSEEK_V3 = TransformerShape(
    layers=61, hidden=7168, feed_forward=18432, heads=128, vocabulary=129280, gated=True,
    experts=Experts(number=256, active=8, feed_forward=2048, shared=1, dense_layers=3, correction_bias=True),
    latent=LatentAttention(key_value_rank=512, query_rank=1536, position_free_size=128, rotary_size=64, value_size=128),
)  # fmt: skip
MIXTRAL = TransformerShape(
    layers=32, hidden=4096, feed_forward=14336, heads=32, kv_heads=8, vocabulary=32000, gated=True,
    experts=Experts(number=8, active=2, feed_forward=14336),
)  # fmt: skip
SMALL = TransformerShape(layers=2, hidden=8, feed_forward=16, heads=4, vocabulary=10)


def llama(layers: int, hidden: int, feed_forward: int, heads: int) -> TransformerShape:
    return TransformerShape(layers=layers, hidden=hidden, feed_forward=feed_forward, heads=heads, kv_heads=8, vocabulary=128256, gated=True)


# sizes from the models' papers and configs; the counts are those of the published weights
PUBLISHED = {
    "Llama 3.1 8B": (llama(32, 4096, 14336, 32), 8_030_261_248),
    "Llama 3.1 70B": (llama(80, 8192, 28672, 64), 70_553_706_496),
    "Llama 3.1 405B": (llama(126, 16384, 53248, 128), 405_853_388_800),
    "GPT-2 small": (
        TransformerShape(
            layers=12, hidden=768, feed_forward=3072, heads=12, vocabulary=50257, positions=1024, tied_embeddings=True, **BIASES
        ),
        124_439_808,
    ),
    "BLOOM": (
        TransformerShape(
            layers=70, hidden=14336, feed_forward=57344, heads=112, vocabulary=250880, tied_embeddings=True, embedding_norm=True, **BIASES
        ),
        176_247_271_424,
    ),
    "Mixtral 8x7B": (MIXTRAL, 46_702_792_704),
    "DeepSeek-V3": (DEEPSEEK_V3, 671_026_419_200),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_count_is_the_published_one(name: str) -> None:
    """The parameter count of a published model is exact."""
    shape, published = PUBLISHED[name]
    assert published == shape.parameter_count


def test_published_count_of_deepseek_v3_holds_the_correction_bias() -> None:
    """671,026,419,200 counts a bias for each of 256 experts in each of 58 layers; without it there are 671,026,404,352."""
    experts = attrs.evolve(DEEPSEEK_V3.experts, correction_bias=False)
    assert 671_026_404_352 == attrs.evolve(DEEPSEEK_V3, experts=experts).parameter_count == 671_026_419_200 - 58 * 256


def test_deepseek_v3_has_as_many_tensors_as_its_weights() -> None:
    """The main model of DeepSeek-V3 has 45,395 tensors, scales of the fp8 blocks left out."""
    assert 45_395 == sum(1 for _ in DEEPSEEK_V3.tensors())


def test_llama_has_as_many_tensors_as_its_weights() -> None:
    """The safetensors index of Llama 3.1 8B lists 291 tensors: 9 a layer, embedding, norm and head."""
    assert 291 == sum(1 for _ in PUBLISHED["Llama 3.1 8B"][0].tensors())


def test_tensors_are_named_and_shaped() -> None:
    """A shape gives each tensor by name, shape and element type, in the order of the forward pass."""
    shape = TransformerShape(layers=1, hidden=8, feed_forward=16, heads=4, kv_heads=2, vocabulary=10, gated=True)
    expected = [
        ("embedding.weight", (10, 8)),
        ("layers.0.attention_norm.weight", (8,)),
        ("layers.0.attention.query.weight", (8, 8)),
        ("layers.0.attention.key.weight", (4, 8)),
        ("layers.0.attention.value.weight", (4, 8)),
        ("layers.0.attention.output.weight", (8, 8)),
        ("layers.0.feed_forward_norm.weight", (8,)),
        ("layers.0.feed_forward.gate.weight", (16, 8)),
        ("layers.0.feed_forward.up.weight", (16, 8)),
        ("layers.0.feed_forward.down.weight", (8, 16)),
        ("final_norm.weight", (8,)),
        ("head.weight", (10, 8)),
    ]
    assert [Tensor(name=name, shape=size, dtype="float32") for name, size in expected] == list(shape.tensors("float32"))


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({"tied_embeddings": True}, -80),
        ({"head_bias": True}, 10),
        ({"positions": 7}, 56),
        ({"embedding_size": 6}, 2 * 8 * 6 - 2 * 2 * 10),
        ({"embedding_size": 8}, 0),
        ({"gated": True}, 2 * 128),
        ({"query_key_value_biases": True}, 2 * 24),
        ({"attention_output_biases": True}, 2 * 8),
        ({"feed_forward_biases": True}, 2 * 24),
        ({"norm_biases": True}, 5 * 8),
        ({"parallel_norm": True}, -2 * 8),
        ({"post_norms": True}, 4 * 8),
        ({"query_key_norms": True}, 2 * 2 * 2),
        ({"embedding_norm": True}, 8),
        ({"final_norm": False}, -8),
        ({"kv_heads": 1}, -2 * 2 * 6 * 8),
        ({"head_size": 4}, 2 * 4 * 8 * 8),
    ],
    ids=str,
)
def test_each_field_counts_its_tensors(change: dict[str, object], more: int) -> None:
    """A field of the shape adds or takes the parameters of its own tensors, and no others."""
    assert more == attrs.evolve(SMALL, **change).parameter_count - SMALL.parameter_count


def test_shared_expert_and_its_gate_are_counted() -> None:
    """Two shared experts are stored as one of twice the width; their gate is a row."""
    plain = Experts(number=4, active=2, feed_forward=16)
    shared = Experts(number=4, active=2, feed_forward=16, shared=2, shared_expert_gate=True)
    difference = attrs.evolve(SMALL, experts=shared).parameter_count - attrs.evolve(SMALL, experts=plain).parameter_count
    assert 2 * (2 * 8 * 32 + 8) == difference


def test_layers_without_experts_are_dense() -> None:
    """The first dense_layers, and those that are no multiple of layer_step, have a dense feed-forward layer."""
    experts = Experts(number=4, active=2, feed_forward=16, dense_layers=1, layer_step=2)
    names = {tensor.name for tensor in attrs.evolve(SMALL, layers=5, experts=experts).tensors() if "feed_forward.up" in tensor.name}
    assert {f"layers.{layer}.feed_forward.up.weight" for layer in (0, 1, 3)} == names


def test_active_parameters_leave_out_idle_experts() -> None:
    """A token of Mixtral 8x7B uses 12.9 of 46.7 billion parameters, as its authors say."""
    assert 12_879_925_248 == MIXTRAL.active_parameter_count
    assert Q_("12879925248 param") == MIXTRAL.active_parameters


def test_active_parameters_of_deepseek_v3_are_those_of_its_authors() -> None:
    """DeepSeek-V3 activates 36.6 billion parameters, the input embedding left out, as its authors count."""
    without_embedding = DEEPSEEK_V3.active_parameter_count - DEEPSEEK_V3.vocabulary * DEEPSEEK_V3.hidden
    assert 36.6 == round(without_embedding / 1e9, 1)


def test_all_parameters_of_a_dense_model_are_active() -> None:
    """Without experts, the active parameters are the parameters."""
    assert SMALL.parameter_count == SMALL.active_parameter_count


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"heads": 3}, "TransformerShape.heads"),
        ({"kv_heads": 3}, "TransformerShape.kv_heads"),
        ({"kv_heads": 8}, "TransformerShape.kv_heads"),
        ({"layers": 0}, "TransformerShape.layers"),
        ({"hidden": 8.0}, "TransformerShape.hidden"),
        ({"vocabulary": True}, "TransformerShape.vocabulary"),
        ({"positions": -1}, "TransformerShape.positions"),
        ({"gated": 1}, "TransformerShape.gated"),
        ({"final_norm": None}, "TransformerShape.final_norm"),
        ({"experts": 8}, "TransformerShape.experts"),
        ({"latent": {"value_size": 8}}, "TransformerShape.latent"),
        ({"latent": DEEPSEEK_V3.latent, "kv_heads": 2}, "TransformerShape.kv_heads"),
        ({"latent": DEEPSEEK_V3.latent, "head_size": 2}, "TransformerShape.head_size"),
        ({"latent": DEEPSEEK_V3.latent, "query_key_norms": True}, "TransformerShape.query_key_norms"),
    ],
    ids=str,
)
def test_bad_shape_is_refused_by_its_field(change: dict[str, object], place: str) -> None:
    """A shape that cannot be is refused, with the field that is wrong."""
    with pytest.raises(InputError) as caught:
        attrs.evolve(SMALL, **change)
    assert place == caught.value.place


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"active": 9}, "Experts.active"),
        ({"active": 0}, "Experts.active"),
        ({"number": "8"}, "Experts.number"),
        ({"shared": 0}, "Experts.shared"),
        ({"shared_expert_gate": True}, "Experts.shared_expert_gate"),
    ],
    ids=str,
)
def test_bad_experts_are_refused_by_their_field(change: dict[str, object], place: str) -> None:
    """Experts that cannot be are refused, with the field that is wrong."""
    with pytest.raises(InputError) as caught:
        attrs.evolve(Experts(number=8, active=2, feed_forward=16), **change)
    assert place == caught.value.place


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"shape": (4, -1)}, "Tensor.shape"),
        ({"shape": (4.0,)}, "Tensor.shape"),
        ({"shape": (True,)}, "Tensor.shape"),
        ({"shape": 4}, "Tensor.shape"),
        ({"dtype": "bf16"}, "Tensor.dtype"),
        ({"dtype": None}, "Tensor.dtype"),
    ],
    ids=str,
)
def test_bad_tensor_is_refused_by_its_field(change: dict[str, object], place: str) -> None:
    """A tensor without a shape of whole numbers or a known element type is refused, with the field that is wrong."""
    with pytest.raises(InputError) as caught:
        attrs.evolve(Tensor(name="w", shape=(4, 4), dtype="bfloat16"), **change)
    assert place == caught.value.place


@st.composite
def shapes(draw: st.DrawFn) -> TransformerShape:
    small = st.integers(1, 6)
    heads_of_kv, kv_heads, size, number = draw(small), draw(small), draw(small), draw(small)
    experts = None
    if draw(st.booleans()):
        experts = Experts(
            number=number, active=draw(st.integers(1, number)), feed_forward=draw(small), shared=draw(st.none() | small),
            dense_layers=draw(st.none() | small), layer_step=draw(st.none() | small), correction_bias=draw(st.booleans()),
        )  # fmt: skip
    names = ("tied_embeddings", "gated", "query_key_value_biases", "attention_output_biases", "feed_forward_biases", "norm_biases",
             "head_bias", "parallel_norm", "post_norms", "embedding_norm", "final_norm")  # fmt: skip
    flags = {name: draw(st.booleans()) for name in names}
    if draw(st.booleans()):
        flags["latent"] = LatentAttention(
            key_value_rank=draw(small),
            query_rank=draw(st.none() | small),
            position_free_size=draw(small),
            rotary_size=draw(small),
            value_size=draw(small),
        )
        attention: dict[str, object] = {}
    else:
        attention = {"kv_heads": kv_heads, "head_size": size, "query_key_norms": draw(st.booleans())}
    return TransformerShape(
        layers=draw(small), hidden=draw(small), feed_forward=draw(small), heads=kv_heads * heads_of_kv, vocabulary=draw(small),
        positions=draw(st.none() | small), embedding_size=draw(st.none() | small), experts=experts, **flags, **attention,
    )  # fmt: skip


@given(shapes())
def test_count_is_the_sum_over_tensors(shape: TransformerShape) -> None:
    """The parameter count is the sum of the tensors' elements, no name is there twice, and a byte each makes as many bytes."""
    tensors = list(shape.tensors("int8"))
    assert len(tensors) == len({tensor.name for tensor in tensors})
    assert shape.parameter_count == sum(tensor.elements for tensor in tensors) == sum(tensor.bytes for tensor in tensors)
    assert Q_(float(shape.parameter_count), "param") == shape.parameters


@given(shapes(), st.integers(1, 5))
def test_every_further_layer_adds_the_same(shape: TransformerShape, more: int) -> None:
    """Layers of one kind add equal amounts: the count is linear in them."""
    alike = attrs.evolve(shape, experts=None)
    counts = [attrs.evolve(alike, layers=layers).parameter_count for layers in (1, 2, 2 + more)]
    assert (1 + more) * (counts[1] - counts[0]) == counts[2] - counts[0]


@given(shapes(), st.sampled_from(["layers", "hidden", "feed_forward", "vocabulary"]))
def test_count_never_falls_with_a_size(shape: TransformerShape, name: str) -> None:
    """A wider or deeper model has no fewer parameters."""
    # an embedding of its own width would gain or lose its projection
    plain = attrs.evolve(shape, embedding_size=None)
    assert plain.parameter_count <= attrs.evolve(plain, **{name: getattr(plain, name) + 1}).parameter_count


@given(shapes())
def test_active_parameters_are_all_where_all_experts_are_active(shape: TransformerShape) -> None:
    """Active parameters never exceed the parameters, and equal them once every expert is active."""
    assert shape.active_parameter_count <= shape.parameter_count
    if shape.experts is not None:
        full = attrs.evolve(shape, experts=attrs.evolve(shape.experts, active=shape.experts.number))
        assert full.parameter_count == full.active_parameter_count


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4), st.integers(1, 9))
def test_count_of_a_plain_model_is_the_closed_form(layers: int, size: int, width: int, kv_heads: int, groups: int, vocabulary: int) -> None:
    """Gated, grouped, without biases: ``2 V h + L (2 h^2 (1 + 1/g) + 3 h f + 2 h) + h``."""
    heads = kv_heads * groups
    hidden = heads * size
    shape = TransformerShape(
        layers=layers, hidden=hidden, feed_forward=width, heads=heads, kv_heads=kv_heads, vocabulary=vocabulary, gated=True
    )
    attention = 2 * hidden**2 + 2 * hidden**2 // groups
    assert 2 * vocabulary * hidden + layers * (attention + 3 * hidden * width + 2 * hidden) + hidden == shape.parameter_count
