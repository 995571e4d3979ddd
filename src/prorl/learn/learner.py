"""The learner: policy, optimizer and reference of any Hugging Face causal language model, on one rank or many.

Invariants: the result of an update does not depend on how its rows fall into micro-batches and over ranks, since
every sum is divided by the mini-batch's own count of action tokens; a non-finite update is counted and changes
nothing; the policy stays in evaluation mode, since dropout would make the learner's log-probs differ from the
engine's. With several ranks each method is a collective: all call it, with the same arguments.
"""

import copy
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from prorl.config.schema import LearnerConfig
from prorl.learn.llama import unsupported_reason
from prorl.learn.loss import Scoring, check_head, objective, update_stats
from prorl.learn.model import choose_attention
from prorl.learn.optim import GuardedAdamW
from prorl.learn.packing import Row, Share, deal_batch, micro_batch
from prorl.learn.parallel import (
    Held,
    Here,
    Ranks,
    Runner,
    Scorer,
    layers_of,
    model_writer,
    read_weights,
    shard,
    without_weights,
)
from prorl.stopwatch import unheard
from prorl.types import Action, Batch, HParams, UpdateStats, log_probs, token_ids

LOGITS = (2**24, 2**27)  # on a CPU; on a GPU, which would read the head's weights again for a few rows each
MEMORY_WAITS = (1, 2, 4, 8, 15)  # seconds between tries to take a GPU that another process has only just left


class LearnerSettings(LearnerConfig):
    """What a run fixes about the learner, as opposed to the hyperparameters of a step."""

    offload: bool  # with several ranks: parameters and moments in host memory between their uses
    betas: tuple[float, float]
    weight_decay: float
    eps: float = 1e-8


class TorchLearner:
    """`prorl.types.Learner` on the device the model lies on, or one rank of several that share the work.

    `model` is taken over: its weights become float32, are sharded over `ranks`, and are updated in place; `policy`
    gives them to an engine. `pad_id` fills rows; what it says does not matter, since nothing attends to padding.
    Raises ValueError for a model whose logits are not its output embedding applied to the last hidden state.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        settings: LearnerSettings,
        *,
        with_reference: bool,
        pad_id: int,
        ranks: Ranks | None = None,
    ) -> None:
        self.policy = model.float().eval()
        self._settings = settings
        self._pad_id = pad_id
        self._ranks = ranks or Ranks()
        mesh = self._ranks.mesh
        self._offloaded = settings.offload and mesh is not None  # what is held lies in host memory already
        self._device = model.device if mesh is None else torch.device(mesh.device_type)
        cuda = self._device.type == "cuda"
        if cuda:
            choose_attention()
        by_module = mesh is not None or cuda or settings.activation_checkpointing or settings.compile
        self._exact = Scoring(  # of a probe; `_usual`, at the step's temperature, of a pass
            temperature=1.0,
            logits_elements=settings.logits_elements or LOGITS[cuda],
            compile=settings.compile,
            fused_head=settings.fused_head,
            fused_layers=not by_module and unsupported_reason(model) is None,
        )
        shares_prompts = self._exact.fused_layers and settings.dtype == "float32"
        self._usual = replace(self._exact, dtype=getattr(torch, settings.dtype), fused_layers=shares_prompts)
        check_head(model, replace(self._exact, compile=False))
        self.deal = partial(
            deal_batch,
            ranks=self._ranks.count,
            budget=settings.micro_batch_tokens,
            # about 4 E operations for a pair, and 20 E² for a token, in a layer of width E
            pair_cost=1 / (5 * model.config.hidden_size) if shares_prompts else None,
        )
        reference = without_weights(model)[0].requires_grad_(False) if with_reference else None
        if settings.activation_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            for layer in layers_of(model):
                # It checkpoints in training mode only; its children stay in evaluation mode, without dropout.
                layer.training = True
        self.modules = [self._scorer(model)]
        if reference is not None:
            self.modules.append(self._scorer(reference))
            # Only now: a rank never holds more than one model that is not sharded.
            reference.load_state_dict(copy.deepcopy(model.state_dict(keep_vars=True)), assign=True)
        self.runner: Runner = Here(self.modules)  # computes the passes; may be replaced
        self._optimizer = GuardedAdamW(
            model.named_parameters(),
            self._ranks,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )

    def begin_update(
        self, batch: Batch, hparams: HParams, beat: Callable[[], None] = unheard
    ) -> Callable[[], UpdateStats]:
        """As `begin` with what `deal` gives this rank: an update on the whole batch."""
        dealt = self.deal(batch, updates=hparams.updates_per_step)
        return self.begin(dealt[self._ranks.index], hparams, beat)

    def begin(
        self, shares: Sequence[Share], hparams: HParams, beat: Callable[[], None]
    ) -> Callable[[], UpdateStats]:
        """One step on this rank's share of every mini-batch: an optimizer update for each of them.

        Weights change when the returned function is called: until then an engine may share them. What computes the
        passes may begin with the first mini-batch's at once. Tensors are made for one forward pass at a time, and
        `beat` is called after each. Raises ValueError when the KL term is on without a reference.
        """
        if hparams.kl_coef != 0:
            self._held_reference()
        scoring = replace(self._usual, temperature=hparams.temperature)
        # Old log-probs are those before the first update, so they are all computed before it.
        old = [self._old_logps(share, scoring, beat) for share in shares]
        totals: list[Tensor] = []
        norms: list[float | None] = []
        given = partial(Pass, hparams=hparams, scoring=scoring, pad_id=self._pad_id)

        def compute(share: Share, old_logps: Sequence[Tensor | None]) -> Iterator[Tensor]:
            first = all(norm is None for norm in norms)
            passes = [
                given(rows=rows, old_logps=logps, denominator=share.action_tokens, first=first)
                for rows, logps in zip(share.passes, old_logps, strict=True)
            ]
            self._optimizer.zero_grad()
            return self.runner.run(gradient, passes, gradients=True)

        begun = [compute(shares[0], old[0])] if shares else []

        def finish() -> UpdateStats:
            for share, old_logps in zip(shares, old, strict=True):
                sums = begun.pop() if begun else compute(share, old_logps)
                totals.append(self._ranks.total(torch.stack(_each(sums, beat)).sum(0)))
                norms.append(self._optimizer.step(totals[-1][0], hparams))
            return update_stats(shares, totals, norms, with_kl=hparams.kl_coef != 0)

        return finish

    @torch.no_grad()
    def score(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Log-probs of `tokens` after `prompt` at temperature 1 in float32: the probe of a sync."""
        unknown = log_probs([0.0] * len(tokens))
        action = Action(tokens=token_ids(tokens), engine_logps=unknown, advantage=0.0)
        rows = [Row(prompt=tuple(prompt), actions=(action,))]
        micro = micro_batch(rows, pad_id=self._pad_id, device=self._device)  # the same on all ranks
        logps: list[float] = self.modules[0](micro, self._exact)[0][0].tolist()
        return logps

    def reset_reference(self, source: Path | None, *, clear_optimizer: bool) -> None:
        """Make the policy (`source=None`) or the weights in a folder the reference; ValueError if none is held."""
        reference = self._held_reference()
        if source is None:
            reference.load_state_dict(self.policy.state_dict())
        else:
            read_weights(reference, source)
        if clear_optimizer:
            self._optimizer.clear()

    def snapshot(self) -> Callable[[Path], None]:
        """Copy policy and optimizer to host memory now; the returned function writes them, in any thread."""
        write_model, write_optimizer = model_writer(self.policy, self._ranks), self._optimizer.snapshot()

        def write(folder: Path) -> None:
            # Ranks write the optimizer together: one that failed before would keep the others waiting.
            write_optimizer(folder)
            write_model(folder)

        return write

    def restore(self, folder: Path) -> None:
        """Load what a snapshot wrote."""
        read_weights(self.policy, folder)
        self._optimizer.restore(folder)

    def stow(self) -> None:
        """Keep all tensors in host memory until `fetch`, so that others may use the device."""
        self._move(torch.device("cpu"))
        if self._device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()

    def fetch(self) -> None:
        """Take the tensors back to the device, which a killed engine leaves within seconds, not at once."""
        for seconds in MEMORY_WAITS:
            try:
                self._move(self._device)
                return
            except torch.OutOfMemoryError:
                time.sleep(seconds)
        self._move(self._device)

    @contextmanager
    def policy_on_device(self) -> Iterator[None]:
        """The policy's weights on the device for a while, though the learner is stowed."""
        stowed = next(self.policy.parameters()).device.type != self._device.type and not self._offloaded
        if stowed:
            self.modules[0].put(self._device)
        try:
            yield
        finally:
            if stowed:
                self.stow()

    def save_reference(self, folder: Path) -> None:
        """Write the reference weights into an existing folder."""
        model_writer(self._held_reference(), self._ranks)(folder)

    def _move(self, device: torch.device) -> None:
        if self._offloaded:
            return
        for scorer in self.modules:
            scorer.put(device)
        self._optimizer.move(device)

    def _scorer(self, model: PreTrainedModel) -> Scorer:
        scorer, settings = Scorer(model, self._device), self._settings
        if settings.compile:
            for layer in layers_of(scorer):
                layer.compile(dynamic=True)
        shard(scorer, self._ranks, dtype=getattr(torch, settings.dtype), offload=settings.offload)
        return scorer

    def _held_reference(self) -> PreTrainedModel:
        if len(self.modules) == 1:
            raise ValueError("the learner holds no reference; build it with one")
        return self.modules[1].model

    def _old_logps(self, share: Share, scoring: Scoring, beat: Callable[[], None]) -> Sequence[Tensor | None]:
        """Of each forward pass; None where the engine's are taken."""
        if self._settings.old_logprobs == "engine":
            return [None] * len(share.passes)
        asked = [(rows, scoring, self._pad_id) for rows in share.passes]
        return _each(self.runner.run(old_logprobs, asked), beat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A forward and backward pass: all that it needs beside the weights."""

    rows: tuple[Row, ...]
    old_logps: Tensor | None  # shape BT; None: the engine's
    hparams: HParams
    scoring: Scoring
    denominator: int
    first: bool  # the weights are those of the step's start
    pad_id: int


def gradient(held: Held, given: Pass) -> Iterator[Tensor]:
    """The `SUMS` of a pass; its gradient is added to those of the policy's parameters."""
    policy, *reference = held.modules
    micro = micro_batch(given.rows, pad_id=given.pad_id, device=policy.device)
    reference_BT = None
    if reference and given.hparams.kl_coef != 0:
        with torch.no_grad():
            reference_BT, _ = reference[0](micro, given.scoring)
    logps_BT, entropy_N = policy(micro, given.scoring)
    # Where the engine's log-probs serve as the old ones, only the first update still sees the policy of the step's
    # start, so only it can say how far the two disagree.
    own_BT = logps_BT.detach() if given.first else None
    loss, measured = objective(
        micro,
        given.hparams,
        logps_BT=logps_BT,
        old_BT=micro.engine_logps_BT if given.old_logps is None else given.old_logps,
        start_BT=own_BT if given.old_logps is None else given.old_logps,
        reference_BT=reference_BT,
        entropy_N=entropy_N,
        denominator=given.denominator,
    )
    torch.autograd.backward(loss)
    yield measured


def old_logprobs(held: Held, given: tuple[Sequence[Row], Scoring, int]) -> Iterator[Tensor]:
    """Log-probs of the rows' actions by the policy as it is, shape BT."""
    rows, scoring, pad_id = given
    policy = held.modules[0]
    with torch.no_grad():
        yield policy(micro_batch(rows, pad_id=pad_id, device=policy.device), scoring)[0]


def _each(values: Iterator[Tensor], beat: Callable[[], None]) -> list[Tensor]:
    """All of them; `beat` is called whenever there is another."""
    found = []
    for value in values:
        found.append(value)
        beat()
    return found
