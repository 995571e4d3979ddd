"""A discrete-event model of one training step on a cluster: who waits for what, from stated assumptions.

Engines sample wave after wave (`engine_model.py`) until enough groups teach, ranks learn from those, weights are
synced. Invariants: every accepted response is learned from exactly once, and equal seeds give equal steps. Memory is
not modelled here again: `prorl.cluster.capacity` says how many tokens an engine's cache holds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine_model import Engine, Job, Lengths, decode, judged
from prorl.algo.dynamic_sampling import wave_size
from prorl.cluster.capacity import FLOAT32, HALF, Demand, Hardware, Size, kv_cache, place

GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one step of a recipe does."""

    prompts: int  # informative groups
    samples: int
    limit: int  # tokens of a response
    updates: int  # optimizer updates per step
    micro_batch_tokens: int
    prompt_tokens: int = 300
    vocabulary: int = 151_936
    validation_every: int = 50  # steps; a checkpoint is written as often
    validation_responses: int = 5 * 64 * 4
    max_draw_factor: float = 4.0
    margin: float = 0.0  # standard deviations of its yield by which a wave is larger
    partial: float = 0.0  # groups in hand for later steps, as a share of those that a step draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What is not known without the machine; docs/scaling.md gives the range and the source of each."""

    flops: float = 989e12  # dense bfloat16, of one GPU
    bandwidth: float = 3.35e12  # of its memory, bytes/s
    nvlink: float = 300e9  # between the GPUs of a node, bytes/s of each
    network: float = 40e9  # between nodes, bytes/s of each GPU
    host_link: float = 25e9  # to host memory, bytes/s of each GPU
    bandwidth_share: float = 0.6  # of `bandwidth` that decoding reaches
    iteration: float = 4e-3  # s of scheduling and launching per decoded token of a batch
    prefill_share: float = 0.4  # of `flops`
    learn_share: float = 0.35  # of `flops`, all passes and recomputation counted, logits apart
    logits_elements: int = 2**27  # that exist at a time
    entropy_passes: int = 2  # over logits; 4: also where no gradient is wanted; 0: `learner.fused_head`
    exposed: float = 0.1  # share of the learner's communication that no computation hides, at least
    rows: int = 512  # responses that an engine decodes together at most
    by_cache: bool = True  # as many as its cache holds as they are; else as at full length
    shared_queue: bool = False  # engines take groups as they have room; else groups are dealt to them in turn
    informative: float = 0.41  # share of groups that teach
    median_length: float = 3000.0
    length_sigma: float = 0.8  # of the logarithm
    sibling_correlation: float = 0.5  # of log-lengths inside a group
    code_share: float = 0.18  # of responses, whose programs are run
    code_seconds: float = 1.0  # mean of an exponential
    other_seconds: float = 0.02
    judges: int = 8  # processes per GPU
    switch: float = 5.0  # s per step to put colocated engines to sleep and wake them
    sync: float = 2.0  # s per step beside the transfer: names, repacking, cache reset, probe
    save: float = 2.0  # s that training waits for a checkpoint beside the copy to host memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A model on GPUs, and who has which of them."""

    size: Size
    gpus: int
    learners: int  # ranks; all GPUs where colocated
    engines: int
    rows: int  # responses that one engine decodes together
    cache: float  # tokens that it holds
    colocated: bool
    shared_queue: bool
    overlap: bool = False  # generate the next step while learning this one


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Seconds of one step by phase, and what was done in it."""

    decode: float  # what engines that are always full would take
    tail: float  # what longer ones add: the last responses of a wave, rows that are empty
    judge: float  # after the last response
    learn: float
    sync: float
    switch: float
    rest: float  # validations and checkpoints, spread over the steps between them
    hidden: float  # of all these, done while something else is
    waves: int
    tokens: int  # decoded
    age: float  # steps between drawing a group and learning from it, mean

    @property
    def total(self) -> float:
        """The step from begin to end."""
        parts = (self.decode, self.tail, self.judge, self.learn, self.sync, self.switch, self.rest)
        return sum(parts) - self.hidden


def colocated(size: Size, work: Work, gpus: int, assumptions: Assumptions) -> Setup:
    """Every GPU is an engine and a learner rank in turn."""
    room = _room(size, work, gpus, assumptions, separate=False)
    return Setup(size=size, gpus=gpus, learners=gpus, engines=gpus, colocated=True, **room)


def separate(
    size: Size, work: Work, gpus: int, learners: int, assumptions: Assumptions, *, overlap: bool
) -> Setup:
    """`learners` of the GPUs learn, the others sample."""
    room = _room(size, work, gpus, assumptions, separate=True)
    return Setup(
        size=size,
        gpus=gpus,
        learners=learners,
        engines=gpus - learners,
        colocated=False,
        overlap=overlap,
        **room,
    )


def _room(size: Size, work: Work, gpus: int, assumptions: Assumptions, *, separate: bool) -> dict[str, Any]:
    demand = Demand(
        response_limit=work.limit,
        micro_batch_tokens=work.micro_batch_tokens,
        activation_checkpointing=True,
        half=True,
        reference=True,
        offload=False,
        cache_gib=None,
        sampled_tokens=0,
        trained_tokens=0,
    )
    placed = place(size, demand, Hardware(gpus=gpus), separate=separate)
    assert not placed.problems
    shared = {"shared_queue": assumptions.shared_queue}
    if not assumptions.by_cache:
        return shared | {"rows": min(assumptions.rows, placed.rows), "cache": inf}
    return shared | {"rows": assumptions.rows, "cache": placed.cache // placed.cached_token}


# -- sampling


def make_engine(setup: Setup, work: Work, assumptions: Assumptions) -> Engine:
    """The engine that these assumptions make of a GPU."""
    reach = assumptions.bandwidth * assumptions.bandwidth_share
    token = 2 * setup.size.parameters
    return Engine(
        fixed=assumptions.iteration,
        per_row=token / (assumptions.flops * assumptions.prefill_share),
        weights=HALF * setup.size.parameters / reach,
        per_token=kv_cache(setup.size, 1, half=True) / reach,
        prefill=token / (assumptions.flops * assumptions.prefill_share),
        samples=work.samples,
        rows=setup.rows,
        cache=setup.cache,
    )


def draw_lengths(rng: np.random.Generator, groups: int, work: Work, assumptions: Assumptions) -> Lengths:
    """Log-normal response lengths, alike inside a group, cut at the limit."""
    shared = rng.standard_normal((groups, 1)) * math.sqrt(assumptions.sibling_correlation)
    own = rng.standard_normal((groups, work.samples)) * math.sqrt(1 - assumptions.sibling_correlation)
    lengths = assumptions.median_length * np.exp(assumptions.length_sigma * (shared + own))
    return np.clip(lengths, 1, work.limit).astype(np.int64)


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """Responses to one problem."""

    lengths: Lengths
    teaches: bool
    drawn: int  # step
    written: Lengths  # tokens so far

    @property
    def ended(self) -> bool:
        """Whether all responses have."""
        return bool((self.written == self.lengths).all())


def draw_groups(
    rng: np.random.Generator, groups: int, work: Work, assumptions: Assumptions, *, step: int = 0
) -> list[Group]:
    """Groups as a wave draws them."""
    lengths = draw_lengths(rng, groups, work, assumptions)
    teach = rng.random(groups) < assumptions.informative
    return [
        Group(lengths=one, teaches=bool(teaches), drawn=step, written=np.zeros_like(one))
        for one, teaches in zip(lengths, teach, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Groups that were sampled together."""

    full: float
    sampled: float
    judged: float
    tokens: int


def sample(
    rng: np.random.Generator,
    groups: Sequence[Group],
    setup: Setup,
    work: Work,
    assumptions: Assumptions,
    stop_after: float = inf,
) -> Wave:
    """Decode groups until all, or `stop_after` of them, have ended; each response is judged as it ends."""
    engine, names = make_engine(setup, work, assumptions), count()
    asked = [
        [
            Job(name=next(names), begun=int(written), length=int(length - written))
            for length, written in zip(group.lengths, group.written, strict=True)
            if written < length
        ]
        for group in groups
    ]
    owed = [len(jobs) for jobs in asked]
    of = {job.name: number for number, jobs in enumerate(asked) for job in jobs}

    over = 0  # groups of which all responses have ended

    def enough(name: int) -> bool:
        nonlocal over
        owed[of[name]] -= 1
        over += owed[of[name]] == 0
        return over >= stop_after

    ended, left = decode(
        engine, work.prompt_tokens, asked, setup.engines, shared=setup.shared_queue, enough=enough
    )
    ends = list(ended.values())
    grown = [[job.length if job.name in ended else left.get(job.name, 0) for job in mine] for mine in asked]
    for group, new in zip(groups, grown, strict=True):
        group.written[group.written < group.lengths] += np.array(new, dtype=np.int64)
    jobs = [
        replace(job, length=new)
        for mine, news in zip(asked, grown, strict=True)
        for job, new in zip(mine, news, strict=True)
        if new
    ]
    programs = rng.random(len(ends)) < assumptions.code_share
    services = np.where(
        programs, rng.exponential(assumptions.code_seconds, len(ends)), assumptions.other_seconds
    )
    return Wave(
        tokens=sum(job.length for job in jobs),
        full=engine.full(work.prompt_tokens, jobs) / setup.engines,
        sampled=max(ends),
        judged=judged(ends, services.tolist(), assumptions.judges * setup.engines),
    )


def collect(
    rng: np.random.Generator,
    setup: Setup,
    work: Work,
    assumptions: Assumptions,
    in_hand: Sequence[Group] = (),
    *,
    step: int = 0,
) -> tuple[list[Wave], list[Group], list[Group]]:
    """Waves until enough groups teach, as `prorl.rollout.batch.collect`: waves, groups that do, groups in hand."""
    waves: list[Wave] = []
    accepted: list[Group] = []
    held, budget = list(in_hand), math.ceil(work.prompts * work.max_draw_factor)
    while True:
        for group in [group for group in held if group.ended]:
            if len(accepted) == work.prompts:
                break
            held.remove(group)
            if group.teaches:
                accepted.append(group)
        begun = [group for group in held if not group.ended]
        missing = work.prompts - len(accepted)
        if not missing or not (begun or budget):
            return waves, accepted, held if work.partial else []
        size = wave_size(missing, assumptions.informative, work.margin)
        wanted = math.ceil((1 + work.partial) * size) - len(begun)
        fresh = draw_groups(rng, max(0, min(budget, wanted)), work, assumptions, step=step)
        budget -= len(fresh)
        held += fresh
        stop = {"stop_after": size} if work.partial else {}
        waves.append(sample(rng, begun + fresh, setup, work, assumptions, **stop))


# -- learning


def learn(lengths: Lengths, setup: Setup, work: Work, assumptions: Assumptions) -> float:
    """Seconds of all updates of a step; ranks meet after each, so the fullest one counts."""
    return sum(
        _update(part, setup, work, assumptions) for part in np.array_split(lengths, work.updates) if part.size
    )


def _update(lengths: Lengths, setup: Setup, work: Work, assumptions: Assumptions) -> float:
    size, ranks = setup.size, setup.learners
    positions = np.sort(lengths.ravel() + work.prompt_tokens)[::-1]
    load = [0.0] * ranks
    for flops in _pass_flops(size, positions).tolist():  # longest first, to the emptiest rank
        heapq.heapreplace(load, load[0] + flops)
    # Old log-probs, reference, forward, its recomputation, and a backward pass of two.
    compute = 6 * max(load) / (assumptions.flops * assumptions.learn_share)
    compute += float(positions.sum()) / ranks * _logits_bytes(size, work, assumptions) / assumptions.bandwidth
    micro_batches = math.ceil(float(positions.sum()) / ranks / work.micro_batch_tokens)
    link = assumptions.nvlink if ranks <= GPUS_PER_NODE else assumptions.network
    # Weights are gathered for each forward and the backward pass; gradients are spread in float32.
    moved = (4 * HALF + FLOAT32) * size.parameters * (1 - 1 / ranks) / link * micro_batches
    step = 7 * FLOAT32 * size.parameters / ranks / assumptions.bandwidth  # AdamW reads four, writes three
    return compute + max(assumptions.exposed * moved, moved - compute) + step


def _logits_bytes(size: Size, work: Work, assumptions: Assumptions) -> float:
    """Bytes that move for the logits of one position in all passes, beside the arithmetic."""
    head = work.vocabulary * size.hidden_size
    rows = assumptions.logits_elements / work.vocabulary
    # Five products read the head once for each chunk of rows; its float32 gradient is read, added to and written.
    weights = (5 * HALF + 3 * FLOAT32) * head / rows
    # Logits are written in half, made float32 and normalised: read and written each; entropy does so twice more.
    forward, entropy = 2 * HALF + 3 * FLOAT32, 4 * FLOAT32
    passes = 4 * forward + assumptions.entropy_passes * entropy + 4 * FLOAT32
    return float(weights + passes * work.vocabulary)


def _pass_flops(size: Size, positions: Lengths) -> NDArray[np.float64]:
    """Of one forward pass over each sequence, causal attention included."""
    tokens = positions.astype(float)
    attention = 2 * size.layers * size.heads * size.head_width * tokens**2
    return 2 * size.parameters * tokens + attention


# -- a step


def simulate(setup: Setup, work: Work, assumptions: Assumptions, *, seed: int) -> Iterator[Step]:
    """One step after another, the first with nothing in hand."""
    rng = np.random.default_rng(seed)
    in_hand: list[Group] = []
    for number in count():
        waves, accepted, in_hand = collect(rng, setup, work, assumptions, in_hand, step=number)
        age = float(np.mean([number - group.drawn for group in accepted]))
        yield _step(rng, waves, accepted, setup, work, assumptions, age=age)


def _step(
    rng: np.random.Generator,
    waves: Sequence[Wave],
    accepted: Sequence[Group],
    setup: Setup,
    work: Work,
    assumptions: Assumptions,
    *,
    age: float,
) -> Step:
    learning = learn(np.stack([group.lengths for group in accepted]), setup, work, assumptions)
    inside = setup.gpus <= GPUS_PER_NODE
    link = assumptions.nvlink if inside else assumptions.network
    transfer = HALF * setup.size.parameters / link
    validation = draw_groups(rng, work.validation_responses // work.samples, work, assumptions)
    saved = 3 * FLOAT32 * setup.size.parameters / setup.learners / assumptions.host_link + assumptions.save
    sampling = sum(wave.judged for wave in waves)
    # Overlap ends at every validation and checkpoint, and begins anew.
    hidden = min(sampling, learning) * (1 - 1 / work.validation_every) if setup.overlap else 0.0
    return Step(
        decode=sum(min(wave.full, wave.sampled) for wave in waves),
        tail=sum(max(0.0, wave.sampled - wave.full) for wave in waves),
        judge=sampling - sum(wave.sampled for wave in waves),
        learn=learning,
        sync=transfer + assumptions.sync,
        switch=assumptions.switch if setup.colocated else 0.0,
        rest=(sample(rng, validation, setup, work, assumptions).judged + saved) / work.validation_every,
        hidden=hidden,
        waves=len(waves),
        tokens=sum(wave.tokens for wave in waves),
        age=age,
    )
