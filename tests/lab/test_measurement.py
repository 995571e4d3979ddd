"""Measuring: what is checked before, every part on its own problems, repeatable, and interrupted without a trace."""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from prorl.build import Session, build_tasks
from prorl.config.recipe import changed, differences, load_recipe, to_json
from prorl.control.plan import make_plan
from prorl.envs.errors import ProrlError
from prorl.envs.extract import respond
from prorl.envs.mixture import Mixture
from prorl.envs.registry import make_task
from prorl.envs.sandbox.link import SandboxError
from prorl.envs.types import Verdict
from prorl.lab import measurement
from prorl.lab.evals.evaluation_store import (
    Asked,
    Evaluation,
    Subject,
    questions,
    read_evaluation,
    write_evaluation,
)
from prorl.lab.evals.problems import LEAST_GUESSES
from prorl.lab.measurement import Source, ask, asked_by, between, checked_tasks, require_free_gpus
from prorl.lab.watch.console import Console
from prorl.rollout.pipeline import VerifierError, domain_rates
from prorl.run.journal import read_journal
from prorl.run.store import RunStore
from prorl.stopwatch import WAITING, unheard
from prorl.types import Sampling
from support.evaluations import evaluation, results
from support.fake_backend import FakeBackend, FakeJudge, FakeRenderer
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
        source = Source(model="step_000004", step=4, path="", run=run)
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


# -- asking

NAMES = ("arithmetic", "word_list", "blicket")
VERIFIERS = {name: make_task(name) for name in NAMES}
TASKS = Mixture([(task, 1.0) for task in VERIFIERS.values()], seed=3)
ASKED = questions(TASKS, test=20, ood=4, levels=2)
SAMPLES = 4
BASE = Subject(model="base", step=0, weights="w")
LOST = ASKED["ood"][:1]  # too few responses for its verifiers to count as out, which are waited for
WITH_LOST = {"ood": LOST, "test": ASKED["test"]}
INCIDENT = "engine 0 has died and is replaced"


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(measurement, "RESPONSES_AT_A_TIME", 32 * SAMPLES)


class Killed(BaseException):
    """What a test ends a measurement with."""


class Watched(Console):
    """Calls a function of done and total with the progress of every measurement."""

    def __init__(self, watch):
        super().__init__(quiet().rich)
        self._watch = watch

    @contextmanager
    def progress(self, title):
        yield lambda done, total, note: self._watch(done, total)


class Broken(FakeJudge):
    """A judge whose verifiers fail on every response to these problems."""

    def __init__(self, problems):
        super().__init__(VERIFIERS)
        self._broken = {problem.prompt for problem in problems}

    def submit(self, ticket, problem, text):
        if problem.prompt in self._broken:
            self._ready.append((ticket, Verdict(score=0.0, status="error", note="no luck")))
        else:
            super().submit(ticket, problem, text)


def measured(
    folder,
    *,
    asked=ASKED,
    subject=BASE,
    skill=0.5,
    seed=1,
    watch=None,
    judge=None,
    incidents=(),
    pulse=unheard,
):
    problems = [problem for part in asked.values() for problem in part]
    answers = {FakeRenderer().encode(one.prompt): respond("", one.solution.answer) for one in problems}
    backend = FakeBackend(VERIFIERS, answers, skill)
    backend.judge = judge or backend.judge
    backend.incidents = lambda: list(incidents)
    backend.sync(0)
    session = Session(
        config=recipe(),
        plan=make_plan(recipe()),
        tasks=TASKS,
        backend=backend,
        renderer=FakeRenderer(),
        tokenizer=None,
        context=500,
    )
    sampling = Sampling(temperature=1.0, top_p=1.0, limit=500)
    kinds = {"system_prompt": "", "format": "lenient"}
    wanted = Asked(questions=asked, sizes={}, samples=SAMPLES, sampling=sampling, seed=seed, **kinds)
    return ask(wanted, subject, folder, session, Watched(watch) if watch else quiet(), pulse)


def killed_after(chunks):
    calls = []

    def watch(done, total):
        calls.append(done)
        if len(calls) == chunks:
            raise Killed

    return watch


def test_stages_are_measured_at_the_largest_limit_that_any_trains_with():
    config = load_recipe("nano_stages")
    limits = [
        config.sampling.response_limit,
        *(stage.set.get("sampling.response_limit") for stage in config.stages),
    ]
    assert asked_by(config, build_tasks(config)).sampling.limit == max(filter(None, limits)) > limits[0]


@pytest.mark.parametrize("change", ["system_prompt=Think.", "format=strict", "evaluation.temperature=0.5"])
def test_an_evaluation_takes_no_other_way_of_asking(change):
    one, other = (asked_by(config, TASKS).rules() for config in (recipe(), changed(recipe(), {}, [change])))
    assert len(differences(one, other)) == 1


@pytest.mark.parametrize(("temperature", "samples"), [(0.0, 1), (0.5, 16)])
def test_a_greedy_model_is_asked_once_as_it_only_repeats_itself(temperature, samples):
    config = changed(recipe(), {}, [f"evaluation.temperature={temperature}", "evaluation.samples=16"])
    assert asked_by(config, TASKS).samples == samples


def test_what_failed_and_was_mended_is_kept_beside_the_results(tmp_path):
    for number, model in enumerate(("base", "step_000004")):
        measured(
            tmp_path,
            asked={"test": ASKED["test"][:3]},
            subject=Subject(model=model),
            incidents=[INCIDENT] * number,
        )
    with pytest.raises(VerifierError):  # an evaluation that fails tells it too
        measured(
            tmp_path,
            asked={"ood": LOST},
            subject=Subject(model="x"),
            judge=Broken(LOST),
            incidents=[INCIDENT],
        )
    records = [(record["model"], record["text"]) for record in read_journal(tmp_path / "incidents.jsonl")]
    assert records == [("step_000004", INCIDENT), ("x", INCIDENT)]


def test_every_part_is_measured_on_its_own_problems(tmp_path):
    seen = []
    evaluation = measured(tmp_path, watch=lambda done, total: seen.append((done, total)))
    total = sum(map(len, ASKED.values()))
    assert seen[0] == (32, total)
    assert (total, total) in seen
    tried = sum(max(LEAST_GUESSES, one.samples) for one in evaluation.problems)
    assert 0 < sum(one.guesses for one in evaluation.problems) <= tried
    for part, problems in ASKED.items():
        of_part = [result for result in evaluation.problems if result.part == part]
        assert [(r.task, r.level, r.index) for r in of_part] == [(p.task, p.level, p.index) for p in problems]
    assert read_evaluation(tmp_path / "base.parquet") == evaluation
    assert [path.name for path in tmp_path.iterdir()] == ["base.parquet"]
    assert measured(tmp_path, seed=2).problems != evaluation.problems  # other responses to the same


@pytest.mark.parametrize("responses", [1, 64 * SAMPLES, 10**6])
def test_how_many_are_asked_at_a_time_changes_no_result(tmp_path, monkeypatch, responses):
    (tmp_path / "other").mkdir()
    whole, seen = measured(tmp_path), []
    monkeypatch.setattr(measurement, "RESPONSES_AT_A_TIME", responses)
    watch = seen.append
    other = measured(tmp_path / "other", watch=lambda done, _total: watch(done))
    assert other.problems == whole.problems
    assert seen[0] == max(1, min(responses // SAMPLES, len(ASKED["test"])))


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_an_interrupted_one_goes_on_and_ends_with_the_same_results(tmp_path, chunks):
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    whole = measured(tmp_path / "whole")
    with pytest.raises(Killed):
        measured(tmp_path / "cut", watch=killed_after(chunks))
    parts = tmp_path / "cut" / "base.parts"
    assert len(list(parts.iterdir())) == chunks
    assert not (tmp_path / "cut" / "base.parquet").exists()
    kept = {path: path.stat().st_mtime_ns for path in parts.iterdir()}

    def untouched(done, total):
        assert all(path.stat().st_mtime_ns == written for path, written in kept.items())

    assert measured(tmp_path / "cut", watch=untouched).problems == whole.problems
    assert not parts.exists()


def test_what_other_weights_left_behind_is_not_taken_up(tmp_path):
    with pytest.raises(Killed):
        measured(tmp_path, skill=0.01, watch=killed_after(2))
    other = replace(BASE, weights="other")
    evaluation = measured(tmp_path, subject=other, skill=0.99)
    assert min(domain_rates(evaluation.problems, 1).values()) > 0.9
    assert evaluation.weights == "other"


def test_a_better_policy_measures_better(tmp_path):
    asked = questions(TASKS, test=40)
    for skill in (0.2, 0.8):
        found = domain_rates(measured(tmp_path, asked=asked, skill=skill).problems, 1)
        assert sum(found.values()) / len(found) == pytest.approx(skill, abs=0.1)


def test_a_chunk_that_cannot_be_judged_costs_nothing_else_and_is_asked_again(tmp_path):
    with pytest.raises(Killed):
        measured(tmp_path, asked=WITH_LOST, judge=Broken(LOST), watch=killed_after(1))
    asked = [problem.prompt for problem in ASKED["test"]]
    (tmp_path / "other").mkdir()
    evaluation = measured(tmp_path / "other", asked=WITH_LOST, judge=Broken(LOST))
    assert [problem.prompt for problem in evaluation.problems] == asked
    evaluation = measured(tmp_path, asked=WITH_LOST)
    assert [problem.prompt for problem in evaluation.problems] == [LOST[0].prompt, *asked]


def test_an_outage_is_waited_for_without_deadline_where_every_problem_is_a_chunk_of_its_own(
    tmp_path, monkeypatch
):
    """As with many tries at each: one problem alone might be one that nobody can judge."""
    monkeypatch.setattr(measurement, "RESPONSES_AT_A_TIME", 1)
    of_task = ([one for one in ASKED["test"] if one.task == name][:6] for name in ("word_list", "arithmetic"))
    asked = {"test": [one for pair in zip(*of_task, strict=True) for one in pair]}  # in turn
    judge, phases, waited = Broken(asked["test"]), [], []

    def sleep(_seconds):
        waited.append(phases[-1])
        judge._broken.clear()

    monkeypatch.setattr(measurement.time, "sleep", sleep)
    evaluation = measured(tmp_path, asked=asked, judge=judge, pulse=phases.append)
    assert waited == [WAITING]
    assert [(one.task, one.index) for one in evaluation.problems] == [
        (one.task, one.index) for one in asked["test"]
    ]
    assert all(one.samples == SAMPLES for one in evaluation.problems)


def test_an_evaluation_in_which_nothing_could_be_judged_is_an_error_with_the_verifiers_reason(tmp_path):
    with pytest.raises(VerifierError, match="no luck"):
        measured(tmp_path, asked={"ood": LOST}, judge=Broken(LOST))
    assert not (tmp_path / "base.parquet").exists()
