"""DeepSpeed checkpoints of other kinds: more ranks, groups, experts, pipelines, model-parallel ranks, and faults in them."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlsysim import CheckpointLayout, InputError, read_checkpoint
from mlsysim.layout.deepspeed import fp32_parameter
from mlsysim.layout.limits import Limits
from tests.layout.torch_files import Global, Object, Raw, saved, tensor
from tests.layout.zero_files import checkpoint, model_file, optimizer_file, payload, weights

DATA = Path(__file__).parents[1] / "data" / "deepspeed"
REAL = ["zero2_3ranks", "zero2_round_robin", "zero2_groups", "zero3_groups", "zero2_experts", "zero1_pipeline"]
GROUPS = [weights(1, (5, 7), (3,), (2, 2, 2)), weights(2, (11,), (1,))]
GROUPS[1] = {f"other.{name}": each for name, each in GROUPS[1].items()}


def truth(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / name / "truth.json").read_text())
    return found


def digest(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def by_file(layout: CheckpointLayout) -> dict[str, float]:
    held = np.bincount(layout.fragments.file, layout.fragments.payload_bytes, len(layout.files))
    return dict(zip(layout.files, held.tolist(), strict=True))


@pytest.mark.parametrize("name", REAL)
def test_a_real_one_verifies(name: str) -> None:
    """Real checkpoints of each kind verify, payload read."""
    report = read_checkpoint(DATA / name).verify(payload=True)
    assert (True, ()) == (report.ok, tuple(each for each in report if each.severity == "error"))


@pytest.mark.parametrize("name", REAL)
def test_payload_is_that_of_the_storages(name: str) -> None:
    """The payload of each file is what the storages in its zip take, each counted once, padding included."""
    layout = read_checkpoint(DATA / name)
    assert (truth(name)["format"], truth(name)["storage_bytes"]) == (layout.format, by_file(layout))


@pytest.mark.parametrize("name", REAL)
def test_every_array_of_every_file(name: str) -> None:
    """Every array that torch finds in a file is a fragment of the layout with the same bytes."""
    layout = read_checkpoint(DATA / name)
    found: dict[str, set[tuple[str, tuple[int, ...], str]]] = {}
    assert layout.payload is not None
    for row in range(len(layout.fragments)):
        array = layout.payload.read(row)
        file = layout.files[layout.fragments.file[row]]
        found.setdefault(file, set()).add((array.dtype.name, array.shape, digest(array)))
    for file, arrays in truth(name)["stored"].items():
        assert {(dtype, tuple(shape), sha) for dtype, shape, sha in arrays.values()} == found.get(file, set()), file


@pytest.mark.parametrize("name", [name for name in REAL if truth(name)["fp32"]])
def test_as_deepspeed_converts_it(name: str) -> None:
    """Every parameter comes together as DeepSpeed's converter has it: tied, frozen, in groups, dealt round and round to the ranks."""
    layout = read_checkpoint(DATA / name)
    buffers = {each.name for each in layout.tensors}
    for parameter, (shape, dtype, sha) in truth(name)["fp32"].items():
        frozen = parameter in ("layers.0.up.weight", "layers.1.down.bias") and dtype == "bfloat16"
        whole = f"module.{parameter}" in buffers and (frozen or parameter in ("scale", "count"))
        found = layout.reassemble(f"module.{parameter}") if whole else fp32_parameter(layout, parameter)
        assert (shape, dtype, sha) == (list(found.shape), found.dtype.name, digest(found)), parameter


@pytest.mark.parametrize("name", ["zero2_experts", "zero1_pipeline", "zero2_round_robin"])
def test_weights_are_the_master_weights_rounded(name: str) -> None:
    """The bfloat16 weights of each parameter are its master weights rounded: of experts and of a pipeline's layers as well."""
    layout = read_checkpoint(DATA / name)
    for each in layout.details["fp32_parameters"]:
        expert, _, inner = (
            each.name.removeprefix("expert_parallel_").partition(".") if "expert_parallel" in each.name else ("0", "", each.name)
        )
        inner = inner.partition(".")[2] if name == "zero1_pipeline" else inner
        for local in (1, 0) if int(expert) else ():
            inner = inner.replace(f"deepspeed_experts.{local}.", f"deepspeed_experts.{local + 2}.")
        weight = layout.reassemble(f"module.{inner}")
        assert weight.tobytes() == fp32_parameter(layout, each.name).astype(weight.dtype).tobytes(), each.name


def test_round_robin_is_told() -> None:
    """Where parameters are dealt to ranks in turn, the places that DeepSpeed records are not those where they lie: a warning says so."""
    found = read_checkpoint(DATA / "zero2_round_robin").verify().of_kind("topology differs")
    assert [("warning", 0), ("warning", 1)] == [(each.severity, each.rank) for each in found]


def test_ranks_of_a_pipeline() -> None:
    """Of two stages by two data-parallel ranks, the second stage is ranks 2 and 3; the first of each writes its layers."""
    layout = read_checkpoint(DATA / "zero1_pipeline")
    ranks = dict(zip((each.rpartition("/")[2] for each in layout.files), layout.data_files.rank.tolist(), strict=True))
    assert (4, 2, 2) == (layout.ranks, layout.details["model_parallel"], layout.details["data_parallel"])
    assert [0, 0, 2] == [ranks[f"layer_0{number}-model_states.pt"] for number in range(3)]
    assert [0, 2, 1, 3] == [ranks[f"bf16_zero_pp_rank_{data}_mp_rank_0{model}_optim_states.pt"] for data in (0, 1) for model in (0, 1)]


def test_ranks_of_experts() -> None:
    """Of four experts over two expert-parallel ranks, each writes its two."""
    layout = read_checkpoint(DATA / "zero2_experts")
    ranks = {name: rank for name, rank in zip(layout.files, layout.data_files.rank.tolist(), strict=True) if "_expert_" in name}
    assert [0, 0, 1, 1] == list(ranks.values())


def test_tied_and_frozen_weights_count_once() -> None:
    """Names of one storage are one tensor, and the others are told."""
    layout = read_checkpoint(DATA / "zero2_groups")
    same = layout.details["same_storage"]
    assert ("module.embed.weight", "module.layers.0.up.weight") == (
        same["module.head.weight"], same["frozen_param_fragments.layers.0.up.weight"],
    )  # fmt: skip
    assert {"head.weight": "embed.weight"} == layout.details["shared_params"]
    assert np.array_equal(fp32_parameter(layout, "head.weight"), fp32_parameter(layout, "embed.weight"))


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("ways", [1, 2, 3, 8])
def test_any_stage_and_number_of_ranks(tmp_path: Path, stage: int, ways: int) -> None:
    """Written by what each stage stores, every parameter comes back, and every rank's bytes are as counted."""
    layout = read_checkpoint(checkpoint(tmp_path, stage, [GROUPS], ways))
    assert (f"deepspeed_zero{stage}", ways) == (layout.format, layout.ranks)
    assert payload(stage, GROUPS, ways) == layout.payload_bytes.base
    for name, expected in (GROUPS[0] | GROUPS[1]).items():
        assert np.array_equal(expected, fp32_parameter(layout, name)), name
        if stage < 3:
            assert np.array_equal(expected.astype(ml_dtypes.bfloat16), layout.reassemble(f"module.{name}"))
    assert () == tuple(layout.verify(payload=True))


@pytest.mark.parametrize("stage", [2, 3])
def test_model_parallel(tmp_path: Path, stage: int) -> None:
    """Each model-parallel rank has tensors and parameters of its own; ranks count them as neighbours, and the notes say so."""
    other = [{name: 2 * each for name, each in group.items()} for group in GROUPS]
    layout = read_checkpoint(checkpoint(tmp_path, stage, [GROUPS, other], 3))
    assert (6, 2) == (layout.ranks, layout.details["model_parallel"])
    for name, expected in GROUPS[0].items():
        assert np.array_equal(expected, fp32_parameter(layout, f"mp_rank_00.{name}"))
        assert np.array_equal(2 * expected, fp32_parameter(layout, f"mp_rank_01.{name}"))
    last = layout.files.index("global_step2/zero_pp_rank_2_mp_rank_00_optim_states.pt")
    assert 4 == layout.data_files.rank[last]
    assert any("neighbours" in note for note in layout.notes)
    assert layout.verify(payload=True).ok


@pytest.mark.parametrize("stage", [1, 3])
def test_a_missing_file_of_a_rank(tmp_path: Path, stage: int) -> None:
    """Without a rank's files its share is a hole, in the flat tensors and in each parameter, and the rank is missing."""
    checkpoint(tmp_path, stage, [GROUPS], 4)
    for path in tmp_path.glob("global_step2/zero_pp_rank_3*"):
        path.unlink()
    report = read_checkpoint(tmp_path).verify()
    missing = {each.file for each in report.of_kind("file missing") if each.rank == 3}
    assert "global_step2/zero_pp_rank_3_mp_rank_00_optim_states.pt" in missing
    holes = {each.tensor for each in report.of_kind("hole")}
    assert {"optimizer.state.0.exp_avg", "layer.2.weight"} <= holes


def test_a_missing_model_file(tmp_path: Path) -> None:
    """Without model file the master weights are still there, by the slices that the optimizer files tell, their shapes are not."""
    checkpoint(tmp_path, 2, [GROUPS], 2)
    (tmp_path / "global_step2" / "mp_rank_00_model_states.pt").unlink()
    layout = read_checkpoint(tmp_path)
    for name, expected in GROUPS[0].items():
        assert np.array_equal(expected.reshape(-1), fp32_parameter(layout, name))


def test_files_of_another_save(tmp_path: Path) -> None:
    """Files of more ranks than the partitions were made for are of another save."""
    checkpoint(tmp_path, 1, [GROUPS], 2)
    tag = tmp_path / "global_step2"
    shutil.copy(tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt", tag / "zero_pp_rank_2_mp_rank_00_optim_states.pt")
    assert read_checkpoint(tmp_path).verify().of_kind("topology differs")


def test_two_files_of_one_rank(tmp_path: Path) -> None:
    """Of two files of one rank, one is of another save: it is named."""
    checkpoint(tmp_path, 1, [GROUPS], 2)
    tag = tmp_path / "global_step2"
    shutil.copy(tag / "zero_pp_rank_1_mp_rank_00_optim_states.pt", tag / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt")
    found = read_checkpoint(tmp_path).verify().of_kind("topology differs")
    assert ["global_step2/zero_pp_rank_1_mp_rank_00_optim_states.pt"] == [each.file for each in found]


def test_steps_that_differ(tmp_path: Path) -> None:
    """A rank whose optimizer made another number of steps is found."""
    checkpoint(tmp_path, 1, [GROUPS], 2)
    path = tmp_path / "global_step2" / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    data = path.read_bytes()
    two, three = np.float32(2).tobytes(), np.float32(3).tobytes()
    assert data.count(b"data/1" + two) == 1
    path.write_bytes(data.replace(b"data/1" + two, b"data/1" + three))
    found = read_checkpoint(tmp_path).verify(payload=True).of_kind("replicas disagree")
    assert [("optimizer.state.0.step", 1)] == [(each.tensor, each.rank) for each in found]


def test_a_storage_of_no_tensor(tmp_path: Path) -> None:
    """Bytes in a zip that no tensor is a view of are told."""
    path = checkpoint(tmp_path, 2, [GROUPS], 2) / "global_step2" / "mp_rank_00_model_states.pt"
    path.write_bytes(saved({"module": {}, "param_shapes": []}, {"0": bytes(12)}))
    found = read_checkpoint(tmp_path).verify().of_kind("unclaimed bytes")
    assert [("warning", "global_step2/mp_rank_00_model_states.pt")] == [(each.severity, each.file) for each in found]


def test_a_member_that_climbs_out(tmp_path: Path) -> None:
    """Members of a zip are never written anywhere: one with a name that climbs out is bytes of no tensor."""
    path = checkpoint(tmp_path / "there", 2, [GROUPS], 2) / "global_step2" / "mp_rank_00_model_states.pt"
    path.write_bytes(saved({"module": {}, "param_shapes": []}, {"../../../../out": bytes(12)}))
    assert read_checkpoint(tmp_path / "there").verify(payload=True).of_kind("unclaimed bytes")
    assert ["there"] == [each.name for each in tmp_path.iterdir()]


def test_a_storage_that_is_not_there(tmp_path: Path) -> None:
    """A tensor whose storage is not in the zip is found by name; one whose storage is too short as well."""
    tag = checkpoint(tmp_path, 2, [GROUPS], 1) / "global_step2"
    optimizer_file(tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt", 2, GROUPS, 1, 0)
    data = (tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt").read_bytes()
    (tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt").write_bytes(data.replace(b"archive/data/2", b"archive/date/2"))
    layout = read_checkpoint(tmp_path)
    assert ["optimizer.state.0.exp_avg"] == [each.tensor for each in layout.verify().of_kind("missing tensor")]
    with pytest.raises(InputError, match="data/2"):
        layout.reassemble("optimizer.state.0.exp_avg")


def test_what_a_user_put_in(tmp_path: Path) -> None:
    """A user's objects are named, stay inert, and the arrays in them are tensors."""
    tag = checkpoint(tmp_path, 2, [GROUPS], 2) / "global_step2"
    run = Object(Global("os", "system"), ("touch ran",), call=True)
    model_file(tag / "mp_rank_00_model_states.pt", 2, GROUPS, 2, args=Object(Global("mine", "Args"), (), {"hidden": 3}), run=run)
    layout = read_checkpoint(tmp_path)
    assert ("args", "run") == layout.objects
    assert layout.verify(payload=True).ok
    assert not Path("ran").exists()


@pytest.mark.parametrize("named", [("builtins", "eval"), ("os", "system"), ("posix", "system"), ("mine", "Layer.inner"), ("numpy", "load")])
def test_nothing_named_is_called(tmp_path: Path, named: tuple[str, str]) -> None:
    """Whatever an optimizer file names stays inert, and the rest of it reads."""
    tag = checkpoint(tmp_path, 2, [GROUPS], 1) / "global_step2"
    called = Object(Global(*named), ("raise SystemExit",), call=True)
    optimizer_file(tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt", 2, GROUPS, 1, 0, loss_scaler=called)
    assert np.array_equal(GROUPS[0]["layer.1.weight"], fp32_parameter(read_checkpoint(tmp_path), "layer.1.weight"))


AGAIN = Raw(b"]" + b"q\x00" + b"(" + b"h\x00" * 100_000 + b"e")
HOSTILE: dict[str, tuple[Any, str]] = {
    "no dict": ([1, 2], "a dict"),
    "no tensors in the groups": ({"optimizer_state_dict": {"fp32_flat_groups": [3]}}, "a list of tensors"),
    "a long name": ({"optimizer_state_dict": {"a" * 2000: {"b": {}}}}, "names of less than"),
    "one list, again and again": ({"optimizer_state_dict": {"single_partition_of_fp32_groups": []}, "shared": AGAIN}, ""),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_contents(tmp_path: Path, kind: str) -> None:
    """Contents that no optimizer writes are refused by the file's name, or have nothing in them that counts."""
    value, message = HOSTILE[kind]
    name = "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    (checkpoint(tmp_path, 1, [GROUPS], 1) / "global_step2" / name).write_bytes(saved(value, {}))
    if message:
        with pytest.raises(InputError, match=message) as caught:
            read_checkpoint(tmp_path)
        assert name in str(caught.value)
    else:
        assert read_checkpoint(tmp_path).verify(payload=True).of_kind("hole") == ()


def test_groups_told_again_and_again_are_refused(tmp_path: Path) -> None:
    """A pickle says a group once and refers to it often; the parameters of all groups together are bounded."""
    shapes = {f"{number}": (1,) for number in range(5000)}
    tag = checkpoint(tmp_path, 1, [GROUPS], 1) / "global_step2"
    model_file(tag / "mp_rank_00_model_states.pt", 1, GROUPS, 1, param_shapes=[shapes] * 1000)
    with pytest.raises(InputError, match=r"at most 4,000,000 parameters"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(("field", "value", "kinds"), [
    ("group_paddings", [2**61, -1], set()), ("zero_stage", "x", set()), ("param_slice_mappings", [{"x": 3}, None], {"topology differs"}),
    ("param_alignment_paddings", [[2**61] * 3] * 2, {"topology differs", "hole"}), ("param_alignment_paddings", [3, "x"], set()),
    ("single_partition_of_fp32_groups", None, {"unclaimed bytes"}),
])  # fmt: skip
def test_odd_fields(tmp_path: Path, field: str, value: Any, kinds: set[str]) -> None:
    """A field that says what it cannot is left aside where another tells the same, and found where not."""
    tag = checkpoint(tmp_path, 1, [GROUPS], 1) / "global_step2"
    optimizer_file(tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt", 1, GROUPS, 1, 0, **{field: value})
    assert kinds == {each.kind for each in read_checkpoint(tmp_path).verify(payload=True)}


@pytest.mark.parametrize("count", [[2**61], 10**6])
def test_too_many_ranks_are_refused(tmp_path: Path, count: Any) -> None:
    """Files of a million ranks are not looked for."""
    tag = checkpoint(tmp_path, 1, [GROUPS], 1) / "global_step2"
    optimizer_file(tag / "zero_pp_rank_0_mp_rank_00_optim_states.pt", 1, GROUPS, 1, 0, partition_count=count)
    with pytest.raises(InputError, match="of at most 262,144 ranks"):
        read_checkpoint(tmp_path)


def test_a_tensor_larger_than_its_storage(tmp_path: Path) -> None:
    """A view that repeats one element 2^40 times is not laid out in memory."""
    name = "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    tag = checkpoint(tmp_path, 1, [GROUPS], 1) / "global_step2"
    wide = tensor(np.zeros(1, np.float32), "0", shape=(2**20, 2**20), stride=(0, 0))
    (tag / name).write_bytes(saved({"optimizer_state_dict": {"wide": wide, "single_partition_of_fp32_groups": []}}, {"0": bytes(4)}))
    layout = read_checkpoint(tmp_path)
    with pytest.raises(InputError, match="no larger than their storage"):
        layout.reassemble("optimizer.wide")


def test_caps(tmp_path: Path) -> None:
    """Caps on files and on tensors are kept before anything is built, and can be raised."""
    checkpoint(tmp_path, 1, [GROUPS], 3)
    with pytest.raises(InputError, match="of at most 2 files"):
        read_checkpoint(tmp_path, limits=Limits(files=2))
    with pytest.raises(InputError, match="limits=Limits"):
        read_checkpoint(tmp_path, limits=Limits(built_bytes=20_000))


def test_a_link_out_is_refused(tmp_path: Path) -> None:
    """A file that is a link out of the checkpoint's folder is not followed."""
    tag = checkpoint(tmp_path / "there", 1, [GROUPS], 2) / "global_step2"
    path = tag / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    shutil.move(path, tmp_path / "outside.pt")
    path.symlink_to(tmp_path / "outside.pt")
    with pytest.raises(InputError, match="links followed"):
        read_checkpoint(tmp_path / "there")


def test_without_latest(tmp_path: Path) -> None:
    """Without latest the only folder of a step is read; of two, one has to be given; a file of one stands for its folder."""
    checkpoint(tmp_path, 1, [GROUPS], 1)
    (tmp_path / "latest").unlink()
    assert "global_step2/mp_rank_00_model_states.pt" in read_checkpoint(tmp_path).files
    assert "mp_rank_00_model_states.pt" in read_checkpoint(tmp_path / "global_step2" / "mp_rank_00_model_states.pt").files
    shutil.copytree(tmp_path / "global_step2", tmp_path / "global_step3")
    with pytest.raises(InputError, match="2 folders of tags"):
        read_checkpoint(tmp_path)
