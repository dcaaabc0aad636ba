"""A parallel plan as people write it: ``"tp=8,pp=16,dp=70,zero=1"``."""

from __future__ import annotations

import re
from typing import Any

from mlsysim.errors import InputError, nearest
from mlsysim.specs.parallel import ParallelPlan
from mlsysim.specs.sharding import Flat, Pieces, Rows
from mlsysim.specs.writers import Balanced, EveryHolder, FullyParallel, LowestRank, ReplicaParallel

__all__ = ["plan_from_text"]

_COUNTS = {
    "tp": "tensor", "pp": "pipeline", "dp": "data", "cp": "context", "ep": "expert", "zero": "zero", "shard": "shard_group",
    "vocab": "vocabulary_multiple", "devices": "devices_per_process",
}  # fmt: skip
_OBJECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "writers": (
        "writers",
        {"balanced": Balanced, "lowest": LowestRank, "every": EveryHolder, "parallel": FullyParallel, "replica": ReplicaParallel},
    ),
    "sharding": ("sharding", {"rows": Rows, "flat": Flat, "pieces": Pieces}),
}


def plan_from_text(text: str) -> ParallelPlan:
    """A plan from its short form.

    Parameters
    ----------
    text : str
        ``key=value`` with commas between: tp, pp, dp, cp, ep, zero, shard, vocab, devices with whole numbers;
        ``writers`` balanced, lowest, every, parallel or replica; ``sharding`` rows, flat or pieces; ``layers`` as ``4+4+3``.

    Raises
    ------
    InputError
        If a key is unknown or given twice, or a value does not fit.

    Examples
    --------
    >>> plan_from_text("tp=8,pp=16,dp=70,zero=1").ranks
    8960
    """
    given: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals:
            raise InputError("--plan", "key=value with commas between", part, 'Write --plan "tp=8,pp=16,dp=70,zero=1".')
        name, read = _read(key, value)
        if name in given:
            raise InputError(f"--plan {key}", "given once", part, "Delete one of the two.")
        given[name] = read
    return ParallelPlan(**given)


def _read(key: str, value: str) -> tuple[str, Any]:
    if key in _OBJECTS:
        name, choices = _OBJECTS[key]
        if value not in choices:
            raise InputError(f"--plan {key}", f"one of {', '.join(choices)}", value, nearest(value, choices))
        return name, choices[value]()
    if key == "layers":
        return "stage_layers", tuple(_whole(key, each) for each in value.split("+"))
    if key not in _COUNTS:
        raise InputError("--plan", "made of known keys", key, nearest(key, [*_COUNTS, *_OBJECTS, "layers"]))
    return _COUNTS[key], _whole(key, value)


def _whole(key: str, value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value, re.ASCII):
        raise InputError(f"--plan {key}", "a whole number", value, f"Write {key}=8, say.")
    return int(value)
