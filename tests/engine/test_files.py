"""Scenarios as text and files: lossless, and all faults told at once, each with its place."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import attrs
import pytest

from mlsysim import Q_, Fleet, Fleets, InputError, Models, Node, Scenarios, TieredCheckpointScenario, load_scenario
from mlsysim.engine.files import changed, find_scenario

WORKLOAD = 'workload = { name = "my 70B", parameters = "70.6e9 param" }'
FLEET = 'fleet = { name = "ours", count = 128, node = { name = "8-GPU", accelerators = 8 } }'


@pytest.fixture
def read(tmp_path: Path, file_text: str) -> Any:
    """Loads the scenario file with some of its text replaced."""

    def load(*replaced: tuple[str, str], name: str = "plan.toml") -> Any:
        text = file_text
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return load_scenario(path)

    return load


def faults(error: pytest.ExceptionInfo[InputError]) -> list[str]:
    """Where the faults are."""
    return sorted(fault.place for fault in error.value.faults)


def test_file(read: Any, case: TieredCheckpointScenario) -> None:
    """The file of the documentation is the scenario that Python makes."""
    assert case == read()


@pytest.mark.parametrize(
    "text",
    ["crlf", "bom", "comments", "tables"],
)
def test_file_as_editors_write_it(tmp_path: Path, file_text: str, case: TieredCheckpointScenario, text: str) -> None:
    """Line ends of Windows, a byte order mark, comments and tables of TOML's other form change nothing."""
    written = {
        "crlf": file_text.replace("\n", "\r\n"), "bom": "\ufeff" + file_text, "comments": file_text.replace("\n", "  # as planned\n"),
        "tables": case.to_toml(),
    }[text]  # fmt: skip
    path = tmp_path / "plan.toml"
    path.write_bytes(written.encode())
    assert case == load_scenario(path) == load_scenario(str(path))


def test_json_file(tmp_path: Path, case: TieredCheckpointScenario) -> None:
    """A JSON file holds the same."""
    path = tmp_path / "plan.json"
    path.write_text(case.to_json(), encoding="utf-8")
    assert case == load_scenario(path)


def test_catalog_names_in_a_file(read: Any) -> None:
    """Workload, fleet and node may name entries of the catalog."""
    case = read((WORKLOAD, 'workload = "Llama3_70B"'), (FLEET, 'fleet = "MetaLlama3_16K"'))
    assert (Models.Llama3_70B, Fleets.MetaLlama3_16K) == (case.workload, case.fleet)
    assert Fleets.MetaLlama3_16K.node == read(('node = { name = "8-GPU", accelerators = 8 }', 'node = "Generic8"')).fleet.node


@pytest.mark.parametrize("name", list(Scenarios))
def test_named_cases_survive_text(name: str) -> None:
    """Every named case comes back from TOML and from JSON."""
    case = getattr(Scenarios, name)
    assert case == type(case).from_toml(case.to_toml()) == type(case).from_json(case.to_json()) == type(case).from_dict(case.to_dict())


def test_text_form(case: TieredCheckpointScenario) -> None:
    """In text a quantity is text with its unit, a count a number, and what was left out is left out."""
    table = tomllib.loads(case.to_toml())
    assert table == json.loads(case.to_json()) == case.to_dict()
    assert ("TieredCheckpointScenario", "12 GB/s", {"name": "8-GPU", "accelerators": 8}) == (
        table["scenario"],
        table["local_bandwidth"],
        table["fleet"]["node"],
    )


def test_five_faults(read: Any) -> None:
    """A file with five faults raises one InputError whose faults are five, each with its place."""
    with pytest.raises(InputError) as caught:
        read(
            ('"14 byte/param"', "14"), ('"12 GB/s"', '"12 USD"'), ("save_interval", "save_intervall"), ("count = 128", "count = -4"),
            ('"70.6e9 param"', '"70.6e9 token"'),
        )  # fmt: skip
    assert [
        "plan.toml: bytes_per_param", "plan.toml: fleet.count", "plan.toml: local_bandwidth", "plan.toml: save_intervall",
        "plan.toml: workload.parameters",
    ] == faults(caught)  # fmt: skip
    assert (6, "5 faults:") == (len(str(caught.value).splitlines()), str(caught.value).splitlines()[0])
    for fault in caught.value.faults:
        assert (str(fault) in str(caught.value), bool(fault.fix)) == (True, True)


@pytest.mark.parametrize(
    ("old", "new", "place", "told"),
    [
        ("count = 128", "count = 0", "fleet.count", "a whole number of at least 1; got 0"),
        ("count = 128", "count = -4", "fleet.count", "a whole number of at least 1; got -4"),
        ("count = 128", "count = 2.5", "fleet.count", "a whole number of at least 1; got 2.5"),
        ("count = 128", "count = 128.0", "fleet.count", "a whole number of at least 1; got 128.0"),
        ("count = 128", "count = true", "fleet.count", "a whole number of at least 1; got True"),
        ("count = 128", 'count = "256"', "fleet.count", "a whole number of at least 1; got '256'"),
        ("count = 128", "count = [128]", "fleet.count", "a whole number of at least 1"),
        ("count = 128", "count = 99999999999999999999", "fleet.count", "a whole number of at least 1"),
        ("count = 128", "cuont = 128", "fleet.cuont", "Did you mean count?"),
        ("count = 128, ", "", "fleet.count", "given; got nothing. Write count = 256"),
        ('"10 min"', "10", "save_interval", 'Write save_interval="10 min"'),
        ('"10 min"', "inf", "save_interval", "a time, with its unit"),
        ('"10 min"', "nan", "save_interval", "a time, with its unit"),
        ('"10 min"', "01:30:00", "save_interval", "a time, with its unit"),
        ('"10 min"', '"1:30:00"', "save_interval", "one number and one unit"),
        ('"10 min"', "2026-12-01", "save_interval", "a time, with its unit"),
        ('"10 min"', "[[[[10]]]]", "save_interval", "a time, with its unit"),
        ('"10 min"', '["5 min", "10 min"]', "save_interval", "a time, with its unit"),
        ('"10 min"', "{ minutes = 10 }", "save_interval", "a time, with its unit"),
        ('"10 min"', "true", "save_interval", "a time, with its unit"),
        ('"10 min"', '"nan min"', "save_interval", "never NaN or infinity"),
        ('"12 GB/s"', '"80,5 GB/s"', "local_bandwidth", "one number and one unit"),
        ('"12 GB/s"', '"9**9**9**9 byte"', "local_bandwidth", "one number and one unit"),
        ('"70.6e9 param"', '"70.6e9 token"', "workload.parameters", "a number of tokens"),
        ('"my 70B"', '"a\\nb"', "workload.name", "a name on one line"),
        ('"my 70B"', '"a\\u0000b"', "workload.name", "a name on one line"),
        ('"my 70B"', "70", "workload.name", "a name on one line"),
        (WORKLOAD, "workload = 5", "workload", "a table of fields; got 5"),
        (WORKLOAD, 'workload = "Llama3_70b"', "workload", "Did you mean Llama3_70B?"),
        (WORKLOAD, 'workload = "__class__"', "workload", "a table, or a name in Models"),
        (WORKLOAD + "\n", "", "workload", "given; got nothing. Write workload = { name = ..., parameters = ... }"),
        (FLEET, "fleet = 5", "fleet", "a table of fields; got 5"),
        (FLEET, "fleet = [1, 2]", "fleet", "a table of fields; got [1, 2]"),
        (FLEET, "fleet = true", "fleet", "a table of fields; got True"),
        (FLEET, 'fleet = { name = "a", count = 3, node = 5 }', "fleet.node", "a table of fields; got 5"),
        ("accelerators = 8", 'accelerators = 8, local_capacity = "1 TB/s"', "fleet.node.local_capacity", "an amount of information"),
        ("accelerators = 8", "accelerators = 8, gpus = 8", "fleet.node.gpus", "a known field"),
        ("save_interval", "save_intervall", "save_intervall", "Did you mean save_interval?"),
        ("save_interval", '"save interval"', "save interval", "Did you mean save_interval?"),
        ("save_interval", '"save_\\u001b[31minterval"', "save_\\x1b[31minterval", "Did you mean save_interval?"),
        ('"TieredCheckpointScenario"', '"TieredCheckpoint"', "scenario", "Did you mean TieredCheckpointScenario?"),
        ('"TieredCheckpointScenario"', '"Scenario"', "scenario", "the name of a scenario class"),
        ('"TieredCheckpointScenario"', "5", "scenario", "the name of a scenario class"),
        ('"TieredCheckpointScenario"', '["TieredCheckpointScenario"]', "scenario", "the name of a scenario class"),
        ('"TieredCheckpointScenario"', '"__init__"', "scenario", "the name of a scenario class"),
        ('scenario = "TieredCheckpointScenario"\n', "", "scenario", "got nothing"),
    ],
)
def test_one_fault(read: Any, old: str, new: str, place: str, told: str) -> None:
    """Each fault is told once, at its place in the file, with what to write."""
    with pytest.raises(InputError) as caught:
        read((old, new))
    assert [f"plan.toml: {place}"] == faults(caught)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the name of a scenario class; got nothing"),
        (b"\n\n", "got nothing"),
        (bytes(range(256)), "text in UTF-8"),
        (b"\0", "valid TOML"),
        (b"= = =", "valid TOML"),
        (b"[" * 10**5, "valid TOML"),
        (b"a = " + b"[" * 10**5, "valid TOML"),
        (b"a = 1\na = 2\n", "valid TOML"),
        (b"\xff\xfe\x00", "text in UTF-8"),
        (b"a = " + b"9" * 5000, "valid TOML"),
        (b"#" * 1_000_001, "at most 1,000,000 characters"),
        (b'{"scenario": 1}', "valid TOML"),
        (b".".join([b"a"] * 400_000) + b" = 1", "at most 200 points"),
        (b"#" * 4_000_001, "at most 4,000,000 byte"),
    ],
    ids=range(14),
)
def test_no_scenario_file(tmp_path: Path, content: bytes, told: str) -> None:
    """An empty, binary, endless or broken file is an InputError that names the file."""
    path = tmp_path / "plan.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"plan\.toml") as caught:
        load_scenario(path)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "valid JSON"),
        ("[]", "a JSON object"),
        ("5", "a JSON object"),
        ("null", "a JSON object"),
        ("{'a': 1}", "valid JSON"),
        ("[" * 10**5, "valid JSON"),
        ('{"scenario": 1, "scenario": 2}', "given once"),
        ('{"scenario": "x", "fleet": {"count": 1, "count": 2}}', "given once"),
        ("{}", "got nothing"),
        ('{"a": ' + "9" * 5000 + "}", "valid JSON"),
    ],
    ids=range(10),
)
def test_no_json_scenario(tmp_path: Path, content: str, told: str) -> None:
    """JSON that is no object, or says a thing twice, is an InputError that names the file."""
    path = tmp_path / "plan.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=r"plan\.json") as caught:
        load_scenario(path)
    assert told in str(caught.value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_json_numbers_that_are_none(tmp_path: Path, case: TieredCheckpointScenario, number: str) -> None:
    """JSON's NaN and Infinity are no quantities."""
    path = tmp_path / "plan.json"
    path.write_text(case.to_json().replace('"10 min"', number), encoding="utf-8")
    with pytest.raises(InputError, match=r"^plan.json: save_interval must be a time, with its unit"):
        load_scenario(path)


@pytest.mark.parametrize(
    "name", ["missing.toml", "folder.toml", "plan.yaml", "plan", "a\0.toml", "x" * 300 + ".toml", "folder.toml/plan.toml"]
)
def test_no_file(tmp_path: Path, name: str) -> None:
    """A missing file, a folder, another ending or an impossible name is an InputError."""
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match=r"must be a (file that can be read|.toml or .json file)"):
        load_scenario(tmp_path / name)


def test_no_regular_file(tmp_path: Path) -> None:
    """A pipe and a device are refused, and never waited for."""
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    for name in ("pipe.toml", "zero.toml"):
        with pytest.raises(InputError, match="no regular file"):
            load_scenario(tmp_path / name)


def test_found_by_name_or_file(tmp_path: Path, file_text: str, case: TieredCheckpointScenario) -> None:
    """What ends like a file is read, anything else is a name."""
    (tmp_path / "plan.toml").write_text(file_text, encoding="utf-8")
    assert (case, Scenarios.Gpt3TieredCheckpoint2K) == (find_scenario(str(tmp_path / "plan.toml")), find_scenario("Gpt3TieredCheckpoint2K"))


@pytest.mark.parametrize("name", ["Gpt3TieredCheckpoint2k", "", ".", "/dev/null", "__class__", "sources", "title", "\x1b[31m"])
def test_no_name(name: str) -> None:
    """What is neither a name nor a file is an InputError."""
    with pytest.raises(InputError, match=r"the scenario must be a name in Scenarios, or a .toml or .json file"):
        find_scenario(name)


class TestSet:
    """Fields changed by dotted path, as ``--set`` does."""

    @pytest.mark.parametrize(
        ("change", "path", "value"),
        [
            ("save_interval=5 min", "save_interval", Q_("5 min")),
            ("  save_interval = 5 min ", "save_interval", Q_("5 min")),
            ("fleet.count=512", "fleet.count", 512),
            ("fleet.node.accelerators=4", "fleet.node.accelerators", 4),
            ("fleet.node.local_capacity=1 TB", "fleet.node.local_capacity", Q_("1 TB")),
            ("workload=Llama3_70B", "workload", Models.Llama3_70B),
            ("workload.name=a=b", "workload.name", "a=b"),
            ("fleet=MetaLlama3_16K", "fleet", Fleets.MetaLlama3_16K),
            ("scenario=TieredCheckpointScenario", "save_interval", Q_("10 min")),
            ("staging.buffers=2", "staging.buffers", 2),
            ("staging.growth=1.5", "staging.growth", 1.5),
            ("kept=3", "kept", 3),
        ],
    )
    def test_set(self, case: TieredCheckpointScenario, change: str, path: str, value: object) -> None:
        """A field is set, and what was left out can be stated."""
        made: Any = changed(case, [change])
        for step in path.split("."):
            made = getattr(made, step)
        assert value == made

    def test_last_wins(self, case: TieredCheckpointScenario) -> None:
        """Of two changes to one field the later counts."""
        assert attrs.evolve(case, save_interval="7 min") == changed(case, ["save_interval=5 min", "save_interval=7 min"])

    def test_no_change(self, case: TieredCheckpointScenario) -> None:
        """Without a change the scenario is the same."""
        assert case == changed(case, [])

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ("save_interval", "a field and a value"),
            ("", "a field and a value"),
            ("=", "a known field"),
            ("=5", "a known field"),
            (".=5", "a known field"),
            ("fleet.=5", "a known field"),
            ("..=5", "a known field"),
            ("save_interval.x=5", "a known field"),
            ("a.b=5", "a known field"),
            ("save_intervall=5 min", "Did you mean save_interval?"),
            ("fleet.cuont=5", "Did you mean count?"),
            ("flet.count=5", "Did you mean fleet?"),
            ("stagin.buffers=5", "Did you mean staging?"),
            ("staging.bufers=5", "Did you mean buffers?"),
            ("kept.x=5", "a known field"),
            ("layout=x", "a known field"),
            ("scenario=x", "TieredCheckpointScenario; got 'x'"),
            ("scenario=5", "TieredCheckpointScenario; got 5"),
            ("fleet=5", "a table of fields; got 5"),
            ("fleet=x", "a name in Fleets"),
            ("fleet.count=0", "at least 1; got 0"),
            ("fleet.count=-4", "at least 1; got -4"),
            ("fleet.count=2.5", "at least 1; got 2.5"),
            ("fleet.count=\uff11\uff12", "at least 1"),
            ("fleet.count=True", "at least 1; got 'True'"),
            ("fleet.count=1e3", "at least 1; got '1e3'"),
            ("fleet.count=", "at least 1; got ''"),
            ("fleet.count=99999999999999999999999", "at least 1"),
            ("bytes_per_param=14", "with its unit; got 14"),
            ("save_interval=", "one number and one unit"),
            ("save_interval=5", "with its unit; got 5"),
            ("save_interval=-5 min", "greater than 0"),
            ("save_interval=nan s", "never NaN"),
            ("fleet.node.local_capacity=1 TB/s", "an amount of information"),
            ("workload.name=5", "a name on one line"),
            ("fleet.count.x=5", "a known field"),
            ("__class__=5", "a known field"),
            ("fleet.__class__=5", "a known field"),
            ("fleet\x1b[31m=5", "a known field"),
        ],
    )
    def test_refused(self, case: TieredCheckpointScenario, change: str, told: str) -> None:
        """A path that leads nowhere or a bad value is an InputError on one line, which says that ``--set`` was wrong."""
        with pytest.raises(InputError, match=r"^--set") as caught:
            changed(case, [change])
        assert (True, True) == (told in str(caught.value), str(caught.value).isprintable())


def test_optional_fields_survive(fields: dict[str, Any]) -> None:
    """What a node states comes back from text."""
    node = Node(name="all", accelerators=4, network_bandwidth="400 Gbps", local_read_bandwidth="7 GB/s", local_capacity="30.72 TB")
    case = TieredCheckpointScenario(**(fields | {"fleet": Fleet(name="ours", node=node, count=3)}))
    assert case == TieredCheckpointScenario.from_toml(case.to_toml()) == TieredCheckpointScenario.from_json(case.to_json())


def test_text_of_another_class() -> None:
    """A class reads only text that is about it."""
    with pytest.raises(InputError, match=r"^scenario must be TieredCheckpointScenario; got 'Other'"):
        TieredCheckpointScenario.from_toml('scenario = "Other"')
