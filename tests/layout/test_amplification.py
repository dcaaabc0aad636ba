"""Small checkpoints that claim much: what they cost grows with their bytes, not with the product of their claims."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsysim import CheckpointLayout, InputError, read_checkpoint
from mlsysim.layout import verification
from mlsysim.layout.findings import Finding
from mlsysim.layout.layout import Files, Fragments, Payload, TensorInfo
from mlsysim.layout.limits import Limits
from tests.layout.torch_files import Checkpoint
from tests.layout.zero_files import File

RANKS = 65_536


@pytest.fixture
def frugal() -> Any:
    """At most 1 GB more than the process has: what is not bounded ends in a MemoryError, not in the machine's end."""
    held = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 2**20
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**30, held[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, held)


def optimizer(root: Path, stage: int, parts: int) -> None:
    """One optimizer file that claims many ranks, and as many groups of one partition."""
    file = File()
    name = "single_partition_of_fp32_groups" if stage == 1 else "fp32_flat_groups"
    inner = {"zero_stage": stage, "partition_count": RANKS, name: [file.put(np.zeros(1, np.float32))] * parts}
    file.write(root / "zero_pp_rank_0_mp_rank_00_optim_states.pt", {"optimizer_state_dict": inner, "ds_config": {}})


def model(root: Path, stage: int, name: str, **fields: Any) -> None:
    file = File()
    config = {"ds_config": {"zero_optimization": {"stage": stage}}, "dp_world_size": RANKS}
    file.write(root / name, {"module": {"w": file.put(np.zeros(1, np.float32))}, "param_shapes": [], **config, **fields})


@pytest.mark.usefixtures("frugal")
def test_groups_times_ranks(tmp_path: Path) -> None:
    """Many groups, each over all ranks by its claim, are refused over the cap."""
    optimizer(tmp_path, 1, 1000)
    model(tmp_path, 1, "mp_rank_00_model_states.pt", param_shapes=[{"w": (2**40,)}] * 1000)
    with pytest.raises(InputError, match="parameters in more places"):
        read_checkpoint(tmp_path, limits=Limits(built_bytes=2**28))


@pytest.mark.usefixtures("frugal")
def test_parameters_times_ranks(tmp_path: Path) -> None:
    """Many parameters, each cut over all ranks by its claim, are looked at on the ranks that have a file."""
    optimizer(tmp_path, 3, 1)
    shapes = [{f"w{number}": (RANKS,) for number in range(5000)}]
    model(tmp_path, 3, "zero_pp_rank_0_mp_rank_00_model_states.pt", param_shapes=shapes)
    layout = read_checkpoint(tmp_path)
    assert RANKS == layout.ranks
    holes = [each.message for each in layout.verify().of_kind("hole")]
    # a hole of the partitions, and one for each parameter: the first has the one element that is there
    assert ("and 4,001 more of this kind", True) == (holes[-1], "1 of 65,536 elements of its master weights are there" in holes)


@pytest.mark.usefixtures("frugal")
def test_frozen_parameters_times_ranks(tmp_path: Path) -> None:
    """Many frozen parameters, each cut over all ranks by its claim, are as large as they claim, and one part of each is there."""
    file, names = File(), [f"w{number}" for number in range(2000)]
    held = {name: file.put(np.zeros(1, np.float32)) for name in names}
    file.write(tmp_path / "zero_pp_rank_0_mp_rank_00_model_states.pt", {
        "module": {}, "param_shapes": [], "frozen_param_shapes": dict.fromkeys(names, (RANKS,)), "frozen_param_fragments": held,
        "dp_world_size": RANKS, "ds_config": {"zero_optimization": {"stage": 3}},
    })  # fmt: skip
    layout = read_checkpoint(tmp_path)
    assert (2000, {(RANKS,)}) == (len(layout.fragments), {each.global_shape for each in layout.tensors})


@pytest.mark.usefixtures("frugal")
def test_one_long_name_again_and_again(tmp_path: Path) -> None:
    """A name of ten million letters that is referred to a million times is not copied each time."""
    model(tmp_path, 1, "mp_rank_00_model_states.pt", buffer_names=["x" * 10**7] * 10**6)
    assert ["module.w"] == [each.name for each in read_checkpoint(tmp_path).tensors]


def test_chunks_of_the_same_bytes(tmp_path: Path) -> None:
    """Chunks that share bytes of a file are found without payload, and their bytes are read once."""
    made = Checkpoint(tmp_path)
    made.add("w", np.arange(8, dtype=np.float32), [("__0_0.distcp", (0,), (4,)), ("__0_0.distcp", (4,), (4,))])
    first, second = made.stored.values()
    second.state["offset"], second.state["length"] = 0, first.state["length"]
    layout = read_checkpoint(made.write())
    assert ["its bytes, from 0 on, are in part those of another chunk; they are not read again"] == [
        each.message for each in layout.verify().of_kind("overlap")
    ]
    read: list[int] = []
    layout.verify(payload=True, advance=read.append)
    assert 0 < sum(read) <= first.state["length"]


class Talkative(Payload):
    """Finds the same thing again and again."""

    def __init__(self, severity: str, count: int) -> None:
        self.severity, self.count = severity, count

    def findings(self, layout: CheckpointLayout) -> Any:
        for number in range(self.count):
            yield Finding(kind="unclaimed bytes", severity=self.severity, message=f"{number}")


def one_tensor(offset: list[int], ranks: list[int], payload: Payload | None = None) -> CheckpointLayout:
    """Fragments of one element of a vector of 3,000."""
    rows = [(0, rank, 0, (at,), (1,), 4, 4, -1) for at, rank in zip(offset, ranks, strict=True)]
    return CheckpointLayout(
        format="pytorch_dcp", tensors=(TensorInfo(name="w", dtype="float32", global_shape=(3000,)),), fragments=Fragments.from_rows(rows),
        data_files=Files.from_rows([("file", 0, 12_000)]), ranks=2, replicas_recorded=True, payload=payload,
    )  # fmt: skip


@pytest.mark.parametrize(("severity", "ok"), [("warning", True), ("error", False)])
def test_findings_without_end_are_counted(severity: str, ok: bool) -> None:
    """The first thousand of a kind are told and the others counted; many warnings make no error."""
    report = one_tensor(list(range(3000)), [0] * 3000, Talkative(severity, 5000)).verify()
    told = report.of_kind("unclaimed bytes")
    assert (ok, 1001, "and 4,000 more of this kind", severity) == (report.ok, len(told), told[-1].message, told[-1].severity)


def test_copies_of_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of thousands of parts stored twice by one rank is an overlap, by two ranks a replica."""
    monkeypatch.setattr(verification, "_MOST_OF_A_KIND", 10_000)
    twice = list(range(3000)) * 2
    assert one_tensor(twice, [0] * 3000 + [1] * 3000).verify().ok
    assert 3000 == len(one_tensor(twice, [0] * 6000).verify().of_kind("overlap"))
