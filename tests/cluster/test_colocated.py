"""Learner ranks and engines that share their places: whole runs on real Ray and vLLM, and who computed when."""

import shutil
from itertools import groupby, pairwise

import pytest

from prorl.build import build_session
from prorl.config.recipe import load_recipe
from prorl.control.events import ReferenceReset, Stepped
from prorl.session import resume_run
from support.cluster import actors, answers, ask
from support.runs import events, finished, of_kind, quiet
from support.tiny import write_recipe

pytest.importorskip("vllm")
ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

SHARED = {"learners": 2, "engines": 2, "cache_gib": 0.0625, "colocate": True}
APART = SHARED | {"colocate": False}


@pytest.fixture(scope="module")
def apart(model, tmp_path_factory):
    return run_of(model, tmp_path_factory.mktemp("apart"), APART)


@pytest.fixture(scope="module")
def shared(model, tmp_path_factory):
    from support.watched import watch

    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        watch(patch, folder / "calls")
        return run_of(model, folder, SHARED | {"shared_queue": True, "max_rows": 8})


def run_of(model, folder, settings):
    recipe = write_recipe(folder, model, backend="ray", cluster=settings, save={"every": 1, "keep_last": 9})
    return finished(recipe, folder / "run")


def test_a_colocated_run_is_the_run_that_it_is_apart(shared, apart):
    assert [event.kind for event in events(shared)] == [event.kind for event in events(apart)]
    assert of_kind(shared, ReferenceReset)
    for mine, theirs in zip(of_kind(shared, Stepped), of_kind(apart, Stepped), strict=True):
        assert mine.rollout_stats == theirs.rollout_stats
        assert mine.update.loss == pytest.approx(theirs.update.loss, abs=1e-4)
        assert mine.update.grad_norm == pytest.approx(theirs.update.grad_norm, rel=1e-3)
        assert mine.update.mismatch < 1e-4


def test_learner_and_engines_never_compute_at_the_same_time(shared):
    from support.watched import calls

    log = calls(shared.parent / "calls")
    turns = [(kind, list(made)) for kind, made in groupby(log, key=lambda call: call.kind)]
    # Three steps with validations, references and checkpoints, measured before and after.
    assert len(turns) > 12
    for (_, made), (_, following) in pairwise(turns):
        assert max(call.end for call in made) <= following[0].begin
    for kind, made in turns[:-1]:
        last = {call.process: call.what for call in made}
        assert list(last.values()) == ["sleep" if kind == "engine" else "stow"] * 2
    # What a rank was built with leaves the GPU before an engine looks how much is free.
    built, started = turns[:2]
    assert [call.what for call in built[1]] == ["stow"] * 2
    assert {call.what for call in started[1]} == {"start", "sleep"}
    for kind, made in turns[2:]:
        first = {call.process: call.what for call in reversed(made)}
        assert list(first.values()) == ["install" if kind == "engine" else "fetch"] * 2
    made = {call.what for call in log}
    assert {"learn", "publish", "reset_reference", "snapshot", "save_reference", "poll"} <= made


def test_a_run_that_began_apart_goes_on_colocated(apart, tmp_path):
    run = shutil.copytree(apart, tmp_path / "run")
    shutil.rmtree(run / "checkpoints" / "step_000003")
    assert resume_run(run, quiet(), overrides=["cluster.colocate=true"]).stopped == "done"
    mine, theirs = (of_kind(folder, Stepped)[-1].update for folder in (run, apart))
    assert mine.loss == pytest.approx(theirs.loss, abs=1e-4)


@pytest.fixture(scope="module")
def backend(model, tmp_path_factory):
    """Of the tests from here on, as it takes long to start."""
    folder = tmp_path_factory.mktemp("backend")
    config = load_recipe(str(write_recipe(folder, model, backend="ray", cluster=SHARED)))
    parts = build_session(config, model, with_reference=True)
    parts.backend.sync(0)
    yield parts.backend
    parts.backend.close()


def sampled(engine):
    requests = [ask(draw, (30, 40, 50), samples=2, seed=draw, limit=20) for draw in range(4)]
    return {key: completion.tokens for key, completion in answers(engine, requests).items()}


def test_learner_and_engines_in_any_order(backend, tmp_path):
    """Weights that were published once serve after every turn of the learner, also when engines die asleep."""
    engine, learner = backend.engine, backend.learner
    expected = sampled(engine)
    write = learner.snapshot()
    assert sampled(engine) == expected
    write(tmp_path)  # beside the engines' turn
    learner.reset_reference(None, clear_optimizer=True)
    learner.restore(tmp_path)
    for process in actors("EngineActor"):
        process.kill()
    assert sampled(engine) == expected
    assert len(backend.incidents()) == 2
    backend.sync(1)
    assert sampled(engine) == expected
    assert backend.incidents() == []


def test_the_learner_waits_for_what_is_in_flight_to_be_polled(backend):
    backend.engine.submit(ask(prompt=(30,), samples=8, limit=20))
    with pytest.raises(RuntimeError, match="in flight"):
        backend.learner.snapshot()
    while backend.engine.poll():
        pass
    backend.learner.snapshot()


def test_a_place_is_claimed_once(backend):
    assert ray.cluster_resources()["CPU"] == 2
    assert len(actors("LearnerRank")) == len(actors("EngineActor")) == 2
