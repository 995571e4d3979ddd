"""What workers are asked in tests; they import it by name."""

import gc
import os
import signal
import time

from prorl.learn.learner import gradient


def dies_once(held, given):
    """As `gradient`; whoever gets there first dies in the middle of it."""
    path, item = given
    for value in gradient(held, item):
        with path.open("ab", buffering=0) as file:
            file.write(b".")
            second = file.tell() == 2  # of one alone, also where two write at the same time
        if second:
            os.kill(os.getpid(), signal.SIGKILL)
        yield value


def hangs(held, item):
    """Stops itself, as a process that never answers."""
    if item:
        os.kill(os.getpid(), signal.SIGSTOP)
    yield item


def dies_after_its_first_answer(held, item):
    """Again and again at the same place, as where memory is short."""
    yield item
    os.kill(os.getpid(), signal.SIGKILL)


def waits(held, item):
    """Takes so many seconds for each of its answers."""
    for seconds in item:
        time.sleep(seconds)
        yield seconds


def collects(held, item):
    """How many objects a collection would look through."""
    yield len(gc.get_objects())


def lingers(held, seconds):
    """Says which process it is, and is done only later."""
    yield os.getpid()
    time.sleep(seconds)


def begins(held, item):
    """When it begins, by a clock that all processes share."""
    yield time.monotonic()


def counts(held, item):
    """The size of what was sent."""
    yield len(item)


def echoes(held, item):
    """What was sent."""
    yield item


class OddError(Exception):
    """Cannot be made again from what it is pickled as."""

    def __init__(self, *, of):
        super().__init__(f"no {of}")


def opens(held, path):
    """Raises what a worker that ended would seem to raise."""
    with open(path, "rb") as file:
        yield file.read()


def fails(held, item):
    """Raises what can be sent, or what cannot."""
    raise KeyError(f"no {item}") if item == "bread" else OddError(of=item)
    yield
