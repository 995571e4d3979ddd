"""What reading results costs this process, in a unit that a busy machine stretches as much as what is measured."""

import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

_NESTED = "[" + ",".join(["[" * 97 + "]" * 97] * 2600) + "]"  # half a megabyte, a quarter of a million values


class Cost:
    """Processor time of a block, in parses of `_NESTED` just before or after it: about 0.05 s of an idle machine."""

    parses = 0.0


@contextmanager
def cost() -> Iterator[Cost]:
    """Measure a block. Garbage collections inside see no object from before, however many a test run holds."""
    measured = Cost()
    gc.collect()
    gc.freeze()
    try:
        before, begun = _unit(), time.thread_time()
        yield measured
        spent = time.thread_time() - begun
        measured.parses = spent / max(before, _unit())
    finally:
        gc.unfreeze()


def _unit() -> float:
    begun = time.thread_time()
    json.loads(_NESTED)
    return time.thread_time() - begun
