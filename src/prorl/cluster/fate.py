"""An engine of several processes lives and dies as one, so that for Ray it is one actor.

vLLM would report a worker's death as an error of the next call, which looks like a mistake of ours. What an actor
leaves behind when it is gone, hanging or not, Ray ends by itself: all of them are one process group.
"""

from __future__ import annotations

import os
from multiprocessing.connection import wait
from threading import Thread

from vllm.v1.executor.multiproc_executor import MultiprocExecutor

LOST_WORKER = 70  # exit status


class OneFate(MultiprocExecutor):  # type: ignore[misc]  # Any, where vLLM is not installed
    """Workers whose death is the death of the process that started them."""

    def start_worker_monitor(self, inline: bool = False) -> None:
        """Watch the workers, in place of vLLM's own watch."""
        Thread(target=self._end_with_the_first, daemon=True).start()

    def _end_with_the_first(self) -> None:
        wait([worker.proc.sentinel for worker in self.workers])
        if not getattr(self, "shutting_down", False):
            os._exit(LOST_WORKER)
