"""Writes what torch writes, without torch: pickles with any names in them, ``torch.save`` zips, ``.metadata`` and ``.distcp``."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

METADATA = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"
PLANNER = "torch.distributed.checkpoint.planner"
OLDER = "torch.distributed._shard.sharded_tensor.metadata"
STORAGES = {
    "float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage", "int64": "LongStorage",
    "int32": "IntStorage", "int16": "ShortStorage", "int8": "CharStorage", "uint8": "ByteStorage", "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage", "complex128": "ComplexDoubleStorage",
}  # fmt: skip


class Global:
    """A name of a module."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Object:
    """An object of a class: ``new`` with arguments and then a state, or what a call gives."""

    def __init__(self, of: Global, args: Any = (), state: Any = None, *, call: bool = False) -> None:
        self.of, self.args, self.state, self.call = of, args, state, call


class Persistent:
    """What a persistent id stands for."""

    def __init__(self, key: Any) -> None:
        self.key = key


class Raw:
    """Opcodes that are there already, and how many memo entries they make."""

    def __init__(self, data: bytes, entries: int = 0) -> None:
        self.data, self.entries = data, entries


class Writer(pickle._Pickler):  # type: ignore[name-defined, misc]
    """A pickler that names whatever it is told to."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def __init__(self, file: Any, protocol: int = 4) -> None:
        super().__init__(file, protocol)
        self.entries = 0

    def memoize(self, value: Any) -> None:
        self.write(self.put(self.entries))
        self.memo[id(value)] = self.entries, value
        self.entries += 1

    def put(self, index: int) -> bytes:
        return pickle.MEMOIZE if self.proto >= 4 else b"q" + bytes((index,)) if index < 256 else b"r" + struct.pack("<I", index)

    def save_name(self, value: Global) -> None:
        if self.proto >= 4:
            self.save(value.module)
            self.save(value.name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(b"c" + f"{value.module}\n{value.name}\n".encode())
        self.memoize(value)

    def save_object(self, value: Object) -> None:
        self.save(value.of)
        self.save(value.args)
        self.write(pickle.REDUCE if value.call else pickle.NEWOBJ)
        self.memoize(value)
        if value.state is not None:
            self.save(value.state)
            self.write(pickle.BUILD)

    def save_persistent(self, value: Persistent) -> None:
        self.save(value.key)
        self.write(pickle.BINPERSID)

    def save_raw(self, value: Raw) -> None:
        self.write(value.data)
        self.entries += value.entries

    def fetch(self, value: Any) -> bytes:
        """The opcodes that fetch from the memo what was written before."""
        found: bytes = self.get(self.memo[id(value)][0])
        return found

    dispatch[Global] = save_name
    dispatch[Object] = save_object
    dispatch[Persistent] = save_persistent
    dispatch[Raw] = save_raw


def dumped(value: Any, protocol: int = 4) -> bytes:
    file = io.BytesIO()
    Writer(file, protocol).dump(value)
    return file.getvalue()


# torch.save

REBUILD = Global("torch._utils", "_rebuild_tensor_v2")


def tensor(array: np.ndarray[Any, Any], key: str = "0", **changed: Any) -> Object:
    """What a pickle holds for a tensor; any part can be changed."""
    dtype = array.dtype.name
    elements = array.size if dtype in STORAGES else array.nbytes
    parts = {"storage": STORAGES.get(dtype, "UntypedStorage"), "elements": elements, "offset": 0, "shape": array.shape,
             "stride": tuple(step // array.itemsize for step in array.strides), "dtype": dtype, **changed}  # fmt: skip
    known = parts["storage"] != "UntypedStorage"
    kind = Global("torch", parts["storage"]) if known else Global("torch.storage", "UntypedStorage")
    stored = Persistent(("storage", kind, key, "cpu", parts["elements"]))
    args = (stored, parts["offset"], parts["shape"], parts["stride"], False, Object(Global("collections", "OrderedDict"), call=True))
    if known:
        return Object(REBUILD, args, call=True)
    return Object(Global("torch._utils", "_rebuild_tensor_v3"), (*args, Global("torch", parts["dtype"])), call=True)


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=method)
    return file.getvalue()


def saved(value: Any, storages: dict[str, bytes], *, order: str = "little", pickled: bytes | None = None) -> bytes:
    """A zip as torch.save writes it."""
    data = {f"archive/data/{key}": each for key, each in storages.items()}
    text = dumped(value, 2) if pickled is None else pickled
    return zipped({"archive/data.pkl": text, "archive/byteorder": order.encode(), **data, "archive/version": b"3\n"})


def saved_array(array: np.ndarray[Any, Any], **changed: Any) -> bytes:
    return saved(tensor(array, **changed), {"0": array.tobytes()})


# .metadata


class Names:
    """The classes of a .metadata, each once."""

    def __init__(self, older: bool = False) -> None:
        self.known: dict[tuple[str, str], Global] = {}
        self.properties = OLDER if older else METADATA
        self.encoding = "MEM_FORMAT_ENCODING" if older else "_MEM_FORMAT_ENCODING"

    def __call__(self, module: str, name: str) -> Global:
        return self.known.setdefault((module, name), Global(module, name))

    def size(self, numbers: Sequence[int]) -> Object:
        # a new tuple each time, as torch's sizes give
        return Object(self("torch", "Size"), ((*numbers, 0)[:-1],), call=True)

    def chunk(self, offset: Sequence[int], extent: Sequence[int]) -> Object:
        state = {"offsets": self.size(offset), "sizes": self.size(extent)}
        return Object(self(METADATA, "ChunkStorageMetadata"), (), state)

    def index(self, name: str, offset: Sequence[int] | None) -> Object:
        state = {"fqn": name, "index": None, **({} if offset is None else {"offset": self.size(offset)})}
        return Object(self(METADATA, "MetadataIndex"), (), state)

    def info(self, file: str, start: int, length: int, **more: Any) -> Object:
        return Object(self(FILESYSTEM, "_StorageInfo"), (), {"relative_path": file, "offset": start, "length": length, **more})

    def tensor(self, dtype: str, shape: Sequence[int], chunks: Any) -> Object:
        layout = Object(self("torch.serialization", "_get_layout"), ("torch.strided",), call=True)
        encoding = Object(self(self.properties, self.encoding), (0,), call=True)
        state = (self("torch", dtype), layout, False, encoding, False)
        properties = Object(self(self.properties, "TensorProperties"), (), state)
        return Object(self(METADATA, "TensorStorageMetadata"), (), {"properties": properties, "size": self.size(shape), "chunks": chunks})

    def bytes(self) -> Object:
        return Object(self(METADATA, "BytesStorageMetadata"), (), {})

    def metadata(self, tensors: Any, stored: Any, path: tuple[str, str] = ("pathlib", "PosixPath"), **more: Any) -> Object:
        place = Object(self(*path), ("/", "checkpoints", "run"), call=True)
        meta = Object(self(METADATA, "StorageMeta"), (), {"checkpoint_id": place, "save_id": "1", "load_id": None, "modules": []})
        state = {"state_dict_metadata": tensors, "planner_data": {}, "storage_data": stored, "storage_meta": meta, **more}
        return Object(self(METADATA, "Metadata"), (), state)


class Checkpoint:
    """A PyTorch distributed checkpoint that is written piece by piece, and can be written wrong."""

    def __init__(self, folder: Path, *, older: bool = False, protocol: int = 4, path: tuple[str, str] = ("pathlib", "PosixPath")) -> None:
        self.folder, self.protocol, self.path = folder, protocol, path
        self.names = Names(older)
        self.tensors: dict[str, Object] = {}
        self.stored: dict[Object, Object] = {}
        self.data: dict[str, bytes] = {}
        self.more: dict[str, Any] = {}

    def add(self, name: str, whole: np.ndarray[Any, Any], chunks: Sequence[tuple[str, Sequence[int], Sequence[int]]], **told: Any) -> None:
        """A tensor, and its chunks as (file, offset, extent)."""
        made = []
        for file, offset, extent in chunks:
            part = np.ascontiguousarray(whole[tuple(slice(at, at + size) for at, size in zip(offset, extent, strict=True))])
            self.put(file, self.names.index(name, offset), saved_array(part.reshape(extent)))
            made.append(self.names.chunk(offset, extent))
        self.tensors[name] = self.names.tensor(
            told.get("dtype", whole.dtype.name), told.get("shape", whole.shape), told.get("chunks", made)
        )

    def add_object(self, name: str, file: str, value: Any) -> None:
        self.tensors[name] = self.names.bytes()
        self.put(file, self.names.index(name, None), saved(value, {}))

    def put(self, file: str, index: Object, chunk: bytes, **more: Any) -> None:
        before = self.data.get(file, b"")
        self.stored[index] = self.names.info(file, len(before), len(chunk), **more)
        self.data[file] = before + chunk

    def write(self, name: str = ".metadata") -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        document = self.names.metadata(self.tensors, self.stored, self.path, **self.more)
        (self.folder / name).write_bytes(dumped(document, self.protocol))
        for file, data in self.data.items():
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / file).write_bytes(data)
        return self.folder


# a .metadata of a large model


def llama(
    layers: int = 126, width: int = 16384, hidden: int = 53248, keys: int = 1024, words: int = 128256
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of Llama 3.1 405B."""
    yield "tok_embeddings.weight", (words, width)
    for layer in range(layers):
        for name, shape in (
            ("attention.wq", (width, width)), ("attention.wk", (keys, width)), ("attention.wv", (keys, width)),
            ("attention.wo", (width, width)), ("feed_forward.w1", (hidden, width)), ("feed_forward.w2", (width, hidden)),
            ("feed_forward.w3", (hidden, width)), ("attention_norm", (width,)), ("ffn_norm", (width,)),
        ):  # fmt: skip
            yield f"layers.{layer}.{name}.weight", shape
    yield "norm.weight", (width,)
    yield "output.weight", (words, width)


def _number(number: int) -> bytes:
    if number < 256:
        return b"K" + bytes((number,))
    if number < 65536:
        return b"M" + struct.pack("<H", number)
    if number < 2**31:
        return b"J" + struct.pack("<I", number)
    length = (number.bit_length() >> 3) + 1
    return b"\x8a" + bytes((length,)) + number.to_bytes(length, "little")


class Chunks(Raw):
    """A list of the chunks of a tensor that is cut along its first axis. All but the first are written as opcodes."""

    def __init__(self, names: Names, shape: tuple[int, ...], step: int) -> None:
        self.names, self.shape, self.step = names, shape, step

    def boxes(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        first, *others = self.shape
        for at in range(0, first, self.step):
            yield (at, *(0 for _ in others)), (min(self.step, first - at), *others)


class Entries(Raw):
    """The dict of storage entries of such tensors, by name, and of objects."""

    def __init__(self, names: Names, tensors: dict[str, Chunks], objects: Sequence[str]) -> None:
        self.names, self.tensors, self.objects = names, tensors, objects


class LargeWriter(Writer):
    """Writes runs of chunks and of storage entries as the pickler would, without an object for each."""

    dispatch: ClassVar[dict[type, Any]] = dict(Writer.dispatch)

    def sized(self, size: bytes, numbers: Sequence[int]) -> bytes:
        return size + b"".join(map(_number, numbers)) + (b"\x85\x94", b"\x86\x94")[len(numbers) - 1] + b"\x85\x94R\x94"

    def run(self, parts: Iterator[tuple[bytes, int]], end: bytes) -> None:
        """Opcodes in batches of a thousand, in frames."""
        for number, (data, entries) in enumerate(parts, 1):
            self.write(data)
            self.entries += entries
            self.framer.commit_frame()
            if number % 1000 == 0:
                self.write(end + b"(")
        self.write(end)

    def save_chunks(self, value: Chunks) -> None:
        names, boxes = value.names, value.boxes()
        self.write(b"]")
        self.memoize(value)
        self.write(b"(")
        self.save(names.chunk(*next(boxes)))
        size, chunk = self.fetch(names("torch", "Size")), self.fetch(names(METADATA, "ChunkStorageMetadata"))
        begin, middle = chunk + b")\x81\x94}\x94(" + self.fetch("offsets"), self.fetch("sizes")
        self.run(((begin + self.sized(size, offset) + middle + self.sized(size, extent) + b"ub", 8) for offset, extent in boxes), b"e")

    def save_entries(self, value: Entries) -> None:
        names = value.names
        self.write(b"}")
        self.memoize(value)
        self.write(b"(")
        for name in value.objects:
            self.save(names.index(name, None))
            self.save(names.info("__0_0.distcp", 0, 900))
        self.write(b"u(")
        self.run(self.entry_parts(value), b"u")

    def entry_parts(self, value: Entries) -> Iterator[tuple[bytes, int]]:
        names, reached = value.names, {}
        size, index = self.fetch(names("torch", "Size")), self.fetch(names(METADATA, "MetadataIndex"))
        begin = index + b")\x81\x94}\x94(" + self.fetch("fqn")
        middle = self.fetch("index") + b"N" + self.fetch("offset")
        info = b"ub" + self.fetch(names(FILESYSTEM, "_StorageInfo")) + b")\x81\x94}\x94(" + self.fetch("relative_path")
        start, length = self.fetch("offset"), self.fetch("length")
        for name, chunks in value.tensors.items():
            named = begin + self.fetch(name) + middle
            for rank, (offset, extent) in enumerate(chunks.boxes()):
                stored = (4 * int(np.prod(extent)) + 64) // 64 * 64 + 1500
                at = reached.get(rank, 0)
                reached[rank] = at + stored
                file = f"__{rank}_0.distcp".encode()
                text = b"\x8c" + bytes((len(file),)) + file + b"\x94"
                yield named + self.sized(size, offset) + info + text + start + _number(at) + length + _number(stored) + b"ub", 8

    dispatch[Chunks] = save_chunks
    dispatch[Entries] = save_entries


def large_metadata(path: Path, ranks: int, layers: int = 126) -> int:
    """Write the ``.metadata`` of a 405B with Adam, cut over so many ranks along the first axis; how many chunks it has."""
    names, shapes = Names(), list(llama(layers))
    tensors = {f"model.{name}": Chunks(names, shape, -(-shape[0] // ranks)) for name, shape in shapes}
    for name, shape in shapes:
        tensors |= {f"optim.state.{name}.{each}": Chunks(names, shape, -(-shape[0] // ranks)) for each in ("exp_avg", "exp_avg_sq")}
    objects = [f"optim.param_groups.{name}.{key}" for name, _ in shapes for key in ("lr", "betas", "eps", "weight_decay")]
    told = {name: names.tensor("float32", chunks.shape, chunks) for name, chunks in tensors.items()}
    told |= {name: names.bytes() for name in objects}
    with path.open("wb") as file:
        LargeWriter(file).dump(names.metadata(told, Entries(names, tensors, objects)))
    return sum(-(-chunks.shape[0] // chunks.step) for chunks in tensors.values())
