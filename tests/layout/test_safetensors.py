"""Safetensors: one file, folders, Hugging Face's index, PyTorch's shard files."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize

from mlsysim.errors import InputError
from mlsysim.layout import CheckpointLayout, Limits, read_checkpoint
from mlsysim.layout.safetensors_header import DTYPES, elements, packed, read_header
from tests.layout.cases import file_bytes
from tests.layout.fuzzing import LONG_RUN, mutated
from tests.layout.truth import check_against_truth

DATA = Path(__file__).parents[1] / "data"
FILES = json.loads((DATA / "safetensors" / "truth.json").read_text())
SHARDED = DATA / "dcp" / "hf_sharded_4ranks"
INDEXED = DATA / "dcp" / "hf_rank0_full"
INDEX = "model.safetensors.index.json"


def read(path: Path, **limits: int) -> CheckpointLayout:
    """The layout at a path, its format known by its files."""
    return read_checkpoint(path, limits=Limits(**limits))


def kinds(layout: CheckpointLayout) -> set[str]:
    return {each.kind for each in layout.verify(payload=True)}


def raw(header: bytes | dict[str, Any], data: bytes = b"\0" * 8, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def write_index(folder: Path, files: dict[str, dict[str, Any]], total: object = None, weight_map: dict[str, str] | None = None) -> Path:
    """Files of tensors, and their index."""
    for name, tensors in files.items():
        (folder / name).write_bytes(file_bytes(tensors))
    told = {tensor: name for name, tensors in files.items() for tensor in tensors} if weight_map is None else weight_map
    size = sum(len(each[2]) for tensors in files.values() for each in tensors.values()) if total is None else total
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": told}))
    return folder


def vector(count: int, first: int = 0) -> tuple[str, list[int], bytes]:
    return "float32", [count], np.arange(first, first + count, dtype=np.float32).tobytes()


@pytest.mark.parametrize("name", FILES)
def test_each_sample_has_its_verdict(name: str) -> None:
    """Good files read to their truth; bad ones are refused, each with its own name."""
    path = DATA / "safetensors" / name
    if FILES[name]["expected"] == "refused":
        with pytest.raises(InputError, match=name):
            read(path)
        return
    layout = read(path)
    check_against_truth(layout, FILES[name])
    assert FILES[name]["layout"]["metadata"] == layout.details["metadata"][name]
    assert FILES[name]["layout"]["header_bytes"] == layout.details["header_bytes"][name]
    assert not list(layout.verify(payload=True))


@pytest.mark.parametrize("folder", [SHARDED, INDEXED], ids=lambda each: each.name)
def test_pytorchs_safetensors_read_to_their_truth(folder: Path) -> None:
    """Shard files with a rank each, and whole tensors with an index."""
    layout = read(folder / "ckpt")
    check_against_truth(layout, json.loads((folder / "truth.json").read_text()))
    assert not list(layout.verify(payload=True))


def test_an_index_file_and_its_folder_are_the_same_checkpoint() -> None:
    """The path may be the folder or the index."""
    one, two = read(INDEXED / "ckpt"), read(INDEXED / "ckpt" / INDEX)
    assert (one.format, one.tensors, one.files, one.metadata_files) == (two.format, two.tensors, two.files, two.metadata_files)


def test_files_that_the_index_does_not_name_are_left_out_and_said(tmp_path: Path) -> None:
    """A file beside the index is no part of the checkpoint; a note names it."""
    write_index(tmp_path, {"a.safetensors": {"w": vector(2)}})
    (tmp_path / "consolidated.safetensors").write_bytes(file_bytes({"w": vector(2)}))
    layout = read(tmp_path)
    assert ("a.safetensors",) == layout.files
    assert "consolidated.safetensors" in layout.notes[1]


def test_a_folder_without_an_index_is_read_as_a_whole(tmp_path: Path) -> None:
    """Several files without an index are one checkpoint; nobody says the rank."""
    for number in (1, 2):
        (tmp_path / f"model-{number}.safetensors").write_bytes(file_bytes({f"w{number}": vector(3, number)}))
    layout = read(tmp_path)
    assert ("safetensors", None, ("w1", "w2")) == (layout.format, layout.ranks, tuple(each.name for each in layout.tensors))
    assert [2.0, 3.0, 4.0] == layout.reassemble("w2").tolist()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_element_type_of_the_library_is_read(dtype: str, tmp_path: Path) -> None:
    """24 byte of each element type are as many elements as the library says, and pack to the same bytes."""
    bits = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}.get(dtype) or 8 * np.dtype(getattr(ml_dtypes, DTYPES[dtype], DTYPES[dtype])).itemsize
    body = bytes(range(24)) if dtype != "BOOL" else bytes([0, 1] * 12)
    data = file_bytes({"a": (dtype, [24 * 8 // bits], body)})
    ((_, told),) = deserialize(data)
    (tmp_path / "a.safetensors").write_bytes(data)
    layout = read(tmp_path / "a.safetensors")
    assert told["shape"] == list(layout.tensors[0].global_shape)
    assert body == packed(layout.reassemble("a"), layout.tensors[0].dtype).tobytes()


def test_small_floats_are_unpacked_from_the_low_bits() -> None:
    """Two elements of four bits are in a byte, the first in its low half; four of six bits in three bytes."""
    four = elements(np.array([0x21, 0xF4], np.uint8), "float4_e2m1fn", (4,), "x")
    assert [0.5, 1.0, 2.0, -6.0] == four.astype(np.float32).tolist()
    six = elements(np.array([0b10000001, 0b00110000, 0b00010000], np.uint8), "float6_e2m3fn", (4,), "x")
    assert [1, 2, 3, 4] == six.view(np.uint8).tolist()


def test_pytorchs_unpadded_header_is_read(tmp_path: Path) -> None:
    """PyTorch's consolidation does not pad the header to 8 byte: data then lie at odd places."""
    text = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    assert len(text) % 8
    (tmp_path / "w.safetensors").write_bytes(raw(text, np.array([1, 2], np.float32).tobytes()))
    assert [1.0, 2.0] == read(tmp_path / "w.safetensors").reassemble("w").tolist()


def test_odd_tensors_are_read(tmp_path: Path) -> None:
    """Scalars, tensors without elements, and any name are fine."""
    tensors = {
        "": ("float32", [], b"\0\0\x80?"), "слой\n\"0\"/..": vector(2), "\0": ("bfloat16", [3, 0, 9], b""), "😀": ("int64", [0], b""),
    }  # fmt: skip
    (tmp_path / "w.safetensors").write_bytes(file_bytes(tensors))
    layout = read(tmp_path / "w.safetensors")
    assert sorted(tensors) == [each.name for each in layout.tensors]
    assert 1.0 == layout.reassemble("")
    assert (3, 0, 9) == layout.reassemble("\0").shape
    assert not list(layout.verify(payload=True))


def test_the_payload_is_not_read(tmp_path: Path) -> None:
    """Reading a layout looks at headers only: with other payload, or with the payload cut off, the columns are the same."""
    shutil.copytree(SHARDED / "ckpt", tmp_path / "c")
    good = read(tmp_path / "c")
    for path in (tmp_path / "c").iterdir():
        data = path.read_bytes()
        path.write_bytes(data[: 8 + struct.unpack("<Q", data[:8])[0]])
    cut = read(tmp_path / "c")
    assert good.tensors == cut.tensors
    assert (good.fragments.file_offset == cut.fragments.file_offset).all()
    assert {"file short"} == kinds(cut)


# --- the reference library as an oracle ------------------------------------------------------------------------------------

ENTRY = b'{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
HEADERS = {
    "leading space": b' \t\r\n{"a":' + ENTRY + b"}",
    "trailing space": b'{"a":' + ENTRY + b"} \t\r\n",
    "trailing zero": b'{"a":' + ENTRY + b"}\0",
    "entry as a list": b'{"a":["F32",[2],[0,8]]}',
    "entry as a short list": b'{"a":["F32",[2]]}',
    "element type as an object": b'{"a":{"dtype":{"F32":null},"shape":[2],"data_offsets":[0,8]}}',
    "unknown key": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":[{}]}}',
    "unknown key not finite": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1e999}}',
    "unknown key half a pair": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":"\\ud800"}}',
    "shape twice": b'{"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}',
    "shape of floats": b'{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}',
    "shape true": b'{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,8]}}',
    "shape null": b'{"a":{"dtype":"F32","shape":null,"data_offsets":[0,8]}}',
    "shape not there": b'{"a":{"dtype":"F32","data_offsets":[0,8]}}',
    "minus zero": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[-0,8]}}',
    "three offsets": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}}',
    "one offset": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}}',
    "offsets backwards": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}',
    "offsets as an object": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":{"0":0,"1":8}}}',
    "small letters": b'{"a":{"dtype":"f32","shape":[2],"data_offsets":[0,8]}}',
    "no element type": b'{"a":{"dtype":null,"shape":[2],"data_offsets":[0,8]}}',
    "half byte": b'{"a":{"dtype":"F4","shape":[15],"data_offsets":[0,8]}}',
    "half bytes": b'{"a":{"dtype":"F4","shape":[16],"data_offsets":[0,8]}}',
    "metadata null": b'{"__metadata__":null,"a":' + ENTRY + b"}",
    "metadata list": b'{"__metadata__":[],"a":' + ENTRY + b"}",
    "metadata of null": b'{"__metadata__":{"b":null},"a":' + ENTRY + b"}",
    "metadata twice": b'{"__metadata__":{},"__metadata__":{},"a":' + ENTRY + b"}",
    "empty before": b'{"a":' + ENTRY + b',"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}',
    "empty after": b'{"a":' + ENTRY + b',"b":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}}',
    "empty inside": b'{"a":' + ENTRY + b',"b":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}',
    "empty beyond": b'{"a":' + ENTRY + b',"b":{"dtype":"F32","shape":[0],"data_offsets":[9,9]}}',
    "overflow before a zero": b'{"a":' + ENTRY + b',"b":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[8,8]}}',
    "zero before an overflow": b'{"a":' + ENTRY + b',"b":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[8,8]}}',
    "overflow of bits": b'{"a":' + ENTRY + b',"b":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[8,8]}}',
    "overflow to zero": b'{"a":' + ENTRY + b',"b":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[8,8]}}',
    "null": b"null",
    "list": b"[null,{}]",
    "nothing": b"",
    "byte order mark": b'\xef\xbb\xbf{"a":' + ENTRY + b"}",
    "no utf-8": b'{"\xff":' + ENTRY + b"}",
    "surrogate in utf-8": b'{"\xed\xa0\x80":' + ENTRY + b"}",
    "half a pair": b'{"\\ud800":' + ENTRY + b"}",
    "a pair": b'{"\\ud83d\\ude00":' + ENTRY + b"}",
    "trailing comma": b'{"a":' + ENTRY + b",}",
}


def library_accepts(data: bytes) -> bool:
    try:
        deserialize(data)
    except SafetensorError:
        return False
    return True


def ours_accepts(path: Path, data: bytes) -> tuple[bool, str]:
    path.write_bytes(data)
    try:
        read(path)
    except InputError as error:
        return False, str(error)
    return True, ""


@pytest.mark.parametrize("name", HEADERS)
def test_our_verdict_is_the_librarys(name: str, tmp_path: Path) -> None:
    """What the library takes we take, and what it refuses we refuse."""
    data = raw(HEADERS[name])
    assert library_accepts(data) == ours_accepts(tmp_path / "x.safetensors", data)[0]


STRICTER = {
    "identical duplicate key": b'{"a":' + ENTRY + b',"a":' + ENTRY + b"}",
    "unknown key twice": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"b":1,"b":1}}',
    "beyond 63 bits": b'{"a":' + ENTRY + b',"b":{"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[8,8]}}',
    "beyond 64 axes": b'{"a":{"dtype":"F32","shape":[2' + b",1" * 64 + b'],"data_offsets":[0,8]}}',
    "beyond 100 levels": b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"b":' + b"[" * 110 + b"]" * 110 + b"}}",
}


@pytest.mark.parametrize("name", STRICTER)
def test_we_are_stricter_than_the_library_in_five_things(name: str, tmp_path: Path) -> None:
    """The library reads these; we refuse them."""
    data = raw(STRICTER[name])
    assert (True, False) == (library_accepts(data), ours_accepts(tmp_path / "x.safetensors", data)[0])


@pytest.mark.parametrize("length", [0, 1, 7, 8, 55, 10**6, 100_000_000, 100_000_001, 2**63, 2**64 - 1])
def test_header_lengths_have_the_librarys_verdict(length: int, tmp_path: Path) -> None:
    """A length beyond the file or beyond 100 MB is refused; so is a header cut short."""
    data = raw({"a": json.loads(ENTRY)}, length=length)
    assert library_accepts(data) == ours_accepts(tmp_path / "x.safetensors", data)[0]
    assert not library_accepts(data[:7])
    assert not ours_accepts(tmp_path / "x.safetensors", data[:7])[0]


def test_a_header_over_the_cap_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A header of 100,000,001 byte is refused though the file has them; the file is sparse, and never read."""
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 100_000_001))
        file.truncate(2**33)
    with pytest.raises(InputError, match=r"x\.safetensors: header must be at most 100,000,000 byte"):
        read(path)


GOOD = file_bytes({"a": vector(3), "b.c": ("bfloat16", [2, 2], b"12345678"), "e": ("float32", [0, 4], b""), "f": ("F4", [4], b"ab")},
                  {"format": "pt"})  # fmt: skip
OTHERS = tuple(path.read_bytes() for path in sorted((DATA / "safetensors").glob("*.safetensors")))


def excused(data: bytes) -> bool:
    """Whether we are stricter here than the library, knowingly."""
    text = data[8 : 8 + struct.unpack("<Q", data[:8])[0]] if len(data) >= 8 else b""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    try:
        json.loads(text, object_pairs_hook=once, parse_int=lambda digits: np.int64(int(digits)))
    except (AssertionError, OverflowError):
        return True
    return text.count(b"[") > 64 or text.count(b",") > 64


def check_verdict(path: Path, data: bytes) -> None:
    accepted, why = ours_accepts(path, data)
    if accepted != library_accepts(data):
        assert not accepted, "the library refuses it"
        assert excused(data), why
    if accepted:
        layout = read(path)
        assert layout.verify(payload=True).ok
        for each in layout.tensors:
            layout.reassemble(each.name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=mutated(GOOD, OTHERS))
def test_mutated_files_have_the_librarys_verdict(folder: Path, data: bytes) -> None:
    """A mutated file is refused with an InputError where the library refuses it, and read where the library reads it."""
    check_verdict(folder / "x.safetensors", data)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=mutated(GOOD[8:], tuple(each[8:] for each in OTHERS)), length=st.none() | st.integers(0, 400))
def test_mutated_headers_have_the_librarys_verdict(folder: Path, data: bytes, length: int | None) -> None:
    """As above, where the length of the header was mended after the mutation."""
    body = 22
    text, tail = (data[:-body], data[-body:]) if length is None else (data[:length], data[length:])
    check_verdict(folder / "x.safetensors", raw(text, tail))


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=LONG_RUN, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=mutated(GOOD[8:], tuple(each[8:] for each in OTHERS)))
def test_many_mutated_headers_have_the_librarys_verdict(folder: Path, data: bytes) -> None:
    """The long run."""
    check_verdict(folder / "x.safetensors", raw(data[:-22], data[-22:]))


# --- single faults of several files ----------------------------------------------------------------------------------------


def test_a_file_that_is_missing_is_a_finding(tmp_path: Path) -> None:
    """The layout still reads; the file and the tensors that were in it are named."""
    shutil.copytree(INDEXED / "ckpt", tmp_path / "c")
    lost = "model-00001-of-00002.safetensors"
    (tmp_path / "c" / lost).unlink()
    report = read(tmp_path / "c").verify()
    assert [lost] == [each.file for each in report.of_kind("file missing")]
    assert {"rope", "embed.weight", "layers.0.norm.weight", "layers.0.norm.bias", "layers.0.up.weight"} == {
        each.tensor for each in report.of_kind("missing tensor")
    }
    assert not report.ok


def test_a_shard_file_that_is_missing_names_its_rank(tmp_path: Path) -> None:
    """The rank whose file is gone is named, and so are the holes that it leaves."""
    shutil.copytree(SHARDED / "ckpt", tmp_path / "c")
    (tmp_path / "c" / "shard-00002-model-00001-of-00001.safetensors").unlink()
    report = read(tmp_path / "c").verify()
    assert [1] == [each.rank for each in report.of_kind("missing rank")]
    assert "embed.weight" in {each.tensor for each in report.of_kind("hole")}


@pytest.mark.parametrize("cut", [1, 800, 5840, 5848])
def test_a_shard_file_that_is_cut_names_its_rank(cut: int, tmp_path: Path) -> None:
    """Cut in its last tensor, in the middle, in its header, or to nothing: the file and its rank are named."""
    shutil.copytree(SHARDED / "ckpt", tmp_path / "c")
    path = tmp_path / "c" / "shard-00002-model-00001-of-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-cut])
    (found,) = read(tmp_path / "c").verify().of_kind("file short")
    assert (1, path.name) == (found.rank, found.file)


def test_bytes_after_the_last_tensor_of_a_shard_are_found(tmp_path: Path) -> None:
    """Bytes that no tensor claims are named with file and rank."""
    shutil.copytree(SHARDED / "ckpt", tmp_path / "c")
    path = tmp_path / "c" / "shard-00003-model-00001-of-00001.safetensors"
    path.write_bytes(path.read_bytes() + b"more")
    (found,) = read(tmp_path / "c").verify().of_kind("unclaimed bytes")
    assert (2, path.name) == (found.rank, found.file)


def test_a_tensor_listed_but_not_in_its_file_is_found(tmp_path: Path) -> None:
    """The index names a tensor and a file, and the file does not have it."""
    write_index(tmp_path, {"a.safetensors": {"w": vector(2)}}, weight_map={"w": "a.safetensors", "v": "a.safetensors"})
    (found,) = read(tmp_path).verify()
    assert ("missing tensor", "v", "a.safetensors") == (found.kind, found.tensor, found.file)


def test_a_tensor_in_two_files_is_found(tmp_path: Path) -> None:
    """The same name in two files of an index is an overlap."""
    files = {"a.safetensors": {"w": vector(2)}, "b.safetensors": {"w": vector(2), "v": vector(1)}}
    write_index(tmp_path, files, total=12, weight_map={"w": "a.safetensors", "v": "b.safetensors"})
    report = read(tmp_path).verify()
    assert {"overlap", "unclaimed bytes"} == {each.kind for each in report}
    assert {"w"} == {each.tensor for each in report}
    assert [0.0, 1.0] == read(tmp_path).reassemble("w").tolist()


def test_a_tensor_that_the_index_puts_in_another_file_is_found(tmp_path: Path) -> None:
    """The tensor is in one file, the index says another."""
    write_index(tmp_path, {"a.safetensors": {"w": vector(2)}, "b.safetensors": {"v": vector(1)}},
                weight_map={"w": "b.safetensors", "v": "b.safetensors", "u": "a.safetensors"})  # fmt: skip
    report = read(tmp_path).verify()
    assert {"w", "u"} == {each.tensor for each in report.of_kind("missing tensor")}
    assert ["w"] == [each.tensor for each in report.of_kind("unclaimed bytes")]


@pytest.mark.parametrize("total", [7, 8.5, True, "8", -1])
def test_a_total_size_that_is_wrong_is_found(total: object, tmp_path: Path) -> None:
    """total_size is the tensors' bytes, headers not counted."""
    write_index(tmp_path, {"a.safetensors": {"w": vector(2)}}, total=total)
    (found,) = read(tmp_path).verify()
    assert ("byte count differs", INDEX) == (found.kind, found.file)


@pytest.mark.parametrize(("second", "kind"), [(vector(3), "shape differs"), (("int32", [2], b"\0" * 8), "dtype differs")])
def test_files_that_contradict_each_other_are_found(second: Any, kind: str, tmp_path: Path) -> None:
    """One name, two shapes or two element types."""
    for name, tensor in (("a", vector(2)), ("b", second)):
        (tmp_path / f"{name}.safetensors").write_bytes(file_bytes({"w": tensor}))
    (found,) = read(tmp_path).verify()
    assert (kind, "w", "b.safetensors") == (found.kind, found.tensor, found.file)


def write_shards(folder: Path, shards: dict[int, dict[str, tuple[Any, list[int]]]]) -> Path:
    """Shard files of tensors and their offsets."""
    for rank, tensors in shards.items():
        info = json.dumps({name: {"saved_offsets": offset} for name, (_, offset) in tensors.items()})
        data = file_bytes({name: tensor for name, (tensor, _) in tensors.items()}, {"DCP_SHARDING_INFO": info, "DCP_VERSION": "1.0"})
        (folder / f"shard-{rank + 1:05}-model-00001-of-00001.safetensors").write_bytes(data)
    return folder


def test_shards_along_two_axes_are_put_together(tmp_path: Path) -> None:
    """The global shape is the largest offset and size; bf16, a scalar and an uneven last shard included."""
    whole = np.arange(15).reshape(3, 5).astype(ml_dtypes.bfloat16)
    parts = {rank: (slice(2 * (rank // 2), 2 * (rank // 2) + 2), slice(3 * (rank % 2), 3 * (rank % 2) + 3)) for rank in range(4)}
    shards: dict[int, dict[str, Any]] = {
        rank: {"w": (("bfloat16", list(whole[part].shape), whole[part].tobytes()), [part[0].start, part[1].start])}
        for rank, part in parts.items()
    }
    shards[3]["step"] = (("int64", [], (7).to_bytes(8, "little")), [])
    layout = read(write_shards(tmp_path, shards))
    assert (4, ["step", "w"]) == (layout.ranks, [each.name for each in layout.tensors])
    assert whole.tobytes() == layout.reassemble("w").tobytes()
    assert 7 == layout.reassemble("step")
    assert [12.0, 8.0, 6.0, 12.0] == layout.bytes_per_rank.base.tolist()
    assert not list(layout.verify(payload=True))


def test_an_overlap_of_shards_is_found(tmp_path: Path) -> None:
    """Two shards that share elements are named."""
    layout = read(write_shards(tmp_path, {0: {"w": (vector(3), [0])}, 1: {"w": (vector(3), [2])}}))
    (found,) = layout.verify()
    assert ("overlap", "w") == (found.kind, found.tensor)


@pytest.mark.parametrize(
    "info",
    ["[]", "{", '{"w": 1}', '{"w": {}}', '{"w": {"saved_offsets": [0, 0]}}', '{"w": {"saved_offsets": [-1]}}',
     '{"w": {"saved_offsets": ["0"]}}', '{"w": {"saved_offsets": [9223372036854775807]}}', '{"w": {"saved_offsets": [0]}, "w": {}}'],
)  # fmt: skip
def test_hostile_sharding_info_is_refused(info: str, tmp_path: Path) -> None:
    """The offsets are checked, and the error names file and place."""
    data = file_bytes({"w": vector(2)}, {"DCP_SHARDING_INFO": info})
    (tmp_path / "shard-00001-model-00001-of-00001.safetensors").write_bytes(data)
    with pytest.raises(InputError, match=r"shard-00001.*: header\.__metadata__\.DCP_SHARDING_INFO"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/passwd", "a/../../b", "", "a\0b", "C:\\a", "link.safetensors", "loop"])
def test_paths_that_lead_out_are_refused(name: str, tmp_path: Path) -> None:
    """An index may not name a file outside its folder, nor a link that leads there."""
    folder = tmp_path / "c"
    folder.mkdir()
    (tmp_path / "a.safetensors").write_bytes(file_bytes({"w": vector(2)}))
    (folder / "link.safetensors").symlink_to(tmp_path / "a.safetensors")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / INDEX).write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(InputError, match="a path"):
        read(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {"w": 1}}', '{"weight_map": {}, "metadata": 1}'])
def test_an_index_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    """The index is an object with a weight_map of texts."""
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(InputError, match=INDEX):
        read(tmp_path)


def test_every_byte_is_read_when_the_payload_is_verified(tmp_path: Path) -> None:
    """A file without digests is read to its end; one that was cut since the layout was read is found."""
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw({"w": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}))
    layout = read(path)
    told: list[int] = []
    assert layout.verify(payload=True, advance=told.append).ok
    assert path.stat().st_size == sum(told)
    path.write_bytes(path.read_bytes()[:-1])
    assert ["a.safetensors"] == [each.file for each in layout.verify(payload=True).of_kind("unreadable payload")]


def test_many_axes_of_one_tensor_count_for_all(tmp_path: Path) -> None:
    """The columns have as many axes as the widest tensor; what they take is capped."""
    entries = {f"t{number}": {"dtype": "U8", "shape": [], "data_offsets": [number, number + 1]} for number in range(100)}
    entries["wide"] = {"dtype": "U8", "shape": [1] * 64, "data_offsets": [100, 101]}
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(entries, bytes(101)))
    with pytest.raises(InputError, match="fragments"):
        read(path, built_bytes=100_000)
    assert 101 == len(read(path).fragments)


def test_a_tensor_cut_off_after_reading_is_refused(tmp_path: Path) -> None:
    """A file that became shorter since the layout was read is an InputError, not a crash."""
    path = tmp_path / "a.safetensors"
    path.write_bytes(file_bytes({"w": vector(2)}))
    layout = read(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"a\.safetensors"):
        layout.reassemble("w")


INDEX_TEXT = (INDEXED / "ckpt" / INDEX).read_bytes()


def verify_index(folder: Path, data: bytes) -> None:
    here = folder / "index"
    if not here.exists():
        shutil.copytree(INDEXED / "ckpt", here)
    (here / INDEX).write_bytes(data)
    with contextlib.suppress(InputError):
        layout = read(here)
        assert layout.verify(payload=True).payload


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=mutated(INDEX_TEXT))
def test_a_mutated_index_is_refused_or_verified(folder: Path, data: bytes) -> None:
    """Only InputError comes out."""
    verify_index(folder, data)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=LONG_RUN, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=mutated(INDEX_TEXT))
def test_many_mutated_indexes_are_refused_or_verified(folder: Path, data: bytes) -> None:
    """The long run."""
    verify_index(folder, data)


SHARD = "shard-00002-model-00001-of-00001.safetensors"
SHARD_BYTES = (SHARDED / "ckpt" / SHARD).read_bytes()
SHARD_HEADER, SHARD_DATA = SHARD_BYTES[8:1624], SHARD_BYTES[1624:]
OTHER_SHARD = (SHARDED / "ckpt" / SHARD.replace("2", "1", 1)).read_bytes()


def verify_shards(folder: Path, header: bytes) -> None:
    here = folder / "shards"
    if not here.exists():
        shutil.copytree(SHARDED / "ckpt", here)
    (here / SHARD).write_bytes(raw(header, SHARD_DATA))
    try:
        layout = read(here)
    except InputError:
        return
    assert layout.verify(payload=True).payload
    for each in layout.tensors:
        with contextlib.suppress(InputError):
            layout.reassemble(each.name)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=mutated(SHARD_HEADER, (OTHER_SHARD,)))
def test_a_mutated_shard_is_refused_or_verified(folder: Path, data: bytes) -> None:
    """Only InputError comes out of reading and reassembling; verify never raises."""
    verify_shards(folder, data)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=LONG_RUN, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=mutated(SHARD_HEADER, (OTHER_SHARD,)))
def test_many_mutated_shards_are_refused_or_verified(folder: Path, data: bytes) -> None:
    """The long run."""
    verify_shards(folder, data)


def test_thousands_of_tensors_are_read(tmp_path: Path) -> None:
    """3,411 tensors, as a model of 405 thousand million parameters has, read to as many."""
    path = tmp_path / "big.safetensors"
    path.write_bytes(file_bytes({f"model.layers.{number}.mlp.weight": vector(1, number) for number in range(3411)}))
    header = read_header(path, path.name, Limits())
    assert 3411 == len(header.names) == len(read(path).tensors)
