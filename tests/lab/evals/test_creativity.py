"""The creativity index by its definition, and models side by side."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prorl.envs.errors import ProrlError
from prorl.envs.files import StorageError
from prorl.lab.evals.corpus import Corpus, longest_matches
from prorl.lab.evals.creativity import (
    Estimate,
    Lengths,
    compare_creativity,
    creativity_index,
    read_creativity,
    uniqueness,
    write_creativity,
)
from prorl.lab.evals.evaluation_store import Evaluation
from prorl.rollout.validation import ProblemResult
from support.evaluations import evaluation as evaluation_of
from support.evaluations import kept, result

LETTERS = st.lists(st.sampled_from("abc"), min_size=1, max_size=20).map(" ".join)
CORPORA = st.lists(LETTERS, min_size=1, max_size=5)
FEW = Lengths(shortest=2, longest=4)


def by_definition(documents: list[str], text: str, length: int) -> float:
    """The share of words w such that no n-gram with n >= L that contains w occurs in the corpus."""
    words, corpus = text.split(), [document.split() for document in documents]
    sizes = range(length, len(words) + 1)
    grams = {tuple(d[i : i + n]) for d in corpus for n in sizes for i in range(len(d) - n + 1)}
    unique = [
        not any(
            tuple(words[i : i + n]) in grams
            for n in sizes
            for i in range(len(words) - n + 1)
            if i <= position < i + n
        )
        for position in range(len(words))
    ]
    return fmean(unique)


def matches_of(documents: list[str], text: str):
    (matches,) = longest_matches([text], Corpus(name="c", documents=lambda: documents)).lengths
    return matches


def index_of(documents: list[str], text: str, lengths: Lengths = FEW) -> float:
    return creativity_index(matches_of(documents, text), lengths)


# -- the definition


@given(CORPORA, LETTERS, st.integers(1, 8))
def test_uniqueness_is_what_its_definition_says(documents, text, length):
    matches = matches_of(documents, text)
    assert uniqueness(matches, length) == pytest.approx(by_definition(documents, text, length))


@given(CORPORA, LETTERS)
def test_uniqueness_does_not_fall_with_the_length(documents, text):
    matches = matches_of(documents, text)
    shares = [uniqueness(matches, length) for length in range(1, 17)]
    assert shares == sorted(shares)


@given(CORPORA, LETTERS, LETTERS)
def test_more_corpus_never_raises_the_index(documents, more, text):
    assert index_of([*documents, more], text) <= index_of(documents, text)


@given(CORPORA, LETTERS)
def test_the_index_is_the_sum_of_uniqueness_over_the_lengths(documents, text):
    expected = sum(by_definition(documents, text, length) for length in (2, 3, 4))
    assert index_of(documents, text) == pytest.approx(expected)


def test_a_worked_example():
    corpus = ["the cat sat on the mat"]
    matches = matches_of(corpus, "A dog sat on the mat, the cat!")
    assert matches.tolist() == [0, 0, 4, 3, 2, 1, 0, 2, 1, 0]
    assert uniqueness(matches, 2) == pytest.approx(4 / 10)  # "sat on the mat" and "the cat" are found
    assert uniqueness(matches, 4) == pytest.approx(6 / 10)
    assert uniqueness(matches, 5) == 1


def test_a_text_out_of_the_corpus_has_index_0_and_one_of_new_words_the_most():
    text = " ".join(f"w{number}" for number in range(30))
    assert index_of([f"before {text} behind"], text, Lengths()) == 0
    assert index_of(["something else"], text, Lengths()) == 8


def test_a_text_shorter_than_some_sequence_cannot_reach_0_and_one_without_words_has_no_index():
    text = "one two three"
    assert index_of([text], text, Lengths(shortest=2, longest=6)) == 3  # for 4, 5 and 6 words
    with pytest.raises(ValueError, match="without words"):
        creativity_index(np.zeros(0, np.int64), Lengths())


@pytest.mark.parametrize(("shortest", "longest"), [(0, 5), (6, 5), (5, 17), (-1, -1)])
def test_lengths_that_cannot_be_looked_for_are_refused(shortest, longest):
    with pytest.raises(ProrlError, match="choose two lengths"):
        Lengths(shortest=shortest, longest=longest)


# -- models side by side


def problem(domain: str, number: int, *texts: str, part: str = "test") -> ProblemResult:
    return result(0, 8, index=number, task=f"{domain} task", domain=domain, part=part, kept=kept(*texts))


def evaluation(model: str, *problems: ProblemResult, step: int | None = None) -> Evaluation:
    return evaluation_of(model, problems, step=step)


OLD, NEW, HALF = "a b c d", "w x y z", "a b y z"


def compared(*evaluations: Evaluation, lengths: Lengths = FEW):
    return compare_creativity(evaluations, Corpus(name="letters", documents=lambda: [OLD]), lengths=lengths)


def row(found, model, domain, part="test"):
    (chosen,) = [r for r in found.rows if (r.model, r.domain, r.part) == (model, domain, part)]
    return chosen


def test_models_are_compared_on_the_same_problems():
    base = evaluation("base", *(problem("math", n, OLD) for n in range(4)), step=0)
    # The trained model has no response to problem 3, and one more problem of its own.
    trained = evaluation(
        "step_000010", *(problem("math", n, NEW) for n in (0, 1)), problem("math", 9, OLD), step=10
    )
    found = compared(base, trained)
    before, after = (row(found, model, "math") for model in ("base", "step_000010"))
    assert (before.index, before.gain) == (Estimate(problems=4, mean=0, low=0, high=0), None)
    assert (after.index.problems, after.index.mean) == (3, pytest.approx(2))  # 3, 3 and 0
    assert after.gain == Estimate(problems=2, mean=3, low=3, high=3)
    assert [responses.step for responses in found.models] == [0, 10]
    assert (found.corpus, found.corpus_words, found.corpus_documents) == ("letters", 4, 1)


def test_responses_of_a_problem_are_averaged_before_problems_are():
    found = compared(evaluation("base", problem("math", 0, OLD, NEW), problem("math", 1, OLD)))
    assert row(found, "base", "math").index.mean == pytest.approx((1.5 + 0) / 2)


def test_the_response_that_is_kept_because_it_passed_does_not_count():
    found = compared(evaluation("base", problem("math", 0, OLD, OLD, NEW)))
    assert (row(found, "base", "math").index.mean, found.models[0].counted) == (0, 2)


def test_domains_count_alike_and_parts_stay_apart():
    problems = [problem("math", n, OLD) for n in range(3)] + [problem("code", 0, NEW)]
    found = compared(evaluation("base", *problems, problem("math", 7, NEW, part="ood")))
    assert row(found, "base", "mean").index.mean == pytest.approx(1.5)
    assert row(found, "base", "mean").index.problems == 4
    assert row(found, "base", "mean", "ood").index.mean == pytest.approx(3)


def test_short_responses_are_counted_apart():
    found = compared(evaluation("base", problem("math", 0, "a", HALF), problem("math", 1, "", "a b c")))
    (responses,) = found.models
    assert (responses.counted, responses.short, responses.words) == (2, 2, 3.5)
    assert row(found, "base", "math").index.problems == 2


def test_the_floor_is_the_index_of_responses_that_the_corpus_holds():
    texts = (OLD, "a b c", "b c")
    problems = [problem("math", n, text) for n, text in enumerate(texts)]
    found = compare_creativity(
        [evaluation("base", *problems)], Corpus(name="c", documents=lambda: texts), lengths=FEW
    )
    assert found.models[0].floor == row(found, "base", "math").index.mean == (0 + 1 + 2) / 3


def test_a_model_of_which_nothing_can_be_said_is_refused_and_so_are_two_of_one_name():
    one = evaluation("base", problem("math", 0, OLD))
    with pytest.raises(ProrlError, match="two evaluations of base"):
        compared(one, one)
    with pytest.raises(ProrlError, match="base has no kept response of 2 words or more"):
        compared(evaluation("base", problem("math", 0, "a")))


def test_intervals_enclose_the_mean_and_a_model_gains_nothing_over_itself():
    problems = [problem("math", n, text) for n, text in enumerate((OLD, NEW, HALF, NEW))]
    found = compared(evaluation("base", *problems), evaluation("other", *problems[1:]))
    for each in found.rows:
        assert each.index.low < each.index.mean < each.index.high
    assert row(found, "other", "math").gain == Estimate(problems=3, mean=0, low=0, high=0)


def test_a_comparison_comes_back_as_it_was(tmp_path):
    found = compared(
        evaluation("base", problem("math", 0, HALF)), evaluation("m", problem("math", 0, NEW), step=3)
    )
    write_creativity(tmp_path / "c.json", found)
    assert read_creativity(tmp_path / "c.json") == found


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"models": []}', b'{"models": [{"x": 1}], "rows": []}'])
def test_a_damaged_comparison_is_said_in_a_sentence(tmp_path, damage):
    (tmp_path / "c.json").write_bytes(damage)
    with pytest.raises(StorageError, match="run `prorl creativity` again"):
        read_creativity(tmp_path / "c.json")


def test_an_interval_knows_nothing_of_how_domains_differ():
    """Every problem of a domain is alike, so other problems of these domains would give the same mean."""
    problems = [problem("math", n, OLD) for n in range(9)] + [problem("code", n, NEW) for n in range(2)]
    mean = row(compared(evaluation("base", *problems)), "base", "mean").index
    assert (mean.mean, mean.low, mean.high) == (1.5, 1.5, 1.5)
