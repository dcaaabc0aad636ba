"""Reported cases: what people met in public threads about saving checkpoints, and what a right answer is.

Each test names the thread that the numbers come from.
"""

from __future__ import annotations

import pytest

from mlsysim import (
    Q_,
    Fleet,
    Node,
    StagingPlan,
    Tensor,
    TieredCheckpointModel,
    TieredCheckpointScenario,
    Workload,
    memory_from_params,
    transfer_time,
)
from mlsysim.catalog.recipes import Recipes
from mlsysim.layout.prediction import predict_layout
from mlsysim.physics.retention import archived_saves, drive_writes_per_day, retained_bytes, saves_in_run
from mlsysim.physics.staging import host_bytes_needed
from mlsysim.specs.parallel import ParallelPlan, Placed
from mlsysim.specs.recipe import Component, StateRecipe
from mlsysim.specs.writers import EveryHolder, LowestRank


def test_an_optimizer_file_that_seems_too_large() -> None:
    """DeepSpeed issue 6598: the 90 GiB optimizer of an 8B is right; the 36 GB that had been expected left most of it out."""
    found = Recipes.mixed_adam.bytes_by_component([Tensor(name="w", shape=(8_030_261_248,), dtype="bfloat16")])
    optimizer = sum(amount for name, amount in found.items() if name != "weights")
    assert (96_363_134_976, 16_060_522_496) == (optimizer, found["weights"])
    assert 2.676753749 == pytest.approx(optimizer / 36e9)
    assert 89.74516296 == pytest.approx(Q_(optimizer, "byte").to("GiB").magnitude)


def test_a_disk_that_holds_one_save() -> None:
    """transformers issue 24766: 213 GB hold one save of a 13B with its export, and no second."""
    save = memory_from_params(Q_("13016000000 param"), Q_("12 byte/param"))
    export = memory_from_params(Q_("13016000000 param"), Q_("4 byte/param"))
    assert Q_("208.256 GB") == save + export
    assert retained_bytes(checkpoint_bytes=save, kept=1) > Q_("213 GB")


def test_a_tied_embedding_stored_twice() -> None:
    """transformers issue 23868: what a sharded save of GPT-2 small adds is the embedding once more, 147 MiB."""
    embedding = Tensor(name="embedding", shape=(50257, 768), dtype="float32")
    assert 154_389_504 == embedding.bytes
    assert 147 == pytest.approx(Q_(embedding.bytes, "byte").to("MiB").magnitude, abs=0.5)


def test_frozen_weights_in_adapter_checkpoints() -> None:
    """dreamzero issue 90: saves with the frozen base are 28 times too large; in 10 saves 952 GB instead of 34."""
    needed = Q_("463 MiB") + 8 * Q_("364 MB")
    written = Q_("88.7 GiB")
    assert 28.03271842 == pytest.approx((written / needed).to("").magnitude, rel=1e-9)
    assert 0.9524089979 == pytest.approx((10 * written).to("TB").magnitude, rel=1e-9)


def test_no_low_precision_copy() -> None:
    """maxtext issue 606: fp32 weights and two moments are 12 byte a parameter, not 20."""
    assert Q_("80.856 GB") == memory_from_params(Q_("6738000000 param"), Q_("12 byte/param"))
    assert Q_("12 byte/param") == Recipes.fp32_adam.bytes_per_param([Tensor(name="w", shape=(64, 64), dtype="float32")])


def test_gigabytes_read_as_gibibytes() -> None:
    """MLPerf Storage issue 207: 256 read as GiB is 7.4 % more than as GB."""
    assert 274_877_906_944 == Q_("256 GiB").base
    assert 0.073741824 == pytest.approx(Q_("256 GiB").base / Q_("256 GB").base - 1)


def test_gigabits_are_not_gigabytes() -> None:
    """azure-docs issue 105785: 10 Gb/s move a 978 GB checkpoint in 13 minutes; read as bytes, in 1.6."""
    size = Q_("978406572032 byte")
    assert Q_("1.25 GB/s") == Q_("10 Gb/s")
    assert 13.04542096 == pytest.approx(transfer_time(size, Q_("10 Gb/s")).to("min").magnitude)
    assert 1.63067762 == pytest.approx(transfer_time(size, Q_("10 GB/s")).to("min").magnitude)


def test_two_files_per_rank_are_not_even() -> None:
    """Megatron-LM issue 964: the largest writer sets the pause, 2.3 times what an even split over all ranks would."""
    written = [Q_("33.4 GiB"), Q_("24.8 GiB"), Q_("24.8 GiB"), Q_("33.4 GiB")]
    total = sum(written[1:], written[0])
    inputs = {"checkpoint_bytes": total, "nodes": 8, "local_bandwidth": "1 GB/s", "durable_bandwidth": "8 GB/s", "save_interval": "1 h"}
    uneven = TieredCheckpointModel().solve(**inputs, largest_shard=written[0])
    even = TieredCheckpointModel().solve(**inputs)
    assert 2.295532646 == pytest.approx(uneven.local_write_time.base / even.local_write_time.base, rel=1e-9)


def test_one_replica_group_writes() -> None:
    """PyTorch issue 104081: with replicated shards and the lowest rank writing, one group writes all; balanced, all do."""
    tensors = [Tensor(name=f"w{number}", shape=(64, 8), dtype="float32") for number in range(8)]
    recipe = StateRecipe(name="weights", components=(Component(name="weights", dtype="float32", sharded_from=3),))
    lowest = predict_layout(tensors, recipe, ParallelPlan(data=4, shard_group=2, zero=3, writers=LowestRank()))
    balanced = predict_layout(tensors, recipe, ParallelPlan(data=4, shard_group=2, zero=3))
    assert (2.0, 1.0) == (lowest.imbalance, balanced.imbalance)


def test_held_is_more_than_stored() -> None:
    """PyTorch issue 120356: four ranks hold 64 byte under one name, and 16 are stored; the layout says how many held it."""
    recipe = StateRecipe(name="weights", components=(Component(name="weights", dtype="float32", sharded_from=3),))
    layout = predict_layout([Tensor(name="weight", shape=(4,), dtype="float32")], recipe, ParallelPlan(data=4))
    assert (64.0, 16.0) == (layout.held_bytes.base, layout.payload_bytes.base)


def test_every_replica_writes_tiny_chunks() -> None:
    """Orbax pull 2165: 512 replicas part a shard of 16 MiB into chunks of 32 KiB."""
    from mlsysim.specs.writers import ReplicaParallel

    recipe = StateRecipe(name="weights", components=(Component(name="weights", dtype="float32", sharded_from=3),))
    plan = ParallelPlan(data=512, writers=ReplicaParallel())
    layout = predict_layout([Tensor(name="w", shape=(512 * 64, 128), dtype="float32")], recipe, plan)
    assert {32 * 1024} == set(layout.fragments.payload_bytes.tolist())


def test_a_first_save_that_kills_all_nodes() -> None:
    """A 744B on 16 nodes stages 651 GB a node: once it fits in 780 GB, twice it does not, in waves it does."""
    case = TieredCheckpointScenario(
        workload=Workload(name="744B", parameters="744e9 param"), bytes_per_param="14 byte/param",
        fleet=Fleet(name="16 nodes", count=16, node=Node(name="n", accelerators=8, host_memory="780 GB")),
        local_bandwidth="12 GB/s", durable_bandwidth="100 GB/s", save_interval="30 min", staging=StagingPlan(buffers=2),
    )  # fmt: skip
    check = next(each for each in case.result.checks if each.name == "host memory holds it")
    assert (Q_("1302 GB"), False) == (check.value, check.holds)
    assert "stage in 2 waves of 651 GB" in check.advice
    assert Q_("651 GB") == host_bytes_needed(staged=Q_("651 GB"))
    assert Q_("81.375 GB") == host_bytes_needed(staged=Q_("651 GB"), waves=8)


def test_a_budget_per_process_is_not_one_per_node() -> None:
    """marin pull 8469: four processes of 61 + 78 GiB are 556 GiB a node, and 472 after the budget was cut to 40."""
    for staged, expected in (("61 GiB", "556 GiB"), ("40 GiB", "472 GiB")):
        plan = StagingPlan(processes=4, staged_per_process=staged, resident_per_process="78 GiB")
        assert Q_(expected) == plan.host_bytes(Q_("1 TB"))


def test_keeping_one_needs_room_for_two() -> None:
    """verl pull 4873: keeping one safely peaks at two checkpoints."""
    assert Q_("200 GB") == retained_bytes(checkpoint_bytes=Q_("100 GB"), kept=1)
    assert Q_("106 GB") == retained_bytes(checkpoint_bytes=Q_("53 GB"), kept=1)


def test_saves_are_counted_exactly() -> None:
    """Seven days every ten minutes are 1,008 saves, not the 1,007 of a truncated float; every 100th and the last are 11."""
    saves = saves_in_run(run_time=Q_("7 day"), save_interval=Q_("10 min"))
    assert (1008, 11) == (saves, archived_saves(saves=saves, every=100))
    assert 3 == saves_in_run(run_time=Q_("0.3 s"), save_interval=Q_("0.1 s"))


def test_drive_writes_per_day() -> None:
    """A drive of 1 TB that takes 100 GB every 144 minutes is written over once a day."""
    rate = drive_writes_per_day(per_node_shard=Q_("100 GB"), save_interval=Q_("144 min"), local_capacity=Q_("1 TB"))
    assert 1.0 == pytest.approx(rate.to("1/day").magnitude, rel=1e-12)


def test_every_rank_writes_what_it_holds() -> None:
    """A save without collectives keeps every copy: replication is the number of ranks for what is not sharded."""
    recipe = StateRecipe(name="weights", components=(Component(name="weights", dtype="float32", sharded_from=3),))
    plan = ParallelPlan(data=4, zero=3, writers=EveryHolder())
    layout = predict_layout([Placed(tensor=Tensor(name="rope", shape=(8,), dtype="float32"), sharded=False)], recipe, plan)
    assert 4.0 == layout.replication
    assert layout.verify().ok


def test_metadata_of_a_synchronous_8b() -> None:
    """torchtitan issue 1301: at the disk's 2.2 GB/s an 8B takes 43.8 s; nine tenths of the 394 s observed are not storage."""
    size = memory_from_params(Q_("8030261248 param"), Q_("12 byte/param"))
    predicted = transfer_time(size, Q_("2.2 GB/s"))
    assert 43.80142499 == pytest.approx(predicted.to("s").magnitude)
    assert 0.8887893541 == pytest.approx(1 - predicted.base / 393.86)


def test_one_rank_exports() -> None:
    """SkyRL pull 1831: 1.1 TB by one writer at 0.458 GB/s takes 40 minutes, by 64 writers 37.5 s."""
    size = memory_from_params(Q_("550e9 param"), Q_("2 byte/param"))
    rate = size / Q_("40 min")
    assert 0.4583333333 == pytest.approx(rate.to("GB/s").magnitude)
    assert 37.5 == pytest.approx(transfer_time(size, 64 * rate).to("s").magnitude)


def test_three_copies_less_the_container() -> None:
    """ignite issue 1954: weights with Adam are three times the weights, but for the container, which is written once."""
    weights, full = 19_253_929, 57_738_580
    predicted = 3 * weights
    assert (57_761_787, 23_207) == (predicted, predicted - full)
    assert 0.0004019322955 == pytest.approx((predicted - full) / full)


def test_forty_times_the_payload() -> None:
    """Megatron-DeepSpeed issue 343: 3.5 TB on disk are 41 times what a 7B holds at 12 byte a parameter."""
    payload = memory_from_params(Q_("7069016064 param"), Q_("12 byte/param"))
    assert 84_828_192_768 == payload.base
    assert 41.25986757 == pytest.approx((Q_("3.5 TB") / payload).to("").magnitude)


def test_a_split_by_kind_is_no_split_by_size() -> None:
    """Megatron-LM issue 964: of two writers on a rank the larger has 93 % of the bytes, so the second saves 7 % of the time."""
    larger, smaller = Q_("31 GiB"), Q_("2.4 GiB")
    assert 0.07185628743 == pytest.approx((smaller / (larger + smaller)).to("").magnitude)


def test_eight_writers_of_a_replicated_model() -> None:
    """PyTorch pull 116469: 19 s by one rank are 2.375 s by eight if even; of the 3 s observed the rest is fixed or uneven."""
    size = Q_("20 GB")
    rate = size / Q_("19 s")
    assert 1.052631579 == pytest.approx(rate.to("GB/s").magnitude)
    ideal = transfer_time(size, 8 * rate)
    assert (2.375, 0.625) == pytest.approx((ideal.to("s").magnitude, 3 - ideal.to("s").magnitude))


def test_the_fullest_target_counts() -> None:
    """awsome-distributed-ai pull 1225: 459 GB free on average hold two of 53 GB, and yet the save failed: the stripe was not even."""
    case = {"checkpoint_bytes": Q_("53 GB"), "nodes": 1, "local_bandwidth": Q_("53 GB") / Q_("8.3 s"), "durable_bandwidth": "1 GB/s"}
    on_average = TieredCheckpointModel().solve(**case, save_interval="1 h", kept=1, durable_capacity="459 GB")
    assert on_average.checks[3].holds
    assert 8.3 == pytest.approx(on_average.local_write_time.to("s").magnitude)
    assert "uneven stripes" in (retained_bytes.__doc__ or "")
