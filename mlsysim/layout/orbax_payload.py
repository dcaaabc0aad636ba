"""The elements of an Orbax checkpoint's chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlsysim.errors import InputError, Shown
from mlsysim.layout.findings import Finding
from mlsysim.layout.layout import CheckpointLayout, Column, Fragments, Payload, TensorInfo
from mlsysim.layout.limits import Limits
from mlsysim.layout.orbax_codec import INSTALL, LIBRARY
from mlsysim.layout.orbax_tree import MANIFEST, read_slice
from mlsysim.layout.orbax_zarr import ZarrArray, decoded, filled

__all__ = ["OrbaxPayload"]


class OrbaxPayload(Payload):
    """Fetches and decodes chunks; knows what reading the layout showed to be wrong."""

    __slots__ = ("_arrays", "_files", "_found", "_fragments", "_inline", "_limits", "_root", "_tensors")

    def __init__(
        self, root: Path, limits: Limits, files: tuple[str, ...], tensors: tuple[TensorInfo, ...], fragments: Fragments,
        arrays: list[ZarrArray], inline: dict[int, bytes], found: list[Finding],
    ):  # fmt: skip
        self._root, self._limits, self._files, self._tensors, self._fragments = root, limits, files, tensors, fragments
        self._arrays, self._inline, self._found = arrays, inline, tuple(found)

    def read(self, row: int) -> Column:
        """The elements of a chunk, cut to the tensor."""
        fragments, place = self._fragments, int(self._fragments.tensor[row])
        array, name = self._arrays[place], self._tensors[place].name
        extent = tuple(fragments.extent[row, : len(array.shape)].tolist())
        file = int(fragments.file[row])
        offset = fragments.offset[row, : len(array.shape)].tolist()
        there = f"{self._files[file] if file >= 0 else MANIFEST}: {name} at {offset}"
        # decoding holds a chunk two or three times
        most = min(self._limits.built_bytes // 2, 2**32 - 2**20)
        if file < 0 and row not in self._inline:
            return filled(array, extent, there, most)
        if file < 0:
            data = self._inline[row]
        else:
            stored = int(fragments.stored_bytes[row])
            if stored > most:
                fix = "Raise the cap with limits=Limits(built_bytes=...)."
                raise InputError(there, f"at most {most:,} byte", Shown(f"{stored:,}"), fix)
            data = read_slice(self._root, self._files[file], int(fragments.file_offset[row]), stored)
        whole = decoded(array, data, there, most)
        return whole[tuple(slice(0, reach) for reach in extent)]

    def findings(self, layout: CheckpointLayout) -> Iterator[Finding]:  # noqa: ARG002
        """What the documents and the database showed."""
        yield from self._found

    def payload_findings(self, layout: CheckpointLayout, advance: Any = None) -> Iterator[Finding]:
        """Every chunk must decode to its shape; there is no digest to compare with."""
        fragments, without = layout.fragments, 0
        for row in range(len(fragments)):
            file, rank = int(fragments.file[row]), int(fragments.rank[row])
            # a file that is not there is told already; a chunk that equals the fill value has no bytes
            if (file >= 0 and layout.data_files.size[file] < 0) or (file < 0 and row not in self._inline):
                continue
            try:
                self.read(row)
            except InputError as error:
                # where the library is missing, nothing is wrong with the checkpoint
                if error.place == LIBRARY:
                    without += 1
                    continue
                yield Finding(
                    kind="unreadable payload", message=str(error), tensor=self._tensors[int(fragments.tensor[row])].name,
                    rank=rank if rank >= 0 else None, file=self._files[file] if file >= 0 else None,
                )  # fmt: skip
            if advance is not None:
                advance(int(fragments.payload_bytes[row]))
        if without:
            message = f"{without:,} chunks were not looked at: {LIBRARY} is not there. {INSTALL}"
            yield Finding(kind="unreadable payload", severity="warning", message=message)
