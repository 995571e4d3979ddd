"""An engine of several processes lives and dies as one: Ray sees one actor, and nothing of it stays behind.

vLLM would report a worker's death as an error of the next call and end the others in its own time, and could not end
one that hangs in a collective or is stopped.
"""

from __future__ import annotations

import ctypes
import os
import signal
from multiprocessing.connection import wait
from threading import Thread
from typing import Any

from vllm.v1.executor.multiproc_executor import MultiprocExecutor

LOST_WORKER = 70  # exit status
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class OneFate(MultiprocExecutor):  # type: ignore[misc]  # Any, where vLLM is not installed
    """Workers whose death is the death of the process that started them."""

    def start_worker_monitor(self, inline: bool = False) -> None:
        """Watch the workers, in place of vLLM's own watch."""
        sentinels = [worker.proc.sentinel for worker in self.workers]
        Thread(target=_end_with_first, args=(self, sentinels), daemon=True).start()


def _end_with_first(executor: OneFate, sentinels: list[int]) -> None:
    wait(sentinels)
    if not getattr(executor, "shutting_down", False):
        os._exit(LOST_WORKER)


def die_with(_worker: Any, parent: int) -> None:
    """Have the kernel kill this process once its parent is gone, however that ends and whatever this one does.

    To be called in a worker, with the process id of its parent.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before the kernel was told
        os._exit(LOST_WORKER)
