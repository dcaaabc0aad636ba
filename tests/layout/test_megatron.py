"""Megatron-core's torch_dist checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mlsysim.errors import InputError
from mlsysim.layout.limits import Limits
from mlsysim.layout.megatron import READER
from tests.layout.truth import check_against_truth

PLAIN = Path(__file__).parents[1] / "data" / "megatron" / "plain"
ITERATION = PLAIN / "iter_0000010"
TRUTH = json.loads((PLAIN / "truth.json").read_text())


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """The folder above, with the text file that names the latest iteration."""
    shutil.copytree(ITERATION, tmp_path / ITERATION.name)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10\n")
    return tmp_path


@pytest.mark.parametrize("path", [ITERATION, ITERATION / "metadata.json", ITERATION / "common.pt"], ids=["folder", "json", "common"])
def test_the_sample_reads_to_its_truth(path: Path) -> None:
    """Names, shapes, ranks, files, bytes and the digest of every tensor are as the real library has them."""
    assert READER.matches(path)
    layout = READER.read(path, Limits())
    check_against_truth(layout, TRUTH)
    assert 10 == layout.details["iteration"]


def test_the_parent_leads_to_the_latest_iteration(parent: Path) -> None:
    """The folder above is read by the iteration that it names."""
    assert READER.matches(parent)
    check_against_truth(READER.read(parent, Limits()), TRUTH)


def test_the_release_is_an_iteration_too(parent: Path) -> None:
    """A converted checkpoint has a folder named release."""
    (parent / ITERATION.name).rename(parent / "release")
    (parent / "latest_checkpointed_iteration.txt").write_text("release")
    check_against_truth(READER.read(parent, Limits()), TRUTH)


@pytest.mark.parametrize("text", ["../x", "", "11", "-1", "9" * 100, "\xff"])
def test_a_parent_that_names_no_iteration_is_refused(parent: Path, text: str) -> None:
    """What is no number, or the number of no folder, is refused."""
    (parent / "latest_checkpointed_iteration.txt").write_text(text)
    with pytest.raises(InputError, match=r"latest_checkpointed_iteration\.txt"):
        READER.read(parent, Limits())


def test_nothing_is_wrong_with_the_sample() -> None:
    """Verify with payload has a note only."""
    assert ["replicas possible"] == [each.kind for each in READER.read(ITERATION, Limits()).verify(payload=True)]


@pytest.mark.parametrize("rank", range(4))
def test_a_flipped_bit_is_found_at_its_rank(parent: Path, rank: int) -> None:
    """Whichever rank's elements change, verify names that rank."""
    folder = parent / ITERATION.name
    layout = READER.read(folder, Limits())
    row = next(row for row in range(len(layout.fragments)) if layout.fragments.rank[row] == rank)
    path = folder / layout.files[int(layout.fragments.file[row])]
    data = bytearray(path.read_bytes())
    end = int(layout.fragments.file_offset[row]) + int(layout.fragments.stored_bytes[row])
    at = bytes(data[:end]).rindex(layout.payload.read(row).tobytes())  # type: ignore[union-attr]
    data[at] ^= 1
    path.write_bytes(data)
    found = layout.verify(payload=True).of_kind("digest differs")
    assert [(layout.tensors[int(layout.fragments.tensor[row])].name, rank)] == [(each.tensor, each.rank) for each in found]


@pytest.mark.parametrize(("told", "message"), [
    ('{"sharded_backend": "zarr"}', "sharded_backend must be torch_dist; got 'zarr'. Convert"),
    ("{}", "sharded_backend"), ("[]", "an object"), ("{", "JSON"), ('{"sharded_backend": 7}', "a text"),
])  # fmt: skip
def test_another_backend_is_refused(parent: Path, told: str, message: str) -> None:
    """Only torch_dist is read, and the sentence says what is there."""
    (parent / ITERATION.name / "metadata.json").write_text(told)
    with pytest.raises(InputError, match=message):
        READER.read(parent, Limits())


def test_common_pt_is_not_opened(parent: Path) -> None:
    """The arguments are a pickle that nothing needs: any bytes there will do, and so will none."""
    (parent / ITERATION.name / "common.pt").write_bytes(b"\x80\x04cos\nsystem\n.")
    assert {".metadata": 6188, "common.pt": 14, "metadata.json": 119} == READER.read(parent, Limits()).metadata_files
    (parent / ITERATION.name / "common.pt").unlink()
    assert {".metadata": 6188, "metadata.json": 119} == READER.read(parent, Limits()).metadata_files
