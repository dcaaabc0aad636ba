"""PyTorch distributed checkpoints: every sample as it is, every fault found, every hostile one refused."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.layout import CheckpointLayout, dcp_metadata
from mlsysim.layout.dcp_metadata import Document, read_document
from mlsysim.layout.findings import Finding
from mlsysim.layout.limits import Limits
from mlsysim.layout.pytorch import READER
from tests.layout.fuzzing import LONG_RUN, mutated
from tests.layout.torch_files import METADATA, PLANNER, Checkpoint, Global, Object, dumped, large_metadata, saved, saved_array
from tests.layout.truth import check_against_truth

DATA = Path(__file__).parents[1] / "data"
SAMPLES = sorted(path.parent for path in (DATA / "dcp").glob("*/ckpt") if any(path.glob("*.distcp")))
BY_NAME = {path.name: path for path in SAMPLES}
ADAM = BY_NAME["fsdp2_adamw_4ranks"] / "ckpt"
ALONE = BY_NAME["fsdp2_no_collectives_4ranks"] / "ckpt"
EVEN = BY_NAME["fsdp2_file_per_tensor_4ranks"] / "ckpt"


def read(folder: Path, **limits: int) -> CheckpointLayout:
    return READER.read(folder, Limits(**limits))


@pytest.mark.parametrize("sample", BY_NAME)
def test_a_sample_reads_to_its_truth(sample: str) -> None:
    """Names, shapes, ranks, files, bytes and the digest of every tensor are as the real library has them."""
    folder = BY_NAME[sample]
    assert READER.matches(folder / "ckpt")
    check_against_truth(read(folder / "ckpt"), json.loads((folder / "truth.json").read_text()))


@pytest.mark.parametrize("sample", BY_NAME)
def test_a_sample_verifies(sample: str) -> None:
    """Nothing is wrong; where one copy is kept, a note says what cannot be seen."""
    layout = read(BY_NAME[sample] / "ckpt")
    found = layout.verify(payload=True)
    assert found.ok
    assert ([] if layout.replicas_recorded else ["replicas possible"]) == [each.kind for each in found]


@pytest.mark.parametrize("sample", BY_NAME)
def test_reading_touches_no_payload(sample: str, tmp_path: Path) -> None:
    """With every data file full of zeros, the same layout comes out, and verify without payload is content."""
    folder = tmp_path / "ckpt"
    shutil.copytree(BY_NAME[sample] / "ckpt", folder)
    for path in folder.glob("*.distcp"):
        path.write_bytes(bytes(path.stat().st_size))
    check_against_truth(read(folder), json.loads((BY_NAME[sample] / "truth.json").read_text()), payload=False)
    assert read(folder).verify().ok


@pytest.mark.parametrize("sample", BY_NAME)
def test_without_data_files_the_layout_is_read(sample: str, tmp_path: Path) -> None:
    """Files that are not there are no error on reading, and findings of verify."""
    for path in (BY_NAME[sample] / "ckpt").glob("*metadata"):
        shutil.copy(path, tmp_path)
    layout, whole = read(tmp_path), read(BY_NAME[sample] / "ckpt")
    assert whole.tensors == layout.tensors
    assert {-1} == set(layout.data_files.size.tolist())
    assert set(layout.files) == {each.file for each in layout.verify().of_kind("file missing")}


def test_the_metadata_file_names_its_checkpoint() -> None:
    """The path of .metadata, or of one rank's, is as good as the folder's."""
    assert read(ADAM).tensors == read(ADAM / ".metadata").tensors
    assert READER.matches(ALONE / "__2.metadata")
    assert 4 == read(ALONE / "__2.metadata").ranks
    assert not READER.matches(ADAM / "__0_0.distcp")
    assert not READER.matches(DATA)


# a checkpoint of our own

WHOLE = np.arange(40, dtype=np.float32).reshape(5, 8)
ROWS = [("__0_0.distcp", (0, 0), (3, 8)), ("__1_0.distcp", (3, 0), (2, 8))]


def good(folder: Path, **kind: Any) -> Checkpoint:
    made = Checkpoint(folder, **kind)
    made.add("weight", WHOLE, ROWS)
    made.add("step", np.array(7, np.int64), [("__1_0.distcp", (), ())])
    made.add_object("lr", "__0_0.distcp", 0.1)
    return made


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("path", [("pathlib", "PosixPath"), ("pathlib._local", "PosixPath"), ("pathlib", "WindowsPath")])
def test_every_version_of_torch_is_read(tmp_path: Path, older: bool, protocol: int, path: tuple[str, str]) -> None:
    """The class names of torch 1.13 to 2.2, Python 3.13's paths and each protocol give the same layout."""
    layout = read(good(tmp_path, older=older, protocol=protocol, path=path).write())
    assert WHOLE.tolist() == layout.reassemble("weight").tolist()
    assert (7, ("lr",), 2) == (int(layout.reassemble("step")), layout.objects, layout.ranks)
    assert layout.verify(payload=True).ok


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.bool_, np.uint16, np.complex64])
def test_other_element_types_are_read(tmp_path: Path, dtype: Any) -> None:
    """The bytes of each element type come back."""
    whole = (np.arange(12).reshape(3, 4) % 2).astype(dtype)
    made = Checkpoint(tmp_path)
    made.add("w", whole, [("__0_0.distcp", (0, 0), (3, 3)), ("__0_1.distcp", (0, 3), (3, 1))])
    layout = read(made.write())
    assert (whole.dtype, whole.tobytes()) == (layout.reassemble("w").dtype, layout.reassemble("w").tobytes())
    assert layout.verify(payload=True).ok


@pytest.mark.parametrize("name", ["", "層.名—前", "offset", "length", "index", "fqn", "relative_path", "sizes", "x" * 300, "a/b\\c\n"])
def test_odd_names_are_names(tmp_path: Path, name: str) -> None:
    """Whatever a tensor is called, it is found under that name."""
    made = Checkpoint(tmp_path)
    made.add(name, WHOLE, ROWS)
    made.add("other", WHOLE, ROWS)
    layout = read(made.write())
    assert [name, "other"] == [each.name for each in layout.tensors]
    assert WHOLE.tolist() == layout.reassemble(name).tolist()


def test_files_with_a_prefix_and_in_folders_tell_their_rank(tmp_path: Path) -> None:
    """A prefix before the rank, or a folder, changes nothing; a name without a rank tells none."""
    made = Checkpoint(tmp_path)
    made.add("a", WHOLE, [("step_10__3_0.distcp", (0, 0), (5, 8))])
    made.add("b", WHOLE, [("part/__1_2.distcp", (0, 0), (5, 8))])
    made.add("c", WHOLE, [("all.distcp", (0, 0), (5, 8))])
    layout = read(made.write())
    assert ("part/__1_2.distcp", "step_10__3_0.distcp", "all.distcp") == layout.files
    assert [1, 3, -1] == layout.data_files.rank.tolist()
    assert 4 == layout.ranks
    with pytest.raises(InputError, match="bytes_per_rank"):
        layout.bytes_per_rank  # noqa: B018


def test_an_empty_tensor_and_an_empty_checkpoint(tmp_path: Path) -> None:
    """A tensor without elements has a chunk of no bytes; a checkpoint without tensors has none."""
    made = Checkpoint(tmp_path / "one")
    made.add("e", np.zeros((0, 4), np.float32), [("__0_0.distcp", (0, 0), (0, 4))])
    layout = read(made.write())
    assert (0, (0, 4)) == (layout.payload_bytes.base, layout.reassemble("e").shape)
    assert layout.verify(payload=True).ok
    assert ((), None) == ((empty := read(Checkpoint(tmp_path / "none").write())).tensors, empty.ranks)


def test_the_claims_tile_the_files() -> None:
    """Chunks and objects follow each other without a gap: the bytes they claim are the files."""
    layout = read(ADAM)
    files, _, lengths = layout.details["claims"]
    assert layout.data_files.size.tolist() == np.bincount(files, weights=lengths).tolist()


# faults


def flip(folder: Path, file: str, at: int) -> None:
    path = folder / file
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def payload_at(folder: Path, name: str, file: str) -> int:
    """Where the elements of a tensor's chunk in a file begin."""
    layout = read(folder)
    row = next(row for row in layout.rows_of(layout.place_of(name)) if layout.files[layout.fragments.file[row]] == file)
    path = folder / file
    part = path.read_bytes()[: int(layout.fragments.file_offset[row]) + int(layout.fragments.stored_bytes[row])]
    return part.rindex(layout.payload.read(int(row)).tobytes())  # type: ignore[union-attr]


def remade(change: Callable[[Checkpoint], Any]) -> Callable[[Path], None]:
    """A checkpoint that is written with a fault in it."""

    def write(folder: Path) -> None:
        made = Checkpoint(folder)
        change(made)
        made.add("step", np.array(7, np.int64), [("__1_0.distcp", (), ())])
        made.write()

    return write


def chunk_of(made: Checkpoint, chunk: bytes, told: tuple[Any, Any] = ((2, 8), "float32"), length: int | None = None) -> None:
    """Rows 0 to 2 as they should be, and the others as some other bytes."""
    made.put("__0_0.distcp", made.names.index("weight", (0, 0)), saved_array(WHOLE[:3]))
    made.put("__1_0.distcp", made.names.index("weight", (3, 0)), chunk)
    chunks = [made.names.chunk((0, 0), (3, 8)), made.names.chunk((3, 0), told[0])]
    made.tensors["weight"] = made.names.tensor(told[1], (5, 8), chunks)


def without_entry(made: Checkpoint) -> None:
    made.add("weight", WHOLE, ROWS)
    del made.stored[next(iter(made.stored))]


def stored_short(made: Checkpoint) -> None:
    made.add("weight", WHOLE, ROWS)
    info = made.stored[list(made.stored)[1]]
    info.state["length"] = 10


def on_good(change: Callable[[Path], Any]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        good(folder).write()
        change(folder)

    return write


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


FAULTS: dict[str, tuple[Callable[[Path], None], tuple[str, str | None, int | None, str | None]]] = {
    "a bit of the payload": (
        on_good(lambda folder: flip(folder, "__1_0.distcp", payload_at(folder, "weight", "__1_0.distcp") + 5)),
        ("digest differs", "weight", 1, "__1_0.distcp")),
    "a file that is not there": (
        on_good(lambda folder: (folder / "__1_0.distcp").unlink()), ("file missing", None, 1, "__1_0.distcp")),
    "a file that is cut": (on_good(lambda folder: shorter(folder / "__1_0.distcp")), ("file short", None, 1, "__1_0.distcp")),
    "bytes at the end": (on_good(lambda folder: longer(folder / "__1_0.distcp")), ("unclaimed bytes", None, 1, "__1_0.distcp")),
    "another shape": (
        remade(lambda made: chunk_of(made, saved_array(WHOLE[3:].reshape(8, 2)))), ("shape differs", "weight", 1, "__1_0.distcp")),
    "another element type": (
        remade(lambda made: chunk_of(made, saved_array(WHOLE[3:].view(np.int32)))), ("dtype differs", "weight", 1, "__1_0.distcp")),
    "no tensor": (remade(lambda made: chunk_of(made, saved([1], {}))), ("unreadable payload", "weight", 1, "__1_0.distcp")),
    "no zip": (remade(lambda made: chunk_of(made, b"x" * 400)), ("unreadable payload", "weight", 1, "__1_0.distcp")),
    "more elements stored than told": (
        remade(lambda made: chunk_of(made, saved_array(WHOLE[3:], elements=10))), ("unreadable payload", "weight", 1, "__1_0.distcp")),
    "fewer elements told than stored": (
        remade(lambda made: chunk_of(made, saved(saved_tensor(), {"0": WHOLE[2:].tobytes()}))),
        ("byte count differs", "weight", 1, "__1_0.distcp")),
    "a chunk no file holds": (remade(without_entry), ("missing tensor", "weight", None, None)),
    "a chunk of ten bytes": (remade(stored_short), ("byte count differs", "weight", 1, "__1_0.distcp")),
    "a hole": (remade(lambda made: made.add("weight", WHOLE, [ROWS[0], ("__1_0.distcp", (4, 0), (1, 8))])), ("hole", "weight", 0, None)),
    "an overlap": (
        remade(lambda made: made.add("weight", WHOLE, [ROWS[0], ("__1_0.distcp", (2, 0), (3, 8))])),
        ("overlap", "weight", 1, "__1_0.distcp")),
    "twice the same part": (
        remade(lambda made: made.add("weight", WHOLE, [*ROWS, ("__1_1.distcp", (3, 0), (2, 8))])),
        ("overlap", "weight", 1, "__1_1.distcp")),
    "out of bounds": (
        remade(lambda made: made.add("weight", WHOLE, ROWS, shape=(4, 8))), ("out of bounds", "weight", 1, "__1_0.distcp")),
    "a rank without a file": (
        remade(lambda made: made.add("weight", WHOLE, [ROWS[0], ("__3_0.distcp", (3, 0), (2, 8))])), ("missing rank", None, 2, None)),
    "compressed": (remade(lambda made: compressed(made)), ("unreadable payload", "weight", 1, "__1_0.distcp")),
}  # fmt: skip


def saved_tensor() -> Object:
    from tests.layout.torch_files import tensor

    return tensor(np.ascontiguousarray(WHOLE[3:]))


def compressed(made: Checkpoint) -> None:
    made.add("weight", WHOLE, ROWS)
    made.stored[list(made.stored)[1]].state["transform_descriptors"] = ["zstd"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_single_fault_is_found_and_named(tmp_path: Path, fault: str) -> None:
    """Verify says the kind, the tensor, the rank and the file."""
    write, wanted = FAULTS[fault]
    write(tmp_path)
    found = read(tmp_path).verify(payload=True)
    assert wanted in [(each.kind, each.tensor, each.rank, each.file) for each in found], found


@pytest.mark.parametrize("fault", ["another shape", "another element type", "no tensor", "no zip", "a chunk no file holds", "compressed"])
def test_a_chunk_that_is_not_what_it_should_be_is_not_put_together(tmp_path: Path, fault: str) -> None:
    """Reassembling says InputError."""
    FAULTS[fault][0](tmp_path)
    with pytest.raises(InputError):
        read(tmp_path).reassemble("weight")


def test_faults_without_payload_are_found_without_payload(tmp_path: Path) -> None:
    """What the metadata shows is found though no data file is opened."""
    FAULTS["a chunk of ten bytes"][0](tmp_path)
    assert "byte count differs" in [each.kind for each in read(tmp_path).verify()]


def test_a_whole_file_of_flipped_bits(tmp_path: Path) -> None:
    """Whichever byte of the payload of a real sample is flipped, verify names the rank."""
    folder = tmp_path / "ckpt"
    shutil.copytree(EVEN, folder)
    at = payload_at(folder, "model.embed.weight", "__1_0.distcp")
    for place in range(at, at + 832, 97):
        flip(folder, "__1_0.distcp", place)
        found: tuple[Finding, ...] = read(folder).verify(payload=True).of_kind("digest differs")
        assert [("model.embed.weight", 1)] == [(each.tensor, each.rank) for each in found]
        flip(folder, "__1_0.distcp", place)


def test_progress_is_told() -> None:
    """The bytes told add up to those checked."""
    told: list[int] = []
    layout = read(EVEN)
    layout.verify(payload=True, advance=told.append)
    assert sum(told) > layout.payload_bytes.base


# no collectives


def test_ranks_of_their_own_must_agree_on_a_tensor(tmp_path: Path) -> None:
    """One name with two shapes in two ranks' metadata is refused, with both."""
    for rank, whole in enumerate((WHOLE, WHOLE[:4])):
        made = Checkpoint(tmp_path)
        made.add("weight", whole, [(f"__{rank}_0.distcp", (0, 0), whole.shape)])
        made.write(f"__{rank}.metadata")
    with pytest.raises(InputError, match=r"__1\.metadata: weight must be the same .* float32 \[4, 8\] here and float32 \[5, 8\] before"):
        read(tmp_path)


def test_replicas_of_ranks_of_their_own_are_replicas(tmp_path: Path) -> None:
    """The same part from two ranks counts twice as written, once in the tensor, and is no overlap."""
    for rank in range(2):
        made = Checkpoint(tmp_path)
        made.add("weight", WHOLE, [(f"__{rank}_0.distcp", (0, 0), (5, 8))])
        made.write(f"__{rank}.metadata")
    layout = read(tmp_path)
    assert (2.0, 160.0, 320.0, True) == (layout.replication, layout.logical_bytes.base, layout.payload_bytes.base, layout.replicas_recorded)
    assert layout.verify(payload=True).ok


# hostile


def meta(state: Any) -> bytes:
    return dumped(Object(Global(METADATA, "Metadata"), (), state))


def changed(change: Callable[[Checkpoint], Any]) -> bytes:
    made = Checkpoint(Path("nowhere"))
    made.add("weight", WHOLE, ROWS)
    change(made)
    return dumped(made.names.metadata(made.tensors, made.stored, **made.more))


def set_state(made: Checkpoint, **state: Any) -> None:
    made.tensors["weight"].state.update(state)


def set_info(made: Checkpoint, **state: Any) -> None:
    next(iter(made.stored.values())).state.update(state)


SHARED: list[Any] = []
HOSTILE: dict[str, bytes] = {
    "a list": dumped([]),
    "a number": dumped(7),
    "another class": dumped(Object(Global(METADATA, "StorageMeta"), (), {})),
    "the class itself": dumped(Global(METADATA, "Metadata")),
    "no state": meta(None),
    "state that is a list": meta([1]),
    "no tensors": meta({"storage_data": {}}),
    "tensors that are a list": meta({"state_dict_metadata": [], "storage_data": {}}),
    "no storage data": meta({"state_dict_metadata": {}, "storage_data": None}),
    "a name that is a number": changed(lambda made: made.tensors.update({7: made.names.bytes()})),  # type: ignore[dict-item]
    "a tensor that is a number": changed(lambda made: made.tensors.update(weight=7)),  # type: ignore[arg-type]
    "a size that is text": changed(lambda made: set_state(made, size="ab")),
    "a size of floats": changed(lambda made: set_state(made, size=(1.0,))),
    "a negative size": changed(lambda made: set_state(made, size=(-1, 8))),
    "a huge size": changed(lambda made: set_state(made, size=(2**70, 8))),
    "a size of a thousand axes": changed(lambda made: set_state(made, size=(1,) * 1000)),
    "a chunk of other axes": changed(lambda made: set_state(made, chunks=[made.names.chunk((0,), (3,))])),
    "a chunk that is a number": changed(lambda made: set_state(made, chunks=[7])),
    "chunks that are a tuple": changed(lambda made: set_state(made, chunks=())),
    "one list of chunks for two tensors": changed(
        lambda made: made.tensors.update(a=made.names.tensor("float32", (5,), SHARED), b=made.names.tensor("float32", (5,), SHARED))),
    "chunks of 2^70 byte": changed(lambda made: set_state(made, chunks=[made.names.chunk((0, 0), (2**40, 2**30))])),
    "chunks of 2^63 byte together": changed(lambda made: set_state(made, chunks=[made.names.chunk((0, 0), (2**30, 2**29))] * 16)),
    "an unknown element type": changed(lambda made: made.tensors.update(w=made.names.tensor("qint8", (), []))),
    "no properties": changed(lambda made: set_state(made, properties=None)),
    "a file that climbs out": changed(lambda made: set_info(made, relative_path="../__0_0.distcp")),
    "a file from the root": changed(lambda made: set_info(made, relative_path="/etc/passwd")),
    "a file without a name": changed(lambda made: set_info(made, relative_path="")),
    "a file with a null byte": changed(lambda made: set_info(made, relative_path="a\0b")),
    "a file that is a number": changed(lambda made: set_info(made, relative_path=7)),
    "a rank of a thousand million": changed(lambda made: set_info(made, relative_path="__999999999_0.distcp")),
    "a rank beyond all": changed(lambda made: set_info(made, relative_path="__99999999999999_0.distcp")),
    "a negative offset": changed(lambda made: set_info(made, offset=-1)),
    "an offset beyond 62 bits": changed(lambda made: set_info(made, offset=2**62, length=2**62)),
    "a length that is text": changed(lambda made: set_info(made, length="1")),
    "an entry that is a number": changed(lambda made: made.stored.update({next(iter(made.stored)): 7})),  # type: ignore[dict-item]
    "an entry under a text": changed(lambda made: made.stored.update({"weight": made.names.info("a", 0, 1)})),  # type: ignore[dict-item]
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_metadata_is_refused(tmp_path: Path, case: str) -> None:
    """Every field is checked: what is not of its kind is an InputError."""
    (tmp_path / ".metadata").write_bytes(HOSTILE[case])
    with pytest.raises(InputError):
        read(tmp_path)


@pytest.mark.parametrize("case", json.loads((DATA / "hostile" / "expected.json").read_text()))
def test_the_hostile_samples_are_refused(case: str) -> None:
    """Case C46: the file and the byte are named."""
    assert READER.matches(DATA / "hostile" / case)
    with pytest.raises(InputError, match=r"^\.metadata: byte \d+"):
        read(DATA / "hostile" / case)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A data file, or the metadata, that is a link to elsewhere is refused."""
    folder = good(tmp_path / "ckpt").write()
    (folder / "__0_0.distcp").rename(tmp_path / "elsewhere")
    (folder / "__0_0.distcp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="links followed"):
        read(folder)


def test_caps_are_caps(tmp_path: Path) -> None:
    """More fragments, files or bytes than the caps are refused, and the sentence says how to raise them."""
    folder = good(tmp_path).write()
    for limits in ({"fragments": 2}, {"files": 1}, {"metadata_bytes": 100}, {"built_bytes": 1000}):
        with pytest.raises(InputError, match=r"Raise the cap with limits=Limits"):
            read(folder, **limits)


def test_a_folder_without_metadata_is_refused(tmp_path: Path) -> None:
    """A save that did not finish has no metadata."""
    (tmp_path / "__0_0.distcp").touch()
    assert not READER.matches(tmp_path)
    with pytest.raises(InputError, match=r"a folder with \.metadata"):
        read(tmp_path)


# runs: the fast way gives what the slow one gives


def rows(document: Document) -> Any:
    sizes = document.sizes
    chunks = sorted(
        (int(t), sizes[o], sizes[e]) for t, o, e in zip(document.chunk_tensor, document.chunk_offset, document.chunk_extent, strict=True)
    )
    columns = (document.entry_name, document.entry_offset, document.entry_file, document.entry_start, document.entry_length)
    entries = sorted(
        (document.names[n], sizes[o] if o >= 0 else (), document.files[f], int(s), int(c)) for n, o, f, s, c in zip(*columns, strict=True)
    )  # fmt: skip
    return document.tensors, document.objects, chunks, entries


def both(data: bytes) -> tuple[Any, Any, bool]:
    fast = dcp_metadata._Reading("a", Limits(), runs=True)
    slow = dcp_metadata._Reading("a", Limits(), runs=False)
    return rows(fast.document(data)), rows(slow.document(data)), fast.skipped


@pytest.mark.parametrize("sample", [name for name in BY_NAME if "collectives" not in name])
def test_runs_give_what_opcodes_give(sample: str) -> None:
    """Taken in run by run or opcode by opcode, a sample has the same rows."""
    fast, slow, _ = both((BY_NAME[sample] / "ckpt" / ".metadata").read_bytes())
    assert slow == fast


@pytest.mark.parametrize("ranks", [1, 3, 64])
def test_runs_of_a_large_checkpoint(tmp_path: Path, ranks: int) -> None:
    """Frames, batches and numbers of every length in a larger file change nothing, and runs are taken."""
    count = large_metadata(tmp_path / ".metadata", ranks, layers=2)
    fast, slow, skipped = both((tmp_path / ".metadata").read_bytes())
    assert slow == fast
    assert (count, skipped) == (len(fast[2]), True)


def test_runs_of_odd_chunks(tmp_path: Path) -> None:
    """Scalars, five axes, numbers beyond 31 bits, long and odd names among the others are all found."""
    made = Checkpoint(tmp_path)
    names = made.names
    for number, name in enumerate(["a", "—", "x" * 300, "b", "c", "offset"]):
        offsets = [(), (0,), (2**31, 5), (1, 2, 3), (1, 2, 3, 2**40, 5), (300, 70000)][(number * 5) % 6 :][:3] or [()]
        for axes in {len(offset) for offset in offsets}:
            mine = [offset for offset in offsets if len(offset) == axes]
            made.tensors[f"{name}{axes}"] = names.tensor(
                "float32", (2**50,) * axes, [names.chunk(offset, (1,) * axes) for offset in mine * 3]
            )
            for place, offset in enumerate(mine * 3):
                made.stored[names.index(f"{name}{axes}", offset)] = names.info(f"__{place}_0.distcp", 2**33 * place, 2**31 + place)
    fast, slow, skipped = both(dumped(names.metadata(made.tensors, made.stored)))
    assert slow == fast
    assert skipped


def test_plans_are_passed_over(tmp_path: Path) -> None:
    """The plans that Megatron-core adds are taken in by the run, and leave no trace."""
    made = good(tmp_path)
    item, kind = made.names(PLANNER, "WriteItem"), Object(made.names(PLANNER, "WriteItemType"), (2,), call=True)
    data = made.names(PLANNER, "TensorWriteData")
    items = []
    for number in range(50):
        state = {"chunk": made.names.chunk((number, 0), (1, 8)), "properties": made.tensors["weight"].state["properties"], "size": (5, 8)}
        index = made.names.index("weight", (number, 0))
        items.append(Object(item, (), {"index": index, "type": kind, "bytes_io_data": None, "tensor_data": Object(data, (), state)}))
    plan = Object(made.names(PLANNER, "SavePlan"), (), {"items": items, "storage_data": None})
    without = both(dumped(made.names.metadata(made.tensors, made.stored)))[0]
    fast, slow, _ = both(dumped(made.names.metadata(made.tensors, made.stored, all_local_plans=[plan])))
    assert without == slow == fast


def test_what_a_run_took_in_can_still_be_referred_to(tmp_path: Path) -> None:
    """A chunk that is wanted once more as an object is read opcode by opcode."""
    made = Checkpoint(tmp_path)
    chunks = [made.names.chunk((number, 0), (1, 8)) for number in range(5)]
    made.tensors["weight"] = made.names.tensor("float32", (5, 8), chunks)
    made.tensors["tied"] = made.names.tensor("float32", (5, 8), [*chunks])
    document = read_document(dumped(made.names.metadata(made.tensors, {})), place="a", limits=Limits())
    assert [0] * 5 + [1] * 5 == document.chunk_tensor.tolist()


def test_runs_are_capped_like_all_else(tmp_path: Path) -> None:
    """What a run adds counts against what may be built."""
    large_metadata(tmp_path / ".metadata", 64, layers=2)
    with pytest.raises(InputError, match="at most 1,000,000 byte when built"):
        read(tmp_path, built_bytes=10**6)


@pytest.mark.parametrize("end", [b"", b"\xff", b"ub", b"(", b"h\x00)\x81\x94}\x94("])
def test_a_plan_that_almost_fits_takes_no_time(tmp_path: Path, end: bytes) -> None:
    """Twenty thousand fields, and an end that fits none of the forms: refused after one look at each."""
    item = Object(Global(PLANNER, "WriteItem"), (), {"index": None})
    plain = dumped([item, Object(item.of, (), {}), Object(item.of, (), {}), 7])[11:]
    at = plain.rindex(b"}")
    data = b"\x80\x04" + plain[: at + 2] + b"(" + b"h\x00h\x00" * 20_000 + end + plain[at + 2 :]
    (tmp_path / ".metadata").write_bytes(data)
    with pytest.raises(InputError):
        read(tmp_path)


def test_a_refusal_is_one_line(tmp_path: Path) -> None:
    """Whatever a name holds, the error that names it has no line breaks and no control characters."""
    made = Checkpoint(tmp_path)
    made.tensors["a\n\x1b[31m\u202e" + "x" * 5000] = made.names.tensor("qint8", (), [])
    with pytest.raises(InputError) as caught:
        read(made.write())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


# fuzzing


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_data_file(tmp_path: Path) -> None:
    """A named pipe where a data file should be is a missing file, and is never waited for."""
    here = tmp_path / "ckpt"
    shutil.copytree(EVEN, here)
    (here / "__1_0.distcp").unlink()
    os.mkfifo(here / "__1_0.distcp")
    layout = read(here)
    report = layout.verify(payload=True)
    assert [("__1_0.distcp", 1)] == [(each.file, each.rank) for each in report.of_kind("file missing")]
    row = int(np.flatnonzero(layout.fragments.file == layout.files.index("__1_0.distcp"))[0])
    with pytest.raises(InputError, match=r"__1_0\.distcp must be a regular file that is there; got none"):
        layout.reassemble(layout.tensors[int(layout.fragments.tensor[row])].name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here: Path = tmp_path_factory.mktemp("fuzzed") / "ckpt"
    shutil.copytree(EVEN, here)
    return here


def use(folder: Path) -> None:
    """Read, verify and reassemble; InputError is the one way to fail, and verify has none."""
    try:
        layout = read(folder, built_bytes=2**26, fragments=10_000)
    except InputError:
        return
    layout.verify(payload=True)
    for tensor in layout.tensors:
        if tensor.bytes < 2**20:
            with contextlib.suppress(InputError):
                layout.reassemble(tensor.name)


METADATA_BYTES = (EVEN / ".metadata").read_bytes()
OTHERS = tuple((BY_NAME[name] / "ckpt" / ".metadata").read_bytes() for name in ("pp_uneven_4ranks", "rank_local_same_key_4ranks"))
DATA_BYTES = (EVEN / "__1_0.distcp").read_bytes()


def use_metadata(folder: Path, data: bytes) -> None:
    (folder / "__1_0.distcp").write_bytes(DATA_BYTES)
    (folder / ".metadata").write_bytes(data)
    use(folder)


def use_data(folder: Path, data: bytes) -> None:
    (folder / "__1_0.distcp").write_bytes(data)
    (folder / ".metadata").write_bytes(METADATA_BYTES)
    use(folder)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=mutated(METADATA_BYTES, OTHERS))
def test_a_mutated_metadata_is_refused_or_verified(folder: Path, data: bytes) -> None:
    """Only InputError comes out of reading and reassembling; verify never raises."""
    use_metadata(folder, data)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=mutated(DATA_BYTES))
def test_a_mutated_data_file_is_verified(folder: Path, data: bytes) -> None:
    """Only InputError comes out of reassembling; verify never raises."""
    use_data(folder, data)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=LONG_RUN, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.sampled_from((METADATA_BYTES, *OTHERS)).flatmap(lambda sample: mutated(sample, OTHERS)))
def test_many_mutated_metadata_are_refused_or_verified(folder: Path, data: bytes) -> None:
    """The long run."""
    use_metadata(folder, data)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=LONG_RUN // 10, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=mutated(DATA_BYTES))
def test_many_mutated_data_files_are_verified(folder: Path, data: bytes) -> None:
    """The long run."""
    use_data(folder, data)
