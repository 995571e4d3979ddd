"""What is checked before anything is built, which checkpoint lies between two, and what is kept of failures."""

import pytest

from prorl.build import Session
from prorl.config.recipe import changed, load_recipe, to_json
from prorl.control.plan import make_plan
from prorl.envs.errors import ProrlError
from prorl.envs.extract import respond
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_task
from prorl.envs.sandbox.link import SandboxError
from prorl.lab import measurement
from prorl.lab.evals.evaluation import Subject
from prorl.lab.evals.evaluation_store import Evaluation, Rules, digest, write_evaluation
from prorl.lab.measurement import Asked, Source, ask, between, checked_tasks, require_free_gpus
from prorl.run.journal import read_journal
from prorl.run.store import RunStore
from prorl.types import Sampling
from support.evaluations import evaluation, results
from support.fake_backend import FakeBackend, FakeRenderer
from support.recipes import recipe
from support.runs import quiet


def checkpoint(step: int) -> Evaluation:
    return evaluation(f"step_{step:06d}", results([1]), step=step)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (0, 400, 100),  # as near to half as 300: the earlier one
        (0, 300, 100),
        (100, 400, 300),
        (100, 300, None),
        (300, 400, None),
        (None, 400, None),  # from a model from elsewhere no way leads here
    ],
)
def test_the_checkpoint_between_lies_on_the_way(tmp_path, start, end, found):
    for step in (100, 300, 400):
        write_evaluation(tmp_path / f"step_{step:06d}.parquet", checkpoint(step))
    write_evaluation(tmp_path / "step_final.parquet", evaluation("step_final", results([1])))
    base = evaluation("base", results([1]), step=start)
    chosen = between(tmp_path, base, checkpoint(end))
    assert (None if chosen is None else chosen.step) == found


ON_GPUS = ["backend=ray", "device=cuda"]


@pytest.mark.parametrize(
    "harmless",
    [["backend=local", "device=cuda"], ["backend=ray", "device=cpu"], [*ON_GPUS, "cluster.address=auto"]],
)
def test_a_evaluation_does_not_take_the_gpus_of_a_run_that_trains(tmp_path, harmless):
    config = load_recipe("nano", ON_GPUS)
    with RunStore.create(tmp_path / "run", to_json(config)) as run:
        source = Source(subject=Subject(model="step_000004", step=4), model="", run=run)
        require_free_gpus(source, load_recipe("nano", harmless))
        with pytest.raises(ProrlError, match=r"is being trained.*--address"):
            require_free_gpus(source, config)
    require_free_gpus(source, config)


def test_programs_are_tried_where_they_will_be_judged(monkeypatch):
    def refuse(config):
        raise SandboxError("no sandbox beside the driver")

    monkeypatch.setattr(measurement, "check_sandbox", refuse)
    elsewhere = load_recipe("nano", ["backend=ray", "cluster.judges=1"])
    assert checked_tasks(elsewhere, quiet()).problem(0, "train").prompt
    for here in (load_recipe("nano", ["backend=ray"]), changed(elsewhere, {}, ["backend=local"])):
        with pytest.raises(SandboxError, match="beside the driver"):
            checked_tasks(here, quiet())


class MendedBackend(FakeBackend):
    """Something failed in it and was mended whenever it is asked."""

    def incidents(self):
        return ["engine 0 has died and is replaced"]


def asked_in(folder, backend, tasks, problems, model):
    rules = Rules(
        sizes={},
        levels={},
        samples=2,
        sampling=Sampling(temperature=1.0, top_p=1.0, limit=500),
        seed=1,
        problems=digest({"test": problems}),
    )
    session = Session(
        config=recipe(),
        plan=make_plan(recipe()),
        tasks=tasks,
        backend=backend,
        renderer=FakeRenderer(),
        tokenizer=None,
        context=500,
    )
    asked = Asked(questions={"test": problems}, rules=rules)
    return ask(asked, Subject(model=model), folder, session, quiet())


@pytest.fixture
def asked():
    tasks = Mixture([(make_task("arithmetic"), 1.0)], seed=3)
    problems = tasks.validation_problems("test", 3)
    answers = {FakeRenderer().encode(one.prompt): respond("", one.solution.answer) for one in problems}
    return tasks, problems, answers


def test_what_failed_and_was_mended_is_kept_beside_the_results(asked, tmp_path):
    tasks, problems, answers = asked
    backend = MendedBackend({"arithmetic": make_task("arithmetic")}, answers, skill=1.0)
    backend.sync(0)
    for model in ("base", "step_000004"):
        assert asked_in(tmp_path, backend, tasks, problems, model).model == model
    backend.judge = FakeBackend({}, answers, skill=1.0).judge
    with pytest.raises(KeyError):  # an evaluation that fails tells it too
        asked_in(tmp_path, backend, tasks, problems, "step_000008")
    records = list(read_journal(tmp_path / "incidents.jsonl"))
    assert [record["model"] for record in records] == ["base", "step_000004", "step_000008"]
    assert {record["text"] for record in records} == {"engine 0 has died and is replaced"}


def test_nothing_is_kept_of_a_evaluation_without_failures(asked, tmp_path):
    tasks, problems, answers = asked
    backend = FakeBackend({"arithmetic": make_task("arithmetic")}, answers, skill=1.0)
    backend.sync(0)
    asked_in(tmp_path, backend, tasks, problems, "base")
    assert [path.name for path in tmp_path.iterdir()] == ["base.parquet"]
