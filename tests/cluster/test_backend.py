"""Whole runs on real Ray: two learner ranks, vLLM engines, and the same loop."""

import re
import shutil
import threading
import time
import weakref
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from prorl.build import build_session
from prorl.config.recipe import load_recipe
from prorl.control.events import Resumed, Stepped, Warned
from prorl.control.state import fold, from_json
from prorl.envs.extract import respond
from prorl.envs.files import decode_json
from prorl.envs.registry import make_task
from prorl.rollout.pipeline import judge_all
from prorl.session import resume_run
from prorl.types import PromptActions
from support.cluster import actors, answers, ask, local_ray
from support.commands import done
from support.defaults import some_hparams
from support.learners import action_of, batch, settings_of, updated
from support.runs import events, finished, of_kind, quiet
from support.tiny import write_recipe

pytest.importorskip("vllm")
RayActorError = pytest.importorskip("ray.exceptions").RayActorError
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

CLUSTER = {"learners": 2, "engines": 1, "judges": 1, "cache_gib": 0.0625}


@pytest.fixture(scope="module")
def trained(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    recipe = write_recipe(folder, model, backend="ray", cluster=CLUSTER, save={"every": 1, "keep_last": 9})
    return finished(recipe, folder / "run")


def test_a_run_trains_examines_resets_and_saves(trained):
    kinds = [event.kind for event in events(trained)]
    assert kinds.count("stepped") == 3
    assert {"validated", "reference_reset", "stopped"} <= set(kinds)
    saved = trained / "checkpoints" / "step_000003"
    assert from_json(decode_json((saved / "state.json").read_bytes())) == fold(events(trained))
    assert (saved / "optimizer" / ".metadata").is_file()


def test_engine_and_learner_agree_while_training(trained):
    steps = of_kind(trained, Stepped)
    assert all(step.update.updates == 1 and step.update.skipped == 0 for step in steps)
    assert all(step.update.mismatch < 1e-4 for step in steps)
    assert steps[1].update.kl > 0  # the third begins with a new reference


def cut(run, target, step):
    """A copy of a run as a kill after the checkpoint of `step` would have left it."""
    shutil.copytree(run, target)
    for path in (target / "checkpoints").glob("step_*"):
        if int(path.name.removeprefix("step_")) > step:
            shutil.rmtree(path)
    return target


@pytest.mark.parametrize(
    "change",
    [["backend=local"], ["cluster.learners=1"], ["cluster.engines=2"]],
    ids=["local", "one rank", "two engines"],
)
def test_a_run_goes_on_elsewhere(trained, tmp_path, change):
    run = cut(trained, tmp_path / "run", 2)
    assert resume_run(run, quiet(), overrides=change).stopped == "done"
    assert [event.step for event in of_kind(run, Resumed)] == [2]
    assert any("backend was ray with 2 learners" in event.text for event in of_kind(run, Warned))
    mine, theirs = (of_kind(folder, Stepped)[-1].update for folder in (run, trained))
    assert mine.loss == pytest.approx(theirs.loss, abs=1e-3)
    assert mine.entropy == pytest.approx(theirs.entropy, rel=1e-3)


def test_a_run_that_began_on_one_process_goes_on_over_ranks(trained, tmp_path):
    run = cut(trained, tmp_path / "run", 1)
    assert resume_run(run, quiet(), overrides=["backend=local"]).stopped == "done"
    again = cut(run, tmp_path / "again", 2)
    assert (again / "checkpoints" / "step_000002" / "optimizer.pt").is_file()
    assert resume_run(again, quiet(), overrides=["backend=ray"]).stopped == "done"
    mine, theirs = (of_kind(folder, Stepped)[-1].update for folder in (again, trained))
    assert mine.loss == pytest.approx(theirs.loss, abs=1e-3)


def test_what_ranks_trained_is_exported_for_transformers(trained, tmp_path):
    done("export", trained, tmp_path / "model")
    tokens = torch.arange(40, 60)[None]
    with torch.inference_mode():
        exported, saved = (
            AutoModelForCausalLM.from_pretrained(folder)(tokens).logits
            for folder in (tmp_path / "model", trained / "checkpoints" / "step_000003")
        )
    assert torch.equal(exported, saved)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "model")) > 0


OLDER = {
    "backend": "ray",
    "cluster": CLUSTER,
    "mismatch": {"kind": "tis"},
    "learner": {"old_logprobs": "learner"},
    "validation": {"every": 0},
    "reset": {"every": 0},
    "save": {"every": 2},
}
SMALL = {"prompts_per_step": 3, "samples_per_prompt": 4, "response_limit": 16}


def test_a_run_samples_ahead(model, tmp_path):
    recipe = write_recipe(tmp_path, model, **OLDER, sampling=SMALL | {"max_staleness": 1})
    steps = of_kind(finished(recipe, tmp_path / "run"), Stepped)
    assert [step.staleness for step in steps] == [0, 1, 0]
    assert [step.update.mismatch > 1e-3 for step in steps] == [False, True, False]


def test_a_run_goes_on_with_what_it_has_in_hand(model, tmp_path):
    recipe = write_recipe(tmp_path, model, **OLDER, sampling=SMALL | {"partial": 2.0})
    steps = of_kind(finished(recipe, tmp_path / "run"), Stepped)
    assert max(step.staleness for step in steps) > 0
    assert (
        sum(step.rollout_stats.draws for step in steps) + steps[-1].rollout_stats.in_hand == steps[-1].cursor
    )


class Copyist:
    """Learner and engine in one; refuses to copy weights while there are older copies."""

    send, held = None, staticmethod(lambda: None)

    def score(self, prompt, tokens):
        return []

    def publish(self, published):
        if not isinstance(published, int):
            self.published = published
            return published.copy()
        assert self.held() is None
        copies = Copyist()
        self.held = weakref.ref(copies)
        return copies


def test_copies_of_the_weights_are_let_go_before_the_next_are_made():
    from prorl.cluster.backend import RayBackend

    both = Copyist()
    backend = RayBackend(None, both, None, both, probe=range(8))
    for version in range(3):
        backend.sync(version)
        assert both.published.version == version
        assert both.held() is not None


def test_one_rank_rounds_as_two_do(model):
    """In bfloat16 as well: what ranks compute must not depend on how many they are."""
    import ray

    from prorl.cluster.learner import LearnerRank, RayLearner

    with local_ray(3):
        scores, losses = [], []
        for ranks in (1, 2):
            started = [ray.remote(LearnerRank).remote(rank, ranks) for rank in range(ranks)]
            settings = settings_of(dtype="bfloat16")
            one = RayLearner(started, str(model), str(model), settings, with_reference=False, device="cpu")
            scores.append(one.score((5, 6, 7), (8, 9, 10, 11)))
            stats = updated(one, batch(), some_hparams(kl_coef=0.0))
            losses.append((stats.loss, stats.grad_norm))
        assert scores[0] == scores[1]
        assert losses[0] == pytest.approx(losses[1], rel=2e-3)


@pytest.fixture(scope="module")
def backend(model, tmp_path_factory):
    """Of the tests from here on, as it takes long to start. The last of them ends it."""
    recipe = write_recipe(
        tmp_path_factory.mktemp("backend"),
        model,
        backend="ray",
        cluster=CLUSTER | {"engines": 2, "max_rows": 8},
    )
    config = load_recipe(str(recipe))
    parts = build_session(config, model, with_reference=False)
    parts.backend.sync(0)
    yield parts.backend
    parts.backend.close()


def kill_one(kind):
    _, second = actors(kind)
    second.kill()


def test_an_engine_and_a_judge_that_are_killed_are_replaced_and_asked_again(backend, caplog):
    requests = [ask(draw, (30 + draw, 40, 50), samples=6, seed=draw, limit=60) for draw in range(8)]
    expected = answers(backend.engine, requests)
    found = answers(backend.engine, requests, after_the_first=partial(kill_one, "EngineActor"))
    assert re.search(r"engine \d has died and is replaced, \d+ responses are asked again", caplog.text)
    assert backend.incidents() == [record.message for record in caplog.records]
    assert backend.incidents() == []
    assert len(expected) == 48
    assert found.keys() == expected.keys()
    # The same random numbers; only what decodes together is another, which rounds differently.
    same = sum(found[key].tokens == expected[key].tokens for key in expected)
    assert same >= 46
    assert {completion.policy_version for completion in found.values()} == {0}
    backend.sync(1)
    assert backend.engine.version == 1
    (victim,) = actors("JudgeActor")
    victim.kill()
    problem = make_task("arithmetic").problem(0, "train")
    text = respond("", problem.solution.answer)
    assert judge_all(backend.judge, {7: (problem, text)})[7].score == 1
    (incident,) = backend.incidents()
    assert re.fullmatch(r"judge 0 has died and is replaced, 1 responses are judged again: .+", incident)


@pytest.mark.parametrize("lost", [False, True])
def test_engines_stop_when_told_and_go_on_from_there(backend, lost):
    """What an engine that dies had written is gone; nothing else is.

    There are more responses than fit into the second in which an engine may go on by itself.
    """
    requests = [ask(draw, (30 + draw, 40, 50), samples=30, seed=draw, limit=60) for draw in range(8)]
    for request in requests:
        backend.engine.submit(request)
    ended = backend.engine.poll()
    if lost:
        kill_one("EngineActor")
    cut = backend.engine.cancel()
    assert backend.engine.poll() == []
    names = [(one.draw, one.sample) for one in (*ended, *cut)]
    assert len(set(names)) == len(names) <= 240
    assert any(one.finish == "length" and len(one.tokens) < 60 for one in cut)
    assert bool(backend.incidents()) == lost
    backend.sync(1)  # nothing is in flight
    more = [
        replace(
            requests[one.draw],
            samples=1,
            first=one.sample,
            begun=tuple(one.tokens),
            sampling=replace(requests[one.draw].sampling, limit=60 - len(one.tokens)),
        )
        for one in cut
        if one.finish == "length" and len(one.tokens) < 60
    ]
    assert answers(backend.engine, more).keys() == {(one.draw, one.first) for one in more}


def test_engines_sample_while_the_ranks_learn(backend):
    """The ranks are held still until all responses are there."""
    action = action_of((40, 50), -5.0)
    batch = (PromptActions(prompt=(30, 31), actions=(action, action)),)
    ranks = actors("LearnerRank")
    for rank in ranks:
        rank.suspend()
    try:
        learning = backend.learner.begin_update(batch, some_hparams(kl_coef=0.0, learning_rate=1e-2))
        sampled = answers(backend.engine, [ask(prompt=(30, 31), samples=4, limit=8)])
    finally:
        for rank in ranks:
            rank.resume()
    assert len(sampled) == 4
    assert learning().updates == 1
    backend.sync(1)


def test_an_update_shows_progress_unless_a_rank_hangs(backend, monkeypatch):
    monkeypatch.setattr("prorl.cluster.learner.LOOK", 0.05)
    action = action_of((40, 50), -5.0)
    groups = tuple(PromptActions(prompt=tuple(range(30, 90)), actions=(action, action)) for _ in range(2000))
    *_, last = actors("LearnerRank")
    beats = []

    def beat():
        beats.append(time.monotonic())
        if len(beats) == 2:
            last.suspend()
            threading.Timer(3.0, last.resume).start()

    hparams = some_hparams(kl_coef=0.0, learning_rate=0.0)
    assert backend.learner.begin_update(groups, hparams, beat)().updates == 1
    gaps = [later - earlier for earlier, later in pairwise(beats)]
    assert sorted(gap > 2.0 for gap in gaps)[-2:] == [False, True]


def test_a_learner_rank_that_is_killed_ends_the_run_at_once(backend):
    """The other rank waits for it in a collective; nobody waits for that one."""
    kill_one("LearnerRank")
    begun = time.monotonic()
    with pytest.raises(RayActorError):
        backend.learner.score((1, 2), (3, 4))
    assert time.monotonic() - begun < 60
