"""Processes of a gloo group that run the same function, as the ranks of a learner do."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

SECONDS = 120.0  # for the slowest answer, on a busy machine

Everywhere = Callable[..., list[Any]]


@contextmanager
def ranks(count: int, folder: Path) -> Iterator[Everywhere]:
    """`everywhere(function, *arguments)` runs a module-level function on all ranks and gives their results."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(count)]
    meeting = f"file://{folder / 'meeting'}"
    workers = [
        context.Process(target=_serve, args=(theirs, meeting, rank, count), daemon=True)
        for rank, (_, theirs) in enumerate(pipes)
    ]
    for worker in workers:
        worker.start()

    def everywhere(function: Callable[..., Any], *arguments: Any) -> list[Any]:
        for ours, _ in pipes:
            ours.send((function, arguments))
        return [_answer(ours) for ours, _ in pipes]

    try:
        yield everywhere
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _answer(pipe: Any) -> Any:
    assert pipe.poll(SECONDS), "a rank does not answer"
    failure, result = pipe.recv()
    assert failure is None, failure
    return result


def _serve(pipe: Any, meeting: str, rank: int, count: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=count)
    while True:
        function, arguments = pipe.recv()
        try:
            pipe.send((None, function(*arguments)))
        except Exception:
            pipe.send((traceback.format_exc(), None))
