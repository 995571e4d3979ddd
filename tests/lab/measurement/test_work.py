"""What is seen to before anything is built, and what is kept of failures while a model is asked."""

import pytest
from prorl.compose import Parts

from prorl.config.recipe import changed, load_recipe
from prorl.envs.extract import respond
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_task
from prorl.envs.sandbox.link import SandboxError
from prorl.fake import FakeBackend, FakeRenderer
from prorl.lab.evals.measure import Subject
from prorl.lab.evals.shelf import Rules, digest
from prorl.lab.measurement import work
from prorl.run.journal import read_journal
from prorl.types import Sampling
from support.runs import quiet


def test_programs_are_tried_where_they_will_be_judged(monkeypatch):
    def refuse(config):
        raise SandboxError("no sandbox beside the driver")

    monkeypatch.setattr(work, "check_sandbox", refuse)
    elsewhere = load_recipe("nano", ["backend=ray", "cluster.judges=1"])
    assert work.build_tasks(elsewhere, quiet()).problem(0, "train").prompt
    for here in (load_recipe("nano", ["backend=ray"]), changed(elsewhere, {}, ["backend=local"])):
        with pytest.raises(SandboxError, match="beside the driver"):
            work.build_tasks(here, quiet())


class MendedBackend(FakeBackend):
    """Something failed in it and was mended whenever it is asked."""

    def incidents(self):
        return ["engine 0 has died and is replaced"]


def ask(folder, backend, tasks, problems, model):
    rules = Rules(
        sizes={},
        ladders={},
        samples=2,
        sampling=Sampling(temperature=1.0, top_p=1.0, limit=500),
        seed=1,
        problems=digest({"test": problems}),
    )
    parts = Parts(backend=backend, renderer=FakeRenderer(), tokenizer=None, context=500)
    asked = work.Asked(questions={"test": problems}, rules=rules)
    return work.put(asked, Subject(model=model), folder, tasks, parts, quiet())


@pytest.fixture
def asked():
    tasks = Mixture([(make_task("arithmetic"), 1.0)], seed=3)
    problems = tasks.exam_problems("test", 3)
    answers = {FakeRenderer().encode(one.prompt): respond("", one.witness.answer) for one in problems}
    return tasks, problems, answers


def test_what_failed_and_was_mended_is_kept_beside_the_results(asked, tmp_path):
    tasks, problems, answers = asked
    backend = MendedBackend({"arithmetic": make_task("arithmetic")}, answers, skill=1.0)
    backend.sync(0)
    for model in ("base", "step_000004"):
        assert ask(tmp_path, backend, tasks, problems, model).model == model
    backend.judge = FakeBackend({}, answers, skill=1.0).judge
    with pytest.raises(KeyError):  # a study that fails tells it too
        ask(tmp_path, backend, tasks, problems, "step_000008")
    records = list(read_journal(tmp_path / "incidents.jsonl"))
    assert [record["model"] for record in records] == ["base", "step_000004", "step_000008"]
    assert {record["text"] for record in records} == {"engine 0 has died and is replaced"}


def test_nothing_is_kept_of_a_study_without_failures(asked, tmp_path):
    tasks, problems, answers = asked
    backend = FakeBackend({"arithmetic": make_task("arithmetic")}, answers, skill=1.0)
    backend.sync(0)
    ask(tmp_path, backend, tasks, problems, "base")
    assert [path.name for path in tmp_path.iterdir()] == ["base.parquet"]
