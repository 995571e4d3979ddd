"""Problems and how they went, with only what a test cares about said."""

from collections.abc import Iterable, Mapping
from typing import Any

from prorl.lab.evals.evaluation_store import Evaluation
from prorl.lab.evals.problems import Kept, ProblemResult, Vote


def result(solved: int, samples: int = 16, *, index: int = 0, **about: Any) -> ProblemResult:
    """A problem of which `solved` responses passed."""
    plain: dict[str, Any] = {
        "task": "t",
        "domain": "math",
        "part": "test",
        "level": 1,
        "prompt": f"problem {index}",
        "unanswered": 0,
        "truncated": 0,
        "errors": 0,
        "length": 9.0,
    }
    return ProblemResult(samples=samples, solved=solved, index=index, **{**plain, **about})


def kept(*texts: str) -> tuple[Kept, ...]:
    """Responses as they are stored."""
    return tuple(
        Kept(sample=sample, text=text, tokens=9, finish="stop", score=0.0, status="wrong", note="")
        for sample, text in enumerate(texts)
    )


def results(solved: Iterable[int], samples: int = 16, **about: Any) -> list[ProblemResult]:
    """Problems by how many of their responses passed."""
    return [result(number, samples, index=index, **about) for index, number in enumerate(solved)]


def voted(votes: Mapping[str, tuple[int, bool]], *, silent: int = 0, index: int = 0) -> ProblemResult:
    """A problem whose answers were given so often and were right or not; `silent` responses had none."""
    return result(
        sum(count for count, right in votes.values() if right),
        sum(count for count, _ in votes.values()) + silent,
        index=index,
        unanswered=silent,
        votes=tuple(Vote(answer=answer, count=n, solved=right) for answer, (n, right) in votes.items()),
    )


def evaluation(model: str, problems: Iterable[ProblemResult], *, step: int | None = None) -> Evaluation:
    """A model's evaluation."""
    chosen = tuple(problems)
    return Evaluation(model=model, step=step, samples=chosen[0].samples, seconds=1.0, problems=chosen)
