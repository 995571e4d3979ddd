"""What a study asks: held-out problems of every domain, problems out of domain, and difficulty ladders."""

from __future__ import annotations

from prorl.envs.mixture import Mixture
from prorl.envs.types import Problem
from prorl.lab.evals.shelf import Questions
from prorl.lab.evals.study import Part


def questions(tasks: Mixture, *, per_domain: int, ood: int, per_level: int) -> Questions:
    """`per_domain` problems of each domain, `ood` out of each, `per_level` of each rung of the default ladders.

    Parts of size zero are not asked.

    Raises:
        ValueError: a domain has fewer distinct problems.
    """
    asked: dict[Part, tuple[Problem, ...]] = {}
    if per_domain:
        asked["test"] = tasks.exam_problems("test", per_domain)
    if ood:
        asked["ood"] = tasks.exam_problems("ood", ood)
    if per_level:
        names = tasks.ladder_tasks()
        asked["ladder"] = tuple(
            problem for name in names for problem in tasks.ladder_problems(name, per_level)
        )
    return {part: problems for part, problems in asked.items() if problems}
