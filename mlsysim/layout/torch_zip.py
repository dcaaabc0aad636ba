"""What ``torch.save`` writes, read without torch: a zip of stored members, a pickle that says what the tensors are, and raw bytes.

The pickle gives a ``StoredTensor`` for each tensor, so that its bytes are found by their place in the file. Only the zip
directory, the pickle and the members' headers are read; payload is touched by ``array`` alone.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.limits import Limits, opened
from mlsysim.layout.pickles import Inert, Name, common_name, refused, unpickled
from mlsysim.specs.dtypes import numpy_dtype

__all__ = ["Member", "Storage", "StoredTensor", "TorchArchive", "dtype_of", "read_torch", "torch_name"]

_FIX = "Refuse this file, or ask who made it."
_RAISE = "Raise the cap with limits=Limits(...) if you trust it."
_MOST_AXES = 64
# bytes that are read at a time where a member is checked
_STEP = 2**20
_LARGEST = 2**62

# element types by torch's names, where numpy's differs
_STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16", "LongStorage": "int64",
    "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128", "UntypedStorage": "", "_UntypedStorage": "",
}  # fmt: skip
_DTYPES = {
    **{each: each for each in (
        "float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
        "complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")},
    "half": "float16", "float": "float32", "double": "float64", "short": "int16", "int": "int32", "long": "int64",
    "cfloat": "complex64", "cdouble": "complex128",
}  # fmt: skip


@frozen(kw_only=True)
class Member:
    """A member of the zip.

    Parameters
    ----------
    size : int
        Bytes of its content.
    header : int
        Where its own header begins, from the beginning of the zip.
    crc : int
        CRC-32 of its content; 0 where torch was told to leave it out.
    """

    size: int
    header: int
    crc: int = 0


@frozen(kw_only=True)
class Storage:
    """A run of bytes that tensors are views of.

    Parameters
    ----------
    key : str
        Its member is ``data/<key>``.
    dtype : str
        Element type; empty where it has none of its own.
    elements : int
        How many of them it holds, as the pickle says; bytes where it has no element type.
    location : str
        The device it was on.
    """

    key: str
    dtype: str
    elements: int
    location: str

    @property
    def bytes(self) -> int:
        """Bytes, as the pickle says."""
        return self.elements * (numpy_dtype(self.dtype).itemsize if self.dtype else 1)


@frozen(kw_only=True)
class StoredTensor:
    """A tensor: a view of a storage.

    Parameters
    ----------
    storage : Storage or None
        None for a tensor without data (torch's ``meta`` device).
    dtype : str
    offset : int
        Its first element's place in the storage, in elements.
    shape, stride : tuple of int
        Strides in elements.
    """

    storage: Storage | None
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def bytes(self) -> int:
        """Bytes of its elements, each counted."""
        return self.elements * numpy_dtype(self.dtype).itemsize

    @property
    def reach(self) -> int:
        """Elements of the storage from its first to its last, both included."""
        if not self.elements:
            return 0
        return 1 + sum((extent - 1) * step for extent, step in zip(self.shape, self.stride, strict=True))

    @property
    def contiguous(self) -> bool:
        """Whether its elements follow each other in C order."""
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if extent != 1 and stride != step:
                return not self.elements
            step *= extent
        return True


@frozen(kw_only=True, eq=False)
class TorchArchive:
    """A file, or a part of one, that ``torch.save`` wrote.

    Parameters
    ----------
    place : str
        Name for the errors.
    start, length : int
        Where the zip lies in the file.
    value : object
        What was saved, with ``StoredTensor`` for tensors and ``Inert`` for other objects. Walk it with a bound.
    members : dict of str to Member
        By name, without the leading folder.
    byteorder : str
        ``"little"`` or ``"big"``.
    """

    place: str
    start: int
    length: int
    value: Any
    members: dict[str, Member]
    byteorder: str

    def storage_size(self, key: str) -> int:
        """Bytes of a storage in the zip, from its directory.

        Raises
        ------
        InputError
            If it has no such member.
        """
        return self._member(key).size

    def _member(self, key: str) -> Member:
        found = self.members.get(f"data/{key}")
        if found is None:
            raise InputError(self.place, f"an archive with the member data/{key[:40]}", Shown("none of that name"), _FIX)
        return found

    def storage_start(self, file: BinaryIO, key: str) -> int:
        """Where a storage's bytes begin in the file.

        Raises
        ------
        InputError
            If it has no such member, or its header does not fit.
        """
        self._member(key)
        return self.content_start(file, f"data/{key}")

    def content_start(self, file: BinaryIO, name: str) -> int:
        """Where the content of one of ``members`` begins in the file.

        Raises
        ------
        InputError
            If its header does not fit.
        """
        return self.start + _content(file, self, name, self.members[name])

    def span(self, file: BinaryIO, tensor: StoredTensor) -> tuple[int, int]:
        """Where a tensor's bytes begin in the file, and how many from its first to its last element.

        Raises
        ------
        InputError
            If it has no data, or does not lie in its storage.
        """
        if tensor.storage is None:
            raise InputError(self.place, "a tensor with data", Shown("one without"), _FIX)
        item = numpy_dtype(tensor.dtype).itemsize
        size = self.storage_size(tensor.storage.key)
        if (tensor.offset + tensor.reach) * item > size:
            got = Shown(f"elements {tensor.offset:,} to {tensor.offset + tensor.reach:,} of {size // item:,}")
            raise InputError(self.place, "a tensor that lies in its storage", got, _FIX)
        return self.storage_start(file, tensor.storage.key) + tensor.offset * item, tensor.reach * item

    def damaged(self, file: BinaryIO, advance: Callable[[int], object] | None = None) -> Iterator[tuple[str, int, int]]:
        """Members whose bytes do not have the CRC-32 of the directory: name, what they have, what it says.

        A member is read a part at a time; ``advance`` is told how many bytes were.

        Raises
        ------
        InputError
            If a member's header does not fit.
        """
        for name, member in self.members.items():
            file.seek(self.content_start(file, name))
            found, left = 0, member.size
            while left and (part := file.read(min(left, _STEP))):
                found, left = zlib.crc32(part, found), left - len(part)
                if advance is not None:
                    advance(len(part))
            if member.crc and member.crc != found:
                yield name, found, member.crc

    def array(self, path: Path, tensor: StoredTensor) -> np.ndarray[Any, Any]:
        """A tensor's elements: a read-only view of the file in the machine's byte order where it can be one.

        Raises
        ------
        InputError
            If the file cannot be read, or the tensor does not lie in its storage.
        """
        dtype = numpy_dtype(tensor.dtype)
        if not tensor.elements:
            return np.empty(tensor.shape, dtype)
        try:
            with opened(path) as file:
                begin, length = self.span(file, tensor)
                if file.seek(0, 2) < begin + length:
                    raise InputError(self.place, f"a file that reaches to byte {begin + length:,}", Shown("a shorter one"), _FIX)
                raw = np.memmap(file, np.uint8, "r", begin, (length,))
        except OSError as error:
            raise InputError(self.place, "a file that can be read", Shown(error.strerror or "an error"), "Check it.") from None
        flat = raw.view(dtype)
        if self.byteorder == "big":
            flat = _swapped(raw, dtype)
        steps = tuple(step * dtype.itemsize for step in tensor.stride)
        return np.ndarray(tensor.shape, dtype, buffer=flat, strides=steps)


def _swapped(raw: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Big-endian elements in little-endian order; the two parts of a complex number are swapped each."""
    width = dtype.itemsize // (2 if dtype.kind == "c" else 1)
    return np.ascontiguousarray(raw.reshape(-1, width)[:, ::-1]).reshape(-1).view(dtype)


def dtype_of(value: Any) -> str:
    """Our name of an element type that a pickle names, ``torch.float32`` say.

    Raises
    ------
    InputError
        If it is no element type, or one that numpy and ml_dtypes have no name for.
    """
    if type(value) is Name and value.module == "torch" and value.name in _DTYPES:
        return _DTYPES[value.name]
    raise refused("a known element type", f"{value.module}.{value.name}"[:80] if type(value) is Name else type(value).__name__)


def torch_name(module: str, name: str) -> Name | None:
    """What stands for the names that ``torch.save`` writes for tensors and plain things; None for every other."""
    make = _MAKERS.get((module, name))
    if make is not None:
        return Name(module, name, make)
    plain = (module == "torch" and (name in _DTYPES or name in _STORAGES)) or (module == "torch.storage" and name in _STORAGES)
    if plain or (module, name) in _PLAIN:
        return Name(module, name)
    return common_name(module, name)


def whole_numbers(value: Any) -> tuple[int, ...]:
    """A shape, an offset or strides as pickles hold them: few whole numbers of at least 0.

    Raises
    ------
    InputError
        If they are anything else.
    """
    if type(value) not in (tuple, list) or len(value) > _MOST_AXES:
        raise refused(f"of shapes of at most {_MOST_AXES} whole numbers", type(value).__name__)
    for each in value:
        if type(each) is not int or not 0 <= each <= _LARGEST:
            raise refused("of shapes of whole numbers of at least 0", f"{each}"[:40] if type(each) in (int, float) else type(each).__name__)
    return tuple(value)


def _size(args: tuple[Any, ...]) -> tuple[int, ...]:
    """torch.Size, called with one sequence."""
    if len(args) != 1:
        raise refused("a size made of one sequence", f"{len(args)} arguments")
    return whole_numbers(args[0])


def _tensor(args: tuple[Any, ...], dtype: str) -> StoredTensor:
    storage, offset, shape, stride = args[:4]
    if type(storage) is not Storage:
        raise refused("a tensor of a storage", type(storage).__name__)
    shape, stride = whole_numbers(shape), whole_numbers(stride)
    (offset,) = whole_numbers((offset,))
    made = StoredTensor(storage=storage, dtype=dtype, offset=offset, shape=shape, stride=stride)
    if len(shape) != len(stride) or made.elements > _LARGEST or made.reach > _LARGEST:
        raise refused("a tensor with a stride for each axis", f"{len(shape)} axes, {len(stride)} strides")
    if (offset + made.reach) * numpy_dtype(dtype).itemsize > storage.bytes:
        raise refused("a tensor that lies in its storage", f"elements to {offset + made.reach:,} of a storage of {storage.bytes:,} byte")
    return made


def _rebuild_tensor(args: tuple[Any, ...]) -> StoredTensor:
    """Storage, offset, shape, stride, and what does not matter here: gradients, hooks, metadata."""
    if not 4 <= len(args) <= 7:
        raise refused("a tensor of a storage, offset, shape and stride", f"{len(args)} arguments")
    if type(args[0]) is not Storage or not args[0].dtype:
        raise refused("a tensor of a storage with an element type", type(args[0]).__name__)
    return _tensor(args, args[0].dtype)


def _rebuild_typed(args: tuple[Any, ...]) -> StoredTensor:
    """The same with the element type as seventh: for types that have no storage class."""
    if not 7 <= len(args) <= 8:
        raise refused("a tensor of a storage, offset, shape, stride and type", f"{len(args)} arguments")
    return _tensor(args, dtype_of(args[6]))


def _rebuild_parameter(args: tuple[Any, ...]) -> Any:
    """A parameter is the tensor it holds."""
    if not args or type(args[0]) not in (StoredTensor, Inert):
        raise refused("a parameter of a tensor", type(args[0]).__name__ if args else "nothing")
    return args[0]


def _rebuild_subclass(args: tuple[Any, ...]) -> Any:
    """How to make it, its class, the arguments, and attributes that do not matter here."""
    if len(args) != 4 or type(args[0]) is not Name or type(args[2]) is not tuple:
        raise refused("a tensor subclass of a function, a class, arguments and state", f"{len(args)} arguments")
    function = args[0]
    if function.make in (_rebuild_tensor, _rebuild_typed, _rebuild_parameter):
        return function.make(args[2])
    return Inert(function, args[2])


def _rebuild_meta(args: tuple[Any, ...]) -> StoredTensor:
    if len(args) != 4:
        raise refused("a tensor without data of a type, shape and stride", f"{len(args)} arguments")
    shape, stride = whole_numbers(args[1]), whole_numbers(args[2])
    made = StoredTensor(storage=None, dtype=dtype_of(args[0]), offset=0, shape=shape, stride=stride)
    if len(shape) != len(stride) or made.elements > _LARGEST:
        raise refused("a tensor with a stride for each axis", f"{len(shape)} axes, {len(stride)} strides")
    return made


_PLAIN = {
    ("torch", "device"), ("torch", "Tensor"), ("torch.nn.parameter", "Parameter"), ("torch.serialization", "_get_layout"),
    ("torch._tensor", "_rebuild_from_type"),
}  # fmt: skip
_MAKERS: dict[tuple[str, str], Callable[[tuple[Any, ...]], Any]] = {
    ("torch", "Size"): _size,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_typed,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _rebuild_meta,
    ("torch._tensor", "_rebuild_from_type_v2"): _rebuild_subclass,
}


def _only_torch(module: str, name: str) -> Name:
    found = torch_name(module, name)
    if found is None:
        raise refused("free of names that tensors have no need of", f"{module} {name}")
    return found


def _storage(key: Any) -> Storage:
    """What a persistent id stands for."""
    if type(key) is not tuple or len(key) != 5 or key[0] != "storage" or type(key[1]) is not Name:
        raise refused("of persistent ids of storages", type(key).__name__)
    _, kind, name, location, elements = key
    if type(name) is not str or type(location) is not str or len(name) > 100 or not (name.isascii() and name.replace("_", "").isalnum()):
        raise refused("of storages with a plain name", type(name).__name__)
    (elements,) = whole_numbers((elements,))
    if kind.name in _STORAGES and kind.module in ("torch", "torch.storage"):
        return Storage(key=name, dtype=_STORAGES[kind.name], elements=elements, location=location)
    raise refused("of storages of a known element type", f"{kind.module}.{kind.name}"[:80])


def read_torch(
    file: BinaryIO,
    *,
    place: str,
    limits: Limits,
    start: int = 0,
    length: int | None = None,
    find: Callable[[str, str], Any] = _only_torch,
) -> TorchArchive:
    """What ``torch.save`` wrote in a file, or in a part of it.

    Parameters
    ----------
    file : binary file
        Open for reading, and seekable.
    place : str
        Its name, for the errors.
    limits : Limits
        ``members`` and ``metadata_bytes`` cap the directory, and the pickle as in ``unpickled``.
    start, length : int
        The part; to the end without ``length``.
    find : callable
        What stands for a name, as in ``unpickled``; by default the names that tensors and plain things need, and no other. To take
        every name: ``lambda module, name: torch_name(module, name) or Name(module, name)``.

    Returns
    -------
    TorchArchive

    Raises
    ------
    InputError
        If it is no zip as ``torch.save`` writes them, in the old form without a zip, compressed, damaged or over a cap.
    """
    try:
        size = file.seek(0, 2)
        length = size - start if length is None else length
        if start < 0 or length < 0 or start + length > size:
            raise InputError(place, f"{start + length:,} byte long at least", Shown(f"{size:,} byte"), "The file is cut short.")
        zipped = _Zip(file, place, start, length, limits)
        members = zipped.members()
        pickled = zipped.content("data.pkl", members, limits.metadata_bytes)
        order = zipped.content("byteorder", members, 16).strip() if "byteorder" in members else b"little"
    except OSError as error:
        raise InputError(place, "a file that can be read", Shown(error.strerror or "an error"), "Check it.") from None
    if order not in (b"little", b"big"):
        raise InputError(f"{place}: byteorder", "little or big", order, _FIX)
    value = unpickled(pickled, place=f"{place}: data.pkl", limits=limits, find=find, persistent=_storage, dotted=find is not _only_torch)
    return TorchArchive(
        place=place, start=start, length=length, value=value, members=members, byteorder=order.decode()
    )  # fmt: skip


_END, _END_64, _LOCATOR = struct.Struct("<4s4H2IH"), struct.Struct("<4sQ2H2I4Q"), struct.Struct("<4sIQI")
_ENTRY, _HEADER = struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s5H3I2H")
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


class _Zip:
    """The directory of a zip of stored members, at a place in a file."""

    def __init__(self, file: BinaryIO, place: str, start: int, length: int, limits: Limits) -> None:
        self.file, self.place, self.start, self.length, self.limits = file, place, start, length, limits

    def read(self, at: int, count: int) -> bytes:
        if at < 0 or count < 0 or at + count > self.length:
            raise self.bad("a zip that is whole", f"{count:,} byte wanted at {at:,} of {self.length:,}")
        self.file.seek(self.start + at)
        found = self.file.read(count)
        if len(found) != count:
            raise self.bad("a zip that is whole", f"{count:,} byte wanted at {at:,}, {len(found):,} there")
        return found

    def bad(self, rule: str, value: str, fix: str = _FIX) -> InputError:
        return InputError(self.place, rule, Shown(value), fix)

    def directory(self) -> tuple[bytes, int]:
        """The bytes of the directory, and how many entries it has."""
        if self.length < _END.size or self.read(self.length - _END.size, 4) != b"PK\5\6":
            if self.length >= len(_LEGACY) and self.read(0, len(_LEGACY)) == _LEGACY:
                raise self.bad("written as a zip", "the old form of torch.save", "Load it with torch and save it again.")
            raise self.bad("a zip as torch.save writes it", "no end of a directory where it should be")
        end = self.length - _END.size
        _, _, _, _, count, size, at, _ = _END.unpack(self.read(end, _END.size))
        if end >= _LOCATOR.size and self.read(end - _LOCATOR.size, 4) == b"PK\6\7":
            _, _, end, _ = _LOCATOR.unpack(self.read(end - _LOCATOR.size, _LOCATOR.size))
            found = _END_64.unpack(self.read(end, _END_64.size))
            if found[0] != b"PK\6\6":
                raise self.bad("a zip as torch.save writes it", "no zip64 directory where it should be")
            count, size, at = found[7:10]
        if count > self.limits.members or size > self.limits.metadata_bytes:
            raise self.bad(f"of at most {self.limits.members:,} members", f"{count:,}, in {size:,} byte", _RAISE)
        if at + size > end or size < count * _ENTRY.size:
            raise self.bad("a zip whose directory fits", f"{count:,} entries in {size:,} byte at {at:,} of {self.length:,}")
        return self.read(at, size), count

    def members(self) -> dict[str, Member]:
        data, count = self.directory()
        found: dict[str, Member] = {}
        folder, at = "", 0
        for _ in range(count):
            if at + _ENTRY.size > len(data):
                raise self.bad("a zip whose directory fits", "entries beyond its end")
            entry = _ENTRY.unpack_from(data, at)
            lengths = entry[10:13]
            name = data[at + _ENTRY.size : at + _ENTRY.size + lengths[0]]
            extra = data[at + _ENTRY.size + lengths[0] : at + _ENTRY.size + lengths[0] + lengths[1]]
            at += _ENTRY.size + sum(lengths)
            text = self.named(name)
            first, _, rest = text.partition("/")
            folder = folder or first
            if first != folder or not rest or rest in found:
                raise self.bad("a zip of one folder, each name once", f"the member {text[:60]}")
            found[rest] = self.member(entry, extra, text)
        if at > len(data):
            raise self.bad("a zip whose directory fits", "entries beyond its end")
        self.apart(found)
        return found

    def named(self, name: bytes) -> str:
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise self.bad("a zip with names in UTF-8", "another name") from None

    def member(self, entry: tuple[Any, ...], extra: bytes, name: str) -> Member:
        flags, method, crc, packed, size, header = entry[3], entry[4], entry[7], entry[8], entry[9], entry[16]
        wide = [each for each in (size, packed, header) if each == 0xFFFFFFFF]
        if wide:
            numbers = self.zip64(extra, len(wide), name)
            size, packed, header = (numbers.pop(0) if each == 0xFFFFFFFF else each for each in (size, packed, header))
        if entry[0] != b"PK\1\2" or flags & 1 or method != 0 or packed != size:
            kind = "compressed or encrypted" if entry[0] == b"PK\1\2" else "no entry of a directory"
            raise self.bad("a zip of stored members, as torch.save writes it", f"{name[:60]}: {kind}")
        if header + _HEADER.size + size > self.length:
            raise self.bad("a zip that holds its members", f"{name[:60]}: {size:,} byte at {header:,} of {self.length:,}")
        return Member(size=size, header=header, crc=crc)

    def zip64(self, extra: bytes, count: int, name: str) -> list[int]:
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<2H", extra, at)
            if kind == 1 and 8 * count <= length <= len(extra) - at - 4:
                return list(struct.unpack_from(f"<{count}Q", extra, at + 4))
            at += 4 + length
        raise self.bad("a zip whose directory gives sizes", f"{name[:60]}: none")

    def apart(self, found: dict[str, Member]) -> None:
        """Members must not share bytes."""
        reach = 0
        for each in sorted(found.values(), key=lambda member: member.header):
            if each.header < reach:
                raise self.bad("a zip of members that share no bytes", f"one that begins at {each.header:,}, before {reach:,}")
            reach = each.header + _HEADER.size + each.size

    def content(self, name: str, members: dict[str, Member], most: int) -> bytes:
        """A small member, checked to be what its directory says."""
        if name not in members:
            raise self.bad(f"a zip with the member {name}, as torch.save writes it", "none of that name")
        member = members[name]
        if member.size > most:
            raise self.bad(f"a zip with a member {name} of at most {most:,} byte", f"{member.size:,} byte", _RAISE)
        return self.read(content_start(self.read, name, member, self.bad), member.size)


def content_start(read: Callable[[int, int], bytes], name: str, member: Member, bad: Callable[[str, str], InputError]) -> int:
    """Where a member's content begins in the zip: behind its own header, whose name must be the directory's."""
    mark, *_, named, extra = _HEADER.unpack(read(member.header, _HEADER.size))
    if mark != b"PK\3\4":
        raise bad("a zip whose members are where its directory says", f"no header of {name[:60]} at {member.header:,}")
    found = read(member.header + _HEADER.size, named)
    if found.partition(b"/")[2] != name.encode():
        raise bad("a zip whose members have one name", f"{name[:60]} in the directory, another in its header")
    return member.header + _HEADER.size + int(named) + int(extra)


def _content(file: BinaryIO, archive: TorchArchive, name: str, member: Member) -> int:
    zipped = _Zip(file, archive.place, archive.start, archive.length, Limits())
    try:
        start = content_start(zipped.read, name, member, zipped.bad)
    except OSError as error:
        raise InputError(archive.place, "a file that can be read", Shown(error.strerror or "an error"), "Check it.") from None
    if start + member.size > archive.length:
        raise zipped.bad("a zip that holds its members", f"{name[:60]}: {member.size:,} byte at {start:,} of {archive.length:,}")
    return start
