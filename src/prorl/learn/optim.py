"""AdamW on float32 master weights: a guarded step, and optimizer state on disk.

A step whose gradient is not finite changes neither parameters nor moments.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from prorl.learn.snapshot import host_copy


class GuardedAdamW:
    """AdamW that clips the gradient norm and refuses a gradient that is not finite."""

    def __init__(
        self, weights: Iterable[nn.Parameter], *, betas: tuple[float, float], eps: float, weight_decay: float
    ) -> None:
        self._weights = [weight for weight in weights if weight.requires_grad]
        # The learning rate is a knob of every step, so none is kept here.
        self._adamw = torch.optim.AdamW(
            self._weights, lr=0.0, betas=betas, eps=eps, weight_decay=weight_decay, fused=True
        )

    def zero_grad(self) -> None:
        """Forget the accumulated gradient."""
        self._adamw.zero_grad(set_to_none=True)

    def step(self, loss: Tensor, *, learning_rate: float, grad_clip: float) -> float | None:
        """Apply the accumulated gradient of `loss`; its norm before clipping, or None where the step was refused."""
        gradients = [weight.grad for weight in self._weights if weight.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        # One transfer for both: a device-to-host copy waits for all queued work.
        value, length = torch.stack([loss.detach().to(norm), norm]).tolist()
        if not (abs(value) < float("inf") and length < float("inf")):
            self.zero_grad()
            return None
        nn.utils.clip_grads_with_norm_(self._weights, grad_clip, norm)
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate
        self._adamw.step()
        self.zero_grad()
        return float(length)

    def clear(self) -> None:
        """Forget the moments and the step count of the bias correction."""
        self._adamw.state.clear()

    def snapshot(self) -> Callable[[Path], None]:
        """Copy moments and step counts to host memory; the returned function writes them to a file."""
        state = self._adamw.state_dict()
        kept = {
            "state": {index: host_copy(moments) for index, moments in state["state"].items()},
            # Without the rate of the last step, which an optimizer that has just been restored does not know.
            "param_groups": [copy.deepcopy(group) | {"lr": 0.0} for group in state["param_groups"]],
        }

        def write(path: Path) -> None:
            with path.open("wb") as file:  # given a path, torch would not say why it cannot write
                torch.save(kept, file)

        return write

    def restore(self, path: Path) -> None:
        """Read what a snapshot wrote; betas, eps and weight decay stay those this optimizer was made with."""
        saved = torch.load(path, map_location="cpu", weights_only=True)
        own = self._adamw.state_dict()["param_groups"]
        self._adamw.load_state_dict({"state": saved["state"], "param_groups": own})
