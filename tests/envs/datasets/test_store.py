"""Prepared rows as a task: known answers pass, tricks do not, and changed data is an error."""

import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prorl.envs.datasets.catalogue import SOURCES, DataError, SourceRequest
from prorl.envs.datasets.prepare import DatasetTask, prepare
from prorl.envs.extract import respond
from prorl.envs.verifiers.programs import NeedsSandbox
from support.data_rows import DEEPSCALER, ROWS, USABLE, all_problems, eurus, prepared, write_jsonl

TRICKS = ("", "0", "True", "A or B", "yes no", "```python\npass\n```", "\\boxed{}", "[1] [2] [3]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, run):
    """All sources, prepared from our own rows."""
    place = tmp_path_factory.mktemp("data")
    requests = [
        SourceRequest(name=name, path=write_jsonl(place / f"{name}.jsonl", rows))
        for name, rows in ROWS.items()
        if name in USABLE and name != "eurus2_code_validation"
    ]
    prepare(requests, place / "prepared", lambda name, rows: None, run=run)
    return place / "prepared"


@pytest.fixture
def task(folder, run):
    def open_task(name):
        opened = DatasetTask(name, folder / f"{name}.parquet")
        opened.run_program = run
        return opened

    return open_task


@pytest.mark.parametrize("name", sorted({*USABLE} - {"eurus2_code_validation"}))
def test_known_answers_score_one_and_tricks_nothing(name, task):
    opened = task(name)
    assert opened.domain == SOURCES[name].domain
    assert isinstance(opened, NeedsSandbox)
    asked = all_problems(opened)
    assert len(asked) == len(ROWS[name]), "none is dropped"
    for problem in asked:
        if problem.solution is not None:
            verdict = opened.verify(problem, respond(problem.solution.steps, problem.solution.answer))
            assert (verdict.score, verdict.status) == (1, "ok"), problem
        for trick in TRICKS:
            if problem.solution is None or trick != problem.solution.answer:
                assert opened.verify(problem, trick).score == 0, (problem, trick)


def test_a_problem_is_a_pure_function_of_its_index_and_of_its_split(task):
    one, other = task("deepscaler"), task("deepscaler")
    assert all_problems(one) == all_problems(other)
    size = one.row_count("train")
    assert one.problem(size + 3, "train").prompt == one.problem(3, "train").prompt
    prompts = {problem.prompt for problem in all_problems(one)}
    assert len(prompts) == len(DEEPSCALER)


def test_there_are_neither_levels_nor_splits_without_rows(task):
    opened = task("aime24")
    assert opened.all_levels == ()
    with pytest.raises(ValueError, match="its problems have no levels"):
        opened.problem_at(0, 1)
    assert opened.splits == {"test"}
    with pytest.raises(ValueError, match="no train problems"):
        opened.problem(0, "train")


def test_a_problem_travels_without_its_tests(run, tmp_path):
    big = "7 " * 40_000
    rows = [eurus("Count the sevens.", inputs=[big], outputs=["40000\n"])]
    opened = prepared(tmp_path, rows, "eurus2_code_validation")
    opened.run_program = run
    problem = opened.problem(0, "test")
    assert len(pickle.dumps(problem)) < 1000
    there = pickle.loads(pickle.dumps(problem))
    assert opened.verify(there, "```python\nprint(input().count('7'))\n```").score == 1


def test_payloads_are_found_in_every_row_group(monkeypatch, tmp_path):
    monkeypatch.setattr("prorl.envs.datasets.prepare.ROWS_PER_GROUP", 7)
    opened = prepared(tmp_path, DEEPSCALER, "deepscaler")
    for problem in all_problems(opened):
        assert opened.verify(problem, f"\\boxed{{{problem.solution.answer}}}").score == 1


def test_data_that_changed_under_a_run_is_an_error_and_no_score(task, tmp_path):
    problem = task("aime24").problem(0, "test")
    other = prepared(tmp_path, [{"problem": "What is 0 squared plus two?", "answer": 2}], "aime24")
    for stale in (problem, task("aime24").problem(2, "test")):
        assert other.verify(stale, "\\boxed{1}").status == "error"


def test_a_missing_or_damaged_file_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match="prepare it first, `prorl data prepare RECIPE`"):
        DatasetTask("deepscaler", tmp_path / "deepscaler.parquet")
    (tmp_path / "deepscaler.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match="delete it and prepare it again"):
        DatasetTask("deepscaler", tmp_path / "deepscaler.parquet")


@pytest.mark.parametrize(
    "name", ["webinstruct_verified", "olympiadbench", "gpqa_diamond", "eurus2_code", "nemotron_instructions"]
)
@given(text=st.text() | st.text(alphabet="\\boxed{}<answer>/think0123456789^.AB`\n$", max_size=200))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_response_says_it_gets_a_score(name, text, task):
    opened = task(name)
    for problem in all_problems(opened)[:4]:
        for response in (text, f"\\boxed{{{text}}}", respond("", text)):
            verdict = opened.verify(problem, response)
            assert 0 <= verdict.score <= 1
            assert verdict.status != "error"
