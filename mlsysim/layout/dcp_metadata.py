"""PyTorch's ``.metadata``, a pickle, into columns: nothing of it is run, and a chunk costs a few numbers instead of a few objects.

Chunks and storage entries come by the million, each as the same opcodes with other numbers. They are taken in run by run with a
pattern made from the first of them; whatever has another form goes opcode by opcode, with the same result.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from attrs import frozen

from mlsysim.errors import InputError, Shown
from mlsysim.layout.layout import Column, TensorInfo
from mlsysim.layout.limits import Limits
from mlsysim.layout.pickles import Inert, Name, label, refused, unpickled
from mlsysim.layout.torch_zip import dtype_of, torch_name, whole_numbers

__all__ = ["Document", "read_document"]

_FIX = "Refuse this file, or ask who made it."
_LARGEST = 2**62
_LONGEST_NAME = 65_536

_METADATA = "torch.distributed.checkpoint.metadata"
_PLANNER = "torch.distributed.checkpoint.planner"
_STORAGE = "torch.distributed.checkpoint.filesystem"
_OLDER = "torch.distributed._shard.sharded_tensor.metadata"
# every class that a .metadata names; with torch.Size, element types and paths it is the closed list
_CLASSES = {
    **{(_METADATA, each): each for each in (
        "Metadata", "TensorStorageMetadata", "ChunkStorageMetadata", "BytesStorageMetadata", "MetadataIndex", "StorageMeta",
        "TensorProperties", "_MEM_FORMAT_ENCODING")},
    **{(_STORAGE, each): each for each in ("_StorageInfo", "_StoragePrefix")},
    (_OLDER, "TensorProperties"): "TensorProperties", (_OLDER, "MEM_FORMAT_ENCODING"): "_MEM_FORMAT_ENCODING",
}  # fmt: skip
_PLANS = {(_PLANNER, each): each for each in ("SavePlan", "WriteItem", "WriteItemType", "TensorWriteData", "BytesIOWriteData")}
_PATHS = {(module, f"{kind}Path") for module in ("pathlib", "pathlib._local") for kind in ("Posix", "Windows", "PurePosix", "PureWindows")}


@frozen(kw_only=True, eq=False)
class Document:
    """What one ``.metadata`` says.

    Parameters
    ----------
    tensors : tuple of TensorInfo
    objects : tuple of str
        Names of what is no tensor.
    sizes : array (sizes, axes) of int64, list of tuple
        Every offset and extent that occurs, once; the tuples as well.
    chunk_tensor, chunk_offset, chunk_extent : array (chunks,)
        Places in ``tensors`` and ``sizes``.
    names, files : tuple of str
        Names and files that storage entries mention.
    entry_name, entry_offset, entry_file, entry_start, entry_length : array (entries,)
        Storage entries: places in ``names``, ``sizes`` (-1 for an object) and ``files``, and bytes.
    transformed : frozenset of int
        Entries whose bytes were transformed (compressed) when they were written.
    """

    tensors: tuple[TensorInfo, ...]
    objects: tuple[str, ...]
    sizes: list[tuple[int, ...]]
    chunk_tensor: Column
    chunk_offset: Column
    chunk_extent: Column
    names: tuple[str, ...]
    files: tuple[str, ...]
    entry_name: Column
    entry_offset: Column
    entry_file: Column
    entry_start: Column
    entry_length: Column
    transformed: frozenset[int]


def read_document(data: bytes, *, place: str, limits: Limits) -> Document:
    """The columns of a ``.metadata``.

    Parameters
    ----------
    data : bytes
    place : str
        Name of the file, for the errors.
    limits : Limits

    Returns
    -------
    Document

    Raises
    ------
    InputError
        If it names anything but what a ``.metadata`` needs, is damaged, or goes beyond a cap.
    """
    reading = _Reading(place, limits, runs=True)
    try:
        return reading.document(data)
    except (InputError, _UnusualError):
        # by opcode, what was taken in by the run is there as objects; and what is refused is refused for its own sake
        if not reading.skipped:
            raise
    del reading
    return _Reading(place, limits, runs=False).document(data)


class _UnusualError(Exception):
    """A part that was taken in by the run is wanted as an object after all."""


class _Skipped:
    """Stands in the memo for what was taken in by the run."""

    __slots__ = ()


_SKIPPED = _Skipped()


class _Rows:
    """Rows of the columns, in place of the objects that they were."""

    __slots__ = ("start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop


_BYTE, _SHORT, _INT, _LONG = b"KMJ\x8a"
_WIDTHS = {_BYTE: 1, _SHORT: 2, _INT: 4, _LONG: 1}
_NUMBER = rb"(?:K.|M..|J....|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}))"
_RAW = rb"(\)|%b\x85\x94|%b{2}\x86\x94|%b{3}\x87\x94|\(%b{4,64}t\x94)" % ((_NUMBER,) * 4)
_REF = rb"(h.|j....)"
_TEXT = rb"(?:\x8c(.[^\x94]{0,255})\x94|%b)" % _REF
_OBJECT, _BUILT = rb"\)\x81\x94\}\x94\(", rb"ub"
# objects that are taken in before memory is looked at again
_MOST_AT_ONCE = 4096
# what the memo keeps of an object and of its state
_BOTH = (_SKIPPED, _SKIPPED)


def _numbers(raw: bytes) -> list[int]:
    """Numbers pushed one after the other, up to the opcode that makes a tuple of them."""
    found, at = [], 1 if raw[:1] == b"(" else 0
    while raw[at] in _WIDTHS:
        code, start = raw[at], at + 1
        at = start + _WIDTHS[code]
        if code == _LONG:
            start, at = at, at + raw[start]
        found.append(int.from_bytes(raw[start:at], "little", signed=code in (_INT, _LONG)))
    return found


class _Sizes:
    """Every size that occurs, once: there are few."""

    def __init__(self) -> None:
        self.all: list[tuple[int, ...]] = []
        self.places: dict[bytes, int] = {}
        # by the opcodes of the numbers: the place, and what the memo gets
        self.raw: dict[bytes | None, tuple[int, tuple[Any, ...]]] = {}

    def place(self, size: tuple[int, ...]) -> int:
        found = self.places.setdefault(_key(size), len(self.all))
        if found == len(self.all):
            self.all.append(size)
        return found

    def of(self, raw: bytes | None, ref: bytes | None, memo: list[Any]) -> tuple[int, tuple[Any, ...]]:
        """What a pattern's two groups give: numbers, or a memo entry."""
        if raw is None:
            known = memo[_index(ref)] if ref is not None and _index(ref) < len(memo) else None
            if type(known) is not tuple or _key(known) not in self.places:
                raise _UnusualError
            return self.places[_key(known)], ()
        place = self.place(whole_numbers(_numbers(raw)))
        size = self.all[place]
        found = self.raw[raw] = place, (_SKIPPED, size) if raw == b")" else (size, _SKIPPED, size)
        return found


class _Texts:
    """Names and files, each once."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.raw: dict[bytes, tuple[int, tuple[str]]] = {}

    def place(self, text: Any) -> int:
        if type(text) is not str or len(text) > _LONGEST_NAME:
            raise refused("of names that are text", type(text).__name__)
        return self.places.setdefault(text, len(self.places))

    def of(self, raw: bytes | None, ref: bytes, memo: list[Any]) -> tuple[int, tuple[Any, ...]]:
        if raw is None:
            known = memo[_index(ref)] if _index(ref) < len(memo) else None
            if type(known) is not str:
                raise _UnusualError
            return self.place(known), ()
        found = self.raw.get(raw)
        if found is None:
            try:
                text = raw[1:].decode()
            except UnicodeDecodeError:
                raise refused("text in UTF-8", "other bytes") from None
            if raw[0] != len(raw) - 1:
                raise _UnusualError
            found = self.raw[raw] = self.place(text), (text,)
        return found


def _key(size: tuple[int, ...]) -> bytes:
    """As bytes: those hash with a secret, tuples of numbers don't."""
    return array("q", size).tobytes()


def _index(ref: bytes) -> int:
    return int.from_bytes(ref[1:], "little")


class _Memo:
    """Where the memo has the names and texts that a pattern is made with."""

    def __init__(self, memo: list[Any], wanted: Iterable[Any]) -> None:
        ids = {id(each) for each in wanted}
        self.places: dict[int, int] = {}
        for place, each in enumerate(memo):
            if id(each) in ids:
                self.places.setdefault(id(each), place)

    def ref(self, value: Any) -> bytes:
        """The opcodes that fetch it."""
        place = self.places.get(id(value))
        if place is None:
            raise _UnusualError
        return b"h" + bytes((place,)) if place < 256 else b"j" + place.to_bytes(4, "little")


class _Run:
    """Takes in runs of one kind of object. The first ones go by opcode, and the pattern is made from one of them."""

    def __init__(self, reading: _Reading) -> None:
        self.reading = reading
        self.pattern: re.Pattern[bytes] | None = None
        self.prefix = b""
        self.seen: Inert | None = None
        self.tries = 16

    def __call__(self, data: Any, at: int, stack: list[Any], memo: list[Any]) -> tuple[int, int] | None:
        if self.pattern is None:
            if self.tries and self.seen is not None:
                self.tries -= 1
                try:
                    self.learn(self.seen.state, memo)
                except _UnusualError:
                    self.pattern = None
            self.seen = stack[-1]
        start = at - len(self.prefix)
        if self.pattern is None or not self.tries or data[start:at] != self.prefix:
            return None
        before = self.reading.mark(memo)
        end, count = self.take(data, start, memo)
        if not count or not self.closed(data, end, count, stack):
            self.tries -= count > 0
            self.reading.back(before, memo)
            return None
        self.put(before, stack)
        self.reading.skipped = True
        return end, self.reading.grown(before, memo)

    def learn(self, state: Any, memo: list[Any]) -> None:
        """Make the pattern, from the state of an object that went by opcode."""
        raise NotImplementedError

    def take(self, data: Any, at: int, memo: list[Any]) -> tuple[int, int]:
        """Take in as many as there are: where they end, and how many."""
        raise NotImplementedError

    def closed(self, data: bytes, at: int, count: int, stack: list[Any]) -> bool:
        """Whether what follows uses the objects as whole: nothing else may take some of them off the stack."""
        raise NotImplementedError

    def more(self, data: bytes, at: int) -> bool:
        """Whether one more follows that goes by opcode, or a frame begins."""
        return data[at : at + 1] == b"\x95" or data[at : at + len(self.prefix) - 2] == self.prefix[:-2]

    def put(self, before: tuple[int, ...], stack: list[Any]) -> None:
        """Put rows on the stack, for the object whose making began the run."""
        raise NotImplementedError


class _Chunks(_Run):
    """Chunks of a tensor, up to the opcode that puts them into its list."""

    def learn(self, state: Any, memo: list[Any]) -> None:
        if type(state) is not dict or list(state) != ["offsets", "sizes"]:
            return
        offsets, sizes = state
        size, chunk = self.reading.names["torch", "Size"], self.reading.names[_METADATA, "ChunkStorageMetadata"]
        at = _Memo(memo, (offsets, sizes, size, chunk))
        one = rb"(?:%b%b\x85\x94R\x94|%b)" % (re.escape(at.ref(size)), _RAW, _REF)
        first, second = re.escape(at.ref(offsets)) + one, re.escape(at.ref(sizes)) + one
        self.prefix = at.ref(chunk) + b")\x81"
        self.pattern = re.compile(re.escape(at.ref(chunk)) + _OBJECT + first + second + _BUILT, re.DOTALL)

    def take(self, data: Any, at: int, memo: list[Any]) -> tuple[int, int]:
        reading, match = self.reading, self.pattern.match  # type: ignore[union-attr]
        get, of = reading.sizes.raw.get, reading.sizes.of
        offsets, extents = reading.chunk_offset, reading.chunk_extent
        count = 0
        while count < _MOST_AT_ONCE and (found := match(data, at)):
            raw, ref, raw_2, ref_2 = found.groups()
            offset, extent = get(raw) or of(raw, ref, memo), get(raw_2) or of(raw_2, ref_2, memo)
            offsets.append(offset[0])
            extents.append(extent[0])
            memo += _BOTH + offset[1] + extent[1]
            at = found.end()
            count += 1
        return at, count

    def closed(self, data: bytes, at: int, count: int, stack: list[Any]) -> bool:  # noqa: ARG002
        return data[at : at + 1] == b"e" or (count == 1 and data[at : at + 1] == b"a") or self.more(data, at)

    def put(self, before: tuple[int, ...], stack: list[Any]) -> None:
        stack[-1] = _Rows(before[0], len(self.reading.chunk_offset))


class _Entries(_Run):
    """Storage entries, key and value, up to the opcode that puts them into the dict."""

    def learn(self, state: Any, memo: list[Any]) -> None:
        info = self.reading.info
        if info is None or type(info.state) is not dict or list(info.state)[:3] != ["relative_path", "offset", "length"]:
            return
        if type(state) is not dict or list(state)[:2] != ["fqn", "index"]:
            return
        names = self.reading.names
        size, index, stored = names["torch", "Size"], names[_METADATA, "MetadataIndex"], names[_STORAGE, "_StorageInfo"]
        (fqn, hint, *_), (path, offset, length, *more) = state, info.state
        at = _Memo(memo, (fqn, hint, path, offset, length, *more, size, index, stored))

        def ref(value: Any) -> bytes:
            return re.escape(at.ref(value))

        place = rb"(?:%b(?:%b%b\x85\x94R\x94|%b))?" % (ref(offset), ref(size), _RAW, _REF)
        key = ref(index) + _OBJECT + ref(fqn) + _TEXT + ref(hint) + rb"(?:N|%b)" % _NUMBER + place + _BUILT
        numbers = ref(offset) + rb"(%b)" % _NUMBER + ref(length) + rb"(%b)" % _NUMBER
        if more:
            numbers += ref(more[0]) + b"N"
        self.prefix = at.ref(index) + b")\x81"
        self.pattern = re.compile(key + ref(stored) + _OBJECT + ref(path) + _TEXT + numbers + _BUILT, re.DOTALL)

    def take(self, data: Any, at: int, memo: list[Any]) -> tuple[int, int]:
        reading, match = self.reading, self.pattern.match  # type: ignore[union-attr]
        get, of, names, files = reading.sizes.raw.get, reading.sizes.of, reading.texts.of, reading.files.of
        add = [each.append for each in reading.entries]
        nowhere: tuple[int, tuple[Any, ...]] = (-1, ())
        count = 0
        while count < _MOST_AT_ONCE and (found := match(data, at)):
            name, name_ref, raw, ref, file, file_ref, start, length = found.groups()
            known = names(name, name_ref, memo)
            offset = get(raw) or of(raw, ref, memo) if raw or ref else nowhere
            memo += _BOTH + known[1] + offset[1] + _BOTH
            stored = files(file, file_ref, memo)
            memo += stored[1]
            add[0](known[0])
            add[1](offset[0])
            add[2](stored[0])
            add[3](_number(start))
            add[4](_number(length))
            at = found.end()
            count += 1
        return at, count

    def closed(self, data: bytes, at: int, count: int, stack: list[Any]) -> bool:
        code: bytes = data[at : at + 1]
        if len(stack) % 2 != 1 and code != b"s":
            return False
        return code == b"u" or (count == 1 and code == b"s") or self.more(data, at)

    def put(self, before: tuple[int, ...], stack: list[Any]) -> None:
        stack[-1] = Inert(self.reading.rows, (_Rows(before[1], len(self.reading.entries[0])),))
        stack.append(None)


class _Plans(_Run):
    """Items of the ranks' plans, of which nothing is wanted."""

    def learn(self, state: Any, memo: list[Any]) -> None:  # noqa: ARG002
        item = self.reading.names[_PLANNER, "WriteItem"]
        ref = _Memo(memo, (item,)).ref(item)
        self.prefix = ref + b")\x81"
        # an item holds an index and tensor data, which holds a chunk; atomic, so that no form takes long to refuse, and without groups
        key, raw = _REF.replace(b"(", b"(?:"), _RAW.replace(b"(", b"(?:", 1)
        plain = rb"%b%b\x85\x94R\x94|%b|[N\x88\x89]|\x8c.[^\x94]{0,255}\x94|%b" % (key, raw, _NUMBER, key)
        plain = rb"%b\)\x81\x94\((?>%b)*+t\x94b|%b" % (key, plain, plain)
        fields = rb"(?:%b(?>%b))*+" % (key, plain)
        for _ in range(2):
            fields = rb"(?:%b(?>%b|%b))*+" % (key, key + _OBJECT + fields + _BUILT, plain)
        self.pattern = re.compile(re.escape(ref) + _OBJECT + fields + _BUILT, re.DOTALL)

    def take(self, data: Any, at: int, memo: list[Any]) -> tuple[int, int]:
        match, count = self.pattern.match, 0  # type: ignore[union-attr]
        while count < _MOST_AT_ONCE and (found := match(data, at)):
            memo += (_SKIPPED,) * sum(map(len, _MEMOIZE.findall(found[0])))
            at = found.end()
            count += 1
        return at, count

    def closed(self, data: bytes, at: int, count: int, stack: list[Any]) -> bool:  # noqa: ARG002
        return data[at : at + 1] == b"e" or (count == 1 and data[at : at + 1] == b"a") or self.more(data, at)

    def put(self, before: tuple[int, ...], stack: list[Any]) -> None:  # noqa: ARG002
        stack[-1] = _SKIPPED


# the opcodes that put into the memo, among those of such an item
_MEMOIZE = re.compile(rb"h.|j....|K.|M..|J....|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8})|\x8c.[^\x94]{0,255}|(\x94)|.", re.DOTALL)


def _number(raw: bytes) -> int:
    number = int.from_bytes(raw[1:], "little") if raw[0] in (_BYTE, _SHORT) else _numbers(raw + b".")[0]
    if not 0 <= number <= _LARGEST:
        raise refused("of whole numbers of at least 0", f"{number}")
    return number


class _Reading:
    """One ``.metadata`` on its way into columns."""

    def __init__(self, place: str, limits: Limits, *, runs: bool) -> None:
        self.place, self.limits = place, limits
        self.sizes, self.texts, self.files = _Sizes(), _Texts(), _Texts()
        self.chunk_offset, self.chunk_extent = array("i"), array("i")
        self.entries = (array("i"), array("i"), array("i"), array("q"), array("q"))
        self.names: dict[tuple[str, str], Name] = {("torch", "Size"): torch_name("torch", "Size") or Name("torch", "Size")}
        self.rows = Name("", "rows")
        self.skipped = False
        self.info: Inert | None = None
        self.shortcuts: dict[tuple[str, str], Callable[..., tuple[int, int] | None]] = {}
        if runs:
            self.shortcuts = {(_METADATA, "ChunkStorageMetadata"): _Chunks(self), (_METADATA, "MetadataIndex"): _Entries(self),
                              (_PLANNER, "WriteItem"): _Plans(self),
                              (_STORAGE, "_StorageInfo"): self.remember}  # fmt: skip

    def remember(self, data: Any, at: int, stack: list[Any], memo: list[Any]) -> None:  # noqa: ARG002
        self.info = self.info or stack[-1]

    def find(self, module: str, name: str) -> Name:
        key = module, name
        if key not in self.names:
            if key in _CLASSES or key in _PLANS or key in _PATHS or key == ("torch.serialization", "_get_layout"):
                self.names[key] = Name(module, name, shortcut=self.shortcuts.get(key))
            else:
                found = torch_name(module, name) if module in ("torch", "collections") else None
                if found is None:
                    raise refused("free of names that a .metadata has no need of", f"{module} {name}")
                self.names[key] = found
        return self.names[key]

    def mark(self, memo: list[Any]) -> tuple[int, ...]:
        """Where the columns and the memo end, and the tables of sizes and texts."""
        texts = len(self.texts.places) + len(self.files.places)
        return len(self.chunk_offset), len(self.entries[0]), len(memo), len(self.sizes.all), texts

    def grown(self, before: tuple[int, ...], memo: list[Any]) -> int:
        """Bytes that all of them grew by, rather too many."""
        now = self.mark(memo)
        chunks, entries, memos, _, texts = (end - start for start, end in zip(before, now, strict=True))
        return 8 * chunks + 28 * entries + 9 * memos + 1000 * texts + sum(500 + 100 * len(size) for size in self.sizes.all[before[3] :])

    def back(self, before: tuple[int, ...], memo: list[Any]) -> None:
        """Take back what came since."""
        del self.chunk_offset[before[0] :], self.chunk_extent[before[0] :], memo[before[2] :]
        for each in self.entries:
            del each[before[1] :]

    def document(self, data: bytes) -> Document:
        root = unpickled(data, place=self.place, limits=self.limits, find=self.find)
        state = self.state(root, "Metadata", "the root")
        tensors, objects, places = self.tensors(self.held(state, "state_dict_metadata"))
        transformed = self.stored(self.held(state, "storage_data"))
        most = self.limits.fragments
        if len(self.chunk_offset) > most or len(self.entries[0]) > most:
            fix = "Raise the cap with limits=Limits(...) if you trust it."
            raise InputError(self.place, f"of at most {most:,} fragments", Shown(f"{len(self.chunk_offset):,}"), fix)
        offset, extent = (np.array(each, np.int32) for each in (self.chunk_offset, self.chunk_extent))
        order = np.argsort(places, kind="stable")
        self.check_axes(tensors, places, offset, extent)
        columns = [np.array(each, f"i{each.itemsize}") for each in self.entries]
        return Document(
            tensors=tuple(tensors), objects=tuple(objects), sizes=self.sizes.all,
            chunk_tensor=places[order], chunk_offset=offset[order], chunk_extent=extent[order],
            names=tuple(self.texts.places), files=tuple(self.files.places),
            entry_name=columns[0], entry_offset=columns[1], entry_file=columns[2], entry_start=columns[3], entry_length=columns[4],
            transformed=frozenset(transformed),
        )  # fmt: skip

    def check_axes(self, tensors: list[TensorInfo], places: Column, offset: Column, extent: Column) -> None:
        axes = np.array([len(size) for size in self.sizes.all] or [0])
        wanted = np.array([len(each.global_shape) for each in tensors] + [0])[places]
        wrong = np.flatnonzero((axes[offset] != wanted) | (axes[extent] != wanted))
        if len(wrong):
            row = int(wrong[0])
            tensor, got = tensors[places[row]], self.sizes.all[extent[row] if axes[extent[row]] != wanted[row] else offset[row]]
            where, rule = f"{self.place}: {label(tensor.name)}: chunks", f"of {len(tensor.global_shape)} axes each"
            raise InputError(where, rule, got, _FIX)

    def wrong(self, where: str, rule: str, value: Any) -> InputError:
        if type(value) is _Skipped:
            raise _UnusualError
        got = f"{value.of.module}.{value.of.name}"[:80] if type(value) is Inert else type(value).__name__
        return InputError(f"{self.place}: {label(where)}", rule, Shown(got), _FIX)

    def state(self, value: Any, name: str, where: str) -> Any:
        """The fields of an object of one class."""
        if type(value) is not Inert or _CLASSES.get((value.of.module, value.of.name)) != name:
            raise self.wrong(where, f"a {name}", value)
        if type(value.state) is not dict and name != "TensorProperties":
            raise self.wrong(where, f"a {name} with fields", value.state)
        return value.state

    def held(self, state: dict[Any, Any], key: str) -> dict[Any, Any]:
        found = state.get(key)
        if type(found) is not dict:
            raise self.wrong(key, "a dict", found)
        return found

    def tensors(self, held: dict[Any, Any]) -> tuple[list[TensorInfo], list[str], Column]:
        tensors: list[TensorInfo] = []
        objects: list[str] = []
        places = array("i", bytes(4 * len(self.chunk_offset)))
        whole = np.frombuffer(places, np.int32)
        whole[:] = -1
        del whole
        lists: set[int] = set()
        for name, value in held.items():
            if type(name) is not str or len(name) > _LONGEST_NAME:
                raise self.wrong("state_dict_metadata", "of names that are text", name)
            if type(value) is Inert and _CLASSES.get((value.of.module, value.of.name)) == "BytesStorageMetadata":
                objects.append(name)
                continue
            state = self.state(value, "TensorStorageMetadata", name)
            shape = self.numbers(state.get("size"), f"{name}: size")
            tensors.append(TensorInfo(name=name, dtype=self.dtype(state.get("properties"), name), global_shape=shape))
            chunks = state.get("chunks")
            if type(chunks) is not list or id(chunks) in lists:
                raise self.wrong(f"{name}: chunks", "a list of its own", chunks)
            lists.add(id(chunks))
            self.chunks(chunks, len(tensors) - 1, name, places)
        if -1 in places:
            raise _UnusualError
        return tensors, objects, np.array(places, np.int32)

    def chunks(self, chunks: list[Any], place: int, name: str, places: array[int]) -> None:
        for each in chunks:
            if type(each) is _Rows:
                for row in (each.start, each.stop - 1):
                    if places[row] != -1:
                        raise _UnusualError
                places[each.start : each.stop] = array("i", (place,)) * (each.stop - each.start)
                continue
            state = self.state(each, "ChunkStorageMetadata", f"{name}: chunks")
            self.chunk_offset.append(self.sizes.place(self.numbers(state.get("offsets"), f"{name}: offsets")))
            self.chunk_extent.append(self.sizes.place(self.numbers(state.get("sizes"), f"{name}: sizes")))
            places.append(place)

    def numbers(self, value: Any, where: str) -> tuple[int, ...]:
        if type(value) is _Skipped:
            raise _UnusualError
        try:
            return whole_numbers(value)
        except InputError as error:
            raise error.at(f"{self.place}: {label(where)}") from None

    def dtype(self, properties: Any, name: str) -> str:
        state = self.state(properties, "TensorProperties", f"{name}: properties")
        first = state.get("dtype") if type(state) is dict else state[0] if type(state) is tuple and state else None
        try:
            return dtype_of(first)
        except InputError as error:
            raise error.at(f"{self.place}: {label(name)}: dtype") from None

    def stored(self, held: dict[Any, Any]) -> set[int]:
        """Storage entries that went by opcode, into the columns; which of them were transformed."""
        transformed: set[int] = set()
        left = len(self.entries[0])
        for key, value in held.items():
            if type(key) is Inert and key.of is self.rows:
                left -= key.args[0].stop - key.args[0].start
                continue
            index = self.state(key, "MetadataIndex", "storage_data")
            name = index.get("fqn")
            if type(name) is not str:
                raise self.wrong("storage_data: fqn", "text", name)
            where = f"storage_data of {name}"
            info = self.state(value, "_StorageInfo", where)
            offset = index.get("offset")
            numbers = self.numbers((info.get("offset"), info.get("length")), where)
            file = info.get("relative_path")
            if type(file) is not str:
                raise self.wrong(f"{where}: relative_path", "text", file)
            if info.get("transform_descriptors"):
                transformed.add(len(self.entries[0]))
            place = -1 if offset is None else self.sizes.place(self.numbers(offset, where))
            row = (self.texts.place(name), place, self.files.place(file), *numbers)
            for column, number in zip(self.entries, row, strict=True):
                column.append(number)
        if left:
            raise _UnusualError
        return transformed
