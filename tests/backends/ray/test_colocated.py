"""Learner ranks and engines that share their places: whole runs on real Ray and vLLM, and whose turn it was."""

import json
import os
import shutil
import sys
import time
from contextlib import contextmanager
from itertools import groupby

import pytest

from prorl.backends.ray import cluster
from prorl.backends.ray.engine import EngineActor
from prorl.backends.ray.learner import LearnerRank
from prorl.compose import build_parts
from prorl.config.recipe import load_recipe
from prorl.director.events import ReferenceReset, Stepped
from prorl.launch import resume_run, start_run
from prorl.types import Request, Sampling
from support.cluster import actors, write_model
from support.runs import events, of_kind, quiet
from support.tiny import write_recipe

pytest.importorskip("vllm")
ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

SHARED = {"learners": 2, "engines": 2, "cache_gib": 0.0625, "colocate": True}
APART = SHARED | {"colocate": False}
LOG = "PRORL_TEST_TURNS"


@contextmanager
def noted(who, what):
    """One line for the log of turns: begin, end, process, call."""
    begun = time.monotonic()
    yield
    entry = json.dumps([begun, time.monotonic(), who, os.getpid(), what]) + "\n"
    with open(os.environ[LOG], "a") as log:
        log.write(entry)


class WatchedEngine(EngineActor):
    """The engine of a run, which notes what it was asked for and when."""

    def install(self, weights):
        with noted("engine", "install"):
            super().install(weights)

    def poll(self):
        with noted("engine", "poll"):
            return super().poll()

    def score(self, prompt, tokens):
        with noted("engine", "score"):
            return super().score(prompt, tokens)

    def sleep(self):
        with noted("engine", "sleep"):
            super().sleep()


class WatchedRank(LearnerRank):
    """A rank, likewise."""

    def call(self, method, *arguments, **options):
        with noted("rank", method):
            return super().call(method, *arguments, **options)

    def publish(self, version):
        with noted("rank", "publish"):
            return super().publish(version)

    def snapshot(self, ticket):
        with noted("rank", "snapshot"):
            super().snapshot(ticket)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model") / "qwen3")


@pytest.fixture(scope="module")
def apart(model, tmp_path_factory):
    return run_of(model, tmp_path_factory.mktemp("apart"), APART)


@pytest.fixture(scope="module")
def shared(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOG, str(folder / "turns"))  # Ray's processes are started with both
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setattr(cluster, "EngineActor", WatchedEngine)
        patch.setattr(cluster, "LearnerRank", WatchedRank)
        return run_of(model, folder, SHARED)


def run_of(model, folder, settings):
    recipe = write_recipe(folder, model, backend="ray", cluster=settings, save={"every": 1, "keep_last": 9})
    assert start_run(load_recipe(str(recipe)), folder / "run", quiet()).stopped == "done"
    return folder / "run"


def test_a_colocated_run_is_the_run_that_it_is_apart(shared, apart):
    assert [event.kind for event in events(shared)] == [event.kind for event in events(apart)]
    assert of_kind(shared, ReferenceReset)
    for mine, theirs in zip(of_kind(shared, Stepped), of_kind(apart, Stepped), strict=True):
        assert mine.tally == theirs.tally
        assert mine.update.loss == pytest.approx(theirs.update.loss, abs=1e-4)
        assert mine.update.grad_norm == pytest.approx(theirs.update.grad_norm, rel=1e-3)
        assert mine.update.mismatch < 1e-4


def test_nobody_computes_while_it_is_not_his_turn(shared):
    log = [json.loads(line) for line in (shared.parent / "turns").read_text().splitlines()]
    turns = [(who, list(calls)) for who, calls in groupby(sorted(log), key=lambda entry: entry[2])]
    assert len(turns) > 12  # three steps with exams, references and checkpoints, measured before and after
    for (_, calls), (_, following) in zip(turns, turns[1:], strict=False):
        assert max(end for _, end, *_ in calls) <= following[0][0]  # they never overlap
    for who, calls in turns[:-1]:
        farewell = "sleep" if who == "engine" else "stow"
        left = {pid: [what for *_, other, what in calls if other == pid][-1] for *_, pid, _ in calls}
        assert list(left.values()) == [farewell] * 2
    for who, calls in turns[2:]:
        first = {pid: what for *_, pid, what in reversed(calls)}
        assert set(first.values()) == {"install" if who == "engine" else "fetch"}
    made = {what for *_, what in log}
    assert {"update", "publish", "reset_reference", "snapshot", "save_reference", "poll"} <= made


def test_a_run_that_began_apart_goes_on_colocated(apart, tmp_path):
    run = shutil.copytree(apart, tmp_path / "run")
    shutil.rmtree(run / "checkpoints" / "step_000003")
    assert resume_run(run, quiet(), overrides=["cluster.colocate=true"]).stopped == "done"
    mine, theirs = (of_kind(folder, Stepped)[-1].update for folder in (run, apart))
    assert mine.loss == pytest.approx(theirs.loss, abs=1e-4)


@pytest.fixture
def backend(model, tmp_path):
    config = load_recipe(str(write_recipe(tmp_path, model, backend="ray", cluster=SHARED)))
    parts = build_parts(config, model, with_reference=True)
    parts.backend.sync(0)
    yield parts.backend
    parts.backend.close()


def answers(engine):
    sampling = Sampling(temperature=1.0, top_p=1.0, limit=20)
    for draw in range(4):
        engine.submit(Request(draw=draw, prompt=(30, 40, 50), samples=2, seed=draw, sampling=sampling))
    found = {}
    while done := engine.poll():
        found |= {(completion.draw, completion.sample): completion.tokens for completion in done}
    return found


def test_any_order_of_turns(backend, tmp_path):
    """Weights that were published once serve after every turn of the learner, also when engines die asleep."""
    engine, learner = backend.engine, backend.learner
    expected = answers(engine)
    write = learner.snapshot()
    assert answers(engine) == expected
    write(tmp_path)  # beside the engines' turn
    learner.reset_reference(None, clear_optimizer=True)
    learner.restore(tmp_path)
    for process in actors("EngineActor"):
        process.kill()
    assert answers(engine) == expected
    assert len(backend.incidents()) == 2
    backend.sync(1)
    assert answers(engine) == expected
    assert backend.incidents() == []


def test_the_learner_waits_for_what_is_in_flight_to_be_polled_or_dropped(backend):
    sampling = Sampling(temperature=1.0, top_p=1.0, limit=20)
    backend.engine.submit(Request(draw=0, prompt=(30,), samples=8, seed=0, sampling=sampling))
    with pytest.raises(RuntimeError, match="in flight"):
        backend.learner.snapshot()
    backend.engine.cancel()
    backend.learner.snapshot()


def test_a_place_is_claimed_once(backend):
    assert ray.cluster_resources()["CPU"] == 2
    assert len(actors("LearnerRank")) == len(actors("EngineActor")) == 2
