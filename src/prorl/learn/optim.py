"""AdamW on float32 master weights: a guarded step, and optimizer state on disk.

A step whose gradient is not finite changes neither parameters nor moments, on any rank. Moments are written as
one file by the local backend, and by ranks as shards of torch's distributed checkpoint; both are read whatever
the number of ranks.
"""

import copy
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_shards
from torch.distributed.checkpoint.state_dict_saver import save as save_shards
from torch.distributed.tensor import DTensor

from prorl.learn.parallel import Ranks, gathered, host_copies, moved, sharded_like
from prorl.types import HParams

FILE, SHARDS = "optimizer.pt", "optimizer"


class GuardedAdamW:
    """AdamW that clips the gradient norm and refuses a gradient that is not finite."""

    def __init__(self, weights: Iterable[tuple[str, nn.Parameter]], ranks: Ranks, **settings: Any) -> None:
        """`weights` by name, which must be the same on all ranks; `settings` of AdamW."""
        self._weights = {name: weight for name, weight in weights if weight.requires_grad}
        self._ranks = ranks
        # The learning rate is a hyperparameter of every step, so none is kept here.
        self._adamw = torch.optim.AdamW(self._weights.values(), lr=0.0, fused=True, **settings)

    def zero_grad(self) -> None:
        """Forget the accumulated gradient."""
        self._adamw.zero_grad()

    def step(self, loss: Tensor, hparams: HParams) -> float | None:
        """Apply the accumulated gradient of the global `loss`; its norm before clipping, None if refused."""
        weights = self._weights.values()
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        norm = gathered(nn.utils.get_total_norm(gradients))
        # One transfer for both: a device-to-host copy waits for all queued work.
        value, length = torch.stack([loss.detach().to(norm), norm]).tolist()
        if not (abs(value) < float("inf") and length < float("inf")):
            self.zero_grad()
            return None
        nn.utils.clip_grads_with_norm_(weights, hparams.grad_clip, norm)
        for group in self._adamw.param_groups:
            group["lr"] = hparams.learning_rate
        self._adamw.step()
        self.zero_grad()
        return float(length)

    def clear(self) -> None:
        """Forget the moments and the step count of the bias correction."""
        self._adamw.state.clear()

    def move(self, device: torch.device) -> None:
        """Keep the moments on another device, to which the weights go too."""
        for moments in self._adamw.state.values():
            for key, value in moments.items():
                moments[key] = moved(value, device)

    def snapshot(self) -> Callable[[Path], None]:
        """Copy moments and step counts to host memory; the returned function writes them into a folder."""
        if self._ranks.mesh is not None:
            return self._shards()
        state = self._adamw.state_dict()
        kept = {
            "state": {index: host_copies(moments) for index, moments in state["state"].items()},
            # Without the rate of the last step, which an optimizer that has just been restored does not know.
            "param_groups": [copy.deepcopy(group) | {"lr": 0.0} for group in state["param_groups"]],
        }

        def write(folder: Path) -> None:
            with (folder / FILE).open("wb") as file:  # given a path, torch would not say why it cannot write
                torch.save(kept, file)

        return write

    def restore(self, folder: Path) -> None:
        """Read what a snapshot wrote; betas, eps and weight decay stay those this optimizer was made with."""
        state: dict[int, dict[str, Tensor]]
        if (folder / SHARDS).exists():
            state = self._read_shards(folder / SHARDS)
        else:
            state = torch.load(folder / FILE, map_location="cpu", weights_only=True)["state"]
        for index, weight in enumerate(self._weights.values()):
            for key, value in state.get(index, {}).items():
                if value.shape == weight.shape and not isinstance(value, DTensor):
                    state[index][key] = sharded_like(value, weight)
        own = self._adamw.state_dict()["param_groups"]
        self._adamw.load_state_dict({"state": state, "param_groups": own})

    def _shards(self) -> Callable[[Path], None]:
        kept = {
            f"{name}/{key}": value
            for name, weight in self._weights.items()
            for key, value in host_copies(self._adamw.state.get(weight, {})).items()
        }

        def write(folder: Path) -> None:
            save_shards(kept, checkpoint_id=folder / SHARDS, process_group=self._ranks.files)

        return write

    def _read_shards(self, folder: Path) -> dict[int, dict[str, Tensor]]:
        listed = FileSystemReader(folder).read_metadata().state_dict_metadata
        sizes = {key: entry.size for key, entry in listed.items() if isinstance(entry, TensorStorageMetadata)}
        state: dict[int, dict[str, Tensor]] = {}
        wanted: dict[str, Tensor] = {}
        for index, (name, weight) in enumerate(self._weights.items()):
            for key in (key for key in sizes if key.rpartition("/")[0] == name):
                # A moment lies over the ranks as its weight does, a step count does not.
                own = sizes[key] == weight.shape
                wanted[key] = (
                    torch.zeros_like(weight, requires_grad=False) if own else torch.zeros(sizes[key])
                )
                state.setdefault(index, {})[key.rpartition("/")[2]] = wanted[key]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # it is, where a rank is alone
            alone = self._ranks.mesh is None
            load_shards(wanted, checkpoint_id=folder, process_group=self._ranks.files, no_dist=alone)
        return state
