"""The in-process engine: queues requests and decodes them in waves on the learner's own module.

A wave is a fixed set of rows that decode together until the last has finished; finished rows are dropped from the
batch between tokens, once enough of them have gathered. Invariant: which responses decode together, and so every
batch shape, follows from the order of `submit` and `poll` calls alone. A wave takes queued requests in order, as long
as they fit and sample alike.

Random numbers come from a counter-based hash of (seed, sample, position) (splitmix64: Steele, Lea and Flood, OOPSLA
2014), so what a row samples depends, float rounding aside, neither on the rows beside it nor on any generator state.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, product
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from prorl.envs.errors import ProrlError, UsageError
from prorl.learn.linear import filled
from prorl.learn.llama import unsupported_reason
from prorl.learn.model import context_limit
from prorl.learn.parallel import Held
from prorl.local.decoder import Decoder, Decoding, FallbackDecoder, LlamaDecoder
from prorl.local.workers import Item, Workers, WorkersError
from prorl.types import Completion, Request, Sampling, log_probs, token_ids

_AHEAD = 16  # tokens for which random numbers are made at once
_COMPACT_BELOW = 0.65  # of the slots are alive: dropping the others then pays for copying the caches


class DivergedError(ProrlError, FloatingPointError):
    """The policy computes nothing that could be sampled from."""


Row = tuple[Request, int]
"""One response to write: a request and the number of the sample."""
Accept = Callable[[list[float]], None]
"""Takes the log-probs of a probe; raises where they are not the learner's."""


class Wave:
    """Rows with the same sampling, in submission order; `advance` until `left` is zero."""

    def __init__(
        self, decoder: Decoder, rows: Sequence[Row], *, eos_ids: Sequence[int], version: int
    ) -> None:
        self._rows = rows
        self._version = version
        self._sampling = rows[0][0].sampling
        numbers: dict[tuple[int, ...], int] = {}
        self._prompt_of = [numbers.setdefault(request.context, len(numbers)) for request, _ in rows]
        self._decoding: Decoding
        self._decoding, logits_PV = decoder.start(list(numbers))
        device = logits_PV.device
        self._eos = torch.tensor(tuple(eos_ids), dtype=torch.long, device=device)
        self._length = 0
        self.left = len(rows)  # rows that have not finished
        self._slot_rows: Sequence[int] = range(self.left)
        self._live_S = torch.ones(self.left, dtype=torch.bool, device=device)
        self._keys_S = row_keys([request.seed for request, _ in rows], [sample for _, sample in rows], device)
        self._begun_S = torch.tensor([len(request.begun) for request, _ in rows], device=device)
        self._bits_AS = self._keys_S.new_empty(_AHEAD, self.left)  # random numbers of the tokens ahead
        self._tokens_TS = self._keys_S.new_empty(self._sampling.limit, self.left)
        self._logps_TS = torch.empty(self._sampling.limit, self.left, device=device)
        self._arrange(None)
        prompts = [self._prompt_of[row] for row in self._slot_rows]
        self._logits_SV = logits_PV[torch.tensor(prompts, device=device)]

    @torch.inference_mode()
    def advance(self) -> list[Completion]:
        """Decode until at least one row has finished; what finished, by draw and sample."""
        while not (finished := self._next_token()):
            pass
        completions = [self._completion(slot, stopped) for slot, stopped in finished]
        self.left -= len(completions)
        slots = len(self._slot_rows)
        if 0 < self.left <= _COMPACT_BELOW * slots and filled(self.left) < filled(slots):
            self._arrange(self._live_S.nonzero().flatten().tolist())
        return sorted(completions, key=lambda completion: (completion.draw, completion.sample))

    def cut(self) -> list[Completion]:
        """The rows that have not finished, as they are."""
        return [self._completion(slot, False) for slot in self._live_S.nonzero().flatten().tolist()]

    def _next_token(self) -> list[tuple[int, bool]]:
        """Append a token to every slot; the live slots that finished, and whether each stopped by itself."""
        if self._length:
            self._logits_SV = self._decoding.step(self._tokens_TS[self._length - 1])
        ahead = self._length % _AHEAD
        if not ahead:
            positions_A = torch.arange(self._length, self._length + _AHEAD, device=self._begun_S.device)
            self._bits_AS = absorb(self._keys_S, self._begun_S + positions_A[:, None])
        tokens_S, logps_S = draw(self._logits_SV, self._bits_AS[ahead], self._sampling)
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
        request, sample = self._rows[self._slot_rows[slot]]
        logps = self._logps_TS[: self._length, slot].tolist()
        require_finite(logps)
        return Completion(
            draw=request.draw,
            sample=sample,
            tokens=token_ids(self._tokens_TS[: self._length, slot].tolist()),
            logps=log_probs(logps),
            finish="stop" if stopped else "length",
            policy_version=self._version,
        )

    def _arrange(self, sources: Sequence[int] | None) -> None:
        """Lay out the rows of these slots, which are those that go on; None at first: all rows."""
        slots = range(self.left) if sources is None else sources
        rows = [self._slot_rows[slot] for slot in slots]
        layout = self._decoding.arrange([self._prompt_of[row] for row in rows], sources)
        self._slot_rows = [rows[index] for index in layout.rows]
        kept = torch.tensor([slots[index] for index in layout.rows], device=self._live_S.device)
        self._keys_S, self._begun_S = self._keys_S[kept], self._begun_S[kept]
        self._bits_AS = self._bits_AS[:, kept]
        self._live_S = torch.tensor(layout.live, device=kept.device)
        self._tokens_TS = self._tokens_TS[:, kept]
        self._logps_TS = self._logps_TS[:, kept]


class DecodingSettings(NamedTuple):
    """What an engine is told about a model and how many rows it may decode at a time."""

    eos_ids: tuple[int, ...]
    pad_id: int
    max_rows: int


class LocalEngine:
    """`prorl.types.Engine` on a transformers causal language model."""

    def __init__(
        self, model: PreTrainedModel, *, eos_ids: Sequence[int], pad_id: int, max_rows: int = 512
    ) -> None:
        """`eos_ids` end a response; `pad_id` fills short prompts and is never attended to."""
        self.settings = DecodingSettings(tuple(eos_ids), pad_id, max_rows)
        kind = FallbackDecoder if unsupported_reason(model) else LlamaDecoder
        self._decoder: Decoder = kind(model, pad_id=pad_id)
        self._device = model.get_input_embeddings().weight.device
        self._max_positions = context_limit(model)
        self._vocabulary: int = model.config.get_text_config().vocab_size
        self._queue: deque[list[Row]] = deque()  # rows that must not be parted
        self._wave: Wave | None = None
        self.version = 0  # of the weights that serve requests now

    def publish(self, version: int) -> None:
        """Serve the module's present weights as `version`; RuntimeError while requests are in flight."""
        if self._wave is not None or self._queue:
            raise RuntimeError("weights cannot change while requests are in flight: poll to the end first")
        self._decoder.refresh()
        self.version = version

    def submit(self, request: Request) -> None:
        """Queue one prompt with its n samples; UsageError where it is empty or too long."""
        self._queue += self.units(request)

    def units(self, request: Request) -> list[list[Row]]:
        """Its rows, as many together as decode at a time; raises as `submit`."""
        require_room(len(request.context), request.sampling.limit, self._max_positions)
        rows, most = [(request, sample) for sample in request.numbers], self.settings.max_rows
        return [rows[first : first + most] for first in range(0, len(rows), most)]

    def poll(self) -> list[Completion]:
        """Decode until at least one response has finished; an empty list means that nothing is in flight."""
        if self._wave is None:
            if not self._queue:
                return []
            rows, ends = self._next_rows(), self.settings.eos_ids
            self._wave = Wave(self._decoder, rows, eos_ids=ends, version=self.version)
        completions = self._wave.advance()
        if not self._wave.left:
            self._wave = None
        return completions

    def cancel(self) -> list[Completion]:
        """Drop what is queued, and stop the wave; returns what its responses have."""
        cut = self._wave.cut() if self._wave is not None else []
        self._wave = None
        self._queue.clear()
        return cut

    def prove(self, prompt: Sequence[int], tokens: Sequence[int], accept: Accept) -> None:
        """Have the weights accepted that are served now."""
        accept(self.score(prompt, tokens))

    @torch.inference_mode()
    def score(self, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
        """Log-probs of given tokens after a prompt at temperature 1, computed token by token as in decoding."""
        require_room(len(prompt), len(tokens), self._max_positions)
        decoding, logits = self._decoder.start([prompt])
        slots = len(decoding.arrange([0], None).rows)
        logps: list[float] = []
        for position, token in enumerate(tokens):
            token_1 = torch.tensor([token], device=self._device)
            logps += token_logps(logits, token_1).tolist()
            if position + 1 < len(tokens):
                logits = decoding.step(token_1.repeat(slots))[:1]
        return logps

    @torch.inference_mode()
    def is_steady(self) -> bool:
        """Whether log-probs are the same bits whatever is decoded beside a response, tried on some prompts."""
        lengths = (length for length in (5, 40, 130) if length + 8 <= self._max_positions)
        prompts = [tuple(token % self._vocabulary for token in range(length)) for length in lengths]
        sampling = Sampling(temperature=1.0, top_p=1.0, limit=8)
        asked = [
            Request(draw=draw, prompt=prompt, samples=samples, seed=draw, sampling=sampling)
            for draw, (prompt, samples) in enumerate(product(prompts, (1, 3, 8)))
        ]

        def sampled(requests: Sequence[Request]) -> dict[tuple[int, int], bytes]:
            for request in requests:
                self.submit(request)
            found: dict[tuple[int, int], bytes] = {}
            while completions := self.poll():
                found |= {(done.draw, done.sample): done.logps.tobytes() for done in completions}
            return found

        together = sampled(asked)
        return all(sampled([request]).items() <= together.items() for request in asked)

    def queue(self, units: Sequence[list[Row]]) -> None:
        """Queue rows that are known to fit; those of a unit decode together."""
        self._queue += units

    def _next_rows(self) -> list[Row]:
        rows = self._queue.popleft()
        while self._queue and self._queue[0][0][0].sampling == rows[0][0].sampling:
            if len(rows) + len(self._queue[0]) > self.settings.max_rows:
                break
            rows += self._queue.popleft()
        return rows


class WorkersEngine:
    """`prorl.types.Engine` on worker processes: what they sample is what `LocalEngine` would."""

    def __init__(self, alone: LocalEngine, workers: Workers) -> None:
        """`workers` hold the learner's modules, and make engines like `alone`."""
        self._alone = alone
        self._workers = workers
        self._queue: list[list[Row]] = []  # rows that must not be parted
        self._items: list[Item] = []  # that workers sample
        self._proof: Callable[[], None] | None = None  # that is still to be given for these weights
        self.version = 0

    def publish(self, version: int) -> None:
        """As `LocalEngine`; workers refresh what they derive from the weights when they are next asked."""
        if self._queue or self._items:
            raise RuntimeError("weights cannot change while requests are in flight: poll to the end first")
        self.version, self._proof = version, None

    def submit(self, request: Request) -> None:
        """As `LocalEngine`."""
        self._queue += self._alone.units(request)

    def poll(self) -> list[Completion]:
        """As `LocalEngine`."""
        if self._queue:
            self._deal()
        if self._proof is not None:
            proof, self._proof = self._proof, None
            proof()
        parts = self._workers.poll(self._items)
        if not parts:
            self._items = []
        return [done for completions in parts for done in completions]

    def cancel(self) -> list[Completion]:
        """All that is in flight, to its end: how far each worker is now depends on its speed."""
        return [done for fresh in iter(self.poll, []) for done in fresh]

    def prove(self, prompt: Sequence[int], tokens: Sequence[int], accept: Accept) -> None:
        """As `LocalEngine`, of every worker, before the next `poll` returns responses; they begin at once.

        `poll` then raises what `accept` does, and WorkersError where workers do not agree to the last bit.
        """
        asked = (self._alone.settings, self.version, prompt, tokens)
        by_worker = self._workers.everywhere(score_in_worker, asked)

        def proof() -> None:
            logps: list[list[float]] = list(by_worker)
            if any(other != logps[0] for other in logps):
                raise WorkersError(
                    "worker processes compute different log-probs of the same tokens: set workers=1"
                )
            accept(logps[0])

        self._proof = proof

    def _deal(self) -> None:
        """Hand out equal parts, one for each worker or several where one would have too many rows at a time."""
        rows, count = sum(map(len, self._queue)), self._workers.count
        waves = -(-rows // (count * self._alone.settings.max_rows))
        parts: list[list[list[Row]]] = [[] for _ in range(count * waves)]
        before = 0
        for unit in self._queue:
            parts[before * len(parts) // rows].append(unit)
            before += len(unit)
        self._queue = []
        self._items += [
            self._workers.submit(sample_in_worker, (self._alone.settings, self.version, part))
            for part in filter(None, parts)
        ]


def sample_in_worker(
    held: Held, given: tuple[DecodingSettings, int, list[list[Row]]]
) -> Iterator[list[Completion]]:
    """Completions of the rows as they end."""
    settings, version, units = given
    engine = _engine(held, settings, version)
    engine.queue(units)
    while completions := engine.poll():
        yield completions


def score_in_worker(
    held: Held, given: tuple[DecodingSettings, int, Sequence[int], Sequence[int]]
) -> Iterator[list[float]]:
    """As `LocalEngine.score`."""
    settings, version, prompt, tokens = given
    yield _engine(held, settings, version).score(prompt, tokens)


def _engine(held: Held, settings: DecodingSettings, version: int) -> LocalEngine:
    engine: LocalEngine = held.kept.get("engine") or LocalEngine(held.modules[0].model, **settings._asdict())
    held.kept["engine"] = engine
    if engine.version != version:
        engine.publish(version)
    return engine


def require_finite(logps: Iterable[float]) -> None:
    """Raise DivergedError where log-probs of a response are no numbers."""
    if not math.isfinite(sum(logps)):
        raise DivergedError(
            "the model's logits are not finite: go back to a checkpoint from before training diverged, "
            "and lower optimizer.lr"
        )


def require_room(prompt: int, limit: int, positions: int) -> None:
    """Raise UsageError where so many tokens of prompt and response do not fit, or the prompt has none."""
    if prompt == 0:
        raise UsageError("the prompt is empty: give the engine at least one token")
    if prompt + limit > positions:
        raise UsageError(
            f"a prompt of {prompt} tokens and a response of up to {limit} exceed {positions} positions: "
            "lower sampling.response_limit or shorten the prompt"
        )


def _signed(value: int) -> int:
    """The 64-bit pattern of `value` as torch's signed integer."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIX = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)), (31, 1))


def _shift_right(bits: Tensor, by: int) -> Tensor:
    # torch shifts signed integers arithmetically; the mask clears the copies of the sign
    return (bits >> by) & ((1 << (64 - by)) - 1)


def absorb(key: Tensor, value: Tensor | int) -> Tensor:
    """Hash a number into each 64-bit key (int64): one splitmix64 step at counter `value` + 1."""
    bits = key + (value + 1) * _GAMMA if isinstance(value, Tensor) else key + _signed((value + 1) * _GAMMA)
    for shift, factor in _MIX:
        bits = (bits ^ _shift_right(bits, shift)) * factor
    return bits


def row_keys(seeds: Sequence[int], samples: Sequence[int], device: torch.device) -> Tensor:
    """One key per row from its request's seed and its sample number."""
    seeds_R = torch.tensor([_signed(seed) for seed in seeds], device=device)
    return absorb(absorb(seeds_R, 0), torch.tensor(samples, device=device))


def uniform(bits: Tensor) -> Tensor:
    """Float64 in [0, 1) from the upper 53 bits of each hash."""
    return _shift_right(bits, 11).double() * 2.0**-53


def draw(logits_RV: Tensor, bits_R: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Sample one token per row by its random bits; tokens and their log-probs, both of shape R.

    The log-prob is that of the untruncated temperature-scaled distribution, also with `top_p` below 1: the learner
    recomputes it without knowing the nucleus. Temperature 0 takes the most probable token and reports its log-prob at
    temperature 1. Non-finite logits give non-finite log-probs.
    """
    if sampling.temperature == 0.0:
        tokens = logits_RV.argmax(-1)
        return tokens, token_logps(logits_RV, tokens)
    logits = logits_RV.float()
    probs = torch.softmax(logits if sampling.temperature == 1.0 else logits / sampling.temperature, -1)
    tokens = _inverse_cdf(probs, bits_R)
    if sampling.top_p < 1.0:
        _redraw_outside_nucleus(tokens, probs, bits_R, sampling.top_p)
    return tokens, probs.gather(-1, tokens[:, None]).squeeze(-1).log()


def token_logps(logits_RV: Tensor, tokens_R: Tensor) -> Tensor:
    """Log-probs of given tokens at temperature 1, shape R."""
    return torch.log_softmax(logits_RV.float(), -1).gather(-1, tokens_R[:, None]).squeeze(-1)


def _inverse_cdf(weights_RV: Tensor, bits_R: Tensor) -> Tensor:
    """The token at which the cumulated weights first exceed u times their sum, u from the bits."""
    # float64: single precision would blur the cumulated tail of a large vocabulary
    cumulated = weights_RV.cumsum(-1, dtype=torch.float64)
    target = uniform(bits_R)[:, None] * cumulated[:, -1:]
    tokens = torch.searchsorted(cumulated, target, right=True).squeeze(-1)
    return tokens.clamp_(max=weights_RV.shape[-1] - 1)  # non-finite weights only


def _redraw_outside_nucleus(tokens_R: Tensor, probs_RV: Tensor, bits_R: Tensor, top_p: float) -> None:
    """Replace, in place, tokens outside the nucleus by draws from it.

    The nucleus holds every token whose strictly more probable tokens sum to less than `top_p`; of equals all or
    none. Rejection needs no sort over the vocabulary (as in FlashInfer): whatever is not more probable than a
    rejected token is outside too, so each redraw is from fewer tokens and the result is exact.
    """
    rows = torch.arange(len(tokens_R), device=tokens_R.device)
    probs, bits, tokens = probs_RV, bits_R, tokens_R
    for attempt in count(1):
        above = torch.where(probs > probs.gather(-1, tokens[:, None]), probs, 0.0)
        outside = above.sum(-1, dtype=torch.float64) >= top_p
        if not outside.any():
            return
        rows, probs, bits = rows[outside], above[outside], bits[outside]
        tokens = _inverse_cdf(probs, absorb(bits, attempt))
        tokens_R[rows] = tokens
