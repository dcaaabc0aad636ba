"""The fixture case: read, verified, put back together; every single fault found and named."""

from __future__ import annotations

import contextlib
import copy
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from mlsysim.errors import InputError
from mlsysim.layout import CheckpointLayout, Limits, fixture, read_checkpoint
from mlsysim.layout.findings import KINDS
from tests.layout.cases import CASES, SEED, Described, file_bytes, generate, read_back, republish, write
from tests.layout.faults import FAULTS, Expected
from tests.layout.fuzzing import LONG_RUN, changed, mutated

PUBLISHED = Path(__file__).parents[1] / "data" / "fixture" / "case.json"
BY_NAME = {case.case_id: case for case in CASES}


def read(path: Path) -> CheckpointLayout:
    return read_checkpoint(path)


def test_the_seed_case_is_generated_from_its_description() -> None:
    """Four data-parallel replicas of [5, 6, 7], described in a line, give the published case, digest included."""
    document, _ = generate(SEED)
    assert json.loads(PUBLISHED.read_bytes()) == document
    assert "sha256:d45ab4d7db81d4f7bd55e7ccb04bfb7c936b0bd320f1b57e77d7d02d3d488ff3" == document["expected_manifest_digest"]


def test_the_published_case_has_its_manifest_digest(tmp_path: Path) -> None:
    """The file as published reads without its payload files, and gives the digest that was published with it."""
    (tmp_path / "case.json").write_bytes(PUBLISHED.read_bytes())
    layout = read(tmp_path)
    assert "sha256:d45ab4d7db81d4f7bd55e7ccb04bfb7c936b0bd320f1b57e77d7d02d3d488ff3" == layout.manifest_digest
    report = layout.verify(payload=True)
    assert [0, 1, 2, 3] == sorted(each.rank for each in report.of_kind("file missing") if each.rank is not None)
    assert {"model.weight", None} == {each.tensor for each in report.of_kind("file missing")}


def test_the_seed_says_who_holds_what(tmp_path: Path) -> None:
    """The layout of the seed: 12 byte, four times, one file a rank."""
    layout = read(write(tmp_path, *generate(SEED)) / "case.json")
    assert ("obliteratus.checkpoint-fixture-case", 4, True) == (layout.format, layout.ranks, layout.replicas_recorded)
    assert (12.0, 48.0, 4.0, 1.0) == (layout.logical_bytes.base, layout.payload_bytes.base, layout.replication, layout.imbalance)
    assert [12.0] * 4 == layout.bytes_per_rank.base.tolist()
    assert {"case.json": (tmp_path / "case.json").stat().st_size} == layout.metadata_files
    case = layout.details["case"]
    assert ("world4-dp-replicas", {"dp": 4}, {"world_size": 1}) == (case.case_id, case.source, case.target)
    assert (("full_model",), ("dp_replica",)) == (case.components, case.features)
    assert [(0, 4), (1, 4), (2, 4), (3, 4)] == [(each.replica.member_index, each.replica.member_count) for each in case.fragments]


@pytest.mark.parametrize("case", CASES, ids=lambda each: each.case_id)
def test_each_case_verifies_and_is_put_back_together(case: Described, tmp_path: Path) -> None:
    """What the schema foresees reads without a finding, and every tensor comes back whole."""
    layout = read(write(tmp_path, *generate(case)))
    assert not list(layout.verify(payload=True))
    assert case.world == layout.ranks
    for tensor in case.tensors:
        whole = layout.reassemble(tensor.name)
        assert (tensor.values.dtype, tensor.values.shape) == (whole.dtype, whole.shape)
        assert tensor.values.tobytes() == np.ascontiguousarray(whole).tobytes()


def test_padding_is_part_of_the_payload_and_not_of_the_tensor(tmp_path: Path) -> None:
    """5 rows over 4 ranks, 2 each with padding: 8 rows are stored, 5 are the tensor's."""
    layout = read(write(tmp_path, *generate(BY_NAME["uneven-padded-one-empty"])))
    assert (40.0, 64.0) == (layout.logical_bytes.base, layout.payload_bytes.base)
    assert [16.0] * 4 == layout.bytes_per_rank.base.tolist()


def test_a_file_of_several_ranks_is_read(tmp_path: Path) -> None:
    """All ranks in one file: each fragment has its rank, the file has none, and no rank is missing."""
    document, files = generate(BY_NAME["replicas-beside-shards"])
    tensors = {key: each for name, data in files.items() if name.startswith("rank") for key, each in read_back(data).items()}
    for fragment in document["fragments"]:
        fragment["payload_file"] = "all.safetensors"
    together = {"all.safetensors": file_bytes(tensors), "oracles.safetensors": files["oracles.safetensors"]}
    layout = read(write(tmp_path, document, together))
    assert not list(layout.verify(payload=True))
    assert [-1] == layout.data_files.rank.tolist()
    assert [48.0] * 4 == layout.bytes_per_rank.base.tolist()


# --- single faults ---------------------------------------------------------------------------------------------------------


def _faulty(case: Described, name: str, row: int) -> tuple[dict[str, Any], dict[str, bytes], Expected] | None:
    document, files = copy.deepcopy(generate(case))
    expected = FAULTS[name](document, files, row)
    return None if expected is None else (document, files, expected)


def _rows(case: Described) -> list[int]:
    """All fragments of the seed; the first and the last of the other cases."""
    count = len(generate(case)[0]["fragments"])
    return list(range(count)) if case is SEED else sorted({0, count - 1})


APPLICABLE = [
    pytest.param(case, name, row, id=f"{case.case_id}-{name}-{row}")
    for case in CASES
    for name in FAULTS
    for row in _rows(case)
    if _faulty(case, name, row) is not None
]


@pytest.mark.parametrize(("case", "name", "row"), APPLICABLE)
def test_each_single_fault_is_found_and_named(case: Described, name: str, row: int, tmp_path: Path) -> None:
    """One thing is wrong; a finding of the right kind names it, and the report is not ok unless it is a warning."""
    faulty = _faulty(case, name, row)
    assert faulty is not None
    document, files, expected = faulty
    report = read(write(tmp_path, document, files)).verify(payload=expected.payload)
    found = [
        each
        for each in report.of_kind(expected.kind)
        if expected.tensor in ("any", each.tensor) and expected.rank in ("any", each.rank) and expected.file in ("any", each.file)
    ]
    assert found, report
    assert expected.severity in {each.severity for each in found}
    assert report.ok == all(each.severity != "error" for each in report)
    assert {each.kind for each in report} <= set(KINDS)
    if expected.severity == "error":
        assert not report.ok


def test_every_kind_of_fault_is_tried() -> None:
    """Each fault applies to at least one case, and each kind of finding that a case can have is expected of one."""
    assert set(FAULTS) == {str(each.id).split("-")[-2] for each in APPLICABLE}
    kinds = {faulty[2].kind for each in APPLICABLE if (faulty := _faulty(*each.values)) is not None}  # type: ignore[arg-type]
    assert set(KINDS) - {"replicas possible"} - kinds == set()


FIELDS = sorted(set(generate(SEED)[0]["fragments"][0]) - {"payload_file", "payload_key"})


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("key", FIELDS)
def test_a_change_of_any_field_changes_the_manifest_digest(key: str, row: int, tmp_path: Path) -> None:
    """Whatever is changed in a fragment, the published manifest digest differs."""
    document, files = generate(SEED)
    fragment = document["fragments"][row]
    other = {"dtype": "float16", "padding": {"after": [0], "before": [0], "semantic": "zeros"}, "topology_coordinates": [], "replica": None,
             "element_offset": [1], "element_extent": [2], "global_shape": [4], "local_shape": [4], "evidence_refs": [],
             "partition_axes": [0]}  # fmt: skip
    fragment[key] = other.get(key, "another")
    report = read(write(tmp_path, document, files)).verify()
    assert ["case.json"] == [each.file for each in report.of_kind("manifest digest differs")]


def test_where_the_payload_lies_does_not_change_the_manifest_digest(tmp_path: Path) -> None:
    """File and key of a payload are no part of the manifest."""
    document, files = generate(SEED)
    files["moved.safetensors"] = file_bytes({"other": next(iter(read_back(files.pop("rank-00002.safetensors")).values()))})
    document["fragments"][2].update(payload_file="moved.safetensors", payload_key="other")
    assert not list(read(write(tmp_path, document, files)).verify(payload=True))


@pytest.mark.parametrize(
    "case", [SEED, BY_NAME["mesh-2x3-uneven-padded"], BY_NAME["optimizer"], BY_NAME["fp8"]], ids=lambda each: each.case_id
)
def test_a_flip_of_any_payload_byte_is_found(case: Described, tmp_path: Path) -> None:
    """Every byte of every payload, flipped alone: its fragment's digest differs, and tensor, rank and file are named."""
    document, files = generate(case)
    write(tmp_path, document, files)
    for fragment in document["fragments"]:
        path = tmp_path / fragment["payload_file"]
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        begin, end = json.loads(data[8 : 8 + length])[fragment["payload_key"]]["data_offsets"]
        for at in range(8 + length + begin, 8 + length + end):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
            (found,) = read(tmp_path).verify(payload=True).of_kind("digest differs")
            rank = dict(fragment["topology_coordinates"])["rank"]
            assert (fragment["logical_tensor_id"], rank, path.name) == (found.tensor, found.rank, found.file)
        path.write_bytes(data)


def test_of_many_copies_the_one_that_differs_is_named(tmp_path: Path) -> None:
    """Three ranks agree, one does not: only that one is named."""
    document, files = generate(SEED)
    files["rank-00002.safetensors"] = file_bytes({"dp-r2": ("float32", [3], np.array([5, 6, 8], np.float32).tobytes())})
    report = read(write(tmp_path, document, files)).verify(payload=True)
    assert [("replicas disagree", 2)] == [(each.kind, each.rank) for each in report.of_kind("replicas disagree")]


def test_a_layout_does_not_depend_on_the_payload(tmp_path: Path) -> None:
    """With the payload's bytes zero, or its files not there, the columns are the same."""
    document, files = generate(BY_NAME["optimizer"])
    good = read(write(tmp_path / "good", document, files))
    zero = {name: file_bytes({key: (a, b, bytes(len(c))) for key, (a, b, c) in read_back(data).items()}) for name, data in files.items()}
    for other in (read(write(tmp_path / "zero", document, zero)), read(write(tmp_path / "none", document, {}))):
        assert good.tensors == other.tensors
        for column in ("tensor", "rank", "file", "offset", "extent", "payload_bytes", "stored_bytes"):
            assert (getattr(good.fragments, column) == getattr(other.fragments, column)).all()


def test_one_logical_tensor_in_two_components_is_two_tensors(tmp_path: Path) -> None:
    """Components that hold a tensor of the same id do not overlap; the first keeps the plain name."""
    document, files = generate(BY_NAME["one-rank"])
    extra = copy.deepcopy(document["fragments"][0])
    extra.update(component_id="average", payload_key="average", fragment_id="average")
    document["fragments"].append(extra)
    tensors = read_back(files["rank-00000.safetensors"])
    files["rank-00000.safetensors"] = file_bytes({**tensors, "average": tensors["w-r0"]})
    republish(document)
    layout = read(write(tmp_path, document, files))
    assert not list(layout.verify(payload=True))
    assert ["w", "u", "flag", "w (average: w, parameter, 1 axes)"] == [each.name for each in layout.tensors]


def test_an_unknown_version_is_read_all_the_same(tmp_path: Path) -> None:
    """A later version is a finding; layout and tensors are there as far as they can be understood."""
    document, files = generate(SEED)
    document["schema_version"], document["novelty"] = "9.1.0", {"of": ["another", "time"]}
    layout = read(write(tmp_path, document, files))
    assert ["unknown schema version"] == [each.kind for each in layout.verify(payload=True)]
    assert [5.0, 6.0, 7.0] == layout.reassemble("model.weight").tolist()


def test_a_topology_may_say_more_than_sizes(tmp_path: Path) -> None:
    """What is no size of an axis is kept, and not checked."""
    document, files = generate(SEED)
    document["topology"]["source"].update(world_size=4, order=["dp"], fabric={"kind": "none"})
    layout = read(write(tmp_path, document, files))
    assert not list(layout.verify(payload=True))
    assert {"dp": 4, "world_size": 4, "order": ["dp"], "fabric": {"kind": "none"}} == layout.details["case"].source


def test_progress_is_told_in_bytes(tmp_path: Path) -> None:
    """The counts that advance is given sum to the payload."""
    layout = read(write(tmp_path, *generate(BY_NAME["optimizer"])))
    told: list[int] = []
    layout.verify(payload=True, advance=told.append)
    assert layout.payload_bytes.base == sum(told)


# --- hostile documents -----------------------------------------------------------------------------------------------------


def _with(*path: Any, value: Any) -> bytes:
    document, _ = generate(SEED)
    held: Any = document
    for key in path[:-1]:
        held = held[key]
    held[path[-1]] = value
    return json.dumps(document).encode()


def _without(*path: Any) -> bytes:
    document, _ = generate(SEED)
    held: Any = document
    for key in path[:-1]:
        held = held[key]
    del held[path[-1]]
    return json.dumps(document).encode()


TEXT = json.dumps(generate(SEED)[0]).encode()
HOSTILE = {
    "another schema": (_with("schema_id", value="x"), "schema_id"),
    "no schema": (_without("schema_id"), "schema_id"),
    "a list": (b"[]", "case.json"),
    "nothing": (b"", "byte 0"),
    "key twice": (TEXT.replace(b'"world_size": 4', b'"world_size": 4, "world_size": 5'), "world_size"),
    "key twice below": (TEXT.replace(b'"dtype": "float32"', b'"dtype": "float32", "dtype": "int8"', 1), "fragments.0.dtype"),
    "not finite": (TEXT.replace(b'"world_size": 4', b'"world_size": Infinity'), "case.json"),
    "beyond 63 bits": (_with("fragments", 1, "element_offset", value=[2**63]), "case.json"),
    "deep": (_with("fragments", 1, "evidence_refs", value=json.loads("[" * 200 + "]" * 200)), "case.json"),
    "world of none": (_with("world_size", value=0), "world_size"),
    "world too large": (_with("world_size", value=2**40), "world_size"),
    "world true": (_with("world_size", value=True), "world_size"),
    "no fragments": (_without("fragments"), "fragments"),
    "fragment a text": (_with("fragments", 2, value="x"), "fragments.2"),
    "no shape": (_without("fragments", 0, "global_shape"), "fragments.0.global_shape"),
    "shape negative": (_with("fragments", 0, "global_shape", value=[-3]), "fragments.0.global_shape.0"),
    "shape of floats": (_with("fragments", 0, "global_shape", value=[3.0]), "fragments.0.global_shape.0"),
    "extent of two axes": (_with("fragments", 0, "element_extent", value=[3, 1]), "fragments.0.element_extent"),
    "offset of no axes": (_with("fragments", 0, "element_offset", value=[]), "fragments.0.element_offset"),
    "offset of texts": (_with("fragments", 0, "element_offset", value=["0"]), "fragments.0.element_offset.0"),
    "padding of two axes": (_with("fragments", 0, "padding", "after", value=[0, 0]), "fragments.0.padding.after"),
    "padding negative": (_with("fragments", 0, "padding", "before", value=[-1]), "fragments.0.padding.before.0"),
    "too large": (_with("fragments", 0, "local_shape", value=[2**62]), "fragments.0"),
    "ends beyond": (_with("fragments", 0, "element_offset", value=[2**63 - 1]), "fragments.0"),
    "unknown type": (_with("fragments", 0, "dtype", value="float31"), "fragments.0.dtype"),
    "replica a list": (_with("fragments", 0, "replica", value=[]), "fragments.0.replica"),
    "member negative": (_with("fragments", 0, "replica", "member_index", value=-1), "fragments.0.replica.member_index"),
    "coordinates twice": (_with("fragments", 0, "topology_coordinates", value=[["rank", 0], ["rank", 1]]), "topology_coordinates.1"),
    "coordinates of one": (_with("fragments", 0, "topology_coordinates", value=[["rank"]]), "topology_coordinates.0"),
    "rank too large": (_with("fragments", 0, "topology_coordinates", value=[["rank", 2**40]]), "topology_coordinates"),
    "rank negative": (_with("fragments", 0, "topology_coordinates", value=[["rank", -1]]), "topology_coordinates"),
    "file outside": (_with("fragments", 0, "payload_file", value="../x.safetensors"), "../x.safetensors"),
    "file absolute": (_with("fragments", 0, "payload_file", value="/etc/passwd"), "/etc/passwd"),
    "file a link out": (_with("fragments", 0, "payload_file", value="link"), "link"),
    "oracle outside": (_with("oracle_file", value="../x.safetensors"), "../x.safetensors"),
    "oracle without digest": (_without("oracles", 0, "sha256"), "oracles.0.sha256"),
    "topology a list": (_with("topology", value=[]), "topology"),
    "axis negative": (_with("topology", "source", value={"dp": -4}), "topology.source.dp"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    """Each is an InputError that names the file and the place in it."""
    data, place = HOSTILE[name]
    write(tmp_path / "c", *generate(SEED))
    (tmp_path / "out.safetensors").write_bytes(b"")
    (tmp_path / "c" / "link").symlink_to(tmp_path / "out.safetensors")
    (tmp_path / "c" / "case.json").write_bytes(data)
    with pytest.raises(InputError) as caught:
        read(tmp_path / "c" / "case.json")
    assert place in caught.value.place


def test_a_document_over_the_cap_is_refused(tmp_path: Path) -> None:
    """The size is looked at before the file is read."""
    write(tmp_path, *generate(SEED))
    with pytest.raises(InputError, match=r"case\.json must be at most 100 byte"):
        fixture.READER.read(tmp_path, Limits(json_bytes=100))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


FUZZED = BY_NAME["mesh-2x3-uneven-padded"]
FUZZED_DOCUMENT, FUZZED_FILES = generate(FUZZED)
FUZZED_TEXT = json.dumps(FUZZED_DOCUMENT).encode()
FUZZED_FILE = "rank-00002.safetensors"


def exercise(folder: Path) -> None:
    """Read, verify and put together: nothing but InputError may come out, and of verify nothing at all."""
    try:
        layout = read(folder)
    except InputError:
        return
    layout.verify(payload=True)
    for each in layout.tensors:
        with contextlib.suppress(InputError):
            layout.reassemble(each.name)


def fuzz(folder: Path, document: bytes, file: bytes) -> None:
    if not (folder / "case.json").exists():
        write(folder, FUZZED_DOCUMENT, FUZZED_FILES)
    (folder / "case.json").write_bytes(document)
    (folder / FUZZED_FILE).write_bytes(file)
    exercise(folder)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=mutated(FUZZED_TEXT, (TEXT,)))
def test_a_mutated_document_is_refused_or_verified(folder: Path, data: bytes) -> None:
    """A document with a few changes."""
    fuzz(folder, data, FUZZED_FILES[FUZZED_FILE])


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=mutated(FUZZED_FILES[FUZZED_FILE], tuple(FUZZED_FILES.values())))
def test_a_mutated_payload_file_is_verified(folder: Path, data: bytes) -> None:
    """A payload file with a few changes is never a reason not to read the layout."""
    fuzz(folder, FUZZED_TEXT, data)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=changed(FUZZED_DOCUMENT))
def test_a_document_of_other_values_is_refused_or_verified(folder: Path, document: Any) -> None:
    """Good JSON, with values of any kind in any place."""
    fuzz(folder, json.dumps(document).encode(), FUZZED_FILES[FUZZED_FILE])


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=LONG_RUN, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=mutated(FUZZED_TEXT, (TEXT,)) | changed(FUZZED_DOCUMENT).map(lambda each: json.dumps(each).encode()))
def test_many_mutated_documents_are_refused_or_verified(folder: Path, data: bytes) -> None:
    """The long run."""
    fuzz(folder, data, FUZZED_FILES[FUZZED_FILE])
