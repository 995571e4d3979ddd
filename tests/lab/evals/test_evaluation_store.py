"""Results come back as they were, lie in a known order, and one evaluation asks one thing."""

import json
from dataclasses import fields, replace

import pyarrow
import pytest
from pyarrow import parquet

from prorl.envs.files import StorageError
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_task
from prorl.lab.evals.evaluation_store import (
    HEADER,
    Asked,
    Evaluation,
    Subject,
    evaluations,
    external_name,
    held,
    model_file,
    models,
    questions,
    read_evaluation,
    slug,
    write_evaluation,
)
from prorl.lab.evals.problems import Kept, Vote
from prorl.run.layout import step_name
from prorl.types import Sampling
from support.evaluations import evaluation, result
from support.stories import keep

KEPT = Kept(sample=3, text="<answer>7</answer>", tokens=9, finish="stop", score=1.0, status="ok", note="")
VOTES = Vote(answer="7", count=3, solved=True), Vote(answer="half ? a character", count=2, solved=False)
PROBLEM = result(3, part="levels", level=4, index=17, unanswered=2, votes=VOTES, kept=(KEPT,))
EVALUATION = Evaluation(model="step_000320", step=320, samples=16, seconds=12.5, problems=(PROBLEM,))


@pytest.mark.parametrize("problems", [(PROBLEM,), ()])
def test_a_evaluation_comes_back_as_it_was_or_without_the_texts(tmp_path, problems):
    evaluation = replace(EVALUATION, problems=problems)
    write_evaluation(tmp_path / "s.parquet", evaluation)
    assert read_evaluation(tmp_path / "s.parquet") == evaluation
    slim = tuple(replace(problem, votes=(), kept=()) for problem in problems)
    assert read_evaluation(tmp_path / "s.parquet", texts=False).problems == slim


@pytest.mark.parametrize("metadata", [None, {HEADER: b"{}"}])
def test_a_table_of_something_else_is_said_in_a_short_sentence(tmp_path, metadata):
    path = tmp_path / "other.parquet"
    columns = {field.name: [None] * 50 for field in fields(PROBLEM)}
    parquet.write_table(pyarrow.table(columns, metadata=metadata), path)
    with pytest.raises(StorageError, match=r"^the evaluation .{1,400}$") as caught:
        read_evaluation(path)
    assert "subscriptable" not in str(caught.value)


@pytest.mark.parametrize("damage", [b"", b"PAR1 is not enough", None])
def test_a_damaged_or_missing_file_is_said_in_a_sentence(tmp_path, damage):
    (tmp_path / "evals").mkdir()
    for place, advice in (("evals", "delete it and measure again"), (".", "say a run, or files")):
        folder = tmp_path / place
        if damage is not None:
            (folder / "s.parquet").write_bytes(damage)
        with pytest.raises(StorageError, match=rf"cannot be read .* {advice}"):
            read_evaluation(folder / "s.parquet")


# -- the folder of an evaluation


RULES = {
    "sizes": {"test": 4, "ood": 2, "levels": 0},
    "levels": {"countdown": [1, 2, 3]},
    "samples": 16,
    "sampling": {"temperature": 1.0, "top_p": 1.0, "limit": 80},
    "seed": 0,
    "problems": "abc",
}


def test_evaluations_list_the_base_first_then_checkpoints_by_step_then_others(tmp_path):
    names = ("step_001000", "org_model", "base", "step_000200")
    keep(tmp_path, *(evaluation(name, [result(1)]) for name in names), name="evaluation")
    keep(tmp_path, evaluation("base", [result(1)]), name="measurement")
    (tmp_path / "evals" / "base.json").write_text("no evaluation")
    (tmp_path / "evals" / "begun").mkdir()
    assert [(name, [path.stem for path in files]) for name, files in evaluations(tmp_path)] == [
        ("evaluation", ["base", "step_000200", "step_001000", "org_model"]),
        ("measurement", ["base"]),
    ]
    assert evaluations(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"samples": 64}, "samples: 16 → 64"),
        ({"sampling": RULES["sampling"] | {"temperature": 0.6}}, r"sampling\.temperature: 1\.0 → 0\.6"),
        ({"levels": {}}, r"levels\.countdown: \[1, 2, 3\] → None"),
    ],
)
def test_other_questions_are_refused_by_name(tmp_path, change, said):
    with held(tmp_path, RULES):
        (tmp_path / "base.parts").mkdir()
        (tmp_path / "base.parts" / "part_000.parquet").touch()
    told = pytest.raises(StorageError, match=rf"asked otherwise \({said}\).*--name")
    with told, held(tmp_path, RULES | change):
        pass


def test_a_evaluation_that_was_killed_before_its_first_result_may_ask_otherwise(tmp_path):
    with held(tmp_path, RULES):
        (tmp_path / "base.parts").mkdir()
    (tmp_path / ".base.parquet.tmp-0badf00d").write_text("half")
    with held(tmp_path, RULES | {"samples": 64}):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["base.parts", "lock", "rules.json"]
        assert json.loads((tmp_path / "rules.json").read_bytes())["samples"] == 64


def test_one_evaluation_is_measured_by_one_process_at_a_time_and_goes_on_with_the_same_questions(tmp_path):
    told = pytest.raises(StorageError, match="is being measured by process")
    with held(tmp_path, RULES), told, held(tmp_path, RULES):
        pass
    with held(tmp_path, RULES):
        pass


def test_a_failure_before_anything_was_measured_leaves_nothing_behind(tmp_path):
    with pytest.raises(KeyboardInterrupt), held(tmp_path / "evals" / "model" / "evaluation", RULES):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    folder = tmp_path / "evals" / "evaluation"
    with held(folder, RULES):
        write_evaluation(folder / "base.parquet", evaluation("base", [result(1)]))
    with pytest.raises(KeyboardInterrupt), held(folder, RULES):
        raise KeyboardInterrupt
    assert [path.name for path in models(folder)] == ["base.parquet"]
    assert (folder / "rules.json").exists()


def test_damaged_rules_are_said(tmp_path):
    (tmp_path / "rules.json").write_text("[")
    with pytest.raises(StorageError, match=r"rules\.json is not JSON"), held(tmp_path, RULES):
        pass


def test_the_rules_hold_levels_and_a_hash_that_sees_another_prompt():
    def rules(names, **sizes):
        tasks = Mixture([(make_task(name), 1.0) for name in names], seed=0)
        found = questions(tasks, **{"test": 2, **sizes})
        sampling = Sampling(temperature=1.0, top_p=1.0, limit=80)
        kinds = {"system_prompt": "", "format": "lenient"}
        return Asked(questions=found, sizes={}, samples=16, sampling=sampling, seed=0, **kinds).rules()

    one = rules(["arithmetic"])
    others = [rules(["countdown"]), rules(["arithmetic"], test=3)]
    assert rules(["arithmetic"]) == one
    assert len({found["problems"] for found in (one, *others)}) == 3
    levels = rules(["countdown"], levels=1)["levels"]["countdown"]
    assert levels == sorted(set(levels))
    assert one["levels"] == {}


def test_a_model_is_another_one_by_its_name_or_by_its_weights_where_both_are_known():
    one = Subject(model="a", weights="x")
    others = [{}, {"weights": ""}, {"weights": "y"}, {"model": "b"}]
    assert [one.is_same(replace(one, **other)) for other in others] == [True, True, False, False]


@pytest.mark.parametrize("name", ["base", "./base", "step_000320", "/step_7"])
def test_a_model_from_elsewhere_never_takes_the_place_of_the_runs_own(tmp_path, name):
    taken = {model_file(tmp_path, model).name for model in ("base", "step_000320", "step_7")}
    assert model_file(tmp_path, external_name(name)).name not in taken
    assert model_file(tmp_path, step_name(320)).name in taken
    assert [*map(slug, ("///", "a/b", "", ".hidden"))] == ["model", "a_b", "model", "hidden"]
    assert external_name("org/model") == "org/model"
