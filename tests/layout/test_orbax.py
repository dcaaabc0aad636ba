from __future__ import annotations

import bz2
import gzip
import json
import os
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.layout import orbax
from mlsysim.layout.layout import CheckpointLayout
from mlsysim.layout.limits import Limits
from mlsysim.layout.orbax_codec import checked, expanded, unzstd
from mlsysim.layout.orbax_tree import Budget, read_slice, read_tree
from tests.layout import ocdbt
from tests.layout.fuzzing import LONG_RUN, changed, mutated
from tests.layout.truth import check_against_truth

ts = pytest.importorskip("tensorstore", reason="the extra `orbax` is not installed")

DATA = Path(__file__).parents[1] / "data" / "orbax"
SAMPLES = ("ocdbt_default", "ocdbt_zarr3", "plain_zarr_no_ocdbt", "ocdbt_2procs_4x2")
TWO = "ocdbt_2procs_4x2"
ZARRAY: dict[str, Any] = {
    "zarr_format": 2, "shape": [4, 6], "chunks": [2, 4], "dtype": "<f4", "order": "C", "fill_value": None, "filters": None,
    "compressor": None, "dimension_separator": ".",
}  # fmt: skip
ZARR3: dict[str, Any] = {
    "zarr_format": 3, "node_type": "array", "shape": [4, 6], "data_type": "float32", "fill_value": 0.0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 4]}}, "chunk_key_encoding": {"name": "default"},
    "codecs": [{"name": "sharding_indexed", "configuration": {
        "chunk_shape": [2, 2], "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd"}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]}}],
}  # fmt: skip


def read(path: Path, **limits: int) -> CheckpointLayout:
    assert orbax.READER.matches(path)
    return orbax.READER.read(path, Limits(**limits))


def truth_of(name: str) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((DATA / name / "truth.json").read_text())
    return truth


@pytest.fixture
def copied(tmp_path: Path) -> Any:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(DATA / name / "ckpt", tmp_path / name))

    return copy


def inline(folder: Path, document: dict[str, Any], chunks: dict[str, bytes], name: str = ".zarray", **others: Any) -> Path:
    """A checkpoint of one array ``w``, all of it in one node."""
    entries = {f"w/{name}": json.dumps(document).encode(), **{f"w/{key}": data for key, data in chunks.items()}}
    return ocdbt.write(folder, ocdbt.leaf(sorted(entries.items()), []), **others)


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_read_to_their_truth(name: str) -> None:
    """Names, shapes, chunks, bytes, files and whole tensors of each sample are as the real libraries gave them."""
    layout, truth = read(DATA / name / "ckpt"), truth_of(name)
    check_against_truth(layout, truth)
    told = truth["layout"]
    for key in ("zarr_version", "value_bytes_per_rank", "merged_bytes"):
        assert told[key] == layout.details[key]
    for tensor in told["tensors"]:
        assert tensor.get("replicas_held") == layout.details["replicas_held"].get(tensor["name"])
        assert tensor["write_chunk"] == layout.details["write_chunk"][tensor["name"]]
        assert tensor["read_chunk"] == layout.details["read_chunk"][tensor["name"]]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_verify(name: str) -> None:
    """Nothing is found wrong with a good sample."""
    assert len(read(DATA / name / "ckpt").verify(payload=True)) == 0


def test_held_bytes_count_every_replica() -> None:
    """What the devices held is each array times its replicas."""
    held = sum(each["bytes"] * each.get("replicas_held", 1) for each in truth_of(TWO)["layout"]["tensors"])
    assert held == read(DATA / TWO / "ckpt").held_bytes.base


@pytest.mark.parametrize("file", ["manifest.ocdbt", "_METADATA", "_sharding"])
def test_a_describing_file_stands_for_its_folder(file: str) -> None:
    """A file that describes a checkpoint can be given in place of its folder."""
    assert read(DATA / TWO / "ckpt").files == read(DATA / TWO / "ckpt" / file).files


def test_the_folder_of_a_step_with_one_item(copied: Any) -> None:
    """A step of one item reads as the item does, its files named from the step."""
    step = copied(TWO).parent / "7"
    shutil.copytree(DATA / TWO / "ckpt", step / "default")
    (step / "_CHECKPOINT_METADATA").write_text("{}")
    layout, alone = read(step), read(DATA / TWO / "ckpt")
    assert {f"default/{name}" for name in alone.files} == set(layout.files)
    assert alone.tensors == layout.tensors
    assert alone.bytes_per_rank.base.tolist() == layout.bytes_per_rank.base.tolist()
    assert {"_CHECKPOINT_METADATA", "default/_METADATA"} < set(layout.metadata_files)
    assert layout.verify(payload=True).ok


def test_the_folder_of_a_step_with_several_items(tmp_path: Path) -> None:
    """Of several items every tensor is read, its name after its item's."""
    for item, name in (("params", TWO), ("state", "ocdbt_zarr3")):
        shutil.copytree(DATA / name / "ckpt", tmp_path / "7" / item)
    (tmp_path / "7" / "meta").mkdir()
    (tmp_path / "7" / "meta" / "metadata").write_text("{}")
    layout = read(tmp_path / "7")
    assert {"params/step", "state/step"} < {each.name for each in layout.tensors}
    assert layout.logical_bytes.base == sum(truth_of(name)["layout"]["logical_bytes"] for name in (TWO, "ocdbt_zarr3"))
    assert layout.verify(payload=True).ok


def test_a_folder_of_steps_is_no_checkpoint(tmp_path: Path) -> None:
    """A folder of several steps is not taken for one checkpoint, and a reader who insists is told to name the step."""
    shutil.copytree(DATA / TWO / "ckpt", tmp_path / "run" / "7" / "default")
    assert not orbax.READER.matches(tmp_path / "run")
    with pytest.raises(InputError, match="Give the folder of one step"):
        orbax.READER.read(tmp_path / "run", Limits())


def test_reading_touches_no_payload(copied: Any) -> None:
    """With every value outside the nodes overwritten, the layout is the same."""
    root = copied(TWO)
    good = read(root)
    for row in np.flatnonzero(good.fragments.file >= 0):
        with (root / good.files[good.fragments.file[row]]).open("r+b") as file:
            file.seek(int(good.fragments.file_offset[row]))
            file.write(bytes(int(good.fragments.stored_bytes[row])))
    again = read(root)
    for column in ("tensor", "rank", "file", "offset", "extent", "payload_bytes", "stored_bytes", "file_offset"):
        assert getattr(good.fragments, column).tolist() == getattr(again.fragments, column).tolist()
    assert again.verify().ok
    assert 24 == len(again.verify(payload=True).of_kind("unreadable payload"))


# ---------------------------------------------------------------- without tensorstore


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorstore", None)


@pytest.mark.usefixtures("alone")
def test_without_tensorstore_the_documents_are_told() -> None:
    """Names, replicas, files and bytes stored by each process need no library, and a note says how to have the rest."""
    layout, told = read(DATA / TWO / "ckpt"), truth_of(TWO)["layout"]
    assert told["stored_bytes_per_rank"] == layout.stored_bytes_per_rank.base.tolist()
    assert (told["ranks"], told["metadata_files"]) == (layout.ranks, layout.metadata_files)
    assert [each["name"] for each in told["tensors"]] == sorted(layout.details["arrays"])
    assert {each["name"]: each["replicas_held"] for each in told["tensors"] if "replicas_held" in each} == layout.details["replicas_held"]
    assert any('pip install "mlsysim[orbax]"' in note for note in layout.notes)
    assert ["warning"] == [each.severity for each in layout.verify(payload=True)]


@pytest.mark.usefixtures("alone")
def test_without_tensorstore_what_is_not_known_is_said() -> None:
    """Tensors that could not be told are no tensors of 0 byte: bytes are refused, the card says so, and nothing was read."""
    layout = read(DATA / TWO / "ckpt")
    for name in ("logical_bytes", "payload_bytes", "bytes_per_rank", "replication", "imbalance", "held_bytes"):
        with pytest.raises(InputError, match=r'pip install "mlsysim\[orbax\]"'):
            getattr(layout, name)
    assert "tensors            not known" in repr(layout)
    assert not layout.verify(payload=True).payload


@pytest.mark.usefixtures("alone")
def test_without_tensorstore_plain_arrays_are_whole() -> None:
    """Arrays in a folder each are described by JSON alone; only their elements need the library."""
    layout = read(DATA / "plain_zarr_no_ocdbt" / "ckpt")
    check_against_truth(layout, truth_of("plain_zarr_no_ocdbt"), payload=False)
    with pytest.raises(InputError, match=r'pip install "mlsysim\[orbax\]"'):
        layout.reassemble("step")


@pytest.mark.usefixtures("alone")
def test_without_tensorstore_nothing_is_wrong_with_the_checkpoint() -> None:
    """Chunks that cannot be looked at are one warning, and no fault of theirs."""
    report = read(DATA / "plain_zarr_no_ocdbt" / "ckpt").verify(payload=True)
    assert (True, ["warning"]) == (report.ok, [each.severity for each in report])
    assert "34 chunks were not looked at" in report.findings[0].message


# ---------------------------------------------------------------- faults


def test_a_missing_process_is_found(copied: Any) -> None:
    """Without a process's folder the layout still reads, and the file and rank that are gone are named."""
    root = copied(TWO)
    shutil.rmtree(root / "ocdbt.process_1")
    found = read(root).verify(payload=True)
    assert {("file missing", 1, "ocdbt.process_1/d/808533a7cd9156f7bce543820e997de4")} == {(e.kind, e.rank, e.file) for e in found}


def test_all_processes_missing_are_found(copied: Any) -> None:
    """Where all values lie in the merged nodes, the missing folder of the process is named all the same."""
    root = copied("ocdbt_default")
    shutil.rmtree(root / "ocdbt.process_0")
    assert [("missing rank", 0)] == [(each.kind, each.rank) for each in read(root).verify()]


@pytest.mark.parametrize("kept", [0, 5000])
def test_a_cut_data_file_is_found(copied: Any, kept: int) -> None:
    """A data file that ends before its values is named, and each value beyond its end with its tensor."""
    root, name = copied(TWO), "ocdbt.process_0/d/5596caf62aad3298241c43e06d9488bb"
    os.truncate(root / name, kept)
    layout = read(root)
    assert [("file short", name, 0)] == [(each.kind, each.file, each.rank) for each in layout.verify()]
    rows = layout.fragments.file == layout.files.index(name)
    beyond = int((rows & (layout.fragments.file_offset + layout.fragments.stored_bytes > kept)).sum())
    assert beyond == len(layout.verify(payload=True).of_kind("unreadable payload"))


def test_a_save_that_was_not_finished_is_found(copied: Any) -> None:
    """Without the merged manifest the processes' own databases are read, and the missing file is named."""
    root = copied(TWO)
    (root / "manifest.ocdbt").unlink()
    layout = read(root)
    assert [("file missing", "manifest.ocdbt")] == [(each.kind, each.file) for each in layout.verify(payload=True)]
    check_against_truth_of_tensors(layout)


def check_against_truth_of_tensors(layout: CheckpointLayout) -> None:
    told = truth_of(TWO)["layout"]
    assert [(each["name"], each["dtype"]) for each in told["tensors"]] == [(each.name, each.dtype) for each in layout.tensors]
    assert told["payload_bytes_per_rank"] == layout.bytes_per_rank.base.tolist()


def test_a_damaged_database_of_a_process_is_found(copied: Any) -> None:
    """A process's own manifest that is damaged is a finding; the merged one still reads."""
    root = copied(TWO)
    (root / "ocdbt.process_0" / "manifest.ocdbt").write_bytes(b"x" * 100)
    found = read(root).verify(payload=True)
    assert [("unreadable payload", 0, "ocdbt.process_0/manifest.ocdbt")] == [(each.kind, each.rank, each.file) for each in found]


def test_a_missing_chunk_is_a_hole(copied: Any) -> None:
    """A chunk's file that is gone leaves a hole, where the checkpoint says that every chunk was stored."""
    root = copied("plain_zarr_no_ocdbt")
    (root / "params.w" / "1.2").unlink()
    assert [("hole", "params.w")] == [(each.kind, each.tensor) for each in read(root).verify(payload=True)]


def test_a_missing_array_is_found(copied: Any) -> None:
    """An array that is named but not stored is told."""
    root = copied("plain_zarr_no_ocdbt")
    shutil.rmtree(root / "params.w")
    assert [("missing tensor", "params.w")] == [(each.kind, each.tensor) for each in read(root).verify(payload=True)]


def test_a_file_that_is_no_chunk_is_found(copied: Any) -> None:
    """A file of no chunk's name, or of a chunk off the grid, is told."""
    root = copied("plain_zarr_no_ocdbt")
    (root / "params.w" / "9.0").write_bytes(b"x")
    (root / "params.w" / "01.0").write_bytes(b"x")
    assert {"unclaimed bytes", "out of bounds"} == {each.kind for each in read(root).verify(payload=True)}


def test_a_damaged_chunk_is_found(copied: Any) -> None:
    """A chunk that no longer decodes is told with tensor, file and rank."""
    root = copied("plain_zarr_no_ocdbt")
    (root / "params.embed" / "0.0").write_bytes((root / "params.embed" / "0.0").read_bytes()[:-5])
    found = read(root).verify(payload=True)
    assert [("unreadable payload", "params.embed", "params.embed/0.0", 0)] == [(e.kind, e.tensor, e.file, e.rank) for e in found]


def test_a_damaged_node_is_refused(copied: Any) -> None:
    """A byte that changed in the merged tree fails its checksum; the refusal names file and place."""
    root = copied(TWO)
    path = root / "d" / "a4c74a46d0c87711d0948b82e784a850"
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="d/a4c74a46d0c87711d0948b82e784a850: byte 0"):
        read(root)


# ---------------------------------------------------------------- other checkpoints of the kind


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    "dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "uint32", "bool", "complex64", "int4"]
)
@pytest.mark.parametrize("database", [True, False])
def test_arrays_written_by_tensorstore_read_back(tmp_path: Path, version: int, dtype: str, *, database: bool) -> None:
    """Element types, edge chunks, scalars and odd names written by tensorstore come back equal."""
    base: dict[str, Any] = {"driver": "file", "path": f"{tmp_path}/"}
    store = {"driver": "ocdbt", "base": base} if database else base
    (tmp_path / "_METADATA").write_text('{"store_array_data_equal_to_fill_value": true}')
    wanted = {}
    for number, (name, shape, chunk) in enumerate(
        [("a.w", (7, 10), (3, 4)), ("näme/0/1", (5,), (5,)), ("s", (), ()), ("x y", (2, 3, 4), (2, 1, 3))]
    ):
        values = np.random.default_rng(number).integers(0, 2, shape).astype(ts.dtype(dtype).numpy_dtype)
        settings_ = {"chunks": chunk} if version == 2 else {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}}
        path = {**store, "path": f"{tmp_path}/{name}/"} if not database else {**store, "path": f"{name}/"}
        array = ts.open(
            {"driver": "zarr" if version == 2 else "zarr3", "kvstore": path, "metadata": settings_, "store_data_equal_to_fill_value": True},
            create=True, dtype=dtype, shape=shape,
        ).result()  # fmt: skip
        array.write(values).result()
        wanted[name] = values
    layout = read(tmp_path)
    assert sorted(wanted) == [each.name for each in layout.tensors]
    assert layout.verify(payload=True).ok
    for name, values in wanted.items():
        found = layout.reassemble(name)
        assert (values.dtype, values.shape, values.tobytes()) == (found.dtype, found.shape, np.ascontiguousarray(found).tobytes())


@pytest.mark.parametrize(
    ("driver", "metadata"),
    [
        ("zarr", {"compressor": {"id": "blosc"}}),
        ("zarr", {"compressor": {"id": "zlib", "level": 3}, "order": "F"}),
        ("zarr", {"compressor": {"id": "gzip", "level": 3}, "dtype": ">f4"}),
        ("zarr", {"compressor": {"id": "bz2", "level": 3}, "dimension_separator": "/"}),
        ("zarr", {"compressor": None}),
        ("zarr3", {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, "bytes", "gzip"]}),
        ("zarr3", {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, "blosc", "crc32c"]}),
        ("zarr3", {"codecs": ["bytes", "crc32c", "zstd"], "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "."}}}),
        ("zarr3", {"codecs": [{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [8, 50], "codecs": ["bytes", "zstd"], "index_codecs": ["bytes"], "index_location": "start"}}]}),
        ("zarr3", {"codecs": [{"name": "sharding_indexed", "configuration": {
            "chunk_shape": [4, 25], "codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, "bytes"],
            "index_codecs": ["bytes", "crc32c"]}}]}),
    ],
)  # fmt: skip
def test_codecs_written_by_tensorstore_read_back(tmp_path: Path, driver: str, metadata: dict[str, Any]) -> None:
    """Compressors, orders of axes, byte orders, checksums and shards come back equal."""
    chunk = {"chunks": [16, 100]} if driver == "zarr" else {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [16, 100]}}}
    kvstore = {"driver": "file", "path": f"{tmp_path}/w/"}
    array = ts.open(
        {"driver": driver, "kvstore": kvstore, "metadata": {**chunk, **metadata}}, create=True, dtype="float32", shape=[50, 300]
    )
    values = np.random.default_rng(0).integers(0, 3, (50, 300)).astype(np.float32)
    values[:16, :100] = 0
    array.result().write(values).result()
    (tmp_path / "_METADATA").write_text("{}")
    assert values.tobytes() == np.ascontiguousarray(read(tmp_path).reassemble("w")).tobytes()


def test_chunks_that_equal_the_fill_value_need_not_be_stored(tmp_path: Path) -> None:
    """Where not every chunk was to be stored, one that is not there holds the fill value and counts no bytes."""
    chunk = np.arange(8, dtype=np.float32)
    layout = read(inline(tmp_path, {**ZARRAY, "fill_value": 2.5}, {"0.0": chunk.tobytes()}))
    wanted = np.full((4, 6), 2.5, np.float32)
    wanted[:2, :4] = chunk.reshape(2, 4)
    assert wanted.tobytes() == np.ascontiguousarray(layout.reassemble("w")).tobytes()
    assert (32.0, 4) == (layout.payload_bytes.base, len(layout.fragments))
    assert layout.verify(payload=True).ok


def test_an_empty_array_reads(tmp_path: Path) -> None:
    """An array without elements has no chunks, and is whole."""
    layout = read(inline(tmp_path, {**ZARRAY, "shape": [0, 6]}, {}))
    assert (0, 6) == layout.reassemble("w").shape
    assert layout.verify(payload=True).ok


def test_an_empty_tree_reads(tmp_path: Path) -> None:
    """A database without a root holds nothing."""
    (tmp_path / "manifest.ocdbt").write_bytes(ocdbt.manifest(("", ""), ocdbt.ABSENT, ocdbt.ABSENT))
    assert () == read(tmp_path).tensors


def test_texts_are_objects(tmp_path: Path) -> None:
    """A text leaf is an object; an empty container is nothing."""
    leaf = {"key_metadata": [{"key": "s", "key_type": 2}], "value_metadata": {"value_type": "string", "skip_deserialize": False}}
    empty = {"key_metadata": [{"key": "e", "key_type": 2}], "value_metadata": {"value_type": "Dict", "skip_deserialize": True}}
    document = json.dumps({"tree_metadata": {"('s',)": leaf, "('e',)": empty}}).encode()
    assert ("s",) == read(inline(tmp_path, ZARRAY, {}, metadata=document)).objects


def test_trees_of_several_levels_read_as_tensorstore_reads_them(tmp_path: Path) -> None:
    """Keys and values of a tree of many small nodes are those that tensorstore lists."""
    config = {"max_decoded_node_bytes": 400, "max_inline_value_bytes": 20}
    store = ts.KvStore.open({"driver": "ocdbt", "base": {"driver": "file", "path": f"{tmp_path}/"}, "config": config}).result()
    rng = np.random.default_rng(0)
    transaction = ts.Transaction()
    for number in range(300):
        store.with_transaction(transaction)[f"layer{number % 7}/{number:04d}/é{number}"] = rng.bytes(int(rng.integers(0, 60)))
    transaction.commit_sync()
    tree = read_tree(tmp_path, "", Budget(Limits()))
    assert [key.decode() for key in sorted(store.list().result())] == tree.keys
    for place, key in enumerate(tree.keys):
        held = tree.inline.get(place)
        if held is None:
            held = read_slice(tmp_path, tree.files[tree.file[place]], int(tree.offset[place]), int(tree.length[place]))
        assert store[key] == held


def test_several_processes_without_a_database_tell_no_rank(copied: Any) -> None:
    """Of a folder an array, written by two processes, nobody knows who wrote which file."""
    root = copied("plain_zarr_no_ocdbt")
    shutil.copy(root / "array_metadatas" / "process_0", root / "array_metadatas" / "process_1")
    layout = read(root)
    assert 2 == layout.ranks
    with pytest.raises(InputError, match="records the rank"):
        _ = layout.bytes_per_rank


# ---------------------------------------------------------------- hostile


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "a/../../secret", "out/secret", "a\\b", "a\0b", "", "x" * 4097])
def test_paths_that_leave_the_folder_are_refused(tmp_path: Path, path: str) -> None:
    """A value whose file is absolute, climbs out or follows a link out is refused when the layout is read."""
    (tmp_path / "secret").write_bytes(bytes(100))
    folder = ocdbt.write(tmp_path / "c", ocdbt.leaf([("w/.zarray", json.dumps(ZARRAY).encode()), ("w/0.0", (0, 0, 32))], [("", path)]))
    (folder / "out").symlink_to(tmp_path)
    with pytest.raises(InputError):
        read(folder)


@pytest.mark.parametrize("paths", [[("../c/", "d/n")], [("/", "etc/passwd")]])
def test_base_paths_that_leave_the_folder_are_refused(tmp_path: Path, paths: list[tuple[str, str]]) -> None:
    """The same of the part that a node hands on to its children, and of the root that a manifest names."""
    with pytest.raises(InputError):
        read(ocdbt.write(tmp_path / "c", ocdbt.interior(1, [("", 0, 0, 50)], paths), height=1))
    (tmp_path / "c" / "manifest.ocdbt").write_bytes(ocdbt.manifest(paths[0], 0, 50))
    with pytest.raises(InputError):
        read(tmp_path / "c")


def test_links_out_of_the_folder_are_refused(copied: Any, tmp_path: Path) -> None:
    """A data file or folder that is a link out of the checkpoint is refused."""
    root = copied(TWO)
    shutil.move(root / "ocdbt.process_1", tmp_path / "elsewhere")
    (root / "ocdbt.process_1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="links followed"):
        read(root)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("stated", [None, 2**32 - 3])
def test_a_node_that_expands_without_end_is_refused_in_little_memory(tmp_path: Path, stated: int | None) -> None:
    """A node of a megabyte that expands to 30 GB is refused before it is expanded."""
    folder = ocdbt.write(tmp_path, ocdbt.rle(0, 30 * 2**30 // 8, stated), compression=1)
    before = peak()
    with pytest.raises(InputError):
        read(folder)
    assert peak() - before < 50_000_000


def test_keys_that_repeat_each_other_without_end_are_refused(tmp_path: Path) -> None:
    """Keys that take most of their length from the one before are counted before they are built."""
    count = 5000
    keys = b"k" * 65000 + b"".join(bytes([1 + number // 200, 1 + number % 200]) for number in range(count - 1))
    body = (
        b"\0"
        + ocdbt.table([])
        + ocdbt.varint(count)
        + ocdbt.varints([65000] + [64998] * (count - 2))
        + ocdbt.varints([65000] + [2] * (count - 1))
    )
    before = peak()
    with pytest.raises(InputError, match="in memory"):
        read(ocdbt.write(tmp_path, body + keys), built_bytes=10**8)
    assert peak() - before < 50_000_000


@pytest.mark.parametrize("count", [10**6, 2**31, 2**62])
def test_counts_beyond_the_node_are_refused(tmp_path: Path, count: int) -> None:
    """A count of entries or files that the node is too short for is refused before anything is built."""
    for body in (b"\0" + ocdbt.varint(count), b"\0" + ocdbt.table([]) + ocdbt.varint(count) + bytes(100)):
        with pytest.raises(InputError, match="decoded byte"):
            read(ocdbt.write(tmp_path, body))


def test_a_tree_that_leads_back_to_itself_is_refused(tmp_path: Path) -> None:
    """A node is read once: a tree cannot grow out of few nodes."""
    good = ocdbt.wrapped(ocdbt.NODE, ocdbt.leaf([("a", b"x")], []))
    body = ocdbt.interior(1, [("a", 0, 0, len(good)), ("b", 0, 0, len(good))], [("", "d/leaf")])
    folder = ocdbt.write(tmp_path, body, height=1)
    (folder / "d" / "leaf").write_bytes(good)
    with pytest.raises(InputError, match="one place in the tree"):
        read(folder)
    with pytest.raises(InputError, match="one place in the tree"):
        read(ocdbt.write(tmp_path, ocdbt.interior(1, [("a", 0, 0, 71)], [("", "d/n")]), height=1))


@pytest.mark.parametrize(("offset", "length"), [(0, 2**62), (2**62, 10), (2**63 - 1, 2**63 - 1), (10**6, 10), (0, 5)])
def test_values_beyond_their_file_are_refused_or_found(tmp_path: Path, offset: int, length: int) -> None:
    """A value that lies beyond its file's end costs nothing: refused, or found."""
    body = ocdbt.leaf([("w/.zarray", json.dumps({**ZARRAY, "shape": [2, 4]}).encode()), ("w/0.0", (0, offset, length))], [("", "d/n")])
    try:
        layout = read(ocdbt.write(tmp_path, body))
    except InputError:
        return
    assert not layout.verify(payload=True).ok


@pytest.mark.parametrize(
    "fault",
    [
        {"zarr_format": 3}, {"shape": [4]}, {"shape": [4, -1]}, {"shape": [2**60, 2**60]}, {"shape": [2**62, 1]}, {"chunks": [0, 4]},
        {"chunks": [2**62, 2**62]}, {"shape": [1] * 33, "chunks": [1] * 33}, {"dtype": "|O"}, {"dtype": "<U4"}, {"dtype": "<f3"},
        {"dtype": [["a", "<f4"]]}, {"dtype": "float99"}, {"order": "K"}, {"filters": [{"id": "delta"}]}, {"compressor": {"id": "pickle"}},
        {"compressor": "zstd"}, {"fill_value": "x"}, {"fill_value": {}}, {"fill_value": [1, 2]}, {"dimension_separator": ":"},
        {"shape": "44"}, {"shape": [True, 2]}, {"shape": [4.0, 6]}, {"chunks": None},
    ],
)  # fmt: skip
def test_hostile_descriptions_are_refused(tmp_path: Path, fault: dict[str, Any]) -> None:
    """An array's description that is of another kind than zarr 2 of numbers is refused, with its name."""
    with pytest.raises(InputError, match=r"w/\.zarray"):
        read(inline(tmp_path, {**ZARRAY, **fault}, {}))


@pytest.mark.parametrize(
    "fault",
    [
        {"node_type": "group"}, {"data_type": "r16"}, {"data_type": {"name": "x"}}, {"chunk_grid": {"name": "rectilinear"}},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}}, {"storage_transformers": [{}]}, {"codecs": []},
        {"codecs": ["bytes"]}, {"codecs": [{"name": "zstd"}]}, {"codecs": [{"name": "bytes"}, {"name": "zstd"}, {"name": "gzip"}]},
        {"codecs": [{"name": "transpose", "configuration": {"order": [0, 0]}}, {"name": "bytes"}]}, {"fill_value": "0xzz"},
        {"codecs": [{"name": "transpose"}]}, {"chunk_key_encoding": {"name": "default", "configuration": {"separator": ".."}}},
    ],
)  # fmt: skip
def test_hostile_descriptions_of_version_3_are_refused(tmp_path: Path, fault: dict[str, Any]) -> None:
    """The same of zarr 3."""
    with pytest.raises(InputError, match=r"w/zarr\.json"):
        read(inline(tmp_path, {**ZARR3, **fault}, {}, "zarr.json"))


@pytest.mark.parametrize(
    ("compressor", "data"),
    [
        ("zstd", ocdbt.rle(7, 2**35)), ("zstd", ocdbt.rle(7, 2**35, 32)), ("zstd", ocdbt.rle(7, 33)), ("zstd", ocdbt.rle(7, 31)),
        ("zstd", b""), ("zstd", b"\x28\xb5\x2f\xfd" + bytes(40)),
        # no time of day in the bytes, which are the name of the test: each process must collect the same names
        ("gzip", gzip.compress(bytes(10**6), mtime=0)), ("gzip", gzip.compress(bytes(31), mtime=0)),
        ("zlib", b"x\x9c"), ("bz2", bz2.compress(bytes(10**6))), ("bz2", b"BZh9"), ("blosc", bytes(16)),
        ("blosc", b"\2\1\x21\4" + (2**31 - 1).to_bytes(4, "little") * 2 + bytes(8)), ("blosc", b""),
    ],
)  # fmt: skip
def test_chunks_of_another_size_are_refused_in_little_memory(tmp_path: Path, compressor: str, data: bytes) -> None:
    """A chunk that expands to more or less than its shape is found, and never expanded beyond it."""
    layout = read(inline(tmp_path, {**ZARRAY, "shape": [2, 4], "compressor": {"id": compressor}}, {"0.0": data}))
    before = peak()
    assert ["unreadable payload"] == [each.kind for each in layout.verify(payload=True)]
    assert peak() - before < 50_000_000


def test_a_chunk_above_the_cap_is_found(tmp_path: Path) -> None:
    """A chunk that would take more memory than the cap is not decoded."""
    document = {**ZARRAY, "shape": [2**20, 2**12], "chunks": [2**20, 2**12], "compressor": {"id": "zstd"}}
    layout = read(inline(tmp_path, document, {"0.0": ocdbt.rle(0, 2**34)}))
    assert "at most 2,147,483,648 byte" in layout.verify(payload=True).findings[0].message


@pytest.mark.parametrize("size", [0, 1, 1000, 10**6])
def test_zstd_frames_that_do_not_state_their_length_are_read_exactly(size: int) -> None:
    """How much a frame holds is found although it does not say so."""
    frame = ocdbt.rle(0, size)
    assert bytes(size) == unzstd(frame, 10**7, "x") == expanded("zstd", frame, size, "x")


def test_checksums_are_checked() -> None:
    """Short and long data pass with their CRC-32C and are refused with another."""
    for data in (b"", b"123456789", bytes(range(256)) * 9):
        good = data + ocdbt.crc32c(data).to_bytes(4, "little")
        assert data == checked(good, "x")
        with pytest.raises(InputError):
            checked(good[:-1] + bytes([good[-1] ^ 1]), "x")


def sharded(mesh: list[int], partition: list[str]) -> str:
    """The sharding of one array over a mesh of one axis."""
    inner = {"sharding_type": "NamedSharding", "shape": mesh, "axis_names": ["a"], "partition_spec": partition}
    return json.dumps({"YQ==": json.dumps(inner)})


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("_METADATA", "[]"), ("_METADATA", '{"tree_metadata": {"a": 1}}'), ("_METADATA", '{"use_ocdbt": 1}'), ("_METADATA", "{"),
        ("_METADATA", '{"tree_metadata": {"a": {"key_metadata": [{"jey": 1}], "value_metadata": {"value_type": "scalar"}}}}'),
        ("_sharding", '{"!": "{}"}'), ("_sharding", '{"YQ==": "{"}'), ("_sharding", '{"YQ==": {}}'), ("_sharding", '{"YQ==": "{}"}'),
        ("_sharding", '{"/w==": "null"}'), ("array_metadatas/process_0", '{"array_metadatas": [1]}'),
        ("_sharding", sharded([0], [])),
        ("_sharding", sharded([2], ["b"])),
        ("_sharding", sharded([2], ["a", "a"])),
    ],
)  # fmt: skip
def test_hostile_documents_are_refused(copied: Any, file: str, text: str) -> None:
    """A document that is not what it should be is refused, with its name."""
    root = copied(TWO)
    (root / file).write_text(text)
    with pytest.raises(InputError, match=f"^{file}"):
        read(root)


# ---------------------------------------------------------------- fuzzing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def check(path: Path) -> None:
    """Nothing but an InputError comes out of reading, checking and reassembling."""
    try:
        layout = read(path, built_bytes=2**26, json_bytes=2**22, fragments=20_000)
        layout.verify(payload=True)
    except InputError:
        return
    for tensor in layout.tensors:
        if tensor.bytes < 2**22:
            try:
                layout.reassemble(tensor.name)
            except InputError:
                continue


def sample_files() -> list[tuple[str, str]]:
    return [
        (name, str(path.relative_to(DATA / name / "ckpt")))
        for name in SAMPLES for path in sorted((DATA / name / "ckpt").rglob("*")) if path.is_file() and path.name != "commit_success.txt"
    ]  # fmt: skip


FILES = sample_files()
OTHERS = tuple((DATA / name / "ckpt" / file).read_bytes() for name, file in FILES[::7])
BODY = ocdbt.leaf(
    [("v/c/0/0", ocdbt.rle(1, 20) * 2), ("v/c/0/1", (0, 3, 20)), ("v/zarr.json", json.dumps(ZARR3).encode()),
     ("w/.zarray", json.dumps(ZARRAY).encode()), ("w/0.0", bytes(32)), ("w/0.1", (1, 0, 32))],
    [("", "d/n"), ("ocdbt.process_0/", "d/y")],
)  # fmt: skip


def mutate_a_file(folder: Path, data: st.DataObject) -> None:
    name, file = data.draw(st.sampled_from(FILES))
    root = folder / name
    if not root.exists():
        shutil.copytree(DATA / name / "ckpt", root)
    good = (DATA / name / "ckpt" / file).read_bytes()
    (root / file).write_bytes(data.draw(mutated(good, OTHERS)))
    try:
        check(root)
    finally:
        (root / file).write_bytes(good)


def mutate_a_description(folder: Path, data: st.DataObject) -> None:
    chunk = data.draw(st.sampled_from([bytes(32), bytes(64), ocdbt.rle(1, 32), ocdbt.rle(1, 64)]))
    if data.draw(st.booleans()):
        check(inline(folder / "two", data.draw(changed(ZARRAY)), {"0.0": chunk, "0.1": chunk}))
    else:
        check(inline(folder / "three", data.draw(changed(ZARR3)), {"c/0/0": chunk, "c/0/1": chunk}, "zarr.json"))


FEW = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=LONG_RUN, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@FEW
@given(data=st.data())
def test_mutated_files_are_refused_or_read(folder: Path, data: st.DataObject) -> None:
    """Whatever changes in a file, only an InputError comes out."""
    mutate_a_file(folder, data)


@FEW
@given(body=mutated(BODY))
def test_mutated_nodes_are_refused_or_read(folder: Path, body: bytes) -> None:
    """The same of a node whose checksum is right."""
    check(ocdbt.write(folder / "node", body))


@FEW
@given(data=st.data())
def test_changed_descriptions_are_refused_or_read(folder: Path, data: st.DataObject) -> None:
    """The same of an array's description with other values in it."""
    mutate_a_description(folder, data)


@pytest.mark.slow
@pytest.mark.long
@MANY
@given(data=st.data(), body=mutated(BODY))
def test_many_mutations_are_refused_or_read(folder: Path, data: st.DataObject, body: bytes) -> None:
    """The long run, of all three."""
    change = data.draw(st.integers(0, 2))
    if change == 0:
        mutate_a_file(folder, data)
    elif change == 1:
        check(ocdbt.write(folder / "node", body))
    else:
        mutate_a_description(folder, data)
