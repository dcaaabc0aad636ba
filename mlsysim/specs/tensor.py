"""An array by its name, shape and element type."""

from __future__ import annotations

import math
from typing import Any

from attrs import field, frozen

from mlsysim.errors import InputError, nearest
from mlsysim.fields import part
from mlsysim.specs.dtypes import bits_of, known_dtypes

__all__ = ["Tensor"]


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, (tuple, list)) and all(type(size) is int and size >= 0 for size in value):
        return tuple(value)
    raise InputError("Tensor.shape", "whole numbers of at least 0", value, "Write shape=(4096, 4096), or () for a scalar.")


def _dtype(value: Any) -> str:
    if not isinstance(value, str) or value not in known_dtypes():
        raise InputError("Tensor.dtype", "a known element type", value, nearest(value, known_dtypes()))
    return str(value)


@frozen(kw_only=True)
class Tensor:
    """An array by its name, shape and element type.

    Parameters
    ----------
    name, dtype : str
        The element type by numpy's or ml_dtypes' name.
    shape : tuple of int

    Raises
    ------
    InputError
        If the shape is not of whole numbers, or the element type is not known.

    Examples
    --------
    >>> Tensor(name="w", shape=(4096, 4096), dtype="bfloat16").bytes
    33554432
    """

    name: str = part()
    shape: tuple[int, ...] = field(converter=_shape)
    dtype: str = field(converter=_dtype)

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of one copy, packed."""
        return (self.elements * bits_of(self.dtype) + 7) // 8
