"""Rendering, sampling and judging a fixed list of problems, and counting how each went: shared by training,
validation and evaluations.

`ChatRenderer` is the one place where a prompt becomes tokens, by the model's own tokenizer, which the caller brings.
Which sequences decode together follows from the order of the problems alone, never from how fast a verdict came.

A verdict of "error" drops its group, so a judge killed from outside would change what a run learns from, and a broken
verifier would quietly turn a run of five domains into one of four. So each error is judged once more, and while a
task (nearly all of its verdicts are errors) or the judge is out the run waits, says so, and tries again at growing
intervals. The verdicts are those that would have come at once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

from prorl.algo.pass_at_k import pass_at_k
from prorl.envs.errors import ProrlError, UsageError
from prorl.envs.extract import ANSWER_CLOSE, ANSWER_OPEN, THINK_CLOSE, THINK_OPEN
from prorl.envs.mixture import KEPT
from prorl.envs.types import Problem, Turn, Verdict
from prorl.stopwatch import Stopwatch, unheard
from prorl.types import NOT_BEGUN, Completion, Engine, Group, Judge, JudgeOutError, Request, Rollout, Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TAGS = (THINK_OPEN, THINK_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)
OUTAGE_SHARE = 0.8  # errors among the verdicts of a task from which it counts as out
OUTAGE_VERDICTS = 8  # fewer say nothing about a task
FIRST_WAIT, LONGEST_WAIT = 5.0, 60.0  # seconds; doubled from one to the other

# Before a chat template that tells the date: a day for ever, or prompts would change from one to the next.
TODAY = """{%- macro strftime_now(form) -%}
{{ form|replace("%Y", "2024")|replace("%m", "07")|replace("%d", "26")|replace("%b", "Jul")|replace("%B", "July") }}
{%- endmacro %}"""

Thing = TypeVar("Thing")
Key = TypeVar("Key", bound=Hashable)
Item = tuple[Problem, str]  # what was judged: a problem and a response to it
Wait = Callable[[str, float], None]
"""Says a sentence, if given one, then lets so many seconds pass; raises `WaitEnded` if somebody asks to stop."""


class WaitEnded(Exception):
    """Somebody asked to stop while verifiers were out: what was sampled is not counted, and will be again."""


def wait_silently(_reason: str, seconds: float) -> None:
    """A `Wait` that tells nobody."""
    time.sleep(seconds)


class ChatRenderer:
    """Text to tokens and back for any transformers tokenizer, with or without a chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, system: str = "") -> None:
        """`system` is a system prompt for problems that come without one."""
        self._tokenizer, self._system = tokenizer, system
        added = tokenizer.added_tokens_decoder.items()
        special = {*tokenizer.all_special_ids, *(id_ for id_, token in added if token.special)}
        self._dropped = special - {id_ for id_, token in added if token.content in TAGS}
        template = tokenizer.get_chat_template() if tokenizer.chat_template else ""
        self._template = TODAY + template if "strftime_now" in template else None
        opened: str = tokenizer.decode(self._encode(""), skip_special_tokens=False)
        self._opening = THINK_OPEN if opened.rstrip().endswith(THINK_OPEN) else ""
        self._encoded = lru_cache(KEPT)(self._encode)

    def encode(self, prompt: str, history: tuple[Turn, ...] = ()) -> tuple[int, ...]:
        """A user prompt, after what was said before, as the token ids that open the assistant's turn.

        Where there is no template every turn is a line, without its role. Those of the last `KEPT` prompts are kept.
        Raises UsageError: the template refuses these turns, as some do a system prompt.
        """
        return self._encoded(prompt, history)

    def _encode(self, prompt: str, history: tuple[Turn, ...] = ()) -> tuple[int, ...]:
        if self._system and not any(role == "system" for role, _ in history):
            history = (("system", self._system), *history)
        said = (*history, ("user", prompt))
        if not self._tokenizer.chat_template:
            tokens = tuple(self._tokenizer.encode("".join(f"{content}\n" for _, content in said)))
            # Some tokenizers end every text; after an end the model would begin another one.
            ended = len(tokens) > 1 and tokens[-1] == self._tokenizer.eos_token_id
            return tokens[:-1] if ended else tokens
        turns = [{"role": role, "content": content} for role, content in said]
        try:
            return tuple(
                self._tokenizer.apply_chat_template(
                    turns, chat_template=self._template, add_generation_prompt=True, return_dict=False
                )
            )
        except Exception as error:  # a template is a program: it raises what it likes
            raise UsageError(f"the chat template refuses it: {str(error).partition(chr(10))[0]}") from error

    def decode(self, tokens: Sequence[int]) -> str:
        """The assistant's turn as text: special tokens are dropped, thinking and answer tags stay.

        Where the template itself opens the thinking (DeepSeek-R1), the text starts with that tag, so that a
        response which never closes it is read as unfinished thinking.
        """
        kept = [token for token in tokens if token not in self._dropped]
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return self._opening + str(self._tokenizer.decode(kept, **options))


class VerifierError(ProrlError):
    """No response to any problem could be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """Engine, judge and renderer used for rollouts, and how to wait while verifiers are out."""

    engine: Engine
    judge: Judge
    renderer: ChatRenderer
    wait: Wait = wait_silently


def roll_out(
    sampler: Sampler,
    groups: Sequence[Group],
    *,
    samples: int,
    sampling: Sampling,
    seeds: Sequence[int],
    clock: Stopwatch,
    stop_after: int | None = None,
) -> list[Group]:
    """Sample `samples` responses to every group's problem, with its seed, and judge each one as soon as it ends.

    Of a group that was begun the unfinished responses are gone on with, and only those. Once `stop_after` groups
    have ended the others are left unfinished. A prompt that the chat template refuses, or the engine, as one too
    long, gets errors for verdicts.

    Raises ProrlError where the engine answered with other weights than it has now, WaitEnded where somebody
    asked to stop while verifiers or judges were out; the judge may then still owe verdicts.
    """
    engine, judge, wait = sampler.engine, sampler.judge, sampler.wait
    wave = _Wave(sampler, sampling.limit)
    for group, seed in zip(groups, seeds, strict=True):
        wave.ask(group, Request(draw=group.draw, prompt=(), samples=samples, seed=seed, sampling=sampling))
    verdicts: dict[int, Verdict] = {}
    finished: Sequence[Completion] | None = None
    with clock.phase("generate") as beat:
        while finished is None or finished:
            finished = engine.poll()  # it goes on while responses are decoded and judged
            wave.take(finished)
            if stop_after is not None and wave.ended >= stop_after:
                wave.take(engine.cancel())
                finished = ()
            verdicts.update(judge.poll(wait=False))
            beat()
    with clock.phase("judge") as beat:
        verdicts = collect_verdicts(judge, verdicts, len(wave.items), wait, beat)
        verdicts = rejudge_errors(judge, wave.items, verdicts, wait, beat)
    return wave.groups(verdicts)


class _Wave:
    """Groups on their way through engine and judge; a ticket of the judge is a position in `items`."""

    def __init__(self, sampler: Sampler, limit: int) -> None:
        self._sampler = sampler
        self._limit = limit
        self._version = sampler.engine.version
        self._asked: dict[int, Group] = {}  # by draw, as the following
        self._unfinished: dict[int, dict[int, Completion]] = {}  # by sample
        self._completions: list[Completion] = []
        self.items: list[Item] = []

    @property
    def ended(self) -> int:
        """How many groups have no response that is unfinished."""
        return sum(not rest for rest in self._unfinished.values())

    def ask(self, group: Group, whole: Request) -> None:
        """Have the engine write what is missing of a group; `whole` asks for all, but has no prompt yet."""
        problem, rest = group.problem, group.unfinished or _not_begun(whole, self._version)
        self._unfinished[group.draw] = {}
        try:
            group = replace(group, prompt=self._sampler.renderer.encode(problem.prompt, problem.history))
            for request in _rest(replace(whole, prompt=group.prompt), rest):
                self._sampler.engine.submit(request)
            self._unfinished[group.draw] = {one.sample: one for one in rest}
        except UsageError as error:  # it cannot be asked
            verdict = Verdict(score=0.0, status="error", note=str(error))
            refused = [Rollout(completion=one, text="", verdict=verdict) for one in rest]
            group = replace(group, rollouts=(*group.rollouts, *refused))
        self._asked[group.draw] = group

    def take(self, pieces: Iterable[Completion]) -> None:
        """What the engine wrote: a response that has ended goes to the judge."""
        for piece in pieces:
            if piece.policy_version != self._version:
                raise ProrlError(
                    f"draw {piece.draw} was sampled by policy version {piece.policy_version}, "
                    f"but version {self._version} was asked"
                )
            mine = self._unfinished[piece.draw]
            completion = _joined(mine[piece.sample], piece)
            if completion.finish == "length" and len(completion.tokens) < self._limit:
                mine[piece.sample] = completion
                continue
            del mine[piece.sample]
            item = (self._asked[piece.draw].problem, self._sampler.renderer.decode(completion.tokens))
            self._sampler.judge.submit(len(self.items), *item)
            self._completions.append(completion)
            self.items.append(item)

    def groups(self, verdicts: Mapping[int, Verdict]) -> list[Group]:
        """The groups with what has ended of them and was judged, by ticket, and with what has not ended."""
        rollouts = {draw: [*group.rollouts] for draw, group in self._asked.items()}
        for ticket, (completion, (_, text)) in enumerate(zip(self._completions, self.items, strict=True)):
            rollout = Rollout(completion=completion, text=text, verdict=verdicts[ticket])
            rollouts[completion.draw].append(rollout)
        return [
            replace(
                group,
                rollouts=tuple(sorted(rollouts[draw], key=lambda rollout: rollout.completion.sample)),
                unfinished=tuple(self._unfinished[draw].values()),
            )
            for draw, group in self._asked.items()
        ]


def _not_begun(request: Request, version: int) -> list[Completion]:
    nothing = replace(NOT_BEGUN, draw=request.draw, policy_version=version)
    return [replace(nothing, sample=sample) for sample in request.numbers]


def _rest(whole: Request, unfinished: Collection[Completion]) -> Iterator[Request]:
    """Requests for what is missing of these responses."""
    if len(unfinished) == whole.samples and not any(one.tokens for one in unfinished):
        yield whole
        return
    for one in unfinished:
        sampling = replace(whole.sampling, limit=whole.sampling.limit - len(one.tokens))
        yield replace(whole, samples=1, first=one.sample, begun=tuple(one.tokens), sampling=sampling)


def _joined(earlier: Completion, later: Completion) -> Completion:
    """A response of which the second part was written now."""
    if not earlier.tokens:
        return later
    tokens, logps = earlier.tokens + later.tokens, earlier.logps + later.logps
    return replace(earlier, tokens=tokens, logps=logps, finish=later.finish)


def sample_problems(
    sampler: Sampler,
    problems: Sequence[Problem],
    *,
    samples: int,
    sampling: Sampling,
    seeds: Sequence[int],
    clock: Stopwatch,
) -> list[Group]:
    """Sample and judge `samples` responses to every problem, with its seed.

    Problems of which none could be judged are left out. Raises VerifierError where none remain.
    """
    asked = [Group(draw=draw, problem=problem) for draw, problem in enumerate(problems)]
    groups = roll_out(sampler, asked, samples=samples, sampling=sampling, seeds=seeds, clock=clock)
    judged = [group for group in groups if any(one.verdict.status != "error" for one in group.rollouts)]
    if groups and not judged:
        note = groups[0].rollouts[0].verdict.note
        raise VerifierError(
            f"no response of a validation or measurement could be judged, the first one for this reason: {note}"
        )
    return judged


def judge_all(
    judge: Judge, items: Mapping[int, Item], wait: Wait = wait_silently, beat: Callable[[], None] = unheard
) -> dict[int, Verdict]:
    """Submit items under their tickets and block until all are judged."""
    for ticket, (problem, text) in items.items():
        judge.submit(ticket, problem, text)
    return collect_verdicts(judge, {}, len(items), wait, beat)


def collect_verdicts(
    judge: Judge,
    verdicts: Mapping[int, Verdict],
    expected: int,
    wait: Wait = wait_silently,
    beat: Callable[[], None] = unheard,
) -> dict[int, Verdict]:
    """`verdicts` and those still outstanding, `expected` in all; a sign of life whenever some have come."""
    found = dict(verdicts)
    while len(found) < expected:
        beat()
        try:
            found.update(judge.poll(wait=True))
        except JudgeOutError as out:
            wait(f"paused: {out}; trying again in {out.seconds:.0f} s; Ctrl-C saves and stops", out.seconds)
    return found


def rejudge_errors(
    judge: Judge,
    items: Sequence[Item],
    verdicts: Mapping[int, Verdict],
    wait: Wait,
    beat: Callable[[], None] = unheard,
) -> dict[int, Verdict]:
    """`verdicts` by position in `items`, with errors judged once more, those of a task that is out until it heals."""
    healed = dict(verdicts)
    failed = sorted(ticket for ticket, verdict in verdicts.items() if verdict.status == "error")
    seconds = 0.0
    while failed:
        if seconds:
            tasks = sorted({items[ticket][0].task for ticket in failed})
            asked = sum(problem.task in tasks for problem, _ in items)
            wait(
                f"paused: the verifiers of {', '.join(tasks)} fail on {len(failed)} of {asked} responses "
                f"({healed[failed[0]].note}); trying again in {seconds:.0f} s; Ctrl-C saves and stops",
                seconds,
            )
        healed |= judge_all(judge, {ticket: items[ticket] for ticket in failed}, wait, beat)
        failed = failures(items, healed)
        seconds = min(2 * seconds or FIRST_WAIT, LONGEST_WAIT)
    return healed


def failures(items: Sequence[Item], verdicts: Mapping[int, Verdict]) -> list[int]:
    """Tickets of the errors of tasks that are out: nearly all verdicts fail, and of more than one problem."""
    failed: list[int] = []
    for tickets in grouped(range(len(items)), lambda ticket: items[ticket][0].task).values():
        errors = [ticket for ticket in tickets if verdicts[ticket].status == "error"]
        problems = {
            (problem.split, problem.level, problem.index) for problem, _ in map(items.__getitem__, errors)
        }
        enough = len(problems) > 1 and len(tickets) >= OUTAGE_VERDICTS
        if enough and len(errors) >= OUTAGE_SHARE * len(tickets):
            failed += errors
    return failed


def grouped(things: Iterable[Thing], by: Callable[[Thing], Key]) -> dict[Key, list[Thing]]:
    """Things by their key, in order of first appearance."""
    groups: dict[Key, list[Thing]] = defaultdict(list)
    for thing in things:
        groups[by(thing)].append(thing)
    return dict(groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemScore:
    """How one problem went: of `samples` judged responses `solved` passed and `unanswered` held no answer."""

    domain: str
    samples: int
    solved: int
    unanswered: int


def score(group: Group, threshold: float) -> ProblemScore:
    """Count the responses that could be judged; those with a score of `threshold` passed."""
    verdicts = [rollout.verdict for rollout in group.rollouts if rollout.verdict.status != "error"]
    return ProblemScore(
        domain=group.problem.domain,
        samples=len(verdicts),
        solved=sum(verdict.score >= threshold for verdict in verdicts),
        # An empty response may follow an instruction; one that passed is no failure of format.
        unanswered=sum(not verdict.answered and verdict.score < threshold for verdict in verdicts),
    )


def domain_rates(problems: Iterable[ProblemScore], k: int) -> dict[str, float]:
    """pass@k per domain, averaged over its problems."""
    by_domain = grouped(problems, lambda one: one.domain)
    return {
        domain: fmean(pass_at_k(one.samples, one.solved, min(k, one.samples)) for one in members)
        for domain, members in by_domain.items()
    }


def unanswered_share(problems: Sequence[ProblemScore]) -> float:
    """Share of responses without an extractable answer: format failures, as opposed to wrong answers."""
    return sum(problem.unanswered for problem in problems) / sum(problem.samples for problem in problems)
