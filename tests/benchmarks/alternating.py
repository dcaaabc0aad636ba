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


# in a fresh process: the most memory that it held so far, in bytes. The kernel's own count of a process (ru_maxrss) starts from what
# the process that started it held, where /proc tells of this one alone.
PEAK = """
def peak():
    import resource
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
"""


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
