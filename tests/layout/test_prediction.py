"""Predicted layouts against real checkpoints whose plan is known: payload per rank, to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlsysim import InputError, read_checkpoint
from mlsysim.layout.containers import Distcp
from mlsysim.layout.limits import Limits
from mlsysim.layout.prediction import predict_layout
from mlsysim.specs.parallel import ParallelPlan, Placed
from mlsysim.specs.recipe import Component, Scalar, StateRecipe
from mlsysim.specs.sharding import Flat, Pieces
from mlsysim.specs.tensor import Tensor
from mlsysim.specs.writers import Balanced, EveryHolder, FullyParallel, LowestRank, ReplicaParallel

DATA = Path(__file__).parents[1] / "data"

WEIGHTS = StateRecipe(name="weights", components=(Component(name="weights", dtype="float32", sharded_from=3, prefix="model."),))
ADAM = StateRecipe(
    name="PyTorch's AdamW in fp32",
    components=(
        Component(name="weights", dtype="float32", sharded_from=3, prefix="model."),
        Component(name="step", dtype="float32", rule=Scalar(), prefix="optim.state.", suffix=".step"),
        Component(name="first moment", dtype="float32", prefix="optim.state.", suffix=".exp_avg"),
        Component(name="second moment", dtype="float32", prefix="optim.state.", suffix=".exp_avg_sq"),
    ),
)


def truth(sample: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / sample / "truth.json").read_text())
    return found


def model(found: dict[str, Any], *, sharded: bool = True) -> list[Placed]:
    """The model's tensors as the sample's ranks held them."""
    placed = []
    for each in found["ranks"][0]:
        if each["fqn"].startswith(("optim.", "train_state", "dataloader")):
            continue
        name = each["fqn"].removeprefix("model.")
        tensor = Tensor(name=name, shape=tuple(each["global_shape"]), dtype="float32")
        cut = {"S(0)": 0, "S(1)": 1}.get(each["placements"][1]) if len(each.get("placements", ())) == 2 else None
        distributed = sharded and each["kind"] == "DTensor"
        placed.append(Placed(tensor=tensor, tensor_axis=cut, sharded=distributed, trained=name != "rope"))
    return placed


PYTORCH = [
    ("dcp/ddp_replicated_4ranks", ADAM, ParallelPlan(data=4), 12, False),
    ("dcp/fsdp_tp_2x2", ADAM, ParallelPlan(data=2, tensor=2, zero=3), 12, True),
    ("dcp/fsdp2_file_per_tensor_4ranks", WEIGHTS, ParallelPlan(data=4, zero=3), 0, True),
    ("dcp/fsdp2_no_collectives_4ranks", WEIGHTS, ParallelPlan(data=4, zero=3, writers=EveryHolder()), 0, True),
    ("dcp/hf_sharded_4ranks", WEIGHTS, ParallelPlan(data=4, zero=3), 0, True),
]


@pytest.mark.parametrize(("sample", "recipe", "plan", "objects", "sharded"), PYTORCH, ids=[each[0] for each in PYTORCH])
def test_pytorch_payload_per_rank(sample: str, recipe: StateRecipe, plan: ParallelPlan, objects: int, sharded: bool) -> None:
    """The payload that each rank of a PyTorch save wrote is predicted to the byte."""
    found = truth(sample)
    layout = predict_layout(model(found, sharded=sharded), recipe, plan, objects=["object"] * objects)
    assert found["layout"]["payload_bytes_per_rank"] == layout.bytes_per_rank.base.tolist()


def test_fully_sharded_with_a_random_state_per_rank() -> None:
    """What each rank of a fully sharded AdamW save wrote beside its random state and the token count is predicted to the byte."""
    found = truth("dcp/fsdp2_adamw_4ranks")
    layout = predict_layout(model(found), ADAM, ParallelPlan(data=4, zero=3))
    besides = np.zeros(4)
    for tensor in found["layout"]["tensors"]:
        if tensor["name"].startswith(("dataloader.", "train_state.")):
            for chunk in tensor["chunks"]:
                besides[chunk["rank"]] += chunk["payload_bytes"]
    assert found["layout"]["payload_bytes_per_rank"] == (layout.bytes_per_rank.base + besides).tolist()


def test_every_owner_of_a_replicated_save() -> None:
    """PyTorch's balance names the very owner of every tensor of a replicated save."""
    found = truth("dcp/ddp_replicated_4ranks")
    layout = predict_layout(model(found, sharded=False), ADAM, ParallelPlan(data=4), objects=["object"] * 12)
    owners = {
        layout.tensors[tensor].name: rank
        for tensor, rank in zip(layout.fragments.tensor.tolist(), layout.fragments.rank.tolist(), strict=True)
    }
    assert {each["name"]: each["chunks"][0]["rank"] for each in found["layout"]["tensors"]} == owners


def test_stored_bytes_within_two_per_cent() -> None:
    """What a PyTorch save stores, without its Python objects, is predicted within 2 %."""
    for sample, recipe, plan, objects, sharded in PYTORCH:
        if sample.startswith("dcp/hf"):
            continue
        found = truth(sample)
        layout = predict_layout(model(found, sharded=sharded), recipe, plan, objects=["object"] * objects, container=Distcp())
        tensors = found["layout"]["stored_bytes"] - sum(each["stored_bytes"] for each in found["layout"]["objects"])
        assert float(layout.stored_bytes.base) == pytest.approx(tensors, rel=0.02), sample


def test_uneven_pipeline() -> None:
    """A stage holds its own tensors alone, so that the stage with the embedding writes most."""
    found = truth("dcp/pp_uneven_4ranks")
    placed = [
        Placed(tensor=Tensor(name=each["fqn"], shape=tuple(each["global_shape"]), dtype="float32"), stage=stage)
        for stage, rank in enumerate(found["ranks"])
        for each in rank
    ]
    bare = StateRecipe(name="weights", components=(Component(name="weights", dtype="float32", sharded_from=3),))
    layout = predict_layout(placed, bare, ParallelPlan(pipeline=4))
    assert found["layout"]["payload_bytes_per_rank"] == layout.bytes_per_rank.base.tolist()


def test_megatron_plain() -> None:
    """Megatron-core's plain save: weights by the first data-parallel group, moments by everyone."""
    found = truth("megatron/plain")
    cut = {"decoder.col.weight": 0, "decoder.row.weight": 1, "embedding.word_embeddings.weight": 0, "decoder.norm.weight": None}
    shapes = {each["name"]: each for each in found["layout"]["tensors"]}
    weights = {name: Tensor(name=name, shape=tuple(shapes[name]["global_shape"]), dtype=shapes[name]["dtype"]) for name in cut}
    plan = ParallelPlan(tensor=2, data=2, zero=1, writers=LowestRank())
    total = np.zeros(4)
    for name, tensor in weights.items():
        # the sample keeps moments of one matrix alone, and its norm in another element type
        moments = ["exp_avg", "exp_avg_sq"] if name == "decoder.col.weight" else []
        components = [Component(name="weights", dtype=tensor.dtype, sharded_from=3)]
        components += [Component(name=each, dtype="float32", prefix=f"optimizer.{each}.") for each in moments]
        recipe = StateRecipe(name="sample", components=tuple(components))
        total += predict_layout([Placed(tensor=tensor, tensor_axis=cut[name])], recipe, plan).bytes_per_rank.base
    assert found["layout"]["payload_bytes_per_rank"] == total.tolist()


def test_megatron_fully_parallel() -> None:
    """The fully parallel save shares a group's weights out, the largest first, each to the rank with the fewest bytes."""
    names = (("a", 8), ("b", 4), ("c", 4), ("d", 2))
    tensors = [Tensor(name=name, shape=(rows, 4), dtype="float32") for name, rows in names]
    layout = predict_layout(tensors, WEIGHTS, ParallelPlan(data=2, writers=FullyParallel()))
    owners = dict(zip((layout.tensors[each].name for each in layout.fragments.tensor), layout.fragments.rank.tolist(), strict=True))
    assert {"model.a": 0, "model.b": 1, "model.c": 1, "model.d": 0} == owners


def test_zero_1() -> None:
    """DeepSpeed ZeRO 1: weights once by the first rank, flat partitions and a step by every rank."""
    found = truth("deepspeed/zero1")
    tensors = [
        Tensor(name=each["name"], shape=tuple(each["global_shape"]), dtype="bfloat16")
        for each in found["layout"]["tensors"]
        if each["name"].startswith("module.")
    ]
    flat = (("master", "fp32"), ("first moment", "exp_avg"), ("second moment", "exp_avg_sq"))
    recipe = StateRecipe(
        name="ZeRO 1",
        components=(
            Component(name="weights", dtype="bfloat16", sharded_from=3),
            *(Component(name=name, dtype="float32", prefix=f"optimizer.{key}.") for name, key in flat),
        ),
    )
    plan = ParallelPlan(data=2, zero=1, sharding=Flat(), writers=LowestRank())
    step = StateRecipe(name="step", components=(Component(name="step", dtype="float32", rule=Scalar(), writers=EveryHolder()),))
    layout = predict_layout(tensors, recipe, plan)
    counter = predict_layout([Tensor(name="step", shape=(), dtype="float32")], step, plan)
    assert found["layout"]["payload_bytes_per_rank"] == (layout.bytes_per_rank.base + counter.bytes_per_rank.base).tolist()


def test_zero_2() -> None:
    """DeepSpeed ZeRO 2 of three ranks: the flat partitions are padded, and so is the buffer of the weights."""
    real = read_checkpoint(DATA / "deepspeed" / "zero2_3ranks")
    tensors = [Tensor(name=each.name, shape=each.global_shape, dtype=each.dtype) for each in real.tensors if "module." in each.name]
    flat = [Component(name=each, dtype="float32", prefix=f"{each}.") for each in ("master", "exp_avg", "exp_avg_sq")]
    recipe = StateRecipe(name="ZeRO 2", components=(Component(name="weights", dtype=tensors[0].dtype, sharded_from=3), *flat))
    layout = predict_layout(tensors, recipe, ParallelPlan(data=3, zero=2, sharding=Flat(), writers=LowestRank()))
    step = 4
    assert real.bytes_per_rank.base.tolist() == (layout.bytes_per_rank.base + step).tolist()


def test_zero_3() -> None:
    """DeepSpeed ZeRO 3: every rank keeps a padded piece of every parameter, and no weights of two bytes."""
    found = truth("deepspeed/zero3")
    tensors = [Tensor(name=each["name"], shape=tuple(each["global_shape"]), dtype="float32") for each in found["layout"]["fp32_parameters"]]
    recipe = StateRecipe(
        name="ZeRO 3",
        components=tuple(Component(name=each, dtype="float32", prefix=f"{each}.") for each in ("master", "exp_avg", "exp_avg_sq")),
    )
    layout = predict_layout(tensors, recipe, ParallelPlan(data=2, zero=3, sharding=Pieces()))
    step = 4
    assert found["layout"]["payload_bytes_per_rank"] == (layout.bytes_per_rank.base + step).tolist()


def test_orbax_replica_parallel() -> None:
    """Orbax parts replicas among the devices that hold them; what does not divide stays on the first process."""
    found = truth("orbax/ocdbt_2procs_4x2")
    spec = {key.replace("']['", ".").strip("[]'"): each["spec"] for key, each in found["arrays"].items()}
    total = np.zeros(2)
    plan = ParallelPlan(tensor=2, data=4, zero=3, writers=ReplicaParallel(), devices_per_process=4)
    for each in found["layout"]["tensors"]:
        cut = spec.get(each["name"], "P()")
        tensor = Tensor(name=each["name"], shape=tuple(each["global_shape"]), dtype=each["dtype"])
        placed = Placed(tensor=tensor, sharded="fsdp" in cut, tensor_axis=1 if ", 'tensor'" in cut else None)
        recipe = StateRecipe(name="array", components=(Component(name="array", dtype=each["dtype"], sharded_from=3),))
        total += predict_layout([placed], recipe, plan).bytes_per_rank.base
    assert found["layout"]["payload_bytes_per_rank"] == total.tolist()


def test_replicated_mesh_by_its_first_group() -> None:
    """With the lowest rank writing, a replicated mesh of 2 x 2 is written by its first group alone."""
    plan = ParallelPlan(data=4, shard_group=2, zero=3, writers=LowestRank())
    layout = predict_layout([Tensor(name="w", shape=(64, 8), dtype="float32")], WEIGHTS, plan)
    assert [1024.0, 1024.0, 0.0, 0.0] == layout.bytes_per_rank.base.tolist()


@given(
    data=st.integers(1, 6), tensor=st.sampled_from([1, 2, 3]), rows=st.integers(1, 40), zero=st.sampled_from([0, 1, 3]),
    writers=st.sampled_from([Balanced(), FullyParallel(), LowestRank(), ReplicaParallel()]),
)  # fmt: skip
def test_one_copy_whatever_the_writers(data: int, tensor: int, rows: int, zero: int, writers: Any) -> None:
    """Whoever writes, each tensor is stored exactly once and whole."""
    placed = [
        Placed(tensor=Tensor(name="w", shape=(rows * 6, 4), dtype="float32"), tensor_axis=0),
        Placed(tensor=Tensor(name="b", shape=(rows,), dtype="float32")),
    ]
    layout = predict_layout(placed, ADAM, ParallelPlan(data=data, tensor=tensor, zero=zero, writers=writers))
    assert 1.0 == layout.replication
    assert layout.verify().ok


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"zero": 4}, "zero"),
        ({"zero": True}, "zero"),
        ({"data": 4, "shard_group": 3}, "shard_group"),
        ({"tensor": 0}, "tensor"),
        ({"pipeline": 2, "stage_layers": (1,)}, "stage_layers"),
        ({"data": 4, "expert": 3}, "expert"),
        ({"data": 3, "devices_per_process": 2}, "devices_per_process"),
    ],
)
def test_a_bad_plan_is_named(given: dict[str, Any], named: str) -> None:
    """A degree that does not fit is refused by its name."""
    with pytest.raises(InputError, match=f"ParallelPlan.{named}"):
        ParallelPlan(**given)


@pytest.mark.parametrize(
    ("tensor", "plan", "said"),
    [
        ({"shape": (4096, 4096)}, {"data": 999_999_999}, "byte of memory"),
        ({"shape": (4096, 4096)}, {"data": 10**7, "tensor": 10**7, "pipeline": 10}, "byte of memory"),
        ({"shape": (2**40,)}, {"data": 2**40, "zero": 3}, "byte of memory"),
        ({"shape": (10**10, 10**10)}, {}, "2.62 byte"),
        ({"shape": (2**64, 0)}, {}, "2.62 byte"),
        ({"shape": (2**40,)}, {"data": 2**20, "writers": EveryHolder()}, "2.62 byte"),
    ],
)
def test_a_layout_too_large_to_build_is_refused(tensor: dict[str, Any], plan: dict[str, Any], said: str) -> None:
    """A plan or a model whose layout would take all memory, or numbers beyond 63 bits, is refused before anything is built."""
    with pytest.raises(InputError, match=f"^predict_layout.*{said}"):
        predict_layout([Tensor(name="w", dtype="float32", **tensor)], ADAM, ParallelPlan(**plan))


def test_the_cap_on_a_layout_can_be_raised() -> None:
    """What is refused under one cap is built under a larger one."""
    tensors, plan = [Tensor(name="w", shape=(1000,), dtype="float32")], ParallelPlan(data=1000, zero=3)
    with pytest.raises(InputError, match="raise the cap"):
        predict_layout(tensors, ADAM, plan, limits=Limits(built_bytes=1000))
    assert predict_layout(tensors, ADAM, plan).verify().ok
