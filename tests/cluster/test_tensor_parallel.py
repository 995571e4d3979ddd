"""An engine of two processes on real vLLM: the same weights, the same answers, and they fail together."""

import time

import pytest
import torch

from prorl.build import build_session
from prorl.cluster.settings import engine_environment
from prorl.cluster.weights import Published, collect
from prorl.config.recipe import RecipeError, load_recipe
from prorl.local.backend import SyncError, halves
from support.cluster import (
    PROBE,
    actors,
    answers,
    ask,
    assert_log_probs,
    change,
    config_of,
    engine_settings,
    local_ray,
    noisy_learner,
    without_head,
)
from support.processes import eventually
from support.tiny import write_recipe

pytest.importorskip("vllm")
ray = pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

DEADLINE = 400.0  # seconds; never reached, as a death is seen at once


@pytest.fixture(scope="module")
def policy(model):
    return noisy_learner(model, 1)


def engine_actor():
    """An engine that can be made to hang; made in here, as Ray's processes cannot import this module."""
    from prorl.cluster import engine

    def forever(_worker):
        time.sleep(3600)

    class EngineActor(engine.EngineActor):
        def hang(self):
            """As in a collective that some ranks never enter."""
            self._engine._engine.collective_rpc(forever)

    return EngineActor


@pytest.fixture(scope="module")
def engine(model):
    from prorl.cluster.engine import RayEngine

    settings = engine_settings(config=config_of(model), tensor_parallel=2, engine_deadline=DEADLINE)
    environment = {"env_vars": engine_environment(1, "cpu")}

    def start(_index):
        return ray.remote(engine_actor()).options(num_cpus=2, runtime_env=environment).remote(settings)

    with local_ray(2):
        yield RayEngine(start, settings)


def published(one, version, *, weights=None):
    prompt, tokens = halves(PROBE)
    copy = ray.put(weights or collect(one.policy, version, torch.float32))
    return Published(
        version=version,
        copy=lambda: copy,
        send=lambda *_: None,
        prompt=prompt,
        tokens=tokens,
        logps=one.score(prompt, tokens),
    )


def sampled(engine):
    return answers(engine, [ask(temperature=0.8)])


def family(actor):
    """An engine's own process and its workers."""
    below = actor.children(recursive=True)
    workers = [process for process in below if "Worker_TP" in " ".join(process.cmdline())]
    assert len(workers) == 2
    return [actor, *below], workers


def gone(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_heads_that_the_recipe_does_not_say_are_counted_before_an_engine_starts(model, tmp_path):
    cluster = {"tensor_parallel": 3, "cache_gib": 0.0625}
    recipe = write_recipe(tmp_path, model, backend="ray", cluster=cluster)
    with pytest.raises(
        RecipeError, match=r"tensor_parallel \(3\) does not divide the model's 2 attention heads"
    ):
        build_session(load_recipe(str(recipe)), model, with_reference=False)
    assert not ray.is_initialized()


def test_two_processes_serve_the_learners_weights(engine, policy):
    engine.publish(published(policy, 0))  # which proves it to 1e-4
    change(policy)
    engine.publish(published(policy, 1))
    assert_log_probs(policy, ask(temperature=0.8), sampled(engine).values())


def test_a_stale_head_is_caught_in_any_of_them(engine, policy):
    change(policy)
    with pytest.raises(SyncError):
        engine.publish(published(policy, 2, weights=without_head(collect(policy.policy, 2, torch.float32))))
    (incident,) = engine.incidents()  # the next one in its place was given the same
    assert "has failed and is replaced" in incident


def test_a_worker_that_is_killed_is_an_engine_that_died(engine, policy):
    engine.publish(published(policy, 3))
    expected = {key: completion.tokens for key, completion in sampled(engine).items()}
    processes, workers = family(actors("EngineActor")[-1])
    workers[1].kill()
    begun = time.monotonic()
    assert {key: completion.tokens for key, completion in sampled(engine).items()} == expected
    assert time.monotonic() - begun < DEADLINE
    (incident,) = engine.incidents()
    assert "has died and is replaced" in incident
    eventually(lambda: all(map(gone, processes)))


def test_workers_that_hang_go_with_their_engine(engine, policy):
    engine.publish(published(policy, 4))
    processes, _ = family(actors("EngineActor")[-1])
    (slot,) = engine._slots
    hanging = slot.actor.hang.remote()
    assert ray.wait([hanging], timeout=2.0) == ([], [hanging])
    processes[0].kill()
    eventually(lambda: all(map(gone, processes)))
