"""Does a task keep its promises? The known solution passes, cheap tricks earn nothing, and judging is fast.

A trick fails a task when it earns more than the best constant answer, above which a score begins to mean something.
Where any text is an answer, as in instruction following, nothing is a trick.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from prorl.envs.extract import respond
from prorl.envs.types import Problem, Split, Task, Verdict

STOCK_ANSWERS = ("0", "1", "2", "yes", "no", "A")
TRICKS = (
    *("?", "[]", "None", "True False", " ".join(map(str, range(100))), ", ".join(map(str, range(-9, 10)))),
    *("Monday Tuesday Wednesday Thursday Friday Saturday Sunday", "</answer>" * 3, "the answer"),
)
ECHOED_LINES = 12  # of a prompt, from its end; most prompts are shorter
FEWEST = 4  # different problems that one answer may not solve all of
MAX_FAULT = 300  # characters; an error may say anything
FREE_TEXT = "some words and no answer tag"
SPLIT_ORDER: tuple[Split, ...] = ("train", "ood", "test", "validation")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheck:
    """What was found on some problems of one task; times in seconds per problem and per response."""

    with_solution: int  # problems with a known solution
    baseline: float  # mean score of the best constant answer
    generate_seconds: float
    verify_seconds: float
    faults: tuple[str, ...]  # empty: the task keeps its promises


def constant_baseline(task: Task, problems: Sequence[Problem]) -> tuple[str, float]:
    """The best answer that ignores the question and its mean score on n problems; too high by about 1/n.

    Tried are the known solutions' answers and a few stock ones.
    """
    answers = dict.fromkeys((*(p.solution.answer for p in problems if p.solution), *STOCK_ANSWERS))
    scores = {
        answer: fmean(_verdict(task, problem, respond("", answer), []).score for problem in problems)
        for answer in answers
    }
    return max(scores.items(), key=lambda item: (item[1], item[0]))


def check_task(task: Task, problems: int = 20) -> TaskCheck:
    """Try a task on the first problems, at least one, of the first split that it has."""
    split = next(split for split in SPLIT_ORDER if split in task.splits)
    begin = time.perf_counter()
    asked = [task.problem(index, split) for index in range(problems)]
    generated = time.perf_counter()
    constant, baseline = constant_baseline(task, asked)
    spent: list[float] = []
    faults = tuple(dict.fromkeys(one[:MAX_FAULT] for one in _faults(task, asked, constant, baseline, spent)))
    return TaskCheck(
        with_solution=sum(problem.solution is not None for problem in asked),
        baseline=baseline,
        generate_seconds=(generated - begin) / problems,
        verify_seconds=fmean(spent),
        faults=faults,
    )


def _faults(
    task: Task, problems: Sequence[Problem], constant: str, baseline: float, spent: list[float]
) -> Iterator[str]:
    if any(task.problem(problem.index, problem.split) != problem for problem in problems):
        yield "a problem differs when it is made again: use no randomness but the given generator"
    for problem in problems:
        if problem.solution is not None:
            verdict = _verdict(task, problem, respond(problem.solution.steps, problem.solution.answer), spent)
            if verdict.status == "error":
                yield f"the verifier fails on the known solution of problem {problem.index}: {verdict.note}"
            elif verdict.score < task.pass_threshold:
                yield f"the known solution of problem {problem.index} scores {verdict.score:g}"
        for text, name in (("", "an empty response"), (problem.prompt, "an echo of the prompt")):
            verdict = _verdict(task, problem, text, spent)
            if verdict.status == "error":
                yield f"the verifier fails on {name}: {verdict.note}"
            if verdict.score > 0:
                yield f"{name} scores"
    if _verdict(task, problems[0], FREE_TEXT, spent).answered:
        return
    if len({one.prompt for one in problems}) >= FEWEST and baseline >= task.pass_threshold:
        yield f"the constant answer {constant[:20]!r} solves every problem"
    tricks = {repr(trick[:20]): [trick] * len(problems) for trick in (*TRICKS, *STOCK_ANSWERS)}
    lines = [problem.prompt.strip().splitlines()[-ECHOED_LINES:] for problem in problems]
    for place in range(1, max(map(len, lines)) + 1):
        echoes = [prompt[-place] if place <= len(prompt) else "" for prompt in lines]
        tricks[f"an echo of line {place} from the end of the prompt"] = echoes
    for name, answers in tricks.items():
        asked = zip(problems, answers, strict=True)
        verdicts = [_verdict(task, problem, respond("", answer), spent) for problem, answer in asked]
        if any(verdict.status == "error" for verdict in verdicts):
            yield f"the verifier fails on {name}"
        if fmean(verdict.score for verdict in verdicts) > baseline:
            yield f"{name} earns more than the best constant answer"


def _verdict(task: Task, problem: Problem, text: str, spent: list[float]) -> Verdict:
    """The task's verdict and its seconds; one that raises breaks its promise, and the next is still to be checked."""
    begin = time.perf_counter()
    try:
        return task.verify(problem, text)
    except (Exception, SystemExit) as error:
        return Verdict(score=0.0, status="error", note=f"{type(error).__name__}: {error}")
    finally:
        spent.append(time.perf_counter() - begin)
