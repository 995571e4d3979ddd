"""An engine of two processes on real vLLM: the same weights, the same answers, and one life."""

import time

import pytest
import torch

from prorl.build import build_session
from prorl.cluster.settings import EngineSettings, engine_environment
from prorl.cluster.weights import collect
from prorl.config.recipe import RecipeError, load_recipe
from prorl.learn.model import load_model
from prorl.probe import SyncError, halves
from prorl.types import Request, Sampling
from support.cluster import CONTEXT, ENDS, actors, config_of, without_head, write_model
from support.learners import learner
from support.tiny import write_recipe

pytest.importorskip("vllm")
ray = pytest.importorskip("ray")
psutil = pytest.importorskip("psutil")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

PROBE = tuple(range(0, 264, 33))
DEADLINE = 120.0  # seconds; an engine of two processes starts in half a minute on a busy machine


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    folder = write_model(tmp_path_factory.mktemp("model"))
    one = learner(load_model(folder, dtype=torch.float32, device="cpu"), with_reference=False)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in one.policy.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return folder, one


def engine_actor():
    """An engine that can be made to hang; made in here, as Ray's processes cannot import this module."""
    from prorl.cluster import engine_actor as process

    def forever(_worker):
        time.sleep(3600)

    class EngineActor(process.EngineActor):
        def hang(self):
            """As in a collective that not everybody has come to."""
            self._engine._engine.collective_rpc(forever)

    return EngineActor


@pytest.fixture(scope="module")
def engine(policy):
    from prorl.cluster.engine import RayEngine

    settings = EngineSettings(
        config=config_of(policy[0]),
        eos_ids=tuple(ENDS),
        context=CONTEXT,
        max_rows=64,
        cache_bytes=64 << 20,
        tensor_parallel=2,
    )
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    environment = {"env_vars": engine_environment(1, "cpu")}

    def start(_index):
        return ray.remote(engine_actor()).options(num_cpus=2, runtime_env=environment).remote(settings)

    try:
        yield RayEngine(start, 1, settings, deadline=DEADLINE)
    finally:
        ray.shutdown()


def published(one, version, *, weights=None):
    from prorl.cluster.weights import Published

    prompt, tokens = halves(PROBE)
    copy = ray.put(weights or collect(one.policy, version, torch.float32))
    return Published(
        version=version,
        copy=lambda: copy,
        send=lambda receivers: None,
        prompt=prompt,
        tokens=tokens,
        logps=one.score(prompt, tokens),
    )


def change(one):
    with torch.no_grad():
        for weight in one.policy.parameters():
            weight *= 1.05


def ask(engine, limit=12):
    sampling = Sampling(temperature=0.8, top_p=1.0, limit=limit)
    engine.submit(Request(draw=0, prompt=(5, 6, 7), samples=4, seed=11, sampling=sampling))
    found = {}
    while done := engine.poll():
        found |= {completion.sample: completion for completion in done}
    return found


def family(actor):
    """An engine's own process and its workers."""
    below = actor.children(recursive=True)
    workers = [process for process in below if "Worker_TP" in " ".join(process.cmdline())]
    assert len(workers) == 2
    return [actor, *below], workers


def assert_gone(processes, *, within=20.0):
    end = time.monotonic() + within
    while alive := [process for process in processes if running(process)]:
        assert time.monotonic() < end, alive
        time.sleep(0.1)


def running(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_heads_that_no_recipe_told_of_are_counted_before_an_engine_starts(policy, tmp_path):
    cluster = {"tensor_parallel": 3, "cache_gib": 0.0625}
    recipe = write_recipe(tmp_path, policy[0], backend="ray", cluster=cluster)
    with pytest.raises(
        RecipeError, match=r"tensor_parallel \(3\) does not divide the model's 2 attention heads"
    ):
        build_session(load_recipe(str(recipe)), policy[0], with_reference=False)
    assert not ray.is_initialized()


def test_two_processes_serve_the_learners_weights(engine, policy):
    _, one = policy
    engine.publish(published(one, 0))  # which proves it to 1e-4
    change(one)
    engine.publish(published(one, 1))
    for completion in ask(engine).values():
        with torch.no_grad():
            logits = one.policy(torch.tensor([[5, 6, 7, *completion.tokens]])).logits[0, 2:-1]
        table = (logits / 0.8).log_softmax(-1)
        expected = table.gather(1, torch.tensor(completion.tokens)[:, None])[:, 0].tolist()
        assert completion.logps == pytest.approx(expected, abs=1e-4)


def test_a_stale_head_is_caught_in_any_of_them(engine, policy):
    _, one = policy
    change(one)
    with pytest.raises(SyncError):
        engine.publish(published(one, 2, weights=without_head(collect(one.policy, 2, torch.float32))))
    (incident,) = engine.incidents()  # the next one in its place was given the same
    assert "has failed and is replaced" in incident


def test_a_worker_that_is_killed_is_an_engine_that_died(engine, policy):
    _, one = policy
    engine.publish(published(one, 3))
    expected = ask(engine)
    everybody, workers = family(actors("EngineActor")[-1])
    workers[1].kill()
    begun = time.monotonic()
    assert {sample: completion.tokens for sample, completion in ask(engine).items()} == {
        sample: completion.tokens for sample, completion in expected.items()
    }
    assert time.monotonic() - begun < DEADLINE
    (incident,) = engine.incidents()
    assert "has died and is replaced" in incident
    assert_gone(everybody)


def test_workers_that_hang_go_with_their_engine(engine, policy):
    engine.publish(published(policy[1], 4))
    everybody, _ = family(actors("EngineActor")[-1])
    (slot,) = engine._slots
    hanging = slot.actor.hang.remote()
    assert ray.wait([hanging], timeout=2.0) == ([], [hanging])
    everybody[0].kill()
    assert_gone(everybody)
