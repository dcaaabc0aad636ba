"""Two things timed in turns, so that a busy moment of the machine hits both."""

import gc
import tracemalloc
from collections.abc import Callable
from time import perf_counter
from typing import Any


def fastest(*things: Callable[[], Any], rounds: int, calls: int = 1) -> list[float]:
    """The shortest time of one call of each, in seconds: the least disturbed."""
    best = [float("inf")] * len(things)
    for _ in range(rounds):
        for number, thing in enumerate(things):
            start = perf_counter()
            for _ in range(calls):
                thing()
            best[number] = min(best[number], (perf_counter() - start) / calls)
    return best


def peak_memory(thing: Callable[[], Any]) -> float:
    """The most bytes that one call holds at a time, its answer included."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = thing()
        peak = tracemalloc.get_traced_memory()[1]
        del kept
        return peak
    finally:
        tracemalloc.stop()
