"""What a rank is asked to do in tests of a learner over several ranks; everything it returns is plain."""

import errno
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from prorl.cluster.weights import collect
from prorl.learn.learner import TorchLearner
from prorl.learn.parallel import Ranks, full_weights
from prorl.types import Batch, HParams
from support.learners import flat, learner, qwen2


def made(model: dict[str, Any], settings: dict[str, Any], *, alone: bool) -> TorchLearner:
    """A learner of this process alone, or a rank of one over the whole group."""
    return learner(qwen2(**model), ranks=None if alone else Ranks.joined("cpu"), **settings)


def outcome(one: TorchLearner) -> dict[str, list[float]]:
    """The whole weights."""
    return {name: weight.flatten().tolist() for name, weight in full_weights(one.policy)}


def train(
    model: dict[str, Any],
    settings: dict[str, Any],
    steps: Sequence[tuple[Batch, HParams]],
    *,
    alone: bool = False,
    restore: Path | None = None,
    save: Path | None = None,
    turns: bool = False,
) -> tuple[dict[str, list[float]], list[dict[str, Any]]]:
    """Weights and statistics after some steps, from a stored state and into one if asked to.

    `turns`: others use the devices before every step.
    """
    one = made(model, settings, alone=alone)
    if restore is not None:
        one.restore(restore)
        one.reset_reference(restore / "reference", clear_optimizer=False)
    stats = []
    for batch, hparams in steps:
        if turns:
            one.stow()
            one.fetch()
        stats.append(flat(one.begin_update(batch, hparams)()))
    if save is not None:
        (save / "reference").mkdir(parents=True, exist_ok=True)
        write = one.snapshot()
        one.save_reference(save / "reference")
        write(save)
    return outcome(one), stats


def on_ranks(arguments: dict[str, Any]) -> Any:
    """`train` with keyword arguments."""
    return train(**arguments)


def write_when_there_is_room(folder: Path) -> list[str]:
    """How two writes of a rank ended, the first while the disk of whoever writes the model was full."""
    one = made({}, {}, alone=False)
    save = one.policy.save_pretrained

    def full(*_arguments: Any, **_options: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    ended = []
    for write in (full, save):
        one.policy.save_pretrained = write
        try:
            one.snapshot()(folder)
            ended.append("written")
        except OSError as error:
            ended.append(str(error.strerror))
    return ended


def probe(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> list[float]:
    """What the ranks say about a response."""
    return made({}, {}, alone=False).score(prompt, tokens)


def collected(dtype: torch.dtype) -> int:
    """The checksum of what a rank would send to the engines."""
    return collect(made({}, {}, alone=False).policy, 0, dtype).checksum


class HostMemory(TorchDispatchMode):
    """The most bytes in host memory that tensors made inside the block have held at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._held: dict[int, int] = {}

    def __torch_dispatch__(
        self, function: Callable[..., Any], types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        made = function(*arguments, **(options or {}))
        for leaf in tree_leaves(made):
            tensor = leaf._local_tensor if isinstance(leaf, DTensor) else leaf
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                storage = tensor.untyped_storage()
                if storage._cdata not in self._held:
                    self._held[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self._held.pop, storage._cdata)
        self.most = max(self.most, sum(self._held.values()))
        return made


def memory_to_begin(settings: dict[str, Any]) -> float:
    """The most host memory that a rank needs to make policy and reference, in models that are whole."""
    with HostMemory() as memory:
        one = made(
            {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 8}, settings, alone=False
        )
    return memory.most / sum(4 * weight.numel() for weight in one.policy.parameters())
