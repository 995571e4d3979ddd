"""What a study asks: parts of the sizes wanted, ladders of default tasks, and nothing that was trained."""

import pytest

from prorl.envs.base import belongs
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_task
from prorl.rollout.validation import questions

WEIGHTS = {"arithmetic": 1.0, "linear_equation": 3.0, "word_list": 2.0, "blicket": 9.0, "countdown": 0.0}
TASKS = Mixture([(make_task(name), weight) for name, weight in WEIGHTS.items()], seed=0)


def test_parts_have_the_sizes_that_were_asked():
    asked = questions(TASKS, per_domain=6, ood=3, per_level=2)
    assert [len(asked["test"]), len(asked["ood"])] == [2 * 6, 3 * 3]
    ladders = {(p.task, p.level) for p in asked["ladder"]}
    assert ladders == {
        (name, level) for name in ("linear_equation", "word_list") for level in make_task(name).ladder
    }
    assert len(asked["ladder"]) == 2 * len(ladders)


def test_a_part_of_size_zero_is_not_asked():
    assert list(questions(TASKS, per_domain=1, ood=0, per_level=0)) == ["test"]
    assert questions(TASKS, per_domain=0, ood=0, per_level=0) == {}


def test_the_questions_are_the_same_for_every_run():
    other = Mixture([(make_task(name), weight) for name, weight in WEIGHTS.items()], seed=7)
    sizes = {"per_domain": 3, "ood": 2, "per_level": 2}
    assert questions(TASKS, **sizes) == questions(other, **sizes)


@pytest.mark.parametrize("levels", [{1: 1.0}, {1: 1.0, 2: 3.0}])
def test_no_question_of_a_ladder_can_be_trained_on_at_any_level(levels):
    mixture = Mixture([(make_task("linear_equation", levels), 1.0)], seed=0)
    asked = questions(mixture, per_domain=0, ood=0, per_level=8)["ladder"]
    assert {p.level for p in asked} == set(make_task("linear_equation").ladder), "whatever the recipe trains"
    for problem in asked:
        assert belongs(problem.prompt, "test")
        assert not belongs(problem.prompt, "train")
        assert not belongs(problem.prompt, "exam")
    assert len({problem.prompt for problem in asked}) == len(asked)
