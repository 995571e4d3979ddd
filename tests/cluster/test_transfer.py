"""Weights sent straight from ranks to engines: vLLM's own transports, over TCP and shared memory in place of GPUs."""

import os
import sys
from itertools import groupby

import pytest
import torch

from prorl.cluster.settings import DIRECT_SINCE
from prorl.cluster.survey import installed
from support.cluster import PROBE, RUNNER, actors, answers, ask, cluster_recipe, config_of, engine_settings
from support.learners import settings_of

pytest.importorskip("vllm")
ray = pytest.importorskip("ray")
if installed()["vllm"] < DIRECT_SINCE:
    pytest.skip("this vLLM has no trainer's side of transfers", allow_module_level=True)
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

DEADLINE = 300.0  # seconds; never reached, as a death is seen at once
MEETING = ["shutdown_weight_transfer_engine", "init_weight_transfer_engine{}"]
TRANSFER = ["start_weight_update", "receive_weights", "finish_weight_update"]
over_nccl = pytest.mark.parametrize("bench", ["nccl"], indirect=True)  # what does not depend on the way


class Bench:
    """Two real ranks and two real engines behind one backend; what the engines were told; and what fails.

    Over IPC they share their GPUs, so that engines sleep whenever the learner computes.
    """

    def __init__(self, model, folder, way):
        from prorl.cluster.backend import RayBackend
        from prorl.cluster.cluster import Cluster
        from prorl.cluster.engine import RayEngine
        from prorl.cluster.learner import RayLearner
        from prorl.cluster.settings import GpuSharing, engine_environment
        from support.wire import WiredEngine, WiredRank

        self.way, self._folder = way, folder
        self._cluster = Cluster(cluster_recipe(learners=2, engines=2))
        path = os.pathsep.join(sys.path)  # on which these find the package and tests/support
        environment = engine_environment(1, "cpu") | {"PYTHONPATH": path}
        process = {"num_cpus": 0, "runtime_env": {"env_vars": environment}}
        self.ranks = [
            ray.remote(WiredRank).options(**process, max_concurrency=2).remote(rank, 2, str(folder))
            for rank in range(2)
        ]
        path, sharing = str(model), GpuSharing() if way == "ipc" else None
        learner = RayLearner(
            self.ranks, path, path, settings_of(), with_reference=False, device="cpu", sharing=sharing
        )
        settings = engine_settings(
            config=config_of(model),
            context=learner.facts.context,
            transfer=way,
            engines=2,
            engine_deadline=DEADLINE,
        )

        def start(index):
            return ray.remote(WiredEngine).options(**process).remote(settings, str(folder), index)

        engine = RayEngine(start, settings, sharing=sharing)
        self.backend = RayBackend(self._cluster, engine, Judge(), learner, probe=PROBE, keep_copy=False)

    def learn(self, factor=1.05):
        ray.get([rank.change.remote(factor) for rank in self.ranks])

    def told(self, index):
        """The steps that an engine was asked for since this was last asked; of pieces in a row the first."""
        steps = self._folder / f"steps_{index}"
        lines = steps.read_text().splitlines() if steps.exists() else []
        steps.write_text("")
        self.pieces = lines.count("receive_weights")
        return [step for step, _ in groupby(lines)]

    def runner(self, index):
        """Which of vLLM's model runners an engine has."""
        return (self._folder / f"runner_{index}").read_text()

    def order(self, index, step, kind):
        """What an engine does when it is next asked for a step."""
        (self._folder / f"{step}_{index}").write_text(kind)


class Judge:
    """There is nothing to judge."""

    def incidents(self):
        return []

    def close(self):
        pass


@pytest.fixture(scope="module", params=["nccl", "ipc"])
def bench(request, model, tmp_path_factory):
    bench = Bench(model, tmp_path_factory.mktemp("bench"), request.param)
    yield bench
    bench.backend.close()


def met(bench, index):
    """An engine's part in a meeting; rank 0 is the learner's. Over IPC there are no ranks."""
    return [step.format(1 + index if bench.way == "nccl" else "") for step in MEETING]


def sampled(bench, *, after_the_first=lambda: None):
    requests = [ask(draw, (30 + draw, 40, 50), seed=draw, limit=60) for draw in range(4)]
    return answers(bench.backend.engine, requests, after_the_first=after_the_first)


def test_all_engines_meet_the_ranks_once_and_take_every_version(bench):
    for version in range(3):
        bench.backend.sync(version)  # which proves what each of them holds
        for index in range(2):
            assert bench.told(index) == met(bench, index) * (version == 0) + TRANSFER
            assert (bench.pieces > 1) == (bench.way == "ipc")  # over NCCL they are of one call
        bench.learn()
    assert {bench.runner(index) for index in range(2)} == {RUNNER}
    assert {completion.policy_version for completion in sampled(bench).values()} == {2}
    assert bench.backend.incidents() == []


@over_nccl
def test_every_gpu_of_every_engine_has_a_rank_of_its_own(bench):
    from prorl.cluster.weights import Sender

    class Wide:
        """An engine of two GPUs that remembers what it was told."""

        def __init__(self):
            self._told = []

        def call(self, method, *told):
            assert method == "transfer"
            self._told.append(told)

        def told(self):
            return self._told

    engines = [ray.remote(Wide).options(num_cpus=0).remote() for _ in range(2)]
    settings = engine_settings(tensor_parallel=2, transfer="nccl", engine_deadline=DEADLINE)
    of = {"rank": 1, "address": ("127.0.0.1", 0)}  # rank 0 would form a group
    sender = Sender(torch.nn.Linear(2, 2), torch.float32, "cpu", engines=engines, settings=settings, **of)
    sender.init_weight_transfer_engine({"rank_offset": 1})
    assert sender.failure is None
    shutdown, meeting = "shutdown_weight_transfer_engine", "init_weight_transfer_engine"
    assert ray.get([engine.told.remote() for engine in engines]) == [
        [(shutdown,), (meeting, {"rank_offset": offset})] for offset in (1, 3)
    ]


def assert_met(bench, version):
    """The next sync begins with a meeting, and is undisturbed."""
    bench.learn()
    bench.told(0), bench.told(1)
    bench.backend.sync(version)
    assert [bench.told(index) for index in range(2)] == [met(bench, 0) + TRANSFER, met(bench, 1) + TRANSFER]
    assert bench.backend.incidents() == []


def incident_of(bench, index, step, kind):
    """What is told of a sync in which an engine does so at a step; afterwards all sample."""
    bench.learn()
    bench.order(index, step, kind)
    bench.backend.sync(7)
    (incident,) = bench.backend.incidents()
    assert len(sampled(bench)) == 16
    return incident


def test_an_engine_lost_while_it_generates_is_given_the_same_weights_and_met_at_the_next_sync(bench):
    bench.learn()
    bench.backend.sync(5)
    expected = sampled(bench)
    found = sampled(bench, after_the_first=lambda: actors("WiredEngine")[-1].kill())
    assert found.keys() == expected.keys()
    assert sum(found[key].tokens == expected[key].tokens for key in expected) >= len(expected) - 1
    (incident,) = bench.backend.incidents()
    assert "has died and is replaced" in incident
    assert_met(bench, 6)


@pytest.mark.parametrize("step", TRANSFER)
def test_an_engine_that_dies_during_a_transfer_costs_a_restart_of_all(bench, step):
    """The ranks come out of it together: they learn on, and meet the new engines."""
    if bench.way == "ipc" and step != TRANSFER[1]:
        pytest.skip("depends on the way in one step")
    incident = incident_of(bench, 0, step, "die")
    assert f"policy version 7 did not reach the engines over {bench.way} ({step}: " in incident
    assert_met(bench, 8)


@over_nccl
def test_a_way_that_fails_again_and_again_is_left(bench):
    assert "the next sync tries again" in incident_of(bench, 1, "start_weight_update", "die")
    assert "from now on" in incident_of(bench, 1, "start_weight_update", "die")
    bench.told(0), bench.told(1)
    bench.backend.sync(9)
    assert [bench.told(index) for index in range(2)] == [[], []]
    assert len(sampled(bench)) == 16
    bench.backend.engine._failures = 0  # as in the next process


@pytest.mark.parametrize(
    ("order", "how_many"), [("flip", "1 of "), ("skip", "")], ids=["a flipped bit", "nothing received"]
)
def test_weights_that_did_not_arrive_as_they_were_sent_are_sent_again(bench, order, how_many):
    """To new engines, by host memory; in bfloat16 a probe would not show a flipped bit."""
    incident = incident_of(bench, 1, "receive_weights", order)
    assert f"did not reach the engines over {bench.way} (receive_weights: " + how_many in incident
    assert "are not at engine 1 as they were sent" in incident
    assert_met(bench, 8)


@over_nccl
def test_weights_that_the_probe_disproves_are_sent_again(bench):
    """A transfer is at its end once all engines have been proven."""
    incident = incident_of(bench, 1, "score", "lie")
    told = "(after the sync to policy version 7 engine 1 and learner differ"
    assert f"did not reach the engines over {bench.way} {told}" in incident


@over_nccl
def test_an_engine_that_put_nothing_in_place_is_replaced(bench):
    incident = incident_of(bench, 1, "finish_weight_update", "skip")
    assert "engine 1 has failed and is replaced" in incident
