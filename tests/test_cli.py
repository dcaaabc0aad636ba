"""The command line: what it prints, and how it exits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mlsysim
from mlsysim import Fleets, Models, Scenarios, TieredCheckpointScenario
from mlsysim.cli import main

GOOD, BAD = "Gpt3TieredCheckpoint2K", "MtNlgTieredCheckpoint20Gb"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process: exit code, output, errors."""

    def command(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture
def plan_file(tmp_path: Path, file_text: str) -> Path:
    """A scenario file."""
    path = tmp_path / "plan.toml"
    path.write_text(file_text, encoding="utf-8")
    return path


Run = Callable[..., tuple[int, str, str]]


class TestExitCodes:
    """0 feasible, 3 infeasible, 2 bad input."""

    @pytest.mark.parametrize(("name", "code"), [(GOOD, 0), (BAD, 3)])
    @pytest.mark.parametrize("options", [(), ("--json",), ("--binary",)])
    def test_named_case(self, run: Run, name: str, code: int, options: tuple[str, ...]) -> None:
        """A feasible plan exits with 0, one that is not with 3, and neither writes to stderr."""
        assert (code, "") == run("check", name, *options)[::2]

    def test_file(self, run: Run, plan_file: Path) -> None:
        """A file is checked as a named case is."""
        code, out, _ = run("check", str(plan_file))
        assert (0, True) == (code, "988 GB" in out)

    @pytest.mark.parametrize(
        ("change", "code"), [("save_interval=1 s", 3), ("save_interval=5 min", 0), ("fleet.node.local_capacity=1 GB", 3)]
    )
    def test_changed(self, run: Run, change: str, code: int) -> None:
        """A change decides the verdict."""
        assert code == run("check", GOOD, "--set", change)[0]

    def test_several_changes(self, run: Run, plan_file: Path) -> None:
        """Changes add up."""
        code, out, _ = run("check", str(plan_file), "--set", "save_interval=5 min", "--set=fleet.count=512", "--json")
        table = json.loads(out)["scenario"]
        assert (0, "5 min", 512) == (code, table["save_interval"], table["fleet"]["count"])

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            (("check", "Gpt3TieredCheckpoint2k"), "Did you mean Gpt3TieredCheckpoint2K?"),
            (("check", ""), "a name in Scenarios"),
            (("check", "missing.toml"), "a file that can be read"),
            (("check", "plan.yaml"), "a name in Scenarios"),
            (("check", "."), "a name in Scenarios"),
            (("check", GOOD, "--set", "save_intervall=5 min"), "Did you mean save_interval?"),
            (("check", GOOD, "--set", "scenario=x"), "must be TieredCheckpointScenario"),
            (("check", GOOD, "--set", "fleet=5"), "a table of fields; got 5"),
            (("check", GOOD, "--set", "="), "a known field"),
            (("check", GOOD, "--set", ""), "a field and a value"),
            (("check", GOOD, "--set", "save_interval"), "a field and a value"),
            (("check", GOOD, "--set", "bytes_per_param=14"), 'Write bytes_per_param="14 byte/param"'),
            (("check", GOOD, "--set", "durable_bandwidth=80,5 GB/s"), "one number and one unit"),
            (("check", GOOD, "--set", "durable_bandwidth=9**9**9**9 byte"), "one number and one unit"),
            (("check", GOOD, "--set", "durable_bandwidth=1 TB"), "an amount of information"),
            (("check", GOOD, "--set", "fleet.count=True"), "a whole number of at least 1"),
            (("check", GOOD, "--set"), "requires an argument"),
            (("check", GOOD, "--sett", "a=b"), "Did you mean --set?"),
            (("check",), "requires an argument"),
            (("check", GOOD, "b"), "b"),
            (("chekc", GOOD), "check"),
            (("list", "Llama3_70b"), "Did you mean Llama3_70B?"),
            (("check", "a\x1b[31m\nb.toml"), "a file that can be read"),
        ],
    )
    def test_bad_input(self, run: Run, arguments: tuple[str, ...], told: str) -> None:
        """Bad input exits with 2 and one clear line on stderr, without a traceback or a control code."""
        code, out, err = run(*arguments)
        assert (2, "", 1, True, True) == (code, out, len(err.splitlines()), err.startswith("mlsysim: "), err.strip().isprintable())
        assert told in err

    @pytest.mark.parametrize("content", [b"", bytes(range(256)), b"= =", b"fleet = 5", b"\0"])
    def test_bad_file(self, run: Run, tmp_path: Path, content: bytes) -> None:
        """An empty, binary or broken file exits with 2."""
        path = tmp_path / "plan.toml"
        path.write_bytes(content)
        code, out, err = run("check", str(path))
        assert (2, "", False) == (code, out, "Traceback" in err)

    def test_folder_as_file(self, run: Run, tmp_path: Path) -> None:
        """A folder is no file."""
        (tmp_path / "plan.toml").mkdir()
        assert 2 == run("check", str(tmp_path / "plan.toml"))[0]

    def test_every_fault_of_a_file(self, run: Run, plan_file: Path) -> None:
        """A file with several faults is told all of them, a line each."""
        plan_file.write_text(plan_file.read_text().replace('"14 byte/param"', "14").replace("count = 128", "count = 0"), encoding="utf-8")
        code, _, err = run("check", str(plan_file))
        assert (2, 3) == (code, len(err.splitlines()))
        assert "plan.toml: bytes_per_param must be" in err
        assert "plan.toml: fleet.count must be" in err


QUANTITIES = {
    "checkpoint_bytes": "byte", "per_node_shard": "byte", "local_write_time": "second", "drain_time": "second",
    "durable_share_per_node": "byte/second", "shortest_save_interval": "second", "waiting_cadence": "second",
    "backlog_growth": "byte/second",
    "worst_local_age": "second", "worst_durable_age": "second", "local_bytes_needed": "byte",
}  # fmt: skip


class TestJson:
    """The answer as JSON: base units, stable keys."""

    @pytest.mark.parametrize("name", list(Scenarios))
    def test_shape(self, run: Run, name: str) -> None:
        """The keys are the field names, in order; a quantity is magnitude and unit in base units; nothing is NaN or Infinity."""
        table = json.loads(run("check", name, "--json")[1], parse_constant=pytest.fail)
        assert [
            "scenario", "checkpoint_bytes", "per_node_shard", "local_write_time", "drain_time", "drain_limit", "durable_share_per_node",
            "pause_fraction", "drain_utilization", "shortest_save_interval", "waiting_cadence", "backlog_growth", "worst_local_age",
            "worst_durable_age", "local_bytes_needed", "checks", "feasible",
        ] == list(table)  # fmt: skip
        assert QUANTITIES == {field: table[field]["unit"] for field in QUANTITIES}
        assert [["name", "holds", "value", "bound", "slack", "advice"]] * 3 == [list(check) for check in table["checks"]]
        assert (float, bool) == (type(table["pause_fraction"]), type(table["feasible"]))

    def test_numbers(self, run: Run) -> None:
        """The numbers are those of the result, unrounded."""
        table, result = json.loads(run("check", GOOD, "--json")[1]), Scenarios.Gpt3TieredCheckpoint2K.result
        assert {"magnitude": 2450000000000.0, "unit": "byte"} == table["checkpoint_bytes"]
        assert {field: getattr(result, field).base for field in QUANTITIES} == {field: table[field]["magnitude"] for field in QUANTITIES}
        assert (result.pause_fraction, "durable_bandwidth", True) == (table["pause_fraction"], table["drain_limit"], table["feasible"])

    def test_never(self, run: Run) -> None:
        """An infinite quantity has no magnitude, and comes never."""
        table = json.loads(run("check", BAD, "--json")[1])
        assert {"magnitude": None, "unit": "second", "never": True} == table["worst_durable_age"] == table["worst_local_age"]
        assert "never" not in table["drain_time"]

    def test_not_checked(self, run: Run) -> None:
        """What was not checked holds null, and has no bound."""
        check = json.loads(run("check", GOOD, "--json")[1])["checks"][2]
        assert ("local storage holds it", None, None, None) == (check["name"], check["holds"], check["bound"], check["slack"])

    def test_scenario_reads_back(self, run: Run, plan_file: Path, case: TieredCheckpointScenario) -> None:
        """The scenario in the answer is a scenario file."""
        table = json.loads(run("check", str(plan_file), "--json")[1])["scenario"]
        assert case == TieredCheckpointScenario.from_dict(table)

    def test_list(self, run: Run) -> None:
        """The names of all catalogs."""
        code, out, _ = run("list", "--json")
        table = json.loads(out)
        assert (0, list(Scenarios), list(Models), list(Fleets)) == (code, table["Scenarios"], table["Models"], table["Fleets"])

    def test_sources(self, run: Run) -> None:
        """The sources of an entry, number by number."""
        sources = json.loads(run("list", BAD, "--json")[1])
        assert {"bytes_per_param": True, "durable_bandwidth": False} == {
            source["field"]: source["assumed"] for source in sources if source["field"] in ("bytes_per_param", "durable_bandwidth")
        }


class TestText:
    """What a person reads."""

    def test_card(self, run: Run) -> None:
        """The card shows what was asked, the numbers, the checks and the advice."""
        _, out, _ = run("check", BAD)
        for part in (
            "MT-NLG 530B",
            "NOT FEASIBLE",
            "6.36 TB",
            "42.4 min",
            "[FAILS]",
            "raise durable_bandwidth to 3.54 GB/s, or save every 42.4 min",
        ):
            assert part in out, part

    def test_assumed_numbers_are_told(self, run: Run) -> None:
        """Numbers that nobody published are marked, unless they were replaced."""
        assert "bytes_per_param = 12 byte/param: inferred" in run("check", BAD)[1]
        assert "bytes_per_param = 12 byte/param" not in run("check", BAD, "--set", "bytes_per_param=14 byte/param")[1]

    def test_binary(self, run: Run) -> None:
        """Sizes in GiB where asked."""
        assert "2.23 TiB" in run("check", GOOD, "--binary")[1]

    def test_list(self, run: Run) -> None:
        """Every name is listed."""
        code, out, _ = run("list")
        assert (0, []) == (code, [name for catalog in (Scenarios, Models, Fleets) for name in catalog if name not in out])

    def test_list_of_one(self, run: Run) -> None:
        """An entry is shown with the source of its numbers."""
        code, out, _ = run("list", "Llama3_70B")
        assert (0, True, True) == (code, "70553706496 param" in out, "read as a quotation elsewhere 2026-12-01" in out)

    def test_version(self, run: Run) -> None:
        """``--version`` prints the version."""
        assert (0, f"{mlsysim.__version__}\n") == run("--version")[:2]

    @pytest.mark.parametrize("arguments", [("--help",), ("check", "--help"), ("list", "--help"), ()])
    def test_help(self, run: Run, arguments: tuple[str, ...]) -> None:
        """Help exits with 0."""
        assert (0, "") == run(*arguments)[::2]

    def test_example_of_the_help_works(self, run: Run) -> None:
        """The first command that the help shows does what it says."""
        shown = re.search(r"mlsysim (check \w+)", run("--help")[1])
        assert shown
        assert 0 == run(*shown[1].split())[0]


def started(*arguments: str, module: bool = True, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The program in a process of its own."""
    return subprocess.run([sys.executable, "-m", "mlsysim", *arguments], capture_output=True, check=False, **options)


def test_own_process() -> None:
    """Exit code, output and errors of a process of its own are the same."""
    good, bad = started("check", GOOD), started("check", "nonsense")
    assert (0, b"", 2, b"") == (good.returncode, good.stderr, bad.returncode, bad.stdout)
    assert (True, True) == (b"FEASIBLE" in good.stdout, bad.stderr.startswith(b"mlsysim: "))


def test_terminal_that_cannot_show_a_name(plan_file: Path) -> None:
    """A name beyond the terminal's letters is escaped, and fails nothing."""
    plan_file.write_text(plan_file.read_text().replace("my 70B", "模型"), encoding="utf-8")
    ended = started("check", str(plan_file), env={"PYTHONIOENCODING": "ascii", "PATH": ""})
    assert (0, True) == (ended.returncode, b"\\u6a21\\u578b" in ended.stdout)
