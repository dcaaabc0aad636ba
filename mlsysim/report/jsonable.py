"""Answers as JSON: base units, stable keys, no NaN and no Infinity."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from mlsysim.units import Quantity

__all__ = ["jsonable"]


def jsonable(value: Any) -> Any:
    """A value as JSON takes it.

    A quantity is ``{"magnitude": ..., "unit": ...}`` in base units; an infinite one has ``"magnitude": null, "never": true``.
    A record has its public fields, computed ones that it names in ``json_fields`` among them.

    Examples
    --------
    >>> from mlsysim import Q_
    >>> jsonable(Q_("2.45 TB")), jsonable(Q_(float("inf"), "s"))
    ({'magnitude': 2450000000000.0, 'unit': 'byte'}, {'magnitude': None, 'unit': 'second', 'never': True})
    """
    if isinstance(value, Quantity):
        base = value.base
        if isinstance(base, np.ndarray):
            return {"magnitude": jsonable(base), "unit": _unit(value)}
        if math.isfinite(base):
            return {"magnitude": base, "unit": _unit(value)}
        return {"magnitude": None, "unit": _unit(value), "never": True}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, dict):
        return {str(key): jsonable(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(each) for each in value]
    if attrs.has(type(value)):
        names = getattr(value, "json_fields", None) or [each.name for each in attrs.fields(type(value))]
        return {name: jsonable(getattr(value, name)) for name in names}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.item() if isinstance(value, np.generic) else value


def _unit(value: Quantity) -> str:
    return str(value.base_units).replace(" ", "")
