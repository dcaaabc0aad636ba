"""Element types by one name each: numpy's, and ml_dtypes' where numpy has none."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mlsysim.errors import InputError, nearest

__all__ = ["bits_of", "known_dtypes", "numpy_dtype"]

_NUMPY = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
          "complex64", "complex128")  # fmt: skip
_ML = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float8_e4m3", "float8_e3m4",
       "float8_e4m3b11fnuz", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "int4", "uint4", "int2", "uint2")  # fmt: skip
_SUB_BYTE = {"float6_e2m3fn": 6, "float6_e3m2fn": 6, "float4_e2m1fn": 4, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2}


def known_dtypes() -> tuple[str, ...]:
    """Every element type that a layout can hold."""
    return _NUMPY + _ML


@cache
def numpy_dtype(name: str, place: str = "dtype") -> np.dtype[Any]:
    """The numpy dtype of an element type; a sub-byte type has one element a byte, as ml_dtypes has it."""
    if name in _NUMPY:
        return np.dtype(name)
    if name in _ML:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    raise InputError(place, "a known element type", name, nearest(name, known_dtypes()))


@cache
def bits_of(name: str, place: str = "dtype") -> int:
    """Bits that one element takes where it is stored packed."""
    return _SUB_BYTE.get(name) or 8 * numpy_dtype(name, place).itemsize
