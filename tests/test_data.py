"""What a base is warmed up on can be read again without a model."""

import pytest

from prorl.config.recipe import RecipeError
from prorl.data import warmup_mixture, warmup_texts
from prorl.envs.extract import respond
from support.recipes import recipe

WARMUP = {"steps": 3, "batch_size": 4, "levels": {"arithmetic": {2: 1}}}


def warmed(**settings):
    return recipe(model={"warmup": WARMUP}, sampling={"response_limit": 16}, **settings)


def test_the_warm_up_corpus_is_what_the_warm_up_draws():
    config = warmed()
    problems = warmup_mixture(config, config.model.warmup)
    drawn = [problems.problem(draw, "train") for draw in range(12)]
    assert {problem.level for problem in drawn if problem.task == "arithmetic"} == {2}
    texts = warmup_texts(config)
    assert texts[0::2] == [problem.prompt for problem in drawn]
    assert texts[1::2] == [respond(problem.solution.steps, problem.solution.answer) for problem in drawn]


def test_the_warm_up_corpus_follows_the_recipe():
    assert warmup_texts(warmed()) == warmup_texts(warmed(steps=7))
    assert warmup_texts(warmed()) != warmup_texts(warmed(seed=7))


def test_a_model_from_elsewhere_has_no_warm_up_corpus():
    with pytest.raises(RecipeError, match="name a corpus with --corpus"):
        warmup_texts(recipe())
