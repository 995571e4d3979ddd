"""What is computed depends neither on the number of workers nor on their deaths, to the last bit."""

import os
import signal
import time
from contextlib import closing
from dataclasses import replace
from multiprocessing import forkserver

import pytest
import torch

from prorl.learn.learner import gradient
from prorl.local import children
from prorl.local import workers as workers_module
from prorl.local.backend import LocalBackend, SyncError
from prorl.local.engine import LocalEngine, WorkersEngine
from prorl.local.workers import SLOTS, SharedMemory, Workers, WorkersError
from prorl.types import Request, Sampling
from support.items import (
    begins,
    collects,
    counts,
    dies_after_its_first_answer,
    dies_once,
    echoes,
    fails,
    hangs,
    lingers,
    opens,
    waits,
)
from support.learners import HPARAMS, batch, bits_equal, learner, qwen2, weights
from support.processes import eventually

UPDATES = replace(HPARAMS, updates_per_step=2, learning_rate=1e-3)
SAMPLING = Sampling(temperature=1.0, top_p=1.0, limit=30)
REQUESTS = [
    Request(draw=draw, prompt=tuple(range(1, 4 + 5 * draw)), samples=3, seed=draw, sampling=SAMPLING)
    for draw in range(5)
]


def one_learner():
    return learner(qwen2(hidden_size=32), micro_batch_tokens=30)


def submit_all(engine, version=1):
    engine.publish(version)
    for request in REQUESTS:
        engine.submit(request)


def named(completions):
    found = {
        (done.draw, done.sample): (done.tokens.tobytes(), done.logps.tobytes(), done.policy_version)
        for done in completions
    }
    assert len(found) == len(completions)
    return found


def rest(engine):
    return [done for completions in iter(engine.poll, []) for done in completions]


def finished(engine, version=1):
    submit_all(engine, version)
    return named(rest(engine))


def train(one, engine, steps=2):
    """Texts, statistics and weights of some steps."""
    sampled, stats = [], []
    for step in range(steps):
        sampled.append(finished(engine, step + 1))
        stats.append(one.begin_update(batch(groups=6, seed=step), UPDATES)())
    return sampled, stats, weights(one.policy)


def with_workers(one, count):
    held = Workers(one.modules, count=count)
    one.runner = held
    return held, WorkersEngine(LocalEngine(one.policy, eos_ids=(3,), pad_id=0), held)


def give_up_after(seconds, monkeypatch):
    """A worker that is silent for so long, or for longer than its longest item took, is replaced."""
    for name, value in {"LEAST_SILENCE": seconds, "FACTOR": 1.0, "LOOK": 0.1}.items():
        monkeypatch.setattr(workers_module, name, value)


@pytest.fixture
def held():
    with closing(Workers([qwen2()], count=1)) as held:
        yield held


@pytest.fixture
def pair():
    """A learner, its two workers, and their engine."""
    one = one_learner()
    held, engine = with_workers(one, 2)
    with closing(held):
        yield one, held, engine


@pytest.fixture(scope="module")
def alone():
    """With one thread, as a worker has: bits depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    one = one_learner()
    yield train(one, LocalEngine(one.policy, eos_ids=(3,), pad_id=0))
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16])
def test_bits_do_not_depend_on_the_number_of_workers(alone, count):
    one = one_learner()
    held, engine = with_workers(one, count)
    with closing(held):
        sampled, stats, ends = train(one, engine)
        engine.publish(9)
        scored = []
        engine.prove((1, 2, 3), (4, 5, 6, 7), scored.extend)
        assert engine.poll() == []
        assert held.incidents() == []
    assert sampled == alone[0]
    assert stats == alone[1]
    assert bits_equal(ends, alone[2])
    assert scored == pytest.approx(one.score((1, 2, 3), (4, 5, 6, 7)), abs=1e-5)


def test_workers_that_serve_other_weights_give_no_response(pair):
    one, held, engine = pair
    backend = LocalBackend(engine, None, one, probe=tuple(range(8)), workers=held)
    backend.sync(2)
    assert engine.poll() == []  # both have proven what they serve
    with torch.no_grad():
        one.policy.lm_head.weight.mul_(1.01)
        one.policy.model.layers[0].mlp.up_proj.weight.mul_(1.5)  # of which they keep a copy
    backend.sync(2)  # which is what they have, so they take no other
    engine.submit(REQUESTS[0])
    with pytest.raises(SyncError, match="policy version 2"):
        engine.poll()


def test_workers_that_are_told_to_stop_finish_what_they_have(alone, pair):
    sampled, _, _ = alone
    _, _, engine = pair
    submit_all(engine)
    assert named(engine.cancel()) == sampled[0]
    assert engine.poll() == []


def test_sampling_between_the_begin_of_an_update_and_its_end_changes_neither(alone, pair):
    one, _, engine = pair
    sampled = [finished(engine, 1)]
    finish = one.begin_update(batch(groups=6, seed=0), UPDATES)
    assert finished(engine, 1) == sampled[0]
    stats = [finish()]
    sampled.append(finished(engine, 2))
    stats.append(one.begin_update(batch(groups=6, seed=1), UPDATES)())
    assert (sampled, stats) == alone[:2]
    assert bits_equal(weights(one.policy), alone[2])


class DyingRunner:
    def __init__(self, held, path):
        self._held, self._path = held, path

    def run(self, function, items, *, gradients=False):
        assert function is gradient
        return self._held.run(dies_once, [(self._path, item) for item in items], gradients=gradients)


def test_a_worker_that_dies_in_a_pass_changes_no_bit(alone, pair, tmp_path):
    one, held, engine = pair
    one.runner = DyingRunner(held, tmp_path / "passes")
    sampled, stats, ends = train(one, engine)
    assert (sampled, stats) == alone[:2]
    assert bits_equal(ends, alone[2])
    told = "worker processes replaced: 1 × exit code -9; what they computed is computed again"
    assert held.incidents() == [told]


def test_workers_killed_while_they_sample_change_no_text(alone, pair):
    _, held, engine = pair
    submit_all(engine)
    found = engine.poll()
    for worker in held._workers:
        worker.process.kill()
    assert named(found + rest(engine)) == alone[0][0]


def test_what_a_killed_worker_had_delivered_is_given_once():
    held, engine = with_workers(one_learner(), 1)
    with closing(held):
        submit_all(engine)
        engine._deal()
        (item,) = engine._items
        while not item.values:
            held._advance()
        held._workers[0].process.kill()
        while not item.done:
            held._advance()
        names = [(done.draw, done.sample) for done in engine.poll()]
    assert len(names) == len(set(names)) == sum(request.samples for request in REQUESTS)


def test_a_worker_that_hangs_is_replaced_until_it_is_clear_that_its_item_hangs_them_all(held, monkeypatch):
    give_up_after(0.5, monkeypatch)
    assert list(held.run(hangs, [0, 0])) == [0, 0]
    with pytest.raises(ChildProcessError, match=r"again and again \(silent for too long\).*workers=1"):
        list(held.run(hangs, [1]))


def test_an_item_that_always_kills_its_worker_ends_the_run_wherever_it_does():
    again = pytest.raises(ChildProcessError, match=r"again and again \(exit code -9\)")
    with closing(Workers([qwen2()], count=1)) as held, again:
        list(held.run(dies_after_its_first_answer, [1]))


def test_what_takes_long_is_not_measured_by_what_is_quick(held, monkeypatch):
    """A probe of a few tokens says nothing of a pass, nor the first response that ends of the last one."""
    give_up_after(0.2, monkeypatch)
    assert list(held.everywhere(counts, b"")) == [0]
    assert list(held.run(waits, [(0.0, 1.0), (0.0, 0.8)])) == [0.0, 0.0]
    assert held.incidents() == []


def test_time_in_which_the_trainer_is_stopped_is_no_silence(held, monkeypatch):
    """As where a terminal or a container stops it, and its workers, for longer than these may be silent."""
    give_up_after(0.5, monkeypatch)
    look = workers_module.wait_for

    def stopped(connections, timeout):
        time.sleep(0.8)
        return look(connections, 0.0)

    assert list(held.run(waits, [(0.0, 0.0)])) == [0.0]
    monkeypatch.setattr(workers_module, "wait_for", stopped)
    assert list(held.run(waits, [(2.0, 0.0)])) == [2.0]
    assert held.incidents() == []


def test_a_worker_that_takes_nothing_any_more_is_replaced(monkeypatch):
    monkeypatch.setattr(children, "SEND_SECONDS", 1)
    # It may stop before it has said that it is idle.
    monkeypatch.setattr(workers_module, "LEAST_SILENCE", 1.0)
    with closing(Workers([qwen2()], count=1)) as held:
        assert list(held.run(counts, [b""])) == [0]
        os.kill(held._workers[0].process.pid, signal.SIGSTOP)
        assert list(held.run(counts, [bytes(1 << 24)])) == [1 << 24]
        assert "worker processes replaced: 1 × " in held.incidents()[0]


def test_large_items_do_not_wait_for_a_worker_that_talks(held):
    """Neither side may wait for the other to read: items and answers are far larger than a socket's buffer."""
    items = [bytes([index]) * (1 << 21) for index in range(4)]
    assert list(held.run(echoes, items)) == items


def test_collections_in_a_worker_leave_out_what_it_begins_with(held):
    assert next(held.run(collects, [None])) < 10_000


def test_the_last_items_wait_for_whichever_worker_is_free_first():
    """One that has answered but is not done looks busy: the other must not be given all there is."""
    with closing(Workers([qwen2()], count=2)) as held:
        quick, slow = (held.submit(lingers, 0.3 * index, worker=index) for index in range(2))
        while held.poll([quick]):
            pass
        held.poll([slow])
        items, processes = [held.submit(lingers, 0.6) for _ in range(2)], []
        while told := held.poll(items):
            processes += told
        assert len(set(processes)) == len(processes) == 2


def test_the_last_item_begins_first_where_all_gradients_can_wait_to_be_added(held):
    for count, order in ((SLOTS, [1, 0]), (SLOTS + 1, [0, 1, 2])):
        began = list(held.run(begins, [None] * count, gradients=True))
        assert sorted(range(count), key=began.__getitem__) == order


def test_what_a_function_raises_is_raised_here(held):
    with pytest.raises(KeyError, match="no bread") as raised:
        list(held.run(fails, ["bread"]))
    assert "in fails" in raised.value.__notes__[0]
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        list(held.run(opens, ["no-such-file"]))
    assert not held.incidents()
    with pytest.raises(RuntimeError, match=r"(?s)in fails.*OddError: no wine"):
        list(held.run(fails, ["wine"]))
    assert held.incidents() == []


def test_nothing_is_left_when_it_is_closed():
    held = Workers([qwen2()], count=2)
    processes = [worker.process for worker in held._workers]
    begin = time.monotonic()
    held.close()
    assert time.monotonic() - begin < 10
    assert not any(process.is_alive() for process in processes)


def test_a_machine_that_has_too_little_memory_says_so():
    with pytest.raises(WorkersError, match=r"need [\d.,]+ \w+ of memory, and .* are free: .* workers=1"):
        SharedMemory(1 << 60)


def test_the_weights_stay_tied_and_the_same():
    model = qwen2()
    before = weights(model)
    with closing(Workers([model], count=1)):
        assert bits_equal(weights(model), before)
        assert model.lm_head.weight is model.model.embed_tokens.weight
        logits = model(torch.tensor([[1, 2, 3]])).logits
    assert torch.equal(logits, model(torch.tensor([[1, 2, 3]])).logits)


@pytest.mark.slow
def test_a_fork_server_that_is_killed_is_followed_by_another(held):
    assert list(held.run(counts, [b"a"])) == [1]
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    eventually(held._workers[0].connection.poll)  # the end: workers die with it
    assert list(held.run(counts, [b"ab"])) == [2]
    assert "worker processes replaced: " in held.incidents()[0]
