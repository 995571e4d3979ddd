"""What a run survives: its real processes are killed and stopped under it."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console as RichConsole
from safetensors.torch import load_file

from prorl.build import learner_settings
from prorl.cluster.weights import Published
from prorl.config.recipe import load_recipe
from prorl.control.events import Resumed, Stepped, Warned
from prorl.control.state import from_json
from prorl.envs.errors import UsageError
from prorl.envs.files import decode_json
from prorl.lab.watch.console import Console
from prorl.local.backend import SyncError
from prorl.run.journal import read_journal
from prorl.types import Completion
from support.cluster import actors, ask, engine_settings, local_ray, ray_nodes
from support.processes import eventually
from support.runs import events, finished, of_kind
from support.tiny import CONTEXT, write_recipe

pytest.importorskip("vllm")
ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]

FAULT = """CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."""
CLUSTER = {"learners": 2, "engines": 1, "cache_gib": 0.0625}
PATIENCE = 900.0  # seconds for what ends sooner, except on a very busy machine


class Saboteur(Console):
    """Sends a signal to the newest engine as soon as something has happened: kind of event and step → signal.

    And deletes the model that the run began with, as a run deletes the checkpoints that it was taken up from.
    """

    def __init__(self, plan, base):
        super().__init__(RichConsole(file=StringIO()))
        self._plan, self._base = plan, base
        self.hit = []

    @contextmanager
    def live(self, steps):
        def watch(event, state):
            shutil.rmtree(self._base, ignore_errors=True)
            if (event.kind, state.step) in self._plan:
                self.hit.append(actors("EngineActor")[-1])
                self.hit[-1].send_signal(self._plan[event.kind, state.step])

        yield watch


@pytest.fixture(scope="module")
def deadline():
    """Seconds in which an engine starts for sure on a machine as busy as this one: most of it are imports."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import vllm.entrypoints.llm"], check=True)
    return float(round(4 * (time.monotonic() - begun)))


def test_engines_that_die_or_hang_are_replaced_and_journalled(model, tmp_path, deadline):
    settings = CLUSTER | {"engines": 2, "learners": 1, "engine_deadline": deadline}
    base = shutil.copytree(model, tmp_path / "base")
    recipe = write_recipe(tmp_path, base, backend="ray", cluster=settings, steps=4)
    saboteur = Saboteur(
        {("stepped", 1): signal.SIGKILL, ("stepped", 3): signal.SIGSTOP, ("stopped", 4): signal.SIGKILL}, base
    )
    run = finished(recipe, tmp_path / "run", saboteur)
    steps = of_kind(run, Stepped)
    assert [step.step for step in steps] == [1, 2, 3, 4]
    assert all(step.update.mismatch < 1e-4 for step in steps)
    killed, stopped = of_kind(run, Warned)
    assert killed.step == 2
    assert "has died and is replaced" in killed.text
    assert stopped.step == 4
    assert f"was silent for {deadline:.0f} s and is replaced" in stopped.text
    assert deadline <= steps[3].seconds["generate"] < 3 * deadline
    (measuring,) = read_journal(run / "evals" / "measurement" / "incidents.jsonl")
    assert measuring["model"] == "step_000004"
    assert "has died and is replaced" in measuring["text"]
    assert len(saboteur.hit) == 3
    assert not any(process.is_running() for process in saboteur.hit)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (None, r"engine 0 was silent for 3 s, as it started anew.*raise cluster.engine_deadline"),
        (FAULT, r"engine 0 has failed.*: RuntimeError: CUDA error: an illegal memory access"),
    ],
)
def test_engines_that_never_answer_or_only_fail_are_given_up(fault, said):
    from prorl.cluster.cluster import MOST_RESTARTS, LostError

    class Useless(played()):
        """Never comes to answer, or fails and lives."""

        def install(self, weights):
            if fault is not None:
                raise RuntimeError(fault)
            signal.pause()

    deadline = 3.0 if fault is None else 120.0
    with one_engine(lambda number: ray.remote(Useless).remote(), engine_deadline=deadline) as (
        engine,
        started,
    ):
        with pytest.raises(LostError, match=said):
            publish(engine)
        incidents = engine.incidents()
        assert len(incidents) == len(started) - 1 == (MOST_RESTARTS if fault else 1)
        assert all(("illegal memory access" if fault else "was silent") in incident for incident in incidents)


def test_an_engine_that_shows_progress_is_waited_for():
    class Slow(played()):
        """Takes longer than its deadline for a response, and says so."""

        polls = 0

        def poll(self):
            time.sleep(2.0)
            self.polls += 1
            return super().poll() if self.polls > 3 else []

    with one_engine(lambda number: ray.remote(Slow).remote(), engine_deadline=6.0) as (engine, _):
        publish(engine)
        engine.submit(ask(samples=1))
        assert [one.draw for one in engine.poll()] == [0]
        assert engine.incidents() == []


def test_engines_decode_on_while_a_lost_one_starts_again():
    class Working(played()):
        """Takes so long to start, and may die at its second poll."""

        def __init__(self, seconds, dies):
            time.sleep(seconds)
            super().__init__(0.2)
            self._dies, self._idle, self._left = dies, [], None

        def idle(self):
            return self._idle

        def poll(self):
            self._idle += [] if self._left is None else [time.monotonic() - self._left]
            if self._dies and len(self._idle) == 1:
                os._exit(1)
            done = super().poll()
            self._left = time.monotonic()
            return done

    seconds = 9.0  # of a start, several times what the other's work takes

    def start(number):
        return ray.remote(Working).remote(seconds if number > 1 else 0.0, number == 0)

    with one_engine(start, engines=2) as (engine, started):
        publish(engine)
        for draw in range(2):
            engine.submit(replace(ask(samples=20), draw=draw))
        begin, ends = time.monotonic(), {0: [], 1: []}
        while done := engine.poll():
            for one in done:
                ends[one.draw].append(time.monotonic() - begin)
        assert sorted(map(len, ends.values())) == [20, 20]
        assert max(ray.get(started[1].call.remote("idle"))) < 2.0
        assert ends[1][-1] < seconds < ends[0][-1]
        (incident,) = engine.incidents()
        assert "engine 0 has died and is replaced" in incident
        for draw in range(2):
            engine.submit(replace(ask(samples=3), draw=draw))
        engine.poll()
        ray.kill(started[1])
        engine.cancel()  # nothing of what was asked before comes later
        engine.submit(replace(ask(samples=3), draw=7))
        answers = []
        while done := engine.poll():
            answers += done
        assert sorted((one.draw, one.sample) for one in answers) == [(7, 0), (7, 1), (7, 2)]


def test_an_engine_that_is_lost_again_while_it_is_given_more_is_replaced_once_more():
    class Mortal(played()):
        """The first dies when it is asked to decode, what takes its place when it is given weights."""

        def __init__(self, number):
            super().__init__()
            self._number = number

        def install(self, weights):
            if self._number == 2:
                time.sleep(3.0)
                os._exit(1)

        def poll(self):
            return super().poll() if self._number else os._exit(1)

    with one_engine(lambda number: ray.remote(Mortal).remote(number), engines=2) as (engine, started):
        publish(engine)
        engine.submit(ask(0, samples=1))
        engine.submit(ask(1, samples=20))
        answered = []
        while engine.incidents() == []:
            answered += engine.poll()
        engine.submit(ask(2, samples=1))  # for the first, which owes less
        while done := engine.poll():
            answered += done
        assert len({(one.draw, one.sample) for one in answered}) == len(answered) == 22
        assert len(started) == 4


def test_an_engine_with_other_weights_is_replaced_and_the_second_in_its_place_ends_the_run():
    class Wrong(played()):
        """Is wrong about the probe by so many nats."""

        def __init__(self, nats):
            super().__init__()
            self._nats = nats

        def score(self, prompt, tokens):
            return [self._nats]

    off = [1.0, 0.0, 2.0, 0.0, 3.0, 4.0]
    with one_engine(lambda number: ray.remote(Wrong).remote(off[number])) as (engine, started):
        publish(engine)
        with pytest.raises(UsageError, match=r"lower sampling\.response_limit"):
            engine.submit(ask(limit=CONTEXT))
        (incident,) = engine.incidents()
        assert "engine 0 has failed and is replaced, 0 responses are asked again: after the sync" in incident
        assert "engine 0 and learner differ by 1 nats" in incident
        kill(started[-1])
        publish(engine)  # for the dead one comes one that is wrong, and for that one a good one
        dead, wrong = engine.incidents()
        assert "has died" in dead
        assert "differ by 2 nats" in wrong
        kill(started[-1])
        with pytest.raises(SyncError, match="engine 0 and learner differ by 4 nats"):
            publish(engine)
        assert len(started) == len(off)


def test_engines_that_share_a_queue_take_requests_as_they_have_rows():
    """So the slower of two is given less; a request of more samples than there are rows goes to one that has none."""

    def scribe(number):
        return ray.remote(played()).remote((0.5, 0.01)[number])

    sizes = [16, *[4] * 12]
    with one_engine(scribe, engines=2, shared_queue=True, max_rows=8) as (engine, _):
        publish(engine)
        for draw, samples in enumerate(sizes):
            engine.submit(ask(draw, samples=samples))
        served, answered = ({}, {}), 0
        while done := engine.poll():
            answered += len(done)
            for index, (slot, given) in enumerate(zip(engine._slots, served, strict=True)):
                given |= dict.fromkeys(slot.owed)
                assert len(slot.owed) <= (8 if index else 16)
        assert answered == sum(sizes)
        assert not engine._queue
        assert len(served[0]) == 16  # the first
        assert {draw for draw, _ in served[1]} == set(range(1, 13))
        for request in (ask(20, samples=8, limit=2), ask(21, limit=50), ask(22, limit=2)):
            engine.submit(request)
        engine.poll()  # the first owes fewer tokens, and has no rows
        assert {draw for draw, _ in engine._slots[1].owed} == {21, 22}


def played():
    """A class of engines that only say so; made in here, as Ray's processes cannot import this module."""

    class Played:
        """Ends one response a call, after so many seconds."""

        def __init__(self, seconds=0.0):
            self.seconds, self.owed = seconds, []

        def call(self, method, *arguments):
            return getattr(self, method)(*arguments)

        def install(self, weights):
            pass

        def score(self, prompt, tokens):
            return [0.0]

        def add(self, work):
            self.owed += work

        def cancel(self):
            self.owed = []
            return []

        def poll(self):
            time.sleep(self.seconds)
            (request, sample), *self.owed = self.owed
            told = {"tokens": (1,), "logps": (0.0,), "finish": "stop", "policy_version": 0}
            return [Completion(draw=request.draw, sample=sample, **told)]

    return Played


def kill(actor):
    """Ray says only later that it is dead."""
    ray.kill(actor)
    with suppress(ray.exceptions.RayActorError):
        while True:
            ray.get(actor.call.remote("install", None), timeout=60)


@contextmanager
def one_engine(make, *, engines=1, engine_deadline=120.0, **settings):
    """`RayEngine` over one actor or several, the n-th of which is made by `make(n)`; and which were started."""
    from prorl.cluster.engine import RayEngine

    started = []
    told = engine_settings(engines=engines, engine_deadline=engine_deadline, **settings)

    def start(index):
        started.append(make(len(started)))
        return started[-1]

    with local_ray(engines):
        yield RayEngine(start, told), started


def publish(engine):
    """Weights whose probe has a log-prob of zero."""
    probe = {"prompt": (1,), "tokens": (2,), "logps": (0.0,)}
    engine.publish(Published(version=0, copy=lambda: None, send=lambda *_: None, **probe))


@pytest.fixture(scope="module")
def recipe(model, deadline, tmp_path_factory):
    # so many seconds for a phase, or twice what it usually takes
    deadlines = dict.fromkeys(("learn", "save"), deadline) | dict.fromkeys(("sync", "between"), 2 * deadline)
    settings = {
        "steps": 4,
        "save": {"every": 1, "keep_last": 9},
        "deadlines": deadlines | {"factor": 2.0},
    }
    cluster = CLUSTER | {"engine_deadline": 0.9 * deadline}
    return write_recipe(tmp_path_factory.mktemp("recipe"), model, backend="ray", cluster=cluster, **settings)


@pytest.fixture(scope="module")
def undisturbed(recipe, tmp_path_factory):
    return finished(recipe, tmp_path_factory.mktemp("undisturbed") / "run")


@contextmanager
def training(recipe, run, *options):
    """`prorl train` under its supervisor, once its first two steps are done."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-m", "prorl", "train", str(recipe), "--run", str(run), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        try:
            if not any(line.startswith("step 2/") for line in process.stdout):
                raise AssertionError(process.stderr.read())
            yield process
        finally:
            process.kill()


def end(run):
    """Driver state and weights of the last checkpoint."""
    last = max((run / "checkpoints").iterdir())
    state = from_json(decode_json((last / "state.json").read_bytes()))
    return state, load_file(last / "model.safetensors")


@pytest.mark.parametrize(
    ("kind", "said", "journalled"),
    [
        (signal.SIGKILL, "the trainer ended with status 70 at step", "class_name: LearnerRank"),
        (
            signal.SIGSTOP,
            r"no sign of life for \d+ s in phase",
            "taken up again, as the trainer hung at step",
        ),
    ],
)
def test_a_run_that_loses_a_learner_rank_ends_as_if_it_had_not(
    undisturbed, recipe, tmp_path, kind, said, journalled
):
    run = tmp_path / "run"
    with training(recipe, run) as process:
        victim = actors("LearnerRank", process.pid)[-1]
        victim.send_signal(kind)
        _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    assert re.search(said, (run / "supervisor.log").read_text())
    assert not victim.is_running()
    (resumed,) = of_kind(run, Resumed)
    assert 1 <= resumed.step <= 3
    assert journalled in " ".join(event.text for event in of_kind(run, Warned))
    assert [step.step for step in of_kind(run, Stepped)] == [1, 2, 3, 4]
    (state, weights), (expected, others) = end(run), end(undisturbed)
    assert state == expected
    torch.testing.assert_close(weights, others, rtol=1e-4, atol=1e-6)


@pytest.fixture
def nodes():
    """Two Ray nodes with two places each: three ranks and an engine need both."""
    with ray_nodes({"num_cpus": 2}, {"num_cpus": 2}) as cluster:
        yield cluster


def test_ranks_on_two_nodes(model, nodes, tmp_path):
    settings = CLUSTER | {"address": nodes.address, "learners": 3}
    recipe = write_recipe(tmp_path, model, backend="ray", cluster=settings, validation={"every": 0})
    run = finished(recipe, tmp_path / "run")
    kinds = [event.kind for event in events(run)]
    assert kinds.count("stepped") == 3
    assert "warned" not in kinds


def test_each_node_with_ranks_gets_its_own_copy_of_the_weights(model, nodes, tmp_path):
    from prorl.cluster.cluster import Cluster
    from prorl.cluster.learner import LearnerRank, RayLearner

    settings = CLUSTER | {"address": nodes.address, "learners": 3}
    config = load_recipe(str(write_recipe(tmp_path, model, backend="ray", cluster=settings)))
    cluster = Cluster(config)
    try:
        ranks = [cluster.start("rank", rank, LearnerRank, rank, 3) for rank in range(3)]
        learner = RayLearner(
            ranks, str(model), str(model), learner_settings(config), with_reference=False, device="cpu"
        )
        copies = learner.publish(0)
        held = ray.experimental.get_object_locations(list(copies.by_node.values()))
        assert {ref: place["node_ids"] for ref, place in held.items()} == {
            ref: [node] for node, ref in copies.by_node.items()
        }
        assert len(held) == 2
        assert len({ray.get(ref).checksum for ref in held}) == 1
        assert copies.nearest("a node without ranks") in held
    finally:
        cluster.close()


def test_a_run_that_loses_a_node_goes_on_where_there_is_room_again(model, nodes, tmp_path):
    settings = {"steps": 4, "save": {"every": 1}, "cluster": CLUSTER | {"learners": 3}}
    recipe = write_recipe(tmp_path, model, backend="ray", **settings)
    run = tmp_path / "run"
    with training(recipe, run, "--address", nodes.address) as process:
        nodes.remove_node(nodes.worker_nodes.copy().pop(), allow_graceful=False)
        time.sleep(10)  # the trainer is gone, and its successor finds no room
        nodes.add_node(num_cpus=2)
        _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, stderr
    assert len(of_kind(run, Resumed)) == 1
    assert [step.step for step in of_kind(run, Stepped)] == [1, 2, 3, 4]


def test_a_run_whose_cluster_loses_its_head_goes_on_once_there_is_one_again(model, tmp_path, monkeypatch):
    """Ray ends the trainer, with the status of one that fails with a sentence, and its successor finds no cluster."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")
    head = {"num_cpus": 2, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    settings = {"steps": 9999, "save": {"every": 1}, "cluster": CLUSTER | {"learners": 1}}
    recipe = write_recipe(tmp_path, model, backend="ray", **settings)
    run, port = tmp_path / "run", int(cluster.address.rpartition(":")[2])
    log = run / "supervisor.log"
    with training(recipe, run, "--address", cluster.address) as process:
        threading.Thread(target=process.stdout.read, daemon=True).start()
        cluster.head_node.kill_gcs_server()
        eventually(lambda: log.exists() and "status 1\n" in log.read_text(), seconds=PATIENCE)
        cluster.shutdown()
        cluster = Cluster(initialize_head=True, head_node_args=head | {"gcs_server_port": port})
        eventually(lambda: of_kind(run, Resumed), seconds=PATIENCE)
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 143
    cluster.shutdown()
    assert re.search(r"ended with status 1 at step \d+ in phase", log.read_text())
