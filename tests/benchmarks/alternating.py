"""Two things timed in turns, so that a busy moment of the machine hits both."""

import gc
import tracemalloc
from collections.abc import Callable
from time import perf_counter
from typing import Any


def fastest(*things: Callable[[], Any], rounds: int, calls: int = 1, clock: Callable[[], float] = perf_counter) -> list[float]:
    """The shortest time of one call of each, in seconds: the least disturbed.

    What runs in one thread is best told by ``thread_time``, which stands still while another program has the processor.
    """
    best = [float("inf")] * len(things)
    for _ in range(rounds):
        for number, thing in enumerate(things):
            start = clock()
            for _ in range(calls):
                thing()
            best[number] = min(best[number], (clock() - start) / calls)
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
