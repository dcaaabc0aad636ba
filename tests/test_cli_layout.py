"""``mlsysim layout``: what it prints, and how it exits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlsysim.cli import main
from mlsysim.layout.reading import _readers

DATA = Path(__file__).parent / "data"
UNEVEN, SAFETENSORS, CASE = DATA / "dcp" / "pp_uneven_4ranks" / "ckpt", DATA / "safetensors" / "good.safetensors", DATA / "fixture"
KEYS = [
    "format", "ranks", "files", "logical_bytes", "payload_bytes", "stored_bytes", "held_bytes", "metadata_bytes", "bytes_per_rank",
    "stored_bytes_per_rank", "bytes_per_file", "replication", "imbalance", "manifest_digest", "replicas_recorded", "unknown", "notes",
    "tensors", "objects",
]  # fmt: skip
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process: exit code, output, errors."""

    def command(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(each) for each in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def flipped(tmp_path: Path) -> Path:
    """The uneven checkpoint with one bit flipped in the middle of rank 0's file, which is payload."""
    shutil.copytree(UNEVEN, tmp_path / "step_10")
    file = tmp_path / "step_10" / "__0_0.distcp"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return tmp_path / "step_10"


@pytest.mark.parametrize("count", ["2.6", "0x8", "1e1", "two", "0", "-2"])
def test_a_count_is_a_whole_number(run: Run, count: str) -> None:
    """What is no whole number is refused, never rounded."""
    code, out, err = run("layout", UNEVEN, f"--ranks-per-node={count}")
    assert (2, "", 1) == (code, out, len(err.splitlines()))
    assert err.startswith("mlsysim: --ranks-per-node must be a whole number")


def test_an_impossible_path(run: Run) -> None:
    """A name that no file can have is bad input, on one line."""
    code, out, err = run("layout", "x" * 5000)
    assert (2, "") == (code, out)
    assert "File name too long" in err


class TestCard:
    """For a person."""

    def test_ranks_and_nodes(self, run: Run) -> None:
        """Who wrote most is named, by rank and by node."""
        code, out, err = run("layout", UNEVEN, "--ranks-per-node", "2")
        assert (0, "") == (code, err)
        assert "mean 4.22 kB, most on rank 0" in out
        assert "2 nodes, most on node 0" in out

    def test_binary(self, run: Run) -> None:
        """Sizes in KiB where asked."""
        assert "16.5 KiB" in run("layout", UNEVEN, "--binary")[1]

    @pytest.mark.parametrize("path", [SAFETENSORS, CASE], ids=["safetensors", "case without payload"])
    def test_what_is_not_known_is_no_failure(self, run: Run, path: Path) -> None:
        """Nodes were asked for and cannot be told: the card says so, and shows the rest."""
        code, out, _ = run("layout", path, "--ranks-per-node", "2")
        assert 0 == code
        assert "not known" in next(line for line in out.splitlines() if "stored per node" in line)


class TestJson:
    """For a program."""

    def test_keys(self, run: Run) -> None:
        """The keys are those that the documentation lists, in its order."""
        assert KEYS == list(json.loads(run("layout", UNEVEN, "--json")[1]))
        more = json.loads(run("layout", UNEVEN, "--json", "--ranks-per-node", "2", "--verify")[1])
        assert {"bytes_per_node", "ok", "findings"} == set(more) - set(KEYS)

    def test_numbers(self, run: Run) -> None:
        """Bytes by rank and node in base units; what the format cannot tell is null, and why."""
        told = json.loads(run("layout", UNEVEN, "--json", "--ranks-per-node", "2")[1])
        assert {"magnitude": [13824.0, 1024.0, 1024.0, 1024.0], "unit": "byte"} == told["bytes_per_rank"]
        assert {"magnitude": [16978.0 + 2601, 2601.0 + 2601], "unit": "byte"} == told["bytes_per_node"]
        assert {"held_bytes", "manifest_digest"} == set(told["unknown"])
        assert (None, None) == (told["held_bytes"], told["manifest_digest"])

    def test_nodes_not_known(self, run: Run) -> None:
        """Nodes that cannot be told are null too."""
        told = json.loads(run("layout", SAFETENSORS, "--json", "--ranks-per-node", "2")[1])
        assert told["bytes_per_node"] is None
        assert "records the rank" in told["unknown"]["bytes_per_node"]


class TestVerify:
    """Every byte that has something to be checked against."""

    def test_good(self, run: Run) -> None:
        """A checkpoint that is whole exits with 0."""
        code, out, _ = run("layout", UNEVEN, "--verify")
        assert 0 == code
        assert "ok: 5 tensors, 5 fragments, 4 files, payload of the tensors read" in out

    def test_flipped_bit(self, run: Run, flipped: Path) -> None:
        """One flipped bit is found, and its rank, tensor and file are named; without --verify no payload is read."""
        code, out, _ = run("layout", flipped, "--verify")
        assert 3 == code
        assert "error: digest differs (rank 0, embed.weight, __0_0.distcp)" in out
        assert 0 == run("layout", flipped)[0]

    def test_flipped_bit_in_json(self, run: Run, flipped: Path) -> None:
        """The same as JSON."""
        code, out, _ = run("layout", flipped, "--verify", "--json")
        told = json.loads(out)
        assert (3, False) == (code, told["ok"])
        found = [each for each in told["findings"] if each["severity"] == "error"]
        assert [("digest differs", "embed.weight", 0)] == [(each["kind"], each["tensor"], each["rank"]) for each in found]

    def test_missing_files(self, run: Run) -> None:
        """A case without its payload is read, and every file that is missing is named: those of four ranks, and the oracle."""
        code, out, _ = run("layout", CASE, "--verify")
        assert 3 == code
        assert 5 == out.count("error: file missing")
        assert [] == [rank for rank in range(4) if f"file missing (rank {rank}, model.weight, rank-0000{rank}.safetensors)" not in out]


class TestBadInput:
    """One sentence, and exit code 2."""

    def test_unknown_folder(self, run: Run, tmp_path: Path) -> None:
        """A folder of no known format: the error lists every format that was looked for."""
        code, out, err = run("layout", tmp_path)
        assert (2, "") == (code, out)
        assert [] == [reader.format for reader in _readers() if f"{reader.format}: {reader.looks_for}" not in err]

    @pytest.mark.parametrize(("arguments", "said"), [
        (("nowhere",), "nowhere must be a folder or file that exists"),
        ((UNEVEN, "--format", "pytorch"), "format must be the name of a known format; got 'pytorch'. Did you mean"),
        ((UNEVEN, "--format", "safetensors"), "must be"),
        ((UNEVEN, "--ranks-per-node", "0"), "--ranks-per-node must be a whole number of at least 1; got 0"),
        ((DATA / "hostile" / "os_system",), "system"),
    ], ids=["nothing there", "unknown format", "other format", "no ranks", "hostile"])  # fmt: skip
    def test_refused(self, run: Run, arguments: tuple[str | Path, ...], said: str) -> None:
        """What cannot be read is refused in one line on stderr."""
        code, out, err = run("layout", *arguments)
        assert (2, "", 1) == (code, out, err.count("\n"))
        assert said in err


def test_check_takes_a_file_that_names_a_checkpoint(run: Run, tmp_path: Path) -> None:
    """``mlsysim check`` reads the checkpoint of a scenario file, and ``--set`` changes its fields."""
    shutil.copytree(UNEVEN, tmp_path / "step_10")
    file = tmp_path / "save.toml"
    file.write_text(
        'scenario = "LayoutCheckpointScenario"\nlayout = "step_10"\nranks_per_node = 1\nlocal_bandwidth = "10 kB/s"\n'
        'durable_bandwidth = "1 MB/s"\nsave_interval = "1 min"\n'
    )
    code, out, _ = run("check", file)
    assert 0 == code
    assert "1.7 s" in out
    assert "pause, now 2.74 times that" in out
    assert 3 == run("check", file, "--set", "local_bandwidth=100 byte/s")[0]
