"""What torch.save writes: tensors are found by their place in the file, and odd archives are refused."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlsysim.errors import InputError
from mlsysim.layout.limits import Limits
from mlsysim.layout.pickles import Inert, Name
from mlsysim.layout.torch_zip import StoredTensor, TorchArchive, read_torch, torch_name
from tests.layout.fuzzing import LONG_RUN, mutated
from tests.layout.torch_files import Global, Object, dumped, saved, saved_array, tensor, zipped

DATA = Path(__file__).parents[1] / "data"
COMMON = DATA / "megatron" / "plain" / "iter_0000010" / "common.pt"
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "complex64",
    "complex128", *(np.dtype(getattr(ml_dtypes, name)) for name in (
        "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")),
]  # fmt: skip


def read(data: bytes, **limits: int) -> TorchArchive:
    return read_torch(io.BytesIO(data), place="a.pt", limits=Limits(**limits))


def array_in(tmp_path: Path, data: bytes) -> np.ndarray[Any, Any]:
    path = tmp_path / "a.pt"
    path.write_bytes(data)
    archive = read(data)
    assert type(archive.value) is StoredTensor
    return archive.array(path, archive.value)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (), (0,), (2, 0, 3), (5,)])
def test_an_array_comes_back(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    """Every element type and shape is found again, byte for byte."""
    raw = np.random.default_rng(1).integers(0, 2, (*shape, np.dtype(dtype).itemsize), np.uint8)
    array = raw.view(dtype).reshape(shape)
    found = array_in(tmp_path, saved_array(array))
    assert (array.dtype, array.shape, array.tobytes()) == (found.dtype, found.shape, found.tobytes())


def test_a_view_of_a_storage_comes_back(tmp_path: Path) -> None:
    """A transposed part of a storage is read by its strides."""
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    view = whole[1:3, 2:5].T
    told = tensor(view, elements=24, offset=8)
    assert view.tolist() == array_in(tmp_path, saved(told, {"0": whole.tobytes()})).tolist()


@pytest.mark.parametrize("dtype", ["int16", "float64", "complex64", "uint8"])
def test_big_endian_elements_are_turned(tmp_path: Path, dtype: str) -> None:
    """An archive of a big-endian machine gives the same numbers."""
    array = (np.arange(6) * 1.5).astype(dtype)
    data = saved(tensor(array), {"0": array.astype(array.dtype.newbyteorder(">")).tobytes()}, order="big")
    assert array.tolist() == array_in(tmp_path, data).tolist()


def test_a_part_of_a_file_is_read(tmp_path: Path) -> None:
    """An archive that lies within a file is read where it lies."""
    array = np.arange(5)
    data = saved_array(array)
    path = tmp_path / "a.distcp"
    path.write_bytes(b"before" + data + b"behind")
    with path.open("rb") as file:
        archive = read_torch(file, place="a", limits=Limits(), start=6, length=len(data))
        start, length = archive.span(file, archive.value)
    assert array.tobytes() == path.read_bytes()[start : start + length]
    assert array.tolist() == archive.array(path, archive.value).tolist()


def test_what_is_no_tensor_is_read() -> None:
    """Megatron-core's common.pt is a dict of plain things."""
    with COMMON.open("rb") as file:
        assert {"iteration": 10, "args": {"hidden": 16, "lr": 0.001}} == read_torch(file, place="common.pt", limits=Limits()).value


def test_parameters_and_subclasses_are_the_tensors_they_hold() -> None:
    """A parameter, one with attributes, and a tensor without data each give a tensor."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    inner = tensor(array)
    none = Object(Global("collections", "OrderedDict"), call=True)
    parameter = Object(Global("torch._utils", "_rebuild_parameter"), (inner, True, none), call=True)
    kind = Global("torch.nn.parameter", "Parameter")
    subclass = Global("torch._tensor", "_rebuild_from_type_v2")
    state = Object(subclass, (Global("torch._utils", "_rebuild_parameter"), kind, (inner, True, none), {}), call=True)
    meta = Object(
        Global("torch._utils", "_rebuild_meta_tensor_no_storage"), (Global("torch", "bfloat16"), (2, 3), (3, 1), False), call=True
    )  # fmt: skip
    found = read(saved([parameter, state, meta], {"0": array.tobytes()})).value
    assert [("float32", (2, 3), 24), ("float32", (2, 3), 24), ("bfloat16", (2, 3), 12)] == [(x.dtype, x.shape, x.bytes) for x in found]
    assert found[2].storage is None


def test_other_names_are_refused_or_inert() -> None:
    """A user's class is refused, and an inert object where every name is taken."""
    data = saved(Object(Global("user.code", "Scheduler"), (), {"last": 3}), {})
    with pytest.raises(InputError, match=r"a\.pt: data\.pkl: byte \d+ must be free of names .*; got user\.code Scheduler"):
        read(data)
    found = read_torch(
        io.BytesIO(data), place="a.pt", limits=Limits(), find=lambda module, name: torch_name(module, name) or Name(module, name)
    )
    assert (Inert, {"last": 3}) == (type(found.value), found.value.state)


ARRAY = np.arange(8, dtype=np.float32)
GOOD = saved_array(ARRAY)


def directory(data: bytes, change: Any) -> bytes:
    """An archive with an entry of its directory changed."""
    at = data.index(b"PK\1\2")
    return data[:at] + change(data[at:])


HUGE = struct.pack("<I", 2**31)
BAD = {
    "no zip": b"not a zip" * 10,
    "empty": b"",
    "cut": GOOD[:-1],
    "more behind": GOOD + b"\0",
    "half": GOOD[: len(GOOD) // 2],
    "an old file without a zip": pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + b"." * 40,
    "compressed": zipped({"a/data.pkl": dumped(1, 2)}, zipfile.ZIP_DEFLATED),
    "a compressed bomb": zipped({"a/data.pkl": dumped(1, 2), "a/data/0": b"\0" * 10**6}, zipfile.ZIP_DEFLATED),
    "no pickle": zipped({"a/version": b"3"}),
    "two folders": zipped({"a/data.pkl": dumped(1, 2), "b/data.pkl": dumped(1, 2)}),
    "no folder": zipped({"data.pkl": dumped(1, 2)}),
    "another byte order": saved(tensor(ARRAY), {"0": ARRAY.tobytes()}, order="middle"),
    "a member of 2 GiB": directory(GOOD, lambda part: part[:20] + HUGE + HUGE + part[28:]),
    "a member beyond the file": directory(GOOD, lambda part: part[:42] + HUGE + part[46:]),
    "a directory of 4 thousand million bytes": GOOD[:-10] + b"\xfe\xff\xff\xff" + GOOD[-6:],
    "a directory that begins elsewhere": GOOD[:-6] + b"\x01\0\0\0" + GOOD[-2:],
    "an encrypted member": directory(GOOD, lambda part: part[:8] + b"\1" + part[9:]),
    "a storage that is short": saved(tensor(ARRAY), {"0": b"abc"}),
    "a storage that is not there": saved(tensor(ARRAY, key="7"), {"0": ARRAY.tobytes()}),
    "a tensor beyond its storage": saved_array(ARRAY, offset=1),
    "a tensor of huge strides": saved_array(ARRAY, stride=(2**61,)),
    "a tensor of negative strides": saved_array(ARRAY, stride=(-1,)),
    "a tensor of fewer strides": saved_array(ARRAY, stride=()),
    "a tensor of 100 axes": saved_array(ARRAY, shape=(1,) * 100, stride=(1,) * 100),
    "a shape of booleans": saved_array(ARRAY, shape=(True,)),
    "an unknown storage": saved_array(ARRAY, storage="QInt8Storage"),
    "a storage named to climb": saved_array(ARRAY, key="../x"),
    "an unknown element type": saved_array(ARRAY, storage="UntypedStorage", elements=32, dtype="qint8"),
}


@pytest.mark.parametrize("bad", BAD)
def test_an_odd_archive_is_refused(tmp_path: Path, bad: str) -> None:
    """Reading it, or fetching its tensor, gives an InputError that names the file."""
    with pytest.raises(InputError, match=r"^a\.pt"):
        array_in(tmp_path, BAD[bad])


def test_the_old_form_is_named() -> None:
    """A file without a zip is refused with what to do."""
    with pytest.raises(InputError, match=r"written as a zip; got the old form of torch\.save\. Load it with torch and save it again"):
        read(BAD["an old file without a zip"])


def test_members_are_capped() -> None:
    """More members than the cap are refused before any is looked at."""
    with pytest.raises(InputError, match="at most 3 members; got 4"):
        read(GOOD, members=3)


def test_a_tensor_of_the_same_elements_takes_no_memory(tmp_path: Path) -> None:
    """A thousand million million elements with stride 0 are a view of one."""
    data = saved(tensor(ARRAY, shape=(10**15,), stride=(0,)), {"0": ARRAY.tobytes()})
    assert (10**15,) == array_in(tmp_path, data).shape


def use(data: bytes, folder: Path) -> None:
    """Read an archive and fetch its tensor; InputError is the one way to fail."""
    path = folder / "a.pt"
    path.write_bytes(data)
    try:
        archive = read(data, built_bytes=2**24)
        if type(archive.value) is StoredTensor:
            archive.array(path, archive.value)
    except InputError:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzzed")


SAMPLES = (GOOD, COMMON.read_bytes(), (DATA / "dcp" / "fsdp2_file_per_tensor_4ranks" / "ckpt" / "__1_0.distcp").read_bytes())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.sampled_from(SAMPLES).flatmap(lambda sample: mutated(sample, SAMPLES)))
def test_a_mutated_archive_is_read_or_refused(folder: Path, data: bytes) -> None:
    """Only InputError comes out."""
    use(data, folder)


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=LONG_RUN, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.sampled_from(SAMPLES).flatmap(lambda sample: mutated(sample, SAMPLES)))
def test_many_mutated_archives_are_read_or_refused(folder: Path, data: bytes) -> None:
    """The long run."""
    use(data, folder)
