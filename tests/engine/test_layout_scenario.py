"""A save of a checkpoint that was read or predicted, against numbers worked out by hand."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mlsysim import Q_, InputError, LayoutCheckpointScenario, load_scenario, read_checkpoint
from mlsysim.layout import CheckpointLayout, TensorInfo
from mlsysim.layout.layout import Files, Fragments

DATA = Path(__file__).parents[1] / "data"
UNEVEN = DATA / "dcp" / "pp_uneven_4ranks" / "ckpt"
GB = 10**9


def made(stored: list[int], payload: list[int], logical: int, *, ranks: int | None = None, **more: Any) -> CheckpointLayout:
    """One tensor of ``logical`` byte, a fragment and a file by each rank."""
    count = len(stored)
    return CheckpointLayout(
        **{"format": "made up", "ranks": ranks or count, "replicas_recorded": False, **more},
        tensors=(TensorInfo(name="w", dtype="uint8", global_shape=(logical,)),),
        data_files=Files.from_rows([(f"rank-{rank}", rank, size) for rank, size in enumerate(stored)]),
        fragments=Fragments.from_rows([(0, rank, rank, (0,), (size,), size, stored[rank], 0) for rank, size in enumerate(payload)]),
    )


def case(layout: CheckpointLayout, **fields: Any) -> LayoutCheckpointScenario:
    given = {"ranks_per_node": 2, "local_bandwidth": "2 GB/s", "durable_bandwidth": "4 GB/s", "save_interval": "1 min", **fields}
    return LayoutCheckpointScenario(layout=layout, **given)


@pytest.fixture
def uneven() -> LayoutCheckpointScenario:
    """Nodes that store 12 and 4 GB, 2 GB of the 16 being container."""
    return case(made([9 * GB, 3 * GB, 2 * GB, 2 * GB], [8 * GB, 2 * GB, 2 * GB, 2 * GB], 14 * GB))


class TestSave:
    """The pause, the drain, and what they would be otherwise."""

    def test_largest_node_sets_the_pause(self, uneven: LayoutCheckpointScenario) -> None:
        """Node 0 stores 9 + 3 GB: at 2 GB/s that is 6 s, whatever the other node stores."""
        assert Q_("12 GB") == uneven.result.per_node_shard
        assert Q_("6 s") == uneven.result.local_write_time

    def test_all_bytes_set_the_drain(self, uneven: LayoutCheckpointScenario) -> None:
        """16 GB as stored, containers included, at 4 GB/s are 4 s."""
        assert Q_("16 GB") == uneven.result.checkpoint_bytes
        assert Q_("4 s") == uneven.result.drain_time

    def test_if_even(self, uneven: LayoutCheckpointScenario) -> None:
        """Spread evenly, each of two nodes stores 8 GB: a pause of 4 s, and the same drain."""
        assert Q_("4 s") == uneven.if_even.local_write_time
        assert Q_("4 s") == uneven.if_even.drain_time

    def test_ranks_per_node(self, uneven: LayoutCheckpointScenario) -> None:
        """A rank to a node, the largest node stores 9 GB; three to a node, the first stores 14 and the last 2."""
        assert Q_("4.5 s") == case(uneven.layout, ranks_per_node=1).result.local_write_time
        assert Q_("7 s") == case(uneven.layout, ranks_per_node=3).result.local_write_time
        assert Q_("8 s") == case(uneven.layout, ranks_per_node=8).result.local_write_time

    def test_if_one_copy(self) -> None:
        """Four ranks that wrote the same 5 GB: one copy is a quarter, 5 GB over two nodes."""
        replicated = case(made([5 * GB] * 4, [5 * GB] * 4, 5 * GB, replicas_recorded=True))
        assert (Q_("5 s"), Q_("5 s")) == (replicated.result.local_write_time, replicated.result.drain_time)
        assert (Q_("1.25 s"), Q_("1.25 s")) == (replicated.if_one_copy.local_write_time, replicated.if_one_copy.drain_time)

    def test_if_every_replica_where_all_were_written(self) -> None:
        """Where the format records every copy, and every copy was written, nothing would be added."""
        replicated = case(made([5 * GB] * 4, [5 * GB] * 4, 5 * GB, replicas_recorded=True))
        assert replicated.result.drain_time == replicated.if_every_replica.drain_time

    def test_if_every_replica_where_one_was_kept(self) -> None:
        """One copy of 4 GB, parted over four ranks that each held all of it: 16 GB, 8 to a node."""
        parted = case(made([GB] * 4, [GB] * 4, 4 * GB, replicas_recorded=True, details={"replicas_held": {"w": 4}}))
        assert (Q_("1 s"), Q_("1 s")) == (parted.result.local_write_time, parted.result.drain_time)
        assert (Q_("4 s"), Q_("4 s")) == (parted.if_every_replica.local_write_time, parted.if_every_replica.drain_time)

    def test_if_every_replica_unknown(self, uneven: LayoutCheckpointScenario) -> None:
        """A format that keeps one copy does not tell, and that is said."""
        with pytest.raises(InputError, match="held_bytes must be asked of a format that records replicas; got 'made up'"):
            _ = uneven.if_every_replica

    def test_file_of_no_rank(self) -> None:
        """What no one rank wrote is written by the first node, and drained with the rest."""
        layout = made([2 * GB] * 4, [2 * GB] * 4, 8 * GB)
        merged = Files.from_rows([*((f"rank-{rank}", rank, 2 * GB) for rank in range(4)), ("merged", -1, 4 * GB)])
        both = CheckpointLayout(
            format="made up", ranks=4, replicas_recorded=False, tensors=layout.tensors, fragments=layout.fragments, data_files=merged
        )
        assert (Q_("4 s"), Q_("3 s")) == (case(both).result.local_write_time, case(both).result.drain_time)

    def test_other_fields_reach_the_solver(self, uneven: LayoutCheckpointScenario) -> None:
        """Two local slots of the largest node need 24 GB: a node with 20 GB cannot hold them."""
        small = case(uneven.layout, local_capacity="20 GB")
        assert not small.result.feasible
        assert Q_("24 GB") == small.result.local_bytes_needed


class TestRefusals:
    """A layout that cannot answer is refused in a sentence."""

    def test_format_without_ranks(self) -> None:
        """A safetensors file does not say who wrote it; the scenario still says what it is."""
        plain = case(read_checkpoint(DATA / "safetensors" / "good.safetensors"))
        assert "unknown ranks, 2 to a node" == plain.about()[1]
        with pytest.raises(InputError, match="must be asked of a format that records the rank; got 'safetensors'"):
            _ = plain.result

    def test_files_of_no_rank_at_all(self) -> None:
        """Where ranks took part and no file tells which, bytes per node are refused and not 0."""
        layout = made([GB, GB], [GB, GB], 2 * GB)
        unknown = Files.from_rows([("a", -1, GB), ("b", -1, GB)])
        both = CheckpointLayout(
            format="made up", ranks=2, replicas_recorded=False, tensors=layout.tensors, fragments=layout.fragments, data_files=unknown
        )
        with pytest.raises(InputError, match="must be asked of a format that records the rank"):
            both.bytes_per_node(1)

    def test_missing_file(self) -> None:
        """Stored bytes of a file that is not there are unknown."""
        with pytest.raises(InputError, match=r"asked where every data file is there; got rank-1 missing\."):
            _ = case(made([GB, -1], [GB, GB], 2 * GB)).result

    def test_nothing_stored(self) -> None:
        """A checkpoint of 0 byte has no largest node."""
        with pytest.raises(InputError, match="a checkpoint that stores something"):
            _ = case(made([0, 0], [0, 0], 0)).result

    def test_predicted_layout_is_no_file(self, uneven: LayoutCheckpointScenario) -> None:
        """What was not read from a path cannot be written as one."""
        with pytest.raises(InputError, match="layout must be read from a checkpoint; got 'a made up layout'"):
            uneven.to_toml()


class TestCard:
    """What the card adds to the save's own."""

    def test_price_of_imbalance(self, uneven: LayoutCheckpointScenario) -> None:
        """6 s now against 4 s if it were even; replicas are not known."""
        rows = {row.label: (row.value, row.note) for row in uneven.card().rows}
        assert ("4 s", "pause, now 1.5 times that; drain 4 s, as now") == rows["if it were even"]
        assert "not known" == rows["if every replica were"][0]
        assert "if one copy were written" not in rows

    def test_price_of_replicas(self) -> None:
        """Four copies cost four times one."""
        replicated = case(made([5 * GB] * 4, [5 * GB] * 4, 5 * GB, replicas_recorded=True))
        rows = {row.label: (row.value, row.note) for row in replicated.card().rows}
        assert ("1.25 s", "pause, now 4 times that; drain 1.25 s, now 4 times that") == rows["if one copy were written"]
        assert "if every replica were" not in rows


class TestFile:
    """A scenario file names a checkpoint by its path."""

    TEXT = """\
scenario = "LayoutCheckpointScenario"
layout = "runs/step_10"
ranks_per_node = 1
local_bandwidth = "1 MB/s"
durable_bandwidth = "1 MB/s"
save_interval = "1 min"
"""

    def test_path_relative_to_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The path is looked for from the file's folder, not from where the command runs: 16,978 of 24,781 byte are by rank 0."""
        shutil.copytree(UNEVEN, tmp_path / "plans" / "runs" / "step_10")
        file = tmp_path / "plans" / "save.toml"
        file.write_text(self.TEXT)
        monkeypatch.chdir(tmp_path)
        found = load_scenario("plans/save.toml")
        assert Q_("16978 us") == found.result.local_write_time
        assert Q_("24781 us") == found.result.drain_time

    def test_round_trip(self) -> None:
        """Written as TOML and read back, the answers are the same."""
        real = case(read_checkpoint(UNEVEN), ranks_per_node=1)
        again = LayoutCheckpointScenario.from_toml(real.to_toml())
        assert real.result.checks == again.result.checks
        assert real.to_dict() == again.to_dict()

    @pytest.mark.parametrize(("line", "said"), [
        ('layout = "nowhere"', "got 'nowhere': .*nowhere must be a folder or file that exists, and is nothing there"),
        ('layout = "evil"', r"got 'evil': \.metadata: byte \d+ must be .*, and is posix system"),
        ("layout = 4", "layout must be the path of a checkpoint; got 4"),
    ])  # fmt: skip
    def test_bad_path(self, tmp_path: Path, line: str, said: str) -> None:
        """A path without a good checkpoint is a fault of the file, and what is wrong with the checkpoint is told."""
        shutil.copytree(DATA / "hostile" / "os_system", tmp_path / "evil")
        file = tmp_path / "save.toml"
        file.write_text(self.TEXT.replace('layout = "runs/step_10"', line))
        with pytest.raises(InputError, match=said):
            load_scenario(file)
