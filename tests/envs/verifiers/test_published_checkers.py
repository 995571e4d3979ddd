"""IFEval's and IFBench's own checkers say what they say in their own harness; without them one sentence helps."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from prorl.envs.datasets.catalogue import SourceRequest
from prorl.envs.datasets.prepare import require_prepared
from prorl.envs.verifiers import published_checkers
from prorl.envs.verifiers.instructions import Instruction, UnknownInstructionError
from prorl.envs.verifiers.instructions import verify as verify_in_training
from prorl.envs.verifiers.published_checkers import MissingCheckersError, validate, verify
from support.instructions import EXAMPLES, PROMPT

needs_checkers = pytest.mark.skipif(find_spec("opencompass") is None, reason="needs the extra `evaluations`")
KEYWORDS = {"keyword1": "q", "keyword2": "bb", "keyword3": "ccc", "keyword4": "dd", "keyword5": "ee"}


def graded(name, kwargs, response, benchmark="ifeval"):
    return verify(benchmark, [Instruction(id=name, kwargs=kwargs)], response, prompt=PROMPT)


def follows_in_training(name, kwargs, response):
    return verify_in_training([Instruction(id=name, kwargs=kwargs)], response, prompt=PROMPT).score == 1


def ids_of(benchmark):
    return set(published_checkers._checkers(benchmark))


@needs_checkers
def test_every_instruction_of_ifeval_is_followed_and_missed():
    known = {name: EXAMPLES[name] for name in EXAMPLES if name in ids_of("ifeval")}
    assert len(known) == 25
    for name, (kwargs, response) in known.items():
        validate("ifeval", Instruction(id=name, kwargs=kwargs), PROMPT)
        assert graded(name, kwargs, response).score == 1, name
        assert graded(name, kwargs, "").score == 0, name


@needs_checkers
def test_verdicts_are_those_of_the_packages_own_harness():
    published_checkers._checkers("ifeval")
    harness = import_module("opencompass.datasets.IFEval.evaluation_main")
    responses = [response for _, response in EXAMPLES.values()]
    names = [name for name in EXAMPLES if name in ids_of("ifeval")]
    different = 0
    for response in responses:
        row = harness.InputExample(
            key=0, instruction_id_list=names, prompt=PROMPT, kwargs=[EXAMPLES[name][0] for name in names]
        )
        theirs = harness.test_instruction_following_strict(row, response).follow_instruction_list
        ours = [graded(name, EXAMPLES[name][0], response).score == 1 for name in names]
        assert ours == theirs, response
        different += sum(
            follows_in_training(name, EXAMPLES[name][0], response) != their
            for name, their in zip(names, theirs, strict=True)
        )
    assert different > 0, "training's checks are stricter"


@needs_checkers
@pytest.mark.parametrize(("name", "kwargs", "response", "followed"), [
    ("count:keywords_multiple", KEYWORDS, "q bb bb ccc ccc ccc " + "dd " * 5 + "ee " * 7, True),
    ("count:keywords_multiple", KEYWORDS, "q bb bb ccc ccc ccc " + "dd " * 5 + "ee " * 6 + "weed", True),
    ("words:words_position", {"keyword": "old"}, "An old tale is an old one", True),
    ("words:words_position", {"keyword": "old"}, "An old tale is an old one.", False),
    ("repeat:repeat_span", {"prompt_to_repeat": "a b c d", "n_start": 1, "n_end": 3}, "b c", True),
    ("words:repeats", {"small_n": 1}, "don't dont", False),
    ("sentence:alliteration_increment", {}, "Plain words. Big bad wolf.", True),
    ("ratio:stop_words", {"percentage": 10}, "Rivers carve deep valleys", True),
])  # fmt: skip
def test_ifbench_counts_what_the_paper_counts(name, kwargs, response, followed):
    """The sign after a word is a word, the end of a span is left out, a keyword may lie within a word."""
    assert (graded(name, kwargs, response, "ifbench").score == 1) == followed
    harness = import_module("opencompass.datasets.IFBench.evaluation_lib")
    row = harness.InputExample(key=0, instruction_id_list=[name], prompt=PROMPT, kwargs=[kwargs])
    theirs = harness.test_instruction_following_strict(row, response)
    assert theirs.follow_all_instructions == followed


@needs_checkers
@pytest.mark.parametrize(("name", "kwargs", "response"), [
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "*one\n*two"),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "Dear [],"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "P.P.S. Bring a coat."),
    ("punctuation:no_comma", {}, "Yes"),
])  # fmt: skip
def test_what_training_refuses_counts_where_the_published_checker_counts_it(name, kwargs, response):
    assert graded(name, kwargs, response).score == 1
    assert not follows_in_training(name, kwargs, response)


@needs_checkers
def test_ifbench_has_its_58_instructions_and_a_checker_that_fails_is_no_error():
    published_checkers._checkers("ifbench")
    assert len(ids_of("ifbench")) == 58
    assert graded("count:numbers", {"N": 2}, "1 and 2", "ifbench").score == 1
    assert graded("count:numbers", {"N": 3}, "1 and 2", "ifbench").score == 0

    class Failing:
        build_description = get_instruction_args = lambda *_, **__: None

        def __init__(self, _name):
            pass

        def check_following(self, response):
            raise IndexError(response)

    checkers = published_checkers._checkers("ifbench")
    checkers["failing"] = Failing
    verdict = graded("failing", {}, "text", "ifbench")
    del checkers["failing"]
    assert (verdict.score, verdict.status) == (0, "wrong")
    assert "IndexError" in verdict.note


@needs_checkers
def test_an_instruction_that_is_unknown_or_takes_other_arguments_is_refused():
    with pytest.raises(UnknownInstructionError, match="has no instruction"):
        validate("ifeval", Instruction(id="keywords:unheard_of"), PROMPT)
    with pytest.raises(UnknownInstructionError, match="TypeError"):
        validate("ifeval", Instruction(id="punctuation:no_comma", kwargs={"odd": 1}), PROMPT)
    assert graded("keywords:unheard_of", {}, "text").status == "error"


def test_without_the_package_a_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(published_checkers, "PACKAGE", "package_that_nobody_has")
    published_checkers._checkers.cache_clear()
    with pytest.raises(MissingCheckersError, match=r"pip install -e '\.\[evaluations\]'.*tasks\.ifeval=null"):
        validate("ifeval", Instruction(id="punctuation:no_comma"), PROMPT)
    verdict = graded("punctuation:no_comma", {}, "text")
    published_checkers._checkers.cache_clear()
    assert (verdict.status, verdict.score) == ("error", 0)


def test_training_says_at_its_start_that_the_checkers_of_an_evaluation_are_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(published_checkers, "PACKAGE", "package_that_nobody_has")
    with pytest.raises(MissingCheckersError, match=r"tasks\.ifbench=null"):
        require_prepared([SourceRequest(name="aime24"), SourceRequest(name="ifbench")], tmp_path)
