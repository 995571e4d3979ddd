"""The in-process engine: queues requests and decodes them in waves on the learner's own module.

Invariant: which responses decode together follows from the order of `submit` and `poll` calls alone. A wave takes
queued requests in order, as long as they fit and sample alike, and runs until its last row has finished.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from prorl.envs.errors import ProrlError
from prorl.local.decoder import LlamaDecoder, unsupported_reason
from prorl.local.fallback import FallbackDecoder
from prorl.local.layout import Decoder
from prorl.local.sampling import token_logps
from prorl.local.wave import Row, Wave
from prorl.types import Completion, Request


class RequestError(ProrlError, ValueError):
    """A request that this model cannot serve."""


class LocalEngine:
    """Samples responses from a transformers causal language model; implements `ports.Engine`."""

    def __init__(
        self, model: PreTrainedModel, *, eos_ids: Sequence[int], pad_id: int, max_rows: int = 512
    ) -> None:
        """`eos_ids` end a response; `pad_id` fills short prompts and is never attended to."""
        self._decoder: Decoder = (
            FallbackDecoder(model, pad_id=pad_id)
            if unsupported_reason(model)
            else LlamaDecoder(model, pad_id=pad_id)
        )
        self._device = model.get_input_embeddings().weight.device
        self._max_positions: int | None = getattr(model.config, "max_position_embeddings", None)
        self._eos_ids = tuple(eos_ids)
        self._max_rows = max_rows
        self._queue: deque[list[Row]] = deque()  # rows that must not be parted
        self._wave: Wave | None = None
        self._version = 0

    @property
    def version(self) -> int:
        """Version of the weights that serve requests now."""
        return self._version

    def publish(self, version: int) -> None:
        """Serve the module's present weights as `version`; RuntimeError while requests are in flight."""
        if self._in_flight:
            raise RuntimeError(
                "Weights cannot change while requests are in flight: poll to the end or cancel."
            )
        self._decoder.refresh()
        self._version = version

    def submit(self, request: Request) -> None:
        """Queue one prompt with its n samples; ValueError where it cannot be served, as RequestError if too long."""
        self._check(request)
        for first in range(0, request.samples, self._max_rows):
            samples = range(first, min(first + self._max_rows, request.samples))
            self._queue.append([Row(request=request, sample=sample) for sample in samples])

    def poll(self) -> list[Completion]:
        """Decode until at least one response has finished; an empty list means that nothing is in flight."""
        if self._wave is None:
            if not self._queue:
                return []
            self._wave = Wave(self._decoder, self._next_rows(), eos_ids=self._eos_ids, version=self._version)
        completions = self._wave.advance()
        if self._wave.done:
            self._wave = None
        return completions

    def cancel(self) -> None:
        """Drop everything in flight."""
        self._queue.clear()
        self._wave = None

    @torch.inference_mode()
    def score(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Log-probs of given tokens after a prompt at temperature 1, computed token by token as in decoding."""
        self._check_length(len(prompt), len(tokens))
        decoding, logits = self._decoder.start([prompt])
        decoding.arrange([0], None)
        logps: list[float] = []
        for position, token in enumerate(tokens):
            token_1 = torch.tensor([token], device=self._device)
            logps += token_logps(logits, token_1).tolist()
            if position + 1 < len(tokens):
                logits = decoding.step(token_1)
        return logps

    @property
    def _in_flight(self) -> bool:
        return self._wave is not None or bool(self._queue)

    def _next_rows(self) -> list[Row]:
        rows = self._queue.popleft()
        sampling = rows[0].request.sampling
        while (
            self._queue
            and self._queue[0][0].request.sampling == sampling
            and len(rows) + len(self._queue[0]) <= self._max_rows
        ):
            rows += self._queue.popleft()
        return rows

    def _check(self, request: Request) -> None:
        sampling = request.sampling
        self._check_length(len(request.prompt), sampling.limit)
        if request.samples < 1 or sampling.limit < 1:
            raise ValueError("A request needs at least one sample and a limit of at least one token.")
        if sampling.temperature < 0.0 or not 0.0 < sampling.top_p <= 1.0:
            raise ValueError(
                f"temperature {sampling.temperature} must not be negative and top_p {sampling.top_p} must lie "
                "in (0, 1]."
            )

    def _check_length(self, prompt: int, limit: int) -> None:
        if prompt == 0:
            raise ValueError("The prompt is empty; give the engine at least one token.")
        if self._max_positions is not None and prompt + limit > self._max_positions:
            raise RequestError(
                f"a prompt of {prompt} tokens and a response of up to {limit} exceed the model's "
                f"{self._max_positions} positions: lower sampling.response_limit or shorten the prompt"
            )
