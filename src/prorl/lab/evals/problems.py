"""How each problem of an evaluation went: what was counted, how responses voted, and some of them to read."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from statistics import fmean
from typing import Literal

from prorl.envs.extract import extract_answer, respond
from prorl.envs.files import storable
from prorl.envs.seeds import generator
from prorl.envs.types import Problem
from prorl.rollout.pipeline import ProblemScore, Sampler, grouped, judge_all, rejudge_errors, score
from prorl.stopwatch import Stopwatch
from prorl.types import Group, Rollout

LEAST_GUESSES = 64  # at a problem
JUDGED_AT_A_TIME = 4096
KEPT = 2  # first responses of a problem that are kept whatever their verdicts, beside the first that passed
ANSWER_CHARS = 1000  # of a longer answer only the beginning is kept: 256 of a problem may be whole texts

Part = Literal["test", "ood", "levels"]
"""Why a problem is asked: held out of the run, out of domain, or at one level of a task."""

Key = tuple[str, Part, int, int]
"""Task, part, level and index of a problem of an evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One extracted answer of a problem and how many responses gave it. Equal answers may differ in their verdict."""

    answer: str  # of one longer than `ANSWER_CHARS` the beginning and a hash
    count: int
    solved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A response that is kept for people to read, with its verdict."""

    sample: int
    text: str
    tokens: int
    finish: str
    score: float
    status: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResult(ProblemScore):
    """How one problem of an evaluation went."""

    task: str
    part: Part
    level: int
    index: int
    prompt: str
    truncated: int
    errors: int  # responses that the verifier could not judge; not among `samples`
    length: float  # mean response length, tokens
    guesses: int = 0  # answers to other problems of its task and level that were tried on it (`with_guesses`)
    guessed: int = 0  # of these the verifier accepted
    votes: tuple[Vote, ...] = ()  # the most frequent first
    kept: tuple[Kept, ...] = ()  # the first responses in sample order, and the first one that passed

    @property
    def key(self) -> Key:
        """Identifies the problem within an evaluation."""
        return self.task, self.part, self.level, self.index

    @property
    def is_voted(self) -> bool:
        """Whether all that answered can be counted by their answers, as programs cannot."""
        return sum(vote.count for vote in self.votes) == self.samples - self.unanswered


def with_guesses(
    sampler: Sampler,
    results: Sequence[ProblemResult],
    problems: Mapping[Key, Problem],
    *,
    seed: int,
    pass_threshold: Callable[[str], float],
    clock: Stopwatch,
    progress: Callable[[int, int, str], None],
) -> list[ProblemResult]:
    """The results of a whole evaluation, once answers to other problems were tried on each of `problems`."""
    tries = [(key, *guess) for key, given in guesses(results, seed).items() for guess in given.items()]
    tried, accepted = Counter[Key](), Counter[Key]()
    for begin in range(0, len(tries), JUDGED_AT_A_TIME):
        some = dict(enumerate(tries[begin : begin + JUDGED_AT_A_TIME]))
        items = {ticket: (problems[key], respond("", answer)) for ticket, (key, answer, _) in some.items()}
        with clock.phase("judge") as beat:
            verdicts = judge_all(sampler.judge, items, sampler.wait, beat)
            verdicts = rejudge_errors(sampler.judge, list(items.values()), verdicts, sampler.wait, beat)
        for ticket, (key, _, times) in some.items():
            if verdicts[ticket].status != "error":
                tried[key] += times
                accepted[key] += times * (verdicts[ticket].score >= pass_threshold(key[0]))
        progress(begin + len(some), len(tries), "guesses judged")
    return [replace(one, guesses=tried[one.key], guessed=accepted[one.key]) for one in results]


def guesses(results: Iterable[ProblemResult], seed: int) -> dict[Key, Counter[str]]:
    """Answers that the model gave to other problems of the same task, part and level, and how often each is drawn.

    For every problem as many as it had responses, or `LEAST_GUESSES`, by the frequency of the answers.
    """
    drawn: dict[Key, Counter[str]] = {}
    for members in grouped(results, lambda one: one.key[:3]).values():
        given = {one.key: Counter[str]() for one in members}
        for one in filter(lambda one: one.is_voted, members):
            for vote in one.votes:  # two of the same answer may differ in their verdict
                if len(vote.answer) <= ANSWER_CHARS:  # a cut one would be judged as another answer
                    given[one.key][vote.answer] += vote.count
        together = sum(given.values(), Counter[str]())
        for one in members:
            answers = together - given[one.key]
            count = max(LEAST_GUESSES, one.samples) if answers else 0
            rng = generator("guess", seed, *one.key)
            chosen = rng.choices(list(answers) or [""], list(answers.values()) or [1], k=count)
            drawn[one.key] = Counter(chosen)
    return drawn


def problem_result(group: Group, part: Part, threshold: float) -> ProblemResult:
    """What an evaluation keeps of a problem; a response with a score of `threshold` passed."""
    problem = group.problem
    judged = [rollout for rollout in group.rollouts if rollout.verdict.status != "error"]
    passed = [rollout for rollout in judged if rollout.verdict.score >= threshold]
    shown = {id(rollout): rollout for rollout in (*group.rollouts[:KEPT], *passed[:1])}
    return ProblemResult(
        **asdict(score(group, threshold)),
        task=problem.task,
        part=part,
        level=problem.level,
        index=problem.index,
        prompt=storable(problem.prompt),
        truncated=sum(rollout.completion.finish == "length" for rollout in judged),
        errors=len(group.rollouts) - len(judged),
        length=fmean(len(rollout.completion.tokens) for rollout in group.rollouts),
        votes=tuple(_votes(judged, threshold)),
        kept=tuple(map(_kept, shown.values())),
    )


def _votes(judged: Sequence[Rollout], threshold: float) -> Iterator[Vote]:
    """Answers as extracted. A program has no vote: no answer is looked for in it."""
    cast = Counter(
        (_ballot(answer), rollout.verdict.score >= threshold)
        for rollout in judged
        if rollout.verdict.answered and (answer := extract_answer(rollout.text)) is not None
    )
    for (answer, solved), count in cast.most_common():
        yield Vote(answer=answer, count=count, solved=solved)


def _ballot(answer: str) -> str:
    """The answer; of a long one the beginning, and a hash that tells it from others that begin so."""
    whole = storable(answer)
    if len(whole) <= ANSWER_CHARS:
        return whole
    return f"{whole[:ANSWER_CHARS]}… {blake2b(whole.encode(), digest_size=8).hexdigest()}"


def _kept(rollout: Rollout) -> Kept:
    return Kept(
        sample=rollout.completion.sample,
        text=storable(rollout.text),
        tokens=len(rollout.completion.tokens),
        finish=rollout.completion.finish,
        score=rollout.verdict.score,
        status=rollout.verdict.status,
        note=storable(rollout.verdict.note),
    )
