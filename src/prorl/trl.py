"""The reference resets of ProRL v2 for people who train with TRL: the same rules, as a callback of `GRPOTrainer`.

    trainer = GRPOTrainer(..., args=GRPOConfig(beta=1e-3, ...))
    trainer.add_callback(ReferenceResetCallback(trainer, every=250, kl_ceiling=0.5, stalled_evaluations=3))

TRL does not save its reference: the callback does, in each checkpoint. To go on from one, call `restore(checkpoint)`
before `trainer.train(resume_from_checkpoint=checkpoint)`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

from prorl.algo.reference_reset import due
from prorl.envs.errors import ProrlError
from prorl.envs.files import encode_json, replacing, write_atomic

if TYPE_CHECKING:
    from trl import GRPOTrainer

WEIGHTS, STATE = "prorl_reference.safetensors", "prorl_reference.json"


class ReferenceResetCallback(TrainerCallback):  # type: ignore[misc]
    """Makes the policy the new reference, by schedule, on a KL that stays high, or on stalled evaluations."""

    def __init__(
        self,
        trainer: GRPOTrainer,
        *,
        every: int = 0,
        kl_ceiling: float | None = None,
        kl_count: int = 3,
        kl_window: int = 5,
        stalled_evaluations: int = 0,
        metric: str = "eval_reward",
        cooldown: int = 20,
        clear_optimizer: bool = False,
    ) -> None:
        """The rules are those of `algo.reference_reset.due`; what is left out is off.

        `kl_ceiling` is in nats per token, against TRL's logged `kl`, one value per log. `metric` is that of an
        evaluation whose best value counts. ProRL v2 keeps the optimizer's state at a reset, v1 cleared it. Raises
        ProrlError: the trainer holds no reference (`beta` 0, adapters), or shards it.
        """
        if trainer.ref_model is None:
            raise ProrlError(
                "this trainer holds no reference: set beta above 0 and train the whole model, no adapter"
            )
        if 0 < every < cooldown:
            raise ProrlError(f"every ({every}) is below cooldown ({cooldown}): lower cooldown")
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise ProrlError(
                "a reference that FSDP or DeepSpeed shards cannot be reset: use one process or DDP"
            )
        self._trainer, self._metric, self._clear = trainer, metric, clear_optimizer
        self._rules: dict[str, Any] = {
            "every": every,
            "kl_ceiling": kl_ceiling,
            "kl_count": kl_count,
            "kl_window": kl_window,
            "stalled_validations": stalled_evaluations,
            "cooldown": cooldown,
        }
        self.resets: list[tuple[int, str]] = []
        """(step, reason) of every reset so far."""
        self._kls: list[float] = []
        self._best: float | None = None
        self._since_best = 0  # evaluations, and since the last reset

    def on_log(self, args: Any, state: Any, *_: Any, logs: dict[str, Any] | None = None, **__: Any) -> None:
        """Take in what TRL logs, but for the KL to a reference that was replaced at the end of the same step."""
        replaced = bool(self.resets) and self.resets[-1][0] == state.global_step
        if (value := _number(logs, "kl")) is not None and not replaced:
            self._kls = [*self._kls, value][-self._rules["kl_window"] :]

    def on_evaluate(self, *_: Any, metrics: dict[str, Any] | None = None, **__: Any) -> None:
        """Take in an evaluation."""
        if (value := _number(metrics, self._metric)) is not None:
            gained = self._best is None or value > self._best
            self._best, self._since_best = (value, 0) if gained else (self._best, self._since_best + 1)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Reset the reference if a rule says so."""
        last = self.resets[-1][0] if self.resets else 0
        reason = due(
            since_reset=state.global_step - last,
            recent_kls=self._kls,
            validations_since_best=self._since_best,
            **self._rules,
        )
        if reason is not None:
            self._reset()
            self.resets.append((state.global_step, reason))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the reference and what the rules remember into the checkpoint that TRL has just written."""
        if not state.is_world_process_zero:
            return
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        held = {name: weight.contiguous().clone() for name, weight in self._reference().named_parameters()}
        with replacing(folder / WEIGHTS) as aside:
            save_file(held, aside)
        seen = {"kls": self._kls, "best": self._best, "since_best": self._since_best}
        write_atomic(folder / STATE, encode_json({"resets": self.resets, **seen}))

    def restore(self, checkpoint: str | Path) -> None:
        """Take reference and memory from a checkpoint; `ProrlError` where it has none."""
        folder = Path(checkpoint)
        try:
            found, held = json.loads((folder / STATE).read_bytes()), load_file(folder / WEIGHTS)
            self.resets = [(step, reason) for step, reason in found["resets"]]
            self._kls, self._best, self._since_best = found["kls"], found["best"], found["since_best"]
        except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
            raise ProrlError(
                f"{folder} holds no reference of this callback that can be read: {error}"
            ) from None
        self._copy(held)

    def _reset(self) -> None:
        policy = self._trainer.accelerator.unwrap_model(self._trainer.model)
        self._copy(dict(policy.named_parameters()))
        self._kls, self._since_best = [], 0
        if self._clear:
            self._trainer.optimizer.optimizer.state.clear()

    def _reference(self) -> Any:
        return self._trainer.accelerator.unwrap_model(self._trainer.ref_model)

    def _copy(self, weights: dict[str, Any]) -> None:
        for name, weight in self._reference().named_parameters():
            weight.data.copy_(weights[name].data)


def _number(values: Mapping[str, Any] | None, name: str) -> float | None:
    """One of the values; None where TRL does not say it, or none could be measured (None or NaN there)."""
    value = (values or {}).get(name)
    return float(value) if value is not None and math.isfinite(value) else None
