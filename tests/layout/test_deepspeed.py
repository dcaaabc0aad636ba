"""DeepSpeed ZeRO checkpoints: real ones against what they held, and broken and hostile ones."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from mlsysim import InputError, read_checkpoint
from mlsysim.layout.deepspeed import fp32_parameter
from tests.layout.fuzzing import LONG_RUN, mutated
from tests.layout.truth import check_against_truth

DATA = Path(__file__).parents[1] / "data" / "deepspeed"
STAGES = ("zero1", "zero3")
OPTIMIZER = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"


def truth(stage: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / stage / "truth.json").read_text())
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the ZeRO 1 sample that a test may break."""
    shutil.copytree(DATA / "zero1", tmp_path / "zero1")
    return tmp_path / "zero1"


@pytest.mark.parametrize("stage", STAGES)
def test_sample(stage: str) -> None:
    """A real checkpoint reads to what its ranks held, every tensor's digest included."""
    check_against_truth(read_checkpoint(DATA / stage), truth(stage))


@pytest.mark.parametrize("stage", STAGES)
def test_master_weights(stage: str) -> None:
    """Every parameter's master weights come together as DeepSpeed's own converter has them."""
    layout = read_checkpoint(DATA / stage)
    for each in truth(stage)["layout"]["fp32_parameters"]:
        found = fp32_parameter(layout, each["name"])
        assert (each["sha256"], tuple(each["global_shape"])) == (hashlib.sha256(found.tobytes()).hexdigest(), found.shape)


@pytest.mark.parametrize("stage", STAGES)
def test_pieces_of_the_master_weights(stage: str) -> None:
    """Where each parameter lies in the flat partitions is told: rank, offset, elements."""
    layout = read_checkpoint(DATA / stage)
    found = {each.name: [(rank, at, count) for rank, _, at, count in each.fragments] for each in layout.details["fp32_parameters"]}
    expected = {
        each["name"]: [(one["rank"], one["partition_offset"], one["elements"]) for one in each["fragments"]]
        for each in truth(stage)["layout"]["fp32_parameters"]
    }
    assert expected == found


@pytest.mark.parametrize("stage", STAGES)
def test_verifies(stage: str) -> None:
    """A whole checkpoint verifies, payload read, and nothing is found."""
    report = read_checkpoint(DATA / stage).verify(payload=True)
    assert (True, 0) == (report.ok, len(report))


def test_the_tag_folder_alone() -> None:
    """The folder of the tag reads without latest beside it, files named from there."""
    layout = read_checkpoint(DATA / "zero1" / "global_step2")
    assert ("deepspeed_zero1", {}) == (layout.format, layout.metadata_files)
    assert "mp_rank_00_model_states.pt" in layout.files


def test_a_missing_rank_is_a_finding(copy: Path) -> None:
    """An optimizer file that is not there is found by its rank, and the layout still reads."""
    (copy / "global_step2" / OPTIMIZER).unlink()
    layout = read_checkpoint(copy)
    found = layout.verify().of_kind("file missing")
    assert [(1, f"global_step2/{OPTIMIZER}")] == [(each.rank, each.file) for each in found]
    assert not layout.verify().ok
    assert layout.verify().of_kind("hole")
    with pytest.raises(InputError, match="every rank"):
        fp32_parameter(layout, "head.weight")


def test_a_flipped_byte_is_found(copy: Path) -> None:
    """A flipped byte of payload is found by the zip's checksum, with rank and file."""
    path = copy / "global_step2" / OPTIMIZER
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        member = next(each for each in archive.infolist() if each.filename.endswith("data/1"))
    content[member.header_offset + 200 + 4000] ^= 1
    path.write_bytes(content)
    report = read_checkpoint(copy).verify(payload=True)
    assert [(1, f"global_step2/{OPTIMIZER}")] == [(each.rank, each.file) for each in report.of_kind("digest differs")]


@pytest.mark.parametrize("keep", [0, 10, 5000, 28000])
def test_a_file_cut_short_is_found(copy: Path, keep: int) -> None:
    """A file whose zip directory is cut off holds nothing that can be read, and is found by its name and rank; the others still read."""
    path = copy / "global_step2" / OPTIMIZER
    path.write_bytes(path.read_bytes()[:keep])
    layout = read_checkpoint(copy)
    report = layout.verify(payload=True)
    assert [(1, f"global_step2/{OPTIMIZER}")] == [(each.rank, each.file) for each in report.of_kind("file short")]
    assert report.of_kind("hole")
    with pytest.raises(InputError, match="nothing of rank 1"):
        fp32_parameter(layout, "head.weight")


def test_no_whole_optimizer_file_is_refused(copy: Path) -> None:
    """With every optimizer file cut short there is no checkpoint to read."""
    for path in copy.glob("global_step2/*optim_states.pt"):
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="cut short"):
        read_checkpoint(copy)


@pytest.mark.parametrize("name", ["../outside", "/etc", "global_step2/../..", "nowhere", "a\0b"])
def test_latest_stays_inside(copy: Path, name: str) -> None:
    """The tag that latest names is a folder inside the checkpoint, and there."""
    (copy / "latest").write_text(name)
    with pytest.raises(InputError, match="latest"):
        read_checkpoint(copy)


class Hostile:
    """Calls a function when it is unpickled by a careless reader."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def rewritten(path: Path, pickled: bytes, method: int = zipfile.ZIP_STORED) -> None:
    """The same zip with another pickle."""
    with zipfile.ZipFile(path) as archive:
        members = [(each.filename, archive.read(each)) for each in archive.infolist()]
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, pickled if name.endswith("/data.pkl") else content)


def test_no_code_runs(copy: Path, tmp_path: Path) -> None:
    """A user's object in a model file stays inert: what it would call when unpickled is not called."""
    path = copy / "global_step2" / "mp_rank_00_model_states.pt"
    mark = tmp_path / "ran"
    rewritten(path, pickle.dumps({"module": {}, "user": Hostile(str(mark)), "dp_world_size": 2}, protocol=2))
    layout = read_checkpoint(copy)
    assert not layout.verify(payload=True).of_kind("digest differs")
    assert not mark.exists()


def test_a_compressed_pickle_is_refused(copy: Path) -> None:
    """torch stores its members; one that is compressed could be a bomb, and is refused."""
    rewritten(copy / "global_step2" / OPTIMIZER, b"\x80\x02" + b"0" * 10_000_000, zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match=OPTIMIZER):
        read_checkpoint(copy)


def test_other_stages_beside_are_refused(copy: Path) -> None:
    """Files of two stages in one folder are no checkpoint."""
    source = DATA / "zero3" / "global_step2" / OPTIMIZER
    shutil.copy(source, copy / "global_step2" / OPTIMIZER)
    with pytest.raises(InputError, match="of one ZeRO stage"):
        read_checkpoint(copy)


def test_layout_reads_without_payload(copy: Path) -> None:
    """Reading a layout touches no payload: with its bytes gone to zero it reads the same."""
    path = copy / "global_step2" / OPTIMIZER
    before = read_checkpoint(copy).bytes_per_rank.base.tolist()
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if "/data/" in member.filename:
                start = content.index(member.filename.encode()) + len(member.filename)
                content[start + 64 : start + 64 + max(member.file_size - 64, 0)] = bytes(max(member.file_size - 64, 0))
    path.write_bytes(content)
    assert before == read_checkpoint(copy).bytes_per_rank.base.tolist()


def test_reassembled_in_one_file(tmp_path: Path) -> None:
    """All tensors go whole into one safetensors file."""
    from safetensors.numpy import load_file

    layout = read_checkpoint(DATA / "zero3")
    layout.reassemble_all(tmp_path / "all.safetensors")
    found = load_file(tmp_path / "all.safetensors")
    assert {each.name for each in layout.tensors} == set(found)
    assert np.array_equal(layout.reassemble("optimizer.state.0.exp_avg"), found["optimizer.state.0.exp_avg"])


def only_input_errors(folder: Path, name: str, content: bytes) -> None:
    path = folder / "global_step2" / name
    path.write_bytes(content)
    try:
        layout = read_checkpoint(folder)
        layout.verify(payload=True)
    except InputError:
        return
    for tensor in layout.tensors[-5:]:
        with contextlib.suppress(InputError):
            layout.reassemble(tensor.name)
    for parameter in layout.details["fp32_parameters"]:
        with contextlib.suppress(InputError):
            fp32_parameter(layout, parameter.name)


def with_pickle(sample: bytes, pickled: bytes) -> bytes:
    """A zip with another pickle, its directory and checksums as they should be: what is in the pickle is reached."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sample)) as archive, zipfile.ZipFile(file, "w") as changed:
        for each in archive.infolist():
            changed.writestr(each.filename, pickled if each.filename.endswith("/data.pkl") else archive.read(each))
    return file.getvalue()


def pickle_of(sample: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(sample)) as archive:
        return archive.read(next(each for each in archive.namelist() if each.endswith("/data.pkl")))


def fuzz(folder: Path, stage: str, name: str, inside: bool, examples: int) -> None:
    shutil.copytree(DATA / stage, folder / stage)
    original = (folder / stage / "global_step2" / name).read_bytes()
    inner = pickle_of(original)

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(content=mutated(inner) if inside else mutated(original))
    def run(content: bytes) -> None:
        only_input_errors(folder / stage, name, with_pickle(original, content) if inside else content)

    run()


@pytest.mark.parametrize("inside", [False, True], ids=["zip", "pickle"])
@pytest.mark.parametrize(("stage", "name"), [
    ("zero1", OPTIMIZER), ("zero1", "mp_rank_00_model_states.pt"),
    ("zero3", OPTIMIZER), ("zero3", "zero_pp_rank_0_mp_rank_00_model_states.pt"),
])  # fmt: skip
def test_fuzzed(stage: str, name: str, inside: bool, tmp_path: Path) -> None:
    """Of bytes flipped, cut and spliced, in the zip or in the pickle in it, nothing but InputError comes out."""
    fuzz(tmp_path, stage, name, inside, 50)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("inside", [False, True], ids=["zip", "pickle"])
def test_fuzzed_at_length(tmp_path: Path, inside: bool) -> None:
    """The same for a long run."""
    fuzz(tmp_path, "zero1", OPTIMIZER, inside, LONG_RUN // 2)
