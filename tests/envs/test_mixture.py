"""A draw is a function of (seed, draw, weights); validations are balanced, distinct and the same for every run."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.base import FixedTask, ProceduralTask, canonical, draft
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_task

ENTRIES = {
    "arithmetic": 1.0,
    "linear_equation": 3.0,
    "list_synthesis": 2.0,
    "word_list": 2.0,
    "box_pushing": 5.0,
}


class Few(ProceduralTask):
    """About a hundred prompts in all, a tenth of them in the validation."""

    name, domain, levels = "few", "math", (1,)

    def generate(self, rng, level):
        number = rng.randrange(100)
        return draft(f"few {number}", number, "", str(number))

    def score(self, payload, answer):
        return float(answer == str(payload))


class Rows(FixedTask):
    """A data set of so many rows, in training only."""

    def __init__(self, name, rows):
        super().__init__(name, "stem", {"train": range(rows)})

    def ask(self, key):
        return {"prompt": f"{self.name} {key}", "payload": None}


def rows_drawn(mixed, name, draws, weights=None):
    problems = [mixed.problem(draw, "train", weights) for draw in draws]
    return [problem.index for problem in problems if problem.task == name]


def mixture(seed=0, **weights):
    return Mixture([(make_task(name), weight) for name, weight in (weights or ENTRIES).items()], seed)


@given(st.integers(0, 10**9), st.integers(0, 10**6))
def test_a_draw_is_the_same_in_every_mixture_of_the_same_seed(draw, seed):
    assert mixture(seed).problem(draw, "train") == mixture(seed).problem(draw, "train")


def test_seeds_draws_and_splits_give_different_problems():
    mixed = mixture()
    prompts = {mixed.problem(draw, "train").prompt for draw in range(50)}
    assert len(prompts) > 45
    assert len(prompts & {mixture(1).problem(draw, "train").prompt for draw in range(50)}) < 5
    assert not prompts & {mixed.problem(draw, "validation").prompt for draw in range(50)}


def test_tasks_come_in_proportion_to_their_weights_where_they_have_the_split():
    mixed = mixture()
    drawn = Counter(mixed.problem(draw, "train").task for draw in range(2000))
    assert drawn["arithmetic"] / 2000 == pytest.approx(1 / 8, abs=0.03)
    assert drawn["linear_equation"] / 2000 == pytest.approx(3 / 8, abs=0.04)
    assert "box_pushing" not in drawn
    assert "box_pushing" in {mixed.problem(draw, "ood").task for draw in range(30)}


def test_weights_per_call_replace_those_they_name_and_leave_the_index_of_a_draw_alone():
    mixed = mixture()
    only = {"arithmetic": 0.0, "linear_equation": 0.0, "list_synthesis": 0.0}
    assert {mixed.problem(draw, "train", only).task for draw in range(50)} == {"word_list"}
    with pytest.raises(ValueError, match="no task with a positive weight has train"):
        mixed.problem(0, "train", only | {"word_list": 0.0})  # box_pushing is only measured
    assert mixed.problem(7, "train", {}) == mixed.problem(7, "train")
    favoured = dict.fromkeys(ENTRIES, 0.0) | {"arithmetic": 1.0}
    same_task = [draw for draw in range(100) if mixed.problem(draw, "train").task == "arithmetic"]
    assert same_task
    assert all(mixed.problem(d, "train") == mixed.problem(d, "train", favoured) for d in same_task)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_rows_of_a_data_set_come_once_per_epoch_whatever_it_is_mixed_with(seed):
    entries = [(Rows("small", 30), 1.0), (make_task("arithmetic"), 2.0), (Rows("large", 200), 3.0)]
    mixed = Mixture(entries, seed)
    for name, size in (("small", 30), ("large", 200)):
        drawn = rows_drawn(mixed, name, range(1500))
        epochs = [drawn[start : start + size] for start in range(0, len(drawn) - size, size)]
        assert len(epochs) >= 3
        assert all(sorted(epoch) == list(range(size)) for epoch in epochs)
        assert len({tuple(epoch) for epoch in epochs}) == len(epochs)


def test_a_row_depends_on_its_draw_alone_and_not_on_what_was_drawn_before():
    entries = [(Rows("small", 30), 1.0), (Rows("large", 200), 3.0)]
    in_order = [Mixture(entries, 0).problem(draw, "train") for draw in range(100)]
    resumed, mixed = Mixture(entries, 0), Mixture(entries, 0)
    assert [resumed.problem(draw, "train") for draw in range(60, 100)] == in_order[60:]
    assert [mixed.problem(draw, "train") for draw in reversed(range(100))] == in_order[::-1]
    other = Mixture(entries, 1)
    assert [other.problem(draw, "train") for draw in range(100)] != in_order


def test_after_a_change_of_weights_the_epochs_of_a_data_set_are_whole_again():
    mixed = Mixture([(Rows("small", 30), 1.0), (Rows("large", 200), 3.0)], 0)
    before = mixed.problem(399, "train")
    drawn = rows_drawn(mixed, "small", range(400, 1000), {"small": 3.0})
    assert all(
        sorted(Counter(drawn[start:]).values())[-1] <= len(drawn[start:]) // 30 + 2 for start in (0, 30)
    )
    assert mixed.problem(399, "train") == before


def test_a_fingerprint_is_that_of_the_first_draws():
    entries = ENTRIES | {"word_list": 0.0}
    prints = {mixed.fingerprint(20) for mixed in (mixture(), mixture(), mixture(1), mixture(**entries))}
    assert len(prints) == 3


def test_the_pass_threshold_is_the_tasks_own():
    lenient = make_task("word_list")
    lenient.pass_threshold = 0.5
    mixed = Mixture([(make_task("arithmetic"), 1.0), (lenient, 1.0)], 0)
    assert (mixed.pass_threshold("arithmetic"), mixed.pass_threshold("word_list")) == (1.0, 0.5)


def test_domains_that_cannot_be_told_apart_or_measured_are_known():
    kept, odd = Rows("small", 30), Rows("large", 200)
    assert Mixture([(kept, 1.0), (odd, 1.0)], 0).unmeasured("train") == []
    kept.domain, odd.domain = "kept", "mean"
    with pytest.raises(ValueError, match="a domain cannot be called 'mean'"):
        Mixture([(kept, 1.0), (odd, 1.0)], 0)
    entries = [(kept, 1.0), (make_task("word_list"), 1.0)]
    assert Mixture(entries, 0).unmeasured("validation") == ["kept"]
    assert Mixture(entries[1:], 0).unmeasured("validation") == []


def test_a_validation_is_balanced_by_domain_weighted_inside_it_distinct_and_the_same_for_every_seed():
    validation = mixture().validation_problems("validation", 16)
    assert Counter(problem.domain for problem in validation) == {"math": 16, "code": 16, "instruct": 16}
    in_math = Counter(p.task for p in validation if p.domain == "math")
    assert in_math == {"arithmetic": 4, "linear_equation": 12}
    assert {problem.split for problem in validation} == {"validation"}
    assert len({canonical(problem.prompt) for problem in validation}) == len(validation)
    assert validation == mixture(99).validation_problems("validation", 16)
    assert mixture().validation_problems("validation", 5)[:5] == validation[:5]
    held_out = mixture().validation_problems("ood", 6)
    assert [p.domain for p in held_out] == [
        d for d in ("math", "code", "instruct", "logic") for _ in range(6)
    ]


def test_what_a_small_task_cannot_give_is_left_to_the_others_and_missed_without_them():
    mixed = Mixture([(Few(), 1.0), (make_task("arithmetic"), 1.0)], 0)
    tasks = Counter(problem.task for problem in mixed.validation_problems("validation", 60))
    assert 3 <= tasks["few"] <= 20
    assert tasks["arithmetic"] == 60 - tasks["few"]
    unused = Mixture([(Few(), 0.0), (make_task("arithmetic"), 1.0)], 0)
    assert {problem.task for problem in unused.validation_problems("validation", 9)} == {"arithmetic"}
    with pytest.raises(ValueError, match="domain math has"):
        Mixture([(Few(), 1.0)], 0).validation_problems("validation", 60)


def test_the_heaviest_task_of_a_domain_with_three_levels_is_its_levels():
    assert mixture().levelled_tasks() == ("linear_equation", "list_synthesis", "word_list")
    assert mixture(arithmetic=2.0, linear_equation=2.0).levelled_tasks() == ("arithmetic",)
    assert mixture(arithmetic=2.0, linear_equation=0.0).levelled_tasks() == ("arithmetic",)
    assert mixture(rg_lcm=1.0, rg_knights_knaves=5.0).levelled_tasks() == ("rg_lcm",)


def test_graph_colouring_by_size_is_always_a_levels():
    mixed = mixture(countdown=9.0, rg_graph_color=0.1)
    assert mixed.levelled_tasks() == ("countdown", "rg_graph_color")
    asked = mixed.level_problems("rg_graph_color", 2)
    assert [problem.level for problem in asked] == [n for n in range(6, 21, 2) for _ in range(2)]
    for problem in asked:
        assert len(problem.payload[1]["metadata"]["puzzle"]["vertices"]) == problem.level


def test_all_levels_of_a_task_give_as_many_distinct_problems_as_the_smallest():
    class Uneven(Few):
        levels = (1, 2)

        def generate(self, rng, level):
            return super().generate(rng, level) if level == 1 else make_task("arithmetic").generate(rng, 1)

    asked = mixture().level_problems("linear_equation", 5)
    assert set(Counter(p.level for p in asked).values()) == {5}
    assert len({canonical(p.prompt) for p in asked}) == len(asked)
    sizes = Counter(p.level for p in Mixture([(Uneven(), 1.0)], 0).level_problems("few", 60))
    assert sizes[1] == sizes[2] < 30


def test_levels_replace_those_of_a_task_and_of_no_other():
    tasks = Mixture([(make_task("arithmetic"), 1.0), (make_task("linear_equation"), 1.0)], seed=1)
    chosen = {"arithmetic": ((2, 0.0), (3, 1.0))}
    plain = [tasks.problem(draw, "train") for draw in range(200)]
    asked = [tasks.problem(draw, "train", levels=chosen) for draw in range(200)]
    assert {one.level for one in asked if one.task == "arithmetic"} == {3}
    assert {one.level for one in plain if one.task == "arithmetic"} == {1, 2, 3, 4}
    assert [one for one in asked if one.task != "arithmetic"] == [
        one for one in plain if one.task != "arithmetic"
    ]
    assert [tasks.problem(draw, "train") for draw in range(200)] == plain, (
        "what was kept belongs to its levels"
    )
