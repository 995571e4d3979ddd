"""One wave: a fixed set of rows that decode together until the last has finished.

Invariant: which rows share a wave, and so every batch shape in it, follows from the rows alone. Finished rows
are dropped from the batch only between tokens and only once enough of them have gathered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from prorl.envs.errors import ProrlError
from prorl.local.layout import Decoder, Layout
from prorl.local.sampling import draw, row_keys
from prorl.types import Completion, Finish, Request, log_probs, token_ids

# the share of slots still alive below which dropping the others pays for copying the caches
_COMPACT_BELOW = 0.85


class DivergedError(ProrlError, FloatingPointError):
    """The policy computes nothing that could be sampled from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One response to write."""

    request: Request
    sample: int


class Wave:
    """Rows with the same sampling, in submission order; `advance` until `done`."""

    def __init__(
        self, decoder: Decoder, rows: Sequence[Row], *, eos_ids: Sequence[int], version: int
    ) -> None:
        self._rows = rows
        self._version = version
        self._sampling = rows[0].request.sampling
        prompts = list(dict.fromkeys(row.request.prompt for row in rows))
        numbers = {prompt: number for number, prompt in enumerate(prompts)}
        self._prompt_of = [numbers[row.request.prompt] for row in rows]
        self._decoding, logits_PV = decoder.start(prompts)
        device = logits_PV.device
        self._eos = torch.tensor(tuple(eos_ids), dtype=torch.long, device=device)
        self._length = 0
        self._layout = self._decoding.arrange(self._prompt_of, None)
        self._slot_rows: list[int] = list(self._layout.rows)
        prompts_S = torch.tensor([self._prompt_of[row] for row in self._slot_rows], device=device)
        self._logits_SV = logits_PV[prompts_S]
        slots = [rows[row] for row in self._slot_rows]
        self._keys_S = row_keys([row.request.seed for row in slots], [row.sample for row in slots], device)
        self._live_S = torch.tensor(self._layout.live, device=device)
        self._tokens_TS = torch.empty(self._sampling.limit, len(slots), dtype=torch.long, device=device)
        self._logps_TS = torch.empty(self._sampling.limit, len(slots), device=device)
        self._left = len(rows)

    @property
    def done(self) -> bool:
        """Whether every row has finished."""
        return self._left == 0

    @torch.inference_mode()
    def advance(self) -> list[Completion]:
        """Decode until at least one row has finished; what finished, by draw and sample."""
        while not (finished := self._next_token()):
            pass
        completions = [self._completion(slot, stopped) for slot, stopped in finished]
        self._left -= len(completions)
        if 0 < self._left <= _COMPACT_BELOW * len(self._slot_rows):
            self._compact()
        return sorted(completions, key=lambda completion: (completion.draw, completion.sample))

    def _next_token(self) -> list[tuple[int, bool]]:
        """Append a token to every slot; the live slots that finished, and whether each stopped by itself."""
        if self._length:
            self._logits_SV = self._decoding.step(self._tokens_TS[self._length - 1])
        tokens_S, logps_S = draw(self._logits_SV, self._keys_S, self._length, self._sampling)
        self._tokens_TS[self._length] = tokens_S
        self._logps_TS[self._length] = logps_S
        self._length += 1
        stopped_S = (tokens_S[:, None] == self._eos).any(-1)
        finished_S = self._live_S if self._length == self._sampling.limit else self._live_S & stopped_S
        slots = finished_S.nonzero().flatten().tolist()
        if not slots:
            return []
        self._live_S = self._live_S & ~finished_S
        return list(zip(slots, stopped_S[finished_S].tolist(), strict=True))

    def _completion(self, slot: int, stopped: bool) -> Completion:
        row = self._rows[self._slot_rows[slot]]
        logps = self._logps_TS[: self._length, slot].tolist()
        if not math.isfinite(sum(logps)):
            raise DivergedError(
                "the model's logits are not finite: go back to a checkpoint from before training diverged, "
                "and lower optimizer.lr"
            )
        finish: Finish = "stop" if stopped else "length"
        return Completion(
            draw=row.request.draw,
            sample=row.sample,
            tokens=token_ids(self._tokens_TS[: self._length, slot].tolist()),
            logps=log_probs(logps),
            finish=finish,
            policy_version=self._version,
        )

    def _compact(self) -> None:
        """Drop finished rows and fillers from the batch."""
        sources = self._live_S.nonzero().flatten().tolist()
        rows = [self._slot_rows[slot] for slot in sources]
        layout: Layout = self._decoding.arrange([self._prompt_of[row] for row in rows], sources)
        self._slot_rows = [rows[index] for index in layout.rows]
        kept = torch.tensor([sources[index] for index in layout.rows], device=self._live_S.device)
        self._keys_S = self._keys_S[kept]
        self._live_S = torch.tensor(layout.live, device=kept.device)
        self._tokens_TS = self._tokens_TS[:, kept]
        self._logps_TS = self._logps_TS[:, kept]
