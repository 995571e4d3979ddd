"""`prorl eval` as a person uses it: against the base, again, interrupted, beside a trainer, and for any model."""

import json
import shutil
import sys
from collections import Counter
from dataclasses import replace
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest

from prorl.envs.errors import ProrlError
from prorl.lab import measurement
from prorl.lab.evals.evaluation_store import Evaluation, model_file, read_evaluation, write_evaluation
from prorl.lab.evals.evaluation_store import models as models_of
from prorl.lab.evals.statistics import read_ks
from prorl.run.history import read_history
from prorl.run.layout import LOCK, hold_lock
from support.commands import done, prorl, refused, tables, tree

FEW = ("--samples", 4, "--per-domain", 2, "--ood", 1, "--per-level", 1)


def measured(run: Path, name: str = "evaluation") -> dict[str, Evaluation]:
    """What an evaluation found, by model, without how long it took."""
    paths = models_of(run / "evals" / name)
    return {path.stem: replace(read_evaluation(path), seconds=0.0) for path in paths}


@pytest.fixture(scope="module")
def studied(trained, tmp_path_factory) -> Path:
    """The finished run with an evaluation; tests that change it take a copy."""
    folder = Path(shutil.copytree(trained, tmp_path_factory.mktemp("studied") / "tiny"))
    assert "base → step 3: held-out problems" in done("eval", folder, *FEW)
    return folder


@pytest.fixture
def copy(studied, tmp_path) -> Path:
    return Path(shutil.copytree(studied, tmp_path / "tiny"))


def test_a_evaluation_measures_the_base_and_the_newest_checkpoint(studied):
    found = measured(studied)
    assert [*found] == ["base", "step_000003"]
    for evaluation in found.values():
        assert Counter(problem.part for problem in evaluation.problems)["test"] == 4
        assert {problem.part for problem in evaluation.problems} == {"test", "ood", "levels"}
        assert {problem.samples for problem in evaluation.problems} == {4}
    base, trained = found.values()
    assert [problem.key for problem in base.problems] == [problem.key for problem in trained.problems]
    rules = json.loads((studied / "evals" / "evaluation" / "rules.json").read_bytes())
    assert rules["sizes"] == {"test": 2, "ood": 1, "levels": 1}
    assert rules["levels"]["arithmetic"] == sorted(rules["levels"]["arithmetic"])


@pytest.mark.parametrize("change", ["sampling.temperature=0.5", "optimizer.lr=3", "steps=9"])
def test_what_an_evaluation_does_not_read_is_refused(run, change):
    assert "changes nothing in an evaluation" in refused("eval", run, *FEW, change)


def test_a_run_of_a_cluster_is_studied_in_one_process(run, studied):
    recipe = json.loads((run / "config.json").read_bytes())
    (run / "config.json").write_text(json.dumps(recipe | {"backend": "ray"}))
    done("eval", run, *FEW, "--backend", "local")
    assert measured(run) == measured(studied)


def test_it_says_who_solves_what_and_where_it_lies(studied):
    text = done("eval", studied, *FEW)
    for words in ("was measured before", "Pattern of each task", "maj@4", f"prorl report {studied}"):
        assert words in text
    (table, *_) = tables("eval", studied, *FEW)
    assert table["title"] == "base → step 3: held-out problems"
    assert table["rows"][-1]["gain in pass@4"].keys() == {"value", "low", "high"}


def test_a_second_checkpoint_joins_and_nothing_is_measured_twice(copy):
    before = tree(copy)
    done("eval", f"{copy}@2", *FEW)
    after = tree(copy)
    assert set(after) - set(before) == {"evals/evaluation/step_000002.parquet"}
    assert {path: after[path] for path in before} == before


def test_step_zero_is_the_base(studied):
    assert "base: held-out problems" in done("eval", f"{studied}@0", *FEW)


def test_the_first_reference_is_the_base_where_its_checkpoint_is_gone(run, studied):
    shutil.rmtree(run / "checkpoints" / "step_000000")
    done("eval", run, *FEW)
    assert measured(run)["base"] == measured(studied)["base"]
    shutil.rmtree(run / "references" / "ref_000")
    assert "say what to compare with, --against MODEL" in refused("eval", run, *FEW)


def test_an_interrupted_evaluation_goes_on_and_ends_with_the_same_results(run, studied, monkeypatch):
    sit, calls = measurement.sample_problems, []

    def interrupted(sampler, problems, **named):
        calls.append(problems)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return sit(sampler, problems, **named)

    monkeypatch.setattr(measurement, "sample_problems", interrupted)
    stopped = prorl("eval", run, *FEW)
    assert stopped.exit_code == 130
    assert "give the same command again to go on" in stopped.stderr
    assert not measured(run)
    done("eval", run, *FEW)
    assert calls.count(calls[0]) == 2, "one for each model: what was measured is not again"
    assert measured(run) == measured(studied)


def test_another_question_belongs_to_another_evaluation(copy):
    said = refused("eval", copy, *FEW, "--samples", 8)
    assert "samples: 4 → 8" in said
    assert "--name" in said
    done("eval", copy, *FEW, "--samples", 8, "--name", "longer")
    assert len(measured(copy, "longer")) == 2
    assert "temperature: 1.0 → 0.5" in refused("eval", copy, *FEW, "evaluation.temperature=0.5")


def test_a_greedy_evaluation_asks_once_and_says_so(recipe, models, workplace):
    asked = (*FEW, "evaluation.temperature=0", "evaluation.top_p=0.95", "--out", "out")
    said = done("eval", models["llama"], "--recipe", recipe, *asked)
    assert (
        "temperature=0 is greedy: all responses to a problem are equal, so each is asked once, not 4 times"
        in said
    )
    assert "pass@1" in said
    assert "pass@4" not in said
    (path,) = (workplace / "out").rglob("*.parquet")
    assert {problem.samples for problem in read_evaluation(path).problems} == {1}


def test_a_checkpoint_that_is_no_longer_the_same_is_measured_again(copy):
    """As after a roll back, when a step is reached a second time."""
    path = model_file(copy / "evals" / "evaluation", "step_000003")
    stored = read_evaluation(path)
    write_evaluation(path, replace(stored, weights="of another history", problems=stored.problems[:1]))
    done("eval", copy, *FEW)
    assert measured(copy)["step_000003"] == replace(stored, seconds=0.0)


def test_a_run_can_be_studied_while_it_trains(run):
    before = tree(run)
    with hold_lock(run / LOCK):  # as its trainer does
        done("eval", run, *FEW)
    after = tree(run)
    assert {path for path in after if path not in before} == {
        "evals/evaluation",
        *(f"evals/evaluation/{name}" for name in ("rules.json", "base.parquet", "step_000003.parquet")),
    }
    assert {path: after[path] for path in before} == before


def test_a_trainer_that_starts_leaves_a_evaluation_in_progress_alone(run):
    part = run / "evals" / "evaluation" / "base.parts" / ".part_000.parquet.tmp-1234"
    part.parent.mkdir(parents=True)
    part.write_text("just being written")
    done("resume", run)
    assert part.exists()


def test_training_that_is_done_does_not_fail_by_its_measurement(run):
    evaluation = run / "evals" / "measurement"
    with hold_lock(evaluation / "lock"):
        assert f"`prorl eval {run} --name other`" in " ".join(done("resume", run).split())
    rules = evaluation / "rules.json"
    rules.write_text(rules.read_text().replace('"samples": ', '"samples": 9'))
    (run / "report.html").unlink(missing_ok=True)
    said = " ".join(done("resume", run).split())
    assert "training is done, but step 3 was not compared with its base" in said
    assert "asked otherwise (samples: 9" in said
    assert (run / "report.html").exists()
    assert read_history(run).health == "done"


def test_a_model_is_asked_the_problems_of_a_recipe_and_compared_with_a_run(
    recipe, models, workplace, studied
):
    text = done("eval", models["qwen3"], "--recipe", recipe, "--against", models["llama"], *FEW)
    assert "held-out problems" in text
    (folder,) = (workplace / "evals").glob("*/evaluation")
    assert len(list(folder.glob("*.parquet"))) == 2
    assert folder.parent.name.endswith("qwen3")
    text = done("eval", studied, *FEW, "--against", models["llama"], "--out", "elsewhere")
    assert "→ step 3: held-out problems" in text
    assert len(list((workplace / "elsewhere" / "evaluation").glob("*.parquet"))) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no-such-run",), "no-such-run is no run; for a model, say whose problems it is asked: --recipe"),
        (("RUN@77",), "has no checkpoint of step 77"),
        (("RUN@last",), "say RUN@STEP, with the number of a step"),
        (("RUN@²",), "say RUN@STEP, with the number of a step"),
        (("RUN", "--k", "4,2"), "in ascending order"),
        (("RUN", "--k", 99_999_999_999), "and none above 65536"),
        (("RUN", "--k", "9" * 5000), "and none above 65536"),
        (("RUN", "--samples", 99_999_999_999), "evaluation.samples"),
        (("RUN", "--per-domain", 99_999_999_999), "evaluation.per_domain"),
        (("RUN", "--per-level", 99_999_999_999), "evaluation.per_level"),
        (("RUN", "--k", 8, "--samples", 4), "pass@8 needs as many responses per problem, not 4"),
        (("RUN", "--name", "../up"), "an evaluation cannot be called"),
        (("RUN", "--samples", 2, "--against", "RUN"), "are one model"),
        (("RUN@3", "--against", "./nowhere"), "there is no directory nowhere"),
        (("RUN", "--per-domain", 0, "--ood", 0, "--per-level", 0), "this asks nothing"),
        (("RUN", "evaluation.sampels=3"), "did you mean 'evaluation.samples'?"),
    ],
)
def test_mistakes_are_one_sentence(run, arguments, said):
    assert said in refused("eval", *(str(one).replace("RUN", "tiny") for one in arguments))
    assert not (run / "evals" / "evaluation").exists()


class CtrlCOnImport(MetaPathFinder):
    """A person who presses Ctrl-C while the program is loading."""

    def find_spec(self, fullname, path=None, target=None):
        if fullname == "prorl.lab.measurement":
            raise KeyboardInterrupt
        return


def test_ctrl_c_while_the_program_loads_says_how_to_go_on(workplace, monkeypatch):
    monkeypatch.delitem(sys.modules, "prorl.lab.measurement", raising=False)
    monkeypatch.setattr(sys, "meta_path", [CtrlCOnImport(), *sys.meta_path])
    stopped = prorl("eval", "nano")
    assert stopped.exit_code == 130
    assert "give the same command again to go on" in stopped.stderr


@pytest.mark.parametrize(
    ("text", "ks"),
    [("256", tuple(2**p for p in range(9))), ("1,4,16", (1, 4, 16)), ("1", (1,)), ("3", (1, 2, 3))]
    + [(text, None) for text in ("", "0", "a", "1,,2", "2,1", "1,1", "-4", "1.5")],
)
def test_ks_are_a_list_or_the_largest(text, ks):
    if ks is None:
        with pytest.raises(ProrlError, match="say one number, or several"):
            read_ks(text)
    else:
        assert read_ks(text) == ks


def test_a_branch_is_compared_with_its_parents_base_unless_it_asks_otherwise(run, workplace):
    same = done("train", "--branch", "tiny@2", "optimizer.lr=1e-3", "--run", workplace / "same")
    assert "base → step 3: held-out problems" in same
    other = done("train", "--branch", "tiny@2", "evaluation.samples=3", "--run", workplace / "other")
    assert "base →" not in other
    assert "step 3: held-out problems" in other
    assert [*measured(workplace / "other", "measurement")] == ["step_000003"]


@pytest.mark.parametrize("early", [False, True])
def test_a_checkpoint_may_be_deleted_by_its_trainer_once_it_is_measured(run, monkeypatch, early):
    module, name = (measurement.build, "build_tasks") if early else (measurement, "sample_problems")
    act = getattr(module, name)

    def deleting(*arguments, **named):
        shutil.rmtree(run / "checkpoints" / "step_000003", ignore_errors=True)
        return act(*arguments, **named)

    monkeypatch.setattr(module, name, deleting)
    if early:
        assert "step_000003 was deleted meanwhile" in refused("eval", run, *FEW)
    else:
        assert "base → step 3: held-out problems" in done("eval", run, *FEW)
