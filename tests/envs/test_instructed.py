"""An instruction changes what is asked and nothing else."""

from dataclasses import replace

from prorl.envs.extract import respond
from prorl.envs.instructed import Instructed
from prorl.envs.registry import make_task


def test_the_instruction_follows_the_prompt_and_the_verdict_is_the_tasks_own():
    plain = make_task("arithmetic")
    told = Instructed(plain, "Think first.")
    problem, same = told.problem(3, "train"), plain.problem(3, "train")
    assert problem == replace(same, prompt=f"{same.prompt}\n\nThink first.")
    assert (told.name, told.domain, told.splits) == (plain.name, plain.domain, plain.splits)
    assert told.ladder == plain.ladder
    assert told.rung(3, 2).prompt == f"{plain.rung(3, 2).prompt}\n\nThink first."
    answer = respond("", problem.witness.answer)
    assert told.verify(problem, answer) == plain.verify(same, answer)
