"""The check passes what is right and names what is wrong; the baseline is the answer that pays best unread."""

from dataclasses import replace
from time import sleep

import pytest

from prorl.envs.base import ProceduralTask, draft
from prorl.envs.check import MAX_FAULT, check_task, constant_baseline
from prorl.envs.extract import extract_answer
from prorl.envs.families.numbers import Arithmetic
from prorl.envs.types import Verdict


class Biased(ProceduralTask):
    """Three answers of four are `heads`."""

    name, domain, levels = "biased", "logic", (1,)

    def generate(self, rng, level):
        answer = "heads" if rng.random() < 0.75 else "tails"
        return draft(str(rng.random()), answer, "", answer)

    def score(self, payload, answer):
        return float(answer == payload)


def test_the_best_constant_answer_is_found():
    task = Biased()
    best = constant_baseline(task, [task.problem(index, "train") for index in range(200)])
    assert best == ("heads", pytest.approx(0.75, abs=0.1))


def test_a_sound_task_has_no_faults():
    check = check_task(Arithmetic(), problems=5)
    assert (check.faults, check.with_solution) == ((), 5)
    assert 0 < check.verify_seconds < 1


def test_the_time_of_a_verdict_is_not_that_of_making_problems(monkeypatch):
    make = Arithmetic.generate
    monkeypatch.setattr(Arithmetic, "generate", lambda *asked: sleep(0.05) or make(*asked))
    check = check_task(Arithmetic(), problems=2)
    assert check.generate_seconds > 0.05 > 10 * check.verify_seconds


class Broken(Arithmetic):
    """Arithmetic with one broken promise."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def verify(self, problem, text):
        answer = extract_answer(text)
        match self.how:
            case "believes everything" if answer is not None:
                return Verdict(score=1.0, status="ok")
            case "pays silence" if not text:
                return Verdict(score=0.2, status="wrong")
            case "pays lists" if answer and " " in answer:
                return Verdict(score=0.5, status="wrong")
            case "raises" if answer in ("?", "yes"):
                raise RecursionError
            case "pays echoes" if answer and answer in problem.prompt.splitlines()[-1]:
                return Verdict(score=0.5, status="wrong")
            case "rejects" if answer == problem.solution.answer:
                return Verdict(score=0.0, status="wrong")
        return super().verify(problem, text)


@pytest.mark.parametrize(
    ("how", "fault"),
    [
        ("pays silence", "an empty response scores"),
        ("pays lists", "earns more than the best constant answer"),
        ("pays echoes", "an echo of line 1 from the end of the prompt earns more than"),
        ("raises", "the verifier fails on '?'"),
        ("raises", "the verifier fails on 'yes'"),
        ("rejects", "the known solution of problem 0 scores 0"),
    ],
)
def test_every_broken_promise_is_named(how, fault):
    assert any(fault in found for found in check_task(Broken(how), problems=4).faults)


class Unsolved(Arithmetic):
    def problem(self, index, split):
        return replace(super().problem(index, split), solution=None)


def test_problems_without_a_known_solution_are_counted_and_what_pays_everything_shows_in_its_baseline():
    check = check_task(Unsolved(), problems=4)
    assert (check.with_solution, check.faults) == (0, ())
    check = check_task(Broken("believes everything"), problems=4)
    assert check.baseline == 1.0
    assert any("solves every problem" in fault for fault in check.faults)


def test_a_reward_function_that_always_fails_does_not_pass_for_free_text():
    class Failing(Unsolved):
        def verify(self, problem, text):
            return Verdict(score=0.0, status="error", note="TypeError: five parameters")

    (first, *_) = check_task(Failing(), problems=2).faults
    assert first == "the verifier fails on an empty response: TypeError: five parameters"


def test_a_fault_stays_short_however_much_an_error_says():
    class Wordy(Biased):
        def score(self, payload, answer):
            raise ValueError(payload * 10_000)

    assert max(map(len, check_task(Wordy(), problems=2).faults)) <= MAX_FAULT
