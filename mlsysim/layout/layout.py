"""What a checkpoint holds, real or predicted: one columnar layout for all formats.

One row per fragment: which tensor, which rank wrote it, in which file, where it lies in the tensor, how many bytes.
A reader fills the columns and hands over a ``Payload`` that can fetch the bytes of a row; nothing else differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from attrs import field, frozen

from mlsysim.errors import InputError, Shown, nearest
from mlsysim.fields import INFORMATION, give, take_count
from mlsysim.specs.dtypes import bits_of
from mlsysim.units import Quantity

if TYPE_CHECKING:
    from mlsysim.layout.findings import Finding, Report

__all__ = ["CheckpointLayout", "Files", "Fragments", "Payload", "TensorInfo"]

Column = np.ndarray[Any, np.dtype[Any]]
UNKNOWN = -1


@frozen(kw_only=True)
class TensorInfo:
    """A tensor as a whole.

    Parameters
    ----------
    name, dtype : str
        The element type by numpy's or ml_dtypes' name.
    global_shape : tuple of int
    """

    name: str
    dtype: str
    global_shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.global_shape:
            count *= extent
        return count

    @property
    def bytes(self) -> int:
        """Bytes of one copy."""
        return (self.elements * bits_of(self.dtype) + 7) // 8


@frozen(kw_only=True, eq=False)
class Fragments:
    """The columns: one row per fragment, ``-1`` where the format does not tell.

    Parameters
    ----------
    tensor, rank, file : array (rows,) of int32
        Places in ``tensors``, the rank that wrote it, place in ``files``.
    offset, extent : array (rows, axes) of int64
        Where it lies in the tensor; axes that a tensor does not have are 0 and 1.
    payload_bytes : array (rows,) of int64
        Bytes of tensor content, padding included where it is stored.
    stored_bytes, file_offset : array (rows,) of int64
        Bytes in the file with the container's overhead, and where they begin.
    """

    tensor: Column
    rank: Column
    file: Column
    offset: Column
    extent: Column
    payload_bytes: Column
    stored_bytes: Column
    file_offset: Column

    def __attrs_post_init__(self) -> None:
        for each in attrs.fields(type(self)):
            getattr(self, each.name).flags.writeable = False

    def __len__(self) -> int:
        return len(self.tensor)

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[int, int, int, Sequence[int], Sequence[int], int, int, int]]) -> Fragments:
        """Columns from rows ``(tensor, rank, file, offset, extent, payload_bytes, stored_bytes, file_offset)``."""
        axes = max((len(row[3]) for row in rows), default=0)
        offset, extent = np.zeros((len(rows), axes), np.int64), np.ones((len(rows), axes), np.int64)
        for number, row in enumerate(rows):
            offset[number, : len(row[3])] = row[3]
            extent[number, : len(row[4])] = row[4]
        narrow = [np.array([row[place] for row in rows], np.int32) for place in (0, 1, 2)]
        wide = [np.array([row[place] for row in rows], np.int64) for place in (5, 6, 7)]
        return cls(
            tensor=narrow[0], rank=narrow[1], file=narrow[2], offset=offset, extent=extent,
            payload_bytes=wide[0], stored_bytes=wide[1], file_offset=wide[2],
        )  # fmt: skip


@frozen(kw_only=True, eq=False)
class Files:
    """The data files.

    Parameters
    ----------
    names : tuple of str
        Relative to the checkpoint's folder, with ``/``.
    rank : array (files,) of int32
        Who wrote it; ``-1`` where the format does not tell, or many did.
    size : array (files,) of int64
        Bytes on disk; ``-1`` where the file is not there.
    """

    names: tuple[str, ...]
    rank: Column
    size: Column

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[str, int, int]]) -> Files:
        """Columns from rows ``(name, rank, size)``."""
        return cls(
            names=tuple(row[0] for row in rows),
            rank=np.array([row[1] for row in rows], np.int32),
            size=np.array([row[2] for row in rows], np.int64),
        )


class Payload:
    """How a format's bytes are fetched and checked. Abstract; a reader brings its own."""

    __slots__ = ()

    def read(self, row: int) -> Column:
        """The elements of a fragment, padding left out: an array of its extent in the tensor's element type.

        Raises
        ------
        InputError
            If the bytes are not there or not what they should be.
        """
        raise NotImplementedError

    def findings(self, layout: CheckpointLayout) -> Iterator[Finding]:  # noqa: ARG002
        """What the format's own structure shows to be wrong, without payload: headers, digests of documents, members."""
        yield from ()

    def payload_findings(self, layout: CheckpointLayout, advance: Any = None) -> Iterator[Finding]:  # noqa: ARG002
        """What only reading the payload shows: digests, padding, replicas. ``advance(bytes)`` tells progress."""
        yield from ()


@frozen(kw_only=True, eq=False, repr=False, slots=False)
class CheckpointLayout:
    """What a checkpoint holds: who wrote which bytes of which tensor.

    Parameters
    ----------
    format : str
        ``"pytorch_dcp"``, ``"safetensors"``, ...; ``"predicted"`` for one that does not exist yet.
    tensors : tuple of TensorInfo
    fragments : Fragments
    data_files : Files
    ranks : int or None
        Ranks that took part; None where the format does not tell.
    replicas_recorded : bool
        Whether the format can tell replicas at all.
    root : Path or None
        The folder; None for a predicted layout.
    path : Path or None
        What was read, as given; None for a predicted layout.
    metadata_files : dict of str to int
        Files without payload, and their sizes.
    objects : tuple of str
        What is stored and is no tensor.
    payload : Payload or None
    notes : tuple of str
        What a reader should know, in sentences.
    untold : str
        What to install to be told the tensors; empty where they are told.
    manifest : str or None
        Digest of the list of fragments, where the format defines one.
    details : dict
        What a format says beyond the common columns.
    """

    format: str
    tensors: tuple[TensorInfo, ...]
    fragments: Fragments
    data_files: Files
    ranks: int | None
    replicas_recorded: bool
    root: Path | None = None
    path: Path | None = None
    metadata_files: dict[str, int] = field(factory=dict)
    objects: tuple[str, ...] = ()
    payload: Payload | None = None
    notes: tuple[str, ...] = ()
    untold: str = ""
    manifest: str | None = None
    details: dict[str, Any] = field(factory=dict)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the data files."""
        return self.data_files.names

    @cached_property
    def _logical(self) -> int:
        self._want_tensors()
        return sum(each.bytes for each in self.tensors)

    @property
    def logical_bytes(self) -> Quantity:
        """Each tensor once."""
        return give(float(self._logical), INFORMATION)

    @property
    def payload_bytes(self) -> Quantity:
        """Tensor bytes as written, replicas included.

        Raises
        ------
        InputError
            If the tensors could not be told.
        """
        self._want_tensors()
        return give(float(self.fragments.payload_bytes.sum()), INFORMATION)

    @property
    def stored_bytes(self) -> Quantity:
        """Size of the data files, containers included.

        Raises
        ------
        InputError
            If a data file is not there: its size is unknown.
        """
        return give(float(self._sizes().sum()), INFORMATION)

    @property
    def held_bytes(self) -> Quantity:
        """What all ranks held together, every replica counted.

        Raises
        ------
        InputError
            If the format does not tell how many ranks held each tensor.
        """
        self._want_tensors()
        held: dict[str, int] | None = self.details.get("replicas_held")
        if held is not None:
            return give(float(sum(each.bytes * held.get(each.name, 1) for each in self.tensors)), INFORMATION)
        if self.replicas_recorded:
            return self.payload_bytes
        fix = "Multiply logical_bytes by the number of replicas that you know of."
        raise InputError("held_bytes", "asked of a format that records replicas", self.format, fix)

    @property
    def metadata_bytes(self) -> Quantity:
        """Size of the files without payload."""
        return give(float(sum(self.metadata_files.values())), INFORMATION)

    @property
    def bytes_per_rank(self) -> Quantity:
        """Payload that each rank wrote, shape (ranks,).

        Raises
        ------
        InputError
            If the format does not tell the rank, or the tensors could not be told.
        """
        self._want_tensors()
        return give(self._by_rank(self.fragments.rank, self.fragments.payload_bytes), INFORMATION)

    @property
    def stored_bytes_per_rank(self) -> Quantity:
        """Size of the files that each rank wrote, shape (ranks,); a file that no one rank wrote is left out.

        Raises
        ------
        InputError
            If the format does not tell the rank, or a file is not there.
        """
        known = self.data_files.rank >= 0
        # where no file tells its rank, all are asked for it, and that is refused
        known |= not known.any()
        return give(self._by_rank(self.data_files.rank[known], self._sizes()[known]), INFORMATION)

    @property
    def bytes_per_file(self) -> Quantity:
        """Size of each data file, in the order of ``files``."""
        return give(self._sizes().astype(np.float64), INFORMATION)

    def bytes_per_node(self, ranks_per_node: int) -> Quantity:
        """Stored bytes by node, where consecutive ranks share one; shape (nodes,).

        Raises
        ------
        InputError
            If ranks_per_node is no whole number of at least 1, or the format does not tell the rank.
        """
        count = take_count(ranks_per_node, "CheckpointLayout.bytes_per_node.ranks_per_node")
        by_rank = self.stored_bytes_per_rank.base
        return give(np.add.reduceat(by_rank, np.arange(0, len(by_rank), count)), INFORMATION)

    @property
    def replication(self) -> float:
        """Payload over logical bytes: how many copies were written, on average."""
        return float(self.fragments.payload_bytes.sum()) / self._logical if self._logical else 1.0

    @property
    def imbalance(self) -> float:
        """Payload of the largest rank over the mean of the ranks."""
        by_rank = self.bytes_per_rank.base
        mean = float(by_rank.mean())
        return float(by_rank.max()) / mean if mean else 1.0

    @property
    def manifest_digest(self) -> str:
        """Digest of the list of fragments, ``sha256:...``.

        Raises
        ------
        InputError
            If the format defines none.
        """
        if self.manifest is None:
            raise InputError("manifest_digest", "asked of a format that defines one", self.format, "Use verify(payload=True) instead.")
        return self.manifest

    def verify(self, payload: bool = False, *, advance: Any = None) -> Report:
        """Check the layout, and with ``payload`` every byte that has something to be checked against.

        Parameters
        ----------
        payload : bool
            Whether to read the payload.
        advance : callable, optional
            Called with the number of bytes read since the last call.

        Returns
        -------
        Report
            A fault is a finding, never an exception.
        """
        from mlsysim.layout.verification import verify

        return verify(self, payload, advance)

    def reassemble(self, name: str) -> Column:
        """One whole tensor.

        Raises
        ------
        InputError
            If there is no such tensor, a part of it is in no fragment, or a payload cannot be read.
        """
        from mlsysim.layout.reassembly import reassemble

        return reassemble(self, self.place_of(name))

    def reassemble_all(self, out: str | Path, *, advance: Any = None) -> None:
        """Every tensor, whole, into one safetensors file, in bounded memory; nothing is left behind on failure.

        Raises
        ------
        InputError
            As ``reassemble``; or if the element type has no name in safetensors.
        """
        from mlsysim.layout.reassembly import reassemble_all

        reassemble_all(self, Path(out), advance)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {each.name: place for place, each in enumerate(self.tensors)}

    def place_of(self, name: str) -> int:
        """Place of a tensor in ``tensors``; an unknown name is refused with the nearest."""
        if name not in self._places:
            raise InputError("tensor", "the name of one in the checkpoint", name, nearest(name, self._places))
        return self._places[name]

    @cached_property
    def _by_tensor(self) -> tuple[Column, Column]:
        order = np.argsort(self.fragments.tensor, kind="stable")
        return order, np.searchsorted(self.fragments.tensor[order], np.arange(len(self.tensors) + 1))

    def rows_of(self, place: int) -> Column:
        """Rows of ``fragments`` that belong to the tensor at a place."""
        order, starts = self._by_tensor
        return order[starts[place] : starts[place + 1]]

    def _want_tensors(self) -> None:
        if self.untold:
            raise InputError(f"a {self.format} layout", "read with what tells its tensors", Shown("one read without"), self.untold)

    def _sizes(self) -> Column:
        missing = np.flatnonzero(self.data_files.size < 0)
        if len(missing):
            name = self.files[int(missing[0])]
            got = Shown(f"{name} missing")
            raise InputError("stored_bytes", "asked where every data file is there", got, "Use payload_bytes, or verify().")
        return self.data_files.size

    def _by_rank(self, rank: Column, amount: Column) -> Column:
        if self.ranks is None or (len(rank) and int(rank.min()) < 0):
            fix = "Use bytes_per_file, or read the checkpoint of the ranks before they were merged."
            raise InputError("bytes_per_rank", "asked of a format that records the rank", self.format, fix)
        return np.bincount(rank, weights=amount, minlength=self.ranks)

    def __repr__(self) -> str:
        from mlsysim.layout.card import card_of

        return card_of(self).text()

    def _repr_html_(self) -> str:
        from mlsysim.layout.card import card_of

        return card_of(self).html()
