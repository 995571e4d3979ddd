"""Validations count what was solved, and keep format failures and verifier failures apart from wrong answers."""

from dataclasses import replace

import pytest

from prorl.envs.base import split_of
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_task
from prorl.envs.types import Verdict
from prorl.lab.evals.evaluation_store import Evaluation, questions, read_evaluation, write_evaluation
from prorl.lab.evals.problems import ANSWER_CHARS, LEAST_GUESSES, Vote, guesses, problem_result, with_guesses
from prorl.rollout.pipeline import VerifierError, sample_problems
from prorl.stopwatch import Stopwatch
from prorl.types import Sampling
from support.evaluations import result
from support.fake_backend import FakeJudge, FakeRenderer
from support.rollouts import BROKEN, SILENT, problem, response, scripted_sampler

PROBLEMS = [problem(40), problem(41, task="other", domain="code"), problem(42)]


def sat(script, *, threshold=lambda task: 1.0, limit=100, renderer=None):
    """The validation in which problem k got the answers of script[k]."""
    worker = scripted_sampler(lambda draw, sample: script[draw][sample])
    groups = sample_problems(
        replace(worker, renderer=renderer or worker.renderer),
        PROBLEMS[: len(script)],
        samples=len(script[0]),
        sampling=Sampling(temperature=1.0, top_p=1.0, limit=limit),
        seeds=range(len(script)),
        clock=Stopwatch(),
    )
    return tuple(problem_result(group, "test", threshold(group.problem.task)) for group in groups)


def test_a_result_says_which_problem_it_is_and_how_it_went():
    (found,) = sat([["1", "0.5", SILENT, "1"]])
    length = sum(len(response(answer)) + 1 for answer in ("1", "0.5", SILENT, "1")) / 4
    about = {"task": "score", "prompt": PROBLEMS[0].prompt, "unanswered": 1, "length": length}
    assert replace(found, votes=(), kept=()) == result(2, 4, index=40, **about)


def test_answers_are_votes_the_most_frequent_first():
    (found,) = sat([["0", "1", SILENT, BROKEN, "1"]])
    assert found.votes == (Vote(answer="1", count=2, solved=True), Vote(answer="0", count=1, solved=False))
    assert sum(vote.count for vote in found.votes) == found.samples - found.unanswered


def test_the_first_responses_are_kept_and_the_first_that_passed():
    (found,) = sat([["0", SILENT, "0.5", "1", "1"]])
    assert [(kept.sample, kept.score, kept.status) for kept in found.kept] == [
        (0, 0.0, "wrong"),
        (1, 0.0, "wrong"),
        (3, 1.0, "ok"),
    ]
    assert found.kept[2].text == response("1")
    (early,) = sat([["1", "0", "1"]])
    assert [kept.sample for kept in early.kept] == [0, 1], "none is kept twice"


def test_a_response_cut_off_is_truncated():
    long = "0." + "0" * 300
    whole, cut = sat([[long, "1"]], limit=1000)[0], sat([[long, "1"]], limit=100)[0]
    assert [vote.answer for vote in whole.votes] == [long, "1"]
    assert (whole.truncated, whole.unanswered) == (0, 0)
    assert (cut.truncated, cut.unanswered, cut.solved) == (1, 1, 1)


def test_long_answers_that_begin_alike_are_votes_of_their_own_and_no_guesses():
    long = "0." + "0" * ANSWER_CHARS
    found = sat([[long, long + "1", long], ["1", "1", "1"]], limit=5000)
    assert [vote.count for vote in found[0].votes] == [2, 1]
    assert {vote.answer[:ANSWER_CHARS] for vote in found[0].votes} == {long[:ANSWER_CHARS]}
    assert found[0].is_voted
    drawn = guesses([replace(one, task="score") for one in found], 0)
    assert [set(given) for given in drawn.values()] == [{"1"}, set()]


def test_half_a_character_can_be_stored(tmp_path):
    class Odd(FakeRenderer):
        def decode(self, tokens):
            return "\ud83d" + super().decode(tokens)

    (found,) = sat([["1", "0"]], renderer=Odd())
    evaluation = Evaluation(model="m", step=None, samples=2, seconds=0.0, problems=(found,))
    write_evaluation(tmp_path / "s.parquet", evaluation)
    assert read_evaluation(tmp_path / "s.parquet") == evaluation
    assert found.kept[0].text == "?" + response("1")


def test_a_score_is_a_pass_from_its_tasks_own_threshold():
    script = [["0.5", "1"]] * 2
    solved = [found.solved for found in sat(script, threshold={"score": 0.5, "other": 0.75}.__getitem__)]
    assert solved == [2, 1]


def test_responses_that_could_not_be_judged_do_not_count():
    found = sat([["1", BROKEN, "0"], [BROKEN] * 3, ["1"] * 3])
    assert [(f.index, f.samples, f.solved, f.errors) for f in found] == [(40, 2, 1, 1), (42, 3, 3, 0)]


def test_an_validation_without_any_verdict_is_an_error_with_the_verifiers_reason():
    with pytest.raises(VerifierError, match="the verifier failed"):
        sat([[BROKEN] * 2] * 2)


def test_a_response_that_passed_is_no_failure_of_format():
    """As an empty one that was to hold no comma: else more would have passed than have answered."""
    (found,) = sat([["0", SILENT]], threshold=lambda task: 0.0)
    assert (found.samples, found.solved, found.unanswered) == (2, 2, 0)


# -- which problems an evaluation asks


WEIGHTS = {"arithmetic": 1.0, "linear_equation": 3.0, "word_list": 2.0, "blicket": 9.0, "countdown": 0.0}
TASKS = Mixture([(make_task(name), weight) for name, weight in WEIGHTS.items()], seed=0)


def test_parts_have_the_sizes_that_were_asked_and_are_the_same_for_every_run():
    asked = questions(TASKS, test=6, ood=3, levels=2)
    assert [len(asked["test"]), len(asked["ood"])] == [2 * 6, 3 * 3]
    levels = {(p.task, p.level) for p in asked["levels"]}
    assert levels == {
        (name, level) for name in ("linear_equation", "word_list") for level in make_task(name).all_levels
    }
    assert len(asked["levels"]) == 2 * len(levels)
    other = Mixture([(make_task(name), weight) for name, weight in WEIGHTS.items()], seed=7)
    assert questions(other, test=6, ood=3, levels=2) == asked
    assert list(questions(TASKS, test=1)) == ["test"], "a part without problems is not asked"


@pytest.mark.parametrize("levels", [{1: 1.0}, {1: 1.0, 2: 3.0}])
def test_no_question_of_a_levels_can_be_trained_on_at_any_level(levels):
    mixture = Mixture([(make_task("linear_equation", levels), 1.0)], seed=0)
    asked = questions(mixture, levels=8)["levels"]
    assert {p.level for p in asked} == set(make_task("linear_equation").all_levels), "all, trained or not"
    prompts = {one.prompt for one in asked}
    assert set(map(split_of, prompts)) == {"test"}
    assert len(prompts) == len(asked)


# -- guesses


def equations(*answers: str, count: int = 8):
    """Equations, and results of a model that gave these answers to every one, equally often."""
    task = make_task("linear_equation", {1: 1.0})
    problems = {("linear_equation", "test", 1, index): task.problem(index, "test") for index in range(count)}
    votes = tuple(Vote(answer=answer, count=8, solved=False) for answer in answers)
    about = {"task": "linear_equation", "votes": votes}
    found = [result(0, 8 * len(votes), index=index, **about) for index in range(count)]
    return problems, found


class FailsAtWords(FakeJudge):
    """It never has a verdict on what holds a word, and loses a process with its first item."""

    lost = False

    def submit(self, ticket, problem, text):
        super().submit(ticket, problem, text)
        if "no number" in text or not self.lost:
            self.lost, self._ready[-1] = True, (ticket, Verdict(score=0.0, status="error"))


def test_answers_to_other_problems_are_tried_on_each_and_what_is_accepted_is_counted():
    problems, found = equations("1", "-5", "no number")
    assert {one.solution.answer for one in problems.values()} & {"1", "-5"}, "they are right somewhere"
    sampler = scripted_sampler(lambda draw, sample: "1")
    seen = []
    tried = with_guesses(
        replace(sampler, judge=FailsAtWords({"linear_equation": make_task("linear_equation")})),
        found,
        problems,
        seed=1,
        pass_threshold=lambda task: 1.0,
        clock=Stopwatch(),
        progress=lambda done, total, text: seen.append((done, total)),
    )
    drawn = guesses(found, 1)
    for one in tried:
        right = problems[one.key].solution.answer
        assert sum(drawn[one.key].values()) == LEAST_GUESSES
        assert one.guesses == LEAST_GUESSES - drawn[one.key]["no number"], "an error is no wrong answer"
        assert one.guessed == drawn[one.key][right]
    assert seen[-1][0] == seen[-1][1] > 0
    assert [replace(one, guesses=0, guessed=0) for one in tried] == found


def test_a_stray_answer_beside_programs_is_no_guess():
    stray = Vote(answer="2", count=1, solved=False)
    found = [result(15, 16, index=index, votes=(stray,)) for index in range(2)]
    assert not any(one.is_voted for one in found)
    assert not any(guesses(found, 0).values())


def test_guesses_are_drawn_by_their_frequency_and_never_from_the_problems_own_answers():
    common, rare, own = (
        Vote(answer=answer, count=n, solved=False) for answer, n in (("a", 90), ("b", 10), ("c", 100))
    )
    asked = {"samples": 256, "unanswered": 156}
    found = [
        result(0, index=0, votes=(own,), **asked),
        result(0, index=1, votes=(common, rare), **asked),
        result(0, index=2, level=2, votes=(own,), **asked),
        result(0, index=3, part="ood", votes=(own,), **asked),
    ]
    drawn = guesses(found, 0)
    assert set(drawn[found[0].key]) == {"a", "b"}
    assert sum(drawn[found[0].key].values()) == 256
    assert 200 < drawn[found[0].key]["a"] < 252
    assert drawn[found[1].key] == {"c": 256}, "of another problem of its task, part and level"
    assert not drawn[found[2].key]
    assert not drawn[found[3].key], "nobody else answered there"
    assert guesses(found, 0) == drawn != guesses(found, 1)
