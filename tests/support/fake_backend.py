"""A backend without torch, in milliseconds: a scripted policy that improves when its updates are sound.

It exercises the real loop, director, journal and checkpoints. The policy is one number, `skill`: the chance to
write a problem's solution instead of a wrong answer. An update moves it by the mean advantage of right answers.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from prorl.envs.extract import respond
from prorl.envs.seeds import generator
from prorl.envs.types import Problem, Task, Turn, Verdict
from prorl.types import Batch, Completion, HParams, Request, UpdateStats, log_probs, token_ids

END = 0  # the end-of-sequence token; every other token is a character's code point
WRONG = "?"


class FakeRenderer:
    """One token per character."""

    def encode(self, prompt: str, history: tuple[Turn, ...] = ()) -> tuple[int, ...]:
        return tuple(map(ord, prompt))

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(token) for token in tokens if token != END)


def begun(whole: Sequence[Completion]) -> list[Completion]:
    """The first halves of responses, as of an engine that was told to stop."""
    halves = [(one, len(one.tokens) // 2) for one in whole if len(one.tokens) > 1]
    return [
        replace(one, tokens=one.tokens[:half], logps=one.logps[:half], finish="length")
        for one, half in halves
    ]


class FakeEngine:
    """Writes a problem's solution with probability `skill`, a wrong answer otherwise."""

    def __init__(self, answers: Mapping[tuple[int, ...], str]) -> None:
        self._answers = answers
        self._queue: list[Request] = []
        self._skill = 0.0
        self.version = -1

    def publish(self, skill: float, version: int) -> None:
        self._skill, self.version = skill, version

    def submit(self, request: Request) -> None:
        self._queue.append(request)

    def poll(self) -> list[Completion]:
        if not self._queue:
            return []
        request = self._queue.pop(0)
        return [self._sample(request, sample) for sample in request.numbers]

    def cancel(self) -> list[Completion]:
        """Half of what it would have written."""
        queue, self._queue = self._queue, []
        whole = [self._sample(request, sample) for request in queue for sample in request.numbers]
        return begun(whole)

    def _sample(self, request: Request, sample: int) -> Completion:
        right = generator(request.seed, sample).random() < self._skill
        text = self._answers[request.prompt] if right else respond("", WRONG)
        whole = (*map(ord, text), END)
        # A response that was begun goes on, whatever the policy has become since.
        if request.begun and whole[: len(request.begun)] != request.begun:
            whole = (*request.begun, *map(ord, WRONG), END)
        tokens = whole[len(request.begun) :][: request.sampling.limit]
        logp = math.log(self._skill if right else 1 - self._skill) / len(tokens)
        return Completion(
            draw=request.draw,
            sample=sample,
            tokens=token_ids(tokens),
            logps=log_probs([logp] * len(tokens)),
            finish="stop" if tokens[-1] == END else "length",
            policy_version=self.version,
        )


class FakeJudge:
    """Verifies in this process: the fake policy writes nothing that could harm."""

    def __init__(self, tasks: Mapping[str, Task]) -> None:
        self._tasks = tasks
        self._ready: list[tuple[int, Verdict]] = []

    def submit(self, ticket: int, problem: Problem, text: str) -> None:
        self._ready.append((ticket, self._tasks[problem.task].verify(problem, text)))

    def poll(self, *, wait: bool) -> list[tuple[int, Verdict]]:
        ready, self._ready = self._ready, []
        return ready


class FakeLearner:
    """`skill` is the policy, `momentum` the optimizer, and the reference another skill."""

    def __init__(self, skill: float) -> None:
        self.skill = skill
        self.momentum = 0.0
        self.reference = skill

    def begin_update(self, batch: Batch, hparams: HParams, beat: object = None) -> Callable[[], UpdateStats]:
        return partial(self.update, batch, hparams)

    def update(self, batch: Batch, hparams: HParams) -> UpdateStats:
        actions = [action for group in batch for action in group.actions]
        tokens = sum(len(action.tokens) for action in actions)
        gain = sum(a.advantage for a in actions if len(a.tokens) > len(respond("", WRONG)) + 1)
        if actions:
            self.momentum = 0.5 * self.momentum + hparams.learning_rate * gain / len(actions)
            self.skill = min(0.99, max(0.01, self.skill + self.momentum))
        measured: dict[str, float | None] = {
            "loss": -gain,
            "kl": abs(self.skill - self.reference) if hparams.kl_coef else None,
            "entropy": -self.skill * math.log(self.skill) - (1 - self.skill) * math.log(1 - self.skill),
            "grad_norm": abs(gain),
            **dict.fromkeys(("clip_share", "mismatch", "mismatch_out_share"), 0.0),
        }
        return UpdateStats(
            updates=hparams.updates_per_step if actions else 0,
            skipped=0,
            **(measured if actions else dict.fromkeys(measured)),  # what was not measured is None
            tokens=tokens,
            action_tokens=tokens,
        )

    def reset_reference(self, source: Path | None, *, clear_optimizer: bool) -> None:
        self.reference = self.skill if source is None else _read(source)["skill"]
        if clear_optimizer:
            self.momentum = 0.0

    def snapshot(self) -> Callable[[Path], None]:
        data = json.dumps({"skill": self.skill, "momentum": self.momentum})

        def write(folder: Path) -> None:
            (folder / "model.json").write_text(data)

        return write

    def restore(self, folder: Path) -> None:
        data = _read(folder)
        self.skill, self.momentum = data["skill"], data["momentum"]

    def save_reference(self, folder: Path) -> None:
        (folder / "model.json").write_text(json.dumps({"skill": self.reference}))


class FakeBackend:
    """Engine, judge and learner around one scripted policy."""

    def __init__(
        self, tasks: Mapping[str, Task], answers: Mapping[tuple[int, ...], str], skill: float
    ) -> None:
        self.engine = FakeEngine(answers)
        self.judge = FakeJudge(tasks)
        self.learner = FakeLearner(skill)

    def sync(self, version: int) -> None:
        self.engine.publish(self.learner.skill, version)

    def incidents(self) -> list[str]:
        return []

    def close(self) -> None:
        """Nothing to release."""


def _read(folder: Path) -> dict[str, float]:
    data: dict[str, float] = json.loads((folder / "model.json").read_text())
    return data
