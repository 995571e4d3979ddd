"""CPU time of a call, on a machine that does other things too."""

import gc
import time
from collections.abc import Callable

TRIES = 5


def cpu_seconds(call: Callable[[], object], *, enough: float) -> float:
    """Shortest CPU time of up to five calls without garbage collection; stops at the first below `enough`.

    One collection of a large test process takes half a second. A slow algorithm is slow every time.
    """
    least = float("inf")
    for _ in range(TRIES):
        gc.disable()
        begin = time.process_time()
        try:
            call()
        finally:
            gc.enable()
        least = min(least, time.process_time() - begin)
        if least < enough:
            break
    return least
