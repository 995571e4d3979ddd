"""Roll-outs whose responses a test writes itself: the text of a response is the score it earns.

`0.5` scores one half, `!` makes the verifier fail, and an empty response holds no answer.
"""

from collections.abc import Callable, Sequence
from random import Random

from prorl.envs.extract import extract_answer, respond
from prorl.envs.types import Problem, Verdict
from prorl.rollout.pipeline import Sampler
from prorl.types import Completion, Group, Request, Rollout, log_probs, token_ids
from support.fake_backend import END, FakeJudge, FakeRenderer, begun

VERSION = 3
BROKEN, SILENT = "!", ""


class ScoreTask:
    """Believes a response that says what it is worth."""

    def __init__(self, name: str = "score", domain: str = "math") -> None:
        self.name, self.domain = name, domain

    def verify(self, problem: Problem, text: str) -> Verdict:
        answer = extract_answer(text)
        if answer is None:
            return Verdict(score=0.0, status="wrong", note="no answer", answered=False)
        if answer == BROKEN:
            return Verdict(score=0.0, status="error", note="the verifier failed")
        return Verdict(score=float(answer), status="ok" if float(answer) == 1 else "wrong")


class ScriptedEngine:
    """Finishes one response per poll, in the order of a shuffle; keeps the requests it was sent."""

    def __init__(self, answer: Callable[[int, int], str], shuffle: int | None) -> None:
        self.version = VERSION
        self.order: Callable[[int], int] = lambda draw: 0  # in which draws finish, where not shuffled
        self.requests: list[Request] = []
        self._answer = answer
        self._random = None if shuffle is None else Random(shuffle)
        self._queue: list[Completion] = []

    def submit(self, request: Request) -> None:
        self.requests.append(request)
        for sample in request.numbers:
            text = response(self._answer(request.draw, sample))
            new = {"begun": len(request.begun), "limit": request.sampling.limit}
            self._queue.append(completion(text, request.draw, sample, version=self.version, **new))
        self._queue.sort(key=lambda one: self.order(one.draw))

    def poll(self) -> list[Completion]:
        if not self._queue:
            return []
        return [self._queue.pop(self._random.randrange(len(self._queue)) if self._random else 0)]

    def cancel(self) -> list[Completion]:
        """Half of what it would have written, of every second response."""
        queue, self._queue = self._queue[::2], []
        return begun(queue)


class LateJudge(FakeJudge):
    """Says nothing until it is waited for, and then the newest verdict first, one at a time."""

    def poll(self, *, wait: bool) -> list[tuple[int, Verdict]]:
        return [self._ready.pop()] if wait and self._ready else []


def response(answer: str) -> str:
    return respond("", answer) if answer else "…"


def scripted_sampler(
    answer: Callable[[int, int], str], *, shuffle: int | None = None, late: bool = False
) -> Sampler:
    """`answer(draw, sample)` is what the policy says; `shuffle` seeds the order in which responses finish."""
    judge = (LateJudge if late else FakeJudge)(
        {task.name: task for task in (ScoreTask(), ScoreTask("other"))}
    )
    return Sampler(engine=ScriptedEngine(answer, shuffle), judge=judge, renderer=FakeRenderer())


def problem(draw: int, *, task: str = "score", domain: str = "math") -> Problem:
    return Problem(
        task=task,
        domain=domain,
        index=draw,
        split="train",
        level=1,
        prompt=f"problem {draw}",
        payload=None,
    )


def completion(
    text: str, draw: int = 0, sample: int = 0, *, begun: int = 0, limit: int = 1000, version: int = VERSION
) -> Completion:
    tokens = (*map(ord, text), END)[begun : begun + limit]
    return Completion(
        draw=draw,
        sample=sample,
        tokens=token_ids(tokens),
        logps=log_probs([-0.5] * len(tokens)),
        finish="stop" if tokens[-1] == END else "length",
        policy_version=version,
    )


def group(answers: Sequence[str], draw: int = 0, *, limit: int = 1000) -> Group:
    """A judged group whose rollouts gave these answers."""
    asked = problem(draw)
    rollouts = []
    for sample, answer in enumerate(answers):
        done = completion(response(answer), draw, sample, limit=limit)
        verdict = ScoreTask().verify(asked, response(answer))
        rollouts.append(Rollout(completion=done, text=response(answer), verdict=verdict))
    return Group(draw=draw, problem=asked, prompt=(1, 2), rollouts=tuple(rollouts))
